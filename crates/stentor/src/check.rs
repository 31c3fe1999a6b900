//! `stentor check`: whether a configuration is good, and what it comes to.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use stentor_config::{LogFormat, Settings};
use stentor_io::unix_s;
use stentor_process::inspect;
use stentor_server::cost::{Account, Row, accounts};
use stentor_tls_layer::ShownCertificate;
use tracing::Level;

use crate::args::usage;
use crate::{Failure, say};

/// Check a configuration file without starting anything
///
/// Prints what the file comes to, with the defaults for what it leaves out. The environment is
/// not looked at. Exit code 2 if the file is wrong; the error names the line and column.
///
/// The check reads the files that a start reads: certificates, with their names and the days they
/// have left, keys of tokens, and the files of followers and of nodes of a cluster. A file without
/// which a start would fail is exit code 2 too. A directory, a user or an access log that cannot be
/// used here is a warning. With --offline nothing of this is looked at, for a configuration that is
/// made for another host.
///
/// With --cost also what answers, look-up lines, events and WebSocket frames consist of under this
/// file, byte by byte, and what each part costs: docs/cost.md says how to read it.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML)
    file: PathBuf,
    /// Look at no file or directory that the configuration names
    #[arg(long)]
    offline: bool,
    /// Print JSON: whether the file is good, what it comes to, or its mistakes
    #[arg(short, long)]
    json: bool,
    /// Show what every byte that is sent is for, in Mbit/s and GB a month
    #[arg(long)]
    cost: bool,
    /// How many of each are sent a second, for --cost
    #[arg(long, value_name = "N", requires = "cost", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: u64,
    /// Bytes of a value, for --cost
    #[arg(long, value_name = "N", requires = "cost", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(..=MIB))]
    bytes: u64,
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let found = found(args);
    match &found {
        _ if !args.json => {}
        Ok(found) => crate::print_json(&found.json())?,
        Err(failure) => crate::print_json(&json!({ "ok": false, "errors": mistakes(failure) }))?,
    }
    let found = found?;
    if args.json {
        return Ok(());
    }
    found.warnings.iter().for_each(say::warning);
    let mut text = summary(&found.settings, &found.certificates);
    if let Some(accounts) = &found.accounts {
        text += &costs(accounts, args.rate, args.bytes);
    }
    crate::print(&text)
}

/// A configuration that is good.
struct CheckResult {
    settings: Settings,
    warnings: Vec<String>,
    certificates: Vec<ShownCertificate>,
    accounts: Option<Vec<Account>>,
}

fn found(args: &CheckArgs) -> Result<CheckResult, Failure> {
    let settings = Settings::load(Some(&args.file), [("", ""); 0])?;
    settings.validate().map_err(|errors| errors.within(&args.file.display().to_string()))?;
    let (mut warnings, mut certificates) = (Vec::new(), Vec::new());
    if !args.offline {
        let found = inspect(&settings, unix_s()).map_err(|errors| usage(errors.join("\n")))?;
        (warnings, certificates) = (found.warnings, found.certificates);
    }
    let bytes = usize::try_from(args.bytes).unwrap_or(usize::MAX);
    let accounts = args.cost.then(|| accounts(&settings, bytes)).transpose();
    let accounts =
        accounts.map_err(|error| Failure::Failed(format!("nothing can be shown: {error}")))?;
    Ok(CheckResult { settings, warnings, certificates, accounts })
}

impl CheckResult {
    fn json(&self) -> Value {
        let row = |(name, value)| json!({ "name": name, "value": value });
        let rows: Vec<_> = rows(&self.settings, &self.certificates).into_iter().map(row).collect();
        let mut all = json!({ "ok": true, "settings": rows, "warnings": self.warnings });
        if let Some(accounts) = &self.accounts {
            let row = |row: &Row| json!({ "label": row.label, "bytes": row.bytes });
            let account = |account: &Account| {
                let rows: Vec<_> = account.rows.iter().map(row).collect();
                json!({ "title": account.title, "rows": rows })
            };
            all["cost"] = accounts.iter().map(account).collect();
        }
        all
    }
}

/// The mistakes of a configuration: where each is, if that is known, and what is wrong.
fn mistakes(failure: &Failure) -> Vec<Value> {
    match failure {
        Failure::Configuration(errors) => errors
            .places()
            .map(|(place, message)| json!({ "place": place, "message": message }))
            .collect(),
        other => vec![json!({ "message": other.to_string() })],
    }
}

