//! Wipes what work with secrets leaves in memory.
//!
//! A TLS handshake copies its secrets: the library moves its state from one allocation to the next,
//! and a moved value stays where it was. No destructor reaches these copies. [`wiping`]
//! runs a piece of work, makes the allocator wipe everything that this thread frees meanwhile, and
//! then wipes the part of the stack that the work used.
//!
//! The allocator does that only in a program that declares it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: stentor_io::WipingAllocator = stentor_io::WipingAllocator;
//! ```
//!
//! Outside of [`wiping`] it costs one look at a variable of the thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use zeroize::zeroize_stack;

/// The allocator of the system. It wipes what is freed by work that [`wiping`] runs.
#[derive(Debug)]
pub struct WipingAllocator;

/// Does the work, and wipes the memory that it freed and the stack that it used.
///
/// It takes some microseconds, and 64 KiB of the stack.
pub fn wiping<R>(work: impl FnOnce() -> R) -> R {
    let scope = WipeScope { outer: IS_WIPING.replace(true) };
    let result = apart(work);
    drop(scope);
    zeroize_stack::<WIPED_STACK_BYTES>();
    result
}

/// The allocator wipes until this is dropped, also by a panic.
struct WipeScope {
    outer: bool,
}

impl Drop for WipeScope {
    fn drop(&mut self) {
        IS_WIPING.set(self.outer);
    }
}

/// Gives the work a stack frame of its own, which `zeroize_stack` overwrites.
#[inline(never)]
fn apart<R>(work: impl FnOnce() -> R) -> R {
    work()
}

// SAFETY: each method hands the caller's promises to the allocator of the system, and what that
// returns to the caller. Nothing here allocates or panics: the variable of the thread needs neither
// a constructor nor a destructor.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if IS_WIPING.get() {
            // SAFETY: the caller gives back an allocation of this size, and uses it no more.
            unsafe { libc::explicit_bzero(memory.cast(), layout.size()) };
        }
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !IS_WIPING.get() {
            // SAFETY: as in `alloc`.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // The system would move it and leave a copy.
        // SAFETY: the caller promises a size that is not zero and does not overflow when it is
        // rounded up to the alignment, which is that of a valid layout.
        let moved =
            unsafe { System.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both allocations have as many bytes, and they are different ones. The caller
            // uses the old one no more.
            unsafe {
                memory.copy_to_nonoverlapping(moved, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
        }
        moved
    }
}

thread_local! {
    static IS_WIPING: Cell<bool> = const { Cell::new(false) };
}

/// How much of the stack is wiped: a handshake uses less.
const WIPED_STACK_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::hint::black_box;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_grows_while_it_is_wiped_keeps_its_contents() {
        let layout = Layout::array::<u8>(100).unwrap();
        for is_wiped in [false, true] {
            let scope = WipeScope { outer: IS_WIPING.replace(is_wiped) };
            // SAFETY: each allocation is used within its size and given back with its own layout.
            let kept = unsafe {
                let first = WipingAllocator.alloc(layout);
                first.write_bytes(7, 100);
                let grown = WipingAllocator.realloc(first, layout, 5000);
                let kept = std::slice::from_raw_parts(grown, 100).to_vec();
                let layout = Layout::array::<u8>(5000).unwrap();
                let shrunk = WipingAllocator.realloc(grown, layout, 10);
                let kept = [&kept, std::slice::from_raw_parts(shrunk, 10)].concat();
                WipingAllocator.dealloc(shrunk, Layout::array::<u8>(10).unwrap());
                kept
            };
            drop(scope);
            assert_eq!(kept, [7; 110]);
        }
    }

    /// No reference leads to the stack of a call that has returned: the kernel reads it.
    #[test]
    fn the_stack_that_work_used_is_wiped() {
        let secret_after = |work: fn() -> u64| {
            let address = work();
            let mut memory = [0; 16];
            File::open("/proc/self/mem").unwrap().read_exact_at(&mut memory, address).unwrap();
            memory == [SECRET; 16]
        };
        assert!(secret_after(deep_secret));
        assert!(!secret_after(|| wiping(deep_secret)));
    }

    const SECRET: u8 = 0xa5;

    /// Leaves a secret some 48 KiB below on the stack. Returns its address.
    #[inline(never)]
    fn deep_secret() -> u64 {
        let secret = black_box([SECRET; 48 * 1024]);
        secret.as_ptr().addr() as u64
    }

    #[test]
    fn work_is_wiped_to_its_end_and_no_longer() {
        let inner = wiping(|| {
            let nested = wiping(|| IS_WIPING.get());
            let panicked = std::panic::catch_unwind(|| wiping::<()>(|| panic!("on purpose")));
            assert!(panicked.is_err());
            nested && IS_WIPING.get()
        });
        assert!(inner);
        let panicked = std::panic::catch_unwind(|| wiping::<()>(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert!(!IS_WIPING.get());
    }
}
