//! Contexts for what comes, of connections that have sent something of late.
//!
//! To open a record of TLS 1.3 by its session alone, the key is derived out of the secret each
//! time, which takes longer than all else. Readers send nothing, so this costs them nothing; for
//! those who ask again and again, a worker has a cache of contexts beside its sessions. TLS 1.2
//! keeps its key, and needs none.
//!
//! It is filled by what is received and was authentic, and by nothing that is sent: a message to a
//! million readers leaves it alone. Each context has a few places where it may be, and whoever
//! finds all of these taken has that of which nothing was heard for longest: so the memory of all
//! is bounded, there is hardly anything to search, and a quarter as many connections as there are
//! places seldom take one from each other.
//!
//! A context is found by the secret it was made of, all of it. So it cannot be another
//! connection's, whatever numbers of sockets are used again, and behind a KeyUpdate it is not
//! found. Contexts and secrets are overwritten with zeros when they are dropped.

use std::fmt;
use std::ops::Range;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroizing;

use crate::keys::{CipherFailed, Opener, SECRET_BYTES_MAX};
use crate::session::Session;
use crate::suite::Suite;

/// A cache of contexts, for [`Session::open_with`] and [`crate::Records::next_with`]. A worker has
/// one for all its connections.
pub struct Contexts {
    /// The index of the context in each place.
    places: Vec<Option<u16>>,
    pages: Vec<Box<ContextPage>>,
    free: Vec<u16>,
    mark: fn(&[ContextPage]),
}

/// Memory of contexts: whole pages of hosts with pages of at most 16 KiB, so that a core dump can
/// omit them. It is no larger, because it is made on the stack of a worker.
#[repr(align(16384))]
pub struct ContextPage([Option<Entry>; PAGE_ENTRIES]);

const PAGE_ENTRIES: usize = 16_384 / size_of::<Option<Entry>>();

struct Entry {
    suite: Suite,
    secret: Zeroizing<[u8; SECRET_BYTES_MAX]>,
    opener: Opener,
}

impl Default for Contexts {
    /// No places.
    fn default() -> Contexts {
        Contexts::new(0, |_| ())
    }
}

impl Contexts {
    /// A cache with `places` slots, rounded up to a power of two. A used slot takes about 700
    /// bytes. With 0 slots nothing is cached. `mark` sees each piece of memory before a key is in
    /// it, and can have core dumps omit it.
    #[must_use]
    pub fn new(places: usize, mark: fn(&[ContextPage])) -> Contexts {
        let places = if places == 0 { 0 } else { places.next_power_of_two() };
        Contexts { places: vec![None; places], pages: Vec::new(), free: Vec::new(), mark }
    }

    /// Drops what there is of a session: to be called before its socket is closed, while the
    /// session is there. What is not forgotten so stays until somebody else takes its place.
    pub fn forget(&mut self, session: &mut Session<'_>) {
        if let Some((suite, secret)) = session.secret_of_contexts()
            && let Some(index) = self.take(suite, secret)
        {
            self.release(index);
        }
    }

    /// How many places there are.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// How many places are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// The context of a secret, out of its place or made now. The caller [puts it
    /// back](Contexts::put_back).
    pub(crate) fn find(&mut self, suite: Suite, secret: &[u8]) -> Result<Found, CipherFailed> {
        if let Some(index) = self.take(suite, secret) {
            return Ok(Found::Kept(index));
        }
        let opener = Opener::new(suite, secret)?;
        if self.places.is_empty() {
            return Ok(Found::Passing(Box::new(opener)));
        }
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let unset = Zeroizing::new([0; SECRET_BYTES_MAX]);
        let entry = self.slot(index).insert(Entry { suite, secret: unset, opener });
        entry.secret[..secret.len()].copy_from_slice(secret);
        Ok(Found::Kept(index))
    }

    /// What opens records with a context.
    pub(crate) fn opener<'c>(&'c self, found: &'c Found) -> Option<&'c Opener> {
        match found {
            Found::Kept(index) => Some(&self.entry(*index)?.opener),
            Found::Passing(opener) => Some(opener),
        }
    }

    /// Gives a context its place, if it has opened something authentic and will again.
    pub(crate) fn put_back(&mut self, found: Found, is_kept: bool) {
        let Found::Kept(index) = found else { return };
        let (true, Some(entry)) = (is_kept, self.entry(index)) else { return self.release(index) };
        let places = self.set(entry.secret());
        let set = &mut self.places[places];
        // The one heard of last stands first, and behind a place that is free nothing moves.
        let last = set.iter().position(Option::is_none).unwrap_or(set.len() - 1);
        set[..=last].rotate_right(1);
        if let Some(oldest) = set[0].replace(index) {
            self.release(oldest);
        }
    }

