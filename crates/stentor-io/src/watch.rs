//! What changes on the disk, as it changes: directories watched by inotify.
//!
//! The kernel tells by name what happened in a directory that is watched. It does not tell what
//! happens further below, so each directory of interest is watched by itself, and it does not tell
//! what another host does to a network file system. Its queue is bounded: when it overflows, what
//! is known of the disk may be wrong, and the caller has to look for itself.
//!
//! A change is a hint to look again, never a fact. By the time it is read, the name may mean
//! something else; one change is told of several times, and some that are none are told of too.
//!
//! That a file is being written is not told: it is of no use before it is finished, and it would
//! be told of for each write. Its end is, when the last one who wrote closes the file.
//!
//! A directory is watched through a descriptor that was opened beneath the root, as files are, by
//! the name that descriptor has in `/proc`: inotify itself takes nothing but paths, and a path
//! could lead anywhere.
//!
//! The crate notify watches by path, so this module does without it.

use crate::file::Directory;
use crate::process::timespec;
use crate::wake::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;

/// Watches directories, for one thread.
#[derive(Debug)]
pub struct Watcher {
    inotify: OwnedFd,
    /// Those that are watched: what the kernel still has to say of others is of no interest.
    watched: RefCell<HashSet<WatchId>>,
    buffer: Box<[MaybeUninit<u8>]>,
}

/// A directory that is watched. The number is not used again for another one (before two thousand
/// million others have been watched).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatchId(i32);

/// Something may have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A file was finished: closed after writing, moved here, or made by a link. Or it was begun,
    /// or its permissions, owner or times changed.
    Written {
        /// Where.
        watch: WatchId,
        /// Its name there.
        name: String,
    },
    /// A file was deleted or moved away.
    Removed {
        /// Where.
        watch: WatchId,
        /// The name it had there.
        name: String,
    },
    /// A directory came or went.
    DirectoryChanged {
        /// Where.
        watch: WatchId,
        /// Its name there.
        name: String,
    },
    /// The permissions, owner or times of a directory changed.
    DirectoryTouched {
        /// Where.
        watch: WatchId,
        /// Its name there; empty: it is the watched directory itself.
        name: String,
    },
    /// The watched directory was deleted, moved or unmounted, and is no longer watched. A directory
    /// that was deleted while somebody has it open ends only when it is closed; the watch on the
    /// one above tells of it at once.
    Ended {
        /// Which.
        watch: WatchId,
    },
    /// The kernel could not keep all changes: anything may have changed.
    Overflow,
}

impl Watcher {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// Out of files or memory, or of this user's `fs.inotify.max_user_instances`.
    pub fn new() -> io::Result<Watcher> {
        Ok(Watcher {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            watched: RefCell::default(),
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES].into(),
        })
    }

    /// Watches one directory beneath `root`, "" being the root itself. No symbolic link may be on
    /// the way. The same directory again gives the same id, by whatever path.
    ///
    /// # Errors
    /// As [`Directory::find`]; `NotADirectory` if it is something else. `StorageFull`: this user's
    /// `fs.inotify.max_user_watches` are used up. `Unsupported`: there is no `/proc`.
    pub fn watch(&self, root: &Directory, path: &str) -> io::Result<WatchId> {
        let place = root.place(path)?;
        let name = format!("/proc/thread-self/fd/{}", place.as_raw_fd());
        match inotify::add_watch(&self.inotify, name, INTEREST) {
            Ok(number) => {
                self.watched.borrow_mut().insert(WatchId(number));
                Ok(WatchId(number))
            }
            Err(Errno::NOENT) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "directories cannot be watched: /proc is not mounted here",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a watch. No change of it is told of any more.
    pub fn unwatch(&self, id: WatchId) {
        if self.watched.borrow_mut().remove(&id) {
            let _ = inotify::remove_watch(&self.inotify, id.0);
        }
    }

    /// Waits until something changed, the waker was called, or `timeout_ms` is over (0: only
    /// looks; None: for ever), and appends what changed to `changes`. It may return for no reason,
    /// and leave changes for the next call. A wake-up ends one wait; the caller then forgets it
    /// by [`Waker::take`] and looks into its mailbox.
    ///
    /// # Errors
    /// Only if memory ran out or the inotify instance itself is broken.
    pub fn wait(
        &mut self,
        waker: &Waker,
        timeout_ms: Option<u64>,
        changes: &mut Vec<Change>,
    ) -> io::Result<()> {
        let timeout = timeout_ms.map(|ms| timespec(ms * 1_000));
        let mut sources = [
            PollFd::new(&self.inotify, PollFlags::IN),
            PollFd::from_borrowed_fd(waker.as_fd(), PollFlags::IN),
        ];
        match poll(&mut sources, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [changed, woken] = sources.map(|source| !source.revents().is_empty());
        if woken {
            waker.rest();
        }
        if changed { self.read(changes) } else { Ok(()) }
    }

    fn read(&mut self, changes: &mut Vec<Change>) -> io::Result<()> {
        let enough = changes.len() + CHANGES_PER_WAIT;
        let mut reader = Reader::new(&self.inotify, &mut self.buffer);
        while changes.len() < enough || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => changes.extend(change(&self.inotify, &self.watched, &event)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What an event means, if it means anything.
fn change(
    inotify: &OwnedFd,
    watched: &RefCell<HashSet<WatchId>>,
    event: &Event<'_>,
) -> Option<Change> {
    let (flags, watch) = (event.events(), WatchId(event.wd()));
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Change::Overflow);
    }
    if flags.intersects(ENDED) {
        let known = watched.borrow_mut().remove(&watch);
        if known && flags.contains(ReadFlags::MOVE_SELF) {
            // The kernel would go on, but what it told would be of another path.
            let _ = inotify::remove_watch(inotify, watch.0);
        }
        return known.then_some(Change::Ended { watch });
    }
    if !watched.borrow().contains(&watch) {
        return None;
    }
    // A name that is not UTF-8 is none that anybody can ask for.
    let name = event.file_name().map_or(Ok(""), |name| name.to_str()).ok()?.to_owned();
    Some(if flags.contains(ReadFlags::ISDIR | ReadFlags::ATTRIB) {
        Change::DirectoryTouched { watch, name }
    } else if flags.contains(ReadFlags::ISDIR) {
        Change::DirectoryChanged { watch, name }
    } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
        Change::Removed { watch, name }
    } else {
        Change::Written { watch, name }
    })
}

/// What is to be told. Files that were removed while somebody has them open are of no interest
/// from then on.
const INTEREST: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// What ends a watch. After the first two the kernel itself ends it, and says so by the third.
const ENDED: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED)
    .union(ReadFlags::MOVE_SELF);

/// Some thousand short names; at least two hundred of the longest.
const BUFFER_BYTES: usize = 64 * 1024;
/// After so many a wait ends, and the rest is left to the next one.
const CHANGES_PER_WAIT: usize = 4096;

#[cfg(test)]
mod tests;
