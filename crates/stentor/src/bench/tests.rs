//! Command lines and the plans they make; reports and the exit status they lead to.

use std::time::Duration;

use clap::Parser;
use stentor_bench::plan::{Closing, Hold, Push, RequestLoop, RequestMethod, Role, Surge, Until};
use stentor_bench::report::{Bystanders, Connections, Delivery, Listeners, Requests};

use super::*;
use crate::args::{Cli, Command};

const URL: &str = "http://127.0.0.1:8080/a";

fn parse(line: &[&str]) -> Result<BenchArgs, clap::Error> {
    let line = ["stentor", "bench"].iter().chain(line);
    Cli::try_parse_from(line).map(|cli| match cli.command {
        Command::Bench(args) => args,
        other => panic!("not bench: {other:?}"),
    })
}

/// The plans of a command line, or what is said against it.
fn plans_of(line: &[&str]) -> Result<Vec<Plan>, String> {
    let args = parse(line).map_err(|error| error.to_string())?;
    let said = |failure: Failure| match failure {
        Failure::Usage(reason) => reason,
        other => panic!("not a mistake of the caller: {other}"),
    };
    match &args.task {
        Task::Get(args) => args.plans(),
        Task::Put(args) => args.plans(),
        Task::Hold(args) => args.plans(),
        Task::Push(args) => args.plans(),
        Task::Surge(args) => args.plans(),
    }
    .map_err(said)
}

