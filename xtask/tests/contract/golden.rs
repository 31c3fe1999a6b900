//! The golden file: every name of the public contract, a row each, so that a diff shows what a
//! change means for users.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
use stentor_config::{setting_references, table_references};
use stentor_wire::error::ErrorCode;
use stentor_wire::notice::{self, GapReason};
use stentor_wire::sse;
use xtask::metrics::metrics;
use xtask::source::{read, strings};

use crate::endpoints::endpoints;

/// The rows of a section, by their names.
type Rows = BTreeMap<String, Value>;

/// The whole file.
pub(crate) fn text() -> String {
    let sections = [
        ("configuration", settings()),
        ("configuration_tables", tables()),
        ("endpoints", paths()),
        ("errors", errors()),
        ("events", events()),
        ("gaps", gaps()),
        ("info", info()),
        ("metrics", all_metrics()),
        ("notices", notices()),
        ("response_fields", response_fields()),
    ];
    let mut text = String::from("{");
    for (index, (name, rows)) in sections.into_iter().enumerate() {
        assert!(!rows.is_empty(), "{name}");
        let comma = if index == 0 { "" } else { "," };
        let rows = rows.iter().map(|(name, row)| format!("    {}: {row}", json!(name)));
        let rows = rows.collect::<Vec<_>>().join(",\n");
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}\n  \"{name}\": {{\n{rows}\n  }}");
    }
    text + "\n}\n"
}

fn errors() -> Rows {
    let row = |code: &ErrorCode| json!({"status": code.status().0, "title": code.title()});
    ErrorCode::ALL.iter().map(|code| (code.name().to_owned(), row(code))).collect()
}

fn gaps() -> Rows {
    let row = |reason: GapReason| json!({"resume": reason.resume().name()});
    GapReason::ALL.into_iter().map(|reason| (reason.name().to_owned(), row(reason))).collect()
}

/// The kinds of notices, each with the members of its object.
fn notices() -> Rows {
    let all = [
        notice::cursor("x"),
        notice::gap(GapReason::RolledBack, Some("x")),
        notice::access(&[], &[]),
        notice::end(ErrorCode::TokenExpired),
    ];
    let row = |notice: String| {
        let notice: Rows = serde_json::from_str(&notice).unwrap();
        let (kind, value) = notice.into_iter().next().unwrap();
        let members: Vec<String> =
            value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect();
        (kind, json!({ "members": members }))
    };
    all.map(row).into()
}

/// The names of events that publishers cannot use.
fn events() -> Rows {
    let source = read("crates/stentor-wire/src/sse.rs");
    let (_, rest) = source.split_once("fn is_reserved(").unwrap();
    let literals = strings(rest.split("\n}\n").next().unwrap());
    let names = literals.into_iter().chain([sse::NOTICE]).map(|name| {
        let is_prefix = name.ends_with('.');
        assert!(sse::is_reserved(name), "{name}");
        (name.to_owned(), json!({"reserved": if is_prefix { "prefix" } else { "name" }}))
    });
    names.collect()
}

fn paths() -> Rows {
    let mut rows = Rows::new();
    for endpoint in endpoints() {
        for operation in &endpoint.operations {
            let listeners: Vec<&str> = operation.listeners.iter().map(|it| it.name()).collect();
            let parameters: Vec<&str> = operation.parameters.iter().map(|it| it.name).collect();
            let statuses: Vec<u16> = operation.answers.iter().map(|answer| answer.status).collect();
            let row = json!({
                "listeners": listeners,
                "parameters": parameters,
                "statuses": statuses,
            });
            for method in operation.methods {
                rows.insert(format!("{} {method}", endpoint.path), row.clone());
            }
        }
    }
    rows
}

/// The fields of responses that an endpoint may send, and those of the framing.
fn response_fields() -> Rows {
    let source = read("crates/stentor-server/src/head.rs");
    let (_, table) = source.split_once("\nfields! {\n").unwrap();
    let named = strings(table.split("\n}\n").next().unwrap()).into_iter();
    let framing = source.split("line(out, \"").skip(1).map(|it| it.split('"').next().unwrap());
    named.chain(framing).map(|name| (name.to_owned(), json!({}))).collect()
}

fn settings() -> Rows {
    let row = |setting: stentor_config::SettingReference| {
        let row = json!({
            "variable": setting.variable,
            "form": setting.form,
            "default": setting.default,
            "reload": !setting.needs_restart,
        });
        (setting.name, row)
    };
    setting_references().into_iter().map(row).collect()
}

fn tables() -> Rows {
    let mut rows = Rows::new();
    for table in table_references() {
        for key in table.keys {
            let row = json!({"form": key.form, "required": key.is_required});
            rows.insert(format!("[[{}]] {}", table.name, key.key), row);
        }
    }
    rows
}

fn all_metrics() -> Rows {
    let row = |metric: xtask::metrics::Metric| {
        (metric.name, json!({"type": metric.kind, "labels": metric.labels}))
    };
    metrics().into_iter().map(row).collect()
}

/// The version of the contract, the features and the limits of `/-/info`.
fn info() -> Rows {
    let source = read("crates/stentor-server/src/endpoint/info.rs");
    let between = |begin: &str, end: &str| {
        let (_, rest) = source.split_once(begin).unwrap();
        rest.split(end).next().unwrap().to_owned()
    };
    let version = between("const CONTRACT: &str = ", ";");
    let features = between("const FEATURES", "];");
    let limits = between("struct Limits {\n", "\n}");
    let limits = limits.lines().filter_map(|line| line.split_once(':')).map(|it| it.0.trim());
    Rows::from([
        ("contract".to_owned(), json!(version.trim_matches('"'))),
        ("features".to_owned(), json!(strings(&features))),
        ("limits".to_owned(), json!(limits.collect::<Vec<_>>())),
    ])
}
