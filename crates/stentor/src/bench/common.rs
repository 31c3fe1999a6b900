//! The flags that every run has, and what they come to.

use std::path::PathBuf;

use clap::Args;
use stentor_bench::network::Network;
use stentor_bench::plan::{Plan, Setup};
use stentor_bench::target::Target;

use crate::Failure;
use crate::args::usage;
use crate::trust::TrustFlags;

/// Flags of one kind of run.
pub(super) trait Flags: Args {
    /// A plan for each server.
    fn plans(&self, setups: Vec<Setup>) -> Result<Vec<Plan>, Failure>;
}

/// Flags of every kind of run.
#[derive(Args, Debug)]
#[command(next_help_heading = "For every run")]
pub(super) struct Common {
    /// A header field of every request; may be repeated
    ///
    /// Written as 'Name: value'. 'Host' replaces the one made from the URL. Fields that say where
    /// a request ends, or what becomes of its connection, are the load generator's own.
    #[arg(long, value_name = "FIELD", value_parser = field)]
    header: Vec<(String, String)>,
    /// Threads [default: one per core, and more if the limit of open files asks for it]
    ///
    /// Each has a file table of its own, and so may hold as many connections as the limit of open
    /// files says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4_096))]
    threads: Option<u16>,
    /// Source addresses, such as 127.1.0.0/16 [default: on loopback as many as are needed]
    ///
    /// A network or one address of this machine. An address has some 28,000 ports for one server,
    /// so more connections than that need several. All of 127.0.0.0/8 is there on loopback; other
    /// addresses have to be given to this machine first.
    #[arg(long, value_name = "NETWORK")]
    from: Option<Network>,
    /// Process of the server, if it is on this machine: shows its memory and processor time
    ///
    /// One process: of a server with several, the one that does the work (nginx: a worker, not the
    /// master). With several servers, name the process of each, in the order of the URLs.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Print JSON instead of a table
    ///
    /// Times are in microseconds, sizes in bytes; the names of the fields say so.
    #[arg(short, long)]
    pub(super) json: bool,
    /// Do not show on the terminal how it goes
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Write a report with charts to this file, too
    ///
    /// One page that needs no other file and no network, for browsers and for paper. An older one
    /// is replaced when the run is over. It shows the command without values of queries, the body
    /// that is published, and header fields that may hold credentials.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// The target is mine, though its address is a public one
    ///
    /// Without this flag only loopback, private, link-local and shared addresses are connected to.
    /// A load test of somebody else's server is an attack on it.
    #[arg(long)]
    pub(super) i_own_this_server: bool,
    #[command(flatten)]
    pub(super) trust: TrustFlags,
}

impl Common {
    /// What is to be connected to, and how, for each of `targets`.
    pub(super) fn setups(&self, targets: &[Target]) -> Result<Vec<Setup>, Failure> {
        if !self.pid.is_empty() {
            same_number("--pid", self.pid.len(), targets.len())?;
        }
        let mut setups = Vec::with_capacity(targets.len());
        for (i, target) in targets.iter().enumerate() {
            if let Some(network) = &self.from {
                network.check_family(target.address.ip()).map_err(usage)?;
                network.check_here().map_err(|error| usage(format!("--from: {error}")))?;
            }
            let (target, headers) = take_host(target, &self.header)?;
            let (threads, pid) = (self.threads.map(usize::from), self.pid.get(i).copied());
            let sources = self.from;
            let (trust, identity) = (None, None);
            setups.push(Setup { target, headers, threads, sources, pid, trust, identity });
        }
        Ok(setups)
    }
}

/// Whether a flag that goes with the URLs was given once for each of them.
pub(super) fn same_number(flag: &str, given: usize, urls: usize) -> Result<(), Failure> {
    if given == urls {
        return Ok(());
    }
    Err(usage(format!("{flag} is needed once for each URL: {urls} wanted, {given} given")))
}

/// A header field as an argument: `Name: value`.
pub(super) fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("'{}' has no colon: write 'Name: value'", text.escape_debug()))?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("'{}' is not the name of a header field", name.escape_debug()));
    }
    if let Some(ours) = OURS.iter().find(|ours| ours.eq_ignore_ascii_case(name)) {
        return Err(format!("{ours} is the load generator's own field: it cannot be chosen"));
    }
    let value = value.trim_matches([' ', '\t']);
    if let Some(c) = value.chars().find(|c| !matches!(c, '\t' | ' '..='~')) {
        return Err(format!("'{}' cannot stand in a header field", c.escape_debug()));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// The target, and the other fields, after a `Host` among the fields has replaced the target's.
pub(super) fn take_host(
    target: &Target,
    fields: &[(String, String)],
) -> Result<(Target, Vec<(String, String)>), Failure> {
    let is_host = |(name, _): &(String, String)| name.eq_ignore_ascii_case("Host");
    let (hosts, others): (Vec<_>, Vec<_>) = fields.iter().cloned().partition(is_host);
    let mut target = target.clone();
    let mut hosts = hosts.into_iter();
    if let Some((_, host)) = hosts.next() {
        target.host = host;
    }
    match hosts.next() {
        Some(_) => Err(usage("a request has one Host: give it once")),
        None => Ok((target, others)),
    }
}

/// Fields that say where a request ends or what becomes of its connection.
const OURS: [&str; 11] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    // What a WebSocket is asked for with; no extension is understood.
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let good = |text: &str| field(text).unwrap();
        assert_eq!(good("Accept: a/b"), ("Accept".to_owned(), "a/b".to_owned()));
        assert_eq!(good("X:\t a: b \t"), ("X".to_owned(), "a: b".to_owned()));
        assert_eq!(good("X:"), ("X".to_owned(), String::new()));
        for (text, part) in [
            ("Accept", "no colon"),
            (": x", "name"),
            ("A b: x", "name"),
            ("A : x", "name"),
            ("É: x", "name"),
            ("X: a\r\nY: b", "cannot stand"),
            ("X: a\nY: b", "cannot stand"),
            ("X\r\nY: b", "name"),
            ("X: \u{7f}", "cannot stand"),
            ("X: é", "cannot stand"),
            ("content-length: 3", "Content-Length is"),
            ("TRANSFER-ENCODING: chunked", "own field"),
            ("Connection: close", "own field"),
            ("Sec-WebSocket-Extensions: permessage-deflate", "own field"),
        ] {
            let error = field(text).expect_err(text);
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_host_is_replaced_once() {
        let target = Target::parse("http://127.0.0.1:80/a").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = [pair("X", "1"), pair("host", "example.com")];
        let (taken, rest) = take_host(&target, &fields).unwrap();
        assert_eq!((taken.host.as_str(), rest), ("example.com", vec![pair("X", "1")]));
        assert_eq!(taken.address, target.address);
        let twice = [pair("Host", "a"), pair("HOST", "b")];
        assert!(matches!(take_host(&target, &twice), Err(Failure::Usage(_))));
    }
}
