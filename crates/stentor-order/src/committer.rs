//! Admits, commits and applies a change.

use crate::compressor::Compressor;
use crate::report::Report;
use crate::sequencer::{Commit, InMemory, OrderKind, Outcome, Promised, ReturnAddress, Sequencer};
use std::sync::Arc;
use stentor_hub::{Applied, Entry, Hub, Op, Place, Precondition, Published};

/// Applies changes that have their places, and has their messages compressed.
#[derive(Clone)]
pub struct Applier {
    hub: Arc<Hub>,
    compressor: Compressor,
}

impl Applier {
    /// Applies changes to this hub.
    #[must_use]
    pub fn new(hub: Arc<Hub>, compressor: Compressor) -> Applier {
        Applier { hub, compressor }
    }

    /// The hub that it applies changes to.
    #[must_use]
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// What compresses messages.
    #[must_use]
    pub fn compressor(&self) -> &Compressor {
        &self.compressor
    }

    /// Applies a change that has its place, and has the message compressed as the one before it was
    /// asked for.
    ///
    /// # Errors
    /// The change is refused at its place.
    pub fn apply(&self, entry: Entry<'_>, place: Place) -> Outcome {
        let mut applied = self.hub.apply(entry, place)?;
        expect_compression(&self.compressor, &mut applied);
        Ok(applied)
    }

    /// For threads that apply changes to the hub themselves: they call it with each.
    #[must_use]
    pub fn on_applied(&self) -> Box<dyn FnMut(&mut Applied) + Send> {
        let compressor = self.compressor.clone();
        Box::new(move |applied| expect_compression(&compressor, applied))
    }
}

fn expect_compression(compressor: &Compressor, applied: &mut Applied) {
    // Taken out: what is not read any more is not to stay until the publisher is answered.
    if let Applied::Put(Published { message, replaced, .. }) = applied
        && let Some(replaced) = replaced.take()
    {
        compressor.expect(message, replaced.asked());
    }
}

/// Takes a change through all its steps.
pub struct Committer {
    applier: Applier,
    service: Option<Arc<dyn Report>>,
    order: OrderKind,
    sequencer: Arc<dyn Sequencer>,
}

impl Committer {
    /// Has changes committed by this service. `None`: the order is kept in memory alone.
    #[must_use]
    pub fn new(applier: Applier, service: Option<Arc<dyn Report>>) -> Committer {
        let in_memory = || (OrderKind::Memory, Arc::new(InMemory) as _);
        let (order, sequencer) = service.as_ref().map_or_else(in_memory, |it| it.order());
        Committer { applier, service, order, sequencer }
    }

    /// Has changes committed by this sequencer, whose order is kept in memory alone.
    #[must_use]
    pub fn with_sequencer(applier: Applier, sequencer: Arc<dyn Sequencer>) -> Committer {
        Committer { applier, service: None, order: OrderKind::Memory, sequencer }
    }

    /// The service that makes the order or keeps it. `None`: it is kept in memory alone.
    #[must_use]
    pub fn service(&self) -> Option<&Arc<dyn Report>> {
        self.service.as_ref()
    }

    /// How the order is kept.
    #[must_use]
    pub fn order(&self) -> &OrderKind {
        &self.order
    }

    /// The applier of its changes.
    #[must_use]
    pub fn applier(&self) -> &Applier {
        &self.applier
    }

    /// Commits a change. Returns `None` if the outcome comes later; then it is sent to `back`.
    pub fn commit(
        &self,
        op: Op<'_>,
        when: Precondition,
        unix_s: u64,
        back: &dyn Fn() -> ReturnAddress,
    ) -> Option<Outcome> {
        match self.begin(op, when, unix_s, back) {
            Commit::Known(outcome) => Some(outcome),
            Commit::Later => None,
            Commit::Due(outcome, due) => {
                self.when_kept(&mut vec![Promised { due, outcome, back: back() }]);
                None
            }
        }
    }

    /// The same for a caller that commits several changes and waits for them itself.
    pub fn begin(
        &self,
        op: Op<'_>,
        when: Precondition,
        unix_s: u64,
        back: &dyn Fn() -> ReturnAddress,
    ) -> Commit {
        match &op {
            Op::Put(topic, _) => tracing::debug!("to be published: {topic}"),
            Op::Delete(topic) => tracing::debug!("to be deleted: {topic}"),
            Op::Rules(_) => {}
        }
        let hub = &self.applier.hub;
        let judged = match &op {
            Op::Delete(topic) => Some(hub.keep(topic.as_str())),
            Op::Put(topic, _) if when != Precondition::None => Some(hub.keep(topic.as_str())),
            _ => None,
        };
        let admitted = if !self.sequencer.judges_at_place() {
            hub.admit(op, when, unix_s)
        } else if matches!(op, Op::Delete(_)) {
            // Others know more, perhaps: it is judged where it has its place.
            Ok(Entry::past(op, unix_s).if_holds(when))
        } else {
            let admitted = hub.admit(op, Precondition::None, unix_s);
            admitted.map(|entry| entry.if_holds(when))
        };
        let mut commit = match admitted {
            Ok(entry) => self.sequencer.commit(&self.applier, entry, back),
            Err(refusal) => Commit::Known(Err(refusal.into())),
        };
        if let (Some(keep), Some(refusal)) = (judged, commit.refusal_by_state()) {
            // The state behind the refusal may be rolled back yet.
            if let Some(due) = self.sequencer.refusal_due(hub, keep) {
                commit = Commit::Due(Err(refusal.into()), due);
            }
        }
        commit
    }

    /// Takes out changes that were applied, and has each publisher told once what it was promised
    /// holds: see [`Sequencer::when_kept`].
    pub fn when_kept(&self, promised: &mut Vec<Promised>) {
        self.sequencer.when_kept(promised);
    }
}
