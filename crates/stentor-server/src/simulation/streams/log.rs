//! What was published: the model that readers are checked against.
//!
//! The log hears of every message where it gets its number, and knows from the publishers what
//! each must be. From the rules alone it works out what history has lost by now, so that it can
//! tell a gap that had to be from one that hides a mistake.

use super::super::World;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use stentor_hub::{Event, Filter, Hub, Message, Pattern, Rule, Subscriber};
use stentor_io::Rng;
use stentor_test::pattern::matches;

/// The topics of a run: name, messages kept, bytes kept.
pub(super) const TOPICS: [(&str, u32, usize); 7] = [
    ("/one/a", 1, 1 << 20),
    ("/one/b/deep", 1, 1 << 20),
    // `/few/**` does not mean it.
    ("/few", 3, 1 << 20),
    ("/few/a", 3, 1 << 20),
    // It begins as `/few` does.
    ("/flow/a", 32, 1 << 20),
    ("/many/late", 32, 1 << 20),
    ("/bytes/a", 100, 500),
];

/// What readers may ask for beside the topics themselves.
pub(super) const PATTERNS: [&str; 5] = ["/**", "/*/a", "/one/*", "/few/**", "/none/*"];

/// The rules by which the hub keeps these topics.
pub(super) fn rules() -> Vec<Rule> {
    let rule = |(name, history, history_bytes): &(&str, u32, usize)| {
        let pattern = Pattern::parse(name).unwrap();
        Rule { history: *history, history_bytes: *history_bytes, ..Rule::new(pattern) }
    };
    TOPICS.iter().map(rule).collect()
}

/// Whether one of `filters` wants `topic`.
pub(super) fn wants(filters: &[String], topic: &str) -> bool {
    filters.iter().any(|filter| matches(filter, topic))
}

/// A message or a deletion.
pub(super) struct Entry {
    pub(super) topic: String,
    pub(super) message: Arc<Message>,
    /// History has it no more.
    pub(super) is_lost: bool,
}

/// What publishers are about to publish: the topic and the content type of each datum.
#[derive(Clone, Default)]
pub(super) struct Sent(Rc<RefCell<ByData>>);

type ByData = HashMap<Vec<u8>, (String, String)>;

impl Sent {
    pub(super) fn expect(&self, topic: &str, data: &[u8], content_type: &str) {
        let mut sent = self.0.borrow_mut();
        sent.insert(data.to_vec(), (topic.to_owned(), content_type.to_owned()));
    }
}

/// Everything that was ever published, by number.
pub(super) struct Log {
    recorder: Arc<Recorder>,
    entries: BTreeMap<u64, Entry>,
    topics: BTreeMap<String, Topic>,
    by_data: HashMap<Vec<u8>, u64>,
    sent: Sent,
    /// The last number at which a deleted topic came back.
    pub(super) undone: u64,
    /// Readers that come back may be told that memory is short.
    pub(super) memory_gets_short: bool,
    /// The number behind which the first message came.
    first: u64,
}

#[derive(Default)]
struct Topic {
    seqs: Vec<u64>,
    /// What history has: number and bytes.
    kept: VecDeque<(u64, usize)>,
}

#[derive(Default)]
pub(super) struct Recorder(Mutex<Vec<Told>>);

enum Told {
    Event(Event),
    /// All up to this number was replaced at one go.
    Replaced(u64),
}

impl Subscriber for Recorder {
    fn notify(&self, event: &Event) {
        self.0.lock().unwrap().push(Told::Event(event.clone()));
    }

    fn replaced(&self, seq: u64) {
        self.0.lock().unwrap().push(Told::Replaced(seq));
    }
}

impl Recorder {
    /// Listens to everything that is published to a hub.
    pub(super) fn listen(self: &Arc<Recorder>, hub: &Hub) {
        let id = hub.add_subscriber(Arc::clone(self) as Arc<dyn Subscriber>);
        let nobody = Arc::new(AtomicU32::new(0));
        hub.subscribe(id, &Filter::parse("/**").unwrap(), nobody);
    }
}

impl Log {
    /// Listens to everything, and begins with the values that are there.
    pub(super) fn attach(world: &World) -> Log {
        let recorder = Arc::new(Recorder::default());
        let hub = &world.shared.hub;
        recorder.listen(hub);
        let mut log = Log {
            recorder,
            entries: BTreeMap::new(),
            topics: BTreeMap::new(),
            by_data: HashMap::new(),
            sent: Sent::default(),
            undone: 0,
            memory_gets_short: false,
            first: hub.value("/small").unwrap().seq() - 1,
        };
        for topic in ["/small", "/large", "/text"] {
            let message = hub.value(topic).unwrap();
            log.expect(topic, message.data(), message.content_type());
            log.add(topic, message);
        }
        log
    }

    /// A publisher is about to publish this.
    pub(super) fn expect(&mut self, topic: &str, data: &[u8], content_type: &str) {
        self.sent.expect(topic, data, content_type);
    }

