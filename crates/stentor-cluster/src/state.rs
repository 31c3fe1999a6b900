//! How it is with a node of a cluster, and its threads.

use crate::nats::{self, Broker, Fetch};
use crate::protocol::ClusterNode;
use crate::saving::{Saving, read_cluster, read_saved};
use crate::waiting::ClusterIntake;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use stentor_config::Cluster as Settings;
use stentor_hub::{Epoch, Hub};
use stentor_io::{Counter, HostDisk, Waker, monotonic_us, unix_s};
use stentor_order::{Applier, NotReady, OrderKind, Report, Sequencer, metrics};
use stentor_replication::{agent, authorization, snapshot_of};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::rejections;
use ureq::Agent;

/// How it is with the cluster, for all who ask.
pub struct ClusterState {
    pub(crate) settings: Settings,
    /// What waits for the broker.
    pub intake: Arc<ClusterIntake>,
    /// Wakes the thread that talks to the broker.
    pub(crate) waker: Arc<Waker>,
    pub(crate) ends: AtomicBool,
    /// All of the order was here once, or there is nothing better to be had. Each request asks.
    pub(crate) has_all: AtomicBool,
    pub(crate) reconnects: Counter,
    pub(crate) snapshots: Counter,
    /// Messages of the stream that the node skipped.
    pub(crate) skipped: Counter,
    /// Pages ask for it, and workers once a second.
    pub(crate) status: Mutex<NodeStatus>,
}

/// What the node's thread knows. Times are on the clock of [`monotonic_us`].
#[derive(Default)]
pub(crate) struct NodeStatus {
    pub(crate) is_connected: bool,
    /// Why the node takes no changes. The node is asked for this after a connection ends, so it may
    /// be `None` for a moment longer.
    pub(crate) not_ready: Option<NotReady>,
    pub(crate) freshness: Freshness,
    log: LogCounters,
    /// Names the cluster, once the node has been open.
    pub(crate) cluster: Option<u64>,
    /// When the node last saved its values to the disk.
    saved_us: Option<u64>,
    problems: Problems,
}

/// How current the values of a node are.
#[derive(Default)]
pub(crate) struct Freshness {
    /// When the log was last read; at first, when the node began.
    read_us: u64,
    /// When local state was last known to be current: the log's end, as seen at this time, has been
    /// applied since.
    pub(crate) here_us: u64,
    /// The message that the log ended with when it was looked at, and when that was.
    goal: u64,
    goal_us: u64,
    /// The age of the values on the disk when the node began with them. It is 0 if there were none,
    /// and once everything that the log had since is applied.
    pub(crate) old_us: u64,
}

/// The log as the node last saw it.
#[derive(Default)]
struct LogCounters {
    /// The message that was read last, and the last one of the log.
    read: u64,
    last: u64,
    /// Messages that the log had behind the last one that came.
    behind: u64,
    round_trip_us: u64,
    replicas: u32,
}

impl LogCounters {
    /// The number of messages of the stream that this node has not applied.
    fn behind(&self) -> u64 {
        self.last.saturating_sub(self.read).max(self.behind)
    }
}

/// The reasons why a node does not work as it should.
#[derive(Default)]
struct Problems {
    /// Why there is no connection,
    failure: Option<String>,
    /// and the last failure of each broker.
    failures: BTreeMap<String, String>,
    /// The last refusal of the broker, or of a peer.
    refusal: Option<String>,
    /// In which case an acknowledgement of the broker is worth less than it seems.
    warning: Option<&'static str>,
}

impl NodeStatus {
    /// Whether the node takes changes.
    pub(crate) fn is_open(&self) -> bool {
        self.not_ready.is_none()
    }

