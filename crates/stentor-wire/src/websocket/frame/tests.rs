//! Tables of frames, good and bad, each at every split and one byte at a time.

use super::*;
use crate::deflate::Deflater;
use crate::pack::{Packed, Packer, Unpacker};
use proptest::prelude::*;

const RULES: Rules = Rules { message_bytes_max: 70_000, deflate: true };
const PLAIN: Rules = Rules { message_bytes_max: 70_000, deflate: false };

/// The first byte of a frame, and its payload.
type Frame<'a> = (u8, &'a [u8]);

type Outcome = (Vec<Received>, Result<(), u16>);

/// What is received of bytes that arrive in pieces that end at `cuts`, and the code of the
/// violation they end in.
fn receive_pieces(bytes: &[u8], cuts: impl IntoIterator<Item = usize>, rules: &Rules) -> Outcome {
    let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
    let mut all = Vec::new();
    let mut at = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        loop {
            match decoder.next(&mut inflater, &bytes[at..cut], rules) {
                Ok((used, None)) => {
                    assert_eq!(at + used, cut, "without an event all is used");
                    at = cut;
                    break;
                }
                Ok((used, Some(received))) => {
                    at += used;
                    all.push(received);
                }
                Err(violation) => {
                    assert!(violation.reason.ends_with('.') && violation.reason.len() <= 123);
                    return (all, Err(violation.code));
                }
            }
        }
    }
    (all, Ok(()))
}

/// Receives whole, at every split, and byte by byte; all must agree.
fn receive(bytes: &[u8], rules: &Rules) -> Outcome {
    let whole = receive_pieces(bytes, [], rules);
    for cut in 0..bytes.len() {
        assert_eq!(receive_pieces(bytes, [cut], rules), whole, "cut at {cut}");
    }
    assert_eq!(receive_pieces(bytes, 0..bytes.len(), rules), whole, "byte by byte");
    whole
}

