//! One to five nodes on a simulated log, with seeds. The log delays messages, loses
//! acknowledgements, takes a message again from a connection that was given up, loses its end or
//! all of it, and forgets its beginning. It loses its end at one of three brokers, and nodes read
//! the old log at another one (`fork.rs`). Nodes are cut off from it or from each other. They
//! receive snapshots of peers late, in part, or damaged. They restart with nothing, or with what
//! they had on a disk.
//!
//! The log delivers messages in their order, some twice, as JetStream promises one consumer.
//! Answers may overtake messages, and a request may overtake another.
//!
//! What must hold:
//!
//! - An id is of the same message on all nodes, in all their lives. There are two exceptions: a
//!   broker loses what it had and does not say that it has begun anew, or one of three loses it
//!   while another one pauses. Then readers are told that such an id is lost, or its life is over.
//! - What was answered is in the order under the id of the answer, or is one of those that readers
//!   are told was lost, or its life is over; what was refused is nowhere; nothing is there twice.
//! - A value is replaced by one publisher of those that named it.
//! - Who listens to a hub hears a piece of the order without a hole, or is told that it breaks off.
//! - In the end all nodes are the same; and if the log has lost nothing, its life is the first one.

mod broker;
mod checks;
mod events;
mod fork;
mod peers;

use self::broker::{Answer, Asked, Log, Stored};
use self::fork::Fork;
use self::peers::Fetch;
use crate::codec::{EpochRecord, MessageBody, decode};
use crate::protocol::{Action, Appended, ClusterNode, LogSubject, Looked, hash_of};
use crate::waiting::ClusterIntake;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use stentor_hub::{
    Applied, Draft, Entry, Epoch, Event, Filter, Hub, Id, Limits, Op, Pattern, Precondition,
    Restore, Snapshot, Subscriber,
};
use stentor_io::{Rng, mark};
use stentor_order::{CommitError, NotReady, Outcome, ReturnAddress};
use stentor_test::seeds;
use stentor_wire::target::TopicName;

struct Member {
    node: ClusterNode,
    hub: Arc<Hub>,
    intake: Arc<ClusterIntake>,
    heard: Arc<Recorder>,
    /// Counts connections; `None`: it is cut off until then.
    connection: u32,
    away_until_ms: Option<u64>,
    /// What is on its way to the broker: when it comes there, by which connection, to which run.
    asked: Vec<(u64, (u32, u64), Asked)>,
    answers: Vec<(u64, u32, Answer)>,
    /// Until then nothing passes between it and the broker, and neither knows.
    stalled_until_ms: u64,
    /// It waits for a snapshot of a peer.
    fetch: Option<Fetch>,
    /// When it asks a peer again, at the earliest, and how many it has asked.
    fetch_at_ms: u64,
    fetches: usize,
    /// When a peer last had no good snapshot for it, by a fault.
    failed_ms: HashMap<usize, u64>,
    /// The next message that is brought.
    reads: Option<u64>,
    /// Its consumer has lost the message before that.
    has_lost: bool,
    waiting: Vec<Waiting>,
    /// What was here at some time before, and the message that was read last then.
    disk: Option<(u64, Hub)>,
    /// When it began to read, each time.
    consumers: Vec<u64>,
    /// Since when it has read all of the log, and publishes.
    ready_ms: Option<u64>,
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
    /// And the broker begins anew, and may have lost what it had.
    Loss,
    /// It does not say that it has begun anew.
    Silent,
    /// The broker is several: one crashes and loses what it had not synced, while another pauses.
    Fork,
    /// An operator deletes messages of the log, whether they were read or not, and a disk flips
    /// bits of others.
    Holes,
    /// An operator purges it.
    Purges,
}

impl Faults {
    fn loses(self) -> bool {
        matches!(self, Faults::Loss | Faults::Silent | Faults::Fork)
    }

    /// Messages are gone that nodes may not have read.
    fn deletes(self) -> bool {
        matches!(self, Faults::Holes | Faults::Purges)
    }
}

