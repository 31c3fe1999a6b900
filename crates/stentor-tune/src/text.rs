//! The report as a person reads it: this host, what was asked, the verdict, then each change.

use std::fmt::Write;

use textwrap::{Options, WordSplitter};

use crate::rules::{commas, human_bytes};
use crate::{Applied, Change, Finding, Kind, Report, Severity};

/// Whether text has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For files and pipes.
    Plain,
    /// For terminals.
    Coloured,
}

impl Report {
    /// The report in lines of at most so many columns; with `all` also what is fine and what is not
    /// known.
    #[must_use]
    pub fn text(&self, all: bool, style: Style, columns: usize) -> String {
        let mut text = wrapped(&self.host(), "", columns) + &wrapped(&self.asked(), "", columns);
        text += &style.paint(if self.ready { GREEN } else { RED }, &self.verdict());
        text.push('\n');
        for (severity, title, colour) in SECTIONS {
            let hidden = matches!(severity, Severity::Fine | Severity::Unknown);
            let mut found = self.of(*severity).peekable();
            if found.peek().is_none() || hidden && !all {
                continue;
            }
            text += &format!("\n{}\n", style.paint(colour, title));
            found.for_each(|finding| text += &described(finding, style, columns));
        }
        let unknown = self.of(Severity::Unknown).count();
        if unknown > 0 && !all {
            text += &format!("\n{} not be made here; --all names them\n", checks(unknown));
        }
        text
    }

    /// Whether the host is ready, in one line.
    #[must_use]
    pub fn verdict(&self) -> String {
        let count = |severity| self.of(severity).count();
        let n = commas(self.plan.connections);
        let (blocks, slows) = (count(Severity::Blocks), count(Severity::Slows));
        let slow = match slows {
            0 => String::new(),
            1 => "1 thing slows it down".to_owned(),
            many => format!("{many} things slow it down"),
        };
        match (blocks, slows) {
            (0, 0) => format!("ready for {n} connections"),
            (0, _) => format!("ready for {n} connections, {slow}"),
            (1, 0) => format!("not ready for {n} connections: 1 thing stands in the way"),
            (_, 0) => format!("not ready for {n} connections: {blocks} things stand in the way"),
            (1, _) => format!("not ready for {n} connections: 1 thing stands in the way, {slow}"),
            _ => format!("not ready for {n} connections: {blocks} things stand in the way, {slow}"),
        }
    }

    fn host(&self) -> String {
        let facts = &self.facts;
        let mut text = format!("Linux {}", facts.kernel.as_deref().unwrap_or("of unknown version"));
        let cores = facts.usable_cores();
        let _ = write!(text, ", {cores} {}", if cores == 1 { "core" } else { "cores" });
        if let Some(quota) = facts.cores.quota {
            let _ = write!(text, " (limited to the time of {quota})");
        }
        if let (Some(total), Some(free)) = (facts.memory.total_bytes, facts.memory.available_bytes)
        {
            let (total, free) = (human_bytes(total), human_bytes(free));
            let _ = write!(text, ", {total} of memory ({free} available)");
        }
        if let Some(hard) = facts.files.hard {
            let _ = write!(text, ", {} open files", commas(hard));
        }
        if let Some(mark) = &facts.container {
            let _ = write!(text, ", a container ({mark})");
        }
        text
    }

    fn asked(&self) -> String {
        let (plan, need) = (&self.plan, &self.need);
        let what = match plan.kind {
            Kind::Idle => "idle connections",
            Kind::Sse => "readers of Server-Sent Events",
            Kind::Ws => "WebSocket readers",
            Kind::Poll => "long-polls",
        };
        let by = if plan.tls { " over TLS" } else { "" };
        let mut text = format!("{} {what}{by}", commas(plan.connections));
        if plan.client {
            text += ", opened by this host,";
        } else if plan.kind != Kind::Idle {
            let messages = if plan.rate == 1.0 { "message" } else { "messages" };
            let _ = write!(text, ", {} {messages} a second to each,", plan.rate);
        }
        let each = commas(need.kernel_bytes / plan.connections.max(1));
        let source = if need.is_measured { "measured here" } else { "assumed" };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            " take {}: {} for sockets ({each} bytes each, {source}), {} for messages on their \
             way, {} for the process",
            human_bytes(need.bytes()),
            human_bytes(need.kernel_bytes),
            human_bytes(need.message_bytes),
            human_bytes(need.process_bytes),
        );
        if let Some(workers) = need.workers.filter(|_| !plan.client) {
            let _ = write!(
                text,
                "; {} {}",
                commas(workers.into()),
                if workers == 1 { "worker" } else { "workers" }
            );
        }
        text
    }
}

