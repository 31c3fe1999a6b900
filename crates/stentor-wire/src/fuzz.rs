//! The bodies of the fuzz targets: properties that must hold for any bytes.
//!
//! Each takes whatever the fuzzer makes up and panics when a property is broken. They live here,
//! next to what they test, and are run over a small corpus and over random mixtures by the unit
//! tests; the targets in `fuzz/` only call them.

use crate::condition::{Comparison, Validators, Verdict, if_range, judge, named};
use crate::deflate::{Deflater, Inflater};
use crate::error::Rejection;
use crate::events::{EventsQuery, parse_command, parse_query, parse_topic_query};
use crate::file_name::content_type;
use crate::http1::response::{self, ResponseHead};
use crate::http1::{
    Body, BodyLength, FieldSlots, HEAD_BYTES_MAX, Head, Method, Request, Scan, Step, Version,
    parse, scan,
};
use crate::lookup::{Template, json_string, json_string_len, names};
use crate::negotiate::{
    Acceptable, Encoding, Encodings, accepts_events, compressible, http_date, is_any, media_type,
    prefer_wait_s, tag_matches,
};
use crate::range::{ByteRange, RANGES_MAX, Ranges, ranges};
use crate::sse::{self, Item, TooLong};
use crate::target::{NotAFile, TopicName, check_file, decode, pairs, split};
use crate::websocket::client::{self, ServerFrame};
use crate::websocket::{
    Decoder, Opcode, Received, Rules, Violation, accept, close_frame, deflate, frame,
    negotiate_deflate, offers_protocol,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::{Component, Path};
use std::time::{Duration, UNIX_EPOCH};
use written::{encode, fields, write_head, write_query, write_response};

mod further_lines;
mod proxied;
mod written;

pub use proxied::fuzz_proxied;

/// A head is found at the same place however it is split, keeps what [`Head`] promises, and says
/// the same when it is written out again. Its lists go on in further lines, and nothing else does.
pub fn fuzz_head(data: &[u8]) {
    let whole = scan(data, 0);
    let every = data.len() / 64 + 1;
    for cut in (0..data.len()).step_by(every) {
        assert_eq!(scan_pieces(data, [cut]), whole, "cut at {cut}");
    }
    assert_eq!(scan_pieces(data, 0..data.len()), whole, "byte by byte");
    let Ok(Scan::Complete { len }) = whole else { return };
    assert!(len <= data.len() && len <= HEAD_BYTES_MAX);
    assert!(data[..len].ends_with(b"\r\n\r\n"));
    let mut slots = FieldSlots::new();
    let Ok(head) = parse(&data[..len], &mut slots) else { return };
    check_head(&head);
    let written = write_head(&head);
    assert_eq!(scan(&written, 0), Ok(Scan::Complete { len: written.len() }));
    assert_eq!(parse(&written, &mut FieldSlots::new()).as_ref(), Ok(&head));
    further_lines::check(&head, &written);
}

/// The head of a response is found at the same place and says the same whatever stands behind it,
/// keeps what [`ResponseHead`] promises, and says the same when it is written out again.
pub fn fuzz_response(data: &[u8]) {
    let whole = response::parse(data);
    for cut in (0..data.len()).step_by(data.len() / 256 + 1) {
        let part = response::parse(&data[..cut]);
        assert!(part == Ok(None) || part == whole, "cut at {cut}: {part:?} is not {whole:?}");
    }
    let Ok(Some(head)) = whole else { return };
    assert!(head.len <= data.len() && head.len <= HEAD_BYTES_MAX);
    assert_eq!(response::parse(&data[..head.len - 1]), Ok(None), "not before its last byte");
    assert_eq!(response::parse(&data[..head.len]).as_ref(), Ok(&Some(head.clone())));
    let written = write_response(&head);
    assert_eq!(
        response::parse(&written),
        Ok(Some(ResponseHead { len: written.len(), ..head })),
        "{:?}",
        String::from_utf8_lossy(&written)
    );
}

/// A chunked body decodes to the same content and the same end however it is split, and content
/// that was cut into chunks comes back as it was.
pub fn fuzz_chunked(data: &[u8]) {
    let whole = decode_pieces(data, []);
    let every = data.len() / 64 + 1;
    for cut in (0..data.len()).step_by(every) {
        assert_eq!(decode_pieces(data, [cut]), whole, "cut at {cut}");
    }
    assert_eq!(decode_pieces(data, 0..data.len()), whole, "byte by byte");
    if let (content, Some(Ok(end))) = &whole {
        assert!(content.len() < *end && data[..*end].ends_with(b"\r\n"));
    }
    let mut encoded = Vec::new();
    let mut rest = data;
    while let [size, after @ ..] = rest {
        let (chunk, after) = after.split_at(usize::from(*size).min(after.len()));
        if !chunk.is_empty() {
            encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            encoded.extend_from_slice(chunk);
            encoded.extend_from_slice(b"\r\n");
        }
        rest = after;
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    let (content, end) = decode_pieces(&encoded, []);
    assert_eq!(end, Some(Ok(encoded.len())));
    assert_eq!(content, chunks_of(data));
}

/// A topic that is accepted survives being percent-encoded, and keeps every rule.
pub fn fuzz_topic(data: &[u8]) {
    let Ok(name) = decode(data) else { return };
    let encoded = encode(&name);
    assert_eq!(decode(encoded.as_bytes()), Ok(name.clone()), "decoding undoes encoding");
    let parsed = TopicName::parse(&*name);
    assert_eq!(TopicName::from_path(data), parsed);
    let Ok(parsed) = parsed else { return };
    assert_eq!(parsed.as_str(), name);
    assert_eq!(parsed.clone().into_owned(), parsed);
    assert!((1..=512).contains(&name.len()) && name.starts_with('/'));
    for segment in name[1..].split('/') {
        assert!(!["", ".", ".."].contains(&segment));
    }
    assert!(!format!("{name}/").starts_with("/-/"));
    assert!(!format!("{name}/").starts_with("/.well-known/"));
    assert!(name.chars().all(|char| !matches!(char, '\0'..' ' | '\u{7f}'..='\u{9f}')));
}

/// A query has as many pairs as pieces, and its pairs survive being written out again.
pub fn fuzz_query(data: &[u8]) {
    let (path, query) = split(data);
    let Some(query) = query else {
        assert_eq!(path, data);
        return;
    };
    assert_eq!(path.len() + 1 + query.len(), data.len());
    assert!(!path.contains(&b'?'));
    let found: Vec<_> = pairs(query).collect();
    assert_eq!(found.len(), query.split(|&byte| byte == b'&').filter(|p| !p.is_empty()).count());
    let Ok(found) = found.into_iter().collect::<Result<Vec<_>, _>>() else { return };
    let written: Vec<_> =
        found.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    let written = written.join("&");
    assert_eq!(pairs(written.as_bytes()).collect::<Result<Vec<_>, _>>(), Ok(found));
}

/// A list has one name per comma and one more; a template writes what plain replacement would; and
/// a JSON string reads back as the text it was made from.
pub fn fuzz_lookup(data: &[u8]) {
    let commas = data.iter().filter(|&&byte| byte == b',').count();
    assert_eq!(names(data).count(), commas + 1);
    let text = String::from_utf8_lossy(data);

    let mut escaped = Vec::new();
    json_string(&mut escaped, &text);
    assert_eq!(json_text(&escaped).as_deref(), Some(&*text));
    assert_eq!(json_string_len(&text), escaped.len());

    let doubled = text.replace('{', "{{").replace('}', "}}");
    assert_eq!(written(&doubled, "n", b"v").as_deref(), Some(text.as_bytes()), "all is literal");
    let line = format!("{{name}}{doubled}{{value}}");
    assert_eq!(
        written(&line, &text, b"\xff"),
        Some([text.as_bytes(); 2].concat()).map(|mut line| {
            line.push(0xff);
            line
        })
    );
    let Ok(template) = Template::parse(&text) else { return };
    if !text.contains("{{") && !text.contains("}}") {
        let plain = text.replace("{name}", "\u{1}").replace("{value}", "v").replace('\u{1}', "n");
        let mut out = Vec::new();
        template.write(&mut out, "n", b"v");
        if !text.contains('\u{1}') {
            assert_eq!(out, plain.as_bytes());
        }
        assert_eq!(template.has_name(), text.contains("{name}"));
        assert_eq!(template.has_value(), text.contains("{value}"));
    }
}

/// What is chosen was offered and is acceptable; a tag is found among any others; a date that is
/// understood is understood again when we write it. What asks for a stream, a wait or an extension
/// is found behind anything else.
pub fn fuzz_negotiate(data: &[u8]) {
    let acceptable = Acceptable::parse(Some(data));
    for bits in 0..16 {
        let mut available = Encodings::EMPTY;
        for encoding in Encoding::ALL.into_iter().filter(|&one| bits >> one as u8 & 1 == 1) {
            available.insert(encoding);
        }
        let best = acceptable.best(available);
        assert!(best.is_none_or(|best| available.contains(best)));
        for encoding in Encoding::ALL.into_iter().filter(|&one| available.contains(one)) {
            let mut alone = Encodings::EMPTY;
            alone.insert(encoding);
            let is_acceptable = acceptable.best(alone).is_some();
            assert!(best.is_some() || !is_acceptable, "something acceptable was passed over");
        }
        if let Some(best) = best {
            let named = data.windows(best.token().len());
            let named = named.into_iter().any(|w| w.eq_ignore_ascii_case(best.token().as_bytes()));
            assert!(named || best == Encoding::Identity || data.contains(&b'*'));
        }
    }
    let offered = ["application/json", "text/plain"];
    let chosen = media_type(Some(data), &offered);
    assert!(chosen.is_none_or(|chosen| offered.contains(&chosen)));
    compressible(&String::from_utf8_lossy(data));

    let id = b"k3-17";
    let others: Vec<u8> = data.iter().copied().filter(|&byte| byte != b'"').collect();
    for encoding in Encoding::ALL {
        let ours = format!("\"k3-17{}\"", encoding.suffix());
        assert!(tag_matches(ours.as_bytes(), id));
        let list = [b"\"", &others[..], b"\" , W/", ours.as_bytes(), b", \"", &others, b"\""];
        assert!(tag_matches(&list.concat(), id));
    }
    if tag_matches(data, id) && !is_any(data) {
        assert!(data.windows(id.len()).any(|window| window == id));
    }
    if let Some(seconds) = http_date(data) {
        let written = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(http_date(written.as_bytes()), Some(seconds));
    }
    negotiate_streams(data);
}

/// A tag of ours is found among any others, by strong comparison only if it is strong, and nothing
/// is found that is not there. Tags silence dates, what the client has is never sent again, and
/// parts are of nothing else.
pub fn fuzz_condition(data: &[u8]) {
    let ours: &[&[u8]] = &[b"0123", b"0123.gz", b"77"];
    let strong = named(data, ours, Comparison::Strong);
    let weak = named(data, ours, Comparison::Weak);
    assert!(weak.is_some() || strong.is_none(), "what is the same is as good as the same");
    let quoted = |tag: &[u8]| [b"\"", tag, b"\""].concat();
    for found in strong.into_iter().chain(weak) {
        let tag = quoted(ours[found]);
        assert!(data.windows(tag.len()).any(|window| window == tag));
    }
    let others: Vec<u8> = data.iter().copied().filter(|&byte| byte != b'"').collect();
    for (i, tag) in ours.iter().enumerate() {
        let list = [b"\"", &others[..], b"\" , W/", &quoted(tag), b",\"", &others, b"\""].concat();
        assert!(named(&list, ours, Comparison::Weak).is_some_and(|found| found <= i));
        let list = [&list[..], b", ", &quoted(tag)].concat();
        assert!(named(&list, ours, Comparison::Strong).is_some_and(|found| found <= i));
    }
    for modified_at in [0, 784_111_777, u64::MAX] {
        let is_tag = data == quoted(b"0123");
        assert!(!if_range(data, b"0123", modified_at, modified_at) || is_tag);
        let may = if_range(data, b"0123", modified_at, u64::MAX);
        assert!(!may || is_tag || http_date(data) == Some(modified_at));
    }

    let mut request = Request::new(Method::Get, b"/");
    let mut pieces = data.split(|&byte| byte == b'\n');
    let named = |list: &[u8], comparison| named(list, ours, comparison);
    let validators = Validators { named, modified_at: 784_111_777, dates_tell: true };
    let verdict = |request: &Request<'_>| judge(request, &validators, 784_111_800);
    assert_eq!(verdict(&request), Verdict::Send);
    request.if_unmodified_since = pieces.next();
    request.if_modified_since = pieces.next();
    let by_date = verdict(&request);
    assert_eq!(
        by_date == Verdict::Newer,
        verdict(&Request { if_modified_since: None, ..request }) != Verdict::Send
    );
    request.if_match = pieces.next();
    request.if_none_match = pieces.next();
    let (if_unmodified_since, if_modified_since) = (Some(&b"x"[..]), Some(&b""[..]));
    let undated = Request { if_unmodified_since, if_modified_since, ..request.clone() };
    if request.if_match.is_some() && request.if_none_match.is_some() {
        assert_eq!(verdict(&request), verdict(&undated), "tags silence dates");
    }
    match verdict(&undated) {
        Verdict::Send => {}
        Verdict::NotModified(None) => assert!(request.if_none_match.is_some_and(is_any)),
        Verdict::NotModified(Some(found)) => assert!(found < ours.len()),
        Verdict::Mismatch => assert!(!request.if_match.is_some_and(is_any)),
        Verdict::Newer => panic!("that was no date"),
    }
}

/// Parts are there, few, and together less than the whole; spaces and case make no difference, and
/// parts that are asked for again, by their numbers, are the same.
pub fn fuzz_range(data: &[u8]) {
    let spaced: Vec<u8> = data
        .iter()
        .flat_map(|byte| if *byte == b',' { &b" ,\t"[..] } else { std::slice::from_ref(byte) })
        .copied()
        .collect();
    for length in [0, 1, 2, 203, 1000, 100_000, 1 << 40, u64::MAX] {
        let found = ranges(data, length);
        assert_eq!(ranges(&spaced, length), found, "spaces around commas");
        assert_eq!(ranges(&data.to_ascii_uppercase(), length), found, "the case of the unit");
        match found {
            Ranges::Whole => {}
            Ranges::Unsatisfiable => {
                let shorter = ranges(data, length - 1);
                assert!(shorter == found || length == 1, "the less there is the less can be had");
            }
            Ranges::Parts(parts) => {
                assert!((1..=RANGES_MAX).contains(&parts.len()) && length > 0);
                assert!(data.iter().filter(|&&byte| byte == b',').count() < RANGES_MAX);
                assert!(parts.iter().all(|part| part.first <= part.last && part.last < length));
                let sum: u128 = parts.iter().map(|part| u128::from(part.length()) + 100).sum();
                assert!(parts.len() == 1 || sum < u128::from(length), "more than the whole");
                // Each overlaps itself.
                let with = |part| parts.iter().filter(|other| overlap(part, other)).count();
                assert!(parts.iter().filter(|part| with(part) > 1).count() <= 2);
                let members: Vec<_> =
                    parts.iter().map(|part| format!("{}-{}", part.first, part.last)).collect();
                let written = format!("bytes={}", members.join(","));
                assert_eq!(ranges(written.as_bytes(), length), found, "{written}");
            }
        }
    }
}

/// A path that is accepted stays beneath any root, shows nothing that is hidden, and is one that a
/// client can ask for. What a name tells is told by its last segment alone, and a name with a hash
/// has one.
pub fn fuzz_file(data: &[u8]) {
    let path = String::from_utf8_lossy(data);
    match check_file(&path) {
        Ok(()) => {
            assert!(path.starts_with('/') && path.len() <= 4096);
            assert!(!path.contains(|char: char| char.is_control() || char == '\\'));
            let relative = &path[1..];
            let joined = Path::new("/srv/root").join(relative);
            let beneath = joined.strip_prefix("/srv/root").expect("it begins with the root");
            for (i, part) in beneath.components().enumerate() {
                let Component::Normal(name) = part else { panic!("{part:?} leads away") };
                let name = name.to_str().expect("it is text");
                assert!(!name.starts_with('.') || i == 0 && name == ".well-known");
                assert!(name.len() <= 255 && !(i == 0 && name == "-"));
            }
            assert_eq!(beneath.components().count(), relative.split_terminator('/').count());
            assert_eq!(decode(encode(&path).as_bytes()).as_deref(), Ok(&*path));
            assert!(check_file(&format!("{path}/..")).is_err());
        }
        Err(NotAFile::Refused(reason)) => check_sentence(&reason.detail),
        Err(NotAFile::Hidden) => {
            let is_hidden = |segment: &str| segment.starts_with('.') || segment.len() > 255;
            let is_reserved = path == "/-" || path.starts_with("/-/");
            assert!(is_reserved || path.len() > 4096 || path.split('/').any(is_hidden));
        }
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let kind = content_type(name);
    assert!(kind.is_ascii() && kind.contains('/'));
    assert_eq!(content_type(&path), kind);
    assert_eq!(content_type(&name.to_ascii_uppercase()), kind);
}

/// A client's bytes mean the same however they are split, and cost no more memory than was allowed
/// or than there are bytes. A message that is sent, in fragments or deflated, is received.
pub fn fuzz_websocket(data: &[u8]) {
    let [rules, stream @ ..] = data else { return };
    let message_bytes_max = [0, 1, 8, 125, 126, 300, 4096, 70_000][usize::from(rules & 7)];
    let rules = Rules { message_bytes_max, deflate: rules & 8 != 0 };
    let whole = receive_pieces(stream, [], &rules);
    let every = stream.len() / 64 + 1;
    for cut in (0..stream.len()).step_by(every) {
        assert_eq!(receive_pieces(stream, [cut], &rules), whole, "cut at {cut}");
    }
    assert_eq!(receive_pieces(stream, 0..stream.len(), &rules), whole, "byte by byte");

    let rules = Rules { message_bytes_max: stream.len(), deflate: true };
    let expect = |frames: &[u8], expected: &[Received]| {
        let (received, end) = receive_pieces(frames, [frames.len() / 2], &rules);
        assert_eq!(end, Ok(()));
        assert!(received == expected, "{received:?} is not {expected:?}");
    };
    let message = [Received::Binary(stream.to_vec())];
    expect(&masked(&server_frame(Opcode::Binary, false, stream)), &message);
    expect(&fragments(stream, Opcode::Binary, false, stream), &message);
    let mut deflater = Deflater::default();
    if let Some(deflated) = deflate(&mut deflater, stream, 9 + data[0] % 7) {
        assert!(deflated.len() < stream.len());
        expect(&fragments(stream, Opcode::Binary, true, deflated), &message);
    }
    // What inflates, or does not, as it is: few of the bytes above are a message's.
    let deflated = masked(&server_frame(Opcode::Binary, true, stream));
    let rules = Rules { message_bytes_max: 70_000.max(stream.len()), deflate: true };
    let (received, _) = receive_pieces(&deflated, [deflated.len() / 2], &rules);
    assert!(received.len() <= 1);
    if let Ok(text) = str::from_utf8(stream) {
        let message = [Received::Text(text.to_owned())];
        expect(&fragments(stream, Opcode::Text, false, stream), &message);
        let mut closing = Vec::new();
        close_frame(&mut closing, 1001, text);
        expect(&masked(&closing), &[Received::Close(Some(1001))]);
    }
}

/// A server's frame is found at the same place and says the same whatever stands behind it, is no
/// longer than was allowed, and is the same when a server writes it again. What a client writes is
/// read by the server's decoder.
pub fn fuzz_server_frame(data: &[u8]) {
    let [max, key @ .., _] = data else { return };
    let payload_bytes_max = [0, 1, 125, 126, 300, 4096, 70_000, usize::MAX][usize::from(max & 7)];
    let mut rest = &data[1..];
    loop {
        let whole = client::server_frame(rest, payload_bytes_max);
        for cut in (0..rest.len()).step_by(rest.len() / 64 + 1) {
            let part = client::server_frame(&rest[..cut], payload_bytes_max);
            assert!(part == Ok(None) || part == whole, "cut at {cut}: {part:?} is not {whole:?}");
        }
        let Ok(Some(ServerFrame { len, opcode, fin, payload })) = whole else { break };
        assert!(payload.len() <= payload_bytes_max);
        let mut written = server_frame(opcode, false, payload);
        written[0] &= if fin { 0xff } else { 0x7f };
        assert_eq!(written, rest[..len]);
        rest = &rest[len..];
    }

    let mut mask = [0; 4];
    mask.iter_mut().zip(key).for_each(|(mask, byte)| *mask = *byte);
    let mut message = Vec::new();
    client::masked_frame(&mut message, Opcode::Binary, mask, data);
    let rules = Rules { message_bytes_max: data.len(), deflate: false };
    let (received, end) = receive_pieces(&message, [message.len() / 2], &rules);
    assert_eq!((received, end), (vec![Received::Binary(data.to_vec())], Ok(())));
}

/// Whatever is published, a reader gets exactly one event for it, with the text that was meant; and
/// any stream means the same however it is split, to a reader that keeps nothing as well.
pub fn fuzz_sse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let word: String =
        text.chars().filter(|char| !matches!(char, '\0' | '\r' | '\n')).take(20).collect();
    let some = |word: &str| (!word.is_empty()).then(|| word.to_owned());
    let mut stream = Vec::new();
    sse::retry(&mut stream, data.len() as u64);
    sse::event(&mut stream, None, None, &text);
    sse::event(&mut stream, Some(&word), Some(&word), &text);
    stream.extend_from_slice(sse::HEARTBEAT);
    sse::notice(&mut stream, None, &text);
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    let expected = [
        Item::Retry(data.len() as u64),
        Item::Event { id: None, name: None, data: lines.clone() },
        Item::Event { id: some(&word), name: some(&word), data: lines.clone() },
        Item::Comment,
        Item::Event { id: some(&word), name: some(sse::NOTICE), data: lines },
    ];
    let items = read_pieces(&stream, [stream.len() / 2], usize::MAX);
    assert_eq!(items.into_iter().collect::<Result<Vec<_>, _>>().as_deref(), Ok(&expected[..]));

    let bytes_max = data.first().map_or(0, |&byte| usize::from(byte));
    let whole = read_pieces(data, [], bytes_max);
    let every = data.len() / 64 + 1;
    for cut in (0..data.len()).step_by(every) {
        assert_eq!(read_pieces(data, [cut], bytes_max), whole, "cut at {cut}");
    }
    assert_eq!(read_pieces(data, 0..data.len(), bytes_max), whole, "byte by byte");

    let events: Vec<_> = read_pieces(data, [], usize::MAX)
        .into_iter()
        .filter_map(|item| match item {
            Ok(Item::Event { id, name, .. }) => Some((id, name)),
            Ok(Item::Retry(_) | Item::Comment) | Err(TooLong) => None,
        })
        .collect();
    for cut in (0..data.len()).step_by(every) {
        assert_eq!(lend_pieces(data, [cut]), events, "lent, cut at {cut}");
    }
    assert_eq!(lend_pieces(data, 0..data.len()), events, "lent, byte by byte");
}

/// A query and a command mean the same when they are written out again, and no more than was
/// allowed; an error is one line of bounded length.
pub fn fuzz_events(data: &[u8]) {
    let topics_max = data.len() % 5;
    match parse_query(data, topics_max) {
        Ok(query) => {
            assert!(query.topics.len() <= topics_max);
            assert_ne!(query.since.as_deref(), Some(""));
            let written = write_query(&query);
            assert_eq!(parse_query(written.as_bytes(), topics_max).as_ref(), Ok(&query));
            let alone = EventsQuery { topics: Vec::new(), ..query };
            assert_eq!(parse_topic_query(written.as_bytes()), Ok(alone));
        }
        Err(reason) => check_sentence(&reason.detail),
    }
    if let Err(reason) = parse_topic_query(data) {
        check_sentence(&reason.detail);
    }
    let text = String::from_utf8_lossy(data);
    match parse_command(&text, topics_max) {
        Ok(command) => {
            assert!(command.subscribe.len() <= topics_max);
            assert!(command.unsubscribe.len() <= topics_max);
            let since = command.since.as_deref();
            let id = command.id.as_ref().map(|id| {
                serde_json::from_str::<serde_json::Value>(id.json()).expect("it is JSON")
            });
            let written = serde_json::json!({
                "subscribe": command.subscribe, "unsubscribe": command.unsubscribe, "since": since,
                "token": command.token, "id": id,
            });
            assert_eq!(parse_command(&written.to_string(), topics_max), Ok(command));
        }
        Err(reason) => check_sentence(&reason.detail),
    }
}

/// What [`fuzz_negotiate`] checks of streams.
fn negotiate_streams(data: &[u8]) {
    let name = b"text/event-stream";
    let is_named = data.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name));
    assert!(is_named || !accepts_events(Some(data)));
    assert!(offers_protocol(Some(&[data, b", stentor.v1"].concat()), "stentor.v1"));
    assert_eq!(accept(data).is_some(), STANDARD.decode(data).is_ok_and(|key| key.len() == 16));

    let unquoted: Vec<u8> = data.iter().copied().filter(|&byte| byte != b'"').collect();
    assert!(accepts_events(Some(&[&unquoted, &b","[..], name].concat())));
    let wait = prefer_wait_s(&[&unquoted, &b",wait=7"[..]].concat());
    assert_eq!(wait, prefer_wait_s(&unquoted).or(Some(7)));
    let known = negotiate_deflate(Some(&unquoted));
    let offers = [&unquoted, &b",permessage-deflate"[..]].concat();
    assert!(
        negotiate_deflate(Some(&offers)).is_some_and(|agreed| known.is_none_or(|k| k == agreed))
    );
    if let Some(agreed) = negotiate_deflate(Some(data)) {
        assert!((9..=15).contains(&agreed.server_window_bits));
        let mut response = Vec::new();
        agreed.write_response(&mut response);
        assert_eq!(negotiate_deflate(Some(&response)), Some(agreed), "the answer is an offer too");
    }
}

