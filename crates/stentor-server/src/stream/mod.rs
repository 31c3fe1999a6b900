//! Streams, as far as they are not a connection's own: who reads what, what is due to whom.
//!
//! A reader is a cursor: the number of the last message it has seen. What it is sent comes from the
//! worker's log (`feeds`), gathered into batches that many readers share (`batch`), or, if its
//! cursor is older than the log, from the hub's history (`replay`). How it is sent is up to the
//! transports; when, to the connection (`connection/reader.rs`).

pub(crate) mod batch;
pub(crate) mod feeds;
pub(crate) mod format;
pub(crate) mod replay;
pub(crate) mod walks;

use crate::pressure::Pressure;
use crate::stream::batch::Forms;
use crate::stream::feeds::FeedId;
use crate::stream::format::Transport;
use stentor_access::Grant;
use stentor_hub::{Filter, Hub, Id, Mode, StreamForm};
use stentor_wire::negotiate::cursor_in_tag;
use stentor_wire::notice::{self, GapReason};
use stentor_wire::pack::{self, Packed, Packer, Unpacked, Unpacker};
use stentor_wire::packed;

/// The transport of a reader, and the traits of its messages, in three bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReaderTraits {
    pub(crate) transport: Transport,
    /// The window it inflates the frames of a WebSocket with, in bits (RFC 7692 section 7.1.2); 0
    /// if it does not.
    pub(crate) window_bits: u8,
    bits: u8,
}

/// A stream that is about to begin: its answer's head is written.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) traits: ReaderTraits,
    /// Everything up to this number was seen.
    pub(crate) cursor: u64,
    pub(crate) filters: Vec<Filter>,
    pub(crate) start: Start,
    /// The token that it takes.
    pub(crate) grant: Option<Grant>,
    /// Patterns of which not all topics may be seen.
    pub(crate) part: Vec<Filter>,
    /// What of it is not sent, as a JSON object.
    pub(crate) access: Option<Box<str>>,
}

/// Where a reader begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// With the current values.
    Values,
    /// With all that history has.
    Earliest,
    /// After what it has seen before.
    After(u64),
    /// With the current values, and the word that something may be missing before them: the cursor
    /// it named is none of ours.
    Gap(Gap),
}

/// Why messages are missing, and the cursor behind which they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gap {
    pub(crate) reason: GapReason,
    /// Unknown if the reader named none that can be read.
    pub(crate) since: Option<Id>,
}

/// The window of deflated frames that many readers share.
const WINDOW_BITS: u8 = 15;

/// The cursor of a reader that wants all there is, and that of a reader that wants only what comes.
/// No id looks like them.
const EARLIEST: &[u8] = b"earliest";
const NOW: &[u8] = b"now";

/// Stands for more than one feed, or none.
pub(crate) const MANY: FeedId = FeedId::MAX;

packed!(enum Start { 0 => Values, 1 => After(seq), 2 => Gap(gap), 3 => Earliest });

impl Packed for ReaderTraits {
    const FORMAT: u64 = pack::format(
        "ReaderTraits enveloped window_bits commands owes_pong has_pass partial",
        &[Transport::FORMAT, Mode::FORMAT],
    );

