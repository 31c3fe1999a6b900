//! Bytes on their way out: gathered by the worker, sent at once, kept only if the socket refused.
//!
//! A worker has one [`Output`], which it fills with the answers to whatever one connection asked
//! in one go and then sends in one system call. Small bodies are copied beside their heads; large
//! ones stay where they are, in their message, in the cache of files or on the disk, and are named
//! by a slice. Nothing of it belongs to the connection: only what was not sent becomes the
//! connection's [`Backlog`], in which a large body is still a shared thing and an offset.
//!
//! What is on the disk is sent by the kernel, from its page cache, a share at a time: the socket
//! of a fast reader would take a whole film while all others wait.

use crate::limits::{FILE_SHARE_BYTES, GATHER_BYTES, SHARE_BYTES_MIN};
use crate::stats::Stats;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use stentor_files::CachedFile;
use stentor_hub::{Form, Message, RenderedBytes};
use stentor_io::{Backend, File, FileSendError, Gone, Peer, Sent};
use stentor_replication::ChunkSink;
use stentor_wire::negotiate::Encoding;
use stentor_wire::pack::{self, MISFIT, Packed, Packer, Thing, UNKNOWN, Unpacked, Unpacker};

/// Bytes that are sent from where they are.
#[derive(Debug)]
pub(crate) enum Body {
    /// The value in an encoding that is part of the message.
    Value { message: Arc<Message>, encoding: Encoding },
    /// What was rendered of a message: its value in another encoding, or what a stream is sent.
    Rendered(Arc<RenderedBytes>),
    /// A file of the cache, from one byte to before another.
    Cached { entry: Arc<CachedFile>, encoding: Encoding, from: u32, to: u32 },
    /// What several connections are sent: of a feed, or what those of the process before shared.
    Bytes(Arc<[u8]>),
    /// A file on the disk: so many bytes from the given one on.
    Stored { file: Arc<File>, from: u64, length: u64 },
}

impl Body {
    /// Those in memory.
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Value { message, encoding } => {
                message.own_body(*encoding).expect("a message never changes")
            }
            Body::Rendered(bytes) => bytes,
            Body::Cached { entry, encoding, from, to } => {
                let form = entry.form(*encoding).expect("a form that was promised is kept");
                &form.body[*from as usize..*to as usize]
            }
            Body::Bytes(bytes) => bytes,
            Body::Stored { .. } => &[],
        }
    }

    /// If its owner has dropped it, the share of it of each that holds it, in bytes.
    fn detached_share(&self) -> usize {
        match self {
            Body::Value { message, .. } => detached_share(message),
            Body::Rendered(bytes) if bytes.is_detached() => {
                bytes.stored_bytes() / Arc::strong_count(bytes)
            }
            Body::Rendered(_) => 0,
            Body::Cached { entry, .. } => entry.detached_bytes() / Arc::strong_count(entry),
            // The backlog owns a share of bytes, and a file on the disk takes no memory.
            Body::Bytes(_) | Body::Stored { .. } => 0,
        }
    }
}

/// If the topic of a message has dropped it, the share of it of each that holds it, in bytes.
pub(crate) fn detached_share(message: &Arc<Message>) -> usize {
    let is_dropped = message.is_dropped();
    if is_dropped { message.kept_bytes() / Arc::strong_count(message) } else { 0 }
}

/// What a worker is about to send to one connection.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Bodies that go between `bytes`, each before the byte at the given offset.
    shared: Vec<(usize, Body)>,
    shared_bytes: usize,
    /// Whether some of them are on the disk.
    has_stored: bool,
}

impl ChunkSink for Output {
    fn bytes(&mut self) -> &mut Vec<u8> {
        self.bytes()
    }

