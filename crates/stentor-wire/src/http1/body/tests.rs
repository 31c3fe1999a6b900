//! Tables of bodies, good and bad, each decoded at every split and one byte at a time.

use super::*;

/// How a body that arrived in pieces came out: its content, and how it ended.
#[derive(PartialEq, Debug)]
struct Decoded {
    content: Vec<u8>,
    /// Bytes up to the end of the body, or the status of the refusal; `None` if it goes on.
    end: Option<Result<usize, u16>>,
}

/// Decodes `bytes` that arrive in pieces that end at `cuts`.
fn decode_pieces(
    length: BodyLength,
    bytes: &[u8],
    cuts: impl IntoIterator<Item = usize>,
) -> Decoded {
    let mut body = Body::new(length);
    let mut content = Vec::new();
    let mut at = 0;
    for cut in cuts.into_iter().chain([bytes.len()]) {
        loop {
            match body.next(&bytes[at..cut]) {
                Ok(Step::Data { data, used }) => {
                    assert!(!data.is_empty() && used >= data.len());
                    assert_eq!(data, &bytes[at + used - data.len()..at + used]);
                    content.extend_from_slice(data);
                    at += used;
                }
                Ok(Step::More { used }) => {
                    at += used;
                    assert_eq!(at, cut, "more is wanted only when all is consumed");
                    break;
                }
                Ok(Step::End { used }) => {
                    at += used;
                    assert_eq!(body.next(&bytes[at..]), Ok(Step::End { used: 0 }), "it stays so");
                    return Decoded { content, end: Some(Ok(at)) };
                }
                Err(refusal) => return Decoded { content, end: Some(Err(refusal.status().0)) },
            }
        }
    }
    Decoded { content, end: None }
}

/// Decodes whole, at every split point and one byte at a time; all must agree.
fn decode(length: BodyLength, bytes: &[u8]) -> Decoded {
    let whole = decode_pieces(length, bytes, []);
    for cut in 0..bytes.len() {
        assert_eq!(decode_pieces(length, bytes, [cut]), whole, "cut at {cut}: {bytes:?}");
    }
    assert_eq!(decode_pieces(length, bytes, 0..bytes.len()), whole, "byte by byte: {bytes:?}");
    whole
}

/// The content of a chunked body that ends with the vector.
fn content(bytes: &[u8]) -> Vec<u8> {
    let decoded = decode(BodyLength::Chunked, bytes);
    assert_eq!(decoded.end, Some(Ok(bytes.len())), "{bytes:?}");
    decoded.content
}

/// The status a chunked body is refused with; 0 if it is not, or not yet.
fn status(bytes: &[u8]) -> u16 {
    match decode(BodyLength::Chunked, bytes).end {
        Some(Err(status)) => status,
        _ => 0,
    }
}

#[test]
fn no_body_ends_at_once() {
    for length in [BodyLength::None, BodyLength::Length(0)] {
        let decoded = decode(length, b"GET / HTTP/1.1\r\n");
        assert_eq!(decoded, Decoded { content: Vec::new(), end: Some(Ok(0)) });
    }
}

#[test]
fn a_length_takes_that_many_bytes() {
    let decoded = decode(BodyLength::Length(5), b"hello, next request");
    assert_eq!(decoded, Decoded { content: b"hello".to_vec(), end: Some(Ok(5)) });
    let decoded = decode(BodyLength::Length(u64::MAX), b"hello");
    assert_eq!(decoded, Decoded { content: b"hello".to_vec(), end: None });
}

