//! Taking a server over from another process: the side of the one that was started for it.

use super::handover::{
    Entrance, Gate, PATIENCE, Ready, ServerState, expect, kind, next_entry, tip_of, told,
    unexpected,
};
use super::life::{Cue, Report};
use super::pause::Phases;
use super::{Server, StartError, counters};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use stentor_config::Settings;
use stentor_hub::{Hub, Restored, decode_entry};
use stentor_io::{
    Channel, Intermediate, Token, WaitingParent, parent_process, release_memory, sleep,
};
use stentor_log::Tip;
use stentor_replication::FollowState;
use stentor_server::{RELEASE_AFTER_MS, Totals, Upgraded};
use zeroize::Zeroizing;

/// The process that hands a server over to this one.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    /// Until the workers have it.
    token: Option<Token>,
    pub(super) hello: ServerState,
    pub(super) process: u32,
    /// The process between the two, until this one serves.
    intermediate: Option<Intermediate>,
    /// The first process, if it waits for the end of the server.
    parent: Option<WaitingParent>,
}

impl Predecessor {
    /// The one that started this process to take over, if one did. Then this forks, and returns in
    /// the child: call it once, before there is another thread.
    ///
    /// # Errors
    /// A sentence, if this process cannot take over from that one, which goes on then.
    pub fn find() -> Result<Option<Predecessor>, String> {
        let process = parent_process();
        let named = |error| format!("whoever started this process: {}", told(error));
        let Some(mut channel) = Channel::inherited().map_err(named)? else { return Ok(None) };
        channel.set_patience(PATIENCE).map_err(named)?;
        let parcel = channel.receive().map_err(named)?;
        let announced = match parcel.kind {
            kind::HELLO => ServerState::announced(parcel.bytes),
            other => Err(unexpected(other).to_string()),
        };
        let (token, parent) = parcel.into_token();
        let received = announced.and_then(|length| {
            // Its secret is not moved while it grows.
            let mut state = Zeroizing::new(Vec::with_capacity(length));
            while state.len() < length {
                state.append(&mut expect(&mut channel, kind::STATE)?);
            }
            ServerState::from_bytes(&state)
        });
        let refused = |reason: String| {
            let _ = channel.send(kind::REFUSED, reason.as_bytes());
            reason
        };
        let hello = received.map_err(refused)?;
        let parent = parent.map_or_else(WaitingParent::named, |parent| Ok(Some(parent)));
        let parent = parent.map_err(|error| refused(format!("no first process: {error}")))?;
        let intermediate = Intermediate::fork()
            .map_err(|error| refused(format!("no intermediate process: {error}")))?;
        let intermediate = Some(intermediate);
        Ok(Some(Predecessor { channel, token, hello, process, intermediate, parent }))
    }

    /// Whether the first process waits for the end of the server. Its supervisor knows no other.
    #[must_use]
    pub fn has_waiting_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Tells it why it has to go on.
    pub fn refuse(&self, reason: &str) {
        // If it is gone, nobody has to be told.
        let _ = self.channel.send(kind::REFUSED, reason.as_bytes());
    }

    /// Makes this process a child of the supervisor: it serves, and outlives the one before.
    ///
    /// # Errors
    /// The intermediate process does not end.
    pub fn part(&mut self) -> io::Result<()> {
        self.intermediate.take().map_or(Ok(()), Intermediate::end)
    }

    /// Tells it that this process goes on: it ends. Whoever supervises both has to know by then.
    /// Returns the first process, if it waits for the end of the server.
    pub fn release(self) -> Option<WaitingParent> {
        if self.channel.send(kind::GONE_ON, &[]).is_err() {
            tracing::warn!("the process before has ended by itself");
        }
        self.parent
    }

