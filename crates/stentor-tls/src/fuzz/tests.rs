//! The fuzz targets' bodies under a random mutator. `STENTOR_FUZZ_RUNS` says how often.

use super::*;

/// Numbers that look random, and are the same in each run of this seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.next() & 0xff).unwrap()
    }
}

fn runs(few: u64) -> u64 {
    std::env::var("STENTOR_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(few)
}

/// Bytes that often are what matters: types, lengths, messages.
fn bytes(random: &mut Random) -> Vec<u8> {
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
    let mut bytes = vec![random.byte()];
    for _ in 0..random.below(40) {
        match random.below(4) {
            0 => bytes.push(random.byte()),
            1 => bytes.extend((0..random.below(30)).map(|_| random.byte()).collect::<Vec<_>>()),
            _ => bytes.extend(WORDS[random.below(WORDS.len())]),
        }
    }
    if random.below(4) == 0 {
        let at = random.below(bytes.len());
        bytes[at] = random.byte();
    }
    bytes
}

#[test]
fn records_of_any_kind_break_nothing() {
    for seed in 0..runs(3000) {
        fuzz_record(&bytes(&mut Random(seed)));
    }
}

#[test]
fn first_bytes_of_any_kind_break_nothing() {
    for seed in 0..runs(1000) {
        let mut random = Random(seed ^ 1 << 40);
        let bytes = match random.below(3) {
            0 => bytes(&mut random),
            // A hello that was changed in a few places, the first byte apart.
            _ => {
                let first = random.byte() | 1;
                let changes = 3 * random.below(5);
                [first].into_iter().chain((0..changes).map(|_| random.byte())).collect()
            }
        };
        fuzz_hello(&bytes);
    }
}

#[test]
fn certificates_of_any_kind_break_nothing() {
    for seed in 0..runs(3000) {
        let mut random = Random(seed ^ 1 << 41);
        let changes = 3 * random.below(4);
        let bytes: Vec<u8> =
            [random.byte() | 1].into_iter().chain((0..changes).map(|_| random.byte())).collect();
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
