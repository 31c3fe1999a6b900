//! The oracle: everything that was published in all lives, and what must be left of it.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use stentor_hub::{Event, Filter, Hub, Keep, Message, Mode, Pattern, Rule, Span, Subscriber};

/// The topics of a run, each with a promise of its own. That of the last changes.
pub(super) const TOPICS: [(&str, Option<Keep>); 7] = [
    ("/memory/a", Some(Keep::Memory)),
    ("/written/a", Some(Keep::Written)),
    // `/synced/**` does not mean it.
    ("/synced", None),
    ("/synced/a", None),
    ("/single/b/deep", Some(Keep::Synced)),
    ("/none/a", Some(Keep::None)),
    (FLIP, None),
];

pub(super) const FLIP: &str = "/flip/a";

/// The rules of these topics, of which the last is kept like this.
pub(super) fn rules(flip: Option<Keep>) -> Vec<Rule> {
    let rule = |(name, keep): &(&str, Option<Keep>)| {
        let keep = if *name == FLIP { flip } else { *keep };
        Rule { history: 10_000, keep, ..Rule::new(Pattern::parse(name).unwrap()) }
    };
    TOPICS.iter().map(rule).collect()
}

/// What is to become of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Readers find it.
    Kept,
    /// It was rolled back by a crash.
    RolledBack,
    /// It was not stored, and the process ended.
    Ended,
}

/// A message, or a deletion.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) topic: String,
    pub(super) data: Option<Vec<u8>>,
    fields: Fields,
    keep: Keep,
    is_acknowledged: bool,
    pub(super) fate: Fate,
}

/// The name of a message's event, and how it is cached.
type Fields = [Option<String>; 2];

fn fields(message: &Message) -> Fields {
    [message.event(), message.cache_control()].map(|field| field.map(str::to_owned))
}

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The process closed its store.
    Stop,
    /// The process was killed: what was written is there.
    Kill,
    /// The power was cut, or the disk had failed: what was synced is there.
    PowerCut,
}

/// What the next life found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stored: u64,
    pub(super) last: u64,
    pub(super) lost: Vec<RangeInclusive<u64>>,
    /// A start before this one broke off. It may have left numbers out already, and then counts
    /// them as stored.
    pub(super) was_tried: bool,
}

/// Everything that was ever published, by number.
#[derive(Default)]
pub(super) struct Chronicle {
    recorder: Arc<Recorder>,
    entries: BTreeMap<u64, Entry>,
    by_data: HashMap<Vec<u8>, u64>,
    lost: Vec<RangeInclusive<u64>>,
    /// The greatest number that may have been given out.
    last: u64,
    /// The last number when the rule of [`FLIP`] said that nothing is stored.
    unstored_upto: u64,
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Event>>);

