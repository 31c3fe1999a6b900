//! The state that all workers share: the hub, the order, and the services behind it.
//!
//! A worker reads it without a lock on the path of a read. It is made once, at the start, and lives
//! as long as the process.

use crate::access_log::AccessLog;
use crate::addresses::AddressCounts;
use crate::certificates::Acceptors;
use crate::cluster::ClusterState;
use crate::compressor::Compressor;
use crate::files::FileCache;
use crate::follow::FollowState;
use crate::guard::MemoryState;
use crate::operations::{Reloads, Upgrades};
use crate::order::{Commit, Outcome, Promised, ReturnAddress, Sequencer};
use crate::route;
use crate::stats::Stats;
use crate::store::StoreState;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use stentor_access::{Cache, Keys};
use stentor_hub::{Applied, Entry, Hub, Message, Op, Place, Precondition, Published};
use stentor_wire::http1::Request;

/// The state that all workers share. A read writes none of it.
pub(crate) struct Shared {
    pub(crate) hub: Arc<Hub>,
    /// Gives changes their sequences.
    pub(crate) sequencer: Box<dyn Sequencer>,
    /// The state of the store, if there is one.
    pub(crate) store: Option<Arc<StoreState>>,
    /// The state of following a leader, if this server does.
    pub(crate) follow: Option<Arc<FollowState>>,
    /// The state of the cluster, if a broker makes the order.
    pub(crate) cluster: Option<Arc<ClusterState>>,
    pub(crate) compressor: Compressor,
    pub(crate) file_cache: Arc<FileCache>,
    /// Where answers are logged, if they are.
    pub(crate) access_log: Option<Arc<AccessLog>>,
    /// The browser client, as `/-/stentor.js` is answered.
    pub(crate) client: Arc<Message>,
    /// What begins handshakes.
    pub(crate) acceptors: Arc<Acceptors>,
    /// Connections of the public listeners by their addresses.
    pub(crate) addresses: AddressCounts,
    /// How short memory is that is not counted here.
    pub(crate) memory: MemoryState,
    /// The keys that workers begin with.
    pub(crate) keys: Mutex<Arc<Keys>>,
    /// A token named a key that is not known: issuers may have others by now.
    pub(crate) wants_keys: AtomicBool,
    /// Tokens that were verified.
    pub(crate) tokens: Cache,
    /// The counters of every worker, to be summed when asked for.
    pub(crate) workers: Vec<Arc<Stats>>,
    /// How many of them have the public listeners.
    pub(crate) workers_public: usize,
    /// Wall clock at the start of the server, in seconds since 1970, whichever process it was then.
    pub(crate) started_unix_s: u64,
    /// The same of this process.
    pub(crate) process_started_unix_s: u64,
    /// A stop was announced: this server is not ready any more.
    pub(crate) is_stopping: AtomicBool,
    /// The upgrades and the reloads so far, and how one is begun.
    pub(crate) upgrades: Upgrades,
    pub(crate) reloads: Reloads,
}

impl Shared {
    /// The keys that tokens are verified with.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&stentor_io::lock(&self.keys))
    }

    /// Has tokens verified with these from now on, by workers that begin. Others are told.
    pub(crate) fn set_keys(&self, keys: Arc<Keys>) {
        *stentor_io::lock(&self.keys) = keys;
    }

    /// The age of the local state in seconds, if another server or a broker makes the order.
    /// `None`: this server makes it.
    pub(crate) fn stale_s(&self) -> Option<u64> {
        let of_leader = self.follow.as_ref().and_then(|follow| follow.stale_s());
        of_leader.or(self.cluster.as_ref().and_then(|cluster| cluster.stale_s()))
    }

    /// Whether a request can be answered yet. While the store is being read, or the values of a
    /// leader or of a cluster are loaded, only a probe is.
    ///
    /// # Errors
    /// The reason, as the client reads it.
    pub(crate) fn may_answer(&self, request: &Request<'_>) -> Result<(), &'static str> {
        let reason = if self.store.as_ref().is_some_and(|store| !store.reading.is_over()) {
            "The store is being read: try again in a while."
        } else if self.follow.as_ref().is_some_and(|follow| !follow.has_all()) {
            "Nothing was had of the leader yet: try again in a while."
        } else if self.cluster.as_ref().is_some_and(|cluster| !cluster.has_all()) {
            "Nothing was had of the cluster yet: try again in a while."
        } else {
            return Ok(());
        };
        if route::is_probe(request) { Ok(()) } else { Err(reason) }
    }

    /// Commits a change. Returns `None` if the outcome comes later; then it is sent to `back`.
    pub(crate) fn commit(
        &self,
        op: Op<'_>,
        when: Precondition,
        unix_s: u64,
        back: &dyn Fn() -> ReturnAddress,
    ) -> Option<Outcome> {
        match self.begin_commit(op, when, unix_s, back) {
            Commit::Known(outcome) => Some(outcome),
            Commit::Later => None,
            Commit::Applied(applied, due) => {
                self.sequencer.when_kept(&mut vec![Promised { due, applied, back: back() }]);
                None
            }
        }
    }

    /// The same for a caller that commits several changes and waits for them itself.
    pub(crate) fn begin_commit(
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
        let admitted = match &self.cluster {
            None => self.hub.admit(op, when, unix_s),
            // Others know more, perhaps: it is judged where it has its place.
            Some(_) if matches!(op, Op::Delete(_)) => Ok(Entry::past(op, unix_s).if_holds(when)),
            Some(_) => {
                let admitted = self.hub.admit(op, Precondition::None, unix_s);
                admitted.map(|entry| entry.if_holds(when))
            }
        };
        match admitted {
            Ok(entry) => self.sequencer.commit(self, entry, back),
            Err(refusal) => Commit::Known(Err(refusal.into())),
        }
    }

    /// Applies a change that has its place, and has the message compressed as the one before it was
    /// asked for.
    pub(crate) fn apply(&self, entry: Entry<'_>, place: Place) -> Outcome {
        let mut applied = self.hub.apply(entry, place)?;
        self.expect_compression(&mut applied);
        Ok(applied)
    }

    fn expect_compression(&self, applied: &mut Applied) {
        // Taken out: what is not read any more is not to stay until the publisher is answered.
        if let Applied::Put(Published { message, replaced, .. }) = applied
            && let Some(replaced) = replaced.take()
        {
            self.compressor.expect(message, replaced.asked());
        }
    }

    /// The callback of threads that apply changes themselves. The server may end before them.
    pub(crate) fn on_applied(shared: &Arc<Shared>) -> Box<dyn FnMut(&mut Applied) + Send> {
        let shared = Arc::downgrade(shared);
        Box::new(move |applied| {
            if let Some(shared) = shared.upgrade() {
                shared.expect_compression(applied);
            }
        })
    }
}