    /// Makes the settings fit what cannot change while the server is handed over.
    pub(super) fn adapt(&self, settings: &mut Settings) -> Result<(), StartError> {
        let refused = |reason: &str| Err(StartError::new(reason));
        let store = settings.store.path.as_ref().map(|path| path.display().to_string());
        if store != self.hello.store {
            return refused("store.path is another, which takes a restart of the server");
        }
        if settings.cluster.is_on() {
            return refused("a node of a cluster is not upgraded yet, and has to be restarted");
        }
        let follows = settings.follow.is_on().then(|| FollowState::new(&settings.follow).topics());
        if follows.is_some() != self.hello.follows.is_some() {
            return refused("follow.leader begins or ends to count, which takes a restart");
        }
        if follows != self.hello.follows {
            return refused("follow.topics are others, which takes a restart");
        }
        let public = if settings.listen.is_empty() { 0 } else { settings.workers };
        let has_control = !(settings.control.is_empty() && settings.monitor.is_empty());
        if usize::from(has_control) + self.hello.workers_public != self.hello.workers
            || (public == 0) != (self.hello.workers_public == 0)
        {
            return refused(
                "the settings have a kind of listener more, or less, than the server that hands \
                 over: restart it",
            );
        }
        if public != self.hello.workers_public {
            tracing::warn!("workers counts from the next restart on");
            settings.workers = self.hello.workers_public;
        }
        Ok(())
    }

    /// Fills the hub, and has the workers take over. It returns when they have begun.
    pub(super) fn take_over(&mut self, server: &Server) -> Result<(), StartError> {
        let token = self.token.take().ok_or_else(|| unexpected(kind::HELLO))?;
        let (hub, all) = (Gate::new(0), Gate::new(server.mailboxes.len()));
        let entrance = Arc::new(Entrance { hub, all, token });
        let taken_over = self.take_over_by(server, &entrance);
        entrance.hub.decide(false);
        let stood_still_us = match taken_over {
            // The workers serve, and the other process knows that it must not.
            Err(error) if entrance.all.decide(false) => {
                tracing::error!("taken over, but for this: {error}");
                0
            }
            // At once: that one serves nobody before it knows.
            // mutation: refusal
            result => result.inspect_err(|error| self.refuse(&error.to_string()))?,
        };
        let connections = Totals::sum(server.shared.workers.iter().map(AsRef::as_ref)).open();
        server.shared.process.upgrades.done(Upgraded {
            unix_s: stentor_io::unix_s(),
            from_process: self.process,
            connections,
            stood_still_us,
        });
        // Readers who came over in the middle of something need memory for it, and soon no more.
        let _ = thread::Builder::new().name("release".to_owned()).spawn(|| {
            sleep(Duration::from_millis(RELEASE_AFTER_MS));
            release_memory();
        });
        Ok(())
    }

