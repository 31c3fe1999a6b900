//! Tidiness: what a reviewer would otherwise have to say again and again.
//!
//! Each rule is a test that names every place where it is broken. The rules look at text, not at
//! syntax trees: what `source` tells apart is all the Rust they know.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::source::{blank, expect_none, files, read, root, rust, tests_of, words};

#[test]
fn lines_have_100_columns() {
    let mut broken = Vec::new();
    for file in files(&["rs", "py", "c", "html", "sh", "lua"]) {
        for (i, line) in file.text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX {
                broken.push(format!("{}:{}", file.path, i + 1));
            }
        }
    }
    expect_none("longer than 100 columns", broken);
}

#[test]
fn text_has_no_tabs_and_no_white_space_at_line_ends() {
    let mut broken = Vec::new();
    for file in files(&["rs", "toml", "py", "c", "html", "sh", "lua", "md"]) {
        for (i, line) in file.text.lines().enumerate() {
            if line.contains('\t') || line.trim_end() != line {
                broken.push(format!("{}:{}", file.path, i + 1));
            }
        }
        if !file.text.ends_with('\n') || file.text.ends_with("\n\n") {
            broken.push(format!("{}: ends without a line feed, or with several", file.path));
        }
    }
    expect_none("untidy white space", broken);
}

#[test]
fn files_are_short() {
    let long = rust().into_iter().filter_map(|file| {
        let lines = file.code().0.lines().count();
        (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines before its tests", file.path))
    });
    expect_none("longer than 800 lines", long.collect());
}

#[test]
fn functions_are_short() {
    let mut broken = Vec::new();
    for file in rust() {
        for (name, line, lines) in functions(&blank(&file.text).code) {
            if lines > FUNCTION_LINES_MAX {
                broken.push(format!("{}:{line}: {name} has {lines} lines", file.path));
            }
        }
    }
    expect_none("longer than 70 lines", broken);
}

#[test]
fn every_file_says_what_it_is() {
    let silent = rust().into_iter().filter(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        first.strip_prefix("//! ").is_none_or(|essay| essay.len() < 10)
    });
    expect_none("without an essay at the top", silent.map(|file| file.path).collect());
}

#[test]
fn unsafe_code_and_system_calls_are_in_one_crate() {
    let mut broken = Vec::new();
    for file in rust() {
        if file.path.starts_with(IO) {
            continue;
        }
        for (i, line) in blank(&file.text).code.lines().enumerate() {
            for word in ["unsafe", "libc", "rustix", "nix"] {
                if words(line).any(|found| found == word) {
                    broken.push(format!("{}:{}: {word}", file.path, i + 1));
                }
            }
        }
    }
    for manifest in files(&["toml"]) {
        let depends = manifest
            .text
            .lines()
            .any(|line| ["libc", "rustix"].iter().any(|name| line.starts_with(name)));
        if depends && !manifest.path.starts_with(IO) && manifest.path != "Cargo.toml" {
            broken.push(format!("{}: depends on libc or rustix", manifest.path));
        }
    }
    expect_none("outside of stentor-io", broken);
}

#[test]
fn unsafe_code_is_forbidden_everywhere_else() {
    let open = rust().into_iter().filter(|file| {
        let is_root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
        is_root && !file.path.starts_with(IO) && !file.text.contains("#![forbid(unsafe_code)]")
    });
    expect_none("without #![forbid(unsafe_code)]", open.map(|file| file.path).collect());
}

/// Tests, examples and automation may look at the clock; the server is told the time.
#[test]
fn the_clock_is_read_in_one_crate() {
    let mut broken = Vec::new();
    for file in rust() {
        let may =
            ["/tests/", "/examples/", "/tests.rs"].iter().any(|part| file.path.contains(part));
        if may || file.path.starts_with(IO) || file.path.starts_with("xtask/") {
            continue;
        }
        for (i, line) in file.code().0.lines().enumerate() {
            if line.contains("Instant::now") || line.contains("SystemTime::now") {
                broken.push(format!("{}:{}", file.path, i + 1));
            }
        }
    }
    expect_none("reading the clock outside of stentor-io", broken);
}

/// The server's libraries open files and sockets, and sleep, through `stentor-io`. A crate that may
/// do so itself and does not is struck off the list.
#[test]
fn files_sockets_and_sleep_are_in_one_crate() {
    let apart = ["/tests/", "/examples/", "/tests.rs", "/simulation/"];
    let (mut broken, mut allowed) = (Vec::new(), BTreeSet::new());
    for file in rust() {
        let is_apart = apart.iter().any(|part| file.path.contains(part));
        if is_apart || !file.path.starts_with("crates/") || file.path.starts_with(IO) {
            continue;
        }
        let own = MAY_OPEN_AND_SLEEP.iter().find(|owner| file.path.starts_with(**owner));
        for (i, line) in blank(file.code().0).code.lines().enumerate() {
            let has = |word: &str| words(line).any(|found| found == word);
            let opens = SOCKETS.iter().any(|word| has(word)) || has("fs");
            let does = opens || has("thread") && has("sleep");
            match own {
                Some(own) if does => drop(allowed.insert(own)),
                None if does => broken.push(format!("{}:{}", file.path, i + 1)),
                _ => {}
            }
        }
    }
    let unused = MAY_OPEN_AND_SLEEP.iter().filter(|owner| !allowed.contains(owner));
    broken.extend(unused.map(|owner| format!("{owner} does neither any more")));
    expect_none("opening files or sockets, or sleeping, outside of stentor-io", broken);
}

