//! What a TCP socket costs the kernel on this host, measured.
//!
//! Connections are opened on the loopback in several lots, and the growth of the kernel's own
//! memory (`Slab` and `Percpu` of `/proc/meminfo`) during each is divided by the number of its
//! sockets, which is two for each connection. The first lot is not counted: it fills the places
//! that earlier sockets have left. Of the others the middle one is, since whatever else runs on the
//! host spoils some. `MemAvailable` would not do: the kernel hands out pages in lots of its own.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Kernel memory of an idle socket in bytes, with its place in epoll. None if it could not be
/// measured: too few files, no loopback, or a host too busy to tell. Takes about a tenth of a
/// second.
#[must_use]
pub fn socket_bytes() -> Option<u64> {
    let limit =
        stentor_io::raise_open_files_limit().unwrap_or_else(|_| stentor_io::open_files_limit());
    let pairs = (limit.saturating_sub(FILES_SPARE) / 2 / LOTS).min(PAIRS_MAX);
    if pairs < PAIRS_MIN {
        return None;
    }
    let mut lots = growth(pairs).ok()?;
    lots.sort_unstable();
    let bytes = *lots.get(lots.len() / 2)?;
    PLAUSIBLE_BYTES.contains(&bytes).then_some(bytes + EPOLL_BYTES)
}

/// Bytes for each socket of every lot but the first, of so many connections each.
fn growth(pairs: u64) -> io::Result<Vec<u64>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut open = Vec::with_capacity((2 * LOTS * pairs) as usize);
    let mut marks = Vec::new();
    for _ in 0..LOTS {
        for _ in 0..pairs {
            // A firewall may drop what is sent here as well.
            open.push(TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?);
            open.push(listener.accept()?.0);
        }
        marks.extend(kernel_bytes());
    }
    let grown = |ends: &[u64]| ends[1].saturating_sub(ends[0]) / (2 * pairs);
    Ok(marks.windows(2).map(grown).collect())
}

/// What the kernel holds for itself in bytes.
fn kernel_bytes() -> Option<u64> {
    let bytes = stentor_io::meminfo_bytes(Path::new("/"));
    Some(bytes("Slab")? + bytes("Percpu").unwrap_or(0))
}

const LOTS: u64 = 9;

/// Enough connections for what else happens meanwhile to be of little matter.
const PAIRS_MAX: u64 = 400;
const PAIRS_MIN: u64 = 40;

/// What else the process has open.
const FILES_SPARE: u64 = 64;

/// Beyond these something else was measured: the socket alone has more than 2,000 bytes, its file,
/// inode and entry of the directory cache some 1,200. Where memory is short the kernel takes back
/// some of its own meanwhile, and sockets look cheap.
const PLAUSIBLE_BYTES: std::ops::Range<u64> = 3_000..16_000;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// An entry of epoll and of the socket's wait queue, which these sockets do not have: `epitem`
/// (128 bytes) and `eppoll_entry` (72).
const EPOLL_BYTES: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_costs_kilobytes() {
        // Other tests take kernel memory meanwhile: only that it is no nonsense can be held to.
        if let Some(bytes) = socket_bytes() {
            assert!(PLAUSIBLE_BYTES.contains(&(bytes - EPOLL_BYTES)), "{bytes}");
        }
    }
}
