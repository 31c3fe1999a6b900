//! Hosts of keys that are down, slow, or lie.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use stentor_http_client::agent;
use stentor_io::read_file;

use super::*;
use crate::mint::Signer;
use crate::{Algorithm, Keys, Refused, Settings, load};

const NOW: u64 = 1_800_000_000;
const CLAIMS: &str = r#"{"exp":1800000060,"stentor":{"read":["/a"]}}"#;

/// Long for what is on this host, short for a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing waits long here, except for an answer.
const TIMES: Times = Times { gap: Duration::from_millis(1), retry: Duration::from_millis(1) };

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn document(signer: &Signer, kid: &str) -> String {
    format!(r#"{{"keys":[{}]}}"#, signer.jwk(kid))
}

/// A host that gives one answer after the other, and the last one for ever. Each tells that it was
/// asked for.
fn host(answers: Vec<String>) -> (JwksUrl, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let (asked, told) = channel();
    thread::spawn(move || {
        for i in 0.. {
            let Ok((mut socket, _)) = listener.accept() else { return };
            head(&mut socket);
            if asked.send(()).is_err() {
                return;
            }
            let _ = socket.write_all(answers[answers.len().min(i + 1) - 1].as_bytes());
        }
    });
    (url.parse().unwrap(), told)
}

/// Reads the head of a request.
fn head(socket: &mut impl Read) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
}

/// Starts the threads of all URLs, and has them fetch.
fn start(jwt: &Jwt, times: Times, on_change: impl Fn() + Send + Sync + 'static) -> JwksThread {
    let agents = agents(jwt, WHOLE, read_file, agent).unwrap();
    let thread = JwksThread::with_times(jwt, &[], agents, times, on_change).unwrap();
    thread.documents().refresh();
    thread
}

/// A thread for one address, and what it tells.
fn fetching(url: &JwksUrl, change: impl FnOnce(&mut Jwt)) -> (JwksThread, Receiver<()>) {
    let mut jwt = Jwt { jwks_urls: vec![url.clone()], jwks_refresh_s: 0, ..Jwt::default() };
    change(&mut jwt);
    let (sender, changes) = channel();
    let thread = start(&jwt, TIMES, move || {
        let _ = sender.send(());
    });
    (thread, changes)
}

fn keys(thread: &JwksThread) -> Keys {
    let fetched = thread.documents().fetched().into_iter().filter_map(|it| it.document);
    load(&Settings::default(), &fetched.collect::<Vec<_>>(), read_file).unwrap().keys
}

fn once(url: &JwksUrl) -> Result<Vec<Arc<Jwks>>, String> {
    fetch_once(&Jwt { jwks_urls: vec![url.clone()], ..Jwt::default() }, read_file, agent)
}

#[test]
fn a_new_key_is_good_when_its_document_was_fetched_and_an_old_one_is_gone() {
    let (old, new) = (Signer::new(Algorithm::Es256), Signer::new(Algorithm::EdDsa));
    let (url, _asked) = host(vec![ok(&document(&old, "1")), ok(&document(&new, "2"))]);
    let (thread, changes) = fetching(&url, |jwt| jwt.jwks_refresh_s = 3_600);
    changes.recv_timeout(PATIENCE).unwrap();
    let first = keys(&thread);
    assert!(first.verify(&old.token(Some("1"), CLAIMS), NOW).is_ok());
    let unknown = new.token(Some("2"), CLAIMS);
    assert_eq!(first.verify(&unknown, NOW), Err(Refused::UnknownKey));
    // It takes an hour, unless somebody has seen that a key is missing.
    thread.documents().refresh();
    changes.recv_timeout(PATIENCE).unwrap();
    let second = keys(&thread);
    assert!(second.verify(&unknown, NOW).is_ok());
    assert!(second.verify(&old.token(Some("1"), CLAIMS), NOW).is_err());
    assert_eq!(thread.documents().states()[0].keys, Some(1));
}

/// Tokens of unknown keys cause a fetch once per `gap`, not one each.
#[test]
fn unknown_keys_have_a_document_fetched_once_in_a_while() {
    let signer = Signer::new(Algorithm::Es256);
    let (url, asked) = host(vec![ok(&document(&signer, "1"))]);
    let jwt = Jwt { jwks_urls: vec![url], jwks_refresh_s: 3_600, ..Jwt::default() };
    let times = Times { gap: Duration::from_millis(200), ..TIMES };
    let begin = Instant::now();
    let thread = start(&jwt, times, || {});
    let mut fetched = 0;
    while fetched < 4 {
        thread.documents().refresh();
        fetched += u32::from(asked.recv_timeout(Duration::from_millis(1)).is_ok());
    }
    assert!(begin.elapsed() >= 3 * times.gap, "{:?}", begin.elapsed());
}

