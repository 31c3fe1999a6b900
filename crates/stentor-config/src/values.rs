//! Types of settings that stand by themselves.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use stentor_io::{MemoryGauges, MemoryOf};

/// Where the access log goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessTarget {
    /// To the end of this file.
    File(PathBuf),
    /// To standard output.
    Stdout,
    /// To standard error, between the lines of the log itself.
    Stderr,
}

/// The form of the access log's lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessFormat {
    /// The combined format of NCSA, as nginx writes it.
    #[default]
    Combined,
    /// An object for each line.
    Json,
}

impl fmt::Display for AccessTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessTarget::File(path) => path.display().fmt(f),
            AccessTarget::Stdout => f.write_str("stdout"),
            AccessTarget::Stderr => f.write_str("stderr"),
        }
    }
}

/// Where an access log goes, as people write it: `off`, `stdout`, `stderr` or the path of a file. A
/// name without a slash is a mistake rather than a file in whatever directory this is.
pub(crate) fn parse_access(text: &str) -> Result<Option<AccessTarget>, String> {
    match text {
        "off" => Ok(None),
        "stdout" => Ok(Some(AccessTarget::Stdout)),
        "stderr" => Ok(Some(AccessTarget::Stderr)),
        path if path.contains('/') && !path.ends_with('/') && !path.contains('\0') => {
            Ok(Some(AccessTarget::File(PathBuf::from(path))))
        }
        _ => Err(format!(
            "'{}' is no place for an access log: write 'off', 'stdout', 'stderr', or the path of \
             a file such as /var/log/stentor/access.log",
            text.escape_debug()
        )),
    }
}

/// The form of the log's lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object for each line.
    Json,
}

/// How a connection over TCP ends whose client asked for no more than what it was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// As TCP means it: the kernel remembers the connection for a minute (`TIME_WAIT`).
    Graceful,
    /// With a reset, as soon as the client's kernel has acknowledged the whole answer: both sides
    /// forget the connection at once. Some clients take that for an error.
    Reset,
}

/// The operator configures a value, or leaves it to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrAuto<T> {
    /// The server finds the value.
    Auto,
    /// The operator has set the value.
    Set(T),
}

impl OrAuto<u32> {
    /// How many connections `address` may have at a server that holds `connections_max`. `None`:
    /// it is not counted, and not evicted.
    #[must_use]
    pub fn bound(self, address: IpAddr, connections_max: usize) -> Option<u32> {
        match self {
            OrAuto::Auto if address.to_canonical().is_loopback() => None,
            OrAuto::Auto => Some(u32::try_from(connections_max / 2).unwrap_or(u32::MAX).max(1)),
            OrAuto::Set(0) => Some(u32::MAX),
            OrAuto::Set(count) => Some(count),
        }
    }
}

/// The name of a user as people write it. Whether there is one is known at the start.
///
/// # Errors
///
/// Why there can be none of that name.
pub fn parse_user(text: &str) -> Result<String, String> {
    let is_of_a_name = |b: u8| b.is_ascii_graphic() && !matches!(b, b':' | b'/');
    if text.is_empty() || !text.bytes().all(is_of_a_name) {
        let shown = text.escape_debug();
        return Err(format!("'{shown}' is not the name of a user: write one such as stentor"));
    }
    Ok(text.to_owned())
}

impl OrAuto<usize> {
    /// The limit in bytes, and, of an automatic one, its reason.
    #[must_use]
    pub fn resolve(self) -> (usize, String) {
        match self {
            OrAuto::Set(bytes) => (bytes, String::new()),
            OrAuto::Auto => match MemoryGauges::of(Path::new("/")).total() {
                Some((of, total)) => {
                    let of = if of == MemoryOf::Cgroup { "the control group" } else { "the host" };
                    let why = format!(" (auto, of the {} MiB that {of} has)", total >> 20);
                    (share_of(total), why)
                }
                None => (usize::MAX, String::new()),
            },
        }
    }
}

fn share_of(total: u64) -> usize {
    let rest = total.saturating_sub(TWO_PROCESSES_BYTES).max(total / 4);
    usize::try_from(rest / 5 * 2).unwrap_or(usize::MAX)
}

/// Memory that two processes need beside their topics.
const TWO_PROCESSES_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigErrors, Settings};

    #[test]
    fn a_share_of_memory_is_for_what_is_stored() {
        let of = |text: &str| {
            let settings = Settings::from_toml(&format!("limits.stored_bytes_max = {text}"), "f")?;
            Ok::<_, ConfigErrors>(settings.limits.stored_bytes_max)
        };
        assert_eq!(Settings::default().limits.stored_bytes_max, OrAuto::Auto);
        assert_eq!(of("'auto'").unwrap(), OrAuto::Auto);
        assert_eq!(of("'5 MiB'").unwrap(), OrAuto::Set(5 << 20));
        assert_eq!(of("2000000").unwrap(), OrAuto::Set(2_000_000));
        for (text, part) in [
            ("'some'", "'some' is not a size"),
            ("'1 KiB'", "'1 KiB' is out of range"),
            ("-1", "-1 is out of range"),
            ("true", "a quantity, or \"auto\""),
        ] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let share = |mib: u64| share_of(mib << 20) >> 20;
        assert_eq!([64, 128, 256, 16_384].map(share), [6, 25, 76, 6_528]);
        let (max, why) = OrAuto::<usize>::Auto.resolve();
        assert!(max > 1 << 20 && why.contains("auto"), "{max}{why}");
    }
}
