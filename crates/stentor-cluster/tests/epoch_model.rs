//! A model of a cluster whose broker loses the end of its log: which epoch counts. The search
//! visits every case of two nodes, two messages and one loss.
//!
//! The model has the protocol of `protocol.rs` in a few steps. Each node publishes a message, reads
//! the log, connects again after the loss, and begins an epoch or reads it again where the log is
//! not the one that it has read. In each world the search checks that no id means two messages. In
//! each world where nothing more happens it checks that both nodes have the same epoch and the same
//! messages, and have every message of which a publisher was told.
//!
//! [`Fault`] breaks the protocol on purpose, so a test sees each check fail.

use std::collections::BTreeMap;
use stentor_test::model::search;

const NODES: usize = 2;

/// A set of messages: a bit for each.
type Messages = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Content {
    /// An epoch begins. Its node has these messages.
    Epoch { epoch: u8, seeds: Messages },
    /// A node publishes a message in an epoch.
    Batch { epoch: u8, message: Messages },
    /// The broker has started so often: ids jump.
    Jump { starts: u8 },
}

/// A record of the log. The number stands for its content: no two records share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Record {
    number: u8,
    content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Node {
    /// The start of the broker that the node is connected to.
    connected: u8,
    /// The records that it has read, and the number of the last one.
    read: usize,
    last: u8,
    epoch: u8,
    /// The messages that its readers see.
    known: Messages,
    /// Messages of earlier epochs that it has to publish again.
    late: Messages,
    /// Its publisher waits to be told of these.
    waiting: Messages,
    has_published: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    log: Vec<Record>,
    nodes: [Node; NODES],
    /// How often the broker has started.
    starts: u8,
    records: u8,
    epochs: u8,
    /// Publishers were told of these.
    acknowledged: Messages,
    /// The message of each id that a node has read: epoch, starts of the broker, place in the log.
    ids: BTreeMap<(u8, u8, usize), Messages>,
}

/// Adds the world that an act makes of the present one.
type Step<'a> = dyn FnMut(&dyn Fn(&mut World)) + 'a;

/// What a test breaks in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A node that changes to another epoch forgets what only it has.
    ForgetsLateMessages,
    /// Ids continue where they were when a broker starts again.
    OmitsJump,
    /// A publisher is told when the broker has the message, before its node has read it.
    AcknowledgesUnread,
    /// A node does not compare the last record that it has read.
    ComparesNothing,
}

impl World {
    fn first() -> World {
        let epoch = Record { number: 1, content: Content::Epoch { epoch: 1, seeds: 0 } };
        let node = Node {
            connected: 0,
            read: 1,
            last: 1,
            epoch: 1,
            known: 0,
            late: 0,
            waiting: 0,
            has_published: false,
        };
        World {
            log: vec![epoch],
            nodes: [node; NODES],
            starts: 0,
            records: 1,
            epochs: 1,
            acknowledged: 0,
            ids: BTreeMap::new(),
        }
    }

    /// The worlds that one step makes of this one.
    fn next(&self, fault: Fault) -> Vec<World> {
        let mut next = Vec::new();
        if self.starts == 0 {
            // The broker loses what it had not synced, and starts again.
            next.extend((0..self.log.len()).map(|len| World {
                log: self.log[..len].to_vec(),
                starts: 1,
                ..self.clone()
            }));
            next.push(World { starts: 1, ..self.clone() });
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let mut step = |act: &dyn Fn(&mut World)| {
                let mut world = self.clone();
                act(&mut world);
                next.push(world);
            };
            if node.connected < self.starts {
                step(&|world| world.nodes[index].connected = world.starts);
            } else if self.has_diverged(node, fault) {
                if self.place_of_epoch(node.epoch).is_some() {
                    step(&|world| world.read_again(index, node.epoch));
                }
                step(&|world| world.begin_epoch(index, fault));
            } else if node.read < self.log.len() {
                step(&|world| world.read(index, fault));
                self.publishing(index, fault, &mut step);
            } else {
                self.publishing(index, fault, &mut step);
            }
        }
        next
    }

    fn publishing(&self, index: usize, fault: Fault, step: &mut Step<'_>) {
        let node = self.nodes[index];
        let message = 1 << index;
        if !node.has_published {
            step(&|world| {
                world.append_batch(index, message, fault);
                world.nodes[index].has_published = true;
                world.nodes[index].waiting |= message;
                if fault == Fault::AcknowledgesUnread {
                    world.acknowledged |= message;
                }
            });
        }
        // A node publishes what only it has once it has read all.
        if node.late != 0 && node.read == self.log.len() {
            let late = 1 << node.late.trailing_zeros();
            step(&|world| world.append_batch(index, late, fault));
        }
    }

