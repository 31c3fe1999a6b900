//! `stentor man`: the pages of the manual. Only `cargo xtask dist` has it built, by the feature
//! `man`: what is shipped brings the pages, and not what makes them.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::Failure;
use crate::args::Cli;

/// Write a page of the manual for each command
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory that the pages are written to
    directory: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    // Every command has a page of its own; one on `help` would be of no help.
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.directory)
        .map_err(|error| Failure::Failed(format!("{}: {error}", args.directory.display())))
}
