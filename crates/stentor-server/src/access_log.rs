//! The access log: a line for each answer, written by a thread of its own.
//!
//! A worker renders its lines into memory and leaves them, at the end of its turn, where the one
//! thread that writes (`writer.rs`) takes them: a swap under a lock that is never held while
//! anything is written. So a slow disk, a full one or a pipe that nobody reads costs lines, which
//! are counted, and no worker's time. What there may be left for the writer is bounded in bytes.
//!
//! No client can forge a line or put anything but printable ASCII into one: whatever it sends is
//! escaped, as nginx does it in the one format and as JSON does it in the other. What is secret in
//! an address is never kept at all ([`Text::of`]).
//!
//! Without an access log there is none of this: a worker looks once for each request whether there
//! is one.

mod writer;

use crate::limits::{ACCESS_LOG_BYTES_MAX, GATHER_BYTES};
use crate::line_writer::lines_of;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::Thread;
use std::time::Duration;
use stentor_config::{AccessFormat, AccessTarget, Log, date_of};
use stentor_io::Slab;
use stentor_io::{Counter, lock};
use stentor_wire::http1::{outline, without_secrets};
use stentor_wire::packed;
use time::Month;
use writer::Writer;

/// An answer that is to be logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) text: &'a Text,
    pub(crate) kind: &'static str,
    pub(crate) status: u16,
    /// Bytes of its body, as it was made for this client.
    pub(crate) body_bytes: u64,
    /// How long it took.
    pub(crate) us: u64,
}

/// What a line says of a request in the client's own words.
#[derive(Debug)]
pub(crate) struct Text {
    line: Box<[u8]>,
    referer: Option<Box<[u8]>>,
    user_agent: Option<Box<[u8]>>,
}

packed!(struct Text { line, referer, user_agent });

impl Text {
    /// What the head says that `bytes` begins with, be it good, refused or unfinished.
    pub(crate) fn of(bytes: &[u8]) -> Text {
        let outline = outline(bytes);
        Text {
            line: without_secrets(outline.line).into(),
            referer: outline.referer.map(|referer| without_secrets(referer).into()),
            user_agent: outline.user_agent.map(Box::from),
        }
    }

    /// The request line alone, cut to [`LINE_SHOWN_BYTES_MAX`].
    pub(crate) fn line_of(bytes: &[u8]) -> Box<str> {
        let line = without_secrets(outline(bytes).line);
        String::from_utf8_lossy(&line[..line.len().min(LINE_SHOWN_BYTES_MAX)]).into()
    }

    /// What it takes on the heap, in bytes.
    pub(crate) fn own_bytes(&self) -> usize {
        let fields = [&self.referer, &self.user_agent].into_iter().flatten();
        size_of::<Text>() + self.line.len() + fields.map(|field| field.len()).sum::<usize>()
    }
}

/// What all workers share of the access log.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    format: AccessFormat,
    /// What each worker has left to be written.
    left: Mutex<Vec<Arc<Mutex<Vec<u8>>>>>,
    /// Who writes it, once somebody does.
    thread: OnceLock<Thread>,
    ended: Mutex<Option<mpsc::Receiver<()>>>,
    is_to_reopen: AtomicBool,
    is_closing: AtomicBool,
    /// Lines that could not be written.
    lost: AtomicU64,
}

impl AccessLog {
    /// The log that is configured, if one is.
    pub(crate) fn of(settings: &Log) -> Option<Arc<AccessLog>> {
        settings.access.as_ref().map(|_| Arc::new(AccessLog::new(settings.access_format)))
    }

    /// A log that nobody writes yet.
    pub(crate) fn new(format: AccessFormat) -> AccessLog {
        AccessLog { format, ..AccessLog::default() }
    }

