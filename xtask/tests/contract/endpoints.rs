//! The table of endpoints: paths, methods, parameters, answers and the codes of errors. The golden
//! file and OpenAPI are made of it.

use stentor_wire::error::ErrorCode;
use stentor_wire::error::ErrorCode::*;

/// A listener of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Public,
    Control,
    Monitor,
}

impl Listener {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Listener::Public => "public",
            Listener::Control => "control",
            Listener::Monitor => "monitor",
        }
    }
}

/// A path, and what can be done there.
pub(crate) struct Endpoint {
    pub(crate) path: &'static str,
    pub(crate) operations: Vec<Operation>,
}

impl Endpoint {
    /// Whether a listener tells of it. The public listener tells only of reads: whether it takes
    /// messages, too, depends on the rules of topics.
    pub(crate) fn is_told_of(&self, listener: Listener) -> bool {
        self.operations.iter().any(|operation| {
            let is_read = operation.methods.contains(&"GET");
            operation.listeners.contains(&listener) && (is_read || listener != Listener::Public)
        })
    }
}

/// The meaning of one or more methods at a path.
pub(crate) struct Operation {
    /// The end of the identifiers of the methods.
    pub(crate) name: &'static str,
    pub(crate) methods: &'static [&'static str],
    pub(crate) summary: &'static str,
    pub(crate) listeners: &'static [Listener],
    pub(crate) parameters: &'static [Parameter],
    /// The body of a request: its content types and the schema of each.
    pub(crate) body: &'static [(&'static str, &'static str)],
    /// The answers that are no errors.
    pub(crate) answers: &'static [Answer],
    /// The errors beside those of every request.
    errors: &'static [&'static [ErrorCode]],
}

impl Operation {
    /// All codes that an answer may have.
    pub(crate) fn codes(&self) -> Vec<ErrorCode> {
        let own = self.errors.iter().copied().flatten();
        let mut codes: Vec<ErrorCode> = ANY_REQUEST.iter().chain(own).copied().collect();
        codes.sort_by_key(|code| code.name());
        codes.dedup();
        codes
    }
}

/// A parameter of a request.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) schema: Schema,
    pub(crate) description: &'static str,
}

/// Where a parameter stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// The form of the value of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Schema {
    Text,
    /// Topics and patterns; the parameter may be repeated.
    Topics,
    Word(&'static [&'static str]),
    Number(u64, u64),
    /// A schema of the document.
    Named(&'static str),
}

/// An answer that is no error.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) description: &'static str,
    pub(crate) fields: &'static [&'static str],
    /// The content types and the schema of each; none: the answer has no body.
    pub(crate) content: &'static [(&'static str, &'static str)],
}

const READERS: &[Listener] = &[Listener::Public, Listener::Control];
const CONTROL: &[Listener] = &[Listener::Control];
const OPERATORS: &[Listener] = &[Listener::Control, Listener::Monitor];
const ALL: &[Listener] = &[Listener::Public, Listener::Control, Listener::Monitor];
const READ: &[&str] = &["GET", "HEAD"];

const fn parameter(
    name: &'static str,
    place: Place,
    schema: Schema,
    description: &'static str,
) -> Parameter {
    Parameter { name, place, schema, description }
}

const TOPIC: Parameter = parameter(
    "topic",
    Place::Path,
    Schema::Named("Topic"),
    "The name of the topic without its leading slash. It may have several segments.",
);
const TOPICS: Parameter = parameter(
    "topic",
    Place::Query,
    Schema::Topics,
    "A topic or a pattern, such as /scores/*; may be repeated.",
);
const SINCE: Parameter = parameter(
    "since",
    Place::Query,
    Schema::Named("Cursor"),
    "The cursor of the reader, or the id or the tag of a value; earliest; now.",
);
const MODE: Parameter = parameter(
    "mode",
    Place::Query,
    Schema::Word(&["all", "latest"]),
    "Which messages a reader that is behind gets: all, or the latest of each topic.",
);
const WAIT: Parameter = parameter(
    "wait",
    Place::Query,
    Schema::Number(0, 60),
    "How many seconds the request is held until there is something new; 60 at most.",
);
const LAST_EVENT_ID: Parameter = parameter(
    "Last-Event-ID",
    Place::Header,
    Schema::Named("Cursor"),
    "The cursor of a reader that connects again.",
);
const PREFER: Parameter =
    parameter("Prefer", Place::Header, Schema::Text, "wait=SECONDS, as the parameter wait.");
