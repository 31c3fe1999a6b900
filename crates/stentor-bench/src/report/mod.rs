//! What was measured: the types that are serialised as they are for `--json`, and shown as a table
//! or a page by the files beside this one.
//!
//! Times are microseconds, sizes bytes, rates per second; the names say so. A part that a run has
//! nothing to say of is absent.

mod compare;
mod facts;
mod figures;
mod html;
mod resolution;
#[cfg(test)]
mod tests;
mod text;
mod units;

use serde::Serialize;

pub use figures::{Better, Figure, Unit};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// "get", "put", "hold", "push" or "surge".
    pub command: &'static str,
    /// What was asked for.
    pub url: String,
    /// What the run was told, in the order to be shown: ("connections", "64"), …
    pub settings: Vec<(&'static str, String)>,
    /// Wall clock at the start, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it was measured.
    pub seconds: f64,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// Where it ran.
    pub machine: Machine,
    /// Requests and their answers: get and put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Connections and how they came to be.
    pub connections: Connections,
    /// Messages and who got them: push.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// Those who were there before: surge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bystanders: Option<Bystanders>,
    /// Memory, where it is known what the connections cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The watched process's processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// Errors by kind, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// What went over the sockets.
    pub bytes: Bytes,
    /// How it went, from a few to a few hundred points.
    pub timeline: Vec<Point>,
}

/// A machine, as far as it matters for a figure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// Such as "Linux 6.18.5".
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// The distribution of some times, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many were measured. With none, all else is 0.
    pub count: u64,
    /// The arithmetic mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 90 of 100 are at most this.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// The worst.
    pub max_us: f64,
    /// For a curve: (percentile from 0 to 100, microseconds), both rising.
    pub curve: Vec<(f64, f64)>,
}

/// Requests and their answers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Requests {
    /// Answers that arrived whole.
    pub completed: u64,
    /// The same per second.
    pub per_second: f64,
    /// Whether latency counts from when a request was due (open loop), not from when it was sent.
    pub open_loop: bool,
    /// From the request to the last byte of the answer.
    pub latency: Latency,
    /// Answers by status.
    pub statuses: Vec<(u16, u64)>,
}

impl Requests {
    /// Whether an answer was no error.
    pub(crate) fn has_success(&self) -> bool {
        self.statuses.iter().any(|(status, _)| (200..400).contains(status))
    }
}

/// Connections and how they came to be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Connections {
    /// As many as were asked for.
    pub wanted: u64,
    /// Connected, and answered as they should be.
    pub opened: u64,
    /// Of these, open at the end.
    pub open_at_end: u64,
    /// Ended by the server or the network though they should have stayed.
    pub dropped: u64,
    /// How long the opening took.
    pub opening_seconds: f64,
    /// Connections opened per second.
    pub per_second: f64,
    /// From `connect` to an established connection.
    pub connect: Latency,
    /// From `connect` to the first answer's head.
    pub first_answer: Latency,
}

/// Messages and who got them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Delivery {
    /// Readers that read all the time.
    pub readers: u64,
    /// Readers that stopped reading while messages were published.
    pub readers_stalled: u64,
    /// Messages published and accepted.
    pub published: u64,
    /// Published per second.
    pub published_per_second: f64,
    /// From the publisher's request to its answer.
    pub publish: Latency,
    /// Deliveries due: readers times messages.
    pub expected: u64,
    /// Deliveries made.
    pub delivered: u64,
    /// The same per second, from the first publish to the last delivery.
    pub delivered_per_second: f64,
    /// Due and never seen.
    pub missing: u64,
    /// Of these, at readers that were told of no gap: lost in silence.
    pub missing_untold: u64,
    /// Seen again.
    pub duplicates: u64,
    /// Seen after a later one.
    pub out_of_order: u64,
    /// Gap events, by which a server says that messages are missing.
    pub gaps_told: u64,
    /// Readers that got every message exactly once, in order.
    pub readers_complete: u64,
    /// From publishing to each reader.
    pub latency: Latency,
    /// The same of each server, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerDelivery>,
    /// For each message in turn: microseconds from publishing until the first and the last reader
    /// that reads all the time had it, and how many had it. At most some hundreds, evenly chosen.
    pub messages: Vec<MessageDelivery>,
    /// What became of the readers that stalled, once they read again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Stalled>,
}

