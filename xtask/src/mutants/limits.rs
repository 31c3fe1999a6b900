//! Mutations of limits, which no list names: each limit is half of what it is, or twice as much.
//!
//! A limit is a constant of a crate of the server that is a number or a `Duration`, and that stands
//! in a file `limits.rs`, or whose name has one of [`WORDS`]. Each use of it in the body of a
//! function asks which mutation counts. Tests use the limit as it is.

use super::list::{Change, Mutation};
use super::switch::{CHOSEN, bodies};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use syn::visit::{self, Visit};
use xtask::source::blank;
use xtask::syntax::{Source, attributes, is_of_tests, sources, without_tests};

/// The mutations of all limits.
pub(crate) fn derive() -> Vec<Mutation> {
    let mut mutations = Vec::new();
    for (owner, files) in sources() {
        if APART.contains(&owner.as_str()) {
            continue;
        }
        for Source { path, module, tree } in without_tests(files) {
            let is_of_limits = module.last().is_some_and(|it| it == "limits");
            let mut constants = Constants { is_of_limits, found: Vec::new() };
            constants.visit_file(&tree);
            constants.found.retain(|(name, _)| excepted().all(|other| other != name));
            for (name, kind) in constants.found {
                let [half, twice] = match &*kind {
                    "Duration" => ["it / 2", "it.saturating_mul(2)"],
                    "f32" | "f64" => ["it / 2.0", "it + it"],
                    _ => ["it / 2", "it.saturating_mul(2).max(1)"],
                };
                for (how, value) in [("half of it", half), ("twice as much", twice)] {
                    let change = Change::Limit { name: name.clone(), value };
                    let sentence = format!("{name} is {how}.");
                    mutations.push(Mutation::new(path.clone(), sentence, change));
                }
            }
        }
    }
    mutations
}

/// Has a file ask at each use of a limit which mutation counts, and takes these from `unused`.
pub(crate) fn switched(
    path: &str,
    tree: &syn::File,
    mut text: String,
    mutations: &[(usize, &Mutation)],
    unused: &mut BTreeSet<usize>,
) -> String {
    let mut limits = BTreeMap::<&str, Vec<_>>::new();
    for (number, mutation) in mutations {
        if let Change::Limit { name, value } = mutation.change() {
            limits.entry(name).or_default().push((*number, *value, *mutation));
        }
    }
    let (bodies, code) = (bodies(tree), blank(&text).code);
    let (mut uses, mut at) = (Vec::new(), 0);
    for piece in code.split_inclusive(|c| !is_of_word(c)) {
        let name = piece.trim_end_matches(|c| !is_of_word(c));
        let place = path_at(&code, at)..at + name.len();
        at += piece.len();
        let is_inside = || bodies.iter().any(|(body, _)| body.contains(&place.start));
        let Some(limits) = limits.get(name).filter(|_| is_inside()) else { continue };
        let mut arms = String::new();
        for (number, value) in meant(limits, path).filter(|_| is_value(&code, &place)) {
            unused.remove(&number);
            arms += &format!("{number} => {value}, ");
        }
        let limit = &text[place.clone()];
        let value = format!("({{ {CHOSEN} let it = {limit}; match *CHOSEN {{ {arms}_ => it }} }})");
        uses.extend((!arms.is_empty()).then_some((place, value)));
    }
    for (place, value) in uses.into_iter().rev() {
        text.replace_range(place, &value);
    }
    text
}

