//! TLS, by clients that nobody here has written.

use crate::support::{
    Browser, Child, Needles, Server, TempDir, curl, eventually, python_of_host, stentor, tool,
    write_pair,
};
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A server with TLS beside its listeners in the clear.
struct Secured {
    server: Server,
    public: SocketAddr,
    control: SocketAddr,
    certificate: PathBuf,
    _dir: TempDir,
}

impl Secured {
    fn start() -> Secured {
        Secured::of(Server::beside_tls, "")
    }

    fn of(start: impl Fn(&str) -> Server, toml: &str) -> Secured {
        let dir = TempDir::new();
        let (certificate, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        write_pair(&["localhost", "127.0.0.1", "127.0.0.2"], &certificate, &key_file);
        let (shown, key) = (certificate.display(), key_file.display());
        let mut server = start(&format!("tls_cert = '{shown}'\ntls_key = '{key}'\n{toml}"));
        let public = server.child.logged("public listener at https://").parse().unwrap();
        let control = server.child.logged("control listener at tls:").parse().unwrap();
        Secured { server, public, control, certificate, _dir: dir }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.public.port())
    }

    fn curl(&self, args: &[&str]) -> Option<(bool, String)> {
        let trusted = ["--cacert", self.certificate.to_str().unwrap()];
        let output = curl(&[&trusted, args].concat())?;
        let said = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
    }

    /// A curl that goes on reading a stream.
    fn streaming(&self, path: &str) -> Option<Child> {
        let mut command = Command::new(tool("curl")?);
        command.args(["-q", "-sS", "-N", "--noproxy", "*", "--max-time", "120", "--cacert"]);
        command.arg(&self.certificate).args(["-H", "Accept: text/event-stream"]);
        Some(Child::spawn(command.arg(self.url(path))))
    }
}

#[test]
fn curl_reads_publishes_and_downloads() {
    let files = TempDir::new();
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    fs::write(files.path().join("large"), &large).unwrap();
    let root = files.path().display();
    let toml = format!("[[static]]\npath = '/files/'\nroot = '{root}'\n");
    let secured = Secured::of(Server::beside_tls, &toml);
    let control = format!("https://{}/a", secured.control);
    let text = ["-H", "Content-Type: text/plain", "-X", "PUT", "-d", "hello"];
    let Some((true, said)) = secured.curl(&[&text[..], &[&control]].concat()) else { return };
    assert!(said.contains("\"id\":"), "{said}");
    for version in ["1.2", "1.3"] {
        let said = secured.curl(&["--tls-max", version, &secured.url("/a")]);
        assert_eq!(said.unwrap(), (true, "hello".to_owned()));
    }
    let out = files.path().join("out");
    let args = ["-o", out.to_str().unwrap(), &secured.url("/files/large")];
    assert!(secured.curl(&args).unwrap().0);
    assert!(fs::read(&out).unwrap() == large);
    let failures = secured.server.figure("counters/tls_failed/client");
    assert!(!curl(&[&secured.url("/a")]).unwrap().status.success(), "it is not to be trusted");
    secured.server.settled("tls_failed/client", failures + 1);
    assert_eq!(secured.server.figure("counters/tls_handshakes_12"), 1);
    assert_eq!(secured.server.figure("counters/tls_handshakes_13"), 3);
    secured.server.settled("tls_sessions", 0);
}

