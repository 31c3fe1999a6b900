//! Recorded hosts: which rules speak, and what they want.

use std::fs;
use std::path::Path;

use stentor_tune::{Facts, Finding, Kind, Plan, Report, Severity, Style, judge};

use crate::wanted::as_wanted;

#[test]
fn a_container_with_everything_against_it() {
    let always = [
        "blocks threads: pids limit of the control group = 34",
        "slows seccomp: system call unshare = allowed",
    ];
    check("container", &plan(10_000), false, &always);
    check(
        "container",
        &plan(100_000),
        false,
        &[
            "blocks open-files: open files, hard limit = 100500",
            "blocks cgroup-memory: memory limit of the control group, bytes = 630531840",
            always[0],
            always[1],
        ],
    );
    check(
        "container",
        &plan(2_000_000),
        false,
        &[
            "blocks open-files: fs.nr_open = 2000500",
            "blocks open-files: open files, hard limit = 2000500",
            "blocks cgroup-memory: memory limit of the control group, bytes = 11984931840",
            always[0],
            always[1],
            "slows listen-queue: net.core.somaxconn = 16384",
            "slows cores: cores = 15",
        ],
    );
}

/// What a network namespace hides is not known, and nothing is said about it.
#[test]
fn a_container_does_not_show_all() {
    let report = judge(&host("container"), &plan(10_000));
    let unknown: Vec<&str> = report.of(Severity::Unknown).map(|finding| finding.rule).collect();
    assert_eq!(unknown, ["tcp-memory", "orphans"]);
    let hidden = report.text(false, Style::Plain, 100);
    assert!(hidden.contains("2 checks could not be made here") && !hidden.contains("orphans"));
    assert!(
        report.text(true, Style::Plain, 100).contains("net.ipv4.tcp_max_orphans cannot be read")
    );
}

#[test]
fn a_container_with_room() {
    check("container_roomy", &plan(100_000), true, &[]);
    check(
        "container_roomy",
        &plan(2_000_000),
        false,
        &[
            "blocks cgroup-memory: memory limit of the control group, bytes = 10621481984",
            "blocks conntrack: net.netfilter.nf_conntrack_max = 2200003",
            "blocks conntrack: net.netfilter.nf_conntrack_buckets = 550400",
            "slows listen-queue: net.core.somaxconn = 8192",
        ],
    );
}

#[test]
fn a_small_virtual_machine() {
    check("vm_1core", &plan(1_000), true, &[]);
    check(
        "vm_1core",
        &plan(10_000),
        false,
        &[
            "blocks conntrack: net.netfilter.nf_conntrack_max = 11041",
            "slows tcp-memory: net.ipv4.tcp_mem = 20000 25000 30000",
            "slows kernel: kernel = 6.0",
        ],
    );
    check(
        "vm_1core",
        &plan(2_000_000),
        false,
        &[
            "blocks memory: memory available, bytes = 11125115904",
            "blocks tcp-memory: net.ipv4.tcp_mem = 4000000 5000000 6000000",
            "blocks conntrack: net.netfilter.nf_conntrack_max = 2200041",
            "blocks conntrack: net.netfilter.nf_conntrack_buckets = 550400",
            "slows listen-queue: net.core.somaxconn = 65535",
            "slows orphans: net.ipv4.tcp_max_orphans = 500000",
            "slows cores: cores = 15",
            "slows kernel: kernel = 6.0",
            "start open-files: --workers = 3",
        ],
    );
}

#[test]
fn idle_connections_need_less_than_streams() {
    let idle = Plan { kind: Kind::Idle, ..plan(10_000) };
    check(
        "vm_1core",
        &idle,
        false,
        &["blocks conntrack: net.netfilter.nf_conntrack_max = 11041", "slows kernel: kernel = 6.0"],
    );
}

/// The interrupts of the first card are all on one core; the second card is fine, and so is the
/// first but for what it is told.
#[test]
fn a_large_server_with_two_cards() {
    let always = [
        "slows interrupts: /proc/irq/132/smp_affinity_list = 1 × 15",
        "slows netdev-backlog: net.core.netdev_max_backlog = 10000",
        "slows netdev-backlog: net.core.netdev_budget = 600",
    ];
    check("server_64core", &plan(100_000), true, &always);
    let busy = Plan { rate: 4.0, ..plan(2_000_000) };
    check(
        "server_64core",
        &busy,
        true,
        &[
            "slows orphans: net.ipv4.tcp_max_orphans = 500000",
            always[0],
            "slows packet-steering: /sys/class/net/ens1f0/queues/rx-0/rps_cpus = \
             10001,00010001 × 32",
            always[1],
            always[2],
        ],
    );
    let report = judge(&host("server_64core"), &busy);
    let second = report.findings.iter().filter(|finding| finding.why.contains("ens2f0np0"));
    assert!(second.map(|finding| finding.severity).eq([Severity::Fine, Severity::Fine]));
}