    fn shared(&mut self, bytes: &Arc<[u8]>) {
        self.shared(bytes);
    }
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { bytes: Vec::with_capacity(GATHER_BYTES * 2), ..Output::default() }
    }

    /// Bytes gathered and not yet sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().saturating_add(self.shared_bytes)
    }

    /// Whether there are bodies between the bytes.
    pub(crate) fn has_bodies(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Where heads and small bodies are written to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Adds the body of a message in one of its forms.
    pub(crate) fn body(&mut self, message: &Arc<Message>, encoding: Encoding, form: Form<'_>) {
        let length = form.body.len();
        match form.rendered {
            _ if length < SHARE_BYTES_MIN => self.bytes.extend_from_slice(form.body),
            Some(bytes) => self.share(Body::Rendered(Arc::clone(bytes)), length),
            None => self.share(Body::Value { message: Arc::clone(message), encoding }, length),
        }
    }

    /// Adds a part of a file of the cache: `from` is where `part` begins in that form of it.
    pub(crate) fn cached(
        &mut self,
        entry: &Arc<CachedFile>,
        encoding: Encoding,
        from: u32,
        part: &[u8],
    ) {
        if part.len() < SHARE_BYTES_MIN {
            self.bytes.extend_from_slice(part);
        } else {
            let to = from + part.len() as u32;
            let body = Body::Cached { entry: Arc::clone(entry), encoding, from, to };
            self.share(body, part.len());
        }
    }

    /// Adds a part of a file on the disk.
    pub(crate) fn stored(&mut self, file: &Arc<File>, from: u64, length: u64) {
        if length > 0 {
            let length_usize = usize::try_from(length).unwrap_or(usize::MAX);
            self.share(Body::Stored { file: Arc::clone(file), from, length }, length_usize);
            self.has_stored = true;
        }
    }

    /// Adds bytes that several connections are sent.
    pub(crate) fn shared(&mut self, bytes: &Arc<[u8]>) {
        if bytes.len() < SHARE_BYTES_MIN {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.share(Body::Bytes(Arc::clone(bytes)), bytes.len());
        }
    }

    fn share(&mut self, body: Body, length: usize) {
        self.shared.push((self.bytes.len(), body));
        self.shared_bytes = self.shared_bytes.saturating_add(length);
    }

    /// Sends everything. What was not sent is returned, to be kept by the connection, which will
    /// hear of it when there is room, or another turn. The number of bytes that the socket took is
    /// added to `sent_bytes`.
    pub(crate) fn send<B: Backend>(
        &mut self,
        io: &mut B,
        peer: Peer,
        stats: &Stats,
        sent_bytes: &mut usize,
    ) -> Result<Option<Backlog>, Gone> {
        if self.has_stored {
            let mut backlog = self.take_pieces();
            let all = backlog.send(io, peer, stats, sent_bytes)?;
            return Ok(if all { None } else { Some(backlog.shrunk()) });
        }
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let count = self.slices(&mut slices);
        let sent = io.send(peer, &slices[..count])?;
        *sent_bytes += sent.bytes;
        if sent.bytes == self.len() && !sent.full {
            self.clear();
            return Ok(None);
        }
        let mut backlog = self.take_pieces();
        backlog.advance(sent.bytes as u64);
        // Only if more was gathered than one send can name is there a point in another.
        if !sent.full && backlog.send(io, peer, stats, sent_bytes)? {
            return Ok(None);
        }
        Ok(Some(backlog.shrunk()))
    }

    /// Names as much of what was gathered as one send can, and returns the number of slices.
    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_PER_SEND]) -> usize {
        let mut count = 0;
        let mut from = 0;
        for (at, body) in self.shared.iter().take(SLICES_PER_SEND / 2 - 1) {
            slices[count] = IoSlice::new(&self.bytes[from..*at]);
            slices[count + 1] = IoSlice::new(body.bytes());
            count += 2;
            from = *at;
        }
        if count / 2 == self.shared.len() {
            slices[count] = IoSlice::new(&self.bytes[from..]);
            count += 1;
        }
        count
    }

    /// Empties it: all was sent, or the connection is gone. Keeps no more memory than is usual.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(GATHER_BYTES * 2);
        self.shared.clear();
        self.shared_bytes = 0;
        self.has_stored = false;
    }

    fn take_pieces(&mut self) -> Backlog {
        let mut pieces = VecDeque::with_capacity(self.shared.len() * 2 + 1);
        let mut from = 0;
        for (at, body) in self.shared.drain(..) {
            if from < at {
                pieces.push_back(Piece::Own(self.bytes[from..at].into()));
            }
            pieces.push_back(Piece::Shared(body));
            from = at;
        }
        if from < self.bytes.len() {
            pieces.push_back(Piece::Own(self.bytes[from..].into()));
        }
        let own_bytes = self.bytes.len();
        self.clear();
        Backlog { pieces, offset: 0, own_bytes: saturated(own_bytes) }
    }
}

