//! A reader of Server-Sent Events (WHATWG HTML, section 9.2.6) that takes the bytes as they come.

use super::{Client, Ending, PATIENCE, Response, Url};
use std::time::Instant;

/// A stream of events.
pub(crate) struct EventStream {
    client: Client,
    pub(crate) head: Response,
    received: Vec<u8>,
    /// The last `retry:`, and how many there were.
    pub(crate) retry_ms: Option<u64>,
    pub(crate) retries: usize,
    /// The last id that came without an event: where a reader that was sent nothing is.
    pub(crate) cursor: Option<String>,
    /// Comments so far: heartbeats.
    pub(crate) comments: usize,
}

/// An event; `id` is there only if this very event has brought it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

impl EventStream {
    /// A stream on a connection of its own. `fields` are further header lines.
    #[track_caller]
    pub(crate) fn open(url: Url, target: &str, fields: &str) -> EventStream {
        EventStream::over(Client::connect(url.0), target, fields)
    }

    #[track_caller]
    pub(crate) fn over(client: Client, target: &str, fields: &str) -> EventStream {
        EventStream::try_over(client, target, fields).expect("an answer before the connection ends")
    }

    /// The same, unless the server is gone.
    #[track_caller]
    pub(crate) fn try_over(mut client: Client, target: &str, fields: &str) -> Option<EventStream> {
        let head = client.try_open(target, &format!("Accept: text/event-stream\r\n{fields}"));
        let head = head?.expect(200);
        assert_eq!(head.field("content-type"), Some("text/event-stream"), "{head:?}");
        Some(EventStream {
            client,
            head,
            received: Vec::new(),
            retry_ms: None,
            retries: 0,
            cursor: None,
            comments: 0,
        })
    }

    /// The next event.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Event {
        self.try_event().unwrap_or_else(|ending| panic!("the stream ended: {ending:?}"))
    }

    /// The next event, or how the stream ended.
    #[track_caller]
    pub(crate) fn try_event(&mut self) -> Result<Event, Ending> {
        let mut event = Event::default();
        let mut has_data = false;
        // Heartbeats alone must not keep a test alive.
        let begin = Instant::now();
        loop {
            let line = self.line()?;
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if !line.is_empty() => {
                    self.comments += 1;
                    assert!(begin.elapsed() < PATIENCE, "nothing but heartbeats");
                }
                "" if has_data => {
                    event.data.pop();
                    return Ok(event);
                }
                "" => {
                    assert_eq!(event.name, None, "an event without data is dropped");
                    self.cursor = event.id.take().or(self.cursor.take());
                }
                "id" => event.id = Some(value.to_owned()),
                "event" => event.name = Some(value.to_owned()),
                "data" => {
                    event.data += value;
                    event.data.push('\n');
                    has_data = true;
                }
                "retry" => {
                    self.retry_ms = Some(value.parse().expect("a number of milliseconds"));
                    self.retries += 1;
                }
                _ => panic!("a field that no reader knows: {line:?}"),
            }
        }
    }

    /// How the stream ends; an event instead is a failure.
    #[track_caller]
    pub(crate) fn ending(&mut self) -> Ending {
        match self.try_event() {
            Ok(event) => panic!("an event after the last: {event:?}"),
            Err(ending) => ending,
        }
    }

    fn line(&mut self) -> Result<String, Ending> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.received.drain(..=end).collect();
                line.pop();
                assert!(!line.contains(&b'\r'), "a line end within a line: {line:?}");
                return Ok(String::from_utf8(line).expect("a stream of events is UTF-8"));
            }
            let more = self.client.take()?;
            self.received.extend(more);
        }
    }
}
