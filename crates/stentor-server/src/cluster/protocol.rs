//! What a node of a cluster makes of the log, and writes into it: no socket, no thread, no clock.
//!
//! The log is an ordered one that a broker keeps. Whatever a node does to its hub follows from what
//! it reads there, and from nothing else, so all nodes that have read as far are the same. The
//! number of a change is the sequence of its message and its place in it; a condition is judged
//! where it has that number; and a publisher is answered when its own node has read it.
//!
//! ```text
//!   connected --> look --> read on behind what is here            (the life is ours, all is there)
//!                  |-----> read from where its life began         (another life)
//!                  |-----> a peer's snapshot, then read on        (the log does not reach back)
//!                  '-----> begin a life: turn, seeds              (there is none, or it lost some)
//! ```
//!
//! **Once and no more.** Every run of a node writes under a subject of its own, and each message
//! demands that the last one there is the one before it. So however often it is sent, and whenever
//! a copy comes out of a connection that was given up, it is in the log once or never.
//!
//! **Lives.** A life of the order begins by a message of its own, the *turn*, which demands that
//! nobody else has begun one meanwhile. Behind it whoever begun it writes the newest values it has,
//! the *seeds*. Everybody reads them into a hub beside the one that is read, and adopts that at
//! their end; meanwhile nothing is published. Who was further than what was written publishes the
//! rest, unless somebody was quicker. A batch says of which life it is, and is left out in others.
//!
//! **Loss.** At every connect and every second a node looks whether the log still is the one it has
//! read: whether the life is the same, the last sequence not below the one it has read, and the
//! message there the same. If it is not, twice, a life is begun.

use super::codec::{Body, ENTRIES_MAX, Message, PLACE_BITS, Turn, decode, entries};
use super::seeds::{is_continued, late_entry, newest, next_late, next_seed};
use super::waiting::Intake;
use super::writer::{Promises, Sending, What, Writer};
use crate::order::{CommitError, Telling};
use std::collections::VecDeque;
use std::sync::Arc;
use stentor_hub::{Applied, Entry, Epoch, Hub, Op, Place, decode_entry};
use stentor_io::Rng;
use twox_hash::XxHash3_64;

/// A node, from one connection to the next.
pub(super) struct Node {
    hub: Arc<Hub>,
    intake: Arc<Intake>,
    /// Names this run of this node.
    run: u64,
    rng: Rng,
    on_applied: Box<dyn FnMut(&mut Applied) + Send>,
    /// What is here is of a life of the log, or was.
    has_all: bool,
    /// Where the life that is here began in the log; 0 if that is not known.
    began: u64,
    /// Lives that are over.
    past: Vec<Epoch>,
    /// The log says nothing of a life, though something was in it, since then.
    bare_ms: Option<u64>,
    connected: bool,
    /// The message that was read last; 0 before the first.
    read: u64,
    /// The log has had this one, or something is lost.
    least: u64,
    /// Its hash, if it was read here.
    hash: Option<u64>,
    /// What was here when the log was last opened is of another message than it has there.
    contradicts: bool,
    /// The log brings what is behind it.
    reads: bool,
    /// A life that has begun, and is not adopted yet.
    staging: Option<Staging>,
    /// The turn that is being written.
    turning: Option<u64>,
    /// What was asked for when it was last looked at the log.
    looking: Option<Asked>,
    look_at_ms: u64,
    /// The log lacks something that is here, it seems, since then.
    suspects_ms: Option<u64>,
    /// A peer's snapshot of this life is needed.
    wants: Option<Epoch>,
    /// It is to take the place of what is here.
    anew: bool,
    writer: Writer,
    actions: VecDeque<Action>,
    fault: Option<String>,
    /// What changed here behind the seeds, from before they were written.
    late: VecDeque<Vec<u8>>,
    pub(super) rules: u64,
    /// A node has other rules.
    pub(super) others_rules: Option<u64>,
}

/// A life on its way in.
struct Staging {
    hub: Hub,
    epoch: Epoch,
    run: u64,
    turn: Turn,
    /// When something last came of it.
    heard_ms: u64,
}

#[derive(Clone, Copy)]
struct Asked {
    token: u64,
    read: u64,
    hash: Option<u64>,
}

