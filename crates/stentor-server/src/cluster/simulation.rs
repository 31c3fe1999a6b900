//! Nodes on a simulated log, with seeds: it delays, loses acknowledgements, brings copies out of
//! connections that were given up, loses its end or all of it, and forgets its beginning; nodes are
//! cut off, and begin anew with nothing, or with what they had on a disk.
//!
//! What must hold:
//!
//! - An id is of the same message on all nodes, at all times. Where the log lost its end, and went
//!   on before whoever knew better could say so, ids are of several: that life is over in the end.
//! - What was published is there once it was answered, under the id of the answer; what was
//!   refused is nowhere; and while the log loses nothing, nothing is there twice in its life.
//! - A value is replaced by one publisher of those that named it.
//! - Who listens to a hub hears a piece of the order without a hole, or is told that it breaks off.
//! - In the end all nodes are the same; and if the log has lost nothing, its life is the first one,
//!   and has all that was answered.

use super::protocol::{Action, Appended, Looked, Node, Subject, hash_of};
use super::waiting::Intake;
use crate::order::{CommitError, Outcome, ReturnAddress};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use stentor_hub::{
    Applied, Draft, Epoch, Event, Filter, Hub, Id, Limits, Op, Pattern, Precondition, Restore,
    Snapshot, Subscriber,
};
use stentor_io::Rng;
use stentor_wire::target::TopicName;

/// The broker.
#[derive(Default)]
struct Log {
    /// The sequence before the first that is kept.
    before: u64,
    messages: Vec<(Subject, Arc<[u8]>)>,
}

impl Log {
    fn last(&self) -> u64 {
        self.before + self.messages.len() as u64
    }

    fn message(&self, seq: u64) -> Option<&Arc<[u8]>> {
        let index = seq.checked_sub(self.before + 1)?;
        self.messages.get(usize::try_from(index).ok()?).map(|(_, payload)| payload)
    }

    fn last_of(&self, subject: Subject) -> u64 {
        let place = self.messages.iter().rposition(|(of, _)| *of == subject);
        place.map_or(0, |place| self.before + place as u64 + 1)
    }

    fn append(&mut self, to: Subject, after: u64, payload: &Arc<[u8]>) -> Appended {
        let last = self.last_of(to);
        if last != after {
            return Appended::Conflict(last);
        }
        self.messages.push((to, Arc::clone(payload)));
        Appended::At(self.last())
    }

    fn look(&self, at: u64) -> Looked {
        let life = self.last_of(Subject::Life);
        let is_old = self.before > 0 && life < self.before + self.messages.len() as u64 / 2;
        Looked {
            first: self.before + 1,
            last: self.last(),
            life: self.message(life).map(|payload| (life, payload.to_vec(), is_old)),
            at: self.message(at).map(|payload| hash_of(payload)),
        }
    }
}

/// What a node has asked of the broker, until it comes there.
enum Asked {
    Look(u64, u64),
    Append { to: Subject, after: u64, payload: Arc<[u8]>, token: u64 },
}

enum Answer {
    Looked(u64, Looked),
    Appended(u64, Appended),
}

struct Member {
    node: Node,
    hub: Arc<Hub>,
    intake: Arc<Intake>,
    heard: Arc<Recorder>,
    /// Counts connections; `None`: it is cut off until then.
    connection: u32,
    away_until_ms: Option<u64>,
    asked: Vec<(u64, u32, Asked)>,
    answers: Vec<(u64, u32, Answer)>,
    /// The next message that is brought.
    reads: Option<u64>,
    waiting: Vec<Waiting>,
}

/// A publisher.
struct Waiting {
    data: String,
    topic: String,
    /// The value that it replaces.
    replaces: Option<Id>,
    outcome: Receiver<Outcome>,
}

/// Who listens to a hub.
#[derive(Default)]
struct Recorder(Mutex<Vec<Vec<Seen>>>);

/// An id, and what it is of.
type Seen = (Id, String, Option<Vec<u8>>);

/// A topic, and its data unless it is a deletion.
type Of = (String, Option<Vec<u8>>);

impl Subscriber for Recorder {
    fn notify(&self, event: &Event) {
        let mut pieces = self.0.lock().unwrap();
        if pieces.is_empty() {
            pieces.push(Vec::new());
        }
        pieces.last_mut().unwrap().push(seen(event));
    }

    fn replaced(&self, _: u64) {
        self.0.lock().unwrap().push(Vec::new());
    }
}

