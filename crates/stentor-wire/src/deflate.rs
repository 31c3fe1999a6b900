//! DEFLATE (RFC 1951): a compressor and a decompressor that are kept, and used for one thing after
//! the other.
//!
//! Each is a few hundred kilobytes of tables. Made anew for every message they would come to lie
//! between the small allocations that last, and leave a hole there that the next small ones begin
//! to fill, so that the next tables need a place of their own: a message of one kilobyte would
//! cost two hundred. So whoever deflates or inflates owns one of each, which is made when it is
//! first needed, and a reset is all that lies between two messages.
//!
//! The results, too, are first written to buffers that stay: how large they are is known only
//! afterwards, and what is kept of them is then as large as that.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Deflates one thing after the other, each by itself and with a window of 32 KiB.
#[derive(Debug, Default)]
pub struct Deflater {
    compress: Option<Compress>,
    /// What it wrote last, and room behind it that is not cleared each time.
    deflated: Vec<u8>,
}

impl Deflater {
    /// `data` as a stream that ends in a last block. `None` if it takes more than `bytes_max`
    /// bytes.
    pub fn whole(&mut self, data: &[u8], bytes_max: usize) -> Option<&[u8]> {
        self.run(data, bytes_max, FlushCompress::Finish)
    }

    /// `data` as blocks of which none is the last, up to the end of a flush: `00 00 ff ff`. `None`
    /// if they take more than `bytes_max` bytes.
    pub fn flushed(&mut self, data: &[u8], bytes_max: usize) -> Option<&[u8]> {
        self.run(data, bytes_max, FlushCompress::Sync)
    }

    fn run(&mut self, data: &[u8], bytes_max: usize, flush: FlushCompress) -> Option<&[u8]> {
        // One byte more: a flush that fills all of its room may not have come to its end.
        let room = bytes_max.checked_add(1)?;
        if self.deflated.len() > DEFLATED_BYTES_KEPT {
            self.deflated = Vec::new();
        }
        if self.deflated.len() < room {
            self.deflated.resize(room, 0);
        }
        let compress =
            self.compress.get_or_insert_with(|| Compress::new(Compression::new(LEVEL), false));
        compress.reset();
        compress.compress(data, &mut self.deflated[..room], flush).ok()?;
        let bytes = usize::try_from(compress.total_out()).ok()?;
        let is_whole = compress.total_in() == data.len() as u64 && bytes <= bytes_max;
        is_whole.then(|| &self.deflated[..bytes])
    }
}

/// Inflates one thing after the other.
#[derive(Debug, Default)]
pub struct Inflater {
    decompress: Option<Decompress>,
    /// What is inflated in one step.
    room: Vec<u8>,
    steps: u64,
}

impl Inflater {
    /// Inflates one stream at the beginning of `deflated`, up to the end of its last block, and
    /// appends it to `data`. Returns how many bytes of `deflated` it was.
    ///
    /// The time it takes is linear in these and in what comes of them; what it reserves, in the
    /// latter.
    ///
    /// # Errors
    /// It is no whole stream, or `data` would be longer than `bytes_max`; `data` then holds a part
    /// of it, and never more than one byte too much.
    pub fn stream(
        &mut self,
        deflated: &[u8],
        data: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<usize, InflateError> {
        self.room.resize(STEP_BYTES, 0);
        let inflater = self.decompress.get_or_insert_with(|| Decompress::new(false));
        inflater.reset(false);
        let mut used = 0;
        loop {
            // One byte more than is allowed, to tell what is too long.
            let data_room = bytes_max.saturating_add(1).saturating_sub(data.len());
            let room = &mut self.room[..data_room.min(STEP_BYTES)];
            let made_before = inflater.total_out();
            self.steps += 1;
            let status = inflater
                .decompress(&deflated[used..], room, FlushDecompress::None)
                .map_err(|_| InflateError::Broken)?;
            used = usize::try_from(inflater.total_in()).map_err(|_| InflateError::TooLong)?;
            let made = usize::try_from(inflater.total_out() - made_before).unwrap_or(room.len());
            if data.capacity() - data.len() < made {
                data.reserve_exact(data.len().max(made).min(data_room));
            }
            data.extend_from_slice(&room[..made]);
            match status {
                _ if data.len() > bytes_max => return Err(InflateError::TooLong),
                Status::StreamEnd => return Ok(used),
                // It stopped for want of room.
                Status::Ok if made == room.len() => {}
                Status::Ok | Status::BufError => return Err(InflateError::Broken),
            }
        }
    }

    /// How often it has called the decompressor so far: a measure of its work.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// Why something could not be inflated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InflateError {
    /// It is longer than it may be.
    TooLong,
    /// It is not DEFLATE, or was cut off.
    Broken,
}

const LEVEL: u32 = 6;

/// What a deflater keeps of its buffer, in bytes: more than a message that workers deflate.
const DEFLATED_BYTES_KEPT: usize = 64 * 1024;

/// How much is inflated in one step, in bytes.
const STEP_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests;
