//! What of a pattern a reader may see, topic by topic.
//!
//! Most readers may see all that they read, and for them nothing is asked. Others share what is
//! gathered for one of them with all whose tokens grant the same, or who have none.

use super::passes::Pass;
use stentor_access::{Scope, TopicRules};

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
        let is_allowed = || pass.as_ref().is_some_and(|pass| pass.scope.may_read(topic));
        !rules.is_private(topic) || is_allowed()
    }

    /// Tells it from others under the same rules.
    pub(crate) fn kind(&self) -> Kind {
        match &self.0 {
            None => Kind::All,
            Some((_, None)) => Kind::Open,
            // mutation: batch-of-another
            Some((_, Some(pass))) => Kind::Granted(pass.scope.clone()),
        }
    }
}

/// Which topics may be seen, under rules that stay the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// All.
    All,
    /// What anyone may see.
    Open,
    /// And what this grants.
    Granted(Scope),
}