fn seen(event: &Event) -> Seen {
    let message = &event.message;
    let data = (!message.is_deletion()).then(|| message.data().to_vec());
    (message.id(), event.topic().to_owned(), data)
}

/// What is made to go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Faults {
    /// Nothing but delays.
    None,
    /// Connections break, nodes begin anew, the beginning of the log is forgotten.
    Network,
    /// And the log loses what it had.
    Loss,
}

struct World {
    rng: Rng,
    log: Log,
    members: Vec<Member>,
    now_ms: u64,
    faults: Faults,
    /// What every id is of.
    order: BTreeMap<(u32, u64), Of>,
    /// Lives in which an id is of several messages: they have to be over.
    ambiguous: HashSet<u32>,
    /// Nowhere to be found.
    refused: HashSet<String>,
    answered: Vec<(Id, String)>,
    /// Values that were replaced by whoever named them.
    replaced: HashMap<(String, Id), String>,
    counter: u64,
    outcomes: [u64; 4],
}

fn empty(rng: &mut Rng) -> Hub {
    let hub = Hub::new(Epoch::from_number(rng.next_u64() as u32), Vec::new(), Limits::default());
    hub.begin_following();
    hub
}

fn member(hub: Hub, has_all: bool, seed: u64) -> Member {
    let hub = Arc::new(hub);
    let heard = Arc::new(Recorder::default());
    let id = hub.add_subscriber(Arc::clone(&heard) as Arc<dyn Subscriber>);
    hub.subscribe(id, &Filter::Pattern(Pattern::any()), Arc::default());
    let intake = Arc::new(Intake::new());
    let node = Node::new(Arc::clone(&hub), Arc::clone(&intake), has_all, seed, Box::new(|_| {}));
    Member {
        node,
        hub,
        intake,
        heard,
        connection: 0,
        away_until_ms: Some(0),
        asked: Vec::new(),
        answers: Vec::new(),
        reads: None,
        waiting: Vec::new(),
    }
}

