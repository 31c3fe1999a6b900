//! Sets of cores, in the two ways the kernel writes them: `0-3,8` and `ff,00000000`.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Numbers of cores.
pub(crate) type Cpus = BTreeSet<u32>;

/// Reads a list such as `0-3,8`. `None` if it is none; an empty text is the empty set.
pub(crate) fn parse_list(text: &str) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Reads a mask such as `ff` or `00000001,00000000`: groups of 32 bits, the highest first.
pub(crate) fn parse_mask(text: &str) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    let groups: Vec<&str> = text.trim().split(',').collect();
    if groups.len() > (CPUS_MAX / 32) as usize {
        return None;
    }
    for (place, group) in (0..).zip(groups.iter().rev()) {
        let bits = u32::from_str_radix(group, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| place * 32 + bit));
    }
    Some(cpus)
}

/// Writes a mask as the kernel takes it.
pub(crate) fn mask(cpus: &Cpus) -> String {
    let groups = cpus.last().map_or(1, |last| last / 32 + 1);
    let mut text = String::new();
    for place in (0..groups).rev() {
        let bit = |cpu: &u32| 1_u32 << (cpu % 32);
        let bits = cpus.range(place * 32..(place + 1) * 32).map(bit).sum::<u32>();
        // Writing to a string cannot fail.
        let _ = match text.is_empty() {
            true => write!(text, "{bits:x}"),
            false => write!(text, ",{bits:08x}"),
        };
    }
    text
}

/// The most cores any kernel is built for.
pub(crate) const CPUS_MAX: u32 = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,8\n"), Some(Cpus::from([0, 1, 2, 8])));
        assert_eq!(parse_list(""), Some(Cpus::new()));
        for bad in ["a", "3-1", "0-4294967295", "1-", "-"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn masks() {
        assert_eq!(parse_mask("5"), Some(Cpus::from([0, 2])));
        assert_eq!(parse_mask("00000001,80000000\n"), Some(Cpus::from([31, 32])));
        for bad in ["", "xyz", "fffffffff"] {
            assert_eq!(parse_mask(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_mask_is_written_as_it_is_read() {
        for text in ["0", "ff", "1,80000000", "ffffffff,00000000", "8000"] {
            assert_eq!(mask(&parse_mask(text).unwrap()), text);
        }
    }
}
