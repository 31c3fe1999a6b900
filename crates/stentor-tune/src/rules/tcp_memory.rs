//! `net.ipv4.tcp_mem`: the pages TCP may hold in buffers, for all sockets together.
//!
//! An idle socket holds none. But a message on its way to every reader is a buffer for each, and a
//! socket counts in whole pages (`sk_mem_pages` of the kernel). Above the second of the three
//! numbers the kernel makes windows smaller; above the third it refuses. Guides give it numbers
//! that were meant as bytes, which no host has in pages.

use super::commas;
use crate::{Change, Facts, Finding, Need, Plan, Severity};

const NAME: &str = "net.ipv4.tcp_mem";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some([low, pressure, high]) =
        facts.numbers(NAME).and_then(|n| <[u64; 3]>::try_from(n).ok())
    else {
        return vec![Finding::unknown(NAME)];
    };
    let pages = Need::of(facts, plan).tcp_pages;
    let now = format!("{low} {pressure} {high}");
    let of_host = facts.memory.total_bytes.unwrap_or(u64::MAX) / PAGE_BYTES;
    if pressure > of_host.max(pages.saturating_mul(2)) {
        let limit = pages.max(of_host / 16);
        let low = limit / 4 * 3;
        let wanted = format!("{low} {limit} {}", low.saturating_mul(2));
        let why = "the numbers are pages and not bytes: this is more than the host has, so nothing \
                   keeps TCP from taking all memory. Wanted is what the kernel takes by itself";
        let changes = [Change::sysctl(NAME, now, wanted)];
        return vec![Finding::new(Severity::Folklore, changes, why, "nothing")];
    }
    if pages <= pressure {
        return vec![Finding::fine(format!("{} pages before pressure", commas(pressure)))];
    }
    // Two pages are what it takes for sure; with less than one not all can be under way.
    let severity = if pages / 2 > high { Severity::Blocks } else { Severity::Slows };
    let more = |part| pages.saturating_add(pages / part);
    let wanted = [low.max(pages), more(4), high.max(more(2))];
    let wanted = wanted.map(|pages| pages.to_string()).join(" ");
    let why = format!(
        "a message on its way to every connection counts {} pages; beyond the second number \
         windows shrink, beyond the third the kernel refuses memory",
        commas(pages)
    );
    let cost = "it is a limit: memory is taken only by what is really on its way";
    vec![Finding::new(severity, [Change::sysctl(NAME, now, wanted)], why, cost)]
}

/// Of x86 and most others; larger pages make the limit looser, not tighter.
const PAGE_BYTES: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;
    use crate::Kind;
    use crate::facts::Memory;

    #[test]
    fn two_pages_for_each_reader() {
        let facts = host(&[(NAME, "287898 383867 575796")]);
        check(&judge(&facts, &plan(100_000)), Severity::Fine, &[]);
        check(&judge(&facts, &plan(200_000)), Severity::Slows, &["400000 500000 600000"]);
        check(&judge(&facts, &plan(500_000)), Severity::Slows, &["1000000 1250000 1500000"]);
        let wanted = ["2000000 2500000 3000000"];
        check(&judge(&facts, &plan(1_000_000)), Severity::Blocks, &wanted);
        let idle = Plan { kind: Kind::Idle, ..plan(1_000_000) };
        check(&judge(&facts, &idle), Severity::Fine, &[]);
    }

    #[test]
    fn pages_are_no_bytes() {
        let memory = Memory { total_bytes: Some(16 << 30), ..Memory::default() };
        let facts = Facts { memory, ..host(&[(NAME, "94500000 915000000 927000000")]) };
        check(&judge(&facts, &plan(1_000)), Severity::Folklore, &["196608 262144 393216"]);
        let wanted = ["1500000 2000000 3000000"];
        check(&judge(&facts, &plan(1_000_000)), Severity::Folklore, &wanted);
    }

    #[test]
    fn what_is_no_three_numbers_is_unknown() {
        for text in ["", "1 2", "1 2 x", "1 2 3 4"] {
            check(&judge(&host(&[(NAME, text)]), &plan(1)), Severity::Unknown, &[]);
        }
    }
}
