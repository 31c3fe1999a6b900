//! The parts of a worker's state.
//!
//! They lie in the worker's [`Context`] itself, so a part costs no pointer. A method that needs one
//! part is a method of that part, and an exchange or a delivery borrows the parts that it needs.
//!
//! [`Context`]: crate::context::Context

use crate::access::passes::Passes;
use crate::access_log::{AccessLog, Lines};
use crate::addresses::NamedClients;
use crate::answers::Answers;
use crate::budget::Budget;
use crate::denials::Denials;
use crate::limits::GATHER_BYTES;
use crate::listeners::LISTENERS;
use crate::mailbox::{Mail, Mailbox, Order};
use crate::memory::Memory;
use crate::pressure::Pressure;
use crate::response::{Preamble, Scratch};
use crate::stats::Route;
use crate::stream::batch::Batches;
use crate::stream::feeds::Feeds;
use crate::stream::walks::Walks;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use stentor_access::Keys;
use stentor_config::Settings;
use stentor_files::OpenFiles;
use stentor_hub::{AccessList, Event, SubscriberId};
use stentor_io::{Counter, Peer};
use stentor_order::{Outcome, Promised, Ticket};
use stentor_replication::Replication;
use stentor_wire::deflate::{Deflater, Inflater};
use stentor_wire::pack::{Packed, Packer, Unpacked, Unpacker};

/// The times at which the current loop iteration read the clocks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Clocks {
    pub(crate) now_ms: u64,
    pub(crate) unix_s: u64,
}

/// The start of each answer, and the counts and log lines of answers.
pub(crate) struct Responses {
    /// The answers of the current visit to a connection.
    pub(crate) answers: Answers,
    /// The access log gets these lines. `None` if there is no access log.
    pub(crate) lines: Option<Lines>,
    /// One for each kind of listener.
    pub(crate) preambles: [Preamble; LISTENERS.len()],
}

impl Responses {
    pub(crate) fn new(access_log: Option<&Arc<AccessLog>>) -> Responses {
        let lines = access_log.map(AccessLog::lines);
        Responses { answers: Answers::default(), lines, preambles: Preamble::all() }
    }

    /// A connection begins.
    pub(crate) fn begin_connection(&mut self, peer: Peer, address: Option<IpAddr>) {
        if let Some(lines) = &mut self.lines {
            lines.begin(peer.index(), address);
        }
    }

    /// Gives the lines of this loop iteration to the thread that writes them.
    pub(crate) fn hand_over_lines(&mut self, dropped: &Counter) {
        if let Some(lines) = &mut self.lines {
            lines.hand_over(dropped);
        }
    }

    /// The second or the settings have changed. For `stale_s` seconds this node has not heard from
    /// the node that it follows.
    pub(crate) fn renew(&mut self, unix_s: u64, settings: &Settings, stale_s: Option<u64>) {
        for preamble in &mut self.preambles {
            preamble.renew(unix_s, settings, stale_s);
        }
    }
}

/// Buffers, counters, and open files that endpoints answer requests with.
pub(crate) struct Resources {
    /// Where look-ups are counted: `/-/values`, and then a route for each of the settings.
    pub(crate) routes: Vec<Arc<Route>>,
    /// A number for the format of each of them.
    pub(crate) formats: Vec<u64>,
    pub(crate) scratch: Scratch,
    pub(crate) files: OpenFiles,
    /// Decompresses what clients send.
    pub(crate) inflater: Inflater,
}

impl Resources {
    pub(crate) fn new(routes: Vec<Arc<Route>>, formats: Vec<u64>) -> Resources {
        Resources {
            routes,
            formats,
            scratch: Scratch { body: Vec::with_capacity(GATHER_BYTES), name: Vec::new() },
            files: OpenFiles::default(),
            inflater: Inflater::default(),
        }
    }
}

/// The messages for readers and followers.
pub(crate) struct StreamState {
    /// The feeds that connections of this worker read.
    pub(crate) feeds: Feeds,
    pub(crate) batches: Batches,
    pub(crate) walks: Walks,
    /// The messages that a replay has found for the current reader.
    pub(crate) found: Vec<Event>,
    /// Compresses the messages of all connections.
    pub(crate) deflater: Deflater,
    /// The changes for followers.
    pub(crate) replication: Replication,
}

impl StreamState {
    pub(crate) fn new(subscriber: SubscriberId) -> StreamState {
        StreamState {
            feeds: Feeds::new(subscriber),
            batches: Batches::default(),
            walks: Walks::default(),
            found: Vec::new(),
            deflater: Deflater::default(),
            replication: Replication::default(),
        }
    }