    /// Why nothing is published here, if nothing is: a sentence without its end.
    fn why(&self) -> Option<String> {
        let reason = self.not_ready?;
        let Problems { failure, refusal, .. } = &self.problems;
        let sentence = reason.to_string();
        let sentence = sentence.trim_end_matches('.');
        let detail = match reason {
            NotReady::Disconnected => failure.as_ref().or(refusal.as_ref()),
            // A broker that lets nodes in and does not serve them ends each connection.
            NotReady::Inspecting => failure.as_ref(),
            _ => refusal.as_ref(),
        };
        Some(match detail {
            Some(detail) => format!("{sentence} ({detail})"),
            None => sentence.to_owned(),
        })
    }

    /// What `/-/readyz/publish` says of it.
    fn rejection(&self) -> Option<Rejection> {
        let (reason, why) = (self.not_ready?, self.why()?);
        Some(Rejection::because(reason.code(), format!("{why}.")))
    }

    /// The same behind a colon.
    fn because(&self) -> String {
        self.why().map_or_else(String::new, |why| format!(": {why}"))
    }

    /// The age of the values on the disk in seconds; `None`: none were saved.
    fn saved_s(&self) -> Option<u64> {
        self.saved_us.map(|saved_us| since(saved_us) / 1_000_000)
    }
}

impl Freshness {
    fn now() -> Freshness {
        Freshness { read_us: monotonic_us(), here_us: monotonic_us(), ..Freshness::default() }
    }

    /// How old what is here may be.
    pub(crate) fn age_us(&self) -> u64 {
        since(self.here_us) + self.old_us
    }

    /// All that it began with is on the disk, and of what came since something is not here yet.
    pub(crate) fn is_old(&self) -> bool {
        self.old_us > 0
    }
}

impl ClusterState {
    /// The state of a node that is about to begin with these settings. Made before any worker has a
    /// file table of its own: each needs the waker.
    ///
    /// # Errors
    /// The system has no file for the waker.
    pub fn new(settings: &Settings) -> io::Result<ClusterState> {
        let (intake, waker) = (ClusterIntake::new(), Arc::new(Waker::new()?));
        intake.set_waker(Arc::clone(&waker));
        Ok(ClusterState {
            settings: settings.clone(),
            intake: Arc::new(intake),
            waker,
            ends: AtomicBool::new(false),
            has_all: AtomicBool::new(false),
            reconnects: Counter::default(),
            snapshots: Counter::default(),
            skipped: Counter::default(),
            status: Mutex::new(NodeStatus {
                not_ready: Some(NotReady::Disconnected),
                freshness: Freshness::now(),
                ..NodeStatus::default()
            }),
        })
    }

    /// All of the order is here, or was once; or as much as there is while no broker is to be had.
    pub(crate) fn has_all(&self) -> bool {
        self.has_all.load(Ordering::Acquire)
    }

    pub(crate) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    pub(crate) fn connected(&self, is_connected: bool) {
        self.status().is_connected = is_connected;
    }

    /// Says once why there is no connection, not each time it is tried again.
    pub(crate) fn note_failure(&self, url: &str, reason: &str) {
        self.reconnects.add(1);
        let why = format!("{url}: {reason}");
        let mut status = self.status();
        if status.problems.failures.insert(url.to_owned(), reason.to_owned()).as_deref()
            != Some(reason)
        {
            tracing::warn!("the broker {why}");
        }
        status.problems.failure = Some(why);
    }

    pub(crate) fn note_refusal(&self, reason: &str) {
        let mut status = self.status();
        if status.problems.refusal.as_deref() != Some(reason) {
            tracing::warn!("refused: {reason}");
            status.problems.refusal = Some(reason.to_owned());
        }
    }

    /// Counts a message that the node skipped. Warns of the first: its publisher may send a
    /// thousand more.
    pub(crate) fn note_skipped(&self, seq: u64, subject: &str, why: &str) {
        if self.skipped.value() == 0 {
            tracing::warn!(
                "message {seq} of the stream is skipped, and so are others like it: {why}; its \
                 subject is {subject}. Let other clients publish nothing under {}.> (see \"Who \
                 may talk to it\" in the documentation of clusters)",
                self.settings.stream.as_str()
            );
        }
        self.skipped.add(1);
    }

