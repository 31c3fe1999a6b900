//! Tables of heads, good and bad, each read at every split.

use super::*;
use crate::http1::{Body, BodyLength, FIELDS_MAX, Step};

/// Reads the head that `bytes` begin with. Any part of them must say the same or be incomplete, and
/// so must they with more behind them.
fn read(bytes: &[u8]) -> Result<Option<ResponseHead<'_>>, Malformed> {
    let whole = parse(bytes);
    for cut in 0..bytes.len() {
        let part = parse(&bytes[..cut]);
        assert!(part == Ok(None) || part == whole, "cut at {cut}: {part:?} is not {whole:?}");
    }
    if whole != Ok(None) {
        let longer = [bytes, b"HTTP/1.1 404 No\r\nContent-Length: 7\r\n\r\n"].concat();
        assert_eq!(parse(&longer), whole, "more behind it");
    }
    if let Err(malformed) = whole {
        assert!(malformed.reason.ends_with('.') && malformed.reason.len() < 100);
    }
    whole
}

/// Writes a head: CRLF for LF, and an empty line at the end.
fn head(lines: &str) -> Vec<u8> {
    format!("{lines}\n\n").replace('\n', "\r\n").into_bytes()
}

#[test]
fn what_matters_of_a_head_is_lent() {
    let bytes = head(
        "HTTP/1.1 200 OK\nServer: x\nContent-Type:  text/plain \nETag: \"a-1\"\n\
         Last-Modified: Sat, 21 Nov 2026 10:33:06 GMT\nCONTENT-LENGTH: 6\nX-Etag: \"b\"\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\netag: \"a-2\"",
    );
    let expected = ResponseHead {
        len: bytes.len(),
        status: 200,
        body: ResponseBody::Length(6),
        keep_alive: true,
        etag: Some(b"\"a-1\""),
        last_modified: Some(b"Sat, 21 Nov 2026 10:33:06 GMT"),
        content_type: Some(b"text/plain"),
        websocket_accept: Some(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    };
    assert_eq!(read(&bytes), Ok(Some(expected)));
}

#[test]
fn bodies_are_framed_as_the_rfc_says() {
    use ResponseBody::{Chunked, Length, None, UntilClose};
    let rows: &[(&str, ResponseBody)] = &[
        ("HTTP/1.1 200 OK", UntilClose),
        ("HTTP/1.1 200 OK\nContent-Length: 0", Length(0)),
        ("HTTP/1.1 200 OK\nContent-Length: 007", Length(7)),
        ("HTTP/1.1 200 OK\nContent-Length: 18446744073709551615", Length(u64::MAX)),
        ("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 5", Length(5)),
        ("HTTP/1.1 200 OK\nContent-Length: 5 ,5", Length(5)),
        ("HTTP/1.0 200 OK\nContent-Length: 5", Length(5)),
        ("HTTP/1.0 200 OK", UntilClose),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", Chunked),
        ("HTTP/1.1 200 OK\ntransfer-encoding: Chunked", Chunked),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked", Chunked),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\nTransfer-Encoding: chunked", Chunked),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip", UntilClose),
        ("HTTP/1.1 100 Continue", None),
        ("HTTP/1.1 101 Switching Protocols\nUpgrade: websocket", None),
        ("HTTP/1.1 103 Early Hints\nLink: </a>", None),
        ("HTTP/1.1 204 No Content", None),
        ("HTTP/1.1 204 No Content\nTransfer-Encoding: chunked", None),
        ("HTTP/1.1 205 Reset Content", UntilClose),
        ("HTTP/1.1 304 Not Modified\nContent-Length: 5", None),
        ("HTTP/1.1 404 Not Found\nContent-Length: 5", Length(5)),
        ("HTTP/1.1 999 \nContent-Length: 5", Length(5)),
    ];
    for (lines, body) in rows {
        let bytes = head(lines);
        let found = read(&bytes).map(|head| head.map(|head| (head.body, head.len)));
        assert_eq!(found, Ok(Some((*body, bytes.len()))), "{lines}");
    }
}

#[test]
fn connections_are_kept_as_the_rfc_says() {
    let rows = [
        ("HTTP/1.1 204 No", true),
        ("HTTP/1.1 200 OK\nContent-Length: 1\nConnection: keep-alive", true),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", true),
        ("HTTP/1.1 204 No\nConnection: close", false),
        ("HTTP/1.1 204 No\nConnection: a, Close\nConnection: b", false),
        ("HTTP/1.1 204 No\nConnection: closed", true),
        ("HTTP/1.1 200 OK\nConnection: keep-alive", false),
        ("HTTP/1.1 101 Now\nConnection: upgrade\nUpgrade: websocket", false),
        ("HTTP/1.0 204 No", false),
        ("HTTP/1.0 204 No\nConnection: keep-alive", true),
        ("HTTP/1.0 204 No\nConnection: keep-alive, close", false),
    ];
    for (lines, keep_alive) in rows {
        let bytes = head(lines);
        let found = read(&bytes).map(|head| head.map(|head| head.keep_alive));
        assert_eq!(found, Ok(Some(keep_alive)), "{lines}");
    }
}

