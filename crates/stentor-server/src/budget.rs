//! What a turn may be spent on.
//!
//! An attacker has thousands of connections, so a share of each bounds nothing. Work that can be
//! large is done only as long as the turn has room for its kind; a connection that finds none waits
//! in the line of that kind, and comes out of it in the order in which it came. Whoever asks for
//! little is never in a line, and finds the turn short.
//!
//! Costs are in units of about a nanosecond. They are counted and not measured, so that the
//! simulator does what the server does.

use crate::limits::{GATHER_BYTES, LINE_COST_PER_TURN, TURN_COST_MAX, TURN_COST_USUAL};
use std::collections::{HashSet, VecDeque};
use stentor_io::Peer;
use stentor_wire::pack::{Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;

/// A kind of work that waits in line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    /// The rest of what a connection asked for, after its share of a turn; answers put together
    /// from much.
    Requests,
    /// Commands of WebSockets that subscribe.
    Commands,
    /// What readers have missed.
    Replays,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Requests, Kind::Commands, Kind::Replays];
}

packed!(enum Kind { 0 => Requests, 1 => Commands, 2 => Replays });

/// Where a kind of work stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    kind: Kind,
    left: isize,
    cost: u64,
}

/// The lines of a worker, and what is left of its turn.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    lines: [VecDeque<Peer>; Kind::ALL.len()],
    /// What may still be spent on each kind. One step may cost many turns' worth: then it is below
    /// zero, and as many turns go by without such work.
    left: [isize; Kind::ALL.len()],
    /// The line that is being served.
    serving: Option<Kind>,
    /// What the turn has cost so far, whatever it was spent on.
    spent: usize,
    /// Messages are on their way to readers: these go first.
    is_sweeping: bool,
    /// What each kind has cost since the start.
    costs: [u64; Kind::ALL.len()],
}

impl Packed for Budget {
    fn pack(&self, out: &mut Packer) {
        let Budget { lines, left, costs, serving: _, spent: _, is_sweeping: _ } = self;
        for line in lines {
            line.iter().map(|peer| peer.index() as u32).collect::<Vec<_>>().pack(out);
        }
        left.map(|left| left as i64).pack(out);
        costs.pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Budget> {
        let lines = <[Vec<u32>; Kind::ALL.len()]>::unpack(input)?;
        let lines = lines.map(|line| line.into_iter().map(Peer::from_index).collect());
        let left = <[i64; Kind::ALL.len()]>::unpack(input)?.map(|left| left as isize);
        Ok(Budget { lines, left, costs: Packed::unpack(input)?, ..Budget::default() })
    }
}

impl Budget {
    /// Another turn begins, in which messages are on their way to readers or not.
    pub(crate) fn begin_turn(&mut self, is_sweeping: bool) {
        self.spent = 0;
        self.is_sweeping = is_sweeping;
        let more = if is_sweeping { LINE_COST_PER_TURN / 4 } else { LINE_COST_PER_TURN } as isize;
        for left in &mut self.left {
            *left = (*left + more).min(more);
        }
    }

    /// From now on those in a line are served, or nobody is.
    pub(crate) fn serve(&mut self, line: Option<Kind>) {
        self.serving = line;
    }

    /// Whether there is room in this turn for work of a kind. As long as somebody waits for it in a
    /// line, nobody goes past.
    pub(crate) fn has_room(&self, kind: Kind) -> bool {
        let is_my_turn = self.serving == Some(kind) || self.waiting(kind) == 0;
        is_my_turn && self.left[kind as usize] > 0
    }

    /// How much one step of a reader that catches up may find, in bytes.
    pub(crate) fn step_bytes(&self) -> usize {
        if self.is_sweeping { GATHER_BYTES / 4 } else { GATHER_BYTES }
    }

    /// Takes note of work of a kind.
    pub(crate) fn spend(&mut self, kind: Kind, cost: usize) {
        self.settle(self.mark(kind), cost);
    }

    /// Where a kind of work stands.
    pub(crate) fn mark(&self, kind: Kind) -> Mark {
        Mark { kind, left: self.left[kind as usize], cost: self.cost(kind) }
    }

    /// Takes note of what work has cost that was begun at a mark: all of it, and once.
    pub(crate) fn settle(&mut self, mark: Mark, cost: usize) {
        self.left[mark.kind as usize] = mark.left.saturating_sub_unsigned(cost);
        self.costs[mark.kind as usize] = mark.cost + cost as u64;
    }

    /// What a kind of work has cost since the start.
    pub(crate) fn cost(&self, kind: Kind) -> u64 {
        self.costs[kind as usize]
    }

    /// Takes note of what a connection has cost, whatever it did.
    pub(crate) fn note(&mut self, cost: usize) {
        self.spent += cost;
    }

