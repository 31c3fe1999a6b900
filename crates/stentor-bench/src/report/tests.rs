//! Reports of every kind, as they might be and as they should never be, through the table, the
//! page and the comparison.
//!
//! With `STENTOR_PAGES=DIR` the pages and tables are left in that directory, to be looked at.

use std::f64::consts::PI;
use std::ffi::OsString;
use std::path::Path;

use super::*;

#[test]
fn tables_fit_a_terminal() {
    for (name, report) in samples() {
        let text = report.text(100);
        leave(&format!("{name}.txt"), &text);
        let lines_max = if name == "huge" { 60 } else { 30 };
        assert!(text.lines().count() <= lines_max, "{name}:\n{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
            assert!(!line.ends_with(' '), "{name}: {line:?}");
            assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{name}: {text}");
    }
}

#[test]
fn tables_are_as_wide_as_the_terminal() {
    // Times of more than a million days are wider than a column.
    for (name, report) in samples().into_iter().filter(|(name, _)| *name != "huge") {
        for columns in [60, 72, 80, 90, 99] {
            let text = report.text(columns);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns, "{name}: {widest} of {columns}\n{text}");
        }
        assert_eq!(report.text(10), report.text(60), "{name}");
    }
    let table = comparison(&[&[1.0; 5], &[2.0; 5]]).text(80);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("to A"), "{table}");
}

