//! A connection to a broker: two threads, of which one only reads.
//!
//! Everything that comes is put into the channel of the thread that knows what to make of it, with
//! the number of the connection; the channel is bounded, so a node that is slow is read slowly.
//! What is to be written is gathered, and written at one go.

use super::wire::{self, Said};
use crate::cluster::Input;
use crate::config::Cluster as Settings;
use serde::Deserialize;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

/// A connection that is up.
pub(super) struct Link {
    socket: TcpStream,
    out: Vec<u8>,
    /// The largest message that the broker takes.
    pub(super) payload_max: usize,
    /// Names the run of the broker.
    pub(super) server_id: String,
}

/// What a broker says of itself.
#[derive(Deserialize)]
struct About {
    #[serde(default)]
    server_id: String,
    #[serde(default)]
    max_payload: usize,
    #[serde(default)]
    headers: bool,
    #[serde(default)]
    jetstream: bool,
    #[serde(default)]
    tls_required: bool,
}

impl Link {
    /// Connects to a broker, at `host:port`, and has what comes sent to `inputs`.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn connect(
        address: &str,
        settings: &Settings,
        name: &str,
        number: u32,
        inputs: SyncSender<Input>,
    ) -> Result<Link, String> {
        let told = |error: io::Error| error.to_string();
        let addresses = address.to_socket_addrs().map_err(told)?;
        let mut result = Err("it has no address".to_owned());
        for address in addresses {
            result = TcpStream::connect_timeout(&address, CONNECT_MAX).map_err(told);
            if result.is_ok() {
                break;
            }
        }
        let mut socket = result?;
        socket.set_nodelay(true).map_err(told)?;
        socket.set_read_timeout(Some(CONNECT_MAX)).map_err(told)?;
        socket.set_write_timeout(Some(WRITE_MAX)).map_err(told)?;
        let mut rest = Vec::new();
        let Said::Info(info) = hear(&mut socket, &mut rest)? else {
            return Err("it does not begin as a server of NATS does".to_owned());
        };
        let about: About = serde_json::from_slice(&info).map_err(|error| error.to_string())?;
        if !about.headers || !about.jetstream {
            return Err("it has no JetStream: begin it with --jetstream".to_owned());
        }
        if about.tls_required {
            return Err("it asks for TLS, which is not there yet".to_owned());
        }
        let mut out = Vec::new();
        wire::connect(&options(settings, name)?, &mut out);
        socket.write_all(&out).map_err(told)?;
        loop {
            match hear(&mut socket, &mut rest)? {
                Said::Pong => break,
                Said::Error(reason) => return Err(reason),
                _ => {}
            }
        }
        socket.set_read_timeout(None).map_err(told)?;
        let reader = socket.try_clone().map_err(told)?;
        let run = move || read_all(reader, rest, number, &inputs);
        thread::Builder::new().name("cluster-read".to_owned()).spawn(run).map_err(told)?;
        out.clear();
        let About { max_payload: payload_max, server_id, .. } = about;
        Ok(Link { socket, out, payload_max, server_id })
    }

    /// What is to be written.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes it.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.socket.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Whoever reads it ends by that.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// How a node shows itself to a broker.
fn options(settings: &Settings, name: &str) -> Result<String, String> {
    let read = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(text.trim().to_owned())
    };
    let mut options = serde_json::json!({
        "verbose": false,
        "pedantic": false,
        "name": name,
        "lang": "stentor",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": 1,
        "headers": true,
        "no_responders": true,
    });
    if let Some(user) = &settings.user {
        options["user"] = user.clone().into();
    }
    if let Some(path) = &settings.password_file {
        options["pass"] = read(path)?.into();
    }
    if let Some(path) = &settings.token_file {
        options["auth_token"] = read(path)?.into();
    }
    Ok(options.to_string())
}

/// Waits for what is said next.
fn hear(socket: &mut TcpStream, rest: &mut Vec<u8>) -> Result<Said, String> {
    loop {
        if let Some((said, length)) = wire::read(rest)? {
            rest.drain(..length);
            return Ok(said);
        }
        let mut buffer = [0; 4_096];
        let bytes = socket.read(&mut buffer).map_err(|error| error.to_string())?;
        if bytes == 0 {
            return Err("it ended the connection".to_owned());
        }
        rest.extend_from_slice(&buffer[..bytes]);
    }
}

/// Reads until the connection ends.
fn read_all(mut socket: TcpStream, mut bytes: Vec<u8>, number: u32, inputs: &SyncSender<Input>) {
    let mut buffer = vec![0; READ_BYTES];
    let broken = loop {
        let (mut all, mut used) = (Vec::new(), 0);
        let failed = loop {
            match wire::read(&bytes[used..]) {
                Ok(Some((said, length))) => {
                    all.push(said);
                    used += length;
                }
                Ok(None) => break None,
                Err(reason) => break Some(reason),
            }
        };
        bytes.drain(..used);
        if !all.is_empty() && inputs.send(Input::Said(number, all)).is_err() {
            return;
        }
        if let Some(reason) = failed {
            break reason.to_owned();
        }
        match socket.read(&mut buffer) {
            Ok(0) => break "it ended the connection".to_owned(),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error.to_string(),
        }
    };
    // Nobody hears it if that is how it was ended here.
    let _ = inputs.send(Input::Broken(number, broken));
}

const CONNECT_MAX: Duration = Duration::from_secs(3);

/// A broker that takes nothing for so long is given up.
const WRITE_MAX: Duration = Duration::from_secs(5);

const READ_BYTES: usize = 256 << 10;
