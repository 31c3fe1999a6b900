//! The other end: handshakes of a client, for whoever measures a server or asks one.
//!
//! A client that holds a hundred thousand connections has the same wish as a server: that rustls is
//! gone once the handshake is made, and a session of 112 bytes goes on. It goes the same way as on
//! the other side: records are given to rustls one at a time, secrets are taken step by step, and
//! compared in the end. What is different is who speaks first, who is believed, and what may come
//! behind the handshake ([`crate::session`] is told that it is a client's).
//!
//! Sessions are not resumed: what is measured is what a new reader costs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    RootCertStore, SignatureScheme, version,
};

use super::acceptor::{AES_FIRST, CLIENT_LABEL, SERVER_LABEL, StepSecrets, StepTime};
use super::incoming::{IncomingHandshake, Next};
use super::step::{self, StepResult};
use super::{
    Certified, Established, HandshakeError, HandshakeFault, Negotiated, Progress, begin_session,
};
use crate::alert::PeerAlert;
use crate::certificates::Identity;

/// Who is believed to be the server.
#[derive(Clone)]
pub enum Trust {
    /// Whoever answers: for a server whose certificate was made to try things out.
    Anybody,
    /// Who shows a certificate for the name that was asked for, which leads to one of these.
    Roots(Vec<CertificateDer<'static>>),
}

impl Trust {
    /// Who shows a certificate that leads to one of these, in DER.
    pub fn of<'a>(roots: impl IntoIterator<Item = &'a [u8]>) -> Trust {
        let owned = |der: &[u8]| CertificateDer::from(der.to_vec());
        Trust::Roots(roots.into_iter().map(owned).collect())
    }
}

/// Begins handshakes with one server. It is cheap to clone.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

/// A client's handshake that is under way.
pub struct ClientHandshake {
    connection: Option<Box<UnbufferedClientConnection>>,
    taken: StepResult,
    incoming: IncomingHandshake,
}

impl Connector {
    /// For the server of this name, or address, which is asked for HTTP/1.1, and shown a
    /// certificate if it asks for one and there is one.
    ///
    /// # Errors
    /// A sentence on what is wrong with the name, or with a root.
    pub fn new(
        server: &str,
        trust: &Trust,
        identity: Option<&Identity>,
    ) -> Result<Connector, String> {
        let name = ServerName::try_from(server.to_owned());
        let name = name.map_err(|_| format!("'{server}' is not a name that certificates have"))?;
        let provider = Arc::new(CryptoProvider {
            cipher_suites: AES_FIRST.to_vec(),
            // As other load generators do: all servers shall do the same work.
            kx_groups: vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
            ..default_provider()
        });
        let builder = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(StepTime))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(|error| error.to_string())?;
        let builder = match trust {
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Credulous(provider)))
            }
            Trust::Roots(roots) => {
                let mut store = RootCertStore::empty();
                let (known, _) = store.add_parsable_certificates(roots.iter().cloned());
                if known == 0 {
                    return Err("there is no certificate to know servers by".to_owned());
                }
                builder.with_root_certificates(store)
            }
        };
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certified: Certified(own) }) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))))
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(StepSecrets { tx: CLIENT_LABEL, rx: SERVER_LABEL });
        Ok(Connector { config: Arc::new(config), server: name })
    }

    /// Asks for no protocol (ALPN): what is spoken within is none that has a name there.
    #[must_use]
    pub fn without_alpn(mut self) -> Connector {
        Arc::make_mut(&mut self.config).alpn_protocols.clear();
        self
    }

    /// Begins a handshake, and appends what is to be sent to `out`.
    ///
    /// # Errors
    /// [`HandshakeError`], if the library has failed.
    pub fn begin(
        &self,
        now_unix_s: u64,
        out: &mut Vec<u8>,
    ) -> Result<ClientHandshake, HandshakeError> {
        let config = Arc::clone(&self.config);
        let connection = UnbufferedClientConnection::new(config, self.server.clone());
        let mut handshake = ClientHandshake {
            connection: Some(Box::new(connection.map_err(|error| refused(&error))?)),
            taken: StepResult::default(),
            incoming: IncomingHandshake::default(),
        };
        handshake.advance(now_unix_s, out)?;
        Ok(handshake)
    }
}

