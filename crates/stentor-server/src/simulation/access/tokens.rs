//! The tokens that clients bring: secrets of the configuration, tokens that issuers have signed by
//! several algorithms, and some that are not good, whatever the keys are.
//!
//! Each has a key of its own, so that one can be taken away and leave the others.

use std::sync::{Arc, OnceLock};
use stentor_access::mint::Signer;
use stentor_access::{Algorithm, Jwks, Keys, Patterns, Permissions, Settings, StaticToken, load};
use stentor_io::read_file;
use stentor_test::pattern::{covers, matches};

/// A token: how it is made, what it reads and publishes, from when until when it is good.
pub(super) struct Token {
    made: Made,
    read: &'static [&'static str],
    publish: &'static [&'static str],
    begins_s: u64,
    lasts_s: Option<u64>,
}

enum Made {
    /// What it is sent as, and the hash of that.
    Secret(&'static str, &'static str),
    /// By whom it is signed.
    Signed(Algorithm),
}

#[rustfmt::skip]
pub(super) const TOKENS: [Token; 9] = [
    Token {
        made: Made::Secret(
            "sim_wide",
            "ce3827f031b3f9f3065bb9530ff11cc0cb7de49c9ac37ccab4def97fdcc42165",
        ),
        read: &["/**"], publish: &[], begins_s: 0, lasts_s: None,
    },
    Token {
        made: Made::Secret(
            "sim_team",
            "06fd573aee7c62340a9d2d7a8b565ac680a879c681f7fb3ac25dcb682b1ac868",
        ),
        read: &["/team/*"], publish: &[], begins_s: 0, lasts_s: None,
    },
    Token {
        made: Made::Secret(
            "sim_user",
            "3b75b1b97848a8fea44c7cde6de0183af55b2e5a1fd6acdfe6b6386af4eba62a",
        ),
        read: &["/user/1", "/open/*"], publish: &[], begins_s: 0, lasts_s: Some(40),
    },
    Token {
        made: Made::Secret(
            "sim_short",
            "9def2465b97ca233444905dc28745fa6d4335776d11746339145a54b142eef99",
        ),
        read: &["/team/*"], publish: &["/team/*"], begins_s: 0, lasts_s: Some(3),
    },
    Token {
        made: Made::Secret(
            "sim_write",
            "b605846c70c207e824fd48446d09fb559ca1ffd7644b8dce308fd3acd02575fc",
        ),
        read: &["/locked/a"], publish: &["/open/*", "/locked/*"], begins_s: 0, lasts_s: None,
    },
    // The same permissions as one above, by another key: another scope.
    Token {
        made: Made::Signed(Algorithm::Hs256),
        read: &["/team/*"], publish: &[], begins_s: 0, lasts_s: Some(8),
    },
    Token {
        made: Made::Signed(Algorithm::EdDsa),
        read: &["/team/a", "/user/*"], publish: &["/user/*"], begins_s: 0, lasts_s: None,
    },
    Token {
        made: Made::Signed(Algorithm::Es256),
        read: &["/**"], publish: &["/**"], begins_s: 2, lasts_s: Some(20),
    },
    Token {
        made: Made::Signed(Algorithm::Hs256),
        read: &[], publish: &["/open/a"], begins_s: 0, lasts_s: None,
    },
];

/// Numbers from here on are those of tokens that are never good.
pub(super) const BAD_FROM: usize = TOKENS.len();

/// Where the clock jumps, a bad token was good so long ago that no jump leads there.
const EXPIRED_S: u64 = 1_000 * 86_400;

/// How many tokens there are to bring.
pub(super) const ALL: usize = BAD_FROM + 6;

impl Token {
    /// Whether it is good at this time, if its key is there.
    pub(super) fn is_good_at(&self, now_s: u64, start_s: u64, may_begin: bool) -> bool {
        let has_begun = !may_begin || now_s >= start_s + self.begins_s;
        has_begun && self.lasts_s.is_none_or(|s| now_s < start_s + s)
    }

    /// Whether it comes to be good, or ceases to be, by the time alone.
    pub(super) fn depends_on_time(&self) -> bool {
        self.begins_s > 0 || self.lasts_s.is_some()
    }

    pub(super) fn may_read(&self, topic: &str) -> bool {
        self.read.iter().any(|pattern| matches(pattern, topic))
    }

    pub(super) fn covers_reading(&self, filter: &str) -> bool {
        self.read.iter().any(|pattern| covers(pattern, filter))
    }

    pub(super) fn may_publish(&self, topic: &str) -> bool {
        self.publish.iter().any(|pattern| matches(pattern, topic))
    }

    fn claims(&self, start_s: u64, may_begin: bool) -> String {
        let list = |patterns: &[&str]| {
            patterns.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(",")
        };
        let exp = start_s + self.lasts_s.unwrap_or(1 << 28);
        let nbf = if may_begin { start_s + self.begins_s } else { 0 };
        let (publish, read) = (list(self.publish), list(self.read));
        format!(
            "{{\"aud\":\"sim\",\"exp\":{exp},\"nbf\":{nbf},\
             \"stentor\":{{\"publish\":[{publish}],\"read\":[{read}]}}}}"
        )
    }
}

pub(super) fn patterns(texts: &[&str]) -> Patterns {
    Patterns::parse(texts.iter().copied()).unwrap()
}

