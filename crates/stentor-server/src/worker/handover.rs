//! A worker as bytes, so that another process can go on with its connections.
//!
//! The worker that packs is as it was before, and may go on if nobody takes over. Whoever takes
//! over has the same hub, or one that is as far, and the same sockets by the same numbers. What of
//! events the old worker had and its readers had not seen yet, they look for in history: the log
//! of the new one begins empty. So no reader loses anything, hears anything twice, or out of order;
//! it is told of a gap if history has lost what the log had.
//!
//! | part | what it holds |
//! |---|---|
//! | | eight bytes, and the version of all that follows |
//! | 1 | the counters, by name |
//! | 2 | the filters of the feeds, by the feeds' numbers |
//! | 3 | the lines in which connections wait, and what has been spent |
//! | 4 | the connections: number, time left, record, and what they were let in by |
//! | 5 | bodies that several of them are being sent |

use super::{Drain, Worker};
use crate::connection::Connection;
use crate::limits::PEERS_MAX;
use crate::memory::Usage;
use crate::slab::STREAMS_FROM;
use crate::stats::Activity;
use crate::timers::{TICK_MS, Timed};
use stentor_access::Grant;
use std::sync::Arc;
use stentor_io::{Backend, File, Peer};
use stentor_wire::pack::{MISFIT, Packed, Packer, Thing, Unpacker};

/// What cannot be handed over yet, and what becomes of it.
#[allow(dead_code, reason = "it is for readers, until an upgrade tells of it")]
pub(crate) const NOT_YET: &[&str] = &[
    DRAINS,
    COMMITS,
    HAS_ORDERS,
    "Messages in the log that history has lost: whoever has not seen them is told of a gap.",
    "Walks over names begin anew, and a gap that one had found may be told again.",
    "Bodies that are being sent go over as bytes, once for each worker, beside the message.",
    "Connections that come over count for no address, and are logged without one.",
    "Messages being compressed, and files kept in memory, are made again when asked for.",
    "Tokens that were verified are verified again when they come again: whom they let in stays.",
    "When something was last logged, and when memory was last given back, is forgotten.",
];

const COMMITS: &str =
    "A publisher waits for a commit, which the next process would not be told of: it comes first.";
const HAS_ORDERS: &str = "There are orders that have not been carried out yet.";
const DRAINS: &str = "The server is about to stop: nothing is handed over any more.";

/// A worker as bytes, and what goes over beside them.
#[derive(Clone, Debug)]
pub(crate) struct PackedWorker {
    pub(crate) bytes: Vec<u8>,
    /// Files that are being sent.
    pub(crate) files: Vec<Arc<File>>,
}

