//! A worker as bytes, so that another process can go on with its connections.
//!
//! The worker that packs is as it was before, and may go on if nobody takes over. Whoever takes
//! over has the same hub, or one that is as far, and the same sockets by the same numbers. What of
//! events the old worker had and its readers had not seen yet, they look for in history: the log
//! of the new one begins empty. So no reader loses anything, hears anything twice, or out of order;
//! it is told of a gap if history has lost what the log had.
//!
//! It goes over in parts, of which one is unpacked while the next is packed. The first has:
//!
//! | section | what it holds |
//! |---|---|
//! | | eight bytes, and the version of all that follows |
//! | 1 | the counters, by name |
//! | 2 | the filters of the feeds, by the feeds' numbers |
//! | 3 | the order of the work queues, and what has been spent |
//!
//! Each of the others has some of the connections, in the order of their numbers:
//!
//! | section | what it holds |
//! |---|---|
//! | 4 | connections: number, time left, record, and what they were let in by |
//! | 5 | bodies that several connections are being sent, from this part on |
//! | 6 | only if there are any: of these connections, clients that a proxy has named |
//!
//! Files that are being sent go over beside these, as files.
//!
//! A worker is not packed while it drains, while a publisher waits for a commit, and before it has
//! carried out its orders. The rest goes over otherwise, or not at all:
//!
//! - messages in the log that history has lost: who has not seen them is told of a gap;
//! - walks over names begin anew, and a gap that one had found may be told again;
//! - bodies that are being sent go over as bytes, once for each worker, beside the message;
//! - feeds end behind what is on its way, so that followers come back; snapshots are cut;
//! - of a body that is made in steps, the rest is made and goes over as bytes;
//! - handshakes of TLS that are under way: their connections are closed (`secured/handover.rs`);
//! - connections that come over are counted by their addresses a little later;
//! - messages being compressed, and files kept in memory, are made again when asked for;
//! - tokens that were verified are verified again when they come again: whom they let in stays;
//! - when something was last logged, and when memory was last given back, is forgotten.

use super::{Drain, Worker};
use crate::budget::Budget;
use crate::connection::Connection;
use crate::stats::Activity;
use crate::timers::{TICK_MS, Timed, tick_after};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use stentor_access::Grant;
use stentor_hub::Filter;
use stentor_io::PEERS_MAX;
use stentor_io::STREAMS_FROM;
use stentor_io::{Backend, File, Peer};
use stentor_wire::pack::{self, Beside, MISFIT, Packed, Packer, Section, Thing, Unpacker};

const COMMITS: &str =
    "A client waits for a commit or a file, which the next process would not be told of.";
const HAS_ORDERS: &str = "There are orders that have not been carried out yet.";
const DRAINS: &str = "The server is about to stop: nothing is handed over any more.";

/// What sends a part of a packed worker: bytes, and files that are being sent.
pub(crate) type SendPart<'a> = &'a mut dyn FnMut(&[u8], &[Arc<File>]) -> io::Result<()>;

