//! Many values in one request: `/-/values`, and configured routes in their own format.

use crate::support::{Server, Url};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[limits]
names_max = 5

[[lookup]]
path = "/list="
topics = "/quotes/{name}"
line = 'var hq_str_{name}="{value}";'

[[lookup]]
path = "/json="
topics = "/quotes/{name}"

[[lookup]]
path = "/gbk="
topics = "/quotes/{name}"
line = "v_{name}={value};"
content_type = "application/javascript; charset=GBK"
"#;

fn publish(url: Url) {
    url.put("/quotes/s_sz000609", "text/plain", b"\xce\xe5\xc1\xb8,7.61,0.02").expect(201);
    url.put("/quotes/s_sz000723", "text/plain", b"4.10,-0.01").expect(201);
    url.put("/quotes/a%2Cb", "text/plain", b"comma").expect(201);
    url.put("/quotes/json", "application/json", b"{\"close\": 187.2}").expect(201);
}

#[test]
fn the_finance_pages_format_byte_for_byte() {
    let server = Server::configured(CONFIG);
    publish(server.control);
    for url in [server.public, server.control] {
        for (target, body) in [
            (
                "/list=s_sz000609,s_sz000723",
                &b"var hq_str_s_sz000609=\"\xce\xe5\xc1\xb8,7.61,0.02\";\n\
                   var hq_str_s_sz000723=\"4.10,-0.01\";"[..],
            ),
            ("/list=s_sz000723", b"var hq_str_s_sz000723=\"4.10,-0.01\";"),
            (
                "/list=s_sz000723,none,s_sz000723",
                b"var hq_str_s_sz000723=\"4.10,-0.01\";\nvar hq_str_none=\"\";\n\
                  var hq_str_s_sz000723=\"4.10,-0.01\";",
            ),
            ("/list=", b"var hq_str_=\"\";"),
            ("/list=,", b"var hq_str_=\"\";\nvar hq_str_=\"\";"),
            (
                "/list=a%2Cb,json",
                b"var hq_str_a,b=\"comma\";\nvar hq_str_json=\"{\"close\": 187.2}\";",
            ),
            ("/list=s_sz000723?rn=123456", b"var hq_str_s_sz000723=\"4.10,-0.01\";"),
            ("/gbk=s_sz000723", b"v_s_sz000723=4.10,-0.01;"),
        ] {
            let response = url.get(target).expect(200);
            let text = String::from_utf8_lossy(&response.body);
            assert!(response.body == body, "{target}: {text}");
        }
        let response = url.get("/list=json");
        assert_eq!(response.field("content-type"), Some("text/javascript; charset=utf-8"));
        let response = url.get("/gbk=json");
        assert_eq!(response.field("content-type"), Some("application/javascript; charset=GBK"));
    }
}

#[test]
fn a_route_without_a_line_answers_in_json() {
    let server = Server::configured(CONFIG);
    publish(server.control);
    let response = server.public.get("/json=s_sz000723,none,json").expect(200);
    assert_eq!(response.field("content-type"), Some("application/json"));
    let expected = json!({"s_sz000723": "4.10,-0.01", "none": null, "json": {"close": 187.2}});
    assert_eq!(response.json(), expected);
}

#[test]
fn a_lookup_that_has_not_changed_is_not_sent_again() {
    let server = Server::configured(CONFIG);
    publish(server.control);
    let targets = [
        "/list=s_sz000723,none",
        "/json=s_sz000723,none",
        "/-/values?topic=/quotes/s_sz000723&topic=/quotes/none",
    ];
    for target in targets {
        let first = server.public.get(target).expect(200);
        assert_eq!(first.field("cache-control"), Some("no-cache"));
        let fields = format!("If-None-Match: {}\r\n", first.tag());
        let second = server.public.ask("GET", target, &fields, b"").expect(304);
        assert_eq!(second.tag(), first.tag());
        // A name that appears is a change, as is a value that changes or goes.
        let changes =
            [("PUT", "/quotes/none"), ("PUT", "/quotes/s_sz000723"), ("DELETE", "/quotes/none")];
        for (method, topic) in changes {
            let before = server.public.get(target).tag();
            server.control.ask(method, topic, "", if method == "PUT" { b"1" } else { b"" });
            let fields = format!("If-None-Match: {before}\r\n");
            server.public.ask("GET", target, &fields, b"").expect(200);
        }
    }
    // The tag is of the names as well as of the values.
    let one = server.public.get("/json=none,s_sz000723").tag();
    let other = server.public.get("/json=s_sz000723,none").tag();
    assert_ne!(one, other);
}

