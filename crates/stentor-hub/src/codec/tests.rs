//! Every entry has one spelling, and every other one is refused.

use proptest::prelude::*;
use stentor_wire::deflate::Inflater;
use stentor_wire::negotiate::Encoding;

use super::*;
use crate::{Encoder, Epoch, Hub, Limits, Mode, Span};

fn draft() -> impl Strategy<Value = Draft> {
    let content_type = prop_oneof![
        Just(ContentType::OCTETS),
        Just(ContentType::TEXT),
        Just(ContentType::parse("x/y; z=\"1\"").unwrap()),
    ];
    let data = proptest::collection::vec(any::<u8>(), 0..40);
    let control = proptest::option::of("[a-z=0-9]{1,20}");
    (data, content_type, proptest::option::of("[a-zä]{1,9}x"), control, any::<bool>()).prop_map(
        |(data, content_type, event, control, is_gzip)| {
            let mut draft = Draft::new(data.clone());
            if is_gzip {
                let body = Encoder::default().encode(Encoding::Gzip, &data).unwrap().to_vec();
                draft = Draft::from_gzip(&mut Inflater::default(), body, 100).unwrap();
            }
            draft = draft.with_content_type(content_type);
            if let Some(event) = event {
                draft = draft.with_event(EventName::parse(&event).unwrap());
            }
            if let Some(control) = control {
                draft = draft.with_cache_control(CacheControl::parse(&control).unwrap());
            }
            draft
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    let control = proptest::option::of("[a-z=0-9]{1,20}");
    let (leave_out, keep) = (any::<[bool; 4]>(), (0..KEEPS.len()).prop_map(|index| KEEPS[index]));
    let kept = (any::<u32>(), any::<usize>(), keep, 0..=Guard::LISTS_MAX);
    ("(/[a-c*]){1,3}(/\\*\\*)?", kept, control, leave_out).prop_map(
        |(pattern, (history, history_bytes, keep, list), control, left_out)| Rule {
            pattern: Pattern::parse(&pattern).unwrap(),
            history,
            history_bytes,
            cache_control: control.map(|text| CacheControl::parse(&text).unwrap()),
            leave_out: LeaveOut {
                last_modified: left_out[0],
                cache_control: left_out[1],
                vary: left_out[2],
            },
            keep,
            guard: Guard { is_private: left_out[3], list },
        },
    )
}

fn op() -> impl Strategy<Value = Op<'static>> {
    let topic = || "(/[a-cö]{1,5}){1,3}".prop_map(|text: String| TopicName::parse(text).unwrap());
    prop_oneof![
        (topic(), draft()).prop_map(|(topic, draft)| Op::Put(topic, draft)),
        topic().prop_map(Op::Delete),
        proptest::collection::vec(rule(), 0..4).prop_map(Op::Rules),
    ]
}

/// Numbers of every length.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
}

fn entry() -> impl Strategy<Value = (Entry<'static>, Place)> {
    let tags = || proptest::collection::vec(any::<u8>(), 0..9).prop_map(Vec::into_boxed_slice);
    let when = prop_oneof![
        Just(Precondition::None),
        tags().prop_map(Precondition::IfMatch),
        tags().prop_map(Precondition::IfNoneMatch),
    ];
    let place = prop_oneof![
        Just(Place::Next),
        number().prop_map(Place::At),
        (number(), any::<bool>(), number()).prop_map(|(number, shares_second, last_seq)| {
            Place::Was(Past { number, shares_second, last_seq })
        }),
    ];
    (op(), when, place, number()).prop_map(|(op, mut when, mut place, unix_s)| {
        if matches!(op, Op::Rules(_)) {
            when = Precondition::None;
        }
        if let Place::Was(past) = &mut place {
            past.shares_second &= !matches!(op, Op::Rules(_));
            past.last_seq = if matches!(op, Op::Delete(_)) { past.last_seq } else { 0 };
        }
        (Entry { op, when, unix_s }, place)
    })
}

