//! What each worker counts, and the sum that is made when somebody asks.
//!
//! A counter has one writer, its worker, so counting is a plain load and store of the worker's
//! own cache lines; no other thread touches them but to read.

use crate::listeners::{CONTROL, MONITOR, REDIRECT};
pub use crate::metrics::{Stats, Totals};
use crate::paths::VALUES;
use serde::ser::Serializer;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use stentor_access::Refused;
use stentor_config::Lookup;
use stentor_hub::Refusal;
use stentor_io::{Counter, Histogram, Role};
use stentor_order::CommitError;
use stentor_tls_layer::{TlsCounts, TlsFailure};
use stentor_wire::label::Label;
use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker};

/// A value for each label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Labelled<L, T, const N: usize>([T; N], PhantomData<L>);

impl<L, T: Default, const N: usize> Default for Labelled<L, T, N> {
    fn default() -> Self {
        Labelled(std::array::from_fn(|_| T::default()), PhantomData)
    }
}

impl<L: Label, T, const N: usize> Labelled<L, T, N> {
    /// The values with the names of their labels.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &T)> {
        L::ALL.iter().map(|label| label.name()).zip(&self.0)
    }
}

impl<L: Label, const N: usize> Labelled<L, Counter, N> {
    /// The counter of one label.
    pub(crate) fn of(&self, label: L) -> &Counter {
        &self.0[label.index()]
    }
}

impl<L: Label, const N: usize> Labelled<L, u64, N> {
    /// Adds what one worker has counted.
    pub(crate) fn add(&mut self, counters: &Labelled<L, Counter, N>) {
        for (total, counter) in self.0.iter_mut().zip(&counters.0) {
            *total = total.wrapping_add(counter.value());
        }
    }
}

impl<L: Label, const N: usize> serde::Serialize for Labelled<L, u64, N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.named())
    }
}

/// Requests refused since their token is not good, by why.
pub(crate) type BadTokens<T> = Labelled<Refused, T, { Refused::ALL.len() }>;

/// Handshakes and sessions of TLS that came to nothing, by why.
pub(crate) type TlsFailures<T> = Labelled<TlsFailure, T, { TlsFailure::ALL.len() }>;

/// What one worker counts of a route that answers several values.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Route {
    /// What its path begins with.
    path: String,
    requests: Counter,
    names: Counter,
}

impl Route {
    pub(crate) fn new(path: &str) -> Route {
        let [requests, names] = Default::default();
        Route { path: path.to_owned(), requests, names }
    }

    /// Takes note of a request for so many names.
    pub(crate) fn count(&self, names: usize) {
        self.requests.add(1);
        self.names.add(names as u64);
    }

    fn counters(&self) -> [&Counter; 2] {
        [&self.requests, &self.names]
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
}

/// The routes of a worker, as others see them. The worker has the same ones at hand, and takes this
/// lock only when the settings change.
#[derive(Debug, Default)]
pub(crate) struct Routes(Mutex<Vec<Arc<Route>>>);

impl Routes {
    /// Goes by these look-ups from now on: the page of many values first, then a route for each, in
    /// their order. A path that was there goes on counting.
    pub(crate) fn renew(&self, lookups: &[Lookup]) -> Vec<Arc<Route>> {
        let mut all = stentor_io::lock(&self.0);
        let paths = [VALUES].into_iter().chain(lookups.iter().map(|route| route.path.as_str()));
        let renewed = paths.map(|path| {
            let known = all.iter().find(|route| route.path == path);
            known.map_or_else(|| Arc::new(Route::new(path)), Arc::clone)
        });
        *all = renewed.collect();
        all.clone()
    }

    fn all(&self) -> Vec<Arc<Route>> {
        stentor_io::lock(&self.0).clone()
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
            let sums = [&mut total.requests, &mut total.names];
            for (sum, counter) in sums.into_iter().zip(route.counters()) {
                *sum = sum.wrapping_add(counter.value());
            }
        }
        totals
    }
}

