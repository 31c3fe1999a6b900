//! A snapshot of the hub, written beside everything else, a slice at a time.
//!
//! Whoever writes it takes the [`Pass`] and steps it until it is over: a thread, or a test that
//! says when. The [`Rewriting`] is what the writer of the log keeps: it hears of the result, and
//! who drops it wants none.

use crate::intake::Intake;
use std::io;
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stentor_hub::{Hub, Snapshot as Slices};
use stentor_io::{Disk, DiskError, DiskErrorKind, lower_priority, sleep};
use stentor_log::{Snapshot, SnapshotWriter};

/// A snapshot that somebody waits for.
pub(super) struct Rewriting {
    result: mpsc::Receiver<Result<WrittenSnapshot, DiskError>>,
    /// It is written, and shows messages that the log has not got yet.
    shown: Option<WrittenSnapshot>,
    /// Dropped, it says that nobody waits.
    _waits: Arc<()>,
}

/// A snapshot that is being written.
pub struct Pass<D: Disk> {
    hub: Arc<Hub>,
    to: SnapshotWriter<D>,
    slices: Slices,
    slice: Vec<u8>,
    result: mpsc::Sender<Result<WrittenSnapshot, DiskError>>,
    waits: Weak<()>,
}

/// A snapshot, and the greatest number that is in it.
struct WrittenSnapshot {
    snapshot: Snapshot,
    upto_seq: u64,
}

impl Rewriting {
    /// The snapshot, once it is finished and everything up to `pushed_seq` shows all that is in it.
    pub(super) fn take(&mut self, pushed_seq: u64) -> Option<Result<Snapshot, DiskError>> {
        if self.shown.is_none() {
            match self.result.try_recv() {
                Ok(Ok(shown)) => self.shown = Some(shown),
                Ok(Err(error)) => return Some(Err(error)),
                Err(mpsc::TryRecvError::Empty) => return None,
                Err(mpsc::TryRecvError::Disconnected) => {
                    let reason = "there is no thread for it, or it broke";
                    return Some(Err(failed(reason.to_owned())));
                }
            }
        }
        let shown = self.shown.take_if(|shown| shown.upto_seq <= pushed_seq)?;
        Some(Ok(shown.snapshot))
    }
}

impl<D: Disk> Pass<D> {
    /// Begins a snapshot of what is stored.
    pub(super) fn begin(to: SnapshotWriter<D>, hub: Arc<Hub>) -> (Pass<D>, Rewriting) {
        let (sender, result) = mpsc::channel();
        let waits = Arc::new(());
        let mut slice = Vec::new();
        let slices = Slices::begin(&hub, &mut slice).of_what_is_stored(&hub);
        let (result_to, waits_for) = (sender, Arc::downgrade(&waits));
        let pass = Pass { hub, to, slices, slice, result: result_to, waits: waits_for };
        (pass, Rewriting { result, shown: None, _waits: waits })
    }

    /// Writes the next slice. Returns what is left to be done, and how many bytes were written.
    pub fn step(mut self) -> Option<(Pass<D>, usize)> {
        if self.waits.strong_count() == 0 {
            self.to.give_up();
            return None;
        }
        let written = write_slice(&mut self.slices, &self.hub, &mut self.slice, &mut self.to);
        let result = match written {
            Ok(true) => {
                let bytes = self.slice.len();
                self.slice.clear();
                return Some((self, bytes));
            }
            Ok(false) => self.to.end().map(|snapshot| {
                // Behind the last look: whatever was found in a topic has its number by now.
                WrittenSnapshot { snapshot, upto_seq: self.hub.notified_seq() }
            }),
            Err(error) => {
                self.to.give_up();
                Err(error)
            }
        };
        // If nobody waits any more, the process ends.
        let _ = self.result.send(result);
        None
    }
}

impl<D: Disk + Send + 'static> Pass<D>
where
    D::File: Send,
{
    /// Has a thread of its own write it to its end. The intake counts the bytes of the log.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(self, intake: Arc<Intake>) -> io::Result<JoinHandle<()>> {
        let begin = intake.stats.bytes.value();
        thread::Builder::new().name("store-snapshot".to_owned()).spawn(move || {
            if let Err(error) = lower_priority() {
                tracing::warn!("snapshots are written at the priority of the workers: {error}");
            }
            let (mut next, mut written) = (self.step(), 0);
            while let Some((pass, bytes)) = next {
                written += bytes as u64;
                match pause(bytes, written, intake.stats.bytes.value() - begin) {
                    Some(pause) => sleep(pause),
                    None => thread::yield_now(),
                }
                next = pass.step();
            }
        })
    }
}

/// How long to wait behind so many bytes, when so many of the snapshot are written, and so many of
/// the log meanwhile. The disk is for the log first. But where that grows faster than the snapshot,
/// both take the more room the longer this waits.
fn pause(bytes: usize, written: u64, of_log: u64) -> Option<Duration> {
    // mutation: slow-snapshot
    (of_log <= written).then(|| Duration::from_secs_f64(bytes as f64 / BYTES_PER_S))
}

/// Writes all that is in the hub at once.
pub(super) fn write_slices<D: Disk>(
    to: &mut SnapshotWriter<D>,
    hub: &Hub,
) -> Result<(), DiskError> {
    let mut slice = Vec::new();
    let mut slices = Slices::begin(hub, &mut slice);
    while write_slice(&mut slices, hub, &mut slice, to)? {
        slice.clear();
    }
    Ok(())
}

/// Writes the next slice, behind what is in `slice` already. False once that was the last.
fn write_slice<D: Disk>(
    slices: &mut Slices,
    hub: &Hub,
    slice: &mut Vec<u8>,
    to: &mut SnapshotWriter<D>,
) -> Result<bool, DiskError> {
    let is_more =
        slices.write_slice(hub, slice).map_err(|too_long| failed(too_long.to_string()))?;
    to.payload(slice)?;
    Ok(is_more)
}

fn failed(reason: String) -> DiskError {
    DiskError { kind: DiskErrorKind::Failed, tried: "write", path: "a snapshot".to_owned(), reason }
}

/// The fastest that snapshots are written, unless the log grows faster.
const BYTES_PER_S: f64 = 64e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_waits_unless_the_log_outgrows_it() {
        assert_eq!(pause(64_000, 64_000, 0), Some(Duration::from_millis(1)));
        assert_eq!(pause(64_000, 128_000, 128_000), Some(Duration::from_millis(1)));
        assert_eq!(pause(64_000, 128_000, 128_001), None);
    }
}
