//! What is written, line by line, and what the standard makes of streams, at every split.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// What is read from a stream that arrives in pieces that end at `cuts`.
fn read_pieces(
    stream: &[u8],
    cuts: impl IntoIterator<Item = usize>,
    bytes_max: usize,
) -> Vec<Result<Item, TooLong>> {
    let mut decoder = Decoder::new(bytes_max);
    let mut items = Vec::new();
    let mut at = 0;
    for cut in cuts.into_iter().chain([stream.len()]) {
        decoder.push(&stream[at..cut]);
        items.extend(std::iter::from_fn(|| decoder.next()));
        at = cut;
    }
    items
}

/// Reads whole, at every split, and byte by byte; all must agree.
fn read_at_most(stream: &[u8], bytes_max: usize) -> Vec<Result<Item, TooLong>> {
    let whole = read_pieces(stream, [], bytes_max);
    for cut in 0..stream.len() {
        assert_eq!(read_pieces(stream, [cut], bytes_max), whole, "cut at {cut}: {stream:?}");
    }
    assert_eq!(read_pieces(stream, 0..stream.len(), bytes_max), whole, "byte by byte");
    whole
}

/// The items of a stream without a line that is too long.
fn read(stream: &str) -> Vec<Item> {
    read_at_most(stream.as_bytes(), 1000).into_iter().map(Result::unwrap).collect()
}

fn item(id: Option<&str>, name: Option<&str>, data: &str) -> Item {
    Item::Event { id: id.map(str::to_owned), name: name.map(str::to_owned), data: data.to_owned() }
}

#[test]
fn events_are_written_line_by_line() {
    type Row<'a> = (Option<&'a str>, Option<&'a str>, &'a str, &'a str);
    let rows: &[Row<'_>] = &[
        (None, None, "", "data: \n\n"),
        (None, None, "a", "data: a\n\n"),
        (Some("5f3a09c1-42"), None, "a", "id: 5f3a09c1-42\ndata: a\n\n"),
        (Some("1-2"), Some("price"), "a", "id: 1-2\nevent: price\ndata: a\n\n"),
        (None, None, "a\nb", "data: a\ndata: b\n\n"),
        (None, None, "a\rb", "data: a\ndata: b\n\n"),
        (None, None, "a\r\nb", "data: a\ndata: b\n\n"),
        (None, None, "a\n\rb", "data: a\ndata: \ndata: b\n\n"),
        (None, None, "a\r\r\nb", "data: a\ndata: \ndata: b\n\n"),
        (None, None, "a\n", "data: a\ndata: \n\n"),
        (None, None, "\r\n", "data: \ndata: \n\n"),
        (None, None, " a: b", "data:  a: b\n\n"),
        (None, None, "\u{2028}\u{85}\u{b}", "data: \u{2028}\u{85}\u{b}\n\n"),
        (
            None,
            None,
            "x\n\nevent: gap\ndata: y",
            "data: x\ndata: \ndata: event: gap\ndata: data: y\n\n",
        ),
    ];
    for (id, name, data, expected) in rows {
        let mut out = Vec::new();
        event(&mut out, *id, *name, data);
        assert_eq!(String::from_utf8_lossy(&out), *expected);
        let lines = data.replace("\r\n", "\n").replace('\r', "\n");
        assert_eq!(read(expected), [item(*id, *name, &lines)], "read back");
    }
}

#[test]
fn the_start_of_a_stream() {
    let mut out = Vec::new();
    retry(&mut out, 2417);
    assert_eq!(out, b"retry: 2417\n");
    out.extend_from_slice(HEARTBEAT);
    event(&mut out, None, None, "a");
    let out = String::from_utf8(out).unwrap();
    // No empty line before the first event: it would be one of its own to some readers.
    assert!(!out.strip_suffix("\n\n").unwrap().contains("\n\n"));
    assert_eq!(read(&out), [Item::Retry(2417), Item::Comment, item(None, None, "a")]);
}

