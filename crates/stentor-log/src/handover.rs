//! What is known of a store that was closed, as bytes: for another process that goes on with it and
//! does not want to read it first.
//!
//! Whoever goes on cuts off and removes what these bytes say is of no use. So they are believed
//! only if they are possible, and if the files are there that they speak of, as long as they say.

use crate::head::{self, Cut, LOST_MAX, Layout};
use crate::recovery::{Recovered, Tail};
use std::ops::RangeInclusive;
use stentor_io::Disk;

impl<D: Disk> Recovered<D> {
    /// What [`Store::close`](crate::Store::close) found, as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Layout { highest, stale_bytes, base, closed, cut } = &self.layout;
        let mut numbers = vec![FORMAT, u64::from(self.epoch.unwrap_or_default()), self.last];
        numbers.extend([highest, stale_bytes, &base.number, &base.end, &cut.number, &cut.end]);
        numbers.push(self.lost.len() as u64);
        numbers.extend(self.lost.iter().flat_map(|range| [*range.start(), *range.end()]));
        numbers.extend(closed.iter().flat_map(|cut| [cut.number, cut.end]));
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
        let closed = closed.iter().map(|&[number, end]| Cut { number, end }).collect();
        let (base, cut) = (Cut { number: base, end: base_bytes }, Cut { number, end });
        let layout = Layout { highest, stale_bytes, base, closed, cut };
        let epoch = u32::try_from(epoch).map_err(|_| UNKNOWN)?;
        let lost = lost.iter().map(|&[first, last]| first..=last).collect();
        let files = disk.list().map_err(|_| "The disk does not say what is on it.")?;
        let closed = Recovered::of_closed(disk, epoch, last, lost, layout);
        let is_it = closed.is_possible() && closed.layout.fits(&files);
        is_it.then_some(closed).ok_or("This is not how the store on the disk was closed.")
    }

    /// What a start finds of a store that was closed in order.
    pub(crate) fn of_closed(
        disk: D,
        epoch: u32,
        last: u64,
        lost: Vec<RangeInclusive<u64>>,
        layout: Layout,
    ) -> Recovered<D> {
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
            is_view: false,
            layout,
            tail: Tail::default(),
        }
    }

    /// The disk that it is on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Whether a store can have been closed like this.
    fn is_possible(&self) -> bool {
        let Recovered { last, lost, layout, .. } = self;
        let Layout { highest, stale_bytes, base, closed, cut } = layout;
        let sizes = layout.segments().map(|cut| cut.end).chain([*stale_bytes, base.end]);
        let mut lost_before = 0;
        let are_apart = lost.iter().all(|range| {
            let before = std::mem::replace(&mut lost_before, *range.end());
            before < *range.start() && range.start() <= range.end()
        });
        are_apart
            && lost.len() <= LOST_MAX
            && lost_before.max(*last).max(*highest) < NUMBER_MAX
            && layout.segments().is_sorted_by(|a, b| a.number < b.number)
            && cut.number <= *highest
            && base.number <= *highest
            && closed.iter().all(|cut| cut.number >= base.number.max(1))
            && sizes.max().is_none_or(|bytes| bytes < NUMBER_MAX)
    }
}

impl Layout {
    /// Whether these files, with their sizes, may be those of the store.
    fn fits(&self, files: &[(String, u64)]) -> bool {
        let size = |word: &str, number: u64| {
            let is_it = |name: &str| head::number(word, name) == Some(number);
            files.iter().find(|(name, _)| is_it(name)).map(|(_, bytes)| *bytes)
        };
        let is_there =
            |cut: &Cut| size(head::LOG, cut.number).is_some_and(|bytes| bytes >= cut.end);
        let Cut { number, end } = self.base;
        let has_base = number == 0 || size(head::SNAPSHOT, number) == Some(end);
        has_base && self.segments().all(is_there)
    }
}

/// Numbers are smaller: no store lives so long, and whatever is added to them is a number.
const NUMBER_MAX: u64 = 1 << 60;

const FORMAT: u64 = 1;

const UNKNOWN: &str = "These bytes do not say how a store was closed.";
