//! Rules for tests. Where a file or a crate does not keep one yet, a list has the number of its
//! exceptions, which may only fall.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use xtask::source::{File, blank, expect_none, read, rust, strings, tests_of};

/// Code of tests: their files, the simulator, and modules inside a file with other code. The code
/// that tests share is left out.
fn tests() -> Vec<File> {
    let shared = ["crates/stentor-test/", "crates/stentor/tests/e2e/support/", "xtask/"];
    let is_apart = |path: &str| {
        ["/tests/", "/tests.rs", "/simulation/", "/simulation.rs"]
            .iter()
            .any(|it| path.contains(it))
    };
    let mut files = rust();
    files.retain(|file| !shared.iter().any(|path| file.path.starts_with(path)));
    for file in &mut files {
        if !is_apart(&file.path) {
            file.text = file.code().1.to_owned();
        }
    }
    files
}

/// Counts the places where one of these words stands in the code of each file.
fn count(files: Vec<File>, words: &[&str]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for file in files {
        let code = blank(&file.text).code;
        let count = words.iter().map(|word| code.matches(word).count()).sum();
        if count > 0 {
            found.insert(file.path, count);
        }
    }
    found
}

/// Fails if there are more exceptions than the list has, or fewer: then the list has to follow.
#[track_caller]
fn expect_no_more(what: &str, found: &BTreeMap<String, usize>, known: &[(&str, usize)]) {
    let known: BTreeMap<&str, usize> = known.iter().copied().collect();
    let places: BTreeSet<&str> =
        found.keys().map(|place| &**place).chain(known.keys().copied()).collect();
    let counts = places.into_iter().map(|place| {
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        (place, of(found.get(place)), of(known.get(place)))
    });
    let broken = counts
        .filter(|(_, found, known)| found != known)
        .map(|(place, found, known)| format!("(\"{place}\", {found}), and not {known}"));
    expect_none(what, broken.collect());
}

/// A test waits for an event. How long that takes depends on the machine.
#[test]
fn tests_do_not_sleep() {
    expect_no_more(
        "sleeps in tests",
        &count(tests(), &["thread::sleep(", "stentor_io::sleep(", "  sleep("]),
        SLEEPS,
    );
}

/// A test that waits for ever hangs instead of failing.
#[test]
fn waits_have_deadlines() {
    let mut found = count(tests(), &[".recv()", ".output()", ".wait_with_output()"]);
    let commands = tests().into_iter().filter(|file| file.text.contains("Command::new("));
    for (path, waits) in count(commands.collect(), &[".status()"]) {
        *found.entry(path).or_default() += waits;
    }
    expect_no_more("waits without a deadline", &found, ENDLESS_WAITS);
    let server = read("crates/stentor/tests/e2e/support/server.rs");
    assert!(server.contains("if thread::panicking()"), "a failure shows what the server printed");
}

/// libtest shows nothing of a test that passes, so a skipped test has to be listed elsewhere.
#[test]
fn tests_that_cannot_run_are_listed() {
    let is_silent = |file: &File| {
        file.path != "crates/stentor-test/src/skip.rs"
            && !file.path.starts_with("xtask/")
            && file.text.contains("eprintln!(\"skipped: ")
    };
    let silent = rust().into_iter().filter(is_silent).map(|file| file.path);
    expect_none("skipping without stentor_test::skip", silent.collect());
}

/// A stop that waits for clients costs seconds and hides others that take too long.
#[test]
fn stops_have_a_bound() {
    let unbounded = tests()
        .into_iter()
        .filter(|file| file.path.contains("/e2e/") && file.text.contains("child.wait(), Some(0)"));
    expect_none("a stop without a bound", unbounded.map(|file| file.path).collect());
}

/// An oracle that asks the code it judges finds nothing wrong. Types carry what is judged.
#[test]
fn oracles_use_types_of_the_product_alone() {
    let mut broken = Vec::new();
    for path in ORACLES {
        let code = blank(&read(path)).code;
        let uses = code.split("use stentor_").skip(1).filter_map(|rest| rest.split(';').next());
        for names in uses.filter(|rest| !rest.starts_with("test::")) {
            let names = names.rsplit("::").next().unwrap_or_default();
            let mut names = names.split(['{', '}', ',']).map(str::trim);
            if let Some(name) = names.find(|name| name.starts_with(char::is_lowercase)) {
                broken.push(format!("{path}: {name}"));
            }
        }
        let judges = [".matches(", ".coverage(", ".covers("];
        broken.extend(
            judges.iter().filter(|it| code.contains(**it)).map(|it| format!("{path}: {it}")),
        );
    }
    expect_none("oracles that call the product", broken);
}

