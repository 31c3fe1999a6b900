//! `bench get`: requests, in a closed or an open loop.

use stentor_io::monotonic_us;

use super::{ActiveRun, LOOK, LOOK_OFTEN, Measured, PhaseInfo, latency, seconds_since};
use crate::crew::{BenchError, Spread};
use crate::orders::{RequestWork, ThreadWork};
use crate::plan::{Closing, Get, Plan, Setup, Until};
use crate::progress::Watch;
use crate::report::{Connections, Report, Requests};
use crate::request::{complete, open_head};

pub(super) fn run(plan: &Plan, get: &Get, watch: &dyn Watch) -> Result<Report, BenchError> {
    let work = ThreadWork::new(&plan.setup, &plan.setup.target, Spread::of(plan)?)?;
    let work = ThreadWork { requesters: Some(requests(&plan.setup, get)), ..work };
    let mut session = ActiveRun::start(plan, work, watch)?;
    let wanted = u64::from(get.connections);
    let opening = open(&mut session, get);
    let opened = session.crew.counts().requesters_opened;
    let processor = session.gauge.processor();
    let began_us = monotonic_us();
    if !session.interrupted {
        session.crew.go();
        ask(&mut session, get, began_us);
    }
    let seconds = seconds_since(began_us);
    let counts = session.crew.counts();
    let busy = session.busy_since(processor);
    let measured = Measured {
        seconds,
        connections: Connections {
            wanted,
            opened: counts.requesters_opened,
            open_at_end: counts.connections,
            dropped: counts.dropped,
            opening_seconds: opening,
            per_second: match get.closing {
                Closing::Keep => opened as f64 / opening.max(1e-6),
                _ => counts.requesters_opened as f64 / seconds.max(1e-6),
            },
            ..Connections::default()
        },
        memory: None,
        processor: busy.map(|busy| (busy, counts.completed, "request")),
    };
    // What came while the threads were stopped is in the histogram, and so it is counted.
    let (mut report, outcome, counts) = session.finish(measured)?;
    report.requests = Some(Requests {
        completed: counts.completed,
        per_second: counts.completed as f64 / seconds.max(1e-6),
        open_loop: get.rate.is_some(),
        latency: latency(&outcome.latency[0]),
        statuses: outcome.statuses.into_iter().collect(),
    });
    Ok(report)
}

fn requests(setup: &Setup, get: &Get) -> RequestWork {
    let mut open = open_head(&setup.target, None, &setup.headers);
    if get.closing == Closing::Fin {
        open.extend_from_slice(b"Connection: close\r\n");
    }
    RequestWork {
        request: complete(&open, &[]),
        connections: get.connections,
        pipeline: get.pipeline,
        closing: get.closing,
        rate: get.rate,
        limit: match get.until {
            Until::Requests(requests) => Some(requests),
            Until::Time(_) => None,
        },
    }
}

/// Opens connections that are kept before the first request, so that neither delays the other.
/// Returns the seconds it took.
fn open(session: &mut ActiveRun<'_>, get: &Get) -> f64 {
    let (began_us, wanted) = (monotonic_us(), u64::from(get.connections));
    session.crew.set_requesters(get.connections);
    if get.closing != Closing::Keep {
        return 0.0;
    }
    let phase = PhaseInfo::new("connecting", "connections", wanted, |counts| counts.connections);
    let ends_us = Some(began_us + OPENING_US_MAX);
    // If the very first ones fail there is no server; a few that fail are tried again.
    session.look_on(&PhaseInfo { ends_us, every: LOOK_OFTEN, ..phase }, |counts| {
        counts.connections >= wanted || (counts.connections == 0 && counts.errors > 0)
    });
    seconds_since(began_us)
}

fn ask(session: &mut ActiveRun<'_>, get: &Get, began_us: u64) {
    let (ends_us, limit) = match get.until {
        Until::Time(time) => (Some(began_us + time.as_micros() as u64), u64::MAX),
        Until::Requests(requests) => (None, requests),
    };
    let every = if limit == u64::MAX { LOOK } else { LOOK_OFTEN };
    let phase = PhaseInfo::new("asking", "requests", get.connections, |counts| counts.completed);
    session.look_on(&PhaseInfo { ends_us, every, ..phase }, |counts| {
        let nobody_there = counts.completed == 0 && counts.requesters_opened == 0;
        counts.completed + counts.lost >= limit || (nobody_there && counts.errors >= ERRORS_ENOUGH)
    });
}

/// Connections that have not come about after this long are left out.
const OPENING_US_MAX: u64 = 30_000_000;

/// After so many failures and no success there is nothing to measure.
const ERRORS_ENOUGH: u64 = 10;
