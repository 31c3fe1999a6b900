//! One step of one handshake: what it is told, and what is taken out of it.
//!
//! rustls asks for the time, logs secrets and chooses a certificate by objects that all handshakes
//! share. What is meant for one of them goes by a place that belongs to the thread and is there
//! only while a step is made. A step is made from its beginning to its end by one thread, and none
//! is made within another: what is in that place is of this handshake.

use std::cell::RefCell;

use zeroize::Zeroizing;

/// What steps have brought.
#[derive(Default)]
pub(crate) struct StepResult {
    /// The secret of what is sent.
    pub(crate) tx: Option<TrafficSecret>,
    /// The secret of what comes.
    pub(crate) rx: Option<TrafficSecret>,
    pub(crate) server_name: Option<String>,
    /// No certificate is one that the client could verify.
    pub(crate) has_no_certificate: bool,
}

/// A traffic secret. It is moved often and stays in one place, where it is overwritten with zeros
/// in the end.
pub(crate) type TrafficSecret = Zeroizing<Box<[u8]>>;

/// Makes a step at this time, and says what it brought beside its own result.
pub(crate) fn run<R>(now_unix_s: u64, step: impl FnOnce() -> R) -> (R, StepResult) {
    let place = StepGuard::begin(now_unix_s);
    let result = step();
    (result, place.end())
}

/// When the step is made. `None` outside of one.
pub(crate) fn now_unix_s() -> Option<u64> {
    STEP.with_borrow(|step| step.as_ref().map(|step| step.now_unix_s))
}

/// Whatever is of this handshake is put down here. Outside of a step it is lost.
pub(crate) fn put_down(put: impl FnOnce(&mut StepResult)) {
    STEP.with_borrow_mut(|step| {
        if let Some(step) = step {
            put(&mut step.taken);
        }
    });
}

impl StepResult {
    /// What later steps have brought counts.
    pub(crate) fn add(&mut self, other: StepResult) {
        self.tx = other.tx.or(self.tx.take());
        self.rx = other.rx.or(self.rx.take());
        self.server_name = other.server_name.or(self.server_name.take());
        self.has_no_certificate |= other.has_no_certificate;
    }
}

struct StepState {
    now_unix_s: u64,
    taken: StepResult,
}

/// The thread's place while a step is made. It is cleared however that ends.
struct StepGuard;

impl StepGuard {
    fn begin(now_unix_s: u64) -> StepGuard {
        STEP.set(Some(StepState { now_unix_s, taken: StepResult::default() }));
        StepGuard
    }

    fn end(self) -> StepResult {
        STEP.take().map(|step| step.taken).unwrap_or_default()
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        STEP.take();
    }
}

thread_local! {
    static STEP: RefCell<Option<StepState>> = const { RefCell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> TrafficSecret {
        Zeroizing::new([byte; 32].into())
    }

    #[test]
    fn what_is_put_down_is_of_the_step_that_is_made() {
        let put = |byte: u8| put_down(|taken| taken.tx = Some(secret(byte)));
        put(1);
        let (now, first) = run(7, || {
            put(2);
            now_unix_s()
        });
        put(3);
        let ((), second) = run(8, || {});
        assert_eq!(now, Some(7));
        assert_eq!(now_unix_s(), None);
        assert_eq!(**first.tx.unwrap(), [2; 32]);
        assert!(second.tx.is_none());
    }

    #[test]
    fn a_step_that_panics_leaves_nothing_behind() {
        let panicked = std::panic::catch_unwind(|| {
            run(7, || {
                put_down(|taken| taken.tx = Some(secret(1)));
                panic!("on purpose");
            })
        });
        assert!(panicked.is_err());
        assert_eq!(now_unix_s(), None);
        assert!(run(8, || {}).1.tx.is_none());
    }
}
