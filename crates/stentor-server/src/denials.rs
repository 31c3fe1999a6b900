//! Refusals for want of a token: how they are answered, counted, and named in the log.
//!
//! Whoever guesses at tokens makes as many of them as the network carries, so the log has a line at
//! most so often, for all together. It names the holder of a token that was good, and of one that
//! was not it says why; a token itself is in no line. Whoever has shown a certificate is named,
//! too, and whatever such a client is refused for what it may not do is worth a line. Only when the
//! visit to the connection is over is it at hand who that is, so a line waits until then.

use crate::access::{Denied, Why};
use crate::stats::Stats;
use std::borrow::Cow;
use stentor_access::Keys;
use stentor_io::Counter;
use stentor_io::LogThrottle;
use stentor_wire::status::Status;

/// What a worker has refused since it last said so.
#[derive(Debug, Default)]
pub(crate) struct Denials {
    throttle: LogThrottle,
    /// What is to be logged once the visit is over.
    line: Option<String>,
}

impl Denials {
    /// Takes note of a refusal. Those for which no token came are counted only: whoever looks
    /// around makes them. Who holds the token is asked only if the log is to have a line.
    pub(crate) fn note(
        &mut self,
        stats: &Stats,
        why: Why,
        holder: impl FnOnce() -> Option<String>,
        now_ms: u64,
    ) {
        counter(stats, why).add(1);
        if why == Why::NotCovered && self.throttle.is_due(now_ms) {
            let holder = holder().unwrap_or_else(|| "somebody".to_owned());
            self.line =
                Some(format!("refused: the token of {holder} does not allow what it was sent for"));
        }
    }

    /// A token is not good: says so in the owner's words.
    pub(crate) fn bad(&mut self, keys: &Keys, token: &str, (now_ms, unix_s): (u64, u64)) {
        if self.throttle.is_due(now_ms) {
            let why = keys.why(token, unix_s).unwrap_or_default();
            self.line = Some(format!("a token is refused: {why}"));
        }
    }

    /// Whether something is to be logged.
    pub(crate) fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// The visit is over, with an answer that refuses if `status` is there: what is to be logged is
    /// logged, with the client's name if it has proved who it is.
    pub(crate) fn tell(&mut self, status: Option<Status>, client: Option<&str>, now_ms: u64) {
        if let (None, Some(Status(status)), Some(_)) = (&self.line, status, client)
            && self.throttle.is_due(now_ms)
        {
            self.line = Some(format!("a request is refused with {status}"));
        }
        // mutation: denial-twice
        let Some(line) = self.line.take() else { return };
        let by = client.map(|client| format!(", sent by {client}")).unwrap_or_default();
        let since = self.throttle.take();
        tracing::warn!("{line}{by} ({since} refused since the last such line)");
    }
}

/// Where refusals of a kind are counted.
fn counter(stats: &Stats, why: Why) -> &Counter {
    match why {
        Why::Policy => &stats.refused_policy,
        Why::NoToken => &stats.refused_no_token,
        Why::BadToken(refused) => stats.refused_tokens.of(refused),
        Why::NotCovered => &stats.refused_not_covered,
    }
}

