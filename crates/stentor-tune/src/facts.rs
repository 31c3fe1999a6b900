//! What a host says of itself. This is the one place that reads it.
//!
//! Every fact may be missing: containers hide much of a host, kernels differ, and a recorded host
//! may come from an older version of this program. A rule without its facts says that it does not
//! know; it does not guess. Facts are read below a root, normally `/`, so that a copied tree can be
//! judged like a host.
//!
//! procfs-core does not fit: it refuses a file as a whole if one field is missing, and it knows no
//! limits of control groups.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use serde::{Deserialize, Serialize};
use stentor_io::{control_groups, meminfo_bytes, spawn_with_file_table};

use crate::cards::{self, Card};
use crate::{cpus, rules};

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The kernel's release, such as `6.18.4-arch1`.
    pub kernel: Option<String>,
    /// How many cores there are to use.
    pub cores: Cores,
    /// The host's memory.
    pub memory: Memory,
    /// How many files this process may open.
    pub files: FileLimits,
    /// Whether this process is root's.
    pub root: Option<bool>,
    /// The most processes and threads of this user (`RLIMIT_NPROC`); none: unlimited or unknown.
    pub processes_max: Option<u64>,
    /// Kernel settings by name. What this host does not have, or does not show, is absent.
    pub sysctls: BTreeMap<String, String>,
    /// Network cards.
    pub cards: Vec<Card>,
    /// What each core did with packets since the host was started.
    pub softnet: Vec<Softnet>,
    /// How the clock rates of the cores are governed; empty where the kernel has no say in it.
    pub governors: Vec<Governor>,
    /// Limits of the control groups this process is in.
    pub cgroup: Cgroup,
    /// The mode of seccomp: 0 none, 2 system calls are filtered.
    pub seccomp: Option<u32>,
    /// Whether a thread may take a file table of its own (tried, not read).
    pub own_file_table: Option<bool>,
    /// What makes this look like a container.
    pub container: Option<String>,
    /// Bytes of kernel memory for an idle TCP socket, measured on this host.
    pub socket_bytes: Option<u64>,
}

/// How many cores there are to use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cores {
    /// Cores that are running.
    pub online: Option<u32>,
    /// Which those are, as a list: `0-3,8`.
    pub running: Option<String>,
    /// Those that were set apart at boot (`isolcpus`), as a list.
    pub isolated: Option<String>,
    /// Cores this process may run on.
    pub allowed: Option<u32>,
    /// How much processor time the control group may take, in cores; none: no limit.
    pub quota: Option<f64>,
}

/// The host's memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// All of it.
    pub total_bytes: Option<u64>,
    /// What could be used without swapping.
    pub available_bytes: Option<u64>,
    /// The most that may be promised to processes; it counts in strict accounting only.
    pub commit_limit_bytes: Option<u64>,
    /// What is promised to processes.
    pub committed_bytes: Option<u64>,
}

/// How many files one file table of this process may hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileLimits {
    /// The limit in force; the server raises it to the hard one by itself.
    pub soft: Option<u64>,
    /// The highest this process may raise it to.
    pub hard: Option<u64>,
    /// Whether this process may raise the hard limit (`CAP_SYS_RESOURCE`).
    pub may_raise: Option<bool>,
}

/// What one core did with packets since the host was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Softnet {
    /// Packets it took in.
    pub processed: u64,
    /// Packets dropped because its backlog was full.
    pub dropped: u64,
    /// Times it had to stop with work left, because its budget was used up.
    pub squeezed: u64,
}

/// How the clock rate of some cores is governed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Governor {
    /// The kernel's name of these cores: `policy0`.
    pub policy: String,
    /// `performance`, `powersave`, `schedutil` and others.
    pub governor: String,
    /// Who sets the clock: `intel_pstate`, `acpi-cpufreq` and others.
    pub driver: Option<String>,
}

