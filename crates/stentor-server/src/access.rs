//! What a request may touch: the listeners, what each of them grants, and every decision that
//! follows from it.
//!
//! A connection has the number of the listener it came in by. What that means is said here and
//! nowhere else, so that a new listener is a line of the table, and who may do what is read in one
//! place.
//!
//! What a listener grants to nobody, a token may: to read what is private, and to publish. Which
//! topics that concerns, and what a token allows, `stentor-access` says; what
//! the readers of streams were let in by, `access/passes.rs`; which names files have beside the
//! path that is asked for, `access/names.rs`. No answer here depends on whether a topic exists.

pub(crate) mod names;
pub(crate) mod page;
pub(crate) mod passes;
pub(crate) mod sight;

use crate::access::page::{PageOrigin, split_port};
use crate::listeners::{Listener, listener};
use crate::paths::EVENTS;
use crate::paths::{FEED, SNAPSHOT};
use std::net::IpAddr;
use stentor_access::{Coverage, Grant, Keys, PatternsRef, Refused, claims_of};
use stentor_config::{Cors, Settings};
use stentor_hub::Filter;
use stentor_io::{LAYERED, Role, listener_of};
use stentor_wire::credentials::{Credential, Place};
use stentor_wire::error::Rejection;
use stentor_wire::http1::{Method, Request};
use stentor_wire::notice;
use stentor_wire::target::{self, ipv6_of};
use stentor_wire::{packed, rejections};

/// Something that not everybody may do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act<'a> {
    /// To ask for anything, over TCP.
    Ask(&'a Request<'a>),
    /// To publish or delete, where that can be done at all.
    Publish(&'a Request<'a>),
    /// To do so with this topic.
    PublishTo(&'a str),
    /// To read the value of this topic.
    See(&'a str),
    /// To be sent what is there by this name, or to be told of it.
    Fetch(&'a str),
    /// To write to the guestbook, where there is one.
    Sign(&'a Request<'a>),
    /// To read all of these as a stream.
    Read(&'a [Filter]),
    /// To be sent all that these match, and with none all that there is, as a follower is.
    Copy(&'a [Filter]),
    /// To have the server upgraded or reloaded, where it is operated.
    Operate(&'a Request<'a>),
    /// To open a WebSocket, from a page if the request names its origin.
    Connect(&'a Request<'a>),
}

/// What is known of whoever asks, beside the listener: the token that came with the request.
#[derive(Clone, Debug, Default)]
pub(crate) enum Bearer {
    /// There is none, or none is needed for what is asked.
    #[default]
    Nobody,
    /// It is not good.
    Bad(Refused),
    /// It is.
    Good {
        grant: Grant,
        /// It came as a cookie, which browsers send on behalf of any page.
        by_cookie: bool,
    },
    /// It was good for the topic when the request came, which is answered only now. What it says
    /// of other names is not known any more.
    Judged,
}

/// By what right something is published: kept while it comes in, and asked for again when it is
/// complete. Meanwhile tokens end, keys are taken away, and rules change.
#[derive(Clone, Debug, Default)]
pub(crate) enum Author {
    /// Whoever comes in where that takes no token.
    #[default]
    Anyone,
    /// Who has this token; the page that sent it, if one did; and the token's claims, if it has
    /// any, since they say who holds it.
    Holder(Grant, Option<Box<[u8]>>, Option<Box<[u8]>>),
    /// Who writes to the guestbook.
    Guest,
}

packed!(enum Author { 0 => Anyone, 1 => Holder(grant, origin, claims), 2 => Guest });

/// Why something is refused: the answer, and what a client is told to do about it.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    pub(crate) rejection: Rejection,
    pub(crate) why: Why,
}

/// Kinds of refusals, to count and to answer them by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// Nobody may do that, here or like this.
    Policy,
    /// A token is needed, and none came.
    NoToken,
    /// The token is not good.
    BadToken(Refused),
    /// The token is good, and does not allow it.
    NotCovered,
}

/// What of a subscription may be seen, and by what right.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    /// The token that it takes; `None` if it takes none.
    pub(crate) grant: Option<Grant>,
    /// Of these nothing may be seen.
    pub(crate) none: Vec<Filter>,
    /// Of these something may not be seen.
    pub(crate) part: Vec<Filter>,
}

/// Somebody who asks: where they came in, and what they brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visitor<'a> {
    pub(crate) listener: &'static Listener,
    /// The request came by TLS.
    pub(crate) is_secured: bool,
    pub(crate) settings: &'a Settings,
    pub(crate) bearer: &'a Bearer,
}

