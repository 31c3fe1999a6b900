//! Servers that follow others: what is published at the leader is read at any of them, under the
//! same ids, and readers go from one to another with the cursor they have.

use crate::support::{EventStream, Heard, Reader, Server, TempDir, Url, Way, eventually, run, seq};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A server that follows the control listeners at these addresses.
fn following(leaders: &[Url], toml: &str) -> Server {
    let urls: Vec<String> = leaders.iter().map(|Url(at)| format!("http://{at}")).collect();
    let mut flags = vec!["--workers", "2"];
    urls.iter().for_each(|url| flags.extend(["--follow", url]));
    let server = Server::with("", toml, &flags);
    server.await_ready();
    server
}

/// Waits until a server has what another one has.
fn caught_up(server: &Server, id: &str) {
    eventually(&format!("it has {id}"), || {
        let status = server.control.get("/-/status").expect(200).json();
        (status["follow"]["position"] == *id).then_some(())
    });
}

#[test]
fn a_follower_has_what_its_leader_has_under_the_same_ids() {
    let leader = Server::configured("[[topics]]\nmatch = '/few'\nhistory = 2");
    (0..5).for_each(|n| drop(leader.publish("/few", &n.to_string())));
    let first = leader.publish("/a", "one");
    leader.publish("/gone", "x");
    leader.control.ask("DELETE", "/gone", "", b"").expect(200);
    let follower = following(&[leader.control], "");
    let value = follower.public.get("/a").expect(200);
    assert_eq!(value.field("etag"), Some(&*format!("\"{first}\"")));
    assert_eq!(value.field("stentor-stale"), None);
    assert_eq!(value.body, b"one");
    follower.public.get("/gone").expect(404);
    // Its rules are the leader's.
    let few = follower.public.get("/-/events?topic=/few&since=earliest").expect(200).json();
    assert_eq!(few["events"].as_array().map(Vec::len), Some(2), "{few}");
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &first);
    let second = leader.publish("/a", "two");
    let heard = reader.hear();
    assert_eq!(heard, Heard::Message { id: second, topic: String::new(), data: "two".into() });
    leader.control.ask("DELETE", "/a", "", b"").expect(200);
    assert!(matches!(reader.hear(), Heard::Deleted { .. }));
    let status = follower.control.get("/-/status").expect(200).json();
    let follow = &status["follow"];
    assert_eq!(follow["leader"], format!("http://{}", leader.control.0));
    assert_eq!((&follow["connected"], &follow["snapshots"]), (&true.into(), &1.into()));
    let metrics = String::from_utf8(follower.control.get("/-/metrics").body).unwrap();
    assert!(metrics.contains("\nstentor_follow_up 1\n"), "{metrics}");
    leader.settled("followers", 1);
}

/// The follower has no rule of its own for these topics.
#[test]
fn a_follower_guards_what_its_leader_guards() {
    let rules =
        "[[topics]]\nmatch = '/team/open'\n[[topics]]\nmatch = '/team/**'\nread = 'token'\n";
    let leader = Server::configured(&format!("{rules}{TOKEN}"));
    ["/team/open", "/team/a", "/b"].iter().for_each(|topic| drop(leader.publish(topic, "it")));
    let follower = following(&[leader.control], "");
    let second = following(&[follower.control], "");
    for server in [&leader, &follower, &second] {
        server.public.get("/team/a").refused(401);
        server.public.get("/-/events?topic=/team/a").refused(401);
        server.public.get("/-/values?topic=/team/a").refused(401);
        ["/team/open", "/b"].iter().for_each(|topic| drop(server.public.get(topic).expect(200)));
        assert_eq!(server.control.get("/team/a").expect(200).text(), "it");
    }
}

const TOKEN: &str = "[[token]]\nname = 'team'\nread = '/team/**'\n\
                     sha256 = '06fd573aee7c62340a9d2d7a8b565ac680a879c681f7fb3ac25dcb682b1ac868'\n";

