//! The load of the memory that this process uses.
//!
//! Three limits are watched: that of the process's control group or of one around it, the memory of
//! the host, and the memory that the kernel allows all TCP sockets together. Memory that the kernel
//! would give back at once counts as free: a group that files from disk have filled is not full.
//!
//! procfs-core refuses a file as a whole if one field is missing, and knows no limits of control
//! groups; so both are read here, for the adviser and the load generator as well.

use std::fs;
use std::path::{Path, PathBuf};

/// What may be full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryOf {
    /// The control group, or one that it is in.
    Cgroup,
    /// The host. Of one with much memory only the last ten gigabytes count: a tenth of a terabyte
    /// is not little.
    Host,
    /// TCP sockets: `tcp_mem`, from whose second number on the kernel presses them.
    Tcp,
}

/// How full it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLoad {
    /// Of what.
    pub of: MemoryOf,
    /// What is in use, in bytes.
    pub used: u64,
    /// What may be, in bytes.
    pub limit: u64,
}

impl MemoryLoad {
    /// What is in use, in thousandths of what may be.
    #[must_use]
    pub fn per_mille(&self) -> u64 {
        let used = u128::from(self.used) * 1_000;
        u64::try_from(used / u128::from(self.limit.max(1))).unwrap_or(u64::MAX)
    }
}

/// Where the kernel tells of it.
#[derive(Clone, Debug)]
pub struct MemoryGauges {
    root: PathBuf,
    /// The directories of the group and those around it.
    groups: Vec<MemoryCgroup>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct MemoryCgroup {
    directory: PathBuf,
    names: &'static Names,
}

/// The names of files, and of values in the last one.
#[derive(PartialEq, Eq, Debug)]
struct Names {
    used: &'static str,
    limits: &'static [&'static str],
    reclaimable: [&'static str; 2],
}

static VERSION_2: Names = Names {
    used: "memory.current",
    limits: &["memory.high", "memory.max"],
    reclaimable: ["inactive_file", "active_file"],
};
static VERSION_1: Names = Names {
    used: "memory.usage_in_bytes",
    limits: &["memory.limit_in_bytes"],
    reclaimable: ["total_inactive_file", "total_active_file"],
};

impl MemoryGauges {
    /// Those of this process, as far as they are there. `root` is `/`, but for tests.
    #[must_use]
    pub fn of(root: &Path) -> MemoryGauges {
        // With both versions mounted, memory is with one of them.
        let group = |directory: PathBuf| {
            let versions = [&VERSION_2, &VERSION_1].into_iter();
            let mut groups =
                versions.map(|names| MemoryCgroup { directory: directory.clone(), names });
            groups.find(|group| group.number(group.names.used).is_some())
        };
        let groups = control_groups(root, "memory").into_iter().filter_map(group).collect();
        MemoryGauges { root: root.to_owned(), groups }
    }

    /// How full everything is now that has a limit.
    #[must_use]
    pub fn read(&self) -> Vec<MemoryLoad> {
        let groups = self.groups.iter().filter_map(MemoryCgroup::load);
        let fullest = groups.max_by_key(MemoryLoad::per_mille);
        [fullest, self.host(), self.tcp()].into_iter().flatten().collect()
    }

    /// How much memory there is for this process, in bytes: the least that a control group allows,
    /// or what the host has. `None` if neither is known.
    #[must_use]
    pub fn total(&self) -> Option<(MemoryOf, u64)> {
        let groups = self.groups.iter().filter_map(MemoryCgroup::limit);
        let group = groups.min().map(|limit| (MemoryOf::Cgroup, limit));
        let host = meminfo_bytes(&self.root)("MemTotal").map(|bytes| (MemoryOf::Host, bytes));
        [group, host].into_iter().flatten().min_by_key(|(_, bytes)| *bytes)
    }

