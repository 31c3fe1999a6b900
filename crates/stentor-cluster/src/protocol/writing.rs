//! What a node appends to the log: epoch records, seeds and batches.

use super::state::{ClusterName, Phase};
use super::{Action, ClusterNode, LogSubject, TURN_PATIENCE_MS};
use crate::codec::{Again, EpochRecord, Of};
use crate::line::{PLACE_BITS, SequenceMapping, age_of, number_after};
use crate::lists::lists_for_seeds;
use crate::seeds::{Bootstrap, newest, next_late, next_seed};
use crate::waiting::ChangeBatch;
use crate::writer::{AppendContent, Promises, Sending};
use stentor_hub::Epoch;

impl ClusterNode {
    /// Says again which life it is, if no other node has since the last look.
    pub(super) fn say_again(&mut self, line: SequenceMapping, jumps: bool) {
        let Some(remote) = self.look.remote else { return };
        if self.epoch.since_ms == 0 {
            // No node knows the epoch's age, so assume one that continues behind the last SEQ here.
            let seq = self.hub.id(self.hub.seq()).seq;
            let age_ms = age_of(self.epoch.began, seq);
            self.epoch.since_ms = remote.unix_ms.saturating_sub(age_ms);
        }
        let (began, since_ms) = (self.epoch.began, self.epoch.since_ms);
        let age_ms = remote.unix_ms.saturating_sub(since_ms);
        // A node that assumed the epoch's age may have jumped further than its age allows.
        let read = self.hub.id(self.hub.seq()).seq >> PLACE_BITS;
        let jump = jumps.then(|| number_after(began, age_ms).max(read + 1));
        let again = Some(Again { began, line, jump });
        let cluster = self.name_cluster();
        let turn = EpochRecord {
            before: None,
            has_seed: false,
            broker: remote.broker,
            since_ms,
            cluster,
            again,
        };
        let epoch = self.hub.epoch();
        let payload = turn.encode((epoch, self.run, 0)).into();
        let (to, token) = (LogSubject::Life, self.writer.next_token());
        let after = remote.life_last;
        self.actions.push_back(Action::Append { to, after, payload, token });
    }

    /// Begins a life, if no other node has since the last look.
    pub(super) fn turn(&mut self, now_ms: u64) {
        self.stop_reading();
        let here = self.hub.id(self.hub.seq());
        let seeds = Bootstrap { lists: lists_for_seeds(&self.hub), values: newest(&self.hub, 0) };
        let cluster = self.name_cluster();
        let turn = EpochRecord {
            cluster,
            before: self.has_all().then_some((here.epoch, here.seq)),
            has_seed: self.has_all() && self.hub.counts().topics > 0,
            broker: self.look.remote.map_or(0, |remote| remote.broker),
            since_ms: self.look.remote.map_or(0, |remote| remote.unix_ms),
            again: None,
        };
        let epoch = Epoch::from_number(self.rng.next_u64() as u32);
        self.writer.started = Some((epoch, seeds));
        let payload = turn.encode((epoch, self.run, 0)).into();
        let token = self.writer.next_token();
        self.phase = Phase::StartingEpoch { token, finding: self.phase.finding() };
        self.look.at_ms = now_ms + TURN_PATIENCE_MS;
        self.actions.push_back(Action::Append {
            to: LogSubject::Life,
            after: self.look.remote.map_or(0, |remote| remote.life_last),
            payload,
            token,
        });
    }

    /// The name of the cluster, which this node makes if there is none.
    fn name_cluster(&mut self) -> u64 {
        self.cluster().unwrap_or_else(|| {
            let name = self.rng.next_u64();
            self.cluster = ClusterName::FromLog(name);
            name
        })
    }

    /// Has the next message appended, if there is one to be.
    pub(super) fn write(&mut self, now_ms: u64) {
        if !self.reads() || !self.may_write() {
            return;
        }
        self.late.append(&mut self.writer.lost);
        if self.writer.sending.is_none() {
            let Some((payload, what)) = self.next_append(now_ms) else { return };
            self.writer.counter += 1;
            self.writer.sending = Some(Sending {
                payload: payload.into(),
                counter: self.writer.counter,
                what,
                since_ms: now_ms,
                token: None,
                sent: 0,
                conflict: None,
            });
        }
        let (run, max) = (self.run, self.intake.payload_max());
        if let Some(action) = self.writer.send(self.position.read, run, max) {
            self.actions.push_back(action);
        }
    }

    /// The next message, with the counter behind the last one.
    fn next_append(&mut self, now_ms: u64) -> Option<(Vec<u8>, AppendContent)> {
        let max = self.intake.payload_max();
        let (run, counter) = (self.run, self.writer.counter + 1);
        if let Some(staging) = &self.staging
            && let Some(bootstrap) = &mut self.writer.seeding
        {
            let (seed, is_last) = next_seed(bootstrap, max);
            if is_last {
                self.writer.seeding = None;
            }
            let head = (staging.epoch, run, counter);
            return Some((seed.into_seed(head, is_last), AppendContent::Seed));
        }
        if !self.is_open() {
            return None;
        }
        let (head, jump) = ((self.hub.epoch(), run, counter), self.epoch.mapping.last());
        let of = Of { jump, since: None, read: self.position.running.shown() };
        if let Some(lists) = self.next_lists() {
            let payload = lists.into_batch(head, of);
            return Some((payload, AppendContent::Batch(Promises::default())));
        }
        if let Some((batch, since, entries)) = next_late(&mut self.late, max) {
            let of = Of { since: Some(since), ..of };
            return Some((batch.into_batch(head, of), AppendContent::Late(entries)));
        }
        // A node that has read something else before the jump finds it by an empty batch.
        let is_due = self.position.running.is_due(jump);
        let batch = self.intake.take(now_ms);
        let batch = batch.or_else(|| is_due.then(ChangeBatch::new))?;
        let bytes = batch.kept_bytes();
        let promises = Promises { backs: batch.backs, bytes };
        Some((batch.entries.into_batch(head, of), AppendContent::Batch(promises)))
    }
}
