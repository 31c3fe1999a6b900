//! Clients that speak TLS, as rustls does it.
//!
//! What one has to say before its handshake is done waits within rustls, and so does its end. Each
//! seed has clients of one version and one suite, short records or long ones, who ask for other
//! keys now and then. The lengths of all they say go by the seed; what is in it is random.

use super::End;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite, version};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use stentor_io::Rng;
use stentor_tls::{Acceptor, Certificates, Pair, PemPair, Settings, Tickets, Version};

/// Somebody's certificate, in the certificates of clients and of the server.
struct Identity {
    acceptor: Acceptor,
    certificate: CertificateDer<'static>,
}

/// Its signatures are all of one length.
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = rcgen::CertificateParams::new(vec!["h".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let (certificate_pem, key_pem) = (certificate.pem(), key.serialize_pem());
    let pem = PemPair {
        certificate: (Path::new("certificate.pem"), certificate_pem.as_bytes()),
        key: (Path::new("key.pem"), key_pem.as_bytes()),
    };
    let pair = Pair::read(&pem, stentor_io::unix_s()).unwrap();
    let acceptor = Acceptor::new(&Settings {
        certificates: Arc::new(Certificates::new(vec![pair])),
        tickets: Some(Arc::new(Tickets::random().unwrap())),
        oldest: Version::Tls12,
        alpn: vec![b"http/1.1".to_vec()],
        client_auth: None,
    })
    .unwrap();
    Identity { acceptor, certificate: certificate.der().clone() }
});

/// What the server shows.
pub(crate) fn acceptor() -> Acceptor {
    IDENTITY.acceptor.clone()
}

/// Clients of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    config: Arc<ClientConfig>,
    rng: Rng,
    /// Of a hundred times that one says something, so many times it asks for other keys.
    refresh_percent: u8,
}

impl Clients {
    pub(crate) fn new(seed: u64) -> Clients {
        let mut rng = Rng::new(seed ^ 0x7e15);
        let suites = aws_lc_rs::ALL_CIPHER_SUITES;
        let suite = suites[rng.below(suites.len())];
        Clients {
            config: Arc::new(config(suite, [None, Some(100), Some(1_000)][rng.below(3)])),
            refresh_percent: [0, 5, 40][rng.below(3)],
            rng,
        }
    }

    pub(super) fn connect(&mut self) -> Box<dyn End> {
        Box::new(Client {
            connection: connection(&self.config),
            rng: Rng::new(self.rng.next_u64()),
            refresh_percent: self.refresh_percent,
            finishes: false,
            failed: None,
        })
    }
}

/// A client that offers what is given, and knows the server's certificate.
pub(crate) fn config(suite: SupportedCipherSuite, fragment: Option<usize>) -> ClientConfig {
    // With a certificate of this kind TLS 1.2 has the suites of ECDSA.
    let suite = match suite.suite().as_str() {
        Some("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") => {
            aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        }
        Some("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384") => {
            aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        }
        Some("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256") => {
            aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        }
        _ => suite,
    };
    let provider = CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() };
    let versions = match suite.tls13() {
        Some(_) => &[&version::TLS13],
        None => &[&version::TLS12],
    };
    let mut roots = RootCertStore::empty();
    roots.add(IDENTITY.certificate.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(8);
    config.max_fragment_size = fragment;
    config
}

pub(crate) fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("h").unwrap();
    let mut connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    connection.set_buffer_limit(None);
    connection
}

struct Client {
    connection: ClientConnection,
    rng: Rng,
    refresh_percent: u8,
    /// It ends its side once all is said.
    finishes: bool,
    failed: Option<rustls::Error>,
}

impl Client {
    fn say(&mut self, out: &mut Vec<u8>) {
        if self.finishes && !self.connection.is_handshaking() {
            self.connection.send_close_notify();
        }
        while self.connection.wants_write() {
            self.connection.write_tls(out).unwrap();
        }
    }
}

impl End for Client {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.say(out);
    }

    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.finishes {
            return;
        }
        self.connection.writer().write_all(bytes).unwrap();
        let refreshes = !bytes.is_empty() && self.rng.percent(self.refresh_percent);
        if refreshes && !self.connection.is_handshaking() {
            // TLS 1.2 has no such thing.
            let _ = self.connection.refresh_traffic_keys();
        }
        self.say(out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> bool {
        self.finishes = true;
        self.say(out);
        !self.connection.is_handshaking()
    }

    fn receive(&mut self, mut bytes: &[u8], content: &mut Vec<u8>, out: &mut Vec<u8>) {
        while !bytes.is_empty() && self.failed.is_none() {
            self.connection.read_tls(&mut bytes).unwrap();
            match self.connection.process_new_packets() {
                Ok(state) => {
                    let length = state.plaintext_bytes_to_read();
                    let begin = content.len();
                    content.resize(begin + length, 0);
                    self.connection.reader().read_exact(&mut content[begin..]).unwrap();
                }
                Err(error) => self.failed = Some(error),
            }
        }
        self.say(out);
        // Whoever is not let in hears so in the clear.
        let is_refused = self.connection.is_handshaking()
            && matches!(self.failed, Some(rustls::Error::AlertReceived(_)));
        assert!(is_refused || self.failed.is_none(), "{:?}", self.failed);
    }

    fn has_ended(&mut self) -> bool {
        let is_over = self.failed.is_some() || self.connection.is_handshaking();
        is_over || matches!(self.connection.reader().read(&mut [0]), Ok(0))
    }
}
