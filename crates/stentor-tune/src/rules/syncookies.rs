//! `net.ipv4.tcp_syncookies`: guides turn them off for fear of what they cost.

use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "syncookies";
const NAME: &str = "net.ipv4.tcp_syncookies";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    if plan.client {
        return Vec::new();
    }
    let why = match facts.number(NAME) {
        None => return vec![Finding::unknown(RULE, NAME)],
        Some(1) => return vec![Finding::fine(RULE, "used only when the queue is full")],
        Some(0) => {
            "cookies are used only when the queue is full, where the kernel would otherwise \
             drop the client; no connection that finds room is touched by them"
        }
        Some(_) => {
            "2 sends cookies to every client, for testing; 1 sends them only when the \
             queue is full"
        }
    };
    let now = facts.sysctls.get(NAME).cloned().unwrap_or_default();
    let change = Change::sysctl(NAME, now, 1);
    vec![Finding::new(RULE, Severity::Folklore, [change], why, "nothing until the queue is full")]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn they_belong_on_for_emergencies() {
        check(&judge(&host(&[(NAME, "0")]), &plan(1)), Severity::Folklore, &["1"]);
        check(&judge(&host(&[(NAME, "2")]), &plan(1)), Severity::Folklore, &["1"]);
        check(&judge(&host(&[(NAME, "1")]), &plan(1)), Severity::Fine, &[]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
    }
}
