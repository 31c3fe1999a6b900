//! Other programs change the files of a running server: logrotate its access log, certbot and lego
//! its certificates.
//!
//! No systemd runs here. A `systemctl` of the test stands in its place: it takes the two commands
//! that the recipes give, word for word, and sends the signal that the unit would send.

use super::{recipe, with, write_certificate};
use crate::support::{Server, TempDir, curl, eventually, skip, tool, write_program};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Puts a `systemctl` into `dir` that knows the commands of the recipes, and returns the `PATH`
/// where it comes first.
fn with_systemctl(dir: &Path, server: &Server) -> String {
    let process = server.child.id();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         'kill --kill-who=main --signal=USR1 stentor.service') kill -USR1 {process};;\n\
         'reload stentor') kill -HUP {process};;\n\
         *) echo \"systemctl: $*\" >&2; exit 1;;\nesac\n"
    );
    write_program(&dir.join("systemctl"), &text);
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

#[track_caller]
fn run_well(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[test]
fn logrotate_loses_no_line_of_the_access_log() {
    let Some(logrotate) = tool("logrotate") else { return };
    let dir = TempDir::new();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let log = logs.join("access.log");
    let server = Server::configured(&format!("[log]\naccess = '{}'\n", log.display()));
    let path = with_systemctl(dir.path(), &server);
    let packaged = include_str!("../../../../../packaging/debian/stentor.logrotate");
    let from = "/var/log/stentor/*.log";
    let text = with(packaged, &[(from, &format!("{}/*.log", logs.display()))]);
    let configuration = dir.path().join("stentor.logrotate");
    fs::write(&configuration, text).unwrap();
    fs::set_permissions(&configuration, fs::Permissions::from_mode(0o644)).unwrap();
    let mut asked = 0;
    let mut ask = |count: usize| {
        for _ in 0..count {
            asked += 1;
            server.public.get(&format!("/number-{asked}-")).expect(404);
        }
        let last = format!("/number-{asked}-");
        eventually("the last line", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains(&last).then_some(())
        });
    };
    for _ in 0..3 {
        ask(50);
        let mut command = Command::new(&logrotate);
        command.arg("--force").arg("--state").arg(dir.path().join("state")).arg(&configuration);
        run_well(command.env("PATH", &path));
        eventually("the log is made anew", || log.exists().then_some(()));
    }
    ask(50);
    let read = |name: &str| fs::read_to_string(logs.join(name)).unwrap();
    let unpack = |name: &str| {
        let output = run_well(Command::new("gzip").arg("-dc").arg(logs.join(name)));
        String::from_utf8(output.stdout).unwrap()
    };
    let parts = [
        unpack("access.log.3.gz"),
        unpack("access.log.2.gz"),
        read("access.log.1"),
        read("access.log"),
    ];
    let all = parts.concat();
    for n in 1..=200 {
        assert_eq!(all.matches(&format!("/number-{n}-")).count(), 1, "line {n}:\n{all}");
    }
    assert_eq!(fs::metadata(&log).unwrap().mode() & 0o777, 0o640);
}

/// The names that the hooks know the group by.
const GROUP: &str = "stentor-tls";
const GROUP_ID: u32 = 64_123;

/// A command that runs a program where the group exists: in a mount namespace whose `/etc/group`
/// has one line more. `None`, and a sentence, where none can be made.
fn where_the_group_is(dir: &Path, program: &Path) -> Option<Command> {
    let unshare = tool("unshare")?;
    let groups = fs::read_to_string("/etc/group").unwrap() + &format!("{GROUP}:x:{GROUP_ID}:\n");
    fs::write(dir.join("group"), groups).unwrap();
    let shell = "mount --bind \"$0\" /etc/group && exec \"$@\"";
    let mut command = Command::new(unshare);
    command.args(["--mount", "sh", "-c", shell]).arg(dir.join("group"));
    let may = Command::new("unshare").args(["--mount", "true"]).output().unwrap();
    if !may.status.success() {
        let why = String::from_utf8_lossy(&may.stderr);
        skip(&format!("no mount namespace can be made, which takes root: {why}"));
        return None;
    }
    command.arg(program);
    Some(command)
}

