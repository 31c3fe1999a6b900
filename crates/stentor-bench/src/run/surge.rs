//! `bench surge`: connections that come all at once, beside some that were there before.
//!
//! Those who were there before have a thread of their own, which goes before the newcomers': some
//! ask at a steady rate throughout, others read what is published, and both count from when
//! something was due. Their latency before, during and after the surge is what they felt of it.
//!
//! However fast newcomers come, a load generator is slower than a server. So that the wave is the
//! server's alone, its process can be stopped until all of them have connected and asked: the
//! kernel does that for it. Meanwhile the bystanders pause, and for them there is no time. Silent
//! connections can be made to time out together likewise.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stentor_io::{monotonic_us, raise_priority};

use super::stopped::StoppedProcess;
use super::{
    ActiveRun, LOOK_OFTEN, Measured, PhaseInfo, held, join_publisher, latency, no_process,
    publish_first, seconds_since, seconds_until, spawn_publisher,
};
use crate::crew::{BenchError, Crew, Spread};
use crate::orders::{AddressSources, HoldWork, Rank, RequestWork, ThreadWork, run_number};
use crate::plan::{Closing, Plan, Role, Setup, Surge};
use crate::progress::Watch;
use crate::publisher::{PublishProgress, Publisher};
use crate::report::{Bystanders, Listeners, Report};
use crate::request::RequestTemplate;
use crate::tally::{Counts, Outcome};
use crate::target::Target;

pub(super) fn run(plan: &Plan, surge: &Surge, watch: &dyn Watch) -> Result<Report, BenchError> {
    let setup = &plan.setup;
    let run = run_number();
    let work = ThreadWork {
        rank: if surge.queued { Rank::LastInBatches } else { Rank::Last },
        holders: Some(hold_work(setup, &setup.target, surge.role, run)),
        ..ThreadWork::new(setup, &setup.target, Spread::of(plan)?)?
    };
    let publisher = surge.listeners.as_ref().map(|l| Publisher::new(&l.publish, run));
    let publisher = publisher.map(|publisher| publish_first(publisher, watch)).transpose()?;
    let mut session = ActiveRun::start(plan, work, watch)?;
    session.beside = bystanders(setup, surge, run)?;
    let began_us = monotonic_us();
    let Calm { publishing, load } = calm_before(&mut session, surge, publisher)?;
    let came = come(&mut session, surge)?;
    let opened = session.crew.counts();
    // The bystanders' requests are no cost of the newcomers.
    let baseline = came.measured.mul_f64(load);
    let busy = came.busy.map(|busy| busy.saturating_sub(baseline));
    let memory = (opened.held > 0).then(|| session.memory(opened.held));
    session.look_on_for("after the surge", surge.calm);
    let counts = session.crew.counts();
    if let Some(timeout) = surge.timeout {
        time_out(&mut session, surge, timeout)?;
    }
    let measured = Measured {
        seconds: seconds_since(began_us),
        connections: held(surge.connections, &opened, &counts, came.opening_seconds),
        memory,
        processor: busy.map(|busy| (busy, opened.opened, "connection")),
        baseline,
    };
    let beside = end_bystanders(&mut session, publishing)?;
    let (mut report, _, _) = session.finish(measured)?;
    if surge.timeout.is_some() {
        // That is what they were there for.
        report.errors.retain(|error| error.kind != CLOSED);
    }
    if let Some((outcome, counts, published)) = beside {
        report.add_errors(&outcome);
        report.bystanders = Some(what_they_felt(surge, &outcome, &counts, published));
    }
    Ok(report)
}

fn hold_work(setup: &Setup, target: &Target, role: Role, run: u32) -> HoldWork {
    HoldWork { opening_max: usize::MAX, ..HoldWork::new(setup, target, role, run) }
}

/// Those who are there before: one thread, that waits for no newcomer.
fn bystanders(setup: &Setup, surge: &Surge, run: u32) -> Result<Option<Crew>, BenchError> {
    let beside = &surge.beside;
    if surge.bystanders == 0 && surge.listeners.is_none() {
        return Ok(None);
    }
    let requesters = (surge.bystanders > 0).then(|| RequestWork {
        request: RequestTemplate::get(beside, &setup.headers),
        connections: surge.bystanders,
        pipeline: 1,
        closing: Closing::Keep,
        rate: Some(surge.bystander_rate),
        limit: None,
    });
    let sources = setup.sources.map_or(AddressSources::Any, AddressSources::Network);
    let work = ThreadWork {
        rank: Rank::First,
        requesters,
        holders: surge.listeners.is_some().then(|| hold_work(setup, beside, Role::Sse, run)),
        ..ThreadWork::new(setup, beside, Spread { threads: 1, sources })?
    };
    Crew::start(work).map(Some)
}

/// Somebody who publishes, and how far that has come.
struct Publishing {
    published: Arc<PublishProgress>,
    thread: JoinHandle<Option<BenchError>>,
}

/// The time before the surge.
#[derive(Default)]
struct Calm {
    publishing: Option<Publishing>,
    /// Processor time of the server in each second, for the bystanders.
    load: f64,
}

