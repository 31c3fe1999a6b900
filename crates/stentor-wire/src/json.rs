//! What the parser of JSON does not say.

/// Says that a string has half of a surrogate pair, if that is why the parser refuses a JSON text.
#[must_use]
pub fn surrogate_fault(text: &str, error: &serde_json::Error) -> Option<String> {
    let said = error.to_string();
    let is_of_escape = said.contains("surrogate") || said.contains("hex escape");
    let half = lone_surrogate(text).filter(|_| is_of_escape)?;
    Some(format!("A string has {half}, half of a surrogate pair: write both halves."))
}

/// The first escape in a JSON text that is half of a surrogate pair, such as `\\ud83d` (RFC 8259
/// section 8.2). It stands for no character, and the parser's own sentence does not name it.
fn lone_surrogate(text: &str) -> Option<&str> {
    let escape = |text: &'_ str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        rest = &rest[at..];
        let length = match escape(rest) {
            Some(0xd800..0xdc00) if matches!(escape(&rest[6..]), Some(0xdc00..0xe000)) => 12,
            Some(0xd800..0xe000) => return Some(&rest[..6]),
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        rest = &rest[length..];
    }
    None
}

/// What the parser says, without the place: in text of one line its line number says nothing.
#[must_use]
pub fn without_place(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    text.strip_suffix(&*place).map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_pairs_are_found() {
        for (text, half) in [
            (r#""\ud83d""#, Some(r"\ud83d")),
            (r#""\ude00""#, Some(r"\ude00")),
            (r#""\ud83d\ud83d\ude00""#, Some(r"\ud83d")),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud83d""#, None),
            (r#""\u00e4 \n \u12""#, None),
            ("\"\\", None),
            ("\\\u{e4}", None),
        ] {
            assert_eq!(lone_surrogate(text), half, "{text}");
        }
    }
}
