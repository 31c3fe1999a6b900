//! Every way to get the configuration wrong, and what is said about it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::*;
use crate::setting::ValueShape;

mod all;

fn error(text: &str) -> String {
    match Settings::from_toml(text, "stentor.toml") {
        Err(error) => error.to_string(),
        Ok(settings) => panic!("accepted: {text:?} as {settings:?}"),
    }
}

/// The first line of the error.
fn headline(text: &str) -> String {
    error(text).lines().next().unwrap().to_owned()
}

fn environment(pairs: &[(&str, &str)]) -> Result<Settings, String> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::load(None, pairs).map_err(|error| error.to_string())
}

#[test]
fn a_whole_document() {
    let text = r#"
        listen = ["0.0.0.0:80", "[::1]:80"]
        control = "unix:/run/stentor.sock"
        workers = 4
        pin = true
        user = "stentor"
        server_header = false
        drain = "2s"
        [log]
        level = "debug"
        format = "json"
        [limits]
        head_timeout = "5s"
        keep_alive_timeout = 20
        write_timeout = "1m"
        body_rate_min = "1 KiB"
        message_bytes_max = "64 KiB"
        topics_max = 10
        names_max = 5
        connections_max = 100000
        connections_per_address = 50
        close = "reset"
        [cors]
        origins = ["https://example.com"]
        [[topics]]
        match = "/quotes/*"
        history = 1
        history_bytes = "64 KiB"
        cache_control = "max-age=1"
        content_type = "application/json"
        [[topics]]
        match = "/news/**"
        [[lookup]]
        path = "/list="
        topics = "/quotes/{name}"
        line = 'var hq_str_{name}="{value}";'
        [[lookup]]
        path = "/json="
        topics = "/quotes/{name}"
    "#;
    let settings = Settings::from_toml(text, "stentor.toml").unwrap();
    settings.validate().unwrap();
    assert_eq!(settings.listen, ["0.0.0.0:80".parse().unwrap(), "[::1]:80".parse().unwrap()]);
    assert_eq!(settings.user.as_deref(), Some("stentor"));
    assert_eq!((settings.log.level, settings.log.format), (Level::DEBUG, LogFormat::Json));
    assert_eq!(settings.control, [ControlAddress::Unix("/run/stentor.sock".into()).into()]);
    assert_eq!((settings.workers, settings.pin, settings.server_header), (4, true, false));
    assert_eq!(settings.drain_ms, 2_000);
    assert_eq!(settings.limits.head_timeout_ms, 5_000);
    assert_eq!(settings.limits.keep_alive_timeout_ms, 20_000);
    assert_eq!(settings.limits.write_timeout_ms, 60_000);
    assert_eq!(settings.limits.body_rate_min, 1_024);
    assert_eq!(settings.limits.message_bytes_max, 65_536);
    assert_eq!((settings.limits.topics_max, settings.limits.names_max), (10, 5));
    assert_eq!(settings.limits.connections_max, 100_000);
    assert_eq!(settings.limits.connections_per_address, OrAuto::Set(50));
    assert_eq!(settings.limits.close, Close::Reset);
    assert_eq!(settings.cors.origins, ["https://example.com"]);
    assert_eq!(settings.topics.len(), 2);
    let content_type = |topic| settings.content_type(topic).map(ContentType::as_str);
    assert_eq!(content_type("/quotes/a"), Some("application/json"));
    assert_eq!(content_type("/elsewhere"), None);
    assert_eq!((settings.topics[0].history, settings.topics[0].history_bytes), (1, 65_536));
    let cache_control = settings.topics[0].cache_control.as_ref();
    assert_eq!(cache_control.map(|value| value.as_str()), Some("max-age=1"));
    assert_eq!(settings.lookups[0].path, "/list=");
    assert_eq!(settings.lookups[0].content_type, "text/javascript; charset=utf-8");
    assert_eq!(settings.lookups[1].content_type, "application/json");
}