const IF_NONE_MATCH: Parameter = parameter(
    "If-None-Match",
    Place::Header,
    Schema::Text,
    "The tag of the value that the client has, or *.",
);
const IF_MATCH: Parameter = parameter(
    "If-Match",
    Place::Header,
    Schema::Text,
    "The tag of the value that is to be there, or *.",
);
const RANGE: Parameter =
    parameter("Range", Place::Header, Schema::Text, "The part of a file that is wanted.");
const EVENT: Parameter = parameter(
    "Stentor-Event",
    Place::Header,
    Schema::Named("EventName"),
    "The event name of the message.",
);
const CACHE_CONTROL: Parameter = parameter(
    "Cache-Control",
    Place::Header,
    Schema::Text,
    "The Cache-Control of answers with the value.",
);
const PREFIX: Parameter =
    parameter("prefix", Place::Query, Schema::Text, "What the names of the topics begin with.");
const NAMES: Parameter = parameter(
    "names",
    Place::Query,
    Schema::Text,
    "The rest of the names, with commas between them.",
);
const AFTER: Parameter =
    parameter("after", Place::Query, Schema::Text, "The member next of the page before.");
const LIMIT: Parameter =
    parameter("limit", Place::Query, Schema::Number(1, 1_000), "How many topics a page has.");

const AFTER_ID: Parameter =
    parameter("since", Place::Query, Schema::Named("Id"), "The last change that was read.");

/// Errors that any request may be answered with.
const ANY_REQUEST: &[ErrorCode] = &[
    RequestInvalid,
    TlsOnPlainPort,
    HeaderInvalid,
    HeaderRepeated,
    TargetInvalid,
    HostInvalid,
    FramingInvalid,
    ChunkInvalid,
    HeadTimeout,
    BodyTimeout,
    MessageTooLarge,
    RequestLineTooLong,
    ExpectationUnsupported,
    HostNotAllowed,
    AddressLimit,
    HeadTooLarge,
    MethodUnknown,
    TransferCoding,
    HttpVersionUnsupported,
    ServerDraining,
    MemoryPressure,
];

/// Errors of an endpoint that a listener or the server does not have.
const ABSENT: &[ErrorCode] = &[EndpointNotFound];

/// Errors of requests that a token can allow.
const ACCESS: &[ErrorCode] = &[
    TokenRequired,
    TokenMalformed,
    TokenTooLarge,
    TokenRejected,
    TokenClaimsInvalid,
    TokenExpMissing,
    TokenExpired,
    TokenNotYetValid,
    TokenAudienceInvalid,
    TokenIssuerInvalid,
    TokenInsufficient,
    OriginNotAllowed,
    IssuerUnavailable,
];

/// Errors of a path that can be no topic.
const NO_TOPIC: &[ErrorCode] = &[PathInvalid, TopicInvalid, TopicReserved];

/// Errors of queries of the server's own paths.
const QUERY: &[ErrorCode] = &[ParameterUnknown, ParameterInvalid, QueryInvalid];

/// Errors of streams and long-polls.
const STREAM: &[ErrorCode] = &[
    ParameterInvalid,
    QueryInvalid,
    CursorInvalid,
    TopicInvalid,
    TopicReserved,
    PatternInvalid,
    SubscriptionLimit,
    Http11Required,
    PatternsDisabled,
    SubscriptionsFull,
    WebsocketKeyInvalid,
    WebsocketVersion,
];

/// Errors of many values.
const MANY: &[ErrorCode] = &[TooManyNames, AnswerTooLarge, ParameterMissing];

/// Errors of changes.
const CHANGE: &[ErrorCode] = &[
    MethodNotAllowed,
    ListenerReadOnly,
    HttpsRequired,
    ConditionUnsupported,
    PreconditionFailed,
    NotLeader,
    StoreFailed,
    StoreOverloaded,
    StoreFull,
    BrokerUnavailable,
    BrokerOverloaded,
    BrokerLimit,
    OutcomeUnknown,
];

/// Errors of a server that has no values yet, or no good ones.
const NOT_READY: &[ErrorCode] = &[
    StoreLoading,
    FollowerLoading,
    ClusterLoading,
    ClusterRecovering,
    ClusterSnapshotNeeded,
    ClusterVersion,
    ClusterMismatch,
];

