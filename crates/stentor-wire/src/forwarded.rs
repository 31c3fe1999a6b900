//! Where a client is, as the proxies say that its request came through.
//!
//! Each proxy adds the address of its own peer at the end of a list: `X-Forwarded-For`, or
//! `Forwarded` (RFC 7239). A client may send such a field as well, and then its list is at the
//! front. Therefore the server reads the list from its end, past the addresses of trusted
//! proxies. The first other address is the client's.
//!
//! The server reads the field only of requests that a trusted proxy has passed on, so it is not
//! among those that [`parse`](crate::http1::parse) picks out of every head.

use crate::{ends_unquoted, split_unquoted, trim_ows, unquoted};
use memchr::memchr;
use std::net::{IpAddr, Ipv6Addr};

/// The field that names the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientField {
    /// `X-Forwarded-For`: addresses.
    XForwardedFor,
    /// `Forwarded`: the parameter `for` of its elements.
    Forwarded,
}

impl ClientField {
    /// The name of the field.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ClientField::XForwardedFor => "X-Forwarded-For",
            ClientField::Forwarded => "Forwarded",
        }
    }
}

/// The client of a request whose head this is, which came from a trusted proxy. `None`: the proxy
/// does not say, or not in a way that is understood, so it is the proxy's own.
///
/// If all addresses are of trusted proxies, the first of the list is the client.
#[must_use]
pub fn client(
    head: &[u8],
    field: ClientField,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut client = None;
    for line in head.rsplit(|&byte| byte == b'\n') {
        let Some(colon) = memchr(b':', line) else { continue };
        if !line[..colon].eq_ignore_ascii_case(field.name().as_bytes()) {
            continue;
        }
        for element in elements(&line[colon + 1..], field).into_iter().rev() {
            let element = trim_ows(element.strip_suffix(b"\r").unwrap_or(element));
            if element.is_empty() {
                continue;
            }
            let node = match field {
                ClientField::XForwardedFor => Some(element),
                ClientField::Forwarded => for_parameter(element),
            };
            // An unreadable entry hides which proxy added the entries before it.
            let Some(address) = node.and_then(address) else { return client };
            client = Some(address);
            if !is_trusted(address) {
                return client;
            }
        }
    }
    client
}

/// The elements of a list. A client may open a quoted string and not end it: it must not swallow
/// what a proxy has added behind it, so every comma of such a list separates.
fn elements(list: &[u8], field: ClientField) -> Vec<&[u8]> {
    let quotes = match field {
        ClientField::XForwardedFor => false,
        ClientField::Forwarded => ends_unquoted(list),
    };
    match quotes {
        true => split_unquoted(list, b',').collect(),
        false => list.split(|&byte| byte == b',').collect(),
    }
}

/// The value of `for`, which stands in an element once.
fn for_parameter(element: &[u8]) -> Option<&[u8]> {
    let mut nodes = split_unquoted(element, b';').filter_map(|pair| {
        let pair = trim_ows(pair);
        let equals = memchr(b'=', pair)?;
        pair[..equals].eq_ignore_ascii_case(b"for").then(|| unquoted(&pair[equals + 1..]))
    });
    let node = nodes.next()?;
    nodes.next().is_none().then_some(node)
}

