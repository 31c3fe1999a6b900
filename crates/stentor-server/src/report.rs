//! The figures of a server at one moment, as `/-/status` shows them and the metrics are read from.

use crate::operations::{OperationReport, Reloaded, Upgraded};
use crate::pressure::Pressure;
use crate::stats::{RouteTotals, Totals};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use stentor_hub::{Hub, Stored};
use stentor_order::Report;
use stentor_replication::Follower;

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
    /// New connections that the kernel dropped, and those that it answered with a SYN cookie: at
    /// all listeners of this host or container.
    pub(crate) host_listen_overflows: u64,
    pub(crate) host_syn_cookies: u64,
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
    /// The text known from nginx's `stub_status`, then a line for each figure of the JSON form.
    pub(crate) fn text(&self) -> String {
        let Totals { accepted, requests, connections_reading, connections_writing, .. } =
            self.counters;
        let refused = self.counters.connections_refused + self.counters.proxy_headers_refused;
        let busy = connections_reading + connections_writing;
        let mut text = format!(
            "Active connections: {}\nserver accepts handled requests\n {accepted} {} {requests}\n\
             Reading: {connections_reading} Writing: {connections_writing} Waiting: {}\n",
            self.connections_open,
            accepted.saturating_sub(refused),
            self.connections_open.saturating_sub(busy),
        );
        // Numbers and strings always make JSON.
        write_figures(&mut text, "", &serde_json::to_value(self).unwrap_or_default());
        text
    }
}

/// Writes a line for each figure below a path, but for those that are `null`.
fn write_figures(text: &mut String, path: &str, figure: &Value) {
    match figure {
        Value::Null => {}
        Value::Object(members) => {
            members.iter().for_each(|(key, it)| write_figures(text, &format!("{path}.{key}"), it));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, it)| write_figures(text, &format!("{path}.{index}"), it));
        }
        // Writing to a string does not fail.
        _ => drop(writeln!(text, "{}: {figure}", path.trim_start_matches('.'))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_line() {
        let figures = serde_json::json!({
            "a": {"b": 1, "none": null, "c": ["x", {"d": true}]}, "e": "it is\n\"gone\"", "f": [],
        });
        let mut text = String::new();
        write_figures(&mut text, "", &figures);
        let lines = ["a.b: 1", "a.c.0: \"x\"", "a.c.1.d: true", r#"e: "it is\n\"gone\"""#, ""];
        assert_eq!(text, lines.join("\n"));
    }
}
