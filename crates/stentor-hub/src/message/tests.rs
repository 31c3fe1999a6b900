//! Heads byte for byte, encodings made, asked for and given up, and what is embedded how.

use super::*;
use crate::id::Epoch;
use crate::pattern::Pattern;
use crate::rules::{LeaveOut, Rule};

/// 1994-11-06 08:49:37 GMT, the date in the RFC's examples.
const NOW: u64 = 784_111_777;

fn life() -> Life {
    Life { epoch: Epoch::parse("5f3a09c1").unwrap(), base: 0 }
}

fn terms(cache_control: Option<&str>) -> Arc<Terms> {
    let cache_control = cache_control.map(|text| CacheControl::parse(text).unwrap());
    let rule = Rule { cache_control, ..Rule::new(Pattern::any()) };
    Arc::new(Terms { life: life(), generation: 0, rule, cache: RenderCache::default() })
}

fn message(draft: Draft) -> Arc<Message> {
    Arc::new(Message::new(draft, 42, terms(None), PublishedAt::after(None, NOW)))
}

fn text(data: &str) -> Arc<Message> {
    message(Draft::new(data.as_bytes()).with_content_type(ContentType::TEXT))
}

fn head(message: &Arc<Message>, encoding: Encoding) -> String {
    message.form(encoding).unwrap().0
}