#[test]
fn static_files() {
    let text = r#"
        [files]
        cache_bytes_max = "64 GiB"
        small_bytes_max = "16 MiB"
        [[static]]
        root = "/srv/www"
        fallback = "app/index.html"
        [[static]]
        path = "/docs"
        root = "docs"
        listing = true
        symlinks = true
        cache_control = "max-age=60"
        immutable = ["/docs/assets/**", "/docs/logo.svg"]
    "#;
    let settings = Settings::from_toml(text, "stentor.toml").unwrap();
    settings.validate().unwrap();
    assert_eq!(settings.files.cache_bytes_max, 64 << 30);
    assert_eq!(settings.files.small_bytes_max, 16 << 20);
    let site = Mount { fallback: Some("app/index.html".to_owned()), ..Mount::new("/", "/srv/www") };
    let docs = Mount {
        path: "/docs/".to_owned(),
        root: "docs".into(),
        fallback: None,
        listing: true,
        symlinks: true,
        cache_control: CacheControl::parse("max-age=60").unwrap(),
        immutable: ["/docs/assets/**", "/docs/logo.svg"]
            .map(|it| Pattern::parse(it).unwrap())
            .into(),
        read: Readers::Anyone,
    };
    assert_eq!(settings.mounts, [site, docs]);
    for (text, expected) in [
        ("true", "invalid type: boolean 'true', expected a string or a list of strings"),
        ("'bundled'", "'bundled' is not a pattern of paths: write one such as '/assets/**'"),
        ("['/a/**/b']", "'/a/**/b' is not a pattern of paths"),
    ] {
        let error = headline(&format!("[[static]]\nroot = 'www'\nimmutable = {text}\n"));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_empty_document_is_the_defaults() {
    let settings = Settings::from_toml("", "stentor.toml").unwrap();
    settings.validate().unwrap();
    assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
}

#[test]
fn what_is_kept() {
    let text = "[store]\npath = '/var/lib/stentor'\nkeep = 'written'\n\
                [[topics]]\nmatch = '/a'\nkeep = 'none'\n[[topics]]\nmatch = '/b'";
    let settings = Settings::from_toml(text, "f").unwrap();
    assert_eq!(settings.store.path.as_deref(), Some(Path::new("/var/lib/stentor")));
    assert_eq!(settings.store.keep, Keep::Written);
    assert_eq!(settings.topics[0].keep, Some(Keep::None));
    assert_eq!(settings.topics[1].keep, None);
    let from = |text| Settings::from_toml(text, "f").unwrap().store;
    assert_eq!((from("").path, from("").keep), (None, Keep::Synced));
    assert_eq!(from("[store]\npath = ''").path, None);
    for (name, keep) in [("synced", Keep::Synced), ("memory", Keep::Memory)] {
        assert_eq!(environment(&[("STENTOR_STORE_KEEP", name)]).unwrap().store.keep, keep);
    }
    check(&[(
        "[store]\nkeep = 'disk'",
        "2:8: 'disk' is not a way to keep messages: write 'synced', 'written', 'memory' or \
         'none'",
    )]);
}

#[test]
fn names_of_the_control_listener() {
    let of = |text: &str| {
        let text = format!("control_hosts = {text}");
        Settings::from_toml(&text, "stentor.toml").unwrap().control_hosts
    };
    assert_eq!(of("'stentor.internal'"), ["stentor.internal"]);
    assert_eq!(of("['a_b', 'c-d.example:8081']"), ["a_b", "c-d.example"]);
    for bad in ["", "a b", "http://a", "*", ":80", "a/b"] {
        let error = headline(&format!("control_hosts = '{bad}'"));
        assert!(error.contains(&format!("'{bad}' is not the name of a host")), "{error}");
    }
    let variable = ("STENTOR_CONTROL_HOSTS", "a,b.example");
    assert_eq!(environment(&[variable]).unwrap().control_hosts, ["a", "b.example"]);
}

#[test]
fn patterns_for_the_public() {
    assert!(Settings::default().streams.public_patterns);
    let settings = Settings::from_toml("streams.public_patterns = false", "x").unwrap();
    assert!(!settings.streams.public_patterns);
}

#[test]
fn connections_of_an_address() {
    let of = |text: &str| {
        let text = format!("limits.connections_per_address = {text}");
        Settings::from_toml(&text, "stentor.toml").unwrap().limits.connections_per_address
    };
    assert_eq!(of("'auto'"), OrAuto::Auto);
    assert_eq!(of("0"), OrAuto::Set(0));
    assert_eq!(of("'7'"), OrAuto::Set(7));
    let error = headline("limits.connections_per_address = 'some'");
    assert!(error.contains("'some' is not a number, or \"auto\""), "{error}");
    let error = headline("limits.connections_per_address = -1");
    assert!(error.contains("-1 is out of range: from 0 to"), "{error}");
    let variable = ("STENTOR_LIMITS_CONNECTIONS_PER_ADDRESS", "9");
    let settings = environment(&[variable]).unwrap();
    assert_eq!(settings.limits.connections_per_address, OrAuto::Set(9));
}

#[test]
fn an_error_looks_like_the_compilers() {
    let text = "workers = 2\n\nliten = \"0.0.0.0:80\" # typo\n";
    assert_eq!(
        error(text),
        "stentor.toml:3:1: unknown key 'liten'; did you mean 'listen'?\n  \
         |\n3 | liten = \"…\" # …\n  | ^^^^^"
    );
    assert_eq!(
        error("limits = { topics_max = 1, names_max = 0, head_timeout = '1s' }"),
        "stentor.toml:1:40: 0 is out of range: from 1 to 100000\n  \
         |\n1 | limits = { topics_max = …, names_max = 0, head_timeout = '…' }\n  \
         |                                        ^"
    );
}

/// Where the mistakes are, and how many there are beside the first.
fn places(text: &str) -> Vec<String> {
    let errors = Settings::from_toml(text, "f").unwrap_err();
    let shown = errors.to_string();
    let headlines = shown.split("\n\n").filter_map(|mistake| mistake.lines().next());
    headlines.map(|line| line[2..].split(": ").next().unwrap().to_owned()).collect()
}

/// Mistakes of every kind, each behind others, in the order of their places.
#[test]
fn all_mistakes_are_told_at_once() {
    let text = "workers = 0\nliten = '0.0.0.0:80'\nlisten = ['host:80', '0.0.0.0:80', ':81']\n\
                [limits]\nhead_timout = 1\nnames_max = 0\n[files]\nroot = 'x'\n\
                [[topics]]\nmatch = 'a'\nhistory = 0\n[[topics]]\nhistroy = 1\n\
                [[topics]]\nmatch = '/a'\nread = 'me'";
    let expected = ["1:11", "2:1", "3:11", "3:36", "5:1", "6:13", "8:1", "10:9", "11:11", "13:1"];
    assert_eq!(places(text), expected);
    // No more than ten are shown.
    assert_eq!(places(&text.replace("liten", "liten = 1\nlisen")).len(), 10);
    let errors = Settings::from_toml(text, "f").unwrap_err();
    assert_eq!(
        errors.in_one_line(),
        "f:1:11: 0 is out of range: from 1 to 4096 (and 9 more mistakes, which stentor check shows)"
    );
    // A key with a wrong value is not reported as missing too.
    assert_eq!(places("[[lookup]]\npath = 1\n[[lookup]]\ntopics = '/{name}'"), ["2:8", "3:1"]);
    // One a line of the syntax, and nothing of what the rest would mean.
    assert_eq!(places("workers = = 1\npin = 7\nuser = \n"), ["1:11", "3:8"]);
}

#[test]
fn mistakes_of_all_sources_are_told() {
    let errors = environment(&[("STENTOR_WORKERS", "0"), ("STENTOR_PIN", "7")]).unwrap_err();
    assert!(errors.starts_with("STENTOR_WORKERS: ") && errors.contains("\n\nSTENTOR_PIN: "));
    let file = Path::new("/nonexistent/stentor.toml");
    let variables = [("STENTOR_WORKERS".to_owned(), "0".to_owned())];
    let errors = Settings::load(Some(file), variables).unwrap_err().to_string();
    assert!(errors.contains("cannot be read: ") && errors.contains("\n\nSTENTOR_WORKERS: "));
    let contrary = "listen = '127.0.0.1:8081'\ntls_key = 'k'\n[cors]\norigins = ['*', 'http://a']";
    let errors = Settings::from_toml(contrary, "f").unwrap().validate().unwrap_err();
    let shown = errors.within("f").to_string();
    let subjects = ["f: listen and control: ", "f: tls_key: ", "f: cors.origins: "];
    assert!(subjects.iter().all(|subject| shown.contains(subject)), "{shown}");
}

#[test]
fn tables_of_which_there_is_one_have_single_brackets() {
    check(&[
        (
            "[[files]]\nroot = '/srv'",
            "1:1: write [files], in single brackets: there is one; a directory whose files are \
             served is a [[static]]",
        ),
        ("[[limits]]\nnames_max = 1", "1:1: write [limits], in single brackets: there is one"),
    ]);
}

#[test]
fn unknown_keys_are_told_the_nearest_or_their_place() {
    check(&[
        ("Listen = 1", "1:1: unknown key 'Listen'; did you mean 'listen'?"),
        ("[limit]\n", "1:2: unknown key 'limit'; did you mean 'limits'?"),
        (
            "[limits]\nhead_timout = 1",
            "2:1: unknown key 'head_timout'; did you mean 'head_timeout'?",
        ),
        ("[cors]\norigin = '*'", "2:1: unknown key 'origin'; did you mean 'origins'?"),
        (
            "[[topics]]\nmatch = '/a'\nhistroy = 1",
            "3:1: unknown key 'histroy'; did you mean 'history'?",
        ),
        ("[[lookup]]\npaht = '/a='", "2:1: unknown key 'paht'; did you mean 'path'?"),
        ("[[statics]]\nroot = '/'", "1:3: unknown key 'statics'; did you mean 'static'?"),
        ("[[static]]\nfall_back = '/'", "2:1: unknown key 'fall_back'; did you mean 'fallback'?"),
        (
            "[files]\ncache_bytes = 1",
            "2:1: unknown key 'cache_bytes'; known here: cache_bytes_max, small_bytes_max, types",
        ),
        // A key in the wrong table is told its place.
        ("root = '/srv'", "1:1: unknown key 'root'; it belongs in [[static]]"),
        // Near to another key, but it is one itself.
        ("listing = true", "1:1: unknown key 'listing'; it belongs in [[static]]"),
        (
            "[[static]]\nsmall_bytes_max = 1",
            "2:1: unknown key 'small_bytes_max'; it belongs in [files]",
        ),
        ("head_timeout = 1", "1:1: unknown key 'head_timeout'; it belongs in [limits]"),
        (
            "[cors]\ndrain = 1",
            "2:1: unknown key 'drain'; it belongs at the top, before the first [table]",
        ),
        ("[cors]\ncolour = 1", "2:1: unknown key 'colour'; known here: origins, credentials"),
    ]);
}

#[test]
fn an_unknown_key_at_the_top_is_answered_by_each_known_one_once() {
    for text in ["colour_of_the_page = 1", "'' = 1", "['']"] {
        let said = Settings::from_toml(text, "f").unwrap_err().to_string();
        let known = said.split("known here: ").nth(1).unwrap_or_else(|| panic!("{said}"));
        let mut known: Vec<_> = known.lines().next().unwrap().split(", ").collect();
        assert!(known.contains(&"listen") && known.contains(&"limits"), "{said}");
        let count = known.len();
        known.sort_unstable();
        known.dedup();
        assert!(known.len() == count && known.iter().all(|name| !name.is_empty()), "{said}");
    }
}

#[test]
fn values_are_checked_where_they_stand() {
    check(&[
        (
            "listen = '0.0.0.0'",
            "1:10: '0.0.0.0' is not an address: write IP:PORT, such as 0.0.0.0:8080",
        ),
        (
            "listen = [\n  '0.0.0.0:80',\n  'host:80',\n]",
            "3:3: 'host:80' is not an address: write IP:PORT, such as 0.0.0.0:8080",
        ),
        (
            "control = 'unix:'",
            "1:11: 'unix:' is not a socket path: unix: is followed by a path of at most 107 bytes",
        ),
        (
            "listen = 8080",
            "1:10: invalid type: integer '8080', expected a string or a list of strings",
        ),
        ("workers = 0", "1:11: 0 is out of range: from 1 to 4096"),
        ("workers = -1", "1:11: -1 is out of range: from 1 to 4096"),
        ("workers = 'many'", "1:11: 'many' is not a number"),
        ("user = 'a b'", "1:8: 'a b' is not the name of a user: write one such as stentor"),
        (
            "log.level = 'loud'",
            "1:13: 'loud' is not a level: write 'error', 'warn', 'info' or 'debug'",
        ),
        ("log.format = 'xml'", "1:14: 'xml' is not a format: write 'text' or 'json'"),
        ("pin = 'yes'", "1:7: invalid type: string \"yes\", expected a boolean"),
        (
            "drain = 'soon'",
            "1:9: 'soon' is not a duration such as \"15s\" or \"500ms\" or a number of seconds",
        ),
        ("drain = '2d'", "1:9: '2d' is out of range: from 0ms to 1h"),
        ("[limits]\nhead_timeout = 0", "2:16: 0 is out of range: from 10ms to 1h"),
        (
            "[limits]\nmessage_bytes_max = '1 GiB'",
            "2:21: '1 GiB' is out of range: from 1 B to 256 MiB",
        ),
        (
            "[limits]\nmessage_bytes_max = '1 M'",
            "2:21: '1 M' is not a size such as \"64 KiB\" or a number of bytes",
        ),
        (
            "[cors]\norigins = ['https://a.example/']",
            "2:12: 'https://a.example/' is not an origin: write SCHEME://HOST, such as \
             https://example.com, or *",
        ),
        ("[[topics]]\nhistory = 1", "1:1: missing field 'match'"),
        (
            "[[lookup]]\npath = '/-/list='\ntopics = '/{name}'",
            "2:8: '/-/list=' cannot begin a path of its own: write something like '/list=', in \
             visible ASCII without '?', '#' and '%', and not under '/-/' or '/.well-known/'",
        ),
        (
            "[[lookup]]\npath = '/a='\ntopics = '/quotes'",
            "3:10: '/quotes' is not a topic for a name: it is a path with {name} in it",
        ),
        // The document itself.
        ("workers = 1\nworkers = 2", "2:1: duplicate key"),
        ("listen = [", "1:11: unclosed array, expected ']'"),
    ]);
}

#[test]
fn values_of_static_files_are_checked_where_they_stand() {
    check(&[
        ("[[static]]\npath = '/docs'", "1:1: missing field 'root'"),
        ("[[static]]\nroot = ''", "2:8: '' is not a directory"),
        (
            "[static]\nroot = '/srv'",
            "1:1: write [[static]], in double brackets: there may be several of these tables",
        ),
        (
            "[[static]]\nroot = '/'\nlisting = 1",
            "3:11: invalid type: integer '1', expected a boolean",
        ),
        (
            "[[static]]\nroot = '/'\npath = '/-/docs'",
            "3:8: '/-/docs' cannot begin the paths of files: write something like '/docs/', \
             without '%', '?', '#', '\\' and segments that are empty or begin with a dot, and not \
             under '/-/'",
        ),
        (
            "[[static]]\nroot = '/'\nfallback = '/index.html'",
            "3:12: '/index.html' is not a file beneath the root: write something like \
             'index.html', without a leading slash, '\\' and segments that are empty or begin \
             with a dot",
        ),
        (
            "[files]\ncache_bytes_max = '65 GiB'",
            "2:19: '65 GiB' is out of range: from 0 B to 64 GiB",
        ),
        (
            "[files]\nsmall_bytes_max = 16777217",
            "2:19: 16777217 is out of range: from 0 B to 16 MiB",
        ),
    ]);
}

/// Each text with its error, after the name of the file.
fn check(table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(headline(text), format!("stentor.toml:{expected}"), "{text:?}");
    }
}

#[test]
fn what_other_crates_check_is_checked_where_it_stands() {
    let lookup = "[[lookup]]\npath = '/a='\ntopics = '/{name}'\n";
    for (text, place, word) in [
        ("[[topics]]\nmatch = 'quotes'".to_owned(), "2:9", "quotes"),
        ("[[topics]]\nmatch = '/a'\ncache_control = \"a\\r\\nb: c\"".to_owned(), "3:17", "ASCII"),
        (format!("{lookup}line = '{{nmae}}'"), "4:8", "nmae"),
        (format!("{lookup}content_type = 'text'"), "4:16", "type/subtype"),
        ("[[static]]\nroot = '/'\ncache_control = 'é'".to_owned(), "3:17", "ASCII"),
    ] {
        let headline = headline(&text);
        assert!(headline.starts_with(&format!("stentor.toml:{place}: ")), "{headline}");
        assert!(headline.contains(word), "{headline}");
    }
}

#[test]
fn where_a_directory_may_be_mounted() {
    for (path, mounted) in [
        ("/", Some("/")),
        ("/docs", Some("/docs/")),
        ("/docs/", Some("/docs/")),
        ("/a b/é/c.d/-", Some("/a b/é/c.d/-/")),
        ("/-a", Some("/-a/")),
        ("/.well-known", Some("/.well-known/")),
        ("/.well-known/acme-challenge/", Some("/.well-known/acme-challenge/")),
        ("", None),
        ("docs", None),
        ("//", None),
        ("//docs", None),
        ("/docs//", None),
        ("/a//b", None),
        ("/-", None),
        ("/-/", None),
        ("/-/docs", None),
        ("/./a", None),
        ("/a/..", None),
        ("/.git", None),
        ("/a/.well-known", None),
        ("/.well-known//", None),
        ("/.well-known/.a", None),
        ("/a%20b", None),
        ("/a?b", None),
        ("/a#b", None),
        ("/a\\\\b", None),
        ("/a\\u0000", None),
        ("/a\\u0085", None),
    ] {
        let text = format!("[[static]]\nroot = '/'\npath = \"{path}\"");
        let settings = Settings::from_toml(&text, "f").ok();
        assert_eq!(settings.as_ref().map(|s| s.mounts[0].path.as_str()), mounted, "{path}");
    }
}

#[test]
fn a_fallback_is_a_file_beneath_the_root() {
    for (fallback, good) in [
        ("index.html", true),
        ("app/a b/é.html", true),
        ("a%20b?#", true),
        ("", false),
        ("/index.html", false),
        ("app/", false),
        ("a//b", false),
        (".", false),
        ("..", false),
        ("../index.html", false),
        ("a/../b", false),
        (".htaccess", false),
        ("a\\\\b", false),
        ("a\\nb", false),
    ] {
        let text = format!("[[static]]\nroot = '/'\nfallback = \"{fallback}\"");
        assert_eq!(Settings::from_toml(&text, "f").is_ok(), good, "{fallback}");
    }
}

#[test]
fn columns_count_characters_and_tabs_keep_the_caret_in_place() {
    let shown = error("[[topics]]\n\tmatch = '/é'  ; x");
    assert!(shown.starts_with("stentor.toml:2:16: "), "{shown}");
    assert!(shown.ends_with("2 | \tmatch = '…'  … …\n  | \t             ^"), "{shown}");
}

#[test]
fn the_environment_overrides_the_file() {
    let settings = environment(&[
        ("STENTOR_LISTEN", "127.0.0.1:1, 127.0.0.1:2"),
        ("STENTOR_CONTROL", "unix:/tmp/s"),
        ("STENTOR_WORKERS", "3"),
        ("STENTOR_PIN", "true"),
        ("STENTOR_LIMITS_HEAD_TIMEOUT", "500ms"),
        ("STENTOR_LIMITS_TOPICS_MAX", "7"),
        ("STENTOR_CORS_ORIGINS", "https://a.example,https://b.example"),
        ("STENTOR_SERVICE_HOST", "10.0.0.1"),
        ("STENTOR_PORT", "tcp://10.0.0.1:80"),
        ("STENTOR_FILES_CACHE_BYTES_MAX", "1 MiB"),
        ("STENTOR_FILES_SMALL_BYTES_MAX", "0"),
        ("STENTOR_CONFIG", "elsewhere.toml"),
        ("STENTOR_ROOT", "/srv/www"),
        ("PATH", "/bin"),
    ])
    .unwrap();
    assert_eq!(settings.listen.len(), 2);
    assert_eq!(settings.control, [ControlAddress::Unix("/tmp/s".into()).into()]);
    assert_eq!((settings.workers, settings.pin), (3, true));
    assert_eq!((settings.limits.head_timeout_ms, settings.limits.topics_max), (500, 7));
    assert_eq!(settings.cors.origins, ["https://a.example", "https://b.example"]);
    assert_eq!((settings.files.cache_bytes_max, settings.files.small_bytes_max), (1 << 20, 0));
    // That one is a flag's: only `serve` reads it.
    assert_eq!(settings.mounts, []);
}

#[test]
fn values_of_the_environment_are_text_as_it_is() {
    let key = "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n";
    let cookie = "\\\"' # = [";
    let settings = environment(&[("STENTOR_JWT_PUBLIC_KEY", key)]).unwrap();
    assert_eq!(settings.tokens.jwt.public_keys, [key.trim()]);
    let error = environment(&[("STENTOR_ACCESS_COOKIE", cookie)]).unwrap_err();
    assert!(error.contains(&format!("'{}' is not the name", cookie.escape_debug())), "{error}");
}

#[test]
fn variables_must_be_utf_8() {
    let load = |name: &str| {
        let value = OsString::from_vec(b"127.0.0.1:1\xfe".to_vec());
        Settings::load(None, [(OsString::from(name), value)])
    };
    let error = load("STENTOR_LISTEN").unwrap_err().to_string();
    assert_eq!(error.trim_end(), "STENTOR_LISTEN: the value is not UTF-8");
    assert!(load("STENTOR_SERVICE_HOST").is_ok());
    assert!(load("OTHER_LISTEN").is_ok());
}

#[test]
fn mistakes_in_the_environment_name_the_variable() {
    for (name, value, expected) in [
        ("STENTOR_WORKERS", "0", "STENTOR_WORKERS: '0' is out of range: from 1 to 4096"),
        ("STENTOR_WORKER", "1", "STENTOR_WORKER: unknown setting; did you mean STENTOR_WORKERS?"),
        ("STENTOR_WORKRES", "1", "STENTOR_WORKRES: unknown setting; did you mean STENTOR_WORKERS?"),
        ("STENTOR_USERS", "me", "STENTOR_USERS: unknown setting; did you mean STENTOR_USER?"),
        ("STENTOR_DRIAN", "1s", "STENTOR_DRIAN: unknown setting; did you mean STENTOR_DRAIN?"),
        (
            "STENTOR_LIMIT_TOPIC_MAX",
            "1",
            "STENTOR_LIMIT_TOPIC_MAX: unknown setting; did you mean STENTOR_LIMITS_TOPICS_MAX?",
        ),
        ("STENTOR_DRAIN", "x", "STENTOR_DRAIN: 'x' is not a duration such as"),
        ("STENTOR_PIN", "yes", "STENTOR_PIN: invalid type: string \"yes\", expected a boolean"),
        ("STENTOR_CLUSTER_NATS", "tcp://nats:4222", "STENTOR_CLUSTER_NATS: this is not"),
    ] {
        let error = environment(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Kubernetes sets some for services called stentor, stentor-control, stentor-monitor and
/// stentor-redirect; images and operators set the others.
#[test]
fn variables_of_platforms_are_left_alone() {
    let names = [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "CONTROL_SERVICE_HOST",
        "CONTROL_SERVICE_PORT",
        "REDIRECT_SERVICE_PORT",
        "TAG",
        "HOME",
        "HOST",
        "DATA",
        "IMAGE",
        "VERSION",
        "ENV",
        "MODE",
        "NODE",
        "URL",
        "NATS",
        "BIN",
        "PID",
        "NAME",
        "TIER",
        "ROLE",
        "TEST",
        "DEBUG",
        "BUILD",
        "REGION",
        "CONFIG",
        "ROOT",
        "TOKEN",
        "HANDOVER",
        "PARENT",
    ];
    let of_ports = [
        "PORT",
        "PORT_8080_TCP",
        "PORT_8080_TCP_PROTO",
        "PORT_8080_TCP_PORT",
        "PORT_8080_TCP_ADDR",
        "CONTROL_PORT",
        "CONTROL_PORT_8081_TCP",
        "MONITOR_PORT",
        "MONITOR_PORT_9100_TCP_ADDR",
        "REDIRECT_PORT",
        "REDIRECT_PORT_80_TCP",
        "REDIRECT_PORT_80_TCP_PORT",
    ];
    let defaults = format!("{:?}", Settings::default());
    for (name, value) in names
        .map(|name| (name, "80"))
        .into_iter()
        .chain(of_ports.map(|it| (it, "tcp://10.0.0.1:80")))
    {
        let settings = environment(&[(&format!("STENTOR_{name}"), value)]);
        assert_eq!(
            settings.map(|settings| format!("{settings:?}")),
            Ok(defaults.clone()),
            "{name}"
        );
    }
    let settings = environment(&[("STENTOR_REDIRECT_PORT", "8443")]).unwrap();
    assert_eq!(settings.redirect_port, 8443);
}

#[test]
fn a_text_of_the_environment_may_look_like_a_number_or_a_flag() {
    let settings = environment(&[
        ("STENTOR_CLUSTER_USER", "1234"),
        ("STENTOR_CLUSTER_STREAM", "2024"),
        ("STENTOR_ACCESS_COOKIE", "true"),
        ("STENTOR_USER", "1000"),
        ("STENTOR_JWT_AUDIENCE", "1,true"),
    ])
    .unwrap();
    assert_eq!(settings.cluster.user.as_deref(), Some("1234"));
    assert_eq!(settings.cluster.stream.as_str(), "2024");
    assert_eq!(settings.access.cookie.as_deref(), Some("true"));
    assert_eq!(settings.user.as_deref(), Some("1000"));
    assert_eq!(settings.tokens.jwt.audience, ["1", "true"]);
}

/// As compose files write "none".
#[test]
fn an_empty_list_of_the_environment_is_none() {
    for setting in crate::groups::all().filter(|setting| setting.shape == ValueShape::List) {
        for text in ["", " "] {
            let settings = environment(&[(&setting.variable(), text)]).unwrap();
            assert_eq!((setting.show)(&settings), toml::Value::Array(Vec::new()), "{text:?}");
        }
    }
}

#[test]
fn every_setting_of_the_environment_exists() {
    // Only the value is wrong in each: the name is known to the document's grammar.
    for name in crate::groups::all().map(crate::setting::Setting::name) {
        let headline = headline(&format!("{name} = 1979-05-27"));
        assert!(!headline.contains("unknown"), "{headline}");
    }
}

#[test]
fn keys_of_arrays_are_known_there_and_told_their_place_elsewhere() {
    for array in crate::arrays::ARRAYS {
        let keys: Vec<&str> = array.keys.iter().map(|key| key.name).collect();
        let (name, keys) = (array.name, keys.join(", "));
        let unknown = headline(&format!("[[{name}]]\n'' = 1979-05-27"));
        assert!(unknown.ends_with(&format!("known here: {keys}")), "{unknown}");
    }
    for (key, array) in [("root", "static"), ("history", "topics"), ("sha256", "token")] {
        for other in ["[[lookup]]", "[cors]"] {
            let elsewhere = headline(&format!("{other}\n{key} = 1979-05-27"));
            assert!(elsewhere.ends_with(&format!("it belongs in [[{array}]]")), "{elsewhere}");
        }
    }
}

#[test]
fn settings_that_contradict_each_other() {
    for (text, expected) in [
        ("listen = ['0.0.0.0:80', '0.0.0.0:80']", "listen: 0.0.0.0:80 is there twice"),
        ("control = ['unix:/a', 'unix:/a']", "control: unix:/a is there twice"),
        ("listen = '0.0.0.0:8081'", "listen and control: 0.0.0.0:8081 and"),
        ("listen = '127.0.0.1:8081'", "listen and control: 127.0.0.1:8081"),
        ("[cors]\norigins = ['*', 'https://a.example']", "cors.origins: '*' already allows"),
        ("[cors]\norigins = '*'\ncredentials = true", "cors.credentials: only listed origins"),
        (
            "limits.memory_critical = 50",
            "limits.memory_critical: 50 must be more than limits.memory_high, which is 90",
        ),
        (
            "[limits]\nmessage_bytes_max = '2 MiB'\nstored_bytes_max = '1 MiB'",
            "limits.message_bytes_max: 2 MiB is more than limits.stored_bytes_max, which is 1 MiB",
        ),
        (
            "[follow]\nleader = 'http://a'\nca_file = '/c'",
            "follow.ca_file: it is for leaders at https://",
        ),
        (
            "[jwt]\nsecret_file = '/s'\njwks_ca_file = '/c'",
            "jwt.jwks_ca_file: it is for jwt.jwks_url at https://",
        ),
        (
            "[[topics]]\nmatch = '/a'\nkeep = 'synced'",
            "topics: keep of /a has no effect without store.path",
        ),
        (
            "[[lookup]]\npath = '/a='\ntopics = '/{name}'\n\
             [[lookup]]\npath = '/a='\ntopics = '/b/{name}'",
            "lookup: two routes begin with /a=",
        ),
        (
            "[[static]]\npath = '/a'\nroot = '/b'\n[[static]]\npath = '/a/'\nroot = '/c'",
            "static: two directories are mounted at /a/",
        ),
        (
            "[[static]]\npath = '/a'\nroot = '/b'\nimmutable = ['/a/**', '/assets/**']",
            "static: immutable names whole paths, and /assets/** is not beneath /a/",
        ),
    ] {
        let error = Settings::from_toml(text, "f").unwrap().validate().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let any_port = "listen = ['127.0.0.1:0', '127.0.0.1:0']\ncontrol = '127.0.0.1:0'";
    Settings::from_toml(any_port, "f").unwrap().validate().unwrap();
}

#[test]
fn a_file_that_cannot_be_read() {
    let missing = Path::new("/nonexistent/stentor.toml");
    let error = Settings::load(Some(missing), [("", ""); 0]).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/stentor.toml: cannot be read: "), "{error}");
}

/// RFC 6454 section 6.2: so browsers write them.
#[test]
fn origins_are_normalised() {
    for (text, expected) in [
        ("https://App.Example:443", "https://app.example"),
        ("HTTP://a:80", "http://a"),
        ("http://a:443", "http://a:443"),
        ("https://[::1]:443", "https://[::1]"),
        ("capacitor://localhost", "capacitor://localhost"),
    ] {
        let settings = Settings::from_toml(&format!("[cors]\norigins = '{text}'"), "f").unwrap();
        assert_eq!(settings.cors.origins, [expected], "{text}");
    }
    let error = Settings::from_toml("[cors]\norigins = 'https://b\u{fc}cher.example'", "f");
    assert!(error.unwrap_err().to_string().contains("ASCII form (xn--...)"));
}
