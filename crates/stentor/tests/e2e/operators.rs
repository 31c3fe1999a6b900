//! Certificates of operators: who is let in at a control listener that asks for them, by clients
//! that nobody here has written and by the commands.

use crate::support::{
    Child, Server, TempDir, curl, eventually, python_of_host, run, stentor, tool, write_pair,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server whose operators show certificates, and two of those: one that was signed for it, one by
/// somebody else.
struct Guarded {
    server: Server,
    control: SocketAddr,
    dir: TempDir,
}

impl Guarded {
    fn start(start: impl Fn(&str) -> Server, toml: &str) -> Guarded {
        let dir = TempDir::new();
        let write = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
        let [certificate, key] = ["server.pem", "server.key"].map(|name| dir.path().join(name));
        write_pair(&["127.0.0.2"], &certificate, &key);
        for (signer, operator) in [("signer", "ann"), ("stranger", "eve")] {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, signer);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let signed = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap());
            let signer_of = signed.unwrap();
            write(&format!("{signer}.pem"), signer_of.pem());
            let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
            params.distinguished_name.push(DnType::CommonName, operator);
            params.distinguished_name.push(DnType::OrganizationName, "Operators");
            let signed = params.signed_by(&key, &signer_of).unwrap();
            write(&format!("{operator}.pem"), signed.pem());
            write(&format!("{operator}.key"), key.serialize_pem());
        }
        let at = |name: &str| dir.path().join(name).display().to_string();
        let (shown, key, signers) = (at("server.pem"), at("server.key"), at("signer.pem"));
        let mut server = start(&format!(
            "tls_cert = '{shown}'\ntls_key = '{key}'\ncontrol_client_ca = '{signers}'\n{toml}"
        ));
        let control = server.child.logged("control listener at tls:").parse().unwrap();
        Guarded { server, control, dir }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What curl is answered that publishes; `None` if it is not let in.
    fn publish(&self, operator: Option<&str>, more: &[&str]) -> Option<Option<String>> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let url = format!("https://{}/a", self.control);
        let mut args = vec!["--cacert".to_owned(), text(&self.file("server.pem"))];
        if let Some(operator) = operator {
            let files = ["pem", "key"].map(|end| text(&self.file(&format!("{operator}.{end}"))));
            let [certificate, key] = files;
            args.extend(["--cert".to_owned(), certificate, "--key".to_owned(), key]);
        }
        let request = ["-i", "-H", "Content-Type: text/plain", "-X", "PUT", "-d", "x"];
        let args = args.iter().map(String::as_str).chain(request).chain(more.iter().copied());
        let output = curl(&args.chain([url.as_str()]).collect::<Vec<_>>())?;
        let answer = String::from_utf8(output.stdout).unwrap();
        Some(output.status.success().then_some(answer))
    }

    fn logged(&mut self, line: &str) -> String {
        self.server.child.logged(line)
    }
}

#[test]
fn nobody_comes_in_without_a_certificate_that_was_signed_for_it() {
    for version in ["1.2", "1.3"] {
        let mut guarded = Guarded::start(Server::beside_tls, "");
        let only = ["--tls-max", version];
        let Some(answer) = guarded.publish(Some("ann"), &only) else { return };
        assert!(answer.unwrap().starts_with("HTTP/1.1 201 "));
        assert_eq!(guarded.publish(None, &only), Some(None));
        let line = guarded.logged("a client from 127.0.0.");
        assert!(line.contains(" is not let in: it shows no certificate (1 since "), "{line}");
        assert_eq!(guarded.publish(Some("eve"), &only), Some(None));
        guarded.server.settled("tls_failed/client_certificate", 2);
        let said = guarded.server.child.err();
        assert_eq!(said.matches(" is not let in: ").count(), 1, "once a minute: {said}");
    }
    let mut guarded = Guarded::start(Server::beside_tls, "");
    assert_eq!(guarded.publish(Some("eve"), &[]), Some(None));
    let line = guarded.logged("a client from 127.0.0.");
    assert!(line.contains("not let in: its certificate is signed by nobody that is"), "{line}");
}

