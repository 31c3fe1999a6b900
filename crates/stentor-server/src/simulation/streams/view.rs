//! The oracle: what one reader has seen, and whether that may be so.
//!
//! A view judges each thing as it arrives: a message must have been published, must be wanted, must
//! not have come before, and must not leave out anything that the reader is owed unless a gap was
//! told first and history has really lost it. At rest it says what is still missing.

use super::log::{Log, wants};
use std::collections::{BTreeMap, BTreeSet};

/// Where a reader, or a subscription, begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// With the values: it was asked for when this was the last number.
    Values { asked: u64 },
    /// Behind what it has seen.
    After(u64),
}

/// A gap as it is told: reason, and cursor.
pub(super) type Gap = (String, Option<String>);

#[derive(Debug)]
pub(super) struct View {
    pub(super) filters: Vec<String>,
    /// As asked for: only the newest, all, or by the topic's rule.
    latest: Option<bool>,
    from: From,
    /// The last number when the stream had certainly begun.
    begun: Option<u64>,
    /// Numbers grow over the whole stream.
    is_ordered: bool,
    last_seq: u64,
    /// The number of the last thing that came; smaller than the one before where new subscriptions
    /// catch up.
    cursor: u64,
    gaps: usize,
    /// What has a number up to this need not come: memory was short.
    spared: u64,
    /// The gap that must come first.
    expected: Option<Gap>,
    tracks: BTreeMap<String, Track>,
    coming: Option<Coming>,
}

/// What was seen of a topic.
#[derive(Debug)]
struct Track {
    last: Option<u64>,
    from: From,
    begun: Option<u64>,
    /// Gaps told before `last`.
    gaps: usize,
    /// `last` may have come before the topic began anew, with nothing to show for it: where it
    /// then began, and when that was over.
    anew: Option<(From, u64)>,
}

/// A command that may or may not have been obeyed yet.
#[derive(Debug)]
struct Coming {
    filters: Vec<String>,
    joined: Vec<String>,
    from: From,
    expected: Option<Gap>,
    restarted: BTreeSet<String>,
    /// Gaps told before it was sent.
    gaps: usize,
}

impl Coming {
    /// Whether the topic is wanted throughout by a filter that the command does not touch.
    fn leaves_alone(&self, topic: &str) -> bool {
        let stays = |filter: &&String| !self.joined.contains(filter);
        let mut staying = self.filters.iter().filter(stays);
        staying.any(|filter| wants(std::slice::from_ref(filter), topic))
    }
}

impl View {
    pub(super) fn new(filters: Vec<String>, latest: Option<bool>, from: From) -> View {
        let last_seq = if let From::After(seq) = from { seq } else { 0 };
        View {
            filters,
            latest,
            from,
            begun: None,
            is_ordered: true,
            last_seq,
            cursor: last_seq,
            gaps: 0,
            spared: 0,
            expected: None,
            tracks: BTreeMap::new(),
            coming: None,
        }
    }

    /// The same, if the first thing to come must be this gap.
    pub(super) fn expecting(mut self, gap: Option<Gap>) -> View {
        self.expected = gap;
        self
    }

    /// The reader may change what it subscribes to.
    pub(super) fn with_commands(mut self) -> View {
        self.is_ordered = false;
        self
    }

    /// The stream has begun by now.
    pub(super) fn begin(&mut self, log: &Log) {
        self.begun.get_or_insert(log.seq());
    }

    /// The reader comes back with the number of the last thing that came: what it has seen up to
    /// there still holds, and what it has seen behind that may come again.
    pub(super) fn resume(&mut self) {
        let seq = self.cursor;
        self.from = From::After(seq);
        for track in self.tracks.values_mut() {
            // A topic of which it has seen nothing yet begins there, too.
            track.from = From::After(seq);
            track.last = track.last.map(|last| last.min(seq));
            track.anew = None;
        }
    }

    /// The number to resume from; `None` if nothing has come yet, or it may be that of something
    /// before a command which was not obeyed.
    pub(super) fn cursor(&self) -> Option<u64> {
        (self.cursor > 0 && self.coming.is_none()).then_some(self.cursor)
    }

    /// A command was sent: the filters it leaves, and those of them that begin anew.
    pub(super) fn command(
        &mut self,
        filters: Vec<String>,
        joined: Vec<String>,
        from: From,
        expected: Option<Gap>,
    ) {
        assert!(self.coming.is_none());
        // Whom nobody joins nobody tells of a gap.
        let expected = expected.filter(|_| !joined.is_empty());
        let restarted = BTreeSet::new();
        let gaps = self.gaps;
        self.coming = Some(Coming { filters, joined, from, expected, restarted, gaps });
    }

