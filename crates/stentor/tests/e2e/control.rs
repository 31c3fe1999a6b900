//! The control pages: status, metrics, health, topics; and the socket file.

use crate::certificates;
use crate::support::{
    Child, Client, Ending, Server, TempDir, eventually, figure, optional_tool, run, skip, stentor,
};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Command;

#[test]
fn status_in_json() {
    let server = Server::start();
    let put = server.control.put("/a", "text/plain", b"hello").expect(201);
    let _idle: Vec<Client> = (0..5)
        .map(|_| {
            let mut client = server.reader();
            client.get("/a").expect(200);
            client
        })
        .collect();
    let mut client = server.publisher();
    let response = client.get("/-/status").expect(200);
    assert_eq!(response.field("content-type"), Some("application/json"));
    assert_eq!(response.field("cache-control"), Some("no-store"));
    let status = response.json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["draining"], false);
    for (path, expected) in [
        ("workers", 2),
        ("topics", 1),
        ("messages_published", 1),
        ("messages_kept", 1),
        ("messages_kept_bytes", 5),
        ("counters/connections_public", 5),
        ("counters/answers_4xx", 0),
        ("counters/bytes_bodies", 25 + put.body.len() as u64),
    ] {
        assert_eq!(figure(&status, path), expected, "{path}");
    }
    assert!(figure(&status, "memory_resident_bytes") > 1_000_000);
    server.public.get("/none").refused(404);
    assert_eq!(server.figure("counters/answers_4xx"), 1);
}

#[test]
fn status_in_text() {
    let server = Server::start();
    let fields = "Accept: text/plain\r\n";
    let response = server.control.ask("GET", "/-/status", fields, b"").expect(200);
    assert_eq!(response.field("content-type"), Some("text/plain; charset=utf-8"));
    let lines: Vec<&str> = response.text().lines().collect();
    assert!(lines[0].starts_with("Active connections: "), "{lines:?}");
    assert_eq!(lines[1], "server accepts handled requests");
    let figures = lines[2].split_ascii_whitespace().map(str::parse::<u64>);
    assert_eq!(figures.filter(Result::is_ok).count(), 3, "{lines:?}");
    assert!(lines[3].starts_with("Reading: ") && lines[3].contains(" Waiting: "), "{lines:?}");
    for (accept, kind) in [
        ("application/json", "application/json"),
        ("text/html,*/*;q=0.8", "application/json"),
        ("text/*", "text/plain; charset=utf-8"),
        ("text/plain, application/json;q=0.5", "text/plain; charset=utf-8"),
    ] {
        let fields = format!("Accept: {accept}\r\n");
        let response = server.control.ask("GET", "/-/status", &fields, b"").expect(200);
        assert_eq!(response.field("content-type"), Some(kind), "{accept}");
    }
}

#[test]
fn connections_are_counted_as_they_come_and_go() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..20).map(|_| server.reader()).collect();
    for client in &mut clients {
        client.get("/none").refused(404);
    }
    assert_eq!(server.figure("counters/connections_public"), 20);
    clients[0].send("GET /none HTTP/1.1\r\n");
    eventually("one is reading", || {
        (server.figure("counters/connections_reading") == 1).then_some(())
    });
    clients.truncate(7);
    eventually("seven are left", || {
        (server.figure("counters/connections_public") == 7).then_some(())
    });
    drop(clients);
    eventually("none is left", || {
        let status = server.control.get("/-/status").json();
        let busy = figure(&status, "counters/connections_reading");
        (figure(&status, "counters/connections_public") == 0 && busy == 0).then_some(())
    });
}

/// What was read of a metric family.
#[derive(Default)]
struct Family {
    help: bool,
    kind: String,
    samples: Vec<(String, f64)>,
}

/// Reads the Prometheus text format as strictly as its parsers do.
fn families(text: &str) -> HashMap<String, Family> {
    let mut families = HashMap::<String, Family>::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help has a text");
            assert!(!families.contains_key(name) && !help.is_empty(), "{line}");
            name.clone_into(&mut current);
            families.entry(current.clone()).or_default().help = true;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a kind");
            assert_eq!(name, current, "HELP and TYPE stand together");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            kind.clone_into(&mut families.entry(current.clone()).or_default().kind);
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let family = families.get_mut(&current).expect("samples follow their family");
            let part = name.strip_prefix(&current).expect("samples follow their family");
            let is_part = match family.kind.as_str() {
                "histogram" => matches!(part, "_bucket" | "_sum" | "_count"),
                _ => part.is_empty(),
            };
            assert!(is_part, "{line}");
            assert!(labels.is_empty() || labels.ends_with("\"}"), "{line}");
            let value = value.parse().expect("a value is a number");
            family.samples.push((format!("{part}{labels}"), value));
        }
    }
    families
}

