//! Which descriptors are a backend's own.
//!
//! A [`Peer`] is a number, and safe code can make any. So a backend keeps one bit for each
//! descriptor that it accepted or dialled and has not closed, and touches no other: whatever
//! number a handler comes with, no file of another part of the process is read, written or closed.
//!
//! A number means a file only within one file table. So a backend stays on its thread, which may
//! have a table of its own: [`Epoll`](crate::Epoll) is not `Send`.

use crate::Peer;
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

/// The open sockets of one backend. Those that are left are closed with it.
#[derive(Debug, Default)]
pub(crate) struct OpenSockets {
    /// One bit for each descriptor.
    bits: Vec<u64>,
    count: usize,
}

impl OpenSockets {
    /// Takes a socket over.
    pub(crate) fn insert(&mut self, fd: OwnedFd) -> Peer {
        let socket = Peer(fd.into_raw_fd() as u32);
        let (word, bit) = place(socket);
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= bit;
        self.count += 1;
        socket
    }

    /// Gives a socket back, which closes it unless it is kept. `None` if it is none of these.
    pub(crate) fn remove(&mut self, socket: Peer) -> Option<OwnedFd> {
        self.get(socket)?;
        let (word, bit) = place(socket);
        self.bits[word] &= !bit;
        self.count -= 1;
        // SAFETY: the bit was set, so `insert` has taken this descriptor over and nothing has
        // closed it since; with the bit cleared it is owned here alone.
        Some(unsafe { OwnedFd::from_raw_fd(socket.0 as i32) })
    }

    /// The socket, if it is one of these.
    #[inline]
    pub(crate) fn get(&self, socket: Peer) -> Option<BorrowedFd<'_>> {
        let (word, bit) = place(socket);
        if self.bits.get(word)? & bit == 0 {
            return None;
        }
        // SAFETY: the bit is set, so `insert` has taken this descriptor over; it stays open until
        // `remove`, which takes `&mut self` and so cannot be called while this is borrowed.
        Some(unsafe { BorrowedFd::borrow_raw(socket.0 as i32) })
    }

    /// Above the number of each.
    pub(crate) fn end(&self) -> u32 {
        let last = self.bits.iter().rposition(|&word| word != 0);
        last.map_or(0, |word| word as u32 * u64::BITS + u64::BITS - self.bits[word].leading_zeros())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

impl Drop for OpenSockets {
    fn drop(&mut self) {
        for number in 0..self.bits.len() as u32 * u64::BITS {
            drop(self.remove(Peer(number)));
        }
    }
}

fn place(socket: Peer) -> (usize, u64) {
    ((socket.0 / u64::BITS) as usize, 1 << (socket.0 % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn only_what_was_taken_over_is_touched() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let mut owned = OpenSockets::default();
        let foreign = std::fs::File::open("/dev/null").unwrap();
        let number = Peer::from_index(foreign.as_raw_fd() as u32);
        assert!(owned.get(number).is_none() && owned.remove(number).is_none());
        assert!(owned.remove(Peer::from_index(u32::MAX)).is_none());
        let socket = owned.insert(ours.into());
        assert!(owned.get(socket).is_some() && owned.len() == 1);
        assert!(owned.get(number).is_none());
        // Whoever is left is closed, and nobody else.
        drop(owned);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        assert!(foreign.metadata().is_ok());
    }

    #[test]
    fn a_socket_is_given_back_once() {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let mut owned = OpenSockets::default();
        let socket = owned.insert(ours.into());
        drop(owned.remove(socket).unwrap());
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        assert!(owned.remove(socket).is_none() && owned.get(socket).is_none());
        assert_eq!(owned.len(), 0);
    }
}