#[test]
fn chunks_are_joined() {
    let rows: &[(&[u8], &[u8])] = &[
        (b"0\r\n\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n", b"hello, world"),
        (b"A\r\n0123456789\r\n000\r\n\r\n", b"0123456789"),
        (b"00000000000000a\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
        (b"1\r\n0\r\n0\r\n\r\n", b"0"),
        (b"1;a\r\nx\r\n0;b\r\n\r\n", b"x"),
        (b"1;a=b;c=\"d;\\\"\t\xe9\";e\r\nx\r\n0\r\n\r\n", b"x"),
        (b"1;a=\"\"\r\nx\r\n0\r\n\r\n", b"x"),
        (b"1\r\nx\r\n0\r\nA: b\r\nC:\t d \xe9\r\nE:\r\n\r\n", b"x"),
    ];
    for (bytes, expected) in rows {
        assert_eq!(content(bytes), *expected, "{bytes:?}");
    }
}

#[test]
fn what_follows_the_body_is_left_alone() {
    let decoded = decode(BodyLength::Chunked, b"1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n");
    assert_eq!(decoded, Decoded { content: b"x".to_vec(), end: Some(Ok(11)) });
}

#[test]
fn malformed_chunks_are_refused() {
    let rows: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b" 1\r\nx",
        b"1 \r\nx",
        b"1\t\r\nx",
        b"+1\r\nx",
        b"-1\r\nx",
        b"0x1\r\nx",
        b"1_0\r\nx",
        b"g\r\n",
        b"1h\r\nx",
        b"1.0\r\nx",
        b"00000000000000001\r\nx",
        b"10000000000000000\r\nx",
        b"1\nx\r\n0\r\n\r\n",
        b"1\rx",
        b"1\r\r\n",
        b"1\r\nxy\r\n",
        b"2\r\nx\r\n0\r\n\r\n",
        b"1\r\nx0\r\n\r\n",
        b"1\r\nx\n0\r\n\r\n",
        b"1\r\nx\r0",
        b"\0",
        b";a\r\n",
        b"1\r\nx\r\n\r\n",
        b"1;\r\nx",
        b"1;;a\r\nx",
        b"1;a;\r\nx",
        b"1;=b\r\nx",
        b"1;a=\r\nx",
        b"1;a=;b\r\nx",
        b"1;a=b=c\r\nx",
        b"1; a\r\nx",
        b"1 ;a\r\nx",
        b"1;a \r\nx",
        b"1;a= b\r\nx",
        b"1;a\nx\r\n0\r\n\r\n",
        b"1;a=b\nx",
        b"1;a\0b\r\nx",
        b"1;a=\"b\0\"\r\nx",
        b"1;a=\"b\n\"\r\nx",
        b"1;a=\"b\r\n\"\r\nx",
        b"1;a=\"b\\\r\n",
        b"1;a=\"b\"c\r\nx",
        b"1;a=b\"c\"\r\nx",
        b"1;a\rb",
        b"1;a=\xe9\r\nx",
    ];
    for bytes in rows {
        assert_eq!(status(bytes), 400, "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn malformed_trailers_are_refused() {
    let rows: &[&[u8]] = &[
        b"0\r\n\n",
        b"0\r\n\r\r",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\n A: b\r\n\r\n",
        b"0\r\nA: b\r\n c\r\n\r\n",
        b"0\r\n: b\r\n\r\n",
        b"0\r\nA\r\n\r\n",
        b"0\r\nA: b\rc\r\n\r\n",
        b"0\r\nA: b\0\r\n\r\n",
        b"0\r\nA: b\x7f\r\n\r\n",
        b"0\r\nGET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in rows {
        assert_eq!(status(bytes), 400, "{:?}", String::from_utf8_lossy(bytes));
    }
    let smuggled = b"0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: b\r\n\r\n";
    assert_eq!(content(smuggled), b"", "trailers are dropped, whatever they say");
}

/// The outcome without trying every split, for long bodies.
fn long_status(bytes: &[u8]) -> u16 {
    let whole = decode_pieces(BodyLength::Chunked, bytes, []);
    assert_eq!(decode_pieces(BodyLength::Chunked, bytes, 0..bytes.len()), whole);
    match whole.end {
        Some(Err(status)) => status,
        Some(Ok(end)) => {
            assert_eq!(end, bytes.len());
            0
        }
        None => panic!("the body is not complete"),
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let extension =
        |len: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(len - 2)).into_bytes();
    assert_eq!(long_status(&extension(4096 - 1)), 0, "with the CR, 4096 bytes");
    assert_eq!(long_status(&extension(4096)), 400);
    assert_eq!(long_status(&extension(64 * 1024)), 400);
    let trailer = |len: usize| format!("0\r\nA:{}\r\n\r\n", "b".repeat(len)).into_bytes();
    assert_eq!(long_status(&trailer(8192 - 5)), 0, "with name, colon and line ends, 8192 bytes");
    assert_eq!(long_status(&trailer(8192 - 4)), 431);
    let many = format!("0\r\n{}\r\n", "A:b\r\n".repeat(2000));
    assert_eq!(long_status(many.as_bytes()), 431);
}

#[test]
fn one_byte_chunks_are_fine_for_ever_but_padding_is_not() {
    let repeat = |chunk: &str, count: usize| chunk.repeat(count) + "0\r\n\r\n";
    assert_eq!(long_status(repeat("1\r\nx\r\n", 100_000).as_bytes()), 0);
    assert_eq!(long_status(repeat("1;a=b\r\nx\r\n", 100_000).as_bytes()), 0, "within what is paid");
    let padded = format!("1;{}\r\nx\r\n", "a".repeat(100));
    assert_eq!(long_status(repeat(&padded, 150).as_bytes()), 0);
    assert_eq!(long_status(repeat(&padded, 300).as_bytes()), 400, "over 16 KiB in excess");
    let zeros = "0000000000000001\r\nx\r\n";
    assert_eq!(long_status(repeat(zeros, 3_000).as_bytes()), 0);
    assert_eq!(long_status(repeat(zeros, 10_000).as_bytes()), 400);
    let well_paid = format!("400;{}\r\n{}\r\n", "a".repeat(1000), "x".repeat(1024));
    assert_eq!(long_status(repeat(&well_paid, 100).as_bytes()), 0);
}

#[test]
fn every_byte_is_handled_once() {
    // Whatever the split, calls that consume add up to the input: a byte is framing or content,
    // once. One-byte chunks, one byte at a time, is the worst case of both.
    let bytes = "1\r\nx\r\n".repeat(1000) + "0\r\n\r\n";
    let mut body = Body::new(BodyLength::Chunked);
    let mut calls = 0;
    let mut consumed = 0;
    for byte in bytes.as_bytes() {
        let mut left = std::slice::from_ref(byte);
        loop {
            calls += 1;
            let (used, go_on) = match body.next(left).expect("the body is good") {
                Step::Data { used, .. } => (used, true),
                Step::More { used } | Step::End { used } => (used, false),
            };
            consumed += used;
            left = &left[used..];
            if !go_on {
                break;
            }
        }
    }
    assert_eq!(consumed, bytes.len());
    assert_eq!(calls, bytes.len() + 1000, "one call a byte, one more after each piece of content");
}

#[test]
fn huge_sizes_do_not_overflow() {
    let decoded = decode(BodyLength::Chunked, b"ffffffffffffffff\r\nabc");
    assert_eq!(decoded, Decoded { content: b"abc".to_vec(), end: None });
}

#[test]
fn a_body_is_small() {
    assert!(size_of::<Body>() <= 24, "it is part of every connection: {}", size_of::<Body>());
}

/// The limit holds for a body that another process hands over, too.
#[test]
fn a_body_over_its_framing_limit_stays_packed() {
    use crate::pack::{Packed, Packer, Unpacker};
    for (excess, is_taken) in [(EXCESS_BYTES_MAX, true), (EXCESS_BYTES_MAX + 1, false)] {
        let framing = BodyFraming::Chunked(Chunked { excess, ..Chunked::default() });
        let mut packer = Packer::new(0);
        Body { framing }.pack(&mut packer);
        let bytes = packer.into_bytes();
        assert_eq!(Body::unpack(&mut Unpacker::new(&bytes, 0)).is_ok(), is_taken, "{excess}");
    }
}