/// What is received of bytes that arrive in pieces that end at `cuts`, and how it ended. The work
/// it takes is linear in what comes in and in what comes of it.
fn receive_pieces(
    data: &[u8],
    cuts: impl IntoIterator<Item = usize>,
    rules: &Rules,
) -> (Vec<Received>, Result<(), Violation>) {
    let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
    let mut all = Vec::new();
    let (mut at, mut bytes) = (0, 0);
    for cut in cuts.into_iter().chain([data.len()]) {
        loop {
            let next = decoder.next(&mut inflater, &data[at..cut], rules);
            // A message that is refused may have been inflated before it was.
            let inflated = match &next {
                Ok((_, received)) => received.as_ref().map_or(0, Received::data_bytes),
                Err(_) => rules.message_bytes_max,
            };
            bytes += inflated;
            let steps_max = 70 * (all.len() + 1) + data.len() / 32 + bytes / 8192;
            assert!(inflater.steps() <= steps_max as u64, "{} steps", inflater.steps());
            let (used, received) = match next {
                Ok(step) => step,
                Err(violation) => return (all, Err(violation)),
            };
            at += used;
            let allowed = rules.message_bytes_max.min(at) + 125.min(at);
            let held = decoder.own_bytes() - size_of::<Decoder>();
            assert!(held <= 2 * allowed + 16, "{held} bytes are held");
            assert!(!decoder.is_idle() || held == 0);
            let Some(received) = received else { break };
            match &received {
                Received::Text(text) => assert!(text.len() <= rules.message_bytes_max),
                Received::Binary(data) => assert!(data.len() <= rules.message_bytes_max),
                Received::Ping(data) => assert!(data.len() <= 125),
                Received::Pong | Received::Close(_) => {}
            }
            all.push(received);
        }
        assert_eq!(at, cut, "without an event all is used");
    }
    (all, Ok(()))
}