    fn pack(&self, out: &mut Packer) {
        self.transport.pack(out);
        self.mode().pack(out);
        self.has(ENVELOPED).pack(out);
        self.window_bits.pack(out);
        for bit in [COMMANDS, OWES_PONG, HAS_PASS, PARTIAL] {
            self.has(bit).pack(out);
        }
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<ReaderTraits> {
        let (transport, mode) = (Transport::unpack(input)?, Mode::unpack(input)?);
        let mut traits = ReaderTraits::new(transport, mode, bool::unpack(input)?);
        traits.window_bits = u8::unpack(input)?;
        for bit in [COMMANDS, OWES_PONG, HAS_PASS, PARTIAL] {
            traits.set(bit, bool::unpack(input)?);
        }
        let is_socket = matches!(transport, Transport::WebSocket | Transport::Echo);
        let has_features = traits.window_bits != 0 || traits.has(COMMANDS | OWES_PONG);
        // mutation: socket-of-events
        if has_features && !is_socket { Err(pack::MISFIT) } else { Ok(traits) }
    }
}

impl Packed for Gap {
    const FORMAT: u64 = pack::format("Gap reason since", &[Option::<Id>::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        let Gap { reason, since } = self;
        reason.name().to_owned().pack(out);
        since.pack(out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Gap> {
        let reason = String::unpack(input)?;
        let known = GapReason::ALL.into_iter().find(|known| known.name() == reason);
        let reason = known.ok_or(pack::UNKNOWN)?;
        Ok(Gap { reason, since: Option::unpack(input)? })
    }
}

impl ReaderTraits {
    pub(crate) fn new(transport: Transport, mode: Mode, is_enveloped: bool) -> ReaderTraits {
        let bits = match mode {
            Mode::ByRule => 0,
            Mode::Latest => LATEST,
            Mode::All => ALL,
        };
        let mut traits = ReaderTraits { transport, window_bits: 0, bits };
        traits.set(ENVELOPED, is_enveloped);
        traits
    }

    pub(crate) fn mode(self) -> Mode {
        match self.bits & (LATEST | ALL) {
            LATEST => Mode::Latest,
            ALL => Mode::All,
            _ => Mode::ByRule,
        }
    }

    pub(crate) fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    pub(crate) fn set(&mut self, bit: u8, is_so: bool) {
        self.bits = if is_so { self.bits | bit } else { self.bits & !bit };
    }

    /// The forms its messages are sent in.
    pub(crate) fn forms(self) -> Forms {
        let (plain, deflated) = self.transport.manner().forms[usize::from(self.has(ENVELOPED))];
        // Shared frames are deflated with the largest window: a smaller one cannot take them.
        let takes_all = |_: &StreamForm| self.window_bits == WINDOW_BITS;
        Forms { plain, deflated: deflated.filter(takes_all) }
    }

    /// Sets what a WebSocket has agreed on.
    pub(crate) fn set_socket(&mut self, window_bits: u8, commands: bool) {
        self.window_bits = window_bits;
        self.set(COMMANDS, commands);
    }
}

// The bits of `ReaderTraits`.
const LATEST: u8 = 1;
const ALL: u8 = 2;
/// Messages come with the name of their topic.
pub(crate) const ENVELOPED: u8 = 4;
/// It was let in by a token, of which the worker knows the rest.
pub(crate) const HAS_PASS: u8 = 8;
/// It reads a pattern of which it may not see all topics, and was told so.
pub(crate) const PARTIAL: u8 = 16;
/// It may subscribe and unsubscribe while connected.
pub(crate) const COMMANDS: u8 = 32;
/// It was sent a ping and has not given a sign of life since.
pub(crate) const OWES_PONG: u8 = 64;

impl Start {
    /// What a reader means by the cursor it names; an empty one is none.
    pub(crate) fn parse(hub: &Hub, cursor: Option<&[u8]>) -> Start {
        let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else {
            return Start::Values;
        };
        if cursor == EARLIEST {
            return Start::Earliest;
        }
        if cursor == NOW {
            return Start::After(hub.seq());
        }
        let text = std::str::from_utf8(cursor).ok();
        let id = text.and_then(|text| cursor_in_tag(text).parse::<Id>().ok());
        match id {
            None => Start::Gap(Gap { reason: GapReason::CursorInvalid, since: None }),
            Some(id) => Start::behind(hub, id),
        }
    }

    /// Behind the message of this id, if there may be one.
    fn behind(hub: &Hub, id: Id) -> Start {
        let gap = |reason| Start::Gap(Gap { reason, since: Some(id) });
        let Some(number) = hub.number(id) else { return gap(GapReason::EpochChanged) };
        // A message can be read a moment before its number is the latest: only who holds the lock
        // knows. And where the order is made elsewhere, who comes from there may be ahead.
        let is_ahead = || number > hub.seq() && number > hub.notified_seq();
        if is_ahead() && !hub.may_come(number) {
            return gap(GapReason::CursorAhead);
        }
        if hub.was_rolled_back(number) {
            return gap(GapReason::RolledBack);
        }
        Start::After(number)
    }

    /// The same once the sequence may have begun anew: a number of before means as little as a
    /// cursor of another server.
    pub(crate) fn in_life_of(self, hub: &Hub) -> Start {
        match self {
            Start::After(number) if hub.is_of_past_life(number) => {
                Start::Gap(Gap { reason: GapReason::EpochChanged, since: Some(hub.id(number)) })
            }
            // A leader may have lost what was read here since.
            Start::After(number) if hub.is_following() && hub.was_rolled_back(number) => {
                Start::Gap(Gap { reason: GapReason::RolledBack, since: Some(hub.id(number)) })
            }
            other => other,
        }
    }

    /// The same while memory is so short: what was missed is not brought any more, only what there
    /// is now.
    pub(crate) fn under(self, pressure: Pressure, hub: &Hub) -> Start {
        let since = match self {
            _ if pressure == Pressure::None => return self,
            Start::After(seq) if seq < hub.notified_seq() => Some(hub.id(seq)),
            Start::Earliest => None,
            other => return other,
        };
        Start::Gap(Gap { reason: GapReason::MemoryPressure, since })
    }

    /// Whether the reader names a cursor that cannot be read.
    pub(crate) fn is_invalid(self) -> bool {
        matches!(self, Start::Gap(Gap { reason: GapReason::CursorInvalid, .. }))
    }

    /// Whether the reader names something that it has seen, here or elsewhere.
    pub(crate) fn is_named(self) -> bool {
        matches!(self, Start::After(_) | Start::Gap(_))
    }
}

impl Gap {
    /// The notice of it.
    pub(crate) fn notice(&self) -> String {
        let since = self.since.map(Id::text);
        notice::gap(self.reason, since.as_ref().map(|id| id.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{Draft, Epoch, Limits, Precondition};
    use stentor_wire::target::TopicName;

    fn hub(epoch: u32) -> Hub {
        let hub = Hub::new(Epoch::from_number(epoch), Vec::new(), Limits::default());
        let topic = TopicName::parse("/a").unwrap();
        hub.publish(topic, Draft::new(*b"x"), Precondition::None, 1).unwrap();
        hub
    }

    fn gap(reason: GapReason, since: &str) -> Start {
        Start::Gap(Gap { reason, since: Some(since.parse().unwrap()) })
    }

    /// Older releases pack the traits of a reader in these bytes.
    #[test]
    fn a_reader_keeps_its_bytes() {
        let of = |transport, mode, has_pass: bool| {
            let mut traits = ReaderTraits::new(transport, mode, !has_pass);
            traits.set(HAS_PASS, has_pass);
            traits
        };
        let mut socket = of(Transport::WebSocket, Mode::All, true);
        socket.set_socket(15, true);
        let mut pinged = of(Transport::Echo, Mode::Latest, false);
        pinged.set(OWES_PONG, true);
        for (traits, bytes) in [
            (of(Transport::Sse, Mode::ByRule, false), [0, 2, 1, 0, 0, 0, 0, 0]),
            (socket, [1, 1, 0, 15, 1, 0, 1, 0]),
            (pinged, [2, 0, 1, 0, 0, 1, 0, 0]),
            (of(Transport::LongPoll, Mode::ByRule, true), [3, 2, 0, 0, 0, 0, 1, 0]),
        ] {
            let mut out = Packer::new(0);
            traits.pack(&mut out);
            assert_eq!(out.into_bytes(), bytes, "{traits:?}");
            assert_eq!(ReaderTraits::unpack(&mut Unpacker::new(&bytes, 0)), Ok(traits));
        }
        // A stream of events has no WebSocket that could be inflated.
        let bytes = [0, 2, 1, 15, 0, 0, 0, 0];
        let unpacked = ReaderTraits::unpack(&mut Unpacker::new(&bytes, 0));
        assert_eq!(unpacked, Err(pack::MISFIT));
    }

    #[test]
    fn who_comes_from_a_server_that_is_further_on_waits() {
        let hub = hub(1);
        let start = |cursor: &str| Start::parse(&hub, Some(cursor.as_bytes()));
        assert_eq!(start("00000001-1"), Start::After(1));
        assert_eq!(start("00000001-5"), gap(GapReason::CursorAhead, "00000001-5"));
        hub.begin_following();
        assert_eq!(start("00000001-5"), Start::After(5));
        // A cluster's numbers jump far.
        assert_eq!(start("00000001-99999999999"), Start::After(99_999_999_999));
        assert_eq!(
            start("00000001-999999999999999"),
            gap(GapReason::CursorAhead, "00000001-999999999999999")
        );
        assert_eq!(start("00000002-5"), gap(GapReason::EpochChanged, "00000002-5"));
        let no_number = "00000001-18446744073709551615";
        assert_eq!(start(no_number), gap(GapReason::EpochChanged, no_number));
    }

    #[test]
    fn a_number_of_a_life_that_is_over_is_as_a_cursor_of_another_server() {
        let (hub, other) = (hub(1), hub(2));
        hub.begin_following();
        let ahead = Start::parse(&hub, Some(b"00000001-9"));
        let staged = hub.stage(other.epoch(), false);
        let mut bytes = Vec::new();
        let mut snapshot = stentor_hub::Snapshot::begin(&other, &mut bytes);
        while snapshot.write_slice(&other, &mut bytes).unwrap() {}
        let mut restore = staged.restore();
        restore.read(&bytes).unwrap();
        restore.finish().unwrap();
        hub.adopt(staged).unwrap();
        assert_eq!(Start::After(1).in_life_of(&hub), gap(GapReason::EpochChanged, "00000001-1"));
        assert_eq!(ahead.in_life_of(&hub), gap(GapReason::EpochChanged, "00000001-9"));
        let now = Start::parse(&hub, Some(b"00000002-1"));
        assert_eq!(now, Start::After(hub.seq()));
        assert_eq!(now.in_life_of(&hub), now);
        assert_eq!(
            Start::parse(&hub, Some(b"00000001-1")),
            gap(GapReason::EpochChanged, "00000001-1")
        );
    }

    #[test]
    fn what_a_leader_has_lost_since_is_told_to_who_has_read_it() {
        let hub = hub(1);
        hub.begin_following();
        let read = Start::parse(&hub, Some(b"00000001-3"));
        assert_eq!(read.in_life_of(&hub), Start::After(3));
        hub.follow_rolled_back(&[2..=9]);
        assert_eq!(read.in_life_of(&hub), gap(GapReason::RolledBack, "00000001-3"));
    }
}