impl ClientHandshake {
    /// Takes what has arrived, and appends what is to be sent to `out`, also if it fails.
    ///
    /// # Errors
    /// [`HandshakeError`]: there will be no session, and nothing may be given to it any more.
    pub fn receive(
        &mut self,
        now_unix_s: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, HandshakeError> {
        let mut used = 0;
        loop {
            match self.incoming.next(bytes, &mut used) {
                Ok(Next::Part) => return Ok(Progress { used, established: None }),
                Ok(Next::Record) => {}
                Ok(Next::Wrong) => return Err(HandshakeError::new(HandshakeFault::NotTls, NO_TLS)),
                Err(error) if error.fault == HandshakeFault::NotTls => {
                    return Err(HandshakeError::new(HandshakeFault::NotTls, NO_TLS));
                }
                Err(error) => return Err(error),
            }
            let established = self.advance(now_unix_s, out)?;
            if established.is_some() {
                return Ok(Progress { used, established });
            }
        }
    }

    /// Has rustls look at what was presented to it.
    fn advance(
        &mut self,
        now_unix_s: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<Established>, HandshakeError> {
        let (outcome, taken) = step::run(now_unix_s, || self.run(out));
        self.taken.add(taken);
        match outcome {
            Ok(false) => Ok(None),
            Ok(true) => self.establish().map(Some),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Whether rustls is done.
    fn run(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        let connection = self.connection.as_mut().ok_or(Error::HandshakeNotComplete)?;
        self.incoming.run(connection.as_mut(), out)
    }

    /// Takes the session out of rustls, which is done.
    fn establish(&mut self) -> Result<Established, HandshakeError> {
        let internal = |what: &str| HandshakeError::new(HandshakeFault::Internal, what);
        let connection = self.connection.take().ok_or_else(|| internal("there is none"))?;
        if !self.incoming.bytes().is_empty() || connection.is_handshaking() {
            return Err(internal("something is left of the handshake"));
        }
        let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
        let version = connection.protocol_version();
        let (extracted, _) = connection.dangerous_into_kernel_connection()?;
        let (suite, session) = begin_session(version, &extracted, &self.taken)?;
        let negotiated =
            Negotiated { suite, alpn, server_name: None, client_subject: None, resumed: false };
        Ok(Established { session: session.of_client(), negotiated })
    }
}

/// Believes whatever it is shown, and does not look at it.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn refused(error: &Error) -> HandshakeError {
    let fault = HandshakeError::from(error.clone()).fault;
    HandshakeError::new(fault, &sentence(error))
}

/// What an error of rustls, wherever it comes from, says of a server: a part of a sentence whose
/// subject is the server. `None` if it is another error.
#[must_use]
pub fn explain(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(sentence(error));
    }
    // What is within is not what it names as its source.
    let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match within {
        Some(within) => explain(within),
        None => error.source().and_then(explain),
    }
}

fn sentence(error: &Error) -> String {
    let what = match error {
        Error::InvalidCertificate(error) => return format!("its certificate {}", fault_of(error)),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge,
        ) => NO_TLS,
        Error::AlertReceived(AlertDescription::CertificateRequired) => NO_CERTIFICATE_SHOWN,
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "it does not trust the certificate that it was shown"
        }
        Error::AlertReceived(alert) => {
            return format!("it refuses TLS: {}", PeerAlert(u8::from(*alert)));
        }
        Error::PeerIncompatible(_) => "it has no version or cipher suite of TLS in common with us",
        Error::NoApplicationProtocol => "it does not speak HTTP/1.1",
        Error::DecryptError => "it sent a record that is not what was sealed",
        other => return format!("its TLS handshake failed: {other}"),
    };
    what.to_owned()
}

/// What is wrong with a certificate.
pub(super) fn fault_of(error: &CertificateError) -> String {
    let days = |late: Duration| late.as_secs() / 86_400;
    match error {
        CertificateError::UnknownIssuer => "is signed by nobody that is trusted here".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            let late = Duration::from_secs(time.as_secs().saturating_sub(not_after.as_secs()));
            match days(late) {
                0 => "has expired today".to_owned(),
                1 => "has expired a day ago".to_owned(),
                days => format!("has expired {days} days ago"),
            }
        }
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: is the clock right?".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            match presented.is_empty() {
                true => format!("is for no name, and not for {expected}"),
                false => {
                    let names: Vec<String> = presented.iter().map(|name| bare(name)).collect();
                    format!("is for {} and not for {expected}", names.join(", "))
                }
            }
        }
        CertificateError::NotValidForName => "is for another name".to_owned(),
        CertificateError::BadSignature => {
            "is signed by another of the same name as one that is trusted here".to_owned()
        }
        CertificateError::Revoked => "is revoked".to_owned(),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "is one for signing others (CA:TRUE), and no server's".to_owned()
        }
        other => format!("is not good: {other}"),
    }
}

/// The name in `DnsName("a.example")` and `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> String {
    let within = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    within.unwrap_or(name).trim_matches('"').to_owned()
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Anybody => f.write_str("Anybody"),
            Trust::Roots(roots) => write!(f, "Roots({})", roots.len()),
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.server).finish()
    }
}

impl fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientHandshake")
            .field("records", &self.incoming.records())
            .finish_non_exhaustive()
    }
}

/// What a server says that asks for a certificate in vain.
pub const NO_CERTIFICATE_SHOWN: &str = "it lets nobody in who does not show it a certificate";

const NO_TLS: &str = "it does not speak TLS there";

#[cfg(test)]
mod tests;
