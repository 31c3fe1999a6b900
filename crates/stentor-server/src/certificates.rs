//! What connections are secured with.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use stentor_tls::{Acceptor, Certificates, PairFiles, Settings, Tickets, Version};

/// What begins handshakes, by kind of listener. The workers ask for it with each that begins.
#[derive(Debug, Default)]
pub(crate) struct Acceptors {
    public: RwLock<Option<Acceptor>>,
    control: RwLock<Option<Acceptor>>,
}

impl Acceptors {
    /// Those of the public listeners.
    pub(crate) fn public(&self) -> Option<Acceptor> {
        self.public.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those of the control listeners.
    pub(crate) fn control(&self) -> Option<Acceptor> {
        self.control.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins handshakes with this from now on.
    pub(crate) fn set(&self, acceptor: &Acceptor) {
        for place in [&self.public, &self.control] {
            *place.write().unwrap_or_else(PoisonError::into_inner) = Some(acceptor.clone());
        }
    }

    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// What is wrong with which of the files.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Acceptor, String> {
        let files = PairFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        let certificates = Certificates::load(&[files], stentor_io::unix_s())
            .map_err(|errors| errors.first().map_or_else(String::new, |error| error.to_string()))?;
        acceptor(certificates)
    }
}

/// What shows these certificates.
pub(crate) fn acceptor(certificates: Certificates) -> Result<Acceptor, String> {
    let tickets = Tickets::random().map_err(|error| error.to_string())?;
    Acceptor::new(&Settings {
        certificates: Arc::new(certificates),
        tickets: Some(Arc::new(tickets)),
        oldest: Version::Tls12,
        alpn: vec![b"http/1.1".to_vec()],
        client_auth: None,
    })
    .map_err(|error| error.to_string())
}
