//! What each worker counts, and the sum that is made when somebody asks.
//!
//! A counter has one writer, its worker, so counting is a plain load and store of the worker's
//! own cache lines; no other thread touches them but to read.

use crate::answers::RequestKind;
use crate::config::Lookup;
use crate::order::CommitError;
use crate::secured::Failed;
use serde::ser::{SerializeMap, Serializer};
use std::sync::{Arc, Mutex, PoisonError};
use stentor_access::Refused;
use stentor_hub::OwnFields;
use stentor_hub::Refusal;
use stentor_io::Counter;
use stentor_wire::http1::{HEAD_PARTS, HeadPart, HeadShares, head_lines};
use stentor_wire::lookup::LineShares;
use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker};

/// How long something took, counted by how long: with one writer.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Counts one that took so long.
    pub(crate) fn observe(&self, us: u64) {
        self.buckets[BOUNDS_US.partition_point(|&bound| bound < us)].add(1);
        self.sum_us.add(us);
    }

    fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.buckets.iter().chain([&self.sum_us])
    }

    /// What was counted so far.
    pub(crate) fn pack(&self, out: &mut Packer) {
        self.counters().map(Counter::value).collect::<Vec<_>>().pack(out);
    }

    /// Goes on where another one ended.
    pub(crate) fn unpack(&self, input: &mut Unpacker<'_>) -> Unpacked<()> {
        let values = Vec::<u64>::unpack(input)?;
        if values.len() != self.counters().count() {
            return Err(MISFIT);
        }
        self.counters().zip(values).for_each(|(counter, value)| counter.set(value));
        Ok(())
    }
}

/// The sum of histograms at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// How many took at most each bound and more than the one before; the last, more than any.
    pub(crate) buckets: [u64; BOUNDS_US.len() + 1],
    pub(crate) sum_us: u64,
}

impl Times {
    /// One histogram as it is now.
    pub(crate) fn of(histogram: &Histogram) -> Times {
        let mut times = Times::default();
        times.add(histogram);
        times
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn add(&mut self, histogram: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total = total.wrapping_add(bucket.value());
        }
        self.sum_us = self.sum_us.wrapping_add(histogram.sum_us.value());
    }
}

/// The bounds of a histogram's buckets, in microseconds: what a request takes at an idle server, to
/// ten seconds.
#[rustfmt::skip]
pub(crate) const BOUNDS_US: [u64; 14] = [
    25, 50, 100, 250, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Bytes of response heads by what they are, each part at the place of its number.
#[derive(Debug, Default)]
pub(crate) struct Heads([Counter; HEAD_PARTS]);

impl Heads {
    /// Counts bytes of one part.
    pub(crate) fn add(&self, part: HeadPart, bytes: usize) {
        self.0[part as usize].add(bytes as u64);
    }

    /// Counts the fields of a message, whose lengths are known, and the empty line behind them.
    pub(crate) fn add_own(&self, fields: OwnFields) {
        self.add(HeadPart::End, b"\r\n".len());
        for (part, bytes) in OwnFields::PARTS.into_iter().zip(fields.0) {
            self.add(part, usize::from(bytes));
        }
    }

    /// Counts what was taken apart when it was made.
    pub(crate) fn add_shares(&self, shares: &HeadShares) {
        for (counter, bytes) in self.0.iter().zip(shares.0) {
            counter.add(u64::from(bytes));
        }
    }

    /// Counts lines that were made for one answer.
    pub(crate) fn add_lines(&self, lines: &[u8]) {
        head_lines(lines).for_each(|(part, line)| self.add(part, line.len()));
    }
}

/// The sum of heads at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadTotals(pub(crate) [u64; HEAD_PARTS]);

impl HeadTotals {
    fn add(&mut self, heads: &Heads) {
        for (total, counter) in self.0.iter_mut().zip(&heads.0) {
            *total = total.wrapping_add(counter.value());
        }
    }

    /// The parts by their names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        HeadPart::ALL.into_iter().zip(self.0).map(|(part, bytes)| (part.name(), bytes))
    }

    /// All of them.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.wrapping_add(*bytes))
    }
}

