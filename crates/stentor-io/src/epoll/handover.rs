//! An epoll backend that goes over to another process, with every connection, and comes to no harm
//! if it does not.
//!
//! The descriptors keep their numbers: the numbers name the connections, and the epoll set itself
//! is passed, which knows them by number. What it has reported and what it will report is not lost
//! then, and nothing has to be registered anew. A descriptor that is passed gets the lowest number
//! that is free. So both processes have every number below [`Epoll::keep_numbers`] taken, and all
//! above it are passed in ascending order, with something to hold the place where there is a hole.
//!
//! Sockets are sent while this process serves on. Whatever opens or closes meanwhile at a number
//! that was sent is noted, and sent once more at the end, while it stands still. A socket that the
//! other process has too is not closed by `close` alone: its end is said to the peer before. If the
//! other process does not take over, this remains so until that process has ended. Otherwise the
//! kernel would end the connection with that process, and by a reset if the peer had sent more.
//!
//! What the owner of the backend has packed follows in parts, and with it files that are being
//! sent, whatever their numbers: nobody knows them by these. They come when every number that a
//! connection has is taken, so none of them gets one.

use super::reserved::nothing;
use super::set::EpollSet;
use super::{Epoll, WAKER};
use crate::channel::{Channel, Parcel};
use crate::owned::OpenSockets;
use crate::socket::Listener;
use crate::{File, Peer, Role, monotonic_us};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, SendFlags};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use zeroize::Zeroize;

/// How far handing over has come.
#[derive(Debug)]
pub(super) struct HandingOver {
    channel: Channel,
    /// Holds a number where there is no connection.
    nothing: OwnedFd,
    /// Numbers below this one were sent.
    next: u32,
    /// Those of them that are not any more what was sent.
    changed: BTreeSet<u32>,
    mark: MarkState,
}

/// Whether the other process was asked to say that it has all, and has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MarkState {
    NotAsked,
    Asked,
    Answered,
}

impl HandingOver {
    /// Takes note of a number that is another connection's from now on, or nobody's. Returns
    /// whether the other process has what it was.
    pub(super) fn note(&mut self, peer: Peer) -> bool {
        let was_sent = peer.0 < self.next;
        if was_sent {
            self.changed.insert(peer.0);
        }
        was_sent
    }
}

impl Epoll {
    /// Has all numbers below this one taken, for as long as this backend lives, so that no
    /// connection gets one of them. What the thread needs for itself is to be open before.
    ///
    /// # Errors
    /// Out of files. Then no number is kept.
    pub fn keep_numbers(&mut self, below: u32) -> io::Result<()> {
        Ok(self.reserved.reserve(below)?)
    }

    /// Begins to hand over by this channel, which is of the calling thread's file table.
    ///
    /// # Errors
    /// Out of files.
    pub fn begin_hand_over(&mut self, channel: Channel) -> io::Result<()> {
        let (nothing, next) = (nothing()?, self.reserved.below());
        let (changed, mark) = (BTreeSet::new(), MarkState::NotAsked);
        self.handing_over = Some(Box::new(HandingOver { channel, nothing, next, changed, mark }));
        Ok(())
    }

    /// Sends some of the connections, if the channel has room. Returns whether the other process
    /// has all that there were when it had not many to come: what has changed since goes with the
    /// rest.
    ///
    /// # Errors
    /// The other process is gone.
    pub fn hand_over_some(&mut self) -> io::Result<bool> {
        let end = self.owned.end();
        let Some(state) = &mut self.handing_over else { return Ok(false) };
        match state.mark {
            MarkState::NotAsked => {
                let is_all = send_next(state, &self.owned, end, SendFlags::DONTWAIT)?;
                if is_all && state.channel.try_send(MARK, &[])? {
                    state.mark = MarkState::Asked;
                }
                Ok(false)
            }
            MarkState::Asked => {
                if state.channel.has_mail()? {
                    let answer = state.channel.receive()?.kind;
                    state.mark = MarkState::Answered;
                    return if answer == MARK { Ok(true) } else { Err(unexpected()) };
                }
                Ok(false)
            }
            MarkState::Answered => Ok(true),
        }
    }

    /// From now on accepts nobody, as long as this backend stands still.
    pub fn freeze(&mut self) {
        self.listening.freeze(&self.set);
    }

