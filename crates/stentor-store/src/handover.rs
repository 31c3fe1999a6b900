//! What is known of a store that was closed, as bytes: for another process that goes on with it and
//! does not want to read it first.
//!
//! Whoever goes on cuts off and removes what these bytes say is of no use. So they are believed
//! only if they are possible, and if the files are there that they speak of, as long as they say.

use crate::head::{self, Cut, LOST_MAX};
use crate::recovery::{Recovered, Tail};
use std::ops::RangeInclusive;
use stentor_io::Disk;

/// What one who closes a store knows of it. The names are those of [`Recovered`].
pub(crate) struct Closed {
    pub(crate) epoch: u32,
    pub(crate) last: u64,
    pub(crate) lost: Vec<RangeInclusive<u64>>,
    pub(crate) highest: u64,
    pub(crate) stale_bytes: u64,
    pub(crate) base: (u64, u64),
    pub(crate) closed: Vec<Cut>,
    pub(crate) cut: Cut,
}

impl<D: Disk> Recovered<D> {
    /// What [`Store::close`](crate::Store::close) found, as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Cut { number, end } = self.cut;
        let mut numbers = vec![FORMAT, u64::from(self.epoch.unwrap_or_default()), self.last];
        numbers.extend([self.highest, self.stale_bytes, self.base.0, self.base.1, number, end]);
        numbers.push(self.lost.len() as u64);
        numbers.extend(self.lost.iter().flat_map(|range| [*range.start(), *range.end()]));
        numbers.extend(self.closed.iter().flat_map(|cut| [cut.number, cut.end]));
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The same, in the process that goes on. Nobody has written to the disk in between.
    ///
    /// # Errors
    /// One sentence, if these bytes are not what [`Recovered::to_bytes`] makes, or do not fit what
    /// is on the disk.
    pub fn from_bytes(disk: D, bytes: &[u8]) -> Result<Recovered<D>, &'static str> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (known, pairs) = numbers.split_first_chunk::<10>().ok_or(UNKNOWN)?;
        let [format, epoch, last, highest, stale_bytes, base, base_bytes, number, end, lost] =
            *known;
        let (pairs, odd) = pairs.as_chunks::<2>();
        if format != FORMAT || !rest.is_empty() || !odd.is_empty() {
            return Err(UNKNOWN);
        }
        let lost = usize::try_from(lost).map_err(|_| UNKNOWN)?;
        let (lost, closed) = pairs.split_at_checked(lost).ok_or(UNKNOWN)?;
        let closed = Closed {
            epoch: u32::try_from(epoch).map_err(|_| UNKNOWN)?,
            last,
            lost: lost.iter().map(|&[first, last]| first..=last).collect(),
            highest,
            stale_bytes,
            base: (base, base_bytes),
            closed: closed.iter().map(|&[number, end]| Cut { number, end }).collect(),
            cut: Cut { number, end },
        };
        let files = disk.list().map_err(|_| "The disk does not say what is on it.")?;
        if closed.is_possible() && closed.fits(&files) {
            Ok(Recovered::of_closed(disk, closed))
        } else {
            Err(MISFIT)
        }
    }

    /// What a start finds of a store that was closed in order.
    pub(crate) fn of_closed(disk: D, closed: Closed) -> Recovered<D> {
        let Closed { epoch, last, lost, highest, stale_bytes, base, closed, cut } = closed;
        Recovered {
            disk,
            epoch: Some(epoch),
            begins_life: false,
            stored: last,
            last,
            lost,
            copied: 0,
            torn: None,
            was_closed: true,
            damages: Vec::new(),
            highest,
            stale_bytes,
            is_view: false,
            base,
            closed,
            cut,
            tail: Tail::default(),
        }
    }

    /// The disk that it is on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }
}

impl Closed {
    /// Whether a store can have been closed like this.
    fn is_possible(&self) -> bool {
        let Closed { epoch: _, last, lost, highest, stale_bytes, base, closed, cut } = self;
        let segments = || closed.iter().chain([cut]);
        let sizes = segments().map(|cut| cut.end).chain([*stale_bytes, base.1]);
        let mut lost_before = 0;
        let are_apart = lost.iter().all(|range| {
            let before = std::mem::replace(&mut lost_before, *range.end());
            before < *range.start() && range.start() <= range.end()
        });
        are_apart
            && lost.len() <= LOST_MAX
            && lost_before.max(*last).max(*highest) < NUMBER_MAX
            && segments().is_sorted_by(|a, b| a.number < b.number)
            && cut.number <= *highest
            && base.0 <= *highest
            && closed.iter().all(|cut| cut.number >= base.0.max(1))
            && sizes.max().is_none_or(|bytes| bytes < NUMBER_MAX)
    }

    /// Whether these files, with their sizes, may be those of the store.
    fn fits(&self, files: &[(String, u64)]) -> bool {
        let size = |word: &str, number: u64| {
            let is_it = |name: &str| head::number(word, name) == Some(number);
            files.iter().find(|(name, _)| is_it(name)).map(|(_, bytes)| *bytes)
        };
        let is_there =
            |cut: &Cut| size(head::LOG, cut.number).is_some_and(|bytes| bytes >= cut.end);
        let (base, base_bytes) = self.base;
        let has_base = base == 0 || size(head::SNAPSHOT, base) == Some(base_bytes);
        has_base && self.closed.iter().chain([&self.cut]).all(is_there)
    }
}

/// Numbers are smaller: no store lives so long, and whatever is added to them is a number.
const NUMBER_MAX: u64 = 1 << 60;

const FORMAT: u64 = 1;

const UNKNOWN: &str = "These bytes do not say how a store was closed.";

const MISFIT: &str = "This is not how the store on the disk was closed.";