/// What the node wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// To know how the log is, and the message at this sequence: [`Node::handle_looked`].
    Look { at: u64, token: u64 },
    /// To be brought all from this sequence on: [`Node::handle_message`]. What was brought so far
    /// is not wanted any more.
    Read { from: u64 },
    /// To append a message, if the last one of its subject has this sequence:
    /// [`Node::handle_appended`].
    Append { to: Subject, after: u64, payload: Arc<[u8]>, token: u64 },
    /// A snapshot of a peer: [`Node::handle_snapshot`].
    Snapshot { epoch: Epoch },
}

/// Where a message is appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// Where lives begin, for all nodes.
    Life,
    /// Of this run alone.
    Own(u64),
}

/// How the log is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Looked {
    /// The first message that is kept, or the next one.
    pub(super) first: u64,
    /// The last message there was.
    pub(super) last: u64,
    /// The last message of [`Subject::Life`], and whether it would soon not be kept any more.
    pub(super) life: Option<(u64, Vec<u8>, bool)>,
    /// The message that was asked for, if it is kept.
    pub(super) at: Option<u64>,
}

/// What came of an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Appended {
    /// It is in the log.
    At(u64),
    /// Another message is the last one of its subject; this one is not in the log by this append.
    Conflict(u64),
    /// It was refused, and is not in the log.
    Refused(String),
    /// It may be in the log, or come there.
    Unknown,
}

impl Node {
    /// A node with what is in `hub`, which is of a life if `has_all`.
    pub(super) fn new(
        hub: Arc<Hub>,
        intake: Arc<Intake>,
        has_all: bool,
        seed: u64,
        on_applied: Box<dyn FnMut(&mut Applied) + Send>,
    ) -> Node {
        let mut rng = Rng::new(seed);
        let mut node = Node {
            run: rng.next_u64(),
            hub,
            intake,
            rng,
            on_applied,
            has_all,
            began: 0,
            past: Vec::new(),
            bare_ms: None,
            connected: false,
            read: 0,
            least: 0,
            hash: None,
            contradicts: false,
            reads: false,
            staging: None,
            turning: None,
            looking: None,
            look_at_ms: 0,
            suspects_ms: None,
            wants: None,
            anew: false,
            writer: Writer::new(),
            actions: VecDeque::new(),
            fault: None,
            late: VecDeque::new(),
            rules: 0,
            others_rules: None,
        };
        node.read_behind_hub();
        node
    }

    /// What is to be done next.
    pub(super) fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The log can be reached.
    pub(super) fn handle_connected(&mut self, now_ms: u64) {
        self.handle_lost();
        self.connected = true;
        self.look(now_ms);
    }

    /// It cannot, or not in the way it was.
    pub(super) fn handle_lost(&mut self) {
        self.actions.clear();
        (self.connected, self.reads, self.looking, self.turning) = (false, false, None, None);
        if let Some(sending) = &mut self.writer.sending {
            sending.token = None;
        }
        self.show();
    }

    /// Time passes. To be called every now and then, and when something was put into the intake.
    pub(super) fn handle_time(&mut self, now_ms: u64) {
        self.writer.expire(&self.intake, now_ms);
        if self.connected && now_ms >= self.look_at_ms && self.fault.is_none() {
            self.look(now_ms);
        }
        self.write(now_ms);
    }

    /// A message comes, with its sequence.
    pub(super) fn handle_message(&mut self, seq: u64, bytes: &[u8], now_ms: u64) {
        if !self.reads || seq <= self.read || self.fault.is_some() {
            return;
        }
        if seq != self.read + 1 {
            // Something is missing in between.
            self.stop_reading();
            return self.look(now_ms);
        }
        if self.hash.is_none() && seq == self.least && !is_continued(&self.hub, seq, bytes) {
            self.contradicts = true;
            self.stop_reading();
            return self.look(now_ms);
        }
        if let Err(reason) = self.take(seq, bytes, now_ms) {
            self.fault = Some(format!("message {seq} of the stream: {reason}"));
            self.stop_reading();
            return;
        }
        (self.read, self.hash) = (seq, Some(hash_of(bytes)));
        self.write(now_ms);
    }