    /// Whether the log is not the one that the node has read.
    fn has_diverged(&self, node: &Node, fault: Fault) -> bool {
        let is_same = |record: &Record| {
            record.number == node.last || node.last == 0 || fault == Fault::ComparesNothing
        };
        node.read > 0 && !self.log.get(node.read - 1).is_some_and(is_same)
    }

    fn place_of_epoch(&self, of: u8) -> Option<usize> {
        let is_it =
            |record: &Record| matches!(record.content, Content::Epoch { epoch, .. } if epoch == of);
        self.log.iter().position(is_it)
    }

    /// How often the broker had started when the record at this place was written.
    fn starts_at(&self, place: usize) -> u8 {
        let starts = |record: &Record| match record.content {
            Content::Jump { starts } => Some(starts),
            _ => None,
        };
        self.log[..place].iter().filter_map(starts).max().unwrap_or(0)
    }

    fn append(&mut self, content: Content) {
        self.records += 1;
        self.log.push(Record { number: self.records, content });
    }

    fn append_jump(&mut self, fault: Fault) {
        if self.starts_at(self.log.len()) < self.starts && fault != Fault::OmitsJump {
            self.append(Content::Jump { starts: self.starts });
        }
    }

    fn append_batch(&mut self, index: usize, message: Messages, fault: Fault) {
        self.append_jump(fault);
        self.append(Content::Batch { epoch: self.nodes[index].epoch, message });
    }

    /// A node reads an epoch from its beginning. What it has until then is late.
    fn read_again(&mut self, index: usize, epoch: u8) {
        let Some(read) = self.place_of_epoch(epoch) else { return };
        let node = &mut self.nodes[index];
        let (late, waiting) = (node.late | node.known, 0);
        *node = Node { read, last: 0, epoch: 0, known: 0, late, waiting, ..*node };
    }

    fn begin_epoch(&mut self, index: usize, fault: Fault) {
        self.append_jump(fault);
        self.epochs += 1;
        let seeds = self.nodes[index].known;
        self.append(Content::Epoch { epoch: self.epochs, seeds });
        self.read_again(index, self.epochs);
    }

    fn read(&mut self, index: usize, fault: Fault) {
        let (place, Record { number, content }) = {
            let read = self.nodes[index].read;
            (read, self.log[read])
        };
        let id = (self.nodes[index].epoch, self.starts_at(place), place);
        let node = &mut self.nodes[index];
        (node.read, node.last) = (place + 1, number);
        match content {
            Content::Epoch { epoch, seeds } => {
                node.late = (node.late | node.known) & !seeds;
                if fault == Fault::ForgetsLateMessages {
                    node.late = 0;
                }
                (node.epoch, node.known, node.waiting) = (epoch, seeds, 0);
            }
            Content::Batch { epoch, message } if epoch == node.epoch => {
                node.known |= message;
                node.late &= !message;
                self.acknowledged |= node.waiting & message;
                node.waiting &= !message;
                // A second message of this id is found by the check.
                *self.ids.entry(id).or_insert(message) |= message;
            }
            Content::Batch { .. } | Content::Jump { .. } => {}
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let is_one = |messages: &Messages| messages.count_ones() == 1;
        self.ids.values().all(is_one).then_some(()).ok_or("an id means two messages")
    }

    fn check_end(&self) -> Result<(), &'static str> {
        let [one, other] = &self.nodes;
        if one.epoch != other.epoch || one.known != other.known {
            Err("the nodes differ for good")
        } else if self.acknowledged & !one.known != 0 {
            Err("an acknowledged message is lost")
        } else {
            Ok(())
        }
    }
}

/// Visits every world and returns their number, or a violation and the way to it.
fn visit(fault: Fault) -> Result<usize, (&'static str, Vec<World>)> {
    search(
        World::first(),
        |world| world.next(fault),
        |world, next| {
            world.check()?;
            // Nothing has to be lost.
            let is_end = next.iter().all(|next| next.starts > world.starts);
            if is_end { world.check_end() } else { Ok(()) }
        },
    )
}

#[test]
fn nodes_agree_whatever_a_broker_loses_and_when() {
    let worlds = visit(Fault::None).unwrap_or_else(|(reason, way)| panic!("{reason}: {way:#?}"));
    assert!(worlds > 1_000, "{worlds} worlds");
}

#[test]
fn the_search_finds_each_fault() {
    for (fault, expected) in [
        (Fault::ForgetsLateMessages, "an acknowledged message is lost"),
        (Fault::OmitsJump, "an id means two messages"),
        (Fault::AcknowledgesUnread, "an acknowledged message is lost"),
        (Fault::ComparesNothing, "the nodes differ for good"),
    ] {
        let found = visit(fault).map_err(|(reason, _)| reason);
        assert_eq!(found, Err(expected), "{fault:?}");
    }
}
