//! The structure of the crates: which module imports which, how large types are, and how often a
//! name stands for two things.
//!
//! A module is a file or a folder directly under `src/`, without its tests. The rules read syntax
//! trees: `use` declarations, paths, and the paths in macros. A name that is exported again counts
//! for the module that exports it. The root of a crate is no module.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use xtask::source::{expect_none, read};
use xtask::syntax::{Source, attributes, is_of_tests, sources, without_tests};

/// The largest import circle of each crate that has one of more than `CIRCLE_MAX` modules. These
/// numbers only fall.
const CIRCLES: [(&str, usize); 3] = [("stentor", 18), ("stentor-access", 6), ("stentor-tune", 5)];

const CIRCLE_MAX: usize = 4;

#[test]
fn import_circles_are_small() {
    let mut broken = Vec::new();
    for (name, modules) in &crates() {
        let allowed = CIRCLES.iter().find(|(known, _)| known == name).map_or(CIRCLE_MAX, |it| it.1);
        let largest = circles(modules).into_iter().max_by_key(Vec::len).unwrap_or_default();
        if largest.len() > allowed {
            broken.push(format!("{name}: {} modules, {allowed} allowed", largest.len()));
            for module in &largest {
                let arrows = modules[module].iter().filter(|(to, _)| largest.contains(to));
                for (to, names) in arrows {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    broken.push(format!("    {module} -> {to}: {}", names.join(", ")));
                }
            }
        } else if largest.len() < allowed && allowed > CIRCLE_MAX {
            broken.push(format!("{name}: {} modules: lower its number here", largest.len()));
        }
    }
    expect_none("import circles", broken);
}

/// For each module the modules that it imports, and what of them, and where.
type Modules = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn crates() -> BTreeMap<String, Modules> {
    let with_tests = sources().into_iter();
    with_tests.map(|(name, files)| (name, modules(&without_tests(files)))).collect()
}

fn modules(files: &[Source]) -> Modules {
    let root = files.iter().find(|file| file.module.is_empty());
    let exports = root.map(|file| exports(&file.tree)).unwrap_or_default();
    let names: BTreeSet<String> =
        files.iter().filter_map(|it| it.module.first().cloned()).collect();
    let mut modules = Modules::new();
    for Source { module, tree, .. } in files.iter().filter(|it| !it.module.is_empty()) {
        let mut paths =
            Paths { module: module.clone(), names: &names, exports: &exports, found: vec![] };
        paths.visit_file(tree);
        let arrows = modules.entry(module[0].clone()).or_default();
        for (to, what) in paths.found {
            if to != module[0] {
                let at = if module.len() > 1 { module[1..].join("/") } else { ".".to_owned() };
                let names: &mut BTreeSet<String> = arrows.entry(to).or_default();
                names.insert(format!("{what} [{at}]"));
            }
        }
    }
    modules
}

/// The names that the root of a crate exports, each with its module.
fn exports(root: &syn::File) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in &root.items {
        if let syn::Item::Use(item) = item {
            let mut leaves = Vec::new();
            leaves_of(&item.tree, Vec::new(), &mut leaves);
            for mut leaf in leaves {
                leaf.retain(|part| !["crate", "self"].contains(&part.as_str()));
                exports.insert(leaf[leaf.len() - 1].clone(), leaf[0].clone());
            }
        }
    }
    exports
}

fn leaves_of(tree: &syn::UseTree, mut before: Vec<String>, leaves: &mut Vec<Vec<String>>) {
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves_of(&path.tree, before, leaves);
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|it| leaves_of(it, before.clone(), leaves));
        }
        syn::UseTree::Name(name) => {
            before.push(name.ident.to_string());
            leaves.push(before);
        }
        syn::UseTree::Rename(rename) => {
            before.push(rename.ident.to_string());
            leaves.push(before);
        }
        syn::UseTree::Glob(_) => {
            before.push("*".to_owned());
            leaves.push(before);
        }
    }
}

/// The paths of a file that lead to other modules of its crate.
struct Paths<'a> {
    module: Vec<String>,
    names: &'a BTreeSet<String>,
    exports: &'a BTreeMap<String, String>,
    found: Vec<(String, String)>,
}

