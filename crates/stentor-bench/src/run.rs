//! A run from its beginning to its report: one file below for each command says what happens in
//! which order, this one has what they share.
//!
//! Whoever directs a run sleeps most of the time. A few times a second it looks at what the threads
//! have counted, notes a point of the timeline, tells whoever looks on, and asks whether the
//! phase is over.

mod hold;
mod push;
mod requests;
mod stopped;
mod surge;

use std::io;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hdrhistogram::Histogram;
use stentor_io::{monotonic_us, unix_s};
use stentor_tls::{Connector, Trust};

use crate::crew::{BenchError, Crew};
use crate::gauge::{Gauge, MemoryNow, machine};
use crate::orders::ThreadWork;
use crate::plan::{Plan, Setup, Task};
use crate::progress::{Progress, Watch};
use crate::publisher::Publisher;
use crate::report::{Bytes, Connections, ErrorCount, Latency, Memory, Point, Processor, Report};
use crate::tally::{Counts, Outcome};
use crate::target::Target;

/// Does what the plan says.
///
/// # Errors
/// The plan cannot be carried out on this host, or nothing at all could be measured.
pub fn run(plan: &Plan, watch: &dyn Watch) -> Result<Report, BenchError> {
    run_since(plan, watch, None)
}

/// The same, with the watched process's memory counted from what it was before an earlier run: a
/// server that keeps what it once had would seem to need none for the connections of the second.
pub(crate) fn run_since(
    plan: &Plan,
    watch: &dyn Watch,
    process_before: Option<u64>,
) -> Result<Report, BenchError> {
    let mut report = match &plan.task {
        Task::Requests(requests) => requests::run(plan, requests, watch),
        Task::Hold(hold) => hold::run(plan, hold, watch),
        Task::Push(push) => push::run(plan, push, watch),
        Task::Surge(surge) => surge::run(plan, surge, watch),
    }?;
    if let (Some(memory), Some(before)) = (&mut report.memory, process_before) {
        memory.process_bytes = memory.process_resident_bytes.map(|now| now as i64 - before as i64);
    }
    Ok(report)
}

/// The watched process's memory now, if there is one.
///
/// # Errors
/// It is not there, or may not be looked at.
pub(crate) fn process_bytes(plan: &Plan) -> Result<Option<u64>, BenchError> {
    let pid = plan.setup.pid;
    let gauge = Gauge::new(pid).map_err(|error| no_process(pid, &error))?;
    Ok(gauge.process_bytes())
}

impl Target {
    /// Returns how to connect by TLS, for a target that asks for it.
    pub(crate) fn connector(&self, setup: &Setup) -> Result<Option<Connector>, BenchError> {
        let Some(name) = &self.tls_name else { return Ok(None) };
        let nobody = Trust::Roots(Vec::new());
        let trust = setup.trust.as_deref().unwrap_or(&nobody);
        let connector = Connector::new(name, trust, setup.identity.as_deref());
        connector.map(Some).map_err(|what| BenchError(format!("{}: {what}", self.url)))
    }
}

/// A run under way.
struct ActiveRun<'a> {
    plan: &'a Plan,
    crew: Crew,
    /// Those who are not what is measured, but what is measured by.
    beside: Option<Crew>,
    watch: &'a dyn Watch,
    gauge: Gauge,
    started_unix_s: u64,
    began_us: u64,
    memory_before: MemoryNow,
    timeline: Timeline,
    idle: Idle,
    interrupted: bool,
    /// The phase that stood still for too long, and for how many seconds.
    given_up: Option<(&'static str, u64)>,
}

/// What a phase looks like from outside.
struct PhaseInfo {
    name: &'static str,
    unit: &'static str,
    wanted: u64,
    /// What is counted per second.
    count: fn(&Counts) -> u64,
    ends_us: Option<u64>,
    /// How often to look, at least.
    every: Duration,
    /// After so long without progress a phase without an end is given up.
    patience_us: u64,
}

impl PhaseInfo {
    /// A phase without an end, in which nothing is paced.
    fn new(
        name: &'static str,
        unit: &'static str,
        wanted: impl Into<u64>,
        count: fn(&Counts) -> u64,
    ) -> PhaseInfo {
        PhaseInfo {
            name,
            unit,
            wanted: wanted.into(),
            count,
            ends_us: None,
            every: LOOK,
            patience_us: STANDSTILL_US,
        }
    }
}

