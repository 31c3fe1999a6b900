//! `net.ipv4.tcp_timestamps`: guides turn them off to save 12 bytes of each packet.

use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "timestamps";
const NAME: &str = "net.ipv4.tcp_timestamps";

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    match facts.number(NAME) {
        None => vec![Finding::unknown(RULE, NAME)],
        Some(0) => {
            let why = "without them the kernel measures round trips worse, cannot tell late \
                       packets from new ones, and SYN cookies lose the window's scale";
            let change = Change::sysctl(NAME, 0, 1);
            let cost = "12 bytes of each packet";
            vec![Finding::new(RULE, Severity::Folklore, [change], why, cost)]
        }
        Some(_) => vec![Finding::fine(RULE, "on")],
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn they_belong_on() {
        check(&judge(&host(&[(NAME, "0")]), &plan(1)), Severity::Folklore, &["1"]);
        check(&judge(&host(&[(NAME, "1")]), &plan(1)), Severity::Fine, &[]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