    pub(crate) fn note(&self, node: &ClusterNode) {
        let mut status = self.status();
        let not_ready = node.not_ready();
        let before = mem::replace(&mut status.not_ready, not_ready);
        // mutation: always-old-values
        if node.reads() {
            status.freshness.read_us = monotonic_us();
        }
        if not_ready.is_none() && before.is_some() {
            // Not before: a broker may take every connection, and be of no use.
            let warning = status.problems.warning;
            status.problems = Problems { warning, ..Problems::default() };
            let (read, epoch) = (node.read(), node.epoch().map(|it| it.to_string()));
            let epoch = epoch.unwrap_or_default();
            tracing::info!("the cluster's stream is read, of EPOCH {epoch}, at message {read}");
        } else if let Some(reason) = not_ready.filter(|_| not_ready != before) {
            match reason {
                NotReady::StartingEpoch
                    if matches!(before, Some(NotReady::NeedsSnapshot { .. })) =>
                {
                    tracing::error!(
                        "The stream lacks messages, and no other node that is reached has read \
                         them: a new EPOCH begins with the values of this node, and readers \
                         receive a gap."
                    );
                }
                // Each lasts a moment, and the end of a connection has a line of its own.
                NotReady::Disconnected
                | NotReady::Inspecting
                | NotReady::StartingEpoch
                | NotReady::Bootstrapping => {}
                // A node that starts often waits for a peer. If no peer gives a snapshot, that has
                // a line of its own.
                NotReady::NeedsSnapshot { .. } if before.is_some() => {}
                _ => tracing::error!("{reason}"),
            }
        }
        if not_ready.is_none() {
            status.cluster = node.cluster();
        }
        status.log.read = node.read();
        self.note_what_is_here(&mut status);
    }

    pub(crate) fn note_what_is_here(&self, status: &mut NodeStatus) {
        let Freshness { read_us, goal, goal_us, .. } = status.freshness;
        // mutation: early-old-values
        if status.is_open() && status.log.read >= goal {
            (status.freshness.here_us, status.freshness.old_us) = (goal_us, 0);
            self.has_all.store(true, Ordering::Release);
        } else if status.freshness.is_old()
            && since(read_us) >= ALONE_US
            && !matches!(status.not_ready, Some(NotReady::OtherCluster { .. }))
        {
            // While the log can be read, the snapshot of the disk is not served: catching up
            // replaces it soon. Without the log it is better than nothing.
            if !self.has_all.swap(true, Ordering::AcqRel) {
                let age_s = status.freshness.age_us() / 1_000_000;
                let because = status.because();
                tracing::warn!("what is served may be {age_s} s old{because}");
            }
        }
    }

    /// It began with what was kept so long ago.
    pub(crate) fn note_begun(&self, old_s: u64) {
        let freshness = &mut self.status().freshness;
        freshness.old_us = (old_s * 1_000_000).max(1);
        (freshness.read_us, freshness.here_us) = (monotonic_us(), monotonic_us());
    }

    /// What the stream is, and what it is not worth.
    pub(crate) fn note_stream(&self, replicas: u32, warning: Option<&'static str>) {
        let mut status = self.status();
        if let Some(warning) = warning.filter(|_| status.problems.warning != warning) {
            tracing::warn!("{warning}");
        }
        (status.log.replicas, status.problems.warning) = (replicas, warning);
    }

    /// The log ended with this message at that time, or a moment later.
    pub(crate) fn note_last(&self, last: u64, looked_us: u64) {
        let mut status = self.status();
        status.log.last = last;
        // Whoever does not keep up has one all the same, until that is read.
        if status.log.read >= status.freshness.goal || last < status.freshness.goal {
            (status.freshness.goal, status.freshness.goal_us) = (last, looked_us);
        }
    }

    pub(crate) fn note_behind(&self, behind: u64) {
        self.status().log.behind = behind;
    }