#[test]
fn values_by_topic() {
    let server = Server::start();
    let url = server.control;
    url.put("/a", "text/plain", "\"quoted\"\n\u{1}é".as_bytes()).expect(201);
    url.put("/b", "application/json", b"[1, 2]").expect(201);
    url.put("/c d", "text/plain", b"").refused(400);
    url.put("/c%20d", "image/png", b"\x89PNG\xff").expect(201);
    url.put("/e", "application/json", b"{not json").expect(201);
    url.put("/f", "text/plain", b"\xff\xfe").expect(201);
    url.put("/g", "application/vnd.api+json; charset=utf-8", b"true").expect(201);
    let target = "/-/values?topic=/a&topic=/b&topic=/c+d&topic=%2Fe&topic=/f&topic=/g&topic=/none\
                  &topic=not%2Fa//topic";
    for url in [server.public, server.control] {
        let response = url.get(target).expect(200);
        assert_eq!(response.field("content-type"), Some("application/json"));
        let expected = json!({
            "/a": "\"quoted\"\n\u{1}é",
            "/b": [1, 2],
            "/c d": {"data_base64": "iVBOR/8="},
            "/e": {"data_base64": "e25vdCBqc29u"},
            "/f": {"data_base64": "//4="},
            "/g": true,
            "/none": null,
            "not/a//topic": null,
        });
        assert_eq!(response.json(), expected);
        // JSON is embedded as it was published.
        assert!(response.text().contains("\"/b\":[1, 2]"));
    }
}

#[test]
fn values_by_prefix_and_names() {
    let server = Server::start();
    server.control.put("/quotes/aapl", "application/json", b"1.5").expect(201);
    server.control.put("/quotes/msft", "text/plain", b"two").expect(201);
    let get = |target: &str| server.public.get(target).expect(200).json();
    let expected = json!({"aapl": 1.5, "msft": "two", "ibm": null});
    assert_eq!(get("/-/values?prefix=/quotes/&names=aapl,msft,ibm"), expected);
    assert_eq!(get("/-/values?names=aapl&prefix=/quotes/"), json!({"aapl": 1.5}));
    assert_eq!(get("/-/values?prefix=/&names=quotes%2Faapl"), json!({"quotes/aapl": 1.5}));
    assert_eq!(get("/-/values?topic=/quotes/aapl&topic=/quotes/aapl")["/quotes/aapl"], 1.5);
}

#[test]
fn lookups_that_make_no_sense() {
    let server = Server::configured(CONFIG);
    for target in [
        "/-/values",
        "/-/values?",
        "/-/values?prefix=/a",
        "/-/values?names=a",
        "/-/values?topics=/a",
        "/-/values?topic=%zz",
        "/-/values?topic=%ff",
        "/-/values?topic=/1&topic=/2&topic=/3&topic=/4&topic=/5&topic=/6",
        "/-/values?prefix=/&names=1,2,3,4,5,6",
        "/list=1,2,3,4,5,6",
        "/json=1,2,3,4,5,6",
        "/list=%zz",
        // Lines are read as script by the pages that ask for them.
        "/list=a%22;alert(1);%22",
        "/list=a,b'",
        "/list=%3Cscript%3E",
        "/list=a%5C",
        "/list=a%0Ab",
        "/json=a,%ff",
    ] {
        let mut client = server.reader();
        client.get(target).refused(400);
        client.get("/list=1,2,3,4,5").expect(200);
    }
    // A parameter's name comes back in the reason, but never as a header or markup of its own.
    let refused = server.public.get("/-/values?%0d%0aX:%20y%3Cb%3E=1").refused(400);
    assert!(refused.field("x").is_none() && refused.detail().contains(r"\r\n"));
}

#[test]
fn an_answer_of_many_values_has_a_bound() {
    let server = Server::start();
    for n in 0..6 {
        server.control.put(&format!("/{n}"), "text/plain", &[b'x'; 200_000]).expect(201);
    }
    let query = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        format!("/-/values?prefix=/&names={}", names.join(","))
    };
    let mut client = server.reader();
    assert!(client.get(&query(3)).expect(200).body.len() > 600_000);
    client.get(&query(6)).refused(400);
    // A topic that is named again is there once.
    let values = client.get(&format!("/-/values?topic=/0{}", "&topic=/0".repeat(99))).expect(200);
    assert!((200_000..200_100).contains(&values.body.len()), "{}", values.body.len());
    client.get("/0").expect(200);
}

#[test]
fn a_lookup_of_a_thousand_names() {
    let server = Server::start();
    let lines: String =
        (0..1000).map(|i| format!("{{\"topic\":\"/q/{i}\",\"data\":{i}}}\n")).collect();
    server.control.post("/-/publish", lines.as_bytes()).expect(200);
    let names: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    let target = format!("/-/values?prefix=/q/&names={}", names.join(","));
    let values = server.public.get(&target).expect(200).json();
    for (i, name) in names.iter().enumerate() {
        assert_eq!(values[name], Value::from(i));
    }
}

#[test]
fn of_routes_that_overlap_the_first_is_used() {
    let route = |path: &str, line: &str| {
        format!("[[lookup]]\npath = '{path}'\ntopics = '/q/{{name}}'\nline = '{line} {{name}}'\n")
    };
    for (first, second, expected) in [
        (("/l=", "short"), ("/l=x/", "long"), "short x/a"),
        (("/l=x/", "long"), ("/l=", "short"), "long a"),
    ] {
        let server =
            Server::configured(&[route(first.0, first.1), route(second.0, second.1)].concat());
        assert_eq!(server.public.get("/l=x/a").expect(200).text(), expected);
        // A topic of that name is not asked.
        server.publish("/l=x/a", "value");
        assert_eq!(server.public.get("/l=x/a").expect(200).text(), expected);
    }
}