impl Worker {
    /// Whether the worker can be packed now. The mailbox is empty of events afterwards. Returns up
    /// to which number the worker has heard of everything.
    ///
    /// # Errors
    ///
    /// One sentence, if there is something now that the next process could not go on with.
    pub fn can_be_packed(&mut self) -> Result<u64, &'static str> {
        let heard_seq = self.cx.shared.hub.notified_seq();
        self.cx.take_mail();
        if self.drain != Drain::No {
            return Err(DRAINS);
        }
        if !self.cx.inbox.orders.is_empty() || !self.cx.inbox.committed.is_empty() {
            return Err(HAS_ORDERS);
        }
        for index in self.connections.indices() {
            let connection = self.connections.at(index);
            if connection.is_some_and(|connection| connection.awaits_commit()) {
                return Err(COMMITS);
            }
        }
        Ok(heard_seq)
    }

    /// Packs everything that another worker needs to go on with the connections, and gives it to
    /// `send` part by part: that one unpacks the first while this one packs the next. To be called
    /// when [`Worker::can_be_packed`] has said yes, with what it returned. The module says
    /// what does not go over.
    ///
    /// # Errors
    ///
    /// Those of `send`.
    pub fn pack(&mut self, heard_seq: u64, now_ms: u64, send: SendPart<'_>) -> io::Result<()> {
        let Worker {
            cx,
            connections,
            drain: _,
            // Follows from the connections.
            open: _,
            wheel: _,
            // Nothing is going on.
            current: _,
            // Begins anew.
            pauses: _,
            spared_until_ms: _,
            spared_bytes: _,
            refusals: _,
            strangers: _,
            evicts_at_ms: _,
            places: _,
            uncounted: _,
            // The next one is told how short memory is.
            shortened: _,
            tcp_search: _,
        } = self;
        let mut out = Packer::new(now_ms);
        out.put(MAGIC);
        VERSION.pack(&mut out);
        cx.pack(&mut out);
        send_part(&mut out, send)?;
        let (mut section, mut clients) = (None, Vec::new());
        for index in connections.indices() {
            let Some(connection) = connections.at(index) else { continue };
            if connection.is_free() {
                continue;
            }
            let peer = Peer::from_index(index as u32);
            let ended = connection.ended_copy(cx, peer);
            connection.note_heard(cx, heard_seq);
            section = section.or_else(|| Some(out.begin_section(CONNECTIONS)));
            (index as u32).pack(&mut out);
            let deadline_tick = match ended {
                Some(_) => tick_after(now_ms + cx.settings.limits.write_timeout_ms),
                None => connection.timer().deadline_tick(),
            };
            out.moment(u64::from(deadline_tick).max(now_ms / TICK_MS) * TICK_MS);
            ended.as_ref().unwrap_or(connection).pack(&mut out);
            let pass = cx.access.passes.get(peer).filter(|_| ended.is_none());
            pass.map(|pass| pass.grant()).pack(&mut out);
            clients.extend(cx.access.clients.get(peer).map(|client| (index as u32, client)));
            if out.len() >= PART_BYTES {
                send_connections(&mut out, section.take(), &mut clients, send)?;
            }
        }
        send_connections(&mut out, section, &mut clients, send)
    }

    /// Goes on where the worker ended that was packed. To be called of a new one, which is of no
    /// use afterwards if a part does not fit.
    pub fn begin_unpacking<B: Backend>(&mut self, io: &B) -> Unpacking {
        self.cx.tick(io.now_ms(), io.turn_us(), io.unix_s());
        Unpacking { now_ms: io.now_ms(), has_head: false, beside: Beside::default(), last: None }
    }

    /// Connections with numbers up to this one are going to be unpacked: has room for them.
    pub fn make_room(&mut self, end: u32) {
        self.connections.reserve(end as usize);
    }

    /// Takes a connection in that another worker had.
    fn adopt(&mut self, peer: Peer, mut connection: Connection, deadline_ms: u64) {
        self.open += 1;
        self.cx.stats.connections(connection.role()).add(1);
        connection.transport().inspect(|&transport| transport.readers(&self.cx.stats).add(1));
        self.cx.stats.note(Activity::Waiting, connection.activity());
        self.cx.load.memory.note(0, connection.owned_bytes());
        if connection.is_last_answer_blocked() {
            self.cx.streams.replication.ended.push(peer);
        }
        let now_ms = self.cx.clock.now_ms;
        let deadline_ms = deadline_ms.max(now_ms / TICK_MS * TICK_MS);
        connection.resume_pace(deadline_ms);
        *self.connections.grow(peer.index()) = connection;
        self.wheel.set(&mut self.connections, peer.index(), deadline_ms, now_ms);
    }

    /// Has all look into history who may lack something.
    fn catch_up(&mut self) {
        for index in self.connections.indices() {
            let Some(connection) = self.connections.at(index) else { continue };
            if connection.is_behind(&self.cx) {
                let peer = Peer::from_index(index as u32);
                self.with(peer, |connection, cx| connection.catch_up(cx));
            }
        }
    }
}

/// Sends what was packed of connections, if any were, with what they share.
fn send_connections(
    out: &mut Packer,
    section: Option<Section>,
    clients: &mut Vec<(u32, IpAddr)>,
    send: SendPart<'_>,
) -> io::Result<()> {
    let Some(section) = section else { return Ok(()) };
    out.end_section(section);
    out.section(SHARED, Packer::put_shared);
    // A release that knows no proxies can read what has none of their clients.
    if !clients.is_empty() {
        out.section(CLIENTS, |out| {
            for (index, client) in clients.drain(..) {
                index.pack(out);
                client.pack(out);
            }
        });
    }
    send_part(out, send)
}

fn send_part(out: &mut Packer, send: SendPart<'_>) -> io::Result<()> {
    out.send(|bytes, things| {
        // Nothing else is attached.
        let files = things.iter().filter_map(|thing| Arc::clone(thing).downcast().ok());
        send(bytes, &files.collect::<Vec<_>>())
    })
}

