//! The budget of a worker: what an iteration of its loop may spend on work that one step can make
//! large.
//!
//! An attacker has thousands of connections, so a share for each connection limits nothing. Each
//! work class therefore has a budget of its own. A connection does such work only with a
//! [`Permit`]. If the class has no budget left, or other connections already wait for it, the
//! connection enters the class's work queue. Small work needs no queue: it only shortens the share
//! of the connections that follow.
//!
//! The code that does some work adds its cost to one counter, the cost of the visit. [`admitted`]
//! runs the work of a class and charges the class what the counter has grown by. A class can be
//! charged in no other way. Functions that may cost much take a permit as an argument, so a call
//! without admission does not compile.
//!
//! A cost is an estimate in nanoseconds. It is counted and not measured, so the simulator does what
//! the server does.

mod queue;

use crate::limits::{
    GATHER_BYTES, LINE_COST_PER_TURN, QUEUE_VISIT_COST, TURN_COST_MAX, TURN_COST_USUAL,
};
pub(crate) use queue::{Place, WorkQueue};
use stentor_io::Peer;
use stentor_wire::pack::{self, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;

/// Work that one step may make large.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum WorkClass {
    /// Responses that are made of much, tokens that must be verified, and whatever a connection has
    /// asked for beyond its share of an iteration.
    Requests,
    /// Commands of WebSockets.
    Commands,
    /// Messages that readers have missed.
    CatchUp,
    /// Publishers while the store is handed over: none of them is served then.
    Held,
}

impl WorkClass {
    pub(crate) const ALL: [WorkClass; 4] =
        [WorkClass::Requests, WorkClass::Commands, WorkClass::CatchUp, WorkClass::Held];
}

packed!(enum WorkClass { 0 => Requests, 1 => Commands, 2 => CatchUp, 3 => Held });

/// The permission to do work now. The work of a class needs a permit of [`admitted`]; a permit for
/// small work is free.
#[derive(Debug)]
#[must_use]
pub(crate) struct Permit {
    /// `None` for small work.
    open: Option<Open>,
    /// The permit within which this one was given.
    outer: Option<Open>,
}

impl Permit {
    /// The permit for work that is small whatever a client does. It charges no class.
    pub(crate) const SMALL: Permit = Permit { open: None, outer: None };
}

/// The class of an open permit, and the cost of the visit when it was given.
#[derive(Clone, Copy, Debug)]
struct Open {
    class: WorkClass,
    from: usize,
}

/// The work queues of a worker, and the rest of its budgets in this iteration.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    queues: [WorkQueue; WorkClass::ALL.len()],
    /// The cost that each class may still add. One step may cost as much as many iterations: then
    /// this is below zero, and the class gets no permit for as many iterations.
    left: [isize; WorkClass::ALL.len()],
    /// The innermost permit.
    open: Option<Open>,
    /// The cost of this visit: of one connection, whatever it does.
    pub(crate) cost: usize,
    /// The carrier connection that is visited.
    carrier: Option<Peer>,
    /// The cost of this iteration before this visit.
    spent: usize,
    /// A fan-out is under way: it takes precedence.
    is_sweeping: bool,
    /// Publishers are held.
    holds: bool,
    /// The cost of each class since the start.
    costs: [u64; WorkClass::ALL.len()],
    /// The cost of the largest step since the start.
    #[cfg(test)]
    largest_step: usize,
}

impl Packed for Budget {
    const FORMAT: u64 = pack::format("Budget queues left costs", &[WorkClass::ALL.len() as u64]);

    fn pack(&self, out: &mut Packer) {
        let Budget { queues, left, costs, .. } = self;
        for queue in queues {
            queue.peers().map(|peer| peer.index() as u32).collect::<Vec<_>>().pack(out);
        }
        left.map(|left| left as i64).pack(out);
        costs.pack(out);
    }

