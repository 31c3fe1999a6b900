//! Names by which things are counted.

use stentor_wire::{labels, packed};

labels! {
    /// The kinds of requests that take their time for different reasons.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) enum RequestKind {
        /// Status pages, preflights, what is refused before it is known what it asks for.
        #[default]
        Other = "other",
        /// A request for one value.
        Value = "value",
        /// Many values at once.
        Values = "values",
        /// A file, and the pages that the server brings itself.
        File = "file",
        /// A stream: what is answered is its head.
        Stream = "stream",
        /// Something new, waited for.
        LongPoll = "long_poll",
        /// One change.
        Publish = "publish",
        /// A stream of changes.
        Bulk = "bulk",
    }
}

packed!(enum RequestKind {
    0 => Other, 1 => Value, 2 => Values, 3 => File, 4 => Stream, 5 => LongPoll, 6 => Publish,
    7 => Bulk,
});
