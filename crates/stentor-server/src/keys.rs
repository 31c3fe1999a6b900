//! The keys that tokens are verified with, as the server comes by them: those that are configured,
//! those of files, which are read again when they change, and those that issuers publish.
//!
//! One thread looks at the files once a second, beside the workers, which use the keys they were
//! told last. For each URL of an issuer another thread fetches keys (`stentor_access::JwksThread`).
//! Bad files change nothing: a file that is gone or half written leaves the keys as they were. The
//! log says so, and the files are read again when they change and a minute later.

use crate::mailbox::{Mailbox, Order};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use stentor_access::{Cache, Jwks, JwksThread, Jwt, Keys, LoadError, Settings};
use stentor_http_client::agent;
use stentor_io::{FileStates, FileWatcher, LookThread, read_file, states_of, unix_s};

/// Reads what is configured, and adds the keys that were fetched. The log reports skipped keys.
///
/// # Errors
/// If a file cannot be read or holds no key.
pub fn load(settings: &Settings, fetched: &[Arc<Jwks>]) -> Result<Arc<Keys>, LoadError> {
    let loaded = stentor_access::load(settings, fetched, read_file)?;
    for sentence in &loaded.passed_over {
        tracing::warn!("{sentence}");
    }
    Ok(Arc::new(loaded.keys))
}

/// The states of the files with keys. They are taken before the files are read.
pub fn files_of(settings: &Settings) -> FileStates {
    states_of(settings.jwt.files().cloned())
}

/// The keys that tokens are verified with, and the tokens that were verified.
pub struct TokenState {
    /// The keys that workers begin with.
    keys: Mutex<Arc<Keys>>,
    /// A token named a key that is not known: issuers may have others by now.
    pub(crate) wants_keys: AtomicBool,
    pub(crate) verified: Cache,
}

impl TokenState {
    /// Verifies with these keys, and remembers verified tokens in at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(keys: Arc<Keys>, bytes_max: usize) -> io::Result<TokenState> {
        let verified = Cache::new(bytes_max).map_err(io::Error::other)?;
        Ok(TokenState { keys: Mutex::new(keys), wants_keys: AtomicBool::new(false), verified })
    }

    /// The keys that tokens are verified with.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&stentor_io::lock(&self.keys))
    }

    /// Has workers that begin verify with these keys. An order tells the others.
    pub(crate) fn set_keys(&self, keys: Arc<Keys>) {
        *stentor_io::lock(&self.keys) = keys;
    }
}

/// Looks after the keys for as long as it is kept.
pub struct KeyThread {
    thread: LookThread,
    jwt: Jwt,
    fetches: Option<Arc<Fetches>>,
}

/// The keys of issuers.
struct Fetches {
    thread: JwksThread,
    has_changed: Arc<AtomicBool>,
}

impl KeyThread {
    /// Begins to, if there is anything that can change by itself. `files` are what [`files_of`]
    /// returned before the keys were read. The keys that `before` has fetched are kept, if the same
    /// is configured.
    ///
    /// # Errors
    /// There is no thread to be had, or there are no certificates to know hosts by.
    pub fn start(
        settings: &Settings,
        files: FileStates,
        tokens: &Arc<TokenState>,
        mailboxes: &[Arc<Mailbox>],
        before: Option<&KeyThread>,
    ) -> io::Result<Option<KeyThread>> {
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
                let thread = JwksThread::start(&settings.jwt, read_file, agent, changes)
                    .map_err(io::Error::other)?;
                Some(Arc::new(Fetches { thread, has_changed }))
            }
            None => None,
        };
        let mut looker = Looker {
            settings: settings.clone(),
            watcher: FileWatcher::new(files, false),
            fetches: fetches.clone(),
            tokens: Arc::downgrade(tokens),
            mailboxes: mailboxes.to_vec(),
            failure: None,
        };
        let thread = LookThread::start("keys", move || looker.look(unix_s()))?;
        Ok(Some(KeyThread { thread, jwt: settings.jwt.clone(), fetches }))
    }

    /// Has the thread look at the files from now on: the keys of these settings are in use.
    pub fn begin(&self) {
        self.thread.begin();
    }

    /// Returns the fetched documents, if the same settings fetch them.
    #[must_use]
    pub fn fetched(of: Option<&KeyThread>, settings: &Settings) -> Vec<Arc<Jwks>> {
        let same = of.filter(|of| of.jwt == settings.jwt);
        let fetches = same.and_then(|of| of.fetches.as_deref());
        fetches.map(|one| one.thread.documents()).unwrap_or_default()
    }
}

/// The thread.
struct Looker {
    settings: Settings,
    watcher: FileWatcher,
    fetches: Option<Arc<Fetches>>,
    tokens: Weak<TokenState>,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Why the keys could not be read, as the log says it. It says each reason once.
    failure: Option<String>,
}

impl Looker {
    fn look(&mut self, now_unix_s: u64) {
        let Some(tokens) = self.tokens.upgrade() else { return };
        if tokens.wants_keys.swap(false, Ordering::Relaxed)
            && let Some(fetches) = &self.fetches
        {
            fetches.thread.refresh();
        }
        let fetches = self.fetches.as_deref();
        let has_fetched = fetches.is_some_and(|one| one.has_changed.swap(false, Ordering::Acquire));
        if self.watcher.look(now_unix_s).is_none() && !has_fetched {
            return;
        }
        let fetched = fetches.map(|one| one.thread.documents()).unwrap_or_default();
        match load(&self.settings, &fetched) {
            Ok(keys) => {
                tracing::info!("the keys that tokens are verified with were read again");
                self.failure = None;
                tell(&tokens, &self.mailboxes, &keys);
            }
            Err(error) => {
                let failure = Some(error.to_string());
                if self.failure != failure {
                    tracing::error!("the keys stay as they are: {error}");
                    self.failure = failure;
                }
                self.watcher.failed(now_unix_s);
            }
        }
    }
}

/// Has tokens verified with these keys from now on.
pub fn tell(tokens: &TokenState, mailboxes: &[Arc<Mailbox>], keys: &Arc<Keys>) {
    tokens.set_keys(Arc::clone(keys));
    for mailbox in mailboxes {
        mailbox.put(Order::Keys(Arc::clone(keys)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{World, kind, patient};
    use stentor_io::RETRY_S;

    /// The cause of a failure may be no change of a file.
    #[test]
    fn files_that_failed_are_read_again_later() {
        let world = World::new(1, kind(), patient());
        let mut settings = Settings::default();
        settings.jwt.secret_files = vec!["/nonexistent/secret".into()];
        // There was a file when the keys were read.
        let before = stentor_io::file_state(std::path::Path::new("/")).ok();
        let watcher = FileWatcher::new(vec![("/nonexistent/secret".into(), before)], false);
        let tokens = Arc::downgrade(&world.shared.tokens);
        let (mailboxes, failure) = (Vec::new(), None);
        let mut looker = Looker { settings, watcher, fetches: None, tokens, mailboxes, failure };
        looker.look(100);
        looker.look(101);
        assert!(looker.failure.is_some());
        assert!(looker.watcher.look(101 + RETRY_S - 1).is_none());
        assert!(looker.watcher.look(101 + RETRY_S).is_some());
    }
}
