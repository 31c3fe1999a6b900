//! The body of a large response, which the connection makes in steps.
//!
//! To make and send a megabyte at once would hold up the worker for some milliseconds. An
//! endpoint therefore only finds the data of its answer, which decides the fields of the response
//! and its length. The connection then makes the body part by part, and waits in the queue of its work
//! class between the parts (`connection/body.rs`). It holds shared data and a mark, and never more
//! than one part of the body itself.

use crate::connection::poll::ArrayBody;
use crate::endpoint::listing::ListBody;
use crate::endpoint::values::ValuesBody;

/// The data that a body is made from. They never change.
#[derive(Debug)]
pub(crate) enum LargeBody {
    /// The values of a look-up.
    Values(ValuesBody),
    /// The list of a directory.
    List(ListBody),
    /// The messages of a long-poll.
    Array(ArrayBody),
}

/// Where the next part of a body begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// The value or the row.
    pub(crate) item: usize,
    /// How much of it has been written, as its writer counts that.
    pub(crate) offset: usize,
}

impl LargeBody {
    /// Appends the next part. Returns where the one after it begins; `None` if this was the last.
    pub(crate) fn append(&self, mark: Mark, out: &mut Vec<u8>) -> Option<Mark> {
        match self {
            LargeBody::Values(values) => values.append(mark, out),
            LargeBody::List(list) => list.append(mark, out),
            LargeBody::Array(array) => array.append(mark, out),
        }
    }

    /// Appends all from a mark on.
    pub(crate) fn append_rest(&self, from: Mark, out: &mut Vec<u8>) {
        let mut next = Some(from);
        while let Some(mark) = next {
            next = self.append(mark, out);
        }
    }

    /// The bytes that it owns.
    pub(crate) fn own_bytes(&self) -> usize {
        match self {
            LargeBody::Values(values) => values.own_bytes(),
            LargeBody::List(list) => list.own_bytes(),
            LargeBody::Array(array) => array.own_bytes(),
        }
    }

    /// Its share of the messages that their topics have dropped, in bytes.
    pub(crate) fn detached_share(&self) -> usize {
        match self {
            LargeBody::Values(values) => values.detached_share(),
            LargeBody::Array(array) => array.detached_share(),
            LargeBody::List(_) => 0,
        }
    }
}