/// The limits of a name that a file means: its own, or else its crate's, those of `limits.rs`
/// before others, or else those of the only crate that has the name. A name of two limits is left
/// alone.
fn meant<'a>(
    limits: &[(usize, &'a str, &Mutation)],
    path: &str,
) -> impl Iterator<Item = (usize, &'a str)> {
    let closeness = |file: &str| {
        let is_of_crate = file.split('/').nth(1) == path.split('/').nth(1);
        (file == path, is_of_crate, is_of_crate && file.ends_with("/limits.rs"))
    };
    let closest = limits.iter().map(|(.., it)| closeness(it.file())).max();
    let mut found: Vec<_> =
        limits.iter().filter(|(.., it)| Some(closeness(it.file())) == closest).collect();
    let is_one = found.iter().all(|(.., it)| it.file() == found[0].2.file());
    found.retain(|_| is_one);
    found.into_iter().map(|(number, value, _)| (*number, *value))
}

/// Where the path of a name begins.
fn path_at(code: &str, name_at: usize) -> usize {
    let is_path = code[..name_at].ends_with("::");
    let before = code[..name_at].trim_end_matches(|c| is_path && (c == ':' || is_of_word(c)));
    before.len()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a constant is used where any value may stand: in no pattern, type, declaration or length
/// of an array, and not by a reference, which may have to be valid forever.
fn is_value(code: &str, place: &Range<usize>) -> bool {
    let (before, behind) = (code[..place.start].trim_end(), code[place.end..].trim_start());
    let line = before.rsplit([';', '{', '}']).next().unwrap_or_default().trim_start();
    let is_reference = before.ends_with('&') && !before.ends_with("&&");
    let is_parameter = before.ends_with('<') && behind.starts_with('>');
    let is_declared = ["const", "static"].contains(&line.split(' ').next().unwrap_or_default());
    let is_compared = ["<", ">", "<=", ">=", "==", "!="].iter().any(|sign| before.ends_with(sign));
    let is_arm = behind.trim_start_matches('.').trim_start().starts_with("=>");
    let is_pattern = is_arm && !is_compared || line.contains(" @ ");
    !is_reference && !is_parameter && !is_length(before) && !is_declared && !is_pattern
}

/// Whether what comes next belongs to the length of an array.
fn is_length(before: &str) -> bool {
    let (mut depth, mut is_behind) = (0, false);
    for sign in before.chars().rev() {
        match sign {
            ')' | ']' | '}' => depth += 1,
            '(' | '[' | '{' if depth > 0 => depth -= 1,
            ';' if depth == 0 => is_behind = true,
            '[' if is_behind => return true,
            '{' => return false,
            _ => {}
        }
    }
    false
}

/// The limits among the constants of a file.
struct Constants {
    is_of_limits: bool,
    /// Each with its type.
    found: Vec<(String, String)>,
}

impl Constants {
    fn note(&mut self, name: &syn::Ident, kind: &syn::Type) {
        let syn::Type::Path(kind) = kind else { return };
        let Some(kind) = kind.path.segments.last() else { return };
        let (name, kind) = (name.to_string(), kind.ident.to_string());
        let is_named_so = name.split('_').any(|word| WORDS.contains(&word));
        let is_number = NUMBERS.contains(&kind.as_str());
        if kind == "Duration" || is_number && (self.is_of_limits || is_named_so) {
            self.found.push((name, kind));
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
const EXCEPTED: [(&str, &str); 3] = [
    (
        "only patterns, types and constants use it",
        "
            APPEND_MAX_US BUFFER_BYTES DERIVATION_STACK_BYTES FIELDS_MAX GUESTBOOK_BYTES_MAX
            TICKET_SECRET_BYTES_MIN TRIES_MAX WIPED_STACK_BYTES
        ",
    ),
    (
        "a format, or a size that a protocol or the kernel sets",
        "
            CHECKSUM_BYTES CHUNK_HEAD_BYTES CLUSTER_BYTES CONTROL_BYTES_MAX DESCRIBED_BYTES
            ED25519_BYTES EXTENSION_BYTES_MAX FIELDS_BYTES FIXED_BYTES GROUPS_MAX GZIP_HEADER_BYTES
            HEADER_BYTES HEAD_BYTES HELLO_HEADER_BYTES ID_BYTES_MAX KEY_BYTES_MAX LENGTH_BYTES
            RECORD_BYTES SECRET_BYTES_MAX TAG_BYTES_MAX TCP4_BYTES TCP6_BYTES TURN UNIX_BYTES
            VERSION_BYTES
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
