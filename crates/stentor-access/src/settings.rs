//! What is configured of tokens, and how it becomes keys.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use stentor_wire::labels;
use stentor_wire::target::Server;

use crate::jwks::{Fetched, JWKS_BYTES_MAX, Jwks};
use crate::jwt::Issuers;
use crate::key::Material;
use crate::keys::{Keys, StaticTokens};
use crate::secret::StaticToken;

/// What is configured of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Tokens with a secret.
    pub tokens: Vec<StaticToken>,
    /// Tokens that others sign. They are refused as long as there is no key.
    pub jwt: Jwt,
}

/// What is asked of JSON Web Tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jwt {
    /// Files with a secret for HMAC each; a line feed at the end is none of it.
    pub secret_files: Vec<PathBuf>,
    /// Files with a public key in PEM each.
    pub public_key_files: Vec<PathBuf>,
    /// Public keys in PEM.
    pub public_keys: Vec<String>,
    /// Files with a JWKS document each (RFC 7517).
    pub jwks_files: Vec<PathBuf>,
    /// Where such documents are fetched from ([`JwksUrl`]).
    pub jwks_urls: Vec<JwksUrl>,
    /// A file with the certificates, in PEM, that the hosts of `jwks_urls` are known by. `None`:
    /// those that this system trusts.
    pub jwks_ca_file: Option<PathBuf>,
    /// How long a document that was fetched is used before it is fetched again, in seconds.
    pub jwks_refresh_s: u64,
    /// Whom tokens may be meant for: `aud` must be there and name one of these. Empty: `aud` must
    /// not be there, for what is meant for somebody else is not meant for us (RFC 7519, 4.1.3).
    pub audience: Vec<String>,
    /// Whom tokens may be from: `iss` must be there and be one of these. Empty: it does not matter.
    pub issuer: Vec<String>,
    /// By how much the clocks of issuers may differ from ours, in seconds.
    pub leeway_s: u64,
    /// What tokens may be signed with. Empty: whatever the keys are made for.
    pub algorithms: Vec<Algorithm>,
    /// Whether a token must say when it expires.
    pub require_exp: bool,
}

impl Default for Jwt {
    fn default() -> Jwt {
        Jwt {
            secret_files: Vec::new(),
            public_key_files: Vec::new(),
            public_keys: Vec::new(),
            jwks_files: Vec::new(),
            jwks_urls: Vec::new(),
            jwks_ca_file: None,
            jwks_refresh_s: 300,
            audience: Vec::new(),
            issuer: Vec::new(),
            leeway_s: 30,
            algorithms: Vec::new(),
            require_exp: true,
        }
    }
}

impl Jwt {
    /// The files with keys. When one changes, the keys have to be loaded again.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.secret_files.iter().chain(&self.public_key_files).chain(&self.jwks_files)
    }
}

/// Where a JWKS document is fetched from: `https://`, or `http://` on this host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JwksUrl(String);

impl JwksUrl {
    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JwksUrl {
    type Err = String;

    /// The error does not repeat the text, which may have a password.
    fn from_str(text: &str) -> Result<JwksUrl, String> {
        let server = Server::parse(text).filter(|server| !server.rest.contains('#'));
        match server.map(|server| (server.scheme, server.host)) {
            Some(("https", _) | ("http", "127.0.0.1" | "[::1]" | "localhost")) => {
                Ok(JwksUrl(text.to_owned()))
            }
            Some(("http", _)) => {
                Err("this could be read and changed on its way, and with it who may publish: \
                     write https://, or http:// with 127.0.0.1, [::1] or localhost"
                    .to_owned())
            }
            _ => Err("this is not the address of keys: write one such as \
                      https://issuer.example/.well-known/jwks.json"
                .to_owned()),
        }
    }
}

impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

labels! {
    /// What a JWT is signed with (RFC 7518, RFC 8037).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
    pub enum Algorithm {
        /// HMAC with SHA-256.
        Hs256 = "HS256",
        /// HMAC with SHA-384.
        Hs384 = "HS384",
        /// HMAC with SHA-512.
        Hs512 = "HS512",
        /// RSA, PKCS #1 v1.5, with SHA-256.
        Rs256 = "RS256",
        /// RSA, PSS, with SHA-256.
        Ps256 = "PS256",
        /// ECDSA on P-256 with SHA-256.
        Es256 = "ES256",
        /// ECDSA on P-384 with SHA-384.
        Es384 = "ES384",
        /// Ed25519; `Ed25519` is another name of it (RFC 9864).
        EdDsa = "EdDSA",
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Algorithm, String> {
        if text == "Ed25519" {
            return Ok(Algorithm::EdDsa);
        }
        let known = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        known.ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::name).join(", ");
            format!("'{}' is not one of {names}", text.escape_debug())
        })
    }
}

