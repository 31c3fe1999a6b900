//! The process's side of the server: binding, starting the workers, and the handle to all of it.
//!
//! The control listeners have a worker of their own. Whatever readers use up of a public worker,
//! descriptors or time, whoever publishes or operates the server does not wait for it.

use crate::access::{CONTROL, MONITOR, PUBLIC};
use crate::access_log::AccessLog;
use crate::addresses::AddressCounts;
use crate::compressor::{Compressor, Jobs};
use crate::config::{ControlAddress, Settings, Store};
use crate::context::Shared;
use crate::endpoint;
use crate::files::{FileCache, FileLoader, check_roots};
use crate::guard::{Guard, MemoryState};
use crate::keys::{self, KeyThread};
use crate::limits::{FILES_RESERVED, PANICS_MAX, TOKENS_BYTES_MAX};
use crate::mailbox::{Mailbox, Order};
use crate::order::{CommitError, InMemory, Outcome, ReturnAddress, Sequencer};
use crate::stats::Stats;
use crate::store::{Loaded, StoreState, Writer, load};
use crate::turns::Turns;
use crate::user::{become_user, user_named};
use crate::worker::Worker;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};
use stentor_access::{Cache, LoadError};
use stentor_hub::{Applied, Draft, Epoch, Hub, Message, Op, Precondition, Published};
use stentor_io::{
    BindError, Epoll, HostDisk, Inherited, Listener, Reservation, Role, SocketName, User,
    release_memory,
};
use stentor_store::{OpenError, Recovery, Settings as StoreSettings};
use stentor_wire::target::TopicName;

/// A running server. Dropping it leaves the workers running; [`Server::drain`] and
/// [`Server::wait`] end them.
pub struct Server {
    shared: Arc<Shared>,
    settings: Settings,
    public: Vec<SocketAddr>,
    control: Vec<ControlAddress>,
    monitor: Vec<ControlAddress>,
    mailboxes: Vec<Arc<Mailbox>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Who looks after the keys of tokens, if that is needed.
    keys: Option<KeyThread>,
    /// Who looks after memory.
    _guard: Option<Guard>,
    /// The one that writes to the store, if there is one.
    writer: Option<JoinHandle<()>>,
}

/// The log files of a running server.
#[derive(Clone, Debug)]
pub struct LogFiles(Arc<AccessLog>);

impl LogFiles {
    /// Has them opened anew by their names.
    pub fn reopen(&self) {
        self.0.reopen();
    }
}

/// Why the server did not start. Nothing of it is left.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(BindError),
    /// The process was started with a socket that no setting names.
    Inherited(SocketName),
    /// A directory whose files are to be served cannot be opened; the error names it.
    Files(io::Error),
    /// The file of the access log cannot be opened, or nobody can be had to write it.
    AccessLog(String),
    /// The user to run as is not there, or this process may not become it.
    User(String),
    /// The keys that tokens are verified with cannot be had.
    Keys(LoadError),
    /// The store in this directory cannot be read, or not be written to.
    Store(PathBuf, OpenError),
    /// The host refused something else: files, threads, memory.
    Host(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Bind(error) => error.fmt(f),
            StartError::Inherited(name) => write!(
                f,
                "the process was given a socket that listens on {name} (LISTEN_FDS), which is none \
                 of the addresses it is to listen on: name it in listen, control or monitor.listen"
            ),
            StartError::Files(error) => error.fmt(f),
            StartError::Keys(error) => error.fmt(f),
            StartError::User(reason) | StartError::AccessLog(reason) => f.write_str(reason),
            StartError::Store(path, error) => {
                let path = path.display();
                write!(f, "the store in {path}: {error}")?;
                match error {
                    OpenError::Damaged(_) | OpenError::Refused { .. } => write!(
                        f,
                        "; stentor store check {path} lists all that is damaged, and stentor store \
                         repair {path} keeps what is not"
                    ),
                    OpenError::Disk(_) | OpenError::Version { .. } => Ok(()),
                }
            }
            StartError::Host(error) => write!(f, "the host refused to start a worker: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<BindError> for StartError {
    fn from(error: BindError) -> StartError {
        StartError::Bind(error)
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::Host(error)
    }
}

/// Where the listeners of the workers go.
#[derive(Debug)]
struct Addresses(Vec<(Place, Role)>, Turns);

#[derive(Debug)]
enum Place {
    Tcp(Reservation),
    Unix(PathBuf),
    Inherited(Inherited),
}

/// What a worker is there for.
#[derive(Clone, Copy, Debug)]
enum Post {
    /// One of those that have the public listeners, with its number.
    Public(usize),
    /// The one that has the control listeners and the monitor's.
    Control,
}

impl Post {
    /// A worker for each post that the settings ask for.
    fn all(settings: &Settings) -> Vec<Post> {
        let public = if settings.listen.is_empty() { 0 } else { settings.workers };
        let operators = settings.control.len() + settings.monitor.len();
        let control = (operators > 0).then_some(Post::Control);
        (0..public).map(Post::Public).chain(control).collect()
    }

    fn is_public(self) -> bool {
        matches!(self, Post::Public(_))
    }
}

/// The name of the worker's thread.
impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Post::Public(index) => write!(f, "worker-{index}"),
            Post::Control => f.write_str("control"),
        }
    }
}

