//! Handing a server over to another process: the side of the one that ends.

use super::handover::{
    Address, ENDED, Gate, PATIENCE, PATIENCE_COPYING, PackedDocument, Ready, SILENT, ServerState,
    expect, kind, put_entry, put_tip, told,
};
use super::life::{Cue, Partner, Post, Report};
use super::listeners::BoundListener;
use super::pause::{Freeze, PauseBudget, Phases};
use super::{Server, Service, counters};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stentor_hub::Snapshot;
use stentor_io::{Channel, HostDisk, Token, WaitingParent, monotonic_us, sleep};
use stentor_order::ChangeQueue;
use stentor_server::{Failed, History, ProcessState, Shared, Upgraded};
use stentor_store::{Ending, Writer};

impl Server {
    /// Hands everything over to another process of this program, which `program` starts: every
    /// connection, listener, value and number, and how to tell the first process, if that waits for
    /// the end of the server. It returns the number of the other process when that
    /// serves, and this one is to end. If anything fails before, or `gives_up` returns true, this
    /// process ends the other one, and this one continues as if nothing had happened.
    ///
    /// # Errors
    /// A sentence that says why this process goes on.
    pub fn hand_over(
        &self,
        program: &mut Command,
        parent: Option<&WaitingParent>,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<u32, String> {
        let upgrades = self.shared.process.upgrades.begin();
        let handed_over = self.try_hand_over(program, parent, upgrades, gives_up);
        // mutation: failed-upgrade
        handed_over.inspect_err(|reason| self.fail_upgrade(reason))
    }

    /// An upgrade has come to nothing, for this reason: those who ask are told.
    pub fn fail_upgrade(&self, reason: &str) {
        self.shared.process.upgrades.failed(Failed::now(reason));
    }

    fn try_hand_over(
        &self,
        program: &mut Command,
        parent: Option<&WaitingParent>,
        upgrades: History<Upgraded>,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<u32, String> {
        if matches!(self.service, Service::Cluster(..)) {
            return Err(NOT_YET.to_owned());
        }
        if self.shared.process.is_stopping.load(Ordering::Relaxed) {
            return Err("the server is about to stop".to_owned());
        }
        if let Some(store) = self.service.store()
            && let Some(failure) = store.intake.failure()
        {
            return Err(format!("nothing can be stored: {failure}"));
        }
        // What workers have said of one that failed is of no use any more.
        self.reports().try_iter().for_each(drop);
        let token = Token::new().map_err(|error| error.to_string())?;
        let started = Channel::start(program);
        let (channel, mut child) = started.map_err(|error| {
            format!("{} cannot be started: {error}", program.get_program().display())
        })?;
        let mut leaving = Leaving {
            server: self,
            channel,
            process: child.id(),
            changes: &self.changes,
            writer: None,
            token,
            freeze: None,
        };
        leaving.changes.open_for_copy(&self.shared.hub);
        let state = self.state(upgrades);
        let handed_over = leaving.hand_over(&state, parent, gives_up);
        let Err(setback) = handed_over.or_else(|setback| leaving.take_back(setback)) else {
            self.cue(|_| Cue::Leave);
            return Ok(leaving.process);
        };
        self.go_on(leaving.writer.take());
        let reason = match setback {
            Setback::OverBudget(reason) => reason,
            Setback::Failed(reason) => leaving.refusal().unwrap_or(reason),
        };
        leaving.changes.close(&self.shared.hub);
        drop(leaving);
        let ended = end(&mut child, reason == ENDED);
        if ended.is_ok() {
            self.cue(|_| Cue::OtherEnded);
        }
        Err(match ended {
            Ok(status) if reason == ENDED => format!("{ENDED} with {status}"),
            _ => reason,
        })
    }

    /// Serves again. This process has the token, so the other one serves no connection and writes
    /// nothing until it has ended.
    fn go_on(&self, writer: Option<Writer<HostDisk>>) {
        if let Some(follow) = self.service.follow() {
            follow.go_on();
        }
        if let (Some(_), Some(store)) = (&writer, self.service.store()) {
            // Before workers continue: they publish at once, and wait for the writer.
            store.intake.resume();
        }
        self.cue(|_| Cue::GoOn);
        if let Some(writer) = writer {
            self.resume_store(writer);
        }
    }

    /// Continues the store after its writer has ended for another process.
    fn resume_store(&self, writer: Writer<HostDisk>) {
        let Some(store) = self.service.store() else { return };
        let intake = Arc::clone(&store.intake);
        let started = self.start_writer(move || {
            // The lock is free, unless another program reads the store at this moment.
            // Publishers that wait for it are answered after `store.wait_max`.
            while writer.disk().give_away(false).is_err() {
                if intake.is_ending() {
                    return Err("another process has the store open".to_owned());
                }
                sleep(LOOK);
            }
            Ok(writer)
        });
        if let Err(error) = started {
            let sentence = format!("the store cannot be written to: {error}; restart the server");
            tracing::error!("{sentence}");
            store.intake.abandon(&sentence);
        }
    }

    /// Gives a cue to each worker.
    pub(super) fn cue(&self, cue: impl Fn(usize) -> Cue) {
        for (index, (starter, mailbox)) in self.cues.iter().zip(&self.mailboxes).enumerate() {
            // A worker that has died says so at the end.
            let _ = starter.send(cue(index));
            mailbox.waker().wake();
        }
    }

    /// Has operators answered, before anybody else is.
    pub(super) fn cue_operators(&self, posts: &[Post]) {
        let operators = posts.iter().zip(&self.cues).filter(|(post, _)| !post.is_public());
        operators.for_each(|(_, cues)| cues.send(Cue::Live).unwrap_or_default());
    }

    /// The state that goes over. All parts of a server are named here: a part goes over, or it
    /// begins from scratch for the reason that is given.
    fn state(&self, upgrades: History<Upgraded>) -> ServerState {
        #[rustfmt::skip]
        let Server {
            shared, settings, listeners, mailboxes, service,
            // Threads, and what they tell each other, are of a process.
            cues: _, reports: _, channels: _, threads: _, background: _, _guard: _,
            // Its changes follow the snapshot of the hub (`ENTRIES`).
            changes: _,
            // The store follows while all workers are frozen (`STORE`).
            writer: _,
            // A server that stops hands nothing over.
            ends_by_us: _,
        } = self;
        #[rustfmt::skip]
        let Shared {
            hub, acceptors, tokens, workers_public, process,
            // It belongs to the service.
            committer: _,
            // Files are read and the log is opened again. Their counters follow (`COUNTERS`).
            file_cache: _, access_log: _,
            // It is of the program.
            client: _,
            // Each worker counts the connections that it unpacks.
            addresses: _,
            // It is measured again. Its counters follow.
            memory: _,
            // Each worker packs its own.
            workers: _,
        } = &**shared;
        #[rustfmt::skip]
        let ProcessState {
            started_unix_s,
            // Of this process.
            process_started_unix_s: _,
            // A server that stops hands nothing over.
            is_stopping: _,
            // They have begun this one, and are the argument.
            upgrades: _,
            // Clients ask for a reload of a process.
            reloads: _,
        } = process;
        let text = |path: &Path| path.display().to_string();
        let left_out = acceptors.left_out(stentor_io::unix_s());
        let left_out = left_out.iter().map(|pair| [text(&pair.certificate), text(&pair.key)]);
        let address = |one: &BoundListener| Address { role: one.role, at: one.address.to_string() };
        let follow = service.follow();
        // A store has them in its files.
        let lost = if follow.is_some() { hub.rolled_back() } else { Vec::new() };
        ServerState {
            epoch: hub.life().epoch.number(),
            base: hub.life().base,
            workers_public: *workers_public,
            workers: mailboxes.len(),
            follows: follow.map(|follow| follow.topics()),
            rolled_back: lost.into_iter().map(|range| [*range.start(), *range.end()]).collect(),
            store: settings.store.path.as_deref().map(text),
            addresses: listeners.iter().map(address).collect(),
            left_out: left_out.collect(),
            started_unix_s: *started_unix_s,
            upgrades,
            documents: tokens.fetched().into_iter().map(PackedDocument::of).collect(),
            ticket_secret: acceptors.random_ticket_secret().map(|secret| secret.to_vec()),
        }
    }
}

/// A server that is being handed over.
struct Leaving<'s> {
    server: &'s Server,
    channel: Channel,
    /// The process that takes over, once it has said which: before, the one that was started.
    process: u32,
    changes: &'s ChangeQueue,
    /// The writer of the store, once it has ended.
    writer: Option<Writer<HostDisk>>,
    /// Whoever has it goes on.
    token: Token,
    /// The workers are to freeze, or are frozen.
    freeze: Option<Arc<Freeze>>,
}

/// Why a server is not handed over: a sentence.
#[derive(Debug, PartialEq, Eq)]
enum Setback {
    /// The pause would have been longer, or larger, than it may be.
    OverBudget(String),
    /// The other process may know more.
    Failed(String),
}

impl From<String> for Setback {
    fn from(reason: String) -> Setback {
        Setback::Failed(reason)
    }
}

impl Leaving<'_> {
    fn hand_over(
        &mut self,
        state: &ServerState,
        parent: Option<&WaitingParent>,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), Setback> {
        self.copy(state, parent, gives_up)?;
        if let Some(store) = self.server.service.store() {
            self.server.cue(|_| Cue::Hold);
            self.await_reports(Report::Holds, after(PATIENCE), gives_up)?;
            let ended = self.flush_store(gives_up);
            if ended.is_err() && self.writer.is_none() && !store.intake.resume() {
                self.writer = self.server.join_writer()?.map(|ended| ended.writer);
            }
            ended?;
        }
        self.server.cue(|_| Cue::EndHandshakes);
        self.await_reports(Report::NoHandshakes, after(PATIENCE), gives_up)?;
        if let Some(follow) = self.server.service.follow() {
            follow.stand_still();
        }
        self.pause()
    }

