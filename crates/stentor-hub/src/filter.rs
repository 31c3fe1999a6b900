//! Filters: what a reader wants to be told of, and a tree that finds who wants a topic.
//!
//! Every publish asks whether anybody listens, so the question must not cost more as readers come.
//! Filters that name one topic are found by one look-up in a hash table. Patterns sit in a tree
//! with one level for each segment, so that a name is walked once for all of them together and
//! patterns that cannot match any more are left behind at the segment that tells.

use std::collections::HashMap;
use std::fmt;

use stentor_wire::target::{TopicName, shortened};

use crate::pattern::{self, ONE, Pattern, segments};
use stentor_wire::error::Rejection;

/// A topic or a pattern: what a reader wants to be told of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Filter {
    /// This topic, which need not exist yet.
    Topic(TopicName<'static>),
    /// Every topic that the pattern matches, also those to come.
    Pattern(Pattern),
}

impl Filter {
    /// Means every topic.
    #[must_use]
    pub fn any() -> Filter {
        Filter::Pattern(Pattern::any())
    }

    /// Takes a text with a segment `*` or `**` for a pattern, any other for a topic.
    ///
    /// # Errors
    ///
    /// If it could never match a topic, or is a pattern of more than 32 segments or with more than
    /// two `*`. The sentence repeats the text.
    pub fn parse(text: &str) -> Result<Filter, Rejection> {
        if text.contains('*') {
            let pattern = Pattern::parse(text)?;
            if segments(text).count() > SEGMENTS_MAX {
                let reason = format!("a pattern may have at most {SEGMENTS_MAX} segments.");
                return Err(pattern::rejected(text, &reason));
            }
            if segments(text).filter(|&segment| segment == ONE).count() > STARS_MAX {
                let reason = format!("at most {STARS_MAX} segments of a pattern may be `*`.");
                return Err(pattern::rejected(text, &reason));
            }
            return Ok(Filter::Pattern(pattern));
        }
        let name = TopicName::parse(text).map_err(|Rejection { code, detail }| {
            Rejection::because(code, format!("topic \"{}\": {detail}", shortened(text)))
        })?;
        Ok(Filter::Topic(name.into_owned()))
    }

    /// Whether `topic` is one of those meant.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        match self {
            Filter::Topic(name) => name.as_str() == topic,
            Filter::Pattern(pattern) => pattern.matches(topic),
        }
    }
}

impl Filter {
    /// What it takes, roughly, to be told of what it matches: its part in [`Filters`], once in the
    /// hub and once with the subscriber. In bytes.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        match self {
            Filter::Topic(name) => TOPIC_COST_BYTES + 3 * name.len(),
            Filter::Pattern(pattern) => {
                let text = pattern.as_str();
                TOPIC_COST_BYTES + 3 * text.len() + NODE_COST_BYTES * segments(text).count()
            }
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Filter::Topic(name) => name.as_str(),
            Filter::Pattern(pattern) => pattern.as_str(),
        })
    }
}

/// Values by filter; finds all those whose filter matches a topic.
#[derive(Debug)]
pub struct Filters<T> {
    topics: Map<T>,
    patterns: TrieNode<T>,
    len: usize,
}

impl<T> Filters<T> {
    /// How many filters there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no filter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of exactly this filter.
    #[must_use]
    pub fn get(&self, filter: &Filter) -> Option<&T> {
        match filter {
            Filter::Topic(name) => self.topics.get(name.as_str()),
            Filter::Pattern(pattern) => {
                let mut node = &self.patterns;
                for segment in pattern.segments() {
                    node = node.child(segment)?;
                }
                node.ending(pattern).as_ref()
            }
        }
    }

    /// The value of exactly this filter, to be changed.
    pub fn get_mut(&mut self, filter: &Filter) -> Option<&mut T> {
        match filter {
            Filter::Topic(name) => self.topics.get_mut(name.as_str()),
            Filter::Pattern(pattern) => {
                let mut node = &mut self.patterns;
                for segment in pattern.segments() {
                    node = node.child_mut(segment)?;
                }
                node.ending_mut(pattern).as_mut()
            }
        }
    }

