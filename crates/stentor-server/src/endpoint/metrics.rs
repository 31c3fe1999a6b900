//! `/-/metrics`: the Prometheus text format (version 0.0.4), written by hand from the counters.

use crate::answers::RequestKind;
use crate::certificates;
use crate::cluster::ClusterReport;
use crate::endpoint::status::{Report, StoreReport};
use crate::exchange::Exchange;
use crate::follow::FollowReport;
use crate::stats::{BOUNDS_US, RouteTotals, Times};
use std::collections::BTreeMap;
use std::fmt::Write;
use stentor_hub::Stored;
use stentor_io::{open_files_limit, process_cpu};

/// `GET /-/metrics`
pub(crate) fn metrics(x: &mut Exchange<'_>) {
    let report = Report::now(x);
    x.reply.fresh("text/plain; version=0.0.4; charset=utf-8", text(&report).as_bytes());
}

fn text(report: &Report) -> String {
    let mut page = Page(String::with_capacity(4096));
    connections(&mut page, report);
    answers(&mut page, report);
    lookups(&mut page, report);
    values(&mut page, report);
    followers(&mut page, report);
    files(&mut page, report);
    streams(&mut page, report);
    if let Some(follow) = &report.follow {
        following(&mut page, follow);
    }
    if let Some(cluster) = &report.cluster {
        clustered(&mut page, cluster);
    }
    if let Some(store) = &report.store {
        stored(&mut page, store);
    }
    if let Some(tls) = &report.tls {
        certificates(&mut page, tls);
    }
    process(&mut page, report);
    standard(&mut page, report);
    page.0
}

/// TLS.
fn secured(page: &mut Page, report: &Report) {
    let c = &report.counters;
    page.gauge("tls_sessions", "Connections that have a session of TLS.", c.tls_sessions);
    let versions =
        [("{version=\"1.2\"}", c.tls_handshakes_12), ("{version=\"1.3\"}", c.tls_handshakes_13)];
    let help = "Handshakes that made a session, by version.";
    page.family("tls_handshakes_total", "counter", help, &versions);
    let help = "Of these, those that went on from an earlier session.";
    page.counter("tls_handshakes_resumed_total", help, c.tls_resumed);
    let reasons = c.tls_failed.named();
    let reasons = reasons.map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count));
    let help = "Handshakes and sessions that came to nothing, by reason.";
    page.family_of("tls_failed_total", "counter", help, &reasons.collect::<Vec<_>>());
    let help = "Handshakes under way.";
    page.gauge("tls_handshakes_under_way", help, c.tls_handshakes_under_way);
    let help = "Connections that wait for room to begin a handshake, or to go on with it.";
    page.gauge("tls_handshakes_waiting", help, c.tls_handshakes_waiting);
    let help = "How long handshakes took, all together, in seconds.";
    page.seconds_total("tls_handshake_seconds_total", help, c.tls_handshakes_us);
    let help = "Keys that were changed since the peer asked for it.";
    page.counter("tls_key_updates_total", help, c.tls_key_updates);
    let help = "Memory of sessions, handshakes, and records on their way.";
    page.gauge("tls_bytes", help, c.tls_bytes);
}

