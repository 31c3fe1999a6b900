//! Hubs that are made again, from their entries and from snapshots, are the same to every reader.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use stentor_test::{Rng, seeds};
use stentor_wire::deflate::Inflater;
use stentor_wire::negotiate::Encoding;

use super::*;
use crate::hub::tests::name;
use crate::interleave;
use crate::{
    Applied, CacheControl, ContentType, Draft, Encoder, Entry, EventName, Keep, LeaveOut, Limits,
    Mode, Op, Past, Pattern, Place, Precondition, Refusal, Rule, Share, Span, Subscriber,
    decode_entry, encode_entry, encode_event,
};

/// The order as a store would write it down.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<Vec<u8>>>);

impl Subscriber for Log {
    fn notify(&self, event: &Event) {
        let mut bytes = Vec::new();
        encode_event(event, &mut bytes);
        self.0.lock().unwrap().push(bytes);
    }

    fn rules_replaced(&self, generation: u64, rules: &[Rule]) {
        let entry = Entry { op: Op::Rules(rules.to_vec()), when: Precondition::None, unix_s: 1 };
        let past = Past { number: generation, shares_second: false, last_seq: 0 };
        let mut bytes = Vec::new();
        encode_entry(&entry, Place::Was(past), &mut bytes);
        self.0.lock().unwrap().push(bytes);
    }
}

impl Log {
    pub(crate) fn of(hub: &Hub) -> Arc<Log> {
        let log = Arc::new(Log::default());
        let id = hub.add_subscriber(log.clone());
        hub.subscribe(id, &crate::Filter::parse("/**").unwrap(), Arc::default());
        log
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// What was written down from an index on, in order.
    pub(crate) fn entries(&self, from: usize) -> Vec<Vec<u8>> {
        self.0.lock().unwrap()[from..].to_vec()
    }

    /// Applies what was written down from an index on.
    fn replay(&self, from: usize, hub: &Hub) {
        for bytes in &self.0.lock().unwrap()[from..] {
            let (entry, place) = decode_entry(bytes).unwrap();
            assert!(matches!(place, Place::Was(_)));
            hub.apply(entry, place).unwrap();
        }
    }
}

const TOPICS: usize = 16;

pub(crate) const LIMITS: Limits =
    Limits { topics_max: 12, message_bytes_max: 1000, stored_bytes_max: usize::MAX };

fn epoch() -> Epoch {
    Epoch::parse("5f3a09c1").unwrap()
}

fn rules(rng: &mut Rng) -> Vec<Rule> {
    let patterns = ["/a/*", "/b/1", "/**"];
    let some = patterns.iter().filter(|_| rng.below(3) > 0).collect::<Vec<_>>();
    let rule = |pattern: &&&str| Rule {
        pattern: Pattern::parse(pattern).unwrap(),
        history: [0, 1, 2, 3, 8][rng.below(5)],
        history_bytes: [40, 100, 10_000][rng.below(3)],
        cache_control: (rng.below(2) == 0)
            .then(|| CacheControl::parse(&format!("max-age={}", rng.below(9))).unwrap()),
        leave_out: LeaveOut { vary: rng.below(2) == 0, ..LeaveOut::default() },
        keep: (rng.below(3) == 0).then_some(Keep::Written),
        guard: crate::Guard { is_private: rng.below(2) == 0, list: 0 },
    };
    some.iter().map(rule).collect()
}

fn draft(rng: &mut Rng) -> Draft {
    let data = vec![b'a' + rng.below(26) as u8; rng.below(60)];
    let mut draft = match rng.below(6) {
        0 => {
            let body = Encoder::default().encode(Encoding::Gzip, &data).unwrap().to_vec();
            Draft::from_gzip(&mut Inflater::default(), body, 1000).unwrap()
        }
        1 => Draft::new(vec![b'x'; 300]),
        _ => Draft::new(data),
    };
    draft = match rng.below(3) {
        0 => draft.with_content_type(ContentType::TEXT),
        1 => draft.with_content_type(ContentType::parse("x/y; z=1").unwrap()),
        _ => draft,
    };
    if rng.below(4) == 0 {
        draft = draft.with_event(EventName::parse("tick").unwrap());
    }
    if rng.below(4) == 0 {
        draft = draft.with_cache_control(CacheControl::parse("no-store").unwrap());
    }
    draft
}

/// Any change, on any condition, at a time that mostly goes on.
pub(crate) fn entry(rng: &mut Rng, hub: &Hub) -> Entry<'static> {
    let kind = ["a", "b"][rng.below(2)];
    let topic = format!("/{kind}/{}", rng.below(TOPICS / 2));
    let value = hub.value(&topic);
    let tags: Box<[u8]> = match value {
        Some(value) if rng.below(2) == 0 => format!("\"{}\"", value.id()).into_bytes().into(),
        _ => (*b"*").into(),
    };
    let when = match rng.below(8) {
        0 => Precondition::IfMatch(tags),
        1 => Precondition::IfNoneMatch(tags),
        _ => Precondition::None,
    };
    let topic = name(&topic).into_owned();
    let (op, when) = match rng.below(20) {
        0 => (Op::Rules(rules(rng)), Precondition::None),
        1..6 => (Op::Delete(topic), when),
        _ => (Op::Put(topic, draft(rng)), when),
    };
    Entry { op, when, unix_s: 1000 + hub.seq() / 4 - rng.below(3) as u64 }
}