impl Paths<'_> {
    fn note(&mut self, path: &[String]) {
        let mut at = match path[0].as_str() {
            "crate" => Vec::new(),
            "super" | "self" => self.module.clone(),
            _ => return,
        };
        let mut rest = &path[1..];
        if path[0] == "super" {
            at.pop();
        }
        while rest.first().is_some_and(|part| part == "super") {
            at.pop();
            rest = &rest[1..];
        }
        at.extend(rest.iter().cloned());
        let Some(first) = at.first() else { return };
        let to = if self.names.contains(first) { Some(first) } else { self.exports.get(first) };
        if let Some(to) = to {
            let what = if at.len() > 1 { at[1..].join("::") } else { first.clone() };
            self.found.push((to.clone(), what));
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_of_tests(attributes(item)) {
            return;
        }
        if let syn::Item::Mod(item) = item
            && let Some((_, items)) = &item.content
        {
            self.module.push(item.ident.to_string());
            items.iter().for_each(|it| self.visit_item(it));
            self.module.pop();
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut leaves = Vec::new();
        leaves_of(&item.tree, Vec::new(), &mut leaves);
        leaves.iter().for_each(|leaf| self.note(leaf));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note(&parts);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.visit_path(&item.path);
        let text = item.tokens.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        for (i, word) in words.iter().enumerate() {
            if ["crate", "super", "self"].contains(word) && words.get(i + 1) == Some(&"::") {
                let parts = words[i..]
                    .chunks(2)
                    .take_while(|it| it[0].starts_with(|c: char| c.is_alphabetic() || c == '_'));
                let mut path = Vec::new();
                for part in parts {
                    path.push(part[0].to_owned());
                    if part.get(1) != Some(&"::") {
                        break;
                    }
                }
                self.note(&path);
            }
        }
    }
}

/// The sets of modules that reach each other.
fn circles(modules: &Modules) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = modules
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut next = vec![from];
            while let Some(at) = next.pop() {
                for to in modules.get(at).into_iter().flat_map(BTreeMap::keys) {
                    if seen.insert(to) {
                        next.push(to);
                    }
                }
            }
            (from, seen)
        })
        .collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (from, seen) in &reach {
        let circle: Vec<String> = seen
            .iter()
            .filter(|to| reach.get(*to).is_some_and(|it| it.contains(*from)))
            .map(|it| (*it).clone())
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

#[test]
fn crates_know_what_the_map_says() {
    let map = read("ARCHITECTURE.md");
    let rows = map.lines().filter(|line| line.starts_with("| `stentor-"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").collect()).collect();
    assert!(rows.len() > 10, "only {} crates", rows.len());
    let mut broken = Vec::new();
    for row in rows {
        let name = row[0].trim_start_matches("| ").trim_matches('`');
        let told = BTreeSet::from_iter(row[2].split(' ').filter(|word| *word != "nothing"));
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        let (_, known) = manifest.split_once("\n[dependencies]\n").unwrap();
        let known = known.lines().take_while(|line| !line.starts_with('['));
        let known = known.filter(|line| !line.contains("optional"));
        let known =
            known.filter_map(|line| Some(line.strip_prefix("stentor-")?.split_once('.')?.0));
        let known = BTreeSet::from_iter(known);
        if told != BTreeSet::from(["all", "below"]) && told != known {
            broken.push(format!("{name} knows {known:?}, the map says {told:?}"));
        }
    }
    expect_none("crates that know others than the map says", broken);
}

/// Structs with more than [`FIELDS_MAX`] fields that are to be split. These numbers only fall.
const FIELDS: [(&str, &str, usize); 1] = [("stentor-config", "Settings", 32)];

const FIELDS_MAX: usize = 20;

/// Structs with more than [`FIELDS_MAX`] fields that stay, each with its reason.
const LARGE: [(&str, &str, &str); 1] =
    [("stentor-server", "ServerReport", "a wire struct of serde")];

/// Why a struct may have more fields or booleans than others.
const EXCEPTIONS: [&str; 4] = [
    "the table of listeners",
    "arguments of the command line",
    "a wire struct of serde",
    "the simulator",
];

#[test]
fn structs_are_small() {
    let mut broken = Vec::new();
    let mut large = Vec::new();
    for (name, types) in types() {
        for (of, fields) in types.fields.into_iter().filter(|(_, fields)| *fields > FIELDS_MAX) {
            let is = |known: &str, it: &str| known == name && it == of;
            let stays = LARGE.iter().any(|it| is(it.0, it.1) && EXCEPTIONS.contains(&it.2));
            let allowed = FIELDS.iter().find(|it| is(it.0, it.1)).map_or(FIELDS_MAX, |it| it.2);
            if !stays && fields != allowed {
                broken.push(format!("{name}: {of} has {fields} fields, {allowed} are allowed"));
            }
            large.push((name.clone(), of));
        }
    }
    let listed = FIELDS.iter().map(|it| (it.0, it.1)).chain(LARGE.iter().map(|it| (it.0, it.1)));
    let is_small = |(of, name): &(&str, &str)| !large.iter().any(|it| it.0 == *of && it.1 == *name);
    broken.extend(listed.filter(is_small).map(|it| format!("{}: {} is listed", it.0, it.1)));
    expect_none("structs with too many fields, and those that are not large any more", broken);
}

/// Clippy denies more than three booleans. An exception names its reason where the struct is.
#[test]
fn structs_have_few_booleans() {
    let mut broken = Vec::new();
    for (name, files) in sources() {
        let mut types = Types::default();
        files.iter().for_each(|file| types.visit_file(&file.tree));
        let unknown = types.excepted.into_iter().filter(|it| !EXCEPTIONS.contains(&it.1.as_str()));
        broken.extend(unknown.map(|(of, reason)| format!("{name}: {of}: {reason}")));
    }
    expect_none("structs with many booleans for another reason", broken);
}

/// How many of 1,000 names of types may be of two things or more. This number only falls.
const SHARED_NAMES_PER_1000: usize = 100;

#[test]
fn names_are_of_one_type() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in types().into_values().flat_map(|types| types.names) {
        *counts.entry(name).or_default() += 1;
    }
    let (all, mut shared) = (counts.len(), Vec::from_iter(counts));
    shared.retain(|(_, count)| *count > 1);
    shared.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let per_1000 = (shared.len() * 1_000).div_ceil(all);
    println!("{} of {all} names of types are defined more than once: {shared:?}", shared.len());
    assert!(per_1000 <= SHARED_NAMES_PER_1000, "{per_1000} of 1,000 names: {shared:?}");
    assert!(per_1000 + 10 > SHARED_NAMES_PER_1000, "{per_1000} of 1,000: lower the number here");
}

/// The types of each crate, without its tests.
fn types() -> BTreeMap<String, Types> {
    let of_crate = |files| {
        let mut types = Types::default();
        without_tests(files).iter().for_each(|file| types.visit_file(&file.tree));
        types
    };
    sources().into_iter().map(|(name, files)| (name, of_crate(files))).collect()
}

/// The declarations of a crate.
#[derive(Default)]
struct Types {
    names: Vec<String>,
    /// Structs, each with its number of fields.
    fields: Vec<(String, usize)>,
    /// Structs that may have many booleans, each with its reason.
    excepted: Vec<(String, String)>,
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_of_tests(attributes(item)) {
            return;
        }
        let name = match item {
            syn::Item::Struct(it) => &it.ident,
            syn::Item::Enum(it) => &it.ident,
            syn::Item::Trait(it) => &it.ident,
            syn::Item::Type(it) => &it.ident,
            syn::Item::Union(it) => &it.ident,
            _ => return visit::visit_item(self, item),
        };
        self.names.push(name.to_string());
        if let syn::Item::Struct(item) = item {
            self.fields.push((name.to_string(), item.fields.len()));
            let reasons = item.attrs.iter().filter_map(reason_for_booleans);
            self.excepted.extend(reasons.map(|reason| (name.to_string(), reason)));
        }
        visit::visit_item(self, item);
    }

    /// `settings!` declares structs, too. A row and a field after `and` end with a semicolon.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        if item.path.is_ident("settings") {
            let text = item.tokens.to_string();
            let code: String = text.split('"').step_by(2).collect();
            let (_, rest) = code.split_once("pub struct ").unwrap();
            let name = rest.split_whitespace().next().unwrap().to_owned();
            self.fields.push((name.clone(), rest.matches(';').count()));
            self.names.push(name);
        }
    }
}

/// The reason of an attribute that lets a struct have many booleans.
fn reason_for_booleans(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::List(list) = &attribute.meta else { return None };
    let text = list.tokens.to_string();
    let (_, reason) = text.split_once("struct_excessive_bools")?;
    let reason = reason.split('"').nth(1).unwrap_or("no reason");
    list.path.is_ident("expect").then(|| reason.to_owned())
}
