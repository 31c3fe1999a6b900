//! The rules: each a pure function of the facts and the plan.
//!
//! A rule says nothing where it does not apply, that all is well, that it lacks a fact, or what to
//! change. It asks only for what helps: a value is too small if the plan needs more, never because
//! larger is better. And it is content with what it asked for: a host that is set as wanted is
//! fine. A rule that compares one kernel setting with a value is a row in `table.rs`; any other is
//! a file here and a line in `RULES`.

mod buffers;
mod cgroup_memory;
mod conntrack;
mod cores;
mod governor;
mod handshakes;
mod interrupts;
mod kernel;
mod listen_queue;
mod memory;
mod netdev_backlog;
mod open_files;
mod overcommit;
mod packet_steering;
mod ports;
mod seccomp;
mod syn_queue;
mod table;
mod tcp_memory;
mod threads;

pub(crate) use stentor_io::thousands as commas;
pub(crate) use table::names;

use crate::{Facts, Finding, Need, Plan, Report};

/// Asks every rule.
#[must_use]
pub fn judge(facts: &Facts, plan: &Plan) -> Report {
    let findings = RULES.iter().flat_map(|(name, rule)| {
        let found = rule(facts, plan).into_iter();
        found.map(|found| if name.is_empty() { found } else { Finding { rule: name, ..found } })
    });
    Report::new(facts, plan, Need::of(facts, plan), findings.collect())
}

/// What a rule makes of a host and a plan.
type RuleFn = fn(&Facts, &Plan) -> Vec<Finding>;

/// All rules with their names; within one severity, findings are in this order. The rows of the
/// table have names of their own.
const RULES: &[(&str, RuleFn)] = &[
    ("open-files", open_files::judge),
    ("memory", memory::judge),
    ("cgroup-memory", cgroup_memory::judge),
    ("tcp-memory", tcp_memory::judge),
    ("threads", threads::judge),
    ("seccomp", seccomp::judge),
    ("overcommit", overcommit::judge),
    ("conntrack", conntrack::judge),
    ("ports", ports::judge),
    ("listen-queue", listen_queue::judge),
    ("syn-queue", syn_queue::judge),
    ("", table::judge),
    ("cores", cores::judge),
    ("handshakes", handshakes::judge),
    ("governor", governor::judge),
    ("interrupts", interrupts::judge),
    ("packet-steering", packet_steering::judge),
    ("netdev-backlog", netdev_backlog::judge),
    ("kernel", kernel::judge),
    ("buffers", buffers::judge),
];

/// Bytes as people write them.
pub(crate) fn human_bytes(bytes: u64) -> String {
    stentor_io::units::bytes(bytes as f64)
}

/// What the tests of the rules have in common.
#[cfg(test)]
mod testing {
    use super::*;
    use crate::{Kind, Severity};

    pub(super) fn plan(connections: u64) -> Plan {
        let (kind, rate, client, tls, workers) = (Kind::Sse, 1.0, false, false, None);
        Plan { connections, kind, rate, client, tls, workers }
    }

    /// A host of which only these settings are known.
    pub(super) fn host(sysctls: &[(&str, &str)]) -> Facts {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Facts { sysctls: sysctls.iter().map(pair).collect(), ..Facts::default() }
    }

    /// What a rule says, in short: its severities, and every value it wants.
    pub(super) fn said(findings: &[Finding]) -> (Vec<Severity>, Vec<String>) {
        let wanted = |finding: &Finding| {
            finding.changes.iter().map(|change| change.wanted.clone()).collect::<Vec<_>>()
        };
        (
            findings.iter().map(|finding| finding.severity).collect(),
            findings.iter().flat_map(wanted).collect(),
        )
    }

    #[track_caller]
    pub(super) fn check(findings: &[Finding], severity: Severity, wanted: &[&str]) {
        let (severities, values) = said(findings);
        assert_eq!(severities, [severity], "{findings:#?}");
        assert_eq!(values, wanted, "{findings:#?}");
    }
}
