//! What a run of a node writes under its own subject: one message at a time, each once or never.

use crate::codec::{LogMessage, again};
use crate::log::{Action, Appended, LogSubject};
use crate::seeds::{Bootstrap, Late};
use crate::waiting::{ClusterIntake, PATIENCE_MS};
use std::collections::VecDeque;
use std::sync::Arc;
use stentor_hub::Epoch;
use stentor_order::{CommitError, NotReady, ReturnAddress, Telling};

/// What this run writes under its own subject, one message at a time.
pub(super) struct LogWriter {
    pub(super) counter: u64,
    /// The last sequence there.
    pub(super) last: u64,
    pub(super) token: u64,
    pub(super) sending: Option<Sending>,
    /// In the log, and not read yet.
    pub(super) stored: VecDeque<UnreadAppend>,
    /// Changes to publish again whose message the log lost after it had stored it.
    pub(super) lost: VecDeque<Late>,
    pub(super) seeding: Option<Bootstrap>,
    /// The epoch that this run has begun last, and its seeds, until its epoch record is read.
    pub(super) started: Option<(Epoch, Bootstrap)>,
}

pub(super) struct Sending {
    pub(super) payload: Arc<[u8]>,
    pub(super) counter: u64,
    pub(super) what: AppendContent,
    pub(super) since_ms: u64,
    /// It is on its way.
    pub(super) token: Option<u64>,
    /// It was sent so often.
    pub(super) sent: u32,
    /// Something else is the last one there: to be read before it is clear what.
    pub(super) conflict: Option<u64>,
}

pub(super) struct UnreadAppend {
    counter: u64,
    what: AppendContent,
    since_ms: u64,
}

pub(super) enum AppendContent {
    Batch(Promises),
    Seed,
    /// What was late, to be put back if it does not come.
    Late(Vec<Late>),
}

/// Whom to tell what came of a batch.
#[derive(Default)]
pub(super) struct Promises {
    pub(super) backs: Vec<ReturnAddress>,
    pub(super) bytes: usize,
}

impl LogWriter {
    pub(super) fn new() -> LogWriter {
        LogWriter {
            counter: 0,
            last: 0,
            token: 0,
            sending: None,
            stored: VecDeque::new(),
            lost: VecDeque::new(),
            seeding: None,
            started: None,
        }
    }

    pub(super) fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// How long the next message is, if the log takes none that is longer than `max`.
    pub(super) fn too_large(&self, max: usize) -> Option<usize> {
        self.sending.as_ref().map(|sending| sending.payload.len()).filter(|bytes| *bytes > max)
    }

    /// The append that is due, if one is. The log was read up to `read`, and takes no message that
    /// is longer than `max`.
    pub(super) fn send(&mut self, read: u64, run: u64, max: usize) -> Option<Action> {
        if self.too_large(max).is_some() {
            return None;
        }
        let token = self.token + 1;
        let sending = self.sending.as_mut()?;
        if let Some(seq) = sending.conflict {
            if seq > read {
                return None;
            }
            // It was another one, or this one would have been taken out.
            (self.last, sending.conflict) = (seq, None);
        }
        if sending.token.is_some() {
            return None;
        }
        self.token = token;
        sending.token = Some(token);
        if sending.sent > 0 {
            sending.payload = again(&sending.payload, sending.sent).into();
        }
        sending.sent += 1;
        let payload = Arc::clone(&sending.payload);
        Some(Action::Append { to: LogSubject::Own(run), after: self.last, payload, token })
    }

    pub(super) fn handle_appended(
        &mut self,
        token: u64,
        appended: Appended,
        intake: &ClusterIntake,
    ) {
        let Some(sending) = self.sending.as_mut().filter(|it| it.token == Some(token)) else {
            return;
        };
        match appended {
            Appended::At(seq) => {
                self.last = seq;
                let Sending { counter, what, since_ms, .. } =
                    self.sending.take().expect("it was there");
                self.stored.push_back(UnreadAppend { counter, what, since_ms });
            }
            Appended::Conflict(seq) => (sending.token, sending.conflict) = (None, Some(seq)),
            Appended::Unknown => sending.token = None,
            Appended::Refused(_) => match &mut sending.what {
                // Copies may still come out of a connection that was given up: these are sent
                // until they are known to be there, or too old.
                AppendContent::Seed | AppendContent::Late(_) => sending.token = None,
                AppendContent::Batch(_) => {
                    let sending = self.sending.take().expect("it was there");
                    let error = match sending.sent {
                        1 => CommitError::NotReady(NotReady::Inspecting),
                        _ => CommitError::Failed,
                    };
                    sending.what.promises().tell_all(intake, error);
                }
            },
        }
    }

