//! Offers and answers, the examples of RFC 7692, and messages made to be a nuisance.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn deflate(data: &[u8], window_bits: u8) -> Option<Vec<u8>> {
    super::deflate(&mut Deflater::default(), data, window_bits).map(<[u8]>::to_vec)
}

fn inflate(deflated: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, MessageError> {
    super::inflate(&mut Inflater::default(), deflated, bytes_max)
}

const BROKEN: MessageError = MessageError::Inflate(InflateError::Broken);
const TOO_LONG: MessageError = MessageError::Inflate(InflateError::TooLong);

#[test]
fn the_first_acceptable_offer_is_taken() {
    let rows: &[(&str, Option<(u8, bool)>)] = &[
        ("permessage-deflate", Some((15, false))),
        ("Permessage-Deflate", Some((15, false))),
        ("permessage-deflate; client_max_window_bits", Some((15, false))),
        ("permessage-deflate; client_max_window_bits=10", Some((15, false))),
        ("permessage-deflate; client_max_window_bits=8", Some((15, false))),
        ("permessage-deflate; server_no_context_takeover", Some((15, false))),
        (
            "permessage-deflate;server_no_context_takeover ;\tclient_no_context_takeover",
            Some((15, false)),
        ),
        ("permessage-deflate; server_max_window_bits=15", Some((15, true))),
        ("permessage-deflate; server_max_window_bits=9", Some((9, true))),
        ("permessage-deflate; server_max_window_bits=\"10\"", Some((10, true))),
        ("permessage-deflate; server_max_window_bits = 11", Some((11, true))),
        ("permessage-deflate; server_max_window_bits=8", None),
        ("permessage-deflate; server_max_window_bits=8, permessage-deflate", Some((15, false))),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_max_window_bits=", None),
        ("permessage-deflate; server_max_window_bits=16", None),
        ("permessage-deflate; server_max_window_bits=7", None),
        ("permessage-deflate; server_max_window_bits=09", None),
        ("permessage-deflate; server_max_window_bits=+9", None),
        ("permessage-deflate; server_max_window_bits=100", None),
        ("permessage-deflate; server_max_window_bits=9; server_max_window_bits=9", None),
        ("permessage-deflate; client_max_window_bits=\"\"", None),
        ("permessage-deflate; client_max_window_bits=0", None),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits", None),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits=9", None),
        ("permessage-deflate; server_no_context_takeover=1", None),
        ("permessage-deflate; client_no_context_takeover=", None),
        ("permessage-deflate; client_no_context_takeover; client_no_context_takeover", None),
        ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
        ("permessage-deflate; unknown", None),
        ("permessage-deflate;", None),
        ("permessage-deflate; x, permessage-deflate; server_max_window_bits=12", Some((12, true))),
        ("x-webkit-deflate-frame, permessage-deflate", Some((15, false))),
        ("foo; x=\", permessage-deflate\"", None),
        ("foo; x=\"\\\", permessage-deflate", None),
        ("permessage-bzip2", None),
        ("permessage-deflate-2", None),
        ("", None),
        (",;,", None),
    ];
    for (header, expected) in rows {
        let agreed = negotiate_deflate(Some(header.as_bytes()));
        let agreed = agreed.map(|agreed| (agreed.server_window_bits, agreed.server_window_named));
        assert_eq!(agreed, *expected, "{header}");
    }
    assert_eq!(negotiate_deflate(None), None);
}

