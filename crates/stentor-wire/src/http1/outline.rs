//! What a log says of a head: its first line and two fields, as they were sent.
//!
//! A log wants this of every request, also of one that was refused or never became whole, so it is
//! read from the bytes as they are, which may be anything. It is read only where there is a log:
//! the fields mean nothing to the server and are not among those that [`parse`](super::parse)
//! picks out. Nothing is escaped here; that is up to the format of the log.

use memchr::{memchr, memchr2, memmem};

use super::HEAD_BYTES_MAX;
use crate::credentials::SECRETS;
use crate::trim_ows;

/// What a log says of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outline<'a> {
    /// The first line, as far as it came: any bytes but line ends.
    pub line: &'a [u8],
    /// Referer
    pub referer: Option<&'a [u8]>,
    /// User-Agent
    pub user_agent: Option<&'a [u8]>,
}

/// Reads it from what `bytes`, which need be no head, begins with.
#[must_use]
pub fn outline(bytes: &[u8]) -> Outline<'_> {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    let bytes = &bytes[start.unwrap_or(bytes.len())..];
    let mut lines = bytes[..bytes.len().min(HEAD_BYTES_MAX)]
        .split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut outline = Outline { line: lines.next().unwrap_or_default(), ..Outline::default() };
    for field in lines.take_while(|line| !line.is_empty()) {
        let Some(colon) = memchr(b':', field) else { continue };
        let (name, value) = (&field[..colon], trim_ows(&field[colon + 1..]));
        let slot = match name.len() {
            7 if name.eq_ignore_ascii_case(b"referer") => &mut outline.referer,
            10 if name.eq_ignore_ascii_case(b"user-agent") => &mut outline.user_agent,
            _ => continue,
        };
        slot.get_or_insert(value);
    }
    outline
}

/// A request line or the address of a page without what is secret in it: whatever a parameter
/// `token` of the query is, is `***`.
#[must_use]
pub fn without_secrets(text: &[u8]) -> Vec<u8> {
    // Where the query of a request line ends; a value with spaces in it is hidden to its end.
    let end = memmem::rfind(text, b" HTTP/").unwrap_or(text.len());
    let mut shown = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr2(b'?', b'&', rest) {
        let (before, parameter) = rest.split_at(at + 1);
        shown.extend_from_slice(before);
        rest = parameter;
        let name = may_be_secret(parameter);
        let Some(equals) = memchr(b'=', name).filter(|&at| is_secret(&name[..at])) else {
            continue;
        };
        let from = text.len() - parameter.len() + equals + 1;
        let value = &text[from..if end < from { text.len() } else { end }];
        let to = from + memchr(b'&', value).unwrap_or(value.len());
        shown.extend_from_slice(&parameter[..=equals]);
        shown.extend_from_slice(b"***");
        rest = &text[to..];
    }
    shown.extend_from_slice(rest);
    shown
}

/// The beginning of a parameter, as far as the name of a secret and the `=` behind it may reach.
/// The limit makes the time linear: the search from each `&` would otherwise reach the end of the
/// text.
fn may_be_secret(parameter: &[u8]) -> &[u8] {
    &parameter[..parameter.len().min(SECRET_NAME_BYTES_MAX + 1)]
}

/// Whether a parameter's name, which may be written with escapes, is that of a secret. A broken
/// escape stands for itself.
fn is_secret(name: &[u8]) -> bool {
    SECRETS.iter().any(|secret| reads_as(name, secret))
}

