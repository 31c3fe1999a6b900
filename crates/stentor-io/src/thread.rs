//! Threads: with a file table of their own, on a core of their own, with another priority.

use rustix::thread::{CpuSet, UnshareFlags};
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Builder, JoinHandle, Thread};
use std::time::Duration;

#[cfg(any(test, feature = "sim"))]
use crate::virtual_clock::VirtualClock;

/// Starts a thread with a file table of its own: accepting and closing never contend with other
/// threads, and the limit of open files counts for this thread alone.
///
/// `body` gets the result of that. The kernel may be out of memory, and a seccomp profile may
/// forbid it; the thread then shares the table of the thread that started it.
///
/// The new table is a copy: a file that is open now stays open in both. A file that is opened later
/// is in one of them. It must stay on its thread, even to be dropped, since its number may mean
/// another file elsewhere. `body` borrows nothing, so it begins with files that are in both tables,
/// and it closes its own copy of them. The compiler cannot see what threads send each other later:
/// neither side may send a file.
///
/// # Errors
/// The kernel refused to start a thread.
pub fn spawn_with_file_table<T: Send + 'static>(
    thread: Builder,
    body: impl FnOnce(io::Result<()>) -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread.spawn(|| {
        // SAFETY: it makes a private copy of the thread's file table. The thread has opened no file
        // yet, and borrows none: whatever it owns or shares is in the copy, and stays valid in the
        // tables of other threads. Files that are opened from now on stay where they are: `Epoll`,
        // which holds sockets, is not `Send`, and no thread sends a `File` to another.
        let own_table = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) };
        body(own_table.map_err(io::Error::from))
    })
}

/// A thread that the system has already given, and that waits for [`WaitingThread::begin`]: so
/// starting it may fail early, and beginning cannot. If this is dropped before, the thread ends.
#[derive(Debug)]
pub struct WaitingThread {
    begins: Sender<()>,
    thread: Thread,
}

impl WaitingThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<WaitingThread> {
        let (begins, begun) = channel();
        let run = move || {
            if begun.recv().is_ok() {
                body();
            }
        };
        let thread = Builder::new().name(name.to_owned()).spawn(run)?.thread().clone();
        Ok(WaitingThread { begins, thread })
    }

    /// Has the thread run its body.
    pub fn begin(&self) {
        // It fails only if the body has ended.
        let _ = self.begins.send(());
    }

    /// Wakes the thread if it is parked.
    pub fn unpark(&self) {
        self.thread.unpark();
    }
}

/// Has the calling thread do nothing for so long.
pub fn sleep(duration: Duration) {
    #[cfg(any(test, feature = "sim"))]
    if VirtualClock::pass(duration) {
        return;
    }
    thread::sleep(duration);
}

/// Keeps the calling thread on one core, counted round the cores it may use. Returns the core, and
/// how many there were.
///
/// # Errors
/// The kernel refused.
pub fn pin_to_core(worker: usize) -> io::Result<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let count = allowed.count() as usize;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let core = cores.nth(worker % count.max(1)).ok_or(io::ErrorKind::NotFound)?;
    let mut one = CpuSet::new();
    one.set(core);
    rustix::thread::sched_setaffinity(None, &one)?;
    Ok((core, count))
}

/// Lets other threads go before the calling one: by ten steps of niceness, which leave it about a
/// tenth of a core that another wants as well, and all of one that nobody does.
///
/// # Errors
/// The kernel refused.
pub fn lower_priority() -> io::Result<()> {
    // Linux counts niceness for each thread.
    rustix::process::nice(NICENESS)?;
    Ok(())
}

/// Makes the calling thread real-time: it preempts every thread that is not, as soon as it has
/// something to do. For a thread that sleeps most of the time.
///
/// # Errors
/// The process is neither root nor allowed to by a limit (`RLIMIT_RTPRIO`).
pub fn raise_priority() -> io::Result<()> {
    let mut own = scheduling()?;
    own.sched_policy = libc::SCHED_FIFO as u32;
    own.sched_priority = 1;
    set_scheduling(own)
}

/// Gives the calling thread a short time slice: when it has something to do, a thread that has run
/// for longer makes way. Its share of the core stays the same. For a thread that others wait for
/// and that never has much to do at a time. Linux heeds it since 6.12; an older kernel ignores it.
///
/// # Errors
/// The kernel refused.
pub fn take_short_turns() -> io::Result<()> {
    let mut own = scheduling()?;
    // Another policy was chosen on purpose: leave it.
    if own.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    own.sched_runtime = TURN_NS;
    set_scheduling(own)
}

/// Sets how the calling thread is scheduled. By system call: musl's `sched_setscheduler` always
/// fails, and its `sched_param` has other fields.
fn set_scheduling(mut own: libc::sched_attr) -> io::Result<()> {
    own.sched_flags = 0;
    // SAFETY: `own` is valid during the call; 0 is the calling thread, and no other is touched.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const own, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How the calling thread is scheduled.
fn scheduling() -> io::Result<libc::sched_attr> {
    let mut own = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: `own` is valid for writing as many bytes as are named; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, own.size, 0) } {
        0 => Ok(own),
        _ => Err(io::Error::last_os_error()),
    }
}

const NICENESS: i32 = 10;

/// The shortest slice there is (`sched(7)`).
const TURN_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_are_the_threads_own_and_change_nothing_else() {
        let (before, after, other) = thread::scope(|scope| {
            let own = scope.spawn(|| {
                lower_priority().unwrap();
                let before = scheduling().unwrap();
                take_short_turns().unwrap();
                (before, scheduling().unwrap())
            });
            let (before, after) = own.join().unwrap();
            (before, after, scope.spawn(|| scheduling().unwrap()).join().unwrap())
        });
        assert_eq!(
            (after.sched_policy, after.sched_nice),
            (before.sched_policy, before.sched_nice),
            "it has no more of the core than before"
        );
        // Older kernels know of no turns.
        if before.sched_runtime > 0 {
            assert_eq!(after.sched_runtime, TURN_NS);
            assert!(other.sched_runtime > TURN_NS);
        }
    }

    #[test]
    fn a_raised_thread_is_real_time() {
        let own = thread::spawn(|| raise_priority().map(|()| scheduling().unwrap()));
        match own.join().unwrap() {
            Ok(own) => {
                assert_eq!((own.sched_policy, own.sched_priority), (libc::SCHED_FIFO as u32, 1));
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
