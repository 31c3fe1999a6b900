//! Open files: every connection is one, and each worker has a table with the limit for itself.
//!
//! The server raises its soft limit to the hard one and gives each worker a file table of its own
//! (`unshare(CLONE_FILES)`), so that the limit counts for each worker alone. Where the hard limit
//! cannot be raised, more workers make up for it.

use super::commas;
use crate::plan::{capacity, limit_needed, settled_workers, spare_files};
use crate::{Change, Facts, Finding, Need, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(hard) = facts.files.hard else {
        return vec![Finding::unknown("the limit of open files")];
    };
    let n = plan.connections;
    let workers = settled_workers(facts, plan);
    if facts.own_file_table == Some(false) {
        let wanted = n.saturating_add(spare_files(workers));
        if hard >= wanted {
            return vec![Finding::fine(format!("{} files for all workers", commas(hard)))];
        }
        return too_low(facts, hard, wanted, n);
    }
    if capacity(workers, hard) >= n {
        let why = format!("{} files for each of {workers} workers", commas(hard));
        return vec![Finding::fine(why)];
    }
    let Some(enough) = Need::of(facts, plan).workers else {
        return too_low(facts, hard, limit_needed(workers, n), n);
    };
    if plan.client {
        let why = format!("{} files for each of {enough} threads of the client", commas(hard));
        return vec![Finding::fine(why)];
    }
    let severity = if plan.workers.is_some() { Severity::Blocks } else { Severity::Start };
    let change = Change::of(Setting::Workers, workers, enough);
    let why = format!(
        "each worker has a file table of its own, which the hard limit holds to {} files, and the \
         kernel deals connections out unevenly; with a limit of {} there need be no more",
        commas(hard),
        commas(limit_needed(workers, n)),
    );
    let cost = "some 300 KiB for each worker";
    vec![Finding::new(severity, [change], why, cost)]
}

/// The hard limit must be raised, and what the kernel allows it to be raised to.
fn too_low(facts: &Facts, hard: u64, wanted: u64, connections: u64) -> Vec<Finding> {
    let mut changes = Vec::new();
    if let Some(most) = facts.number("fs.nr_open").filter(|&most| most < wanted) {
        changes.push(Change::sysctl("fs.nr_open", most, wanted));
    }
    changes.push(Change::of(Setting::OpenFiles, hard, wanted));
    let why = format!("every one of {} connections is an open file", commas(connections));
    let cost = "nothing until the files are open";
    vec![Finding::new(Severity::Blocks, changes, why, cost)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::facts::FileLimits;

    fn with(hard: u64) -> Facts {
        let files = FileLimits { hard: Some(hard), ..FileLimits::default() };
        Facts { files, ..host(&[("fs.nr_open", "1048576")]) }
    }

    #[test]
    fn workers_make_up_for_a_low_limit() {
        check(&judge(&with(20_000), &plan(10_000)), Severity::Fine, &[]);
        check(&judge(&with(20_000), &plan(1_000_000)), Severity::Start, &["59"]);
        let client = Plan { client: true, ..plan(1_000_000) };
        check(&judge(&with(20_000), &client), Severity::Fine, &[]);
    }

    #[test]
    fn workers_that_are_settled_may_be_too_few() {
        let settled = |workers| Plan { workers: Some(workers), ..plan(1_000_000) };
        check(&judge(&with(20_000), &settled(58)), Severity::Blocks, &["59"]);
        check(&judge(&with(20_000), &settled(59)), Severity::Fine, &[]);
    }

    #[test]
    fn a_limit_that_no_workers_make_up_for() {
        check(&judge(&with(500), &plan(1_000)), Severity::Blocks, &["1501"]);
    }

    #[test]
    fn one_table_for_all_needs_a_limit_for_all() {
        let shared = |hard| Facts { own_file_table: Some(false), ..with(hard) };
        check(&judge(&shared(20_000), &plan(100_000)), Severity::Blocks, &["100500"]);
        check(&judge(&shared(100_500), &plan(100_000)), Severity::Fine, &[]);
        let wanted = ["2000500", "2000500"];
        check(&judge(&shared(20_000), &plan(2_000_000)), Severity::Blocks, &wanted);
    }

    #[test]
    fn an_unknown_limit() {
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
