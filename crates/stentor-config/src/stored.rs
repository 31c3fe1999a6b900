//! `limits.stored_bytes_max`: a size, or a share of the memory that there is.

use crate::OrAuto;
use std::path::Path;
use stentor_io::{MemoryGauges, MemoryOf};

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
