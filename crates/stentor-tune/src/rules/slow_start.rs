//! `net.ipv4.tcp_slow_start_after_idle`: guides turn it off for streams. It is neither needed nor
//! harmful: a connection that was silent starts again with ten packets, some 14 KB, and a message
//! that fits into them leaves at once either way.

use crate::{Facts, Finding, Plan};

const RULE: &str = "slow-start";

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    let name = "net.ipv4.tcp_slow_start_after_idle";
    if facts.number(name).is_none() {
        return vec![Finding::unknown(RULE, name)];
    }
    let why = "of no matter: messages of up to ten packets (14 KB) leave at once either way";
    vec![Finding::fine(RULE, why)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::Severity;

    #[test]
    fn either_value_will_do() {
        for value in ["0", "1"] {
            let facts = host(&[("net.ipv4.tcp_slow_start_after_idle", value)]);
            check(&judge(&facts, &plan(1)), Severity::Fine, &[]);
        }
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