/// Lets the bystanders come, and ask and read for a while.
fn calm_before(
    session: &mut ActiveRun<'_>,
    surge: &Surge,
    publisher: Option<Publisher>,
) -> Result<Calm, BenchError> {
    let Some(beside) = &session.beside else { return Ok(Calm::default()) };
    let readers = surge.listeners.as_ref().map_or(0, |listeners| listeners.readers);
    beside.raise_holders(readers);
    beside.set_requesters(surge.bystanders);
    let wanted = u64::from(surge.bystanders) + u64::from(readers);
    let phase =
        PhaseInfo::new("before the surge", "connections", wanted, |counts| counts.connections);
    let ends_us = Some(monotonic_us() + BYSTANDERS_US_MAX);
    let readers = u64::from(readers);
    let bystanders = u64::from(surge.bystanders);
    session.look_on(&PhaseInfo { ends_us, ..phase }, |counts| {
        counts.requesters_opened >= bystanders && counts.opened >= readers
    });
    let Some(beside) = &session.beside else { return Ok(Calm::default()) };
    beside.go();
    let publishing = match (publisher, &surge.listeners) {
        (Some(publisher), Some(listeners)) => {
            let published = Arc::new(PublishProgress::default());
            let (shared, rate) = (published.clone(), listeners.rate);
            let orders = beside.orders.clone();
            let body = move || {
                // Where that is not allowed, it is as it was.
                let _ = raise_priority();
                publisher.publish_on(rate, &orders, &shared)
            };
            Some(Publishing { published, thread: spawn_publisher(body)? })
        }
        _ => None,
    };
    let (processor, began_us) = (session.gauge.processor(), monotonic_us());
    session.look_on_for("before the surge", surge.calm);
    let busy = session.busy_since(processor).unwrap_or_default();
    let load = busy.as_secs_f64() / seconds_since(began_us).max(1e-6);
    Ok(Calm { publishing, load })
}

/// The result of the surge.
struct Came {
    /// Until the last newcomer was answered.
    opening_seconds: f64,
    /// The server's processor time, and for how long it was measured.
    busy: Option<Duration>,
    measured: Duration,
}

/// Lets the newcomers come, and waits until each is answered or has failed.
fn come(session: &mut ActiveRun<'_>, surge: &Surge) -> Result<Came, BenchError> {
    let stops = surge.queued && !session.interrupted;
    let stopped = stops.then(|| stand_still(session)).transpose()?;
    if stopped.is_some() {
        fill_queue(session, surge);
    }
    let processor = session.gauge.processor();
    let began_us = monotonic_us();
    session.begin_period(DURING, began_us);
    drop(stopped);
    session.resume();
    if !session.interrupted {
        let wanted = surge.connections;
        let before = session.beside.as_ref().map(Crew::counts).unwrap_or_default();
        let all = u64::from(wanted) + before.opened + before.failed;
        let within_us = surge.within.as_micros();
        let ends_us = Some(began_us + within_us as u64 + ANSWER_US_MAX);
        let phase = PhaseInfo::new("the surge", "connections", wanted, |counts| counts.opened);
        session.direct(
            &PhaseInfo { ends_us, every: LOOK_SURGE, ..phase },
            |crew, now_us| crew.raise_holders(due(wanted, within_us, now_us - began_us)),
            |counts| counts.opened + counts.failed >= all,
        );
    }
    session.begin_period(AFTER, monotonic_us());
    let counts = session.crew.counts();
    let rate = f64::from(surge.connections) / surge.within.as_secs_f64();
    let rate = (!surge.queued).then_some(rate);
    Ok(Came {
        opening_seconds: seconds_until(began_us, counts.opened_us, counts.opened, rate),
        busy: session.busy_since(processor),
        measured: Duration::from_micros(monotonic_us() - began_us),
    })
}

/// Stops the server once nothing of the bystanders' is under way, until what is returned is
/// dropped.
fn stand_still(session: &mut ActiveRun<'_>) -> Result<StoppedProcess, BenchError> {
    session.pause();
    session.look_on_for("waiting for the bystanders", PAUSE);
    let pid = session.plan.setup.pid;
    StoppedProcess::stop(pid.unwrap_or_default()).map_err(|error| no_process(pid, &error))
}

/// All newcomers connect and ask, as far as the kernel takes them.
fn fill_queue(session: &mut ActiveRun<'_>, surge: &Surge) {
    session.crew.raise_holders(surge.connections);
    let before = session.beside.as_ref().map_or(0, |beside| beside.counts().connections);
    let wanted = before + u64::from(surge.connections);
    let phase = PhaseInfo::new("filling the queue", "connections", surge.connections, |counts| {
        counts.connections
    });
    let ends_us = Some(monotonic_us() + FILLING_US_MAX);
    session.look_on(&PhaseInfo { ends_us, every: LOOK_OFTEN, ..phase }, |counts| {
        counts.connections >= wanted
    });
    // Each has asked when its thread has been round once more.
    session.look_on_for("filling the queue", PAUSE);
}

