//! The fuzz targets' bodies under a random mutator. `STENTOR_FUZZ_RUNS` says how often.

use super::*;
use stentor_test::{Rng, seeds};

fn byte(random: &mut Rng) -> u8 {
    random.next_u64() as u8
}

/// Bytes that often are what matters: types, lengths, messages.
fn bytes(random: &mut Rng) -> Vec<u8> {
    const WORDS: [&[u8]; 14] = [
        &[23, 3, 3, 0, 20],
        &[22, 3, 3, 0, 5],
        &[21, 3, 3, 0, 2, 2, 40],
        &[20, 3, 3, 0, 1, 1],
        &[22, 0, 5, 24, 0, 0, 1, 0],
        &[22, 0, 5, 24, 0, 0, 1, 1],
        &[22, 0, 2, 24, 0],
        &[22, 0, 3, 0, 1, 1],
        &[22, 0, 4, 1, 0, 0, 0],
        &[23, 0, 0],
        &[23, 0, 3, b'a', b'b', b'c'],
        &[21, 0, 2, 1, 0],
        &[21, 0, 2, 1, 90],
        &[23, 0xf3, 9],
    ];
    let mut bytes = vec![byte(random)];
    for _ in 0..random.below(40) {
        match random.below(4) {
            0 => bytes.push(byte(random)),
            1 => bytes.extend((0..random.below(30)).map(|_| byte(random)).collect::<Vec<_>>()),
            _ => bytes.extend(WORDS[random.below(WORDS.len())]),
        }
    }
    if random.below(4) == 0 {
        let at = random.below(bytes.len());
        bytes[at] = byte(random);
    }
    bytes
}

#[test]
fn records_of_any_kind_break_nothing() {
    for seed in 0..seeds::fuzz_runs(3000) {
        fuzz_record(&bytes(&mut Rng::new(seed)));
    }
}

#[test]
fn first_bytes_of_any_kind_break_nothing() {
    for seed in 0..seeds::fuzz_runs(1000) {
        let mut random = Rng::new(seed ^ 1 << 40);
        let bytes = match random.below(3) {
            0 => bytes(&mut random),
            // A hello that was changed in a few places, the first byte apart.
            _ => {
                let first = byte(&mut random) | 1;
                let changes = 3 * random.below(5);
                [first].into_iter().chain((0..changes).map(|_| byte(&mut random))).collect()
            }
        };
        fuzz_hello(&bytes);
    }
}

#[test]
fn certificates_of_any_kind_break_nothing() {
    for seed in 0..seeds::fuzz_runs(3000) {
        let mut random = Rng::new(seed ^ 1 << 41);
        let changes = 3 * random.below(4);
        let bytes: Vec<u8> = [byte(&mut random) | 1]
            .into_iter()
            .chain((0..changes).map(|_| byte(&mut random)))
            .collect();
        fuzz_certificate(&bytes);
    }
}

#[test]
fn what_is_changed_is_good_before() {
    for version in [Version::Tls12, Version::Tls13] {
        let (mut handshake, mut out) = (acceptor().begin(), Vec::new());
        handshake.receive(NOW_UNIX_S, &hello(version), &mut out).unwrap();
        assert!(out.len() > 500, "{version} is answered");
    }
}
