//! What is not to be found in a core dump.

use rustix::mm::{Advice, madvise};
use std::ffi::c_void;
use std::ops::Range;

/// Asks the kernel to leave this memory out of core dumps, as far as whole pages of it are
/// concerned. Where it will not, nothing is lost but that.
pub fn leave_out_of_dumps<T>(memory: &[T]) {
    let bytes = memory.as_ptr().addr()..memory.as_ptr_range().end.addr();
    let pages = whole_pages(bytes, rustix::param::page_size());
    if !pages.is_empty() {
        let begin = memory.as_ptr().with_addr(pages.start).cast::<c_void>().cast_mut();
        // SAFETY: the range is within memory that is borrowed, and the advice concerns dumps alone:
        // it neither reads, writes nor unmaps anything.
        let _ = unsafe { madvise(begin, pages.len(), Advice::LinuxDontDump) };
    }
}

/// The pages that lie within a range of addresses. The kernel takes no other ranges, and pages have
/// 16 or 64 KiB on some hosts.
fn whole_pages(bytes: Range<usize>, page_bytes: usize) -> Range<usize> {
    // mutation: dump-in-page
    bytes.start.next_multiple_of(page_bytes)..bytes.end / page_bytes * page_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_of_the_host_are_left_out() {
        let kib = 1 << 10;
        for page_bytes in [4 * kib, 16 * kib, 64 * kib] {
            let pages = whole_pages(5 * kib..300 * kib, page_bytes);
            assert!(pages.start.is_multiple_of(page_bytes) && pages.end.is_multiple_of(page_bytes));
            assert!(pages.start >= 5 * kib && pages.end <= 300 * kib && pages.len() >= 192 * kib);
        }
        assert!(whole_pages(5 * kib..31 * kib, 16 * kib).is_empty());
        assert!(whole_pages(5 * kib..6 * kib, 16 * kib).is_empty());
    }

    #[test]
    fn what_is_left_out_is_marked_so() {
        let page_bytes = rustix::param::page_size();
        let memory = vec![7_u8; 64 * page_bytes];
        leave_out_of_dumps(&memory);
        let at = memory.as_ptr().addr() + 32 * page_bytes;
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