/// One frame as a server sends it.
fn server_frame(opcode: Opcode, deflated: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, opcode, deflated, payload);
    out
}

/// One frame as a client sends it, made of one as a server does.
fn masked(frame: &[u8]) -> Vec<u8> {
    let payload_start = match frame[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    let (header, payload) = frame.split_at(payload_start);
    let key = [0x37, 0xfa, 0x21, 0x3d];
    let mut out = header.to_vec();
    out[1] |= 0x80;
    out.extend_from_slice(&key);
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// A message in at most 64 fragments, whose lengths are the bytes of `lengths`.
fn fragments(lengths: &[u8], opcode: Opcode, deflated: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = payload;
    for (i, &length) in lengths.iter().chain([&u8::MAX]).take(64).enumerate() {
        let is_last = i == lengths.len().min(63);
        let length = if is_last { rest.len() } else { rest.len().min(usize::from(length)) };
        let (piece, after) = rest.split_at(length);
        let opcode = if i == 0 { opcode } else { Opcode::Continuation };
        let mut fragment = masked(&server_frame(opcode, deflated && i == 0, piece));
        if !is_last {
            fragment[0] &= 0x7f;
        }
        out.extend(fragment);
        rest = after;
    }
    out
}

/// What is read from an event stream that arrives in pieces that end at `cuts`.
fn read_pieces(
    data: &[u8],
    cuts: impl IntoIterator<Item = usize>,
    bytes_max: usize,
) -> Vec<Result<Item, TooLong>> {
    let mut decoder = sse::Decoder::new(bytes_max);
    let mut items = Vec::new();
    let mut at = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        decoder.push(&data[at..cut]);
        items.extend(std::iter::from_fn(|| decoder.next()));
        at = cut;
    }
    items
}

/// The id to resume from and the name of each event of a stream that arrives in pieces that end at
/// `cuts`, as they are lent: what is incomplete is shown again with more behind it.
fn lend_pieces(
    data: &[u8],
    cuts: impl IntoIterator<Item = usize>,
) -> Vec<(Option<String>, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let data = sse::after_mark(data).unwrap_or_default();
    let mut events = Vec::new();
    let mut last_id = None;
    let mut at = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        let end = cut.min(data.len());
        while let Some((event, len)) = sse::first_event(&data[at..end]) {
            assert_eq!(event.lines, &data[at..at + len]);
            at += len;
            if let Some(id) = event.id {
                last_id = (!id.is_empty()).then(|| text(id));
            }
            if event.has_data {
                events.push((last_id.clone(), event.name.map(text)));
            }
        }
    }
    events
}

