//! The body of a large response, which the connection makes in steps.
//!
//! To make and send a megabyte at once would hold up the worker for some milliseconds. An
//! endpoint therefore only finds the data of its answer, which decides the fields of the response
//! and its length. The connection then makes the body part by part, and waits in the queue of its
//! work class between the parts (`connection/body.rs`). It holds shared data and a mark, and never
//! more than one part of the body itself.

use std::fmt::Debug;

/// Where the next part of a body begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// The value or the row.
    pub(crate) item: usize,
    /// How much of it has been written, as its writer counts that.
    pub(crate) offset: usize,
}

/// The data that a body is made from. They never change.
pub(crate) trait LargeBody: Debug + Send {
    /// Appends the next part. Returns where the one after it begins; `None` if this was the last.
    fn append(&self, mark: Mark, out: &mut Vec<u8>) -> Option<Mark>;

    /// The bytes that it owns.
    fn own_bytes(&self) -> usize;

    /// Its share of the messages that their topics have dropped, in bytes.
    fn detached_share(&self) -> usize {
        0
    }

    /// Appends all from a mark on.
    fn append_rest(&self, from: Mark, out: &mut Vec<u8>) {
        let mut next = Some(from);
        while let Some(mark) = next {
            next = self.append(mark, out);
        }
    }
}
