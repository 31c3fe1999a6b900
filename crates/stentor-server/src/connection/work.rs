//! The unfinished work of a connection in any state: input that it has not used, and bytes that the
//! socket did not take.

use super::pace::Pace;
use crate::budget::{Place, WorkClass};
use crate::context::Context;
use crate::output::Backlog;
use stentor_io::{Backend, Gone};
use stentor_wire::pack::{self, MISFIT, Packed, Packer, Unpacked, Unpacker};

/// The unfinished work, if there is any.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Option<Box<Work>>);

/// Unfinished work.
#[derive(Debug, Default)]
struct Work {
    /// Received, not yet used: an incomplete request, or whole ones behind an answer that waits.
    input: Vec<u8>,
    wait: Option<Wait>,
    /// How long the client may leave a backlog there. A client that is blocked again in the same
    /// visit keeps its pace.
    pace: Pace,
}

/// The event after which a connection continues by itself.
#[derive(Debug)]
enum Wait {
    /// Room to write.
    Room(Backlog),
    /// This work queue serves it.
    Queue {
        class: WorkClass,
        /// The rest of a response that another process has made.
        rest: Option<Backlog>,
        /// `None` within a visit: the worker gives it a place, or serves it.
        place: Option<Place>,
        /// When its input arrived.
        since_us: Option<u64>,
    },
}

impl Unfinished {
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Drops all of it.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Frees what is no longer needed.
    pub(super) fn shrink(&mut self) {
        self.0.take_if(|work| work.wait.is_none() && work.input.is_empty());
    }

    /// Whether the box has something to keep, and a connection in a queue has its place.
    pub(super) fn is_needed(&self) -> bool {
        match self.0.as_deref() {
            Some(Work { wait: Some(Wait::Queue { place, .. }), .. }) => place.is_some(),
            Some(Work { wait, input, .. }) => wait.is_some() || !input.is_empty(),
            None => true,
        }
    }

    fn wait(&self) -> Option<&Wait> {
        self.0.as_deref()?.wait.as_ref()
    }

    /// Whether the connection comes back by itself: for room to write, or for another turn.
    pub(super) fn waits(&self) -> bool {
        self.wait().is_some()
    }

    /// The bytes that wait for room.
    pub(super) fn backlog(&self) -> Option<&Backlog> {
        match self.wait() {
            Some(Wait::Room(backlog)) => Some(backlog),
            _ => None,
        }
    }

    /// The bytes that are sent after the wait, for room or in a queue.
    pub(super) fn unsent(&self) -> Option<&Backlog> {
        match self.wait() {
            Some(Wait::Room(backlog) | Wait::Queue { rest: Some(backlog), .. }) => Some(backlog),
            _ => None,
        }
    }

    /// Its place in a work queue, if it has one.
    pub(super) fn place(&self) -> Option<(WorkClass, Place)> {
        match self.wait() {
            Some(&Wait::Queue { class, place: Some(place), .. }) => Some((class, place)),
            _ => None,
        }
    }

    pub(super) fn set_place(&mut self, to: Option<Place>) {
        if let Some(Wait::Queue { place, .. }) =
            self.0.as_deref_mut().and_then(|it| it.wait.as_mut())
        {
            *place = to;
        }
    }

    /// Gives a connection that waits in a queue its place there. Returns whether it does.
    pub(super) fn take_place<B: Backend>(&mut self, cx: &mut Context, io: &B, now_us: u64) -> bool {
        let wait = self.0.as_deref_mut().and_then(|work| work.wait.as_mut());
        let Some(Wait::Queue { class, place, since_us, .. }) = wait else { return false };
        if place.is_none() {
            *since_us = Some(now_us);
            *place = Some(cx.load.budget.enter(*class, io.carrier(cx.peer), cx.peer));
        }
        true
    }

    /// Leaves the rest for when the work queue serves it: this one, unless it waits already.
    pub(super) fn wait_in(&mut self, class: WorkClass) {
        let queue = Wait::Queue { class, rest: None, place: None, since_us: None };
        self.0.get_or_insert_default().wait.get_or_insert(queue);
    }

    /// Keeps what the socket did not take.
    pub(super) fn block(&mut self, backlog: Backlog) {
        self.0.get_or_insert_default().wait = Some(Wait::Room(backlog));
    }

