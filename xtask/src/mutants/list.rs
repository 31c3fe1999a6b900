//! The mutations that are written by hand: how their list is written, and how one is applied.
//!
//! Each stands for a fault that the code once had, and that no derived mutation makes. A name, a
//! sentence that says what is broken, and a change in the form of a diff belong together:
//!
//! ```text
//! filter-replaced
//! A filter that is replaced counts twice.
//! - usize::from(before.is_none())
//! + 1
//! ```
//!
//! The comment `// mutation: filter-replaced` in the code marks the statement, match arm, field or
//! item behind it, and moves with that. The text after `-` must be in there exactly once, and the
//! text after `+` replaces it. Without `-` the whole statement is replaced, and without both it is
//! removed. Lines with `#` in the first column are comments.
//!
//! The tests of the file's own package must notice, or else those of the server, which has all
//! below it in its simulator. A line `tests: PACKAGE…` behind the sentence names others, or
//! end-to-end tests: `e2e::upgrade` are all whose names contain `upgrade`. Those of the package
//! `stentor` are the command's own unit tests.

use super::SERVER;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;
use xtask::source::{Blanked, File, blank};

/// A way to break one file.
#[derive(PartialEq, Debug)]
pub(crate) struct Mutation {
    file: String,
    sentence: String,
    tests: Vec<String>,
    change: Change,
}

/// What is changed.
#[derive(PartialEq, Debug)]
pub(crate) enum Change {
    /// What is behind a marker, or a part of it.
    Marked { name: String, old: String, new: String },
    /// All uses of a constant, each of which is `it`.
    Limit { name: String, value: &'static str },
}

impl Mutation {
    /// One that the tests of its package or of the server are to notice.
    pub(crate) fn new(file: String, sentence: String, change: Change) -> Mutation {
        let mut mutation = Mutation { file, sentence, tests: Vec::new(), change };
        mutation.tests = vec![mutation.package().to_owned(), SERVER.to_owned()];
        mutation.tests.dedup();
        mutation
    }

    /// One of a list: its lines, and the file that has its marker.
    pub(super) fn listed(lines: &[&str], file: &str) -> Result<Mutation, String> {
        let [name, sentence, lines @ ..] = lines else {
            return Err(format!("{lines:?} has no sentence"));
        };
        let (mut tests, mut old, mut new) = (Vec::new(), String::new(), String::new());
        for line in lines {
            match line.split_at_checked(1) {
                Some(("-", line)) => old += line.trim(),
                Some(("+", line)) => new += line.trim(),
                _ => match line.strip_prefix("tests: ") {
                    Some(named) => tests.extend(named.split(' ').map(str::to_owned)),
                    None => return Err(format!("{name}: begins with neither `-` nor `+`: {line}")),
                },
            }
        }
        let change = Change::Marked { name: (*name).to_owned(), old, new };
        let mut mutation = Mutation::new(file.to_owned(), format!("{name}: {sentence}"), change);
        if !tests.is_empty() {
            mutation.tests = tests;
        }
        Ok(mutation)
    }

    /// What it breaks, relative to the root.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Whether it changes a limit.
    pub(crate) fn is_limit(&self) -> bool {
        matches!(self.change, Change::Limit { .. })
    }

    /// What it changes.
    pub(crate) fn change(&self) -> &Change {
        &self.change
    }

    /// The package that it breaks.
    pub(crate) fn package(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }

    /// The names of tests of its own file begin with this.
    pub(crate) fn module(&self) -> Option<String> {
        let (_, path) = self.file.trim_end_matches(".rs").split_once("/src/")?;
        let module = path.trim_end_matches("/mod").replace('/', "::");
        (!["lib", "main"].contains(&module.as_str())).then(|| module + "::")
    }

    /// The packages whose tests may notice, the quickest first; or end-to-end tests.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &str> {
        self.tests.iter().map(String::as_str)
    }

    /// The file with this mutation, if that is behind a marker.
    ///
    /// # Errors
    ///
    /// If what it replaces is not there exactly once, or nothing would change.
    pub(crate) fn apply(&self, source: &str) -> Result<String, String> {
        let Change::Marked { name, old, new } = &self.change else { return Ok(source.to_owned()) };
        let place = part(source, behind(source, &format!("{MARKER}{name}\n"))?, old)?;
        if source[place.clone()] == *new {
            return Err("it changes nothing".into());
        }
        Ok([&source[..place.start], new, &source[place.end..]].concat())
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.trim_start_matches("crates/"), self.sentence)
    }
}

/// Reads all lists of a directory, and looks for their markers in these files.
///
/// # Errors
///
/// If a list cannot be read, or a marker is missing, there twice, or in no list.
pub(crate) fn read(directory: &Path, files: &[File]) -> Result<Vec<Mutation>, String> {
    let said = |error| format!("{}: {error}", directory.display());
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/")) {
        for name in file.text.lines().filter_map(|line| line.trim().strip_prefix(MARKER)) {
            places.entry(name).or_default().push(&*file.path);
        }
    }
    let (mut mutations, mut broken) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory).map_err(said)? {
        let text = fs::read_to_string(entry.map_err(said)?.path()).map_err(said)?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for lines in lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()) {
            match places.remove(lines[0]).as_deref() {
                Some([file]) => mutations.push(Mutation::listed(lines, file)?),
                files => broken.push(format!("the marker of {} is in {files:?}", lines[0])),
            }
        }
    }
    broken.extend(places.iter().map(|(name, files)| format!("{name} of {files:?} is in no list")));
    if broken.is_empty() { Ok(mutations) } else { Err(broken.join("\n  ")) }
}