    fn host(&self) -> Option<MemoryLoad> {
        let bytes = meminfo_bytes(&self.root);
        let (limit, available) =
            (bytes("MemTotal")?.min(HOST_BYTES_COUNTED), bytes("MemAvailable")?);
        Some(MemoryLoad { of: MemoryOf::Host, used: limit.saturating_sub(available), limit })
    }

    fn tcp(&self) -> Option<MemoryLoad> {
        let page = rustix::param::page_size() as u64;
        let text = fs::read_to_string(self.root.join("proc/net/sockstat")).ok()?;
        let line = text.lines().find(|line| line.starts_with("TCP:"))?;
        let used = line.split_ascii_whitespace().skip_while(|word| *word != "mem").nth(1)?;
        let limits = fs::read_to_string(self.root.join("proc/sys/net/ipv4/tcp_mem")).ok()?;
        let limit = limits.split_ascii_whitespace().nth(1)?;
        let (used, limit) = (used.parse::<u64>().ok()?, limit.parse::<u64>().ok()?);
        let (used, limit) = (used.checked_mul(page)?, limit.saturating_mul(page));
        Some(MemoryLoad { of: MemoryOf::Tcp, used, limit })
    }
}

impl MemoryCgroup {
    fn limit(&self) -> Option<u64> {
        let limits = self.names.limits.iter().filter_map(|name| self.number(name));
        limits.filter(|&limit| limit < UNLIMITED).min()
    }

    /// How full it is, if it has a limit.
    fn load(&self) -> Option<MemoryLoad> {
        let limit = self.limit()?;
        let mut used = self.number(self.names.used)?;
        // Asking for the rest costs the kernel more.
        if used > limit / 2 {
            let text = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
            for name in self.names.reclaimable {
                used = used.saturating_sub(value_of(&text, name).unwrap_or(0));
            }
        }
        Some(MemoryLoad { of: MemoryOf::Cgroup, used, limit })
    }

    /// What a file says, if that is a number.
    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.directory.join(name)).ok()?.trim().parse().ok()
    }
}

/// The directories of this process's group and of all above it, for a controller. In version 2
/// there is one tree for all; in version 1 each controller has its own. A container that sees only
/// its own part of the tree has it at the top, whatever `/proc/self/cgroup` says (cgroups(7)).
#[must_use]
pub fn control_groups(root: &Path, controller: &str) -> Vec<PathBuf> {
    let lines = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mount = root.join("sys/fs/cgroup");
        let tree = match names {
            "" => Some(mount),
            // The directory may have the names in another order; then there is one for each.
            _ if names.split(',').any(|name| name == controller) => [names, controller]
                .map(|name| mount.join(name))
                .into_iter()
                .find(|dir| dir.is_dir()),
            _ => None,
        };
        let Some(tree) = tree else { continue };
        let inner = tree.join(path.trim_matches('/'));
        let around = inner.ancestors().take_while(|directory| directory.starts_with(&tree));
        found.extend(around.map(Path::to_owned));
    }
    found
}

/// A figure of `/proc/meminfo` below a root, in bytes (proc_meminfo(5)).
pub fn meminfo_bytes(root: &Path) -> impl Fn(&str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    move |name| value_of(&text, &format!("{name}:"))?.checked_mul(1_024)
}

/// The number behind a name at the beginning of a line.
fn value_of(text: &str, name: &str) -> Option<u64> {
    let values = text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some(name)).then(|| words.next())
    });
    values??.parse().ok()
}

const HOST_BYTES_COUNTED: u64 = 10 << 30;

