//! The thread that writes the access log. It may wait for as long as a disk or a pipe takes:
//! nobody waits for it.
//!
//! What cannot be written is lost and counted, said once until something can be written again. A
//! line that was cut by that is ended before the next one begins.

use super::AccessLog;
use crate::event_log::PatientWriter;
use crate::limits::ACCESS_LOG_REST_MS;
use crate::line_writer::LineWriter;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use stentor_config::AccessTarget;
use stentor_io::{append, sleep, unbuffered};

/// Where the lines go, and how that goes.
pub(super) struct Writer {
    target: AccessTarget,
    out: LineWriter<Out>,
    /// What was lost since something was written the last time.
    lost: u64,
}

impl Writer {
    pub(super) fn open(target: &AccessTarget) -> io::Result<Writer> {
        Ok(Writer { out: LineWriter::new(open(target)?), target: target.clone(), lost: 0 })
    }

    /// Writes what workers leave, until the log is closed and nothing is left.
    pub(super) fn run(mut self, log: &AccessLog) {
        let mut bytes = Vec::new();
        loop {
            let is_closing = log.is_closing.load(Ordering::Acquire);
            if log.is_to_reopen.swap(false, Ordering::AcqRel) {
                self.reopen();
            }
            if log.take(|bytes| self.write(bytes, log), &mut bytes) {
                // Under load it is woken so often and no more.
                sleep(Duration::from_millis(ACCESS_LOG_REST_MS));
            } else if is_closing {
                return;
            } else {
                thread::park();
            }
        }
    }

    fn reopen(&mut self) {
        match open(&self.target) {
            Ok(file) => {
                self.out = LineWriter::new(file);
                tracing::info!("access log opened again: {}", self.target);
            }
            Err(error) => tracing::error!(
                "the access log {} cannot be opened again, and goes on where it was: {error}",
                self.target
            ),
        }
    }

    fn write(&mut self, bytes: &[u8], log: &AccessLog) {
        match self.out.write_all(bytes) {
            Ok(()) if self.lost > 0 => {
                let lost = std::mem::take(&mut self.lost);
                tracing::info!("the access log is written again; {lost} lines are missing");
            }
            Ok(()) => {}
            Err((error, lost)) => {
                log.lost.fetch_add(lost, Ordering::Relaxed);
                if self.lost == 0 && self.target != AccessTarget::Stderr {
                    tracing::error!(
                        "the access log {} cannot be written, and lines are lost \
                         (stentor_access_log_dropped_total): {error}",
                        self.target
                    );
                }
                self.lost += lost;
            }
        }
    }
}

/// A file, a pipe, or the log, which alone writes to standard error.
type Out = Box<dyn Write + Send>;

fn open(target: &AccessTarget) -> io::Result<Out> {
    Ok(match target {
        AccessTarget::File(path) => Box::new(append(path, Some(FILE_MODE))?),
        AccessTarget::Stdout => Box::new(unbuffered(io::stdout().as_fd())?),
        AccessTarget::Stderr => Box::new(PatientWriter),
    })
}

/// Addresses of clients are nobody's affair but the user's and its group's.
const FILE_MODE: u32 = 0o640;
