//! Batches by themselves: what they gather, and what it means that a part of one left.

use super::*;
use std::sync::{Arc, Mutex};
use stentor_hub::{
    ContentType, Draft, Epoch, Filter, Hub, Limits, Mode, Pattern, Precondition, Rule, StreamForm,
    Subscriber,
};
use stentor_wire::target::TopicName;

#[derive(Default)]
struct Told(Mutex<Vec<Event>>);

impl Subscriber for Told {
    fn notify(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// Publishes data to topics, of which `/one` keeps no history.
fn events(messages: &[(&str, &[u8])]) -> Vec<Event> {
    let rule = Rule { history: 1, ..Rule::new(Pattern::parse("/one").unwrap()) };
    let hub = Hub::new(Epoch::parse("0badcafe").unwrap(), vec![rule], Limits::default());
    let told = Arc::new(Told::default());
    let id = hub.add_subscriber(Arc::clone(&told) as Arc<dyn Subscriber>);
    hub.subscribe(id, &Filter::parse("/**").unwrap(), Arc::default());
    for (topic, data) in messages {
        hub.publish(TopicName::parse(*topic).unwrap(), Draft::new(*data), Precondition::None, 0)
            .unwrap();
    }
    let mut told = told.0.lock().unwrap();
    std::mem::take(&mut *told)
}

const FORMS: Forms = Forms { plain: StreamForm::Sse, deflated: None };

fn gather(events: &[Event], mode: Mode) -> Batch {
    let (first_seq, last_seq) = (events[0].seq(), events[events.len() - 1].seq());
    let mut batch = Batch::default();
    let deflater = &mut Deflater::default();
    batch.gather(
        deflater,
        Key { feed: 0, first_seq, last_seq, forms: FORMS, mode, sight: sight::Kind::All },
        events.iter(),
    );
    batch
}

fn seqs(batch: &Batch) -> Vec<u64> {
    batch.marks.iter().map(|mark| mark.event.seq()).collect()
}

/// The bytes that a rest still has.
fn left(rest: Option<&Rest>) -> Vec<u8> {
    let Some(Rest { piece, offset }) = rest else { return Vec::new() };
    let bytes: &[u8] = match piece {
        Piece::Own(bytes) => bytes,
        Piece::Shared(Body::Rendered(bytes)) => bytes,
        Piece::Shared(_) => panic!("a stream has nothing but messages"),
    };
    bytes[*offset..].to_vec()
}

#[test]
fn wherever_a_send_is_cut_the_rest_is_that_of_one_message_and_nothing_is_lost() {
    let events = events(&[("/a", b""), ("/one", b"12"), ("/b", b"\n\n"), ("/a", b"last")]);
    for prefix in [&b""[..], b"p", b"a head and a gap"] {
        let mut batch = Batch::default();
        batch.begin(&mut prefix.to_vec());
        batch.extend(&mut Deflater::default(), &events, FORMS);
        let all = batch.bytes().to_vec();
        for cut in 0..=all.len() {
            let sent = batch.sent(cut);
            let unsent: Vec<u8> = events[sent.messages..]
                .iter()
                .flat_map(|event| event.streamed(StreamForm::Sse).to_vec())
                .collect();
            // What is cut in the prefix leaves the messages where they are.
            let goes_on = [all[..cut].to_vec(), left(sent.rest.as_ref()), unsent].concat();
            assert_eq!(goes_on, all, "cut at {cut} behind a prefix of {}", prefix.len());
            let last = sent.messages.checked_sub(1).map(|last| events[last].seq());
            assert_eq!(sent.cursor, last, "cut at {cut}");
            // A message that was cut counts whole with its beginning.
            let begun = &events[..sent.messages];
            let bytes = |event: &Event| event.streamed(StreamForm::Sse).len() as u64;
            let expected: u64 = begun.iter().map(bytes).sum();
            let data: usize = begun.iter().map(|event| event.message.data().len()).sum();
            assert_eq!((sent.bytes, sent.data), (expected, data as u64), "cut at {cut}");
        }
    }
}

#[test]
fn all_bytes_of_a_deflated_message_count_as_data() {
    let text = "text ".repeat(100);
    let hub = Hub::new(Epoch::parse("0badcafe").unwrap(), vec![], Limits::default());
    let told = Arc::new(Told::default());
    let id = hub.add_subscriber(Arc::clone(&told) as Arc<dyn Subscriber>);
    hub.subscribe(id, &Filter::parse("/**").unwrap(), Arc::default());
    for data in [text.as_bytes(), b"short"] {
        let draft = Draft::new(data).with_content_type(ContentType::TEXT);
        hub.publish(TopicName::parse("/a").unwrap(), draft, Precondition::None, 0).unwrap();
    }
    let events = std::mem::take(&mut *told.0.lock().unwrap());
    let (plain, deflated) = (StreamForm::Frame, Some(StreamForm::FrameDeflated));
    let mut batch = Batch::default();
    batch.extend(&mut Deflater::default(), &events, Forms { plain, deflated });
    let deflated = events[0].deflated(&mut Deflater::default(), StreamForm::FrameDeflated);
    let deflated = deflated.unwrap().len() as u64;
    // What is too short goes as it is, behind a header of two bytes.
    let sent = batch.sent(batch.bytes().len());
    assert_eq!((sent.bytes, sent.data), (deflated + 2 + 5, deflated + 5));
}

#[test]
fn who_wants_the_latest_is_sent_the_newest_of_each_topic() {
    let events =
        events(&[("/a", b"1"), ("/one", b"2"), ("/a", b"3"), ("/one", b"4"), ("/b", b"5")]);
    for (mode, expected) in [
        (Mode::All, &[1, 2, 3, 4, 5][..]),
        (Mode::ByRule, &[1, 3, 4, 5]),
        (Mode::Latest, &[3, 4, 5]),
    ] {
        let batch = gather(&events, mode);
        assert_eq!(seqs(&batch), expected, "{mode:?}");
        assert_eq!(batch.conflated() as usize, 5 - expected.len());
        assert_eq!((batch.messages(), batch.upto_seq()), (expected.len(), 5));
    }
}

#[test]
fn a_batch_ends_when_a_write_is_full_and_says_where() {
    let large = vec![b'x'; GATHER_BYTES / 2];
    let messages: Vec<_> = (0..5).map(|_| ("/a", large.as_slice())).collect();
    let batch = gather(&events(&messages), Mode::All);
    assert_eq!(seqs(&batch), [1, 2], "the second fills it");
    assert_eq!(batch.upto_seq(), 2);
}

#[test]
fn a_batch_is_for_its_key_until_it_is_cleared() {
    let events = events(&[("/a", b"1"), ("/a", b"2")]);
    let mut batch = gather(&events, Mode::All);
    let key = Key {
        feed: 0,
        first_seq: 1,
        last_seq: 2,
        forms: FORMS,
        mode: Mode::All,
        sight: sight::Kind::All,
    };
    assert!(batch.is_for(&key));
    for other in [
        Key { feed: 1, ..key.clone() },
        Key { first_seq: 2, ..key.clone() },
        Key { last_seq: 3, ..key.clone() },
        Key { mode: Mode::Latest, ..key.clone() },
        Key { forms: Forms { plain: StreamForm::Frame, deflated: None }, ..key.clone() },
    ] {
        assert!(!batch.is_for(&other));
    }
    batch.clear();
    assert!(!batch.is_for(&key) && batch.bytes().is_empty());
}
