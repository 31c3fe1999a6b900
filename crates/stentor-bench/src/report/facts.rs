//! What a report says, in words: the rows that the table and the page have in common.
//!
//! A fact is a figure and what it is a figure of, "64" "of 64 opened"; a section is some facts
//! under a title. The table sets facts beside each other, the page below each other. A part that
//! was not measured has no section.

use std::borrow::Cow;

use super::units::{bytes, count, number, percent, printable, time_us};
use super::{Connections, Delivery, Latency, Memory, Processor, Report};

/// Facts of one kind.
pub(super) struct FactSection {
    pub(super) title: &'static str,
    pub(super) facts: Vec<Fact>,
}

/// A figure and what it is a figure of.
pub(super) struct Fact {
    pub(super) figure: String,
    pub(super) words: String,
}

/// All sections of a report but its latencies.
pub(super) fn sections(report: &Report) -> Vec<FactSection> {
    let mut sections = Vec::new();
    let mut add = |title, facts: Vec<Fact>| sections.push(FactSection { title, facts });
    if !report.errors.is_empty() {
        add("errors", errors(report));
    }
    if let Some(requests) = &report.requests {
        add("requests", self::requests(requests));
    }
    if let Some(delivery) = &report.delivery {
        add("delivery", self::delivery(delivery));
        if let Some(stalled) = &delivery.stalled {
            let facts = vec![
                fact(count(stalled.current), of(delivery.readers_stalled, "current in the end")),
                fact(count(stalled.delivered), "messages got"),
                fact(count(stalled.missing), "messages left out"),
                fact(count(stalled.gaps_told), "gaps told"),
                fact(count(stalled.dropped), "connections dropped"),
            ];
            add("stalled", facts);
        }
    }
    add("connections", connections(&report.connections));
    if let Some(bystanders) = &report.bystanders {
        let facts = vec![
            fact(count(bystanders.connections), "connections"),
            fact(count(bystanders.dropped), "dropped"),
            fact(count(bystanders.failed), "requests failed"),
        ];
        add("bystanders", facts);
        if let Some(listeners) = &bystanders.listeners {
            let facts = vec![
                fact(count(listeners.readers), "connections"),
                fact(count(listeners.dropped), "dropped"),
                fact(count(listeners.published), "messages published"),
                fact(count(listeners.delivered), "deliveries"),
                fact(count(listeners.missing), "missing"),
            ];
            add("readers", facts);
        }
    }
    if let Some(memory) = report.memory.as_ref().filter(|memory| memory.connections > 0) {
        let facts = self::memory(memory);
        if !facts.is_empty() {
            add("memory each", facts);
        }
    }
    if let Some(processor) = &report.processor {
        add("processor", self::processor(processor));
    }
    let mut facts = vec![fact(bytes(report.bytes.received as f64), "received")];
    if report.requests.is_some() {
        let each_second = report.bytes.received as f64 / report.seconds;
        facts.push(fact(format!("{}/s", bytes(each_second)), "received"));
    }
    facts.push(fact(bytes(report.bytes.sent as f64), "sent"));
    add("bytes", facts);
    sections
}

