//! The bodies of the targets, run over a small corpus and over random mixtures.

use super::*;
use stentor_io::Rng;
use stentor_test::seeds;

/// The body of a fuzz target.
type FuzzBody = fn(&[u8]);

/// Each body, with what its inputs are made of.
const TARGETS: &[(FuzzBody, &[&[u8]])] = &[
    (
        fuzz_config,
        &[
            b"listen",
            b"control = \"unix:/a\"\n",
            b"workers",
            b" = ",
            b"=",
            b"\"",
            b"5",
            b"-1",
            b"\"64 KiB\"",
            b"\"15s\"",
            b"\n",
            b"[limits]\n",
            b"[streams]\n",
            b"[[topics]]\nmatch = \"/a/*\"\n",
            b"[[lookup]]\npath = \"/l=\"\ntopics = \"/{name}\"\n",
            b"[[static]]\nroot = \".\"\n",
            b"head_timeout",
            b"STENTOR_LIMITS_HEAD_TIMEOUT=5s\n",
            b"STENTOR_LISTEN=[::1]:80,0.0.0.0:80\n",
            b"STENTOR_LISTE",
            b"\xc3\xa9",
            b"\t",
            b"\r",
            b"\0",
        ],
    ),
    (
        fuzz_bulk,
        &[
            b"{\"topic\":\"/a\",\"data\":1}\n",
            b"{\"topic\":\"/b\",\"data\":\"a\\nb\",\"type\":\"text/html\",\"event\":\"e\"}",
            b"{\"topic\":\"",
            b"/a",
            b"\",\"data\":",
            b"\"",
            b"\\u0000",
            b"}",
            b"\n",
            b"\r\n",
            b" ",
            b"\xff",
            &[b' '; 4_200],
        ],
    ),
    (
        fuzz_log,
        &[
            // A message, and a deletion.
            &[0, 10, 1, 0, 5, 2, b'/', b'a', 0, 0, 1, b'x'],
            &[1, 8, 1, 1, 5, 2, b'/', b'a', 0, 0],
            &[2, 12, 1, 8, 9, 5, 2, b'/', b'a', 0, 0, 1, b'x', 0],
            // A turn.
            &[3, 62, 0, 8, 0, 0, 0],
            &[0; 40],
            &[1; 19],
            &[7, 0, 0, 0, 4],
            &[255, 3, 1, 1, 0],
            &[128],
            &[4],
        ],
    ),
    (
        fuzz_broker,
        &[
            b"INFO {}\r\n",
            b"MSG a 1 2\r\nhi\r\n",
            b"MSG a 1 r 0\r\n\r\n",
            b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
            b"HMSG a 1 ",
            b"14 12\r\n",
            b"MSG a x 1\r\n",
            b"99999999999999999999",
            b"PING\r\n",
            b"+OK\r\n",
            b"-ERR 'no'\r\n",
            b"\r\n",
            b"\xff",
            b" ",
        ],
    ),
    (fuzz_worker, WORKER),
];

/// What clients do to a worker.
const WORKER: &[&[u8]] = &[
    b"\x00GET /small HTTP/1.1\r\nHost: h\r\n\r\n",
    b"\x1fGET /large HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /-/events?topic=/one/*&topic=/many/a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /one/a?wait=20 HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\n\r\n",
    b"GET /list=small,large HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /files/lib.rs HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n",
    b"GET /-/events HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
      Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
      Sec-WebSocket-Protocol: stentor.v1\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    b"\x81\x98\0\0\0\0{\"subscribe\":[\"/one/a\"]}",
    b"\x88\x80\0\0\0\0",
    b"\xff\x10PUT /one/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n42",
    b"\xff\x10POST /-/publish HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"1b\r\n{\"topic\":\"/one/a\",\"data\":1}\n\r\n0\r\n\r\n",
    b"\xff\x20",
    b"\xff\x80",
    b"\xff\x01",
    b"\xff\x02",
    b"\xff\x03",
    b"\xff\x13",
    b"\xff\x04",
    b"\xff\x95",
    b"\xff\xe5",
    b"\xff\xc6",
    b"\xff\x86",
    b"\xff\x07",
    b"\xff\x08",
    b"\xff\x09",
    b"\xff\xfa",
    b"\xff\x0b",
    b"\xff\xff",
    b"\xff\x5f",
];

#[test]
fn properties_hold_for_the_corpus() {
    for (body, parts) in TARGETS {
        body(b"");
        for first in *parts {
            body(first);
            for second in *parts {
                body(&[*first, *second].concat());
            }
        }
    }
}

#[test]
fn properties_hold_for_mixtures() {
    let mut rng = Rng::new(1);
    for (body, parts) in TARGETS {
        for _ in 0..300 {
            let picks = (0..rng.below(20)).map(|_| parts[rng.below(parts.len())]);
            body(&picks.collect::<Vec<_>>().concat());
        }
    }
}

/// Of a worker that was packed, random changes are enough. STENTOR_FUZZ_RUNS says how many.
#[test]
fn properties_hold_for_workers_that_come_from_elsewhere() {
    change(fuzz_handover);
}

/// Likewise of sessions.
#[test]
fn properties_hold_for_sessions_that_come_from_elsewhere() {
    change(fuzz_sessions);
}

fn change(body: FuzzBody) {
    body(&[255]);
    let mut rng = Rng::new(1);
    for _ in 0..seeds::fuzz_runs(2_000) {
        let mut data = vec![rng.next_u64() as u8];
        for _ in 0..rng.below(5) {
            data.extend_from_slice(&rng.next_u64().to_le_bytes()[..4]);
        }
        body(&data);
    }
}
