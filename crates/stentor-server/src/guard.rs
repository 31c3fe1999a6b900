//! What is done when memory runs out that nobody here can count: that of the kernel, of the whole
//! process, of the host.
//!
//! One thread looks ten times a second how full the control group, the host and the sockets are
//! (`stentor_io::MemoryGauges`).
//!
//! There are two marks. From the first on, connections that ask nothing are kept for a second only,
//! and readers that come back are not brought what they missed:
//! they are told of a gap and sent the current values. From the second on nobody is let in any more
//! at the public listeners: whoever comes waits in the kernel; and what readers may hold here
//! (`memory.rs`, which counts it) is half of what it may be otherwise, so those who hold the most
//! are cut. Below a mark by two points all is as before.
//!
//! Publishers are restricted before readers are: above the first mark topics may take half of
//! `limits.stored_bytes_max`; above the second no topic may grow, and the oldest history goes. A
//! second thread evicts history whenever topics come near that limit (`hub/storage.rs` of
//! `stentor-hub`).

use crate::mailbox::{Mailbox, Order};
use crate::pressure::{MemoryState, Pressure};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Thread};
use std::time::Duration;
use stentor_config::Settings;
use stentor_hub::{Hub, Shortage};
use stentor_io::{MemoryGauges, MemoryLoad, MemoryOf, monotonic_us, release_memory, sleep};

/// The thread that looks, and the one that evicts history. They end when this is dropped.
#[derive(Debug)]
pub struct Guard {
    _ends: Sender<()>,
    is_over: Arc<AtomicBool>,
    trimmer: Thread,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.trimmer.unpark();
    }
}

impl Guard {
    /// Begins to look, and tells the workers what comes of it.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        settings: &Settings,
        hub: &Arc<Hub>,
        memory: &Arc<MemoryState>,
        mailboxes: &[Arc<Mailbox>],
    ) -> io::Result<Guard> {
        memory.configure(settings);
        Guard::start_with(MemoryGauges::of(Path::new("/")), hub, memory, mailboxes)
    }

    fn start_with(
        gauges: MemoryGauges,
        hub: &Arc<Hub>,
        memory: &Arc<MemoryState>,
        mailboxes: &[Arc<Mailbox>],
    ) -> io::Result<Guard> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (trimmed, is_told) = (Arc::clone(hub), Arc::clone(&is_over));
        let trim = move || trim(&trimmed, &is_told);
        let trimmer = thread::Builder::new().name("history".to_owned()).spawn(trim)?;
        let trimmer = trimmer.thread().clone();
        let (ends, ended) = channel();
        // If the second thread does not start, the first one ends.
        let guard = Guard { _ends: ends, is_over, trimmer };
        let (hub, memory, mailboxes) = (Arc::clone(hub), Arc::clone(memory), mailboxes.to_vec());
        let look = move || run(&gauges, &hub, &memory, &mailboxes, &ended, &release_memory);
        thread::Builder::new().name("memory".to_owned()).spawn(look)?;
        Ok(guard)
    }
}

/// Evicts history whenever the hub asks for it. It sleeps as long as it works.
fn trim(hub: &Hub, is_over: &AtomicBool) {
    hub.trim_on_this_thread();
    while !is_over.load(Ordering::Acquire) {
        if !hub.is_trim_due() {
            thread::park();
            continue;
        }
        let since_us = monotonic_us();
        let evicted = hub.trim_history();
        let took = Duration::from_micros(monotonic_us() - since_us);
        tracing::debug!("history evicted messages={evicted} took={took:?}");
        sleep(took.max(TRIM_PAUSE_MIN));
    }
}