fn connections(page: &mut Page, report: &Report) {
    let c = &report.counters;
    let listeners = [
        ("{listener=\"public\"}", c.connections_public),
        ("{listener=\"control\"}", c.connections_control),
        ("{listener=\"monitor\"}", c.connections_monitor),
        ("{listener=\"redirect\"}", c.connections_redirect),
    ];
    page.family("connections", "gauge", "Open connections by listener.", &listeners);
    let doing = [
        ("{doing=\"reading\"}", c.connections_reading),
        ("{doing=\"writing\"}", c.connections_writing),
    ];
    page.family("connections_busy", "gauge", "Of the open connections, those at work.", &doing);
    page.counter("connections_accepted_total", "Connections accepted.", c.accepted);
    let help = "Times accepting paused for want of files, memory or places.";
    page.counter("accept_pauses_total", help, c.accept_pauses);
    page.gauge("accept_queue", "Connections that wait to be accepted.", c.accept_queue);
    let help = "How long whoever is accepted now has waited for it, in seconds, about.";
    page.seconds("accept_queue_age_seconds", help, c.accept_queue_age_ms * 1_000);
    let help = "Connections refused since their address had as many as it may.";
    page.counter("connections_refused_total", help, c.connections_refused);
    let help = "Idle connections evicted for newcomers, since their address held the most.";
    page.counter("connections_evicted_total", help, c.connections_evicted);
    let help = "Connections refused at addresses for proxies: no trusted proxy, or no header.";
    page.counter("proxy_headers_refused_total", help, c.proxy_headers_refused);
    let help = "Requests told to come again later, since there was no room.";
    page.counter("requests_put_off_total", help, c.requests_put_off);
    let help = "Connections ended by a deadline in the middle of a request or an answer.";
    page.counter("timeouts_total", help, c.timeouts);
    secured(page, report);
    let kinds = [
        ("{kind=\"owned\"}", c.readers_bytes),
        ("{kind=\"pinned\"}", c.pinned_bytes),
        ("{kind=\"filters\"}", c.filters_bytes),
        ("{kind=\"walks\"}", c.walks_bytes),
    ];
    page.family("readers_bytes", "gauge", "Bytes that readers own or pin.", &kinds);
    let help = "Of the filters, bytes of patterns and of topics that do not exist.";
    page.gauge("filters_unnamed_bytes", help, c.filters_unnamed_bytes);
    let help = "Connections cut because they held the most of too much.";
    page.counter("readers_cut_total", help, c.readers_cut);
    let lines = [
        ("{line=\"requests\"}", c.waiting_requests),
        ("{line=\"commands\"}", c.waiting_commands),
        ("{line=\"replays\"}", c.waiting_replays),
    ];
    page.family("waiting", "gauge", "Connections that wait for room in a turn.", &lines);
    let costs = [
        ("{line=\"requests\"}", c.cost_requests),
        ("{line=\"commands\"}", c.cost_commands),
        ("{line=\"replays\"}", c.cost_replays),
    ];
    let help = "What such work has cost, in units of about a nanosecond.";
    page.family("work_cost_total", "counter", help, &costs);
}

fn answers(page: &mut Page, report: &Report) {
    let c = &report.counters;
    page.counter("requests_total", "Requests received.", c.requests);
    let codes = [
        ("{code=\"101\"}", c.answers_101),
        ("{code=\"2xx\"}", c.answers_2xx),
        ("{code=\"301\"}", c.answers_301),
        ("{code=\"304\"}", c.answers_304),
        ("{code=\"4xx\"}", c.answers_4xx),
        ("{code=\"5xx\"}", c.answers_5xx),
    ];
    page.family("responses_total", "counter", "Responses by class of status.", &codes);
    let help = "Values served in a compressed form.";
    page.counter("responses_compressed_total", help, c.answers_compressed);
    let help = "Lines of the access log that were dropped or could not be written.";
    page.counter("access_log_dropped_total", help, c.access_log_dropped);
    let help = "Lines of the log on standard error that were dropped or could not be written.";
    page.counter("log_dropped_total", help, c.log_dropped);
    let reasons = [
        ("{reason=\"policy\"}", c.refused_policy),
        ("{reason=\"no_token\"}", c.refused_no_token),
        ("{reason=\"not_covered\"}", c.refused_not_covered),
    ];
    let of_tokens = c.refused_tokens.named();
    let of_tokens = of_tokens.map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count));
    let reasons = reasons.map(|(label, count)| (label.to_owned(), count));
    let reasons: Vec<_> = reasons.into_iter().chain(of_tokens).collect();
    let help = "Requests refused since they were not allowed, by reason.";
    page.family_of("refused_total", "counter", help, &reasons);
    let help = "Tokens verified, and not remembered from before.";
    page.counter("tokens_verified_total", help, c.tokens_verified);
    page.counter("lookups_total", "Names looked up many at a time.", c.lookups);
    page.counter("received_bytes_total", "Bytes received.", c.bytes_in);
    let kinds = [
        ("{kind=\"heads\"}", c.bytes_heads),
        ("{kind=\"bodies\"}", c.bytes_bodies),
        ("{kind=\"streams\"}", c.bytes_streams),
        ("{kind=\"sendfile\"}", c.bytes_sendfile),
        ("{kind=\"replication\"}", c.bytes_replication),
    ];
    page.family("sent_bytes_total", "counter", "Bytes of responses by kind.", &kinds);
    let help = "From when a request was whole until its answer had left, by kinds of requests.";
    let times = RequestKind::ALL.iter().zip(&c.requests_by_kind);
    let times = times.map(|((_, kind), times)| (format!("kind=\"{kind}\""), times));
    page.histograms("request_duration_seconds", help, &times.collect::<Vec<_>>());
    let fields = report.heads.named().map(|(name, bytes)| (format!("{{field=\"{name}\"}}"), bytes));
    let help = "Bytes of response heads by what they are.";
    page.family_of("head_bytes_total", "counter", help, &fields.collect::<Vec<_>>());
}

