//! What a node makes of each message of the log. Whatever happens here follows from what was read,
//! and is the same on all nodes.

use super::{ClusterNode, LOOK_MS, Looked, PendingLook, Placement, Staging};
use crate::codec::{EpochRecord, LogMessage, MessageBody, Of, decode, entries};
use crate::line::SequenceMapping;
use crate::seeds::{Late, has, has_changed, newest};
use std::collections::VecDeque;
use stentor_hub::{Applied, Entry, Epoch, Event, Hub, Id, NotAdopted, Op, Place, decode_entry};
use stentor_order::{CommitError, ReturnAddress, Telling};

impl ClusterNode {
    pub(super) fn take(&mut self, seq: u64, bytes: &[u8], now_ms: u64) -> Result<(), &'static str> {
        let message = decode(bytes)?;
        if message.run == self.run && message.counter > 0 {
            self.writer.last = seq;
        }
        if self.position.is_copy(seq, &message) {
            return Ok(());
        }
        match &message.body {
            MessageBody::Epoch(turn) if turn.again.is_some() => {
                self.take_again(seq, &message, turn)
            }
            MessageBody::Epoch(turn) => self.take_turn(seq, &message, turn.clone(), now_ms),
            MessageBody::Seed { is_last, entries: of } => {
                self.take_seed(seq, &message, *is_last, of, now_ms)?;
            }
            MessageBody::Batch { of, entries } => {
                if message.run != self.run {
                    self.rules.note(message.run, of.rules, now_ms);
                }
                self.take_batch(seq, &message, *of, entries)?;
            }
        }
        Ok(())
    }

    /// Whether a message follows the one read last. Where a life is to begin, the epoch record does
    /// that begins it: if another message is there, the log has lost that record, and this node is
    /// still in its own life.
    pub(super) fn follows(&mut self, seq: u64, bytes: &[u8]) -> bool {
        let begins = || match decode(bytes) {
            Ok(LogMessage { body: MessageBody::Epoch(turn), .. }) => turn.again.is_none(),
            _ => false,
        };
        let is_known = self.position.placement != Placement::Unknown;
        (is_known || begins()) && (!self.position.lacks_before(seq) || self.pass_hole(seq))
    }

    /// Whether the consumer has lost a message, it seems. A broker may take its time for a
    /// consumer, so the node waits twice as long for each one that delivers nothing.
    pub(super) fn is_overdue(&mut self, asked: &PendingLook, looked: &Looked, now_ms: u64) -> bool {
        // The look before knew of the message already.
        let is_due = looked.next.is_some_and(|next| next <= asked.last);
        if !is_due || !self.reads() || self.read() != asked.read {
            self.look.overdue_ms = None;
            return false;
        }
        let since_ms = *self.look.overdue_ms.get_or_insert(now_ms);
        now_ms >= since_ms + (LOOK_MS << self.look.given_up.min(DOUBLED_MAX))
    }

    /// A message before the place of this node is read for its count alone: one behind it may be a
    /// copy of it.
    pub(super) fn count_again(&mut self, seq: u64, bytes: &[u8]) {
        if let Some(message) = decode(bytes).ok().filter(|_| seq <= self.read()) {
            self.position.is_copy(seq, &message);
        }
    }

    /// The life that is read, or on its way in.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        match &self.staging {
            Some(staging) => Some(staging.epoch),
            None => self.local.is_in_order().then(|| self.hub.epoch()),
        }
    }

    /// It is said again which life it is, and SEQs may jump.
    fn take_again(&mut self, seq: u64, message: &LogMessage<'_>, turn: &EpochRecord) {
        let jump = turn.again.as_ref().and_then(|again| again.jump);
        if self.epoch() != Some(message.epoch) {
            return;
        }
        self.epoch.broker = turn.broker;
        if let Some(number) = jump {
            self.epoch.mapping.jump(seq, number);
            let late = self.writer.begin_anew(&self.intake);
            self.late.extend(late);
            self.hub_read().follow_rolled_back(&self.epoch.mapping.lost());
        }
        self.show();
    }

    /// The log is to be read behind what is in the hub, and has no epoch record.
    pub(super) fn place_without_record(&mut self) -> bool {
        // The node may know these of another epoch, whose record it has read and the log has lost.
        (self.epoch.began, self.epoch.since_ms, self.epoch.broker) = (0, 0, 0);
        self.place(&SequenceMapping::of_lost(&self.hub.rolled_back()), 0)
    }

    /// The hub's position names the last message read, of whatever kind: a snapshot carries it, and
    /// the log may forget every message before the next one.
    pub(super) fn note_position(&self) {
        if self.epoch().is_some() {
            self.hub_read().follow_upto(self.epoch.mapping.last_seq(self.read()));
        }
    }

    /// What is read goes there.
    pub(super) fn hub_read(&self) -> &Hub {
        self.staging.as_ref().map_or(&self.hub, |staging| &staging.hub)
    }

    /// What is only here is to be published, unless it was changed behind this SEQ.
    pub(super) fn keep(&mut self, events: &VecDeque<Event>, since: u64) {
        self.late.extend(events.iter().filter_map(|event| Late::of(event, since)));
    }

    /// A life begins.
    fn take_turn(&mut self, seq: u64, message: &LogMessage<'_>, turn: EpochRecord, now_ms: u64) {
        let epoch = message.epoch;
        if self.epoch() == Some(epoch) {
            return;
        }
        self.epoch.past.extend(self.staging.take().map(|staging| staging.epoch));
        // If the log forgets this epoch record, it goes back to a life that is over.
        let is_past = self.has_all() && self.hub.epoch() != epoch;
        self.epoch.past.extend(is_past.then(|| self.hub.epoch()));
        self.epoch.past.retain(|past| *past != epoch);
        let late = self.writer.begin_anew(&self.intake);
        self.late.extend(late);
        if is_past {
            self.late.clear();
            // Whether this node has left the order before says nothing of this life.
            self.local.divergence = None;
        }
        (self.epoch.began, self.epoch.since_ms) = (seq, turn.since_ms);
        (self.epoch.broker, self.epoch.mapping) = (turn.broker, SequenceMapping::default());
        self.position.placement = Placement::Known;
        let hub = self.stage(epoch);
        self.staging = Some(Staging {
            hub,
            epoch,
            run: message.run,
            before: turn.before,
            heard_ms: now_ms,
            last: None,
            hole: None,
        });
        let own = self.writer.started.take().filter(|(started, _)| *started == epoch);
        if !turn.has_seed {
            return self.end_staging();
        }
        if let Some((_, seeds)) = own {
            self.writer.seeding = Some(seeds);
        }
        self.show();
    }

    fn take_seed(
        &mut self,
        seq: u64,
        message: &LogMessage<'_>,
        is_last: bool,
        of: &[u8],
        now_ms: u64,
    ) -> Result<(), &'static str> {
        let _ = self.writer.took(message, self.run, &self.intake);
        let Some(staging) = &mut self.staging else { return Ok(()) };
        let is_over = staging.hole.is_some();
        let is_next = is_over || staging.last.is_none_or(|last| message.counter == last + 1);
        if (staging.epoch, staging.run) != (message.epoch, message.run) || !is_next {
            return Ok(());
        }
        (staging.last, staging.heard_ms) = (Some(message.counter), now_ms);
        // What was there is not judged.
        staging.fill(self.epoch.mapping.seq(seq), of, |_, _, _| true)?;
        if is_last && !is_over {
            self.end_staging();
        }
        Ok(())
    }

    /// All of the life that begins is there.
    fn end_staging(&mut self) {
        let Some(Staging { hub, before, epoch, .. }) = self.staging.take() else { return };
        let had_all = self.has_all().then(|| self.hub.id(self.hub.seq()));
        let mut behind = match (before, had_all) {
            // It is read again: what of this is lost is known.
            (_, Some(here)) if here.epoch == epoch => VecDeque::new(),
            // Nothing of it is there.
            (None, Some(_)) => newest(&self.hub, 0),
            (Some((epoch, seq)), Some(here)) if epoch == here.epoch && seq < here.seq => {
                newest(&self.hub, self.hub.number(Id { epoch, seq }).unwrap_or(0))
            }
            _ => VecDeque::new(),
        };
        // It is another life: it contradicts nothing.
        let _ = self.adopt(hub);
        let since = self.hub.id(self.hub.seq()).seq;
        behind.retain(|event| !has(&self.hub, event));
        self.keep(&behind, since);
        self.show();
    }

    pub(super) fn adopt(&mut self, staged: Hub) -> Result<(), NotAdopted> {
        let before = self.hub.epoch();
        // What is adopted has them instead of its own.
        let _held = self.intake.hold_rules();
        let (generation, rules) = self.hub.rules();
        let generation = generation.max(staged.rules().0) + 1;
        let rules = Entry::past(Op::Rules(rules), 0);
        let _ = staged.apply(rules, Place::At(generation));
        let adopted = self.hub.adopt(staged)?;
        if adopted.is_new_life && before != self.hub.epoch() {
            self.epoch.past.push(before);
        }
        self.local.adopt();
        Ok(())
    }

    fn take_batch(
        &mut self,
        seq: u64,
        message: &LogMessage<'_>,
        of: Of,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let promises = self.writer.took(message, self.run, &self.intake);
        let is_whole = self.staging.is_none() || self.reads_over();
        let is_of_life = is_whole && self.epoch() == Some(message.epoch);
        if !is_of_life || of.jump != self.epoch.mapping.last() {
            promises.tell_all(&self.intake, CommitError::BrokerAway);
            return Ok(());
        }
        if let Some(staging) = &mut self.staging {
            promises.tell_all(&self.intake, CommitError::Failed);
            return staging.fill_behind_hole(self.epoch.mapping.seq(seq), of, bytes);
        }
        let changes = match self.changes_of(seq, of, bytes) {
            Ok(changes) => changes,
            Err(reason) => {
                promises.tell_all(&self.intake, CommitError::Failed);
                return Err(reason);
            }
        };
        self.apply_all(changes, promises.backs);
        self.intake.give_back(promises.bytes);
        Ok(())
    }

    /// What a batch changes, if all of it makes sense.
    fn changes_of<'b>(
        &self,
        seq: u64,
        of: Of,
        bytes: &'b [u8],
    ) -> Result<BatchChanges<'b>, &'static str> {
        let life = self.hub.life();
        let number = |seq| life.number(seq).ok_or(TOO_LARGE);
        let since = of.since.map(number).transpose()?;
        let first = number(self.epoch.mapping.seq(seq))?;
        // The last one that it may have.
        number(self.epoch.mapping.last_seq(seq))?;
        let entries = entries(bytes)?.into_iter().map(entry_of).collect::<Result<_, _>>()?;
        Ok(BatchChanges { first, since, entries })
    }

    /// Applies a batch, and tells those who wait what came of each change.
    fn apply_all(&mut self, changes: BatchChanges<'_>, backs: Vec<ReturnAddress>) {
        let BatchChanges { first, since, entries } = changes;
        let mut telling = Telling::default();
        let mut backs = backs.into_iter();
        for (number, entry) in (first..).zip(entries) {
            if since.is_some_and(|since| has_changed(&self.hub, &entry, since)) {
                continue;
            }
            let mut outcome = self.hub.apply(entry, Place::At(number)).map_err(CommitError::from);
            if let Ok(applied) = &mut outcome {
                (self.on_applied)(applied);
            }
            if let Some(back) = backs.next() {
                let outcome = match outcome {
                    // It is in a snapshot, and what came of it is not.
                    Ok(Applied::Known) => Err(CommitError::Failed),
                    outcome => outcome,
                };
                telling.add(back, outcome);
            }
        }
    }
}

/// How many times a node doubles the time that it waits for a consumer.
const DOUBLED_MAX: u32 = 6;

/// What a batch changes.
struct BatchChanges<'b> {
    /// The number of the first.
    first: u64,
    /// They give way to what came behind this number.
    since: Option<u64>,
    entries: Vec<Entry<'b>>,
}

/// An entry of the log: rules are each node's own.
pub(super) fn entry_of(bytes: &[u8]) -> Result<Entry<'_>, &'static str> {
    let (entry, _) = decode_entry(bytes)?;
    if entry.topic().is_some() { Ok(entry) } else { Err("it is not of a topic") }
}

pub(super) const TOO_LARGE: &str = "its number is too large";
