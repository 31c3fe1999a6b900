//! What of a pattern a reader may see, topic by topic.
//!
//! Most readers may see all that they read, and for them nothing is asked. Others share what is
//! gathered for one of them with all who have the same set of permissions, or none.

use super::passes::Pass;
use super::rules::TopicRules;

/// Which topics may be seen.
#[derive(Clone, Copy)]
pub(crate) struct SightOf<'a>(Option<(&'a TopicRules, Option<Pass<'a>>)>);

impl<'a> SightOf<'a> {
    /// All.
    pub(crate) const ALL: SightOf<'static> = SightOf(None);

    /// What anyone may see, and what this pass allows.
    pub(crate) fn new(rules: &'a TopicRules, pass: Option<Pass<'a>>) -> SightOf<'a> {
        SightOf(Some((rules, pass)))
    }

    /// Whether this topic may be seen.
    pub(crate) fn covers(&self, topic: &str) -> bool {
        let Some((rules, pass)) = &self.0 else { return true };
        let is_allowed = || pass.as_ref().is_some_and(|pass| pass.permissions.may_read(topic));
        !rules.is_private(topic) || is_allowed()
    }

    /// Tells it from others, as long as nobody's pass changes.
    pub(crate) fn number(&self) -> u32 {
        match &self.0 {
            None => 0,
            Some((_, None)) => 1,
            Some((_, Some(pass))) => pass.serial.wrapping_add(1).max(2),
        }
    }
}
