//! Other settings for a server that runs.

use super::prepared::{Background, PreparedSettings, Running, bounded, check_for_restart};
use super::{Server, StartError};
use std::sync::Arc;
use stentor_config::Settings;
use stentor_hub::Op;
use stentor_server::{Failed, Order, Reloaded};

impl Server {
    /// Has reloads begun by `begin` that are asked for at a control listener. It returns at once.
    pub fn begin_reloads_by(&self, begin: impl Fn() + Send + 'static) {
        self.shared.process.reloads.begin_by(Box::new(begin));
    }

    /// Records the outcome of a reload, for clients that ask for it: what [`Server::reload`] has
    /// returned, or why it was not called.
    pub fn reloaded(&self, outcome: &Result<Vec<String>, String>) {
        let reloads = &self.shared.process.reloads;
        match outcome {
            Ok(need_restart) => {
                let (unix_s, need_restart) = (stentor_io::unix_s(), need_restart.clone());
                reloads.done(Reloaded { unix_s, need_restart });
            }
            Err(reason) => reloads.failed(Failed::now(reason)),
        }
    }

    /// Goes by other settings from now on, on every worker. Returns the names of the settings that
    /// differ but only count from the next start. It waits for file systems for some seconds at
    /// most, and until `gives_up` returns true.
    ///
    /// # Errors
    /// A server could not run with these settings: nothing has changed.
    pub fn reload(
        &mut self,
        next: Settings,
        gives_up: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<String>, StartError> {
        let differ = differences(&self.settings, &next);
        let settings = with_what_is_fixed(&self.settings, next.clone());
        let acceptors = Arc::clone(&self.shared.acceptors);
        let fetched = self.shared.tokens.fetched();
        let prepared = bounded(gives_up, move || {
            check_for_restart(&settings, &next, &acceptors.left_out(stentor_io::unix_s()))?;
            let running = Running { acceptors: Some(acceptors), fetched, ..Running::default() };
            PreparedSettings::read(settings, running)
        })?;
        let PreparedSettings { settings, certificates, keys } = prepared;
        let background = Background::start(self, &settings, keys, &certificates)?;
        // Else they come from whoever is followed.
        if self.service.follow().is_none() {
            self.commit(Op::Rules(settings.rules()))
                .map_err(|error| StartError(format!("the rules of topics: {error}")))?;
        }
        // The commit was the last step that may fail.
        self.shared.acceptors.set(certificates, stentor_io::unix_s());
        self.shared.memory.configure(&settings);
        self.shared.hub.set_stored_bytes_max(settings.limits.stored_bytes_max.resolve().0);
        background.begin(false);
        (self.settings, self.background) = (settings, Some(background));
        self.start_file_loaders();
        let settings = Arc::new(self.settings.clone());
        for mailbox in &self.mailboxes {
            mailbox.put(Order::Reload(Arc::clone(&settings)));
        }
        Ok(differ)
    }
}

/// The settings in which they differ, of those that only count from the next start.
fn differences(running: &Settings, settings: &Settings) -> Vec<String> {
    let mut differ = running.waiting(settings);
    // What an address speaks depends on the certificates too, and not on how it is written.
    differ.retain(|name| name != "listen");
    if !running.has_same_listeners(settings) {
        differ.insert(0, "listen".to_owned());
    }
    differ
}

/// Other settings, with those of the running server that cannot change.
fn with_what_is_fixed(running: &Settings, settings: Settings) -> Settings {
    // Listeners that speak TLS need what they began with.
    let speaks_otherwise =
        !running.has_same_listeners(&settings) || running.control != settings.control;
    let tls = if speaks_otherwise { &running.tls } else { &settings.tls };
    let tls = tls.clone();
    Settings { tls, ..settings.with_fixed_of(running) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        let settings = Settings::from_toml(text, "f").unwrap();
        settings.validate().unwrap();
        settings
    }

    const PAIR: &str = "tls_cert = 'c'\ntls_key = 'k'\n";

    #[test]
    fn who_speaks_tls_goes_on_with_what_it_began_with_until_a_restart() {
        let plain = settings("listen = '0.0.0.0:1'");
        let secure = settings(&format!("listen = '0.0.0.0:1'\n{PAIR}"));
        let other = settings(&format!("listen = '0.0.0.0:1'\n{PAIR}hsts = 1"));
        for (running, next, expected, tls) in [
            (&plain, &secure, &["listen"][..], &plain.tls),
            (&secure, &plain, &["listen"], &secure.tls),
            (&secure, &other, &[], &other.tls),
        ] {
            assert_eq!(differences(running, next), expected);
            assert_eq!(&with_what_is_fixed(running, next.clone()).tls, tls);
        }
        let control = settings(&format!("control = 'tls:0.0.0.0:2'\n{PAIR}"));
        let redirect = settings(&format!("{PAIR}redirect = '0.0.0.0:80'"));
        assert_eq!(differences(&settings("control = '0.0.0.0:2'"), &control), ["control"]);
        assert_eq!(differences(&settings(PAIR), &redirect), ["redirect"]);
    }
}
