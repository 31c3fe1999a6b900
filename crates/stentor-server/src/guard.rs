//! The server's remedies when memory runs out that it cannot count itself: the memory of the
//! control group, of the host, and of the kernel's TCP sockets.
//!
//! One thread polls ten times a second how full each is (`stentor_io::MemoryGauges`). Each kind has
//! a level of its own and a remedy of its own. Each poll sets the action of each kind from its
//! level, so an action cannot outlive the shortage that it answers.
//!
//! **Control group and host.** From the first mark on, idle connections are kept for a second only,
//! readers that come back get a gap and the current values, and topics may take half of
//! `limits.stored_bytes_max`. From the second mark on the public listeners rest, so newcomers wait
//! in the kernel. No topic may grow, and the oldest history is evicted. Readers may hold half of
//! `limits.readers_bytes_max`, so the connections that hold the most are closed
//! (`worker/relief.rs`).
//!
//! **TCP.** From the second mark on, each worker resets the connections that hold the most of the
//! kernel's memory. The listeners still accept connections, and topics keep their history: neither
//! has a part in the shortage.
//!
//! A level ends two points below its mark. A second thread evicts history whenever topics come near
//! their limit (`hub/storage.rs` of `stentor-hub`).

use crate::mailbox::{Mailbox, Order};
use crate::pressure::{LevelChange, MemoryState, Pressure, Pressures};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use stentor_config::Settings;
use stentor_hub::{Hub, Shortage};
use stentor_io::{MemoryGauges, MemoryLoad, MemoryOf, WaitingThread};
use stentor_io::{monotonic_us, release_memory, sleep};

/// The thread that looks, and the one that evicts history. They end when this is dropped.
#[derive(Debug)]
pub struct Guard {
    _ends: Sender<()>,
    is_over: Arc<AtomicBool>,
    trimmer: WaitingThread,
    poller: WaitingThread,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.trimmer.unpark();
    }
}

impl Guard {
    /// Starts the threads. They wait for [`Guard::begin`].
    ///
    /// # Errors
    /// The system refuses a thread.
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
        let trimmer = WaitingThread::start("history", trim)?;
        let (ends, ended) = channel();
        let (hub, memory, mailboxes) = (Arc::clone(hub), Arc::clone(memory), mailboxes.to_vec());
        let poll = move || {
            let release = &release_memory;
            MemoryPoller { hub: &hub, memory: &memory, mailboxes: &mailboxes, release }
                .run(&gauges, &ended);
        };
        let poller = WaitingThread::start("memory", poll)?;
        Ok(Guard { _ends: ends, is_over, trimmer, poller })
    }

    /// Has the threads work from now on: the hub is filled.
    pub fn begin(&self) {
        self.trimmer.begin();
        self.poller.begin();
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

/// The state that the polling thread reads and sets.
struct MemoryPoller<'a> {
    hub: &'a Hub,
    memory: &'a MemoryState,
    mailboxes: &'a [Arc<Mailbox>],
    /// Gives free memory of the process back to the kernel.
    release: &'a dyn Fn(),
}