/// A hub, what happened to it as who makes the order wrote it down, and as a store did.
struct Original {
    hub: Hub,
    log: Arc<Log>,
    ordered: Vec<(Vec<u8>, Result<(), Refusal>)>,
    has_holes: bool,
}

impl Original {
    fn new(has_holes: bool) -> Original {
        let hub = Hub::new(epoch(), vec![], LIMITS);
        Original { log: Log::of(&hub), hub, ordered: Vec::new(), has_holes }
    }

    fn step(&mut self, rng: &mut Rng) {
        let entry = entry(rng, &self.hub);
        let latest = match entry.op {
            Op::Rules(_) => self.hub.sequence().rules.generation(),
            _ => self.hub.seq(),
        };
        let hole = if self.has_holes { [0, 1, 1 << 20][rng.below(3)] } else { 0 };
        let place = Place::At(latest + 1 + hole);
        let mut bytes = Vec::new();
        encode_entry(&entry, place, &mut bytes);
        let before = (self.hub.counts(), self.hub.seq());
        let result = self.hub.apply(entry, if self.has_holes { place } else { Place::Next });
        let after = (self.hub.counts(), self.hub.seq());
        assert!(result.is_ok() || after == before, "a refused entry changes nothing");
        self.ordered.push((bytes, result.map(drop)));
    }
}

/// Everything that readers can see, and the rules that hold for whom.
fn see(hub: &Hub) -> String {
    let mut seen = format!(
        "{} {} {} {:?}\n{:?}\n",
        hub.epoch(),
        hub.seq(),
        hub.notified_seq(),
        hub.counts(),
        hub.topics("", None, 100)
    );
    let mut list = |missed: &dyn std::fmt::Debug, events: &[Event]| {
        let seqs = events.iter().map(|event| (event.topic(), event.seq()));
        writeln!(seen, "{missed:?} {:?}", seqs.collect::<Vec<_>>()).unwrap();
        for Event { message, .. } in events {
            let (head, _) = message.form(Encoding::Identity).unwrap();
            let gzip = message.form(Encoding::Gzip).map(|(_, body)| body);
            let all = (message.data(), message.event(), gzip, message.varies());
            let flags = (message.shares_second(), message.conflates(), message.is_deletion());
            let state = (message.is_value(), message.is_dropped(), message.last_seq());
            writeln!(seen, "{head} {all:?} {flags:?} {state:?}").unwrap();
        }
    };
    for since in [0, hub.seq() / 2, hub.seq().saturating_sub(3)] {
        for mode in [Mode::All, Mode::Latest, Mode::ByRule] {
            let span = Span { since, upto: hub.seq(), mode };
            for topic in 0..TOPICS {
                let mut events = Vec::new();
                let topic = format!("/{}/{}", ["a", "b"][topic % 2], topic / 2);
                let missed = hub.missed(&topic, span, usize::MAX, &mut events);
                list(&missed, &events);
            }
            let (any, share) = (Pattern::any(), Share { steps: 100, bytes: usize::MAX });
            let mut events = Vec::new();
            let page = hub.missed_by_pattern(&any, span, None, share, &mut events);
            list(&page, &events);
        }
    }
    for topic in hub.names_after("", None, usize::MAX) {
        let (terms, lost_seq, messages) = topic.export();
        let terms_of = messages.iter().map(|message| message.terms()).collect::<Vec<_>>();
        writeln!(seen, "{terms:?} {lost_seq} {terms_of:?}").unwrap();
    }
    writeln!(seen, "{:?}", hub.sequence().rules.all()).unwrap();
    let tombstones = hub.tombstones.read().unwrap();
    writeln!(seen, "{:?} {:?}", tombstones.marks(), tombstones.deletions().collect::<Vec<_>>())
        .unwrap();
    writeln!(seen, "{:?}", tombstones.unstored().collect::<Vec<_>>()).unwrap();
    seen
}