    /// Has it written there from now on, by a thread that is as privileged as the calling one.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread to be had.
    pub(crate) fn start(self: &Arc<AccessLog>, target: &AccessTarget) -> io::Result<()> {
        let writer = Writer::open(target)?;
        let (ends, ended) = mpsc::channel();
        let log = Arc::clone(self);
        let thread =
            std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
                writer.run(&log);
                // Nobody listens if nobody waits for the end.
                let _ = ends.send(());
            })?;
        *lock(&self.ended) = Some(ended);
        self.thread.get_or_init(|| thread.thread().clone());
        Ok(())
    }

    /// One worker's side of it.
    pub(crate) fn lines(self: &Arc<AccessLog>) -> Lines {
        let left = Arc::default();
        lock(&self.left).push(Arc::clone(&left));
        let clock = Clock { unix_s: u64::MAX, text: String::new() };
        Lines { log: Arc::clone(self), left, bytes: Vec::new(), addresses: Slab::default(), clock }
    }

    /// Has the file opened anew: it was renamed.
    pub(crate) fn reopen(&self) {
        self.is_to_reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Has everything written that is left, now that no worker is. Waits for that, unless it takes
    /// too long.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.wake();
        if let Some(ended) = lock(&self.ended).take() {
            // Whoever does not read its pipe does not keep the process.
            let _ = ended.recv_timeout(CLOSE_MAX);
        }
    }

    /// Lines that could not be written. Those that workers dropped they count themselves.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// So many lines were lost before, in another process.
    pub(crate) fn were_lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
    }

    /// Takes what is left to be written, one worker's after the other's. Returns whether there was
    /// anything.
    fn take(&self, mut write: impl FnMut(&[u8]), bytes: &mut Vec<u8>) -> bool {
        let all = lock(&self.left).clone();
        let mut has_any = false;
        for left in all {
            std::mem::swap(&mut *lock(&left), bytes);
            if !bytes.is_empty() {
                has_any = true;
                write(bytes);
                bytes.clear();
                bytes.shrink_to(GATHER_BYTES * 2);
            }
        }
        has_any
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

#[cfg(test)]
impl AccessLog {
    /// All lines that nobody has written.
    pub(crate) fn read(&self) -> String {
        let mut text = Vec::new();
        self.take(|bytes| text.extend_from_slice(bytes), &mut Vec::new());
        String::from_utf8(text).expect("a log is ASCII")
    }
}

/// One worker's lines.
#[derive(Debug)]
pub(crate) struct Lines {
    log: Arc<AccessLog>,
    left: Arc<Mutex<Vec<u8>>>,
    /// The lines of this turn.
    bytes: Vec<u8>,
    /// Where each connection comes from: its record has no room for it.
    addresses: Slab<Address>,
    clock: Clock,
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) enum Address {
    /// From another process: the socket knows it.
    #[default]
    Unknown,
    Ip(IpAddr),
    /// By a socket file.
    Unix,
}

impl Address {
    fn of(address: Option<IpAddr>) -> Address {
        address.map_or(Address::Unix, |address| Address::Ip(address.to_canonical()))
    }
}

// What an access log costs for a connection.
const _: () = assert!(size_of::<Address>() <= 17);

impl Lines {
    /// A connection begins.
    pub(crate) fn begin(&mut self, index: usize, address: Option<IpAddr>) {
        *self.addresses.grow(index) = Address::of(address);
    }

    /// Where the connection of that number comes from. If another process has accepted it,
    /// `of_socket` returns the address.
    pub(crate) fn address(
        &mut self,
        index: usize,
        of_socket: impl FnOnce() -> Option<IpAddr>,
    ) -> Address {
        let address = self.addresses.grow(index);
        if *address == Address::Unknown {
            *address = Address::of(of_socket());
        }
        *address
    }

    /// Adds the line of an answer on a connection from there, which came in by a listener, and of
    /// which it may be known whose it is.
    pub(crate) fn push(
        &mut self,
        address: Address,
        came: (&str, Option<&str>),
        answered: &Answered<'_>,
        unix_s: u64,
        dropped: &Counter,
    ) {
        let format = self.log.format;
        self.clock.set(unix_s, format);
        let (out, time) = (&mut self.bytes, self.clock.text.as_str());
        // Writing to a vector does not fail.
        let _ = match format {
            AccessFormat::Combined => combined(out, time, address, answered),
            AccessFormat::Json => json(out, time, address, came, answered),
        };
        if self.bytes.len() >= GATHER_BYTES {
            self.hand_over(dropped);
        }
    }

    /// Leaves the lines of this turn to whoever writes them; drops them if it is too far behind.
    pub(crate) fn hand_over(&mut self, dropped: &Counter) {
        if self.bytes.is_empty() {
            return;
        }
        let mut left = lock(&self.left);
        if left.is_empty() {
            std::mem::swap(&mut *left, &mut self.bytes);
        } else if left.len() + self.bytes.len() <= ACCESS_LOG_BYTES_MAX {
            left.extend_from_slice(&self.bytes);
        } else {
            dropped.add(lines_of(&self.bytes));
        }
        drop(left);
        self.bytes.clear();
        self.log.wake();
    }
}

/// The time as it stands in a line, made once a second.
#[derive(Debug)]
struct Clock {
    unix_s: u64,
    text: String,
}

impl Clock {
    fn set(&mut self, unix_s: u64, format: AccessFormat) {
        if self.unix_s == unix_s {
            return;
        }
        self.unix_s = unix_s;
        let date = date_of(unix_s);
        self.text = match format {
            AccessFormat::Combined => {
                // "2026-11-22T07:47:53Z"
                let (year, day, time) = (&date[..4], &date[8..10], &date[11..19]);
                let month =
                    date[5..7].parse::<u8>().ok().and_then(|month| Month::try_from(month).ok());
                let month = month.unwrap_or(Month::January).to_string();
                format!("{day}/{}/{year}:{time} +0000", &month[..3])
            }
            AccessFormat::Json => date,
        };
    }
}

/// The combined format of NCSA, as nginx writes it.
fn combined(
    out: &mut Vec<u8>,
    time: &str,
    address: Address,
    answered: &Answered<'_>,
) -> io::Result<()> {
    let Answered { text, status, body_bytes, .. } = *answered;
    match address {
        Address::Unknown => out.push(b'-'),
        Address::Ip(address) => write!(out, "{address}")?,
        Address::Unix => out.extend_from_slice(b"unix:"),
    }
    write!(out, " - - [{time}] \"")?;
    escape(out, Some(&text.line), escaped_as_nginx);
    write!(out, "\" {status} {body_bytes} \"")?;
    escape(out, text.referer.as_deref(), escaped_as_nginx);
    out.extend_from_slice(b"\" \"");
    escape(out, text.user_agent.as_deref(), escaped_as_nginx);
    out.extend_from_slice(b"\"\n");
    Ok(())
}

/// An object.
fn json(
    out: &mut Vec<u8>,
    time: &str,
    address: Address,
    (listener, client): (&str, Option<&str>),
    answered: &Answered<'_>,
) -> io::Result<()> {
    let Answered { text, status, body_bytes, kind, us } = *answered;
    write!(out, "{{\"time\":\"{time}\",\"address\":")?;
    match address {
        Address::Unknown => out.extend_from_slice(b"null"),
        Address::Ip(address) => write!(out, "\"{address}\"")?,
        Address::Unix => out.extend_from_slice(b"\"unix:\""),
    }
    write!(out, ",\"listener\":\"{listener}\"")?;
    if let Some(client) = client {
        out.extend_from_slice(b",\"client\":");
        json_string(out, Some(client.as_bytes()));
    }
    write!(out, ",\"kind\":\"{kind}\",\"request\":")?;
    json_string(out, Some(&text.line));
    let (s, us) = (us / 1_000_000, us % 1_000_000);
    write!(out, ",\"status\":{status},\"body_bytes\":{body_bytes},\"duration_s\":{s}.{us:06}")?;
    out.extend_from_slice(b",\"referer\":");
    json_string(out, text.referer.as_deref());
    out.extend_from_slice(b",\"user_agent\":");
    json_string(out, text.user_agent.as_deref());
    out.extend_from_slice(b"}\n");
    Ok(())
}

fn json_string(out: &mut Vec<u8>, text: Option<&[u8]>) {
    if text.is_none() {
        return out.extend_from_slice(b"null");
    }
    out.push(b'"');
    escape(out, text, escaped_as_json);
    out.push(b'"');
}

/// Writes what a client said in printable ASCII without quotes and backslashes of its own. What it
/// did not say, or left empty, is a dash.
fn escape(out: &mut Vec<u8>, text: Option<&[u8]>, escaped: fn(&mut Vec<u8>, &[u8])) {
    let Some(mut rest) = text.filter(|text| !text.is_empty()) else { return out.push(b'-') };
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| !is_plain(byte)).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        let foreign = rest.iter().position(is_plain).unwrap_or(rest.len());
        escaped(out, &rest[..foreign]);
        rest = &rest[foreign..];
    }
}

fn escaped_as_nginx(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a vector does not fail.
        let _ = write!(out, "\\x{byte:02X}");
    }
}

fn escaped_as_json(out: &mut Vec<u8>, bytes: &[u8]) {
    for unit in String::from_utf8_lossy(bytes).encode_utf16() {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// As much of a request line as is shown in the log of the server itself.
const LINE_SHOWN_BYTES_MAX: usize = 256;

/// So long the end of the process waits for its last lines to be written.
const CLOSE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
