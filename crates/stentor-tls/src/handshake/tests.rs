//! Handshakes with rustls as the client, and sessions that go on with it.

use std::collections::VecDeque;
use std::io::{IoSlice, Read, Write};
use std::sync::Arc;

use proptest::prelude::*;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, SignatureScheme, SupportedCipherSuite, version,
};

use super::*;
use crate::authority::{Authority, Issued};
use crate::certificates::{Certificates, KeyKind, Pair};
use crate::session::Session;
use crate::{Contexts, Failure, Inbound, Record, TICKET_PERIOD_S, Tickets};

const NOW: u64 = 1_800_000_000;
const NAME: &str = "a.example";

/// A server, and what its clients need to know of it.
struct World {
    authority: Authority,
    settings: Settings,
}

impl World {
    fn new() -> World {
        let authority = Authority::new();
        let pairs = [authority.issue(KeyKind::Ecdsa, &[NAME, "*.b.example"])];
        let settings = Settings {
            certificates: Arc::new(certificates(&pairs)),
            tickets: Some(Arc::new(Tickets::random().unwrap())),
            oldest: Version::Tls12,
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            client_auth: None,
        };
        World { authority, settings }
    }

    fn acceptor(&self) -> Acceptor {
        Acceptor::new(&self.settings).unwrap()
    }

    /// A client that knows these suites, and shows this certificate.
    fn client(&self, suites: &[SupportedCipherSuite], shows: Option<&Issued>) -> ClientConfig {
        let mut provider = default_provider();
        provider.cipher_suites = suites.to_vec();
        provider.kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519];
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der()).unwrap();
        let is_known = |version: &&rustls::SupportedProtocolVersion| {
            suites.iter().any(|suite| suite.version() == *version)
        };
        let versions: Vec<_> =
            [&version::TLS13, &version::TLS12].into_iter().filter(is_known).collect();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .unwrap()
            .with_root_certificates(roots);
        match shows {
            None => builder.with_no_client_auth(),
            Some(issued) => builder.with_client_auth_cert(issued.chain(), issued.key()).unwrap(),
        }
    }
}

fn certificates(pairs: &[Issued]) -> Certificates {
    let pair = |issued: &Issued| Pair::read(&issued.pem(), NOW).unwrap();
    Certificates::new(pairs.iter().map(pair).collect())
}

fn begin(config: ClientConfig) -> ClientConnection {
    ClientConnection::new(Arc::new(config), NAME.try_into().unwrap()).unwrap()
}

/// What the client has to say.
fn said(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Tells the client, and what it then knows in the clear.
fn tell(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut data = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        let state = client.process_new_packets()?;
        let mut part = vec![0; state.plaintext_bytes_to_read()];
        client.reader().read_exact(&mut part).unwrap();
        data.extend(part);
    }
    Ok(data)
}

/// A handshake in pieces of this size, and what the client said behind it.
fn shake(
    acceptor: &Acceptor,
    client: &mut ClientConnection,
    piece: usize,
) -> Result<(Established, Vec<u8>), HandshakeError> {
    let mut handshake = acceptor.begin();
    loop {
        let bytes = said(client);
        assert!(!bytes.is_empty(), "both wait");
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + piece);
            let mut out = Vec::new();
            let progress = handshake.receive(NOW, &bytes[at..end], &mut out);
            let told = tell(client, &out);
            let progress = progress?;
            assert_eq!(told.expect("the client is content"), b"");
            at += progress.used;
            if let Some(established) = progress.established {
                return Ok((established, bytes[at..].to_vec()));
            }
            assert_eq!(at, end, "all is used up until it is done");
        }
    }
}

/// What comes to the server.
fn hear(session: &mut Owned, mut bytes: Vec<u8>, piece: usize) -> Result<Vec<u8>, Failure> {
    let (mut inbound, mut data) = (Inbound::default(), Vec::new());
    // With a cache and without it comes to the same.
    let mut contexts = Contexts::new(piece % 2, |_| ());
    for piece in bytes.chunks_mut(piece) {
        let mut records = inbound.records(piece);
        while let Some(record) = records.next_with(&mut session.session(), &mut contexts)? {
            match record {
                Record::Data(bytes) => data.extend_from_slice(bytes),
                Record::Closed => return Ok(data),
            }
        }
        records.keep();
    }
    assert!(inbound.is_empty());
    Ok(data)
}