impl serde::Serialize for HeadTotals {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(HEAD_PARTS))?;
        for (name, bytes) in self.named() {
            map.serialize_entry(name, &bytes)?;
        }
        map.end()
    }
}

/// Requests refused since their token is not good, by why, each at the place of its number.
#[derive(Debug, Default)]
pub(crate) struct BadTokens([Counter; Refused::ALL.len()]);

impl BadTokens {
    /// Where one kind is counted.
    pub(crate) fn of(&self, refused: Refused) -> &Counter {
        &self.0[refused.index()]
    }

    /// The kinds by their names.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        Refused::ALL.into_iter().map(Refused::name).zip(&self.0)
    }
}

/// The sum of them at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BadTokenTotals([u64; Refused::ALL.len()]);

impl BadTokenTotals {
    fn add(&mut self, tokens: &BadTokens) {
        for (total, counter) in self.0.iter_mut().zip(&tokens.0) {
            *total = total.wrapping_add(counter.value());
        }
    }

    /// The kinds by their names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refused::ALL.into_iter().map(Refused::name).zip(self.0)
    }
}

impl serde::Serialize for BadTokenTotals {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.named())
    }
}

/// What one worker counts of a route that answers several values.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Route {
    /// What its path begins with.
    path: String,
    requests: Counter,
    names: Counter,
    values: Counter,
    name_bytes: Counter,
    template: Counter,
}

impl Route {
    pub(crate) fn new(path: &str) -> Route {
        let [requests, names, values, name_bytes, template] = Default::default();
        Route { path: path.to_owned(), requests, names, values, name_bytes, template }
    }

    /// Takes note of a request for so many names.
    pub(crate) fn count(&self, names: usize) {
        self.requests.add(1);
        self.names.add(names as u64);
    }

    /// Takes note of an answer that was sent.
    pub(crate) fn count_body(&self, shares: LineShares) {
        self.values.add(shares.values as u64);
        self.name_bytes.add(shares.names as u64);
        self.template.add(shares.template as u64);
    }

    /// What the bodies were that were sent so far.
    pub(crate) fn counted(&self) -> LineShares {
        let [values, names, template] = [&self.values, &self.name_bytes, &self.template]
            .map(|counter| usize::try_from(counter.value()).unwrap_or(usize::MAX));
        LineShares { values, names, template }
    }

    fn counters(&self) -> [&Counter; 5] {
        [&self.requests, &self.names, &self.values, &self.name_bytes, &self.template]
    }
}

/// The sum of what workers have counted of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct RouteTotals {
    /// What its path begins with.
    pub(crate) path: String,
    /// Requests that were answered, 304 and refusals of what was too much included.
    pub(crate) requests: u64,
    /// Names that were asked for.
    pub(crate) names: u64,
    /// Of the bodies, bytes that are values.
    pub(crate) bytes_values: u64,
    /// Bytes that are names.
    pub(crate) bytes_names: u64,
    /// All others.
    pub(crate) bytes_template: u64,
}

/// The routes of a worker, as others see them. The worker has the same ones at hand, and takes this
/// lock only when the settings change.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<Vec<Arc<Route>>>);

