//! A worker that another process has packed, or so it seems.

use crate::mailbox::Mailbox;
use crate::simulation::World;
use crate::simulation::handover::{
    HEADER_BYTES, PackedWorker, full_world, new_worker, packed, unpack,
};
use std::cell::RefCell;
use std::sync::Arc;
use stentor_wire::pack::Packer;

/// Whatever has come of another process is refused with a sentence, or is a worker, which can be
/// packed again.
///
/// Random bytes fit nothing. So what the fuzzer makes up is, most of the time, a list of changes to
/// a worker that has something of everything.
pub fn fuzz_handover(data: &[u8]) {
    let (mode, rest) = data.split_first().unwrap_or((&0, &[]));
    WORLD.with_borrow_mut(|prepared| {
        let Prepared { world, whole, runs } = prepared.get_or_insert_with(Prepared::new);
        let PackedWorker { bytes, files } = whole;
        let bytes = match mode {
            0..16 => [&bytes[..HEADER_BYTES], rest].concat(),
            // The parts fit, whatever is in them.
            16..32 => framed(bytes, rest),
            _ => changed(bytes.clone(), rest),
        };
        let is_whole = bytes == whole.bytes;
        let mailbox = Arc::new(Mailbox::new().expect("there are files left"));
        let mut worker = new_worker(world, &mailbox);
        let came = PackedWorker { bytes, files: files.clone() };
        match unpack(&mut worker, &world.sim, &came) {
            Err(reason) => assert!(reason.ends_with('.') && !is_whole, "{reason}"),
            Ok(()) => {
                let again =
                    packed(&mut worker, &world.sim).expect("nothing keeps it from being packed");
                let result = unpack(&mut new_worker(world, &mailbox), &world.sim, &again);
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
    whole: PackedWorker,
    runs: usize,
}

impl Prepared {
    fn new() -> Prepared {
        let mut world = full_world(1_000);
        let whole = packed(&mut world.worker, &world.sim).expect("it can be packed");
        Prepared { world, whole, runs: 0 }
    }
}

/// The first part as it is, and one more of such sections as are expected.
fn framed(bytes: &[u8], connections: &[u8]) -> Vec<u8> {
    let first = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let mut out = bytes[..size_of::<u32>() + first].to_vec();
    let mut part = Packer::new(0);
    part.section(4, |out| out.put(connections));
    part.section(5, |_| {});
    let part = part.into_bytes();
    out.extend_from_slice(&(part.len() as u32).to_le_bytes());
    out.extend_from_slice(&part);
    out
}

/// Some bytes are others, or are there more than once, or not at all.
pub(super) fn changed(mut bytes: Vec<u8>, changes: &[u8]) -> Vec<u8> {
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

const RUNS_PER_WORLD: usize = 500;