fn seal(session: &mut Session<'_>, mut text: &[u8], fragment_bytes_max: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut out = vec![0; 20_000];
    while !text.is_empty() {
        let parts = [IoSlice::new(text)];
        let sealed = session.seal(&parts, fragment_bytes_max, &mut out).unwrap();
        sent.extend_from_slice(&out[..sealed.written]);
        text = &text[sealed.taken..];
    }
    sent
}

/// Every suite, as a client knows it that knows no other, and what becomes of it here.
const SUITES: [(SupportedCipherSuite, Suite); 9] = [
    (cipher_suite::TLS13_AES_128_GCM_SHA256, Suite::Tls13Aes128),
    (cipher_suite::TLS13_AES_256_GCM_SHA384, Suite::Tls13Aes256),
    (cipher_suite::TLS13_CHACHA20_POLY1305_SHA256, Suite::Tls13ChaCha),
    (cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, Suite::Tls12Aes128),
    (cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, Suite::Tls12Aes256),
    (cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, Suite::Tls12ChaCha),
    (cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, Suite::Tls12Aes128),
    (cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, Suite::Tls12Aes256),
    (cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, Suite::Tls12ChaCha),
];

/// All suites in this client's order: rustls puts AES-256 in front.
fn any_suite() -> Vec<SupportedCipherSuite> {
    default_provider().cipher_suites
}

/// With a certificate of each kind.
fn world_of_two() -> World {
    let mut world = World::new();
    let pairs = [KeyKind::Rsa, KeyKind::Ecdsa].map(|kind| world.authority.issue(kind, &[NAME]));
    world.settings.certificates = Arc::new(certificates(&pairs));
    world
}

#[test]
fn every_suite_is_understood_by_rustls_both_ways_and_in_any_pieces() {
    let world = world_of_two();
    let acceptor = world.acceptor();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(60));
    let texts = || prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40_000), 1..4);
    let strategy = (
        prop::sample::select(SUITES.to_vec()),
        (1_usize..2000, 1_usize..20_000, texts(), texts(), any::<bool>(), any::<bool>()),
    );
    type Texts = Vec<Vec<u8>>;
    type Case = ((SupportedCipherSuite, Suite), (usize, usize, Texts, Texts, bool, bool));
    let run = |((known, suite), (piece, limit, ours, theirs, updates, resumes)): Case| {
        let config = Arc::new(world.client(&[known], None));
        let begin = || ClientConnection::new(Arc::clone(&config), NAME.try_into().unwrap());
        let mut client = begin().unwrap();
        if resumes {
            let (mut first, _) = shake(&acceptor, &mut client, 10_000).unwrap();
            // The ticket of TLS 1.3 comes behind the handshake.
            tell(&mut client, &seal(&mut first.session.session(), b"x", 9)).unwrap();
            client = begin().unwrap();
        }
        let (established, rest) = shake(&acceptor, &mut client, piece).unwrap();
        let Established { mut session, negotiated } = established;
        prop_assert_eq!(negotiated.suite, suite);
        prop_assert_eq!(negotiated.resumed, resumes);
        prop_assert_eq!(negotiated.server_name.as_deref(), Some(NAME));
        prop_assert!(rest.is_empty());
        for (our, their) in ours.iter().zip(theirs.iter().cycle()) {
            let sent = seal(&mut session.session(), our, limit);
            prop_assert_eq!(&tell(&mut client, &sent).unwrap(), our);
            if updates && suite.version() == Version::Tls13 {
                client.refresh_traffic_keys().unwrap();
            }
            client.writer().write_all(their).unwrap();
            let sent = said(&mut client);
            prop_assert_eq!(&hear(&mut session, sent, piece).unwrap(), their);
            prop_assert!(!updates || suite.version() == Version::Tls12 || session.session().owes());
        }
        let mut out = [0; 100];
        let written = session.session().end(Alert::CloseNotify, &mut out).unwrap();
        let mut bytes = &out[..written];
        client.read_tls(&mut bytes).unwrap();
        prop_assert!(client.process_new_packets().unwrap().peer_has_closed());
        client.send_close_notify();
        prop_assert!(hear(&mut session, said(&mut client), piece).unwrap().is_empty());
        prop_assert!(session.session().peer_has_closed());
        Ok(())
    };
    runner.run(&strategy, run).unwrap();
}

