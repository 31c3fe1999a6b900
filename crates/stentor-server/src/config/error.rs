//! How a mistake in the configuration is shown: its place, what is wrong, the line, and a caret.
//!
//! ```text
//! stentor.toml:3:1: unknown key 'liten'; did you mean 'listen'?
//!   |
//! 3 | liten = "0.0.0.0:80"
//!   | ^^^^^
//! ```

use std::fmt;
use std::ops::Range;

/// A mistake in the configuration, ready to be printed (several lines, no newline at the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// `stentor.toml:3:1`, or the name of an environment variable or a setting.
    place: String,
    message: String,
    /// The offending line with a caret under it; empty when there is no line.
    excerpt: String,
}

impl ConfigError {
    /// A mistake that has no line to show.
    pub(super) fn new(place: &str, message: impl Into<String>) -> ConfigError {
        ConfigError { place: place.to_owned(), message: message.into(), excerpt: String::new() }
    }

    /// A mistake in the bytes `span` of the document `text`, which is called `name`.
    pub(super) fn in_document(
        name: &str,
        text: &str,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> ConfigError {
        let at = floor_char(text, span.start);
        let line_start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let line = text[line_start..].lines().next().unwrap_or("");
        let number = text[..line_start].matches('\n').count() + 1;
        let before = &text[line_start..at.min(line_start + line.len())];
        let column = before.chars().count() + 1;
        let end = floor_char(text, span.end).clamp(at, (line_start + line.len()).max(at));
        let carets = "^".repeat(text[at..end].chars().count().max(1));
        // Tabs stay tabs, so that the caret stands under what it points at.
        let indent: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        let line = masked(line);
        let digits = number.to_string();
        let margin = " ".repeat(digits.len());
        ConfigError {
            place: format!("{name}:{number}:{column}"),
            message: message.into(),
            excerpt: format!("{margin} |\n{digits} | {line}\n{margin} | {indent}{carets}"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A line without what may be a password: all between the first quotation mark and the last `@`.
fn masked(line: &str) -> String {
    let begin = line.find(['"', '\'']).map(|at| at + 1);
    let secret = begin.zip(line.rfind('@')).filter(|(begin, end)| begin < end);
    let Some((begin, end)) = secret else { return line.to_owned() };
    // The caret stands under what it points at.
    let stars = "*".repeat(line[begin..end].chars().count());
    format!("{}{stars}{}", &line[..begin], &line[end..])
}

/// The one of `known` that `word` was most likely meant to be, if any is near enough.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |candidate: &str| strsim::osa_distance(&word.to_ascii_lowercase(), candidate);
    known
        .into_iter()
        .map(|candidate| (distance(&candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= 1 + word.chars().count() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The largest character boundary of `text` that is not after `index`.
fn floor_char(text: &str, index: usize) -> usize {
    text.floor_char_boundary(index.min(text.len()))
}