/// Limits of the control groups this process is in; the tightest of each kind. None: no limit, or
/// none that is shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// The most memory, the kernel's for its sockets included.
    pub memory_limit_bytes: Option<u64>,
    /// Memory in use by the group that has this limit, without copies of files: the kernel takes
    /// those back before it lets the limit be reached.
    pub memory_used_bytes: Option<u64>,
    /// The most processes and threads.
    pub pids_limit: Option<u64>,
    /// Processes and threads of the group that has this limit.
    pub pids_used: Option<u64>,
}

impl Facts {
    /// Reads this host, and tries what can only be tried.
    #[must_use]
    pub fn of_this_host() -> Facts {
        let tried = spawn_with_file_table(thread::Builder::new(), |own_table| own_table.is_ok());
        let own_file_table = tried.ok().and_then(|thread| thread.join().ok());
        Facts { own_file_table, ..Facts::read(Path::new("/")) }
    }

    /// Reads what a tree of files says: `/`, or a copy of `/proc` and `/sys`.
    #[must_use]
    pub fn read(root: &Path) -> Facts {
        let status = text(root, "proc/self/status").unwrap_or_default();
        let limits = text(root, "proc/self/limits").unwrap_or_default();
        let capabilities = field(&status, "CapEff:").and_then(|v| u64::from_str_radix(v, 16).ok());
        let (soft, hard) = limit(&limits, "Max open files").unwrap_or_default();
        Facts {
            kernel: text(root, "proc/sys/kernel/osrelease"),
            cores: cores(root, &status),
            memory: memory(root),
            files: FileLimits {
                soft,
                hard,
                may_raise: capabilities.map(|bits| bits >> CAP_SYS_RESOURCE & 1 == 1),
            },
            root: field(&status, "Uid:").map(|uid| uid == "0"),
            processes_max: limit(&limits, "Max processes").and_then(|(soft, _)| soft),
            sysctls: sysctls(root),
            cards: cards::read(root),
            softnet: softnet(root),
            governors: governors(root),
            cgroup: cgroup(root),
            seccomp: field(&status, "Seccomp:").and_then(|mode| mode.parse().ok()),
            own_file_table: None,
            container: container(root),
            socket_bytes: None,
        }
    }

    /// A kernel setting that is one number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.sysctls.get(name)?.trim().parse().ok()
    }

    /// A kernel setting that is several numbers.
    #[must_use]
    pub fn numbers(&self, name: &str) -> Option<Vec<u64>> {
        self.sysctls.get(name)?.split_ascii_whitespace().map(|n| n.parse().ok()).collect()
    }

    /// Cores this process may use: at least one.
    #[must_use]
    pub fn usable_cores(&self) -> u32 {
        self.cores.allowed.or(self.cores.online).unwrap_or(1).max(1)
    }

    /// Cores whose time this process has, where that is known.
    pub(crate) fn cores_of_time(&self) -> Option<f64> {
        self.cores.allowed.or(self.cores.online)?;
        let cores = f64::from(self.usable_cores());
        Some(self.cores.quota.map_or(cores, |quota| quota.min(cores)))
    }

    /// The cores that packets may be given to: at least one. The kernel refuses one that does not
    /// run, and one that was set apart at boot is for something else.
    pub(crate) fn packet_cores(&self) -> Vec<u32> {
        let list = |text: &Option<String>| text.as_deref().and_then(cpus::parse_list);
        let count = self.cores.online.unwrap_or(1).clamp(1, cpus::CPUS_MAX);
        let running = list(&self.cores.running).filter(|cores| !cores.is_empty());
        let mut cores = running.unwrap_or_else(|| (0..count).collect());
        let isolated = list(&self.cores.isolated).unwrap_or_default();
        if !cores.is_subset(&isolated) {
            cores.retain(|core| !isolated.contains(core));
        }
        cores.into_iter().collect()
    }

    /// The kernel's version, such as `(6, 18)`.
    #[must_use]
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut parts = self.kernel.as_deref()?.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// The names of all kernel settings that are read.
pub fn settings() -> impl Iterator<Item = &'static str> {
    SYSCTLS.iter().copied().chain(rules::names())
}