    /// Sends everything, while it is served and changes.
    fn copy(
        &mut self,
        state: &ServerState,
        parent: Option<&WaitingParent>,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        self.channel.set_patience(PATIENCE).map_err(told)?;
        let (first, state) = state.to_bytes();
        let sent = self.channel.send_with_token(kind::HELLO, &first, &self.token, parent);
        sent.and_then(|()| self.channel.send(kind::STATE, &state)).map_err(told)?;
        let answer = self.await_answer(kind::READY, PATIENCE, gives_up)?;
        let Ready { process, names } = Ready::from_bytes(&answer)?;
        // The one that was started stands between the two (`Intermediate`).
        self.process = process;
        if names.len() != self.server.mailboxes.len() {
            return Err("it has not as many workers".to_owned());
        }
        self.server.cue(|index| Cue::HandOver(Partner { process, name: names[index].clone() }));
        self.copy_hub(gives_up).map_err(told)?;
        self.await_answer(kind::COPIED, PATIENCE_COPYING, gives_up)?;
        self.await_reports(Report::Settled, after(PATIENCE), gives_up)
    }

    /// Freezes the workers until one of the two processes serves.
    fn pause(&mut self) -> Result<(), Setback> {
        let mut phases = Phases::begin("the process that hands over");
        let freeze = Arc::new(Freeze {
            gate: Gate::new(self.server.mailboxes.len()),
            budget: PauseBudget::begin(&self.server.settings.limits, phases.since_us()),
        });
        self.freeze = Some(Arc::clone(&freeze));
        self.channel.set_deadline(freeze.budget.ends_us());
        self.server.cue(|_| Cue::Freeze(Arc::clone(&freeze)));
        self.hand_over_rest(&freeze.budget, &mut phases).map_err(|reason| {
            let excess = freeze.budget.excess(&reason, monotonic_us());
            excess.map_or(Setback::Failed(reason), Setback::OverBudget)
        })?;
        phases.tell();
        Ok(())
    }