    fn take(&mut self, suite: Suite, secret: &[u8]) -> Option<u16> {
        if self.places.is_empty() {
            return None;
        }
        let place = self.set(secret).find(|&place| {
            self.places[place].and_then(|index| self.entry(index)).is_some_and(|entry| {
                entry.suite == suite && verify_slices_are_equal(entry.secret(), secret).is_ok()
            })
        })?;
        self.places[place].take()
    }

    /// Overwrites a context with zeros.
    fn release(&mut self, index: u16) {
        *self.slot(index) = None;
        self.free.push(index);
    }

    /// Takes memory for more contexts. Returns the index of one.
    fn grow(&mut self) -> u16 {
        let page = Box::new(ContextPage([const { None }; PAGE_ENTRIES]));
        (self.mark)(std::slice::from_ref(&*page));
        let first = self.pages.len() * PAGE_ENTRIES;
        self.pages.push(page);
        self.free.extend((first + 1..first + PAGE_ENTRIES).rev().map(|index| index as u16));
        first as u16
    }

    fn entry(&self, index: u16) -> Option<&Entry> {
        self.pages[usize::from(index) / PAGE_ENTRIES].0[usize::from(index) % PAGE_ENTRIES].as_ref()
    }

    fn slot(&mut self, index: u16) -> &mut Option<Entry> {
        &mut self.pages[usize::from(index) / PAGE_ENTRIES].0[usize::from(index) % PAGE_ENTRIES]
    }

    /// The places where it may be. Which they are says a few bits of the secret, to whoever could
    /// watch the memory; the rest of it is as long as any key.
    fn set(&self, secret: &[u8]) -> Range<usize> {
        let last = secret.last_chunk().expect("a secret has more than four bytes");
        let number = usize::try_from(u32::from_le_bytes(*last)).expect("it fits");
        let places = SET_PLACES.min(self.places.len());
        let first = number & (self.places.len() - places);
        first..first + places
    }
}

/// In so many places a context may be.
const SET_PLACES: usize = 4;

/// A context: its index, or one that has no place.
pub(crate) enum Found {
    Kept(u16),
    Passing(Box<Opener>),
}

impl Entry {
    fn secret(&self) -> &[u8] {
        &self.secret[..self.suite.secret_bytes()]
    }
}

