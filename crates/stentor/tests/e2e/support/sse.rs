//! A reader of Server-Sent Events.

use super::{Client, Ending, PATIENCE, Response, Url};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Instant;
use stentor_test::sse::{Decoder, Item};

/// A stream of events.
pub(crate) struct EventStream {
    client: Client,
    pub(crate) head: Response,
    decoder: Decoder,
    items: VecDeque<Item>,
    /// The last `retry:`, and how many there were.
    pub(crate) retry_ms: Option<u64>,
    pub(crate) retries: usize,
    /// The cursor of the last notice that brings one: where a reader that was sent nothing is.
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

impl Event {
    /// The member of a notice.
    pub(crate) fn notice(&self, member: &str) -> Option<Value> {
        if self.name.as_deref() != Some(NOTICE) {
            return None;
        }
        let data: Value = serde_json::from_str(&self.data).expect("a notice is JSON");
        data.get(member).cloned()
    }
}

/// The event name of all that is no message.
pub(crate) const NOTICE: &str = "stentor";

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
            decoder: Decoder::behind(&head),
            head,
            items: VecDeque::new(),
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
        // Heartbeats alone must not keep a test alive.
        let begin = Instant::now();
        loop {
            match self.items.pop_front() {
                Some(Item::Event { id, name, data }) => {
                    let event = Event { id, name, data };
                    match event.notice("cursor") {
                        Some(cursor) => {
                            assert_eq!(cursor.as_str(), event.id.as_deref(), "{event:?}");
                            self.cursor = event.id;
                        }
                        None => return Ok(event),
                    }
                }
                Some(Item::Id(id)) => panic!("an id without an event: {id}"),
                Some(Item::Retry(ms)) => {
                    self.retry_ms = Some(ms);
                    self.retries += 1;
                }
                Some(Item::Comment) => {
                    self.comments += 1;
                    assert!(begin.elapsed() < PATIENCE, "nothing but heartbeats");
                }
                None => self.items.extend(self.decoder.take(&self.client.take()?)),
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
}
