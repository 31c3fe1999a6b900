//! Hostile clients, and bystanders who must not notice them.
//!
//! Each seed brings some dozens of attackers, each with a trick of its own: streams that are opened
//! and broken again, cursors as old as can be on patterns of everything, names nobody ever
//! published, connections that say half of something, readers that read nothing, floods of
//! commands and of look-ups, requests piled up behind one that waits. Beside them a client asks on
//! one connection, a publisher writes on the control listener, and a reader reads what it writes.
//! These must hold:
//!
//! - the work of a worker in one turn is bounded, however much the attackers have asked for;
//! - a bystander waits for as many turns as its worker has connections to serve, times a constant.
//!   The network serves one of them in a turn, by chance. With the bound on a turn, this bounds the
//!   work between a question and its answer;
//! - what was published reaches the bystander within a few turns, which chance has no part in, once
//!   the server has heard all that its socket says, and no fan-out is under way any more;
//! - what the readers of a worker own in all stays below its bound;
//! - a panic of the worker costs one of them its connection, and the others a turn;
//! - when all have gone nothing is left.

use super::codec::{COMMANDER, PING, TEXT, put_frame};
use super::handover::HandOvers;
use super::net::{Client, Net};
use super::{Parts, SMALL, World, kind, patient};
use crate::limits::HELD_MS_MAX;
use crate::listeners::{CONTROL, PUBLIC};
use crate::stats::Totals;
use stentor_config::Settings;
use stentor_hub::ContentType;
use stentor_io::{Faults, Rng, mark};
use stentor_test::http::Response;

/// One seed from the beginning to the end.
pub(super) fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let window_bytes = [700, 9_000, 1 << 20][rng.below(3)];
    let faults = Faults { window_bytes, delay_ms_max: 5, ..kind() };
    let parts = Parts::of_seed(seed, &mut rng, &[0]);
    let mut world = World::of(parts, seed ^ 0x5eed, faults, settings());
    for round in 0..3 {
        for n in 0..TOPICS {
            let topic = format!("/all/{}/{n}", n % 7);
            world.publish(&topic, format!("{round}").into_bytes(), ContentType::TEXT);
        }
    }
    world.publish(HOT, b"0".to_vec(), ContentType::TEXT);
    world.publish("/quotes", vec![b'"'; 100_000], ContentType::TEXT);
    let workers = world.workers();
    let mut bystanders = Bystanders::new(&mut world);
    let mut attackers: Vec<Attacker> = Vec::new();
    for _ in 0..2 + rng.below(40) {
        attackers.push(Attacker::new(TRICKS[rng.below(TRICKS.len())]));
    }
    let turns = READS_FROM + 50 + rng.below(400);
    let mut before: Vec<Totals> = (0..workers).map(|index| world.totals_of(index)).collect();
    let mut hand_overs = HandOvers::new(seed);
    world.panic_at_random(seed % 2 == 1);
    for turn in 0..turns {
        for (index, attacker) in attackers.iter_mut().enumerate() {
            world.at(index % workers, |world| attacker.play(&mut world.sim, &mut rng));
        }
        // Those that are open at each worker, and those that are about to be.
        let arriving = attackers.len().div_ceil(workers);
        let open = |index| world.at(index, |world| world.sim.open_sockets());
        let connections: Vec<usize> = (0..workers).map(open).map(|open| open + arriving).collect();
        bystanders.play(&mut world, &mut rng, turn, &connections);
        hand_overs.play(&mut world);
        let panics = world.panics;
        world.turn_of_each();
        if world.panics > panics {
            bystanders.outlive_a_panic(&mut world, turn);
        }
        for (index, before) in before.iter_mut().enumerate() {
            let after = world.totals_of(index);
            let done = work(&after) - work(before);
            assert!(done <= WORK_MAX, "a turn's work at {index} is {done}: {before:?}\n{after:?}");
            let owned = owned_bytes(&after);
            assert!(owned <= OWNED_MAX, "readers at {index} own {owned} bytes");
            *before = after;
        }
    }
    world.panic_at_random(false);
    for (index, attacker) in attackers.iter().enumerate() {
        world.at(index % workers, |world| attacker.leave(&mut world.sim));
    }
    bystanders.leave(&mut world);
    world.settle();
    // Whoever is held goes unnoticed until its time is over.
    world.at_all(|world| world.sim.sleep(2 * HELD_MS_MAX));
    world.settle();
    world.check_nothing_is_left();
    assert_eq!(world.totals().worker_panics, world.panics as u64);
    for topic in [HOT, "/all/1/1", "/made/up/0"] {
        world.check_nobody_reads(topic);
    }
}

