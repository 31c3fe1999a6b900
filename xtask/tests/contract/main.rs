//! The public contract as data: the files in `docs/contract/` are what the tables of the code say.
//!
//! `cargo xtask contract` writes the files. These tests compare them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod endpoints;
mod golden;
mod openapi;
mod schema;

use serde_json::Value;
use stentor_wire::error::ErrorCode;
use xtask::source::{expect_none, read, root};

use endpoints::{Listener, endpoints};

#[test]
fn the_golden_file_is_what_the_code_says() {
    compare("contract.json", &golden::text());
}

#[test]
fn the_schema_is_what_the_settings_say() {
    compare("stentor.schema.json", &pretty(&schema::schema()));
}

#[test]
fn openapi_is_what_the_endpoints_say() {
    compare("openapi.json", &pretty(&openapi::document()));
}

#[test]
fn endpoints_are_those_of_the_404_sentences() {
    let router = read("crates/stentor-server/src/route.rs");
    for (listener, name) in [
        (Listener::Public, "NOT_ON_PUBLIC"),
        (Listener::Control, "NOT_ON_CONTROL"),
        (Listener::Monitor, "NOT_ON_MONITOR"),
    ] {
        let (_, sentence) = router.split_once(&format!("{name}: EndpointNotFound")).unwrap();
        let sentence = sentence.split("\";").next().unwrap();
        let words = sentence.split(|c: char| !(c.is_ascii_alphanumeric() || "/-.".contains(c)));
        let paths = words.filter(|word| word.starts_with("/-/"));
        let mut said: Vec<&str> = paths.map(|path| path.trim_end_matches('.')).collect();
        let all = endpoints();
        let reserved =
            all.iter().filter(|it| it.path.starts_with("/-/") && it.is_told_of(listener));
        let mut described: Vec<&str> = reserved.map(|endpoint| endpoint.path).collect();
        said.sort_unstable();
        described.sort_unstable();
        assert_eq!(said, described, "{name}");
    }
}

#[test]
fn every_code_belongs_to_an_operation() {
    let all = endpoints();
    let operations = all.iter().flat_map(|endpoint| &endpoint.operations);
    let sent: Vec<ErrorCode> = operations.flat_map(endpoints::Operation::codes).collect();
    let is_known = |code: &&ErrorCode| sent.contains(code) || endpoints::IN_ITEMS.contains(code);
    let missing = ErrorCode::ALL.iter().filter(|code| !is_known(code));
    expect_none("codes of no operation", missing.map(|code| code.name().to_owned()).collect());
    let both = endpoints::IN_ITEMS.iter().filter(|code| sent.contains(code));
    expect_none("codes listed twice", both.map(|code| code.name().to_owned()).collect());
}

/// Compares a file with what it should be, or writes it if that is asked for.
fn compare(name: &str, expected: &str) {
    let path = format!("docs/contract/{name}");
    if std::env::var_os("STENTOR_WRITE").is_some() {
        return std::fs::write(root().join(&path), expected).unwrap();
    }
    let committed = read(&path);
    let mut lines = committed.lines().zip(expected.lines());
    let differing = lines.find(|(committed, expected)| committed != expected);
    assert!(
        committed == expected,
        "{path} is not what the code says: {differing:?}; run cargo xtask contract, and add a \
         line to CHANGELOG.md"
    );
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
