//! Rules that concern several settings at once.

use std::collections::HashSet;
use std::net::SocketAddr;

use stentor_access::{JwksUrl, PATTERNS_MAX, Permissions, StaticToken};
use stentor_hub::{Keep, Pattern, Rule};

use crate::addresses::{ControlAddress, ListenAddress};
use crate::error::{ConfigError, ConfigErrors};
use crate::groups;
use crate::leave_out;
use crate::quantity::size;
use crate::servers::{BrokerUrl, ServerUrl};
use crate::setting::Setting;
use crate::settings::{Follow, Settings};
use crate::values::OrAuto;

impl Settings {
    /// Checks what no single setting can break alone.
    ///
    /// # Errors
    ///
    /// Which settings contradict each other, and why that matters: one mistake of each subject.
    pub fn validate(&self) -> Result<(), ConfigErrors> {
        let checks = [
            self.check_switches(),
            self.check_limits(),
            self.check_listeners(),
            self.check_tls(),
            self.check_proxies(),
            self.check_access(),
            self.check_origins(),
            check_tokens(&self.tokens.tokens),
            check_follow(self),
            check_cluster(self),
            self.check_topics(),
            self.check_paths(),
        ];
        ConfigErrors::none_of(checks.into_iter().filter_map(Result::err))
    }

    /// No setting is without effect because its table is off.
    fn check_switches(&self) -> Result<(), ConfigError> {
        let default = Settings::default();
        let is_set = |it: &Setting<Settings>| (it.show)(self) != (it.show)(&default);
        for setting in groups::all().filter(|it| !it.switches.is_empty() && is_set(it)) {
            let Setting { table, switches, .. } = setting;
            let is_switch = |it: &&Setting<_>| it.table == *table && switches.contains(&it.key);
            if !groups::all().filter(is_switch).any(is_set) {
                let reason = format!("it has no effect without {table}.{}", switches.join(" or "));
                return Err(ConfigError::new(&setting.name(), reason));
            }
        }
        let is_stored = |rule: &&Rule| matches!(rule.keep, Some(Keep::Synced | Keep::Written));
        let has_store = self.store.path.is_some() || self.cluster.is_on() || self.follow.is_on();
        if let Some(rule) = self.topics.iter().find(is_stored).filter(|_| !has_store) {
            let pattern = rule.pattern.as_str();
            let reason = format!("keep of {pattern} has no effect without store.path");
            return Err(ConfigError::new("topics", reason));
        }
        Ok(())
    }

