//! `stentor token`: makes tokens, and says what one allows.

use std::fmt::Write;
use std::fs;
use std::io::{IsTerminal, Read, Write as _, stderr, stdin};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use stentor_access::{
    Grant, Patterns, PatternsRef, Permissions, Secret, StaticToken, fetch_once, load,
};
use stentor_config::{Settings, date_of, parse_moment, parse_period_s, token_table};
use stentor_http_client::agent;
use stentor_io::read_file;
use stentor_io::unix_s;

use crate::Failure;
use crate::args::usage;

/// Make a token, or say what one allows
///
/// docs/access.md says what tokens are for.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand, Debug)]
enum TokenCommand {
    /// Make a token with a new secret
    ///
    /// Standard output gets the lines that belong in the configuration, which hold only the hash
    /// of the secret. The secret itself is for the holder of the token: it goes to standard error,
    /// this once, and nothing can bring it back.
    New {
        /// What the log calls its holder [default: one from the hash]
        #[arg(long)]
        name: Option<String>,
        /// Topics that it may publish to: a topic or a pattern such as '/scores/**'; may be
        /// repeated
        #[arg(long, value_name = "PATTERN")]
        publish: Vec<String>,
        /// Topics that it may read; may be repeated
        #[arg(long, value_name = "PATTERN")]
        read: Vec<String>,
        /// From when on it is not good any more: a date, a moment such as 2027-12-31T12:00:00Z, or
        /// how long from now on, with a unit, such as 90d [default: never]
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
    },
    /// Say what a token allows under a configuration, or why it is refused
    ///
    /// Keys are read, and fetched, as a server with this configuration would. Exit code 1 if the
    /// token is refused; the reason is for the owner of the server, who tells it on with care.
    Check {
        /// The token; - reads it from standard input, where no list of processes shows it
        #[arg(default_value = "-")]
        token: String,
        /// Configuration file (TOML)
        #[arg(short, long, value_name = "FILE", env = "STENTOR_CONFIG")]
        config: Option<PathBuf>,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
}

pub(crate) fn run(args: &TokenArgs) -> Result<(), Failure> {
    match &args.command {
        TokenCommand::New { name, publish, read, expires } => {
            check_shown()?;
            let secret = Secret::make().map_err(Failure::Failed)?;
            let token = token(&secret, name.as_deref(), publish, read, expires.as_deref())?;
            let lines = token_table(&token);
            // Whatever a configuration would refuse is refused here.
            Settings::from_toml(&lines, "token")?.validate()?;
            crate::print(&lines)?;
            // Alone in a file or a variable, with a word for who looks at it.
            let shown = match stderr().is_terminal() {
                true => format!("\nThe secret, which is shown this once:\n\n{}\n", secret.as_str()),
                false => format!("{}\n", secret.as_str()),
            };
            let written = stderr().write_all(shown.as_bytes());
            written.map_err(|error| Failure::Failed(format!("the secret is lost: {error}")))
        }
        TokenCommand::Check { token, config, json } => check(token, config.as_ref(), *json),
    }
}

/// Checks that standard error shows the secret, since nothing can bring it back. If it was closed,
/// the runtime has opened `/dev/null` in its place.
fn check_shown() -> Result<(), Failure> {
    let device = |path: &str| fs::metadata(path).map(|file| (file.file_type(), file.rdev()));
    match (device("/dev/stderr"), device("/dev/null")) {
        (Ok(stderr), Ok(null)) if stderr == null => Err(Failure::Failed(
            "the secret goes to standard error, which is closed or /dev/null".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn token(
    secret: &Secret,
    name: Option<&str>,
    publish: &[String],
    read: &[String],
    expires: Option<&str>,
) -> Result<StaticToken, Failure> {
    if publish.is_empty() && read.is_empty() {
        return Err(usage("say by --publish and --read what the token is for"));
    }
    let patterns = |texts: &[String]| Patterns::parse(texts.iter().map(String::as_str));
    let permissions = Permissions {
        publish: patterns(publish).map_err(usage)?,
        read: patterns(read).map_err(usage)?,
    };
    let sha256 = secret.sha256();
    let name = match name {
        Some(name) => name.to_owned(),
        None => format!("token-{}", HEXLOWER.encode(&sha256[..4])),
    };
    let expires_unix_s = expires.map(|text| expiry(text, unix_s())).transpose().map_err(usage)?;
    Ok(StaticToken { name, sha256, permissions, expires_unix_s })
}

/// A moment, or a period from now on. A period needs a unit: the author of `2027` means the year,
/// and not 34 minutes.
fn expiry(text: &str, now_unix_s: u64) -> Result<u64, String> {
    let has_unit = !text.bytes().all(|byte| byte.is_ascii_digit());
    // mutation: period-without-unit
    if has_unit && let Ok(period_s) = parse_period_s(text) {
        let moment = now_unix_s.saturating_add(period_s);
        return match moment {
            ..=MOMENT_MAX => Ok(moment),
            _ => Err(format!("--expires: {text} from now on is after the year 9999")),
        };
    }
    let moment = parse_moment(text)
        .map_err(|error| format!("--expires: {error}, or a period such as \"90d\""))?;
    if moment <= now_unix_s {
        return Err(format!("--expires: {text} is over"));
    }
    Ok(moment)
}

fn check(token: &str, config: Option<&PathBuf>, json: bool) -> Result<(), Failure> {
    let settings = Settings::load(config.map(PathBuf::as_path), std::env::vars_os())?;
    settings.validate()?;
    let mut text = String::new();
    let token = match token {
        "-" => {
            let read = stdin().lock().take(TOKEN_INPUT_MAX).read_to_string(&mut text);
            read.map_err(|error| Failure::Failed(format!("standard input: {error}")))?;
            text.trim()
        }
        token => token,
    };
    let fetched = fetch_once(&settings.tokens.jwt, read_file, agent).map_err(Failure::Failed)?;
    let loaded = load(&settings.tokens, &fetched, read_file).map_err(usage)?;
    let now = unix_s();
    match loaded.keys.verify(token, now) {
        Ok(grant) => {
            let holder = loaded.keys.holder(token, now).unwrap_or_default();
            let end = loaded.keys.end_unix_s(&grant.scope, grant.expires_unix_s);
            if json {
                return crate::print_json(&in_json(&grant, end, &holder));
            }
            crate::print(&summary(&grant, end, holder, now))
        }
        Err(refused) => {
            let why = loaded.keys.why(token, now).unwrap_or_else(|| refused.to_string());
            if json {
                crate::print_json(&json!({ "ok": false, "refused": why }))?;
            }
            Err(Failure::Failed(format!("refused: {why}")))
        }
    }
}

fn in_json(grant: &Grant, end_unix_s: Option<u64>, holder: &str) -> Value {
    json!({
        "ok": true,
        "holder": holder,
        "publish": grant.scope.publish().iter().collect::<Vec<_>>(),
        "read": grant.scope.read().iter().collect::<Vec<_>>(),
        "expires": end_unix_s.map(date_of),
    })
}

fn summary(grant: &Grant, end_unix_s: Option<u64>, holder: String, now_unix_s: u64) -> String {
    let mut text = String::from("good\n");
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<8} {value}");
    };
    let list = |patterns: PatternsRef<'_>| match patterns.is_empty() {
        true => "nothing".to_owned(),
        false => patterns.iter().collect::<Vec<_>>().join(", "),
    };
    line("holder", holder);
    line("publish", list(grant.scope.publish()));
    line("read", list(grant.scope.read()));
    line(
        "expires",
        match end_unix_s {
            Some(end) => {
                let left = end.saturating_sub(now_unix_s);
                format!("{}, in {left} s", date_of(end))
            }
            None => "never".to_owned(),
        },
    );
    text
}

/// The end of the year 9999: dates have four digits.
const MOMENT_MAX: u64 = 253_402_300_799;

/// More than any token, so that one that is too long is called that.
const TOKEN_INPUT_MAX: u64 = 64 * 1024;

const EXAMPLES: &str = "\
Examples:
  stentor token new --name scores --publish '/scores/**' --expires 90d >> stentor.toml
  stentor token check -c stentor.toml < secret.txt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_a_moment_or_a_period() {
        let now = 1_800_000_000;
        for (text, expected) in [
            ("90d", Ok(now + 90 * 86_400)),
            ("2h", Ok(now + 7_200)),
            ("60s", Ok(now + 60)),
            ("2027-01-31", Ok(1_801_353_600)),
            ("2027-01-31T12:00:00Z", Ok(1_801_353_600 + 43_200)),
        ] {
            assert_eq!(expiry(text, now), expected, "{text}");
        }
        for year in ["2027", "60", "0"] {
            let error = expiry(year, now).unwrap_err();
            assert!(error.contains("a period such as"), "{error}");
        }
        let error = expiry("99999999d", now).unwrap_err();
        assert_eq!(error, "--expires: 99999999d from now on is after the year 9999");
        assert!(expiry("2020-01-01", now).unwrap_err().contains("is over"));
        assert!(expiry("soon", now).unwrap_err().contains("is not a date such as"));
    }
}
