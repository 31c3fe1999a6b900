//! `net.ipv4.tcp_rmem` and `tcp_wmem`: the least, the first and the largest size of a socket's
//! buffers.
//!
//! Guides raise all three to megabytes. They are no reservations, so an idle socket costs the same;
//! but the least is granted even when TCP is short of memory, and the first is what a reader that
//! has stopped reading may fill before autotuning has a say. The largest only matters to few fast
//! transfers over long lines. (`net.core.rmem_max` bounds what programs ask for; Stentor asks for
//! less, not for more.)

use crate::{Change, Facts, Finding, Plan, Severity};

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    let changes: Vec<Change> =
        BUFFERS.iter().filter_map(|(name, defaults)| giant(facts, name, *defaults)).collect();
    if changes.is_empty() {
        return vec![Finding::fine("autotuning starts small")];
    }
    let why = "larger first buffers make nothing faster: the kernel grows a buffer as a connection \
               needs it. They only let each stalled reader hold more, and the least is granted \
               even when TCP is short of memory";
    let cost = "nothing; a few fast transfers start as on every other host";
    vec![Finding::new(Severity::Folklore, changes, why, cost)]
}

/// The kernel's defaults in place of what is giant.
fn giant(facts: &Facts, name: &str, (least, first): (u64, u64)) -> Option<Change> {
    let [min, default, max] = <[u64; 3]>::try_from(facts.numbers(name)?).ok()?;
    if min <= LEAST_MAX && default <= FIRST_MAX {
        return None;
    }
    let wanted = [
        if min <= LEAST_MAX { min } else { least },
        if default <= FIRST_MAX { default } else { first },
        max.max(first),
    ];
    let now = format!("{min} {default} {max}");
    Some(Change::sysctl(name, now, wanted.map(|bytes| bytes.to_string()).join(" ")))
}

/// The settings, with the kernel's defaults of their first two numbers.
const BUFFERS: &[(&str, (u64, u64))] =
    &[("net.ipv4.tcp_rmem", (4_096, 131_072)), ("net.ipv4.tcp_wmem", (4_096, 16_384))];

/// What no default of any kernel reaches.
const LEAST_MAX: u64 = 64 << 10;
const FIRST_MAX: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn giants_shrink_to_the_defaults() {
        let with = |rmem, wmem| host(&[("net.ipv4.tcp_rmem", rmem), ("net.ipv4.tcp_wmem", wmem)]);
        let usual = with("4096 131072 33554432", "4096 16384 4194304");
        check(&judge(&usual, &plan(1)), Severity::Fine, &[]);
        let guide = with("4096 12582912 16777216", "16777216 16777216 16777216");
        let wanted = ["4096 131072 16777216", "4096 16384 16777216"];
        check(&judge(&guide, &plan(1)), Severity::Folklore, &wanted);
        check(&judge(&with("", "1 2"), &plan(1)), Severity::Fine, &[]);
    }
}
