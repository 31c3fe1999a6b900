//! `stentor completions`: a completion script for the shell.

use clap::{Args, Command, CommandFactory};
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
    clap_complete::generate(args.shell, &mut visible(), "stentor", &mut script);
    crate::print(&String::from_utf8_lossy(&script))
}

/// The command line without the commands that the program starts by itself.
fn visible() -> Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("stentor").args(all.get_arguments().cloned()).subcommands(shown)
}

const EXAMPLES: &str = "\
Examples:
  stentor completions bash > ~/.local/share/bash-completion/completions/stentor
  stentor completions zsh > ~/.zfunc/_stentor
  stentor completions fish > ~/.config/fish/completions/stentor.fish";
