//! Compares the errors of the server with their documentation, in both directions.
//!
//! `docs/http/errors.md` has a row for each error code, and lists each sentence in a column headed
//! "message". `docs/access.md` lists the sentences about tokens. The rows are compared with the
//! table of `error.rs`, the sentences with the string literals of the crates that answer. A literal
//! counts as a message if it reads like a sentence of several words. The exceptions are at the
//! bottom.

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

#[test]
fn error_codes_match_their_catalogue() {
    let documented = rows("docs/http/errors.md", ["code", "status", "title"]);
    let source: Vec<_> = error_codes()
        .into_iter()
        .map(|error| [format!("`{}`", error.code), error.status, error.title])
        .collect();
    assert!(source.len() > 100, "only {} codes in the source", source.len());
    let differences = |rows: &[[String; 3]], others: &[[String; 3]]| -> Vec<String> {
        rows.iter().filter(|row| !others.contains(row)).map(|row| row.join(" | ")).collect()
    };
    expect_none("in error.rs and not in docs/http/errors.md", differences(&source, &documented));
    expect_none("in docs/http/errors.md and not in error.rs", differences(&documented, &source));
    assert_eq!(documented, source, "the catalogue has another order, or a row twice");
}

#[test]
fn sentences_have_known_codes() {
    // Close frames have these, and no response.
    let close_reasons = [
        "websocket_protocol_error",
        "websocket_data_invalid",
        "websocket_limit",
        "websocket_message_too_large",
    ];
    let codes = error_codes();
    let is_known =
        |code: &str| close_reasons.contains(&code) || codes.iter().any(|error| error.code == code);
    let unknown = rows("docs/http/errors.md", ["code", "message"])
        .into_iter()
        .filter(|[cell, _]| cell != "–")
        .filter(|[cell, _]| !cell.split(", ").all(|code| is_known(code.trim_matches('`'))))
        .map(|row| row.join(" | "));
    expect_none("codes in docs/http/errors.md that the server does not have", unknown.collect());
}

#[test]
fn sentences_stand_under_their_code() {
    let codes = error_codes();
    let documented = rows("docs/http/errors.md", ["code", "message"]);
    let mut count = 0;
    let mut wrong = Vec::new();
    for (variant, sentence) in rejections() {
        count += 1;
        let code = &codes.iter().find(|error| error.variant == variant).unwrap().code;
        let found = documented.iter().filter(|[_, message]| message.trim_matches('`') == sentence);
        for [cell, _] in found.filter(|[cell, _]| *cell != format!("`{code}`")) {
            wrong.push(format!("{sentence} ({code}) is under {cell}"));
        }
    }
    assert!(count > 80, "only {count} rejections in the source");
    expect_none("sentences under another code than that of the source", wrong);
}

/// The constants that the macro `rejections!` makes: the variant of the code, and the sentence.
fn rejections() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in rust() {
        let code = file.code().0;
        for block in code.split("\nrejections! {\n").skip(1) {
            let block = block.split("\n}\n").next().unwrap_or_default();
            for constant in block.split(";\n") {
                let Some((name, _)) = constant.split_once('=') else { continue };
                let variant = name.rsplit(": ").next().unwrap_or_default().trim();
                let sentence = strings(constant).into_iter().map(unescaped).collect::<String>();
                found.push((variant.to_owned(), sentence));
            }
        }
    }
    found
}

/// An error code, as `error.rs` has it.
struct Error {
    variant: String,
    code: String,
    status: String,
    title: String,
}

/// The table of error codes.
fn error_codes() -> Vec<Error> {
    let statuses = read("crates/stentor-wire/src/status.rs");
    let number = |name: &str| {
        let mut lines = statuses.lines().map(|line| line.trim().splitn(3, ' '));
        let found = lines.find_map(|mut words| {
            let number = words.next()?;
            (words.next() == Some(name)).then(|| number.to_owned())
        });
        found.unwrap_or_else(|| panic!("{name} is not in status.rs"))
    };
    let source = read(ERRORS);
    let (_, table) = source.split_once("\nerror_codes! {\n").unwrap();
    let (table, _) = table.split_once("\n}\n").unwrap();
    let mut found = Vec::new();
    let mut status = String::new();
    for line in table.lines().map(str::trim) {
        let texts: Vec<_> = line.split('"').collect();
        match (line.strip_suffix(" {"), &texts[..]) {
            (Some(name), _) => status = number(name),
            (None, [variant, code, _, title, _]) => found.push(Error {
                variant: (*variant).trim().to_owned(),
                code: (*code).to_owned(),
                status: status.clone(),
                title: (*title).to_owned(),
            }),
            (None, _) => assert_eq!(line, "}", "a line of error.rs that this test cannot read"),
        }
    }
    found
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
    rows(path, [head]).into_iter().map(|[cell]| cell).collect()
}

/// The rows of those tables of a page that have columns with all of these heads.
fn rows<const N: usize>(path: &str, heads: [&str; N]) -> Vec<[String; N]> {
    let mut found = Vec::new();
    // Of a table: where the columns are, if it has all of them.
    let mut columns: Option<Option<[usize; N]>> = None;
    for line in read(path).lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            columns = None;
        } else if let Some(columns) = columns {
            let is_rule = cells.iter().all(|cell| cell.trim_matches('-').is_empty());
            if let Some(columns) = columns.filter(|_| !is_rule) {
                found.push(columns.map(|column| cells[column].to_owned()));
            }
        } else {
            let places = heads.map(|head| cells.iter().position(|cell| *cell == head));
            columns = Some(places.iter().all(Option::is_some).then(|| places.map(Option::unwrap)));
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

/// The table of error codes.
const ERRORS: &str = "crates/stentor-wire/src/error.rs";

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
    // Its titles are in the catalogue.
    ERRORS,
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
