//! What a host is like when every change has been made: the counterpart of the rules.

use stentor_tune::{Card, Change, Facts, Plan, Queue, Report, Setting};

/// The host and the plan of a report, with every value as wanted. Cores cannot be set; a host
/// without enough of them is slow and ready.
pub(crate) fn as_wanted(report: &Report) -> (Facts, Plan) {
    let (mut facts, mut plan) = (report.facts.clone(), report.plan.clone());
    for change in report.findings.iter().flat_map(|finding| &finding.changes) {
        set(&mut facts, &mut plan, change);
    }
    (facts, plan)
}

fn set(facts: &mut Facts, plan: &mut Plan, change: &Change) {
    let number = || change.wanted.parse::<u64>().unwrap();
    match &change.setting {
        Setting::Sysctl(name) => {
            facts.sysctls.insert(name.clone(), change.wanted.clone());
        }
        Setting::File(path) => set_file(facts, path, &change.wanted),
        Setting::OpenFiles => facts.files.hard = Some(number()),
        Setting::Workers => plan.workers = Some(change.wanted.parse().unwrap()),
        Setting::CgroupMemory => facts.cgroup.memory_limit_bytes = Some(number()),
        Setting::CgroupPids => facts.cgroup.pids_limit = Some(number()),
        Setting::Processes => facts.processes_max = Some(number()),
        Setting::Memory => facts.memory.available_bytes = Some(number()),
        Setting::Kernel => facts.kernel = Some(change.wanted.clone()),
        Setting::Unshare => facts.own_file_table = Some(true),
        Setting::Cores | Setting::SourceAddresses => {}
    }
}

fn set_file(facts: &mut Facts, path: &str, wanted: &str) {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["sys", "class", "net", card, "queues", queue, _] => {
            for found in facts.cards.iter_mut().filter(|found| found.name == *card) {
                let Card { receive, transmit, .. } = found;
                let queues = receive.iter_mut().chain(transmit);
                queues
                    .filter(|found: &&mut Queue| found.name == *queue)
                    .for_each(|found| found.cpus = Some(wanted.to_owned()));
            }
        }
        ["proc", "irq", number, "smp_affinity_list"] => {
            let interrupts = facts.cards.iter_mut().flat_map(|card| &mut card.interrupts);
            for interrupt in interrupts.filter(|found| found.number.to_string() == *number) {
                interrupt.allowed = Some(wanted.to_owned());
                interrupt.effective = Some(wanted.to_owned());
            }
        }
        ["sys", "devices", "system", "cpu", "cpufreq", policy, "scaling_governor"] => {
            for found in facts.governors.iter_mut().filter(|found| found.policy == *policy) {
                wanted.clone_into(&mut found.governor);
            }
        }
        _ => panic!("nothing of the facts is at {path}"),
    }
}
