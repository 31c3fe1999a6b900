//! `/` where no site is served: a page for whoever opens the server in a browser to see whether it
//! is there. It says what this is, and what to try.

use crate::endpoint::values::NO_SNIFFING;
use crate::exchange::Exchange;
use crate::head::Field;
use stentor_wire::http1::Request;
use stentor_wire::negotiate::media_type;
use stentor_wire::status::Status;

/// Whether this page is meant: a browser asks for `/`, and no site has it. Whoever does not rather
/// have HTML than text is told as ever that it is no topic's name.
pub(crate) fn is_asked_for(x: &Exchange<'_>, request: &Request<'_>, path: &str) -> bool {
    path == "/"
        && media_type(request.accept, &["text/plain", "text/html"]) == Some("text/html")
        && !x.settings.mounts.iter().any(|mount| mount.path == "/")
}

/// Answers with the page.
pub(crate) fn get(x: &mut Exchange<'_>, request: &Request<'_>) {
    let own = request.host.and_then(address).unwrap_or("127.0.0.1:8080");
    // Where the control listener is, is nobody's affair who only reads.
    let control = if x.listener().publishes { own } else { "127.0.0.1:8081" };
    let page = PAGE.replace("{own}", own).replace("{control}", control);
    let head = x.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-cache");
    let head = head.field(Field::VARY, "Accept").field(Field::NO_SNIFFING, NO_SNIFFING);
    head.content("text/html; charset=utf-8", page.as_bytes());
}

/// A `Host` as it may stand in HTML and behind a prompt: whatever else it holds, it is not shown.
fn address(host: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(byte);
    let host = std::str::from_utf8(host).ok()?;
    (!host.is_empty() && host.bytes().all(|byte| is_plain(&byte))).then_some(host)
}

const PAGE: &str = include_str!("welcome.html");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_an_address_is_shown() {
        for host in ["localhost", "127.0.0.1:8080", "[::1]:80", "a-b.example:1"] {
            assert_eq!(address(host.as_bytes()), Some(host));
        }
        for host in ["", "a<b", "a\"b", "a'b", "a&b", "a;reboot", "$(a)", "`a`", "a b", "\u{e4}"] {
            assert_eq!(address(host.as_bytes()), None, "{host}");
        }
    }
}