    /// Puts a value in. Returns the one this filter had before.
    pub fn insert(&mut self, filter: &Filter, value: T) -> Option<T> {
        let before = match filter {
            Filter::Topic(name) => self.topics.insert(name.as_str().into(), value),
            Filter::Pattern(pattern) => {
                let mut node = &mut self.patterns;
                for segment in pattern.segments() {
                    node = node.child_or_new(segment);
                }
                node.ending_mut(pattern).replace(value)
            }
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes a value out, and with it whatever part of the tree held nothing else.
    pub fn remove(&mut self, filter: &Filter) -> Option<T> {
        let removed = match filter {
            Filter::Topic(name) => self.topics.remove(name.as_str()),
            Filter::Pattern(pattern) => self.patterns.remove(&mut pattern.segments(), pattern),
        };
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Shows `f` the value of every filter that matches `topic`, in no particular order.
    pub fn matching<'a>(&'a self, topic: &str, mut f: impl FnMut(&'a T)) {
        if self.is_empty() {
            return;
        }
        if let Some(value) = self.topics.get(topic) {
            f(value);
        }
        if !self.patterns.is_empty() {
            self.patterns.matching(topic.strip_prefix('/'), &mut f);
        }
    }
}

impl<T> Default for Filters<T> {
    fn default() -> Filters<T> {
        Filters { topics: Map::default(), patterns: TrieNode::default(), len: 0 }
    }
}

/// A position after some segments. The depth of the tree, and so that of every recursion, is
/// bounded by [`SEGMENTS_MAX`].
#[derive(Debug)]
struct TrieNode<T> {
    /// Of the pattern that ends here.
    here: Option<T>,
    /// Of the pattern that goes on with `**`.
    rest: Option<T>,
    /// Where `*` leads.
    one: Option<Box<TrieNode<T>>>,
    /// Where a segment leads that stands for itself.
    named: ChildNodes<T>,
}

impl<T> TrieNode<T> {
    fn child(&self, segment: &str) -> Option<&TrieNode<T>> {
        if segment == ONE { self.one.as_deref() } else { self.named.get(segment) }
    }

    fn child_mut(&mut self, segment: &str) -> Option<&mut TrieNode<T>> {
        if segment == ONE { self.one.as_deref_mut() } else { self.named.get_mut(segment) }
    }

    fn child_or_new(&mut self, segment: &str) -> &mut TrieNode<T> {
        if segment == ONE {
            self.one.get_or_insert_default()
        } else {
            self.named.get_or_new(segment)
        }
    }

    fn ending(&self, pattern: &Pattern) -> &Option<T> {
        if pattern.has_rest() { &self.rest } else { &self.here }
    }

    fn ending_mut(&mut self, pattern: &Pattern) -> &mut Option<T> {
        if pattern.has_rest() { &mut self.rest } else { &mut self.here }
    }

    /// Removes what `pattern` ends in, whose segments below this node are `left`.
    fn remove<'p>(
        &mut self,
        left: &mut impl Iterator<Item = &'p str>,
        pattern: &Pattern,
    ) -> Option<T> {
        let Some(segment) = left.next() else { return self.ending_mut(pattern).take() };
        let child = self.child_mut(segment)?;
        let removed = child.remove(left, pattern);
        if child.is_empty() {
            if segment == ONE {
                self.one = None;
            } else {
                self.named.remove(segment);
            }
        }
        removed
    }

    fn is_empty(&self) -> bool {
        let ends = self.here.is_some() || self.rest.is_some();
        !ends && self.one.is_none() && self.named.is_empty()
    }

    /// `left` is what the name has below this node; `None` if it ends here.
    fn matching<'a>(&'a self, left: Option<&str>, f: &mut impl FnMut(&'a T)) {
        let Some(left) = left else { return self.here.iter().for_each(f) };
        self.rest.iter().for_each(&mut *f);
        let (segment, left) = match left.split_once('/') {
            Some((segment, left)) => (segment, Some(left)),
            None => (left, None),
        };
        if let Some(child) = self.named.get(segment) {
            child.matching(left, f);
        }
        if let Some(child) = &self.one {
            child.matching(left, f);
        }
    }
}

impl<T> Default for TrieNode<T> {
    fn default() -> TrieNode<T> {
        TrieNode { here: None, rest: None, one: None, named: ChildNodes::None }
    }
}

/// Nodes by segment. Most positions of most patterns have one way on, and a table for it would be
/// many times as large.
#[derive(Debug)]
enum ChildNodes<T> {
    None,
    One(Box<str>, Box<TrieNode<T>>),
    Many(Map<TrieNode<T>>),
}

impl<T> ChildNodes<T> {
    fn get(&self, segment: &str) -> Option<&TrieNode<T>> {
        match self {
            ChildNodes::One(name, node) => (**name == *segment).then_some(node),
            ChildNodes::Many(map) => map.get(segment),
            ChildNodes::None => None,
        }
    }

    fn get_mut(&mut self, segment: &str) -> Option<&mut TrieNode<T>> {
        match self {
            ChildNodes::One(name, node) => (**name == *segment).then_some(node),
            ChildNodes::Many(map) => map.get_mut(segment),
            ChildNodes::None => None,
        }
    }

    fn get_or_new(&mut self, segment: &str) -> &mut TrieNode<T> {
        if let ChildNodes::One(name, _) = self
            && **name != *segment
            && let ChildNodes::One(name, node) = std::mem::replace(self, ChildNodes::None)
        {
            *self = ChildNodes::Many(Map::from_iter([(name, *node)]));
        }
        if let ChildNodes::None = self {
            *self = ChildNodes::One(segment.into(), Box::default());
        }
        match self {
            ChildNodes::One(_, node) => node,
            ChildNodes::Many(map) => map.entry(segment.into()).or_default(),
            ChildNodes::None => unreachable!("it was just filled"),
        }
    }

    fn remove(&mut self, segment: &str) {
        match self {
            ChildNodes::One(name, _) if **name == *segment => *self = ChildNodes::None,
            ChildNodes::Many(map) => {
                map.remove(segment);
                if map.is_empty() {
                    *self = ChildNodes::None;
                }
            }
            ChildNodes::One(..) | ChildNodes::None => {}
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, ChildNodes::None)
    }
}

type Map<T> = HashMap<Box<str>, T, foldhash::fast::RandomState>;

/// Estimates for [`Filter::cost_bytes`].
const TOPIC_COST_BYTES: usize = 512;
const NODE_COST_BYTES: usize = 256;

/// The most segments of a pattern that is read: each of them takes a node.
const SEGMENTS_MAX: usize = 32;

/// The most segments of a pattern that may be `*`. A name of n segments can match 2^n patterns, one
/// for each choice of stars, and all of them are found inside the sequencing point. With two stars
/// it meets some n^3 / 6 nodes at most: 128 at 8 segments, 575 at 14.
const STARS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(text: &str) -> Filter {
        Filter::parse(text).unwrap()
    }

    fn found<'a>(filters: &'a Filters<String>, topic: &str) -> Vec<&'a str> {
        let mut found = Vec::new();
        filters.matching(topic, |value| found.push(value.as_str()));
        found.sort_unstable();
        found
    }

    #[test]
    fn errors_repeat_a_bounded_part_of_the_text() {
        let long = "\u{200b}".repeat(20_000);
        for text in [
            long.clone(),
            format!("/{long}/*"),
            format!("/{}*", "\u{200b}/".repeat(40)),
            format!("/{}/*/*/*", "\u{200b}".repeat(100)),
            format!("/{}/**/a", "\u{200b}".repeat(100)),
        ] {
            let error = Filter::parse(&text).unwrap_err();
            assert!(error.detail.len() < 2_000, "{}", error.detail.len());
        }
    }

    #[test]
    fn topics_and_patterns_are_told_apart() {
        for topic in ["/a", "/a-b", "/a/b c/d"] {
            assert_eq!(filter(topic), Filter::Topic(TopicName::parse(topic).unwrap().into_owned()));
            assert!(filter(topic).matches(topic) && !filter(topic).matches("/a/x"));
        }
        for pattern in ["/*", "/**", "/a/*/b", "/a/**", "/*/a/*/**"] {
            assert_eq!(filter(pattern), Filter::Pattern(Pattern::parse(pattern).unwrap()));
            assert_eq!(filter(pattern).to_string(), pattern);
        }
        for bad in [
            "", "*", "a", "/", "/a/", "//a", "/**/b", "/-/x", "/a*", "/***", "/a/b*c/d", "/a\n",
            "/*/../b", "/*/*/*",
        ] {
            let error = Filter::parse(bad).unwrap_err().detail;
            assert!(error.contains(&format!("{bad:?}: ")) || error.contains("stand"), "{error}");
        }
    }

    #[test]
    fn values_by_filter() {
        let mut filters = Filters::default();
        assert!(filters.is_empty());
        for text in ["/a", "/*", "/**", "/a/*", "/a/**", "/*/b", "/a/b"] {
            assert_eq!(filters.insert(&filter(text), text.to_owned()), None);
            assert_eq!(filters.get(&filter(text)).map(String::as_str), Some(text));
        }
        assert_eq!(filters.len(), 7);
        assert_eq!(found(&filters, "/a"), ["/*", "/**", "/a"]);
        assert_eq!(found(&filters, "/a/b"), ["/**", "/*/b", "/a/*", "/a/**", "/a/b"]);
        assert_eq!(found(&filters, "/x/b"), ["/**", "/*/b"]);
        assert_eq!(found(&filters, "/a/b/c"), ["/**", "/a/**"]);
        assert_eq!(filters.get(&filter("/a/x")), None);
        assert_eq!(filters.get(&filter("/x/*")), None);
        assert_eq!(filters.get_mut(&filter("/x/*")), None);
        assert_eq!(filters.insert(&filter("/a/*"), "new".into()).as_deref(), Some("/a/*"));
        filters.get_mut(&filter("/a/*")).unwrap().push('!');
        assert_eq!(found(&filters, "/a/x"), ["/**", "/a/**", "new!"]);
        assert_eq!(filters.len(), 7, "replacing adds none");
    }

    #[test]
    fn what_is_removed_leaves_nothing() {
        let texts = ["/a/*/c", "/a/*/**", "/a/*", "/*/b/**", "/a", "/**"];
        let mut filters = Filters::default();
        for text in texts {
            filters.insert(&filter(text), text.to_owned());
        }
        assert_eq!(filters.remove(&filter("/a/*/d")), None);
        assert_eq!(filters.remove(&filter("/a/**")), None);
        for (left, text) in (0..texts.len()).rev().zip(texts) {
            assert_eq!(filters.remove(&filter(text)).as_deref(), Some(text));
            assert_eq!(filters.remove(&filter(text)), None);
            assert_eq!(filters.len(), left);
        }
        assert!(filters.patterns.is_empty(), "no empty branch stays");
    }

    /// A filter has a place in the hub's table, and one in that of its subscriber.
    #[test]
    fn a_filter_costs_its_places_in_tables() {
        let place = size_of::<(Box<str>, usize)>();
        for topic in ["/a".to_owned(), format!("/{}", "a".repeat(500))] {
            assert!(filter(&topic).cost_bytes() >= 2 * (place + topic.len()));
        }
        for segments in 2..SEGMENTS_MAX {
            let text = format!("/*{}", "/a".repeat(segments - 1));
            let nodes = segments * (place + size_of::<TrieNode<usize>>());
            let cost = filter(&text).cost_bytes();
            assert!(cost >= 2 * (nodes + text.len()), "{cost} for {segments} segments");
        }
    }

    #[test]
    fn long_filters_are_no_trouble() {
        let long = |segments: usize| format!("/*{}", "/a".repeat(segments - 1));
        let longest = filter(&long(SEGMENTS_MAX));
        let mut filters = Filters::default();
        filters.insert(&longest, "long".to_owned());
        assert_eq!(found(&filters, &"/a".repeat(SEGMENTS_MAX)), ["long"]);
        assert!(found(&filters, &"/a".repeat(SEGMENTS_MAX - 1)).is_empty());
        assert!(found(&filters, &"/a".repeat(256)).is_empty());
        assert!(Filter::parse(&long(SEGMENTS_MAX + 1)).is_err());
        assert!(filters.remove(&longest).is_some() && filters.patterns.is_empty());
    }

    /// All patterns that a name of 14 segments can match: 2^14, were all of them taken.
    #[test]
    fn a_name_meets_few_patterns() {
        let mut filters = Filters::default();
        for stars in 0..1_u32 << 14 {
            let segment = |n: u32| if stars >> n & 1 == 1 { "/*" } else { "/a" };
            let text: String = (0..14).map(segment).collect();
            if let Ok(filter) = Filter::parse(&text) {
                filters.insert(&filter, text);
            }
        }
        assert_eq!(filters.len(), 1 + 14 + 91);
        assert_eq!(found(&filters, &"/a".repeat(14)).len(), filters.len());
    }

    proptest! {
        /// A map that is searched from end to end finds the same.
        #[test]
        fn any_filters_match_what_they_say(
            changes in proptest::collection::vec(
                (any::<bool>(), "(/([ab]|\\*|a\\*)){1,3}(/\\*\\*)?"), 0..30),
            topics in proptest::collection::vec("(/([abc]|a\\*|\\*)){1,4}", 1..10),
        ) {
            let mut filters = Filters::default();
            let mut plain = std::collections::BTreeMap::new();
            for (add, text) in changes {
                let Ok(filter) = Filter::parse(&text) else { continue };
                if add {
                    prop_assert_eq!(filters.insert(&filter, text.clone()), plain.remove(&text));
                    plain.insert(text.clone(), text);
                } else {
                    prop_assert_eq!(filters.remove(&filter), plain.remove(&text));
                }
                prop_assert_eq!(filters.len(), plain.len());
            }
            for topic in &topics {
                let matching = plain.keys().filter(|text| filter(text).matches(topic));
                let wanted: Vec<&str> = matching.map(String::as_str).collect();
                prop_assert_eq!(found(&filters, topic), wanted);
            }
            for text in plain.keys() {
                prop_assert_eq!(filters.get(&filter(text)), Some(text));
                filters.remove(&filter(text));
            }
            prop_assert!(filters.is_empty() && filters.patterns.is_empty());
        }
    }
}
