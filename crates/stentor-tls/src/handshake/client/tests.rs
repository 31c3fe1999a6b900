//! A client on servers of rustls and on ours, and what is said of servers that are no good.

use std::io::{Read, Write};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, date_time_ymd};
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ServerConfig, ServerConnection, SupportedCipherSuite, version};

use super::*;
use crate::authority::{Authority, Issued};
use crate::certificates::{Certificates, KeyKind, Pair};
use crate::testing::{seal, sessions};
use crate::{
    Acceptor, Failure, HANDSHAKE_RECORDS_MAX, Inbound, Owned, Record, Settings, Suite, Tickets,
    Version,
};

const NOW: u64 = 1_800_000_000;
const NAME: &str = "a.example";

fn trust(authority: &Authority) -> Trust {
    Trust::Roots(vec![authority.der()])
}

fn connector(authority: &Authority) -> Connector {
    Connector::new(NAME, &trust(authority), None).unwrap()
}

/// A server of rustls that knows one suite, or all.
fn server(issued: &Issued, suite: Option<SupportedCipherSuite>) -> ServerConnection {
    let mut provider = default_provider();
    provider.cipher_suites = suite.map_or(provider.cipher_suites, |suite| vec![suite]);
    let versions = match suite.map(|suite| suite.version()) {
        Some(one) => vec![one],
        None => vec![&version::TLS13, &version::TLS12],
    };
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(issued.chain(), issued.key())
        .unwrap();
    ServerConnection::new(Arc::new(config)).unwrap()
}

fn said(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).unwrap();
    }
    bytes
}

fn tell(server: &mut ServerConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).unwrap();
        let state = server.process_new_packets().unwrap();
        let mut part = vec![0; state.plaintext_bytes_to_read()];
        server.reader().read_exact(&mut part).unwrap();
        data.extend(part);
    }
    data
}

/// Gives it to the client in pieces. What it did not use up comes back with its session.
fn give(
    client: &mut ClientHandshake,
    bytes: &[u8],
    piece: usize,
    out: &mut Vec<u8>,
) -> Result<Option<(Established, Vec<u8>)>, HandshakeError> {
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + piece);
        let progress = client.receive(NOW, &bytes[at..end], out)?;
        at += progress.used;
        if let Some(established) = progress.established {
            return Ok(Some((established, bytes[at..].to_vec())));
        }
    }
    Ok(None)
}

/// A whole handshake with a server of rustls, and what it sent behind it.
fn shake(
    connector: &Connector,
    server: &mut ServerConnection,
    piece: usize,
) -> Result<(Established, Vec<u8>), HandshakeError> {
    let mut out = Vec::new();
    let mut client = connector.begin(NOW, &mut out)?;
    loop {
        assert!(!out.is_empty(), "both wait");
        tell(server, &std::mem::take(&mut out));
        let bytes = said(server);
        let given = give(&mut client, &bytes, piece, &mut out);
        if let Some((established, mut rest)) = given? {
            tell(server, &out);
            rest.extend(said(server));
            return Ok((established, rest));
        }
    }
}

/// All data in what was sent.
fn open(session: &mut Owned, sent: &[u8]) -> Result<(Vec<u8>, bool), Failure> {
    let (mut sent, mut inbound, mut data) = (sent.to_vec(), Inbound::default(), Vec::new());
    let mut records = inbound.records(&mut sent);
    let mut session = session.session();
    loop {
        match records.next(&mut session)? {
            Some(Record::Data(bytes)) => data.extend_from_slice(bytes),
            Some(Record::Closed) => return Ok((data, true)),
            None => return Ok((data, false)),
        }
    }
}