#[test]
fn metrics_are_well_formed_and_count() {
    let server = Server::start();
    server.control.put("/a", "text/plain", b"hello").expect(201);
    server.public.get("/a").expect(200);
    server.public.get("/none").refused(404);
    let response = server.control.get("/-/metrics").expect(200);
    let kind = response.field("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let families = families(response.text());
    for (name, family) in &families {
        assert!(name.starts_with("stentor_") || name.starts_with("process_"), "{name}");
        assert!(family.help && !family.kind.is_empty() && !family.samples.is_empty(), "{name}");
        let counter = family.kind == "counter";
        assert_eq!(name.ends_with("_total"), counter, "{name}");
        let mut labels: Vec<&String> = family.samples.iter().map(|(labels, _)| labels).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), family.samples.len(), "{name} has a sample twice");
    }
    let sum = |name: &str| -> f64 {
        let family = families.get(name).unwrap_or_else(|| panic!("no {name}"));
        family.samples.iter().map(|(_, value)| value).sum()
    };
    assert!(sum("stentor_requests_total") >= 4.0);
    assert!(sum("stentor_connections_accepted_total") >= 4.0);
    assert_eq!(sum("stentor_topics"), 1.0);
    assert_eq!(sum("stentor_messages_published_total"), 1.0);
    assert!(sum("stentor_sent_bytes_total") > 100.0);
    assert!(sum("stentor_memory_resident_bytes") > 1e6);
    assert!(!response.text().contains("/a"), "no labels of topics");
}

/// What the files for Grafana and Prometheus ask for is there, under these names.
#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard = include_str!("../../../../packaging/grafana.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut asked = Vec::new();
    expressions(&dashboard, &mut asked);
    assert!(asked.len() > 30, "{} expressions", asked.len());
    // Some are of certificates.
    let dir = TempDir::new();
    let server = certificates::server(dir.path(), "a.example", 90, &[]);
    let metrics = server.control.get("/-/metrics").expect(200);
    let families = families(metrics.text());
    let names = families.iter().flat_map(|(name, family)| {
        let parts = match family.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"][..],
            _ => &[""],
        };
        parts.iter().map(move |part| format!("{name}{part}"))
    });
    let names: HashSet<String> = names.collect();
    for expression in &asked {
        let mut words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let is_name = |word: &&str| word.starts_with("stentor_") || word.starts_with("process_");
        let mut found = words.by_ref().filter(is_name).peekable();
        assert!(found.peek().is_some(), "{expression} asks for nothing");
        found.for_each(|name| assert!(names.contains(name), "no {name}: {expression}"));
    }
    check_with_promtool(&asked);
}

/// All that is asked of Prometheus below a value.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
            Some(text) if name == "expr" => found.push(text.to_owned()),
            _ => expressions(value, found),
        }),
        _ => {}
    }
}

