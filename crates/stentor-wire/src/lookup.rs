//! Look-ups: a list of names in, one line or JSON member per name out; and the writer of JSON
//! strings, which streams use as well.
//!
//! A [`Template`] is compiled once, when the configuration is read; writing a line is then a few
//! copies. Lines are byte for byte what the template says: nothing is escaped in them, since the
//! formats that look-ups imitate do not escape either. JSON strings are written without serde_json
//! because its writer looks at one byte at a time, and this one at 32.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr2;

use crate::target::{BadEscape, decode};

/// A line with `{name}` and `{value}` holes, compiled once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// The kind of each piece, and the bytes of a literal.
    pieces: Vec<(PieceKind, Vec<u8>)>,
}

impl Template {
    /// Compiles a template. `{{` and `}}` are literal braces. The error is a sentence that names
    /// the hole that is unknown, or says which brace has no partner.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(brace) = memchr2(b'{', b'}', rest.as_bytes()) {
            literal.extend_from_slice(&rest.as_bytes()[..brace]);
            rest = &rest[brace..];
            if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
                literal.push(rest.as_bytes()[0]);
                rest = after;
                continue;
            }
            let Some((hole, after)) = rest.strip_prefix('{').and_then(|hole| hole.split_once('}'))
            else {
                let brace = &rest[..1];
                return Err(format!("'{brace}' stands alone; write '{brace}{brace}' to mean it."));
            };
            if !literal.is_empty() {
                pieces.push((PieceKind::Literal, std::mem::take(&mut literal)));
            }
            let kind = match hole {
                "name" => PieceKind::Name,
                "value" => PieceKind::Value,
                _ => return Err(format!("'{{{hole}}}' is unknown; use {{name}} or {{value}}.")),
            };
            pieces.push((kind, Vec::new()));
            rest = after;
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            pieces.push((PieceKind::Literal, literal));
        }
        Ok(Template { pieces })
    }

    /// Appends the template with its holes filled to `out`.
    pub fn write(&self, out: &mut Vec<u8>, name: &str, value: &[u8]) {
        self.filled(name, value).for_each(|(_, bytes)| out.extend_from_slice(bytes));
    }

    /// What [`Template::write`] appends, piece by piece.
    pub fn filled<'a>(
        &'a self,
        name: &'a str,
        value: &'a [u8],
    ) -> impl Iterator<Item = (PieceKind, &'a [u8])> {
        self.pieces.iter().map(move |(kind, literal)| match kind {
            PieceKind::Literal => (*kind, &literal[..]),
            PieceKind::Name => (*kind, name.as_bytes()),
            PieceKind::Value => (*kind, value),
        })
    }

    /// The number of bytes that [`Template::write`] appends.
    pub fn written_len(&self, name: &str, value: &[u8]) -> usize {
        self.filled(name, value).map(|(_, bytes)| bytes.len()).sum()
    }

    /// Whether there is a `{name}`.
    pub fn has_name(&self) -> bool {
        self.pieces.iter().any(|(kind, _)| *kind == PieceKind::Name)
    }

    /// Whether there is a `{value}`.
    pub fn has_value(&self) -> bool {
        self.pieces.iter().any(|(kind, _)| *kind == PieceKind::Value)
    }
}

/// As it would be written, holes and literal braces included.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|(kind, literal)| match kind {
            PieceKind::Literal => {
                let text = String::from_utf8_lossy(literal);
                f.write_str(&text.replace('{', "{{").replace('}', "}}"))
            }
            PieceKind::Name => f.write_str("{name}"),
            PieceKind::Value => f.write_str("{value}"),
        })
    }
}

/// What a piece of a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceKind {
    /// As the template says.
    Literal,
    /// The name that was asked for.
    Name,
    /// The value.
    Value,
}

/// The names of a comma-separated list, percent-decoded one by one, so that "%2C" is a comma
/// within a name. Empty names are kept: each stands for a line, and an empty list is one of them.
/// The caller bounds how many it takes.
pub fn names(list: &[u8]) -> impl Iterator<Item = Result<Cow<'_, str>, BadEscape>> {
    list.split(|&byte| byte == b',').map(decode)
}

/// Appends `text` as a JSON string, quotes included, to `out` (RFC 8259 section 7).
pub fn json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    json_escaped(out, text.as_bytes());
    out.push(b'"');
}

/// Appends a part of a JSON string, without its quotes. A part may end within a character.
pub fn json_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = first_escaped(rest) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Where the first byte stands that is escaped. Most text has few of them: a processor compares
/// many bytes at once as long as it need not say which of them it was.
fn first_escaped(text: &[u8]) -> Option<usize> {
    let is_escaped = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
    let (chunks, _) = text.as_chunks::<32>();
    let is_plain = |chunk: &&[u8; 32]| !chunk.iter().fold(false, |any, &b| any | is_escaped(b));
    let plain = chunks.iter().take_while(is_plain).count() * 32;
    let at = text[plain..].iter().position(|&byte| is_escaped(byte))?;
    Some(plain + at)
}

/// How many bytes [`json_string`] appends. Counting is many times quicker than writing.
pub fn json_string_len(text: &str) -> usize {
    // So short a sum fits a byte, and a processor adds up many of them at once.
    let chunks = text.as_bytes().chunks(48);
    let added = |chunk: &[u8]| chunk.iter().map(|&byte| escape_added(byte)).sum::<u8>();
    text.len() + 2 + chunks.map(|chunk| usize::from(added(chunk))).sum::<usize>()
}

/// By how much escaping makes a byte longer.
fn escape_added(byte: u8) -> u8 {
    let is_short = matches!(byte, b'"' | b'\\' | b'\n' | b'\r' | b'\t');
    u8::from(is_short) + 5 * u8::from(byte < b' ' && !is_short)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests;