/// A table for each account: bytes, their share, and what they cost at that rate.
fn costs(accounts: &[Account], rate: u64, bytes: u64) -> String {
    let mut text = format!(
        "\nWhat it costs: values of {bytes} bytes, {rate} of each kind a second.\n\
         1 Mbit/s is 1,000,000 bits a second, 1 GB is 1,000,000,000 bytes, a month has 30 days.\n\
         TCP, IP and Ethernet are not in it: 66 bytes more for each packet, which holds up to \
         1,448.\n"
    );
    for account in accounts {
        let all = account.bytes();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\n{}\n  {:<LABEL_WIDTH$} {:>7} {:>6} {:>9} {:>10}",
            account.title, "", "bytes", "%", "Mbit/s", "GB/month"
        );
        let mut line = |label: &str, bytes: usize| {
            let a_second = bytes as f64 * rate as f64;
            let _ = writeln!(
                text,
                "  {:<LABEL_WIDTH$} {bytes:>7} {:>6.1} {:>9.2} {:>10.1}",
                shortened(label),
                bytes as f64 * 100.0 / all.max(1) as f64,
                a_second * 8.0 / 1e6,
                a_second * SECONDS_A_MONTH / 1e9,
            );
        };
        account.rows.iter().for_each(|row| line(&row.label, row.bytes));
        line("all", all);
    }
    text
}

/// As much of a label as there is room for.
fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL_WIDTH {
        return label.to_owned();
    }
    let mut short: String = label.chars().take(LABEL_WIDTH - 1).collect();
    short.push('…');
    short
}

const LABEL_WIDTH: usize = 47;

const SECONDS_A_MONTH: f64 = 30.0 * 86_400.0;

const MIB: u64 = 1 << 20;

/// "ok", and a line for each thing of note.
fn summary(settings: &Settings, certificates: &[ShownCertificate]) -> String {
    let mut text = String::from("ok\n");
    for (name, value) in rows(settings, certificates) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<9} {value}");
    }
    text
}

/// Names and values of what is of note; a name may be there several times.
fn rows(settings: &Settings, certificates: &[ShownCertificate]) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let mut line = |name: &'static str, value: String| rows.push((name, value));
    let secure = |is_tls| if is_tls { "tls:" } else { "" };
    let listen = settings.listen.iter();
    let listen: Vec<_> =
        listen.map(|one| format!("{}{}", secure(settings.is_tls(one)), one.address)).collect();
    line("listen", join(&listen));
    let control = settings.control.iter();
    let control: Vec<_> =
        control.map(|one| format!("{}{}", secure(one.tls), one.address)).collect();
    line("control", join(&control));
    if !settings.monitor.is_empty() {
        line("monitor", join(&settings.monitor));
    }
    for shown in certificates {
        line("tls", shown.to_string());
    }
    if !settings.redirect.is_empty() {
        line("redirect", join(&settings.redirect));
    }
    line("workers", settings.workers.to_string());
    if let Some(user) = &settings.user {
        line("user", user.clone());
    }
    let (level, format) = (settings.log.level, settings.log.format);
    if (level, format) != (Level::INFO, LogFormat::Text) {
        let form = if format == LogFormat::Json { "JSON" } else { "text" };
        line("log", format!("{} in {form}", level.as_str().to_ascii_lowercase()));
    }
    if let Some(target) = &settings.log.access {
        let (format, one_of) = (settings.log.access_format.name(), settings.log.access_sample);
        let sample = if one_of == 1 { String::new() } else { format!(", 1 of {one_of}") };
        line("access", format!("to {target}, {format}{sample}"));
    }
    if !settings.cors.origins.is_empty() {
        line("cors", join(&settings.cors.origins));
    }
    order(settings, &mut line);
    access(settings, &mut line);
    line(
        "topics",
        match settings.topics.len() {
            0 => "default rule".to_owned(),
            1 => "1 rule".to_owned(),
            many => format!("{many} rules"),
        },
    );
    for lookup in &settings.lookups {
        let form = if lookup.line.is_some() { "lines" } else { "JSON" };
        line("lookup", format!("{} in {form}", lookup.path));
    }
    for mount in &settings.mounts {
        line("static", format!("{} from {}", mount.path, mount.root.display()));
    }
    rows
}