/// Where readers go on is where they were, whatever server they come to.
#[test]
fn readers_go_from_server_to_server_and_miss_nothing() {
    let leader = Server::configured("[[topics]]\nmatch = '/**'\nhistory = 100000");
    let first = leader.publish("/a", "0");
    let middle = following(&[leader.control], "");
    let last = following(&[middle.control], "");
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut control = leader.publisher();
            for n in 1.. {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let fields = "Content-Type: text/plain\r\n";
                control.ask("PUT", "/a", fields, n.to_string().as_bytes()).expect(200);
                // History is to reach back to the beginning.
                thread::sleep(Duration::from_millis(2));
            }
        });
        let servers = [&leader, &last, &middle];
        let mut read = Vec::new();
        for way in Way::STREAMS.into_iter().filter(|way| way.has_ids()) {
            let (mut cursor, mut expected) = (first.clone(), 1);
            for turn in 0..12 {
                let server = servers[turn % servers.len()];
                let mut reader = Reader::open(way, server.public, "/a", "", &cursor);
                for _ in 0..=turn % 4 {
                    let Heard::Message { id, data, .. } = reader.hear() else {
                        panic!("{way:?}, {turn}: a gap behind {cursor}");
                    };
                    assert_eq!(data, expected.to_string(), "{way:?}, {turn}");
                    (cursor, expected) = (id, expected + 1);
                }
            }
            read.push(expected);
        }
        ends.store(true, Ordering::Relaxed);
        assert!(read.iter().all(|read| *read == 31), "{read:?}");
    });
}

#[test]
fn nothing_is_published_at_a_follower() {
    let leader = Server::start();
    leader.publish("/a", "x");
    let refuses = following(&[leader.control], "");
    let asked = |server: &Server, method: &str, target: &str| {
        server.control.ask(method, target, "Content-Type: text/plain\r\n", b"y")
    };
    for (method, target) in
        [("PUT", "/a"), ("POST", "/a"), ("DELETE", "/a"), ("POST", "/-/publish")]
    {
        let refused = asked(&refuses, method, target).refused(503);
        assert_eq!(refused.code(), "not_leader");
        let said = refused.detail();
        assert!(said.starts_with("This server follows another one: publish there"), "{said}");
    }
    let leads = following(&[leader.control], "[follow]\npublish_url = 'http://leader.example'");
    let led = asked(&leads, "PUT", "/a%20b?x=1").expect(307);
    assert_eq!(led.field("location"), Some("http://leader.example/a%20b?x=1"));
    assert_eq!(refuses.public.get("/a").body, b"x");
    // And whoever would keep something is told at the start.
    let url = format!("http://{}", leader.control.0);
    let said = run(&["serve", "--follow", &url, "--data", "/tmp/x"]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn while_its_leader_is_away_a_follower_says_since_when_and_goes_on() {
    let leader = Server::lasting("");
    let old = leader.publish("/a", "old");
    leader.publish("/b", "only there");
    let follower =
        following(&[leader.control], "[follow]\nstale_max = '1s'\n[cors]\norigins = '*'");
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &old);
    let mut all = EventStream::open(follower.public, "/-/events?topic=/**&since=earliest", "");
    all.event();
    all.event();
    let addresses = leader.kill();
    eventually("it says since when", || {
        let value = follower.public.get("/a").expect(200);
        assert_eq!(value.body, b"old");
        let seconds = value.field("stentor-stale")?.parse::<u64>().unwrap();
        assert!(value.list("access-control-expose-headers").contains(&"Stentor-Stale"));
        Some(seconds)
    });
    eventually("it is not ready", || {
        let asked = follower.control.get("/-/readyz");
        let says = String::from_utf8_lossy(&asked.body).contains("No leader has answered");
        (asked.status == 503 && says).then_some(())
    });
    // It comes back, and knows nothing of before.
    let leader = Server::at(addresses, "");
    let new = leader.publish("/a", "new");
    let gap = Heard::Gap { reason: "epoch_changed".into(), since: old.clone() };
    // It had seen all there was, of whatever topic.
    let seen = Heard::Gap { reason: "epoch_changed".into(), since: old.replace("-1", "-2") };
    assert_eq!(reader.hear(), seen);
    let heard = reader.hear();
    assert_eq!(heard, Heard::Message { id: new.clone(), topic: String::new(), data: "new".into() });
    assert!(all.event().notice("gap").is_some());
    assert!(all.event().data.contains("\"new\""));
    follower.await_ready();
    let value = follower.public.get("/a").expect(200);
    assert_eq!(value.field("etag"), Some(&*format!("\"{new}\"")));
    follower.public.get("/b").expect(404);
    eventually("it is as the leader is", || {
        follower.public.get("/a").field("stentor-stale").is_none().then_some(())
    });
    // Who comes with a cursor of before is told so, too.
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &old);
    assert_eq!(reader.hear(), gap);
    assert_eq!(reader.data(), "new");
}

