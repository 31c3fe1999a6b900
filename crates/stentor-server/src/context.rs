//! What a worker's connections share: the hub, the settings, and buffers that are used again and
//! again so that answering a request allocates nothing.

use crate::access::{Act, Bearer, Denied, Visitor, needs_token};
use crate::access_log::{Address, Text};
use crate::addresses::Counted;
use crate::answers::RefusedAnswer;
use crate::budget::{Budget, Permit};
use crate::endpoint::values::formats;
use crate::exchange::{Exchange, Requester};
use crate::limits::{EVENTS_USUAL, IDLE_MS};
use crate::listeners::listener;
use crate::mailbox::{Mail, Mailbox};
use crate::output::Output;
use crate::panics::may_panic;
use crate::phase::Phase;
use crate::pressure::Pressure;
use crate::response::Persistence;
use crate::response::{Reply, Shape};
use crate::shared::Shared;
use crate::state::{AccessState, Clocks, Inbox, Load, Resources, Responses, StreamState};
use crate::stats::Stats;
use crate::stream::batch::{Batches, Sent};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use stentor_access::Refused;
use stentor_config::Settings;
use stentor_hub::{AccessList, Guard, Subscriber, access_list};
use stentor_io::{Backend, Peer, Rng, Role};
use stentor_order::{OrderKind, Ticket};
use stentor_wire::credentials::{self, credential};
use stentor_wire::http1::{Method, Request};
use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker};

/// The token of a request.
pub(crate) struct Presented<'a> {
    /// `None` if the token must be verified.
    bearer: Option<Bearer>,
    token: Cow<'a, [u8]>,
    by_cookie: bool,
}

impl<'a> Presented<'a> {
    /// No token, or none that matters.
    const NOTHING: Presented<'a> =
        Presented { bearer: Some(Bearer::Nobody), token: Cow::Borrowed(&[]), by_cookie: false };

    /// Whether a signature must be verified to say what the token is worth.
    pub(crate) fn is_unverified(&self) -> bool {
        self.bearer.is_none()
    }

    /// Verifies the token if that is due. Returns its status and the token.
    pub(crate) fn bearer(self, cx: &mut Context, permit: &Permit) -> (Bearer, Cow<'a, [u8]>) {
        let Presented { bearer, token, by_cookie } = self;
        let verify = || cx.verify(&String::from_utf8_lossy(&token), by_cookie, permit);
        (bearer.unwrap_or_else(verify), token)
    }
}

impl AsMut<Budget> for Context {
    fn as_mut(&mut self) -> &mut Budget {
        &mut self.load.budget
    }
}

/// One worker's share.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) out: Output,
    pub(crate) responses: Responses,
    pub(crate) resources: Resources,
    pub(crate) clock: Clocks,
    pub(crate) streams: StreamState,
    pub(crate) access: AccessState,
    pub(crate) inbox: Inbox,
    /// Chance: who comes back when.
    pub(crate) rng: Rng,
    /// The connection that is visited.
    pub(crate) peer: Peer,
    /// The phase for which the deadline of the current connection was set. `None` if the deadline
    /// has to be set again.
    pub(crate) armed: Option<Phase>,
    pub(crate) load: Load,
    /// A graceful stop is under way: every answer is its connection's last.
    pub(crate) draining: bool,
    /// Nothing is begun that was not asked for yet, for another process may go on from here.
    pub(crate) stands_still: bool,
}

