//! What a start would find of the files and directories that settings name, without starting.
//!
//! A file that would end a start is an error. A directory is a warning: it may belong to the server's
//! user alone, or be made later, by a unit of systemd or by a volume.

use crate::certificates::{self, Prepared, Shown};
use crate::cluster;
use crate::config::Settings;

/// What was found. Nothing of it would end a start for good.
#[derive(Debug)]
pub struct Inspection {
    /// The certificates that would be shown.
    pub certificates: Vec<Shown>,
    /// What would have to be otherwise for all to work, a sentence each.
    pub warnings: Vec<String>,
}

/// Looks at what the settings name as a start would, and makes nothing.
///
/// # Errors
/// Which files would end a start, and why: a sentence each.
pub fn inspect(settings: &Settings, now_unix_s: u64) -> Result<Inspection, Vec<String>> {
    let mut errors = Vec::new();
    errors.extend(cluster::check(&settings.cluster).err());
    let prepared = certificates::inspect(settings, now_unix_s).unwrap_or_else(|unusable| {
        errors.push(unusable.to_string());
        Prepared::default()
    });
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut warnings = prepared.warnings().to_vec();
    warnings.extend(
        prepared.unusable().map(|unusable| {
            format!("a certificate cannot be used, and all others are: {unusable}")
        }),
    );
    warnings.extend(store_warning(settings));
    Ok(Inspection { certificates: prepared.shown(now_unix_s), warnings })
}

/// Why there could be no store where one is to be.
fn store_warning(settings: &Settings) -> Option<String> {
    let path = settings.store.path.as_ref()?;
    let error = stentor_io::check_directory(path).err()?;
    Some(format!(
        "store.path: the store in {} cannot be used here and now: {error}",
        path.display()
    ))
}
