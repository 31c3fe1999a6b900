//! Tables of frames, good and bad, each read at every split; and what a client writes is read by
//! the server's decoder.

use super::*;
use crate::deflate::Inflater;
use crate::websocket::{Decoder, Received, Rules, frame};

const PAYLOAD_BYTES_MAX: usize = 70_000;

/// Reads the frame that `bytes` begin with. Any part of them must say the same or be incomplete,
/// and so must they with more behind them.
fn read(bytes: &[u8]) -> Result<Option<ServerFrame<'_>>, Violation> {
    let whole = server_frame(bytes, PAYLOAD_BYTES_MAX);
    for cut in 0..bytes.len() {
        let part = server_frame(&bytes[..cut], PAYLOAD_BYTES_MAX);
        assert!(part == Ok(None) || part == whole, "cut at {cut}: {part:?} is not {whole:?}");
    }
    if whole != Ok(None) {
        let longer = [bytes, b"\x81\x01a"].concat();
        assert_eq!(server_frame(&longer, PAYLOAD_BYTES_MAX), whole, "more behind it");
    }
    if let Err(violation) = whole {
        assert!(violation.reason.ends_with('.') && violation.reason.len() <= 123);
    }
    whole
}

#[test]
fn frames_are_lent_as_in_the_examples() {
    let rows: &[(&[u8], Opcode, bool, &[u8])] = &[
        // RFC 6455 section 5.7
        (b"\x81\x05Hello", Opcode::Text, true, b"Hello"),
        (b"\x01\x03Hel", Opcode::Text, false, b"Hel"),
        (b"\x80\x02lo", Opcode::Continuation, true, b"lo"),
        (b"\x89\x05Hello", Opcode::Ping, true, b"Hello"),
        (b"\x82\x00", Opcode::Binary, true, b""),
        (b"\x00\x00", Opcode::Continuation, false, b""),
        (b"\x8a\x00", Opcode::Pong, true, b""),
        (b"\x88\x02\x03\xe8", Opcode::Close, true, b"\x03\xe8"),
        (b"\x81\x01\xff", Opcode::Text, true, b"\xff"),
    ];
    for &(bytes, opcode, fin, payload) in rows {
        let expected = ServerFrame { len: bytes.len(), opcode, fin, payload };
        assert_eq!(read(bytes), Ok(Some(expected)), "{bytes:?}");
    }
}

#[test]
fn what_our_server_writes_is_read() {
    for length in [0, 1, 125, 126, 127, 65_535, 65_536, PAYLOAD_BYTES_MAX] {
        let payload = vec![b'a'; length];
        let mut bytes = Vec::new();
        frame(&mut bytes, Opcode::Binary, false, &payload);
        let len = bytes.len();
        let expected = ServerFrame { len, opcode: Opcode::Binary, fin: true, payload: &payload };
        assert_eq!(server_frame(&bytes, PAYLOAD_BYTES_MAX), Ok(Some(expected)));
        assert_eq!(server_frame(&bytes[..len - 1], PAYLOAD_BYTES_MAX), Ok(None));
    }
}

#[test]
fn what_breaks_the_rules_is_refused_with_its_first_byte() {
    let rows: &[(&[u8], u16, &str)] = &[
        (b"\x83", 1002, "opcode"),
        (b"\x8b", 1002, "opcode"),
        (b"\xc1", 1002, "reserved bit"),
        (b"\xa1", 1002, "reserved bit"),
        (b"\x91", 1002, "reserved bit"),
        (b"\x09", 1002, "fragmented"),
        (b"\x81\x85", 1002, "mask"),
        (b"\x89\x7e", 1002, "125"),
        (b"\x82\x7e\x00\x7d", 1002, "few bytes"),
        (b"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", 1002, "few bytes"),
        (b"\x82\x7f\x80\x00\x00\x00\x00\x01\x00\x00", 1002, "highest bit"),
        (b"\x82\x7f\x00\x00\x00\x00\x00\x01\x11\x71", 1009, "longer"),
        (b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", 1009, "longer"),
    ];
    for (bytes, code, word) in rows {
        let violation = read(bytes).unwrap_err();
        assert_eq!(violation.code, *code, "{bytes:?}");
        assert!(violation.reason.contains(word), "{bytes:?}: {}", violation.reason);
        assert_eq!(read(&bytes[..bytes.len() - 1]), Ok(None), "not before: {bytes:?}");
    }
}

#[test]
fn a_client_masks_its_frames() {
    let mut out = b"before".to_vec();
    masked_frame(&mut out, Opcode::Text, [0x37, 0xfa, 0x21, 0x3d], b"Hello");
    // RFC 6455 section 5.7
    assert_eq!(out, b"before\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");

    let rules = Rules { message_bytes_max: PAYLOAD_BYTES_MAX, deflate: false };
    for length in [0, 1, 125, 126, 127, 65_535, 65_536, PAYLOAD_BYTES_MAX] {
        let payload: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let mut bytes = Vec::new();
        masked_frame(&mut bytes, Opcode::Binary, [1, 2, 4, 8], &payload);
        let received = Decoder::new().next(&mut Inflater::default(), &bytes, &rules);
        assert_eq!(received, Ok((bytes.len(), Some(Received::Binary(payload)))));
    }
}
