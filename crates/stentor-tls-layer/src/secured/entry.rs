//! What is kept of a connection: how far it is, and where its session stands.

use super::pool::Place;
use crate::failed::TlsFailure;
use stentor_io::Role;
use stentor_tls::{HandshakeFault, Inbound};

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(super) enum Stage {
    /// It is none of this layer's, or there is none.
    #[default]
    None = 0,
    /// Nothing has arrived.
    Fresh = 1,
    /// Its handshake is under way.
    Shaking = 2,
    /// It has a session.
    Open = 3,
    /// The handler has closed it; it is closed once all has left.
    Closing = 4,
    /// Our side has ended; what comes is thrown away.
    Lingering = 5,
    /// Its handshake was under way in another process.
    Lost = 6,
}

impl Stage {
    pub(super) const ALL: [Stage; 7] = [
        Stage::None,
        Stage::Fresh,
        Stage::Shaking,
        Stage::Open,
        Stage::Closing,
        Stage::Lingering,
        Stage::Lost,
    ];
}

/// A connection, in eight bytes.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) stage: Stage,
    pub(super) role: Role,
    flags: u16,
}

const _: () = assert!(size_of::<Entry>() == 8);

impl Entry {
    /// The socket takes no more.
    pub(super) const FULL: u16 = 1 << 0;
    /// There is an [`Extra`].
    pub(super) const HOLDS: u16 = 1 << 1;
    /// It carries a stream: its records are short.
    pub(super) const STREAM: u16 = 1 << 2;
    /// The handler has ended its side: so does the layer, once all has left.
    pub(super) const FINISHES: u16 = 1 << 3;
    /// Our side has ended.
    pub(super) const FINISHED: u16 = 1 << 4;
    /// The handler has closed it.
    pub(super) const LEFT: u16 = 1 << 5;
    /// The last that was said is why: behind it the connection lingers.
    pub(super) const FAILED: u16 = 1 << 6;
    /// It waits for a handshake.
    pub(super) const IN_LINE: u16 = 1 << 9;
    /// It has waited, and its turn has come.
    pub(super) const CALLED: u16 = 1 << 10;

    /// What is said of it to another process: the lines are of this one.
    const PACKED: u16 = Entry::FULL
        | Entry::STREAM
        | Entry::FINISHES
        | Entry::FINISHED
        | Entry::LEFT
        | Entry::FAILED;
    /// Builds before 0.1.0 set these if a connection had received records that were not opened.
    const OLD: u16 = 1 << 7 | 1 << 8;

    pub(super) fn begin(role: Role) -> Entry {
        Entry { place: Place::NONE, stage: Stage::Fresh, role, flags: 0 }
    }

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    /// Sets it or not, and returns what it was.
    pub(super) fn put(&mut self, flag: u16, is_set: bool) -> bool {
        let was_set = self.has(flag);
        self.flags = if is_set { self.flags | flag } else { self.flags & !flag };
        was_set
    }

    /// Clears it, and returns what it was.
    pub(super) fn take(&mut self, flag: u16) -> bool {
        self.put(flag, false)
    }

    pub(super) fn packed_flags(&self) -> u16 {
        self.flags & Entry::PACKED
    }

    pub(super) fn of_packed(stage: Stage, role: Role, flags: u16) -> Option<Entry> {
        let is_known = flags & !(Entry::PACKED | Entry::OLD) == 0;
        let flags = flags & Entry::PACKED;
        is_known.then_some(Entry { place: Place::NONE, stage, role, flags })
    }
}

/// What only some connections hold.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Records that the socket has not taken, behind `at`.
    unsent: Vec<u8>,
    at: usize,
    /// Records that have not come as a whole, or that the handler does not want yet.
    pub(super) inbound: Inbound,
    /// Until when the layer has it alone, if it does.
    pub(super) until_ms: u64,
}

impl Extra {
    pub(super) fn unsent(&self) -> &[u8] {
        &self.unsent[self.at..]
    }

    /// So much of it has left.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at == self.unsent.len() {
            (self.unsent, self.at) = (Vec::new(), 0);
        }
    }

    /// Keeps records, behind those that are kept.
    pub(super) fn keep(&mut self, records: &[u8]) {
        self.unsent.reserve_exact(records.len());
        self.unsent.extend_from_slice(records);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty() && self.inbound.is_empty() && self.until_ms == 0
    }

    /// What it takes, with its place in the table.
    pub(super) fn bytes(&self) -> usize {
        let held = self.unsent.capacity() + self.inbound.held_bytes();
        if self.is_empty() { 0 } else { held + size_of::<Extra>() }
    }
}

impl From<HandshakeFault> for TlsFailure {
    fn from(fault: HandshakeFault) -> TlsFailure {
        match fault {
            HandshakeFault::NotTls => TlsFailure::NotTls,
            HandshakeFault::NothingInCommon => TlsFailure::NothingInCommon,
            HandshakeFault::NoProtocol => TlsFailure::NoProtocol,
            HandshakeFault::ClientCertificate => TlsFailure::ClientCertificate,
            HandshakeFault::Malformed => TlsFailure::Malformed,
            HandshakeFault::Misbehaved => TlsFailure::Misbehaved,
            HandshakeFault::NotAuthentic => TlsFailure::NotAuthentic,
            HandshakeFault::TooLong => TlsFailure::TooLong,
            HandshakeFault::Peer(_) => TlsFailure::Client,
            HandshakeFault::Internal | HandshakeFault::Ended => TlsFailure::Internal,
        }
    }
}
