//! The list of mutations: how it is written, and how one of them is applied.
//!
//! It is read and edited by hand. A `file:` line names the file for all mutations below it. A
//! mutation is a sentence that says what is broken, and a change in the form of a diff: lines after
//! `-` are replaced by those after `+`, lines after a space stay. Empty lines separate, lines with
//! `#` in the first column are comments.
//!
//! ```text
//! file: crates/stentor-hub/src/filter.rs
//!
//! A filter that is replaced is counted twice.
//! - self.len += usize::from(before.is_none());
//! + self.len += 1;
//! ```
//!
//! The tests of the file's own package must notice, or else those of the server, which has all
//! below it in its simulator. A line `tests: PACKAGE…` behind the sentence names others, or
//! end-to-end tests: `e2e::upgrade` are all whose names contain `upgrade`. Those of the package
//! `stentor` are the command's own unit tests.
//!
//! What is to be replaced must be in the file exactly once. White space does not count, and neither
//! does a comma before a closing bracket: so a list outlives rustfmt.

use std::fmt;
use std::fs;
use std::path::Path;

/// A way to break one file.
#[derive(PartialEq, Debug)]
pub(crate) struct Mutation {
    sentence: String,
    file: String,
    tests: Vec<String>,
    old: String,
    new: String,
}

impl Mutation {
    /// What it breaks, relative to the root.
    pub(crate) fn file(&self) -> &str {
        &self.file
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

    /// The file with this mutation.
    ///
    /// # Errors
    ///
    /// If what is to be replaced is not there exactly once, or nothing would change.
    pub(crate) fn apply(&self, source: &str) -> Result<String, String> {
        let ((squeezed, places), (old, _)) = (squeeze(source), squeeze(&self.old));
        if old == squeeze(&self.new).0 {
            return Err("it changes nothing".into());
        }
        let mut found = squeezed.match_indices(&old).map(|(at, _)| at);
        let at = match (found.next(), found.count()) {
            (Some(at), 0) => at,
            (None, _) => return Err("what it replaces is not there".into()),
            (_, more) => return Err(format!("what it replaces is there {} times", more + 1)),
        };
        let last = places[at + old.len() - 1];
        let behind = last + source[last..].chars().next().map_or(0, char::len_utf8);
        Ok([&source[..places[at]], self.new.trim(), &source[behind..]].concat())
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.trim_start_matches("crates/"), self.sentence)
    }
}

/// Reads all lists of a directory.
///
/// # Errors
///
/// One line with the name of the list that cannot be read.
pub(crate) fn read(directory: &Path) -> Result<Vec<Mutation>, String> {
    let said = |error| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(said)?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(said)?;
    paths.sort();
    let mut mutations = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(said)?;
        let parsed = parse(&text).map_err(|reason| format!("{}: {reason}", path.display()))?;
        mutations.extend(parsed);
    }
    Ok(mutations)
}

pub(super) fn parse(text: &str) -> Result<Vec<Mutation>, String> {
    let mut mutations = Vec::new();
    let mut file = "";
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for block in lines.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        match block {
            [line] if line.starts_with("file:") => file = line["file:".len()..].trim(),
            [sentence, change @ ..] => mutations.push(mutation(file, sentence, change)?),
            [] => {}
        }
    }
    Ok(mutations)
}

fn mutation(file: &str, sentence: &str, change: &[&str]) -> Result<Mutation, String> {
    let said = |reason: &str| Err(format!("{sentence:?}: {reason}"));
    let mut mutation = Mutation {
        sentence: sentence.to_owned(),
        file: file.to_owned(),
        tests: Vec::new(),
        old: String::new(),
        new: String::new(),
    };
    if file.is_empty() {
        return said("no file: line stands above it");
    }
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for line in change {
        if let Some(packages) = line.strip_prefix("tests:") {
            mutation.tests.extend(packages.split_whitespace().map(str::to_owned));
        } else if let Some(line) = line.strip_prefix('-') {
            old.push(line);
        } else if let Some(line) = line.strip_prefix('+') {
            new.push(line);
        } else if line.starts_with(' ') {
            old.push(line);
            new.push(line);
        } else {
            return said(&format!("a line begins with none of `-`, `+` and a space: {line}"));
        }
    }
    mutation.old = old.join("\n");
    mutation.new = new.join("\n");
    if mutation.old.trim().is_empty() {
        return said("it replaces nothing");
    }
    if mutation.tests.is_empty() {
        mutation.tests = vec![mutation.package().to_owned(), SERVER.to_owned()];
        mutation.tests.dedup();
    }
    Ok(mutation)
}

