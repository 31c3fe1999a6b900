//! The time that opening records may take in a turn.

use crate::limits::{OPENING_PART, OPENING_US, OPENING_US_LEAST};

/// The rest of that time, in microseconds.
#[derive(Debug, Default)]
pub(super) struct OpeningBudget {
    left_us: u64,
}

impl OpeningBudget {
    /// The budget of the turn behind one that took so long.
    pub(super) fn behind(turn_us: u64) -> OpeningBudget {
        OpeningBudget { left_us: OPENING_US.max(turn_us / OPENING_PART) }
    }

    /// Whether a connection that has opened records for so long must stop.
    pub(super) fn is_spent(&self, us: u64) -> bool {
        us >= self.left_us
    }

    /// Subtracts what one connection took.
    pub(super) fn charge(&mut self, us: u64) {
        // Simulated time does not pass during a step.
        self.left_us = self.left_us.saturating_sub(us.max(OPENING_US_LEAST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_the_budget_of_a_turn() {
        let mut budget = OpeningBudget::behind(0);
        assert!(!budget.is_spent(OPENING_US - 1) && budget.is_spent(OPENING_US));
        budget.charge(OPENING_US - 2 * OPENING_US_LEAST);
        assert!(!budget.is_spent(2 * OPENING_US_LEAST - 1));
        // Even what takes no time is charged.
        budget.charge(0);
        assert!(budget.is_spent(OPENING_US_LEAST) && !budget.is_spent(0));
        budget.charge(1);
        assert!(budget.is_spent(0));
        // After a long turn it is a part of that.
        let budget = OpeningBudget::behind(8 * OPENING_US);
        assert!(!budget.is_spent(2 * OPENING_US - 1) && budget.is_spent(2 * OPENING_US));
    }
}
