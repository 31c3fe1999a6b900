//! What is in a directory, as a page: where a mount allows it and there is no index.

use crate::access::Visitor;
use crate::access::names::may_hide_below;
use crate::endpoint::values::NO_SNIFFING;
use crate::exchange::Exchange;
use crate::head::Field;
use crate::limits::LISTING_BYTES_MAX;
use html_escape::encode_quoted_attribute;
use httpdate::HttpDate;
use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};
use stentor_config::Mount;
use stentor_io::{FileKind, Listed};
use stentor_wire::status::Status;
use stentor_wire::target::check_file;

/// Answers with the list of `directory`, which is beneath the root of the mount; `path` is what the
/// client calls it, with a slash at its end. Returns false if there is no such directory.
pub(crate) fn list(x: &mut Exchange<'_>, mount: &Mount, path: &str, directory: &str) -> bool {
    let directory = directory.strip_suffix('/').unwrap_or(directory);
    // What would not be served is not shown, and takes no place from what is.
    let visitor = Visitor::new(x.reply.shape.role, x.settings, &x.requester.bearer);
    let looked_at = Cell::new(0);
    let is_shown = |listed: &Listed| {
        looked_at.set(looked_at.get() + 1);
        let name = format!("{path}{}", listed.name);
        check_file(&name).is_ok()
            && match listed.kind {
                // mutation: listed-file
                FileKind::File => visitor.may_be_shown(&name),
                FileKind::Directory => {
                    // mutation: listed-directory
                    visitor.may_be_shown(&name) && visitor.may_be_shown(&format!("{name}/"))
                }
                _ => false,
            }
    };
    let listed = x.resources.files.list(mount, directory, x.clock.unix_s, is_shown);
    // A name that is not shown is as much work.
    *x.reply.cost += looked_at.get() * LISTED_COST;
    let Ok(mut names) = listed else { return false };
    let order = |listed: &Listed| (listed.kind != FileKind::Directory, listed.name.clone());
    names.sort_by_cached_key(order);
    let page = page(path, &names);
    x.reply.shape.is_private |= may_hide_below(x.settings, path);
    let head = x.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-cache");
    let head = head.field(Field::NO_SNIFFING, NO_SNIFFING);
    head.content("text/html; charset=utf-8", page.as_bytes());
    true
}

/// The cost of one name of a list: the kernel is asked for its status.
const LISTED_COST: usize = 1_024;

/// The page. It tells nothing of names that it does not show: a directory has no time, which would
/// tell of what is in it, and the last line is always the same.
fn page(path: &str, names: &[Listed]) -> String {
    let title = encode_quoted_attribute(path);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:1.5em;color-scheme:light dark}}\
         td{{padding:0 1.5em 0 0;overflow-wrap:anywhere}}\
         td+td{{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}}\
         @media(max-width:40em){{td+td+td{{display:none}}}}</style>\n<h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a>\n");
    }
    for Listed { name, kind, status } in names {
        if page.len() >= LISTING_BYTES_MAX {
            break;
        }
        let modified = UNIX_EPOCH + Duration::from_secs(status.modified_unix_s());
        let (slash, size, modified) = match kind {
            FileKind::Directory => ("/", String::new(), String::new()),
            _ => ("", status.bytes.to_string(), HttpDate::from(modified).to_string()),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{}{slash}\">{}{slash}</a><td>{size}<td>{modified}",
            reference(name),
            encode_quoted_attribute(name)
        );
    }
    page.push_str("</table>\n<p>At most 2,000 names, and none that you may not read.\n</html>\n");
    page
}

/// A name as it stands in a reference: everything but the unreserved (RFC 3986 section 2.3) in
/// percent-encoding.
fn reference(name: &str) -> String {
    let mut reference = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            reference.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(reference, "%{byte:02X}");
        }
    }
    reference
}

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_io::FileStatus;

    #[test]
    fn names_that_would_be_markup_are_text() {
        let status = FileStatus { device: 1, inode: 2, bytes: 3, modified_ns: 0 };
        let names = [
            Listed { name: "a b".to_owned(), kind: FileKind::Directory, status },
            Listed { name: "<script>\"'&%".to_owned(), kind: FileKind::File, status },
        ];
        let page = page("/<i>/", &names);
        assert!(page.contains("<title>/&lt;i&gt;/</title>"), "{page}");
        assert!(page.contains("<a href=\"./a%20b/\">a b/</a><td><td>\n"), "{page}");
        assert!(page.contains("<a href=\"./%3Cscript%3E%22%27%26%25\">&lt;script&gt;&quot;&#x27;"));
        assert!(page.contains("</a><td>3<td>Thu, 01 Jan 1970 00:00:00 GMT\n"), "{page}");
    }

    #[test]
    fn a_page_ends_at_its_limit() {
        let status = FileStatus { device: 1, inode: 2, bytes: 3, modified_ns: 0 };
        let listed = |n| Listed { name: format!("{n:0200}"), kind: FileKind::File, status };
        for (count, is_whole) in [(1_000, true), (10_000, false)] {
            let names: Vec<Listed> = (0..count).map(listed).collect();
            let page = page("/a/", &names);
            assert_eq!(page.matches("<tr>").count() == count + 1, is_whole, "{count} files");
            assert!(page.len() < (1 << 20) + 2_000, "{} bytes", page.len());
        }
    }
}