/// An address, which may have a port behind it: `192.0.2.1:80`, `[2001:db8::1]:80`.
fn address(node: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(node).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let address: Ipv6Addr = host.parse().ok()?;
            (IpAddr::V6(address), port)
        }
        None => {
            let colon = text.find(':')?;
            (IpAddr::V4(text[..colon].parse().ok()?), &text[colon..])
        }
    };
    // RFC 7239 allows ports that are hidden (`_x`): which one it is does not matter.
    let is_port = |port: &str| {
        let rest = port.strip_prefix('_').unwrap_or(port);
        !rest.is_empty()
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    has_port.then(|| host.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_of(field: ClientField, fields: &str) -> Option<String> {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let is_trusted = |address: IpAddr| address.to_string().starts_with("10.");
        client(head.as_bytes(), field, is_trusted).map(|address| address.to_string())
    }

    #[test]
    fn the_last_address_that_is_not_trusted_is_the_client() {
        let cases = [
            ("", None),
            ("X-Forwarded-For:", None),
            ("X-Forwarded-For: ,", None),
            ("X-Forwarded-For: 192.0.2.1", Some("192.0.2.1")),
            ("x-forwarded-for:\t192.0.2.1 ", Some("192.0.2.1")),
            ("X-Forwarded-For: 192.0.2.1:4711", Some("192.0.2.1")),
            ("X-Forwarded-For: 2001:db8::1", Some("2001:db8::1")),
            ("X-Forwarded-For: [2001:db8::1]", Some("2001:db8::1")),
            ("X-Forwarded-For: [2001:db8::1]:80", Some("2001:db8::1")),
            ("X-Forwarded-For: ::ffff:192.0.2.1", Some("192.0.2.1")),
            // A client's own list is in front.
            ("X-Forwarded-For: 1.1.1.1, 192.0.2.1", Some("192.0.2.1")),
            ("X-Forwarded-For: 1.1.1.1, 192.0.2.1, 10.0.0.2", Some("192.0.2.1")),
            ("X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 192.0.2.1", Some("192.0.2.1")),
            ("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.0.0.2,", Some("192.0.2.1")),
            // Only proxies.
            ("X-Forwarded-For: 10.0.0.3, 10.0.0.2", Some("10.0.0.3")),
            // An entry that is no address hides the entries before it.
            ("X-Forwarded-For: 192.0.2.1, unknown", None),
            ("X-Forwarded-For: 192.0.2.1, unknown, 10.0.0.2", Some("10.0.0.2")),
            ("X-Forwarded-For: 192.0.2.256", None),
            ("X-Forwarded-For: 192.0.2.1:", None),
            ("X-Forwarded-For: 192.0.2.1:80:80", None),
            ("X-Forwarded-For: [2001:db8::1", None),
            ("X-Forwarded-For: [192.0.2.1]", None),
            ("X-Forwarded-For: [2001:db8::1]80", None),
            ("X-Forwarded-For: \"192.0.2.1\"", None),
            // A quote that the client leaves open ends before the next entry.
            ("X-Forwarded-For: \", 192.0.2.1", Some("192.0.2.1")),
            // Other fields say nothing.
            ("Forwarded: for=192.0.2.1", None),
            ("X-Forwarded-Fo: 192.0.2.1", None),
            ("X-Forwarded-For : 192.0.2.1", None),
        ];
        for (fields, expected) in cases {
            let client = client_of(ClientField::XForwardedFor, fields);
            assert_eq!(client.as_deref(), expected, "{fields}");
        }
    }

    #[test]
    fn forwarded_names_the_client_by_its_parameter() {
        let cases = [
            ("Forwarded: for=192.0.2.60;proto=http;by=203.0.113.43", Some("192.0.2.60")),
            ("Forwarded: proto=http; FOR=\"192.0.2.60:47011\"", Some("192.0.2.60")),
            ("Forwarded: for=\"[2001:db8:cafe::17]:4711\"", Some("2001:db8:cafe::17")),
            ("Forwarded: for=\"[2001:db8:cafe::17]:_p\"", Some("2001:db8:cafe::17")),
            ("Forwarded: for=1.1.1.1, for=192.0.2.43, for=10.1.1.1", Some("192.0.2.43")),
            ("Forwarded: for=1.1.1.1\r\nForwarded: for=192.0.2.43", Some("192.0.2.43")),
            ("Forwarded: for=192.0.2.43;x=\"a, for=1.1.1.1;\"", Some("192.0.2.43")),
            ("Forwarded: for=192.0.2.43, for=unknown", None),
            // A quote that the client leaves open ends before the next entry.
            ("Forwarded: for=9.9.9.9;x=\", for=192.0.2.43", Some("192.0.2.43")),
            ("Forwarded: for=9.9.9.9;x=\"\\, for=\"192.0.2.43:1\"", Some("192.0.2.43")),
            ("Forwarded: for=9.9.9.9;x=\"\\\", for=192.0.2.43, for=10.1.1.1", Some("192.0.2.43")),
            ("Forwarded: for=_hidden", None),
            ("Forwarded: for=192.0.2.43, proto=http", None),
            ("Forwarded: for=192.0.2.43;for=192.0.2.44", None),
            ("Forwarded: for=2001:db8::1:_", None),
            ("Forwarded: 192.0.2.43", None),
            ("X-Forwarded-For: 192.0.2.43", None),
        ];
        for (fields, expected) in cases {
            let client = client_of(ClientField::Forwarded, fields);
            assert_eq!(client.as_deref(), expected, "{fields}");
        }
    }
}