    /// Sends the rest of what this backend has: what has changed, the listeners, the epoll set. To
    /// be called once it stands still, before what its owner has packed. From now on the channel
    /// waits for nothing after `deadline_us`, on the clock of [`monotonic_us`].
    ///
    /// # Errors
    /// The other process is gone, or has not taken everything in time.
    pub fn hand_over_rest(&mut self, deadline_us: u64) -> io::Result<()> {
        // The next process has the set as it is.
        std::mem::take(&mut self.unregistered).into_iter().for_each(|peer| self.rearm(peer));
        if !self.unregistered.is_empty() {
            return Err(Errno::NOMEM.into());
        }
        let end = self.owned.end();
        let Some(state) = &mut self.handing_over else { return Ok(()) };
        state.channel.set_deadline(deadline_us);
        while !send_next(state, &self.owned, end, SendFlags::empty())? {
            if monotonic_us() > deadline_us {
                return Err(Errno::AGAIN.into());
            }
        }
        let changed: Vec<u32> = std::mem::take(&mut state.changed).into_iter().collect();
        for numbers in changed.chunks(Channel::BYTES_MAX / size_of::<u32>()) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            state.channel.send(CHANGED, &bytes)?;
        }
        for numbers in changed.chunks(Channel::FILES_MAX) {
            send_numbers(state, &self.owned, numbers.iter().copied(), SendFlags::empty())?;
        }
        let channel = &state.channel;
        for (listener, role) in self.listening.iter() {
            let mut bytes = vec![role];
            listener.describe(&mut bytes);
            channel.send_parcel(LISTENER, &bytes, &[listener.as_fd()], SendFlags::empty())?;
        }
        Ok(channel.send_parcel(SET, &[], &[self.set.as_fd()], SendFlags::empty())?)
    }

    /// Sends a part of what the owner of this backend has packed, with files that are being sent.
    ///
    /// # Errors
    /// The other process is gone.
    pub fn hand_over_part(&self, bytes: &[u8], files: &[Arc<File>]) -> io::Result<()> {
        let Some(HandingOver { channel, .. }) = self.handing_over.as_deref() else { return Ok(()) };
        for files in files.chunks(Channel::FILES_MAX) {
            let bytes: Vec<u8> = files.iter().flat_map(|file| file.describe()).collect();
            let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
            channel.send_parcel(FILES, &bytes, &files, SendFlags::empty())?;
        }
        let (most, last) =
            bytes.split_at(bytes.len().saturating_sub(1) / Channel::BYTES_MAX * Channel::BYTES_MAX);
        if !most.is_empty() {
            channel.send(PACKED, most)?;
        }
        channel.send(PACKED_LAST, last)
    }

    /// There are no more parts.
    ///
    /// # Errors
    /// The other process is gone.
    pub fn end_hand_over(&self) -> io::Result<()> {
        match self.handing_over.as_deref() {
            Some(HandingOver { channel, .. }) => channel.send(END, &[]),
            None => Ok(()),
        }
    }

    /// The other process does not take over: everything is as it was before. The sockets are
    /// shared until that process has ended ([`Epoll::keep_alone`]).
    pub fn keep_all(&mut self) {
        let sent_below = self.handing_over.take().map_or(0, |state| state.next);
        self.shared_below = self.shared_below.max(sent_below);
    }

    /// The other process, which did not take over, has ended.
    pub fn keep_alone(&mut self) {
        self.shared_below = 0;
    }

    /// Whether another process may have a socket that ends now. If that process is to take over, it
    /// hears of the end.
    pub(super) fn is_shared(&mut self, socket: Peer) -> bool {
        let was_sent = self.handing_over.as_mut().is_some_and(|state| state.note(socket));
        was_sent || socket.0 < self.shared_below
    }

    /// How many listeners it has.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listening.iter().count()
    }

    /// This process does not take over: the other one has all of it but the first listeners, which
    /// this one had itself.
    pub fn give_back(mut self, own: usize) {
        self.listening.close_first(own);
        self.leave_all();
    }

    /// The other process has taken over: this one touches none of it any more.
    pub fn leave_all(mut self) {
        self.listening.leave();
    }

    /// Takes over what another process hands over by this channel. What its owner has packed comes
    /// behind it ([`Parts`]). This backend is new, and has the numbers kept that the other has. Its
    /// own listeners stay; those that are handed over come behind them. `settled` hears, while the
    /// other process still serves, of the number above that of each connection it has then.
    ///
    /// # Errors
    /// The other process is gone or speaks in riddles; this one may not have so many files, or has
    /// one where a connection was.
    pub fn take_over(
        &mut self,
        channel: &mut Channel,
        mut settled: impl FnMut(u32),
    ) -> io::Result<()> {
        let mut places = Places { first: self.reserved.below(), held: Vec::new() };
        loop {
            let parcel = channel.receive()?;
            match parcel.kind {
                NUMBERS => places.fill(parcel)?,
                MARK => {
                    drop(parcel);
                    settled(places.end());
                    channel.send(MARK, &[])?;
                }
                CHANGED => places.empty(parcel.bytes)?,
                LISTENER => {
                    let (listener, role) = listener(parcel)?;
                    self.listening.push(listener, role);
                }
                SET => {
                    self.listening.freeze(&self.set);
                    self.set = EpollSet::from(only(parcel.files)?);
                    break;
                }
                _ => return Err(unexpected()),
            }
        }
        for (socket, is_connection) in places.held.into_iter().flatten() {
            if is_connection {
                let _ = self.owned.insert(socket);
            }
        }
        self.set.add(self.waker.as_fd(), WAKER, EventFlags::IN | EventFlags::ET)?;
        // The set that was just replaced occupied a reserved descriptor.
        self.reserved.reserve(self.reserved.below())?;
        // Whatever is told as seen from now.
        self.clock.read();
        Ok(())
    }
}

