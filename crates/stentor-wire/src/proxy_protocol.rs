//! The header of the PROXY protocol, versions 1 and 2: what a proxy says of the connection it
//! passes on, before the first byte of the client.
//!
//! The specification is HAProxy's `proxy-protocol.txt`. A listener either expects the header on
//! every connection or on none, so nothing is guessed: bytes that cannot become a header are an
//! error as soon as they are there. Only the address of the client is taken from it. The
//! rest of a header (the destination, the TLV extensions of version 2) must have the right form and
//! is skipped.
//!
//! A header is bounded: 107 bytes in version 1, as specified, and [`HEADER_BYTES_MAX`] in version
//! 2, as in nginx.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A whole header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// How many bytes it has. The client's first byte stands behind them.
    pub len: usize,
    /// The client of the connection.
    pub source: Source,
}

/// The client of a connection that a proxy passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// That of a client at this address.
    Client(IpAddr),
    /// The proxy's own: it looks whether the server is there (`LOCAL`).
    Proxy,
    /// That of a client of which the proxy names no address (`UNKNOWN`, or a socket file).
    Unknown,
}

/// These bytes cannot become a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAHeader;

/// The header that `bytes` begin with; `None` if it has not arrived whole yet.
///
/// # Errors
/// They cannot become one, whatever comes behind them.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, NotAHeader> {
    if bytes.first() == SIGNATURE_V2.first() { parse_v2(bytes) } else { parse_v1(bytes) }
}

/// A line: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443`.
fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, NotAHeader> {
    let known = bytes.len().min(SIGNATURE_V1.len());
    if bytes[..known] != SIGNATURE_V1[..known] {
        return Err(NotAHeader);
    }
    let line = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let is_shown = |byte: &u8| matches!(byte, b' '..=b'~');
    let end = line.iter().position(|byte| !is_shown(byte)).unwrap_or(line.len());
    match line[end..] {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] if line.len() < V1_BYTES_MAX => return Ok(None),
        _ => return Err(NotAHeader),
    }
    let text = str::from_utf8(&line[SIGNATURE_V1.len()..end]).map_err(|_| NotAHeader)?;
    let mut words = text.split(' ');
    let source = match words.next() {
        // The rest of the line is to be ignored.
        Some("UNKNOWN") => Source::Unknown,
        Some("TCP4") => Source::Client(IpAddr::V4(addresses::<Ipv4Addr>(words)?)),
        Some("TCP6") => Source::Client(IpAddr::V6(addresses::<Ipv6Addr>(words)?)),
        _ => return Err(NotAHeader),
    };
    Ok(Some(Header { len: end + 2, source }))
}

/// The source of: source, destination and their ports.
fn addresses<'a, A: FromStr>(mut words: impl Iterator<Item = &'a str>) -> Result<A, NotAHeader> {
    let mut address = || words.next().and_then(|word| word.parse::<A>().ok()).ok_or(NotAHeader);
    let (source, _) = (address()?, address()?);
    let is_port = |word: &str| {
        let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        is_decimal && (word == "0" || !word.starts_with('0')) && word.parse::<u16>().is_ok()
    };
    let has_ports = words.next().is_some_and(is_port) && words.next().is_some_and(is_port);
    if has_ports && words.next().is_none() { Ok(source) } else { Err(NotAHeader) }
}

/// A signature, what it is, its length, two addresses with ports, and extensions.
fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, NotAHeader> {
    let known = bytes.len().min(SIGNATURE_V2.len());
    if bytes[..known] != SIGNATURE_V2[..known] {
        return Err(NotAHeader);
    }
    let is_local = match bytes.get(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(NotAHeader),
    };
    let addresses_bytes = match bytes.get(13) {
        None => return Ok(None),
        // The addresses and the family of a proxy's own connection are to be ignored.
        Some(_) if is_local => 0,
        Some(0x00) => 0,
        Some(0x11) => TCP4_BYTES,
        Some(0x21) => TCP6_BYTES,
        Some(0x31) => UNIX_BYTES,
        // Datagrams do not arrive here; others do not exist.
        Some(_) => return Err(NotAHeader),
    };
    let Some(&length) = bytes.get(14..16).and_then(<[u8]>::first_chunk::<2>) else {
        return Ok(None);
    };
    let len = V2_BYTES_MIN + usize::from(u16::from_be_bytes(length));
    if len > HEADER_BYTES_MAX || len < V2_BYTES_MIN + addresses_bytes {
        return Err(NotAHeader);
    }
    let Some(body) = bytes.get(V2_BYTES_MIN..len) else { return Ok(None) };
    let (addresses, extensions) = body.split_at(addresses_bytes);
    if addresses_bytes > 0 && !are_extensions(extensions) {
        return Err(NotAHeader);
    }
    let client = match addresses_bytes {
        TCP4_BYTES => addresses.first_chunk::<4>().map(|&octets| IpAddr::from(octets)),
        TCP6_BYTES => addresses.first_chunk::<16>().map(|&octets| IpAddr::from(octets)),
        _ => None,
    };
    let source = match client {
        _ if is_local => Source::Proxy,
        Some(client) => Source::Client(client),
        None => Source::Unknown,
    };
    Ok(Some(Header { len, source }))
}

