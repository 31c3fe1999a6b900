//! Tables of paths, queries and topics.

use super::*;
use proptest::prelude::*;
use std::path::{Component, Path};

#[test]
fn targets_split_at_the_first_mark() {
    assert_eq!(split(b"/a"), (&b"/a"[..], None));
    assert_eq!(split(b"/a?"), (&b"/a"[..], Some(&b""[..])));
    assert_eq!(split(b"/a?b?c"), (&b"/a"[..], Some(&b"b?c"[..])));
    assert_eq!(split(b"?"), (&b""[..], Some(&b""[..])));
}

#[test]
fn paths_are_decoded_once() {
    let good: &[(&str, &str)] = &[
        ("", ""),
        ("/a+b", "/a+b"),
        ("/a%20b", "/a b"),
        ("/%c3%A9", "/\u{e9}"),
        ("/%252e%2E", "/%2e."),
        ("/a%2Fb", "/a/b"),
        ("%00", "\0"),
        ("%25", "%"),
    ];
    for (path, decoded) in good {
        assert_eq!(decode(path.as_bytes()).as_deref(), Ok(*decoded), "{path}");
    }
    assert!(matches!(decode(b"/a"), Ok(Cow::Borrowed("/a"))), "nothing to decode, nothing copied");
    let bad: &[&[u8]] = &[
        b"%",
        b"%2",
        b"/a%",
        b"%zz",
        b"%2g",
        b"%g2",
        b"%%20",
        b"%u0041",
        b"% 20",
        b"%+1",
        b"%ff",
        b"%c3",
        b"%c0%ae",
        b"%ed%a0%80",
        b"\xff",
        b"%20\xff",
    ];
    for path in bad {
        assert_eq!(decode(path), Err(BadEscape), "{path:?}");
    }
}

#[test]
fn queries_are_pairs() {
    let all = |query: &str| {
        let owned = pairs(query.as_bytes()).map(|pair| {
            let (name, value) = pair?;
            Ok::<_, BadEscape>((name.into_owned(), value.into_owned()))
        });
        owned.collect::<Result<Vec<_>, _>>()
    };
    let rows: &[(&str, &[(&str, &str)])] = &[
        ("", &[]),
        ("&&", &[]),
        ("a", &[("a", "")]),
        ("a=", &[("a", "")]),
        ("=b", &[("", "b")]),
        ("=", &[("", "")]),
        ("a=b", &[("a", "b")]),
        ("a=b=c", &[("a", "b=c")]),
        ("a=b&a=c&&d", &[("a", "b"), ("a", "c"), ("d", "")]),
        ("a+b=c+d%2B", &[("a b", "c d+")]),
        ("a%26b=%3D", &[("a&b", "=")]),
        ("topic=/a/%C3%A9", &[("topic", "/a/\u{e9}")]),
    ];
    for (query, expected) in rows {
        let found = all(query).expect("the query is good");
        let found: Vec<_> = found.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        assert_eq!(found, *expected, "{query}");
    }
    for query in ["a=%", "%=a", "a=%ff", "a=b&c=%0"] {
        assert_eq!(all(query), Err(BadEscape), "{query}");
    }
}

#[test]
fn topics_keep_the_rules() {
    let longest = format!("/{}", "a".repeat(TOPIC_BYTES_MAX - 1));
    let good = [
        "/a",
        "/scores/lal-bos",
        "/a b",
        "/\u{e9}",
        "/...",
        "/.a",
        "/a.",
        "/-a",
        "/a/-",
        "/a/-/b",
        "/a/.well-known/b",
        "/.well-knownx",
        "/%2e",
        "/a\\b",
        "/*",
        &longest,
    ];
    for name in good {
        assert_eq!(TopicName::parse(name).as_deref(), Ok(name), "{name}");
    }
    let too_long = format!("{longest}a");
    let bad = [
        ("", "begin"),
        ("a", "begin"),
        ("a/b", "begin"),
        (&too_long, "512"),
        ("/", "segment"),
        ("//", "segment"),
        ("//a", "segment"),
        ("/a//b", "segment"),
        ("/a/", "segment"),
        ("/.", "segment"),
        ("/..", "segment"),
        ("/a/../b", "segment"),
        ("/a/.", "segment"),
        ("/a\0", "control"),
        ("/a\n", "control"),
        ("/a\tb", "control"),
        ("/\u{7f}", "control"),
        ("/\u{85}", "control"),
        ("/\u{9f}", "control"),
        ("/-", "reserved"),
        ("/-/a", "reserved"),
        ("/.well-known", "reserved"),
        ("/.well-known/a", "reserved"),
    ];
    for (name, reason) in bad {
        let found = TopicName::parse(name).expect_err(name);
        assert!(found.detail.contains(reason), "{name:?}: {found}");
    }
}

