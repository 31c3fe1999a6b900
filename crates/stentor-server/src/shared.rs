//! The state that all workers share: the hub, the order, and the services behind it.
//!
//! A worker reads it without a lock on the path of a read. It is made once, at the start, and lives
//! as long as the process.

use crate::access_log::AccessLog;
use crate::addresses::AddressCounts;
use crate::keys::TokenState;
use crate::operations::{Reloads, Upgrades};
use crate::paths;
use crate::pressure::MemoryState;
use crate::stats::Stats;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stentor_files::FileCache;
use stentor_hub::{Hub, Message};
use stentor_order::Committer;
use stentor_tls_layer::Acceptors;
use stentor_wire::error::Rejection;
use stentor_wire::http1::Request;

/// The state that all workers share. A read writes none of it.
pub struct Shared {
    /// The current values, and the latest messages of each topic.
    pub hub: Arc<Hub>,
    /// Takes changes through all their steps.
    pub committer: Committer,
    /// Files in memory.
    pub file_cache: Arc<FileCache>,
    /// Where answers are logged, if they are.
    pub access_log: Option<Arc<AccessLog>>,
    /// The browser client, as `/-/stentor.js` is answered.
    pub client: Arc<Message>,
    /// What begins handshakes.
    pub acceptors: Arc<Acceptors>,
    /// Connections of the public listeners by their addresses.
    pub addresses: AddressCounts,
    /// How short memory is that is not counted here.
    pub memory: Arc<MemoryState>,
    /// The keys that tokens are verified with, and the verified ones.
    pub tokens: Arc<TokenState>,
    /// The counters of every worker, to be summed when asked for.
    pub workers: Vec<Arc<Stats>>,
    /// How many of them have the public listeners.
    pub workers_public: usize,
    /// The process and its predecessors.
    pub process: ProcessState,
}

/// The state of the process that its workers read.
#[derive(Default)]
pub struct ProcessState {
    /// The start of the server, in seconds since 1970, in whichever process that was.
    pub started_unix_s: u64,
    /// The start of this process, in seconds since 1970.
    pub process_started_unix_s: u64,
    /// A stop was announced: this server is not ready any more.
    pub is_stopping: AtomicBool,
    /// Upgrades, their outcomes, and how one begins.
    pub upgrades: Upgrades,
    /// Likewise for reloads.
    pub reloads: Reloads,
}

impl Shared {
    /// The state of so many workers, all of them public. Nothing is logged, and there is no
    /// certificate.
    ///
    /// # Errors
    /// The host is out of files or memory.
    pub fn new(
        committer: Committer,
        client: Arc<Message>,
        tokens: TokenState,
        workers: usize,
        process: ProcessState,
    ) -> io::Result<Shared> {
        Ok(Shared {
            hub: Arc::clone(committer.applier().hub()),
            committer,
            file_cache: Arc::default(),
            access_log: None,
            client,
            acceptors: Arc::default(),
            addresses: AddressCounts::default(),
            memory: Arc::default(),
            tokens: Arc::new(tokens),
            workers: (0..workers).map(|_| Arc::default()).collect(),
            workers_public: workers,
            process,
        })
    }

    /// The age of the local state in seconds, if another server or a broker makes the order.
    /// `None`: this server makes it.
    pub(crate) fn stale_s(&self) -> Option<u64> {
        self.committer.service().and_then(|service| service.stale_s())
    }

    /// The same in milliseconds, and 0 if this server makes the order.
    pub(crate) fn age_ms(&self) -> u64 {
        self.committer.service().map_or(0, |service| service.age_ms())
    }

    /// Messages that topics have dropped and files that the cache has dropped, as long as
    /// connections hold them, in bytes.
    pub(crate) fn detached_bytes(&self) -> usize {
        self.hub.detached_bytes() + self.file_cache.detached_bytes()
    }

    /// Whether a request can be answered yet. While the store is being read, or the values of a
    /// leader or of a cluster are loaded, only a probe is.
    ///
    /// # Errors
    /// The reason, as the client reads it.
    pub(crate) fn may_answer(&self, request: &Request<'_>) -> Result<(), Rejection> {
        let may_answer = self.committer.service().map_or(Ok(()), |service| service.may_answer());
        may_answer.or_else(|reason| if paths::is_probe(request) { Ok(()) } else { Err(reason) })
    }
}
