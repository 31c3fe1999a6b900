//! Content codings: packing what readers ask for, unpacking what a publisher sends.
//!
//! A message is packed once and then sent many times, off the worker threads, so the levels are
//! chosen a little above the fastest. Unpacking stops at a bound given by the caller: a kilobyte
//! of gzip can stand for a megabyte of zeros, and only the bound knows that nobody wants it.
//!
//! Coders are large, and kept by those who use them, for the reason that `deflate.rs` of
//! `stentor-wire` gives. Only Brotli's cannot be used again.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};

use brotli::enc::BrotliEncoderParams;
use flate2::Crc;
use stentor_wire::deflate::{Deflater, InflateError, Inflater};
use stentor_wire::negotiate::Encoding;

/// Packs one thing after the other, and keeps what it needs for that: some hundred kilobytes.
#[derive(Default)]
pub struct Encoder {
    deflater: Deflater,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// What it packed last.
    packed: Vec<u8>,
}

impl Encoder {
    /// `data` in that coding; `None` for identity, or if the coder could not get memory.
    /// Whether the outcome is worth keeping is the caller's to judge.
    pub fn encode(&mut self, encoding: Encoding, data: &[u8]) -> Option<&[u8]> {
        self.packed.clear();
        self.packed.shrink_to(PACKED_BYTES_KEPT);
        match encoding {
            Encoding::Identity => return None,
            Encoding::Gzip => self.gzip(data)?,
            Encoding::Br => {
                let params = BrotliEncoderParams {
                    quality: BROTLI_QUALITY,
                    lgwin: brotli_window(data.len()),
                    size_hint: data.len(),
                    ..BrotliEncoderParams::default()
                };
                brotli::BrotliCompress(&mut &data[..], &mut self.packed, &params).ok()?;
            }
            Encoding::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                self.packed.reserve(zstd::zstd_safe::compress_bound(data.len()));
                zstd.compress_to_buffer(data, &mut self.packed).ok()?;
            }
        }
        Some(&self.packed)
    }

    /// Does some work with this encoder. A panic of the work returns `None` and resets the
    /// encoder.
    pub fn outlive<T>(&mut self, work: impl FnOnce(&mut Encoder) -> T) -> Option<T> {
        let done = panic::catch_unwind(AssertUnwindSafe(|| work(self)));
        if done.is_err() {
            *self = Encoder::default();
        }
        done.ok()
    }

    /// One member without name, time and system (RFC 1952, 2.3).
    fn gzip(&mut self, data: &[u8]) -> Option<()> {
        let bytes_max = data.len() + data.len() / 8 + GZIP_MARGIN;
        let deflated = self.deflater.whole(data, bytes_max)?;
        self.packed.extend_from_slice(&GZIP_MAGIC);
        self.packed.extend_from_slice(&[0, 0, 0, 0, 0, 0, SYSTEM_UNKNOWN]);
        self.packed.extend_from_slice(deflated);
        self.packed.extend_from_slice(&trailer(data));
        Some(())
    }
}

/// What a gzip body held.
pub(crate) struct Unpacked {
    pub(crate) data: Vec<u8>,
    /// Gzip members (RFC 1952, 2.2) it was made of.
    pub(crate) members: usize,
}

/// Unpacks all members of a gzip body, never making more than one byte beyond
/// `bytes_max`.
pub(crate) fn gunzip(
    inflater: &mut Inflater,
    packed: &[u8],
    bytes_max: usize,
) -> Result<Unpacked, GzipError> {
    let mut data = Vec::new();
    let mut members = 0;
    let mut rest = packed;
    while members == 0 || !rest.is_empty() {
        if !rest.starts_with(&GZIP_MAGIC) {
            return Err(GzipError::Malformed(if members > 0 {
                TRAILING_GARBAGE
            } else {
                NOT_GZIP
            }));
        }
        if members == MEMBERS_MAX {
            return Err(GzipError::Malformed(TOO_MANY_MEMBERS));
        }
        let start = data.len();
        let deflated = skip_header(rest).ok_or(DAMAGED)?;
        let used =
            inflater.stream(deflated, &mut data, bytes_max).map_err(|error| match error {
                InflateError::TooLong => GzipError::TooLarge { max: bytes_max },
                InflateError::Broken => DAMAGED,
            })?;
        let behind = &deflated[used..];
        rest = behind.strip_prefix(&trailer(&data[start..])).ok_or(DAMAGED)?;
        members += 1;
    }
    Ok(Unpacked { data, members })
}