/// A part of what is still to be sent.
#[derive(Debug)]
pub(crate) enum Piece {
    Own(Box<[u8]>),
    Shared(Body),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(body) => body.bytes(),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Piece::Shared(Body::Stored { length, .. }) => *length,
            in_memory => in_memory.bytes().len() as u64,
        }
    }

    /// Bytes that a backlog with this piece owns.
    fn own_bytes(&self) -> usize {
        match self {
            Piece::Own(bytes) => bytes.len(),
            Piece::Shared(Body::Bytes(bytes)) => bytes.len() / Arc::strong_count(bytes),
            Piece::Shared(_) => 0,
        }
    }
}

/// What is left of a piece behind an offset.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) piece: Piece,
    pub(crate) offset: usize,
}

/// What one connection has still to be sent: at most what one gathering made. Large bodies are
/// not copied, but a message stays in memory, and a file open, as long as somebody is being sent
/// it.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pieces: VecDeque<Piece>,
    /// How much of the first piece has been sent.
    offset: u64,
    /// Bytes that it owned when it was made: its own pieces, and a share of bytes that several
    /// connections are sent. The number never changes, so the account subtracts what it added.
    own_bytes: u32,
}

impl Packed for Backlog {
    const FORMAT: u64 = pack::format("Backlog pieces offset", &[Piece::FORMAT, u64::FORMAT]);

    fn pack(&self, out: &mut Packer) {
        self.pack_with(&[], out);
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Backlog> {
        let count = u32::unpack(input)?;
        let pieces = (0..count).map(|_| Piece::unpack(input)).collect::<Unpacked<_>>()?;
        let backlog = Backlog { pieces, offset: Packed::unpack(input)?, own_bytes: 0 };
        let first = backlog.pieces.front().map_or(0, Piece::len);
        let offset = backlog.offset;
        if offset > 0 && offset >= first || backlog.pieces.iter().any(|piece| piece.len() == 0) {
            return Err(MISFIT);
        }
        Ok(backlog.shrunk())
    }
}

/// What is shared stays so, among the connections of a worker.
impl Packed for Piece {
    const FORMAT: u64 = pack::format("Piece own stored shared", &[]);

    fn pack(&self, out: &mut Packer) {
        match self {
            Piece::Own(bytes) => {
                out.put(&[OWN]);
                bytes.pack(out);
            }
            Piece::Shared(Body::Stored { file, from, length }) => {
                out.put(&[STORED]);
                out.attach(Arc::clone(file) as Thing);
                from.pack(out);
                length.pack(out);
            }
            Piece::Shared(body) => {
                out.put(&[SHARED]);
                out.share(body.bytes());
            }
        }
    }

    fn unpack(input: &mut Unpacker<'_>) -> Unpacked<Piece> {
        Ok(match u8::unpack(input)? {
            OWN => Piece::Own(Packed::unpack(input)?),
            SHARED => Piece::Shared(Body::Bytes(input.shared()?)),
            STORED => {
                let file: Arc<File> = input.attached()?;
                let (from, length) = (u64::unpack(input)?, u64::unpack(input)?);
                if from.checked_add(length).is_none_or(|end| end > file.status().bytes) {
                    return Err(MISFIT);
                }
                Piece::Shared(Body::Stored { file, from, length })
            }
            _ => return Err(UNKNOWN),
        })
    }
}

/// How pieces are packed.
const OWN: u8 = 0;
const SHARED: u8 = 1;
const STORED: u8 = 2;

impl Backlog {
    /// What a stream's reader has still to be sent, if a message was cut; it waits for room in any
    /// case.
    pub(crate) fn of_stream(rest: Option<Rest>) -> Backlog {
        let own_bytes = rest.as_ref().map_or(0, |rest| rest.piece.own_bytes());
        let offset = rest.as_ref().map_or(0, |rest| rest.offset as u64);
        let pieces = rest.into_iter().map(|rest| rest.piece).collect();
        Backlog { pieces, offset, own_bytes: saturated(own_bytes) }
    }