/// Binds everything and starts the workers. Nothing is half started: no worker accepts before
/// all have bound and no thread has a privilege left, if there is a user to run as; and any error
/// leaves no listener behind. `inherited` are sockets that this process was started with; they take
/// the place of listeners at their addresses.
///
/// # Errors
/// [`StartError`], which says which address or what of the host was refused.
pub fn start(settings: Settings, inherited: Vec<Inherited>) -> Result<Server, StartError> {
    // Every worker's limit; a limit that cannot be raised only means fewer connections each.
    let _ = stentor_io::raise_open_files_limit();
    let user = settings.user.as_deref().map(user_named).transpose()?;
    let addresses = Arc::new(Addresses::reserve(&settings, inherited)?);
    let posts = Post::all(&settings);
    let workers: Vec<Arc<Stats>> = posts.iter().map(|_| Arc::default()).collect();
    // Before any worker has a file table of its own: the tables are copies, and all must hold
    // every worker's waker.
    let mailboxes =
        posts.iter().map(|_| Mailbox::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
    let (recovery, epoch) = open_store(&settings, user.as_ref())?;
    let hub = empty_hub(&settings, epoch, recovery.is_some());
    let store = recovery.is_some().then(|| Arc::new(StoreState::new()));
    check_files(&settings)?;
    let (compressor, jobs) = Compressor::new();
    let shared = Arc::new(Shared {
        hub: Arc::new(hub),
        sequencer: sequencer(store.as_deref()),
        store,
        compressor,
        file_cache: Arc::new(FileCache::new()?),
        access_log: AccessLog::of(&settings.log),
        client: endpoint::client::module(stentor_io::unix_s()),
        addresses: AddressCounts::new(),
        memory: MemoryState::default(),
        keys: Mutex::new(keys::load(&settings.tokens).map_err(StartError::Keys)?),
        wants_keys: AtomicBool::new(false),
        tokens: Cache::new(TOKENS_BYTES_MAX).map_err(io::Error::other)?,
        workers,
        workers_public: posts.iter().filter(|post| matches!(post, Post::Public(_))).count(),
        started_unix_s: stentor_io::unix_s(),
        is_stopping: AtomicBool::new(false),
    });
    let mut server = Server {
        shared,
        public: addresses.of(PUBLIC).filter_map(|address| address.tcp()).collect(),
        control: addresses.of(CONTROL).collect(),
        monitor: addresses.of(MONITOR).collect(),
        mailboxes,
        threads: Vec::new(),
        writer: None,
        keys: None,
        _guard: None,
        settings,
    };
    let starters = server.start_workers(&posts, &addresses, user.as_ref());
    let starters = starters.and_then(|starters| {
        server.lay_down_privileges(user.as_ref(), jobs)?;
        if let Some(recovery) = recovery {
            // Operators are answered meanwhile.
            let operators = posts.iter().zip(&starters).filter(|(post, _)| !post.is_public());
            operators.for_each(|(_, starter)| starter.send(()).unwrap_or_default());
            server.read_store(recovery)?;
        }
        Ok(starters)
    });
    match starters {
        // A worker that has died says so at the end; one that was told is told again.
        Ok(starters) => starters.iter().for_each(|starter| starter.send(()).unwrap_or_default()),
        Err(error) => {
            // Those that have bound were told nothing, and end; or they serve operators.
            server.drain();
            let _ = server.wait();
            return Err(error);
        }
    }
    server.start_lookers()?;
    Ok(server)
}

/// The hub, before anything is read into it.
fn empty_hub(settings: &Settings, epoch: Epoch, is_stored: bool) -> Hub {
    let limits = stentor_hub::Limits {
        topics_max: settings.limits.topics_max,
        message_bytes_max: settings.limits.message_bytes_max,
    };
    // A store has the rules of its time, too.
    let rules = if is_stored { Vec::new() } else { settings.topics.clone() };
    Hub::new(epoch, rules, limits)
}

/// Opens the store, if there is one, and says which life of the sequence it goes on with.
fn open_store(
    settings: &Settings,
    user: Option<&User>,
) -> Result<(Option<Recovery<HostDisk>>, Epoch), StartError> {
    let Some(path) = &settings.store.path else { return Ok((None, Epoch::random())) };
    let told = |error| StartError::Store(path.clone(), error);
    let disk = HostDisk::open(path, user).map_err(|error| told(error.into()))?;
    let recovery = Recovery::open(disk).map_err(told)?;
    let epoch = recovery.continued_epoch().map_or_else(Epoch::random, Epoch::from_number);
    Ok((Some(recovery), epoch))
}

/// Who gives changes their places.
fn sequencer(store: Option<&StoreState>) -> Box<dyn Sequencer> {
    match store {
        Some(store) => Box::new(Arc::clone(&store.intake)),
        None => Box::new(InMemory),
    }
}

/// Whether all directories whose files are to be served can be opened.
fn check_files(settings: &Settings) -> Result<(), StartError> {
    check_roots(&settings.mounts).map_err(|error| match &settings.user {
        Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
            let reason = format!("{error}; the server runs as user '{user}', who must be let in");
            StartError::Files(io::Error::new(error.kind(), reason))
        }
        _ => StartError::Files(error),
    })
}

