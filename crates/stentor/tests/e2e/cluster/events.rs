//! Ordinary events of the broker's stream, and two restarts of nodes behind each.

use super::{Broker, ask, has, is_ready};
use crate::support::Server;
use std::thread;
use std::time::{Duration, Instant};

/// How long the stream keeps a message here.
const KEEP: Duration = Duration::from_secs(3);

/// A restarted node must be ready within this time.
const READY_MAX: Duration = Duration::from_secs(15);

/// Runs a cluster of two nodes without disks, and restarts them in every order after `event`.
fn survive(event: impl Fn(&Broker)) {
    let Some(broker) = Broker::start() else { return };
    let stream = format!(
        "{{\"name\":\"stentor\",\"subjects\":[\"stentor.>\"],\"retention\":\"limits\",\
         \"storage\":\"file\",\"max_age\":{0},\"duplicate_window\":{0}}}",
        KEEP.as_nanos()
    );
    ask(&broker, "$JS.API.STREAM.CREATE.stentor", &stream, "\"created\"");
    let mut nodes = [(); 2].map(|()| broker.node(""));
    let topics = ["/a", "/b", "/c"];
    for (round, order) in [[0, 0], [0, 1], [1, 0], [1, 1]].into_iter().enumerate() {
        let data = format!("round {round}");
        let ids = topics.map(|topic| nodes[round % 2].publish(topic, &data));
        for node in &nodes {
            topics.iter().zip(&ids).for_each(|(topic, id)| drop(has(node, topic, id)));
        }
        event(&broker);
        for restarted in order {
            let peer = nodes[1 - restarted].control.0;
            nodes[restarted].child.signal("KILL");
            nodes[restarted].child.wait();
            let begun = Instant::now();
            nodes[restarted] =
                Server::configured(&broker.toml(&format!("peers = 'http://{peer}'")));
            is_ready(&nodes[restarted]);
            let took = begun.elapsed();
            eprintln!("order {order:?}: node {restarted} is ready after {} ms", took.as_millis());
            assert!(took <= READY_MAX, "{took:?}");
            for (topic, id) in topics.iter().zip(&ids) {
                assert_eq!(has(&nodes[restarted], topic, id), data.as_bytes());
            }
        }
    }
}

#[test]
fn nodes_restart_after_an_idle_stream() {
    survive(|_| thread::sleep(2 * KEEP));
}

#[test]
fn nodes_restart_after_a_purge() {
    survive(|broker| ask(broker, "$JS.API.STREAM.PURGE.stentor", "", "purged"));
}

#[test]
fn nodes_restart_and_publish_after_a_foreign_message() {
    survive(|broker| ask(broker, "stentor.oops", "x", "seq"));
}
