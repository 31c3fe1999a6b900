//! What all handshakes of a listener share: certificates, tickets, versions, who is let in.
//!
//! An [`Acceptor`] does not change. Whoever has new certificates makes another one and swaps them;
//! handshakes that are under way end as they began.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert,
    UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    KeyLog, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version,
};

use super::step::{self, TrafficSecret};
use super::{Handshake, HandshakeError};
use crate::certificates::{Certificates, malformed, of_file, read_chain};
use crate::suite::Version;
use crate::tickets::{TICKET_PERIOD_S, Tickets};

/// Begins handshakes. It is cheap to clone, and shared by all workers.
#[derive(Clone)]
pub struct Acceptor(Arc<AcceptorState>);

struct AcceptorState {
    certificates: Arc<Certificates>,
    aes_first: Arc<ServerConfig>,
    chacha_first: Arc<ServerConfig>,
}

/// What a listener asks for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it shows.
    pub certificates: Arc<Certificates>,
    /// Whether sessions can be resumed, and by which keys. A listener that requests certificates of
    /// clients resumes none: the certificate may have expired or be revoked by then.
    pub tickets: Option<Arc<Tickets>>,
    /// The oldest version that is spoken.
    pub oldest: Version,
    /// The protocols within, the best first. None: whatever the client asks for is passed over.
    pub alpn: Vec<Vec<u8>>,
    /// Whether clients show certificates.
    pub client_auth: Option<ClientAuth>,
}

/// Which certificates of clients are good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientAuth {
    /// The file of those who sign them (in PEM), for errors.
    pub file: PathBuf,
    /// What is in it.
    pub pem: Vec<u8>,
    /// Whether nobody is let in without one.
    pub required: bool,
}

impl Acceptor {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// A sentence on what is wrong with the settings.
    pub fn new(settings: &Settings) -> Result<Acceptor, String> {
        if settings.certificates.pairs().is_empty() {
            return Err("there is no certificate".to_owned());
        }
        let config = |suites: &[SupportedCipherSuite]| config(settings, suites).map(Arc::new);
        Ok(Acceptor(Arc::new(AcceptorState {
            certificates: Arc::clone(&settings.certificates),
            aes_first: config(&AES_FIRST)?,
            chacha_first: config(&CHACHA_FIRST)?,
        })))
    }

    /// Begins a handshake: nothing is allocated until something arrives.
    #[must_use]
    pub fn begin(&self) -> Handshake {
        Handshake::new(self.clone())
    }

    /// What it shows.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.0.certificates
    }

    pub(super) fn connect(
        &self,
        prefers_chacha: bool,
    ) -> Result<UnbufferedServerConnection, HandshakeError> {
        let config = if prefers_chacha { &self.0.chacha_first } else { &self.0.aes_first };
        Ok(UnbufferedServerConnection::new(Arc::clone(config))?)
    }
}

fn config(settings: &Settings, suites: &[SupportedCipherSuite]) -> Result<ServerConfig, String> {
    let provider = Arc::new(CryptoProvider {
        cipher_suites: suites.to_vec(),
        kx_groups: vec![
            kx_group::X25519MLKEM768,
            kx_group::X25519,
            kx_group::SECP256R1,
            kx_group::SECP384R1,
        ],
        ..default_provider()
    });
    let verifier = verifier(settings.client_auth.as_ref(), &provider)?;
    let versions: &[&SupportedProtocolVersion] = match settings.oldest {
        Version::Tls12 => &[&version::TLS13, &version::TLS12],
        Version::Tls13 => &[&version::TLS13],
    };
    let resolver = Arc::new(CertificateResolver(Arc::clone(&settings.certificates)));
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(StepTime))
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.ignore_client_order = true;
    config.alpn_protocols.clone_from(&settings.alpn);
    config.enable_secret_extraction = true;
    config.key_log = Arc::new(StepSecrets { tx: SERVER_LABEL, rx: CLIENT_LABEL });
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // One ticket is what a client needs that comes back once, and it comes with the last flight.
    let tickets = settings.tickets.as_ref().filter(|_| settings.client_auth.is_none());
    config.send_tls13_tickets = usize::from(tickets.is_some());
    // What may be replayed is not taken (RFC 8446 section 8).
    config.max_early_data_size = 0;
    config.send_half_rtt_data = false;
    if let Some(tickets) = tickets {
        config.ticketer = Arc::new(Stateless(Arc::clone(tickets)));
    }
    Ok(config)
}

fn verifier(
    auth: Option<&ClientAuth>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let Some(ClientAuth { file, pem, required }) = auth else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for (place, root) in (1..).zip(read_chain(pem).map_err(|why| of_file(file, &why))?) {
        roots.add(root).map_err(|error| of_file(file, &malformed(place, &error)))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if *required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| error.to_string())
}

/// Chooses a certificate: by the name that is asked for, and by the ways in which the client can
/// see that it is ours.
#[derive(Debug)]
struct CertificateResolver(Arc<Certificates>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let schemes = hello.signature_schemes();
        let mut candidates = self.0.candidates(name.as_deref());
        let chosen = candidates.find(|pair| pair.certified.can_sign(schemes));
        let chosen = chosen.map(|pair| Arc::clone(&pair.certified.0));
        step::put_down(|taken| {
            taken.server_name = name;
            taken.has_no_certificate = chosen.is_none();
        });
        chosen
    }
}

/// Takes the secrets of the handshake of which a step is made, and shows them to nobody.
#[derive(Debug)]
pub(super) struct StepSecrets {
    /// The label of the sending secret in a key log.
    pub(super) tx: &'static str,
    /// The label of the receiving secret.
    pub(super) rx: &'static str,
}

impl KeyLog for StepSecrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        step::put_down(|taken| {
            if label == self.tx {
                taken.tx = Some(TrafficSecret::new(secret.into()));
            } else if label == self.rx {
                taken.rx = Some(TrafficSecret::new(secret.into()));
            }
        });
    }

    fn will_log(&self, label: &str) -> bool {
        [self.tx, self.rx].contains(&label)
    }
}

/// The time at which a step is made.
#[derive(Debug)]
pub(super) struct StepTime;

impl TimeProvider for StepTime {
    fn current_time(&self) -> Option<UnixTime> {
        step::now_unix_s().map(|now| UnixTime::since_unix_epoch(Duration::from_secs(now)))
    }
}

/// Tickets, at the time at which a step is made.
#[derive(Debug)]
struct Stateless(Arc<Tickets>);

impl ProducesTickets for Stateless {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(TICKET_PERIOD_S).expect("it is half a day")
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(step::now_unix_s()?, plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.0.open(step::now_unix_s()?, ticket)
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.0.certificates).finish()
    }
}

/// What secrets are called in key logs, by who sends with them.
pub(super) const SERVER_LABEL: &str = "SERVER_TRAFFIC_SECRET_0";
pub(super) const CLIENT_LABEL: &str = "CLIENT_TRAFFIC_SECRET_0";

/// The smallest session first.
pub(super) static AES_FIRST: [SupportedCipherSuite; 9] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

static CHACHA_FIRST: [SupportedCipherSuite; 9] = [
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
];
