//! The parts of a node's state.

use crate::line::Line;
use stentor_hub::Epoch;

/// The epoch that a node reads, and those before it.
#[derive(Default)]
pub(super) struct EpochState {
    /// The message where the epoch began; 0 if that is unknown.
    pub(super) began: u64,
    /// When it began, in milliseconds of Unix time; 0 if that is unknown.
    pub(super) since_ms: u64,
    /// The run of the broker to which the last turn or jump was written, of those that were read.
    pub(super) broker: u64,
    /// Its SEQs in the log, as far as it was read.
    pub(super) mapping: Line,
    /// Epochs that are over.
    pub(super) past: Vec<Epoch>,
}
