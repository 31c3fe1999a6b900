//! What a node does when the log lacks something that it has read.

use super::{
    ALONE_MS, BARE_PATIENCE_MS, ClusterNode, DIFFERS, Divergence, Finding, LOOK_MS, Looked,
    PendingLook, Phase, Placement, Suspicion, Values,
};
use crate::line::{Jump, SequenceMapping};
use crate::seeds::newest;

impl ClusterNode {
    /// SEQs jump before the message that was read last, so that one is lost. If the messages before
    /// the jump are not those that this node has read, their ids are of two messages each, and the
    /// epoch has to end. A message on its way through a broker that pauses causes this.
    pub(super) fn leave_at(
        &mut self,
        jump: Jump,
        line: &SequenceMapping,
        (asked, looked): (&PendingLook, &Looked),
        now_ms: u64,
    ) {
        self.stop_reading();
        self.position.before_jump = self.position.running.before(jump.at);
        match self.position.before_jump {
            Some((at, _)) if asked.at != at => self.look(now_ms),
            Some(_) if asked.hash == looked.at => {
                self.position.before_jump = None;
                self.leave(line, now_ms);
            }
            _ => self.suspect(DIFFERS, now_ms),
        }
    }

    /// What was read last is not in the log: somebody has gone on before it.
    pub(super) fn leave(&mut self, line: &SequenceMapping, now_ms: u64) {
        self.stop_reading();
        if self.staging.take().is_some() {
            // The values in the hub are of another epoch. The node reads this one again.
            (self.position.placement, self.look.at_ms) = (Placement::Unknown, 0);
            return;
        }
        if self.hub.id(self.hub.seq()).seq >= line.seq(line.last()) {
            // The log has lost a longer jump, and would use SEQs again that readers were sent.
            return self.say_again(line.clone(), true);
        }
        self.keep_lost(line, now_ms);
        (self.local.has_diverged, self.position.placement) = (true, Placement::Unknown);
        match self.is_alone(now_ms) {
            true => self.turn(now_ms),
            false => self.look.at_ms = 0,
        }
    }

    /// Keeps the changes that the log has lost, to publish them again.
    pub(super) fn keep_lost(&mut self, line: &SequenceMapping, now_ms: u64) {
        let seq = self.hub.id(self.hub.seq()).seq;
        let lost = line.lost().into_iter().find(|lost| *lost.end() >= seq);
        let divergence = Divergence { since_ms: now_ms, lost: None };
        let divergence = self.local.divergence.get_or_insert(divergence);
        if let Some(lost) = lost.filter(|lost| divergence.lost.as_ref() != Some(lost))
            && let Some(first) = self.hub.life().number(*lost.start())
        {
            let since = lost.end() + 1;
            divergence.lost = Some(lost);
            self.keep(&newest(&self.hub, first - 1), since);
        }
    }

    /// Everybody who is heard of has left the order, it seems: then somebody has to begin a life.
    pub(super) fn is_alone(&self, now_ms: u64) -> bool {
        let divergence = self.local.divergence.as_ref();
        divergence.is_some_and(|divergence| now_ms >= divergence.since_ms + ALONE_MS)
    }

    /// The log lacks something that is here. Begins a life if that is so for a while.
    pub(super) fn suspect(&mut self, why: &'static str, now_ms: u64) {
        let since_ms = match self.phase.finding() {
            Finding::Loss(Suspicion { since_ms, .. }) => since_ms,
            Finding::Nothing | Finding::Hole(_) => now_ms,
        };
        self.phase = Phase::Suspecting(Suspicion { since_ms, why });
        self.show();
        // Nodes that have more values begin the epoch first.
        let is_old = self.local.values == Values::FromDisk;
        let patience_ms = if is_old { BARE_PATIENCE_MS } else { LOOK_MS };
        if now_ms >= since_ms + patience_ms {
            if why == DIFFERS {
                // Even if the log loses the record of the next one.
                self.epoch.past.push(self.hub.epoch());
            }
            self.turn(now_ms);
        }
    }
}
