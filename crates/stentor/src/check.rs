//! `stentor check`: whether a configuration is good, and what it comes to.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use stentor_server::config::{LogFormat, Settings};
use tracing::Level;

use crate::Failure;
use crate::args::usage;

/// Check a configuration file without starting anything
///
/// Prints what the file comes to, with the defaults for what it leaves out. The environment is
/// not looked at. Exit code 2 if the file is wrong; the error names the line and column.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Configuration file (TOML)
    file: PathBuf,
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let settings = Settings::load(Some(&args.file), []).map_err(usage)?;
    settings
        .validate()
        .map_err(|error| Failure::Usage(format!("{}: {error}", args.file.display())))?;
    crate::print(&summary(&settings))
}

/// "ok", and a line for each thing of note.
fn summary(settings: &Settings) -> String {
    let mut text = String::from("ok\n");
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<9} {value}");
    };
    line("listen", join(&settings.listen));
    line("control", join(&settings.control));
    line("workers", settings.workers.to_string());
    // Whether there is one is asked at the start: a file is often checked elsewhere.
    if let Some(user) = &settings.user {
        line("user", user.clone());
    }
    let (level, format) = (settings.log.level, settings.log.format);
    if (level, format) != (Level::INFO, LogFormat::Text) {
        let form = if format == LogFormat::Json { "JSON" } else { "text" };
        line("log", format!("{} in {form}", level.as_str().to_ascii_lowercase()));
    }
    if !settings.cors.origins.is_empty() {
        line("cors", join(&settings.cors.origins));
    }
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
    // And so is whether the directories exist.
    for mount in &settings.mounts {
        line("static", format!("{} from {}", mount.path, mount.root.display()));
    }
    text
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
                    [[topics]]\nmatch = '/a'\n[[lookup]]\n\
                    path = '/list='\ntopics = '/{name}'\nline = '{value}'\n\
                    [[static]]\nroot = '/srv/www'\n[[static]]\npath = '/docs'\nroot = 'docs'";
        let settings = Settings::from_toml(text, "f").unwrap();
        assert_eq!(
            summary(&settings),
            "ok\n  listen    127.0.0.1:80\n  control   127.0.0.1:8081\n  workers   2\n  \
             user      www\n  log       debug in text\n  topics    1 rule\n  \
             lookup    /list= in lines\n  static    / from /srv/www\n  static    /docs/ from docs\n"
        );
    }
}
