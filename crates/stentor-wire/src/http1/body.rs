//! Bodies of requests, and of responses: by length, or chunked (RFC 9112 sections 6 and 7).
//!
//! A [`Body`] is a few bytes of state that a connection keeps while a body arrives. It owns no
//! buffer: content is lent straight out of the input.
//!
//! Chunked framing is read one byte at a time by a small state machine, content in one piece. That
//! is what makes any split equal to any other, and a body of one-byte chunks cheap: there is no
//! buffering, no searching, no second look at a byte. What a sender can make us read that is not
//! content is bounded three ways: the extensions of one chunk, the trailers, and the total of
//! framing over content.

use super::BodyLength;
use crate::error::Rejection;
use crate::{is_tchar, packed, rejections};

/// A body as it arrives.
///
/// Drain contract: call [`Body::next`] with what is left of the input until it says
/// [`Step::More`] or [`Step::End`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    framing: BodyFraming,
}

/// The last chunk of a body: without it, a body is cut short.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends what `write` appends to `out` as one chunk (RFC 9112 section 7.1). Without any bytes it
/// appends nothing, since an empty chunk is the last one.
pub fn write_chunk(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    write(out);
    let bytes = out.len() - at;
    if bytes == 0 {
        return;
    }
    out.splice(at..at, format!("{bytes:x}\r\n").into_bytes());
    out.extend_from_slice(b"\r\n");
}

/// What [`Body::next`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// Content, never empty. `used` bytes of the input are done with: the content and whatever
    /// framing stood before it.
    Data {
        /// The bytes of content, a part of the input.
        data: &'a [u8],
        /// Bytes of input consumed, at least `data.len()`.
        used: usize,
    },
    /// The whole input was framing, or was empty, and the body goes on.
    More {
        /// Bytes of input consumed: all of them.
        used: usize,
    },
    /// The body ended after `used` bytes; what follows is the next request.
    End {
        /// Bytes of input consumed.
        used: usize,
    },
}

impl Body {
    /// A body that is about to arrive. With [`BodyLength::None`] it has already ended.
    pub fn new(length: BodyLength) -> Body {
        let framing = match length {
            BodyLength::None => BodyFraming::Length(0),
            BodyLength::Length(length) => BodyFraming::Length(length),
            BodyLength::Chunked => BodyFraming::Chunked(Chunked::default()),
        };
        Body { framing }
    }

