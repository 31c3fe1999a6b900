//! What is kept changes nothing: each thing is coded as if it were the first.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Text in which much is said again, some of it from far away.
fn text(len: usize) -> Vec<u8> {
    (0_u64..).flat_map(|n| format!("{} is {n}, ", n * n % 997).into_bytes()).take(len).collect()
}

fn fresh(data: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    let mut deflated = Vec::with_capacity(2 * data.len() + 64);
    compress.compress_vec(data, &mut deflated, flush).unwrap();
    deflated
}

#[test]
fn a_stream_ends_where_it_ends() {
    let mut inflater = Inflater::default();
    let hello = b"\xf3\x48\xcd\xc9\xc9\x07\x00";
    let two = [&hello[..], &hello[..], b"more"].concat();
    let mut data = b"it says: ".to_vec();
    assert_eq!(inflater.stream(&two, &mut data, 100), Ok(7));
    assert_eq!(inflater.stream(&two[7..], &mut data, 100), Ok(7));
    assert_eq!(data, b"it says: HelloHello");
    for cut in 0..hello.len() {
        let broken = inflater.stream(&hello[..cut], &mut Vec::new(), 100);
        assert_eq!(broken, Err(InflateError::Broken), "cut off at {cut}");
    }
    // What was broken is forgotten, and nothing refers back to what was before.
    let (mut data, refers_back) = (Vec::new(), b"\xf3\x00\x11\x00");
    assert_eq!(inflater.stream(refers_back, &mut data, 100), Err(InflateError::Broken));
    assert_eq!(inflater.stream(hello, &mut Vec::new(), 5), Ok(7));
    assert_eq!(inflater.stream(hello, &mut Vec::new(), 4), Err(InflateError::TooLong));
    assert_eq!(inflater.stream(hello, &mut Vec::new(), 0), Err(InflateError::TooLong));
    assert_eq!(inflater.stream(b"\x03\x00", &mut Vec::new(), 0), Ok(2));
}

#[test]
fn what_is_inflated_reserves_no_more_than_twice_its_length() {
    let mut inflater = Inflater::default();
    for len in [0, 1, 100, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 1_000_000] {
        let mut data = Vec::new();
        let deflated = fresh(&vec![b'x'; len], FlushCompress::Finish);
        let steps = inflater.steps();
        assert_eq!(inflater.stream(&deflated, &mut data, 10_000_000), Ok(deflated.len()));
        assert!(data.len() == len && data.capacity() <= 2 * len + 8, "{len} bytes");
        assert!(inflater.steps() - steps <= 2 + (len / STEP_BYTES) as u64);
    }
}

#[test]
fn a_large_buffer_is_not_kept() {
    let mut deflater = Deflater::default();
    let large = text(1_000_000);
    deflater.whole(&large, large.len()).unwrap();
    deflater.flushed(b"small", 100).unwrap();
    assert!(deflater.deflated.capacity() <= DEFLATED_BYTES_KEPT);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever was deflated before, and whether there was room for it.
    #[test]
    fn each_is_as_if_it_were_the_first(
        all in vec((0..3_000_usize, vec(any::<u8>(), 0..300), any::<bool>(), 0..2_000_usize), 1..8),
    ) {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        for (len, noise, flush, bytes_max) in all {
            let data = [text(len), noise].concat();
            let (deflated, expected) = match flush {
                true => (deflater.flushed(&data, bytes_max), fresh(&data, FlushCompress::Sync)),
                false => (deflater.whole(&data, bytes_max), fresh(&data, FlushCompress::Finish)),
            };
            let fits = expected.len() <= bytes_max;
            prop_assert_eq!(deflated, fits.then_some(&expected[..]));
            let mut back = Vec::new();
            let end = if flush { &b"\x03\x00"[..] } else { b"" };
            let stream = [&expected, end].concat();
            prop_assert_eq!(inflater.stream(&stream, &mut back, data.len()), Ok(stream.len()));
            prop_assert_eq!(back, data);
        }
    }
}
