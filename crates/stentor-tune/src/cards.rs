//! Network cards: their queues, and which cores see to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::facts::{entries, text};

/// A network card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Card {
    /// Its name: `eth0`.
    pub name: String,
    /// Its driver; none for a card that exists in software only.
    pub driver: Option<String>,
    /// Megabits per second; none if it does not say.
    pub speed_mbps: Option<u64>,
    /// Queues of received packets; `cpus` are the cores that packets are handed on to (RPS).
    pub receive: Vec<Queue>,
    /// Queues of packets to send; `cpus` are the cores that use it (XPS).
    pub transmit: Vec<Queue>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
}

/// A queue of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Queue {
    /// `rx-0`, `tx-0`
    pub name: String,
    /// A mask of cores; none if this queue has no such setting.
    pub cpus: Option<String>,
}

/// An interrupt of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interrupt {
    /// The number it has on this host.
    pub number: u32,
    /// What the driver calls it: `eth0-TxRx-0`.
    pub name: String,
    /// The cores that may see to it, as a list.
    pub allowed: Option<String>,
    /// Those that do see to it.
    pub effective: Option<String>,
}

impl Card {
    /// The interrupts for packets. Drivers have others, for changes of the card itself.
    pub(crate) fn queue_interrupts(&self) -> impl Iterator<Item = &Interrupt> {
        self.interrupts.iter().filter(|interrupt| {
            let name = interrupt.name.to_ascii_lowercase();
            !NEWS_OF_THE_CARD.iter().any(|word| name.contains(word))
        })
    }
}

/// All cards but the loopback.
pub(crate) fn read(root: &Path) -> Vec<Card> {
    let names = interrupt_names(root);
    // A file among them (`bonding_masters`) is none.
    let is_card = |name: &String| name != "lo" && root.join(CARDS).join(name).is_dir();
    let cards = entries(root, CARDS).into_iter().filter(is_card);
    cards.map(|name| card(root, name, &names)).collect()
}

/// Where the cards are.
pub(crate) const CARDS: &str = "sys/class/net";

fn card(root: &Path, name: String, names: &BTreeMap<u32, String>) -> Card {
    let place = format!("{CARDS}/{name}");
    let queues = |kind: &str, setting: &str| {
        let all = entries(root, &format!("{place}/queues")).into_iter();
        let ours = all.filter(|queue| queue.starts_with(kind));
        let queue = |queue: String| {
            let cpus = text(root, &format!("{place}/queues/{queue}/{setting}"));
            Queue { name: queue, cpus }
        };
        ours.map(queue).collect::<Vec<Queue>>()
    };
    let driver = fs::read_link(root.join(&place).join("device/driver")).ok();
    let speed = text(root, &format!("{place}/speed"));
    Card {
        driver: driver.and_then(|path| path.file_name()?.to_str().map(str::to_owned)),
        // A card without a line says -1.
        speed_mbps: speed.and_then(|speed| speed.parse().ok()),
        receive: queues("rx-", "rps_cpus"),
        transmit: queues("tx-", "xps_cpus"),
        interrupts: interrupts(root, &place, names),
        name,
    }
}

/// A virtio card's interrupts are those of the device it stands on.
fn interrupts(root: &Path, place: &str, names: &BTreeMap<u32, String>) -> Vec<Interrupt> {
    let places = ["device/msi_irqs", "device/../msi_irqs"];
    let numbers = places.map(|device| entries(root, &format!("{place}/{device}")));
    let numbers = numbers.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
    let interrupt = |number: String| {
        let read = |file: &str| text(root, &format!("proc/irq/{number}/{file}"));
        let (allowed, effective) = (read("smp_affinity_list"), read("effective_affinity_list"));
        let number = number.parse().ok()?;
        // One that was never asked for has no name.
        let name = names.get(&number)?.clone();
        Some(Interrupt { number, name, allowed, effective })
    };
    numbers.into_iter().filter_map(interrupt).collect()
}

/// The names are the last words of `/proc/interrupts`.
fn interrupt_names(root: &Path) -> BTreeMap<u32, String> {
    let table = text(root, "proc/interrupts").unwrap_or_default();
    let row = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        Some((number.trim().parse().ok()?, rest.split_ascii_whitespace().last()?.to_owned()))
    };
    table.lines().filter_map(row).collect()
}

/// Words by which drivers name interrupts that tell of no packets.
const NEWS_OF_THE_CARD: &[&str] =
    &["config", "async", "misc", "mgmnt", "mgmt", "admin", "control", "pages", "cmd", "fault"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_that_tell_of_packets() {
        let names = ["virtio2-config", "virtio2-input.0", "eth0-TxRx-3", "mlx5_async0", "ice:misc"];
        let interrupt =
            |name: &&str| Interrupt { name: (*name).to_owned(), ..Interrupt::default() };
        let card = Card { interrupts: names.iter().map(interrupt).collect(), ..Card::default() };
        let found: Vec<&str> = card.queue_interrupts().map(|found| found.name.as_str()).collect();
        assert_eq!(found, ["virtio2-input.0", "eth0-TxRx-3"]);
    }
}
