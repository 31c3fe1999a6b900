//! A worker that another process has packed, or so it seems.

use crate::mailbox::Mailbox;
use crate::simulation::World;
use crate::simulation::handover::{full_world, new_worker};
use crate::worker::handover::PackedWorker;
use std::cell::RefCell;
use std::sync::Arc;

/// Whatever has come of another process is refused with a sentence, or is a worker, which can be
/// packed again.
///
/// Random bytes fit nothing. So what the fuzzer makes up is, most of the time, a list of changes to
/// a worker that has something of everything.
pub fn fuzz_handover(data: &[u8]) {
    let (mode, rest) = data.split_first().unwrap_or((&0, &[]));
    WORLD.with_borrow_mut(|prepared| {
        let Prepared { world, packed, runs } = prepared.get_or_insert_with(Prepared::new);
        let PackedWorker { bytes, files } = packed;
        let bytes = match mode {
            0..16 => [&bytes[..HEADER_BYTES], rest].concat(),
            _ => changed(bytes.clone(), rest),
        };
        let is_whole = bytes == packed.bytes;
        let mailbox = Arc::new(Mailbox::new().expect("there are files left"));
        let mut worker = new_worker(world, &mailbox);
        let came = PackedWorker { bytes, files: files.clone() };
        match worker.unpack(&world.sim, &came) {
            Err(reason) => assert!(reason.ends_with('.') && !is_whole, "{reason}"),
            Ok(()) => {
                let again = worker.pack(&world.sim).expect("nothing keeps it from being packed");
                let result = new_worker(world, &mailbox).unpack(&world.sim, &again);
                assert_eq!(result, Ok(()), "it is not what it was");
            }
        }
        *runs += 1;
        // Each run leaves a subscriber behind that hears nothing.
        if *runs == RUNS_PER_WORLD {
            *prepared = None;
        }
    });
}

/// A world, and its worker as it is packed.
struct Prepared {
    world: World,
    packed: PackedWorker,
    runs: usize,
}

impl Prepared {
    fn new() -> Prepared {
        let mut world = full_world(1_000);
        let packed = world.worker.pack(&world.sim).expect("it can be packed");
        Prepared { world, packed, runs: 0 }
    }
}

/// Some bytes are others, or are there more than once, or not at all.
fn changed(mut bytes: Vec<u8>, changes: &[u8]) -> Vec<u8> {
    for change in changes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len().max(1);
        let end = (at + usize::from(change[3])).min(bytes.len());
        match change[2] & 15 {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            3 => bytes[at..end].fill(change[2] >> 4),
            4 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = change[3]),
        }
    }
    bytes
}

thread_local! {
    static WORLD: RefCell<Option<Prepared>> = const { RefCell::new(None) };
}

/// What a packed worker begins with: that it is one, and in which version.
const HEADER_BYTES: usize = 8 + 2;

const RUNS_PER_WORLD: usize = 500;
