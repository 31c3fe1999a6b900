//! Tokens and the keys of those who sign them: `[[token]]` and `[jwt]`.
//!
//! What is needed to check a token may stand here, what is needed to make one may not: of a secret
//! there is the hash, of a key pair the public half, and of a key for HMAC the name of a file.

use std::path::PathBuf;

use stentor_access::{Algorithm, JwksUrl};

use super::Settings;
use crate::forms::{File, Kind, OneOrMany, OrNone, Text, text_kinds};
use crate::quantity::{DAY, HOUR, SECOND, Seconds};
use crate::setting::rows;

rows! {
    JWT in Settings(tokens jwt): "jwt" on [
        secret_file public_key_file public_key jwks_file jwks_url
    ] {
        /// Files with secrets for HMAC, each shared with an issuer of tokens.
        secret_files: Vec<PathBuf>, secret_file: OneOrMany<File>;
        /// Files with public keys of issuers, in PEM.
        public_key_files: Vec<PathBuf>, public_key_file: OneOrMany<File>;
        /// Public keys of issuers, in PEM.
        public_keys: Vec<String>, public_key: OneOrMany<PublicKey>;
        /// Files with sets of keys (JWKS).
        jwks_files: Vec<PathBuf>, jwks_file: OneOrMany<File>;
        /// Addresses of sets of keys (JWKS).
        jwks_urls: Vec<JwksUrl>, jwks_url: OneOrMany<JwksUrl>;
        /// The authority that signs the certificates of these addresses, in PEM, instead of those
        /// that this system trusts.
        jwks_ca_file: Option<PathBuf>, jwks_ca_file: Text<OrNone<File>>;
        /// How often the sets of keys are fetched.
        jwks_refresh_s: u64, jwks_refresh: Seconds<{ 10 * SECOND }, { 7 * DAY }>;
        /// Audiences (`aud`), one of which a token must name. Empty: any.
        audience: Vec<String>, audience: OneOrMany<Label>;
        /// Issuers (`iss`), one of which a token must name. Empty: any.
        issuer: Vec<String>, issuer: OneOrMany<Label>;
        /// By how much the clock of an issuer may differ.
        leeway_s: u64, leeway: Seconds<0, HOUR>;
        /// Algorithms that are accepted. Empty: all that the keys allow.
        algorithms: Vec<Algorithm>, algorithms: OneOrMany<Algorithm>;
        /// Whether a token must say when it expires.
        require_exp: bool, require_exp: bool;
    }
}

text_kinds! {
    /// A public key in PEM.
    PublicKey(String), public_key;
    /// A name that is compared or shown: visible, and not long.
    Label(String), label, String::clone;
}

impl Kind for PublicKey {
    type Value = String;

    /// People paste the private half.
    const IS_SECRET: bool = true;

    fn value(self) -> String {
        self.0
    }

    fn show(value: &String) -> String {
        value.clone()
    }
}

fn public_key(text: &str) -> Result<String, String> {
    if text.contains("PRIVATE KEY") {
        return Err("this is a private key, which only the issuer of tokens may have: write the \
                    public one"
            .to_owned());
    }
    if !text.trim_start().starts_with("-----BEGIN ") {
        return Err("a public key in PEM begins with -----BEGIN PUBLIC KEY-----; for the name of \
                    a file there is 'public_key_file'"
            .to_owned());
    }
    Ok(text.to_owned())
}

