//! Lists of patterns: which topics they mean together, and how much of a subscription they cover.
//!
//! What is decided here is exact, not a guess: the hub's patterns say what they have in common
//! ([`PatternRef::is_within`], [`PatternRef::meets`]).
//!
//! A list is one string, with a line for each pattern: a token's permissions are kept for as long
//! as somebody uses them, and most hold one pattern or two. It is sorted, and what others of the
//! list already mean is left out, so that lists written differently are equal if they are the same.
//! The string may be a part of another one ([`PatternsRef`]), as in what tokens grant.
//! Nothing costs more than the list is long: no match tries again, and there is no recursion.

use std::fmt;

use stentor_hub::{Filter, Pattern, PatternRef};

/// Patterns of which each means topics; together they mean all of these.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Patterns(Box<str>);

/// The same, kept elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PatternsRef<'a>(&'a str);

/// How much of what a subscription means is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Every topic that it could mean.
    Whole,
    /// Some of these topics, but not all of them.
    Part,
    /// None.
    Nothing,
}

/// The longest list of patterns. A token of the longest kind that is read has room for some
/// hundreds; what needs more topics than this wants a pattern.
pub const PATTERNS_MAX: usize = 100;

impl Patterns {
    /// Takes texts for patterns.
    ///
    /// # Errors
    ///
    /// One plain sentence: which is none, and why; or that there are too many.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Patterns, String> {
        let mut patterns = Vec::new();
        for text in texts {
            if patterns.len() == PATTERNS_MAX {
                return Err(format!("More than {PATTERNS_MAX} patterns are in one list."));
            }
            patterns.push(Pattern::parse(text)?);
        }
        Ok(Patterns::of(&patterns))
    }

    /// These patterns, in whatever order, without those that others mean already.
    #[must_use]
    pub fn of(patterns: &[Pattern]) -> Patterns {
        let mut sorted: Vec<PatternRef<'_>> = patterns.iter().map(Pattern::borrowed).collect();
        sorted.sort_unstable_by_key(|pattern| pattern.as_str());
        sorted.dedup();
        let is_needed = |pattern: &&PatternRef<'_>| {
            let mut others = sorted.iter().filter(|other| other != pattern);
            !others.any(|other| pattern.is_within([*other].into_iter()))
        };
        let texts: Vec<&str> = sorted.iter().filter(is_needed).map(|p| p.as_str()).collect();
        Patterns(texts.join("\n").into())
    }

    /// The same list, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> PatternsRef<'_> {
        PatternsRef(&self.0)
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.borrowed().is_empty()
    }

    /// The patterns, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.borrowed().iter()
    }
}

impl<'a> PatternsRef<'a> {
    /// Takes the text of what was a list once; it is not checked again.
    pub(crate) fn of_list(text: &'a str) -> PatternsRef<'a> {
        PatternsRef(text)
    }

    /// The lines of the list.
    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether there is no pattern.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The patterns, in order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        // A topic has no control characters, so a line is a pattern.
        self.0.split('\n').filter(|text| !text.is_empty())
    }

    /// Whether `topic` is one of those meant.
    #[must_use]
    pub fn matches(self, topic: &str) -> bool {
        self.patterns().any(|pattern| pattern.matches(topic))
    }

    /// How much of `filter` is meant.
    #[must_use]
    pub fn coverage(self, filter: &Filter) -> Coverage {
        match filter {
            Filter::Topic(name) if self.matches(name) => Coverage::Whole,
            Filter::Topic(_) => Coverage::Nothing,
            Filter::Pattern(pattern) => {
                let wanted = pattern.borrowed();
                if wanted.is_within(self.patterns()) {
                    Coverage::Whole
                } else if self.patterns().any(|pattern| wanted.meets(pattern)) {
                    Coverage::Part
                } else {
                    Coverage::Nothing
                }
            }
        }
    }

    /// Its length.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0.len()
    }

    fn patterns(self) -> impl Iterator<Item = PatternRef<'a>> {
        self.iter().map(PatternRef::of_pattern)
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrowed().fmt(f)
    }
}

