//! Work on files that may never end: the file system behind a path may hang, and no signal ends a
//! system call that waits for it.

use crate::{lock, monotonic_us};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

thread_local! {
    /// Where the bounded work of this thread notes which path it uses.
    static PATH: RefCell<Option<Arc<Mutex<PathBuf>>>> = const { RefCell::new(None) };
}

/// Does work on a thread of its own, and waits for the result for `timeout` at most, and no longer
/// than until `gives_up` returns true. A thread that hangs is left behind.
///
/// # Errors
/// There is no result: the error names the path that was used last.
pub fn within<T: Send + 'static>(
    timeout: Duration,
    gives_up: &mut dyn FnMut() -> bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let path = Arc::new(Mutex::new(PathBuf::new()));
    let (noted, (sender, result)) = (Arc::clone(&path), channel());
    let run = move || {
        PATH.set(Some(noted));
        let _ = sender.send(work());
    };
    thread::Builder::new().name("files".to_owned()).spawn(run)?;
    let end_us = monotonic_us() + timeout.as_micros() as u64;
    loop {
        match result.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that reads files panicked"));
            }
            Err(RecvTimeoutError::Timeout) if gives_up() => {
                return Err(io::Error::new(ErrorKind::Interrupted, "it was given up"));
            }
            Err(RecvTimeoutError::Timeout) if monotonic_us() < end_us => {}
            Err(RecvTimeoutError::Timeout) => {
                let path = lock(&path).display().to_string();
                let reason = format!("{path}: the file system does not answer");
                return Err(io::Error::new(ErrorKind::TimedOut, reason));
            }
        }
    }
}

/// Notes that this thread is about to use the file system behind a path.
pub(crate) fn note_path(path: &Path) {
    PATH.with_borrow(|noted| {
        if let Some(noted) = noted {
            path.clone_into(&mut lock(noted));
        }
    });
}

/// How often `gives_up` is called.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_state;

    fn hang() {
        thread::park_timeout(Duration::from_secs(600));
    }

    #[test]
    fn bounded_work_returns_its_result() {
        let result = within(Duration::from_secs(60), &mut || false, || 7);
        assert_eq!(result.unwrap(), 7);
    }

    #[test]
    fn bounded_work_that_hangs_names_its_path() {
        let work = || {
            let _ = file_state(Path::new("/absent/file"));
            hang();
        };
        let error = within(Duration::from_millis(20), &mut || false, work).unwrap_err();
        assert_eq!(error.to_string(), "/absent/file: the file system does not answer");
    }

    #[test]
    fn bounded_work_ends_when_the_caller_gives_up() {
        let error = within(Duration::from_secs(60), &mut || true, hang).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
}
