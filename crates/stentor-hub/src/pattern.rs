//! Patterns over topic names: `*` stands for one segment, `**` at the end for any rest.
//!
//! There is no other wildcard and no escaping, so a match never tries again: it walks pattern and
//! name side by side once, whatever a hostile name looks like.
//!
//! What patterns have in common is decided exactly, not guessed. It can be, because a pattern says
//! nothing of a segment but its whole name, and because there is a name that no pattern can spell:
//! `*` itself. A topic whose segments are `*` wherever one pattern leaves them open is meant by
//! another only if that leaves them open too. So it stands for all topics of its length that the
//! first one means, and it is enough to ask for one topic of each length
//! ([`PatternRef::is_within`]). Topics are not of any length, and that counts as well.

use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::target::{TOPIC_BYTES_MAX, TopicName, shortened};

/// A pattern such as `/quotes/*` or `/scores/**`. A segment that is neither exactly `*` nor
/// exactly `**` stands for itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Parses a pattern; a pattern that could never match a topic is an error.
    ///
    /// # Errors
    ///
    /// What is wrong in a topic's name is wrong here (stars aside). `**` may stand at the end only,
    /// and a `*` is a whole segment.
    pub fn parse(text: &str) -> Result<Pattern, Rejection> {
        if text.split('/').any(|segment| segment.contains('*') && !is_wild(segment)) {
            return Err(rejected(text, "a `*` must be a whole segment."));
        }
        Pattern::parse_stored(text)
    }

    /// Parses a pattern of stored data. An earlier version took a segment such as `a*` for a name.
    pub(crate) fn parse_stored(text: &str) -> Result<Pattern, Rejection> {
        let refuse = |reason: &str| rejected(text, reason);
        TopicName::parse(text).map_err(|rejection| refuse(&rejection.detail))?;
        let pattern = Pattern(text.into());
        if pattern.segments().any(|segment| segment == REST) {
            return Err(refuse("`**` may stand at the end only."));
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
    #[must_use]
    pub fn meets(&self, other: &Pattern) -> bool {
        self.borrowed().meets(other.borrowed())
    }

    /// Whether every topic that `other` means is meant here, too.
    pub(crate) fn covers(&self, other: &Pattern) -> bool {
        other.borrowed().is_within([self.borrowed()].into_iter())
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

    /// Its segments without the `**` at the end. One that is `*` stands for any.
    pub fn segments(self) -> impl Iterator<Item = &'a str> {
        let end = if self.has_rest() { self.0.len() - REST.len() - 1 } else { self.0.len() };
        segments(&self.0[..end])
    }

    /// Whether it ends in `**`, one segment or more of any names.
    #[must_use]
    pub fn has_rest(self) -> bool {
        self.0.ends_with("/**")
    }

    /// Whether there is a topic that both mean.
    #[must_use]
    pub fn meets(self, other: PatternRef<'_>) -> bool {
        let (own, others) = (self.lengths(), other.lengths());
        let segments = own.shortest.max(others.shortest);
        // mutation: pattern-lengths
        if segments > own.longest.min(others.longest) {
            return false;
        }
        let (mut ours, mut theirs) = (self.segments(), other.segments());
        // The shortest such topic must not be too long for one.
        let mut bytes = 0;
        for _ in 0..segments {
            let (ours, theirs) = (ours.next().unwrap_or(ONE), theirs.next().unwrap_or(ONE));
            let common = match (ours, theirs) {
                (ONE, name) | (name, ONE) => name,
                (name, same) if name == same => name,
                _ => return false,
            };
            bytes += 1 + common.len();
        }
        bytes <= TOPIC_BYTES_MAX
    }

    /// Whether `others` together mean all topics that this one does. One topic of each length
    /// stands for all: that with `*` where this pattern is open, which others match only if they
    /// are open there as well.
    #[must_use]
    pub fn is_within<'b>(self, others: impl Iterator<Item = PatternRef<'b>>) -> bool {
        // Lengths that are covered: some one by one, and all from `endless` on.
        let mut single = [false; LENGTHS];
        let mut endless = usize::MAX;
        for other in others.filter(|other| self.is_open_in(*other)) {
            let len = other.segments().count();
            if other.has_rest() {
                endless = endless.min(len + 1);
            } else {
                // mutation: covered-in-parts
                single[len] = true;
            }
        }
        let Lengths { shortest, longest } = self.lengths();
        (shortest..=longest.min(endless.saturating_sub(1))).all(|len| single[len])
    }

    /// Whether `other` is open wherever this pattern is, and elsewhere open or the same.
    fn is_open_in(self, other: PatternRef<'_>) -> bool {
        let mut ours = self.segments();
        other.segments().all(|theirs| {
            let ours = ours.next().unwrap_or(ONE);
            theirs == ONE || theirs == ours
        })
    }

    fn lengths(self) -> Lengths {
        let (mut len, mut bytes) = (0, 0);
        for segment in self.segments() {
            len += 1;
            bytes += 1 + segment.len();
        }
        match self.has_rest() {
            false => Lengths { shortest: len, longest: len },
            // A segment takes two bytes at least, its slash among them.
            true => Lengths {
                shortest: len + 1,
                longest: len + TOPIC_BYTES_MAX.saturating_sub(bytes) / 2,
            },
        }
    }
}

