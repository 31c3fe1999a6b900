//! Who the server runs as: the name that is configured, and what becomes of the process.

use crate::start_error::StartError;
use stentor_io::User;

/// Who the server is to be.
pub(crate) fn user_named(name: &str) -> Result<User, StartError> {
    match User::named(name) {
        Ok(Some(user)) if user.is_root() => Err(StartError::new(format!(
            "user '{name}' is root, and as root it would run without this setting: name a user \
             that owns nothing of the host"
        ))),
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(StartError::new(format!(
            "there is no user '{name}' on this host (getent passwd lists those there are): make \
             it (useradd --system {name}) or name another"
        ))),
        Err(error) => Err(StartError::new(format!("user '{name}' cannot be looked up: {error}"))),
    }
}

/// Runs as that user from now on, on this thread and all that it starts.
pub(crate) fn become_user(name: &str, user: &User) -> Result<(), StartError> {
    user.become_for_good().map_err(|error| {
        StartError::new(format!(
            "this process cannot become user '{name}': {error}; start it as root, with \
             CAP_SETUID and CAP_SETGID, or as that user"
        ))
    })
}
