//! Ports of a client: to one server, each source address has as many connections as ports.
//!
//! A server needs none: all its connections are on the port it listens on. A wider range there is
//! folklore, but a harmless one.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Setting, Severity};

const NAME: &str = "net.ipv4.ip_local_port_range";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    if !plan.client {
        return vec![Finding::fine("a server needs no ports but those it listens on")];
    }
    let ports = |range: &[u64]| match range {
        [first, last] if first <= last && *last <= 65_535 => Some(last - first + 1),
        _ => None,
    };
    let range = facts.numbers(NAME);
    let Some(ports) = range.as_deref().and_then(ports) else {
        return vec![Finding::unknown(NAME)];
    };
    let n = plan.connections;
    if n <= ports {
        return vec![Finding::fine(format!("{} for each address", commas(ports)))];
    }
    let mut findings = Vec::new();
    if ports < WIDEST {
        let severity = if n <= WIDEST { Severity::Blocks } else { Severity::Slows };
        let now = facts.sysctls.get(NAME).cloned().unwrap_or_default();
        let change = Change::sysctl(NAME, now, WIDE);
        let why = format!(
            "one address has {} connections to a server at most, one for each port",
            commas(ports)
        );
        let cost = "a program that listens on a port above 1024 may find it taken: name such ports \
                    in net.ipv4.ip_local_reserved_ports";
        findings.push(Finding::new(severity, [change], why, cost));
    }
    if n > WIDEST {
        let change = Change::of(Setting::SourceAddresses, 1, n.div_ceil(WIDEST));
        let why = "no range is wider, so the client must connect from several addresses; on the \
                   loopback all of 127.0.0.0/8 are there";
        findings.push(Finding::new(Severity::Start, [change], why, ""));
    }
    findings
}

/// Everything but the ports for which a program needs a right.
const WIDE: &str = "1024 65535";
const WIDEST: u64 = 65_535 - 1_024 + 1;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan, said};
    use super::*;

    #[test]
    fn a_server_needs_none() {
        check(&judge(&host(&[(NAME, "5000 5000")]), &plan(1_000_000)), Severity::Fine, &[]);
    }

    #[test]
    fn a_client_needs_one_for_each_connection() {
        let client = |connections| Plan { client: true, ..plan(connections) };
        let facts = host(&[(NAME, "32768 60999")]);
        check(&judge(&facts, &client(28_232)), Severity::Fine, &[]);
        check(&judge(&facts, &client(28_233)), Severity::Blocks, &[WIDE]);
        let (severities, wanted) = said(&judge(&facts, &client(1_000_000)));
        assert_eq!(severities, [Severity::Slows, Severity::Start]);
        assert_eq!(wanted, [WIDE, "16"]);
        check(&judge(&host(&[(NAME, WIDE)]), &client(64_512)), Severity::Fine, &[]);
        for text in ["", "1", "9 8", "1 70000"] {
            check(&judge(&host(&[(NAME, text)]), &client(1)), Severity::Unknown, &[]);
        }
    }
}