    /// Returns for how many microseconds nobody was served.
    fn take_over_by(
        &mut self,
        server: &Server,
        entrance: &Arc<Entrance>,
    ) -> Result<u64, StartError> {
        let ready = Ready { process: std::process::id(), names: server.channels.clone() };
        let process = self.process;
        server.cue(|_| Cue::TakeOver { process, entrance: Arc::clone(entrance) });
        let sent = self.channel.send(kind::READY, &ready.to_bytes());
        sent.map_err(|error| StartError(told(error)))?;
        let hub = &server.shared.hub;
        let filled = self.fill(hub).map_err(|error| first_reason(server, error))?;
        let Filled { restored, tip, counted, since_us, mut phases } = filled;
        counters::unpack(server, &counted).map_err(StartError::new)?;
        let lost = self.hello.rolled_back.iter().map(|[first, last]| *first..=*last);
        let lost = lost.collect::<Vec<_>>();
        match tip {
            // The rules come from the leader.
            None if hub.is_following() => hub.follow_rolled_back(&lost),
            tip => {
                if let Some(tip) = &tip {
                    server.expect_store(tip, lost);
                }
                hub.continue_by(&server.settings.rules(), restored.upto_generation);
            }
        }
        if let Some(follow) = server.service.follow() {
            follow.goes_on_with(hub);
        }
        phases.end("beginning the store and the rules");
        // Before the token is taken: a first process that knew nothing of this one would take the
        // end of the other one for the end of the server.
        if let Some(parent) = &mut self.parent {
            parent.tell().map_err(|error| {
                let reason = "the first process, which waits for the end of the server, cannot be";
                StartError(format!("{reason} told of this one: {error}"))
            })?;
        }
        entrance.hub.decide(true);
        let mut begun_us = since_us;
        for _ in &server.mailboxes {
            match server.reports().recv_timeout(PATIENCE) {
                Ok((_, Ok(Report::Begins { at_us }))) => begun_us = begun_us.max(at_us),
                Ok((_, Ok(report))) => {
                    return Err(StartError(format!("a worker said {report:?}")));
                }
                Ok((_, Err(reason))) => return Err(StartError(reason)),
                Err(_) => {
                    return Err(StartError::new("a worker said nothing for too long"));
                }
            }
        }
        phases.end("until all workers served");
        if let Some(tip) = tip {
            server.take_store_over(tip)?;
        }
        let stood_still_us = begun_us.saturating_sub(since_us);
        tracing::info!("taken over: the server stood still for {stood_still_us} us");
        phases.tell();
        Ok(stood_still_us)
    }

    /// Receives the hub, and what changed in it while it was sent.
    fn fill(&mut self, hub: &Hub) -> io::Result<Filled> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        let mut restore = Some(hub.restore());
        let (mut restored, mut tip, mut counted) = (None, None, Vec::new());
        // What is not whole yet.
        let mut rest: Vec<u8> = Vec::new();
        let since_us = loop {
            let parcel = self.channel.receive()?;
            if parcel.kind != kind::SNAPSHOT && restored.is_none() {
                let restore = restore.take().ok_or_else(|| unexpected(parcel.kind))?;
                if !rest.is_empty() {
                    return Err(invalid("the hub ends in the middle"));
                }
                restored = Some(restore.finish().map_err(invalid)?);
            }
            rest.extend_from_slice(parcel.bytes);
            let kind = parcel.kind;
            drop(parcel);
            let used = match (kind, &mut restore) {
                (kind::SNAPSHOT, Some(restore)) => restore.read(&rest).map_err(invalid)?,
                (kind::ENTRIES, None) => {
                    let mut left = &rest[..];
                    while let Some(entry) = next_entry(&mut left) {
                        let (entry, place) = decode_entry(entry).map_err(invalid)?;
                        // What was applied before is not judged again.
                        let _ = hub.follow(entry, place);
                    }
                    rest.len() - left.len()
                }
                (kind::COPIED, None) => {
                    self.channel.send(kind::COPIED, &[])?;
                    0
                }
                (kind::STORE, None) => {
                    tip = Some(tip_of(&rest).ok_or_else(|| unexpected(kind))?);
                    rest.len()
                }
                (kind::COUNTERS, None) => {
                    counted.append(&mut rest);
                    0
                }
                (kind::STANDS_STILL, None) if rest.len() == size_of::<u64>() => {
                    break rest.first_chunk().copied().map_or(0, u64::from_le_bytes);
                }
                (other, _) => return Err(unexpected(other)),
            };
            rest.drain(..used);
        };
        let phases = Phases::begin("the process that takes over, since all stood still");
        let restored = restored.ok_or_else(|| unexpected(kind::STANDS_STILL))?;
        Ok(Filled { restored, tip, counted, since_us, phases })
    }
}

/// Why the rest does not come: a worker that cannot take over is given up by the one it takes over
/// from, and says why a moment later.
fn first_reason(server: &Server, error: io::Error) -> StartError {
    match server.reports().recv_timeout(PATIENCE_FOR_REASON) {
        // mutation: reason-of-worker
        Ok((_, Err(reason))) => StartError(reason),
        _ => StartError(told(error)),
    }
}

