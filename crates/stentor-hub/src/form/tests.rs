//! Every form byte for byte, and that it is made once.

use flate2::{Decompress, FlushDecompress};
use proptest::prelude::*;

use super::*;
use crate::MessageObject;
use crate::hub::tests::name;
use crate::{ContentType, Draft, Epoch, EventName, Hub, Limits, Precondition};

const PLAIN: [StreamForm; 5] = [
    StreamForm::Sse,
    StreamForm::Frame,
    StreamForm::Envelope,
    StreamForm::EnvelopeSse,
    StreamForm::EnvelopeFrame,
];
const DEFLATED: [StreamForm; 2] = [StreamForm::FrameDeflated, StreamForm::EnvelopeFrameDeflated];

/// The first message of a hub, as an event.
fn event(topic: &str, draft: Draft) -> Event {
    let hub = Hub::new(Epoch::parse("5f3a09c1").unwrap(), vec![], Limits::default());
    hub.publish(name(topic), draft, Precondition::None, 0).unwrap();
    first(&hub, topic)
}

fn first(hub: &Hub, topic: &str) -> Event {
    let span = crate::Span { since: 0, upto: u64::MAX, mode: crate::Mode::All };
    let mut events = Vec::new();
    hub.missed(topic, span, usize::MAX, &mut events);
    events.remove(0)
}

fn deletion(topic: &str) -> Event {
    let hub = Hub::new(Epoch::parse("5f3a09c1").unwrap(), vec![], Limits::default());
    hub.publish(name(topic), Draft::new(*b"x"), Precondition::None, 0).unwrap();
    hub.delete(name(topic), Precondition::None, 0).unwrap()
}

fn draft(content_type: &str, data: &[u8]) -> Draft {
    Draft::new(data).with_content_type(ContentType::parse(content_type).unwrap())
}

fn text(data: &str) -> Draft {
    Draft::new(data.as_bytes()).with_content_type(ContentType::TEXT)
}

fn deflated(event: &Event, form: StreamForm) -> Option<Arc<RenderedBytes>> {
    event.deflated(&mut Deflater::default(), form)
}

fn lossy(event: &Event, form: StreamForm) -> String {
    String::from_utf8_lossy(&event.streamed(form)).into_owned()
}

/// First byte and payload of a frame.
fn unframed(frame: &[u8]) -> (u8, &[u8]) {
    let (length, payload) = match frame[1] {
        126 => (usize::from(u16::from_be_bytes([frame[2], frame[3]])), &frame[4..]),
        127 => (u64::from_be_bytes(frame[2..10].try_into().unwrap()) as usize, &frame[10..]),
        short => (usize::from(short), &frame[2..]),
    };
    assert_eq!(payload.len(), length);
    (frame[0], payload)
}

fn inflated(payload: &[u8], room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(room + 64);
    let whole = [payload, b"\0\0\xff\xff"].concat();
    Decompress::new(false).decompress_vec(&whole, &mut out, FlushDecompress::Sync).unwrap();
    out
}

#[test]
fn a_text() {
    let event = event("/a", text("line1\nline2"));
    assert_eq!(lossy(&event, StreamForm::Sse), "id: 5f3a09c1-1\ndata: line1\ndata: line2\n\n");
    assert_eq!(lossy(&event, StreamForm::Frame), "\u{fffd}\u{b}line1\nline2");
    let envelope = "{\"topic\":\"/a\",\"id\":\"5f3a09c1-1\",\"type\":\"text/plain; charset=utf-8\",\
                    \"data\":\"line1\\nline2\"}";
    assert_eq!(lossy(&event, StreamForm::Envelope), envelope);
    assert_eq!(
        lossy(&event, StreamForm::EnvelopeSse),
        format!("id: 5f3a09c1-1\ndata: {envelope}\n\n")
    );
    let frame = event.streamed(StreamForm::EnvelopeFrame);
    assert_eq!(unframed(&frame), (0x81, envelope.as_bytes()));
}

#[test]
fn json_with_a_name() {
    let named = draft("application/json", b"{\"a\":\r\n1}");
    let event = event("/\"q\"", named.with_event(EventName::parse("ti\"ck").unwrap()));
    let sse = "id: 5f3a09c1-1\nevent: ti\"ck\ndata: {\"a\":\ndata: 1}\n\n";
    assert_eq!(lossy(&event, StreamForm::Sse), sse);
    let envelope = "{\"topic\":\"/\\\"q\\\"\",\"id\":\"5f3a09c1-1\",\"type\":\"application/json\",\
                    \"data\":{\"a\":\r\n1},\"event\":\"ti\\\"ck\"}";
    assert_eq!(lossy(&event, StreamForm::Envelope), envelope);
    assert!(lossy(&event, StreamForm::EnvelopeSse).starts_with("id: 5f3a09c1-1\ndata: {"));
    let frame = event.streamed(StreamForm::Frame);
    assert_eq!(unframed(&frame), (0x81, &b"{\"a\":\r\n1}"[..]));
}