    /// Takes what it can from `input`.
    ///
    /// After a refusal the place in the stream is lost: answer, close, and do not call again.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, Rejection> {
        match &mut self.framing {
            BodyFraming::Length(0) => Ok(Step::End { used: 0 }),
            BodyFraming::Length(_) if input.is_empty() => Ok(Step::More { used: 0 }),
            BodyFraming::Length(left) => {
                let data = take(input, left);
                Ok(Step::Data { data, used: data.len() })
            }
            BodyFraming::Chunked(chunked) => chunked.next(input),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum BodyFraming {
    /// Bytes of content still to come.
    Length(u64),
    Chunked(Chunked),
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Chunked {
    /// The size of the chunk while it is being read, then the bytes of it still to come.
    size: u64,
    /// Bytes of framing in excess of what content has paid for; see [`Chunked::end_size_line`].
    excess: u32,
    /// Bytes of this chunk's size line, or of the trailer section, so far.
    line_bytes: u16,
    /// What the next byte belongs to.
    part: Part,
}

/// What the next byte belongs to. An extension is `";" name [ "=" ( token / quoted-string ) ]`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Part {
    #[default]
    Size,
    ExtensionStart,
    ExtensionName,
    ExtensionValueStart,
    ExtensionValue,
    Quoted,
    QuotedPair,
    QuotedEnd,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

packed!(struct Body { framing });
packed!(enum BodyFraming { 0 => Length(left), 1 => Chunked(chunked) });
packed!(struct Chunked { size, excess, line_bytes, part } if is_within_bounds);
packed!(enum Part {
    0 => Size, 1 => ExtensionStart, 2 => ExtensionName, 3 => ExtensionValueStart,
    4 => ExtensionValue, 5 => Quoted, 6 => QuotedPair, 7 => QuotedEnd, 8 => SizeLf, 9 => Data,
    10 => DataCr, 11 => DataLf, 12 => TrailerStart, 13 => TrailerName, 14 => TrailerValue,
    15 => TrailerLf, 16 => EndLf, 17 => Done,
});

impl Chunked {
    /// Whether it can have come about by what was received.
    fn is_within_bounds(&self) -> bool {
        let line_bytes_max = match self.part {
            Part::Size => SIZE_DIGITS_MAX,
            Part::TrailerStart | Part::TrailerName | Part::TrailerValue | Part::TrailerLf => {
                TRAILER_BYTES_MAX
            }
            _ => SIZE_LINE_BYTES_MAX,
        };
        let has_data = self.part != Part::Data || self.size > 0;
        self.line_bytes <= line_bytes_max && self.excess <= EXCESS_BYTES_MAX && has_data
    }

    fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, Rejection> {
        let mut used = 0;
        while self.part != Part::Done {
            let Some(&byte) = input.get(used) else {
                return Ok(Step::More { used });
            };
            if self.part == Part::Data {
                let data = take(&input[used..], &mut self.size);
                if self.size == 0 {
                    self.part = Part::DataCr;
                }
                return Ok(Step::Data { data, used: used + data.len() });
            }
            self.part = self.frame(byte)?;
            used += 1;
        }
        Ok(Step::End { used })
    }

    /// Takes one byte of framing and says what comes after it.
    fn frame(&mut self, byte: u8) -> Result<Part, Rejection> {
        let next = match self.part {
            Part::Size => return self.size_byte(byte),
            Part::SizeLf if byte == b'\n' => return self.end_size_line(),
            Part::DataCr if byte == b'\r' => Part::DataLf,
            Part::DataLf if byte == b'\n' => Part::Size,
            Part::EndLf if byte == b'\n' => Part::Done,
            Part::SizeLf | Part::EndLf => return Err(LINE_END),
            Part::DataCr | Part::DataLf => return Err(CHUNK_LENGTH),
            Part::TrailerStart | Part::TrailerName | Part::TrailerValue | Part::TrailerLf => {
                return self.trailer_byte(byte);
            }
            // `next` takes content itself and stops when the body is done.
            Part::Data | Part::Done => return Err(CHUNK_LENGTH),
            _ => return self.extension_byte(byte),
        };
        Ok(next)
    }

    fn size_byte(&mut self, byte: u8) -> Result<Part, Rejection> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' if self.line_bytes > 0 => return Ok(Part::SizeLf),
            b';' if self.line_bytes > 0 => {
                self.line_bytes += 1;
                return Ok(Part::ExtensionStart);
            }
            _ => return Err(CHUNK_SIZE),
        };
        // Sixteen digits are what 64 bits hold, so the shift below never loses any.
        if self.line_bytes == SIZE_DIGITS_MAX {
            return Err(CHUNK_SIZE);
        }
        self.line_bytes += 1;
        self.size = self.size << 4 | u64::from(digit);
        Ok(Part::Size)
    }

    fn extension_byte(&mut self, byte: u8) -> Result<Part, Rejection> {
        self.line_bytes += 1;
        if self.line_bytes > SIZE_LINE_BYTES_MAX {
            return Err(EXTENSION_BYTES);
        }
        match (self.part, byte) {
            (Part::ExtensionStart | Part::ExtensionName, _) if is_tchar(byte) => {
                Ok(Part::ExtensionName)
            }
            (Part::ExtensionName, b'=') => Ok(Part::ExtensionValueStart),
            (Part::ExtensionValueStart | Part::ExtensionValue, _) if is_tchar(byte) => {
                Ok(Part::ExtensionValue)
            }
            (Part::ExtensionValueStart, b'"') => Ok(Part::Quoted),
            (Part::Quoted, b'"') => Ok(Part::QuotedEnd),
            (Part::Quoted, b'\\') => Ok(Part::QuotedPair),
            (Part::Quoted | Part::QuotedPair, _) if is_field_byte(byte) => Ok(Part::Quoted),
            (Part::ExtensionName | Part::ExtensionValue | Part::QuotedEnd, b';') => {
                Ok(Part::ExtensionStart)
            }
            (Part::ExtensionName | Part::ExtensionValue | Part::QuotedEnd, b'\r') => {
                Ok(Part::SizeLf)
            }
            _ => Err(EXTENSION),
        }
    }

    /// Ends a size line, and holds framing to a measure of content as Go's net/http does: each
    /// chunk pays for 16 bytes of framing and two more for each byte of content. One-byte chunks
    /// without extensions are within that for ever; padding is not.
    fn end_size_line(&mut self) -> Result<Part, Rejection> {
        let framing_bytes = u32::from(self.line_bytes) + 4; // its own CRLF and that of the content
        let paid = u32::try_from(self.size).unwrap_or(u32::MAX).saturating_mul(2);
        self.excess = (self.excess + framing_bytes).saturating_sub(paid.saturating_add(16));
        self.line_bytes = 0;
        if self.excess > EXCESS_BYTES_MAX {
            return Err(EXCESS);
        }
        Ok(if self.size == 0 { Part::TrailerStart } else { Part::Data })
    }

    /// Trailer fields are checked and dropped: merging them into the head would let a sender
    /// change what the head already said (RFC 9112 section 7.1.2).
    fn trailer_byte(&mut self, byte: u8) -> Result<Part, Rejection> {
        self.line_bytes += 1;
        if self.line_bytes > TRAILER_BYTES_MAX {
            return Err(TRAILER_BYTES);
        }
        match (self.part, byte) {
            (Part::TrailerStart, b'\r') => Ok(Part::EndLf),
            (Part::TrailerStart | Part::TrailerName, _) if is_tchar(byte) => Ok(Part::TrailerName),
            (Part::TrailerName, b':') => Ok(Part::TrailerValue),
            (Part::TrailerValue, b'\r') => Ok(Part::TrailerLf),
            (Part::TrailerValue, _) if is_field_byte(byte) => Ok(Part::TrailerValue),
            (Part::TrailerLf, b'\n') => Ok(Part::TrailerStart),
            _ => Err(TRAILER),
        }
    }
}

/// Takes as much of `input` as `left` allows, and lowers `left` by it.
fn take<'a>(input: &'a [u8], left: &mut u64) -> &'a [u8] {
    let len = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    *left -= len as u64;
    &input[..len]
}

