//! Ordinary events of the broker's stream, and two restarts of nodes behind each.

use super::{Broker, ask, has, purge_all};
use crate::support::{Server, TempDir, eventually, seq};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the stream keeps a message where that is too short for a restart.
const KEEP_SHORT: Duration = Duration::from_secs(3);

const KEEP_LONG: Duration = Duration::from_secs(600);

/// A restarted node must be ready within this time.
const READY_MAX: Duration = Duration::from_secs(15);

/// A node opens no more consumers than this until it is ready.
const CONSUMERS_MAX: usize = 20;

const TOPICS: [&str; 3] = ["/a", "/b", "/c"];

/// Counts the consumers that nodes open.
fn count_consumers(broker: &Broker) -> Arc<AtomicUsize> {
    let mut socket = TcpStream::connect(broker.address).unwrap();
    let subject = "$JS.EVENT.ADVISORY.CONSUMER.CREATED.stentor.*";
    let hello = format!("CONNECT {{\"verbose\":false}}\r\nSUB {subject} 1\r\nPING\r\n");
    socket.write_all(hello.as_bytes()).unwrap();
    let counter = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&counter);
    let mut lines = BufReader::new(socket).lines().map_while(Result::ok);
    lines.find(|line| line == "PONG").unwrap();
    // It ends with the broker.
    thread::spawn(move || {
        let created = lines.filter(|line| line.starts_with("MSG $JS.EVENT."));
        created.for_each(|_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
    });
    counter
}

/// Makes the stream, so that it keeps messages for so long.
fn make_stream(broker: &Broker, keep: Duration) {
    let stream = format!(
        "{{\"name\":\"stentor\",\"subjects\":[\"stentor.>\"],\"retention\":\"limits\",\
         \"storage\":\"file\",\"max_age\":{0},\"duplicate_window\":{1}}}",
        keep.as_nanos(),
        KEEP_SHORT.as_nanos()
    );
    ask(broker, "$JS.API.STREAM.CREATE.stentor", &stream, "\"created\"");
}

/// Deletes the message of the stream that an id is of.
fn delete_message(broker: &Broker, id: &str) {
    let request = format!("{{\"seq\":{}}}", seq(id) >> 10);
    ask(broker, "$JS.API.STREAM.MSG.DELETE.stentor", &request, "\"success\":true");
}

/// Kills a node, starts it again, and waits until it is ready.
fn restart(broker: &Broker, node: &mut Server, more: &str) {
    node.child.kill();
    let begun = Instant::now();
    *node = Server::configured(&broker.toml(more));
    node.await_ready();
    let took = begun.elapsed();
    eprintln!("ready after {} ms", took.as_millis());
    assert!(took <= READY_MAX, "{took:?}");
}

/// Runs a cluster of two nodes without disks, and restarts them in every order after `event`, which
/// is given the ids of the values.
fn survive(keep: Duration, event: impl Fn(&Broker, &[String; 3])) {
    let Some(broker) = Broker::start() else { return };
    make_stream(&broker, keep);
    let consumers = count_consumers(&broker);
    let first = broker.node("");
    let second = broker.node(&format!("peers = 'http://{}'", first.control.0));
    let mut nodes = [first, second];
    for (round, order) in [[0, 0], [0, 1], [1, 0], [1, 1]].into_iter().enumerate() {
        let data = format!("round {round}");
        let ids = TOPICS.map(|topic| nodes[round % 2].publish(topic, &data));
        let are_there = |node: &Server| {
            TOPICS.iter().zip(&ids).for_each(|(topic, id)| {
                assert_eq!(has(node, topic, id), data.as_bytes());
            });
        };
        nodes.iter().for_each(are_there);
        event(&broker, &ids);
        for restarted in order {
            let before = consumers.load(Ordering::Relaxed);
            let peers = format!("peers = 'http://{}'", nodes[1 - restarted].control.0);
            restart(&broker, &mut nodes[restarted], &peers);
            are_there(&nodes[restarted]);
            let opened = consumers.load(Ordering::Relaxed) - before;
            eprintln!("order {order:?}: node {restarted} has opened {opened} consumers");
            assert!(opened < CONSUMERS_MAX, "{opened}");
        }
    }
}