impl MemoryPoller<'_> {
    fn run(&self, gauges: &MemoryGauges, ended: &Receiver<()>) {
        let mut told = Pressures::default();
        let mut critical_polls = 0_u32;
        loop {
            told = self.poll(&gauges.read(), told);
            let is_critical = told.process == Pressure::Critical;
            critical_polls = if is_critical { critical_polls.wrapping_add(1) } else { 0 };
            // The first poll has evicted what is rendered. History goes if that was not enough.
            if critical_polls % POLLS_PER_SECOND == 2 {
                self.hub.shrink_history(TRIM_CRITICAL_PART);
                // mutation: trimmed-history
                (self.release)();
            }
            if ended.recv_timeout(POLL_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Sets the action of each kind of memory. `told` is what the workers know. Returns what they
    /// know from now on.
    fn poll(&self, loads: &[MemoryLoad], told: Pressures) -> Pressures {
        self.memory.note(loads).iter().for_each(log);
        let now = self.memory.pressures();
        self.hub.set_shortage(match now.process {
            Pressure::None => Shortage::None,
            Pressure::High => Shortage::High,
            Pressure::Critical => Shortage::Critical,
        });
        // Each poll has the workers free TCP memory, as long as that is critically short.
        if now != told || now.tcp == Pressure::Critical {
            let share = now.tcp_excess_bytes.div_ceil(self.mailboxes.len().max(1));
            let of_worker = Pressures { tcp_excess_bytes: share, ..now };
            self.mailboxes.iter().for_each(|mailbox| mailbox.put(Order::Memory(of_worker)));
        }
        if now.process > told.process {
            // The allocator keeps freed memory for later, and the kernel needs it now.
            (self.release)();
        }
        now
    }
}

fn log(change: &LevelChange) {
    let LevelChange { load, before, now } = *change;
    let what = match load.of {
        MemoryOf::Cgroup => "of the control group",
        MemoryOf::Host => "of the host",
        MemoryOf::Tcp => "of TCP sockets (net.ipv4.tcp_mem)",
    };
    let percent = load.per_mille() as f64 / 10.0;
    match now {
        _ if now < before => tracing::info!("memory {what} is {percent} % full: {}", now.name()),
        Pressure::Critical if load.of == MemoryOf::Tcp => tracing::warn!(
            "memory {what} is {percent} % full (limits.memory_critical): the connections that hold \
             the most of it are closed until it is less"
        ),
        Pressure::Critical => tracing::warn!(
            "memory {what} is {percent} % full (limits.memory_critical): no connection is let in, \
             no topic may grow, history is evicted, and the connections that hold the most are \
             closed"
        ),
        _ if load.of == MemoryOf::Tcp => tracing::warn!(
            "memory {what} is {percent} % full (limits.memory_high): at limits.memory_critical the \
             connections that hold the most of it are closed"
        ),
        _ => tracing::warn!(
            "memory {what} is {percent} % full (limits.memory_high): idle connections are closed, \
             readers that come back are told of a gap, and topics may take half of \
             limits.stored_bytes_max"
        ),
    }
}

const POLL_EVERY: Duration = Duration::from_millis(100);
const POLLS_PER_SECOND: u32 = 10;

/// This part of history is evicted each second while memory is critically short.
const TRIM_CRITICAL_PART: usize = 4;

/// The shortest pause between two evictions. It saves wake-ups alone: the thread sleeps as long as
/// it works in any case.
const TRIM_PAUSE_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::{CONTROL, PUBLIC};
    use crate::mailbox::Mail;
    use crate::pressure::Marks;
    use crate::simulation::net::{Client, Layers};
    use crate::simulation::{Parts, World, kind, patient};
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::fs;
    use stentor_hub::{ContentType, Draft, Precondition};
    use stentor_io::{Backend, Counter, Faults, Peer};
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
        guard.begin();
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
                matches!(told, Some(Mail::Order(Order::Memory(told))) if told.process == expected),
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
        guard.begin();
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

    /// One kind may change while another stays. One poll sets the action of each kind, from any
    /// levels before.
    #[test]
    fn each_poll_sets_the_action_of_each_kind() {
        use Pressure::{Critical, High, None};
        let used = |level| match level {
            None => 500,
            High => 920,
            Critical => 990,
        };
        let levels = [None, High, Critical];
        let pairs: Vec<_> = levels.iter().flat_map(|&a| levels.map(|b| (a, b))).collect();
        let world = World::new(1, kind(), patient());
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let mailboxes = [Arc::clone(&mailbox)];
        let hub = &world.shared.hub;
        for of in [MemoryOf::Host, MemoryOf::Cgroup] {
            for (before, after) in pairs.iter().flat_map(|&a| pairs.iter().map(move |&b| (a, b))) {
                let memory = MemoryState::default();
                memory.configure(&Settings::default());
                let poller =
                    MemoryPoller { hub, memory: &memory, mailboxes: &mailboxes, release: &|| {} };
                let mut told = Pressures::default();
                for (process, tcp) in [before, after] {
                    let loads = [load(of, used(process)), load(MemoryOf::Tcp, used(tcp))];
                    told = poller.poll(&loads, told);
                }
                let (process, tcp) = after;
                let case = format!("{of:?}: {before:?}, then {after:?}");
                assert_eq!((told.process, told.tcp), after, "{case}");
                assert_eq!(memory.pressure(), process.max(tcp), "{case}");
                assert_eq!(told.tcp_excess_bytes > 0, tcp == Critical, "{case}");
                let is_half = hub.stored().max < hub.stored_bytes_max();
                assert_eq!(is_half, process != None, "{case}");
                let name = format!("/{}", case.replace([' ', ':', ',', '(', ')'], ""));
                let name = TopicName::parse(&name).unwrap();
                let grows = hub.publish(name, Draft::default(), Precondition::None, 1);
                assert_eq!(grows.is_ok(), process != Critical, "{case}");
                let mut mail = VecDeque::new();
                mailbox.swap(&mut mail);
                let last = mail.into_iter().filter_map(|mail| match mail {
                    Mail::Order(Order::Memory(told)) => Some(told),
                    _ => Option::None,
                });
                assert_eq!(last.last().unwrap_or_default(), told, "{case}");
            }
        }
    }

    #[test]
    fn each_kind_has_a_level_and_all_loads_are_shown() {
        let state = MemoryState::default();
        state.configure(&Settings::default());
        assert_eq!(state.note(&[load(MemoryOf::Host, 500)]), []);
        let tcp = load(MemoryOf::Tcp, 960);
        let all = [load(MemoryOf::Host, 920), tcp];
        let changes = state.note(&all);
        let levels = changes.iter().map(|change| (change.load.of, change.now)).collect::<Vec<_>>();
        assert_eq!(levels, [(MemoryOf::Host, Pressure::High), (MemoryOf::Tcp, Pressure::Critical)]);
        assert_eq!(state.note(&all), [], "a change is told once");
        assert_eq!(state.loads().collect::<Vec<_>>(), [("host", 920), ("tcp", 960)]);
        let counts = || [&state.times_high, &state.times_critical].map(Counter::value);
        assert_eq!((state.pressure(), counts()), (Pressure::Critical, [2, 1]));
        // The target is two points below where the level ends.
        assert_eq!(state.pressures().tcp_excess_bytes, 960 - 910);
        state.note(&[load(MemoryOf::Tcp, 920)]);
        assert_eq!((state.pressure(), counts()), (Pressure::High, [2, 1]));
        assert_eq!(state.pressures().tcp_excess_bytes, 0);
        state.note(&[]);
        assert_eq!(state.pressures(), Pressures::default());
    }

    /// Clients that read nothing fill the kernel's TCP memory. The server resets those that hold
    /// the most. Meanwhile it accepts newcomers, serves a stream that reads, and keeps all history.
    #[test]
    fn slow_readers_of_tcp_memory_are_evicted_and_nothing_else_happens() {
        const GET: &[u8] = b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n";
        let faults = Faults { window_bytes: 50_000, ..kind() };
        let mut world = World::of(Parts::over(Layers::Plain), 1, faults, patient());
        world.shared.memory.configure(&Settings::default());
        world.publish("/big", vec![b'x'; 300_000], ContentType::TEXT);
        (0..20).for_each(|n| world.publish("/news", vec![b'0' + n; 100], ContentType::TEXT));
        let history = world.shared.hub.stored().history;
        let stream = b"GET /news HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
        let (reader, _) = world.ask(PUBLIC, stream);
        let slow: Vec<Client> = (0..12).map(|_| world.sim.connect(PUBLIC)).collect();
        for &client in &slow {
            world.sim.write(client, &GET.repeat(2));
        }
        world.settle();
        let used = |world: &World| {
            let bytes = (0..20).map(|index| world.sim.kernel_bytes(Peer::from_index(index)));
            bytes.sum::<usize>() as u64
        };
        let limit = used(&world);
        let mailboxes = [Arc::new(Mailbox::new().unwrap())];
        let (hub, memory) = (Arc::clone(&world.shared.hub), Arc::clone(&world.shared.memory));
        let poller =
            MemoryPoller { hub: &hub, memory: &memory, mailboxes: &mailboxes, release: &|| {} };
        let (mut told, mut polls) = (Pressures::default(), 0);
        loop {
            told =
                poller.poll(&[MemoryLoad { of: MemoryOf::Tcp, used: used(&world), limit }], told);
            polls += 1;
            let mut mail = VecDeque::new();
            mailboxes[0].swap(&mut mail);
            for mail in mail {
                let Mail::Order(order) = mail else { panic!("{mail:?}") };
                world.worker.execute(&mut world.sim, order);
            }
            let (_, answer) = world.ask(PUBLIC, b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 "), "a newcomer gets {answer:?}");
            if told.tcp != Pressure::Critical {
                break;
            }
            assert!(polls < 3, "memory stays short: {told:?}");
        }
        let cut = slow.iter().filter(|&&client| world.sim.was_cut(client)).count();
        assert_eq!(world.totals().tcp_memory_evicted, cut as u64);
        assert!((1..slow.len()).contains(&cut), "{cut} are reset, as many as hold too much");
        assert!(!world.sim.ended(reader));
        let stored = hub.stored();
        assert_eq!((stored.history, stored.evicted_total, hub.is_trim_due()), (history, 0, false));
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

    fn poller<'a>(world: &'a World, release: &'a dyn Fn()) -> MemoryPoller<'a> {
        let (hub, memory) = (&world.shared.hub, &world.shared.memory);
        MemoryPoller { hub, memory, mailboxes: &[], release }
    }

    #[test]
    fn history_shrinks_at_critical_pressure_only() {
        let world = World::new(1, kind(), patient());
        world.shared.memory.configure(&Settings::default());
        let (root, gauges) = host("history", 92, 0);
        let (ends, ended) = channel();
        let seen = RefCell::new(Vec::new());
        let release = || {
            let shrinks = world.shared.hub.is_trim_due();
            seen.borrow_mut().push((world.shared.memory.pressure(), shrinks));
            if shrinks {
                ends.send(()).unwrap();
            }
            host("history", 99, 0);
        };
        poller(&world, &release).run(&gauges, &ended);
        fs::remove_dir_all(root).unwrap();
        // What is rendered goes first.
        let critical = Pressure::Critical;
        assert_eq!(seen.take(), [(Pressure::High, false), (critical, false), (critical, true)]);
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
            // Once when memory becomes short, and then with history.
            if released.get() == 3 {
                ends.take();
            }
        };
        poller(&world, &release).run(&gauges, &ended);
        fs::remove_dir_all(root).unwrap();
        assert!(monotonic_us() - began_us >= 900_000);
    }
}