/// The distributions of a report in which something was measured, by name.
pub(super) fn latencies(report: &Report) -> Vec<(Cow<'_, str>, &Latency)> {
    let mut all: Vec<(Cow<'_, str>, &Latency)> = Vec::new();
    if let Some(requests) = &report.requests {
        let name = if requests.open_loop { "from when due" } else { "request" };
        all.push((name.into(), &requests.latency));
    }
    if let Some(delivery) = &report.delivery {
        all.push(("delivery".into(), &delivery.latency));
        for server in &delivery.servers {
            let place = server.url.split("//").last().unwrap_or_default();
            let place = place.split('/').next().unwrap_or_default();
            all.push((format!("at {place}").into(), &server.latency));
        }
        all.push(("publish".into(), &delivery.publish));
    }
    if let Some(bystanders) = &report.bystanders {
        all.push(("before".into(), &bystanders.before));
        all.push(("during".into(), &bystanders.during));
        all.push(("after".into(), &bystanders.after));
        all.extend(bystanders.timeout.iter().map(|latency| ("timeout".into(), latency)));
        if let Some(listeners) = &bystanders.listeners {
            all.push(("news before".into(), &listeners.before));
            all.push(("news during".into(), &listeners.during));
            all.push(("news after".into(), &listeners.after));
            all.extend(listeners.timeout.iter().map(|latency| ("news, timeout".into(), latency)));
        }
        all.push(("bench itself".into(), &bystanders.late));
    }
    all.push(("connect".into(), &report.connections.connect));
    all.push(("first answer".into(), &report.connections.first_answer));
    all.retain(|(_, latency)| latency.count > 0);
    all
}

/// The columns in which a distribution is shown.
pub(super) const LATENCY_COLUMNS: [&str; 6] = ["mean", "p50", "p90", "p99", "p99.9", "max"];

/// A distribution in these columns.
pub(super) fn latency_row(latency: &Latency) -> [String; 6] {
    let l = latency;
    [l.mean_us, l.p50_us, l.p90_us, l.p99_us, l.p999_us, l.max_us].map(time_us)
}

/// What did not go as it should, each in a few words. Empty for a run without fault.
pub(super) fn problems(report: &Report) -> Vec<String> {
    let mut problems = Vec::new();
    let mut counted = |number: u64, one: &str, many: &str| {
        if number > 0 {
            problems.push(format!("{} {}", count(number), if number == 1 { one } else { many }));
        }
    };
    let c = &report.connections;
    let errors = report.errors.iter().fold(0, |sum: u64, e| sum.saturating_add(e.count));
    counted(errors, "error", "errors");
    counted(c.dropped, "connection dropped", "connections dropped");
    // With a connection for each request, a run of few requests needs few connections.
    let is_enough = report.requests.as_ref().is_some_and(|all| all.completed <= c.opened);
    let unopened = if is_enough { 0 } else { c.wanted.saturating_sub(c.opened) };
    counted(unopened, "connection never opened", "connections never opened");
    if let Some(d) = &report.delivery {
        // Messages behind a gap that was told are counted among the figures: a server may say that
        // it leaves some out.
        counted(d.missing_untold, "delivery missing in silence", "deliveries missing in silence");
        counted(d.duplicates, "duplicate", "duplicates");
        counted(d.out_of_order, "message out of order", "messages out of order");
    }
    if let Some(b) = &report.bystanders {
        counted(b.dropped, "bystander dropped", "bystanders dropped");
        counted(b.failed, "request of a bystander failed", "requests of bystanders failed");
        if let Some(l) = &b.listeners {
            counted(l.dropped, "reader dropped", "readers dropped");
            let [one, many] = ["delivery missing in silence", "deliveries missing in silence"];
            counted(l.missing_untold, one, many);
            counted(l.duplicates, "duplicate", "duplicates");
        }
    }
    // A run in which nothing happened had no errors, but it did not go well either.
    if c.opened == 0 {
        problems.push("no connection opened".to_owned());
    } else if report.requests.as_ref().is_some_and(|requests| requests.completed == 0) {
        problems.push("no request answered".to_owned());
    } else if report.requests.as_ref().is_some_and(|requests| !requests.has_success()) {
        problems.push("every answer was an error".to_owned());
    } else if published(report) == Some(0) {
        problems.push("no message published".to_owned());
    }
    problems
}

/// Messages that readers waited for, if there were readers.
fn published(report: &Report) -> Option<u64> {
    let listeners = report.bystanders.as_ref().and_then(|all| all.listeners.as_ref());
    let of_listeners = listeners.map(|all| all.published);
    report.delivery.as_ref().map(|delivery| delivery.published).or(of_listeners)
}

/// What is to be said of a run without fault.
pub(super) fn praise(report: &Report) -> &'static str {
    match &report.delivery {
        Some(d) if d.readers == 0 || d.readers_complete < d.readers || d.missing > 0 => "no errors",
        Some(d) if d.readers_stalled > 0 => {
            "no errors; every reader that kept reading got every message once, in order"
        }
        Some(_) => "no errors; every reader got every message once, in order",
        None => "no errors",
    }
}

