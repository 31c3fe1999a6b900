//! A start, a reload and an upgrade prepare settings in the same way before they count. All that
//! can fail happens here, and nothing that runs has changed by then.

use super::{Server, StartError, store_path};
use crate::inspection::{access_log_error, store_error};
use crate::user::user_named;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stentor_access::Fetched;
use stentor_config::{ControlAddress, PairFiles, Settings};
use stentor_files::check_roots;
use stentor_io::{LookThread, User, check_directory, unix_s, within};
use stentor_server::keys::{KeyThread, PreparedKeys};
use stentor_tls_layer::{Acceptors, MissingTickets, Prepared as Certificates};
use zeroize::Zeroizing;

/// Settings, and the content of the files that they name.
pub(super) struct PreparedSettings {
    pub(super) settings: Settings,
    pub(super) certificates: Certificates,
    pub(super) keys: PreparedKeys,
}

/// The state of the server that runs already. All of it is empty at a start.
#[derive(Default)]
pub(super) struct Running {
    /// The user that files are made for.
    pub(super) user: Option<User>,
    /// The certificates of this process.
    pub(super) acceptors: Option<Arc<Acceptors>>,
    /// Another process hands over, and presents no valid certificate of these pairs.
    pub(super) left_out: Option<Vec<PairFiles>>,
    /// The secret of TLS tickets of another process.
    pub(super) ticket_secret: Option<Zeroizing<Vec<u8>>>,
    /// The keys that were fetched from issuers.
    pub(super) fetched: Vec<Fetched>,
}

/// The threads that look after what was prepared. They wait until that counts.
pub(super) struct Background {
    keys: KeyThread,
    certificates: Option<LookThread>,
}

impl PreparedSettings {
    /// Reads all files that the settings name.
    ///
    /// # Errors
    /// Why a server cannot run with these settings.
    pub(super) fn read(
        settings: Settings,
        running: Running,
    ) -> Result<PreparedSettings, StartError> {
        check_files(&settings)?;
        check_services(&settings)?;
        let keys = PreparedKeys::read(&settings.tokens, running.fetched).map_err(StartError)?;
        let certificates = match &running.acceptors {
            Some(acceptors) => acceptors.reread(&settings.tls, unix_s()),
            None => {
                let missing = MissingTickets::Made(running.user.as_ref());
                let before = running.ticket_secret.map(Certificates::of_tickets).transpose();
                let before = before.map_err(StartError::new)?;
                Certificates::read(&settings.tls, unix_s(), missing, before.as_ref())
            }
        };
        let certificates = certificates.map_err(StartError::new)?;
        if let Some(left_out) = &running.left_out {
            certificates.check_pairs(left_out).map_err(StartError::new)?;
        }
        Ok(PreparedSettings { settings, certificates, keys })
    }

    /// The same of a server that starts.
    pub(super) fn read_bounded(
        settings: &Settings,
        running: Running,
    ) -> Result<PreparedSettings, StartError> {
        let settings = settings.clone();
        bounded(&mut || false, move || PreparedSettings::read(settings, running))
    }
}

impl Background {
    /// Starts the threads, which wait for [`Background::begin`].
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn start(
        server: &Server,
        settings: &Settings,
        keys: PreparedKeys,
        certificates: &Certificates,
    ) -> io::Result<Background> {
        let acceptors = &server.shared.acceptors;
        Ok(Background {
            keys: KeyThread::start(keys, &server.shared.tokens, &server.mailboxes)?,
            certificates: stentor_tls_layer::start_thread(&settings.tls, acceptors, certificates)?,
        })
    }

    /// Has the threads work: the settings are in use. `is_start`: no process has served before.
    pub(super) fn begin(&self, is_start: bool) {
        self.keys.begin(is_start);
        self.certificates.iter().for_each(LookThread::begin);
    }
}

/// Does work that reads files, for [`READ_TIMEOUT`] at most, whatever their file systems do.
pub(super) fn bounded<T: Send + 'static>(
    gives_up: &mut dyn FnMut() -> bool,
    work: impl FnOnce() -> Result<T, StartError> + Send + 'static,
) -> Result<T, StartError> {
    within(READ_TIMEOUT, gives_up, work).map_err(StartError::new)?
}

/// Checks settings of a reload that only count from the next start: a start must not fail by them.
/// `fixed` are the settings that count until then.
///
/// # Errors
/// Why a start would fail.
pub(super) fn check_for_restart(
    fixed: &Settings,
    next: &Settings,
    left_out: &[PairFiles],
) -> Result<(), StartError> {
    if next.user != fixed.user {
        next.user.as_deref().map(user_named).transpose()?;
    }
    check_addresses(fixed, next)?;
    check_services(next)?;
    let errors = [
        (store_path(next) != store_path(fixed)).then(|| store_error(next)),
        (next.log.access != fixed.log.access).then(|| access_log_error(next)),
    ];
    if let Some(error) = errors.into_iter().flatten().flatten().next() {
        return Err(StartError(error));
    }
    if next.tls != fixed.tls {
        let read = Certificates::read(&next.tls, unix_s(), MissingTickets::Left, None);
        read.and_then(|read| read.check_pairs(left_out)).map_err(StartError::new)?;
    }
    Ok(())
}

/// Whether the files can be read that a follower or a node needs.
fn check_services(settings: &Settings) -> Result<(), StartError> {
    stentor_cluster::check(&settings.cluster).map_err(StartError)?;
    match settings.follow.is_on() {
        true => stentor_replication::check(&settings.follow).map_err(StartError),
        false => Ok(()),
    }
}

/// Whether the addresses can be bound that are not bound yet.
fn check_addresses(fixed: &Settings, next: &Settings) -> Result<(), StartError> {
    let all = |settings: &Settings| {
        let tcp = settings.listen.iter().map(|one| one.address).chain(settings.redirect.clone());
        let operators = settings.control.iter().map(|one| one.address.clone());
        let operators = operators.chain(settings.monitor.clone());
        tcp.map(ControlAddress::Tcp).chain(operators).collect::<Vec<_>>()
    };
    let bound = all(fixed);
    for address in all(next).into_iter().filter(|address| !bound.contains(address)) {
        match &address {
            ControlAddress::Tcp(tcp) => drop(stentor_io::reserve(*tcp)?),
            ControlAddress::Unix(path) => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                check_directory(directory)
                    .map_err(|error| StartError(format!("cannot listen on {address}: {error}")))?;
            }
        }
    }
    Ok(())
}

/// Whether all directories whose files are to be served can be opened.
pub(super) fn check_files(settings: &Settings) -> Result<(), StartError> {
    check_roots(&settings.mounts).map_err(|error| match &settings.user {
        Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
            StartError(format!("{error}; the server runs as user '{user}', who must be let in"))
        }
        _ => StartError::new(error),
    })
}

/// How long all files together may take to be read. Another process waits longer for this one.
const READ_TIMEOUT: Duration = Duration::from_secs(8);
