//! The bytes of the binary by crate, as far as symbols tell.
//!
//! Code that a crate has instantiated counts for the first crate that its name mentions, apart from
//! the standard library; constants without a name are a row of their own. It measures a build for
//! this host: the shipped one has no symbols, and differs by its libc alone.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use super::output;
use crate::{cargo, root, run};

/// Builds the command with its symbols, and prints a table.
pub(crate) fn print() -> Result<(), String> {
    let build = ["build", "--locked", "--package", "stentor", "--release"];
    run(&mut cargo(&build))?;
    let binary = root().join("target/release/stentor");
    let stripped = root().join("target/release/stentor.stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(&binary))?;
    let total = fs::metadata(&stripped).map_err(|error| error.to_string())?.len();
    let crates = by_crate(&output(Command::new("nm").args(["-S", "-C"]).arg(&binary))?);
    let named: u64 = crates.values().map(|part| part.code + part.data).sum();
    let mut rows: Vec<_> = crates.into_iter().collect();
    rows.sort_by_key(|(_, part)| std::cmp::Reverse(part.code + part.data));
    let small = rows.split_off(rows.len().min(ROWS));
    println!("{:>10} {:>10}  crate", "code", "constants");
    for (name, part) in &rows {
        println!("{:>10} {:>10}  {name}", part.code, part.data);
    }
    let sum = |of: fn(&Part) -> u64| small.iter().map(|(_, part)| of(part)).sum::<u64>();
    println!("{:>10} {:>10}  {} smaller ones", sum(|it| it.code), sum(|it| it.data), small.len());
    println!("{:>21}  without a name: strings, tables for unwinding", total.saturating_sub(named));
    println!("{total:>21}  in all");
    Ok(())
}

/// Bytes of code and of named constants.
#[derive(Default, Debug, PartialEq)]
struct Part {
    code: u64,
    data: u64,
}

/// Adds up what `nm` prints: address, size, kind, name.
fn by_crate(symbols: &str) -> BTreeMap<String, Part> {
    let mut crates = BTreeMap::<String, Part>::new();
    for line in symbols.lines() {
        let mut fields = line.splitn(4, ' ');
        let (Some(_), Some(size), Some(kind), Some(name)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Ok(size) = u64::from_str_radix(size, 16) else { continue };
        let part = crates.entry(crate_of(name)).or_default();
        match kind {
            "t" | "T" | "w" | "W" => part.code += size,
            // Zeros take no place in the file.
            "b" | "B" => {}
            _ => part.data += size,
        }
    }
    crates
}

/// The crate that a demangled name belongs to.
fn crate_of(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let mut paths = words.filter_map(|word| word.split_once("::")).map(|(first, _)| first);
    let is_std = |name: &&str| ["core", "alloc", "std"].contains(name);
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase());
    if let Some(found) = paths.clone().find(|path| is_name(path) && !is_std(path)) {
        return found.to_owned();
    }
    if paths.any(|path| is_std(&path)) {
        return "std".into();
    }
    let library = C_LIBRARIES.iter().find(|(prefix, _)| name.starts_with(prefix));
    library.map_or("musl, and other C", |(_, library)| library).to_owned()
}

/// C has no crates, but prefixes.
const C_LIBRARIES: &[(&str, &str)] = &[
    ("aws_lc", "aws-lc"),
    ("s2n_", "aws-lc"),
    ("mlk", "aws-lc"),
    ("ZSTD", "zstd"),
    ("HUF", "zstd"),
    ("FSE", "zstd"),
    ("HIST", "zstd"),
];

const ROWS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_counts_for_the_crate_that_asked_for_it() {
        for (name, expected) in [
            ("stentor_server::worker::Worker<B>::run", "stentor_server"),
            ("core::ptr::drop_in_place<alloc::vec::Vec<rustls::Cert>>", "rustls"),
            ("<alloc::vec::Vec<u8> as core::fmt::Debug>::fmt", "std"),
            ("<brotli::enc::Encoder as std::io::Write>::write", "brotli"),
            ("aws_lc_0_47_0_EVP_DigestSign", "aws-lc"),
            ("ZSTD_compressBlock_lazy", "zstd"),
            ("memcpy", "musl, and other C"),
        ] {
            assert_eq!(crate_of(name), expected, "{name}");
        }
    }

    #[test]
    fn zeros_take_no_place_and_sizes_add_up() {
        let symbols = "0000000000001000 0000000000000010 T a::b\n\
                       0000000000001010 0000000000000020 r a::C\n\
                       0000000000001010 0000000000000400 b a::ZEROS\n\
                       0000000000001010 T of_no_size\n";
        let expected = BTreeMap::from([("a".to_owned(), Part { code: 0x10, data: 0x20 })]);
        assert_eq!(by_crate(symbols), expected);
    }
}
