//! Reads Server-Sent Events (WHATWG HTML, section 9.2.6) as strictly as a server should write them.

use crate::http::{Response, take_chunk};

/// A part of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// An event with data.
    Event {
        /// What this very event has brought.
        id: Option<String>,
        /// Without one it is a `message`.
        name: Option<String>,
        /// Its lines, with `\n` between them.
        data: String,
    },
    /// An id without an event: from here a reader resumes that was sent nothing.
    Id(String),
    /// A client waits so many milliseconds before it connects again.
    Retry(u64),
    /// A sign of life.
    Comment,
}

/// Takes the bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The body is chunked: what has come of the next chunk. `None` once the last one has come.
    chunk: Option<Vec<u8>>,
    is_chunked: bool,
    /// A line without its end.
    line: Vec<u8>,
    id: Option<String>,
    name: Option<String>,
    data: Option<String>,
}

impl Decoder {
    /// Decodes the body behind this head.
    #[must_use]
    pub fn behind(head: &Response) -> Decoder {
        let is_chunked = head.field("transfer-encoding") == Some("chunked");
        Decoder { chunk: is_chunked.then(Vec::new), is_chunked, ..Decoder::default() }
    }

    /// Whether the stream has ended, and says so itself.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_chunked && self.chunk.is_none()
    }

    /// The items that end in these bytes.
    ///
    /// # Panics
    ///
    /// At anything that a server should not send: bytes that are not UTF-8, a carriage return, a
    /// field that no reader knows, a name without data.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Item> {
        if !self.is_chunked {
            return self.take_content(bytes);
        }
        let mut items = Vec::new();
        assert!(bytes.is_empty() || !self.is_whole(), "bytes behind the last chunk");
        let mut input = self.chunk.take().unwrap_or_default();
        input.extend_from_slice(bytes);
        while let Some(chunk) = take_chunk(&mut input) {
            if chunk.is_empty() {
                assert!(input.is_empty(), "bytes behind the last chunk");
                return items;
            }
            items.extend(self.take_content(&chunk));
            assert!(self.line.is_empty(), "a line is cut by the end of a chunk");
        }
        self.chunk = Some(input);
        items
    }

    fn take_content(&mut self, bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                let line = String::from_utf8(std::mem::take(&mut self.line)).expect("it is UTF-8");
                items.extend(self.take_line(&line));
            } else {
                assert!(byte != b'\r', "a carriage return behind {:?}", self.line.as_slice());
                self.line.push(byte);
            }
        }
        items
    }

    fn take_line(&mut self, line: &str) -> Option<Item> {
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => return Some(Item::Comment),
            "retry" => return Some(Item::Retry(value.parse().expect("it is a number"))),
            "id" => self.id = Some(value.to_owned()),
            "event" => self.name = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => *data += &format!("\n{value}"),
                None => self.data = Some(value.to_owned()),
            },
            _ => panic!("a field that no reader knows: {line:?}"),
        }
        None
    }

    fn end_event(&mut self) -> Option<Item> {
        let (id, name) = (self.id.take(), self.name.take());
        match self.data.take() {
            Some(data) => Some(Item::Event { id, name, data }),
            None => {
                assert_eq!(name, None, "an event without data is dropped");
                id.map(Item::Id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_however_the_bytes_are_split() {
        let text = "retry: 5\n\nid: 1\nevent: e\ndata: a\ndata:  b\n\n:\nid: 2\n\ndata\n\n";
        let event = |id: Option<&str>, name: Option<&str>, data: &str| Item::Event {
            id: id.map(str::to_owned),
            name: name.map(str::to_owned),
            data: data.to_owned(),
        };
        let items = [
            Item::Retry(5),
            event(Some("1"), Some("e"), "a\n b"),
            Item::Comment,
            Item::Id("2".to_owned()),
            event(None, None, ""),
        ];
        for size in 1..text.len() {
            let mut decoder = Decoder::default();
            let taken: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|part| decoder.take(part)).collect();
            assert_eq!(taken, items);
        }
    }
    #[test]
    fn chunks_are_joined() {
        let mut head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let head = Response::take_head(&mut head).unwrap();
        let body = b"9\r\nretry: 5\n\r\n9\r\ndata: a\n\n\r\n0\r\n\r\n";
        for size in 1..body.len() {
            let mut decoder = Decoder::behind(&head);
            let taken: Vec<_> = body.chunks(size).flat_map(|part| decoder.take(part)).collect();
            let event = Item::Event { id: None, name: None, data: "a".to_owned() };
            assert_eq!(taken, [Item::Retry(5), event]);
            assert!(decoder.is_whole());
        }
    }
}