/// Settings under which readers may own less than the attackers would.
fn settings() -> Settings {
    let mut settings = patient();
    settings.limits.readers_bytes_max = READERS_BYTES_MAX;
    settings
}

/// What was done so far, in the bytes in which a turn's cost is counted.
fn work(totals: &Totals) -> u64 {
    let made = totals.bytes_heads + totals.bytes_streams;
    let each = totals.requests + totals.deliveries;
    // Bodies, and the names of look-ups, are among it.
    let in_lines = totals.cost_requests + totals.cost_commands + totals.cost_replays;
    made + each * EACH_COST + in_lines
}

/// The bytes that all readers own.
fn owned_bytes(totals: &Totals) -> u64 {
    totals.readers_bytes
}

/// What an attacker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trick {
    /// Opens a stream of the hot topic, and breaks it.
    Churn,
    /// Wants everything that was ever published, and again.
    Resume,
    /// Subscribes to names nobody published, and to patterns.
    MakeUp,
    /// Says the half of something.
    HalfOpen,
    /// Asks for much and reads nothing.
    Deaf,
    /// Asks for look-ups as large as can be, without end.
    LookUp,
    /// Subscribes and unsubscribes without end.
    Command,
    /// Piles up requests behind one that waits.
    PileUp,
}

impl Trick {
    fn name(self) -> &'static str {
        match self {
            Trick::Churn => "attack-churn",
            Trick::Resume => "attack-resume",
            Trick::MakeUp => "attack-names",
            Trick::HalfOpen => "attack-half-open",
            Trick::Deaf => "attack-deaf",
            Trick::LookUp => "attack-lookup",
            Trick::Command => "attack-commands",
            Trick::PileUp => "attack-pipeline",
        }
    }
}

const TRICKS: [Trick; 8] = [
    Trick::Churn,
    Trick::Resume,
    Trick::MakeUp,
    Trick::HalfOpen,
    Trick::Deaf,
    Trick::LookUp,
    Trick::Command,
    Trick::PileUp,
];

struct Attacker {
    trick: Trick,
    connection: Option<Client>,
    /// Names made up so far.
    names: usize,
}

impl Attacker {
    fn new(trick: Trick) -> Attacker {
        Attacker { trick, connection: None, names: 0 }
    }

    fn play(&mut self, sim: &mut Net, rng: &mut Rng) {
        match self.connection {
            None if rng.percent(20) => {
                let connection = sim.connect(PUBLIC);
                self.connection = Some(connection);
                self.begin(sim, rng, connection);
            }
            None => {}
            Some(connection) if sim.ended(connection) => {
                sim.finish_client(connection);
                self.connection = None;
            }
            Some(connection) => self.go_on(sim, rng, connection),
        }
    }

    fn begin(&mut self, sim: &mut Net, rng: &mut Rng, connection: Client) {
        let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
        mark(self.trick.name());
        let bytes = match self.trick {
            Trick::Churn => get(&format!("/-/events?topic={HOT}")),
            Trick::Resume => {
                let pattern = ["/**", "/*/*/*", "/all/**"][rng.below(3)];
                get(&format!("/-/events?topic={pattern}&since=0badcafe-1&mode=all"))
            }
            Trick::HalfOpen => {
                let half = rng.below(COMMANDER.len());
                COMMANDER.as_bytes()[..half].to_vec()
            }
            Trick::Deaf => {
                sim.stall(connection, true);
                match rng.percent(50) {
                    true => get("/large").repeat(200),
                    false => get("/-/events?topic=/**&since=0badcafe-1&mode=all"),
                }
            }
            Trick::LookUp => Vec::new(),
            Trick::MakeUp | Trick::Command => COMMANDER.into(),
            Trick::PileUp => {
                let held = format!("GET {HOT}?wait=60 HTTP/1.1\r\nHost: h\r\n");
                let tag = "If-None-Match: *\r\n\r\n";
                [held.as_bytes(), tag.as_bytes(), &get("/large").repeat(2_000)].concat()
            }
        };
        sim.write(connection, &bytes);
    }