    /// What came of an append.
    pub(super) fn handle_appended(&mut self, token: u64, appended: Appended, now_ms: u64) {
        if self.turning == Some(token) {
            self.turning = None;
            // Whoever has begun a life: it is seen in the log.
            self.look(now_ms);
        } else {
            self.writer.handle_appended(token, appended, &self.intake);
        }
        self.write(now_ms);
    }

    /// Something of the life that is wanted, as a peer has it: a hub that [`Node::stage`] has made,
    /// and that was filled since.
    pub(super) fn handle_snapshot(&mut self, staged: Result<Hub, String>, now_ms: u64) {
        let Ok(staged) = staged else { return };
        if self.wants != Some(staged.epoch()) {
            return;
        }
        match self.adopt(staged) {
            Ok(()) => {
                (self.wants, self.anew, self.staging) = (None, false, None);
                self.read_behind_hub();
                self.look(now_ms);
            }
            Err(stentor_hub::NotAdopted::Contradicts) => self.anew = true,
            Err(stentor_hub::NotAdopted::Behind) => {}
        }
    }

    /// A hub to be filled by a snapshot of this life.
    pub(super) fn stage(&self, epoch: Epoch) -> Hub {
        self.hub.stage(epoch, self.anew)
    }

    /// Everything of the log's life is here, or was once.
    pub(super) fn has_all(&self) -> bool {
        self.has_all
    }

    /// The log is read, and takes what is published.
    pub(super) fn is_open(&self) -> bool {
        self.connected && self.reads && self.has_all && self.staging.is_none()
    }

    /// Names this run of this node.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// The message that was read last.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Why this node does not go on with the log, if it does not.
    pub(super) fn complaint(&self) -> Option<String> {
        if let Some(fault) = &self.fault {
            return Some(format!(
                "Nothing more is read: {fault}. All nodes have to be of a version that knows it."
            ));
        }
        let epoch = self.wants?;
        Some(format!(
            "The stream does not reach back to what is here, in its life {epoch}: a snapshot of \
             another node is needed, and none of cluster.peers has given one."
        ))
    }

    fn stop_reading(&mut self) {
        self.reads = false;
        self.show();
    }

    fn read_from(&mut self, from: u64) {
        if from != self.read + 1 {
            // What is skipped may have anything in it.
            self.writer.forget(&self.intake);
            (self.read, self.least, self.hash) = (from - 1, 0, None);
            self.contradicts = false;
        }
        self.reads = true;
        self.actions.push_back(Action::Read { from });
        self.show();
    }

    /// The log is to be read behind what is in the hub.
    fn read_behind_hub(&mut self) {
        let seq = self.hub.id(self.hub.seq()).seq;
        // Of the message at the end not all entries may be here.
        self.least = seq >> PLACE_BITS;
        (self.read, self.hash) = (self.least.saturating_sub(1), None);
        self.contradicts = false;
        self.writer.forget(&self.intake);
    }

    fn show(&self) {
        self.intake.set_open(self.is_open());
    }

    fn look(&mut self, now_ms: u64) {
        self.look_at_ms = now_ms + LOOK_MS;
        if self.connected {
            let (token, at) = (self.writer.next_token(), self.read);
            self.looking = Some(Asked { token, read: at, hash: self.hash });
            self.actions.push_back(Action::Look { at, token });
        }
    }