/// Prometheus' own parser understands them, as rules. Its package would start a service, so that
/// it is not installed for this; `cargo xtask dist --check` unpacks it.
fn check_with_promtool(expressions: &[String]) {
    let Some(promtool) = optional_tool("promtool") else {
        eprintln!("not checked with promtool, which is not installed");
        return;
    };
    let rules = expressions.iter().enumerate().map(|(n, expr)| {
        let expr = expr.replace("$__rate_interval", "5m");
        serde_json::json!({ "record": format!("rule:{n}"), "expr": expr })
    });
    let rules: Vec<Value> = rules.collect();
    // JSON is YAML.
    let rules = serde_json::json!({ "groups": [{ "name": "all", "rules": rules }] });
    let dir = TempDir::new();
    let file = dir.path().join("rules.yaml");
    fs::write(&file, rules.to_string()).unwrap();
    let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/alerts.yaml");
    let mut check = Command::new(promtool);
    let output = check.args(["check", "rules", alerts]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn health() {
    let server = Server::start();
    for page in ["/-/healthz", "/-/readyz"] {
        let response = server.control.get(page).expect(200);
        assert_eq!(response.field("cache-control"), Some("no-store"));
        assert!(response.field("content-type").unwrap_or_default().starts_with("text/plain"));
        server.control.ask("HEAD", page, "", b"").expect(200);
    }
    server.control.get("/-/nothing").refused(404);
    server.control.get("/-/").refused(404);
}

#[test]
fn topics_are_listed_page_by_page() {
    let server = Server::start();
    let lines: String =
        (0..250).map(|i| format!("{{\"topic\":\"/t/{i:03}\",\"data\":\"x\"}}\n")).collect();
    server.control.post("/-/publish", lines.as_bytes()).expect(200);
    server.control.put("/other", "text/html", b"hello").expect(201);
    let mut after = String::new();
    let mut seen = Vec::new();
    for page in 0..10 {
        let target = format!("/-/topics?prefix=/t/&limit=100{after}");
        let list = server.control.get(&target).expect(200).json();
        let topics = list["topics"].as_array().unwrap();
        assert_eq!(topics.len(), if page < 2 { 100 } else { 50 });
        seen.extend(topics.iter().map(|topic| topic["topic"].as_str().unwrap().to_owned()));
        match list["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = (0..250).map(|i| format!("/t/{i:03}")).collect();
    assert_eq!(seen, expected);
    let all = server.control.get("/-/topics").expect(200).json();
    assert_eq!(all["topics"].as_array().unwrap().len(), 251);
    let other = &all["topics"][0];
    assert_eq!(other["topic"], "/other");
    assert_eq!((&other["type"], &other["value_bytes"]), (&"text/html".into(), &5.into()));
    assert_eq!(other["history_messages"], 1);
    let published_at = other["published_at"].as_str().unwrap();
    assert!(published_at.starts_with("20") && published_at.ends_with('Z'), "{other}");
    assert_eq!(format!("\"{}\"", other["id"].as_str().unwrap()), server.public.get("/other").tag());
    let none = server.control.get("/-/topics?prefix=/none").expect(200).json();
    assert_eq!(none["topics"].as_array().unwrap().len(), 0);
    for query in ["limit=0", "limit=x", "limit=1000000", "page=2", "prefix=%zz"] {
        server.control.get(&format!("/-/topics?{query}")).refused(400);
    }
}

#[test]
fn the_control_listener_on_a_socket_file() {
    let dir = TempDir::new();
    let path = dir.path().join("control.sock");
    let address = format!("unix:{}", path.display());
    let mut server = Server::with("", "", &["--workers", "2", "--control", &address]);
    server.child.logged(&format!("control listener at {address}"));
    let mut client = Client::connect_unix(&path);
    client.ask("PUT", "/a", "", b"hello").expect(201);
    assert_eq!(client.get("/a").expect(200).text(), "hello");
    assert_eq!(server.public.get("/a").text(), "hello");
    assert_eq!(client.get("/-/status").expect(200).json()["topics"], 1);
    // Another server does not take a file that is in use.
    let second = run(&["serve", "--listen", "127.0.0.1:0", "--control", &address]);
    assert_eq!(second.code, Some(1));
    assert!(second.err.contains(&address), "{}", second.err);
    client.get("/a").expect(200);
    // The file goes with the server.
    server.child.signal("TERM");
    assert_eq!(client.ending(), Ending::Closed);
    server.child.stopped();
    assert!(!path.exists());
}

#[test]
fn a_socket_file_left_behind_is_replaced() {
    let dir = TempDir::new();
    let path = dir.path().join("control.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists() && UnixStream::connect(&path).is_err());
    let address = format!("unix:{}", path.display());
    let _server = Server::with("", "", &["--workers", "1", "--control", &address]);
    Client::connect_unix(&path).get("/-/healthz").expect(200);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let dir = TempDir::new();
    let file = dir.path().join("data");
    fs::write(&file, "precious").unwrap();
    let address = format!("unix:{}", file.display());
    let mut other =
        Child::spawn(stentor(["serve", "--listen", "127.0.0.1:0"]).args(["--control", &address]));
    let started = eventually("it ends or says that it is ready", || {
        if other.err().contains("ready: ") {
            Some(true)
        } else {
            (!other.is_running()).then_some(false)
        }
    });
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("precious"));
    assert!(!started);
    assert_eq!(other.wait(), Some(1));
}

/// Where a crowd keeps all cores busy, whoever publishes does not wait for the public workers.
#[test]
fn the_control_worker_has_short_turns_on_its_core() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    let server = Server::start();
    let tasks = format!("/proc/{}/task", server.child.id());
    let mut turns = HashMap::new();
    for task in fs::read_dir(tasks).unwrap() {
        let read = |name| fs::read_to_string(task.as_ref().unwrap().path().join(name));
        let Ok(sched) = read("sched") else { continue };
        let Some(line) = sched.lines().find(|line| line.starts_with("se.slice")) else { continue };
        let turn: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        turns.insert(read("comm").unwrap().trim().to_owned(), turn);
    }
    if turns.is_empty() || kernel < (6, 12) {
        return skip(&format!("this kernel has no turns of a thread's own: {release}"));
    }
    assert_eq!(turns["control"], 100_000, "{turns:?}");
    assert!(turns["worker-0"] > 100_000, "{turns:?}");
}
