//! `/-/status`, `/-/readyz` and `/-/readyz/publish`: the state of the server, for people and
//! programs.

use crate::event_log;
use crate::exchange::Exchange;
use crate::pressure::Pressure;
use crate::report::ServerReport;
use crate::stats::{Routes, Totals};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stentor_io::{process_memory, tcp_counts};
use stentor_wire::error::Rejection;
use stentor_wire::http1::Request;
use stentor_wire::negotiate::media_type;
use stentor_wire::rejections;

/// `GET /-/status`: JSON, or plain text for those who ask for it.
pub(crate) fn status(x: &mut Exchange<'_>, request: &Request<'_>) {
    let report = report(x);
    match media_type(request.accept, &["application/json", "text/plain"]) {
        Some("text/plain") => {
            x.reply.fresh("text/plain; charset=utf-8", report.text().as_bytes());
        }
        _ => {
            // Numbers and strings always make JSON.
            let mut body = serde_json::to_vec_pretty(&report).unwrap_or_default();
            body.push(b'\n');
            x.reply.fresh("application/json", &body);
        }
    }
}

/// `GET /-/readyz`: whether readers should be sent here.
pub(crate) fn ready(x: &mut Exchange<'_>) {
    let reasons = not_ready(x);
    answer_readiness(x, &reasons);
}

/// `GET /-/readyz/publish`: whether publishers should be sent here.
pub(crate) fn ready_to_publish(x: &mut Exchange<'_>) {
    let mut reasons = not_ready(x);
    if let Some(service) = x.shared.committer.service() {
        reasons.extend(service.publish_complaints());
    }
    answer_readiness(x, &reasons);
}

/// Why this server is not ready to serve readers: a sentence for each reason.
fn not_ready(x: &Exchange<'_>) -> Vec<Rejection> {
    let shared = x.shared;
    let has_lost = || shared.workers.iter().any(|worker| worker.workers_lost.value() > 0);
    let of_process = [
        (shared.process.is_stopping.load(Ordering::Relaxed), STOPS),
        (has_lost(), WORKER_LOST),
        (shared.memory.pressures().process == Pressure::Critical, MEMORY_SHORT),
    ];
    let of_process = of_process.iter().filter(|(is_so, _)| *is_so).map(|it| it.1.clone());
    let of_service = shared.committer.service().and_then(|service| service.complaint());
    of_process.chain(of_service).chain(shared.tokens.not_ready_reason()).collect()
}

fn answer_readiness(x: &mut Exchange<'_>, reasons: &[Rejection]) {
    match reasons {
        [] => x.reply.fresh("text/plain; charset=utf-8", b"ready\n"),
        [one] => x.reply.reject(one),
        [first, ..] => {
            let details: Vec<_> = reasons.iter().map(|reason| &*reason.detail).collect();
            x.reply.reject(&Rejection::because(first.code, details.join("\n")));
        }
    }
}

rejections! {
    STOPS: ServerDraining = "Draining: this server is about to stop.";
    WORKER_LOST: WorkerFailed = "A worker has broken and the others go on: restart this server.";
    MEMORY_SHORT: MemoryPressure = "Memory is short: no connection is let in until some is free.";
}

/// The figures of this moment.
pub(crate) fn report(x: &Exchange<'_>) -> ServerReport {
    let workers = || x.shared.workers.iter().map(AsRef::as_ref);
    let mut counters = Totals::sum(workers());
    let lost = x.shared.access_log.as_ref().map_or(0, |log| log.lost());
    counters.access_log_dropped += lost;
    counters.log_dropped += event_log::dropped();
    let counts = x.shared.hub.counts();
    let files = x.shared.file_cache.kept();
    let (memory, tcp) = (process_memory(), tcp_counts());
    let connections_open = counters.open();
    let service = x.shared.committer.service();
    ServerReport {
        version: env!("CARGO_PKG_VERSION"),
        epoch: x.shared.hub.epoch().to_string(),
        process: std::process::id(),
        uptime_s: x.clock.unix_s.saturating_sub(x.shared.process.started_unix_s),
        workers: x.shared.workers_public,
        draining: x.shared.process.is_stopping.load(Ordering::Relaxed),
        connections_open,
        topics: counts.topics,
        messages_published: counts.published_total,
        messages_kept: counts.messages_kept,
        messages_kept_bytes: counts.bytes_kept,
        stored: x.shared.hub.stored(),
        files_cached: files.entries,
        files_cached_bytes: files.bytes,
        files_evicted: files.evictions,
        detached_bytes: x.shared.detached_bytes(),
        host_listen_overflows: tcp.listen_overflows,
        host_syn_cookies: tcp.syn_cookies,
        memory_resident_bytes: memory.resident,
        memory_anonymous_bytes: memory.anonymous,
        memory_mapped_bytes: memory.mapped,
        process_started_unix_s: x.shared.process.process_started_unix_s,
        memory_pressure: x.shared.memory.pressure(),
        memory_times_high: x.shared.memory.times_high.value(),
        memory_times_critical: x.shared.memory.times_critical.value(),
        memory_load_per_mille: x.shared.memory.loads().collect(),
        memory_per_connection_bytes: memory.anonymous.checked_div(connections_open),
        counters,
        lookups: Routes::sum(workers()),
        upgrades: x.shared.process.upgrades.report(),
        reloads: x.shared.process.reloads.report(),
        followers: x.streams.replication.followers(),
        tls: x.shared.acceptors.report(x.clock.unix_s),
        service: service.map(|it| (Arc::clone(it), Arc::clone(&x.shared.hub))),
    }
}