#[test]
fn one_byte_at_a_time_comes_to_the_same() {
    let world = World::new();
    for (known, suite) in &SUITES[..6] {
        let mut client = begin(world.client(&[*known], None));
        let (mut established, _) = shake(&world.acceptor(), &mut client, 1).unwrap();
        assert_eq!(established.negotiated.suite, *suite);
        client.writer().write_all(b"ping").unwrap();
        assert_eq!(hear(&mut established.session, said(&mut client), 1), Ok(b"ping".to_vec()));
    }
}

#[test]
fn what_comes_in_the_same_bytes_as_the_end_of_the_handshake_is_left() {
    let world = World::new();
    let acceptor = world.acceptor();
    for (known, suite) in &SUITES[..6] {
        for piece in [1, 7, 100_000] {
            let mut client = begin(world.client(&[*known], None));
            // It is sent with Finished in TLS 1.3, and behind it in TLS 1.2.
            client.writer().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let (mut established, mut rest) = shake(&acceptor, &mut client, piece).unwrap();
            rest.extend(said(&mut client));
            let heard = hear(&mut established.session, rest, piece).unwrap();
            assert_eq!(heard, b"GET / HTTP/1.1\r\n\r\n", "{suite:?} {piece}");
            let answer = seal(&mut established.session.session(), b"200", 9);
            assert_eq!(tell(&mut client, &answer).unwrap(), b"200");
        }
    }
}

#[test]
fn a_resumed_tls12_handshake_leaves_what_follows_it() {
    // Here the client's Finished is the last message, and nothing is sent in answer.
    let world = World::new();
    let acceptor = world.acceptor();
    let config = Arc::new(world.client(&[SUITES[3].0], None));
    for resumed in [false, true, true] {
        let name = NAME.try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(&config), name).unwrap();
        client.writer().write_all(b"early").unwrap();
        let (mut established, mut rest) = shake(&acceptor, &mut client, 100_000).unwrap();
        assert_eq!(established.negotiated.resumed, resumed);
        rest.extend(said(&mut client));
        assert_eq!(hear(&mut established.session, rest, 100), Ok(b"early".to_vec()));
    }
}

#[test]
fn handshakes_side_by_side_are_not_mixed_up() {
    let world = World::new();
    let acceptor = world.acceptor();
    let one_thread = |seed: usize| {
        // Each is a step further than the next, in an order that changes.
        let mut clients: VecDeque<_> = (0..40)
            .map(|i| {
                let known = SUITES[(seed + i) % 6].0;
                (begin(world.client(&[known], None)), acceptor.begin(), None)
            })
            .collect();
        let mut done = 0;
        while let Some((mut client, mut handshake, mut session)) = clients.pop_front() {
            let bytes = said(&mut client);
            let mut out = Vec::new();
            let (first, second) = bytes.split_at(bytes.len() / (1 + done % 3));
            for part in [first, second] {
                if session.is_none() && !part.is_empty() {
                    let progress = handshake.receive(NOW, part, &mut out).unwrap();
                    session = progress.established.map(|established| established.session);
                }
            }
            tell(&mut client, &out).unwrap();
            match &mut session {
                None if done % 2 == 0 => clients.push_back((client, handshake, session)),
                None => clients.insert(clients.len() / 2, (client, handshake, session)),
                Some(session) => {
                    let answer = seal(&mut session.session(), b"mine", 9);
                    assert_eq!(tell(&mut client, &answer).unwrap(), b"mine");
                    client.writer().write_all(b"yours").unwrap();
                    assert_eq!(hear(session, said(&mut client), 9), Ok(b"yours".to_vec()));
                    done += 1;
                }
            }
        }
        assert_eq!(done, 40);
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || one_thread(seed));
        }
    });
}

#[test]
fn the_smallest_session_comes_first_unless_the_client_has_no_aes() {
    let world = World::new();
    let suite = |suites: &[SupportedCipherSuite]| {
        let mut client = begin(world.client(suites, None));
        shake(&world.acceptor(), &mut client, 10_000).unwrap().0.negotiated.suite
    };
    assert_eq!(any_suite()[0].suite(), rustls::CipherSuite::TLS13_AES_256_GCM_SHA384);
    assert_eq!(suite(&any_suite()), Suite::Tls13Aes128);
    let mut chacha = any_suite();
    chacha.rotate_left(2);
    assert_eq!(suite(&chacha), Suite::Tls13ChaCha);
    let tls12: Vec<_> = any_suite().into_iter().filter(|suite| suite.tls13().is_none()).collect();
    assert_eq!(suite(&tls12), Suite::Tls12Aes128);
}