impl<'a> Visitor<'a> {
    /// A visitor whose connection has this role. The role says whether the connection speaks TLS.
    pub(crate) fn new(role: Role, settings: &'a Settings, bearer: &'a Bearer) -> Visitor<'a> {
        let listener = listener(listener_of(role));
        Visitor { listener, is_secured: role & LAYERED != 0, settings, bearer }
    }

    /// Whether they may do that.
    ///
    /// # Errors
    /// The answer to one who may not.
    pub(crate) fn may(&self, act: Act<'_>) -> Result<(), Denied> {
        let Visitor { listener, settings, .. } = *self;
        let rules = &settings.access.topics;
        match act {
            Act::Ask(request) if listener.checks_host && !is_meant(settings, request) => {
                Err(MISDIRECTED.into())
            }
            Act::Publish(request) => self.may_publish(request),
            Act::Operate(request) => {
                self.may_publish(request)?;
                let all = Filter::any();
                let may = |grant: &Grant| grant.scope.publish().coverage(&all) == Coverage::Whole;
                match self.grant() {
                    Some(grant) if !may(grant) => Err(NOT_FOR_OPERATING.denied(Why::NotCovered)),
                    _ => Ok(()),
                }
            }
            Act::Copy(filters) if self.asks_for_token() => match self.bearer {
                Bearer::Good { .. } if covers_copy(self.allowed(), filters) => Ok(()),
                Bearer::Good { .. } => Err(NOT_FOR_FOLLOWING.denied(Why::NotCovered)),
                bearer => bearer.must_be_good(),
            },
            Act::PublishTo(topic) => {
                let grant = match self.bearer {
                    Bearer::Good { grant, .. } => grant,
                    Bearer::Nobody if self.is_trusted() => return Ok(()),
                    bearer => return bearer.must_be_good(),
                };
                // On the control listener what a token says is enough.
                let by_rule = listener.publishes || rules.takes_tokens_for(topic);
                match (grant.scope.may_publish(topic), by_rule) {
                    (true, true) => Ok(()),
                    (true, false) => Err(NOT_BY_RULE.denied(Why::NotCovered)),
                    (false, _) => Err(NOT_FOR_PUBLISHING.denied(Why::NotCovered)),
                }
            }
            Act::See(topic) if self.asks_for_token() && rules.is_private(topic) => {
                self.may_read(|allowed| allowed.matches(topic))
            }
            Act::Fetch(name) if self.asks_for_token() && names::is_private(settings, name) => {
                match self.bearer {
                    // What was judged was a value. Since it is gone a file may have its name.
                    // mutation: held-request
                    Bearer::Judged => Err(NO_TOKEN.denied(Why::NoToken)),
                    _ => self.may_read(|allowed| allowed.matches(name)),
                }
            }
            // A browser lets no other page say so. A name that can be rebound is not enough.
            // mutation: guestbook-page
            Act::Sign(request)
                if self.page(request) != PageOrigin::Own || !is_meant(settings, request) =>
            {
                Err(NOT_OWN_PAGE.into())
            }
            Act::Read(filters)
                if !listener.operates
                    && !settings.streams.public_patterns
                    && filters.iter().any(|filter| matches!(filter, Filter::Pattern(_))) =>
            {
                Err(NO_PATTERNS.into())
            }
            Act::Connect(request) if !self.may_connect(request) => Err(BAD_ORIGIN.into()),
            Act::Ask(_) | Act::Sign(_) | Act::Read(_) | Act::Connect(_) => Ok(()),
            Act::See(_) | Act::Fetch(_) | Act::Copy(_) => Ok(()),
        }
    }

    /// The page that made a browser send the request.
    pub(crate) fn page(&self, request: &Request<'_>) -> PageOrigin {
        PageOrigin::of(request, &self.settings.cors, self.is_secured)
    }

    /// Whether a WebSocket may be opened. A program names no page.
    fn may_connect(&self, request: &Request<'_>) -> bool {
        let has_cors = self.listener.has_cors;
        match self.page(request) {
            PageOrigin::Unnamed | PageOrigin::Own => true,
            PageOrigin::Listed => has_cors,
            PageOrigin::Foreign | PageOrigin::ForeignUnnamed => {
                has_cors && self.settings.cors.allows_any()
            }
        }
    }

    /// Whether an answer about this topic is meant for whoever asks, and for nobody else.
    pub(crate) fn is_private(&self, topic: &str) -> bool {
        self.settings.access.topics.is_private(topic)
    }

    /// What of these may be seen. Those of which nothing may be are taken out. What it takes to say
    /// so is added to `cost`.
    ///
    /// # Errors
    /// The answer to one who may see nothing.
    pub(crate) fn sight(
        &self,
        filters: &mut Vec<Filter>,
        cost: &mut usize,
    ) -> Result<Sight, Denied> {
        let rules = &self.settings.access.topics;
        let mut sight = Sight::default();
        if !rules.has_private() || !self.asks_for_token() || filters.is_empty() {
            return Ok(sight);
        }
        let allowed = self.allowed();
        let (mut by_anyone, mut by_holder) = (rules.compare(None), rules.compare(allowed));
        let mut needs = false;
        filters.retain(|filter| {
            let open = by_anyone.coverage(filter);
            let coverage = match allowed {
                Some(_) if open != Coverage::Whole => by_holder.coverage(filter),
                _ => open,
            };
            // Of two parts the one with a token may be the larger.
            needs |= open != Coverage::Whole && by_holder.allows_some(filter);
            match coverage {
                Coverage::Whole => {}
                Coverage::Part => sight.part.push(filter.clone()),
                Coverage::Nothing => sight.none.push(filter.clone()),
            }
            coverage != Coverage::Nothing
        });
        *cost += by_anyone.cost() + by_holder.cost();
        if filters.is_empty() || matches!(self.bearer, Bearer::Bad(_)) && sight.misses() {
            // Whoever brings a token that is not good is to hear so, even if something is open.
            self.may_read(|_| false)?;
        }
        sight.grant = self.grant().filter(|_| needs).cloned();
        Ok(sight)
    }

    /// Whether what is private asks whoever came in here for a token.
    pub(crate) fn asks_for_token(&self) -> bool {
        !self.listener.reads_private || self.settings.access.control_token
    }

    /// Whether whoever came in here publishes without a token.
    fn is_trusted(&self) -> bool {
        self.listener.publishes && !self.settings.access.control_token
    }

    /// The token that came with the request, if it is good.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match self.bearer {
            Bearer::Good { grant, .. } => Some(grant),
            Bearer::Nobody | Bearer::Bad(_) | Bearer::Judged => None,
        }
    }

    /// What it allows to read.
    fn allowed(&self) -> Option<PatternsRef<'_>> {
        self.grant().map(|grant| grant.scope.read())
    }

    /// Whether a token allows to read something that needs one.
    fn may_read(&self, is_covered: impl Fn(PatternsRef<'_>) -> bool) -> Result<(), Denied> {
        match self.bearer {
            Bearer::Judged => Ok(()),
            Bearer::Good { grant, .. } if is_covered(grant.scope.read()) => Ok(()),
            Bearer::Good { .. } => Err(NOT_FOR_READING.denied(Why::NotCovered)),
            bearer => bearer.must_be_good(),
        }
    }

    /// Whether somebody may publish at all. Pages must not be able to publish just because the
    /// browser that shows them runs where the listener can be reached, or keeps a cookie for it.
    fn may_publish(&self, request: &Request<'_>) -> Result<(), Denied> {
        let page = self.page(request);
        match page {
            // With a token of its own such a page is as good as any program.
            PageOrigin::Listed if !matches!(self.bearer, Bearer::Nobody) => {}
            PageOrigin::Listed | PageOrigin::Own | PageOrigin::Foreign => return Err(PAGE.into()),
            PageOrigin::ForeignUnnamed => return Err(FOREIGN_PAGE.into()),
            PageOrigin::Unnamed if self.is_trusted() => return Ok(()),
            PageOrigin::Unnamed => {}
        }
        match self.bearer {
            Bearer::Good { by_cookie: true, .. } if page != PageOrigin::Listed => {
                Err(COOKIE_ALONE.into())
            }
            Bearer::Good { grant, .. } if grant.scope.publish().is_empty() => {
                Err(NOT_FOR_PUBLISHING.denied(Why::NotCovered))
            }
            Bearer::Good { .. } => Ok(()),
            bearer => bearer.must_be_good(),
        }
    }
}