/// A mark that no list has is judged by nobody, and one that no code has is missed by all seeds.
#[test]
fn every_mark_is_in_a_list() {
    let (mut marked, mut known) = (BTreeSet::new(), BTreeSet::new());
    let is_apart = |path: &str| path.ends_with("/marks.rs") || !path.contains("/src/");
    let files: Vec<_> = rust().into_iter().filter(|file| !is_apart(&file.path)).collect();
    for file in &files {
        known.extend(strings(&file.text));
        let code = file.code().0.split(" mark(").skip(1);
        marked.extend(code.filter_map(|rest| rest.split(");").next()).flat_map(strings));
    }
    let list = read("crates/stentor-test/src/marks.rs");
    let (_, rows) = list.split_once("const MARKS").unwrap();
    let (rows, _) = rows.split_once("];").unwrap();
    let listed: BTreeSet<&str> =
        strings(rows).iter().flat_map(|it| it.split([' ', '\\', '\n'])).collect();
    let unlisted = marked.iter().filter(|mark| !listed.contains(**mark));
    expect_none("marks in no list", unlisted.map(|mark| (*mark).to_owned()).collect());
    let is_mark = |mark: &&&str| mark.contains('-') && !known.contains(**mark);
    expect_none(
        "marks in no code",
        listed.iter().filter(is_mark).map(|it| (*it).to_owned()).collect(),
    );
}

#[test]
fn names_of_tests_have_eight_words() {
    let mut long = BTreeMap::new();
    for file in rust() {
        let place = file.path.strip_prefix("crates/").unwrap_or(&file.path);
        let place = place.split('/').next().unwrap_or_default();
        let code = blank(&file.text).code;
        let count = tests_of(&code).iter().filter(|name| name.split('_').count() > 8).count();
        if count > 0 {
            *long.entry(place.to_owned()).or_default() += count;
        }
    }
    expect_no_more("names of more than eight words", &long, LONG_NAMES);
}

/// The files that judge the product.
const ORACLES: &[&str] = &[
    "crates/stentor-server/src/simulation/client.rs",
    "crates/stentor-server/src/simulation/codec.rs",
    "crates/stentor-server/src/simulation/access.rs",
    "crates/stentor-server/src/simulation/store/chronicle.rs",
    "crates/stentor-server/src/simulation/store/reader.rs",
    "crates/stentor-server/src/simulation/streams/log.rs",
    "crates/stentor-server/src/simulation/streams/reader.rs",
    "crates/stentor-server/src/simulation/streams/view.rs",
    "crates/stentor-test/src/http.rs",
    "crates/stentor-test/src/pattern.rs",
    "crates/stentor-test/src/sse.rs",
    "crates/stentor-test/src/websocket.rs",
    "crates/stentor/tests/e2e/support/client.rs",
    "crates/stentor/tests/e2e/support/reader.rs",
    "crates/stentor/tests/e2e/support/sse.rs",
    "crates/stentor/tests/e2e/support/websocket.rs",
];