/// The whole of a snapshot of a hub that nobody publishes to.
pub(crate) fn snapshot(hub: &Hub) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut snapshot = Snapshot::begin(hub, &mut bytes);
    while snapshot.write_slice(hub, &mut bytes).unwrap() {}
    bytes
}

/// A hub from a snapshot.
struct Filled {
    hub: Hub,
    upto_seq: u64,
}

fn restore(bytes: &[u8], piece: usize) -> Result<Filled, &'static str> {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    let mut restore = hub.restore();
    let (mut kept, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        kept.extend_from_slice(now);
        let used = restore.read(&kept)?;
        kept.drain(..used);
        rest = later;
    }
    let Restored { upto_seq, .. } = restore.finish()?;
    Ok(Filled { hub, upto_seq })
}

#[test]
fn a_hub_is_the_same_from_its_entries_and_from_a_snapshot_and_what_followed() {
    seeds::run("snapshots", 80, |seed| {
        let mut rng = Rng::new(seed);
        let mut original = Original::new(seed % 2 == 1);
        for _ in 0..rng.below(100) {
            original.step(&mut rng);
        }
        // Written in slices while things go on.
        let mut bytes = Vec::new();
        let mut snapshot_ = Snapshot::begin(&original.hub, &mut bytes);
        let mut from = original.log.len();
        let begun_seq = original.hub.seq();
        while rng.below(3) > 0 || snapshot_.write_slice(&original.hub, &mut bytes).unwrap() {
            original.step(&mut rng);
        }
        let upto_seq = original.hub.seq();
        for _ in 0..rng.below(10) {
            original.step(&mut rng);
        }

        let restored = restore(&bytes, 1 + rng.below(500)).unwrap();
        assert_eq!((restored.hub.seq(), restored.upto_seq), (begun_seq, upto_seq), "{seed}");
        // What is in the snapshot may come again.
        from -= rng.below(from + 1);
        original.log.replay(from, &restored.hub);
        original.log.replay(from, &restored.hub);
        assert_eq!(see(&restored.hub), see(&original.hub), "{seed}: snapshot");

        let replayed = Hub::new(epoch(), vec![], LIMITS);
        original.log.replay(0, &replayed);
        assert_eq!(see(&replayed), see(&original.hub), "{seed}: applied entries");
        let judged = Hub::new(epoch(), vec![], LIMITS);
        for (bytes, result) in &original.ordered {
            let (entry, mut place) = decode_entry(bytes).unwrap();
            if !original.has_holes {
                place = Place::Next;
            }
            assert_eq!(judged.apply(entry, place).map(drop), *result, "{seed}");
        }
        assert_eq!(see(&judged), see(&original.hub), "{seed}: judged entries");

        // All of them go on alike.
        for _ in 0..20 {
            original.step(&mut rng);
            let (bytes, result) = original.ordered.last().unwrap();
            for hub in [&restored.hub, &replayed, &judged] {
                let (entry, mut place) = decode_entry(bytes).unwrap();
                if !original.has_holes {
                    // Limits are not judged at a place that somebody else has given.
                    place = Place::Next;
                }
                assert_eq!(hub.apply(entry, place).map(drop), *result, "{seed}");
            }
        }
        for hub in [&restored.hub, &replayed, &judged] {
            assert_eq!(see(hub), see(&original.hub), "{seed}: afterwards");
        }
    });
}

