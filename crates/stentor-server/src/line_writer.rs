//! Writing lines for a log to a file that may be full, slow, or a pipe.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;
use stentor_io::sleep;

/// Writes whole lines, also after a write that failed in the middle of one.
pub(crate) struct LineWriter<W> {
    out: W,
    /// The last line was cut.
    is_torn: bool,
}

impl<W: Write> LineWriter<W> {
    pub(crate) fn new(out: W) -> LineWriter<W> {
        LineWriter { out, is_torn: false }
    }

    /// # Errors
    /// Why not all of it was written, and how many lines were not, or not wholly.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), (io::Error, u64)> {
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
                // A terminal or a pipe that another process has made non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(RETRY),
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

/// How many lines end in these bytes.
pub(crate) fn lines_of(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// How long a file rests that takes nothing now.
const RETRY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_io::monotonic_us;

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
            let mut pen = LineWriter::new(Disk { bytes: Vec::new(), room });
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

    /// A pipe that is full so often, and then takes everything.
    struct Pipe(u32);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 > 0 {
                self.0 -= 1;
                return Err(ErrorKind::WouldBlock.into());
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_pipe_has_a_pause() {
        let began_us = monotonic_us();
        LineWriter::new(Pipe(3)).write_all(b"one\n").unwrap();
        assert!(monotonic_us() - began_us >= 3 * 5_000);
    }
}
