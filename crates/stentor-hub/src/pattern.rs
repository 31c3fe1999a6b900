//! Patterns over topic names: `*` stands for one segment, `**` at the end for any rest.
//!
//! There is no other wildcard and no escaping, so a match never tries again: it walks pattern and
//! name side by side once, whatever a hostile name looks like.

use stentor_wire::target::TopicName;

/// A pattern such as `/quotes/*` or `/scores/**`. A segment that is neither exactly `*` nor
/// exactly `**` stands for itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Parses a pattern; a pattern that could never match a topic is an error.
    ///
    /// # Errors
    ///
    /// One plain sentence, with the pattern in it: what is wrong as a topic name would be
    /// (stars aside), and `**` anywhere but at the end.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        TopicName::parse(text).map_err(|reason| format!("pattern {text:?}: {reason}"))?;
        let pattern = Pattern(text.into());
        if pattern.segments().any(|segment| segment == REST) {
            return Err(format!("pattern {text:?}: `**` may stand at the end only."));
        }
        Ok(pattern)
    }

    /// The pattern that matches every topic: `/**`.
    #[must_use]
    pub fn any() -> Pattern {
        Pattern(Box::from("/**"))
    }

    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same pattern, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> PatternRef<'_> {
        PatternRef(&self.0)
    }

    /// Whether `topic` is one of those meant. Linear in the length of the shorter.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        self.borrowed().matches(topic)
    }

    /// Whether some topic is meant by both.
    pub(crate) fn meets(&self, other: &Pattern) -> bool {
        let (mut own, mut others) = (self.segments(), other.segments());
        loop {
            match (own.next(), others.next()) {
                (Some(one), Some(two)) if one == two || one == ONE || two == ONE => {}
                (Some(_), Some(_)) => return false,
                (Some(_), None) => return other.has_rest(),
                (None, Some(_)) => return self.has_rest(),
                (None, None) => return self.has_rest() == other.has_rest(),
            }
        }
    }

    /// Whether every topic that `other` means is meant here, too.
    pub(crate) fn covers(&self, other: &Pattern) -> bool {
        let (mut own, mut others) = (self.segments(), other.segments());
        loop {
            match (own.next(), others.next()) {
                (Some(one), Some(two)) if one == two || one == ONE => {}
                (Some(_), _) => return false,
                (None, Some(_)) => return self.has_rest(),
                (None, None) => return self.has_rest() == other.has_rest(),
            }
        }
    }

    /// What the names of all topics meant begin with.
    pub(crate) fn prefix(&self) -> &str {
        let end = self.0.split_inclusive('/').take_while(|piece| !is_wild(piece)).map(str::len);
        &self.0[..end.sum()]
    }

    /// Its segments without the `**` at the end.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.borrowed().segments()
    }

    /// Whether it ends in `**`.
    pub(crate) fn has_rest(&self) -> bool {
        self.borrowed().has_rest()
    }
}

/// A pattern whose text is kept elsewhere, such as among others in one string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PatternRef<'a>(&'a str);

impl<'a> PatternRef<'a> {
    /// Takes the text of what was a [`Pattern`] once; it is not checked again.
    #[must_use]
    pub fn of_pattern(text: &'a str) -> PatternRef<'a> {
        PatternRef(text)
    }

    /// As written.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether `topic` is one of those meant. Linear in the length of the shorter.
    #[must_use]
    pub fn matches(self, topic: &str) -> bool {
        let mut names = segments(topic);
        for wanted in self.segments() {
            match names.next() {
                Some(name) if wanted == ONE || wanted == name => {}
                _ => return false,
            }
        }
        // `**` is one segment or more, so that `/a/**` does not mean `/a` itself.
        names.next().is_some() == self.has_rest()
    }

    /// Its segments without the `**` at the end. One that is [`PatternRef::ONE`] stands for any.
    pub fn segments(self) -> impl Iterator<Item = &'a str> {
        let end = if self.has_rest() { self.0.len() - REST.len() - 1 } else { self.0.len() };
        segments(&self.0[..end])
    }

    /// Whether it ends in `**`, one segment or more of any names.
    #[must_use]
    pub fn has_rest(self) -> bool {
        self.0.ends_with("/**")
    }

    /// The segment that stands for any one.
    pub const ONE: &'static str = ONE;
}

/// The segments of a name, or of a part of one that ends before a slash.
pub(crate) fn segments(name: &str) -> impl Iterator<Item = &str> {
    name.split('/').skip(1)
}

/// Whether a segment is a wildcard. The slash after it may still be there.
pub(crate) fn is_wild(segment: &str) -> bool {
    matches!(segment.strip_suffix('/').unwrap_or(segment), ONE | REST)
}

/// Stands for one segment.
pub(crate) const ONE: &str = "*";