#[test]
fn a_snapshot_may_be_written_while_everybody_is_at_work() {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    let log = Log::of(&hub);
    let over = AtomicBool::new(false);
    let (bytes, from) = std::thread::scope(|scope| {
        for writer in 0..3 {
            let (hub, over) = (&hub, &over);
            scope.spawn(move || {
                let mut rng = Rng::new(writer);
                while !over.load(Ordering::Relaxed) {
                    let entry = entry(&mut rng, hub);
                    let _ = hub.apply(entry, Place::Next);
                }
            });
        }
        let mut all = Vec::new();
        while log.len() < 3_000 {
            let mut bytes = Vec::new();
            let from = log.len();
            let mut snapshot = Snapshot::begin(&hub, &mut bytes);
            while snapshot.write_slice(&hub, &mut bytes).unwrap() {
                std::thread::yield_now();
            }
            all = vec![(bytes, from)];
        }
        over.store(true, Ordering::Relaxed);
        all.pop().unwrap()
    });
    let restored = restore(&bytes, bytes.len()).unwrap();
    assert!(restored.upto_seq <= hub.seq() && restored.hub.seq() <= restored.upto_seq);
    log.replay(from, &restored.hub);
    assert_eq!(see(&restored.hub), see(&hub));
    let replayed = Hub::new(epoch(), vec![], LIMITS);
    log.replay(0, &replayed);
    assert_eq!(see(&replayed), see(&hub));
}

#[test]
fn a_topic_that_a_sweep_had_not_come_to_is_restored_by_the_rules_in_force() {
    let hub = Arc::new(Hub::new(epoch(), Vec::new(), LIMITS));
    for _ in 0..3 {
        hub.publish(name("/a/0"), Draft::new(*b"x"), Precondition::None, 0).unwrap();
    }
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let (own, written) = (Arc::clone(&hub), Arc::clone(&bytes));
    let write = move || *written.lock().unwrap() = snapshot(&own);
    let rules = vec![Rule { history: 2, ..Rule::default() }];
    interleave::with_hook(write, || hub.set_rules(rules));
    let restored = restore(&bytes.lock().unwrap(), 100).unwrap();
    assert_eq!(see(&restored.hub), see(&hub));
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let mut rng = Rng::new(7);
    let mut original = Original::new(false);
    for _ in 0..30 {
        original.step(&mut rng);
    }
    let bytes = snapshot(&original.hub);
    let seen = see(&original.hub);
    assert_eq!(see(&restore(&bytes, bytes.len()).unwrap().hub), seen);
    for len in 0..bytes.len() {
        assert!(restore(&bytes[..len], len.max(1)).is_err(), "cut to {len}");
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 1 << (at % 8);
        // It is refused, or is the snapshot of another hub.
        if let Ok(restored) = restore(&other, other.len()) {
            let _ = see(&restored.hub);
            assert_eq!(see(&restore(&snapshot(&restored.hub), 9).unwrap().hub), see(&restored.hub));
        }
    }
    let message = |bytes: &[u8]| restore(bytes, 1 << 20).err().unwrap();
    assert!(message(b"stentor snapshot\x02....").contains("version"));
    assert!(message(&bytes[..bytes.len() - 1]).contains("end"));
    assert!(message(&[&bytes[..], &bytes[17..]].concat()).contains("nothing"));
}