fn incompressible(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn the_head_of_a_small_value() {
    let small = text("12.5");
    assert_eq!(
        head(&small, Encoding::Identity),
        "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Length: 4\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         ETag: \"5f3a09c1-42\"\r\nCache-Control: no-cache\r\n\
         Vary: Accept\r\n\r\n"
    );
    assert_eq!(small.form(Encoding::Identity).unwrap().1, b"12.5");
    assert!(small.form(Encoding::Gzip).is_none());
    let address = || small.with_form(Encoding::Identity, |form| form.head.as_ptr());
    assert_eq!(address(), address(), "rendered once");
}

#[test]
fn the_heads_of_a_compressible_value() {
    let long = text(&"hello ".repeat(100));
    assert_eq!(
        head(&long, Encoding::Identity),
        "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Length: 600\r\n\
         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"5f3a09c1-42\"\r\n\
         Cache-Control: no-cache\r\nVary: Accept, Accept-Encoding\r\n\r\n"
    );
    for encoding in COMPRESSED {
        assert!(long.form(encoding).is_none());
        long.compress(&mut Encoder::default(), encoding);
        let body = long.form(encoding).unwrap().1;
        assert!(body.len() < 100);
        assert_eq!(
            head(&long, encoding),
            format!(
                "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
                 Content-Length: {}\r\n\
                 Content-Encoding: {}\r\n\
                 Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                 ETag: \"5f3a09c1-42{}\"\r\n\
                 Cache-Control: no-cache\r\nVary: Accept, Accept-Encoding\r\n\r\n",
                body.len(),
                encoding.token(),
                encoding.suffix()
            )
        );
        assert!(long.available().contains(encoding));
    }
    let gzip = long.form(Encoding::Gzip).unwrap().1;
    assert_eq!(encode::gunzip(&mut Inflater::default(), &gzip, 600).unwrap().data, long.data());
    let mut back = Vec::new();
    let br = long.form(Encoding::Br).unwrap().1;
    brotli::BrotliDecompress(&mut &br[..], &mut back).unwrap();
    assert_eq!(back, long.data());
    let zstd = long.form(Encoding::Zstd).unwrap().1;
    assert_eq!(zstd::bulk::decompress(&zstd, 600).unwrap(), long.data());
}

#[test]
fn cache_control_is_as_published_or_as_ruled() {
    let published =
        || Draft::new(*b"x").with_cache_control(CacheControl::parse("max-age=60").unwrap());
    let ruled =
        Message::new(Draft::new(*b"x"), 1, terms(Some("max-age=1")), PublishedAt::after(None, NOW));
    assert_eq!(ruled.cache_control(), Some("max-age=1"));
    let at = PublishedAt::after(None, NOW);
    let both = Arc::new(Message::new(published(), 1, terms(Some("max-age=1")), at));
    assert_eq!(both.cache_control(), Some("max-age=60"));
    assert!(head(&both, Encoding::Identity).contains("\r\nCache-Control: max-age=60\r\n"));
    assert_eq!(message(published()).cache_control(), Some("max-age=60"));
    assert_eq!(message(Draft::new(*b"x")).cache_control(), Some("no-cache"));
}

/// A message under a rule that leaves out what `set` says.
fn without(draft: Draft, set: impl FnOnce(&mut Rule)) -> Arc<Message> {
    let mut rule = Rule::default();
    set(&mut rule);
    let terms = Terms { life: life(), generation: 0, rule, cache: RenderCache::default() };
    Arc::new(Message::new(draft, 42, Arc::new(terms), PublishedAt::after(None, NOW)))
}

#[test]
fn a_rule_leaves_out_what_http_does_not_need() {
    let small = || Draft::new(*b"12.5").with_content_type(ContentType::TEXT);
    let bare = without(small(), |rule| {
        rule.leave_out = LeaveOut { last_modified: true, vary: true, cache_control: false };
    });
    assert_eq!(
        head(&bare, Encoding::Identity),
        "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Length: 4\r\nETag: \"5f3a09c1-42\"\r\nCache-Control: no-cache\r\n\r\n"
    );
    let leave_out_default = |rule: &mut Rule| rule.leave_out.cache_control = true;
    let silent = without(small(), leave_out_default);
    assert!(!head(&silent, Encoding::Identity).contains("Cache-Control"));
    // What somebody chose is no default.
    let chosen = small().with_cache_control(CacheControl::parse("no-store").unwrap());
    assert!(head(&without(chosen, leave_out_default), Encoding::Identity).contains("no-store"));
}

#[test]
fn what_the_answer_depends_on_is_said_where_a_cache_could_mix_it_up() {
    let says_vary = |draft: Draft, cache_control: bool| {
        let leave_out = LeaveOut { vary: true, cache_control, ..LeaveOut::default() };
        let message = without(draft, |rule| rule.leave_out = leave_out);
        head(&message, Encoding::Identity).contains("\r\nVary: Accept")
    };
    let small = || Draft::new(*b"12.5").with_content_type(ContentType::TEXT);
    let cached = |text| small().with_cache_control(CacheControl::parse(text).unwrap());
    assert!(!says_vary(small(), false));
    assert!(!says_vary(cached("no-store"), false) && !says_vary(cached("no-store"), true));
    // A cache would give the value to one who asks for a stream.
    assert!(says_vary(cached("max-age=60"), false) && says_vary(small(), true));
    // It would give what is compressed to one who cannot unpack it: its tag is as good as any.
    let long = "hello ".repeat(100);
    assert!(says_vary(Draft::new(long.as_bytes()).with_content_type(ContentType::TEXT), false));
    let packed = Encoder::default().encode(Encoding::Gzip, long.as_bytes()).unwrap().to_vec();
    let packed = Draft::from_gzip(&mut Inflater::default(), packed, 1000).unwrap();
    assert!(says_vary(packed, false));
}

#[test]
fn a_304_repeats_the_end_of_the_head() {
    let long = text(&"hello ".repeat(100));
    long.compress(&mut Encoder::default(), Encoding::Gzip);
    let bare = without(Draft::new(*b"1"), |rule| rule.leave_out.last_modified = true);
    let caching = "Cache-Control: no-cache\r\nVary: Accept";
    for (message, encoding, expected) in [
        (&long, Encoding::Identity, format!("42\"\r\n{caching}, Accept-Encoding")),
        (&long, Encoding::Gzip, format!("42.gz\"\r\n{caching}, Accept-Encoding")),
        (&bare, Encoding::Identity, format!("42\"\r\n{caching}")),
    ] {
        let expected = format!("ETag: \"5f3a09c1-{expected}\r\n\r\n");
        let is_seen = message.with_form(encoding, |form| {
            assert_eq!(String::from_utf8_lossy(form.unchanged), expected);
            assert!(form.head.ends_with(form.unchanged));
            assert!(form.head.starts_with(b"Content-Type: "));
        });
        assert!(is_seen.is_some());
    }
}

#[test]
fn what_was_published_is_there() {
    let other = ContentType::parse("application/vnd.acme+json").unwrap();
    let full = message(
        Draft::new(*b"{}").with_content_type(other).with_event(EventName::parse("tick").unwrap()),
    );
    assert_eq!(full.content_type(), "application/vnd.acme+json");
    assert_eq!(full.event(), Some("tick"));
    assert_eq!((full.seq(), full.published_at(), full.data()), (42, NOW, &b"{}"[..]));
    assert_eq!(full.id().to_string(), "5f3a09c1-42");

    // The type may be changed again, also from an uncommon one to a common one.
    let twice = Draft::new(*b"x").with_content_type(ContentType::parse("x/y").unwrap());
    assert_eq!(message(twice.with_content_type(ContentType::TEXT)).content_type(), TEXT);

    let plain = message(Draft::new(Vec::new()));
    assert_eq!(plain.content_type(), "application/octet-stream");
    assert_eq!(plain.event(), None);
    assert!(head(&plain, Encoding::Identity).contains("\r\nContent-Length: 0\r\n"));
    let late = Message::new(Draft::default(), 1, terms(None), PublishedAt::after(None, u64::MAX));
    assert_eq!(late.published_at(), u64::from(u32::MAX));
}

const TEXT: &str = "text/plain; charset=utf-8";

#[test]
fn only_what_is_worth_it_is_compressible() {
    assert!(!text(&"a".repeat(COMPRESS_BYTES_MIN - 1)).compressible());
    assert!(text(&"a".repeat(COMPRESS_BYTES_MIN)).compressible());
    let png = ContentType::parse("image/png").unwrap();
    let picture = message(Draft::new(vec![0; 1000]).with_content_type(png));
    assert!(!picture.compressible());
    picture.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(picture.form(Encoding::Gzip).is_none());
    assert!(!picture.ask(Encoding::Gzip), "asking leads to nothing");
    assert!(picture.asked().contains(Encoding::Gzip), "but it is noted");
}

#[test]
fn asking_calls_for_work_once() {
    let long = text(&"hello ".repeat(100));
    assert_eq!(long.asked(), Encodings::EMPTY);
    assert!(!long.ask(Encoding::Identity));
    assert_eq!(long.asked(), Encodings::EMPTY);
    assert!(long.ask(Encoding::Br));
    assert!(!long.ask(Encoding::Br));
    assert!(long.asked().contains(Encoding::Br) && !long.asked().contains(Encoding::Gzip));
    long.compress(&mut Encoder::default(), Encoding::Br);
    assert!(!long.ask(Encoding::Br));
    // Made ahead of the first question, which then is noted but calls for nothing.
    long.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(!long.asked().contains(Encoding::Gzip));
    assert!(!long.ask(Encoding::Gzip));
    assert!(long.asked().contains(Encoding::Gzip));
}

#[test]
fn what_does_not_shrink_is_given_up() {
    let noise = message(Draft::new(incompressible(1000)).with_content_type(ContentType::TEXT));
    for encoding in COMPRESSED {
        noise.compress(&mut Encoder::default(), encoding);
        assert!(noise.form(encoding).is_none(), "{encoding:?}");
        assert!(!noise.ask(encoding), "it was tried: {encoding:?}");
    }
}

#[test]
fn a_publishers_gzip_is_kept_as_it_is() {
    let data = b"pressed by the publisher, not by us".repeat(2);
    let body = Encoder::default().encode(Encoding::Gzip, &data).unwrap().to_vec();
    let small = message(Draft::from_gzip(&mut Inflater::default(), body.clone(), 1000).unwrap());
    assert_eq!(small.data(), data);
    assert_eq!(small.form(Encoding::Gzip).unwrap().1, body);
    assert!(head(&small, Encoding::Gzip).contains("\r\nETag: \"5f3a09c1-42.gz\"\r\n"));
    assert!(!small.compressible());
    for encoding in [Encoding::Identity, Encoding::Gzip] {
        assert!(head(&small, encoding).ends_with("\r\nVary: Accept, Accept-Encoding\r\n\r\n"));
    }
    assert!(!small.ask(Encoding::Gzip));

    let parts = message(Draft::from_gzip(&mut Inflater::default(), body.repeat(2), 1000).unwrap());
    assert_eq!(parts.data(), data.repeat(2));
    assert!(parts.form(Encoding::Gzip).is_none(), "several members are unpacked but not kept");
    assert_eq!(
        Draft::from_gzip(&mut Inflater::default(), body, 10).unwrap_err(),
        GzipError::TooLarge { max: 10 }
    );
}

#[test]
fn what_json_takes_is_known_before_it_is_written() {
    for data in [
        &b""[..],
        b"{\"a\":1}",
        b"plain \"\\\n\x01",
        b"\xc3\xa9\xc3\xa9",
        b"\xff",
        b"\xff\xfe",
        b"\xff\xfe\xfd",
    ] {
        for content_type in [ContentType::TEXT, ContentType::JSON] {
            let message = message(Draft::new(data).with_content_type(content_type));
            for place in [JsonPlace::Member, JsonPlace::Value] {
                let mut out = Vec::new();
                message.write_json(place, &mut out);
                assert_eq!(message.json_len(place), out.len(), "{data:?}");
                for bytes_max in 1..8 {
                    let (mut parts, mut from) = (Vec::new(), Some(0));
                    while let Some(at) = from {
                        from = message.write_json_part(place, at, bytes_max, &mut parts);
                    }
                    assert_eq!(parts, out, "{data:?} {bytes_max}");
                }
            }
        }
    }
}

#[test]
fn embedding() {
    let json = |data: &[u8]| message(Draft::new(data).with_content_type(ContentType::JSON)).embed();
    for good in ["1", " {\"a\":[1,2.5e3,null,\"\\u00e9\"]}\n", "\"x\"", "true", "[]"] {
        assert_eq!(json(good.as_bytes()), Embed::Json, "{good}");
    }
    for bad in ["", "{", "1 2", "{} {}", "nul", "{'a':1}", "[1,]", "\"\n\"", "NaN", "\u{feff}1"] {
        assert_eq!(json(bad.as_bytes()), Embed::Bytes, "{bad}");
    }
    // The text of a string need not be looked at to find its end, but it is.
    assert_eq!(json(b"\"\xff\""), Embed::Bytes);
    assert_eq!(text("{}").embed(), Embed::Text, "only what is said to be JSON is taken for it");
    assert_eq!(message(Draft::new([0xff, 0xfe])).embed(), Embed::Bytes);
    assert_eq!(message(Draft::new(*b"plain")).embed(), Embed::Text);
    let twice = message(Draft::new(*b"[]").with_content_type(ContentType::JSON));
    assert_eq!((twice.embed(), twice.embed()), (Embed::Json, Embed::Json));
}

#[test]
fn deep_nesting_does_no_harm() {
    let depth = 400_000;
    let nested = ["[".repeat(depth), "]".repeat(depth)].concat();
    let deep = message(Draft::new(nested.into_bytes()).with_content_type(ContentType::JSON));
    assert_eq!(deep.embed(), Embed::Json);
    let open = message(Draft::new(vec![b'['; 1 << 20]).with_content_type(ContentType::JSON));
    assert_eq!(open.embed(), Embed::Bytes);
}

#[test]
fn forms_are_made_once_from_many_threads() {
    for _ in 0..20 {
        let long = text(&"hello ".repeat(100));
        let calls: usize = std::thread::scope(|scope| {
            let asking = (0..4).map(|_| {
                scope.spawn(|| {
                    let first = long.ask(Encoding::Zstd);
                    if first {
                        long.compress(&mut Encoder::default(), Encoding::Zstd);
                    }
                    long.compress(&mut Encoder::default(), Encoding::Br);
                    assert_eq!(long.form(Encoding::Identity).unwrap().1.len(), 600);
                    assert!(head(&long, Encoding::Br).ends_with("\r\n\r\n"));
                    usize::from(first)
                })
            });
            asking.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(calls, 1);
        assert!(long.available().contains(Encoding::Zstd));
    }
}

#[test]
fn a_second_message_within_a_second_is_known_as_one() {
    let first = message(Draft::new(*b"1"));
    let same = Message::new(
        Draft::new(*b"2"),
        43,
        terms(None),
        PublishedAt::after(Some(first.published_at()), NOW),
    );
    let later = Message::new(
        Draft::new(*b"3"),
        44,
        terms(None),
        PublishedAt::after(Some(same.published_at()), NOW + 1),
    );
    let set_back = Message::new(
        Draft::new(*b"4"),
        45,
        terms(None),
        PublishedAt::after(Some(later.published_at()), NOW - 60),
    );
    let shares = [&*first, &same, &later, &set_back].map(Message::shares_second);
    assert_eq!(shares, [false, true, false, true]);
    assert_eq!(set_back.published_at(), NOW + 1);
}

#[test]
fn an_ask_that_was_taken_back_counts_again() {
    let message = text(&"a".repeat(COMPRESS_BYTES_MIN));
    assert!(message.ask(Encoding::Gzip) && !message.ask(Encoding::Gzip));
    message.forget(Encoding::Gzip);
    assert!(message.ask(Encoding::Gzip));
}

#[test]
fn a_superseded_message_is_not_compressed_any_more() {
    let message = text(&"a".repeat(COMPRESS_BYTES_MIN));
    message.supersede();
    message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(message.form(Encoding::Gzip).is_none());
    assert!(!message.asked().contains(Encoding::Gzip));
}

/// Rendered bytes count in the account of the cache, and not in that of the message.
#[test]
fn the_account_of_a_message_fits_memory() {
    for data in ["", "12.5", &"x".repeat(10_000)] {
        let message = text(data);
        let memory = size_of::<Message>() + 2 * size_of::<usize>() + data.len();
        let stored = message.stored_bytes();
        assert!(stored >= memory && stored < memory + 100, "{memory}");
        let head = head(&message, Encoding::Identity).len() + UNCHANGED_AT_BYTES;
        let cached = message.cache().cached();
        assert!(cached >= head && cached < head + 300, "{cached} for {head}");
        assert_eq!(message.stored_bytes(), stored);
    }
    let message = text(&"ab".repeat(500));
    assert!(message.ask(Encoding::Gzip));
    message.compress(&mut Encoder::default(), Encoding::Gzip);
    let (head, body) = message.form(Encoding::Gzip).unwrap();
    let (memory, cached) = (head.len() + UNCHANGED_AT_BYTES + body.len(), message.cache().cached());
    assert!(cached >= memory && cached < memory + 600, "{cached} for {memory}");
}