#[test]
fn bytes() {
    let event = event("/a", draft("text/plain", b"\xff\0"));
    let envelope = lossy(&event, StreamForm::Envelope);
    assert!(envelope.ends_with("\"data_base64\":\"/wA=\"}"), "{envelope}");
    let sse = format!("id: 5f3a09c1-1\nevent: stentor\ndata: {envelope}\n\n");
    assert_eq!(lossy(&event, StreamForm::Sse), sse);
    assert_eq!(unframed(&event.streamed(StreamForm::Frame)), (0x82, &b"\xff\0"[..]));
}

#[test]
fn only_what_is_said_to_be_text_is_a_text_frame() {
    for (content_type, data, is_text) in [
        ("text/csv", &b"a,b"[..], true),
        ("TEXT/x", b"", true),
        ("application/json", b"[]", true),
        ("application/json", b"broken", true),
        ("a/b+json", b"1", true),
        ("application/octet-stream", b"ascii", false),
        ("image/svg+xml", b"<svg/>", false),
        ("text/plain", b"\xed\xa0\x80", false),
        ("application/json", b"\"\xff\"", false),
    ] {
        let event = event("/a", draft(content_type, data));
        let opcode = if is_text { 0x81 } else { 0x82 };
        assert_eq!(unframed(&event.streamed(StreamForm::Frame)), (opcode, data));
    }
}

#[test]
fn a_deletion_in_every_form() {
    let event = deletion("/\"a\"");
    let object = "{\"topic\":\"/\\\"a\\\"\",\"id\":\"5f3a09c1-2\",\"deleted\":true}";
    for form in [StreamForm::Sse, StreamForm::EnvelopeSse] {
        let text = format!("id: 5f3a09c1-2\nevent: stentor\ndata: {object}\n\n");
        assert_eq!(lossy(&event, form), text);
    }
    assert_eq!(lossy(&event, StreamForm::Envelope), object);
    for form in [StreamForm::Frame, StreamForm::EnvelopeFrame] {
        assert_eq!(unframed(&event.streamed(form)), (0x81, object.as_bytes()));
    }
    assert!(DEFLATED.iter().all(|form| deflated(&event, *form).is_none()));
}

#[test]
fn what_shrinks_is_deflated() {
    let data = "hello ".repeat(100);
    let event = event("/a", text(&data));
    let frame = deflated(&event, StreamForm::FrameDeflated).unwrap();
    let (first, payload) = unframed(&frame);
    assert_eq!(first, 0xc1, "FIN, RSV1, text");
    assert!(payload.len() < 100);
    assert_eq!(inflated(payload, data.len()), data.as_bytes());
    let envelope = event.streamed(StreamForm::Envelope);
    let frame = deflated(&event, StreamForm::EnvelopeFrameDeflated).unwrap();
    let (first, payload) = unframed(&frame);
    assert_eq!(first, 0xc1);
    assert_eq!(inflated(payload, envelope.len()), **envelope);
}

#[test]
fn what_does_not_shrink_or_is_small_is_not() {
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let noise: Vec<u8> = noise.take(1_000).collect();
    for draft in [
        draft("text/plain", &noise),
        text(&"a".repeat(crate::message::COMPRESS_BYTES_MIN - 1)),
        draft("image/png", &[0; 1_000]),
    ] {
        let event = event("/a", draft);
        assert!(deflated(&event, StreamForm::FrameDeflated).is_none());
    }
}

#[test]
fn the_large_go_plain() {
    let small = event("/a", text(&"a".repeat(DEFLATE_BYTES_MAX)));
    let large = event("/a", text(&"a".repeat(DEFLATE_BYTES_MAX + 1)));
    for form in DEFLATED {
        assert!(deflated(&small, form).is_some() && deflated(&large, form).is_none());
    }
}

#[test]
fn to_append_is_the_same_and_keeps_nothing() {
    let event = event("/a", text("one\ntwo"));
    for form in PLAIN {
        let mut out = b"before ".to_vec();
        event.append(form, &mut out);
        assert!(event.message.known(RenderedKind::Stream(form)).is_none());
        assert_eq!(out.strip_prefix(b"before "), Some(&**event.streamed(form)));
        out.clear();
        event.append(form, &mut out);
        assert_eq!(out, **event.streamed(form));
    }
}

