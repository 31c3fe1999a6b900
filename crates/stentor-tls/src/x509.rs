//! A reader of certificates (RFC 5280 section 4.1), for the parts that this program needs.
//!
//! It passes over the rest: rustls judges certificates. x509-cert would read all of one, and refuse
//! serial numbers, names and dates that rustls takes.

use der::asn1::{Any, GeneralizedTime};
use der::{DateTime, Decode, Length, Reader, SliceReader, Tag};

/// The identifier byte of an element, and its contents.
pub(crate) type Element<'a> = (u8, &'a [u8]);

/// A certificate.
pub(crate) struct X509<'a> {
    pub(crate) issuer: Element<'a>,
    pub(crate) subject: Element<'a>,
    pub(crate) not_before: DateTime,
    pub(crate) not_after: DateTime,
    /// Identifiers, and what stands for them.
    pub(crate) extensions: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> X509<'a> {
    /// Reads one. Bytes behind it do not count.
    pub(crate) fn read(der: &'a [u8]) -> der::Result<X509<'a>> {
        let certificate = inside(element(&mut SliceReader::new(der)?)?, SEQUENCE)?;
        let [signed, _, _] = certificate[..] else { return Err(unexpected()) };
        let signed = inside(signed, SEQUENCE)?;
        let rest = match &signed[..] {
            [(VERSION, _), rest @ ..] => rest,
            rest => rest,
        };
        let [_serial, _algorithm, issuer, validity, subject, _key, rest @ ..] = rest else {
            return Err(unexpected());
        };
        let [not_before, not_after] = inside(*validity, SEQUENCE)?[..] else {
            return Err(unexpected());
        };
        let mut extensions = Vec::new();
        if let Some(list) = rest.iter().find(|(tag, _)| *tag == EXTENSIONS) {
            let [list] = inside(*list, EXTENSIONS)?[..] else { return Err(unexpected()) };
            for extension in inside(list, SEQUENCE)? {
                match inside(extension, SEQUENCE)?[..] {
                    [(OID, id), (OCTETS, value)] | [(OID, id), (BOOLEAN, _), (OCTETS, value)] => {
                        extensions.push((id, value));
                    }
                    _ => return Err(unexpected()),
                }
            }
        }
        Ok(X509 {
            issuer: *issuer,
            subject: *subject,
            not_before: date(not_before)?,
            not_after: date(not_after)?,
            extensions,
        })
    }

    /// The elements of an extension that is a sequence; `None` if the certificate has none.
    pub(crate) fn extension(&self, id: &[u8]) -> der::Result<Option<Vec<Element<'a>>>> {
        let found = self.extensions.iter().find(|(other, _)| *other == id);
        let read = |(_, value): &(_, &'a [u8])| match elements(value)?[..] {
            [list] => inside(list, SEQUENCE),
            _ => Err(unexpected()),
        };
        found.map(read).transpose()
    }
}

/// The elements inside one that must have this identifier byte.
pub(crate) fn inside((tag, value): Element<'_>, expected: u8) -> der::Result<Vec<Element<'_>>> {
    if tag == expected { elements(value) } else { Err(unexpected()) }
}

fn elements(bytes: &[u8]) -> der::Result<Vec<Element<'_>>> {
    let (mut reader, mut all) = (SliceReader::new(bytes)?, Vec::new());
    while !reader.is_finished() {
        all.push(element(&mut reader)?);
    }
    Ok(all)
}

/// Takes one off the front. Types that the library does not know are elements as well; tags of
/// several bytes are in no certificate.
fn element<'a>(reader: &mut SliceReader<'a>) -> der::Result<Element<'a>> {
    let tag = reader.read_byte()?;
    if tag & 0x1f == 0x1f {
        return Err(unexpected());
    }
    let length = Length::decode(reader)?;
    Ok((tag, reader.read_slice(length)?))
}

/// A date (section 4.1.2.5). The library knows none before 1970, where this ends too: all of them
/// are over.
fn date((tag, value): Element<'_>) -> der::Result<DateTime> {
    let century: &[u8] = match (tag, value) {
        (UTC_TIME, [b'5'..=b'9', ..]) => b"19",
        (UTC_TIME, _) => b"20",
        (GENERALIZED_TIME, _) => b"",
        _ => return Err(unexpected()),
    };
    let mut text = [century, value].concat();
    let is_date = |text: &[u8]| text.len() == 15 && text[..14].iter().all(u8::is_ascii_digit);
    if is_date(&text) && &text[..4] < b"1970".as_slice() {
        text[..14].copy_from_slice(b"19700101000000");
    }
    let date: GeneralizedTime = Any::new(Tag::GeneralizedTime, text)?.decode_as()?;
    Ok(date.to_date_time())
}

/// Seconds since 1970.
pub(crate) fn unix_s(date: DateTime) -> i64 {
    i64::try_from(date.unix_duration().as_secs()).unwrap_or(i64::MAX)
}

fn unexpected() -> der::Error {
    Tag::Sequence.value_error().into()
}

const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

#[cfg(test)]
mod tests;
