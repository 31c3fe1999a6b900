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
fn hashes_are_found_where_bundlers_write_them() {
    let hashed = [
        "app.3f2a9b1c.js",
        "main-5e4f3d2c1b.css",
        "index-BxYz12Ab.js",
        "chunk.3f2a9b1c.js.map",
        "style.3f2a9b1c.css.map",
        "chunk.3f2a9b1c.map",
        "app.3f2a9b1c.min.js",
        "app.3f2a9b1c.min.js.map",
        "logo_3f2a9b1c.svg",
        "/assets/js/index-4sK9dTz2.mjs",
        "my-page.2-3f2a9b1c5d6e7f80.js",
        "inter-latin-400-normal.d4f3a1b0c9e8.woff2",
        "photo.1a2b3c4d5e6f708192a3b4c5d6e7f809.avif",
        "a.b.c.3f2a9b1c.wasm",
        "x-9cb1b3f1-c4a6-4b5e-9d3e-5c2f7d8a1b0e.png",
    ];
    for name in hashed {
        assert!(is_hashed(name), "{name}");
    }
    let not = [
        "",
        ".",
        "app.js",
        "app.min.js",
        "3f2a9b1c.js",
        "-3f2a9b1c.js",
        "app.3f2a9b1c",
        "app.3f2a9b1c.",
        "app.3f2a9b1c.js/x",
        "app.3f2a9b1c/x.js",
        "3f2a9b1c/app.js",
        // Too short.
        "app.3f2a9b1.js",
        "index-BxYz12A.js",
        // Not what bundlers write.
        "page.3f2a9b1c.html",
        "notes-3f2a9b1c.pdf",
        "nightly-3f2a9b1c.zip",
        "user-3f2a9b1c.json",
        "app.3f2a9b1c.js.gz",
        "app.3f2a9b1c.js.map.bak",
        "app.3f2a9b1c.JS",
    ];
    for name in not {
        assert!(!is_hashed(name), "{name}");
    }
}

#[test]
fn hashes_are_told_from_words_and_numbers() {
    let not = [
        // Dates and numbers, with something behind them.
        "report-20240102.png",
        "photo-20240102a.jpg",
        "photo-2024dec31.jpg",
        "photo-31Dec2024.jpg",
        "photo-20240102T1200Z.jpg",
        "img-12345678.png",
        "img_0123456789.jpg",
        "build-1700000000.js",
        // Words, with a number or without.
        "date-picker.datepicker.js",
        "jquery.datepicker.min.js",
        "the-deadbeef.js",
        "menu-cafe2024.png",
        "menu-facade20.png",
        "screenshot-Version2.png",
        "my-Photo2024.jpg",
        "x-MacBookPro16.png",
        "camera-DSCn0123.jpg",
        "camera-DSC01234.jpg",
        "icon-HomePage.svg",
        // Versions and sizes.
        "jquery-3.7.1.min.js",
        "lib-1.2.3.js",
        "lib-12.34.56.78.js",
        "lib-v20240102.js",
        "lib-1.0.0-beta12.js",
        "banner-1920x1080.jpg",
        "logo-Bg-32x32.png",
        "logo-V2-32x32.png",
        "annual-Report-Q1-2024.png",
        // No digit, no letter, another alphabet, or parts that could be words.
        "index-DiwrgTda.js",
        "app.abcdefab.js",
        "app.3F2A9B1C.js",
        "app.3F2A9b1C.txt",
        "chunk-5EYDPZ6D.js",
        "index-BxYz_2Ab.js",
        "app.3f2a9b1c+.js",
        "app.3f2a\u{e9}9b1c.js",
    ];
    for name in not {
        assert!(!is_hashed(name), "{name}");
    }
}
