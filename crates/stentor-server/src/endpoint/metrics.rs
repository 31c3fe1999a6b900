//! `/-/metrics`: the Prometheus text format (version 0.0.4), written by hand from the counters.

use crate::context::Exchange;
use crate::endpoint::status::Report;
use std::fmt::Write;

/// `GET /-/metrics`
pub(crate) fn metrics(x: &mut Exchange<'_>) {
    let report = Report::now(x);
    x.reply.fresh("text/plain; version=0.0.4; charset=utf-8", text(&report).as_bytes());
}

fn text(report: &Report) -> String {
    let c = &report.counters;
    let mut page = Page(String::with_capacity(4096));
    page.family(
        "build_info",
        "gauge",
        "The running version.",
        &[(&format!("{{version=\"{}\",epoch=\"{}\"}}", report.version, report.epoch), 1)],
    );
    page.one("uptime_seconds", "gauge", "Time since the start.", report.uptime_s);
    page.one("workers", "gauge", "Worker threads.", report.workers as u64);
    page.family(
        "connections",
        "gauge",
        "Open connections by listener.",
        &[
            ("{listener=\"public\"}", c.connections_public),
            ("{listener=\"control\"}", c.connections_control),
        ],
    );
    page.family(
        "connections_busy",
        "gauge",
        "Of the open connections, those at work.",
        &[
            ("{doing=\"reading\"}", c.connections_reading),
            ("{doing=\"writing\"}", c.connections_writing),
        ],
    );
    page.one("connections_accepted_total", "counter", "Connections accepted.", c.accepted);
    let help = "Times accepting paused for want of files or memory.";
    page.one("accept_pauses_total", "counter", help, c.accept_pauses);
    page.one("timeouts_total", "counter", "Connections ended by a deadline.", c.timeouts);
    page.one("requests_total", "counter", "Requests received.", c.requests);
    page.family(
        "responses_total",
        "counter",
        "Responses by class of status.",
        &[
            ("{code=\"2xx\"}", c.answers_2xx),
            ("{code=\"304\"}", c.answers_304),
            ("{code=\"4xx\"}", c.answers_4xx),
            ("{code=\"5xx\"}", c.answers_5xx),
        ],
    );
    let help = "Values served in a compressed form.";
    page.one("responses_compressed_total", "counter", help, c.answers_compressed);
    page.one("lookups_total", "counter", "Names looked up many at a time.", c.lookups);
    page.one("received_bytes_total", "counter", "Bytes received.", c.bytes_in);
    page.family(
        "sent_bytes_total",
        "counter",
        "Bytes of responses by kind.",
        &[("{kind=\"heads\"}", c.bytes_heads), ("{kind=\"bodies\"}", c.bytes_bodies)],
    );
    page.one(
        "messages_published_total",
        "counter",
        "Messages published.",
        report.messages_published,
    );
    let help = "Messages refused.";
    page.one("messages_refused_total", "counter", help, c.publishes_refused);
    page.one("topics", "gauge", "Topics that have a value.", report.topics as u64);
    page.one("messages_kept", "gauge", "Messages in memory.", report.messages_kept as u64);
    let help = "Data of the messages in memory.";
    page.one("messages_kept_bytes", "gauge", help, report.messages_kept_bytes as u64);
    let help = "Memory of the process: resident.";
    page.one("memory_resident_bytes", "gauge", help, report.memory_resident_bytes);
    let help = "Memory of the process: its own, without mapped files.";
    page.one("memory_anonymous_bytes", "gauge", help, report.memory_anonymous_bytes);
    page.0
}

struct Page(String);

impl Page {
    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help, &[("", value)]);
    }

    /// One metric with its samples: labels in braces, value.
    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(&str, u64)]) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP stentor_{name} {help}\n# TYPE stentor_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "stentor_{name}{labels} {value}");
        }
    }
}
