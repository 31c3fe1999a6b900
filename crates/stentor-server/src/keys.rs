//! The keys that tokens are verified with, as the server comes by them: those that are configured,
//! those of files, which are read again when they change, and those that issuers publish.
//!
//! One thread looks after all that can change by itself, once a second, beside the workers, who go
//! by the keys they were told last. What is no good changes nothing: a file that is gone or half
//! written leaves the keys as they were, and the log says so once.

use crate::context::Shared;
use crate::mailbox::{Mailbox, Order};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use stentor_access::{JwksThread, Jwt, Keys, LoadError, Loaded, Settings};

/// Reads what is configured. What is passed over is said in the log.
///
/// # Errors
/// If a file cannot be read or holds no key.
pub(crate) fn load(settings: &Settings) -> Result<Arc<Keys>, LoadError> {
    load_with(settings, None).map(|loaded| Arc::new(loaded.keys))
}

/// Looks after the keys for as long as it is kept.
pub(crate) struct KeyThread {
    /// The thread begins with the first message, and ends when this is dropped.
    begins: Sender<()>,
    jwt: Jwt,
    fetches: Option<Arc<Fetches>>,
}

/// The keys of issuers.
struct Fetches {
    thread: JwksThread,
    has_changed: Arc<AtomicBool>,
}

impl KeyThread {
    /// Begins to, if there is anything that can change by itself. What `before` has fetched it
    /// goes on with, if the same is configured.
    ///
    /// # Errors
    /// There is no thread to be had, or there are no certificates to know hosts by.
    pub(crate) fn start(
        settings: &Settings,
        shared: &Arc<Shared>,
        mailboxes: &[Arc<Mailbox>],
        before: Option<&KeyThread>,
    ) -> io::Result<Option<KeyThread>> {
        let files = stentor_access::load(settings, &[]).map(|loaded| loaded.files);
        let files = files.unwrap_or_default();
        let has_urls = !settings.jwt.jwks_urls.is_empty();
        if files.is_empty() && !has_urls {
            return Ok(None);
        }
        let before = before.filter(|before| before.jwt == settings.jwt);
        let fetches = match before.and_then(|before| before.fetches.as_ref()) {
            Some(fetches) => Some(Arc::clone(fetches)),
            None if has_urls => {
                let has_changed = Arc::new(AtomicBool::new(false));
                let changed = Arc::clone(&has_changed);
                let changes = move || changed.store(true, Ordering::Release);
                let thread = JwksThread::start(&settings.jwt, changes).map_err(io::Error::other)?;
                Some(Arc::new(Fetches { thread, has_changed }))
            }
            None => None,
        };
        let looker = Looker {
            settings: settings.clone(),
            seen: files.iter().map(state_of).collect(),
            files,
            fetches: fetches.clone(),
            shared: Arc::downgrade(shared),
            mailboxes: mailboxes.to_vec(),
        };
        let (begins, ended) = channel();
        thread::Builder::new().name("keys".to_owned()).spawn(move || looker.run(&ended))?;
        Ok(Some(KeyThread { begins, jwt: settings.jwt.clone(), fetches }))
    }

    /// Has the thread look at the files from now on: the keys of these settings are in use.
    pub(crate) fn begin(&self) {
        let _ = self.begins.send(());
    }

    /// The keys of these settings, with what was fetched if that is still what is to be.
    ///
    /// # Errors
    /// As [`load`].
    pub(crate) fn reload(
        of: Option<&KeyThread>,
        settings: &Settings,
    ) -> Result<Arc<Keys>, LoadError> {
        let same = of.filter(|of| of.jwt == settings.jwt);
        let fetches = same.and_then(|of| of.fetches.as_deref());
        load_with(settings, fetches).map(|loaded| Arc::new(loaded.keys))
    }
}

/// The thread.
struct Looker {
    settings: Settings,
    files: Vec<PathBuf>,
    /// What the files were like when they were read.
    seen: Vec<FileState>,
    fetches: Option<Arc<Fetches>>,
    shared: Weak<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
}

/// Tells a file from another one of its name: its number, its length, when it was written.
type FileState = Option<(u64, u64, i64, i64)>;

fn state_of(path: &PathBuf) -> FileState {
    let data = fs::metadata(path).ok()?;
    Some((data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
}

impl Looker {
    fn run(mut self, ended: &Receiver<()>) {
        if ended.recv().is_err() {
            return;
        }
        while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            let Some(shared) = self.shared.upgrade() else { return };
            if shared.wants_keys.swap(false, Ordering::Relaxed)
                && let Some(fetches) = &self.fetches
            {
                fetches.thread.refresh();
            }
            let now: Vec<FileState> = self.files.iter().map(state_of).collect();
            let fetches = self.fetches.as_deref();
            let has_fetched =
                fetches.is_some_and(|one| one.has_changed.swap(false, Ordering::Acquire));
            if now == self.seen && !has_fetched {
                continue;
            }
            self.seen = now;
            match load_with(&self.settings, fetches) {
                Ok(Loaded { keys, .. }) => {
                    tracing::info!("the keys that tokens are verified with were read again");
                    tell(&shared, &self.mailboxes, &Arc::new(keys));
                }
                Err(error) => tracing::error!("the keys stay as they are: {error}"),
            }
        }
    }
}

/// Has tokens verified with these keys from now on.
pub(crate) fn tell(shared: &Shared, mailboxes: &[Arc<Mailbox>], keys: &Arc<Keys>) {
    shared.set_keys(Arc::clone(keys));
    for mailbox in mailboxes {
        mailbox.put(Order::Keys(Arc::clone(keys)));
    }
}

fn load_with(settings: &Settings, fetches: Option<&Fetches>) -> Result<Loaded, LoadError> {
    let fetched = fetches.map(|one| one.thread.documents()).unwrap_or_default();
    let loaded = stentor_access::load(settings, &fetched)?;
    for sentence in &loaded.passed_over {
        tracing::warn!("{sentence}");
    }
    Ok(loaded)
}

/// How often it is looked whether a file is another one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
