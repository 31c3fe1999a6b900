//! A worker's life on its thread: what it does before it may accept, its turns, its end.

use super::handover::{Entrance, PATIENCE, PATIENCE_COPYING};
use super::listeners::Addresses;
use super::pause::{Freeze, PauseBudget, Phases};
use crate::limits::{FILES_RESERVED, HANDSHAKES_US_MAX, NUMBERS_KEPT};
use crate::start_error::StartError;
use crate::user::become_user;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::{fmt, io, thread};
use stentor_config::Settings;
use stentor_io::{
    Backend, Channel, ChannelListener, Epoll, File, Listener, Parts, Role, User, monotonic_us,
    narrow_card, release_memory,
};
use stentor_server::{Mailbox, Stats, Worker, panics_max};
use stentor_tls_layer::{Secured, Securing, Sessions, Unpacking};

/// What a worker is there for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Post {
    /// One of those that have the public listeners, with its number.
    Public(usize),
    /// The one that has the control listeners and the monitor's.
    Control,
}

impl Post {
    /// A worker for each post that the settings ask for.
    pub(super) fn all(settings: &Settings) -> Vec<Post> {
        let public = if settings.listen.is_empty() { 0 } else { settings.workers };
        let operators = settings.control.len() + settings.monitor.len();
        let control = (operators > 0).then_some(Post::Control);
        (0..public).map(Post::Public).chain(control).collect()
    }