#[test]
fn slices_that_are_missing_cost_their_own_topics_only() {
    let rule = Rule { history: 2, ..Rule::new(Pattern::parse_stored("/1*").unwrap()) };
    let hub = Hub::new(epoch(), vec![rule], Limits::default());
    for index in (0..90).chain(10..20) {
        // Some refer to terms that are none of the rules any more.
        if index == 50 {
            hub.set_rules(vec![]);
        }
        let draft = Draft::new(format!("{index:05}").into_bytes());
        hub.publish(name(&format!("/{index}")), draft, Precondition::None, 9).unwrap();
    }
    let mut slices = vec![Vec::new()];
    let mut snapshot = Snapshot::begin(&hub, &mut slices[0]);
    while snapshot.write_slice(&hub, slices.last_mut().unwrap()).unwrap() {
        slices.push(Vec::new());
    }
    assert!(slices.len() > 5);
    for missing in 0..slices.len() {
        let half = Hub::new(epoch(), vec![], Limits::default());
        let mut restore = half.restore();
        for (index, slice) in slices.iter().enumerate() {
            match index == missing {
                true => restore.skip(),
                false => assert_eq!(restore.read(slice), Ok(slice.len()), "without {missing}"),
            }
        }
        restore.finish().unwrap();
        half.continue_after(hub.seq(), vec![]);
        let mut lost = 0;
        for topic in hub.topics("", None, 100) {
            let (was, is) = (hub.value(&topic.name).unwrap(), half.value(&topic.name));
            lost += usize::from(is.is_none());
            assert!(is.is_none_or(|is| (is.data(), is.id()) == (was.data(), was.id())));
        }
        assert!((1..30).contains(&lost) || missing == slices.len() - 1, "{missing}: {lost}");
        half.check();
        hub.check();
    }
}

#[test]
fn what_is_kept_is_told_in_its_order() {
    let hub = Hub::new(epoch(), vec![], Limits::default());
    let put = |topic| {
        hub.publish(name(topic), Draft::new(*b"x"), Precondition::None, 9).unwrap();
    };
    ["/b", "/a", "/b"].into_iter().for_each(put);
    hub.delete(name("/a"), Precondition::None, 9).unwrap();
    put("/c");
    let kept = hub.kept();
    let told: Vec<_> = kept.iter().map(|event| (event.topic(), event.seq())).collect();
    assert_eq!(told, [("/b", 1), ("/b", 3), ("/a", 4), ("/c", 5)]);
    assert!(kept[2].message.is_deletion());
}

#[test]
fn a_snapshot_has_each_rule_once() {
    let of_a = Rule::new(Pattern::parse("/a/*").unwrap());
    let hub = Hub::new(epoch(), vec![of_a], LIMITS);
    for topic in ["/a/1", "/b/1", "/a/2", "/b/2"] {
        hub.publish(name(topic), Draft::new(*b"x"), Precondition::None, 1).unwrap();
    }
    hub.delete(name("/a/2"), Precondition::None, 1).unwrap();
    let (bytes, mut kinds) = (snapshot(&hub), Vec::new());
    let mut rest = &bytes[MAGIC.len()..];
    while let Some((len, behind)) = rest.split_first_chunk() {
        kinds.push(behind[0]);
        rest = &behind[1 + u32::from_le_bytes(*len) as usize..];
    }
    assert_eq!(kinds, [BEGIN, TERMS, TERMS, DELETION, TOPIC, TOPIC, TOPIC, END]);
}

#[test]
fn a_slice_is_bounded() {
    let hub = Hub::new(epoch(), vec![], Limits::default());
    for index in 0..100 {
        hub.publish(name(&format!("/{index}")), Draft::new(*b"12345"), Precondition::None, 9)
            .unwrap();
    }
    let mut bytes = Vec::new();
    let mut snapshot = Snapshot::begin(&hub, &mut bytes);
    let mut slices = 0;
    loop {
        bytes.clear();
        if !snapshot.write_slice(&hub, &mut bytes).unwrap() {
            break;
        }
        slices += 1;
        assert!(bytes.len() < SLICE_BYTES + 40, "{}", bytes.len());
    }
    assert!(slices > 10);
}

