//! Where a request ends: everything that could be read in two ways is refused, once, and nothing
//! after it is taken for a request.
//!
//! The vectors are those that made other servers and proxies disagree (RFC 9112 section 11.2,
//! RUSTSEC-2021-0078, RUSTSEC-2023-0065, RUSTSEC-2026-0034, CVE-2023-47627, CVE-2023-39326). Each
//! goes to the control listener, where a smuggled request could do harm, whole and one byte at a
//! time.

use crate::support::{Client, Ending, Server};

/// What a vector is about, its bytes, and the status it is refused with.
type Refused = (&'static str, &'static [u8], u16);

/// What a vector is about, its bytes, and the statuses of the answers.
type Answered = (&'static str, &'static [u8], &'static [u16]);

/// Follows every vector. Whoever carries it out has lost its place in the stream.
const POISON: &[u8] = b"PUT /poison HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx";

#[test]
fn two_lengths() {
    check_refused(LENGTHS);
}

#[test]
fn transfer_codings() {
    check_refused(CODINGS);
}

#[test]
fn lines_and_fields() {
    check_refused(LINES);
}

#[test]
fn request_lines() {
    check_refused(REQUEST_LINES);
}

#[test]
fn hosts() {
    check_refused(HOSTS);
}

#[test]
fn chunks() {
    check_refused(CHUNKS);
}

#[test]
fn what_is_unusual_but_clear_is_answered() {
    for send in Client::SENDS {
        let server = Server::start();
        for (what, bytes, statuses) in ANSWERED {
            let mut client = server.publisher();
            send(&mut client, bytes);
            for (i, status) in statuses.iter().enumerate() {
                let response = client.response();
                assert_eq!(response.status, *status, "{what}, answer {i}: {response:?}");
            }
            let next = client.get("/still/here");
            assert_eq!(next.status, 404, "{what}: {next:?}");
        }
    }
}

#[test]
fn what_follows_the_last_request_is_ignored() {
    let server = Server::start();
    for send in Client::SENDS {
        for (what, bytes, statuses) in LAST {
            let mut client = server.publisher();
            send(&mut client, &[bytes, POISON].concat());
            for status in *statuses {
                let response = client.response();
                assert_eq!(response.status, *status, "{what}: {response:?}");
                assert_eq!(response.field("connection"), Some("close"), "{what}: {response:?}");
            }
            client.ending();
        }
    }
    server.control.get("/poison").expect(404);
}

#[test]
fn a_refusal_comes_after_the_answers_before_it() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"1");
    for (what, bytes, status) in LENGTHS.iter().chain(CHUNKS) {
        let mut client = server.publisher();
        let good = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3);
        client.send([&good, *bytes, POISON].concat());
        for _ in 0..3 {
            client.response().expect(200);
        }
        let response = client.response();
        assert_eq!(response.status, *status, "{what}: {response:?}");
        assert_eq!(client.ending(), Ending::Closed, "{what}");
    }
    server.control.get("/poison").expect(404);
}

#[test]
fn bodies_of_reads_are_not_requests() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"1");
    for address in [server.public.0, server.control.0] {
        for send in Client::SENDS {
            for method in ["GET", "HEAD", "OPTIONS"] {
                for request in with_body(method, POISON) {
                    let mut client = Client::connect(address);
                    send(&mut client, &request);
                    let response = match method {
                        "HEAD" => client.bodyless_response(),
                        _ => client.response(),
                    };
                    assert!(matches!(response.status, 200 | 204), "{method}: {response:?}");
                    client.get("/a").expect(200);
                }
            }
        }
    }
    server.control.get("/poison").expect(404);
}

/// A request with a body in either framing.
fn with_body(method: &str, body: &[u8]) -> [Vec<u8>; 2] {
    let length = body.len();
    let head = format!("{method} /a HTTP/1.1\r\nHost: a\r\n");
    let by_length = format!("{head}Content-Length: {length}\r\n\r\n");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n");
    [[by_length.as_bytes(), body].concat(), [chunked.as_bytes(), body, b"\r\n0\r\n\r\n"].concat()]
}

#[test]
fn trailers_are_never_merged() {
    let server = Server::start();
    for (i, trailer) in [
        "Content-Length: 50",
        "Transfer-Encoding: gzip",
        "Host: b",
        "Authorization: Basic eDp5",
        "If-None-Match: *",
        "Content-Type: text/html",
        "Connection: close",
        "Stentor-Event: boo",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = server.publisher();
        let request = format!(
            "PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\
             Content-Type: text/plain\r\n\r\n1\r\n{i}\r\n0\r\n{trailer}\r\n\r\n"
        );
        client.send(request);
        let response = client.response();
        assert!(matches!(response.status, 200 | 201), "{trailer}: {response:?}");
        let value = client.get("/t").expect(200);
        assert_eq!(value.text(), i.to_string(), "{trailer}");
        assert_eq!(value.field("content-type"), Some("text/plain"), "{trailer}");
    }
}

