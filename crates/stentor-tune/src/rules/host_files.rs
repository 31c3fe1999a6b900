//! Open files of the whole host: `fs.file-max` counts all processes together.

use super::commas;
use crate::{Change, Facts, Finding, Plan, Severity};

const RULE: &str = "host-files";
const NAME: &str = "fs.file-max";

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(most) = facts.number(NAME) else { return vec![Finding::unknown(RULE, NAME)] };
    let open = facts.numbers("fs.file-nr").and_then(|numbers| numbers.first().copied());
    let wanted =
        plan.connections.saturating_add(open.unwrap_or_default()).saturating_add(FILES_SPARE);
    if most >= wanted {
        return vec![Finding::fine(RULE, format!("the host may open {} files", commas(most)))];
    }
    let why = "the kernel opens no more files than this for all processes together, root's \
               excepted";
    let change = Change::sysctl(NAME, most, wanted);
    vec![Finding::new(RULE, Severity::Blocks, [change], why, "nothing until the files are open")]
}

/// What other processes may open meanwhile.
const FILES_SPARE: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, host, plan};
    use super::*;

    #[test]
    fn room_for_all_and_what_is_open_already() {
        let facts = host(&[(NAME, "100000"), ("fs.file-nr", "1000 0 100000")]);
        check(&judge(&facts, &plan(89_000)), Severity::Fine, &[]);
        check(&judge(&facts, &plan(89_001)), Severity::Blocks, &["100001"]);
        check(&judge(&Facts::default(), &plan(1)), Severity::Unknown, &[]);
        let facts = host(&[(NAME, "9223372036854775807")]);
        check(&judge(&facts, &plan(100_000_000)), Severity::Fine, &[]);
    }
}
