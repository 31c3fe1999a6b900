//! What a rule says: how much it matters, what to change, why, and what that costs.

use serde::Serialize;

/// What a rule says about one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule that speaks, such as `tcp-memory`.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What to change; nothing where all is well.
    pub changes: Vec<Change>,
    /// Why, in a sentence or two.
    pub why: String,
    /// What the change costs; empty where there is none.
    pub cost: String,
}

/// How much a finding matters, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The host cannot hold what was asked.
    Blocks,
    /// It can, but less well than it could.
    Slows,
    /// The host is set by advice that does not help.
    Folklore,
    /// The host is ready if the program is started this way.
    Start,
    /// The facts are missing: this must be looked at elsewhere.
    Unknown,
    /// Nothing is to be done.
    Fine,
}

/// One value that should be another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What is set.
    pub setting: Setting,
    /// Its value; none if it cannot be read.
    pub now: Option<String>,
    /// What it should be.
    pub wanted: String,
}

/// What can be set, by whom it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// A kernel setting: `net.core.somaxconn`.
    Sysctl(String),
    /// A file of `/proc` or `/sys`, named from the root without its slash.
    File(String),
    /// The hard limit of open files, by whoever starts the process.
    OpenFiles,
    /// `--workers` of the server.
    Workers,
    /// Source addresses of a client.
    SourceAddresses,
    /// The control group's limit of memory, in bytes.
    CgroupMemory,
    /// The control group's limit of processes and threads.
    CgroupPids,
    /// The user's limit of processes and threads.
    Processes,
    /// The host's memory, in bytes.
    Memory,
    /// Cores of the host.
    Cores,
    /// The version of the kernel.
    Kernel,
    /// What the filter of system calls says to `unshare`.
    Unshare,
}

impl Finding {
    /// A finding that asks for changes. The list of rules adds the name.
    pub(crate) fn new(
        severity: Severity,
        changes: impl IntoIterator<Item = Change>,
        why: impl Into<String>,
        cost: impl Into<String>,
    ) -> Finding {
        let changes = changes.into_iter().collect();
        Finding { rule: "", severity, changes, why: why.into(), cost: cost.into() }
    }

    /// Nothing is to be done, for this reason.
    pub(crate) fn fine(why: impl Into<String>) -> Finding {
        Finding::new(Severity::Fine, [], why, "")
    }

    /// A fact is missing.
    pub(crate) fn unknown(fact: &str) -> Finding {
        let why = format!("{fact} cannot be read here; in a container, ask its host");
        Finding::new(Severity::Unknown, [], why, "")
    }
}

impl Change {
    /// A kernel setting that should be something else.
    pub(crate) fn sysctl(name: &str, now: impl ToString, wanted: impl ToString) -> Change {
        Change::of(Setting::Sysctl(name.to_owned()), now, wanted)
    }

    /// Something that should be something else.
    pub(crate) fn of(setting: Setting, now: impl ToString, wanted: impl ToString) -> Change {
        Change { setting, now: Some(now.to_string()), wanted: wanted.to_string() }
    }

    /// How to make the change by hand.
    #[must_use]
    pub fn how(&self) -> String {
        let wanted = &self.wanted;
        match &self.setting {
            Setting::Sysctl(_) | Setting::File(_) => self.command(wanted),
            Setting::OpenFiles => format!(
                "LimitNOFILE={wanted} in the unit (--systemd), '* - nofile {wanted}' in \
                 /etc/security/limits.conf, or --ulimit nofile={wanted} of the container"
            ),
            Setting::Workers => format!("stentor serve --workers {wanted}"),
            Setting::SourceAddresses => {
                format!("give the client {wanted} addresses to connect from")
            }
            Setting::CgroupMemory => {
                format!("MemoryMax={wanted} in the unit (--systemd), or --memory of the container")
            }
            Setting::CgroupPids => format!(
                "TasksMax={wanted} in the unit (--systemd), or --pids-limit {wanted} of the \
                 container"
            ),
            Setting::Processes => format!(
                "LimitNPROC={wanted} in the unit (--systemd), or '* - nproc {wanted}' in \
                 /etc/security/limits.conf"
            ),
            Setting::Memory => "a host with more memory, or fewer connections".to_owned(),
            Setting::Cores => "more cores, or fewer messages".to_owned(),
            Setting::Kernel => "a newer kernel".to_owned(),
            Setting::Unshare => "add unshare to the container's seccomp profile \
                                 (--security-opt seccomp=profile.json)"
                .to_owned(),
        }
    }

    /// The command that puts back what was there, if a command can.
    #[must_use]
    pub fn undo(&self) -> Option<String> {
        Some(self.command(self.now.as_ref()?))
    }

    fn command(&self, value: &str) -> String {
        match &self.setting {
            Setting::Sysctl(name) if value.contains(' ') => {
                format!("sysctl -w {name}=\"{value}\"")
            }
            Setting::Sysctl(name) => format!("sysctl -w {name}={value}"),
            Setting::File(path) => format!("echo {value} > /{path}"),
            _ => String::new(),
        }
    }
}

impl Setting {
    /// What people call it.
    #[must_use]
    pub fn label(&self) -> String {
        let name = match self {
            Setting::Sysctl(name) => name,
            Setting::File(path) => return format!("/{path}"),
            Setting::OpenFiles => "open files, hard limit",
            Setting::Workers => "--workers",
            Setting::SourceAddresses => "source addresses",
            Setting::CgroupMemory => "memory limit of the control group, bytes",
            Setting::CgroupPids => "pids limit of the control group",
            Setting::Processes => "processes of the user",
            Setting::Memory => "memory available, bytes",
            Setting::Cores => "cores",
            Setting::Kernel => "kernel",
            Setting::Unshare => "system call unshare",
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_says_how_it_is_made_and_unmade() {
        let change = Change::sysctl("net.ipv4.tcp_mem", "1 2 3", "4 5 6");
        assert_eq!(change.how(), "sysctl -w net.ipv4.tcp_mem=\"4 5 6\"");
        assert_eq!(change.undo().unwrap(), "sysctl -w net.ipv4.tcp_mem=\"1 2 3\"");
        let change = Change::of(Setting::File("proc/irq/3/smp_affinity_list".into()), "0-3", 2);
        assert_eq!(change.undo().unwrap(), "echo 0-3 > /proc/irq/3/smp_affinity_list");
        let change = Change::of(Setting::Workers, 2, 61);
        assert_eq!(change.how(), "stentor serve --workers 61");
    }
}
