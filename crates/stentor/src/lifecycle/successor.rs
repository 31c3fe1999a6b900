//! The program of this process, and the process that takes over from it.

use std::cell::RefCell;
use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use signal_hook::consts::{SIGHUP, SIGUSR2};
use stentor_io::{Line, Outcome, WaitingParent};
use stentor_process::Server;
use tracing::{error, info};

use super::{Signals, has_to_stay};
use crate::local::{self, LocalCommands};
use crate::{Failure, parent};

/// The program that this process was started by, as it is there now: found once, at the start.
pub(crate) struct Program(PathBuf);

impl Program {
    /// Not `/proc/self/exe`: behind an upgrade of the package that is the old program, which has no
    /// name any more.
    pub(crate) fn find() -> Program {
        let name = env::args_os().next().unwrap_or_default();
        let path = if Path::new(&name).components().count() > 1 {
            std::path::absolute(&name).ok()
        } else {
            let dirs = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&dirs).map(|dir| dir.join(&name)).find(|path| path.is_file())
        };
        Program(path.or_else(|| env::current_exe().ok()).unwrap_or_default())
    }

    /// Hands the server over to another process of it, with the arguments of this one. Returns that
    /// one once it serves. If `None`, this one continues as if nothing had happened. Commands that
    /// wait hear the outcome. `parent` is the first process, if that is another one.
    pub(crate) fn upgrade(
        &self,
        server: &Server,
        parent: Option<&mut WaitingParent>,
        signals: &mut Signals,
        commands: &LocalCommands,
    ) -> Option<Successor> {
        let (waiting, own) = (commands.upgrades(), process::id());
        match self.try_to_upgrade(server, parent.as_deref(), signals) {
            Ok(successor) => {
                let sentence = format!("upgraded: process {own} -> {}", successor.process);
                local::tell(&waiting, &Outcome::Done(sentence));
                Some(successor)
            }
            Err(reason) => {
                error!("not upgraded, this process goes on: {reason}");
                let sentence = format!("not upgraded, process {own} goes on: {reason}");
                local::tell(&waiting, &Outcome::Failed(sentence));
                // The other process may have told it that it serves.
                if let Some(Err(error)) = parent.map(WaitingParent::tell) {
                    error!("the first process may send signals to no server: {error}");
                }
                None
            }
        }
    }

    fn try_to_upgrade(
        &self,
        server: &Server,
        parent: Option<&WaitingParent>,
        signals: &mut Signals,
    ) -> Result<Successor, String> {
        let stays = parent.is_none() && has_to_stay();
        let line = stays.then(|| stentor_io::adopt_orphans().and_then(|()| Line::new()));
        let line = line.transpose().map_err(|error| {
            let reason = format!("the next process could not be waited for: {error}");
            server.fail_upgrade(&reason);
            reason
        })?;
        let (line, own_end) = line.unzip();
        info!("upgrading: {} is started and takes over", self.0.display());
        let mut program = Command::new(&self.0);
        program.args(env::args_os().skip(1)).env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
        if stays {
            // What a terminal sends it sends to all of a group, and this process passes it on.
            program.process_group(0);
        }
        let signals = RefCell::new(signals);
        let parent = parent.or(own_end.as_ref());
        let next = server.hand_over(&mut program, parent, &|| signals.borrow_mut().is_to_stop())?;
        let then = if stays { "waits for its end" } else { "ends" };
        info!("process {next} has taken over, and this one {then}, process {}", process::id());
        Ok(Successor { process: next, line })
    }
}

/// The process that has taken over from this one.
pub(crate) struct Successor {
    process: u32,
    /// The socket by which this process learns of later successors, if it stays.
    line: Option<Line>,
}

impl Successor {
    /// Passes on what this process was still asked for, and ends, or waits for the end of that one
    /// if it has to stay.
    pub(crate) fn leave_to(
        self,
        ended: Result<(), String>,
        mut signals: Signals,
        commands: LocalCommands,
    ) -> Result<(), Failure> {
        stentor_io::hold_signals();
        for signal in [SIGHUP, SIGUSR2] {
            commands.lead_to(self.process, signal);
        }
        for signal in signals.missed() {
            let _ = stentor_io::send_signal(self.process, signal);
        }
        drop(commands);
        let Some(line) = self.line else { return ended.map_err(Failure::Failed) };
        if let Err(reason) = ended {
            error!("{reason}");
        }
        parent::become_parent(line, self.process)
    }
}
