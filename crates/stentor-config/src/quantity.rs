//! Quantities as people write them: "64 KiB", "15s".
//!
//! A plain number is accepted too: bytes for a size, seconds for a duration. The bounds of each
//! setting are part of its type ([`Bytes`], [`Millis`], [`Count`]), so that the one place that
//! lists the settings also says what they may be, and a value out of range is found while the
//! parser still knows its line and column.
//!
//! The libraries `humantime` and `bytesize` would replace a dozen lines, and take as many to guard:
//! to the first `10M` is ten months and a plain number nothing, and the second rounds `0.3 B` to 0.

use std::fmt;

use crate::described::{Described, ValueForm};
use crate::setting::Form;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use toml::Value;

/// A size in bytes from `MIN` to `MAX`: a number, or text such as "64 KiB".
pub(crate) struct Bytes<const MIN: u64, const MAX: u64>(pub(crate) u64);

/// A duration in milliseconds from `MIN` to `MAX`: a number of seconds, or text such as "15s".
pub(crate) struct Millis<const MIN: u64, const MAX: u64>(pub(crate) u64);

/// The same, for a setting of whole seconds: what is less counts as another one.
pub(crate) struct Seconds<const MIN: u64, const MAX: u64>(u64);

/// A rate in bytes per second from `MIN` to `MAX`, which is shown as a number.
pub(crate) struct ByteRate<const MIN: u64, const MAX: u64>(u64);

/// A number from `MIN` to `MAX`.
pub(crate) struct Count<const MIN: u64, const MAX: u64>(pub(crate) u64);

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const SECOND: u64 = 1_000;
pub(crate) const HOUR: u64 = 3_600 * SECOND;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;

/// What a family of units has in common: its name in errors, its units (the first multiplies a
/// plain number), and how a value is shown.
struct UnitFamily {
    example: &'static str,
    plain: u64,
    units: &'static [(&'static str, u64)],
    show: fn(u64) -> String,
}

const SIZE: UnitFamily = UnitFamily {
    example: "a size such as \"64 KiB\" or a number of bytes",
    plain: 1,
    units: &[
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("kib", KIB),
        ("mib", MIB),
        ("gib", GIB),
    ],
    show: |bytes| largest(bytes, &[("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)], " "),
};

const DURATION: UnitFamily = UnitFamily {
    example: "a duration such as \"15s\" or \"500ms\" or a number of seconds",
    plain: SECOND,
    units: &[("ms", 1), ("s", SECOND), ("m", 60 * SECOND), ("h", HOUR), ("d", DAY), ("y", YEAR)],
    show: |ms| largest(ms, &[("h", HOUR), ("m", 60 * SECOND), ("s", SECOND), ("ms", 1)], ""),
};

const NUMBER: UnitFamily =
    UnitFamily { example: "a number", plain: 1, units: &[], show: |count| count.to_string() };

impl UnitFamily {
    /// The value of `text`, a number with or without a unit, in the kind's smallest unit.
    fn parse(&self, text: &str) -> Option<u64> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let unit = unit.trim_start().to_ascii_lowercase();
        let factor = match unit.as_str() {
            "" => self.plain,
            unit => self.units.iter().find(|(name, _)| *name == unit)?.1,
        };
        digits.parse::<u64>().ok()?.checked_mul(factor)
    }

    fn check<E: Error>(&self, value: u64, min: u64, max: u64, text: &str) -> Result<u64, E> {
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        let (min, max) = ((self.show)(min), (self.show)(max));
        Err(E::custom(format!("{text} is out of range: from {min} to {max}")))
    }
}

/// A size as text that is read as the same.
pub(crate) fn size(bytes: u64) -> String {
    (SIZE.show)(bytes)
}

/// A duration as text that is read as the same.
pub(crate) fn duration(ms: u64) -> String {
    (DURATION.show)(ms)
}

/// A size in bytes as people write it: a number, or text such as "64 KiB".
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    SIZE.parse(text)
}

/// A duration as people write it, in milliseconds: a number of seconds, or text such as "500ms".
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    DURATION.parse(text)
}

/// A period as people write it, such as "90d", in whole seconds, rounded up.
///
/// # Errors
///
/// What one looks like, when `text` is none.
pub fn parse_period_s(text: &str) -> Result<u64, String> {
    match DURATION.parse(text) {
        Some(ms) => Ok(ms.div_ceil(SECOND)),
        None => Err(format!("'{text}' is not {}", DURATION.example)),
    }
}

/// Reads a value of a kind from an integer or a string.
struct QuantityReader {
    kind: &'static UnitFamily,
    min: u64,
    max: u64,
}

