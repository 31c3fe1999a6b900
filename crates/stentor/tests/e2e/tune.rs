//! `stentor tune`: recorded hosts, files to install, and what `serve --expect` says.
//!
//! Nothing here changes the host: `--apply` is tested on a tree of its own, in `stentor-tune`.

use std::path::Path;

use crate::support::{Said, Server, TempDir, run};

/// A host that is recorded in `stentor-tune`.
fn recorded(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join(format!("../stentor-tune/tests/hosts/{name}.json"));
    file.to_str().expect("paths are Unicode here").to_owned()
}

fn judged(name: &str, flags: &[&str]) -> Said {
    let file = recorded(name);
    run(&[&["tune", "--facts", &file], flags].concat())
}

#[test]
fn the_exit_code_says_whether_a_host_is_ready() {
    let ready = judged("vm_1core", &["-n", "1000"]);
    assert_eq!(ready.code, Some(0), "{}", ready.err);
    assert!(ready.out.contains("\nready for 1,000 connections\n"), "{}", ready.out);
    let small = judged("vm_1core", &["-n", "10000"]);
    assert_eq!(small.code, Some(1));
    let change = "net.ipv4.tcp_mem  9477 12637 18954 → 20000 25000 30000";
    assert!(small.out.contains(change), "{}", small.out);
    assert!(small.err.starts_with("error: not ready for 10,000 connections"), "{}", small.err);
    // No colours in a pipe.
    assert!(!small.out.contains('\x1b'), "{}", small.out);
    for bad in [&["tune", "-n", "0"][..], &["tune", "--facts", "/nonexistent"]] {
        assert_eq!(run(bad).code, Some(2), "{bad:?}");
    }
    assert_eq!(judged("vm_1core", &["--apply"]).code, Some(2));
}

#[test]
fn what_is_fine_is_mentioned_on_request() {
    let short = judged("container_roomy", &[]);
    assert!(!short.out.contains("seccomp"), "{}", short.out);
    let long = judged("container_roomy", &["--all"]);
    assert!(long.out.contains("seccomp"), "{}", long.out);
}

#[test]
fn tls_is_counted_on_request() {
    let plain = judged("vm_1core", &["-n", "1000000", "--rate", "0", "--all"]);
    assert!(!plain.out.contains("handshakes"), "{}", plain.out);
    let tls = judged("vm_1core", &["-n", "1000000", "--rate", "0", "--tls"]);
    let words = tls.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("readers of Server-Sent Events over TLS, "), "{}", tls.out);
    let why = "all 1,000,000 come back at once, their handshakes keep 1 cores busy for 170.0 s";
    assert!(words.contains(why), "{}", tls.out);
}

#[test]
fn machines_read_json() {
    let said = judged("server_64core", &["-n", "2000000", "--as", "ws", "--rate", "4", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["ready"], true);
    assert_eq!(report["plan"]["kind"], "ws");
    assert_eq!(report["applied"], serde_json::json!([]));
    let orphans = &report["findings"][0];
    assert_eq!(orphans["severity"], "slows");
    assert_eq!(orphans["changes"][0]["setting"]["sysctl"], "net.ipv4.tcp_max_orphans");
    assert_eq!(orphans["changes"][0]["now"], "262144");
    assert_eq!(orphans["changes"][0]["wanted"], "500000");
}

#[test]
fn files_to_install() {
    let sysctl = judged("vm_1core", &["-n", "10000", "--sysctl"]);
    assert_eq!(sysctl.code, Some(0), "{}", sysctl.err);
    let settings: Vec<&str> =
        sysctl.out.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let expected =
        ["net.netfilter.nf_conntrack_max = 11041", "net.ipv4.tcp_mem = 20000 25000 30000"];
    assert_eq!(settings, expected);
    let unit = judged("vm_1core", &["-n", "10000", "--systemd"]);
    assert_eq!(unit.code, Some(0), "{}", unit.err);
    assert!(unit.out.ends_with("\n[Service]\nLimitNOFILE=1048576\nTasksMax=65\n"), "{}", unit.out);
}

#[test]
fn this_host_can_be_recorded_and_judged_elsewhere() {
    let dir = TempDir::new();
    let file = dir.path().join("host.json");
    let file = file.to_str().unwrap();
    let said = run(&["tune", "--record", file]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
    let here = run(&["tune", "--facts", file, "-n", "10", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&here.out).unwrap();
    assert!(report["facts"]["kernel"].is_string(), "{report:#}");
    assert_eq!(report["ready"], here.code == Some(0));
}

/// Any object would read as a host of which nothing is known, and that would be ready.
#[test]
fn what_is_no_recorded_host_is_refused() {
    let dir = TempDir::new();
    let file = dir.path().join("bad.json");
    let report = judged("vm_1core", &["--json"]).out;
    for text in ["", "{", "null", "[]", "{}", r#"{"kernel": 6}"#, report.as_str()] {
        std::fs::write(&file, text).unwrap();
        let said = run(&["tune", "--facts", file.to_str().unwrap(), "-n", "10"]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{text}");
        assert!(said.err.contains("bad.json is no host that 'stentor tune --record'"), "{text}");
    }
}

#[test]
fn a_server_warns_of_what_its_host_cannot_hold() {
    let flags = ["--workers", "2", "--expect", "100000"];
    let server = Server::with("ulimit -n 600;", "", &flags);
    let log = server.child.err();
    let of_these_tests = ["running as root", "not a release build"];
    let is_warning = |line: &&str| {
        line.contains("WARN") && !of_these_tests.iter().any(|known| line.contains(known))
    };
    let warnings: Vec<&str> = log.lines().filter(is_warning).collect();
    let [warning] = warnings.as_slice() else { panic!("{log}") };
    assert!(warning.contains("cannot hold 100000 connections (open-files"), "{warning}");
    assert!(warning.contains("'stentor tune --connections 100000'"), "{warning}");
    // It is said even if the start fails, of which it may be the reason.
    assert!(log.find("WARN") < log.find("public listener"), "{log}");
    let silent = Server::with("", "", &["--workers", "2", "--expect", "10"]);
    let log = silent.child.err();
    assert_eq!(log.lines().filter(is_warning).count(), 0, "{log}");
}
