//! Moments as people write them.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use time::{Date, Month, OffsetDateTime, Time};
use toml::value::{Datetime, Offset};

use crate::described::{Described, ValueForm};

/// A date, which means its beginning, or a moment, both in UTC; in seconds since 1970. TOML has
/// dates of its own, which are written without quotes.
pub(crate) struct Moment(pub(crate) u64);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Moment, D::Error> {
        source.deserialize_any(MomentVisitor).map(Moment)
    }
}

impl Described for Moment {
    fn form() -> ValueForm {
        ValueForm::Moment
    }
}

struct MomentVisitor;

impl<'de> Visitor<'de> for MomentVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MOMENT)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse_moment(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        let moment = Datetime::deserialize(MapAccessDeserializer::new(map))?;
        unix_s(&moment).ok_or_else(|| de::Error::custom(format!("'{moment}' is not {MOMENT}")))
    }
}

/// A date or a moment as people write it, in seconds since 1970.
///
/// # Errors
///
/// The error says what a date or a moment looks like.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    let moment = text.parse::<Datetime>().ok().as_ref().and_then(unix_s);
    moment.ok_or_else(|| format!("'{}' is not {MOMENT}", text.escape_debug()))
}

/// A moment as [`parse_moment`] reads it.
#[must_use]
pub fn date_of(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).map(OffsetDateTime::from_unix_timestamp);
    let Ok(Ok(at)) = at else { return format!("@{unix_s}") };
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z")
}

fn unix_s(moment: &Datetime) -> Option<u64> {
    let date = moment.date?;
    // A time without a zone would mean another moment on each host.
    if moment.time.is_some() && moment.offset.is_none() {
        return None;
    }
    let month = Month::try_from(date.month).ok()?;
    let date = Date::from_calendar_date(date.year.into(), month, date.day).ok()?;
    let clock = match moment.time {
        // A leap second is the one before.
        Some(time) => {
            Time::from_hms(time.hour, time.minute, time.second.unwrap_or(0).min(59)).ok()?
        }
        None => Time::MIDNIGHT,
    };
    let minutes = match moment.offset {
        Some(Offset::Custom { minutes }) => i64::from(minutes),
        _ => 0,
    };
    let at = date.with_time(clock).assume_utc().unix_timestamp() - minutes * 60;
    u64::try_from(at).ok()
}

const MOMENT: &str = "a date such as \"2027-12-31\" or a moment such as \"2027-12-31T12:00:00Z\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (text, unix_s) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2100-03-01", 4_107_542_400),
        ] {
            assert_eq!(parse_moment(text), Ok(unix_s));
            assert!(date_of(unix_s).starts_with(text), "{}", date_of(unix_s));
        }
        assert!(parse_moment("1969-12-31").is_err() && parse_moment("2023-02-29").is_err());
    }

    #[test]
    fn any_moment_is_printed_as_it_is_read() {
        // A step that is no part of a day, a year or a cycle of years.
        for unix_s in (0..250_000_000_000).step_by(1_234_567) {
            assert_eq!(parse_moment(&date_of(unix_s)), Ok(unix_s));
        }
    }
}
