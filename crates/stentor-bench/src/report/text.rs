//! The report as a table for a terminal: as wide as that, 100 columns at most, and some 30 lines
//! long.
//!
//! What was done comes first, then whether it went well, then the figures: facts in three columns,
//! times in a table of their own.
//! comfy-table and tabled would bring packages for these two tables, and cut cells in their middle.

use std::borrow::Cow;

use textwrap::{Options, WordSplitter};

use super::facts::{self, Fact, FactSection, LATENCY_COLUMNS};
use super::units::{printable, shortened};
use super::{Latency, Report};

impl Report {
    /// What did not go as it should, each in a few words. Empty for a run without fault.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        facts::problems(self)
    }

    /// The table in lines of at most so many columns, and 60 at least. Each ends with
    /// a line feed.
    #[must_use]
    pub fn text(&self, columns: usize) -> String {
        let columns = columns.max(COLUMNS_MIN);
        let mut text = headline(self, columns);
        text.push('\n');
        let problems = facts::problems(self);
        if self.interrupted {
            let after = facts::duration(self);
            text += &wrap(&format!("INTERRUPTED after {after}: what was measured so far"), columns);
        }
        match problems.is_empty() {
            true => text += &wrap(facts::praise(self), columns),
            false => text += &wrap(&format!("PROBLEMS: {}", problems.join(", ")), columns),
        }
        text.push('\n');
        let (first, rest): (Vec<_>, Vec<_>) = facts::sections(self)
            .into_iter()
            .partition(|section| matches!(section.title, "errors" | "requests" | "delivery"));
        first.iter().for_each(|section| rows(&mut text, section, columns));
        latencies(&mut text, &facts::latencies(self), columns);
        rest.iter().for_each(|section| rows(&mut text, section, columns));
        text
    }
}

/// What was done, where, how, and for how long.
fn headline(report: &Report, columns: usize) -> String {
    let url = shortened(&printable(&report.url), columns - report.command.len() - 16);
    let what = format!("{} {url}, {}", report.command, facts::duration(report));
    match facts::settings(report) {
        settings if settings.is_empty() => wrap(&what, columns),
        settings => wrap(&format!("{what}: {settings}"), columns),
    }
}

/// One section: its title, and its facts in columns.
fn rows(text: &mut String, section: &FactSection, columns: usize) {
    let mut line = format!("{:LABEL$}", section.title);
    let cells = (columns - LABEL) / CELL;
    let mut free = cells;
    for Fact { figure, words } in &section.facts {
        let cell = shortened(&format!("{figure} {words}"), CELL * cells - 1);
        let wide = (cell.chars().count() + 1).div_ceil(CELL);
        if wide > free {
            *text += line.trim_end();
            line = format!("\n{:LABEL$}", "");
            free = cells;
        }
        line += &format!("{cell:0$}", wide * CELL);
        free -= wide;
    }
    *text += line.trim_end();
    text.push('\n');
}

/// The times, a row for each distribution.
fn latencies(text: &mut String, latencies: &[(Cow<'_, str>, &Latency)], columns: usize) {
    if latencies.is_empty() {
        return;
    }
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    let shown = (columns - LABEL) / TIME;
    // The mean says least, and p90 is between others.
    let missing = LATENCY_COLUMNS.len().saturating_sub(shown);
    let skipped = &[0, 2][..missing.min(2)];
    let mut line = |name: &str, cells: &[String]| {
        *text += &format!("{name:LABEL$}");
        for (_, cell) in cells.iter().enumerate().filter(|(nth, _)| !skipped.contains(nth)) {
            *text += &format!(" {cell:>0$}", TIME - 1);
        }
        text.push('\n');
    };
    line("latency", &LATENCY_COLUMNS.map(str::to_owned));
    for (name, latency) in latencies {
        line(&format!("  {name}"), &facts::latency_row(latency));
    }
    text.push('\n');
}

/// Lines of at most so many columns; those after the first are indented. A word that is too long by
/// itself is shortened.
pub(super) fn wrap(text: &str, columns: usize) -> String {
    let words: Vec<_> = text.split(' ').map(|word| shortened(word, columns - INDENT)).collect();
    let options = Options::new(columns).subsequent_indent("  ");
    let options = options.word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(&words.join(" "), options) + "\n"
}

/// Characters on a line, at least.
pub(super) const COLUMNS_MIN: usize = 60;

/// Width of the titles on the left.
const LABEL: usize = 16;
/// Width of a column of facts.
const CELL: usize = 28;
/// Width of a time.
const TIME: usize = 10;
const INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_hyphen_stays_whole() {
        let text = wrap(&format!("{}text/event-stream", "word ".repeat(17)), 100);
        assert_eq!(text.lines().nth(1), Some("  text/event-stream"));
    }
}
