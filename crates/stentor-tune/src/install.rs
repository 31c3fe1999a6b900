//! Files to install: settings of the kernel for `/etc/sysctl.d`, and a drop-in for systemd.

use crate::plan::{limit_needed, settled_workers, spare_files};
use crate::text::wrapped;
use crate::{Facts, FileLimits, Need, Report, Setting};

/// A file for `/etc/sysctl.d` with every setting of the kernel that should change.
#[must_use]
pub fn sysctl_file(report: &Report) -> String {
    let head = format!(
        "For {} connections. Install as /etc/sysctl.d/90-stentor.conf; 'sysctl --system' applies \
         it.",
        report.plan.connections
    );
    let mut text = comment(&head);
    for finding in &report.findings {
        let mut lines = String::new();
        for change in &finding.changes {
            if let Setting::Sysctl(name) = &change.setting {
                let now = change.now.as_deref().unwrap_or("unknown");
                lines += &format!("# now {now}\n{name} = {}\n", change.wanted);
            }
        }
        if !lines.is_empty() {
            text += &format!("\n{}{lines}", comment(&finding.why));
        }
    }
    text
}

/// A drop-in for the service's unit. It sets what the service needs, whatever this process has:
/// units do not inherit the limits of a shell.
#[must_use]
pub fn systemd_file(report: &Report) -> String {
    let (facts, plan) = (&report.facts, &report.plan);
    let workers = settled_workers(facts, plan);
    let hard = facts.files.hard.unwrap_or(0);
    let files = match facts.own_file_table {
        Some(false) => plan.connections.saturating_add(spare_files(workers)),
        _ => limit_needed(workers, plan.connections),
    };
    let files = files.min(highest_limit(report)).max(hard);
    let limits = FileLimits { hard: Some(files), ..facts.files.clone() };
    let need = Need::of(&Facts { files: limits, ..facts.clone() }, plan);
    let mut text = comment(&format!(
        "For {} connections. Install as /etc/systemd/system/stentor.service.d/tune.conf; \
         'systemctl daemon-reload' and a restart apply it.",
        plan.connections
    ));
    text += &format!("\n[Service]\nLimitNOFILE={files}\n");
    if let Some(enough) = need.workers {
        text += &format!("TasksMax={}\n", u64::from(enough) + TASKS_SPARE);
        if enough > workers {
            text += &format!("Environment=STENTOR_WORKERS={enough}\n");
        }
    }
    let changes = report.findings.iter().flat_map(|finding| &finding.changes);
    for change in changes.filter(|change| change.setting == Setting::CgroupMemory) {
        text += &format!("MemoryMax={}\n", change.wanted);
    }
    text
}

/// The highest limit of open files that systemd can give. It is root's, as this process may not be:
/// only where root may not raise limits (in a container) may systemd not either.
fn highest_limit(report: &Report) -> u64 {
    let (facts, name) = (&report.facts, "fs.nr_open");
    if facts.root == Some(true) && facts.files.may_raise == Some(false) {
        return facts.files.hard.unwrap_or(0);
    }
    let mut changes = report.findings.iter().flat_map(|finding| &finding.changes);
    let wanted = changes.find(|change| change.setting == Setting::Sysctl(name.to_owned()));
    let wanted = wanted.and_then(|change| change.wanted.parse().ok());
    wanted.or(facts.number(name)).unwrap_or(NR_OPEN_DEFAULT)
}

fn comment(text: &str) -> String {
    wrapped(text, "# ", FILE_COLUMNS)
}

/// Where `fs.nr_open` cannot be read: the kernel's default.
/// Lines of a file are no longer.
const FILE_COLUMNS: usize = 100;

const NR_OPEN_DEFAULT: u64 = 1_048_576;

/// The threads that are no workers, and room for a command beside the server.
const TASKS_SPARE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Plan, judge};

    fn facts(root: bool, may_raise: bool) -> Facts {
        let pairs = [("net.ipv4.tcp_mem", "1 2 3"), ("fs.nr_open", "1048576")];
        Facts {
            root: Some(root),
            files: FileLimits { soft: None, hard: Some(20_000), may_raise: Some(may_raise) },
            sysctls: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Facts::default()
        }
    }

    fn report(facts: &Facts, connections: u64) -> Report {
        let (kind, rate, client, tls, workers) = (Kind::Sse, 1.0, false, false, None);
        judge(facts, &Plan { connections, kind, rate, client, tls, workers })
    }

    #[test]
    fn settings_of_the_kernel() {
        let text = sysctl_file(&report(&facts(true, true), 100_000));
        assert!(text.contains("# now 1 2 3\nnet.ipv4.tcp_mem = 200000 250000 300000\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with('#') || !line.contains("nr_open")));
    }

    #[test]
    fn a_unit_has_a_limit_of_its_own() {
        // Whoever asks may not raise limits; systemd may.
        for facts in [facts(true, true), facts(false, false)] {
            let text = systemd_file(&report(&facts, 100_000));
            assert!(text.contains("\nLimitNOFILE=100501\nTasksMax=65\n"), "{text}");
        }
        let text = systemd_file(&report(&facts(true, false), 100_000));
        let expected = "\nLimitNOFILE=20000\nTasksMax=70\nEnvironment=STENTOR_WORKERS=6\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn workers_that_share_a_table_need_its_limit_for_all() {
        let shared = Facts { own_file_table: Some(false), ..facts(true, true) };
        let report = report(&shared, 2_000_000);
        assert!(sysctl_file(&report).contains("\nfs.nr_open = 2000500\n"));
        let text = systemd_file(&report);
        assert!(text.ends_with("\nLimitNOFILE=2000500\nTasksMax=65\n"), "{text}");
    }
}