    /// Sends what was gathered. Returns whether all of it left; if not, the rest is kept.
    pub(super) fn flush<B: Backend>(&mut self, cx: &mut Context, io: &mut B) -> Result<bool, Gone> {
        if cx.out.len() == 0 {
            return Ok(true);
        }
        let Some(backlog) = cx.out.send(io, cx.peer, &cx.stats, &mut cx.load.sent_bytes)? else {
            return Ok(true);
        };
        self.block(backlog);
        Ok(false)
    }

    /// There is room to write, or another turn: sends the backlog. Returns whether the wait is
    /// over.
    pub(super) fn resume<B: Backend>(
        &mut self,
        cx: &mut Context,
        io: &mut B,
    ) -> Result<bool, Gone> {
        let Some(work) = self.0.as_deref_mut() else { return Ok(true) };
        let (backlog, since_us) = match work.wait.take() {
            Some(Wait::Room(backlog)) => (Some(backlog), None),
            Some(Wait::Queue { rest, since_us, .. }) => (rest, since_us),
            None => (None, None),
        };
        if let Some(mut backlog) = backlog
            && !backlog.send(io, cx.peer, &cx.stats, &mut cx.load.sent_bytes)?
        {
            work.wait = Some(Wait::Room(backlog));
            return Ok(false);
        }
        cx.responses.answers.go_on(since_us);
        Ok(true)
    }

    /// Gives up waiting in a queue.
    pub(super) fn leave_queue(&mut self) {
        let Some(work) = self.0.as_deref_mut() else { return };
        work.wait.take_if(|wait| matches!(wait, Wait::Queue { .. }));
    }

    pub(super) fn input(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |work| &work.input)
    }

    /// Takes what was received and not used.
    pub(super) fn take_input(&mut self) -> Vec<u8> {
        self.0.as_deref_mut().map(|work| std::mem::take(&mut work.input)).unwrap_or_default()
    }

    pub(super) fn keep_input(&mut self, input: Vec<u8>) {
        self.0.get_or_insert_default().input = input;
    }

    pub(super) fn pace(&self) -> Pace {
        self.0.as_deref().map(|work| work.pace).unwrap_or_default()
    }

    pub(super) fn set_pace(&mut self, pace: Pace) {
        if let Some(work) = &mut self.0 {
            work.pace = pace;
        }
    }

    pub(super) fn own_bytes(&self) -> usize {
        let backlog = self.unsent().map_or(0, Backlog::own_bytes);
        self.0.as_deref().map_or(0, |work| size_of::<Work>() + work.input.capacity() + backlog)
    }

    /// The form of [`Unfinished::pack_wait`].
    pub(super) const FORMAT: u64 =
        pack::format("Unfinished backlog class", &[Backlog::FORMAT, WorkClass::FORMAT]);

    /// Packs the wait: the backlog and the number of unacknowledged bytes, then the queue. The
    /// budget packs the order of each queue. The `rest` of a body is sent behind the backlog.
    pub(super) fn pack_wait(&self, rest: &[u8], out: &mut Packer) {
        let unsent = self.unsent();
        let has_unsent = unsent.is_some() || !rest.is_empty();
        has_unsent.pack(out);
        if has_unsent {
            unsent.unwrap_or(&Backlog::default()).pack_with(rest, out);
            self.pace().unacknowledged().pack(out);
        }
        let class = self.place().map(|(class, _)| class);
        class.pack(out);
        class.is_some().pack(out);
    }

    /// Unpacks the wait, for work with this `input`. An older release may have packed a queue
    /// without a place besides a backlog. Such a queue has no effect.
    ///
    /// # Errors
    /// If a connection waits in a queue without a place, or the other way round.
    pub(super) fn unpack_wait(input: Vec<u8>, packed: &mut Unpacker<'_>) -> Unpacked<Unfinished> {
        let unsent = Option::<Backlog>::unpack(packed)?;
        let mut work = Work { input, ..Work::default() };
        if unsent.is_some() {
            work.pace = Pace::resumed(Packed::unpack(packed)?);
        }
        let class = Option::<WorkClass>::unpack(packed)?;
        let has_place = bool::unpack(packed)?;
        work.wait = match (unsent, class) {
            (rest, Some(class)) if has_place => {
                Some(Wait::Queue { class, rest, place: Some(Place::default()), since_us: None })
            }
            (Some(backlog), _) if !has_place => Some(Wait::Room(backlog)),
            (None, None) if !has_place => None,
            _ => return Err(MISFIT),
        };
        let mut unfinished = Unfinished(Some(Box::new(work)));
        unfinished.shrink();
        Ok(unfinished)
    }
}
