//! `stentor store`: the directory in which a server keeps its messages, without the server.

use std::fmt::Write;
use std::io::{BufWriter, stdin, stdout};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use stentor_store::offline::{self, Checked, Contents};

use crate::Failure;

/// Check, repair, copy, export or import what a server keeps in its --data directory
///
/// docs/store.md says what each does, and when it is needed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Subcommand, Debug)]
enum StoreCommand {
    /// Read a store from its first to its last byte, and say what is in it or what is damaged
    ///
    /// Nothing is changed. No server may have it in use. Exit code 1 if anything is damaged.
    Check {
        /// The directory
        dir: PathBuf,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Keep everything of a damaged store that verifies
    ///
    /// Says what was lost; damaged files stay in the directory under names that begin with
    /// damaged-. The store gets a new EPOCH, so that readers are told of a gap. One that is sound
    /// is left as it is. No server may have it in use; run it as the server's user.
    Repair {
        /// The directory
        dir: PathBuf,
    },
    /// Copy a store into an empty directory, also while its server runs
    ///
    /// The copy is a store: of one moment, in one file, read again after it was written. It gets a
    /// new EPOCH, since its numbers will be given out again.
    Backup {
        /// The directory
        dir: PathBuf,
        /// Where the copy is made; the directory is made if it is not there
        target: PathBuf,
    },
    /// Print every message and deletion as a line of JSON, also while the server runs
    ///
    /// What a server that starts with the store would have, in its order: of each topic as much
    /// history as the rules in force keep.
    Export {
        /// The directory
        dir: PathBuf,
    },
    /// Make a store of such lines, from standard input, in an empty directory
    ///
    /// A line needs topic and data (or base64) only: those without id are numbered in their order.
    Import {
        /// The directory; it is made if it is not there
        dir: PathBuf,
    },
}

pub(crate) fn run(args: &StoreArgs) -> Result<(), Failure> {
    match &args.command {
        StoreCommand::Check { dir, json } => match offline::check(dir).map_err(Failure::Failed)? {
            Checked::Sound(contents) if *json => crate::print_json(&in_json(&contents)),
            Checked::Sound(contents) => crate::print(&format!("ok\n{}", summary(&contents))),
            Checked::Damaged(damages) => {
                if *json {
                    let damages: Vec<_> = damages.iter().map(ToString::to_string).collect();
                    crate::print_json(&json!({ "ok": false, "damages": damages }))?;
                } else {
                    crate::print(&lines(&damages))?;
                }
                let dir = dir.display();
                Err(Failure::Failed(format!(
                    "the store is damaged: a server does not start with it; `stentor store repair \
                     {dir}` keeps everything else"
                )))
            }
        },
        StoreCommand::Repair { dir } => {
            let (damages, left) = offline::repair(dir).map_err(Failure::Failed)?;
            let begin = match damages.is_empty() {
                true => "nothing is damaged: the store stays as it was\n".to_owned(),
                false => format!(
                    "{}repaired: the damaged files are kept under names that begin with \
                     damaged-\n",
                    lines(&damages)
                ),
            };
            crate::print(&(begin + &summary(&left)))
        }
        StoreCommand::Backup { dir, target } => {
            let copy = offline::backup(dir, target).map_err(Failure::Failed)?;
            crate::print(&format!("copied to {}\n{}", target.display(), summary(&copy)))
        }
        StoreCommand::Export { dir } => {
            let export = offline::export(dir).map_err(Failure::Failed)?;
            crate::written(export.write(&mut BufWriter::new(stdout().lock())))
        }
        StoreCommand::Import { dir } => {
            let made = offline::import(dir, &mut stdin().lock()).map_err(Failure::Failed)?;
            crate::print(&format!("imported into {}\n{}", dir.display(), summary(&made)))
        }
    }
}

fn lines<T: ToString>(items: &[T]) -> String {
    items.iter().map(|item| item.to_string() + "\n").collect()
}

fn in_json(contents: &Contents) -> Value {
    let Contents { epoch, topics, last, bytes, was_closed, torn } = contents;
    let torn = torn.as_ref().map(|(file, offset)| json!({ "file": file, "offset": offset }));
    json!({
        "ok": true,
        "topics": topics,
        "epoch": epoch.to_string(),
        "last": last.to_string(),
        "bytes": bytes,
        "closed": was_closed,
        "torn": torn,
    })
}

fn summary(contents: &Contents) -> String {
    let Contents { epoch, topics, last, bytes, was_closed, torn } = contents;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<7} {value}");
    };
    line("topics", topics.to_string());
    line("epoch", epoch.to_string());
    line("last", last.to_string());
    line("bytes", bytes.to_string());
    line("closed", if *was_closed { "yes" } else { "no: a crash, or a kill" }.to_owned());
    if let Some((file, offset)) = torn {
        line(
            "torn",
            format!("{file} at offset {offset}: a message that was promised to nobody is left out"),
        );
    }
    text
}

const EXAMPLES: &str = "\
Examples:
  stentor store check /var/lib/stentor            what is in it, or what is damaged
  stentor store repair /var/lib/stentor           keep everything that verifies
  stentor store backup /var/lib/stentor /backup/today
  stentor store export /var/lib/stentor | gzip > values.jsonl.gz
  gzip -dc values.jsonl.gz | stentor store import /var/lib/stentor.new";
