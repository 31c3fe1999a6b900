//! A simulated follower: it reads a feed, begins with a snapshot, and makes a hub of both, badly:
//! it stalls, is cut off, and comes back behind what it has. At rest its hub is the server's own.

use super::super::net::{Client, Net};
use super::super::{CONTROL, World};
use super::log::PATTERNS;
use super::reader::Mood;
use stentor_hub::{Epoch, Event, Hub, Limits, Place, Snapshot, decode_entry};
use stentor_io::Rng;
use stentor_log::{Piece, SnapshotDecoder, read_feed_frame};
use stentor_test::http::{Response, take_chunk};
use stentor_test::pattern::matches;

/// A follower of all topics, or of some.
pub(super) struct Follower {
    filter: Option<&'static str>,
    feed: Option<Link>,
    snapshot: Option<(Link, Received)>,
    hub: Option<Hub>,
    /// Everything up to this number was received.
    upto: u64,
    is_stalled: bool,
    /// How often it began anew, and how often it went on.
    pub(super) begun: usize,
    pub(super) resumed: usize,
}

/// A connection whose answer is sent in chunks.
struct Link {
    client: Client,
    /// Of the answer, what was not looked at.
    input: Vec<u8>,
    status: Option<u16>,
    /// Of the body, what was not looked at.
    content: Vec<u8>,
    /// The last chunk has come.
    is_over: bool,
}

/// What has come of a snapshot.
struct Received {
    decoder: SnapshotDecoder,
    payload: Vec<u8>,
    entries: Vec<Vec<u8>>,
}