/// What the owner of another process's backend has packed, part by part.
#[derive(Debug)]
pub struct Parts<'c> {
    channel: &'c mut Channel,
    /// A part that came in several messages.
    whole: Vec<u8>,
}

impl<'c> Parts<'c> {
    /// Those that come by this channel.
    pub fn of(channel: &'c mut Channel) -> Parts<'c> {
        Parts { channel, whole: Vec::new() }
    }

    /// Waits for the next one, and gives it to `take` with the files that came with it. Returns
    /// false if there are no more.
    ///
    /// # Errors
    /// As [`Channel::receive`]; the other process speaks in riddles.
    pub fn next(&mut self, take: impl FnOnce(&[u8], Vec<File>)) -> io::Result<bool> {
        let mut files = Vec::new();
        self.whole.clear();
        loop {
            let parcel = self.channel.receive()?;
            match parcel.kind {
                FILES => take_files(parcel, &mut files)?,
                PACKED => append(&mut self.whole, parcel.bytes),
                PACKED_LAST if self.whole.is_empty() => {
                    take(parcel.bytes, files);
                    return Ok(true);
                }
                PACKED_LAST => {
                    append(&mut self.whole, parcel.bytes);
                    take(&self.whole, files);
                    return Ok(true);
                }
                END if self.whole.is_empty() && files.is_empty() => return Ok(false),
                _ => return Err(unexpected()),
            }
        }
    }

    /// Overwrites what came last: it held keys.
    pub fn wipe(&mut self) {
        self.whole.zeroize();
        self.channel.wipe();
    }
}

/// Appends bytes, and leaves no copy of those before behind.
fn append(whole: &mut Vec<u8>, bytes: &[u8]) {
    if whole.capacity() - whole.len() < bytes.len() {
        let mut larger = Vec::with_capacity(2 * (whole.len() + bytes.len()));
        larger.extend_from_slice(whole);
        std::mem::replace(whole, larger).zeroize();
    }
    whole.extend_from_slice(bytes);
}

/// What was passed so far, by number.
struct Places {
    first: u32,
    held: Vec<Option<(OwnedFd, bool)>>,
}

impl Places {
    fn end(&self) -> u32 {
        self.first + self.held.len() as u32
    }

