//! The report as a page: one file without anything external.
//!
//! The key figures come first, then the charts, then every figure in tables, then the machine and
//! the command that does it again. Two scripts draw the charts from the report in JSON: uPlot,
//! which is small and well kept, and `page/page.js`.
//!
//! Text from outside (URLs, header fields, names of machines) is escaped where it is written.
//! Should that fail, the page forbids itself to load anything, and to run other scripts.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, UNIX_EPOCH};
use std::{env, iter};

use super::facts::{self, FactSection, LATENCY_COLUMNS};
use super::figures::Figure;
use super::units::{bytes, count, printable};
use super::{Machine, Report};
use crate::redact;

impl Report {
    /// The page, a whole file. Pages are shared, so it shows no credentials.
    #[must_use]
    pub fn html(&self) -> String {
        let report = &self.redacted();
        let mut body = head(report);
        body += "<div class=\"charts\"></div>\n";
        body += &latencies(report);
        body += "<div class=\"facts\">\n";
        facts::sections(report).iter().for_each(|section| body += &table(section));
        body += "</div>\n";
        body += &again(&command_line(env::args_os().skip(1)), &report.machine);
        page(&format!("bench {} {}", report.command, report.url), &body, Some(report))
    }
}

/// Text in a page, or in the quoted value of an attribute.
pub(super) fn escape(text: &str) -> String {
    html_escape::encode_quoted_attribute(&printable(text)).into_owned()
}

/// The report, and the scripts that draw its charts.
fn scripts(report: &Report, nonce: &str) -> String {
    // A script ends with the first `</`, also within a text.
    let json = serde_json::to_string(report).unwrap_or_default().replace('<', "\\u003c");
    format!(
        "<script type=\"application/json\" id=\"report\">{json}</script>\n\
         <script nonce=\"{nonce}\">{UPLOT}</script>\n\
         <script nonce=\"{nonce}\">\n{DRAW}</script>\n"
    )
}

/// A whole file around a body, with the charts of a report.
pub(super) fn page(title: &str, body: &str, report: Option<&Report>) -> String {
    // Only a script with this number runs. It is new, so that no text from outside can have it.
    let nonce = format!("{:016x}", RandomState::new().hash_one(title));
    let scripts = report.map(|report| scripts(report, &nonce)).unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'\">\n\
         <title>{}</title>\n<style>\n{UPLOT_STYLE}{STYLE}</style>\n</head>\n<body>\n{body}{scripts}\
         </body>\n</html>\n",
        escape(title)
    )
}

/// The command line and the machine: what it takes to do it again.
pub(super) fn again(command_line: &[String], machine: &Machine) -> String {
    let known = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
    let mut parts = vec![known(&machine.processor), known(&machine.kernel)];
    parts.insert(1, format!("{} cores", machine.cores));
    parts.insert(2, format!("{} of memory", bytes(machine.memory_bytes as f64)));
    // A word is broken only if a line has no room for it.
    let words = command_line.iter().map(|word| format!("<span>{}</span>", escape(word)));
    format!(
        "<section>\n<h2>To do it again</h2>\n<pre><code>{}</code></pre>\n\
         <p class=\"machine\">Measured on: {}</p>\n</section>\n",
        words.collect::<Vec<_>>().join(" "),
        escape(&parts.join(" · "))
    )
}

/// What went wrong, or that nothing did.
pub(super) fn verdict(good: bool, words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let class = if good { "good" } else { "bad" };
    format!("<p class=\"verdict {class}\">{}{}</p>\n", escape(&first), escape(letters.as_str()))
}

/// A moment, for people: "Sat, 21 Nov 2026 10:33:06 GMT".
pub(super) fn moment(unix_s: u64) -> String {
    let latest = Duration::from_secs(unix_s.min(YEAR_9999_UNIX_S));
    httpdate::fmt_http_date(UNIX_EPOCH + latest)
}

/// The command with these arguments, for a shell, without credentials. A report has the settings in
/// words, but not all of them; only this process knows its arguments.
pub(super) fn command_line(arguments: impl Iterator<Item = OsString>) -> Vec<String> {
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let words = redact::arguments(arguments).map(|argument| quoted(&argument));
    iter::once("stentor".to_owned()).chain(words).collect()
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn head(report: &Report) -> String {
    let mut head = format!(
        "<header>\n<p class=\"kind\">stentor bench {}</p>\n<h1>{}</h1>\n<p class=\"asked\">",
        escape(report.command),
        escape(&report.url)
    );
    let settings = facts::settings(report);
    let measured = format!("measured for {}", facts::duration(report));
    let mut asked = vec![measured, moment(report.started_unix_s)];
    if !settings.is_empty() {
        asked.insert(0, settings);
    }
    head += &format!("{}</p>\n", escape(&asked.join(" · ")));
    if report.interrupted {
        let words = format!("interrupted after {}", facts::duration(report));
        head += &verdict(false, &words);
    }
    let problems = facts::problems(report);
    head += &match problems.is_empty() {
        true => verdict(true, facts::praise(report)),
        false => verdict(false, &problems.join(", ")),
    };
    head += "<dl class=\"key\">\n";
    for Figure { label, unit, value, .. } in report.figures().iter().take(KEY_FIGURES) {
        let value = escape(&unit.show(*value));
        head += &format!("<div><dt>{}</dt><dd>{value}</dd></div>\n", escape(label));
    }
    head + "</dl>\n</header>\n"
}

fn latencies(report: &Report) -> String {
    let latencies = facts::latencies(report);
    if latencies.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for (name, latency) in latencies {
        rows += &format!("<tr><th scope=\"row\">{}</th>", escape(&name));
        for cell in facts::latency_row(latency) {
            rows += &format!("<td>{}</td>", escape(&cell));
        }
        rows += &format!("<td>{}</td></tr>\n", count(latency.count));
    }
    let columns = LATENCY_COLUMNS.iter().chain(&["measured"]);
    let head: String = columns.map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    format!(
        "<section>\n<h2>Times</h2>\n\
         <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Times\">\n\
         <table>\n<thead><tr><th><span hidden>of</span></th>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</div>\n</section>\n"
    )
}

fn table(section: &FactSection) -> String {
    let rows = section.facts.iter().map(|fact| {
        format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(&fact.figure), escape(&fact.words))
    });
    let rows: String = rows.collect();
    let title = escape(section.title);
    format!("<section>\n<h2>{title}</h2>\n<table>\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n")
}

/// Figures that are shown large.
const KEY_FIGURES: usize = 6;
/// The last second that a date with four digits can name.
const YEAR_9999_UNIX_S: u64 = 253_402_300_799;
const STYLE: &str = include_str!("page/page.css");
const DRAW: &str = include_str!("page/page.js");

/// uPlot 1.6.32, under the licence beside it.
const UPLOT: &str = include_str!("page/uplot.min.js");
const UPLOT_STYLE: &str = include_str!("page/uplot.min.css");
