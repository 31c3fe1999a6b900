//! Headers and fields by which proxies name a client: properties that must hold for any bytes.

use crate::forwarded::{ClientField, client};
use crate::proxy_protocol::{HEADER_BYTES_MAX, Header, Source, parse};
use std::net::IpAddr;

/// A header of the PROXY protocol says the same however it is split, and what stands behind it does
/// not matter. In a head, the last address is the one that counts, whatever a client sent before.
pub fn fuzz_proxied(data: &[u8]) {
    let whole = parse(data);
    let every = data.len() / 256 + 1;
    for cut in (0..data.len()).step_by(every) {
        let part = parse(&data[..cut]);
        assert!(part == Ok(None) || part == whole, "cut at {cut}: {part:?} is not {whole:?}");
    }
    match whole {
        Ok(Some(Header { len, source })) => {
            assert!(len <= data.len() && len <= HEADER_BYTES_MAX);
            assert_eq!(parse(&data[..len]), whole, "what is behind it counts");
            assert_eq!(parse(&data[..len - 1]), Ok(None), "it ends before its last byte");
            if let Source::Client(address) = source {
                check_written(address);
            }
        }
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX, "it may not go on for ever"),
        Err(_) => {}
    }
    for field in [ClientField::XForwardedFor, ClientField::Forwarded] {
        check_field(data, field);
    }
}

/// An address that was parsed parses the same when it is written out again.
fn check_written(address: IpAddr) {
    let (family, other) = match address {
        IpAddr::V4(_) => ("TCP4", "192.0.2.1"),
        IpAddr::V6(_) => ("TCP6", "::1"),
    };
    let line = format!("PROXY {family} {address} {other} 1 65535\r\n");
    let expected = Header { len: line.len(), source: Source::Client(address) };
    assert_eq!(parse(line.as_bytes()), Ok(Some(expected)));
}

fn check_field(data: &[u8], field: ClientField) {
    let first = client(data, field, |_| true);
    let last = client(data, field, |_| false);
    assert_eq!(first.is_some(), last.is_some());
    // A proxy adds a line of its own behind those of the client.
    let added: IpAddr = [192, 0, 2, 77].into();
    let value = match field {
        ClientField::XForwardedFor => "192.0.2.77",
        ClientField::Forwarded => "for=192.0.2.77",
    };
    let line = format!("\n{}: {value}\r\n\r\n", field.name());
    let head = [data, line.as_bytes()].concat();
    assert_eq!(client(&head, field, |address| address != added), Some(added));
    // Or it adds to the client's line.
    let line = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let behind = format!(", {value}\r\n\r\n");
    let head = [field.name().as_bytes(), b":", line, behind.as_bytes()].concat();
    assert_eq!(client(&head, field, |address| address != added), Some(added));
}