/// A file of the tree, if it is there and is text.
pub(crate) fn text(root: &Path, path: &str) -> Option<String> {
    Some(fs::read_to_string(root.join(path)).ok()?.trim_end().to_owned())
}

/// The word in brackets, as in `always [madvise] never`.
pub(crate) fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Where the cores' clock rates are governed.
pub(crate) const GOVERNORS: &str = "sys/devices/system/cpu/cpufreq";

/// The first word behind a name at the beginning of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()
}

/// A soft and a hard limit of `/proc/self/limits`. `unlimited` is none.
fn limit(text: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = line.split_ascii_whitespace().map(|value| value.parse().ok());
    Some((values.next()?, values.next()?))
}

fn cores(root: &Path, status: &str) -> Cores {
    let count = |list: &str| cpus::parse_list(list).map(|cpus| cpus.len() as u32);
    let list = |name| text(root, &format!("sys/devices/system/cpu/{name}"));
    let running = list("online");
    Cores {
        online: running.as_deref().and_then(count),
        running,
        isolated: list("isolated").filter(|cores| !cores.is_empty()),
        allowed: field(status, "Cpus_allowed_list:").and_then(count),
        quota: control_groups(root, "cpu").iter().filter_map(|group| quota(group)).reduce(f64::min),
    }
}

