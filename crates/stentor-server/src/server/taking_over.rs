//! Taking a server over from another process: the side of the one that was started for it.

use super::handover::{Hello, PATIENCE, expect, kind, next_entry, unexpected};
use super::life::{Cue, Report};
use super::{Server, StartError};
use crate::config::Settings;
use std::io;
use stentor_hub::{Hub, Restored, decode_entry};
use stentor_io::{Channel, parent_process};
use stentor_wire::pack::{Packed, Packer};

/// The process that hands a server over to this one.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    pub(super) hello: Hello,
    /// In which it hands over.
    form: u16,
    pub(super) process: u32,
}

impl Predecessor {
    /// The one that started this process to take over, if one did. To be asked for once, before
    /// anything else is opened.
    ///
    /// # Errors
    /// A sentence, if this process cannot take over from that one, which goes on then.
    pub fn find() -> Result<Option<Predecessor>, String> {
        let process = parent_process();
        let told = |error: io::Error| format!("whoever started this process: {error}");
        let Some(mut channel) = Channel::inherited().map_err(told)? else { return Ok(None) };
        channel.set_patience(PATIENCE).map_err(told)?;
        let hello = expect(&mut channel, kind::HELLO)?;
        match Hello::from_bytes(&hello) {
            Ok((hello, form)) => Ok(Some(Predecessor { channel, hello, form, process })),
            Err(reason) => {
                let _ = channel.send(kind::REFUSED, reason.as_bytes());
                Err(reason)
            }
        }
    }

    /// Tells it why it has to go on.
    pub fn refuse(&self, reason: &str) {
        // If it is gone, nobody has to be told.
        let _ = self.channel.send(kind::REFUSED, reason.as_bytes());
    }

    /// Tells it that this process goes on: it ends. Whoever supervises both has to know by then.
    pub fn release(self) {
        if self.channel.send(kind::GONE_ON, &[]).is_err() {
            tracing::warn!("the process before has ended by itself");
        }
    }

    /// Makes the settings fit what cannot change while the server is handed over.
    pub(super) fn adapt(&self, settings: &mut Settings) -> Result<(), StartError> {
        let refused = |reason: &str| Err(StartError::Handover(reason.to_owned()));
        let store = settings.store.path.as_ref().map(|path| path.display().to_string());
        if store != self.hello.store {
            return refused("store.path is another, which takes a restart of the server");
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

    /// Fills the hub, and has the workers take over. It returns when they are to begin.
    pub(super) fn take_over(&mut self, server: &Server) -> Result<(), StartError> {
        let told = |error: io::Error| StartError::Handover(error.to_string());
        let mut names = Packer::new(0);
        self.form.pack(&mut names);
        server.channels.pack(&mut names);
        server.cue(|_| Cue::TakeOver { process: self.process });
        self.channel.send(kind::READY, &names.into_bytes()).map_err(told)?;
        let hub = &server.shared.hub;
        let Filled { restored, store } = self.fill(hub).map_err(told)?;
        match store {
            Some(closed) => server.take_store_over(&closed, restored.upto_generation)?,
            None => hub.continue_by(&server.settings.rules(), restored.upto_generation),
        }
        server.cue(|_| Cue::Unpack);
        for _ in &server.mailboxes {
            match server.reports().recv_timeout(PATIENCE) {
                Ok((_, Ok(Report::Complete))) => {}
                Ok((_, Ok(report))) => {
                    return Err(StartError::Handover(format!("a worker said {report:?}")));
                }
                Ok((_, Err(reason))) => return Err(StartError::Handover(reason)),
                Err(_) => {
                    return Err(StartError::Handover("a worker said nothing for too long".into()));
                }
            }
        }
        self.channel.send(kind::COMPLETE, &[]).map_err(told)?;
        let since_us = expect(&mut self.channel, kind::GO).map_err(StartError::Handover)?;
        let since_us = since_us.first_chunk().copied().map_or(0, u64::from_le_bytes);
        server.cue(|_| Cue::Live);
        let stood_still_us = stentor_io::monotonic_us().saturating_sub(since_us);
        tracing::info!("taken over: the server stood still for {stood_still_us} us");
        Ok(())
    }

    /// Receives the hub, and what changed in it while it was sent.
    fn fill(&mut self, hub: &Hub) -> io::Result<Filled> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        let mut restore = Some(hub.restore());
        let (mut restored, mut store) = (None, None);
        // What is not whole yet.
        let mut rest: Vec<u8> = Vec::new();
        loop {
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
                        let _ = hub.apply(entry, place);
                    }
                    rest.len() - left.len()
                }
                (kind::COPIED, None) => {
                    self.channel.send(kind::COPIED, &[])?;
                    0
                }
                (kind::STORE, None) if store.is_none() => {
                    store = Some(std::mem::take(&mut rest));
                    0
                }
                (kind::STANDS_STILL, None) if rest.is_empty() => break,
                (other, _) => return Err(unexpected(other)),
            };
            rest.drain(..used);
        }
        let restored = restored.ok_or_else(|| unexpected(kind::STANDS_STILL))?;
        Ok(Filled { restored, store })
    }
}

/// A hub that was handed over, and how its store was closed, if it has one.
struct Filled {
    restored: Restored,
    store: Option<Vec<u8>>,
}
