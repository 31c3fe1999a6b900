//! Names in certificates: of hosts (RFC 9525 section 6.3), and of whom they were given to (RFC
//! 4514).

use der::oid::ObjectIdentifier;

use crate::x509::{Element, OID, SEQUENCE, SET, X509, inside};

/// Whether a name in a certificate may match one that is asked for: labels of ASCII, the first of
/// which may be `*`, as a whole and with something behind it.
pub(crate) fn is_presented_name(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= 253 && rest.split('.').all(label)
}

/// To whom a certificate was given.
pub(crate) fn subject(der: &[u8]) -> Option<String> {
    distinguished_name(X509::read(der).ok()?.subject)
}

/// A distinguished name as text (RFC 4514): the most particular part first, and with everything
/// escaped that could be taken for another part.
fn distinguished_name(name: Element<'_>) -> Option<String> {
    let mut text = String::new();
    for (i, part) in inside(name, SEQUENCE).ok()?.into_iter().rev().enumerate() {
        for (j, attribute) in inside(part, SET).ok()?.into_iter().enumerate() {
            text.push_str(match (i, j) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            let [(OID, id), (tag, bytes)] = inside(attribute, SEQUENCE).ok()?[..] else {
                return None;
            };
            // Numbers beyond 32 bits, which the library does not read, are shown as bytes, too.
            let oid = ObjectIdentifier::from_bytes(id);
            let oid = oid.map_or_else(|_| hexadecimal(id), |oid| oid.to_string());
            let keyword = KEYWORDS.iter().find(|(known, _)| *known == oid);
            match (keyword, str::from_utf8(bytes).ok().filter(|_| TEXTS.contains(&tag))) {
                (Some((_, keyword)), Some(value)) => {
                    text.push_str(keyword);
                    text.push('=');
                    escape(value, &mut text);
                }
                // What is no text, or has no name, is shown as bytes (section 2.4).
                _ => text.extend([&oid, "=", &hexadecimal(bytes)]),
            }
        }
    }
    Some(text)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("#".to_owned()).chain(digits).collect()
}

/// Section 2.4, and control characters besides.
fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (i, c) in value.chars().enumerate() {
        let is_special = matches!(c, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=')
            || (c == '#' && i == 0)
            || (c == ' ' && (i == 0 || i == last));
        if is_special {
            text.push('\\');
            text.push(c);
        } else if c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                text.push_str(&format!("\\{byte:02x}"));
            }
        } else {
            text.push(c);
        }
    }
}

/// Types of text with the same bytes in UTF-8: `NumericString`, `PrintableString`, `UTF8String` and
/// `IA5String`.
const TEXTS: [u8; 4] = [0x12, 0x13, 0x0c, 0x16];

/// Section 3, and the address that many certificates have.
const KEYWORDS: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_whole_labels_in_front() {
        for name in ["a.example", "*.a.example", "a", "xn--bcher-kva.example", "a_b.example"] {
            assert!(is_presented_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "*",
            "*.",
            "a.*.example",
            "f*.example",
            "*a.example",
            "**.example",
            "*.*.example",
            "a..example",
            "a.example.",
            "a b.example",
            "b\u{fc}cher.example",
        ] {
            assert!(!is_presented_name(name), "{name}");
        }
        assert!(!is_presented_name(&"a".repeat(64)));
        assert!(!is_presented_name(&["a"; 128].join(".")));
    }

    #[test]
    fn what_could_be_taken_for_another_part_is_escaped() {
        let check = |value: &str, expected: &str| {
            let mut text = String::new();
            escape(value, &mut text);
            assert_eq!(text, expected);
        };
        check("a", "a");
        check("", "");
        check("a,CN=admin", "a\\,CN\\=admin");
        check("a+b\"c\\d<e>f;g", "a\\+b\\\"c\\\\d\\<e\\>f\\;g");
        check(" a b ", "\\ a b\\ ");
        check(" ", "\\ ");
        check("#a#", "\\#a#");
        check("a\0\n", "a\\00\\0a");
        check("\u{85}", "\\c2\\85");
    }
}
