//! The figures of a server at one moment, as `/-/status` shows them and the metrics are read from.

use crate::operations::{History, OperationReport, Reloaded, Upgraded};
use crate::pressure::Pressure;
use crate::stats::{RouteTotals, Totals};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use stentor_hub::{Hub, Stored};
use stentor_order::Report;
use stentor_replication::{Follower, named};

/// The source of both forms of the page, and of the metrics.
#[derive(Serialize)]
pub(crate) struct ServerReport {
    pub(crate) version: &'static str,
    pub(crate) epoch: String,
    /// The number of the process.
    pub(crate) process: u32,
    pub(crate) uptime_s: u64,
    pub(crate) workers: usize,
    pub(crate) draining: bool,
    pub(crate) connections_open: u64,
    pub(crate) topics: usize,
    pub(crate) messages_published: u64,
    pub(crate) messages_kept: usize,
    pub(crate) messages_kept_bytes: usize,
    /// The memory that topics and messages take.
    pub(crate) stored: Stored,
    pub(crate) files_cached: u64,
    pub(crate) files_cached_bytes: u64,
    pub(crate) files_evicted: u64,
    /// Messages and files that topics and the cache have dropped and connections still hold.
    pub(crate) detached_bytes: usize,
    pub(crate) memory_resident_bytes: u64,
    pub(crate) memory_anonymous_bytes: u64,
    /// Only Prometheus has a name for these two.
    #[serde(skip)]
    pub(crate) memory_mapped_bytes: u64,
    #[serde(skip)]
    pub(crate) process_started_unix_s: u64,
    /// `none`, `high` or `critical`.
    pub(crate) memory_pressure: Pressure,
    /// How full memory is, in thousandths: of the control group, the host, TCP sockets.
    pub(crate) memory_load_per_mille: BTreeMap<&'static str, u64>,
    /// How often each of these was reached.
    pub(crate) memory_times_high: u64,
    pub(crate) memory_times_critical: u64,
    /// The process's own memory, values included, shared out over the open connections.
    pub(crate) memory_per_connection_bytes: Option<u64>,
    pub(crate) counters: Totals,
    /// Look-ups by route.
    pub(crate) lookups: Vec<RouteTotals>,
    /// The outcomes of upgrades.
    pub(crate) upgrades: OperationReport<Upgraded>,
    /// The outcomes of reloads, in this process.
    pub(crate) reloads: OperationReport<Reloaded>,
    /// Those that read feeds of this listener.
    pub(crate) followers: Vec<Follower>,
    /// Certificates; `null`: there are none.
    pub(crate) tls: Option<stentor_tls_layer::CertificatesReport>,
    /// The service that makes the order or keeps it.
    #[serde(flatten, serialize_with = "by_name")]
    pub(crate) service: Option<ServiceAndHub>,
}

/// A service, and the hub whose order it makes or keeps.
type ServiceAndHub = (Arc<dyn Report>, Arc<Hub>);

/// Shows the figures of a service as a member of its name, and `null` for each other service.
fn by_name<S: Serializer>(service: &Option<ServiceAndHub>, to: S) -> Result<S::Ok, S::Error> {
    let figures = |name| {
        let service = service.as_ref().filter(|(service, _)| service.name() == name);
        (name, service.map(|(service, hub)| Figures(service.figures(hub))))
    };
    to.collect_map(["store", "follow", "cluster"].map(figures))
}

/// Figures with their keys, in this order.
struct Figures(Vec<(&'static str, Value)>);

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl ServerReport {
    /// Connections that are neither read from nor written to now: idle ones, streams, long-polls.
    fn waiting(&self) -> u64 {
        let busy = self.counters.connections_reading + self.counters.connections_writing;
        self.connections_open.saturating_sub(busy)
    }

    /// The text known from nginx's `stub_status`, then what it does not have.
    pub(crate) fn text(&self) -> String {
        let c = &self.counters;
        let mut text = format!(
            "Active connections: {}\nserver accepts handled requests\n {} {} {}\n\
             Reading: {} Writing: {} Waiting: {}\n",
            self.connections_open,
            c.accepted,
            c.accepted.saturating_sub(c.connections_refused + c.proxy_headers_refused),
            c.requests,
            c.connections_reading,
            c.connections_writing,
            self.waiting(),
        );
        let kept = self.messages_kept_bytes;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "Topics: {} Messages: {} published, {} kept, {kept} bytes\n\
             Bytes: {} in, {} heads, {} bodies, {} streams, {} of them data\n\
             Readers: {} sse, {} websocket, {} long-poll, {} behind Deliveries: {}\n\
             Files: {} hits, {} misses, {} cached, {} bytes, {} evicted, {} bytes by sendfile\n\
             Memory: {} resident, {} own\n\
             Stored: {} values, {} history, {} forms, at most {} and {}; {} detached",
            self.topics,
            self.messages_published,
            self.messages_kept,
            c.bytes_in,
            c.bytes_heads,
            c.bytes_bodies,
            c.bytes_streams,
            c.bytes_streams_data,
            c.readers_sse,
            c.readers_websocket,
            c.readers_long_poll,
            c.readers_behind,
            c.deliveries,
            c.file_hits,
            c.file_misses,
            self.files_cached,
            self.files_cached_bytes,
            self.files_evicted,
            c.bytes_sendfile,
            self.memory_resident_bytes,
            self.memory_anonymous_bytes,
            self.stored.values,
            self.stored.history,
            self.stored.forms,
            self.stored.max,
            self.stored.forms_max,
            self.stored.detached,
        );
        self.write_lookups(&mut text);
        self.write_upgrades(&mut text);
        self.write_others(&mut text);
        text
    }

    /// Writes the parts that not every server has: followers, certificates, a service.
    fn write_others(&self, text: &mut String) {
        // Writing to a string does not fail.
        for Follower { behind, topics } in &self.followers {
            let _ = writeln!(text, "Follower: {behind} behind, {}", named(topics));
        }
        for shown in self.tls.iter().flat_map(|tls| &tls.certificates) {
            let _ = writeln!(text, "Certificate: {shown}");
        }
        if let Some(why) = self.tls.as_ref().and_then(|tls| tls.failure.as_ref()) {
            let _ = writeln!(text, "Certificates are not those of the files: {why}");
        }
        if let Some((service, hub)) = &self.service {
            let _ = writeln!(text, "{}", service.line(hub));
        }
    }

    /// Writes the outcomes of upgrades, if there were any.
    fn write_upgrades(&self, text: &mut String) {
        let OperationReport { under_way, history } = &self.upgrades;
        let History { done, failed, last, last_failure } = history;
        if !under_way && done + failed == 0 {
            return;
        }
        let now = if *under_way { "; one is under way" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "Upgrades: {done} done, {failed} failed{now}");
        if let Some(last) = last {
            let (from, us) = (last.from_process, last.stood_still_us);
            let _ = write!(text, "; process {from} stood still for {us} us");
        }
        if let Some(failure) = last_failure {
            let _ = write!(text, "; last failure: {}", failure.reason);
        }
        text.push('\n');
    }

    /// Writes a line for each look-up route.
    fn write_lookups(&self, text: &mut String) {
        for RouteTotals { path, requests, names } in &self.lookups {
            // Writing to a string does not fail.
            let _ = writeln!(text, "Look-ups at {path}: {requests} requests, {names} names");
        }
    }
}
