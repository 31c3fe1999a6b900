//! Readers in every state in which one can be, and then a reload that takes all of them their
//! rights: nothing that is published after it reaches one of them, and all of them end.
//!
//! The other script (`access.rs`) plays more kinds of changes, and its oracle knows the rights of
//! each client. This script makes many revocations.

use super::super::handover::HandOvers;
use super::super::net::Client;
use super::super::seeds::faults;
use super::super::{CONTROL, PUBLIC, Parts, World, kind, patient};
use super::received::contains;
use super::{HANDSHAKE, LARGE, State, settings, tokens};
use crate::mailbox::Order;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use stentor_hub::ContentType;
use stentor_io::{Backend, Faults, Rng, lock};

/// `/open/a` needs no token, and the wide token is valid.
const BEFORE: State = State { rules: 0, without: None, now_s: 0, may_begin: true };

/// Every topic needs a token, and the key of the wide token has gone.
const AFTER: State = State { rules: 1, without: Some(0), ..BEFORE };

/// One seed. Returns how many readers have lost their rights.
pub(in crate::simulation) fn run(seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let faults = faults(&mut rng);
    let window_bytes = faults.window_bytes.max(300);
    let faults = Faults { reset_per_10_000: 0, window_bytes, ..faults };
    let parts = Parts { late: None, ..Parts::of_seed(seed, &mut rng, &[0]) };
    let start_s = World::of(Parts::default(), 1, kind(), patient()).sim.unix_s();
    let token = tokens::texts(start_s, true).swap_remove(0);
    let mut world = World::of(parts, seed ^ 0x5eed, faults, settings(BEFORE, start_s));
    let mut hand_overs = HandOvers::new(seed);
    for round in 0..ROUNDS {
        let secret = format!("SECRET {round};");
        world.change(BEFORE, start_s);
        let readers = begin(&mut world, &mut rng, &token);
        for _ in 0..rng.below(60) {
            if rng.percent(30) {
                publish(&world, &mut rng, b"old");
            }
            hand_overs.play(&mut world);
            world.turn();
        }
        world.change(AFTER, start_s);
        for _ in 0..rng.below(4) {
            world.turn();
        }
        for _ in 0..4 {
            publish(&world, &mut rng, secret.as_bytes());
            hand_overs.play(&mut world);
            world.turn();
        }
        end(&mut world, readers, &secret);
    }
    world.settle();
    world.check_nothing_is_left();
    world.totals().readers_expired
}

/// Readers that the recheck has ended: kind of the reader, and the event that it waited for.
static REVOCATIONS: Mutex<BTreeMap<(&str, &str), u64>> = Mutex::new(BTreeMap::new());

/// The recheck ends a reader in this state.
pub(crate) fn note_revocation(state: (&'static str, &'static str)) {
    *lock(&REVOCATIONS).entry(state).or_default() += 1;
}

/// How many readers the recheck has ended, in each state.
pub(in crate::simulation) fn revocations() -> BTreeMap<(&'static str, &'static str), u64> {
    lock(&REVOCATIONS).clone()
}

impl World {
    /// All workers go by the rules and the keys of this state.
    pub(super) fn change(&mut self, state: State, start_s: u64) {
        let settings = Arc::new(settings(state, start_s));
        self.settings = Arc::clone(&settings);
        self.tell_keys(state.without);
        self.at_all(|world| {
            world.worker.execute(&mut world.sim, Order::Reload(Arc::clone(&settings)));
        });
    }

    /// All workers go by the keys of the settings, but for that of one token.
    pub(super) fn tell_keys(&mut self, without: Option<usize>) {
        let keys = tokens::keys(&self.settings.tokens, without);
        self.shared.tokens.set_keys(Arc::clone(&keys));
        self.at_all(|world| {
            world.worker.execute(&mut world.sim, Order::Keys(Arc::clone(&keys)));
        });
    }
}

fn publish(world: &World, rng: &mut Rng, data: &[u8]) {
    let topic = ["/open/a", "/team/a", "/team/b"][rng.below(3)];
    world.publish(topic, data.to_vec(), ContentType::TEXT);
}

/// Clients that read in all ways. Some have a full socket, and some wait in a queue.
fn begin(world: &mut World, rng: &mut Rng, token: &str) -> Vec<(usize, Client)> {
    let seq = world.shared.hub.seq();
    let sse = "Accept: text/event-stream\r\n";
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let is_open = rng.percent(30);
        let topic = if is_open { "/open/a" } else { "/team/a" };
        let pattern = if is_open { "/open/*" } else { "/team/*" };
        let since = seq.saturating_sub(rng.next_u64() % 40);
        let wait = format!("since=0badcafe-{since}&wait=90");
        let (role, target, fields) = match rng.below(8) {
            0 => (PUBLIC, topic.to_owned(), sse),
            1 => (PUBLIC, topic.to_owned(), HANDSHAKE),
            2 => (PUBLIC, format!("/-/events?topic={pattern}"), sse),
            3 => (PUBLIC, format!("/-/events?topic={pattern}&topic={topic}&{wait}"), ""),
            4 => (PUBLIC, format!("/-/events?topic={pattern}&topic={topic}&since=earliest"), sse),
            5 => (PUBLIC, format!("{topic}?since=0badcafe-{seq}&wait=90"), ""),
            6 => (CONTROL, "/-/feed".to_owned(), ""),
            _ => (CONTROL, "/-/snapshot".to_owned(), ""),
        };
        let bearer = match role == PUBLIC && is_open {
            true => String::new(),
            false => format!("Authorization: Bearer {token}\r\n"),
        };
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}{bearer}\r\n");
        let is_behind = fields.is_empty() && role == PUBLIC && rng.percent(50);
        let request = if is_behind { format!("{LARGE}{head}") } else { head };
        let (worker, stalls) = (rng.below(world.workers()), rng.percent(30));
        let exhausts = rng.percent(20);
        let client = world.at(worker, |world| {
            let client = world.sim.connect(role);
            world.sim.stall(client, stalls);
            world.sim.write(client, request.as_bytes());
            if exhausts {
                world.worker.exhaust_replays();
            }
            client
        });
        readers.push((worker, client));
        if rng.percent(50) {
            world.turn();
        }
    }
    readers
}

/// All bytes that were under way arrive. None is of a later message, and no reader is left.
fn end(world: &mut World, readers: Vec<(usize, Client)>, secret: &str) {
    for &(worker, client) in &readers {
        world.at(worker, |world| world.sim.stall(client, false));
    }
    world.settle();
    let totals = world.totals();
    let reading = totals.readers_sse + totals.readers_long_poll + totals.readers_websocket;
    assert_eq!((reading, totals.followers), (0, 0), "{totals:?}");
    for (worker, client) in readers {
        world.at(worker, |world| {
            let received = world.sim.read(client);
            let text = String::from_utf8_lossy(&received);
            assert!(!contains(&received, secret), "{client:?} received {text}");
            world.sim.finish_client(client);
        });
    }
}

const ROUNDS: usize = 12;
const READERS: usize = 16;