struct World {
    rng: Rng,
    log: Log,
    fork: Option<Fork>,
    next_fork_ms: u64,
    /// The last message that a node had read which was ended.
    ended: u64,
    members: Vec<Member>,
    now_ms: u64,
    faults: Faults,
    /// They are played now.
    is_breaking: bool,
    /// Until when two nodes do not reach each other, the lower one first.
    links: HashMap<(usize, usize), u64>,
    /// What every id is of.
    order: BTreeMap<(u32, u64), Of>,
    /// Ids of several messages: they have to be lost, or their lives over.
    ambiguous: HashSet<Id>,
    /// Nowhere to be found.
    refused: HashSet<String>,
    answered: Vec<(Id, String)>,
    /// By what values were replaced by those who named them.
    replaced: HashMap<(String, Id), Vec<Id>>,
    counter: u64,
    outcomes: [u64; 4],
    /// How much longer than usual requests and answers take, in all.
    late_ms: u64,
}

fn empty(rng: &mut Rng) -> Hub {
    let hub = Hub::new(Epoch::from_number(rng.next_u64() as u32), Vec::new(), Limits::default());
    hub.begin_following();
    hub
}

fn member(hub: Hub, disk: Option<&Hub>, seed: u64) -> Member {
    let hub = Arc::new(hub);
    let heard = Arc::new(Recorder::default());
    let id = hub.add_subscriber(Arc::clone(&heard) as Arc<dyn Subscriber>);
    hub.subscribe(id, &Filter::Pattern(Pattern::any()), Arc::default());
    let intake = Arc::new(ClusterIntake::new());
    let mut node = ClusterNode::new(Arc::clone(&hub), Arc::clone(&intake), seed, Box::new(|_| {}));
    if let Some(disk) = disk {
        node.begin_with(copy(disk, node.stage(disk.epoch()))).unwrap();
    }
    Member {
        node,
        hub,
        intake,
        heard,
        connection: 0,
        away_until_ms: Some(0),
        asked: Vec::new(),
        answers: Vec::new(),
        stalled_until_ms: 0,
        fetch: None,
        fetch_at_ms: 0,
        fetches: 0,
        failed_ms: HashMap::new(),
        reads: None,
        has_lost: false,
        waiting: Vec::new(),
        disk: None,
        consumers: Vec::new(),
        ready_ms: None,
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
    into.follow_rolled_back(&from.rolled_back());
    into.follow_upto(from.id(from.seq()).seq);
    Arc::into_inner(into).unwrap()
}

impl World {
    fn new(seed: u64, faults: Faults, nodes: Option<usize>) -> World {
        let mut rng = Rng::new(seed);
        let nodes = nodes.unwrap_or_else(|| 1 + rng.below(5));
        let members = (0..nodes).map(|_| member(empty(&mut rng), None, rng.next_u64())).collect();
        World {
            rng,
            log: Log::default(),
            fork: None,
            next_fork_ms: 0,
            ended: 0,
            members,
            now_ms: 0,
            faults,
            is_breaking: false,
            links: HashMap::new(),
            order: BTreeMap::new(),
            ambiguous: HashSet::new(),
            refused: HashSet::new(),
            answered: Vec::new(),
            replaced: HashMap::new(),
            counter: 0,
            outcomes: [0; 4],
            late_ms: 0,
        }
    }

    fn delay(&mut self) -> u64 {
        let longest = if self.rng.percent(5) { 1_500 } else { USUAL_MS };
        let delay_ms = self.rng.below(longest) as u64;
        self.late_ms += delay_ms.saturating_sub(USUAL_MS as u64);
        self.now_ms + delay_ms
    }

    fn step(&mut self, publishes: bool) {
        self.now_ms += 1 + self.rng.below(20) as u64;
        self.is_breaking = publishes && self.faults != Faults::None;
        if self.is_breaking {
            self.break_something();
            self.break_links();
        }
        self.end_fork();
        for index in 0..self.members.len() {
            if publishes {
                self.publish(index);
            }
            self.reach_broker(index);
            if !self.waits_for_peer(index) {
                self.hear(index);
                self.members[index].node.handle_time(self.now_ms);
                self.act(index);
            }
            self.collect(index);
            let ready_ms = self.members[index].ready_ms.unwrap_or(self.now_ms);
            self.members[index].ready_ms = self.is_ready(index).then_some(ready_ms);
        }
    }

    /// Whether a node publishes, and has read the whole log.
    fn is_ready(&self, index: usize) -> bool {
        let node = &self.members[index].node;
        node.is_open() && node.read() == self.log.last()
    }

    fn break_something(&mut self) {
        if self.rng.percent(1) {
            let index = self.rng.below(self.members.len());
            let member = &mut self.members[index];
            if member.node.has_all() {
                let disk = member.hub.stage(member.hub.epoch(), true);
                member.disk = Some((member.node.read(), copy(&member.hub, disk)));
            }
        }
        if self.rng.percent(1) {
            let index = self.rng.below(self.members.len());
            self.cut(index, 3_000);
        }
        if self.rng.below(400) == 0 {
            self.restart();
        }
        if self.rng.below(300) == 0 {
            // The life is said again before that is forgotten, unless nobody is there for so long.
            let life = self.log.last_of(LogSubject::Life).saturating_sub(self.log.before);
            let most = match self.faults {
                Faults::None | Faults::Network | Faults::Holes => life.max(1) as usize,
                _ => self.log.messages.len() + 1,
            };
            // Nor is what only they have read that are no more: then somebody has to decide. And
            // while a node is away, what it read last stays, to be compared.
            let whole = self.members.iter().filter(|member| member.node.has_all());
            let read = whole.map(|member| member.node.read()).min().unwrap_or(0);
            let most = match self.faults {
                Faults::Purges => most,
                _ => most.min(read.saturating_sub(self.log.before).max(1) as usize),
            };
            mark("log-purged");
            let forgotten = self.log.before + self.rng.below(most) as u64;
            let is_kept = |seq: &u64| {
                let message = self.log.message(*seq).filter(|_| self.faults == Faults::Purges);
                message.is_some_and(|message| self.may_come_again(*seq, message))
            };
            let kept = (self.log.before + 1..=forgotten).find(is_kept);
            let upto = kept.map_or(forgotten, |kept| kept - 1);
            // Copies come at once, so they are forgotten at once.
            let mut copies = self.log.copies.iter();
            let split = copies.find(|(first, second)| (*first..*second).contains(&upto));
            self.log.forget(split.map_or(upto, |(first, _)| (first - 1).max(self.log.before)));
        }
        if self.faults == Faults::Holes && self.rng.below(150) == 0 {
            self.delete_messages();
        }
        if self.faults == Faults::Fork {
            self.begin_fork();
        } else if self.faults.loses() && self.rng.below(400) == 0 {
            // The broker is not there for a while, and comes back without its end.
            (0..self.members.len()).for_each(|index| self.cut(index, 500));
            if self.rng.percent(20) {
                mark("broker-emptied");
                self.log = Log { run: self.log.run, ..Log::default() };
            } else if self.rng.percent(80) {
                let kept = self.log.messages.len().saturating_sub(self.rng.below(20));
                mark("broker-lost-end");
                self.log.messages.truncate(kept);
            }
            if self.faults == Faults::Loss {
                // Nothing of its connections is left.
                self.log.run += 1;
            }
        }
    }

    /// Some in a row, of which the last one may be the last of all. Not where a life begins: then
    /// nodes without it need one that has it.
    fn delete_messages(&mut self) {
        let among = [8, self.log.messages.len()][self.rng.below(2)].max(1);
        let last = self.log.last() - (self.rng.below(among) as u64).min(self.log.last());
        let count = 1 + self.rng.below(4) as u64;
        for seq in last.saturating_sub(count) + 1..=last {
            let begins = |(_, bytes): &Stored| {
                let body = decode(bytes).map(|message| message.body);
                matches!(body, Ok(MessageBody::Epoch(EpochRecord { again: None, .. })))
            };
            let is_spared = |it: &Stored| begins(it) || self.may_come_again(seq, it);
            if self.log.message(seq).is_some_and(is_spared) {
                continue;
            }
            // A node that has read a message last compares it: that is another fault.
            let is_read_last = self.members.iter().any(|member| member.node.read() == seq);
            if self.rng.percent(50) && !is_read_last {
                let bit = self.rng.next_u64();
                mark("message-damaged");
                self.log.flip_bit(seq, bit);
            } else {
                mark("message-deleted");
                self.log.delete(seq);
            }
        }
    }

    /// Whether a copy of this message may come that the log would take if it were deleted.
    fn may_come_again(&self, seq: u64, (subject, _): &Stored) -> bool {
        let Some(LogSubject::Own(run)) = *subject else { return false };
        let is_copy = |(.., asked): &(u64, (u32, u64), Asked)| match asked {
            Asked::Append { to, after, .. } => Some(*to) == *subject && *after < seq,
            Asked::Look { .. } => false,
        };
        self.members.iter().any(|member| {
            let is_unread = member.node.run() == run && member.node.read() < seq;
            is_unread || member.asked.iter().any(is_copy)
        })
    }

    /// Cuts a node off for a while. What it has asked may come to the broker or not.
    fn cut(&mut self, index: usize, longest_ms: usize) {
        mark("node-cut-off");
        let until_ms = self.now_ms + self.rng.below(longest_ms) as u64;
        let member = &mut self.members[index];
        member.connection += 1;
        member.away_until_ms = Some(until_ms);
        (member.reads, member.fetch) = (None, None);
        member.node.handle_lost();
    }

    fn restart(&mut self) {
        let index = self.rng.below(self.members.len());
        if self.faults == Faults::Fork && self.log.run > 0 {
            // It may be the only one that knows what the log has lost.
            return;
        }
        self.ended = self.ended.max(self.members[index].node.read());
        let hub = empty(&mut self.rng);
        let has_all = self.members[index].node.has_all();
        // What it has read is not on a disk, so in silence nobody may know what the log has lost.
        let is_told = self.faults != Faults::Silent;
        let epoch = self.members[index].hub.epoch();
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        // What nobody has any more nobody can go on with.
        let mut others = others.map(|(_, other)| other);
        let is_known = others.any(|it| it.node.has_all() && it.hub.epoch() == epoch);
        let is_last = has_all && !is_known && self.log.before > 0;
        if !is_told && has_all && !is_known {
            return;
        }
        let has_disk = is_last || is_told && has_all && self.rng.percent(50);
        if is_told {
            self.check_order(index);
        }
        // It was ended, or killed. If the log does not reach back to what any of them has, somebody
        // has to decide.
        let older = self.members[index].disk.take();
        let is_enough = |read: u64| read >= self.log.before || self.faults.deletes();
        let older = older.filter(|(read, _)| is_enough(*read) && !is_last);
        let older = older.filter(|_| self.rng.percent(50)).map(|(_, disk)| disk);
        let disk = older.as_ref().unwrap_or(&self.members[index].hub);
        let seed = self.rng.next_u64();
        mark(if has_disk { "node-restarts-from-disk" } else { "node-restarts-empty" });
        let next = member(hub, has_disk.then_some(disk), seed);
        self.replace(index, next);
    }

    fn replace(&mut self, index: usize, mut next: Member) {
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
        // As a server does: it is judged where it has its place.
        let entry = match deletes {
            true => Entry::past(op, 1),
            false => member.hub.admit(op, Precondition::None, 1).unwrap(),
        };
        let entry = entry.if_holds(when);
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
        if self.members[index].stalled_until_ms > now_ms {
            return;
        }
        let asked = &mut self.members[index].asked;
        let due: Vec<_> = asked.extract_if(.., |(due_ms, ..)| *due_ms <= now_ms).collect();
        for (_, (connection, run), asked) in due {
            let is_over = connection != self.members[index].connection;
            // A broker of several passes on to the next leader what it has received.
            let is_gone = run != self.log.run && self.faults != Faults::Fork;
            if is_gone || is_over && self.rng.percent(50) {
                continue;
            }
            let answer = match asked {
                Asked::Look { at, token, last } => {
                    let mut looked = self.log_of(index).look(at, now_ms + 20 * index as u64);
                    // The broker may have answered before the next message was appended.
                    let is_early = self.rng.percent(50);
                    looked.next.take_if(|next| is_early && *next > last);
                    Answer::Looked(token, looked)
                }
                Asked::Append { token, .. } if self.rng.percent(1) => {
                    mark("append-refused");
                    Answer::Appended(token, Appended::Refused("no room".to_owned()))
                }
                Asked::Append { to, after, payload, token } => {
                    // Brokers that are several were seen to take two copies at once. If the log
                    // loses the first one, a node that starts cannot know the second one.
                    let takes_copies = self.faults == Faults::Network && self.rng.percent(50);
                    let appended = self.log.append(to, after, &payload, takes_copies);
                    if self.faults.deletes() && matches!(appended, Appended::At(_)) {
                        self.check_turn(index, &payload);
                    }
                    Answer::Appended(token, appended)
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
        if member.stalled_until_ms > now_ms {
            return;
        }
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
                    mark("append-unknown");
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
            if member.fetch.is_some() {
                return;
            }
            let log = Fork::log_of(self.fork.as_ref(), index).unwrap_or(&self.log);
            let Some(seq) = member.reads.and_then(|from| log.next(from)) else { return };
            let Some((subject, payload)) = log.message(seq) else { return };
            member.reads = Some(seq + 1);
            // A consumer may lose a message, even the last one.
            if is_lossy && self.rng.below(400) == 0 {
                mark("consumer-loses");
                member.has_lost = true;
                continue;
            }
            if member.has_lost {
                // The next message tells: a consumer counts those that it delivers.
                member.reads = None;
                member.node.handle_skipped(now_ms);
                return self.act(index);
            }
            for _ in 0..1 + usize::from(self.rng.percent(5)) {
                match subject {
                    Some(_) => {
                        member.node.handle_message(seq, payload, now_ms);
                    }
                    None => member.node.handle_foreign(seq, Some(hash_of(payload)), now_ms),
                }
            }
            self.act(index);
        }
    }

    fn act(&mut self, index: usize) {
        while self.members[index].fetch.is_none()
            && let Some(action) = self.members[index].node.poll()
        {
            let due_ms = self.delay();
            let connection = self.members[index].connection;
            let asked = match action {
                Action::Look { at, token } => Asked::Look { at, token, last: self.log.last() },
                Action::Append { to, after, payload, token } => {
                    Asked::Append { to, after, payload, token }
                }
                Action::Read { from } => {
                    (self.members[index].reads, self.members[index].has_lost) = (Some(from), false);
                    self.note_consumer(index);
                    continue;
                }
                Action::Snapshot { epoch } => {
                    self.fetch(index, epoch);
                    continue;
                }
            };
            self.members[index].asked.push((due_ms, (connection, self.log.run), asked));
        }
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
                        Applied::Deleted(event, _) => event.message.id(),
                        other => panic!("{other:?}"),
                    };
                    if let Some(replaced) = it.replaces {
                        self.replaced.entry((it.topic.clone(), replaced)).or_default().push(id);
                    }
                    let here = member.hub.id(member.hub.seq());
                    assert!(here.epoch != id.epoch || here.seq >= id.seq, "{id} is not here");
                    self.answered.push((id, it.data.clone()));
                }
                Err(CommitError::Failed) => self.outcomes[1] += 1,
                Err(CommitError::NotReady(_) | CommitError::BrokerBehind) => {
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

    /// The log went back to a life that nobody has, and does not reach back to its beginning.
    fn is_stuck(&self) -> bool {
        let wants =
            |it: &Member| matches!(it.node.not_ready(), Some(NotReady::NeedsSnapshot { .. }));
        self.members.iter().all(|it| !it.node.is_open()) && self.members.iter().any(wants)
    }

    /// What an operator does then, as the documentation says.
    fn delete_stream(&mut self) {
        (0..self.members.len()).for_each(|index| self.cut(index, 500));
        self.log = Log { run: self.log.run + 1, ..Log::default() };
        for _ in 0..4_000 {
            self.step(false);
        }
    }
}

/// How long a request or an answer usually takes, at most.
const USUAL_MS: usize = 20;

/// How long nodes take to be ready after messages were deleted. They wait ten seconds for a peer or
/// a publish. They look at the log every second: before that wait, for the end of the log, for the
/// new epoch, and for a message that a consumer has lost. The time of the network is not theirs:
/// late requests and answers, and a snapshot that was on its way.
const READY_MAX_MS: u64 = 15_000;

fn run(seed: u64, faults: Faults) -> [u64; 4] {
    let mut world = World::new(seed, faults, None);
    for _ in 0..1_200 {
        world.step(true);
    }
    for member in &mut world.members {
        member.away_until_ms = member.away_until_ms.map(|_| 0);
        member.stalled_until_ms = 0;
    }
    // Whatever waits is over, and whoever is behind has caught up.
    let begun_ms = world.now_ms + world.fetch_ms();
    world.late_ms = 0;
    let mut ready_ms = None;
    for _ in 0..4_000 {
        world.step(false);
        if ready_ms.is_none() && (0..world.members.len()).all(|index| world.is_ready(index)) {
            ready_ms = Some(world.now_ms.saturating_sub(begun_ms + world.late_ms));
        }
    }
    if faults.deletes() {
        assert!(ready_ms.is_some_and(|ms| ms <= READY_MAX_MS), "ready after {ready_ms:?}");
    }
    if faults == Faults::Loss && world.is_stuck() {
        world.delete_stream();
    }
    world.check_end();
    world.outcomes
}

/// Runs all seeds, and judges how many publishes were applied, unknown, away, and refused.
fn run_all(faults: Faults, judge: impl Fn([u64; 4]) -> bool) {
    let sums = Mutex::new([0; 4]);
    let kind = format!("cluster {faults:?}");
    let has_run_all = seeds::run_kind("cluster", &kind, 40, |seed| {
        let outcomes = run(seed, faults);
        let mut sums = stentor_io::lock(&sums);
        (0..4).for_each(|index| sums[index] += outcomes[index]);
    });
    let sums = sums.into_inner().unwrap();
    assert!(!has_run_all || judge(sums), "{faults:?}: {sums:?}");
}

fn each_came_of_some(outcomes: [u64; 4]) -> bool {
    outcomes.iter().all(|count| *count > 0)
}

#[test]
fn nodes_are_the_same_while_all_is_well() {
    run_all(Faults::None, |[applied, unknown, _, refused]| {
        applied > 0 && refused > 0 && unknown < applied / 100
    });
}

#[test]
fn nodes_are_the_same_whatever_breaks() {
    run_all(Faults::Network, each_came_of_some);
}

#[test]
fn nodes_are_the_same_whatever_is_deleted() {
    run_all(Faults::Holes, each_came_of_some);
}

#[test]
fn nodes_are_the_same_whatever_is_purged() {
    run_all(Faults::Purges, each_came_of_some);
}

#[test]
fn what_the_log_loses_is_told_and_no_id_is_of_two_messages() {
    run_all(Faults::Loss, each_came_of_some);
}

#[test]
fn what_the_log_loses_in_silence_becomes_another_life_on_all_nodes() {
    run_all(Faults::Silent, each_came_of_some);
}

#[test]
fn a_crash_beside_a_pause_is_told() {
    run_all(Faults::Fork, each_came_of_some);
}
