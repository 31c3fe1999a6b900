//! An alarm ends a wait at a time finer than a deadline, once that was asked for.

use super::ALARM;
use crate::process::timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;

/// A timer in an epoll set. The timer exists once a time was set.
pub(super) struct Alarm {
    timer: Option<OwnedFd>,
    /// When it goes off, in microseconds.
    at_us: u64,
}

impl Alarm {
    pub(super) fn new() -> Alarm {
        Alarm { timer: None, at_us: u64::MAX }
    }

    /// Sets the time, unless an earlier one is set.
    pub(super) fn set(&mut self, epoll: &OwnedFd, at_us: u64) -> io::Result<()> {
        if self.at_us <= at_us {
            return Ok(());
        }
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => make_timer(epoll)?,
        };
        // A value of zero would mean never.
        let at_us = at_us.max(1);
        let once = Itimerspec { it_interval: timespec(0), it_value: timespec(at_us) };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once)?;
        self.timer = Some(timer);
        self.at_us = at_us;
        Ok(())
    }

    /// The kernel has reported it.
    pub(super) fn end(&mut self) {
        self.at_us = u64::MAX;
    }
}

/// Edge-triggered, it need not be read.
fn make_timer(epoll: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let flags = EventFlags::IN | EventFlags::ET;
    epoll::add(epoll, &timer, EventData::new_u64(ALARM), flags)?;
    Ok(timer)
}
