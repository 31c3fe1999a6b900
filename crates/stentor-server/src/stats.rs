//! What each worker counts, and the sum that is made when somebody asks.
//!
//! A counter has one writer, its worker, so counting is a plain load and store of the worker's
//! own cache lines; no other thread touches them but to read.

use stentor_io::Counter;
use stentor_wire::pack::{Packed, Packer, Unpacked, Unpacker};

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
}

/// The sum of histograms at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// How many took at most each bound and more than the one before; the last, more than any.
    pub(crate) buckets: [u64; BOUNDS_US.len() + 1],
    pub(crate) sum_us: u64,
}

impl Times {
    fn add(&mut self, histogram: &Histogram) {
        for (total, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *total = total.wrapping_add(bucket.value());
        }
        self.sum_us = self.sum_us.wrapping_add(histogram.sum_us.value());
    }
}

/// The bounds of a histogram's buckets, in microseconds: a tenth of a millisecond to ten seconds.
pub(crate) const BOUNDS_US: [u64; 11] =
    [100, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000, 10_000_000];

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
        }

        impl Stats {
            /// All counters with their names, but those of the histogram.
            fn counters(&self) -> Vec<(&'static str, &Counter)> {
                vec![$((stringify!($name), &self.$name),)*]
            }
        }

        /// The sum over all workers at one moment.
        #[derive(Clone, Copy, Debug, Default, serde::Serialize)]
        pub(crate) struct Totals {
            $($(#[doc = $doc])+ pub(crate) $name: u64,)+
            #[serde(skip)]
            pub(crate) fan_outs: Times,
        }

        impl Totals {
            /// Adds up what the workers have counted.
            pub(crate) fn sum<'a>(workers: impl IntoIterator<Item = &'a Stats>) -> Totals {
                let mut totals = Totals::default();
                for worker in workers {
                    $(totals.$name = totals.$name.wrapping_add(worker.$name.value());)+
                    totals.fan_outs.add(&worker.fan_outs);
                }
                totals
            }
        }
    };
}

impl Stats {
    /// What was counted so far, each counter by its name.
    pub(crate) fn pack(&self, out: &mut Packer) {
        let Histogram { buckets, sum_us } = &self.fan_outs;
        let counters = self.counters();
        (counters.len() as u32).pack(out);
        for (name, counter) in counters {
            name.to_owned().pack(out);
            counter.value().pack(out);
        }
        buckets.each_ref().map(Counter::value).pack(out);
        sum_us.value().pack(out);
    }

    /// Goes on where another worker ended, without connections yet. Counters that are not known
    /// any more are passed over.
    pub(crate) fn unpack(&self, input: &mut Unpacker<'_>) -> Unpacked<()> {
        let counters = self.counters();
        for _ in 0..u32::unpack(input)? {
            let (name, value) = (String::unpack(input)?, u64::unpack(input)?);
            if let Some((_, counter)) = counters.iter().find(|(known, _)| **known == name) {
                counter.set(value);
            }
        }
        let Histogram { buckets, sum_us } = &self.fan_outs;
        let values = <[u64; BOUNDS_US.len() + 1]>::unpack(input)?;
        buckets.iter().zip(values).for_each(|(bucket, value)| bucket.set(value));
        sum_us.set(u64::unpack(input)?);
        self.close(false);
        Ok(())
    }

    /// As if nothing had been counted yet.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn forget(&self) {
        let Histogram { buckets, sum_us } = &self.fan_outs;
        let counters = self.counters().into_iter().map(|(_, counter)| counter);
        counters.chain(buckets).chain([sum_us]).for_each(|counter| counter.set(0));
    }

    /// The worker has ended: none of its connections is there any more. `is_lost` says that it
    /// broke.
    pub(crate) fn close(&self, is_lost: bool) {
        let gauges = [
            &self.connections_public,
            &self.connections_control,
            &self.connections_monitor,
            &self.connections_reading,
            &self.connections_writing,
            &self.readers_sse,
            &self.readers_websocket,
            &self.readers_long_poll,
            &self.readers_behind,
            &self.readers_bytes,
            &self.pinned_bytes,
            &self.filters_bytes,
            &self.filters_unnamed_bytes,
            &self.walks_bytes,
            &self.waiting_requests,
            &self.waiting_commands,
            &self.waiting_replays,
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
    /// Bytes of streams, heads excepted.
    bytes_streams,
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
    /// Connections refused since their address had as many as it may.
    connections_refused,
    /// Workers that broke; the others go on.
    workers_lost,
    /// Requests read to the end of their head.
    requests,
    /// Answers with a status of 2xx, 304 excepted below.
    answers_2xx,
    /// Answers that lead elsewhere (301).
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
    /// Connections ended in the middle of a request or an answer because a deadline passed.
    timeouts,
    /// Bytes received.
    bytes_in,
    /// Bytes of response heads.
    bytes_heads,
    /// Bytes of response bodies.
    bytes_bodies,
}

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// For its next request, if it is open at all.
    Waiting,
    /// A request has begun and is not complete.
    Reading,
    /// An answer waits for the peer to read.
    Writing,
    /// Messages of a stream do.
    Behind,
}
