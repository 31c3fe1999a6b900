//! Templates, lists of names, and strings.

use super::*;

/// The line a template makes.
fn line(template: &str, name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = b">".to_vec();
    Template::parse(template).expect("the template is good").write(&mut out, name, value);
    out
}

#[test]
fn holes_are_filled() {
    let rows: &[(&str, &[u8])] = &[
        ("", b">"),
        ("plain", b">plain"),
        ("{name}", b">n"),
        ("{value}{name}{value}", b">v\"\xffnv\"\xff"),
        ("var hq_str_{name}=\"{value}\";", b">var hq_str_n=\"v\"\xff\";"),
        ("{{{name}}}", b">{n}"),
        ("{{name}}", b">{name}"),
        ("}}{{", b">}{"),
        ("\u{e9}{name}\u{e9}", b">\xc3\xa9n\xc3\xa9"),
    ];
    for (template, expected) in rows {
        assert_eq!(line(template, "n", b"v\"\xff"), *expected, "{template}");
    }
    assert_eq!(line("{name}", "{value}", b"x"), b">{value}", "names are not templates");
}

#[test]
fn templates_know_their_holes() {
    for (text, name, value) in
        [("{name}", true, false), ("{value}", false, true), ("{{name}}", false, false)]
    {
        let template = Template::parse(text).expect("the template is good");
        assert_eq!((template.has_name(), template.has_value()), (name, value), "{text}");
    }
}

#[test]
fn bad_templates_say_what_is_wrong() {
    let rows = [
        ("{nmae}", "'{nmae}' is unknown"),
        ("{}", "'{}' is unknown"),
        ("{ name }", "'{ name }' is unknown"),
        ("{Name}", "'{Name}' is unknown"),
        ("{a{name}", "'{a{name}' is unknown"),
        ("{name", "'{' stands alone"),
        ("a}b", "'}' stands alone"),
        ("{name}}", "'}' stands alone"),
        ("{", "'{' stands alone"),
    ];
    for (template, reason) in rows {
        let found = Template::parse(template).expect_err(template);
        assert!(found.starts_with(reason), "{template}: {found}");
    }
}

#[test]
fn lists_keep_their_empty_names() {
    let all = |list: &str| names(list.as_bytes()).map(|name| name.map(Cow::into_owned)).collect();
    let rows: &[(&str, &[&str])] = &[
        ("a", &["a"]),
        ("a,b,c", &["a", "b", "c"]),
        ("", &[""]),
        (",", &["", ""]),
        ("a,,b,", &["a", "", "b", ""]),
        ("a%2Cb,c+d,%C3%A9", &["a,b", "c+d", "\u{e9}"]),
    ];
    for (list, expected) in rows {
        let found: Vec<Result<String, BadEscape>> = all(list);
        let expected: Vec<_> = expected.iter().map(|&name| Ok(name.to_owned())).collect();
        assert_eq!(found, expected, "{list}");
    }
    let found: Vec<_> = all("a,%,b");
    assert_eq!(found, [Ok("a".to_owned()), Err(BadEscape), Ok("b".to_owned())]);
}

#[test]
fn strings_are_escaped_as_json_wants() {
    let rows = [
        ("", "\"\""),
        ("plain \u{e9}\u{7f}\u{2028}/", "\"plain \u{e9}\u{7f}\u{2028}/\""),
        ("\"\\\n\r\t", r#""\"\\\n\r\t""#),
        ("a\0b\u{1f}", r#""a\u0000b\u001f""#),
    ];
    for (text, expected) in rows {
        let mut out = Vec::new();
        json_string(&mut out, text);
        assert_eq!(out, expected.as_bytes(), "{text:?}");
        assert_eq!(json_string_len(text), expected.len(), "{text:?}");
    }
    let longest = "\0".repeat(1_000);
    assert_eq!(json_string_len(&longest), 6_002);
}