/// What the readers of one of several servers got.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerDelivery {
    /// Where they read.
    pub url: String,
    /// Readers that read all the time.
    pub readers: u64,
    /// From publishing to each of them.
    pub latency: Latency,
}

/// One message's way to all readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MessageDelivery {
    /// Its number, from 1.
    pub number: u32,
    /// Readers that have it.
    pub readers: u64,
    /// Until the first reader had it.
    pub first_us: f64,
    /// Until the last reader had it.
    pub last_us: f64,
}

/// What became of the readers that stalled.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Stalled {
    /// Those that have the newest message in the end.
    pub current: u64,
    /// Messages they got.
    pub delivered: u64,
    /// Messages they did not get: left out by the server, told of or not.
    pub missing: u64,
    /// Gap events they were told.
    pub gaps_told: u64,
    /// Connections the server ended.
    pub dropped: u64,
}

/// Those who were there before a surge, by when their requests were due.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bystanders {
    /// How many connections.
    pub connections: u64,
    /// Of these, ended by the server or the network.
    pub dropped: u64,
    /// Requests that got no answer, or an error.
    pub failed: u64,
    /// Before the surge.
    pub before: Latency,
    /// While it came, until all newcomers were answered or had failed.
    pub during: Latency,
    /// After it.
    pub after: Latency,
    /// While the newcomers' connections timed out, if that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Latency>,
    /// How late the load generator itself was when a request came due: what is below it is not the
    /// server's.
    pub late: Latency,
    /// Readers that were there before, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Listeners>,
}

/// Readers who were there before a surge, and messages by when they were due to be published.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Listeners {
    /// How many.
    pub readers: u64,
    /// Of these, ended by the server or the network.
    pub dropped: u64,
    /// Messages published and accepted.
    pub published: u64,
    /// Deliveries made.
    pub delivered: u64,
    /// Due and never seen.
    pub missing: u64,
    /// The missing ones of readers that got no gap event: the server lost them in silence.
    pub missing_untold: u64,
    /// Seen again.
    pub duplicates: u64,
    /// From when a message was due to each reader: before the surge.
    pub before: Latency,
    /// During it.
    pub during: Latency,
    /// After it.
    pub after: Latency,
    /// While the newcomers' connections timed out, if that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Latency>,
}

/// What the connections cost, in bytes, from before the first to when all were open.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// Connections these were shared by.
    pub connections: u64,
    /// Growth of the watched process's resident memory; absent without a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<i64>,
    /// The watched process's resident memory with all connections open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_resident_bytes: Option<u64>,
    /// Growth of this process: the load generator.
    pub own_bytes: i64,
    /// Growth of the kernel's slabs and socket buffers: of one end on a remote server, of both
    /// ends on a local one.
    pub kernel_bytes: i64,
    /// Whether the kernel's figure is of both ends.
    pub both_ends: bool,
    /// What became unavailable on this machine meanwhile, all in all.
    pub machine_bytes: i64,
}

/// The watched process's processor time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Processor {
    /// While it was measured: requests answered, messages delivered, or connections opened.
    /// Without `baseline_seconds`.
    pub busy_seconds: f64,
    /// The bystanders' part in a surge, by the rate that was measured just before it.
    pub baseline_seconds: f64,
    /// The same for each request, delivery or connection.
    pub busy_us_each: f64,
    /// What "each" is: "request", "delivery" or "connection".
    pub each: &'static str,
    /// Of one core, while connections were held and nothing happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_share: Option<f64>,
}

/// How often something went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    /// Such as "connection refused", "status 503".
    pub kind: String,
    /// How often.
    pub count: u64,
}

/// What went over the sockets, heads and framing included.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Bytes {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
}

/// One moment of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Point {
    /// Seconds since the start.
    pub at_s: f64,
    /// Connections open.
    pub connections: u64,
    /// Requests answered, or messages delivered, per second since the point before.
    pub per_second: f64,
    /// Errors so far.
    pub errors: u64,
    /// The watched process's resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
}

/// The same plan on several servers, in alternating rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// "get", "put", "hold", "push" or "surge".
    pub command: &'static str,
    /// Rounds made of each.
    pub rounds: usize,
    /// The servers, in the order they were named; ratios are to the first.
    pub subjects: Vec<Subject>,
    /// Why there are fewer rounds than were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One server's rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// What was asked for.
    pub url: String,
    /// One report for each round.
    pub reports: Vec<Report>,
}
