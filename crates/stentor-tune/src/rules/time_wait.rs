//! TIME_WAIT: the side that closes first remembers the connection for a minute. On a server that
//! costs 256 bytes each and nothing else: it takes no port and no file.

use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "time-wait";
const REUSE: &str = "net.ipv4.tcp_tw_reuse";
const BUCKETS: &str = "net.ipv4.tcp_max_tw_buckets";
const FIN: &str = "net.ipv4.tcp_fin_timeout";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let found: Vec<Finding> =
        [reuse(facts, plan), buckets(facts), fin_timeout(facts)].into_iter().flatten().collect();
    if found.is_empty() {
        return vec![Finding::fine(RULE, "256 bytes for a minute each: nothing to be set")];
    }
    found
}

/// 2 is the default since 4.19: on the loopback only.
fn reuse(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let now = facts.number(REUSE).filter(|&now| now == 1 && !plan.client)?;
    let why = "it lets connections that this host opens take a port out of TIME_WAIT; a server \
               opens none, so it does nothing here";
    let change = Change::sysctl(REUSE, now, 2);
    Some(Finding::new(RULE, Severity::Folklore, [change], why, "nothing"))
}

/// The kernel's default is half of the number of buckets of the table of connections. Older kernels
/// do not show that; they have a bucket for each 128 KiB of memory, rounded up.
fn buckets(facts: &Facts) -> Option<Finding> {
    let now = facts.number(BUCKETS)?;
    let by_memory = || Some((facts.memory.total_bytes? / MEMORY_PER_PLACE).min(BUCKETS_MAX));
    let shown = facts.number("net.ipv4.tcp_ehash_entries").map(|buckets| buckets / 2);
    let wanted = shown.or_else(by_memory)?;
    if now >= wanted {
        return None;
    }
    let why = "fewer places do not make fewer connections end: what has no place forgets its \
               TIME_WAIT, and late packets may reach the next connection. The kernel's \
               documentation says not to lower it";
    let change = Change::sysctl(BUCKETS, now, wanted);
    Some(Finding::new(RULE, Severity::Folklore, [change], why, "256 bytes for each, for a minute"))
}

/// The name is misleading: TIME_WAIT is a minute, whatever this says.
fn fin_timeout(facts: &Facts) -> Option<Finding> {
    let now = facts.number(FIN).filter(|&now| now < FIN_DEFAULT_S)?;
    let why = "it does not shorten TIME_WAIT, which is 60 seconds in the kernel's code; it cuts \
               off peers that are slow to close their side";
    let change = Change::sysctl(FIN, now, FIN_DEFAULT_S);
    Some(Finding::new(RULE, Severity::Folklore, [change], why, "nothing"))
}

/// The kernel's default, where it is not shown: at least one for so many bytes, up to so many.
const MEMORY_PER_PLACE: u64 = 256 << 10;
const BUCKETS_MAX: u64 = 262_144;

const FIN_DEFAULT_S: u64 = 60;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::facts::Memory;

    #[test]
    fn reuse_is_for_clients() {
        check(&judge(&host(&[(REUSE, "1")]), &plan(1)), Severity::Folklore, &["2"]);
        check(&judge(&host(&[(REUSE, "2")]), &plan(1)), Severity::Fine, &[]);
        let client = Plan { client: true, ..plan(1) };
        check(&judge(&host(&[(REUSE, "1")]), &client), Severity::Fine, &[]);
    }

    #[test]
    fn places_are_not_to_be_lowered() {
        let with = |buckets| host(&[(BUCKETS, buckets), ("net.ipv4.tcp_ehash_entries", "262144")]);
        check(&judge(&with("5000"), &plan(1)), Severity::Folklore, &["131072"]);
        check(&judge(&with("131072"), &plan(1)), Severity::Fine, &[]);
        let memory = Memory { total_bytes: Some(16 << 30), ..Memory::default() };
        let older = Facts { memory, ..host(&[(BUCKETS, "5000")]) };
        check(&judge(&older, &plan(1)), Severity::Folklore, &["65536"]);
        check(&judge(&host(&[(BUCKETS, "5000")]), &plan(1)), Severity::Fine, &[]);
    }

    #[test]
    fn another_timeout() {
        check(&judge(&host(&[(FIN, "15")]), &plan(1)), Severity::Folklore, &["60"]);
        check(&judge(&host(&[(FIN, "60")]), &plan(1)), Severity::Fine, &[]);
    }
}
