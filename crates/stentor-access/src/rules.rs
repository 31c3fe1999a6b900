//! Who may read and publish what, by topic: the part of `[[topics]]` that is about access.
//!
//! The first rule that matches a topic holds, as for all else that rules say; a topic without one
//! is read by anyone and published on the control listener. Whether there is such a topic does not
//! matter here, and must not: an answer that depended on it would tell who asks which names exist.

use crate::{Coverage, Patterns, PatternsRef};
use stentor_hub::{AccessList, Filter, Pattern};

/// Who may read the topics of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Readers {
    /// Whoever reaches a listener that reads.
    #[default]
    Anyone,
    /// Who has a token that allows it; and operators, on the control listener.
    Token,
}

/// Who may publish to the topics of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Publishers {
    /// Whoever reaches the control listener.
    #[default]
    Control,
    /// Besides, on the public listener, who has a token that allows it.
    Token,
}

/// What a rule says of access.
#[derive(Clone, Debug)]
pub struct TopicAccess {
    /// The topics it speaks of.
    pub pattern: Pattern,
    /// Who may read them.
    pub read: Readers,
    /// Who may publish to them.
    pub publish: Publishers,
}

/// All of them, in order.
#[derive(Clone, Debug, Default)]
pub struct TopicRules {
    rules: Vec<AccessRule>,
    /// Behind the last rule that asks readers for a token: whatever comes later asks for none.
    read_end: usize,
    /// The same of publishers.
    publish_end: usize,
    /// Rules of other servers, which guard topics here too.
    others: Vec<TopicRules>,
}

#[derive(Clone, Debug)]
struct AccessRule {
    access: TopicAccess,
    /// Its pattern, to be compared with others.
    meant: Patterns,
}

impl TopicRules {
    /// Rules in this order.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = TopicAccess>) -> TopicRules {
        let of = |access: TopicAccess| {
            // It is a pattern already.
            let meant = Patterns::parse([access.pattern.as_str()]).unwrap_or_default();
            AccessRule { access, meant }
        };
        let rules: Vec<AccessRule> = all.into_iter().map(of).collect();
        let end = |asks: fn(&TopicAccess) -> bool| {
            rules.iter().rposition(|rule| asks(&rule.access)).map_or(0, |last| last + 1)
        };
        TopicRules {
            read_end: end(|access| access.read == Readers::Token),
            publish_end: end(|access| access.publish == Publishers::Token),
            rules,
            others: Vec::new(),
        }
    }

    /// Has these lists of other servers guard topics too, in place of those before. A topic asks
    /// its readers for a token if the rules here or any of the lists do.
    pub fn guard_also(&mut self, lists: &[AccessList]) {
        let access = |(pattern, is_private): &(Pattern, bool)| TopicAccess {
            pattern: pattern.clone(),
            read: if *is_private { Readers::Token } else { Readers::Anyone },
            publish: Publishers::Control,
        };
        let rules = |list: &AccessList| TopicRules::new(list.iter().map(access));
        self.others = lists.iter().map(rules).collect();
    }

    /// Whether some topics ask their readers for a token by the rules here.
    fn has_own_private(&self) -> bool {
        self.read_end > 0
    }

    /// What each says.
    pub fn iter(&self) -> impl Iterator<Item = &TopicAccess> {
        self.rules.iter().map(|rule| &rule.access)
    }

    /// Whether some topics ask their readers for a token.
    pub fn has_private(&self) -> bool {
        self.has_own_private() || self.others.iter().any(TopicRules::has_own_private)
    }

    /// Whether some topics may be published to with a token.
    pub fn takes_tokens(&self) -> bool {
        self.publish_end > 0
    }

    /// Whether this topic asks its readers for a token.
    #[inline]
    pub fn is_private(&self, topic: &str) -> bool {
        let rule = first(&self.rules[..self.read_end], topic);
        rule.is_some_and(|access| access.read == Readers::Token)
            || self.others.iter().any(|others| others.is_private(topic))
    }

    /// Whether this topic may be published to with a token.
    pub fn takes_tokens_for(&self, topic: &str) -> bool {
        let rule = first(&self.rules[..self.publish_end], topic);
        rule.is_some_and(|access| access.publish == Publishers::Token)
    }

    /// The rules, to be compared with what somebody subscribes to who is allowed to read these.
    pub fn compare<'a>(&'a self, allowed: Option<PatternsRef<'a>>) -> Comparison<'a> {
        let patterns = allowed.map_or(0, |allowed| allowed.iter().count());
        let others = self.others.iter().map(|others| others.compare(allowed)).collect();
        Comparison {
            rules: self,
            allowed,
            patterns,
            covered: Vec::new(),
            compared: patterns,
            others,
        }
    }

    /// What it costs to say of a topic whether who is allowed these may read it.
    pub fn cost_of_topic(&self, allowed: Option<PatternsRef<'_>>) -> usize {
        let others = self.others.iter().map(|others| others.read_end).sum::<usize>();
        (self.read_end + others) * COMPARED_COST + allowed.map_or(0, PatternsRef::bytes)
    }
}