    /// The command was obeyed.
    pub(super) fn obeyed(&mut self, log: &Log) {
        let coming = self.coming.take().unwrap();
        let is_new = |topic: &str| {
            let joins = wants(&coming.joined, topic) && !coming.leaves_alone(topic);
            joins && !coming.restarted.contains(topic)
        };
        let new: Vec<&str> = log.topics().filter(|topic| is_new(topic)).collect();
        for (topic, track) in &mut self.tracks {
            let may_be_new = wants(&coming.joined, topic) && !coming.leaves_alone(topic);
            let was_wanted = wants(&self.filters, topic);
            // A command that leaves it alone changes nothing of what one before it did.
            if may_be_new && was_wanted {
                track.anew = Some((coming.from, log.seq()));
            }
        }
        let Coming { filters, from, expected, gaps, .. } = coming;
        assert_eq!(expected, None, "a subscription was not told of its gap");
        self.filters = filters;
        self.tracks.retain(|topic, _| wants(&self.filters, topic));
        let begun = Some(log.seq());
        for topic in new {
            let track = Track { last: None, from, begun, gaps, anew: None };
            self.tracks.insert(topic.to_owned(), track);
        }
    }

    /// A message or a deletion has come.
    pub(super) fn message(&mut self, log: &Log, seq: u64) {
        let entry = log.entry(seq);
        let topic = entry.topic.as_str();
        assert_eq!(self.expected, None, "{seq} came before the gap");
        if self.is_ordered {
            assert!(seq > self.last_seq, "{seq} after {}: out of order, or twice", self.last_seq);
        }
        self.last_seq = self.last_seq.max(seq);
        self.cursor = seq;
        let is_coming = self.coming.as_ref().is_some_and(|coming| wants(&coming.filters, topic));
        assert!(wants(&self.filters, topic) || is_coming, "{topic} is not wanted: {self:?}");
        let (gap, conflates) = ((self.gaps > 0, self.spared), self.conflates(topic));
        let has_begun = self.coming.as_ref().is_some_and(|new| new.restarted.contains(topic));
        let continued = match self.tracks.get(topic) {
            _ if !wants(&self.filters, topic) && !has_begun => Err("not yet wanted".to_owned()),
            Some(track) => follows(log, topic, seq, track, (self.gaps, self.spared), conflates),
            None => begins_well(log, topic, seq, (self.from, self.begun), gap, conflates),
        };
        let begun_anew = match self.coming_for(topic) {
            Some(from) => begins_well(log, topic, seq, (from, None), gap, conflates),
            None => Err("no command is under way".to_owned()),
        };
        if continued.is_err() && begun_anew.is_err() {
            let history = log.story(topic);
            panic!("{continued:?}, {begun_anew:?}: {self:?}; {topic} had {history}");
        }
        if begun_anew.is_ok()
            && let Some(coming) = &mut self.coming
        {
            coming.restarted.insert(topic.to_owned());
        }
        let (from, begun) = (self.from, self.begun);
        let track = Track { last: Some(seq), from, begun, gaps: self.gaps, anew: None };
        self.tracks.insert(topic.to_owned(), track);
    }

    /// Where the topic may begin anew, because of a command under way: not if another filter wants
    /// it throughout. What was sent before the command was obeyed may look like the new beginning,
    /// which then comes behind it.
    fn coming_for(&self, topic: &str) -> Option<From> {
        let coming = self.coming.as_ref()?;
        (wants(&coming.joined, topic) && !coming.leaves_alone(topic)).then_some(coming.from)
    }

    fn conflates(&self, topic: &str) -> bool {
        self.latest.unwrap_or_else(|| Log::conflates(topic))
    }

    /// The word that something is missing has come.
    pub(super) fn gap(&mut self, log: &Log, gap: Gap, epoch: &str) {
        self.gaps += 1;
        if self.expected.as_ref() == Some(&gap) {
            self.expected = None;
            return;
        }
        if gap.0 == "memory_pressure" {
            return self.spare(log, &gap, epoch);
        }
        let coming = self.coming.as_mut();
        if let Some(coming) = coming.filter(|coming| coming.expected.as_ref() == Some(&gap)) {
            coming.expected = None;
            return;
        }
        assert_eq!(self.expected, None, "another gap came: {gap:?}");
        assert_eq!(gap.0, "history_trimmed", "nobody asked for this gap");
        let since = gap.1.as_deref().and_then(|since| since.strip_prefix(epoch));
        let since: u64 = since.and_then(|seq| seq[1..].parse().ok()).expect("our own cursor");
        if self.is_ordered {
            assert!(since >= self.last_seq, "a gap behind {since} after {}", self.last_seq);
        }
        let mut filters = self.filters.clone();
        filters.extend(self.coming.iter().flat_map(|coming| coming.filters.clone()));
        // The hub says "gap" of a pattern if any topic came back while it looked.
        let may_be_wrong = filters.iter().any(|text| text.contains('*')) && log.undone > since;
        let is_owed = |topic: &str| wants(&filters, topic) && !self.conflates(topic);
        let has_lost = log.has_lost(since, is_owed);
        assert!(has_lost || may_be_wrong, "a gap behind {since} though nothing is lost: {self:?}");
    }

