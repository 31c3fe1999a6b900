//! A range of addresses to connect from, such as `127.1.0.0/16`.
//!
//! One source address has some 28,000 ports for one server. Whoever wants more connections needs
//! more addresses, and a network in CIDR notation (RFC 4632) names them.

use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::str::FromStr;

use ipnet::IpNet;

/// A network in CIDR notation, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(pub IpNet);

#[expect(clippy::len_without_is_empty, reason = "a network has at least one address")]
impl Network {
    /// How many addresses it has to connect from; `u64::MAX` if there are more than that.
    #[must_use]
    pub fn len(&self) -> u64 {
        let bits = self.0.max_prefix_len() - self.0.prefix_len();
        1_u64.checked_shl(bits.into()).map_or(u64::MAX, |all| all - 2 * self.reserved())
    }

    /// The address number `i`, from 0, of those it has to connect from. In IPv4 the first and the
    /// last address of a network are its own and its broadcast address, and are left out, unless
    /// there are no others (RFC 3021).
    #[must_use]
    pub fn nth(&self, i: u64) -> Option<IpAddr> {
        if i >= self.len() {
            return None;
        }
        Some(match self.0.network() {
            // A network of IPv4 has at most 2^32 addresses: `i` fits.
            IpAddr::V4(base) => {
                Ipv4Addr::from_bits(base.to_bits() + (i + self.reserved()) as u32).into()
            }
            IpAddr::V6(base) => Ipv6Addr::from_bits(base.to_bits() + u128::from(i)).into(),
        })
    }

    /// Whether one can connect from here to `server`, as far as the families of addresses tell.
    ///
    /// # Errors
    /// They differ; says what to write instead.
    pub fn check_family(&self, server: IpAddr) -> Result<(), String> {
        if self.0.addr().is_ipv4() == server.is_ipv4() {
            return Ok(());
        }
        let family = |address: IpAddr| if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let (ours, theirs) = (family(self.0.addr()), family(server));
        Err(format!(
            "nobody can connect from {self}, which is {ours}, to {server}, which is {theirs}: \
             name a network of {theirs} with --from, or the server by its address of {ours}"
        ))
    }

    /// Whether this machine has its addresses, as far as the first of them tells.
    ///
    /// # Errors
    /// The machine does not have it.
    pub fn check_here(&self) -> Result<(), String> {
        let Some(first) = self.nth(0) else { return Ok(()) };
        match UdpSocket::bind((first, 0)) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                Err(format!("{first} is no address of this machine"))
            }
            // Other errors show when it connects.
            _ => Ok(()),
        }
    }

    /// Addresses left out at either end.
    fn reserved(&self) -> u64 {
        u64::from(self.0.addr().is_ipv4() && self.0.prefix_len() < 31)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (address, prefix) = text.split_once('/').unzip();
        let address: IpAddr = address
            .unwrap_or(text)
            .parse()
            .map_err(|_| format!("'{text}' is not a network: write 127.1.0.0/16 or fd00::/112"))?;
        let network = match prefix {
            None => IpNet::from(address),
            Some(prefix) => text.parse().map_err(|_| {
                let most = IpNet::from(address).max_prefix_len();
                format!("'{prefix}' is not a prefix from 0 to {most}")
            })?,
        };
        if network.trunc() != network {
            let network = Network(network.trunc());
            return Err(format!("{text} is an address within a network: write {network}"));
        }
        Ok(Network(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.prefix_len() == self.0.max_prefix_len() {
            true => self.0.addr().fmt(f),
            false => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (text, len, first, last) in [
            ("127.1.0.0/16", 65_534, "127.1.0.1", "127.1.255.254"),
            ("10.0.0.0/24", 254, "10.0.0.1", "10.0.0.254"),
            ("10.0.0.4/30", 2, "10.0.0.5", "10.0.0.6"),
            ("10.0.0.4/31", 2, "10.0.0.4", "10.0.0.5"),
            ("10.0.0.7", 1, "10.0.0.7", "10.0.0.7"),
            ("0.0.0.0/0", 4_294_967_294, "0.0.0.1", "255.255.255.254"),
            ("fd00::/112", 65_536, "fd00::", "fd00::ffff"),
            ("fd00::/127", 2, "fd00::", "fd00::1"),
            ("::1", 1, "::1", "::1"),
            ("fd00::/65", 1 << 63, "fd00::", "fd00::7fff:ffff:ffff:ffff"),
            ("fd00::/64", u64::MAX, "fd00::", "fd00::ffff:ffff:ffff:fffe"),
            ("::/0", u64::MAX, "::", "::ffff:ffff:ffff:fffe"),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), text);
            assert_eq!(network.len(), len, "{text}");
            assert_eq!(network.nth(0), Some(first.parse().unwrap()), "{text}");
            assert_eq!(network.nth(len - 1), Some(last.parse().unwrap()), "{text}");
            assert_eq!(network.nth(len), None, "{text}");
        }
        assert_eq!("10.0.0.7/32".parse::<Network>().unwrap().to_string(), "10.0.0.7");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("", "not a network"),
            ("127.1/16", "not a network"),
            ("localhost", "not a network"),
            ("127.1.0.0/33", "from 0 to 32"),
            ("fd00::/129", "from 0 to 128"),
            ("127.1.0.0/", "from 0 to 32"),
            ("127.1.0.0/+8", "from 0 to 32"),
            ("127.1.0.0/-1", "from 0 to 32"),
            ("127.1.0.5/16", "write 127.1.0.0/16"),
            ("fd00::1/112", "write fd00::/112"),
        ] {
            let error = text.parse::<Network>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn families_do_not_mix() {
        let network: Network = "127.1.0.0/16".parse().unwrap();
        assert_eq!(network.check_family("10.0.0.1".parse().unwrap()), Ok(()));
        let error = network.check_family("::1".parse().unwrap()).unwrap_err();
        assert!(error.contains("a network of IPv6 with --from"), "{error}");
    }
}
