//! What is not to be found in a core dump.

use rustix::mm::{Advice, madvise};
use std::ffi::c_void;

/// Asks the kernel to leave this memory out of core dumps, as far as whole pages of it are
/// concerned. Where it will not, nothing is lost but that.
pub fn leave_out_of_dumps<T>(memory: &[T]) {
    let begin = memory.as_ptr().addr().next_multiple_of(PAGE_BYTES);
    let end = memory.as_ptr_range().end.addr() / PAGE_BYTES * PAGE_BYTES;
    if begin < end {
        let pages = memory.as_ptr().with_addr(begin).cast::<c_void>().cast_mut();
        // SAFETY: the range is within memory that is borrowed, and the advice concerns dumps alone:
        // it neither reads, writes nor unmaps anything.
        let _ = unsafe { madvise(pages, end - begin, Advice::LinuxDontDump) };
    }
}

/// Pages are this large or, on some hosts, a multiple of it; there the kernel refuses.
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_marked_so() {
        let memory = vec![7_u8; 64 * PAGE_BYTES];
        leave_out_of_dumps(&memory);
        let at = memory.as_ptr().addr() + 32 * PAGE_BYTES;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_it = false;
        let mut flags = "";
        for line in maps.lines() {
            let range = line.split_whitespace().next().unwrap_or_default().split_once('-');
            let range = range.and_then(|(from, to)| {
                Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
            });
            if let Some((from, to)) = range {
                is_it = (from..to).contains(&at);
            } else if is_it && line.starts_with("VmFlags:") {
                flags = line;
            }
        }
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
        assert!(memory.iter().all(|byte| *byte == 7));
    }
}
