//! What is in a directory, as a page: where a mount allows it and there is no index.

use crate::access::Visitor;
use crate::access::names::may_hide_below;
use crate::endpoint::values::NO_SNIFFING;
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::large_body::{LargeBody, Mark};
use crate::limits::{LISTING_BYTES_MAX, PART_BYTES};
use html_escape::encode_quoted_attribute;
use std::sync::Arc;
use stentor_files::{DirectoryList, ListRow};
use stentor_wire::status::Status;

/// The rows of a list that a visitor is shown, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct ShownRows {
    rows: Vec<u32>,
    bytes: usize,
    /// The next row that is to be judged.
    next: usize,
}

impl ShownRows {
    pub(crate) fn own_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<u32>()
    }
}

/// Judges the next rows of a list. Clients call the directory `path`, with a slash at its end. A
/// row that the client may not see takes no place from others. Returns whether all rows are judged.
pub(crate) fn judge(
    x: &mut Exchange<'_>,
    path: &str,
    list: &DirectoryList,
    shown: &mut ShownRows,
) -> bool {
    // Where nothing is hidden, no name need be looked at.
    let judges = may_hide_below(x.settings, path) || x.settings.is_private_file(path);
    let visitor = Visitor::new(x.reply.shape.role, x.settings, &x.requester.bearer);
    let is_shown = |row: &ListRow<'_>| {
        if !judges {
            return true;
        }
        let name = format!("{path}{}", row.name);
        // mutation: listed-file
        let may_file = visitor.may_be_shown(&name);
        // mutation: listed-directory
        let may_enter = !row.is_directory || visitor.may_be_shown(&format!("{name}/"));
        may_file && may_enter
    };
    let first = shown.next;
    let end = if judges { first + JUDGED_PER_STEP } else { usize::MAX };
    let is_done = loop {
        // mutation: unwanted-names
        let is_full = shown.rows.len() == LISTED_MAX || shown.bytes >= LISTING_BYTES_MAX;
        let Some(row) = list.row(shown.next).filter(|_| !is_full) else { break true };
        if shown.next == end {
            break false;
        }
        if is_shown(&row) {
            shown.rows.push(shown.next as u32);
            shown.bytes += row.html.len();
        }
        shown.next += 1;
    };
    *x.reply.cost += if judges { (shown.next - first) * JUDGED_COST } else { 0 };
    is_done
}

/// Answers with the rows of a list that the visitor is shown.
pub(crate) fn answer(
    x: &mut Exchange<'_>,
    path: &str,
    list: &Arc<DirectoryList>,
    shown: ShownRows,
) -> Answer {
    x.reply.shape.is_private |= may_hide_below(x.settings, path);
    let top = top(path);
    let (ShownRows { rows, bytes, .. }, list) = (shown, Arc::clone(list));
    let rest_bytes = bytes + BOTTOM.len();
    let head = x.reply.begin(Status::OK).field(Field::CACHE_CONTROL, "no-cache");
    head.field(Field::NO_SNIFFING, NO_SNIFFING)
        .field(Field::CONTENT_TYPE, "text/html; charset=utf-8")
        .end_with_length((top.len() + rest_bytes) as u64)
        .body(top.as_bytes());
    x.answer_in_steps(ListBody { list, rows }, rest_bytes)
}

/// The rows of a page, and what comes behind them.
#[derive(Debug)]
pub(crate) struct ListBody {
    list: Arc<DirectoryList>,
    rows: Vec<u32>,
}

impl LargeBody for ListBody {
    fn append(&self, Mark { item, .. }: Mark, out: &mut Vec<u8>) -> Option<Mark> {
        let end = out.len() + PART_BYTES;
        for (row, number) in self.rows.iter().enumerate().skip(item) {
            if out.len() >= end {
                return Some(Mark { item: row, offset: 0 });
            }
            let row = self.list.row(*number as usize);
            out.extend_from_slice(row.map_or(&[], |row| row.html.as_bytes()));
        }
        out.extend_from_slice(BOTTOM.as_bytes());
        None
    }

    /// With its share of the list.
    fn own_bytes(&self) -> usize {
        self.list.share_bytes() + self.rows.capacity() * size_of::<u32>()
    }
}

/// The page before the rows.
fn top(path: &str) -> String {
    let title = encode_quoted_attribute(path);
    let up = if path == "/" { "" } else { "<tr><td><a href=\"../\">../</a>\n" };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>body{{font:16px/1.5 system-ui,sans-serif;margin:1.5em;color-scheme:light dark}}\
         td{{padding:0 1.5em 0 0;overflow-wrap:anywhere}}\
         td+td{{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}}\
         @media(max-width:40em){{td+td+td{{display:none}}}}</style>\n<h1>{title}</h1>\n\
         <table>\n{up}"
    )
}

/// The page behind the rows. It is always the same, so it tells nothing of names that are not
/// shown.
const BOTTOM: &str = "</table>\n<p>At most 2,000 names, and none that you may not read.\n</html>\n";

/// The cost of finding out whether a visitor may see a name.
const JUDGED_COST: usize = 512;

/// Names that are judged in one step.
const JUDGED_PER_STEP: usize = 256;

/// The most names that a page shows.
const LISTED_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Permit;
    use crate::listeners::PUBLIC;
    use crate::response::Persistence;
    use crate::simulation::{World, kind, patient};
    use stentor_io::{FileKind, FileStatus, Listed};
    use stentor_order::Ticket;

    #[test]
    fn a_page_ends_at_its_limit() {
        let world = World::new(1, kind(), patient());
        let mut cx = world.context(patient());
        let status = FileStatus { device: 1, inode: 2, bytes: 3, modified_ns: 0 };
        let kind = FileKind::File;
        for (count, name_bytes, shown) in [(1_000, 4, 1_000), (2_001, 4, 2_000), (2_000, 500, 980)]
        {
            let listed = |n| Listed { name: format!("{n:0name_bytes$}"), kind, status };
            let list = DirectoryList::new((0..count).map(listed).collect(), || ());
            let persistence = Persistence { keep_alive: true, http10: false };
            let ticket = Ticket::of_nobody();
            let mut x = cx.exchange(PUBLIC, None, persistence, ticket, &Permit::SMALL);
            let (list, mut rows) = (Arc::new(list), ShownRows::default());
            assert!(judge(&mut x, "/<i>/", &list, &mut rows));
            let Answer::Body(body) = answer(&mut x, "/<i>/", &list, rows) else { panic!() };
            body.append_rest(Mark::default(), cx.out.bytes());
            let page = String::from_utf8(cx.out.bytes().clone()).unwrap();
            cx.out.clear();
            let (head, page) = page.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("Content-Length: {}", page.len())), "{head}");
            assert!(page.contains("<title>/&lt;i&gt;/</title>"), "{page}");
            let rows = page.matches("<tr>").count() - 1;
            assert!(rows.abs_diff(shown) <= if name_bytes == 4 { 0 } else { 50 }, "{rows}");
            assert!(page.len() < (1 << 20) + 4_000, "{} bytes", page.len());
        }
    }
}
