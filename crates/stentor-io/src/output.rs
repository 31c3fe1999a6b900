//! Detects that the reader of a command's output has closed it.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::monotonic_us;

/// Waits until the reader of `output` closes it, for `timeout` at most. Returns whether it did.
/// A file and a terminal are never closed, so without a timeout this may last for ever.
pub fn wait_until_closed(output: &impl AsFd, timeout: Option<Duration>) -> bool {
    let end_us = timeout.map(|timeout| monotonic_us() + timeout.as_micros() as u64);
    loop {
        let left = end_us.map(|end_us| end_us.saturating_sub(monotonic_us()));
        let left = left.and_then(|us| Timespec::try_from(Duration::from_micros(us)).ok());
        // Without flags, the kernel reports errors and the end of the reader alone.
        let mut waiting = [PollFd::new(output, PollFlags::empty())];
        match poll(&mut waiting, left.as_ref()) {
            Ok(0) if end_us.is_some_and(|end_us| monotonic_us() >= end_us) => return false,
            Ok(1..) => return true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_reader_is_closed() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!wait_until_closed(&writer, Some(Duration::from_millis(5))));
        drop(reader);
        assert!(wait_until_closed(&writer, None));
    }
}