/// Rules and permissions beside what is subscribed to. Whoever asks names many patterns, and there
/// are rules and permissions to compare each of them with, so what is compared is counted.
pub struct Comparison<'a> {
    rules: &'a TopicRules,
    allowed: Option<PatternsRef<'a>>,
    /// How many these are.
    patterns: usize,
    /// Of each rule whether all it means may be read, if that was asked before.
    covered: Vec<Option<bool>>,
    /// How many patterns were looked at.
    compared: usize,
    /// The same of the rules of other servers.
    others: Vec<Comparison<'a>>,
}

impl Comparison<'_> {
    /// How much of what a subscription means may be read. It is never said to be more than it is.
    /// Where rules overlap it may be said to be less than whole.
    pub fn coverage(&mut self, filter: &Filter) -> Coverage {
        let mut least = self.own_coverage(filter);
        for other in &mut self.others {
            least = match (least, other.coverage(filter)) {
                (Coverage::Nothing, _) | (_, Coverage::Nothing) => Coverage::Nothing,
                (Coverage::Part, _) | (_, Coverage::Part) => Coverage::Part,
                (Coverage::Whole, Coverage::Whole) => Coverage::Whole,
            };
        }
        least
    }

    fn own_coverage(&mut self, filter: &Filter) -> Coverage {
        let Comparison { rules, allowed, .. } = *self;
        self.compared += rules.read_end + self.patterns;
        if let Filter::Topic(topic) = filter {
            let may = || allowed.is_some_and(|allowed| allowed.matches(topic));
            let rule = first(&rules.rules[..rules.read_end], topic);
            let is_private = rule.is_some_and(|access| access.read == Readers::Token);
            return match is_private && !may() {
                true => Coverage::Nothing,
                false => Coverage::Whole,
            };
        }
        let by_token = allowed.map_or(Coverage::Nothing, |allowed| allowed.coverage(filter));
        if by_token == Coverage::Whole || !rules.has_own_private() {
            return Coverage::Whole;
        }
        let (mut sees, mut misses) = (by_token == Coverage::Part, false);
        let mut rest = true;
        for (at, AccessRule { access, meant }) in rules.rules[..rules.read_end].iter().enumerate() {
            let share = meant.borrowed().coverage(filter);
            if share == Coverage::Nothing {
                continue;
            }
            match access.read == Readers::Anyone || self.allows_all_of(at) {
                true => sees = true,
                false => misses = true,
            }
            if share == Coverage::Whole {
                // Of what is meant nothing is left for rules behind it.
                rest = false;
                break;
            }
        }
        match (sees || rest, misses) {
            (_, false) => Coverage::Whole,
            (true, true) => Coverage::Part,
            (false, true) => Coverage::Nothing,
        }
    }

    /// Whether a token allows something of what a subscription means.
    pub fn allows_some(&mut self, filter: &Filter) -> bool {
        self.compared += self.patterns;
        self.allowed.is_some_and(|allowed| allowed.coverage(filter) != Coverage::Nothing)
    }

    /// What it has cost so far.
    pub fn cost(&self) -> usize {
        let others = self.others.iter().map(Comparison::cost).sum::<usize>();
        self.compared * COMPARED_COST + others
    }

    /// Whether a token allows all that a rule means.
    fn allows_all_of(&mut self, at: usize) -> bool {
        let Some(allowed) = self.allowed else { return false };
        self.covered.resize(self.rules.read_end, None);
        if let Some(covered) = self.covered[at] {
            return covered;
        }
        self.compared += self.patterns;
        let of_rule = Filter::Pattern(self.rules.rules[at].access.pattern.clone());
        let covered = allowed.coverage(&of_rule) == Coverage::Whole;
        self.covered[at] = Some(covered);
        covered
    }
}

