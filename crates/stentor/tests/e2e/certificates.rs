//! Certificates: what is checked before the start, looked after, said, and led to.

use crate::support::{Server, TempDir, eventually, run, tool};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Writes a certificate for that name with so many days left, and its key. Returns the settings
/// that name them.
pub(crate) fn write(dir: &Path, name: &str, days: u64) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let half_a_day = Duration::from_secs(12 * 60 * 60);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(1970, 1, 1) + now + half_a_day * 2 * days as u32 + half_a_day;
    let (certificate, private) = (dir.join("c.pem"), dir.join("k.pem"));
    fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&private, key.serialize_pem()).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    format!("tls_cert = '{}'\ntls_key = '{}'\n", certificate.display(), private.display())
}

/// A server with a listener for TLS beside the one of every test.
pub(crate) fn server(dir: &Path, name: &str, days: u64, flags: &[&str]) -> Server {
    let toml = write(dir, name, days);
    let flags = [&["--workers", "1", "--listen", "tls:127.0.0.2:0"][..], flags].concat();
    Server::with("", &toml, &flags)
}

#[test]
fn a_check_says_the_names_and_the_days_left() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    fs::write(&file, write(dir.path(), "a.example", 83)).unwrap();
    let check = || run(&["check", file.to_str().unwrap()]);
    let said = check();
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(said.out.contains("\n  listen    tls:0.0.0.0:8080\n"), "{}", said.out);
    assert!(said.out.contains("c.pem for a.example (ecdsa): 83 days left\n"), "{}", said.out);
    fs::set_permissions(dir.path().join("k.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let said = check();
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("k.pem: everybody on this host can read"), "{}", said.err);
}

#[test]
fn a_pair_that_is_no_good_is_refused_by_a_check_and_by_a_start() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    let toml = write(dir.path(), "a.example", 83);
    // Were it to start, it would do so on this port and not end.
    fs::write(&file, format!("listen = '127.0.0.1:0'\ncontrol = '127.0.0.1:0'\n{toml}")).unwrap();
    fs::write(dir.path().join("k.pem"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let name = file.to_str().unwrap();
    let expected = "k.pem: it is not the key of the certificate in ";
    let check = run(&["check", name]);
    assert_eq!((check.code, check.out.as_str()), (Some(2), ""));
    assert!(check.err.contains(expected), "{}", check.err);
    let serve = run(&["serve", "-c", name]);
    assert_eq!(serve.code, Some(1));
    assert!(serve.err.contains(expected), "{}", serve.err);
}

#[test]
fn a_pair_that_is_no_good_stops_no_other() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    let toml = write(dir.path(), "a.example", 83);
    let second = write(other.path(), "b.example", 83).replace("tls_", "");
    let toml = format!("{toml}[[tls]]\n{second}");
    fs::remove_file(other.path().join("c.pem")).unwrap();
    let mut server = Server::with("", &toml, &["--workers", "1", "--listen", "tls:127.0.0.2:0"]);
    let log = server.child.logged("ERROR a certificate cannot be used, and is left out: ");
    assert!(log.contains("c.pem: there is no such file"), "{log}");
    let file = server.dir.path().join("stentor.toml");
    let check = run(&["check", file.to_str().unwrap()]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.err.contains("c.pem: there is no such file"), "{check:?}");
    assert!(check.out.contains("c.pem for a.example (ecdsa): 83 days left\n"), "{check:?}");
    let names = |server: &Server| {
        let status = server.control.get("/-/status").expect(200).json();
        let shown = status["tls"]["certificates"].as_array().unwrap().clone();
        let names = shown.iter().map(|one| one["names"][0].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), status["tls"]["failure"].is_null())
    };
    assert_eq!(names(&server), (vec!["a.example".to_owned()], false));
    let metrics = server.control.get("/-/metrics").expect(200);
    assert!(metrics.text().contains("\nstentor_tls_files_good 0\n"));
    // A reload and an upgrade take nothing away from clients.
    server.child.signal("HUP");
    server.child.logged("INFO reloaded");
    server.child.upgrade();
    assert_eq!(names(&server), (vec!["a.example".to_owned()], false));
    // The other one is renewed, and this one is once it is there.
    write(dir.path(), "c.example", 83);
    eventually("one is renewed", || (names(&server).0 == ["c.example"]).then_some(()));
    write(other.path(), "b.example", 83);
    server.child.signal("HUP");
    let both = (vec!["c.example".to_owned(), "b.example".to_owned()], true);
    eventually("both are shown", || (names(&server) == both).then_some(()));
    server.child.upgrade();
    assert_eq!(names(&server), both);
    // Now they would lose a certificate that is presented.
    fs::remove_file(other.path().join("c.pem")).unwrap();
    for (signal, rejected) in [("HUP", "ERROR not reloaded"), ("USR2", "ERROR not upgraded")] {
        server.child.signal(signal);
        let log = server.child.logged(rejected);
        assert!(log.contains("c.pem: there is no such file"), "{log}");
    }
    assert_eq!(names(&server).0, both.0);
}