/// A line number in a comment is wrong after the next change.
#[test]
fn comments_do_not_refer_to_lines() {
    let mut broken = Vec::new();
    for file in rust() {
        for (i, line) in blank(&file.text).comments.lines().enumerate() {
            let refers = line.match_indices(".rs:").any(|(at, found)| {
                line[at + found.len()..].starts_with(|c: char| c.is_ascii_digit())
            });
            if refers {
                broken.push(format!("{}:{}", file.path, i + 1));
            }
        }
    }
    expect_none("referring to a line by its number", broken);
}

#[test]
fn every_crate_is_on_the_map() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let names = crates.map(|entry| entry.file_name().into_string().unwrap());
    let parts = |c: char| !(c.is_alphanumeric() || c == '-');
    let absent = names.filter(|name| !map.split(parts).any(|word| word == name));
    expect_none("not named in ARCHITECTURE.md", absent.collect());
}

#[test]
fn nothing_is_async() {
    let mut broken = Vec::new();
    for file in rust() {
        for (i, line) in blank(&file.text).code.lines().enumerate() {
            if words(line).any(|word| matches!(word, "async" | "await" | "tokio")) {
                broken.push(format!("{}:{}", file.path, i + 1));
            }
        }
    }
    expect_none("asynchronous", broken);
}

/// It runs on whatever is given to it: on the kernel, on a layer around it, on the simulator.
#[test]
fn the_worker_does_not_know_its_backend() {
    let mut broken = Vec::new();
    for file in rust() {
        let crates = ["crates/stentor-server/src/", "crates/stentor-tls-layer/src/"];
        let path = crates.iter().find_map(|name| file.path.strip_prefix(name));
        let Some(path) = path else { continue };
        let may = ["simulation/", "fuzz"].iter().any(|part| path.starts_with(part));
        for (i, line) in file.code().0.lines().enumerate() {
            if !may && words(line).any(|word| matches!(word, "Epoll" | "Sim" | "Net")) {
                broken.push(format!("{}:{}", file.path, i + 1));
            }
        }
    }
    expect_none("naming a backend", broken);
}

/// An invariant that nothing enforces is a wish.
/// An endpoint gives fields as data. A second protocol then needs a second writer and nothing else.
#[test]
fn one_file_of_the_server_writes_http_1() {
    let (server, writer) = ("crates/stentor-server/src/", "crates/stentor-server/src/head.rs");
    let is_checked = |path: &str| {
        let is_test = |part: &str| matches!(part, "simulation" | "fuzz" | "tests.rs" | "fuzz.rs");
        path.starts_with(server) && path != writer && !path.split('/').any(is_test)
    };
    let broken = rust().into_iter().filter(|file| is_checked(&file.path)).flat_map(|file| {
        let code = file.code().0.to_owned();
        let lines = code.lines().enumerate().filter(|(_, line)| line.contains("\\r\\n"));
        lines.map(|(i, _)| format!("{}:{}", file.path, i + 1)).collect::<Vec<_>>()
    });
    expect_none("line ends of HTTP/1 outside of head.rs", broken.collect());
    assert!(read(writer).contains("Content-Length"), "{writer}");
}

