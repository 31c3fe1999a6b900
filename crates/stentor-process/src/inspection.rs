//! Looks at the files and directories that settings name, as a start would.
//!
//! A file that would end a start is an error. A directory, the access log or the user is a warning:
//! a unit of systemd or a volume may bring it only when the server starts.

use crate::user::user_named;
use stentor_config::{AccessTarget, Settings};
use stentor_files::check_roots;
use stentor_io::{FileKind, append, file_state};
use stentor_server::keys::PreparedKeys;
use stentor_tls_layer::{Prepared, ShownCertificate};

/// The result of an inspection that found no error.
#[derive(Debug)]
pub struct Inspection {
    /// The certificates that would be shown.
    pub certificates: Vec<ShownCertificate>,
    /// Each warning is a sentence.
    pub warnings: Vec<String>,
}

/// Looks at what the settings name as a start would, and makes nothing.
///
/// # Errors
/// Which files would end a start, and why: a sentence each.
pub fn inspect(settings: &Settings, now_unix_s: u64) -> Result<Inspection, Vec<String>> {
    let mut errors = Vec::new();
    errors.extend(stentor_cluster::check(&settings.cluster).err());
    errors.extend(stentor_replication::check(&settings.follow).err());
    let (passed_over, error) = check_keys(&settings.tokens);
    errors.extend(error);
    let prepared = stentor_tls_layer::inspect(settings, now_unix_s).unwrap_or_else(|unusable| {
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
    warnings.extend(passed_over);
    warnings.extend(store_error(settings));
    warnings.extend(access_log_error(settings));
    warnings.extend(check_roots(&settings.mounts).err().map(|error| error.to_string()));
    let user = settings.user.as_deref().map(user_named);
    warnings.extend(user.and_then(Result::err).map(|error| error.to_string()));
    Ok(Inspection { certificates: prepared.shown(now_unix_s), warnings })
}

/// Why there could be no store where one is to be.
pub(crate) fn store_error(settings: &Settings) -> Option<String> {
    let path = settings.store.path.as_ref()?;
    let error = stentor_io::check_directory(path).err()?;
    Some(format!(
        "store.path: the store in {} cannot be used here and now: {error}",
        path.display()
    ))
}

/// Which keys of documents are skipped, and why the keys of tokens cannot be read.
fn check_keys(settings: &stentor_access::Settings) -> (Vec<String>, Option<String>) {
    match PreparedKeys::read(settings, Vec::new()) {
        Ok(prepared) => (prepared.skipped().to_vec(), None),
        Err(error) => (Vec::new(), Some(error)),
    }
}

/// Why the access log could not be written where it is to be.
pub(crate) fn access_log_error(settings: &Settings) -> Option<String> {
    let Some(AccessTarget::File(path)) = &settings.log.access else { return None };
    let opened = match file_state(path).map(|file| file.kind) {
        // Nothing else is opened: a pipe would wait for a reader.
        Ok(FileKind::File) => append(path, None).map(drop).map_err(|error| error.to_string()),
        Ok(FileKind::Directory) => Err("it is a directory".to_owned()),
        Ok(_) => Ok(()),
        // The directory has to be there.
        Err(_) => match file_state(path.parent()?) {
            Ok(_) => stentor_io::check_directory(path.parent()?),
            Err(error) => Err(error.to_string()),
        },
    };
    let error = opened.err()?;
    Some(format!("log.access: {} cannot be written here and now: {error}", path.display()))
}
