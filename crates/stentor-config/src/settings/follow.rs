//! `[follow]`: whom this server follows, if it follows anybody.

use std::path::PathBuf;

use stentor_hub::Pattern;

use super::Settings;
use crate::forms::{File, OneOrMany, OrNone, Text, TopicPattern};
use crate::quantity::{DAY, Millis, SECOND};
use crate::servers::ServerUrl;
use crate::setting::settings;

settings! {
    /// The leaders of this server, and how it follows them.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Follow in Settings(follow) {
        FOLLOW: "follow" on [leader] {
            /// Control listeners, one of which is followed. None: this server makes its own order.
            leaders: Vec<ServerUrl> = Vec::new(), leader(restart): OneOrMany<ServerUrl>;
            /// A file with the token that is shown to them.
            token_file: Option<PathBuf> = None, token_file(restart): Text<OrNone<File>>;
            /// Who signs their certificates. Not set: those this system trusts.
            ca_file: Option<PathBuf> = None, ca_file(restart): Text<OrNone<File>>;
            /// The topics that are followed; if none are named, all.
            topics: Vec<Pattern> = Vec::new(), topics(restart): OneOrMany<TopicPattern>;
            /// For how long nothing may be heard of a leader before this server is not ready.
            stale_max_ms: u64 = 60_000, stale_max(restart): Millis<SECOND, { 7 * DAY }>;
            /// Where publishers are led to. Not set: they are refused.
            publish_url: Option<ServerUrl> = None, publish_url(restart): Text<OrNone<ServerUrl>>;
        }
    }
}

impl Follow {
    /// Whether anybody is followed.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.leaders.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_to_follow() {
        let from = |text: &str| Settings::from_toml(text, "f").map(|settings| settings.follow);
        assert!(!from("").unwrap().is_on());
        let follow = from(
            "[follow]\nleader = ['http://10.0.0.1:8081/', 'https://leader.example']\n\
             token_file = '/t'\nca_file = '/c'\ntopics = '/quotes/**'\nstale_max = '5s'\n\
             publish_url = 'https://example.com'",
        );
        let follow = follow.unwrap();
        let leaders = follow.leaders.iter().map(ServerUrl::as_str).collect::<Vec<_>>();
        assert_eq!(leaders, ["http://10.0.0.1:8081", "https://leader.example"]);
        assert_eq!((follow.stale_max_ms, follow.topics.len()), (5_000, 1));
        assert_eq!(follow.publish_url.unwrap().to_string(), "https://example.com");
        for bad in [
            "leader = 'leader:8081'",
            "leader = 'ftp://a'",
            "leader = 'http://'",
            "leader = 'http://me@a'",
            "leader = 'http://a/b'",
            "leader = 'http://a:b'",
            "leader = 'http://a:'",
            "leader = 'http://a:0'",
            "leader = 'http://a:+80'",
            "leader = 'http://a:99999'",
            "leader = 'http://:80'",
            "leader = 'http://[::1'",
            "leader = 'http://[::1]80'",
            "leader = 'http://[a]'",
            "leader = 'http://::1'",
            "publish_url = 'a'",
            "topics = 'quotes'",
            "stale_max = '1ms'",
            "leaders = 'http://a'",
        ] {
            assert!(from(&format!("[follow]\n{bad}")).is_err(), "{bad}");
        }
        let secret = from("[follow]\nleader = 'http://me:secret@a'").unwrap_err().to_string();
        assert!(secret.contains("without a user") && !secret.contains("secret"), "{secret}");
    }

    #[test]
    fn who_follows_keeps_nothing() {
        let from = |text: &str| {
            let settings = Settings::from_toml(text, "f").unwrap();
            settings.validate().map_err(|error| error.to_string())
        };
        assert!(from("[follow]\nleader = 'http://a'").is_ok());
        let error = from("[follow]\nleader = 'http://a'\n[store]\npath = '/s'").unwrap_err();
        assert!(error.contains("keeps nothing itself yet"), "{error}");
    }
}