/// Errors of snapshots and feeds.
const COPY: &[ErrorCode] = &[
    ParameterUnknown,
    QueryInvalid,
    PatternInvalid,
    TopicInvalid,
    SubscriptionLimit,
    NodeBehind,
    FollowerLimit,
    Http11Required,
];

/// Errors of a feed that cannot continue from the cursor.
const GONE: &[ErrorCode] = &[EpochChanged, CursorAhead, HistoryTrimmed];

/// Codes that stand in lines, replies, close reasons and notices, and in no answer.
pub(crate) const IN_ITEMS: &[ErrorCode] =
    &[CommandInvalid, LineInvalid, LineTooLong, TokenRevoked, AccessChanged];

/// An answer of JSON.
macro_rules! json {
    ($status:literal $schema:literal $description:literal) => {
        Answer {
            status: $status,
            description: $description,
            fields: &[],
            content: &[("application/json", $schema)],
        }
    };
}

const NOT_MODIFIED: Answer = Answer {
    status: 304,
    description: "The client has it already.",
    fields: &["ETag"],
    content: &[],
};
const SWITCHING: Answer = Answer {
    status: 101,
    description: "A WebSocket begins.",
    fields: &["Sec-WebSocket-Accept", "Sec-WebSocket-Protocol"],
    content: &[],
};
const ELSEWHERE: Answer = Answer {
    status: 307,
    description: "The leader takes the change.",
    fields: &["Location"],
    content: &[],
};
const CURSOR_FIELD: &str = "Stentor-Cursor";

/// All endpoints.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let of_topic = [reading()].into_iter().chain(writing()).collect();
    let mut all = vec![Endpoint { path: "/{topic}", operations: of_topic }];
    all.extend(many());
    all.extend(changes());
    all.extend(state());
    all.extend(readiness());
    all.extend(between_servers());
    all
}

/// The reading of a topic.
fn reading() -> Operation {
    Operation {
        name: "Value",
        methods: READ,
        summary: "Reads the value of a topic, waits for the next one, or opens a stream",
        listeners: READERS,
        parameters: &[
            TOPIC,
            SINCE,
            MODE,
            WAIT,
            LAST_EVENT_ID,
            PREFER,
            IF_NONE_MATCH,
            IF_MATCH,
            RANGE,
        ],
        body: &[],
        answers: &[
            SWITCHING,
            Answer {
                status: 200,
                description: "The value, or a stream if Accept names text/event-stream.",
                fields: &["ETag", "Last-Modified", "Cache-Control", "Stentor-Event", CURSOR_FIELD],
                content: &[("*/*", "Bytes"), ("text/event-stream", "EventStream")],
            },
            Answer {
                status: 204,
                description: "The time is up, and the topic has no value.",
                fields: &[CURSOR_FIELD],
                content: &[],
            },
            Answer {
                status: 206,
                description: "Parts of a file.",
                fields: &["Content-Range"],
                content: &[("*/*", "Bytes")],
            },
            Answer {
                status: 301,
                description: "The path of a directory ends with a slash.",
                fields: &["Location"],
                content: &[],
            },
            NOT_MODIFIED,
        ],
        errors: &[
            ACCESS,
            NO_TOPIC,
            STREAM,
            MANY,
            NOT_READY,
            &[PatternInPath, TopicNotFound, FileNotFound, FileForbidden, FileUnavailable],
            &[PreconditionFailed, RangeNotSatisfiable, NameInvalid],
        ],
    }
}

/// The changes of a topic.
fn writing() -> [Operation; 2] {
    let publish = Operation {
        name: "Message",
        methods: &["PUT", "POST"],
        summary: "Publishes a message, which becomes the value of the topic",
        listeners: READERS,
        parameters: &[TOPIC, EVENT, CACHE_CONTROL, IF_MATCH, IF_NONE_MATCH],
        body: &[
            ("application/json", "Any"),
            ("text/plain", "Text"),
            ("application/octet-stream", "Bytes"),
        ],
        answers: &[
            json!(200 "Change" "The topic has a new value."),
            json!(201 "Change" "The topic has its first value."),
            ELSEWHERE,
        ],
        errors: &[
            ACCESS,
            NO_TOPIC,
            CHANGE,
            NOT_READY,
            &[ContentTypeInvalid, EventNameInvalid, EventNameReserved, CacheControlInvalid],
            &[PartialUnsupported, GzipInvalid, EncodingUnsupported, LengthRequired],
            &[TopicLimit, StoredBytesLimit, PublishPaused, BodyInvalid, RateLimited],
        ],
    };
    let delete = Operation {
        name: "Topic",
        methods: &["DELETE"],
        summary: "Deletes a topic",
        listeners: READERS,
        parameters: &[TOPIC, IF_MATCH, IF_NONE_MATCH],
        body: &[],
        answers: &[json!(200 "Change" "The topic is deleted."), ELSEWHERE],
        errors: &[ACCESS, NO_TOPIC, CHANGE, NOT_READY, &[TopicNotFound]],
    };
    [publish, delete]
}

