//! Whom the clients among the commands believe to be a server that is asked by TLS, and what they
//! show it.
//!
//! As browsers do, they trust certificates that lead to one of this system's. Flags name a file of
//! others instead, or accept any certificate, for a server with one that was made to try things
//! out. A server that asks for a certificate is shown the one that the caller names. If the caller
//! has a token, each request carries it.
//!
//! No flag takes the token itself: all users of a host can read the arguments of a process.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use stentor_tls::{Identity, NO_CERTIFICATE_SHOWN, PemPair, Trust};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use zeroize::Zeroizing;

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
    /// Show this certificate to a server that asks for one (a file in PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its private key, if it is not in the same file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Send the token in this file. Without it, the token in the variable STENTOR_TOKEN is sent to
    /// servers on this machine, and to an https:// server in STENTOR_SERVER
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// How a server is asked by TLS: the same for our own handshakes and for those of the library.
#[derive(Debug)]
#[cfg_attr(not(feature = "bench"), expect(dead_code, reason = "only `bench` reads two of them"))]
pub(crate) struct Tls {
    pub(crate) trust: Arc<Trust>,
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) config: TlsConfig,
}

impl TrustFlags {
    /// How to ask. Files are read here: call it where something is asked by TLS.
    ///
    /// # Errors
    /// There are no certificates to know a server by, or none to show it.
    pub(crate) fn tls(&self) -> Result<Tls, Failure> {
        let trust = self.trust()?;
        let (identity, shown) = self.identity().map_err(usage)?.unzip();
        let config = tls_config(&trust, shown);
        Ok(Tls { trust: Arc::new(trust), identity: identity.map(Arc::new), config })
    }

    /// Whether a flag names a file, which is read even if no server is asked by TLS: it may be
    /// misspelt.
    pub(crate) fn names_files(&self) -> bool {
        self.ca.is_some() || self.cert.is_some()
    }

    /// What to show, read once for each of those who show it.
    fn identity(&self) -> Result<Option<(Identity, ClientCert)>, String> {
        let Some(file) = &self.cert else { return Ok(None) };
        let key_file = self.key.as_ref().unwrap_or(file);
        let read = |file: &Path| {
            let read = std::fs::read(file).map(Zeroizing::new);
            read.map_err(|error| format!("{}: {error}", file.display()))
        };
        let (text, key_text) = (read(file)?, read(key_file)?);
        let pem = PemPair { certificate: (file, &text), key: (key_file, &key_text) };
        let identity = Identity::read(&pem)?;
        let key = PrivateKey::from_pem(&key_text);
        let key = key.map_err(|error| format!("{}: {error}", key_file.display()))?;
        let chain: Vec<Certificate<'static>> = parse_pem(&text)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        Ok(Some((identity, ClientCert::new_with_certs(&chain, key))))
    }

    /// The `Authorization` of each request to a server, if there is a token for it. The file is
    /// read each time, since its token may be replaced while a command runs. The token of the
    /// environment goes only to a server that is the user's own, since the variable names none.
    ///
    /// # Errors
    /// The token cannot be read, or the file holds none. No error shows the token.
    pub(crate) fn authorization(&self, is_own: bool) -> Result<Option<Zeroizing<String>>, String> {
        let (place, text) = match &self.token_file {
            None if !is_own => return Ok(None),
            Some(file) => {
                let place = file.display().to_string();
                let text = std::fs::read_to_string(file).map_err(|e| format!("{place}: {e}"))?;
                (place, Zeroizing::new(text))
            }
            None => match env::var_os(TOKEN_VARIABLE).filter(|value| !value.is_empty()) {
                Some(value) => {
                    let text = value.into_string().unwrap_or_default();
                    (TOKEN_VARIABLE.to_owned(), Zeroizing::new(text))
                }
                None => return Ok(None),
            },
        };
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{place}: there is no token in it: it is one word of ASCII"));
        }
        Ok(Some(Zeroizing::new(format!("Bearer {token}"))))
    }

    /// Whether the environment has a token that [`Self::authorization`] does not use.
    pub(crate) fn withholds_token(&self, is_own: bool) -> bool {
        let has_token = env::var_os(TOKEN_VARIABLE).is_some_and(|value| !value.is_empty());
        has_token && self.token_file.is_none() && !is_own
    }

    /// Whom to believe.
    fn trust(&self) -> Result<Trust, Failure> {
        Ok(match &self.ca {
            _ if self.insecure => Trust::Anybody,
            Some(file) => Trust::Roots(of_file(file).map_err(usage)?),
            None => Trust::Roots(of_this_system()?),
        })
    }
}

