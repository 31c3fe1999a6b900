//! Clients that come through proxies, and a server whose places are all taken.

use crate::support::{Client, Ending, Server, TempDir, eventually};
use std::fs;
use std::time::{Duration, Instant};

/// A client at this address, as a proxy says.
fn through_proxy(server: &Server, client: &str) -> Client {
    let mut connection = server.reader();
    connection.send(format!("PROXY TCP4 {client} 127.0.0.1 40000 80\r\n"));
    connection
}

const STREAM: &str = "GET /a HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";

#[test]
fn the_access_log_names_the_client_behind_a_proxy() {
    let dir = TempDir::new();
    let file = dir.path().join("access.log");
    let toml = format!(
        "trusted_proxies = '127.0.0.0/8'\n[log]\naccess = '{}'\n\
         [limits]\nconnections_per_address = 2\n",
        file.display()
    );
    let mut server = Server::of_copy_at("proxy:127.0.0.1:0", "", &toml);
    let logged = |count: usize| -> Vec<String> {
        eventually("it is logged", || {
            let log = fs::read_to_string(&file).unwrap_or_default();
            let of = |line: &str| line.split(' ').next().unwrap().to_owned();
            let addresses: Vec<String> = log.lines().map(of).collect();
            (addresses.len() >= count).then_some(addresses)
        })
    };
    let mut first = through_proxy(&server, "192.0.2.1");
    first.get("/a").refused(404);
    // Each worker has lines of its own.
    logged(1);
    let mut second = through_proxy(&server, "192.0.2.2");
    second.get("/a").refused(404);
    assert_eq!(logged(2), ["192.0.2.1", "192.0.2.2"]);
    // In the process that takes over, too.
    server.child.upgrade();
    first.get("/a").refused(404);
    assert_eq!(logged(3)[2], "192.0.2.1");
    // Bytes that are no header are no request either.
    let mut stranger = server.reader();
    stranger.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(stranger.ending(), Ending::Reset);
    server.settled("proxy_headers_refused", 1);
    // Once the connections are counted there, one client has two and no third.
    eventually("the address is counted", || {
        let _second = through_proxy(&server, "192.0.2.1");
        let mut third = through_proxy(&server, "192.0.2.1");
        third.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        (third.response().status == 429).then_some(())
    });
    // The control listener takes the word of the proxies for its log as well.
    let mut operator = Client::connect(server.control.0);
    operator.send("GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n");
    operator.response().refused(404);
    eventually("the operator is logged", || {
        fs::read_to_string(&file).unwrap().contains("192.0.2.9 - - ").then_some(())
    });
}

/// The figure of `docs/operating.md`: of a third address 20 of 20 get in, and soon.
#[test]
fn two_addresses_that_hold_all_places_shut_nobody_out() {
    let toml = "trusted_proxies = '127.0.0.1'\n[limits]\nconnections_max = 400\n";
    let server = Server::listening_at("proxy:127.0.0.1:0", "", toml, &["--workers", "1"]);
    server.publish("/a", "1");
    let mut hoarded: Vec<Client> = Vec::new();
    for n in 0..400 {
        let mut client = through_proxy(&server, ["192.0.2.1", "203.0.113.1"][n % 2]);
        client.send(STREAM);
        hoarded.push(client);
    }
    server.settled("readers_sse", 400);
    let mut longest = Duration::ZERO;
    let mut inside = Vec::new();
    for n in 0..20 {
        let began = Instant::now();
        let mut newcomer = through_proxy(&server, "198.51.100.1");
        assert_eq!(newcomer.get("/a").expect(200).text(), "1", "newcomer {n}");
        longest = longest.max(began.elapsed());
        inside.push(newcomer);
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    eprintln!("20 of 20 newcomers were answered, after {longest:?} at the latest");
    assert_eq!(server.figure("counters/connections_public"), 400);
    let evicted = server.figure("counters/connections_evicted");
    assert!((20..60).contains(&evicted), "{evicted}");
    drop((hoarded, inside));
    server.settled("connections_public", 0);
}
