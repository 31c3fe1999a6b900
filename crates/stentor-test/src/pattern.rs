//! Matches patterns as the documentation says: `*` is one segment, `**` at the end is one or more,
//! and any other segment is itself. A topic is the pattern that means itself alone.

/// Whether a pattern means a topic.
#[must_use]
pub fn matches(pattern: &str, topic: &str) -> bool {
    covers(pattern, topic)
}

/// Whether a pattern means all that another one means.
#[must_use]
pub fn covers(pattern: &str, other: &str) -> bool {
    let (mut pattern, mut other) = (pattern.split('/'), other.split('/'));
    loop {
        match (pattern.next(), other.next()) {
            (None, None) => return true,
            (Some("**"), Some(_)) if pattern.clone().next().is_none() => return true,
            (Some(segment), Some(is)) if segment == is || segment == "*" && is != "**" => {}
            _ => return false,
        }
    }
}

/// Whether there is a topic that both mean.
#[must_use]
pub fn meets(one: &str, other: &str) -> bool {
    fn meets_segments(one: &[&str], other: &[&str]) -> bool {
        match (one, other) {
            ([], []) | (["**"], [_, ..]) | ([_, ..], ["**"]) => true,
            ([left, one @ ..], [right, other @ ..]) => {
                (left == right || *left == "*" || *right == "*") && meets_segments(one, other)
            }
            _ => false,
        }
    }
    let (one, other): (Vec<_>, Vec<_>) = (one.split('/').collect(), other.split('/').collect());
    meets_segments(&one, &other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_the_page_says() {
        for (pattern, topic, means) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/c", false),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a", false),
            ("/a/*", "/a/b/c", false),
            ("/*/b", "/a/b", true),
            ("/a/**", "/a", false),
            ("/a/**", "/a/b", true),
            ("/a/**", "/a/b/c", true),
            ("/a/**", "/b/a", false),
            ("/**", "/a/b", true),
        ] {
            assert_eq!(matches(pattern, topic), means, "{pattern} {topic}");
        }
    }

    #[test]
    fn patterns_meet_in_a_topic() {
        for (one, other, is_met) in [
            ("/a/*", "/*/b", true),
            ("/a/**", "/*/b/c", true),
            ("/a/**", "/a", false),
            ("/a/*", "/b/**", false),
            ("/a/*", "/a/b/c", false),
        ] {
            assert_eq!((meets(one, other), meets(other, one)), (is_met, is_met), "{one} {other}");
        }
    }

    #[test]
    fn a_pattern_covers_another() {
        for (pattern, other, covered) in [
            ("/**", "/*/a", true),
            ("/a/**", "/a/*", true),
            ("/a/**", "/a/b/**", true),
            ("/a/*", "/a/**", false),
            ("/a/b", "/a/*", false),
            ("/*/**", "/**", false),
            ("/*/*", "/*/a", true),
        ] {
            assert_eq!(covers(pattern, other), covered, "{pattern} {other}");
        }
    }
}
