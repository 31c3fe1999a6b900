//! Several URLs: the same plan on several servers, in alternating rounds.
//!
//! Machines are noisy, and what disturbs them lasts for longer than a round. Servers that take
//! turns are disturbed alike; every other round goes backwards, so that none always follows the
//! same one.

use crate::crew::BenchError;
use crate::plan::Plan;
use crate::progress::{Progress, Watch};
use crate::report::{Comparison, Subject};
use crate::run::{process_bytes, run_since};

/// Makes `rounds` rounds of all plans, which are the same but for the server. If the watch ends it,
/// or a run fails, rounds that are not whole are left out.
///
/// # Errors
/// The first round is not whole: it was ended, or a run has failed.
pub fn compare(plans: &[Plan], rounds: usize, watch: &dyn Watch) -> Result<Comparison, BenchError> {
    let Some(first) = plans.first() else {
        return Err(BenchError("there is nothing to compare".to_owned()));
    };
    let subject = |plan: &Plan| Subject { url: plan.setup.target.url.clone(), reports: Vec::new() };
    let mut subjects: Vec<Subject> = plans.iter().map(subject).collect();
    let before: Vec<_> = plans.iter().map(process_bytes).collect::<Result<_, _>>()?;
    let (mut whole, mut failed) = (0, None);
    'rounds: for round in 0..rounds {
        let mut order: Vec<usize> = (0..plans.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let url = &plans[index].setup.target.url;
            let within = Round { watch, name: format!("round {} of {rounds}, {url}", round + 1) };
            match run_since(&plans[index], &within, before[index]) {
                Ok(report) if report.interrupted => break 'rounds,
                Ok(report) => subjects[index].reports.push(report),
                Err(error) if whole == 0 => return Err(error),
                Err(error) => {
                    failed = Some(format!("round {} of {url}: {error}", round + 1));
                    break 'rounds;
                }
            }
        }
        whole += 1;
    }
    if whole == 0 {
        return Err(BenchError("stopped before a round was whole".to_owned()));
    }
    for subject in &mut subjects {
        subject.reports.truncate(whole);
    }
    Ok(Comparison { command: first.task.name(), rounds: whole, subjects, error: failed })
}

/// Says which round of which server it is that goes on.
struct Round<'a> {
    watch: &'a dyn Watch,
    name: String,
}

impl Watch for Round<'_> {
    fn progress(&self, progress: &Progress) {
        let phase = format!("{}: {}", self.name, progress.phase);
        self.watch.progress(&Progress { phase, ..progress.clone() });
    }

    fn stopped(&self) -> bool {
        self.watch.stopped()
    }
}