    /// Packs what another worker continues with.
    pub(crate) fn pack(&self, out: &mut Packer) {
        #[rustfmt::skip]
        let StreamState {
            feeds,
            // Empty between two loop iterations, or made again.
            batches: _, walks: _, found: _, deflater: _,
            // Followers come back.
            replication: _,
        } = self;
        feeds.filters().pack(out);
    }
}

/// The clients of the worker, and their rights.
pub(crate) struct AccessState {
    pub(crate) keys: Arc<Keys>,
    /// The tokens of readers.
    pub(crate) passes: Passes,
    /// Clients that proxies have named.
    pub(crate) clients: NamedClients,
    /// After a change of rules or keys, connections from this number on have not been checked yet.
    pub(crate) judged: Option<usize>,
    /// The rules have changed, so a check compares what is read with the rules.
    pub(crate) has_other_rules: bool,
    /// Access lists of other servers, which the settings of the worker have, and at which change of
    /// the hub's rules they were read; `None` before the first.
    pub(crate) others: (Option<u64>, Vec<AccessList>),
    pub(crate) denials: Denials,
}

impl AccessState {
    pub(crate) fn new(keys: Arc<Keys>) -> AccessState {
        AccessState {
            keys,
            passes: Passes::new(),
            clients: NamedClients::default(),
            judged: None,
            has_other_rules: false,
            others: (None, Vec::new()),
            denials: Denials::default(),
        }
    }

    /// Has tokens verified with other keys from now on.
    pub(crate) fn configure_keys(&mut self, keys: Arc<Keys>) {
        self.keys = keys;
        self.judged = Some(0);
    }

    /// Has every reader looked at, whether it may still read what it does.
    pub(crate) fn judge_all(&mut self) {
        self.judged = Some(0);
        self.has_other_rules = true;
    }

    /// The readers before this one have been looked at; `None`: all of them.
    pub(crate) fn judge_from(&mut self, next: Option<usize>) {
        self.judged = next;
        self.has_other_rules &= next.is_some();
    }

    /// Whether it has not been looked at yet if a connection may still read what it does.
    pub(crate) fn is_unjudged(&self, peer: Peer) -> bool {
        self.judged.is_some_and(|judged| judged <= peer.index())
    }
}

/// Orders and messages from other threads, and promises to publishers.
pub(crate) struct Inbox {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Taken out of the mailbox, and not looked at yet.
    pub(crate) mail: VecDeque<Mail>,
    /// A message is being logged. If the worker panics meanwhile, the message is lost.
    pub(crate) is_logging: bool,
    /// The worker has to carry these out.
    pub(crate) orders: VecDeque<Order>,
    /// The outcomes of changes whose connections do not know them yet.
    pub(crate) committed: VecDeque<(Ticket, Outcome)>,
    /// The promises of this loop iteration.
    pub(crate) promised: RefCell<Vec<Promised>>,
}

impl Inbox {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Inbox {
        Inbox {
            mailbox,
            mail: VecDeque::new(),
            is_logging: false,
            orders: VecDeque::new(),
            committed: VecDeque::new(),
            promised: RefCell::default(),
        }
    }
}

/// The cost and the memory that the worker accounts for, and their bounds.
#[derive(Default)]
pub(crate) struct Load {
    /// Bytes that the socket of the current connection took in this visit.
    pub(crate) sent_bytes: usize,
    pub(crate) budget: Budget,
    pub(crate) memory: Memory,
    /// How short the memory of the control group or of the host is.
    pub(crate) pressure: Pressure,
    /// How long a connection that is accepted now has waited for it.
    pub(crate) queue_age_ms: u64,
    /// The maximum number of connections of all public workers together.
    pub(crate) connections_max: usize,
}

impl Load {
    /// Packs what another worker continues with. It measures the rest itself.
    pub(crate) fn pack(&self, out: &mut Packer) {
        let Load {
            budget,
            sent_bytes: _,
            memory: _,
            pressure: _,
            queue_age_ms: _,
            connections_max: _,
        } = self;
        budget.pack(out);
    }

    /// # Errors
    /// If this is not what was packed.
    pub(crate) fn unpack(&mut self, input: &mut Unpacker<'_>) -> Unpacked<()> {
        self.budget = Budget::unpack(input)?;
        Ok(())
    }
}