/// Look-ups by the routes that are configured. Metrics of a route that is not any more are gone.
fn lookups(page: &mut Page, report: &Report) {
    let by_route = |of: fn(&RouteTotals) -> u64| {
        let label = |route: &RouteTotals| format!("{{route=\"{}\"}}", escaped(&route.path));
        report.lookups.iter().map(|route| (label(route), of(route))).collect::<Vec<_>>()
    };
    let help = "Requests for several values by route.";
    let requests = by_route(|route| route.requests);
    page.family_of("lookup_requests_total", "counter", help, &requests);
    let help = "Names looked up by route.";
    page.family_of("lookup_names_total", "counter", help, &by_route(|route| route.names));
    let parts = |route: &RouteTotals| {
        let path = escaped(&route.path);
        let parts = [
            ("values", route.bytes_values),
            ("names", route.bytes_names),
            ("template", route.bytes_template),
        ];
        parts.map(|(part, bytes)| (format!("{{route=\"{path}\",part=\"{part}\"}}"), bytes))
    };
    let bytes: Vec<_> = report.lookups.iter().flat_map(parts).collect();
    let help = "Bytes of the answers to look-ups by what they are.";
    page.family_of("lookup_bytes_total", "counter", help, &bytes);
}

/// A path as the value of a label. The name of a file may have a line feed in it, which would end
/// the sample's line.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn values(page: &mut Page, report: &Report) {
    page.counter("messages_published_total", "Messages published.", report.messages_published);
    let refused = report.counters.publishes_refused;
    page.counter("messages_refused_total", "Messages refused.", refused);
    page.gauge("topics", "Topics that have a value.", report.topics as u64);
    page.gauge("messages_kept", "Messages in memory.", report.messages_kept as u64);
    let help = "Data of the messages in memory.";
    page.gauge("messages_kept_bytes", help, report.messages_kept_bytes as u64);
    let help = "Messages refused for lack of memory: full, values fill limits.stored_bytes_max; \
                short, memory is short for a while.";
    let refused = [
        ("{reason=\"full\"}", report.counters.publishes_refused_full),
        ("{reason=\"short\"}", report.counters.publishes_refused_short),
    ];
    page.family("messages_refused_for_memory_total", "counter", help, &refused);
    let Stored { values, history, forms, max, evicted_total } = report.stored;
    let help = "Memory of topics with their values, of history, and of forms made for readers.";
    let stored = [
        ("{of=\"values\"}", values as u64),
        ("{of=\"history\"}", history as u64),
        ("{of=\"forms\"}", forms as u64),
    ];
    page.family("stored_bytes", "gauge", help, &stored);
    page.gauge("stored_bytes_max", "The limit of their sum, limits.stored_bytes_max.", max as u64);
    let help = "Messages evicted from history because memory was needed.";
    page.counter("history_evictions_total", help, evicted_total);
}

fn followers(page: &mut Page, report: &Report) {
    let c = &report.counters;
    page.gauge("followers", "Followers that read a feed.", c.followers);
    let help = "Snapshots that are being sent.";
    page.gauge("snapshots_under_way", help, c.snapshots_under_way);
    let help = "Of the latest numbers, how many the last follower has not been sent.";
    page.gauge("followers_behind", help, c.followers_behind);
    let help = "Feeds and snapshots ended since they were too slow.";
    page.counter("followers_too_slow_total", help, c.followers_too_slow);
    page.counter("feed_entries_total", "Entries made ready for followers.", c.feed_entries);
    page.gauge("feed_bytes", "What is kept of them.", c.feed_bytes);
}

