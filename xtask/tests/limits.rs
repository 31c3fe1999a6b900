//! Every limit, pause, bound and account has a mutation in `xtask/mutants` that changes its value
//! or a use of it: so a test notices when it is lost.
//!
//! A limit is a constant of a crate of the server that is a number or a `Duration`, and that stands
//! in a file `limits.rs`, or whose name has one of [`WORDS`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod syntax;

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syntax::{attributes, is_of_tests, sources, without_tests};
use xtask::source::{expect_none, files, words};

#[test]
fn every_limit_has_a_mutation() {
    let (limits, mutated) = (limits(), mutated());
    let (mut unseen, mut named) = (Vec::new(), Vec::new());
    for limit in &limits {
        let is_this = |other: &&Limit| other.owner == limit.owner && other.name == limit.name;
        // A name that a crate has twice counts where it is declared.
        let place = match limits.iter().filter(is_this).count() {
            1 => &limit.owner,
            _ => &limit.file,
        };
        let is_mutated = mutated.get(place).is_some_and(|names| names.contains(&limit.name));
        let is_excepted = excepted().any(|name| name == limit.name);
        if is_excepted && !is_mutated {
            named.push(limit.name.as_str());
        } else if !is_mutated {
            unseen.push(format!("{}: {}", limit.file, limit.name));
        }
    }
    assert!(limits.len() > 300, "only {} limits", limits.len());
    expect_none("limits without a mutation", unseen);
    let gone = excepted().filter(|name| !named.contains(name));
    expect_none("excepted, and mutated or no limit any more", gone.map(str::to_owned).collect());
    println!("{} limits", limits.len());
}

/// A constant that limits something.
struct Limit {
    /// The crate, as its folder, and the file, as its path without the extension.
    owner: String,
    file: String,
    name: String,
}

fn limits() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (owner, files) in sources() {
        if APART.contains(&owner.as_str()) {
            continue;
        }
        for (module, tree) in without_tests(files) {
            let mut constants = Constants {
                is_of_limits: module.last().is_some_and(|it| it == "limits"),
                names: Vec::new(),
            };
            constants.visit_file(&tree);
            let file = format!("crates/{owner}/src/{}", module.join("/"));
            limits.extend(constants.names.into_iter().map(|name| Limit {
                owner: owner.clone(),
                file: file.clone(),
                name,
            }));
        }
    }
    limits
}

/// The constants of a file that are limits.
struct Constants {
    is_of_limits: bool,
    names: Vec<String>,
}

impl Constants {
    fn note(&mut self, name: &syn::Ident, kind: &syn::Type) {
        let syn::Type::Path(kind) = kind else { return };
        let name = name.to_string();
        let kind = kind.path.segments.last().unwrap().ident.to_string();
        let is_named_so = name.split('_').any(|word| WORDS.contains(&word));
        let is_number = NUMBERS.contains(&kind.as_str());
        if kind == "Duration" || is_number && (self.is_of_limits || is_named_so) {
            self.names.push(name);
        }
    }
}

impl<'ast> Visit<'ast> for Constants {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_of_tests(attributes(item)) {
            return;
        }
        if let syn::Item::Const(item) = item {
            self.note(&item.ident, &item.ty);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.note(&item.ident, &item.ty);
    }
}

/// The words that mutations change, by crate and by file.
fn mutated() -> BTreeMap<String, BTreeSet<String>> {
    let mut mutated: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for list in files(&["txt"]).into_iter().filter(|it| it.path.starts_with("xtask/mutants/")) {
        let mut file = "";
        for line in list.text.lines() {
            if let Some(path) = line.strip_prefix("file:") {
                file = path.trim().trim_end_matches(".rs").trim_end_matches("/mod");
            } else if line.starts_with(['-', '+']) {
                let owner = file.split('/').nth(1).unwrap_or_default();
                for place in [owner, file] {
                    let names: &mut BTreeSet<String> = mutated.entry(place.to_owned()).or_default();
                    names.extend(words(line).map(str::to_owned));
                }
            }
        }
    }
    mutated
}

fn excepted() -> impl Iterator<Item = &'static str> {
    EXCEPTED.iter().flat_map(|(_, names)| names.split_whitespace())
}

/// The command, the load generator, the adviser, and what tests share.
const APART: [&str; 4] = ["stentor", "stentor-bench", "stentor-tune", "stentor-test"];

const NUMBERS: [&str; 9] = ["u8", "u16", "u32", "u64", "usize", "i32", "i64", "f32", "f64"];

/// The endings of the names of limits.
const WORDS: [&str; 20] = [
    "MAX", "MIN", "NS", "US", "MS", "S", "BYTES", "COST", "PART", "PERCENT", "KEPT", "TURN",
    "ONCE", "PAUSE", "PATIENCE", "RETRY", "TRIES", "BACKLOG", "QUEUE", "FACTOR",
];

/// Limits that need no mutation, each with the reason.
const EXCEPTED: [(&str, &str); 2] = [
    (
        "a format, or a size that a protocol or the kernel sets",
        "
            CHUNK_HEAD_BYTES CONTROL_BYTES_MAX DESCRIBED_BYTES ED25519_BYTES EXTENSION_BYTES_MAX
            FIELDS_BYTES FIXED_BYTES GROUPS_MAX GZIP_HEADER_BYTES HEADER_BYTES HEAD_BYTES
            HELLO_HEADER_BYTES ID_BYTES_MAX KEY_BYTES_MAX LENGTH_BYTES RECORD_BYTES SECRET_BYTES_MAX
            TAG_BYTES_MAX TCP4_BYTES TCP6_BYTES TURN UNIX_BYTES VERSION_BYTES
        ",
    ),
    (
        "tunes speed alone",
        "
            ACCESS_LOG_REST_MS BATCH_BYTES BROTLI_WINDOW_MAX BROTLI_WINDOW_MIN COPY_BYTES
            ENTRIES_BYTES ENVELOPE_BYTES_USUAL EVENTS_PER_TURN EVENTS_USUAL EXPIRE_MS
            FIELDS_BYTES_USUAL FLIGHT_BYTES GROWTH_BYTES HEAD_BYTES_USUAL LIST_BYTES PIECE_BYTES
            READY_PAUSE READ_BYTES RECEIVE_BYTES RECORDS_MAX SCOPES_MIN SEARCH_BYTES SHARE_BYTES_MIN
            STEP_BYTES TRIM_PAUSE_MIN
        ",
    ),
];