/// What the run was told: "connections 64, pipeline 16".
pub(super) fn settings(report: &Report) -> String {
    let shown = |(name, value): &(&str, String)| format!("{name} {}", printable(value));
    report.settings.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// How long it was measured: "10.0 s".
pub(super) fn duration(report: &Report) -> String {
    time_us(report.seconds * 1e6)
}

fn errors(report: &Report) -> Vec<Fact> {
    let shown = report.errors.iter().take(KINDS_MAX);
    let mut facts: Vec<_> =
        shown.map(|error| fact(count(error.count), printable(&error.kind))).collect();
    let more = report.errors.len().saturating_sub(KINDS_MAX);
    if more > 0 {
        facts.push(fact(count(more as u64), "more kinds"));
    }
    facts
}

fn requests(requests: &super::Requests) -> Vec<Fact> {
    let mut facts = vec![
        fact(format!("{}/s", number(requests.per_second)), "answered"),
        fact(count(requests.completed), "in all"),
    ];
    if let [(status, _)] = requests.statuses[..] {
        facts.push(fact("all".to_owned(), format!("with status {status}")));
        return facts;
    }
    let statuses = requests.statuses.iter().take(KINDS_MAX);
    facts.extend(statuses.map(|(status, n)| fact(count(*n), format!("with status {status}"))));
    let more = requests.statuses.len().saturating_sub(KINDS_MAX);
    if more > 0 {
        facts.push(fact(count(more as u64), "more statuses"));
    }
    facts
}

fn delivery(delivery: &Delivery) -> Vec<Fact> {
    let d = delivery;
    let mut facts = Vec::new();
    if d.expected > 0 {
        facts.push(fact(percent(d.delivered as f64 / d.expected as f64), "delivered"));
    }
    facts.push(fact(count(d.delivered), of(d.expected, "deliveries")));
    facts.push(fact(format!("{}/s", number(d.delivered_per_second)), "delivered"));
    facts.push(fact(count(d.readers_complete), of(d.readers, "readers complete")));
    facts.push(fact(count(d.published), "messages published"));
    facts.push(fact(format!("{}/s", number(d.published_per_second)), "published"));
    facts.push(fact(count(d.missing), "missing"));
    facts.push(fact(count(d.duplicates), "duplicates"));
    facts.push(fact(count(d.out_of_order), "out of order"));
    if d.gaps_told > 0 {
        facts.push(fact(count(d.gaps_told), "gaps told"));
    }
    facts
}

fn connections(connections: &Connections) -> Vec<Fact> {
    let c = connections;
    // A run that opens a connection for each request opens many more than it has at a time.
    let opened = match c.opened > c.wanted {
        true => format!("opened, {} at a time", count(c.wanted)),
        false => of(c.wanted, "opened"),
    };
    vec![
        fact(count(c.opened), opened),
        fact(count(c.open_at_end), "open at the end"),
        fact(count(c.dropped), "dropped"),
        fact(format!("{}/s", number(c.per_second)), "opened"),
        fact(time_us(c.opening_seconds * 1e6), "to open them"),
    ]
}

fn memory(memory: &Memory) -> Vec<Fact> {
    let each = memory.each();
    let ends = if memory.both_ends { "in the kernel, both ends" } else { "in the kernel" };
    let all = [
        (each.process, "in the process"),
        (each.kernel, ends),
        (each.own, "in the load generator"),
        (each.machine, "of this machine, all told"),
    ];
    let known = all.into_iter().filter_map(|(each, words)| Some((each?, words)));
    let mut facts: Vec<_> = known.map(|(each, words)| fact(bytes(each), words)).collect();
    if let Some(resident) = memory.process_resident_bytes {
        facts.push(fact(bytes(resident as f64), "process in all"));
    }
    facts
}

fn processor(processor: &Processor) -> Vec<Fact> {
    let each = processor.each_us().map(|us| (time_us(us), format!("for each {}", processor.each)));
    let mut facts: Vec<_> = each.into_iter().map(|(us, words)| fact(us, words)).collect();
    facts.push(fact(time_us(processor.busy_seconds * 1e6), "busy"));
    if processor.baseline_seconds > 0.0 {
        facts.push(fact(time_us(processor.baseline_seconds * 1e6), "for bystanders, left out"));
    }
    if let Some(share) = processor.idle_share {
        facts.push(fact(percent(share), "of a core while idle"));
    }
    facts
}

fn fact(figure: String, words: impl Into<String>) -> Fact {
    Fact { figure, words: words.into() }
}

fn of(all: u64, words: &str) -> String {
    format!("of {} {words}", count(all))
}

/// Kinds of errors, and statuses, that are listed; the others are counted.
const KINDS_MAX: usize = 6;
