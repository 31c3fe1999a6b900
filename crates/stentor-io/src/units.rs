//! Numbers for people: three digits that count, thousands set apart, always a unit. It stands in
//! this crate because all that print them see it.
//!
//! A value is rounded before its unit is chosen, so that 999.9 µs is "1.00 ms" and never
//! "1000 µs". Infinity, and what is no number, is a dash.

/// A whole number with a comma for each thousand: "1,234,567".
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Any number: "1,234,567", "123", "12.3", "0.0123".
#[must_use]
pub fn number(value: f64) -> String {
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
        format!("{sign}{}", thousands(size.round() as u64))
    } else {
        let decimals = (2.0 - rounded.log10().floor()).max(0.0) as usize;
        format!("{sign}{rounded:.decimals$}")
    }
}

/// A time in microseconds: "12.3 µs", "1.23 ms", "45.0 s", "2 min 5 s", "3 h", "4 d 12 h".
#[must_use]
pub fn time_us(value: f64) -> String {
    let seconds = (value / 1e6).round();
    if !(100.0..1e15).contains(&seconds) {
        return scaled(value, &[(1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")], "µs");
    }
    let seconds = seconds as u64;
    let (large, small) = match seconds {
        0..3_600 => ((60, "min"), (1, "s")),
        3_600..86_400 => ((3_600, "h"), (60, "min")),
        _ => ((86_400, "d"), (3_600, "h")),
    };
    let (whole, rest) = (thousands(seconds / large.0), seconds % large.0 / small.0);
    match rest {
        0 => format!("{whole} {}", large.1),
        rest => format!("{whole} {} {rest} {}", large.1, small.1),
    }
}

/// Bytes: "512 B", "1.23 KiB". A KiB is 1,024 bytes.
#[must_use]
pub fn bytes(value: f64) -> String {
    let shown = scaled(value, BYTE_UNITS, "B");
    if value.abs() < 1024.0 && value.fract() == 0.0 { without_zeros(&shown) } else { shown }
}

/// A share of one as per cent. Less than all is never shown as 100 %.
#[must_use]
pub fn percent(share: f64) -> String {
    if share > 0.999 && share < 1.0 {
        return without_zeros(&format!("{:.4} %", (share * 1e6).floor() / 1e4));
    }
    without_zeros(&format!("{} %", number(share * 100.0)))
}

/// The same without the zeros behind the point that an axis does not need: "20 ms" for "20.0 ms".
#[must_use]
pub fn without_zeros(shown: &str) -> String {
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

/// A value in the largest of `units` of which it has at least one; 0 in `base`. The largest unit is
/// the first.
fn scaled(value: f64, units: &[(f64, &str)], base: &str) -> String {
    if !value.is_finite() {
        return NOTHING.to_owned();
    }
    let rounded = round(value.abs()).max(value.abs());
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

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const BYTE_UNITS: &[(f64, &str)] = &[
    (MIB * MIB * MIB, "EiB"),
    (MIB * MIB * KIB, "PiB"),
    (MIB * MIB, "TiB"),
    (MIB * KIB, "GiB"),
    (MIB, "MiB"),
    (KIB, "KiB"),
    (1.0, "B"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(n), text);
        }
    }

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
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
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
            (99.4e6, "99.4 s"),
            (99.96e6, "1 min 40 s"),
            (100e6, "1 min 40 s"),
            (120e6, "2 min"),
            (3_600e6, "1 h"),
            (7_500e6, "2 h 5 min"),
            (90_000e6, "1 d 1 h"),
            (1e13, "115 d 17 h"),
            (f64::NAN, "–"),
        ];
        for (value, shown) in times {
            assert_eq!(time_us(value), shown, "{value}");
        }
        let sizes = [
            (0.0, "0 B"),
            (5.0, "5 B"),
            (63.4, "63.4 B"),
            (100.0, "100 B"),
            (999.9, "1,000 B"),
            (1023.0, "1,023 B"),
            (1024.0, "1.00 KiB"),
            (-2048.0, "−2.00 KiB"),
            (1.5 * (1 << 30) as f64, "1.50 GiB"),
            (f64::NAN, "–"),
        ];
        for (value, shown) in sizes {
            assert_eq!(bytes(value), shown, "{value}");
        }
    }

    #[test]
    fn only_all_is_100_per_cent() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_999_99), "99.9999 %");
        assert_eq!(percent(0.9995), "99.95 %");
        assert_eq!(percent(0.5), "50 %");
        assert_eq!(percent(0.0), "0 %");
    }

    #[test]
    fn zeros_behind_the_point_are_left_out() {
        assert_eq!(without_zeros("20.0 ms"), "20 ms");
        assert_eq!(without_zeros("100 ms"), "100 ms");
    }
}
