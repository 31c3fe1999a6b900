//! The reason why a server did not start.

use std::path::Path;
use std::{fmt, io};
use stentor_io::BindError;
use stentor_log::OpenError;

/// Why the server did not start. Nothing of it is left.
#[derive(Debug)]
pub struct StartError(pub(crate) String);

impl StartError {
    pub(crate) fn new(reason: impl fmt::Display) -> StartError {
        StartError(reason.to_string())
    }

    /// The store in this directory cannot be read, or not be written to.
    pub(crate) fn of_store(path: &Path, error: &OpenError) -> StartError {
        let path = path.display();
        let hint = match error {
            OpenError::Damaged(_) | OpenError::Refused { .. } => format!(
                "; stentor store check {path} lists all that is damaged, and stentor store repair \
                 {path} keeps what is not"
            ),
            OpenError::Disk(_) | OpenError::Version { .. } => String::new(),
        };
        StartError(format!("the store in {path}: {error}{hint}"))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<BindError> for StartError {
    fn from(error: BindError) -> StartError {
        StartError::new(error)
    }
}

/// A start fails if the host has no resources for it.
impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError(format!("the host refused a thread, a file descriptor or memory: {error}"))
    }
}
