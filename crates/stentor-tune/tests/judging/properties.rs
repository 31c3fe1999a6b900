//! What holds for every host: no rule panics, and what is set as wanted is ready.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use stentor_tune::{
    Card, Cgroup, Cores, Facts, FileLimits, Governor, Interrupt, Kind, Memory, Plan, Queue,
    Severity, Softnet, Style, judge,
};

use crate::wanted::as_wanted;

proptest! {
    #[test]
    fn no_host_makes_a_rule_panic(facts in hosts(), plan in plans()) {
        let report = judge(&facts, &plan);
        prop_assert!(report.text(true, Style::Coloured, 100).contains(&report.verdict()));
        prop_assert!(stentor_tune::sysctl_file(&report).starts_with("# For "));
        prop_assert!(stentor_tune::systemd_file(&report).contains("\nLimitNOFILE="));
        prop_assert_eq!(report.ready, report.warning().is_none());
        prop_assert!(serde_json::to_string(&report).is_ok());
    }

    #[test]
    fn a_host_that_is_set_as_wanted_is_ready(facts in hosts(), plan in plans()) {
        let before = judge(&facts, &plan);
        let (facts, plan) = as_wanted(&before);
        let after = judge(&facts, &plan);
        let left: Vec<_> = after
            .findings
            .iter()
            .filter(|finding| matches!(
                finding.severity,
                Severity::Blocks | Severity::Slows | Severity::Folklore
            ))
            // Cores cannot be set.
            .filter(|finding| !["cores", "handshakes"].contains(&finding.rule))
            .collect();
        prop_assert!(after.ready && left.is_empty(), "{:#?}\nbefore: {:#?}", left, before.findings);
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let kinds = select(vec![Kind::Idle, Kind::Sse, Kind::Ws, Kind::Poll]);
    let connections = prop_oneof![1_u64..3_000_000, 1_u64..=100_000_000];
    let workers = option::of(1_u32..=4096);
    (connections, kinds, 0.0..1e6, any::<bool>(), any::<bool>(), workers).prop_map(
        |(connections, kind, rate, client, tls, workers)| Plan {
            connections,
            kind,
            rate,
            client,
            tls,
            workers,
        },
    )
}

fn hosts() -> impl Strategy<Value = Facts> {
    let sizes = || option::of(prop_oneof![0_u64..10_000_000, any::<u64>()]);
    let count = || option::of(prop_oneof![0_u32..300, any::<u32>()]);
    let process = (sizes(), option::of(any::<bool>()), option::of(any::<bool>()), count());
    let memory = (sizes(), sizes(), sizes(), sizes());
    let cgroup = (sizes(), sizes(), sizes(), sizes());
    let lists = (option::of(garbage()), option::of(garbage()));
    let cores = (count(), count(), option::of(0.0..100.0), lists);
    let hardware = (vec(softnet(), 0..3), governors(), cards());
    let names = (option::of(garbage()), sizes(), sizes());
    (process, memory, cgroup, cores, hardware, names, sysctls()).prop_map(
        |(process, memory, cgroup, cores, hardware, names, sysctls)| Facts {
            kernel: names.0,
            cores: Cores {
                online: cores.0,
                running: cores.3.0,
                isolated: cores.3.1,
                allowed: cores.1,
                quota: cores.2,
            },
            memory: Memory {
                total_bytes: memory.0,
                available_bytes: memory.1,
                commit_limit_bytes: memory.2,
                committed_bytes: memory.3,
            },
            files: FileLimits { soft: None, hard: process.0, may_raise: process.1 },
            root: process.2,
            processes_max: names.1,
            sysctls,
            cards: hardware.2,
            softnet: hardware.0,
            governors: hardware.1,
            cgroup: Cgroup {
                memory_limit_bytes: cgroup.0,
                memory_used_bytes: cgroup.1,
                pids_limit: cgroup.2,
                pids_used: cgroup.3,
            },
            seccomp: process.3,
            own_file_table: process.1,
            container: None,
            socket_bytes: names.2.map(|bytes| bytes % 100_000),
        },
    )
}

/// What a file may hold instead of what belongs there.
fn garbage() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{1,3}\\.[0-9]{1,2}\\.[0-9]{1,3}",
        "[0-9a-f]{0,9}(,[0-9a-f]{0,9}){0,3}",
        "[0-9]{1,5}-[0-9]{1,11}",
        Just("0".to_owned()),
    ]
}

fn sysctls() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = select(stentor_tune::settings().collect::<Vec<_>>());
    let number = prop_oneof![0_u64..4, 0_u64..10_000_000, any::<u64>()];
    let three = (0_u64..1 << 40, 0_u64..1 << 40, 0_u64..1 << 40);
    let values = prop_oneof![
        4 => number.prop_map(|n| n.to_string()),
        2 => three.prop_map(|(a, b, c)| format!("{a} {b} {c}")),
        1 => (0_u32..70_000, 0_u32..70_000).prop_map(|(a, b)| format!("{a} {b}")),
        1 => garbage(),
    ];
    btree_map(names.prop_map(str::to_owned), values, 0..25)
}

fn softnet() -> impl Strategy<Value = Softnet> {
    (any::<u64>(), 0_u64..3, any::<u64>()).prop_map(|(processed, dropped, squeezed)| Softnet {
        processed,
        dropped,
        squeezed,
    })
}

fn governors() -> impl Strategy<Value = Vec<Governor>> {
    let name = select(vec!["powersave", "performance", "ondemand", "schedutil", ""]);
    let driver = option::of(select(vec!["intel_pstate", "acpi-cpufreq"]));
    let pair = (name, driver).prop_map(|(name, driver)| (name.to_owned(), driver));
    vec(pair, 0..3).prop_map(|pairs| {
        let governor = |(i, (governor, driver)): (usize, (String, Option<&str>))| Governor {
            policy: format!("policy{i}"),
            governor,
            driver: driver.map(str::to_owned),
        };
        pairs.into_iter().enumerate().map(governor).collect()
    })
}

/// Two cards, so that their interrupts have numbers of their own.
fn cards() -> impl Strategy<Value = Vec<Card>> {
    let masks = || vec(option::of(garbage()), 0..9);
    let interrupts = vec((option::of(garbage()), option::of(garbage())), 0..9);
    vec((masks(), masks(), interrupts, any::<bool>()), 0..3).prop_map(|cards| {
        let card = |(c, (receive, transmit, interrupts, real)): (usize, (_, _, Vec<_>, bool))| {
            let interrupt = |(i, (allowed, effective))| Interrupt {
                number: (c * 100 + i) as u32,
                name: format!("eth{c}-TxRx-{i}"),
                allowed,
                effective,
            };
            Card {
                name: format!("eth{c}"),
                driver: real.then(|| "virtio_net".to_owned()),
                speed_mbps: None,
                receive: queues("rx", receive),
                transmit: queues("tx", transmit),
                interrupts: interrupts.into_iter().enumerate().map(interrupt).collect(),
            }
        };
        cards.into_iter().enumerate().map(card).collect()
    })
}

fn queues(kind: &str, masks: Vec<Option<String>>) -> Vec<Queue> {
    let queue = |(i, cpus)| Queue { name: format!("{kind}-{i}"), cpus };
    masks.into_iter().enumerate().map(queue).collect()
}
