//! Tables of queries and commands, good and bad.

use super::*;

fn query(
    topics: &[&str],
    since: Option<&str>,
    latest: Option<bool>,
    wait_s: Option<u64>,
) -> EventsQuery {
    EventsQuery {
        topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
        since: since.map(str::to_owned),
        latest,
        wait_s,
    }
}

#[test]
fn queries_of_many_topics() {
    let rows = [
        ("", query(&[], None, None, None)),
        ("topic=/a", query(&["/a"], None, None, None)),
        ("topic=/a&topic=%2Fquotes/*&&", query(&["/a", "/quotes/*"], None, None, None)),
        ("topic=/a+b%2Bc", query(&["/a b+c"], None, None, None)),
        ("topic=", query(&[""], None, None, None)),
        ("since=1-2", query(&[], Some("1-2"), None, None)),
        ("since=nonsense%00", query(&[], Some("nonsense\0"), None, None)),
        ("last_event_id=1-2", query(&[], Some("1-2"), None, None)),
        ("last_event_id=1-3&since=1-2", query(&[], Some("1-3"), None, None)),
        ("since=1-2&last_event_id=1-3", query(&[], Some("1-3"), None, None)),
        ("since=1-2&last_event_id=", query(&[], Some("1-2"), None, None)),
        ("since=1-2&lastEventId=1-3", query(&[], Some("1-3"), None, None)),
        ("since=1-2&lastEventID=1-3", query(&[], Some("1-3"), None, None)),
        ("since=1-2&Last-Event-ID=1-3", query(&[], Some("1-3"), None, None)),
        ("_=1700000000&since=1-2&_dc=1", query(&[], Some("1-2"), None, None)),
        ("since=1-1&since=1-2", query(&[], Some("1-2"), None, None)),
        ("since=1-1&since=", query(&[], None, None, None)),
        ("since", query(&[], None, None, None)),
        ("mode=all", query(&[], None, Some(false), None)),
        ("mode=latest", query(&[], None, Some(true), None)),
        ("wait=25", query(&[], None, None, Some(25))),
        ("wait=0", query(&[], None, None, Some(0))),
        ("wait=99999999999999999999", query(&[], None, None, Some(u64::MAX))),
        ("%77ait=1", query(&[], None, None, Some(1))),
    ];
    for (text, expected) in rows {
        assert_eq!(parse_query(text.as_bytes(), 2), Ok(expected), "{text}");
    }
}

#[test]
fn broken_queries_of_many_topics() {
    let rows = [
        ("topic=/a&topic=/b&topic=/c", "At most 2 topics may be asked for at once."),
        (
            "topics=/a",
            "There is no parameter 'topics'; there are topic, since, last_event_id, mode, \
             wait and access_token.",
        ),
        (
            "Topic=/a",
            "There is no parameter 'Topic'; there are topic, since, last_event_id, mode, \
             wait and access_token.",
        ),
        (
            "%0a",
            "There is no parameter '\\n'; there are topic, since, last_event_id, mode, \
             wait and access_token.",
        ),
        (
            "=",
            "There is no parameter ''; there are topic, since, last_event_id, mode, \
             wait and access_token.",
        ),
        ("mode=newest", "The parameter mode must be all or latest."),
        ("mode", "The parameter mode must be all or latest."),
        ("wait=", "The parameter wait must be a whole number of seconds."),
        ("wait=2.5", "The parameter wait must be a whole number of seconds."),
        ("wait=-1", "The parameter wait must be a whole number of seconds."),
        (
            "topic=%zz",
            "The query is broken. A % must be followed by two hexadecimal digits, and the text be \
             UTF-8.",
        ),
    ];
    for (text, reason) in rows {
        assert_eq!(parse_query(text.as_bytes(), 2).unwrap_err().detail, reason, "{text}");
    }
    let long = parse_query("\u{e9}".repeat(5000).as_bytes(), 2).unwrap_err().detail;
    assert!(long.len() < 300 && long.contains("..."), "{long}");
}

