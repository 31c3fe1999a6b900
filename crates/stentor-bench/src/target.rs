//! What to connect to, and what to ask for: an `http://` or `https://` URL, resolved.
//!
//! A name is resolved once, here, and what was found is both judged and connected to: nobody can
//! be led to another address later. A load test of a stranger's server is an attack on it, so a
//! target knows whether all that its name stands for is on this machine or a private network.
//!
//! The parser of `http::Uri` takes `a:b` for a host with a port, and its errors do not say what to
//! write instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// A URL and the address it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As it was written, with its scheme.
    pub url: String,
    /// Where to connect. Of several addresses of a name, the first of IPv4, since that is what
    /// most servers listen on and what has source addresses to spare on loopback.
    pub address: SocketAddr,
    /// Whom to expect there, if it is asked by TLS: the host's name or address.
    pub tls_name: Option<String>,
    /// For the `Host` field.
    pub host: String,
    /// Path and query, as sent.
    pub path: String,
    /// An address of the host, if there is one, that is not private.
    public: Option<IpAddr>,
}

impl Target {
    /// Reads `http://HOST[:PORT][/PATH][?QUERY]` (RFC 9110 section 4.2.1) or the same with `https`,
    /// and resolves the host. Without a scheme it is `http`. An IPv6 address stands in brackets.
    ///
    /// # Errors
    /// A sentence on what is wrong with the URL, or that the host is not known.
    pub fn parse(url: &str) -> Result<Target, String> {
        let (is_secure, rest) = scheme(url)?;
        if let Some(c) = rest.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!("'{}' cannot stand in a URL: write it as %XX", c.escape_debug()));
        }
        if rest.contains('#') {
            return Err("the part from '#' on is never sent to a server: leave it out".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (name, port) =
            host_and_port(authority, if is_secure { HTTPS_PORT } else { HTTP_PORT })?;
        let addresses = resolve(name, port)?;
        let Some(address) = preferred(&addresses) else {
            return Err(format!("'{name}' has no address"));
        };
        if addresses.iter().any(|address| address.ip().is_unspecified()) {
            let reason = "is where servers listen, not where clients connect";
            return Err(format!("{name} {reason}: write 127.0.0.1 or [::1]"));
        }
        Ok(Target {
            url: format!("{}://{rest}", if is_secure { "https" } else { "http" }),
            address,
            tls_name: is_secure.then(|| name.trim_matches(['[', ']']).to_owned()),
            host: authority.to_owned(),
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            public: first_public(&addresses),
        })
    }

    /// Whether every address of the host is this machine's or of a private network: loopback,
    /// RFC 1918, link-local, unique local (RFC 4193) and shared (RFC 6598) addresses.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.public.is_none()
    }

    /// An address of the host that is anybody's, if there is one: why it is not private.
    #[must_use]
    pub fn public_address(&self) -> Option<IpAddr> {
        self.public
    }
}

/// Whether it is by TLS, and what stands behind the scheme, which may be left out.
fn scheme(url: &str) -> Result<(bool, &str), String> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok((false, url)) };
    if scheme.contains(['/', '?', '#']) {
        // It is in the path: there is no scheme.
        return Ok((false, url));
    }
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok((false, rest)),
        "https" => Ok((true, rest)),
        "ws" => Err("write http:// here; --as ws makes WebSockets of it".to_owned()),
        "wss" => Err("write https:// here; --as ws makes WebSockets of it".to_owned()),
        _ => Err(format!("'{scheme}' is not supported, only http and https")),
    }
}

/// Takes `HOST[:PORT]` apart. The brackets of an IPv6 address stay.
fn host_and_port(authority: &str, usual: u16) -> Result<(&str, u16), String> {
    if authority.contains('@') {
        return Err(
            "names and passwords go into --header 'Authorization: …', not into the URL".to_owned()
        );
    }
    let port_at = match authority.rfind(']') {
        Some(end) => end + 1,
        None if authority.matches(':').count() > 1 => {
            return Err(format!("an IPv6 address needs brackets: http://[{authority}]/"));
        }
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (name, port) = authority.split_at(port_at);
    if name.is_empty() {
        return Err("there is no host: write http://HOST:PORT/PATH".to_owned());
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => usual,
        // `u16` takes a sign, ports do not.
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).ok_or_else(|| bad_port(digits))?
        }
        _ => return Err(bad_port(port)),
    };
    Ok((name, port))
}

fn bad_port(text: &str) -> String {
    format!("'{text}' is not a port: a number from 1 to 65535")
}

/// All addresses of a host.
fn resolve(name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Some(inner) = name.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or(inner);
        let address: Ipv6Addr =
            inner.parse().map_err(|_| format!("'{inner}' is not an IPv6 address"))?;
        return Ok(vec![SocketAddr::from((address, port))]);
    }
    let found = (name, port).to_socket_addrs();
    Ok(found.map_err(|error| format!("the host '{name}' is not known: {error}"))?.collect())
}

/// The address to connect to.
fn preferred(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()).copied()
}

/// One public address makes the host public, whichever is connected to.
fn first_public(addresses: &[SocketAddr]) -> Option<IpAddr> {
    addresses.iter().map(SocketAddr::ip).find(|ip| !is_private(*ip))
}

fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || is_shared(v4)
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unique_local(),
    }
}

