//! What a turn may be spent on.
//!
//! An attacker has thousands of connections, so a share of each bounds nothing. Work that can be
//! large is done only as long as the turn has room for its kind; a connection that finds none waits
//! in the line of that kind, and comes out of it in the order in which it came. Whoever asks for
//! little is never in a line, and finds the turn short.
//!
//! Costs are in units of about a nanosecond. They are counted and not measured, so that the
//! simulator does what the server does.

use crate::limits::{LINE_COST_PER_TURN, TURN_COST_MAX, TURN_COST_USUAL};
use std::collections::VecDeque;
use stentor_io::Socket;

/// A kind of work that waits in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// The lines of a worker, and what is left of its turn.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    lines: [VecDeque<Socket>; Kind::ALL.len()],
    /// What may still be spent in this turn on each kind.
    left: [usize; Kind::ALL.len()],
    /// What the turn has cost so far, whatever it was spent on.
    spent: usize,
}

impl Budget {
    /// Another turn begins. As long as somebody waits in a line, nobody goes past it.
    pub(crate) fn begin_turn(&mut self) {
        self.spent = 0;
        for (line, left) in self.lines.iter().zip(&mut self.left) {
            *left = if line.is_empty() { LINE_COST_PER_TURN } else { 0 };
        }
    }

    /// Now those in the line of a kind have what a turn may cost.
    pub(crate) fn begin_line(&mut self, kind: Kind) {
        self.set_left(kind, LINE_COST_PER_TURN);
    }

    /// Whether there is room in this turn for work of a kind.
    pub(crate) fn has_room(&self, kind: Kind) -> bool {
        self.left(kind) > 0
    }

    /// Takes note of work of a kind.
    pub(crate) fn spend(&mut self, kind: Kind, cost: usize) {
        self.set_left(kind, self.left(kind).saturating_sub(cost));
    }

    /// What may still be spent in this turn on a kind of work.
    pub(crate) fn left(&self, kind: Kind) -> usize {
        self.left[kind as usize]
    }

    /// The same, to be changed.
    pub(crate) fn set_left(&mut self, kind: Kind, cost: usize) {
        self.left[kind as usize] = cost;
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
    pub(crate) fn wait(&mut self, kind: Kind, socket: Socket) {
        self.lines[kind as usize].push_back(socket);
    }

    /// Takes the next connection out of a line. It may have gone.
    pub(crate) fn next(&mut self, kind: Kind) -> Option<Socket> {
        self.lines[kind as usize].pop_front()
    }

    /// How many wait in a line.
    pub(crate) fn waiting(&self, kind: Kind) -> usize {
        self.lines[kind as usize].len()
    }

    /// Whether nobody waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.lines.iter().all(VecDeque::is_empty)
    }
}
