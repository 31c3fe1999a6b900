//! Numbers as a person reads them, besides those of `stentor_io::units`; text from outside.

pub(super) use stentor_io::units::{bytes, number, percent, thousands as count, time_us};

/// How many times as much: "0.79 ×".
pub(super) fn times(value: f64) -> String {
    format!("{} ×", number(value))
}

/// Text from outside without what would act on a terminal or turn the line around: control
/// characters and those that change the direction of writing are replaced.
pub(super) fn printable(text: &str) -> String {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if acts(c) { '\u{fffd}' } else { c }).collect()
}

/// `text` with its middle left out if it is longer than `chars`: a URL differs at both ends.
pub(super) fn shortened(text: &str, chars: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= chars {
        return text.to_owned();
    }
    let kept = chars.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let mut short: String = all[..head].iter().collect();
    short.push('…');
    short.extend(&all[all.len() - tail..]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_harmless_and_short() {
        assert_eq!(printable("a\u{1b}[31mb\u{202e}c\n"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abcd…ghi");
        assert_eq!(shortened("äöüäöü", 3), "ä…ü");
    }
}
