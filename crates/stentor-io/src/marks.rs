//! Marks of coverage: the code marks a rare branch, and a simulator each fault that it plays. A run
//! of many seeds fails if it has missed a mark (`stentor_test::marks`). Only tests and fuzz targets
//! count marks, by the feature `sim`. In the product a mark does nothing.

#[cfg(any(test, feature = "sim"))]
use std::{cell::RefCell, collections::BTreeSet};

/// Notes that this thread came here. Each place has a name of its own.
#[inline]
pub fn mark(name: &'static str) {
    #[cfg(any(test, feature = "sim"))]
    SEEN.with_borrow_mut(|seen| seen.insert(name));
    #[cfg(not(any(test, feature = "sim")))]
    let _ = name;
}

/// Takes the marks that this thread has passed.
#[cfg(any(test, feature = "sim"))]
#[must_use]
pub fn take_marks() -> BTreeSet<&'static str> {
    SEEN.take()
}

#[cfg(any(test, feature = "sim"))]
thread_local! {
    static SEEN: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_of_one_thread_and_taken_once() {
        mark("b");
        mark("a");
        mark("b");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(take_marks().is_empty()));
        });
        assert_eq!(take_marks(), BTreeSet::from(["a", "b"]));
        assert!(take_marks().is_empty());
    }
}