impl Totals {
    /// Open connections of all listeners.
    pub fn open(&self) -> u64 {
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

    /// Counts what the layer of TLS has counted since the last call.
    pub fn count_tls(&self, counts: &TlsCounts) {
        self.tls_sessions.set(counts.sessions);
        self.tls_handshakes_under_way.set(counts.handshakes_under_way);
        self.tls_handshakes_waiting.set(counts.handshakes_waiting);
        self.tls_bytes.set(counts.bytes);
        self.tls_handshakes_12.add(counts.handshakes_12);
        self.tls_handshakes_13.add(counts.handshakes_13);
        self.tls_resumed.add(counts.resumed);
        self.tls_handshakes_us.add(counts.handshakes_us);
        self.tls_key_updates.add(counts.key_updates);
        for (counter, n) in self.tls_failed.0.iter().zip(counts.failed) {
            counter.add(n);
        }
    }

    /// The counter of open connections of a role.
    pub(crate) fn connections(&self, role: Role) -> &Counter {
        match role {
            MONITOR => &self.connections_monitor,
            REDIRECT => &self.connections_redirect,
            CONTROL => &self.connections_control,
            _ => &self.connections_public,
        }
    }

    /// Keeps count of what connections do.
    pub(crate) fn note(&self, before: Activity, after: Activity) {
        if before == after {
            return;
        }
        let counter = |activity| match activity {
            Activity::Waiting => None,
            Activity::Reading => Some(&self.connections_reading),
            Activity::Writing => Some(&self.connections_writing),
            Activity::Behind => Some(&self.readers_behind),
        };
        if let Some(counter) = counter(before) {
            counter.sub(1);
        }
        if let Some(counter) = counter(after) {
            counter.add(1);
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
            let [requests, names] = route.counters().map(Counter::value);
            // This version of the format has three more counters of a route.
            [requests, names, 0, 0, 0].pack(out);
        }
        self.histograms().for_each(|histogram| pack_histogram(histogram, out));
    }

    /// Goes on where another worker ended, without connections yet. Counters that are not known
    /// any more are passed over.
    pub(crate) fn unpack(&self, input: &mut Unpacker<'_>) -> Unpacked<()> {
        let counters = self.counters();
        for _ in 0..u32::unpack(input)? {
            let (name, value) = (String::unpack(input)?, u64::unpack(input)?);
            match counters.iter().find(|(known, _)| *known == name) {
                Some((_, counter)) => counter.set(value),
                // An earlier release counted heads by their fields.
                None if name.starts_with("heads.") => self.bytes_heads.add(value),
                None => {}
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
            unpack_histogram(histogram, input)?;
        }
        self.close(false);
        Ok(())
    }

    /// As if nothing had been counted yet.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn forget(&self) {
        let counters = self.counters().into_iter().map(|(_, counter)| counter);
        counters.chain(self.histograms().flat_map(Histogram::counters)).for_each(|c| c.set(0));
        stentor_io::lock(&self.routes.0).clear();
    }

    /// The worker has ended: none of its connections is there any more. `is_lost` says that it
    /// broke.
    pub fn close(&self, is_lost: bool) {
        self.reset_gauges();
        self.workers_lost.add(u64::from(is_lost));
    }
}

/// Packs what a histogram has counted so far.
pub fn pack_histogram(histogram: &Histogram, out: &mut Packer) {
    histogram.counters().map(Counter::value).collect::<Vec<_>>().pack(out);
}

/// Lets a histogram go on where another one ended.
pub fn unpack_histogram(histogram: &Histogram, input: &mut Unpacker<'_>) -> Unpacked<()> {
    let values = Vec::<u64>::unpack(input)?;
    if values.len() != histogram.counters().count() {
        return Err(MISFIT);
    }
    histogram.counters().zip(values).for_each(|(counter, value)| counter.set(value));
    Ok(())
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
    fn counts_of_tls_continue_after_an_upgrade() {
        let stats = Stats::default();
        stats.tls_handshakes_us.set(5);
        let mut counts = TlsCounts { sessions: 2, handshakes_us: 3, ..TlsCounts::default() };
        counts.failed[TlsFailure::GivenUp as usize] = 4;
        for _ in 0..2 {
            stats.count_tls(&counts);
        }
        assert_eq!((stats.tls_sessions.value(), stats.tls_handshakes_us.value()), (2, 11));
        assert_eq!(stats.tls_failed.of(TlsFailure::GivenUp).value(), 8);
        assert_eq!(stats.tls_failed.of(TlsFailure::Record).value(), 0);
    }

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