    pub(crate) fn note_round_trip(&self, us: u64) {
        self.status().log.round_trip_us = us;
    }

    pub(crate) fn note_snapshot(&self) {
        self.snapshots.add(1);
    }

    pub(crate) fn note_saved(&self) {
        self.status().saved_us = Some(monotonic_us());
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, NodeStatus> {
        stentor_io::lock(&self.status)
    }
}

impl Report for ClusterState {
    fn order(&self) -> (OrderKind, Arc<dyn Sequencer>) {
        (OrderKind::Cluster, self.intake.clone())
    }

    fn name(&self) -> &'static str {
        "cluster"
    }

    fn figures(&self, hub: &Hub) -> Vec<(&'static str, Value)> {
        let status = self.status();
        vec![
            ("connected", status.is_connected.into()),
            ("open", status.is_open().into()),
            ("failure", status.why().into()),
            ("cluster", status.cluster.map(shown).into()),
            ("position", hub.id(hub.seq()).to_string().into()),
            ("message", status.log.read.into()),
            ("behind", status.log.behind().into()),
            ("round_trip_us", status.log.round_trip_us.into()),
            ("waiting_bytes", self.intake.bytes().into()),
            ("replicas", status.log.replicas.into()),
            ("warning", status.problems.warning.into()),
            ("skipped", self.skipped.value().into()),
            ("reconnects", self.reconnects.value().into()),
            ("snapshots", self.snapshots.value().into()),
            ("saved_s", status.saved_s().into()),
        ]
    }

    metrics! { |self, _hub, status|
        /// Whether the broker is there, and takes what is published.
        Gauge cluster_up [=> status.is_open()];
        /// Messages of the broker's stream that are not here yet; each has up to 1,023 changes.
        Gauge cluster_behind [=> status.log.behind()];
        /// From sending a message to the broker until it has said that it has it.
        Gauge cluster_round_trip_seconds [=> status.log.round_trip_us as f64 / 1e6];
        /// Bytes of changes that wait for the broker.
        Gauge cluster_waiting_bytes [=> self.intake.bytes()];
        /// Messages of the broker's stream that no node wrote, and that were skipped.
        Counter cluster_skipped_total [=> self.skipped.value()];
        /// Connections to brokers that came to an end, or to nothing.
        Counter cluster_reconnects_total [=> self.reconnects.value()];
        /// Snapshots that were taken of other nodes.
        Counter cluster_snapshots_total [=> self.snapshots.value()];
        /// How long ago what is here was kept on the disk.
        Gauge cluster_saved_age_seconds [=> status.saved_s()];
    }

    fn may_answer(&self) -> Result<(), Rejection> {
        let has_all = self.has_all().then_some(());
        has_all.ok_or(LOADING)
    }

    fn complaint(&self) -> Option<Rejection> {
        let status = self.status();
        let because = status.because();
        if !self.has_all() {
            let detail = format!("Nothing was had of the cluster yet{because}.");
            return Some(Rejection::because(ErrorCode::ClusterLoading, detail));
        }
        let age_us = status.freshness.age_us();
        let is_too_old = age_us >= AGE_USUAL_US && age_us / 1_000 > self.settings.stale_max_ms;
        let age_s = age_us / 1_000_000;
        is_too_old.then(|| {
            let detail = format!("What is here may be {age_s} s old{because}.");
            Rejection::because(ErrorCode::ClusterStale, detail)
        })
    }

    fn publish_complaints(&self) -> Vec<Rejection> {
        // The lock is free again before the next line takes it.
        let why = self.status().rejection();
        let why = why.filter(|_| self.complaint().is_none());
        let is_full = self.intake.is_full().then_some(BROKER_BEHIND);
        why.into_iter().chain(is_full).collect()
    }

    fn age_ms(&self) -> u64 {
        self.status().freshness.age_us() / 1_000
    }

