//! Small files that settings name.

use std::path::Path;
use std::{fmt, io};
use stentor_io::read_file;
use zeroize::Zeroizing;

/// All of a small file: a certificate, a key, a token. The byte order mark is left out with which
/// editors of Windows begin a text.
///
/// # Errors
/// A sentence that names the file.
pub fn read_small(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let said = |reason: &dyn fmt::Display| format!("{}: {reason}", path.display());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => said(&"there is no such file"),
        io::ErrorKind::PermissionDenied => {
            said(&"whoever runs the server must be able to read it, and may not")
        }
        io::ErrorKind::FileTooLarge => {
            said(&"it is larger than a certificate, a key or a token: at most 1 MiB")
        }
        io::ErrorKind::InvalidInput => said(&error),
        _ => said(&format!("it cannot be read: {error}")),
    };
    let mut bytes = read_file(path, FILE_BYTES_MAX).map(Zeroizing::new).map_err(failed)?;
    if bytes.starts_with("\u{feff}".as_bytes()) {
        bytes.drain(..'\u{feff}'.len_utf8());
    }
    if bytes.is_empty() { Err(said(&"it is empty")) } else { Ok(bytes) }
}

const FILE_BYTES_MAX: usize = 1024 * 1024;
