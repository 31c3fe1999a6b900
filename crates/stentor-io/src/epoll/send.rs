//! Sending what a socket takes now, from memory and from files.

use crate::{File, FileSendError, Gone};
use rustix::fd::BorrowedFd;
use rustix::fs;
use rustix::io::Errno;
use rustix::net::{self, SendFlags};
use std::io::IoSlice;

/// Sends what the socket takes now.
pub(super) fn send_parts(
    fd: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    flags: SendFlags,
) -> Result<usize, Gone> {
    let result = match parts {
        [one] => net::send(fd, one, flags),
        many => {
            let mut none = net::SendAncillaryBuffer::default();
            net::sendmsg(fd, many, &mut none, flags)
        }
    };
    match result {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(_) => Err(Gone),
    }
}

/// Sends what the socket takes now of a part of a file, which is not empty.
///
/// One call is enough. The kernel stops early if the socket is full, and seldom because a signal
/// came or the file has ended; which it was, the next call tells, once the socket is found
/// writable. To ask at once would cost every full socket a call for nothing.
///
/// (`sendfile` has no way to say `MSG_NOSIGNAL`. Rust programs ignore SIGPIPE from their start,
/// and this one leaves it so.)
pub(super) fn send_part_of(
    fd: BorrowedFd<'_>,
    file: &File,
    offset: u64,
    length: usize,
) -> Result<usize, FileSendError> {
    let mut from = offset;
    match fs::sendfile(fd, file, Some(&mut from), length) {
        Ok(0) => Err(FileSendError::Truncated),
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        // Those of the disks all have it.
        Err(Errno::INVAL | Errno::NOSYS) => copy_part_of(fd, file, offset, length),
        Err(error) if is_of_the_peer(error) => Err(FileSendError::Gone),
        Err(_) => Err(FileSendError::Truncated),
    }
}

/// The same where the file system has no `sendfile`: the bytes go through a buffer, not too many
/// at once.
fn copy_part_of(
    fd: BorrowedFd<'_>,
    file: &File,
    offset: u64,
    length: usize,
) -> Result<usize, FileSendError> {
    let mut buffer = vec![0; length.min(COPY_BYTES)];
    match file.read_at(&mut buffer, offset) {
        Ok(0) | Err(_) => Err(FileSendError::Truncated),
        Ok(read) => {
            let part = IoSlice::new(&buffer[..read]);
            Ok(send_parts(fd, &[part], SendFlags::NOSIGNAL)?)
        }
    }
}

/// Whether it was the connection that failed, of the two that `sendfile` joins.
fn is_of_the_peer(error: Errno) -> bool {
    matches!(
        error,
        Errno::PIPE
            | Errno::CONNRESET
            | Errno::CONNABORTED
            | Errno::CONNREFUSED
            | Errno::NOTCONN
            | Errno::TIMEDOUT
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NOBUFS
            | Errno::NOMEM
    )
}

/// What is copied in one go where the kernel cannot send by itself.
const COPY_BYTES: usize = 64 * 1024;
