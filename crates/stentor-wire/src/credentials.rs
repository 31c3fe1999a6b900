//! Where a request carries its token: in a field, a subprotocol, the query or a cookie.
//!
//! `Authorization: Bearer` (RFC 6750 section 2.1) is the way of programs. A page cannot set a field
//! of an EventSource or a WebSocket, so there are three more: a subprotocol that is offered beside
//! the one that is spoken, a parameter `access_token` of the query (RFC
//! 6750 section 2.3), and a cookie of a configured name. The
//! first of them in this order counts and the others are not looked at: a cookie comes along by
//! itself, so whatever was said on purpose goes before it.
//!
//! What a token is worth is not known here: it is some bytes.

use std::borrow::Cow;

use memchr::memmem;

use crate::http1::Request;
use crate::{target, trim_ows};

/// A token, and where it stood.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential<'a> {
    /// As it was meant: out of a query it is decoded.
    pub token: Cow<'a, [u8]>,
    /// Where it stood.
    pub place: Place,
}

/// Where a token stands in a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// `Authorization: Bearer`
    Field,
    /// `Sec-WebSocket-Protocol: stentor.token.…`
    Subprotocol,
    /// `?access_token=`
    Query,
    /// The cookie of the configured name. It is sent by browsers on behalf of any page.
    Cookie,
}

/// Not the token itself: what is printed may be logged.
impl std::fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("place", &self.place).finish_non_exhaustive()
    }
}

/// The token that a request carries; `cookie` is the name of the cookie that may hold one.
#[must_use]
pub fn credential<'a>(request: &Request<'a>, cookie: Option<&str>) -> Option<Credential<'a>> {
    let at = |place| move |token: &'a [u8]| Credential { token: Cow::Borrowed(token), place };
    request
        .authorization
        .and_then(bearer)
        .map(at(Place::Field))
        .or_else(|| request.websocket_protocol.and_then(subprotocol).map(at(Place::Subprotocol)))
        .or_else(|| {
            let token = in_query(target::split(request.target).1?)?;
            Some(Credential { token, place: Place::Query })
        })
        .or_else(|| in_cookies(request.cookie?, cookie?).map(at(Place::Cookie)))
}

/// The token of an Authorization field of the scheme Bearer, whose name has no case (RFC 9110
/// section 11.1). Other schemes are somebody else's matter.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(SCHEME);
    let ends = matches!(rest.first(), None | Some(b' ' | b'\t'));
    (is_bearer && ends).then(|| trim_ows(rest))
}

/// The token that a list of subprotocols has among its names.
fn subprotocol(offers: &[u8]) -> Option<&[u8]> {
    let mut offers = offers.split(|&byte| byte == b',').map(trim_ows);
    offers.find_map(|offer| offer.strip_prefix(SUBPROTOCOL))
}

/// The parameter `access_token` of a query; the last, if there are several. One that cannot be
/// decoded is taken as it stands: it is no good token, and the client is to be told so.
fn in_query(query: &[u8]) -> Option<Cow<'_, [u8]>> {
    // Nearly every query has none.
    memmem::find(query, PARAMETER)?;
    let mut found = None;
    for piece in query.split(|&byte| byte == b'&') {
        if let Some(raw) = piece.strip_prefix(PARAMETER) {
            found = Some(match target::pairs(piece).next() {
                Some(Ok((_, value))) => Cow::Owned(value.into_owned().into_bytes()),
                _ => Cow::Borrowed(raw),
            });
        }
    }
    found
}

/// A target without the tokens of its query: for what is kept of a request.
#[must_use]
pub fn without_token(target: &[u8]) -> Cow<'_, [u8]> {
    let (path, query) = target::split(target);
    let Some(query) = query.filter(|query| memmem::find(query, b"token=").is_some()) else {
        return Cow::Borrowed(target);
    };
    let mut kept = path.to_vec();
    let is_secret = |piece: &[u8]| {
        piece.split(|&byte| byte == b'=').next().is_some_and(|name| SECRETS.contains(&name))
    };
    let pieces = query.split(|&byte| byte == b'&').filter(|piece| !is_secret(piece));
    for (i, piece) in pieces.enumerate() {
        kept.push(if i == 0 { b'?' } else { b'&' });
        kept.extend_from_slice(piece);
    }
    Cow::Owned(kept)
}

/// The value of a cookie (RFC 6265 section 4.2): the first of its name, which is the one of the
/// longest path. Quotes around it are no part of it.
fn in_cookies<'a>(cookies: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut cookies = cookies.split(|&byte| byte == b';').map(trim_ows);
    let value = cookies.find_map(|cookie| {
        let rest = cookie.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })?;
    let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(bare.unwrap_or(value))
}