    /// Sends the rest. All workers are frozen.
    fn hand_over_rest(&mut self, budget: &PauseBudget, phases: &mut Phases) -> Result<(), String> {
        let until_us = budget.ends_us();
        self.await_reports(Report::StandsStill, until_us, &|| false)?;
        phases.end("until all stood still");
        self.channel.send(kind::COUNTERS, &counters::pack(self.server)).map_err(told)?;
        let since_us = phases.since_us().to_le_bytes();
        self.channel.send(kind::STANDS_STILL, &since_us).map_err(told)?;
        self.await_reports(Report::HandedOver, until_us, &|| false)?;
        if !budget.has_space() {
            return Err("it is too much".to_owned());
        }
        phases.end("packing and sending");
        expect(&mut self.channel, kind::GONE_ON)?;
        phases.end("until the other one said that it goes on");
        Ok(())
    }

    /// Something went wrong. Returns the reason if this process may go on; the other one may have
    /// gone on before, and then only whoever supervises it has to know of that too.
    fn take_back(&mut self, setback: Setback) -> Result<(), Setback> {
        if let Some(freeze) = &self.freeze {
            freeze.gate.decide(false);
        }
        match self.token.take() {
            Ok(false) => {
                self.channel.set_deadline(after(PATIENCE_COPYING));
                if let Err(then) = expect(&mut self.channel, kind::GONE_ON) {
                    tracing::error!(
                        "the process that took over has not said that it goes on: {setback:?}; \
                         {then}"
                    );
                }
                Ok(())
            }
            // An error cannot be; if it is, the other one is to be ended.
            Ok(true) | Err(_) => Err(setback),
        }
    }