    pub(super) fn is_public(self) -> bool {
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

/// What a worker is told by whoever runs the server.
#[derive(Debug)]
pub(super) enum Cue {
    /// Begin to accept, or go on where another process has ended.
    Live,
    /// Hand over to a worker of another process, and serve on.
    HandOver(Partner),
    /// Hold publishers: the store is handed over.
    Hold,
    /// Begin no more handshakes, and report when those under way have ended.
    EndHandshakes,
    /// Stand still, and send the rest once all workers stand still.
    Freeze(Arc<Freeze>),
    /// Try again to send the rest.
    Pack,
    /// The other process does not take over: go on.
    GoOn,
    /// It has ended, and with it what it had open.
    OtherEnded,
    /// The other process has taken over.
    Leave,
    /// Take over from a worker of this process.
    TakeOver { process: u32, entrance: Arc<Entrance> },
}

/// A worker of another process.
#[derive(Clone, Debug)]
pub(super) struct Partner {
    pub(super) process: u32,
    /// Of its channel.
    pub(super) name: Vec<u8>,
}

/// What a worker says of a cue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Report {
    /// The other process has all of its connections, but for what has changed meanwhile.
    Settled,
    /// Publishers are held.
    Holds,
    /// No handshake is under way, or those that are take too long.
    NoHandshakes,
    StandsStill,
    HandedOver,
    /// Something cannot be handed over, and may come to its end.
    NotNow(&'static str),
    /// Everything was taken over by all workers, and this one began to serve at this time.
    Begins {
        at_us: u64,
    },
}

/// Where a worker hears its cues, and reports.
pub(super) struct Stage {
    pub(super) index: usize,
    pub(super) cues: Receiver<Cue>,
    pub(super) reports: Sender<(usize, Result<Report, String>)>,
}

impl Stage {
    /// Nobody may be there to hear it.
    fn report(&self, report: Result<Report, String>) {
        let _ = self.reports.send((self.index, report));
    }
}

/// A worker, and the layer of TLS between it and its backend.
pub(super) struct Serving {
    pub(super) worker: Worker,
    pub(super) sessions: Sessions,
    pub(super) stats: Arc<Stats>,
}

impl Serving {
    /// Has something done to the worker on the backend that it knows.
    fn with<R>(
        &mut self,
        io: &mut Epoll,
        act: impl FnOnce(&mut Worker, &mut Secured<'_, Epoll>) -> R,
    ) -> R {
        let Serving { worker, sessions, .. } = self;
        act(worker, &mut Secured { io, sessions })
    }

    /// Adds what the layer has counted to the counters of the worker.
    fn count(&mut self) {
        if let Some(counts) = self.sessions.take_counts() {
            self.stats.count_tls(&counts);
        }
    }
}

/// What a worker does on its own thread before it may accept.
pub(super) fn prepare(
    post: Post,
    settings: &Settings,
    addresses: &Addresses,
    user: Option<&User>,
    mailbox: &Mailbox,
    worker: &mut Worker,
    own_table: io::Result<()>,
) -> Result<Epoll, StartError> {
    let threads = Post::all(settings).len();
    let mut files = usize::try_from(stentor_io::open_files_limit()).unwrap_or(usize::MAX);
    if let Err(error) = own_table {
        tracing::warn!("{post} shares its file table, and so its limit: {error}");
        files /= threads;
    }
    let mut listeners = addresses.listen(post, false)?;
    if let Post::Public(index) = post
        && settings.pin
        && let Err(error) = pin(index, settings, &listeners)
    {
        tracing::warn!("{post} is not pinned to a core: {error}");
    }
    if let (Some(name), Some(user)) = (&settings.user, user) {
        become_user(name, user)?;
    }
    // Not before: a socket file is its maker's, to connect to and to remove.
    listeners.extend(addresses.listen(post, true)?);
    let mut io = Epoll::new(listeners, Arc::clone(mailbox.waker()))?;
    if let Post::Public(_) = post {
        let connections_max = share(settings, files, threads);
        io.limit_connections(connections_max);
        worker.limit_connections(connections_max, settings.workers);
    } else if let Err(error) = stentor_io::take_short_turns() {
        // Where a crowd keeps all cores busy, whoever publishes would wait for the public workers.
        tracing::debug!("{post} waits for a core like others: {error}");
    }
    Ok(io)
}

/// Keeps a public worker on one core. If each has a core of its own, and packets come in on all of
/// them, connections come to the worker of their core. Otherwise the kernel spreads them by chance.
fn pin(index: usize, settings: &Settings, listeners: &[(Listener, Role)]) -> io::Result<()> {
    let (core, cores) = stentor_io::pin_to_core(index)?;
    if settings.workers != cores || cores == 1 {
        return Ok(());
    }
    // Tests come by loopback, whatever the cards are.
    if !cfg!(test)
        && let Some((card, reached)) = narrow_card(cores)
    {
        if index == 0 {
            tracing::info!(
                "connections are spread by chance and not by cores: {card} brings packets to \
                 {reached} of {cores} (stentor tune says more)"
            );
        }
        return Ok(());
    }
    listeners.iter().for_each(|(listener, _)| listener.prefer_core(core));
    Ok(())
}

/// How many connections one public worker holds, if it may have so many files. Each thread's
/// mailbox is one of them, in every table.
fn share(settings: &Settings, files: usize, threads: usize) -> usize {
    let reserved = numbers_kept(settings, threads) as usize + FILES_RESERVED;
    let by_files = files.saturating_sub(reserved).max(files / 2).max(1);
    match settings.limits.connections_max {
        0 => by_files,
        all => by_files.min(all.div_ceil(settings.workers)),
    }
}

/// Numbers of files that connections do not get, so that each keeps its own when it goes over to
/// another process: what a worker has open for itself has them. Where there are few files, fewer.
fn numbers_kept(settings: &Settings, threads: usize) -> u32 {
    let kept = NUMBERS_KEPT + threads + settings.mounts.len();
    u32::try_from(stentor_io::open_files_limit() / 4).unwrap_or(u32::MAX).min(kept as u32)
}

/// A worker's life and its end, whatever ends it: nothing more is kept for it, and nobody is
/// counted whom it served.
pub(super) fn live(
    post: Post,
    serving: Serving,
    io: Epoll,
    mailbox: &Mailbox,
    stage: Stage,
) -> io::Result<()> {
    let stats = Arc::clone(&serving.stats);
    let life = panic::catch_unwind(AssertUnwindSafe(|| run(serving, io, mailbox, stage)));
    let result = life.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
    mailbox.close();
    stats.close(result.is_err());
    result.inspect_err(|error| tracing::error!("{post} cannot go on: {error}"))
}

/// A worker's life. A panic costs the connection that caused it, and no other.
fn run(mut serving: Serving, mut io: Epoll, mailbox: &Mailbox, stage: Stage) -> io::Result<()> {
    let mut leaving = Leaving { stage, is_copying: false, handshakes_until_us: None };
    for panics in 0..panics_max() {
        let life = panic::catch_unwind(AssertUnwindSafe(|| {
            if panics > 0 {
                serving.with(&mut io, |worker, io| worker.recover(io));
                serving.sessions.recover(&mut io, &mut serving.worker);
                // A wake-up may have gone by in the turn that broke off.
                mailbox.waker().take();
                serving.with(&mut io, |worker, io| worker.read_mailbox(io));
            }
            loop {
                let woken = turn(&mut serving, &mut io, leaving.is_busy())?;
                let Serving { worker, sessions, .. } = &serving;
                if worker.has_ended() && (worker.is_out_of_time() || !sessions.are_ending()) {
                    return Ok(false);
                }
                if (woken || leaving.is_busy()) && leaving.go_on(&mut serving, &mut io) {
                    return Ok(true);
                }
            }
        }));
        serving.count();
        match life {
            Ok(Ok(has_left)) => {
                if has_left {
                    serving.sessions.leave();
                    io.leave_all();
                }
                return Ok(());
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                tracing::error!("a request made its worker panic; its connection is closed");
            }
        }
    }
    Err(io::Error::other("too many panics"))
}

/// Returns whether the worker was woken for what others want of it.
fn turn(serving: &mut Serving, io: &mut Epoll, is_busy: bool) -> io::Result<bool> {
    let Serving { worker, sessions, .. } = serving;
    let deadlines = [worker.next_deadline_ms(), sessions.next_deadline_ms()];
    let deadline_ms = if is_busy { Some(0) } else { deadlines.into_iter().flatten().min() };
    let woken = io.turn(&mut Securing { sessions, handler: worker }, deadline_ms)?;
    sessions.serve(io, worker);
    serving.with(io, |worker, io| {
        if woken {
            worker.read_mailbox(io);
        }
        worker.after_turn(io);
    });
    serving.count();
    if serving.worker.releases_memory() {
        // Not here: it takes some milliseconds. If there is no thread for it, it stays as it is.
        let _ = thread::Builder::new().name("release".to_owned()).spawn(release_memory);
    }
    Ok(woken)
}

/// A worker that may have to leave its connections to another process.
struct Leaving {
    stage: Stage,
    /// Connections are being sent.
    is_copying: bool,
    /// No handshake begins, and this is awaited until this time for those under way.
    handshakes_until_us: Option<u64>,
}

impl Leaving {
    /// Whether there is something to do in each turn.
    fn is_busy(&self) -> bool {
        self.is_copying || self.handshakes_until_us.is_some()
    }

    /// Follows the cues that have come, and sends some connections. Returns whether the other
    /// process has taken over.
    fn go_on(&mut self, serving: &mut Serving, io: &mut Epoll) -> bool {
        while let Ok(cue) = self.stage.cues.try_recv() {
            match cue {
                Cue::HandOver(Partner { process, name }) => {
                    let begun = Channel::connect(&name, process)
                        .and_then(|channel| channel.set_patience(PATIENCE).map(|()| channel))
                        .and_then(|channel| io.begin_hand_over(channel));
                    self.is_copying = begun.is_ok();
                    self.tell(begun, None);
                }
                Cue::Hold => {
                    serving.worker.hold_publishers();
                    self.tell(Ok(()), Some(Report::Holds));
                }
                Cue::EndHandshakes => {
                    serving.sessions.hold_handshakes();
                    self.handshakes_until_us = Some(monotonic_us() + HANDSHAKES_US_MAX);
                }
                Cue::Freeze(freeze) => return self.stand_still(serving, io, &freeze),
                Cue::OtherEnded => io.keep_alone(),
                // It may have panicked while it stood still: the other process has everything.
                Cue::Leave => return true,
                _ => {
                    // It may have panicked while it did.
                    // mutation: frozen-after-panic
                    serving.worker.stand_still(false);
                    self.stay(serving, io);
                }
            }
        }
        if let Some(until_us) = self.handshakes_until_us
            && (serving.sessions.handshakes_under_way() == 0 || monotonic_us() >= until_us)
        {
            self.handshakes_until_us = None;
            self.tell(Ok(()), Some(Report::NoHandshakes));
        }
        if self.is_copying {
            match io.hand_over_some() {
                Ok(false) => {}
                settled => {
                    self.is_copying = false;
                    self.tell(settled.map(drop), Some(Report::Settled));
                }
            }
        }
        false
    }

    /// Does nothing but what it is told, until it is known who goes on.
    fn stand_still(&mut self, serving: &mut Serving, io: &mut Epoll, freeze: &Freeze) -> bool {
        let mut phases = Phases::begin("a worker that hands over, since it was told");
        io.freeze();
        serving.worker.stand_still(true);
        self.tell(Ok(()), Some(Report::StandsStill));
        // What nobody else can change does not have to wait for the others.
        let sent = io.hand_over_rest(freeze.budget.ends_us());
        phases.end("sending what has changed of sockets");
        if sent.is_err() {
            self.tell(sent, None);
        }
        if freeze.gate.pass(|| Some(true)) {
            phases.end("until all stood still");
            self.hand_over(serving, io, &freeze.budget);
            phases.end("packing and sending");
        }
        loop {
            match self.stage.cues.recv() {
                Ok(Cue::Pack) => self.hand_over(serving, io, &freeze.budget),
                Ok(Cue::Leave) => {
                    phases.tell();
                    return true;
                }
                _ => {
                    serving.worker.stand_still(false);
                    self.stay(serving, io);
                    return false;
                }
            }
        }
    }

    fn hand_over(&self, serving: &mut Serving, io: &mut Epoll, budget: &PauseBudget) {
        serving.with(io, |worker, io| worker.read_mailbox(io));
        serving.count();
        let Serving { worker, sessions, .. } = serving;
        match worker.can_be_packed() {
            Ok(heard_seq) => {
                let now_ms = io.now_ms();
                let mut send = |bytes: &[u8], files: &[Arc<File>]| {
                    let is_sent = budget.add(bytes.len(), monotonic_us())?;
                    if is_sent { io.hand_over_part(bytes, files) } else { Ok(()) }
                };
                let sent = sessions
                    .pack(now_ms, &mut |bytes| send(bytes, &[]))
                    .and_then(|()| worker.pack(heard_seq, now_ms, &mut send));
                let ended = sent.and_then(|()| match budget.has_space() {
                    true => io.end_hand_over(),
                    // Without the end, the other process has not everything, and takes no token.
                    false => Ok(()),
                });
                self.tell(ended, Some(Report::HandedOver));
            }
            Err(reason) => self.tell(Ok(()), Some(Report::NotNow(reason))),
        }
    }

    /// The other process does not take over.
    fn stay(&mut self, serving: &mut Serving, io: &mut Epoll) {
        serving.sessions.stay();
        (self.is_copying, self.handshakes_until_us) = (false, None);
        io.keep_all();
    }

    fn tell(&self, done: io::Result<()>, report: Option<Report>) {
        match (done, report) {
            (Ok(()), Some(report)) => self.stage.report(Ok(report)),
            (Ok(()), None) => {}
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
                self.stage.report(Err("it took nothing for too long".to_owned()));
            }
            (Err(error), _) => self.stage.report(Err(format!("a worker: {error}"))),
        }
    }
}

/// Waits until the worker is to begin, and takes over from one of another process before, if that
/// is what `channel` is for. Returns false if it is not to begin at all.
pub(super) fn begins(
    serving: &mut Serving,
    io: &mut Epoll,
    channel: Option<ChannelListener>,
    settings: &Settings,
    stage: &Stage,
) -> bool {
    let numbers_kept = numbers_kept(settings, Post::all(settings).len());
    let cue = stage.cues.recv();
    let (channel, process, entrance) = match (channel, cue) {
        (Some(channel), Ok(Cue::TakeOver { process, entrance })) => (channel, process, entrance),
        (None, Ok(Cue::Live)) => {
            // Without, it could not be handed over; that is no reason not to serve.
            let kept = io.keep_numbers(numbers_kept);
            let _ =
                kept.inspect_err(|error| tracing::warn!("numbers of files are not kept: {error}"));
            return true;
        }
        _ => return false,
    };
    let taken = panic::catch_unwind(AssertUnwindSafe(|| {
        take_over(serving, io, channel, process, numbers_kept, &entrance)
    }));
    match taken.unwrap_or_else(|_| Err(io::Error::other("it panicked"))) {
        Ok(()) => {
            stage.report(Ok(Report::Begins { at_us: monotonic_us() }));
            true
        }
        Err(error) => {
            tracing::error!("a worker cannot take over: {error}");
            stage.report(Err(format!("a worker: {error}")));
            false
        }
    }
}

/// Takes over from a worker of that process, and waits until all others have.
fn take_over(
    serving: &mut Serving,
    io: &mut Epoll,
    channel: ChannelListener,
    process: u32,
    numbers_kept: u32,
    entrance: &Entrance,
) -> io::Result<()> {
    let Serving { worker, sessions, .. } = serving;
    let mut phases = Phases::begin("a worker that takes over");
    let mut channel = channel.accept(process, PATIENCE)?;
    // The hub may take long.
    channel.set_patience(PATIENCE_COPYING)?;
    // The channel has one of them.
    io.keep_numbers(numbers_kept)?;
    io.take_over(&mut channel, |end| worker.make_room(end))?;
    phases.end("taking sockets");
    let mut unpacking = worker.begin_unpacking(io);
    let mut unpacking_sessions = Unpacking::begin(io.now_ms());
    let mut parts = Parts::of(&mut channel);
    let mut unpacked = Ok(());
    // Of what cannot be unpacked the rest is received too: who still sends would hear of an end,
    // and not of the reason.
    let mut has_keys = false;
    while parts.next(|bytes, files| {
        has_keys = Unpacking::is_part(bytes);
        if unpacked.is_ok() && has_keys {
            unpacked = unpacking_sessions.part(sessions, bytes);
        } else if unpacked.is_ok() {
            unpacked = unpacking.part(worker, bytes, files.into_iter().map(Arc::new).collect());
        }
    })? {
        if has_keys {
            parts.wipe();
        }
    }
    unpacked.map_err(io::Error::other)?;
    phases.end("receiving and unpacking");
    let has_hub = entrance.hub.wait();
    phases.end("until the hub was there");
    if has_hub {
        unpacking.end(worker).map_err(io::Error::other)?;
    }
    phases.end("entering the hub");
    let takes_token = || Some(has_hub && entrance.token.take().unwrap_or(false));
    if !entrance.all.pass(takes_token) {
        return Err(io::Error::other("it was given up"));
    }
    phases.end("until all were there");
    phases.tell();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::handover::Gate;
    use super::super::prepared::{PreparedSettings, Running};
    use super::super::{Service, empty_hub, share};
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use stentor_config::ControlAddress;
    use stentor_hub::{Epoch, Life};
    use stentor_io::Token;
    use stentor_server::CONTROL;

    /// The worker of the control listener of these settings.
    fn serving(settings: &Settings) -> (Serving, Epoll, SocketAddr) {
        let hub = empty_hub(settings, Life { epoch: Epoch::random(), base: 0 }, false);
        let prepared = PreparedSettings::read_bounded(settings, Running::default()).unwrap();
        let (shared, _) = share(&prepared, hub, &Service::None, &[Post::Control], None).unwrap();
        let (stats, mailbox) = (Arc::<Stats>::default(), Arc::new(Mailbox::new().unwrap()));
        let (shared, own_settings) = (Arc::new(shared), Arc::new(settings.clone()));
        let (counts, mail) = (Arc::clone(&stats), Arc::clone(&mailbox));
        let mut worker = Worker::new(shared, own_settings, counts, mail, 1);
        let addresses = Addresses::reserve(settings, Vec::new(), None).unwrap();
        let address = addresses.bound()[0].address.tcp().unwrap();
        let post = Post::Control;
        let io = prepare(post, settings, &addresses, None, &mailbox, &mut worker, Ok(())).unwrap();
        let sessions = Sessions::new(Arc::default(), CONTROL);
        (Serving { worker, sessions, stats }, io, address)
    }

    /// Each worker has an equal part, and keeps numbers of files for all else that it opens.
    #[test]
    fn a_worker_holds_its_share_of_connections() {
        let mut settings = Settings { workers: 3, ..Settings::default() };
        assert_eq!(super::share(&settings, 100_000, 4), 100_000 - 64 - 4 - 64);
        assert_eq!((super::share(&settings, 200, 4), super::share(&settings, 0, 4)), (100, 1));
        settings.limits.connections_max = 100;
        assert_eq!(super::share(&settings, 100_000, 4), 34);
    }

    fn settings() -> Settings {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let control = vec![ControlAddress::Tcp(any).into()];
        Settings { listen: Vec::new(), control, workers: 1, ..Settings::default() }
    }

    /// It may be busy, and its hub large.
    #[test]
    fn a_worker_waits_for_a_slow_process() {
        let (mut serving, mut io, _) = serving(&settings());
        let (listener, own) = (ChannelListener::new().unwrap(), std::process::id());
        let name = listener.name().to_vec();
        let (ends, ended) = channel::<()>();
        let waits = move || ended.recv_timeout(Duration::from_millis(20)).unwrap_err();
        let slow = thread::spawn(move || {
            waits();
            let _channel = Channel::connect(&name, own).unwrap();
            waits();
        });
        let (hub, all) = (Gate::new(0), Gate::new(1));
        let entrance = Entrance { hub, all, token: Token::new().unwrap() };
        let failed = take_over(&mut serving, &mut io, listener, own, 0, &entrance).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::UnexpectedEof);
        slow.join().unwrap();
        drop(ends);
    }

    #[test]
    fn a_worker_that_panicked_while_it_stood_still_goes_on() {
        let (mut serving, mut io, address) = serving(&settings());
        let (cue, cues) = channel();
        let (reports, _) = channel();
        let stage = Stage { index: 0, cues, reports };
        let mut leaving = Leaving { stage, is_copying: false, handshakes_until_us: None };
        // The loop in which it stood still was left by the panic.
        serving.worker.stand_still(true);
        cue.send(Cue::GoOn).unwrap();
        assert!(!leaving.go_on(&mut serving, &mut io));
        is_published_to(serving, io, address);
    }

    #[test]
    fn a_worker_that_packs_slowly_goes_on() {
        let (mut serving, mut io, address) = serving(&settings());
        let ((cue, cues), (reports, reported)) = (channel(), channel());
        let mut leaving = Leaving {
            stage: Stage { index: 0, cues, reports },
            is_copying: false,
            handshakes_until_us: None,
        };
        let (listener, own) = (ChannelListener::new().unwrap(), std::process::id());
        io.begin_hand_over(Channel::connect(listener.name(), own).unwrap()).unwrap();
        serving.worker.stand_still(true);
        // The time is over when it has packed the first part.
        let budget = PauseBudget::begin(&settings().limits, 0);
        leaving.hand_over(&mut serving, &mut io, &budget);
        let (_, report) = reported.recv_timeout(PATIENCE).unwrap();
        assert_eq!(report, Err("a worker: it is not packed yet".to_owned()));
        cue.send(Cue::GoOn).unwrap();
        assert!(!leaving.go_on(&mut serving, &mut io));
        is_published_to(serving, io, address);
    }

    /// Publishes by this worker.
    fn is_published_to(mut serving: Serving, mut io: Epoll, address: SocketAddr) {
        let ask = thread::spawn(move || {
            let mut client = TcpStream::connect(address).unwrap();
            client
                .write_all(b"PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
                .unwrap();
            let mut answer = [0; 12];
            client.read_exact(&mut answer).map(|()| answer)
        });
        for _ in 0..10_000_000 {
            if ask.is_finished() {
                break;
            }
            turn(&mut serving, &mut io, true).unwrap();
        }
        drop((serving, io));
        assert_eq!(&ask.join().unwrap().unwrap(), b"HTTP/1.1 201");
    }
}
