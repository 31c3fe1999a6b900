//! What must be true of a store after each start, whatever happened before it.

use crate::{Piece, Recovered, Recovery, SimDisk};
use std::collections::BTreeMap;

/// A change as the harness makes it: of one of a few topics, with an id that says which it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) seq: u64,
    /// The number is its own.
    pub(super) takes_number: bool,
    pub(super) id: u64,
    pub(super) topic: u8,
    pub(super) padding: usize,
}

impl Change {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.topic);
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend((0..self.padding).map(|i| (self.id as u8).wrapping_add(i as u8)));
    }
}

/// The id of the latest change of each topic.
pub(super) type Values = BTreeMap<u8, u64>;

/// A value in a snapshot's payload.
pub(super) fn put_value(topic: u8, id: u64, seq: u64, out: &mut Vec<u8>) {
    out.push(topic);
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
}

pub(super) const VALUE_BYTES: usize = 17;

/// What is known from outside.
#[derive(Clone, Default, Debug)]
pub(super) struct Oracle {
    /// What was pushed, less what was rolled back since.
    pub(super) changes: Vec<Change>,
    /// So many of them were said to outlive the process,
    pub(super) written: usize,
    /// and so many the power.
    pub(super) synced: usize,
    /// The greatest number that was given out.
    pub(super) highest: u64,
    /// Numbers given out to nothing that is stored.
    pub(super) noted: Vec<u64>,
    /// Numbers of changes that were rolled back.
    pub(super) rolled_back: Vec<u64>,
    pub(super) epoch: Option<u32>,
    /// It was closed, and nothing has gone wrong since.
    pub(super) is_closed: bool,
}

/// What a recovery shows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Shown {
    pub(super) values: Values,
    /// Ids of the entries, in their order.
    pub(super) entries: Vec<u64>,
    pub(super) latest: u64,
    pub(super) holes: usize,
}

impl Shown {
    pub(super) fn take(&mut self, piece: Piece<'_>) -> Result<(), String> {
        let id = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        match piece {
            Piece::Payload(bytes) | Piece::Rest(bytes) => {
                for value in bytes.chunks_exact(VALUE_BYTES) {
                    self.values.insert(value[0], id(&value[1..]));
                    self.latest = self.latest.max(id(&value[1..]));
                }
            }
            Piece::Hole => self.holes += 1,
            Piece::Entry(_, entry) => {
                let (topic, id) = (entry[0], id(&entry[1..]));
                self.entries.push(id);
                self.latest = self.latest.max(id);
                let value = self.values.entry(topic).or_default();
                *value = id.max(*value);
            }
        }
        Ok(())
    }
}

/// Reads a store, and what it shows.
pub(super) fn read(disk: &SimDisk) -> Result<(Recovered<SimDisk>, Shown), crate::OpenError> {
    let mut shown = Shown::default();
    let recovered = Recovery::open(disk.clone())?.read(&mut |piece, progress| {
        assert!(progress.read <= progress.total);
        shown.take(piece)
    })?;
    Ok((recovered, shown))
}

macro_rules! ensure {
    ($holds:expr, $($told:tt)*) => {
        if !$holds {
            return Err(format!($($told)*));
        }
    };
}
pub(super) use ensure;

impl Oracle {
    pub(super) fn values(&self, count: usize) -> Values {
        self.changes[..count].iter().map(|change| (change.topic, change.id)).collect()
    }

    /// How many changes are shown, if it is a prefix of all.
    pub(super) fn prefix(&self, shown: &Shown) -> Result<usize, String> {
        let found = self.changes.iter().position(|change| change.id == shown.latest);
        let count = match found {
            Some(index) => index + 1,
            None => {
                ensure!(shown.latest == 0, "change {} is there, and should not", shown.latest);
                0
            }
        };
        let (values, wanted) = (&shown.values, self.values(count));
        ensure!(*values == wanted, "not a prefix of {count}: {values:?}, not {wanted:?}");
        let from = count.checked_sub(shown.entries.len());
        let wanted = from.map(|from| self.changes[from..count].iter().map(|change| change.id));
        let is_part = wanted.is_some_and(|wanted| wanted.eq(shown.entries.iter().copied()));
        ensure!(is_part, "entries are missing or twice: {:?}", shown.entries);
        Ok(count)
    }

    /// Judges a start after a power cut or a kill, and goes on from there.
    pub(super) fn judge(
        &mut self,
        recovered: &Recovered<SimDisk>,
        shown: &Shown,
        was_power_cut: bool,
    ) -> Result<(), String> {
        let count = self.prefix(shown)?;
        let wanted = if was_power_cut { self.synced } else { self.written };
        ensure!(count >= wanted, "only {count} of {wanted} that were promised are there");
        let Recovered { last, lost, stored, was_closed, .. } = recovered;
        ensure!(*last >= self.highest, "number {} was given out, {last} is next", self.highest);
        let seq = self.changes[..count].last().map_or(0, |change| change.seq);
        ensure!(*stored >= seq, "{stored} is the last, and {seq} is there");
        if self.epoch.is_some() || recovered.epoch.is_some() {
            ensure!(self.epoch.is_none() || recovered.epoch == self.epoch, "another epoch");
        }
        if self.is_closed {
            ensure!(*was_closed && *last == self.highest, "closed at {}: {last}", self.highest);
        }
        let is_lost = |seq: u64| lost.iter().any(|range| range.contains(&seq));
        for change in self.changes.drain(count..) {
            if change.takes_number {
                self.rolled_back.push(change.seq);
            }
        }
        for &rolled_back in &self.rolled_back {
            ensure!(is_lost(rolled_back), "{rolled_back} was rolled back, not in {lost:?}");
        }
        for change in self.changes.iter().filter(|change| change.takes_number) {
            ensure!(!is_lost(change.seq), "{} is there, and in {lost:?}", change.seq);
        }
        if *was_closed {
            self.noted.clear();
        }
        for &noted in self.noted.iter().filter(|noted| **noted > *stored) {
            ensure!(is_lost(noted), "{noted} was given out, not in {lost:?}");
        }
        // The kernel still has it, and the disk has what it had.
        (self.written, self.synced) = (count, self.synced.min(count));
        self.is_closed = false;
        Ok(())
    }
}
