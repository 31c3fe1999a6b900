//! How a mistake in the configuration is shown: its place, what is wrong, the line, and a caret.
//!
//! ```text
//! stentor.toml:3:1: unknown key 'liten'; did you mean 'listen'?
//!   |
//! 3 | liten = "0.0.0.0:80"
//!   | ^^^^^
//! ```
//!
//! The line may hold a secret, also beside the mistake. So an excerpt shows the part with the
//! mistake if that is no secret, and of the rest only names of settings and the signs between them.
//!
//! The library `annotate-snippets` draws this too, and counts wide characters right. It needs the
//! same work before it.

use std::fmt;
use std::ops::Range;

use crate::document;

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
    /// The same, with what the file is called in front of its place.
    fn within(mut self, file: &str) -> ConfigError {
        self.place = format!("{file}: {}", self.place);
        self
    }

    /// A mistake that has no line to show.
    pub(crate) fn new(place: &str, message: impl Into<String>) -> ConfigError {
        ConfigError { place: place.to_owned(), message: message.into(), excerpt: String::new() }
    }

    /// A mistake in the bytes `span` of the document `text`, which is called `name`. If the span
    /// `is_secret`, the excerpt does not show it.
    pub(crate) fn in_document(
        name: &str,
        text: &str,
        span: Range<usize>,
        is_secret: bool,
        message: impl Into<String>,
    ) -> ConfigError {
        let at = floor_char(text, span.start);
        let line_start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let line_end = line_start + text[line_start..].lines().next().unwrap_or("").len();
        let number = text[..line_start].matches('\n').count() + 1;
        let end = floor_char(text, span.end).clamp(at, line_end.max(at));
        let (at_line, end_line) = (at.min(line_end), end.min(line_end));
        let column = text[line_start..at_line].chars().count() + 1;
        let before = masked(&text[line_start..at_line]);
        let within = &text[at_line..end_line];
        // mutation: shown-secret
        let within = if is_secret { masked(within) } else { within.to_owned() };
        let after = masked(&text[end_line..line_end]);
        let carets = "^".repeat(within.chars().count().max(1));
        // Tabs stay tabs, so that the caret stands under what it points at.
        let indent: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        let digits = number.to_string();
        let margin = " ".repeat(digits.len());
        ConfigError {
            place: format!("{name}:{number}:{column}"),
            message: message.into(),
            excerpt: format!(
                "{margin} |\n{digits} | {before}{within}{after}\n{margin} | {indent}{carets}"
            ),
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

/// The mistakes in a configuration, at least one and at most ten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    mistakes: Vec<ConfigError>,
}

impl ConfigErrors {
    /// The same, with what the file is called in front of each place.
    #[must_use]
    pub fn within(self, file: &str) -> ConfigErrors {
        self.mistakes.into_iter().map(|mistake| mistake.within(file)).collect()
    }

    /// For each mistake its place and what is wrong there.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        self.mistakes.iter().map(|mistake| (&*mistake.place, &*mistake.message))
    }

    /// The first mistake and how many there are beside it, for a log of one line per event.
    #[must_use]
    pub fn in_one_line(&self) -> String {
        let shown = self.to_string();
        let first = shown.lines().next().unwrap_or_default();
        match self.mistakes.len() {
            0 | 1 => first.to_owned(),
            2 => format!("{first} (and 1 more mistake, which stentor check shows)"),
            many => format!("{first} (and {} more mistakes, which stentor check shows)", many - 1),
        }
    }

    /// `Ok` if there is no mistake.
    pub(crate) fn none_of(mistakes: impl IntoIterator<Item = ConfigError>) -> Result<(), Self> {
        let mistakes: Vec<_> = mistakes.into_iter().collect();
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes.into_iter().collect()) }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(mistake: ConfigError) -> ConfigErrors {
        ConfigErrors { mistakes: vec![mistake] }
    }
}

impl FromIterator<ConfigError> for ConfigErrors {
    fn from_iter<I: IntoIterator<Item = ConfigError>>(mistakes: I) -> ConfigErrors {
        ConfigErrors { mistakes: mistakes.into_iter().take(MISTAKES_MAX).collect() }
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.mistakes.into_iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.mistakes.iter().enumerate() {
            write!(f, "{}{mistake}", if i == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// How many mistakes are shown at once.
const MISTAKES_MAX: usize = 10;

/// A part of a line with only the names of settings and the signs of the grammar. The rest of the
/// text is cut, whatever it is: a value of another setting, of an unknown key, or a line of a text
/// that has several.
fn masked(part: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let (mut out, mut rest) = (String::new(), part);
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (piece, behind) = rest.split_at(word);
        if SIGNS.contains(first) || document::is_name(piece) {
            out += piece;
        } else if !out.ends_with(CUT) {
            out.push(CUT);
        }
        rest = behind;
    }
    out
}

/// Stands in an excerpt for text that may be a secret.
const CUT: char = '…';

/// The signs that an excerpt shows: those between keys and values, and around them.
const SIGNS: &str = " \t[]{}=,\"'#";

/// The one of `known` that is nearest to `word`, at most `edits_max` edits away.
pub(crate) fn nearest<'k>(
    word: &str,
    edits_max: usize,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let distance = |candidate: &str| strsim::osa_distance(&word.to_ascii_lowercase(), candidate);
    known
        .into_iter()
        .map(|candidate| (distance(&candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= edits_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The largest character boundary of `text` that is not after `index`.
fn floor_char(text: &str, index: usize) -> usize {
    text.floor_char_boundary(index.min(text.len()))
}
