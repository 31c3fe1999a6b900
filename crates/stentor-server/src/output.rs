//! Bytes on their way out: gathered by the worker, sent at once, kept only if the socket refused.
//!
//! A worker has one [`Output`], which it fills with the answers to whatever one connection asked
//! in one go and then sends in one system call. Small bodies are copied beside their heads; large
//! ones stay in their message and are named by a slice. Nothing of it belongs to the connection:
//! only what the socket did not take becomes the connection's [`Backlog`], in which a large body
//! is still the shared message and an offset.

use crate::limits::{GATHER_BYTES, SHARE_BYTES_MIN};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use stentor_hub::{Message, News, StreamForm};
use stentor_io::{Backend, Gone, Socket};
use stentor_wire::negotiate::Encoding;

/// Bytes that are sent from the message they belong to.
#[derive(Debug)]
pub(crate) enum Body {
    /// The value in one of its encodings.
    Value { message: Arc<Message>, encoding: Encoding },
    /// What a stream makes of it.
    Streamed { news: News, form: StreamForm },
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Value { message, encoding } => {
                message.form(*encoding).map_or(&[], |form| form.body)
            }
            Body::Streamed { news, form } => news.streamed(*form).unwrap_or_default(),
        }
    }
}

/// What a worker is about to send to one connection.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Bodies that go between `bytes`, each before the byte at the given offset.
    shared: Vec<(usize, Body)>,
    shared_bytes: usize,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output { bytes: Vec::with_capacity(GATHER_BYTES * 2), ..Output::default() }
    }

    /// Bytes gathered and not yet sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.shared_bytes
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
    pub(crate) fn body(&mut self, message: &Arc<Message>, encoding: Encoding, body: &[u8]) {
        if body.len() < SHARE_BYTES_MIN {
            self.bytes.extend_from_slice(body);
        } else {
            let shared = Body::Value { message: Arc::clone(message), encoding };
            self.shared.push((self.bytes.len(), shared));
            self.shared_bytes += body.len();
        }
    }

    /// Sends everything. What the socket does not take is returned, to be kept by the connection.
    pub(crate) fn send<B: Backend>(
        &mut self,
        io: &mut B,
        socket: Socket,
    ) -> Result<Option<Box<Backlog>>, Gone> {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let count = self.slices(&mut slices);
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let sent = io.send(socket, &slices[..count])?;
        if sent == self.len() {
            self.clear();
            return Ok(None);
        }
        let mut backlog = Box::new(self.take_pieces());
        backlog.advance(sent);
        // Only if more was gathered than one send can name is there a point in another.
        let all = sent == offered && backlog.send(io, socket)?;
        Ok(if all { None } else { Some(backlog) })
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

    /// Throws away what was gathered for a connection that is gone.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(GATHER_BYTES * 2);
        self.shared.clear();
        self.shared_bytes = 0;
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
        Backlog { pieces, offset: 0, own_bytes }
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
}

/// What is left of a piece behind an offset.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) piece: Piece,
    pub(crate) offset: usize,
}

/// What one connection has still to be sent: at most what one gathering made. Large bodies are
/// not copied, but a message stays in memory as long as somebody is being sent it.
#[derive(Debug)]
pub(crate) struct Backlog {
    pieces: VecDeque<Piece>,
    /// How much of the first piece has been sent.
    offset: usize,
    /// Bytes that are kept for this connection alone.
    own_bytes: usize,
}

impl Backlog {
    /// What a stream's reader has still to be sent, if a message was cut; it waits for room in any
    /// case. `kept_bytes` are those it keeps beside that.
    pub(crate) fn of_stream(rest: Option<Rest>, kept_bytes: usize) -> Backlog {
        let own_bytes = match &rest {
            Some(Rest { piece: Piece::Own(bytes), .. }) => bytes.len(),
            _ => 0,
        };
        let offset = rest.as_ref().map_or(0, |rest| rest.offset);
        let pieces = rest.into_iter().map(|rest| rest.piece).collect();
        Backlog { pieces, offset, own_bytes: own_bytes + kept_bytes }
    }

    /// Bytes that were kept for this connection alone when the backlog was made.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Sends on. Returns whether everything has left.
    pub(crate) fn send<B: Backend>(&mut self, io: &mut B, socket: Socket) -> Result<bool, Gone> {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
            let mut wanted = 0;
            let count = self.pieces.len().min(SLICES_PER_SEND);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                let skip = if wanted == 0 { self.offset } else { 0 };
                *slice = IoSlice::new(&piece.bytes()[skip..]);
                wanted += slice.len();
            }
            let sent = io.send(socket, &slices[..count])?;
            self.advance(sent);
            if sent < wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn advance(&mut self, sent: usize) {
        self.offset += sent;
        while let Some(first) = self.pieces.front() {
            let length = first.bytes().len();
            if self.offset < length {
                break;
            }
            self.offset -= length;
            self.pieces.pop_front();
        }
    }
}

const SLICES_PER_SEND: usize = 16;
