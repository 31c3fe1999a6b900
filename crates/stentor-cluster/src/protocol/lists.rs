//! Access lists in the log: what one node guards, all nodes guard.
//!
//! A node whose rules ask readers for a token puts them into the log as an *access list*. Each node
//! keeps the lists of the log beside its own rules, and a topic is private if any of them says so.
//! So a node without the rule does not serve to anyone what another node guards.
//!
//! A start never takes a list out of the log, since the node may lack a rule by mistake. A reload
//! does: it replaces the list that this run has put in.

use super::ClusterNode;
use crate::codec::Growing;
use crate::lists::{ADDED, REMOVED, lists_of, rules_of, with_lists};
use stentor_hub::{AccessList, Entry, Op, Place, Rule, access_list, encode_entry};

/// The lists that a node has put into the log, and found there.
#[derive(Default)]
pub(super) struct AccessLists {
    /// The list that this run has put in last.
    own: AccessList,
    /// Those that a node finds which reads this epoch from its beginning, or takes a snapshot.
    in_log: Vec<AccessList>,
    /// At this change of the hub's rules nothing was to be put in.
    settled: Option<u64>,
}

impl AccessLists {
    /// These are in the log: in a snapshot of the epoch, or in its seeds.
    pub(super) fn found(&mut self, lists: Vec<AccessList>) {
        (self.in_log, self.settled) = (lists, None);
    }
}

impl ClusterNode {
    /// The lists that are to be put into the log, if any are, as a batch.
    pub(super) fn next_lists(&mut self) -> Option<Growing> {
        let changes = self.hub.rules_changes();
        if self.lists.settled == Some(changes) || !self.writer.stored.is_empty() {
            return None;
        }
        let (_, rules) = self.hub.rules();
        let own = access_list(&rules, 0);
        let is_new = |list: &AccessList| !list.is_empty() && !self.lists.in_log.contains(list);
        let added = [own.clone()].into_iter().chain(lists_of(&rules)).find(is_new);
        let removed = Some(&self.lists.own).filter(|list| **list != own);
        let mut change = rules_of(&added.unwrap_or_default(), ADDED);
        change.extend(removed.into_iter().flat_map(|list| rules_of(list, REMOVED)));
        if change.is_empty() {
            (self.lists.own, self.lists.settled) = (own, Some(changes));
            return None;
        }
        let mut batch = Growing::new();
        batch.push(|out| encode_entry(&Entry::past(Op::Rules(change), 0), Place::Next, out));
        Some(batch)
    }

    /// Applies a change of lists that was read.
    pub(super) fn apply_lists(&mut self, change: &[Rule], is_own: bool) {
        let (added, removed) = (access_list(change, ADDED), access_list(change, REMOVED));
        let _held = self.intake.hold_rules();
        let (generation, rules) = self.hub.rules();
        let mut lists = lists_of(&rules);
        for lists in [&mut lists, &mut self.lists.in_log] {
            lists.retain(|list| *list != removed && *list != added);
            lists.extend(Some(added.clone()).filter(|list| !list.is_empty()));
        }
        let rules = with_lists(&rules, lists);
        let _ = self.hub.apply(Entry::past(Op::Rules(rules), 0), Place::At(generation + 1));
        if is_own {
            (self.lists.own, self.lists.settled) = (AccessList::new(), None);
        }
    }
}
