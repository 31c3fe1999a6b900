//! Upgrades of a running server: who may be told to begin one, and what came of those before.
//!
//! What is known of them goes over with everything else, so that whoever asked the process before
//! is told by the next one what came of it.

use serde::Serialize;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stentor_wire::packed;

/// The upgrades of this server, in all its processes.
#[derive(Default)]
pub(crate) struct Upgrades(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whoever runs the server is told by this to begin one. `None`: nobody can.
    begin: Option<Box<dyn Fn() + Send>>,
    is_under_way: bool,
    history: History,
}

/// What came of the upgrades so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct History {
    /// Those by which another process has taken over: so many were before this one.
    pub(crate) done: u64,
    /// Those after which the process went on that was there.
    pub(crate) failed: u64,
    /// The last of those that were done.
    pub(crate) last: Option<Done>,
    /// The last of those that failed.
    pub(crate) last_failure: Option<Failed>,
}

packed!(struct History { done, failed, last, last_failure });

/// An upgrade by which another process has taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Done {
    /// Wall clock when it was done, in seconds since 1970.
    pub(crate) unix_s: u64,
    /// The process that was there before.
    pub(crate) from_process: u32,
    /// Open connections that went over.
    pub(crate) connections: u64,
    /// How long nobody was served.
    pub(crate) stood_still_us: u64,
}

packed!(struct Done { unix_s, from_process, connections, stood_still_us });

/// An upgrade that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failed {
    /// Wall clock when it was given up, in seconds since 1970.
    pub(crate) unix_s: u64,
    /// Why, in one sentence.
    pub(crate) reason: String,
}

packed!(struct Failed { unix_s, reason });

/// How it is with upgrades at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// One is asked for, or under way.
    pub(crate) under_way: bool,
    #[serde(flatten)]
    pub(crate) history: History,
}

/// Why none is begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotBegun {
    /// Nobody here can.
    Nobody,
    /// One is under way already.
    UnderWay,
}

impl Upgrades {
    /// Those of a process that takes over: it is being done.
    pub(crate) fn taken_over(history: History) -> Upgrades {
        Upgrades(Mutex::new(State { begin: None, is_under_way: true, history }))
    }

    /// Whoever runs the server can begin one, and is told to by this.
    pub(crate) fn begin_by(&self, begin: Box<dyn Fn() + Send>) {
        self.state().begin = Some(begin);
    }

    /// Has one begun. Returns what came of those before.
    ///
    /// # Errors
    /// [`NotBegun`]
    pub(crate) fn ask(&self) -> Result<History, NotBegun> {
        let mut state = self.state();
        let State { begin, is_under_way, history } = &mut *state;
        let begin = begin.as_ref().ok_or(NotBegun::Nobody)?;
        if *is_under_way {
            return Err(NotBegun::UnderWay);
        }
        *is_under_way = true;
        begin();
        Ok(history.clone())
    }

    /// One is under way, whether it was asked for here or by a signal. Returns what came of those
    /// before.
    pub(crate) fn begin(&self) -> History {
        let mut state = self.state();
        state.is_under_way = true;
        state.history.clone()
    }

    /// Another process has taken over: this one.
    pub(crate) fn done(&self, done: Done) {
        let mut state = self.state();
        state.is_under_way = false;
        state.history.done += 1;
        state.history.last = Some(done);
    }

    /// It has come to nothing.
    pub(crate) fn failed(&self, failed: Failed) {
        let mut state = self.state();
        state.is_under_way = false;
        state.history.failed += 1;
        state.history.last_failure = Some(failed);
    }

    /// How it is now.
    pub(crate) fn report(&self) -> Report {
        let state = self.state();
        Report { under_way: state.is_under_way, history: state.history.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Upgrades {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_at_a_time_is_begun_and_told_of() {
        let upgrades = Upgrades::default();
        assert_eq!(upgrades.ask(), Err(NotBegun::Nobody));
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        upgrades.begin_by(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(upgrades.ask(), Ok(History::default()));
        assert_eq!(upgrades.ask(), Err(NotBegun::UnderWay));
        assert!(upgrades.report().under_way);
        let reason = "it ended".to_owned();
        upgrades.failed(Failed { unix_s: 1, reason });
        assert!(!upgrades.report().under_way);
        assert_eq!(upgrades.ask().map(|before| before.failed), Ok(1));
        assert_eq!(begun.load(Ordering::Relaxed), 2);
        let next = Upgrades::taken_over(upgrades.begin());
        assert!(next.report().under_way);
        next.done(Done { unix_s: 2, from_process: 3, connections: 4, stood_still_us: 5 });
        let Report { under_way, history } = next.report();
        assert!(!under_way);
        assert_eq!((history.done, history.failed), (1, 1));
        assert_eq!(history.last_failure.map(|failed| failed.reason), Some("it ended".to_owned()));
    }

    #[test]
    fn a_signal_counts_as_well() {
        let upgrades = Upgrades::default();
        upgrades.begin_by(Box::new(|| {}));
        upgrades.begin();
        assert_eq!(upgrades.ask(), Err(NotBegun::UnderWay));
    }
}
