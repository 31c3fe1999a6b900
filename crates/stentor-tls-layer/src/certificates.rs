//! The certificates that are shown where TLS is spoken: read, looked after, and told of before they
//! expire.
//!
//! What workers need of them is an [`Acceptor`], which does not change: new files make another
//! one, and all are exchanged at once ([`Acceptors`]). Handshakes that are under way end as they
//! began. Files that are no good change nothing: the certificates of before are shown on, whatever
//! has become of the files, expired ones too; the log says so, and so do status and metrics.
//!
//! One thread looks at the files once a second, and reads them again when they change
//! (`file_watcher.rs` of `stentor-io`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::{fmt, mem};
use stentor_config::{PairFiles, Settings, Tls, read_small};
use stentor_io::{Due, FileStates, FileWatcher, LookThread, states_of};
use stentor_io::{User, check_readable, file_state, make_secret, unix_s};
use stentor_tls::{
    Acceptor, Certificates, ClientAuth, KeyKind, Pair, PemPair, Settings as Handshakes,
    TICKET_SECRET_BYTES_MIN, Tickets,
};
use zeroize::Zeroizing;

/// What begins handshakes, for all workers.
#[derive(Debug, Default)]
pub struct Acceptors(RwLock<AcceptorsState>);

#[derive(Debug, Default)]
struct AcceptorsState {
    current: Prepared,
    /// Why the files as they are now cannot be used, if they cannot.
    failure: Option<String>,
    reloads: u64,
    failures: u64,
}

/// What was made of the files of some settings.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    public: Option<Acceptor>,
    control: Option<Acceptor>,
    certificates: Option<Arc<Certificates>>,
    /// Keys of tickets that no file has. They live as long as the process.
    random_tickets: Option<Arc<Tickets>>,
    /// What they were read for.
    tls: Tls,
    /// The files, and what they were like before they were read.
    files: FileStates,
    warnings: Vec<String>,
    /// The pairs that cannot be used. If the server read a certificate from such a pair earlier, it
    /// still presents that.
    unusable: Vec<UnusablePair>,
}

/// A pair of files that cannot be used, and a sentence for each reason.
type UnusablePair = (PairFiles, Vec<String>);

/// Files that cannot be used, a sentence each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unusable(Vec<String>);

/// A certificate, for those who ask.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct ShownCertificate {
    /// Its file.
    pub file: String,
    /// The names it is for.
    pub names: Vec<String>,
    /// `ecdsa`, `ed25519` or `rsa`.
    pub key: &'static str,
    /// When it or one of its chain expires, in seconds since 1970.
    pub expires_unix_s: i64,
    /// In how many whole days that is; less than nought if it is over.
    pub days_left: i64,
}

/// How it is with all of them.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct CertificatesReport {
    /// The certificates that are shown now.
    pub certificates: Vec<ShownCertificate>,
    /// Days until the first of them expires.
    pub days_left: i64,
    /// How often other ones were read.
    pub reloads: u64,
    /// How often that failed.
    pub reload_failures: u64,
    /// Why the files as they are now are not used; `null`: they are.
    pub failure: Option<String>,
}

/// What becomes of a file of tickets that is not there.
#[derive(Clone, Copy, Debug)]
pub enum MissingTickets<'a> {
    /// It is made, and belongs to that user if there is one.
    Made(Option<&'a User>),
    /// It would be.
    Left,
}