#[test]
fn a_dropped_thread_ends_in_its_pause() {
    let (url, _asked) = host(vec![ok(&document(&Signer::new(Algorithm::Es256), "1"))]);
    let jwt = Jwt { jwks_urls: vec![url], ..Jwt::default() };
    let (sender, changes) = channel();
    let on_change = move || sender.send(()).unwrap();
    let times = Times { gap: 2 * PATIENCE, ..TIMES };
    let thread = start(&jwt, times, on_change);
    changes.recv_timeout(PATIENCE).unwrap();
    drop(thread);
    // The thread owns what it would call.
    assert_eq!(changes.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

/// An answer that is on its way may be older than what somebody has just missed.
#[test]
fn what_is_asked_for_during_a_fetch_is_fetched_behind_it() {
    let signer = Signer::new(Algorithm::Es256);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap()).parse().unwrap();
    let (thread, changes) = fetching(&url, |jwt| jwt.jwks_refresh_s = 3_600);
    let (mut socket, _) = listener.accept().unwrap();
    head(&mut socket);
    thread.documents().refresh();
    socket.write_all(ok(&document(&signer, "1")).as_bytes()).unwrap();
    drop(socket);
    changes.recv_timeout(PATIENCE).unwrap();
    let (asked, told) = channel();
    thread::spawn(move || asked.send(listener.accept()));
    assert!(told.recv_timeout(PATIENCE).is_ok(), "what was asked for is forgotten");
}

#[test]
fn the_last_good_document_stays_whatever_the_host_answers() {
    let signer = Signer::new(Algorithm::EdDsa);
    let good = document(&signer, "k");
    let two =
        format!(r#"{{"keys":[{},{}]}}"#, signer.jwk("k"), Signer::new(Algorithm::EdDsa).jwk("k"));
    let large = "x".repeat(JWKS_BYTES_MAX + 1);
    let lies = [
        (ok("<html>"), "not a JWKS document"),
        (ok(""), "not a JWKS document"),
        (ok(r#"{"keys":[]}"#), "no key that can be used"),
        (ok(&two), "two different keys have the kid 'k'"),
        (ok(&document(&Signer::new(Algorithm::Hs256), "s")), "everybody can fetch it"),
        (ok(&large), "limit"),
        (ok(&good).replace("200 OK", "500 Oh"), "the answer is 500"),
        (ok(&good).replace("200 OK", "404 No"), "the answer is 404"),
        (
            ok(&good).replace("200 OK", "302 Over there\r\nlocation: http://127.0.0.1:1/"),
            "redirects are not followed",
        ),
        (ok(&good).replace("close", &"c".repeat(20_000)), "header is too big"),
        (ok(&good)[..ok(&good).len() - 10].to_owned(), "Peer disconnected"),
        ("SSH-2.0-OpenSSH\r\n".to_owned(), "http parse fail"),
        (String::new(), "Peer disconnected"),
    ];
    for (lie, reason) in &lies {
        let (url, _asked) = host(vec![lie.clone()]);
        let error = once(&url).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let mut answers = vec![ok(&good)];
    answers.extend(lies.iter().map(|(lie, _)| lie.clone()));
    let (url, asked) = host(answers);
    let (thread, changes) = fetching(&url, |_| {});
    for _ in 0..=lies.len() + 1 {
        asked.recv_timeout(PATIENCE).unwrap();
    }
    changes.recv_timeout(PATIENCE).unwrap();
    assert!(changes.try_recv().is_err(), "a lie changed something");
    assert!(keys(&thread).verify(&signer.token(Some("k"), CLAIMS), NOW).is_ok());
    assert!(
        thread.documents().states()[0].failures >= lies.len() as u64
            && thread.documents().states()[0].error.is_some()
    );
}

#[test]
fn a_document_that_is_the_same_changes_nothing() {
    let good = ok(&document(&Signer::new(Algorithm::EdDsa), "k"));
    let (url, asked) = host(vec![good]);
    let (_thread, changes) = fetching(&url, |_| {});
    for _ in 0..5 {
        asked.recv_timeout(PATIENCE).unwrap();
    }
    changes.recv_timeout(PATIENCE).unwrap();
    assert!(changes.try_recv().is_err());
}

#[test]
fn a_host_that_is_down_or_slow_holds_up_nobody() {
    let signer = Signer::new(Algorithm::EdDsa);
    // One that nobody listens at, one that takes the request and says nothing, one that is well.
    let down = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = down.local_addr().unwrap();
    drop(down);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (well, _asked) = host(vec![ok(&document(&signer, "k"))]);
    let urls = [address, silent.local_addr().unwrap()].map(|a| format!("http://{a}/").parse());
    let (thread, changes) = fetching(&well, |jwt| {
        jwt.jwks_urls.extend(urls.map(Result::unwrap));
        jwt.jwks_urls.rotate_left(1);
    });
    let held = silent.accept().unwrap();
    changes.recv_timeout(PATIENCE).unwrap();
    assert!(keys(&thread).verify(&signer.token(Some("k"), CLAIMS), NOW).is_ok());
    let states = thread.documents().states();
    assert_eq!([states[0].keys, states[1].keys, states[2].keys], [None, None, Some(1)]);
    // It ends by itself when nobody wants it any more.
    drop((thread, held));
}

#[test]
fn an_answer_that_does_not_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url: JwksUrl = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let drip = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        head(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while socket.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let jwt = Jwt { jwks_urls: vec![url.clone()], ..Jwt::default() };
    let agents = agents(&jwt, Duration::from_millis(200), read_file, agent).unwrap();
    let error = fetch(&agents[0], &url).unwrap_err();
    assert!(error.contains("timeout"), "{error}");
    drip.join().unwrap();
}

#[test]
fn hosts_are_known_by_their_certificates() {
    let signer = Signer::new(Algorithm::EdDsa);
    let (url, certificate) = https_host(ok(&document(&signer, "k")));
    let path = std::env::temp_dir().join(format!("stentor-access-ca-{}", std::process::id()));
    std::fs::write(&path, certificate).unwrap();
    let jwt = |ca: &Path| Jwt {
        jwks_urls: vec![url.clone()],
        jwks_ca_file: Some(ca.to_owned()),
        ..Jwt::default()
    };
    let jwks = fetch(&agents(&jwt(&path), WHOLE, read_file, agent).unwrap()[0], &url).unwrap();
    assert_eq!(jwks.count(), 1);
    // By the certificate of another host it is not.
    let (_, other) = https_host(String::new());
    std::fs::write(&path, other).unwrap();
    let error = fetch(&agents(&jwt(&path), WHOLE, read_file, agent).unwrap()[0], &url).unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    std::fs::write(&path, "nothing").unwrap();
    let error = agents(&jwt(&path), WHOLE, read_file, agent).unwrap_err();
    assert!(error.contains("there is no certificate in it"), "{error}");
    std::fs::remove_file(&path).unwrap();
}

/// A host that speaks TLS and always answers the same, and its certificate.
fn https_host(answer: String) -> (JwksUrl, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream: StreamOwned<_, TcpStream> = StreamOwned::new(connection, socket);
            head(&mut stream);
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (format!("https://localhost:{port}/keys").parse().unwrap(), cert.pem())
}

/// Runs itself in a process that has a proxy in its environment, at a port where nothing listens.
#[test]
fn an_address_on_this_host_is_fetched_without_a_proxy() {
    const NAME: &str = "fetch::tests::an_address_on_this_host_is_fetched_without_a_proxy";
    if std::env::var_os("STENTOR_TEST_PROXIED").is_none() {
        let own = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(own);
        child.args([NAME, "--exact"]).env("STENTOR_TEST_PROXIED", "1");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            child.env(name, "http://127.0.0.1:1").env(name.to_lowercase(), "http://127.0.0.1:1");
        }
        let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (plain, _asked) = host(vec![ok(&document(&Signer::new(Algorithm::Es256), "1"))]);
    let (other, pem) = https_host(ok("{}"));
    let ca = std::env::temp_dir().join(format!("stentor-proxied-{}", std::process::id()));
    std::fs::write(&ca, pem).unwrap();
    let (thread, changes) = fetching(&plain, |jwt| {
        jwt.jwks_urls.push(other);
        jwt.jwks_ca_file = Some(ca.clone());
        jwt.jwks_refresh_s = 3_600;
    });
    let fetched = changes.recv_timeout(Duration::from_secs(20));
    std::fs::remove_file(ca).unwrap();
    assert!(fetched.is_ok(), "{:?}", thread.documents().states());
    let states = thread.documents().states();
    assert_eq!((states[0].keys, states[1].keys), (Some(1), None), "{states:?}");
}

#[test]
fn waits_grow_and_differ() {
    let second = Duration::from_secs(1);
    assert_eq!(backoff(second, 1, u32::MAX), second);
    assert_eq!(backoff(second, 1, 0), second / 2);
    assert_eq!(backoff(second, 4, u32::MAX), second * 8);
    for failures in [7, 17, 40, u32::MAX] {
        assert_eq!(backoff(second, failures, u32::MAX), RETRY_MAX);
        assert_eq!(backoff(second, failures, 0), RETRY_MAX / 2);
    }
}

/// A host that failed once is then fetched from at the usual interval again.
#[test]
fn a_document_that_is_fetched_ends_the_backoff() {
    let good = ok(&document(&Signer::new(Algorithm::EdDsa), "k"));
    let (url, asked) = host(vec![String::new(), good]);
    let (thread, changes) = fetching(&url, |jwt| jwt.jwks_refresh_s = 3_600);
    changes.recv_timeout(PATIENCE).unwrap();
    for _ in 0..2 {
        asked.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(thread.documents().states()[0].failures, 1);
    assert!(asked.recv_timeout(50 * TIMES.retry).is_err(), "it was asked again at once");
}
