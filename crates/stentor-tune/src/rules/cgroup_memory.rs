//! The control group's limit of memory: the kernel charges sockets to the group as well, and kills
//! its processes when the limit is reached.

use super::human_bytes;
use crate::{Change, Facts, Finding, Need, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(limit) = facts.cgroup.memory_limit_bytes else { return Vec::new() };
    let used = facts.cgroup.memory_used_bytes.unwrap_or_default();
    let wanted = Need::of(facts, plan).bytes().saturating_add(used);
    if wanted <= limit {
        let why = format!("{} of {}", human_bytes(wanted), human_bytes(limit));
        return vec![Finding::fine(why)];
    }
    let change = Change::of(Setting::CgroupMemory, limit, wanted);
    let why = "the kernel's memory for sockets counts against the limit of the control group, \
               and beyond it the kernel ends a process";
    let cost = "memory that other groups do not have then";
    vec![Finding::new(Severity::Blocks, [change], why, cost)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{plan, said};
    use super::*;
    use crate::facts::Cgroup;

    #[test]
    fn sockets_count_against_the_limit() {
        let with = |limit| Facts {
            cgroup: Cgroup {
                memory_limit_bytes: Some(limit),
                memory_used_bytes: Some(100_000_000),
                ..Cgroup::default()
            },
            ..Facts::default()
        };
        let found = judge(&with(512 << 20), &plan(100_000));
        assert_eq!(said(&found).0, [Severity::Blocks]);
        let wanted = found[0].changes[0].wanted.parse().unwrap();
        assert_eq!(said(&judge(&with(wanted), &plan(100_000))).0, [Severity::Fine]);
        assert_eq!(judge(&Facts::default(), &plan(100_000)), []);
    }
}
