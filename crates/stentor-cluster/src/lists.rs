//! Access lists beside the rules of a node: see `protocol/lists.rs`.

use stentor_hub::{AccessList, Guard, Hub, Pattern, Rule, access_list};

/// The access lists of other nodes that a hub has.
pub(super) fn lists_of(rules: &[Rule]) -> Vec<AccessList> {
    let lists = (1..=Guard::LISTS_MAX).map(|list| access_list(rules, list));
    lists.filter(|list| !list.is_empty()).collect()
}

/// The rules of this node, with these lists of the log beside them.
pub(super) fn with_lists(rules: &[Rule], mut lists: Vec<AccessList>) -> Vec<Rule> {
    let mut own: Vec<Rule> = rules.iter().filter(|rule| rule.guard.list == 0).cloned().collect();
    while lists.len() > usize::from(Guard::LISTS_MAX) {
        // One list that guards what the oldest two do, and more.
        let oldest = lists.drain(..2).flatten().filter(|(_, is_private)| *is_private).collect();
        lists.insert(0, oldest);
    }
    own.extend((1..).zip(&lists).flat_map(|(number, list)| rules_of(list, number)));
    own
}

/// The lists of a hub, as the first entry of the seeds of an epoch.
pub(super) fn lists_for_seeds(hub: &Hub) -> Vec<Rule> {
    let (_, rules) = hub.rules();
    let lists = lists_of(&rules).into_iter().chain([access_list(&rules, 0)]);
    (1..=Guard::LISTS_MAX).zip(lists).flat_map(|(number, list)| rules_of(&list, number)).collect()
}

/// The numbers of the lists in a change.
pub(super) const ADDED: u8 = 1;
pub(super) const REMOVED: u8 = 2;

/// A list as rules, which say nothing but who may read.
pub(super) fn rules_of(list: &AccessList, number: u8) -> Vec<Rule> {
    let rule = |(pattern, is_private): &(Pattern, bool)| Rule {
        guard: Guard { is_private: *is_private, list: number },
        ..Rule::new(pattern.clone())
    };
    list.iter().map(rule).collect()
}
