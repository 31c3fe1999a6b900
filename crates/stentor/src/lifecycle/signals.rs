//! Signals: which ones a server listens to, and what each tells it.

use std::collections::VecDeque;
use std::process;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator;
use tracing::error;

use crate::Failure;

/// Signals wait while it is there, and none ever comes to a thread that is started meanwhile.
/// One that comes while the first process becomes another program is for that program, and no
/// thread may take it.
pub(super) struct HeldSignals;

impl HeldSignals {
    pub(super) fn hold() -> HeldSignals {
        stentor_io::hold_signals();
        HeldSignals
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        stentor_io::release_signals();
    }
}

/// What a signal told the process to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// SIGTERM or SIGINT
    Stop,
    /// SIGHUP
    Reload,
    /// SIGUSR1
    Reopen,
    /// SIGUSR2
    Upgrade,
}

/// The signals this process listens to. Register them before the server starts: from then on none
/// is lost, and none kills.
pub(crate) struct Signals {
    all: iterator::Signals,
    /// Those that came while something else was done.
    waiting: VecDeque<Told>,
    stops: Stops,
}

impl Signals {
    pub(crate) fn register() -> Result<Signals, Failure> {
        let all = iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
            .map_err(|error| Failure::Failed(format!("cannot listen to signals: {error}")))?;
        Ok(Signals { all, waiting: VecDeque::new(), stops: Stops::default() })
    }

    /// Waits for the next signal.
    pub(crate) fn wait(&mut self) -> Told {
        loop {
            if let Some(told) = self.waiting.pop_front() {
                return told;
            }
            let Some(signal) = self.all.forever().next() else { return Told::Stop };
            self.waiting.extend(self.stops.told(signal, stentor_io::monotonic_us()));
        }
    }

    /// Those that have come and were not followed.
    pub(super) fn missed(&mut self) -> Vec<i32> {
        self.take_pending();
        self.waiting.drain(..).map(|told| told.signal()).collect()
    }

    /// Whether one of those that have come is to stop. They are told by [`Signals::wait`].
    pub(crate) fn is_to_stop(&mut self) -> bool {
        self.take_pending();
        self.waiting.contains(&Told::Stop)
    }

    fn take_pending(&mut self) {
        let Signals { all, waiting, stops } = self;
        let now_us = stentor_io::monotonic_us();
        waiting.extend(all.pending().filter_map(|signal| stops.told(signal, now_us)));
    }
}

/// Signals to stop. A supervisor that signals all processes of a service reaches this one twice:
/// directly, and by way of the process before or the first one. `timeout` signals its child and the
/// group of it. A repeat within [`REPEAT_US`] is therefore the same stop.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// When the last one came, in microseconds of the monotonic clock.
    last_us: Option<u64>,
}

impl Stops {
    /// Returns the meaning of a signal, or `None` for a repeat.
    fn told(&mut self, signal: i32, now_us: u64) -> Option<Told> {
        let told = told(signal);
        let is_repeat = told == Told::Stop && self.is_repeat(now_us);
        (!is_repeat).then_some(told)
    }

    /// Whether a signal to stop is the last one again.
    pub(crate) fn is_repeat(&mut self, now_us: u64) -> bool {
        let is_repeat = self.last_us.is_some_and(|last_us| now_us < last_us + REPEAT_US);
        // mutation: one-stop-twice
        self.last_us = if is_repeat { self.last_us } else { Some(now_us) };
        is_repeat
    }
}

/// A second signal counts after this time: half a second.
const REPEAT_US: u64 = 500_000;

impl Told {
    fn signal(&self) -> i32 {
        match self {
            Told::Stop => SIGTERM,
            Told::Reload => SIGHUP,
            Told::Reopen => SIGUSR1,
            Told::Upgrade => SIGUSR2,
        }
    }
}

fn told(signal: i32) -> Told {
    match signal {
        SIGHUP => Told::Reload,
        SIGUSR1 => Told::Reopen,
        SIGUSR2 => Told::Upgrade,
        _ => Told::Stop,
    }
}

/// Has the signal come that begins an upgrade.
pub(crate) fn ask_for_upgrade() {
    ask_by(SIGUSR2);
}

/// Has the signal come that begins a reload.
pub(crate) fn ask_for_reload() {
    ask_by(SIGHUP);
}

fn ask_by(signal: i32) {
    // To the process: to the thread that asks no signal comes.
    if let Err(error) = stentor_io::send_signal(process::id(), signal) {
        error!("the signal {signal} cannot be sent to this process: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_comes_by_two_ways_is_one() {
        let mut stops = Stops::default();
        let mut heard = |ms: u64| stops.told(SIGTERM, ms * 1_000).is_some();
        assert_eq!(
            [0, 1, 499, 500, 501, 999, 1_001].map(&mut heard),
            [true, false, false, true, false, false, true]
        );
        assert_eq!(stops.told(SIGHUP, 0), Some(Told::Reload));
    }
}
