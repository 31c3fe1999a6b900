//! Rules that compare one kernel setting with what it should be: a row of `ROWS` each.
//!
//! A row is all there is to such a rule. The setting is read because it is named here
//! (`facts.rs`), the property tests try it for the same reason, and the report takes the texts.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

struct KernelRow {
    rule: &'static str,
    /// The kernel setting, which is one number.
    name: &'static str,
    /// Whether it matters to a client.
    is_for_clients: bool,
    /// Whether a host that does not show it is told so. Settings that some kernels lack are
    /// passed over, and so are those that facts of older versions lack.
    is_always_there: bool,
    severity: Severity,
    /// The value it should have, given the one that it has.
    wanted: fn(&Facts, &Plan, u64) -> u64,
    why: &'static str,
    cost: &'static str,
    /// The sentence for a value that is as wanted; `{}` stands for the value.
    fine: &'static str,
}

/// All rows, in the order of the report.
const ROWS: &[KernelRow] = &[
    // It counts all processes together.
    KernelRow {
        rule: "host-files",
        name: "fs.file-max",
        is_for_clients: true,
        is_always_there: true,
        severity: Severity::Blocks,
        wanted: |facts, plan, now| now.max(files_of_host(facts, plan)),
        why: "the kernel opens no more files than this for all processes together, root's excepted",
        cost: "nothing until the files are open",
        fine: "the host may open {} files",
    },
    // Connections whose process has closed them, and whose peer has not acknowledged that yet.
    // There are few until a server stops or dies. A stop is spread over five seconds, and a peer
    // far away answers after one.
    KernelRow {
        rule: "orphans",
        name: "net.ipv4.tcp_max_orphans",
        is_for_clients: false,
        is_always_there: true,
        severity: Severity::Slows,
        wanted: |_, plan, now| now.max(plan.connections / 4),
        why: "when the server stops, connections wait for their peers' last word; beyond this \
              number the kernel resets them",
        cost: "each may hold what it had not sent yet, up to 64 KiB, which cannot be swapped",
        fine: "room for {}",
    },
    // The side that closes first remembers the connection for a minute. On a server that costs 256
    // bytes each and nothing else: it takes no port and no file. 2 is the default of `tcp_tw_reuse`
    // since 4.19: on the loopback only.
    KernelRow {
        rule: "time-wait",
        name: "net.ipv4.tcp_tw_reuse",
        is_for_clients: false,
        is_always_there: false,
        severity: Severity::Folklore,
        wanted: |_, _, now| if now == 1 { 2 } else { now },
        why: "it lets connections that this host opens take a port out of TIME_WAIT; a server \
              opens none, so it does nothing here",
        cost: "nothing",
        fine: "ports in TIME_WAIT are not taken for other connections",
    },
    KernelRow {
        rule: "time-wait",
        name: "net.ipv4.tcp_max_tw_buckets",
        is_for_clients: true,
        is_always_there: false,
        severity: Severity::Folklore,
        wanted: |facts, _, now| now.max(time_wait_places(facts)),
        why: "fewer places do not make fewer connections end: what has no place forgets its \
              TIME_WAIT, and late packets may reach the next connection. The kernel's \
              documentation says not to lower it",
        cost: "256 bytes for each, for a minute",
        fine: "256 bytes for a minute each: nothing to be set",
    },
    // The name is misleading: TIME_WAIT is a minute, whatever this says.
    KernelRow {
        rule: "time-wait",
        name: "net.ipv4.tcp_fin_timeout",
        is_for_clients: true,
        is_always_there: false,
        severity: Severity::Folklore,
        wanted: |_, _, now| now.max(60),
        why: "it does not shorten TIME_WAIT, which is 60 seconds in the kernel's code; it cuts off \
              peers that are slow to close their side",
        cost: "nothing",
        fine: "peers have {} seconds to close their side",
    },
    KernelRow {
        rule: "tw-recycle",
        name: "net.ipv4.tcp_tw_recycle",
        is_for_clients: true,
        is_always_there: false,
        severity: Severity::Folklore,
        wanted: |_, _, _| 0,
        why: "it refuses clients that share an address with others (behind NAT, as all phones are) \
              because their clocks differ; Linux 4.12 has removed it",
        cost: "nothing",
        fine: "off",
    },
    // Guides turn them off to save 12 bytes of each packet.
    KernelRow {
        rule: "timestamps",
        name: "net.ipv4.tcp_timestamps",
        is_for_clients: true,
        is_always_there: true,
        severity: Severity::Folklore,
        wanted: |_, _, now| now.max(1),
        why: "without them the kernel measures round trips worse, cannot tell late packets from \
              new ones, and SYN cookies lose the window's scale",
        cost: "12 bytes of each packet",
        fine: "on",
    },
    // It was turned off on many hosts in 2019 against CVE-2019-11477, and stayed off.
    KernelRow {
        rule: "sack",
        name: "net.ipv4.tcp_sack",
        is_for_clients: true,
        is_always_there: false,
        severity: Severity::Folklore,
        wanted: |_, _, now| now.max(1),
        why: "without selective acknowledgements a connection that loses several packets repairs \
              one of them in each round trip, and readers on mobile networks fall behind; kernels \
              since July 2019 have the flaw mended for which it was turned off",
        cost: "nothing",
        fine: "on",
    },
    // Guides turn them off for fear of what they cost.
    KernelRow {
        rule: "syncookies",
        name: "net.ipv4.tcp_syncookies",
        is_for_clients: false,
        is_always_there: true,
        severity: Severity::Folklore,
        wanted: |_, _, _| 1,
        why: "1 sends cookies only when the queue is full, where the kernel would otherwise drop \
              the client, and touches no connection that finds room; 0 drops it, and 2, for tests, \
              sends them to every client",
        cost: "nothing until the queue is full",
        fine: "used only when the queue is full",
    },
];

