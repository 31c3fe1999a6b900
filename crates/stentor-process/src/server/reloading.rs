//! Other settings for a server that runs.

use super::{Server, StartError, check_files};
use std::io;
use std::sync::Arc;
use stentor_config::Settings;
use stentor_hub::Op;
use stentor_io::LookThread;
use stentor_server::Order;
use stentor_server::keys::{self, KeyThread};
use stentor_server::{Failed, Reloaded};

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
    /// differ but only count from the next start.
    ///
    /// # Errors
    /// A directory whose files are to be served cannot be opened, or keys or certificates are no
    /// good: nothing has changed.
    pub fn reload(&mut self, settings: Settings) -> Result<Vec<String>, StartError> {
        let differ = differences(&self.settings, &settings);
        let settings = with_what_is_fixed(&self.settings, settings);
        check_files(&settings)?;
        let key_files = keys::files_of(&settings.tokens);
        let keys = KeyThread::reload(self.keys.as_ref(), &settings.tokens);
        let keys = keys.map_err(StartError::new)?;
        let (acceptors, unix_s) = (&self.shared.acceptors, stentor_io::unix_s());
        let certificates = acceptors.reread(&self.settings.tls, &settings.tls, unix_s);
        let certificates = certificates.map_err(StartError::new)?;
        let certificate_thread =
            stentor_tls_layer::start_thread(&settings.tls, acceptors, certificates.as_ref())?;
        let (tokens, before) = (&self.shared.tokens, self.keys.as_ref());
        let key_thread =
            KeyThread::start(&settings.tokens, key_files, tokens, &self.mailboxes, before)?;
        // Else they come from whoever is followed.
        if self.service.follow().is_none() {
            self.commit(Op::Rules(settings.rules()))
                .map_err(|error| io::Error::other(format!("the rules of topics: {error}")))?;
        }
        // The commit was the last step that may fail.
        if let Some(certificates) = certificates {
            self.shared.acceptors.set(certificates, unix_s);
        }
        (self.certificates, self.keys) = (certificate_thread, key_thread);
        self.shared.memory.configure(&settings);
        self.shared.hub.set_stored_bytes_max(settings.limits.stored_bytes_max.resolve().0);
        self.settings = settings;
        self.start_file_loaders();
        self.certificates.iter().for_each(LookThread::begin);
        let settings = Arc::new(self.settings.clone());
        keys::tell(&self.shared.tokens, &self.mailboxes, &keys);
        self.keys.iter().for_each(KeyThread::begin);
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