#[test]
fn another_leader_is_followed_when_one_is_gone() {
    let leader = Server::start();
    let first = leader.publish("/a", "0");
    let second = following(&[leader.control], "");
    let follower = following(&[second.control, leader.control], "");
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &first);
    leader.publish("/a", "1");
    assert_eq!(reader.data(), "1");
    let gone = second.control;
    drop(second);
    let last = leader.publish("/a", "2");
    assert_eq!(reader.data(), "2");
    caught_up(&follower, &last);
    let status = follower.control.get("/-/status").expect(200).json();
    assert_eq!(status["follow"]["leader"], format!("http://{}", leader.control.0));
    assert_eq!(status["follow"]["snapshots"], 1, "what was missed came by the feed");
    assert_ne!(gone, leader.control);
}

/// A leader with a store goes on with the same ids: readers at the follower notice nothing.
#[test]
fn a_leader_that_restarts_with_its_store_is_gone_on_with() {
    let data = TempDir::new();
    let toml = format!("[store]\npath = '{}'", data.path().display());
    let leader = Server::lasting(&toml);
    let first = leader.publish("/a", "0");
    let follower = following(&[leader.control], "");
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &first);
    leader.publish("/a", "1");
    assert_eq!(reader.data(), "1");
    let leader_again = Server::at(leader.stop(), &toml);
    let next = leader_again.publish("/a", "2");
    let heard = reader.hear();
    assert_eq!(heard, Heard::Message { id: next.clone(), topic: String::new(), data: "2".into() });
    assert_eq!(next.split_once('-').unwrap().0, first.split_once('-').unwrap().0);
    assert!(seq(&next) > seq(&first));
}

#[test]
fn some_topics_may_be_followed() {
    let leader = Server::start();
    leader.publish("/a/1", "x");
    leader.publish("/b/1", "x");
    let follower = following(&[leader.control], "[follow]\ntopics = '/a/*'");
    follower.public.get("/a/1").expect(200);
    follower.public.get("/b/1").expect(404);
    let mut reader = Reader::open(Way::ManyEvents, follower.public, "/**", "", "earliest");
    assert_eq!(reader.data(), "x");
    leader.publish("/b/2", "not here");
    let id = leader.publish("/a/2", "y");
    assert_eq!(reader.data(), "y");
    caught_up(&follower, &id);
    follower.public.get("/b/2").expect(404);
}

#[test]
fn an_upgrade_of_a_follower_drops_nobody() {
    let leader = Server::lasting("");
    let first = leader.publish("/a", "0");
    let url = format!("http://{}", leader.control.0);
    let mut follower = Server::of_copy(&format!("[follow]\nleader = '{url}'"));
    follower.await_ready();
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &first);
    for round in 0..2 {
        follower.child.upgrade();
        let id = leader.publish("/a", &round.to_string());
        let heard = reader.hear();
        let expected = Heard::Message { id, topic: String::new(), data: round.to_string() };
        assert_eq!(heard, expected);
    }
    let addresses = leader.kill();
    // Another life, whose numbers begin elsewhere inside.
    let leader = Server::at(addresses, "");
    let id = leader.publish("/a", "anew");
    assert!(matches!(reader.hear(), Heard::Gap { .. }));
    assert_eq!(
        reader.hear(),
        Heard::Message { id: id.clone(), topic: String::new(), data: "anew".into() }
    );
    follower.child.upgrade();
    let next = leader.publish("/a", "then");
    assert_eq!(
        reader.hear(),
        Heard::Message { id: next, topic: String::new(), data: "then".into() }
    );
    let mut reader = Reader::open(Way::Events, follower.public, "/a", "", &id);
    assert_eq!(reader.data(), "then");
}

#[test]
fn a_leader_that_asks_for_a_token_is_shown_one() {
    let token = "control_token = true\n[[token]]\nname = 'f'\nread = '/**'\npublish = '/**'\n\
                 sha256 = '2e7206efa0a46342ee7fadec9f781d41988fe2df1c60cc64e1ab96d3d9265bf9'";
    let leader = Server::configured(token);
    let put = |server: &Server| {
        let fields = "Authorization: Bearer stentor_team\r\nContent-Type: text/plain\r\n";
        server.control.ask("PUT", "/a", fields, b"x")
    };
    put(&leader).expect_one_of(&[200, 201]);
    let url = format!("http://{}", leader.control.0);
    let mut without = Server::with("", "", &["--workers", "1", "--follow", &url]);
    without.child.logged("is not followed: 401");
    assert_eq!(without.public.get("/a").status, 503, "nothing was had yet");
    let file = leader.dir.path().join("token");
    std::fs::write(&file, "stentor_team\n").unwrap();
    let follower =
        following(&[leader.control], &format!("[follow]\ntoken_file = '{}'", file.display()));
    assert_eq!(follower.public.get("/a").expect(200).body, b"x");
}