/// A certificate as certbot keeps it: numbered files in `archive`, links in `live`.
fn write_lineage(root: &Path, number: u32) -> String {
    let (archive, live) = (root.join("archive/example.com"), root.join("live/example.com"));
    fs::create_dir_all(&archive).unwrap();
    fs::create_dir_all(&live).unwrap();
    fs::set_permissions(root.join("archive"), fs::Permissions::from_mode(0o700)).unwrap();
    let file = |name: &str| archive.join(format!("{name}{number}.pem"));
    let (signed, _) = write_certificate(&file("fullchain"), &file("privkey"));
    fs::set_permissions(file("privkey"), fs::Permissions::from_mode(0o600)).unwrap();
    for name in ["fullchain", "privkey"] {
        let link = live.join(format!("{name}.pem"));
        let _ = fs::remove_file(&link);
        symlink(format!("../../archive/example.com/{name}{number}.pem"), link).unwrap();
    }
    signed
}

/// Runs a hook of the page for the first certificate and, under a running server, for the next.
fn deploys(mark: &str, variables: impl Fn(&Path) -> Vec<(&'static str, String)>) {
    if tool("curl").is_none() {
        return;
    }
    let dir = TempDir::new();
    let (root, tls) = (dir.path().join("letsencrypt"), dir.path().join("tls"));
    let hook = dir.path().join("hook");
    let text = with(&recipe(mark), &[("/etc/stentor/tls", tls.to_str().unwrap())]);
    write_program(&hook, &text);
    let deploy = |path: &str| -> Option<()> {
        let mut command = where_the_group_is(dir.path(), &hook)?;
        command.env("PATH", path).envs(variables(&root.join("live/example.com")));
        run_well(&mut command);
        Some(())
    };
    // Before there is a server, nothing is there to reload.
    write_lineage(&root, 1);
    write_program(&dir.path().join("systemctl"), "#!/bin/sh\nexit 0\n");
    let before = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let Some(()) = deploy(&before) else { return };
    let toml =
        format!("tls_cert = '{0}/fullchain.pem'\ntls_key = '{0}/privkey.pem'\n", tls.display());
    let flags = ["--workers", "1", "--listen", "tls:127.0.0.2:0"];
    let mut server = Server::with("", &toml, &flags);
    let address = server.child.logged("public listener at https://");
    let path = with_systemctl(dir.path(), &server);
    let signed = write_lineage(&root, 2);
    deploy(&path);
    server.child.logged("INFO reloaded");
    let trusted = dir.path().join("trusted.pem");
    fs::write(&trusted, signed).unwrap();
    let url = format!("https://{address}/-/stentor.js");
    let said = curl(&["--cacert", trusted.to_str().unwrap(), &url]).unwrap();
    assert!(said.status.success(), "it shows the new certificate: {said:?}");
    let of = |name: &str| fs::metadata(tls.join(name)).unwrap();
    assert_eq!((of("").mode() & 0o7777, of("").gid()), (0o750, GROUP_ID));
    for name in ["fullchain.pem", "privkey.pem"] {
        assert_eq!((of(name).mode() & 0o7777, of(name).gid()), (0o640, GROUP_ID), "{name}");
    }
}

#[test]
fn the_hook_for_certbot_deploys_a_renewed_certificate() {
    deploys("# /etc/letsencrypt/renewal-hooks/deploy/stentor", |lineage| {
        let domains = "example.com www.example.com".to_owned();
        vec![("RENEWED_LINEAGE", lineage.display().to_string()), ("RENEWED_DOMAINS", domains)]
    });
}

#[test]
fn the_hook_for_lego_deploys_a_renewed_certificate() {
    deploys("# /usr/local/bin/stentor-certificates", |lineage| {
        let file = |name: &str| lineage.join(name).display().to_string();
        vec![("LEGO_CERT_PATH", file("fullchain.pem")), ("LEGO_CERT_KEY_PATH", file("privkey.pem"))]
    });
}

/// certbot's webroot: what it puts below the directory is what the challenge asks for.
#[test]
fn the_recipe_for_a_webroot_answers_a_challenge() {
    let dir = TempDir::new();
    let root = dir.path().join("acme");
    let challenges = root.join(".well-known/acme-challenge");
    fs::create_dir_all(&challenges).unwrap();
    let toml = with(
        &recipe("path = \"/.well-known/acme-challenge/\""),
        &[("/var/www/acme", root.to_str().unwrap())],
    );
    let server = Server::configured(&toml);
    fs::write(challenges.join("token-1"), "token-1.thumbprint").unwrap();
    let answer = server.public.get("/.well-known/acme-challenge/token-1").expect(200);
    assert_eq!(answer.text(), "token-1.thumbprint");
    server.public.get("/.well-known/acme-challenge/token-2").expect(404);
}