/// A group's share of processor time in cores, by version 2 or 1 of control groups.
fn quota(group: &Path) -> Option<f64> {
    let number = |file: &str| text(group, file)?.parse::<f64>().ok();
    let (quota, period) = match text(group, "cpu.max") {
        Some(line) => {
            let (quota, period) = line.split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        None => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
    };
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn memory(root: &Path) -> Memory {
    let bytes = meminfo_bytes(root);
    Memory {
        total_bytes: bytes("MemTotal"),
        available_bytes: bytes("MemAvailable"),
        commit_limit_bytes: bytes("CommitLimit"),
        committed_bytes: bytes("Committed_AS"),
    }
}

fn sysctls(root: &Path) -> BTreeMap<String, String> {
    let value = |name: &str| {
        let text = text(root, &format!("proc/sys/{}", name.replace('.', "/")))?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        Some((name.to_owned(), words.join(" ")))
    };
    settings().filter_map(value).collect()
}

/// One line of hexadecimal numbers for each core.
fn softnet(root: &Path) -> Vec<Softnet> {
    let text = text(root, "proc/net/softnet_stat").unwrap_or_default();
    let row = |line: &str| {
        let mut numbers = line.split(' ').map(|n| u64::from_str_radix(n, 16).ok());
        let mut next = || numbers.next().flatten();
        Some(Softnet { processed: next()?, dropped: next()?, squeezed: next()? })
    };
    text.lines().filter_map(row).collect()
}

fn governors(root: &Path) -> Vec<Governor> {
    let governor = |policy: String| {
        let read = |file: &str| text(root, &format!("{GOVERNORS}/{policy}/{file}"));
        let (governor, driver) = (read("scaling_governor")?, read("scaling_driver"));
        Some(Governor { policy, governor, driver })
    };
    entries(root, GOVERNORS).into_iter().filter_map(governor).collect()
}

/// The names in a directory, in order; none if there is no such directory.
pub(crate) fn entries(root: &Path, path: &str) -> Vec<String> {
    let Ok(list) = fs::read_dir(root.join(path)) else { return Vec::new() };
    let mut names: Vec<String> =
        list.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    // rx-2 before rx-10.
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names
}

fn cgroup(root: &Path) -> Cgroup {
    let files = |controller: &str, names: &[(&str, &str)]| {
        let mut tightest: Option<(u64, Option<u64>)> = None;
        for group in control_groups(root, controller) {
            let number = |file: &str| text(&group, file)?.parse::<u64>().ok();
            for &(limit, used) in names {
                let Some(limit) = number(limit).filter(|&limit| limit < UNLIMITED) else {
                    continue;
                };
                let spare = if controller == "memory" { reclaimable(&group) } else { 0 };
                let used = number(used).map(|used| used.saturating_sub(spare));
                let left = |(limit, used): (u64, Option<u64>)| {
                    limit.saturating_sub(used.unwrap_or_default())
                };
                if tightest.is_none_or(|known| left((limit, used)) < left(known)) {
                    tightest = Some((limit, used));
                }
            }
        }
        (tightest.map(|(limit, _)| limit), tightest.and_then(|(_, used)| used))
    };
    let (memory_limit_bytes, memory_used_bytes) = files(
        "memory",
        &[("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")],
    );
    let (pids_limit, pids_used) = files("pids", &[("pids.max", "pids.current")]);
    Cgroup { memory_limit_bytes, memory_used_bytes, pids_limit, pids_used }
}

/// Copies of files in a group's memory, with those of the groups below it; in version 1 of control
/// groups those have names of their own.
fn reclaimable(group: &Path) -> u64 {
    let text = text(group, "memory.stat").unwrap_or_default();
    let number = |name: &str| field(&text, name)?.parse::<u64>().ok();
    let bytes = |name: &str| number(&format!("total_{name}")).or_else(|| number(name));
    ["inactive_file ", "active_file "].into_iter().filter_map(bytes).fold(0, u64::saturating_add)
}

fn container(root: &Path) -> Option<String> {
    let marks = [".dockerenv", "run/.containerenv"];
    if let Some(mark) = marks.into_iter().find(|mark| root.join(mark).exists()) {
        return Some(format!("/{mark}"));
    }
    let groups = text(root, "proc/self/cgroup")?;
    let engines = ["docker", "kubepods", "containerd", "libpod", "lxc"];
    engines.into_iter().find(|name| groups.contains(name)).map(|name| format!("cgroup {name}"))
}

/// The capability that lets a process raise its hard limits; its bit in `CapEff`.
const CAP_SYS_RESOURCE: u32 = 24;

/// Version 1 of control groups writes "no limit" as the highest number of whole pages.
const UNLIMITED: u64 = 1 << 60;

/// The settings that any rule of its own looks at, and those that explain a report.
const SYSCTLS: &[&str] = &[
    "fs.file-nr",
    "fs.nr_open",
    "kernel.pid_max",
    "kernel.threads-max",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ehash_entries",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.netfilter.nf_conntrack_buckets",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "vm.max_map_count",
    "vm.overcommit_memory",
    "vm.swappiness",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A small tree in a directory of its own, gone with the test.
    struct Tree(std::path::PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let root = std::env::temp_dir().join(format!("tune-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Tree(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_tree_without_files_is_a_host_of_which_nothing_is_known() {
        assert_eq!(Facts::read(Path::new("/nonexistent")), Facts::default());
    }

    #[test]
    fn a_container_with_version_2_of_control_groups() {
        let tree = Tree::new(
            "v2",
            &[
                ("proc/self/cgroup", "0::/kubepods/pod1\n"),
                ("sys/fs/cgroup/kubepods/pod1/memory.max", "max\n"),
                ("sys/fs/cgroup/kubepods/memory.max", "1000000\n"),
                ("sys/fs/cgroup/kubepods/memory.current", "400000\n"),
                ("sys/fs/cgroup/kubepods/memory.stat", "inactive_file 90000\nactive_file 10000\n"),
                ("sys/fs/cgroup/kubepods/pod1/memory.stat", "inactive_file 90000\n"),
                ("sys/fs/cgroup/kubepods/pod1/pids.max", "512\n"),
                ("sys/fs/cgroup/kubepods/pod1/pids.current", "3\n"),
                ("sys/fs/cgroup/kubepods/pod1/cpu.max", "150000 100000\n"),
                ("proc/self/status", "Uid:\t1000 1000\nCapEff:\t01000000\nSeccomp:\t2\n"),
                ("proc/self/limits", "Max open files     1024   unlimited   files\n"),
                ("proc/sys/net/ipv4/tcp_mem", "1\t2\t3\n"),
            ],
        );
        let facts = Facts::read(&tree.0);
        assert_eq!(facts.cgroup.memory_limit_bytes, Some(1_000_000));
        assert_eq!(facts.cgroup.memory_used_bytes, Some(300_000), "without copies of files");
        assert_eq!((facts.cgroup.pids_limit, facts.cgroup.pids_used), (Some(512), Some(3)));
        assert_eq!(facts.cores.quota, Some(1.5));
        assert_eq!(facts.root, Some(false));
        assert_eq!(facts.seccomp, Some(2));
        assert_eq!(facts.container.as_deref(), Some("cgroup kubepods"));
        let files = FileLimits { soft: Some(1024), hard: None, may_raise: Some(true) };
        assert_eq!(facts.files, files);
        assert_eq!(facts.numbers("net.ipv4.tcp_mem"), Some(vec![1, 2, 3]));
        assert_eq!(facts.number("net.ipv4.tcp_mem"), None);
    }

    #[test]
    fn version_1_of_control_groups() {
        let tree = Tree::new(
            "v1",
            &[
                ("proc/self/cgroup", "4:memory:/a\n2:cpuacct,cpu:/b\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000000"),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4000000"),
                (
                    "sys/fs/cgroup/memory/a/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 2000000\ntotal_active_file 500000\n",
                ),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
                ("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "50000"),
                ("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000"),
            ],
        );
        let facts = Facts::read(&tree.0);
        assert_eq!(facts.cgroup.memory_limit_bytes, Some(5_000_000));
        assert_eq!(facts.cgroup.memory_used_bytes, Some(1_500_000));
        assert_eq!(facts.cores.quota, Some(0.5));
    }

    #[test]
    fn cores_that_packets_may_be_given_to() {
        let with = |running: &str, isolated: &str| {
            let text = |text: &str| Some(text.to_owned());
            let (running, isolated) = (text(running), text(isolated));
            let cores = Cores { online: Some(4), running, isolated, ..Cores::default() };
            Facts { cores, ..Facts::default() }.packet_cores()
        };
        assert_eq!(with("0,2,4,6", ""), [0, 2, 4, 6]);
        assert_eq!(with("0-3", "2-3"), [0, 1]);
        assert_eq!(with("0-3", "0-7"), [0, 1, 2, 3]);
        assert_eq!(with("?", "?"), [0, 1, 2, 3]);
        assert_eq!(Facts::default().packet_cores(), [0]);
    }

    #[test]
    fn what_the_kernel_writes() {
        let tree = Tree::new(
            "proc",
            &[
                ("proc/net/softnet_stat", "00000010 0000000a 00000002 0\nzz\n"),
                ("proc/meminfo", "MemTotal:       100 kB\nMemAvailable:    50 kB\n"),
                ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
                ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "schedutil\n"),
            ],
        );
        let facts = Facts::read(&tree.0);
        assert_eq!(facts.softnet, [Softnet { processed: 16, dropped: 10, squeezed: 2 }]);
        assert_eq!(facts.memory.available_bytes, Some(50 * 1024));
        assert_eq!(facts.kernel_version(), Some((6, 1)));
        assert_eq!(facts.governors[0].governor, "schedutil");
    }

    #[test]
    fn facts_survive_a_file() {
        let facts = Facts::of_this_host();
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), facts);
        assert!(facts.kernel.is_some() && facts.own_file_table.is_some());
    }
}
