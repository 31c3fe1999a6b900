//! What a request head costs: nanoseconds for `scan` and for `parse`, per kind of client.
//!
//! `cargo run --release -p stentor-wire --example head_cost`. The least of several rounds is
//! printed, since everything that disturbs a round makes it longer.

use std::hint::black_box;
use std::time::Instant;

use stentor_wire::http1::{FieldSlots, parse, scan};
use stentor_wire::negotiate::Acceptable;

fn main() {
    println!(
        "{:<12} {:>6} {:>9} {:>9} {:>12}",
        "head", "bytes", "scan ns", "parse ns", "encodings ns"
    );
    for (name, head) in HEADS {
        let head = head.replace('\n', "\r\n");
        let bytes = head.as_bytes();
        let scan_ns = least_ns(|| {
            black_box(scan(black_box(bytes), 0)).expect("the head is good");
        });
        let parse_ns = least_ns(|| {
            let mut slots = FieldSlots::new();
            black_box(parse(black_box(bytes), &mut slots)).expect("the head is good");
        });
        let mut slots = FieldSlots::new();
        let head = parse(bytes, &mut slots).expect("the head is good");
        let accept_encoding = head.request.accept_encoding;
        let encodings_ns = least_ns(|| {
            black_box(Acceptable::parse(black_box(accept_encoding)));
        });
        println!(
            "{name:<12} {:>6} {scan_ns:>9.1} {parse_ns:>9.1} {encodings_ns:>12.1}",
            bytes.len()
        );
    }
}

/// Nanoseconds per call in the fastest of several rounds.
fn least_ns(mut call: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    least
}

const ROUNDS: u32 = 20;
const CALLS: u32 = 100_000;

const HEADS: &[(&str, &str)] = &[
    ("wrk", "GET /quotes/aapl HTTP/1.1\nHost: 127.0.0.1:8080\n\n"),
    (
        "curl",
        "GET /quotes/aapl HTTP/1.1\nHost: 127.0.0.1:8080\nUser-Agent: curl/8.5.0\nAccept: */*\n\n",
    ),
    (
        "poll",
        "GET /quotes/aapl HTTP/1.1\nHost: 127.0.0.1:8080\nAccept-Encoding: gzip\n\
         If-None-Match: \"k3v9qz-18446744073709551615.gz\"\n\n",
    ),
    (
        "chrome",
        "GET /quotes/aapl?mode=latest HTTP/1.1\nHost: quotes.example.com\n\
         Connection: keep-alive\n\
         sec-ch-ua: \"Chromium\";v=\"131\", \"Not_A Brand\";v=\"24\"\n\
         sec-ch-ua-mobile: ?0\nsec-ch-ua-platform: \"Linux\"\n\
         Upgrade-Insecure-Requests: 1\n\
         User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
         Chrome/131.0.0.0 Safari/537.36\n\
         Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
         image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7\n\
         Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate\nSec-Fetch-User: ?1\n\
         Sec-Fetch-Dest: document\nReferer: https://quotes.example.com/board/tech\n\
         Accept-Encoding: gzip, deflate, br, zstd\nAccept-Language: en-GB,en;q=0.9,de;q=0.8\n\
         If-None-Match: W/\"k3v9qz-18446744073709551615.br\"\n\n",
    ),
];