impl<'a> ActiveRun<'a> {
    fn start(
        plan: &'a Plan,
        work: ThreadWork,
        watch: &'a dyn Watch,
    ) -> Result<ActiveRun<'a>, BenchError> {
        let pid = plan.setup.pid;
        let gauge = Gauge::new(pid).map_err(|error| no_process(pid, &error))?;
        let memory_before = gauge.memory();
        let began_us = monotonic_us();
        Ok(ActiveRun {
            plan,
            crew: Crew::start(work)?,
            beside: None,
            watch,
            memory_before,
            gauge,
            started_unix_s: unix_s(),
            began_us,
            timeline: Timeline::new(began_us),
            idle: Idle::default(),
            interrupted: false,
            given_up: None,
        })
    }

    fn crews(&self) -> impl Iterator<Item = &Crew> {
        std::iter::once(&self.crew).chain(&self.beside)
    }

    /// What all have counted.
    fn counts(&self) -> Counts {
        self.crews().map(Crew::counts).fold(Counts::default(), Counts::plus)
    }

    /// Those beside tell apart what is due from now on.
    fn begin_period(&self, period: usize, now_us: u64) {
        self.beside.iter().for_each(|beside| beside.orders.begin_period(period, now_us));
    }

    fn pause(&self) {
        self.beside.iter().for_each(|beside| beside.orders.pause(monotonic_us()));
    }

    fn resume(&self) {
        if let Some(beside) = &self.beside {
            beside.orders.resume(monotonic_us());
            beside.wake();
        }
    }

    /// Looks on until `done`, the phase's end, a standstill, or an order to stop: by the caller, or
    /// since a thread of the generator has ended.
    fn look_on(&mut self, phase: &PhaseInfo, done: impl Fn(&Counts) -> bool) {
        self.direct(phase, |_, _| {}, done);
    }

    /// The same. `direct` is called each time, with the time of now, and may give orders.
    fn direct(
        &mut self,
        phase: &PhaseInfo,
        mut direct: impl FnMut(&Crew, u64),
        done: impl Fn(&Counts) -> bool,
    ) {
        let mut moved = (monotonic_us(), 0);
        loop {
            let now_us = monotonic_us();
            direct(&self.crew, now_us);
            let counts = self.counts();
            self.note(phase, now_us, &counts);
            // Bytes do not count: a server that trickles would never be given up.
            let moves = (phase.count)(&counts) + counts.failed + counts.lost;
            if moves != moved.1 {
                moved = (now_us, moves);
            }
            if done(&counts) {
                return;
            }
            if self.watch.stopped() || self.crews().any(Crew::broken) {
                self.interrupted = true;
                return;
            }
            match phase.ends_us {
                Some(ends_us) if now_us >= ends_us => return,
                Some(ends_us) => {
                    let left = Duration::from_micros(ends_us - now_us);
                    std::thread::sleep(phase.every.min(left));
                }
                None if now_us - moved.0 > phase.patience_us => {
                    self.given_up = Some((phase.name, phase.patience_us / 1_000_000));
                    return;
                }
                None => std::thread::sleep(phase.every),
            }
        }
    }

    /// The same for so long, unless the run was interrupted.
    fn look_on_for(&mut self, name: &'static str, time: Duration) {
        if self.interrupted {
            return;
        }
        let ends_us = Some(monotonic_us() + time.as_micros() as u64);
        let phase = PhaseInfo::new(name, "requests", 0_u32, |counts| counts.completed);
        self.look_on(&PhaseInfo { ends_us, ..phase }, |_| false);
    }

    /// Notes a point, and tells whoever looks on.
    fn note(&mut self, phase: &PhaseInfo, now_us: u64, counts: &Counts) {
        let answers = counts.completed + counts.delivered + counts.delivered_stalled;
        let counted = (phase.count)(counts);
        let Some(rates) = self.timeline.due(now_us, answers, counted) else { return };
        let at_us = now_us - self.began_us;
        self.timeline.push(Point {
            at_s: at_us as f64 / 1e6,
            connections: counts.connections,
            per_second: rates.answers,
            errors: counts.errors,
            process_bytes: self.gauge.process_bytes(),
        });
        self.idle.note(now_us, counts, self.gauge.processor());
        self.watch.progress(&Progress {
            phase: phase.name.to_owned(),
            connections: counts.connections,
            connections_wanted: phase.wanted,
            per_second: rates.counted,
            unit: phase.unit,
            errors: counts.errors,
            left: phase.ends_us.map(|end| Duration::from_micros(end.saturating_sub(now_us))),
        });
    }

    /// Opens `wanted` held connections, `ramp` per second, and waits until each is established or
    /// has failed. Returns the seconds until the last was established.
    fn open_holders(&mut self, wanted: u32, ramp: Option<u32>) -> f64 {
        let began_us = monotonic_us();
        let phase = PhaseInfo::new("opening", "connections", wanted, |counts| counts.opened);
        self.direct(
            &PhaseInfo { every: LOOK_OFTEN, ..phase },
            |crew, now_us| crew.raise_holders(due(wanted, ramp, now_us - began_us)),
            |counts| counts.opened + counts.failed >= wanted.into(),
        );
        let counts = self.crew.counts();
        seconds_until(began_us, counts.opened_us, counts.opened, ramp.map(f64::from))
    }

    /// Stops the threads and writes what all reports have.
    fn finish(self, measured: Measured) -> Result<(Report, Outcome, Counts), BenchError> {
        let (outcome, counts) = self.crew.finish()?;
        let processor = measured.processor.map(|(busy, count, each)| Processor {
            busy_seconds: busy.as_secs_f64(),
            baseline_seconds: measured.baseline.as_secs_f64(),
            busy_us_each: busy.as_secs_f64() * 1e6 / (count.max(1) as f64),
            each,
            idle_share: self.idle.share(),
        });
        let mut report = Report {
            command: self.plan.task.name(),
            url: self.plan.setup.target.url.clone(),
            settings: self.plan.task.settings(),
            started_unix_s: self.started_unix_s,
            seconds: measured.seconds,
            interrupted: self.interrupted,
            machine: machine(),
            requests: None,
            connections: Connections {
                connect: latency(&outcome.connect),
                first_answer: latency(&outcome.first_answer),
                ..measured.connections
            },
            delivery: None,
            bystanders: None,
            memory: measured.memory,
            processor,
            errors: Vec::new(),
            bytes: Bytes { received: counts.received, sent: counts.sent },
            timeline: self.timeline.points,
        };
        if let Some((phase, seconds)) = self.given_up {
            let kind = format!("given up: nothing came for {seconds} s while {phase}");
            report.errors.push(ErrorCount { kind, count: 1 });
        }
        report.add_errors(&outcome);
        Ok((report, outcome, counts))
    }

    /// The server's processor time since it was `then`, if that is watched.
    fn busy_since(&self, then: Option<Duration>) -> Option<Duration> {
        Some(self.gauge.processor()?.saturating_sub(then?))
    }

    /// What the connections cost, now that they are all open.
    fn memory(&self, connections: u64) -> Memory {
        let setup = &self.plan.setup;
        let both_ends = setup.target.address.ip().is_loopback() || setup.pid.is_some();
        self.gauge.memory().since(&self.memory_before, connections, both_ends)
    }
}