    fn go_on(&mut self, sim: &mut Net, rng: &mut Rng, connection: Client) {
        if self.trick != Trick::Deaf {
            drop(sim.read(connection));
        }
        let mut out = Vec::new();
        match self.trick {
            Trick::Churn | Trick::Resume if rng.percent(15) => return sim.reset_client(connection),
            Trick::LookUp if rng.percent(20) => {
                let target = match rng.below(3) {
                    0 => "/-/values?topic=/quotes".to_owned(),
                    1 => format!("/-/values?topic=/quotes{}", "&topic=/quotes".repeat(4)),
                    _ => format!("/list=a{}", ",a".repeat(999)),
                };
                let method = ["GET", "HEAD"][rng.below(2)];
                out = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n").repeat(10).into();
            }
            Trick::MakeUp if rng.percent(20) => {
                self.names += 50;
                let first = self.names - 50;
                let names = (first..self.names).map(|n| match n % 10 {
                    0 => format!("\"/*/{n}/*/**\""),
                    _ => format!("\"/made/up/{n}\""),
                });
                let names = names.collect::<Vec<_>>().join(",");
                put_frame(
                    &mut out,
                    rng,
                    TEXT,
                    true,
                    format!("{{\"subscribe\":[{names}]}}").as_bytes(),
                );
            }
            Trick::Command if rng.percent(30) => {
                for _ in 0..20 {
                    let command = ["subscribe", "unsubscribe"][rng.below(2)];
                    let text = format!("{{\"{command}\":[\"/all/**\",\"{HOT}\"]}}");
                    put_frame(&mut out, rng, TEXT, true, text.as_bytes());
                    put_frame(&mut out, rng, PING, true, b"?");
                }
            }
            _ => {}
        }
        sim.write(connection, &out);
    }

    fn leave(&self, sim: &mut Net) {
        if let Some(connection) = self.connection {
            sim.reset_client(connection);
        }
    }
}

/// The clients that must not notice. The asker and the reader are connected to the first worker,
/// the publisher to the last.
struct Bystanders {
    asker: Asker,
    publisher: Asker,
    /// It comes when attackers read the topic already, so that they are visited before it.
    reader: Option<Client>,
    /// What the reader has received and not yet looked at.
    read: Vec<u8>,
    /// The number last published, which the reader waits for since that was answered.
    published: usize,
    delivery: Due,
    /// When the server had last something to hear from the reader's socket, or was in the middle of
    /// a fan-out.
    waits_until: usize,
    has_read: bool,
    /// The first value has not come.
    begins: Option<Due>,
}

/// Something that is waited for.
#[derive(Clone, Copy, Debug)]
struct Due {
    since: usize,
    /// The most connections there were meanwhile.
    connections: usize,
}

impl Due {
    fn new(turn: usize) -> Due {
        Due { since: turn, connections: 0 }
    }

    fn check(&mut self, who: &str, turn: usize, connections: usize) {
        self.connections = self.connections.max(connections);
        let turns = turn - self.since;
        let turns_max = TURNS_PER_CONNECTION * (self.connections + 3);
        assert!(turns <= turns_max, "{who} waits for {turns} turns, not {turns_max}: {self:?}");
    }
}

impl Bystanders {
    fn new(world: &mut World) -> Bystanders {
        let last = world.workers() - 1;
        Bystanders {
            asker: Asker::new(world, PUBLIC, 0),
            publisher: Asker::new(world, CONTROL, last),
            reader: None,
            read: Vec::new(),
            published: 0,
            delivery: Due::new(0),
            waits_until: 0,
            has_read: false,
            begins: None,
        }
    }

    fn play(&mut self, world: &mut World, rng: &mut Rng, turn: usize, connections: &[usize]) {
        let get = || b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
        if self.asker.due.is_none() && rng.percent(30) {
            self.asker.ask(world, turn, get());
        }
        if let Some(body) = self.asker.hear(world, "who asks", turn, connections) {
            assert_eq!(body, SMALL);
        }
        if self.publisher.due.is_none() && self.has_read && rng.percent(30) {
            self.published += 1;
            self.has_read = false;
            self.publish(world, turn);
        }
        if self.publisher.hear(world, "who publishes", turn, connections).is_some() {
            self.delivery = Due::new(turn);
        }
        self.hear(world, turn, connections[0]);
    }

    fn publish(&mut self, world: &mut World, turn: usize) {
        let text = self.published.to_string();
        let head = format!("PUT {HOT} HTTP/1.1\r\nHost: h\r\nContent-Length: {}", text.len());
        self.publisher.ask(world, turn, format!("{head}\r\n\r\n{text}").into_bytes());
    }

    /// The worker has panicked: who was hit by it comes again, and asks again.
    fn outlive_a_panic(&mut self, world: &mut World, turn: usize) {
        self.waits_until = turn + 1;
        if self.asker.was_reset(world) {
            self.asker = Asker::new(world, PUBLIC, self.asker.worker);
        }
        if self.publisher.was_reset(world) {
            let asked = self.publisher.due.is_some();
            self.publisher = Asker::new(world, CONTROL, self.publisher.worker);
            if asked {
                self.publish(world, turn);
            }
        }
        if self.reader.is_some_and(|reader| world.sim.was_reset(reader)) {
            self.begin_to_read(&mut world.sim, turn);
        }
    }