impl Server {
    /// The public addresses, as they were really bound.
    #[must_use]
    pub fn public(&self) -> &[SocketAddr] {
        &self.public
    }

    /// The control addresses, as they were really bound.
    #[must_use]
    pub fn control(&self) -> &[ControlAddress] {
        &self.control
    }

    /// The monitor addresses, as they were really bound.
    #[must_use]
    pub fn monitor(&self) -> &[ControlAddress] {
        &self.monitor
    }

    /// How many workers there are for the public addresses; one more has the control addresses.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers_public
    }

    /// The value of a topic.
    #[must_use]
    pub fn value(&self, topic: &TopicName<'_>) -> Option<Arc<Message>> {
        self.shared.hub.value(topic.as_str())
    }

    /// Publishes from within the process.
    ///
    /// # Errors
    /// [`CommitError`], which says why the message was not published.
    pub fn publish(&self, topic: TopicName<'_>, draft: Draft) -> Result<Published, CommitError> {
        match self.commit(Op::Put(topic, draft))? {
            Applied::Put(published) => Ok(published),
            other => unreachable!("a message is published or refused: {other:?}"),
        }
    }

    /// Deletes a topic from within the process.
    ///
    /// # Errors
    /// [`CommitError`], which says why it was not deleted.
    pub fn delete(&self, topic: TopicName<'_>) -> Result<(), CommitError> {
        self.commit(Op::Delete(topic)).map(drop)
    }

    /// Has a change made, and waits until it is known what came of it.
    fn commit(&self, op: Op<'_>) -> Outcome {
        let (sender, outcome) = mpsc::channel();
        let back = || ReturnAddress::Thread(sender.clone());
        let now = self.shared.commit(op, Precondition::None, stentor_io::unix_s(), &back);
        now.unwrap_or_else(|| outcome.recv().unwrap_or(Err(CommitError::Failed)))
    }

    /// Goes by other settings from now on, on every worker. Returns the names of the settings that
    /// differ but only count from the next start.
    ///
    /// # Errors
    /// A directory whose files are to be served cannot be opened: nothing has changed.
    pub fn reload(&mut self, settings: Settings) -> Result<Vec<String>, StartError> {
        let running = &self.settings;
        let user = running.user.clone();
        let fixed = [
            ("listen", running.listen != settings.listen),
            ("control", running.control != settings.control),
            ("monitor.listen", running.monitor != settings.monitor),
            ("workers", running.workers != settings.workers),
            ("pin", running.pin != settings.pin),
            ("user", user != settings.user),
            ("store.path", running.store.path != settings.store.path),
            ("log.format", running.log.format != settings.log.format),
            ("log.access", running.log.access != settings.log.access),
            ("log.access_format", running.log.access_format != settings.log.access_format),
            (
                "limits.message_bytes_max",
                running.limits.message_bytes_max != settings.limits.message_bytes_max,
            ),
            (
                "limits.connections_max",
                running.limits.connections_max != settings.limits.connections_max,
            ),
            ("limits.topics_max", running.limits.topics_max != settings.limits.topics_max),
        ];
        let mut settings = Settings {
            listen: running.listen.clone(),
            control: running.control.clone(),
            monitor: running.monitor.clone(),
            workers: running.workers,
            pin: running.pin,
            user,
            store: Store { path: running.store.path.clone(), ..settings.store },
            ..settings
        };
        check_files(&settings)?;
        let keys = KeyThread::reload(self.keys.as_ref(), &settings.tokens);
        let keys = keys.map_err(StartError::Keys)?;
        settings.log.format = running.log.format;
        settings.log.access.clone_from(&running.log.access);
        settings.log.access_format = running.log.access_format;
        settings.limits.message_bytes_max = running.limits.message_bytes_max;
        settings.limits.topics_max = running.limits.topics_max;
        settings.limits.connections_max = running.limits.connections_max;
        self.commit(Op::Rules(settings.rules())).map_err(|error| {
            StartError::Host(io::Error::other(format!("the rules of topics: {error}")))
        })?;
        self.shared.memory.configure(&settings);
        self.shared.file_cache.reload(&settings.mounts, &settings.files);
        let before = self.keys.take();
        self.keys = KeyThread::start(&settings.tokens, &self.shared, &self.mailboxes, before)?;
        self.settings = settings;
        self.start_file_loader();
        let settings = Arc::new(self.settings.clone());
        keys::tell(&self.shared, &self.mailboxes, &keys);
        for mailbox in &self.mailboxes {
            mailbox.put(Order::Reload(Arc::clone(&settings)));
        }
        let differ = fixed.iter().filter(|(_, differs)| *differs);
        Ok(differ.map(|(name, _)| (*name).to_owned()).collect())
    }

    /// What opens log files anew, once they were renamed. `None`: there are none.
    #[must_use]
    pub fn log_files(&self) -> Option<LogFiles> {
        self.shared.access_log.clone().map(LogFiles)
    }

    /// How long a stop is to be announced before it begins.
    #[must_use]
    pub fn drain_announce(&self) -> Duration {
        Duration::from_millis(self.settings.drain_announce_ms)
    }

    /// Says that a stop is coming, for those who ask whether this server is ready. It serves on.
    pub fn announce_stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Begins a graceful stop: no connection begins any more, what was asked is answered, and the
    /// workers end when their connections have, or after the drain time.
    pub fn drain(&self) {
        self.announce_stop();
        for mailbox in &self.mailboxes {
            mailbox.put(Order::Drain);
        }
    }

    /// Waits until all workers have ended.
    ///
    /// # Errors
    /// A worker broke; the others went on without it.
    pub fn wait(mut self) -> Result<(), String> {
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let name = thread.thread().name().unwrap_or("worker").to_owned();
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => result = Err(format!("{name} ended: {error}")),
                Err(_) => result = Err(format!("{name} panicked")),
            }
        }
        if let Some(log) = &self.shared.access_log {
            log.close();
        }
        // Nothing is published any more.
        if let (Some(writer), Some(store)) = (self.writer.take(), &self.shared.store) {
            store.intake.end();
            if writer.join().is_err() {
                result = Err("the thread of the store panicked".to_owned());
            }
        }
        result
    }

    /// Fills the hub from the store, and has what is published from now on written to it.
    fn read_store(&mut self, recovery: Recovery<HostDisk>) -> Result<(), StartError> {
        let Some(store) = self.shared.store.clone() else { return Ok(()) };
        let path = self.settings.store.path.clone().unwrap_or_default();
        let hub = &self.shared.hub;
        let since_us = stentor_io::monotonic_us();
        let mut told_us = since_us;
        let loaded = load(recovery, hub, |progress| {
            store.reading.note(progress);
            let now_us = stentor_io::monotonic_us();
            if now_us - told_us > READING_LOG_US {
                told_us = now_us;
                tracing::info!("{}", store.reading);
            }
        });
        let told = |error| match (error, &self.settings.user) {
            (OpenError::Disk(error), Some(user)) => StartError::User(format!(
                "the store in {}: {error}; the directory and its files must belong to user \
                 '{user}', as whom the server runs",
                path.display()
            )),
            (error, _) => StartError::Store(path.clone(), error),
        };
        let Loaded { recovered, upto_generation } = loaded.map_err(told)?;
        if let Some((file, offset)) = &recovered.torn {
            tracing::warn!(
                "{file} ends at offset {offset} with something unfinished, which nobody was \
                 promised: it is left out"
            );
        }
        let took_ms = (stentor_io::monotonic_us() - since_us) / 1_000;
        let topics = hub.counts().topics;
        tracing::info!("the store in {} was read in {took_ms} ms: {topics} topics", path.display());
        let begun =
            stentor_store::Store::begin(recovered, StoreSettings::default(), hub.epoch().number());
        if let (false, Some(error)) = (begun.has_begun(), begun.refusal()) {
            return Err(told(error.clone().into()));
        }
        let (intake, stats) = (Arc::clone(&store.intake), Arc::clone(&store.stats));
        store.attach(hub);
        hub.continue_by(&self.settings.rules(), upto_generation);
        self.writer = Some(Writer::new(begun, intake, Arc::clone(hub), stats).start()?);
        store.reading.end();
        Ok(())
    }

    /// Who looks after files, memory and keys.
    fn start_lookers(&mut self) -> io::Result<()> {
        self.start_file_loader();
        let Server { settings, shared, mailboxes, .. } = self;
        self._guard = Some(Guard::start(settings, shared, mailboxes)?);
        self.keys = KeyThread::start(&settings.tokens, shared, mailboxes, None)?;
        Ok(())
    }

    /// Once there are files to be kept, there is somebody who keeps them. Without, they are served
    /// all the same, from the disk.
    fn start_file_loader(&self) {
        let Settings { mounts, files, .. } = &self.settings;
        let loader = self.shared.file_cache.loader(mounts, files);
        if let Err(error) = loader.and_then(|loader| loader.map_or(Ok(()), FileLoader::start)) {
            tracing::error!("files are not kept in memory: {error}");
        }
    }

    /// Once all workers have bound: the rest of the process becomes its user too, and what needs
    /// no privileges is started by it.
    fn lay_down_privileges(&self, user: Option<&User>, jobs: Jobs) -> Result<(), StartError> {
        if let (Some(name), Some(user)) = (&self.settings.user, user) {
            become_user(name, user)?;
            stentor_io::show_to_user()?;
            // Root was let in everywhere.
            check_files(&self.settings)?;
        }
        self.start_access_log()?;
        Ok(jobs.start()?)
    }

    /// Opens the access log, and has it written by whom the server runs as: it is opened again as
    /// that user.
    fn start_access_log(&self) -> Result<(), StartError> {
        let (Some(log), Some(target)) = (&self.shared.access_log, &self.settings.log.access) else {
            return Ok(());
        };
        log.start(target).map_err(|error| {
            let hint = match &self.settings.user {
                Some(user) if error.kind() == io::ErrorKind::PermissionDenied => format!(
                    "; the server runs as user '{user}', who must be able to write to its directory"
                ),
                _ => String::new(),
            };
            StartError::AccessLog(format!(
                "the access log {target} cannot be opened: {error}{hint}"
            ))
        })
    }

    /// Has every worker bind. They accept when they are told to start, and end when whoever could
    /// tell them is gone.
    fn start_workers(
        &mut self,
        posts: &[Post],
        addresses: &Arc<Addresses>,
        user: Option<&User>,
    ) -> Result<Vec<mpsc::Sender<()>>, StartError> {
        let settings = Arc::new(self.settings.clone());
        let (bound, results) = mpsc::channel();
        let mut starters = Vec::new();
        for (index, &post) in posts.iter().enumerate() {
            let (starter, started) = mpsc::channel::<()>();
            starters.push(starter);
            let shared = Arc::clone(&self.shared);
            let stats = Arc::clone(&self.shared.workers[index]);
            let own_stats = Arc::clone(&stats);
            let mailbox = Arc::clone(&self.mailboxes[index]);
            let seed = stentor_io::monotonic_us().wrapping_add((index as u64) << 32);
            let settings_of = Arc::clone(&settings);
            let mut worker =
                Worker::new(shared, settings_of, own_stats, Arc::clone(&mailbox), seed);
            let (addresses, settings) = (Arc::clone(addresses), Arc::clone(&settings));
            let user = user.cloned();
            let bound = bound.clone();
            let thread = thread::Builder::new()
                .name(post.to_string())
                .stack_size(WORKER_STACK_BYTES)
                .spawn(move || {
                    let user = user.as_ref();
                    let io = prepare(post, &settings, &addresses, user, &mailbox, &mut worker);
                    let (io, result) = match io {
                        Ok(io) => (Some(io), Ok(())),
                        Err(error) => (None, Err(error)),
                    };
                    drop(addresses);
                    // The receiver waits for every worker.
                    let _ = bound.send(result);
                    match (io, started.recv()) {
                        (Some(io), Ok(())) => live(post, worker, io, &mailbox, &stats),
                        _ => Ok(()),
                    }
                })?;
            self.threads.push(thread);
        }
        for _ in posts {
            // Every thread sends once, whatever happens.
            results.recv().unwrap_or_else(|_| Err(io::Error::other("a worker died").into()))?;
        }
        Ok(starters)
    }
}