/// Whether two parts have a byte in common.
fn overlap(part: &ByteRange, other: &ByteRange) -> bool {
    part.first.max(other.first) <= part.last.min(other.last)
}

/// An error is one line that a person can read.
fn check_sentence(reason: &str) {
    assert!(!reason.is_empty() && reason.len() <= 2000 && reason.ends_with('.'), "{reason}");
    assert!(!reason.contains(char::is_control), "{reason:?}");
}

/// Scans bytes that arrive in pieces that end at `cuts`.
fn scan_pieces(data: &[u8], cuts: impl IntoIterator<Item = usize>) -> Result<Scan, Rejection> {
    let mut scanned = 0;
    for cut in cuts {
        match scan(&data[..cut], scanned)? {
            Scan::Partial { scanned: all } => scanned = all,
            complete => return Ok(complete),
        }
    }
    scan(data, scanned)
}

/// Decodes a chunked body that arrives in pieces that end at `cuts`: its content, and where it
/// ended or why it was refused.
fn decode_pieces(
    data: &[u8],
    cuts: impl IntoIterator<Item = usize>,
) -> (Vec<u8>, Option<Result<usize, Rejection>>) {
    let mut body = Body::new(BodyLength::Chunked);
    let mut content = Vec::new();
    let mut at = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        loop {
            match body.next(&data[at..cut]) {
                Ok(Step::Data { data: piece, used }) => {
                    assert!(!piece.is_empty() && used >= piece.len());
                    content.extend_from_slice(piece);
                    at += used;
                }
                Ok(Step::More { used }) => {
                    at += used;
                    assert_eq!(at, cut, "more is wanted only when all is consumed");
                    break;
                }
                Ok(Step::End { used }) => return (content, Some(Ok(at + used))),
                Err(refusal) => return (content, Some(Err(refusal))),
            }
        }
    }
    (content, None)
}

