//! What the server answers: one file for each kind of page, and the sinks for request bodies.

pub(crate) mod bulk;
pub(crate) mod file;
pub(crate) mod listing;
pub(crate) mod metrics;
pub(crate) mod publish;
pub(crate) mod status;
pub(crate) mod topics;
pub(crate) mod value;
pub(crate) mod values;

use crate::context::Context;
use crate::response::Shape;
use stentor_wire::status::{Refusal, Status};

/// Where a request body goes. It owns what of the head is needed when the body is complete.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Nowhere: the method gives it no meaning (RFC 9110 section 9.3.1). The head is kept and
    /// answered afterwards.
    Discard {
        /// The head as it was received.
        head: Box<[u8]>,
        /// Bytes of body that have gone by.
        bytes: usize,
    },
    /// One message.
    Publish(Box<publish::Upload>),
    /// One message a line.
    Bulk(Box<bulk::Bulk>),
}

impl Sink {
    pub(crate) fn discard(head: &[u8]) -> Sink {
        Sink::Discard { head: head.into(), bytes: 0 }
    }

    /// Takes a part of the body.
    pub(crate) fn data(&mut self, cx: &mut Context, data: &[u8]) -> Result<(), Refusal> {
        let bytes_max = cx.settings.limits.message_bytes_max;
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
                bulk.data(cx, data);
                Ok(())
            }
        }
    }

    /// What taking so many bytes costs a turn: publishing them one by one is more than copying.
    pub(crate) fn cost(&self, bytes: usize) -> usize {
        if matches!(self, Sink::Bulk(_)) { bytes * 4 } else { bytes }
    }

    /// What a reader has it keep, in bytes. Bodies of publishers are not among it.
    pub(crate) fn own_bytes(&self) -> usize {
        match self {
            Sink::Discard { head, .. } => head.len(),
            Sink::Publish(_) | Sink::Bulk(_) => 0,
        }
    }

    /// The body is complete: does what was asked and answers.
    pub(crate) fn finish(self, cx: &mut Context, shape: Shape<'_>) {
        match self {
            Sink::Discard { .. } => {}
            Sink::Publish(upload) => upload.finish(cx, shape),
            Sink::Bulk(bulk) => bulk.finish(cx, shape),
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