/// The paths of many topics.
fn many() -> [Endpoint; 2] {
    let values = Operation {
        name: "Values",
        methods: READ,
        summary: "Reads many values",
        listeners: READERS,
        parameters: &[TOPICS, PREFIX, NAMES, IF_NONE_MATCH],
        body: &[],
        answers: &[
            Answer {
                status: 200,
                description: "The values by name; null where there is none.",
                fields: &["ETag"],
                content: &[("application/json", "Values")],
            },
            NOT_MODIFIED,
        ],
        errors: &[ACCESS, QUERY, MANY, NOT_READY],
    };
    let events = Operation {
        name: "Events",
        methods: READ,
        summary: "Reads what is new of many topics: as JSON, as a stream, or as a WebSocket",
        listeners: READERS,
        parameters: &[TOPICS, SINCE, MODE, WAIT, LAST_EVENT_ID, PREFER],
        body: &[],
        answers: &[
            SWITCHING,
            Answer {
                status: 200,
                description: "The new items, with the cursor of the reader.",
                fields: &[CURSOR_FIELD],
                content: &[("application/json", "Events"), ("text/event-stream", "EventStream")],
            },
        ],
        errors: &[ACCESS, QUERY, STREAM, NOT_READY, &[ParameterMissing]],
    };
    [("/-/values", values), ("/-/events", events)].map(endpoint)
}

fn endpoint((path, operation): (&'static str, Operation)) -> Endpoint {
    Endpoint { path, operations: vec![operation] }
}

/// The paths by which something is changed, beside topics.
fn changes() -> [Endpoint; 3] {
    let publish = Operation {
        name: "Messages",
        methods: &["POST"],
        summary: "Publishes a stream of messages and deletions, one JSON object a line",
        listeners: READERS,
        parameters: &[],
        body: &[("application/x-ndjson", "Lines"), ("application/jsonl", "Lines")],
        answers: &[json!(200 "BulkReport" "The outcomes of the lines.")],
        errors: &[
            ABSENT,
            ACCESS,
            CHANGE,
            NOT_READY,
            &[EncodingUnsupported, MediaTypeUnsupported, LengthRequired, PartialUnsupported],
        ],
    };
    let operation = |name, summary, code: &'static [&'static [ErrorCode]]| Operation {
        name,
        methods: &["POST"],
        summary,
        listeners: CONTROL,
        parameters: &[],
        body: &[],
        answers: &[json!(202 "Operation" "It has begun; /-/status says how it ends.")],
        errors: code,
    };
    [
        ("/-/publish", publish),
        (
            "/-/upgrade",
            operation(
                "Upgrade",
                "Begins a live upgrade",
                &[ABSENT, ACCESS, &[MethodNotAllowed, UpgradeInProgress, UpgradeUnsupported]],
            ),
        ),
        (
            "/-/reload",
            operation(
                "Reload",
                "Reads the configuration again",
                &[ABSENT, ACCESS, &[MethodNotAllowed, ReloadInProgress, UpgradeUnsupported]],
            ),
        ),
    ]
    .map(endpoint)
}

/// An operation that only shows something.
const fn shows(
    name: &'static str,
    summary: &'static str,
    listeners: &'static [Listener],
    answers: &'static [Answer],
    errors: &'static [&'static [ErrorCode]],
) -> Operation {
    Operation {
        name,
        methods: READ,
        summary,
        listeners,
        parameters: &[],
        body: &[],
        answers,
        errors,
    }
}

/// Errors of a server to which no readers should be sent.
const UNREADY: &[ErrorCode] =
    &[WorkerFailed, FollowerStale, ClusterStale, IssuerUnavailable, BrokerUnavailable];

