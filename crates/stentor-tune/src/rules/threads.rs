//! Threads: one for each worker, and a few more. Control groups, users and the host limit them.

use crate::{Change, Facts, Finding, Need, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let workers = Need::of(facts, plan).threads(facts, plan);
    let threads = u64::from(workers) + THREADS_SPARE;
    let used = facts.cgroup.pids_used.unwrap_or_default();
    let of_host =
        |name: &str| (Setting::Sysctl(name.to_owned()), facts.number(name), threads + HOST_THREADS);
    let limits = [
        (Setting::CgroupPids, facts.cgroup.pids_limit, threads.saturating_add(used)),
        // Root is not counted.
        (
            Setting::Processes,
            facts.processes_max.filter(|_| facts.root != Some(true)),
            threads + HOST_THREADS,
        ),
        of_host("kernel.threads-max"),
        of_host("kernel.pid_max"),
    ];
    let low = limits.into_iter().filter_map(|(setting, limit, wanted)| {
        let limit = limit.filter(|&limit| limit < wanted)?;
        Some(Change::of(setting, limit, wanted))
    });
    let changes: Vec<Change> = low.collect();
    if changes.is_empty() {
        return vec![Finding::fine(format!("room for {threads}"))];
    }
    let why = format!("{workers} workers are as many threads, and the kernel starts no more");
    vec![Finding::new(Severity::Blocks, changes, why, "nothing until they are started")]
}

/// The threads of the process that are no workers.
const THREADS_SPARE: u64 = 16;

/// What else runs on a host, or for a user.
const HOST_THREADS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::facts::Cgroup;

    #[test]
    fn every_limit_counts() {
        let pids = |limit| Facts {
            cgroup: Cgroup { pids_limit: Some(limit), pids_used: Some(4), ..Cgroup::default() },
            ..Facts::default()
        };
        let plan = Plan { workers: Some(61), ..plan(1_000_000) };
        check(&judge(&pids(80), &plan), Severity::Blocks, &["81"]);
        check(&judge(&pids(81), &plan), Severity::Fine, &[]);
        for name in ["kernel.threads-max", "kernel.pid_max"] {
            check(&judge(&host(&[(name, "1000")]), &plan), Severity::Blocks, &["1077"]);
        }
        let user = Facts { processes_max: Some(64), ..Facts::default() };
        check(&judge(&user, &plan), Severity::Blocks, &["1077"]);
        check(&judge(&Facts { root: Some(true), ..user }, &plan), Severity::Fine, &[]);
    }
}
