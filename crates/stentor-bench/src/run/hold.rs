//! `bench hold`: connections that are opened and kept.

use stentor_io::monotonic_us;

use super::{LOOK, Measured, Phase, Session, connector, held, seconds_since};
use crate::crew::{BenchError, Spread};
use crate::orders::{HoldWork, Rank, Work};
use crate::plan::{Hold, Plan};
use crate::progress::Watch;
use crate::report::Report;
use crate::request::open_head;

pub(super) fn run(plan: &Plan, hold: &Hold, watch: &dyn Watch) -> Result<Report, BenchError> {
    let spread = Spread::of(plan)?;
    let work = Work {
        address: hold.setup.target.address,
        secure: connector(&hold.setup.target, &hold.setup)?,
        sources: spread.sources,
        threads: spread.threads,
        rank: Rank::Usual,
        requesters: None,
        holders: Some(HoldWork {
            role: hold.role,
            request: open_head(&hold.setup.target, Some(hold.role), &hold.setup.headers),
            opening_max: OPENING_MAX,
            run: 0,
            stride: 1,
            followed: 0,
            stall_percent: 0,
        }),
        elsewhere: Vec::new(),
    };
    let mut session = Session::start(&hold.setup, work, watch)?;
    let processor = session.gauge.processor();
    let opening_seconds = session.open_holders(hold.connections, hold.ramp);
    let opened = session.crew.counts();
    let busy = session.busy_since(processor);
    let began_us = monotonic_us();
    if !session.interrupted && opened.held > 0 {
        let phase = Phase {
            name: "holding",
            unit: "messages",
            wanted: hold.connections.into(),
            count: |counts| counts.delivered,
            ends_us: Some(began_us + hold.duration.as_micros() as u64),
            every: LOOK,
        };
        session.look_on(&phase, |_, _| {}, |counts| counts.held == 0);
    }
    let counts = session.crew.counts();
    let measured = Measured {
        seconds: opening_seconds + seconds_since(began_us),
        connections: held(hold.connections, &opened, &counts, opening_seconds),
        memory: (counts.held > 0).then(|| session.memory(&hold.setup, counts.held)),
        processor: busy.map(|busy| (busy, opened.opened, "connection")),
    };
    Ok(session.finish(plan, measured)?.0)
}

/// Connections of a thread that may be on their way at a time: enough to keep both ends busy, too
/// few to fill the queue of a listener.
pub(super) const OPENING_MAX: usize = 64;