/// What follows the header of a gzip member (RFC 1952, 2.3.1). `None` if it is cut short, its
/// checksum does not hold, or it has a part that is not known.
fn skip_header(member: &[u8]) -> Option<&[u8]> {
    let flags = *member.get(3)?;
    let mut rest = member.get(GZIP_HEADER_BYTES..)?;
    if flags & FLAG_EXTRA != 0 {
        let (length, extra) = rest.split_first_chunk()?;
        rest = extra.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    // A name and a comment, each up to a zero.
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & FLAG_CHECKSUM != 0 {
        let header = &member[..member.len() - rest.len()];
        rest = rest.strip_prefix(&checksum(header).to_le_bytes()[..2])?;
    }
    (flags & FLAGS_RESERVED == 0).then_some(rest)
}

/// What stands behind the deflated data of a gzip member: the checksum of the data and its length.
fn trailer(data: &[u8]) -> [u8; 8] {
    // The length counts round 2^32.
    let words = [checksum(data), data.len() as u32].map(u32::to_le_bytes);
    *words.as_flattened().first_chunk().expect("it is eight bytes")
}

fn checksum(data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(data);
    crc.sum()
}

/// Why a body sent with `Content-Encoding: gzip` is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GzipError {
    /// The body is malformed. The sentence says why.
    Malformed(&'static str),
    /// It unpacks to more than `max` bytes.
    TooLarge {
        /// The bound, in bytes.
        max: usize,
    },
}

impl fmt::Display for GzipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GzipError::Malformed(reason) => f.write_str(reason),
            GzipError::TooLarge { max } => {
                write!(f, "The gzip body unpacks to more than {max} bytes.")
            }
        }
    }
}

impl std::error::Error for GzipError {}

/// The smallest window that holds all of `len` bytes, within reason: it spares the reader memory
/// and costs nothing. A Brotli window of exponent w spans 2^w - 16 bytes (RFC 7932, 9.1).
fn brotli_window(len: usize) -> i32 {
    (BROTLI_WINDOW_MIN..BROTLI_WINDOW_MAX)
        .find(|exponent| (1_usize << exponent) - 16 >= len)
        .unwrap_or(BROTLI_WINDOW_MAX)
}

const BROTLI_QUALITY: i32 = 5;
/// For smaller windows the encoder takes other tables, which are 24 MB large and cleared for each
/// call: at 15 KB, seven milliseconds instead of one, for a fiftieth less to send.
const BROTLI_WINDOW_MIN: i32 = 17;
const BROTLI_WINDOW_MAX: i32 = 22;
const ZSTD_LEVEL: i32 = 3;

/// How gzip with deflate begins (RFC 1952, 2.3.1): every gzip there is.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Up to there all headers are alike; then comes what the flags, in the fourth byte, announce.
const GZIP_HEADER_BYTES: usize = 10;
const FLAG_CHECKSUM: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;
const FLAGS_RESERVED: u8 = 0xe0;
const SYSTEM_UNKNOWN: u8 = 0xff;

/// Room for what DEFLATE adds to a few bytes that do not become smaller.
const GZIP_MARGIN: usize = 64;

/// Members in one body. Each makes the inflater begin anew, and an empty one takes 20 bytes.
const MEMBERS_MAX: usize = 1024;

const NOT_GZIP: &str = "The body is not gzip, which Content-Encoding says it is.";
const DAMAGED: GzipError = GzipError::Malformed("The gzip body is damaged or cut short.");
const TRAILING_GARBAGE: &str = "Bytes that are not gzip follow the gzip body.";
const TOO_MANY_MEMBERS: &str = "The gzip body is made of more than 1024 members.";