/// The examples of WHATWG HTML section 9.2.6.
#[test]
fn the_examples_of_the_standard() {
    assert_eq!(read("data: YHOO\ndata: +2\ndata: 10\n\n"), [item(None, None, "YHOO\n+2\n10")]);
    assert_eq!(
        read(
            ": test stream\n\ndata: first event\nid: 1\n\n\
             data:second event\nid\n\ndata:  third event\n\n"
        ),
        [
            Item::Comment,
            item(Some("1"), None, "first event"),
            item(None, None, "second event"),
            item(None, None, " third event"),
        ]
    );
    // The last block has no empty line behind it and is thrown away.
    assert_eq!(read("data\n\ndata\ndata\n\ndata:"), [item(None, None, ""), item(None, None, "\n")]);
    assert_eq!(read("data:test\n\ndata: test\n\n"), vec![item(None, None, "test"); 2]);
}

#[test]
fn fields_are_read_as_the_standard_says() {
    let rows: &[(&str, &[Item])] = &[
        ("", &[]),
        ("\n\n\n", &[]),
        ("data: a", &[]),
        ("data: a\n", &[]),
        ("\u{feff}data: a\n\n", &[item(None, None, "a")]),
        ("\u{feff}\u{feff}data: a\n\n", &[]),
        ("\n\u{feff}data: a\n\n", &[]),
        ("data: a\r\rdata: b\r\n\r\n", &[item(None, None, "a"), item(None, None, "b")]),
        ("data: a\r\n\ndata: b\n\r", &[item(None, None, "a"), item(None, None, "b")]),
        ("Data: a\n\n", &[]),
        ("data : a\n\n", &[]),
        (" data: a\n\n", &[]),
        ("other: a\nother\n\n", &[]),
        ("event: a\n\ndata: b\n\n", &[item(None, None, "b")]),
        ("event: a\nevent: b\ndata: c\n\n", &[item(None, Some("b"), "c")]),
        ("event:\ndata: c\n\n", &[item(None, None, "c")]),
        ("id: 7\n\ndata: b\n\n", &[item(Some("7"), None, "b")]),
        ("id: 7\nid: a\0b\ndata: b\n\n", &[item(Some("7"), None, "b")]),
        ("id: 7\nid:\ndata: b\n\n", &[item(None, None, "b")]),
        ("retry: 10\nretry: 1.5\nretry:\nretry: +1\nretry: 1a\n", &[Item::Retry(10)]),
        ("retry:99999999999999999999\n", &[Item::Retry(u64::MAX)]),
        (":\n: a\n:b:c\n", &[Item::Comment, Item::Comment, Item::Comment]),
        ("data: a\n:\ndata: b\n\n", &[Item::Comment, item(None, None, "a\nb")]),
    ];
    for (stream, items) in rows {
        assert_eq!(read(stream), *items, "{stream:?}");
    }
    let items = read_at_most(b"data: \xff\xc3\n\n", 100);
    assert_eq!(items, [Ok(item(None, None, "\u{fffd}\u{fffd}"))]);
}

#[test]
fn nothing_is_kept_beyond_the_limit() {
    let fits = |stream: &str, bytes_max: usize| {
        let items = read_at_most(stream.as_bytes(), bytes_max);
        assert!(items[..items.len().max(1) - 1].iter().all(Result::is_ok), "an error is the last");
        !items.contains(&Err(TooLong))
    };
    assert!(fits("data: 4567\n\n", 10));
    assert!(!fits("data: 45678\n\n", 10), "a line");
    assert!(!fits("data: 45678", 10), "a line that has not ended");
    assert!(!fits(":2345678901\n", 10), "a comment");
    assert!(fits(":\n:\n:\n:\n:\n:\n:\n:\n:\n", 10), "many small ones");
    // What is kept of each of these lines is two bytes: its data and its end.
    assert!(fits("data:a\ndata:a\ndata:a\n\n", 10));
    assert!(!fits("data:a\ndata:a\ndata:a\ndata:a\n", 10), "an event");
    assert!(!fits("id:1234\ndata:12\n\n", 10), "with its id");
    assert!(!fits("event:1234\ndata:12\n\n", 10), "with its name");

    let mut decoder = Decoder::new(10);
    decoder.push(&[b'a'; 11]);
    assert_eq!(decoder.next(), Some(Err(TooLong)));
    decoder.push(b"\n\ndata: a\n\n");
    assert_eq!(decoder.next(), None, "it does not read on");
}

