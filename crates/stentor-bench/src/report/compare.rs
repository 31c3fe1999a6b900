//! A comparison as a table and as a page.
//!
//! Machines are noisy, so every figure is a median over the rounds, beside the least and the most
//! there was. A ratio is taken within each round, to the first server, before the median is: what
//! slowed down both in a round then cancels out. A difference is called one only if every one of
//! at least five rounds shows it.

use std::env;

use super::facts;
use super::figures::{Better, Figure, Unit};
use super::html::{again, command_line, escape, moment, page, verdict};
use super::text::{COLUMNS_MIN, wrap};
use super::units::{self, printable, times};
use super::{Comparison, Report};

impl Comparison {
    /// The table in lines of at most so many columns, and 60 at least. Each ends with
    /// a line feed.
    #[must_use]
    pub fn text(&self, columns: usize) -> String {
        let columns = columns.max(COLUMNS_MIN);
        let mut text = wrap(&self.headline(), columns);
        for (i, subject) in self.subjects.iter().enumerate() {
            text += &wrap(&format!("{} {}", letter(i), printable(&subject.url)), columns);
        }
        text.push('\n');
        match self.problems() {
            problems if problems.is_empty() => text += "no errors\n",
            problems => {
                problems.iter().for_each(|p| text += &wrap(&format!("PROBLEMS: {p}"), columns))
            }
        }
        let [to_first, range, judged] = match self.subjects.len() {
            0 | 1 => [""; 3],
            _ => ["to A", "min – max", "overall"],
        };
        text.push('\n');
        line(&mut text, columns, ["", "", "median", "min – max", to_first, range, judged]);
        for row in rows(self) {
            let mut label = row.label;
            for (i, cell) in row.cells.iter().enumerate() {
                let Some(cell) = cell else { continue };
                let [median, range, ratio, ratios, judged] = cell.columns(&row);
                line(
                    &mut text,
                    columns,
                    [label, &letter(i), &median, &range, &ratio, &ratios, &judged],
                );
                label = "";
            }
        }
        text
    }

    /// The page, a whole file. Pages are shared, so it shows no credentials.
    #[must_use]
    pub fn html(&self) -> String {
        let shared = self.redacted();
        let mut body = shared.head();
        let rows = rows(&shared);
        body += &shared.table(&rows);
        if let Some(first) = shared.reports().next() {
            body += &again(&command_line(env::args_os().skip(1)), &first.machine);
        }
        page(&format!("bench {}", shared.command), &body, None)
    }

    fn reports(&self) -> impl Iterator<Item = &Report> {
        self.subjects.iter().flat_map(|subject| &subject.reports)
    }

    /// What was compared, and how.
    fn headline(&self) -> String {
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        let mut words = format!("{}, {} {rounds} of each, alternating", self.command, self.rounds);
        if let Some(first) = self.reports().next() {
            let settings = facts::settings(first);
            let parted = if settings.is_empty() { "" } else { ": " };
            words += &format!(", {} a round{parted}{settings}", facts::duration(first));
        }
        words
    }

    /// What went wrong with each server, if anything did.
    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> = self.error.iter().map(|error| printable(error)).collect();
        for (i, subject) in self.subjects.iter().enumerate() {
            for (round, report) in subject.reports.iter().enumerate() {
                let mut found = facts::problems(report);
                if let Some(error) = report.errors.first() {
                    found.push(format!("most often: {}", printable(&error.kind)));
                }
                if report.interrupted {
                    found.insert(0, format!("interrupted after {}", facts::duration(report)));
                }
                if !found.is_empty() {
                    problems.push(format!(
                        "{} in round {}: {}",
                        letter(i),
                        round + 1,
                        found.join(", ")
                    ));
                }
            }
        }
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        if more > 0 {
            problems.truncate(PROBLEMS_MAX);
            problems.push(format!("{more} more rounds with problems"));
        }
        problems
    }
}

/// The parts of the page.
impl Comparison {
    fn head(&self) -> String {
        let mut head = format!(
            "<header>\n<p class=\"kind\">stentor bench</p>\n\
             <h1>{}: {} servers</h1>\n<p class=\"asked\">{}</p>\n",
            escape(self.command),
            self.subjects.len(),
            escape(&self.headline())
        );
        for (i, subject) in self.subjects.iter().enumerate() {
            head +=
                &format!("<p class=\"asked\"><b>{}</b> {}</p>\n", letter(i), escape(&subject.url));
        }
        if let Some(first) = self.reports().next() {
            head += &format!("<p class=\"asked\">{}</p>\n", moment(first.started_unix_s));
        }
        let problems = self.problems();
        if problems.is_empty() {
            head += &verdict(true, "no errors");
        }
        problems.iter().for_each(|problem| head += &verdict(false, problem));
        head + "</header>\n"
    }

    fn table(&self, rows: &[FigureRow]) -> String {
        let mut lines = String::new();
        for row in rows {
            let mut label = format!(
                "<th scope=\"rowgroup\" rowspan=\"{}\">{}</th>",
                row.cells.iter().flatten().count(),
                escape(row.label)
            );
            lines += "<tbody>\n";
            for (i, cell) in row.cells.iter().enumerate() {
                let Some(cell) = cell else { continue };
                lines += &format!("<tr>{label}<th scope=\"row\" class=\"of\">{}</th>", letter(i));
                cell.columns(row).iter().for_each(|c| lines += &format!("<td>{}</td>", escape(c)));
                lines += "</tr>\n";
                label.clear();
            }
            lines += "</tbody>\n";
        }
        let columns = ["median", "min – max", "to A", "min – max", "overall"];
        let head: String = columns.map(|name| format!("<th scope=\"col\">{name}</th>")).concat();
        format!(
            "<section>\n<h2>All figures</h2>\n\
             <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"All figures\">\n\
             <table>\n<thead><tr><th scope=\"col\">figure</th>\
             <th scope=\"col\" class=\"of\">of</th>{head}</tr></thead>\n\
             {lines}</table>\n</div>\n\
             <p class=\"machine\">Overall, a server is better or worse only if it is in every \
             round, of at least {ROUNDS_TO_JUDGE}.</p>\n</section>\n"
        )
    }
}