fn label(text: &str) -> Result<String, String> {
    let is_long = text.len() > NAME_BYTES_MAX;
    if text.is_empty() || is_long || text.chars().any(char::is_control) {
        return Err(format!(
            "'{}' is not a name: write 1 to {NAME_BYTES_MAX} bytes without control characters",
            text.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

/// Names are shown in errors and logs, and compared with claims.
const NAME_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use stentor_access::PATTERNS_MAX;

    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn settings(text: &str) -> Result<Settings, String> {
        let settings = Settings::from_toml(text, "f").map_err(|error| error.to_string())?;
        settings.validate().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    #[test]
    fn tokens_are_read_and_printed_as_they_were() {
        let text = format!(
            "[[token]]\nname = 'scores'\nsha256 = '{HASH}'\npublish = '/scores/**'\n\
             read = ['/scores/**', '/b']\nexpires = 2027-01-31\n\
             [[token]]\nname = 'b'\nsha256 = '{}'\nread = '/**'\n\
             expires = '2027-01-31T12:00:00+01:00'\n\
             [jwt]\npublic_key = \"\"\"-----BEGIN PUBLIC KEY-----\nAA==\n\"\"\"\n\
             secret_file = '/s'\njwks_url = 'https://a.example/k'\njwks_refresh = '1m'\n\
             audience = ['a', 'b']\nissuer = 'i'\nleeway = 5\nalgorithms = 'ES256'\n\
             require_exp = false\njwks_ca_file = '/ca'\njwks_file = '/j'\n\
             public_key_file = ['/p', '/q']\n",
            HASH.replace('b', "c").to_uppercase()
        );
        let settings = settings(&text).unwrap();
        let tokens = &settings.tokens.tokens;
        assert_eq!(tokens[0].expires_unix_s, Some(1_801_353_600));
        assert_eq!(tokens[1].expires_unix_s, Some(1_801_353_600 + 11 * 3_600));
        assert!(tokens[0].permissions.publish.borrowed().matches("/scores/a"));
        assert!(
            tokens[0].permissions.read.borrowed().matches("/b")
                && !tokens[0].permissions.publish.borrowed().matches("/b")
        );
        let jwt = &settings.tokens.jwt;
        assert_eq!(jwt.audience, ["a", "b"]);
        assert_eq!((jwt.leeway_s, jwt.jwks_refresh_s, jwt.require_exp), (5, 60, false));
        assert_eq!(jwt.algorithms, [Algorithm::Es256]);
        let printed = settings.to_toml();
        let again = Settings::from_toml(&printed, "printed").unwrap();
        assert_eq!(again.tokens, settings.tokens, "{printed}");
    }

    #[test]
    fn what_is_wrong_with_a_token_is_told_without_showing_it() {
        let token = |lines: &str| settings(&format!("[[token]]\nname = 'a'\n{lines}"));
        let good = format!("sha256 = '{HASH}'\nread = '/a'\n");
        assert!(token(&good).is_ok());
        for (lines, reason) in [
            (format!("sha256 = '{HASH}'"), "may do nothing"),
            (format!("{good}expires = '31.12.2027'"), "is not a date such as"),
            (format!("{good}expires = 2027-01-01T10:00:00"), "is not a date such as"),
            (format!("{good}expires = 10:00:00"), "is not a date such as"),
            (format!("{good}publish = '/a/**/b'"), "may stand at the end only"),
            (format!("{good}[[token]]\nname = 'a'\n{good}"), "two tokens are called 'a'"),
            (format!("{good}[[token]]\nname = 'b'\n{good}"), "is that of another token"),
            (format!("{good}scope = 'x'"), "unknown key 'scope'"),
        ] {
            let error = token(&lines).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let error = token("sha256 = 'stentor_abc'\nread = '/a'").unwrap_err();
        assert!(error.contains("is not the SHA-256 of a secret"), "{error}");
        let many: Vec<String> = (0..=PATTERNS_MAX).map(|i| format!("'/a/{i}'")).collect();
        let error = token(&format!("sha256 = '{HASH}'\nread = [{}]", many.join(", ")));
        assert!(error.unwrap_err().contains("more than 100 patterns"));
    }

    #[test]
    fn what_is_wrong_with_keys_is_told() {
        for (line, reason) in [
            ("jwks_url = 'http://a.example/'", "could be read and changed on its way"),
            ("jwks_url = 'ftp://a.example/'", "is not the address of keys"),
            ("jwks_url = 'https://me:pw@a.example/'", "is not the address of keys"),
            ("jwks_url = 'https:///k'", "is not the address of keys"),
            ("jwks_url = 'https://a:b/'", "is not the address of keys"),
            ("jwks_url = 'https://:80/'", "is not the address of keys"),
            ("jwks_url = 'https://[::1/'", "is not the address of keys"),
            ("jwks_url = 'https://a:99999/'", "is not the address of keys"),
            ("algorithms = 'none'", "'none' is not one of HS256, "),
            ("algorithms = ['ES256', 'RS1']", "'RS1' is not one of"),
            ("public_key = '-----BEGIN PRIVATE KEY-----'", "this is a private key"),
            ("public_key = '/etc/key.pem'", "public_key_file"),
            ("secret_file = ''", "is not the path of a file"),
            ("audience = ''", "is not a name"),
            ("leeway = '2h'", "out of range"),
            ("jwks_refresh = '1s'", "out of range"),
        ] {
            let error = settings(&format!("[jwt]\n{line}")).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for good in ["http://127.0.0.1:80/k", "http://[::1]/", "http://localhost", "https://a:1"] {
            assert!(settings(&format!("[jwt]\njwks_url = '{good}'")).is_ok(), "{good}");
        }
    }
}