#[test]
fn every_invariant_names_checks_that_exist() {
    let map = read("ARCHITECTURE.md");
    let (_, table) = map.split_once("| invariant | check |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let code: String = rust().iter().map(|file| blank(&file.text).code).collect();
    let tests = tests_of(&code);
    // A path is there; a function is in the file that is named behind it, or is a test.
    let file = |name: &str| {
        let places = ["", "crates/", "crates/stentor-server/src/"];
        places.iter().map(|before| root().join(format!("{before}{name}"))).find(|it| it.exists())
    };
    let exists = |name: &str, behind: &str| match behind.strip_prefix(" in `") {
        _ if name.contains('/') => file(name).is_some(),
        Some(place) => file(place.split('`').next().unwrap_or_default()).is_some_and(|file| {
            let text = fs::read_to_string(file).unwrap();
            ["fn", "def"].iter().any(|word| text.contains(&format!("{word} {name}(")))
        }),
        None => tests.contains(&name),
    };
    let (mut rows, mut broken) = (0, Vec::new());
    for row in table.lines().skip(2) {
        let (_, checks) = row.trim_end_matches('|').rsplit_once("| ").unwrap();
        let quotes: Vec<usize> = checks.match_indices('`').map(|(at, _)| at).collect();
        let names =
            quotes.chunks_exact(2).map(|at| checks[at[0] + 1..].split_at(at[1] - at[0] - 1));
        let names: Vec<_> = names.map(|(name, behind)| (name, &behind[1..])).collect();
        rows += 1;
        if names.is_empty() {
            broken.push(format!("no check: {row}"));
        }
        let absent = names.iter().filter(|(name, behind)| !exists(name, behind));
        broken.extend(absent.map(|(name, _)| format!("{name} is no check: {row}")));
    }
    assert!(rows > 30, "only {rows} invariants");
    assert!(map.lines().count() <= 250, "the map is too long to be one");
    expect_none("invariants without a check", broken);
}

/// A source file that Git ignores is there for whoever wrote it, and missing from every clone.
#[test]
fn no_source_file_is_ignored() {
    let list = ["ls-files", "--others", "--ignored", "--exclude-standard"];
    let Ok(output) = Command::new("git").args(list).current_dir(root()).output() else { return };
    let ignored = String::from_utf8_lossy(&output.stdout);
    let ours = rust().into_iter().filter(|file| ignored.lines().any(|path| path == file.path));
    expect_none("ignored by Git", ours.map(|file| file.path).collect());
}

#[test]
fn every_fuzz_target_has_its_function() {
    let bodies = rust().into_iter().filter(|file| file.path.contains("/src/fuzz"));
    let functions = bodies.map(|file| file.text).collect::<String>();
    let manifest = read("fuzz/Cargo.toml");
    let mut broken = Vec::new();
    let mut targets = Vec::new();
    for file in rust().into_iter().filter(|file| file.path.starts_with("fuzz/fuzz_targets/")) {
        let name = Path::new(&file.path).file_stem().unwrap().to_str().unwrap().to_owned();
        let function = format!("fuzz_{name}");
        if !functions.contains(&format!("pub fn {function}(")) || !file.text.contains(&function) {
            broken.push(format!("{}: no function {function}", file.path));
        }
        if !manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")) {
            broken.push(format!("{}: not in fuzz/Cargo.toml", file.path));
        }
        targets.push(name);
    }
    for (_, rest) in functions.match_indices("pub fn fuzz_").map(|(at, _)| functions.split_at(at)) {
        let name = rest["pub fn fuzz_".len()..].split('(').next().unwrap();
        if !targets.iter().any(|target| target == name) {
            broken.push(format!("fuzz_{name}: no target in fuzz/fuzz_targets"));
        }
    }
    assert!(!targets.is_empty());
    expect_none("fuzzing", broken);
}

/// Every function with a body: its name, its line, and how many lines it has.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let after = &code[at + 3..];
        let name = words(after).next().unwrap_or_default();
        // A signature ends in a body or, in a trait or a type, in something else.
        let Some(open) = after.find(['{', ';']) else { continue };
        if name.is_empty() || after[open..].starts_with(';') {
            continue;
        }
        let mut depth = 0;
        let mut end = after.len();
        for (i, c) in after[open..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = open + i;
                break;
            }
        }
        let line = code[..at].matches('\n').count() + 1;
        found.push((name, line, after[..end].matches('\n').count() + 1));
    }
    found
}

#[test]
fn code_comments_and_strings_are_told_apart() {
    let text = "a /* b /* c */ d */ e // f\n\"g \\\" // h\" 'i' '\\'' b'\"' r#\"j\" k\"# &'l m";
    let blanked = blank(text);
    assert_eq!(blanked.code.split_ascii_whitespace().collect::<String>(), "aeb&'lm");
    assert!(blanked.comments.contains("/* b /* c */ d */") && blanked.comments.contains("// f"));
    assert!(!blanked.comments.contains('h'));
    let found = functions("fn a() {\n if x {\n }\n}\npub fn b(x: &[u8]) -> u8;\nfn c() {}\n");
    assert_eq!(found, [("a", 1, 4), ("c", 6, 1)]);
}

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// The one crate with unsafe code, system calls and clocks.
const IO: &str = "crates/stentor-io/";

/// These open a socket or look up a name. The last ones are of ureq, which would do both by itself.
const SOCKETS: &[&str] = &[
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "ToSocketAddrs",
    "to_socket_addrs",
    "DefaultConnector",
    "TcpConnector",
    "new_agent",
    "new_with_defaults",
    "new_with_config",
];

/// The command, the load generator, the adviser, and what tests share: no server runs in them on a
/// simulated host.
const MAY_OPEN_AND_SLEEP: &[&str] =
    &["crates/stentor/", "crates/stentor-bench/", "crates/stentor-tune/", "crates/stentor-test/"];
