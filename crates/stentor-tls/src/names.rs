//! Names in certificates: of hosts (RFC 9525 section 6.3), and of whom they were given to (RFC
//! 4514).
//!
//! `Display` of x509-cert would write distinguished names, but with other keywords, without
//! escaping control characters from U+0080 on, and for 75 KB of names that nothing else needs.

use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::name::Name;
use x509_cert::time::Time;

/// A certificate of any serial number: it is not for this program to judge these.
pub(crate) type X509 = CertificateInner<Raw>;

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

/// To whom a certificate was given, and until when it is valid.
pub(crate) fn subject(der: &[u8]) -> Option<(String, i64)> {
    let certificate = X509::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate();
    let not_after = unix_s(&certificate.validity().not_after);
    Some((distinguished_name(certificate.subject()), not_after))
}

/// Seconds since 1970.
pub(crate) fn unix_s(time: &Time) -> i64 {
    i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}

/// A distinguished name as text (RFC 4514): the most particular part first, and with everything
/// escaped that could be taken for another part.
fn distinguished_name(name: &Name) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter_rdn().collect();
    for (i, part) in parts.iter().rev().enumerate() {
        for (j, attribute) in part.iter().enumerate() {
            text.push_str(match (i, j) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            let oid = attribute.oid.to_string();
            let keyword = KEYWORDS.iter().find(|(known, _)| *known == oid);
            let bytes = attribute.value.value();
            let is_text = TEXTS.contains(&attribute.value.tag());
            match (keyword, str::from_utf8(bytes).ok().filter(|_| is_text)) {
                (Some((_, keyword)), Some(value)) => {
                    text.push_str(keyword);
                    text.push('=');
                    escape(value, &mut text);
                }
                // What is no text, or has no name, is shown as bytes (section 2.4).
                _ => {
                    text.push_str(&oid);
                    text.push_str("=#");
                    for byte in bytes {
                        text.push_str(&format!("{byte:02x}"));
                    }
                }
            }
        }
    }
    text
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

/// What is text, and the same bytes in UTF-8.
const TEXTS: [Tag; 4] = [Tag::NumericString, Tag::PrintableString, Tag::Utf8String, Tag::Ia5String];

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