    /// `None`: it is as the log says.
    fn stale_s(&self) -> Option<u64> {
        let age_us = self.status().freshness.age_us();
        (age_us >= AGE_USUAL_US).then_some(age_us / 1_000_000)
    }
}

/// Talks to the broker for as long as it is kept, and a moment longer.
pub struct ClusterThread {
    state: Arc<ClusterState>,
    /// It writes a last snapshot when this ends. The thread that applies messages may still apply
    /// some while that is written; the next start reads those from the log.
    saving: Option<Saving>,
}

impl ClusterThread {
    /// The node begins with its snapshot on `disk`, if there is one.
    ///
    /// # Errors
    /// There is no thread to be had, or a file cannot be read that is shown to the broker or its
    /// peers, or by which they are known.
    pub fn start(
        state: &Arc<ClusterState>,
        applier: &Applier,
        disk: Option<HostDisk>,
    ) -> io::Result<ClusterThread> {
        check(&state.settings).map_err(io::Error::other)?;
        let seed = u64::from(Epoch::random().number()) << 32 | u64::from(Epoch::random().number());
        let (hub, intake) = (Arc::clone(applier.hub()), Arc::clone(&state.intake));
        let mut node = ClusterNode::new(hub, intake, seed, applier.on_applied());
        let fetch = fetch(&state.settings).map_err(io::Error::other)?;
        let of_thread = (Arc::clone(state), disk.clone());
        let begin = move || {
            let (state, disk) = of_thread;
            disk.iter().for_each(|disk| begin_with(&mut node, disk, &state));
            Broker::new(state, node, fetch).run();
        };
        thread::Builder::new().name("cluster".to_owned()).spawn(begin)?;
        let saving =
            disk.map(|disk| Saving::start(disk, Arc::clone(applier.hub()), Arc::clone(state)));
        Ok(ClusterThread { state: Arc::clone(state), saving: saving.transpose()? })
    }
}

impl Drop for ClusterThread {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::Relaxed);
        self.saving = None;
    }
}

/// Has a node begin with what it kept when it ran before.
fn begin_with(node: &mut ClusterNode, disk: &HostDisk, state: &ClusterState) {
    let begun_us = monotonic_us();
    let kept = read_saved(disk, |epoch| node.stage(epoch));
    let named =
        read_cluster(disk).map(|cluster| cluster.into_iter().for_each(|it| node.set_cluster(it)));
    let begun = named.and(kept).and_then(|kept| match kept {
        Some((kept, as_of_unix_s)) => {
            // A clock that is behind that is wrong, by as much at least.
            // mutation: clock-behind
            let old_s = unix_s().abs_diff(as_of_unix_s);
            let topics = node.begin_with(kept).map_err(|error| error.to_string())?;
            Ok(Some((topics, old_s)))
        }
        None => Ok(None),
    });
    let took_ms = (monotonic_us() - begun_us) / 1_000;
    match begun {
        Ok(Some((topics, old_s))) => {
            state.note_begun(old_s);
            tracing::info!("{topics} topics were read from the disk in {took_ms} ms")
        }
        Ok(None) => {}
        Err(reason) => tracing::warn!(
            "the snapshot of this node cannot be used: {reason}; what it had is read from the \
             stream, or had of cluster.peers"
        ),
    }
}

/// Whether all files can be read that a node of a cluster needs to reach others.
///
/// # Errors
/// One sentence.
pub fn check(settings: &Settings) -> Result<(), String> {
    if !settings.is_on() {
        return Ok(());
    }
    // mutation: unread-peer-token
    settings.peer_token_file.iter().try_for_each(|file| authorization(file).map(drop))?;
    agent_of(settings)?;
    nats::check(settings)
}

/// What asks peers.
fn agent_of(settings: &Settings) -> Result<Agent, String> {
    // mutation: peer-certificates
    agent(&settings.peers, settings.peer_ca_file.as_deref(), "cluster.peer_ca_file")
}

