//! Searches the memory of another process.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Secrets to search for, by their names.
pub(crate) struct Needles {
    /// Names and secrets, by the first bytes of the secrets.
    by_head: HashMap<[u8; HEAD], Vec<(String, Vec<u8>)>>,
    /// Whether a secret begins with a pair of bytes. This rules out most places in memory.
    pairs: Vec<bool>,
}

impl Needles {
    /// Reads lines of a name and a secret in hexadecimal.
    pub(crate) fn of_lines(lines: &str) -> Needles {
        let mut needles = Needles { by_head: HashMap::new(), pairs: vec![false; 1 << 16] };
        for (name, hex) in lines.lines().filter_map(|line| line.split_once(' ')) {
            let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
            let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            let head = *bytes.first_chunk().unwrap();
            needles.pairs[pair_of(&bytes)] = true;
            needles.by_head.entry(head).or_default().push((name.to_owned(), bytes));
        }
        needles
    }

    /// Searches all that a process can write, and says for each name how many secrets it found.
    pub(crate) fn count_in(&self, process: u32) -> HashMap<&str, usize> {
        let memory = File::open(format!("/proc/{process}/mem")).unwrap();
        let mut found: HashMap<&[u8], (&str, u64)> = HashMap::new();
        let mut bytes = vec![0; 1 << 20];
        for (mut at, end) in writable(process) {
            // The server may have unmapped the range meanwhile.
            while at < end
                && let Ok(read @ 1..) = memory.read_at(&mut bytes, at)
            {
                let read = read.min((end - at) as usize);
                for (offset, name, secret) in self.find(&bytes[..read]) {
                    found.entry(secret).or_insert((name, at + offset as u64));
                }
                // A secret may lie across the end of this piece.
                at += if at + read as u64 == end { read } else { read - OVERLAP } as u64;
            }
        }
        let mut counts = HashMap::new();
        for (name, at) in found.into_values() {
            *counts.entry(name).or_default() += 1;
            println!("{name} at {at:x}");
        }
        counts
    }

    fn find<'n>(&'n self, bytes: &[u8]) -> Vec<(usize, &'n str, &'n [u8])> {
        let starts = 0..bytes.len().saturating_sub(HEAD);
        let starts = starts.filter(|&at| self.pairs[pair_of(&bytes[at..])]);
        let found = starts.filter_map(|at| {
            let candidates = self.by_head.get(bytes[at..].first_chunk::<HEAD>()?)?;
            let is_here = |(_, secret): &&(String, Vec<u8>)| bytes[at..].starts_with(secret);
            let (name, secret) = candidates.iter().find(is_here)?;
            Some((at, name.as_str(), secret.as_slice()))
        });
        found.collect()
    }
}

/// The ranges of its memory that a process can write. Adjacent mappings are one range, for a secret
/// may lie across their border.
fn writable(process: u32) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).unwrap().contains('w')) {
        let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|number| u64::from_str_radix(number, 16).unwrap());
        match ranges.last_mut() {
            Some((_, last)) if *last == begin => *last = end,
            _ => ranges.push((begin, end)),
        }
    }
    ranges
}

fn pair_of(bytes: &[u8]) -> usize {
    usize::from(bytes[0]) << 8 | usize::from(bytes[1])
}

const HEAD: usize = 8;
/// No secret is longer.
const OVERLAP: usize = 64;
