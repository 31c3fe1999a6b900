//! The keys that tokens are verified with: those that are configured, those of files, which are
//! read again when they change, and those that issuers publish.
//!
//! Each change publishes other keys to the workers at once, on the thread that has noticed it: one
//! thread polls the files, and one for each URL of an issuer fetches its document
//! (`stentor_access::JwksThread`). Documents outlive a reload and an upgrade: the next keys begin
//! with the document that was fetched last from the same URL. A file that is missing or invalid
//! leaves the keys as they were. The log reports that, and the files are read again when they
//! change and a minute later.

use crate::mailbox::{Mailbox, Order};
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use stentor_access::{
    Cache, Fetched, JwksDocuments, JwksThread, Keys, LoadError, OwnKeys, Settings, jwks_agents,
};
use stentor_http_client::{Agent, agent};
use stentor_io::{
    FileStates, FileWatcher, LookThread, lock, monotonic_us, read_file, states_of, unix_s,
};
use stentor_wire::error::{ErrorCode, Rejection};

/// The keys that tokens are verified with, and the tokens that were verified.
pub struct TokenState {
    current: Mutex<CurrentKeys>,
    pub(crate) verified: Cache,
}

/// The keys that count.
struct CurrentKeys {
    keys: Arc<Keys>,
    /// Whose keys these are: what another source publishes does not count.
    source: Weak<KeySource>,
    /// The documents of issuers, if there are any.
    documents: Option<JwksDocuments>,
    /// When a server started that has to wait for documents before it is ready.
    started_us: Option<u64>,
}

impl TokenState {
    /// Verifies with these keys, and remembers verified tokens in at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(keys: Arc<Keys>, bytes_max: usize) -> io::Result<TokenState> {
        let verified = Cache::new(bytes_max).map_err(io::Error::other)?;
        let current = CurrentKeys { keys, source: Weak::new(), documents: None, started_us: None };
        Ok(TokenState { current: Mutex::new(current), verified })
    }

    /// The keys that tokens are verified with.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&lock(&self.current).keys)
    }

    /// The documents that were fetched, by their URLs.
    #[must_use]
    pub fn fetched(&self) -> Vec<Fetched> {
        lock(&self.current).documents.as_ref().map(JwksDocuments::fetched).unwrap_or_default()
    }

    /// Has documents fetched again: a token names a key that is not known.
    pub(crate) fn refresh(&self) {
        lock(&self.current).documents.iter().for_each(JwksDocuments::refresh);
    }

    /// Why the server is not ready yet, if keys of an issuer are to come.
    pub(crate) fn not_ready_reason(&self) -> Option<Rejection> {
        let current = lock(&self.current);
        let waited = Duration::from_micros(monotonic_us().saturating_sub(current.started_us?));
        let url = current.documents.as_ref()?.awaited(waited)?;
        let detail = format!("Keys of tokens are not known yet: {} was not fetched.", url.as_str());
        Some(Rejection::because(ErrorCode::IssuerUnavailable, detail))
    }

    /// Has workers that begin verify with these keys.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn set_keys(&self, keys: Arc<Keys>) {
        lock(&self.current).keys = keys;
    }
}

/// What was read for the keys of some settings.
pub struct PreparedKeys {
    settings: Settings,
    own: OwnKeys,
    files: FileStates,
    fetched: Vec<Fetched>,
    agents: Vec<Agent>,
}

impl PreparedKeys {
    /// Reads the files that settings name. `fetched` are documents of an earlier configuration, of
    /// which those count whose URLs are configured.
    ///
    /// # Errors
    /// A file cannot be read or holds no key; or there are no certificates to know hosts by.
    pub fn read(settings: &Settings, fetched: Vec<Fetched>) -> Result<PreparedKeys, String> {
        // Before they are read: what changes meanwhile is read again.
        let files = states_of(settings.jwt.files().cloned());
        let own = OwnKeys::read(settings, read_file).map_err(|error| error.to_string())?;
        let agents = jwks_agents(&settings.jwt, read_file, agent)?;
        Ok(PreparedKeys { settings: settings.clone(), own, files, fetched, agents })
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> Arc<Keys> {
        Arc::new(self.own.with(&self.fetched))
    }

    /// A sentence for each key of a document that is skipped.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.own.passed_over
    }

    /// Logs the keys that are skipped.
    fn log_skipped(&self) {
        self.skipped().iter().for_each(|sentence| tracing::warn!("{sentence}"));
    }
}

fn read_own(settings: &Settings) -> Result<OwnKeys, LoadError> {
    let own = OwnKeys::read(settings, read_file)?;
    for sentence in &own.passed_over {
        tracing::warn!("{sentence}");
    }
    Ok(own)
}

/// Makes the keys, and publishes them to the workers.
struct KeySource {
    tokens: Weak<TokenState>,
    mailboxes: Vec<Arc<Mailbox>>,
    own: Mutex<OwnKeys>,
}

impl KeySource {
    /// Has tokens verified with the keys of this moment. Only the source that counts may publish.
    fn publish(self: &Arc<KeySource>) {
        let Some(tokens) = self.tokens.upgrade() else { return };
        // Held until all workers know, so that they hear of the newest keys last.
        let mut current = lock(&tokens.current);
        // mutation: outdated-keys
        if !current.source.ptr_eq(&Arc::downgrade(self)) {
            return;
        }
        let fetched = current.documents.as_ref().map(JwksDocuments::fetched).unwrap_or_default();
        let keys = Arc::new(lock(&self.own).with(&fetched));
        current.keys = Arc::clone(&keys);
        for mailbox in &self.mailboxes {
            mailbox.put(Order::Keys(Arc::clone(&keys)));
        }
    }
}

