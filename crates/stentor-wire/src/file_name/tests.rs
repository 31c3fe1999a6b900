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

/// Random hashes as bundlers write them: their alphabet, and how many characters.
const BUNDLERS: [(&str, &[u8], usize); 4] = [
    // Vite and Rollup: base64url.
    ("-", b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", 8),
    // esbuild and Angular: base32.
    ("-", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 8),
    // Parcel and webpack: hexadecimal.
    (".", b"0123456789abcdef", 8),
    (".", b"0123456789abcdef", 20),
];

/// Names with random hashes of one bundler, always the same ones.
fn bundled((separator, alphabet, length): (&str, &[u8], usize)) -> impl Iterator<Item = String> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as usize
    };
    (0..100_000).map(move |_| {
        let hash: String =
            (0..length).map(|_| char::from(alphabet[random() % alphabet.len()])).collect();
        format!("index{separator}{hash}.js")
    })
}

#[test]
fn below_directories_of_bundlers_their_hashes_are_found() {
    for bundler in BUNDLERS {
        let all = bundled(bundler).count();
        let may = bundled(bundler).filter(|name| may_be_hashed(name)).count();
        assert_eq!(may, all, "{bundler:?}");
        let likely = |name: &String| is_hashed_asset("/assets/", name);
        let likely = bundled(bundler).filter(likely).count();
        // What reads like a word or a day: few, and a wrong yes would be served for a year.
        assert!(all - likely <= all / 1_000, "{bundler:?}: {likely} of {all}");
        assert!(bundled(bundler).all(|name| !is_hashed_asset("/site/", &name)));
    }
}

#[test]
fn what_bundlers_do_not_name_is_not_theirs() {
    for (directory, path, expected) in [
        ("/", "assets/index-DiwrgTda.js", true),
        ("/", "a/assets/js/index-DiwrgTda.js", true),
        ("/assets/", "index-DiwrgTda.js", true),
        ("/a/assets/b/", "index-DiwrgTda.js", true),
        ("/", "_astro/index.DiwrgTda.css", true),
        ("/", "_next/static/chunks/main-3f2a9b1c5d6e7f80.js", true),
        ("/", "assets/index-DiwrgTda.js.map", true),
        ("/", "assets/index-a_b-c_d-.js", true),
        ("/", "assets/logo.12345678.svg", true),
        ("/", "index-DiwrgTda.js", false),
        ("/", "my-assets/index-DiwrgTda.js", false),
        ("/", "assets.d/index-DiwrgTda.js", false),
        ("/", "x/index-DiwrgTda.js/assets", false),
        ("/", "assets/index-DiwrgTd.js", false),
        ("/", "assets/index-DiwrgTdab.js", false),
        ("/", "assets/DiwrgTda.js", false),
        ("/", "assets/-DiwrgTda.js", false),
        ("/", "assets/index-Diwr\u{e9}Tda.js", false),
        ("/", "assets/index-DiwrgTda.html", false),
        ("/", "assets/data-DiwrgTda.json", false),
        ("/", "assets/app.js", false),
        ("/", "assets/banner-homepage.jpg", false),
        ("/", "assets/banner-Homepage.jpg", false),
        ("/", "assets/theme-features.css", false),
        ("/", "assets/photo-20240102.jpg", false),
        ("/", "assets/inter-semibold.woff2", false),
    ] {
        assert_eq!(is_hashed_asset(directory, path), expected, "{directory} {path}");
    }
    for (name, expected) in [
        ("index-homepage.js", true),
        ("photo-20240102.jpg", true),
        ("main.3f2a9b1c5d6e7f80.js", true),
        ("main.abcdefabcdef.js", true),
        ("main.3F2A9B1C5D.js", false),
        ("homepage.js", false),
        ("page.2.js", false),
        ("main-20240102.min.7.js", false),
        ("index-DiwrgTda.txt", false),
        ("", false),
        ("-.js", false),
    ] {
        assert_eq!(may_be_hashed(name), expected, "{name}");
    }
}
