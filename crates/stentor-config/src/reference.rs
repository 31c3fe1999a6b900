//! The settings as data: what the schema of the configuration file and the reference are made of.

use serde::Serialize;
use toml::Value;

use crate::arrays::{ARRAYS, Array};
use crate::described::ValueForm;
use crate::groups;
use crate::setting::Setting;
use crate::settings::Settings;

/// A setting, as the reference describes it.
#[derive(Clone, Debug, Serialize)]
pub struct SettingReference {
    /// The table and the key, with a dot between them.
    pub name: String,
    /// The table; empty for the top level.
    pub table: &'static str,
    /// The key in the table.
    pub key: &'static str,
    /// The environment variable.
    pub variable: String,
    /// The form of the value.
    pub form: ValueForm,
    /// The value of a configuration that does not set it; `None` if it depends on the host.
    pub default: Option<Value>,
    /// Whether a change counts from the next start only.
    pub needs_restart: bool,
    /// The purpose.
    pub description: String,
}

/// A kind of table of which there may be several.
#[derive(Clone, Debug, Serialize)]
pub struct TableReference {
    /// Its name.
    pub name: &'static str,
    /// Its keys.
    pub keys: Vec<KeyReference>,
}

/// A key of such a table.
#[derive(Clone, Debug, Serialize)]
pub struct KeyReference {
    /// The key.
    pub key: &'static str,
    /// The form of the value.
    pub form: ValueForm,
    /// Whether each table must have it.
    pub is_required: bool,
    /// The purpose.
    pub description: String,
}

/// All settings, in the order in which `stentor config` prints them.
#[must_use]
pub fn setting_references() -> Vec<SettingReference> {
    let default = Settings::default();
    let reference = |setting: &Setting<Settings>| SettingReference {
        name: setting.name(),
        table: setting.table,
        key: setting.key,
        variable: setting.variable(),
        form: (setting.form)(),
        // How many workers there are depends on the host.
        default: (setting.key != "workers").then(|| (setting.show)(&default)),
        needs_restart: setting.needs_restart,
        description: joined(setting.help),
    };
    groups::all().map(reference).collect()
}

/// The kinds of tables of which there may be several.
#[must_use]
pub fn table_references() -> Vec<TableReference> {
    let reference = |array: &Array| {
        let keys = array.keys.iter().map(|key| KeyReference {
            key: key.name,
            form: (key.form)(),
            is_required: key.is_required,
            description: joined(key.help),
        });
        TableReference { name: array.name, keys: keys.collect() }
    };
    ARRAYS.iter().map(reference).collect()
}

/// The lines of a comment as one.
fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}
