//! `net.ipv4.tcp_tw_recycle`: gone since Linux 4.12, and harmful before.

use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "tw-recycle";
const NAME: &str = "net.ipv4.tcp_tw_recycle";

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    match facts.number(NAME) {
        None => Vec::new(),
        Some(0) => vec![Finding::fine(RULE, "off")],
        Some(now) => {
            let why = "it refuses clients that share an address with others (behind NAT, as all \
                       phones are) because their clocks differ; Linux 4.12 has removed it";
            let change = Change::sysctl(NAME, now, 0);
            vec![Finding::new(RULE, Severity::Folklore, [change], why, "nothing")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn it_must_be_off_where_it_is() {
        check(&judge(&host(&[(NAME, "1")]), &plan(1)), Severity::Folklore, &["0"]);
        check(&judge(&host(&[(NAME, "0")]), &plan(1)), Severity::Fine, &[]);
        assert_eq!(judge(&Facts::default(), &plan(1)), []);
    }
}