const PARAMETER: &[u8] = b"access_token=";

/// The parameters whose values are secrets. Clients may still send the name `token`, which Stentor
/// no longer reads.
pub(crate) const SECRETS: [&[u8]; 2] = [b"access_token", b"token"];

/// What the subprotocol begins with that is a token and is never spoken.
pub const SUBPROTOCOL: &[u8] = b"stentor.token.";

const SCHEME: &[u8] = b"Bearer";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{FieldSlots, Method, parse};

    /// What a request carries: its place and its token.
    fn carried(target: &str, fields: &str) -> Option<(Place, String)> {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut slots = FieldSlots::new();
        let request = parse(head.as_bytes(), &mut slots).unwrap().request;
        let found = credential(&request, Some("auth"))?;
        Some((found.place, String::from_utf8(found.token.into_owned()).unwrap()))
    }

    #[test]
    fn a_target_is_kept_without_its_tokens() {
        for (target, expected) in [
            ("/a", "/a"),
            ("/a?b=c", "/a?b=c"),
            ("/a?access_token=t", "/a"),
            ("/a?access_token=t&b=c", "/a?b=c"),
            ("/a?b=c&access_token=t&d=e&access_token=u", "/a?b=c&d=e"),
            ("/token=t?mytoken=u", "/token=t?mytoken=u"),
            ("/a?token=t&b", "/a?b"),
        ] {
            let kept = without_token(target.as_bytes());
            assert_eq!(std::str::from_utf8(&kept).unwrap(), expected, "{target}");
            assert!(carried(expected, "").is_none());
        }
    }

    #[test]
    fn a_token_is_found_where_it_may_stand_and_nowhere_else() {
        use Place::*;
        let protocols = "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Protocol: ";
        for (target, fields, expected) in [
            ("/a", "", None),
            ("/a", "Authorization: Bearer t\r\n", Some((Field, "t"))),
            ("/a", "authorization:bEaReR   t \r\n", Some((Field, "t"))),
            ("/a", "Authorization: Bearer\tt\r\n", Some((Field, "t"))),
            ("/a", "Authorization: Bearer\r\n", Some((Field, ""))),
            ("/a", "Authorization: Bearert\r\n", None),
            ("/a", "Authorization: Basic dTpw\r\n", None),
            ("/a?access_token=t", "", Some((Query, "t"))),
            ("/a?b=c&access_token=t%2Eu&d", "", Some((Query, "t.u"))),
            ("/a?access_token=s&access_token=t", "", Some((Query, "t"))),
            ("/a?access_token=%zz", "", Some((Query, "%zz"))),
            ("/a?access_token=", "", Some((Query, ""))),
            ("/a?access_token", "", None),
            ("/a?xaccess_token=t&Access_Token=t&access_token_=t&token=t", "", None),
            ("/token=t", "", None),
            ("/a", "Cookie: auth=t\r\n", Some((Cookie, "t"))),
            ("/a", "Cookie: b=c; auth=\"t\"; auth=u\r\n", Some((Cookie, "t"))),
            ("/a", "Cookie: xauth=t; authx=t; auth\r\n", None),
            ("/a", &format!("{protocols}stentor.v1, stentor.token.t.u\r\n"), {
                Some((Subprotocol, "t.u"))
            }),
            ("/a", &format!("{protocols}stentor.v1, stentor.tokens\r\n"), None),
            // What was said on purpose goes before what comes along.
            (
                "/a?access_token=q",
                "Cookie: auth=c\r\nAuthorization: Bearer f\r\n",
                Some((Field, "f")),
            ),
            ("/a?access_token=q", "Cookie: auth=c\r\n", Some((Query, "q"))),
            (
                "/a?access_token=q",
                "Cookie: auth=c\r\nAuthorization: Basic x\r\n",
                Some((Query, "q")),
            ),
            (
                "/a?access_token=q",
                &format!("{protocols}stentor.token.p\r\n"),
                Some((Subprotocol, "p")),
            ),
        ] {
            let expected = expected.map(|(place, token)| (place, token.to_owned()));
            assert_eq!(carried(target, fields), expected, "{target} {fields}");
        }
        let request = Request { cookie: Some(b"auth=t"), ..Request::new(Method::Get, b"/a") };
        assert_eq!(credential(&request, None), None, "no cookie is configured");
    }

    #[test]
    fn what_is_printed_of_a_credential_is_not_the_token() {
        let request = Request { cookie: Some(b"auth=secret"), ..Request::new(Method::Get, b"/a") };
        let printed = format!("{:?}", credential(&request, Some("auth")));
        assert!(printed.contains("Cookie") && !printed.contains("secret"), "{printed}");
    }
}