fn encoded(entry: &Entry<'_>, place: Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_entry(entry, place, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn entries_come_back_as_they_were((entry, place) in entry()) {
        let bytes = encoded(&entry, place);
        let (back, place_back) = decode_entry(&bytes).unwrap();
        prop_assert_eq!(format!("{back:?} {place_back:?}"), format!("{entry:?} {place:?}"));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn damaged_entries_are_refused_or_others((entry, place) in entry()) {
        let bytes = encoded(&entry, place);
        for len in 0..bytes.len() {
            prop_assert!(decode_entry(&bytes[..len]).is_err());
        }
        prop_assert!(decode_entry(&[&bytes[..], b"x"].concat()).is_err());
        for at in 0..bytes.len() {
            for flip in 1..=u8::MAX {
                let mut other = bytes.clone();
                other[at] ^= flip;
                crate::fuzz::fuzz_entry(&other);
            }
        }
    }
}

#[test]
fn an_event_is_the_entry_it_was() {
    let hub = Hub::new(Epoch::parse("5f3a09c1").unwrap(), vec![], Limits::default());
    let name = |text| TopicName::parse(text).unwrap();
    let put = |data: &str| {
        let op = Op::Put(name("/a"), Draft::new(data.as_bytes()));
        hub.apply(hub.admit(op, Precondition::None, 300).unwrap(), Place::Next).unwrap();
    };
    put("1");
    put("22");
    let deletion = hub.delete(name("/a"), Precondition::None, 200).unwrap();
    let mut bytes = Vec::new();
    encode_event(&deletion, &mut bytes);
    assert_eq!(bytes, b"\x01\x49\x03\xac\x02\x02/a\x02", "a clock that was set back");
    let (_, place) = decode_entry(&bytes).unwrap();
    assert_eq!(place, Place::Was(Past { number: 3, shares_second: true, last_seq: 2 }));
}

#[test]
fn what_was_compressed_here_is_not_written_down() {
    let hub = Hub::new(Epoch::random(), vec![], Limits::default());
    let draft = Draft::new([b'x'; 1_000]).with_content_type(ContentType::TEXT);
    let topic = TopicName::parse("/a").unwrap();
    let message = hub.publish(topic, draft, Precondition::None, 0).unwrap().message;
    let (mut events, span) = (Vec::new(), Span { since: 0, upto: 1, mode: Mode::All });
    hub.missed("/a", span, usize::MAX, &mut events);
    let encoded = |event| {
        let mut bytes = Vec::new();
        encode_event(event, &mut bytes);
        bytes
    };
    let before = encoded(&events[0]);
    message.compress(&mut Encoder::default(), Encoding::Gzip);
    assert!(message.form(Encoding::Gzip).is_some());
    assert_eq!(encoded(&events[0]), before);
}

#[test]
fn spellings_that_are_not_ours() {
    let good = b"\x01\x00\x05\x02/a\x00\x00\x01x";
    assert!(decode_entry(good).is_ok());
    // Stored by a version that had not reserved the name.
    assert!(decode_entry(b"\x01\x00\x05\x02/a\x01\x00\x03gap\x01x").is_ok());
    let bad: [&[u8]; 12] = [
        b"",
        b"\x02\x00\x05\x02/a\x00\x00\x01x",
        b"\x01\x80\x05\x02/a\x00\x00\x01x",
        b"\x01\x40\x05\x02/a\x00\x00\x01x",
        b"\x01\x03\x05\x02/a\x00\x00\x01x",
        b"\x01\x0c\x05\x05\x02/a\x00\x00\x01x",
        b"\x01\x00\x85\x00\x02/a\x00\x00\x01x",
        b"\x01\x00\x05\x02/-\x00\x00\x01x",
        b"\x01\x00\x05\x02/a\x08\x00\x01x",
        b"\x01\x00\x05\x02/a\x00\xff\x09text/html\x01x",
        b"\x01\x00\x05\x02/a\x01\x00\x03g\np\x01x",
        b"\x01\x00\x05\x02/a\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
    ];
    for bytes in bad {
        assert!(decode_entry(bytes).is_err(), "{bytes:?}");
    }
    let mut out = Vec::new();
    for number in [0, 127, 128, 16_383, 16_384, u64::MAX] {
        out.clear();
        put_varint(&mut out, number);
        assert_eq!(Reader(&out).varint(), Ok(number));
    }
    assert_eq!(out.len(), 10);
    out[9] = 2;
    assert_eq!(Reader(&out).varint(), Err(MALFORMED), "more than 64 bits");
}
