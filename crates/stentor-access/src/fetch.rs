//! Keys of issuers, fetched over HTTP beside everything else.
//!
//! Nobody ever waits for this: whoever verifies a token goes by the keys that are there. Each
//! address has a thread, so that a host that is slow holds up no other. A document is fetched again
//! after a while, and sooner if a token names a key that is not known, but never more often than
//! [`GAP`] says: anyone can name a key. What a host answers is used only if it is a whole document;
//! until then, and when the host is down, slow or talks nonsense, the last good one stays.
//!
//! This crate opens no socket itself: a [`MakeAgent`] says how hosts are reached.
//!
//! `https` is by rustls, with the certificates that this system trusts or those that are
//! configured. Redirects are not followed: they would make the address a matter of somebody else.

use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

use rustls::crypto::aws_lc_rs;
use ureq::Agent;
use ureq::config::Config;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::cache::lock;
use crate::jwks::{Fetched, JWKS_BYTES_MAX, Jwks};
use crate::settings::{JwksUrl, Jwt, ReadFile};

/// Fetches the documents of all URLs that are configured, for as long as it is kept.
pub struct JwksThread {
    documents: JwksDocuments,
    /// Nothing is sent. Once these are dropped, a thread that pauses ends.
    _keep: Vec<Sender<Infallible>>,
}

/// The documents that a [`JwksThread`] has fetched.
#[derive(Clone)]
pub struct JwksDocuments {
    all: Arc<All>,
    /// Wakes each thread.
    wake: Arc<[SyncSender<()>]>,
}

/// Makes an HTTP client.
pub type MakeAgent = fn(Config) -> Agent;

/// What is known of one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetching {
    /// The address.
    pub url: JwksUrl,
    /// How many keys its last good document has; `None` if there was none yet.
    pub keys: Option<usize>,
    /// How often it could not be fetched.
    pub failures: u64,
    /// Why it could not be fetched last, if it could not.
    pub error: Option<String>,
}

/// What all threads share.
struct All {
    states: Mutex<Vec<State>>,
    on_change: Box<dyn Fn() + Send + Sync>,
}

struct State {
    url: JwksUrl,
    document: Option<Arc<Jwks>>,
    failures: u64,
    error: Option<String>,
    /// The server was ready without a document of this URL.
    is_known: bool,
}

impl JwksThread {
    /// Starts the threads, which wait for [`JwksDocuments::refresh`]. They begin with the documents
    /// that are `known`. A thread calls `on_change` whenever a document has changed.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn start(
        jwt: &Jwt,
        known: &[Fetched],
        agents: Vec<Agent>,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<JwksThread> {
        JwksThread::with_times(jwt, known, agents, Times::default(), on_change)
    }

    fn with_times(
        jwt: &Jwt,
        known: &[Fetched],
        agents: Vec<Agent>,
        times: Times,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<JwksThread> {
        let state = |url: &JwksUrl| State::new(url, known.iter().find(|known| known.url == *url));
        let states = Mutex::new(jwt.jwks_urls.iter().map(state).collect());
        let all = Arc::new(All { states, on_change: Box::new(on_change) });
        let refresh = Duration::from_secs(jwt.jwks_refresh_s);
        let (mut wake, mut keep) = (Vec::new(), Vec::new());
        for (place, (url, agent)) in jwt.jwks_urls.iter().zip(agents).enumerate() {
            let ((sender, woken), (keeper, ended)) = (sync_channel(1), channel());
            let (all, url) = (Arc::clone(&all), url.clone());
            let fetcher = Fetcher { place, url, agent, all, woken, ended, times, refresh };
            let thread = thread::Builder::new().name(format!("jwks-{place}"));
            thread.spawn(move || fetcher.run())?;
            wake.push(sender);
            keep.push(keeper);
        }
        Ok(JwksThread { documents: JwksDocuments { all, wake: wake.into() }, _keep: keep })
    }

    /// The documents, also for other threads.
    #[must_use]
    pub fn documents(&self) -> &JwksDocuments {
        &self.documents
    }
}

impl State {
    fn new(url: &JwksUrl, known: Option<&Fetched>) -> State {
        let document = known.and_then(|known| known.document.clone());
        let is_known = known.is_some();
        State { url: url.clone(), document, failures: 0, error: None, is_known }
    }
}

impl JwksDocuments {
    /// Has the documents fetched again, for a token has named a key that is not known. It does not
    /// wait, and may be called for each such token.
    pub fn refresh(&self) {
        for thread in self.wake.iter() {
            // If it fails, the thread is about to fetch, or has ended.
            let _ = thread.try_send(());
        }
    }

    /// The last valid document of each URL.
    #[must_use]
    pub fn fetched(&self) -> Vec<Fetched> {
        let fetched =
            |state: &State| Fetched { url: state.url.clone(), document: state.document.clone() };
        lock(&self.all.states).iter().map(fetched).collect()
    }

