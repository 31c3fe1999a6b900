//! What a process counts beside its workers, as bytes for the next one: each counter by its name,
//! so that another version may have others.

use super::Server;
use stentor_server::{event_log, pack_histogram, unpack_histogram};
use stentor_wire::pack::{Packed, Packer, Unpacked, Unpacker};

/// What was counted so far.
pub(super) fn pack(Server { shared, service, .. }: &Server) -> Vec<u8> {
    let mut counters = vec![
        (MEMORY_HIGH, shared.memory.times_high.value()),
        (MEMORY_CRITICAL, shared.memory.times_critical.value()),
        (FILES_EVICTED, shared.file_cache.kept().evictions),
        (EVENTS_LOST, event_log::dropped()),
    ];
    counters.extend(shared.access_log.as_ref().map(|log| (LINES_LOST, log.lost())));
    if let Some(store) = service.store() {
        counters.extend([
            (STORE_ENTRIES, store.intake.stats.entries.value()),
            (STORE_BYTES, store.intake.stats.bytes.value()),
            (STORE_ERRORS, store.intake.stats.errors.value()),
            (STORE_SNAPSHOT, store.intake.stats.snapshot_unix_s.value()),
        ]);
    }
    let mut out = Packer::new(0);
    (counters.len() as u32).pack(&mut out);
    for (name, value) in counters {
        name.to_owned().pack(&mut out);
        value.pack(&mut out);
    }
    if let Some(store) = service.store() {
        pack_histogram(&store.intake.stats.syncs, &mut out);
    }
    out.into_bytes()
}

/// Goes on where another process ended, before anything is counted here.
///
/// # Errors
/// If this is not what was packed.
pub(super) fn unpack(server: &Server, bytes: &[u8]) -> Unpacked<()> {
    let shared = &server.shared;
    let mut input = Unpacker::new(bytes, 0);
    let store = server.service.store().map(|store| &store.intake.stats);
    for _ in 0..u32::unpack(&mut input)? {
        let (name, value) = (String::unpack(&mut input)?, u64::unpack(&mut input)?);
        match (name.as_str(), store) {
            (MEMORY_HIGH, _) => shared.memory.times_high.set(value),
            (MEMORY_CRITICAL, _) => shared.memory.times_critical.set(value),
            (FILES_EVICTED, _) => shared.file_cache.were_evicted(value),
            (EVENTS_LOST, _) => event_log::were_dropped(value),
            (LINES_LOST, _) => shared.access_log.iter().for_each(|log| log.were_lost(value)),
            (STORE_ENTRIES, Some(stats)) => stats.entries.set(value),
            (STORE_BYTES, Some(stats)) => stats.bytes.set(value),
            (STORE_ERRORS, Some(stats)) => stats.errors.set(value),
            (STORE_SNAPSHOT, Some(stats)) => stats.snapshot_unix_s.set(value),
            // Nobody counts that any more.
            _ => {}
        }
    }
    store.map_or(Ok(()), |stats| unpack_histogram(&stats.syncs, &mut input))?;
    input.end()
}

const MEMORY_HIGH: &str = "memory_times_high";
const MEMORY_CRITICAL: &str = "memory_times_critical";
const FILES_EVICTED: &str = "files_evicted";
const EVENTS_LOST: &str = "log_dropped";
const LINES_LOST: &str = "access_log_dropped";
const STORE_ENTRIES: &str = "store.entries";
const STORE_BYTES: &str = "store.bytes_written";
const STORE_ERRORS: &str = "store.errors";
const STORE_SNAPSHOT: &str = "store.snapshot_unix_s";
