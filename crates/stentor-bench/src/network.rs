//! A range of addresses to connect from, such as `127.1.0.0/16`.
//!
//! One source address has some 28,000 ports for one server. Whoever wants more connections needs
//! more addresses, and a network in CIDR notation (RFC 4632) names them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// The first address of the range.
    pub base: IpAddr,
    /// Bits of the prefix.
    pub prefix: u8,
}

#[expect(clippy::len_without_is_empty, reason = "a network has at least one address")]
impl Network {
    /// How many addresses it has to connect from; `u64::MAX` if there are more than that.
    #[must_use]
    pub fn len(&self) -> u64 {
        let bits = width(self.base) - u32::from(self.prefix);
        match 1_u64.checked_shl(bits) {
            Some(all) => all - 2 * self.reserved(),
            None => u64::MAX,
        }
    }

    /// The address number `i`, from 0, of those it has to connect from. In IPv4 the first and the
    /// last address of a network are its own and its broadcast address, and are left out, unless
    /// there are no others (RFC 3021).
    #[must_use]
    pub fn nth(&self, i: u64) -> Option<IpAddr> {
        if i >= self.len() {
            return None;
        }
        Some(match self.base {
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
        if self.base.is_ipv4() == server.is_ipv4() {
            return Ok(());
        }
        let (ours, theirs) = (family(self.base), family(server));
        Err(format!(
            "nobody can connect from {self}, which is {ours}, to {server}, which is {theirs}: \
             name a network of {theirs} with --from, or the server by its address of {ours}"
        ))
    }

    /// Addresses left out at either end.
    fn reserved(&self) -> u64 {
        u64::from(self.base.is_ipv4() && self.prefix < 31)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = address
            .parse()
            .map_err(|_| format!("'{text}' is not a network: write 127.1.0.0/16 or fd00::/112"))?;
        let bits_max = width(base);
        let prefix = match prefix {
            None => bits_max,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|bits| *bits <= bits_max && digits.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| format!("'{digits}' is not a prefix from 0 to {bits_max}"))?,
        };
        // At most 128.
        let network = Network { base: first(base, bits_max - prefix), prefix: prefix as u8 };
        if network.base != base {
            return Err(format!("{text} is an address within a network: write {network}"));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if u32::from(self.prefix) == width(self.base) {
            return write!(f, "{}", self.base);
        }
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// `address` without its last `bits` bits.
fn first(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(bits).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(bits).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

/// Bits of an address.
fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
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
