//! Many mutations in one build: a variable of the environment chooses the one that counts.
//!
//! Each mutation adds a body to its function, in front of the original one, so that the tests are
//! built once for all mutations. A mutation of a constant or a type is built alone, and so is one
//! of a `const fn`, or of a function that returns an `impl Trait`, which would have several types.

use super::list::Mutation;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::visit::{self, Visit};

/// Puts mutations into a source, each with its number. Returns the source, and the numbers of
/// those that have to be built alone.
///
/// # Errors
///
/// If a mutation does not apply, or the source is not Rust.
pub(crate) fn switched(
    source: &str,
    mutations: &[(usize, &Mutation)],
) -> Result<(String, Vec<usize>), String> {
    let tree = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(&tree);
    let (mut arms, mut alone) = (BTreeMap::<usize, (usize, String)>::new(), Vec::new());
    for &(number, mutation) in mutations {
        let mutated = mutation.apply(source)?;
        let change = change(source, &mutated);
        let is_inside = |body: &&Range<usize>| body.start < change.start && change.end < body.end;
        let Some(body) = bodies.0.iter().find(is_inside) else {
            alone.push(number);
            continue;
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
    Ok((text, alone))
}

/// The bytes of the source that are others in what was mutated.
fn change(source: &str, mutated: &str) -> Range<usize> {
    let both = source.bytes().zip(mutated.bytes());
    let before = both.take_while(|(a, b)| a == b).count();
    let both = source[before..].bytes().rev().zip(mutated[before..].bytes().rev());
    before..source.len() - both.take_while(|(a, b)| a == b).count()
}

/// The bodies of the outermost functions that can have several.
struct Bodies(Vec<Range<usize>>);

impl Bodies {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let mut opaque = Opaque(signature.constness.is_some());
        opaque.visit_return_type(&signature.output);
        if !opaque.0 {
            let braces = body.brace_token.span;
            self.0.push(braces.open().byte_range().start..braces.close().byte_range().end);
        }
    }
}

impl<'ast> Visit<'ast> for Bodies {
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
const CHOSEN: &str = "static CHOSEN: std::sync::LazyLock<usize> = std::sync::LazyLock::new(|| {
    std::env::var(\"MUTATION\").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
});";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_a_mutated_one_before_them() {
        let source = "const A: u8 = 1;\nfn f() -> u8 { g(1) }\nimpl B {\n  fn g() { x() }\n}\n\
                      const fn h() -> u8 { 2 }\nfn i() -> Option<impl C> { d }\n";
        let changes = ["- A: u8 = 1\n+ A: u8 = 3", "- g(1)", "- x()\n+ y()", "- { 2 }\n+ { 4 }"];
        let changes = changes.iter().chain(&["- d\n+ e", "- 1)\n+ 5)"]);
        let text = changes.map(|change| format!("\n\nIt breaks.\n{change}")).collect::<String>();
        let mutations = super::super::list::parse(&format!("file: crates/a/src/b.rs{text}"));
        let mutations = mutations.unwrap();
        let numbered: Vec<_> = (1..).zip(&mutations).collect();
        let (text, alone) = switched(source, &numbered).unwrap();
        assert_eq!(alone, [1, 4, 5]);
        let arms = [
            "if *CHOSEN == 2 {  } else if *CHOSEN == 6 { g(5) } else { g(1) } }",
            "if *CHOSEN == 3 { y() } else { x() } }",
        ];
        assert!(arms.iter().all(|arm| text.contains(arm)), "{text}");
        assert_eq!(text.matches("static CHOSEN").count(), 2, "{text}");
        assert!(switched("fn {", &numbered).is_err() && switched("", &numbered).is_err());
    }
}
