//! Prints the acts of a simulation, one by one: `cargo xtask sim NAME --seed N --trace`.

use std::env;
use std::fmt::{self, Display};
use std::sync::LazyLock;

/// Prints one act, if `STENTOR_TRACE` is set: when it happened, in milliseconds of virtual time,
/// and what was done.
pub fn act(now_ms: u64, what: fmt::Arguments<'_>) {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| env::var_os("STENTOR_TRACE").is_some());
    if *IS_ON {
        eprintln!("{now_ms:>8} ms  {what}");
    }
}

/// Bytes on one line: their number, and so many of the first as fit.
pub struct Excerpt<'a>(pub &'a [u8]);

impl Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.0.split_at(self.0.len().min(EXCERPT_BYTES));
        let more = if rest.is_empty() { "" } else { "…" };
        write!(f, "{} bytes: {}{more}", self.0.len(), first.escape_ascii())
    }
}

const EXCERPT_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_stay_on_one_line() {
        assert_eq!(Excerpt(b"a\r\n").to_string(), "3 bytes: a\\r\\n");
        let long = Excerpt(&[b'x'; 1_000]).to_string();
        assert!(long.ends_with("xx…") && long.len() < 200, "{long}");
    }
}
