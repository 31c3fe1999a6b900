//! Sessions of TLS that another process has packed, or so it seems.

use super::handover::changed;
use crate::listeners::CONTROL;
use std::io;
use std::sync::Arc;
use stentor_io::Role;
use stentor_tls_layer::{Sessions, Unpacking};
use stentor_wire::pack::{Packed, Packer};

/// Whatever has come of another process is refused with a sentence, or there are sessions, which
/// can be packed again to the same bytes; and when they go nothing is left of them.
///
/// Random bytes fit nothing. So what the fuzzer makes up is, most of the time, a list of changes to
/// a part that has something of everything.
pub fn fuzz_sessions(data: &[u8]) {
    let (mode, rest) = data.split_first().unwrap_or((&0, &[]));
    let whole = something_of_everything();
    let bytes = match mode {
        0..16 => [&whole[..HEADER_BYTES], rest].concat(),
        _ => changed(whole.clone(), rest),
    };
    let sessions = || Sessions::new(Arc::default(), CONTROL);
    let mut first = sessions();
    if let Err(reason) = unpack(&mut first, &bytes) {
        assert!(reason.ends_with('.') && bytes != whole, "{reason}");
        return;
    }
    let parts = pack(&mut first);
    let mut second = sessions();
    for part in &parts {
        assert_eq!(unpack(&mut second, part), Ok(()), "it is not what it was");
    }
    assert!(pack(&mut second) == parts, "it is other sessions");
    first.leave();
    assert!(first.is_empty(), "something is left");
}

fn unpack(sessions: &mut Sessions, part: &[u8]) -> Result<(), &'static str> {
    // Whoever takes over tells by it to whom a part belongs.
    if !Unpacking::is_part(part) {
        return Err("This is none of it.");
    }
    Unpacking::begin(NOW_MS).part(sessions, part)
}

fn pack(sessions: &mut Sessions) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    let packed = sessions.pack(NOW_MS, &mut |bytes| {
        parts.push(bytes.to_vec());
        io::Result::Ok(())
    });
    packed.expect("whoever takes it takes all");
    parts
}

/// Connections at each stage, with all that one may hold.
fn something_of_everything() -> Vec<u8> {
    let mut out = Packer::new(NOW_MS);
    out.put(b"STENTORT");
    1_u16.pack(&mut out);
    assert_eq!(out.len(), HEADER_BYTES);
    let mut entry = |index: u32, (stage, role, flags): (u8, Role, u16), holds: Holds<'_>| {
        index.pack(&mut out);
        stage.pack(&mut out);
        role.pack(&mut out);
        flags.pack(&mut out);
        holds.client.map(str::to_owned).pack(&mut out);
        holds.unsent.to_vec().pack(&mut out);
        holds.waiting.to_vec().pack(&mut out);
        holds.until_ms.is_some().pack(&mut out);
        out.moment(holds.until_ms.unwrap_or(0));
        (holds.session_bytes as u8).pack(&mut out);
        // A suite of that size, and any keys.
        let suite = if holds.session_bytes == 160 { 2 } else { 1 };
        let session = (0..holds.session_bytes).map(|at| match at {
            0 => suite,
            1..4 => 0,
            _ => at as u8,
        });
        out.put(&session.collect::<Vec<_>>());
    };
    let holds = Holds::default();
    let small = Holds { session_bytes: 112, ..holds };
    let large = Holds { session_bytes: 160, ..holds };
    entry(0, (FRESH, 0, 0), holds);
    entry(2, (OPEN, 0, STREAM), small);
    entry(3, (OPEN, 1, 0), Holds { client: Some("CN=ann"), ..large });
    entry(7, (OPEN, 0, HELD_BACK | RESUMED), Holds { waiting: &[23, 3, 3, 0, 40, 1], ..small });
    entry(8, (OPEN, 0, FULL | FINISHES), Holds { unsent: &[23, 3, 3, 0, 1], ..large });
    entry(9, (CLOSING, 0, FULL | LEFT), Holds { until_ms: Some(NOW_MS + 9), ..small });
    let lingers = Holds { until_ms: Some(NOW_MS + 9), ..holds };
    entry(11, (LINGERING, 0, LEFT | FAILED | FINISHED), lingers);
    entry(3_000, (LOST, 0, 0), holds);
    out.into_bytes()
}

#[derive(Clone, Copy, Default)]
struct Holds<'a> {
    client: Option<&'a str>,
    unsent: &'a [u8],
    waiting: &'a [u8],
    until_ms: Option<u64>,
    session_bytes: usize,
}

const NOW_MS: u64 = 1_000;

/// What a part begins with.
const HEADER_BYTES: usize = 10;

const FRESH: u8 = 1;
const OPEN: u8 = 3;
const CLOSING: u8 = 4;
const LINGERING: u8 = 5;
const LOST: u8 = 6;

const FULL: u16 = 1;
const STREAM: u16 = 1 << 2;
const FINISHES: u16 = 1 << 3;
const FINISHED: u16 = 1 << 4;
const LEFT: u16 = 1 << 5;
const FAILED: u16 = 1 << 6;
const HELD_BACK: u16 = 1 << 7;
const RESUMED: u16 = 1 << 8;
