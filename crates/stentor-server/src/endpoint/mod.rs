//! What the server answers: one file for each kind of page, and the sinks for request bodies.

pub(crate) mod bulk;
pub(crate) mod client;
pub(crate) mod file;
pub(crate) mod guestbook;
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
use stentor_wire::http1::{Request, RequestBuf};
use stentor_wire::packed;
use stentor_wire::status::{Refusal, Status};

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
    pub(crate) fn data(&mut self, x: &mut Exchange<'_>, data: &[u8]) -> Result<(), Refusal> {
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

    /// Whether it takes no more before some of what it took is committed.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Sink::Bulk(bulk) if bulk.is_full())
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

fn within(bytes: usize, bytes_max: usize) -> Result<(), Refusal> {
    if bytes <= bytes_max { Ok(()) } else { Err(TOO_LARGE) }
}

/// A body that is larger than any message.
pub(crate) const TOO_LARGE: Refusal = Refusal::new(
    Status::CONTENT_TOO_LARGE,
    "The body is longer than any message may be (limits.message_bytes_max).",
);