/// Whether these bytes are extensions: a type, a length in two bytes, and so many bytes each.
fn are_extensions(mut bytes: &[u8]) -> bool {
    while let [_, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(after) = rest.get(length..) else { return false };
        bytes = after;
    }
    bytes.is_empty()
}

/// No header is longer.
pub const HEADER_BYTES_MAX: usize = 4096;

const SIGNATURE_V1: &[u8] = b"PROXY ";
const V1_BYTES_MAX: usize = 107;

const SIGNATURE_V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_BYTES_MIN: usize = 16;

/// The bytes of two addresses and their ports, by their family.
const TCP4_BYTES: usize = 12;
const TCP6_BYTES: usize = 36;
const UNIX_BYTES: usize = 216;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Source {
        Source::Client(text.parse().unwrap())
    }

    /// A header of version 2.
    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [SIGNATURE_V2, &[command, family][..], &length, body].concat()
    }

    const TCP4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 4, 1, 0xbb];

    #[test]
    fn headers_name_the_client_however_they_are_split() {
        let tcp6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[9], &[0; 20]].concat();
        let extended = [&TCP4[..], &[3, 0, 4, 1, 2, 3, 4], &[0xee, 0, 0]].concat();
        let longest = [&TCP4[..], &[4, 0x0f, 0xe1], &[0; 4065]].concat();
        let cases: Vec<(Vec<u8>, Source)> = vec![
            (b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n".to_vec(), ip("192.0.2.1")),
            (b"PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n".to_vec(), ip("255.255.255.255")),
            (b"PROXY TCP6 2001:db8::9 ::1 1 2\r\n".to_vec(), ip("2001:db8::9")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Source::Unknown),
            (b"PROXY UNKNOWN what ever 1\r\n".to_vec(), Source::Unknown),
            ([b"PROXY UNKNOWN ", &[b'f'; 91][..], b"\r\n"].concat(), Source::Unknown),
            (v2(0x21, 0x11, &TCP4), ip("192.0.2.1")),
            (v2(0x21, 0x11, &extended), ip("192.0.2.1")),
            (v2(0x21, 0x11, &longest), ip("192.0.2.1")),
            (v2(0x21, 0x21, &tcp6), ip("2001:db8::9")),
            (v2(0x21, 0x31, &[b'/'; 216]), Source::Unknown),
            (v2(0x21, 0x00, b"anything"), Source::Unknown),
            (v2(0x20, 0x00, b""), Source::Proxy),
            (v2(0x20, 0x11, b"anything"), Source::Proxy),
        ];
        for (header, source) in cases {
            let shown = header.escape_ascii();
            for cut in 0..header.len() {
                assert_eq!(parse(&header[..cut]), Ok(None), "{shown} cut at {cut}");
            }
            let expected = Ok(Some(Header { len: header.len(), source }));
            assert_eq!(parse(&header), expected, "{shown}");
            let followed = [&header[..], b"\r\nGET / HTTP/1.1\r\n"].concat();
            assert_eq!(parse(&followed), expected, "{shown}, and more");
        }
    }

    #[test]
    fn bytes_that_are_no_header_are_refused_at_once() {
        let cases: &[&[u8]] = &[
            b"G",
            b"\x16\x03\x01",
            b"proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rG",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            b"PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 ::1 1 2\r\n",
            b"PROXY TCP4 ::1 192.0.2.1 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 ::1 1 2\r\n",
            b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY \r\n",
            b"PROXY UNKNOWN \xff\r\n",
            &[&b"PROXY UNKNOWN "[..], &[b'f'; 93]].concat(),
            b"\r\n\r\n\0\r\nQUIT\r",
            &v2(0x11, 0x11, &TCP4)[..13],
            &v2(0x22, 0x11, &TCP4)[..13],
            &v2(0x21, 0x12, &TCP4)[..14],
            &v2(0x21, 0x41, &TCP4)[..14],
            &v2(0x21, 0x11, &TCP4[..11])[..16],
            &v2(0x21, 0x11, &[0; 4081])[..16],
            &v2(0x21, 0x11, &[&TCP4[..], &[3, 0]].concat()),
            &v2(0x21, 0x11, &[&TCP4[..], &[3, 0, 2, 1]].concat()),
        ];
        for bytes in cases {
            assert_eq!(parse(bytes), Err(NotAHeader), "{}", bytes.escape_ascii());
        }
    }
}