/// Where a token is taken from if no file is named.
pub(crate) const TOKEN_VARIABLE: &str = "STENTOR_TOKEN";

/// Where it goes, in words.
pub(crate) const TOKEN_RULE: &str = "it is for servers on this machine, and for an https:// server \
                                     in STENTOR_SERVER; --token-file FILE sends one";

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
fn tls_config(trust: &Trust, shown: Option<ClientCert>) -> TlsConfig {
    let config = TlsConfig::builder()
        .client_cert(shown)
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

/// What is wrong with an exchange, and what helps.
pub(crate) struct Explained {
    pub(crate) what: String,
    pub(crate) hint: Option<&'static str>,
}

/// What is wrong with an exchange, in plain words if it is a matter of TLS.
pub(crate) fn explain(error: &ureq::Error) -> Option<Explained> {
    let what = match error {
        ureq::Error::Io(error) => stentor_tls::explain(error),
        ureq::Error::Rustls(error) => stentor_tls::explain(error),
        _ => None,
    }?;
    let hint = match &*what {
        NO_CERTIFICATE_SHOWN => Some("--cert FILE names the certificate to show"),
        what if what.starts_with("its certificate") => {
            Some("--ca FILE says whom to trust, --insecure trusts anybody")
        }
        _ => None,
    };
    Some(Explained { hint, what })
}

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
            let flags = TrustFlags { ca: Some(file.clone()), ..TrustFlags::default() };
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
        let anybody = TrustFlags { insecure: true, ..TrustFlags::default() }.trust().unwrap();
        assert!(matches!(anybody, Trust::Anybody));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_token_is_one_word_and_no_error_shows_it() {
        let dir = std::env::temp_dir().join(format!("stentor-token-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("token");
        let flags = TrustFlags { token_file: Some(file.clone()), ..TrustFlags::default() };
        let missing = flags.authorization(true).unwrap_err();
        assert!(missing.contains("token: No such file"), "{missing}");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            flags.authorization(false).map(|field| field.unwrap().to_string())
        };
        assert_eq!(read("stentor_a.b\r\n").as_deref(), Ok("Bearer stentor_a.b"));
        assert_eq!(read(" next\n").as_deref(), Ok("Bearer next"), "it was replaced");
        for bad in ["", "\n", "secret secret", "secret\nX: y", "secr\u{e9}t", "secret\0"] {
            let error = read(bad).unwrap_err();
            assert!(error.ends_with("there is no token in it: it is one word of ASCII"));
            assert!(!error.contains("secr"), "{error}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_shown_is_a_certificate_with_its_key() {
        let dir = std::env::temp_dir().join(format!("stentor-shown-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| dir.join(name));
        let pair = rcgen::generate_simple_self_signed(["ann".to_owned()]).unwrap();
        let (cert_pem, key_pem) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        let identity = |cert_text: &str, key_text: Option<&str>| {
            std::fs::write(&cert, cert_text).unwrap();
            key_text.into_iter().for_each(|text| std::fs::write(&key, text).unwrap());
            let key = key_text.map(|_| key.clone());
            let flags = TrustFlags { cert: Some(cert.clone()), key, ..TrustFlags::default() };
            flags.identity().map(|shown| shown.unwrap().1.certs().len())
        };
        assert_eq!(identity(&cert_pem, Some(&key_pem)), Ok(1));
        assert_eq!(identity(&format!("{key_pem}{cert_pem}{cert_pem}"), None), Ok(2));
        assert!(identity(&cert_pem, None).unwrap_err().contains("there is no private key in it"));
        assert!(
            identity("", Some(&key_pem)).unwrap_err().contains("there is no certificate in it")
        );
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(identity(&cert_pem, Some(&other)).unwrap_err().contains("it is not the key of"));
        std::fs::remove_dir_all(&dir).unwrap();
        let gone = TrustFlags { cert: Some(cert), ..TrustFlags::default() };
        assert!(gone.identity().unwrap_err().contains("cert.pem: No such file"));
    }
}
