//! The sources of settings: the defaults, a TOML document, and the variables of the environment.
//!
//! A source says nothing about most settings; what it does say overrides the source before. The
//! environment speaks the grammar of documents: `STENTOR_LIMITS_HEAD_TIMEOUT=5s` is read as the
//! document `[limits]`, `head_timeout = "5s"` would be.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use stentor_io::read_file;
use toml::Value;
use toml::de::{Error, ValueDeserializer};

use crate::document::{self, explain, explain_secret};
use crate::error::{ConfigError, ConfigErrors, nearest};
use crate::groups;
use crate::setting::{Setting, ValueShape};
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
        environment: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Result<Settings, ConfigErrors> {
        let mut settings = Settings::default();
        let of_file = file.map_or(Ok(()), |path| {
            let name = path.display().to_string();
            let text = read_file(path, FILE_BYTES_MAX)
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

/// The largest configuration file that is read.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Overrides `settings` by the variables that name a setting. A misspelt name is refused. Other
/// names that begin with `STENTOR_` are left alone, because container platforms and images set such
/// variables themselves.
fn from_environment(
    environment: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    settings: &mut Settings,
) -> Result<(), ConfigErrors> {
    let mut mistakes = Vec::new();
    let known: Vec<_> = groups::all().map(|setting| (setting.variable(), setting)).collect();
    for (variable, text) in environment {
        let Ok(variable) = variable.into().into_string() else { continue };
        let (text, is_utf_8) = match text.into().into_string() {
            Ok(text) => (text, true),
            Err(text) => (text.to_string_lossy().into_owned(), false),
        };
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        let is_of_service = names_a_service(name);
        if OTHER_VARIABLES.contains(&name) || is_of_service && text.contains("://") {
            continue;
        }
        if let Some((_, setting)) = known.iter().find(|(known, _)| *known == variable) {
            if !is_utf_8 {
                mistakes.push(ConfigError::new(&variable, "the value is not UTF-8"));
            } else if let Err(error) = read_variable(setting, &text, settings) {
                let explain = if setting.is_secret { explain_secret } else { explain };
                mistakes.push(ConfigError::new(&variable, explain(error.message())));
            }
            continue;
        }
        let names = known.iter().filter_map(|(known, _)| known.strip_prefix(PREFIX));
        if !is_of_service && let Some(meant) = misspelt(name, names) {
            let message = format!("unknown setting; did you mean {PREFIX}{meant}?");
            mistakes.push(ConfigError::new(&variable, message));
        }
    }
    ConfigErrors::none_of(mistakes)
}

/// Whether Kubernetes sets a variable of this name, without the prefix, in all pods of a namespace
/// that has a service called stentor, or stentor-something. `STENTOR_REDIRECT_PORT` is such a name
/// and a setting: the service's value is a URL (`tcp://10.0.0.1:80`), the setting's is a number.
fn names_a_service(name: &str) -> bool {
    format!("_{name}").contains("_SERVICE_") || format!("_{name}_").contains("_PORT_")
}

/// The one of `known` that a variable most likely means. Both names are without the prefix: with
/// it, any short name would be near to any other. One edit is a spelling mistake, from eight
/// letters on two are. Two names of three letters, such as `PIN` and `BIN`, are just two names.
fn misspelt<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let edits_max = match name.len() {
        0..4 => return None,
        4..8 => 1,
        _ => 2,
    };
    nearest(name, edits_max, known)
}

const PREFIX: &str = "STENTOR_";

/// Variables that are no settings: those that commands read, and those by which one process of an
/// upgrade finds another.
const OTHER_VARIABLES: &[&str] = &["CONFIG", "ROOT", "SERVER", "TOKEN", "HANDOVER", "PARENT"];

/// Reads the text of a variable as a document would have it.
fn read_variable(
    setting: &Setting<Settings>,
    text: &str,
    settings: &mut Settings,
) -> Result<(), Error> {
    let value: Value = match setting.shape {
        ValueShape::Text => text.into(),
        ValueShape::List if text.trim().is_empty() => Value::Array(Vec::new()),
        ValueShape::List => text.split(',').map(str::trim).collect::<Vec<_>>().into(),
        ValueShape::Flag => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
    };
    (setting.read)(ValueDeserializer::parse(&value.to_string())?, settings)
}
