//! The monitor listener: how the server is, and nothing else.

use crate::support::{Client, Server, UPGRADE, Url, run};

/// A server with a monitor listener, and its address.
fn monitored(toml: &str) -> (Server, Url) {
    let flags = ["--workers", "1", "--monitor", "127.0.0.1:0"];
    let mut server = Server::with("", toml, &flags);
    let address = server.child.logged("monitor listener at ");
    (server, Url(address.parse().unwrap()))
}

#[test]
fn it_says_how_the_server_is() {
    let (server, monitor) = monitored("");
    assert_eq!(monitor.get("/-/healthz").expect(200).text(), "ok\n");
    assert_eq!(monitor.get("/-/readyz").expect(200).text(), "ready\n");
    let metrics = monitor.get("/-/metrics").expect(200);
    assert!(metrics.text().contains("\nstentor_connections{listener=\"monitor\"} "));
    for name in ["cpu_seconds_total", "start_time_seconds", "resident_memory_bytes", "max_fds"] {
        assert!(metrics.text().contains(&format!("\nprocess_{name} ")), "{name}");
    }
    // It goes by the names that are listed, and by no other.
    for (name, status) in [("any.name", 421), ("test", 200)] {
        let mut scraper = Client::connect(monitor.0);
        scraper.send(format!("GET /-/status HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        scraper.response().expect(status);
    }
    assert_eq!(monitor.get("/-/status").expect(200).json()["workers"], 1);
    server.settled("connections_monitor", 0);
}

#[test]
fn it_grants_nothing_else() {
    let (server, monitor) = monitored("");
    server.publish("/a", "secret");
    let pages = ["/a", "/-/topics", "/-/values?topic=/a", "/-/events?topic=/a", "/-/echo", "/"];
    for page in pages {
        assert!(monitor.get(page).refused(404).detail().contains("/-/healthz"));
    }
    for fields in [UPGRADE, "Accept: text/event-stream\r\n"] {
        for page in ["/a", "/-/events?topic=/a", "/-/echo"] {
            monitor.ask("GET", page, fields, b"").refused(404);
        }
    }
    for method in ["PUT", "POST", "DELETE"] {
        for page in ["/a", "/-/publish", "/-/status"] {
            let body: &[u8] = if method == "DELETE" { b"" } else { b"x" };
            monitor.ask(method, page, "", body).refused(405);
        }
    }
    assert_eq!(server.public.get("/a").expect(200).text(), "secret");
}

#[test]
fn probes_are_public_if_so_configured() {
    let (server, _) = monitored("");
    for page in ["/-/healthz", "/-/readyz"] {
        server.public.get(page).refused(404);
    }
    let (server, _) = monitored("[monitor]\npublic_probes = true\n");
    for page in ["/-/healthz", "/-/readyz"] {
        server.public.get(page).expect(200);
    }
    for page in ["/-/status", "/-/metrics", "/-/topics"] {
        server.public.get(page).refused(404);
    }
}

#[test]
fn no_address_is_of_two_kinds() {
    let of = |listen: &str, control: &str, monitor: &str| {
        let flags = ["serve", "--listen", listen, "--control", control, "--monitor", monitor];
        let said = run(&flags);
        assert_eq!(said.code, Some(2), "{}", said.err);
        said.err
    };
    let error = of("127.0.0.1:9", "127.0.0.1:8", "0.0.0.0:9");
    assert!(error.contains("listen and monitor: 127.0.0.1:9 and 0.0.0.0:9 overlap"), "{error}");
    let error = of("127.0.0.1:9", "unix:/tmp/x", "unix:/tmp/x");
    assert!(error.contains("control and monitor: unix:/tmp/x and unix:/tmp/x overlap"), "{error}");
}