/// The content of the chunks that [`fuzz_chunked`] makes out of `data`.
fn chunks_of(data: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut at = 0;
    while let Some(&size) = data.get(at) {
        let end = data.len().min(at + 1 + usize::from(size));
        content.extend_from_slice(&data[at + 1..end]);
        at = end;
    }
    content
}

/// What the documentation of [`Head`] says of every head.
fn check_head(head: &Head<'_>) {
    let Head { request, framing } = head;
    assert!(request.target.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'#'));
    match request.method {
        Method::Connect => assert!(request.target.contains(&b':') && !framing.keep_alive),
        Method::Options if request.target == b"*" => {}
        _ => assert!(request.target.starts_with(b"/")),
    }
    assert!(request.host.is_some() || framing.version == Version::Http10);
    assert!(request.upgrade.is_none() || !framing.keep_alive && framing.version == Version::Http11);
    if framing.version == Version::Http10 {
        assert!(framing.body != BodyLength::Chunked && !framing.expect_continue);
    }
    assert!(!framing.expect_continue || framing.body != BodyLength::None);
    assert_eq!(request.to_buf().borrowed(), *request);
    for (_, value) in fields(request) {
        let value = value.unwrap_or_default();
        assert!(!value.iter().any(|&byte| byte < b' ' && byte != b'\t' || byte == 0x7f));
        assert_eq!(crate::trim_ows(value), value);
    }
}

/// What a template makes of a name and a value; `None` if it does not compile.
fn written(template: &str, name: &str, value: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let template = Template::parse(template).ok()?;
    template.write(&mut out, name, value);
    assert_eq!(template.written_len(name, value), out.len());
    Some(out)
}

/// Reads one JSON string (RFC 8259 section 7), as far as we write them; `None` if it is not one.
fn json_text(json: &[u8]) -> Option<String> {
    let inner = json.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut chars = str::from_utf8(inner).ok()?.chars();
    let mut text = String::new();
    while let Some(char) = chars.next() {
        text.push(match char {
            '\0'..' ' | '"' => return None,
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let digits: String = chars.by_ref().take(4).collect();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                }
                char @ ('"' | '\\') => char,
                _ => return None,
            },
            _ => char,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests;