/// Fills a hub with what another one has.
fn copy(from: &Hub, into: Hub) -> Hub {
    let into = Arc::new(into);
    let mut bytes = Vec::new();
    let mut snapshot = Snapshot::begin(from, &mut bytes);
    while snapshot.write_slice(from, &mut bytes).unwrap() {}
    let mut restore = Restore::into(Arc::clone(&into));
    assert_eq!(restore.read(&bytes).unwrap(), bytes.len());
    restore.finish().unwrap();
    into.follow_upto(from.id(from.seq()).seq);
    Arc::into_inner(into).unwrap()
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let mut rng = Rng::new(seed);
        let members = (0..3).map(|_| member(empty(&mut rng), false, rng.next_u64())).collect();
        World {
            rng,
            log: Log::default(),
            members,
            now_ms: 0,
            faults,
            order: BTreeMap::new(),
            ambiguous: HashSet::new(),
            refused: HashSet::new(),
            answered: Vec::new(),
            replaced: HashMap::new(),
            counter: 0,
            outcomes: [0; 4],
        }
    }

    fn delay(&mut self) -> u64 {
        let longest = if self.rng.percent(5) { 1_500 } else { 20 };
        self.now_ms + self.rng.below(longest) as u64
    }

    fn step(&mut self, publishes: bool) {
        self.now_ms += 1 + self.rng.below(20) as u64;
        if publishes && self.faults != Faults::None {
            self.break_something();
        }
        for index in 0..self.members.len() {
            if publishes {
                self.publish(index);
            }
            self.reach_broker(index);
            self.hear(index);
            self.members[index].node.handle_time(self.now_ms);
            self.act(index);
            self.collect(index);
        }
    }

    fn break_something(&mut self) {
        if self.rng.percent(1) {
            let index = self.rng.below(self.members.len());
            self.cut(index, 3_000);
        }
        if self.rng.below(400) == 0 {
            self.restart();
        }
        if self.rng.below(300) == 0 {
            // The life is said again before that is forgotten, unless nobody is there for so long.
            let life = self.log.last_of(Subject::Life).saturating_sub(self.log.before);
            let most = match self.faults {
                Faults::Loss => self.log.messages.len() + 1,
                _ => life.max(1) as usize,
            };
            // Nor is what only they have read that are no more: then somebody has to decide. And
            // while a node is away, what it read last stays, to be compared.
            let whole = self.members.iter().filter(|member| member.node.has_all());
            let read = whole.map(|member| member.node.read()).min().unwrap_or(0);
            let most = most.min(read.saturating_sub(self.log.before).max(1) as usize);
            let forgotten = self.rng.below(most);
            self.log.messages.drain(..forgotten);
            self.log.before += forgotten as u64;
        }
        if self.faults == Faults::Loss && self.rng.below(400) == 0 {
            // The broker is not there for a while, and comes back without its end.
            (0..self.members.len()).for_each(|index| self.cut(index, 500));
            if self.rng.percent(30) {
                self.log = Log::default();
            } else {
                let kept = self.log.messages.len().saturating_sub(self.rng.below(20));
                self.log.messages.truncate(kept);
            }
        }
    }

    /// Cuts a node off for a while. What it has asked may come to the broker or not.
    fn cut(&mut self, index: usize, longest_ms: usize) {
        let until_ms = self.now_ms + self.rng.below(longest_ms) as u64;
        let member = &mut self.members[index];
        member.connection += 1;
        member.away_until_ms = Some(until_ms);
        member.reads = None;
        member.node.handle_lost();
    }

    fn restart(&mut self) {
        let index = self.rng.below(self.members.len());
        let mut hub = empty(&mut self.rng);
        // What a disk would have to say of the log beside its entries is not kept yet.
        let may_have_disk = self.faults != Faults::Loss;
        let has_disk = may_have_disk && self.members[index].node.has_all() && self.rng.percent(50);
        if has_disk || self.faults != Faults::Loss {
            // Else nobody may know what the log has lost.
            self.check_order(index);
        }
        if has_disk {
            let before = &self.members[index].hub;
            hub = Hub::new(before.epoch(), Vec::new(), Limits::default());
            hub.begin_following();
            hub = copy(before, hub);
        }
        let seed = self.rng.next_u64();
        let mut next = member(hub, has_disk, seed);
        let before = &mut self.members[index];
        next.connection = before.connection + 1;
        next.asked = std::mem::take(&mut before.asked);
        // Of its publishers nobody is told anything.
        self.members[index] = next;
    }

    fn publish(&mut self, index: usize) {
        if !self.rng.percent(40) {
            return;
        }
        let topic = format!("/{}", self.rng.below(6));
        let name = TopicName::parse(&topic).unwrap();
        let member = &self.members[index];
        let value = member.hub.value(&topic).map(|value| value.id());
        let replaces = value.filter(|_| self.rng.percent(40));
        let when = match replaces {
            Some(id) => Precondition::IfMatch(format!("\"{id}\"").into_bytes().into()),
            None => Precondition::None,
        };
        self.counter += 1;
        let data = self.counter.to_string();
        let deletes = self.rng.percent(10);
        let op = match deletes {
            true => Op::Delete(name),
            false => Op::Put(name, Draft::new(data.clone().into_bytes())),
        };
        let (sender, outcome) = mpsc::channel();
        let Ok(entry) = member.hub.admit(op, when, 1) else { return };
        match member.intake.put(&entry, ReturnAddress::Thread(sender)) {
            Ok(()) => {
                let waiting = Waiting { data, topic, replaces, outcome };
                self.members[index].waiting.push(waiting);
            }
            Err(_) => drop(self.refused.insert(data)),
        }
    }

    /// What was asked comes to the broker.
    fn reach_broker(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let asked = &mut self.members[index].asked;
        let due: Vec<_> = asked.extract_if(.., |(due_ms, ..)| *due_ms <= now_ms).collect();
        for (_, connection, asked) in due {
            let is_over = connection != self.members[index].connection;
            if is_over && self.rng.percent(50) {
                continue;
            }
            let answer = match asked {
                Asked::Look(at, token) => Answer::Looked(token, self.log.look(at)),
                Asked::Append { token, .. } if self.rng.percent(1) => {
                    Answer::Appended(token, Appended::Refused("no room".to_owned()))
                }
                Asked::Append { to, after, payload, token } => {
                    Answer::Appended(token, self.log.append(to, after, &payload))
                }
            };
            let due_ms = self.delay();
            self.members[index].answers.push((due_ms, connection, answer));
        }
    }

    /// What the broker says comes to the node.
    fn hear(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let is_lossy = self.faults != Faults::None;
        let member = &mut self.members[index];
        match member.away_until_ms {
            Some(until_ms) if until_ms > now_ms => return,
            Some(_) => {
                member.away_until_ms = None;
                member.node.handle_connected(now_ms);
            }
            None => {}
        }
        let due: Vec<_> = member.answers.extract_if(.., |(due_ms, ..)| *due_ms <= now_ms).collect();
        for (_, connection, answer) in due {
            if connection != member.connection {
                continue;
            }
            match answer {
                Answer::Looked(token, looked) => {
                    member.node.handle_looked(token, &looked, now_ms);
                }
                Answer::Appended(token, _) if is_lossy && self.rng.percent(3) => {
                    member.node.handle_appended(token, Appended::Unknown, now_ms);
                }
                Answer::Appended(token, appended) => {
                    member.node.handle_appended(token, appended, now_ms);
                }
            }
        }
        self.act(index);
        let count = self.rng.below(8);
        for _ in 0..count {
            let member = &mut self.members[index];
            let Some(mut seq) = member.reads else { return };
            if seq <= self.log.before {
                seq = self.log.before + 1;
            }
            let Some(payload) = self.log.message(seq) else { return };
            member.reads = Some(seq + 1);
            member.node.handle_message(seq, payload, now_ms);
            if self.rng.percent(5) {
                member.node.handle_message(seq, payload, now_ms);
            }
            self.act(index);
        }
    }

    fn act(&mut self, index: usize) {
        while let Some(action) = self.members[index].node.poll() {
            let due_ms = self.delay();
            let connection = self.members[index].connection;
            let asked = match action {
                Action::Look { at, token } => Asked::Look(at, token),
                Action::Append { to, after, payload, token } => {
                    Asked::Append { to, after, payload, token }
                }
                Action::Read { from } => {
                    self.members[index].reads = Some(from);
                    continue;
                }
                Action::Snapshot { epoch } => {
                    self.fetch(index, epoch);
                    continue;
                }
            };
            self.members[index].asked.push((due_ms, connection, asked));
        }
    }

    fn fetch(&mut self, index: usize, epoch: Epoch) {
        let has_it = |other: &&Member| other.node.has_all() && other.hub.epoch() == epoch;
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        let peer = others.map(|(_, other)| other).find(has_it);
        let member = &self.members[index];
        let staged = match peer {
            Some(peer) => Ok(copy(&peer.hub, member.node.stage(epoch))),
            None => Err("nobody has it".to_owned()),
        };
        let now_ms = self.now_ms;
        self.members[index].node.handle_snapshot(staged, now_ms);
    }

    /// Publishers hear what came of it.
    fn collect(&mut self, index: usize) {
        let mut waiting = std::mem::take(&mut self.members[index].waiting);
        waiting.retain(|it| {
            let Ok(outcome) = it.outcome.try_recv() else { return true };
            let member = &self.members[index];
            match outcome {
                Ok(applied) => {
                    self.outcomes[0] += 1;
                    let id = match applied {
                        Applied::Put(published) => published.id,
                        Applied::Deleted(event) => event.message.id(),
                        other => panic!("{other:?}"),
                    };
                    if let Some(replaced) = it.replaces {
                        let winner =
                            self.replaced.insert((it.topic.clone(), replaced), it.data.clone());
                        let may_be_two = self.faults == Faults::Loss;
                        assert!(may_be_two || winner.is_none(), "{replaced} was replaced twice");
                    }
                    let here = member.hub.id(member.hub.seq());
                    assert!(here.epoch != id.epoch || here.seq >= id.seq, "{id} is not here");
                    self.answered.push((id, it.data.clone()));
                }
                Err(CommitError::Failed) => self.outcomes[1] += 1,
                Err(CommitError::BrokerAway) => {
                    self.outcomes[2] += 1;
                    self.refused.insert(it.data.clone());
                }
                Err(CommitError::Refused(_)) => {
                    self.outcomes[3] += 1;
                    self.refused.insert(it.data.clone());
                }
                Err(other) => panic!("{other}"),
            }
            false
        });
        self.members[index].waiting = waiting;
    }

    /// What somebody heard is the order of all.
    fn check_order(&mut self, index: usize) {
        let pieces = self.members[index].heard.0.lock().unwrap().clone();
        for (id, topic, data) in pieces.into_iter().flatten() {
            let known = self.order.entry((id.epoch.number(), id.seq));
            let known = known.or_insert_with(|| (topic.clone(), data.clone()));
            if self.faults == Faults::Loss && *known != (topic.clone(), data.clone()) {
                self.ambiguous.insert(id.epoch.number());
                continue;
            }
            assert_eq!(*known, (topic, data), "{id}");
        }
    }

    fn check_end(&mut self) {
        let states: Vec<Vec<Seen>> = self
            .members
            .iter()
            .map(|member| member.hub.kept().iter().map(seen).collect())
            .collect();
        for index in 0..self.members.len() {
            let member = &self.members[index];
            assert!(member.node.is_open(), "{index}: {:?}", member.node.complaint());
            assert_eq!(member.intake.bytes(), 0);
            assert_eq!(states[index], states[0], "node {index}");
            assert!(member.waiting.is_empty());
            self.check_order(index);
        }
        let life = self.members[0].hub.epoch().number();
        assert!(!self.ambiguous.contains(&life), "the log has lost something in this life");
        for index in 0..self.members.len() {
            // Within a piece nothing of the order is left out.
            let pieces = self.members[index].heard.0.lock().unwrap().clone();
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                let [first, last] = [piece.first(), piece.last()]
                    .map(|it| it.map(|(id, ..)| (id.epoch.number(), id.seq)).unwrap());
                if self.faults == Faults::Loss && last.0 != life {
                    // It may have been cut before it ended.
                    continue;
                }
                let all: Vec<_> = self.order.range(first..=last).map(|(key, _)| *key).collect();
                let heard: Vec<_> =
                    piece.iter().map(|(id, ..)| (id.epoch.number(), id.seq)).collect();
                assert_eq!(heard, all, "node {index}");
            }
        }
        let mut counts = HashMap::new();
        for ((epoch, _), (_, data)) in &self.order {
            let Some(data) = data else { continue };
            let data = String::from_utf8(data.clone()).unwrap();
            let is_ambiguous = self.ambiguous.contains(epoch);
            assert!(is_ambiguous || !self.refused.contains(&data), "{data} was refused");
            *counts.entry((*epoch, data)).or_insert(0) += 1;
        }
        // What is lost is sent again by whoever was not told that it was there; and who publishes
        // what a life lacks does so again if it was deleted there meanwhile.
        let may_be_two = self.faults == Faults::Loss;
        assert!(may_be_two || counts.values().all(|count| *count == 1), "{counts:?}");
        if self.faults != Faults::Loss {
            let epochs: HashSet<_> = self.order.keys().map(|(epoch, _)| epoch).collect();
            assert!(epochs.len() <= 1, "{epochs:?}");
        }
        // Where something is lost with whoever had seen it, nobody is left to say so.
        let answered = self.answered.iter().filter(|_| self.faults != Faults::Loss);
        for (id, data) in answered {
            let there = self.order.get(&(id.epoch.number(), id.seq));
            let Some((_, there)) = there else { panic!("{id} is nowhere") };
            assert!(there.as_ref().is_none_or(|there| *there == data.as_bytes()), "{id}");
        }
    }
}

