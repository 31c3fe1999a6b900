//! What verifying a token costs, and finding one that was verified before:
//! `cargo run --release -p stentor-access --features mint --example token_cost`.
//!
//! The time of one thread, of many short rounds the quickest: others may be at work. Read ratios.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stentor_access::mint::Signer;
use stentor_access::{Algorithm, Cache, Grant, Jwks, Keys, Permissions, Settings, StaticToken};
use stentor_access::{Patterns, Secret, load};
use stentor_io::read_file;

const NOW: u64 = 1_800_000_000;

fn main() {
    println!("{:<44} {:>10}", "", "ns");
    for algorithm in Algorithm::ALL {
        let signer = Signer::new(algorithm);
        let keys = keys(&signer);
        let token = token(&signer, 0);
        let cost = quickest(|| drop(black_box(keys.verify(black_box(&token), NOW))));
        show(&format!("{} token of {} bytes", algorithm.name(), token.len()), cost);
    }
    let signer = Signer::new(Algorithm::Es256);
    let keys = keys(&signer);
    let bad = token(&Signer::new(Algorithm::Es256), 0);
    show("ES256, signed by another", quickest(|| drop(black_box(keys.verify(&bad, NOW)))));
    let unknown = signer.token(Some("other"), "{}");
    show("of a key that is unknown", quickest(|| drop(black_box(keys.verify(&unknown, NOW)))));
    let secret = Secret::make().expect("the system has random numbers");
    let configured = configured(&secret);
    show("secret of the configuration", quickest(|| drop(configured.verify(secret.as_str(), NOW))));

    let signer = Signer::new(Algorithm::Hs256);
    let keys = self::keys(&signer);
    let cache = Cache::new(64 << 20).expect("the system has random numbers");
    let tokens: Vec<String> = (0..TOKENS).map(|sub| token(&signer, sub)).collect();
    for token in &tokens {
        cache.verify(&keys, token, NOW).expect("the token is good");
    }
    let hit = quickest(|| drop(black_box(cache.get(&keys, &tokens[0], NOW))));
    show("found in the cache, the same again", hit);
    let mut at = 0;
    let hit = quickest(|| {
        at = (at + 7_919) % TOKENS;
        drop(black_box(cache.get(&keys, &tokens[at], NOW)));
    });
    show(&format!("found in the cache, one of {TOKENS}"), hit);
    show("not found in the cache", quickest(|| drop(black_box(cache.get(&keys, &bad, NOW)))));
    println!("{:<44} {:>10}", "a token in the cache, bytes", cache.bytes() / TOKENS);

    let permissions = Permissions {
        publish: Patterns::default(),
        read: Patterns::parse(["/quotes/*", "/scores/**", "/users/42/inbox"]).expect("they are"),
    };
    let cost = quickest(|| {
        _ = black_box(permissions.read.borrowed().matches(black_box("/users/42/inbox")))
    });
    show("may a topic be read, by three patterns", cost);
    println!("{:<44} {:>10}", "a grant, bytes without its scope", size_of::<Grant>());
    let texts = permissions.publish.iter().chain(permissions.read.iter()).map(str::len);
    let bytes = size_of::<Permissions>() + texts.sum::<usize>();
    println!("{:<44} {:>10}", "these permissions, bytes", bytes);
}

fn show(what: &str, cost: Duration) {
    println!("{what:<44} {:>10.0}", cost.as_secs_f64() * 1e9);
}

fn token(signer: &Signer, sub: usize) -> String {
    let claims = format!(
        r#"{{"iss":"https://issuer.example/","sub":"user-{sub}","iat":1799999000,
        "exp":1800003600,"stentor":{{"publish":[],"read":["/scores/**","/users/{}/*"]}}}}"#,
        sub % 100
    );
    signer.token(Some("k"), &claims)
}

fn keys(signer: &Signer) -> Keys {
    let document = format!(r#"{{"keys":[{}]}}"#, signer.jwk("k"));
    let jwks = Jwks::parse(document.as_bytes()).expect("it is a document");
    load(&Settings::default(), &[jwks.into()], read_file).expect("there are no files").keys
}

fn configured(secret: &Secret) -> Keys {
    let token = StaticToken {
        name: "one".to_owned(),
        sha256: secret.sha256(),
        permissions: Permissions::default(),
        expires_unix_s: None,
    };
    let settings = Settings { tokens: vec![token], ..Settings::default() };
    load(&settings, &[], read_file).expect("there are no files").keys
}

/// The time of one call.
fn quickest(mut call: impl FnMut()) -> Duration {
    let begun = Instant::now();
    call();
    // So many that a round takes a fraction of a millisecond.
    let each = begun.elapsed().max(Duration::from_nanos(20));
    let calls = (300_000 / each.as_nanos()).clamp(1, 10_000) as u32;
    let round = |_| {
        let begun = Instant::now();
        (0..calls).for_each(|_| call());
        begun.elapsed() / calls
    };
    (0..ROUNDS).map(round).min().unwrap_or_default()
}

const TOKENS: usize = 15_000;
const ROUNDS: usize = 500;