impl Author {
    /// Who asks with that, and the token that says so.
    pub(crate) fn of(visitor: Visitor<'_>, request: &Request<'_>, token: &[u8]) -> Author {
        let Some(grant) = visitor.grant() else { return Author::Anyone };
        let (origin, claims) = (request.origin, claims_of(token));
        // mutation: body-claims
        Author::Holder(grant.clone(), origin.map(Box::from), claims.map(Box::from))
    }

    /// Who that is, for the log.
    pub(crate) fn holder(&self, keys: &Keys) -> Option<String> {
        match self {
            Author::Holder(grant, _, claims) => {
                keys.holder_by(grant.scope.key(), claims.as_deref())
            }
            Author::Anyone | Author::Guest => None,
        }
    }

    /// Whether they may publish to this topic now, in the place of the visitor.
    ///
    /// # Errors
    /// The answer to one who may not.
    pub(crate) fn may_publish_to(
        &self,
        topic: &str,
        visitor: Visitor<'_>,
        (keys, unix_s): (&Keys, u64),
    ) -> Result<(), Denied> {
        let bearer = match self {
            Author::Guest => return Ok(()),
            Author::Anyone => Bearer::Nobody,
            // mutation: page-off-the-list
            Author::Holder(_, Some(page), _) if !visitor.settings.cors.lists(page) => {
                return Err(PAGE.into());
            }
            Author::Holder(grant, ..) => {
                match keys.check(&grant.scope, grant.expires_unix_s, unix_s) {
                    Ok(()) => Bearer::Good { grant: grant.clone(), by_cookie: false },
                    Err(refused) => Bearer::Bad(refused),
                }
            }
        };
        Visitor { bearer: &bearer, ..visitor }.may(Act::PublishTo(topic))
    }
}

