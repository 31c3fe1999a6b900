//! Reads answers of HTTP/1.1 (RFC 9112) as strictly as a server should write them. Each
//! function takes a whole piece off the front of a buffer, or nothing.

use std::fmt;

/// An answer, or its head alone.
#[derive(Clone)]
pub struct Response {
    /// The number in its first line.
    pub status: u16,
    /// Its lines, and the empty one at its end.
    pub head: String,
    /// Empty, if only the head was taken.
    pub body: Vec<u8>,
}

impl Response {
    /// Takes the head of an answer.
    ///
    /// # Panics
    ///
    /// The bytes are no head, or are not ASCII.
    pub fn take_head(input: &mut Vec<u8>) -> Option<Response> {
        let response = Response::of_head(input)?;
        input.drain(..response.head.len());
        Some(response)
    }

    /// Takes an answer with its body, if it has one.
    ///
    /// # Panics
    ///
    /// Where the head does not say how long the body is.
    pub fn take(input: &mut Vec<u8>) -> Option<Response> {
        let mut response = Response::of_head(input)?;
        let (head, length) = (response.head.len(), response.body_len());
        response.body = input.get(head..head + length)?.to_vec();
        input.drain(..head + length);
        Some(response)
    }

    fn of_head(input: &[u8]) -> Option<Response> {
        let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&input[..end]).expect("a head is text");
        assert!(head.is_ascii(), "{head:?}");
        let line = head.lines().next().unwrap_or_default();
        let rest =
            line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("no status line: {line}"));
        let (status, reason) = rest.split_once(' ').expect("a status line has a reason");
        assert!(status.len() == 3 && !reason.is_empty(), "{line}");
        let status = status.parse().expect("a status is a number");
        Some(Response { status, head: head.to_owned(), body: Vec::new() })
    }

    fn body_len(&self) -> usize {
        if matches!(self.status, 100..200 | 204 | 304) {
            return 0;
        }
        assert_eq!(self.field("transfer-encoding"), None, "{self:?}");
        let length = self.field("content-length").unwrap_or_else(|| panic!("no length: {self:?}"));
        length.parse().expect("a length is a number")
    }

    /// The value of a field that may be there once.
    ///
    /// # Panics
    ///
    /// The field is there twice.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.values(name);
        let first = values.next();
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        first
    }

    /// The members of a field that is a list, and so may be there several times.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<&str> {
        self.values(name).flat_map(|value| value.split(',')).map(str::trim).collect()
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.head.split("\r\n").skip(1).filter_map(move |line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The lines of the head, each with its line end.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.head.split_inclusive('\n')
    }

    /// All fields but those that differ from one moment to the next.
    #[must_use]
    pub fn fields(&self) -> Vec<&str> {
        let lines = self.head.split("\r\n").skip(1);
        lines.filter(|line| !line.is_empty() && !line.starts_with("Date:")).collect()
    }

    /// The body.
    ///
    /// # Panics
    ///
    /// The body is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// The body is no JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The entity tag, quotes included.
    ///
    /// # Panics
    ///
    /// The answer has no entity tag.
    #[must_use]
    #[track_caller]
    pub fn tag(&self) -> String {
        self.field("etag").unwrap_or_else(|| panic!("no entity tag: {self:?}")).to_owned()
    }

    /// The same answer, if it has this status.
    ///
    /// # Panics
    ///
    /// The status is another.
    #[track_caller]
    pub fn expect(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// The same answer, if it has one of these statuses.
    ///
    /// # Panics
    ///
    /// The status is another.
    #[track_caller]
    pub fn expect_one_of(self, statuses: &[u16]) -> Response {
        assert!(statuses.contains(&self.status), "{self:?}");
        self
    }

    /// Checks that this is a rejection with this status: a problem in JSON (RFC 9457) whose members
    /// agree with the head.
    ///
    /// # Panics
    ///
    /// The answer is no such rejection.
    #[track_caller]
    pub fn refused(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let caching = match self.code() {
            "topic_not_found" | "file_not_found" => "no-cache",
            _ => "no-store",
        };
        let directives = self.field("cache-control");
        assert!(directives.is_some_and(|it| it.ends_with(caching)), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], self.code(), "{self:?}");
        assert_eq!(problem["type"], format!("urn:stentor:error:{}", self.code()), "{self:?}");
        assert_eq!(problem["status"], status, "{self:?}");
        assert!(problem["title"].as_str().is_some_and(|title| title.ends_with('.')), "{self:?}");
        assert!(self.detail().len() > 5, "{self:?}");
        let retry_after = problem["retry_after_seconds"].as_u64().map(|it| it.to_string());
        assert_eq!(retry_after.as_deref(), self.field("retry-after"), "{self:?}");
        self
    }

    /// The code of a rejection, as its head has it.
    ///
    /// # Panics
    ///
    /// The answer is no rejection.
    #[must_use]
    #[track_caller]
    pub fn code(&self) -> &str {
        self.field("stentor-error").unwrap_or_else(|| panic!("no rejection: {self:?}"))
    }

    /// The sentence of a rejection.
    ///
    /// # Panics
    ///
    /// The answer is no problem in JSON.
    #[must_use]
    #[track_caller]
    pub fn detail(&self) -> String {
        let problem = self.json();
        let detail = problem["detail"].as_str();
        detail.unwrap_or_else(|| panic!("no rejection: {self:?}")).to_owned()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(1000)];
        write!(f, "\n{}{}", self.head, String::from_utf8_lossy(shown))
    }
}

/// Takes a chunk of a body; the last one is empty.
///
/// # Panics
///
/// The bytes are no chunk, or one with an extension or a trailer, which no server here sends.
pub fn take_chunk(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    let start = input.windows(2).position(|two| two == b"\r\n")? + 2;
    let length = std::str::from_utf8(&input[..start - 2]).expect("a length is text");
    let end = start + usize::from_str_radix(length, 16).expect("a length");
    let line_end = input.get(end..end + 2)?;
    assert_eq!(line_end, b"\r\n", "the end of a chunk");
    let chunk = input[start..end].to_vec();
    input.drain(..end + 2);
    Some(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_answers_and_chunks_are_taken() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi\
            HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nb\r\n0123456789a\r\n0\r\n\r\n";
        for size in 1..bytes.len() {
            let (mut input, mut taken, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
            for part in bytes.chunks(size) {
                input.extend_from_slice(part);
                while taken.len() < 3
                    && let Some(response) = Response::take(&mut input)
                {
                    taken.push((response.status, response.body));
                }
                while taken.len() == 3
                    && let Some(chunk) = take_chunk(&mut input)
                {
                    chunks.push(chunk);
                }
            }
            let no_body = |status| (status, Vec::new());
            assert_eq!(taken, [no_body(100), (200, b"hi".to_vec()), no_body(304)], "{size}");
            assert_eq!(chunks, [b"0123456789a".to_vec(), Vec::new()], "{size}");
            assert_eq!(input, b"");
        }
    }

    #[test]
    fn a_field_has_any_case_and_stands_once() {
        let mut input = b"HTTP/1.1 200 OK\r\nVary: a, b\r\nETag: \"1\"\r\nvary: c\r\n\r\n".to_vec();
        let response = Response::take_head(&mut input).unwrap();
        assert_eq!((response.tag(), response.field("date")), ("\"1\"".to_owned(), None));
        assert_eq!(response.list("Vary"), ["a", "b", "c"]);
        assert!(std::panic::catch_unwind(|| response.field("vary").is_some()).is_err());
    }
}
