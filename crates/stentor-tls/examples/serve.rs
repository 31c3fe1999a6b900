//! A server that suites and clients of TLS can talk to, over blocking sockets:
//! `cargo run -p stentor-tls --example serve -- 127.0.0.1:4433 chain.pem key.pem`.
//!
//! It answers every `GET /N` with N bytes, and keeps the contract of the crate as a server has to:
//! what is left of the handshake is the session's, debts are settled, a cut of a record is written
//! on and never sealed again, and behind the last word the socket lingers. `--plain-rustls` serves
//! the same answers by rustls alone: what fails there is not ours to mend. `hostile/run tls-suites`
//! has the suites that use it.

use std::error::Error;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConnection};
use stentor_tls::{
    Acceptor, Alert, Certificates, ClientAuth, Contexts, Established, FRAGMENT_BYTES_MAX,
    HandshakeFault, Inbound, Owned, Pair, PemPair, Record, Settings, Tickets, Version,
};

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let options = Options::read(env::args().skip(1)).ok_or(USAGE)?;
    let listener = TcpListener::bind(&options.address)?;
    if options.plain_rustls {
        let config = Arc::new(options.config()?);
        accept(&listener, move |socket| serve_plain(&config, socket))
    } else {
        let acceptor = options.acceptor()?;
        accept(&listener, move |socket| serve(&acceptor, socket))
    }
}

fn accept(
    listener: &TcpListener,
    serve: impl Fn(TcpStream) -> Result<(), Failed> + Send + Sync + 'static,
) -> Result<(), Failed> {
    let serve = Arc::new(serve);
    loop {
        let (socket, _) = listener.accept()?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let serve = Arc::clone(&serve);
        thread::spawn(move || {
            if let Err(error) = serve(socket) {
                println!("{error}");
            }
        });
    }
}

/// A connection by this crate.
fn serve(acceptor: &Acceptor, mut socket: TcpStream) -> Result<(), Failed> {
    let (mut handshake, mut out, mut lent) = (acceptor.begin(), Vec::new(), vec![0; 16 * 1024]);
    let (Established { mut session, negotiated }, mut arrived) = loop {
        let len = socket.read(&mut lent)?;
        if len == 0 {
            return Ok(());
        }
        out.clear();
        let progress = handshake.receive(now_unix_s(), &lent[..len], &mut out);
        socket.write_all(&out)?;
        match progress {
            Ok(progress) => {
                if let Some(established) = progress.established {
                    break (established, lent[progress.used..len].to_vec());
                }
            }
            Err(error) => {
                if error.fault == HandshakeFault::NotTls {
                    socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
                }
                linger(socket)?;
                return Err(error.into());
            }
        }
    };
    println!("{negotiated:?}");
    drop(handshake);
    let (mut inbound, mut request) = (Inbound::default(), Vec::new());
    let mut contexts = Contexts::new(1, |_| ());
    loop {
        let mut records = inbound.records(&mut arrived);
        let last = loop {
            match records.next_with(&mut session.session(), &mut contexts) {
                Ok(Some(Record::Data(bytes))) => {
                    request.extend_from_slice(bytes);
                    if answer(&mut request, |bytes| seal(&mut session, &socket, bytes))? {
                        break Some(Alert::CloseNotify);
                    }
                }
                Ok(Some(Record::Closed)) => break Some(Alert::CloseNotify),
                Ok(None) => break None,
                Err(failure) => {
                    println!("{failure}");
                    let Some(alert) = failure.alert() else { return linger(socket) };
                    break Some(alert);
                }
            }
        };
        let mut out = [0; 100];
        if let Some(alert) = last {
            let written = session.session().end(alert, &mut out)?;
            socket.write_all(&out[..written])?;
            return linger(socket);
        }
        records.keep();
        let written = session.session().settle(&mut out)?;
        socket.write_all(&out[..written])?;
        let len = socket.read(&mut lent)?;
        if len == 0 {
            return Ok(());
        }
        arrived = lent[..len].to_vec();
    }
}

/// Seals and sends all of `bytes`.
fn seal(session: &mut Owned, mut socket: &TcpStream, mut bytes: &[u8]) -> Result<(), Failed> {
    let mut out = vec![0; FRAGMENT_BYTES_MAX + 100];
    while !bytes.is_empty() {
        let sealed =
            session.session().seal(&[IoSlice::new(bytes)], FRAGMENT_BYTES_MAX, &mut out)?;
        socket.write_all(&out[..sealed.written])?;
        bytes = &bytes[sealed.taken..];
    }
    Ok(())
}