impl Prepared {
    /// Reads what the settings name. Nothing is read where there is no certificate. A pair that
    /// cannot be used stops no other: the one `before` of its file stays. So do random keys of
    /// tickets.
    ///
    /// # Errors
    /// What is wrong with which file, if no pair can be used, or if a file is bad that is for all.
    pub fn read(
        tls: &Tls,
        now_unix_s: u64,
        missing: MissingTickets<'_>,
        before: Option<&Prepared>,
    ) -> Result<Prepared, Unusable> {
        let pairs = tls.pairs();
        if pairs.is_empty() {
            return Ok(Prepared::default());
        }
        let mut wrong = Vec::new();
        let secrets = secrets(tls, missing).unwrap_or_else(|reason| {
            wrong.push(reason);
            None
        });
        // Before they are read: what changes meanwhile is read again.
        let files = states_of(files_of(tls));
        let known = before.and_then(|before| before.certificates.as_deref());
        let (certificates, unusable) = match read_pairs(&pairs, now_unix_s, known) {
            Ok((certificates, unusable)) => (Some(certificates), unusable),
            Err(reasons) => {
                wrong.extend(reasons);
                (None, Vec::new())
            }
        };
        let client_auth = tls.control_client_ca.as_ref().map(|file| {
            let pem = read_small(file).map(|pem| pem.to_vec()).unwrap_or_else(|reason| {
                wrong.push(reason);
                Vec::new()
            });
            ClientAuth { file: file.clone(), pem, required: true }
        });
        let is_random = secrets.is_none();
        let random = before.and_then(|before| before.random_tickets.clone());
        let tickets = tickets(secrets, random).map_err(|reason| wrong.push(reason)).ok();
        let (Some(certificates), Some(tickets), true) = (certificates, tickets, wrong.is_empty())
        else {
            return Err(Unusable(wrong));
        };
        let certificates = Arc::new(certificates);
        let random_tickets = is_random.then(|| Arc::clone(&tickets));
        let public = Handshakes {
            certificates: Arc::clone(&certificates),
            tickets: Some(tickets),
            oldest: tls.min_version,
            alpn: vec![b"http/1.1".to_vec()],
            client_auth: None,
        };
        let control = Handshakes { client_auth, ..public.clone() };
        let made =
            |of: &Handshakes| Acceptor::new(of).map(Some).map_err(|reason| Unusable(vec![reason]));
        Ok(Prepared {
            public: made(&public)?,
            control: made(&control)?,
            warnings: warnings(&pairs, &certificates),
            unusable,
            tls: tls.clone(),
            certificates: Some(certificates),
            random_tickets,
            files,
        })
    }

    /// What can be said of each certificate.
    #[must_use]
    pub fn shown(&self, now_unix_s: u64) -> Vec<ShownCertificate> {
        let pairs = self.certificates.iter().flat_map(|certificates| certificates.pairs());
        pairs.map(|pair| ShownCertificate::of(pair, now_unix_s)).collect()
    }

    /// What is not as it should be, and works all the same.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns only the keys of tickets, which another process of this server used before.
    ///
    /// # Errors
    /// It is no secret of tickets.
    pub fn of_tickets(secret: Zeroizing<Vec<u8>>) -> Result<Prepared, Unusable> {
        let tickets = Tickets::continued(secret).map_err(|reason| Unusable(vec![reason]))?;
        Ok(Prepared { random_tickets: Some(Arc::new(tickets)), ..Prepared::default() })
    }

    /// The pairs of its settings for which no valid certificate is presented at this time.
    #[must_use]
    pub fn left_out(&self, now_unix_s: u64) -> Vec<PairFiles> {
        let is_valid = |files: &PairFiles| {
            self.pair_of(files).is_some_and(|pair| pair.days_left(now_unix_s) >= 0)
        };
        self.tls.pairs().into_iter().filter(|files| !is_valid(files)).collect()
    }

    fn pair_of(&self, files: &PairFiles) -> Option<&Pair> {
        let mut pairs = self.certificates.iter().flat_map(|certificates| certificates.pairs());
        pairs.find(|pair| pair.file() == files.certificate)
    }

    /// Rejects pairs that cannot be used, for a server that already runs with other ones. A pair
    /// that it has `left_out` too takes nothing away from clients.
    ///
    /// # Errors
    /// Why the other pairs cannot be used.
    pub fn check_pairs(&self, left_out: &[PairFiles]) -> Result<(), Unusable> {
        // mutation: bad-key-at-reload
        let rejected = self.unusable.iter().filter(|(files, _)| !left_out.contains(files));
        let reasons: Vec<String> = rejected.flat_map(|(_, reasons)| reasons.clone()).collect();
        if reasons.is_empty() { Ok(()) } else { Err(Unusable(reasons)) }
    }

    /// Which pairs cannot be used, and why.
    pub fn unusable(&self) -> Option<Unusable> {
        let reasons = self.unusable.iter().flat_map(|(_, reasons)| reasons.iter().cloned());
        (!self.unusable.is_empty()).then(|| Unusable(reasons.collect()))
    }

    /// Says in the log what there is.
    fn tell(&self, now_unix_s: u64) {
        for shown in self.shown(now_unix_s) {
            tracing::info!("the certificate in {shown}");
        }
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
        for (files, reasons) in &self.unusable {
            let reasons = reasons.join("; ");
            match self.pair_of(files).is_some() {
                true => tracing::error!(
                    "a certificate cannot be renewed, and the one before is presented: {reasons}"
                ),
                false => {
                    tracing::error!("a certificate cannot be used, and is left out: {reasons}");
                }
            }
        }
    }
}

