//! The list of all settings, and what a reload can change of them.

use crate::setting::Setting;
use crate::settings::{self, Settings, access, cluster, follow, proxies, tls, tokens};

/// All settings, in the order in which they are printed.
pub(crate) fn all() -> impl Iterator<Item = &'static Setting<Settings>> {
    GROUPS.iter().copied().flatten()
}

const GROUPS: &[&[Setting<Settings>]] = &[
    settings::LISTENERS,
    access::TOKENS,
    tls::TLS,
    settings::REDIRECT,
    tls::HSTS,
    proxies::PROXIES,
    settings::PROCESS,
    settings::MONITOR,
    settings::UPGRADE,
    settings::LOG,
    settings::LIMITS,
    settings::STREAMS,
    settings::CORS,
    access::COOKIE,
    tokens::JWT,
    settings::STORE,
    follow::FOLLOW,
    cluster::CLUSTER,
    settings::FILES,
];

impl Settings {
    /// The names of the settings that differ and count from the next start only.
    #[must_use]
    pub fn waiting(&self, next: &Settings) -> Vec<String> {
        all().filter(|setting| setting.waits(self, next)).map(Setting::name).collect()
    }

    /// These settings, but as they are in `running` where a change needs a restart.
    #[must_use]
    pub fn with_fixed_of(mut self, running: &Settings) -> Settings {
        all().filter(|it| it.needs_restart).for_each(|it| (it.copy)(running, &mut self));
        self
    }
}
