//! The list of a directory, as the loader makes it for all clients that ask for it.

use html_escape::encode_quoted_attribute;
use httpdate::HttpDate;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};
use stentor_io::{FileKind, Listed, monotonic_us, sleep};

/// What is in a directory: the files and directories that may be served, directories first, in the
/// order of their names. A visitor may not be allowed to see all of them.
#[derive(Debug)]
pub struct DirectoryList {
    /// Each name, and the row of a page behind it.
    text: String,
    rows: Vec<RowEnds>,
    /// How many requests it was made for.
    pub(crate) requests: usize,
}

/// Where a name and its row end in the text.
#[derive(Debug)]
struct RowEnds {
    name: u32,
    html: u32,
    is_directory: bool,
}

/// A file or a directory in a list.
#[derive(Clone, Copy, Debug)]
pub struct ListRow<'l> {
    /// The last segment of its path.
    pub name: &'l str,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// The row of a page that shows it.
    pub html: &'l str,
}

impl DirectoryList {
    /// The list of these files and directories. It calls `rest` after each of them.
    pub fn new(mut names: Vec<Listed>, mut rest: impl FnMut()) -> DirectoryList {
        names.sort_unstable_by(|a, b| {
            let is_file = |listed: &Listed| listed.kind != FileKind::Directory;
            (is_file(a), &a.name).cmp(&(is_file(b), &b.name))
        });
        let mut list = DirectoryList { text: String::new(), rows: Vec::new(), requests: 1 };
        for listed in names {
            list.text.push_str(&listed.name);
            let name = list.text.len() as u32;
            write_row(&mut list.text, &listed);
            let (html, is_directory) = (list.text.len() as u32, listed.kind == FileKind::Directory);
            list.rows.push(RowEnds { name, html, is_directory });
            rest();
        }
        list
    }

    /// One of its rows.
    #[must_use]
    pub fn row(&self, number: usize) -> Option<ListRow<'_>> {
        let &RowEnds { name, html, is_directory } = self.rows.get(number)?;
        let from = number.checked_sub(1).map_or(0, |before| self.rows[before].html as usize);
        let (name, html) = (name as usize, html as usize);
        Some(ListRow { name: &self.text[from..name], is_directory, html: &self.text[name..html] })
    }

    /// The share of its memory of each request that it was made for, in bytes.
    #[must_use]
    pub fn share_bytes(&self) -> usize {
        let bytes = self.text.capacity() + self.rows.capacity() * size_of::<RowEnds>();
        bytes / self.requests.max(1)
    }
}

/// A directory has no time: that would tell of names in it that a visitor may not see.
fn write_row(text: &mut String, Listed { name, kind, status }: &Listed) {
    let modified = UNIX_EPOCH + Duration::from_secs(status.modified_unix_s());
    let (slash, size, modified) = match kind {
        FileKind::Directory => ("/", String::new(), String::new()),
        _ => ("", status.bytes.to_string(), HttpDate::from(modified).to_string()),
    };
    text.push_str("<tr><td><a href=\"./");
    write_reference(text, name);
    let name = encode_quoted_attribute(name);
    // Writing to a string does not fail.
    let _ = writeln!(text, "{slash}\">{name}{slash}</a><td>{size}<td>{modified}");
}

/// Writes a name as it stands in a reference: everything but the unreserved (RFC 3986 section 2.3)
/// in percent-encoding.
fn write_reference(text: &mut String, name: &str) {
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

/// Makes a thread pause for as long as it works, so that it leaves half of its core to the workers.
pub(crate) struct ListRest {
    steps: usize,
    since_us: u64,
}

impl ListRest {
    pub(crate) fn begin() -> ListRest {
        ListRest { steps: 0, since_us: monotonic_us() }
    }

    /// A name has been looked at or written.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_BETWEEN_PAUSES) {
            let worked_us = monotonic_us().saturating_sub(self.since_us);
            // A file system that is slow leaves the core to others anyway.
            sleep(Duration::from_micros(worked_us.min(PAUSE_US_MAX)));
            self.since_us = monotonic_us();
        }
    }
}

/// So many names take some 100 µs.
const STEPS_BETWEEN_PAUSES: usize = 128;

/// The longest pause.
const PAUSE_US_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_io::FileStatus;

    fn listed(name: &str, kind: FileKind) -> Listed {
        let status = FileStatus { device: 1, inode: 2, bytes: 3, modified_ns: 0 };
        Listed { name: name.to_owned(), kind, status }
    }

    #[test]
    fn names_that_would_be_markup_are_text() {
        let names =
            vec![listed("<script>\"'&%", FileKind::File), listed("a b", FileKind::Directory)];
        let list = DirectoryList::new(names, || ());
        let rows: Vec<ListRow<'_>> = (0..).map_while(|number| list.row(number)).collect();
        assert_eq!(rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["a b", "<script>\"'&%"]);
        assert_eq!(rows[0].html, "<tr><td><a href=\"./a%20b/\">a b/</a><td><td>\n");
        let (reference, text) = ("%3Cscript%3E%22%27%26%25", "&lt;script&gt;&quot;&#x27;&amp;%");
        let end = "<td>3<td>Thu, 01 Jan 1970 00:00:00 GMT\n";
        let expected = format!("<tr><td><a href=\"./{reference}\">{text}</a>{end}");
        assert_eq!(rows[1].html, expected);
    }
}
