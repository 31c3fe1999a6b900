//! Workers with something of everything, packed and unpacked by themselves.

use super::super::net::Client;
use super::super::patient;
use super::*;
use crate::mailbox::Order;
use stentor_config::Settings;
use stentor_io::Sim;
use stentor_wire::pack::MISFIT;

/// What was packed behind the counters, without the dates of answers that wait.
fn without_dates(packed: &PackedWorker) -> Vec<u8> {
    let mut bytes = behind_counters(packed).to_vec();
    let dates: Vec<usize> = memchr::memmem::find_iter(&bytes, b"Date: ").collect();
    assert!(!dates.is_empty());
    dates.into_iter().for_each(|at| bytes[at..][..35].fill(b'.'));
    // That of a file is no later than now.
    let modified: Vec<usize> = memchr::memmem::find_iter(&bytes, b"Last-Modified: ").collect();
    modified.into_iter().for_each(|at| bytes[at..][..44].fill(b'.'));
    bytes
}

#[test]
fn time_is_told_as_what_is_left_of_it() {
    let [mut early, mut late] = [100, 70_000].map(full_world);
    let packed = super::packed(&mut early.worker, &early.sim).unwrap();
    let later = super::packed(&mut late.worker, &late.sim).unwrap();
    assert!(without_dates(&packed) == without_dates(&later), "it is of one clock");
    let mut worker = new_worker(&late, &Arc::new(Mailbox::new().unwrap()));
    super::unpack(&mut worker, &late.sim, &packed).unwrap();
    let again = super::packed(&mut worker, &late.sim).unwrap();
    assert!(behind_counters(&packed) == behind_counters(&again), "it is not the same");
}

