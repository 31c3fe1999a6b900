//! Metrics, the page that explains them, the alerts and the dashboard name the same things.
//!
//! `docs/operating.md` has a row for every metric that the server writes, and a row for every rule
//! in `packaging/alerts.yaml`, with its expression. `packaging/alerts.test.yaml` has a case for
//! every rule; `e2e/alerts.rs` runs it, where there is a `promtool`.
//!
//! `STENTOR_WRITE=1 cargo test -p xtask --test metrics` writes the rows of metrics that lack one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use xtask::metrics::{Metric, metrics};
use xtask::source::{expect_none, read, root};

#[test]
fn every_alert_is_explained_as_it_is_written() {
    let rules = rules();
    let rows = rows();
    println!("{} rules, {} rows", rules.len(), rows.len());
    assert!(rules.len() > 20, "only {} rules", rules.len());
    expect_none("rules without a row like this in docs/operating.md", difference(&rules, &rows));
    expect_none(
        "rows without a rule like this in packaging/alerts.yaml",
        difference(&rows, &rules),
    );
}

#[test]
fn every_alert_has_a_test_case() {
    let cases = read("packaging/alerts.test.yaml");
    let has_case = |rule: &Rule| cases.contains(&format!("\n  - name: \"{}: ", rule.name));
    let untested = rules().into_iter().filter(|rule| !has_case(rule)).map(|rule| rule.name);
    expect_none("rules without a case in packaging/alerts.test.yaml", untested.collect());
}

#[test]
fn every_metric_is_explained() {
    let written = written();
    assert!(written.len() > 80, "only {} metrics", written.len());
    let page = read("docs/operating.md");
    let (before, section) = page.split_once("\n## What each figure means\n").unwrap();
    let (section, after) = section.split_once("\n## ").unwrap();
    let explained = names(section);
    if std::env::var_os("STENTOR_WRITE").is_some() {
        let missing = metrics().into_iter().filter(|metric| !explained.contains(&metric.name));
        let rows: String = missing.map(|metric| row(&metric)).collect();
        let (table, rest) = section.split_once("\n\nThe text form").unwrap();
        let page = format!(
            "{before}\n## What each figure means\n{table}\n{rows}\nThe text form{rest}\n## {after}"
        );
        return std::fs::write(root().join("docs/operating.md"), page).unwrap();
    }
    expect_none("metrics without a row", difference(&written, &explained));
    expect_none("rows without a metric", difference(&explained, &written));
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist() {
    let written = written();
    for path in ["packaging/alerts.yaml", "packaging/alerts.test.yaml", "packaging/grafana.json"] {
        let used = names(&read(path));
        assert!(used.len() > 20, "{path} names only {} metrics", used.len());
        expect_none(&format!("{path} names no metrics"), difference(&used, &written));
    }
}

/// A rule: its name, its expression and for how long that must hold.
#[derive(Debug, PartialEq)]
struct Rule {
    name: String,
    expression: String,
    hold: String,
}

/// Those of `packaging/alerts.yaml`.
fn rules() -> Vec<Rule> {
    let text = read("packaging/alerts.yaml");
    let rules = text.split("\n      - alert: ").skip(1).map(|rule| {
        let field = |name: &str| {
            let lines = rule.lines().filter_map(|line| line.trim().strip_prefix(name));
            let values: Vec<_> = lines.collect();
            assert_eq!(values.len(), 1, "{name} in {rule}");
            values[0].to_owned()
        };
        let name = rule.lines().next().unwrap().to_owned();
        Rule { name, expression: field("expr: "), hold: field("for: ") }
    });
    rules.collect()
}

/// Those of the table in `docs/operating.md`: a row is `NAME`, then `EXPRESSION`, and where it must
/// hold for a while, `DURATION`.
fn rows() -> Vec<Rule> {
    let page = read("docs/operating.md");
    let rows = page.lines().filter(|line| line.starts_with("| `Stentor")).map(|line| {
        let cells: Vec<_> = line.split(" | ").collect();
        let name = cells[0].trim_start_matches("| ").trim_matches('`').to_owned();
        let (expression, hold) = match cells[1].split_once("` for `") {
            Some((expression, hold)) => (expression, hold),
            None => (cells[1], "0m"),
        };
        let bare = |text: &str| text.trim_matches('`').to_owned();
        Rule { name, expression: bare(expression), hold: bare(hold) }
    });
    rows.collect()
}

/// The row that explains one in `docs/operating.md`, to begin with.
fn row(Metric { name, help, counters, .. }: &Metric) -> String {
    format!("| `{name}` | {} | {} |\n", counters.join(", "), help.trim_end_matches('.'))
}

/// Their names.
fn written() -> BTreeSet<String> {
    metrics().into_iter().map(|metric| metric.name).collect()
}

/// Names of metrics in a text. The series of a histogram count as the histogram.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named = words.filter(|word| word.starts_with("stentor_") || word.starts_with("process_"));
    let histogram = |word: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        let whole = parts.iter().find_map(|part| word.strip_suffix(part));
        whole.unwrap_or(word).to_owned()
    };
    named.filter(|word| *word != "process_open_fds").map(histogram).collect()
}

/// The elements that only the first has.
fn difference<'a, T: std::fmt::Debug + PartialEq + 'a>(
    these: impl IntoIterator<Item = &'a T>,
    others: impl IntoIterator<Item = &'a T>,
) -> Vec<String> {
    let others: Vec<&T> = others.into_iter().collect();
    let only = these.into_iter().filter(|this| !others.contains(this));
    only.map(|this| format!("{this:?}")).collect()
}
