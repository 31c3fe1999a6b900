//! What a topic costs: publishes a million small values, then prints the resident memory per
//! topic and the time of the two operations everything else is made of.
//!
//! `cargo run --release -p stentor-hub --example topics [TOPICS]`

use std::hint::black_box;
use std::time::Instant;

use stentor_hub::{ContentType, Draft, Epoch, Hub, Limits, Precondition};
use stentor_wire::target::TopicName;

fn main() {
    let topics = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().expect("a count"));
    let hub = Hub::new(Epoch::random(), vec![], Limits::default());
    let before = resident_bytes();
    let created = each(topics, |topic| publish(&hub, topic));
    println!("{topics} topics of 12 bytes: {} B each", (resident_bytes() - before) / topics);
    println!("publish, new topic        {created:>6.0} ns");

    let few = topics.min(1_000);
    let names: Vec<String> = (0..few).map(name).collect();
    println!("publish, 1,000 topics     {:>6.0} ns", around(&names, |topic| publish(&hub, topic)));
    let read = |topic: &str| {
        hub.with_value(topic, |value| black_box(value.expect("it was published").seq()));
    };
    println!("with_value, 1 topic       {:>6.1} ns", around(&names[..1], read));
    println!("with_value, 1,000 topics  {:>6.1} ns", around(&names, read));
    println!("with_value, all topics    {:>6.1} ns with making the name", each(topics, read));
    println!("{:?}", hub.counts());
}

fn publish(hub: &Hub, topic: &str) {
    let draft = Draft::new(*b"123.45 67.89").with_content_type(ContentType::TEXT);
    let topic = TopicName::parse(topic).expect("it is a name");
    hub.publish(topic, draft, Precondition::None, 1_700_000_000).expect("within the limits");
}

fn name(index: usize) -> String {
    format!("/quotes/{index:07}")
}

/// Nanoseconds per call, once for each topic.
fn each(topics: usize, mut call: impl FnMut(&str)) -> f64 {
    let start = Instant::now();
    for index in 0..topics {
        call(&name(index));
    }
    start.elapsed().as_nanos() as f64 / topics as f64
}

/// Nanoseconds per call, a few million times around the same names.
fn around(names: &[String], mut call: impl FnMut(&str)) -> f64 {
    let calls = 4_000_000;
    let start = Instant::now();
    for name in names.iter().cycle().take(calls) {
        call(name);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the second number is the resident pages") * 4096
}