#[track_caller]
fn check_refused(rows: &[Refused]) {
    let server = Server::start();
    for (way, send) in ["whole", "byte by byte"].into_iter().zip(Client::SENDS) {
        for (what, bytes, status) in rows {
            let mut client = server.publisher();
            send(&mut client, &[bytes, POISON].concat());
            let response = client.response();
            assert_eq!(response.status, *status, "{what}, {way}: {response:?}");
            assert_eq!(response.field("connection"), Some("close"), "{what}, {way}");
            response.refused(*status);
            assert_eq!(client.ending(), Ending::Closed, "{what}, {way}");
        }
    }
    server.control.get("/poison").expect(404);
    server.control.get("/t").expect(404);
}

const LENGTHS: &[Refused] = &[
    (
        "a length, then a coding",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
          0\r\n\r\n",
        400,
    ),
    (
        "a coding, then a length",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n\
          0\r\n\r\n",
        400,
    ),
    (
        "two lengths that differ",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        400,
    ),
    (
        "two lengths that agree",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
        400,
    ),
    ("a list of lengths", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nabcde", 400),
    ("a plus", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nabcde", 400),
    ("a minus", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: -0\r\n\r\n", 400),
    ("hexadecimal", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nabcde", 400),
    ("an underscore", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\nabcde", 400),
    ("a space within", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1 0\r\n\r\nabcde", 400),
    ("a fraction", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\nabcde", 400),
    ("an empty length", b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
    (
        "a length of 2^64",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n",
        400,
    ),
    (
        "a length of 2^64 + 5",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nabcde",
        400,
    ),
    (
        "a length on a GET that no parser agrees on",
        b"GET /t HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 0\r\n\r\n",
        400,
    ),
];

const CODINGS: &[Refused] = &[
    ("no chunked", b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
    (
        "chunked is not last",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "chunked twice",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "chunked with a parameter",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("xchunked", b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400),
    ("identity", b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 400),
    ("quoted", b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 400),
    (
        "behind a vertical tab",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("an empty coding", b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 400),
    (
        "two lines",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
          Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "two lines that make a list",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\
          Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "in HTTP/1.0",
        b"PUT /t HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "a coding we do not have",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    ("of a GET", b"GET /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n", 400),
];

const LINES: &[Refused] = &[
    ("a space before the colon", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    (
        "a space before the colon of a length",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nabcde",
        400,
    ),
    (
        "a tab before the colon of a coding",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("a folded line", b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400),
    (
        "a folded coding",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("a first line that is folded", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    ("a bare CR in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: b\rY: c\r\n\r\n", 400),
    ("a bare CR after the request line", b"GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
    ("a bare CR before CRLF", b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
    ("a bare LF after the request line", b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    ("a bare LF after a field", b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
    ("a bare LF at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    ("bare LFs only", b"GET / HTTP/1.1\nHost: a\n\n", 400),
    ("a NUL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n", 400),
    ("a NUL in a name", b"GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", 400),
    ("a DEL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x7fc\r\n\r\n", 400),
    ("no colon", b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
    ("no name", b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
    ("a space in a name", b"GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n", 400),
    ("a byte beyond ASCII in a name", b"GET / HTTP/1.1\r\nHost: a\r\n\xc3\xa9: b\r\n\r\n", 400),
];

const REQUEST_LINES: &[Refused] = &[
    ("two spaces", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a tab", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a space at the end", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    ("a space in the target", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a space in front", b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("no version", b"GET /\r\nHost: a\r\n\r\n", 400),
    ("HTTP/0.9", b"GET /\r\n\r\n", 400),
    ("a lower-case version", b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
    ("another protocol", b"GET / HTTQ/1.1\r\nHost: a\r\n\r\n", 400),
    ("HTTP/1.10", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    ("a space behind HTTP/1.2", b"GET / HTTP/1.2 \r\nHost: a\r\n\r\n", 400),
    ("HTTP/1.2 without a Host", b"GET / HTTP/1.2\r\n\r\n", 400),
    ("HTTP/3.0", b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("HTTP/11.1", b"GET / HTTP/11.1\r\nHost: a\r\n\r\n", 400),
    ("a fragment", b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a byte beyond ASCII", b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a NUL", b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("no slash", b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("an asterisk", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("another scheme", b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a user in the authority", b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a lower-case method", b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("an unknown method", b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    ("noise", b"\x00\x01\x02\x03", 400),
    ("five empty lines", b"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a bare CR in front", b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("a bare LF in front", b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
];

const HOSTS: &[Refused] = &[
    ("no Host", b"GET / HTTP/1.1\r\n\r\n", 400),
    ("no Host, absolute form", b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
    ("two Hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("the same Host twice", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("two Hosts in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("a list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    ("a list without spaces", b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400),
    ("a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    ("a user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
    ("a port that is none", b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
    ("a bracket alone", b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
];

const CHUNKS: &[Refused] = &[
    (
        "0x",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "an underscore",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0_1\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a plus",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a minus",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a space in front",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a space behind",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "an empty size",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a size of 2^64",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
          10000000000000000\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "seventeen digits of one",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
          00000000000000001\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "no CRLF behind the data",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na0\r\n\r\n",
        400,
    ),
    (
        "a size too small",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        400,
    ),
    (
        "a size too large",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a bare LF behind a size",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a bare LF behind the data",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\n0\r\n\r\n",
        400,
    ),
    (
        "a bare LF at the end",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\n",
        400,
    ),
    (
        "a LF in an extension",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a NUL in an extension",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a\0\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a bare CR in an extension",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a\rb\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a bare semicolon",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;\r\na\r\n0\r\n\r\n",
        400,
    ),
    (
        "a trailer without a colon",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx\r\n\r\n",
        400,
    ),
    (
        "a folded trailer",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: a\r\n b\r\n\r\n",
        400,
    ),
    (
        "a trailer with a NUL",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: \0\r\n\r\n",
        400,
    ),
    (
        "chunks of a GET",
        b"GET /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        400,
    ),
];

const ANSWERED: &[Answered] = &[
    (
        "zeros in front of a length, which is not octal",
        b"PUT /ten HTTP/1.1\r\nHost: a\r\nContent-Length: 010\r\n\r\n0123456789\
          GET /ten HTTP/1.1\r\nHost: a\r\n\r\n",
        &[201, 200],
    ),
    (
        "zeros in front of a size, upper case, and an extension",
        b"PUT /t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n\
          000A;a;b=c;d=\"e;\\\"f\"\r\n0123456789\r\n00;x\r\n\r\nGET /t HTTP/1.1\r\nHost: a\r\n\r\n",
        &[201, 200],
    ),
    ("four empty lines in front", b"\r\n\r\n\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\n", &[404]),
    (
        "a CRLF too many behind a body",
        b"PUT /u HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n\
          GET /u HTTP/1.1\r\nHost: a\r\n\r\n",
        &[201, 200],
    ),
    ("an empty Host", b"GET /none HTTP/1.1\r\nHost:\r\n\r\n", &[404]),
    ("an IPv6 Host", b"GET /none HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", &[404]),
    ("names in any case", b"GET /none HTTP/1.1\r\nhOsT:a\r\ncOnTeNt-LeNgTh:0\r\n\r\n", &[404]),
    ("white space around a value", b"GET /none HTTP/1.1\r\nHost:\t a \t\r\n\r\n", &[404]),
    ("bytes beyond ASCII in a value", b"GET /none HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n", &[404]),
    ("the absolute form", b"GET http://b:80/none HTTP/1.1\r\nHost: a\r\n\r\n", &[404]),
    ("the asterisk form", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &[204]),
    (
        "a DELETE with a body",
        b"DELETE /none HTTP/1.1\r\nHost: a\r\nContent-Length: 14\r\n\r\nGET / HTTP/1.1\
          GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
        &[404, 404],
    ),
    (
        "an upgrade that is not meant",
        b"GET /none HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        &[404],
    ),
    (
        "an offer of HTTP/2, as curl --http2 makes it",
        b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
          Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
        &[404],
    ),
];

const LAST: &[Answered] = &[
    ("a close", b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &[404]),
    ("a close in a list", b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", &[404]),
    ("HTTP/1.0", b"GET /none HTTP/1.0\r\n\r\n", &[404]),
    (
        "an upgrade",
        b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        &[426],
    ),
    ("a tunnel", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", &[405]),
    (
        "a PATCH with a body",
        b"PATCH /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
        &[405],
    ),
    (
        "a PUT that is refused for its head",
        b"PUT /a//b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
        &[400],
    ),
    (
        "a POST without a length",
        b"POST /t HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        &[411],
    ),
];
