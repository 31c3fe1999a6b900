//! The thread that writes the access log. It may wait for as long as a disk or a pipe takes:
//! nobody waits for it.
//!
//! What cannot be written is lost and counted, said once until something can be written again. A
//! line that was cut by that is ended before the next one begins.

use super::{AccessLog, lines_of};
use crate::config::AccessTarget;
use crate::limits::ACCESS_LOG_REST_MS;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Where the lines go, and how that goes.
pub(super) struct Writer {
    target: AccessTarget,
    pen: Pen<File>,
    /// What was lost since something was written the last time.
    lost: u64,
}

impl Writer {
    pub(super) fn open(target: &AccessTarget) -> io::Result<Writer> {
        Ok(Writer { pen: Pen::new(open(target)?), target: target.clone(), lost: 0 })
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
                thread::sleep(Duration::from_millis(ACCESS_LOG_REST_MS));
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
                self.pen = Pen::new(file);
                tracing::info!("access log opened again: {}", self.target);
            }
            Err(error) => tracing::error!(
                "the access log {} cannot be opened again, and goes on where it was: {error}",
                self.target
            ),
        }
    }

    fn write(&mut self, bytes: &[u8], log: &AccessLog) {
        match self.pen.write_all(bytes) {
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

/// What writes whole lines, also where now and then not all can be written.
struct Pen<W> {
    out: W,
    /// The last line was cut.
    is_torn: bool,
}

impl<W: Write> Pen<W> {
    fn new(out: W) -> Pen<W> {
        Pen { out, is_torn: false }
    }

    /// # Errors
    /// Why not all of it was written, and how many lines were not, or not wholly.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (io::Error, u64)> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let part = if self.is_torn { b"\n" } else { rest };
            let written = match self.out.write(part) {
                Ok(0) => Err(ErrorKind::WriteZero.into()),
                written => written,
            };
            match written {
                Ok(_) if self.is_torn => self.is_torn = false,
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let done = &bytes[..bytes.len() - rest.len()];
                    self.is_torn |= done.last().is_some_and(|&byte| byte != b'\n');
                    return Err((error, lines_of(rest)));
                }
            }
        }
        Ok(())
    }
}

fn open(target: &AccessTarget) -> io::Result<File> {
    match target {
        AccessTarget::File(path) => {
            OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
        }
        AccessTarget::Stdout => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
        AccessTarget::Stderr => Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?)),
    }
}

/// Addresses of clients are nobody's affair but the user's and its group's.
const FILE_MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room, a byte or two at a time.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.room).min(2);
            self.bytes.extend_from_slice(&bytes[..taken]);
            self.room -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_cut_does_not_run_into_the_next() {
        for room in 0..12 {
            let mut pen = Pen::new(Disk { bytes: Vec::new(), room });
            let lost = pen.write_all(b"one\ntwo\nthree\n").map_err(|(_, lost)| lost);
            // Those that are whole were not lost.
            assert_eq!(
                lost,
                Err(3 - pen.out.bytes.split(|&byte| byte == b'\n').count() as u64 + 1)
            );
            assert!(pen.write_all(b"x\n").is_err());
            pen.out.room = 100;
            pen.write_all(b"four\n").unwrap();
            let text = String::from_utf8(pen.out.bytes).unwrap();
            assert!(text.ends_with("\nfour\n") || text == "four\n", "{room}: {text:?}");
            assert!(!text.contains("\n\n"), "{room}: {text:?}");
        }
    }
}