    /// What the other process says of a failure, if it does: it knows more.
    fn refusal(&mut self) -> Option<String> {
        // It may be waiting for what is not sent any more. If it has ended, its reason is here.
        // mutation: told-of-end
        let _ = self.channel.end();
        self.channel.set_deadline(after(PATIENCE_FOR_REASON));
        let mut was_reset = false;
        loop {
            let parcel = match self.channel.receive() {
                Ok(parcel) => parcel,
                // It ended before it read all. The kernel says so once, and shows its words then.
                Err(error) if error.kind() == ErrorKind::ConnectionReset && !was_reset => {
                    was_reset = true;
                    continue;
                }
                Err(_) => return None,
            };
            if parcel.kind == kind::REFUSED {
                let reason = String::from_utf8_lossy(parcel.bytes).into_owned();
                // That nothing more came is no reason: this process has one.
                // mutation: reason-of-silence
                return Some(reason).filter(|reason| reason != ENDED);
            }
        }
    }

    /// No worker publishes: brings everything to the disk, and tells the other process where the
    /// store ends.
    fn flush_store(&mut self, gives_up: &dyn Fn() -> bool) -> Result<(), String> {
        let until_us = after(PATIENCE_HELD);
        let gives_up = || gives_up() || monotonic_us() > until_us;
        let Some(ended) = self.server.end_writer(Ending::HandOver, &gives_up)? else {
            return Err("no thread writes to the store".to_owned());
        };
        let writer = self.writer.insert(ended.writer);
        ended.result.map_err(|reason| format!("the store is not flushed: {reason}"))?;
        let tip = writer.tip().ok_or("the store is not flushed")?;
        writer.disk().give_away(true).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        put_tip(&tip, &mut bytes);
        self.channel.send(kind::STORE, &bytes).map_err(told)
    }

