//! What a follower says to its leader, and makes of what it hears: no socket, no thread, no clock.
//!
//! ```text
//!   Feed ----- the answer goes on behind what is here ------------------> Reading
//!     |                                                                     ^
//!     |  410, or nothing is here yet: the same without `since`              |
//!     +------> Feed from now on -----> Snapshot, to its end: adopted -------+
//! ```
//!
//! The feed is opened before the snapshot, and read behind it: from then on the leader remembers
//! what it would send, so that nothing is missed in between, and nothing has to be kept here. What
//! is in both changes nothing when it comes again.
//!
//! A snapshot fills a hub of its own, beside the one that is read, and counts for nothing before
//! its end has verified. Of a feed whole frames count, each once it has verified. Whatever else
//! comes is a [`Fault`], after which the connection is of no use, and another one goes on behind
//! what is here.

use std::fmt;
use std::sync::Arc;

use stentor_hub::{Adopted, Applied, Hub, Id, NotAdopted, Place, Restore, Restored, decode_entry};
use stentor_log::{Piece, SnapshotDecoder, read_feed_frame};

/// A follower, from one connection to the next.
pub(super) struct Follower {
    hub: Arc<Hub>,
    /// What is done with entries that were applied.
    on_applied: Box<dyn FnMut(&mut Applied) + Send>,
    /// What is here does not go on by a feed: all of it is to be had anew.
    needs_all: bool,
    /// Something that is here was taken back: what comes is another life, though of the same EPOCH.
    anew: bool,
    /// Of the feed, the beginning of a frame.
    rest: Vec<u8>,
    /// Everything up to this SEQ was sent by the feed.
    upto: u64,
    /// How many milliseconds old that was at the leader.
    age_ms: u64,
    filling: Option<SnapshotReader>,
}

/// A snapshot that is being read, and fills a hub that was staged for it.
pub struct SnapshotReader {
    decoder: SnapshotDecoder,
    /// Of its bytes, the beginning of a frame.
    frame: Vec<u8>,
    payload: Payload,
}

/// What is in a snapshot, on its way into a hub of its own.
struct Payload {
    staged: Arc<Hub>,
    /// Until the first entry comes behind it.
    restore: Option<Restore<Arc<Hub>>>,
    /// The beginning of a section.
    section: Vec<u8>,
    /// What has to be there in the end.
    restored: Option<Restored>,
}

/// What to ask for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The snapshot, while the feed stays open.
    Snapshot,
    /// What comes of the feed.
    Feed,
}

/// Why a connection is of no use any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Whoever is followed there is behind: another one may know more.
    Behind,
    /// All has to be had anew: at once, for nothing is wrong with the leader.
    Anew(&'static str),
    /// It says what makes no sense, or nothing more.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Behind => f.write_str("it is behind what is here"),
            Fault::Anew(reason) => f.write_str(reason),
            Fault::Broken(reason) => f.write_str(reason),
        }
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Fault {
        Fault::Broken(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Fault {
        Fault::Broken(reason.to_owned())
    }
}

impl Follower {
    pub(super) fn new(hub: Arc<Hub>, on_applied: Box<dyn FnMut(&mut Applied) + Send>) -> Follower {
        Follower {
            // What was handed over by another process goes on where it was.
            needs_all: hub.seq() == 0,
            hub,
            on_applied,
            anew: false,
            rest: Vec::new(),
            upto: 0,
            age_ms: 0,
            filling: None,
        }
    }

    /// Behind which id the feed is asked for; from now on if there is none.
    pub(super) fn since(&self) -> Option<Id> {
        (!self.needs_all).then(|| self.hub.id(self.hub.seq()))
    }

    /// The leader does not have what is asked for (410).
    pub(super) fn feed_is_gone(&mut self) -> Fault {
        if self.needs_all {
            return "it has no feed that begins now".into();
        }
        self.needs_all = true;
        Fault::Anew("it does not have what came behind what is here")
    }

    /// The feed begins behind this id.
    pub(super) fn feed_begins(&mut self, id: Id) -> Result<Next, Fault> {
        self.upto = id.seq;
        self.rest.clear();
        self.filling = None;
        let here = self.hub.id(self.hub.seq());
        if !self.needs_all {
            let goes_on = id == here;
            return if goes_on { Ok(Next::Feed) } else { Err("it goes on elsewhere".into()) };
        }
        if !self.anew && self.hub.seq() > 0 && id.epoch == here.epoch && id.seq < here.seq {
            return Err(self.is_behind());
        }
        let staged = self.hub.stage(id.epoch, self.anew);
        self.filling = Some(SnapshotReader::new(staged));
        Ok(Next::Snapshot)
    }

    /// Takes some bytes of the snapshot.
    pub(super) fn snapshot(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(filling) = &mut self.filling else {
            return Err("no snapshot was begun".into());
        };
        Ok(filling.take(bytes)?)
    }

    /// The snapshot was read to its end: what is here is as it says, from now on.
    pub(super) fn snapshot_ends(&mut self) -> Result<Adopted, Fault> {
        let Some(filling) = self.filling.take() else {
            return Err("no snapshot was begun".into());
        };
        // One name may stand for several servers.
        if filling.last()? < self.upto {
            return Err("its snapshot is behind its feed".into());
        }
        let staged = filling.end()?;
        match self.hub.adopt(staged) {
            Ok(adopted) => {
                (self.needs_all, self.anew) = (false, false);
                Ok(adopted)
            }
            Err(NotAdopted::Behind) => Err(self.is_behind()),
            Err(NotAdopted::Contradicts) => {
                self.anew = true;
                Err(Fault::Anew("something that is here was taken back there"))
            }
        }
    }

    /// What is here can be gone on with elsewhere.
    fn is_behind(&mut self) -> Fault {
        self.needs_all = self.anew || self.hub.seq() == 0;
        Fault::Behind
    }

    /// Takes some bytes of the feed. Returns how many frames are whole by them.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if self.needs_all {
            return Err("no snapshot was read before".into());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let (mut used, mut frames) = (0, 0);
        while let Some(frame) = read_feed_frame(&rest[used..], FRAME_BYTES_MAX)? {
            self.take_frame(frame.upto, frame.records())?;
            self.age_ms = frame.age_ms;
            used += frame.bytes;
            frames += 1;
        }
        rest.drain(..used);
        self.rest = rest;
        Ok(frames)
    }

    /// How old the values of the leader were, in milliseconds, when it sent the last frame.
    pub(super) fn age_ms(&self) -> u64 {
        self.age_ms
    }

    fn take_frame<'b>(
        &mut self,
        upto: u64,
        records: impl Iterator<Item = (u64, &'b [u8])>,
    ) -> Result<(), Fault> {
        if upto < self.upto {
            return Err("numbers go back".into());
        }
        for (seq, record) in records {
            if seq > upto {
                return Err("an entry has a number that is not there yet".into());
            }
            let (entry, place) = decode_entry(record)?;
            let is_its_own = matches!(place, Place::Was(past) if past.number == seq);
            if entry.topic().is_some() && !is_its_own {
                return Err("an entry has another number than its record".into());
            }
            (self.on_applied)(&mut self.hub.follow(entry, place)?);
        }
        self.upto = upto;
        self.hub.follow_upto(upto);
        Ok(())
    }
}