    /// Who hears of what is published.
    pub(super) fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder)
    }

    /// Where others say what they are about to publish.
    pub(super) fn sent(&self) -> Sent {
        self.sent.clone()
    }

    /// Takes note of what was published since the last time.
    pub(super) fn absorb(&mut self) {
        let told = std::mem::take(&mut *self.recorder.0.lock().unwrap());
        for told in told {
            match told {
                Told::Event(event) => self.add(event.topic(), Arc::clone(&event.message)),
                Told::Replaced(seq) => self.undone = seq,
            }
        }
    }

    fn add(&mut self, topic: &str, message: Arc<Message>) {
        let seq = message.seq();
        assert!(seq > self.seq(), "numbers only grow");
        let entry = self.topics.entry(topic.to_owned()).or_default();
        let before = entry.seqs.last().map(|seq| &self.entries[seq].message);
        let came_back = before.is_some_and(|before| before.is_deletion());
        let mut lost = Vec::new();
        if message.is_deletion() {
            lost.extend(entry.kept.drain(..));
        } else {
            let data = message.data();
            let sent = self.sent.0.borrow();
            let sent = sent.get(data).expect("nobody published this");
            assert_eq!((sent.0.as_str(), sent.1.as_str()), (topic, message.content_type()));
            assert!(self.by_data.insert(data.to_vec(), seq).is_none(), "published twice");
            if came_back {
                self.undone = seq;
                lost.push((entry.seqs[entry.seqs.len() - 1], 0));
            }
            let rule = TOPICS.iter().find(|(name, ..)| *name == topic);
            let (history, bytes_max) = rule.map_or((32, 1 << 20), |rule| (rule.1, rule.2));
            entry.kept.push_back((seq, data.len()));
            let bytes =
                |kept: &VecDeque<(u64, usize)>| kept.iter().map(|kept| kept.1).sum::<usize>();
            while entry.kept.len() > 1
                && (entry.kept.len() > history as usize || bytes(&entry.kept) > bytes_max)
            {
                lost.extend(entry.kept.pop_front());
            }
        }
        entry.seqs.push(seq);
        for (seq, _) in lost {
            self.entries.get_mut(&seq).unwrap().is_lost = true;
        }
        self.entries.insert(seq, Entry { topic: topic.to_owned(), message, is_lost: false });
    }

    /// Has the hub evict history until the rest takes at most `bytes`. Checks that it evicts the
    /// oldest messages, no value, and nothing if the history is that small already.
    pub(super) fn trim_history_to(&mut self, hub: &Hub, bytes: usize) {
        self.absorb();
        let before = hub.stored().history;
        hub.trim_history_to(bytes);
        hub.check();
        let kept: BTreeSet<u64> = hub.kept().iter().map(Event::seq).collect();
        let history = |topic: &Topic| topic.kept.len().saturating_sub(1);
        let mut gone: Vec<u64> = Vec::new();
        for topic in self.topics.values_mut() {
            for _ in 0..history(topic) {
                if topic.kept.front().is_some_and(|(seq, _)| !kept.contains(seq)) {
                    gone.extend(topic.kept.pop_front().map(|(seq, _)| seq));
                }
            }
            assert!(topic.kept.iter().all(|(seq, _)| kept.contains(seq)), "what is newer went");
        }
        let newest_gone = gone.iter().max().copied().unwrap_or(0);
        let left = self.topics.values().flat_map(|topic| topic.kept.iter().take(history(topic)));
        assert!(left.min().is_none_or(|(seq, _)| *seq > newest_gone), "what is older stayed");
        assert!(hub.stored().history <= bytes && (before > bytes || gone.is_empty()));
        for seq in gone {
            self.entries.get_mut(&seq).unwrap().is_lost = true;
        }
    }

    /// The last number.
    pub(super) fn seq(&self) -> u64 {
        self.entries.last_key_value().map_or(0, |(&seq, _)| seq)
    }

    /// The number of any message so far, or of none.
    pub(super) fn any_seq(&self, rng: &mut Rng) -> u64 {
        self.first + 1 + rng.next_u64() % (self.seq() - self.first)
    }

    pub(super) fn entry(&self, seq: u64) -> &Entry {
        self.entries.get(&seq).unwrap_or_else(|| panic!("{seq} was never published"))
    }

    /// The number of the message with this data.
    pub(super) fn seq_of(&self, data: &[u8]) -> u64 {
        self.published_seq(data)
            .unwrap_or_else(|| panic!("never published: {:?}", String::from_utf8_lossy(data)))
    }

    /// The same, if it was published at all.
    pub(super) fn published_seq(&self, data: &[u8]) -> Option<u64> {
        self.by_data.get(data).copied()
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// The numbers of a topic above `after` and below `before`.
    pub(super) fn between(&self, topic: &str, after: u64, before: u64) -> &[u64] {
        let Some(Topic { seqs, .. }) = self.topics.get(topic) else { return &[] };
        let from = seqs.partition_point(|&seq| seq <= after);
        &seqs[from..seqs.partition_point(|&seq| seq < before).max(from)]
    }

    /// The last of a topic's up to and including `upto`.
    pub(super) fn newest(&self, topic: &str, upto: u64) -> Option<(u64, &Entry)> {
        let seq = *self.between(topic, 0, upto.saturating_add(1)).last()?;
        Some((seq, self.entry(seq)))
    }

    /// Whether history has lost something above `since` that was of one of these topics.
    pub(super) fn has_lost(&self, since: u64, is_meant: impl Fn(&str) -> bool) -> bool {
        self.entries.range(since + 1..).any(|(_, entry)| entry.is_lost && is_meant(&entry.topic))
    }

    /// What happened to a topic: `-` a deletion, `!` lost by history.
    pub(super) fn story(&self, topic: &str) -> String {
        let one = |&seq: &u64| {
            let Entry { message, is_lost, .. } = self.entry(seq);
            let deletion = if message.is_deletion() { "-" } else { "" };
            format!("{deletion}{seq}{}", if *is_lost { "!" } else { "" })
        };
        self.between(topic, 0, u64::MAX).iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// Whether a topic's readers who name no mode want the newest only.
    pub(super) fn conflates(topic: &str) -> bool {
        TOPICS.iter().any(|(name, history, _)| *name == topic && *history == 1)
    }
}
