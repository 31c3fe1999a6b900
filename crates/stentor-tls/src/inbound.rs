//! Records that come in any pieces.
//!
//! What arrives is opened where it is, in the buffer that was lent. Only a record that is not there
//! as a whole is copied, and completed by what arrives next; behind it, nothing is owned any more.
//! So an idle connection costs its session and no more, and one that is not idle a record at most.

use std::ops::Range;

use crate::contexts::Contexts;
use crate::failure::Failure;
use crate::session::{Session, What};

/// What of a connection's records waits for the rest of it.
#[derive(Default, Debug)]
pub struct Inbound {
    bytes: Vec<u8>,
    /// So many of them were used up.
    at: usize,
}

/// Records that are being opened.
///
/// Call [`Records::next`] until there is nothing left, or until enough was had; then
/// [`Records::keep`], whichever it was.
pub struct Records<'a> {
    inbound: &'a mut Inbound,
    arrived: &'a mut [u8],
    /// So many of those were used up.
    at: usize,
}

/// What was in the records.
#[derive(PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// Data of the application, never empty.
    Data(&'a mut [u8]),
    /// The peer has said that nothing more comes.
    Closed,
}

impl Inbound {
    /// Whether nothing waits: then it owns nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What it takes in memory, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// What waits, for another process to go on with.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// What waited in another process.
    #[must_use]
    pub fn of_waiting(bytes: Vec<u8>) -> Inbound {
        Inbound { bytes, at: 0 }
    }

    /// Opens what waits, and then what has arrived. Nothing need have arrived: then it goes on
    /// where it was left.
    pub fn records<'a>(&'a mut self, arrived: &'a mut [u8]) -> Records<'a> {
        Records { inbound: self, arrived, at: 0 }
    }
}

impl Records<'_> {
    /// The next record that says something; `None` if none is there as a whole.
    ///
    /// # Errors
    /// [`Failure`], as [`Session::open`] says.
    pub fn next(&mut self, session: &mut Session<'_>) -> Result<Option<Record<'_>>, Failure> {
        self.next_with(session, &mut Contexts::default())
    }

    /// Likewise, with contexts that may be there from the last time.
    ///
    /// # Errors
    /// As [`Records::next`].
    pub fn next_with(
        &mut self,
        session: &mut Session<'_>,
        contexts: &mut Contexts,
    ) -> Result<Option<Record<'_>>, Failure> {
        let Some((place, range)) = self.find(session, contexts)? else { return Ok(None) };
        let bytes = match place {
            DataPlace::Kept => &mut self.inbound.bytes[range],
            DataPlace::Arrived => &mut self.arrived[range],
            DataPlace::End => return Ok(Some(Record::Closed)),
        };
        Ok(Some(Record::Data(bytes)))
    }

    fn find(
        &mut self,
        session: &mut Session<'_>,
        contexts: &mut Contexts,
    ) -> Result<Option<(DataPlace, Range<usize>)>, Failure> {
        loop {
            let is_kept = self.inbound.at < self.inbound.bytes.len();
            if !is_kept {
                *self.inbound = Inbound::default();
            }
            let (bytes, from) = match is_kept {
                true => (&mut self.inbound.bytes[..], self.inbound.at),
                false => (&mut self.arrived[..], self.at),
            };
            if bytes.len() == from && !session.peer_has_closed() {
                return Ok(None);
            }
            let opened = session.open_with(contexts, &mut bytes[from..])?;
            match is_kept {
                true => self.inbound.at += opened.used,
                false => self.at += opened.used,
            }
            match opened.what {
                What::Data(range) => {
                    let place = if is_kept { DataPlace::Kept } else { DataPlace::Arrived };
                    return Ok(Some((place, from + range.start..from + range.end)));
                }
                What::Closed => return Ok(Some((DataPlace::End, 0..0))),
                What::Nothing => {}
                What::Incomplete { needs } if is_kept => {
                    let missing = needs - (self.inbound.bytes.len() - from);
                    let rest = &self.arrived[self.at..];
                    let taken = missing.min(rest.len());
                    if taken == 0 {
                        return Ok(None);
                    }
                    self.inbound.bytes.extend_from_slice(&rest[..taken]);
                    self.at += taken;
                }
                What::Incomplete { .. } => return Ok(None),
            }
        }
    }

    /// Keeps what was not used up: the beginning of a record, and whatever was left alone.
    pub fn keep(self) {
        let inbound = self.inbound;
        inbound.bytes.drain(..inbound.at);
        inbound.at = 0;
        inbound.bytes.extend_from_slice(&self.arrived[self.at..]);
        // What is left may wait for long, and may have been much.
        if inbound.bytes.capacity() > 2 * inbound.bytes.len() {
            // mutation: inbound-memory
            inbound.bytes.shrink_to_fit();
        }
    }
}