#[test]
fn sessions_go_on_with_any_suite_behind_tickets_and_new_keys() {
    let authority = Authority::new();
    let (ecdsa, rsa) = (KeyKind::Ecdsa, KeyKind::Rsa);
    for (suite, kind) in [
        (suites::TLS13_AES_128_GCM_SHA256, ecdsa),
        (suites::TLS13_AES_256_GCM_SHA384, rsa),
        (suites::TLS13_CHACHA20_POLY1305_SHA256, ecdsa),
        (suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, ecdsa),
        (suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, rsa),
        (suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, ecdsa),
    ] {
        let mut server = server(&authority.issue(kind, &[NAME]), Some(suite));
        let (established, behind) = shake(&connector(&authority), &mut server, 1000).unwrap();
        let Established { mut session, negotiated } = established;
        assert_eq!(negotiated.suite.version() == Version::Tls13, suite.tls13().is_some());
        assert_eq!(!behind.is_empty(), suite.tls13().is_some(), "the tickets");
        assert_eq!(open(&mut session, &behind).unwrap(), (Vec::new(), false));

        let request = seal(&mut session, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(tell(&mut server, &request), b"GET / HTTP/1.1\r\n\r\n");
        if suite.tls13().is_some() {
            server.refresh_traffic_keys().unwrap();
        }
        server.writer().write_all(b"an answer").unwrap();
        let answer = said(&mut server);
        assert_eq!(open(&mut session, &answer).unwrap(), (b"an answer".to_vec(), false));
        let more = seal(&mut session, b"more");
        assert_eq!(tell(&mut server, &more), b"more");
        server.send_close_notify();
        let end = said(&mut server);
        assert_eq!(open(&mut session, &end).unwrap(), (Vec::new(), true));
    }
}

#[test]
fn a_handshake_may_come_in_pieces_from_either_kind_of_server() {
    let authority = Authority::new();
    let issued = authority.issue(KeyKind::Ecdsa, &[NAME]);
    for piece in [1, 3, 7, 100, 100_000] {
        let mut server = server(&issued, None);
        let (established, _) = shake(&connector(&authority), &mut server, piece).unwrap();
        assert_eq!(established.negotiated.suite, Suite::Tls13Aes128, "the smallest");
    }

    let pair = Pair::read(&issued.pem(), NOW).unwrap();
    let acceptor = Acceptor::new(&Settings {
        certificates: Arc::new(Certificates::new(vec![pair])),
        tickets: Some(Arc::new(Tickets::random().unwrap())),
        oldest: Version::Tls12,
        alpn: vec![b"http/1.1".to_vec()],
        client_auth: None,
    })
    .unwrap();
    for (piece, asks) in [(1, true), (64, false), (100_000, true)] {
        let mut ours = acceptor.begin();
        let (mut said, mut answer) = (Vec::new(), Vec::new());
        let connector = match asks {
            true => connector(&authority),
            false => connector(&authority).without_alpn(),
        };
        let mut client = connector.begin(NOW, &mut said).unwrap();
        assert!(ours.receive(NOW, &said, &mut answer).unwrap().established.is_none());
        said.clear();
        // A server need not wait for the client's last message.
        answer.extend_from_slice(b"behind");
        let (established, rest) =
            give(&mut client, &answer, piece, &mut said).unwrap().expect("it is done");
        assert_eq!(rest, b"behind", "it is the session's");
        let alpn = established.negotiated.alpn.as_deref();
        assert_eq!(alpn, asks.then_some(&b"http/1.1"[..]));
        let mut behind = Vec::new();
        let mut theirs = ours.receive(NOW, &said, &mut behind).unwrap().established.unwrap();
        let mut session = established.session;
        let sent = [behind, seal(&mut theirs.session, b"a value")].concat();
        assert_eq!(open(&mut session, &sent).unwrap().0, b"a value");
    }
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    let authority = Authority::new();
    let check = |connector: &Connector, issued: &Issued, expected: &str| {
        let error = shake(connector, &mut server(issued, None), 1000).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    let good = authority.issue(KeyKind::Ecdsa, &[NAME]);
    let stranger = rcgen::generate_simple_self_signed(["b.example".to_owned()]).unwrap();
    let roots = Trust::Roots(vec![stranger.cert.der().clone()]);
    let of_stranger = Connector::new(NAME, &roots, None).unwrap();
    check(&of_stranger, &good, "its certificate is signed by nobody that is trusted here");
    let of_namesake = connector(&Authority::new());
    check(&of_namesake, &good, "its certificate is signed by another of the same name");
    let ends = |params: &mut CertificateParams| params.not_after = date_time_ymd(2027, 1, 10);
    let expired = authority.issue_with(KeyKind::Ecdsa, &[NAME], ends);
    check(&connector(&authority), &expired, "its certificate has expired 5 days ago");
    let begins = |params: &mut CertificateParams| params.not_before = date_time_ymd(2030, 1, 1);
    let early = authority.issue_with(KeyKind::Ecdsa, &[NAME], begins);
    check(&connector(&authority), &early, "is not valid yet: is the clock right?");
    let other = authority.issue(KeyKind::Ecdsa, &["b.example", "10.0.0.1"]);
    check(
        &connector(&authority),
        &other,
        "its certificate is for b.example, 10.0.0.1 and not for a.example",
    );
    let signs = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let signer = authority.issue_with(KeyKind::Ecdsa, &[NAME], signs);
    check(&connector(&authority), &signer, "one for signing others (CA:TRUE), and no server's");

    // Who believes anybody minds none of these.
    let credulous = Connector::new(NAME, &Trust::Anybody, None).unwrap();
    for issued in [good, expired, early, other, signer] {
        shake(&credulous, &mut server(&issued, None), 1000).unwrap();
    }
}

#[test]
fn who_does_not_speak_tls_is_told_from_who_refuses_it() {
    let authority = Authority::new();
    let check = |answer: &[u8], expected: &str| {
        let mut out = Vec::new();
        let mut client = connector(&authority).begin(NOW, &mut out).unwrap();
        let error = client.receive(NOW, answer, &mut out).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", "it does not speak TLS there");
    check(b"SSH-2.0-x\r\n", "it does not speak TLS there");
    check(&[21, 3, 3, 0, 2, 2, 40], "it refuses TLS: HandshakeFailure");
    check(&[21, 3, 3, 0, 2, 2, 112], "it refuses TLS: UnrecognisedName");
    assert!(Connector::new("a b", &Trust::Anybody, None).is_err());
    assert!(Connector::new(NAME, &Trust::Roots(Vec::new()), None).is_err());
}

#[test]
fn a_handshake_without_end_is_ended() {
    let mut out = Vec::new();
    let mut client = connector(&Authority::new()).begin(NOW, &mut out).unwrap();
    // Pieces of a ServerHello that never is complete.
    let piece = [22, 3, 3, 0, 5, 2, 0, 0xff, 0xff, 0];
    let more = [22, 3, 3, 0, 1, 0];
    let mut outcome = client.receive(NOW, &piece, &mut out);
    for _ in 0..=HANDSHAKE_RECORDS_MAX {
        if outcome.is_err() {
            break;
        }
        outcome = client.receive(NOW, &more, &mut out);
    }
    assert_eq!(outcome.unwrap_err().fault, HandshakeFault::TooLong);
}

#[test]
fn tickets_are_passed_over_and_no_other_message_is() {
    let ticket = [[4, 0, 0, 3].as_slice(), b"abc"].concat();
    let update = [24, 0, 0, 1, 1];
    let check = |message: &[u8], expected: Result<bool, Failure>| {
        let (mut server, client) = sessions(Suite::Tls13Aes128);
        let mut client = client.of_client();
        let mut record = server.session().seal_any(22, message);
        let mut session = client.session();
        let owes = session.open(&mut record).map(|_| session.owes());
        assert_eq!(owes, expected, "{message:?}");
    };
    check(&ticket, Ok(false));
    check(&[&ticket[..], &ticket[..]].concat(), Ok(false));
    check(&[&ticket[..], &update[..]].concat(), Ok(true));
    check(&ticket[..6], Err(Failure::Unexpected));
    check(&[13, 0, 0, 0], Err(Failure::Unexpected));
    // A server is told no such thing.
    let (server, mut client) = sessions(Suite::Tls13Aes128);
    let mut record = client.session().seal_any(22, &ticket);
    let mut server = server;
    assert_eq!(server.session().open(&mut record).unwrap_err(), Failure::Unexpected);
}

#[test]
fn errors_are_explained_wherever_they_are_within() {
    let error = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let expected = Some("its certificate is signed by nobody that is trusted here".to_owned());
    assert_eq!(explain(&error()), expected);
    let within = std::io::Error::new(std::io::ErrorKind::InvalidData, error());
    assert_eq!(explain(&within), expected);
    assert_eq!(explain(&std::io::Error::other(within)), expected);
    assert_eq!(explain(&std::io::Error::from(std::io::ErrorKind::NotFound)), None);
}