    /// What is left of one, if there is any, and behind it the last bytes of a connection. Bodies
    /// on a disk are none of those that end so.
    pub(crate) fn ending(backlog: Option<&Backlog>, last: &[u8]) -> Backlog {
        let left = backlog.into_iter().flat_map(|backlog| &backlog.pieces);
        let left = left.map(|piece| Piece::Own(piece.bytes().into()));
        let last = (!last.is_empty()).then(|| Piece::Own(last.into()));
        let pieces = left.chain(last).collect();
        let offset = backlog.map_or(0, |backlog| backlog.offset);
        Backlog { pieces, offset, own_bytes: 0 }.shrunk()
    }

    /// Packs it with bytes behind it.
    pub(crate) fn pack_with(&self, rest: &[u8], out: &mut Packer) {
        let Backlog { pieces, offset, own_bytes: _ } = self;
        let rest = (!rest.is_empty()).then(|| Piece::Own(rest.into()));
        (pieces.len() as u32 + u32::from(rest.is_some())).pack(out);
        pieces.iter().chain(&rest).for_each(|piece| piece.pack(out));
        offset.pack(out);
    }

    /// The bytes that it owned when it was made.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes as usize
    }

    /// Its share of the bodies that their owners have dropped, in bytes.
    pub(crate) fn detached_share(&self) -> usize {
        let share = |piece: &Piece| match piece {
            Piece::Own(_) => 0,
            Piece::Shared(body) => body.detached_share(),
        };
        self.pieces.iter().map(share).sum()
    }

    /// Sends on. Returns whether everything has left; if not, the backend will report the socket
    /// when there is room, or another turn. The number of bytes that the socket took is added to
    /// `sent_bytes`.
    pub(crate) fn send<B: Backend>(
        &mut self,
        io: &mut B,
        peer: Peer,
        stats: &Stats,
        sent_bytes: &mut usize,
    ) -> Result<bool, Gone> {
        let mut share = FILE_SHARE_BYTES;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
            let mut count = 0;
            let mut before = 0;
            let mut stored = None;
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                let skip = if count == 0 { self.offset } else { 0 };
                if let Piece::Shared(Body::Stored { file, from, length }) = piece {
                    stored = Some((file, from + skip, length - skip));
                    break;
                }
                *slice = IoSlice::new(&piece.bytes()[skip as usize..]);
                before += slice.len();
                count += 1;
            }
            let sent = match stored {
                None => io.send(peer, &slices[..count])?,
                Some(_) if share == 0 => {
                    // The rest comes behind everybody else's.
                    io.resume(peer);
                    return Ok(false);
                }
                Some((file, from, length)) => {
                    let length = length.min(share as u64) as usize;
                    share -= length;
                    let sent = send_stored(io, peer, &slices[..count], file, from, length);
                    let sent = sent.map_err(|error| {
                        stats.files_cut.add(u64::from(error == FileSendError::Truncated));
                        Gone
                    })?;
                    if io.kernel_sends_files(peer) {
                        stats.bytes_sendfile.add(sent.bytes.saturating_sub(before) as u64);
                    }
                    sent
                }
            };
            self.advance(sent.bytes as u64);
            *sent_bytes += sent.bytes;
            if sent.full {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn advance(&mut self, sent: u64) {
        self.offset += sent;
        while let Some(first) = self.pieces.front() {
            let length = first.len();
            if self.offset < length {
                break;
            }
            self.offset -= length;
            self.pieces.pop_front();
        }
    }

    /// It may be kept for long: in no more memory than it needs. In a place of its own, since one
    /// that is cut to size leaves a gap beside it for each connection.
    fn shrunk(mut self) -> Backlog {
        let mut pieces = VecDeque::with_capacity(self.pieces.len());
        pieces.append(&mut self.pieces);
        let own_bytes = saturated(pieces.iter().map(Piece::own_bytes).sum());
        Backlog { pieces, own_bytes, ..self }
    }
}

/// More is never kept: see `limits.readers_bytes_max`.
fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Sends a part of a file, unless it is no longer the file that was promised: what has left already
/// would not fit what follows.
fn send_stored<B: Backend>(
    io: &mut B,
    peer: Peer,
    before: &[IoSlice<'_>],
    file: &File,
    from: u64,
    length: usize,
) -> Result<Sent, FileSendError> {
    if file.status_now().ok() != Some(file.status()) {
        return Err(FileSendError::Truncated);
    }
    io.send_file(peer, before, file, from, length)
}

const SLICES_PER_SEND: usize = 16;