/// How many segments the topics have that a pattern means: at least and at most.
#[derive(Clone, Copy)]
struct Lengths {
    shortest: usize,
    longest: usize,
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

/// A topic has at most half as many segments as bytes.
const LENGTHS: usize = TOPIC_BYTES_MAX / 2 + 1;

/// Rejects a text that is no pattern; the sentence repeats it.
pub(crate) fn rejected(text: &str, reason: &str) -> Rejection {
    let detail = format!("pattern \"{}\": {reason}", shortened(text));
    Rejection::because(ErrorCode::PatternInvalid, detail)
}

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
        for text in [
            "", "*", "a/b", "/", "/a/", "//a", "/a/**/b", "/**/**", "/a/../b", "/a\n", "/a*",
            "/***",
        ] {
            let error = Pattern::parse(text).unwrap_err().detail;
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
            ("/ab/b/*/c", "/ab/b/"),
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

    /// Topics are not of any length, and what would need a longer one than there is means nothing.
    #[test]
    fn the_length_of_topics_counts() {
        let all: Vec<_> = (1..=100).map(|n| Pattern::parse(&"/*".repeat(n)).unwrap()).collect();
        assert!(!Pattern::any().borrowed().is_within(all.iter().map(Pattern::borrowed)));
        // A long name leaves room for one more segment, or for two.
        for (len, segments, covers) in
            [(508, 1, true), (507, 1, false), (507, 2, true), (506, 2, true), (505, 2, false)]
        {
            let name = format!("/{}", "a".repeat(len));
            let wanted = Pattern::parse(&format!("{name}/**")).unwrap();
            let texts = (1..=segments).map(|n| format!("{name}{}", "/*".repeat(n)));
            let list: Vec<_> = texts.map(|text| Pattern::parse(&text).unwrap()).collect();
            let is_within = wanted.borrowed().is_within(list.iter().map(Pattern::borrowed));
            assert_eq!(is_within, covers, "{len} {segments}");
        }
        // Two long names that no topic has room for both of.
        let half = Pattern::parse(&format!("/*/{}", "b".repeat(300))).unwrap();
        for (len, meets) in [(300, false), (200, true)] {
            let other = Pattern::parse(&format!("/{}/*", "b".repeat(len))).unwrap();
            assert_eq!((half.meets(&other), other.meets(&half)), (meets, meets), "{len}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_patterns_have_in_common_is_what_both_mean(
            one in "(/([ab]|\\*)){0,3}(/[ab*]|/\\*\\*)",
            other in "(/([ab]|\\*)){0,3}(/[ab*]|/\\*\\*)",
            third in "(/([ab]|\\*)){0,3}(/[ab*]|/\\*\\*)",
        ) {
            let [one, other, third] =
                [one, other, third].map(|text| Pattern::parse(&text).unwrap());
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
            let is_meant = |name: &String| one.matches(name) || third.matches(name);
            let all = topics.iter().all(|name| is_meant(name) || !other.matches(name));
            let together = [&one, &third].into_iter().map(Pattern::borrowed);
            proptest::prop_assert_eq!(other.borrowed().is_within(together), all);
        }

        #[test]
        fn any_pattern_means_what_it_says(
            pattern in "(/([ab]|\\*|aa)){1,4}(/\\*\\*)?",
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
