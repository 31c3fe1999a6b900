//! How a node shows itself to a broker: by a password, a token, or a key of its own (NKEY), mostly
//! with a JWT that says whose it is. Of a key the broker sees no more than a signature.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use serde_json::{Value, json};
use std::path::Path;
use stentor_config::{Cluster as Settings, read_small};
use zeroize::Zeroizing;

/// What a node is to a broker.
pub(super) enum Credentials {
    Nobody,
    User { name: String, password: Zeroizing<String> },
    Token(Zeroizing<String>),
    Key { jwt: Option<String>, key: Ed25519KeyPair },
}

impl Credentials {
    /// As the settings say; files are read.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn read(settings: &Settings) -> Result<Credentials, String> {
        Ok(match (&settings.user, &settings.password_file) {
            (Some(name), Some(file)) => {
                Credentials::User { name: name.clone(), password: line_of(file)? }
            }
            _ => match (&settings.token_file, &settings.creds_file) {
                (Some(file), _) => Credentials::Token(line_of(file)?),
                (None, Some(file)) => read_creds(&text_of(file)?)
                    .map_err(|reason| format!("{}: {reason}", file.display()))?,
                (None, None) => Credentials::Nobody,
            },
        })
    }

    /// Adds them to what a client says first. The broker gives `nonce` for keys to sign.
    pub(super) fn add_to(&self, options: &mut Value, nonce: &str) {
        match self {
            Credentials::Nobody => {}
            Credentials::User { name, password } => {
                options["user"] = json!(name);
                options["pass"] = json!(password.as_str());
            }
            Credentials::Token(token) => options["auth_token"] = json!(token.as_str()),
            Credentials::Key { jwt, key } => {
                match jwt {
                    Some(jwt) => options["jwt"] = json!(jwt),
                    None => options["nkey"] = json!(name_of(key)),
                }
                let signature = key.sign(nonce.as_bytes());
                options["sig"] = json!(URL_SAFE_NO_PAD.encode(signature));
            }
        }
    }
}

fn text_of(file: &Path) -> Result<Zeroizing<String>, String> {
    let bytes = read_small(file)?;
    let text = str::from_utf8(&bytes).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn line_of(file: &Path) -> Result<Zeroizing<String>, String> {
    let text = text_of(file)?;
    let line = text.trim();
    if line.is_empty() {
        return Err(format!("{}: there is nothing in it", file.display()));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// The file that `nsc` writes: a JWT and a seed, each between lines of its own. Or the seed alone.
fn read_creds(text: &str) -> Result<Credentials, String> {
    let jwt = between(text, "NATS USER JWT").map(str::to_owned);
    let seed = between(text, "USER NKEY SEED").or_else(|| {
        let mut words = text.lines().map(str::trim).filter(|line| line.starts_with("SU"));
        words.next().filter(|_| jwt.is_none())
    });
    let seed = seed.ok_or("there is no seed of a user in it, as .creds files of NATS have one")?;
    Ok(Credentials::Key { jwt, key: key_of(seed)? })
}

/// What stands between the lines `BEGIN` and `END` of this name.
fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("BEGIN {name}-----"))?;
    let (within, _) = rest.split_once("-----")?;
    Some(within.trim()).filter(|within| !within.is_empty())
}

/// A seed in text: prefixes that say what it is of, 32 bytes, and a checksum.
fn key_of(seed: &str) -> Result<Ed25519KeyPair, String> {
    let bytes = Zeroizing::new(BASE32_NOPAD.decode(seed.trim().as_bytes()).map_err(|_| NO_SEED)?);
    let (payload, sum) = bytes.split_last_chunk::<2>().ok_or(NO_SEED)?;
    let [first, second, key @ ..] = payload else { return Err(NO_SEED.to_owned()) };
    let kind = (first & 0x07) << 5 | second >> 3;
    if first & 0xf8 != SEED || checksum(payload) != *sum {
        return Err(NO_SEED.to_owned());
    }
    if kind != USER {
        return Err("its seed is not a user's".to_owned());
    }
    Ed25519KeyPair::from_seed_unchecked(key).map_err(|_| NO_SEED.to_owned())
}

/// The public key in text.
fn name_of(key: &Ed25519KeyPair) -> String {
    let mut bytes = vec![USER];
    bytes.extend_from_slice(key.public_key().as_ref());
    bytes.extend_from_slice(&checksum(&bytes));
    BASE32_NOPAD.encode(&bytes)
}

/// CRC-16/XMODEM, the lower byte first.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum = bytes.iter().fold(0_u16, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| match sum & 0x8000 {
            0 => sum << 1,
            _ => sum << 1 ^ 0x1021,
        })
    });
    sum.to_le_bytes()
}

/// `S` and `U`, the first letters of seeds and of the names of users.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

const NO_SEED: &str = "its seed is not one of NATS: it may be cut off";

#[cfg(test)]
mod tests {
    use super::*;

    /// From the documentation of NATS.
    const SEED_OF_USER: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const USER_OF_SEED: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    #[test]
    fn keys_of_nats() {
        let key = key_of(SEED_OF_USER).unwrap();
        assert_eq!(name_of(&key), USER_OF_SEED);
        let cut = &SEED_OF_USER[..SEED_OF_USER.len() - 1];
        let wrong = SEED_OF_USER.replace("SSL3", "SSL4");
        for bad in ["", "SU", cut, &wrong, USER_OF_SEED, "S\u{1f600}"] {
            assert_eq!(key_of(bad).err().as_deref(), Some(NO_SEED), "{bad}");
        }
        let mut of_account = BASE32_NOPAD.decode(SEED_OF_USER.as_bytes()).unwrap();
        of_account[..2].copy_from_slice(&[SEED, 0]);
        let end = of_account.len() - 2;
        let sum = checksum(&of_account[..end]);
        of_account[end..].copy_from_slice(&sum);
        let refused = key_of(&BASE32_NOPAD.encode(&of_account)).err();
        assert_eq!(refused.as_deref(), Some("its seed is not a user's"));
    }

    #[test]
    fn files_of_credentials() {
        let whole = format!(
            "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n*** SUX ***\n\
             -----BEGIN USER NKEY SEED-----\n{SEED_OF_USER}\n------END USER NKEY SEED------\n"
        );
        let mut options = json!({});
        read_creds(&whole).unwrap().add_to(&mut options, "nonce");
        assert_eq!((&options["jwt"], options.get("nkey")), (&json!("a.b.c"), None));
        let signature = URL_SAFE_NO_PAD.decode(options["sig"].as_str().unwrap()).unwrap();
        assert_eq!(signature, key_of(SEED_OF_USER).unwrap().sign(b"nonce").as_ref());
        let mut options = json!({});
        let seed_alone = format!("# of the node\n{SEED_OF_USER}\n");
        read_creds(&seed_alone).unwrap().add_to(&mut options, "nonce");
        assert_eq!((&options["nkey"], options.get("jwt")), (&json!(USER_OF_SEED), None));
        let without_seed = &whole[..whole.find("*** SUX").unwrap()];
        assert!(read_creds(without_seed).err().unwrap().contains("no seed of a user"));
        assert!(read_creds("").is_err());
    }
}
