//! Addresses of listeners and of proxies.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use stentor_io::SocketName;

/// Where a listener for operators is bound: `127.0.0.1:8081` or `unix:/run/stentor.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

/// An address of the public listener as people write it: `0.0.0.0:8080`, `[::1]:8080` or
/// `localhost:8080`.
///
/// # Errors
///
/// The error says what an address looks like.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let spelled_out = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    let wrong = || format!("'{text}' is not an address: write IP:PORT, such as {LISTEN_DEFAULT}");
    let Some((address, zone)) = text.strip_prefix('[').and_then(|text| text.split_once('%')) else {
        return spelled_out.parse().map_err(|_| wrong());
    };
    let (zone, port) = zone.split_once("]:").ok_or_else(wrong)?;
    let ip = address.parse().map_err(|_| wrong())?;
    let port = port.parse().map_err(|_| wrong())?;
    let zone = zone.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(zone);
    let index = stentor_io::interface_index(zone)
        .ok_or_else(|| format!("'{text}': this host has no network interface '{zone}'"))?;
    Ok(SocketAddrV6::new(ip, port, 0, index).into())
}

impl ControlAddress {
    /// The address and port, if it is not a socket file.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            ControlAddress::Tcp(address) => Some(*address),
            ControlAddress::Unix(_) => None,
        }
    }

    /// Whether the kernel chooses the port.
    pub(crate) fn is_any_port(&self) -> bool {
        matches!(self, ControlAddress::Tcp(address) if address.port() == 0)
    }

    /// Whether a connection to one could arrive at the other.
    pub(crate) fn overlaps(&self, other: &ControlAddress) -> bool {
        let (ControlAddress::Tcp(a), ControlAddress::Tcp(b)) = (self, other) else {
            return self == other;
        };
        // An IPv4 address is the same host when it is written as an IPv6 one.
        let same_host = a.ip().to_canonical() == b.ip().to_canonical()
            || a.ip().is_unspecified()
            || b.ip().is_unspecified();
        a.port() == b.port() && a.port() != 0 && same_host
    }
}

impl From<&SocketName> for ControlAddress {
    fn from(name: &SocketName) -> ControlAddress {
        match name {
            SocketName::Tcp(address) => ControlAddress::Tcp(*address),
            SocketName::Unix(path) => ControlAddress::Unix(path.clone()),
        }
    }
}

impl FromStr for ControlAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ControlAddress, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            return match parse_address(text) {
                Ok(address) => Ok(ControlAddress::Tcp(address)),
                Err(_) => Err(format!(
                    "'{text}' is not an address: write IP:PORT, such as {CONTROL_DEFAULT}, or \
                     unix:PATH"
                )),
            };
        };
        if path.is_empty() || path.len() > UNIX_PATH_BYTES_MAX || path.contains('\0') {
            return Err(format!(
                "'{text}' is not a socket path: unix: is followed by a path of at most \
                 {UNIX_PATH_BYTES_MAX} bytes"
            ));
        }
        Ok(ControlAddress::Unix(PathBuf::from(path)))
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlAddress::Tcp(address) => address.fmt(f),
            ControlAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address as it is written for a listener: with `tls:` in front if it is for TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenAddress<A> {
    /// The address.
    pub address: A,
    /// Whether it was written with `tls:`.
    pub tls: bool,
    /// Whether it was written with `proxy:`, in front of that.
    pub proxy: bool,
}

impl<A> From<A> for ListenAddress<A> {
    fn from(address: A) -> Self {
        ListenAddress { address, tls: false, proxy: false }
    }
}

impl FromStr for ListenAddress<SocketAddr> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let proxied = text.strip_prefix(PROXY_PREFIX);
        let rest = proxied.unwrap_or(text);
        let secure = rest.strip_prefix(TLS_PREFIX);
        let address = parse_address(secure.unwrap_or(rest))?;
        Ok(ListenAddress { address, tls: secure.is_some(), proxy: proxied.is_some() })
    }
}

impl FromStr for ListenAddress<ControlAddress> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let secure = text.strip_prefix(TLS_PREFIX);
        let address = secure.unwrap_or(text).parse()?;
        if secure.is_some() && matches!(address, ControlAddress::Unix(_)) {
            return Err(format!(
                "'{text}': who connects to a socket file is on this host, where TLS is of no use"
            ));
        }
        Ok(ListenAddress { address, tls: secure.is_some(), proxy: false })
    }
}

impl<A: fmt::Display> fmt::Display for ListenAddress<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.proxy { PROXY_PREFIX } else { "" })?;
        f.write_str(if self.tls { TLS_PREFIX } else { "" })?;
        self.address.fmt(f)
    }
}

/// A range of addresses: `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(IpNet);

impl Network {
    /// Whether the network contains an address. An IPv4 address has to be in its IPv4 form.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (address, bits) = text.split_once('/').unzip();
        // `IpNet` would take 010.0.0.0, which other programs read as octal.
        let address = address.unwrap_or(text).parse::<IpAddr>().ok();
        let network = address.and_then(|address| match bits {
            None => Some(IpNet::from(address)),
            Some(_) => text.parse().ok(),
        });
        let network = network.ok_or_else(|| {
            format!(
                "'{text}' is not a range of addresses: write ADDRESS or ADDRESS/BITS, such as \
                 10.0.0.0/8 or ::1"
            )
        })?;
        let bits = network.prefix_len();
        if network != network.trunc() {
            return Err(format!("'{text}' has bits after its first {bits}: write them as 0"));
        }
        if let IpAddr::V6(first) = network.addr()
            && let Some(bits) = bits.checked_sub(MAPPED_BITS)
            && let Some(first) = first.to_ipv4_mapped()
        {
            let network = IpNet::new(first.into(), bits).map(Network);
            let network = network.map_err(|error| error.to_string())?;
            return Err(format!("'{text}' is a range of IPv4 addresses: write it as {network}"));
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

/// The bits of an IPv6 address before the IPv4 address that it maps (RFC 4291 section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

const TLS_PREFIX: &str = "tls:";
const PROXY_PREFIX: &str = "proxy:";

pub(crate) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
pub(crate) const CONTROL_DEFAULT: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// `sun_path` of a socket address holds 108 bytes, the last of them zero.
const UNIX_PATH_BYTES_MAX: usize = 107;
