//! Alerts: each rule of `packaging/alerts.yaml` fires for its cause, in test cases and for real.
//!
//! `promtool` runs the cases of `alerts.test.yaml` and judges the metrics. A real Prometheus
//! scrapes real servers, each with one thing wrong, by the shipped rules with shorter times. Four
//! rules have test cases alone: no test here breaks a worker, makes memory short, or has a node or
//! look-ups fall behind for long enough.

use crate::certificates;
use crate::support::pages::{fragments, root};
use crate::support::{
    Child, Client, EventStream, Server, Site, TempDir, built, curl, eventually, free_address,
    missing, tool,
};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn rules_fire_in_their_test_cases() {
    let Some(mut promtool) = program("promtool").map(Command::new) else { return };
    promtool.current_dir(root().join("packaging")).args(["test", "rules", "alerts.test.yaml"]);
    let output = promtool.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn metrics_have_the_form_that_prometheus_likes() {
    let Some(promtool) = program("promtool") else { return };
    let dir = TempDir::new();
    let nobody = free_address();
    let store = format!("store.path = '{}'\n", dir.path().join("data").display());
    let servers = [
        certificates::server(dir.path(), "a.example", 60, &[]),
        Server::configured(&store),
        Server::configured(&format!("follow.leader = 'http://{nobody}'\n")),
        Server::configured(&format!("[cluster]\nnats = 'nats://{nobody}'\n")),
    ];
    let mut seen = String::new();
    for server in &servers {
        let text = server.control.get("/-/metrics").expect(200).text().to_owned();
        let file = dir.path().join("metrics");
        fs::write(&file, &text).unwrap();
        let mut check = Command::new(&promtool);
        check.args(["check", "metrics"]).stdin(fs::File::open(&file).unwrap());
        let output = check.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        seen += &text;
    }
    for part in ["tls_handshake_seconds_total", "tls_files_good", "store_up", "follow_up"] {
        assert!(seen.contains(&format!("\nstentor_{part} ")), "no {part}");
    }
    assert!(seen.contains("\nstentor_cluster_up "));
}

/// The configurations of the page: one is run as it stands, but for the address and the path of the
/// rules; that for Kubernetes is checked.
#[test]
fn the_documented_scrapes_are_up() {
    let Some(promtool) = program("promtool") else { return };
    let server = Server::with("", "", &["--monitor", "127.0.0.1:0"]);
    let mut child = server.child;
    let monitor = child.logged("monitor listener at ");
    let scrapes = fragments(&["yaml"]);
    assert!(scrapes.len() >= 2, "only {} configurations", scrapes.len());
    let mut is_run = false;
    for scrape in scrapes {
        let rules = root().join("packaging/alerts.yaml");
        let config = scrape.text.replace("[alerts.yaml]", &format!("[{}]", rules.display()));
        let config = config.replace("10.0.0.1:9099", &monitor).replace("15s", "1s");
        // Debian's Prometheus is built without Kubernetes, so that the rest is checked.
        let pods = "kubernetes_sd_configs: [{role: pod}]";
        let config = config.replace(pods, "static_configs: [{targets: [pod]}]");
        let dir = TempDir::new();
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, &config).unwrap();
        let output = Command::new(&promtool).args(["check", "config"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", scrape.place);
        if scrape.text.contains(pods) {
            continue;
        }
        let Some(prometheus) = Prometheus::start(&config) else { return };
        eventually("the target is up", || {
            let up = prometheus.query("up{job=\"stentor\"}");
            (up.len() == 1 && up[0].1 == "1").then_some(())
        });
        eventually("the rules are evaluated", || prometheus.alerts("firing").first().map(|_| ()));
        is_run = true;
    }
    assert!(is_run, "no configuration was run");
}

/// A server with a fault, and the traffic that shows it.
struct Cause {
    alert: &'static str,
    what: &'static str,
    address: String,
    /// Called again and again.
    goes_on: Box<dyn FnMut()>,
}

fn cause(alert: &'static str, what: &'static str, server: Server, go_on: GoOn) -> Cause {
    let address = server.control.0.to_string();
    let mut go_on = go_on;
    Cause { alert, what, address, goes_on: Box::new(move || go_on(&server)) }
}

type GoOn = Box<dyn FnMut(&Server)>;

fn nothing() -> GoOn {
    Box::new(|_| ())
}

#[test]
fn alerts_fire_for_their_causes() {
    if program("prometheus").is_none() {
        return;
    }
    let dir = TempDir::new();
    let mut causes: Vec<Cause> = connections().into_iter().chain(values()).collect();
    causes.extend(certificates_of(&dir));
    causes.extend(files(&dir));
    causes.extend(elsewhere());
    let rules = dir.path().join("rules.yaml");
    fs::write(&rules, hurried()).unwrap();
    let targets: String = causes
        .iter()
        .map(|cause| {
            let Cause { alert, address, .. } = cause;
            format!("      - targets: ['{address}']\n        labels: {{cause: {alert}}}\n")
        })
        .collect();
    let prometheus = Prometheus::start(&format!(
        "rule_files: ['{}']\nscrape_configs:\n  - job_name: stentor\n    \
         metrics_path: /-/metrics\n    \
         static_configs:\n{targets}",
        rules.display()
    ));
    let Some(prometheus) = prometheus else { return };
    let begin = Instant::now();
    let mut waiting: Vec<&mut Cause> = causes.iter_mut().collect();
    while !waiting.is_empty() {
        let names: Vec<&str> = waiting.iter().map(|cause| cause.alert).collect();
        assert!(begin.elapsed() < 4 * crate::support::PATIENCE, "did not fire: {names:?}");
        waiting.iter_mut().for_each(|cause| (cause.goes_on)());
        let firing = prometheus.alerts("firing");
        waiting.retain(|cause| {
            let has_fired = firing.contains(&(cause.alert.into(), cause.alert.into()));
            if has_fired {
                let seconds = begin.elapsed().as_secs();
                println!("{:26}  {:66}  fired after {seconds:3} s", cause.alert, cause.what);
            }
            !has_fired
        });
    }
    // A server that only runs has no alert but that of its start. On a busy host a scrape of it may
    // take too long now and then.
    eventually("nothing else fires", || {
        let firing = prometheus.alerts("firing").into_iter();
        let quiet: Vec<_> = firing.filter(|(_, cause)| cause == RESTARTED).collect();
        (quiet == [(RESTARTED.to_owned(), RESTARTED.to_owned())]).then_some(())
    });
}

/// The rules with seconds for minutes: what they look at, and for how long.
fn hurried() -> String {
    let rules = fs::read_to_string(root().join("packaging/alerts.yaml")).unwrap();
    let lines = rules.lines().map(|line| match line.trim().strip_prefix("for: ") {
        Some(_) => "        for: 0s".to_owned(),
        None => line
            .replace("[5m]", "[5s]")
            .replace("offset 1m", "offset 3s")
            .replace("stentor_uptime_seconds > 600", "stentor_uptime_seconds > 1"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

const RESTARTED: &str = "StentorRestarted";

/// Causes that are clients' connections.
fn connections() -> Vec<Cause> {
    let places = "limits.connections_max = 4\n";
    let one = |toml: &str| Server::with("", toml, &["--workers", "1"]);
    let ask = |server: &Server| {
        let mut client = server.reader();
        // It may be turned away.
        let _ = client.try_send(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let mut held: Vec<Client> = Vec::new();
    let mut readers: Vec<Client> = Vec::new();
    let mut since = Instant::now();
    let stream = |server: &Server| {
        let mut client = server.reader();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n");
        client
    };
    vec![
        cause(
            "StentorAcceptPaused",
            "four places, and clients that come and go",
            one(places),
            Box::new(move |server| drop((0..8).map(|_| ask(server)).collect::<Vec<_>>())),
        ),
        cause(
            "StentorAcceptQueueOld",
            "four places, and twelve clients that stay",
            one(places),
            Box::new(move |server| {
                if held.is_empty() {
                    held = (0..12).map(|_| stream(server)).collect();
                }
            }),
        ),
        cause(
            "StentorConnectionsRefused",
            "three places for an address, and six clients",
            one("limits.connections_per_address = 3\n"),
            Box::new(move |server| drop((0..6).map(|_| ask(server)).collect::<Vec<_>>())),
        ),
        cause(
            "StentorReadersGone",
            "150 readers, of which 50 leave",
            one(""),
            Box::new(move |server| {
                if readers.is_empty() {
                    readers = (0..150).map(|_| stream(server)).collect();
                    since = Instant::now();
                } else if since.elapsed() > Duration::from_secs(6) {
                    readers.truncate(100);
                }
                if since.elapsed() > Duration::from_secs(12) {
                    readers.clear();
                }
            }),
        ),
    ]
}

/// Causes that are publishers and readers.
fn values() -> Vec<Cause> {
    let text = "x".repeat(64 * 1024);
    let mut deaf: Vec<EventStream> = Vec::new();
    let mut holders: Vec<Client> = Vec::new();
    vec![
        cause(
            "StentorReadersBehind",
            "readers that do not read",
            Server::start(),
            Box::new(move |server| {
                if deaf.is_empty() {
                    server.publish("/a", "start");
                    deaf = (0..4).map(|_| EventStream::open(server.public, "/a", "")).collect();
                }
                server.publish("/a", &text);
            }),
        ),
        cause(
            "StentorGaps",
            "a history of one, and readers that were away",
            Server::configured("[[topics]]\nmatch = '/**'\nhistory = 1\n"),
            Box::new(|server| {
                let id = server.publish("/a", "missed");
                server.publish("/a", "missed too");
                server.publish("/a", "newest");
                let target = format!("/a?since={id}&mode=all");
                EventStream::open(server.public, &target, "").event();
            }),
        ),
        cause(
            "StentorErrors",
            "one topic, and publishers of others",
            Server::configured("limits.topics_max = 1\n"),
            Box::new(|server| {
                server.control.put("/a", "text/plain", b"1").expect_one_of(&[200, 201]);
                server.control.put("/b", "text/plain", b"1").expect(507);
            }),
        ),
        cause(
            "StentorReadersCut",
            "1 MiB for all readers, and 120 incomplete requests of 12 kB",
            Server::with("", "limits.readers_bytes_max = '1 MiB'\n", &["--workers", "1"]),
            Box::new(move |server| {
                let request = format!("GET /none HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(12_000));
                let hold = |_| {
                    let mut client = server.reader();
                    // It may be cut at once.
                    let _ = client.try_send(request.as_bytes());
                    client
                };
                holders.clear();
                holders.extend((0..120).map(hold));
            }),
        ),
        cause(
            "StentorStorageFull",
            "1 MiB for all that is stored, and a publisher of more",
            Server::configured("limits.stored_bytes_max = '1 MiB'\n"),
            Box::new(|server| {
                let body = vec![b'x'; 600_000];
                server.control.put("/a", "text/plain", &body).expect_one_of(&[200, 201]);
                server.control.put("/b", "text/plain", &body).expect(507);
            }),
        ),
        slow_fan_out(),
    ]
}

fn slow_fan_out() -> Cause {
    let mut reader: Option<EventStream> = None;
    let mut publishers: Vec<Client> = Vec::new();
    cause(
        "StentorFanOutSlow",
        "a process that stands still while it sends",
        Server::with("", "", &["--workers", "1"]),
        Box::new(move |server| {
            reader.get_or_insert_with(|| EventStream::open(server.public, "/a", ""));
            // So many messages that even a quick server is stopped in the middle.
            publishers.resize_with(PUBLISHERS, || server.publisher());
            let put = "PUT /a HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n1";
            publishers.iter_mut().for_each(|client| client.send(put.repeat(500)));
            server.child.signal("STOP");
            std::thread::sleep(Duration::from_millis(1_300));
            server.child.signal("CONT");
            for client in &mut publishers {
                (0..500).for_each(|_| drop(client.response()));
            }
        }),
    )
}

/// Clients that publish at once, 500 messages each.
const PUBLISHERS: usize = 8;

/// Causes that are certificates.
fn certificates_of(dir: &TempDir) -> Vec<Cause> {
    let of = |name: &str, days: u64| {
        let dir = dir.path().join(name);
        fs::create_dir(&dir).unwrap();
        certificates::server(&dir, "a.example", days, &[])
    };
    let spoiled = of("spoiled", 60);
    fs::write(dir.path().join("spoiled/c.pem"), "spoiled").unwrap();
    vec![
        cause(
            "StentorCertificateExpires",
            "a certificate with ten days left",
            of("old", 10),
            nothing(),
        ),
        cause("StentorCertificatesBad", "a certificate that is overwritten", spoiled, nothing()),
    ]
}

/// Causes that are files, the access log and the store.
fn files(dir: &TempDir) -> Vec<Cause> {
    let names: Vec<String> = (0..40).map(|n| format!("{n}.bin")).collect();
    let content = vec![b'x'; 20_000];
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &*content)).collect();
    let many = Site::of(&files);
    let few = many.serve("[files]\ncache_bytes_max = '128 KiB'\n");
    let site = Site::of(&[]);
    site.sparse("large.bin", LARGE);
    let mut reader: Option<Client> = None;
    let cut = site.serve("");
    let log = Server::configured("[log]\naccess = '/dev/full'\n");
    let data = dir.path().join("data");
    let data = format!("store.path = '{}'\n", data.display());
    let store = Server::with("trap '' XFSZ;", &data, &[]);
    let mut is_full = false;
    vec![
        cause(
            "StentorFileCacheSmall",
            "40 files of 20 kB, and 128 KiB of memory",
            few,
            Box::new(move |server| {
                let _ = &many;
                for n in 0..40 {
                    server.public.get(&format!("/{n}.bin")).expect(200);
                }
            }),
        ),
        cause(
            "StentorFilesCut",
            "a file that shrinks while it is sent",
            cut,
            Box::new(move |server| {
                site.sparse("large.bin", LARGE);
                let client = reader.insert(server.reader());
                client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
                client.take().unwrap();
                site.sparse("large.bin", 1);
            }),
        ),
        cause(
            "StentorAccessLogDropped",
            "an access log on a full disk",
            log,
            Box::new(|server| drop(server.public.get("/none").refused(404))),
        ),
        cause(
            "StentorStoreDown",
            "a store whose files may not grow",
            store,
            Box::new(move |server| {
                if !std::mem::replace(&mut is_full, true) {
                    let mut limit = Command::new("prlimit");
                    limit.arg("--fsize=0:0").arg(format!("--pid={}", server.child.id()));
                    assert!(limit.status().unwrap().success());
                }
                // It is refused, or its publisher hears nothing of it.
                let mut client = server.publisher();
                client.send("PUT /a HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n1");
            }),
        ),
    ]
}

const LARGE: u64 = 50_000_000;

/// Causes that are other servers, and a server that does not run.
fn elsewhere() -> Vec<Cause> {
    let nobody = free_address();
    let follower = Server::configured(&format!("follow.leader = 'http://{nobody}'\n"));
    let node = Server::configured(&format!("[cluster]\nnats = 'nats://{nobody}'\n"));
    let down = Cause {
        alert: "StentorDown",
        what: "nobody at the address that is scraped",
        address: nobody.to_string(),
        goes_on: Box::new(|| ()),
    };
    vec![
        down,
        cause(RESTARTED, "a server that has just begun", Server::start(), nothing()),
        cause("StentorFollowerSilent", "a follower of nobody", follower, nothing()),
        cause("StentorClusterDown", "a node without its broker", node, nothing()),
    ]
}

/// A Prometheus that scrapes and judges each second.
struct Prometheus {
    _child: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Prometheus {
    fn start(config: &str) -> Option<Prometheus> {
        let dir = TempDir::new();
        let file = dir.path().join("prometheus.yml");
        let each_second =
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n";
        fs::write(&file, format!("{each_second}{config}")).unwrap();
        let address = free_address();
        let mut command = Command::new(program("prometheus")?);
        command.arg(format!("--web.listen-address={address}"));
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()));
        let mut child = Child::spawn(&mut command);
        child.logged("Server is ready to receive web requests.");
        Some(Prometheus { _child: child, address, _dir: dir })
    }

    /// Evaluates an expression: labels and values.
    fn query(&self, expression: &str) -> Vec<(serde_json::Value, String)> {
        let query = format!("query={expression}");
        let url = format!("http://{}/api/v1/query", self.address);
        let output = curl(&["--data-urlencode", &query, &url]).expect("there is curl");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let results = answer["data"]["result"].as_array().unwrap().clone();
        let result = |result: serde_json::Value| {
            (result["metric"].clone(), result["value"][1].as_str().unwrap().to_owned())
        };
        results.into_iter().map(result).collect()
    }

    /// The alerts in a state: their names and their causes.
    fn alerts(&self, state: &str) -> Vec<(String, String)> {
        let alerts = self.query(&format!("ALERTS{{alertstate=\"{state}\"}}")).into_iter();
        let label = |labels: &serde_json::Value, name: &str| {
            labels[name].as_str().unwrap_or_default().to_owned()
        };
        alerts.map(|(labels, _)| (label(&labels, "alertname"), label(&labels, "cause"))).collect()
    }
}

/// One of the programs of Prometheus, which `cargo xtask test` unpacks.
fn program(name: &str) -> Option<PathBuf> {
    tool("curl")?;
    built(&format!("prometheus/usr/bin/{name}")).or_else(|| missing("prometheus"))
}