/// How snapshots of peers are had: of each in turn, until one has the life that is wanted.
fn fetch(settings: &Settings) -> Result<Fetch, String> {
    let agent = agent_of(settings)?;
    if settings.peers.is_empty() {
        tracing::info!(
            "cluster.peers names no other node: where the stream does not reach back, after \
             cluster.keep, nothing can be begun with"
        );
    }
    let (peers, token_file) = (settings.peers.clone(), settings.peer_token_file.clone());
    let mut at = 0;
    Ok(Box::new(move |staged| {
        let peer = peers.get(at % peers.len().max(1)).ok_or("cluster.peers names no other node")?;
        at += 1;
        let taken = snapshot_of(&agent, peer.as_str(), token_file.as_deref(), staged);
        taken.map_err(|reason| format!("{peer}: {reason}"))
    }))
}

/// The name of a cluster as `/-/status` shows it.
fn shown(cluster: u64) -> String {
    format!("{cluster:016x}")
}

/// For how long something did not happen.
fn since(us: u64) -> u64 {
    monotonic_us().saturating_sub(us)
}

rejections! {
    LOADING: ClusterLoading = "Nothing was had of the cluster yet: try again in a while.";
    BROKER_BEHIND: BrokerOverloaded =
        "The broker is slower than what is published: its queue is full.";
}

/// A broker that is away for a moment is nothing to speak of.
const AGE_USUAL_US: u64 = 3_000_000;