impl Addresses {
    /// Makes sure of every address. One that the process was started with a socket for is taken
    /// from there.
    fn reserve(
        settings: &Settings,
        mut inherited: Vec<Inherited>,
    ) -> Result<Addresses, StartError> {
        let public = settings.listen.iter().map(|&tcp| (ControlAddress::Tcp(tcp), PUBLIC));
        let control = settings.control.iter().map(|address| (address.clone(), CONTROL));
        let monitor = settings.monitor.iter().map(|address| (address.clone(), MONITOR));
        let mut places = Vec::new();
        for (address, role) in public.chain(control).chain(monitor) {
            let is_it = |other: &Inherited| ControlAddress::from(other.name()) == address;
            let place = match inherited.iter().position(is_it) {
                Some(at) => Place::Inherited(inherited.swap_remove(at)),
                None => match address {
                    ControlAddress::Tcp(tcp) => Place::Tcp(stentor_io::reserve(tcp)?),
                    ControlAddress::Unix(path) => Place::Unix(path),
                },
            };
            places.push((place, role));
        }
        match inherited.first() {
            Some(unknown) => Err(StartError::Inherited(unknown.name().clone())),
            None => Ok(Addresses(places, Turns::default())),
        }
    }

    /// The addresses of a role, as they were really bound.
    fn of(&self, role: Role) -> impl Iterator<Item = ControlAddress> {
        let places = self.0.iter().filter(move |(_, other)| *other == role);
        places.map(|(place, _)| match place {
            Place::Tcp(reserved) => ControlAddress::Tcp(reserved.address()),
            Place::Unix(path) => ControlAddress::Unix(path.clone()),
            Place::Inherited(inherited) => ControlAddress::from(inherited.name()),
        })
    }

