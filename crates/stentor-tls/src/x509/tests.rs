//! Certificates that are odd, and those that are none.

use super::*;
use crate::names::subject;

/// An element of some contents, each part of which is one, or bytes.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let contents = parts.concat();
    let long = u16::try_from(contents.len()).unwrap().to_be_bytes();
    let length: &[u8] = match contents.len() {
        0..=0x7f => &long[1..],
        0x80..=0xff => &[0x81, long[1]],
        _ => &[0x82, long[0], long[1]],
    };
    [&[tag], length, &contents].concat()
}

fn certificate(signed: &[&[u8]]) -> Vec<u8> {
    let signed = tlv(SEQUENCE, signed);
    tlv(SEQUENCE, &[&signed, &tlv(SEQUENCE, &[]), &tlv(0x03, &[b"\0"])])
}

fn validity(from: &str, until: &str) -> Vec<u8> {
    let time = |text: &str| {
        tlv(if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME }, &[text.as_bytes()])
    };
    tlv(SEQUENCE, &[&time(from), &time(until)])
}

fn name(attributes: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
    let part = |(id, tag, value): &(&[u8], u8, &[u8])| {
        tlv(SET, &[&tlv(SEQUENCE, &[&tlv(OID, &[id]), &tlv(*tag, &[value])])])
    };
    tlv(SEQUENCE, &[&attributes.iter().map(part).collect::<Vec<_>>().concat()])
}

#[test]
fn what_is_not_needed_may_be_anything() {
    let version = tlv(VERSION, &[&tlv(0x02, &[&[9]])]);
    let serial = tlv(0x02, &[&[0, 0x7f]]);
    let uuid = [0x69, 0x83, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let who = name(&[
        (&[0x55, 4, 10], 0x1c, &[0, 0, 0, b'a']),
        (&uuid, 0x0c, b"b"),
        (&[0x55, 4, 3], 0x0c, b"c"),
    ]);
    let until = validity("600229000000Z", "20300101000000Z");
    let extension = tlv(SEQUENCE, &[&tlv(OID, &[&uuid]), &tlv(OCTETS, &[b"\xff"])]);
    let extensions = tlv(EXTENSIONS, &[&tlv(SEQUENCE, &[&extension])]);
    let algorithm = tlv(SEQUENCE, &[b"\x1c\0"]);
    let key = tlv(SEQUENCE, &[]);
    let odd = [&version, &serial, &algorithm, &who, &until, &who, &key, &extensions];
    let odd: Vec<&[u8]> = odd.map(Vec::as_slice).to_vec();
    let with_more = [certificate(&odd), b"more".to_vec()].concat();
    for der in [certificate(&odd), with_more, certificate(&odd[1..])] {
        let read = X509::read(&der).unwrap();
        assert_eq!(unix_s(read.not_before), 0);
        assert_eq!(read.extensions, [(&uuid[..], &b"\xff"[..])]);
        assert!(read.extension(&uuid).is_err());
        let said = subject(&der).unwrap();
        assert_eq!(said, "CN=c,#6983ffffffffff7f=#62,2.5.4.10=#00000061");
        assert_eq!(unix_s(read.not_after), 1_893_456_000);
    }
    for count in 0..odd.len() - 2 {
        assert!(X509::read(&certificate(&odd[..count])).is_err(), "{count}");
    }
    let der = certificate(&odd);
    for len in 0..der.len() {
        assert!(X509::read(&der[..len]).is_err(), "{len}");
    }
}

#[test]
fn dates_are_of_any_year() {
    let read = |text: &str| {
        let tag = if text.len() == 13 { UTC_TIME } else { GENERALIZED_TIME };
        date((tag, text.as_bytes())).ok().map(unix_s)
    };
    for (text, expected) in [
        ("500101000000Z", Some(0)),
        ("691231235959Z", Some(0)),
        ("700101000001Z", Some(1)),
        ("491231235959Z", Some(2_524_607_999)),
        ("00000101000000Z", Some(0)),
        ("19700101000001Z", Some(1)),
        ("99991231235959Z", Some(253_402_300_799)),
        ("600101000000+", None),
        ("6001010000000", None),
        ("19xx0101000000Z", None),
        ("20300101000000", None),
        ("20301301000000Z", None),
        ("", None),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    assert!(date((SEQUENCE, b"20300101000000Z")).is_err());
}