#[test]
fn names_of_topics_come_from_paths() {
    let name = |path: &'static str| TopicName::from_path(path.as_bytes());
    assert!(matches!(name("/a/b"), Ok(TopicName(Cow::Borrowed("/a/b")))));
    assert_eq!(name("/a%2Fb").as_deref(), Ok("/a/b"));
    assert_eq!(name("/%252e").as_deref(), Ok("/%2e"), "decoded once");
    assert_eq!(name("/a%2"), Err(BAD_PATH));
    assert_eq!(name("/%ff"), Err(BAD_PATH));
    assert!(name("/a/%2e%2e").unwrap_err().detail.contains("segment"));
    assert!(name("/%2d/a").unwrap_err().detail.contains("reserved"));
}

#[test]
fn files_keep_the_rules() {
    let segment = "s".repeat(SEGMENT_BYTES_MAX);
    let longest = "/a".repeat(PATH_BYTES_MAX / 2);
    let rows: &[(&str, bool)] = &[
        ("/", true),
        ("/a", true),
        ("/a/", true),
        ("/a/b.c/d", true),
        ("/a b", true),
        ("/\u{e9}", true),
        ("/a.", true),
        ("/a..b", true),
        ("/a/-/x", true),
        ("/-a", true),
        ("/a:b", true),
        ("/~", true),
        ("/%2e%2e/%2f", true),
        ("/.well-known", true),
        ("/.well-known/", true),
        ("/.well-known/acme-challenge/x", true),
        (&format!("/{segment}/{segment}"), true),
        (&longest, true),
        // Refused.
        ("", false),
        ("a", false),
        ("*", false),
        ("//", false),
        ("//a", false),
        ("/a//b", false),
        ("/a//", false),
        ("/.", false),
        ("/./", false),
        ("/..", false),
        ("/../", false),
        ("/../a", false),
        ("/a/../b", false),
        ("/a/..", false),
        ("/a/./b", false),
        ("/.git/../a", false),
        ("/..\\a", false),
        ("/a\\b", false),
        ("/a\0", false),
        ("/a\0.html", false),
        ("/\u{7f}", false),
        ("/a\u{85}b", false),
        ("/.git/a\n", false),
    ];
    for (path, is_good) in rows {
        match check_file(path) {
            Ok(()) => assert!(is_good, "{path:?}"),
            Err(NotAFile::Refused(reason)) => {
                assert!(!is_good && reason.detail.ends_with('.'), "{path:?}: {reason}");
            }
            Err(NotAFile::Hidden) => panic!("{path:?} is hidden"),
        }
    }
}

#[test]
fn files_that_are_nobodys_business_are_hidden() {
    let segment = "s".repeat(SEGMENT_BYTES_MAX);
    let too_long = "/a".repeat(PATH_BYTES_MAX / 2 + 1);
    let paths = [
        "/.git",
        "/.git/config",
        "/a/.htaccess",
        "/...",
        "/.. ",
        "/.a/",
        "/a/.well-known",
        "/a/.well-known/b",
        "/.well-known/.a",
        "/.well-knownx",
        "/.Well-Known/a",
        "/-",
        "/-/",
        "/-/x",
        &format!("/{segment}s"),
        &format!("/a/{segment}s/b"),
        &too_long,
    ];
    for path in paths {
        assert_eq!(check_file(path), Err(NotAFile::Hidden), "{path:?}");
    }
}

