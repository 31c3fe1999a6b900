//! What is packed is unpacked, whatever was half received; what cannot be is refused.

use super::*;
use crate::deflate::Inflater;
use crate::http1::{Body, BodyLength, Method, Request, RequestBuf, Step};
use crate::websocket::{Decoder, Received, Rules};
use proptest::prelude::*;

fn packed_at<T: Packed>(value: &T, now_ms: u64) -> Vec<u8> {
    let mut out = Packer::new(now_ms);
    value.pack(&mut out);
    out.into_bytes()
}

fn unpacked<T: Packed>(bytes: &[u8]) -> Unpacked<T> {
    let mut input = Unpacker::new(bytes, 0);
    let value = T::unpack(&mut input)?;
    input.end()?;
    Ok(value)
}

fn moved<T: Packed>(value: &T) -> T {
    unpacked(&packed_at(value, 0)).expect("it reads what it writes")
}

#[derive(PartialEq, Debug)]
struct Some3 {
    number: u16,
    lists: Vec<Option<Box<[u8]>>>,
    anew: u32,
}

#[derive(PartialEq, Debug)]
enum Either {
    Neither,
    Text(String),
    Both { number: u64, truth: bool },
}

packed!(struct Some3 { number, lists } without { anew } if is_small);
packed!(enum Either { 0 => Neither, 3 => Text(text), 4 => Both { number, truth } });

impl Some3 {
    fn is_small(&self) -> bool {
        self.number < 1_000
    }
}

#[test]
fn what_is_packed_is_unpacked() {
    let lists = vec![None, Some([1, 2].into()), Some([].into())];
    let three = Some3 { number: 7, lists, anew: 9 };
    assert_eq!(moved(&three), Some3 { anew: 0, ..three });
    for either in
        [Either::Neither, Either::Text("ä".to_owned()), Either::Both { number: 1, truth: true }]
    {
        assert_eq!(moved(&either), either);
    }
    let topic = TopicName::parse("/a").unwrap();
    assert_eq!(moved(&topic), topic);
}

#[test]
fn what_cannot_be_is_refused() {
    assert_eq!(unpacked::<Either>(&[1]).unwrap_err(), UNKNOWN);
    assert_eq!(unpacked::<bool>(&[2]).unwrap_err(), UNKNOWN);
    assert_eq!(unpacked::<Vec<u64>>(&[255; 4]).unwrap_err(), ENDS);
    assert!(unpacked::<u8>(&[1, 2]).unwrap_err().starts_with("More was packed"));
    assert!(unpacked::<String>(&[1, 0, 0, 0, 255]).unwrap_err().contains("UTF-8"));
    let large = Some3 { number: 1_000, lists: Vec::new(), anew: 0 };
    assert_eq!(unpacked::<Some3>(&packed_at(&large, 0)).unwrap_err(), MISFIT);
    let mut out = Packer::new(0);
    out.section(1, |out| 5_u8.pack(out));
    let bytes = out.into_bytes();
    assert!(Unpacker::new(&bytes, 0).section(2).unwrap_err().starts_with("Another part"));
    let mut part = Unpacker::new(&bytes, 0).section(1).unwrap();
    assert!(part.end().is_err() && u8::unpack(&mut part) == Ok(5) && part.end().is_ok());
}

#[test]
fn what_goes_over_beside_the_bytes_does_so_once_in_whatever_part() {
    let (text, number): (Thing, Thing) = (Arc::new("x".to_owned()), Arc::new(5_u64));
    let (one, two) = (vec![1; 3], vec![2; 2]);
    let mut out = Packer::new(0);
    [&text, &number, &text].into_iter().for_each(|thing| out.attach(Arc::clone(thing)));
    out.share(&one);
    let part = |out: &mut Packer| {
        out.section(9, Packer::put_shared);
        out.send(|bytes, things| (bytes.to_vec(), things.to_vec()))
    };
    let (first, first_things) = part(&mut out);
    assert!(out.is_empty());
    out.attach(Arc::clone(&text));
    [&two, &one].into_iter().for_each(|bytes| out.share(bytes));
    let (second, second_things) = part(&mut out);
    assert_eq!([first_things.len(), second_things.len()], [2, 0]);
    let mut beside = Beside::default();
    let (first, shared) = first.split_at(4 * size_of::<u32>());
    assert_eq!(shared[..5], [9, 4 + 3, 0, 0, 0]);
    beside.add_shared(&shared[5..]).unwrap();
    beside.add_things(first_things);
    let mut input = Unpacker::with(first, 0, &beside);
    let came = input.attached::<String>().unwrap();
    assert_eq!((came.as_str(), *input.attached::<u64>().unwrap()), ("x", 5));
    assert!(Arc::ptr_eq(&came, &input.attached::<String>().unwrap()));
    assert_eq!(*input.shared().unwrap(), *one);
    input.end().unwrap();
    let (second, shared) = second.split_at(3 * size_of::<u32>());
    assert_eq!(shared[..5], [9, 4 + 2, 0, 0, 0]);
    beside.add_shared(&shared[5..]).unwrap();
    let mut input = Unpacker::with(second, 0, &beside);
    assert!(Arc::ptr_eq(&came, &input.attached::<String>().unwrap()));
    assert_eq!(
        [input.shared().unwrap(), input.shared().unwrap()].map(|is| is.to_vec()),
        [two, one]
    );
    // One that is something else, those that are not there, and lengths that do not fit.
    let refused = |bytes| Unpacker::with(bytes, 0, &beside).attached::<String>();
    assert_eq!(refused(&[1, 0, 0, 0]).unwrap_err(), UNKNOWN);
    assert_eq!(refused(&[2, 0, 0, 0]).unwrap_err(), UNKNOWN);
    assert_eq!(Unpacker::with(&[2, 0, 0, 0], 0, &beside).shared().unwrap_err(), UNKNOWN);
    assert_eq!(Beside::default().add_shared(&[2, 0, 0, 0, 1]).unwrap_err(), ENDS);
}

