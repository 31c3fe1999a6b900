//! `stentor completions`: a completion script for the shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Failure;
use crate::args::Cli;

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stentor", &mut script);
    crate::print(&String::from_utf8_lossy(&script))
}

const EXAMPLES: &str = "\
Examples:
  stentor completions bash > ~/.local/share/bash-completion/completions/stentor
  stentor completions zsh > ~/.zfunc/_stentor
  stentor completions fish > ~/.config/fish/completions/stentor.fish";
