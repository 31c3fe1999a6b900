//! Every metric: one row each, in the order of `/-/metrics`.
//!
//! A row has the type of the metric, its name without `stentor_`, and its samples; its help is the
//! comment before it. A sample is a counter of the workers, which the row declares by that, or
//! `=>` and an expression over the [`ServerReport`]. From the rows follow the counters of a worker
//! ([`Stats`]), their sum ([`Totals`], which `/-/status` shows), the gauges that are zero once a
//! worker has ended, and the page. The service that makes the order or keeps it has a table in its
//! own crate (`metrics!` of `stentor-order`). The row of `docs/operating.md` is written by
//! `STENTOR_WRITE=1 cargo test -p xtask --test metrics`, and may say more.

use crate::labels::RequestKind;
use crate::report::ServerReport;
use crate::stats::{BadTokens, RouteTotals, Routes, TlsFailures};
use stentor_io::{Counter, Histogram, Times, open_files_limit, process_cpu};
use stentor_order::{Kind, Page, label, labels};

macro_rules! metrics {
    (|$report:ident, $c:ident| $(
        $(=> $service:expr;)?
        $(#[doc = $help:literal])+
        $kind:ident $name:ident [$(
            $({$key:ident = $label:literal})?
            $($field:ident $(/ $unit:literal)?)? $(=> $shown:expr)?
        ),+];
    )+) => {
        /// The counters of one worker, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Stats {
            $($($(pub(crate) $field: Counter,)?)+)+
            /// From the publishing of a message until the last of its readers on this worker was
            /// visited.
            pub(crate) fan_outs: Histogram,
            /// From when a request was whole until its answer had left, by the kinds of requests.
            pub(crate) requests_by_kind: [Histogram; RequestKind::ALL.len()],
            /// Requests refused since their token is not good.
            pub(crate) refused_tokens: BadTokens<Counter>,
            /// Handshakes and sessions of TLS that came to nothing.
            pub(crate) tls_failed: TlsFailures<Counter>,
            /// Look-ups by route.
            pub(crate) routes: Routes,
        }

        impl Stats {
            /// All counters with their names, but those of histograms and of routes.
            pub fn counters(&self) -> Vec<(String, &Counter)> {
                let mut all = vec![$($($((stringify!($field).to_owned(), &self.$field),)?)+)+];
                let tokens = self.refused_tokens.named();
                all.extend(tokens.map(|(why, n)| (format!("refused_tokens.{why}"), n)));
                let failed = self.tls_failed.named();
                all.extend(failed.map(|(why, n)| (format!("tls_failed.{why}"), n)));
                all
            }

            /// The worker has no connections any more.
            pub(crate) fn reset_gauges(&self) {
                $(if Kind::$kind == Kind::Gauge {
                    $($(self.$field.set(0);)?)+
                })+
            }
        }

        /// The sum over all workers at one moment.
        #[derive(Clone, Copy, Debug, Default, serde::Serialize)]
        pub struct Totals {
            $($($(pub(crate) $field: u64,)?)+)+
            /// Requests refused since their token is not good, by why.
            pub(crate) refused_tokens: BadTokens<u64>,
            /// Handshakes and sessions of TLS that came to nothing, by why.
            pub(crate) tls_failed: TlsFailures<u64>,
            #[serde(skip)]
            pub(crate) fan_outs: Times,
            #[serde(skip)]
            pub(crate) requests_by_kind: [Times; RequestKind::ALL.len()],
        }

        impl Totals {
            /// Adds up what the workers have counted.
            pub fn sum<'a>(workers: impl IntoIterator<Item = &'a Stats>) -> Totals {
                let mut totals = Totals::default();
                let mut oldest_ms = 0;
                for worker in workers {
                    oldest_ms = worker.accept_queue_age_ms.value().max(oldest_ms);
                    $($($(totals.$field = totals.$field.wrapping_add(worker.$field.value());)?)+)+
                    totals.fan_outs.add(&worker.fan_outs);
                    let kinds = totals.requests_by_kind.iter_mut().zip(&worker.requests_by_kind);
                    kinds.for_each(|(times, histogram)| times.add(histogram));
                    totals.refused_tokens.add(&worker.refused_tokens);
                    totals.tls_failed.add(&worker.tls_failed);
                }
                // Who waits at one worker waits no longer for the others.
                totals.accept_queue_age_ms = oldest_ms;
                totals
            }
        }

        /// Writes all of them to the page.
        pub(crate) fn write(page: &mut Page, $report: &ServerReport) {
            let $c = &$report.counters;
            $(
                $(if let Some((service, hub)) = &$service {
                    service.write_metrics(hub, page);
                })?
                page.begin(Kind::$kind, stringify!($name), concat!($($help),+));
                $(page.show(
                    concat!($("{", stringify!($key), "=\"", $label, "\"}")?),
                    $($c.$field $(as f64 / $unit)?)? $($shown)?,
                );)+
            )+
        }
    };
}

