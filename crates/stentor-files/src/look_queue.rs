//! The looks that wait for a thread of a mount's loader.
//!
//! Requests for the same path wait for one look, as long as it has not begun: its outcome is newer
//! than each of them. The checks of files in memory have a queue of their own, which goes first, so
//! requests for missing names delay no check.

use crate::file_cache::{FileLook, LookReply, NotAsked};
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use stentor_io::monotonic_us;
use stentor_wire::negotiate::Encoding;

/// The loader looks at this file, and keeps it if it is worth it. It compresses a text in this
/// encoding, too. A path that ends with a slash is that of a directory, which the loader lists.
pub(crate) struct LookJob {
    pub(crate) path: Box<str>,
    pub(crate) encoding: Encoding,
    /// The time of the last request for it, by the worker's clock.
    pub(crate) now_ms: u64,
    /// The same by the clock of the host.
    pub(crate) asked_ms: u64,
    pub(crate) replies: Vec<LookReply>,
}

impl LookJob {
    pub(crate) fn new(path: &str, encoding: Encoding, now_ms: u64) -> LookJob {
        let asked_ms = monotonic_us() / 1_000;
        LookJob { path: path.into(), encoding, now_ms, asked_ms, replies: Vec::new() }
    }

    /// Whether every client that asked for it has been refused by now.
    pub(crate) fn is_late(&self) -> bool {
        (monotonic_us() / 1_000).saturating_sub(self.asked_ms) >= LATE_MS
    }

    pub(crate) fn tell(self, looked: &FileLook) {
        self.replies.into_iter().for_each(|reply| reply.send(looked.clone()));
    }
}

/// The workers' end of a queue.
pub(crate) struct LookQueue {
    waiting: Arc<Mutex<WaitingLooks>>,
    /// One for each job that waits.
    tokens: Sender<()>,
}

/// The loader's end of a queue.
pub(crate) struct LookJobs {
    waiting: Arc<Mutex<WaitingLooks>>,
    tokens: Receiver<()>,
}

#[derive(Default)]
struct WaitingLooks {
    by_path: HashMap<Box<str>, LookJob>,
    /// The paths of files in memory.
    checks: VecDeque<Box<str>>,
    others: VecDeque<Box<str>>,
}

/// An empty queue.
pub(crate) fn look_queue() -> (LookQueue, LookJobs) {
    let (token_sender, tokens) = mpsc::channel();
    let waiting = Arc::<Mutex<WaitingLooks>>::default();
    (
        LookQueue { waiting: Arc::clone(&waiting), tokens: token_sender },
        LookJobs { waiting, tokens },
    )
}

impl LookQueue {
    /// Adds a job, or joins it to the one for the same path. `is_check`: the file is in memory.
    pub(crate) fn put(
        &self,
        job: LookJob,
        is_check: bool,
        reply: Option<LookReply>,
    ) -> Result<(), (NotAsked, Option<LookReply>)> {
        let mut waiting = stentor_io::lock(&self.waiting);
        let WaitingLooks { by_path, checks, others } = &mut *waiting;
        if let Some(before) = by_path.get_mut(&job.path) {
            before.now_ms = job.now_ms;
            before.asked_ms = job.asked_ms;
            before.replies.extend(reply);
            return Ok(());
        }
        let queue = if is_check { checks } else { others };
        if queue.len() >= LOOKS_MAX {
            return Err((NotAsked::Busy, reply));
        }
        if self.tokens.send(()).is_err() {
            return Err((NotAsked::NoLoader, reply));
        }
        queue.push_back(job.path.clone());
        by_path.entry(job.path.clone()).or_insert(job).replies.extend(reply);
        Ok(())
    }
}

impl LookJobs {
    /// Waits for the next job. `None`: no worker is left.
    pub(crate) fn wait(&self) -> Option<LookJob> {
        self.tokens.recv().ok()?;
        self.take()
    }

    /// Returns the next job, if there is one.
    pub(crate) fn try_next(&self) -> Option<LookJob> {
        self.tokens.try_recv().ok()?;
        self.take()
    }

    /// Takes the job of a token.
    fn take(&self) -> Option<LookJob> {
        let mut waiting = stentor_io::lock(&self.waiting);
        let path = waiting.checks.pop_front().or_else(|| waiting.others.pop_front())?;
        waiting.by_path.remove(&path)
    }
}

/// So many paths may wait in each queue of a mount. Further requests are refused.
pub(crate) const LOOKS_MAX: usize = 4 * 1024;

/// No client waits for a look for longer.
const LATE_MS: u64 = 5_000;