/// Whether a byte may stand in a field value: visible ASCII, obs-text, space and tab.
fn is_field_byte(byte: u8) -> bool {
    (byte >= b' ' && byte != 0x7f) || byte == b'\t'
}

/// Hexadecimal digits of a chunk size: as many as 64 bits hold.
const SIZE_DIGITS_MAX: u16 = 16;
/// Bytes of one chunk's size and extensions.
const SIZE_LINE_BYTES_MAX: u16 = 4 * 1024;
/// Bytes of the whole trailer section.
const TRAILER_BYTES_MAX: u16 = 8 * 1024;
/// Bytes of framing that content has not paid for.
const EXCESS_BYTES_MAX: u32 = 16 * 1024;

rejections! {
    CHUNK_SIZE: ChunkInvalid =
        "A chunk size must be 1 to 16 hexadecimal digits, directly followed by CRLF or an \
         extension.";
    LINE_END: ChunkInvalid = "A line of chunked framing must end in CRLF.";
    CHUNK_LENGTH: ChunkInvalid =
        "A chunk was not followed by CRLF; its size must be that of its content.";
    EXTENSION: ChunkInvalid = "A chunk extension must be ;name, ;name=token or ;name=\"text\".";
    EXTENSION_BYTES: ChunkInvalid =
        "The extensions of one chunk must not be longer than 4096 bytes.";
    EXCESS: ChunkInvalid = "The body was more chunk framing than content; send larger chunks.";
    TRAILER: ChunkInvalid =
        "A trailer line must be a field name, a colon and a value, and end in CRLF.";
    TRAILER_BYTES: HeadTooLarge =
        "The trailers must not be longer than 8192 bytes.";
}

#[cfg(test)]
mod tests;
