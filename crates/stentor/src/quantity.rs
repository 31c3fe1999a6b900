//! Numbers as people write them on a command line: "500ms", "2m", "1 KiB", "20%".
//!
//! Each is checked against its bounds while clap still knows which flag it belongs to, so that a
//! mistake is told with the flag's name. What a flag may be at most is there to keep a slip of the
//! hand from running for a year; it is no promise that the machine can do it.

use std::time::Duration;
use stentor_config::{parse_duration_ms, parse_size};

/// A time from a millisecond on. A plain number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let ms = parse_duration_ms(text);
    let ms = ms.ok_or_else(|| format!("'{text}' is not a duration such as 10s, 500ms or 2m"))?;
    match ms {
        0 => Err(format!("{text} is out of range: at least 1ms")),
        ms => Ok(Duration::from_millis(ms)),
    }
}

/// A time from a millisecond to a day.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let out_of_range = || format!("{text} is out of range: from 1ms to 24h");
    Some(duration(text)?).filter(|time| *time <= TIME_MAX).ok_or_else(out_of_range)
}

/// A number of bytes, as a plain number or with a unit. Its bounds are the flag's to check.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("'{text}' is not a size such as 64, 1kB or 4 KiB"))
}

/// A share in per cent; the sign may be left out. Somebody has to be left: at most 99.
pub(crate) fn share(text: &str) -> Result<u8, String> {
    let wrong = || format!("'{text}' is not a share such as 20%, from 0% to 99%");
    let share = text.strip_suffix('%').unwrap_or(text).trim_end();
    let is_number = share.bytes().all(|byte| byte.is_ascii_digit());
    share.parse().ok().filter(|share| is_number && *share <= 99).ok_or_else(wrong)
}

/// So many per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a number per second, from 0.001 to 10000000");
    let rate = text.parse().map_err(|_| wrong())?;
    if (RATE_MIN..=RATE_MAX).contains(&rate) { Ok(rate) } else { Err(wrong()) }
}

/// Whether `count` of something at `rate` per second are done within a day.
pub(crate) fn check_a_day(count: u64, what: &str, rate: f64) -> Result<(), String> {
    let hours = count as f64 / rate / 3_600.0;
    if hours <= 24.0 {
        return Ok(());
    }
    Err(format!(
        "{count} {what} at {rate} per second take {hours:.0} hours, and a run at most 24: \
         ask for fewer, or for more per second"
    ))
}

const TIME_MAX: Duration = Duration::from_secs(24 * 3_600);
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 10_000_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in [
            ("500ms", Some(500)),
            ("10s", Some(10_000)),
            ("10 s", Some(10_000)),
            ("10", Some(10_000)),
            ("2m", Some(120_000)),
            ("24h", Some(86_400_000)),
            ("0", None),
            ("0ms", None),
            ("25h", None),
            ("86401", None),
            ("99999999999999999h", None),
            ("99999999999999999999", None),
            ("1m30s", None),
            ("-1s", None),
            ("1.5s", None),
            ("s", None),
            ("", None),
        ] {
            assert_eq!(time(text).ok(), ms.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("64", Some(64)),
            ("64B", Some(64)),
            ("1 kB", Some(1_000)),
            ("4KiB", Some(4_096)),
            ("1 MiB", Some(1 << 20)),
            ("2mb", Some(2_000_000)),
            ("1 GiB", Some(1 << 30)),
            ("18446744073709551615 MiB", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(size(text).ok(), bytes, "{text:?}");
        }
    }

    #[test]
    fn shares() {
        for (text, per_cent) in [
            ("20%", Some(20)),
            ("20 %", Some(20)),
            ("20", Some(20)),
            ("0", Some(0)),
            ("99%", Some(99)),
            ("100%", None),
            ("256", None),
            ("0.2", None),
            ("%", None),
        ] {
            assert_eq!(share(text).ok(), per_cent, "{text:?}");
        }
    }

    #[test]
    fn rates() {
        for (text, per_second) in [
            ("10", Some(10.0)),
            ("0.5", Some(0.5)),
            ("10000000", Some(10_000_000.0)),
            ("0", None),
            ("-1", None),
            ("1e99", None),
            ("inf", None),
            ("NaN", None),
            ("ten", None),
        ] {
            assert_eq!(rate(text).ok(), per_second, "{text:?}");
        }
    }

    #[test]
    fn a_day_is_the_most() {
        assert_eq!(check_a_day(86_400, "messages", 1.0), Ok(()));
        let error = check_a_day(864_000, "messages", 1.0).unwrap_err();
        assert!(error.starts_with("864000 messages at 1 per second take 240 hours"), "{error}");
    }
}
