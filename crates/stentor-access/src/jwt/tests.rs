//! Tokens of every kind, good and bad, and what they are answered.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use stentor_io::read_file;

use crate::mint::Signer;
use crate::{Algorithm, Jwks, Jwt, Keys, Refused, Settings, TOKEN_BYTES_MAX, claims_of, load};

const NOW: u64 = 1_800_000_000;

const CLAIMS: &str = r#"{"exp":1800000060,"sub":"reader","stentor":{"read":["/a/*"]}}"#;

/// Keys of a document, under conditions.
fn keys(jwks: &str, change: impl FnOnce(&mut Jwt)) -> Keys {
    let mut settings = Settings::default();
    change(&mut settings.jwt);
    let jwks = Jwks::parse(jwks.as_bytes()).unwrap();
    load(&settings, &[jwks.into()], read_file).unwrap().keys
}

fn document(signers: &[(&Signer, &str)]) -> String {
    let keys: Vec<String> = signers.iter().map(|(signer, kid)| signer.jwk(kid)).collect();
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}

fn one_key(signer: &Signer) -> Keys {
    keys(&document(&[(signer, "k")]), |_| {})
}

fn refused(keys: &Keys, token: &str) -> Refused {
    let refused = keys.verify(token, NOW).expect_err("a bad token was good");
    // What is told the owner is of the same kind, is one line, and never holds the token.
    let why = keys.why(token, NOW).unwrap();
    assert!(why.starts_with(refused.name()) && !why.contains(char::is_control), "{why}");
    assert!(token.len() < 8 || !why.contains(token), "{why}");
    refused
}

#[test]
fn every_algorithm_verifies_what_it_signed_and_nothing_else() {
    for algorithm in Algorithm::ALL {
        let (signer, other) = (Signer::new(algorithm), Signer::new(algorithm));
        let keys = one_key(&signer);
        for kid in [Some("k"), None] {
            let token = signer.token(kid, CLAIMS);
            let grant = keys.verify(&token, NOW).unwrap();
            assert_eq!(keys.holder(&token, NOW).as_deref(), Some("reader"));
            assert_eq!(grant.expires_unix_s, Some(1_800_000_060));
            assert!(grant.scope.may_read("/a/b") && !grant.scope.may_read("/b"));
            assert!(grant.scope.publish().is_empty() && keys.has(grant.scope.key()));
            assert_eq!(keys.why(&token, NOW), None);
            // Signed by somebody else; signed for other claims; not signed at all.
            assert_eq!(refused(&keys, &other.token(kid, CLAIMS)), Refused::Signature);
            let (signed, signature) = token.rsplit_once('.').unwrap();
            let claims = URL_SAFE_NO_PAD.encode(CLAIMS.replace("/a/*", "/**"));
            let (header, _) = signed.split_once('.').unwrap();
            let changed = format!("{header}.{claims}.{signature}");
            assert_eq!(refused(&keys, &changed), Refused::Signature);
            assert_eq!(refused(&keys, &format!("{signed}.")), Refused::Signature);
            assert_eq!(refused(&keys, &format!("{signed}.AAAA")), Refused::Signature);
        }
    }
}

#[test]
fn no_bit_of_a_token_can_be_changed() {
    for algorithm in [Algorithm::Hs256, Algorithm::EdDsa] {
        let signer = Signer::new(algorithm);
        let keys = one_key(&signer);
        let token = signer.token(None, CLAIMS);
        assert!(keys.verify(&token, NOW).is_ok());
        for at in 0..token.len() {
            for bit in 0..7 {
                let mut bytes = token.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let changed = String::from_utf8(bytes).unwrap();
                assert!(keys.verify(&changed, NOW).is_err(), "{changed}");
            }
            assert!(keys.verify(&token[..at], NOW).is_err());
        }
        for more in ["=", ".", "A", " ", "\n"] {
            assert!(keys.verify(&format!("{token}{more}"), NOW).is_err());
        }
    }
}

