//! The process's side of the server: binding, starting the workers, and the handle to all of it.
//!
//! The control listeners have a worker of their own. Whatever readers use up of a public worker,
//! descriptors or time, whoever publishes or operates the server does not wait for it.

mod counters;
mod handover;
mod leaving;
mod life;
mod listeners;
mod opening;
mod pause;
mod prepared;
mod reloading;
mod service;
mod taking_over;

use self::handover::ServerState;
use self::life::{Cue, Post, Report, Serving, Stage, begins, live, prepare};
use self::listeners::Addresses;
pub use self::listeners::BoundListener;
use self::prepared::{Background, PreparedSettings, Running, check_files};
use self::service::Service;
pub use self::taking_over::Predecessor;
use crate::start_error::StartError;
use crate::user::{become_user, user_named};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stentor_config::Settings;
use stentor_files::FileLoader;
use stentor_hub::{Applied, Draft, Epoch, Hub, Life, Message, Op, Precondition, Published};
use stentor_io::{
    ChannelListener, Disk, HostDisk, Inherited, User, monotonic_us, sleep, spawn_with_file_table,
};
use stentor_log::{Recovery, open_replaced};
use stentor_order::{
    Applier, ChangeQueue, CommitError, Committer, Compressor, Jobs, Outcome, ReturnAddress,
};
use stentor_server::keys::TokenState;
use stentor_server::{
    AccessLog, CONTROL, Guard, Mailbox, Order, ProcessState, Reloads, Shared, TOKENS_BYTES_MAX,
    Upgrades, Worker, client_module, event_log,
};
use stentor_store::{Ended, Ending, StoreThread, Writer};
use stentor_tls_layer::{Acceptors, Sessions};
use stentor_wire::target::TopicName;
use zeroize::Zeroizing;

