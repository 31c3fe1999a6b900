//! What the server answers: one file for each kind of page, and the sinks for request bodies.

pub(crate) mod bulk;
pub(crate) mod client;
pub(crate) mod file;
pub(crate) mod guestbook;
pub(crate) mod info;
pub(crate) mod listing;
pub(crate) mod metrics;
pub(crate) mod operate;
pub(crate) mod publish;
pub(crate) mod redirect;
pub(crate) mod replication;
pub(crate) mod status;
pub(crate) mod topics;
pub(crate) mod value;
pub(crate) mod values;
pub(crate) mod welcome;

use crate::exchange::Exchange;
use crate::head::Field;
use crate::paths::{EVENTS, RELOAD, UPGRADE};
use stentor_wire::credentials::credential;
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::http1::{Request, RequestBuf};
use stentor_wire::packed;
use stentor_wire::rejections;

/// Where a request body goes. It owns what of the head is needed when the body is complete.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Nowhere: the method gives it no meaning (RFC 9110 section 9.3.1). The request is kept and
    /// answered afterwards.
    Discard {
        request: Box<RequestBuf>,
        /// Bytes of body that have gone by.
        bytes: usize,
    },
    /// One message.
    Publish(Box<publish::Upload>),
    /// One message a line.
    Bulk(Box<bulk::Bulk>),
}

packed!(enum Sink { 0 => Discard { request, bytes }, 1 => Publish(upload), 2 => Bulk(bulk) });

impl Sink {
    pub(crate) fn discard(request: &Request<'_>) -> Sink {
        Sink::Discard { request: Box::new(request.to_buf()), bytes: 0 }
    }

    /// Takes a part of the body.
    pub(crate) fn data(&mut self, x: &mut Exchange<'_>, data: &[u8]) -> Result<(), Rejection> {
        let bytes_max = x.settings.limits.message_bytes_max;
        match self {
            Sink::Discard { bytes, .. } => {
                *bytes += data.len();
                within(*bytes, bytes_max)
            }
            Sink::Publish(upload) => {
                within(upload.data.len() + data.len(), bytes_max)?;
                upload.data.extend_from_slice(data);
                Ok(())
            }
            Sink::Bulk(bulk) => {
                bulk.data(x, data);
                Ok(())
            }
        }
    }

    /// Whether it takes a stream of messages.
    pub(crate) fn is_bulk(&self) -> bool {
        matches!(self, Sink::Bulk(_))
    }

    /// Whether it inflates the body once that is complete.
    pub(crate) fn inflates(&self) -> bool {
        matches!(self, Sink::Publish(upload) if upload.gzip)
    }

    /// What taking so many bytes costs a turn: publishing them one by one is more than copying.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        if self.is_bulk() { bytes * 4 } else { bytes }
    }

    /// What a reader has it keep, in bytes. Bodies of publishers are not among it.
    pub(crate) fn own_bytes(&self) -> usize {
        match self {
            Sink::Discard { request, .. } => size_of::<RequestBuf>() + request.own_bytes(),
            Sink::Publish(_) | Sink::Bulk(_) => 0,
        }
    }
}

fn within(bytes: usize, bytes_max: usize) -> Result<(), Rejection> {
    if bytes <= bytes_max { Ok(()) } else { Err(TOO_LARGE) }
}

/// 405, with what would be allowed (RFC 9110 section 15.5.6).
pub(crate) fn not_allowed(x: &mut Exchange<'_>, request: &Request<'_>, path: &[u8]) {
    let publishes = x.publishes();
    let brings_token = || credential(request, x.settings.access.cookie.as_deref()).is_some();
    let rejection = match (publishes, path) {
        (true, b"/-/publish") => LINES_ARE_POSTED,
        (true, UPGRADE) if x.listener().operates => UPGRADE_BY_POST,
        (true, RELOAD) if x.listener().operates => RELOAD_BY_POST,
        (_, EVENTS) => STREAMS_BY_GET,
        (true, _) => NOT_ALLOWED,
        _ if !x.listener().reads => MONITOR_READS,
        _ if brings_token() => PUBLIC_NO_TOKENS,
        _ => PUBLIC_READS,
    };
    let allowed = allow(x, path);
    x.reply.begin(rejection.status()).field(Field::ALLOW, allowed).reject(&rejection);
}

/// The `Allow` field of a path.
pub(crate) fn allow(x: &Exchange<'_>, path: &[u8]) -> &'static str {
    match (x.publishes(), path) {
        (_, UPGRADE | RELOAD) if x.listener().operates => "OPTIONS, POST",
        (true, b"/-/publish") => "OPTIONS, POST",
        (true, path) if !path.starts_with(b"/-/") => "DELETE, GET, HEAD, OPTIONS, POST, PUT",
        _ => "GET, HEAD, OPTIONS",
    }
}

/// A body that is larger than any message.
pub(crate) const TOO_LARGE: Rejection = Rejection::new(
    ErrorCode::MessageTooLarge,
    "The body is longer than any message may be (limits.message_bytes_max).",
);

rejections! {
    LINES_ARE_POSTED: MethodNotAllowed = "Lines of messages are POSTed here.";
    UPGRADE_BY_POST: MethodNotAllowed = "An upgrade is begun by POST.";
    RELOAD_BY_POST: MethodNotAllowed = "A reload is begun by POST.";
    STREAMS_BY_GET: MethodNotAllowed = "Streams are read here, with GET.";
    NOT_ALLOWED: MethodNotAllowed = "This method means nothing here.";
    MONITOR_READS: ListenerReadOnly = "The monitor listener only shows how the server is.";
    PUBLIC_NO_TOKENS: ListenerReadOnly =
        "The public listener takes tokens to publish only where a rule of [[topics]] says publish \
         = \"token\", and none does; publish on the control listener.";
    PUBLIC_READS: ListenerReadOnly =
        "The public listener only answers reads; publish on the control listener.";
}
