//! The status of a server for people: what matters most, in groups and with units. What is zero
//! and would be good news is left out; `--json` has everything.

use serde_json::Value;
use stentor_io::units::{bytes, thousands, time_us};

/// The page.
pub(super) fn page(server: &str, status: &Value, columns: usize) -> String {
    let mut page = Page { status, columns, text: String::new() };
    page.server(server);
    page.work();
    page.memory();
    page.tls();
    page.services();
    page.troubles();
    page.text
}

struct Page<'a> {
    status: &'a Value,
    columns: usize,
    text: String,
}

impl Page<'_> {
    fn server(&mut self, server: &str) {
        let text =
            |name: &str| self.status[name].as_str().unwrap_or("?").escape_debug().to_string();
        let process = self.number("process");
        let mut facts = vec![format!("process {process}"), format!("epoch {}", text("epoch"))];
        facts.push(format!("{} workers", thousands(self.number("workers"))));
        if self.status["draining"] == true {
            facts.push("stopping: it takes no more connections".to_owned());
        }
        let version = text("version");
        let up = time_us(self.number("uptime_s") as f64 * 1e6);
        self.row(&format!("stentor {version}"), &[format!("{server}, up {up}")]);
        self.row("", &facts);
    }

    fn work(&mut self) {
        self.counts(
            "connections",
            "connections_open",
            "open",
            &[
                ("connections_public", "public"),
                ("connections_control", "control"),
                ("connections_monitor", "monitor"),
                ("connections_redirect", "redirect"),
                ("followers", "followers"),
                ("accepted", "accepted in all"),
            ],
        );
        self.counts(
            "readers",
            "",
            "",
            &[
                ("readers_sse", "Server-Sent Events"),
                ("readers_websocket", "WebSocket"),
                ("readers_long_poll", "long-poll"),
                ("readers_behind", "behind"),
            ],
        );
        let kept = bytes(self.number("messages_kept_bytes") as f64);
        let mut facts = vec![
            format!("{} topics", thousands(self.number("topics"))),
            format!("{} published", thousands(self.number("messages_published"))),
            format!("{} kept ({kept})", thousands(self.number("messages_kept"))),
        ];
        facts.extend(self.count("deliveries", "deliveries"));
        facts.extend(self.count("conflated", "skipped for newer ones"));
        facts.extend(self.count("gaps", "gaps told"));
        self.row("messages", &facts);
        self.counts(
            "requests",
            "",
            "",
            &[
                ("requests", "in all"),
                ("lookups", "look-ups"),
                ("answers_2xx", "2xx"),
                ("answers_304", "304"),
                ("answers_4xx", "4xx"),
                ("answers_5xx", "5xx"),
            ],
        );
        let of = |name: &str| self.counter(name) as f64;
        let sent = ["bytes_heads", "bytes_bodies", "bytes_streams", "bytes_sendfile"].map(of);
        let mut facts = vec![format!("{} received", bytes(of("bytes_in")))];
        facts.push(format!("{} sent", bytes(sent.iter().sum())));
        facts.push(format!("{} of it streams", bytes(of("bytes_streams"))));
        self.row("traffic", &facts);
    }

    fn memory(&mut self) {
        let of = |name: &str| bytes(self.number(name) as f64);
        let mut facts = vec![
            format!("{} resident", of("memory_resident_bytes")),
            format!("{} of it anonymous", of("memory_anonymous_bytes")),
        ];
        let stored = |name: &str| self.status["stored"][name].as_u64().unwrap_or(0);
        let all = ["values", "history", "forms"].map(stored).iter().sum::<u64>();
        facts.push(format!("messages {} of {}", bytes(all as f64), bytes(stored("max") as f64)));
        let files = self.number("files_cached");
        if files > 0 {
            let size = of("files_cached_bytes");
            facts.push(format!("{} files ({size})", thousands(files)));
        }
        let pressure = self.status["memory_pressure"].as_str().unwrap_or("?");
        facts.push(format!("pressure {}", pressure.escape_debug()));
        self.row("memory", &facts);
    }

    fn tls(&mut self) {
        let tls = &self.status["tls"];
        if tls.is_null() {
            return;
        }
        let days = tls["days_left"].as_i64().unwrap_or(0);
        let mut facts = vec![match days {
            ..0 => "a certificate has EXPIRED".to_owned(),
            _ => format!("certificates good for {days} days"),
        }];
        facts.push(format!("{} sessions", thousands(self.counter("tls_sessions"))));
        facts.extend(tls["failure"].as_str().map(|why| why.escape_debug().to_string()));
        self.row("TLS", &facts);
    }

    /// What keeps or makes the order of messages, and what became of upgrades and reloads.
    fn services(&mut self) {
        for name in ["store", "follow", "cluster"] {
            let Some(service) = self.status[name].as_object() else { continue };
            let facts: Vec<_> =
                service.iter().filter_map(|(key, value)| fact(key, value)).collect();
            self.row(name, &facts);
        }
        for name in ["upgrades", "reloads"] {
            let of = &self.status[name];
            let count = |key: &str| of[key].as_u64().unwrap_or(0);
            let mut facts = Vec::new();
            if of["under_way"] == true {
                facts.push("one is under way".to_owned());
            }
            if count("done") + count("failed") > 0 {
                facts.push(format!("{} done", thousands(count("done"))));
                facts.push(format!("{} failed", thousands(count("failed"))));
            }
            let reason = of["last_failure"]["reason"].as_str();
            facts.extend(reason.map(|why| format!("last failure: {}", why.escape_debug())));
            self.row(name, &facts);
        }
    }

    /// Counts that should be zero.
    fn troubles(&mut self) {
        let counters = [
            ("workers_lost", "workers lost: restart the server"),
            ("worker_panics", "panics of workers"),
            ("connections_refused", "connections refused"),
            ("connections_evicted", "connections evicted"),
            ("timeouts", "timeouts"),
            ("publishes_refused", "publishes refused"),
            ("readers_cut", "readers cut off"),
            ("followers_too_slow", "followers too slow"),
            ("log_dropped", "log lines dropped"),
            ("access_log_dropped", "lines of the access log dropped"),
        ];
        let facts: Vec<_> =
            counters.into_iter().filter_map(|(name, words)| self.count(name, words)).collect();
        self.row("trouble", &facts);
    }

    /// A row of counters that are not zero, behind one of the server's own numbers.
    fn counts(&mut self, title: &str, first: &str, words: &str, counters: &[(&str, &str)]) {
        let mut facts = Vec::new();
        if !first.is_empty() {
            facts.push(format!("{} {words}", thousands(self.number(first))));
        }
        facts.extend(counters.iter().filter_map(|(name, words)| self.count(name, words)));
        if facts.is_empty() {
            facts.push("none".to_owned());
        }
        self.row(title, &facts);
    }

    /// A counter in words, unless it is zero.
    fn count(&self, name: &str, words: &str) -> Option<String> {
        let count = self.counter(name);
        (count > 0).then(|| format!("{} {words}", thousands(count)))
    }

    fn counter(&self, name: &str) -> u64 {
        self.status["counters"][name].as_u64().unwrap_or(0)
    }

    fn number(&self, name: &str) -> u64 {
        self.status[name].as_u64().unwrap_or(0)
    }

    /// A row of facts with commas between them, on as many lines as it takes.
    fn row(&mut self, title: &str, facts: &[String]) {
        let mut line = format!("{title:TITLE$}");
        for (nth, fact) in facts.iter().enumerate() {
            let comma = if nth + 1 < facts.len() { "," } else { "" };
            let is_full = line.chars().count() + 1 + fact.chars().count() >= self.columns;
            if nth > 0 && is_full {
                self.text += &format!("{line}\n");
                line = " ".repeat(TITLE);
            }
            line += &format!(" {fact}{comma}");
        }
        if !facts.is_empty() {
            self.text += &format!("{line}\n");
        }
    }
}