/// Those who sign: made once, for that takes time. What they sign is of the same length each time.
fn signers() -> &'static [Option<Signer>] {
    static SIGNERS: OnceLock<Vec<Option<Signer>>> = OnceLock::new();
    SIGNERS.get_or_init(|| {
        let signer = |token: &Token| match token.made {
            Made::Signed(algorithm) => Some(Signer::new(algorithm)),
            Made::Secret(..) => None,
        };
        TOKENS.iter().map(signer).collect()
    })
}

fn kid(token: usize) -> String {
    format!("k{token}")
}

/// What each is sent as, in the order of their numbers.
pub(super) fn texts(start_s: u64, may_begin: bool) -> Vec<String> {
    let good = TOKENS.iter().zip(signers()).enumerate().map(|(number, (token, signer))| {
        match (&token.made, signer) {
            (Made::Secret(secret, _), _) => (*secret).to_owned(),
            (_, Some(signer)) => {
                signer.token(Some(&kid(number)), &token.claims(start_s, may_begin))
            }
            _ => unreachable!("what is signed has a signer"),
        }
    });
    let ended_s = if may_begin { 20 } else { EXPIRED_S };
    // All of them would read everything.
    let claims = TOKENS[7].claims(start_s - 2, may_begin);
    let signer = signers()[7].as_ref().unwrap();
    let signed = |claims: &str| signer.token(Some(&kid(7)), claims);
    let parts = |token: &str| {
        let (signed, signature) = token.rsplit_once('.').unwrap();
        (signed.to_owned(), signature.to_owned())
    };
    let unsigned = signer.sign("{\"alg\":\"none\"}", &claims);
    let bad = [
        "sim_unknown".to_owned(),
        signed(&TOKENS[7].claims(start_s - ended_s, may_begin)),
        signed(&claims.replace("\"sim\"", "\"other\"")),
        format!("{}.{}", parts(&signed(&claims)).0, parts(&signed("{}")).1),
        format!("{}.", parts(&unsigned).0),
        signer.token(Some("k0"), &claims),
    ];
    let texts: Vec<String> = good.chain(bad).collect();
    assert_eq!(texts.len(), ALL);
    texts
}

/// What is configured when all but one are good.
pub(super) fn settings(without: Option<usize>, start_s: u64) -> Settings {
    let mut settings = Settings::default();
    settings.jwt.audience = vec!["sim".to_owned()];
    settings.jwt.leeway_s = 0;
    let kept = TOKENS.iter().enumerate().filter(|(token, _)| without != Some(*token));
    settings.tokens = kept.filter_map(|(_, token)| configured(token, start_s)).collect();
    settings
}

/// The keys of these settings, and those of whoever signs.
pub(super) fn keys(settings: &Settings, without: Option<usize>) -> Arc<Keys> {
    let kept = signers().iter().enumerate().filter(|(token, _)| without != Some(*token));
    let keys = kept.filter_map(|(token, signer)| Some(signer.as_ref()?.jwk(&kid(token))));
    let document = format!("{{\"keys\":[{}]}}", keys.collect::<Vec<_>>().join(","));
    let jwks = Jwks::parse(document.as_bytes()).unwrap();
    Arc::new(load(settings, &[Arc::new(jwks)], read_file).unwrap().keys)
}

fn configured(token: &Token, start_s: u64) -> Option<StaticToken> {
    let Made::Secret(name, sha256) = token.made else { return None };
    let byte = |at: usize| u8::from_str_radix(&sha256[2 * at..2 * at + 2], 16).unwrap();
    Some(StaticToken {
        name: name.to_owned(),
        sha256: std::array::from_fn(byte),
        permissions: Permissions { publish: patterns(token.publish), read: patterns(token.read) },
        expires_unix_s: token.lasts_s.map(|s| start_s + s),
    })
}

/// Those that are good are, when they are to be; the others are refused for what is wrong with
/// them, and not for anything else.
#[test]
fn tokens_are_good_and_bad_as_they_are_meant_to_be() {
    use stentor_access::Refused;
    let start_s = 1_800_000_000;
    let (settings, texts) = (settings(None, start_s), texts(start_s, true));
    let all = keys(&settings, None);
    for (number, token) in TOKENS.iter().enumerate() {
        for after_s in [0, 1, 2, 3, 8, 20, 40, 1 << 20] {
            let now_s = start_s + after_s;
            let grant = all.verify(&texts[number], now_s);
            assert_eq!(grant.is_ok(), token.is_good_at(now_s, start_s, true), "{number} {after_s}");
            if let Ok(grant) = grant {
                assert_eq!(grant.scope.read(), patterns(token.read).borrowed());
                let settings = self::settings(Some(number), start_s);
                let left = keys(&settings, Some(number));
                assert!(
                    left.verify(&texts[number], now_s).is_err() && !left.has(grant.scope.key())
                );
            }
        }
    }
    let refused = [
        Refused::UnknownSecret,
        Refused::Expired,
        Refused::Audience,
        Refused::Signature,
        Refused::Algorithm,
        Refused::UnknownKey,
    ];
    for (text, refused) in texts[BAD_FROM..].iter().zip(refused) {
        assert_eq!(all.verify(text, start_s), Err(refused), "{:?}", all.why(text, start_s));
    }
}
