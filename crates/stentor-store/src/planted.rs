//! Bugs that are planted: the harness must find each, or it finds nothing.
//!
//! In a test a thread may ask for one of them; anywhere else there are none, and the compiler
//! leaves the questions out.

/// A bug that a store had, or might have had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bug {
    /// What was written is said to be on the disk without a sync.
    NoSync,
    /// Names are not brought to the disk.
    NoDirectorySync,
    /// After a sync that failed, the next one is believed.
    GoesOnAfterFailedSync,
    /// What nothing vouches for is not written again.
    TailNotWrittenAgain,
    /// After a crash, numbers go on behind the last that was found.
    NumbersUsedAgain,
    /// A new segment says that the old one was on the disk to its end, which it was not.
    OldLogNotSynced,
    /// What is behind the end of an old segment counts.
    TailNotCutOff,
    /// A snapshot gets its name before its content is on the disk.
    SnapshotNotSynced,
    /// A snapshot gets its name before the log is on the disk up to what it shows.
    SnapshotAheadOfLog,
}

impl Bug {
    #[cfg(test)]
    pub(crate) const ALL: [Bug; 9] = [
        Bug::NoSync,
        Bug::NoDirectorySync,
        Bug::GoesOnAfterFailedSync,
        Bug::TailNotWrittenAgain,
        Bug::NumbersUsedAgain,
        Bug::OldLogNotSynced,
        Bug::TailNotCutOff,
        Bug::SnapshotNotSynced,
        Bug::SnapshotAheadOfLog,
    ];
}

/// Whether this bug is there.
#[cfg(not(test))]
pub(crate) const fn has(_: Bug) -> bool {
    false
}

#[cfg(test)]
pub(crate) use test::{has, with};

#[cfg(test)]
mod test {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    pub(crate) fn has(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Runs something with a bug in it.
    pub(crate) fn with<R>(bug: Bug, run: impl FnOnce() -> R) -> R {
        PLANTED.set(Some(bug));
        let result = run();
        PLANTED.set(None);
        result
    }
}
