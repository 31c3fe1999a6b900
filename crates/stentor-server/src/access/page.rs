//! The page on whose behalf a browser sends a request.
//!
//! A browser sends the cookies of a server with every request to it, whatever page makes it send
//! the request. Two fields tell the pages apart: `Origin`, which names scheme, host and port of the
//! page (RFC 6454), and `Sec-Fetch-Site`, by which the browser compares page and server itself
//! (W3C Fetch Metadata). [`PageOrigin::of`] is the only code that judges them.

use stentor_config::Cors;
use stentor_wire::http1::Request;

/// The page that made a browser send a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageOrigin {
    /// The request names none: a program sent it, or a page of this server.
    Unnamed,
    /// A page of this server: the scheme, the host and the port are the same.
    Own,
    /// A page of an origin in `cors.origins`.
    Listed,
    /// A page of any other origin.
    Foreign,
    /// A page of another site, whose origin the browser does not name: it loads a script, a picture
    /// or a link.
    ForeignUnnamed,
}

impl PageOrigin {
    /// Judges a request that came by TLS, or not: `is_secured`.
    pub(crate) fn of(request: &Request<'_>, cors: &Cors, is_secured: bool) -> PageOrigin {
        // `none` is an address that the user has typed. A value that is not known is no proof.
        let is_foreign = !matches!(request.fetch_site, None | Some(b"same-origin" | b"none"));
        let Some(origin) = request.origin else {
            return if is_foreign { PageOrigin::ForeignUnnamed } else { PageOrigin::Unnamed };
        };
        let is_own = |host| is_origin_of(origin, host, is_secured);
        if cors.lists(origin) {
            PageOrigin::Listed
        } else if !is_foreign && request.host.is_some_and(is_own) {
            PageOrigin::Own
        } else {
            PageOrigin::Foreign
        }
    }
}

/// Whether a page of `origin` comes from the host that a request names (RFC 6454 section 5). If
/// the request came without TLS, a proxy may have decrypted it, so both schemes are possible.
fn is_origin_of(origin: &[u8], host: &[u8], is_secured: bool) -> bool {
    let Some(at) = memchr::memmem::find(origin, b"://") else { return false };
    let usual_port: &[u8] = match &origin[..at] {
        b"https" => b"443",
        b"http" if !is_secured => b"80",
        _ => return false,
    };
    let of = |host| {
        let (name, port) = split_port(host);
        (name, if port.is_empty() { usual_port } else { port })
    };
    let ((own_name, own_port), (name, port)) = (of(&origin[at + 3..]), of(host));
    !name.is_empty() && own_name.eq_ignore_ascii_case(name) && own_port == port
}

/// The name or address of a host, and its port, which may be empty (RFC 3986 section 3.2).
pub(crate) fn split_port(host: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memrchr(b':', host) {
        Some(at) if !host[at..].contains(&b']') => (&host[..at], &host[at + 1..]),
        _ => (host, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_wire::http1::Method;

    fn page(origin: &str, site: &str, is_secured: bool) -> PageOrigin {
        let origins = vec!["https://listed.example".to_owned()];
        let cors = Cors { origins, credentials: false };
        let mut request = Request::new(Method::Get, b"/");
        request.host = Some(b"A.example:8443");
        request.origin = (!origin.is_empty()).then_some(origin.as_bytes());
        request.fetch_site = (!site.is_empty()).then_some(site.as_bytes());
        PageOrigin::of(&request, &cors, is_secured)
    }

    #[test]
    fn scheme_host_and_port_are_compared() {
        for site in ["", "same-origin", "none"] {
            assert_eq!(page("https://a.example:8443", site, true), PageOrigin::Own, "{site}");
            assert_eq!(page("http://a.example:8443", site, false), PageOrigin::Own, "{site}");
            assert_eq!(page("https://a.example:8443", site, false), PageOrigin::Own, "{site}");
        }
        for origin in [
            "http://a.example:8443",
            "ftp://a.example:8443",
            "wss://a.example:8443",
            "https://a.example",
            "https://a.example:8444",
            "https://b.example:8443",
            "https://",
            "null",
        ] {
            assert_eq!(page(origin, "", true), PageOrigin::Foreign, "{origin}");
        }
        assert_eq!(page("ftp://a.example:8443", "", false), PageOrigin::Foreign);
    }

    #[test]
    fn a_browser_tells_foreign_pages_apart() {
        for site in ["cross-site", "same-site", "unheard-of"] {
            assert_eq!(page("https://a.example:8443", site, true), PageOrigin::Foreign);
            assert_eq!(page("https://a.example:8443", site, false), PageOrigin::Foreign);
            assert_eq!(page("https://listed.example", site, true), PageOrigin::Listed);
            assert_eq!(page("", site, true), PageOrigin::ForeignUnnamed);
        }
        for site in ["", "same-origin", "none"] {
            assert_eq!(page("", site, true), PageOrigin::Unnamed);
        }
    }
}
