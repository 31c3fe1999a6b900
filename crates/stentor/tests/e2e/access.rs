//! Who may publish and who may read, over real sockets: every way there is, with every token.

use crate::support::{
    Browser, Child, EventStream, NOTICE, Response, Server, TempDir, UPGRADE, WebSocket, curl,
    eventually, run, stentor, tool,
};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// `printf stentor_team | sha256sum`, and so on.
const TEAM: &str = "2e7206efa0a46342ee7fadec9f781d41988fe2df1c60cc64e1ab96d3d9265bf9";
const OLD: &str = "220d092681168e0944e35b790101fbc9b7f734d0cec84bbfcf8ff30cbf1fe86a";
const WRITER: &str = "b7cc4df6109781be65bf7edc58ebbbdc83b918315d745d1937769a2357ef4489";

/// Has the token `stentor_writer` publish below `/in`.
pub(crate) fn writer_below_in() -> String {
    format!(
        "
[[topics]]
match = '/in/**'
publish = 'token'
[[token]]
name = 'writer'
sha256 = '{WRITER}'
publish = '/in/**'
"
    )
}

/// The token of the team ends then.
pub(crate) fn config(expires: &str, more: &str) -> String {
    format!(
        "{more}
[[topics]]
match = '/team/**'
read = 'token'
publish = 'token'
[[topics]]
match = '/in/**'
publish = 'token'
[access]
cookie = 'auth'
[cors]
origins = ['https://shop.example']
[[token]]
name = 'team'
sha256 = '{TEAM}'
read = '/team/**'
expires = '{expires}'
[[token]]
name = 'old'
sha256 = '{OLD}'
read = '/**'
publish = '/**'
expires = '2020-01-01T00:00:00Z'
[[token]]
name = 'writer'
sha256 = '{WRITER}'
publish = ['/team/*', '/in/**', '/elsewhere/*']
"
    )
}

pub(crate) const NEVER: &str = "2100-01-01T00:00:00Z";

pub(crate) fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\r\n")
}

/// What each kind of client brings: nothing, nonsense, one that has expired, one for other topics,
/// the right one.
fn brings(publishes: bool) -> [String; 5] {
    let (wrong, right) = if publishes {
        ("stentor_team", "stentor_writer")
    } else {
        ("stentor_writer", "stentor_team")
    };
    [String::new(), bearer("stentor_unknown"), bearer("stentor_wide"), bearer(wrong), bearer(right)]
}

/// The status of an answer on a connection of its own; of a stream that of its head.
fn status(server: &Server, is_control: bool, request: (&str, &str, &str, &str)) -> u16 {
    let (method, target, fields, body) = request;
    let mut client = if is_control { server.publisher() } else { server.reader() };
    match fields.contains("event-stream") || fields.contains("Upgrade") {
        true => client.open(target, fields).status,
        false => client.ask(method, target, fields, body.as_bytes()).status,
    }
}

