//! A server that follows another one: what is published there is here, under the same ids.
//!
//! One thread keeps a connection to a leader and applies what comes; nothing of it is in the
//! workers, who serve what is in the hub as they do anywhere. What the two say to each other, and
//! what is made of it, is in `protocol.rs`, which knows no socket; the connections, and how long to
//! wait between them, are in `leader.rs`.
//!
//! While nobody can be followed, what is here is served on, and every answer says since when
//! (`Stentor-Stale`). Nothing is published here: the order is made elsewhere.

mod leader;
mod protocol;

pub use leader::{agent, authorization, snapshot_of};
pub use protocol::SnapshotReader;

use serde_json::Value;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use stentor_config::Follow as Settings;
use stentor_hub::{Entry, Epoch, Hub};
use stentor_io::{Counter, WaitingThread, monotonic_us};
use stentor_order::{
    Applier, Commit, CommitError, OrderKind, Report, ReturnAddress, Sequencer, metrics,
};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::rejections;

/// How it is with whoever is followed, for all who ask.
#[derive(Default)]
pub struct FollowState {
    settings: Settings,
    /// Of this process, so that it knows itself.
    own: String,
    /// Those on the way to where the order is made: the leader's, and its leader's.
    via: Mutex<String>,
    /// All that a leader has was here once: before that there is nothing to be read.
    has_all: AtomicBool,
    /// A feed is open, and was heard of.
    is_connected: AtomicBool,
    /// When a leader was last heard, on the clock of [`monotonic_us`]; at first, when it began.
    heard_us: AtomicU64,
    /// Who is followed, or was tried last; and why it could not be.
    leader: Mutex<(String, Option<String>)>,
    /// Connections that came to an end.
    reconnects: Counter,
    snapshots: Counter,
    /// Bytes of feeds and snapshots.
    bytes: Counter,
    pace: PauseGate,
}

/// Where the thread stands still while another process may go on from here.
#[derive(Default)]
struct PauseGate {
    stands_still: Mutex<bool>,
    goes_on: Condvar,
}

impl FollowState {
    /// The state of a server that is about to follow by these settings.
    pub fn new(settings: &Settings) -> FollowState {
        FollowState {
            settings: settings.clone(),
            own: format!("{}-{}", Epoch::random(), Epoch::random()),
            heard_us: AtomicU64::new(monotonic_us()),
            ..FollowState::default()
        }
    }

    /// A process before had what is in the hub, and was all that it had of a leader.
    pub fn goes_on_with(&self, hub: &Hub) {
        self.has_all.store(hub.seq() > 0, Ordering::Release);
    }

    /// Which topics are followed, to be compared.
    pub fn topics(&self) -> Vec<String> {
        self.settings.topics.iter().map(|pattern| pattern.as_str().to_owned()).collect()
    }

    /// Takes note of what a leader says of its own way. Returns whether this server is on it: then
    /// each would follow the other, and neither anybody else.
    fn leads_here(&self, via: &str) -> bool {
        let leads_here = via.split(", ").any(|process| process == self.own);
        if !leads_here {
            via.clone_into(&mut stentor_io::lock(&self.via));
        }
        leads_here
    }

    /// Returns once nothing is applied any more, until [`FollowState::go_on`].
    pub fn stand_still(&self) {
        *self.pace.lock() = true;
    }

    /// Applies changes again.
    pub fn go_on(&self) {
        *self.pace.lock() = false;
        self.pace.goes_on.notify_all();
    }

    fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    fn silence_us(&self) -> u64 {
        monotonic_us().saturating_sub(self.heard_us.load(Ordering::Relaxed))
    }

    fn leader(&self) -> MutexGuard<'_, (String, Option<String>)> {
        stentor_io::lock(&self.leader)
    }
}

impl Report for FollowState {
    fn order(&self) -> (OrderKind, Arc<dyn Sequencer>) {
        let publish_url = self.settings.publish_url.as_ref().map(|url| url.as_str().to_owned());
        (OrderKind::Leader { publish_url }, Arc::new(Elsewhere))
    }