impl Subscriber for Recorder {
    fn notify(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Chronicle {
    /// Hears of everything that is published in a life.
    pub(super) fn attach(&mut self, hub: &Hub) {
        self.recorder = Arc::default();
        let id = hub.add_subscriber(Arc::clone(&self.recorder) as Arc<dyn Subscriber>);
        hub.subscribe(id, &Filter::parse("/**").unwrap(), Arc::default());
    }

    /// Takes note of what was published since the last time.
    pub(super) fn absorb(&mut self, flip: Option<Keep>) {
        for event in std::mem::take(&mut *self.recorder.0.lock().unwrap()) {
            let (seq, message) = (event.seq(), &event.message);
            assert!(seq > self.last, "{seq} was given out before: {} was the last", self.last);
            self.last = seq;
            let data = (!message.is_deletion()).then(|| message.data().to_vec());
            if let Some(data) = &data {
                assert_eq!(self.by_data.insert(data.clone(), seq), None, "published twice");
            }
            let keep = message.keep();
            let (topic, fields) = (event.topic().to_owned(), fields(message));
            let (is_acknowledged, fate) = (false, Fate::Kept);
            let entry = Entry { topic, data, fields, keep, is_acknowledged, fate };
            self.entries.insert(seq, entry);
        }
        if flip == Some(Keep::None) {
            self.unstored_upto = self.last;
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn entry(&self, seq: u64) -> &Entry {
        self.entries.get(&seq).unwrap_or_else(|| panic!("{seq} was never published"))
    }

    pub(super) fn seq_of(&self, data: &[u8]) -> Option<u64> {
        self.by_data.get(data).copied()
    }

    pub(super) fn was_rolled_back(&self, seq: u64) -> bool {
        self.lost.iter().any(|range| range.contains(&seq))
    }

    /// What there is of a topic above a number.
    pub(super) fn after(&self, topic: &str, seq: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let above = self.entries.range(seq + 1..).map(|(seq, entry)| (*seq, entry));
        above.filter(move |(_, entry)| entry.topic == topic)
    }

    /// The newest of a topic that has not gone.
    pub(super) fn newest(&self, topic: &str) -> Option<(u64, &Entry)> {
        self.after(topic, 0).filter(|(_, entry)| entry.fate == Fate::Kept).last()
    }

    /// A publisher was told that this is done.
    pub(super) fn acknowledge(&mut self, seq: u64, topic: &str, data: Option<&[u8]>) {
        let entry = self.entries.get_mut(&seq).expect("acknowledged, and never published");
        assert_eq!((entry.topic.as_str(), entry.data.as_deref()), (topic, data), "{seq}");
        entry.is_acknowledged = true;
    }

    /// A life is over, and the next one has read what is left: it must be right.
    pub(super) fn begin_life(&mut self, end: End, found: Found, hub: &Hub) {
        let Found { stored, last, lost, was_tried } = found;
        assert!(last >= self.last, "{last} was given out before: {} was the last", self.last);
        self.lost = lost;
        let is_kept = |entry: &Entry| entry.fate == Fate::Kept && entry.keep != Keep::None;
        let mut kept = self.entries.iter().filter(|(_, entry)| is_kept(entry));
        let first_lost = kept.find(|(seq, _)| self.was_rolled_back(**seq)).map(|(seq, _)| *seq);
        let is_exact = was_tried || first_lost.is_none_or(|seq| seq > stored);
        assert!(is_exact, "{first_lost:?} is said to be rolled back, and {stored} is there");
        let stored = first_lost.map_or(stored, |seq| stored.min(seq - 1));
        for (&seq, entry) in &self.entries {
            let is_promised = match (end, entry.keep) {
                (_, Keep::None) => false,
                (End::Stop, _) => true,
                (End::Kill, Keep::Written) | (_, Keep::Synced) => entry.is_acknowledged,
                _ => false,
            };
            let is_there = seq <= stored || entry.fate != Fate::Kept;
            assert!(is_there || !is_promised, "{seq} is gone, by {end:?}: {entry:?}");
            let is_lost = self.lost.iter().any(|range| range.contains(&seq));
            let is_due = entry.fate == Fate::RolledBack || seq > stored;
            let must_be = is_due && entry.keep != Keep::None;
            assert!(is_lost || !must_be, "{seq} was rolled back, and nobody is told: {entry:?}");
        }
        for (topic, _) in TOPICS {
            self.judge_topic(topic, stored, hub);
        }
        for (seq, entry) in &mut self.entries {
            if entry.fate == Fate::Kept && entry.keep == Keep::None {
                entry.fate = Fate::Ended;
            } else if entry.fate == Fate::Kept && *seq > stored {
                entry.fate = Fate::RolledBack;
            }
        }
        self.last = last;
    }

    /// The value of a topic in the new life must be the newest that was stored, unless a newer one
    /// was not to be: then there is none.
    fn judge_topic(&mut self, topic: &str, stored: u64, hub: &Hub) {
        let all = self.after(topic, 0).filter(|(_, entry)| entry.fate == Fate::Kept);
        let (unstored, kept): (Vec<_>, Vec<_>) =
            all.partition(|(_, entry)| entry.keep == Keep::None);
        // When its rule said that nothing is stored, what was before may have been forgotten.
        let (span, mut there) = (Span { since: 0, upto: u64::MAX, mode: Mode::All }, Vec::new());
        hub.missed(topic, span, usize::MAX, &mut there);
        for event in &there {
            assert_eq!(fields(&event.message), self.entry(event.seq()).fields, "{}", event.seq());
        }
        let is_there = |seq| there.iter().any(|event| event.seq() == seq);
        let upto = if topic == FLIP { self.unstored_upto } else { 0 };
        let forgotten = kept.iter().map(|(seq, _)| *seq);
        let forgotten: Vec<_> = forgotten.filter(|seq| *seq <= upto && !is_there(*seq)).collect();
        let newest = kept.iter().rev().find(|(seq, _)| *seq <= stored);
        let newest_seq = newest.map_or(0, |(seq, _)| *seq);
        let found = hub.value(topic).map(|value| (value.seq(), value.data().to_vec()));
        // What was published while the rule of its topic said that it is not stored may be: in a
        // snapshot that was made when the rule said so no more.
        let unstored: Vec<u64> = unstored.iter().map(|(seq, _)| *seq).collect();
        // A start that broke off counts what was rolled back as stored.
        let counts = |seq: &&u64| **seq <= stored && !self.was_rolled_back(**seq);
        let newest_unstored = unstored.iter().rfind(counts).copied();
        if let Some((seq, data)) = &found
            && topic == FLIP
            && newest_unstored == Some(*seq)
            && *seq > newest_seq
        {
            let (seq, data) = (*seq, data.clone());
            let entry = self.entries.get_mut(&seq).unwrap();
            assert_eq!(entry.data, Some(data), "{seq}");
            entry.keep = Keep::Memory;
            return;
        }
        let expected = newest.and_then(|(seq, entry)| Some((*seq, entry.data.clone()?)));
        let is_outdated = newest_unstored.is_some_and(|seq| seq > newest_seq);
        let may_be_gone = unstored.iter().any(|seq| !counts(&seq))
            || topic == FLIP && self.unstored_upto >= newest_seq;
        let is_right = match &found {
            None => expected.is_none() || is_outdated || may_be_gone,
            found => *found == expected && !is_outdated,
        };
        let found_seq = found.as_ref().map(|(seq, _)| *seq);
        assert!(is_right, "{topic} is {found_seq:?}, not {newest:?}; stored up to {stored}");
        let is_gone = found.is_none() && expected.is_some();
        let gone: Vec<u64> =
            if is_gone { kept.iter().map(|(seq, _)| *seq).collect() } else { forgotten };
        for seq in gone.into_iter().filter(|seq| *seq <= stored) {
            self.entries.get_mut(&seq).unwrap().fate = Fate::Ended;
        }
    }
}
