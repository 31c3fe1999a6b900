//! Sessions as bytes, so that another process can go on with them.
//!
//! A session is plain data: keys and two numbers. The process that packs it keeps it, for it may
//! have to go on; from then on it seals nothing until it knows that it does ([`Sessions::stay`]).
//! So between the two no number is used twice under a key.
//!
//! They go over in parts, in front of those of the worker. If nobody speaks TLS, there are none.
//! Each has some connections, in the order of their numbers: how far it is, its session, whose it
//! is if that had to be shown, records that the socket has not taken, what was received and not
//! opened, and how long the layer has it still.
//!
//! What has held keys on the way is overwritten, in both processes.
//!
//! A handshake under way lives in rustls and cannot go over: the next process closes its
//! connection. Its client may have sent a request by then, so handshakes end first: for a while
//! none begins ([`Sessions::hold_handshakes`]). A client that has only connected goes over and does
//! not notice.

use super::Sessions;
use super::entry::{Entry, Stage};
use super::pool::Place;
use std::io;
use stentor_io::PEERS_MAX;
use stentor_io::Peer;
use stentor_tls::{Inbound, LargeSession, Owned};
use stentor_wire::pack::{MISFIT, Packed, Packer, UNKNOWN, Unpacked, Unpacker};
use zeroize::{Zeroize, Zeroizing};

impl Sessions {
    /// Packs all of it and gives it to `send` part by part. Nothing is sealed afterwards, unless
    /// [`Sessions::stay`] says that nobody has gone on.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn pack(
        &mut self,
        now_ms: u64,
        send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.is_packed = true;
        // It never grows, for what it was before would lie about with the keys in it.
        let mut part = Zeroizing::new(Vec::with_capacity(PART_BYTES));
        for index in self.entries.indices() {
            let Some((out, place)) = self.pack_entry(index, now_ms) else { continue };
            let bytes = MAGIC.len() + VERSION_BYTES + out.len() + SESSION_BYTES_MAX;
            if part.len() + bytes > part.capacity() {
                send_part(&mut part, send)?;
                part.reserve(bytes);
            }
            if part.is_empty() {
                part.extend_from_slice(MAGIC);
                part.extend_from_slice(&VERSION.to_le_bytes());
            }
            part.extend_from_slice(&out.into_bytes());
            let at = part.len();
            part.push(0);
            // It has none if that has ended.
            let _ = self.pools.copy_packed(place, &mut part);
            part[at] = (part.len() - at - 1) as u8;
        }
        send_part(&mut part, send)
    }

    /// Packs all of a connection but its session, and says where that is.
    fn pack_entry(&self, index: usize, now_ms: u64) -> Option<(Packer, Place)> {
        let entry = self.entries.get(index)?;
        let stage = match entry.stage {
            Stage::None => return None,
            Stage::Shaking => Stage::Lost,
            stage => stage,
        };
        let mut out = Packer::new(now_ms);
        (index as u32).pack(&mut out);
        (stage as u8).pack(&mut out);
        entry.role.pack(&mut out);
        entry.packed_flags().pack(&mut out);
        let peer = Peer::from_index(index as u32);
        self.clients.name(peer).map(str::to_owned).pack(&mut out);
        let (unsent, waiting, until_ms) =
            self.extras.get(&peer).map_or((&[][..], &[][..], 0), |extra| {
                (extra.unsent(), extra.inbound.waiting(), extra.until_ms)
            });
        unsent.to_vec().pack(&mut out);
        waiting.to_vec().pack(&mut out);
        (until_ms > 0).pack(&mut out);
        out.moment(until_ms);
        Some((out, entry.place))
    }

    /// No other process goes on: this one does.
    pub fn stay(&mut self) {
        self.is_packed = false;
        self.handshakes.holds = false;
    }

    /// No handshake begins until [`Sessions::stay`]: new connections wait.
    pub fn hold_handshakes(&mut self) {
        self.handshakes.holds = true;
    }

    /// How many handshakes are under way.
    #[must_use]
    pub fn handshakes_under_way(&self) -> usize {
        self.handshakes.count()
    }

    /// The other process has gone on: this one has none of it any more.
    pub fn leave(&mut self) {
        self.is_packed = true;
        for index in self.entries.indices() {
            self.forget(Peer::from_index(index as u32));
        }
    }
}

#[cfg(feature = "check")]
impl Sessions {
    /// Whether nothing is left of all there were.
    pub fn is_empty(&self) -> bool {
        self.pools.count() == 0 && self.held_bytes(None) == 0 && self.ending.is_empty()
    }

    /// Has others go on where these end. Returns false if some handshake is under way.
    pub fn hand_over_to(&mut self, next: &mut Sessions, now_ms: u64) -> bool {
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
pub struct Unpacking {
    now_ms: u64,
    last: Option<u32>,
}

impl Unpacking {
    /// Nothing has come yet; times count from now.
    pub fn begin(now_ms: u64) -> Unpacking {
        Unpacking { now_ms, last: None }
    }

    /// Whether this part is one of the layer's, and not of the worker's.
    pub fn is_part(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Unpacks a part, which whoever has received it is to overwrite.
    ///
    /// # Errors
    /// One sentence, if this is not what [`Sessions::pack`] makes.
    pub fn part(&mut self, sessions: &mut Sessions, bytes: &[u8]) -> Result<(), &'static str> {
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
        let client = Option::<String>::unpack(input)?;
        if client.iter().flat_map(|name| name.chars()).any(char::is_control) {
            return Err(MISFIT);
        }
        let (unsent, waiting) = (Vec::<u8>::unpack(input)?, Vec::<u8>::unpack(input)?);
        let (has_end, until_ms) = (bool::unpack(input)?, input.moment()?);
        let bytes = u8::unpack(input)?;
        let mut session = Zeroizing::new(input.take(bytes.into())?.to_vec());
        if !session.is_empty() {
            let session = Owned::unpack(&mut session).map_err(|_| MISFIT)?;
            entry.place = self.pools.insert(session);
        } else if entry.stage == Stage::Open {
            return Err(MISFIT);
        }
        match entry.stage {
            Stage::Lost => self.lost.push(peer),
            // Some of it may be whole records.
            Stage::Open if !waiting.is_empty() => self.unopened.push(peer),
            // It may have waited in line there, with all it has to say: nobody tells of it again.
            Stage::Fresh => {
                entry.set(Entry::IN_LINE);
                // mutation: queue-in-upgrade
                self.handshakes.wait(peer, true);
            }
            _ => {}
        }
        if entry.has(Entry::LEFT) != has_end {
            return Err(MISFIT);
        }
        // mutation: client-in-upgrade
        self.clients.let_in(peer, client);
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

/// Sends what was packed, if anything was, and overwrites it.
fn send_part(
    part: &mut Zeroizing<Vec<u8>>,
    send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let sent = if part.is_empty() { Ok(()) } else { send(part) };
    part.zeroize();
    sent
}

const MAGIC: &[u8] = b"STENTORT";
/// The form of packed sessions, which are packed by hand.
pub const SESSIONS_FORMAT: u16 = 1;

const VERSION: u16 = SESSIONS_FORMAT;
const VERSION_BYTES: usize = size_of_val(&VERSION);

/// A session, with its length in a byte before it.
const SESSION_BYTES_MAX: usize = 1 + size_of::<LargeSession>();
const _: () = assert!(SESSION_BYTES_MAX <= 256);

/// How much is in a part, unless one connection has more: it fits a message between two processes.
const PART_BYTES: usize = 48 * 1024;
