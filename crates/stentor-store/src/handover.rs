//! What is known of a store that was closed, as bytes: for another process that goes on with it and
//! does not want to read it first.

use crate::head::Cut;
use crate::recovery::{Recovered, Tail};
use stentor_io::Disk;

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
    /// One sentence, if these bytes are not what [`Recovered::to_bytes`] makes.
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
        Ok(Recovered {
            disk,
            epoch: Some(u32::try_from(epoch).map_err(|_| UNKNOWN)?),
            begins_life: false,
            stored: last,
            last,
            lost: lost.iter().map(|&[first, last]| first..=last).collect(),
            copied: 0,
            torn: None,
            was_closed: true,
            damages: Vec::new(),
            highest,
            stale_bytes,
            is_view: false,
            base: (base, base_bytes),
            closed: closed.iter().map(|&[number, end]| Cut { number, end }).collect(),
            cut: Cut { number, end },
            tail: Tail::default(),
        })
    }

    /// The disk that it is on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }
}

const FORMAT: u64 = 1;

const UNKNOWN: &str = "These bytes do not say how a store was closed.";
