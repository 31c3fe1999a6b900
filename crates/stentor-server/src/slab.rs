//! The records of a worker's connections, found by socket number.
//!
//! Peer numbers are dense, so the slab is an array. It grows by chunks that never move: no
//! copying of a million records, no moment with twice the memory.

/// An array of `T` that grows by chunks.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Option<Box<[T]>>>,
}

impl<T: Default> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { chunks: Vec::new() }
    }

    /// The record at `index`, if its chunk was ever used.
    pub(crate) fn at(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / CHUNK)?.as_mut()?.get_mut(index % CHUNK)
    }

    /// The record at `index`; the slab grows if need be.
    pub(crate) fn grow(&mut self, index: usize) -> &mut T {
        let chunk = index / CHUNK;
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let records = self.chunks[chunk]
            .get_or_insert_with(|| std::iter::repeat_with(T::default).take(CHUNK).collect());
        &mut records[index % CHUNK]
    }

    /// One more than the largest index that may hold a record.
    pub(crate) fn end(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

const CHUNK: usize = 512;
