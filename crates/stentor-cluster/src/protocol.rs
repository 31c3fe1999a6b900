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
//!                  '-----> begin a life: epoch record, seeds      (there is none, or it lost some)
//! ```
//!
//! **Once and no more.** Every run of a node writes under a subject of its own, and each message
//! demands that the last one there is the one before it. So however often it is sent, and whenever
//! a copy comes out of a connection that was given up, it is in the log once or never. Replicated
//! brokers can take two copies at once. Each run therefore counts its messages, and a node skips a
//! message whose count it has read.
//!
//! **Lives.** A life of the order begins with a message of its own, the *epoch record*, which
//! demands that no other node has begun one meanwhile. Behind it the node writes its newest values,
//! the *seeds*. All nodes read them into a hub beside the one that is read, and adopt that at their
//! end; meanwhile nothing is published. A node that has newer values than these publishes the rest,
//! unless another node already has. A batch names its life, and nodes leave it out in others.
//!
//! **Loss.** At every connect and every second a node looks whether the log still is the one it has
//! read: whether the life is the same, the last sequence not below the one it has read, and the
//! message there the same. If it differs for a second, or for five behind a disk, a life is begun.
//!
//! **Holes.** An operator can delete messages of the log that a node has not read. Each look asks
//! for the next message behind the last one read, so a hole is known from the broker's answer, not
//! from what a consumer delivers. A node with a hole before it asks peers for a snapshot
//! (`holes.rs`). If no peer and no publisher seems to have read further, the node begins a life
//! with the values that it has.
//!
//! **Ids.** Before anything is written to a broker that has begun anew, SEQs jump (`line.rs`), for
//! it may have lost something. Whoever has read what is lost is not in the order any more: it reads
//! the life again, or takes a snapshot, and publishes what only it has unless that was changed
//! meanwhile. So no id ever means two messages, as long as a broker that begins anew says so, and
//! nothing of before comes into its log.
//!
//! **Two meanings.** One of three brokers can crash and lose messages while another one pauses. A
//! message from before then takes the place of a lost one, before SEQs jump. Nodes find that by
//! their checksums, which batches carry (`checksum.rs`): behind a jump each node says what it has
//! read. A node that leaves a log at a jump first compares the message before it. A node that finds
//! another message than it has read stops before the next one and begins an epoch, so all ids of
//! the old one are void.

mod checksum;
mod holes;
mod lists;
mod loss;
mod position;
mod reading;
mod state;
mod writing;

use self::holes::Want;
use self::lists::AccessLists;
use self::position::{LogPosition, Placement};
use self::state::{
    ClusterName, Divergence, EpochState, Finding, Local, LookState, PendingLook, Phase, Remote,
    Suspicion, Values,
};
use crate::codec::{EpochRecord, LogMessage, MessageBody, Unreadable, decode};
use crate::line::{SequenceMapping, is_whole};
use crate::lists::lists_of;
pub(crate) use crate::log::{Action, Appended, LogSubject, Looked};
use crate::seeds::{Late, is_continued};
use crate::waiting::ClusterIntake;
use crate::writer::LogWriter;
use std::collections::VecDeque;
use std::sync::Arc;
use stentor_hub::{AccessList, Applied, Epoch, Hub, NotAdopted, access_list};
use stentor_io::Rng;
use stentor_order::NotReady;
use twox_hash::XxHash3_64;

/// A node, from one connection to the next.
pub(super) struct ClusterNode {
    hub: Arc<Hub>,
    intake: Arc<ClusterIntake>,
    /// Names this run of this node.
    run: u64,
    cluster: ClusterName,
    rng: Rng,
    on_applied: Box<dyn FnMut(&mut Applied) + Send>,
    local: Local,
    epoch: EpochState,
    phase: Phase,
    position: LogPosition,
    /// A life that has begun, and is not adopted yet.
    staging: Option<Staging>,
    look: LookState,
    writer: LogWriter,
    actions: VecDeque<Action>,
    /// What is only here, and is to be published.
    late: VecDeque<Late>,
    lists: AccessLists,
}

/// What the log says of the life it is in: the message that says so, at `seq`.
struct CurrentEpoch {
    seq: u64,
    epoch: Epoch,
    turn: EpochRecord,
}

