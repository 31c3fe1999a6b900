//! Many mutations in one build: a variable of the environment chooses the one that counts.
//!
//! Each mutation adds a body to its function, in front of the original one, so that the tests are
//! built once for all mutations. A `const fn` cannot have several, and neither can a function that
//! returns an `impl Trait`, which would have several types.

use super::list::Mutation;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::visit::{self, Visit};
use xtask::syntax::{attributes, is_of_tests};

/// Puts mutations into a source, each with its number.
///
/// # Errors
///
/// If a mutation does not apply, or is in no function that can have several bodies.
pub(crate) fn switched(
    tree: &syn::File,
    source: &str,
    mutations: &[(usize, &Mutation)],
) -> Result<String, String> {
    let bodies = bodies(tree);
    let mut arms = BTreeMap::<usize, (usize, String)>::new();
    for &(number, mutation) in mutations {
        let mutated = mutation.apply(source).map_err(|reason| format!("{mutation}: {reason}"))?;
        let change = change(source, &mutated);
        let is_inside = |body: &Range<usize>| body.start < change.start && change.end < body.end;
        let Some((body, _)) = bodies.iter().find(|(body, is_one)| is_inside(body) && !is_one)
        else {
            return Err(format!("{mutation}: it is in no function that can have several bodies"));
        };
        let end = mutated.len() - (source.len() - body.end);
        let (_, arms) = arms.entry(body.start).or_insert((body.end, String::new()));
        *arms += &format!("if *CHOSEN == {number} {} else ", &mutated[body.start..end]);
    }
    let mut text = source.to_owned();
    for (&start, (end, arms)) in arms.iter().rev() {
        let body = format!("{{ {CHOSEN} {arms}{} }}", &source[start..*end]);
        text.replace_range(start..*end, &body);
    }
    Ok(text)
}

/// The bytes of the source that are others in what was mutated.
fn change(source: &str, mutated: &str) -> Range<usize> {
    let both = source.bytes().zip(mutated.bytes());
    let before = both.take_while(|(a, b)| a == b).count();
    let both = source[before..].bytes().rev().zip(mutated[before..].bytes().rev());
    before..source.len() - both.take_while(|(a, b)| a == b).count()
}

/// The bodies of the outermost functions that run, and whether there can be only one.
pub(super) fn bodies(tree: &syn::File) -> Vec<(Range<usize>, bool)> {
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(tree);
    bodies.0
}

struct Bodies(Vec<(Range<usize>, bool)>);

impl Bodies {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let mut opaque = Opaque(false);
        opaque.visit_return_type(&signature.output);
        let braces = body.brace_token.span;
        if signature.constness.is_none() {
            let body = braces.open().byte_range().start..braces.close().byte_range().end;
            self.0.push((body, opaque.0));
        }
    }
}

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_of_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.note(&function.sig, body);
        }
    }
}

/// Whether a type is one that only the body tells.
struct Opaque(bool);

impl<'ast> Visit<'ast> for Opaque {
    fn visit_type_impl_trait(&mut self, opaque: &'ast syn::TypeImplTrait) {
        self.0 = true;
        visit::visit_type_impl_trait(self, opaque);
    }
}

/// Reads which mutation counts.
pub(super) const CHOSEN: &str =
    "static CHOSEN: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {
    std::env::var(\"MUTATION\").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
});";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_a_mutated_one_before_them() {
        let lines = [
            "fn f() -> u8 { g(1) }",
            "impl B { fn g() { x() } }",
            "const fn h() { 2 }",
            "fn i() -> Option<impl C> { 2 }",
        ];
        let marked = (1..).zip(lines).map(|(n, line)| format!("// mutation: {n}\n{line}\n"));
        let source = marked.collect::<String>();
        let switched = |changes: &[(usize, &str)]| {
            let mutations = changes.iter().map(|(n, change)| {
                let listed = format!("{n}\nIt breaks.\n{change}");
                Mutation::listed(&listed.lines().collect::<Vec<_>>(), "a.rs").unwrap()
            });
            let mutations: Vec<_> = mutations.collect();
            switched(
                &syn::parse_file(&source).unwrap(),
                &source,
                &changes.iter().map(|it| it.0).zip(&mutations).collect::<Vec<_>>(),
            )
        };
        let text = switched(&[(1, "- g(1)"), (2, "- x()\n+ y()")]).unwrap();
        let arms =
            ["if *CHOSEN == 1 {  } else { g(1) } }", "if *CHOSEN == 2 { y() } else { x() } }"];
        assert!(arms.iter().all(|arm| text.contains(arm)), "{text}");
        assert_eq!(text.matches("static CHOSEN").count(), 2, "{text}");
        for one in [3, 4] {
            assert!(switched(&[(one, "- 2\n+ 3")]).unwrap_err().contains("in no function"));
        }
    }
}