fn files(page: &mut Page, report: &Report) {
    let c = &report.counters;
    page.counter("file_cache_hits_total", "Files answered from memory.", c.file_hits);
    let help = "Files that had to be opened to be answered.";
    page.counter("file_cache_misses_total", help, c.file_misses);
    page.gauge("file_cache_entries", "Files in memory.", report.files_cached);
    let help = "Files in memory with their heads and compressed forms.";
    page.gauge("file_cache_bytes", help, report.files_cached_bytes);
    let help = "Files that had to leave memory for others.";
    page.counter("file_cache_evictions_total", help, report.files_evicted);
    let help = "Files whose sending ended early since they changed meanwhile.";
    page.counter("files_cut_total", help, c.files_cut);
}

fn streams(page: &mut Page, report: &Report) {
    let c = &report.counters;
    let kinds = [
        ("{kind=\"sse\"}", c.readers_sse),
        ("{kind=\"websocket\"}", c.readers_websocket),
        ("{kind=\"long_poll\"}", c.readers_long_poll),
    ];
    page.family("readers", "gauge", "Readers by kind.", &kinds);
    page.gauge("readers_by_token", "Connections that read by a token.", c.readers_by_token);
    let help = "Streams and held requests ended since their token had.";
    page.counter("readers_expired_total", help, c.readers_expired);
    let help = "Of the readers, those whose socket takes no more for now.";
    page.gauge("readers_behind", help, c.readers_behind);
    let help = "Messages sent to readers, each counted once for each reader.";
    page.counter("deliveries_total", help, c.deliveries);
    let parts = [
        ("{part=\"data\"}", c.bytes_streams_data),
        ("{part=\"framing\"}", report.bytes_streams_framing()),
        ("{part=\"deflated\"}", c.bytes_streams_deflated),
    ];
    let help = "Bytes of messages sent to readers by what they are.";
    page.family("stream_bytes_total", "counter", help, &parts);
    let help = "Messages left out since a newer one of the topic was sent instead.";
    page.counter("conflated_total", help, c.conflated);
    page.counter("gaps_total", "Times readers were told that messages are missing.", c.gaps);
    let help = "From the publishing of a message until the last reader of a worker was visited.";
    page.histograms("fan_out_seconds", help, &[(String::new(), &c.fan_outs)]);
}

/// Only where somebody is followed.
fn following(page: &mut Page, follow: &FollowReport) {
    let help = "Whether a leader is followed: 0 while there is no connection to one.";
    page.gauge("follow_up", help, u64::from(follow.connected));
    let help = "For how long nothing was heard of a leader; it says something every second.";
    page.seconds("follow_silence_seconds", help, follow.silence_ms * 1_000);
    let help = "Connections to leaders that came to an end, or to nothing.";
    page.counter("follow_reconnects_total", help, follow.reconnects);
    let help = "Snapshots that were taken of leaders.";
    page.counter("follow_snapshots_total", help, follow.snapshots);
    let help = "Bytes of feeds and snapshots of leaders.";
    page.counter("follow_bytes_total", help, follow.bytes);
}

/// Only where a broker makes the order.
fn clustered(page: &mut Page, cluster: &ClusterReport) {
    let help = "Whether the broker is there, and takes what is published.";
    page.gauge("cluster_up", help, u64::from(cluster.open));
    let help =
        "Messages of the broker's stream that are not here yet; each has up to 1,023 changes.";
    page.gauge("cluster_behind", help, cluster.behind);
    let help = "From sending a message to the broker until it has said that it has it.";
    page.seconds("cluster_round_trip_seconds", help, cluster.round_trip_us);
    let help = "Bytes of changes that wait for the broker.";
    page.gauge("cluster_waiting_bytes", help, cluster.waiting_bytes);
    let help = "Connections to brokers that came to an end, or to nothing.";
    page.counter("cluster_reconnects_total", help, cluster.reconnects);
    let help = "Snapshots that were taken of other nodes.";
    page.counter("cluster_snapshots_total", help, cluster.snapshots);
    if let Some(saved_s) = cluster.saved_s {
        let help = "How long ago what is here was kept on the disk.";
        page.gauge("cluster_saved_age_seconds", help, saved_s);
    }
}