/// Reads the files that settings name, as a start would, and makes nothing.
///
/// # Errors
/// What is wrong with which file.
pub fn inspect(settings: &Settings, now_unix_s: u64) -> Result<Prepared, Unusable> {
    Prepared::read(&settings.tls, now_unix_s, MissingTickets::Left, None)
}

impl Acceptors {
    /// Goes by what was read.
    pub fn new(prepared: Prepared) -> Acceptors {
        prepared.tell(unix_s());
        let failure = prepared.unusable().map(|unusable| unusable.to_string());
        Acceptors(RwLock::new(AcceptorsState {
            current: prepared,
            failure,
            reloads: 0,
            failures: 0,
        }))
    }

    /// Of one that was made elsewhere.
    #[cfg(feature = "check")]
    pub fn of(acceptor: &Acceptor) -> Acceptors {
        let (public, control) = (Some(acceptor.clone()), Some(acceptor.clone()));
        let current = Prepared { public, control, ..Prepared::default() };
        Acceptors(RwLock::new(AcceptorsState { current, ..AcceptorsState::default() }))
    }

    /// What begins handshakes of the public listeners. `None`: there is no certificate.
    #[must_use]
    pub fn public(&self) -> Option<Acceptor> {
        self.state().current.public.clone()
    }

    /// Likewise of the control listeners.
    #[must_use]
    pub fn control(&self) -> Option<Acceptor> {
        self.state().current.control.clone()
    }

    /// The pairs of the current settings for which no valid certificate is presented.
    #[must_use]
    pub fn left_out(&self, now_unix_s: u64) -> Vec<PairFiles> {
        self.state().current.left_out(now_unix_s)
    }

    /// The secret of tickets, if no file has it.
    #[must_use]
    pub fn random_ticket_secret(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.state().current.random_tickets.as_ref()?.random_secret().cloned()
    }

    /// Reads the files of settings for a reload.
    ///
    /// # Errors
    /// A pair cannot be used. Only a pair that is not presented now anyway may stay so.
    pub fn reread(&self, tls: &Tls, now_unix_s: u64) -> Result<Prepared, Unusable> {
        let left_out = self.left_out(now_unix_s);
        let prepared = self.read(tls, now_unix_s)?;
        prepared.check_pairs(&left_out)?;
        Ok(prepared)
    }

    /// Reads the files of settings, and keeps the current certificate of each unusable pair.
    fn read(&self, tls: &Tls, now_unix_s: u64) -> Result<Prepared, Unusable> {
        let before = self.state().current.clone();
        Prepared::read(tls, now_unix_s, MissingTickets::Made(None), Some(&before))
    }

    /// Begins all further handshakes with these.
    pub fn set(&self, prepared: Prepared, now_unix_s: u64) {
        self.install(prepared, now_unix_s, false);
    }

    /// Installs what was read. A renewal is dropped if other settings apply by now.
    fn install(&self, prepared: Prepared, now_unix_s: u64, is_renewal: bool) {
        let unusable = prepared.unusable().map(|unusable| unusable.to_string());
        // Each handshake reads the current ones, so nothing is logged under the lock.
        let installed = prepared.clone();
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // mutation: outdated-watch
        if is_renewal && state.current.tls != prepared.tls {
            return;
        }
        state.current = prepared;
        state.reloads += 1;
        state.note_failure(unusable);
        drop(state);
        if is_renewal {
            tracing::info!("certificates were read again");
        }
        installed.tell(now_unix_s);
    }

    /// Records that the files cannot be used. The log reports each reason once.
    fn fail(&self, unusable: &Unusable) {
        let reason = unusable.to_string();
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = state.note_failure(Some(reason.clone()));
        drop(state);
        if is_other {
            tracing::error!("the certificates stay as they are: {reason}");
        }
    }

    /// The state of all certificates; `None`: there are none.
    pub fn report(&self, now_unix_s: u64) -> Option<CertificatesReport> {
        let state = self.state();
        let certificates = state.current.shown(now_unix_s);
        Some(CertificatesReport {
            days_left: certificates.iter().map(|shown| shown.days_left).min()?,
            certificates,
            reloads: state.reloads,
            reload_failures: state.failures,
            failure: state.failure.clone(),
        })
    }

    fn state(&self) -> RwLockReadGuard<'_, AcceptorsState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcceptorsState {
    /// Records why the files cannot be used, if they cannot. Returns whether the reason is new.
    fn note_failure(&mut self, reason: Option<String>) -> bool {
        let is_other = reason.is_some() && self.failure != reason;
        self.failures += u64::from(is_other);
        self.failure = reason;
        is_other
    }
}

