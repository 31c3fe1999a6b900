//! This module begins upgrades and reloads of a running server, and remembers their outcomes.
//!
//! The outcomes of upgrades are handed over, so a client that asked the process before hears the
//! outcome from the next one. Those of reloads are not: the next process has read its configuration
//! at its start.

use serde::Serialize;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use stentor_wire::packed;

/// One kind of them, with what is to be said of one that was done.
pub struct Operations<D>(Mutex<State<D>>);

/// Those by which another process takes over.
pub type Upgrades = Operations<Upgraded>;

/// Those by which the configuration is read again.
pub type Reloads = Operations<Reloaded>;

struct State<D> {
    begin: Begin,
    is_under_way: bool,
    history: History<D>,
}

/// How one is begun.
#[derive(Default)]
enum Begin {
    /// The program that runs the server cannot.
    #[default]
    Unable,
    /// The program is about to say how: this process has just taken over, and serves already.
    Soon { is_asked: bool },
    /// This tells the program to begin one.
    By(Box<dyn Fn() + Send>),
}

/// The outcomes so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct History<D> {
    /// How many succeeded.
    pub done: u64,
    /// How many failed.
    pub failed: u64,
    /// The last of those that were done.
    pub last: Option<D>,
    /// The last of those that failed.
    pub last_failure: Option<Failed>,
}

packed!(struct History<Upgraded> { done, failed, last, last_failure });

impl<D> Default for History<D> {
    fn default() -> History<D> {
        History { done: 0, failed: 0, last: None, last_failure: None }
    }
}

/// An upgrade by which another process has taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Upgraded {
    /// Wall clock when it was done, in seconds since 1970.
    pub unix_s: u64,
    /// The process that was there before.
    pub from_process: u32,
    /// Open connections that went over.
    pub connections: u64,
    /// The pause, in which no request was served.
    pub stood_still_us: u64,
}

packed!(struct Upgraded { unix_s, from_process, connections, stood_still_us });

/// A reload that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// Wall clock when it was done, in seconds since 1970.
    pub unix_s: u64,
    /// The settings that differ, and only count from the next restart.
    pub need_restart: Vec<String>,
}

/// An operation that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Wall clock when it was given up, in seconds since 1970.
    pub(crate) unix_s: u64,
    /// Why, in one sentence.
    pub(crate) reason: String,
}

packed!(struct Failed { unix_s, reason });

impl Failed {
    /// One that is given up now.
    pub fn now(reason: &str) -> Failed {
        Failed { unix_s: stentor_io::unix_s(), reason: reason.to_owned() }
    }
}

/// The state of one kind of operation at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct OperationReport<D> {
    /// One is asked for, or under way.
    pub(crate) under_way: bool,
    #[serde(flatten)]
    pub(crate) history: History<D>,
}

/// Why an operation was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotBegun {
    /// The program that runs the server cannot.
    Unable,
    /// One is under way already.
    UnderWay,
}

impl<D> Default for Operations<D> {
    fn default() -> Operations<D> {
        let history = History::default();
        Operations(Mutex::new(State { begin: Begin::Unable, is_under_way: false, history }))
    }
}

impl Upgrades {
    /// Those of a process that takes over: it is being done.
    pub fn taken_over(history: History<Upgraded>) -> Upgrades {
        let begin = Begin::Soon { is_asked: false };
        Operations(Mutex::new(State { begin, is_under_way: true, history }))
    }
}

impl Reloads {
    /// Those of a process that takes over.
    pub fn of_successor() -> Reloads {
        let (begin, history) = (Begin::Soon { is_asked: false }, History::default());
        Operations(Mutex::new(State { begin, is_under_way: false, history }))
    }
}

impl<D: Clone> Operations<D> {
    /// Sets what tells the program that runs the server to begin one.
    pub fn begin_by(&self, begin: Box<dyn Fn() + Send>) {
        let before = std::mem::replace(&mut self.state().begin, Begin::By(begin));
        if let (Begin::Soon { is_asked: true }, Begin::By(begin)) = (before, &self.state().begin) {
            begin();
        }
    }

    /// Has one begun. Returns the numbers of those before that were done, and that failed.
    ///
    /// # Errors
    /// [`NotBegun`]
    pub(crate) fn ask(&self) -> Result<(u64, u64), NotBegun> {
        let mut state = self.state();
        let State { begin, is_under_way, history } = &mut *state;
        match begin {
            Begin::Unable => return Err(NotBegun::Unable),
            _ if *is_under_way => return Err(NotBegun::UnderWay),
            Begin::Soon { is_asked } => *is_asked = true,
            Begin::By(begin) => begin(),
        }
        *is_under_way = true;
        Ok((history.done, history.failed))
    }

    /// One is under way, whether it was asked for here or by a signal. Returns the outcomes of
    /// those before.
    pub fn begin(&self) -> History<D> {
        let mut state = self.state();
        state.is_under_way = true;
        state.history.clone()
    }

    /// It has been done.
    pub fn done(&self, done: D) {
        let mut state = self.state();
        state.is_under_way = false;
        state.history.done += 1;
        state.history.last = Some(done);
    }

    /// It has come to nothing.
    pub fn failed(&self, failed: Failed) {
        let mut state = self.state();
        state.is_under_way = false;
        state.history.failed += 1;
        state.history.last_failure = Some(failed);
    }

    /// How it is now.
    pub(crate) fn report(&self) -> OperationReport<D> {
        let state = self.state();
        OperationReport { under_way: state.is_under_way, history: state.history.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        stentor_io::lock(&self.0)
    }
}

impl<D: Clone + fmt::Debug> fmt::Debug for Operations<D> {
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
        assert_eq!(upgrades.ask(), Err(NotBegun::Unable));
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        upgrades.begin_by(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(upgrades.ask(), Ok((0, 0)));
        assert_eq!(upgrades.ask(), Err(NotBegun::UnderWay));
        assert!(upgrades.report().under_way);
        upgrades.failed(Failed::now("it ended"));
        assert!(!upgrades.report().under_way);
        assert_eq!(upgrades.ask(), Ok((0, 1)));
        assert_eq!(begun.load(Ordering::Relaxed), 2);
        let next = Upgrades::taken_over(upgrades.begin());
        assert!(next.report().under_way);
        next.done(Upgraded { unix_s: 2, from_process: 3, connections: 4, stood_still_us: 5 });
        let OperationReport { under_way, history } = next.report();
        assert!(!under_way);
        assert_eq!((history.done, history.failed), (1, 1));
        assert_eq!(history.last_failure.map(|failed| failed.reason), Some("it ended".to_owned()));
    }

    #[test]
    fn one_that_is_asked_for_early_is_begun_once_that_can_be() {
        let reloads = Reloads::of_successor();
        assert_eq!(reloads.ask(), Ok((0, 0)));
        assert_eq!(reloads.ask(), Err(NotBegun::UnderWay));
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let count = Arc::clone(&begun);
            reloads.begin_by(Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            }));
            assert_eq!(begun.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn a_signal_counts_as_well() {
        let upgrades = Upgrades::default();
        upgrades.begin_by(Box::new(|| {}));
        upgrades.begin();
        assert_eq!(upgrades.ask(), Err(NotBegun::UnderWay));
    }
}