/// What it costs to look at one pattern: some twenty nanoseconds.
const COMPARED_COST: usize = 20;

fn first<'r>(rules: &'r [AccessRule], topic: &str) -> Option<&'r TopicAccess> {
    rules.iter().map(|rule| &rule.access).find(|access| access.pattern.matches(topic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_io::Rng;

    fn rules(all: &[(&str, Readers)]) -> TopicRules {
        let publish = Publishers::Control;
        TopicRules::new(all.iter().map(|&(pattern, read)| TopicAccess {
            pattern: Pattern::parse(pattern).unwrap(),
            read,
            publish,
        }))
    }

    fn list(patterns: &[&str]) -> Patterns {
        Patterns::parse(patterns.iter().copied()).unwrap()
    }

    #[test]
    fn the_first_rule_that_matches_holds() {
        use Readers::{Anyone, Token};
        let rules = rules(&[("/a/open", Anyone), ("/a/**", Token), ("/a/b", Anyone)]);
        for (topic, is_private) in
            [("/a/open", false), ("/a/b", true), ("/a/x/y", true), ("/a", false), ("/b", false)]
        {
            assert_eq!(rules.is_private(topic), is_private, "{topic}");
        }
        assert!(rules.has_private() && !rules.takes_tokens());
        assert!(!TopicRules::default().has_private());
        assert!(!TopicRules::default().is_private("/a"));
    }

    /// A topic that a list opens is open there alone.
    #[test]
    fn topics_are_private_by_any_list() {
        use Readers::{Anyone, Token};
        let mut rules = rules(&[("/a/open", Anyone), ("/a/*", Token), ("/c", Anyone)]);
        let list = |all: &[(&str, bool)]| -> AccessList {
            all.iter().map(|&(it, guards)| (Pattern::parse(it).unwrap(), guards)).collect()
        };
        rules.guard_also(&[list(&[("/b/open", false), ("/b/**", true)]), list(&[("/c", true)])]);
        for (topic, is_private) in [
            ("/a/open", false),
            ("/a/x", true),
            ("/b/open", false),
            ("/b/x/y", true),
            ("/c", true),
            ("/d", false),
        ] {
            assert_eq!(rules.is_private(topic), is_private, "{topic}");
            let filter = Filter::parse(topic).unwrap();
            let expected = if is_private { Coverage::Nothing } else { Coverage::Whole };
            assert_eq!(rules.compare(None).coverage(&filter), expected, "{topic}");
        }
        let all = Filter::parse("/**").unwrap();
        assert_eq!(rules.compare(None).coverage(&all), Coverage::Part);
        rules.guard_also(&[]);
        assert!(!rules.is_private("/c") && rules.is_private("/a/x"));
    }

    #[test]
    fn publishing_goes_by_a_rule_of_its_own() {
        let access = |pattern, publish| TopicAccess {
            pattern: Pattern::parse(pattern).unwrap(),
            read: Readers::Anyone,
            publish,
        };
        let rules = TopicRules::new([
            access("/a/mine", Publishers::Control),
            access("/a/*", Publishers::Token),
        ]);
        for (topic, takes) in [("/a/mine", false), ("/a/b", true), ("/b", false)] {
            assert_eq!(rules.takes_tokens_for(topic), takes, "{topic}");
        }
        assert!(rules.takes_tokens() && !rules.has_private());
    }

    #[test]
    fn a_subscription_is_covered_whole_in_part_or_not_at_all() {
        use Coverage::{Nothing, Part, Whole};
        use Readers::{Anyone, Token};
        let rules = rules(&[("/a/open", Anyone), ("/a/**", Token), ("/b/*/x", Token)]);
        for (filter, patterns, expected) in [
            ("/a/open", &[][..], Whole),
            ("/a/b", &[], Nothing),
            ("/a/b", &["/a/b"], Whole),
            ("/a/b", &["/a/c"], Nothing),
            ("/c", &[], Whole),
            ("/c/*", &[], Whole),
            ("/a/*", &[], Part),
            ("/a/*/c", &[], Nothing),
            ("/a/*/c", &["/a/b/c"], Part),
            ("/a/*/c", &["/a/*/c"], Whole),
            ("/a/**", &["/a/**"], Whole),
            ("/**", &[], Part),
            ("/**", &["/a/**"], Part),
            ("/**", &["/a/**", "/b/**"], Whole),
            ("/b/*/x", &[], Nothing),
            ("/b/*/*", &[], Part),
        ] {
            let filter = Filter::parse(filter).unwrap();
            let allowed = list(patterns);
            let coverage = rules.compare(Some(allowed.borrowed())).coverage(&filter);
            assert_eq!(coverage, expected, "{filter} with {patterns:?}");
            if patterns.is_empty() {
                assert_eq!(rules.compare(None).coverage(&filter), expected, "{filter}");
            }
        }
    }

    /// What is asked again of a rule was said before; what is compared is counted all the same.
    #[test]
    fn what_is_compared_is_counted() {
        let patterns = (0..50).map(|n| format!("/r{n}/a/**")).collect::<Vec<_>>();
        let allowed = list(&patterns.iter().map(String::as_str).collect::<Vec<_>>());
        let all = (0..20).map(|n| format!("/r{n}/**")).collect::<Vec<_>>();
        let rules = rules(&all.iter().map(|rule| (&**rule, Readers::Token)).collect::<Vec<_>>());
        let mut comparison = rules.compare(Some(allowed.borrowed()));
        let filters = ["/**", "/r1/x", "/r2/*", "/**"].map(|text| Filter::parse(text).unwrap());
        let costs = filters.each_ref().map(|filter| {
            let before = comparison.cost();
            comparison.coverage(filter);
            (comparison.cost() - before) / COMPARED_COST
        });
        assert_eq!(costs, [20 + 50 + 20 * 50, 20 + 50, 20 + 50, 20 + 50]);
        assert!(comparison.allows_some(&filters[0]) && !comparison.allows_some(&filters[1]));
        assert!(rules.cost_of_topic(Some(allowed.borrowed())) > rules.cost_of_topic(None));
    }

    /// Topic by topic, nothing is covered that may not be read, and what is not covered at all has
    /// no topic that may.
    #[test]
    fn coverage_promises_no_more_than_may_be_read() {
        let mut rng = Rng::new(15);
        let mut pattern = |rest: bool| {
            let segments = (0..=rng.below(3)).map(|_| ["/a", "/b", "/*"][rng.below(3)]);
            let mut text: String = segments.collect();
            if rest && rng.below(3) == 0 {
                text += "/**";
            }
            text
        };
        let mut part = 0;
        for round in 0..20_000 {
            let access = |read| {
                move |text: String| TopicAccess {
                    pattern: Pattern::parse(&text).unwrap(),
                    read,
                    publish: Publishers::Control,
                }
            };
            let all: Vec<_> = (0..round % 5)
                .map(|i| access([Readers::Token, Readers::Anyone][i % 2])(pattern(true)))
                .collect();
            let rules = TopicRules::new(all);
            let allowed: Vec<String> = (0..round % 4).map(|_| pattern(true)).collect();
            let allowed = list(&allowed.iter().map(String::as_str).collect::<Vec<_>>());
            let Ok(filter) = Filter::parse(&pattern(true)) else { continue };
            let coverage = rules.compare(Some(allowed.borrowed())).coverage(&filter);
            part += usize::from(coverage == Coverage::Part);
            for topic in (0..8).map(|_| pattern(false).replace('*', "c")) {
                if !filter.matches(&topic) {
                    continue;
                }
                let may = !rules.is_private(&topic) || allowed.borrowed().matches(&topic);
                assert!(may || coverage != Coverage::Whole, "{topic} of {filter}");
                assert!(!may || coverage != Coverage::Nothing, "{topic} of {filter}");
            }
        }
        assert!(part > 1_000, "{part}");
    }
}