#[test]
fn every_endpoint_with_every_token_at_every_listener() {
    let plain = Server::configured(&config(NEVER, ""));
    let strict = Server::configured(&config(NEVER, "control_token = true"));
    for server in [&plain, &strict] {
        let fields = format!("{}Content-Type: text/plain\r\n", bearer("stentor_writer"));
        server.control.ask("PUT", "/team/a", &fields, b"secret").expect(201);
    }
    let reads = [
        ("GET", "/team/a", "", 200),
        ("HEAD", "/team/a", "", 200),
        ("GET", "http://localhost/team/%61", "", 200),
        ("GET", "/team/a?wait=0", "", 200),
        ("GET", "/team/none", "", 404),
        ("GET", "/-/values?topic=/team/a", "", 200),
        ("GET", "/-/values?topic=/open&topic=/team/a", "", 200),
        ("GET", "/-/events?topic=/team/*&wait=0", "", 200),
        ("GET", "/team/a", "Accept: text/event-stream\r\n", 200),
        ("GET", "/-/events?topic=/team/**&since=earliest", "Accept: text/event-stream\r\n", 200),
        ("GET", "/team/a", UPGRADE, 101),
        ("GET", "/-/events?topic=/team/*", UPGRADE, 101),
    ];
    for (method, target, fields, good) in reads {
        for (kind, token) in brings(false).iter().enumerate() {
            let expected = [401, 401, 401, 403, good][kind];
            let fields = format!("{fields}{token}");
            let ask =
                |server, is_control| status(server, is_control, (method, target, &fields, ""));
            assert_eq!(ask(&plain, false), expected, "{method} {target} {fields}");
            assert_eq!(ask(&plain, true), good, "control: {method} {target} {fields}");
            assert_eq!(ask(&strict, true), expected, "strict: {method} {target} {fields}");
        }
    }
    let writes = [
        ("PUT", "/team/b", "x", 200, 403),
        ("POST", "/in/a/b", "x", 200, 403),
        ("DELETE", "/team/none", "", 404, 403),
        // A rule must let tokens publish, too.
        ("PUT", "/elsewhere/a", "x", 403, 403),
        ("POST", "/-/publish", "{\"topic\":\"/team/b\",\"data\":1}\n", 200, 403),
    ];
    for server in [&plain, &strict] {
        for topic in ["/team/b", "/in/a/b", "/elsewhere/a"] {
            let fields = bearer("stentor_writer");
            server.control.ask("PUT", topic, &fields, b"first").expect(201);
        }
    }
    for (method, target, body, good, wrong) in writes {
        for (kind, token) in brings(true).iter().enumerate() {
            let ask =
                |server, is_control| status(server, is_control, (method, target, token, body));
            let public = [401, 401, 401, wrong, good][kind];
            assert_eq!(ask(&plain, false), public, "{method} {target} {token}");
            let trusted = if method == "DELETE" { 404 } else { 200 };
            assert_eq!(ask(&plain, true), trusted, "control: {method} {target} {token}");
            let strictly = [401, 401, 401, 403, trusted][kind];
            assert_eq!(ask(&strict, true), strictly, "strict: {method} {target} {token}");
        }
    }
    // What was never asked for is as it was.
    assert_eq!(status(&plain, false, ("PUT", "/open", "", "x")), 401);
    assert_eq!(status(&plain, false, ("GET", "/open", "", "")), 404);
    assert_eq!(status(&strict, true, ("GET", "/-/topics", "", "")), 200);
    assert_eq!(status(&strict, true, ("GET", "/-/status", "", "")), 200);
}

/// An answer without what differs by time.
pub(crate) fn said(response: &Response) -> String {
    let body = String::from_utf8_lossy(&response.body);
    format!("{response:?} {body}").lines().filter(|line| !line.starts_with("Date")).collect()
}

#[test]
fn no_answer_tells_whether_there_is_such_a_topic() {
    let server = Server::configured(&config(NEVER, ""));
    server.publish("/team/there", "secret");
    for token in ["", &bearer("stentor_unknown"), &bearer("stentor_writer")] {
        for (method, more) in [
            ("GET", ""),
            ("HEAD", ""),
            ("GET", "If-None-Match: *\r\n"),
            ("GET", "If-None-Match: \"0badcafe-1\"\r\n"),
            ("GET", "Range: bytes=0-0\r\n"),
            ("GET", "Prefer: wait=1\r\n"),
            ("PATCH", ""),
        ] {
            let ask = |target: &str| {
                let fields = format!("{token}{more}");
                said(&server.public.ask(method, target, &fields, b""))
            };
            assert_eq!(ask("/team/there"), ask("/team/their"), "{method} {more}");
        }
        for query in ["/-/values?topic=", "/-/events?wait=0&topic="] {
            let ask = |topic: &str| {
                said(&server.public.ask("GET", &format!("{query}{topic}"), token, b""))
            };
            assert_eq!(ask("/team/there"), ask("/team/their"), "{query}");
        }
    }
    let denied = server.public.get("/team/there").expect(401);
    assert_eq!(denied.field("www-authenticate"), Some("Bearer realm=\"stentor\""));
    let bad = server.public.ask("GET", "/team/there", &bearer("stentor_wide"), b"").expect(401);
    let why = bad.field("www-authenticate").unwrap();
    assert!(why.contains("error=\"invalid_token\"") && why.contains("has expired"), "{why}");
    let wrong = server.public.ask("GET", "/team/there", &bearer("stentor_writer"), b"").expect(403);
    assert!(wrong.field("www-authenticate").unwrap().contains("insufficient_scope"));
    let good = server.public.ask("GET", "/team/there", &bearer("stentor_team"), b"").expect(200);
    let fields = format!("{good:?}").to_ascii_lowercase();
    assert!(fields.contains("cache-control: private"), "{fields}");
    assert!(fields.contains("authorization, cookie"), "{fields}");
    server
        .public
        .ask("GET", "/team/there", "Authorization: a b\r\nAuthorization: a b\r\n", b"")
        .refused(400);
}

