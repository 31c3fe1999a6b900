//! `stentor serve`: runs the server until it is told to stop.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sd_notify::NotifyState;
use stentor_config::{ControlAddress, Mount, Settings, parse_user};
use stentor_io::Outcome;
use stentor_process::Server;
use stentor_server::{CONTROL, PUBLIC, REDIRECT};
use tracing::{error, info, warn};

use crate::args::ServerFlags;
use crate::lifecycle::{self, Log, Program, Signals, Told};
use crate::local::{self, LocalCommands};
use crate::watchdog::Watchdog;
use crate::{Failure, reload};

/// Run the server
///
/// SIGTERM and SIGINT stop it gracefully: no new connections, what was asked is answered, and it
/// ends within the drain time; a second one ends it at once. SIGHUP reads the configuration again,
/// SIGUSR1 opens the access log again, SIGUSR2 hands everything over to another process of the
/// program as it is now.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(short, long, value_name = "FILE", env = "STENTOR_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerFlags,
    /// Bind each worker to one core
    #[arg(long, help_heading = "Server")]
    pin: bool,
    /// User to become once the ports are bound, if started as root or with capabilities
    #[arg(long, value_name = "NAME", value_parser = parse_user, help_heading = "Server")]
    user: Option<String>,
    /// Directory whose files are served where no topic answers
    #[arg(long, value_name = "DIR", env = "STENTOR_ROOT", help_heading = "Server")]
    root: Option<PathBuf>,
    /// Warn at the start if the host cannot hold so many connections
    #[cfg(feature = "tune")]
    #[arg(long, value_name = "N", help_heading = "Server",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    expect: Option<u64>,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let program = Program::find();
    // It forks, which takes that there is no other thread yet.
    let predecessor = lifecycle::predecessor()?;
    lifecycle::start_log()?;
    let settings = args.settings_within(&mut || false).inspect_err(|failure| {
        predecessor.iter().for_each(|predecessor| predecessor.refuse(&in_one_line(failure)));
    })?;
    let log = Log::to_stderr(settings.log.level, settings.log.format);
    let mut signals = Signals::register()?;
    // Before the start: the server's own threads and memory must not count twice.
    #[cfg(feature = "tune")]
    if let Some(connections) = args.expect
        && let Some(warning) = crate::tune::warning(connections, settings.workers)
    {
        warn!("{warning}");
    }
    let user = settings.user.clone();
    if stentor_io::is_root() && user.is_none() {
        warn!(
            "running as root, which nothing here needs once ports are bound: name a user to \
             become (--user), or run it as one (docs/operating.md has a systemd unit)"
        );
    }
    let asks_for = (settings.access.control_token, settings.tls.control_client_ca.is_some());
    let takes_over = predecessor.is_some();
    let (mut server, mut parent) = match predecessor {
        Some(predecessor) => lifecycle::take_over(settings, predecessor)?,
        None => (lifecycle::start(settings)?, None),
    };
    let commands = LocalCommands::listen();
    server.begin_upgrades_by(lifecycle::ask_for_upgrade);
    server.begin_reloads_by(lifecycle::ask_for_reload);
    if let Some(user) = user {
        info!("running as user '{user}', without privileges");
        args.check_readable(&user);
    }
    tell_listeners(&server, asks_for);
    let workers = server.workers();
    info!("ready: {workers} {}", if workers == 1 { "worker" } else { "workers" });
    let watchdog = Watchdog::begin();
    if !takes_over {
        lifecycle::notify(&[NotifyState::Ready]);
    }
    lifecycle::share_end(parent.as_mut());
    loop {
        match signals.wait() {
            Told::Upgrade => {
                let parent = parent.as_mut();
                if let Some(successor) = program.upgrade(&server, parent, &mut signals, &commands) {
                    drop(watchdog);
                    return successor.leave_to(server.wait(), signals, commands);
                }
            }
            Told::Stop => return lifecycle::stop(server, signals),
            Told::Reopen => lifecycle::reopen(server.log_files().as_ref()),
            Told::Reload => {
                // Which moment it was tells the supervisor that this is the reload it asked for.
                if let Ok(now) = NotifyState::monotonic_usec_now() {
                    lifecycle::notify(&[NotifyState::Reloading, now]);
                }
                let waiting = commands.reloads();
                let mut gives_up = || signals.is_to_stop();
                let outcome = read_again(args, &mut server, &log, &mut gives_up);
                local::tell(&waiting, &outcome);
                lifecycle::notify(&[NotifyState::Ready]);
            }
        }
    }
}

