//! Preconditions (RFC 9110 section 13): whether a client wants an answer at all, and whether it may
//! have a part of one.
//!
//! What a GET is compared with differs. A value has one id under many tags, so that it may be lax;
//! a file has a tag for each encoding, of which a sibling that somebody else compressed has nothing
//! in common with the others, and a cache puts bytes together by them, so that it must be strict.
//! The order in which the fields count is the same for both and easy to get wrong, so it is said
//! here, once.
//!
//! A field that makes no sense is as if it were not there, or names nothing. Either way the worst
//! that comes of it is an answer that is sent once more, whole, or a 412; never a 304 or a part of
//! something other than the client has.

use crate::http1::Request;
use crate::negotiate::{http_date, is_any, tags};

/// How entity tags are compared (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Byte for byte the same: a weak tag never is.
    Strong,
    /// As good as the same: `W/` is ignored.
    Weak,
}

/// What a representation is compared by.
pub struct Validators<N> {
    /// Which of the representation's tags a list of entity tags names, as `fn(&[u8], Comparison)
    /// -> Option<usize>`; [`named`] is one for tags in a slice. It is called only if there is a
    /// list to compare, and that is not `*`.
    pub named: N,
    /// When it was last changed, in seconds since 1970.
    pub modified_at: u64,
    /// Whether a client that has what was there at `modified_at` has what is there now. Not so if
    /// it was changed twice in one second.
    pub dates_tell: bool,
}

/// What becomes of a GET or HEAD for something that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Answer as if there were no conditions. Only now Range counts, if [`if_range`] lets it.
    Send,
    /// `304 Not Modified`; with the tag that the client has, as `named` tells it, if it was by a
    /// tag.
    NotModified(Option<usize>),
    /// `412 Precondition Failed`: If-Match names something else.
    Mismatch,
    /// `412 Precondition Failed`: it was changed after If-Unmodified-Since.
    Newer,
}

/// Judges the preconditions of a GET or HEAD, in the order of RFC 9110 section 13.2.2.
///
/// A date that is none is ignored. So is an If-Modified-Since later than `now_unix_s`, in seconds
/// since 1970: it was not taken from an answer of ours, and what will be changed until then cannot
/// be known.
pub fn judge<N>(request: &Request<'_>, validators: &Validators<N>, now_unix_s: u64) -> Verdict
where
    N: Fn(&[u8], Comparison) -> Option<usize>,
{
    let Validators { named, modified_at, dates_tell } = validators;
    if let Some(list) = request.if_match {
        if !is_any(list) && named(list, Comparison::Strong).is_none() {
            return Verdict::Mismatch;
        }
    } else if let Some(date) = request.if_unmodified_since.and_then(http_date)
        && *modified_at > date
    {
        return Verdict::Newer;
    }
    if let Some(list) = request.if_none_match {
        if is_any(list) {
            return Verdict::NotModified(None);
        }
        let tag = named(list, Comparison::Weak);
        return tag.map_or(Verdict::Send, |tag| Verdict::NotModified(Some(tag)));
    }
    match request.if_modified_since.and_then(http_date) {
        Some(since) if (*modified_at..=now_unix_s).contains(&since) && *dates_tell => {
            Verdict::NotModified(None)
        }
        _ => Verdict::Send,
    }
}

/// Which of `ours` a list of entity tags names: the first of ours, if several. Ours are strong, and
/// given without their quotes.
///
/// Quotes are required in the list; a member that is malformed names nothing.
pub fn named(list: &[u8], ours: &[impl AsRef<[u8]>], comparison: Comparison) -> Option<usize> {
    tags(list)
        .filter(|tag| tag.well_formed && (comparison == Comparison::Weak || !tag.weak))
        .filter_map(|tag| ours.iter().position(|ours| ours.as_ref() == tag.text))
        .min()
}

/// Whether the parts that a Range asks for may be sent, by its If-Range (RFC 9110 section 13.1.5);
/// if not, the whole representation is.
///
/// `tag` is the strong tag, without its quotes, of the very representation that would be sent in
/// parts; its encoding counts, since a part of one is of no use beside a part of another. A date
/// must be `modified_at` exactly, and that second must be over at `now_unix_s` (both in seconds
/// since 1970): before that the representation may change again and keep its date.
pub fn if_range(value: &[u8], tag: &[u8], modified_at: u64, now_unix_s: u64) -> bool {
    match value {
        [b'"', text @ .., b'"'] => text == tag,
        _ => http_date(value) == Some(modified_at) && modified_at < now_unix_s,
    }
}

#[cfg(test)]
mod tests;
