//! Our end of an HTTP exchange, as far as it is bytes: what a server answers, taken apart as it
//! comes in.
//!
//! An [`Exchange`] is the few bytes of state between two reads. It owns no buffer: a head, or a
//! WebSocket frame, that has not arrived whole is left in the input, and whoever reads keeps it
//! until there is more. Content is lent in whatever pieces it came.

use stentor_wire::http1::response::{self, ResponseBody, ResponseHead};
use stentor_wire::http1::{Body, BodyLength, Step};
use stentor_wire::websocket::client::{ServerFrame, server_frame};

/// Where in an answer the next byte belongs.
#[derive(Default, Debug)]
pub(crate) enum Exchange {
    /// An answer's head comes next, or is cut.
    #[default]
    Head,
    /// Content of known extent.
    Body(Body),
    /// Content that goes on until the connection ends.
    UntilClose,
    /// The connection is a WebSocket.
    Frames,
}

/// The next thing in the input.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// Nothing whole; what is not used up must be shown again with more behind it.
    More,
    /// A final answer begins.
    Head(ResponseHead<'a>),
    /// Content.
    Data(&'a [u8]),
    /// The answer is over; the next one may follow.
    End,
    /// A WebSocket frame.
    Frame(ServerFrame<'a>),
}

impl Exchange {
    /// Takes the next thing from the input; returns how many bytes of it are done with. Call it
    /// until it says [`Seen::More`].
    ///
    /// # Errors
    /// What is wrong with the answer. The connection is of no more use.
    pub(crate) fn next<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Seen<'a>), &'static str> {
        match self {
            Exchange::Head => self.head(input),
            Exchange::UntilClose if input.is_empty() => Ok((0, Seen::More)),
            Exchange::UntilClose => Ok((input.len(), Seen::Data(input))),
            Exchange::Body(body) => match body.next(input).map_err(|refusal| refusal.reason)? {
                Step::Data { data, used } => Ok((used, Seen::Data(data))),
                Step::More { used } => Ok((used, Seen::More)),
                Step::End { used } => {
                    *self = Exchange::Head;
                    Ok((used, Seen::End))
                }
            },
            Exchange::Frames => {
                match server_frame(input, FRAME_BYTES_MAX).map_err(|broken| broken.reason)? {
                    None => Ok((0, Seen::More)),
                    Some(frame) => Ok((frame.len, Seen::Frame(frame))),
                }
            }
        }
    }

    fn head<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Seen<'a>), &'static str> {
        let mut skipped = 0;
        loop {
            let Some(head) = response::parse(&input[skipped..]).map_err(|bad| bad.reason)? else {
                return Ok((skipped, Seen::More));
            };
            // Others with a status of 1xx announce an answer, and are none (RFC 9110 section 15.2).
            if matches!(head.status, 100 | 102..200) {
                skipped += head.len;
                continue;
            }
            *self = match head.body {
                _ if head.status == SWITCHING_PROTOCOLS => Exchange::Frames,
                ResponseBody::None => Exchange::Body(Body::new(BodyLength::None)),
                ResponseBody::Length(length) => {
                    Exchange::Body(Body::new(BodyLength::Length(length)))
                }
                ResponseBody::Chunked => Exchange::Body(Body::new(BodyLength::Chunked)),
                ResponseBody::UntilClose => Exchange::UntilClose,
            };
            return Ok((skipped + head.len, Seen::Head(head)));
        }
    }
}

/// The status that makes a WebSocket of a connection (RFC 6455 section 4.2.2).
pub(crate) const SWITCHING_PROTOCOLS: u16 = 101;

/// The longest frame a server may send us: whole frames are kept until they are complete.
const FRAME_BYTES_MAX: usize = 16 << 20;