#[test]
fn only_what_was_asked_for_is_made() {
    let event = event("/a", text(&"hello ".repeat(100)));
    deflated(&event, StreamForm::EnvelopeFrameDeflated).unwrap();
    let is_cached = |form| event.message.known(RenderedKind::Stream(form)).is_some();
    let made = PLAIN.iter().chain(&DEFLATED).filter(|form| is_cached(**form));
    assert_eq!(made.collect::<Vec<_>>(), [&StreamForm::EnvelopeFrameDeflated]);
}

#[test]
fn streams_do_not_change_what_the_value_varies_by() {
    let event = event("/a", text("short"));
    PLAIN.iter().for_each(|form| drop(event.streamed(*form)));
    assert!(!event.message.varies());
}

#[test]
fn forms_are_made_once_from_many_threads() {
    for round in 0..20 {
        let event = event("/a", text(&"hello ".repeat(100)));
        let all = [&PLAIN[..], &DEFLATED[..]].concat();
        let addresses: Vec<_> = std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| {
                let (event, mut forms) = (&event, all.clone());
                forms.rotate_left((round + 2 * thread) % all.len());
                scope.spawn(move || {
                    let make = |form: StreamForm| match form.is_deflated() {
                        true => deflated(event, form).is_some(),
                        false => !event.streamed(form).is_empty(),
                    };
                    assert!(forms.into_iter().all(make));
                    PLAIN.map(|form| event.streamed(form).as_ptr() as usize)
                })
            });
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert!(addresses.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

proptest! {
    /// Whatever was published, a reader gets it back, and nothing a publisher chose speaks for
    /// the server.
    #[test]
    fn any_message_comes_back(
        data in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..400),
            "[a-z\\r\\n\":{} \\\\\u{7f}\u{2028}]{0,400}".prop_map(String::into_bytes),
        ],
        content_type in prop_oneof![Just("text/plain"), Just("application/json"), Just("x/y")],
        topic in "/[a-z\"\\\\ \u{e9}]{1,9}",
        name in proptest::option::of("[a-z\"\\\\\u{2028}]{1,9}"),
    ) {
        let mut draft = draft(content_type, &data);
        if let Some(name) = name.as_deref().and_then(|name| EventName::parse_published(name).ok()) {
            draft = draft.with_event(name);
        }
        let event = event(&topic, draft);
        let envelope: serde_json::Value =
            serde_json::from_slice(&event.streamed(StreamForm::Envelope)).unwrap();
        prop_assert_eq!(&envelope["topic"], &topic);
        prop_assert_eq!(&envelope["id"], "5f3a09c1-1");
        prop_assert_eq!(&envelope["type"], content_type);
        let named = envelope.get("event").and_then(|name| name.as_str());
        prop_assert_eq!(named, event.message.event());
        prop_assert!(envelope.get("deleted").is_none() && envelope.get("gap").is_none());
        // What a stream sends can be published again. White space around JSON is lost.
        let written = event.streamed(StreamForm::Envelope);
        let object = MessageObject::parse(str::from_utf8(&written).unwrap()).unwrap();
        let again = self::event(&topic, object.draft(None).unwrap()).message;
        prop_assert_eq!(again.data().trim_ascii(), data.trim_ascii());
        prop_assert_eq!(again.data() == &data[..], again.data().len() == data.len());
        prop_assert_eq!(again.content_type(), content_type);
        prop_assert_eq!(again.event(), event.message.event());

        let frame = event.streamed(StreamForm::Frame);
        let (_, payload) = unframed(&frame);
        prop_assert_eq!(payload, &data[..]);
        let sse = event.streamed(StreamForm::Sse);
        let ends = sse.windows(2).filter(|pair| pair == b"\n\n").count();
        prop_assert!(sse.ends_with(b"\n\n") && ends == 1, "one event");
        for form in [StreamForm::Sse, StreamForm::EnvelopeSse] {
            let mut decoder = sse::Decoder::new(1 << 20);
            decoder.push(&event.streamed(form));
            let Some(Ok(sse::Item::Event { id, name, data: got })) = decoder.next() else {
                panic!("no event");
            };
            prop_assert_eq!(id.as_deref(), Some("5f3a09c1-1"));
            if form == StreamForm::EnvelopeSse {
                prop_assert_eq!(name, None);
                let again: serde_json::Value = serde_json::from_str(&got).unwrap();
                prop_assert_eq!(&again, &envelope);
            } else if let Ok(text) = str::from_utf8(&data) {
                prop_assert_eq!(name.as_deref(), event.message.event());
                prop_assert_eq!(got, text.replace("\r\n", "\n").replace('\r', "\n"));
            } else {
                prop_assert_eq!(name.as_deref(), Some(sse::NOTICE));
            }
        }
    }
}
