//! Privileges: what takes them is done first, and then no thread has any.
//!
//! Only root can become somebody else. Run as another user, most of these tests say so and do no
//! more.

use crate::cluster::Broker;
use crate::support::{
    Child, Client, Server, Signer, TempDir, Url, eventually, install, is_root, refused_start, run,
    serve, stentor, tool,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// A user that every host has, and another one.
const USER: &str = "nobody";
const OTHER: &str = "daemon";

/// A number of a user: `-u` its own, `-g` that of its group.
fn id(which: &str, user: Option<&str>) -> u32 {
    let output = Command::new("id").arg(which).args(user).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// A line of a thread's status, without its name.
fn line<'s>(status: &'s str, name: &str) -> &'s str {
    let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
}

/// Checks that all threads of a process are that user and can do nothing that others cannot, and
/// returns their names.
#[track_caller]
pub(crate) fn expect_unprivileged(process: u32, user: &str) -> Vec<String> {
    let (uid, gid) = (id("-u", Some(user)), id("-g", Some(user)));
    let four = |id: u32| format!("{id}\t{id}\t{id}\t{id}");
    let mut names = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        // One that gives memory back may be gone.
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else {
            continue;
        };
        assert_eq!(line(&status, "Uid"), four(uid), "{status}");
        assert_eq!(line(&status, "Gid"), four(gid), "{status}");
        // Who is that user already keeps its groups, which may be none.
        assert!(["", &gid.to_string()].contains(&line(&status, "Groups")), "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(line(&status, set), "0000000000000000", "{set} in {status}");
        }
        assert_eq!(line(&status, "NoNewPrivs"), "1", "{status}");
        names.push(line(&status, "Name").to_owned());
    }
    names.sort_unstable();
    names
}

/// A port that takes privileges, free a moment ago; another one for each who asks.
pub(crate) fn low_port() -> Url {
    static NEXT: AtomicU16 = AtomicU16::new(1023);
    loop {
        let port = NEXT.fetch_sub(1, Ordering::Relaxed);
        assert!(port > 700, "no low port is free");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Url(address);
        }
    }
}

fn user_id() -> u32 {
    id("-u", Some(USER))
}

/// Sees that a server has these threads, and that all are unprivileged.
#[track_caller]
fn has_threads(server: &Server, expected: &[&str]) {
    let mut names = Vec::new();
    eventually("all threads have begun", || {
        names = expect_unprivileged(server.child.id(), USER);
        // A thread takes its name a moment after it has begun.
        let unnamed = names.iter().filter(|name| *name == "stentor").count();
        (unnamed == 1 && names.len() >= expected.len()).then_some(())
    });
    assert_eq!(names, expected);
}

#[test]
fn every_thread_is_the_user_and_has_no_privilege() {
    if !is_root("becoming another user") {
        return;
    }
    let (dir, signer) = (TempDir::new(), Signer::new());
    fs::write(dir.path().join("a.txt"), "a file").unwrap();
    let (certificate, key) = signer.sign("localhost", 4000);
    for path in [dir.path(), signer.dir(), &key] {
        chown(path, Some(user_id()), None).unwrap();
    }
    let toml = format!(
        "user = '{USER}'\ntls_cert = '{}'\ntls_key = '{}'\n[store]\npath = '{dir}/data'\n\
         [log]\naccess = '{dir}/access.log'\n[jwt]\njwks_url = 'http://127.0.0.1:1/keys'\n\
         [[static]]\nroot = '{dir}'\n",
        certificate.display(),
        key.display(),
        dir = dir.path().display(),
    );
    let flags = ["--workers", "2", "--listen", "tls:127.0.0.1:0"];
    let mut server = Server::listening_at(&low_port().0.to_string(), "", &toml, &flags);
    let files = ["compressor", "control", "file-compressor", "file-loader"];
    let (first, others) = (["access-log", "certificates"], ["log", "memory"]);
    let last = ["stentor", "store", "store-watch", "worker-0", "worker-1"];
    let expected = [&first[..], &files, &["history", "jwks-0"], &others, &last].concat();
    has_threads(&server, &expected);
    assert!(!server.child.err().contains("running as root"), "{}", server.child.err());
    let of_user = fs::metadata(format!("/proc/{}/fd", server.child.id())).unwrap();
    assert_eq!(of_user.uid(), user_id(), "its files can be counted");
    // And it is of use: the low port, values, files, the reading of the configuration.
    server.control.put("/a", "text/plain", b"hello").expect(201);
    assert_eq!(server.public.get("/a").text(), "hello");
    // A file of somebody else's that is new is not served at once.
    eventually("the file", || (server.public.get("/a.txt").status == 200).then_some(()));
    fs::write(server.dir.path().join("stentor.toml"), format!("{toml}cache_control = 'no-store'"))
        .unwrap();
    server.child.signal("HUP");
    server.child.logged("INFO reloaded");
    server.child.stop();
}