    /// The URL whose document a server waits for before it is ready, so long after its start. It
    /// waits for the first fetch; if that fails, for some seconds.
    #[must_use]
    pub fn awaited(&self, waited: Duration) -> Option<JwksUrl> {
        let is_awaited = |state: &&State| {
            let timeout = if state.failures == 0 { FIRST_FETCH } else { READY_WITHOUT };
            state.document.is_none() && !state.is_known && waited < timeout
        };
        lock(&self.all.states).iter().find(is_awaited).map(|state| state.url.clone())
    }

    /// What is known of each address.
    #[must_use]
    pub fn states(&self) -> Vec<Fetching> {
        let states = lock(&self.all.states);
        let fetching = |state: &State| Fetching {
            url: state.url.clone(),
            keys: state.document.as_ref().map(|document| document.count()),
            failures: state.failures,
            error: state.error.clone(),
        };
        states.iter().map(fetching).collect()
    }
}

/// One thread.
struct Fetcher {
    place: usize,
    url: JwksUrl,
    agent: Agent,
    all: Arc<All>,
    woken: Receiver<()>,
    ended: Receiver<Infallible>,
    times: Times,
    refresh: Duration,
}

#[derive(Clone, Copy)]
struct Times {
    /// Between two times that it is fetched, at least.
    gap: Duration,
    /// After a first failure; each that follows doubles it.
    retry: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times { gap: GAP, retry: RETRY }
    }
}

impl Fetcher {
    fn run(self) {
        // Until then, other documents may count.
        if self.woken.recv().is_err() {
            return;
        }
        let mut failures = 0;
        loop {
            // What was asked for before is done by this; what is asked for meanwhile is not, for
            // the answer may be older.
            while self.woken.try_recv().is_ok() {}
            let (quiet, then) = self.fetch(&mut failures);
            // Whatever is asked for in this time is done behind it.
            // mutation: fetch-after-end
            if self.ended.recv_timeout(quiet) == Err(RecvTimeoutError::Disconnected)
                || self.woken.recv_timeout(then) == Err(RecvTimeoutError::Disconnected)
            {
                return;
            }
        }
    }

    /// Fetches the document once, after so many failures in a row. Returns the pause behind it, in
    /// two parts: a call of [`JwksDocuments::refresh`] ends the second one.
    fn fetch(&self, failures: &mut u32) -> (Duration, Duration) {
        let result = fetch(&self.agent, &self.url);
        *failures = if result.is_ok() { 0 } else { *failures + 1 };
        if self.note(result) {
            (self.all.on_change)();
        }
        match *failures {
            0 => (self.times.gap, self.refresh.saturating_sub(self.times.gap)),
            failures => (backoff(self.times.retry, failures, random()), Duration::ZERO),
        }
    }

    /// Takes note of what came of it. Whether the document is another one.
    fn note(&self, result: Result<Jwks, String>) -> bool {
        let url = &self.url;
        let mut states = lock(&self.all.states);
        let state = &mut states[self.place];
        let document = match result {
            Ok(document) => document,
            Err(error) => {
                state.failures += 1;
                // Told once, not for each time it is tried again.
                if state.error.as_ref() != Some(&error) {
                    let keeps =
                        if state.document.is_some() { "; the keys of before stay" } else { "" };
                    tracing::warn!("keys cannot be fetched from {url}: {error}{keeps}");
                }
                state.error = Some(error);
                return false;
            }
        };
        if state.error.take().is_some() {
            tracing::info!("keys are fetched from {url} again");
        }
        if state.document.as_ref().is_some_and(|before| **before == document) {
            return false;
        }
        for reason in document.passed_over() {
            tracing::warn!("of the keys of {url}, {reason}");
        }
        tracing::info!("{} keys were fetched from {url}", document.count());
        state.document = Some(Arc::new(document));
        true
    }
}

/// Fetches each document once, and waits for it: for a command that checks a token.
///
/// # Errors
///
/// If there are no certificates to know hosts by, or a document could not be fetched.
pub fn fetch_once(
    jwt: &Jwt,
    read_file: ReadFile,
    make_agent: MakeAgent,
) -> Result<Vec<Arc<Jwks>>, String> {
    if jwt.jwks_urls.is_empty() {
        return Ok(Vec::new());
    }
    let document = |(url, agent): (&JwksUrl, Agent)| {
        fetch(&agent, url).map(Arc::new).map_err(|error| format!("{url}: {error}"))
    };
    jwt.jwks_urls.iter().zip(agents(jwt, WHOLE, read_file, make_agent)?).map(document).collect()
}

