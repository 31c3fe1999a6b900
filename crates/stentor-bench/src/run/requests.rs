//! `bench get` and `bench put`: requests, in a closed or an open loop.

use stentor_io::monotonic_us;

use super::{
    ActiveRun, LOOK, LOOK_OFTEN, Measured, PhaseInfo, STANDSTILL_US, latency, per_second,
    seconds_since, seconds_until,
};
use crate::crew::{BenchError, Spread};
use crate::orders::{RequestWork, ThreadWork};
use crate::plan::{Closing, Plan, RequestLoop, Setup, Until};
use crate::progress::Watch;
use crate::report::{Connections, Report, Requests};
use crate::request::RequestTemplate;

pub(super) fn run(
    plan: &Plan,
    requests: &RequestLoop,
    watch: &dyn Watch,
) -> Result<Report, BenchError> {
    let work = ThreadWork::new(&plan.setup, &plan.setup.target, Spread::of(plan)?)?;
    let work = ThreadWork { requesters: Some(work_of(&plan.setup, requests)), ..work };
    let mut session = ActiveRun::start(plan, work, watch)?;
    let wanted = u64::from(requests.connections);
    let opening = open(&mut session, requests);
    let opened = session.crew.counts().requesters_opened;
    let processor = session.gauge.processor();
    let began_us = monotonic_us();
    if !session.interrupted {
        session.crew.go();
        ask(&mut session, requests, began_us);
    }
    let counts = session.crew.counts();
    let seconds = match requests.until {
        Until::Requests(limit) if counts.completed >= limit => {
            seconds_until(began_us, counts.completed_us, counts.completed, requests.rate)
        }
        _ => seconds_since(began_us),
    };
    let busy = session.busy_since(processor);
    let measured = Measured {
        seconds,
        connections: Connections {
            wanted,
            opened: counts.requesters_opened,
            open_at_end: counts.connections,
            dropped: counts.dropped,
            opening_seconds: opening,
            per_second: match requests.closing {
                Closing::Keep => per_second(opened, opening),
                _ => per_second(counts.requesters_opened, seconds),
            },
            ..Connections::default()
        },
        memory: None,
        processor: busy.map(|busy| (busy, counts.completed, "request")),
        ..Measured::default()
    };
    // What came while the threads were stopped is in the histogram, and so it is counted.
    let (mut report, outcome, counts) = session.finish(measured)?;
    report.requests = Some(Requests {
        completed: counts.completed,
        per_second: per_second(counts.completed, seconds),
        open_loop: requests.rate.is_some(),
        latency: latency(&outcome.latency[0]),
        statuses: outcome.statuses.into_iter().collect(),
    });
    Ok(report)
}

fn work_of(setup: &Setup, requests: &RequestLoop) -> RequestWork {
    RequestWork {
        request: RequestTemplate::new(requests, &setup.target, &setup.headers),
        connections: requests.connections,
        pipeline: requests.pipeline,
        closing: requests.closing,
        rate: requests.rate,
        limit: match requests.until {
            Until::Requests(limit) => Some(limit),
            Until::Time(_) => None,
        },
    }
}

/// Opens connections that are kept before the first request, so that neither delays the other.
/// Returns the seconds until the last was established.
fn open(session: &mut ActiveRun<'_>, requests: &RequestLoop) -> f64 {
    let (began_us, wanted) = (monotonic_us(), u64::from(requests.connections));
    session.crew.set_requesters(requests.connections);
    if requests.closing != Closing::Keep {
        return 0.0;
    }
    let phase = PhaseInfo::new("connecting", "connections", wanted, |counts| counts.connections);
    let ends_us = Some(began_us + OPENING_US_MAX);
    // If the very first ones fail there is no server; a few that fail are tried again.
    session.look_on(&PhaseInfo { ends_us, every: LOOK_OFTEN, ..phase }, |counts| {
        counts.connections >= wanted || (counts.connections == 0 && counts.errors > 0)
    });
    let counts = session.crew.counts();
    seconds_until(began_us, counts.requester_opened_us, counts.requesters_opened, None)
}

fn ask(session: &mut ActiveRun<'_>, requests: &RequestLoop, began_us: u64) {
    let (ends_us, limit) = match requests.until {
        Until::Time(time) => (Some(began_us + time.as_micros() as u64), u64::MAX),
        Until::Requests(limit) => (None, limit),
    };
    let every = if limit == u64::MAX { LOOK } else { LOOK_OFTEN };
    let phase =
        PhaseInfo::new("asking", "requests", requests.connections, |counts| counts.completed);
    // At a slow rate nothing comes for a while, and nothing is wrong.
    let interval_us = requests.rate.map_or(0, |rate| (1e6 / rate) as u64);
    let patience_us = STANDSTILL_US + interval_us;
    session.look_on(&PhaseInfo { ends_us, every, patience_us, ..phase }, |counts| {
        let nobody_there = counts.completed == 0 && counts.requesters_opened == 0;
        counts.completed + counts.lost >= limit || (nobody_there && counts.errors >= ERRORS_ENOUGH)
    });
}

/// Connections that have not come about after this long are left out.
const OPENING_US_MAX: u64 = 30_000_000;

/// After so many failures and no success there is nothing to measure.
const ERRORS_ENOUGH: u64 = 10;
