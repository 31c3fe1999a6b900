//! The tests take the fragments out of the pages and try them.
//!
//! Settings pass `stentor check`. Programs are read by their languages, units by systemd.
//! `alerts.rs` runs the configurations of Prometheus. The command's own tests parse every line that
//! begins with `stentor`, and `xtask` follows the links.

use crate::support::pages::{Fragment, fragments, root};
use crate::support::{Server, TempDir, built, run, skip, tool, write_pair};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_configuration_passes_the_check() {
    let all = fragments(&["toml"]);
    assert!(all.len() > 20, "only {} fragments", all.len());
    println!("{} fragments of TOML", all.len());
    for Fragment { place, text, .. } in all {
        let dir = TempDir::new();
        let file = dir.path().join("stentor.toml");
        fs::write(&file, with_files(&text, dir.path())).unwrap();
        let check = run(&["check", file.to_str().unwrap()]);
        assert_eq!(check.code, Some(0), "{place}: {}{}", check.out, check.err);
    }
    // The check does not pass everything.
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    fs::write(&file, "wrokers = 3").unwrap();
    assert_eq!(run(&["check", file.to_str().unwrap()]).code, Some(2));
}

#[test]
fn every_script_is_read_by_its_language() {
    let python = || Some(PathBuf::from("/usr/bin/python3")).filter(|python| python.is_file());
    // Settings of brokers are of those that are newer than Debian's.
    let broker = built("nats-server");
    let languages: [(&str, Option<PathBuf>, &[&str]); 7] = [
        ("sh", tool("bash"), &["-n"]),
        ("console", tool("bash"), &["-n"]),
        ("js", tool("node"), &["--check"]),
        ("html", tool("node"), &["--check"]),
        ("python", python(), &["-m", "py_compile"]),
        ("json", python(), &["-m", "json.tool"]),
        ("nats", broker, &["-t", "-c"]),
    ];
    for (language, program, args) in languages {
        let all = fragments(&[language]);
        assert!(!all.is_empty(), "no fragment is in {language}");
        let Some(program) = program else {
            skip(&format!("nothing here reads {language}"));
            continue;
        };
        println!("{} fragments of {language}", all.len());
        for fragment in all {
            let output = read_by(&program, args, &source(&fragment));
            assert!(output.status.success(), "{}: {output:?}", fragment.place);
        }
        let output = read_by(&program, args, "( { [");
        assert!(!output.status.success(), "{language}: anything is taken: {output:?}");
    }
}

/// The program in a fragment, without what is around it.
fn source(fragment: &Fragment) -> String {
    match fragment.language.as_str() {
        "console" => fragment.commands().join("\n"),
        "html" => {
            let (_, script) = fragment.text.split_once("<script type=\"module\">").unwrap();
            script.split("</script>").next().unwrap().to_owned()
        }
        // Certificates are not looked for, only the rest of the syntax.
        "nats" => fragment
            .text
            .lines()
            .filter(|line| !line.starts_with("tls {"))
            .fold(String::new(), |text, line| text + line + "\n"),
        _ => fragment.text.clone(),
    }
}

fn read_by(program: &Path, args: &[&str], text: &str) -> std::process::Output {
    let dir = TempDir::new();
    let file = dir.path().join("fragment.mjs");
    fs::write(&file, text).unwrap();
    Command::new(program).args(args).arg(&file).current_dir(dir.path()).output().unwrap()
}