/// A masked frame, whose first byte is `first`.
fn client(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    frame(&mut plain, Opcode::Binary, false, payload);
    let payload_start = plain.len() - payload.len();
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut out = plain[..payload_start].to_vec();
    out[0] = first;
    out[1] |= MASK;
    out.extend_from_slice(&key);
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// The frames one behind the other.
fn clients(frames: &[Frame<'_>]) -> Vec<u8> {
    frames.iter().flat_map(|&(first, payload)| client(first, payload)).collect()
}

fn deflate(data: &[u8]) -> Vec<u8> {
    crate::websocket::deflate(&mut Deflater::default(), data, 15).unwrap().to_vec()
}

fn text(text: &str) -> Received {
    Received::Text(text.to_owned())
}

/// RFC 6455 section 5.7: what the server sends.
#[test]
fn the_examples_of_the_standard_sent() {
    let rows: &[(Opcode, &[u8], &[u8])] = &[
        (Opcode::Text, b"Hello", b"\x81\x05Hello"),
        (Opcode::Ping, b"Hello", b"\x89\x05Hello"),
        (Opcode::Pong, b"", b"\x8a\x00"),
        (Opcode::Binary, &[7; 125], b"\x82\x7d\x07"),
        (Opcode::Binary, &[7; 126], b"\x82\x7e\x00\x7e\x07"),
        (Opcode::Binary, &[7; 255], b"\x82\x7e\x00\xff\x07"),
        (Opcode::Binary, &[7; 256], b"\x82\x7e\x01\x00\x07"),
        (Opcode::Binary, &[7; 65_535], b"\x82\x7e\xff\xff\x07"),
        (Opcode::Binary, &[7; 65_536], b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00\x07"),
    ];
    for (opcode, payload, start) in rows {
        let mut out = b"x".to_vec();
        frame(&mut out, *opcode, false, payload);
        assert!(out[1..].starts_with(start), "{opcode:?}, {} bytes", payload.len());
        assert!(out.ends_with(payload));
    }
    let mut out = Vec::new();
    frame(&mut out, Opcode::Text, true, b"\xf2\x48\xcd\xc9\xc9\x07\x00");
    assert_eq!(out, b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", "RFC 7692 section 7.2.3.1");
}

#[test]
fn close_frames_are_written() {
    let mut out = Vec::new();
    close_frame(&mut out, 1012, "Restart.");
    assert_eq!(out, b"\x88\x0a\x03\xf4Restart.");
    out.clear();
    close_frame(&mut out, 1000, &"\u{e9}".repeat(100));
    assert_eq!((out[1], out.len()), (124, 126), "cut at a character");
    assert!(str::from_utf8(&out[4..]).is_ok());
}

/// RFC 6455 section 5.7 and RFC 7692 section 7.2.3.1: what a client sends.
#[test]
fn the_examples_of_the_standard_received() {
    let hello = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(receive(hello, &PLAIN), (vec![text("Hello")], Ok(())));
    assert_eq!(client(0x81, b"Hello"), hello);
    let pong = b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(receive(pong, &PLAIN), (vec![Received::Pong], Ok(())));
    let fragments = clients(&[(0x01, b"Hel"), (0x80, b"lo")]);
    assert_eq!(receive(&fragments, &PLAIN), (vec![text("Hello")], Ok(())));
    for length in [0, 1, 3, 4, 5, 125, 126, 127, 256] {
        let data: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let expected = (vec![Received::Binary(data.clone())], Ok(()));
        assert_eq!(receive(&client(0x82, &data), &PLAIN), expected, "{length} bytes");
    }
    for length in [65_535, 65_536] {
        let data = vec![b'x'; length];
        let received = receive_pieces(&client(0x82, &data), (0..length).step_by(1001), &PLAIN);
        assert!(received == (vec![Received::Binary(data)], Ok(())), "{length} bytes");
    }

    let deflated = clients(&[(0xc1, b"\xf2\x48\xcd\xc9\xc9\x07\x00")]);
    assert_eq!(receive(&deflated, &RULES), (vec![text("Hello")], Ok(())));
    let fragments = clients(&[(0x41, b"\xf2\x48\xcd"), (0x80, b"\xc9\xc9\x07\x00")]);
    assert_eq!(receive(&fragments, &RULES), (vec![text("Hello")], Ok(())));
}

#[test]
fn messages_in_fragments_with_control_frames_between() {
    let frames = clients(&[
        (0x01, b""),
        (0x89, b"ping"),
        (0x00, "\u{20ac}".as_bytes().split_at(1).0),
        (0x8a, b"pong"),
        (0x00, b""),
        (0x80, "\u{20ac}".as_bytes().split_at(1).1),
        (0x82, b""),
        (0x81, b""),
        (0x88, b"\x03\xe9bye"),
    ]);
    let expected = vec![
        Received::Ping(b"ping".to_vec()),
        Received::Pong,
        text("\u{20ac}"),
        Received::Binary(Vec::new()),
        text(""),
        Received::Close(Some(1001)),
    ];
    assert_eq!(receive(&frames, &RULES), (expected, Ok(())));
    let deflated = [
        client(0x41, b"\xf2\x48\xcd"),
        client(0x89, b""),
        client(0x00, b""),
        client(0x80, b"\xc9\xc9\x07\x00"),
        client(0x81, b"plain"),
    ];
    let expected = vec![Received::Ping(Vec::new()), text("Hello"), text("plain")];
    assert_eq!(receive(&deflated.concat(), &RULES), (expected, Ok(())));
}

#[test]
fn broken_frames_are_refused() {
    let rows: &[(&str, &[u8], u16)] = &[
        ("not masked", b"\x81\x05", 1002),
        ("not masked, empty", b"\x81\x00", 1002),
        ("RSV1 without an extension", b"\xc1", 1002),
        ("RSV2", b"\xa1", 1002),
        ("RSV3", b"\x91", 1002),
        ("opcode 3", b"\x83", 1002),
        ("opcode 7", b"\x07", 1002),
        ("opcode 11", b"\x8b", 1002),
        ("opcode 15", b"\x8f", 1002),
        ("a fragmented ping", b"\x09", 1002),
        ("a fragmented close", b"\x08", 1002),
        ("a long ping", b"\x89\xfe", 1002),
        ("a very long pong", b"\x8a\xff", 1002),
        ("a continuation of nothing", b"\x80", 1002),
        ("125 in two bytes", b"\x82\xfe\x00\x7d", 1002),
        ("0 in two bytes", b"\x82\xfe\x00\x00", 1002),
        ("65535 in eight bytes", b"\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff", 1002),
        ("a negative length", b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00", 1002),
        ("the longest length", b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", 1009),
        ("a byte too many", b"\x82\xff\x00\x00\x00\x00\x00\x01\x11\x71", 1009),
    ];
    for (name, bytes, code) in rows {
        assert_eq!(receive(bytes, &PLAIN), (vec![], Err(*code)), "{name}");
        let without_last = &bytes[..bytes.len() - 1];
        assert_eq!(receive(without_last, &PLAIN), (vec![], Ok(())), "{name}: not before its time");
    }
    let rows: &[(&str, &[Frame<'_>])] = &[
        ("text within text", &[(0x01, b"a"), (0x81, b"b")]),
        ("bytes within text", &[(0x01, b"a"), (0x02, b"b")]),
        ("a continuation after the last", &[(0x01, b"a"), (0x80, b"b"), (0x80, b"c")]),
        ("RSV1 on a continuation", &[(0x41, b"a"), (0xc0, b"b")]),
        ("RSV1 on a ping", &[(0xc9, b"")]),
        ("RSV1 on a close", &[(0xc8, b"")]),
        ("a close of one byte", &[(0x88, b"\x03")]),
    ];
    for (name, frames) in rows {
        let (received, end) = receive(&clients(frames), &RULES);
        assert_eq!(end, Err(1002), "{name}");
        assert!(received.len() <= 1);
    }
}

#[test]
fn close_codes_are_checked() {
    assert_eq!(receive(&client(0x88, b""), &PLAIN), (vec![Received::Close(None)], Ok(())));
    for code in 0..=u16::MAX {
        let allowed = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        let expected = match allowed {
            true => (vec![Received::Close(Some(code))], Ok(())),
            false => (vec![], Err(1002)),
        };
        assert_eq!(receive_pieces(&client(0x88, &code.to_be_bytes()), [], &PLAIN), expected);
    }
    let reason = [&1000_u16.to_be_bytes(), &[0xe9][..]].concat();
    assert_eq!(receive(&client(0x88, &reason), &PLAIN), (vec![], Err(1007)));
    let reason = [&1000_u16.to_be_bytes()[..], &[b'a'; 123]].concat();
    let expected = (vec![Received::Close(Some(1000))], Ok(()));
    assert_eq!(receive(&client(0x88, &reason), &PLAIN), expected);
}

/// The first byte that cannot be UTF-8 ends it, in the middle of a frame or of a message.
#[test]
fn text_is_refused_as_soon_as_it_is_not_utf_8() {
    let rows: &[(&[u8], usize)] = &[
        (b"\xff", 1),
        (b"\x80", 1),
        (b"\xc0\xaf", 1),
        (b"\xc3(", 2),
        (b"a\xe2\x82a", 4),
        (b"\xe0\x9f", 2),
        (b"\xed\xa0\x80", 2),
        (b"\xf0\x8f", 2),
        (b"\xf4\x90\x80\x80", 2),
        (b"\xf5", 1),
        (b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90", 13),
    ];
    for (bad, wrong_bytes) in rows {
        let payload = [bad, &b"..."[..]].concat();
        let header_bytes = 6;
        let bytes = client(0x81, &payload);
        let seen = &bytes[..header_bytes + wrong_bytes];
        assert_eq!(receive(seen, &PLAIN), (vec![], Err(1007)), "{bad:x?}");
        let good = receive(&bytes[..header_bytes + wrong_bytes - 1], &PLAIN);
        assert_eq!(good, (vec![], Ok(())), "{bad:x?}: not before its time");
        let (first, rest) = payload.split_at(wrong_bytes - 1);
        let fragments = clients(&[(0x01, first), (0x89, b""), (0x80, rest)]);
        let expected = (vec![Received::Ping(vec![])], Err(1007));
        assert_eq!(receive(&fragments, &PLAIN), expected, "{bad:x?} in fragments");
        assert_eq!(receive(&client(0x82, bad), &PLAIN).1, Ok(()), "bytes may be anything");
    }
    for cut in [&b"\xe2"[..], b"\xe2\x82", b"\xf0\x9f\x98", b"a\xc3"] {
        assert_eq!(receive(&client(0x81, cut), &PLAIN), (vec![], Err(1007)), "cut off: {cut:x?}");
    }
    let deflated = client(0xc1, &deflate(&[0xff; 100]));
    assert_eq!(receive(&deflated, &RULES), (vec![], Err(1007)), "deflated");
}

#[test]
fn messages_are_no_longer_than_allowed() {
    let rules = Rules { message_bytes_max: 10, deflate: true };
    let ten = Received::Binary(vec![b'a'; 10]);
    assert_eq!(receive(&client(0x82, &[b'a'; 10]), &rules), (vec![ten.clone()], Ok(())));
    let announced = &client(0x82, &[b'a'; 11])[..2];
    assert_eq!(receive(announced, &rules), (vec![], Err(1009)), "before a byte of it came");
    let fragments = clients(&[(0x02, &[b'a'; 6]), (0x89, &[0; 125]), (0x80, &[b'a'; 4])]);
    let ping = Received::Ping(vec![0; 125]);
    assert_eq!(receive(&fragments, &rules), (vec![ping, ten.clone()], Ok(())), "pings are apart");
    let fragments = clients(&[(0x02, &[b'a'; 6]), (0x80, &[b'a'; 5])]);
    assert_eq!(receive(&fragments, &rules), (vec![], Err(1009)), "the sum of the fragments");
    let deflated = |length| client(0xc2, &deflate(&vec![b'a'; length]));
    assert_eq!(receive(&deflated(10), &rules), (vec![ten], Ok(())));
    assert_eq!(receive(&deflated(11), &rules), (vec![], Err(1009)), "inflated");
    let none = Rules { message_bytes_max: 0, deflate: false };
    assert_eq!(receive(&client(0x81, b""), &none), (vec![text("")], Ok(())));
    assert_eq!(receive(&client(0x81, b"a"), &none), (vec![], Err(1009)));
}

#[test]
fn fragments_are_counted() {
    let rules = Rules { message_bytes_max: 160, deflate: false };
    let most = 64 + 10;
    let fragments = |count: usize| {
        let mut bytes = client(0x02, b"");
        for _ in 2..count {
            bytes.extend(client(0x00, b""));
        }
        bytes.extend(client(0x80, b""));
        receive_pieces(&bytes, [], &rules)
    };
    assert_eq!(fragments(most), (vec![Received::Binary(vec![])], Ok(())));
    assert_eq!(fragments(most + 1), (vec![], Err(1008)));
    // Control frames are no fragments, and each message counts anew.
    let pings = clients(&[(0x02, b"")]).into_iter();
    let pings = pings.chain(client(0x89, b"").repeat(2 * most)).chain(client(0x80, b""));
    let bytes: Vec<u8> = pings.collect();
    assert_eq!(receive_pieces(&bytes.repeat(3), [], &rules).1, Ok(()));
}

#[test]
fn a_decoder_that_waits_holds_nothing() {
    let mut decoder = Decoder::default();
    assert!(decoder.is_idle());
    let bytes = clients(&[(0x01, b"ab"), (0x89, b"c"), (0x80, b"d")]);
    let mut idle_at = Vec::new();
    for (i, byte) in bytes.iter().enumerate() {
        decoder.next(&mut Inflater::default(), &[*byte], &PLAIN).unwrap();
        if decoder.is_idle() {
            assert_eq!(decoder.own_bytes(), size_of::<Decoder>());
            idle_at.push(i + 1);
        }
    }
    assert_eq!(idle_at, [bytes.len()]);

    // What is announced is not yet allocated.
    let rules = Rules { message_bytes_max: 1 << 40, deflate: false };
    let mut decoder = Decoder::new();
    let start = b"\x82\xff\x00\x00\x00\xff\x00\x00\x00\x00\x00\x00\x00\x00abc";
    decoder.next(&mut Inflater::default(), start, &rules).unwrap();
    assert!(!decoder.is_idle());
    assert!((3..100).contains(&(decoder.own_bytes() - size_of::<Decoder>())));
}

#[test]
fn what_is_not_deflate_is_refused() {
    assert_eq!(receive(&client(0xc1, b"\xff"), &RULES), (vec![], Err(1007)));
    assert_eq!(receive(&client(0xc2, b"\xf2\x48\xcd"), &RULES), (vec![], Err(1007)), "cut off");
}

/// Each makes the inflater begin anew: a few are a sender's way to flush, thousands are an attack.
#[test]
fn too_many_last_blocks_are_refused() {
    let steps = |blocks: usize| {
        let message = [&b"\x03\x00".repeat(blocks)[..], b"\x00"].concat();
        let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
        let end = decoder.next(&mut inflater, &client(0xc2, &message), &RULES);
        (end.map_err(|violation| violation.code), inflater.steps())
    };
    let (end, few) = steps(64);
    assert!(matches!(end, Ok((_, Some(Received::Binary(data)))) if data.is_empty()));
    assert_eq!(few, 65, "one for each, and one for the end");
    let (end, many) = steps(34_000);
    assert_eq!(end, Err(1008));
    assert!(many <= 64 + 68_010 / 64, "{many} steps");
}

/// A message is looked at once, in whatever pieces it comes.
#[test]
fn small_pieces_cost_linear_time() {
    let rules = Rules { message_bytes_max: 3_000_000, deflate: false };
    let message = "\u{20ac}".repeat(1_000_000);
    let bytes = client(0x81, message.as_bytes());
    let (received, end) = receive_pieces(&bytes, 0..bytes.len(), &rules);
    assert!(received == [text(&message)] && end.is_ok());
}

/// A decoder as another process packed it.
fn unpack(decoder: &Decoder) -> Result<Decoder, &'static str> {
    let mut packer = Packer::new(0);
    decoder.pack(&mut packer);
    let bytes = packer.into_bytes();
    Decoder::unpack(&mut Unpacker::new(&bytes, 0))
}

#[test]
fn every_state_of_a_decoder_can_be_unpacked() {
    let long = vec![b'x'; 300];
    let frames: [Frame<'_>; 6] =
        [(0x01, b"ab"), (0x89, b"c"), (0x80, &long), (0x82, b""), (0x8a, b""), (0xc1, b"\x02\x00")];
    let mut decoder = Decoder::new();
    for byte in clients(&frames) {
        decoder = unpack(&decoder).unwrap();
        decoder.next(&mut Inflater::default(), &[byte], &RULES).unwrap();
    }
    assert!(unpack(&decoder).is_ok());
}

fn decoders() -> impl Strategy<Value = Decoder> {
    const OPCODES: [Opcode; 6] = [
        Opcode::Continuation,
        Opcode::Text,
        Opcode::Binary,
        Opcode::Close,
        Opcode::Ping,
        Opcode::Pong,
    ];
    let second = prop_oneof![0..4_u8, 124..=127_u8].prop_map(|length| MASK | length);
    let left = prop_oneof![0..4_usize, 120..130_usize, Just(usize::MAX)];
    let message = proptest::option::of((any::<bool>(), any::<bool>(), 0..6_usize));
    let frame = (any::<u8>(), second, 0..=15_usize, prop::sample::select(&OPCODES), left);
    (frame, message, 0..130_usize).prop_map(|(frame, message, control_bytes)| {
        let (first, second, header_bytes, opcode, left) = frame;
        let mut header = [0; KEY_START_MAX];
        (header[0], header[1]) = (first, second);
        let message = message.map(|(is_text, is_deflated, checked)| PartialMessage {
            is_text,
            is_deflated,
            fragments: 1,
            data: b"data".to_vec(),
            checked,
        });
        let control = vec![0; control_bytes / 2];
        Decoder { header, header_bytes, opcode, key: [0; 4], left, message, control }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 10_000, ..Default::default()
    })]

    /// An unpacked decoder never panics, and no control frame exceeds its limit.
    #[test]
    fn an_unpacked_decoder_keeps_its_limits(decoder in decoders()) {
        let Ok(mut decoder) = unpack(&decoder) else { return Ok(()) };
        let input = [&[0; 14][..], &[MASK; 300], &client(0x89, b"ping")].concat();
        let mut at = 0;
        while let Ok((used, received)) =
            decoder.next(&mut Inflater::default(), &input[at..], &RULES)
        {
            at += used;
            prop_assert!(decoder.control.len() <= CONTROL_BYTES_MAX);
            match received {
                Some(Received::Ping(data)) => prop_assert!(data.len() <= CONTROL_BYTES_MAX),
                Some(_) => {}
                None => break,
            }
        }
    }
}