#[test]
fn whoever_mixes_up_the_ports_is_told_or_left_alone() {
    let secured = Secured::start();
    let port = secured.public.port();
    let Some((true, said)) = secured.curl(&["-i", &format!("http://localhost:{port}/a")]) else {
        return;
    };
    assert!(said.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{said}");
    let plain = format!("https://{}/a", secured.server.public.0);
    let (is_answered, said) = secured.curl(&[&plain]).unwrap();
    assert!(!is_answered && !said.contains("wrong version number"), "{said}");
    secured.server.settled("tls_failed/not_tls", 1);
    secured.server.settled("tls_failed/not_spoken_here", 1);
}

#[test]
fn python_reads_values_streams_and_websockets_and_resumes() {
    let secured = Secured::start();
    for version in ["1.2", "1.3"] {
        secured.server.publish("/a", "one");
        let Some(mut command) = python_of_host("tls_client.py") else { return };
        command.arg(secured.public.port().to_string()).arg(&secured.certificate).arg(version);
        let client = Child::spawn(&mut command);
        eventually("the stream has begun", || {
            client.out().contains("stream\n").then_some(()).or_else(|| {
                assert_eq!(client.err(), "");
                None
            })
        });
        secured.server.publish("/a", "two");
        let said = client.said();
        let values = "value one\n".repeat(3);
        let rest = "resumed True\nstream\nstream two\nsocket\nclosed\n";
        assert_eq!(said.out, values + rest, "{}", said.err);
    }
    assert!(secured.server.figure("counters/tls_resumed") >= 2);
}

#[test]
fn handshakes_across_an_upgrade_are_finished() {
    let mut secured = Secured::start();
    secured.server.publish("/a", "one");
    let Some(mut command) = python_of_host("tls_newcomers.py") else { return };
    command.arg(secured.public.port().to_string()).arg(&secured.certificate);
    let mut clients = Child::spawn(command.stdin(Stdio::piped()));
    eventually("clients connect", || clients.out().contains("begun\n").then_some(()));
    for _ in 0..3 {
        secured.server.child.upgrade();
    }
    drop(clients.input());
    let said = clients.said();
    assert!(said.out.contains(" failed 0\n"), "{}{}", said.out, said.err);
    assert!(!said.out.contains("answered 0 "), "{}", said.out);
}

#[test]
fn openssl_changes_keys_and_is_answered_under_others() {
    let secured = Secured::start();
    // What it prints is heard line by line.
    secured.server.publish("/a", "one\n");
    let Some(openssl) = tool("openssl") else { return };
    let mut command = Command::new(openssl);
    command.args(["s_client", "-alpn", "http/1.1", "-servername", "localhost", "-connect"]);
    command.arg(secured.public.to_string()).stdin(Stdio::piped());
    let mut client = Child::spawn(&mut command);
    let mut input = client.input();
    for round in 1..=3 {
        // It takes a letter for a command where one comes by itself.
        let asked = input.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(asked.is_ok(), "{}{}", client.out(), client.err());
        eventually("openssl is answered", || {
            (client.out().matches("\r\none").count() == round).then_some(())
        });
        input.write_all(b"K\n").unwrap();
        secured.server.settled("tls_key_updates", round as u64);
    }
    assert!(client.out().contains("ALPN protocol: http/1.1"), "{}", client.out());
}

#[test]
fn node_reads_a_stream() {
    let secured = Secured::start();
    secured.server.publish("/a", "one");
    let Some(node) = tool("node") else { return };
    let script = "
        const fs = require('fs'), https = require('https');
        const [url, ca] = process.argv.slice(1);
        const options = {ca: fs.readFileSync(ca), headers: {accept: 'text/event-stream'}};
        https.get(url, options, answer => {
            answer.setEncoding('utf8');
            answer.on('data', text => process.stdout.write(text));
        });";
    let mut command = Command::new(node);
    command.args(["-e", script, &secured.url("/a")]).arg(&secured.certificate);
    let client = Child::spawn(&mut command);
    for text in ["one", "two"] {
        eventually("node reads it", || {
            client.out().contains(&format!("data: {text}\n\n")).then_some(())
        });
        secured.server.publish("/a", "two");
    }
}

#[test]
fn a_browser_reads_streams_and_websockets() {
    let Some(mut browser) = Browser::start() else { return };
    let secured = Secured::start();
    let page = b"<!doctype html><title>streams</title><script>var heard = [];</script>";
    secured.server.control.put("/page", "text/html", page).expect_one_of(&[200, 201]);
    secured.server.publish("/a", "one");
    browser.open(&secured.url("/page"));
    browser.run(
        "window.source = new EventSource('/a');
         source.onmessage = e => heard.push('event ' + e.data);
         window.socket = new WebSocket(location.origin.replace('https', 'wss') + '/a');
         socket.onmessage = e => heard.push('frame ' + e.data);",
    );
    for text in ["one", "two"] {
        for way in ["event", "frame"] {
            eventually(&format!("the page hears the {way} {text}"), || {
                let heard = browser.run("return heard.join()");
                heard.as_str().unwrap().contains(&format!("{way} {text}")).then_some(())
            });
        }
        secured.server.publish("/a", "two");
    }
}

#[test]
fn streams_go_on_in_the_next_process() {
    let mut secured = Secured::of(Server::of_copy_beside_tls, "");
    secured.server.publish("/a", "text 0");
    let Some(mut reader) = secured.streaming("/a") else { return };
    for upgrades in 0..4 {
        let text = format!("data: text {upgrades}\n");
        eventually("curl hears it", || reader.out().contains(&text).then_some(()));
        // Whoever was there before it may be leaving.
        secured.server.settled("tls_sessions", 1);
        secured.server.child.upgrade();
        assert!(reader.is_running(), "{}", reader.err());
        secured.server.publish("/a", &format!("text {}", upgrades + 1));
        // New ones come in as well.
        let (is_answered, said) = secured.curl(&[&secured.url("/a")]).unwrap();
        assert!(is_answered, "{said}");
    }
    assert_eq!(reader.out().matches("retry:").count(), 1, "{}", reader.out());
}

/// No file has the secret of these tickets.
#[test]
fn tickets_are_resumed_after_an_upgrade() {
    let Some(openssl) = tool("openssl") else { return };
    let mut secured = Secured::of(Server::of_copy_beside_tls, "");
    secured.server.publish("/a", "text");
    let ticket = secured.server.dir.path().join("ticket").display().to_string();
    let connect = |secured: &Secured, flag: &str| {
        let request = "GET /a HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n";
        let script = format!(
            "printf '{request}' | {} s_client -connect 127.0.0.1:{} -servername localhost -ign_eof \
             {flag} {ticket}",
            openssl.display(),
            secured.public.port(),
        );
        Child::spawn(Command::new("sh").args(["-c", &script])).said().out
    };
    let first = connect(&secured, "-sess_out");
    assert!(first.contains("New, TLSv1.3"), "{first}");
    secured.server.child.upgrade();
    let second = connect(&secured, "-sess_in");
    assert!(second.contains("Reused, TLSv1.3"), "{second}");
}

#[test]
fn closed_sessions_leave_no_secret_in_memory() {
    sessions_leave_no_secret(Secured::start(), |_| {});
}

#[test]
fn closed_sessions_of_an_upgrade_leave_no_secret_in_memory() {
    sessions_leave_no_secret(Secured::of(Server::of_copy_beside_tls, ""), |server| {
        server.child.upgrade();
    });
}

/// Opens readers, does something to the server, closes the readers and searches the server's memory
/// for their secrets, with which a recording of their connections could be decrypted. The search is
/// known to work: while the readers are open, it finds the secrets of all of them.
fn sessions_leave_no_secret(mut secured: Secured, act: impl Fn(&mut Server)) {
    const READERS: usize = 300;
    const WITH_TLS13: usize = READERS - READERS / 10;
    secured.server.publish("/a", "one");
    let dir = TempDir::new();
    let Some(mut command) = python_of_host("tls_secrets.py") else { return };
    command.arg(secured.public.port().to_string()).arg(&secured.certificate);
    command.arg(dir.path().join("keys")).arg(READERS.to_string()).stdin(Stdio::piped());
    let mut client = Child::spawn(&mut command);
    let mut input = client.input();
    eventually("all streams are open", || {
        assert_eq!(client.err(), "");
        client.out().ends_with("open\n").then_some(())
    });
    secured.server.settled("tls_sessions", READERS as u64);
    act(&mut secured.server);
    let needles = Needles::of_lines(&client.out());
    let found = needles.count_in(secured.server.child.id());
    for name in ["SERVER_TRAFFIC_SECRET_0", "KEY_OF_SERVER_TRAFFIC_SECRET_0"] {
        assert_eq!(found.get(name), Some(&WITH_TLS13), "{found:?}");
    }
    input.write_all(b"\n").unwrap();
    let said = client.said();
    assert_eq!(said.code, Some(0), "{}", said.err);
    secured.server.settled("tls_sessions", 0);
    let found = needles.count_in(secured.server.child.id());
    assert!(found.is_empty(), "{found:?}");
}

/// Whoever has come by it keeps what was spoken there then.
#[test]
fn an_address_begins_to_speak_tls_over_an_upgrade_and_ends_it() {
    let Some(program) = tool("curl") else { return };
    let dir = TempDir::new();
    let [certificate, key_file, settings] =
        ["c.pem", "k.pem", "s.toml"].map(|n| dir.path().join(n));
    write_pair(&["127.0.0.1"], &certificate, &key_file);
    let configure = |listen: &str, control: &str, more: &str| {
        let toml = format!("workers = 2\nlisten = '{listen}'\ncontrol = '{control}'\n{more}");
        fs::write(&settings, toml).unwrap();
    };
    configure("127.0.0.1:0", "127.0.0.1:0", "");
    let mut server = Child::spawn(&mut stentor(["serve", "-c", settings.to_str().unwrap()]));
    let public = server.logged("public listener at http://");
    let control = server.logged("control listener at ");
    let publish = |text: &str| {
        let url = format!("http://{control}/a");
        assert!(curl(&["-X", "PUT", "-d", text, &url]).unwrap().status.success());
    };
    let stream = |scheme: &str| {
        let mut command = Command::new(&program);
        command.args(["-q", "-sS", "-N", "--noproxy", "*", "--max-time", "120", "--cacert"]);
        command.arg(&certificate).args(["-H", "Accept: text/event-stream"]);
        Child::spawn(command.arg(format!("{scheme}://{public}/a")))
    };
    let hears = |reader: &Child, text: &str| {
        let data = format!("data: {text}\n");
        eventually(&format!("{text} is heard"), || reader.out().contains(&data).then_some(()));
    };
    let with_tls =
        format!("tls_cert = '{}'\ntls_key = '{}'\n", certificate.display(), key_file.display());
    publish("0");
    let plain = stream("http");
    hears(&plain, "0");
    configure(&format!("tls:{public}"), &control, &with_tls);
    server.upgrade();
    let secured = stream("https");
    hears(&secured, "0");
    publish("1");
    [&plain, &secured].into_iter().for_each(|reader| hears(reader, "1"));
    let said = curl(&[&format!("http://{public}/a")]).unwrap().stdout;
    assert!(String::from_utf8_lossy(&said).contains("This port speaks TLS"), "{said:?}");
    configure(&public, &control, "");
    server.upgrade();
    let late = stream("http");
    hears(&late, "1");
    publish("2");
    [&plain, &secured, &late].into_iter().for_each(|reader| hears(reader, "2"));
    server.stop();
}
