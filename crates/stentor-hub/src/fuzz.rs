//! The bodies of the hub's fuzz targets: properties that must hold for any bytes.
//!
//! As in `stentor_wire::fuzz`, each takes whatever the fuzzer makes up and panics when a property
//! is broken; ordinary tests run them over what they damage.

use crate::{Epoch, Hub, Limits, Snapshot, decode_entry, encode_entry};

/// Bytes are refused, or are the one spelling of an entry, which any hub can apply.
pub fn fuzz_entry(data: &[u8]) {
    let Ok((entry, place)) = decode_entry(data) else { return };
    let mut again = Vec::new();
    encode_entry(&entry, place, &mut again);
    assert_eq!(again, data);
    let hub = hub();
    let _ = hub.apply(entry, place);
    let counts = hub.counts();
    assert!(counts.topics <= 1 && counts.bytes_kept <= data.len());
}

/// Bytes are refused, or are the snapshot of a hub, whose own snapshot makes the same hub again.
pub fn fuzz_snapshot(data: &[u8]) {
    let one = hub();
    let mut restore = one.restore();
    let Ok(used) = restore.read(data) else { return };
    let Ok(_) = restore.finish() else { return };
    assert!(used <= data.len() && one.counts().bytes_kept <= data.len());
    let first = snapshot(&one);
    let other = hub();
    let mut restore = other.restore();
    assert_eq!(restore.read(&first), Ok(first.len()));
    restore.finish().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(snapshot(&other), first);
}

fn snapshot(hub: &Hub) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut snapshot = Snapshot::begin(hub, &mut bytes);
    while snapshot.write_slice(hub, &mut bytes).expect("what was read is not so long") {}
    bytes
}

fn hub() -> Hub {
    let epoch = Epoch::parse("0badcafe").expect("it is an epoch");
    Hub::new(epoch, Vec::new(), Limits::default())
}
