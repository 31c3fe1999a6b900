//! The command line: the list of commands, and how settings are put together from all sources.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ColorChoice, Parser, Subcommand};
use stentor_config::{ControlAddress, ListenAddress, ServerUrl, Settings, parse_address};

use crate::{
    Failure, check, completions, config, demo, parent, publish, reload, serve, status, store,
    subscribe, token, upgrade,
};

/// Publish once; every reader hears it.
///
/// An HTTP server for values that change while many people watch: PUT a value at a path, and
/// readers get it at the same path.
#[derive(Debug, Parser)]
#[command(
    name = "stentor",
    version,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: ColorChoice,
}

/// Every command, in the order of `--help`; what it says of each stands with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::ServeArgs),
    Demo(demo::DemoArgs),
    Pub(publish::PubArgs),
    Sub(subscribe::SubArgs),
    Status(status::StatusArgs),
    Reload(reload::ReloadArgs),
    Upgrade(upgrade::UpgradeArgs),
    #[cfg(feature = "bench")]
    Bench(crate::bench::BenchArgs),
    #[cfg(feature = "tune")]
    Tune(crate::tune::TuneArgs),
    Check(check::CheckArgs),
    #[command(after_help = config::EXAMPLES)]
    Config(config::ConfigArgs),
    Store(store::StoreArgs),
    Token(token::TokenArgs),
    Completions(completions::CompletionsArgs),
    /// Print the version, and what it was built from: for reports of faults
    Version,
    #[command(hide = true)]
    Parent(parent::ParentArgs),
    #[cfg(feature = "man")]
    #[command(hide = true)]
    Man(crate::man::ManArgs),
}

/// Flags of every command that runs a server. A flag replaces what the other sources say.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Address of the public listener, which only reads: IP:PORT, or tls:IP:PORT beside others that
    /// are not for TLS; with proxy: in front for proxies that speak the PROXY protocol; may be
    /// repeated [default: 0.0.0.0:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<ListenAddress<SocketAddr>>,
    /// Address of the control listener, which publishes: IP:PORT, tls:IP:PORT or unix:PATH; may be
    /// repeated [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS")]
    control: Vec<ListenAddress<ControlAddress>>,
    /// Address of the monitor listener, which says how the server is: IP:PORT or unix:PATH; may be
    /// repeated
    #[arg(long, value_name = "ADDRESS")]
    monitor: Vec<ControlAddress>,
    /// Certificate with its chain, in PEM: the public listener then speaks TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Address that leads everybody to https; may be repeated
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address)]
    redirect: Vec<SocketAddr>,
    /// Directory of the store, by which values and history outlive the process
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Control listener of a server to follow: http://HOST:PORT or https://HOST:PORT; may be
    /// repeated, for those that are to be tried in turn
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    follow: Vec<String>,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    workers: Option<u16>,
}

impl ServerFlags {
    /// Defaults, file, environment, flags: each overrides the one before.
    pub(crate) fn settings(&self, file: Option<&Path>) -> Result<Settings, Failure> {
        let mut settings = Settings::load(file, std::env::vars_os())?;
        if !self.listen.is_empty() {
            settings.listen.clone_from(&self.listen);
        }
        if !self.control.is_empty() {
            settings.control.clone_from(&self.control);
        }
        if !self.monitor.is_empty() {
            settings.monitor.clone_from(&self.monitor);
        }
        if self.tls_cert.is_some() {
            settings.tls.cert.clone_from(&self.tls_cert);
            settings.tls.key.clone_from(&self.tls_key);
            settings.tls.more.clear();
        }
        if !self.redirect.is_empty() {
            settings.redirect.clone_from(&self.redirect);
        }
        if self.data.is_some() {
            settings.store.path.clone_from(&self.data);
        }
        if !self.follow.is_empty() {
            // Read here: the library's error would repeat the text, which may have a password.
            let leaders = self.follow.iter().map(|url| url.parse::<ServerUrl>());
            let leaders = leaders.collect::<Result<_, _>>();
            settings.follow.leaders =
                leaders.map_err(|reason| usage(format!("--follow: {reason}")))?;
        }
        if let Some(workers) = self.workers {
            settings.workers = workers.into();
        }
        settings.validate()?;
        Ok(settings)
    }
}