#[test]
fn answers_name_what_was_agreed_on() {
    let response = |header: &str| {
        let mut out = b"x".to_vec();
        negotiate_deflate(Some(header.as_bytes())).unwrap().write_response(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        response("permessage-deflate; client_max_window_bits"),
        "xpermessage-deflate; server_no_context_takeover; client_no_context_takeover"
    );
    assert_eq!(
        response("permessage-deflate; server_max_window_bits=15"),
        "xpermessage-deflate; server_no_context_takeover; client_no_context_takeover; \
         server_max_window_bits=15"
    );
}

/// RFC 7692 section 7.2.3.
#[test]
fn the_examples_of_the_standard() {
    let rows: &[(&str, &[u8], &[u8])] = &[
        ("7.2.3.1", b"\xf2\x48\xcd\xc9\xc9\x07\x00", b"Hello"),
        ("7.2.3.2, the first", b"\xf2\x48\xcd\xc9\xc9\x07\x00", b"Hello"),
        ("7.2.3.3", b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", b"Hello"),
        ("7.2.3.4", b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", b"Hello"),
        ("7.2.3.5", b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", b"Hello"),
        ("7.2.3.6", b"\x00", b""),
        (
            "a last block in the middle",
            b"\xf3\x48\xcd\xc9\xc9\x07\x00\xf2\x48\xcd\xc9\xc9\x07\x00",
            b"HelloHello",
        ),
    ];
    for (name, deflated, data) in rows {
        assert_eq!(inflate(deflated.to_vec(), 100).as_deref(), Ok(*data), "{name}");
    }
    let second = inflate(b"\xf2\x00\x11\x00\x00".to_vec(), 100);
    assert_eq!(second, Err(BROKEN), "7.2.3.2, which refers to a message before");
}

#[test]
fn what_is_no_message_is_refused() {
    let whole = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    for end in 1..whole.len() {
        let cut = inflate(whole[..end].to_vec(), 100);
        assert_eq!(cut, Err(BROKEN), "cut off at {end}");
    }
    let broken: &[&[u8]] = &[
        b"\xff",
        b"\x06",
        b"\xf2\x48\xcd\xc9\xc9\x07\x00\x00\x00\xff",
        b"\x00\x05\x00\xfa\xfe\x48\x65\x6c\x6c\x6f\x00",
        b"\x00\x05\x00\xfa\xff\x48\x65\x6c",
    ];
    for deflated in broken {
        assert_eq!(inflate(deflated.to_vec(), 100), Err(BROKEN), "{deflated:x?}");
    }
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let zeros = vec![0; 10_000_000];
    let bomb = deflate(&zeros, 15).unwrap();
    assert!(bomb.len() < 20_000);
    assert_eq!(inflate(bomb.clone(), 9_999_999), Err(TOO_LONG));
    assert_eq!(inflate(bomb.clone(), 0), Err(TOO_LONG));
    let data = inflate(bomb, 10_000_000).unwrap();
    assert_eq!(data, zeros);
    assert!(data.capacity() <= 10_000_001 + 64);
    assert_eq!(inflate(b"\x00".to_vec(), 0).as_deref(), Ok(&b""[..]), "nothing fits anywhere");
}

/// A sender that ends its stream to flush is read, however long its message.
#[test]
fn last_blocks_are_counted_by_the_length() {
    let block = [&b"\x01\x3e\x00\xc1\xff"[..], &[b'x'; 62]].concat();
    let blocks = [block.repeat(5_000), b"\x00".to_vec()].concat();
    assert_eq!(inflate(blocks, 310_000).unwrap().len(), 310_000);
    let mut blocks = b"\x03\x00".repeat(STREAMS_MIN - 1);
    blocks.push(0);
    assert_eq!(inflate(blocks, 100).as_deref(), Ok(&b""[..]));
    let mut blocks = b"\x03\x00".repeat(500_000);
    blocks.push(0);
    assert_eq!(inflate(blocks, 100), Err(MessageError::ManyLastBlocks));
}

#[test]
fn only_what_becomes_smaller_is_deflated() {
    for data in [&b""[..], b"a", b"Hello", b"0123456789abcdefghijklmnopqrstuvwxyz"] {
        assert_eq!(deflate(data, 15), None, "{data:?}");
    }
    let text = b"{\"bid\":1.5,\"ask\":1.6},".repeat(10);
    for bits in 9..=15 {
        let deflated = deflate(&text, bits).expect("any window will do");
        assert!(deflated.len() < 50 && !deflated.ends_with(FLUSH_END));
        assert_eq!(inflate(deflated, text.len()), Ok(text.clone()));
    }
}

/// A reader with a small window can read what was deflated for it: there is nothing further back.
#[test]
fn windows_are_kept_to() {
    let text = b"so it is said again and again, ".repeat(2_000);
    for bits in 9..15 {
        let window = 1 << bits;
        let deflated = deflate(&text[..window], bits).expect("all of it is in the window");
        assert_eq!(inflate(deflated, window).unwrap(), text[..window]);
        assert_eq!(deflate(&text[..=window], bits), None, "{bits} bits");
    }
    let deflated = deflate(&text, 15).expect("the largest window is for any length");
    assert_eq!(inflate(deflated, text.len()), Ok(text));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn messages_come_back(
        pieces in vec(vec(any::<u8>(), 0..40), 0..8),
        order in vec(any::<prop::sample::Index>(), 0..200),
        bits in 9..=15_u8,
    ) {
        let data: Vec<u8> = order
            .iter()
            .filter(|_| !pieces.is_empty())
            .flat_map(|index| index.get(&pieces).clone())
            .collect();
        let deflated = deflate(&data, bits);
        prop_assert!(deflated.is_none() || data.len() <= 1 << bits);
        if let Some(deflated) = deflated {
            prop_assert!(deflated.len() < data.len());
            prop_assert_eq!(inflate(deflated, data.len()), Ok(data));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_bounded(
        data in vec(any::<u8>(), 0..200),
        bytes_max in 0..400_usize,
    ) {
        if let Ok(inflated) = inflate(data, bytes_max) {
            prop_assert!(inflated.len() <= bytes_max);
        }
    }
}
