//! What a thread does for itself once: its own file table, its own core, another priority.

use rustix::thread::{CpuSet, UnshareFlags};
use std::io;

/// Gives the calling thread a file table of its own: accepting and closing never contend with
/// other threads, and the limit of open files counts for this thread alone. The new table is a
/// copy, so whatever is open now stays open in both.
///
/// # Errors
/// Out of memory, or forbidden by a seccomp profile; the thread then goes on with the shared
/// table.
pub fn own_file_table() -> io::Result<()> {
    // SAFETY: `CLONE_FILES` only makes a private copy of this thread's file table. File
    // descriptors that other threads hold as `OwnedFd` stay valid in their tables, and none made
    // in this thread from now on is handed to another.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES)? };
    Ok(())
}

/// Keeps the calling thread on one core, counted round the cores this process may use.
///
/// # Errors
/// The kernel refused.
pub fn pin_to_core(worker: usize) -> io::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let count = allowed.count() as usize;
    let core = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).nth(worker % count.max(1));
    if let Some(core) = core {
        let mut one = CpuSet::new();
        one.set(core);
        rustix::thread::sched_setaffinity(None, &one)?;
    }
    Ok(())
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

/// Lets the calling thread go before all others that are not of real time: it is on a core as soon
/// as it has something to do. For a thread that sleeps most of the time.
///
/// # Errors
/// That takes root, or a limit that allows it (`RLIMIT_RTPRIO`).
pub fn raise_priority() -> io::Result<()> {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: `first` is valid during the call; 0 is the calling thread, and no other is touched.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const NICENESS: i32 = 10;