/// A mistake of whoever configured or called the program.
pub(crate) fn usage(error: impl ToString) -> Failure {
    Failure::Usage(error.to_string())
}

const EXAMPLES: &str = "\
Examples:
  stentor demo                                  watch real prices change in a browser
  stentor serve -c stentor.toml                 run with a configuration
  stentor pub /scores/lal-bos '101:99'          publish a value
  curl http://127.0.0.1:8080/scores/lal-bos     read it
  stentor sub /scores/lal-bos                   follow it
  stentor status                                see how the server is

Every setting can also come from the environment: STENTOR_LISTEN, STENTOR_LIMITS_HEAD_TIMEOUT.
Flags override the environment, which overrides the file.
Exit codes: 0 success, 1 failure, 2 usage or configuration, 130 ended early by Ctrl-C.
After an upgrade, the first process of a container ends with the exit code of the server.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_replace_what_other_sources_say() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        let line =
            "stentor serve --listen 127.0.0.1:1 --listen [::1]:1 --control unix:/s --workers 7";
        let Command::Serve(args) = parse(line).unwrap().command else { panic!("not serve") };
        let settings = args.server.settings(None).unwrap();
        assert_eq!(settings.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()]);
        assert_eq!(settings.control, [ControlAddress::Unix("/s".into()).into()]);
        assert_eq!(settings.workers, 7);
        for bad in [
            "--listen 1",
            "--listen tls:1",
            "--control tls:unix:/s",
            "--tls-cert c.pem",
            "--tls-key k.pem",
            "--control unix:",
            "--workers 0",
            "--workers 4097",
            "--root=",
            "--user=",
            "--nonsense",
        ] {
            let error = parse(&format!("stentor serve {bad}")).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
    }

    #[test]
    fn a_refused_url_is_not_repeated() {
        for url in ["http://me:Tr0ub4dor@a", "Tr0ub4dor", "ftp://Tr0ub4dor"] {
            let flags = ServerFlags { follow: vec![url.to_owned()], ..ServerFlags::default() };
            let Err(Failure::Usage(error)) = flags.settings(None) else { panic!("{url}") };
            assert!(error.starts_with("--follow: ") && !error.contains("Tr0ub4dor"), "{error}");
        }
    }

    #[test]
    fn a_certificate_has_all_public_addresses_speak_tls_and_replaces_others() {
        let of = |flags: &str| {
            let line = format!("stentor serve {flags} --tls-cert c --tls-key k");
            let Command::Serve(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("not serve")
            };
            args.server.settings(None).unwrap()
        };
        let settings = of("--listen 0.0.0.0:443 --listen 0.0.0.0:444 --redirect 0.0.0.0:80");
        assert!(settings.listen.iter().all(|address| settings.is_tls(address)));
        assert_eq!(settings.tls.pairs().len(), 1);
        assert_eq!(settings.redirect, ["0.0.0.0:80".parse().unwrap()]);
        let settings = of("--listen tls:0.0.0.0:443 --listen 127.0.0.1:8080");
        let speak: Vec<_> =
            settings.listen.iter().map(|address| settings.is_tls(address)).collect();
        assert_eq!(speak, [true, false]);
    }

    #[test]
    fn addresses_that_overlap_are_a_mistake_of_the_caller() {
        let flags = ServerFlags {
            listen: vec!["127.0.0.1:8081".parse().unwrap()],
            ..ServerFlags::default()
        };
        assert!(matches!(flags.settings(None), Err(Failure::Configuration(_))));
    }
}