/// Starts a thread that looks after the files, if there are any. They were read last for what was
/// `prepared`. The thread begins when the certificates of these settings are in use.
///
/// # Errors
/// The system refuses a thread.
pub fn start_thread(
    tls: &Tls,
    acceptors: &Arc<Acceptors>,
    prepared: &Prepared,
) -> io::Result<Option<LookThread>> {
    if tls.pairs().is_empty() {
        return Ok(None);
    }
    let mut looker = Looker::new(tls.clone(), acceptors, prepared);
    let mut is_first = true;
    let look = move || {
        if mem::take(&mut is_first) {
            looker.check_readable();
        }
        looker.look(unix_s());
    };
    LookThread::start("certificates", look).map(Some)
}

/// The thread.
struct Looker {
    tls: Tls,
    acceptors: Weak<Acceptors>,
    watcher: FileWatcher,
    /// How many days were left when that was last said.
    told_days: Option<i64>,
}

impl Looker {
    fn new(tls: Tls, acceptors: &Arc<Acceptors>, prepared: &Prepared) -> Looker {
        let watcher = FileWatcher::new(prepared.files.clone(), !prepared.unusable.is_empty());
        Looker { tls, acceptors: Arc::downgrade(acceptors), watcher, told_days: None }
    }

    /// What root could read at the start, its successor must be able to read when it is renewed.
    fn check_readable(&self) {
        for file in self.watcher.files() {
            if let Err(error) = check_readable(file) {
                tracing::warn!(
                    "{}: it cannot be read any more by whom the server runs as, so a new one will \
                     not be taken without a restart: {error}",
                    file.display()
                );
            }
        }
    }

    fn look(&mut self, now_unix_s: u64) {
        let Some(acceptors) = self.acceptors.upgrade() else { return };
        self.tell_days(&acceptors, now_unix_s);
        let Some(due) = self.watcher.look(now_unix_s) else { return };
        match acceptors.read(&self.tls, now_unix_s) {
            Ok(prepared) => {
                let reason = prepared.unusable().map(|unusable| unusable.to_string());
                if reason.is_some() {
                    self.watcher.failed(now_unix_s);
                }
                if due == Due::Changed || reason != acceptors.state().failure {
                    self.told_days = None;
                    acceptors.install(prepared, now_unix_s, true);
                }
            }
            Err(unusable) => {
                self.watcher.failed(now_unix_s);
                acceptors.fail(&unusable);
            }
        }
    }

    /// Says once a day that one is about to expire, or has.
    fn tell_days(&mut self, acceptors: &Acceptors, now_unix_s: u64) {
        let all = acceptors.state().current.shown(now_unix_s);
        let Some(first) = all.iter().min_by_key(|shown| shown.days_left) else { return };
        let days = first.days_left;
        if days >= WARN_DAYS || self.told_days == Some(days) {
            return;
        }
        self.told_days = Some(days);
        let all = all.iter().filter(|shown| shown.days_left < WARN_DAYS);
        for shown in all {
            match shown.days_left {
                0.. => tracing::warn!("it is time for another certificate: {shown}"),
                _ => tracing::error!("clients refuse an expired certificate: {shown}"),
            }
        }
    }
}

/// All files that the settings name.
fn files_of(tls: &Tls) -> Vec<PathBuf> {
    let pairs = tls.pairs().into_iter().flat_map(|pair| [pair.certificate, pair.key]);
    let others = tls.ticket_secrets.iter().chain(&tls.control_client_ca).cloned();
    pairs.chain(others).collect()
}

/// Reads all pairs. One that cannot be used is the one of its file `before`, or is left out.
///
/// # Errors
/// None can be used.
fn read_pairs(
    all: &[PairFiles],
    now_unix_s: u64,
    before: Option<&Certificates>,
) -> Result<(Certificates, Vec<UnusablePair>), Vec<String>> {
    let (mut pairs, mut unusable, mut good) = (Vec::new(), Vec::new(), 0);
    for files in all {
        match read_pair(files, now_unix_s) {
            Ok(pair) => {
                good += 1;
                pairs.push(pair);
            }
            Err(reasons) => {
                unusable.push((files.clone(), reasons));
                let mut known = before.iter().flat_map(|before| before.pairs());
                // mutation: lost-pair
                pairs.extend(known.find(|pair| pair.file() == files.certificate).cloned());
            }
        }
    }
    // mutation: one-bad-pair
    if good == 0 {
        return Err(unusable.into_iter().flat_map(|(_, reasons)| reasons).collect());
    }
    Ok((Certificates::new(pairs), unusable))
}