/// Only where there is a store.
fn stored(page: &mut Page, store: &StoreReport) {
    let help = "Whether the store takes messages: 0 while its disk is full or has failed.";
    page.gauge("store_up", help, u64::from(store.failure.is_none()));
    page.counter("store_entries_total", "Messages and deletions stored.", store.entries);
    let help = "Bytes written to the log of the store, without snapshots.";
    page.counter("store_written_bytes_total", help, store.bytes_written);
    let help = "Of the latest messages and deletions, those that are not on the disk yet.";
    page.gauge("store_unsynced", help, store.unsynced);
    page.counter("store_errors_total", "Failures of the store's disk.", store.errors);
    let help = "Bytes of the log behind the last snapshot.";
    page.gauge("store_log_bytes", help, store.log_bytes);
    page.gauge("store_snapshot_bytes", "Bytes of the last snapshot.", store.snapshot_bytes);
    let help = "When the last snapshot was made, in seconds since 1970; 0: not since the start.";
    page.gauge("store_snapshot_timestamp_seconds", help, store.snapshot_unix_s);
    let help = "How long it took to bring a batch of messages to the disk.";
    page.histograms("store_sync_seconds", help, &[(String::new(), &store.sync_times)]);
}

/// Only where there are any.
fn certificates(page: &mut Page, tls: &certificates::Report) {
    let sample = |shown: &certificates::Shown| {
        let name = shown.names.first().map_or("", String::as_str);
        let labels = format!("{{file=\"{}\",name=\"{}\"}}", escaped(&shown.file), escaped(name));
        (labels, shown.expires_unix_s)
    };
    let help = "When a certificate expires, in seconds since 1970.";
    let expire: Vec<_> = tls.certificates.iter().map(sample).collect();
    page.signed("tls_certificate_expires_timestamp_seconds", help, &expire);
    let help = "Times the files of certificates were read again.";
    page.counter("tls_reloads_total", help, tls.reloads);
    let help = "Times they were no good, and the certificates of before are shown on.";
    page.counter("tls_reload_failures_total", help, tls.reload_failures);
    let help = "Whether the files of certificates can be used as they are now.";
    page.gauge("tls_files_good", help, u64::from(tls.failure.is_none()));
}

fn process(page: &mut Page, report: &Report) {
    let labels = format!("{{version=\"{}\",epoch=\"{}\"}}", report.version, report.epoch);
    page.family("build_info", "gauge", "The running version.", &[(&labels, 1)]);
    page.gauge("uptime_seconds", "Time since the start of the server.", report.uptime_s);
    let upgrades = &report.upgrades.history;
    let outcomes =
        [("{outcome=\"done\"}", upgrades.done), ("{outcome=\"failed\"}", upgrades.failed)];
    page.family("upgrades_total", "counter", "Upgrades by what came of them.", &outcomes);
    let help = "How long nobody was served in the last upgrade; 0: there was none.";
    let stood_still_us = upgrades.last.as_ref().map_or(0, |last| last.stood_still_us);
    page.seconds("upgrade_stood_still_seconds", help, stood_still_us);
    let help = "When the last upgrade was done, in seconds since 1970; 0: there was none.";
    let at = upgrades.last.as_ref().map_or(0, |last| last.unix_s);
    page.gauge("upgrade_timestamp_seconds", help, at);
    page.gauge("workers", "Worker threads.", report.workers as u64);
    let help = "Worker threads that broke; the others go on.";
    page.gauge("workers_lost", help, report.counters.workers_lost);
    let help = "Memory of the process: resident.";
    page.gauge("memory_resident_bytes", help, report.memory_resident_bytes);
    let help = "How short memory is: 0, not; 1, high; 2, critical.";
    page.gauge("memory_pressure", help, report.memory_pressure as u64);
    let help = "How full memory is, from 0 to 1: of the control group, the host, TCP sockets.";
    page.ratios("memory_load_ratio", help, "of", &report.memory_load_per_mille);
    let help = "Times a mark of limits.memory_high or limits.memory_critical was reached.";
    let times = [
        ("{mark=\"high\"}", report.memory_times_high),
        ("{mark=\"critical\"}", report.memory_times_critical),
    ];
    page.family("memory_marks_reached_total", "counter", help, &times);
    let help = "Memory of the process: its own, without mapped files.";
    page.gauge("memory_anonymous_bytes", help, report.memory_anonymous_bytes);
}