#[test]
fn who_is_refused_something_is_named_in_the_log_and_in_that_of_the_next_process() {
    let log = "[log]\naccess = 'stderr'\naccess_format = 'json'\n";
    let mut guarded = Guarded::start(Server::of_copy_beside_tls, log);
    let Some(openssl) = tool("openssl") else { return };
    let mut command = Command::new(openssl);
    command.args(["s_client", "-ign_eof", "-connect"]).arg(guarded.control.to_string());
    command.arg("-cert").arg(guarded.file("ann.pem")).arg("-key").arg(guarded.file("ann.key"));
    let mut client = Child::spawn(command.stdin(Stdio::piped()));
    let mut input = client.input();
    // Pages of other sites do not publish.
    let put = b"PUT /a HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.example\r\n\
        Content-Length: 0\r\n\r\n";
    for round in 1..=2 {
        let asked = input.write_all(put);
        assert!(asked.is_ok(), "{}{}", client.out(), client.err());
        let line = "a request is refused with 403, sent by O=Operators,CN=ann (1 refused since ";
        eventually("the log names who is refused", || {
            (guarded.server.child.err().matches(line).count() == round).then_some(())
        });
        let client = "\"listener\":\"control\",\"client\":\"O=Operators,CN=ann\",";
        eventually("so does the access log", || {
            (guarded.server.child.err().matches(client).count() == round).then_some(())
        });
        guarded.server.child.upgrade();
    }
    assert_eq!(client.out().matches("HTTP/1.1 403 ").count(), 2, "{}", client.out());
}

#[test]
fn python_operates_with_a_certificate_and_shows_it_each_time() {
    for version in ["1.2", "1.3"] {
        let guarded = Guarded::start(Server::beside_tls, "");
        let operate = |shown: Option<&str>| {
            let mut command = python_of_host("tls_operator.py")?;
            command.arg(guarded.control.port().to_string());
            command.arg(guarded.file("server.pem")).arg(version);
            if let Some(name) = shown {
                command.args(["pem", "key"].map(|end| guarded.file(&format!("{name}.{end}"))));
            }
            Some(Child::spawn(&mut command).said())
        };
        let Some(said) = operate(Some("ann")) else { return };
        let expected = "PUT 201 \nGET 200 by python\nresumed False\n\
                        PUT 200 \nGET 200 by python\nresumed False\n";
        assert_eq!(said.out, expected, "{version}: {}", said.err);
        for shown in [None, Some("eve")] {
            let said = operate(shown).unwrap();
            assert!(said.out.starts_with("refused: "), "{version}: {}{}", said.out, said.err);
            assert_eq!(said.out.lines().count(), 1, "{version}: {}", said.out);
        }
        guarded.server.settled("tls_failed/client_certificate", 2);
        assert_eq!(guarded.server.figure("counters/tls_resumed"), 0, "each shows it anew");
    }
}

/// Our own tools operate such a server.
#[test]
fn commands_show_a_certificate_where_they_are_asked_for_one() {
    let mut guarded = Guarded::start(Server::of_copy_beside_tls, "");
    let url = format!("https://{}", guarded.control);
    let [ca, cert, key] =
        ["server.pem", "ann.pem", "ann.key"].map(|name| guarded.file(name).display().to_string());
    let run_as = |command: &[&str], shown: &[&str]| run(&[command, &["--ca", &ca], shown].concat());
    let ann = ["--cert", &cert, "--key", &key];
    let publish = ["pub", "--control", &url, "/a", "one"];
    let said = run_as(&publish, &ann);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let said = run_as(&publish, &[]);
    assert_eq!(said.code, Some(1));
    let expected = "it lets nobody in who does not show it a certificate\n\n  \
                    tip: --cert FILE names the certificate to show\n";
    assert!(said.err.ends_with(expected), "{}", said.err);
    let eve = [guarded.file("eve.pem"), guarded.file("eve.key")].map(|f| f.display().to_string());
    let said = run_as(&publish, &["--cert", &eve[0], "--key", &eve[1]]);
    assert!(said.err.contains("it does not trust the certificate that it was"), "{}", said.err);
    let said = run_as(&["status", "--server", &url], &ann);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let sub = [&["sub", "--server", &url, "/a", "--ca", &ca][..], &ann].concat();
    let sub = Child::spawn(&mut stentor(sub));
    eventually("the value is printed", || (sub.out() == "one\n").then_some(()));
    let target = format!("{url}/a");
    let bench = ["bench", "get", &target, "--connections", "1", "--duration", "50ms"];
    let said = run_as(&bench, &[&ann[..], &["--json"]].concat());
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let before = guarded.server.child.id();
    let said = run_as(&["upgrade", "--server", &url], &ann);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    guarded.server.child.taken_over(before);
}