const SLEEPS: &[(&str, usize)] = &[
    ("crates/stentor-io/src/epoll.rs", 1),
    ("crates/stentor-io/src/outcomes.rs", 3),
    ("crates/stentor-bench/src/run/stopped.rs", 1),
    ("crates/stentor-process/src/server.rs", 1),
    ("crates/stentor-access/src/fetch/tests.rs", 1),
    ("crates/stentor-io/src/file/tests.rs", 1),
    ("crates/stentor-io/src/tests/contract.rs", 1),
    ("crates/stentor-cluster/src/nats/tests.rs", 4),
    ("crates/stentor-server/src/event_log/tests.rs", 1),
    ("crates/stentor/tests/e2e/alerts.rs", 1),
    ("crates/stentor/tests/e2e/bench/get.rs", 1),
    ("crates/stentor/tests/e2e/bench/hostile.rs", 1),
    ("crates/stentor/tests/e2e/bench/surge.rs", 1),
    ("crates/stentor/tests/e2e/blocked_log.rs", 2),
    ("crates/stentor/tests/e2e/browser.rs", 1),
    ("crates/stentor/tests/e2e/cluster/events.rs", 1),
    ("crates/stentor/tests/e2e/connections.rs", 2),
    ("crates/stentor/tests/e2e/delivery.rs", 3),
    ("crates/stentor/tests/e2e/elsewhere.rs", 1),
    ("crates/stentor/tests/e2e/files.rs", 2),
    ("crates/stentor/tests/e2e/follow.rs", 1),
    ("crates/stentor/tests/e2e/recipes.rs", 2),
    ("crates/stentor/tests/e2e/recipes/outages.rs", 2),
    ("crates/stentor/tests/e2e/slow.rs", 2),
    ("crates/stentor/tests/e2e/sse.rs", 3),
    ("crates/stentor/tests/e2e/statics/changes.rs", 4),
    ("crates/stentor/tests/e2e/statics/fairness.rs", 1),
    ("crates/stentor/tests/e2e/store.rs", 1),
    ("crates/stentor/tests/e2e/store/crashes.rs", 2),
    ("crates/stentor/tests/e2e/upgrade.rs", 2),
    ("crates/stentor/tests/e2e/websocket.rs", 3),
];

const ENDLESS_WAITS: &[(&str, usize)] = &[
    ("crates/stentor-access/src/fetch/tests.rs", 1),
    ("crates/stentor-io/src/epoll/handover.rs", 5),
    ("crates/stentor-cluster/src/nats/tests.rs", 1),
    ("crates/stentor-server/src/event_log/tests.rs", 4),
    ("crates/stentor-server/src/simulation/races.rs", 1),
    ("crates/stentor/tests/e2e/access.rs", 4),
    ("crates/stentor/tests/e2e/alerts.rs", 4),
    ("crates/stentor/tests/e2e/blocked_log.rs", 2),
    ("crates/stentor/tests/e2e/browser.rs", 2),
    ("crates/stentor/tests/e2e/certificates.rs", 2),
    ("crates/stentor/tests/e2e/cluster.rs", 2),
    ("crates/stentor/tests/e2e/commands.rs", 3),
    ("crates/stentor/tests/e2e/control.rs", 1),
    ("crates/stentor/tests/e2e/demo.rs", 1),
    ("crates/stentor/tests/e2e/elsewhere.rs", 5),
    ("crates/stentor/tests/e2e/log.rs", 2),
    ("crates/stentor/tests/e2e/pages.rs", 2),
    ("crates/stentor/tests/e2e/privileges.rs", 1),
    ("crates/stentor/tests/e2e/publishing.rs", 1),
    ("crates/stentor/tests/e2e/recipes.rs", 1),
    ("crates/stentor/tests/e2e/recipes/renewal.rs", 2),
    ("crates/stentor/tests/e2e/statics/changes.rs", 1),
    ("crates/stentor/tests/e2e/statics/safety.rs", 1),
    ("crates/stentor/tests/e2e/store.rs", 2),
    ("crates/stentor/tests/e2e/store/crashes.rs", 2),
    ("crates/stentor/tests/e2e/supervisors.rs", 1),
    ("crates/stentor/tests/e2e/upgrade.rs", 3),
];

/// By crate.
const LONG_NAMES: &[(&str, usize)] = &[
    ("stentor", 282),
    ("stentor-access", 22),
    ("stentor-bench", 15),
    ("stentor-hub", 42),
    ("stentor-io", 33),
    ("stentor-cluster", 38),
    ("stentor-config", 21),
    ("stentor-files", 7),
    ("stentor-replication", 12),
    ("stentor-process", 9),
    ("stentor-server", 175),
    ("stentor-tls-layer", 12),
    ("stentor-store", 5),
    ("stentor-log", 22),
    ("stentor-tls", 44),
    ("stentor-tune", 11),
    ("stentor-wire", 14),
    ("xtask", 4),
];
