//! The bodies of the fuzz targets: properties that must hold for any bytes.
//!
//! As in `stentor_wire::fuzz`, each takes whatever the fuzzer makes up and panics when a property
//! is broken; ordinary tests run them over what a random mutator makes.

use std::io::IoSlice;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::certificates::inspect;
use crate::memory::Owned;
use crate::names::{is_presented_name, subject};
use crate::session::{APPLICATION_DATA, What};
use crate::suite::Suite;
use crate::testing::{hello, sessions};
use crate::{
    Acceptor, Certificates, HANDSHAKE_BYTES_MAX, Inbound, Pair, PemPair, Record, Settings, Tickets,
    Version,
};

/// Records: as they come from anybody, or sealed by a client that may say anything in them, and
/// perhaps changed on their way. What is opened is what was sealed, in order; what was changed is
/// never taken for anything; a session that was dead stays so.
///
/// # Panics
/// If that does not hold.
pub fn fuzz_record(data: &[u8]) {
    let [first, rest @ ..] = data else { return };
    let suite = Suite::ALL[usize::from(first >> 1) % Suite::ALL.len()];
    let (mut server, mut client) = sessions(suite);
    if first & 1 == 0 {
        let mut bytes = rest.to_vec();
        if let Ok(opened) = server.session().open(&mut bytes) {
            assert!(!matches!(opened.what, What::Data(_)), "nobody has sealed that");
        }
        return;
    }
    let (mut sent, mut expected, mut rest) = (Vec::new(), Vec::new(), rest);
    let mut is_changed = false;
    // Each record: its type, what becomes of it, the length of its contents, and these.
    while let [kind, fate, len, behind @ ..] = rest {
        let (content, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let mut record = client.session().seal_any(*kind, content);
        if *fate >= 0xf0 && !is_changed {
            // The fate says which bit, anywhere in the record.
            let bit = usize::from(*len) * 8 + usize::from(*fate);
            let bits = record.len() * 8;
            record[bit % bits / 8] ^= 1 << (bit % 8);
            is_changed = true;
        } else if !is_changed && let (APPLICATION_DATA, content) = meant(suite, *kind, content) {
            expected.extend_from_slice(content);
        }
        sent.extend(record);
    }
    let step = usize::from(first >> 4) * 7 + 1;
    let opened = open_all(&mut server, &mut sent, step);
    assert!(expected.starts_with(&opened), "something else was opened than was sealed");
}

/// What a record says: in TLS 1.3 a type of nought is padding, and the type stands before it.
fn meant(suite: Suite, kind: u8, content: &[u8]) -> (u8, &[u8]) {
    if suite.version() == Version::Tls12 || kind != 0 {
        return (kind, content);
    }
    let Some(at) = content.iter().rposition(|byte| *byte != 0) else { return (0, &[]) };
    (content[at], &content[..at])
}

/// Opens what comes in such pieces, until there is an error or an end.
fn open_all(server: &mut Owned, sent: &mut [u8], step: usize) -> Vec<u8> {
    let (mut inbound, mut data) = (Inbound::default(), Vec::new());
    for piece in sent.chunks_mut(step) {
        let mut records = inbound.records(piece);
        loop {
            match records.next(&mut server.session()) {
                Ok(Some(Record::Data(bytes))) => data.extend_from_slice(bytes),
                Ok(Some(Record::Closed)) => return data,
                Ok(None) => break,
                Err(failure) => {
                    assert!(server.session().open(&mut [0; 100]).is_err(), "it is dead");
                    let mut out = [0; 64];
                    let parts = [IoSlice::new(b"x")];
                    assert!(server.session().seal(&parts, 100, &mut out).is_err(), "it is dead");
                    if let Some(alert) = failure.alert() {
                        server.session().end(alert, &mut out).expect("one alert can be sent");
                    }
                    return data;
                }
            }
        }
        records.keep();
        if server.session().owes() {
            server.session().settle(&mut [0; 64]).expect("there is room");
        }
    }
    data
}

/// The first bytes of a handshake: from anybody, or a client's first message that was changed. None
/// of it makes a session, and what is kept of it is bounded.
///
/// # Panics
/// If that does not hold.
pub fn fuzz_hello(data: &[u8]) {
    let [first, rest @ ..] = data else { return };
    let bytes = if first & 1 == 0 {
        rest.to_vec()
    } else {
        changed(hello(if first & 2 == 0 { Version::Tls13 } else { Version::Tls12 }), rest)
    };
    let mut handshake = acceptor().begin();
    let mut out = Vec::new();
    for piece in bytes.chunks(usize::from(first >> 2) * 9 + 1) {
        match handshake.receive(NOW_UNIX_S, piece, &mut out) {
            Ok(progress) => {
                assert!(progress.established.is_none(), "nobody has finished");
                assert_eq!(progress.used, piece.len());
            }
            Err(_) => {
                assert!(handshake.receive(NOW_UNIX_S, piece, &mut out).is_err());
                break;
            }
        }
    }
    assert!(out.len() < HANDSHAKE_BYTES_MAX);
}

/// A certificate: bytes from anybody, or a good certificate that was changed. The reader
/// returns names that a client may ask for, and a subject of one line.
///
/// # Panics
/// If that does not hold.
pub fn fuzz_certificate(data: &[u8]) {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    let [first, rest @ ..] = data else { return };
    let der = if first & 1 == 0 {
        rest.to_vec()
    } else {
        let good = GOOD.get_or_init(|| {
            let names = ["fuzz.example", "*.fuzz.example"].map(str::to_owned);
            let made = rcgen::generate_simple_self_signed(names).expect("it can be made");
            made.cert.der().to_vec()
        });
        changed(good.clone(), rest)
    };
    if let Ok((names, _)) = inspect(&[der.as_slice().into()], NOW_UNIX_S) {
        assert!(names.iter().all(|name| is_presented_name(name)));
    }
    if let Some(subject) = subject(&der) {
        assert!(!subject.contains(char::is_control), "{subject:?}");
    }
}

/// Bytes of which some are others.
fn changed(mut bytes: Vec<u8>, changes: &[u8]) -> Vec<u8> {
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] = change[2];
    }
    bytes
}

fn acceptor() -> &'static Acceptor {
    static ACCEPTOR: OnceLock<Acceptor> = OnceLock::new();
    ACCEPTOR.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["fuzz.example".to_owned()]);
        let made = made.expect("a certificate can be made");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let pem = PemPair {
            certificate: (Path::new("certificate"), certificate.as_bytes()),
            key: (Path::new("key"), key.as_bytes()),
        };
        let pair = Pair::read(&pem, NOW_UNIX_S).expect("it is good");
        Acceptor::new(&Settings {
            certificates: Arc::new(Certificates::new(vec![pair])),
            tickets: Some(Arc::new(Tickets::random().expect("there is chance"))),
            oldest: Version::Tls12,
            alpn: vec![b"http/1.1".to_vec()],
            client_auth: None,
        })
        .expect("it can be accepted with")
    })
}

const NOW_UNIX_S: u64 = 1_800_000_000;

#[cfg(test)]
mod tests;
