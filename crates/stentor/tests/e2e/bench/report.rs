//! The command line of `bench`: what it refuses, how it is ended, and what it writes.

use super::stub::{Peer, Stub};
use super::{begin, bench, server_with_value, url};
use crate::support::{Browser, TempDir, eventually, run};
use std::fs;

#[test]
fn mistakes_are_of_the_caller_and_cost_nothing() {
    let stub = Stub::new(Peer::stay);
    let own = stub.url();
    // 192.0.2.0/24 and 2001:db8::/32 are nobody's (RFC 5737, RFC 3849).
    for (line, part) in [
        ("get", "required"),
        ("get http://192.0.2.1/", "neither this machine nor in a private network"),
        ("hold http://[2001:db8::1]:8080/", "--i-own-this-server"),
        ("surge http://192.0.2.1/", "--i-own-this-server"),
        ("push OWN --publish http://192.0.2.1/", "--i-own-this-server"),
        ("get OWN http://192.0.2.1/", "--i-own-this-server"),
        ("get wss://127.0.0.1/", "write https:// here"),
        ("get https://192.0.2.1/ --insecure", "--i-own-this-server"),
        ("get ftp://127.0.0.1/", "http"),
        ("get http://127.0.0.1:99999/", "99999"),
        ("get OWN --rst", "--close"),
        ("get OWN --duration forever", "forever"),
        ("get OWN --requests 0", "0"),
        ("get OWN --header Content-Length:1", "Content-Length"),
        ("get OWN --from 10.0.0.0/33", "10.0.0.0/33"),
        ("hold OWN --as carrier-pigeon", "carrier-pigeon"),
        ("push OWN", "--publish"),
        ("push OWN --publish OWN --publish-body nothing", "{message}"),
        ("get OWN --rounds 2", "several URLs"),
        ("sing OWN", "sing"),
    ] {
        let run = bench(&line.replace("OWN", &own)).with_status(2);
        assert!(run.err.contains(part) && run.report.is_null(), "{line}: {run:?}");
    }
    // A page that could not be written is known before the first connection.
    let run = bench(&format!("get {own} --html /no-such-directory/report.html")).with_status(1);
    assert!(run.err.contains("/no-such-directory/report.html: No such file"), "{}", run.err);
    assert_eq!(stub.accepted(), 0, "nothing was connected to");
}

#[test]
fn help_is_there_for_every_command() {
    for command in ["get", "hold", "push", "surge"] {
        let help = run(&["bench", command, "--help"]);
        assert_eq!((help.code, help.err.as_str()), (Some(0), ""), "{command}");
        assert!(help.out.contains("--i-own-this-server"), "{command}");
        assert!(help.out.lines().all(|line| line.chars().count() <= 100), "{command}");
    }
    let danger = run(&["bench", "get", "--help"]).out;
    assert!(danger.contains("DANGER") && danger.contains("never do this"), "{danger}");
}

#[test]
fn an_interrupt_ends_a_run_with_what_was_measured() {
    let (server, from) = server_with_value("");
    let to = url(server.control, "/a");
    for (line, counter, least, signal, code) in [
        (format!("get {from} --duration 60s -c 4"), "requests", 2_000, "TERM", 143),
        (format!("hold {from} --as sse -c 30 --duration 60s"), "readers_sse", 30, "INT", 130),
        (format!("push {from} --publish {to} -c 30 -n 900"), "deliveries", 99, "INT", 130),
    ] {
        let running = begin(&line);
        eventually(&format!("{line} is under way"), || {
            (server.figure(&format!("counters/{counter}")) >= least).then_some(())
        });
        // As `timeout` does: to the process and to its group.
        running.0.signal(signal);
        running.0.signal(signal);
        let run = running.over().with_status(code);
        assert_eq!((&run.report["interrupted"], run.errors()), (&true.into(), vec![]), "{line}");
        // The server counts one before the client knows that it is let in.
        let opened = run.count("connections/opened");
        match counter {
            "requests" => {
                assert!(opened == 4 && run.count("requests/completed") > 1_000, "{run:?}")
            }
            "deliveries" => assert!(opened > 0 && run.count("delivery/delivered") >= 30, "{run:?}"),
            _ => {
                assert!((20..=30).contains(&opened), "{run:?}");
                assert_eq!(run.count("connections/open_at_end"), opened);
            }
        }
    }
    // A server that says nothing can be waited for in vain, but not for ever.
    let stub = Stub::new(Peer::stay);
    let running = begin(&format!("hold {} --connections 3", stub.url()));
    eventually("they have come", || (stub.accepted() == 3).then_some(()));
    running.0.signal("INT");
    let run = running.over().with_status(130);
    assert_eq!((run.count("connections/opened"), &run.report["interrupted"]), (0, &true.into()));
    let running = begin(&format!("get {from} {from} --duration 60s -c 1"));
    let requests = server.figure("counters/requests");
    eventually("the first round is under way", || {
        (server.figure("counters/requests") > requests + 2_000).then_some(())
    });
    running.0.signal("INT");
    let run = running.over().with_status(130);
    assert!(run.err.contains("stopped before a round was whole"), "{run:?}");
}

