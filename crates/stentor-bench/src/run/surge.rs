//! `bench surge`: connections that come all at once, beside some that were there before.
//!
//! The bystanders ask at a steady rate throughout: their latency before, during and after the surge
//! is what they felt of it.

use std::time::Duration;

use stentor_io::monotonic_us;

use super::{LOOK, LOOK_OFTEN, Measured, Phase, Session, held, latency, seconds_since};
use crate::crew::{BenchError, Spread};
use crate::orders::{HoldWork, RequestWork, Work};
use crate::plan::{Closing, Plan, Surge};
use crate::progress::Watch;
use crate::report::{Bystanders, Report};
use crate::request::{complete, open_head};
use crate::tally::Counts;

pub(super) fn run(plan: &Plan, surge: &Surge, watch: &dyn Watch) -> Result<Report, BenchError> {
    let setup = &surge.setup;
    let spread = Spread::of(plan)?;
    let work = Work {
        address: setup.target.address,
        sources: spread.sources,
        threads: spread.threads,
        requesters: (surge.bystanders > 0).then(|| RequestWork {
            request: complete(&open_head(&setup.target, None, &setup.headers), &[]),
            connections: surge.bystanders,
            pipeline: 1,
            closing: Closing::Keep,
            rate: Some(surge.bystander_rate),
            limit: None,
        }),
        holders: Some(HoldWork {
            role: surge.role,
            request: open_head(&setup.target, Some(surge.role), &setup.headers),
            opening_max: usize::MAX,
            run: 0,
            stride: 1,
            followed: 0,
            stall_percent: 0,
        }),
    };
    let mut session = Session::start(setup, work, watch)?;
    let began_us = monotonic_us();
    calm_before(&mut session, surge);
    let processor = session.gauge.processor();
    let opening_seconds = come(&mut session, surge);
    let busy = session.busy_since(processor);
    let opened = session.crew.counts();
    let memory = (opened.held > 0).then(|| session.memory(setup, opened.held));
    look_on_for(&mut session, "after the surge", surge.calm);
    let counts = session.crew.counts();
    let measured = Measured {
        seconds: seconds_since(began_us),
        connections: held(surge.connections, &opened, &counts, opening_seconds),
        memory,
        processor: busy.map(|busy| (busy, opened.opened, "connection")),
    };
    let (mut report, outcome, _) = session.finish(plan, measured)?;
    report.bystanders = (surge.bystanders > 0).then(|| Bystanders {
        connections: surge.bystanders.into(),
        dropped: counts.dropped,
        failed: counts.lost + outcome.unanswered,
        before: latency(&outcome.latency[0]),
        during: latency(&outcome.latency[1]),
        after: latency(&outcome.latency[2]),
    });
    Ok(report)
}

/// Lets the bystanders come and ask for a while.
fn calm_before(session: &mut Session<'_>, surge: &Surge) {
    if surge.bystanders == 0 {
        return;
    }
    session.crew.set_requesters(surge.bystanders);
    let wanted = u64::from(surge.bystanders);
    let phase = Phase {
        name: "before the surge",
        unit: "connections",
        wanted,
        count: |counts| counts.connections,
        ends_us: Some(monotonic_us() + BYSTANDERS_US_MAX),
        every: LOOK,
    };
    session.look_on(&phase, |_, _| {}, |counts| counts.connections >= wanted);
    session.crew.go();
    look_on_for(session, "before the surge", surge.calm);
}

/// Lets the newcomers come, and waits until each is answered or has failed. Returns the seconds.
fn come(session: &mut Session<'_>, surge: &Surge) -> f64 {
    let began_us = monotonic_us();
    session.crew.orders.surge_begins(began_us);
    if !session.interrupted {
        let wanted = surge.connections;
        let phase = Phase {
            name: "the surge",
            unit: "connections",
            wanted: wanted.into(),
            count: |counts| counts.opened,
            ends_us: Some(began_us + surge.within.as_micros() as u64 + ANSWER_US_MAX),
            every: LOOK_OFTEN,
        };
        let within_us = surge.within.as_micros();
        session.look_on(
            &phase,
            |crew, now_us| crew.raise_holders(due(wanted, within_us, now_us - began_us)),
            |counts| counts.opened + counts.failed >= wanted.into(),
        );
    }
    session.crew.orders.surge_ends(monotonic_us());
    seconds_since(began_us)
}

/// How many newcomers should have come by now.
fn due(wanted: u32, within_us: u128, elapsed_us: u64) -> u32 {
    let part = u128::from(wanted) * u128::from(elapsed_us) / within_us.max(1);
    u32::try_from(part + 1).map_or(wanted, |due| due.min(wanted))
}

fn look_on_for(session: &mut Session<'_>, name: &'static str, time: Duration) {
    if session.interrupted {
        return;
    }
    let phase = Phase {
        name,
        unit: "requests",
        wanted: 0,
        count: |counts: &Counts| counts.completed,
        ends_us: Some(monotonic_us() + time.as_micros() as u64),
        every: LOOK,
    };
    session.look_on(&phase, |_, _| {}, |_| false);
}

/// Bystanders that have not come about after this long are left out.
const BYSTANDERS_US_MAX: u64 = 10_000_000;

/// How long a newcomer is waited for: a SYN that is lost three times is sent again after 7 s.
const ANSWER_US_MAX: u64 = 30_000_000;

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
