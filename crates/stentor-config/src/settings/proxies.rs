//! Proxies in front of the server: whose word about a client counts.
//!
//! A proxy says where a client is in a header of the PROXY protocol, at the addresses that are
//! written with `proxy:`, or in a field of each request. Any client can send either, and would
//! count as another. The server therefore trusts only the addresses that the operator names.

use std::net::IpAddr;

use stentor_wire::forwarded::ClientField;

use super::Settings;
use crate::addresses::Network;
use crate::forms::{OneOrMany, Text, text_kinds};
use crate::setting::settings;

settings! {
    /// Proxies in front of the server, and how they name a client.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Proxies in Settings(proxies) {
        PROXIES: "" on [] {
            /// Their addresses.
            trusted: Vec<Network> = Vec::new(), trusted_proxies: OneOrMany<Network>;
            /// Where they name the client of a request. Not set: nowhere.
            header: Option<ClientField> = Some(ClientField::XForwardedFor),
                client_ip_header: Text<FieldName>;
        }
    }
}

impl Proxies {
    /// Whether this is the address of a proxy.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(address))
    }
}

text_kinds! {
    /// The name of a field that may name the client, or `none`.
    FieldName(Option<ClientField>)[["X-Forwarded-For", "Forwarded", NO_FIELD]], field,
        |field: &Option<ClientField>| field.map_or(NO_FIELD, ClientField::name).to_owned();
}

fn field(text: &str) -> Result<Option<ClientField>, String> {
    let all = [ClientField::XForwardedFor, ClientField::Forwarded];
    if text == NO_FIELD {
        return Ok(None);
    }
    let field = all.into_iter().find(|field| field.name().eq_ignore_ascii_case(text));
    field.map(Some).ok_or_else(|| {
        format!("'{text}' names no client: write 'X-Forwarded-For', 'Forwarded' or 'none'")
    })
}

/// The setting for proxies that name no client.
const NO_FIELD: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("0.0.0.0/0", "192.0.2.2", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "192.0.2.1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
        ];
        for (network, address, expected) in cases {
            let trusted = vec![network.parse().unwrap()];
            let proxies = Proxies { trusted, ..Proxies::default() };
            assert_eq!(proxies.trusts(address.parse().unwrap()), expected, "{network} {address}");
            assert_eq!(proxies.trusted[0].to_string(), network);
        }
        let bad = [
            "",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::/129",
            "a/8",
            "010.0.0.0/8",
        ];
        for text in bad {
            assert!(text.parse::<Network>().unwrap_err().contains("not a range"), "{text}");
        }
        for text in ["10.0.0.1/8", "2001:db8::1/64", "1.0.0.0/0"] {
            assert!(text.parse::<Network>().unwrap_err().contains("write them as 0"), "{text}");
        }
        for (text, better) in
            [("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("::ffff:10.0.0.1", "10.0.0.1")]
        {
            let error = text.parse::<Network>().unwrap_err();
            assert!(error.ends_with(&format!("write it as {better}")), "{error}");
        }
    }

    #[test]
    fn an_address_for_proxies_needs_some_that_are_trusted() {
        let of = |text: &str| {
            let settings = Settings::from_toml(text, "f").unwrap();
            settings.validate().map(|()| settings)
        };
        let error = of("listen = 'proxy:127.0.0.1:80'").unwrap_err().to_string();
        assert!(
            error.contains("trusted_proxies") && error.contains("proxy:127.0.0.1:80"),
            "{error}"
        );
        let settings = of("listen = ['proxy:127.0.0.1:80', '127.0.0.1:81']\n\
                           trusted_proxies = '::1'\nclient_ip_header = 'forwarded'");
        let settings = settings.unwrap();
        assert_eq!(settings.listen.iter().map(|one| one.proxy).collect::<Vec<_>>(), [true, false]);
        assert_eq!(settings.proxies.header, Some(ClientField::Forwarded));
        let shown = settings.to_toml();
        assert!(shown.contains("listen = [\"proxy:127.0.0.1:80\", \"127.0.0.1:81\"]"), "{shown}");
        assert!(shown.contains("client_ip_header = \"Forwarded\""), "{shown}");
        assert!(of("client_ip_header = 'none'").unwrap().proxies.header.is_none());
    }
}
