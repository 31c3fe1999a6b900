//! The watchdog of systemd (sd_notify(3), `WatchdogSec=` of a unit): systemd ends a process that
//! does not say regularly that it runs.
//!
//! [`sd_notify::watchdog_enabled`] is not used: it compares `WATCHDOG_PID` with this process, and
//! after an upgrade the variable still names the first one.

use std::env;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use crate::lifecycle;

/// Tells systemd twice in each interval that the process runs, until this is dropped.
pub(crate) struct Watchdog {
    _until: Sender<()>,
}

impl Watchdog {
    /// `None` if nobody has asked for it.
    pub(crate) fn begin() -> Option<Watchdog> {
        let interval = interval(&env::var("WATCHDOG_USEC").ok()?)?;
        env::var_os("NOTIFY_SOCKET")?;
        let (until, ended) = mpsc::channel::<()>();
        let tell = move || {
            while ended.recv_timeout(interval / 2) == Err(RecvTimeoutError::Timeout) {
                lifecycle::notify(&[NotifyState::Watchdog]);
            }
        };
        match thread::Builder::new().name("watchdog".to_owned()).spawn(tell) {
            Ok(_) => Some(Watchdog { _until: until }),
            Err(error) => {
                warn!("systemd will hear nothing of this process (WatchdogSec): {error}");
                None
            }
        }
    }
}

/// The value of `WATCHDOG_USEC`, in microseconds.
fn interval(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|us| *us > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_in_microseconds() {
        assert_eq!(interval("2000000"), Some(Duration::from_secs(2)));
        assert_eq!([interval("0"), interval(""), interval("2s")], [None; 3]);
    }
}