/// The findings of all rows on a host.
pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let asked = ROWS.iter().filter(|row| row.is_for_clients || !plan.client);
    asked.filter_map(|row| row.judge(facts, plan)).collect()
}

/// The settings that the rows look at.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

impl KernelRow {
    fn judge(&self, facts: &Facts, plan: &Plan) -> Option<Finding> {
        let finding = match facts.number(self.name) {
            None if self.is_always_there => Finding::unknown(self.name),
            None => return None,
            Some(now) => match (self.wanted)(facts, plan, now) {
                wanted if wanted == now => Finding::fine(self.fine.replace("{}", &commas(now))),
                wanted => {
                    let change = Change::sysctl(self.name, now, wanted);
                    Finding::new(self.severity, [change], self.why, self.cost)
                }
            },
        };
        Some(Finding { rule: self.rule, ..finding })
    }
}

/// The files that the connections, what is open now, and other processes meanwhile come to.
fn files_of_host(facts: &Facts, plan: &Plan) -> u64 {
    let open = facts.numbers("fs.file-nr").and_then(|numbers| numbers.first().copied());
    plan.connections.saturating_add(open.unwrap_or_default()).saturating_add(10_000)
}

/// The kernel's default is half of the number of buckets of the table of connections. Older kernels
/// do not show that; they have a place for each 256 KiB of memory, up to 262,144.
fn time_wait_places(facts: &Facts) -> u64 {
    let shown = facts.number("net.ipv4.tcp_ehash_entries").map(|buckets| buckets / 2);
    let by_memory = || Some((facts.memory.total_bytes? / (256 << 10)).min(262_144));
    shown.or_else(by_memory).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::facts::Memory;

    /// What the row of a setting says of it, if the host has these settings.
    fn row(name: &str, settings: &[(&str, &str)], plan: &Plan) -> Vec<Finding> {
        let row = ROWS.iter().find(|row| row.name == name && (row.is_for_clients || !plan.client));
        row.and_then(|row| row.judge(&host(settings), plan)).into_iter().collect()
    }

    #[test]
    fn each_setting_has_values_that_are_fine_and_values_that_are_not() {
        let rows = [
            ("net.ipv4.tcp_tw_recycle", "1", Some("0")),
            ("net.ipv4.tcp_tw_recycle", "0", None),
            ("net.ipv4.tcp_timestamps", "0", Some("1")),
            ("net.ipv4.tcp_timestamps", "1", None),
            ("net.ipv4.tcp_timestamps", "2", None),
            ("net.ipv4.tcp_syncookies", "0", Some("1")),
            ("net.ipv4.tcp_syncookies", "2", Some("1")),
            ("net.ipv4.tcp_syncookies", "1", None),
            ("net.ipv4.tcp_tw_reuse", "1", Some("2")),
            ("net.ipv4.tcp_tw_reuse", "2", None),
            ("net.ipv4.tcp_fin_timeout", "15", Some("60")),
            ("net.ipv4.tcp_fin_timeout", "60", None),
            ("net.ipv4.tcp_max_tw_buckets", "5000", None),
        ];
        for (name, value, wanted) in rows {
            let findings = row(name, &[(name, value)], &plan(1));
            let severity = if wanted.is_some() { Severity::Folklore } else { Severity::Fine };
            check(&findings, severity, &wanted.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn settings_that_every_host_has_are_missed() {
        let unknown = judge(&Facts::default(), &plan(1));
        assert!(unknown.iter().all(|finding| finding.severity == Severity::Unknown));
        let rules: Vec<_> = unknown.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, ["host-files", "orphans", "timestamps", "syncookies"]);
        let client = judge(&Facts::default(), &Plan { client: true, ..plan(1) });
        assert_eq!(client.len(), 2, "a client has neither orphans nor cookies");
    }

    #[test]
    fn reuse_is_for_clients() {
        let name = "net.ipv4.tcp_tw_reuse";
        let client = Plan { client: true, ..plan(1) };
        assert_eq!(row(name, &[(name, "1")], &client), []);
    }

    #[test]
    fn a_quarter_of_all_may_be_orphans() {
        let name = "net.ipv4.tcp_max_orphans";
        let with = |connections| row(name, &[(name, "131072")], &plan(connections));
        check(&with(500_000), Severity::Fine, &[]);
        check(&with(1_000_000), Severity::Slows, &["250000"]);
        assert_eq!(with(1)[0].why, "room for 131,072");
    }

    #[test]
    fn places_of_time_wait_are_not_to_be_lowered() {
        let name = "net.ipv4.tcp_max_tw_buckets";
        let with = |now| [(name, now), ("net.ipv4.tcp_ehash_entries", "262144")];
        check(&row(name, &with("5000"), &plan(1)), Severity::Folklore, &["131072"]);
        check(&row(name, &with("131072"), &plan(1)), Severity::Fine, &[]);
        let memory = Memory { total_bytes: Some(16 << 30), ..Memory::default() };
        let older = Facts { memory, ..host(&[(name, "5000")]) };
        check(&judge(&older, &plan(1))[2..3], Severity::Folklore, &["65536"]);
    }

    #[test]
    fn the_host_has_room_for_all_files_and_what_is_open_already() {
        let name = "fs.file-max";
        let settings = [(name, "100000"), ("fs.file-nr", "1000 0 100000")];
        check(&row(name, &settings, &plan(89_000)), Severity::Fine, &[]);
        check(&row(name, &settings, &plan(89_001)), Severity::Blocks, &["100001"]);
        let most = [(name, "9223372036854775807")];
        check(&row(name, &most, &plan(100_000_000)), Severity::Fine, &[]);
    }
}