    /// How the log is.
    pub(super) fn handle_looked(&mut self, token: u64, looked: &Looked, now_ms: u64) {
        // An older one says how it was before what was read since.
        let Some(asked) = self.looking.take_if(|it| it.token == token) else { return };
        if !self.connected || self.fault.is_some() || self.turning.is_some() {
            return;
        }
        let life_seq = looked.life.as_ref().map_or(0, |(seq, ..)| *seq);
        let life = looked.life.as_ref().map(|(seq, bytes, _)| (*seq, decode(bytes)));
        let (epoch, began) = match life {
            None => return self.handle_no_life(looked, asked, now_ms),
            Some((seq, Ok(Message { epoch, body: Body::Turn(turn), .. }))) => {
                (epoch, turn.began.unwrap_or(seq))
            }
            Some((seq, _)) => {
                self.fault = Some(format!("message {seq} of the stream makes no sense"));
                return self.stop_reading();
            }
        };
        let ours = match &self.staging {
            Some(staging) => Some(staging.epoch),
            None => self.has_all.then(|| self.hub.epoch()),
        };
        (self.bare_ms, self.began) = match ours == Some(epoch) {
            true => (None, began),
            false => (None, self.began),
        };
        let differs = matches!((asked.hash, looked.at), (Some(ours), Some(at)) if ours != at);
        if ours != Some(epoch) {
            return match () {
                // It went back to before.
                () if self.past.contains(&epoch) => self.suspect(life_seq, now_ms),
                // It comes in its place.
                () if self.reads && began > self.read => {}
                () if began >= looked.first => {
                    (self.wants, self.suspects_ms) = (None, None);
                    self.read_from(began);
                }
                () => self.want(epoch),
            };
        }
        if looked.last < asked.read.max(self.least) || differs || self.contradicts {
            return self.suspect(life_seq, now_ms);
        }
        self.suspects_ms = None;
        if looked.first > self.read + 1 {
            return self.want(epoch);
        }
        self.wants = None;
        if !self.reads {
            self.read_from(self.read + 1);
        }
        self.go_on(looked, life_seq, now_ms);
    }

    /// The log does not say which life it is in.
    fn handle_no_life(&mut self, looked: &Looked, asked: Asked, now_ms: u64) {
        let is_new = !self.has_all && self.staging.is_none();
        if is_new {
            // Somebody may know, and say it again.
            let since_ms = *self.bare_ms.get_or_insert(now_ms);
            if looked.last == 0 || now_ms >= since_ms + BARE_PATIENCE_MS {
                self.turn(0, now_ms);
            }
            return;
        }
        let is_same = match (asked.hash, looked.at) {
            (Some(ours), Some(at)) => ours == at,
            (_, None) => asked.read < looked.first,
            // That is seen when it is read.
            (None, Some(_)) => true,
        };
        let has_all = looked.last >= asked.read.max(self.least) && self.staging.is_none();
        if !(is_same && has_all && looked.last > 0) || self.contradicts {
            return self.suspect(0, now_ms);
        }
        let turn = Turn { before: None, has_seed: false, began: Some(self.began) };
        self.say_again(0, self.hub.epoch(), turn);
    }

    /// Says again which life it is, if nobody has since the message at this sequence.
    fn say_again(&mut self, life_seq: u64, epoch: Epoch, turn: Turn) {
        let payload = turn.encode(epoch, self.run, 0).into();
        let (to, token) = (Subject::Life, self.writer.next_token());
        self.actions.push_back(Action::Append { to, after: life_seq, payload, token });
    }

    /// Looks after the life that is.
    fn go_on(&mut self, looked: &Looked, life_seq: u64, now_ms: u64) {
        match &self.staging {
            Some(staging) if now_ms >= staging.heard_ms + SEED_PATIENCE_MS => {
                self.turn(life_seq, now_ms);
            }
            // Before it is not kept any more.
            None if looked.life.as_ref().is_some_and(|(.., is_old)| *is_old) => {
                let (_, bytes, _) = looked.life.as_ref().expect("it was looked at");
                if let Ok(Message { epoch, body: Body::Turn(turn), .. }) = decode(bytes) {
                    let turn = Turn { began: Some(turn.began.unwrap_or(life_seq)), ..turn };
                    self.say_again(life_seq, epoch, turn);
                }
            }
            _ => {}
        }
        self.write(now_ms);
    }

    /// A snapshot of this life is needed.
    fn want(&mut self, epoch: Epoch) {
        self.stop_reading();
        self.wants = Some(epoch);
        self.actions.push_back(Action::Snapshot { epoch });
    }

    /// The log lacks something that is here. Begins a life if that is so for a while.
    fn suspect(&mut self, life_seq: u64, now_ms: u64) {
        self.stop_reading();
        let since_ms = *self.suspects_ms.get_or_insert(now_ms);
        if now_ms >= since_ms + LOOK_MS {
            self.turn(life_seq, now_ms);
        }
    }