/// Where data stands.
enum DataPlace {
    Kept,
    Arrived,
    /// There is none, and none will come.
    End,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::alert::Alert;
    use crate::memory::Owned;
    use crate::suite::Suite;
    use crate::testing::{seal, sessions};

    /// Brings what was sent in pieces of these sizes, and takes so many records of each.
    fn receive(
        session: &mut Owned,
        sent: &[u8],
        sizes: &[usize],
        at_once: usize,
    ) -> (Vec<u8>, bool, usize) {
        let (mut inbound, mut data, mut closed, mut most) =
            (Inbound::default(), Vec::new(), false, 0);
        let mut sent = sent.to_vec();
        let mut rest = &mut sent[..];
        let mut sizes = sizes.iter().cycle();
        loop {
            let size = (*sizes.next().unwrap()).min(rest.len());
            let is_last = rest.is_empty();
            let (piece, behind) = rest.split_at_mut(size);
            rest = behind;
            let mut records = inbound.records(piece);
            let mut taken = 0;
            while taken < at_once || is_last {
                match records.next(&mut session.session()).unwrap() {
                    Some(Record::Data(bytes)) => data.extend_from_slice(bytes),
                    Some(Record::Closed) => {
                        closed = true;
                        break;
                    }
                    None => break,
                }
                taken += 1;
            }
            records.keep();
            most = most.max(inbound.len());
            if is_last {
                return (data, closed, most);
            }
        }
    }

    proptest! {
        #[test]
        fn records_come_as_they_were_sent_however_they_are_split(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            sizes in prop::collection::vec(1_usize..200, 1..5),
            at_once in 1_usize..4,
            suite in prop::sample::select(Suite::ALL.to_vec()),
        ) {
            let (mut server, mut client) = sessions(suite);
            let mut sent: Vec<u8> =
                texts.iter().flat_map(|text| seal(&mut client, text)).collect();
            let mut out = [0; 100];
            let written = client.session().end(Alert::CloseNotify, &mut out).unwrap();
            sent.extend_from_slice(&out[..written]);
            let (data, closed, _) = receive(&mut server, &sent, &sizes, at_once);
            prop_assert_eq!(data, texts.concat());
            prop_assert!(closed);
        }
    }

    #[test]
    fn what_waits_is_less_than_a_record_and_then_nothing() {
        let (mut server, mut client) = sessions(Suite::Tls13Aes128);
        let sent = seal(&mut client, &[7; 5000]);
        let (data, _, most) = receive(&mut server, &sent, &[1], 1);
        assert_eq!((data.len(), most), (5000, sent.len() - 1));

        let sent = seal(&mut client, b"abc");
        let mut inbound = Inbound::default();
        let (first, second) = sent.split_at(9);
        let mut first = first.to_vec();
        let mut records = inbound.records(&mut first);
        assert_eq!(records.next(&mut server.session()), Ok(None));
        records.keep();
        assert_eq!(inbound.len(), 9);
        let mut second = second.to_vec();
        let mut records = inbound.records(&mut second);
        assert_eq!(
            records.next(&mut server.session()),
            Ok(Some(Record::Data(&mut b"abc".to_vec())))
        );
        records.keep();
        assert!(inbound.is_empty() && inbound.bytes.capacity() == 0);
    }

    #[test]
    fn a_record_that_is_too_long_is_refused_before_it_is_there() {
        let (mut server, _) = sessions(Suite::Tls13Aes128);
        let mut inbound = Inbound::default();
        let mut head = [23, 3, 3, 0xff, 0xff];
        let mut records = inbound.records(&mut head);
        assert_eq!(records.next(&mut server.session()), Err(Failure::RecordTooLong));
    }

    #[test]
    fn what_is_kept_takes_no_more_than_twice_its_length() {
        let (mut server, mut client) = sessions(Suite::ALL[0]);
        let mut sent: Vec<u8> = (0..100).flat_map(|_| seal(&mut client, &[7; 500])).collect();
        let mut inbound = Inbound::default();
        inbound.records(&mut sent).keep();
        let all = inbound.held_bytes();
        assert!(all >= 50_000);
        let mut records = inbound.records(&mut []);
        for _ in 0..99 {
            records.next(&mut server.session()).unwrap().unwrap();
        }
        records.keep();
        assert!(inbound.len() > 500 && inbound.held_bytes() <= 2 * inbound.len());
        let mut records = inbound.records(&mut []);
        records.next(&mut server.session()).unwrap().unwrap();
        records.keep();
        assert_eq!(inbound.held_bytes(), 0);
    }

    #[test]
    fn held_bytes_are_those_that_are_allocated() {
        let mut bytes = Vec::with_capacity(1_000);
        bytes.extend_from_slice(b"abc");
        assert!(Inbound::of_waiting(bytes).held_bytes() >= 1_000);
    }
}