    /// Takes files in, which must have got the numbers that they had.
    fn fill(&mut self, parcel: Parcel<'_>) -> io::Result<()> {
        let (stated, rest) = parcel.bytes.as_chunks::<4>();
        if stated.len() != parcel.files.len() || !rest.is_empty() {
            return Err(unexpected());
        }
        for (file, stated) in parcel.files.into_iter().zip(stated) {
            let stated = u32::from_le_bytes(*stated);
            let (number, is_connection) = (stated & !CONNECTION, stated & CONNECTION != 0);
            let place = number.checked_sub(self.first).ok_or_else(unexpected)? as usize;
            if file.as_raw_fd() as u32 != number {
                return Err(io::Error::other(format!(
                    "file {number} of the process before is taken here: both need the same \
                     numbers; restart the server instead"
                )));
            }
            if place >= self.held.len() {
                self.held.resize_with(place + 1, || None);
            }
            self.held[place] = Some((file, is_connection));
        }
        Ok(())
    }

    /// Closes what is not any more what it was.
    fn empty(&mut self, numbers: &[u8]) -> io::Result<()> {
        for number in numbers.as_chunks::<4>().0 {
            let place = u32::from_le_bytes(*number).checked_sub(self.first);
            let held = place.and_then(|place| self.held.get_mut(place as usize));
            *held.ok_or_else(unexpected)? = None;
        }
        Ok(())
    }
}

/// Sends the next numbers below `end`. Returns whether these were all.
fn send_next(
    state: &mut HandingOver,
    owned: &OpenSockets,
    end: u32,
    flags: SendFlags,
) -> io::Result<bool> {
    let until = end.min(state.next + Channel::FILES_MAX as u32);
    match send_numbers(state, owned, state.next..until, flags) {
        Ok(()) => state.next = state.next.max(until),
        // The other end has not taken those before.
        Err(Errno::AGAIN | Errno::TOOMANYREFS) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(state.next >= end)
}

/// Sends the files of these numbers, which are ascending, in one message.
fn send_numbers(
    state: &HandingOver,
    owned: &OpenSockets,
    numbers: impl Iterator<Item = u32>,
    flags: SendFlags,
) -> rustix::io::Result<()> {
    let (mut bytes, mut files) = (Vec::new(), Vec::new());
    for number in numbers {
        let socket = owned.get(Peer(number));
        let stated = if socket.is_some() { number | CONNECTION } else { number };
        bytes.extend_from_slice(&stated.to_le_bytes());
        files.push(socket.unwrap_or(state.nothing.as_fd()));
    }
    match files.is_empty() {
        true => Ok(()),
        false => state.channel.send_parcel(NUMBERS, &bytes, &files, flags),
    }
}

fn listener(parcel: Parcel<'_>) -> io::Result<(Listener, Role)> {
    let (&role, described) = parcel.bytes.split_first().ok_or_else(unexpected)?;
    let listener = Listener::described(only(parcel.files)?, described);
    Ok((listener.ok_or_else(unexpected)?, role))
}

fn take_files(parcel: Parcel<'_>, all: &mut Vec<File>) -> io::Result<()> {
    let (described, rest) = parcel.bytes.as_chunks();
    if described.len() != parcel.files.len() || !rest.is_empty() {
        return Err(unexpected());
    }
    let files = parcel.files.into_iter().zip(described);
    all.extend(files.map(|(fd, described)| File::described(fd, described)));
    Ok(())
}

fn only(files: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    files.into_iter().next().ok_or_else(unexpected)
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process speaks otherwise")
}

/// Ends a connection whose socket another process has open as well: closing alone would not tell
/// the peer. The kernel cannot reset a connection of a socket file, so that one ends in order.
pub(super) fn end(socket: impl AsFd, is_reset: bool) {
    if !is_reset || net::connect_unspec(&socket).is_err() {
        let _ = net::shutdown(socket, net::Shutdown::Both);
    }
}

/// Kinds of messages.
const NUMBERS: u8 = 1;
const MARK: u8 = 2;
const CHANGED: u8 = 3;
const LISTENER: u8 = 4;
const SET: u8 = 5;
const PACKED: u8 = 6;
const END: u8 = 7;
const FILES: u8 = 8;
const PACKED_LAST: u8 = 9;

/// Marks the number of a connection.
const CONNECTION: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::socket::reserve;
    use crate::spawn_with_file_table;
    use crate::{
        Backend, ChannelListener, Directory, Flow, Found, Handler, Refused, Symlinks, Waker,
    };
    use rustix::io::fcntl_dupfd_cloexec;
    use std::io::{Read, Write};
    use std::net::{IpAddr, SocketAddr, TcpStream};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn what_held_keys_is_overwritten() {
        let listener = ChannelListener::new().unwrap();
        let own = std::process::id();
        let sender = Channel::connect(listener.name(), own).unwrap();
        let mut channel = listener.accept(own, Duration::from_secs(10)).unwrap();
        for bytes in [100, Channel::BYTES_MAX + 100] {
            let keys = vec![7; bytes];
            let (most, last) = keys.split_at(bytes / 2);
            sender.send(PACKED, most).unwrap();
            sender.send(PACKED_LAST, last).unwrap();
            let mut parts = Parts::of(&mut channel);
            assert!(parts.next(|came, _| assert!(came == keys)).unwrap());
            parts.wipe();
            assert!(parts.whole.is_empty() && parts.channel.is_wiped());
        }
        let mut whole = vec![7; 9];
        append(&mut whole, &[7; 100]);
        assert_eq!(whole, [7; 109]);
    }

    /// Answers each byte with itself; closes at `c`, resets at `r`.
    #[derive(Default)]
    struct Echo {
        accepted: usize,
        ended: usize,
        /// Those that were accepted.
        numbers: Vec<u32>,
    }

    impl Handler<Epoll> for Echo {
        fn accepted(
            &mut self,
            _: &mut Epoll,
            peer: Peer,
            _: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            self.accepted += 1;
            self.numbers.push(peer.0);
            Ok(())
        }

        fn ready(&mut self, _: &mut Epoll, _: Peer, _: bool) -> bool {
            true
        }

        fn received(&mut self, io: &mut Epoll, peer: Peer, bytes: &mut [u8]) -> Flow {
            match bytes {
                [b'c', ..] => io.close(peer),
                [b'r', ..] => io.abort(peer),
                _ => {
                    let _ = io.send(peer, &[std::io::IoSlice::new(bytes)]).unwrap();
                    return Flow::More;
                }
            }
            self.ended += 1;
            Flow::Closed
        }

        fn ended(&mut self, io: &mut Epoll, peer: Peer) {
            self.ended += 1;
            io.close(peer);
        }
    }

    const KEPT: u32 = 60;

    /// A wait that takes longer has failed.
    const LONG: Duration = Duration::from_secs(30);

    const PARTS: [usize; 5] =
        [Channel::BYTES_MAX, Channel::BYTES_MAX + 1, 0, 2 * Channel::BYTES_MAX, 200_000];

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn echoes(stream: &mut TcpStream, byte: u8) {
        stream.write_all(&[byte]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [byte]);
    }

    /// Turns until so many have been accepted and so many have ended.
    fn turn_until(io: &mut Epoll, echo: &mut Echo, accepted: usize, ended: usize) {
        while echo.accepted < accepted || echo.ended < ended {
            io.turn(echo, Some(io.now_ms() + 10)).unwrap();
        }
    }

    /// Starts a thread with a file table of its own.
    fn spawn<T: Send + 'static>(
        body: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let body = |own_table: io::Result<()>| own_table.map(|()| body()).unwrap();
        spawn_with_file_table(thread::Builder::new(), body).unwrap()
    }