/// What an encoder keeps of its buffer, in bytes: most messages are smaller.
const PACKED_BYTES_KEPT: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::bufread::GzDecoder;
    use flate2::{Compression, GzBuilder};
    use std::io::{Read, Write};

    const MIB: usize = 1 << 20;

    fn encode(encoding: Encoding, data: &[u8]) -> Vec<u8> {
        Encoder::default().encode(encoding, data).unwrap().to_vec()
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        encode(Encoding::Gzip, data)
    }

    fn gunzip(packed: &[u8], max: usize) -> Result<Unpacked, GzipError> {
        super::gunzip(&mut Inflater::default(), packed, max)
    }

    fn unpack(packed: &[u8], max: usize) -> Result<Vec<u8>, GzipError> {
        gunzip(packed, max).map(|unpacked| unpacked.data)
    }

    /// One encoder for all, so that what it keeps is in nobody's way.
    #[test]
    fn round_trips() {
        let mut encoder = Encoder::default();
        let text: Vec<u8> = (0..20_000_u32).flat_map(|n| format!("{n},").into_bytes()).collect();
        let noise: Vec<u8> =
            (0..text.len() as u64).map(|n| (n.wrapping_mul(n ^ 0x9e37_79b9) >> 7) as u8).collect();
        for len in [text.len(), 0, 1, 255, 256, 1008, 1009, 4096, 65_536] {
            for data in [&text[..len], &noise[..len]] {
                let packed = encoder.encode(Encoding::Gzip, data).unwrap();
                assert_eq!(unpack(packed, len).unwrap(), data);
                let mut back = Vec::new();
                GzDecoder::new(packed).read_to_end(&mut back).unwrap();
                assert_eq!(back, data);

                let packed = encoder.encode(Encoding::Br, data).unwrap();
                let mut back = Vec::new();
                brotli::BrotliDecompress(&mut &packed[..], &mut back).unwrap();
                assert_eq!(back, data);

                let packed = encoder.encode(Encoding::Zstd, data).unwrap();
                assert_eq!(packed, encode(Encoding::Zstd, data));
                assert_eq!(zstd::bulk::decompress(packed, len).unwrap(), data);
            }
        }
        assert!(encoder.encode(Encoding::Identity, &text).is_none());
    }

    #[test]
    fn the_memory_of_a_large_message_is_returned() {
        let mut encoder = Encoder::default();
        encoder.encode(Encoding::Zstd, &vec![b'x'; MIB]).unwrap();
        assert!(encoder.packed.capacity() >= MIB);
        encoder.encode(Encoding::Gzip, b"x").unwrap();
        assert_eq!(encoder.packed.capacity(), PACKED_BYTES_KEPT);
    }

    /// What other programs put into the header is skipped, and must be sound.
    #[test]
    fn headers_may_have_more_parts() {
        let mut inflater = Inflater::default();
        for flags in 0..=255_u8 {
            let mut header = GzBuilder::new().mtime(1_700_000_000);
            if flags & FLAG_EXTRA != 0 {
                header = header.extra(*b"ab\x03\x00xyz");
            }
            if flags & FLAG_NAME != 0 {
                header = header.filename("a file");
            }
            if flags & FLAG_COMMENT != 0 {
                header = header.comment("");
            }
            let mut packed = header.write(Vec::new(), Compression::fast());
            packed.write_all(b"some data").unwrap();
            let mut packed = packed.finish().unwrap();
            packed[3] = flags;
            if flags & FLAG_CHECKSUM != 0 {
                let length = packed.len() - skip_header_unchecked(&packed).len();
                let sum = checksum(&packed[..length]).to_le_bytes();
                packed.splice(length..length, [sum[0], sum[1]]);
            }
            let unpacked = super::gunzip(&mut inflater, &packed, 100).map(|it| it.data);
            match flags & FLAGS_RESERVED {
                0 => assert_eq!(unpacked.unwrap(), b"some data", "{flags:08b}"),
                _ => assert_eq!(unpacked, Err(DAMAGED), "{flags:08b}"),
            }
            for cut in 3..packed.len() {
                let cut_short = super::gunzip(&mut inflater, &packed[..cut], 100);
                assert!(matches!(cut_short, Err(DAMAGED)), "{flags:08b} at {cut}");
            }
            if flags & FLAG_CHECKSUM != 0 {
                packed[4] ^= 1;
                let changed = super::gunzip(&mut inflater, &packed, 100);
                assert!(matches!(changed, Err(DAMAGED)), "{flags:08b}");
            }
        }
    }

    /// What follows a header without its checksum and reserved flags.
    fn skip_header_unchecked(packed: &[u8]) -> Vec<u8> {
        let mut plain = packed.to_vec();
        plain[3] &= !(FLAG_CHECKSUM | FLAGS_RESERVED);
        skip_header(&plain).unwrap().to_vec()
    }

    #[test]
    fn windows_fit() {
        for (len, exponent) in [(0, 17), (131_056, 17), (131_057, 18), (262_128, 18)] {
            assert_eq!(brotli_window(len), exponent, "{len}");
        }
        assert_eq!(brotli_window(MIB), 21);
        assert_eq!(brotli_window(usize::MAX), 22);
    }

    #[test]
    fn a_bomb_is_refused_at_the_bound() {
        let bomb = gzip(&vec![0; 10 * MIB]);
        assert!(bomb.len() < 16 * 1024);
        assert_eq!(unpack(&bomb, MIB), Err(GzipError::TooLarge { max: MIB }));
        // The same bomb in small parts: the bound is on their sum.
        let parts = gzip(&vec![0; 64 * 1024]).repeat(160);
        assert_eq!(unpack(&parts, MIB), Err(GzipError::TooLarge { max: MIB }));
        assert_eq!(unpack(&gzip(&vec![7; MIB]), MIB).unwrap().len(), MIB);
        assert_eq!(unpack(&gzip(&vec![7; MIB + 1]), MIB), Err(GzipError::TooLarge { max: MIB }));
        assert_eq!(unpack(&gzip(b"x"), 0), Err(GzipError::TooLarge { max: 0 }));
        assert_eq!(unpack(&gzip(b""), 0).unwrap(), b"");
    }

    #[test]
    fn members_are_joined_and_counted() {
        let two = [gzip(b"first "), gzip(b"second")].concat();
        let unpacked = gunzip(&two, 100).unwrap();
        assert_eq!((&unpacked.data[..], unpacked.members), (&b"first second"[..], 2));
        let empty = gzip(b"");
        assert!(unpack(&empty.repeat(MEMBERS_MAX), 100).is_ok());
        assert_eq!(
            unpack(&empty.repeat(MEMBERS_MAX + 1), 100),
            Err(GzipError::Malformed(TOO_MANY_MEMBERS))
        );
    }

    #[test]
    fn what_is_not_gzip_is_told_apart() {
        let good = gzip(b"hello, hello, hello");
        assert_eq!(unpack(b"", 100), Err(GzipError::Malformed(NOT_GZIP)));
        assert_eq!(unpack(b"hello", 100), Err(GzipError::Malformed(NOT_GZIP)));
        for cut in 0..good.len() {
            let error = unpack(&good[..cut], 100).unwrap_err();
            assert!(matches!(error, GzipError::Malformed(NOT_GZIP) | DAMAGED), "{cut}: {error:?}");
        }
        for tail in [&b"\0"[..], b"x", b"\x1f", b"\x1f\x8b", b"PUT / HTTP/1.1"] {
            let bytes = [&good[..], tail].concat();
            assert_eq!(
                unpack(&bytes, 100),
                Err(GzipError::Malformed(TRAILING_GARBAGE)),
                "{tail:?}"
            );
        }
        let mut wrong_sum = good.clone();
        let at = wrong_sum.len() - 8;
        wrong_sum[at] ^= 1;
        assert_eq!(unpack(&wrong_sum, 100), Err(DAMAGED));
        let mut wrong_len = good;
        let at = wrong_len.len() - 1;
        wrong_len[at] ^= 1;
        assert_eq!(unpack(&wrong_len, 100), Err(DAMAGED));
    }
}