/// Looks after the keys for as long as it is kept.
pub struct KeyThread {
    source: Arc<KeySource>,
    files: Option<LookThread>,
    fetches: Option<JwksThread>,
}

impl KeyThread {
    /// Starts the threads, which wait for [`KeyThread::begin`].
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        prepared: PreparedKeys,
        tokens: &Arc<TokenState>,
        mailboxes: &[Arc<Mailbox>],
    ) -> io::Result<KeyThread> {
        prepared.log_skipped();
        let PreparedKeys { settings, own, files, fetched, agents } = prepared;
        let (tokens, own) = (Arc::downgrade(tokens), Mutex::new(own));
        let source = Arc::new(KeySource { tokens, mailboxes: mailboxes.to_vec(), own });
        let published = Arc::clone(&source);
        let fetches = (!agents.is_empty()).then(|| {
            JwksThread::start(&settings.jwt, &fetched, agents, move || published.publish())
        });
        let has_files = !files.is_empty();
        let watcher = FileWatcher::new(files, false);
        let mut poller =
            FilePoller { settings, watcher, source: Arc::clone(&source), failure: None };
        let files = has_files.then(|| LookThread::start("keys", move || poller.poll(unix_s())));
        Ok(KeyThread { source, files: files.transpose()?, fetches: fetches.transpose()? })
    }

    /// Has tokens verified with these keys, and the threads look after them. `is_start`: the server
    /// has just started, and waits for documents before it is ready.
    pub fn begin(&self, is_start: bool) {
        let Some(tokens) = self.source.tokens.upgrade() else { return };
        let mut current = lock(&tokens.current);
        current.source = Arc::downgrade(&self.source);
        current.documents = self.fetches.as_ref().map(|fetches| fetches.documents().clone());
        current.started_us = is_start.then(monotonic_us);
        drop(current);
        self.source.publish();
        self.files.iter().for_each(LookThread::begin);
        tokens.refresh();
    }
}

/// Polls the files.
struct FilePoller {
    settings: Settings,
    watcher: FileWatcher,
    source: Arc<KeySource>,
    /// Why the keys could not be read, as the log says it. It says each reason once.
    failure: Option<String>,
}

impl FilePoller {
    fn poll(&mut self, now_unix_s: u64) {
        if self.watcher.look(now_unix_s).is_none() {
            return;
        }
        match read_own(&self.settings) {
            Ok(own) => {
                tracing::info!("the keys that tokens are verified with were read again");
                self.failure = None;
                *lock(&self.source.own) = own;
                self.source.publish();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{World, kind, patient};
    use stentor_access::mint::Signer;
    use stentor_access::{Algorithm, Jwks, Refused};
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
        let prepared = PreparedKeys::read(&Settings::default(), Vec::new()).unwrap();
        let source = KeyThread::start(prepared, &world.shared.tokens, &[]).unwrap().source;
        let mut poller = FilePoller { settings, watcher, source, failure: None };
        poller.poll(100);
        poller.poll(101);
        assert!(poller.failure.is_some());
        assert!(poller.watcher.look(101 + RETRY_S - 1).is_none());
        assert!(poller.watcher.look(101 + RETRY_S).is_some());
    }

    fn document(signer: &Signer, kid: &str) -> Option<Arc<Jwks>> {
        let json = format!(r#"{{"keys":[{}]}}"#, signer.jwk(kid));
        Some(Arc::new(Jwks::parse_published(json.as_bytes()).unwrap()))
    }

    /// Keys of URLs that are never fetched in this test.
    fn begun(tokens: &Arc<TokenState>, urls: &[&str], fetched: Vec<Fetched>) -> KeyThread {
        let mut settings = Settings::default();
        settings.jwt.jwks_urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        let prepared = PreparedKeys::read(&settings, fetched).unwrap();
        let thread = KeyThread::start(prepared, tokens, &[]).unwrap();
        thread.begin(true);
        thread
    }

    #[test]
    fn documents_are_kept_by_url_at_a_reload() {
        let world = World::new(1, kind(), patient());
        let (tokens, signer) = (&world.shared.tokens, Signer::new(Algorithm::Es256));
        let [kept, other] = ["http://127.0.0.1:1/a", "http://127.0.0.1:1/b"];
        let url = kept.parse().unwrap();
        let before = vec![Fetched { url, document: document(&signer, "k") }];
        let token = signer.token(Some("k"), r#"{"exp":9,"stentor":{"read":["/a"]}}"#);
        let _first = begun(tokens, &[kept], before);
        let grant = tokens.keys().verify(&token, 1).unwrap();
        let _second = begun(tokens, &[kept], tokens.fetched());
        assert!(tokens.keys().verify(&token, 1).is_ok());
        assert!(!tokens.keys().is_outstanding() && tokens.not_ready_reason().is_none());
        // While another document is outstanding, its streams stay, and the client tries again.
        let _third = begun(tokens, &[other], tokens.fetched());
        assert!(tokens.keys().has(grant.scope.key()));
        assert_eq!(tokens.keys().verify(&token, 1), Err(Refused::KeyOutstanding));
        assert!(tokens.not_ready_reason().unwrap().detail.contains(other));
    }

    #[test]
    fn only_the_source_that_counts_publishes() {
        let world = World::new(1, kind(), patient());
        let tokens = &world.shared.tokens;
        let [first, second] = [(); 2].map(|()| begun(tokens, &[], Vec::new()));
        let keys = tokens.keys();
        first.source.publish();
        assert!(Arc::ptr_eq(&keys, &tokens.keys()));
        second.source.publish();
        assert!(!Arc::ptr_eq(&keys, &tokens.keys()));
    }
}