/// A connection by rustls alone.
fn serve_plain(config: &Arc<ServerConfig>, mut socket: TcpStream) -> Result<(), Failed> {
    let mut connection = ServerConnection::new(Arc::clone(config))?;
    let (mut request, mut lent) = (Vec::new(), vec![0; FRAGMENT_BYTES_MAX]);
    loop {
        if connection.read_tls(&mut socket)? == 0 {
            return Ok(());
        }
        let outcome = connection.process_new_packets();
        let mut last = outcome.is_err();
        loop {
            match connection.reader().read(&mut lent) {
                Ok(len) if len > 0 => {
                    request.extend_from_slice(&lent[..len]);
                    last |=
                        answer(&mut request, |bytes| Ok(connection.writer().write_all(bytes)?))?;
                }
                // The client has closed.
                Ok(_) => {
                    last = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if last && outcome.is_ok() {
            connection.send_close_notify();
        }
        while connection.wants_write() {
            connection.write_tls(&mut socket)?;
        }
        if last {
            linger(socket)?;
            return Ok(outcome.map(|_| ())?);
        }
    }
}

/// Answers what is there of requests, and says whether nothing is to be sent behind that.
fn answer(
    request: &mut Vec<u8>,
    mut send: impl FnMut(&[u8]) -> Result<(), Failed>,
) -> Result<bool, Failed> {
    // Suites end their lines as they like.
    request.retain(|byte| *byte != b'\r');
    while let Some(end) = request.windows(2).position(|bytes| bytes == b"\n\n") {
        let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
        request.drain(..end + 2);
        let line = head.lines().next().unwrap_or_default();
        let path = line.split(' ').nth(1).unwrap_or_default();
        let bytes: usize = path.trim_start_matches('/').parse().unwrap_or(6);
        let closes = line.ends_with("/1.0") || head.contains("\nconnection: close");
        let connection = if closes { "Connection: close\r\n" } else { "" };
        let fields = format!("Content-Length: {bytes}\r\n{connection}\r\n");
        let mut whole = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{fields}");
        whole.extend("hello\n".chars().cycle().take(bytes));
        send(whole.as_bytes())?;
        if closes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets the other end read to the end: with something unread, a close would be a reset.
fn linger(mut socket: TcpStream) -> Result<(), Failed> {
    socket.shutdown(Shutdown::Write)?;
    let mut lent = [0; 4096];
    while socket.read(&mut lent).is_ok_and(|len| len > 0) {}
    Ok(())
}

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[derive(Default)]
struct Options {
    address: String,
    pairs: Vec<(PathBuf, PathBuf)>,
    client_ca: Option<PathBuf>,
    client_optional: bool,
    plain_rustls: bool,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
        let (mut options, mut files) = (Options::default(), Vec::new());
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--plain-rustls" => options.plain_rustls = true,
                "--client-optional" => options.client_optional = true,
                "--client-ca" => options.client_ca = Some(arguments.next()?.into()),
                _ => files.push(argument),
            }
        }
        let mut files = files.into_iter();
        options.address = files.next()?;
        while let Some(certificate) = files.next() {
            let key = files.next()?.into();
            options.pairs.push((certificate.into(), key));
        }
        Some(options)
    }

    fn acceptor(&self) -> Result<Acceptor, Failed> {
        let mut pairs = Vec::new();
        for (certificate, key) in &self.pairs {
            let (chain, secret) = (fs::read(certificate)?, fs::read(key)?);
            let pem = PemPair { certificate: (certificate, &chain), key: (key, &secret) };
            pairs.push(Pair::read(&pem, now_unix_s())?);
        }
        let client_auth = match &self.client_ca {
            None => None,
            Some(file) => Some(ClientAuth {
                file: file.clone(),
                pem: fs::read(file)?,
                required: !self.client_optional,
            }),
        };
        Ok(Acceptor::new(&Settings {
            certificates: Arc::new(Certificates::new(pairs)),
            tickets: Some(Arc::new(Tickets::random()?)),
            oldest: Version::Tls12,
            alpn: vec![b"http/1.1".to_vec()],
            client_auth,
        })?)
    }

    fn config(&self) -> Result<ServerConfig, Failed> {
        let (certificate, key) = self.pairs.first().ok_or(USAGE)?;
        let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
        let verifier = match &self.client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(file)?)?;
                let builder = WebPkiClientVerifier::builder(Arc::new(roots));
                let optional = self.client_optional;
                if optional { builder.allow_unauthenticated() } else { builder }.build()?
            }
        };
        let mut config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        Ok(config)
    }
}

/// How long nothing may come.
const PATIENCE: Duration = Duration::from_secs(20);

const USAGE: &str =
    "serve [--plain-rustls] [--client-ca FILE [--client-optional]] ADDRESS (CHAIN KEY)...";