#[test]
fn numbers_may_be_given_and_leave_holes() {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    hub.continue_after(41, vec![]);
    let put = |seq: Place| {
        let entry = hub.admit(Op::Put(name("/a"), Draft::new(*b"x")), Precondition::None, 1);
        hub.apply(entry.unwrap(), seq).unwrap()
    };
    assert_eq!(hub.seq(), 41);
    assert!(matches!(put(Place::Next), Applied::Put(published) if published.id.seq == 42));
    assert!(matches!(put(Place::At(1 << 40)), Applied::Put(_)));
    for passed in [0, 41, 42, 43, 1 << 40] {
        assert!(matches!(put(Place::At(passed)), Applied::Known), "{passed}");
    }
    assert_eq!((hub.counts().published_total, hub.seq()), (2, 1 << 40));
    assert!(
        matches!(put(Place::Next), Applied::Put(published) if published.id.seq == (1 << 40) + 1)
    );
    let lately = |since, steps| {
        let span = Span { since, upto: u64::MAX, mode: Mode::All };
        let filter = crate::Filter::parse("/a").unwrap();
        let (mut events, share) = (Vec::new(), Share { steps, bytes: usize::MAX });
        let missed = hub.missed_lately(&[&filter], span, share, &mut events)?;
        Some((missed.upto, events.iter().map(Event::seq).collect::<Vec<_>>()))
    };
    let all = vec![42, 1 << 40, (1 << 40) + 1];
    assert_eq!(lately(41, 9), Some((u64::MAX, all.clone())));
    assert_eq!(lately(41, 1), Some((42, vec![42])));
    assert_eq!(lately(43, 1), Some((1 << 40, all[1..2].to_vec())));
    assert_eq!(lately(1 << 40, 1), Some((u64::MAX, all[2..].to_vec())));
    assert_eq!(lately(40, 9), None, "it is not known what was before");
}

/// Redo is not judged, so two deletions of a topic can follow each other: the lines of an import
/// may say so, and a repaired store may have lost the message between them.
#[test]
fn a_second_deletion_replaces_the_tombstone() {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    for number in [1, 2] {
        let past = Past { number, shares_second: false, last_seq: 0 };
        hub.apply(Entry::past(Op::Delete(name("/a")), 1), Place::Was(past)).unwrap();
    }
    let deletions: Vec<u64> = hub.kept().iter().map(Event::seq).collect();
    assert_eq!(deletions, [2]);
    let restored = restore(&snapshot(&hub), 100).unwrap().hub;
    assert_eq!(see(&restored), see(&hub));
    hub.check();
}

#[test]
fn a_refusal_comes_early_and_again_in_its_place() {
    let hub = Hub::new(epoch(), vec![], Limits { topics_max: 1, message_bytes_max: 4, ..LIMITS });
    let admit = |op, when| hub.admit(op, when, 1);
    let put = |topic, data: &str| Op::Put(name(topic), Draft::new(data.as_bytes()));
    let if_none = || Precondition::IfNoneMatch((*b"*").into());
    let early = admit(put("/a", "1"), if_none()).unwrap();
    let other = admit(put("/b", "1"), Precondition::None).unwrap();
    let late = admit(put("/a", "2"), if_none()).unwrap().into_owned();
    assert!(matches!(hub.apply(early, Place::Next), Ok(Applied::Put(_))));
    let seen = see(&hub);
    assert_eq!(hub.apply(late, Place::Next).unwrap_err(), Refusal::PreconditionFailed);
    assert_eq!(hub.apply(other, Place::Next).unwrap_err(), Refusal::TooManyTopics { max: 1 });
    for (op, when, refusal) in [
        (put("/a", "12345"), Precondition::None, Refusal::TooLarge { max: 4 }),
        (put("/b", "1"), Precondition::None, Refusal::TooManyTopics { max: 1 }),
        (put("/a", "1"), if_none(), Refusal::PreconditionFailed),
        (Op::Delete(name("/b")), Precondition::None, Refusal::NotFound),
        (Op::Delete(name("/a")), if_none(), Refusal::PreconditionFailed),
    ] {
        assert_eq!(admit(op, when).unwrap_err(), refusal);
    }
    assert_eq!(see(&hub), seen);
}

