//! The packed forms of what connections keep of the hub's: for the next process.

use stentor_wire::pack::{MISFIT, Packed, Packer, Unpacked, Unpacker, format};
use stentor_wire::packed;

use crate::entry::Precondition;
use crate::event::{Mode, Span};
use crate::field::{CacheControl, ContentType, EventName};
use crate::filter::Filter;
use crate::id::Id;

packed!(enum Mode { 0 => Latest, 1 => All, 2 => ByRule });
packed!(struct Span { since, upto, mode });
packed!(enum Precondition { 0 => None, 1 => IfMatch(tags), 2 => IfNoneMatch(tags) });

/// What is packed as it is written elsewhere, and checked as it is there.
macro_rules! as_text {
    ($($name:ty: $text:expr, $parse:expr;)*) => {$(
        impl Packed for $name {
            const FORMAT: u64 = format(stringify!($name), &[]);

            fn pack(&self, out: &mut Packer) {
                $text(self).to_owned().pack(out);
            }

            fn unpack(input: &mut Unpacker<'_>) -> Unpacked<$name> {
                $parse(&String::unpack(input)?).map_err(|_| MISFIT)
            }
        }
    )*};
}

as_text! {
    Filter: Filter::to_string, Filter::parse;
    ContentType: ContentType::as_str, ContentType::parse;
    EventName: EventName::as_str, EventName::parse;
    CacheControl: CacheControl::as_str, CacheControl::parse;
    Id: Id::to_string, str::parse::<Id>;
}
