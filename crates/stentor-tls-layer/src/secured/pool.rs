//! The sessions of a worker, in arrays by their size.
//!
//! Nearly all are the smallest, so an array of its own for each size wastes nothing on those that
//! are not. A freed place is overwritten with zeros and given to the next session.
//!
//! A core dump omits whole pages only. So each array grows by blocks of 64 KiB, which is a whole
//! number of pages on every host, and each block is marked. The contexts of a worker lie in such
//! blocks too. What rustls holds of a handshake under way can be in a core dump.

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
    small: Pool<{ keys(size_of::<SmallSession>()) }, { places(size_of::<SmallSession>()) }>,
    medium: Pool<{ keys(size_of::<MediumSession>()) }, { places(size_of::<MediumSession>()) }>,
    large: Pool<{ keys(size_of::<LargeSession>()) }, { places(size_of::<LargeSession>()) }>,
}

/// A session has 32 bytes in front of its keys.
const fn keys(bytes: usize) -> usize {
    bytes - 32
}

/// How many sessions of so many bytes a block has room for.
const fn places(bytes: usize) -> usize {
    BLOCK_BYTES / bytes
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

/// Whole pages of sessions.
#[derive(Debug)]
#[repr(align(65536))]
struct Block<const KEYS: usize, const PLACES: usize>([Kept<KEYS>; PLACES]);

/// Sessions of one size.
#[derive(Debug, Default)]
struct Pool<const KEYS: usize, const PLACES: usize> {
    blocks: Vec<Box<Block<KEYS, PLACES>>>,
    free: Vec<u32>,
    /// Places that were ever used.
    used: u32,
}

impl<const KEYS: usize, const PLACES: usize> Pool<KEYS, PLACES> {
    fn insert(&mut self, from: &mut Kept<KEYS>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        if index as usize >= self.blocks.len() * PLACES {
            let block = Box::new(Block(std::array::from_fn(|_| Kept::vacant())));
            leave_out_of_dumps(std::slice::from_ref(&*block));
            self.blocks.push(block);
        }
        self.blocks[index as usize / PLACES].0[index as usize % PLACES].take(from);
        index
    }

    fn at(&mut self, index: usize) -> Option<&mut Kept<KEYS>> {
        self.blocks.get_mut(index / PLACES)?.0.get_mut(index % PLACES)
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
        self.blocks.len() * BLOCK_BYTES + self.free.capacity() * 4
    }
}

const SIZE_SHIFT: u32 = 30;
const INDEX: u32 = (1 << SIZE_SHIFT) - 1;
const SMALL: u32 = 0;
const MEDIUM: u32 = 1;
const LARGE: u32 = 2;

/// An array grows by such a block. Its alignment is the same number.
const BLOCK_BYTES: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_lie_in_whole_pages() {
        fn check<const KEYS: usize, const PLACES: usize>(_: &Pool<KEYS, PLACES>) {
            assert_eq!(align_of::<Block<KEYS, PLACES>>(), BLOCK_BYTES);
            assert_eq!(size_of::<Block<KEYS, PLACES>>(), BLOCK_BYTES);
            assert!(BLOCK_BYTES - PLACES * size_of::<Kept<KEYS>>() < 256, "little is left over");
        }
        let Pools { small, medium, large } = Pools::default();
        check(&small);
        check(&medium);
        check(&large);
    }
}