metrics! { |report, c|
    /// Open connections by listener.
    Gauge connections [
        {listener = "public"} connections_public,
        {listener = "control"} connections_control,
        {listener = "monitor"} connections_monitor,
        {listener = "redirect"} connections_redirect
    ];
    /// Of the open connections, those at work: with a request that is not complete, or with an
    /// answer that waits for the peer to read.
    Gauge connections_busy [
        {doing = "reading"} connections_reading,
        {doing = "writing"} connections_writing
    ];
    /// Connections accepted.
    Counter connections_accepted_total [accepted];
    /// Times accepting paused for want of files, memory or places.
    Counter accept_pauses_total [accept_pauses];
    /// Connections that wait to be accepted.
    Gauge accept_queue [accept_queue];
    /// How long whoever is accepted now has waited for it, in seconds, about.
    Gauge accept_queue_age_seconds [accept_queue_age_ms / 1e3];
    /// New connections that the kernel dropped because an accept queue was full, at all listeners
    /// of this host or container.
    Counter host_listen_overflows_total [=> report.host_listen_overflows];
    /// New connections that the kernel answered with a SYN cookie, at all listeners of this host or
    /// container.
    Counter host_syn_cookies_total [=> report.host_syn_cookies];
    /// Connections refused since their address had as many as it may.
    Counter connections_refused_total [connections_refused];
    /// Idle connections evicted for newcomers, since their address held the most.
    Counter connections_evicted_total [connections_evicted];
    /// Connections refused at addresses for proxies: no trusted proxy, or no header.
    Counter proxy_headers_refused_total [proxy_headers_refused];
    /// Requests told to come again later, since there was no room.
    Counter requests_put_off_total [requests_put_off];
    /// Connections ended by a deadline in the middle of a request or an answer.
    Counter timeouts_total [timeouts];
    /// Connections that have a session of TLS.
    Gauge tls_sessions [tls_sessions];
    /// Handshakes that made a session, by version.
    Counter tls_handshakes_total [
        {version = "1.2"} tls_handshakes_12,
        {version = "1.3"} tls_handshakes_13
    ];
    /// Of these, those that went on from an earlier session.
    Counter tls_handshakes_resumed_total [tls_resumed];
    /// Handshakes and sessions that came to nothing, by reason.
    Counter tls_failed_total [=> labels("reason", c.tls_failed.named())];
    /// Handshakes under way.
    Gauge tls_handshakes_under_way [tls_handshakes_under_way];
    /// Connections that wait for room to begin a handshake, or to go on with it.
    Gauge tls_handshakes_waiting [tls_handshakes_waiting];
    /// How long handshakes took, all together, in seconds.
    Counter tls_handshake_seconds_total [tls_handshakes_us / 1e6];
    /// Keys that were changed since the peer asked for it.
    Counter tls_key_updates_total [tls_key_updates];
    /// Memory of sessions, handshakes, and records on their way.
    Gauge tls_bytes [tls_bytes];
    /// Bytes that readers own (input that is not complete, answers they do not read,
    /// subscriptions), have still to be sent, read as filters, or hold while they catch up.
    Gauge readers_bytes [
        {kind = "owned"} readers_bytes,
        {kind = "detached"} => report.detached_bytes,
        {kind = "filters"} filters_bytes,
        {kind = "walks"} walks_bytes
    ];
    /// Of the filters, bytes of patterns and of topics that do not exist.
    Gauge filters_unnamed_bytes [filters_unnamed_bytes];
    /// Connections reset because they held the most of the kernel's TCP memory.
    Counter tcp_memory_evictions_total [tcp_memory_evicted];
    /// Connections cut because they held the most of too much.
    Counter readers_cut_total [readers_cut];
    /// Connections that wait for room in a turn.
    Gauge waiting [
        {line = "requests"} waiting_requests,
        {line = "commands"} waiting_commands,
        {line = "replays"} waiting_replays
    ];
    /// What such work has cost, in units of about a nanosecond.
    Counter work_cost_total [
        {line = "requests"} cost_requests,
        {line = "commands"} cost_commands,
        {line = "replays"} cost_replays
    ];
    /// Requests received.
    Counter requests_total [requests];
    /// Responses by class of status. 101 is a WebSocket, 301 leads elsewhere (307, too).
    Counter responses_total [
        {code = "101"} answers_101,
        {code = "2xx"} answers_2xx,
        {code = "301"} answers_301,
        {code = "304"} answers_304,
        {code = "4xx"} answers_4xx,
        {code = "5xx"} answers_5xx
    ];
    /// Values and files sent in a compressed form.
    Counter responses_compressed_total [answers_compressed];
    /// Lines of the access log that were dropped or could not be written.
    Counter access_log_dropped_total [access_log_dropped];
    /// Lines of the log on standard error that were dropped or could not be written.
    Counter log_dropped_total [log_dropped];
    /// Requests refused since they were not allowed, by reason.
    Counter refused_total [
        {reason = "policy"} refused_policy,
        {reason = "no_token"} refused_no_token,
        {reason = "not_covered"} refused_not_covered,
        => labels("reason", c.refused_tokens.named())
    ];
    /// Tokens verified, and not remembered from before.
    Counter tokens_verified_total [tokens_verified];
    /// Names looked up many at a time.
    Counter lookups_total [lookups];
    /// Bytes received.
    Counter received_bytes_total [bytes_in];
    /// Bytes of responses by kind.
    Counter sent_bytes_total [
        {kind = "heads"} bytes_heads,
        {kind = "bodies"} bytes_bodies,
        {kind = "streams"} bytes_streams,
        {kind = "sendfile"} bytes_sendfile,
        {kind = "replication"} bytes_replication
    ];
    /// From when a request was whole until its answer had left, by kinds of requests.
    Histogram request_duration_seconds [
        => {
            let kinds = RequestKind::ALL.iter().zip(&c.requests_by_kind);
            kinds.map(|(kind, times)| (label([("kind", kind.name())]), times)).collect::<Vec<_>>()
        }
    ];
    /// Requests for several values by route.
    Counter lookup_requests_total [=> by_route(report, |route| route.requests)];
    /// Names looked up by route.
    Counter lookup_names_total [=> by_route(report, |route| route.names)];
    /// Messages published.
    Counter messages_published_total [=> report.messages_published];
    /// Publishes refused, bad lines of bulk streams included.
    Counter messages_refused_total [publishes_refused];
    /// Topics that have a value.
    Gauge topics [=> report.topics];
    /// Messages in memory.
    Gauge messages_kept [=> report.messages_kept];
    /// Data of the messages in memory.
    Gauge messages_kept_bytes [=> report.messages_kept_bytes];
    /// Messages refused for lack of memory: full, values fill limits.stored_bytes_max; short,
    /// memory is short for a while.
    Counter messages_refused_for_memory_total [
        {reason = "full"} publishes_refused_full,
        {reason = "short"} publishes_refused_short
    ];
    /// Memory of topics with their values, of history, and of what is rendered for readers.
    Gauge stored_bytes [
        {of = "values"} => report.stored.values,
        {of = "history"} => report.stored.history,
        {of = "forms"} => report.stored.forms
    ];
    /// The limit of values and history, limits.stored_bytes_max.
    Gauge stored_bytes_max [=> report.stored.max];
    /// The limit of what is rendered for readers, a quarter of limits.stored_bytes_max.
    Gauge stored_forms_bytes_max [=> report.stored.forms_max];
    /// Memory that topics have dropped and that connections still hold.
    Gauge stored_detached_bytes [=> report.stored.detached];
    /// Messages evicted from history because memory was needed.
    Counter history_evictions_total [=> report.stored.evicted_total];
    /// Followers that read a feed.
    Gauge followers [followers];
    /// Snapshots that are being sent.
    Gauge snapshots_under_way [snapshots_under_way];
    /// Of the latest numbers, how many the last follower has not been sent.
    Gauge followers_behind [followers_behind];
    /// Feeds and snapshots ended since they were too slow.
    Counter followers_too_slow_total [followers_too_slow];
    /// Entries made ready for followers.
    Counter feed_entries_total [feed_entries];
    /// What is kept of them.
    Gauge feed_bytes [feed_bytes];
    /// Files answered from memory.
    Counter file_cache_hits_total [file_hits];
    /// Files that had to be opened to be answered.
    Counter file_cache_misses_total [file_misses];
    /// Files in memory.
    Gauge file_cache_entries [=> report.files_cached];
    /// Files in memory with their heads and compressed forms.
    Gauge file_cache_bytes [=> report.files_cached_bytes];
    /// Files that had to leave memory for others.
    Counter file_cache_evictions_total [=> report.files_evicted];
    /// Files whose sending ended early, since they changed meanwhile or could not be read.
    Counter files_cut_total [files_cut];
    /// Readers by kind.
    Gauge readers [
        {kind = "sse"} readers_sse,
        {kind = "websocket"} readers_websocket,
        {kind = "long_poll"} readers_long_poll
    ];
    /// Connections that read by a token.
    Gauge readers_by_token [readers_by_token];
    /// Streams and held requests ended since their token had.
    Counter readers_expired_total [readers_expired];
    /// Of the readers, those whose socket takes no more for now.
    Gauge readers_behind [readers_behind];
    /// Messages sent to readers, each counted once for each reader.
    Counter deliveries_total [deliveries];
    /// Bytes of messages sent to readers: data, which includes all bytes of deflated messages, and
    /// the framing of the others.
    Counter stream_bytes_total [
        {part = "data"} bytes_streams_data,
        {part = "framing"} => c.bytes_streams.saturating_sub(c.bytes_streams_data)
    ];
    /// Messages left out since a newer one of the topic was sent instead.
    Counter conflated_total [conflated];
    /// Times readers were told that messages are missing.
    Counter gaps_total [gaps];
    /// From the publishing of a message until the last reader of a worker was visited.
    Histogram fan_out_seconds [=> &c.fan_outs];
    // Those of the service that makes the order or keeps it.
    => report.service;
    /// When a certificate expires, in seconds since 1970.
    Gauge tls_certificate_expires_timestamp_seconds [=> report.tls.as_ref().map(expiries)];
    /// Times the files of certificates were read again.
    Counter tls_reloads_total [=> report.tls.as_ref().map(|it| it.reloads)];
    /// Times they were no good, and the certificates of before are shown on.
    Counter tls_reload_failures_total [=> report.tls.as_ref().map(|it| it.reload_failures)];
    /// Whether the files of certificates can be used as they are now.
    Gauge tls_files_good [=> report.tls.as_ref().map(|it| it.failure.is_none())];
    /// The running version.
    Gauge build_info [
        => {
            let labels = [("version", report.version), ("epoch", report.epoch.as_str())];
            vec![(label(labels), 1_u64)]
        }
    ];
    /// Time since the start of the server.
    Gauge uptime_seconds [=> report.uptime_s];
    /// Upgrades by what came of them.
    Counter upgrades_total [
        {outcome = "done"} => report.upgrades.history.done,
        {outcome = "failed"} => report.upgrades.history.failed
    ];
    /// How long nobody was served in the last upgrade; 0: there was none.
    Gauge upgrade_stood_still_seconds [
        => report.upgrades.history.last.as_ref().map_or(0.0, |it| it.stood_still_us as f64 / 1e6)
    ];
    /// When the last upgrade was done, in seconds since 1970; 0: there was none.
    Gauge upgrade_timestamp_seconds [
        => report.upgrades.history.last.as_ref().map_or(0, |it| it.unix_s)
    ];
    /// Worker threads.
    Gauge workers [=> report.workers];
    /// Worker threads that broke; the others go on.
    LastingGauge workers_lost [workers_lost];
    /// Panics after which a worker went on. Each cost one connection at most, and is a bug: the log
    /// has its message.
    Counter worker_panics_total [worker_panics];
    /// Memory of the process: resident.
    Gauge memory_resident_bytes [=> report.memory_resident_bytes];
    /// How short memory is: 0, not; 1, high; 2, critical.
    Gauge memory_pressure [=> report.memory_pressure as u64];
    /// How full memory is, from 0 to 1: of the control group, the host, TCP sockets.
    Gauge memory_load_ratio [
        => {
            let loads = report.memory_load_per_mille.iter();
            loads.map(|(of, load)| (label([("of", of)]), *load as f64 / 1e3)).collect::<Vec<_>>()
        }
    ];
    /// Times a mark of limits.memory_high or limits.memory_critical was reached.
    Counter memory_marks_reached_total [
        {mark = "high"} => report.memory_times_high,
        {mark = "critical"} => report.memory_times_critical
    ];
    /// Memory of the process: its own, without mapped files.
    Gauge memory_anonymous_bytes [=> report.memory_anonymous_bytes];
    // What any program is to say of itself, under the names that Prometheus gives it. The open
    // files are not among it: each worker has a table of its own, and to count them costs as much
    // as there are connections.
    /// Processor time used, in seconds.
    Counter process_cpu_seconds_total [
        => process_cpu(std::process::id()).unwrap_or_default().as_secs_f64()
    ];
    /// Start of the process in seconds since 1970.
    Gauge process_start_time_seconds [=> report.process_started_unix_s];
    /// Memory that is in RAM.
    Gauge process_resident_memory_bytes [=> report.memory_resident_bytes];
    /// Memory that is mapped.
    Gauge process_virtual_memory_bytes [=> report.memory_mapped_bytes];
    /// Open files that one worker may have.
    Gauge process_max_fds [=> open_files_limit()];
}

/// A figure of each look-up route that is configured.
fn by_route(report: &ServerReport, figure: fn(&RouteTotals) -> u64) -> Vec<(String, u64)> {
    report.lookups.iter().map(|route| (label([("route", &route.path)]), figure(route))).collect()
}

/// When certificates expire, by their files and first names.
fn expiries(tls: &stentor_tls_layer::CertificatesReport) -> Vec<(String, i64)> {
    let sample = |shown: &stentor_tls_layer::ShownCertificate| {
        let name = shown.names.first().map_or("", String::as_str);
        (label([("file", &shown.file), ("name", name)]), shown.expires_unix_s)
    };
    tls.certificates.iter().map(sample).collect()
}