/// One figure of all servers.
struct FigureRow {
    label: &'static str,
    unit: Unit,
    better: Better,
    /// For each server; None where it was not measured.
    cells: Vec<Option<Cell>>,
}

/// One figure of one server.
struct Cell {
    value: RoundSpread,
    /// To the first server; None for that one, and where there is nothing to divide by.
    ratio: Option<RoundSpread>,
}

/// The middle, the least and the most of some rounds.
struct RoundSpread {
    median: f64,
    low: f64,
    high: f64,
    rounds: usize,
}

impl Cell {
    /// Median and range, ratio and its range, and what is to be said of it.
    fn columns(&self, row: &FigureRow) -> [String; 5] {
        let ratio = self.ratio.as_ref();
        [
            row.unit.show(self.value.median),
            self.value.range(|value| row.unit.show(value)),
            ratio.map_or(String::new(), |ratio| times(ratio.median)),
            ratio.map_or(String::new(), |ratio| ratio.range(units::number)),
            ratio.map_or("", |ratio| ratio.judged(row.better)).to_owned(),
        ]
    }
}

impl RoundSpread {
    /// Of numbers that are some; None without any.
    fn of(mut values: Vec<f64>) -> Option<RoundSpread> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let rounds = values.len();
        let median = f64::midpoint(values[(rounds - 1) / 2], values[rounds / 2]);
        Some(RoundSpread { median, low, high, rounds })
    }

    fn range(&self, show: impl Fn(f64) -> String) -> String {
        format!("{} – {}", show(self.low), show(self.high))
    }

    /// For a ratio: whether the rounds agree on who is better.
    fn judged(&self, better: Better) -> &'static str {
        let (less, more) = match better {
            Better::Lower => ("better", "worse"),
            Better::Higher => ("worse", "better"),
        };
        match self {
            _ if self.rounds < ROUNDS_TO_JUDGE => "",
            _ if self.high < 1.0 => less,
            _ if self.low > 1.0 => more,
            _ => "unclear",
        }
    }
}

/// All figures that any of the reports has, in the order in which they come.
fn rows(comparison: &Comparison) -> Vec<FigureRow> {
    let figures: Vec<Vec<Vec<Figure>>> = comparison
        .subjects
        .iter()
        .map(|subject| subject.reports.iter().map(Report::figures).collect())
        .collect();
    let mut seen: Vec<&Figure> = Vec::new();
    for figure in figures.iter().flatten().flatten() {
        if !seen.iter().any(|known| known.key == figure.key) {
            seen.push(figure);
        }
    }
    // That there were no errors is said above the table.
    let none = |key| figures.iter().flatten().flatten().all(|f| f.key != key || f.value == 0.0);
    seen.retain(|figure| figure.key != "errors" || !none("errors"));
    let rows = seen.into_iter().map(|figure| FigureRow {
        label: figure.label,
        unit: figure.unit,
        better: figure.better,
        cells: (0..figures.len()).map(|i| cell(&figures, i, figure.key)).collect(),
    });
    rows.collect()
}

/// The figure `key` of the server `i` over all rounds.
fn cell(figures: &[Vec<Vec<Figure>>], i: usize, key: &str) -> Option<Cell> {
    let value = |i: usize, round: usize| {
        let found = figures[i].get(round)?.iter().find(|figure| figure.key == key)?;
        Some(found.value)
    };
    let rounds = 0..figures[i].len();
    let values = rounds.clone().filter_map(|round| value(i, round)).collect();
    let ratios = rounds.filter_map(|round| Some(value(i, round)? / value(0, round)?)).collect();
    Some(Cell {
        value: RoundSpread::of(values)?,
        ratio: if i == 0 { None } else { RoundSpread::of(ratios) },
    })
}

/// One line of the table. Ranges are left out where there is no room for them.
fn line(text: &mut String, columns: usize, cells: [&str; 7]) {
    let [label, letter, median, range, ratio, ratios, judged] = cells;
    let mut line = format!("{label:25}{letter:2}{median:>12}");
    if columns >= COLUMNS_OF_RANGES {
        line += &format!("{range:>26}");
    }
    line += &format!("{ratio:>10}");
    if columns >= COLUMNS_OF_RATIOS {
        line += &format!("{ratios:>15}");
    }
    line += &format!("  {judged}");
    *text += line.trim_end();
    text.push('\n');
}

/// The short name of a server: A for the first.
fn letter(i: usize) -> String {
    match u8::try_from(i) {
        Ok(i) if i < 26 => char::from(b'A' + i).to_string(),
        _ => format!("#{}", i + 1),
    }
}

/// Widths from which on a table has ranges, and those of ratios.
const COLUMNS_OF_RANGES: usize = 99;
const COLUMNS_OF_RATIOS: usize = 73;

/// Rounds it takes to call a difference one.
const ROUNDS_TO_JUDGE: usize = 5;
/// Rounds with problems that are listed.
const PROBLEMS_MAX: usize = 6;
