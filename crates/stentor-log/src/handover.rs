//! How another process continues a store: the heads of the files say what is in it, and the process
//! before says in a few numbers where it ends.

use crate::damage::OpenError;
use crate::head::{Cut, Layout};
use crate::recovery::{Recovered, Recovery, Tail};
use stentor_io::Disk;

/// Where a store ends that its process no longer writes to. All before this is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tip {
    /// The number of the newest segment.
    pub segment: u64,
    /// The offset in it.
    pub end: u64,
    /// The last number that was given out.
    pub last: u64,
    /// A frame on the disk reserves the numbers up to this one.
    pub reserved: u64,
}

impl<D: Disk> Recovery<D> {
    /// Continues a store without reading its entries, which the caller has. `tip` is the word of
    /// the process before, which has stopped writing.
    ///
    /// # Errors
    /// The files end before `tip`, or `tip` names another segment.
    pub fn continue_at(self, tip: Tip) -> Result<Recovered<D>, OpenError> {
        let Tip { segment, end, last, reserved } = tip;
        let newest = self.segments.last().filter(|part| part.number == segment);
        let Some(newest) = newest.filter(|part| (part.begin..=part.bytes).contains(&end)) else {
            let file = crate::head::name(crate::head::LOG, segment);
            let reason = "the process before ended the store here".to_owned();
            return Err(OpenError::Refused { file, offset: end, reason });
        };
        let (lost, epoch) = (newest.head.iter().flat_map(|head| head.lost.clone()), self.epoch());
        let closed = self.segments.iter().filter(|part| part.number != segment);
        let closed = closed.filter_map(|part| Some(Cut { number: part.number, end: part.end? }));
        let base = self.snapshot.as_ref();
        Ok(Recovered {
            epoch,
            begins_life: false,
            stored: last,
            last,
            reserved: reserved.max(last),
            lost: lost.collect(),
            copied: 0,
            torn: None,
            was_closed: true,
            damages: Vec::new(),
            is_view: false,
            layout: Layout {
                highest: self.highest,
                stale_bytes: self.stale_bytes,
                base: base.map_or_else(Cut::default, |it| Cut { number: it.number, end: it.bytes }),
                closed: closed.collect(),
                cut: Cut { number: segment, end },
            },
            appends_to: None,
            mark: self.mark,
            tail: Tail::default(),
            disk: self.disk,
        })
    }
}
