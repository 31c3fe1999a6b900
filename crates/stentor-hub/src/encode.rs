//! Content codings: packing what readers ask for, unpacking what a publisher sends.
//!
//! A message is packed once and then sent many times, off the worker threads, so the levels are
//! chosen a little above the fastest. Unpacking stops at a bound given by the caller: a kilobyte
//! of gzip can stand for a megabyte of zeros, and only the bound knows that nobody wants it.

use std::fmt;
use std::io::{Read, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use stentor_wire::negotiate::Encoding;

/// `data` in that coding; `None` for identity, or if the coder could not get memory.
/// Whether the outcome is worth keeping is the caller's to judge.
pub fn compress(encoding: Encoding, data: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Identity => None,
        Encoding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
            encoder.write_all(data).ok()?;
            encoder.finish().ok()
        }
        Encoding::Br => {
            let params = BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: brotli_window(data.len()),
                size_hint: data.len(),
                ..BrotliEncoderParams::default()
            };
            let mut out = Vec::new();
            brotli::BrotliCompress(&mut &data[..], &mut out, &params).ok()?;
            Some(out)
        }
        Encoding::Zstd => zstd::bulk::compress(data, ZSTD_LEVEL).ok(),
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
pub(crate) fn gunzip(packed: &[u8], bytes_max: usize) -> Result<Unpacked, GzipError> {
    let mut data = Vec::new();
    let mut members = 0;
    let mut rest = packed;
    while members == 0 || !rest.is_empty() {
        if !rest.starts_with(&GZIP_MAGIC) {
            let garbage = members > 0;
            return Err(if garbage { GzipError::TrailingGarbage } else { GzipError::NotGzip });
        }
        if members == MEMBERS_MAX {
            return Err(GzipError::TooManyMembers);
        }
        let mut decoder = GzDecoder::new(rest);
        // One byte more than there is room for tells "exactly full" from "too large"; it also
        // makes the decoder reach the end of the member, where the checksum is.
        let room = (bytes_max - data.len()) as u64 + 1;
        (&mut decoder).take(room).read_to_end(&mut data).map_err(|_| GzipError::Damaged)?;
        if data.len() > bytes_max {
            return Err(GzipError::TooLarge { max: bytes_max });
        }
        rest = decoder.into_inner();
        members += 1;
    }
    Ok(Unpacked { data, members })
}

/// Why a body sent with `Content-Encoding: gzip` is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GzipError {
    /// It does not begin as gzip does.
    NotGzip,
    /// It ends too early, or its checksum does not hold.
    Damaged,
    /// Bytes follow that are not gzip.
    TrailingGarbage,
    /// It is cut into more members than anybody needs for so few bytes.
    TooManyMembers,
    /// It unpacks to more than `max` bytes.
    TooLarge {
        /// The bound, in bytes.
        max: usize,
    },
}

impl fmt::Display for GzipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GzipError::NotGzip => {
                f.write_str("The body is not gzip, which Content-Encoding says it is.")
            }
            GzipError::Damaged => f.write_str("The gzip body is damaged or cut short."),
            GzipError::TrailingGarbage => {
                f.write_str("Bytes that are not gzip follow the gzip body.")
            }
            GzipError::TooManyMembers => {
                write!(f, "The gzip body is made of more than {MEMBERS_MAX} members.")
            }
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

const GZIP_LEVEL: u32 = 6;
const BROTLI_QUALITY: i32 = 5;
/// For smaller windows the encoder takes other tables, which are 24 MB large and cleared for each
/// call: at 15 KB, seven milliseconds instead of one, for a fiftieth less to send.
const BROTLI_WINDOW_MIN: i32 = 17;
const BROTLI_WINDOW_MAX: i32 = 22;
const ZSTD_LEVEL: i32 = 3;

/// How gzip with deflate begins (RFC 1952, 2.3.1): every gzip there is.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Members in one body. Each costs a decoder of its own, and an empty one takes 20 bytes.
const MEMBERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn gzip(data: &[u8]) -> Vec<u8> {
        compress(Encoding::Gzip, data).unwrap()
    }

    fn unpack(packed: &[u8], max: usize) -> Result<Vec<u8>, GzipError> {
        gunzip(packed, max).map(|unpacked| unpacked.data)
    }

    #[test]
    fn round_trips() {
        let text: Vec<u8> = (0..20_000_u32).flat_map(|n| format!("{n},").into_bytes()).collect();
        for len in [0, 1, 255, 256, 1008, 1009, 4096, 65_536, text.len()] {
            let data = &text[..len];
            assert_eq!(unpack(&gzip(data), len).unwrap(), data);

            let packed = compress(Encoding::Br, data).unwrap();
            let mut back = Vec::new();
            brotli::BrotliDecompress(&mut &packed[..], &mut back).unwrap();
            assert_eq!(back, data);

            let packed = compress(Encoding::Zstd, data).unwrap();
            assert_eq!(zstd::bulk::decompress(&packed, len).unwrap(), data);
        }
        assert!(compress(Encoding::Identity, &text).is_none());
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
        assert_eq!(unpack(&empty.repeat(MEMBERS_MAX + 1), 100), Err(GzipError::TooManyMembers));
    }

    #[test]
    fn what_is_not_gzip_is_told_apart() {
        let good = gzip(b"hello, hello, hello");
        assert_eq!(unpack(b"", 100), Err(GzipError::NotGzip));
        assert_eq!(unpack(b"hello", 100), Err(GzipError::NotGzip));
        for cut in 0..good.len() {
            let error = unpack(&good[..cut], 100).unwrap_err();
            assert!(matches!(error, GzipError::NotGzip | GzipError::Damaged), "{cut}: {error:?}");
        }
        for tail in [&b"\0"[..], b"x", b"\x1f", b"\x1f\x8b", b"PUT / HTTP/1.1"] {
            let bytes = [&good[..], tail].concat();
            assert_eq!(unpack(&bytes, 100), Err(GzipError::TrailingGarbage), "{tail:?}");
        }
        let mut wrong_sum = good.clone();
        let at = wrong_sum.len() - 8;
        wrong_sum[at] ^= 1;
        assert_eq!(unpack(&wrong_sum, 100), Err(GzipError::Damaged));
        let mut wrong_len = good;
        let at = wrong_len.len() - 1;
        wrong_len[at] ^= 1;
        assert_eq!(unpack(&wrong_len, 100), Err(GzipError::Damaged));
    }
}
