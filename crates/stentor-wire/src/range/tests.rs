//! Tables of ranges, and what they name of a file of a thousand bytes.

use super::*;
use std::iter::repeat_n;

/// The parts as pairs; no pair if none can be had, and `None` if the field is ignored.
fn parts_of(field: &str, length: u64) -> Option<Vec<(u64, u64)>> {
    match ranges(field.as_bytes(), length) {
        Ranges::Whole => None,
        Ranges::Unsatisfiable => Some(Vec::new()),
        Ranges::Parts(parts) => {
            assert!(!parts.is_empty(), "{field}");
            Some(parts.iter().map(|part| (part.first, part.last)).collect())
        }
    }
}

#[test]
fn parts_are_what_was_asked_for() {
    let rows: &[(&str, &[(u64, u64)])] = &[
        ("bytes=0-0", &[(0, 0)]),
        ("bytes=0-499", &[(0, 499)]),
        ("bytes=500-999", &[(500, 999)]),
        ("bytes=0-", &[(0, 999)]),
        ("bytes=0-999", &[(0, 999)]),
        ("bytes=999-", &[(999, 999)]),
        ("bytes=-1", &[(999, 999)]),
        ("bytes=-500", &[(500, 999)]),
        ("bytes=-1000", &[(0, 999)]),
        // More than there is.
        ("bytes=-1001", &[(0, 999)]),
        ("bytes=-99999999999999999999", &[(0, 999)]),
        ("bytes=900-1000", &[(900, 999)]),
        ("bytes=900-99999999999999999999", &[(900, 999)]),
        ("bytes=0000000000000000000000001-02", &[(1, 2)]),
        // Several, in the order in which they were asked for.
        ("bytes=0-0,-1", &[(0, 0), (999, 999)]),
        ("bytes=-1,0-0", &[(999, 999), (0, 0)]),
        ("bytes=500-600,601-699", &[(500, 600), (601, 699)]),
        ("bytes=500-700,601-699", &[(500, 700), (601, 699)]),
        ("bytes=5-6,5-6", &[(5, 6), (5, 6)]),
        // What cannot be had is left out.
        ("bytes=1000-,0-1", &[(0, 1)]),
        ("bytes=0-1,5000-6000,-0", &[(0, 1)]),
        // Spaces and empty members.
        ("bytes= 0-1", &[(0, 1)]),
        ("bytes=0-1 \t,\t 5-6 ", &[(0, 1), (5, 6)]),
        ("bytes=,0-1,,5-6,", &[(0, 1), (5, 6)]),
        ("bytes=,,,,,,,,,,,,,,,0-1", &[(0, 1)]),
        ("BYTES=0-1", &[(0, 1)]),
        ("Bytes=0-1", &[(0, 1)]),
        // Nothing of it can be had.
        ("bytes=1000-", &[]),
        ("bytes=1000-1000", &[]),
        ("bytes=99999999999999999999-", &[]),
        ("bytes=-0", &[]),
        ("bytes=-0000", &[]),
        ("bytes=-0,1000-,2000-3000", &[]),
    ];
    for (field, expected) in rows {
        assert_eq!(parts_of(field, 1000).as_deref(), Some(*expected), "{field}");
    }
}

#[test]
fn what_makes_no_sense_is_ignored() {
    let fields = [
        "",
        "bytes",
        "bytes=",
        "bytes= ",
        "bytes=,",
        "bytes= , ,",
        "=0-1",
        "0-1",
        "bytes 0-1",
        "bytes =0-1",
        " bytes=0-1",
        "bytes:0-1",
        "bytes==0-1",
        "byte=0-1",
        "bytess=0-1",
        "items=0-1",
        "none",
        "bytes=-",
        "bytes=--1",
        "bytes=1",
        "bytes=1--2",
        "bytes=1-2-3",
        "bytes=-1-2",
        "bytes=2-1",
        "bytes=5000-4000",
        "bytes=a-b",
        "bytes=0x0-0x1",
        "bytes=+0-1",
        "bytes=0-+1",
        "bytes=-+1",
        "bytes=0 -1",
        "bytes=0- 1",
        "bytes=- 1",
        "bytes=1 2-3",
        "bytes=0-1;2-3",
        "bytes=0-1 2-3",
        "bytes=\"0-1\"",
        "bytes=*",
        "bytes=0-1/1000",
        "bytes=\u{661}-\u{662}",
        "bytes=0-\u{a0}",
        // One member spoils the others, wherever it stands.
        "bytes=0-1,x",
        "bytes=x,0-1",
        "bytes=0-1,2-1",
        "bytes=0-1,bytes=2-3",
        "bytes=1000-,x",
    ];
    for field in fields {
        assert_eq!(parts_of(field, 1000), None, "{field}");
    }
}