    /// One worker's listeners: those on socket files, or all others.
    fn listen(&self, post: Post, on_files: bool) -> Result<Vec<(Listener, Role)>, BindError> {
        let is_public = matches!(post, Post::Public(_));
        let places = self.0.iter().filter(|(place, role)| {
            (*role == PUBLIC) == is_public && matches!(place, Place::Unix(_)) == on_files
        });
        let listeners = places.map(|(place, role)| {
            let listener = match place {
                Place::Tcp(reserved) => reserved.listen()?,
                Place::Unix(path) => stentor_io::listen_unix(path)?,
                Place::Inherited(inherited) => inherited.listen()?,
            };
            Ok((listener, *role))
        });
        listeners.collect()
    }
}

impl From<&SocketName> for ControlAddress {
    fn from(name: &SocketName) -> ControlAddress {
        match name {
            SocketName::Tcp(address) => ControlAddress::Tcp(*address),
            SocketName::Unix(path) => ControlAddress::Unix(path.clone()),
        }
    }
}

/// How often it is said how far the store has been read.
const READING_LOG_US: u64 = 1_000_000;

/// What a worker does on its own thread before it may accept.
fn prepare(
    post: Post,
    settings: &Settings,
    addresses: &Addresses,
    user: Option<&User>,
    mailbox: &Mailbox,
    worker: &mut Worker,
) -> Result<Epoll, StartError> {
    let threads = Post::all(settings).len();
    let mut files = usize::try_from(stentor_io::open_files_limit()).unwrap_or(usize::MAX);
    if let Err(error) = stentor_io::own_file_table() {
        tracing::warn!("{post} shares its file table, and so its limit: {error}");
        files /= threads;
    }
    let listen = || addresses.listen(post, false);
    let mut listeners = match post {
        Post::Public(index) => addresses.1.listen(index, settings, listen)?,
        Post::Control => listen()?,
    };
    if let (Some(name), Some(user)) = (&settings.user, user) {
        become_user(name, user)?;
    }
    // Not before: a socket file is its maker's, to connect to and to remove.
    listeners.extend(addresses.listen(post, true)?);
    let mut io = Epoll::new(listeners, Arc::clone(mailbox.waker()))?;
    if let Post::Public(index) = post {
        if settings.pin
            && let Err(error) = stentor_io::pin_to_core(index)
        {
            tracing::warn!("{post} is not pinned to a core: {error}");
        }
        let connections_max = share(settings, files, threads);
        io.limit_connections(connections_max);
        worker.limit_connections(connections_max.saturating_mul(settings.workers));
    }
    Ok(io)
}