impl Applied {
    /// What came of the change, in one line.
    #[must_use]
    pub fn text(&self, style: Style) -> String {
        let name = self.change.setting.label();
        let now = self.change.now.as_deref().unwrap_or("?");
        match &self.error {
            None => {
                format!("{}  {name}  {now} → {}", style.paint(GREEN, "set"), self.change.wanted)
            }
            Some(error) => format!("{}  {name}: {error}", style.paint(RED, "not set")),
        }
    }
}

impl Style {
    fn paint(self, colour: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Coloured => format!("\x1b[{colour}m{text}\x1b[0m"),
        }
    }
}

/// Breaks a text into lines of at most so many columns, each with something before it.
pub(crate) fn wrapped(text: &str, before: &str, columns: usize) -> String {
    let options =
        Options::new(columns.max(COLUMNS_MIN)).initial_indent(before).subsequent_indent(before);
    let options = options.break_words(false).word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options) + "\n"
}

fn described(finding: &Finding, style: Style, columns: usize) -> String {
    if finding.changes.is_empty() {
        let why = wrapped(&finding.why, &" ".repeat(19), columns);
        return format!("  {:<16} {}", finding.rule, why.trim_start());
    }
    let mut text = format!("  {}\n", style.paint(BOLD, finding.rule));
    for change in finding.changes.iter().take(CHANGES_SHOWN) {
        let now = change.now.as_deref().unwrap_or("?");
        let wanted = style.paint(BOLD, &change.wanted);
        text += &format!("    {}  {now} → {wanted}\n", change.setting.label());
    }
    if let Some(more) = more(finding.changes.len()) {
        text += &format!("    … and {more} more; --json lists them all\n");
    }
    text += &part("why", &finding.why, columns);
    let mut hows: Vec<String> = finding.changes.iter().map(Change::how).collect();
    hows.truncate(CHANGES_SHOWN);
    if let Some(more) = more(finding.changes.len()) {
        hows.push(format!("… and {more} more; --apply makes them all"));
    }
    hows.iter().for_each(|how| text += &part("how", how, columns));
    if !finding.cost.is_empty() {
        text += &part("cost", &finding.cost, columns);
    }
    text
}

fn more(changes: usize) -> Option<usize> {
    changes.checked_sub(CHANGES_SHOWN).filter(|&more| more > 0)
}

/// `why  …`, with the lines that follow below the first.
fn part(name: &str, text: &str, columns: usize) -> String {
    let lines = wrapped(text, "          ", columns);
    format!("    {name:<4}  {}", lines.trim_start())
}

fn checks(count: usize) -> String {
    if count == 1 { "1 check could".to_owned() } else { format!("{count} checks could") }
}

const SECTIONS: &[(Severity, &str, &str)] = &[
    (Severity::Blocks, "What stands in the way", RED),
    (Severity::Slows, "What slows it down", YELLOW),
    (Severity::Folklore, "Folklore: what was set and does not help", YELLOW),
    (Severity::Start, "How to start it", BOLD),
    (Severity::Unknown, "Not known here", BOLD),
    (Severity::Fine, "Fine", GREEN),
];

/// Changes of one finding that are shown: queues of cards are many and alike.
const CHANGES_SHOWN: usize = 4;

const COLUMNS_MIN: usize = 40;

const BOLD: &str = "1";
const RED: &str = "1;31";
const GREEN: &str = "1;32";
const YELLOW: &str = "1;33";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(40), "# ", 80);
        assert!(text.lines().count() > 1);
        assert!(text.lines().all(|line| line.starts_with("# ") && line.chars().count() <= 80));
        assert_eq!(wrapped("a b", "  ", 100), "  a b\n");
    }

    #[test]
    fn a_word_with_a_hyphen_stays_whole() {
        let text = wrapped(&format!("{}text/event-stream", "word ".repeat(17)), "  ", 100);
        assert_eq!(text.lines().nth(1), Some("  text/event-stream"));
    }
}
