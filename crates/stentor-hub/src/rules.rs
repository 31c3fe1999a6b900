//! Rules: how much history the topics of a pattern keep, and how their values may be cached.
//!
//! The first rule that matches a topic wins, and a rule for every topic stands at the end, so
//! every topic has exactly one. What all messages under one rule have in common is kept once and
//! pointed to ([`Terms`]), not copied into each.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::field::CacheControl;
use crate::id::Life;
use crate::pattern::Pattern;
use crate::rendered::RenderCache;

/// What holds for the topics of one pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The topics it speaks of.
    pub pattern: Pattern,
    /// Messages kept per topic, the value included. The value is always kept: 0 means 1.
    pub history: u32,
    /// Bytes of message data kept per topic, the value included. The value is always kept.
    pub history_bytes: usize,
    /// The Cache-Control of messages published without one. `None` means `no-cache`.
    pub cache_control: Option<CacheControl>,
    /// What answers with a value do without.
    pub leave_out: LeaveOut,
    /// What becomes of the messages when the process ends, with a store. `None` is as
    /// [`Keep::Synced`]: a server that does otherwise where no rule says so has rules that do.
    pub keep: Option<Keep>,
    /// Who may read the topics. A rule of another node's list counts for nothing else.
    pub guard: Guard,
}

/// Who may read the topics of a rule. It travels with the rule, so that a server does not serve to
/// anyone what the server that published it guards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Guard {
    /// Readers need a token.
    pub is_private: bool,
    /// Whose rule it is: 0 is the server that makes or keeps the order, and each other number is a
    /// list that a node of its cluster has put into the log. At most [`Guard::LISTS_MAX`].
    pub list: u8,
}

impl Guard {
    /// The greatest number of a list.
    pub const LISTS_MAX: u8 = 15;
}

/// An access list: patterns in their order, and whether readers of their topics need a token. The
/// first that matches a topic holds.
pub type AccessList = Vec<(Pattern, bool)>;

/// The access list `list` of these rules, up to the last pattern whose readers need a token.
#[must_use]
pub fn access_list(rules: &[Rule], list: u8) -> AccessList {
    let own = rules.iter().filter(|rule| rule.guard.list == list);
    let mut all: AccessList =
        own.map(|rule| (rule.pattern.clone(), rule.guard.is_private)).collect();
    let end = all.iter().rposition(|(_, is_private)| *is_private).map_or(0, |last| last + 1);
    all.truncate(end);
    all
}

/// What becomes of a message when the process ends, and what its publisher is promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// It is never stored.
    None,
    /// It is stored when its time comes: a publisher is answered at once.
    Memory,
    /// It is in the kernel's hands before the publisher is answered: it outlives the process.
    Written,
    /// It is on the disk before the publisher is answered: it outlives a loss of power.
    Synced,
}

/// Fields that the answers with a value may do without. HTTP needs none of them; what is lost
/// differs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LeaveOut {
    /// `Last-Modified`: then only tags tell a client whether it has the value.
    pub last_modified: bool,
    /// `Cache-Control`, where neither the publisher nor the rule chose one: then caches may guess
    /// how long a value is good.
    pub cache_control: bool,
    /// `Vary`, where a cache without it still hands nobody what is meant for another.
    pub vary: bool,
}

impl Rule {
    /// A rule for these topics with everything else at its default: 32 messages, 1 MiB.
    #[must_use]
    pub fn new(pattern: Pattern) -> Rule {
        Rule {
            pattern,
            history: HISTORY_DEFAULT,
            history_bytes: HISTORY_BYTES_DEFAULT,
            cache_control: None,
            leave_out: LeaveOut::default(),
            keep: None,
            guard: Guard::default(),
        }
    }
}

impl Default for Rule {
    fn default() -> Rule {
        Rule::new(Pattern::any())
    }
}

