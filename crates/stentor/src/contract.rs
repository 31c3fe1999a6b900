//! The commands as data: `docs/contract/commands.json` is what the command line says.
//!
//! `cargo xtask contract` writes the file. The test compares it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use serde_json::{Value, json};

use crate::Failure;
use crate::args::Cli;

#[test]
fn the_commands_are_those_of_the_contract() {
    let mut rows = BTreeMap::new();
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    add(&mut rows, &cli);
    let commands = rows.iter().map(|(name, row)| format!("    {}: {row}", json!(name)));
    let text = format!(
        "{{\n  \"commands\": {{\n{}\n  }},\n  \"exit_codes\": {}\n}}\n",
        commands.collect::<Vec<_>>().join(",\n"),
        exit_codes()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contract/commands.json");
    if std::env::var_os("STENTOR_WRITE").is_some() {
        return std::fs::write(path, text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    let mut lines = committed.lines().zip(text.lines());
    let differing = lines.find(|(committed, expected)| committed != expected);
    assert!(committed == text, "run cargo xtask contract: {differing:?}");
}

/// Adds a row for each argument of a command and of those below it.
fn add(rows: &mut BTreeMap<String, Value>, command: &Command) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    rows.insert(name.to_owned(), json!({}));
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        if !argument.is_global_set() || name == "stentor" {
            rows.insert(format!("{name} {}", shown(argument)), of(argument));
        }
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(rows, below);
    }
}

/// The word that a user types for an argument.
fn shown(argument: &Arg) -> String {
    match argument.get_long() {
        Some(long) => format!("--{long}"),
        None => argument.get_id().as_str().to_ascii_uppercase(),
    }
}

fn of(argument: &Arg) -> Value {
    let mut row = json!({"required": argument.is_required_set()});
    if let Some(short) = argument.get_short() {
        row["short"] = json!(short);
    }
    if let Some(variable) = argument.get_env() {
        row["variable"] = json!(variable.to_string_lossy());
    }
    let takes_value = argument.get_action().takes_values();
    if takes_value {
        let named = argument.get_value_names().unwrap_or_default();
        row["value"] = json!(named.iter().map(ToString::to_string).collect::<Vec<_>>());
        let words = argument.get_possible_values();
        let words: Vec<&str> = words.iter().map(clap::builder::PossibleValue::get_name).collect();
        if !words.is_empty() {
            row["words"] = json!(words);
        }
        let defaults = argument.get_default_values().iter();
        let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() {
            row["default"] = json!(defaults);
        }
    }
    row
}

/// The codes that the program ends with.
fn exit_codes() -> Value {
    let code = |code: ExitCode| {
        let is_it = |number: &u8| format!("{:?}", ExitCode::from(*number)) == format!("{code:?}");
        (0..=u8::MAX).find(is_it)
    };
    json!({
        "success": code(ExitCode::SUCCESS),
        "failure": code(Failure::Failed(String::new()).exit_code()),
        "usage": code(Failure::Usage(String::new()).exit_code()),
        "interrupted": code(Failure::Interrupted(signal_hook::consts::SIGINT).exit_code()),
    })
}
