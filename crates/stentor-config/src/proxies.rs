//! Proxies in front of the server: whose word about a client counts.
//!
//! A proxy says where a client is in a header of the PROXY protocol, at the addresses that are
//! written with `proxy:`, or in a field of each request. Any client can send either, and would
//! count as another. The server therefore trusts only the addresses that the operator names.

use crate::forms::{OneOrMany, Text, text_kinds};
use crate::setting::settings;
use crate::{ConfigError, ListenAddress, Settings};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use stentor_wire::forwarded::ClientField;

settings! {
    /// Proxies in front of the server, and how they name a client.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Proxies in (proxies) {
        PROXIES: "" {
            /// Their addresses.
            trusted: Vec<Network> = Vec::new(), trusted_proxies: OneOrMany<Network>;
            /// Where they name the client of a request. `None`: nowhere.
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

/// A range of addresses: `10.0.0.0/8`, or a single one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether the network contains an address. An IPv4 address has to be in its IPv4 form.
    fn contains(&self, address: IpAddr) -> bool {
        let same_bits = match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        same_bits >= self.bits
    }

    /// How many bits its addresses have behind those that they share.
    fn host_bits(&self) -> u32 {
        let all = if self.first.is_ipv4() { u32::BITS } else { u128::BITS };
        all - self.bits
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let read = || {
            let first: IpAddr = address.parse().ok()?;
            let all = if first.is_ipv4() { u32::BITS } else { u128::BITS };
            let bits = match bits {
                None => all,
                Some(bits) if bits.starts_with('+') => return None,
                Some(bits) => bits.parse().ok()?,
            };
            (bits <= all).then_some(Network { first, bits })
        };
        let network = read().ok_or_else(|| {
            format!(
                "'{text}' is not a range of addresses: write ADDRESS or ADDRESS/BITS, such as \
                 10.0.0.0/8 or ::1"
            )
        })?;
        let zeros = match network.first {
            IpAddr::V4(first) => first.to_bits().trailing_zeros(),
            IpAddr::V6(first) => first.to_bits().trailing_zeros(),
        };
        if zeros < network.host_bits() {
            let bits = network.bits;
            return Err(format!("'{text}' has bits behind its first {bits}: write them as 0"));
        }
        if let IpAddr::V6(first) = network.first
            && network.bits >= MAPPED_BITS
            && let Some(first) = first.to_ipv4_mapped()
        {
            let network = Network { first: IpAddr::V4(first), bits: network.bits - MAPPED_BITS };
            return Err(format!("'{text}' is a range of IPv4 addresses: write it as {network}"));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host_bits() {
            0 => self.first.fmt(f),
            _ => write!(f, "{}/{}", self.first, self.bits),
        }
    }
}

/// The bits of an IPv6 address before the IPv4 address that it maps (RFC 4291 section 2.5.5.2).
const MAPPED_BITS: u32 = 96;

text_kinds! {
    /// The name of a field that may name the client, or `none`.
    FieldName(Option<ClientField>), field,
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

impl Settings {
    /// A header that comes from anywhere is worth nothing.
    pub(crate) fn check_proxies(&self) -> Result<(), ConfigError> {
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
        let bad = ["", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/+8", "::/129", "a/8"];
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