impl Report {
    /// Adds what went wrong, the most frequent first.
    fn add_errors(&mut self, outcome: &Outcome) {
        for (kind, &count) in &outcome.errors {
            match self.errors.iter_mut().find(|error| error.kind == *kind) {
                Some(error) => error.count += count,
                None => self.errors.push(ErrorCount { kind: kind.to_string(), count }),
            }
        }
        self.errors.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.kind.cmp(&b.kind)));
    }
}

/// What a command has measured besides what the threads know.
#[derive(Default)]
struct Measured {
    seconds: f64,
    connections: Connections,
    memory: Option<Memory>,
    /// The server's processor time, for how many of what.
    processor: Option<(Duration, u64, &'static str)>,
    /// The server's processor time for others, which `processor` does not have.
    baseline: Duration,
}

impl Crew {
    fn raise_holders(&self, wanted: u32) {
        if self.orders.holders.fetch_max(wanted, Ordering::Relaxed) < wanted {
            self.wake();
        }
    }

    fn set_requesters(&self, wanted: u32) {
        self.orders.requesters.store(wanted, Ordering::Relaxed);
        self.wake();
    }

    fn go(&self) {
        self.orders.go(monotonic_us());
        self.wake();
    }
}

/// How many connections should have been opened by now.
fn due(wanted: u32, ramp: Option<u32>, elapsed_us: u64) -> u32 {
    let Some(per_second) = ramp else { return wanted };
    let due = u64::from(per_second).saturating_mul(elapsed_us) / 1_000_000 + 1;
    u32::try_from(due).unwrap_or(u32::MAX).min(wanted)
}

/// What became of connections that should stay, from the counts when all had come and at the end.
fn held(wanted: u32, opened: &Counts, end: &Counts, opening_seconds: f64) -> Connections {
    Connections {
        wanted: wanted.into(),
        opened: opened.opened,
        open_at_end: end.held,
        dropped: end.held_dropped,
        opening_seconds,
        per_second: per_second(opened.opened, opening_seconds),
        ..Connections::default()
    }
}

fn seconds_since(began_us: u64) -> f64 {
    (monotonic_us() - began_us) as f64 / 1e6
}

/// Seconds from `began_us` to the last of `count` events, as a worker saw it. The end of a phase is
/// no measure, since the run polls the counts every few milliseconds. Where events are due at a
/// rate, the interval behind the last one is part of the time.
fn seconds_until(began_us: u64, last_us: u64, count: u64, rate: Option<f64>) -> f64 {
    let seconds = last_us.saturating_sub(began_us) as f64 / 1e6;
    seconds.max(rate.map_or(0.0, |rate| count as f64 / rate))
}

/// How many of `count` in each of `seconds`.
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-6)
}

