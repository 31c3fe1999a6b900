//! What the server says when it refuses something, and what the documentation says that it says.
//!
//! `docs/http/errors.md` lists each sentence in a column headed "message", and `docs/access.md`
//! those about tokens. Here these are compared with the string literals of the crates that answer,
//! in both directions: a sentence that is changed in one place only is found. A literal is taken
//! for a message if it reads like a sentence of several words. Those that are none, or that nobody
//! is answered, are named at the bottom.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use xtask::source::{expect_none, read, rust, strings};

#[test]
fn every_refusal_is_documented() {
    let documented = documented();
    let mut missing = Vec::new();
    let mut unused = NOT_ANSWERED.to_vec();
    for Literal { path, text } in literals() {
        if !is_sentence(&text) || documented.iter().any(|message| is_within(&text, message)) {
            continue;
        }
        if NOT_ANSWERED.contains(&text.as_str()) {
            unused.retain(|known| *known != text);
        } else {
            missing.push(format!("{path}: {text}"));
        }
    }
    expect_none("not in docs/http/errors.md or docs/access.md", missing);
    let unused = unused.into_iter().map(str::to_owned).collect();
    expect_none("named here as not answered, and not in the source", unused);
}

#[test]
fn every_documented_refusal_is_in_the_source() {
    let literals = literals();
    let absent = documented()
        .into_iter()
        .filter(|message| !literals.iter().any(|literal| is_whole(&literal.text, message)));
    expect_none("in the documentation and not in the source", absent.collect());
}

/// The code spans in the columns headed "message", and what clients read of tokens.
fn documented() -> Vec<String> {
    let of_errors = column("docs/http/errors.md", "message");
    let spans = of_errors.iter().filter(|cell| cell.starts_with('`')).map(|cell| {
        let quotes = cell.len() - cell.trim_start_matches('`').len();
        let text = cell[quotes..].strip_suffix(&cell[..quotes]);
        text.unwrap_or_else(|| panic!("not one code span: {cell}")).to_owned()
    });
    let of_tokens = column("docs/access.md", "what the client reads");
    let sentences = of_tokens.into_iter().filter(|cell| is_sentence(cell));
    let found: Vec<String> = spans.chain(sentences).collect();
    assert!(found.len() > 100, "only {} messages are documented", found.len());
    found
}

/// The cells of a page that stand in columns with this head.
fn column(path: &str, head: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut column = None;
    for line in read(path).lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if column.is_none() {
            column = cells.iter().position(|cell| *cell == head);
        } else if let Some(cell) = column.map(|column| cells[column]) {
            found.push(cell.to_owned());
        }
    }
    found
}

/// A string literal, and the file in which it stands.
struct Literal {
    path: String,
    text: String,
}

/// Those of the crates that answer, without their tests.
fn literals() -> Vec<Literal> {
    let mut found = Vec::new();
    for file in rust() {
        let answers = CRATES.iter().any(|prefix| file.path.starts_with(prefix));
        if answers && !OTHER_FILES.iter().any(|part| file.path.contains(part)) {
            let texts = strings(file.code().0).into_iter().map(unescaped);
            found.extend(texts.map(|text| Literal { path: file.path.clone(), text }));
        }
    }
    assert!(found.len() > 100, "only {} literals in the source", found.len());
    found
}

/// A literal as it is said: lines joined, quotes bare. Of an answer that is written out with its
/// head, the body.
fn unescaped(literal: &str) -> String {
    let mut text = String::new();
    let mut rest = literal;
    while let Some((plain, escape)) = rest.split_once('\\') {
        text += plain;
        let Some(kind) = escape.chars().next() else { break };
        rest = &escape[kind.len_utf8()..];
        match kind {
            '\n' => rest = rest.trim_start(),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            other => text.push(other),
        }
    }
    text += rest;
    text.rsplit("\r\n\r\n").next().unwrap_or_default().trim_end().to_owned()
}

/// Whether a literal reads like something that is said to a client.
fn is_sentence(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with('.')
        && text.matches(' ').count() >= 2
}

/// Whether a documented message is what this literal makes.
fn is_whole(literal: &str, message: &str) -> bool {
    // What begins with a placeholder could make anything.
    let pieces = pieces(literal);
    !pieces[0].is_empty()
        && message.starts_with(pieces[0])
        && message.ends_with(pieces[pieces.len() - 1])
        && in_order(&pieces, message)
}

/// Whether it is in this message: some are told with a beginning that says what they are about.
fn is_within(literal: &str, message: &str) -> bool {
    in_order(&pieces(literal), message)
}

fn in_order(pieces: &[&str], message: &str) -> bool {
    let mut rest = message;
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    true
}

/// What stands around the placeholders of a format.
fn pieces(literal: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = literal;
    while let Some((piece, (_, after))) =
        rest.split_once('{').and_then(|(piece, after)| Some((piece, after.split_once('}')?)))
    {
        found.push(piece);
        rest = after;
    }
    found.push(rest);
    found
}

#[test]
fn messages_are_compared() {
    let code =
        "f(\"A \\\"b\\\" \\\n  c.\", r#\"d \"e\"\"#, '\"', // \"f\"\n b\"X: y\\r\\n\\r\\ng\\n\")";
    let texts: Vec<String> = strings(code).into_iter().map(unescaped).collect();
    assert_eq!(texts, ["A \"b\" c.", "d \"e\"", "g"]);
    assert!(is_sentence("limit is a number.") && !is_sentence("{a} is it.") && !is_sentence("No."));
    assert!(is_whole("At most {max} of {what}.", "At most … of 3."));
    assert!(!is_whole("At most {max} of it.", "At most … of those."));
    assert!(!is_whole("{a} b.", "a b.") && !is_whole("Too many.", "Far Too many."));
    assert!(is_within("Too many {what}.", "topic \"…\": Too many a.") && !is_within("a.", "b."));
}

/// The crates whose texts may be part of an answer.
const CRATES: &[&str] = &[
    "crates/stentor-access/src/refused.rs",
    "crates/stentor-wire/src/",
    "crates/stentor-cluster/src/",
    "crates/stentor-config/src/",
    "crates/stentor-files/src/",
    "crates/stentor-hub/src/",
    "crates/stentor-order/src/",
    "crates/stentor-replication/src/",
    "crates/stentor-process/src/",
    "crates/stentor-server/src/",
    "crates/stentor-store/src/",
    "crates/stentor-tls-layer/src/",
];

/// Tests; what a client says of a server's answer; and what is told of metrics.
const OTHER_FILES: &[&str] = &[
    "tests",
    "/simulation/",
    "/fuzz",
    "/http1/response.rs",
    "/websocket/client.rs",
    "/endpoint/metrics.rs",
    // What a store or another process is told.
    "/stentor-hub/src/codec.rs",
    "/stentor-hub/src/hub/snapshot.rs",
    "/stentor-wire/src/pack.rs",
    "/worker/handover.rs",
    "/secured/handover.rs",
    // What a broken invariant is called.
    "/connection/check.rs",
    "/reader/check.rs",
];

/// Sentences that no client is answered.
const NOT_ANSWERED: &[&str] = &[
    // Of `stentor sub --since`; a server passes over a cursor that is none.
    "An id is eight hexadecimal digits, a hyphen and a number, like 5f3a09c1-42.",
    // A head is parsed only when all of it is there, and paths have begun with a slash by then.
    "The head ends before its last line.",
    "A path must begin with '/'.",
];
