//! Numbers as a person reads them, besides those of `stentor_io::units`; text from outside.

pub(super) use stentor_io::units::{
    bytes, number, percent, scaled, thousands as count, time_us, without_zeros as plain,
};

/// How many times as much: "0.79 ×".
pub(super) fn times(value: f64) -> String {
    format!("{} ×", number(value))
}

/// A number for an axis, short: "120 k".
pub(super) fn compact(value: f64) -> String {
    if value >= 1e21 {
        return format!("{value:.0e}");
    }
    plain(&scaled(value, COUNT_UNITS, "")).trim_end().to_owned()
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

const COUNT_UNITS: &[(f64, &str)] =
    &[(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_need_no_zeros() {
        assert_eq!(compact(0.0), "0");
        assert_eq!(compact(500.0), "500");
        assert_eq!(compact(120_000.0), "120 k");
        assert_eq!(compact(2.5e6), "2.5 M");
        assert_eq!(compact(2e250), "2e250");
    }

    #[test]
    fn text_from_outside_is_harmless_and_short() {
        assert_eq!(printable("a\u{1b}[31mb\u{202e}c\n"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abcd…ghi");
        assert_eq!(shortened("äöüäöü", 3), "ä…ü");
    }
}
