//! What a node makes of each message of the log. Whatever happens here follows from what was read,
//! and is the same on all nodes.

use super::{Node, Staging};
use crate::cluster::codec::{Body, ENTRIES_MAX, Message, Of, Turn, decode, entries};
use crate::cluster::line::Line;
use crate::cluster::seeds::{Late, has, has_changed, newest};
use crate::order::{CommitError, Telling};
use std::collections::VecDeque;
use stentor_hub::{Applied, Entry, Epoch, Event, Hub, Id, NotAdopted, Op, Place, decode_entry};

impl Node {
    pub(super) fn take(&mut self, seq: u64, bytes: &[u8], now_ms: u64) -> Result<(), &'static str> {
        let message = decode(bytes)?;
        match &message.body {
            Body::Turn(turn) if turn.again.is_some() => self.take_again(seq, &message, turn),
            Body::Turn(turn) => self.take_turn(seq, &message, turn.clone(), now_ms),
            Body::Seed { is_last, entries: of } => {
                self.take_seed(seq, &message, *is_last, of, now_ms)?;
            }
            Body::Batch { of, entries } => {
                if of.rules != self.rules && message.run != self.run {
                    self.others_rules = Some(of.rules);
                }
                self.take_batch(seq, &message, *of, entries)?;
            }
        }
        if message.run == self.run && message.counter > 0 {
            self.writer.last = seq;
        }
        Ok(())
    }

    /// The life that is read, or on its way in.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        match &self.staging {
            Some(staging) => Some(staging.epoch),
            None => (self.has_all && !self.anew).then(|| self.hub.epoch()),
        }
    }

    /// It is said again which life it is, and SEQs may jump.
    fn take_again(&mut self, seq: u64, message: &Message<'_>, turn: &Turn) {
        let jump = turn.again.as_ref().and_then(|again| again.jump);
        if self.epoch() != Some(message.epoch) {
            return;
        }
        self.broker = turn.broker;
        if let Some(number) = jump {
            self.line.jump(seq, number);
            let late = self.writer.begin_anew(&self.intake);
            self.late.extend(late);
            self.hub_read().follow_rolled_back(&self.line.lost());
            self.follow_upto(seq);
        }
        self.show();
    }

    /// Everything of this message was applied.
    fn follow_upto(&self, seq: u64) {
        self.hub_read().follow_upto(self.line.seq(seq) | ENTRIES_MAX as u64);
    }

    /// What is read goes there.
    fn hub_read(&self) -> &Hub {
        self.staging.as_ref().map_or(&self.hub, |staging| &staging.hub)
    }

    /// What is only here is to be published, unless it was changed behind this SEQ.
    pub(super) fn keep(&mut self, events: &VecDeque<Event>, since: u64) {
        self.late.extend(events.iter().filter_map(|event| Late::of(event, since)));
    }

    /// A life begins.
    fn take_turn(&mut self, seq: u64, message: &Message<'_>, turn: Turn, now_ms: u64) {
        let epoch = message.epoch;
        if self.epoch() == Some(epoch) {
            return;
        }
        self.past.extend(self.staging.take().map(|staging| staging.epoch));
        // If the log forgets this turn, it goes back to a life that is over.
        let is_past = self.has_all && self.hub.epoch() != epoch;
        self.past.extend(is_past.then(|| self.hub.epoch()));
        self.past.retain(|past| *past != epoch);
        let _ = self.writer.begin_anew(&self.intake);
        if is_past {
            self.late.clear();
        }
        (self.began, self.broker, self.line) = (seq, turn.broker, Line::default());
        self.since_ms = turn.since_ms;
        let hub = self.hub.stage(epoch, self.anew);
        let has_seed = turn.has_seed;
        let staging = Staging { hub, epoch, run: message.run, turn, heard_ms: now_ms, last: None };
        self.staging = Some(staging);
        let is_own = self.turned.take_if(|turned| *turned == epoch).is_some();
        if !has_seed {
            return self.end_staging();
        }
        if is_own {
            self.writer.seeding = Some(newest(&self.hub, 0));
        }
        self.show();
    }

    fn take_seed(
        &mut self,
        seq: u64,
        message: &Message<'_>,
        is_last: bool,
        of: &[u8],
        now_ms: u64,
    ) -> Result<(), &'static str> {
        let _ = self.writer.took(message, self.run, &self.intake);
        let Some(staging) = &mut self.staging else { return Ok(()) };
        let is_next = staging.last.is_none_or(|last| message.counter == last + 1);
        if (staging.epoch, staging.run) != (message.epoch, message.run) || !is_next {
            return Ok(());
        }
        staging.last = Some(message.counter);
        let life = staging.hub.life();
        for (place, bytes) in (0..).zip(entries(of)?) {
            let (entry, _) = decode_entry(bytes)?;
            let number = life.number(self.line.seq(seq) | place).ok_or(TOO_LARGE)?;
            // What was there is not judged.
            let _ = staging.hub.apply(entry, Place::At(number));
        }
        staging.heard_ms = now_ms;
        self.follow_upto(seq);
        if is_last {
            self.end_staging();
        }
        Ok(())
    }

    /// All of the life that begins is there.
    fn end_staging(&mut self) {
        let Some(Staging { hub, turn, epoch, .. }) = self.staging.take() else { return };
        let had_all = self.has_all.then(|| self.hub.id(self.hub.seq()));
        let mut behind = match (turn.before, had_all) {
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
        let (generation, rules) = self.hub.rules();
        let generation = generation.max(staged.rules().0) + 1;
        let rules = Entry::past(Op::Rules(rules), 0);
        let _ = staged.apply(rules, Place::At(generation));
        let adopted = self.hub.adopt(staged)?;
        if adopted.is_new_life && before != self.hub.epoch() {
            self.past.push(before);
        }
        (self.has_all, self.anew) = (true, false);
        Ok(())
    }

    fn take_batch(
        &mut self,
        seq: u64,
        message: &Message<'_>,
        of: Of,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let promises = self.writer.took(message, self.run, &self.intake);
        let is_of_life = self.staging.is_none() && self.epoch() == Some(message.epoch);
        if !is_of_life || of.jump != self.line.last() {
            promises.tell_all(&self.intake, CommitError::BrokerAway);
            return Ok(());
        }
        let all = entries(bytes)?;
        let decoded: Result<Vec<_>, _> = all.into_iter().map(decode_entry).collect();
        let life = self.hub.life();
        let since = of.since.map(|seq| life.number(seq).ok_or(TOO_LARGE)).transpose()?;
        let mut telling = Telling::default();
        let mut backs = promises.backs.into_iter();
        for (place, (entry, _)) in (0..).zip(decoded?) {
            let number = life.number(self.line.seq(seq) | place).ok_or(TOO_LARGE)?;
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
        self.follow_upto(seq);
        self.intake.give_back(promises.bytes);
        Ok(())
    }
}

const TOO_LARGE: &str = "its number is too large";