/// Logs where the server listens. `asks_for`: whether operators need a token, and a certificate
/// where there is TLS.
fn tell_listeners(server: &Server, asks_for: (bool, bool)) {
    let (token, certificate) = asks_for;
    for listener in server.listeners() {
        let address = &listener.address;
        match listener.kind() {
            PUBLIC => info!("public listener at {}", listener.url()),
            REDIRECT => info!("redirect listener at {}", listener.url()),
            CONTROL => {
                let tls = if listener.is_tls() { "tls:" } else { "" };
                info!("control listener at {tls}{address}");
                let asks = token || certificate && listener.is_tls();
                if let ControlAddress::Tcp(tcp) = address
                    && !(asks || tcp.ip().is_loopback())
                {
                    warn!("whoever can reach {tcp} can publish");
                }
            }
            _ => info!("monitor listener at {address}"),
        }
    }
}

impl ServeArgs {
    /// From all sources.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = self.server.settings(self.config.as_deref())?;
        settings.pin |= self.pin;
        if self.user.is_some() {
            settings.user.clone_from(&self.user);
        }
        if let Some(root) = &self.root {
            let mount = Mount::new("/", root);
            settings.mounts.retain(|other| other.path != mount.path);
            settings.mounts.push(mount);
        }
        Ok(settings)
    }

    /// The same, as long as file systems answer, and until `gives_up` returns true.
    fn settings_within(&self, gives_up: &mut dyn FnMut() -> bool) -> Result<Settings, Failure> {
        let args = self.clone();
        let read = stentor_io::within(READ_TIMEOUT, gives_up, move || args.settings());
        read.map_err(|error| Failure::Failed(error.to_string()))?
    }

    /// What root could read at the start, its successor must be able to read at a reload.
    fn check_readable(&self, user: &str) {
        if let Some(file) = &self.config
            && let Err(error) = File::open(file)
        {
            let file = file.display();
            warn!("user '{user}' cannot read {file}, so a reload will be refused: {error}");
        }
    }
}

/// A failure as one line of the log. `stentor check` shows the excerpts.
fn in_one_line(failure: &Failure) -> String {
    match failure {
        Failure::Configuration(errors) => errors.in_one_line(),
        failure => failure.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// Goes by the file as it is now; by the old settings if that is no good.
fn read_again(
    args: &ServeArgs,
    server: &mut Server,
    log: &Log,
    gives_up: &mut dyn FnMut() -> bool,
) -> Outcome {
    let settings = args.settings_within(gives_up).map_err(|failure| in_one_line(&failure));
    let reloaded = settings.and_then(|settings| {
        let level = settings.log.level;
        let need_restart = server.reload(settings, gives_up).map_err(|error| error.to_string())?;
        log.set_level(level);
        Ok(need_restart)
    });
    server.reloaded(&reloaded);
    match reloaded {
        Err(reason) => {
            let sentence = reload::not_reloaded(&reason);
            error!("{sentence}");
            Outcome::Failed(sentence)
        }
        Ok(need_restart) => {
            let sentence = reload::reloaded(&need_restart);
            match need_restart.is_empty() {
                true => info!("{sentence}"),
                false => warn!("{sentence}"),
            }
            Outcome::Done(sentence)
        }
    }
}

/// How long the configuration may take to be read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "\
Examples:
  stentor serve
  stentor serve -c /etc/stentor/stentor.toml --listen 0.0.0.0:80 --control unix:/run/stentor.sock
  stentor serve --listen 0.0.0.0:443 --tls-cert fullchain.pem --tls-key privkey.pem
  stentor serve --listen 0.0.0.0:80 --user www  bind as root, then run as another user
  stentor serve --root /srv/www                 files too, where no topic answers
  kill -HUP $(pidof stentor)                    read the configuration again
  kill -USR1 $(pidof stentor)                   open the access log again, once it was renamed";

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_root_replaces_what_the_file_mounts_there_and_nothing_else() {
        let file = std::env::temp_dir().join(format!("stentor-root-{}.toml", std::process::id()));
        let text = "[[static]]\nroot = '/old'\nfallback = 'index.html'\n\
                    [[static]]\npath = '/docs'\nroot = '/docs'";
        fs::write(&file, text).unwrap();
        let mounts = |flags: &[&str]| {
            let line = [&["stentor", "serve", "-c", file.to_str().unwrap()][..], flags].concat();
            let Command::Serve(args) = Cli::try_parse_from(line).unwrap().command else {
                panic!("not serve")
            };
            args.settings().unwrap().mounts
        };
        let docs = Mount::new("/docs", "/docs");
        let fallback = Some("index.html".to_owned());
        assert_eq!(mounts(&[]), [Mount { fallback, ..Mount::new("/", "/old") }, docs.clone()]);
        assert_eq!(mounts(&["--root", "/new"]), [docs, Mount::new("/", "/new")]);
        fs::remove_file(&file).unwrap();
    }
}