    fn begin_to_read(&mut self, sim: &mut Net, turn: usize) {
        let reader = sim.connect_apart(PUBLIC);
        let events = "Accept: text/event-stream";
        let request = format!("GET {HOT} HTTP/1.1\r\nHost: h\r\n{events}\r\n\r\n");
        sim.write(reader, request.as_bytes());
        self.reader = Some(reader);
        self.begins = Some(Due::new(turn));
        self.has_read = false;
        self.read.clear();
    }

    /// The reader reads.
    fn hear(&mut self, world: &mut World, turn: usize, connections: usize) {
        let (is_sweeping, sim) = (world.worker.is_sweeping(), &mut world.sim);
        if turn == READS_FROM {
            self.begin_to_read(sim, turn);
        }
        let Some(reader) = self.reader else { return };
        assert!(!sim.ended(reader), "a bystander's stream was cut");
        self.read.extend(sim.read(reader));
        let data = format!("data: {}\n", self.published);
        if memchr::memmem::find(&self.read, data.as_bytes()).is_some() {
            self.read.clear();
            self.has_read = true;
            self.begins = None;
        } else if let Some(begins) = &mut self.begins {
            begins.check("who begins to read", turn, connections);
        } else if !self.has_read && self.publisher.due.is_none() {
            self.delivery.check("who reads", turn, connections);
            // A layer may have to hear of its own socket before it can send: of room for the rest
            // of a record, or that the peer grants a stream more. That the network brings by
            // chance. And a fan-out has a share of a turn, in time: where each record is a call of
            // the kernel, and has 40 bytes, those who are owed much may take more of it than there
            // is.
            if sim.is_due(reader) || is_sweeping {
                self.waits_until = turn;
            }
            let turns = turn - self.delivery.since.max(self.waits_until);
            // Of records of 40 bytes one seed was seen to take a turn more.
            let more = if sim.has_layers() { connections } else { 0 };
            assert!(
                turns <= DELIVERY_TURNS_MAX + more,
                "{turns} turns after its publishing it is not read"
            );
        }
    }

    fn leave(&self, world: &mut World) {
        for Asker { connection, worker, .. } in [&self.asker, &self.publisher] {
            world.at(*worker, |world| world.sim.finish_client(*connection));
        }
        self.reader.into_iter().for_each(|reader| world.sim.finish_client(reader));
    }
}

/// A client that asks one thing after the other on one connection.
struct Asker {
    connection: Client,
    worker: usize,
    input: Vec<u8>,
    due: Option<Due>,
}

impl Asker {
    fn new(world: &mut World, role: u8, worker: usize) -> Asker {
        let connection = world.at(worker, |world| world.sim.connect_apart(role));
        Asker { connection, worker, input: Vec::new(), due: None }
    }

    fn was_reset(&self, world: &mut World) -> bool {
        world.at(self.worker, |world| world.sim.was_reset(self.connection))
    }

    fn ask(&mut self, world: &mut World, turn: usize, request: Vec<u8>) {
        world.at(self.worker, |world| world.sim.write(self.connection, &request));
        self.due = Some(Due::new(turn));
    }

    /// The body of an answer that has come.
    fn hear(
        &mut self,
        world: &mut World,
        who: &str,
        turn: usize,
        connections: &[usize],
    ) -> Option<Vec<u8>> {
        self.input.extend(world.at(self.worker, |world| world.sim.read(self.connection)));
        let due = self.due.as_mut()?;
        due.check(who, turn, connections[self.worker]);
        let answer = Response::take(&mut self.input)?;
        assert_eq!(answer.status, 200, "{who}: {}", answer.head);
        self.due = None;
        Some(answer.body)
    }
}

/// The turn in which the reader comes.
const READS_FROM: usize = 80;

/// The topic that everybody reads.
const HOT: &str = "/hot";

/// What there is beside it.
const TOPICS: usize = 100;

/// What a request or a delivery costs beside its bytes.
const EACH_COST: u64 = 256;

/// What readers may own, and what one turn may add until those who hold the most are cut: an answer
/// is up to a megabyte.
const READERS_BYTES_MAX: usize = 512 * 1024;
const OWNED_MAX: u64 = READERS_BYTES_MAX as u64 + (2 << 20);

/// The share of one connection, what each line may do and the step it ends with, which may be a
/// look-up of 1 MiB; and a fan-out. (What replays deliver is counted twice.)
const WORK_MAX: u64 = 6 << 20;

/// A slice of a fan-out is larger than all the readers here, even with those that have gone.
const DELIVERY_TURNS_MAX: usize = 2;

/// With n connections to be served by chance, one is passed over so many times n turns with a
/// probability of one in 10^13.
const TURNS_PER_CONNECTION: usize = 30;