/// Waits until the newcomers' connections time out. Just before they do, the server is stopped
/// until they all have.
fn time_out(
    session: &mut ActiveRun<'_>,
    surge: &Surge,
    timeout: Duration,
) -> Result<(), BenchError> {
    let left = timeout.saturating_sub(surge.calm).saturating_sub(TIMEOUT_MARGIN);
    session.look_on_for("waiting for the timeout", left);
    if session.interrupted {
        return Ok(());
    }
    let stopped = stand_still(session)?;
    session.look_on_for("waiting for the timeout", 2 * TIMEOUT_MARGIN);
    let began_us = monotonic_us();
    session.begin_period(TIMEOUT, began_us);
    drop(stopped);
    session.resume();
    let before = session.beside.as_ref().map_or(0, |beside| beside.counts().held);
    let phase = PhaseInfo::new("the timeout", "connections", 0_u32, |counts| counts.held_dropped);
    let ends_us = Some(began_us + TIMEOUT_US_MAX);
    session.look_on(&PhaseInfo { ends_us, every: LOOK_SURGE, ..phase }, |counts| {
        counts.held <= before
    });
    Ok(())
}

/// Stops the bystanders and sums up. Returns what they found out, what was counted, and how many
/// messages were published.
fn end_bystanders(
    session: &mut ActiveRun<'_>,
    publishing: Option<Publishing>,
) -> Result<Option<(Outcome, Counts, u32)>, BenchError> {
    let Some(beside) = session.beside.take() else { return Ok(None) };
    let (mut published, mut failed) = (0, None);
    if let Some(publishing) = publishing {
        publishing.published.stop.store(true, Ordering::Relaxed);
        failed = join_publisher(publishing.thread)?;
        published = publishing.published.messages.load(Ordering::Acquire);
        beside.orders.published.store(published, Ordering::Relaxed);
        let due = beside.counts().held * u64::from(published);
        let given_up_us = monotonic_us() + LAST_US_MAX;
        while beside.counts().delivered < due && monotonic_us() < given_up_us {
            thread::sleep(LOOK_OFTEN);
        }
    }
    let (mut outcome, counts) = beside.finish()?;
    if let Some(error) = failed {
        outcome.errors_of(error.to_string().into(), 1);
    }
    Ok(Some((outcome, counts, published)))
}

fn what_they_felt(surge: &Surge, outcome: &Outcome, counts: &Counts, published: u32) -> Bystanders {
    let at = |period: usize| latency(&outcome.latency[period]);
    let news = |period: usize| latency(&outcome.delivery[period]);
    let times_out = surge.timeout.is_some();
    Bystanders {
        connections: surge.bystanders.into(),
        dropped: counts.dropped,
        failed: counts.lost + outcome.unanswered,
        before: at(0),
        during: at(DURING),
        after: at(AFTER),
        timeout: times_out.then(|| at(TIMEOUT)),
        late: latency(&outcome.late),
        listeners: surge.listeners.is_some().then(|| Listeners {
            readers: outcome.steady.readers,
            dropped: counts.held_dropped,
            published: published.into(),
            delivered: outcome.steady.delivered,
            missing: outcome.steady.missing,
            missing_untold: outcome.steady.untold,
            duplicates: outcome.steady.duplicates,
            before: news(0),
            during: news(DURING),
            after: news(AFTER),
            timeout: times_out.then(|| news(TIMEOUT)),
        }),
    }
}

/// How many newcomers should have come by now.
fn due(wanted: u32, within_us: u128, elapsed_us: u64) -> u32 {
    let part = u128::from(wanted) * u128::from(elapsed_us) / within_us.max(1);
    u32::try_from(part + 1).map_or(wanted, |due| due.min(wanted))
}

/// The periods of a run that are told apart, the first being the one before.
const DURING: usize = 1;
const AFTER: usize = 2;
const TIMEOUT: usize = 3;

/// What a connection that timed out is to its holder.
const CLOSED: &str = "closed by the server";

/// Bystanders that have not come about after this long are left out.
const BYSTANDERS_US_MAX: u64 = 10_000_000;

/// How long a newcomer is waited for: a SYN that is lost three times is sent again after 7 s.
const ANSWER_US_MAX: u64 = 30_000_000;

/// How long the end of a surge may be unnoticed, which counts to it.
const LOOK_SURGE: Duration = Duration::from_millis(1);

/// Requests under way are answered within this, if the server is not busy.
const PAUSE: Duration = Duration::from_millis(200);

/// How long newcomers have to fill the queue. Whoever found it full comes later.
const FILLING_US_MAX: u64 = 10_000_000;

/// The server is stopped so long before connections time out, and until so long after.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(750);

/// And has so long to close them.
const TIMEOUT_US_MAX: u64 = 10_000_000;

/// How long the last message is waited for.
const LAST_US_MAX: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_are_spread_over_the_time() {
        let at = |elapsed_us| due(10, 20_000_000, elapsed_us);
        assert_eq!([0, 1_999_999, 2_000_000, 18_000_000, u64::MAX].map(at), [1, 1, 2, 10, 10]);
        assert_eq!(due(1_000_000, 1_000, 500), 500_001);
        assert_eq!(due(5, 0, 1), 5, "at once");
    }
}
