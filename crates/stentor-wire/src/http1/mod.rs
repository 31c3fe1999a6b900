//! HTTP/1.x: where a head ends, what it says, and how its body is framed (RFC 9112).
//!
//! This is the server's side, and so about requests. What a client reads instead is in
//! [`response`]; bodies are the same in both directions.
//!
//! The order of calls is [`scan`] until the head is complete, [`parse`] once on exactly those
//! bytes, then [`Body::next`] until it says [`Step::End`]. The next request begins right there.
//! Each of the three gives the same answer however the bytes were split on their way here, at a
//! cost that is linear in their number.

mod body;
mod head;
mod outline;
pub(crate) mod request;
pub mod response;

pub use body::{Body, LAST_CHUNK, Step, write_chunk};
pub use head::{
    BodyLength, FIELDS_MAX, FieldSlots, Framing, HEAD_BYTES_MAX, Head, Scan, Version, parse, scan,
};
pub use outline::{Outline, outline, without_secrets};
pub use request::{Method, Request, RequestBuf};