#[test]
fn a_table_for_people() {
    let (server, from) = server_with_value("");
    let to = url(server.control, "/a");
    for (line, parts) in [
        (
            format!("bench get {from} --requests 1234 --connections 3"),
            &["1,234", "p99.9", "no errors", "connections 3"][..],
        ),
        (
            format!("bench push {from} --publish {to} --connections 5 --messages 4 --rate 100"),
            &["every reader got every message once, in order", "20 of 20"],
        ),
        (format!("bench hold {from} --connections 7 --duration 50ms"), &["7 of 7"]),
    ] {
        let said = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{line}");
        for part in parts {
            assert!(said.out.contains(part), "{part}: {}", said.out);
        }
        assert!(!said.out.contains("memory each"), "so few show noise: {}", said.out);
        assert!(said.out.lines().all(|line| line.chars().count() <= 100), "{}", said.out);
        assert!(said.out.lines().count() <= 40, "{}", said.out);
    }
}

/// Fails unless every element ends where it should.
#[track_caller]
fn well_formed(page: &str) {
    const VOID: [&str; 4] = ["meta", "br", "hr", "!doctype"];
    let mut open: Vec<&str> = Vec::new();
    for piece in page.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("no end of <{piece}"));
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of <{tag}>");
        let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> in {open:?}");
        } else if !tag.ends_with('/') && !VOID.contains(&name.to_lowercase().as_str()) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn a_page_that_needs_nothing_else() {
    let (server, from) = server_with_value("");
    let (to, pid, dir) = (url(server.control, "/a"), server.child.id(), TempDir::new());
    let file = dir.path().join("report.html");
    let name = file.to_str().unwrap();
    fs::write(&file, "an older one").unwrap();
    let mut browser = Browser::start();
    // What a caller writes is text, whatever it looks like.
    let hostile = format!("{from}?q=<script>alert(1)</script>&\"'>");
    for (line, charts) in [
        (format!("get {hostile} --duration 600ms --connections 4"), 2),
        (format!("hold {from} --as sse --connections 50 --duration 300ms --pid {pid}"), 2),
        (format!("push {from} --publish {to} --connections 20 --messages 20 --rate 100"), 2),
        (format!("get {from} {hostile} --rounds 2 --requests 50"), 0),
    ] {
        let run = bench(&format!("{line} --html {name}"));
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{line}");
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.to_lowercase().starts_with("<!doctype html>"), "{line}");
        // The page's own scripts come last.
        let own = page.find("<script type=\"application/json\"").unwrap_or(page.len());
        let scripts_end = page.rfind("</script>").map_or(own, |at| at + "</script>".len());
        let rest = format!("{}{}", &page[..own], &page[scripts_end..]);
        well_formed(&rest);
        for outside in
            ["<script", "<link", "<img", "<iframe", "src=", "href=\"h", "url(", "@import"]
        {
            assert!(!rest.contains(outside), "{line}: {outside}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        let Some(browser) = &mut browser else { continue };
        browser.open(&format!("file://{name}"));
        let seen = browser.run(
            "return [document.querySelectorAll('canvas').length,
                     performance.getEntriesByType('resource').length,
                     document.querySelectorAll('figure').length,
                     document.documentElement.scrollWidth <= innerWidth,
                     document.body.innerText.includes('NaN')]",
        );
        assert!(seen[0].as_u64().unwrap() >= charts, "{line}: {seen}");
        assert_eq!((&seen[1], &seen[2]), (&0.into(), &seen[0]), "{line}");
        assert_eq!((&seen[3], &seen[4]), (&true.into(), &false.into()), "{line}: {seen}");
    }
}
