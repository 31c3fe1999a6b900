//! The body of an error response: a problem in JSON (RFC 9457).

use stentor_wire::error::Rejection;
use stentor_wire::events::CommandId;
use stentor_wire::lookup::json_string;
use stentor_wire::negotiate::media_type;

/// The content type of a problem.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// Makes the body of a problem. `retry_after_s` is the value of the field `Retry-After`.
pub(crate) fn problem(rejection: &Rejection, retry_after_s: Option<&str>) -> Vec<u8> {
    let (code, title) = (rejection.code.name(), rejection.code.title());
    let status = rejection.status().0;
    // Titles and codes hold nothing that JSON escapes.
    let mut body = format!(
        "{{\"type\":\"{TYPE_PREFIX}{code}\",\"title\":\"{title}\",\"status\":{status},\
         \"code\":\"{code}\",\"detail\":"
    )
    .into_bytes();
    json_string(&mut body, &rejection.detail);
    if let Some(seconds) = retry_after_s {
        body.extend_from_slice(b",\"retry_after_seconds\":");
        body.extend_from_slice(seconds.as_bytes());
    }
    body.extend_from_slice(b"}\n");
    body
}

/// Makes the reply to a WebSocket command that is rejected.
pub(crate) fn command_error(id: Option<&CommandId>, rejection: &Rejection) -> Vec<u8> {
    let (code, status) = (rejection.code.name(), rejection.status().0);
    let id = id.map_or_else(String::new, |id| format!("\"id\":{},", id.json()));
    let mut error =
        format!("{{\"error\":{{{id}\"code\":\"{code}\",\"status\":{status},\"detail\":")
            .into_bytes();
    json_string(&mut error, &rejection.detail);
    error.extend_from_slice(b"}}");
    error
}

/// Makes the reply to a WebSocket command that was executed; `cursor` is the reader's place, if the
/// command subscribed to something.
pub(crate) fn command_ok(id: Option<&CommandId>, cursor: Option<&str>) -> String {
    let id = id.map(|id| format!("\"id\":{}", id.json()));
    let cursor = cursor.map(|cursor| format!("\"cursor\":\"{cursor}\""));
    let members: Vec<_> = id.into_iter().chain(cursor).collect();
    format!("{{\"ok\":{{{}}}}}", members.join(","))
}

/// Whether a client prefers the sentence of an error as text, as browsers do.
pub(crate) fn prefers_text(accept: Option<&[u8]>) -> bool {
    let offered = [PROBLEM, "application/json", "text/plain", "text/html"];
    media_type(accept, &offered).is_some_and(|chosen| chosen.starts_with("text/"))
}

/// What the address of each kind of problem begins with. Clients compare codes, not addresses.
const TYPE_PREFIX: &str = "urn:stentor:error:";

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::error::ErrorCode;

    #[test]
    fn every_problem_is_json_with_its_code() {
        for &code in ErrorCode::ALL {
            let body = problem(&Rejection::because(code, "a \"b\"\n"), Some("7"));
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let expected = serde_json::json!({
                "type": format!("urn:stentor:error:{}", code.name()),
                "title": code.title(), "status": code.status().0, "code": code.name(),
                "detail": "a \"b\"\n", "retry_after_seconds": 7,
            });
            assert_eq!(body, expected);
        }
    }

    #[test]
    fn text_is_sent_to_clients_that_prefer_it() {
        let rows = [
            (None, false),
            (Some("*/*"), false),
            (Some("application/json"), false),
            (Some("text/event-stream"), false),
            (Some("image/png"), false),
            (Some("text/plain"), true),
            (Some("text/*"), true),
            (Some("application/json, text/plain;q=0.5"), false),
            (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), true),
        ];
        for (accept, is_text) in rows {
            assert_eq!(prefers_text(accept.map(str::as_bytes)), is_text, "{accept:?}");
        }
    }
}
