//! What followers read, and what is kept of it as a backup: `/-/snapshot` and `/-/feed`.

use crate::access::bearer;
use crate::support::{Client, Response, Server, TempDir, eventually, run};
use std::fs;
use std::iter;
use std::path::Path;

/// `printf stentor_team | sha256sum`, and of `stentor_old`.
const TEAM: &str = "2e7206efa0a46342ee7fadec9f781d41988fe2df1c60cc64e1ab96d3d9265bf9";
const ALL: &str = "0a3227898b6a8fb0e48efd4c297b61ac5db73fe3afe0ee23641691eb67dba53f";

/// An answer in chunks, as it comes.
struct Copy {
    client: Client,
    head: Response,
}

impl Copy {
    #[track_caller]
    fn open(server: &Server, target: &str, fields: &str) -> Copy {
        let mut client = server.publisher();
        let head = client.open(target, fields).expect(200);
        Copy { client, head }
    }

    /// All there is.
    #[track_caller]
    fn body(&mut self) -> Vec<u8> {
        let chunks = iter::from_fn(|| Some(self.client.chunk()).filter(|chunk| !chunk.is_empty()));
        chunks.flatten().collect()
    }

    /// Reads until something is in what came.
    #[track_caller]
    fn until(&mut self, text: &str) -> Vec<u8> {
        let mut all = Vec::new();
        while !contains(&all, text) {
            let chunk = self.client.chunk();
            assert!(!chunk.is_empty(), "it ends before {text}");
            all.extend_from_slice(&chunk);
        }
        all
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|some| some == text.as_bytes())
}

/// Puts what was sent into a directory of its own, which is a store then.
fn save(directory: &Path, bytes: &[u8]) {
    fs::create_dir(directory).unwrap();
    fs::write(directory.join("snapshot-000000000001"), bytes).unwrap();
}

#[test]
fn a_snapshot_that_is_saved_is_a_store() {
    let (server, dir) = (Server::start(), TempDir::new());
    for n in 0..300 {
        server.publish(&format!("/a/{n}"), &format!("value {n}"));
    }
    server.publish("/a/7", "newer");
    server.control.ask("DELETE", "/a/8", "", b"").expect(200);
    let mut copy = Copy::open(&server, "/-/snapshot", "");
    assert_eq!(copy.head.field("Content-Type"), Some("application/vnd.stentor.snapshot"));
    assert_eq!(copy.head.field("Cache-Control"), Some("no-store"));
    let id = copy.head.field("Stentor-Cursor").unwrap().to_owned();
    assert!(id.ends_with("-302"), "{id}");
    save(&dir.path().join("all"), &copy.body());
    let all = dir.path().join("all");
    let said = run(&["store", "check", all.to_str().unwrap()]);
    assert!(said.code == Some(0) && said.out.contains("topics  299"), "{said:?}");
    let restored = Server::with("", "", &["--data", all.to_str().unwrap()]);
    assert_eq!(restored.public.get("/a/7").expect(200).text(), "newer");
    restored.public.get("/a/8").refused(404);
    // It begins a life of its own: both may go on from here.
    assert!(!restored.publish("/a/9", "x").starts_with(&id[..8]));

    let mut some = Copy::open(&server, "/-/snapshot?topic=/a/7&topic=/b/*", "");
    let bytes = some.body();
    assert!(contains(&bytes, "/a/7") && !contains(&bytes, "/a/9"), "only what is asked for");
    let cut = dir.path().join("cut");
    save(&cut, &bytes[..bytes.len() - 1]);
    assert_eq!(run(&["store", "check", cut.to_str().unwrap()]).code, Some(1));
}

