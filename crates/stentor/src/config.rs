//! `stentor config`: every setting, with what it would be.

use clap::Args;

use crate::Failure;
use crate::serve::ServeArgs;

/// Print every setting, its default and what is set, without starting anything
///
/// Prints what `serve` would go by with the same flags, file and environment, as TOML. What is at
/// its default stands as a comment, so the output is also a file to begin with.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Print JSON: all settings, also those at their defaults
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    if args.json {
        let document = serde_json::to_value(args.serve.settings()?.to_document());
        let document = document.map_err(|error| Failure::Failed(error.to_string()))?;
        return crate::print_json(&document);
    }
    crate::print(&args.serve.settings()?.to_toml())
}

pub(crate) const EXAMPLES: &str = "\
Examples:
  stentor config                                every setting with its default
  stentor config > stentor.toml                 a file to begin with
  stentor config -c /etc/stentor/stentor.toml   what this file comes to";
