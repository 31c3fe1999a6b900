//! What is in a directory, as a page: where a mount allows it and there is no index.

use crate::access::Visitor;
use crate::access::names::may_hide_below;
use crate::endpoint::values::NO_SNIFFING;
use crate::exchange::Exchange;
use crate::head::Field;
use crate::limits::LISTING_BYTES_MAX;
use html_escape::encode_quoted_attribute;
use stentor_files::{DirectoryList, ListRow};
use stentor_wire::status::Status;

/// Answers with the list of a directory. Clients call it `path`, with a slash at its end.
pub(crate) fn answer(x: &mut Exchange<'_>, path: &str, list: &DirectoryList) {
    let hides = may_hide_below(x.settings, path);
    // Where nothing is hidden, no name need be looked at.
    let judges = hides || x.settings.is_private_file(path);
    let visitor = Visitor::new(x.reply.shape.role, x.settings, &x.requester.bearer);
    let mut looked_at = 0;
    let is_shown = |row: &ListRow<'_>| {
        if !judges {
            return true;
        }
        looked_at += 1;
        let name = format!("{path}{}", row.name);
        // mutation: listed-file
        let may_file = visitor.may_be_shown(&name);
        // mutation: listed-directory
        let may_enter = !row.is_directory || visitor.may_be_shown(&format!("{name}/"));
        may_file && may_enter
    };
    // mutation: unwanted-names
    let page = page(path, list.rows_from(0).filter(is_shown));
    *x.reply.cost += looked_at * JUDGED_COST;
    x.reply.shape.is_private |= hides;
    let head = x.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-cache");
    let head = head.field(Field::NO_SNIFFING, NO_SNIFFING);
    head.content("text/html; charset=utf-8", page.as_bytes());
}

/// The page. It tells nothing of names that it does not show: the last line is always the same.
fn page<'l>(path: &str, rows: impl Iterator<Item = ListRow<'l>>) -> String {
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
    for row in rows.take(LISTED_MAX) {
        if page.len() >= LISTING_BYTES_MAX {
            break;
        }
        page.push_str(row.html);
    }
    page.push_str("</table>\n<p>At most 2,000 names, and none that you may not read.\n</html>\n");
    page
}

/// The cost of finding out whether a visitor may see a name.
const JUDGED_COST: usize = 512;

/// The most names that a page shows.
const LISTED_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_io::{FileKind, FileStatus, Listed};

    #[test]
    fn a_page_ends_at_its_limit() {
        let status = FileStatus { device: 1, inode: 2, bytes: 3, modified_ns: 0 };
        for (count, name_bytes, shown) in [(1_000, 4, 1_000), (2_001, 4, 2_000), (2_000, 500, 950)]
        {
            let listed =
                |n| Listed { name: format!("{n:0name_bytes$}"), kind: FileKind::File, status };
            let list = DirectoryList::new((0..count).map(listed).collect(), || ());
            let page = page("/<i>/", list.rows_from(0));
            assert!(page.contains("<title>/&lt;i&gt;/</title>"), "{page}");
            let rows = page.matches("<tr>").count() - 1;
            assert!(rows.abs_diff(shown) < 50, "{rows} of {count}");
            assert!(name_bytes > 4 || rows == shown, "{rows} of {count}");
            assert!(page.len() < (1 << 20) + 2_000, "{} bytes", page.len());
        }
    }
}