fn run(
    gauges: &MemoryGauges,
    hub: &Hub,
    memory: &MemoryState,
    mailboxes: &[Arc<Mailbox>],
    ended: &Receiver<()>,
    release: &dyn Fn(),
) {
    let mut looks = 0_u32;
    loop {
        look(gauges, hub, memory, mailboxes, release);
        if memory.pressure() == Pressure::Critical && looks.is_multiple_of(LOOKS_A_SECOND) {
            hub.shrink_history(TRIM_CRITICAL_PART);
            // mutation: trimmed-history
            release();
        }
        looks = looks.wrapping_add(1);
        if ended.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn look(
    gauges: &MemoryGauges,
    hub: &Hub,
    memory: &MemoryState,
    mailboxes: &[Arc<Mailbox>],
    release: &dyn Fn(),
) {
    let before = memory.pressure();
    if let Some((now, fullest)) = memory.note(&gauges.read()) {
        tell(before, now, fullest);
        hub.set_shortage(match now {
            // Stored messages take nothing of the memory of sockets.
            _ if fullest.of == MemoryOf::Tcp => Shortage::None,
            Pressure::None => Shortage::None,
            Pressure::High => Shortage::High,
            Pressure::Critical => Shortage::Critical,
        });
        for mailbox in mailboxes {
            mailbox.put(Order::Memory(now));
        }
        if now > before {
            // What was freed here and is kept for later is for the kernel.
            release();
        }
    }
}

/// Says in the log what has come of it.
fn tell(before: Pressure, now: Pressure, fullest: MemoryLoad) {
    let what = match fullest.of {
        MemoryOf::Cgroup => "of the control group",
        MemoryOf::Host => "of the host",
        MemoryOf::Tcp => "of TCP sockets (net.ipv4.tcp_mem)",
    };
    let percent = fullest.per_mille() as f64 / 10.0;
    match now {
        _ if now < before => tracing::info!("memory {what} is {percent} % full: {}", now.name()),
        Pressure::Critical => tracing::warn!(
            "memory {what} is {percent} % full (limits.memory_critical): no connection is let in, \
             no topic may grow, history is evicted, and readers who hold much are cut"
        ),
        _ => tracing::warn!(
            "memory {what} is {percent} % full (limits.memory_high): idle connections are closed, \
             readers that come back are told of a gap, and topics may take half of \
             limits.stored_bytes_max"
        ),
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_A_SECOND: u32 = 10;

/// This part of history is evicted each second while memory is critically short.
const TRIM_CRITICAL_PART: usize = 4;

/// The shortest pause between two evictions. It saves wake-ups alone: the thread sleeps as long as
/// it works in any case.
const TRIM_PAUSE_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::CONTROL;
    use crate::mailbox::Mail;
    use crate::pressure::Marks;
    use crate::simulation::{World, kind, patient};
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::fs;
    use stentor_hub::{Draft, Precondition};
    use stentor_io::Counter;
    use stentor_wire::target::TopicName;

    fn load(of: MemoryOf, used: u64) -> MemoryLoad {
        MemoryLoad { of, used, limit: 1_000 }
    }

    #[test]
    fn a_mark_holds_until_it_is_well_below() {
        let marks = Marks { high: 90, critical: 95 };
        let mut pressure = Pressure::None;
        let mut levels = Vec::new();
        for per_mille in [899, 900, 949, 950, 931, 930, 929, 881, 880, 879, 999, 0] {
            pressure = pressure.at(per_mille, marks);
            levels.push(pressure as usize);
        }
        assert_eq!(levels, [0, 1, 1, 2, 2, 2, 1, 1, 1, 0, 2, 0]);
        let off = Marks { high: 0, critical: 0 };
        assert_eq!(Pressure::None.at(5_000, off), Pressure::None);
        let second = Marks { high: 0, critical: 95 };
        assert_eq!(Pressure::None.at(940, second), Pressure::None);
        assert_eq!(Pressure::None.at(950, second), Pressure::Critical);
    }

    /// A host that is a directory, and what the thread makes of it.
    #[test]
    fn workers_are_told_as_it_changes() {
        let root = std::env::temp_dir().join(format!("stentor-guard-{}", std::process::id()));
        fs::create_dir_all(root.join("proc")).unwrap();
        let mut world = World::new(1, kind(), patient());
        world.shared.memory.configure(&Settings::default());
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let gauges = MemoryGauges::of(&root);
        let guard = Guard::start_with(
            gauges,
            &world.shared.hub,
            &world.shared.memory,
            &[Arc::clone(&mailbox)],
        )
        .unwrap();
        for (available, expected) in
            [(4, Pressure::Critical), (8, Pressure::High), (50, Pressure::None)]
        {
            let text = format!("MemTotal: 100 kB\nMemAvailable: {available} kB\n");
            // In one step: half a file would be another host.
            fs::write(root.join("next"), text).unwrap();
            fs::rename(root.join("next"), root.join("proc/meminfo")).unwrap();
            let mut mail = VecDeque::new();
            while mail.is_empty() {
                thread::yield_now();
                mailbox.swap(&mut mail);
            }
            assert_eq!(mail.len(), 1);
            let told = mail.pop_front();
            assert!(
                matches!(told, Some(Mail::Order(Order::Memory(pressure))) if pressure == expected),
                "{told:?}"
            );
            let name = format!("/{expected:?}");
            let topic = TopicName::parse(&name).unwrap();
            let grows = world.shared.hub.publish(topic, Draft::default(), Precondition::None, 1);
            assert_eq!(grows.is_ok(), expected != Pressure::Critical, "{expected:?}");
            let (_, ready) = world.ask(CONTROL, b"GET /-/readyz HTTP/1.1\r\nHost: h\r\n\r\n");
            let status = if expected == Pressure::Critical { "503" } else { "200" };
            assert_eq!(ready.split(' ').nth(1), Some(status), "{expected:?}");
        }
        drop(guard);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_guard_has_a_thread_that_evicts_history() {
        let world = World::new(1, kind(), patient());
        let hub = &world.shared.hub;
        hub.set_stored_bytes_max(hub.stored().total() + 64_000);
        let nowhere = MemoryGauges::of(Path::new("/nonexistent"));
        let guard = Guard::start_with(nowhere, hub, &world.shared.memory, &[]).unwrap();
        let publish = |n: usize| {
            let topic = TopicName::from_path(["/a", "/b"][n % 2].as_bytes()).unwrap();
            hub.publish(topic, Draft::new(vec![0; 1_000]), Precondition::None, 1).map(drop)
        };
        let mut n = 0;
        while hub.stored().evicted_total == 0 || hub.is_trim_due() {
            // No publish is refused: the topic has history of its own to evict.
            publish(n).unwrap();
            n += 1;
        }
        let is_over = Arc::clone(&guard.is_over);
        drop(guard);
        assert!(is_over.load(Ordering::Acquire));
        // The thread drops its handle when it ends.
        while Arc::strong_count(&is_over) > 1 {
            thread::yield_now();
        }
    }

    #[test]
    fn the_fullest_counts_and_all_are_shown() {
        let state = MemoryState::default();
        state.configure(&Settings::default());
        assert_eq!(state.note(&[load(MemoryOf::Host, 500)]), None);
        let tcp = load(MemoryOf::Tcp, 960);
        let all = [load(MemoryOf::Host, 500), tcp];
        assert_eq!(state.note(&all), Some((Pressure::Critical, tcp)));
        assert_eq!(state.note(&all), None, "it is told once");
        assert_eq!(state.loads().collect::<Vec<_>>(), [("host", 500), ("tcp", 960)]);
        let counts = || [&state.times_high, &state.times_critical].map(Counter::value);
        assert_eq!((state.pressure(), counts()), (Pressure::Critical, [1, 1]));
        let tcp = load(MemoryOf::Tcp, 920);
        assert_eq!(state.note(&[tcp]), Some((Pressure::High, tcp)));
        assert_eq!(counts(), [1, 1]);
        assert_eq!(state.note(&[]), None);
    }

    /// A host that uses these percentages of its memory and of its TCP memory.
    fn host(name: &str, memory: u64, tcp: u64) -> (std::path::PathBuf, MemoryGauges) {
        let root = std::env::temp_dir().join(format!("stentor-{name}-{}", std::process::id()));
        for directory in ["proc/net", "proc/sys/net/ipv4"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let meminfo = format!("MemTotal: 100 kB\nMemAvailable: {} kB\n", 100 - memory);
        fs::write(root.join("proc/meminfo"), meminfo).unwrap();
        fs::write(root.join("proc/net/sockstat"), format!("TCP: inuse 1 mem {tcp}\n")).unwrap();
        fs::write(root.join("proc/sys/net/ipv4/tcp_mem"), "50\t100\t200\n").unwrap();
        let gauges = MemoryGauges::of(&root);
        (root, gauges)
    }

    /// Stored messages use none of the memory of sockets.
    #[test]
    fn topics_may_grow_while_tcp_memory_is_short() {
        let world = World::new(1, kind(), patient());
        world.shared.memory.configure(&Settings::default());
        let (root, gauges) = host("tcp", 50, 99);
        look(&gauges, &world.shared.hub, &world.shared.memory, &[], &|| {});
        fs::remove_dir_all(root).unwrap();
        assert_eq!(world.shared.memory.pressure(), Pressure::Critical);
        let topic = TopicName::parse("/new").unwrap();
        world.shared.hub.publish(topic, Draft::default(), Precondition::None, 1).unwrap();
    }

    #[test]
    fn history_shrinks_at_critical_pressure_only() {
        for (memory, shrinks) in [(92, false), (99, true)] {
            let world = World::new(1, kind(), patient());
            world.shared.memory.configure(&Settings::default());
            let (root, gauges) = host("history", memory, 0);
            let (ends, ended) = channel();
            drop(ends);
            let released = Cell::new(0);
            let release = || released.set(released.get() + 1);
            let looks = [(); 2].map(|()| {
                run(&gauges, &world.shared.hub, &world.shared.memory, &[], &ended, &release);
                released.get()
            });
            assert_eq!(looks, if shrinks { [2, 3] } else { [1, 1] }, "{memory} %");
            fs::remove_dir_all(root).unwrap();
            assert_ne!(world.shared.memory.pressure(), Pressure::None);
            assert_eq!(world.shared.hub.is_trim_due(), shrinks, "{memory} %");
        }
    }

    #[test]
    fn history_shrinks_once_a_second() {
        let world = World::new(1, kind(), patient());
        world.shared.memory.configure(&Settings::default());
        let (root, gauges) = host("second", 99, 0);
        let (ends, ended) = channel();
        let (ends, released, began_us) = (Cell::new(Some(ends)), Cell::new(0), monotonic_us());
        let release = || {
            released.set(released.get() + 1);
            // The first time it is done twice, since memory has become short.
            if released.get() == 3 {
                ends.take();
            }
        };
        run(&gauges, &world.shared.hub, &world.shared.memory, &[], &ended, &release);
        fs::remove_dir_all(root).unwrap();
        assert!(monotonic_us() - began_us >= 900_000);
    }
}