/// What any program is to say of itself, under the names that Prometheus gives it. The open files
/// are not among it: each worker has a table of its own, and to count them costs as much as there
/// are connections.
fn standard(page: &mut Page, report: &Report) {
    let cpu_s = process_cpu(std::process::id()).unwrap_or_default().as_secs_f64();
    page.standard("cpu_seconds_total", "counter", "Processor time used, in seconds.", cpu_s);
    let help = "Start of the process in seconds since 1970.";
    page.standard("start_time_seconds", "gauge", help, report.process_started_unix_s as f64);
    let help = "Memory that is in RAM.";
    page.standard("resident_memory_bytes", "gauge", help, report.memory_resident_bytes as f64);
    let help = "Memory that is mapped.";
    page.standard("virtual_memory_bytes", "gauge", help, report.memory_mapped_bytes as f64);
    let help = "Open files that one worker may have.";
    page.standard("max_fds", "gauge", help, open_files_limit() as f64);
}

struct Page(String);

impl Page {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help, &[("", value)]);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help, &[("", value)]);
    }

    /// Shares of something, given in thousandths, by a label.
    fn ratios(&mut self, name: &str, help: &str, label: &str, all: &BTreeMap<&str, u64>) {
        if all.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP stentor_{name} {help}\n# TYPE stentor_{name} gauge");
        for (key, per_mille) in all {
            let value = *per_mille as f64 / 1e3;
            let _ = writeln!(self.0, "stentor_{name}{{{label}=\"{key}\"}} {value}");
        }
    }

    /// A gauge of time, given in microseconds.
    fn seconds(&mut self, name: &str, help: &str, us: u64) {
        self.time(name, "gauge", help, us);
    }

    /// A counter of time, given in microseconds.
    fn seconds_total(&mut self, name: &str, help: &str, us: u64) {
        self.time(name, "counter", help, us);
    }

    fn time(&mut self, name: &str, kind: &str, help: &str, us: u64) {
        let value = us as f64 / 1e6;
        // Writing to a string does not fail.
        let _ = writeln!(
            self.0,
            "# HELP stentor_{name} {help}\n# TYPE stentor_{name} {kind}\nstentor_{name} {value}"
        );
    }

    /// Histograms of times, each with its label: cumulative buckets, sum and count.
    fn histograms(&mut self, name: &str, help: &str, all: &[(String, &Times)]) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP stentor_{name} {help}\n# TYPE stentor_{name} histogram");
        for (label, times) in all {
            self.histogram(name, label, times);
        }
    }

    fn histogram(&mut self, name: &str, label: &str, times: &Times) {
        let mut count = 0;
        let (comma, braces) = match label {
            "" => ("", String::new()),
            label => (",", format!("{{{label}}}")),
        };
        for (bucket, bound_us) in times.buckets.iter().zip(BOUNDS_US) {
            count += bucket;
            let le = bound_us as f64 / 1e6;
            let _ = writeln!(self.0, "stentor_{name}_bucket{{{label}{comma}le=\"{le}\"}} {count}");
        }
        count += times.buckets[BOUNDS_US.len()];
        let sum_s = times.sum_us as f64 / 1e6;
        let _ = writeln!(
            self.0,
            "stentor_{name}_bucket{{{label}{comma}le=\"+Inf\"}} {count}\n\
             stentor_{name}_sum{braces} {sum_s}\nstentor_{name}_count{braces} {count}"
        );
    }

    /// A metric of the process under its standard name.
    fn standard(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        // Writing to a string does not fail.
        let _ = writeln!(
            self.0,
            "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}"
        );
    }

    /// A gauge that may be below nought.
    fn signed(&mut self, name: &str, help: &str, samples: &[(String, i64)]) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP stentor_{name} {help}\n# TYPE stentor_{name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "stentor_{name}{labels} {value}");
        }
    }

    /// The same with labels that were made for it.
    fn family_of(&mut self, name: &str, kind: &str, help: &str, samples: &[(String, u64)]) {
        let samples: Vec<_> = samples.iter().map(|(labels, value)| (&**labels, *value)).collect();
        self.family(name, kind, help, &samples);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        for (text, value) in [
            ("/etc/a.pem", "/etc/a.pem"),
            ("C:\\\"a\"", "C:\\\\\\\"a\\\""),
            ("a\nb", "a\\nb"),
            ("a\r\tb", "a\r\tb"),
        ] {
            assert_eq!(escaped(text), value, "{text:?}");
        }
    }
}