#[test]
fn nodes_restart_after_an_idle_stream() {
    survive(KEEP_SHORT, |_, _| thread::sleep(2 * KEEP_SHORT));
}

#[test]
fn nodes_restart_after_a_purge() {
    survive(KEEP_SHORT, |broker, _| purge_all(broker));
}

#[test]
fn nodes_restart_after_a_purge_of_unread_messages() {
    let Some(broker) = Broker::start() else { return };
    make_stream(&broker, KEEP_LONG);
    let first = broker.node("");
    let dirs = [(); 2].map(|()| TempDir::new());
    let store = |index: usize, peer: &Server| {
        let path = dirs[index].path().join("data");
        format!("peers = 'http://{}'\n[store]\npath = '{}'", peer.control.0, path.display())
    };
    let second = broker.node(&store(1, &first));
    let mut nodes = [first, second];
    for (round, behind) in [1, 0, 0, 1].into_iter().enumerate() {
        let other = 1 - behind;
        let more = store(behind, &nodes[other]);
        let ids = TOPICS.map(|topic| nodes[other].publish(topic, "before"));
        TOPICS.iter().zip(&ids).for_each(|(topic, id)| drop(has(&nodes[behind], topic, id)));
        // With a directory it keeps what it has when it ends.
        nodes[behind].child.signal("TERM");
        nodes[behind].child.wait();
        let ids = TOPICS.map(|topic| nodes[other].publish(topic, "unread"));
        purge_all(&broker);
        let begun = Instant::now();
        nodes[behind] = Server::configured(&broker.toml(&more));
        nodes[behind].await_ready();
        eprintln!("round {round}: ready after {} ms", begun.elapsed().as_millis());
        assert!(begun.elapsed() <= READY_MAX);
        let are_there = |node: &Server| {
            TOPICS.iter().zip(&ids).for_each(|(topic, id)| {
                assert_eq!(has(node, topic, id), b"unread");
            });
        };
        are_there(&nodes[behind]);
        let more = store(other, &nodes[behind]);
        restart(&broker, &mut nodes[other], &more);
        are_there(&nodes[other]);
    }
}

#[test]
fn nodes_restart_and_publish_after_a_foreign_message() {
    survive(KEEP_SHORT, |broker, _| ask(broker, "stentor.oops", "x", "seq"));
}

#[test]
fn nodes_restart_after_a_hole() {
    survive(KEEP_LONG, |broker, [_, middle, _]| delete_message(broker, middle));
}

#[test]
fn nodes_restart_after_the_last_message_is_deleted() {
    survive(KEEP_LONG, |broker, [.., last]| delete_message(broker, last));
}

#[test]
fn a_node_alone_begins_an_epoch_behind_a_hole() {
    let Some(broker) = Broker::start() else { return };
    make_stream(&broker, KEEP_LONG);
    let mut node = broker.node("");
    let consumers = count_consumers(&broker);
    let ids = TOPICS.map(|topic| node.publish(topic, "before"));
    delete_message(&broker, &ids[1]);
    restart(&broker, &mut node, "");
    let value = node.public.get("/a").expect(200);
    assert_eq!(value.text(), "before");
    assert_ne!(value.tag()[1..9], ids[0][..8], "readers are told");
    // The first was deleted, and the second is behind it.
    ["/b", "/c"].iter().for_each(|topic| drop(node.public.get(topic).refused(404)));
    node.child.logged("The stream lacks messages, and no other node that is reached has read them");
    let opened = consumers.load(Ordering::Relaxed);
    eprintln!("{opened} consumers were opened");
    assert!(opened < CONSUMERS_MAX, "{opened}");
    eventually("it publishes", || {
        let answer = node.control.put("/b", "text/plain", b"after");
        (answer.status < 300).then_some(())
    });
}