fn read_pair(files: &PairFiles, now_unix_s: u64) -> Result<Pair, Vec<String>> {
    let (certificate, key) = match (read_small(&files.certificate), read_small(&files.key)) {
        (Ok(certificate), Ok(key)) => (certificate, key),
        (certificate, key) => {
            return Err([certificate.err(), key.err()].into_iter().flatten().collect());
        }
    };
    let pem = PemPair { certificate: (&files.certificate, &certificate), key: (&files.key, &key) };
    Pair::read(&pem, now_unix_s).map_err(|reason| vec![reason])
}

/// The secrets of tickets with their files; `None`: there is no file.
type Secrets = Option<Vec<(PathBuf, Zeroizing<Vec<u8>>)>>;

fn secrets(tls: &Tls, missing: MissingTickets<'_>) -> Result<Secrets, String> {
    let Some(first) = tls.ticket_secrets.first() else { return Ok(None) };
    if file_state(first).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        match missing {
            MissingTickets::Made(user) => make_ticket_secret(first, user)
                .map_err(|error| format!("{}: it cannot be made: {error}", first.display()))?,
            MissingTickets::Left => {
                let directory = first.parent().unwrap_or(Path::new("/"));
                return file_state(directory).map(|_| None).map_err(|error| {
                    format!("{}: it could not be made: {error}", first.display())
                });
            }
        }
    }
    let all = tls.ticket_secrets.iter().map(|file| Ok((file.clone(), read_small(file)?)));
    all.collect::<Result<_, _>>().map(Some)
}

/// Keys of tickets: of the secrets in files, or those that were `random` before, or new ones.
fn tickets(secrets: Secrets, random: Option<Arc<Tickets>>) -> Result<Arc<Tickets>, String> {
    let Some(secrets) = secrets else {
        return random.map_or_else(|| Tickets::random().map(Arc::new), Ok);
    };
    let named: Vec<(&Path, &[u8])> =
        secrets.iter().map(|(file, bytes)| (&**file, &***bytes)).collect();
    Tickets::new(&named).map(Arc::new)
}

/// Makes a secret for tickets, which is its owner's alone.
fn make_ticket_secret(path: &Path, user: Option<&User>) -> io::Result<()> {
    let mut secret = Zeroizing::new([0; TICKET_SECRET_BYTES_MIN]);
    getrandom::fill(&mut *secret).map_err(io::Error::other)?;
    make_secret(path, &*secret, user)
}

/// What is not as it should be, and works all the same.
fn warnings(pairs: &[PairFiles], certificates: &Certificates) -> Vec<String> {
    let mut warnings = Vec::new();
    for pair in certificates.pairs() {
        let Some(files) = pairs.iter().find(|files| files.certificate == pair.file()) else {
            continue;
        };
        let permissions = file_state(&files.key).map_or(0, |state| state.permissions);
        if permissions & 0o004 != 0 {
            warnings.push(format!(
                "{}: everybody on this host can read this private key (mode {permissions:04o})",
                files.key.display()
            ));
        }
        if pair.names().is_empty() {
            warnings.push(format!(
                "{}: the certificate has no name that a client would look for (subjectAltName)",
                files.certificate.display()
            ));
        }
    }
    warnings
}

impl ShownCertificate {
    fn of(pair: &Pair, now_unix_s: u64) -> ShownCertificate {
        let key = match pair.key_kind() {
            KeyKind::Ecdsa => "ecdsa",
            KeyKind::Ed25519 => "ed25519",
            KeyKind::Rsa => "rsa",
        };
        ShownCertificate {
            file: pair.file().display().to_string(),
            names: pair.names().to_vec(),
            key,
            expires_unix_s: pair.not_after_unix_s(),
            days_left: pair.days_left(now_unix_s),
        }
    }
}

impl fmt::Display for ShownCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShownCertificate { file, names, key, days_left, .. } = self;
        let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
        write!(f, "{file} for {names} ({key}): ")?;
        match days_left {
            ..0 => f.write_str("it has expired"),
            0 => f.write_str("less than a day left"),
            1 => f.write_str("1 day left"),
            days => write!(f, "{days} days left"),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Unusable {}

/// From when on it is said that a certificate is about to expire. Those that are valid for 90 days
/// are renewed when 30 are left, so something is wrong by then.
const WARN_DAYS: i64 = 14;

#[cfg(test)]
mod tests;
