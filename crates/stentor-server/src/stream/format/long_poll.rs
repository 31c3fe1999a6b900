//! A long-poll: its answer says everything.

use crate::stream::format::{Manner, SignOfLife};
use stentor_hub::StreamForm;

/// Its answer says everything; while it waits nothing is said.
pub(super) static MANNER: Manner = Manner {
    forms: [(StreamForm::Envelope, None); 2],
    gap: None,
    uncovered: None,
    cursor: |_, _, _| {},
    sign_of_life: SignOfLife::Comment(b""),
    farewell: |_| {},
    put_off: None,
    expired: |_, _| {},
    readers: |stats| &stats.readers_long_poll,
};
