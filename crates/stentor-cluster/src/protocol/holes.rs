//! Recovery from a *hole*: an operator has deleted messages of the log before this node read them.
//!
//! 1. The node closes its consumer and asks its peers for a snapshot that reaches beyond the hole.
//! 2. If no peer has one, and the log has not grown for ten seconds, the node assumes that no live
//!    node has read the deleted messages. It copies its values into a second hub and applies the
//!    rest of the log to that. Readers do not see this hub, because values may be missing in it.
//! 3. At the end of the log the node begins a life with these values as seeds, and readers receive
//!    a gap. The epoch record names the position before the hole, so a node that has read further
//!    publishes its newer values.

use super::reading::{TOO_LARGE, entry_of};
use super::{ALONE_MS, Action, ClusterNode, Looked, PendingLook, Staging};
use crate::codec::{Of, entries};
use crate::line::SequenceMapping;
use crate::seeds::{has_changed, newest};
use stentor_hub::{Entry, Epoch, Hub, Place, decode_entry, encode_event};

/// A snapshot that is needed.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) epoch: Epoch,
    /// Since when, and the last sequence of the log since then.
    since_ms: u64,
    last: u64,
}

impl ClusterNode {
    /// The first sequence behind the message read last that may have a message. A damaged message
    /// counts as deleted.
    pub(super) fn next(&self, asked: &PendingLook, looked: &Looked) -> u64 {
        // Messages may be appended between two answers. Only a last sequence that was known before
        // the look has no message if the look found none.
        let next = looked.next.unwrap_or(asked.last.min(looked.last) + 1).max(looked.first);
        if self.position.damaged == Some(next) { next + 1 } else { next }
    }

    /// Asks peers for a snapshot of this life.
    pub(super) fn want(&mut self, epoch: Epoch, last: u64, now_ms: u64) {
        self.stop_reading();
        // Only a node that has read everything appends, so there is one, and it has a snapshot.
        if self.obstacles.want.is_none_or(|want| (want.epoch, want.last) != (epoch, last)) {
            self.obstacles.want = Some(Want { epoch, since_ms: now_ms, last });
        }
        self.actions.push_back(Action::Snapshot { epoch });
    }

    /// The log lacks messages before `next` that this node has not read.
    pub(super) fn miss(
        &mut self,
        epoch: Epoch,
        line: &SequenceMapping,
        (next, last): (u64, u64),
        now_ms: u64,
    ) {
        self.want(epoch, last, now_ms);
        if self.obstacles.want.is_some_and(|want| now_ms >= want.since_ms + ALONE_MS) {
            self.read_over(epoch, now_ms);
            self.skip_to(next, line);
            self.read_on(now_ms);
        }
    }

    /// From here on the log is read into a hub that readers do not see.
    fn read_over(&mut self, epoch: Epoch, now_ms: u64) {
        self.actions.clear();
        self.obstacles.want = None;
        let late = self.writer.begin_anew(&self.intake);
        self.late.extend(late);
        let staging = self.staging.get_or_insert_with(|| Staging {
            hub: values_of(&self.hub),
            epoch,
            run: self.run,
            before: None,
            heard_ms: now_ms,
            last: None,
            hole: None,
        });
        staging.hole = Some(0);
    }

    /// Whether a hole was found that no live node has read over, and this node reads the rest.
    pub(super) fn reads_over(&self) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.hole.is_some())
    }

    /// The log has no message between the one read last and `next`, and this node needs none.
    pub(super) fn skip_to(&mut self, next: u64, line: &SequenceMapping) {
        if next > self.read() + 1 {
            (self.position.read, self.position.hash) = (next - 1, None);
            self.epoch.mapping = line.upto(self.position.read);
            self.hub_read().follow_rolled_back(&self.epoch.mapping.lost());
            self.note_position();
            self.pass_hole(next);
        }
    }

    /// Passes the hole before this message, if holes are read over. Returns whether they are.
    pub(super) fn pass_hole(&mut self, seq: u64) -> bool {
        let first = self.epoch.mapping.seq(seq);
        let over = self.staging.as_mut().filter(|staging| staging.hole.is_some());
        over.is_some_and(|over| {
            over.hole = over.hub.life().number(first);
            over.hole.is_some()
        })
    }
}

impl Staging {
    /// Applies those entries of a message to the hub for which `is_taken` is true.
    pub(super) fn fill(
        &mut self,
        first: u64,
        of: &[u8],
        is_taken: impl Fn(&Hub, &Entry<'_>, Option<u64>) -> bool,
    ) -> Result<(), &'static str> {
        let life = self.hub.life();
        for (place, bytes) in (0..).zip(entries(of)?) {
            let entry = entry_of(bytes)?;
            let number = life.number(first | place).ok_or(TOO_LARGE)?;
            if is_taken(&self.hub, &entry, self.hole) {
                let _ = self.hub.apply(entry, Place::At(number));
            }
        }
        Ok(())
    }

    /// Applies a batch that is behind a hole. A condition can be judged only if the topic has
    /// changed since the hole; otherwise the change that it names may be in the hole.
    pub(super) fn fill_behind_hole(
        &mut self,
        first: u64,
        of: Of,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let since = of.since.and_then(|since| self.hub.life().number(since));
        self.fill(first, bytes, |hub, entry, hole| {
            let is_known = hole.is_none_or(|hole| has_changed(hub, entry, hole.saturating_sub(1)));
            let gives_way = since.is_some_and(|since| has_changed(hub, entry, since));
            (is_known || !entry.is_conditional()) && !gives_way
        })
    }
}

/// Another hub with the values of this one, under their ids.
fn values_of(hub: &Hub) -> Hub {
    let copy = hub.stage(hub.epoch(), true);
    let mut bytes = Vec::new();
    for event in newest(hub, 0).iter().filter(|event| !event.message.is_deletion()) {
        bytes.clear();
        encode_event(event, &mut bytes);
        let followed = decode_entry(&bytes).and_then(|(entry, place)| copy.follow(entry, place));
        debug_assert!(followed.is_ok(), "{followed:?}");
    }
    copy
}
