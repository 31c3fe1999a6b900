//! The sessions of a worker, in arrays by their size.
//!
//! Nearly all are the smallest, so an array of its own for each size wastes nothing on those that
//! are not. A freed place is overwritten with zeros and given to the next that comes. None of it is
//! found in a core dump.

use stentor_io::leave_out_of_dumps;
use stentor_tls::{Kept, LargeSession, MediumSession, NoSession, Owned, Session, SmallSession};

/// Where a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(u32);

impl Place {
    /// Of a connection that has no session.
    pub(super) const NONE: Place = Place(u32::MAX);

    fn new(size: u32, index: u32) -> Place {
        Place(size << SIZE_SHIFT | index)
    }

    fn size(self) -> u32 {
        self.0 >> SIZE_SHIFT
    }

    fn index(self) -> usize {
        (self.0 & INDEX) as usize
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::NONE
    }
}

/// Sessions of all sizes.
#[derive(Debug, Default)]
pub(super) struct Pools {
    small: Pool<{ keys(size_of::<SmallSession>()) }>,
    medium: Pool<{ keys(size_of::<MediumSession>()) }>,
    large: Pool<{ keys(size_of::<LargeSession>()) }>,
}

/// A session has 32 bytes in front of its keys.
const fn keys(bytes: usize) -> usize {
    bytes - 32
}

impl Pools {
    /// Moves a session in.
    pub(super) fn insert(&mut self, mut session: Owned) -> Place {
        match &mut session {
            Owned::Small(from) => Place::new(SMALL, self.small.insert(from)),
            Owned::Medium(from) => Place::new(MEDIUM, self.medium.insert(from)),
            Owned::Large(from) => Place::new(LARGE, self.large.insert(from)),
        }
    }

    /// The session at a place that was given.
    pub(super) fn session(&mut self, place: Place) -> Option<Session<'_>> {
        match place.size() {
            SMALL => Some(self.small.at(place.index())?.session()),
            MEDIUM => Some(self.medium.at(place.index())?.session()),
            LARGE => Some(self.large.at(place.index())?.session()),
            _ => None,
        }
    }

    /// Appends a copy of a session, which is not to seal any more until it is known that nobody
    /// goes on with the copy.
    pub(super) fn copy_packed(&mut self, place: Place, out: &mut Vec<u8>) -> Result<(), NoSession> {
        let index = place.index();
        match place.size() {
            SMALL => self.small.at(index).ok_or(NoSession)?.copy_packed(out),
            MEDIUM => self.medium.at(index).ok_or(NoSession)?.copy_packed(out),
            LARGE => self.large.at(index).ok_or(NoSession)?.copy_packed(out),
            _ => Err(NoSession),
        }
    }

    /// Ends a session, if there is one.
    pub(super) fn remove(&mut self, place: Place) {
        match place.size() {
            SMALL => self.small.remove(place.index()),
            MEDIUM => self.medium.remove(place.index()),
            LARGE => self.large.remove(place.index()),
            _ => {}
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.small.count() + self.medium.count() + self.large.count()
    }

    /// What they take, with what is free between them.
    pub(super) fn bytes(&self) -> usize {
        self.small.bytes() + self.medium.bytes() + self.large.bytes()
    }
}

/// Sessions of one size.
#[derive(Debug, Default)]
struct Pool<const KEYS: usize> {
    chunks: Vec<Box<[Kept<KEYS>]>>,
    free: Vec<u32>,
    /// Places that were ever used.
    used: u32,
}

impl<const KEYS: usize> Pool<KEYS> {
    fn insert(&mut self, from: &mut Kept<KEYS>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        if index as usize >= self.chunks.len() * CHUNK {
            let chunk: Box<[Kept<KEYS>]> =
                std::iter::repeat_with(Kept::vacant).take(CHUNK).collect();
            leave_out_of_dumps(&chunk);
            self.chunks.push(chunk);
        }
        self.chunks[index as usize / CHUNK][index as usize % CHUNK].take(from);
        index
    }

    fn at(&mut self, index: usize) -> Option<&mut Kept<KEYS>> {
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    fn remove(&mut self, index: usize) {
        if let Some(kept) = self.at(index) {
            kept.wipe();
            self.free.push(index as u32);
        }
    }

    fn count(&self) -> usize {
        self.used as usize - self.free.len()
    }

    fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Kept<KEYS>>() + self.free.capacity() * 4
    }
}

const SIZE_SHIFT: u32 = 30;
const INDEX: u32 = (1 << SIZE_SHIFT) - 1;
const SMALL: u32 = 0;
const MEDIUM: u32 = 1;
const LARGE: u32 = 2;

/// How many sessions an array grows by.
const CHUNK: usize = 512;
