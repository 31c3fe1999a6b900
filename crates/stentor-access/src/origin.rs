//! The origin of a signed token: its algorithm, its issuer and its audience, which settings ask for
//! beside its key and its time. A reader keeps neither its token nor the claims. With the origin,
//! other settings check its grant as they would check the token.
//!
//! Names are hashes of 128 bits. Readers with equal grants share them ([`Scope`](crate::Scope)).

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// An origin, as it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenOrigin<'a> {
    /// The name of the algorithm.
    pub(crate) algorithm: &'a str,
    /// The hash of `iss`; empty if the token has none.
    pub(crate) issuer: &'a str,
    /// Hashes of the names in `aud`, with commas between them; empty if the token has none.
    pub(crate) audience: &'a str,
}

/// The text by which an origin is kept.
pub(crate) fn text_of(algorithm: &str, iss: Option<&str>, aud: Option<&[String]>) -> String {
    let issuer = iss.map(hash_of_name).unwrap_or_default();
    let audience = match aud {
        None => String::new(),
        Some([]) => NO_NAME.to_owned(),
        Some(names) => names.iter().map(|name| hash_of_name(name)).collect::<Vec<_>>().join(","),
    };
    format!("{algorithm} {issuer} {audience}")
}

/// The hash of a name, as [`TokenOrigin`] has it.
pub(crate) fn hash_of_name(name: &str) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, name.as_bytes()).as_ref()[..HASH_BYTES])
}

impl<'a> TokenOrigin<'a> {
    /// Reads the text of [`text_of`]. What another process has sent may be no such text: no
    /// settings allow that origin.
    pub(crate) fn parse(text: &'a str) -> TokenOrigin<'a> {
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().unwrap_or_default();
        TokenOrigin { algorithm: next(), issuer: next(), audience: next() }
    }
}

const HASH_BYTES: usize = 16;

/// An audience without names. No hash is as short.
const NO_NAME: &str = "-";
