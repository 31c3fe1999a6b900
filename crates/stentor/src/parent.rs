//! `stentor parent`: the program that the first process of a server becomes after it has handed the
//! server over, where its supervisor waits for its end. It is not meant to be started by hand.
//!
//! It takes the place of the server's program in the same process, so that nothing of that is left
//! in memory, and is the program of that time: the one that is there now may be older and know
//! nothing of this.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use stentor_io::{Children, Line, reap, send_signal};
use stentor_server::event_log;

use crate::local::LocalCommands;
use crate::{Failure, say};

/// Wait for the end of a server that this process was before
#[derive(Args, Debug)]
pub(crate) struct ParentArgs {
    /// The process that runs it
    #[arg(long, value_name = "PROCESS")]
    server: u32,
    /// The file by which others say that they have taken over
    #[arg(long, value_name = "NUMBER")]
    line: i32,
}

/// Becomes that, with nothing left of what this process was. Signals are held.
pub(crate) fn become_parent(line: Line, server: u32) -> Result<(), Failure> {
    let failed =
        |error| Failure::Failed(format!("the first process cannot wait for the server: {error}"));
    let number = line.pass_on().map_err(failed)?;
    let mut program = Command::new("/proc/self/exe");
    program.arg0(env::args_os().next().unwrap_or_default()).arg("parent");
    program.args(["--server", &server.to_string(), "--line", &number.to_string()]);
    event_log::flush();
    let error = program.exec();
    say::warning(format!(
        "the first process keeps its memory, for it cannot be another program: {error}"
    ));
    wait(server, Line::passed_on(number).map_err(failed)?)
}

pub(crate) fn run(args: &ParentArgs) -> Result<(), Failure> {
    let line = Line::passed_on(args.line).map_err(|error| {
        Failure::Usage(format!("only a server that is upgraded starts this: {error}"))
    })?;
    wait(args.server, line)
}

/// Passes signals on until the server has ended, and ends as that.
fn wait(mut server: u32, mut line: Line) -> Result<(), Failure> {
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD]);
    let mut signals =
        signals.map_err(|error| Failure::Failed(format!("cannot listen to signals: {error}")))?;
    let commands = LocalCommands::listen();
    stentor_io::release_signals();
    let mut code = None;
    loop {
        // Whoever ends has been taken over from before.
        server = line.heard().unwrap_or(server);
        let has_children = loop {
            let (process, how) = match reap() {
                Children::Ended { process, code } => (process, code),
                Children::Running => break true,
                Children::None => break false,
            };
            server = line.heard().unwrap_or(server);
            if process == server {
                code = Some(how);
            }
        };
        match code {
            Some(0) => return Ok(()),
            Some(code) => return Err(Failure::Ended(code)),
            // It has ended, and nobody knows how.
            None if !has_children => return Err(Failure::Ended(1)),
            None => {}
        }
        for signal in signals.wait() {
            server = line.heard().unwrap_or(server);
            if signal != SIGCHLD && !commands.lead_to(server, signal) {
                // If it has just ended, that comes next.
                let _ = send_signal(server, signal);
            }
        }
    }
}