#[test]
fn tokens_of_another_library_are_read() {
    let fixture = fixture();
    let document = fixture["jwks"].to_string();
    let conditions = |jwt: &mut Jwt| {
        jwt.audience = vec!["stentor".to_owned()];
        jwt.issuer = vec!["https://issuer.example/".to_owned()];
    };
    let keys = keys(&document, conditions);
    for list in ["tokens", "without kid"] {
        for (algorithm, token) in fixture[list].as_object().unwrap() {
            let token = token.as_str().unwrap();
            let grant = keys.verify(token, NOW);
            let grant =
                grant.unwrap_or_else(|e| panic!("{algorithm}: {e} {:?}", keys.why(token, NOW)));
            assert_eq!(keys.holder(token, NOW).as_deref(), Some("user-42"));
            let claims = claims_of(token.as_bytes()).unwrap();
            let holder = keys.holder_by(grant.scope.key(), Some(claims));
            assert_eq!(holder.as_deref(), Some("user-42"));
            assert!(keys.verify(str::from_utf8(claims).unwrap(), NOW).is_err());
            assert!(grant.scope.may_publish("/scores/lal-bos"));
            assert!(grant.scope.may_read("/members/7"));
            assert_eq!(grant.expires_unix_s, Some(4_102_444_800));
        }
    }
    assert_eq!(refused(&keys, fixture["unsigned"].as_str().unwrap()), Refused::Algorithm);
    // The same keys from PEM.
    let token = |algorithm: &str| fixture["tokens"][algorithm].as_str().unwrap();
    for (pem, algorithms) in [
        ("rsa", &["RS256", "PS256"][..]),
        ("rsa pkcs1", &["RS256", "PS256"]),
        ("p256", &["ES256"]),
        ("p384", &["ES384"]),
        ("ed", &["EdDSA"]),
    ] {
        let mut settings = Settings::default();
        conditions(&mut settings.jwt);
        settings.jwt.public_keys.push(fixture["pem"][pem].as_str().unwrap().to_owned());
        let keys = load(&settings, &[], read_file).unwrap().keys;
        for (algorithm, token) in fixture["tokens"].as_object().unwrap() {
            let token = token.as_str().unwrap();
            let good = algorithms.contains(&algorithm.as_str());
            assert_eq!(keys.verify(token, NOW).is_ok(), good, "{pem}: {algorithm}");
        }
        assert!(keys.verify(token(algorithms[0]), NOW).is_ok());
    }
    for (pem, reason) in [
        ("weak rsa", "it is not a key of RSA with 2048"),
        ("p521", "it is not a key of RSA, P-256, P-384 or Ed25519"),
    ] {
        let mut settings = Settings::default();
        settings.jwt.public_keys.push(fixture["pem"][pem].as_str().unwrap().to_owned());
        let error = load(&settings, &[], read_file).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn what_is_no_public_key_is_told_from_one() {
    let pem = |label: &str, body: &str| {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    };
    for (text, reason) in [
        (pem("PRIVATE KEY", "AA=="), "it is a private key"),
        (pem("EC PRIVATE KEY", "AA=="), "it is a private key"),
        (pem("CERTIFICATE", "AA=="), "openssl x509 -pubkey"),
        (pem("PUBLIC KEY", "AA=="), "it is not a key of RSA"),
        (pem("PUBLIC KEY", "A?=="), "it is not in base64"),
        (pem("PUBLIC KEY", "AA==").repeat(2), "it is not in base64"),
        (pem("PUBLIC KEY", "AA==").replace("END PUBLIC", "END"), "it does not end with one"),
        ("{}".to_owned(), "it does not begin with"),
        (String::new(), "it does not begin with"),
    ] {
        let jwt = Jwt { public_key_files: vec![scratch("k", text.as_bytes())], ..Jwt::default() };
        let error =
            load(&Settings { jwt, ..Settings::default() }, &[], read_file).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

/// A key is bound to its algorithms: whatever a token says, it is not verified by others.
#[test]
fn no_algorithm_is_taken_for_another() {
    let fixture = fixture();
    let pem = fixture["pem"]["rsa"].as_str().unwrap();
    let mut settings = Settings::default();
    settings.jwt.public_keys.push(pem.to_owned());
    let keys = load(&settings, &[], read_file).unwrap().keys;
    // The public key as the secret of HMAC, in each form that somebody could have it.
    let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(der).unwrap();
    for secret in [pem.as_bytes(), pem.trim().as_bytes(), &der] {
        for algorithm in [Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512] {
            let token = Signer::with_secret(algorithm, secret).token(None, CLAIMS);
            assert_eq!(refused(&keys, &token), Refused::Algorithm);
        }
    }
    // And nobody configures it as one by mistake.
    let path = scratch("public.pem", pem.as_bytes());
    let settings =
        Settings { jwt: Jwt { secret_files: vec![path], ..Jwt::default() }, ..Settings::default() };
    let error = load(&settings, &[], read_file).unwrap_err().to_string();
    assert!(error.contains("it is a key in PEM, not a secret"), "{error}");
    // One key of each kind: a token is signed by one and says that it is another.
    let signers = Algorithm::ALL.map(Signer::new);
    for (signer, algorithm) in signers.iter().zip(Algorithm::ALL) {
        let keys = one_key(signer);
        for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
            let header = format!(r#"{{"alg":"{}","kid":"k"}}"#, other.name());
            let refused = refused(&keys, &signer.sign(&header, CLAIMS));
            assert!(matches!(refused, Refused::Algorithm | Refused::Signature), "{refused:?}");
        }
    }
    // A JWK that says what it is for does nothing else.
    let signer = Signer::new(Algorithm::Ps256);
    let only = signer.jwk("k").replace("\"use\":\"sig\"", "\"alg\":\"RS256\"");
    let keys = self::keys(&format!(r#"{{"keys":[{only}]}}"#), |_| {});
    assert_eq!(refused(&keys, &signer.token(Some("k"), CLAIMS)), Refused::Algorithm);
    // And what the settings do not allow is not done by any.
    let signer = Signer::new(Algorithm::Hs512);
    let document = document(&[(&signer, "k"), (&Signer::new(Algorithm::Es256), "e")]);
    let keys = self::keys(&document, |jwt| jwt.algorithms = vec![Algorithm::Es256]);
    assert_eq!(refused(&keys, &signer.token(Some("k"), CLAIMS)), Refused::UnknownKey);
}

#[test]
fn headers_that_ask_for_something_else_are_refused() {
    let signer = Signer::new(Algorithm::Hs256);
    let keys = one_key(&signer);
    for (header, expected) in [
        (r#"{"alg":"none"}"#, Refused::Algorithm),
        (r#"{"alg":"None"}"#, Refused::Algorithm),
        (r#"{"alg":"hs256"}"#, Refused::Algorithm),
        (r#"{"alg":"HS1"}"#, Refused::Algorithm),
        (r#"{"alg":""}"#, Refused::Algorithm),
        (r#"{"typ":"JWT"}"#, Refused::Algorithm),
        (r#"{"alg":"HS256","kid":"other"}"#, Refused::UnknownKey),
        (r#"{"alg":"HS256","kid":"../../k"}"#, Refused::UnknownKey),
        (r#"{"alg":"HS256","kid":"a\nb"}"#, Refused::UnknownKey),
        (r#"{"alg":"HS256","crit":["exp"]}"#, Refused::Critical),
        (r#"{"alg":"HS256","crit":[]}"#, Refused::Critical),
        (r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, Refused::Critical),
        (r#"{"alg":"HS256","alg":"HS256"}"#, Refused::Malformed),
        (r#"{"alg":"HS256","x":1,"x":1}"#, Refused::Malformed),
        (r#"{"alg":["HS256"]}"#, Refused::Malformed),
        (r#"{"alg":"HS256","kid":1}"#, Refused::Malformed),
        (r#"{"alg":"HS256","typ":"logout+jwt"}"#, Refused::Malformed),
        (r#"{"alg":"HS256","typ":"dpop+jwt"}"#, Refused::Malformed),
        ("[]", Refused::Malformed),
        ("", Refused::Malformed),
    ] {
        assert_eq!(refused(&keys, &signer.sign(header, CLAIMS)), expected, "{header}");
    }
    let deep = format!(r#"{{"alg":"HS256","x":{}1{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    assert_eq!(refused(&keys, &signer.sign(&deep, CLAIMS)), Refused::Malformed);
    for header in [
        r#"{"alg":"HS256"}"#,
        r#"{"alg":"HS256","kid":"k","typ":"at+jwt"}"#,
        r#"{"alg":"HS256","typ":"application/AT+JWT"}"#,
        // Keys that a token brings are not looked at.
        r#"{"alg":"HS256","jku":"https://evil.example/","jwk":{"kty":"oct","k":"AA"}}"#,
    ] {
        assert!(keys.verify(&signer.sign(header, CLAIMS), NOW).is_ok(), "{header}");
    }
    // A key that a token brings does not sign it either.
    let evil = Signer::new(Algorithm::Es256);
    let header = format!(r#"{{"alg":"ES256","jwk":{}}}"#, evil.jwk("k"));
    assert_eq!(refused(&keys, &evil.sign(&header, CLAIMS)), Refused::Algorithm);
}

#[test]
fn claims_are_judged() {
    let signer = Signer::new(Algorithm::Hs256);
    let conditions = |jwt: &mut Jwt| {
        jwt.audience = vec!["us".to_owned(), "we".to_owned()];
        jwt.issuer = vec!["good".to_owned()];
    };
    let keys = keys(&document(&[(&signer, "k")]), conditions);
    let check = |claims: &str| {
        let token = signer.token(None, claims);
        match keys.verify(&token, NOW) {
            Ok(_) => None,
            Err(_) => Some(refused(&keys, &token)),
        }
    };
    let base = r#""iss":"good","aud":"we""#;
    for (claims, expected) in [
        (format!(r#"{{{base},"exp":1800000001}}"#), None),
        (format!(r#"{{{base},"exp":1800000001,"nbf":1800000030}}"#), None),
        (r#"{"iss":"good","aud":["x","us"],"exp":1800000001}"#.to_owned(), None),
        // With the leeway of 30 seconds.
        (format!(r#"{{{base},"exp":1799999971}}"#), None),
        (format!(r#"{{{base},"exp":1799999970}}"#), Some(Refused::Expired)),
        (format!(r#"{{{base},"exp":0}}"#), Some(Refused::Expired)),
        (format!(r#"{{{base},"exp":1800000001,"nbf":1800000031}}"#), Some(Refused::NotYetValid)),
        (format!("{{{base}}}"), Some(Refused::Endless)),
        (format!(r#"{{{base},"exp":"1900000000"}}"#), Some(Refused::Claims)),
        (format!(r#"{{{base},"exp":1800000001,"nbf":"0"}}"#), Some(Refused::Claims)),
        (format!(r#"{{{base},"exp":1800000001,"exp":1900000000}}"#), Some(Refused::Claims)),
        (format!(r#"{{{base},"aud":"x","exp":1800000001}}"#), Some(Refused::Claims)),
        (format!(r#"{{{base},"exp":1800000001000}}"#), Some(Refused::Claims)),
        (r#"{"iss":"bad","aud":"we","exp":1800000001}"#.to_owned(), Some(Refused::Issuer)),
        (r#"{"iss":"Good","aud":"we","exp":1800000001}"#.to_owned(), Some(Refused::Issuer)),
        (r#"{"aud":"we","exp":1800000001}"#.to_owned(), Some(Refused::Issuer)),
        (r#"{"iss":["good"],"aud":"we","exp":1800000001}"#.to_owned(), Some(Refused::Claims)),
        (r#"{"iss":"good","aud":"them","exp":1800000001}"#.to_owned(), Some(Refused::Audience)),
        (r#"{"iss":"good","aud":[],"exp":1800000001}"#.to_owned(), Some(Refused::Audience)),
        (r#"{"iss":"good","exp":1800000001}"#.to_owned(), Some(Refused::Audience)),
        (format!(r#"{{{base},"exp":1800000001,"stentor":[]}}"#), Some(Refused::Claims)),
        (
            format!(r#"{{{base},"exp":1800000001,"stentor":{{"read":["/-/x"]}}}}"#),
            Some(Refused::Claims),
        ),
        (
            format!(r#"{{{base},"exp":1800000001,"x":{}}}"#, "[".repeat(3_000)),
            Some(Refused::Claims),
        ),
        ("not json".to_owned(), Some(Refused::Claims)),
    ] {
        assert_eq!(check(&claims), expected, "{claims}");
    }
    // A token without the claim is good, and allows nothing.
    let grant = keys.verify(&signer.token(None, &format!(r#"{{{base},"exp":1800000001}}"#)), NOW);
    let scope = &grant.unwrap().scope;
    assert!(scope.read().is_empty() && scope.publish().is_empty());
}

#[test]
fn what_is_not_asked_is_not_demanded() {
    let signer = Signer::new(Algorithm::Hs256);
    let keys = keys(&document(&[(&signer, "k")]), |jwt| jwt.require_exp = false);
    let grant = keys.verify(&signer.token(None, "{}"), NOW).unwrap();
    assert_eq!(grant.expires_unix_s, None);
    assert_eq!(keys.holder(&signer.token(None, "{}"), NOW).as_deref(), Some("-"));
    assert!(keys.verify(&signer.token(None, r#"{"iss":"any"}"#), NOW).is_ok());
    // What is meant for somebody else is not meant for one who has no name.
    assert_eq!(refused(&keys, &signer.token(None, r#"{"aud":"x"}"#)), Refused::Audience);
    assert_eq!(refused(&keys, &signer.token(None, r#"{"exp":1}"#)), Refused::Expired);
}

#[test]
fn what_cannot_be_a_token_is_not_looked_at() {
    let signer = Signer::new(Algorithm::Hs256);
    let keys = one_key(&signer);
    let padded = |bytes: usize| {
        let claims = format!(r#"{{"exp":1800000001,"pad":"{}"}}"#, "x".repeat(bytes));
        signer.token(None, &claims)
    };
    assert!(padded(5_980).len() <= TOKEN_BYTES_MAX && keys.verify(&padded(5_980), NOW).is_ok());
    assert!(padded(6_100).len() > TOKEN_BYTES_MAX);
    assert_eq!(refused(&keys, &padded(6_100)), Refused::TooLarge);
    for token in ["", " ", "a b", "a.b", "a.b.c.d", "..", "a.b.c", "é", "\0", "e30.e30.e30", "."] {
        let refused = refused(&keys, token);
        assert!(
            matches!(refused, Refused::Malformed | Refused::Algorithm),
            "{token:?} {refused:?}"
        );
    }
    assert_eq!(refused(&keys, "stentor_abc"), Refused::UnknownSecret);
    assert_eq!(refused(&Keys::none(), &signer.token(None, CLAIMS)), Refused::UnknownKey);
}

#[test]
fn keys_are_found_by_name_and_few_are_tried() {
    let signers: Vec<Signer> = (0..6).map(|_| Signer::new(Algorithm::Es256)).collect();
    let names = ["a", "b", "c", "d", "e", "f"];
    let pairs: Vec<(&Signer, &str)> = signers.iter().zip(names).collect();
    let four = keys(&document(&pairs[..4]), |_| {});
    let five = keys(&document(&pairs[..5]), |_| {});
    for (signer, name) in &pairs[..4] {
        assert!(four.verify(&signer.token(Some(name), CLAIMS), NOW).is_ok());
        assert!(four.verify(&signer.token(None, CLAIMS), NOW).is_ok());
        assert!(five.verify(&signer.token(Some(name), CLAIMS), NOW).is_ok());
        // Any of five could have made it: it has to say which.
        assert_eq!(refused(&five, &signer.token(None, CLAIMS)), Refused::UnknownKey);
    }
    assert_eq!(refused(&four, &signers[0].token(Some("b"), CLAIMS)), Refused::Signature);
    assert_eq!(refused(&four, &signers[4].token(Some("e"), CLAIMS)), Refused::UnknownKey);
    // Each that is tried counts as what it takes, and nothing that a token says makes it cheaper.
    let cost = |token: &str| four.cost(token) / 100_000;
    assert_eq!(cost(&signers[0].token(Some("a"), CLAIMS)), 1);
    assert_eq!(cost(&signers[0].token(None, CLAIMS)), 4);
    let header = |json: &str| format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode(json));
    assert_eq!(cost(&header(r#"{"alg":"ES256","kid":"a","x":"HS"}"#)), 1);
    assert_eq!(cost(&header(r#"{"alg":"HS256","kid":"a"}"#)), 0);
    // A key of a file has no name: whatever a token calls it, it may be that.
    let mut settings = Settings::default();
    settings.jwt.public_keys.push(signers[5].pem());
    let jwks = Jwks::parse(document(&pairs[..2]).as_bytes()).unwrap();
    let both = load(&settings, &[jwks.into()], read_file).unwrap().keys;
    for token in [signers[5].token(Some("file"), CLAIMS), signers[5].token(None, CLAIMS)] {
        assert!(both.verify(&token, NOW).is_ok());
    }
    assert!(both.verify(&signers[1].token(Some("b"), CLAIMS), NOW).is_ok());
}

/// Tokens that name their key are verified, however many keys have no name.
#[test]
fn nameless_keys_lock_nobody_out() {
    let signers: Vec<Signer> = (0..6).map(|_| Signer::new(Algorithm::Es256)).collect();
    let load_with = |nameless: usize, named: usize| {
        let public_keys = signers[..nameless].iter().map(Signer::pem).collect();
        let jwt = Jwt { public_keys, ..Jwt::default() };
        let pairs: Vec<(&Signer, &str)> = signers.iter().skip(5).map(|it| (it, "k")).collect();
        let jwks = Arc::new(Jwks::parse(document(&pairs).as_bytes()).unwrap());
        let fetched: Vec<Arc<Jwks>> = (0..named).map(|_| Arc::clone(&jwks)).collect();
        load(&Settings { jwt, ..Settings::default() }, &fetched, read_file)
    };
    let keys = load_with(4, 1).unwrap().keys;
    for kid in [Some("k"), None, Some("other")] {
        let good = [signers[0].token(kid, CLAIMS), signers[3].token(kid, CLAIMS)];
        assert_eq!(good.map(|token| keys.verify(&token, NOW).is_ok()), [true; 2], "{kid:?}");
    }
    assert!(keys.verify(&signers[5].token(Some("k"), CLAIMS), NOW).is_ok());
    let error = load_with(5, 0).unwrap_err().to_string();
    assert!(error.starts_with("jwt: 5 keys without a name do ES256, and at most 4"), "{error}");
}

/// Documents of issuers may have any number of keys without a name.
#[test]
fn many_nameless_published_keys_leave_named_ones() {
    let signers: Vec<Signer> = (0..6).map(|_| Signer::new(Algorithm::Es256)).collect();
    let jwk = |signer: &Signer| signer.jwk("x").replace(r#""kid":"x","#, "");
    let nameless: Vec<String> = signers[..5].iter().map(jwk).collect();
    let named = signers[5].jwk("k");
    let keys = keys(&format!(r#"{{"keys":[{},{named}]}}"#, nameless.join(",")), |_| {});
    assert!(keys.verify(&signers[5].token(Some("k"), CLAIMS), NOW).is_ok());
    assert_eq!(refused(&keys, &signers[0].token(Some("k"), CLAIMS)), Refused::Signature);
    assert_eq!(refused(&keys, &signers[0].token(None, CLAIMS)), Refused::UnknownKey);
}

#[test]
fn grants_are_checked_by_other_keys() {
    let (signer, other) = (Signer::new(Algorithm::EdDsa), Signer::new(Algorithm::EdDsa));
    let one = document(&[(&signer, "k")]);
    let grant = keys(&one, |_| {}).verify(&signer.token(None, CLAIMS), NOW).unwrap();
    let check = |jwks: &str| keys(jwks, |_| {}).check(&grant.scope, grant.expires_unix_s, NOW);
    assert_eq!(check(&document(&[(&other, "new"), (&signer, "k")])), Ok(()));
    assert_eq!(check(&document(&[(&other, "k")])), Err(Refused::UnknownKey));
    assert_eq!(check(&document(&[(&signer, "x")])), Err(Refused::UnknownKey));
}

/// Each grant is checked as its token would be verified.
#[test]
fn grants_are_checked_by_other_settings() {
    let signer = Signer::new(Algorithm::Rs256);
    let jwks = document(&[(&signer, "k")]);
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let lists = [names(&[]), names(&["a"]), names(&["b", "a"]), names(&["c"])];
    let algorithms = [vec![], vec![Algorithm::Rs256], vec![Algorithm::Ps256]];
    let mut all = Vec::new();
    for (audience, issuer) in lists.iter().flat_map(|list| lists.iter().map(move |it| (list, it))) {
        for (algorithms, require_exp) in algorithms.iter().zip([true, false, true]) {
            for leeway_s in [0, 60] {
                all.push(keys(&jwks, |jwt| {
                    (jwt.audience, jwt.issuer) = (audience.clone(), issuer.clone());
                    (jwt.algorithms, jwt.require_exp) = (algorithms.clone(), require_exp);
                    jwt.leeway_s = leeway_s;
                }));
            }
        }
    }
    let claims = [
        r#"{"exp":1800000060}"#,
        r#"{"exp":1799999970,"iss":"a"}"#,
        r#"{"aud":"a","iss":"a"}"#,
        r#"{"exp":1800000060,"aud":["x","b"],"iss":"c"}"#,
        r#"{"exp":1800000060,"aud":[],"iss":""}"#,
    ];
    let mut grants = 0;
    for token in claims.map(|claims| signer.token(None, claims)) {
        let outcomes: Vec<_> = all.iter().map(|keys| keys.verify(&token, NOW)).collect();
        for grant in outcomes.iter().flatten() {
            grants += 1;
            for (keys, outcome) in all.iter().zip(&outcomes) {
                let check = keys.check(&grant.scope, grant.expires_unix_s, NOW);
                let is_same = check.is_ok() == outcome.is_ok();
                assert!(is_same, "{token}: {check:?} {outcome:?}");
            }
        }
    }
    assert!(grants > 10, "{grants}");
}

#[test]
fn secrets_are_read_from_files_and_must_be_long() {
    let load = |path: PathBuf| {
        let jwt = Jwt { secret_files: vec![path], ..Jwt::default() };
        load(&Settings { jwt, ..Settings::default() }, &[], read_file)
    };
    let secret = [b'x'; 40];
    for end in ["", "\n", "\r\n"] {
        let path = scratch(&format!("secret-{}", end.len()), &[&secret, end.as_bytes()].concat());
        let loaded = load(path).unwrap();
        let token = |algorithm| Signer::with_secret(algorithm, &secret).token(None, CLAIMS);
        assert!(loaded.keys.verify(&token(Algorithm::Hs256), NOW).is_ok());
        // Too short for the longer hashes.
        assert_eq!(refused(&loaded.keys, &token(Algorithm::Hs384)), Refused::Algorithm);
    }
    let error = load(scratch("short", b"password\n")).unwrap_err().to_string();
    assert!(error.contains("short: the secret has 8 bytes"), "{error}");
    let error = load(PathBuf::from("/nowhere/secret")).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/secret: No such file"), "{error}");
    let error = load(PathBuf::from("/dev/zero")).unwrap_err().to_string();
    assert!(error.contains("it is a device"), "{error}");
}

fn fixture() -> Value {
    serde_json::from_str(include_str!("../../tests/fixtures/tokens.json")).unwrap()
}

/// A file that holds this.
fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("stentor-access-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}
