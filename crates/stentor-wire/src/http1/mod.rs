//! HTTP/1.x requests: where a head ends, what it says, and how its body is framed (RFC 9112).
//!
//! The order of calls is [`scan`] until the head is complete, [`parse`] once on exactly those
//! bytes, then [`Body::next`] until it says [`Step::End`]. The next request begins right there.
//! Each of the three gives the same answer however the bytes were split on their way here, at a
//! cost that is linear in their number.

mod body;
mod head;

pub use body::{Body, Step};
pub use head::{
    BodyLength, FIELDS_MAX, FieldSlots, HEAD_BYTES_MAX, Head, Method, Scan, Version, parse, scan,
};