impl Context {
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        stats: Arc<Stats>,
        mailbox: Arc<Mailbox>,
        seed: u64,
    ) -> Context {
        let subscriber = shared.hub.add_subscriber(Arc::clone(&mailbox) as Arc<dyn Subscriber>);
        let responses = Responses::new(shared.access_log.as_ref());
        let mut load = Load { connections_max: usize::MAX, ..Load::default() };
        load.budget.begin_turn(false);
        Context {
            streams: StreamState::new(subscriber),
            access: AccessState::new(shared.tokens.keys()),
            inbox: Inbox::new(mailbox),
            rng: Rng::new(seed),
            shared,
            resources: Resources::new(
                stats.routes.renew(&settings.lookups),
                formats(&settings.lookups),
            ),
            settings,
            stats,
            out: Output::new(),
            responses,
            clock: Clocks::default(),
            peer: Peer::from_index(0),
            armed: None,
            load,
            draining: false,
            stands_still: false,
        }
    }

    /// Sets the deadline of the current connection again at the end of this visit.
    pub(crate) fn rearm(&mut self) {
        self.armed = None;
    }

    /// How long a connection may be silent between two requests.
    pub(crate) fn keep_alive_ms(&self) -> u64 {
        let keep_alive_ms = self.settings.limits.keep_alive_timeout_ms;
        if self.load.pressure == Pressure::None {
            keep_alive_ms
        } else {
            keep_alive_ms.min(IDLE_MS)
        }
    }

    /// What the readers of this worker may own or keep from being freed.
    pub(crate) fn readers_bytes_max(&self) -> usize {
        let bytes_max = self.settings.limits.readers_bytes_max;
        if self.load.pressure == Pressure::Critical { bytes_max / 2 } else { bytes_max }
    }

    /// What may be kept for followers that are behind.
    pub(crate) fn feed_bytes_max(&self) -> usize {
        let bytes_max = self.settings.limits.feed_bytes_max;
        if self.load.pressure == Pressure::Critical { bytes_max / 2 } else { bytes_max }
    }

    /// Counts a connection from `address`; `None` if that has as many as it may.
    pub(crate) fn count_in(&self, role: Role, address: Option<IpAddr>) -> Option<Counted> {
        let Some(address) = address.filter(|_| listener(role).counts_addresses) else {
            return Some(Counted::default());
        };
        match self.connections_max_of(address) {
            Some(most) => self.shared.addresses.enter(address, most),
            None => Some(Counted::default()),
        }
    }

    /// The same of a connection that is there already, however many the address has.
    pub(crate) fn count_unbounded(&self, role: Role, address: IpAddr) -> Counted {
        if !listener(role).counts_addresses || self.connections_max_of(address).is_none() {
            return Counted::default();
        }
        self.shared.addresses.enter(address, u32::MAX).unwrap_or_default()
    }

    fn connections_max_of(&self, address: IpAddr) -> Option<u32> {
        self.settings.limits.connections_per_address.bound(address, self.load.connections_max)
    }

    /// The clocks of this turn.
    pub(crate) fn tick(&mut self, now_ms: u64, turn_us: u64, unix_s: u64) {
        self.clock.now_ms = now_ms;
        self.responses.answers.begin_turn(turn_us);
        self.heed_access_lists();
        if self.clock.unix_s != unix_s {
            self.clock.unix_s = unix_s;
            self.renew();
        }
    }

    /// The request that is about to be answered begins with these bytes: keeps what is to be logged
    /// of it.
    pub(crate) fn note_asked(&mut self, bytes: &[u8]) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.responses.answers.asked.line = Some(Text::line_of(bytes));
        }
        if self.responses.lines.is_none() {
            return;
        }
        let one_of = self.settings.log.access_sample;
        if one_of == 1 || self.rng.below(one_of) == 0 {
            self.responses.answers.asked.text = Some(Box::new(Text::of(bytes)));
        }
    }

    /// The visit to a connection is over: whatever it answered has left, or waits to.
    pub(crate) fn settle_answers<B: Backend>(&mut self, io: &B, role: Role) {
        let peer = self.peer;
        let Context { responses, access, stats, clock, .. } = self;
        let Responses { answers, lines, .. } = responses;
        let AccessState { clients, denials, .. } = access;
        let is_settled = answers.is_settled();
        if denials.has_line() || !is_settled && listener(role).publishes {
            denials.tell(answers.denied(), io.client(peer), clock.now_ms);
        }
        for RefusedAnswer { status, reason, line } in answers.take_refused() {
            let request = line.unwrap_or_default();
            let address = || clients.get(peer).or_else(|| io.remote_address(peer));
            let client = match io.client(peer) {
                Some(name) => name.to_owned(),
                None => address().map_or("-".to_owned(), |it| it.to_canonical().to_string()),
            };
            tracing::debug!(request = ?request, %client, "refused with {status}: {reason}");
        }
        if !is_settled {
            answers.settle(stats, io.now_us(), |answered| {
                if let Some(lines) = lines {
                    let came = (listener(role).name, io.client(peer));
                    let dropped = &stats.access_log_dropped;
                    let address = match clients.get(peer) {
                        Some(client) => Address::Ip(client),
                        None => lines.address(peer.index(), || io.remote_address(peer)),
                    };
                    lines.push(address, came, answered, clock.unix_s, dropped);
                }
            });
        }
        answers.go_on(None);
    }

    /// Empties the mailbox: what was published goes into the feeds, orders are left for the worker.
    pub(crate) fn take_mail(&mut self) {
        // What a panic left comes first.
        self.sort_mail();
        self.inbox.mailbox.swap(&mut self.inbox.mail);
        self.sort_mail();
        self.inbox.mail.shrink_to(EVENTS_USUAL);
        self.heed_access_lists();
    }

    /// One by one: what comes behind one that makes the worker panic is logged afterwards.
    fn sort_mail(&mut self) {
        while let Some(mail) = self.inbox.mail.pop_front() {
            match mail {
                Mail::Order(order) => self.inbox.orders.push_back(order),
                Mail::Replaced(seq, now_us) => self.streams.feeds.invalidate(seq, now_us),
                Mail::Event(event, published_us) => {
                    self.inbox.is_logging = true;
                    #[cfg(test)]
                    assert!(event.topic() != "/-panic", "a panic for the tests");
                    may_panic();
                    self.streams.feeds.log(event, published_us);
                    self.inbox.is_logging = false;
                }
            }
        }
    }

    /// Recovers from a panic; `outside` says that no connection caused it. It throws away the
    /// contents of all shared buffers, which the connection may have left half done. If events may
    /// have been lost, every reader looks at history, so that nothing is lost in silence.
    pub(crate) fn recover(&mut self, outside: bool, now_us: u64) {
        self.out.clear();
        self.responses.answers.clear();
        // mutation: body-after-panic
        self.resources.scratch.body.clear();
        self.resources.scratch.name.clear();
        self.streams.found.clear();
        // mutation: batches-after-panic
        self.streams.batches.forget();
        // mutation: line-after-panic
        self.load.budget.recover();
        self.access.denials.tell(None, None, self.clock.now_ms);
        if outside {
            self.streams.replication.recover(&self.shared.hub);
        }
        if outside | std::mem::take(&mut self.inbox.is_logging) {
            self.streams.feeds.invalidate(self.shared.hub.notified_seq(), now_us);
        }
    }

    /// Has publishers told once what they were promised in this turn holds. Together: none can be
    /// answered before the turn is over, and the disk is asked less often.
    pub(crate) fn end_promises(&mut self) {
        let promised = self.inbox.promised.get_mut();
        if !promised.is_empty() {
            self.shared.committer.when_kept(promised);
        }
    }

    /// Packs what its worker has beside its connections, for another one.
    pub(crate) fn pack(&self, out: &mut Packer) {
        #[rustfmt::skip]
        let Context {
            stats, streams, load,
            // The next worker is given its own.
            shared: _, settings: _, rng: _,
            // Empty between two turns.
            out: _,
            inbox: Inbox {
                mailbox: _, mail: _, is_logging: _, orders: _, committed: _, promised: _,
            },
            // Of the connection that is visited next.
            peer: _, armed: _,
            access: AccessState {
                // With the connections.
                passes: _, clients: _,
                // The next worker has its own keys, and looks at all readers.
                keys: _, judged: _, has_other_rules: _, others: _, denials: _,
            },
            // Begins anew, or follows from the rest. Nobody packs while draining.
            resources: Resources { routes: _, formats: _, scratch: _, files: _, inflater: _ },
            responses: Responses { answers: _, lines: _, preambles: _ },
            clock: _, draining: _, stands_still: _,
        } = self;
        out.section(COUNTERS, |out| stats.pack(out));
        out.section(FEEDS, |out| streams.pack(out));
        out.section(LINES, |out| load.pack(out));
    }

    /// Goes on where another worker ended. The feeds still lack their readers, and the hub knows
    /// nothing of them.
    ///
    /// # Errors
    /// If this is not what was packed.
    pub(crate) fn unpack(&mut self, input: &mut Unpacker<'_>) -> Unpacked<()> {
        let mut counters = input.section(COUNTERS)?;
        self.stats.unpack(&mut counters)?;
        counters.end()?;
        let mut feeds = input.section(FEEDS)?;
        let filters = Vec::unpack(&mut feeds)?;
        feeds.end()?;
        let mut lines = input.section(LINES)?;
        self.load.unpack(&mut lines)?;
        lines.end()?;
        if self.streams.feeds.open_all(&filters) { Ok(()) } else { Err(MISFIT) }
    }

    /// With all readers of another worker here: whatever comes from now on is in the log. Returns
    /// whether every feed is read.
    pub(crate) fn begin_log(&mut self) -> bool {
        let is_read = self.streams.feeds.begin_log(&self.shared.hub);
        if self.stats.bytes_replication.value() > 0 {
            self.streams.replication.begin(
                &self.shared.hub,
                self.inbox.mailbox.waker(),
                self.clock.now_ms,
            );
        }
        self.take_mail();
        is_read
    }

    /// Goes by other settings from now on.
    pub(crate) fn configure(&mut self, settings: Arc<Settings>) {
        let others = std::mem::take(&mut self.access.others.1);
        let settings = if others.is_empty() { settings } else { guarded(&settings, &others) };
        self.access.others.1 = others;
        self.resources.routes = self.stats.routes.renew(&settings.lookups);
        self.resources.formats = formats(&settings.lookups);
        self.settings = settings;
        self.resources.files.retain_roots(&self.settings.mounts);
        self.renew();
        // What was gathered for those who may not see all goes by the rules that were.
        self.streams.batches = Batches::default();
        self.access.judge_all();
    }

    /// Has topics guarded that other servers guard: the server that is followed, or the nodes of
    /// the cluster. To be called before a value is read, or a message is sent, that may be theirs.
    pub(crate) fn heed_access_lists(&mut self) {
        let from = match self.shared.committer.order() {
            OrderKind::Memory | OrderKind::Store => return,
            OrderKind::Leader { .. } => 0,
            // The lists of this node come with its settings.
            OrderKind::Cluster => 1,
        };
        let changes = self.shared.hub.rules_changes();
        if self.access.others.0 == Some(changes) {
            return;
        }
        let (_, rules) = self.shared.hub.rules();
        let lists = (from..=Guard::LISTS_MAX).map(|list| access_list(&rules, list));
        let own = if from == 0 { AccessList::new() } else { access_list(&rules, 0) };
        let is_other = |list: &AccessList| !list.is_empty() && *list != own;
        let lists: Vec<AccessList> = lists.filter(is_other).collect();
        let before = std::mem::replace(&mut self.access.others, (Some(changes), lists));
        if before.1 != self.access.others.1 {
            self.settings = guarded(&self.settings, &self.access.others.1);
            self.streams.batches = Batches::default();
            self.access.judge_all();
        }
    }

    fn renew(&mut self) {
        let stale_s = self.shared.stale_s();
        if stale_s.is_some() {
            self.streams.replication.expect_followers(self.clock.now_ms);
        }
        self.responses.renew(self.clock.unix_s, &self.settings, stale_s);
    }

    /// Takes note of what a stream was sent in one go, of which so many bytes have left. The rest
    /// of a message that was cut will: it counts with its beginning.
    pub(crate) fn count_stream(&mut self, left: usize, sent: &Sent) {
        self.load.budget.cost += left + SEND_COST;
        self.stats.bytes_streams.add(sent.bytes);
        self.stats.bytes_streams_data.add(sent.data);
        self.stats.deliveries.add(sent.messages as u64);
    }

    /// Whether somebody who came in by that listener may do something, whatever they brought.
    ///
    /// # Errors
    /// The answer to one who may not.
    pub(crate) fn may(&self, role: Role, act: Act<'_>) -> Result<(), Denied> {
        Visitor::new(role, &self.settings, &Bearer::Nobody).may(act)
    }

    /// The token that a request brings, as far as that matters for it.
    pub(crate) fn presented<'a>(&mut self, role: Role, request: &Request<'a>) -> Presented<'a> {
        if !self.settings.asks_for_tokens() {
            return Presented::NOTHING;
        }
        let cookie = self.settings.access.cookie.as_deref();
        let Some(credential) = credential(request, cookie) else { return Presented::NOTHING };
        let visitor = Visitor::new(role, &self.settings, &Bearer::Nobody);
        if !needs_token(visitor.listener, &self.settings, request)
            || !visitor.counts(&credential, request)
        {
            return Presented::NOTHING;
        }
        self.load.budget.cost += FOUND_COST;
        let by_cookie = credential.place == credentials::Place::Cookie;
        // What is no text is no token, and is refused as one that is none.
        let token = String::from_utf8_lossy(&credential.token);
        let grant = self.shared.tokens.verified.get(&self.access.keys, &token, self.clock.unix_s);
        let bearer = grant.map(|grant| Bearer::Good { grant, by_cookie });
        Presented { bearer, token: credential.token, by_cookie }
    }

    /// Verifies a token, which may take a signature.
    pub(crate) fn verify(&mut self, token: &str, by_cookie: bool, _: &Permit) -> Bearer {
        let now = (self.clock.now_ms, self.clock.unix_s);
        let verified = &self.shared.tokens.verified;
        if let Some(grant) = verified.get(&self.access.keys, token, self.clock.unix_s) {
            return Bearer::Good { grant, by_cookie };
        }
        self.load.budget.cost += self.access.keys.cost(token);
        self.stats.tokens_verified.add(1);
        match verified.verify(&self.access.keys, token, self.clock.unix_s) {
            Ok(grant) => Bearer::Good { grant, by_cookie },
            Err(refused) => {
                if matches!(refused, Refused::UnknownKey | Refused::KeyOutstanding) {
                    self.shared.tokens.refresh();
                }
                self.access.denials.bad(&self.access.keys, token, now);
                Bearer::Bad(refused)
            }
        }
    }

    /// Makes the exchange of a request. `None` stands for a request that is not whole, or not there
    /// any more.
    pub(crate) fn exchange<'a, 'r>(
        &'a mut self,
        role: Role,
        request: impl Into<Option<&'r Request<'a>>>,
        persistence: Persistence,
        ticket: Ticket,
        _: &Permit,
    ) -> Exchange<'a>
    where
        'a: 'r,
    {
        let mut shape = Shape::new(role, persistence);
        if let Some(request) = request.into() {
            shape.origin = shape.listener.listed_origin(request, &self.settings.cors);
            shape.head_only = request.method == Method::Head;
            shape.accept = request.accept;
        }
        let reply = Reply {
            out: &mut self.out,
            answers: &mut self.responses.answers,
            preamble: &self.responses.preambles[usize::from(shape.listener.role)],
            stats: &self.stats,
            cost: &mut self.load.budget.cost,
            shape,
        };
        Exchange {
            reply,
            shared: &self.shared,
            settings: &self.settings,
            clock: self.clock,
            requester: Requester { bearer: Bearer::Nobody, token: Cow::Borrowed(b""), ticket },
            access: &mut self.access,
            inbox: &self.inbox,
            resources: &mut self.resources,
            streams: &mut self.streams,
            rng: &mut self.rng,
            queue_age_ms: self.load.queue_age_ms,
            pressure: self.load.pressure,
        }
    }
}

/// The parts of a packed worker that are not its connections.
/// The same settings, with topics guarded by these lists too.
fn guarded(settings: &Settings, lists: &[AccessList]) -> Arc<Settings> {
    let mut settings = settings.clone();
    settings.access.topics.guard_also(lists);
    Arc::new(settings)
}

const COUNTERS: u8 = 1;
const FEEDS: u8 = 2;
const LINES: u8 = 3;

/// What sending costs a turn, beside the bytes.
const SEND_COST: usize = 256;

/// What it costs to find a token that was verified before.
const FOUND_COST: usize = 500;
