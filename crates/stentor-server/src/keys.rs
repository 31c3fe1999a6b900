//! The keys that tokens are verified with, as the server comes by them.

use std::sync::Arc;
use stentor_access::{Keys, LoadError, Loaded, Settings};

/// Reads what is configured. What is passed over is said in the log.
///
/// # Errors
/// If a file cannot be read or holds no key.
pub(crate) fn load(settings: &Settings) -> Result<Arc<Keys>, LoadError> {
    let Loaded { keys, passed_over, .. } = stentor_access::load(settings, &[])?;
    for sentence in passed_over {
        tracing::warn!("{sentence}");
    }
    Ok(Arc::new(keys))
}