/// How many connections one public worker holds, if it may have so many files. Each thread's
/// mailbox is one of them, in every table.
fn share(settings: &Settings, files: usize, threads: usize) -> usize {
    let by_files = files.saturating_sub(FILES_RESERVED + threads).max(files / 2).max(1);
    match settings.limits.connections_max {
        0 => by_files,
        all => by_files.min(all.div_ceil(settings.workers)),
    }
}

/// A worker's life and its end, whatever ends it: nothing more is kept for it, and nobody is
/// counted whom it served.
fn live(post: Post, worker: Worker, io: Epoll, mailbox: &Mailbox, stats: &Stats) -> io::Result<()> {
    let life = panic::catch_unwind(AssertUnwindSafe(|| run(worker, io, mailbox)));
    let result = life.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
    mailbox.close();
    stats.close(result.is_err());
    result.inspect_err(|error| tracing::error!("{post} cannot go on: {error}"))
}

/// A worker's life. A panic costs the connection that caused it, and no other.
fn run(mut worker: Worker, mut io: Epoll, mailbox: &Mailbox) -> io::Result<()> {
    worker.open_roots();
    for panics in 0..PANICS_MAX {
        let life = panic::catch_unwind(AssertUnwindSafe(|| {
            if panics > 0 {
                worker.recover(&mut io);
                // A wake-up may have gone by in the turn that broke off.
                mailbox.waker().take();
                worker.read_mailbox(&mut io);
            }
            loop {
                turn(&mut worker, &mut io)?;
                if worker.has_ended() {
                    return Ok(());
                }
            }
        }));
        match life {
            Ok(result) => return result,
            Err(_) => {
                tracing::error!("a request made its worker panic; its connection is closed");
            }
        }
    }
    Err(io::Error::other("too many panics"))
}