/// Where messages come from and stay: the store, the leader, the broker.
fn order(settings: &Settings, line: &mut impl FnMut(&'static str, String)) {
    if let Some(path) = &settings.store.path {
        line("store", path.display().to_string());
    }
    let follow = &settings.follow;
    if !follow.leaders.is_empty() {
        let topics: Vec<_> = follow.topics.iter().map(|topic| topic.as_str()).collect();
        let of = if topics.is_empty() { String::new() } else { format!(": {}", join(&topics)) };
        line("follow", format!("{}{of}", join(&follow.leaders)));
    }
    let cluster = &settings.cluster;
    if !cluster.nats.is_empty() {
        let peers = match cluster.peers.as_slice() {
            [] => String::new(),
            peers => format!(", peers {}", join(peers)),
        };
        line("cluster", format!("{} at {}{peers}", cluster.stream.as_str(), join(&cluster.nats)));
    }
}

/// Which tokens are good: those of the configuration by their names, and the keys that sign others.
fn access(settings: &Settings, line: &mut impl FnMut(&'static str, String)) {
    let tokens: Vec<_> = settings.tokens.tokens.iter().map(|token| token.name.as_str()).collect();
    if !tokens.is_empty() {
        line("tokens", join(&tokens));
    }
    let jwt = &settings.tokens.jwt;
    let files = [&jwt.secret_files, &jwt.public_key_files, &jwt.jwks_files];
    let mut keys: Vec<_> =
        files.into_iter().flatten().map(|file| file.display().to_string()).collect();
    keys.extend(jwt.jwks_urls.iter().map(ToString::to_string));
    if !jwt.public_keys.is_empty() {
        keys.push(format!("{} in the configuration", jwt.public_keys.len()));
    }
    if !keys.is_empty() {
        line("jwt", format!("keys of {}", join(&keys)));
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary() {
        let text = "listen = '127.0.0.1:80'\nworkers = 2\nuser = 'www'\n[log]\nlevel = 'debug'\n\
                    access = './access.log'\naccess_sample = 9\n\
                    [[topics]]\nmatch = '/a'\n[[lookup]]\n\
                    path = '/list='\ntopics = '/{name}'\nline = '{value}'\n\
                    [[static]]\nroot = '/srv/www'\n[[static]]\npath = '/docs'\nroot = 'docs'";
        let settings = Settings::from_toml(text, "f").unwrap();
        assert_eq!(
            summary(&settings, &[]),
            "ok\n  listen    127.0.0.1:80\n  control   127.0.0.1:8081\n  workers   2\n  \
             user      www\n  log       debug in text\n  \
             access    to ./access.log, combined, 1 of 9\n  topics    1 rule\n  \
             lookup    /list= in lines\n  static    / from /srv/www\n  static    /docs/ from docs\n"
        );
    }

    #[test]
    fn a_summary_of_where_messages_are_and_who_may_do_what() {
        let of = |text: &str| {
            let summary = summary(&Settings::from_toml(text, "f").unwrap(), &[]);
            let is_of_these = |line: &&str| {
                let name = line.split_ascii_whitespace().next().unwrap_or_default();
                ["monitor", "store", "follow", "cluster", "tokens", "jwt"].contains(&name)
            };
            let lines = summary.lines().filter(is_of_these).map(str::trim_start);
            lines.collect::<Vec<_>>().join("\n")
        };
        let hash = "0".repeat(64);
        let text = format!(
            "[monitor]\nlisten = '127.0.0.1:9100'\n[store]\npath = '/data'\n\
             [[token]]\nname = 'a'\nread = '/a'\nsha256 = '{hash}'\n\
             [jwt]\nsecret_file = '/s'\njwks_url = 'https://a.example/keys'"
        );
        assert_eq!(
            of(&text),
            "monitor   127.0.0.1:9100\nstore     /data\ntokens    a\n\
             jwt       keys of /s, https://a.example/keys"
        );
        let follow = "[follow]\nleader = 'http://a:8081'\ntopics = '/a/*'";
        assert_eq!(of(follow), "follow    http://a:8081: /a/*");
        let cluster = "[cluster]\nnats = 'nats://n:4222'\npeers = 'http://b:8081'";
        assert_eq!(of(cluster), "cluster   stentor at nats://n:4222, peers http://b:8081");
        assert_eq!(of(""), "");
    }

    #[test]
    fn a_summary_with_certificates() {
        let text = "listen = ['tls:0.0.0.0:443', '127.0.0.1:80']\nredirect = '0.0.0.0:80'\n\
                    control = 'tls:127.0.0.1:8081'\ntls_cert = 'c'\ntls_key = 'k'\nworkers = 1";
        let shown = ShownCertificate {
            file: "c".to_owned(),
            names: vec!["a.example".to_owned(), "*.b.example".to_owned()],
            key: "ecdsa",
            expires_unix_s: 0,
            days_left: 83,
        };
        let settings = Settings::from_toml(text, "f").unwrap();
        assert_eq!(
            summary(&settings, &[shown]),
            "ok\n  listen    tls:0.0.0.0:443, 127.0.0.1:80\n  control   tls:127.0.0.1:8081\n  \
             tls       c for a.example, *.b.example (ecdsa): 83 days left\n  \
             redirect  0.0.0.0:80\n  workers   1\n  topics    default rule\n"
        );
    }

    #[test]
    fn what_a_byte_costs() {
        let row = |label: &str, bytes| Row { label: label.to_owned(), bytes };
        let rows = vec![row("hq_str_", 7), row(&"x".repeat(60), 93)];
        let account = Account { title: "a line".to_owned(), rows };
        // The finance pages: 7 bytes a line cost 106.8 Mbit/s, that is with 1.9 million lines.
        let text = costs(&[account], 1_907_143, 93);
        let lines: Vec<&str> = text.lines().skip(5).collect();
        let title = format!("  {:47}   bytes      %    Mbit/s   GB/month", "");
        assert_eq!(lines[..2], ["a line", &title]);
        assert_eq!(lines[2], format!("  {:47}       7    7.0    106.80    34603.2", "hq_str_"));
        let long = format!("{}…", "x".repeat(46));
        assert_eq!(lines[3], format!("  {long}      93   93.0   1418.91   459728.3"));
        assert!(lines[4].starts_with("  all  ") && lines.len() == 5, "{text}");
    }
}