fn no_process(pid: Option<u32>, error: &io::Error) -> BenchError {
    BenchError(format!("process {} cannot be watched: {error}", pid.unwrap_or_default()))
}

/// Publishes message 0, so that there is a value, and a mistake is found before many connections
/// are opened. A server that takes its time over it can be given up.
fn publish_first(mut publisher: Publisher, watch: &dyn Watch) -> Result<Publisher, BenchError> {
    let thread = spawn_publisher(move || publisher.publish(0).map(|()| publisher))?;
    while !thread.is_finished() {
        if watch.stopped() {
            return Err(BenchError("stopped before the first message was published".to_owned()));
        }
        thread::sleep(LOOK_OFTEN);
    }
    join_publisher(thread)?
}

/// Publishing has a thread of its own: it may have to wait for the server.
fn spawn_publisher<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, BenchError> {
    let thread = thread::Builder::new().name("publisher".to_owned()).spawn(body);
    thread.map_err(|error| BenchError(format!("cannot start a thread: {error}")))
}

fn join_publisher<T>(thread: JoinHandle<T>) -> Result<T, BenchError> {
    thread.join().map_err(|_| BenchError("the publisher panicked".to_owned()))
}

/// Points at even distances; when there are too many, every other one goes.
struct Timeline {
    points: Vec<Point>,
    interval_us: u64,
    last_us: u64,
    last_answers: u64,
    last_counted: u64,
}

/// Per second, since the point before.
struct Rates {
    /// Answers and messages.
    answers: f64,
    /// What the phase counts.
    counted: f64,
}

impl Timeline {
    fn new(began_us: u64) -> Timeline {
        Timeline {
            points: vec![Point::default()],
            interval_us: POINT_US,
            last_us: began_us,
            last_answers: 0,
            last_counted: 0,
        }
    }

    /// Whether a point is due; then what has come since the one before.
    fn due(&mut self, now_us: u64, answers: u64, counted: u64) -> Option<Rates> {
        let passed_us = now_us - self.last_us;
        if passed_us < self.interval_us {
            return None;
        }
        let per_second =
            |now: u64, then: u64| now.saturating_sub(then) as f64 * 1e6 / passed_us as f64;
        let rates = Rates {
            answers: per_second(answers, self.last_answers),
            counted: per_second(counted, self.last_counted),
        };
        (self.last_us, self.last_answers, self.last_counted) = (now_us, answers, counted);
        Some(rates)
    }

    fn push(&mut self, point: Point) {
        self.points.push(point);
        if self.points.len() > POINTS_MAX {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval_us *= 2;
        }
    }
}

/// The server's processor time while nothing happened.
#[derive(Default)]
struct Idle {
    last: Option<(u64, Duration, u64)>,
    /// Since when nothing has moved.
    still_since_us: u64,
    busy: Duration,
    wall_us: u64,
}

impl Idle {
    fn note(&mut self, now_us: u64, counts: &Counts, processor: Option<Duration>) {
        let Some(processor) = processor else { return };
        let moves = counts.opened + counts.delivered + counts.delivered_stalled + counts.completed;
        if let Some((then_us, then, moved)) = self.last {
            if moves != moved {
                self.still_since_us = now_us;
            } else if now_us - self.still_since_us > SETTLE_US {
                self.busy += processor.saturating_sub(then);
                self.wall_us += now_us - then_us;
            }
        }
        self.last = Some((now_us, processor, moves));
    }

    fn share(&self) -> Option<f64> {
        (self.wall_us > IDLE_US_MIN).then(|| self.busy.as_secs_f64() * 1e6 / self.wall_us as f64)
    }
}

/// A histogram of microseconds as a report shows it.
fn latency(histogram: &Histogram<u64>) -> Latency {
    if histogram.is_empty() {
        return Latency::default();
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64;
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean(),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: histogram.max() as f64,
        curve: histogram
            .iter_quantiles(CURVE_TICKS)
            .map(|step| (step.quantile_iterated_to() * 100.0, step.value_iterated_to() as f64))
            .collect(),
    }
}