impl Link {
    fn open(sim: &mut Net, target: &str) -> Link {
        let client = sim.connect(CONTROL);
        sim.write(client, format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        Link { client, input: Vec::new(), status: None, content: Vec::new(), is_over: false }
    }

    /// Takes what has come.
    fn read(&mut self, sim: &mut Net) {
        self.input.extend_from_slice(&sim.read(self.client));
        if self.status.is_none() {
            let Some(head) = Response::take_head(&mut self.input) else { return };
            let is_chunked = head.field("Transfer-Encoding") == Some("chunked");
            assert_eq!(is_chunked, head.status == 200, "{head:?}");
            self.status = Some(head.status);
        }
        while self.status == Some(200)
            && !self.is_over
            && let Some(chunk) = take_chunk(&mut self.input)
        {
            self.is_over = chunk.is_empty();
            self.content.extend(chunk);
        }
        assert!(!self.is_over || self.input.is_empty(), "something behind the last chunk");
    }

    fn has_ended(&self, sim: &mut Net) -> bool {
        self.is_over || sim.ended(self.client) || sim.was_reset(self.client)
    }

    fn close(self, sim: &mut Net) {
        sim.stall(self.client, false);
        sim.reset_client(self.client);
    }
}

impl Follower {
    pub(super) fn random(rng: &mut Rng) -> Follower {
        Follower {
            filter: rng.percent(40).then(|| PATTERNS[rng.below(PATTERNS.len())]),
            feed: None,
            snapshot: None,
            hub: None,
            upto: 0,
            is_stalled: false,
            begun: 0,
            resumed: 0,
        }
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = Client> {
        let snapshot = self.snapshot.as_ref().map(|(link, _)| link);
        self.feed.iter().chain(snapshot).map(|link| link.client)
    }

    /// Whether it has not got everything up to a number.
    pub(super) fn misses(&self, seq: u64) -> bool {
        self.hub.is_none() || self.upto < seq
    }

    pub(super) fn play(&mut self, sim: &mut Net, rng: &mut Rng, mood: Mood) {
        if rng.percent(mood.unrest) {
            let stalls = rng.percent(50);
            self.is_stalled = stalls;
            self.connections().for_each(|client| sim.stall(client, stalls));
        }
        if mood.unrest == 0 && std::mem::take(&mut self.is_stalled) {
            self.connections().for_each(|client| sim.stall(client, false));
        }
        if mood.unrest > 0
            && rng.percent(1)
            && let Some(feed) = self.feed.take()
        {
            self.lose(feed, sim);
        }
        if self.feed.is_none() && mood.connects {
            let target = self.target(true);
            self.feed = Some(Link::open(sim, &target));
        }
        self.read_feed(sim, mood);
        self.read_snapshot(sim);
    }

    fn target(&self, is_feed: bool) -> String {
        let topic = self.filter.map(|filter| format!("topic={filter}"));
        let since = self.hub.as_ref().map(|hub| format!("since={}-{}", hub.epoch(), self.upto));
        let parameters: Vec<String> = topic.into_iter().chain(since.filter(|_| is_feed)).collect();
        format!("/-/{}?{}", if is_feed { "feed" } else { "snapshot" }, parameters.join("&"))
    }

    fn read_feed(&mut self, sim: &mut Net, mood: Mood) {
        let Some(mut feed) = self.feed.take() else { return };
        feed.read(sim);
        match feed.status {
            Some(410) => {
                assert!(self.hub.take().is_some(), "it asked for nothing");
                return feed.close(sim);
            }
            Some(200) if self.hub.is_some() => self.apply_feed(&mut feed),
            Some(200) if self.snapshot.is_none() && mood.connects => {
                let received = Received {
                    decoder: SnapshotDecoder::new(1 << 20),
                    payload: Vec::new(),
                    entries: Vec::new(),
                };
                self.snapshot = Some((Link::open(sim, &self.target(false)), received));
            }
            Some(200) | None => {}
            // A stop does not wait for requests that are still on their way.
            Some(408) if mood.draining => {}
            status => panic!("{status:?}"),
        }
        if feed.has_ended(sim) {
            return self.lose(feed, sim);
        }
        self.feed = Some(feed);
    }

    /// The feed is over. What has come of a snapshot is of no use without it.
    fn lose(&mut self, feed: Link, sim: &mut Net) {
        feed.close(sim);
        match self.hub {
            None => self.snapshot.take().into_iter().for_each(|(link, _)| link.close(sim)),
            Some(_) => self.resumed += 1,
        }
    }

    fn apply_feed(&mut self, feed: &mut Link) {
        let Follower { hub: Some(hub), upto, .. } = self else { return };
        while let Some(frame) = read_feed_frame(&feed.content, 1 << 20).unwrap() {
            for (number, entry) in frame.records() {
                let (entry, place) = decode_entry(entry).unwrap();
                assert!(matches!(place, Place::Was(_)) && number <= frame.upto);
                // What was in the snapshot is known.
                hub.apply(entry, place).unwrap();
            }
            *upto = frame.upto.max(*upto);
            feed.content.drain(..frame.bytes);
        }
    }

    fn read_snapshot(&mut self, sim: &mut Net) {
        let Some((mut link, mut received)) = self.snapshot.take() else { return };
        link.read(sim);
        let Received { decoder, payload, entries } = &mut received;
        let used = decoder.read(&link.content, &mut |piece| {
            match piece {
                Piece::Payload(bytes) | Piece::Rest(bytes) => payload.extend_from_slice(bytes),
                Piece::Entry(_, entry) => entries.push(entry.to_vec()),
                Piece::Hole => panic!("there is no hole"),
            }
            Ok(())
        });
        link.content.drain(..used.unwrap());
        if link.is_over {
            self.load(&received);
            return link.close(sim);
        }
        if link.has_ended(sim) {
            return link.close(sim);
        }
        self.snapshot = Some((link, received));
    }

    fn load(&mut self, received: &Received) {
        let Received { decoder, payload, entries } = received;
        let (head, last) = (decoder.begun().unwrap(), decoder.ended().expect("it is whole"));
        let hub = Hub::new(Epoch::from_number(head.epoch), Vec::new(), Limits::default());
        let mut restore = hub.restore();
        assert_eq!(restore.read(payload), Ok(payload.len()));
        let restored = restore.finish().unwrap();
        for entry in entries {
            let (entry, place) = decode_entry(entry).unwrap();
            hub.apply(entry, place).unwrap();
        }
        assert!(restored.upto_seq <= last && hub.seq() <= last && last >= head.seq);
        if self.filter.is_none() {
            assert_eq!(hub.seq(), last, "something is missing");
        }
        hub.continue_after(last, head.lost.clone());
        (self.hub, self.upto) = (Some(hub), last);
        self.begun += 1;
    }

    /// It has everything, so its hub is the same, or its values are if the server
    /// `has_values_alone`.
    pub(super) fn check(&self, world: &World, has_values_alone: bool) {
        let own = self.hub.as_ref().expect("it has begun");
        let hub = &world.shared.hub;
        if has_values_alone {
            own.trim_history_to(0);
        }
        let of = |hub: &Hub| {
            let is_meant = |topic: &str| self.filter.is_none_or(|filter| matches(filter, topic));
            let kept = hub.kept().into_iter().filter(|event| is_meant(event.topic()));
            kept.map(|event| Shown::of(&event)).collect::<Vec<_>>()
        };
        assert_eq!(of(own), of(hub));
        if self.filter.is_none() {
            assert!(bytes(own) == bytes(hub), "the hub of a follower is another");
        }
        own.check();
    }
}

/// All of a message that readers see. To compare the bytes of two hubs is not enough, as one
/// encoder writes both.
#[derive(PartialEq, Debug)]
struct Shown {
    topic: String,
    id: String,
    data: Vec<u8>,
    is_deletion: bool,
    published_at: u64,
    content_type: String,
    event: Option<String>,
    cache_control: Option<String>,
}

impl Shown {
    fn of(event: &Event) -> Shown {
        let message = &event.message;
        Shown {
            topic: event.topic().to_owned(),
            id: message.id().to_string(),
            data: message.data().to_vec(),
            is_deletion: message.is_deletion(),
            published_at: message.published_at(),
            content_type: message.content_type().to_owned(),
            event: message.event().map(str::to_owned),
            cache_control: message.cache_control().map(str::to_owned),
        }
    }
}

/// All that a hub is.
fn bytes(hub: &Hub) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut snapshot = Snapshot::begin(hub, &mut bytes);
    while snapshot.write_slice(hub, &mut bytes).unwrap() {}
    bytes
}
