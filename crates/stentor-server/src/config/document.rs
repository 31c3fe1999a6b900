//! Reads a TOML document and finds all of its mistakes, not only the first.
//!
//! A serde parser stops at the first mistake. Therefore the document becomes a tree first, in which
//! each item knows its place. The item with the mistake is cut out of the tree, and the rest is
//! read again. A key that is missing only because it was cut out is no mistake.

use std::mem;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};

use super::error::{ConfigError, ConfigErrors};
use super::layer::{SCALARS, explain};

/// Reads a value from the TOML document `text`. Errors call the document `name`.
pub(super) fn read<T: DeserializeOwned>(text: &str, name: &str) -> Result<T, ConfigErrors> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let mut reading = Reading { text, name, tree, mistakes: Vec::new() };
    if errors.is_empty() {
        reading.check_brackets();
        reading.parse()
    } else {
        reading.add_syntax(&errors);
        Err(reading.errors())
    }
}

/// A document on its way to a value.
struct Reading<'t> {
    text: &'t str,
    name: &'t str,
    tree: Spanned<DeTable<'t>>,
    /// The mistakes, each with the offset at which it begins.
    mistakes: Vec<(usize, ConfigError)>,
}

impl Reading<'_> {
    /// The value of the tree. Each mistake costs one more pass.
    fn parse<T: DeserializeOwned>(mut self) -> Result<T, ConfigErrors> {
        let mut cut = Vec::new();
        while self.mistakes.len() < MISTAKES_SOUGHT {
            let error = match T::deserialize(Deserializer::from(self.tree.clone())) {
                Ok(value) if self.mistakes.is_empty() => return Ok(value),
                Ok(_) => break,
                Err(error) => error,
            };
            let span = error.span();
            let is_consequence = error.message().starts_with(MISSING)
                && span.as_ref().is_some_and(|span| cut.contains(span));
            if !is_consequence {
                self.add(span.clone(), explain(error.message()));
            }
            match span.and_then(|span| cut_entry(self.tree.get_mut(), span.start, 0..0)) {
                Some(table) => cut.push(table),
                None => break,
            }
        }
        Err(self.errors())
    }

    /// The mistakes of the syntax, one a line: the others there are mostly consequences.
    fn add_syntax(&mut self, errors: &[Error]) {
        let text = self.text;
        let line = |error: &Error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count()
        };
        for (i, error) in errors.iter().enumerate() {
            if errors[..i].iter().all(|other| line(other) != line(error)) {
                self.add(error.span(), explain(error.message()));
            }
        }
    }

    /// Tables of which there is one are written in single brackets. Read as a list, they would be
    /// taken for the values of their keys.
    fn check_brackets(&mut self) {
        for (table, ..) in SCALARS {
            let Some(DeValue::Array(items)) = self.tree.get_ref().get(*table).map(Spanned::get_ref)
            else {
                continue;
            };
            let span = items.first().map(Spanned::span);
            let hint = match *table {
                "files" => "; a directory whose files are served is a [[static]]",
                _ => "",
            };
            let message = format!("write [{table}], in single brackets: there is one{hint}");
            self.tree.get_mut().remove(*table);
            self.add(span, message);
        }
    }

    fn add(&mut self, span: Option<Range<usize>>, message: String) {
        let start = span.as_ref().map_or(0, |span| span.start);
        let mistake = match span {
            Some(span) => ConfigError::in_document(self.name, self.text, span, message),
            None => ConfigError::new(self.name, message),
        };
        self.mistakes.push((start, mistake));
    }

    /// The mistakes, in the order of their places.
    fn errors(mut self) -> ConfigErrors {
        self.mistakes.sort_by_key(|(start, _)| *start);
        self.mistakes.into_iter().map(|(_, mistake)| mistake).collect()
    }
}

/// Cuts the innermost entry at that place out of a table, which has that span. Returns the span of
/// the table or list it was in.
fn cut_entry(table: &mut DeTable<'_>, at: usize, span: Range<usize>) -> Option<Range<usize>> {
    if let Some(inner) = table.iter_mut().find_map(|(_, value)| cut_item(value, at)) {
        return Some(inner);
    }
    let is_at = |span: Range<usize>| span.contains(&at);
    let mut entries = table.iter();
    let (key, _) = entries.find(|(key, value)| is_at(key.span()) || is_at(value.span()))?;
    let key = key.clone();
    table.remove(&key);
    Some(span)
}

/// Likewise of what is in a value.
fn cut_item(value: &mut Spanned<DeValue<'_>>, at: usize) -> Option<Range<usize>> {
    let span = value.span();
    match value.get_mut() {
        DeValue::Table(table) => cut_entry(table, at, span),
        DeValue::Array(items) => {
            if let Some(inner) = items.iter_mut().find_map(|item| cut_item(item, at)) {
                return Some(inner);
            }
            let cut = items.iter().position(|item| item.span().contains(&at))?;
            let all = mem::replace(items, DeArray::new()).into_iter().enumerate();
            *items = all.filter(|(i, _)| *i != cut).map(|(_, item)| item).collect();
            Some(span)
        }
        _ => None,
    }
}

/// A tree is in the order of its keys. The first mistakes in the order of the text are shown, so
/// more of them are sought.
const MISTAKES_SOUGHT: usize = 50;

/// How the parser begins when a table lacks a key.
const MISSING: &str = "missing field";