#[test]
fn no_bytes_make_it_panic() {
    let mut world = full_world(1_000);
    let PackedWorker { bytes, files } = super::packed(&mut world.worker, &world.sim).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let unpack = |bytes: &[u8]| {
        let packed = PackedWorker { bytes: bytes.to_vec(), files: files.clone() };
        super::unpack(&mut new_worker(&world, &mailbox), &world.sim, &packed)
    };
    assert_eq!(unpack(&bytes), Ok(()));
    for length in (0..bytes.len()).step_by(5) {
        let reason = unpack(&bytes[..length]).unwrap_err();
        assert!(reason.ends_with('.'), "{reason}");
    }
    assert!(unpack(&[&bytes[..], b"x"].concat()).is_err());
    // Behind the length of the part, what says that it is a worker, and of which version.
    for at in 4..14 {
        let mut other = bytes.clone();
        other[at] ^= 1;
        assert!(unpack(&other).is_err(), "{at}");
    }
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

/// A world that serves files of the disk, a few bytes at a time.
fn world_of_files() -> World {
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", FILES));
    settings.files.small_bytes_max = 100;
    World::new(1, Faults { window_bytes: 500, ..kind() }, settings)
}

#[test]
fn files_that_are_being_sent_go_over() {
    let mut world = world_of_files();
    let own = include_bytes!("../files/large.txt");
    let fields = ["", "Range: bytes=1000-2999\r\n", ""];
    let readers = fields.map(|fields| {
        let reader = world.sim.connect(PUBLIC);
        let request = format!("GET /files/large.txt HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        world.sim.write(reader, request.as_bytes());
        reader
    });
    let (mut answers, mut files_most) = ([const { Vec::new() }; 3], 0);
    for round in 0.. {
        world.settle_some(2);
        if round % 3 == 1 {
            let packed = super::packed(&mut world.worker, &world.sim).unwrap();
            files_most = files_most.max(packed.files.len());
            assert!(world.hand_over(0));
        }
        let mut is_more = false;
        for (answer, &reader) in answers.iter_mut().zip(&readers) {
            let read = world.sim.read(reader);
            is_more |= !read.is_empty();
            answer.extend_from_slice(&read);
        }
        if !is_more && round > 9 {
            break;
        }
    }
    assert!(files_most > 0, "the file goes over");
    let parts = [&own[..], &own[1_000..3_000], &own[..]];
    for (answer, part) in answers.iter().zip(parts) {
        let end = memchr::memmem::find(answer, b"\r\n\r\n").unwrap() + 4;
        assert!(answer[end..] == *part, "{} of {}", answer.len() - end, part.len());
    }
    assert!(super::packed(&mut world.worker, &world.sim).unwrap().files.is_empty());
}

#[test]
fn a_file_goes_over_in_its_bounds_or_not_at_all() {
    let mut world = world_of_files();
    let reader = world.sim.connect(PUBLIC);
    world.sim.write(reader, b"GET /files/large.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    world.settle_some(3);
    let packed = super::packed(&mut world.worker, &world.sim).unwrap();
    let length = include_bytes!("../files/large.txt").len() as u64;
    let at = memchr::memmem::rfind(&packed.bytes, &length.to_le_bytes()).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let unpack = |packed: &PackedWorker| {
        super::unpack(&mut new_worker(&world, &mailbox), &world.sim, packed)
    };
    assert_eq!(unpack(&packed), Ok(()));
    for length in [length + 1, u64::MAX, 0] {
        let mut packed = packed.clone();
        packed.bytes[at..][..size_of::<u64>()].copy_from_slice(&length.to_le_bytes());
        assert!(unpack(&packed).is_err(), "{length}");
    }
    assert!(unpack(&PackedWorker { files: Vec::new(), ..packed }).is_err());
}

/// The numbers of sockets and those of streams end below the same bound.
#[test]
fn a_number_that_no_peer_has_is_refused() {
    let mut world = world_of_files();
    world.sim.connect(PUBLIC);
    world.settle();
    let packed = super::packed(&mut world.worker, &world.sim).unwrap();
    let (length, _) = packed.bytes.split_first_chunk().unwrap();
    // Behind the first part stand the length of the second, the kind and length of a section, and
    // the number of its first connection.
    let at = 4 + u32::from_le_bytes(*length) as usize + 4 + 1 + 4;
    let mailbox = Arc::new(Mailbox::new().unwrap());
    for (number, expected) in [(7, Ok(())), (1 << 30, Err(MISFIT)), (3 << 30, Err(MISFIT))] {
        let mut packed = packed.clone();
        packed.bytes[at..][..4].copy_from_slice(&u32::to_le_bytes(number));
        let unpacked = super::unpack(&mut new_worker(&world, &mailbox), &world.sim, &packed);
        assert_eq!(unpacked, expected, "{number}");
    }
}

#[test]
fn nothing_goes_over_while_the_server_stops() {
    let mut world = world_of_files();
    let World { worker, sim, .. } = &mut world;
    worker.execute(sim, Order::Drain);
    assert!(super::packed(worker, sim).is_err_and(|reason| reason.contains("about to stop")));
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
    super::packed(&mut world.worker, &world.sim).unwrap();
    let elsewhere = Sim::new(1, kind());
    let packed = super::packed(&mut world.worker, &world.sim).unwrap();
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let mut worker = new_worker(&world, &mailbox);
    super::unpack(&mut worker, &elsewhere, &packed).unwrap();
    drop(worker);
    world.publish("/small", b"new".to_vec(), ContentType::TEXT);
    world.settle();
    let totals = world.totals();
    assert_eq!((totals.readers_long_poll, totals.readers_sse), (1, 3), "one poll is answered");
}

/// What a worker of this release packed: [`full_world`] at 1,000 ticks. `STENTOR_PACK=1 cargo test
/// -p stentor-server packed_by` writes the newest.
const PACKED: [(&str, &[u8]); 1] = [("packed-6.bin", include_bytes!("packed-6.bin"))];

#[test]
fn what_was_packed_by_a_release_is_unpacked_by_this_one() {
    let mut world = full_world(1_000);
    let PackedWorker { bytes: fresh, files } =
        super::packed(&mut world.worker, &world.sim).unwrap();
    let (newest, bytes) = PACKED.last().unwrap();
    if std::env::var_os("STENTOR_PACK").is_some() {
        let file = format!("{}/src/simulation/handover/{newest}", env!("CARGO_MANIFEST_DIR"));
        return std::fs::write(file, fresh).unwrap();
    }
    // Before the version stands the length of the part, which a new counter changes.
    let version = |bytes: &[u8]| bytes[4..HEADER_BYTES].to_vec();
    assert_eq!(version(&fresh), version(bytes), "another version: see CONTRIBUTING");
    for (name, bytes) in PACKED {
        let mut worker = new_worker(&world, &Arc::new(Mailbox::new().unwrap()));
        let changed = "packed otherwise, but of the same version: see CONTRIBUTING";
        let packed = PackedWorker { bytes: bytes.to_vec(), files: files.clone() };
        let unpacked = super::unpack(&mut worker, &world.sim, &packed);
        assert_eq!(unpacked, Ok(()), "{name}: {changed}");
        let again = super::packed(&mut worker, &world.sim).unwrap();
        // Of an older version the newest form is another.
        let is_newest = name == *newest;
        assert!(!is_newest || behind_counters(&packed) == behind_counters(&again), "{changed}");
    }
}
