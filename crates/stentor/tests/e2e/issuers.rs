//! Issuers of tokens that are up, down, or not reached yet.

use crate::access::bearer;
use crate::support::{EventStream, Server, eventually};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use stentor_access::Algorithm;
use stentor_access::mint::Signer;

/// An issuer on this host, and a token of it that allows to read everything.
struct Issuer {
    is_up: Arc<AtomicBool>,
    url: String,
    token: String,
    signer: Signer,
}

impl Issuer {
    fn start(is_up: bool) -> Issuer {
        let signer = Signer::new(Algorithm::Es256);
        let body = format!(r#"{{"keys":[{}]}}"#, signer.jwk("k"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let is_up = Arc::new(AtomicBool::new(is_up));
        let answers = Arc::clone(&is_up);
        thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let mut head = [0; 1024];
                if answers.load(Ordering::Relaxed) && socket.read(&mut head).is_ok() {
                    let length = body.len();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n");
                    let _ = write!(socket, "{head}Connection: close\r\n\r\n{body}");
                }
            }
        });
        let claims = r#"{"exp":4102444800,"stentor":{"read":["/**"]}}"#;
        Issuer { is_up, url, token: bearer(&signer.token(Some("k"), claims)), signer }
    }

    fn config(&self, more: &str) -> String {
        format!(
            "[jwt]\njwks_url = '{}'\n{more}\n[[topics]]\nmatch = '/**'\nread = 'token'\n",
            self.url
        )
    }
}

/// Whatever the issuer does, nobody who was let in by its keys notices a reload or an upgrade.
#[test]
fn keys_of_issuers_survive_reloads_and_upgrades() {
    let issuer = Issuer::start(true);
    let mut server = Server::configured(&issuer.config(""));
    server.publish("/a", "0");
    let get = |server: &Server| server.reader().ask("GET", "/a", &issuer.token, b"");
    eventually("the keys are fetched", || (get(&server).status == 200).then_some(()));
    let fields = format!("{}Accept: text/event-stream\r\n", issuer.token);
    let mut stream = EventStream::open(server.public, "/a", &fields);
    assert_eq!(stream.event().data, "0");
    let config = server.dir.path().join("stentor.toml");
    for (round, is_up) in [false, true].into_iter().enumerate() {
        issuer.is_up.store(is_up, Ordering::Relaxed);
        for (step, more) in ["jwks_refresh = '1m'", "jwks_refresh = '2m'"].iter().enumerate() {
            fs::write(&config, issuer.config(more)).unwrap();
            let reloads = server.child.err().matches("INFO reloaded").count();
            server.child.signal("HUP");
            eventually("it is reloaded", || {
                (server.child.err().matches("INFO reloaded").count() > reloads).then_some(())
            });
            get(&server).expect(200);
            server.child.upgrade();
            get(&server).expect(200);
            server.control.get("/-/readyz").expect(200);
            let value = format!("{round} {step}");
            server.publish("/a", &value);
            assert_eq!(stream.event().data, value);
        }
    }
}

/// A stream outlives every change of settings by which its token is valid, and ends by the first
/// one by which it is not.
#[test]
fn streams_are_checked_by_new_settings() {
    const BASE: &str = "audience = ['b', 'x']\nissuer = 'i'";
    let issuer = Issuer::start(true);
    let claims = r#"{"exp":4102444800,"iss":"i","aud":["a","b"],"stentor":{"read":["/**"]}}"#;
    let token = bearer(&issuer.signer.token(Some("k"), claims));
    let mut server = Server::configured(&issuer.config(BASE));
    server.publish("/a", "0");
    let get = |server: &Server| server.reader().ask("GET", "/a", &token, b"");
    eventually("the keys are fetched", || (get(&server).status == 200).then_some(()));
    let fields = format!("{token}Accept: text/event-stream\r\n");
    let config = server.dir.path().join("stentor.toml");
    let reload = |server: &mut Server, more: &str| {
        fs::write(&config, issuer.config(more)).unwrap();
        let reloads = server.child.err().matches("INFO reloaded").count();
        server.child.signal("HUP");
        eventually("it is reloaded", || {
            (server.child.err().matches("INFO reloaded").count() > reloads).then_some(())
        });
    };
    let mut stream = EventStream::open(server.public, "/a", &fields);
    assert_eq!(stream.event().data, "0");
    for (number, valid) in [
        "audience = 'a'",
        "audience = 'b'\nissuer = ['h', 'i']",
        "audience = 'a'\nleeway = '0s'",
        "audience = 'a'\nrequire_exp = false",
        "audience = 'a'\nalgorithms = ['RS256', 'ES256']",
        BASE,
    ]
    .iter()
    .enumerate()
    {
        reload(&mut server, valid);
        get(&server).expect(200);
        server.child.upgrade();
        get(&server).expect(200);
        let value = (1 + number).to_string();
        server.publish("/a", &value);
        assert_eq!(stream.event().data, value, "{valid}");
    }
    for invalid in [
        "audience = 'c'",
        "",
        "audience = 'a'\nissuer = 'h'",
        "audience = 'a'\nalgorithms = ['RS256']",
    ] {
        reload(&mut server, BASE);
        eventually("workers have the settings", || (get(&server).status == 200).then_some(()));
        let mut stream = EventStream::open(server.public, "/a", &fields);
        assert_eq!(stream.event().data, "6");
        reload(&mut server, invalid);
        assert_eq!(stream.event().data, "{\"end\":{\"reason\":\"token_revoked\"}}", "{invalid}");
        get(&server).refused(401);
    }
}

/// A client is told to come again, and not that its token is invalid.
#[test]
fn unknown_keys_are_retried_until_first_fetch() {
    let issuer = Issuer::start(false);
    let server = Server::configured(&issuer.config(""));
    server.publish("/a", "0");
    let ready = server.control.get("/-/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("Keys of tokens are not known yet: http://127.0.0.1:"));
    let get = || server.reader().ask("GET", "/a", &issuer.token, b"");
    let answer = get();
    assert_eq!(answer.status, 503);
    assert!(answer.field("retry-after").is_some() && answer.field("www-authenticate").is_none());
    // A browser's EventSource never comes again after another status.
    let fields = format!("{}Accept: text/event-stream\r\n", issuer.token);
    let mut stream = EventStream::open(server.public, "/a", &fields);
    assert!(stream.try_event().is_err() && stream.retry_ms.is_some());
    server.reader().ask("GET", "/a", &bearer("stentor_unknown"), b"").refused(401);
    issuer.is_up.store(true, Ordering::Relaxed);
    eventually("the keys are fetched", || (get().status == 200).then_some(()));
    server.control.get("/-/readyz").expect(200);
}
