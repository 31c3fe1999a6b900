//! The crates as syntax trees, and which parts of them are tests.

use std::collections::{BTreeMap, BTreeSet};

use xtask::source::rust;

/// The files of a crate, each with its path of modules and its syntax tree.
pub(crate) type Sources = Vec<(Vec<String>, syn::File)>;

pub(crate) fn sources() -> BTreeMap<String, Sources> {
    let mut crates: BTreeMap<String, Sources> = BTreeMap::new();
    for file in rust() {
        let Some(rest) = file.path.strip_prefix("crates/") else { continue };
        let Some((name, path)) = rest.split_once("/src/") else { continue };
        let path = path.strip_suffix(".rs").unwrap();
        let path = path.strip_suffix("/mod").unwrap_or(path);
        let mut module: Vec<String> = path.split('/').map(str::to_owned).collect();
        if ["lib", "main"].contains(&path) {
            module.clear();
        }
        let tree = syn::parse_file(&file.text).unwrap_or_else(|e| panic!("{}: {e}", file.path));
        crates.entry(name.to_owned()).or_default().push((module, tree));
    }
    crates
}

pub(crate) fn without_tests(mut files: Sources) -> Sources {
    let mut left_out = BTreeSet::new();
    for (module, tree) in &files {
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
    files.retain(|(module, _)| !(1..=module.len()).any(|n| left_out.contains(&module[..n])));
    files
}

/// Whether it is compiled for tests and fuzz targets alone.
pub(crate) fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
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

pub(crate) fn attributes(item: &syn::Item) -> &[syn::Attribute] {
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