#[test]
fn the_groups_that_outlive_quantum_computers_are_there() {
    let world = World::new();
    let mut client = begin(world.client(&any_suite(), None));
    let (established, _) = shake(&world.acceptor(), &mut client, 500).unwrap();
    assert_eq!(established.session.bytes(), 112);
    let group = client.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn one_ticket_comes_and_no_early_data_is_taken() {
    let world = World::new();
    let mut config = world.client(&any_suite(), None);
    config.enable_early_data = true;
    let config = Arc::new(config);
    for resumed in [false, true, true] {
        let name = NAME.try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(&config), name).unwrap();
        assert!(client.early_data().is_none(), "it may not send any");
        let (mut established, _) = shake(&world.acceptor(), &mut client, 5000).unwrap();
        assert_eq!(established.negotiated.resumed, resumed);
        tell(&mut client, &seal(&mut established.session.session(), b"x", 9)).unwrap();
        assert_eq!(client.tls13_tickets_received(), 1);
    }
    let mut without = World::new();
    without.settings.tickets = None;
    let config = Arc::new(without.client(&any_suite(), None));
    for _ in 0..2 {
        let name = NAME.try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let (mut established, _) = shake(&without.acceptor(), &mut client, 5000).unwrap();
        assert!(!established.negotiated.resumed);
        tell(&mut client, &seal(&mut established.session.session(), b"x", 9)).unwrap();
        assert_eq!(client.tls13_tickets_received(), 0);
    }
}

/// Whether a client that comes back resumes, when what it comes back to was changed, and later.
fn resumes(
    world: &mut World,
    known: SupportedCipherSuite,
    change: impl FnOnce(&mut World),
) -> bool {
    let config = Arc::new(world.client(&[known], None));
    let begin = || ClientConnection::new(Arc::clone(&config), NAME.try_into().unwrap()).unwrap();
    let mut client = begin();
    let (mut established, _) = shake(&world.acceptor(), &mut client, 5000).unwrap();
    tell(&mut client, &seal(&mut established.session.session(), b"x", 9)).unwrap();
    change(world);
    shake(&world.acceptor(), &mut begin(), 5000).unwrap().0.negotiated.resumed
}

#[test]
fn tickets_outlive_a_restart_if_their_secret_does() {
    let tickets = |first: u8| {
        let secret = [first; 32];
        Some(Arc::new(Tickets::new(&[(std::path::Path::new("s"), &secret[..])]).unwrap()))
    };
    for (known, _) in [SUITES[0], SUITES[3]] {
        let mut world = World::new();
        world.settings.tickets = tickets(1);
        assert!(resumes(&mut world, known, |world| world.settings.tickets = tickets(1)));
        assert!(!resumes(&mut world, known, |world| world.settings.tickets = tickets(2)));
        // A listener that requests certificates resumes nothing.
        let pem = world.authority.pem().into_bytes();
        let auth = Some(ClientAuth { file: "ca".into(), pem, required: false });
        assert!(!resumes(&mut world, known, |world| world.settings.client_auth = auth));
        assert!(!resumes(&mut world, known, |_| ()));
    }
    const { assert!(TICKET_PERIOD_S <= 7 * 24 * 60 * 60, "RFC 8446 section 4.6.1") };
}