    /// Both processes are threads here, with a file table each.
    #[test]
    fn a_number_is_the_same_connection_in_both_processes() {
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = reserved.address();
        let own = std::process::id();
        let (named, name) = mpsc::channel::<Vec<u8>>();
        let next = spawn(move || {
            // The next process would not have the files that this one was started with.
            // SAFETY: this thread, whose table it is, has opened none yet.
            unsafe { crate::channel::close_files(3) };
            let channel = ChannelListener::new().unwrap();
            named.send(channel.name().to_vec()).unwrap();
            let mut io = Epoll::new(Vec::new(), Arc::new(Waker::new().unwrap())).unwrap();
            let mut channel = channel.accept(own, Duration::from_secs(30)).unwrap();
            io.keep_numbers(KEPT).unwrap();
            let mut settled = 0;
            io.take_over(&mut channel, |end| settled = end).unwrap();
            assert!(settled >= KEPT + 320, "{settled}");
            assert!(nothing().unwrap().as_raw_fd() as u32 >= KEPT, "all below are taken");
            let (mut packed, mut files) = (Vec::new(), Vec::new());
            let mut parts = Parts::of(&mut channel);
            while parts
                .next(|bytes, with| {
                    packed.push(bytes.to_vec());
                    files.extend(with);
                })
                .unwrap()
            {}
            let mut content = [0; 7];
            assert_eq!(files.len(), 300);
            for file in &files {
                assert_eq!(file.status_now().unwrap(), file.status());
                assert_eq!(file.read_at(&mut content, 4).unwrap(), 7);
                assert_eq!(&content, b"content");
            }
            let mut echo = Echo::default();
            // One more connection comes, and all end.
            turn_until(&mut io, &mut echo, 1, 293);
            assert_eq!(registered(&io, crate::epoll::LISTENER), 1, "once, and by this process");
            (packed, io.open_connections())
        });
        let name = name.recv().unwrap();
        let (mut streams, before) = hand_over_under_way(reserved, name);
        before.join().unwrap();
        let mut late = connect(address);
        echoes(&mut late, 7);
        streams.push(late);
        for stream in &mut streams {
            echoes(stream, 9);
            stream.write_all(b"c").unwrap();
            assert!(matches!(stream.read(&mut [0]), Ok(0)));
        }
        let mut packed = vec![b"state".to_vec()];
        packed.extend(PARTS.map(|length| vec![b'x'; length]));
        let (came, open) = next.join().unwrap();
        assert!(came == packed, "{:?}", came.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(open, 0);
    }

    #[test]
    fn a_peer_on_a_socket_file_is_told_of_the_end() {
        for is_reset in [false, true] {
            let (ours, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
            let _of_the_other_process = ours.try_clone().unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            end(&ours, is_reset);
            drop(ours);
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
    }

    fn channel() -> (Channel, Channel) {
        let (listener, own) = (ChannelListener::new().unwrap(), std::process::id());
        let near = Channel::connect(listener.name(), own).unwrap();
        let far = listener.accept(own, Duration::from_secs(30)).unwrap();
        far.set_patience(Duration::from_secs(30)).unwrap();
        (near, far)
    }

    fn epoll() -> Epoll {
        Epoll::new(Vec::new(), Arc::new(Waker::new().unwrap())).unwrap()
    }

    #[test]
    fn what_the_channel_has_no_room_for_is_sent_later() {
        let (near, mut far) = channel();
        while near.try_send(MARK, &[]).unwrap() {}
        let mut epoll = epoll();
        let peer = epoll.owned.insert(nothing().unwrap());
        epoll.begin_hand_over(near).unwrap();
        assert!(!epoll.hand_over_some().unwrap() && !epoll.hand_over_some().unwrap());
        while far.has_mail().unwrap() {
            assert_eq!(far.receive().unwrap().kind, MARK);
        }
        let mut came = Vec::new();
        while !came.contains(&(peer.0 | CONNECTION)) {
            assert!(!epoll.hand_over_some().unwrap());
            let parcel = far.receive().unwrap();
            assert_eq!(parcel.kind, NUMBERS);
            came.extend(parcel.bytes.as_chunks::<4>().0.iter().map(|n| u32::from_le_bytes(*n)));
        }
    }

    #[test]
    fn a_number_that_is_taken_is_told() {
        let (near, mut far) = channel();
        let (file, number) = (nothing().unwrap(), 1_000_000_u32);
        let stated = (number | CONNECTION).to_le_bytes();
        near.send_parcel(NUMBERS, &stated, &[file.as_fd()], SendFlags::empty()).unwrap();
        drop(near);
        let told = epoll().take_over(&mut far, |_| {}).unwrap_err().to_string();
        assert!(told.contains("file 1000000 of the process before is taken here"), "{told}");
    }

    #[test]
    fn who_goes_on_lets_go_of_the_channel() {
        let (near, mut other) = channel();
        let mut epoll = epoll();
        epoll.begin_hand_over(near).unwrap();
        epoll.keep_all();
        assert_eq!(other.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// The other process stays, as one that hangs. It is a thread with a file table of its own.
    #[test]
    fn a_shared_socket_ends_for_its_peer() {
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, (near, mut far)) = (reserved.address(), channel());
        let (listens, listening) = mpsc::channel();
        let (ends, may_end) = mpsc::channel::<()>();
        let (receives, received) = mpsc::channel();
        let other = spawn(move || {
            let parcel = far.receive().unwrap();
            receives.send(parcel.files.len()).unwrap();
            may_end.recv_timeout(LONG).unwrap();
        });
        let serving = spawn(move || {
            let listener = reserved.listen().unwrap();
            listens.send(()).unwrap();
            let waker = Arc::new(Waker::new().unwrap());
            let (mut io, mut echo) =
                (Epoll::new(vec![(listener, 1)], waker).unwrap(), Echo::default());
            turn_until(&mut io, &mut echo, 3, 0);
            io.begin_hand_over(near).unwrap();
            assert!(!io.hand_over_some().unwrap());
            assert!(received.recv_timeout(LONG).unwrap() >= 3);
            io.keep_all();
            // Both ends are heard of, and then that of a connection which has one of the numbers.
            turn_until(&mut io, &mut echo, 4, 3);
            ends.send(()).unwrap();
            other.join().unwrap();
            io.keep_alone();
            turn_until(&mut io, &mut echo, 4, 4);
        });
        listening.recv_timeout(LONG).unwrap();
        let mut streams = [(); 3].map(|()| connect(address));
        streams.iter_mut().for_each(|stream| echoes(stream, 1));
        let [closed, reset, stays] = &mut streams;
        closed.write_all(b"c").unwrap();
        assert_eq!(closed.read(&mut [0]).unwrap(), 0);
        reset.write_all(b"r").unwrap();
        assert_eq!(reset.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut new = connect(address);
        echoes(&mut new, 2);
        echoes(stays, 3);
        new.write_all(b"c").unwrap();
        assert_eq!(new.read(&mut [0]).unwrap(), 0);
        echoes(stays, 4);
        stays.write_all(b"c").unwrap();
        assert_eq!(stays.read(&mut [0]).unwrap(), 0);
        serving.join().unwrap();
    }

    #[test]
    fn no_connection_has_a_number_that_is_kept() {
        let reserved = reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = reserved.address();
        let (listens, listening) = mpsc::channel();
        let serving = spawn(move || {
            let listener = reserved.listen().unwrap();
            listens.send(()).unwrap();
            let closed_later = [(); 2].map(|()| std::fs::File::open("/dev/null").unwrap());
            let waker = Arc::new(Waker::new().unwrap());
            let mut io = Epoll::new(vec![(listener, 1)], waker).unwrap();
            io.keep_numbers(KEPT).unwrap();
            drop(closed_later);
            let mut echo = Echo::default();
            turn_until(&mut io, &mut echo, 3, 3);
            echo.numbers
        });
        listening.recv().unwrap();
        let mut streams = [(); 3].map(|()| connect(address));
        streams.iter_mut().for_each(|stream| echoes(stream, 1));
        drop(streams);
        let numbers = serving.join().unwrap();
        assert!(numbers.iter().all(|number| *number >= KEPT), "{numbers:?}");
    }

    /// A file table of its own has no descriptor left once all are taken.
    #[test]
    fn descriptors_are_released_if_too_few_are_left() {
        let run = || {
            // The table is a copy, and other tests have descriptors open.
            // SAFETY: this thread, whose table it is, has opened none yet.
            unsafe { crate::channel::close_files(3) };
            let mut io = epoll();
            io.keep_numbers(KEPT).unwrap();
            assert!(io.keep_numbers(u32::MAX).is_err());
            assert_eq!((io.reserved.held.len(), io.reserved.below), (0, 0));
            assert!(nothing().is_ok(), "a descriptor is free again");
            // A connection that has a reserved number and cannot get another one.
            let (near, _far) = channel();
            io.keep_numbers(KEPT).unwrap();
            drop(io.reserved.held.pop());
            let accepted = nothing().unwrap();
            let number = accepted.as_raw_fd();
            assert!((number as u32) < KEPT);
            let mut all = Vec::new();
            while let Ok(other) = fcntl_dupfd_cloexec(&accepted, 0) {
                all.push(other);
            }
            assert_eq!(io.reserved.move_out(accepted).as_raw_fd(), number, "it stays as it is");
            assert_eq!((io.reserved.held.len(), io.reserved.below), (0, 0));
            drop(near);
        };
        spawn(run).join().unwrap();
    }

    /// It is where clients look for the next process, which has the socket.
    #[test]
    fn the_file_of_a_socket_stays_when_its_process_leaves() {
        let directory = Scratch::new();
        for is_taken_over in [true, false] {
            let path = directory.join(format!("socket-{is_taken_over}"));
            let listener = crate::listen_unix(&path).unwrap();
            let waker = Arc::new(Waker::new().unwrap());
            let io = Epoll::new(vec![(listener, 1)], waker).unwrap();
            if is_taken_over {
                io.leave_all();
            } else {
                drop(io);
            }
            assert_eq!(path.exists(), is_taken_over);
        }
    }

    fn the_file() -> Arc<File> {
        let path = std::env::temp_dir().join(format!("stentor-handed-over-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("file"), "the content").unwrap();
        let found = Directory::open(&path).unwrap().find("file", Symlinks::Refused).unwrap();
        std::fs::remove_dir_all(path).unwrap();
        let Found::File(file) = found else { panic!("it is a file") };
        Arc::new(file)
    }

    /// How often the epoll set has something by that name.
    fn registered(io: &Epoll, name: u64) -> usize {
        let path = format!("/proc/thread-self/fdinfo/{}", io.set.as_fd().as_raw_fd());
        let set = std::fs::read_to_string(path).unwrap();
        let names = set.split("data:").skip(1).map(|rest| rest.split_whitespace().next());
        let name = format!("{name:x}");
        names.filter(|other| *other == Some(&*name)).count()
    }

    /// Connects 320 times to a thread that hands over, has 8 of them end before, 30 meanwhile, and
    /// 10 more begin: some where nothing was, some where others were. Returns the 292 that stay.
    fn hand_over_under_way(
        reserved: crate::Reservation,
        name: Vec<u8>,
    ) -> (Vec<TcpStream>, thread::JoinHandle<()>) {
        let (address, own) = (reserved.address(), std::process::id());
        let (comes_to, has_come) = mpsc::channel();
        let (proceed, may_proceed) = mpsc::channel::<()>();
        let before = spawn(move || {
            let listener = reserved.listen().unwrap();
            comes_to.send(()).unwrap();
            let waker = Arc::new(Waker::new().unwrap());
            let mut io = Epoll::new(vec![(listener, 1)], waker).unwrap();
            io.keep_numbers(KEPT).unwrap();
            let mut echo = Echo::default();
            turn_until(&mut io, &mut echo, 320, 8);
            io.begin_hand_over(Channel::connect(&name, own).unwrap()).unwrap();
            while !io.hand_over_some().unwrap() {}
            comes_to.send(()).unwrap();
            // Some have ended that were sent already, and their numbers are others' again.
            turn_until(&mut io, &mut echo, 330, 38);
            may_proceed.recv().unwrap();
            io.freeze();
            // More than go in one message, and of a file that is gone.
            let file = the_file();
            io.hand_over_rest(u64::MAX).unwrap();
            io.hand_over_part(b"state", &vec![file; 300]).unwrap();
            // As long as a message, longer, and of nothing.
            for length in PARTS {
                io.hand_over_part(&vec![b'x'; length], &[]).unwrap();
            }
            io.end_hand_over().unwrap();
            io.leave_all();
        });
        has_come.recv().unwrap();
        let mut streams: Vec<TcpStream> = (0..320).map(|_| connect(address)).collect();
        for (n, stream) in streams.iter_mut().enumerate() {
            echoes(stream, n as u8 % 50);
        }
        for mut stream in streams.drain(50..58) {
            stream.write_all(b"c").unwrap();
            assert!(matches!(stream.read(&mut [0]), Ok(0)));
        }
        has_come.recv().unwrap();
        let gone: Vec<TcpStream> = streams.drain(100..130).collect();
        for (n, mut stream) in gone.into_iter().enumerate() {
            let byte = if n % 2 == 0 { b'c' } else { b'r' };
            stream.write_all(&[byte]).unwrap();
            // The end reaches the peer although the other process has the socket as well.
            let ended = stream.read(&mut [0]);
            match byte {
                b'c' => assert!(matches!(ended, Ok(0)), "{ended:?}"),
                _ => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
            }
        }
        streams.extend((0..10).map(|_| connect(address)));
        streams[282..].iter_mut().for_each(|stream| echoes(stream, 1));
        proceed.send(()).unwrap();
        (streams, before)
    }
}