#[test]
fn reads_are_led_to_https() {
    if tool("curl").is_none() {
        return;
    }
    let dir = TempDir::new();
    let mut server = server(dir.path(), "a.example", 83, &["--redirect", "127.0.0.1:0"]);
    let at = server.child.logged("redirect listener at http://");
    let port = server.child.logged("public listener at https://127.0.0.2:");
    let curl = |args: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-q", "--silent", "--noproxy", "*", "-i"]).args(args);
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // The port is chosen by the kernel, and known to nobody who only reads settings.
    assert!(!port.is_empty());
    let answer = curl(&["-H", "Host: a.example", &format!("http://{at}/scores/x?y=1")]);
    assert!(answer.starts_with("HTTP/1.1 301 Moved Permanently\r\n"), "{answer}");
    assert!(answer.contains("\r\nLocation: https://a.example/scores/x?y=1\r\n"), "{answer}");
    let answer =
        curl(&["-H", "Host: a.example", "-X", "PUT", "-d", "x", &format!("http://{at}/x")]);
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    // Nothing else is to be had there.
    server.publish("/x", "1");
    let answer = curl(&["-H", "Host: a.example", &format!("http://{at}/-/status")]);
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    server.settled("connections_redirect", 0);
    // Another process goes on with both.
    server.child.upgrade();
    let answer = curl(&["-H", "Host: a.example", &format!("http://{at}/scores/x")]);
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    let status = server.control.get("/-/status").expect(200).json();
    assert_eq!(status["tls"]["certificates"][0]["names"][0], "a.example");
}

#[test]
fn other_files_are_read_and_status_and_metrics_say_so() {
    let dir = TempDir::new();
    let mut server = server(dir.path(), "a.example", 83, &[]);
    let log = server.child.logged("the certificate in ");
    assert!(log.ends_with("c.pem for a.example (ecdsa): 83 days left"), "{log}");
    let first = |server: &Server| {
        let status = server.control.get("/-/status").expect(200).json();
        status["tls"]["certificates"][0].clone()
    };
    assert_eq!(first(&server)["names"][0], "a.example");
    let metrics = server.control.get("/-/metrics").expect(200);
    assert!(metrics.text().contains("c.pem\",name=\"a.example\"} "), "{}", metrics.text());
    // They are noticed by themselves.
    write(dir.path(), "b.example", 10);
    eventually("the new one is shown", || {
        (first(&server)["names"][0] == "b.example").then_some(())
    });
    server.child.logged("it is time for another certificate: ");
    let page = server.control.ask("GET", "/-/status", "Accept: text/plain\r\n", b"");
    let line = "\ntls.certificates.0.names.0: \"b.example\"\n";
    assert!(page.text().contains(line), "{}", page.text());
    // What is no good changes nothing, by itself and when all is to be read again.
    fs::write(dir.path().join("c.pem"), "").unwrap();
    let log = server.child.logged("the certificates stay as they are: ");
    assert!(log.ends_with("c.pem: it is empty"), "{log}");
    server.child.signal("HUP");
    let log = server.child.logged("not reloaded, the settings stay as they are: ");
    assert!(log.ends_with("c.pem: it is empty"), "{log}");
    let status = server.control.get("/-/status").expect(200).json();
    assert!(status["tls"]["failure"].as_str().unwrap().ends_with("c.pem: it is empty"));
    assert_eq!(first(&server)["names"][0], "b.example");
    let metrics = server.control.get("/-/metrics").expect(200);
    assert!(metrics.text().contains("\nstentor_tls_files_good 0\n"));
    assert!(metrics.text().contains("\nstentor_tls_reload_failures_total 1\n"));
    write(dir.path(), "c.example", 83);
    server.child.signal("HUP");
    eventually("it is read", || (first(&server)["names"][0] == "c.example").then_some(()));
}

#[test]
fn other_settings_with_files_that_are_no_good_are_refused() {
    let dir = TempDir::new();
    let mut server = server(dir.path(), "a.example", 83, &[]);
    let file = server.dir.path().join("stentor.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replace("c.pem", "gone.pem")).unwrap();
    server.child.signal("HUP");
    let log = server.child.logged("not reloaded, the settings stay as they are: ");
    assert!(log.ends_with("gone.pem: there is no such file"), "{log}");
    // Without a certificate the listener for TLS would have nothing to show: it goes on as it was.
    fs::write(&file, "").unwrap();
    server.child.signal("HUP");
    server.child.logged("not reloaded, the settings stay as they are: tls: ");
    let status = server.control.get("/-/status").expect(200).json();
    assert_eq!(status["tls"]["certificates"][0]["names"][0], "a.example");
}

#[test]
fn the_demo_makes_a_certificate_of_its_own() {
    use crate::support::{Child, stentor};
    let dir = TempDir::new();
    let flags = ["demo", "--tls", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    let mut child = Child::spawn(stentor(flags).env("TMPDIR", dir.path()));
    let url = eventually("it says where to look", || {
        assert!(child.is_running(), "{}", child.err());
        let out = child.out();
        out.lines().rev().find(|line| line.starts_with("Ctrl-C"))?;
        out.split_ascii_whitespace().find(|word| word.ends_with("/demo/")).map(str::to_owned)
    });
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let out = child.out();
    let file = out.split("--cacert ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    if tool("curl").is_some() {
        let root = url.strip_suffix("demo/").unwrap();
        let output = crate::support::curl(&["-L", "--cacert", file, root]).unwrap();
        let page = String::from_utf8(output.stdout).unwrap();
        assert!(page.contains("<title>") && page.contains("guestbook"), "{page}");
    }
    let key = Path::new(file).with_file_name("key.pem");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!Path::new(file).with_file_name("site").join("key.pem").exists());
    let text = fs::read_to_string(file).unwrap();
    assert!(text.starts_with("-----BEGIN CERTIFICATE-----"), "{text}");
    if tool("openssl").is_some() {
        let verify =
            Command::new("openssl").args(["verify", "-CAfile", file, file]).output().unwrap();
        assert!(verify.status.success(), "{verify:?}");
    }
    child.signal("INT");
    child.stopped();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "it goes with the demo");
}
