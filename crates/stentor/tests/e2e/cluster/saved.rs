//! Nodes that have a directory of their own.

use super::{Broker, has, publish, purge};
use crate::support::{Reader, Server, TempDir, Way, eventually, run as command};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

struct Kept(TempDir);

impl Kept {
    fn node(&self, broker: &Broker) -> Server {
        let node = self.begun(broker);
        node.await_ready();
        node
    }

    /// The same, which may not be ready yet.
    fn begun(&self, broker: &Broker) -> Server {
        let path = self.0.path().join("data");
        let more = format!("save_every = '1s'\n[store]\npath = '{}'", path.display());
        Server::configured(&broker.toml(&more))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("data/snapshot-000000000001")
    }
}

/// Until what is there now is kept.
fn is_saved(kept: &Kept, node: &Server) {
    let before = fs::read(kept.file()).unwrap_or_default();
    publish(node, "/saved", "now");
    eventually("it is saved", || {
        fs::read(kept.file()).is_ok_and(|now| now != before).then_some(())
    });
    // It is noted a moment later.
    eventually("it says so", || {
        let status = node.control.get("/-/status").expect(200).json();
        status["cluster"]["saved_s"].is_u64().then_some(())
    });
}

#[test]
fn what_the_stream_has_not_any_more_is_on_the_nodes_disk() {
    let Some(broker) = Broker::start() else { return };
    let kept = Kept(TempDir::new());
    let node = kept.node(&broker);
    let ids = ["/a", "/b"].map(|topic| node.publish(topic, topic));
    node.publish("/c", "c");
    node.control.ask("DELETE", "/c", "", b"").expect(200);
    // It is kept once more when it ends,
    node.stop();
    purge(&broker);
    let mut node = kept.node(&broker);
    for (topic, id) in ["/a", "/b"].iter().zip(&ids) {
        assert_eq!(has(&node, topic, id), topic.as_bytes());
    }
    node.public.get("/c").refused(404);
    let status = node.control.get("/-/status").expect(200).json();
    assert_eq!(status["cluster"]["snapshots"], 0, "{status}");
    // and every now and then before, for it may be killed.
    let id = publish(&node, "/a", "again");
    is_saved(&kept, &node);
    let late = publish(&node, "/b", "behind what was kept");
    node.child.kill();
    let node = kept.node(&broker);
    assert_eq!(has(&node, "/a", &id), b"again");
    assert_eq!(has(&node, "/b", &late), b"behind what was kept");
}

#[test]
fn where_no_broker_is_to_be_had_what_was_kept_is_served() {
    let Some(mut broker) = Broker::start() else { return };
    let (kept, other) = (Kept(TempDir::new()), broker.node(""));
    let mut node = kept.node(&broker);
    let first = publish(&node, "/a", "first");
    is_saved(&kept, &node);
    node.child.kill();
    // A reader has heard elsewhere what this node has not kept.
    let second = publish(&other, "/a", "second");
    broker.kill();
    let hour = Duration::from_secs(3_600);
    let begun = |time: SystemTime| {
        fs::File::open(kept.file()).unwrap().set_modified(time).unwrap();
        let mut node = kept.begun(&broker);
        node.child.logged("what is served may be 36");
        node
    };
    // A clock that is wrong makes nothing new.
    drop(begun(SystemTime::now() + hour + Duration::from_secs(60)));
    let node = begun(SystemTime::now() - hour);
    let value = node.public.get("/a").expect(200);
    assert_eq!((value.text(), value.tag()), ("first", format!("\"{first}\"")));
    eventually("it says how old that is", || {
        let value = node.public.get("/a");
        let old_s = value.field("stentor-stale")?.parse::<u64>().unwrap();
        ((3_600..4_000).contains(&old_s)).then_some(())
    });
    let why = node.control.get("/-/readyz").expect(503);
    assert!(why.detail().starts_with("What is here may be 36"), "{why:?}");
    node.control.put("/a", "text/plain", b"meanwhile").refused(503);
    let mut ahead = Reader::open(Way::Events, node.public, "/a", "", &second);
    let mut behind = Reader::open(Way::Events, node.public, "/a", "", &first);
    broker.again();
    node.await_ready();
    let third = publish(&node, "/a", "third");
    assert_eq!(third[..8], first[..8], "it is the same life");
    for (reader, expected) in [(&mut ahead, &["third"][..]), (&mut behind, &["second", "third"])] {
        expected.iter().for_each(|data| assert_eq!(reader.data(), *data));
    }
    assert_eq!(node.public.get("/a").expect(200).text(), "third");
    eventually("it is not old any more", || {
        node.public.get("/a").field("stentor-stale").is_none().then_some(())
    });
}

#[test]
fn what_is_damaged_on_a_nodes_disk_is_had_of_the_stream() {
    let Some(broker) = Broker::start() else { return };
    let kept = Kept(TempDir::new());
    let node = kept.node(&broker);
    let id = node.publish("/a", "a");
    node.stop();
    let mut bytes = fs::read(kept.file()).unwrap();
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    fs::write(kept.file(), &bytes).unwrap();
    let mut node = kept.node(&broker);
    assert_eq!(has(&node, "/a", &id), b"a");
    node.child.logged("the snapshot of this node cannot be used");
    is_saved(&kept, &node);
}

#[test]
fn the_store_of_a_server_that_is_alone_is_not_a_nodes_directory() {
    let Some(broker) = Broker::start() else { return };
    let dir = TempDir::new();
    let path = format!("[store]\npath = '{}'", dir.path().join("data").display());
    let alone = Server::configured(&path);
    alone.await_ready();
    alone.publish("/a", "a");
    alone.stop();
    let settings = dir.path().join("node.toml");
    let text = format!("listen = '127.0.0.1:0'\ncontrol = '127.0.0.1:0'\n{}", broker.toml(&path));
    fs::write(&settings, text).unwrap();
    let said = command(&["serve", "--config", settings.to_str().unwrap()]);
    assert!(said.err.contains("it is of another store"), "{said:?}");
}