    /// Limits that bound each other are in order.
    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        let (high, critical) = (limits.memory_high, limits.memory_critical);
        if high > 0 && critical > 0 && critical <= high {
            let reason =
                format!("{critical} must be more than limits.memory_high, which is {high}");
            return Err(ConfigError::new("limits.memory_critical", reason));
        }
        if let OrAuto::Set(stored) = limits.stored_bytes_max
            && limits.message_bytes_max > stored
        {
            let reason = format!(
                "{} is more than limits.stored_bytes_max, which is {}",
                size(limits.message_bytes_max as u64),
                size(stored as u64)
            );
            return Err(ConfigError::new("limits.message_bytes_max", reason));
        }
        Ok(())
    }

    fn check_origins(&self) -> Result<(), ConfigError> {
        if self.cors.allows_any() && self.cors.origins.len() > 1 {
            let reason = "'*' already allows every origin: it stands alone";
            return Err(ConfigError::new("cors.origins", reason));
        }
        if self.cors.credentials && !self.cors.names_origins() {
            let reason = "only listed origins may send credentials: list them in cors.origins";
            return Err(ConfigError::new("cors.credentials", reason));
        }
        Ok(())
    }

    fn check_topics(&self) -> Result<(), ConfigError> {
        for rule in &self.topics {
            if let Some(reason) = leave_out::contradiction(rule) {
                let reason = format!("the rule of {}: {reason}", rule.pattern.as_str());
                return Err(ConfigError::new("topics", reason));
            }
        }
        Ok(())
    }

    /// No two routes and no two directories have the same path.
    fn check_paths(&self) -> Result<(), ConfigError> {
        for (i, lookup) in self.lookups.iter().enumerate() {
            if self.lookups[..i].iter().any(|other| other.path == lookup.path) {
                let reason = format!("two routes begin with {}", lookup.path);
                return Err(ConfigError::new("lookup", reason));
            }
        }
        for (i, mount) in self.mounts.iter().enumerate() {
            if self.mounts[..i].iter().any(|other| other.path == mount.path) {
                let reason = format!("two directories are mounted at {}", mount.path);
                return Err(ConfigError::new("static", reason));
            }
            let beneath =
                Pattern::parse(&format!("{}**", mount.path)).unwrap_or_else(|_| Pattern::any());
            if let Some(pattern) = mount.immutable.iter().find(|it| !it.meets(&beneath)) {
                let reason = format!(
                    "immutable names whole paths, and {} is not beneath {}",
                    pattern.as_str(),
                    mount.path
                );
                return Err(ConfigError::new("static", reason));
            }
        }
        Ok(())
    }

    /// No address may belong to two kinds of listeners, nor be there twice. With `SO_REUSEPORT` the
    /// kernel would not refuse the second one: it would deal the connections out between the two.
    fn check_listeners(&self) -> Result<(), ConfigError> {
        let tcp = |one: &ListenAddress<SocketAddr>| ControlAddress::Tcp(one.address);
        let public: Vec<_> = self.listen.iter().map(tcp).collect();
        let control = self.control.iter().map(|one| one.address.clone()).collect();
        let redirect = self.redirect.iter().map(|&tcp| ControlAddress::Tcp(tcp)).collect();
        let kinds = [
            ("listen", &public),
            ("control", &control),
            ("monitor", &self.monitor),
            ("redirect", &redirect),
        ];
        for (i, (kind, addresses)) in kinds.iter().enumerate() {
            for (at, address) in addresses.iter().enumerate() {
                if addresses[..at].iter().any(|other| other == address && !other.is_any_port()) {
                    return Err(ConfigError::new(kind, format!("{address} is there twice")));
                }
            }
            for (other, others) in &kinds[i + 1..] {
                let mut pairs = addresses.iter().flat_map(|a| others.iter().map(move |b| (a, b)));
                if let Some((address, second)) = pairs.find(|(a, b)| a.overlaps(b)) {
                    let reason = format!(
                        "{address} and {second} overlap: whoever may reach one would reach the \
                         other; give one of them another port"
                    );
                    return Err(ConfigError::new(&format!("{kind} and {other}"), reason));
                }
            }
        }
        Ok(())
    }

    /// Each setting that needs TLS has a certificate and an address for it.
    fn check_tls(&self) -> Result<(), ConfigError> {
        let tls = &self.tls;
        let refuse = |name: &str, reason: &str| Err(ConfigError::new(name, reason));
        match (&tls.cert, &tls.key) {
            (Some(_), None) => return refuse("tls_cert", "name the file of its key by tls_key"),
            (None, Some(_)) => return refuse("tls_key", "name its certificate by tls_cert"),
            _ => {}
        }
        let pairs = tls.pairs();
        if let Some(pair) = (1..pairs.len()).find(|i| pairs[..*i].contains(&pairs[*i])) {
            let file = pairs[pair].certificate.display();
            return refuse("tls", &format!("the certificate in {file} is there twice"));
        }
        if pairs.is_empty() && self.is_tls_written() {
            let reason = "an address is written with tls:, and there is no certificate: name one \
                          by tls_cert and tls_key, or in [[tls]]";
            return refuse("tls", reason);
        }
        let is_public = self.listen.iter().any(|address| self.is_tls(address));
        if !pairs.is_empty() && !is_public && !self.has_tls_control() {
            let reason = "there is a certificate, and no address to show it at: write one with \
                          tls: in front of it";
            return refuse("tls", reason);
        }
        if tls.control_client_ca.is_some() && !self.has_tls_control() {
            let reason = "certificates of clients are asked for by TLS: write the address of \
                          control with tls: in front of it";
            return refuse("control_client_ca", reason);
        }
        for (name, is_used) in [
            ("redirect", !self.redirect.is_empty()),
            ("redirect_port", self.redirect_port != 0),
            ("hsts", tls.hsts_s != 0),
        ] {
            if is_used && !is_public {
                let reason = "no public address speaks TLS: name a certificate by tls_cert and \
                              tls_key, or in [[tls]]";
                return refuse(name, reason);
            }
        }
        if !tls.ticket_secrets.is_empty() && pairs.is_empty() {
            return refuse("tls_ticket_secret", "there is no certificate, so nobody has tickets");
        }
        if tls.ticket_secrets.len() > stentor_tls::TICKET_SECRETS_MAX {
            let reason = format!("at most {} files", stentor_tls::TICKET_SECRETS_MAX);
            return refuse("tls_ticket_secret", &reason);
        }
        Ok(())
    }

    /// A header that comes from anywhere is worth nothing.
    fn check_proxies(&self) -> Result<(), ConfigError> {
        match self.listen.iter().find(|one| one.proxy) {
            Some(ListenAddress { address, .. }) if self.proxies.trusted.is_empty() => {
                let reason = format!(
                    "proxy:{address} takes connections of trusted proxies alone, and there are \
                     none: write their addresses, such as trusted_proxies = [\"10.0.0.0/8\"]"
                );
                Err(ConfigError::new("trusted_proxies", reason))
            }
            _ => Ok(()),
        }
    }

    /// Whether there can be a token that is good.
    fn knows_tokens(&self) -> bool {
        let stentor_access::Settings { tokens, jwt } = &self.tokens;
        let files = [&jwt.secret_files, &jwt.public_key_files, &jwt.jwks_files];
        !tokens.is_empty()
            || files.iter().any(|files| !files.is_empty())
            || !jwt.public_keys.is_empty()
            || !jwt.jwks_urls.is_empty()
    }

    /// Topics and listeners that ask for tokens need a token or keys.
    fn check_access(&self) -> Result<(), ConfigError> {
        let jwt = &self.tokens.jwt;
        let is_tls = |url: &JwksUrl| url.as_str().starts_with("https:");
        if jwt.jwks_ca_file.is_some() && !jwt.jwks_urls.iter().any(is_tls) {
            let reason = "it is for jwt.jwks_url at https://, and none is";
            return Err(ConfigError::new("jwt.jwks_ca_file", reason));
        }
        if self.asks_for_tokens() && !self.knows_tokens() {
            let reason = "there is no token, so nobody could read or publish what asks for one: \
                          add a [[token]] (stentor token new) or keys in [jwt]";
            return Err(ConfigError::new("access", reason));
        }
        Ok(())
    }
}