#[test]
fn a_feed_goes_on_behind_an_id_and_says_where_it_cannot() {
    let mut server = Server::configured("[limits]\nfeed_bytes_max = '1 MiB'\n");
    server.publish("/a", "before");
    let mut feed = Copy::open(&server, "/-/feed", "");
    assert_eq!(feed.head.field("Content-Type"), Some("application/vnd.stentor.feed"));
    let id = feed.head.field("Stentor-Cursor").unwrap().to_owned();
    assert!(id.ends_with("-1"), "{id}");
    assert_eq!(feed.client.chunk().len(), 40, "an empty frame");
    server.publish("/a", "first");
    server.publish("/b", "second");
    let sent = feed.until("second");
    assert!(contains(&sent, "first") && !contains(&sent, "before"));
    drop(feed);
    server.publish("/c", "third");
    let target = format!("/-/feed?since={id}");
    let sent = Copy::open(&server, &target, "").until("third");
    assert!(contains(&sent, "first") && contains(&sent, "second") && !contains(&sent, "before"));
    let sent = Copy::open(&server, &format!("{target}&topic=/c"), "").until("third");
    assert!(!contains(&sent, "first"));

    let epoch = &id[..8];
    for (since, said) in [
        ("00000000-2".to_owned(), "another life"),
        (format!("{epoch}-99"), "no message yet"),
        (format!("{epoch}-0"), "not kept any more"),
    ] {
        let refused = server.control.get(&format!("/-/feed?since={since}")).refused(410);
        assert!(refused.text().contains(said), "{refused:?}");
    }
    for target in ["/-/feed?since=x", "/-/feed?sine=1", "/-/snapshot?since=1", "/-/feed?topic=a"] {
        server.control.get(target).refused(400);
    }
    let mut old = server.publisher();
    old.send("GET /-/feed HTTP/1.0\r\n\r\n");
    old.response().refused(400);
    server.public.get("/-/feed").refused(404);
    server.control.ask("POST", "/-/feed", "", b"").refused(405);

    // So much was published meanwhile that what is behind the id is gone.
    let mut slow = Copy::open(&server, "/-/feed", "");
    let large = "x".repeat(500_000);
    (0..4).for_each(|_| drop(server.publish("/large", &large)));
    server.control.get(&target).refused(410);
    slow.until("xxxx");

    let mut feed = Copy::open(&server, "/-/feed", "");
    let status = server.control.get("/-/status").json();
    assert!(status["followers"].as_array().is_some_and(|all| !all.is_empty()), "{status}");
    server.child.signal("TERM");
    feed.body();
    drop((feed, slow));
    server.child.stopped();
}

#[test]
fn who_follows_has_a_token_that_reads_all_of_it_where_one_is_needed() {
    let server = Server::configured(&format!(
        "control_token = true\n\
         [[token]]\nname = 'all'\nsha256 = '{ALL}'\nread = '/**'\n\
         [[token]]\nname = 'team'\nsha256 = '{TEAM}'\nread = '/team/**'\n"
    ));
    server.control.get("/-/feed").refused(401);
    server.control.get("/-/snapshot").refused(401);
    let (team, all) = (bearer("stentor_team"), bearer("stentor_old"));
    server.control.ask("GET", "/-/feed", &bearer("stentor_none"), b"").refused(401);
    server.control.ask("GET", "/-/feed", &team, b"").refused(403);
    server.control.ask("GET", "/-/snapshot?topic=/team/a&topic=/b", &team, b"").refused(403);
    Copy::open(&server, "/-/feed?topic=/team/*", &team);
    let snapshot = Copy::open(&server, "/-/snapshot", &all).body();
    assert!(!snapshot.is_empty());
}

#[test]
fn an_upgrade_ends_feeds_behind_what_is_on_its_way() {
    let mut server = Server::of_copy("");
    server.publish("/a", "one");
    let mut feed = Copy::open(&server, "/-/feed", "");
    let id = server.publish("/a", "two");
    feed.until("two");
    server.child.upgrade();
    feed.body();
    server.publish("/a", "three");
    let mut next = Copy::open(&server, &format!("/-/feed?since={id}"), "");
    next.until("three");
    eventually("one follower", || (server.figure("counters/followers") == 1).then_some(()));
}
