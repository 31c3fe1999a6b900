//! Interrupts of a card with several queues: if one core sees to all of them, the others wait for
//! it, however many there are.

use crate::cpus::{Cpus, parse_list};
use crate::{Card, Change, Facts, Finding, Interrupt, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    let cores = facts.packet_cores();
    facts.cards.iter().filter_map(|card| one(card, &cores)).collect()
}

fn one(card: &Card, cores: &[u32]) -> Option<Finding> {
    let interrupts: Vec<&Interrupt> = card.queue_interrupts().collect();
    if card.receive.len() < 2 || interrupts.len() < 2 || cores.len() < 2 {
        return None;
    }
    let mut busy = Cpus::new();
    for interrupt in &interrupts {
        busy.extend(cores_of(interrupt)?);
    }
    // A card that is down has no core see to it.
    if busy.is_empty() {
        return None;
    }
    if busy.len() > 1 {
        let why = format!("{} interrupts on {} cores", interrupts.len(), busy.len());
        return Some(Finding::fine(format!("{}: {why}", card.name)));
    }
    let change = |(core, interrupt): (&u32, &&Interrupt)| {
        let file = format!("proc/irq/{}/smp_affinity_list", interrupt.number);
        let now = interrupt.allowed.clone();
        Change { setting: Setting::File(file), now, wanted: core.to_string() }
    };
    let why = format!(
        "one core sees to all {} interrupts of {}, so its queues are of no use",
        interrupts.len(),
        card.name
    );
    let cost = "irqbalance moves them again: stop it, or tell it to leave them alone";
    let changes = cores.iter().cycle().zip(&interrupts).map(change);
    let changes = changes.filter(|change| change.now.as_ref() != Some(&change.wanted));
    Some(Finding::new(Severity::Slows, changes, why, cost))
}

/// The cores that see to an interrupt. One that is allowed on many is seen to by one of them, and
/// only the kernel knows by which.
fn cores_of(interrupt: &Interrupt) -> Option<Cpus> {
    let list = interrupt.effective.as_ref().or(interrupt.allowed.as_ref())?;
    parse_list(list)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;
    use crate::Queue;
    use crate::facts::Cores;

    fn with(cores: u32, effective: &[&str]) -> Facts {
        let interrupt = |(number, core): (u32, &&str)| Interrupt {
            number,
            name: format!("eth0-TxRx-{number}"),
            allowed: Some("0-3".into()),
            effective: Some((*core).into()),
        };
        let interrupts = (40..).zip(effective).map(interrupt).collect();
        let receive = vec![Queue::default(); effective.len()];
        Facts {
            cores: Cores { online: Some(cores), ..Cores::default() },
            cards: vec![Card { name: "eth0".into(), interrupts, receive, ..Card::default() }],
            ..Facts::default()
        }
    }

    #[test]
    fn all_on_one_core() {
        check(&judge(&with(2, &["0", "0", "0"]), &plan(1)), Severity::Slows, &["0", "1", "0"]);
        check(&judge(&with(4, &["0", "1", "0"]), &plan(1)), Severity::Fine, &[]);
        assert_eq!(judge(&with(1, &["0", "0"]), &plan(1)), []);
        assert_eq!(judge(&with(4, &["0"]), &plan(1)), []);
        assert_eq!(judge(&with(4, &["0", "nonsense"]), &plan(1)), []);
        assert_eq!(judge(&with(4, &["", ""]), &plan(1)), []);
    }

    #[test]
    fn cores_that_are_set_apart_are_left_alone() {
        let mut facts = with(4, &["0", "0", "0"]);
        facts.cores.running = Some("0-3".into());
        facts.cores.isolated = Some("1-2".into());
        check(&judge(&facts, &plan(1)), Severity::Slows, &["0", "3", "0"]);
    }
}
