//! Files that a thread looks at once a second, and reads again when they change.
//!
//! The watcher asks for each file by its name, as the start does. It therefore notices every kind
//! of change: a write, a rename, and a link that leads elsewhere, somewhere on the way to the file
//! (certbot, Kubernetes). No watch on a directory sees all of these, so the library `notify` is
//! not used here.
//!
//! The states of the files are taken before the files are read. A file that changes between the
//! two is then read again. A renewal may write two files, one after the other: a change counts
//! when it was the same for two looks. Files that could not be used are read again now and then,
//! for some reasons are no change of a file.

use crate::path::{FileState, file_state};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Files, each with its state at some time, if there was such a file.
pub type FileStates = Vec<(PathBuf, Option<FileState>)>;

/// The states of these files now.
pub fn states_of(files: impl IntoIterator<Item = PathBuf>) -> FileStates {
    let with_state = |file: PathBuf| {
        let state = file_state(&file).ok();
        (file, state)
    };
    files.into_iter().map(with_state).collect()
}

/// Finds out when files have to be read again.
pub struct FileWatcher {
    /// The states of the files when they were read last.
    tried: FileStates,
    /// Their states at the last look.
    seen: FileStates,
    /// When they were read last and could not be used.
    failed_unix_s: Option<u64>,
}

/// Why files have to be read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// They changed.
    Changed,
    /// They could not be used a while ago.
    Retry,
}

impl FileWatcher {
    /// Watches files that had these states before they were read. If some `has_failed`, all are
    /// read once more soon.
    pub fn new(read: FileStates, has_failed: bool) -> FileWatcher {
        // mutation: bad-pair-at-start
        let failed_unix_s = has_failed.then_some(0);
        FileWatcher { seen: read.clone(), tried: read, failed_unix_s }
    }

    /// The files that are watched.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.tried.iter().map(|(file, _)| &**file)
    }

    /// Whether the files have to be read now. The caller then reads them.
    pub fn look(&mut self, now_unix_s: u64) -> Option<Due> {
        let now = states_of(self.files().map(Path::to_owned));
        let is_settled = now == self.seen;
        self.seen.clone_from(&now);
        // A clock that was ahead may have been set back since.
        let is_due = self.failed_unix_s.is_some_and(|at| now_unix_s.abs_diff(at) >= RETRY_S);
        if !is_settled || now == self.tried && !is_due {
            return None;
        }
        let has_changed = now != self.tried;
        self.tried = now;
        self.failed_unix_s = None;
        Some(if has_changed { Due::Changed } else { Due::Retry })
    }

    /// The files were read and could not be used.
    pub fn failed(&mut self, now_unix_s: u64) {
        self.failed_unix_s = Some(now_unix_s);
    }

    /// When they were read last and could not be used, if so.
    pub fn failed_unix_s(&self) -> Option<u64> {
        self.failed_unix_s
    }
}

/// A thread that looks once a second. It ends when this is dropped.
#[derive(Debug)]
pub struct LookThread(Sender<()>);

impl LookThread {
    /// Starts the thread. It waits for [`LookThread::begin`].
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(name: &str, mut look: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let (begins, ended) = channel();
        let run = move || {
            let mut waits = ended.recv().map_err(RecvTimeoutError::from);
            while waits == Ok(()) || waits == Err(RecvTimeoutError::Timeout) {
                look();
                waits = ended.recv_timeout(LOOK_EVERY);
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(LookThread(begins))
    }

    /// Has the thread look from now on: what was read is in use.
    pub fn begin(&self) {
        let _ = self.0.send(());
    }
}

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When files that could not be used are read again, though they are the same.
pub const RETRY_S: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;
    use std::time::Instant;

    #[test]
    fn unusable_files_are_read_again_later() {
        let scratch = Scratch::new();
        let file = scratch.join("a");
        fs::write(&file, "1").unwrap();
        let begin = |has_failed| FileWatcher::new(states_of([file.clone()]), has_failed);
        assert_eq!(begin(false).look(1_000), None);
        let mut watcher = begin(true);
        assert_eq!(watcher.look(1_000), Some(Due::Retry));
        assert_eq!(watcher.look(1_000), None);
        watcher.failed(1_000);
        assert_eq!(watcher.look(1_000 + RETRY_S - 1), None);
        assert_eq!(watcher.look(1_000 + RETRY_S), Some(Due::Retry));
        // They could be used this time.
        assert_eq!((watcher.look(5_000), watcher.failed_unix_s()), (None, None));
        fs::write(&file, "12").unwrap();
        assert_eq!(watcher.look(5_001), None, "it may not be written to its end");
        assert_eq!(watcher.look(5_002), Some(Due::Changed));
        assert_eq!(watcher.look(5_003), None);
    }

    #[test]
    fn the_thread_pauses_between_two_looks() {
        let (looked, looks) = channel();
        let look = move || looked.send(Instant::now()).unwrap_or_default();
        let thread = LookThread::start("look", look).unwrap();
        thread.begin();
        let first = looks.recv_timeout(Duration::from_secs(30)).unwrap();
        let second = looks.recv_timeout(Duration::from_millis(20));
        assert!(second.is_err() || second.unwrap() - first >= Duration::from_millis(500));
    }
}
