//! Filters of system calls: container engines often forbid `unshare`, without which all workers
//! share one file table. (No profile forbids epoll; a server could not run without it.)

use crate::{Change, Facts, Finding, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    match facts.own_file_table {
        Some(true) => vec![Finding::fine("a thread may have a file table of its own")],
        None => vec![Finding::unknown("whether unshare is allowed")],
        // A client brings its own limits.
        Some(false) if plan.client => Vec::new(),
        Some(false) => {
            let filter = if facts.seccomp == Some(2) { "refused by a filter" } else { "refused" };
            let change = Change::of(Setting::Unshare, filter, "allowed");
            let why = "without it all workers share one file table: its limit counts once, and \
                       cores contend for it whenever a connection comes or goes";
            let cost =
                "with CLONE_FILES it gives no new rights; a profile can allow just that flag";
            vec![Finding::new(Severity::Slows, [change], why, cost)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;

    #[test]
    fn unshare_is_allowed_or_not() {
        let with = |own_file_table| Facts { own_file_table, ..Facts::default() };
        check(&judge(&with(Some(true)), &plan(1)), Severity::Fine, &[]);
        check(&judge(&with(None), &plan(1)), Severity::Unknown, &[]);
        check(&judge(&with(Some(false)), &plan(1)), Severity::Slows, &["allowed"]);
        let client = Plan { client: true, ..plan(1) };
        assert_eq!(judge(&with(Some(false)), &client), []);
    }
}