/// A byte that is looked at again, or moved again, for each that comes would make this take hours.
#[test]
fn a_long_line_costs_linear_time() {
    let mut decoder = Decoder::new(4_000_000);
    for _ in 0..3_000_000 {
        decoder.push(b"a");
        assert_eq!(decoder.next(), None);
    }
}

/// The id to resume from and the name of each event, as [`first_event`] finds them in a stream
/// whose pieces end at `cuts`: what is incomplete is shown again with more behind it.
fn lent_pieces(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<Outline> {
    let mut events = Vec::new();
    let mut last_id = String::new();
    let (mut at, mut is_at_start) = (0, true);
    for cut in cuts.into_iter().chain([stream.len()]) {
        if is_at_start {
            let Some(rest) = after_mark(&stream[..cut]) else { continue };
            (at, is_at_start) = (cut - rest.len(), false);
        }
        while let Some((event, len)) = first_event(&stream[at.min(cut)..cut]) {
            assert_eq!(event.lines, &stream[at..at + len]);
            at += len;
            if let Some(id) = event.id {
                last_id = String::from_utf8_lossy(id).into_owned();
            }
            if event.has_data {
                let id = (!last_id.is_empty()).then(|| last_id.clone());
                events.push((id, event.name.map(|name| String::from_utf8_lossy(name).into())));
            }
        }
    }
    events
}

/// An event's id and name.
type Outline = (Option<String>, Option<String>);

/// The same, as [`Decoder`] finds them.
fn decoded(stream: &[u8]) -> Vec<Outline> {
    let items = read_pieces(stream, [], usize::MAX).into_iter().map(Result::unwrap);
    let outline = |item| match item {
        Item::Event { id, name, .. } => Some((id, name)),
        Item::Retry(_) | Item::Comment => None,
    };
    items.filter_map(outline).collect()
}

#[test]
fn a_block_is_lent_whole() {
    type Row<'a> = (&'a str, Option<(Option<&'a str>, Option<&'a str>, bool, usize)>);
    let rows: &[Row<'_>] = &[
        ("", None),
        ("data: a", None),
        ("data: a\n", None),
        ("data: a\r", None),
        ("data: a\r\n", None),
        ("data: a\n\n", Some((None, None, true, 9))),
        ("data: a\n\ndata: b\n\n", Some((None, None, true, 9))),
        ("data: a\r\r", Some((None, None, true, 9))),
        ("data: a\r\rdata", Some((None, None, true, 9))),
        ("data: a\r\r\n", Some((None, None, true, 10))),
        ("data: a\n\r\n", Some((None, None, true, 10))),
        ("data: a\r\n\n", Some((None, None, true, 10))),
        ("data: a\r\n\r\ndata", Some((None, None, true, 11))),
        ("data: a\r\n\r", Some((None, None, true, 10))),
        ("data\n\n", Some((None, None, true, 6))),
        ("\n", Some((None, None, false, 1))),
        ("\r\n\n", Some((None, None, false, 2))),
        (":\n\n", Some((None, None, false, 2))),
        (":\ndata: a\n\n", Some((None, None, false, 2))),
        (":\r\ndata: a\n\n", Some((None, None, false, 3))),
        (": b", None),
        ("data: a\n:\n\n", Some((None, None, true, 11))),
        ("retry: 5\n\n", Some((None, None, false, 10))),
        ("id: 7\nevent: x\n\n", Some((Some("7"), Some("x"), false, 16))),
        ("id:7\nid\ndata\n\n", Some((Some(""), None, true, 14))),
        ("id:7\nid:\0\ndata\n\n", Some((Some("7"), None, true, 16))),
        ("event:x\nevent: y \ndata\n\n", Some((None, Some("y "), true, 24))),
        ("event:x\nevent\ndata\n\n", Some((None, None, true, 20))),
        ("\u{feff}data: a\n\n", Some((None, None, false, 12))),
    ];
    for (stream, expected) in rows {
        let found = first_event(stream.as_bytes());
        let expected = expected.map(|(id, name, has_data, len)| {
            let [id, name] = [id, name].map(|word| word.map(str::as_bytes));
            (RawEvent { name, id, has_data, lines: &stream.as_bytes()[..len] }, len)
        });
        assert_eq!(found, expected, "{stream:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Both readers find the same events, wherever the one that keeps nothing sees the stream end.
    #[test]
    fn both_readers_agree(picks in vec(0..PARTS.len(), 0..24)) {
        let stream: Vec<u8> = picks.iter().flat_map(|&pick| PARTS[pick]).copied().collect();
        let expected = decoded(&stream);
        assert_eq!(lent_pieces(&stream, []), expected, "whole");
        for cut in 0..stream.len() {
            assert_eq!(lent_pieces(&stream, [cut]), expected, "cut at {cut}");
        }
        assert_eq!(lent_pieces(&stream, 0..stream.len()), expected, "byte by byte");
    }

    #[test]
    fn both_readers_agree_about_any_bytes(stream in vec(any::<u8>(), 0..200)) {
        assert_eq!(lent_pieces(&stream, []), decoded(&stream));
        assert_eq!(lent_pieces(&stream, 0..stream.len()), decoded(&stream));
    }
}

/// What streams are made of, and what breaks them.
const PARTS: &[&[u8]] = &[
    b"data",
    b"data: a",
    b"data:",
    b"id: 1",
    b"id",
    b"id:\0",
    b"event: x",
    b"event:\xff",
    b"event",
    b"retry: 5",
    b":",
    b"\n",
    b"\n",
    b"\r",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    BYTE_ORDER_MARK,
];

#[test]
fn a_byte_order_mark_is_passed_over_at_the_start() {
    assert_eq!(after_mark(b"data: 1"), Some(&b"data: 1"[..]));
    assert_eq!(after_mark(b"\xef\xbb\xbfdata: 1"), Some(&b"data: 1"[..]));
    assert_eq!(after_mark(b"\xef\xbb\xbf\xef\xbb\xbf"), Some(&b"\xef\xbb\xbf"[..]));
    assert_eq!(after_mark(b"\xef\xbbx"), Some(&b"\xef\xbbx"[..]));
    for part in [&b""[..], b"\xef", b"\xef\xbb"] {
        assert_eq!(after_mark(part), None);
    }
}

#[test]
fn names_of_notices_are_reserved() {
    for name in ["open", "error", "stentor", "stentor.end"] {
        assert!(is_reserved(name), "{name}");
    }
    let mut stream = Vec::new();
    notice(&mut stream, Some("1"), "{}");
    assert_eq!(stream, b"id: 1\nevent: stentor\ndata: {}\n\n");
    for name in ["message", "gap", "delete", "base64", "errors", "stentors", "Stentor", ""] {
        assert!(!is_reserved(name), "{name}");
    }
}

#[test]
fn a_heartbeat_is_a_whole_chunk() {
    let mut chunk = Vec::new();
    crate::http1::write_chunk(&mut chunk, |out| out.extend_from_slice(HEARTBEAT));
    assert_eq!(chunk, HEARTBEAT_CHUNK);
}
