//! The HTTP reference names every page of the server and every header field of its answers.
//!
//! Both are read from the string literals of the crates that answer. A page is a literal that is a
//! path below `/-/`. A header field has a row in the table of `head.rs`, or is a name with a
//! colon in a literal that has the line feeds of HTTP, or that ends with the colon.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use xtask::source::{expect_none, files, read, rust, strings};

#[test]
fn every_page_is_documented_and_in_the_refusals() {
    let literals = literals();
    let is_page = |text: &&String| !HIDDEN.contains(&text.as_str()) && paths(text).contains(*text);
    let pages: BTreeSet<String> = literals.iter().filter(is_page).cloned().collect();
    assert!(pages.len() > 10, "only {pages:?}");
    let refusal = |begin: &str| {
        let text = literals.iter().find(|text| text.starts_with(begin));
        paths(text.unwrap_or_else(|| panic!("no refusal begins with {begin:?}")))
    };
    let reference = read("docs/http/README.md");
    let rows = |begin: &str| -> String {
        reference.lines().filter(|line| line.starts_with(begin)).collect()
    };
    let [public, control, monitor] =
        ["| public |", "| control |", "| monitor |"].map(|listener| paths(&rows(listener)));
    let mut broken = Vec::new();
    for (place, named, expected) in [
        ("the 404 of the control listener", refusal("No such page; there are"), &pages),
        ("the table of paths", paths(&rows("| `/")), &pages),
        ("the rows of the listeners", control.union(&public).cloned().collect(), &pages),
        ("the 404 of the public listener", refusal("No such page here; /-/"), &public),
        ("the 404 of the monitor listener", refusal("No such page here; there are"), &monitor),
    ] {
        let differing = named.symmetric_difference(expected);
        broken.extend(differing.map(|path| format!("{place}: {path}")));
    }
    expect_none("pages that are missing somewhere, or that do not exist", broken);
}

#[test]
fn every_field_of_an_answer_is_documented() {
    let mut named: BTreeSet<String> = literals().iter().flat_map(|text| fields(text)).collect();
    let writer = read("crates/stentor-server/src/head.rs");
    let (_, table) = writer.split_once("\nfields! {\n").unwrap();
    named.extend(strings(table.split_once("\n}\n").unwrap().0).into_iter().map(str::to_owned));
    assert!(named.len() > 25, "only {named:?}");
    let pages: String = files(&["md"])
        .into_iter()
        .filter(|file| file.path.starts_with("docs/"))
        .map(|file| file.text)
        .collect();
    let is_documented = |name: &String| {
        let forms = [format!("`{name}`"), format!("`{name}: "), format!("\n{name}: ")];
        forms.iter().any(|form| pages.contains(form))
    };
    let absent = named.into_iter().filter(|name| !is_documented(name));
    expect_none("header fields of answers that no page in docs/ names", absent.collect());
}

#[test]
fn every_figure_of_a_service_is_documented() {
    let pages = read("docs/operating.md") + &read("docs/cluster.md");
    let (mut count, mut absent) = (0, Vec::new());
    for path in ["store/src/report.rs", "replication/src/follow.rs", "cluster/src/state.rs"] {
        let text = read(&format!("crates/stentor-{path}"));
        let after = |begin: &str| text.split_once(begin).unwrap().1;
        let name = strings(after("fn name("))[0];
        let figures = after("fn figures(").split("\n    }\n").next().unwrap();
        let keys = figures.split("(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        for key in keys.map(|key| format!("`{name}.{key}`")) {
            count += 1;
            absent.extend((!pages.contains(&key)).then_some(key));
        }
    }
    assert!(count > 25, "only {count}");
    expect_none("keys of /-/status that neither operating.md nor cluster.md explains", absent);
}

#[test]
fn the_status_shown_has_all_members() {
    let (page, code) = (read("docs/http/control.md"), read("crates/stentor-server/src/report.rs"));
    let example = page.split_once("/-/status\n{\n").unwrap().1.split("\n}\n").next().unwrap();
    let member = |line: &str| Some(line.strip_prefix("  \"")?.split_once('"')?.0.to_owned());
    let shown: BTreeSet<String> = example.lines().filter_map(member).collect();
    let fields = code.split_once("struct ServerReport {").unwrap().1.split("\n}\n").next().unwrap();
    let mut expected = BTreeSet::from(["store", "follow", "cluster"].map(str::to_owned));
    let mut is_member = true;
    for line in fields.lines().map(str::trim) {
        is_member &= !line.starts_with("#[serde(");
        if let Some((name, _)) = line.strip_prefix("pub(crate) ").and_then(|it| it.split_once(':'))
            && std::mem::replace(&mut is_member, true)
        {
            expected.insert(name.to_owned());
        }
    }
    assert_eq!(shown, expected);
}

/// The string literals of the crates that answer, without those of tests.
fn literals() -> Vec<String> {
    let files = rust().into_iter().filter(|file| {
        file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && !OTHERS.iter().any(|part| file.path.contains(part))
    });
    let owned = |text: &str| text.to_owned();
    files
        .flat_map(|file| strings(file.code().0).into_iter().map(owned).collect::<Vec<_>>())
        .collect()
}

/// The paths below `/-/` in a text.
fn paths(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/-.".contains(c)));
    let paths = words.filter(|word| word.starts_with("/-/") && *word != "/-/");
    paths.map(|path| path.trim_end_matches('.').to_owned()).collect()
}

/// The names of header fields in a literal, which has escapes as in the source.
fn fields(text: &str) -> BTreeSet<String> {
    let is_head = text.contains("\\r\\n") || text.ends_with(": ") || text.ends_with(": \\\"");
    let lines = text.split("\\r\\n").filter(|_| is_head);
    let names = lines.filter_map(|line| line.split_once(": ")).map(|(name, _)| {
        // The line of the source may end in front of the name, or a placeholder for other fields.
        let name = name.rsplit('}').next().unwrap_or_default();
        name.trim_start_matches(['\\', '\n', ' '])
    });
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    names.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn pages_and_fields_are_found_in_literals() {
    let code = "f(\"A-B: c\\r\\nD: {e}\\r\\n\\\n  F-G: h: i\\r\\n{j}K: l\\r\\n\\r\\nm N: o\", \
                \"P: \", \"Q: r\")";
    let found: Vec<String> = strings(code).into_iter().flat_map(fields).collect();
    assert_eq!(found, ["A-B", "D", "F-G", "K", "P"]);
    let text = "No such page; there are /-/a.js, /-/b, /-/\\\n   c and /-/d.";
    assert_eq!(paths(text), ["/-/a.js", "/-/b", "/-/d"].map(str::to_owned).into());
}

/// A page that makes a worker panic, for tests.
const HIDDEN: &[&str] = &["/-/panic"];

/// Clients and tests.
const OTHERS: &[&str] = &[
    "crates/stentor/",
    "crates/stentor-bench/",
    "crates/stentor-test/",
    "crates/stentor-tune/",
    "/fuzz",
    "/simulation",
    "/tests",
];