impl fmt::Debug for PatternsRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Patterns {
        Patterns::parse(texts.iter().copied()).unwrap()
    }

    fn coverage(texts: &[&str], filter: &str) -> Coverage {
        patterns(texts).borrowed().coverage(&Filter::parse(filter).unwrap())
    }

    #[test]
    fn how_much_is_covered() {
        for (texts, filter, expected) in [
            (&["/a"][..], "/a", Coverage::Whole),
            (&["/a"], "/b", Coverage::Nothing),
            (&["/a/*"], "/a/b", Coverage::Whole),
            (&["/a/*"], "/a/*", Coverage::Whole),
            (&["/a/*"], "/a/**", Coverage::Part),
            (&["/a/*"], "/*/b", Coverage::Part),
            (&["/a/*"], "/b/*", Coverage::Nothing),
            (&["/a/*"], "/a/*/c", Coverage::Nothing),
            (&["/a/**"], "/a/*/c", Coverage::Whole),
            (&["/a/**"], "/a", Coverage::Nothing),
            (&["/**"], "/**", Coverage::Whole),
            (&["/*"], "/**", Coverage::Part),
            // Neither has all of it, but both together do.
            (&["/a/*", "/a/*/**"], "/a/**", Coverage::Whole),
            (&["/a/*", "/a/*/*/**"], "/a/**", Coverage::Part),
            (&["/*/b", "/a/*"], "/*/*", Coverage::Part),
            (&[], "/**", Coverage::Nothing),
        ] {
            assert_eq!(coverage(texts, filter), expected, "{texts:?} {filter}");
        }
    }

    /// Topics are not of any length, and what would need a longer one than there is means nothing.
    #[test]
    fn the_length_of_topics_counts() {
        let all: Vec<String> = (1..=100).map(|n| "/*".repeat(n)).collect();
        let all = Patterns::parse(all.iter().map(String::as_str)).unwrap();
        assert_eq!(all.borrowed().coverage(&Filter::Pattern(Pattern::any())), Coverage::Part);
        // A long name leaves room for one more segment, or for two.
        for (len, segments, expected) in [
            (508, 1, Coverage::Whole),
            (507, 1, Coverage::Part),
            (507, 2, Coverage::Whole),
            (506, 2, Coverage::Whole),
            (505, 2, Coverage::Part),
        ] {
            let name = format!("/{}", "a".repeat(len));
            let filter = Filter::Pattern(Pattern::parse(&format!("{name}/**")).unwrap());
            let texts: Vec<String> =
                (1..=segments).map(|n| format!("{name}{}", "/*".repeat(n))).collect();
            let list = Patterns::parse(texts.iter().map(String::as_str)).unwrap();
            assert_eq!(list.borrowed().coverage(&filter), expected, "{len} {segments}");
        }
        // Two long names that no topic has room for both of.
        let half = "b".repeat(300);
        let filter = Filter::Pattern(Pattern::parse(&format!("/*/{half}")).unwrap());
        assert_eq!(
            patterns(&[&format!("/{half}/*")]).borrowed().coverage(&filter),
            Coverage::Nothing
        );
        assert_eq!(
            patterns(&[&format!("/{}/*", "b".repeat(200))]).borrowed().coverage(&filter),
            Coverage::Part
        );
    }

    #[test]
    fn lists_that_mean_the_same_are_equal() {
        for texts in [
            &["/a/**", "/b"][..],
            &["/b", "/a/**"],
            &["/b", "/a/**", "/b"],
            &["/a/x", "/b", "/a/*", "/a/*/c", "/a/**"],
        ] {
            assert_eq!(patterns(texts), patterns(&["/a/**", "/b"]));
        }
        assert_ne!(patterns(&["/a"]), patterns(&["/b"]));
        assert_eq!(patterns(&["/x", "/**"]), patterns(&["/**"]));
        assert_eq!(patterns(&[]), Patterns::default());
        let none = Patterns::default();
        assert!(!none.borrowed().matches("/a") && none.iter().next().is_none());
    }

    #[test]
    fn bad_lists_are_refused() {
        for texts in [&["a"][..], &["/a", ""], &["/a/**/b"], &["/-/x"], &["/a\n/b"]] {
            assert!(Patterns::parse(texts.iter().copied()).is_err());
        }
        assert!(Patterns::parse(vec!["/a"; PATTERNS_MAX]).is_ok());
        let error = Patterns::parse(vec!["/a"; PATTERNS_MAX + 1]).unwrap_err();
        assert_eq!(error, "More than 100 patterns are in one list.");
    }

    /// All topics of up to five segments over a small alphabet, in which one name is no pattern's.
    fn topics() -> Vec<String> {
        let mut topics = vec![String::new()];
        let mut all = Vec::new();
        for _ in 0..5 {
            topics = topics
                .iter()
                .flat_map(|topic| ["a", "b", "z"].map(|name| format!("{topic}/{name}")))
                .collect();
            all.extend(topics.iter().cloned());
        }
        all
    }

    proptest! {
        /// By brute force. With patterns of up to three segments, topics of five tell all apart.
        #[test]
        fn coverage_is_exact(
            texts in prop::collection::vec("(/[ab*]){1,3}(/\\*\\*)?", 0..6),
            filter in "(/[ab*]){1,3}(/\\*\\*)?",
        ) {
            let list = Patterns::parse(texts.iter().map(String::as_str)).unwrap();
            let filter = Pattern::parse(&filter).unwrap();
            let (mut covered, mut meant) = (0, 0);
            for topic in topics().iter().filter(|topic| filter.matches(topic)) {
                let allowed = texts.iter().any(|text| Pattern::parse(text).unwrap().matches(topic));
                prop_assert_eq!(list.borrowed().matches(topic), allowed);
                meant += 1;
                covered += usize::from(allowed);
            }
            let expected = match covered {
                0 => Coverage::Nothing,
                _ if covered == meant => Coverage::Whole,
                _ => Coverage::Part,
            };
            prop_assert_eq!(list.borrowed().coverage(&Filter::Pattern(filter)), expected);
        }
    }
}