#[test]
fn a_topic_passes_over_what_it_does_not_know() {
    let rows = [
        ("", query(&[], None, None, None)),
        ("_=1720000000&x&=&%zz&topic=/a&y=%ff", query(&[], None, None, None)),
        ("x=1&since=1-2&mode=all&wait=25", query(&[], Some("1-2"), Some(false), Some(25))),
        ("last_event_id=%31-2&since=1-1", query(&[], Some("1-2"), None, None)),
        ("sinces=1&Mode=x&waits=x&%77ait=x", query(&[], None, None, None)),
        ("since=%zz", query(&[], Some("?"), None, None)),
        ("last_event_id=%ff&since=1-1", query(&[], Some("?"), None, None)),
    ];
    for (text, expected) in rows {
        assert_eq!(parse_topic_query(text.as_bytes()), Ok(expected), "{text}");
    }
    for text in ["mode=x", "wait=x", "mode=%zz", "a=b&wait", "wait=%"] {
        assert!(parse_topic_query(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn commands() {
    let strings = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
    let rows = [
        (r#"{"subscribe":["/a"]}"#, &["/a"][..], &[][..], None, None),
        (r#" {"subscribe":["/a","/q/*"],"since":"1-2"} "#, &["/a", "/q/*"], &[], Some("1-2"), None),
        (r#"{"since":"","unsubscribe":["\u002fa"]}"#, &[], &["/a"], None, None),
        (r#"{"token":"a.b"}"#, &[], &[], None, Some("a.b")),
        (r#"{"subscribe":["/a"],"token":""}"#, &["/a"], &[], None, Some("")),
        (r#"{"subscribe":["/a"],"unsubscribe":["/b"],"since":null}"#, &["/a"], &["/b"], None, None),
    ];
    for (text, subscribe, unsubscribe, since, token) in rows {
        let command = Command {
            subscribe: strings(subscribe),
            unsubscribe: strings(unsubscribe),
            since: since.map(str::to_owned),
            token: token.map(str::to_owned),
            id: None,
        };
        assert_eq!(parse_command(text, 2), Ok(command), "{text}");
    }
    for (text, id) in
        [(r#"{"id":7}"#, "7"), (r#"{"id":"a\u0022"}"#, r#""a\"""#), ("{\"id\":-15}", "-15")]
    {
        let command = parse_command(text, 2).unwrap();
        assert_eq!(command.id.as_ref().map(CommandId::json), Some(id));
        assert_eq!(command, Command { id: command.id.clone(), ..Command::default() });
    }
    assert_eq!(parse_command("{}", 2), Ok(Command::default()));
    let id = CommandId::of_invalid(r#"{"id":7,"subscribe":1}"#);
    assert_eq!(id.as_ref().map(CommandId::json), Some("7"));
    assert_eq!(CommandId::of_invalid("{\"id\":[]}"), None);
}

#[test]
fn broken_commands() {
    let rows = [
        ("", "A command must be a JSON object."),
        ("hello", "A command must be a JSON object."),
        (r#"[["/a"],[],null]"#, "A command must be a JSON object."),
        (r#"{"subscribe":["","",""]}"#, "At most 2 topics may be named at once."),
        (r#"{"unsubscribe":["","",""]}"#, "At most 2 topics may be named at once."),
    ];
    for (text, reason) in rows {
        assert_eq!(parse_command(text, 2).unwrap_err().detail, reason, "{text}");
    }
    let broken = [
        "{",
        r#"{"subscribe":["/a"]"#,
        r#"{"subscribe":["/a"]} x"#,
        r#"{"subscribe":"/a"}"#,
        r#"{"subscribe":[1]}"#,
        r#"{"subscribe":null}"#,
        r#"{"subscribe":["/a"],"other":1}"#,
        r#"{"subscribe":["/a"],"subscribe":["/b"]}"#,
        r#"{"subscribe":["/a"],"since":5}"#,
        r#"{"token":5}"#,
        r#"{"ping":1}"#,
        r#"{"id":{}}"#,
        r#"{"id":1.5}"#,
        r#"{"id":123456789012345678901234567890}"#,
        "{\"a\nb\":1}",
    ];
    for text in broken {
        let reason = parse_command(text, 2).unwrap_err().detail;
        assert!(reason.starts_with("The command is broken: ") && reason.ends_with('.'), "{reason}");
        assert!(!reason.contains('\n'), "{reason:?}");
    }
    let reason = r"A string has \ud800, half of a surrogate pair: write both halves.";
    assert_eq!(parse_command(r#"{"subscribe":["\ud800"]}"#, 2).unwrap_err().detail, reason);
    let long = format!("{{\"{}\":1}}", "x".repeat(100_000));
    assert!(parse_command(&long, 2).unwrap_err().detail.len() < 300);
    assert!(parse_command(&"{\"subscribe\":".repeat(100_000), 2).is_err(), "nested too deep");
}
