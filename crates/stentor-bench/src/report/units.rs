//! Numbers as a person reads them: three digits that count, thousands set apart, always a unit.
//!
//! A value is rounded before its unit is chosen, so that 999.9 µs is "1.00 ms" and never
//! "1000 µs". What is no number at all is shown as a dash.

pub(super) use stentor_io::thousands as count;

/// Any number: "1,234,567", "123", "12.3", "0.0123".
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let (sign, size) = if value < 0.0 { ("−", -value) } else { ("", value) };
    let rounded = round(size);
    if rounded == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e9).contains(&rounded) {
        format!("{sign}{rounded:.2e}")
    } else if rounded >= 1000.0 {
        format!("{sign}{}", count(size.round() as u64))
    } else {
        let decimals = (2.0 - rounded.log10().floor()).max(0.0) as usize;
        format!("{sign}{rounded:.decimals$}")
    }
}

/// A time in microseconds: "12.3 µs", "1.23 ms", "1,234 s".
pub(super) fn time_us(value: f64) -> String {
    scaled(value, &[(1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")], "µs")
}

/// Bytes: "512 B", "1.23 kB". A kB is 1,000 bytes.
pub(super) fn bytes(value: f64) -> String {
    let shown = scaled(value, BYTE_UNITS, "B");
    if value.abs() < 1000.0 && value.fract() == 0.0 { plain(&shown) } else { shown }
}

/// A share of one as per cent. What is not all is never shown as 100 %.
pub(super) fn percent(share: f64) -> String {
    if share > 0.999 && share < 1.0 {
        return plain(&format!("{:.4} %", (share * 1e6).floor() / 1e4));
    }
    plain(&format!("{} %", number(share * 100.0)))
}

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

/// The same without the zeros behind the point that an axis does not need: "20 ms" for "20.0 ms".
pub(super) fn plain(shown: &str) -> String {
    let (number, unit) = match shown.split_once(' ') {
        Some((number, unit)) => (number, Some(unit)),
        None => (shown, None),
    };
    let number = match number.contains('.') && !number.contains('e') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    unit.map_or_else(|| number.to_owned(), |unit| format!("{number} {unit}"))
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

/// `value` in the largest of `units` of which it has at least one; 0 in `base`.
fn scaled(value: f64, units: &[(f64, &str)], base: &str) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let rounded = round(value.abs());
    let fitting = units.iter().find(|(factor, _)| rounded >= *factor).or(units.last());
    match fitting {
        Some((factor, unit)) if rounded > 0.0 => format!("{} {unit}", number(value / factor)),
        _ => format!("0 {base}"),
    }
}

/// To three digits that count.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Stands where there is no number to show.
const NOTHING: &str = "–";

const BYTE_UNITS: &[(f64, &str)] =
    &[(1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];

const COUNT_UNITS: &[(f64, &str)] =
    &[(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let cases = [
            (0.0, "0"),
            (0.012_34, "0.0123"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1,000"),
            (1_234_567.4, "1,234,567"),
            (0.000_012_3, "1.23e-5"),
            (-12.34, "−12.3"),
            (1e20, "1.00e20"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ];
        for (value, shown) in cases {
            assert_eq!(number(value), shown, "{value}");
        }
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn times_and_bytes_have_units() {
        let times = [
            (0.0, "0 µs"),
            (0.5, "500 ns"),
            (12.0, "12.0 µs"),
            (999.4, "999 µs"),
            (999.9, "1.00 ms"),
            (1234.5, "1.23 ms"),
            (2_000_000.0, "2.00 s"),
            (1.234e9, "1,234 s"),
        ];
        for (value, shown) in times {
            assert_eq!(time_us(value), shown, "{value}");
        }
        let sizes = [
            (0.0, "0 B"),
            (5.0, "5 B"),
            (63.4, "63.4 B"),
            (100.0, "100 B"),
            (999.9, "1.00 kB"),
            (-2048.0, "−2.05 kB"),
            (1.5e9, "1.50 GB"),
            (f64::NAN, "–"),
        ];
        for (value, shown) in sizes {
            assert_eq!(bytes(value), shown, "{value}");
        }
    }

    #[test]
    fn what_is_not_all_is_not_100_per_cent() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_999_99), "99.9999 %");
        assert_eq!(percent(0.9995), "99.95 %");
        assert_eq!(percent(0.5), "50 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn axes_need_no_zeros() {
        assert_eq!(compact(0.0), "0");
        assert_eq!(compact(500.0), "500");
        assert_eq!(compact(120_000.0), "120 k");
        assert_eq!(compact(2.5e6), "2.5 M");
        assert_eq!(compact(2e250), "2e250");
        assert_eq!(plain("20.0 ms"), "20 ms");
        assert_eq!(plain("100 ms"), "100 ms");
    }

    #[test]
    fn text_from_outside_is_harmless_and_short() {
        assert_eq!(printable("a\u{1b}[31mb\u{202e}c\n"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}");
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abcd…ghi");
        assert_eq!(shortened("äöüäöü", 3), "ä…ü");
    }
}
