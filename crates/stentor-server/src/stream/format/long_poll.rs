//! A long-poll: its answer says everything.

use crate::stream::format::{Manner, SignOfLife};
use stentor_hub::StreamForm;

/// Its answer says everything; while it waits nothing is said.
pub(super) static MANNER: Manner = Manner {
    forms: [(StreamForm::Envelope, None); 2],
    notice: None,
    sign_of_life: SignOfLife::Comment(b""),
    farewell: |_| {},
    put_off: None,
    end: |_, _| {},
    readers: |stats| &stats.readers_long_poll,
};