/// The statement, match arm, field or item behind the first place that has this text.
fn behind(source: &str, text: &str) -> Result<Range<usize>, String> {
    let from = source.find(text).ok_or("its marker is not there")? + text.len();
    let Blanked { code, comments } = blank(source);
    let is_code = |at: &usize| {
        !source.as_bytes()[*at].is_ascii_whitespace() && comments.as_bytes()[*at] == b' '
    };
    // What comes next, be it a string.
    let next = |from: usize| &source[(from..source.len()).find(is_code).unwrap_or(source.len())..];
    let begin = source.len() - next(from).len();
    // A type may have a comma.
    let is_long = ["let ", "pub ", "fn "].iter().any(|word| source[begin..].starts_with(word));
    let goes_on = [".", "?", ";", ",", ")", "=", "else"];
    let mut depth = 0;
    for (at, sign) in code.char_indices().skip_while(|(at, _)| *at < begin) {
        match sign {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return Ok(begin..at),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        let is_end = match sign {
            ';' => true,
            ',' => !is_long,
            '}' => !goes_on.iter().any(|sign| next(at + 1).starts_with(sign)),
            _ => false,
        };
        if is_end && depth == 0 {
            return Ok(begin..at + 1);
        }
    }
    Err("nothing is behind its marker".to_owned())
}

/// Where a part of a place is, which must be in it once; all of it, if the part is empty.
fn part(source: &str, place: Range<usize>, old: &str) -> Result<Range<usize>, String> {
    let mut found = source[place.clone()].match_indices(old).map(|(at, _)| place.start + at);
    match (found.next(), found.next()) {
        _ if old.is_empty() => Ok(place),
        (Some(at), None) => Ok(at..at + old.len()),
        _ => Err(format!("{old:?} is not once in {:?}", &source[place])),
    }
}

const MARKER: &str = "// mutation: ";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(change: &str) -> Mutation {
        let lines: Vec<_> = ["n", "It breaks."].into_iter().chain(change.lines()).collect();
        Mutation::listed(&lines, "crates/a/src/b.rs").unwrap()
    }

    #[test]
    fn each_marker_is_in_one_place() {
        let mutation = one("tests: c d\n- x\n+ y");
        assert_eq!(mutation.to_string(), "a/src/b.rs: n: It breaks.");
        assert_eq!(mutation.packages().collect::<Vec<_>>(), ["c", "d"]);
        assert!(Mutation::listed(&["n", "It breaks.", "x"], "").unwrap_err().contains("neither"));
        let directory = std::env::temp_dir().join(format!("stentor-list-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("a.txt"), "# A list.\n\nn\nIt breaks.\n").unwrap();
        let read = |text: &str| {
            let file = |path: &str| File { path: path.to_owned(), text: text.to_owned() };
            let files = [file("crates/a/src/b.rs"), file("crates/a/src/c.rs")];
            [1, 2].map(|count| read(&directory, &files[..count]).map(|all| all.len()))
        };
        let [once, twice] = read("  // mutation: n\nx;");
        assert_eq!(once, Ok(1));
        assert!(twice.unwrap_err().contains("n is in Some"));
        assert!(read("")[0].as_ref().unwrap_err().contains("n is in None"));
        let unlisted = read("// mutation: n\n// mutation: o\n");
        assert!(unlisted[0].as_ref().unwrap_err().contains("o of"));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_is_behind_a_marker_is_removed() {
        for (behind, rest) in [
            ("a(1, 2);\n b", "\n b"),
            ("if a { b } else { c }\n *d = e", "\n *d = e"),
            ("\"ö\" => a(\",\"),\n b", "\n b"),
            ("A { .. } => { b }\n \"c\" => d", "\n \"c\" => d"),
            ("a })", "})"),
            ("let a: B<C, D> = e { f }.g;h", "h"),
            ("fn a(b: B) { c; }\n d", "\n d"),
        ] {
            let marked = "ü // mutation: n\n// Why.\n";
            assert_eq!(one("").apply(&format!("{marked}{behind}")), Ok(format!("{marked}{rest}")));
        }
    }

    #[test]
    fn what_is_replaced_is_behind_the_marker_once() {
        let applied = |change: &str, source: &str| {
            let text = one(change).apply(&format!("// mutation: n\n{source}"));
            text.map(|text| text[15..].to_owned())
        };
        let change = "- call(a, b)\n+ call(b, ü)\n";
        let mutated = "ö = call(b, ü); call(a, b)";
        assert_eq!(applied(change, "ö = call(a, b); call(a, b)").as_deref(), Ok(mutated));
        for source in ["call(a);", "f(call(a, b), call(a, b));"] {
            assert!(applied(change, source).unwrap_err().contains("is not once in"));
        }
        assert!(applied("- x\n+  x\n", "x;").unwrap_err().contains("nothing"));
        assert_eq!(applied("+ y;", "x; z").as_deref(), Ok("y; z"));
        assert!(one("").apply("x").unwrap_err().contains("is not there"));
    }
}