impl Denied {
    /// The challenge that the response has for it (RFC 6750 section 3).
    pub(crate) fn challenge(&self) -> Option<Cow<'static, str>> {
        match self.why {
            Why::Policy => None,
            Why::NoToken => Some("Bearer realm=\"stentor\"".into()),
            // Sentences have neither quotes nor backslashes.
            Why::BadToken(refused) => Some(
                format!(
                    "Bearer realm=\"stentor\", error=\"invalid_token\", \
                     error_description=\"{refused}\""
                )
                .into(),
            ),
            Why::NotCovered => {
                Some("Bearer realm=\"stentor\", error=\"insufficient_scope\"".into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_access::Refused;
    use stentor_io::PAUSE_LOG_MS;
    use stentor_wire::status::Status;

    #[test]
    fn every_reason_may_stand_in_a_field() {
        for refused in Refused::ALL {
            let value = Denied { rejection: refused.rejection(), why: Why::BadToken(refused) }
                .challenge()
                .unwrap();
            assert!(!value.contains(|c: char| !c.is_ascii() || c.is_control()), "{value}");
            assert!(value.matches('"').count() == 6 && !value.contains('\\'), "{value}");
        }
    }

    /// Each kind of refusal is counted once, and by itself.
    #[test]
    fn refusals_are_counted_by_kind() {
        let bad = Refused::ALL.into_iter().map(Why::BadToken);
        let kinds: Vec<Why> = bad.chain([Why::Policy, Why::NoToken, Why::NotCovered]).collect();
        let (stats, mut denials) = (Stats::default(), Denials::default());
        for (times, &why) in kinds.iter().enumerate() {
            (0..=times).for_each(|_| denials.note(&stats, why, || None, 0));
        }
        for (times, &why) in (1..).zip(&kinds) {
            assert_eq!(counter(&stats, why).value(), times, "{why:?}");
        }
        let totals = crate::stats::Totals::sum([&stats]);
        let names: Vec<&str> = Refused::ALL.into_iter().map(Refused::name).collect();
        assert_eq!(totals.refused_tokens.named().map(|(name, _)| name).collect::<Vec<_>>(), names);
        assert!(
            (1..).zip(totals.refused_tokens.named()).all(|(times, (_, &count))| times == count)
        );
    }

    /// Who holds a token is asked for a line of the log, and for nothing else.
    #[test]
    fn holders_are_asked_for_only_if_a_line_is_due() {
        let (stats, mut denials, mut asked) = (Stats::default(), Denials::default(), 0);
        for now_ms in [0, 1, PAUSE_LOG_MS - 1, PAUSE_LOG_MS] {
            let holder = || {
                asked += 1;
                None
            };
            denials.note(&stats, Why::NotCovered, holder, now_ms);
        }
        denials.note(&stats, Why::NoToken, || panic!("nobody holds it"), 9 * PAUSE_LOG_MS);
        assert_eq!(asked, 2);
    }

    /// Of somebody who has shown a certificate every such refusal is worth a line, of others that
    /// of a good token.
    #[test]
    fn lines_are_made_of_what_is_known() {
        let (stats, mut denials) = (Stats::default(), Denials::default());
        denials.tell(Some(Status::FORBIDDEN), None, 0);
        denials.tell(None, Some("CN=ann"), 0);
        assert_eq!(denials.throttle.state(), (0, None));
        denials.tell(Some(Status::FORBIDDEN), Some("CN=ann"), 0);
        assert_eq!(denials.throttle.state(), (0, Some(0)));
        denials.tell(Some(Status::FORBIDDEN), Some("CN=ann"), 1);
        assert_eq!(denials.throttle.state(), (1, Some(0)));
        denials.note(&stats, Why::NotCovered, || Some("bob".to_owned()), PAUSE_LOG_MS);
        let line = "refused: the token of bob does not allow what it was sent for";
        assert_eq!(denials.line.as_deref(), Some(line));
        denials.tell(Some(Status::FORBIDDEN), Some("CN=ann"), PAUSE_LOG_MS);
        assert_eq!((denials.throttle.state().0, denials.has_line()), (0, false));
    }

    /// A client that guesses at tokens does not fill the log.
    #[test]
    fn bad_tokens_get_a_line_now_and_then() {
        let keys = stentor_access::load(&Default::default(), &[], stentor_io::read_file);
        let (keys, mut denials) = (keys.unwrap().keys, Denials::default());
        let lines = [0, 1, PAUSE_LOG_MS - 1, PAUSE_LOG_MS].map(|now_ms| {
            denials.bad(&keys, "guess", (now_ms, 0));
            denials.line.take().is_some()
        });
        assert_eq!(lines, [true, false, false, true]);
    }
}
