//! A snapshot on its way to a follower: the hub a slice at a time, then what came meanwhile.

use super::Next;
use super::ring::{CHUNK_HEAD_BYTES, Lost, Place, Ring, end_chunk, frame_in};
use stentor_hub::{Filter, Hub, Snapshot, entry_topic};
use stentor_log::SnapshotEncoder;

/// How far it is.
pub(super) struct SnapshotCopy {
    slices: Snapshot,
    /// `None` once it has ended.
    encoder: Option<SnapshotEncoder>,
    stage: SnapshotStage,
    /// The first chunk, until it was sent.
    first: Vec<u8>,
    /// Used again and again.
    slice: Vec<u8>,
    /// What came since it began is behind this place.
    place: Place,
}

#[derive(Clone, Copy)]
enum SnapshotStage {
    Slices,
    /// What came meanwhile, up to this number at least.
    Entries(u64),
    End(u64),
}

impl SnapshotCopy {
    /// Begins one. Whatever is ordered from now on will be in the ring behind `place`.
    pub(super) fn begin(hub: &Hub, filters: Box<[Filter]>, place: Place) -> SnapshotCopy {
        let (mut begin, mut first) = (Vec::new(), vec![0; CHUNK_HEAD_BYTES]);
        let slices = Snapshot::begin_of(hub, filters, &mut begin);
        let (epoch, lost) = (hub.epoch().number(), hub.rolled_back());
        let mut encoder = SnapshotEncoder::begin(epoch, slices.seq(), lost, &mut first);
        encoder.payload(&begin, &mut first);
        end_chunk(&mut first, 0);
        let encoder = Some(encoder);
        SnapshotCopy {
            slices,
            encoder,
            stage: SnapshotStage::Slices,
            first,
            slice: Vec::new(),
            place,
        }
    }

    /// The number at which it began.
    pub(super) fn seq(&self) -> u64 {
        self.slices.seq()
    }

    /// What it takes in memory, roughly.
    pub(super) fn own_bytes(&self) -> usize {
        size_of::<SnapshotCopy>() + self.first.capacity() + self.slice.capacity()
    }

    /// Appends the next chunk.
    pub(super) fn next(
        &mut self,
        hub: &Hub,
        ring: &Ring,
        filters: &[Filter],
        out: &mut Vec<u8>,
    ) -> Next {
        if !self.first.is_empty() {
            let bytes = self.first.len();
            // Its room is not needed any more.
            out.extend(std::mem::take(&mut self.first));
            return Next::Sent(bytes);
        }
        let at = out.len();
        out.resize(at + CHUNK_HEAD_BYTES, 0);
        let next = self.append(hub, ring, filters, out);
        if out.len() == at + CHUNK_HEAD_BYTES || !matches!(next, Next::Sent(_)) {
            out.truncate(at);
        } else {
            end_chunk(out, at);
        }
        next
    }

    fn append(&mut self, hub: &Hub, ring: &Ring, filters: &[Filter], out: &mut Vec<u8>) -> Next {
        let SnapshotCopy { slices, encoder, stage, slice, place, .. } = self;
        let Some(open) = encoder else { return Next::Over };
        match *stage {
            SnapshotStage::Slices => {
                slice.clear();
                match slices.write_slice(hub, slice) {
                    Ok(true) => {}
                    // Whatever was found in a topic has its number by now.
                    Ok(false) => *stage = SnapshotStage::Entries(hub.id(hub.notified_seq()).seq),
                    Err(too_long) => {
                        tracing::error!("a snapshot is not sent: {too_long}");
                        return Next::Changed;
                    }
                }
                open.payload(slice, out);
                Next::Sent(SLICE_COST * (1 + filters.len()) + slice.len())
            }
            SnapshotStage::Entries(upto) => match ring.at(*place) {
                Err(Lost) => Next::TooSlow,
                // It is told of, and not taken in yet.
                Ok(None) if ring.upto() < upto => Next::Later,
                Ok(None) => {
                    *stage = SnapshotStage::End(upto);
                    Next::Sent(0)
                }
                Ok(Some(part)) => {
                    let records = frame_in(part.chunk).records();
                    let begin = slices.seq();
                    let records = records.filter(|(seq, entry)| match entry_topic(entry) {
                        Ok(Some(topic)) => *seq > begin && is_meant(filters, topic),
                        _ => true,
                    });
                    // A ring that was behind has rules with a number of before.
                    open.entries(records.map(|(seq, entry)| (seq.max(begin), entry)), out);
                    if part.upto >= upto {
                        *stage = SnapshotStage::End(part.upto);
                    }
                    *place = part.next;
                    Next::Sent(part.chunk.len())
                }
            },
            SnapshotStage::End(upto) => {
                encoder.take().into_iter().for_each(|encoder| encoder.end(upto, out));
                Next::Sent(0)
            }
        }
    }
}

/// Whether a topic is one of those that are asked for.
pub(super) fn is_meant(filters: &[Filter], topic: &str) -> bool {
    filters.is_empty() || filters.iter().any(|filter| filter.matches(topic))
}

/// What it costs to look for a slice with each of the filters, whatever is in it.
const SLICE_COST: usize = 4 * 1024;