/// The one plan of a command and its flags, which are written with spaces between.
fn plan_of(command: &str, flags: &str) -> Plan {
    let line: Vec<_> = [command, URL].into_iter().chain(flags.split_whitespace()).collect();
    let mut plans = plans_of(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}

fn get(flags: &str) -> RequestLoop {
    requests("get", flags)
}

fn requests(command: &str, flags: &str) -> RequestLoop {
    match plan_of(command, flags).task {
        plan::Task::Requests(requests) => requests,
        other => panic!("{other:?}"),
    }
}

fn hold(flags: &str) -> Hold {
    match plan_of("hold", flags).task {
        plan::Task::Hold(hold) => hold,
        other => panic!("{other:?}"),
    }
}

fn push(flags: &str) -> Push {
    match plan_of("push", &format!("--publish http://127.0.0.1:8081/a {flags}")).task {
        plan::Task::Push(push) => push,
        other => panic!("{other:?}"),
    }
}

fn surge(flags: &str) -> Surge {
    match plan_of("surge", flags).task {
        plan::Task::Surge(surge) => surge,
        other => panic!("{other:?}"),
    }
}

#[test]
fn get_and_its_flags() {
    let plan = get("");
    assert_eq!((plan.connections, plan.pipeline, plan.rate), (64, 1, None));
    assert_eq!((plan.closing, plan.until), (Closing::Keep, Until::Time(Duration::from_secs(10))));
    let setup = plan_of("get", "").setup;
    assert_eq!(setup.target, Target::parse(URL).unwrap());
    assert_eq!((setup.threads, setup.sources, setup.pid), (None, None, None));
    assert!(setup.headers.is_empty());
    let plan = get("--connections 3 --pipeline 16 --requests 1000 --rate 0.5");
    assert_eq!((plan.connections, plan.pipeline, plan.rate), (3, 16, Some(0.5)));
    assert_eq!(plan.until, Until::Requests(1_000));
    assert_eq!(get("--duration 500ms").until, Until::Time(Duration::from_millis(500)));
    assert_eq!(get("--close").closing, Closing::Fin);
    assert_eq!(get("--close --rst").closing, Closing::Reset);
}

#[test]
fn put_and_its_flags() {
    let plan = requests("put", "");
    assert_eq!((plan.method, plan.topics, plan.connections), (RequestMethod::Put(64), None, 64));
    let plan = requests("put", "--bytes 4KiB --topics 10 -c 3 -n 100 -r 5");
    assert_eq!(
        (plan.method, plan.topics, plan.connections),
        (RequestMethod::Put(4_096), Some(10), 3)
    );
    assert_eq!((plan.until, plan.rate), (Until::Requests(100), Some(5.0)));
    let numbered = plans_of(&["put", "http://127.0.0.1:8080/a/{n}"]).unwrap();
    assert!(matches!(&numbered[0].task,
        plan::Task::Requests(requests) if requests.topics == Some(1_000)));
}

#[test]
fn short_flags_are_those_of_other_generators() {
    let plan = get("-c 3 -d 2s -r 100");
    assert_eq!((plan.connections, plan.rate), (3, Some(100.0)));
    assert_eq!(plan.until, Until::Time(Duration::from_secs(2)));
    assert_eq!(get("-n 7").until, Until::Requests(7));
    assert_eq!(hold("-c 3 -d 1s").connections, 3);
    let plan = push("-c 3 -n 7 -r 5");
    assert_eq!((plan.connections, plan.messages, plan.rate), (3, 7, 5.0));
    assert_eq!(surge("-c 3 -r 5").connections, 3);
    let Task::Get(run) = parse(&["get", URL, "-j", "-q"]).unwrap().task else { panic!("get") };
    assert!(run.common.json && run.common.quiet);
}

#[test]
fn hold_and_its_flags() {
    let plan = hold("");
    assert_eq!((plan.connections, plan.role, plan.ramp), (1_000, Role::Idle, None));
    assert_eq!(plan.duration, Duration::from_secs(10));
    let plan = hold("--connections 1000000 --as sse --ramp 5000 --duration 10m");
    assert_eq!((plan.connections, plan.role, plan.ramp), (1_000_000, Role::Sse, Some(5_000)));
    assert_eq!(plan.duration, Duration::from_secs(600));
    assert_eq!(hold("--as ws").role, Role::Ws);
    assert_eq!(hold("--as poll").role, Role::Poll);
    assert_eq!(hold("--as idle").role, Role::Idle);
}

#[test]
fn push_and_its_flags() {
    let plan = push("");
    assert_eq!((plan.connections, plan.role, plan.ramp), (1_000, Role::Sse, None));
    assert_eq!((plan.rate, plan.messages, plan.stall_percent), (10.0, 100, 0));
    assert_eq!(plan.publish.target, Target::parse("http://127.0.0.1:8081/a").unwrap());
    assert_eq!((plan.publish.method.as_str(), plan.publish.size), ("POST", 64));
    assert_eq!(plan.publish.body, "{message}");
    assert_eq!(plan.publish.headers, [("Content-Type".to_owned(), "text/plain".to_owned())]);
    let plan = push(
        "--as ws --rate 100 --messages 7 --size 1KiB --stall 20% --publish-method PUT \
         --publish-body {\"data\":\"{message}\"} --publish-header content-type:application/json \
         --publish-header Host:example.com",
    );
    assert_eq!((plan.role, plan.rate, plan.messages), (Role::Ws, 100.0, 7));
    assert_eq!((plan.stall_percent, plan.publish.size), (20, 1_024));
    assert_eq!(plan.publish.method, "PUT");
    assert_eq!(plan.publish.body, "{\"data\":\"{message}\"}");
    let json = ("content-type".to_owned(), "application/json".to_owned());
    assert_eq!(plan.publish.headers, [json]);
    assert_eq!(plan.publish.target.host, "example.com");
    let setup = plan_of("push", "--publish http://127.0.0.1/a --publish-header Host:b").setup;
    assert_eq!(setup.target.host, "127.0.0.1:8080");
}

#[test]
fn surge_and_its_flags() {
    let plan = surge("");
    assert_eq!((plan.connections, plan.role), (1_000, Role::Idle));
    assert_eq!((plan.bystanders, plan.bystander_rate), (64, 1_000.0));
    assert_eq!(plan.within, Duration::from_secs(1));
    let plan = surge("--connections 9 --as poll --within 200ms --bystanders 0 --rate 5");
    assert_eq!((plan.connections, plan.role), (9, Role::Poll));
    assert_eq!((plan.bystanders, plan.bystander_rate), (0, 5.0));
    assert_eq!(plan.within, Duration::from_millis(200));
    assert!(plan.listeners.is_none() && !plan.queued && plan.timeout.is_none());
    let plan = surge("--publish http://127.0.0.1:8081/a --readers 7 --messages 5");
    let listeners = plan.listeners.unwrap();
    assert_eq!((listeners.readers, listeners.rate), (7, 5.0));
    assert_eq!((listeners.publish.method.as_str(), listeners.publish.size), ("POST", 64));
    assert_eq!(listeners.publish.target, Target::parse("http://127.0.0.1:8081/a").unwrap());
    let plan = surge("--publish http://127.0.0.1:8081/a");
    let listeners = plan.listeners.unwrap();
    assert_eq!((listeners.readers, listeners.rate), (20, 100.0));
    let plan = surge("--queued --pid 7 --timeout 9s");
    assert_eq!((plan.queued, plan.timeout), (true, Some(Duration::from_secs(9))));
    let setup = plan_of("surge", "--queued --pid 7 --beside http://127.0.0.1:8080/b").setup;
    assert_eq!((setup.pid, &*plan.beside), (Some(7), &setup.target));
    let plan = surge("--beside http://127.0.0.1:8080/b");
    assert_eq!((plan.beside.path.as_str(), setup.target.path.as_str()), ("/b", "/a"));
}

#[test]
fn flags_of_every_run() {
    let flags = "--threads 4 --from 127.1.0.0/16 --pid 7 --header X:1 --header Host:h --json";
    let setup = plan_of("get", flags).setup;
    assert_eq!((setup.threads, setup.pid), (Some(4), Some(7)));
    assert_eq!(setup.sources, Some("127.1.0.0/16".parse().unwrap()));
    assert_eq!(setup.headers, [("X".to_owned(), "1".to_owned())]);
    assert_eq!(setup.target.host, "h");
    let setup = plan_of("get", "--accept-encoding gzip").setup;
    assert_eq!(setup.headers, [("Accept-Encoding".to_owned(), "gzip".to_owned())]);
}

#[test]
fn mistakes_are_told() {
    for (line, part) in [
        (&["get"][..], "required"),
        (&["get", "wss://127.0.0.1/"], "write https:// here"),
        (&["get", "https://127.0.0.1/", "--ca", "/none"], "/none: No such file"),
        (&["get", "https://127.0.0.1/", "--ca", "x", "--insecure"], "cannot be used with"),
        (&["get", URL, "--connections", "0"], "not in 1..="),
        (&["get", URL, "--connections", "100000001"], "100000000"),
        (&["get", URL, "--duration", "25h"], "24h"),
        (&["get", URL, "--duration", "1s", "--requests", "1"], "cannot be used with"),
        (&["get", URL, "--rst"], "--close"),
        (&["put", URL, "--bytes", "17MiB"], "16 MiB at most"),
        (&["put", URL, "--bytes", "1MiB", "--pipeline", "17"], "more than 16 MiB"),
        (&["get", URL, "--close", "--pipeline", "2"], "cannot be used with"),
        (&["get", URL, "--rate", "1", "--requests", "90000"], "take 25 hours"),
        (&["get", URL, "--rate", "0"], "not a number per second"),
        (&["get", URL, "--header", "A: b\r\nC: d"], "cannot stand in a header"),
        (&["get", URL, "--header", "Connection: close"], "own field"),
        (&["get", URL, "--header", "Host: a", "--header", "host: b"], "one Host"),
        (&["get", URL, "--accept-encoding", "gzip\n"], "cannot stand in a header"),
        (&["get", URL, "--threads", "0"], "not in 1..="),
        (&["get", URL, "--pid", "1", "--pid", "2"], "1 wanted, 2 given"),
        (&["get", URL, "--from", "127.1.0.5/16"], "write 127.1.0.0/16"),
        (&["get", URL, "--from", "fd00::/112"], "a network of IPv4 with --from"),
        (&["hold", URL, "--as", "http2"], "poll"),
        (&["hold", URL, "--connections", "1000000", "--ramp", "1"], "take 278 hours"),
        (&["push", URL], "--publish"),
        (&["push", URL, "--publish", URL, "--publish", URL], "1 wanted, 2 given"),
        (&["push", URL, "--publish", "ftp://127.0.0.1"], "only http"),
        (&["push", URL, "--publish", URL, "--as", "idle"], "invalid value"),
        (&["push", URL, "--publish", URL, "--size", "37"], "from 38 B"),
        (&["push", URL, "--publish", URL, "--size", "2MiB"], "to 1 MiB"),
        (&["push", URL, "--publish", URL, "--stall", "100%"], "to 99%"),
        (&["push", URL, "--publish", URL, "--publish-body", "x"], "{message}"),
        (&["push", URL, "--publish", URL, "--publish-method", "GET"], "PUT"),
        (&["push", URL, "--publish", URL, "--publish-header", "TE: x"], "own field"),
        (&["push", URL, "--publish", URL, "--rate", "0.01", "--messages", "1000"], "28 hours"),
        (&["surge", URL, "--within", "0s"], "out of range"),
        (&["get", URL, "--rounds", "2"], "for several URLs"),
        (&["get", URL, URL, "--rounds", "0"], "not in 1..="),
        (&["surge", URL, "--queued"], "--pid"),
        (&["surge", "https://127.0.0.1/", "--queued", "--pid", "7"], "by TLS"),
        (&["surge", URL, "--timeout", "9s"], "--pid"),
        (&["surge", URL, "--timeout", "4s", "--pid", "7"], "5s at least"),
        (&["surge", URL, "--timeout", "9s", "--pid", "7", "--as", "sse"], "leave --as out"),
        (&["surge", URL, "--readers", "9"], "--publish"),
        (&["surge", URL, "--publish", URL, "--publish", URL], "1 wanted, 2 given"),
        (&["push", URL, URL, "--publish", URL], "2 wanted, 1 given"),
        (&["get", URL, URL, "--pid", "1"], "2 wanted, 1 given"),
    ] {
        let error = plans_of(line).expect_err(&line.join(" "));
        assert!(error.contains(part), "{line:?}: {error}");
    }
}

#[test]
fn whom_to_trust_is_said_where_any_server_is_asked_by_tls() {
    const HTTPS: &str = "https://127.0.0.1:8443/a";
    let trusted = |line: &[&str]| -> Vec<(bool, bool)> {
        let plans = plans_of(line).unwrap();
        let publish = |plan: &Plan| match &plan.task {
            plan::Task::Push(push) => push.publish.tls.is_some(),
            _ => false,
        };
        plans.iter().map(|plan| (plan.setup.trust.is_some(), publish(plan))).collect()
    };
    assert_eq!(trusted(&["get", URL]), [(false, false)]);
    assert_eq!(trusted(&["get", HTTPS, "--insecure"]), [(true, false)]);
    for (read, publish) in [(HTTPS, URL), (URL, HTTPS)] {
        let line = ["push", read, "--publish", publish, "--insecure"];
        assert_eq!(trusted(&line), [(true, true)]);
    }
    let both = ["get", URL, HTTPS, "--insecure"];
    assert_eq!(trusted(&both), [(true, false), (true, false)]);
}

#[test]
fn servers_are_compared_in_their_order() {
    let other = "http://127.0.0.1:80/b";
    let publish = ["--publish", "http://127.0.0.1/p", "--publish", "http://127.0.0.1/q"];
    let line = [&["push", URL, other, "--pid", "1", "--pid", "2"][..], &publish[..]];
    let plans = plans_of(&line.concat()).unwrap();
    let found: Vec<_> = plans
        .iter()
        .map(|Plan { setup, task }| match task {
            plan::Task::Push(push) => {
                (setup.target.path.as_str(), push.publish.target.path.as_str(), setup.pid)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, [("/a", "/p", Some(1)), ("/b", "/q", Some(2))]);
    for command in ["get", "hold", "surge"] {
        assert_eq!(plans_of(&[command, URL, other, URL]).unwrap().len(), 3);
    }
}

#[test]
fn strangers_are_left_alone() {
    let stranger = "http://8.8.8.8/";
    let lines = [
        &["get", stranger][..],
        &["hold", stranger],
        &["surge", stranger],
        &["push", stranger, "--publish", URL],
        &["surge", URL, "--publish", stranger],
        &["surge", URL, "--beside", stranger],
        &["push", URL, "--publish", stranger],
        &["get", URL, stranger],
        &["push", URL, URL, "--publish", URL, "--publish", stranger],
    ];
    for line in lines {
        let error = plans_of(line).expect_err(&line.join(" "));
        assert!(error.contains("leads to 8.8.8.8"), "{line:?}: {error}");
        assert!(error.ends_with("--i-own-this-server"), "{line:?}: {error}");
        assert!(plans_of(&[line, &["--i-own-this-server"]].concat()).is_ok(), "{line:?}");
    }
    // A name is what is judged, not what the Host field says.
    assert!(plans_of(&["get", URL, "--header", "Host: example.com"]).is_ok());
}

fn report() -> Report {
    Report {
        command: "get",
        url: URL.to_owned(),
        settings: Vec::new(),
        started_unix_s: 0,
        seconds: 1.0,
        interrupted: false,
        machine: Default::default(),
        requests: None,
        connections: Connections { wanted: 1, opened: 1, ..Connections::default() },
        delivery: None,
        bystanders: None,
        memory: None,
        processor: None,
        errors: Vec::new(),
        bytes: Default::default(),
        timeline: Vec::new(),
    }
}

#[test]
fn a_run_that_measured_nothing_fails() {
    assert!(check(&report()).is_ok());
    let none_opened = Report { connections: Connections::default(), ..report() };
    let requests = |completed, status| {
        let statuses = vec![(status, completed)];
        Report {
            requests: Some(Requests { completed, statuses, ..Requests::default() }),
            ..report()
        }
    };
    assert!(check(&requests(1, 200)).is_ok());
    let unopened = Connections { wanted: 2, opened: 1, ..Connections::default() };
    for (report, part) in [
        (Report { connections: unopened, ..report() }, "1 connection never opened"),
        (none_opened, "no connection opened"),
        (requests(0, 200), "no request answered"),
        (requests(3, 404), "every answer was an error"),
    ] {
        let error = check(&report).unwrap_err().to_string();
        assert!(error.starts_with(URL) && error.contains(part), "{error}");
    }
}

#[test]
fn messages_that_are_lost_or_repeated_fail_a_run() {
    let of = |published, missing, missing_untold, duplicates| {
        let delivery =
            Delivery { published, missing, missing_untold, duplicates, ..Default::default() };
        check(&Report { delivery: Some(delivery), ..report() }).map_err(|error| error.to_string())
    };
    assert_eq!(of(100, 0, 0, 0), Ok(()));
    // A gap that is told is what the server promises.
    assert_eq!(of(100, 3, 0, 0), Ok(()));
    assert!(of(100, 5, 3, 0).unwrap_err().contains("3 deliveries missing in silence"));
    assert!(of(100, 0, 0, 2).unwrap_err().contains("2 duplicates"));
    assert!(of(0, 0, 0, 0).unwrap_err().contains("no message published"));
}

#[test]
fn lost_messages_of_bystanders_fail_a_surge() {
    let of = |published, missing, missing_untold, duplicates| {
        let listeners =
            Listeners { published, missing, missing_untold, duplicates, ..Default::default() };
        let bystanders = Bystanders { listeners: Some(listeners), ..Default::default() };
        let report = Report { command: "surge", bystanders: Some(bystanders), ..report() };
        check(&report).map_err(|error| error.to_string())
    };
    assert_eq!(of(100, 0, 0, 0), Ok(()));
    assert_eq!(of(100, 3, 0, 0), Ok(()), "the server has sent a gap");
    assert!(of(100, 5, 3, 0).unwrap_err().contains("3 deliveries missing in silence"));
    assert!(of(100, 0, 0, 2).unwrap_err().contains("2 duplicates"));
    assert!(of(0, 0, 0, 0).unwrap_err().contains("no message published"));
}

#[test]
fn one_server_that_fails_fails_a_comparison() {
    let subject = |report: Report| stentor_bench::report::Subject {
        url: report.url.clone(),
        reports: vec![report],
    };
    let bad = Report { connections: Connections::default(), ..report() };
    let of = |second| {
        let subjects = vec![subject(report()), subject(second)];
        BenchOutcome::Several(Comparison { command: "get", rounds: 1, subjects, error: None })
            .check()
    };
    assert!(of(report()).is_ok());
    assert!(of(bad).is_err());
}