impl fmt::Debug for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Contexts");
        shown
            .field("places", &self.places.len())
            .field("taken", &self.taken())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::IoSlice;

    use super::*;
    use crate::alert::Alert;
    use crate::failure::Failure;
    use crate::keys::OPENERS;
    use crate::memory::Owned;
    use crate::session::{HANDSHAKE, What};
    use crate::testing::{seal, sessions};

    fn open(contexts: &mut Contexts, server: &mut Owned, sealed: &mut [u8]) -> What {
        server.session().open_with(contexts, sealed).unwrap().what
    }

    const TLS13: [Suite; 3] = [Suite::Tls13Aes128, Suite::Tls13Aes256, Suite::Tls13ChaCha];

    #[test]
    fn a_context_serves_its_own_connection_until_that_is_forgotten() {
        for suite in TLS13 {
            let mut contexts = Contexts::new(8, |_| ());
            let mut pairs: Vec<_> = (0..40).map(|_| sessions(suite)).collect();
            for round in 0..3_u8 {
                for (server, client) in &mut pairs {
                    let mut sealed = seal(client, &[round; 9]);
                    let What::Data(range) = open(&mut contexts, server, &mut sealed) else {
                        panic!()
                    };
                    assert_eq!(sealed[range], [round; 9]);
                }
                assert!((1..=8).contains(&contexts.taken()), "all have a place among these");
            }
            for (server, _) in &mut pairs {
                contexts.forget(&mut server.session());
            }
            assert!(contexts.taken() == 0, "{suite:?}");
        }
    }

    /// A core dump can omit whole pages only.
    #[test]
    fn contexts_lie_in_whole_pages_that_were_marked() {
        thread_local! {
            static MARKED: RefCell<Vec<Range<usize>>> = const { RefCell::new(Vec::new()) };
        }
        let mut contexts = Contexts::new(256, |pages| {
            let range = pages.as_ptr().addr()..pages.as_ptr_range().end.addr();
            assert!(range.start.is_multiple_of(16_384) && range.end.is_multiple_of(16_384));
            MARKED.with_borrow_mut(|marked| marked.push(range));
        });
        let mut pairs: Vec<_> = (0..200).map(|_| sessions(Suite::Tls13Aes128)).collect();
        for (server, client) in &mut pairs {
            open(&mut contexts, server, &mut seal(client, b"x"));
        }
        for index in contexts.places.iter().flatten() {
            let at = std::ptr::from_ref(contexts.entry(*index).unwrap()).addr();
            assert!(MARKED.with_borrow(|marked| marked.iter().any(|range| range.contains(&at))));
        }
        let all = contexts.taken() + contexts.free.len();
        assert_eq!(all, contexts.pages.len() * PAGE_ENTRIES, "none is lost");
        assert!(contexts.pages.len() <= 256_usize.div_ceil(PAGE_ENTRIES));
    }

    #[test]
    fn a_context_is_used_again() {
        let mut contexts = Contexts::new(1, |_| ());
        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        let (mut other, mut client_of_other) = sessions(Suite::Tls13Aes128);
        let before = OPENERS.get();
        for text in [b"a", b"b", b"c"] {
            open(&mut contexts, &mut server, &mut seal(&mut client, text));
            assert_eq!(OPENERS.get(), before + 1);
        }
        // Each takes the one place of the other.
        for _ in 0..3 {
            open(&mut contexts, &mut other, &mut seal(&mut client_of_other, b"d"));
            open(&mut contexts, &mut server, &mut seal(&mut client, b"e"));
        }
        assert_eq!(OPENERS.get(), before + 7);
    }

    /// Secrets of these tests end alike, so that all have the same places.
    #[test]
    fn where_all_places_are_taken_the_one_unheard_of_for_longest_goes() {
        let mut contexts = Contexts::new(64, |_| ());
        let mut pairs: Vec<_> = (0..5).map(|_| sessions(Suite::Tls13Aes128)).collect();
        let mut made_for = |order: &[usize]| {
            let before = OPENERS.get();
            for &at in order {
                let (server, client) = &mut pairs[at];
                open(&mut contexts, server, &mut seal(client, b"x"));
            }
            assert!(contexts.taken() <= SET_PLACES);
            OPENERS.get() - before
        };
        assert_eq!(made_for(&[0, 1, 2, 3]), 4);
        assert_eq!(made_for(&[0, 1, 2, 3, 3, 2, 0]), 0);
        assert_eq!(made_for(&[4]), 1);
        assert_eq!(made_for(&[0, 2, 3, 4]), 0);
        assert_eq!(made_for(&[1]), 1);
        assert_eq!(made_for(&[2, 3, 4, 1]), 0);
    }

    #[test]
    fn nothing_that_is_sent_and_nothing_of_tls12_takes_a_place() {
        for suite in Suite::ALL {
            let mut contexts = Contexts::new(4, |_| ());
            let (mut server, mut client) = sessions(suite);
            server.session().seal(&[IoSlice::new(b"x")], 9, &mut [0; 100]).unwrap();
            assert!(contexts.taken() == 0);
            open(&mut contexts, &mut server, &mut seal(&mut client, b"x"));
            assert_eq!(contexts.taken(), usize::from(TLS13.contains(&suite)));
        }
    }

    #[test]
    fn without_places_nothing_is_kept() {
        let mut contexts = Contexts::new(0, |_| ());
        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        open(&mut contexts, &mut server, &mut seal(&mut client, b"x"));
        contexts.forget(&mut server.session());
        assert!(contexts.taken() == 0 && contexts.places.capacity() == 0);
        assert!(contexts.pages.is_empty());
        assert_eq!(Contexts::new(1000, |_| ()).places.len(), 1024);
    }

    #[test]
    fn behind_another_key_the_one_of_before_is_gone() {
        let mut contexts = Contexts::new(64, |_| ());
        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        open(&mut contexts, &mut server, &mut seal(&mut client, b"x"));
        assert_eq!(contexts.taken(), 1);
        let mut update = client.session().seal_any(HANDSHAKE, &[24, 0, 0, 1, 0]);
        assert_eq!(open(&mut contexts, &mut server, &mut update), What::Nothing);
        assert!(contexts.taken() == 0);
    }

    #[test]
    fn what_was_not_authentic_or_is_over_keeps_no_place() {
        let mut contexts = Contexts::new(64, |_| ());
        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        open(&mut contexts, &mut server, &mut seal(&mut client, b"x"));
        let mut sealed = seal(&mut client, b"y");
        sealed[9] ^= 1;
        let failure = server.session().open_with(&mut contexts, &mut sealed);
        assert_eq!(failure, Err(Failure::NotAuthentic));
        assert!(contexts.taken() == 0);

        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        open(&mut contexts, &mut server, &mut seal(&mut client, b"x"));
        let mut out = [0; 100];
        let written = client.session().end(Alert::CloseNotify, &mut out).unwrap();
        assert_eq!(open(&mut contexts, &mut server, &mut out[..written]), What::Closed);
        assert!(contexts.taken() == 0);
    }
}
