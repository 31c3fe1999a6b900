//! The names under which files are sent, beside the path that is asked for.
//!
//! A rule speaks of names, and a file may be reached under another: as the index of a directory, as
//! the page that answers for all others, packed beside itself, in a list, or by a redirect that
//! tells that it is there. So each of these names is judged as if it had been asked for, and before
//! anything is looked up: no answer says whether there is something that may not be read.

use super::{Act, Visitor};
use stentor_access::Coverage;
use stentor_config::{Mount, Settings};
use stentor_files::{PACKED, mount_of};
use stentor_hub::Filter;

/// What a directory is answered with.
pub(crate) const INDEX: &str = "index.html";

/// Whether this name asks for a token, be it that of a topic or of a file.
pub(crate) fn is_private(settings: &Settings, name: &str) -> bool {
    settings.access.topics.is_private(name) || settings.is_private_file(name)
}

/// Whether a GET of this path may be answered with something that asks for a token.
pub(crate) fn may_send_private(settings: &Settings, path: &str) -> bool {
    if settings.mounts.is_empty() {
        return settings.access.topics.is_private(path);
    }
    let is_private = |name: &str| is_private(settings, name);
    let fallback = || {
        let mount = mount_of(&settings.mounts, path).map(|(_, mount, _)| mount);
        mount.and_then(Mount::fallback_name).is_some_and(|name| is_private(&name))
    };
    unpacked(path).any(is_private)
        || path.ends_with('/') && may_hide_below(settings, path)
        || is_private(&format!("{path}/"))
        || fallback()
}

/// Whether a name that begins with this directory, which ends with a slash, may be one that asks
/// for a token.
pub(crate) fn may_hide_below(settings: &Settings, directory: &str) -> bool {
    let hides = |mount: &Mount| mount.asks_for_token() && mount.path.starts_with(directory);
    if settings.mounts.iter().any(hides) {
        return true;
    }
    let rules = &settings.access.topics;
    // What is no pattern may be anything.
    let filter = || Filter::parse(&format!("{directory}**")).ok();
    let covers = |filter| rules.compare(None).coverage(&filter) == Coverage::Whole;
    rules.has_private() && !filter().is_some_and(covers)
}

impl Visitor<'_> {
    /// Whether they may be shown a file or a directory of that name.
    pub(crate) fn may_be_shown(&self, name: &str) -> bool {
        unpacked(name).all(|name| self.may(Act::Fetch(name)).is_ok())
    }
}

/// A name, and those of what would be sent packed under it: `/a.gz` is what `/a` holds.
pub(crate) fn unpacked(name: &str) -> impl Iterator<Item = &str> {
    fn unpack<'n>(name: &&'n str) -> Option<&'n str> {
        PACKED.iter().find_map(|packed| name.strip_suffix(packed.suffix()))
    }
    std::iter::successors(Some(name), unpack)
}
