//! The sources of settings: the defaults, a TOML document, and the variables of the environment.
//!
//! A source says nothing about most settings; what it does say overrides the source before. The
//! environment speaks the grammar of documents: `STENTOR_LIMITS_HEAD_TIMEOUT=5s` is read as the
//! document `[limits]`, `head_timeout = "5s"` would be.

use std::io;
use std::path::Path;

use stentor_io::read_file;
use toml::Value;
use toml::de::{Error, ValueDeserializer};

use crate::document::{self, explain};
use crate::error::{ConfigError, ConfigErrors, nearest};
use crate::groups;
use crate::setting::Setting;
use crate::settings::Settings;

impl Settings {
    /// The defaults, overridden by the file (if one is named) and then by those of `environment`'s
    /// variables that are ours. Rules across settings are checked by [`Settings::validate`], once
    /// the flags are known too.
    ///
    /// # Errors
    ///
    /// The mistakes found, each with its place.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, ConfigErrors> {
        let mut settings = Settings::default();
        let of_file = file.map_or(Ok(()), |path| {
            let name = path.display().to_string();
            let text = read_file(path, usize::MAX)
                .and_then(|bytes| io::read_to_string(&*bytes))
                .map_err(|e| ConfigError::new(&name, format!("cannot be read: {e}")))?;
            document::read(&text, &name, &mut settings)
        });
        let of_environment = from_environment(environment, &mut settings);
        let errors = [of_file, of_environment].into_iter().filter_map(Result::err).flatten();
        ConfigErrors::none_of(errors).map(|()| settings)
    }

    /// The defaults, overridden by a TOML document; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// The mistakes found, each with its line and column.
    pub fn from_toml(text: &str, name: &str) -> Result<Settings, ConfigErrors> {
        let mut settings = Settings::default();
        document::read(text, name, &mut settings)?;
        Ok(settings)
    }
}

/// Overrides `settings` by the variables that name a setting. A variable that almost does is
/// refused; other names beginning with `STENTOR_` are left alone, for container platforms make up
/// such names by themselves (`STENTOR_SERVICE_HOST`).
fn from_environment(
    environment: impl IntoIterator<Item = (String, String)>,
    settings: &mut Settings,
) -> Result<(), ConfigErrors> {
    let mut mistakes = Vec::new();
    let known: Vec<_> = groups::all().map(|setting| (setting.variable(), setting)).collect();
    for (name, text) in environment {
        if !name.starts_with(PREFIX) || FOREIGN.contains(&name.as_str()) {
            continue;
        }
        let Some((_, setting)) = known.iter().find(|(variable, _)| *variable == name) else {
            let known = known.iter().map(|(variable, _)| variable.as_str());
            if let Some(meant) = nearest(&name, known) {
                let message = format!("unknown setting; did you mean {meant}?");
                mistakes.push(ConfigError::new(&name, message));
            }
            continue;
        };
        if let Err(error) = read_variable(setting, &text, settings) {
            mistakes.push(ConfigError::new(&name, explain(error.message())));
        }
    }
    ConfigErrors::none_of(mistakes)
}

const PREFIX: &str = "STENTOR_";

/// Variables that are no settings: those that commands read, those by which one process of an
/// upgrade finds another, and one that Kubernetes sets where there is a service called stentor.
const FOREIGN: &[&str] = &[
    "STENTOR_CONFIG",
    "STENTOR_ROOT",
    "STENTOR_PORT",
    "STENTOR_TOKEN",
    "STENTOR_HANDOVER",
    "STENTOR_PARENT",
];

/// Reads the text of a variable as a document would say it.
fn read_variable(
    setting: &Setting<Settings>,
    text: &str,
    settings: &mut Settings,
) -> Result<(), Error> {
    let value: Value = if setting.is_list {
        text.split(',').map(str::trim).collect::<Vec<_>>().into()
    } else if let Ok(flag) = text.parse::<bool>() {
        flag.into()
    } else if let Ok(number) = text.parse::<i64>() {
        number.into()
    } else {
        text.into()
    };
    (setting.read)(ValueDeserializer::parse(&value.to_string())?, settings)
}