#[test]
fn clients_are_known_by_their_certificates() {
    let mut world = World::new();
    let auth = |world: &World, required| {
        let pem = world.authority.pem().into_bytes();
        Some(ClientAuth { file: "ca.pem".into(), pem, required })
    };
    let issued = world.authority.issue_client("alice, of sales", None);
    for (known, _) in [SUITES[0], SUITES[3]] {
        for required in [false, true] {
            world.settings.client_auth = auth(&world, required);
            let acceptor = world.acceptor();
            let config = Arc::new(world.client(&[known], Some(&issued)));
            for _ in 0..2 {
                let name = NAME.try_into().unwrap();
                let mut client = ClientConnection::new(Arc::clone(&config), name).unwrap();
                let (mut established, _) = shake(&acceptor, &mut client, 999).unwrap();
                let negotiated = &established.negotiated;
                assert!(!negotiated.resumed, "its certificate may have expired since");
                assert_eq!(negotiated.client_subject.as_deref(), Some("CN=alice\\, of sales"));
                tell(&mut client, &seal(&mut established.session.session(), b"x", 9)).unwrap();
            }
            let mut client = begin(world.client(&[known], None));
            let nobody = shake(&acceptor, &mut client, 999);
            if required {
                assert_eq!(nobody.unwrap_err().fault, HandshakeFault::ClientCertificate);
            } else {
                assert_eq!(nobody.unwrap().0.negotiated.client_subject, None);
            }
            // Somebody else has signed it.
            let stranger = Authority::new().issue_client("mallory", None);
            let mut client = begin(world.client(&[known], Some(&stranger)));
            // rustls does not show what was not asked for.
            let shown = shake(&acceptor, &mut client, 999);
            if required {
                assert_eq!(shown.unwrap_err().fault, HandshakeFault::ClientCertificate);
            }
        }
    }
}

#[test]
fn certificates_are_chosen_by_name_and_by_what_the_client_can_verify() {
    let mut world = World::new();
    let authority = &world.authority;
    let pairs = [
        authority.issue(KeyKind::Rsa, &[NAME]),
        authority.issue(KeyKind::Ecdsa, &[NAME]),
        authority.issue(KeyKind::Ecdsa, &["*.b.example"]),
        authority.issue(KeyKind::Rsa, &["x.b.example"]),
    ];
    world.settings.certificates = Arc::new(certificates(&pairs));
    let acceptor = world.acceptor();
    let shown = |suites: &[SupportedCipherSuite], name: &'static str| {
        let config = Arc::new(world.client(suites, None));
        let mut client = ClientConnection::new(config, name.try_into().unwrap()).unwrap();
        let _ = shake(&acceptor, &mut client, 5000);
        let chain = client.peer_certificates()?;
        pairs.iter().position(|pair| pair.chain()[0] == chain[0])
    };
    assert_eq!(shown(&any_suite(), NAME), Some(1));
    assert_eq!(shown(&any_suite(), "A.Example"), Some(1));
    assert_eq!(shown(&[SUITES[3].0], NAME), Some(1));
    assert_eq!(shown(&[SUITES[6].0], NAME), Some(0), "it knows RSA only");
    assert_eq!(shown(&any_suite(), "y.b.example"), Some(2));
    assert_eq!(shown(&any_suite(), "x.b.example"), Some(3));
    assert_eq!(shown(&[SUITES[6].0], "y.b.example"), None, "there is none that it can verify");
}

#[test]
fn protocols_are_agreed_on_by_our_order() {
    let world = World::new();
    let alpn = |offered: &[&[u8]]| {
        let mut config = world.client(&any_suite(), None);
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        shake(&world.acceptor(), &mut begin(config), 5000).map(|done| done.0.negotiated.alpn)
    };
    assert_eq!(alpn(&[]), Ok(None));
    assert_eq!(alpn(&[b"http/1.1", b"h2"]), Ok(Some(b"h2".to_vec())));
    assert_eq!(alpn(&[b"http/1.1"]), Ok(Some(b"http/1.1".to_vec())));
    assert_eq!(alpn(&[b"smtp"]).unwrap_err().fault, HandshakeFault::NoProtocol);
}