/// How often a phase is looked at in which something is paced.
const LOOK_OFTEN: Duration = Duration::from_millis(5);
/// And in one where nothing is.
const LOOK: Duration = Duration::from_millis(50);

/// A phase without an end is given up when nothing has moved for so long.
const STANDSTILL_US: u64 = 30_000_000;

/// Points of the timeline, at first and at most.
const POINT_US: u64 = 100_000;
const POINTS_MAX: usize = 400;

/// A server is at rest this long after the last thing that happened, and its rest is told only if
/// it lasted.
const SETTLE_US: u64 = 3_000_000;
const IDLE_US_MIN: u64 = 1_000_000;

/// Points of a percentile curve for each halving of the distance to 100 %.
const CURVE_TICKS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_due_at_their_rate() {
        assert_eq!(due(10, None, 0), 10);
        let at = |elapsed_us| due(1_000, Some(100), elapsed_us);
        assert_eq!([0, 9_999, 10_000, 1_000_000].map(at), [1, 1, 2, 101]);
        assert_eq!(at(u64::MAX), 1_000);
        assert_eq!(due(u32::MAX, Some(u32::MAX), u64::MAX / 2), u32::MAX);
    }

    #[test]
    fn a_rate_is_not_that_of_the_looks() {
        // Ten connections within 250 us, though the director looks 5 ms later.
        assert!((per_second(10, seconds_until(1_000, 1_250, 10, None)) - 40_000.0).abs() < 1e-6);
        // The last of ten events at a hundred a second is due after 90 ms, and the rate was kept.
        let seconds = seconds_until(1_000, 91_000, 10, Some(100.0));
        assert!((per_second(10, seconds) - 100.0).abs() < 1e-6, "{seconds}");
        // It was not kept.
        assert!((seconds_until(1_000, 201_000, 10, Some(100.0)) - 0.2).abs() < 1e-9);
        assert!(per_second(0, seconds_until(1_000, 0, 0, None)).abs() < 1e-9, "nothing came");
    }

    #[test]
    fn a_timeline_gets_coarser_and_not_longer() {
        let mut timeline = Timeline::new(0);
        let mut counted = 0;
        // An hour at ten looks a second, a thousand answers each.
        for look in 1..=36_000u64 {
            counted += 1_000;
            if let Some(rates) = timeline.due(look * 100_000, counted, counted / 2) {
                assert!((rates.answers - 10_000.0).abs() < 1e-6, "{}", rates.answers);
                assert!((rates.counted - 5_000.0).abs() < 1e-6, "{}", rates.counted);
                timeline.push(Point { at_s: look as f64 / 10.0, ..Point::default() });
            }
            assert!(timeline.points.len() <= POINTS_MAX);
        }
        assert!(timeline.points.len() > POINTS_MAX / 3, "{}", timeline.points.len());
        assert!(timeline.points.is_sorted_by(|a, b| a.at_s < b.at_s));
        assert!(timeline.points[timeline.points.len() - 1].at_s > 3_580.0);
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut times = crate::tally::histogram();
        assert_eq!(latency(&times), Latency::default());
        (1..=1_000).for_each(|us| crate::tally::record(&mut times, us));
        let latency = latency(&times);
        assert_eq!((latency.count, latency.max_us), (1_000, 1_000.0));
        assert_eq!((latency.p50_us, latency.p90_us, latency.p99_us), (500.0, 900.0, 990.0));
        assert_eq!((latency.p999_us, latency.mean_us), (999.0, 500.5));
        assert!(latency.curve.is_sorted());
        assert_eq!(latency.curve[latency.curve.len() - 1], (100.0, 1_000.0));
    }

    #[test]
    fn a_server_is_at_rest_only_if_nothing_happens_for_a_while() {
        let second = 1_000_000;
        let mut idle = Idle::default();
        let busy = |s: u64| Some(Duration::from_millis(s * 100));
        let after = |delivered| Counts { delivered, ..Counts::default() };
        for s in 1..=10 {
            idle.note(s * second, &after(s), busy(s));
        }
        assert_eq!(idle.share(), None, "it was never at rest");
        for s in 11..=20 {
            idle.note(s * second, &after(10), busy(s));
        }
        assert!((idle.share().unwrap() - 0.1).abs() < 1e-9, "{:?}", idle.share());
        let mut unknown = Idle::default();
        (1..=20).for_each(|s| unknown.note(s * second, &after(0), None));
        assert_eq!(unknown.share(), None);
    }
}