    fn name(&self) -> &'static str {
        "follow"
    }

    fn figures(&self, hub: &Hub) -> Vec<(&'static str, Value)> {
        let (leader, failure) = self.leader().clone();
        vec![
            ("leader", leader.into()),
            ("connected", self.is_connected().into()),
            ("failure", failure.into()),
            ("position", hub.id(hub.seq()).to_string().into()),
            ("silence_ms", (self.silence_us() / 1_000).into()),
            ("reconnects", self.reconnects.value().into()),
            ("snapshots", self.snapshots.value().into()),
            ("bytes", self.bytes.value().into()),
        ]
    }

    metrics! { |self, _hub|
        /// Whether a leader is followed: 0 while there is no connection to one.
        Gauge follow_up [=> self.is_connected()];
        /// For how long nothing was heard of a leader; it says something every second.
        Gauge follow_silence_seconds [=> (self.silence_us() / 1_000) as f64 / 1e3];
        /// Connections to leaders that came to an end, or to nothing.
        Counter follow_reconnects_total [=> self.reconnects.value()];
        /// Snapshots that were taken of leaders.
        Counter follow_snapshots_total [=> self.snapshots.value()];
        /// Bytes of feeds and snapshots of leaders.
        Counter follow_bytes_total [=> self.bytes.value()];
    }

    fn may_answer(&self) -> Result<(), Rejection> {
        let has_all = self.has_all.load(Ordering::Acquire).then_some(());
        has_all.ok_or(LOADING)
    }

    fn complaint(&self) -> Option<Rejection> {
        let (leader, failure) = self.leader().clone();
        let why = failure.map_or_else(String::new, |why| format!(": {why}"));
        if self.may_answer().is_err() {
            let detail = match &*leader {
                "" => "No leader was asked for its values yet.".to_owned(),
                _ => format!("The leader {leader} has given no values yet{why}."),
            };
            return Some(Rejection::because(ErrorCode::FollowerLoading, detail));
        }
        let silence_us = self.silence_us();
        let is_too_old = silence_us / 1_000 > self.settings.stale_max_ms;
        let silence_s = silence_us / 1_000_000;
        is_too_old.then(|| {
            let detail = match &*leader {
                "" => format!("No leader has answered for {silence_s} s, and none was asked yet."),
                _ => {
                    format!("No leader has answered for {silence_s} s; the last was {leader}{why}.")
                }
            };
            Rejection::because(ErrorCode::FollowerStale, detail)
        })
    }

    fn publish_complaints(&self) -> Vec<Rejection> {
        let is_redirected = self.settings.publish_url.is_some();
        let reason = (!is_redirected).then(|| CommitError::Elsewhere.rejection());
        reason.into_iter().collect()
    }

    /// `None`: a leader was heard a moment ago.
    fn stale_s(&self) -> Option<u64> {
        let silence_us = self.silence_us();
        (silence_us >= SILENCE_USUAL_US).then_some(silence_us / 1_000_000)
    }

    fn age_ms(&self) -> u64 {
        self.silence_us() / 1_000
    }

    fn via(&self) -> Option<String> {
        let via = stentor_io::lock(&self.via);
        let comma = if via.is_empty() { "" } else { ", " };
        Some(format!("{}{comma}{via}", self.own))
    }
}

rejections! {
    LOADING: FollowerLoading = "Nothing was had of the leader yet: try again in a while.";
}

impl PauseGate {
    /// Holds up whoever has others stand still, until it is dropped.
    fn step(&self) -> MutexGuard<'_, bool> {
        let waits = |stands_still: &mut bool| *stands_still;
        self.goes_on.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        stentor_io::lock(&self.stands_still)
    }
}

/// Follows for as long as it is kept, and a moment longer.
pub struct FollowThread {
    ends: Arc<AtomicBool>,
    thread: WaitingThread,
}

impl FollowThread {
    /// Starts the thread. It waits for [`FollowThread::begin`]: the hub may not be filled yet.
    ///
    /// # Errors
    /// There is no thread to be had, or there are no certificates to know a leader by.
    pub fn start(state: &Arc<FollowState>, applier: &Applier) -> io::Result<FollowThread> {
        let ends = Arc::new(AtomicBool::new(false));
        let agent = leader::agent_of(&state.settings).map_err(io::Error::other)?;
        let (hub, on_applied) = (Arc::clone(applier.hub()), applier.on_applied());
        let (state, ended) = (Arc::clone(state), Arc::clone(&ends));
        let run = move || leader::Leaders::new(hub, on_applied, agent, state, ended).run();
        Ok(FollowThread { ends, thread: WaitingThread::start("follow", run)? })
    }

    /// Has the thread follow from now on.
    pub fn begin(&self) {
        self.thread.begin();
    }
}

impl Drop for FollowThread {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// The order is made elsewhere: nothing is given a place here.
struct Elsewhere;

impl Sequencer for Elsewhere {
    fn commit(&self, _: &Applier, _: Entry<'_>, _: &dyn Fn() -> ReturnAddress) -> Commit {
        Commit::Known(Err(CommitError::Elsewhere))
    }
}

/// A leader says something every second; one that did not twice is away, or the network is.
const SILENCE_USUAL_US: u64 = 3_000_000;

/// Whether the files are good that a follower needs at its start. Nothing is asked of a leader.
///
/// # Errors
/// What is wrong with which file.
pub fn check(settings: &Settings) -> Result<(), String> {
    settings.token_file.iter().try_for_each(|file| authorization(file).map(drop))?;
    leader::agent_of(settings).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use stentor_io::VirtualClock;

    #[test]
    fn values_are_stale_after_two_missed_signs() {
        let _clock = VirtualClock::start(1_000_000);
        let state = FollowState::new(&Settings::default());
        let stale_s = [1_900, 600, 1_500, 60_000].map(|ms| {
            VirtualClock::pass(Duration::from_millis(ms));
            state.stale_s()
        });
        assert_eq!(stale_s, [None, None, Some(4), Some(64)]);
    }

    #[test]
    fn who_is_on_the_way_of_its_leader_finds_itself() {
        let [first, second] = [(), ()].map(|()| FollowState::new(&Settings::default()));
        let via = |state: &FollowState| state.via().unwrap();
        assert!(!first.leads_here(""));
        assert!(!second.leads_here(&via(&first)));
        assert_eq!(via(&second), format!("{}, {}", second.own, first.own));
        assert!(first.leads_here(&via(&second)));
        assert!(!first.leads_here("somebody, else"));
    }
}