/// # Errors
///
/// Why there is no document, in words for the log.
fn fetch(agent: &Agent, url: &JwksUrl) -> Result<Jwks, String> {
    let mut answer = agent
        .get(url.as_str())
        .header("accept", "application/jwk-set+json, application/json")
        .call()
        .map_err(|error| error.to_string())?;
    match answer.status().as_u16() {
        200 => {}
        status @ 300..=399 => {
            return Err(format!("the answer is {status}, and redirects are not followed"));
        }
        status => return Err(format!("the answer is {status}")),
    }
    let body = answer.body_mut().with_config().limit(JWKS_BYTES_MAX as u64).read_to_vec();
    Jwks::parse_published(&body.map_err(|error| error.to_string())?)
}

/// An HTTP client for each URL, in their order.
///
/// # Errors
///
/// If there are no certificates to know hosts by.
pub fn jwks_agents(
    jwt: &Jwt,
    read_file: ReadFile,
    make_agent: MakeAgent,
) -> Result<Vec<Agent>, String> {
    agents(jwt, WHOLE, read_file, make_agent)
}

fn agents(
    jwt: &Jwt,
    whole: Duration,
    read_file: ReadFile,
    make_agent: impl Fn(Config) -> Agent,
) -> Result<Vec<Agent>, String> {
    let is_https = |url: &JwksUrl| url.as_str().starts_with("https:");
    let setting = "jwt.jwks_ca_file";
    let tls = match jwt.jwks_urls.iter().any(is_https) {
        true => Some(tls_of(jwt.jwks_ca_file.as_deref(), setting, read_file)?),
        false => None,
    };
    let agent = |url| {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(whole))
            .max_response_header_size(HEAD_BYTES_MAX)
            .user_agent(concat!("stentor/", env!("CARGO_PKG_VERSION")));
        let config = match tls.clone().filter(|_| is_https(url)) {
            Some(tls) => config.tls_config(tls),
            // An http address is on this host, and no proxy leads there.
            // mutation: keys-by-proxy
            None => config.proxy(None),
        };
        make_agent(config.build())
    };
    Ok(jwt.jwks_urls.iter().map(agent).collect())
}

/// How a client of hosts begins TLS: it knows them by the certificates in a file, or by those that
/// this system trusts.
///
/// # Errors
///
/// There are none, in words for the log. `setting` is the name of the setting of the file.
pub fn tls_of(
    ca_file: Option<&Path>,
    setting: &str,
    read_file: ReadFile,
) -> Result<TlsConfig, String> {
    let roots = roots_of(ca_file, setting, read_file)?;
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(aws_lc_rs::default_provider().into())
        .root_certs(RootCerts::new_with_certs(&roots))
        .build())
}

/// The certificates by which hosts are known: those in a file, or those that this system trusts.
///
/// # Errors
///
/// As [`tls_of`].
pub fn roots_of(
    ca_file: Option<&Path>,
    setting: &str,
    read_file: ReadFile,
) -> Result<Vec<Certificate<'static>>, String> {
    match ca_file {
        Some(path) => configured(path, read_file).map_err(|error| format!("{setting}: {error}")),
        None => of_this_system(setting),
    }
}

fn configured(path: &Path, read_file: ReadFile) -> Result<Vec<Certificate<'static>>, String> {
    let name = path.display();
    let pem = read_file(path, CA_FILE_BYTES_MAX).map_err(|error| format!("{name}: {error}"))?;
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let roots: Vec<Certificate<'static>> = items.collect();
    if roots.is_empty() {
        return Err(format!("{name}: there is no certificate in it"));
    }
    Ok(roots)
}

fn of_this_system(setting: &str) -> Result<Vec<Certificate<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    let roots: Vec<Certificate<'static>> =
        found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    if roots.is_empty() {
        return Err(format!(
            "this system has no certificates to know hosts by: install ca-certificates, or name a \
             file by {setting}"
        ));
    }
    Ok(roots)
}

/// How long to wait after so many failures: twice as long each time, and a part of it by chance, so
/// that servers that failed together do not come back together.
fn backoff(first: Duration, failures: u32, random: u32) -> Duration {
    let doubled = first.saturating_mul(1 << (failures - 1).min(16)).min(RETRY_MAX.max(first));
    let half = doubled / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Without random numbers all wait alike: no harm is done.
fn random() -> u32 {
    getrandom::u32().unwrap_or_default()
}

impl fmt::Debug for JwksThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JwksThread").field(&self.documents.states()).finish()
    }
}

/// How long a server that starts waits for a first answer of an issuer, and how long after a
/// failure, before it is ready.
const FIRST_FETCH: Duration = Duration::from_secs(30);
const READY_WITHOUT: Duration = Duration::from_secs(10);

/// Issuers answer in a fraction of a second.
const WHOLE: Duration = Duration::from_secs(10);

/// A key that was published a moment ago is known after that time; and a thief who makes up names
/// makes us ask no more often.
pub(crate) const GAP: Duration = Duration::from_secs(10);

const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The certificates that Mozilla trusts take a quarter of a MiB.
const CA_FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