    /// A message was read. Returns whom to tell what came of it.
    pub(super) fn took(
        &mut self,
        message: &LogMessage<'_>,
        run: u64,
        intake: &ClusterIntake,
    ) -> Promises {
        if message.run != run {
            return Promises::default();
        }
        // What was in the log before it, and was not brought, is lost.
        while let Some(lost) = self.stored.pop_front_if(|it| it.counter < message.counter) {
            match lost.what {
                AppendContent::Late(entries) => self.lost.extend(entries),
                what => what.promises().tell_all(intake, CommitError::Failed),
            }
        }
        if let Some(sending) = self.sending.take_if(|it| it.counter == message.counter) {
            return sending.what.promises();
        }
        let stored = self.stored.pop_front_if(|it| it.counter == message.counter);
        stored.map_or_else(Promises::default, |stored| stored.what.promises())
    }

    /// Tells those who have waited for too long that it is not known.
    pub(super) fn expire(&mut self, intake: &ClusterIntake, now_ms: u64) {
        let is_old = |since_ms: u64| now_ms >= since_ms + PATIENCE_MS;
        let sending = self
            .sending
            .take_if(|it| matches!(it.what, AppendContent::Batch(_)) && is_old(it.since_ms));
        sending.into_iter().for_each(|it| it.what.promises().tell_all(intake, CommitError::Failed));
        // Other changes are kept: if the broker loses them, this node publishes them again.
        for stored in &mut self.stored {
            if let AppendContent::Batch(promises) = &mut stored.what
                && is_old(stored.since_ms)
            {
                std::mem::take(promises).tell_all(intake, CommitError::Failed);
            }
        }
    }

    /// The node does not read the messages under way. This returns what was late. If the log has
    /// it already, nodes skip it the second time.
    pub(super) fn forget(&mut self, intake: &ClusterIntake) -> VecDeque<Late> {
        let is_other = |it: &mut Sending| !matches!(it.what, AppendContent::Seed);
        let sending = self.sending.take_if(is_other).map(|sending| sending.what);
        let stored = self.stored.drain(..).map(|stored| stored.what);
        let mut late = VecDeque::new();
        for what in stored.chain(sending) {
            match what {
                // mutation: late-appends
                AppendContent::Late(entries) => late.extend(entries),
                what => what.promises().tell_all(intake, CommitError::Failed),
            }
        }
        late
    }

    /// The messages under way are from before an epoch record, so the node will never read them.
    /// Returns what was late.
    pub(super) fn begin_anew(&mut self, intake: &ClusterIntake) -> VecDeque<Late> {
        let stored = self.stored.drain(..).map(|stored| (stored.what, 1));
        let sending = self.sending.take().map(|sending| (sending.what, sending.sent));
        let mut late = VecDeque::new();
        for (what, sent) in stored.chain(sending) {
            match what {
                AppendContent::Late(entries) => late.extend(entries),
                // Who has read it in a log that has lost it since may publish it again.
                what if sent > 0 => what.promises().tell_all(intake, CommitError::Failed),
                what => {
                    what.promises().tell_all(intake, CommitError::NotReady(NotReady::StartingEpoch))
                }
            }
        }
        self.seeding = None;
        // What it was may be lost, and its sequence another message's: then a copy that comes out
        // of a connection late would be taken.
        self.last = 0;
        late
    }
}

impl AppendContent {
    pub(super) fn promises(self) -> Promises {
        match self {
            AppendContent::Batch(promises) => promises,
            AppendContent::Seed | AppendContent::Late(_) => Promises::default(),
        }
    }
}

impl Promises {
    pub(super) fn tell_all(self, intake: &ClusterIntake, error: CommitError) {
        let mut telling = Telling::default();
        self.backs.into_iter().for_each(|back| telling.add(back, Err(error)));
        drop(telling);
        intake.give_back(self.bytes);
    }
}
