//! Whether all nodes have the same rules of topics: each writes a hash of its own into its batches.

use super::hash_of;
use std::collections::BTreeMap;
use stentor_hub::{Hub, encode_rules};

/// The rules of this node, and what was heard of others.
#[derive(Default)]
pub(super) struct RuleHashes {
    pub(super) own: u64,
    /// By run: the last hash, and when it came.
    heard: BTreeMap<u64, (u64, u64)>,
}

impl RuleHashes {
    /// Looks which rules there are. They may be others by now; and of runs that have said nothing
    /// for long nobody knows whether they still are.
    pub(super) fn look(&mut self, hub: &Hub, now_ms: u64) {
        let mut bytes = Vec::new();
        encode_rules(0, &hub.rules().1, &mut bytes);
        self.own = hash_of(&bytes);
        self.heard.retain(|_, (_, heard_ms)| now_ms < *heard_ms + FORGET_MS);
    }

    /// A batch of this run, of another node, was written by one with these rules.
    pub(super) fn note(&mut self, run: u64, rules: u64, now_ms: u64) {
        if self.heard.len() < RUNS_MAX || self.heard.contains_key(&run) {
            self.heard.insert(run, (rules, now_ms));
        }
    }

    pub(super) fn differ(&self) -> bool {
        self.heard.values().any(|(rules, _)| *rules != self.own)
    }
}

/// So long what a run has said counts.
const FORGET_MS: u64 = 60_000;

/// So many are remembered.
const RUNS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Epoch, Limits, Rule};

    #[test]
    fn rules_that_are_no_more_do_not_differ() {
        let of = |history| {
            let rule = Rule { history, ..Rule::default() };
            Hub::new(Epoch::from_number(1), vec![rule], Limits::default())
        };
        let (before, after) = (of(1), of(2));
        let (mut own, mut other) = (RuleHashes::default(), RuleHashes::default());
        other.look(&after, 0);
        own.look(&before, 0);
        own.note(2, other.own, 0);
        assert!(own.differ());
        // Its own rules are replaced as well.
        own.look(&after, 1);
        assert!(!own.differ());
        // A run that has ended says nothing any more.
        own.note(3, 7, 2);
        own.look(&after, 1 + FORGET_MS);
        assert!(own.differ());
        own.look(&after, 2 + FORGET_MS);
        assert!(!own.differ());
        (10..200).for_each(|run| own.note(run, 7, 3));
        assert_eq!(own.heard.len(), RUNS_MAX);
    }
}