/// The text without what formatting may change, and for each byte of that its place in the text.
fn squeeze(text: &str) -> (String, Vec<usize>) {
    let (mut squeezed, mut places) = (String::new(), Vec::new());
    for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        if [')', ']', '}'].contains(&c) && squeezed.ends_with(',') {
            squeezed.pop();
            places.pop();
        }
        squeezed.push(c);
        places.resize(squeezed.len(), at);
    }
    (squeezed, places)
}

const SERVER: &str = "stentor-server";

#[cfg(test)]
mod tests {
    use super::*;

    fn one(change: &str) -> Mutation {
        parse(&format!("file: crates/a/src/b.rs\n\nIt breaks.\n{change}")).unwrap().remove(0)
    }

    #[test]
    fn lists_are_parsed() {
        let text = "# Of a list.\n\nfile: crates/a/src/b.rs\n\nOne.\n- x\n+ y\n\n\n# Of two.\n\
            Two.\ntests: c d\n  if x {\n-     -y\n  }\nfile: no\n";
        assert!(parse(text).unwrap_err().contains("a line begins with none"));
        let text = text.replace("file: no", "\nfile: crates/stentor-server/src/c.rs\n\nThree.\n-z");
        let mutations = parse(&text).unwrap();
        let listed: Vec<_> = mutations.iter().map(ToString::to_string).collect();
        assert_eq!(
            listed,
            ["a/src/b.rs: One.", "a/src/b.rs: Two.", "stentor-server/src/c.rs: Three."]
        );
        let packages = |n: usize| mutations[n].packages().collect::<Vec<_>>();
        assert_eq!(packages(0), ["a", SERVER]);
        assert_eq!(packages(1), ["c", "d"]);
        assert_eq!(packages(2), [SERVER]);
        assert_eq!(
            (&*mutations[1].old, &*mutations[1].new),
            ("  if x {\n     -y\n  }", "  if x {\n  }")
        );
    }

    #[test]
    fn bad_lists_are_refused() {
        for (text, reason) in [
            ("It breaks.\n- x\n", "no file: line"),
            ("file: a\n\nIt breaks.\n", "replaces nothing"),
            ("file: a\n\nIt breaks.\n+ y\n", "replaces nothing"),
            ("file: a\n\nIt breaks.\n- x\ny\n", "a line begins with none"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason) && error.contains("It breaks."), "{error}");
        }
    }

    #[test]
    fn what_is_replaced_is_there_once_however_it_is_formatted() {
        let mutation = one("- call(a, b)\n+ call(b, ü)\n");
        for (source, mutated) in
            [("ö = call(a, b);", "ö = call(b, ü);"), ("call(\n    a,\n    b,\n)\n", "call(b, ü)\n")]
        {
            assert_eq!(mutation.apply(source).as_deref(), Ok(mutated));
        }
        assert!(mutation.apply("call(a)").unwrap_err().contains("not there"));
        assert!(mutation.apply("call(a,b) call(a, b)").unwrap_err().contains("2 times"));
        assert!(one("- x\n+  x\n").apply("x").unwrap_err().contains("nothing"));
        assert_eq!(one("- y;\n").apply("x; y; z;").as_deref(), Ok("x;  z;"));
        assert_eq!(one("- x\n+ y\n").apply("(x,)").as_deref(), Ok("(y,)"));
    }
}
