//! Brokers that let in only whom they know, and that are reached by TLS.

use super::{Broker, has};
use crate::support::{Server, Signer, TempDir, eventually, run};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::thread;

/// Has a node be refused, and says what its page tells.
fn refused(toml: &str) -> String {
    let node = Server::configured(toml);
    eventually("it says why", || {
        let text = node.control.get("/-/readyz").text().to_owned();
        text.contains("s://").then_some(text)
    })
}

fn file(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_broker_that_asks_for_a_password_or_a_token() {
    let dir = TempDir::new();
    let (good, bad) = (file(&dir, "good", "pa:ss word\n"), file(&dir, "bad", "other"));
    let users = "authorization { users = [{ user: node, password: 'pa:ss word' }] }";
    let Some(broker) = Broker::configured(users) else { return };
    let as_user = |file: &str| format!("user = 'node'\npassword_file = '{file}'");
    broker.node(&as_user(&good)).publish("/a", "by a user");
    for settings in [as_user(&bad), String::new()] {
        let why = refused(&broker.toml(&settings));
        assert!(why.contains("Authorization Violation"), "{why}");
    }
    let broker = Broker::configured("authorization { token: 'pa:ss word' }").unwrap();
    broker.node(&format!("token_file = '{good}'")).publish("/a", "by a token");
    let why = refused(&broker.toml(&format!("token_file = '{bad}'")));
    assert!(why.contains("Authorization Violation"), "{why}");
}

#[test]
fn a_broker_that_knows_keys() {
    // Of the documentation of NATS.
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let user = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let dir = TempDir::new();
    let seed = file(&dir, "seed", seed);
    let creds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/cluster/node.creds");
    let keys = format!("authorization {{ users = [{{ nkey: {user} }}] }}");
    let Some(of_keys) = Broker::configured(&keys) else { return };
    of_keys.node(&format!("creds_file = '{seed}'")).publish("/a", "by a key");
    let of_jwts = Broker::configured(include_str!("operator.conf")).unwrap();
    let by_jwt = format!("creds_file = '{}'", creds.display());
    of_jwts.node(&by_jwt).publish("/a", "by a JWT");
    for (broker, settings) in [(&of_keys, by_jwt), (&of_jwts, format!("creds_file = '{seed}'"))] {
        let why = refused(&broker.toml(&settings));
        assert!(why.contains("Authorization Violation"), "{why}");
    }
}

/// What the documentation says that a node has to be allowed, for the key in `seed`.
fn documented() -> String {
    let text = include_str!("../../../../../docs/cluster.md");
    let (_, block) = text.split_once("```nats\nauthorization {").expect("it is there");
    let (block, _) = block.split_once("```").unwrap();
    format!("authorization {{{}", block.split("tls {").next().unwrap())
}

#[test]
fn a_broker_that_allows_a_node_what_is_documented() {
    let dir = TempDir::new();
    let seed = file(&dir, "seed", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY");
    let settings = format!("creds_file = '{seed}'");
    let documented = documented();
    let Some(broker) = Broker::configured(&documented) else { return };
    let first = broker.node(&settings);
    let data = "x".repeat(10_000);
    (0..300).for_each(|n| drop(first.publish(&format!("/{n}"), &data)));
    // One that reads so much at once is asked whether it keeps up.
    let second = broker.node(&settings);
    let id = second.publish("/a", "last");
    has(&first, "/a", &id);
    for node in [&first, &second] {
        let status = node.control.get("/-/status").expect(200).json();
        assert_eq!(status["cluster"]["reconnects"], 0, "{status}");
    }
    // Without that it does not go on.
    let less = documented.replace("\"$JS.FC.stentor.>\",", "");
    assert_ne!(less, documented);
    let broker = Broker::configured(&less).unwrap();
    let mut node = broker.node(&settings);
    for n in 0..300 {
        super::publish(&node, &format!("/{n}"), &data);
        if node.control.get("/-/status").json()["cluster"]["reconnects"] != 0 {
            break;
        }
    }
    node.child.logged("Permissions Violation for Publish to \"$JS.FC.stentor.");
}

/// Settings of a broker that speaks TLS, and what nodes know it by.
fn secured(signer: &Signer, more: &str) -> (String, String) {
    let (certificate, key) = signer.sign("127.0.0.1", 2100);
    let (certificate, key) = (certificate.display(), key.display());
    let settings = format!("tls {{ cert_file: '{certificate}', key_file: '{key}', {more} }}");
    (settings, format!("ca_file = '{}'", signer.ca()))
}

/// The settings of a node that is to reach it by TLS.
fn by_tls(broker: &Broker, more: &str) -> String {
    broker.toml(more).replace("nats://", "tls://")
}

#[test]
fn a_broker_that_speaks_tls() {
    let signer = Signer::new();
    let (settings, known) = secured(&signer, "");
    let Some(broker) = Broker::configured(&settings) else { return };
    let nodes = [(); 2].map(|()| Server::configured(&by_tls(&broker, &known)));
    nodes.iter().for_each(Server::await_ready);
    // Of many records, and of few bytes.
    for size in [1, 100_000, 700_000, 16_384] {
        let data = "x".repeat(size);
        let id = nodes[0].publish("/a", &data);
        assert_eq!(has(&nodes[1], "/a", &id), data.as_bytes());
    }
    for n in 0..200 {
        nodes[n % 2].publish(&format!("/{n}"), &n.to_string());
    }
    let id = nodes[0].publish("/a", "last");
    assert_eq!(has(&nodes[1], "/a", &id), b"last");
}

#[test]
fn a_broker_is_known_by_its_certificate_or_not_at_all() {
    let (signer, other) = (Signer::new(), Signer::new());
    let (settings, known) = secured(&signer, "");
    let Some(broker) = Broker::configured(&settings) else { return };
    let why = refused(&by_tls(&broker, &format!("ca_file = '{}'", other.ca())));
    assert!(why.contains("its certificate is signed by "), "{why}");
    let by_name = by_tls(&broker, &known).replace("127.0.0.1", "localhost");
    let why = refused(&by_name);
    assert!(why.contains("its certificate is for 127.0.0.1 and not for localhost"), "{why}");
    let why = refused(&broker.toml(""));
    assert!(why.contains("it asks for TLS: name it as tls://"), "{why}");
    let plain = Broker::start().unwrap();
    let why = refused(&by_tls(&plain, &known));
    assert!(why.contains("it has no TLS"), "{why}");
}

#[test]
fn what_is_said_in_the_clear_before_there_is_tls_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let info = "INFO {\"headers\":true,\"jetstream\":true,\"tls_required\":true}";
            let _ = socket.unwrap().write_all(format!("{info}\r\n-ERR 'no'\r\n").as_bytes());
        }
    });
    let ca = Signer::new();
    let why = refused(&format!("[cluster]\nnats = 'tls://{address}'\nca_file = '{}'", ca.ca()));
    assert!(why.contains("something was said in the clear before there was TLS"), "{why}");
}