    /// The queues have the peers in their order. Each record takes its place by
    /// [`Budget::take_queue`].
    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Budget> {
        let peers = <[Vec<u32>; WorkClass::ALL.len()]>::unpack(input)?;
        let queues = peers.map(|peers| {
            let mut queue = WorkQueue::default();
            for peer in peers.into_iter().map(Peer::from_index) {
                queue.enter(peer, peer);
            }
            queue
        });
        let left = <[i64; WorkClass::ALL.len()]>::unpack(input)?.map(|left| left as isize);
        Ok(Budget { queues, left, costs: Packed::unpack(input)?, ..Budget::default() })
    }
}

/// Does the work of a class, if its budget allows that now, and charges the class the cost that the
/// work adds to the visit. `None` if the connection must wait in the class's queue. Without a class
/// the work is small, and is done in any case.
pub(crate) fn admitted<C: AsMut<Budget>, R>(
    cx: &mut C,
    class: impl Into<Option<WorkClass>>,
    work: impl FnOnce(&mut C, &Permit) -> R,
) -> Option<R> {
    let permit = match class.into() {
        Some(class) => cx.as_mut().admit(class)?,
        None => Permit::SMALL,
    };
    #[cfg(test)]
    let from = cx.as_mut().cost;
    let result = work(cx, &permit);
    #[cfg(test)]
    cx.as_mut().note_step(from);
    cx.as_mut().settle(permit);
    Some(result)
}

/// Visits the first connection of a queue, if the class has budget left, and charges the class the
/// whole visit. Returns whether there was one.
pub(crate) fn serve_next<C: AsMut<Budget>>(
    cx: &mut C,
    class: WorkClass,
    visit: impl FnOnce(&mut C, Peer),
) -> bool {
    let budget = cx.as_mut();
    if !budget.has_some_left(class) {
        return false;
    }
    let Some(peer) = budget.queues[class as usize].next() else { return false };
    budget.begin_share(None);
    let permit = budget.open(class);
    visit(cx, peer);
    let budget = cx.as_mut();
    budget.cost = budget.cost.max(QUEUE_VISIT_COST);
    budget.settle(permit);
    true
}

impl Budget {
    /// Another iteration begins, with a fan-out under way or not.
    pub(crate) fn begin_turn(&mut self, is_sweeping: bool) {
        self.begin_share(None);
        self.spent = 0;
        self.is_sweeping = is_sweeping;
        let more = if is_sweeping { LINE_COST_PER_TURN / 4 } else { LINE_COST_PER_TURN } as isize;
        for left in &mut self.left {
            *left = (*left + more).min(more);
        }
    }

    /// Gives a permit if the class has budget left and no connection waits for it. While a permit
    /// of the class is open, this is part of the same work.
    fn admit(&mut self, class: WorkClass) -> Option<Permit> {
        let is_part = self.open.is_some_and(|open| open.class == class);
        let may_pass = is_part || self.queues[class as usize].len() == 0;
        (may_pass && self.has_some_left(class)).then(|| self.open(class))
    }

    /// Whether a class has budget left, beyond what the open permit will charge it.
    fn has_some_left(&self, class: WorkClass) -> bool {
        if class == WorkClass::Held && self.holds {
            return false;
        }
        let open = self.open.filter(|open| open.class == class);
        let due = open.map_or(0, |open| self.cost.saturating_sub(open.from));
        self.left[class as usize] > due as isize
    }

    fn open(&mut self, class: WorkClass) -> Permit {
        let open = Some(Open { class, from: self.cost });
        Permit { open, outer: std::mem::replace(&mut self.open, open) }
    }

    /// The work is done.
    fn settle(&mut self, permit: Permit) {
        let Permit { open: Some(Open { class, from }), outer } = permit else { return };
        self.open = outer;
        // A permit of the same class around it is charged with this work as well.
        if outer.is_none_or(|outer| outer.class != class) {
            let cost = self.cost.saturating_sub(from);
            self.left[class as usize] = self.left[class as usize].saturating_sub_unsigned(cost);
            self.costs[class as usize] += cost as u64;
        }
    }

