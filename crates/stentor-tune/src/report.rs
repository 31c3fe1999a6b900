//! The judgement: every finding, the gravest first, and whether the host is ready.

use serde::Serialize;

use crate::{Facts, Finding, Need, Plan, Severity};

/// What came of judging a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether the host can hold what was asked: nothing stands in the way.
    pub ready: bool,
    /// The host.
    pub facts: Facts,
    /// What was asked.
    pub plan: Plan,
    /// What that comes to.
    pub need: Need,
    /// What the rules say, the gravest first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The findings of one kind.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity == severity)
    }

    /// One line for a server that is being started with this plan; none if the host is ready.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if self.ready {
            return None;
        }
        let rules: Vec<&str> = self.of(Severity::Blocks).map(|finding| finding.rule).collect();
        Some(format!(
            "this host cannot hold {n} connections ({}); 'stentor tune --connections {n}' says \
             what to change",
            rules.join(", "),
            n = self.plan.connections,
        ))
    }

    pub(crate) fn new(
        facts: &Facts,
        plan: &Plan,
        need: Need,
        mut findings: Vec<Finding>,
    ) -> Report {
        findings.sort_by_key(|finding| finding.severity);
        Report {
            ready: findings.iter().all(|finding| finding.severity != Severity::Blocks),
            facts: facts.clone(),
            plan: plan.clone(),
            need,
            findings,
        }
    }
}
