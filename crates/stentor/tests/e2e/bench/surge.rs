//! `bench surge`, and several servers in turn.

use super::peers::Nginx;
use super::stub::Stub;
use super::{begin, bench, server_with_value};
use crate::support::{eventually, run};
use std::time::Duration;
use std::{fs, thread};

#[test]
fn newcomers_are_answered_and_bystanders_watched() {
    thread::scope(|scope| {
        for role in ["idle", "sse"] {
            scope.spawn(move || {
                let (server, url) = server_with_value("");
                let flags = "--connections 300 --within 200ms --bystanders 1 --rate 100";
                let run = bench(&format!("surge {url} --as {role} {flags}")).fine();
                assert_eq!(run.count("connections/wanted"), 300, "{role}");
                assert_eq!(run.count("connections/opened"), 300, "{role}");
                assert_eq!(run.count("connections/open_at_end"), 300, "{role}");
                assert!(run.amount("connections/opening_seconds") >= 0.199, "{role}");
                let count = |name: &str| run.count(&format!("bystanders/{name}"));
                assert_eq!((count("connections"), count("dropped")), (1, 0), "{role}");
                assert_eq!(count("failed"), 0, "{role}");
                // Three seconds before, 0.2 s or more of it, three seconds after.
                assert!((250..=310).contains(&count("before/count")), "{role}: {run:?}");
                assert!(count("during/count") >= 10, "{role}: {run:?}");
                assert!((250..=310).contains(&count("after/count")), "{role}: {run:?}");
                let accepted = server.figure("counters/accepted");
                assert!((301..=303).contains(&accepted), "{role}: {accepted}");
            });
        }
        scope.spawn(|| {
            let (_server, url) = server_with_value("");
            let line = format!("surge {url} --connections 50 --within 100ms --bystanders 0");
            let run = bench(&line).fine();
            assert_eq!(run.count("connections/opened"), 50);
            assert!(run.report.get("bystanders").is_none(), "{run:?}");
        });
        scope.spawn(|| {
            let (server, url) = server_with_value("[limits]\nkeep_alive_timeout = \"6s\"\n");
            // All of them wait before the first is served, and in the end all are silent for long.
            let flags = "--connections 200 --queued --bystanders 3 --rate 100 --readers 4 \
                         --messages 50 --timeout 6s";
            let (pid, publish) = (server.child.id(), super::url(server.control, "/a"));
            let run = bench(&format!("surge {url} {flags} --pid {pid} --publish {publish}"));
            let run = run.fine();
            assert_eq!(run.count("connections/opened"), 200);
            assert_eq!(run.count("connections/dropped"), 0, "that they time out is asked for");
            let count = |name: &str| run.count(&format!("bystanders/{name}"));
            assert_eq!((count("dropped"), count("failed")), (0, 0));
            assert_eq!((count("listeners/readers"), count("listeners/dropped")), (4, 0));
            assert_eq!(count("listeners/missing"), 0, "{run:?}");
            assert_eq!(count("listeners/delivered"), 4 * count("listeners/published"));
            // CPU time for the bystanders is no cost of the newcomers.
            assert!(run.amount("processor/baseline_seconds") > 0.0, "{run:?}");
            let counted = ["before", "during", "after", "timeout"]
                .map(|period| count(&format!("listeners/{period}/count")));
            assert_eq!(counted.iter().sum::<u64>(), count("listeners/delivered"));
            assert!(counted[0] >= 4 * 100 && counted[2] >= 4 * 100, "{counted:?}");
        });
        scope.spawn(|| {
            let Some(nginx) = Nginx::plain() else { return };
            let flags = "--connections 200 --within 100ms --bystanders 3 --rate 100";
            let run = nginx.bench(&format!("surge URL/a {flags}")).fine();
            assert_eq!(run.count("connections/opened"), 200);
            assert_eq!((run.count("bystanders/failed"), run.count("bystanders/dropped")), (0, 0));
        });
        scope.spawn(|| {
            let stub = Stub::answering("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
            let line = format!("surge {} --connections 50 --bystanders 0", stub.url());
            let run = bench(&line).with_status(1);
            assert_eq!(run.errors(), [("status 503", 50)]);
        });
    });
}

#[test]
fn a_stopped_server_continues_if_the_generator_is_killed() {
    let (server, url) = server_with_value("");
    let pid = server.child.id();
    let is_stopped = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(|line| line.starts_with("State:") && line.contains("T (stopped)"))
    };
    let bench = begin(&format!("surge {url} --connections 200 --queued --pid {pid}"));
    // It is stopped for 200 ms at least, so this looks more often than `eventually`.
    eventually("the server is stopped", || {
        for _ in 0..100 {
            if is_stopped() {
                return Some(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    });
    // The end of the test's child is a SIGKILL: no code of its own runs any more.
    drop(bench);
    eventually("the server continues", || (!is_stopped()).then_some(()));
}

#[test]
fn servers_are_compared_round_by_round() {
    let (_first, first) = server_with_value("");
    let (_second, second) = server_with_value("");
    let stub = Stub::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let urls = format!("{first} {second} {}", stub.url());
    let flags = "--rounds 3 --requests 300 --connections 4";
    let compared = bench(&format!("get {urls} {flags}"));
    assert_eq!((compared.code, compared.err.as_str()), (Some(0), ""));
    assert_eq!((&compared.report["command"], compared.count("rounds")), (&"get".into(), 3));
    let subjects = compared.report["subjects"].as_array().unwrap();
    let known: Vec<&str> = subjects.iter().map(|one| one["url"].as_str().unwrap()).collect();
    assert_eq!(known, urls.split(' ').collect::<Vec<_>>());
    for subject in subjects {
        let reports = subject["reports"].as_array().unwrap();
        assert_eq!(reports.len(), 3);
        assert!(reports.iter().all(|report| report["requests"]["completed"] == 300));
    }
    // In the table each of the others has its ratios to the first.
    let line = format!("bench get {urls} {flags}");
    let said = run(&line.split(' ').collect::<Vec<_>>());
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(said.out.contains('×') && said.out.lines().all(|line| line.chars().count() <= 100));
    for url in known {
        assert!(said.out.contains(url), "{}", said.out);
    }
}

#[test]
fn everything_can_be_compared() {
    thread::scope(|scope| {
        for (command, flags) in [
            ("hold", "--as sse --connections 10 --duration 50ms"),
            ("push", "--connections 5 --messages 5 --rate 100"),
        ] {
            scope.spawn(move || {
                let (first, second) = (server_with_value(""), server_with_value(""));
                let pids = [&first, &second].map(|(server, _)| server.child.id());
                let publish = [&first, &second]
                    .map(|(server, _)| format!("--publish {}", super::url(server.control, "/a")));
                let publish = if command == "push" { publish.join(" ") } else { String::new() };
                let line = format!(
                    "{command} {} {} --rounds 2 {flags} --pid {} --pid {} {publish}",
                    first.1, second.1, pids[0], pids[1]
                );
                let run = bench(&line);
                assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{line}");
                for (subject, round) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let at = format!("subjects/{subject}/reports/{round}");
                    assert!(run.count(&format!("{at}/connections/opened")) >= 5, "{run:?}");
                    assert!(run.count(&format!("{at}/memory/process_resident_bytes")) > 1 << 20);
                }
            });
        }
    });
}