fn run(seed: u64, faults: Faults) -> [u64; 4] {
    let mut world = World::new(seed, faults);
    for _ in 0..1_200 {
        world.step(true);
    }
    for member in &mut world.members {
        member.away_until_ms = member.away_until_ms.map(|_| 0);
    }
    // Whatever waits is over, and whoever is behind has caught up.
    for _ in 0..4_000 {
        world.step(false);
    }
    world.check_end();
    world.outcomes
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("STENTOR_SEEDS").ok().and_then(|count| count.parse().ok());
    let seed = std::env::var("STENTOR_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.map_or(0..count.unwrap_or(40), |seed| seed..seed + 1)
}

/// Runs all seeds, and says which one has failed.
fn run_all(faults: Faults) -> [u64; 4] {
    let mut sums = [0; 4];
    for seed in seeds() {
        let outcomes = std::panic::catch_unwind(|| run(seed, faults));
        let outcomes = outcomes.unwrap_or_else(|reason| {
            eprintln!("seed {seed} of {faults:?}");
            std::panic::resume_unwind(reason)
        });
        (0..4).for_each(|index| sums[index] += outcomes[index]);
    }
    eprintln!("{faults:?}: applied, unknown, away, refused: {sums:?}");
    sums
}

#[test]
fn nodes_are_the_same_while_all_is_well() {
    let [applied, unknown, _, refused] = run_all(Faults::None);
    assert!(applied > 0 && refused > 0);
    assert!(unknown < applied / 100);
}

#[test]
fn nodes_are_the_same_whatever_breaks() {
    let [applied, unknown, away, refused] = run_all(Faults::Network);
    assert!(applied > 0 && unknown > 0 && away > 0 && refused > 0);
}

#[test]
fn what_the_log_loses_becomes_another_life_on_all_nodes() {
    let outcomes = run_all(Faults::Loss);
    assert!(outcomes.iter().all(|count| *count > 0));
}