#[test]
fn a_token_is_in_no_log() {
    let access = "[log]\naccess = 'stderr'\naccess_format = 'json'\nlevel = 'debug'\n";
    let server = Server::configured(&format!("{}{access}", config(NEVER, "")));
    server.publish("/team/a", "secret");
    let secret = "stentor_team";
    server.public.get(&format!("/team/a?access_token={secret}")).expect(200);
    server.public.get("/team/a?access_token=stentor_teams").refused(401);
    server.public.get(&format!("/-/values?topic=/team/a&access_token={secret}")).expect(200);
    server.public.get(&format!("/-/events?topic=/team/a&wait=0&access_token={secret}")).expect(200);
    server.public.get(&format!("/-/events?topik=/team/a&access_token={secret}")).refused(400);
    server.public.ask("GET", "/team/a", &bearer(secret), b"").expect(200);
    server.public.ask("GET", "/team/a", &bearer("stentor_teams"), b"").expect(401);
    server.public.ask("GET", "/team/a", &format!("Cookie: auth={secret}\r\n"), b"").expect(200);
    server.public.ask("PUT", &format!("/team/a?access_token={secret}"), "", b"x").expect(403);
    let fields = format!("Referer: http://h/x?access_token={secret}\r\n");
    server.public.ask("GET", "/none", &fields, b"").expect(404);
    server.public.get(&format!("/last?access_token={secret}")).expect(404);
    let log = eventually("the last request is logged", || {
        let log = server.child.err();
        log.contains("/last?access_token=***").then_some(log)
    });
    assert!(!log.contains(secret), "{log}");
    assert!(log.contains("a token is refused: unknown_secret"), "{log}");
    let metrics = server.control.get("/-/metrics").expect(200);
    for line in ["stentor_refused_total{reason=\"unknown_secret\"} 2", "{reason=\"not_covered\"} 1"]
    {
        assert!(metrics.text().contains(line), "{}", metrics.text());
    }
}

#[test]
fn several_requests_of_one_connection_are_each_judged_by_its_own_token() {
    let server = Server::configured(&config(NEVER, ""));
    server.publish("/team/a", "secret");
    let mut client = server.reader();
    let ask = |token: &str| format!("GET /team/a HTTP/1.1\r\nHost: h\r\n{token}\r\n");
    let (good, bad) = (bearer("stentor_team"), bearer("stentor_writer"));
    client.send([ask(&good), ask(""), ask(&bad), ask(&good), ask("")].concat());
    let statuses: Vec<u16> = (0..5).map(|_| client.response().status).collect();
    assert_eq!(statuses, [200, 401, 403, 200, 401]);
}

