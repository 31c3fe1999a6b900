//! Workers with something of everything, packed and unpacked by themselves.

use super::super::codec::{COMMANDER, TEXT, put_frame};
use super::super::net::Client;
use super::super::{CONTROL, PUBLIC, kind, patient};
use super::*;
use crate::config::{Mount, Settings};
use crate::mailbox::Order;
use crate::stats::Stats;
use crate::timers::TICK_MS;
use stentor_hub::ContentType;
use stentor_io::{Faults, Sim};

/// A world whose clock is that far, with connections in every state in which one can be for long.
fn full_world(ticks: u64) -> World {
    let faults = Faults { window_bytes: 1_000, ..kind() };
    let mut world = World::new(1, faults, Settings { cors: patient().cors, ..Settings::default() });
    world.sim.sleep(ticks * TICK_MS);
    for n in 0..20 {
        world.publish("/many/a", vec![b'a' + n; 100], ContentType::TEXT);
    }
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
    };
    let put = |fields: &str| format!("PUT /put HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
    let lines = b"POST /-/publish HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
        28\r\nnonsense\n{\"topic\":\"/b\",\"data\":1}\n{\"to";
    let mut commands = COMMANDER.as_bytes().to_vec();
    let mut rng = Rng::new(1);
    put_frame(&mut commands, &mut rng, TEXT, true, b"{\"subscribe\":[\"/many/*\",\"/none\"]}");
    put_frame(&mut commands, &mut rng, TEXT, true, b"{\"unsubscribe\":[]}");
    commands.truncate(commands.len() - 5);
    let sse = "Accept: text/event-stream\r\n";
    let requests: [(bool, u8, Vec<u8>); 14] = [
        (false, PUBLIC, b"GET /small".to_vec()),
        (false, PUBLIC, get("/small", "")),
        (true, PUBLIC, get("/text", "").repeat(2)),
        (true, PUBLIC, get("/-/events?topic=/**&since=0badcafe-3", sse)),
        (false, PUBLIC, get("/small", sse)),
        (false, PUBLIC, get("/-/events?topic=/small&topic=/many/**", sse)),
        (false, PUBLIC, [get("/small?wait=20", "If-None-Match: *\r\n"), get("/text", "")].concat()),
        (false, PUBLIC, get("/-/events?topic=/x&topic=/y&wait=20", "")),
        (false, PUBLIC, commands),
        (false, PUBLIC, get("/small", "Content-Length: 9\r\n")),
        (false, CONTROL, put("Content-Length: 90\r\nContent-Type: text/x\r\nStentor-Event: e\r\n")),
        (false, CONTROL, [&put("Transfer-Encoding: chunked\r\n")[..], b"9\r\nabc"].concat()),
        (false, CONTROL, lines.to_vec()),
        (false, CONTROL, b"nonsense\r\n".to_vec()),
    ];
    for (is_stalled, role, bytes) in requests {
        let client = world.sim.connect(role);
        world.sim.stall(client, is_stalled);
        world.sim.write(client, &bytes);
    }
    world.settle();
    assert_eq!(world.sim.open_sockets(), 14);
    world
}

/// A worker that is to be told what another one packed.
fn new_worker(world: &World, mailbox: &Arc<Mailbox>) -> Worker {
    let (shared, settings) = (Arc::clone(&world.shared), Arc::clone(&world.settings));
    Worker::new(shared, settings, Arc::new(Stats::default()), Arc::clone(mailbox), 1)
}

/// What was packed behind the counters, without the dates of answers that wait.
fn without_dates(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = behind_counters(bytes).to_vec();
    let dates: Vec<usize> = memchr::memmem::find_iter(&bytes, b"Date: ").collect();
    assert!(!dates.is_empty());
    dates.into_iter().for_each(|at| bytes[at..][..35].fill(b'.'));
    bytes
}

#[test]
fn time_is_told_as_what_is_left_of_it() {
    let [mut early, mut late] = [100, 70_000].map(full_world);
    let bytes = early.worker.pack(&early.sim).unwrap();
    let later = late.worker.pack(&late.sim).unwrap();
    assert!(without_dates(&bytes) == without_dates(&later), "it is of one clock");
    let mut worker = new_worker(&late, &Arc::new(Mailbox::new().unwrap()));
    worker.unpack(&late.sim, &bytes).unwrap();
    let again = worker.pack(&late.sim).unwrap();
    assert!(behind_counters(&bytes) == behind_counters(&again), "it is not the same");
}

#[test]
fn no_bytes_make_it_panic() {
    let mut world = full_world(1_000);
    let bytes = world.worker.pack(&world.sim).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let unpack = |bytes: &[u8]| new_worker(&world, &mailbox).unpack(&world.sim, bytes);
    assert_eq!(unpack(&bytes), Ok(()));
    for length in (0..bytes.len()).step_by(5) {
        let reason = unpack(&bytes[..length]).unwrap_err();
        assert!(reason.ends_with('.'), "{reason}");
    }
    assert!(unpack(&[&bytes[..], b"x"].concat()).is_err());
    let (mut rng, mut refused) = (Rng::new(1), 0);
    for _ in 0..1_500 {
        let mut bytes = bytes.clone();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        if let Err(reason) = unpack(&bytes) {
            refused += 1;
            assert!(reason.ends_with('.'), "{reason}");
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn what_cannot_go_over_is_refused() {
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
    settings.files.small_bytes_max = 100;
    let mut world = World::new(1, Faults { window_bytes: 500, ..kind() }, settings);
    let reader = world.sim.connect(PUBLIC);
    world.sim.write(reader, b"GET /files/worker.rs HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle_some(3);
    let reason = world.worker.pack(&world.sim).unwrap_err();
    assert!(reason.contains("a file from the disk"), "{reason}");
    world.settle();
    assert!(world.hand_over(0));
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    assert!(worker.pack(sim).is_err_and(|reason| reason.contains("about to stop")));
}

#[test]
fn a_dead_peer_is_found_out_by_the_next_worker() {
    let mut settings = Settings::default();
    settings.streams.ping_ms = 10_000;
    let mut world = World::new(1, kind(), settings);
    let (client, _): (Client, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    world.sim.sleep(10_200);
    world.settle();
    assert_eq!(world.sim.read(client), b"\x89\0", "a ping");
    assert!(world.hand_over(0));
    world.sim.sleep(5_000);
    world.settle();
    assert!(world.hand_over(0) && !world.sim.was_cut(client));
    world.sim.sleep(5_300);
    world.settle();
    assert!(world.sim.was_cut(client), "it owed a pong");
}

/// The next worker has another network under it, where nothing of all this exists.
#[test]
fn a_worker_that_packs_may_go_on() {
    let mut world = full_world(1);
    world.worker.pack(&world.sim).unwrap();
    let elsewhere = Sim::new(1, kind());
    let bytes = world.worker.pack(&world.sim).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let mut worker = new_worker(&world, &mailbox);
    worker.unpack(&elsewhere, &bytes).unwrap();
    drop(worker);
    world.publish("/small", b"new".to_vec(), ContentType::TEXT);
    world.settle();
    let totals = world.totals();
    assert_eq!((totals.readers_long_poll, totals.readers_sse), (1, 3), "one poll is answered");
}

/// What a worker of this release, and of the one before, packed: [`full_world`] at 1,000 ticks. The
/// newest is written by `STENTOR_PACK=1 cargo test -p stentor-server packed_by`.
const PACKED: [(&str, &[u8]); 1] = [("packed-4.bin", include_bytes!("packed-4.bin"))];

#[test]
fn what_was_packed_by_a_release_is_unpacked_by_this_one() {
    let mut world = full_world(1_000);
    let fresh = world.worker.pack(&world.sim).unwrap();
    let (newest, bytes) = PACKED.last().unwrap();
    if std::env::var_os("STENTOR_PACK").is_some() {
        let file = format!("{}/src/simulation/handover/{newest}", env!("CARGO_MANIFEST_DIR"));
        return std::fs::write(file, fresh).unwrap();
    }
    assert_eq!(fresh[..HEADER_BYTES], bytes[..HEADER_BYTES], "another version: see CONTRIBUTING");
    for (name, bytes) in PACKED {
        let mut worker = new_worker(&world, &Arc::new(Mailbox::new().unwrap()));
        let changed = "packed otherwise, but of the same version: see CONTRIBUTING";
        assert_eq!(worker.unpack(&world.sim, bytes), Ok(()), "{name}: {changed}");
        let again = worker.pack(&world.sim).unwrap();
        // Of an older version the newest form is another.
        let is_newest = name == *newest;
        assert!(!is_newest || behind_counters(bytes) == behind_counters(&again), "{changed}");
    }
}