    /// What one connection may cost before the others have their turn: less, if many have had their
    /// share already.
    pub(crate) fn share(&self) -> usize {
        if self.spent < TURN_COST_USUAL { TURN_COST_MAX } else { TURN_COST_MAX / 16 }
    }

    /// Puts a connection at the end of a line.
    pub(crate) fn wait(&mut self, kind: Kind, peer: Peer) {
        self.lines[kind as usize].push_back(peer);
    }

    /// Takes the next connection out of a line. It may have gone.
    pub(crate) fn next(&mut self, kind: Kind) -> Option<Peer> {
        self.lines[kind as usize].pop_front()
    }

    /// Who stands in which line.
    pub(crate) fn places(&self) -> HashSet<(Kind, Peer)> {
        let lines = Kind::ALL.into_iter().zip(&self.lines);
        lines.flat_map(|(kind, line)| line.iter().map(move |&peer| (kind, peer))).collect()
    }

    /// How many wait in a line.
    pub(crate) fn waiting(&self, kind: Kind) -> usize {
        self.lines[kind as usize].len()
    }

    /// Whether a connection will come out of a line.
    #[cfg(debug_assertions)]
    pub(crate) fn stands_in(&self, kind: Kind, peer: Peer) -> bool {
        self.lines[kind as usize].contains(&peer)
    }

    /// Leaves no room for a kind of work in the next turns.
    #[cfg(test)]
    pub(crate) fn exhaust(&mut self, kind: Kind) {
        self.left[kind as usize] = -(EXHAUSTED_TURNS * LINE_COST_PER_TURN as isize);
    }

    /// Whether nobody waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.lines.iter().all(VecDeque::is_empty)
    }
}

/// In so many turns there is room again.
#[cfg(test)]
const EXHAUSTED_TURNS: isize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        let mut budget = Budget::default();
        budget.begin_turn(false);
        budget
    }

    #[test]
    fn nobody_goes_past_those_who_wait() {
        let mut budget = budget();
        assert!(Kind::ALL.iter().all(|&kind| budget.has_room(kind)));
        budget.wait(Kind::Commands, Peer::from_index(7));
        assert!(!budget.has_room(Kind::Commands) && budget.has_room(Kind::Replays));
        budget.serve(Some(Kind::Commands));
        assert!(budget.has_room(Kind::Commands));
        assert_eq!(budget.next(Kind::Commands), Some(Peer::from_index(7)));
        budget.serve(None);
        assert!(budget.has_room(Kind::Commands));
        assert!(budget.next(Kind::Commands).is_none() && budget.is_idle());
    }

    #[test]
    fn what_is_spent_is_counted_once() {
        let mut budget = budget();
        let mark = budget.mark(Kind::Replays);
        budget.spend(Kind::Replays, 1_000);
        budget.settle(mark, 1_500);
        assert_eq!(budget.cost(Kind::Replays), 1_500);
        budget.spend(Kind::Replays, LINE_COST_PER_TURN - 1_500);
        assert!(!budget.has_room(Kind::Replays));
    }

    #[test]
    fn a_large_step_is_paid_for_over_many_turns() {
        for (is_sweeping, turns) in [(false, 4), (true, 16)] {
            let mut budget = budget();
            budget.begin_turn(is_sweeping);
            budget.spend(Kind::Requests, 4 * LINE_COST_PER_TURN);
            let waits = (0..100).take_while(|_| {
                budget.begin_turn(is_sweeping);
                !budget.has_room(Kind::Requests)
            });
            assert_eq!(waits.count(), turns - 1, "sweeping: {is_sweeping}");
            for _ in 0..100 {
                budget.begin_turn(is_sweeping);
            }
            budget.spend(Kind::Requests, LINE_COST_PER_TURN);
            assert!(!budget.has_room(Kind::Requests), "nothing is saved up");
        }
    }

    #[test]
    fn when_many_had_their_share_it_becomes_smaller() {
        let mut budget = budget();
        assert_eq!(budget.share(), TURN_COST_MAX);
        budget.note(TURN_COST_USUAL);
        assert!(budget.share() < TURN_COST_MAX);
        budget.begin_turn(false);
        assert_eq!(budget.share(), TURN_COST_MAX);
    }

    #[test]
    fn whoever_catches_up_takes_smaller_steps_while_messages_are_on_their_way() {
        let mut budget = budget();
        let step_bytes = budget.step_bytes();
        budget.begin_turn(true);
        assert_eq!(budget.step_bytes(), step_bytes / 4);
        budget.begin_turn(false);
        assert_eq!(budget.step_bytes(), step_bytes);
    }
}
