//! RPS and XPS: handing packets of few queues on to many cores, and giving each core a queue to
//! send by.
//!
//! A card with a queue for each core does not need RPS. One with few queues has few cores take in
//! all packets; that is plenty until there are very many of them, and then RPS spreads what comes
//! after the card. The kernel's `scaling.txt` says the same.

use super::commas;
use crate::cards::CARDS;
use crate::cpus::{Cpus, mask, parse_mask};
use crate::{Card, Change, Facts, Finding, Need, Plan, Queue, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let cores = facts.packet_cores();
    let packets = Need::of(facts, plan).packets_per_second;
    // A card in software hands on what another has taken in.
    let cards = facts.cards.iter().filter(|card| card.driver.is_some());
    cards.filter_map(|card| one(card, &cores, packets)).collect()
}

fn one(card: &Card, cores: &[u32], packets: f64) -> Option<Finding> {
    let queues = card.receive.len();
    if queues == 0 || cores.len() < 2 {
        return None;
    }
    let each = packets / queues as f64;
    let fine = |why: &str| Some(Finding::fine(format!("{}: {why}", card.name)));
    if each <= PACKETS_MAX {
        return match on_cores(card, queues) {
            few if few < cores.len() => fine(&format!(
                "its queues are enough for this many packets; they come in on {few} of {} cores, \
                 so --pin does not keep connections on theirs",
                cores.len()
            )),
            _ => fine("its queues are enough for this many packets"),
        };
    }
    let mut changes = Vec::new();
    if queues * 2 <= cores.len() {
        changes.extend(spread(card, &card.receive, "rps_cpus", cores));
    }
    if card.transmit.len() > 1 {
        changes.extend(spread(card, &card.transmit, "xps_cpus", cores));
    }
    if changes.is_empty() {
        return fine("packets are spread over the cores");
    }
    let why = format!(
        "{} packets a second for each queue of {} are more than a core takes in beside its other \
         work",
        commas(each as u64),
        card.name
    );
    let cost = "a word from core to core for packets that are handed on";
    Some(Finding::new(Severity::Slows, changes, why, cost))
}

/// On how many cores packets come in: one for each queue, or those that they are handed on to.
fn on_cores(card: &Card, queues: usize) -> usize {
    let masks = card.receive.iter().filter_map(|queue| parse_mask(queue.cpus.as_deref()?));
    let handed_on: std::collections::BTreeSet<u32> = masks.flatten().collect();
    handed_on.len().max(queues)
}

/// Gives each queue its part of the cores; nothing if any queue has some already.
fn spread(card: &Card, queues: &[Queue], setting: &str, cores: &[u32]) -> Vec<Change> {
    let is_off = |queue: &Queue| {
        queue.cpus.as_deref().and_then(parse_mask).is_some_and(|cpus| cpus.is_empty())
    };
    if !queues.iter().all(is_off) {
        return Vec::new();
    }
    let count = queues.len().max(1);
    let change = |(place, queue): (usize, &Queue)| {
        let cpus: Cpus = cores.iter().skip(place).step_by(count).copied().collect();
        let file = format!("{CARDS}/{}/queues/{}/{setting}", card.name, queue.name);
        Change { setting: Setting::File(file), now: queue.cpus.clone(), wanted: mask(&cpus) }
    };
    // A queue beyond the number of cores stays without.
    queues.iter().enumerate().map(change).filter(|change| change.wanted != "0").collect()
}

/// Packets a second that one core takes in beside other work: below what is told of a single
/// queue (some 300,000 to 600,000), for here every one is an acknowledgement with a socket.
const PACKETS_MAX: f64 = 200_000.0;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;
    use crate::facts::Cores;

    fn with(cores: u32, receive: &[&str], transmit: &[&str]) -> Facts {
        let queues = |kind: &str, masks: &[&str]| {
            let queue = |(i, mask): (usize, &&str)| Queue {
                name: format!("{kind}-{i}"),
                cpus: Some((*mask).into()),
            };
            masks.iter().enumerate().map(queue).collect()
        };
        Facts {
            cores: Cores { online: Some(cores), ..Cores::default() },
            cards: vec![Card {
                name: "eth0".into(),
                driver: Some("virtio_net".into()),
                receive: queues("rx", receive),
                transmit: queues("tx", transmit),
                ..Card::default()
            }],
            ..Facts::default()
        }
    }

    #[test]
    fn few_queues_for_many_packets() {
        let at = |rate| Plan { rate, ..plan(1_000_000) };
        check(&judge(&with(8, &["0"], &["0"]), &at(1.0)), Severity::Slows, &["ff"]);
        check(&judge(&with(8, &["00,00"], &[]), &at(1.0)), Severity::Slows, &["ff"]);
        check(&judge(&with(8, &["0"], &["0"]), &at(0.1)), Severity::Fine, &[]);
        check(&judge(&with(8, &["ff"], &["0"]), &at(1.0)), Severity::Fine, &[]);
        let says_pin = |mask| format!("{:?}", judge(&with(8, &[mask], &[]), &at(0.1)));
        assert!(says_pin("0").contains("1 of 8 cores") && !says_pin("ff").contains("--pin"));
        let two = with(4, &["0", "0"], &["0", "0"]);
        check(&judge(&two, &at(1.0)), Severity::Slows, &["5", "a", "5", "a"]);
        assert_eq!(judge(&with(1, &["0"], &["0"]), &at(1.0)), []);
        let mut apart = with(40, &["0"], &["0"]);
        apart.cores.running = Some("0-39".into());
        apart.cores.isolated = Some("4-31".into());
        check(&judge(&apart, &at(1.0)), Severity::Slows, &["ff,0000000f"]);
    }

    #[test]
    fn a_queue_for_each_core_needs_no_handing_on() {
        let facts = with(2, &["0", "0"], &["1", "2"]);
        check(&judge(&facts, &Plan { rate: 9.0, ..plan(1_000_000) }), Severity::Fine, &[]);
    }
}