fn turn(worker: &mut Worker, io: &mut Epoll) -> io::Result<()> {
    let deadline_ms = worker.next_deadline_ms();
    let woken = io.turn(worker, deadline_ms)?;
    if woken {
        worker.read_mailbox(io);
    }
    worker.after_turn(io);
    if worker.releases_memory() {
        // Not here: it takes some milliseconds. If there is no thread for it, it stays as it is.
        let _ = thread::Builder::new().name("release".to_owned()).spawn(release_memory);
    }
    Ok(())
}

/// A worker's calls are shallow; the largest thing on its stack is a request's header fields.
const WORKER_STACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// Sends a request and reads until `done`, or the end.
    fn ask(address: SocketAddr, request: &str, done: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(format!("{request} HTTP/1.1\r\nHost: localhost\r\n").as_bytes()).unwrap();
        stream.write_all(b"Accept: text/event-stream\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !String::from_utf8_lossy(&answer).contains(done)
            && matches!(stream.read(&mut byte), Ok(1))
        {
            answer.push(byte[0]);
        }
        (stream, String::from_utf8(answer).unwrap())
    }

    #[test]
    fn with_pinned_workers_connections_come_to_the_worker_of_their_core() {
        let any = "127.0.0.1:0".parse().unwrap();
        let cores = stentor_io::allowed_cores().unwrap();
        let can_steer = stentor_io::reserve(any).unwrap().listen().unwrap().steer(&cores).is_ok();
        if !can_steer || stentor_io::narrow_card(cores.len()).is_some() {
            return;
        }
        let settings =
            Settings { listen: vec![any], workers: cores.len(), pin: true, ..Settings::default() };
        let server = start(settings, vec![]).unwrap();
        let address = server.public()[0];
        // On loopback a packet comes in on the core it is sent from.
        let clients = |index| {
            let connect = move || {
                stentor_io::pin_to_core(index).unwrap();
                (0..20).map(|_| ask(address, "GET /a", "\r\n\r\n").0).collect::<Vec<_>>()
            };
            thread::spawn(connect).join().unwrap()
        };
        let _clients: Vec<_> = (0..cores.len()).map(clients).collect();
        let open = server.shared.workers.iter().map(|stats| stats.connections_public.value());
        assert_eq!(open.collect::<Vec<_>>(), vec![20; cores.len()]);
        server.drain();
        server.wait().unwrap();
    }

    #[test]
    fn a_worker_that_breaks_leaves_nothing_behind_and_says_so() {
        let any = "127.0.0.1:0".parse().unwrap();
        let settings = Settings {
            listen: vec![any],
            control: vec![ControlAddress::Tcp(any)],
            workers: 1,
            ..Settings::default()
        };
        let server = start(settings, vec![]).unwrap();
        let ControlAddress::Tcp(control) = server.control()[0] else { panic!("it is TCP") };
        let readers =
            || server.publish(TopicName::parse("/a").unwrap(), Draft::new(*b"x")).unwrap().readers;
        readers();
        let (_reader, head) = ask(server.public()[0], "GET /a", "data: x");
        assert!(head.contains("data: x"), "{head}");
        assert_eq!(readers(), 1);
        let ready = || ask(control, "GET /-/readyz", ".\n").1;
        let (_stream, said) = ask(control, "GET /-/readyz", "ready\n");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        for _ in 0..PANICS_MAX {
            ask(server.public()[0], "GET /-/panic", "never");
        }
        // The thread ends a moment after its last connection.
        while server.shared.workers[0].workers_lost.value() == 0 {
            thread::yield_now();
        }
        assert!(ready().starts_with("HTTP/1.1 503"));
        let counters = &server.shared.workers[0];
        let left = [&counters.connections_public, &counters.readers_sse].map(|c| c.value());
        assert_eq!(left, [0, 0]);
        assert_eq!(readers(), 0);
        server.drain();
        let error = server.wait().unwrap_err();
        assert!(error.contains("worker-0") && error.contains("panics"), "{error}");
    }
}
