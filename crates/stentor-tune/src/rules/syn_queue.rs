//! `net.ipv4.tcp_max_syn_backlog`: how many connections may be half made, without SYN cookies.
//!
//! With cookies (the default) the kernel does not look at it at all: `tcp_conn_request` compares
//! the queue with the listener's own backlog, and with this only if `tcp_syncookies` is 0.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

const NAME: &str = "net.ipv4.tcp_max_syn_backlog";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    if plan.client {
        return Vec::new();
    }
    let Some(places) = facts.number(NAME) else { return vec![Finding::unknown(NAME)] };
    if facts.number("net.ipv4.tcp_syncookies") != Some(0) {
        let why = "the kernel does not look at it while SYN cookies are on";
        return vec![Finding::fine(why)];
    }
    let wanted = (plan.connections / 10).clamp(PLACES_MIN, PLACES_MAX);
    if places >= wanted {
        return vec![Finding::fine(format!("{} places", commas(places)))];
    }
    let why = "without SYN cookies the last quarter of this queue is closed to clients the kernel \
               does not know, and they try again a second later";
    let cost = "320 bytes for each connection that is half made";
    let change = Change::sysctl(NAME, places, wanted);
    vec![Finding::new(Severity::Slows, [change], why, cost)]
}

const PLACES_MIN: u64 = 4_096;
const PLACES_MAX: u64 = 65_535;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn it_counts_without_cookies_only() {
        let with = |cookies, places| host(&[("net.ipv4.tcp_syncookies", cookies), (NAME, places)]);
        check(&judge(&with("1", "128"), &plan(1_000_000)), Severity::Fine, &[]);
        check(&judge(&with("0", "128"), &plan(1_000_000)), Severity::Slows, &["65535"]);
        check(&judge(&with("0", "4096"), &plan(1_000)), Severity::Fine, &[]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