/// Keys, and what was read for them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The keys.
    pub keys: Keys,
    /// What was passed over, a sentence each, for the log.
    pub passed_over: Vec<String>,
}

/// Why there are no keys: a sentence that names the file or the setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError(pub(crate) String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// Reads a whole file that has at most so many bytes. This crate makes no system call itself.
pub type ReadFile = fn(&Path, usize) -> io::Result<Vec<u8>>;

/// What an editor has put around a secret, so that no token would match it.
fn fault_of_secret(secret: &[u8]) -> Option<&'static str> {
    let is_text = secret.iter().all(|byte| byte.is_ascii() && *byte != 0);
    match secret {
        [0xef, 0xbb, 0xbf, ..] => Some("it begins with a byte order mark: save it without"),
        [.., b' ' | b'\t' | b'\r' | b'\n'] if is_text => {
            Some("the secret ends with a space or an empty line: take it out")
        }
        _ => None,
    }
}

/// Makes keys of what is configured, reading the files that are named, and of the documents that
/// were fetched.
///
/// # Errors
///
/// If a file cannot be read or holds no key.
pub fn load(
    settings: &Settings,
    fetched: &[Arc<Jwks>],
    read_file: ReadFile,
) -> Result<Loaded, LoadError> {
    let own = OwnKeys::read(settings, read_file)?;
    Ok(Loaded { keys: own.with_documents(fetched), passed_over: own.passed_over })
}

/// The keys and tokens that are configured, without those that are fetched.
#[derive(Clone, Debug)]
pub struct OwnKeys {
    tokens: StaticTokens,
    jwt: Jwt,
    /// Keys without a name.
    nameless: Vec<Material>,
    documents: Vec<Arc<Jwks>>,
    /// Sentences about keys that are skipped, for the log.
    pub passed_over: Vec<String>,
}

impl OwnKeys {
    /// Reads the files that are named.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or holds no key, or if there are more keys without a name than are
    /// tried for a token.
    pub fn read(settings: &Settings, read_file: ReadFile) -> Result<OwnKeys, LoadError> {
        let jwt = &settings.jwt;
        let (mut passed_over, mut nameless) = (Vec::new(), Vec::new());
        let read = |path: &PathBuf| {
            let bytes = read_file(path, JWKS_BYTES_MAX).map_err(|error| error.to_string());
            named(path.display(), bytes)
        };
        for path in &jwt.secret_files {
            let mut secret = read(path)?;
            if secret.ends_with(b"\n") {
                secret.truncate(secret.len() - if secret.ends_with(b"\r\n") { 2 } else { 1 });
            }
            if let Some(fault) = fault_of_secret(&secret) {
                return named(path.display(), Err(fault.to_owned()));
            }
            nameless.push(named(path.display(), Material::secret(&secret))?);
        }
        for path in &jwt.public_key_files {
            let text = String::from_utf8_lossy(&read(path)?).into_owned();
            nameless.push(named(path.display(), Material::pem(&text))?);
        }
        for text in &jwt.public_keys {
            nameless.push(named("jwt.public_key", Material::pem(text))?);
        }
        let mut documents = Vec::new();
        for path in &jwt.jwks_files {
            let document = named(path.display(), Jwks::parse(&read(path)?))?;
            let skipped = document.passed_over();
            passed_over.extend(skipped.map(|key| format!("{}: {key}", path.display())));
            documents.push(Arc::new(document));
        }
        let tokens = StaticTokens::new(&settings.tokens).map_err(LoadError)?;
        let own = OwnKeys { tokens, jwt: jwt.clone(), nameless, documents, passed_over };
        own.issuers(&[]).check_nameless().map_err(LoadError)?;
        Ok(own)
    }

    /// These keys, and those of the documents that were fetched from the configured URLs.
    #[must_use]
    pub fn with(&self, fetched: &[Fetched]) -> Keys {
        let of_url =
            |url: &JwksUrl| fetched.iter().find(|fetched| fetched.url == *url)?.document.clone();
        let documents: Vec<_> = self.jwt.jwks_urls.iter().filter_map(of_url).collect();
        self.with_documents(&documents)
    }

    fn with_documents(&self, fetched: &[Arc<Jwks>]) -> Keys {
        let is_outstanding = fetched.len() < self.jwt.jwks_urls.len();
        Keys::new(&self.tokens, self.issuers(fetched), is_outstanding)
    }

    fn issuers(&self, fetched: &[Arc<Jwks>]) -> Issuers {
        let nameless = self.nameless.iter().map(|material| (material, None, None));
        let documents = self.documents.iter().chain(fetched);
        let keys = nameless.chain(documents.flat_map(|document| document.keys()));
        Issuers::new(&self.jwt, keys)
    }
}

fn named<T>(place: impl fmt::Display, result: Result<T, String>) -> Result<T, LoadError> {
    result.map_err(|error| LoadError(format!("{place}: {error}")))
}
