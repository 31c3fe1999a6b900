//! `stentor token`: what is made, and what is said of it.

use crate::support::{Child, Said, TempDir, run, stentor};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

fn check(config: &Path, token: &str) -> Said {
    let args = ["token", "check", "-c", config.to_str().unwrap()];
    let mut child = Child::spawn(stentor(args).stdin(Stdio::piped()));
    child.input().write_all(token.as_bytes()).unwrap();
    child.said()
}

#[test]
fn a_token_is_made_and_checked() {
    let dir = TempDir::new();
    let config = dir.path().join("stentor.toml");
    let line =
        "token new --name scores --publish /scores/** --read /scores/** --read /b --expires 9d";
    let made = run(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(made.code, Some(0), "{}", made.err);
    // The configuration on one side, the secret on the other, and neither on both.
    let secret = made.err.strip_suffix('\n').unwrap();
    assert!(secret.starts_with("stentor_") && secret.len() == 51, "{secret}");
    assert!(made.out.starts_with("\n[[token]]\nname = \"scores\"\nsha256 = \""), "{}", made.out);
    assert!(!made.out.contains(secret));
    fs::write(&config, &made.out).unwrap();
    assert_eq!(run(&["check", config.to_str().unwrap()]).code, Some(0));
    for token in [secret.to_owned(), format!("{secret}\n")] {
        let said = check(&config, &token);
        assert_eq!(said.code, Some(0), "{}", said.err);
        for line in ["good\n", "  holder   scores\n", "  publish  /scores/**\n"] {
            assert!(said.out.contains(line), "{}", said.out);
        }
        assert!(said.out.contains("  read     /b, /scores/**\n  expires  2"), "{}", said.out);
    }
    let said = run(&["token", "check", secret, "-c", config.to_str().unwrap()]);
    assert_eq!(said.code, Some(0));
    let said = check(&config, "stentor_somethingelse");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert_eq!(
        said.err,
        "error: refused: unknown_secret: no token that is configured has this secret\n"
    );
    let said = check(&config, &"x.".repeat(5_000));
    assert!(said.err.contains("too_large: it has 10000 bytes"), "{}", said.err);
    // Another time it is another one.
    assert_ne!(run(&["token", "new", "--read", "/a"]).err, made.err);
}

/// Made by PyJWT, and good until 2100.
#[test]
fn the_owner_is_told_why_a_token_is_refused() {
    let dir = TempDir::new();
    let config = dir.path().join("stentor.toml");
    let fixture = include_str!("../../../stentor-access/tests/fixtures/tokens.json");
    let fixture: serde_json::Value = serde_json::from_str(fixture).unwrap();
    let jwks = dir.path().join("jwks.json");
    fs::write(&jwks, fixture["jwks"].to_string()).unwrap();
    let configure = |jwt: &str| {
        fs::write(&config, format!("[jwt]\njwks_file = '{}'\n{jwt}", jwks.display())).unwrap();
    };
    let token = fixture["tokens"]["ES256"].as_str().unwrap();
    configure("audience = 'stentor'");
    let said = check(&config, token);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.err);
    assert!(said.out.contains("  holder   user-42\n"), "{}", said.out);
    assert!(said.out.contains("  expires  2100-01-01T00:00:30Z, in "), "{}", said.out);
    for (jwt, reason) in [
        ("audience = 'them'", "audience: its aud is 'other stentor'"),
        ("audience = 'stentor'\nissuer = 'them'", "issuer: its iss is 'https://issuer.example/'"),
        ("audience = 'stentor'\nalgorithms = 'EdDSA'", "unknown_key: it has kid 'p256', and no"),
    ] {
        configure(jwt);
        let said = check(&config, token);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
        assert!(said.err.starts_with(&format!("error: refused: {reason}")), "{}", said.err);
    }
    // What the keys are from can be wrong as well.
    fs::write(&jwks, "{}").unwrap();
    let said = check(&config, token);
    assert!(
        said.code == Some(2) && said.err.contains("jwks.json: it is not a JWKS"),
        "{}",
        said.err
    );
}

#[test]
fn what_cannot_be_made_is_refused() {
    for (args, reason) in [
        (&["token", "new"][..], "say by --publish and --read what the token is for"),
        (&["token", "new", "--read", "a"], "must begin with '/'"),
        (&["token", "new", "--read", "/a", "--expires", "soon"], "or a period such as \"90d\""),
        (&["token", "new", "--read", "/a", "--expires", "2020-01-01"], "is over"),
        (&["token", "new", "--read", "/a", "--name", "a\nb"], "is not a name"),
    ] {
        let said = run(args);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(said.err.contains(reason), "{}", said.err);
    }
}