#[test]
fn what_costs_more_than_the_whole_is_ignored() {
    let of = |members: &[&str]| format!("bytes={}", members.join(","));
    // As many members as may be, and one more: whether they can be had or are empty does not count.
    let many = |member, count| of(&repeat_n(member, count).collect::<Vec<_>>());
    let disjoint = |count| {
        let members: Vec<_> = (0..count).map(|i| format!("{}-{}", 10 * i, 10 * i + 1)).collect();
        format!("bytes={}", members.join(","))
    };
    let found = parts_of(&disjoint(RANGES_MAX), 100_000).expect("not too many");
    assert_eq!(found.len(), RANGES_MAX);
    assert_eq!(found[15], (150, 151));
    assert_eq!(parts_of(&disjoint(RANGES_MAX + 1), 100_000), None);
    assert_eq!(parts_of(&many("-0", RANGES_MAX), 1000), Some(vec![]));
    assert_eq!(parts_of(&many("-0", RANGES_MAX + 1), 1000), None);
    assert_eq!(parts_of(&format!("{},0-1", many("", RANGES_MAX - 1)), 1000), Some(vec![(0, 1)]));
    assert_eq!(parts_of(&format!("{},0-1", many("", RANGES_MAX)), 1000), None);
    assert_eq!(parts_of(&many("0-", 5000), 1 << 30), None, "the attack of 2011");

    // Two that overlap may be a client's arithmetic.
    for good in ["0-9,5-20", "0-9,9-9,20-30", "5-6,5-6,8-9"] {
        assert!(parts_of(&of(&[good]), 100_000).is_some(), "{good}");
    }
    for bad in ["0-9,5-20,9-30", "0-9,0-9,0-9", "0-10,5-15,100-110,105-115", "0-,1-1,3-3"] {
        assert_eq!(parts_of(&of(&[bad]), 100_000), None, "{bad}");
    }
    assert!(parts_of("bytes=0-9,5-20,99999-100030,200000-", 100_000).is_some());

    // Two parts cost their bytes and two heads; one part may be all there is.
    assert!(parts_of("bytes=0-398,601-", 1000).is_some(), "798 bytes in parts");
    assert!(parts_of("bytes=0-398,600-", 1000).is_some(), "799 bytes in parts");
    assert_eq!(parts_of("bytes=0-399,600-", 1000), None, "800 bytes in parts");
    assert_eq!(parts_of("bytes=0-,-1000", 1000), None);
    assert_eq!(parts_of("bytes=0-0,-1", 200), None);
    assert!(parts_of("bytes=0-0,-1", 203).is_some());
    assert_eq!(parts_of("bytes=0-,200-", 200), Some(vec![(0, 199)]), "the other is not there");
}

#[test]
fn lengths_may_be_extreme() {
    for field in ["bytes=0-0", "bytes=0-", "bytes=-1", "bytes=-0", "bytes=5-", "x"] {
        assert_eq!(parts_of(field, 0), None, "{field} of nothing");
    }
    assert_eq!(parts_of("bytes=0-5", 1), Some(vec![(0, 0)]));
    assert_eq!(parts_of("bytes=1-5", 1), Some(vec![]));
    let max = u64::MAX;
    assert_eq!(parts_of("bytes=0-", max), Some(vec![(0, max - 1)]));
    assert_eq!(parts_of("bytes=-99999999999999999999", max), Some(vec![(0, max - 1)]));
    assert_eq!(parts_of("bytes=18446744073709551614-", max), Some(vec![(max - 1, max - 1)]));
    assert_eq!(parts_of("bytes=18446744073709551615-", max), Some(vec![]));
    assert_eq!(parts_of("bytes=99999999999999999999-", max), Some(vec![]));
    assert_eq!(parts_of("bytes=0-,0-", max), None, "a sum beyond 64 bits");
    assert_eq!(ByteRange { first: 0, last: max - 1 }.length(), max);
    assert_eq!(ByteRange { first: 7, last: 7 }.length(), 1);
}