/// A worker that is being unpacked, part by part.
pub struct Unpacking {
    now_ms: u64,
    /// The first part has come.
    has_head: bool,
    beside: Beside,
    /// The connection that came last.
    last: Option<u32>,
}

impl Unpacking {
    /// Unpacks the next part. This takes nothing of the hub, which may not be there yet.
    ///
    /// # Errors
    ///
    /// One sentence, if this is not what [`Worker::pack`] makes.
    pub fn part(
        &mut self,
        worker: &mut Worker,
        bytes: &[u8],
        files: Vec<Arc<File>>,
    ) -> Result<(), &'static str> {
        self.beside.add_things(files.into_iter().map(|file| file as Thing));
        let mut input = Unpacker::new(bytes, self.now_ms);
        if !std::mem::replace(&mut self.has_head, true) {
            return unpack_head(worker, input);
        }
        let records = input.section(CONNECTIONS)?;
        self.beside.add_shared(input.section(SHARED)?.rest())?;
        let clients = if input.is_at_end() { None } else { Some(input.section(CLIENTS)?) };
        input.end()?;
        let mut records = Unpacker::with(records.rest(), self.now_ms, &self.beside);
        while !records.is_at_end() {
            let index = u32::unpack(&mut records)?;
            let deadline_ms = records.moment()?;
            let connection = Connection::unpack_sound(&mut records)?;
            let grant = Option::<Grant>::unpack(&mut records)?;
            let peer = Peer::from_index(index);
            let is_next = self.last.is_none_or(|last| last < index);
            let has_grant = connection.has_pass() == grant.is_some();
            if !is_next || index % STREAMS_FROM as u32 >= PEERS_MAX || !has_grant {
                return Err(MISFIT);
            }
            if let Some(grant) = grant {
                let (scope, _) = worker.cx.shared.tokens.verified.share(grant.scope);
                worker.cx.access.passes.give(peer, &Grant { scope, ..grant });
            }
            self.last = Some(index);
            connection.enter_feeds(&mut worker.cx.streams.feeds, peer)?;
            worker.adopt(peer, connection, deadline_ms);
        }
        clients.map_or(Ok(()), |clients| unpack_clients(worker, clients))
    }

    /// All parts have come, and the hub is as it was: nothing is missed from here on.
    ///
    /// # Errors
    ///
    /// One sentence, if they do not fit.
    pub fn end(self, worker: &mut Worker) -> Result<(), &'static str> {
        if !self.has_head || !worker.cx.begin_log() {
            return Err(MISFIT);
        }
        worker.rebuild_queues();
        // This process may have other keys and rules.
        worker.cx.access.judge_all();
        worker.catch_up();
        worker.uncounted = Some(0);
        Ok(())
    }
}

/// Unpacks the clients that proxies have named.
fn unpack_clients(worker: &mut Worker, mut clients: Unpacker<'_>) -> Result<(), &'static str> {
    while !clients.is_at_end() {
        let index = u32::unpack(&mut clients)?;
        let client = IpAddr::unpack(&mut clients)?;
        let connection = worker.connections.at(index as usize);
        if connection.is_none_or(|connection| connection.is_free()) {
            return Err(MISFIT);
        }
        worker.cx.access.clients.set(Peer::from_index(index), Some(client));
    }
    Ok(())
}

/// Unpacks what is not a connection's.
fn unpack_head(worker: &mut Worker, mut input: Unpacker<'_>) -> Result<(), &'static str> {
    if input.take(MAGIC.len())? != MAGIC {
        return Err("This is no worker that was packed.");
    }
    if u16::unpack(&mut input)? != VERSION {
        return Err("The worker was packed in another version of the format.");
    }
    worker.cx.unpack(&mut input)?;
    input.end()
}

/// The form of a packed worker. `VERSION` is the part of what functions pack by hand.
pub const WORKER_FORMAT: u64 = pack::format(
    "Worker",
    &[VERSION as u64, Connection::FORMAT, Budget::FORMAT, Filter::FORMAT, Grant::FORMAT],
);

const MAGIC: &[u8] = b"STENTORW";
const VERSION: u16 = 6;

const CONNECTIONS: u8 = 4;
const SHARED: u8 = 5;
const CLIENTS: u8 = 6;

/// How much of connections is in a part, or a little more: with what a few of them share it fits a
/// message between two processes.
const PART_BYTES: usize = 48 * 1024;