#[test]
fn a_stream_says_what_it_does_not_cover_and_leaves_it_out() {
    let server = Server::configured(&config(NEVER, ""));
    server.publish("/open", "one");
    server.publish("/team/a", "secret");
    let mut stream = EventStream::open(server.public, "/-/events?topic=/**&topic=/team/a", "");
    let event = stream.event();
    assert_eq!(event.name.as_deref(), Some(NOTICE));
    assert_eq!(event.data, "{\"access\":{\"denied\":[\"/team/a\"],\"partial\":[\"/**\"]}}");
    assert!(stream.event().data.contains("one"));
    server.publish("/team/b", "secret");
    let last = server.publish("/open", "two");
    assert!(stream.event().data.contains("two"));
    // Nothing is new, and that is not all.
    let poll = server.public.get("/-/events?topic=/*/none&wait=0").expect(200).json();
    let notice = json!({"access": {"denied": [], "partial": ["/*/none"]}});
    assert_eq!(poll["events"], json!([notice]));
    // By a subprotocol, which is not among what is answered.
    let fields = "Sec-WebSocket-Protocol: stentor.v1, stentor.token.stentor_team\r\n";
    let mut socket = WebSocket::open(server.public, "/-/events", fields);
    assert_eq!(socket.head.field("sec-websocket-protocol"), Some("stentor.v1"));
    socket.send(0x81, r#"{"subscribe":["/team/a","/in/*"]}"#);
    assert_eq!(socket.json()["data"], "secret");
    let mut socket =
        WebSocket::open(server.public, "/-/events", "Sec-WebSocket-Protocol: stentor.v1\r\n");
    socket.send(0x81, r#"{"subscribe":["/team/a"]}"#);
    let told = socket.json();
    assert_eq!(
        (&told["error"]["code"], &told["error"]["status"]),
        (&json!("token_required"), &json!(401))
    );
    socket.send(0x81, r#"{"id":"b","token":"stentor_team","subscribe":["/team/a"]}"#);
    assert_eq!(socket.json()["data"], "secret");
    assert_eq!(socket.json(), json!({"ok": {"id": "b", "cursor": last}}));
    socket.send(0x81, r#"{"token":"stentor_team"}"#);
    assert_eq!(socket.json(), json!({"ok": {}}));
}

/// So many seconds from now.
fn soon(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = format!("@{}", now + seconds);
    let date = Command::new("date").args(["-u", "-d", &at, "+%Y-%m-%dT%H:%M:%SZ"]).output();
    String::from_utf8(date.unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn streams_end_when_their_token_does() {
    let server = Server::configured(&config(&soon(6), ""));
    server.publish("/team/a", "secret");
    let fields = bearer("stentor_team");
    let mut stream = EventStream::open(server.public, "/team/a", &fields);
    assert_eq!(stream.event().data, "secret");
    let mut socket = WebSocket::open(server.public, "/team/a?access_token=stentor_team", "");
    let mut held = server.reader();
    held.send(format!("GET /team/b?wait=60 HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    let event = stream.event();
    assert_eq!(event.name.as_deref(), Some(NOTICE));
    assert_eq!(event.data, "{\"end\":{\"reason\":\"token_expired\"}}");
    stream.ending();
    assert_eq!(socket.text(), "secret");
    assert_eq!(socket.closed(), Some(4401));
    held.response().refused(401);
    server.public.ask("GET", "/team/a", &fields, b"").refused(401);
    server.settled("readers_by_token", 0);
}

#[test]
fn streams_end_when_their_key_is_taken_away() {
    let mut server = Server::configured(&config(NEVER, ""));
    server.publish("/team/a", "secret");
    let mut stream = EventStream::open(server.public, "/team/a", &bearer("stentor_team"));
    assert_eq!(stream.event().data, "secret");
    let mut open = EventStream::open(server.public, "/in/a", "");
    let file = server.dir.path().join("stentor.toml");
    let text = config(NEVER, "").replace(TEAM, &"0".repeat(64));
    std::fs::write(&file, text).unwrap();
    server.child.signal("HUP");
    server.child.logged("reloaded");
    assert_eq!(stream.event().data, "{\"end\":{\"reason\":\"token_revoked\"}}");
    stream.ending();
    server.publish("/in/a", "still");
    assert_eq!(open.event().data, "still");
}

/// curl, Python and Node publish from another address than the server's.
#[test]
fn programs_publish_from_elsewhere_with_a_token() {
    let server = Server::configured(&config(NEVER, ""));
    let url = format!("http://{}/in/program", server.public.0);
    let header = "Authorization: Bearer stentor_writer";
    let from = ["--interface", "127.0.0.7", "-sS", "-X", "PUT", "-d", "curl", "-H", header, &url];
    if curl(&from).is_some() {
        assert_eq!(server.public.get("/in/program").expect(200).body, b"curl");
    }
    let Some(python) = tool("python3") else { return };
    let script = format!(
        "import http.client\n\
         c = http.client.HTTPConnection('127.0.0.1', {}, source_address=('127.0.0.8', 0))\n\
         c.request('PUT', '/in/python', 'py', {{'Authorization': 'Bearer stentor_writer'}})\n\
         assert c.getresponse().status == 201\n",
        server.public.0.port()
    );
    assert!(Command::new(python).args(["-c", &script]).status().unwrap().success());
    assert_eq!(server.public.get("/in/python").expect(200).body, b"py");
    let Some(node) = tool("node") else { return };
    let script = format!(
        "const request = require('http').request({{ host: '127.0.0.1', port: {}, method: 'PUT', \
         path: '/in/node', localAddress: '127.0.0.9', \
         headers: {{ Authorization: 'Bearer stentor_writer' }} }}, \
         (answer) => process.exit(answer.statusCode === 201 ? 0 : 1)); request.end('node')",
        server.public.0.port()
    );
    let ran = Command::new(node).args(["-e", &script]).status().unwrap();
    assert!(ran.success());
    assert_eq!(server.public.get("/in/node").expect(200).body, b"node");
}

#[test]
fn pages_publish_only_from_listed_origins_and_never_by_a_cookie_alone() {
    let server = Server::configured(&config(NEVER, ""));
    let cookie = "Cookie: auth=stentor_writer\r\n";
    let listed = "Origin: https://shop.example\r\n";
    let other = "Origin: https://evil.example\r\n";
    for (fields, expected) in [
        (cookie.to_owned(), 403),
        (format!("{cookie}{other}"), 403),
        (format!("{cookie}{listed}"), 201),
        (format!("{}{other}", bearer("stentor_writer")), 403),
        (format!("{}{listed}", bearer("stentor_writer")), 200),
        (format!("{cookie}Sec-Fetch-Site: cross-site\r\n"), 403),
    ] {
        let response = server.public.ask("PUT", "/in/page", &fields, b"x");
        assert_eq!(response.status, expected, "{fields} {response:?}");
        let allowed = response.field("access-control-allow-origin");
        let is_listed = fields.contains("shop.example");
        assert_eq!(allowed, is_listed.then_some("https://shop.example"), "{response:?}");
    }
    let ask = "Access-Control-Request-Method: PUT\r\n";
    let preflight = server.public.ask("OPTIONS", "/in/page", &format!("{listed}{ask}"), b"");
    let allows = preflight.expect(204);
    assert_eq!(allows.field("access-control-allow-origin"), Some("https://shop.example"));
    assert_eq!(allows.field("access-control-allow-credentials"), Some("true"));
    assert!(allows.field("access-control-allow-methods").unwrap().contains("PUT"));
    assert!(allows.field("access-control-allow-headers").unwrap().contains("Authorization"));
    let refused = server.public.ask("OPTIONS", "/in/page", &format!("{other}{ask}"), b"");
    assert_eq!(refused.field("access-control-allow-origin"), None);
    assert_eq!(refused.field("access-control-allow-credentials"), None);
    // Nor does a page of another site open a WebSocket by it.
    server.publish("/team/a", "secret");
    let cookie = "Cookie: auth=stentor_team\r\n";
    for (fields, expected) in [(listed, 200), (other, 401), ("", 200)] {
        let response = server.public.ask("GET", "/team/a", &format!("{cookie}{fields}"), b"");
        assert_eq!(response.status, expected, "{fields}");
    }
}

#[test]
fn what_tokens_publish_runs_nothing_in_the_name_of_its_readers() {
    let server = Server::configured(&config(NEVER, ""));
    let writer = bearer("stentor_writer");
    let sandboxed = |topic: &str, fields: &str, status: u16| {
        let response = server.public.ask("GET", topic, fields, b"").expect(status);
        let policy = response.field("content-security-policy");
        assert!(policy.is_none_or(|policy| policy == "sandbox"), "{response:?}");
        policy.is_some()
    };
    for (content_type, runs) in [
        ("text/html", true),
        ("Text/HTML; charset=utf-8", true),
        ("image/svg+xml", true),
        ("application/xhtml+xml", true),
        ("text/xml", true),
        ("application/atom+xml", true),
        ("multipart/x-mixed-replace", true),
        // A browser goes by the last of a list.
        ("text/plain;a, text/html", true),
        ("unheard/of", true),
        ("application/json", false),
        ("text/plain; charset=utf-8", false),
        ("image/png", false),
        ("application/octet-stream", false),
    ] {
        let fields = format!("{writer}Content-Type: {content_type}\r\n");
        let answer = server.public.ask("PUT", "/in/page", &fields, b"<script>a()</script>");
        let tag = format!("If-None-Match: {}\r\n", answer.field("etag").unwrap());
        server.control.put("/page", content_type, b"<p>ours").expect_one_of(&[200, 201]);
        assert_eq!(sandboxed("/in/page", "", 200), runs, "{content_type}");
        assert_eq!(sandboxed("/in/page", &tag, 304), runs, "{content_type}");
        assert!(!sandboxed("/page", "", 200), "{content_type}");
        let fields = bearer("stentor_team");
        server.control.put("/team/page", content_type, b"<p>").expect_one_of(&[200, 201]);
        assert_eq!(sandboxed("/team/page", &fields, 200), runs, "{content_type}");
    }
}

#[test]
fn a_cookie_reads_no_list_that_any_page_could_load_as_script() {
    let lookup = "[[lookup]]\npath = '/list='\ntopics = '/team/{name}'\nline = 'a[\"{name}\"]'\n";
    let server = Server::configured(&format!("{}{lookup}", config(NEVER, "")));
    server.publish("/team/a", "secret");
    let cookie = "Cookie: auth=stentor_team\r\n";
    for (fields, expected) in [
        (cookie.to_owned(), 401),
        (format!("{cookie}Sec-Fetch-Site: cross-site\r\n"), 401),
        (format!("{cookie}Sec-Fetch-Site: same-origin\r\n"), 200),
        (format!("{cookie}Origin: https://shop.example\r\n"), 200),
        (format!("{cookie}Origin: https://evil.example\r\n"), 401),
        (bearer("stentor_team"), 200),
    ] {
        let response = server.public.ask("GET", "/list=a", &fields, b"");
        assert_eq!(response.status, expected, "{fields} {response:?}");
    }
    // What is no list cannot be loaded so.
    server.public.ask("GET", "/team/a", cookie, b"").expect(200);
}

#[test]
fn a_token_to_publish_is_told_which_rule_is_missing() {
    let toml = format!("[[token]]\nname = 'a'\npublish = '/**'\nsha256 = '{WRITER}'\n");
    let server = Server::configured(&toml);
    let fields = bearer("stentor_writer");
    let refused = |fields: &str, target: &str| {
        server.public.ask("PUT", target, fields, b"x").refused(405).detail()
    };
    for target in ["/team/a", "/-/publish"] {
        assert!(refused(&fields, target).contains("a rule of [[topics]] says publish = \"token\""));
        assert!(refused("", target).starts_with("The public listener only answers reads"));
    }
    // The rule covers other topics.
    let server = Server::configured(&config(NEVER, ""));
    let answer = server.public.ask("PUT", "/elsewhere/a", &fields, b"x").refused(403);
    assert!(answer.detail().contains("would have to say publish = \"token\""), "{answer:?}");
    let answer = server.public.ask("PUT", "/in/a", &bearer("stentor_team"), b"x").refused(403);
    assert!(answer.detail().contains("The token does not allow to publish here."), "{answer:?}");
}

#[test]
fn commands_send_the_token_of_a_file_or_of_the_environment_and_show_it_nowhere() {
    let more = "control_token = true\n[log]\nlevel = 'debug'\n";
    let server = Server::configured(&config(NEVER, more));
    let dir = TempDir::new();
    let file = dir.path().join("token");
    let [public, control] = [server.public, server.control].map(|url| format!("http://{}", url.0));
    let command = |line: &[&str], token: &str| {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        let mut by_file = stentor(line);
        by_file.arg("--token-file").arg(&file);
        let mut by_variable = stentor(line);
        by_variable.env("STENTOR_TOKEN", token);
        [by_file, by_variable].map(|mut command| {
            let mut child = Child::spawn(command.stdin(Stdio::piped()));
            child.input().write_all(b"a line\n").unwrap();
            child.said()
        })
    };
    let publish = ["pub", "/team/a", "a value", "--control", &public];
    let lines = ["pub", "/team/b", "--lines", "--control", &control];
    let bench = format!("{public}/team/a");
    let bench = ["bench", "get", &bench, "--requests", "1", "--connections", "1", "--json"];
    let put = format!("{control}/team/c");
    let put = ["bench", "put", &put, "-n", "1", "-c", "1", "-j"];
    for line in [&publish[..], &lines, &bench, &put] {
        let token = if line[1] == "get" { "stentor_team" } else { "stentor_writer" };
        for said in command(line, token) {
            assert_eq!(said.code, Some(0), "{line:?}: {said:?}");
            assert!(!said.out.contains("\"401\"") && !said.out.contains(token), "{said:?}");
        }
        for said in command(line, "stentor_unknown") {
            assert!(said.code != Some(0) || said.out.contains("401"), "{line:?}: {said:?}");
            assert!(!format!("{said:?}").contains("stentor_unknown"), "{said:?}");
        }
    }
    for stranger in ["http://no-such-host.invalid:1", "https://no-such-host.invalid:1"] {
        let mut elsewhere = stentor(["pub", "/team/a", "x", "--server", stranger]);
        let said = Child::spawn(elsewhere.env("STENTOR_TOKEN", "stentor_writer")).said();
        assert_eq!(said.code, Some(1), "{said:?}");
        let note = format!("note: STENTOR_TOKEN is not sent to {stranger}: ");
        assert!(said.err.starts_with(&note) && !said.err.contains("stentor_writer"), "{said:?}");
        let mut named = stentor(["pub", "/team/a", "x"]);
        named.env("STENTOR_TOKEN", "stentor_writer").env("STENTOR_SERVER", stranger);
        let said = Child::spawn(&mut named).said();
        assert_eq!(said.err.starts_with("note: "), stranger.starts_with("http:"), "{said:?}");
    }
    let mut reader = stentor(["sub", "/team/a", "--server", &public]);
    let reader = Child::spawn(reader.env("STENTOR_TOKEN", "stentor_team"));
    eventually("the value is read", || (reader.out() == "a value\n").then_some(()));
    let said = run(&["sub", "/team/a", "--server", &public]);
    assert!(said.err.contains("401"), "{said:?}");
    let said = run(&["status", "--server", &control, "--token", "stentor_writer"]);
    assert!(said.code == Some(2) && !said.err.contains("stentor_writer"), "{said:?}");
    let log = server.child.err();
    assert!(log.contains("request=\"PUT /team/a HTTP/1.1\"") && !log.contains("stentor_"), "{log}");
}

#[test]
fn files_may_ask_for_a_token() {
    let site = crate::support::Site::of(&[("team/plan.txt", b"secret"), ("open.txt", b"open")]);
    let mounts = format!(
        "{}[[static]]\npath = '/team'\nroot = '{}'\nread = 'token'\nlisting = true\n\
         [[static]]\nroot = '{}'\n",
        config(NEVER, "").replace("match = '/team/**'\nread = 'token'", "match = '/other/**'"),
        site.path("team").display(),
        site.root().display()
    );
    let server = Server::configured(&mounts);
    server.public.get("/open.txt").expect(200);
    let said_of = |target: &str| said(&server.public.get(target).expect(401));
    assert_eq!(said_of("/team/plan.txt"), said_of("/team/none.txt"));
    for target in ["/team", "/team/", "/team/%70lan.txt"] {
        server.public.get(target).refused(401);
    }
    let fields = bearer("stentor_team");
    let file = server.public.ask("GET", "/team/plan.txt", &fields, b"").expect(200);
    assert_eq!(file.body, b"secret");
    assert!(format!("{file:?}").to_ascii_lowercase().contains("cache-control: private"));
    server.public.ask("GET", "/team/", &fields, b"").expect(200);
    server.public.ask("GET", "/team/plan.txt", &bearer("stentor_writer"), b"").refused(403);
}

#[test]
fn what_asks_for_tokens_needs_some() {
    let said = |toml: &str| {
        let dir = crate::support::TempDir::new();
        let file = dir.path().join("stentor.toml");
        std::fs::write(&file, toml).unwrap();
        crate::support::run(&["check", file.to_str().unwrap()]).err
    };
    for toml in ["control_token = true", "[[topics]]\nmatch = '/a'\nread = 'token'"] {
        assert!(said(toml).contains("there is no token"), "{toml}: {}", said(toml));
    }
    let world = said("[[topics]]\nmatch = '/a'\npublish = 'anyone'");
    assert!(world.contains("'anyone' cannot publish"), "{world}");
}

#[test]
fn a_browser_reads_a_private_stream_by_cookie_and_by_token_and_survives_renewal() {
    let Some(mut browser) = Browser::start() else { return };
    let more = "[[token]]\nname = 'fresh'\nread = '/team/**'\n".to_owned();
    let fresh = "06fd573aee7c62340a9d2d7a8b565ac680a879c681f7fb3ac25dcb682b1ac868";
    let text = format!("{}{more}sha256 = '{fresh}'\n", config(&soon(10), ""));
    let server = Server::configured(&text);
    server.publish("/team/a", "one");
    let page = "<!doctype html><title>private</title><script>var heard = [], asked = 0;</script>";
    server.control.put("/page", "text/html", page.as_bytes()).expect_one_of(&[200, 201]);
    browser.open(&format!("http://{}/page", server.public.0));
    browser.run(
        "document.cookie = 'auth=stentor_team; path=/';
         const keep = name => e => heard.push(name + ' ' + e.type + ' ' + e.data);
         const source = new EventSource('/team/a');
         source.onmessage = keep('cookie');
         source.addEventListener('stentor', keep('cookie'));
         import('/-/stentor.js').then(({ connect }) => {
             const token = async () => ++asked > 1 ? 'sim_team' : 'stentor_team';
             connect('', { token }).watch('/team/a', value => heard.push('token ' + value));
             connect('', { token: 'stentor_team', transport: 'websocket' })
                 .watch('/team/a', value => heard.push('socket ' + value));
         });",
    );
    let mut hears = |what: &str| {
        eventually(&format!("the page hears {what}"), || {
            let heard = browser.run("return heard").to_string();
            heard.contains(what).then_some(())
        });
    };
    hears("cookie message one");
    hears("token one");
    hears("socket one");
    hears("cookie stentor {\\\"end\\\":{\\\"reason\\\":\\\"token_expired\\\"}}");
    server.publish("/team/a", "two");
    hears("token two");
    assert!(browser.run("return asked").as_u64() >= Some(2));
    assert!(!browser.run("return heard").to_string().contains("cookie message two"));
}

/// Runs a line of the documentation in the directory of a test.
fn shell(dir: &TempDir, line: &str, address: &str) -> String {
    let line = line
        .replace("stentor token", &format!("{} token", env!("CARGO_BIN_EXE_stentor")))
        .replace("127.0.0.1:8080", address)
        .replace("curl ", "curl -q --noproxy '*' --max-time 3 ");
    let output = Command::new("sh").args(["-c", &line]).current_dir(dir.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn five_commands_lead_from_nothing_to_a_private_stream() {
    if tool("curl").is_none() {
        return;
    }
    let page = include_str!("../../../../docs/access.md");
    let lines: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("$ ")).take(5).collect();
    let dir = TempDir::new();
    shell(&dir, lines[0], "");
    shell(&dir, lines[1], "");
    assert_eq!(lines[2], "stentor serve -c stentor.toml &");
    let config = std::fs::read_to_string(dir.path().join("stentor.toml")).unwrap();
    let server = Server::configured(&config);
    let address = server.public.0.to_string();
    assert!(shell(&dir, lines[3], &address).starts_with("{\"id\":"));
    let stream = shell(&dir, lines[4], &address);
    assert!(stream.contains("data: at nine"), "{stream}");
    server.public.get("/team/plan").refused(401);
}