/// A life on its way in.
struct Staging {
    hub: Hub,
    epoch: Epoch,
    run: u64,
    /// The life before, as its epoch record says.
    before: Option<(Epoch, u64)>,
    /// When something last came of it.
    heard_ms: u64,
    /// The last of its seeds that was read, as its run counts; one that is missing ends it.
    last: Option<u64>,
    /// The access lists in the seeds.
    lists: Vec<AccessList>,
}

impl ClusterNode {
    /// A node with nothing in `hub`.
    pub(super) fn new(
        hub: Arc<Hub>,
        intake: Arc<ClusterIntake>,
        seed: u64,
        on_applied: Box<dyn FnMut(&mut Applied) + Send>,
    ) -> ClusterNode {
        let mut rng = Rng::new(seed);
        ClusterNode {
            run: rng.next_u64(),
            hub,
            intake,
            cluster: ClusterName::default(),
            rng,
            on_applied,
            local: Local::default(),
            epoch: EpochState::default(),
            phase: Phase::Disconnected(Finding::Nothing),
            position: LogPosition::default(),
            staging: None,
            look: LookState::default(),
            writer: LogWriter::new(),
            actions: VecDeque::new(),
            late: VecDeque::new(),
            lists: AccessLists::default(),
        }
    }

    /// What is to be done next.
    pub(super) fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The log can be reached.
    pub(super) fn handle_connected(&mut self, now_ms: u64) {
        self.handle_lost();
        self.phase = self.phase.connect();
        self.look(now_ms);
    }

    /// It cannot, or not in the way it was.
    pub(super) fn handle_lost(&mut self) {
        self.actions.clear();
        self.phase = self.phase.disconnect();
        let LookState { at_ms, no_epoch_ms, .. } = self.look;
        self.look = LookState { at_ms, no_epoch_ms, ..LookState::default() };
        if let Some(sending) = &mut self.writer.sending {
            sending.token = None;
        }
        self.show();
    }

    /// Nobody goes on with it.
    pub(super) fn end(&mut self) {
        self.handle_lost();
        let _ = self.writer.forget(&self.intake);
    }

    /// Time passes. To be called every now and then, and when something was put into the intake.
    pub(super) fn handle_time(&mut self, now_ms: u64) {
        self.writer.expire(&self.intake, now_ms);
        self.intake.expire(now_ms);
        if self.phase.is_connected() && now_ms >= self.look.at_ms && self.look.pending.is_none() {
            self.look(now_ms);
        }
        self.write(now_ms);
    }

