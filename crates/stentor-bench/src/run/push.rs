//! `bench push`: readers, and messages for them.
//!
//! Message 0 is published before the readers come, so that a mistake in the publishing is found
//! before a million connections are opened, and a reader that asks for the value finds one. It is
//! not counted. Those readers that stall stop before message 1 and read again after the last.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use stentor_io::monotonic_us;

use super::{
    ActiveRun, LOOK_OFTEN, Measured, PhaseInfo, held, join_publisher, latency, per_second,
    publish_first, seconds_since, seconds_until, spawn_publisher,
};
use crate::crew::{BenchError, Spread};
use crate::orders::{HoldWork, Place, ThreadWork, run_number};
use crate::plan::{Plan, Push, Role, Setup};
use crate::progress::Watch;
use crate::publisher::{PublishProgress, PublishResult, Publisher};
use crate::report::{Delivery, Latency, MessageDelivery, Report, ServerDelivery, Stalled};
use crate::request::open_head;
use crate::tally::{Counts, Outcome, histogram};
use crate::target::Target;

pub(super) fn run(plan: &Plan, push: &Push, watch: &dyn Watch) -> Result<Report, BenchError> {
    let setup = &plan.setup;
    let work = ThreadWork::new(setup, &setup.target, Spread::of(plan)?)?;
    let run = run_number();
    let publisher = publish_first(Publisher::new(&push.publish, run), watch)?;
    let place = |target| place(setup, push.role, target);
    let elsewhere = push.also.iter().map(place).collect::<Result<_, _>>()?;
    let work = ThreadWork { holders: Some(hold_work(setup, push, run)), elsewhere, ..work };
    let mut session = ActiveRun::start(plan, work, watch)?;
    let opening_seconds = session.open_holders(push.connections, push.ramp);
    let opened = session.crew.counts();
    if push.role == Role::Poll && !session.interrupted {
        // The server answers long-polls with message 0. They must have asked again before the
        // next message.
        session.look_on_for("settling", SETTLE);
    }
    let memory = (opened.held > 0).then(|| session.memory(opened.held));
    let processor = session.gauge.processor();
    let began_us = monotonic_us();
    let mut told = PublishSummary::default();
    if !session.interrupted && opened.held > 0 {
        told = publish_all(&mut session, push, publisher)?;
    }
    let counts = session.crew.counts();
    let busy = session.busy_since(processor);
    let measured = Measured {
        seconds: seconds_since(began_us),
        connections: held(push.connections, &opened, &counts, opening_seconds),
        memory,
        processor: busy.map(|busy| (busy, counts.delivered + counts.delivered_stalled, "delivery")),
        ..Measured::default()
    };
    let stride = stride(push.messages);
    let (mut report, outcome, _) = session.finish(measured)?;
    report.delivery = Some(delivery(plan, push, &told, &outcome, stride));
    if let Some(error) = told.error {
        report.errors.push(crate::report::ErrorCount { kind: error.to_string(), count: 1 });
    }
    Ok(report)
}

fn hold_work(setup: &Setup, push: &Push, run: u32) -> HoldWork {
    let stride = stride(push.messages);
    HoldWork {
        stride,
        followed: (push.messages / stride) as usize,
        stall_percent: push.stall_percent,
        readers: push.connections,
        ..HoldWork::new(setup, &setup.target, push.role, run)
    }
}

/// Another server, and how its readers ask.
fn place(setup: &Setup, role: Role, target: &Target) -> Result<Place, BenchError> {
    Ok(Place {
        address: target.address,
        secure: target.connector(setup)?,
        request: open_head(target, Some(role), &setup.headers),
    })
}

/// Which messages are followed: every so many-th, so that there are not too many.
fn stride(messages: u32) -> u32 {
    messages.div_ceil(FOLLOWED_MAX).max(1)
}

/// What is known of the publishing in the end.
#[derive(Default)]
struct PublishSummary {
    published: u32,
    publishing_seconds: f64,
    delivering_seconds: f64,
    took: Latency,
    error: Option<BenchError>,
}

fn publish_all(
    session: &mut ActiveRun<'_>,
    push: &Push,
    publisher: Publisher,
) -> Result<PublishSummary, BenchError> {
    let published = Arc::new(PublishProgress::default());
    let (messages, rate, shared) = (push.messages, push.rate, published.clone());
    session.crew.orders.stalling.store(true, Ordering::Relaxed);
    session.crew.wake();
    let began_us = monotonic_us();
    let thread = spawn_publisher(move || publisher.publish_all(messages, rate, &shared))?;
    let all_us = (f64::from(messages) * 1e6 / rate) as u64;
    let phase = PhaseInfo { ends_us: Some(began_us + all_us + LATE_US_MAX), ..phase("publishing") };
    session.look_on(&phase, |_| published.over.load(Ordering::Acquire));
    published.stop.store(true, Ordering::Relaxed);
    let given_up_us = monotonic_us() + LAST_US_MAX;
    while !thread.is_finished() && monotonic_us() < given_up_us {
        thread::sleep(LOOK_OFTEN);
    }
    let done = match thread.is_finished() {
        true => join_publisher(thread)?,
        false => {
            let error = Some(BenchError("publishing: no answer by the end".to_owned()));
            PublishResult { took: histogram(), began_us, last_us: monotonic_us(), error }
        }
    };
    let published = published.messages.load(Ordering::Acquire);
    session.crew.orders.published.store(published, Ordering::Relaxed);
    deliver(session, push, published);
    let delivered_us = session.crew.counts().delivered_us;
    let until = |last_us| seconds_until(done.began_us, last_us, published.into(), Some(rate));
    let left_out = || unpublished(published, messages).filter(|_| !session.interrupted);
    Ok(PublishSummary {
        published,
        publishing_seconds: until(done.last_us),
        delivering_seconds: until(delivered_us),
        took: latency(&done.took),
        error: done.error.or_else(left_out),
    })
}