#[test]
fn threads_of_followers_and_nodes_have_no_privilege() {
    if !is_root("becoming another user") {
        return;
    }
    let leader = Server::start();
    let follow = format!("http://{}", leader.control.0);
    let flags = ["--workers", "1", "--user", USER];
    let follower = Server::with("", "", &[&flags[..], &["--follow", &follow]].concat());
    let expected = ["compressor", "control", "follow", "history", "log", "memory", "stentor"];
    has_threads(&follower, &[&expected[..], &["worker-0"]].concat());
    let Some(broker) = Broker::start() else { return };
    let node = Server::with("", &broker.toml(""), &flags);
    let begun = ["cluster", "compressor", "control", "history", "log", "memory"];
    has_threads(&node, &[&begun[..], &["stentor", "worker-0"]].concat());
}

#[test]
fn capabilities_that_were_given_are_given_up() {
    if !is_root("giving capabilities") {
        return;
    }
    if tool("setpriv").is_none() {
        return;
    }
    let dir = TempDir::new();
    let given = "+net_bind_service,+setuid,+setgid,+setpcap";
    let (uid, gid) = (id("-u", Some(OTHER)), id("-g", Some(OTHER)));
    let spawn = |flags: &[&str], capabilities: &[String]| {
        let mut command = stentor(["serve", "--control", "127.0.0.1:0", "--workers", "1"]);
        command.args(flags);
        let mut outer = Command::new("setpriv");
        outer.args([format!("--reuid={uid}"), format!("--regid={gid}")]).arg("--clear-groups");
        outer.args(capabilities).arg(reachable(&dir)).args(command.get_args());
        Child::spawn(&mut outer)
    };
    let capabilities = [format!("--inh-caps={given}"), format!("--ambient-caps={given}")];
    for user in [USER, OTHER] {
        let address = low_port().0.to_string();
        let mut child = spawn(&["--listen", &address, "--user", user], &capabilities);
        child.logged("ready: ");
        expect_unprivileged(child.id(), user);
    }
    // Without any, it may only stay who it is.
    let mut same = spawn(&["--listen", "127.0.0.1:0", "--user", OTHER], &[]);
    same.logged("ready: ");
    let status = fs::read_to_string(format!("/proc/{}/status", same.id())).unwrap();
    assert_eq!((line(&status, "CapEff"), line(&status, "NoNewPrivs")), ("0000000000000000", "1"));
    let mut other = spawn(&["--listen", "127.0.0.1:0", "--user", USER], &[]);
    assert_eq!(other.wait(), Some(1));
    let said = other.err();
    assert!(said.contains("cannot become user 'nobody'") && said.contains("CAP_SETUID"), "{said}");
    assert!(!said.contains("ready: "), "{said}");
}

/// The command where every user can reach it.
fn reachable(dir: &TempDir) -> std::path::PathBuf {
    let copy = dir.path().join("stentor");
    if !copy.exists() {
        install(Path::new(env!("CARGO_BIN_EXE_stentor")), &copy);
    }
    copy
}

#[test]
fn a_socket_file_is_its_users() {
    if !is_root("a socket file of another user") {
        return;
    }
    let dir = TempDir::new();
    let path = dir.path().join("control.sock");
    let address = format!("unix:{}", path.display());
    let flags = ["--workers", "1", "--user", USER, "--control", &address];
    // Where the user may not write there can be no socket file of its own.
    refused_start(&flags, &[&address, "writable"]);
    assert!(!path.exists());
    chown(dir.path(), Some(user_id()), None).unwrap();
    let mut server = Server::with("", "", &flags);
    assert_eq!(fs::metadata(&path).unwrap().uid(), user_id());
    Client::connect_unix(&path).get("/-/healthz").expect(200);
    server.child.stop();
    assert!(!path.exists(), "it goes with its server");
}

#[test]
fn a_user_that_is_of_no_use_is_refused_in_a_sentence() {
    for (user, told) in [
        ("stentr-none", "there is no user 'stentr-none' on this host"),
        ("root", "user 'root' is root"),
    ] {
        let said = refused_start(&["--user", user], &[told]);
        assert!(!said.err.contains("listener at"), "{}", said.err);
    }
    assert_eq!(run(&["serve", "--user", "a:b"]).code, Some(2));
}

fn close(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_only_root_may_read_is_told_at_the_start_and_at_a_reload() {
    if !is_root("what only root may read") {
        return;
    }
    let dir = TempDir::new();
    let (open, closed) = (dir.path().join("open"), dir.path().join("closed"));
    fs::create_dir(&open).unwrap();
    fs::create_dir(&closed).unwrap();
    close(&closed);
    let root = |path: &Path| format!("[[static]]\nroot = '{}'\n", path.display());
    let toml = dir.path().join("stentor.toml");
    fs::write(&toml, root(&closed)).unwrap();
    let flags = ["--user", USER, "-c", toml.to_str().unwrap()];
    let told = "runs as user 'nobody', who must be let in";
    refused_start(&flags, &[told]);
    let mut server = Server::with("", &root(&open), &["--workers", "1", "--user", USER]);
    let config = server.dir.path().join("stentor.toml");
    fs::write(&config, root(&closed)).unwrap();
    server.child.signal("HUP");
    let reason = server.child.logged("not reloaded");
    assert!(reason.contains(told), "{reason}");
    close(&config);
    server.child.signal("HUP");
    server.child.logged("cannot be read: Permission denied");
    fs::write(&toml, "").unwrap();
    close(&toml);
    let mut other = Child::spawn(&mut serve(&flags));
    other.logged("so a reload will be refused");
}