impl Bearer {
    /// That a token came, and that it is good.
    fn must_be_good(&self) -> Result<(), Denied> {
        match self {
            Bearer::Nobody => Err(NO_TOKEN.denied(Why::NoToken)),
            Bearer::Bad(refused) => Err(Denied::bad_token(*refused)),
            Bearer::Good { .. } | Bearer::Judged => Ok(()),
        }
    }
}

impl Denied {
    /// The answer to a token that is not good.
    pub(crate) fn bad_token(refused: Refused) -> Denied {
        Denied { rejection: refused.rejection(), why: Why::BadToken(refused) }
    }

    /// Whether the same request may be allowed in a while.
    pub(crate) fn may_pass_later(&self) -> bool {
        // mutation: outstanding-for-good
        matches!(self.why, Why::BadToken(Refused::KeyOutstanding))
    }

    /// The answer to one who may not read, with a good token or without any.
    pub(crate) fn unread(has_token: bool) -> Denied {
        match has_token {
            true => NOT_FOR_READING.denied(Why::NotCovered),
            false => NO_TOKEN.denied(Why::NoToken),
        }
    }
}

impl Sight {
    /// The notice of what the client asked for and may not see.
    pub(crate) fn notice(&self) -> String {
        let texts = |filters: &[Filter]| filters.iter().map(Filter::to_string).collect::<Vec<_>>();
        notice::access(&texts(&self.none), &texts(&self.part))
    }

    /// Whether something that was asked for may not be seen.
    pub(crate) fn misses(&self) -> bool {
        !self.none.is_empty() || !self.part.is_empty()
    }
}

/// Whether it matters for a request what token it brings: looking at one costs something. That it
/// may matter is enough.
pub(crate) fn needs_token(listener: &Listener, settings: &Settings, request: &Request<'_>) -> bool {
    let access = &settings.access;
    let (path, _) = target::split(request.target);
    match request.method {
        Method::Put | Method::Post | Method::Delete if listener.publishes => {
            access.control_token || request.origin.is_some()
        }
        Method::Put | Method::Post | Method::Delete => {
            listener.reads && access.topics.takes_tokens()
        }
        Method::Get | Method::Head => {
            let asks = listener.reads && (!listener.reads_private || access.control_token);
            let is_of_many =
                || path == EVENTS || path == b"/-/values" || is_lookup(settings, request);
            let is_private =
                || target::decode(path).is_ok_and(|path| names::may_send_private(settings, &path));
            let is_copy = || listener.operates && matches!(path, FEED | SNAPSHOT);
            asks && (access.topics.has_private() && is_of_many() || is_copy() || is_private())
        }
        _ => false,
    }
}

/// Whether who is allowed these may be sent a copy of all that the filters match.
pub(crate) fn covers_copy(allowed: Option<PatternsRef<'_>>, filters: &[Filter]) -> bool {
    let Some(allowed) = allowed else { return false };
    let is_covered = |filter: &Filter| allowed.coverage(filter) == Coverage::Whole;
    match filters {
        [] => is_covered(&Filter::any()),
        some => some.iter().all(is_covered),
    }
}