#[test]
fn a_broker_that_asks_for_a_certificate() {
    let signer = Signer::new();
    let (settings, known) = secured(&signer, &format!("ca_file: '{}', verify: true", signer.ca()));
    let Some(broker) = Broker::configured(&settings) else { return };
    let (certificate, key) = signer.sign("node", 2100);
    let shown =
        format!("{known}\ncert_file = '{}'\nkey_file = '{}'", certificate.display(), key.display());
    let node = Server::configured(&by_tls(&broker, &shown));
    node.await_ready();
    node.publish("/a", "by a certificate");
    let why = refused(&by_tls(&broker, &known));
    assert!(why.contains("it lets nobody in who does not show it a certificate"), "{why}");
}

#[test]
fn files_that_are_not_good_are_told_of_before_the_start() {
    let dir = TempDir::new();
    let cut = file(&dir, "cut.creds", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIE");
    let empty = file(&dir, "empty", "\n");
    for (scheme, settings, expected) in [
        ("nats", format!("creds_file = '{cut}'"), "its seed is not one of NATS"),
        ("nats", format!("token_file = '{empty}'"), "there is nothing in it"),
        ("nats", "token_file = '/nowhere/token'".to_owned(), "/nowhere/token: there is no"),
        ("tls", format!("ca_file = '{empty}'"), "there is no certificate in it"),
    ] {
        let text = format!(
            "listen = '127.0.0.1:0'\ncontrol = '127.0.0.1:0'\n[cluster]\n\
             nats = '{scheme}://127.0.0.1:1'\n{settings}\n"
        );
        let toml = file(&dir, "stentor.toml", &text);
        let check = run(&["check", &toml]);
        assert_eq!(check.code, Some(2), "{settings}: {}", check.err);
        assert!(check.err.contains(expected), "{}", check.err);
        let serve = run(&["serve", "-c", &toml]);
        assert_eq!(serve.code, Some(1), "{settings}: {}", serve.err);
        assert!(serve.err.contains(expected), "{}", serve.err);
    }
}
