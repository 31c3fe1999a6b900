//! The bodies of the fuzz targets: properties that must hold for any bytes.
//!
//! As in `stentor_wire::fuzz`, each takes whatever the fuzzer makes up and panics when a property
//! is broken; ordinary tests run them over what they damage.

use std::sync::{Arc, OnceLock};

use stentor_hub::{Filter, Pattern};

use crate::mint::Signer;
use crate::{Algorithm, Coverage, Jwks, Keys, Patterns, Refused, Settings, load};

const NOW: u64 = 1_800_000_000;

struct World {
    signer: Signer,
    keys: Keys,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let signer = Signer::with_secret(Algorithm::Hs256, &[7; 64]);
        let other = Signer::new(Algorithm::EdDsa);
        let document = format!(r#"{{"keys":[{},{}]}}"#, signer.jwk("k"), other.jwk("e"));
        let jwks = Jwks::parse(document.as_bytes()).expect("it is a document");
        let mut settings = Settings::default();
        settings.jwt.require_exp = false;
        let loaded = load(&settings, &[Arc::new(jwks)], |_, _| unreachable!("no file is named"))
            .expect("there are no files");
        World { signer, keys: loaded.keys }
    })
}

/// Any text is refused as a token, and for a reason that is one line; nobody can make one without
/// the key. Signed, its two parts are header and claims: what is granted then is bounded, and what
/// was refused names no place in the text. It is a JWKS document as well, or none.
pub fn fuzz_token(data: &[u8]) {
    let World { signer, keys } = world();
    let text = String::from_utf8_lossy(data);
    assert!(keys.verify(&text, NOW).is_err());
    let why = keys.why(&text, NOW).expect("it was refused");
    assert!(!why.contains(char::is_control) && why.len() < 1_024, "{why}");
    if let Ok(jwks) = Jwks::parse(data) {
        assert!(jwks.count() > 0);
        let _ =
            load(&Settings::default(), &[Arc::new(jwks)], |_, _| unreachable!("no file is named"));
    }
    let (header, claims) = text.split_once('\n').unwrap_or(("", &text));
    let usual = r#"{"alg":"HS256","kid":"k"}"#;
    for header in [header, usual] {
        let token = signer.sign(header, claims);
        match keys.verify(&token, NOW) {
            Ok(grant) => {
                assert_eq!(keys.check(&grant.scope, grant.expires_unix_s, NOW), Ok(()));
                let holder = keys.holder(&token, NOW).expect("it is good");
                assert!(holder.chars().count() <= 64 && !holder.contains(char::is_control));
                let (publish, read) = (grant.scope.publish(), grant.scope.read());
                assert!(publish.as_str().len() + read.as_str().len() <= claims.len());
                // Whoever else reads it sees an object as well, or refuses it: what is passed over
                // here may be a number that is too large for anything.
                let value = serde_json::from_str::<serde_json::Value>(claims);
                assert!(value.is_err() || value.is_ok_and(|value| value.is_object()));
            }
            Err(refused) => {
                // What was signed by the key that it names is refused for what it says.
                let is_of_claims = !matches!(
                    refused,
                    Refused::Signature | Refused::UnknownSecret | Refused::Malformed
                );
                assert!(is_of_claims || header != usual, "{refused:?}");
            }
        }
    }
}

/// Lines are a filter, a topic, and patterns. How much of the filter they cover is what single
/// topics say; a list is the same after it was written and read.
pub fn fuzz_claims(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let filter = match lines.next().map(Filter::parse) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => return check_length(&error.detail),
        None => return,
    };
    let topic = lines.next().unwrap_or_default();
    let is_pattern =
        |line: &&str| Pattern::parse(line).map_err(|e| check_length(&e.detail)).is_ok();
    let patterns: Vec<&str> = lines.filter(is_pattern).collect();
    let Ok(list) = Patterns::parse(patterns.iter().copied()) else { return };
    assert_eq!(Patterns::parse(list.iter()).as_ref(), Ok(&list));
    let meant = list.borrowed();
    assert!(meant.as_str().len() <= text.len());
    let any = |topic: &str| {
        patterns.iter().any(|text| Pattern::parse(text).is_ok_and(|p| p.matches(topic)))
    };
    assert_eq!(meant.matches(topic), any(topic));
    let is_topic = stentor_wire::target::TopicName::parse(topic).is_ok();
    match meant.coverage(&filter) {
        Coverage::Whole => assert!(!is_topic || !filter.matches(topic) || meant.matches(topic)),
        Coverage::Nothing => assert!(!is_topic || !filter.matches(topic) || !meant.matches(topic)),
        // There is a pattern that has some of it, and none that has all of it.
        Coverage::Part => {
            let one =
                |text: &str| Patterns::parse([text]).map(|one| one.borrowed().coverage(&filter));
            assert!(patterns.iter().all(|text| one(text) != Ok(Coverage::Whole)));
            assert!(patterns.iter().any(|text| one(text) == Ok(Coverage::Part)));
        }
    }
    // What is written is covered by itself, and by all.
    let all = Patterns::of(&[Pattern::any()]);
    for text in list.iter() {
        if let Ok(filter) = Filter::parse(text) {
            assert_eq!(meant.coverage(&filter), Coverage::Whole);
            assert_eq!(all.borrowed().coverage(&filter), Coverage::Whole);
        }
    }
}

/// An error repeats a bounded part of the text, without control characters.
fn check_length(error: &str) {
    assert!(error.len() <= 2_000 && !error.contains(char::is_control), "{error:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_breaks_nothing() {
        let texts = [
            "{\"alg\":\"HS256\",\"kid\":\"k\"}\n{\"exp\":1900000000,\"nbf\":1.5,\"sub\":\"a\",\
             \"stentor\":{\"publish\":[\"/a/**\"],\"read\":[\"/b\",\"/*\"]}}",
            "{\"alg\":\"none\",\"crit\":[]}\n{\"exp\":\"1\",\"aud\":[\"x\"]}",
            "{\"keys\":[{\"kty\":\"oct\",\
             \"k\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}]}",
            "/a/**\n/a/b\n/a/*\n/*/**\n/a/b/c",
            "/*/x\n/b/x\n/a/*\n/*/x",
            "/a\n/a\n/a\n/**",
        ];
        for text in texts {
            for at in 0..text.len() {
                for byte in [b'*', b'/', b'"', b'{', b'}', b'[', b'a', b'\n', 0, 0xff] {
                    let mut bytes = text.as_bytes().to_vec();
                    bytes[at] = byte;
                    fuzz_token(&bytes);
                    fuzz_claims(&bytes);
                }
                fuzz_token(&text.as_bytes()[..at]);
                fuzz_claims(&text.as_bytes()[..at]);
            }
        }
    }
}
