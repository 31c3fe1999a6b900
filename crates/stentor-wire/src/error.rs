//! Error codes, and the rejections that carry them.
//!
//! The table below is the catalogue: `docs/http/errors.md` has a row for each code. A code and its
//! status are stable. The sentence that explains one case, [`Rejection::detail`], is for people and
//! may change.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::pack::{Packed, Packer, UNKNOWN, Unpacked, Unpacker, format};
use crate::status::Status;

macro_rules! error_codes {
    ($($status:ident { $($variant:ident $name:literal $title:literal)* })*) => {
        /// What went wrong, for programs. Each code has one status.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorCode {
            $($(#[doc = $title] $variant,)*)*
        }

        impl ErrorCode {
            /// All of them, by status.
            pub const ALL: &[ErrorCode] = &[$($(ErrorCode::$variant,)*)*];

            /// The status of a response with this code.
            #[must_use]
            pub const fn status(self) -> Status {
                match self {
                    $($(ErrorCode::$variant)|* => Status::$status,)*
                }
            }

            /// The code as clients read it: lower-case words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(ErrorCode::$variant => $name,)*)*
                }
            }

            /// One sentence that holds for every case of this code.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $($(ErrorCode::$variant => $title,)*)*
                }
            }
        }
    };
}

error_codes! {
    BAD_REQUEST {
        RequestInvalid "request_invalid" "The request is not valid HTTP."
        TlsOnPlainPort "tls_on_plain_port" "This port speaks plain HTTP, not TLS."
        HeaderInvalid "header_invalid" "A header field is malformed."
        HeaderRepeated "header_repeated" "A header field that may occur once was repeated."
        TargetInvalid "target_invalid" "The request target is malformed."
        HostInvalid "host_invalid" "The Host field is missing or malformed."
        FramingInvalid "framing_invalid" "The length of the body is ambiguous."
        ChunkInvalid "chunk_invalid" "The chunked body is malformed."
        Http11Required "http_1_1_required" "This resource needs HTTP/1.1."
        PathInvalid "path_invalid" "The path is malformed."
        TopicInvalid "topic_invalid" "The topic name is not valid."
        TopicReserved "topic_reserved" "The topic is under a reserved prefix."
        PatternInvalid "pattern_invalid" "The pattern is not valid."
        PatternInPath "pattern_in_path" "A pattern cannot be the path of a stream."
        ParameterMissing "parameter_missing" "A required parameter is missing."
        ParameterUnknown "parameter_unknown" "A parameter is not known."
        ParameterInvalid "parameter_invalid" "A parameter has an invalid value."
        QueryInvalid "query_invalid" "The query or a name is not valid percent-encoded UTF-8."
        CursorInvalid "cursor_invalid" "The cursor is malformed."
        NameInvalid "name_invalid" "A name may not stand in a line."
        TooManyNames "too_many_names" "Too many names were requested."
        SubscriptionLimit "subscription_limit" "One stream named too many topics."
        AnswerTooLarge "answer_too_large" "The answer would be too large."
        WebsocketKeyInvalid "websocket_key_invalid" "Sec-WebSocket-Key is missing or malformed."
        CommandInvalid "command_invalid" "The command is not valid."
        ContentTypeInvalid "content_type_invalid" "The content type is not valid."
        EventNameInvalid "event_name_invalid" "The event name is not valid."
        EventNameReserved "event_name_reserved" "The event name is reserved."
        CacheControlInvalid "cache_control_invalid" "The Cache-Control value is not valid."
        PartialUnsupported "partial_unsupported" "A part of a value cannot be published."
        GzipInvalid "gzip_invalid" "The gzip body is damaged."
        ConditionUnsupported "condition_unsupported" "The condition is not supported."
        LineInvalid "line_invalid" "The line is not a valid message."
        LineTooLong "line_too_long" "The line is too long."
        BodyInvalid "body_invalid" "The body has the wrong length."
    }
    UNAUTHORIZED {
        TokenRequired "token_required" "A token is required."
        TokenMalformed "token_malformed" "The token cannot be parsed."
        TokenTooLarge "token_too_large" "The token is too large."
        TokenRejected "token_rejected" "The token is not accepted."
        TokenClaimsInvalid "token_claims_invalid" "The claims of the token are not valid."
        TokenExpMissing "token_exp_missing" "The token has no expiry."
        TokenExpired "token_expired" "The token has expired."
        TokenNotYetValid "token_not_yet_valid" "The token is not valid yet."
        TokenAudienceInvalid "token_audience_invalid" "The token is for another audience."
        TokenIssuerInvalid "token_issuer_invalid" "The token is from an issuer that is not trusted."
        TokenRevoked "token_revoked" "The token was revoked."
        AccessChanged "access_changed" "The access rules changed."
    }
    FORBIDDEN {
        TokenInsufficient "token_insufficient" "The token does not allow this."
        OriginNotAllowed "origin_not_allowed" "Pages of this origin may not do this."
        PatternsDisabled "patterns_disabled" "Patterns may not be read here."
        FileForbidden "file_forbidden" "The server may not read the file."
    }
    NOT_FOUND {
        EndpointNotFound "endpoint_not_found" "There is no such endpoint on this listener."
        TopicNotFound "topic_not_found" "The topic has no value."
        FileNotFound "file_not_found" "There is neither a value nor a file."
    }
    METHOD_NOT_ALLOWED {
        MethodNotAllowed "method_not_allowed" "The method is not allowed here."
        ListenerReadOnly "listener_read_only" "This listener only answers reads."
        HttpsRequired "https_required" "Only reads are redirected to https."
    }
    REQUEST_TIMEOUT {
        HeadTimeout "head_timeout" "The request head took too long."
        BodyTimeout "body_timeout" "The request body arrived too slowly."
    }
    CONFLICT {
        UpgradeInProgress "upgrade_in_progress" "An upgrade is in progress."
        ReloadInProgress "reload_in_progress" "A reload is in progress."
    }
    GONE {
        EpochChanged "epoch_changed" "The cursor is of another epoch."
        CursorAhead "cursor_ahead" "The cursor is ahead of this server."
        HistoryTrimmed "history_trimmed" "Events after the cursor are no longer retained."
    }
    LENGTH_REQUIRED {
        LengthRequired "length_required" "The length of the body must be given."
    }
    PRECONDITION_FAILED {
        PreconditionFailed "precondition_failed" "The precondition does not hold."
    }
    CONTENT_TOO_LARGE {
        MessageTooLarge "message_too_large" "The message is too large."
        BrokerLimit "broker_message_too_large" "The broker does not accept a message this large."
    }
    URI_TOO_LONG {
        RequestLineTooLong "request_line_too_long" "The request line is too long."
    }
    UNSUPPORTED_MEDIA_TYPE {
        EncodingUnsupported "encoding_unsupported" "The content encoding is not supported."
        MediaTypeUnsupported "media_type_unsupported" "The content type is not supported here."
    }
    RANGE_NOT_SATISFIABLE {
        RangeNotSatisfiable "range_not_satisfiable" "None of the requested bytes exist."
    }
    EXPECTATION_FAILED {
        ExpectationUnsupported "expectation_unsupported" "The expectation is not supported."
    }
    MISDIRECTED_REQUEST {
        HostNotAllowed "host_not_allowed" "The control listener does not serve this host name."
    }
    UPGRADE_REQUIRED {
        WebsocketVersion "websocket_version_unsupported" "The WebSocket version is not supported."
        WebsocketRequired "websocket_required" "This resource is a WebSocket."
    }
    TOO_MANY_REQUESTS {
        RateLimited "rate_limited" "Too many messages were sent."
        AddressLimit "address_limit" "Too many connections come from this address."
        PublishPaused "publish_paused" "Memory is short, so the topic may not grow now."
    }
    REQUEST_HEADER_FIELDS_TOO_LARGE {
        HeadTooLarge "head_too_large" "The request head is too large."
    }
    NOT_IMPLEMENTED {
        MethodUnknown "method_unknown" "The method is not known."
        TransferCoding "transfer_coding_unsupported" "The transfer coding is not supported."
    }
    SERVICE_UNAVAILABLE {
        FileUnavailable "file_unavailable" "The file cannot be read now."
        SubscriptionsFull "subscriptions_full" "Too many different topics are being read."
        IssuerUnavailable "issuer_unavailable" "The keys of an issuer are not known yet."
        NotLeader "not_leader" "This server follows another one."
        StoreFailed "store_failed" "The disk of the store failed."
        StoreOverloaded "store_overloaded" "The disk is slower than the publishers."
        StoreLoading "store_loading" "The server is loading its store."
        BrokerUnavailable "broker_unavailable" "The broker cannot be reached."
        BrokerOverloaded "broker_overloaded" "The broker is slower than the publishers."
        OutcomeUnknown "outcome_unknown" "It is not known whether the change was stored."
        NodeBehind "node_behind" "This server is behind its source."
        FollowerLimit "follower_limit" "Too many followers read here."
        FollowerLoading "follower_loading" "The server is loading the values of its leader."
        FollowerStale "follower_stale" "The values of this follower may be out of date."
        ClusterLoading "cluster_loading" "The server is loading the values of its cluster."
        ClusterStale "cluster_stale" "The values of this node may be out of date."
        ClusterRecovering "cluster_recovering" "The node or the log of its cluster recovers."
        ClusterSnapshotNeeded "cluster_snapshot_needed" "The node needs a snapshot of another node."
        ClusterVersion "cluster_version_unsupported" "The log has entries of another version."
        ClusterMismatch "cluster_mismatch" "The directory of this node is of another cluster."
        UpgradeUnsupported "upgrade_unsupported" "This server cannot be upgraded or reloaded."
        ServerDraining "server_draining" "The server is shutting down."
        WorkerFailed "worker_failed" "A worker has failed: restart the server."
        MemoryPressure "memory_pressure" "Memory is short."
    }
    HTTP_VERSION_NOT_SUPPORTED {
        HttpVersionUnsupported "http_version_unsupported" "The HTTP version is not supported."
    }
    INSUFFICIENT_STORAGE {
        TopicLimit "topic_limit" "No more topics can be created."
        StoredBytesLimit "stored_bytes_limit" "Values fill the memory that they may take."
        StoreFull "store_full" "The disk of the store is full."
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Packed for ErrorCode {
    const FORMAT: u64 = format("error code", &[]);

    fn pack(&self, out: &mut Packer) {
        self.name().to_owned().pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<ErrorCode> {
        let name = String::unpack(input)?;
        ErrorCode::ALL.iter().copied().find(|code| code.name() == name).ok_or(UNKNOWN)
    }
}

/// Why a request, a command or a line is rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// What programs read.
    pub code: ErrorCode,
    /// One plain sentence for people: what was wrong in this case, and what to do.
    pub detail: Cow<'static, str>,
}

impl Rejection {
    /// A rejection whose sentence is always the same.
    #[must_use]
    pub const fn new(code: ErrorCode, detail: &'static str) -> Rejection {
        Rejection { code, detail: Cow::Borrowed(detail) }
    }

    /// A rejection whose sentence repeats something of the request.
    #[must_use]
    pub fn because(code: ErrorCode, detail: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { code, detail: detail.into() }
    }

    /// The status of a response with this rejection.
    #[must_use]
    pub fn status(&self) -> Status {
        self.code.status()
    }

    /// The detail, or the title where the detail repeats something of the request.
    #[must_use]
    pub fn fixed_text(self) -> &'static str {
        match self.detail {
            Cow::Borrowed(detail) => detail,
            Cow::Owned(_) => self.code.title(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Rejection {}

impl From<Rejection> for String {
    fn from(rejection: Rejection) -> String {
        rejection.detail.into_owned()
    }
}

/// Makes constants of rejections, each with its code and its sentence.
#[macro_export]
macro_rules! rejections {
    ($($(#[$doc:meta])* $name:ident: $code:ident = $detail:literal;)*) => {$(
        $(#[$doc])*
        const $name: $crate::error::Rejection =
            $crate::error::Rejection::new($crate::error::ErrorCode::$code, $detail);
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_words_with_a_sentence() {
        let names: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let is_word =
                |byte: u8| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'0'..=b'9');
            assert!(code.name().bytes().all(is_word), "{code:?}");
            assert!(code.title().ends_with('.'), "{code:?}");
            assert!(code.status().0 >= 400, "{code:?}");
        }
    }
}