/// How long a worker that failed may take to say why.
const PATIENCE_FOR_REASON: Duration = Duration::from_millis(50);

/// A hub that was handed over, where its store ends, if it has one, and what was counted.
struct Filled {
    restored: Restored,
    tip: Option<Tip>,
    counted: Vec<u8>,
    /// Since when nobody is served.
    since_us: u64,
    phases: Phases,
}

#[cfg(test)]
mod tests {
    use super::super::start;
    use super::*;
    use stentor_hub::Pattern;
    use stentor_io::{ChannelListener, monotonic_us};

    /// One with a worker for operators beside so many.
    fn predecessor(workers_public: usize) -> Predecessor {
        let (listener, own) = (ChannelListener::new().unwrap(), std::process::id());
        let hello = ServerState {
            epoch: 1,
            base: 0,
            workers_public,
            workers: workers_public + 1,
            follows: None,
            rolled_back: Vec::new(),
            store: None,
            addresses: Vec::new(),
            left_out: Vec::new(),
            started_unix_s: 0,
            upgrades: Default::default(),
            documents: Vec::new(),
            ticket_secret: None,
        };
        let channel = Channel::connect(listener.name(), own).unwrap();
        Predecessor { channel, token: None, hello, process: own, intermediate: None, parent: None }
    }

    fn settings(workers: usize) -> Settings {
        Settings {
            workers,
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            control: vec!["127.0.0.1:0".parse().unwrap()],
            monitor: Vec::new(),
            ..Settings::default()
        }
    }

    fn following(topics: &[&str]) -> Settings {
        let mut settings = settings(2);
        settings.follow.leaders = vec!["http://127.0.0.1:1".parse().unwrap()];
        settings.follow.topics =
            topics.iter().map(|topic| Pattern::parse(topic).unwrap()).collect();
        settings
    }

    #[test]
    fn who_follows_goes_on_with_the_same_topics() {
        let adapted = |topics: &[&str], before: &[&str]| {
            let mut predecessor = predecessor(2);
            predecessor.hello.follows =
                Some(before.iter().map(|topic| topic.to_string()).collect());
            predecessor.adapt(&mut following(topics))
        };
        adapted(&["/a/**"], &["/a/**"]).unwrap();
        let refused = adapted(&["/a/**", "/b"], &["/a/**"]).unwrap_err().to_string();
        assert!(refused.contains("follow.topics are others"), "{refused}");
    }

    #[test]
    fn what_cannot_change_in_an_upgrade_is_refused_or_left() {
        let adapted = |mut settings: Settings, workers_public| {
            predecessor(workers_public).adapt(&mut settings).map(|()| settings.workers)
        };
        assert_eq!(adapted(settings(2), 2).unwrap(), 2);
        assert_eq!(adapted(settings(4), 2).unwrap(), 2, "from the next restart on");
        let kinds = "a kind of listener more, or less";
        for (reason, workers_public, settings) in [
            (kinds, 2, Settings { control: Vec::new(), ..settings(2) }),
            (kinds, 2, Settings { listen: Vec::new(), ..settings(2) }),
            (kinds, 0, settings(2)),
            ("follow.leader begins", 2, following(&[])),
            ("store.path is another", 2, {
                let mut settings = settings(2);
                settings.store.path = Some("/data".into());
                settings
            }),
        ] {
            let refused = adapted(settings, workers_public).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    /// A worker may still say why it failed.
    #[test]
    fn a_failed_worker_may_say_why() {
        let server = start(settings(1), Vec::new()).unwrap();
        let began_us = monotonic_us();
        let reason = first_reason(&server, io::Error::other("gone"));
        assert!(reason.to_string().contains("gone"), "{reason}");
        assert!(monotonic_us() - began_us >= 40_000);
        server.drain();
        server.wait().unwrap();
    }
}
