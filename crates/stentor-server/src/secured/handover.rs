//! Sessions as bytes, so that another process can go on with them.
//!
//! A session is plain data: keys and two numbers. The process that packs it keeps it, for it may
//! have to go on; from then on it seals nothing until it knows that it does ([`Sessions::stay`]).
//! So between the two no number is used twice under a key.
//!
//! They go over in parts, in front of those of the worker. If nobody speaks TLS, there are none.
//! Each has some connections, in the order of their numbers: how far it is, its session, records
//! that the socket has not taken, what was received and not opened, and how long the layer has it
//! still.
//!
//! A handshake under way lives in rustls and cannot go over: its connection is closed by the next
//! process, as its client is in the middle of it, and tries again. Whoever had only connected goes
//! over and does not notice.

use super::Sessions;
use super::entry::{Entry, Stage};
use crate::limits::PEERS_MAX;
use std::io;
use stentor_io::Peer;
use stentor_tls::{Inbound, Owned};
use stentor_wire::pack::{MISFIT, Packed, Packer, UNKNOWN, Unpacked, Unpacker};

impl Sessions {
    /// Packs all of it and gives it to `send` part by part. Nothing is sealed afterwards, unless
    /// [`Sessions::stay`] says that nobody has gone on.
    ///
    /// # Errors
    /// Those of `send`.
    pub(crate) fn pack(
        &mut self,
        now_ms: u64,
        send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.is_packed = true;
        let begin = || {
            let mut out = Packer::new(now_ms);
            out.put(MAGIC);
            VERSION.pack(&mut out);
            out
        };
        let mut out = begin();
        let empty_bytes = out.len();
        for index in self.entries.indices() {
            self.pack_entry(index, &mut out);
            if out.len() >= PART_BYTES {
                send(&std::mem::replace(&mut out, begin()).into_bytes())?;
            }
        }
        if out.len() > empty_bytes { send(&out.into_bytes()) } else { Ok(()) }
    }

    fn pack_entry(&mut self, index: usize, out: &mut Packer) {
        let Some(entry) = self.entries.get(index) else { return };
        let stage = match entry.stage {
            Stage::None => return,
            Stage::Shaking => Stage::Lost,
            stage => stage,
        };
        let place = entry.place;
        (index as u32).pack(out);
        (stage as u8).pack(out);
        entry.role.pack(out);
        entry.packed_flags().pack(out);
        let mut session = Vec::new();
        // It has none if that has ended.
        let _ = self.pools.copy_packed(place, &mut session);
        session.pack(out);
        session.fill(0);
        let extra = self.extras.get(&Peer::from_index(index as u32));
        let (unsent, waiting, until_ms) = extra.map_or((&[][..], &[][..], 0), |extra| {
            (extra.unsent(), extra.inbound.waiting(), extra.until_ms)
        });
        unsent.to_vec().pack(out);
        waiting.to_vec().pack(out);
        (until_ms > 0).pack(out);
        out.moment(until_ms);
    }

    /// No other process goes on: this one does.
    pub(crate) fn stay(&mut self) {
        self.is_packed = false;
    }

    /// The other process has gone on: this one has none of it any more.
    pub(crate) fn leave(&mut self) {
        self.is_packed = true;
        for index in self.entries.indices() {
            self.forget(Peer::from_index(index as u32));
        }
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Sessions {
    /// Has others go on where these end. Returns false if some handshake is under way.
    pub(crate) fn hand_over_to(&mut self, next: &mut Sessions, now_ms: u64) -> bool {
        if self.handshakes.count() > 0 {
            return false;
        }
        let mut unpacking = Unpacking::begin(now_ms);
        let packed = self.pack(now_ms, &mut |bytes| {
            assert!(Unpacking::is_part(bytes));
            unpacking.part(next, bytes).map_err(io::Error::other)
        });
        packed.expect("what was packed is unpacked");
        assert_eq!(self.pools.count(), next.pools.count());
        self.leave();
        true
    }
}

/// Sessions of another process, as they come.
#[derive(Debug)]
pub(crate) struct Unpacking {
    now_ms: u64,
    last: Option<u32>,
}

impl Unpacking {
    pub(crate) fn begin(now_ms: u64) -> Unpacking {
        Unpacking { now_ms, last: None }
    }

    /// Whether this part is one of the layer's, and not of the worker's.
    pub(crate) fn is_part(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Unpacks a part.
    ///
    /// # Errors
    /// One sentence, if this is not what [`Sessions::pack`] makes.
    pub(crate) fn part(
        &mut self,
        sessions: &mut Sessions,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let mut input = Unpacker::new(bytes, self.now_ms);
        input.take(MAGIC.len())?;
        if u16::unpack(&mut input)? != VERSION {
            return Err("The sessions were packed in another version of the format.");
        }
        while !input.is_at_end() {
            let index = u32::unpack(&mut input)?;
            if self.last.is_some_and(|last| last >= index) || index >= PEERS_MAX {
                return Err(MISFIT);
            }
            self.last = Some(index);
            sessions.unpack_entry(Peer::from_index(index), &mut input)?;
        }
        Ok(())
    }
}

impl Sessions {
    fn unpack_entry(&mut self, peer: Peer, input: &mut Unpacker<'_>) -> Unpacked<()> {
        let stage = u8::unpack(input)?;
        let stage = Stage::ALL.into_iter().find(|known| *known as u8 == stage);
        let stage = stage.filter(|stage| !matches!(stage, Stage::None | Stage::Shaking));
        let (role, flags) = (u8::unpack(input)?, u16::unpack(input)?);
        let mut entry = Entry::of_packed(stage.ok_or(UNKNOWN)?, role, flags).ok_or(UNKNOWN)?;
        let mut session = Vec::<u8>::unpack(input)?;
        let (unsent, waiting) = (Vec::<u8>::unpack(input)?, Vec::<u8>::unpack(input)?);
        let (has_end, until_ms) = (bool::unpack(input)?, input.moment()?);
        if !session.is_empty() {
            let session = Owned::unpack(&mut session).map_err(|_| MISFIT)?;
            entry.place = self.pools.insert(session);
        } else if entry.stage == Stage::Open {
            return Err(MISFIT);
        }
        match entry.stage {
            Stage::Lost => self.lost.push(peer),
            Stage::Open if entry.has(Entry::RESUMED) => self.resumed.push_back(peer),
            // It may have waited in line there, with all it has to say: nobody tells of it again.
            Stage::Fresh => {
                entry.set(Entry::IN_LINE);
                self.handshakes.wait(peer, true);
            }
            _ => {}
        }
        let (is_held, is_ours) = (entry.has(Entry::HELD_BACK), entry.has(Entry::LEFT));
        if is_held && waiting.is_empty() || is_ours != has_end {
            return Err(MISFIT);
        }
        *self.entries.grow(peer.index()) = entry;
        self.with_extra(peer, |extra| {
            extra.keep(&unsent);
            extra.inbound = Inbound::of_waiting(waiting);
        });
        if has_end {
            self.end_by(peer, until_ms.max(1));
        }
        Ok(())
    }
}

const MAGIC: &[u8] = b"STENTORT";
const VERSION: u16 = 1;

/// How much is in a part, or a little more.
const PART_BYTES: usize = 32 * 1024;
