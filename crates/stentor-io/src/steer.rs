//! Connections to the worker whose core took in their first packet.
//!
//! Listeners of one address are a group, and as a rule the kernel chooses among them by a hash of
//! both ends. A program of a few instructions can choose instead (`SO_ATTACH_REUSEPORT_CBPF`, since
//! Linux 4.6 for TCP): it knows the core it runs on, and names the listener by its place in the
//! group, which is the order in which they began to listen. If every worker has a core to itself, a
//! connection then stays on the core that sees to its packets. If it names none there is, the hash
//! decides as before.
//!
//! That is good only where packets come in on all these cores. With a card of one queue one worker
//! would get everything, and the others nothing.

use crate::socket::{Listener, attach_filter, code};
use std::fs;
use std::io;
use std::path::Path;

impl Listener {
    /// From now on a connection whose first packet comes in on one of these cores is brought to
    /// the listener of this one's group that has the place of the core.
    ///
    /// # Errors
    /// The kernel refused; or these are more cores than such a program has room for.
    pub fn steer(&self, cores: &[usize]) -> io::Result<()> {
        let program = program(cores).ok_or(io::ErrorKind::InvalidInput)?;
        attach_filter(self, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
    }
}

/// Returns the place of the core it runs on, or one that no listener has.
fn program(cores: &[usize]) -> Option<Vec<libc::sock_filter>> {
    if cores.len() > CORES_MAX {
        return None;
    }
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let mut program = vec![code(load, 0, 0, CURRENT_CORE)];
    for (place, &core) in (0..).zip(cores) {
        let core = u32::try_from(core).ok()?;
        program.push(code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, core));
        program.push(code(libc::BPF_RET | libc::BPF_K, 0, 0, place));
    }
    program.push(code(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX));
    Some(program)
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

/// Where a program finds the core it runs on: `SKF_AD_OFF` and `SKF_AD_CPU`.
const CURRENT_CORE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;

/// A program has 4,096 instructions at most.
const CORES_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::{allowed_cores, pin_to_core, reserve};
    use std::io::Write;
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::thread;

    /// Who comes from a core gets to the listener of that core: on loopback packets come in on the
    /// core they are sent from.
    #[test]
    fn whoever_comes_from_a_core_gets_to_its_listener() {
        let cores = allowed_cores().unwrap();
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let listeners: Vec<_> = cores.iter().map(|_| reserved.listen().unwrap()).collect();
        if listeners[0].steer(&cores).is_err() {
            return;
        }
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
            assert_eq!(accepted.count(), 20, "from core {} of {cores:?}", cores[place]);
        }
    }

    #[test]
    fn no_more_cores_than_a_program_has_room_for() {
        assert_eq!(program(&[0; CORES_MAX]).map(|program| program.len()), Some(4_002));
        assert!(program(&[0; CORES_MAX + 1]).is_none());
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