#[test]
fn what_other_servers_write_is_read() {
    for bytes in [
        "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 \u{e9}t\u{e9}\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length:0\r\nX:\r\n\r\n",
    ] {
        let found = read(bytes.as_bytes()).map(|head| head.map(|head| (head.len, head.body)));
        assert_eq!(found, Ok(Some((bytes.len(), ResponseBody::Length(0)))), "{bytes:?}");
    }
}

#[test]
fn what_cannot_be_relied_on_is_malformed() {
    let rows = [
        ("HTTP/2.0 200 OK", NOT_HTTP),
        ("HTTP/1.2 200 OK", NOT_HTTP),
        ("http/1.1 200 OK", NOT_HTTP),
        ("ICY 200 OK", NOT_HTTP),
        ("\u{15}\u{3}\u{3}\0\u{2}\u{2}F", NOT_HTTP),
        ("HTTP/1.1 20 OK", BAD_STATUS),
        ("HTTP/1.1 2000 OK", BAD_STATUS),
        ("HTTP/1.1 +20 OK", BAD_STATUS),
        ("HTTP/1.1  200 OK", BAD_STATUS),
        ("HTTP/1.1 200 \0", BAD_STATUS),
        ("HTTP/1.1 200 OK\nA: b\rc", BAD_FIELD_VALUE),
        ("HTTP/1.1 200 OK\nA : b", BAD_FIELD_NAME),
        ("HTTP/1.1 200 OK\nA", BAD_FIELD_NAME),
        ("HTTP/1.1 200 OK\nA: b\n c", BAD_FIELD_NAME),
        ("HTTP/1.1 200 OK\nA: \u{1}", BAD_FIELD_VALUE),
        ("HTTP/1.1 200 OK\nContent-Length:", BAD_LENGTH),
        ("HTTP/1.1 200 OK\nContent-Length: +5", BAD_LENGTH),
        ("HTTP/1.1 200 OK\nContent-Length: 0x5", BAD_LENGTH),
        ("HTTP/1.1 200 OK\nContent-Length: 5,", BAD_LENGTH),
        ("HTTP/1.1 200 OK\nContent-Length: 18446744073709551616", BAD_LENGTH),
        ("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6", TWO_LENGTHS),
        ("HTTP/1.1 200 OK\nContent-Length: 5, 6", TWO_LENGTHS),
        ("HTTP/1.1 200 OK\nTransfer-Encoding:", BAD_CODING),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked;a=b", BAD_CODING),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked, gzip", BEHIND_CHUNKED),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked", BEHIND_CHUNKED),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 5", LENGTH_AND_CODING),
        ("HTTP/1.1 200 OK\nContent-Length: 5\nTransfer-Encoding: gzip", LENGTH_AND_CODING),
        ("HTTP/1.0 200 OK\nTransfer-Encoding: chunked", CODING_IN_HTTP10),
    ];
    for (lines, malformed) in rows {
        assert_eq!(read(&head(lines)), Err(malformed), "{lines}");
    }
    assert_eq!(read(b"HTTP/1.1 200 OK\r\n\rA: b\r\n\r\n"), Err(BARE_CR));
}

#[test]
fn a_head_is_bounded() {
    let with_len = |len: usize| {
        let start = "HTTP/1.1 204 No\nA: ";
        let bytes = head(&format!("{start}{}", "a".repeat(len - head(start).len())));
        assert_eq!(bytes.len(), len);
        bytes
    };
    let longest = with_len(HEAD_BYTES_MAX);
    assert_eq!(parse(&longest).map(|head| head.map(|head| head.len)), Ok(Some(HEAD_BYTES_MAX)));
    assert_eq!(parse(&longest[..HEAD_BYTES_MAX - 1]), Ok(None));
    let longer = with_len(HEAD_BYTES_MAX + 1);
    assert_eq!(parse(&longer), Err(HEAD_BYTES));
    assert_eq!(parse(&longer[..HEAD_BYTES_MAX]), Err(HEAD_BYTES));
    assert_eq!(parse(&[b'\n'; HEAD_BYTES_MAX]), Err(HEAD_BYTES));

    let fields = |count: usize| head(&format!("HTTP/1.1 204 No{}", "\na: b".repeat(count)));
    assert!(matches!(read(&fields(FIELDS_MAX)), Ok(Some(_))));
    assert_eq!(read(&fields(FIELDS_MAX + 1)), Err(TOO_MANY_FIELDS));
}

/// What bounds the framing of a request's body does not end a stream that has no end: each message
/// in a chunk of its own pays for its framing, even with the padded sizes that some servers write.
#[test]
fn an_endless_stream_of_small_chunks_is_read_on() {
    let mut body = Body::new(BodyLength::Chunked);
    let messages =
        [&b"1\r\n\n\r\n"[..], b"00000001\r\n\n\r\n", b"3\r\n:\n\n\r\n", b"9\r\ndata: a\n\n\r\n"];
    for message in messages {
        for _ in 0..100_000 {
            let mut rest = message;
            while !rest.is_empty() {
                match body.next(rest).unwrap() {
                    Step::Data { used, .. } | Step::More { used } => rest = &rest[used..],
                    Step::End { .. } => panic!("it has no end"),
                }
            }
        }
    }
}