/// Tokens differ in their names and secrets, and each allows something.
fn check_tokens(tokens: &[StaticToken]) -> Result<(), ConfigError> {
    let (mut names, mut hashes) = (HashSet::new(), HashSet::new());
    for token in tokens {
        let name = &token.name;
        let Permissions { publish, read } = &token.permissions;
        let reason = if !names.insert(name) {
            format!("two tokens are called '{name}'")
        } else if !hashes.insert(token.sha256) {
            format!("the secret of '{name}' is that of another token")
        } else if publish.is_empty() && read.is_empty() {
            format!("'{name}' may do nothing: say by 'publish' and 'read' which topics it is for")
        } else if publish.iter().count().max(read.iter().count()) > PATTERNS_MAX {
            format!("'{name}' has a list of more than {PATTERNS_MAX} patterns")
        } else {
            continue;
        };
        return Err(ConfigError::new("token", reason));
    }
    Ok(())
}

/// A follower has no store and no guest book.
fn check_follow(settings: &Settings) -> Result<(), ConfigError> {
    let Follow { leaders, ca_file, .. } = &settings.follow;
    if ca_file.is_some() && !leaders.iter().any(ServerUrl::is_tls) {
        let reason = "it is for leaders at https://, and none is";
        return Err(ConfigError::new("follow.ca_file", reason));
    }
    if !leaders.is_empty() && settings.store.path.is_some() {
        return Err(ConfigError::new(
            "store.path",
            "a server that follows another one keeps nothing itself yet: leave out --data, or \
             --follow",
        ));
    }
    if !leaders.is_empty() && settings.guestbook.is_some() {
        return Err(ConfigError::new("follow.leader", "the demo publishes, and follows nobody"));
    }
    Ok(())
}

/// The settings of a cluster fit together.
fn check_cluster(settings: &Settings) -> Result<(), ConfigError> {
    let cluster = &settings.cluster;
    if !cluster.is_on() {
        return Ok(());
    }
    let error = |key, reason: &str| Err(ConfigError::new(key, reason));
    if settings.follow.is_on() {
        return error(
            "cluster.nats",
            "a node of a cluster follows nobody: leave out follow.leader, or cluster.nats",
        );
    }
    if settings.guestbook.is_some() {
        return error("cluster.nats", "the demo publishes alone");
    }
    if cluster.user.is_some() != cluster.password_file.is_some() {
        return error("cluster.user", "a user and password_file go together");
    }
    let shown = [&cluster.password_file, &cluster.token_file, &cluster.creds_file];
    if shown.into_iter().flatten().count() > 1 {
        return error(
            "cluster.creds_file",
            "a broker is shown one of a user, a token and credentials: leave out the others",
        );
    }
    if cluster.cert_file.is_some() != cluster.key_file.is_some() {
        return error("cluster.cert_file", "cert_file and key_file go together");
    }
    let is_secured = cluster.nats.iter().any(BrokerUrl::is_tls);
    if !is_secured && (cluster.ca_file.is_some() || cluster.cert_file.is_some()) {
        return error("cluster.ca_file", "certificates are for a broker at tls://, and none is");
    }
    if cluster.peer_ca_file.is_some() && !cluster.peers.iter().any(ServerUrl::is_tls) {
        return error("cluster.peer_ca_file", "it is for cluster.peers at https://, and none is");
    }
    Ok(())
}