/// 100.64.0.0/10, behind a carrier's address translation (RFC 6598).
fn is_shared(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && second & 0xc0 == 64
}

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (url, address, host, path) in [
            ("http://127.0.0.1:8080/a?b=c", "127.0.0.1:8080", "127.0.0.1:8080", "/a?b=c"),
            ("127.0.0.1:8080/a", "127.0.0.1:8080", "127.0.0.1:8080", "/a"),
            ("HTTP://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/"),
            ("http://10.0.0.1/", "10.0.0.1:80", "10.0.0.1", "/"),
            ("http://10.0.0.1?x", "10.0.0.1:80", "10.0.0.1", "/?x"),
            ("http://[::1]:81/a", "[::1]:81", "[::1]:81", "/a"),
            ("[fd00::1]", "[fd00::1]:80", "[fd00::1]", "/"),
            ("127.0.0.1/to?u=http://x/", "127.0.0.1:80", "127.0.0.1", "/to?u=http://x/"),
            ("127.0.0.1/to/https://x", "127.0.0.1:80", "127.0.0.1", "/to/https://x"),
        ] {
            let target = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(target.address, address.parse().unwrap(), "{url}");
            assert_eq!((target.host.as_str(), target.path.as_str()), (host, path), "{url}");
            assert!(target.url.starts_with("http://"), "{url}");
        }
    }

    #[test]
    fn urls_by_tls() {
        for (url, address, host, name) in [
            ("https://127.0.0.1:8443/a", "127.0.0.1:8443", "127.0.0.1:8443", "127.0.0.1"),
            ("HTTPS://127.0.0.1/a", "127.0.0.1:443", "127.0.0.1", "127.0.0.1"),
            ("https://[::1]:81/a", "[::1]:81", "[::1]:81", "::1"),
            ("https://localhost:81/a", "127.0.0.1:81", "localhost:81", "localhost"),
        ] {
            let target = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(target.address, address.parse().unwrap(), "{url}");
            assert_eq!((target.host.as_str(), target.path.as_str()), (host, "/a"), "{url}");
            assert_eq!(target.tls_name.as_deref(), Some(name), "{url}");
            assert!(target.url.starts_with("https://"), "{url}");
        }
        assert_eq!(Target::parse("http://127.0.0.1/").unwrap().tls_name, None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, part) in [
            ("wss://127.0.0.1/", "write https:// here; --as ws"),
            ("ws://127.0.0.1/", "write http:// here; --as ws"),
            ("https://:443/", "no host"),
            ("unix://x", "only http"),
            ("", "no host"),
            ("http://", "no host"),
            ("http:///a", "no host"),
            ("http://:80/a", "no host"),
            ("http://127.0.0.1:0/", "not a port"),
            ("http://127.0.0.1:/", "not a port"),
            ("http://127.0.0.1:65536/", "not a port"),
            ("http://127.0.0.1:+80/", "not a port"),
            ("http://127.0.0.1:80x/", "not a port"),
            ("http://[::1]80/", "not a port"),
            ("http://[::1", "brackets"),
            ("http://[::1%25lo]/", "not an IPv6 address"),
            ("http://[127.0.0.1]/", "not an IPv6 address"),
            ("http://::1/", "http://[::1]/"),
            ("http://me:secret@127.0.0.1/", "Authorization"),
            ("http://127.0.0.1/#top", "leave it out"),
            ("http://127.0.0.1/a b", "%XX"),
            ("http://127.0.0.1/\r\nX: y", "%XX"),
            ("http://127.0.0.1/é", "%XX"),
            ("http://0.0.0.0:8080/", "127.0.0.1"),
            ("http://[::]:8080/", "[::1]"),
            ("http://no-such-host.invalid/", "not known"),
        ] {
            let error = Target::parse(url).expect_err(url);
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn private_and_public_addresses() {
        for (host, private) in [
            ("127.0.0.1", true),
            ("127.255.0.9", true),
            ("10.1.2.3", true),
            ("172.16.0.1", true),
            ("172.31.255.255", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", true),
            ("100.127.255.255", true),
            ("100.63.255.255", false),
            ("100.128.0.0", false),
            ("93.184.216.34", false),
            ("[::1]", true),
            ("[fe80::1]", true),
            ("[febf::1]", true),
            ("[fec0::1]", false),
            ("[fc00::1]", true),
            ("[fdff::1]", true),
            ("[fe00::1]", false),
            ("[::ffff:10.0.0.1]", true),
            ("[::ffff:8.8.8.8]", false),
            ("[2001:db8::1]", false),
        ] {
            let target = Target::parse(host).unwrap();
            assert_eq!(target.is_private(), private, "{host}");
            assert_eq!(target.public_address().is_none(), private, "{host}");
        }
    }

    #[test]
    fn of_several_addresses_all_are_judged_and_one_is_taken() {
        let addresses = |text: &[&str]| -> Vec<SocketAddr> {
            text.iter().map(|address| address.parse().unwrap()).collect()
        };
        let mixed = addresses(&["[::1]:80", "127.0.0.1:80", "10.0.0.1:80", "[2001:db8::1]:80"]);
        assert_eq!(preferred(&mixed), Some(mixed[1]));
        assert_eq!(first_public(&mixed), Some(mixed[3].ip()));
        assert_eq!(first_public(&mixed[..3]), None);
        assert_eq!(preferred(&mixed[3..]), Some(mixed[3]));
        assert_eq!(preferred(&[]), None);
    }

    #[test]
    fn a_number_is_the_address_it_stands_for() {
        // However an address is written, the judgement is of what it leads to.
        let target = Target::parse("http://134744072/").unwrap();
        assert_eq!(target.public_address(), Some(IpAddr::from([8, 8, 8, 8])));
    }
}