/// Whether a request is one for a list of values, of a configured route.
fn is_lookup(settings: &Settings, request: &Request<'_>) -> bool {
    settings.lookups.iter().any(|lookup| request.target.starts_with(lookup.path.as_bytes()))
}

impl Visitor<'_> {
    /// Whether a credential counts. Browsers send a cookie on behalf of any page, so a cookie
    /// counts only for pages of this server and of listed origins. A page may read a list as a
    /// script. For a script the browser names no origin, and without TLS no site, so a list needs
    /// one of the two.
    pub(crate) fn counts(&self, credential: &Credential<'_>, request: &Request<'_>) -> bool {
        credential.place != Place::Cookie
            || match self.page(request) {
                PageOrigin::Own | PageOrigin::Listed => true,
                // mutation: list-as-script
                PageOrigin::Unnamed => {
                    request.fetch_site.is_some() || !is_lookup(self.settings, request)
                }
                PageOrigin::Foreign | PageOrigin::ForeignUnnamed => false,
            }
    }
}

impl From<Rejection> for Denied {
    fn from(rejection: Rejection) -> Denied {
        Denied { rejection, why: Why::Policy }
    }
}

/// A rejection, and why.
trait Because {
    fn denied(self, why: Why) -> Denied;
}

impl Because for Rejection {
    fn denied(self, why: Why) -> Denied {
        Denied { rejection: self, why }
    }
}

impl Listener {
    /// The origin that a request names, if the answer is to say that its pages may read it.
    pub(crate) fn listed_origin<'a>(&self, request: &Request<'a>, cors: &Cors) -> Option<&'a [u8]> {
        request.origin.filter(|origin| self.has_cors && cors.lists(origin))
    }
}

/// Whether a request is meant for a listener of this host. A page may be under a name that now
/// leads here (DNS rebinding): a browser takes the listener for the page's own server then, and
/// names it so. An address, and a name that always is this host, cannot be rebound.
fn is_meant(settings: &Settings, request: &Request<'_>) -> bool {
    // Only in HTTP/1.0 may it be missing, and no browser speaks that; nor does one leave it empty.
    let Some(host) = request.host else { return true };
    let Ok(name) = std::str::from_utf8(split_port(host).0) else { return false };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_name = |known: &str| name.eq_ignore_ascii_case(known);
    host.is_empty()
        || literal.is_some_and(|literal| ipv6_of(literal).is_some())
        || name.parse::<IpAddr>().is_ok()
        || is_name("localhost")
        || settings.control_hosts.iter().any(|known| is_name(known))
}

rejections! {
    /// The answer to a request that is not meant for this host (RFC 9110 section 15.5.20).
    MISDIRECTED: HostNotAllowed =
        "This listener does not go by this name: ask it by its address or as localhost, or list \
         the name in control_hosts.";
    PAGE: OriginNotAllowed = "Web pages cannot publish: a request with an Origin is refused here.";
    FOREIGN_PAGE: OriginNotAllowed =
        "Web pages cannot publish: what a page of another site makes a browser send is refused \
         here (Sec-Fetch-Site).";
    NOT_OWN_PAGE: OriginNotAllowed =
        "Only a page of this server writes here, and only under an address or as localhost.";
    /// Whoever reads by pattern is told the names of all topics that match.
    NO_PATTERNS: PatternsDisabled =
        "Patterns may not be read here (streams.public_patterns): name the topics.";
    BAD_ORIGIN: OriginNotAllowed = "Pages of this origin may not read here (cors.origins).";
    /// What is asked for is private. The same is said of topics that do not exist.
    NO_TOKEN: TokenRequired =
        "This needs a token: send it as Authorization: Bearer, as ?access_token= or as a cookie.";
    NOT_FOR_READING: TokenInsufficient = "The token does not allow to read this.";
    NOT_FOR_FOLLOWING: TokenInsufficient =
        "The token does not allow to read all of this: without ?topic= that is every topic.";
    NOT_FOR_PUBLISHING: TokenInsufficient = "The token does not allow to publish here.";
    NOT_BY_RULE: TokenInsufficient =
        "The token allows it, and this listener does not: the rule of the topic would have to say \
         publish = \"token\".";
    /// Whoever may have it started anew may have it run another program.
    NOT_FOR_OPERATING: TokenInsufficient =
        "The token does not allow to upgrade or reload: that takes one that publishes everything.";
    COOKIE_ALONE: OriginNotAllowed =
        "A cookie publishes only for a page of a listed origin: send the token as Authorization: \
         Bearer.";
}
