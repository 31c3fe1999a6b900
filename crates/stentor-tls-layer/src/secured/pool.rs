//! The sessions of a worker, in arrays by their size.
//!
//! Nearly all are the smallest, so an array of its own for each size wastes nothing on those that
//! are not. A freed place is overwritten with zeros and given to the next session.
//!
//! A core dump omits whole pages only. So each array grows by blocks of 64 KiB that are aligned to
//! 16 KiB, and each block is marked. The contexts of a worker lie in aligned memory too. On a host
//! with pages of 64 KiB, the ends of a block can be in a core dump. So can what rustls holds of an
//! active handshake.

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

/// How many sessions of so many bytes fit into a page.
const fn places(bytes: usize) -> usize {
    PAGE_BYTES / bytes
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

/// One page, or several pages, of sessions. A block is made page by page, because the stack of a
/// worker is small.
#[derive(Debug)]
#[repr(align(16384))]
struct SessionPage<const KEYS: usize, const PLACES: usize>([Kept<KEYS>; PLACES]);

/// Sessions of one size.
#[derive(Debug, Default)]
struct Pool<const KEYS: usize, const PLACES: usize> {
    blocks: Vec<Box<[SessionPage<KEYS, PLACES>]>>,
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
        if index as usize >= self.blocks.len() * BLOCK_PAGES * PLACES {
            let page = |_| SessionPage(std::array::from_fn(|_| Kept::vacant()));
            let block: Box<[_]> = (0..BLOCK_PAGES).map(page).collect();
            leave_out_of_dumps(&block);
            self.blocks.push(block);
        }
        if let Some(kept) = self.at(index as usize) {
            kept.take(from);
        }
        index
    }

    fn at(&mut self, index: usize) -> Option<&mut Kept<KEYS>> {
        let page = index / PLACES;
        let block = self.blocks.get_mut(page / BLOCK_PAGES)?;
        block.get_mut(page % BLOCK_PAGES)?.0.get_mut(index % PLACES)
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
        self.blocks.len() * BLOCK_PAGES * PAGE_BYTES + self.free.capacity() * 4
    }
}

const SIZE_SHIFT: u32 = 30;
const INDEX: u32 = (1 << SIZE_SHIFT) - 1;
const SMALL: u32 = 0;
const MEDIUM: u32 = 1;
const LARGE: u32 = 2;

/// The size and the alignment of a [`SessionPage`]: the largest page of common hosts.
const PAGE_BYTES: usize = 16_384;

/// An array grows by a block of so many pages.
const BLOCK_PAGES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_lie_in_whole_pages() {
        fn check<const KEYS: usize, const PLACES: usize>(_: &Pool<KEYS, PLACES>) {
            assert_eq!(align_of::<SessionPage<KEYS, PLACES>>(), PAGE_BYTES);
            assert_eq!(size_of::<SessionPage<KEYS, PLACES>>(), PAGE_BYTES);
            assert!(PAGE_BYTES - PLACES * size_of::<Kept<KEYS>>() < 256, "little is left over");
        }
        let Pools { small, medium, large } = Pools::default();
        check(&small);
        check(&medium);
        check(&large);
    }
}
