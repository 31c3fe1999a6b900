//! Reads a TOML document and finds all of its mistakes, not only the first.
//!
//! A serde parser stops at the first mistake. Therefore the document becomes a tree first, in which
//! each item knows its place. Each setting is read by itself. If its value has a mistake inside,
//! the item with the mistake is cut out and the rest is read again. A key that is missing only
//! because it was cut out is no mistake.

use std::mem;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Error};

use crate::arrays::{ARRAYS, Array};
use crate::error::{ConfigError, ConfigErrors, nearest};
use crate::groups;
use crate::setting::{Read, Setting};
use crate::settings::Settings;

/// Overrides `settings` by the TOML document `text`. Errors call the document `name`.
pub(crate) fn read(text: &str, name: &str, settings: &mut Settings) -> Result<(), ConfigErrors> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let mut reading = DocumentReader { text, name, mistakes: Vec::new() };
    reading.add_syntax(&errors);
    if errors.is_empty() {
        reading.table("", tree.into_inner(), settings);
    }
    reading.mistakes.sort_by_key(|(start, _)| *start);
    ConfigErrors::none_of(reading.mistakes.into_iter().map(|(_, mistake)| mistake))
}

/// The names of the tables of which there is one.
fn tables() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    let names = groups::all().map(|setting| setting.table);
    names.filter(move |name| !name.is_empty() && std::mem::replace(&mut last, name) != *name)
}

/// The parser's message in the words of this program: names in single quotes, and for an unknown
/// key the nearest known one, or the table it belongs to.
pub(crate) fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.replace('`', "'");
    };
    // "unknown field `liten`, expected one of `listen`, `control`": every second piece is a name.
    let mut names = rest.split('`').step_by(2);
    let key = names.next().unwrap_or("");
    unknown(key, &names.filter(|name| !name.is_empty()).collect::<Vec<_>>())
}

/// As [`explain`], for a value that is secret: the parser's message may repeat it.
pub(crate) fn explain_secret(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((problem, expected)) if problem.starts_with("invalid ") => {
            format!("invalid type, expected {expected}")
        }
        _ => explain(message),
    }
}

/// Whether this is the name of a setting or of a table.
pub(crate) fn is_name(word: &str) -> bool {
    groups::all().any(|setting| setting.key == word || setting.table == word)
        || ARRAYS.iter().any(|array| array.name == word || array.has(word))
}

/// The message for an unknown key. `known` are the keys that can stand there.
fn unknown(key: &str, known: &[&str]) -> String {
    let elsewhere = groups::all().find(|setting| setting.key == key).map(|it| it.table);
    let edits_max = 1 + key.chars().count() / 4;
    let hint = match (elsewhere, nearest(key, edits_max, known.iter().copied())) {
        (Some(""), _) => "it belongs at the top, before the first [table]".to_owned(),
        (Some(table), _) => format!("it belongs in [{table}]"),
        (None, meant) => match (array_of(key), meant) {
            (Some(array), _) => format!("it belongs in [[{array}]]"),
            (None, Some(meant)) => format!("did you mean '{meant}'?"),
            (None, None) => format!("known here: {}", known.join(", ")),
        },
    };
    format!("unknown key '{key}'; {hint}")
}

/// The only tables of which there may be several that have this key.
fn array_of(key: &str) -> Option<&'static str> {
    let mut having = ARRAYS.iter().filter(|array| array.has(key));
    having.next().filter(|_| having.next().is_none()).map(|array| array.name)
}

/// A document on its way into settings.
struct DocumentReader<'t> {
    text: &'t str,
    name: &'t str,
    /// The mistakes, each with the offset at which it begins.
    mistakes: Vec<(usize, ConfigError)>,
}

impl DocumentReader<'_> {
    /// Reads all settings of a table.
    fn table(&mut self, table: &str, entries: DeTable<'_>, settings: &mut Settings) {
        let of_table = || groups::all().filter(|setting| setting.table == table);
        for (key, value) in entries {
            let (name, span) = (key.get_ref().as_ref(), key.span());
            let setting = of_table().find(|setting| setting.key == name);
            let array = ARRAYS.iter().find(|array| table.is_empty() && array.name == name);
            let is_table = table.is_empty() && tables().any(|table| table == name);
            if let Some(Setting { read, is_secret, .. }) = setting {
                self.value(*read, *is_secret, value, settings);
            } else if let Some(Array { read, is_secret, .. }) = array {
                self.value(*read, *is_secret, value, settings);
            } else if is_table {
                self.inner(name, value, settings);
            } else {
                let mut known: Vec<_> = of_table().map(|setting| setting.key).collect();
                if table.is_empty() {
                    known.extend(tables());
                    known.extend(ARRAYS.iter().map(|array| array.name));
                }
                self.add(Some(span), false, unknown(name, &known));
            }
        }
    }

    /// Reads a table of which there is one. It is written in single brackets.
    fn inner(&mut self, name: &str, value: Spanned<DeValue<'_>>, settings: &mut Settings) {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(entries) => self.table(name, entries, settings),
            DeValue::Array(items) => {
                let hint = match name {
                    "files" => "; a directory whose files are served is a [[static]]",
                    _ => "",
                };
                let message = format!("write [{name}], in single brackets: there is one{hint}");
                self.add(items.first().map(Spanned::span), true, message);
            }
            _ => self.add(Some(span), true, format!("[{name}] is a table of settings")),
        }
    }

    /// Reads a value. Each mistake in it costs one more pass.
    fn value(
        &mut self,
        read: Read<Settings>,
        is_secret: bool,
        mut value: Spanned<DeValue<'_>>,
        settings: &mut Settings,
    ) {
        let mut cut = Vec::new();
        while let Err(error) = read(value.clone().into(), settings) {
            let span = error.span();
            let is_consequence = error.message().starts_with(MISSING)
                && span.as_ref().is_some_and(|span| cut.contains(span));
            if !is_consequence {
                let explain = if is_secret { explain_secret } else { explain };
                self.add(span.clone(), is_secret, explain(error.message()));
            }
            match span.and_then(|span| cut_item(&mut value, span.start)) {
                Some(table) if self.mistakes.len() < MISTAKES_SOUGHT => cut.push(table),
                _ => break,
            }
        }
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
                // What cannot be parsed may be a part of any value.
                self.add(error.span(), true, explain(error.message()));
            }
        }
    }

    fn add(&mut self, span: Option<Range<usize>>, is_secret: bool, message: String) {
        let start = span.as_ref().map_or(0, |span| span.start);
        let mistake = match span {
            Some(span) => ConfigError::in_document(self.name, self.text, span, is_secret, message),
            None => ConfigError::new(self.name, message),
        };
        self.mistakes.push((start, mistake));
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