    /// Waits for a message of this kind, and sends meanwhile what changes in the hub, if that was
    /// begun.
    fn await_answer(
        &mut self,
        expected: u8,
        patience: Duration,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, String> {
        let until_us = after(patience);
        while !self.channel.has_mail().map_err(told)? {
            if gives_up() {
                return Err(GIVEN_UP.to_owned());
            }
            if monotonic_us() > until_us {
                return Err(SILENT.to_owned());
            }
            if expected == kind::COPIED {
                // Its failure is told by what is received.
                let _ = self.send_changes();
            }
            sleep(LOOK);
        }
        expect(&mut self.channel, expected)
    }

    /// Sends the hub as it is, while it is published to, and most of what changes meanwhile.
    fn copy_hub(&mut self, gives_up: &dyn Fn() -> bool) -> io::Result<()> {
        let hub = &self.server.shared.hub;
        let mut slice = Vec::new();
        let mut snapshot = Snapshot::begin(hub, &mut slice);
        loop {
            let is_more = snapshot.write_slice(hub, &mut slice).map_err(io::Error::other)?;
            self.channel.send(kind::SNAPSHOT, &slice)?;
            slice.clear();
            if gives_up() {
                return Err(io::Error::other(GIVEN_UP));
            }
            if !is_more {
                return self.channel.send(kind::COPIED, &[]);
            }
        }
    }

    /// Sends what has changed in the hub since it was sent last.
    fn send_changes(&mut self) -> io::Result<()> {
        let changes = self.changes.take().map_err(|cut| io::Error::other(cut.to_string()))?;
        if changes.is_empty() {
            return Ok(());
        }
        let mut entries = Vec::new();
        changes.iter().for_each(|change| put_entry(change, &mut entries));
        self.channel.send(kind::ENTRIES, &entries)
    }

    /// Waits until all workers have reported that, until this time at most, and sends meanwhile
    /// what changes.
    fn await_reports(
        &mut self,
        expected: Report,
        until_us: u64,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let reports = self.server.reports();
        let not_now_until_us = until_us.min(after(PATIENCE_NOT_NOW));
        let mut missing = self.server.mailboxes.len();
        while missing > 0 {
            if gives_up() {
                return Err(GIVEN_UP.to_owned());
            }
            let left_us = until_us.saturating_sub(monotonic_us());
            match reports.recv_timeout(LOOK.min(Duration::from_micros(left_us + 1))) {
                Ok((_, Ok(report))) if report == expected => missing -= 1,
                Ok((index, Ok(Report::NotNow(reason)))) => {
                    if monotonic_us() > not_now_until_us {
                        return Err(reason.to_owned());
                    }
                    sleep(Duration::from_millis(1));
                    let _ = self.server.cues[index].send(Cue::Pack);
                }
                Ok((_, Ok(report))) => return Err(format!("a worker said {report:?}")),
                Ok((_, Err(reason))) => return Err(reason),
                Err(_) if monotonic_us() > until_us => {
                    return Err("a worker said nothing for too long".to_owned());
                }
                Err(_) => {}
            }
            self.send_changes().map_err(told)?;
        }
        Ok(())
    }
}

/// Has the other process end, by itself if it does so soon: it may be about to say why.
fn end(other: &mut Child, by_itself: bool) -> io::Result<ExitStatus> {
    let patience = if by_itself { PATIENCE_FOR_END } else { PATIENCE_FOR_REASON };
    if let Some(status) = ended_within(other, patience) {
        return Ok(status);
    }
    // It may have ended by now.
    // mutation: hung-process
    let _ = other.kill();
    let status = ended_within(other, PATIENCE_FOR_END);
    // Its child ends with it, and may have become a child of this process.
    stentor_io::reap_within(PATIENCE_FOR_END);
    status.ok_or_else(|| io::Error::other("it does not end"))
}

/// The status of a process that ends within this time.
fn ended_within(other: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let until_us = after(patience);
    while monotonic_us() < until_us {
        if let Ok(Some(status)) = other.try_wait() {
            return Some(status);
        }
        sleep(LOOK);
    }
    None
}

/// So long from now, on the clock of [`monotonic_us`].
fn after(patience: Duration) -> u64 {
    monotonic_us() + patience.as_micros() as u64
}

const NOT_YET: &str =
    "a node of a cluster is not upgraded yet: restart it; its readers go to others";

/// How long publishers are held while the store is flushed.
const PATIENCE_HELD: Duration = Duration::from_secs(8);

const GIVEN_UP: &str = "it was given up";

/// How long something that cannot be handed over may take to come to its end.
const PATIENCE_NOT_NOW: Duration = Duration::from_millis(200);

/// How long it may take to say why it does not take over.
const PATIENCE_FOR_REASON: Duration = Duration::from_millis(100);

/// How long a process that says nothing any more may take to end.
const PATIENCE_FOR_END: Duration = Duration::from_secs(1);

/// How often it is looked whether somebody gives up.
const LOOK: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::super::start;
    use super::*;
    use std::cell::Cell;
    use std::sync::{Mutex, mpsc};
    use std::thread;
    use stentor_config::{Limits, Settings};
    use stentor_io::ChannelListener;
    use stentor_test::missing;

    type Reports = mpsc::Sender<(usize, Result<Report, String>)>;