    /// A message comes, with its sequence. Returns why the node skips it, if it does.
    pub(super) fn handle_message(
        &mut self,
        seq: u64,
        bytes: &[u8],
        now_ms: u64,
    ) -> Option<&'static str> {
        let message = decode(bytes);
        if message == Err(Unreadable::Damaged) && self.reads() && seq > self.position.read {
            self.position.damaged = Some(seq);
            self.stop_reading();
            self.look(now_ms);
            return None;
        }
        if !self.is_next(seq, bytes, now_ms) {
            self.count_again(seq, bytes);
            return None;
        }
        if message.as_ref().is_ok_and(|message| self.contradicts(seq, message)) {
            self.stop_reading();
            self.look(now_ms);
            return None;
        }
        let hash = hash_of(bytes);
        self.position.running.add(seq, hash);
        let skips = match message {
            Ok(message) => self.take(seq, &message, now_ms).err(),
            Err(Unreadable::OtherVersion) => {
                self.stop_before(seq);
                return None;
            }
            Err(Unreadable::Foreign | Unreadable::Damaged) => Some("no node writes such bytes"),
        };
        self.end_message(seq, Some(hash), now_ms);
        skips
    }

    /// A message comes that no node wrote: it has a sequence of the log, and changes nothing. Its
    /// hash is `None` if this node does not have all its bytes.
    pub(super) fn handle_foreign(&mut self, seq: u64, hash: Option<u64>, now_ms: u64) {
        if self.is_next(seq, &[], now_ms) {
            self.end_message(seq, hash, now_ms);
        }
    }

    /// The consumer has lost a message, perhaps one that is read for its count alone.
    pub(super) fn handle_skipped(&mut self, now_ms: u64) {
        self.position.has_counts = false;
        self.stop_reading();
        self.look(now_ms);
    }

    /// Whether this message continues what was read. If it does not, the node looks at the log.
    fn is_next(&mut self, seq: u64, bytes: &[u8], now_ms: u64) -> bool {
        if !self.reads() || seq <= self.position.read {
            return false;
        }
        let first = self.epoch.mapping.seq(seq);
        let is_compared = self.position.hash.is_none() && seq == self.position.known_last;
        let contradicts = is_compared && !is_continued(&self.hub, first, bytes);
        if contradicts && self.position.placement == Placement::Known {
            self.position.placement = Placement::Contradicted;
        }
        let is_next = !contradicts && self.follows(seq, bytes);
        if !is_next {
            self.stop_reading();
            self.look(now_ms);
        }
        is_next
    }

    fn end_message(&mut self, seq: u64, hash: Option<u64>, now_ms: u64) {
        (self.position.read, self.position.hash) = (seq, hash);
        self.position.has_counts = true;
        (self.look.consumer_at_ms, self.look.given_up) = (0, 0);
        self.phase.deliver();
        self.note_position();
        self.write(now_ms);
    }

    /// What came of an append.
    pub(super) fn handle_appended(&mut self, token: u64, appended: Appended, now_ms: u64) {
        if let Some(phase) = self.phase.end_append(token) {
            self.phase = phase;
            // Whoever has begun a life: it is seen in the log.
            self.look(now_ms);
        } else {
            self.writer.handle_appended(token, appended, &self.intake);
        }
        self.write(now_ms);
    }

    /// A peer sends a snapshot of the wanted life: a hub that [`ClusterNode::stage`] has made, and
    /// that was filled since.
    pub(super) fn handle_snapshot(&mut self, staged: Result<Hub, String>, now_ms: u64) {
        let Ok(staged) = staged else { return };
        let [theirs, ours] = [&staged, &*self.hub].map(|hub| hub.id(hub.seq()));
        let is_same = ours == theirs && !self.local.has_diverged;
        let is_wanted =
            matches!(self.phase.finding(), Finding::Hole(want) if want.epoch == theirs.epoch);
        if is_same || !is_wanted {
            return;
        }
        let is_other_epoch = ours.epoch != theirs.epoch;
        let (_, rules) = staged.rules();
        let lists = lists_of(&rules);
        let all = lists.iter().cloned().chain([access_list(&rules, 0)]).collect();
        match self.adopt(staged, all) {
            Ok(()) => {
                self.lists.found(lists);
                // Whether it reaches as far as the log, is looked at.
                (self.staging, self.position.placement) = (None, Placement::Unknown);
                self.late.extend(self.writer.forget(&self.intake));
                if is_other_epoch {
                    // It would replace newer values: its SEQs say nothing of this epoch.
                    (self.late, self.local.divergence) = (VecDeque::new(), None);
                }
                self.look(now_ms);
            }
            Err(NotAdopted::Contradicts) => self.local.has_diverged = true,
            Err(NotAdopted::Behind) => {}
        }
    }

    /// The node begins with the values of its last run: a hub that [`ClusterNode::stage`] has made,
    /// and that was filled since. Returns how many topics that are.
    ///
    /// # Errors
    /// It is no continuation of what is here.
    pub(super) fn begin_with(&mut self, kept: Hub) -> Result<usize, NotAdopted> {
        let lists = lists_of(&kept.rules().1);
        self.adopt(kept, lists.clone())?;
        self.lists.found(lists);
        self.local.values = Values::FromDisk;
        Ok(self.hub.counts().topics)
    }

    /// The values on the disk of this node are of the cluster with this name.
    pub(super) fn set_cluster(&mut self, cluster: u64) {
        self.cluster = ClusterName::FromDisk(cluster);
    }

    /// Names the cluster of the values here, if they have one.
    pub(super) fn cluster(&self) -> Option<u64> {
        self.cluster.number()
    }

    /// A hub to be filled by a snapshot of this life.
    pub(super) fn stage(&self, epoch: Epoch) -> Hub {
        self.hub.stage(epoch, self.local.has_diverged)
    }

    /// Everything of the log's life is here, or was once.
    pub(super) fn has_all(&self) -> bool {
        self.local.values != Values::None
    }

    /// The log is read, and takes what is published.
    pub(super) fn is_open(&self) -> bool {
        let is_one = self.local.is_in_order() && self.staging.is_none();
        self.reads() && is_one && self.may_write()
    }

    /// The log is read.
    pub(super) fn reads(&self) -> bool {
        matches!(self.phase, Phase::Reading { .. })
    }

    /// What is written now has its SEQs behind all that a broker may have lost.
    fn may_write(&self) -> bool {
        self.look.remote.is_some_and(|remote| remote.broker == self.epoch.broker)
    }

    /// Names this run of this node.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// The message that was read last.
    pub(super) fn read(&self) -> u64 {
        self.position.read
    }

    /// Why this node takes no changes, if it takes none.
    pub(super) fn not_ready(&self) -> Option<NotReady> {
        if self.is_open() {
            return None;
        }
        let max = self.intake.payload_max();
        Some(match self.phase {
            Phase::Disconnected(_) | Phase::Faulted { is_connected: false, .. } => {
                NotReady::Disconnected
            }
            Phase::Faulted { seq, .. } => NotReady::OtherVersion { seq },
            Phase::OtherCluster { theirs } => {
                NotReady::OtherCluster { theirs, ours: self.cluster().unwrap_or_default() }
            }
            _ if self.writer.too_large(max).is_some() => {
                NotReady::TooLarge { bytes: self.writer.too_large(max).unwrap_or(max), max }
            }
            Phase::NeedsSnapshot(Want { epoch, .. }) => NotReady::NeedsSnapshot { epoch },
            Phase::Suspecting(Suspicion { why, .. }) => {
                NotReady::Suspecting { why, read: self.position.read }
            }
            Phase::StartingEpoch { .. } => NotReady::StartingEpoch,
            _ if self.staging.is_some() => NotReady::Bootstrapping,
            Phase::Inspecting | Phase::Reading { .. } => NotReady::Inspecting,
        })
    }

    fn stop_reading(&mut self) {
        if self.reads() {
            self.phase = Phase::Inspecting;
        }
        self.show();
    }

    /// A node of another version wrote the message `seq`. Reads nothing from there on, until the
    /// log has another message there, or begins an epoch behind it.
    fn stop_before(&mut self, seq: u64) {
        self.phase = Phase::Faulted { seq, is_connected: true };
        self.show();
    }

    /// Opens a consumer, unless the one before has delivered nothing within the last second.
    fn read_on(&mut self, now_ms: u64) {
        if now_ms >= self.look.consumer_at_ms && !matches!(self.phase, Phase::Faulted { .. }) {
            self.phase = Phase::Reading { overdue_ms: None };
            self.look.consumer_at_ms = now_ms + LOOK_MS;
            self.actions.push_back(Action::Read { from: self.position.first_to_read() });
        }
        self.show();
    }

    /// The life that began there is read.
    fn read_life(&mut self, began: u64, epoch: Epoch, now_ms: u64) {
        // What is skipped may have anything in it.
        self.late.extend(self.writer.forget(&self.intake));
        self.position = LogPosition::before(began, epoch);
        self.phase = Phase::Inspecting;
        (self.epoch.mapping, self.staging) = (SequenceMapping::default(), None);
        self.read_on(now_ms);
    }

    /// The log is to be read behind what is in the hub. Returns whether that is in it.
    fn place(&mut self, line: &SequenceMapping, began: u64) -> bool {
        let seq = self.hub.id(self.hub.seq()).seq;
        let is_of_line = !line.contradicts(&self.hub.rolled_back());
        let Some(at) = line.message_of(seq).filter(|_| is_of_line) else { return false };
        self.position = LogPosition::behind(at, is_whole(seq), began);
        self.epoch.mapping = line.upto(self.position.read);
        self.hub.follow_rolled_back(&line.upto(at).lost());
        true
    }

    fn show(&mut self) {
        let is_open = self.is_open();
        if is_open {
            self.local.values = Values::FromLog;
            self.cluster.join();
        }
        self.intake.set_open(self.not_ready());
    }

    /// One look is under way at a time, so that a log which says nothing is found out.
    fn look(&mut self, now_ms: u64) {
        self.look.at_ms = now_ms + LOOK_MS;
        if let Some(pending) = &mut self.look.pending {
            pending.is_outdated = true;
        } else if self.phase.is_connected() {
            let (token, read) = (self.writer.next_token(), self.read());
            let (at, hash) = match self.position.before_jump {
                Some((at, hash)) => (at, Some(hash)),
                None => (read, self.position.hash),
            };
            let last = self.look.remote.map_or(0, |remote| remote.last);
            let is_outdated = false;
            self.look.pending = Some(PendingLook { token, read, at, hash, last, is_outdated });
            self.actions.push_back(Action::Look { at, token });
        }
    }

    /// How the log is.
    pub(super) fn handle_looked(&mut self, token: u64, looked: &Looked, now_ms: u64) {
        let Some(asked) = self.look.pending.take_if(|it| it.token == token) else { return };
        if asked.is_outdated {
            return self.look(now_ms);
        }
        if matches!(self.phase, Phase::Disconnected(_) | Phase::StartingEpoch { .. }) {
            return;
        }
        self.phase = self.phase.look(self.next(&asked, looked));
        let Looked { broker, unix_ms, last, life_last, .. } = *looked;
        self.look.remote = Some(Remote { broker, unix_ms, last, life_last });
        if self.is_overdue(&asked, looked, now_ms) {
            self.look.given_up += 1;
            self.read_on(now_ms);
        }
        let Some((life_seq, bytes, _)) = &looked.life else {
            return self.handle_no_life(looked, asked, now_ms);
        };
        match decode(bytes) {
            Ok(LogMessage { epoch, body: MessageBody::Epoch(turn), .. }) => {
                self.look.no_epoch_ms = None;
                if !self.cluster.may_join(turn.cluster) {
                    self.phase = Phase::OtherCluster { theirs: turn.cluster };
                    return self.show();
                }
                if self.cluster() != Some(turn.cluster) {
                    self.cluster = ClusterName::FromLog(turn.cluster);
                }
                self.handle_life(
                    looked,
                    asked,
                    &CurrentEpoch { seq: *life_seq, epoch, turn },
                    now_ms,
                );
            }
            Err(Unreadable::OtherVersion) => self.stop_before(*life_seq),
            _ => self.handle_no_life(looked, asked, now_ms),
        }
        self.show();
    }

    fn handle_life(
        &mut self,
        looked: &Looked,
        asked: PendingLook,
        life: &CurrentEpoch,
        now_ms: u64,
    ) {
        let (began, line) = life.turn.life(life.seq);
        let next = self.next(&asked, looked);
        if self.local.divergence.is_some() && self.hub.epoch() == life.epoch {
            // It may have lost more since.
            self.keep_lost(&line, now_ms);
        }
        if self.epoch.past.contains(&life.epoch) {
            // The log went back to before.
            return self.suspect(IS_PAST, now_ms);
        }
        if self.epoch() != Some(life.epoch) {
            let is_deleted = asked.read + 1 == began && next > began;
            return self.change_epoch(looked, life.epoch, (began, is_deleted), now_ms);
        }
        (self.epoch.began, self.epoch.since_ms) = (began, life.turn.since_ms);
        if !self.position.placement.is_known() && self.staging.is_none() {
            if !self.place(&line, began) {
                return self.leave(&line, now_ms);
            }
        } else if let Some(jump) = line.lacked_by(&self.epoch.mapping, asked.read) {
            return self.leave_at(jump, &line, (&asked, looked), now_ms);
        }
        self.position.before_jump = None;
        let differs = self.differs(&asked, looked);
        if differs || looked.last < self.read().min(asked.read).max(self.position.known_last) {
            let why = if differs { DIFFERS } else { ENDS };
            return self.suspect(why, now_ms);
        }
        self.local.divergence = None;
        self.phase = self.phase.take_back(self.position.lacks_before(next));
        if self.position.lacks_before(next) {
            return self.miss(life.epoch, looked.last, now_ms);
        }
        self.skip_to(next, &line);
        if life.seq <= self.read() {
            self.epoch.broker = life.turn.broker;
        }
        if !self.reads() {
            self.read_on(now_ms);
        }
        self.go_on(looked, life, now_ms);
    }

    /// The log is of an epoch that this node does not read. That begins at the message `began`.
    fn change_epoch(
        &mut self,
        looked: &Looked,
        epoch: Epoch,
        (began, is_deleted): (u64, bool),
        now_ms: u64,
    ) {
        let is_kept = (looked.first..=looked.last).contains(&began);
        let is_there = self.position.placement != Placement::NotThere(epoch);
        if self.reads() && began > self.read() && began <= looked.last {
            // The consumer delivers its record.
        } else if !is_there && self.read() + 1 == began {
            self.miss(epoch, looked.last, now_ms);
        } else if is_kept && !is_deleted {
            self.read_life(began, epoch, now_ms);
        } else if self.is_alone(now_ms) {
            self.turn(now_ms);
        } else {
            self.want(epoch, looked.last, now_ms);
        }
    }

    /// Whether the log has another message than the one that this node has read or has changes of.
    fn differs(&self, asked: &PendingLook, looked: &Looked) -> bool {
        matches!((asked.hash, looked.at), (Some(ours), Some(at)) if ours != at)
            || self.position.placement == Placement::Contradicted
    }

    /// The log does not say which life it is in.
    fn handle_no_life(&mut self, looked: &Looked, asked: PendingLook, now_ms: u64) {
        let is_new = !self.has_all() && self.staging.is_none();
        let here = self.hub.rolled_back();
        if is_new
            || self.local.has_diverged
            || !self.position.placement.is_known() && !self.place_without_record()
        {
            // A node that knows the life says it again, but not in an empty log.
            if looked.last == 0 || self.is_bare(now_ms) {
                self.turn(now_ms);
            }
            return;
        }
        // One that was deleted says nothing; one that is unknown here is compared when it is read.
        let differs = self.differs(&asked, looked);
        let has_all =
            looked.last >= asked.read.max(self.position.known_last) && self.staging.is_none();
        if differs || !has_all || looked.last == 0 {
            let why = if has_all { DIFFERS } else { ENDS };
            return self.suspect(why, now_ms);
        }
        let next = self.next(&asked, looked);
        let line = match self.read() < self.position.applied {
            true => SequenceMapping::of_lost(&here),
            false => self.epoch.mapping.clone(),
        };
        if self.position.lacks_before(next) {
            return self.miss(self.hub.epoch(), looked.last, now_ms);
        }
        self.skip_to(next, &line);
        // A node that has read what is behind the place of this one may know of jumps there.
        let is_behind = looked.last > self.position.known_last;
        if is_behind && self.local.values == Values::FromDisk && !self.is_bare(now_ms) {
            return;
        }
        let jumps = !self.may_write();
        self.say_again(self.epoch.mapping.clone(), jumps);
    }

    /// Whether the log has had no epoch record for a while: no node seems to know the epoch.
    fn is_bare(&mut self, now_ms: u64) -> bool {
        now_ms >= *self.look.no_epoch_ms.get_or_insert(now_ms) + BARE_PATIENCE_MS
    }

    /// Looks after the life that is.
    fn go_on(&mut self, looked: &Looked, life: &CurrentEpoch, now_ms: u64) {
        if matches!(self.phase, Phase::Faulted { .. }) {
            return;
        }
        // Before it is not kept any more.
        let is_old = looked.life.as_ref().is_some_and(|(.., is_old)| *is_old);
        let is_other = life.turn.broker != looked.broker;
        // Another client's message hides the epoch record from nodes that start.
        let is_hidden = looked.life_last != life.seq;
        match &self.staging {
            // Of the seeds some may be lost, and who has none waits for those who do.
            Some(staging) => {
                let is_late = now_ms >= staging.heard_ms + SEED_PATIENCE_MS;
                if is_late || is_other && self.has_all() {
                    self.turn(now_ms);
                }
            }
            None => {
                let (_, line) = life.turn.life(life.seq);
                let own = &self.epoch.mapping;
                // A node that has lost a part of the epoch has said it again.
                let is_short = life.seq <= self.read() && own.lacked_by(&line, life.seq).is_some();
                if is_old || is_other || is_short || is_hidden {
                    let line = if is_short { own.clone() } else { line };
                    self.say_again(line, is_other || is_short);
                }
            }
        }
        self.write(now_ms);
    }
}

/// What a message is compared by.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// What became of a log that lacks something.
const ENDS: &str = "ends before what was read";
const DIFFERS: &str = "has other messages than were read";
const IS_PAST: &str = "has gone back to before what was read";

/// How often it is looked whether the log is still the one that was read.
const LOOK_MS: u64 = 1_000;

/// A node that appends an epoch record looks at the log again after this time.
const TURN_PATIENCE_MS: u64 = 5_000;

/// How long it is waited for somebody who knows which life the log is in.
const BARE_PATIENCE_MS: u64 = 5_000;

/// How long whoever begins a life may say nothing before another one does.
const SEED_PATIENCE_MS: u64 = 10_000;

/// How long it is waited for somebody who has what the order is.
const ALONE_MS: u64 = 10_000;

#[cfg(test)]
mod tests;
