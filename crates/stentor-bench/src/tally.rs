//! What each thread counts, and what it hands over in the end.
//!
//! There are two kinds. A [`Tally`] is looked at from outside while the run is under way: numbers
//! with one writer each, so that counting is a plain load and store. An [`Outcome`] belongs to the
//! thread alone until the thread is done: histograms, errors by kind, messages. Neither takes a
//! lock.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use stentor_io::Counter;

macro_rules! tally {
    (
        counts: $($(#[doc = $doc:literal])+ $name:ident,)+
        latest: $($(#[doc = $moment:literal])+ $latest:ident,)+
    ) => {
        /// What one thread counts, on cache lines of its own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Tally {
            $($(#[doc = $doc])+ pub(crate) $name: Counter,)+
            $($(#[doc = $moment])+ pub(crate) $latest: Counter,)+
        }

        /// The sum over all threads at one moment.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Counts {
            $($(#[doc = $doc])+ pub(crate) $name: u64,)+
            $($(#[doc = $moment])+ pub(crate) $latest: u64,)+
        }

        impl Counts {
            /// Adds up what the threads have counted.
            pub(crate) fn sum<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Counts {
                let of_one = |tally: &Tally| Counts {
                    $($name: tally.$name.value(),)+
                    $($latest: tally.$latest.value(),)+
                };
                tallies.into_iter().map(of_one).fold(Counts::default(), Counts::plus)
            }

            /// Both together.
            pub(crate) fn plus(self, other: Counts) -> Counts {
                Counts {
                    $($name: self.$name.wrapping_add(other.$name),)+
                    $($latest: self.$latest.max(other.$latest),)+
                }
            }
        }
    };
}

tally! {
counts:
    /// Connections established, whatever they are for.
    connections,
    /// Requesters established, those that came back included.
    requesters_opened,
    /// Holders that were answered as they should be.
    opened,
    /// Of those, readers that stall when told to.
    opened_stalling,
    /// Of those that were opened, still there.
    held,
    /// Holders that never came to that.
    failed,
    /// Of those that came to it, ended by the server or the network.
    held_dropped,
    /// Requesters that were ended by the server or the network.
    dropped,
    /// Answers that requesters got whole.
    completed,
    /// Requests that were sent, and will not be answered.
    lost,
    /// Messages that readers got which read all the time; each counts once.
    delivered,
    /// Messages that readers got which stall.
    delivered_stalled,
    /// Everything that went wrong.
    errors,
    /// Bytes received.
    received,
    /// Bytes sent.
    sent,
latest:
    /// When the newest of `requesters_opened` was established, on the monotonic clock.
    requester_opened_us,
    /// When the newest of `opened` was answered.
    opened_us,
    /// When the newest of `completed` was whole.
    completed_us,
    /// When the newest of `delivered` came.
    delivered_us,
}

/// What one thread found out, or all of them together.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From a request, or when it was due, to the end of its answer; in microseconds, as all are.
    pub(crate) latency: [Histogram<u64>; PERIODS],
    /// From `connect` to an established connection.
    pub(crate) connect: Histogram<u64>,
    /// From `connect` to the first answer's head.
    pub(crate) first_answer: Histogram<u64>,
    /// From publishing to a reader, by when it was published.
    pub(crate) delivery: [Histogram<u64>; PERIODS],
    /// How late a thread was awake that was to be so by a certain time.
    pub(crate) late: Histogram<u64>,
    /// Answers by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Errors by kind.
    pub(crate) errors: BTreeMap<Cow<'static, str>, u64>,
    /// How far each of the messages that are followed has come, in order.
    pub(crate) messages: Vec<Spread>,
    /// Readers that read all the time.
    pub(crate) steady: ReaderTally,
    /// Readers that stalled.
    pub(crate) stalled: ReaderTally,
    /// Requests that were due and never answered, by when the run ended.
    pub(crate) unanswered: u64,
    /// Readers of each server and how late they were; of all threads together.
    pub(crate) places: Vec<(u64, Histogram<u64>)>,
}

/// How far one message has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    pub(crate) readers: u64,
    /// After it was published.
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
}

/// What readers of one kind got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReaderTally {
    pub(crate) readers: u64,
    /// Those that got every message once, in order.
    pub(crate) complete: u64,
    /// Those that have the last message.
    pub(crate) current: u64,
    pub(crate) delivered: u64,
    pub(crate) missing: u64,
    /// Of these, at readers that were told of no gap.
    pub(crate) untold: u64,
    pub(crate) duplicates: u64,
    pub(crate) out_of_order: u64,
    pub(crate) gaps_told: u64,
    pub(crate) dropped: u64,
}

impl Outcome {
    /// Nothing yet, with room to follow so many messages.
    pub(crate) fn new(messages: usize) -> Outcome {
        Outcome {
            latency: std::array::from_fn(|_| histogram()),
            connect: histogram(),
            first_answer: histogram(),
            delivery: std::array::from_fn(|_| histogram()),
            late: histogram(),
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            messages: vec![Spread::default(); messages],
            steady: ReaderTally::default(),
            stalled: ReaderTally::default(),
            unanswered: 0,
            places: Vec::new(),
        }
    }

    /// Counts errors of one kind, if there are any.
    pub(crate) fn errors_of(&mut self, kind: Cow<'static, str>, count: u64) {
        if count > 0 {
            *self.errors.entry(kind).or_default() += count;
        }
    }

    /// Counts an answer's status.
    pub(crate) fn status(&mut self, status: u16) {
        *self.statuses.entry(status).or_default() += 1;
    }

    /// Adds what another thread found out.
    pub(crate) fn merge(&mut self, other: &Outcome) {
        let latency = self.latency.iter_mut().zip(&other.latency);
        let pairs = latency.chain(self.delivery.iter_mut().zip(&other.delivery));
        let more = [
            (&mut self.connect, &other.connect),
            (&mut self.first_answer, &other.first_answer),
            (&mut self.late, &other.late),
        ];
        for (mine, theirs) in pairs.chain(more) {
            mine.add(theirs).expect("a histogram that grows takes any other");
        }
        for (&status, count) in &other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        for (mine, theirs) in self.messages.iter_mut().zip(&other.messages) {
            mine.merge(theirs);
        }
        self.steady.merge(&other.steady);
        self.stalled.merge(&other.stalled);
        self.unanswered += other.unanswered;
    }
}

impl Spread {
    /// One more reader has it.
    pub(crate) fn reached(&mut self, after_us: u64) {
        self.merge(&Spread { readers: 1, first_us: after_us, last_us: after_us });
    }

    fn merge(&mut self, other: &Spread) {
        if other.readers > 0 {
            let first = self.readers == 0;
            self.first_us = if first { other.first_us } else { self.first_us.min(other.first_us) };
            self.last_us = self.last_us.max(other.last_us);
            self.readers += other.readers;
        }
    }
}

impl ReaderTally {
    fn merge(&mut self, other: &ReaderTally) {
        self.readers += other.readers;
        self.complete += other.complete;
        self.current += other.current;
        self.delivered += other.delivered;
        self.missing += other.missing;
        self.untold += other.untold;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.gaps_told += other.gaps_told;
        self.dropped += other.dropped;
    }
}

/// Notes a time, in microseconds.
pub(crate) fn record(histogram: &mut Histogram<u64>, us: u64) {
    // It grows as need be; only what no clock shows would not fit.
    let _ = histogram.record(us);
}

/// A histogram of microseconds that is small until it has something to hold.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_DIGITS).expect("so many digits are within what the library takes")
}

/// Requests and messages are told apart by when they were due: before, during and after a surge,
/// and while those who came with it go.
pub(crate) const PERIODS: usize = 4;

/// A figure is right to one in a thousand.
const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let tallies = [Tally::default(), Tally::default()];
        tallies[0].completed.add(5);
        tallies[1].completed.add(7);
        // One thread may have seen more ends than beginnings; the sum is right all the same.
        tallies[0].connections.sub(1);
        tallies[1].connections.add(3);
        let counts = Counts::sum(&tallies);
        assert_eq!((counts.completed, counts.connections), (12, 2));
        tallies[0].completed_us.set(30);
        tallies[1].completed_us.set(20);
        assert_eq!(Counts::sum(&tallies).completed_us, 30, "the newest of all");
    }

    #[test]
    fn outcomes_add_up() {
        let (mut mine, mut theirs) = (Outcome::new(2), Outcome::new(2));
        mine.status(200);
        (0..2).for_each(|_| theirs.status(200));
        theirs.status(503);
        mine.errors_of("connection refused".into(), 1);
        mine.errors_of("no answer by the end".into(), 0);
        theirs.errors_of("connection refused".into(), 1);
        theirs.errors_of("status 503".into(), 1);
        record(&mut mine.delivery[1], 10);
        record(&mut theirs.delivery[1], 3_600_000_000);
        mine.messages[0].reached(30);
        mine.messages[0].reached(50);
        theirs.messages[0].reached(20);
        theirs.messages[1].reached(70);
        theirs.steady =
            ReaderTally { readers: 2, complete: 1, missing: 4, ..ReaderTally::default() };
        mine.merge(&theirs);
        assert_eq!(mine.statuses, [(200, 3), (503, 1)].into());
        let errors: Vec<_> = mine.errors.iter().map(|(kind, n)| (&**kind, *n)).collect();
        assert_eq!(errors, [("connection refused", 2), ("status 503", 1)]);
        assert_eq!((mine.delivery[1].len(), mine.delivery[1].min()), (2, 10));
        let [first, second] = &mine.messages[..] else { panic!("two are followed") };
        assert_eq!((first.readers, first.first_us, first.last_us), (3, 20, 50));
        assert_eq!((second.readers, second.first_us, second.last_us), (1, 70, 70));
        assert_eq!((mine.steady.readers, mine.steady.complete, mine.steady.missing), (2, 1, 4));
    }
}
