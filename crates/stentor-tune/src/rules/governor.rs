//! What governs the clock rates of the cores.
//!
//! `powersave` is two things: with the drivers of Intel and AMD that choose by themselves
//! (`intel_pstate`, `amd-pstate-epp`) it is a good default; with all others it is the lowest rate
//! there is, always.

use crate::facts::GOVERNORS;
use crate::{Change, Facts, Finding, Governor, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    if facts.governors.is_empty() {
        return Vec::new();
    }
    let change = |policy: &Governor| {
        let file = Setting::File(format!("{GOVERNORS}/{}/scaling_governor", policy.policy));
        Change::of(file, &policy.governor, "performance")
    };
    let slow = facts.governors.iter().filter(|policy| is_slow(policy));
    let changes: Vec<Change> = slow.map(change).collect();
    if changes.is_empty() {
        return vec![Finding::fine("clock rates follow the load")];
    }
    let why = "a server that sleeps between messages meets the lowest clock rate just when \
               one has come";
    let cost = "electricity";
    vec![Finding::new(Severity::Slows, changes, why, cost)]
}

fn is_slow(policy: &Governor) -> bool {
    match policy.governor.as_str() {
        "powersave" => {
            let drivers = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];
            !policy.driver.as_deref().is_some_and(|driver| drivers.contains(&driver))
        }
        "ondemand" | "conservative" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;

    #[test]
    fn powersave_is_two_things() {
        let with = |governor: &str, driver: &str| Facts {
            governors: vec![Governor {
                policy: "policy0".into(),
                governor: governor.into(),
                driver: Some(driver.into()),
            }],
            ..Facts::default()
        };
        let slow = ["performance"];
        check(&judge(&with("powersave", "acpi-cpufreq"), &plan(1)), Severity::Slows, &slow);
        check(&judge(&with("ondemand", "acpi-cpufreq"), &plan(1)), Severity::Slows, &slow);
        check(&judge(&with("powersave", "intel_pstate"), &plan(1)), Severity::Fine, &[]);
        check(&judge(&with("schedutil", "cppc_cpufreq"), &plan(1)), Severity::Fine, &[]);
        assert_eq!(judge(&Facts::default(), &plan(1)), []);
    }
}
