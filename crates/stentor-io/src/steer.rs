//! Connections to the worker whose core took in their first packet.
//!
//! Listeners of one address are a group, and as a rule the kernel chooses among them by a hash of
//! both ends. With `SO_INCOMING_CPU` it prefers the listener of the core that it runs on, since
//! Linux 6.2; older kernels go by the hash. If each worker has a core to itself, a
//! connection then stays on the core that handles its packets.
//!
//! That is good only where packets come in on all these cores. With a card of one queue one worker
//! would get everything, and the others nothing.

use crate::socket::{Listener, set_option};
use std::fs;
use std::path::Path;

impl Listener {
    /// From now on the kernel prefers this listener of its group for a connection whose first
    /// packet comes in on this core.
    pub fn prefer_core(&self, core: usize) {
        // All workers have an inherited listener, so it prefers no core.
        if self.is_one_of_many() {
            set_option(self, libc::SOL_SOCKET, libc::SO_INCOMING_CPU, core as u32);
        }
    }
}

/// A card on which packets do not come in on so many cores, and on how many they do. Cards in
/// software hand on what others have taken in, and do not count.
#[must_use]
pub fn narrow_card(cores: usize) -> Option<(String, usize)> {
    narrow_card_of(Path::new("/"), cores)
}

fn narrow_card_of(root: &Path, cores: usize) -> Option<(String, usize)> {
    let cards = fs::read_dir(root.join("sys/class/net")).ok()?;
    cards.flatten().find_map(|card| {
        let path = card.path();
        let is_up = fs::read_to_string(path.join("operstate")).is_ok_and(|s| s.trim() == "up");
        if !is_up || !path.join("device").exists() {
            return None;
        }
        let reached = reached_by(&path);
        (reached < cores).then(|| (card.file_name().to_string_lossy().into_owned(), reached))
    })
}

/// On how many cores a card's packets come in: one for each queue, or those that they are handed
/// on to.
fn reached_by(card: &Path) -> usize {
    let Ok(queues) = fs::read_dir(card.join("queues")) else { return 0 };
    let (mut count, mut handed_on) = (0, Vec::new());
    for queue in queues.flatten() {
        if !queue.file_name().to_string_lossy().starts_with("rx-") {
            continue;
        }
        count += 1;
        let mask = fs::read_to_string(queue.path().join("rps_cpus")).unwrap_or_default();
        // The last digit has the first cores; commas only part them.
        let digits = mask.chars().rev().filter_map(|digit| digit.to_digit(16));
        for (place, digit) in digits.enumerate() {
            handed_on.resize(handed_on.len().max(place + 1), 0);
            handed_on[place] |= digit;
        }
    }
    let handed_on: u32 = handed_on.into_iter().map(u32::count_ones).sum();
    count.max(handed_on as usize)
}

/// Whether this kernel chooses in a group of listeners by their cores, for tests.
#[cfg(any(test, feature = "sim"))]
#[must_use]
pub fn prefers_cores() -> bool {
    let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::{pin_to_core, reserve};
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::thread;

    /// A connection from a core gets to its listener: on loopback packets come in on the
    /// core they are sent from.
    #[test]
    fn whoever_comes_from_a_core_gets_to_its_listener() {
        if !prefers_cores() {
            return;
        }
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let pin = |place| thread::spawn(move || pin_to_core(place).unwrap()).join().unwrap();
        let (_, count) = pin(0);
        let listeners: Vec<_> = (0..count).map(|_| reserved.listen().unwrap()).collect();
        // In the opposite order: it does not matter.
        (0..count).rev().for_each(|place| listeners[place].prefer_core(pin(place).0));
        let address = reserved.address();
        for (place, listener) in listeners.iter().enumerate() {
            let clients = thread::spawn(move || {
                pin_to_core(place).unwrap();
                let connect = |_| {
                    let mut client = TcpStream::connect(address).unwrap();
                    client.write_all(b"?").unwrap();
                    client
                };
                (0..20).map(connect).collect::<Vec<_>>()
            });
            let _clients = clients.join().unwrap();
            // Those of the others are empty.
            let accepted = (0..20).filter(|_| rustix::net::accept(listener.as_fd()).is_ok());
            assert_eq!(accepted.count(), 20, "from core {place} of {count}");
        }
    }

    #[test]
    fn cards_are_narrow_by_their_queues_and_by_what_is_handed_on() {
        let scratch = Scratch::new();
        let write = |path: &str, text: &str| {
            let path = scratch.join("sys/class/net").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let narrow = |cores| narrow_card_of(&scratch, cores).map(|(_, reached)| reached);
        assert_eq!(narrow(1), None, "there is no card");
        write("lo/operstate", "up\n");
        write("lo/queues/rx-0/rps_cpus", "0\n");
        assert_eq!(narrow(4), None, "it is in software");
        write("eth0/device/vendor", "0x1af4\n");
        write("eth0/operstate", "up\n");
        write("eth0/queues/rx-0/rps_cpus", "00000000,00000000\n");
        write("eth0/queues/tx-0/xps_cpus", "f\n");
        assert_eq!((narrow(1), narrow(2)), (None, Some(1)));
        write("eth0/queues/rx-1/rps_cpus", "00000000,00000000\n");
        assert_eq!((narrow(2), narrow(4)), (None, Some(2)));
        write("eth0/queues/rx-0/rps_cpus", "00000001,00000003\n");
        write("eth0/queues/rx-1/rps_cpus", "00000000,0000000a\n");
        assert_eq!((narrow(4), narrow(5)), (None, Some(4)));
        write("eth0/operstate", "down\n");
        assert_eq!(narrow(5), None);
    }
}