impl Visitor<'_> for QuantityReader {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.example)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        // A negative number is out of any range; zero would be only of some.
        let value = u64::try_from(number).ok().and_then(|n| n.checked_mul(self.kind.plain));
        self.kind.check(value.unwrap_or(u64::MAX), self.min, self.max, &number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        match self.kind.parse(text) {
            Some(value) => self.kind.check(value, self.min, self.max, &format!("'{text}'")),
            None => Err(E::custom(format!("'{text}' is not {}", self.kind.example))),
        }
    }
}

/// Declares that a form is a quantity of a kind. Numbers of several types are read as it.
macro_rules! quantities {
    ($($name:ident: $kind:expr, $form:ident, $value:expr, $show:expr;)*) => {$(
        impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for $name<MIN, MAX> {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let reader = QuantityReader { kind: $kind, min: MIN, max: MAX };
                source.deserialize_any(reader).map($name)
            }
        }

        impl<const MIN: u64, const MAX: u64> Described for $name<MIN, MAX> {
            fn form() -> ValueForm {
                ValueForm::$form { min: MIN, max: MAX }
            }
        }

        impl<N, const MIN: u64, const MAX: u64> Form<N> for $name<MIN, MAX>
        where
            N: Copy + TryFrom<u64> + TryInto<u64> + Bounded,
        {
            fn value(self) -> N {
                N::try_from($value(self.0)).unwrap_or(N::MAX)
            }

            fn show(value: &N) -> Value {
                $show((*value).try_into().unwrap_or(u64::MAX))
            }
        }
    )*};
}

quantities! {
    Bytes: &SIZE, Size, |bytes| bytes, |bytes| Value::from(size(bytes));
    Millis: &DURATION, Duration, |ms| ms, |ms| Value::from(duration(ms));
    Seconds: &DURATION, Duration, |ms: u64| ms.div_ceil(SECOND),
        |s| Value::from(duration(s * SECOND));
    ByteRate: &SIZE, Size, |bytes| bytes, number;
    Count: &NUMBER, Number, |count| count, number;
}

/// A type of numbers. Where the bound of a setting is larger than its type, it is cut to that.
pub(crate) trait Bounded {
    const MAX: Self;
}

macro_rules! bounded {
    ($($type:ident)*) => {$(impl Bounded for $type { const MAX: $type = $type::MAX; })*};
}

bounded!(u16 u32 u64 usize);

/// Numbers in TOML end at 2^63; no setting comes near.
pub(crate) fn number(number: impl TryInto<i64>) -> Value {
    number.try_into().unwrap_or(i64::MAX).into()
}

/// `value` in the largest of `units` (from large to small) that divides it.
fn largest(value: u64, units: &[(&str, u64)], gap: &str) -> String {
    let fits = |(_, factor): &&(&str, u64)| value >= *factor && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().find(fits).or(units.last()).unwrap_or(&("", 1));
    format!("{}{gap}{unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1048576", Some(MIB)),
            ("64 KiB", Some(64 * KIB)),
            ("64KiB", Some(64 * KIB)),
            ("1 mib", Some(MIB)),
            ("2 GiB", Some(2 * GIB)),
            ("5 kB", Some(5_000)),
            ("7 B", Some(7)),
            ("", None),
            ("KiB", None),
            ("-1", None),
            ("1.5 MiB", None),
            ("64 K", None),
            ("64 KiB!", None),
            ("1 s", None),
            ("99999999999999999999", None),
            ("18446744073709551615 GiB", None),
        ] {
            assert_eq!(SIZE.parse(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [
            ("500ms", Some(500)),
            ("15s", Some(15_000)),
            ("15 s", Some(15_000)),
            ("15", Some(15_000)),
            ("2m", Some(120_000)),
            ("1h", Some(HOUR)),
            ("1d", Some(DAY)),
            ("1y", Some(365 * DAY)),
            ("1m30s", None),
            ("0.5s", None),
            ("s", None),
            ("1 week", None),
            (" 1s", None),
        ] {
            assert_eq!(DURATION.parse(text), ms, "{text:?}");
        }
    }

    #[test]
    fn bounds_are_shown_in_the_units_people_use() {
        assert_eq!((DURATION.show)(10), "10ms");
        assert_eq!((DURATION.show)(0), "0ms");
        assert_eq!((DURATION.show)(DAY), "24h");
        assert_eq!((DURATION.show)(90 * SECOND), "90s");
        assert_eq!((SIZE.show)(256 * MIB), "256 MiB");
        assert_eq!((SIZE.show)(1), "1 B");
    }
}