#[test]
fn what_is_not_agreed_on_is_said_by_an_alert() {
    let mut world = World::new();
    world.settings.oldest = Version::Tls13;
    let acceptor = world.acceptor();
    let refused = |acceptor: &Acceptor, bytes: &[u8]| {
        let (mut handshake, mut out) = (acceptor.begin(), Vec::new());
        let error = handshake.receive(NOW, bytes, &mut out).unwrap_err();
        let again = handshake.receive(NOW, bytes, &mut Vec::new()).unwrap_err();
        assert_eq!(again.fault, HandshakeFault::Ended);
        (error.fault, out)
    };
    let mut client = begin(world.client(&[SUITES[3].0], None));
    let hello = said(&mut client);
    let (fault, out) = refused(&acceptor, &hello);
    assert_eq!((fault, &out[..]), (HandshakeFault::NothingInCommon, &[21, 3, 3, 0, 2, 2, 70][..]));

    let (fault, out) = refused(&acceptor, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((fault, out), (HandshakeFault::NotTls, Vec::new()));
    let (fault, _) = refused(&acceptor, b"G");
    assert_eq!(fault, HandshakeFault::NotTls);

    let (fault, out) = refused(&acceptor, &[22, 3, 1, 0xff, 0xff]);
    assert_eq!(out[..6], [21, 3, 3, 0, 2, 2], "{fault:?}");
    let (fault, out) = refused(&acceptor, &[99, 3, 1, 0, 1]);
    assert_eq!(out[..6], [21, 3, 3, 0, 2, 2], "{fault:?}");
    // An alert is not answered.
    let (fault, out) = refused(&acceptor, &[21, 3, 1, 0, 2, 2, 40]);
    assert_eq!((fault, out), (HandshakeFault::Peer(PeerAlert(40)), Vec::new()));
}

#[test]
fn who_knows_no_signature_of_ours_is_told_that_nothing_is_in_common() {
    let world = World::new();
    for (known, _) in [SUITES[0], SUITES[3], SUITES[6]] {
        let mut config = world.client(&[known], None);
        let mut provider = (**config.crypto_provider()).clone();
        // It verifies RSA, and the certificate is one of ECDSA.
        let verified = &mut provider.signature_verification_algorithms;
        let is_rsa = |scheme: &SignatureScheme| format!("{scheme:?}").starts_with("RSA");
        let left = verified.mapping.iter().copied().filter(|(scheme, _)| is_rsa(scheme));
        verified.mapping = Box::leak(left.collect());
        let mut roots = RootCertStore::empty();
        roots.add(world.authority.der()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[known.version()])
            .unwrap();
        config = builder.with_root_certificates(roots).with_no_client_auth();
        let (mut client, mut out) = (begin(config), Vec::new());
        let error = world.acceptor().begin().receive(NOW, &said(&mut client), &mut out);
        let fault = error.unwrap_err().fault;
        // A handshake_failure, and nothing in front of it.
        assert_eq!(
            (fault, &out[..]),
            (HandshakeFault::NothingInCommon, &[21, 3, 3, 0, 2, 2, 40][..])
        );
    }
}

#[test]
fn a_client_that_does_not_trust_us_says_so() {
    let world = World::new();
    // It trusts somebody else.
    let mut client = begin(World::new().client(&any_suite(), None));
    let acceptor = world.acceptor();
    let (mut handshake, mut out) = (acceptor.begin(), Vec::new());
    handshake.receive(NOW, &said(&mut client), &mut out).unwrap();
    assert!(tell(&mut client, &out).is_err());
    let error = handshake.receive(NOW, &said(&mut client), &mut Vec::new()).unwrap_err();
    assert!(matches!(error.fault, HandshakeFault::Peer(_)), "{error:?}");
}

#[test]
fn a_handshake_takes_so_many_bytes_and_no_more() {
    let world = World::new();
    let acceptor = world.acceptor();
    // A message of the longest kind in the longest records, or in the shortest; and what brings
    // nothing, without end.
    let mut longest = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    longest.resize(5 + (1 << 14), 0);
    for _ in 0..4 {
        longest.extend([22, 3, 1, 0x40, 0]);
        longest.resize(longest.len() + (1 << 14), 0);
    }
    let mut fragments = Vec::new();
    for byte in [1, 0, 0xff, 0xff].into_iter().chain([0; 30_000]) {
        fragments.extend([22, 3, 1, 0, 1, byte]);
    }
    let warnings = [21, 3, 1, 0, 2, 1, 90].repeat(20_000);
    let empties = [22, 3, 1, 0, 0].repeat(20_000);
    for bytes in [longest, fragments, warnings, empties] {
        let (mut handshake, mut out, mut at) = (acceptor.begin(), Vec::new(), 0);
        let error = loop {
            let end = (at + 500).min(bytes.len());
            match handshake.receive(NOW, &bytes[at..end], &mut out) {
                Ok(progress) => at += progress.used,
                Err(error) => break error,
            }
            assert!(handshake.held_bytes() <= HANDSHAKE_BYTES_MAX + incoming::GROWTH_BYTES);
        };
        assert!(at <= HANDSHAKE_BYTES_MAX, "{error:?}");
        assert!(out.len() <= 100);
        assert!(handshake.connection.is_none() && handshake.held_bytes() == 0);
    }
}

#[test]
fn the_longest_hello_that_rustls_takes_is_taken() {
    let world = World::new();
    let acceptor = world.acceptor();
    let hello = |last: usize| {
        let mut config = world.client(&[SUITES[0].0], None);
        config.alpn_protocols = vec![vec![b'x'; 255]; 245];
        config.alpn_protocols.push(b"http/1.1".to_vec());
        config.alpn_protocols.extend([vec![b'y'; 255], vec![b'y'; 255], vec![b'y'; 255]]);
        config.alpn_protocols.extend([1, 2, 3, 4].map(|part| vec![b'z'; (last + part) / 4 - 1]));
        begin(config)
    };
    let message_bytes = |sent: &[u8]| usize::from(u16::from_be_bytes([sent[7], sent[8]]));
    let last = 100 + 0xffff - message_bytes(&said(&mut hello(100)));
    assert_eq!(message_bytes(&said(&mut hello(last))), 0xffff);
    for piece in [1400, 100_000] {
        let (established, _) = shake(&acceptor, &mut hello(last), piece).unwrap();
        assert_eq!(established.negotiated.alpn.as_deref(), Some(&b"http/1.1"[..]));
    }
}

#[test]
fn a_message_may_come_in_many_records_and_not_in_any_number() {
    let world = World::new();
    let acceptor = world.acceptor();
    let mut client = begin(world.client(&[SUITES[0].0], None));
    let hello = said(&mut client);
    let cut = |size: usize| -> Vec<u8> {
        let record = |piece: &[u8]| {
            let len = u16::try_from(piece.len()).unwrap().to_be_bytes();
            [&[22, 3, 1], &len[..], piece].concat()
        };
        hello[5..].chunks(size).flat_map(record).collect()
    };
    let (mut handshake, mut out) = (acceptor.begin(), Vec::new());
    let progress = handshake.receive(NOW, &cut(20), &mut out).unwrap();
    assert!(progress.established.is_none() && out.len() > 500, "it has answered");
    let (mut handshake, mut out) = (acceptor.begin(), Vec::new());
    let error = handshake.receive(NOW, &cut(1), &mut out).unwrap_err();
    assert_eq!(error.fault, HandshakeFault::TooLong);
    assert_eq!(out, [21, 3, 3, 0, 2, 2, 50]);
}

#[test]
fn no_bit_of_a_handshake_can_be_changed() {
    let world = World::new();
    let acceptor = world.acceptor();
    for (known, _) in [SUITES[0], SUITES[3]] {
        // The first flight or the second, and which bits of it.
        for (flight, stride) in [(0, 13), (1, 3)] {
            let mut bit = 0;
            loop {
                let mut client = begin(world.client(&[known], None));
                let (mut handshake, mut out) = (acceptor.begin(), Vec::new());
                let mut bytes = said(&mut client);
                if flight == 1 {
                    handshake.receive(NOW, &bytes, &mut out).unwrap();
                    tell(&mut client, &out).unwrap();
                    bytes = said(&mut client);
                }
                if bit >= bytes.len() * 8 {
                    break;
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
                out.clear();
                let progress = handshake.receive(NOW, &bytes, &mut out);
                let established = match progress {
                    Ok(progress) => progress.established,
                    Err(_) => {
                        let again = handshake.receive(NOW, &bytes, &mut out);
                        assert_eq!(again.unwrap_err().fault, HandshakeFault::Ended);
                        None
                    }
                };
                // To rustls a record's type and version mean nothing if it opens; all else does.
                // Here records begin at every sixth byte.
                let is_good = established.is_some();
                assert!(!is_good || bit / 8 % 6 < 3, "bit {bit} of {flight}");
                bit += stride;
            }
        }
    }
}

#[test]
fn an_acceptor_says_what_is_missing() {
    let mut world = World::new();
    world.settings.client_auth =
        Some(ClientAuth { file: "ca.pem".into(), pem: b"nothing".to_vec(), required: true });
    let error = Acceptor::new(&world.settings).unwrap_err();
    assert_eq!(error, "ca.pem: there is no certificate in it (in PEM)");
    world.settings.client_auth = None;
    world.settings.certificates = Arc::new(Certificates::new(Vec::new()));
    assert_eq!(Acceptor::new(&world.settings).unwrap_err(), "there is no certificate");
}