/// What all messages published under one rule have in common.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) life: Life,
    /// Counts the changes of rules: a topic whose terms are of an older one has yet to be held to
    /// those in force.
    pub(crate) generation: u64,
    pub(crate) rule: Rule,
    /// The hub's cache of what is rendered of messages.
    pub(crate) cache: RenderCache,
}

impl Hash for Terms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.generation, &self.rule.pattern).hash(state);
    }
}

impl Terms {
    /// What becomes of the messages when the process ends.
    pub(crate) fn keep(&self) -> Keep {
        self.rule.keep.unwrap_or(Keep::Synced)
    }

    /// Whether only the value is kept: who falls behind then wants the newest and nothing else.
    pub(crate) fn conflates(&self) -> bool {
        self.rule.history <= 1
    }
}

/// All rules, in order; the last matches everything.
pub(crate) struct Rules(Vec<Arc<Terms>>);

impl Rules {
    pub(crate) fn new(life: Life, generation: u64, rules: Vec<Rule>, cache: &RenderCache) -> Rules {
        let terms = |rule| Arc::new(Terms { life, generation, rule, cache: cache.clone() });
        Rules(rules.into_iter().chain([Rule::default()]).map(terms).collect())
    }

    /// Rules as [`Rules::all`] returned them. `None` if they are of several generations, or not all
    /// topics have one.
    pub(crate) fn restored(all: Vec<Arc<Terms>>) -> Option<Rules> {
        let last = all.last().filter(|last| last.rule == Rule::default())?;
        let is_one = all.iter().all(|terms| terms.generation == last.generation);
        is_one.then_some(Rules(all))
    }

    /// All of them, the one for every topic included.
    pub(crate) fn all(&self) -> &[Arc<Terms>] {
        &self.0
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0[0].generation
    }

    /// The terms that hold for a topic.
    pub(crate) fn terms(&self, topic: &str) -> &Arc<Terms> {
        let mut own = self.0.iter().filter(|terms| terms.rule.guard.list == 0);
        let matching = own.find(|terms| terms.rule.pattern.matches(topic));
        matching.expect("the rule at the end matches every topic")
    }
}

const HISTORY_DEFAULT: u32 = 32;
const HISTORY_BYTES_DEFAULT: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;

    #[test]
    fn the_first_match_wins_and_the_default_is_last() {
        let rule =
            |text: &str, history| Rule { history, ..Rule::new(Pattern::parse(text).unwrap()) };
        let life = Life { epoch: Epoch::parse("00000001").unwrap(), base: 0 };
        let rules = Rules::new(
            life,
            0,
            vec![rule("/a/*", 1), rule("/a/**", 2), rule("/a/b", 3)],
            &RenderCache::default(),
        );
        for (topic, history) in [("/a/b", 1), ("/a/b/c", 2), ("/a", 32), ("/x", 32)] {
            assert_eq!(rules.terms(topic).rule.history, history, "{topic}");
        }
        assert_eq!(
            Rules::new(life, 0, vec![], &RenderCache::default()).terms("/x").rule,
            Rule::default()
        );
        assert_eq!(Rule::default().history_bytes, 1024 * 1024);
    }

    #[test]
    fn rules_are_restored_if_every_topic_has_one_of_the_same_generation() {
        let life = Life { epoch: Epoch::parse("00000001").unwrap(), base: 0 };
        let rules = |generation| {
            Rules::new(life, generation, vec![Rule::default()], &RenderCache::default()).0
        };
        assert!(Rules::restored(rules(3)).is_some_and(|rules| rules.generation() == 3));
        let mut narrow = Rule::default();
        narrow.history += 1;
        let narrow = Rules::new(life, 3, vec![narrow], &RenderCache::default()).0;
        assert!(
            Rules::restored(narrow[..1].to_vec()).is_none() && Rules::restored(vec![]).is_none()
        );
        assert!(Rules::restored([rules(3), rules(4)].concat()).is_none());
    }
}
