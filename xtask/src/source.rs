//! The project's files as text, in which a small lexer tells comments, strings and characters apart
//! from code. The tests of tidiness and the count of lines read them so.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of the project.
pub struct File {
    /// Relative to the root.
    pub path: String,
    /// What it contains.
    pub text: String,
}

impl File {
    /// What stands before the tests, and the tests.
    pub fn code(&self) -> (&str, &str) {
        self.text.split_at(self.text.find("\n#[cfg(test)]\nmod test").unwrap_or(self.text.len()))
    }
}

/// All of the Rust.
pub fn rust() -> Vec<File> {
    files(&["rs"])
}

/// All files with one of these extensions that are the project's own.
pub fn files(extensions: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("the project's directories can be read") {
            let path = entry.expect("the project's directories can be read").path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let place = path.strip_prefix(root()).ok().and_then(Path::to_str).unwrap_or_default();
            if path.is_dir() {
                if !name.starts_with('.') && !FOREIGN_DIRECTORIES.contains(&place) {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)) {
                found.push(File { path: place.to_owned(), text: read(place) });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no file ends with {extensions:?}");
    found
}

/// A file of which the path is known.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The root of the project.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}

/// Fails if there are any.
#[track_caller]
pub fn expect_none(what: &str, places: Vec<String>) {
    assert!(places.is_empty(), "{what}:\n  {}", places.join("\n  "));
}

/// The words of code.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

/// The names of all functions with `#[test]` before them.
#[must_use]
pub fn tests_of(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (_, after) in code.match_indices("#[test]").map(|(at, _)| code.split_at(at)) {
        let name = after.split_once("fn ").and_then(|(_, rest)| words(rest).next());
        found.extend(name);
    }
    found
}

/// A text twice: once with only its code left, once with only its comments, the rest being spaces.
/// Every byte stays where it is.
pub struct Blanked {
    /// Its code alone.
    pub code: String,
    /// Its comments alone.
    pub comments: String,
}

/// Tells the code of a text from its comments.
pub fn blank(text: &str) -> Blanked {
    let mut blanked = Blanked { code: String::new(), comments: String::new() };
    let mut part = Part::Code;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = part;
        let length = advance(&mut part, rest, first);
        let (piece, after) = rest.split_at(length);
        for c in piece.chars() {
            let is_comment = |part| matches!(part, Part::LineComment | Part::BlockComment(_));
            let code = before == Part::Code && part == Part::Code && length == c.len_utf8();
            let comment = is_comment(before) || is_comment(part);
            for (text, is_its) in [(&mut blanked.code, code), (&mut blanked.comments, comment)] {
                match is_its || c == '\n' {
                    true => text.push(c),
                    false => text.extend(std::iter::repeat_n(' ', c.len_utf8())),
                }
            }
        }
        rest = after;
    }
    blanked
}

/// The string literals of some code, as they are written, without quotes.
#[must_use]
pub fn strings(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut part = Part::Code;
    let mut begin = 0;
    let mut at = 0;
    while let Some(first) = code[at..].chars().next() {
        let before = part;
        at += advance(&mut part, &code[at..], first);
        match (before, part) {
            (Part::Code, Part::Text | Part::RawText(_)) => begin = at,
            (Part::Text, Part::Code) => found.push(&code[begin..at - 1]),
            (Part::RawText(hashes), Part::Code) => found.push(&code[begin..at - 1 - hashes]),
            _ => {}
        }
    }
    found
}

/// What a piece of Rust is part of.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// Code.
    Code,
    /// A comment that ends with its line.
    LineComment,
    /// A comment in so many others.
    BlockComment(u32),
    /// A string.
    Text,
    /// With so many `#` around it.
    RawText(usize),
}

/// Takes one piece of `rest`, which begins with `first`: a character, or several that belong
/// together. Returns its length in bytes.
fn advance(part: &mut Part, rest: &str, first: char) -> usize {
    match *part {
        Part::Code => return begin(part, rest, first),
        Part::LineComment if first == '\n' => *part = Part::Code,
        Part::BlockComment(depth) if rest.starts_with("*/") => {
            *part = if depth == 1 { Part::Code } else { Part::BlockComment(depth - 1) };
            return 2;
        }
        Part::BlockComment(depth) if rest.starts_with("/*") => {
            *part = Part::BlockComment(depth + 1);
            return 2;
        }
        Part::Text if first == '\\' => {
            return 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        }
        Part::Text if first == '"' => *part = Part::Code,
        Part::RawText(hashes) if rest.starts_with(&format!("\"{}", "#".repeat(hashes))) => {
            *part = Part::Code;
            return 1 + hashes;
        }
        _ => {}
    }
    first.len_utf8()
}

/// The same in code, where comments, strings and characters may begin.
fn begin(part: &mut Part, rest: &str, first: char) -> usize {
    if rest.starts_with("//") {
        *part = Part::LineComment;
    } else if rest.starts_with("/*") {
        *part = Part::BlockComment(1);
        return 2;
    } else if first == '"' {
        *part = Part::Text;
    } else if first == 'r' && rest[1..].trim_start_matches('#').starts_with('"') {
        let hashes = rest[1..].find('"').unwrap_or(0);
        *part = Part::RawText(hashes);
        return 2 + hashes;
    } else if first == '\'' {
        return character(rest);
    }
    first.len_utf8()
}

/// The length of a character literal; 1 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest[1..].char_indices();
    match (inside.next(), inside.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = 1 + at + escaped.len_utf8();
            rest[from..].find('\'').map_or(1, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => 1 + at + 1,
        _ => 1,
    }
}

/// Made by tools, not by hands.
const FOREIGN_DIRECTORIES: &[&str] =
    &["target", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/coverage", "bench/out"];