#[test]
fn pages_are_well_formed() {
    for (name, report) in samples() {
        let page = report.html();
        leave(&format!("{name}.html"), &page);
        well_formed(&without_scripts(&page)).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

#[test]
fn pages_need_nothing_else() {
    for (name, report) in samples() {
        let page = without_scripts(&report.html());
        let tags = page.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| tag);
        for tag in tags {
            for forbidden in ["script", "link ", "img ", "iframe", "object", "use "] {
                assert!(!tag.starts_with(forbidden), "{name}: <{tag}>");
            }
            for forbidden in [" src=", " href=", " style=", " on"] {
                let outside_of_quotes = tag.split('"').step_by(2).collect::<String>();
                assert!(!outside_of_quotes.contains(forbidden), "{name}: <{tag}>");
            }
        }
        let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        assert!(!style.contains("url(") && !style.contains("@import") && !style.contains('<'));
    }
}

/// The page without its own three scripts, of which the last two may run.
#[track_caller]
fn without_scripts(page: &str) -> String {
    let (before, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    let scripts: Vec<_> = rest.split("</script>\n").collect();
    let [data, uplot, draw, after] = scripts[..] else { panic!("{} scripts", scripts.len() - 1) };
    assert!(!data.contains('<'), "{data}");
    let nonce = uplot.strip_prefix("<script nonce=\"").unwrap().split('"').next().unwrap();
    assert!(draw.starts_with(&format!("<script nonce=\"{nonce}\">")));
    assert!(before.contains(&format!("script-src 'nonce-{nonce}'")), "{before}");
    format!("{before}{after}")
}

/// The report that a page draws.
#[track_caller]
fn drawn(page: &str) -> serde_json::Value {
    let data = page.split("id=\"report\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

#[test]
fn the_table_says_what_was_done_and_how_it_went() {
    let text = get().text(100);
    let first = text.lines().next().unwrap();
    assert_eq!(
        first,
        "get http://127.0.0.1:8080/scores/lal-bos, 10.0 s: connections 64, duration 10 s"
    );
    for part in ["no errors", "123,457/s answered", "1,234,567 in all", "all with status 200"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let times = text.lines().find(|line| line.trim_start().starts_with("request ")).unwrap();
    let words: Vec<_> = times.split_whitespace().collect();
    assert_eq!(words[..5], ["request", "512", "µs", "498", "µs"]);
}

#[test]
fn problems_stand_above_the_figures() {
    let text = surge().text(100);
    let (problems, figures) =
        (text.find("PROBLEMS: 1,264 errors").unwrap(), text.find("latency").unwrap());
    assert!(problems < figures, "{text}");
    assert!(text.contains("1,200 connection refused"), "{text}");
    assert!(surge().html().contains("class=\"verdict bad\">1,264 errors"));

    let mut push = push();
    push.delivery.as_mut().unwrap().missing_untold = 1;
    assert!(push.text(100).contains("1 delivery missing in silence"));
    push.interrupted = true;
    assert!(push.text(100).contains("INTERRUPTED after 10.2 s"), "{}", push.text(100));
    assert!(push.html().contains("Interrupted after 10.2 s"));
}

#[test]
fn a_delivery_is_called_complete_only_if_it_is() {
    let mut all = push();
    let stalled = "every reader that kept reading got every message once, in order";
    assert!(all.text(100).contains(stalled));
    all.delivery.as_mut().unwrap().readers_stalled = 0;
    assert!(all.text(100).contains("every reader got every message once, in order"));
    let mut lossy = push();
    let delivery = lossy.delivery.as_mut().unwrap();
    delivery.delivered -= 1;
    delivery.missing = 1;
    let text = lossy.text(100);
    assert!(!text.contains("every reader"), "{text}");
    assert!(text.contains("99.9987 % delivered"), "{text}");
    assert!(!text.contains("100 % delivered"), "{text}");
}

#[test]
fn a_run_in_which_nothing_happened_is_not_praised() {
    assert!(empty().text(100).contains("PROBLEMS: no connection opened"));
    let mut silent = get();
    silent.requests.as_mut().unwrap().completed = 0;
    assert!(silent.text(100).contains("PROBLEMS: no request answered"));
    let mut silent = push();
    silent.delivery.as_mut().unwrap().published = 0;
    assert!(silent.text(100).contains("PROBLEMS: no message published"));
    assert!(!silent.text(100).contains("no errors"));
}

#[test]
fn a_part_that_was_not_measured_is_not_shown() {
    let (text, page) = (empty().text(100), empty().html());
    for part in ["latency", "memory", "processor", "requests", "delivery", "bystanders", "stalled"]
    {
        assert!(!text.contains(part), "{part}\n{text}");
    }
    assert_eq!(drawn(&page).get("requests"), None);
    assert_eq!(drawn(&get().html())["requests"]["completed"], 1_234_567);
}

#[test]
fn what_comes_from_outside_stays_text() {
    let mut report = hostile();
    report.interrupted = true;
    let page = report.html();
    let rest = without_scripts(&page);
    assert!(!rest.contains("<script") && rest.contains("&lt;script&gt;"), "{rest}");
    well_formed(&rest).unwrap();
    assert!(!report.text(100).contains('\u{1b}'));
}

fn command_of(arguments: &[&str]) -> Vec<String> {
    html::command_line(arguments.iter().map(OsString::from))
}

#[test]
fn the_command_can_be_pasted() {
    let words = command_of(&["bench", "get", "http://a/b'f'", "--header", "Accept: <b>", ""]);
    let command = r"stentor bench get 'http://a/b'\''f'\''' --header 'Accept: <b>' ''";
    assert_eq!(words.join(" "), command);
    let shown = html::again(&words, &Machine::default());
    let shown = shown.replace("<span>", "").replace("</span>", "");
    assert!(shown.contains(&format!("<code>{}</code>", html::escape(command))), "{shown}");
    // A page is made by the process that was told what to measure.
    assert!(get().html().contains("<code><span>stentor</span>"));
}

#[test]
fn the_command_shows_no_credential() {
    for (arguments, shown) in [
        (&["--header", "X-API-Key:1234"][..], "--header 'X-API-Key: …'"),
        (&["--header", "X-API-Key: 1234"], "--header 'X-API-Key: …'"),
        (&["--header=X-API-Key:1234"], "'--header=X-API-Key: …'"),
        (&["--publish-header", "Pass:a:b"], "--publish-header 'Pass: …'"),
        (&["--header", "accept:a/b"], "--header accept:a/b"),
        (&["--header", "Sec-WebSocket-Protocol: stentor.token.1"], "'Sec-WebSocket-Protocol: …'"),
        (&["--publish-body", "key=1&data={message}"], "--publish-body '…'"),
        (&["--publish-body={\"key\":\"{message}\"}"], "'--publish-body=…'"),
        (&["http://a/b?key=1&topic=a&c"], "'http://a/b?key=…&topic=…&…'"),
        (&["--publish", "http://a/b?key=1"], "--publish 'http://a/b?key=…'"),
        (&["--publish=http://a/b?key=1"], "'--publish=http://a/b?key=…'"),
        (&["--html", "r.html", "--pid=1"], "--html r.html --pid=1"),
    ] {
        let words = command_of(arguments).join(" ");
        assert!(words.ends_with(shown), "{arguments:?}: {words}");
    }
}

#[test]
fn pages_show_no_values_of_queries() {
    let mut report = push();
    report.url = "http://a/b?cred=sesame".to_owned();
    report.settings.push(("published to", "http://a/c?cred=sesame".to_owned()));
    let server = ServerDelivery { url: report.url.clone(), ..ServerDelivery::default() };
    report.delivery.as_mut().unwrap().servers = vec![server.clone(), server];
    let subject = Subject { url: report.url.clone(), reports: vec![report.clone()] };
    let comparison =
        Comparison { command: "push", rounds: 1, subjects: vec![subject], error: None };
    for page in [report.html(), comparison.html()] {
        assert!(page.contains("?cred=…") && !page.contains("sesame"), "{page}");
    }
    assert!(report.text(100).contains("cred=sesame"), "a terminal shows all");
}

#[test]
fn the_moment_of_any_number_is_a_date() {
    assert_eq!(html::moment(1_795_257_186), "Sat, 21 Nov 2026 10:33:06 GMT");
    assert!(html::moment(u64::MAX).contains("9999"));
}

#[test]
fn figures_have_distinct_keys_and_the_weightiest_is_first() {
    for (name, report) in samples() {
        let figures = report.figures();
        for (i, figure) in figures.iter().enumerate() {
            assert!(figures[..i].iter().all(|other| other.key != figure.key), "{name}");
        }
    }
    assert_eq!(get().figures()[0].key, "requests_per_second");
    assert_eq!(push().figures()[0].key, "delivered");
    assert_eq!(hold().figures()[0].key, "connections_opened");
    let memory = &hold().figures()[1];
    assert_eq!(
        (memory.key, memory.unit, memory.better),
        ("process_bytes_each", Unit::Bytes, Better::Lower)
    );
    assert!((memory.value - 76.0).abs() < 1.0);
}

#[test]
fn a_comparison_has_medians_ratios_and_their_spread() {
    let comparison = comparison(&[&[100.0, 300.0, 200.0], &[50.0, 240.0, 80.0]]);
    let text = comparison.text(100);
    leave("compare-small.txt", &text);
    let lines: Vec<Vec<_>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let a = lines.iter().find(|l| l.first() == Some(&"requests")).unwrap();
    assert_eq!(a[..], ["requests", "A", "200/s", "100/s", "–", "300/s"]);
    let b = lines.iter().skip_while(|l| l.first() != Some(&"requests")).nth(1).unwrap();
    // The ratios of the rounds are 0.5, 0.8 and 0.4.
    assert_eq!(b[..], ["B", "80.0/s", "50.0/s", "–", "240/s", "0.500", "×", "0.400", "–", "0.800"]);
    assert!(text.contains("no errors"), "{text}");
}

#[test]
fn a_difference_is_called_one_only_if_every_round_shows_it() {
    let judged = |rounds: &[&[f64]]| {
        let text = comparison(rounds).text(100);
        let line = text.lines().skip_while(|line| !line.starts_with("requests")).nth(1).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(judged(&[&[1.0; 5], &[2.0, 3.0, 4.0, 5.0, 1.1]]), "better");
    assert_eq!(judged(&[&[1.0; 5], &[0.2, 0.3, 0.4, 0.5, 0.9]]), "worse");
    assert_eq!(judged(&[&[1.0; 5], &[2.0, 0.9, 4.0, 5.0, 6.0]]), "unclear");
    assert_ne!(judged(&[&[1.0; 4], &[2.0, 3.0, 4.0, 5.0]]), "better", "chance does that too");
}

#[test]
fn comparisons_of_all_kinds_are_well_formed() {
    let many = comparison(&[&[120e3, 125e3, 118e3], &[96e3, 99e3, 97e3], &[1e6, 0.0, 3.0]]);
    let none = Comparison { command: "get", rounds: 0, subjects: Vec::new(), error: None };
    let mut odd = comparison(&[&[0.0], &[f64::NAN], &[1.0, 2.0, 3.0]]);
    odd.subjects[1].reports = vec![hostile(), surge(), huge()];
    odd.subjects[1].url = hostile().url;
    odd.subjects.push(Subject { url: "http://nothing.invalid/".to_owned(), reports: Vec::new() });
    for (name, comparison) in [("many", many), ("none", none), ("odd", odd)] {
        let (text, page) = (comparison.text(100), comparison.html());
        leave(&format!("compare-{name}.txt"), &text);
        leave(&format!("compare-{name}.html"), &page);
        well_formed(&page).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
            assert!(!line.ends_with(' '), "{name}: {line:?}");
        }
        assert_eq!(text.contains("most often: connection refused"), name == "odd", "{text}");
    }
}

/// The check of pages would be worth nothing if it found nothing.
#[test]
fn the_check_of_pages_finds_what_is_wrong() {
    let page = |body: &str| well_formed(&format!("<!doctype html>\n<body>{body}</body>"));
    assert_eq!(page("<p class=\"a\">1 &lt; 2</p><path d=\"M0\"/>"), Ok(()));
    let wrong = [
        "<p>",
        "</p>",
        "<p><b></p></b>",
        "a & b",
        "a > b",
        "<script<",
        "<p class=a>b</p>",
        "<p class=\"a>b</p>",
        "<path d=\"MNaN\"/>",
        "<p>\u{1b}</p>",
    ];
    for body in wrong {
        assert!(page(body).is_err(), "{body}");
    }
}

/// Every report there is below.
fn samples() -> Vec<(&'static str, Report)> {
    vec![
        ("get", get()),
        ("hold", hold()),
        ("push", push()),
        ("surge", surge()),
        ("empty", empty()),
        ("short", short()),
        ("huge", huge()),
        ("hostile", hostile()),
    ]
}

fn get() -> Report {
    let mut report = empty();
    report.requests = Some(Requests {
        completed: 1_234_567,
        per_second: 123_456.7,
        open_loop: false,
        latency: latency(512.0, 1_234_567),
        statuses: vec![(200, 1_234_567)],
    });
    report.connections = connections(64, 0.0012);
    report.processor = Some(Processor {
        busy_seconds: 9.87,
        busy_us_each: 8.0,
        baseline_seconds: 0.0,
        each: "request",
        idle_share: None,
    });
    report.bytes = Bytes { received: 237_000_000, sent: 98_700_000 };
    report.timeline = timeline(10.0, 100, |share| Point {
        connections: 64,
        per_second: 123e3 + 6e3 * (share * 9.0 * PI).sin() - if share < 0.02 { 60e3 } else { 0.0 },
        ..Point::default()
    });
    report
}

fn hold() -> Report {
    let mut report = empty();
    report.command = "hold";
    report.settings = vec![
        ("connections", "1000000".to_owned()),
        ("as", "sse".to_owned()),
        ("held for", "600 s".to_owned()),
    ];
    report.seconds = 600.0;
    report.connections = connections(1_000_000, 41.0);
    report.memory = Some(Memory {
        connections: 1_000_000,
        process_bytes: Some(76_000_000),
        process_resident_bytes: Some(90_000_000),
        own_bytes: 190_000_000,
        kernel_bytes: 6_300_000_000,
        both_ends: true,
        machine_bytes: 6_700_000_000,
    });
    report.processor = Some(Processor {
        busy_seconds: 21.0,
        busy_us_each: 21.0,
        baseline_seconds: 0.0,
        each: "connection",
        idle_share: Some(0.007),
    });
    report.timeline = timeline(600.0, 300, |share| {
        let open = (share * 600.0 / 41.0).min(1.0);
        Point {
            connections: (open * 1e6) as u64,
            process_bytes: Some((14e6 + open * 76e6) as u64),
            ..Point::default()
        }
    });
    report
}

fn push() -> Report {
    let mut report = empty();
    report.command = "push";
    report.settings = vec![
        ("readers", "1000".to_owned()),
        ("as", "sse".to_owned()),
        ("published to", "http://127.0.0.1:8081/scores/lal-bos".to_owned()),
        ("rate", "10 messages/s".to_owned()),
        ("messages", "100".to_owned()),
        ("stalled", "20 %".to_owned()),
    ];
    report.seconds = 10.2;
    report.connections = connections(1000, 0.031);
    let messages = (1..=100).map(|number| {
        let wave = 1.0 + 0.4 * (f64::from(number) * 0.7).sin();
        let late = if number == 58 { 9_000.0 } else { 0.0 };
        MessageDelivery {
            number,
            readers: 800,
            first_us: 310.0 * wave,
            last_us: 4_100.0 * wave + late,
        }
    });
    report.delivery = Some(Delivery {
        readers: 800,
        readers_stalled: 200,
        published: 100,
        published_per_second: 10.0,
        publish: latency(240.0, 100),
        expected: 80_000,
        delivered: 80_000,
        delivered_per_second: 8_012.0,
        readers_complete: 800,
        latency: latency(2_100.0, 80_000),
        messages: messages.collect(),
        stalled: Some(Stalled {
            current: 200,
            delivered: 12_000,
            missing: 8_000,
            gaps_told: 200,
            dropped: 0,
        }),
        ..Delivery::default()
    });
    report.memory = Some(Memory {
        connections: 1000,
        process_bytes: Some(81_000),
        process_resident_bytes: Some(5_900_000),
        own_bytes: 240_000,
        kernel_bytes: 9_800_000,
        both_ends: true,
        machine_bytes: 10_300_000,
    });
    report.bytes = Bytes { received: 12_800_000, sent: 171_000 };
    report.timeline = timeline(10.2, 41, |share| Point {
        connections: if share < 0.01 { 0 } else { 1000 },
        per_second: 8_000.0 + 400.0 * (share * 40.0).sin(),
        ..Point::default()
    });
    report
}

fn surge() -> Report {
    let mut report = empty();
    report.command = "surge";
    report.settings = vec![
        ("connections", "20000".to_owned()),
        ("within", "1 s".to_owned()),
        ("bystanders", "64".to_owned()),
        ("their rate", "1000 requests/s".to_owned()),
    ];
    report.seconds = 12.0;
    report.connections = connections(20_000, 1.6);
    report.connections.opened = 18_736;
    report.bystanders = Some(Bystanders {
        connections: 64,
        dropped: 0,
        failed: 0,
        before: latency(160.0, 5_000),
        during: latency(2_900.0, 1_600),
        after: latency(180.0, 5_400),
        timeout: Some(latency(310.0, 400)),
        late: latency(12.0, 3_000),
        listeners: Some(Listeners {
            readers: 20,
            published: 600,
            delivered: 12_000,
            before: latency(210.0, 6_000),
            during: latency(420.0, 3_000),
            after: latency(220.0, 3_000),
            ..Listeners::default()
        }),
    });
    report.errors = vec![
        ErrorCount { kind: "connection refused".to_owned(), count: 1_200 },
        ErrorCount { kind: "status 503".to_owned(), count: 64 },
    ];
    report.timeline = timeline(12.0, 60, |share| Point {
        connections: if share < 0.42 { 64 } else { 18_800 },
        per_second: if (0.42..0.55).contains(&share) { 12_000.0 } else { 1_000.0 },
        errors: if share < 0.45 { 0 } else { ((share - 0.45) * 12_640.0).min(1264.0) as u64 },
        ..Point::default()
    });
    report
}

/// Nothing but what must be there.
fn empty() -> Report {
    Report {
        command: "get",
        url: "http://127.0.0.1:8080/scores/lal-bos".to_owned(),
        settings: vec![("connections", "64".to_owned()), ("duration", "10 s".to_owned())],
        started_unix_s: 1_795_257_186,
        seconds: 10.0,
        interrupted: false,
        machine: Machine {
            kernel: "Linux 6.18.5".to_owned(),
            processor: "Intel Xeon".to_owned(),
            cores: 2,
            memory_bytes: 25_300_000_000,
        },
        requests: None,
        connections: Connections::default(),
        delivery: None,
        bystanders: None,
        memory: None,
        processor: None,
        errors: Vec::new(),
        bytes: Bytes::default(),
        timeline: Vec::new(),
    }
}

/// Interrupted at once: one of each, and nothing to divide by.
fn short() -> Report {
    let mut report = push();
    report.interrupted = true;
    report.seconds = 0.0;
    report.connections = Connections { wanted: 1000, opened: 1, ..Connections::default() };
    report.timeline.truncate(1);
    report.memory = Some(Memory::default());
    report.delivery = Some(Delivery {
        readers: 1,
        published: 1,
        latency: Latency { count: 1, ..Latency::default() },
        messages: vec![MessageDelivery { number: 1, ..MessageDelivery::default() }],
        ..Delivery::default()
    });
    report
}

fn huge_bystanders(many: u64, endless: Latency) -> Bystanders {
    Bystanders {
        connections: many,
        dropped: many,
        failed: many,
        before: endless.clone(),
        during: endless.clone(),
        after: endless.clone(),
        timeout: Some(endless.clone()),
        late: endless.clone(),
        listeners: Some(Listeners {
            readers: many,
            dropped: many,
            published: many,
            delivered: many,
            missing: many,
            missing_untold: 0,
            duplicates: 0,
            before: endless.clone(),
            during: endless.clone(),
            after: endless.clone(),
            timeout: Some(endless),
        }),
    }
}

/// Numbers that no machine has.
fn huge() -> Report {
    let mut report = push();
    let many = u64::MAX;
    let endless = Latency {
        count: many,
        mean_us: f64::INFINITY,
        p50_us: f64::NAN,
        p90_us: 1e18,
        p99_us: 1e19,
        p999_us: 1e300,
        max_us: f64::INFINITY,
        curve: vec![(0.0, 0.0), (50.0, f64::NAN), (99.999_999_999, 1e18), (100.0, f64::INFINITY)],
    };
    report.seconds = 1e12;
    report.requests = Some(Requests {
        completed: many,
        per_second: 1e300,
        open_loop: true,
        latency: endless.clone(),
        statuses: (200..300).map(|status| (status, many)).collect(),
    });
    report.connections = Connections {
        wanted: many,
        opened: many,
        open_at_end: many,
        dropped: many,
        opening_seconds: 1e300,
        per_second: f64::NAN,
        connect: endless.clone(),
        first_answer: endless.clone(),
    };
    report.bystanders = Some(huge_bystanders(many, endless));
    report.memory = Some(Memory {
        connections: 1,
        process_bytes: Some(i64::MIN),
        process_resident_bytes: Some(many),
        own_bytes: i64::MAX,
        kernel_bytes: -2048,
        both_ends: false,
        machine_bytes: 0,
    });
    report.errors =
        (0..40).map(|i| ErrorCount { kind: format!("kind {i}"), count: many }).collect();
    report.bytes = Bytes { received: many, sent: many };
    report.timeline.push(Point {
        at_s: 1e9,
        connections: many,
        per_second: f64::INFINITY,
        errors: many,
        process_bytes: Some(many),
    });
    report.timeline.push(Point { at_s: f64::NAN, per_second: 1e250, ..Point::default() });
    report
}

/// Every text is an attack.
fn hostile() -> Report {
    let attack = "\"'><script>alert(1)</script>&amp;\u{1b}[2J\u{202e}\r\n\0]]>--><!--";
    let mut report = surge();
    report.url = format!("http://127.0.0.1/{}{attack}", "x".repeat(300));
    report.settings = vec![("header", attack.repeat(9)), ("as", attack.to_owned())];
    report.errors = vec![ErrorCount { kind: attack.repeat(3), count: 1 }];
    report.machine.kernel = attack.to_owned();
    report.machine.processor = attack.to_owned();
    report
}

/// Rounds of requests per second, a list for each server.
fn comparison(rates: &[&[f64]]) -> Comparison {
    let subjects = rates.iter().enumerate().map(|(i, rates)| {
        let reports = rates.iter().map(|rate| {
            let mut report = get();
            let requests = report.requests.as_mut().unwrap();
            requests.per_second = *rate;
            requests.latency = latency(64e6 / rate, 10_000);
            report
        });
        Subject {
            url: format!("http://127.0.0.1:808{i}/scores/lal-bos"),
            reports: reports.collect(),
        }
    });
    Comparison { command: "get", rounds: rates[0].len(), subjects: subjects.collect(), error: None }
}

fn connections(number: u64, opening_seconds: f64) -> Connections {
    Connections {
        wanted: number,
        opened: number,
        open_at_end: number,
        dropped: 0,
        opening_seconds,
        per_second: number as f64 / opening_seconds,
        connect: latency(38.0, number),
        first_answer: latency(210.0, number),
    }
}

/// A distribution with a tail, around a mean.
fn latency(mean_us: f64, count: u64) -> Latency {
    let at = |percentile: f64| {
        let rarity = (100.0 / (100.0 - percentile)).min(count as f64).log10();
        mean_us * (0.6 + 0.37 * rarity + if rarity > 2.0 { (rarity - 2.0).powi(2) } else { 0.0 })
    };
    let shares = (0..=120).map(|i| 100.0 * (1.0 - 10f64.powf(f64::from(i) / -20.0)));
    let mut curve: Vec<_> = shares.map(|percentile| (percentile, at(percentile))).collect();
    curve.push((100.0, at(100.0)));
    Latency {
        count,
        mean_us,
        p50_us: mean_us * 0.973,
        p90_us: at(90.0),
        p99_us: at(99.0),
        p999_us: at(99.9),
        max_us: at(100.0),
        curve,
    }
}

fn timeline(seconds: f64, points: u32, point: impl Fn(f64) -> Point) -> Vec<Point> {
    let shares = (0..=points).map(|i| f64::from(i) / f64::from(points));
    shares.map(|share| Point { at_s: share * seconds, ..point(share) }).collect()
}

/// Writes a sample for somebody who wants to look at it.
fn leave(name: &str, text: &str) {
    if let Some(directory) = std::env::var_os("STENTOR_PAGES") {
        std::fs::write(Path::new(&directory).join(name), text).unwrap();
    }
}

/// Whether every tag is closed in its turn, every attribute quoted, every `&` an entity, and no
/// coordinate something else than a number.
fn well_formed(page: &str) -> Result<(), String> {
    let body = page.strip_prefix("<!doctype html>\n").ok_or("no doctype")?;
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find('<') {
        text_is_escaped(&rest[..start])?;
        let (tag, behind) = rest[start + 1..].split_once('>').ok_or("a tag without an end")?;
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(opened) if opened == name => {}
                opened => return Err(format!("</{name}> closes {opened:?}")),
            }
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(format!("<{tag}> is no tag"));
        }
        attributes_are_quoted(tag)?;
        if !tag.ends_with('/') && name != "meta" {
            open.push(name);
        }
        if name == "style" {
            rest = &rest[rest.find("</style>").ok_or("a style without an end")?..];
        }
    }
    text_is_escaped(rest)?;
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("never closed: {open:?}")),
    }
}

fn attributes_are_quoted(tag: &str) -> Result<(), String> {
    let parts: Vec<_> = tag.split('"').collect();
    if parts.len().is_multiple_of(2) {
        return Err(format!("<{tag}> has an odd number of quotes"));
    }
    for (i, part) in parts.iter().enumerate() {
        let is_last = i == parts.len() - 1;
        let equals = part.find('=');
        let is_named = if is_last { equals.is_none() } else { equals == Some(part.len() - 1) };
        if i % 2 == 0 && !is_named {
            return Err(format!("<{tag}> has an attribute that is not quoted"));
        }
        let is_coordinate = i > 0 && i % 2 == 1 && !parts[i - 1].ends_with("label=");
        if is_coordinate && (part.contains("NaN") || part.contains("inf")) {
            return Err(format!("<{tag}> has no place"));
        }
        text_is_escaped(part)?;
    }
    Ok(())
}

fn text_is_escaped(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('&') {
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#x27;"];
        if !entities.iter().any(|entity| text[at..].starts_with(entity)) {
            return Err(format!("a bare & in {text:?}"));
        }
    }
    let acts = |c: char| c.is_control() && c != '\n';
    match text.contains('>') || text.contains(acts) {
        true => Err(format!("not escaped: {text:?}")),
        false => Ok(()),
    }
}
