//! The metrics that the server writes, read from the rows of `metrics!` in the source.

use std::collections::BTreeSet;
use std::mem;

use crate::source::{rust, strings, words};

/// A row of `metrics!`: a metric that the server writes.
pub struct Metric {
    /// Its whole name.
    pub name: String,
    /// As Prometheus calls it: counter, gauge or histogram.
    pub kind: &'static str,
    /// What it counts.
    pub help: String,
    /// Where `/-/status` has it, if a worker counts it.
    pub counters: Vec<String>,
    /// The names of its labels.
    pub labels: BTreeSet<String>,
}

/// All of them: those of the server, and of each service that has a table of its own.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    let sources = rust();
    let libraries = sources.iter().filter(|file| file.path.starts_with("crates/"));
    let tables = libraries
        .filter_map(|file| Some((file.text.split_once("metrics! { |")?.1, file.text.as_str())));
    tables.flat_map(|(table, file)| metrics_of(table, file)).collect()
}

/// Those of a table, and whatever comes behind it.
fn metrics_of(table: &str, file: &str) -> Vec<Metric> {
    let mut help = Vec::new();
    let mut all: Vec<Metric> = Vec::new();
    let lines = table.lines().take_while(|line| !["}", "    }"].contains(line));
    for line in lines.map(str::trim).filter(|line| !line.starts_with("// ")) {
        let parts: Vec<&str> = line.split([' ', '[', ']', ',', ';']).collect();
        if let Some(text) = line.strip_prefix("/// ") {
            help.push(text);
        } else if let [kind, name, ..] = parts[..]
            && let Some((_, kind)) = KINDS.iter().find(|(row, _)| *row == kind)
        {
            let prefix = if name.starts_with("process_") { "" } else { "stentor_" };
            let name = format!("{prefix}{name}");
            let help = mem::take(&mut help).join(" ");
            all.push(Metric { name, kind, help, counters: Vec::new(), labels: BTreeSet::new() });
        }
        let Some(metric) = all.last_mut() else { continue };
        metric.labels.extend(labels_of(line, file));
        // A counter stands behind the labels, or alone.
        let sample = line.rsplit(['}', '[']).next().unwrap_or_default().trim_start();
        let counter: &str = sample.split([' ', ',', ']']).next().unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if line.contains(['[', '{']) && !counter.is_empty() && counter.chars().all(is_name) {
            metric.counters.push(format!("`counters.{counter}`"));
        }
    }
    all
}

/// The labels that a line of a row names: `{key = "value"}`, or `("key", value)` in an expression,
/// or in a function of the file that the expression calls.
fn labels_of(line: &str, file: &str) -> Vec<String> {
    if line.starts_with("///") {
        return Vec::new();
    }
    let named = line.split_once(" = \"").and_then(|(before, _)| before.trim().strip_prefix('{'));
    let called = words(line).filter_map(|word| file.split_once(&format!("\nfn {word}(")));
    let bodies = called.map(|(_, rest)| rest.split("\n}\n").next().unwrap_or_default());
    let texts = bodies.chain([line]).filter(|text| text.contains("label"));
    let pairs = texts.flat_map(|text| {
        let keys = strings(text).into_iter().filter(|key| text.contains(&format!("(\"{key}\", ")));
        keys.collect::<Vec<_>>()
    });
    named.into_iter().chain(pairs).map(str::to_owned).collect()
}

/// The names of the kinds in the rows, and those of Prometheus.
const KINDS: [(&str, &str); 4] = [
    ("Counter", "counter"),
    ("Gauge", "gauge"),
    ("LastingGauge", "gauge"),
    ("Histogram", "histogram"),
];
