//! Settings that a start rejects: a reload and an upgrade reject them too, and nothing changes.

use super::fails_for;
use crate::certificates;
use crate::support::{Child, Reader, Server, Way, run, serve};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each line is a setting and a document with which a start fails. `DIR` is an empty directory,
/// `DIR/file` a file in it, `DIR/fifo` a FIFO.
const REJECTED: [(&str, &str); 30] = [
    ("monitor.listen", "monitor.listen = '192.0.2.1:1'"),
    ("redirect", "tls_cert = 'DIR/c.pem'\ntls_key = 'DIR/k.pem'\nredirect = '192.0.2.1:80'"),
    ("user", "user = 'nobody-has-this-name'"),
    ("static.root", "static = [{ path = '/s/', root = 'DIR/none' }]"),
    ("static.root", "static = [{ path = '/s/', root = 'DIR/fifo' }]"),
    ("log.access", "log.access = 'DIR/none/log'"),
    ("tls_cert", "tls_cert = 'DIR/none'\ntls_key = 'DIR/file'"),
    ("tls_cert", "tls_cert = 'DIR/fifo'\ntls_key = 'DIR/file'"),
    ("tls_key", "tls_cert = 'DIR/file'\ntls_key = 'DIR/none'"),
    ("tls_key", "tls = [{ cert = 'DIR/file', key = 'DIR/file' }]"),
    (
        "tls_ticket_secret",
        "tls_cert = 'DIR/c.pem'\ntls_key = 'DIR/k.pem'\ntls_ticket_secret = 'DIR/no/s'",
    ),
    (
        "control_client_ca",
        "tls_cert = 'DIR/c.pem'\ntls_key = 'DIR/k.pem'\ncontrol_client_ca = 'DIR/none'",
    ),
    ("jwt.secret_file", "jwt.secret_file = 'DIR/none'"),
    ("jwt.secret_file", "jwt.secret_file = 'DIR/fifo'"),
    ("jwt.secret_file", "jwt.secret_file = '/dev/zero'"),
    ("jwt.public_key_file", "jwt.public_key_file = 'DIR/file'"),
    ("jwt.public_key", "jwt.public_key = 'none'"),
    ("jwt.jwks_file", "jwt.jwks_file = 'DIR/file'"),
    ("jwt.jwks_ca_file", "jwt.jwks_url = 'https://127.0.0.1:1'\njwt.jwks_ca_file = 'DIR/none'"),
    ("jwt.jwks_ca_file", "jwt.jwks_url = 'https://127.0.0.1:1'\njwt.jwks_ca_file = 'DIR/fifo'"),
    ("store.path", "store.path = 'DIR/file'"),
    ("store.path", "store.path = 'DIR/none/store'"),
    ("follow.ca_file", "follow.leader = 'https://127.0.0.1:1'\nfollow.ca_file = 'DIR/none'"),
    ("follow.token_file", "follow.leader = 'http://127.0.0.1:1'\nfollow.token_file = 'DIR/none'"),
    ("cluster.ca_file", "cluster.nats = 'tls://127.0.0.1:1'\ncluster.ca_file = 'DIR/none'"),
    (
        "cluster.cert_file",
        "cluster.nats = 'tls://127.0.0.1:1'\ncluster.ca_file = 'DIR/c.pem'\n\
      cluster.cert_file = 'DIR/none'\ncluster.key_file = 'DIR/none'",
    ),
    ("cluster.creds_file", "cluster.nats = 'nats://127.0.0.1:1'\ncluster.creds_file = 'DIR/none'"),
    ("cluster.token_file", "cluster.nats = 'nats://127.0.0.1:1'\ncluster.token_file = 'DIR/fifo'"),
    (
        "cluster.password_file",
        "cluster.nats = 'nats://127.0.0.1:1'\ncluster.user = 'u'\n\
      cluster.password_file = 'DIR/none'",
    ),
    (
        "cluster.peer_token_file",
        "cluster.nats = 'nats://127.0.0.1:1'\ncluster.peers = \
      'http://127.0.0.1:2'\ncluster.peer_token_file = 'DIR/none'",
    ),
];

/// Settings that need something of the host, but that a start rejects as others above.
const LIKE_OTHERS: [(&str, &str); 4] = [
    ("listen", "redirect"),
    ("control", "monitor.listen"),
    ("cluster.key_file", "cluster.cert_file"),
    ("cluster.peer_ca_file", "follow.ca_file"),
];

/// Without more a server looks nothing up for these settings.
fn needs_nothing(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let words = ["file", "cert", "key", "secret", "path", "root", "access", "user", "listen", "ca"];
    let has_word = last.split('_').any(|word| words.contains(&word));
    let named = ["control", "redirect"].contains(&name);
    let known = ["log.access_format", "log.access_sample", "cluster.user"].contains(&name);
    !(has_word || named) || known
}

fn make_fifo(path: &Path) {
    let said = Child::spawn(Command::new("mkfifo").arg(path)).said();
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn settings_rejected_by_start_change_nothing_later() {
    let mut server = Server::start();
    let dir = server.dir.path().display().to_string();
    fs::write(server.dir.path().join("file"), "text").unwrap();
    make_fifo(&server.dir.path().join("fifo"));
    certificates::write(server.dir.path(), "a.example", 83);
    let config = server.dir.path().join("stentor.toml");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", "");
    for (name, toml) in REJECTED {
        fs::write(&config, toml.replace("DIR", &dir)).unwrap();
        let start = Child::spawn(&mut serve(&["-c", config.to_str().unwrap()])).said();
        assert!(matches!(start.code, Some(1 | 2)), "{name}: {start:?}");
        let process = server.child.id().to_string();
        let reload = run(&["reload", "--process", &process]);
        assert_eq!(reload.code, Some(1), "{name}: {reload:?}");
        fails_for("", &mut server, &mut reader);
        assert_eq!(server.figure("reloads/done"), 0, "{name}");
    }
}

/// Reading the file does not hold up the signals of the process.
#[test]
fn fifo_as_configuration_is_rejected_and_signals_count() {
    let mut server = Server::start();
    let config = server.dir.path().join("stentor.toml");
    let _ = fs::remove_file(&config);
    make_fifo(&config);
    let start = Child::spawn(&mut serve(&["-c", config.to_str().unwrap()])).said();
    assert!(start.err.contains("cannot be read: it is a FIFO, and a file is needed"), "{start:?}");
    server.child.signal("HUP");
    server.child.logged("it is a FIFO, and a file is needed");
    server.child.stop();
}

#[test]
fn every_setting_that_needs_files_is_tried() {
    let config = run(&["config"]).out;
    let mut table = String::new();
    let mut names = BTreeSet::new();
    for line in config.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some((name, _)) = line.split_once(" = ")
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            names.insert(format!("{table}{name}"));
        }
    }
    assert!(names.len() > 80, "{names:?}");
    let tried = REJECTED.iter().chain(&LIKE_OTHERS).map(|(name, _)| *name).collect::<BTreeSet<_>>();
    let missing: Vec<_> =
        names.iter().filter(|name| !tried.contains(&***name) && !needs_nothing(name)).collect();
    assert!(missing.is_empty(), "no test has {missing:?}");
}