#[test]
fn units_are_understood_by_systemd() {
    let Some(analyze) = tool("systemd-analyze") else { return };
    let units = fragments(&["ini"]);
    assert!(units.len() >= 2, "only {} units", units.len());
    let unit = fs::read_to_string(root().join("packaging/stentor.service")).unwrap();
    let unit = unit.replace("/usr/bin/stentor", env!("CARGO_BIN_EXE_stentor"));
    for fragment in units {
        let dir = TempDir::new();
        fs::write(dir.path().join("stentor.service"), &unit).unwrap();
        let name = match fragment.text.contains("[Socket]") {
            true => "stentor.socket",
            false => "stentor.service.d/override.conf",
        };
        let file = dir.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &fragment.text).unwrap();
        let verify = || {
            let mut command = Command::new(&analyze);
            command.args(["verify", "--man=no", "--recursive-errors=no"]);
            let units = if name.ends_with("socket") { name } else { "stentor.service" };
            let output = command.arg(dir.path().join(units)).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said)
        };
        let (is_good, said) = verify();
        assert!(is_good && !said.contains("Unknown"), "{}: {said}", fragment.place);
        fs::write(&file, format!("{}\nNonsense=1\n", fragment.text)).unwrap();
        let (_, said) = verify();
        assert!(said.contains("Nonsense"), "systemd takes anything: {said}");
    }
}

/// The names that the manifest for Kubernetes gives to the control service are answered.
#[test]
fn every_name_of_the_control_service_is_answered() {
    let manifest = fs::read_to_string(root().join("packaging/kubernetes.yaml")).unwrap();
    let (_, value) = manifest.split_once("name: STENTOR_CONTROL_HOSTS").unwrap();
    let value = value.split('"').nth(1).unwrap();
    let names: String = value.replace('\\', "").split_whitespace().collect();
    let names = names.replace("$(NAMESPACE)", "shop");
    let server = Server::with(&format!("export STENTOR_CONTROL_HOSTS={names};"), "", &[]);
    let service = ["stentor-control", ".shop", ".svc", ".cluster.local"];
    for parts in 1..=service.len() {
        let name = service[..parts].concat();
        let status = |name: &str| {
            let request = format!("GET /-/readyz HTTP/1.1\r\nHost: {name}:8081\r\n\r\n");
            let mut client = server.publisher();
            client.send(request);
            client.response().status
        };
        assert_eq!(status(&name), 200, "{name}");
        assert_eq!(status(&format!("other.{name}")), 421);
    }
}

/// Settings with files that exist: each path is one below `dir`, where what the settings ask for is
/// made.
fn with_files(toml: &str, dir: &Path) -> String {
    let mut text = String::new();
    for line in toml.lines() {
        let mut line = line.to_owned();
        let quoted: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        let is_path = |path: &&String| {
            ["/etc/", "/var/", "/srv/", "/run/"].iter().any(|top| path.starts_with(top))
        };
        for path in quoted.iter().filter(is_path) {
            let there = dir.join(&path[1..]);
            line = line.replace(&format!("\"{path}\""), &format!("\"{}\"", there.display()));
            make(&there);
        }
        if line.contains("secret_file = \"jwt.secret\"") {
            let secret = dir.join("jwt.secret");
            fs::write(&secret, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap();
            line = format!("secret_file = \"{}\"", secret.display());
        }
        text += &line;
        text.push('\n');
    }
    text
}

/// Makes a file as its name says: a certificate and its key beside it, credentials, or a directory.
fn make(path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let parent = path.parent().unwrap();
    fs::create_dir_all(parent).unwrap();
    match name.rsplit_once('.') {
        Some((stem, "pem")) if stem != "privkey" => {
            let key = match stem {
                "fullchain" => "privkey.pem".to_owned(),
                stem => format!("{stem}.key"),
            };
            write_pair(&["example.com"], path, &parent.join(key));
        }
        Some((_, "pem" | "key")) => assert!(path.is_file(), "{name} stands before its certificate"),
        Some((_, "creds")) => fs::write(path, CREDENTIALS).unwrap(),
        Some((_, "sock" | "log")) => {}
        None if name.starts_with("tickets") => {}
        _ => fs::create_dir_all(path).unwrap(),
    }
}

/// Those of a node of a cluster.
const CREDENTIALS: &str = include_str!("cluster/node.creds");
