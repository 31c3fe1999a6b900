//! The kernel's version.
//!
//! Before 6.0 a socket could keep up to 2 MB reserved in the account of `tcp_mem` after its traffic
//! had ended, and nothing took it back ("10,000 sockets can have reserved 20 GB", says the change
//! "net: keep sk->sk_forward_alloc as small as possible"). Many streams that are mostly silent are
//! just that case.

use crate::{Change, Facts, Finding, Plan, Setting, Severity};

pub(super) fn judge(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let (Some(version), Some(release)) = (facts.kernel_version(), &facts.kernel) else {
        return vec![Finding::unknown("the kernel's version")];
    };
    if version >= (6, 0) || plan.connections < MANY {
        return vec![Finding::fine(release.clone())];
    }
    let change = Change::of(Setting::Kernel, release, "6.0");
    let why = "before Linux 6.0 sockets kept a reserve of buffers when their traffic had ended, \
               and many of them used up tcp_mem with nothing in it";
    let cost = "a restart of the host; some distributions have the change in older versions, and \
                'mem' in /proc/net/sockstat shows how much is kept";
    vec![Finding::new(Severity::Slows, [change], why, cost)]
}

/// Fewer sockets do not use up `tcp_mem`.
const MANY: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::super::testing::{check, plan};
    use super::*;

    #[test]
    fn old_kernels_keep_reserves() {
        let with = |release: &str| Facts { kernel: Some(release.into()), ..Facts::default() };
        check(&judge(&with("5.15.0-91-generic"), &plan(100_000)), Severity::Slows, &["6.0"]);
        check(&judge(&with("5.15.0-91-generic"), &plan(1_000)), Severity::Fine, &[]);
        check(&judge(&with("6.0"), &plan(100_000)), Severity::Fine, &[]);
        check(&judge(&with("6.18.44"), &plan(100_000)), Severity::Fine, &[]);
        check(&judge(&with("Linux"), &plan(100_000)), Severity::Unknown, &[]);
    }
}