    /// A server that is being handed over. The test stands in for its one worker, and the other
    /// process says nothing.
    fn with_leaving(
        upgrade_pause_max_ms: u64,
        test: impl FnOnce(&mut Leaving<'_>, Reports, mpsc::Receiver<Cue>),
    ) {
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let (control, monitor) = (Vec::new(), Vec::new());
        let limits =
            Limits { upgrade_pause_max_ms, upgrade_bytes_max: 1 << 10, ..Limits::default() };
        let settings =
            Settings { workers: 1, listen, control, monitor, limits, ..Settings::default() };
        let mut server = start(settings, Vec::new()).unwrap();
        let (cue, cues) = mpsc::channel();
        let (reporter, reports) = mpsc::channel();
        let _cues = std::mem::replace(&mut server.cues, vec![cue]);
        server.reports = Mutex::new(reports);
        let (listener, process) = (ChannelListener::new().unwrap(), std::process::id());
        let channel = Channel::connect(listener.name(), process).unwrap();
        let token = Token::new().unwrap();
        let changes = &server.changes;
        let server_of = &server;
        test(
            &mut Leaving {
                server: server_of,
                channel,
                process,
                changes,
                writer: None,
                token,
                freeze: None,
            },
            reporter,
            cues,
        );
        server.drain();
        server.wait().unwrap();
    }

    #[test]
    fn a_worker_that_never_can_ends_the_upgrade() {
        with_leaving(1, |leaving, reports, cues| {
            thread::spawn(move || {
                for _ in 0..3_000 {
                    let _ = reports.send((0, Ok(Report::NotNow("busy"))));
                    let cue = cues.recv_timeout(Duration::from_secs(30));
                    let Ok(Cue::Pack) = cue else { return };
                }
                let _ = reports.send((0, Ok(Report::HandedOver)));
            });
            let outcome = leaving.await_reports(Report::HandedOver, after(PATIENCE), &|| false);
            assert_eq!(outcome, Err("busy".to_owned()));
        });
    }

    #[test]
    fn waiting_for_an_answer_takes_little_work() {
        with_leaving(1, |leaving, _, _| {
            let looks = Cell::new(0);
            let gives_up = || looks.replace(looks.get() + 1) == usize::MAX;
            let patience = Duration::from_millis(50);
            let answer = leaving.await_answer(kind::READY, patience, &gives_up);
            assert_eq!(answer, Err(SILENT.to_owned()));
            assert!(looks.get() <= 12, "{} times in 50 ms", looks.get());
        });
    }

    /// A pause fails for a reason that begins so, and this process has the token.
    #[track_caller]
    fn is_over_budget(leaving: &mut Leaving<'_>, expected: &str) {
        let setback = leaving.pause().unwrap_err();
        let Setback::OverBudget(reason) = &setback else { panic!("{setback:?}") };
        assert!(reason.starts_with(expected), "{reason}");
        assert!(matches!(leaving.take_back(setback), Err(Setback::OverBudget(_))));
        assert!(!leaving.token.take().unwrap());
        assert!(!leaving.freeze.as_ref().unwrap().gate.wait());
    }

    #[test]
    fn a_pause_ends_if_a_worker_is_silent() {
        with_leaving(1, |leaving, _reports, _| {
            is_over_budget(
                leaving,
                "a worker said nothing for too long: no request was served for ",
            );
        });
    }

    #[test]
    fn a_pause_ends_if_the_other_process_hangs() {
        with_leaving(1, |leaving, reports, _| {
            reports.send((0, Ok(Report::StandsStill))).unwrap();
            reports.send((0, Ok(Report::HandedOver))).unwrap();
            is_over_budget(leaving, "it said nothing for too long: no request was served for ");
        });
    }

    #[test]
    fn a_pause_ends_if_too_much_is_packed() {
        with_leaving(3_600_000, |leaving, reports, cues| {
            let worker = thread::spawn(move || {
                let Ok(Cue::Freeze(freeze)) = cues.recv_timeout(PATIENCE) else { panic!("no cue") };
                reports.send((0, Ok(Report::StandsStill))).unwrap();
                assert!(!freeze.budget.add(3 << 10, 0).unwrap());
                reports.send((0, Ok(Report::HandedOver))).unwrap();
            });
            is_over_budget(leaving, "3 KiB had to be handed over in the pause, 2 KiB more");
            worker.join().unwrap();
        });
    }

    /// The other process closes its channel, and ends once the worker continues. If the worker
    /// waited for that end, the process would be killed.
    #[test]
    fn workers_go_on_before_the_other_process_ends() {
        let bash = Some(Path::new("/bin/bash")).filter(|path| path.exists());
        let Some(bash) = bash.or_else(|| missing("bash")) else { return };
        with_leaving(1, |leaving, _reports, cues| {
            let dir = std::env::temp_dir().join(format!("stentor-goes-on-{}", std::process::id()));
            let _ = std::fs::remove_file(&dir);
            let file = dir.clone();
            thread::spawn(move || {
                let is_over = |cue: &Cue| matches!(cue, Cue::GoOn);
                let _ = cues.iter().find(is_over);
                std::fs::write(file, "").unwrap();
                cues.iter().for_each(drop);
            });
            let script = "eval \"exec $STENTOR_HANDOVER>&-\"; \
                          until [ -e \"$1\" ]; do sleep 0.01; done; exit 3";
            let mut program = Command::new(bash);
            program.args(["-c", script, "bash"]).arg(&dir);
            let failed = leaving.server.hand_over(&mut program, None, &|| false);
            assert_eq!(failed, Err("it ended with exit status: 3".to_owned()));
            std::fs::remove_file(dir).unwrap();
        });
    }
}