/// What the first version says where there is no limit, and more.
const UNLIMITED: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn write(scratch: &Scratch, path: &str, text: &str) {
        let path = scratch.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn loads(scratch: &Scratch) -> Vec<(MemoryOf, u64, u64)> {
        let loads = MemoryGauges::of(&scratch.join("")).read();
        loads.into_iter().map(|load| (load.of, load.used, load.limit)).collect()
    }

    #[test]
    fn the_fullest_group_counts_without_what_is_given_back_at_once() {
        let scratch = Scratch::new();
        write(&scratch, "proc/self/cgroup", "1:name=systemd:/a\n0::/outer/inner\n");
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.current", "600\n");
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.max", "max\n");
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.high", "1000\n");
        assert_eq!(loads(&scratch), [(MemoryOf::Cgroup, 600, 1_000)]);
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.max", "800\n");
        let stat = "anon 300\nfile 300\ninactive_file 90\nactive_file 10\n";
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.stat", stat);
        assert_eq!(loads(&scratch), [(MemoryOf::Cgroup, 500, 800)]);
        write(&scratch, "sys/fs/cgroup/outer/memory.current", "900\n");
        write(&scratch, "sys/fs/cgroup/outer/memory.max", "1000\n");
        assert_eq!(loads(&scratch), [(MemoryOf::Cgroup, 900, 1_000)]);
        let total = || MemoryGauges::of(&scratch.join("")).total();
        assert_eq!(total(), Some((MemoryOf::Cgroup, 800)), "the least counts");
        write(&scratch, "proc/meminfo", "MemTotal: 1 kB\n");
        assert_eq!(total(), Some((MemoryOf::Cgroup, 800)));
        fs::remove_file(scratch.join("proc/meminfo")).unwrap();
        write(&scratch, "sys/fs/cgroup/outer/memory.max", "max\n");
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.max", "max\n");
        write(&scratch, "sys/fs/cgroup/outer/inner/memory.high", "max\n");
        assert_eq!(loads(&scratch), []);
        assert_eq!(total(), None);
        write(&scratch, "proc/meminfo", "MemTotal: 7 kB\n");
        assert_eq!(total(), Some((MemoryOf::Host, 7 * 1_024)));
    }

    #[test]
    fn groups_of_the_first_version_count_too() {
        let scratch = Scratch::new();
        write(&scratch, "proc/self/cgroup", "5:cpu,memory:/box\n0::/\n");
        let group = "sys/fs/cgroup/memory/box";
        write(&scratch, &format!("{group}/memory.usage_in_bytes"), "900\n");
        write(&scratch, &format!("{group}/memory.limit_in_bytes"), "9223372036854771712\n");
        assert_eq!(loads(&scratch), []);
        write(&scratch, &format!("{group}/memory.limit_in_bytes"), "1000\n");
        write(&scratch, &format!("{group}/memory.stat"), "total_inactive_file 50\n");
        assert_eq!(loads(&scratch), [(MemoryOf::Cgroup, 850, 1_000)]);
    }

    #[test]
    fn host_and_sockets_count() {
        let scratch = Scratch::new();
        write(&scratch, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 300 kB\n");
        let host = (MemoryOf::Host, 700 * 1_024, 1_000 * 1_024);
        assert_eq!(loads(&scratch), [host]);
        write(&scratch, "proc/net/sockstat", "sockets: used 9\nTCP: inuse 1 orphan 0 mem 30\n");
        write(&scratch, "proc/sys/net/ipv4/tcp_mem", "10\t40\t50\n");
        let page = rustix::param::page_size() as u64;
        assert_eq!(loads(&scratch), [host, (MemoryOf::Tcp, 30 * page, 40 * page)]);
        // A gigabyte of a terabyte is as little as a gigabyte of ten.
        let large = format!("MemTotal: {} kB\nMemAvailable: {} kB\n", 1_u64 << 30, 1 << 20);
        write(&scratch, "proc/meminfo", &large);
        let load = MemoryGauges::of(&scratch.join("")).read()[0];
        assert_eq!((load.of, load.per_mille()), (MemoryOf::Host, 900));
    }

    /// The kernel that runs this tells of something.
    #[test]
    fn this_host_is_known() {
        let loads = MemoryGauges::of(Path::new("/")).read();
        assert!(loads.iter().any(|load| load.of == MemoryOf::Host && load.limit > 0), "{loads:?}");
        assert!(loads.iter().all(|load| load.per_mille() < 2_000), "{loads:?}");
    }
}