#[test]
fn no_control_character_names_a_file() {
    for byte in (0..b' ').chain([0x7f]) {
        for path in [format!("/{}", char::from(byte)), format!("/a{}b/c", char::from(byte))] {
            assert!(matches!(check_file(&path), Err(NotAFile::Refused(_))), "{path:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Even one who puts root and path together as text stays beneath the root.
    #[test]
    fn files_are_beneath_the_root(path in "/([a.]|\\.\\.|/|\\\\|\\PC|well-known){0,8}") {
        if check_file(&path).is_ok() {
            let joined = Path::new("/srv/root").join(&path[1..]);
            let beneath = joined.strip_prefix("/srv/root").expect("it begins with the root");
            prop_assert!(beneath.components().all(|part| matches!(part, Component::Normal(_))));
            let written = format!("/{}", beneath.to_str().expect("it is text"));
            prop_assert_eq!(&written, if path == "/" { "/" } else { path.trim_end_matches('/') });
        }
    }
}

#[test]
fn hosts_and_ports() {
    for (authority, expected) in [
        ("a", Some(("a", None))),
        ("a.example:80", Some(("a.example", Some(80)))),
        ("127.0.0.1:65535", Some(("127.0.0.1", Some(65535)))),
        ("[::1]", Some(("[::1]", None))),
        ("[::1]:1", Some(("[::1]", Some(1)))),
        ("[fe80::1%eth0]:1", Some(("[fe80::1%eth0]", Some(1)))),
        ("", None),
        (":80", None),
        ("a:", None),
        ("a:b", None),
        ("a:0", None),
        ("a:+80", None),
        ("a:-1", None),
        ("a:65536", None),
        ("a:1:2", None),
        ("::1", None),
        ("[::1", None),
        ("::1]", None),
        ("[]", None),
        ("[a]", None),
        ("[::1]80", None),
        ("[::1]]", None),
        ("[[::1]]", None),
        ("a[::1]", None),
    ] {
        assert_eq!(host_and_port(authority), expected, "{authority}");
    }
}

#[test]
fn parameters_are_known_or_refused() {
    let read = |query: &str| {
        let owned = |(name, value): (Cow<'_, str>, Cow<'_, str>)| format!("{name}={value}");
        let pairs = parameters(query.as_bytes(), &["a", "since"]);
        let detail = |rejection: Rejection| rejection.detail.into_owned();
        pairs.map(|pair| pair.map(owned).map_err(detail)).collect::<Result<Vec<_>, _>>()
    };
    let unknown = |name: &str| {
        Err(format!("There is no parameter '{name}'; there are a, since and access_token."))
    };
    assert_eq!(
        read("a=1&access_token=s&since=%2F&a"),
        Ok(["a=1", "since=/", "a="].map(String::from).into())
    );
    assert_eq!(read("access_token"), Ok(vec![]));
    assert_eq!(read("a=1&A=2"), unknown("A"));
    assert_eq!(read("%0a"), unknown("\\n"));
    assert_eq!(read(&"x".repeat(500)), unknown(&("x".repeat(160) + "...")));
    assert_eq!(read("a=%4"), Err(format!("The query is broken. {BadEscape}")));
    assert_eq!(read("access_token=%4"), Err(format!("The query is broken. {BadEscape}")));
}

#[test]
fn a_message_is_not_published_under_a_pattern() {
    for name in ["/*", "/**", "/conf/*", "/a/**", "/*/a", "/***", "/a*", "/*a", "/a/b*c"] {
        let name = TopicName::parse(name).unwrap();
        assert!(name.published().unwrap_err().detail.contains("kept for patterns"));
    }
    for name in ["/a", "/a/b"] {
        assert!(TopicName::parse(name).unwrap().published().is_ok(), "{name}");
    }
}