/// A figure of a service in words; its name says the unit. What is unknown, or false, is left out.
fn fact(key: &str, value: &Value) -> Option<String> {
    type Show = fn(f64) -> String;
    let units: [(&str, Show); 5] = [
        ("_bytes", bytes),
        ("_us", time_us),
        ("_ms", |ms| time_us(ms * 1e3)),
        ("_unix_s", |_| String::new()),
        ("_s", |s| time_us(s * 1e6)),
    ];
    let words = |key: &str| key.replace('_', " ");
    match value {
        Value::Bool(true) => Some(words(key)),
        Value::Bool(false) => Some(format!("NOT {}", words(key))),
        Value::String(text) => Some(format!("{} {}", words(key), text.escape_debug())),
        Value::Number(number) => {
            let unit = units.iter().find_map(|(end, show)| Some((key.strip_suffix(end)?, show)));
            let value = number.as_f64()?;
            let (key, shown) = match unit {
                Some((key, show)) => (key, show(value)),
                None => (key, number.as_u64().map_or_else(|| value.to_string(), thousands)),
            };
            (!shown.is_empty()).then(|| format!("{} {shown}", words(key)))
        }
        _ => None,
    }
}

const TITLE: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_have_groups_and_units() {
        let status = json!({
            "version": "0.1.0", "epoch": "1f", "process": 7, "uptime_s": 3_780, "workers": 2,
            "connections_open": 1_234, "topics": 3, "messages_kept": 3,
            "messages_kept_bytes": 2_048,
            "messages_published": 5, "memory_resident_bytes": 17_215_488,
            "memory_anonymous_bytes": 2_568_192, "memory_pressure": "none",
            "stored": { "values": 1_024, "history": 0, "forms": 0, "max": 1 << 30 },
            "counters": {
                "connections_public": 1_233, "readers_sse": 1_200, "requests": 9, "bytes_in": 10,
                "answers_2xx": 9, "workers_lost": 1, "refused_tokens": { "expired": 4 },
            },
            "tls": null, "follow": null, "cluster": null,
            "store": { "failure": null, "unsynced": 2, "log_bytes": 1_572_864, "stalled_s": 0,
                       "snapshot_unix_s": 1_800_000_000 },
            "upgrades": { "under_way": false, "done": 0, "failed": 0 },
            "reloads": { "under_way": false, "done": 1, "failed": 1,
                         "last_failure": { "reason": "x\u{1b}" } },
        });
        let expected = "\
stentor 0.1.0  http://127.0.0.1:8081, up 1 h 3 min
               process 7, epoch 1f, 2 workers
connections    1,234 open, 1,233 public
readers        1,200 Server-Sent Events
messages       3 topics, 5 published, 3 kept (2.00 KiB)
requests       9 in all, 9 2xx
traffic        10 B received, 0 B sent, 0 B of it streams
memory         16.4 MiB resident, 2.45 MiB of it anonymous, messages 1.00 KiB of 1.00 GiB,
               pressure none
store          log 1.50 MiB, stalled 0 µs, unsynced 2
reloads        1 done, 1 failed, last failure: x\\u{1b}
trouble        1 workers lost: restart the server
";
        assert_eq!(page("http://127.0.0.1:8081", &status, 100), expected);
    }

    #[test]
    fn an_unknown_page_is_no_panic() {
        for status in [json!(null), json!([]), json!({ "counters": 3, "tls": "x" })] {
            assert!(page("s", &status, 100).starts_with("stentor ?"));
        }
    }
}