    /// What was missed is not brought to it, since memory was short: it begins with the values.
    fn spare(&mut self, log: &Log, gap: &Gap, epoch: &str) {
        assert!(log.memory_gets_short, "memory was not short");
        let since = gap.1.as_deref().and_then(|since| since.strip_prefix(epoch));
        let since: u64 = since.and_then(|seq| seq[1..].parse().ok()).expect("our own cursor");
        assert!(since < log.seq(), "nothing was missed behind {since}");
        let from = From::Values { asked: since };
        let is_meant = |other: From| matches!(other, From::After(seq) if seq == since);
        let coming = self.coming.as_mut().filter(|coming| is_meant(coming.from));
        // A subscription may name the place at which the stream began.
        let is_own = coming.is_none() && is_meant(self.from);
        assert!(is_own || coming.is_some(), "nobody asked for this gap: {gap:?}");
        if let Some(coming) = coming {
            coming.from = from;
        }
        if is_own {
            self.from = from;
            // What was deleted before is none of the values.
            self.begun = Some(log.seq());
            self.tracks.clear();
            self.last_seq = 0;
        }
        self.spared = log.seq();
    }

    /// A reader that had nothing to see, or saw old things behind new ones, was told where it is:
    /// whatever comes is newer.
    pub(super) fn told_cursor(&mut self, log: &Log, seq: u64) {
        assert!(seq <= log.seq(), "a cursor from the future");
        assert!(seq >= self.last_seq, "{seq} is where it was: {self:?}");
        self.last_seq = seq;
        self.cursor = seq;
    }

    /// What the reader should have seen by now and has not; `None` if nothing.
    pub(super) fn missing(&self, log: &Log) -> Option<String> {
        if self.expected.is_some() || self.coming.is_some() {
            return Some(format!("a gap, or an answer: {self:?}"));
        }
        log.topics().filter(|topic| wants(&self.filters, topic)).find_map(|topic| {
            let (seq, entry) = log.newest(topic, u64::MAX)?;
            let track = self.tracks.get(topic);
            let (from, begun) =
                track.map_or((self.from, self.begun), |track| (track.from, track.begun));
            let is_seen = match (track.and_then(|track| track.last), from) {
                (Some(last), _) => {
                    let anew = track.and_then(|track| track.anew);
                    let is_before = anew.is_some_and(|(_, begun)| seq <= begun);
                    last == seq || entry.message.is_deletion() && is_before
                }
                (None, From::After(since)) => seq <= since,
                // A poll that is held does not tell when it began.
                (None, From::Values { .. }) => {
                    entry.message.is_deletion() && begun.is_none_or(|begun| seq <= begun)
                }
            };
            (!is_seen).then(|| format!("{seq} of {topic}: {self:?}"))
        })
    }
}

type Judgement = Result<(), String>;

/// Whether `seq` may come behind what was seen of the topic.
fn follows(
    log: &Log,
    topic: &str,
    seq: u64,
    track: &Track,
    (gaps, spared): (usize, u64),
    conflates: bool,
) -> Judgement {
    let gap = (gaps > track.gaps, spared);
    match track.last {
        Some(_)
            if let Some((from, begun)) = track.anew
                && begins_well(log, topic, seq, (from, Some(begun)), (true, spared), conflates)
                    .is_ok() =>
        {
            Ok(())
        }
        Some(last) if seq <= last => Err(format!("{seq} of {topic} after {last}")),
        Some(last) => leaves_nothing_out(log, topic, last, seq, gap, conflates),
        None => begins_well(log, topic, seq, (track.from, track.begun), gap, conflates),
    }
}

/// Whether `seq` may be the first of the topic. A gap that was told excuses what history has lost,
/// and whatever has a number up to one.
fn begins_well(
    log: &Log,
    topic: &str,
    seq: u64,
    (from, begun): (From, Option<u64>),
    gap: (bool, u64),
    conflates: bool,
) -> Judgement {
    match from {
        From::After(since) if seq <= since => Err(format!("{seq} was seen before {since}")),
        From::After(since) => leaves_nothing_out(log, topic, since, seq, gap, conflates),
        From::Values { asked } => {
            let next = log.between(topic, seq, u64::MAX).first();
            let was_current = next.is_none_or(|&next| next > asked);
            if log.entry(seq).message.is_deletion() && seq <= asked {
                return Err(format!("the deletion {seq} of {topic} is older than the reader"));
            }
            let error = || format!("{seq} of {topic} was no more the value when {asked} was");
            was_current.then_some(()).ok_or_else(error)?;
            leaves_nothing_out(log, topic, begun.unwrap_or(seq), seq, gap, conflates)
        }
    }
}

fn leaves_nothing_out(
    log: &Log,
    topic: &str,
    after: u64,
    before: u64,
    (gap, spared): (bool, u64),
    conflates: bool,
) -> Judgement {
    let missing = log.between(topic, after, before);
    let is_excused = |&seq: &u64| gap && (log.entry(seq).is_lost || seq <= spared);
    match missing.iter().find(|seq| !is_excused(seq)) {
        Some(seq) if !conflates => {
            let how = if gap { "though history has it" } else { "without a gap" };
            Err(format!("{seq} of {topic} is missing between {after} and {before} {how}"))
        }
        _ => Ok(()),
    }
}