/// Errors of a server to which no publishers should be sent.
const UNREADY_TO_PUBLISH: &[ErrorCode] =
    &[NotLeader, StoreFailed, StoreFull, StoreOverloaded, BrokerOverloaded, BrokerLimit];

macro_rules! text {
    ($media:literal $description:literal) => {
        Answer { status: 200, description: $description, fields: &[], content: &[($media, "Text")] }
    };
}

/// The paths that say how the server is.
fn state() -> [Endpoint; 6] {
    let info = &[
        Answer {
            status: 200,
            description: "The version, the features and the limits of the server.",
            fields: &["ETag"],
            content: &[("application/json", "Info")],
        },
        NOT_MODIFIED,
    ];
    let client = &[text!("text/javascript" "The module."), NOT_MODIFIED];
    let status = &[Answer {
        status: 200,
        description: "The figures; as text if Accept prefers that.",
        fields: &[],
        content: &[("application/json", "Status"), ("text/plain", "Text")],
    }];
    let topics = Operation {
        parameters: &[PREFIX, AFTER, LIMIT],
        ..shows(
            "Topics",
            "Lists the topics that have a value",
            CONTROL,
            &[json!(200 "Topics" "A page of topics, by name.")],
            &[ABSENT, ACCESS, QUERY],
        )
    };
    let all = [
        ("/-/info", shows("Info", "Says what the client talks to", ALL, info, &[])),
        ("/-/stentor.js", shows("Client", "The client for browsers", READERS, client, &[ABSENT])),
        ("/-/topics", topics),
        ("/-/status", shows("Status", "The figures of the server", OPERATORS, status, &[ABSENT])),
        (
            "/-/metrics",
            shows(
                "Metrics",
                "The metrics in the format of Prometheus",
                OPERATORS,
                &[text!("text/plain" "The metrics.")],
                &[ABSENT],
            ),
        ),
        (
            "/-/healthz",
            shows(
                "Health",
                "Says that the process answers",
                OPERATORS,
                &[text!("text/plain" "It does.")],
                &[ABSENT],
            ),
        ),
    ];
    all.map(endpoint)
}

/// The paths that say whether the server is ready.
fn readiness() -> [Endpoint; 2] {
    let ready = &[text!("text/plain" "It is ready.")];
    let readers = shows(
        "Ready",
        "Says whether readers should be sent here",
        OPERATORS,
        ready,
        &[ABSENT, NOT_READY, UNREADY],
    );
    let publishers = shows(
        "ReadyToPublish",
        "Says whether publishers should be sent here",
        OPERATORS,
        ready,
        &[ABSENT, NOT_READY, UNREADY, UNREADY_TO_PUBLISH],
    );
    [("/-/readyz", readers), ("/-/readyz/publish", publishers)].map(endpoint)
}

macro_rules! copied {
    ($media:literal) => {
        Answer {
            status: 200,
            description: "A stream without end.",
            fields: &[CURSOR_FIELD],
            content: &[($media, "Bytes")],
        }
    };
}

/// The paths for other servers, and the one to try proxies with.
fn between_servers() -> [Endpoint; 3] {
    let snapshot = Operation {
        parameters: &[TOPICS],
        ..shows(
            "Snapshot",
            "The values, for a follower; the format is no part of the stable contract",
            CONTROL,
            &[copied!("application/vnd.stentor.snapshot")],
            &[ABSENT, ACCESS, NOT_READY, COPY],
        )
    };
    let feed = Operation {
        parameters: &[TOPICS, AFTER_ID],
        ..shows(
            "Feed",
            "The changes, for a follower; the format is no part of the stable contract",
            CONTROL,
            &[copied!("application/vnd.stentor.feed")],
            &[ABSENT, ACCESS, NOT_READY, COPY, &[CursorInvalid], GONE],
        )
    };
    let echo = Operation {
        methods: &["GET"],
        ..shows(
            "Echo",
            "A WebSocket that is sent back what it sends",
            CONTROL,
            &[SWITCHING],
            &[ABSENT, &[WebsocketRequired, WebsocketKeyInvalid, WebsocketVersion]],
        )
    };
    [("/-/snapshot", snapshot), ("/-/feed", feed), ("/-/echo", echo)].map(endpoint)
}