#[test]
fn moments_move_with_the_clock() {
    let mut out = Packer::new(1_000);
    [1_250, 900, 0].into_iter().for_each(|ms| out.moment(ms));
    let bytes = out.into_bytes();
    let mut input = Unpacker::new(&bytes, 500);
    let moments: Vec<u64> = (0..3).map(|_| input.moment().unwrap()).collect();
    assert_eq!(moments, [750, 400, 0]);
}

#[test]
fn a_request_goes_over_as_it_is() {
    let request = Request {
        accept: Some(b"text/html"),
        host: Some(b""),
        websocket_extensions: Some(b"x"),
        ..Request::new(Method::Delete, b"/a?b")
    };
    let buf = request.to_buf();
    assert_eq!(moved(&buf).borrowed(), request);
    let mut bytes = packed_at(&buf, 0);
    *bytes.last_mut().unwrap() = b'y';
    assert!(unpacked::<RequestBuf>(&bytes).is_ok());
    // The length of the target.
    bytes[1] += 1;
    assert_eq!(unpacked::<RequestBuf>(&bytes).unwrap_err(), MISFIT);
}

/// A body's content, if the framing is packed and unpacked after each part of the input.
fn content(input: &[u8], cuts: &[usize]) -> Result<Vec<u8>, &'static str> {
    let mut body = Body::new(BodyLength::Chunked);
    let (mut content, mut from) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        body = moved(&body);
        let mut part = &input[from..cut.max(from)];
        loop {
            match body.next(part).map_err(|rejection| rejection.code.title())? {
                Step::Data { data, used } => {
                    content.extend_from_slice(data);
                    part = &part[used..];
                }
                Step::More { .. } => break,
                Step::End { .. } => return Ok(content),
            }
        }
        from = cut.max(from);
    }
    Err("It goes on.")
}

/// What a WebSocket's client has said, if the decoder is packed and unpacked likewise.
fn said(input: &[u8], cuts: &[usize]) -> Vec<Received> {
    let rules = Rules { message_bytes_max: 1_000, deflate: false };
    let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
    let (mut all, mut from) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        decoder = moved(&decoder);
        let mut part = &input[from..cut.max(from)];
        loop {
            let (used, received) = decoder.next(&mut inflater, part, &rules).unwrap();
            part = &part[used..];
            match received {
                Some(received) => all.push(received),
                None => break,
            }
        }
        from = cut.max(from);
    }
    all
}

const CHUNKS: &[u8] = b"5;a=\"\\b\"\r\nhello\r\n0000b\r\n or goodbye\r\n0\r\nTrailer: x\r\n\r\n";

/// Text in two fragments with a ping between them, masked.
const FRAMES: &[u8] = b"\x01\x83\x01\x02\x03\x04\x62\xc1\xa7\
    \x89\x82\x00\x00\x00\x00hi\x80\x81\x01\x00\x00\x00\x60\x88\x82\x00\x00\x00\x00\x03\xe8";

proptest! {
    #[test]
    fn what_is_half_received_goes_over(
        mut cuts in proptest::collection::vec(0..FRAMES.len().max(CHUNKS.len()), 0..8),
    ) {
        cuts.sort_unstable();
        let within = |bytes: &[u8]| -> Vec<usize> {
            cuts.iter().copied().filter(|&cut| cut <= bytes.len()).collect()
        };
        prop_assert_eq!(content(CHUNKS, &within(CHUNKS)).unwrap(), b"hello or goodbye");
        let all = said(FRAMES, &within(FRAMES));
        let text = Received::Text("c\u{e4}a".to_owned());
        let ping = Received::Ping(b"hi".to_vec());
        prop_assert_eq!(all, [ping, text, Received::Close(Some(1000))]);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let (mut inflater, rules) =
            (Inflater::default(), Rules { message_bytes_max: 100, deflate: true });
        if let Ok(mut decoder) = unpacked::<Decoder>(&bytes) {
            // It may refuse what comes, and that is all.
            let _ = decoder.next(&mut inflater, FRAMES, &rules);
        }
        if let Ok(mut body) = unpacked::<Body>(&bytes) {
            let _ = body.next(CHUNKS);
        }
        if let Ok(request) = unpacked::<RequestBuf>(&bytes) {
            drop(request.borrowed());
        }
        let _ = unpacked::<Vec<Vec<Option<String>>>>(&bytes);
    }
}
