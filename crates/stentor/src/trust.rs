//! Whom the clients among the commands believe to be a server that is asked by TLS.
//!
//! As browsers do, those whose certificates lead to one of this system's; or to one in a file that
//! the caller names; or, for a server with a certificate that was made to try things out, anybody.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use stentor_tls::Trust;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::Failure;
use crate::args::usage;

/// Flags of every command that is a client.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct TrustFlags {
    /// Who signs the server's certificate (a file in PEM), instead of those this system trusts
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Take whoever answers for the server: its certificate is not checked
    #[arg(long)]
    insecure: bool,
}

impl TrustFlags {
    /// Whom to believe. Files are read here: call it where something is asked by TLS.
    ///
    /// # Errors
    /// There are no certificates to know a server by.
    pub(crate) fn trust(&self) -> Result<Trust, Failure> {
        Ok(match &self.ca {
            _ if self.insecure => Trust::Anybody,
            Some(file) => Trust::Roots(of_file(file).map_err(usage)?),
            None => Trust::Roots(of_this_system()?),
        })
    }
}

fn of_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let name = path.display();
    let pem = std::fs::read(path).map_err(|error| format!("{name}: {error}"))?;
    let mut roots = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|error| format!("{name}: {error}"))?
        {
            roots.push(CertificateDer::from(certificate.der().to_vec()));
        }
    }
    if roots.is_empty() {
        return Err(format!("{name}: there is no certificate in it"));
    }
    Ok(roots)
}

fn of_this_system() -> Result<Vec<CertificateDer<'static>>, Failure> {
    let roots = rustls_native_certs::load_native_certs().certs;
    if roots.is_empty() {
        let what = "this system has no certificates to know servers by: install ca-certificates, \
                    or say --ca FILE";
        return Err(Failure::Failed(what.to_owned()));
    }
    Ok(roots)
}

/// The same for the client library.
pub(crate) fn tls_config(trust: &Trust) -> TlsConfig {
    let config = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
    match trust {
        Trust::Anybody => config.disable_verification(true).build(),
        Trust::Roots(roots) => {
            let known: Vec<Certificate<'static>> =
                roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
            config.root_certs(RootCerts::new_with_certs(&known)).build()
        }
    }
}

/// What is wrong with an exchange, in plain words if it is a matter of TLS.
pub(crate) fn explain(error: &ureq::Error) -> Option<String> {
    let what = match error {
        ureq::Error::Io(error) => stentor_tls::explain(error),
        ureq::Error::Rustls(error) => stentor_tls::explain(error),
        _ => None,
    }?;
    let hint = if what.starts_with("its certificate") { HINT } else { "" };
    Some(format!("{what}{hint}"))
}

const HINT: &str = " (--ca FILE: whom to trust; --insecure: anybody)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_certificates_or_are_refused() {
        let dir = std::env::temp_dir().join(format!("stentor-trust-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("ca.pem");
        let trust = |content: Option<&str>| {
            let _ = std::fs::remove_file(&file);
            content.into_iter().for_each(|content| std::fs::write(&file, content).unwrap());
            let flags = TrustFlags { ca: Some(file.clone()), insecure: false };
            flags.trust().map_err(|failure| match failure {
                Failure::Usage(what) => what,
                other => panic!("{other:?}"),
            })
        };
        assert!(trust(None).unwrap_err().contains("ca.pem: No such file"));
        assert!(trust(Some("")).unwrap_err().contains("ca.pem: there is no certificate in it"));
        assert!(trust(Some("-----BEGIN CERTIFICATE-----\n!")).is_err());
        // Two, with text around them, as such files are.
        let one = "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n";
        match trust(Some(&format!("a\n{one}b\n{one}"))).unwrap() {
            Trust::Roots(roots) => {
                assert_eq!(roots, [[0, 1, 2].to_vec().into(), vec![0, 1, 2].into()])
            }
            Trust::Anybody => panic!("nobody said so"),
        }
        let anybody = TrustFlags { ca: None, insecure: true }.trust().unwrap();
        assert!(matches!(anybody, Trust::Anybody));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
