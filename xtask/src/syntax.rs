//! The crates as syntax trees, and which parts of them are tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::rust;

/// A file of a crate.
pub struct Source {
    /// Relative to the root.
    pub path: String,
    /// Its path of modules.
    pub module: Vec<String>,
    /// What it contains.
    pub tree: syn::File,
}

/// The files of each crate.
#[must_use]
pub fn sources() -> BTreeMap<String, Vec<Source>> {
    let mut crates: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for file in rust() {
        let Some(rest) = file.path.strip_prefix("crates/") else { continue };
        let Some((name, path)) = rest.split_once("/src/") else { continue };
        let path = path.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        let mut module: Vec<String> = path.split('/').map(str::to_owned).collect();
        if ["lib", "main"].contains(&path) {
            module.clear();
        }
        let tree = syn::parse_file(&file.text).unwrap_or_else(|e| panic!("{}: {e}", file.path));
        let source = Source { path: file.path.clone(), module, tree };
        crates.entry(name.to_owned()).or_default().push(source);
    }
    crates
}

/// Those that are not compiled for tests alone.
#[must_use]
pub fn without_tests(mut files: Vec<Source>) -> Vec<Source> {
    let mut left_out = BTreeSet::new();
    for Source { module, tree, .. } in &files {
        for item in &tree.items {
            if let syn::Item::Mod(item) = item
                && is_of_tests(&item.attrs)
            {
                let mut path = module.clone();
                path.push(item.ident.to_string());
                left_out.insert(path);
            }
        }
    }
    files.retain(|Source { module, .. }| {
        !(1..=module.len()).any(|n| left_out.contains(&module[..n]))
    });
    files
}

/// Whether it is compiled for tests and fuzz targets alone.
#[must_use]
pub fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg")
            && !condition.contains("not(")
            && ["test", "feature=\"fuzz\"", "feature=\"sim\""]
                .iter()
                .any(|it| condition.contains(it))
    })
}

/// The attributes of an item.
#[must_use]
pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Type(it) => &it.attrs,
        syn::Item::Union(it) => &it.attrs,
        _ => &[],
    }
}