/// A running server. Dropping it leaves the workers running; [`Server::drain`] and
/// [`Server::wait`] end them.
pub struct Server {
    shared: Arc<Shared>,
    settings: Settings,
    listeners: Vec<BoundListener>,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Where each worker is told what to do.
    cues: Vec<mpsc::Sender<Cue>>,
    /// Where they report.
    reports: Mutex<mpsc::Receiver<(usize, Result<Report, String>)>>,
    /// The names of the channels by which they take over, if they do.
    channels: Vec<Vec<u8>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// The threads that look after files of settings. `None`: the server has not begun.
    background: Option<Background>,
    /// The changes while the hub is copied to another process.
    changes: ChangeQueue,
    /// The service that makes the order or keeps it.
    service: Service,
    /// Who looks after memory.
    _guard: Option<Guard>,
    /// The one that writes to the store, if there is one.
    writer: Mutex<Option<StoreThread<HostDisk>>>,
    /// When a stop is to be over, in microseconds; 0: no stop has begun.
    ends_by_us: AtomicU64,
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

/// Binds everything and starts the workers. Nothing is half started: no worker accepts before
/// all have bound and no thread has a privilege left, if there is a user to run as; and any error
/// leaves no listener behind. `inherited` are sockets that this process was started with; they take
/// the place of listeners at their addresses.
///
/// # Errors
/// [`StartError`], which says which address or what of the host was refused.
pub fn start(settings: Settings, inherited: Vec<Inherited>) -> Result<Server, StartError> {
    begin(settings, inherited, None)
}

/// The same, of a server that another process hands over: every connection, value and number is as
/// it was there. That process waits for [`Predecessor::release`].
///
/// # Errors
/// As [`start`]. The other process is told, and goes on.
pub fn take_over(
    mut settings: Settings,
    predecessor: &mut Predecessor,
) -> Result<Server, StartError> {
    let taken = predecessor
        .adapt(&mut settings)
        .and_then(|()| begin(settings, Vec::new(), Some(&mut *predecessor)));
    taken.inspect_err(|error| predecessor.refuse(&error.to_string()))
}

fn begin(
    settings: Settings,
    inherited: Vec<Inherited>,
    predecessor: Option<&mut Predecessor>,
) -> Result<Server, StartError> {
    // Every worker's limit; a limit that cannot be raised only means fewer connections each.
    let _ = stentor_io::raise_open_files_limit();
    let user = settings.user.as_deref().map(user_named).transpose()?;
    let hello = predecessor.as_ref().map(|predecessor| &predecessor.hello);
    let left_out = hello.map(ServerState::left_out);
    let fetched = hello.map(ServerState::fetched).unwrap_or_default();
    let ticket_secret = hello.and_then(|state| state.ticket_secret.clone()).map(Zeroizing::new);
    let running = Running { user: user.clone(), acceptors: None, left_out, ticket_secret, fetched };
    let prepared = PreparedSettings::read_bounded(&settings, running)?;
    let addresses = Arc::new(Addresses::reserve(&settings, inherited, hello)?);
    let posts = Post::all(&settings);
    // Before any worker has its own file table: each is a copy, and needs every worker's waker.
    let mailboxes =
        posts.iter().map(|_| Mailbox::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
    let (recovery, life) = store_and_life(&settings, user.as_ref(), hello)?;
    let disk = open_disk_of_node(&settings, user.as_ref())?;
    let takes_over = hello.is_some();
    let hub = empty_hub(&settings, life, recovery.is_some() || takes_over);
    let service = Service::of(&settings, &hub, disk)?;
    let (shared, jobs) = share(&prepared, hub, &service, &posts, hello)?;
    let (reporter, reports) = mpsc::channel();
    let mut server = Server {
        changes: ChangeQueue::new(&shared.hub, None),
        shared: Arc::new(shared),
        listeners: addresses.bound(),
        mailboxes,
        cues: Vec::new(),
        reports: Mutex::new(reports),
        channels: Vec::new(),
        threads: Vec::new(),
        writer: Mutex::default(),
        ends_by_us: AtomicU64::new(0),
        background: None,
        service,
        _guard: None,
        settings,
    };
    let begun = server
        .start_workers(&posts, &addresses, user.as_ref(), &reporter, takes_over)
        .and_then(|()| server.lay_down_privileges(user.as_ref(), jobs))
        .and_then(|()| server.start_background(prepared))
        .and_then(|guard| server.fill(recovery, predecessor, &posts).map(|()| guard));
    match begun {
        Ok(guard) => {
            server.begin(guard, !takes_over);
            Ok(server)
        }
        Err(error) => {
            // The workers end: they have not begun, or serve operators.
            server.cues.clear();
            server.drain();
            let _ = server.wait();
            Err(error)
        }
    }
}

/// The store of a server that starts, and the life of its hub.
fn store_and_life(
    settings: &Settings,
    user: Option<&User>,
    hello: Option<&ServerState>,
) -> Result<(Option<Recovery<HostDisk>>, Life), StartError> {
    match hello {
        None => open_store(settings, user),
        // That process has it, and gives it away at the end.
        Some(hello) => {
            probe_store(settings)?;
            Ok((None, hello.life()))
        }
    }
}

/// What all workers share, and what is to be done for them elsewhere.
fn share(
    prepared: &PreparedSettings,
    hub: Hub,
    service: &Service,
    posts: &[Post],
    hello: Option<&ServerState>,
) -> Result<(Shared, Jobs), StartError> {
    let (compressor, jobs) = Compressor::new();
    let committer = Committer::new(Applier::new(Arc::new(hub), compressor), service.report());
    let client = client_module(stentor_io::unix_s());
    let tokens = TokenState::new(prepared.keys.keys(), TOKENS_BYTES_MAX)?;
    let process = process_state(hello);
    let shared = Shared {
        access_log: AccessLog::of(&prepared.settings.log),
        acceptors: Arc::new(Acceptors::new(prepared.certificates.clone())),
        workers_public: posts.iter().filter(|post| post.is_public()).count(),
        ..Shared::new(committer, client, tokens, posts.len(), process)?
    };
    Ok((shared, jobs))
}

/// The state of this process: of the first one, or of one that takes over.
fn process_state(hello: Option<&ServerState>) -> ProcessState {
    let now_unix_s = stentor_io::unix_s();
    ProcessState {
        process_started_unix_s: now_unix_s,
        started_unix_s: hello.map_or(now_unix_s, |hello| hello.started_unix_s),
        is_stopping: AtomicBool::new(false),
        upgrades: hello
            .map_or_else(Upgrades::default, |hello| Upgrades::taken_over(hello.upgrades.clone())),
        reloads: hello.map_or_else(Reloads::default, |_| Reloads::of_successor()),
    }
}

/// The hub, before anything is filled into it. What fills it has the rules of its time, too.
fn empty_hub(settings: &Settings, life: Life, is_filled: bool) -> Hub {
    let limits = stentor_hub::Limits {
        topics_max: settings.limits.topics_max,
        message_bytes_max: settings.limits.message_bytes_max,
        stored_bytes_max: settings.limits.stored_bytes_max.resolve().0,
    };
    let is_filled = is_filled || settings.follow.is_on();
    let rules = if is_filled { Vec::new() } else { settings.topics.clone() };
    Hub::of_life(life, rules, limits)
}

/// Opens the store, if there is one, and says which life of the sequence it goes on with.
fn open_store(
    settings: &Settings,
    user: Option<&User>,
) -> Result<(Option<Recovery<HostDisk>>, Life), StartError> {
    let of = |epoch| Life { epoch, base: 0 };
    let Some(path) = store_path(settings) else { return Ok((None, of(Epoch::random()))) };
    let told = |error| StartError::of_store(path, &error);
    let disk = HostDisk::open(path, user).map_err(|error| told(error.into()))?;
    let recovery = Recovery::open(disk).map_err(told)?;
    if settings.store.must_exist && recovery.epoch().is_none() {
        return Err(StartError(format!(
            "there is no store in {}, and store.must_exist says that there is one: is the volume \
             mounted?",
            path.display()
        )));
    }
    let epoch = recovery.continued_epoch().map_or_else(Epoch::random, Epoch::from_number);
    Ok((Some(recovery), of(epoch)))
}

/// Whether this process can write to the store that it is to take over.
fn probe_store(settings: &Settings) -> Result<(), StartError> {
    let Some(path) = store_path(settings) else { return Ok(()) };
    let probed = HostDisk::look(path).and_then(|disk| {
        let file = disk.create(PROBE, 0)?;
        disk.write_at(&file, 0, &[0]).and(disk.remove(PROBE))
    });
    probed.map_err(|error| StartError::of_store(path, &error.into()))
}

/// The directory of the store. That of a node of a cluster holds none.
fn store_path(settings: &Settings) -> Option<&PathBuf> {
    settings.store.path.as_ref().filter(|_| !settings.cluster.is_on())
}

/// Opens the directory of a node of a cluster, if it has one.
fn open_disk_of_node(
    settings: &Settings,
    user: Option<&User>,
) -> Result<Option<HostDisk>, StartError> {
    let path = settings.store.path.as_ref().filter(|_| settings.cluster.is_on());
    let Some(path) = path else { return Ok(None) };
    let opened = HostDisk::open(path, user);
    let opened = opened.and_then(|disk| open_replaced(&disk).map(|_| disk));
    opened.map(Some).map_err(|error| StartError::of_store(path, &error.into()))
}

impl Server {
    /// The listeners: the public ones, those that redirect, control and monitor.
    #[must_use]
    pub fn listeners(&self) -> &[BoundListener] {
        &self.listeners
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
        let now = self.shared.committer.commit(op, Precondition::None, stentor_io::unix_s(), &back);
        now.unwrap_or_else(|| outcome.recv().unwrap_or(Err(CommitError::Failed)))
    }

    /// What opens log files anew, once they were renamed. `None`: there are none.
    #[must_use]
    pub fn log_files(&self) -> Option<LogFiles> {
        self.shared.access_log.clone().map(LogFiles)
    }

    /// Has upgrades begun by `begin` that are asked for at a control listener. It returns at once.
    pub fn begin_upgrades_by(&self, begin: impl Fn() + Send + 'static) {
        self.shared.process.upgrades.begin_by(Box::new(begin));
    }

    /// How long a stop is to be announced before it begins.
    #[must_use]
    pub fn drain_announce(&self) -> Duration {
        Duration::from_millis(self.settings.drain_announce_ms)
    }

    /// Says that a stop is coming, for those who ask whether this server is ready. It serves on.
    pub fn announce_stop(&self) {
        self.shared.process.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Begins a graceful stop: no connection begins any more, what was asked is answered, and the
    /// workers end when their connections have, or after the drain time.
    pub fn drain(&self) {
        self.announce_stop();
        let (now_us, drain_us) = (monotonic_us(), self.settings.drain_ms * 1_000);
        self.ends_by_us.store(now_us + drain_us, Ordering::Relaxed);
        if let Some(store) = self.service.store() {
            // Their answers have to reach them before connections are cut.
            let answer_us = drain_us - (drain_us / 4).min(ANSWERING_US_MAX);
            store.intake.answer_by((now_us + answer_us) / 1_000);
        }
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
        let is_stalled = self.service.store().is_some_and(|it| it.intake.stalled_ms() > 0);
        let least_us = if is_stalled { 0 } else { CLOSING_US_MIN };
        let until_us = self.ends_by_us.load(Ordering::Relaxed).max(monotonic_us() + least_us);
        let ended = self.end_writer(Ending::Stop, &|| monotonic_us() > until_us);
        if let Err(reason) = ended.and_then(|ended| ended.map_or(Ok(()), |ended| ended.result)) {
            tracing::error!(
                "the store was not closed: {reason}; the next start leaves out numbers"
            );
        }
        result
    }

    /// Has the thread of the store write down everything, and waits for its end, unless it is given
    /// up before. The thread continues then.
    fn end_writer(
        &self,
        ending: Ending,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Option<Ended<HostDisk>>, String> {
        let Some(store) = self.service.store() else { return Ok(None) };
        store.intake.end(ending);
        while stentor_io::lock(&self.writer).as_ref().is_some_and(|thread| !thread.is_finished()) {
            if gives_up() {
                return Err("the disk does not answer".to_owned());
            }
            sleep(LOOK);
        }
        self.join_writer()
    }

    /// Waits for the thread of the store, which has ended or is about to.
    fn join_writer(&self) -> Result<Option<Ended<HostDisk>>, String> {
        let Some(thread) = stentor_io::lock(&self.writer).take() else { return Ok(None) };
        thread.join().map_err(|_| "the thread of the store panicked".to_owned())
    }

    /// Starts the thread of the store.
    fn start_writer(
        &self,
        begin: impl FnOnce() -> Result<Writer<HostDisk>, String> + Send + 'static,
    ) -> io::Result<()> {
        let Some(store) = self.service.store() else { return Ok(()) };
        *stentor_io::lock(&self.writer) = Some(store.start(begin)?);
        Ok(())
    }

    /// Begins what was prepared. Nothing of it can fail: after a takeover no other process serves.
    fn begin(&mut self, guard: Guard, is_start: bool) {
        guard.begin();
        self._guard = Some(guard);
        self.background.iter().for_each(|threads| threads.begin(is_start));
        self.service.begin();
        self.start_file_loaders();
        // A worker that has died reports that at the end; one that serves ignores this.
        self.cue(|_| Cue::Live);
    }

    /// Fills the hub from a store, or from the process that hands over.
    fn fill(
        &self,
        recovery: Option<Recovery<HostDisk>>,
        predecessor: Option<&mut Predecessor>,
        posts: &[Post],
    ) -> Result<(), StartError> {
        match (recovery, predecessor) {
            (_, Some(predecessor)) => predecessor.take_over(self),
            (Some(recovery), None) => {
                self.cue_operators(posts);
                self.read_store(recovery)
            }
            (None, None) => Ok(()),
        }
    }

    /// Starts the threads that work beside the workers. They wait until the server begins.
    fn start_background(&mut self, prepared: PreparedSettings) -> Result<Guard, StartError> {
        let PreparedSettings { settings, certificates, keys } = prepared;
        self.background = Some(Background::start(self, &settings, keys, &certificates)?);
        let Server { settings, shared, service, mailboxes, .. } = self;
        service.start(shared.committer.applier()).map_err(StartError::new)?;
        Ok(Guard::start(settings, &shared.hub, &shared.memory, mailboxes)?)
    }

    /// Applies the settings of files, and starts the loaders of new mounts. Without a loader, the
    /// workers serve files from the disk.
    fn start_file_loaders(&self) {
        let Settings { mounts, files, .. } = &self.settings;
        let loaders = self.shared.file_cache.reload(mounts, files);
        if let Err(error) = loaders.into_iter().try_for_each(FileLoader::start) {
            tracing::error!("files are not kept in memory: {error}");
        }
    }

    /// Once all workers have bound: the rest of the process becomes its user too, and what needs
    /// no privileges is started by it.
    fn lay_down_privileges(&self, user: Option<&User>, jobs: Jobs) -> Result<(), StartError> {
        if let (Some(name), Some(user)) = (&self.settings.user, user) {
            become_user(name, user)?;
            event_log::become_user(user).map_err(|error| {
                StartError(format!("the log cannot be written by user '{name}': {error}"))
            })?;
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
            StartError(format!("the access log {target} cannot be opened: {error}{hint}"))
        })
    }

    /// Has every worker bind. They accept when they are told to start, and end when whoever could
    /// tell them is gone.
    fn start_workers(
        &mut self,
        posts: &[Post],
        addresses: &Arc<Addresses>,
        user: Option<&User>,
        reporter: &mpsc::Sender<(usize, Result<Report, String>)>,
        takes_over: bool,
    ) -> Result<(), StartError> {
        let settings = Arc::new(self.settings.clone());
        let (bound, results) = mpsc::channel();
        for (index, &post) in posts.iter().enumerate() {
            let (cue, cues) = mpsc::channel();
            self.cues.push(cue);
            let stage = Stage { index, cues, reports: reporter.clone() };
            let mailbox = Arc::clone(&self.mailboxes[index]);
            let mut serving = self.serving(index, &settings);
            let (addresses, settings) = (Arc::clone(addresses), Arc::clone(&settings));
            let (user, bound) = (user.cloned(), bound.clone());
            let thread = thread::Builder::new().name(post.to_string());
            let thread = thread.stack_size(WORKER_STACK_BYTES);
            let thread = spawn_with_file_table(thread, move |own_table| {
                let (user, worker) = (user.as_ref(), &mut serving.worker);
                let io = prepare(post, &settings, &addresses, user, &mailbox, worker, own_table);
                let channel = match takes_over {
                    true => ChannelListener::new().map(Some),
                    false => Ok(None),
                };
                let (mut io, channel) = match io.and_then(|io| Ok((io, channel?))) {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        let _ = bound.send((index, Err(error)));
                        return Ok(());
                    }
                };
                // The last owner closes the addresses, so drop them before the starter continues.
                let addresses = takes_over.then_some(addresses);
                let name = channel.as_ref().map(|channel| channel.name().to_vec());
                // The receiver waits for every worker.
                let _ = bound.send((index, Ok(name.unwrap_or_default())));
                let own = io.listeners();
                if !begins(&mut serving, &mut io, channel, &settings, &stage) {
                    // mutation: lost-listeners
                    io.give_back(own);
                    return Ok(());
                }
                if let Some(addresses) = addresses {
                    io.keep_listeners(|name, role| addresses.role_at(name, role));
                }
                live(post, serving, io, &mailbox, stage)
            })?;
            self.threads.push(thread);
        }
        self.channels = vec![Vec::new(); posts.len()];
        for _ in posts {
            // Every thread sends once, whatever happens.
            let died = || StartError::from(io::Error::other("a worker died"));
            let (index, name) = results.recv().map_err(|_| died())?;
            self.channels[index] = name?;
        }
        Ok(())
    }

    /// A worker, before it has begun.
    fn serving(&self, index: usize, settings: &Arc<Settings>) -> Serving {
        let stats = Arc::clone(&self.shared.workers[index]);
        let sessions = Sessions::new(Arc::clone(&self.shared.acceptors), CONTROL);
        let seed = stentor_io::monotonic_us().wrapping_add((index as u64) << 32);
        let (shared, mailbox) = (Arc::clone(&self.shared), Arc::clone(&self.mailboxes[index]));
        let worker = Worker::new(shared, Arc::clone(settings), Arc::clone(&stats), mailbox, seed);
        Serving { worker, sessions, stats }
    }

    /// What workers report.
    fn reports(&self) -> MutexGuard<'_, mpsc::Receiver<(usize, Result<Report, String>)>> {
        stentor_io::lock(&self.reports)
    }
}

/// A file that a process makes to see whether it can.
const PROBE: &str = "probe.tmp";

/// How often it is looked whether the thread of the store has ended.
const LOOK: Duration = Duration::from_millis(1);

/// The store may take so long to be closed, whatever is left of the time of a stop.
const CLOSING_US_MIN: u64 = 1_000_000;

/// Before the end of a stop the last publishers are answered so early at most.
const ANSWERING_US_MAX: u64 = 1_000_000;

/// A worker's calls are shallow; the largest thing on its stack is a request's header fields.
const WORKER_STACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::process::Command;
    use stentor_config::ControlAddress;
    use stentor_io::Role;
    use stentor_server::keys::{KeyThread, PreparedKeys};
    use stentor_server::{PUBLIC, Stats, panics_max};

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
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        if !stentor_io::prefers_cores() {
            return;
        }
        let pin = || stentor_io::pin_to_core(0).unwrap();
        let (_, cores) = thread::spawn(pin).join().unwrap();
        let settings =
            Settings { listen: vec![any.into()], workers: cores, pin: true, ..Settings::default() };
        let server = start(settings, vec![]).unwrap();
        let address = bound(&server, PUBLIC);
        // On loopback a packet comes in on the core it is sent from.
        let clients = |index| {
            let connect = move || {
                stentor_io::pin_to_core(index).unwrap();
                (0..20).map(|_| ask(address, "GET /a", "\r\n\r\n").0).collect::<Vec<_>>()
            };
            thread::spawn(connect).join().unwrap()
        };
        let clients: Vec<_> = (0..cores).map(clients).collect();
        let workers = &server.shared.workers[..cores];
        let open = workers.iter().map(|stats| counter(stats, "connections_public"));
        assert_eq!(open.collect::<Vec<_>>(), vec![20; cores]);
        drop(clients);
        server.drain();
        server.wait().unwrap();
    }

    #[test]
    fn a_server_that_stops_hands_nothing_over() {
        let server = start(settings(""), vec![]).unwrap();
        server.announce_stop();
        let refused = server.hand_over(&mut Command::new("/absent"), None, &|| false);
        assert_eq!(refused, Err("the server is about to stop".to_owned()));
        server.drain();
        server.wait().unwrap();
    }

    /// The address of the first listener of a kind.
    fn bound(server: &Server, kind: Role) -> SocketAddr {
        let listener = server.listeners().iter().find(|listener| listener.kind() == kind);
        listener.and_then(|listener| listener.address.tcp()).unwrap()
    }

    fn counter(stats: &Stats, name: &str) -> u64 {
        stats.counters().iter().find(|(known, _)| known == name).expect(name).1.value()
    }

    fn settings(toml: &str) -> Settings {
        stentor_io::make_limits_small();
        let settings = Settings::from_toml(toml, "f").unwrap();
        settings.validate().unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let control = vec![ControlAddress::Tcp(any).into()];
        Settings { listen: vec![any.into()], control, workers: 1, ..settings }
    }

    /// Settings of which each fails at another step of a start or of a reload.
    const FAILING: [&str; 3] = [
        "static = [{ path = '/s/', root = '/absent' }]",
        "jwt.public_key_file = ['/absent']",
        "jwt.jwks_url = 'https://localhost:1'\njwt.jwks_ca_file = '/absent'",
    ];

    #[test]
    fn a_reload_that_fails_at_any_step_changes_nothing() {
        let first = settings("jwt.jwks_url = 'http://127.0.0.1:1'");
        let mut server = start(first, vec![]).unwrap();
        let rules = server.shared.hub.rules();
        for toml in FAILING {
            let next = settings(&format!("topics = [{{ match = '/x', history = 7 }}]\n{toml}"));
            assert!(server.reload(next, &mut || false).is_err(), "{toml}");
            assert_eq!(server.shared.hub.rules(), rules, "{toml}");
            assert!(server.settings.topics.is_empty(), "{toml}");
        }
        let next = settings("topics = [{ match = '/x', history = 7 }]");
        assert!(server.reload(next, &mut || false).is_ok());
        assert_ne!(server.shared.hub.rules(), rules);
        server.drain();
        server.wait().unwrap();
    }

    /// A start reads a whole store between the keys and the begin of the thread.
    #[test]
    fn key_files_that_change_during_a_start_are_read_again() {
        let path = std::env::temp_dir().join(format!("stentor-keys-{}", std::process::id()));
        let settings = settings(&format!("jwt.secret_file = '{}'", path.display()));
        let write = |byte: u8| std::fs::write(&path, [byte; 40]).unwrap();
        write(b'a');
        let mut server = start(settings.clone(), vec![]).unwrap();
        // Its own thread would read the file again.
        server.background = None;
        for replace in [true, false] {
            let prepared = PreparedKeys::read(&settings.tokens, Vec::new()).unwrap();
            // Replaced meanwhile, or gone for a moment.
            std::fs::remove_file(&path).unwrap();
            if replace {
                write(b'b');
            }
            let (tokens, mailboxes) = (&server.shared.tokens, &server.mailboxes);
            let thread = KeyThread::start(prepared, tokens, mailboxes).unwrap();
            write(b'b');
            thread.begin(true);
            let before = tokens.keys();
            let is_before = |_: &u32| Arc::ptr_eq(&server.shared.tokens.keys(), &before);
            let looks = (0..400).take_while(is_before);
            let looks = looks.inspect(|_| thread::sleep(Duration::from_millis(50))).count();
            assert!(looks < 400, "replaced: {replace}");
        }
        std::fs::remove_file(&path).unwrap();
        server.drain();
        server.wait().unwrap();
    }

    #[test]
    fn a_start_that_fails_at_any_step_leaves_nothing() {
        for toml in FAILING {
            let any: SocketAddr = "127.0.47.1:0".parse().unwrap();
            let address = stentor_io::reserve(any).unwrap().address();
            let settings = Settings { listen: vec![address.into()], ..settings(toml) };
            let error = start(settings, vec![]).err().expect(toml).to_string();
            assert!(error.contains("/absent"), "{error}");
            assert!(TcpStream::connect(address).is_err(), "{toml}");
        }
    }

    #[test]
    fn a_worker_that_breaks_leaves_nothing_behind_and_says_so() {
        stentor_io::make_limits_small();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let settings = Settings {
            listen: vec![any.into()],
            control: vec![ControlAddress::Tcp(any).into()],
            workers: 1,
            ..Settings::default()
        };
        let server = start(settings, vec![]).unwrap();
        let [public, control] = [PUBLIC, CONTROL].map(|kind| bound(&server, kind));
        let readers =
            || server.publish(TopicName::parse("/a").unwrap(), Draft::new(*b"x")).unwrap().readers;
        readers();
        let (_reader, head) = ask(public, "GET /a", "data: x");
        assert!(head.contains("data: x"), "{head}");
        assert_eq!(readers(), 1);
        let ready = || ask(control, "GET /-/readyz", ".\n").1;
        let (_stream, said) = ask(control, "GET /-/readyz", "ready\n");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert_eq!(panics_max(), 10, "a test comes to it");
        for _ in 0..panics_max() {
            ask(public, "GET /-/panic", "never");
        }
        // The thread ends a moment after its last connection.
        while counter(&server.shared.workers[0], "workers_lost") == 0 {
            thread::yield_now();
        }
        assert!(ready().starts_with("HTTP/1.1 503"));
        let counters = &server.shared.workers[0];
        // The last one ends the worker.
        assert_eq!(counter(counters, "worker_panics"), u64::from(panics_max() - 1));
        let left = ["connections_public", "readers_sse"].map(|name| counter(counters, name));
        assert_eq!(left, [0, 0]);
        assert_eq!(readers(), 0);
        server.drain();
        let error = server.wait().unwrap_err();
        assert!(error.contains("worker-0") && error.contains("panics"), "{error}");
    }
}