/// So long whoever has begun with its disk looks for a log to read: until all workers say that what
/// they serve is old, which they see once a second.
const ALONE_US: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Checksum, EpochRecord, Growing, Of};
    use crate::log::{Action, Looked};
    use stentor_hub::Limits;

    #[test]
    fn what_is_past_is_not_told_as_the_present() {
        let state = ClusterState::new(&Settings::default()).unwrap();
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        let mut node = ClusterNode::new(hub, Arc::clone(&state.intake), 7, Box::new(|_| {}));
        let life = Epoch::from_number(2);
        let turn = EpochRecord {
            before: None,
            has_seed: false,
            broker: 5,
            since_ms: 0,
            cluster: 1,
            again: None,
        };
        let turn = turn.encode((life, 9, 0));
        node.handle_connected(0);
        let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
        let seen = Some((1, turn.clone(), false));
        state.note_last(3, monotonic_us());
        let looked = Looked { broker: 5, first: 1, last: 3, life: seen, ..Looked::default() };
        node.handle_looked(token, &looked, 0);
        assert_eq!(node.poll(), Some(Action::Read { from: 1 }));
        node.handle_message(1, &turn, 0);
        // Not even that of the disk, for as long as the log is read.
        state.note_begun(50);
        state.status().freshness.read_us -= ALONE_US;
        for seq in [2, 3] {
            state.note(&node);
            assert!(node.is_open() && !state.has_all(), "{seq}");
            assert!(state.complaint().is_some());
            let of = Of { read: Checksum::default(), jump: 0, since: None };
            node.handle_message(seq, &Growing::new().into_batch((life, 9, seq - 1), of), 0);
        }
        state.note(&node);
        assert!(state.has_all() && state.complaint().is_none());
        // From then on there is something to be told, also if there is more.
        let now_us = monotonic_us();
        state.note_last(9, now_us - 2_000_000);
        state.note(&node);
        assert!(state.has_all() && state.stale_s().is_none());
        // It is as old as what was read of it, and not older because there is always more.
        state.status().freshness.here_us = now_us - 3_000_000;
        state.note(&node);
        assert_eq!(state.stale_s(), Some(3));
        state.note_last(12, now_us);
        let of = Of { read: Checksum::default(), jump: 0, since: None };
        for seq in 4..10 {
            node.handle_message(seq, &Growing::new().into_batch((life, 9, seq - 1), of), 0);
        }
        state.note(&node);
        assert!((2_000_000..3_000_000).contains(&state.status().freshness.age_us()));
        // If the log ends before that now, that is all there is.
        state.note_last(12, now_us);
        state.note_last(9, now_us);
        state.note(&node);
        assert!(state.status().freshness.age_us() < 2_000_000);
    }

    #[test]
    fn what_is_old_is_told_as_such_and_only_where_nothing_newer_is_to_be_had() {
        let state = ClusterState::new(&Settings::default()).unwrap();
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        let mut node = ClusterNode::new(hub, Arc::clone(&state.intake), 7, Box::new(|_| {}));
        let pass = |us: u64, node: &ClusterNode| {
            state.status().freshness.read_us -= us;
            state.status().freshness.here_us -= us;
            state.note(node);
        };
        // Whoever has nothing serves nothing, however long it takes.
        pass(2 * ALONE_US, &node);
        assert!(!state.has_all());
        let kept = node.stage(Epoch::from_number(2));
        node.begin_with(kept).unwrap();
        state.note_begun(50);
        pass(0, &node);
        assert!(state.status().freshness.is_old() && !state.has_all());
        pass(ALONE_US, &node);
        assert!(state.status().freshness.is_old() && state.has_all());
        assert!((55..60).contains(&state.stale_s().unwrap()));
        assert_eq!(state.complaint(), None);
        pass(10_000_000, &node);
        assert!(state.complaint().unwrap().detail.starts_with("What is here may be 65 s old"));
    }

    #[test]
    fn of_a_thread_that_panics_readers_and_publishers_hear() {
        let state = Arc::new(ClusterState::new(&Settings::default()).unwrap());
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        let node = ClusterNode::new(hub, Arc::clone(&state.intake), 7, Box::new(|_| {}));
        state.status().not_ready = None;
        state.connected(true);
        let fetch: Fetch = Box::new(|_| Err(String::new()));
        let broker = Broker::new(Arc::clone(&state), node, fetch);
        let thread = thread::spawn(move || {
            let _broker = broker;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        assert!(!state.status().is_open());
        assert!(state.complaint().unwrap().detail.contains("has panicked"));
    }

    #[test]
    fn what_is_wrong_now_is_said_and_not_what_was() {
        let state = ClusterState::new(&Settings::default()).unwrap();
        let why = |not_ready| {
            state.status().not_ready = Some(not_ready);
            state.status().why().unwrap()
        };
        assert!(why(NotReady::Disconnected).ends_with("serves this node"));
        state.note_failure("nats://a:1", "it is away");
        assert!(why(NotReady::Disconnected).ends_with("this node (nats://a:1: it is away)"));
        // It is there again, and something else is wrong.
        let suspects = NotReady::Suspecting { why: "ends early", read: 7 };
        assert!(!why(suspects).contains("nats://"));
        state.note_refusal("http://b: 401");
        let wants = NotReady::NeedsSnapshot { epoch: Epoch::from_number(1) };
        assert!(why(wants).ends_with("has given one (http://b: 401)"));
        assert!(state.complaint().unwrap().detail.ends_with("given one (http://b: 401)."));
        // One that lets a node in and does not serve it is not better than before.
        assert!(why(NotReady::Inspecting).ends_with("(nats://a:1: it is away)"));
        state.status().not_ready = None;
        assert_eq!(state.status().why(), None);
    }

    #[test]
    fn what_peers_are_shown_and_known_by_is_read_at_the_start() {
        let file = |text: &str| Some(std::path::PathBuf::from(text));
        let settings = Settings {
            nats: vec!["nats://b".parse().unwrap()],
            peers: vec!["https://c".parse().unwrap()],
            ..Settings::default()
        };
        let shown = Settings { peer_token_file: file("/nowhere/token"), ..settings.clone() };
        assert!(check(&shown).unwrap_err().contains("/nowhere/token: there is no such file"));
        let known = Settings { peer_ca_file: file("/nowhere/ca"), ..settings };
        assert!(check(&known).unwrap_err().contains("/nowhere/ca: No such file"));
    }
}
