//! How much code there is: `cargo xtask lines`.
//!
//! A line counts if something other than white space and comments is in it. Tests and examples are
//! counted apart: files below `tests/` or `examples/` or named `tests.rs`, and what stands behind
//! `#[cfg(test)]` or `#[cfg(any(test, …))]`, be it a statement, an item, or a module in a file of
//! its own with all that is below it. In Python the strings that document a module or a function
//! are comments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use xtask::source::{File, blank, files, read, root, rust};

/// Prints the count of each crate, those of their tests, and those of Python and C in `bench/` and
/// `hostile/`, whose tests are counted apart, too.
pub(crate) fn print() -> Result<(), String> {
    let (mut crates, mut tests, mut bench) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let files_of_rust = rust();
    let tested: BTreeSet<String> = files_of_rust.iter().flat_map(modules_of_tests).collect();
    for File { path, text } in &files_of_rust {
        let name = path.strip_prefix("crates/").and_then(|path| path.split('/').next());
        let Some(name) = name else { continue };
        let is_test = name == "stentor-test" || is_test(path, &tested);
        let of_product = if is_test { 0 } else { count(&without_tests(text)) };
        *crates.entry(name).or_default() += of_product;
        *tests.entry(name).or_default() += count(text) - of_product;
    }
    for path in files_of_bench()? {
        let text = read(&path);
        let is_c = path.ends_with(".c") || path.ends_with(".h");
        let is_python = path.ends_with(".py") || text.starts_with("#!/usr/bin/env python3");
        if is_c {
            *bench.entry("C").or_default() += count(&text);
        } else if is_python {
            let kind = if path.contains("/test_") { "tests in Python" } else { "Python" };
            *bench.entry(kind).or_default() += count_python(&text);
        }
    }
    crates.remove("stentor-test");
    table("crates/", &crates);
    table("their tests", &tests);
    table("bench/, hostile/", &bench);
    Ok(())
}

fn table(directory: &str, rows: &BTreeMap<&str, usize>) {
    for (name, lines) in rows {
        println!("{name:<20} {lines:>6}");
    }
    println!("{directory:<20} {:>6}\n", rows.values().sum::<usize>());
}

/// The programs of `bench/` and `hostile/`, most of which have no extension.
fn files_of_bench() -> Result<Vec<String>, String> {
    let mut paths: Vec<String> =
        files(&["c", "h", "py"]).into_iter().map(|file| file.path).collect();
    paths.retain(|path| path.starts_with("bench/") || path.starts_with("hostile/"));
    for directory in ["bench", "hostile"] {
        let wrong = |error| format!("{directory}/: {error}");
        for entry in root().join(directory).read_dir().map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            if path.is_file() && path.extension().is_none() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                paths.push(format!("{directory}/{name}"));
            }
        }
    }
    Ok(paths)
}

fn is_test(path: &str, tested: &BTreeSet<String>) -> bool {
    let is_named = ["/tests/", "/examples/", "/tests.rs"].iter().any(|part| path.contains(part));
    let module = path.trim_end_matches(".rs");
    is_named || Path::new(module).ancestors().any(|at| tested.contains(&*at.to_string_lossy()))
}

/// The modules with a file of their own that only tests have, as the path of that file without its
/// extension.
fn modules_of_tests(file: &File) -> Vec<String> {
    let code = blank(&file.text).code;
    let own = file.path.trim_end_matches(".rs");
    let is_root = ["/mod", "/lib", "/main"].iter().any(|name| own.ends_with(name));
    let directory = if is_root { own.rsplit_once('/').map_or("", |(dir, _)| dir) } else { own };
    let modules = items_of_tests(&code).into_iter().filter_map(|(from, to)| {
        let name = code[from..to].trim().strip_suffix(';')?.rsplit_once("mod ")?.1;
        Some(format!("{directory}/{name}"))
    });
    modules.collect()
}

/// A source text in which the items of tests are white space.
fn without_tests(text: &str) -> String {
    let mut left = String::new();
    let mut last = 0;
    for (from, to) in items_of_tests(&blank(text).code) {
        left.push_str(&text[last..from]);
        last = to;
    }
    left + &text[last..]
}

/// Where the items stand that are compiled for tests alone, with their attribute.
fn items_of_tests(code: &str) -> Vec<(usize, usize)> {
    let mut items: Vec<(usize, usize)> = Vec::new();
    for (from, _) in code.match_indices("#[cfg(") {
        let condition = &code[from + "#[cfg(".len()..];
        let is_test = ["test)", "any(test,"].iter().any(|begin| condition.starts_with(begin));
        if is_test && items.last().is_none_or(|(_, to)| from >= *to) {
            items.push((from, from + length_of_item(&code[from..])));
        }
    }
    items
}

/// How long an item is that begins with an attribute: to its semicolon, its comma or the end of its
/// body.
fn length_of_item(code: &str) -> usize {
    let mut depth = 0_i32;
    let mut is_attribute = false;
    for (at, c) in code.char_indices() {
        match c {
            '#' if depth == 0 => is_attribute = true,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        let is_end = match c {
            ';' | ',' => depth == 0,
            '}' => depth <= 0,
            ')' | ']' => depth < 0,
            _ => false,
        };
        if is_end && !is_attribute {
            return if depth < 0 { at } else { at + 1 };
        }
        is_attribute &= !(c == ']' && depth == 0);
    }
    code.len()
}

/// How many lines have something other than white space and comments.
fn count(text: &str) -> usize {
    let comments = blank(text).comments;
    let lines = text.lines().zip(comments.lines());
    let has_code = |line: &str, comment: &str| line.trim() != comment.trim();
    lines.filter(|(line, comment)| has_code(line, comment)).count()
}

fn count_python(text: &str) -> usize {
    let mut is_documentation = false;
    let has_code = |line: &&str| {
        let line = line.trim();
        let quotes = line.matches("\"\"\"").count();
        let begins = !is_documentation && line.starts_with("\"\"\"");
        let is_counted = !(is_documentation || begins || line.is_empty() || line.starts_with('#'));
        is_documentation = (is_documentation || begins) && quotes == usize::from(begins);
        is_counted
    };
    text.lines().filter(has_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_blanks_are_not_counted() {
        let text = "//! a\n\nfn a() {\n    #[cfg(test)]\n    b();\n    /* c\n */ d(); // e\n}\n\n\
                    struct F {\n    #[cfg(any(test, feature = \"f\"))]\n    g: u32,\n}\n\n\
                    #[cfg(test)]\n#[allow(x, y)]\nmod tests {\n    fn h() {}\n}\n";
        assert_eq!(count(&without_tests(text)), 5);
    }

    #[test]
    fn modules_of_tests_are_found_with_what_is_below_them() {
        let text = "#[cfg(test)]\npub(crate) mod simulation;\nmod used;\n".to_owned();
        let tested: BTreeSet<String> =
            modules_of_tests(&File { path: "crates/a/src/lib.rs".into(), text })
                .into_iter()
                .collect();
        assert!(is_test("crates/a/src/simulation.rs", &tested));
        assert!(is_test("crates/a/src/simulation/net/mod.rs", &tested));
        assert!(!is_test("crates/a/src/used.rs", &tested));
        assert!(is_test("crates/a/src/used/tests.rs", &tested));
    }

    #[test]
    fn strings_that_document_python_are_comments() {
        let text = "#!/usr/bin/env python3\n\"\"\"a\nb\n\"\"\"\n\ndef c():\n    \"\"\"d\"\"\"\n    \
                    e = \"\"\"f\n";
        assert_eq!(count_python(text), 2);
    }
}
