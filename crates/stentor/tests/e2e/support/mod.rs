//! What every test needs: a server to talk to, a client to talk with, and the tools of the host.

mod browser;
mod client;
mod memory;
#[allow(dead_code, reason = "the other test programs need the rest of it")]
pub(crate) mod pages;
mod reader;
mod server;
mod signer;
mod site;
mod sse;
mod tools;
mod websocket;

pub(crate) use browser::Browser;
pub(crate) use client::{Client, Ending, Response, Url};
pub(crate) use memory::Needles;
pub(crate) use reader::{Heard, Reader, Way};
pub(crate) use server::{
    Child, Said, Server, TempDir, figure, refused_start, run, seq, serve, stentor,
};
pub(crate) use signer::{Signer, write_pair};
pub(crate) use site::{LONG_AGO, NO_CACHE, Site, becomes, kept, noise, vanishes};
pub(crate) use sse::{Event, EventStream, NOTICE};
pub(crate) use stentor_test::{is_root, missing, skip};
pub(crate) use tools::{
    TcpRow, between, built, curl, event_readers, gunzip, optional_tool, python, python_of_host,
    sandbox_without_openat2, tcp_table, tool,
};
pub(crate) use websocket::{
    BINARY, CLOSE, DEFLATED, FIN, Frame, Message, PING, PONG, TEXT, UPGRADE, WebSocket, header,
    masked,
};

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that should happen soon. Only a broken server or a machine that is
/// hopelessly overloaded reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again and again until `attempt` has something; `what` is said if it never does.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "never came true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Copies a program. Another process does so: while this one had the copy open for writing, a child
/// of another test could inherit that file, and nobody could run the copy (ETXTBSY).
pub(crate) fn install(from: &Path, to: &Path) {
    let mut install = Command::new("install");
    install.args(["-m", "755"]).args([from, to]);
    assert!(install.status().unwrap().success(), "{install:?}");
}

/// Writes a program, likewise.
pub(crate) fn write_program(file: &Path, text: &str) {
    let source = file.with_extension("source");
    fs::write(&source, text).unwrap();
    install(&source, file);
    fs::remove_file(source).unwrap();
}

/// An address where nobody listens. The kernel gives none of these ports away, so it is free for as
/// long as whoever is to listen there is away.
pub(crate) fn free_address() -> SocketAddr {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (process::id().wrapping_mul(101).wrapping_add(tried)) % 20_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port as u16)) {
            return listener.local_addr().unwrap();
        }
    }
}