impl Worker {
    /// Packs everything that another worker needs to go on with the connections. The mailbox is
    /// empty of events afterwards. What cannot be packed is in [`NOT_YET`].
    ///
    /// # Errors
    ///
    /// One sentence, if there is something now that the next process could not go on with.
    pub(crate) fn pack<B: Backend>(&mut self, io: &B) -> Result<PackedWorker, &'static str> {
        let heard_seq = self.cx.shared.hub.notified_seq();
        self.cx.take_mail();
        let Worker {
            cx,
            connections,
            drain,
            // Follows from the connections.
            open: _,
            wheel: _,
            // Nothing is going on.
            current: _,
            // Begins anew.
            pause_logged_ms: _,
            spared_until_ms: _,
            spared_bytes: _,
            refusal_logged_ms: _,
            // The next one is told how short memory is.
            shortened: _,
        } = self;
        if *drain != Drain::No {
            return Err(DRAINS);
        }
        if !cx.orders.is_empty() || !cx.committed.is_empty() {
            return Err(HAS_ORDERS);
        }
        for index in connections.indices() {
            let Some(connection) = connections.at(index) else { continue };
            if connection.awaits_commit() {
                return Err(COMMITS);
            }
        }
        let mut out = Packer::new(io.now_ms());
        out.put(MAGIC);
        VERSION.pack(&mut out);
        cx.pack(&mut out);
        out.section(CONNECTIONS, |out| {
            for index in connections.indices() {
                let Some(connection) = connections.at(index) else { continue };
                if connection.is_free() {
                    continue;
                }
                connection.note_heard(cx, heard_seq);
                (index as u32).pack(out);
                let deadline_tick = u64::from(connection.timer().deadline_tick());
                out.moment(deadline_tick.max(io.now_ms() / TICK_MS) * TICK_MS);
                connection.pack(out);
                let pass = cx.passes.get(Peer::from_index(index as u32));
                pass.map(|pass| pass.grant()).pack(out);
            }
        });
        out.shared_section(SHARED);
        let (bytes, things) = out.into_parts();
        // Nothing else is attached.
        let files = things.into_iter().filter_map(|thing| thing.downcast().ok()).collect();
        Ok(PackedWorker { bytes, files })
    }

    /// Goes on where the worker ended that packed this. To be called of a new one, which is of no
    /// use afterwards if this fails.
    ///
    /// # Errors
    ///
    /// One sentence, if these bytes are not what [`Worker::pack`] makes.
    pub(crate) fn unpack<B: Backend>(
        &mut self,
        io: &B,
        packed: &PackedWorker,
    ) -> Result<(), &'static str> {
        self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
        let things = packed.files.iter().map(|file| Arc::clone(file) as Thing).collect();
        let mut input = Unpacker::with_things(&packed.bytes, io.now_ms(), things);
        if input.take(MAGIC.len())? != MAGIC {
            return Err("This is no worker that was packed.");
        }
        if u16::unpack(&mut input)? != VERSION {
            return Err("The worker was packed in another version of the format.");
        }
        self.cx.unpack(&mut input)?;
        let mut records = input.section(CONNECTIONS)?;
        input.shared_section(SHARED, &mut records)?;
        input.end()?;
        let in_lines = self.cx.budget.places();
        let mut last = None;
        while !records.is_at_end() {
            let index = u32::unpack(&mut records)?;
            let deadline_ms = records.moment()?;
            let connection = Connection::unpack_sound(&mut records)?;
            let grant = Option::<Grant>::unpack(&mut records)?;
            let peer = Peer::from_index(index);
            let is_called = connection.line().is_none_or(|kind| in_lines.contains(&(kind, peer)));
            let is_next = last.is_none_or(|last| last < index);
            let has_grant = connection.has_pass() == grant.is_some();
            if !is_next || index % STREAMS_FROM as u32 >= PEERS_MAX || !is_called || !has_grant {
                return Err(MISFIT);
            }
            if let Some(grant) = grant {
                let (scope, _) = self.cx.shared.tokens.share(grant.scope);
                self.cx.passes.give(peer, &Grant { scope, ..grant });
            }
            last = Some(index);
            connection.enter_feeds(&mut self.cx.feeds, peer)?;
            self.adopt(peer, connection, deadline_ms);
        }
        if !self.cx.begin_log() {
            return Err(MISFIT);
        }
        // This process may have other keys and rules.
        self.cx.judge_all();
        self.catch_up();
        Ok(())
    }

    /// Takes a connection in that another worker had.
    fn adopt(&mut self, peer: Peer, connection: Connection, deadline_ms: u64) {
        self.open += 1;
        self.cx.connections(connection.role).add(1);
        connection.transport().inspect(|&transport| self.cx.readers(transport).add(1));
        self.cx.note(Activity::Waiting, connection.activity());
        self.cx.memory.note(Usage::default(), connection.usage());
        *self.connections.grow(peer.index()) = connection;
        let now_ms = self.cx.now_ms;
        let deadline_ms = deadline_ms.max(now_ms / TICK_MS * TICK_MS);
        self.wheel.set(&mut self.connections, peer.index(), deadline_ms, now_ms);
    }

    /// Has all look into history who may lack something.
    fn catch_up(&mut self) {
        for index in self.connections.indices() {
            let Some(connection) = self.connections.at(index) else { continue };
            if connection.is_behind(&self.cx) {
                let peer = Peer::from_index(index as u32);
                self.with(peer, |connection, cx| connection.catch_up(cx, peer));
            }
        }
    }
}

const MAGIC: &[u8] = b"STENTORW";
const VERSION: u16 = 5;

const CONNECTIONS: u8 = 4;
const SHARED: u8 = 5;