fn reads_as(name: &[u8], secret: &[u8]) -> bool {
    let mut rest = name;
    let is_next = |letter: &u8| {
        let (byte, used) = match *rest {
            [b'%', high, low, ..] => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            [byte, ..] => (byte, 1),
            [] => return false,
        };
        rest = &rest[used..];
        byte.eq_ignore_ascii_case(letter)
    };
    secret.iter().all(is_next) && rest.is_empty()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The length of the longest name with all letters as escapes.
const SECRET_NAME_BYTES_MAX: usize = 3 * SECRETS[0].len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_is_read_of_anything() {
        let head = |line, referer, user_agent| Outline { line, referer, user_agent };
        for (bytes, expected) in [
            (&b""[..], head(&b""[..], None, None)),
            (b"\r\n\r\n", head(b"", None, None)),
            (b"GET / HT", head(b"GET / HT", None, None)),
            (b"\r\nGET / HTTP/1.0\r\n\r\n", head(b"GET / HTTP/1.0", None, None)),
            (
                b"GET / HTTP/1.1\r\nReFerer:  b \r\nUSER-agent:c:d\r\nReferer: x\r\n\r\n",
                head(b"GET / HTTP/1.1", Some(b"b"), Some(b"c:d")),
            ),
            (b"GET /\nReferer: b\nno field\n", head(b"GET /", Some(b"b"), None)),
            (
                b"PUT / HTTP/1.1\r\n\r\nReferer: of the body\r\n",
                head(b"PUT / HTTP/1.1", None, None),
            ),
            (b"\x16\x03\x01\x00", head(b"\x16\x03\x01\x00", None, None)),
        ] {
            assert_eq!(outline(bytes), expected, "{}", bytes.escape_ascii());
        }
        let long = [b"GET /".as_slice(), &[b'x'; 2 * HEAD_BYTES_MAX]].concat();
        assert_eq!(outline(&long).line.len(), HEAD_BYTES_MAX);
    }

    #[test]
    fn secrets_are_not_shown() {
        for (text, shown) in [
            ("GET /a?b=c HTTP/1.1", "GET /a?b=c HTTP/1.1"),
            ("GET /token=a HTTP/1.1", "GET /token=a HTTP/1.1"),
            ("GET /a?token=s HTTP/1.1", "GET /a?token=*** HTTP/1.1"),
            (
                "GET /a?b=c&token=s&d=e&token=t HTTP/1.1",
                "GET /a?b=c&token=***&d=e&token=*** HTTP/1.1",
            ),
            ("GET /a?to%6Ben=s HTTP/1.1", "GET /a?to%6Ben=*** HTTP/1.1"),
            ("GET /a?Token=s HTTP/1.1", "GET /a?Token=*** HTTP/1.1"),
            ("/a?%54%6f%6B%65%6e=s", "/a?%54%6f%6B%65%6e=***"),
            ("/a?toke%6=s&toke%zz=t&%=u", "/a?toke%6=s&toke%zz=t&%=u"),
            ("GET /a?x?token=s=t?u HTTP/1.1", "GET /a?x?token=*** HTTP/1.1"),
            ("GET /a?token&b HTTP/1.1", "GET /a?token&b HTTP/1.1"),
            ("GET /a?tokens=s&atoken=s HTTP/1.1", "GET /a?tokens=s&atoken=s HTTP/1.1"),
            // Not whole, or no request at all.
            ("GET /a?token=s", "GET /a?token=***"),
            ("GET /a?token=s t u", "GET /a?token=***"),
            ("GET /a?token=s t HTTP/1.1", "GET /a?token=*** HTTP/1.1"),
            ("GET HTTP/ HTTP/1.1 ?token=s", "GET HTTP/ HTTP/1.1 ?token=***"),
            ("https://a.example/b?token=s#c", "https://a.example/b?token=***"),
            ("?%", "?%"),
            ("", ""),
        ] {
            let result = without_secrets(text.as_bytes());
            assert_eq!(String::from_utf8(result).unwrap(), shown, "{text}");
        }
    }

    /// A head may hold 16,000 of them, and each must not have the whole rest searched.
    #[test]
    fn many_parameters_take_as_long_as_their_bytes() {
        for text in ["&".repeat(16_000), "&a=".repeat(5_000), "?token&".repeat(2_000)] {
            let text = format!("GET /?{text}&token=s HTTP/1.1");
            assert!(may_be_secret(&text.as_bytes()[6..]).len() <= 37);
            let shown = without_secrets(text.as_bytes());
            assert_eq!(shown, text.replace("token=s", "token=***").into_bytes());
        }
    }
}
