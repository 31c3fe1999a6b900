//! How streams begin, one file for each way: from a request to a head that was answered and an
//! [`Opening`](crate::stream::Opening).

pub(crate) mod long_poll;
pub(crate) mod sse;
pub(crate) mod websocket;

use crate::access::{Act, Denied, Sight};
use crate::exchange::{Exchange, NoStream};
use crate::paths::EVENTS;
use crate::stream::feeds::Room;
use crate::stream::format::Transport;
use crate::stream::{Opening, ReaderTraits, Start};
use stentor_hub::{Filter, Mode};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::events::{EventsQuery, parse_query, parse_topic_query};
use stentor_wire::http1::Request;
use stentor_wire::negotiate::{accepts_events, prefer_wait_s};
use stentor_wire::rejections;
use stentor_wire::target::TopicName;

/// What a request wants to read, whatever the transport.
pub(crate) struct Wanted {
    pub(crate) filters: Vec<Filter>,
    /// Messages come with the names of their topics.
    pub(crate) is_enveloped: bool,
    pub(crate) start: Start,
    pub(crate) mode: Mode,
    /// How long a long-poll may be held: as the query says, or else Prefer.
    pub(crate) wait_s: Option<u64>,
    /// What of it may be seen. What may not at all is not among the filters.
    pub(crate) sight: Sight,
}

impl Wanted {
    /// Reads path, query and cursor.
    ///
    /// # Errors
    /// Why there is nothing to be read.
    pub(crate) fn of(
        x: &mut Exchange<'_>,
        request: &Request<'_>,
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Result<Wanted, NoStream> {
        let wanted = Wanted::read(x, request, path, query.unwrap_or_default());
        let mut wanted = wanted.map_err(NoStream::Rejected)?;
        let denied = |denied: Denied| NoStream::Denied(denied);
        x.may(Act::Read(&wanted.filters)).map_err(denied)?;
        let mut cost = 0;
        let sight = x.visitor().sight(&mut wanted.filters, &mut cost);
        *x.reply.cost += cost;
        wanted.sight = sight.map_err(denied)?;
        // What is sent depends on who asks, be it only in part.
        x.reply.shape.is_private |= wanted.sight.grant.is_some() || wanted.sight.misses();
        let (feeds, room) = (&x.streams.feeds, Room::of(x.settings));
        if !feeds.has_room_for(&x.shared.hub, wanted.filters.iter(), room) {
            return Err(NoStream::NoRoom);
        }
        Ok(wanted)
    }

    /// The same, where nothing else can be asked for later: nothing is not enough.
    pub(crate) fn of_some(
        x: &mut Exchange<'_>,
        request: &Request<'_>,
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Result<Wanted, NoStream> {
        let wanted = Wanted::of(x, request, path, query)?;
        if wanted.filters.is_empty() {
            return Err(NoStream::Rejected(NO_TOPICS));
        }
        Ok(wanted)
    }

    /// The same while memory is as short as it is. For streams: a poll would be told of a gap
    /// instead of what it asks for, ask again, and never get any further. What it is brought in one
    /// answer is bounded.
    pub(crate) fn under_pressure(self, x: &Exchange<'_>) -> Wanted {
        Wanted { start: self.start.under(x.pressure, &x.shared.hub), ..self }
    }

    /// What is read once the answer has begun, or waits.
    pub(crate) fn opening(self, transport: Transport) -> Box<Opening> {
        let Wanted { filters, is_enveloped, start, mode, sight, .. } = self;
        let traits = ReaderTraits::new(transport, mode, is_enveloped);
        let access = sight.misses().then(|| sight.notice().into());
        let Sight { grant, part, .. } = sight;
        Box::new(Opening { traits, cursor: 0, filters, start, grant, part, access })
    }

    fn read(
        x: &Exchange<'_>,
        request: &Request<'_>,
        path: &[u8],
        query: &[u8],
    ) -> Result<Wanted, Rejection> {
        let is_enveloped = path == EVENTS;
        let (query, filters) = if is_enveloped {
            let mut query = parse_query(query, x.settings.streams.topics_max)?;
            let topics = std::mem::take(&mut query.topics);
            let filters = topics.iter().map(|topic| Filter::parse(topic));
            (query, filters.collect::<Result<_, _>>()?)
        } else {
            let topic = TopicName::from_path(path)?;
            let Ok(topic @ Filter::Topic(_)) = Filter::parse(&topic) else {
                return Err(PATTERN_AS_PATH);
            };
            (parse_topic_query(query)?, vec![topic])
        };
        let EventsQuery { since, latest, wait_s, .. } = query;
        let header = request.last_event_id.filter(|id| !id.is_empty());
        let start = Start::parse(&x.shared.hub, header.or(since.as_deref().map(str::as_bytes)));
        // A stream says so by a gap: on an error an EventSource would not come back.
        let is_stream = accepts_events(request.accept) || request.upgrade.is_some();
        if start.is_invalid() && !is_stream {
            return Err(BAD_CURSOR);
        }
        let mode = match latest {
            None => Mode::ByRule,
            Some(true) => Mode::Latest,
            Some(false) => Mode::All,
        };
        let wait_s = wait_s.or_else(|| request.prefer.and_then(prefer_wait_s));
        // A reader that names its cursor asks for what is newer, and not for the value it has.
        let wait_s = wait_s.or(since.is_some().then_some(0));
        let sight = Sight::default();
        Ok(Wanted { filters, is_enveloped, start, mode, wait_s, sight })
    }
}

rejections! {
    BAD_CURSOR: CursorInvalid =
        "The cursor must be an id, an ETag of a value, earliest or now.";
    NO_TOPICS: ParameterMissing = "Say which topics: /-/events?topic=/a&topic=/quotes/*";
    /// Whoever asks for this means a pattern, and would wait for a topic that has its name.
    PATTERN_AS_PATH: PatternInPath =
        "A pattern is no path of its own: read it as a topic of /-/events?topic=/a&topic=/quotes/*";
}

/// As many different topics are read as may exist, or as there is memory for.
pub(crate) const TOO_MANY_TOPICS: Rejection = Rejection::new(
    ErrorCode::SubscriptionsFull,
    "More different topics are read here than there is room for (limits.topics_max, \
     limits.readers_bytes_max).",
);