impl Routes {
    /// Goes by these look-ups from now on: the page of many values first, then a route for each, in
    /// their order. A path that was there goes on counting.
    pub(crate) fn renew(&self, lookups: &[Lookup]) -> Vec<Arc<Route>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let paths =
            [VALUES_PATH].into_iter().chain(lookups.iter().map(|route| route.path.as_str()));
        let renewed = paths.map(|path| {
            let known = all.iter().find(|route| route.path == path);
            known.map_or_else(|| Arc::new(Route::new(path)), Arc::clone)
        });
        *all = renewed.collect();
        all.clone()
    }

    fn all(&self) -> Vec<Arc<Route>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What all workers have counted, route by route, in the order of the settings.
    pub(crate) fn sum<'a>(workers: impl IntoIterator<Item = &'a Stats>) -> Vec<RouteTotals> {
        let mut totals: Vec<RouteTotals> = Vec::new();
        for route in workers.into_iter().flat_map(|worker| worker.routes.all()) {
            let at = totals.iter().position(|total| total.path == route.path);
            let at = at.unwrap_or_else(|| {
                totals.push(RouteTotals { path: route.path.clone(), ..RouteTotals::default() });
                totals.len() - 1
            });
            let total = &mut totals[at];
            let sums = [
                &mut total.requests,
                &mut total.names,
                &mut total.bytes_values,
                &mut total.bytes_names,
                &mut total.bytes_template,
            ];
            for (sum, counter) in sums.into_iter().zip(route.counters()) {
                *sum = sum.wrapping_add(counter.value());
            }
        }
        totals
    }
}

/// The path of the page of many values.
pub(crate) const VALUES_PATH: &str = "/-/values";

/// Handshakes and sessions of TLS that came to nothing, by why, each at the place of its number.
#[derive(Debug, Default)]
pub(crate) struct TlsFailures([Counter; Failed::ALL.len()]);

impl TlsFailures {
    /// Where one kind is counted.
    pub(crate) fn of(&self, why: Failed) -> &Counter {
        &self.0[why as usize]
    }

    /// The kinds by their names.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        Failed::ALL.into_iter().map(Failed::name).zip(&self.0)
    }
}

/// The sum of them at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TlsFailureTotals([u64; Failed::ALL.len()]);

impl TlsFailureTotals {
    fn add(&mut self, failures: &TlsFailures) {
        for (total, counter) in self.0.iter_mut().zip(&failures.0) {
            *total = total.wrapping_add(counter.value());
        }
    }

    /// The kinds by their names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Failed::ALL.into_iter().map(Failed::name).zip(self.0)
    }
}

impl serde::Serialize for TlsFailureTotals {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.named())
    }
}

