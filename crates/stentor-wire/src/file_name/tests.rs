//! Tables of file names.

use super::*;

#[test]
fn types_come_from_extensions() {
    let rows = [
        ("index.html", "text/html; charset=utf-8"),
        ("INDEX.HTM", "text/html; charset=utf-8"),
        ("/a/b.c/style.Css", "text/css; charset=utf-8"),
        ("app.3f2a9b1c.js", "text/javascript; charset=utf-8"),
        ("app.mjs", "text/javascript; charset=utf-8"),
        ("app.js.map", "application/json"),
        ("app.js.gz", "application/gzip"),
        ("data.json", "application/json"),
        ("feed.xml", "application/xml"),
        ("feed.rss", "application/rss+xml"),
        ("logo.svg", "image/svg+xml"),
        ("a.7z", "application/x-7z-compressed"),
        ("a.zst", "application/zstd"),
        ("site.webmanifest", "application/manifest+json"),
        ("site.WEBMANIFEST", "application/manifest+json"),
        ("part.ts", "video/mp2t"),
        ("font.woff", "font/woff"),
        ("font.woff2", "font/woff2"),
        (".png", "image/png"),
        // Nothing that is known.
        ("", BYTES),
        ("LICENSE", BYTES),
        ("html", BYTES),
        ("a.", BYTES),
        ("a.html.", BYTES),
        ("a.html~", BYTES),
        ("a.html ", BYTES),
        ("a.htmlx", BYTES),
        ("a.webmanifestx", BYTES),
        ("a.bin", BYTES),
        ("a.br", BYTES),
        ("a.html/b", BYTES),
        ("a.h\u{fc}ml", BYTES),
        ("a.\u{212a}ml", BYTES),
    ];
    for (name, expected) in rows {
        assert_eq!(content_type(name), expected, "{name}");
    }
}

#[test]
fn the_table_is_in_order() {
    assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted, and each once");
    let longest = TYPES.iter().map(|(extension, _)| extension.len()).max();
    assert_eq!(longest, Some(EXTENSION_BYTES_MAX));
    for (extension, content_type) in TYPES {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        assert!(!extension.is_empty() && extension.bytes().all(is_plain), "{extension}");
        assert_eq!(super::content_type(&format!("a.{extension}")), *content_type);
        assert_eq!(super::content_type(&format!("a.{}", extension.to_uppercase())), *content_type);
        let (essence, charset) = match content_type.split_once("; ") {
            Some((essence, parameter)) => (essence, parameter == "charset=utf-8"),
            None => (*content_type, false),
        };
        assert_eq!(charset, essence.starts_with("text/"), "{content_type}");
        assert!(essence.split('/').count() == 2 && *content_type != BYTES, "{content_type}");
        let is_good = |char: char| char.is_ascii_lowercase() || "0123456789/.+-".contains(char);
        assert!(essence.chars().all(is_good), "{content_type}");
    }
}

#[test]
fn names_that_platforms_prescribe_have_types() {
    for name in ["apple-app-site-association", ".well-known/openid-configuration"] {
        assert_eq!(content_type(name), "application/json", "{name}");
    }
    assert_eq!(content_type(".well-known/assetlinks.json"), "application/json");
    assert_eq!(content_type("x-apple-app-site-association"), "application/octet-stream");
}