/// The error of a publisher that was given up since it was too late.
fn unpublished(published: u32, messages: u32) -> Option<BenchError> {
    let seconds = LATE_US_MAX / 1_000_000;
    let error = format!(
        "publishing: {published} of {messages} messages within {seconds} s after the last was due"
    );
    (published < messages).then_some(BenchError(error))
}

/// Waits until all have everything, or nothing comes any more.
fn deliver(session: &mut ActiveRun<'_>, push: &Push, published: u32) {
    let all = u64::from(published);
    await_all(
        session,
        |counts| counts.delivered,
        |counts| counts.opened.saturating_sub(counts.opened_stalling) * all,
    );
    session.crew.orders.stalling.store(false, Ordering::Relaxed);
    session.crew.wake();
    if push.stall_percent > 0 {
        // How much they get is the server's choice: whatever comes until nothing comes any more.
        await_all(
            session,
            |counts| counts.delivered_stalled,
            |counts| counts.opened_stalling * all,
        );
    }
}

/// Waits until the count is what it should be, or has not moved for a while.
fn await_all(
    session: &mut ActiveRun<'_>,
    count: fn(&Counts) -> u64,
    should_be: impl Fn(&Counts) -> u64,
) {
    let moved = Cell::new((monotonic_us(), count(&session.crew.counts())));
    session.look_on(&phase("delivering"), |counts| {
        let (now_us, counted) = (monotonic_us(), count(counts));
        if counted != moved.get().1 {
            moved.set((now_us, counted));
        }
        counted >= should_be(counts) || now_us - moved.get().0 > QUIET_US
    });
}

fn phase(name: &'static str) -> PhaseInfo {
    PhaseInfo::new(name, "messages", 0_u32, |counts| counts.delivered + counts.delivered_stalled)
}

fn delivery(
    plan: &Plan,
    push: &Push,
    told: &PublishSummary,
    outcome: &Outcome,
    stride: u32,
) -> Delivery {
    let (steady, stalled) = (&outcome.steady, &outcome.stalled);
    let messages = outcome.messages.iter().zip(1..).map(|(spread, nth)| MessageDelivery {
        number: nth * stride,
        readers: spread.readers,
        first_us: spread.first_us as f64,
        last_us: spread.last_us as f64,
    });
    let targets = std::iter::once(&plan.setup.target).chain(&push.also);
    let at = |(target, (readers, times)): (&Target, &(u64, _))| ServerDelivery {
        url: target.url.clone(),
        readers: *readers,
        latency: latency(times),
    };
    let servers = match push.also.is_empty() {
        true => Vec::new(),
        false => targets.zip(&outcome.places).map(at).collect(),
    };
    Delivery {
        readers: steady.readers,
        readers_stalled: stalled.readers,
        published: told.published.into(),
        published_per_second: per_second(told.published.into(), told.publishing_seconds),
        publish: told.took.clone(),
        expected: steady.readers * u64::from(told.published),
        delivered: steady.delivered,
        delivered_per_second: per_second(steady.delivered, told.delivering_seconds),
        missing: steady.missing,
        missing_untold: steady.untold,
        duplicates: steady.duplicates,
        out_of_order: steady.out_of_order,
        gaps_told: steady.gaps_told,
        readers_complete: steady.complete,
        latency: latency(&outcome.delivery[0]),
        servers,
        messages: messages.filter(|message| message.number <= told.published).collect(),
        stalled: (stalled.readers > 0).then_some(Stalled {
            current: stalled.current,
            delivered: stalled.delivered,
            missing: stalled.missing,
            gaps_told: stalled.gaps_told,
            dropped: stalled.dropped,
        }),
    }
}

/// Messages that are followed on their way to all readers, at most.
const FOLLOWED_MAX: u32 = 500;

/// How long long-polls are given to ask for the second time.
const SETTLE: Duration = Duration::from_secs(1);

/// A publisher that is so late is not waited for.
const LATE_US_MAX: u64 = 120_000_000;

/// How long the answer to the last message is waited for when publishing is to end.
const LAST_US_MAX: u64 = 1_000_000;

/// After so long without a delivery none is expected any more.
const QUIET_US: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_a_publisher_is_a_problem() {
        assert!(unpublished(10, 10).is_none());
        let error = unpublished(3, 10).unwrap().to_string();
        assert!(error.contains("3 of 10 messages within 120 s"), "{error}");
    }
}