#[test]
fn a_host_full_of_folklore() {
    let governor = "slows governor: \
                    /sys/devices/system/cpu/cpufreq/policy0/scaling_governor = performance × 8";
    check(
        "folklore",
        &plan(100_000),
        true,
        &[
            governor,
            "slows kernel: kernel = 6.0",
            "folklore tcp-memory: net.ipv4.tcp_mem = 190629 254173 381258",
            "folklore time-wait: net.ipv4.tcp_tw_reuse = 2",
            "folklore time-wait: net.ipv4.tcp_max_tw_buckets = 63543",
            "folklore time-wait: net.ipv4.tcp_fin_timeout = 60",
            "folklore tw-recycle: net.ipv4.tcp_tw_recycle = 0",
            "folklore timestamps: net.ipv4.tcp_timestamps = 1",
            "folklore syncookies: net.ipv4.tcp_syncookies = 1",
            "folklore buffers: net.ipv4.tcp_rmem = 4096 131072 67108864",
            "folklore buffers: net.ipv4.tcp_wmem = 4096 16384 67108864",
        ],
    );
}

#[test]
fn a_client_needs_ports_and_no_queues() {
    let client = Plan { client: true, ..plan(1_000_000) };
    check(
        "server_64core",
        &client,
        true,
        &[
            "slows ports: net.ipv4.ip_local_port_range = 1024 65535",
            "slows interrupts: /proc/irq/132/smp_affinity_list = 1 × 15",
            "slows netdev-backlog: net.core.netdev_max_backlog = 10000",
            "slows netdev-backlog: net.core.netdev_budget = 600",
            "start ports: source addresses = 16",
        ],
    );
    check("vm_1core", &Plan { client: true, ..plan(5_000) }, true, &[]);
}

/// What `serve --expect` says: the workers are settled then.
#[test]
fn too_few_workers_are_worth_a_warning() {
    let with = |workers| Plan { workers: Some(workers), ..plan(1_500_000) };
    let warning = judge(&host("server_64core"), &with(2)).warning().unwrap();
    assert_eq!(
        warning,
        "this host cannot hold 1500000 connections (open-files); 'stentor tune --connections \
         1500000' says what to change"
    );
    assert_eq!(judge(&host("server_64core"), &with(64)).warning(), None);
}

fn host(name: &str) -> Facts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(format!("tests/hosts/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn plan(connections: u64) -> Plan {
    let (kind, rate, client, tls, workers) = (Kind::Sse, 1.0, false, false, None);
    Plan { connections, kind, rate, client, tls, workers }
}

/// A line for each change that is asked for: severity, rule, setting, wanted value. Of changes of
/// many queues the first is enough.
fn asked(report: &Report) -> Vec<String> {
    let line = |finding: &Finding| {
        let kind = format!("{:?}", finding.severity).to_lowercase();
        let many = finding.changes.len() > 4;
        let shown = if many { 1 } else { finding.changes.len() };
        let changes = finding.changes.iter().take(shown);
        let rule = finding.rule;
        let count = if many { format!(" × {}", finding.changes.len()) } else { String::new() };
        changes
            .map(|c| format!("{kind} {rule}: {} = {}{count}", c.setting.label(), c.wanted))
            .collect::<Vec<_>>()
    };
    report.findings.iter().flat_map(line).collect()
}

#[track_caller]
fn check(name: &str, plan: &Plan, ready: bool, expected: &[&str]) {
    let report = judge(&host(name), plan);
    assert_eq!(asked(&report), expected, "{name}\n{}", report.text(true, Style::Plain, 100));
    assert_eq!(report.ready, ready, "{name}");
    let (facts, plan) = as_wanted(&report);
    let after = judge(&facts, &plan);
    assert!(after.ready, "{name}, set as wanted: {:?}", asked(&after));
}
