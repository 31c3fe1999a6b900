//! Notices: the items of a stream that are neither a message nor a deletion.
//!
//! A notice is a JSON object with one of the members `cursor`, `gap`, `access` and `end`. It is the
//! same on every transport: the data of an event named [`NOTICE`](crate::sse::NOTICE), a text frame
//! of a WebSocket, and an item of a long-poll's answer.

use crate::error::ErrorCode;
use crate::labels;
use crate::lookup::json_string;

labels! {
    /// Why messages after a cursor may be missing.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum GapReason {
        /// The cursor cannot be read.
        CursorInvalid = "cursor_invalid",
        /// The cursor is of another epoch.
        EpochChanged = "epoch_changed",
        /// The cursor is ahead of this server.
        CursorAhead = "cursor_ahead",
        /// The message of the cursor was lost before it was stored.
        RolledBack = "rolled_back",
        /// History does not reach back to the cursor.
        HistoryTrimmed = "history_trimmed",
        /// The reader reads too many topics to replay their history.
        TooManyTopics = "too_many_topics",
        /// The server is short of memory, so it replays no history.
        MemoryPressure = "memory_pressure",
    }
}

labels! {
    /// What a stream continues with after a gap.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Resume {
        /// With the messages that are still retained.
        History = "history",
        /// With the current values.
        Values = "values",
        /// With what is published from now on.
        Live = "live",
    }
}

impl GapReason {
    /// What the stream continues with. A client that does not know the reason goes by this.
    #[must_use]
    pub fn resume(self) -> Resume {
        match self {
            GapReason::HistoryTrimmed => Resume::History,
            GapReason::TooManyTopics => Resume::Live,
            GapReason::CursorInvalid
            | GapReason::EpochChanged
            | GapReason::CursorAhead
            | GapReason::RolledBack
            | GapReason::MemoryPressure => Resume::Values,
        }
    }
}

/// Messages after `since` may be missing. `since` is absent if the reader named no cursor that can
/// be read.
#[must_use]
pub fn gap(reason: GapReason, since: Option<&str>) -> String {
    let (reason, resume) = (reason.name(), reason.resume().name());
    match since {
        Some(since) => format!(
            "{{\"gap\":{{\"reason\":\"{reason}\",\"since\":\"{since}\",\"resume\":\"{resume}\"}}}}"
        ),
        None => format!("{{\"gap\":{{\"reason\":\"{reason}\",\"resume\":\"{resume}\"}}}}"),
    }
}

/// The reader has everything up to this id.
#[must_use]
pub fn cursor(id: &str) -> String {
    format!("{{\"cursor\":\"{id}\"}}")
}

/// The stream is over, and a new connection with the same token would end in the same way.
#[must_use]
pub fn end(reason: ErrorCode) -> String {
    format!("{{\"end\":{{\"reason\":\"{}\"}}}}", reason.name())
}

/// The parts of a subscription that the reader may not read: filters of which it may see nothing,
/// and filters of which it may see a part.
#[must_use]
pub fn access(denied: &[String], partial: &[String]) -> String {
    let mut out = Vec::new();
    for (key, filters) in [("{\"access\":{\"denied\":[", denied), ("],\"partial\":[", partial)] {
        out.extend_from_slice(key.as_bytes());
        for (index, filter) in filters.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            json_string(&mut out, filter);
        }
    }
    out.extend_from_slice(b"]}}");
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_json_with_one_member() {
        let names = ["/a\"b".to_owned(), "/c".to_owned()];
        let rows = [
            (
                gap(GapReason::HistoryTrimmed, Some("6525b080-1")),
                r#"{"gap":{"reason":"history_trimmed","since":"6525b080-1","resume":"history"}}"#,
            ),
            (
                gap(GapReason::CursorInvalid, None),
                r#"{"gap":{"reason":"cursor_invalid","resume":"values"}}"#,
            ),
            (cursor("6525b080-1"), r#"{"cursor":"6525b080-1"}"#),
            (end(ErrorCode::TokenExpired), r#"{"end":{"reason":"token_expired"}}"#),
            (access(&names, &[]), r#"{"access":{"denied":["/a\"b","/c"],"partial":[]}}"#),
        ];
        for (notice, expected) in rows {
            assert_eq!(notice, expected);
            let parsed: serde_json::Value = serde_json::from_str(&notice).unwrap();
            assert_eq!(parsed.as_object().unwrap().len(), 1);
        }
    }
}