macro_rules! stats {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The counters of one worker, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Stats {
            $($(#[doc = $doc])+ pub(crate) $name: Counter,)+
            /// From the publishing of a message until the last of its readers on this worker was
            /// visited.
            pub(crate) fan_outs: Histogram,
            /// From when a request was whole until its answer had left, by the kinds of requests.
            pub(crate) requests_by_kind: [Histogram; RequestKind::ALL.len()],
            /// Bytes of response heads.
            pub(crate) heads: Heads,
            /// Requests refused since their token is not good.
            pub(crate) refused_tokens: BadTokens,
            /// Handshakes and sessions of TLS that came to nothing.
            pub(crate) tls_failed: TlsFailures,
            /// Look-ups by route.
            pub(crate) routes: Routes,
        }

        impl Stats {
            /// All counters with their names, but those of histograms and of routes.
            fn counters(&self) -> Vec<(String, &Counter)> {
                let heads = HeadPart::ALL.into_iter().zip(&self.heads.0);
                let heads = heads.map(|(part, bytes)| (format!("heads.{}", part.name()), bytes));
                let all = vec![$((stringify!($name).to_owned(), &self.$name),)*];
                let tokens = self.refused_tokens.named();
                let tokens = tokens.map(|(name, count)| (format!("refused_tokens.{name}"), count));
                let failed = self.tls_failed.named();
                let failed = failed.map(|(name, count)| (format!("tls_failed.{name}"), count));
                all.into_iter().chain(heads).chain(tokens).chain(failed).collect()
            }
        }

        /// The sum over all workers at one moment.
        #[derive(Clone, Copy, Debug, Default, serde::Serialize)]
        pub(crate) struct Totals {
            $($(#[doc = $doc])+ pub(crate) $name: u64,)+
            /// Bytes of response heads.
            pub(crate) bytes_heads: u64,
            /// Requests refused since their token is not good, by why.
            pub(crate) refused_tokens: BadTokenTotals,
            /// Handshakes and sessions of TLS that came to nothing, by why.
            pub(crate) tls_failed: TlsFailureTotals,
            #[serde(skip)]
            pub(crate) fan_outs: Times,
            #[serde(skip)]
            pub(crate) requests_by_kind: [Times; RequestKind::ALL.len()],
            #[serde(skip)]
            pub(crate) heads: HeadTotals,
        }

        impl Totals {
            /// Adds up what the workers have counted.
            pub(crate) fn sum<'a>(workers: impl IntoIterator<Item = &'a Stats>) -> Totals {
                let mut totals = Totals::default();
                let mut oldest_ms = 0;
                for worker in workers {
                    oldest_ms = worker.accept_queue_age_ms.value().max(oldest_ms);
                    $(totals.$name = totals.$name.wrapping_add(worker.$name.value());)+
                    totals.fan_outs.add(&worker.fan_outs);
                    for (times, histogram) in
                        totals.requests_by_kind.iter_mut().zip(&worker.requests_by_kind)
                    {
                        times.add(histogram);
                    }
                    totals.heads.add(&worker.heads);
                    totals.refused_tokens.add(&worker.refused_tokens);
                    totals.tls_failed.add(&worker.tls_failed);
                }
                totals.bytes_heads = totals.heads.sum();
                // Who waits at one worker waits no longer for the others.
                totals.accept_queue_age_ms = oldest_ms;
                totals
            }
        }
    };
}

impl Totals {
    /// Open connections of all listeners.
    pub(crate) fn open(&self) -> u64 {
        self.connections_public
            + self.connections_control
            + self.connections_monitor
            + self.connections_redirect
    }
}

impl Stats {
    /// Counts a refusal for lack of memory by its reason.
    pub(crate) fn count_refusal_for_memory(&self, error: CommitError) {
        match error {
            CommitError::Refused(Refusal::StorageFull { .. }) => self.publishes_refused_full.add(1),
            CommitError::Refused(Refusal::MemoryShort) => self.publishes_refused_short.add(1),
            _ => {}
        }
    }

    fn histograms(&self) -> impl Iterator<Item = &Histogram> {
        [&self.fan_outs].into_iter().chain(&self.requests_by_kind)
    }

    /// What was counted so far, each counter by its name.
    pub(crate) fn pack(&self, out: &mut Packer) {
        let counters = self.counters();
        (counters.len() as u32).pack(out);
        for (name, counter) in counters {
            name.pack(out);
            counter.value().pack(out);
        }
        let routes = self.routes.all();
        (routes.len() as u32).pack(out);
        for route in routes {
            route.path.pack(out);
            route.counters().map(Counter::value).pack(out);
        }
        self.histograms().for_each(|histogram| histogram.pack(out));
    }

    /// Goes on where another worker ended, without connections yet. Counters that are not known
    /// any more are passed over.
    pub(crate) fn unpack(&self, input: &mut Unpacker<'_>) -> Unpacked<()> {
        let counters = self.counters();
        for _ in 0..u32::unpack(input)? {
            let (name, value) = (String::unpack(input)?, u64::unpack(input)?);
            if let Some((_, counter)) = counters.iter().find(|(known, _)| *known == name) {
                counter.set(value);
            }
        }
        let routes = self.routes.all();
        for _ in 0..u32::unpack(input)? {
            let (path, values) = (String::unpack(input)?, <[u64; 5]>::unpack(input)?);
            if let Some(route) = routes.iter().find(|route| route.path == path) {
                let counters = route.counters().into_iter().zip(values);
                counters.for_each(|(counter, value)| counter.set(value));
            }
        }
        for histogram in self.histograms() {
            histogram.unpack(input)?;
        }
        self.close(false);
        Ok(())
    }

    /// As if nothing had been counted yet.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn forget(&self) {
        let counters = self.counters().into_iter().map(|(_, counter)| counter);
        counters.chain(self.histograms().flat_map(Histogram::counters)).for_each(|c| c.set(0));
        self.routes.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The worker has ended: none of its connections is there any more. `is_lost` says that it
    /// broke.
    pub(crate) fn close(&self, is_lost: bool) {
        let gauges = [
            &self.connections_public,
            &self.connections_control,
            &self.connections_monitor,
            &self.connections_redirect,
            &self.connections_reading,
            &self.connections_writing,
            &self.readers_sse,
            &self.readers_websocket,
            &self.readers_long_poll,
            &self.readers_behind,
            &self.readers_by_token,
            &self.readers_bytes,
            &self.pinned_bytes,
            &self.filters_bytes,
            &self.filters_unnamed_bytes,
            &self.walks_bytes,
            &self.followers,
            &self.snapshots_under_way,
            &self.followers_behind,
            &self.feed_bytes,
            &self.accept_queue,
            &self.accept_queue_age_ms,
            &self.waiting_requests,
            &self.waiting_commands,
            &self.waiting_replays,
            &self.tls_sessions,
            &self.tls_handshakes_under_way,
            &self.tls_handshakes_waiting,
            &self.tls_bytes,
        ];
        for gauge in gauges {
            gauge.set(0);
        }
        self.workers_lost.add(u64::from(is_lost));
    }
}

stats! {
    /// Connections open on the public listeners.
    connections_public,
    /// Connections open on the control listeners.
    connections_control,
    /// Connections open on the monitor listeners.
    connections_monitor,
    /// Connections open on the redirect listeners.
    connections_redirect,
    /// Of the open connections, those with a request that is not complete.
    connections_reading,
    /// Of the open connections, those with an answer that waits for the peer to read.
    connections_writing,
    /// Readers of Server-Sent Events.
    readers_sse,
    /// WebSockets.
    readers_websocket,
    /// Long-polls that are held.
    readers_long_poll,
    /// Of the readers, those whose socket takes no more for now.
    readers_behind,
    /// Messages sent to readers of streams: each counts once for each reader.
    deliveries,
    /// Messages left out since a newer one of the same topic was sent instead.
    conflated,
    /// Readers told that messages are missing.
    gaps,
    /// Bytes of streams, heads excepted: messages in the forms they are sent in.
    bytes_streams,
    /// Of these, bytes of the messages' data. A form that is deflated has none that could be told
    /// from the rest.
    bytes_streams_data,
    /// Of these, bytes of deflated forms.
    bytes_streams_deflated,
    /// Bytes that connections own: input that is not complete, answers they do not read,
    /// subscriptions.
    readers_bytes,
    /// Bytes of bodies that connections have still to be sent, each as often as it is to be.
    pinned_bytes,
    /// Bytes of the topics and patterns that are read.
    filters_bytes,
    /// Of these, of patterns and of topics that do not exist.
    filters_unnamed_bytes,
    /// Bytes of messages that walks hold for readers that catch up.
    walks_bytes,
    /// Followers that read a feed.
    followers,
    /// Snapshots that followers are being sent.
    snapshots_under_way,
    /// Of the latest numbers, how many the follower that is furthest behind has not been sent.
    followers_behind,
    /// Feeds and snapshots ended since what they were to be sent next was not kept any more.
    followers_too_slow,
    /// Entries made ready for followers.
    feed_entries,
    /// What is kept of them, in bytes.
    feed_bytes,
    /// Bytes that followers were sent.
    bytes_replication,
    /// Connections cut because they held the most of too much.
    readers_cut,
    /// Connections that wait in line with what they asked for.
    waiting_requests,
    /// Connections that wait in line with commands.
    waiting_commands,
    /// Readers that wait in line for what they have missed.
    waiting_replays,
    /// What requests that ask for much have cost, and the rest of pipelines.
    cost_requests,
    /// What commands have cost.
    cost_commands,
    /// What finding and sending what readers have missed has cost.
    cost_replays,
    /// Connections accepted since the start.
    accepted,
    /// Times accepting paused because files or memory had run out, or there were as many
    /// connections as there may be.
    accept_pauses,
    /// Connections that wait to be accepted.
    accept_queue,
    /// How long whoever is accepted now has waited for it, in milliseconds.
    accept_queue_age_ms,
    /// Connections refused since their address had as many as it may.
    connections_refused,
    /// Idle connections evicted for newcomers, since their address held the most.
    connections_evicted,
    /// Connections refused at addresses for proxies: from no trusted proxy, or without a header.
    proxy_headers_refused,
    /// Requests told to come again later, since there was no room.
    requests_put_off,
    /// Workers that broke; the others go on.
    workers_lost,
    /// Requests read to the end of their head.
    requests,
    /// Answers that switch to another protocol (101).
    answers_101,
    /// Answers with a status of 2xx.
    answers_2xx,
    /// Answers that lead elsewhere (301; or 307, where another server is followed).
    answers_301,
    /// Answers 304 Not Modified.
    answers_304,
    /// Answers with a status of 4xx.
    answers_4xx,
    /// Answers with a status of 5xx.
    answers_5xx,
    /// Values served in a compressed form.
    answers_compressed,
    /// Files answered from memory.
    file_hits,
    /// Files that had to be opened to be answered.
    file_misses,
    /// Files whose sending ended early, since they changed meanwhile.
    files_cut,
    /// Bytes of files sent straight from the disk, by sendfile.
    bytes_sendfile,
    /// Names looked up, by `/-/values` and look-up routes.
    lookups,
    /// Publishes refused, bad lines of bulk streams included.
    publishes_refused,
    /// Publishes refused because values fill `limits.stored_bytes_max`.
    publishes_refused_full,
    /// Publishes refused because memory was short for a while.
    publishes_refused_short,
    /// Requests refused since nobody may do that there or so: an origin, a host, a pattern.
    refused_policy,
    /// Requests refused for want of a token.
    refused_no_token,
    /// Requests refused since their token does not allow what they ask.
    refused_not_covered,
    /// Streams and held requests ended since their token had.
    readers_expired,
    /// Connections that read by a token.
    readers_by_token,
    /// Tokens verified, and not remembered from before.
    tokens_verified,
    /// Connections that speak TLS, with a session.
    tls_sessions,
    /// Handshakes under way.
    tls_handshakes_under_way,
    /// Connections that wait for room to begin a handshake, or to go on with it.
    tls_handshakes_waiting,
    /// Handshakes that made a session of TLS 1.2.
    tls_handshakes_12,
    /// Handshakes that made a session of TLS 1.3.
    tls_handshakes_13,
    /// Of these, those that went on from an earlier session.
    tls_resumed,
    /// What handshakes have taken, in microseconds.
    tls_handshakes_us,
    /// Times a connection's key was changed since its peer asked for it.
    tls_key_updates,
    /// What sessions, handshakes, and records on their way take, in bytes.
    tls_bytes,
    /// Connections ended in the middle of a request or an answer because a deadline passed.
    timeouts,
    /// Lines of the access log that were dropped, since it was not written fast enough.
    access_log_dropped,
    /// Lines of the process's own log that were dropped, since standard error was not read.
    log_dropped,
    /// Bytes received.
    bytes_in,
    /// Bytes of response bodies.
    bytes_bodies,
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// Nothing is under way: the record is free, or waits for a request, an event or its turn.
    Waiting,
    /// A request has begun and is not complete.
    Reading,
    /// An answer waits for the peer to read.
    Writing,
    /// Messages of a stream wait for the peer to read.
    Behind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_of_a_worker_that_ended_are_zero() {
        let stats = Stats::default();
        for counter in [&stats.readers_by_token, &stats.readers_sse, &stats.requests] {
            counter.set(3);
        }
        stats.close(true);
        let totals = Totals::sum([&stats]);
        let gauges = (totals.readers_by_token, totals.readers_sse);
        assert_eq!((gauges, totals.requests, totals.workers_lost), ((0, 0), 3, 1));
    }
}