    /// After a panic: the permits that were open are void.
    pub(crate) fn recover(&mut self) {
        self.open = None;
    }

    /// How much one step of a reader that catches up may find, in bytes.
    pub(crate) fn step_bytes(&self) -> usize {
        if self.is_sweeping { GATHER_BYTES / 4 } else { GATHER_BYTES }
    }

    /// The cost of a class since the start.
    pub(crate) fn total(&self, class: WorkClass) -> u64 {
        self.costs[class as usize]
    }

    /// A connection of this carrier is visited. All connections of a carrier have one share
    /// together.
    pub(crate) fn begin_visit(&mut self, carrier: Peer) {
        if self.carrier != Some(carrier) {
            self.begin_share(Some(carrier));
        }
    }

    /// A visit begins that has a share of its own.
    pub(crate) fn begin_share(&mut self, carrier: Option<Peer>) {
        self.spent += self.cost;
        self.cost = 0;
        self.carrier = carrier;
    }

    /// Whether the visit has used up its share: less, if many connections have had theirs already.
    pub(crate) fn is_over_share(&self) -> bool {
        self.cost >= self.share()
    }

    fn share(&self) -> usize {
        if self.spent < TURN_COST_USUAL { TURN_COST_MAX } else { TURN_COST_MAX / 16 }
    }

    /// Puts a connection at the end of a queue, behind the others of its carrier.
    pub(crate) fn enter(&mut self, class: WorkClass, carrier: Peer, peer: Peer) -> Place {
        self.queues[class as usize].enter(carrier, peer)
    }

    /// A connection gives up its place in a queue.
    pub(crate) fn leave(&mut self, class: WorkClass, place: Place) {
        self.queues[class as usize].leave(place);
    }

    /// Empties a queue and returns it.
    pub(crate) fn take_queue(&mut self, class: WorkClass) -> WorkQueue {
        std::mem::take(&mut self.queues[class as usize])
    }

    /// The connections that wait for a class, in their order.
    #[cfg(test)]
    pub(crate) fn peers(&self, class: WorkClass) -> impl Iterator<Item = Peer> {
        self.queues[class as usize].peers()
    }

    /// How many connections wait for a class.
    pub(crate) fn waiting(&self, class: WorkClass) -> usize {
        self.queues[class as usize].len()
    }

    /// Whether a connection has this place.
    #[cfg(debug_assertions)]
    pub(crate) fn has_place(&self, class: WorkClass, place: Place, peer: Peer) -> bool {
        self.queues[class as usize].at(place) == Some(peer)
    }

    /// A step has ended, before which the visit had this cost.
    #[cfg(test)]
    fn note_step(&mut self, from: usize) {
        self.largest_step = self.largest_step.max(self.cost.saturating_sub(from));
    }

    /// The cost of the largest step since the start.
    #[cfg(test)]
    pub(crate) fn largest_step(&self) -> usize {
        self.largest_step
    }

    /// Leaves a class no budget in the next iterations.
    #[cfg(test)]
    pub(crate) fn exhaust(&mut self, class: WorkClass) {
        self.left[class as usize] = -(EXHAUSTED_TURNS * LINE_COST_PER_TURN as isize);
    }

    /// Whether no connection can be served.
    pub(crate) fn is_idle(&self) -> bool {
        let is_served = |class: &WorkClass| *class != WorkClass::Held || !self.holds;
        let mut served = WorkClass::ALL.into_iter().filter(is_served);
        served.all(|class| self.waiting(class) == 0)
    }

    /// Whether publishers are held.
    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Holds publishers, or serves those that were held.
    pub(crate) fn hold(&mut self, holds: bool) {
        self.holds = holds;
    }
}

/// In so many turns there is room again.
#[cfg(test)]
const EXHAUSTED_TURNS: isize = 16;

#[cfg(test)]
mod tests;