impl SnapshotReader {
    /// Nothing is in `staged` yet, which is of the epoch that is wanted.
    pub fn new(staged: Hub) -> SnapshotReader {
        SnapshotReader {
            decoder: SnapshotDecoder::new(FRAME_BYTES_MAX),
            frame: Vec::new(),
            payload: Payload::new(Arc::new(staged)),
        }
    }

    /// Takes some bytes of it.
    ///
    /// # Errors
    /// One sentence, if it makes no sense or is of another epoch.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        let SnapshotReader { decoder, frame, payload } = self;
        frame.extend_from_slice(bytes);
        let used = decoder.read(frame, &mut |piece| payload.take(piece).map_err(str::to_owned))?;
        frame.drain(..used);
        // The payload says SEQs alone. Read into another epoch, they would be of other messages.
        let of = payload.staged.epoch().number();
        match decoder.begun() {
            Some(head) if head.epoch != of => Err("it is of another epoch".to_owned()),
            _ => Ok(()),
        }
    }

    /// The last SEQ that is in it.
    fn last(&self) -> Result<u64, &'static str> {
        self.decoder.ended().ok_or("it ends before its time")
    }

    /// The hub, if all of it was read.
    ///
    /// # Errors
    /// One sentence.
    pub fn end(self) -> Result<Hub, &'static str> {
        let last = self.last()?;
        let staged = self.payload.finish(last)?;
        let lost = self.decoder.begun().map_or(&[][..], |head| &head.lost);
        staged.follow_rolled_back(lost);
        Ok(staged)
    }
}

impl Payload {
    fn new(staged: Arc<Hub>) -> Payload {
        let restore = Some(Restore::into(Arc::clone(&staged)));
        Payload { staged, restore, section: Vec::new(), restored: None }
    }

    fn take(&mut self, piece: Piece<'_>) -> Result<(), &'static str> {
        match (piece, &mut self.restore) {
            (Piece::Payload(bytes) | Piece::Rest(bytes), Some(restore)) => {
                self.section.extend_from_slice(bytes);
                let used = restore.read(&self.section)?;
                self.section.drain(..used);
                Ok(())
            }
            (Piece::Entry(_, bytes), _) => {
                self.end()?;
                let (entry, place) = decode_entry(bytes)?;
                self.staged.follow(entry, place).map(drop)
            }
            (Piece::Payload(_) | Piece::Rest(_) | Piece::Hole, _) => Err(MISPLACED),
        }
    }

    /// The payload is over.
    fn end(&mut self) -> Result<(), &'static str> {
        let Some(restore) = self.restore.take() else { return Ok(()) };
        if !self.section.is_empty() {
            return Err("it ends in the middle of a topic");
        }
        self.restored = Some(restore.finish()?);
        Ok(())
    }

    /// What was filled, if that is all.
    fn finish(mut self, last: u64) -> Result<Hub, &'static str> {
        self.end()?;
        let upto_seq = self.restored.map_or(u64::MAX, |restored| restored.upto_seq);
        self.staged.follow_upto(last);
        if self.staged.seq() < upto_seq {
            return Err("entries are missing behind it");
        }
        Arc::into_inner(self.staged).ok_or(MISPLACED)
    }
}

const MISPLACED: &str = "something stands where it does not belong";

/// No frame is longer: a message has a quarter of a gibibyte at most, and as much compressed.
const FRAME_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 600 << 20 };

#[cfg(test)]
pub(super) mod tests;