    /// Begins a life, if none has begun since the one whose turn is at this sequence.
    fn turn(&mut self, life_seq: u64, now_ms: u64) {
        self.stop_reading();
        let here = self.hub.id(self.hub.seq());
        let turn = Turn {
            before: self.has_all.then_some((here.epoch, here.seq)),
            has_seed: self.has_all && self.hub.counts().topics > 0,
            began: None,
        };
        let epoch = Epoch::from_number(self.rng.next_u64() as u32);
        let payload = turn.encode(epoch, self.run, 0).into();
        let token = self.writer.next_token();
        self.turning = Some(token);
        self.look_at_ms = now_ms + TURN_PATIENCE_MS;
        self.actions.push_back(Action::Append {
            to: Subject::Life,
            after: life_seq,
            payload,
            token,
        });
    }

    fn take(&mut self, seq: u64, bytes: &[u8], now_ms: u64) -> Result<(), &'static str> {
        let message = decode(bytes)?;
        match message.body {
            Body::Turn(turn) => self.take_turn(&message, turn, now_ms),
            Body::Seed { is_last, entries: of } => {
                self.take_seed(seq, &message, is_last, of, now_ms)?;
            }
            Body::Batch { rules, entries: of } => {
                if rules != self.rules && message.run != self.run {
                    self.others_rules = Some(rules);
                }
                self.take_batch(seq, &message, of)?;
            }
        }
        if message.run == self.run && message.counter > 0 {
            self.writer.last = seq;
        }
        Ok(())
    }

    /// A life begins.
    fn take_turn(&mut self, message: &Message<'_>, turn: Turn, now_ms: u64) {
        let epoch = message.epoch;
        let is_known = match &self.staging {
            Some(staging) => staging.epoch == epoch,
            None => self.has_all && self.hub.epoch() == epoch,
        };
        if turn.began.is_some() || is_known {
            return;
        }
        self.past.extend(self.staging.take().map(|staging| staging.epoch));
        // If the log forgets this turn, it goes back to a life that is over.
        self.past.extend(self.has_all.then(|| self.hub.epoch()));
        self.writer.begin_life(&self.intake);
        self.late.clear();
        let hub = self.hub.stage(epoch, false);
        let staging = Staging { hub, epoch, run: message.run, turn, heard_ms: now_ms };
        self.staging = Some(staging);
        if !turn.has_seed {
            return self.end_staging();
        }
        if message.run == self.run {
            self.writer.seeding = Some(newest(&self.hub, 0));
        }
        self.show();
    }

    fn take_seed(
        &mut self,
        seq: u64,
        message: &Message<'_>,
        is_last: bool,
        of: &[u8],
        now_ms: u64,
    ) -> Result<(), &'static str> {
        let _ = self.writer.took(message, self.run);
        let Some(staging) = &mut self.staging else { return Ok(()) };
        if (staging.epoch, staging.run) != (message.epoch, message.run) {
            return Ok(());
        }
        let life = staging.hub.life();
        for (place, bytes) in (0..).zip(entries(of)?) {
            let (entry, _) = decode_entry(bytes)?;
            let number = life.number(seq << PLACE_BITS | place).ok_or(TOO_LARGE)?;
            // What was there is not judged.
            let _ = staging.hub.apply(entry, Place::At(number));
        }
        staging.hub.follow_upto(last_of(seq));
        staging.heard_ms = now_ms;
        if is_last {
            self.end_staging();
        }
        Ok(())
    }

    /// All of the life that begins is there.
    fn end_staging(&mut self) {
        let Some(Staging { hub, turn, .. }) = self.staging.take() else { return };
        let had_all = self.has_all.then(|| self.hub.id(self.hub.seq()));
        let late = match (turn.before, had_all) {
            // Nothing of it is there.
            (None, Some(_)) => newest(&self.hub, 0),
            (Some((epoch, seq)), Some(here)) if epoch == here.epoch && seq < here.seq => {
                newest(&self.hub, self.hub.number(stentor_hub::Id { epoch, seq }).unwrap_or(0))
            }
            _ => VecDeque::new(),
        };
        // It is another life: it contradicts nothing.
        let _ = self.adopt(hub);
        self.late = late.iter().filter_map(|event| late_entry(&self.hub, event)).collect();
        self.show();
    }

    fn adopt(&mut self, staged: Hub) -> Result<(), stentor_hub::NotAdopted> {
        let before = self.hub.epoch();
        let (generation, rules) = self.hub.rules();
        let generation = generation.max(staged.rules().0) + 1;
        let rules = Entry::past(Op::Rules(rules), 0);
        let _ = staged.apply(rules, Place::At(generation));
        let adopted = self.hub.adopt(staged)?;
        if adopted.is_new_life {
            self.past.push(before);
        }
        self.has_all = true;
        Ok(())
    }

    fn take_batch(
        &mut self,
        seq: u64,
        message: &Message<'_>,
        of: &[u8],
    ) -> Result<(), &'static str> {
        let promises = self.writer.took(message, self.run);
        let is_of_life = self.staging.is_none() && self.has_all;
        if !is_of_life || message.epoch != self.hub.epoch() {
            promises.tell_all(&self.intake, CommitError::BrokerAway);
            return Ok(());
        }
        let of = entries(of)?;
        let decoded: Result<Vec<_>, _> = of.into_iter().map(decode_entry).collect();
        let life = self.hub.life();
        let mut telling = Telling::default();
        let mut backs = promises.backs.into_iter();
        for (place, (entry, _)) in (0..).zip(decoded?) {
            let number = life.number(seq << PLACE_BITS | place).ok_or(TOO_LARGE)?;
            let mut outcome = self.hub.apply(entry, Place::At(number)).map_err(CommitError::from);
            if let Ok(applied) = &mut outcome {
                (self.on_applied)(applied);
            }
            if let Some(back) = backs.next() {
                let outcome = match outcome {
                    // It is in a snapshot, and what came of it is not.
                    Ok(Applied::Known) => Err(CommitError::Failed),
                    outcome => outcome,
                };
                telling.add(back, outcome);
            }
        }
        self.hub.follow_upto(last_of(seq));
        self.intake.give_back(promises.bytes);
        Ok(())
    }

    /// Has the next message appended, if there is one to be.
    fn write(&mut self, now_ms: u64) {
        if !self.connected || !self.reads || self.fault.is_some() {
            return;
        }
        let is_open = self.is_open();
        let staged = self.staging.as_ref().map(|staging| staging.epoch);
        let epoch = staged.unwrap_or_else(|| self.hub.epoch());
        let (run, rules) = (self.run, self.rules);
        let writer = &mut self.writer;
        if writer.sending.is_none() {
            writer.counter += 1;
            let counter = writer.counter;
            let next = match &mut writer.seeding {
                Some(events) if staged.is_some() => {
                    let (seed, is_last) = next_seed(events);
                    if is_last {
                        writer.seeding = None;
                    }
                    Some((seed.into_seed(epoch, run, counter, is_last), What::Seed))
                }
                _ if !is_open => None,
                _ if !self.late.is_empty() => {
                    let batch = next_late(&mut self.late);
                    Some((batch.into_batch(epoch, run, counter, rules), What::Late))
                }
                _ => self.intake.take().map(|batch| {
                    let bytes = batch.kept_bytes();
                    let promises = Promises { backs: batch.backs, bytes };
                    let payload = batch.entries.into_batch(epoch, run, counter, rules);
                    (payload, What::Batch(promises))
                }),
            };
            let Some((payload, what)) = next else {
                writer.counter -= 1;
                return;
            };
            writer.sending = Some(Sending {
                payload: payload.into(),
                counter,
                what,
                since_ms: now_ms,
                token: None,
                sent: 0,
                conflict: None,
            });
        }
        if let Some(action) = writer.send(self.read, run) {
            self.actions.push_back(action);
        }
    }
}

/// The last number of a message's entries: all of it was applied.
fn last_of(seq: u64) -> u64 {
    seq << PLACE_BITS | ENTRIES_MAX as u64
}

/// What a message is compared by.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// How often it is looked whether the log is still the one that was read.
const LOOK_MS: u64 = 1_000;

/// How long a turn may take before it is looked what came of it.
const TURN_PATIENCE_MS: u64 = 5_000;

/// How long it is waited for somebody who knows which life the log is in.
const BARE_PATIENCE_MS: u64 = 5_000;

/// How long whoever begins a life may say nothing before another one does.
const SEED_PATIENCE_MS: u64 = 10_000;

const TOO_LARGE: &str = "its number is too large";
