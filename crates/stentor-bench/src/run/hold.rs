//! `bench hold`: connections that are opened and kept.

use stentor_io::monotonic_us;

use super::{ActiveRun, Measured, PhaseInfo, held, seconds_since};
use crate::crew::{BenchError, Spread};
use crate::orders::{HoldWork, ThreadWork};
use crate::plan::{Hold, Plan};
use crate::progress::Watch;
use crate::report::Report;

pub(super) fn run(plan: &Plan, hold: &Hold, watch: &dyn Watch) -> Result<Report, BenchError> {
    let (setup, target) = (&plan.setup, &plan.setup.target);
    let holders = Some(HoldWork::new(setup, target, hold.role, 0));
    let work = ThreadWork { holders, ..ThreadWork::new(setup, target, Spread::of(plan)?)? };
    let mut session = ActiveRun::start(plan, work, watch)?;
    let processor = session.gauge.processor();
    let opening_seconds = session.open_holders(hold.connections, hold.ramp);
    let opened = session.crew.counts();
    let busy = session.busy_since(processor);
    let began_us = monotonic_us();
    if !session.interrupted && opened.held > 0 {
        let wanted = hold.connections;
        let phase = PhaseInfo::new("holding", "messages", wanted, |counts| counts.delivered);
        let ends_us = Some(began_us + hold.duration.as_micros() as u64);
        session.look_on(&PhaseInfo { ends_us, ..phase }, |counts| counts.held == 0);
    }
    let counts = session.crew.counts();
    let measured = Measured {
        seconds: opening_seconds + seconds_since(began_us),
        connections: held(hold.connections, &opened, &counts, opening_seconds),
        memory: (counts.held > 0).then(|| session.memory(counts.held)),
        processor: busy.map(|busy| (busy, opened.opened, "connection")),
        ..Measured::default()
    };
    Ok(session.finish(measured)?.0)
}