#[test]
fn what_was_rolled_back_is_known_and_its_numbers_are_not_used_again() {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    hub.continue_after(40, vec![3..=5, 9..=9, 20..=40]);
    let known: Vec<u64> = (0..50).filter(|&seq| hub.was_rolled_back(seq)).collect();
    let expected: Vec<u64> = [3, 4, 5, 9].into_iter().chain(20..=40).collect();
    assert_eq!(known, expected);
    let put = hub.publish(name("/a"), Draft::new(*b"x"), Precondition::None, 1).unwrap();
    assert_eq!((put.id.seq, hub.seq()), (41, 41));
    hub.check();
}

#[test]
fn no_date_tells_what_is_here_from_what_may_have_been_before() {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    let put = |topic, unix_s| {
        let put = hub.publish(name(topic), Draft::new(*b"x"), Precondition::None, unix_s);
        put.unwrap().message
    };
    let before = [put("/a", 1), put("/b", 2)];
    hub.continue_after(9, vec![3..=9]);
    hub.doubt_dates(0, 5);
    let after = [put("/a", 5), put("/b", 6), put("/c", 4), put("/d", 6)];
    let tell = |hub: &Hub, of: &[Arc<Message>]| -> Vec<bool> {
        of.iter().map(|message| hub.dates_tell(message)).collect()
    };
    assert_eq!(tell(&hub, &before), [false, false]);
    assert_eq!(tell(&hub, &after), [false, true, false, true]);
    // What is no value of a topic has no number.
    let fixed = Message::fixed(Draft::new(*b"x"), epoch(), 1);
    assert!(hub.dates_tell(&fixed));
    // A snapshot makes the files superfluous that said so.
    hub.doubt_dates(after[1].seq(), 0);
    let restored = restore(&snapshot(&hub), 100).unwrap().hub;
    let values = ["/b", "/c", "/d"].map(|topic| restored.value(topic).unwrap());
    assert_eq!(tell(&restored, &values), [false, false, true]);
}

#[test]
fn a_topic_that_no_section_takes_is_told() {
    let keeps_all = Rule { history: u32::MAX, ..Rule::new(Pattern::any()) };
    let hub = Hub::new(epoch(), vec![keeps_all], Limits::default());
    for n in 0..20 {
        let data = Draft::new(vec![b'x'; SECTION_BYTES_MAX / 16]);
        hub.publish(name("/a"), data, Precondition::None, n).unwrap();
        let mut bytes = Vec::new();
        let mut snapshot = Snapshot::begin(&hub, &mut bytes);
        let written = snapshot.write_slice(&hub, &mut bytes);
        let expected = if n < 15 { Ok(true) } else { Err(Unwritable::TooLong("/a".to_owned())) };
        assert_eq!(written, expected, "{n}");
    }
}

#[test]
fn which_topics_were_not_stored_is_in_a_snapshot() {
    let hub = Hub::new(epoch(), vec![], LIMITS);
    let rule = |text: &str, keep| Rule { keep, ..Rule::new(Pattern::parse(text).unwrap()) };
    for (text, upto) in [("/a/*", 10), ("/b/*", 20)] {
        hub.set_rules(vec![rule("/a/b", None), rule(text, Some(Keep::None))]);
        hub.forget_unstored(upto);
        // A deletion of a topic that is stored later stays.
        hub.set_rules(vec![]);
        for topic in ["/a/c", "/b/c"] {
            let publish = |data: &'static str| {
                let put = Op::Put(name(topic), Draft::new(data.as_bytes()));
                let entry = Entry { op: put, when: Precondition::None, unix_s: 1 };
                hub.apply(entry, Place::Next).unwrap();
            };
            publish("x");
            hub.delete(name(topic), Precondition::None, 0).unwrap();
        }
    }
    let bytes = snapshot(&hub);
    let restored = restore(&bytes, 100).unwrap().hub;
    assert_eq!(see(&restored), see(&hub));
    assert_eq!(restored.tombstones_mut().unstored().count(), 2);
    assert_eq!(snapshot(&restored), bytes);
}
