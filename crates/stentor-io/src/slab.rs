//! The records of a worker's connections, found by the numbers of their peers.
//!
//! The numbers of sockets are dense, so the slab is an array. It grows by chunks that never move:
//! no copying of a million records, no moment with twice the memory. A backend that carries several
//! streams in one socket gives those numbers with the highest bit set. They are dense as well and
//! have an array of their own, which is empty as long as there are none.

/// An array of `T` that grows by chunks, and another for the indices from [`STREAMS_FROM`] on.
#[derive(Debug, Default)]
pub struct Slab<T> {
    arrays: [Vec<Option<Box<[T]>>>; 2],
}

impl<T: Default> Slab<T> {
    /// The record at `index`, if its chunk was ever used.
    pub fn at(&mut self, index: usize) -> Option<&mut T> {
        let chunks = &mut self.arrays[usize::from(index >= STREAMS_FROM)];
        let chunk = index % STREAMS_FROM / CHUNK;
        chunks.get_mut(chunk)?.as_mut()?.get_mut(index % CHUNK)
    }

    /// The same, to be looked at only.
    pub fn get(&self, index: usize) -> Option<&T> {
        let chunks = &self.arrays[usize::from(index >= STREAMS_FROM)];
        chunks.get(index % STREAMS_FROM / CHUNK)?.as_ref()?.get(index % CHUNK)
    }

    /// The record at `index`; the slab grows if need be.
    pub fn grow(&mut self, index: usize) -> &mut T {
        let chunks = &mut self.arrays[usize::from(index >= STREAMS_FROM)];
        let chunk = index % STREAMS_FROM / CHUNK;
        if chunk >= chunks.len() {
            chunks.resize_with(chunk + 1, || None);
        }
        let records = chunks[chunk]
            .get_or_insert_with(|| std::iter::repeat_with(T::default).take(CHUNK).collect());
        &mut records[index % CHUNK]
    }

    /// Whether it has never held a record.
    pub fn is_empty(&self) -> bool {
        self.arrays.iter().all(Vec::is_empty)
    }

    /// Makes room for all records below `end`.
    pub fn reserve(&mut self, end: usize) {
        for index in (0..end).step_by(CHUNK) {
            self.grow(index);
        }
    }

    /// The indices that may hold a record.
    pub fn indices(&self) -> impl Iterator<Item = usize> + use<T> {
        self.indices_from(0)
    }

    /// Those of them that are not below `first`.
    pub fn indices_from(&self, first: usize) -> impl Iterator<Item = usize> + use<T> {
        let [sockets, streams] = self.arrays.each_ref().map(|chunks| chunks.len() * CHUNK);
        (first..sockets).chain(first.max(STREAMS_FROM)..STREAMS_FROM + streams)
    }
}

/// The first of the numbers that are given to streams and not to sockets.
pub const STREAMS_FROM: usize = 1 << 31;

const CHUNK: usize = 512;