/// Stands for one segment or more.
const REST: &str = "**";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("/a", &["/a"], &["/b", "/a/b", "/A", "/ab"]),
            ("/*", &["/a", "/*", "/**", "/ö"], &["/a/b"]),
            ("/**", &["/a", "/a/b", "/a/b/c"], &[]),
            (
                "/quotes/*",
                &["/quotes/aapl"],
                &["/quotes", "/quotes/a/b", "/quote/a", "/x/quotes/a"],
            ),
            ("/quotes/**", &["/quotes/a", "/quotes/a/b/c"], &["/quotes", "/quotesx/a"]),
            ("/*/last", &["/a/last", "/*/last"], &["/last", "/a/b/last", "/a/last/b"]),
            ("/*/*/c/**", &["/a/b/c/d", "/a/b/c/d/e"], &["/a/b/c", "/a/c/d/e"]),
            ("/a*", &["/a*"], &["/ab", "/a"]),
            ("/***", &["/***"], &["/a"]),
        ];
        for (text, yes, no) in table {
            let pattern = Pattern::parse(text).unwrap();
            for topic in *yes {
                assert!(pattern.matches(topic), "{text} should match {topic}");
            }
            for topic in *no {
                assert!(!pattern.matches(topic), "{text} should not match {topic}");
            }
        }
        assert_eq!(Pattern::parse("/**"), Ok(Pattern::any()));
    }

    #[test]
    fn refused() {
        for text in ["", "*", "a/b", "/", "/a/", "//a", "/a/**/b", "/**/**", "/a/../b", "/a\n"] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.starts_with("pattern "), "{error}");
        }
    }

    #[test]
    fn long_names_are_no_trouble() {
        let pattern = Pattern::parse(&"/*".repeat(200)).unwrap();
        assert!(pattern.matches(&"/a".repeat(200)));
        assert!(!pattern.matches(&"/a".repeat(201)));
        assert!(!pattern.matches(&"/a".repeat(199)));
        assert!(!pattern.matches(""));
    }

    #[test]
    fn prefixes() {
        for (text, prefix) in [
            ("/**", "/"),
            ("/*", "/"),
            ("/a", "/a"),
            ("/a*", "/a*"),
            ("/a*/b/*/c", "/a*/b/"),
            ("/quotes/**", "/quotes/"),
            ("/quotes/*/last", "/quotes/"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap().prefix(), prefix);
        }
    }

    /// The meaning of a pattern, as one would write it down.
    fn means(pattern: &[&str], topic: &[&str]) -> bool {
        match (pattern, topic) {
            ([], []) => true,
            (["**"], [_, ..]) => true,
            (["*", pattern @ ..], [_, topic @ ..]) => means(pattern, topic),
            ([wanted, pattern @ ..], [name, topic @ ..]) => wanted == name && means(pattern, topic),
            _ => false,
        }
    }

    #[test]
    fn patterns_meet_and_cover_each_other() {
        for (one, other, meets, covers) in [
            ("/a", "/a", true, true),
            ("/a", "/b", false, false),
            ("/**", "/a", true, true),
            ("/a/**", "/a", false, false),
            ("/a/**", "/a/*/b", true, true),
            ("/a/*/b", "/a/**", true, false),
            ("/a/*", "/a/**", true, false),
            ("/a/**", "/a/*", true, true),
            ("/a/**", "/a/**", true, true),
            ("/a/*/**", "/a/**", true, false),
            ("/*/b", "/a/*", true, false),
            ("/*/*", "/a/b", true, true),
            ("/a/*", "/b/*", false, false),
            ("/*", "/*/*", false, false),
        ] {
            let [first, second] = [one, other].map(|text| Pattern::parse(text).unwrap());
            assert_eq!(
                (first.meets(&second), second.meets(&first)),
                (meets, meets),
                "{one} {other}"
            );
            assert_eq!(first.covers(&second), covers, "{one} {other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_patterns_have_in_common_is_what_both_mean(
            one in "(/([ab]|\\*)){0,3}(/[ab]|/\\*\\*)",
            other in "(/([ab]|\\*)){0,3}(/[ab]|/\\*\\*)",
        ) {
            let [one, other] = [one, other].map(|text| Pattern::parse(&text).unwrap());
            // Longer ones mean nothing that no shorter one does; c is in none of them.
            let names = ["/a", "/b", "/c"];
            let mut topics: Vec<String> = names.map(str::to_owned).to_vec();
            for begin in 0..4 {
                let longest: Vec<String> =
                    topics.iter().filter(|name| name.len() == 2 * begin + 2).cloned().collect();
                let longer = longest.iter().flat_map(|name| names.map(|end| name.clone() + end));
                let longer: Vec<String> = longer.collect();
                topics.extend(longer);
            }
            let both = topics.iter().any(|name| one.matches(name) && other.matches(name));
            let all = topics.iter().all(|name| one.matches(name) || !other.matches(name));
            proptest::prop_assert_eq!((one.meets(&other), one.covers(&other)), (both, all));
        }

        #[test]
        fn any_pattern_means_what_it_says(
            pattern in "(/([ab]|\\*|aa|a\\*)){1,4}(/\\*\\*)?",
            topic in "(/([ab]|aa|a\\*)){1,5}",
        ) {
            let wanted: Vec<_> = pattern.split('/').skip(1).collect();
            let names: Vec<_> = topic.split('/').skip(1).collect();
            let parsed = Pattern::parse(&pattern).unwrap();
            proptest::prop_assert_eq!(parsed.matches(&topic), means(&wanted, &names));
            proptest::prop_assert!(!parsed.matches(&topic) || topic.starts_with(parsed.prefix()));
        }
    }
}
