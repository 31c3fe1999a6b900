//! The delivery checker on real sockets: nothing is lost without a word, nothing comes twice, and
//! nothing out of order, whatever happens to the connections.
//!
//! Publishers number their messages. Readers of every kind write down what they hear while they are
//! reset, stall and come back with their last id. In the end each log is held against what was
//! acknowledged: the numbers of a topic follow one another, or there was a gap event; ids grow; and
//! each message has the id its publisher was told.

use crate::support::{Client, Heard, Reader, Server, Url, Way, seq};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long messages are published.
const TIME: Duration = Duration::from_secs(3);

/// Histories long and short: with one of them gaps must happen, with the other they must not.
const SETTINGS: &str = "[[topics]]\nmatch = '/long/*'\nhistory = 100000\nhistory_bytes = '1GiB'\n\
    [[topics]]\nmatch = '/short/*'\nhistory = 4\n\
    [[topics]]\nmatch = '/last/*'\nhistory = 1\n";

/// The ids that publishers were told, by topic and number.
type Acknowledged = Mutex<HashMap<(String, u64), u64>>;

/// Publishes numbers to a topic until the time is over; the last message says so.
fn publish(control: Url, topic: &str, acknowledged: &Acknowledged) -> u64 {
    let mut client = Client::connect(control.0);
    let begin = Instant::now();
    for n in 0.. {
        let is_last = begin.elapsed() > TIME;
        // Some are long, so that sockets fill and messages are cut.
        let padding = "x".repeat(if n % 20 == 0 { 60_000 } else { (n % 7) as usize * 30 });
        let text = format!("{n} {} {padding}", if is_last { "last" } else { "" });
        let fields = "Content-Type: text/plain\r\n";
        let answer = client.ask("PUT", topic, fields, text.as_bytes()).expect_one_of(&[200, 201]);
        let id = seq(answer.json()["id"].as_str().unwrap());
        acknowledged.lock().unwrap().insert((topic.to_owned(), n), id);
        if is_last {
            return n;
        }
        // Bursts and pauses.
        thread::sleep(Duration::from_millis(if n % 10 == 0 { 20 } else { 1 }));
    }
    unreachable!("numbers do not end")
}

/// What a reader wrote down: numbers, and the ids they came with if they did.
#[derive(Debug, PartialEq)]
enum Entry {
    Message { n: u64, seq: Option<u64> },
    Gap,
}

/// Small, repeatable randomness for the faults.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Reads a topic until its last message, through resets and stalls.
fn read(
    way: Way,
    url: Url,
    topic: &str,
    mode: &str,
    acknowledged: &Acknowledged,
    gaps: &AtomicU64,
) -> Vec<Entry> {
    let mut dice = Dice(way as u64 * 7919 + topic.len() as u64 * 104_729 + mode.len() as u64 + 1);
    let (mut log, mut since) = (Vec::new(), String::new());
    loop {
        let mut reader = Reader::open(way, url, topic, mode, &since);
        let patience = dice.roll(400);
        for heard in 0.. {
            match reader.try_hear().expect("the server ends no stream") {
                Heard::Message { id, data, .. } => {
                    let mut words = data.split(' ');
                    let n: u64 = words.next().unwrap().parse().unwrap();
                    let told = (!id.is_empty()).then(|| seq(&id));
                    log.push(Entry::Message { n, seq: told });
                    if words.next() == Some("last") {
                        return log;
                    }
                    since = match way.has_ids() {
                        true => id,
                        false => acknowledged_id(topic, n, acknowledged),
                    };
                }
                Heard::Gap { reason, .. } => {
                    assert_eq!(reason, "history_trimmed", "{way:?} {topic}");
                    gaps.fetch_add(1, Ordering::Relaxed);
                    log.push(Entry::Gap);
                }
                deleted @ Heard::Deleted { .. } => panic!("{deleted:?}"),
            }
            if dice.roll(100) == 0 {
                thread::sleep(Duration::from_millis(dice.roll(400)));
            }
            // What was sent and not read makes the kernel reset the connection.
            if heard > patience {
                break;
            }
        }
        drop(reader);
        thread::sleep(Duration::from_millis(dice.roll(200)));
    }
}

/// The whole id of a message whose way of reading brings none; its publisher is told in time.
fn acknowledged_id(topic: &str, n: u64, acknowledged: &Acknowledged) -> String {
    let key = (topic.to_owned(), n);
    let seq = super::support::eventually("the publisher was answered", || {
        acknowledged.lock().unwrap().get(&key).copied()
    });
    format!("{}-{seq}", EPOCH.lock().unwrap())
}

/// The epoch of the one server of this test.
static EPOCH: Mutex<String> = Mutex::new(String::new());

/// Holds a log against the ids that the publisher of its topic was told: those of the numbers up to
/// `last`. Says what is wrong, if anything is.
fn check(log: &[Entry], all: bool, last: u64, ids: impl Fn(u64) -> u64) -> Result<(), String> {
    let mut before: Option<u64> = None;
    let mut has_gap = true;
    for entry in log {
        let Entry::Message { n, seq } = entry else {
            has_gap = true;
            continue;
        };
        if let Some(seq) = seq.filter(|seq| *seq != ids(*n)) {
            return Err(format!("{n} came as {seq}, not as {}", ids(*n)));
        }
        match before {
            Some(before) if *n <= before => return Err(format!("{n} after {before}")),
            Some(before) if all && !has_gap && *n > before + 1 => {
                return Err(format!("{n} after {before}, without a gap"));
            }
            _ => {}
        }
        before = Some(*n);
        has_gap = false;
    }
    match before == Some(last) {
        true => Ok(()),
        false => Err(format!("{before:?} is the last message, not {last}")),
    }
}

#[test]
fn the_checker_finds_what_it_is_for() {
    let message = |n| Entry::Message { n, seq: Some(10 * n) };
    let judge = |log: &[Entry], all| check(log, all, 4, |n| 10 * n);
    let good = [message(1), message(2), message(3), message(4)];
    assert_eq!(judge(&good, true), Ok(()));
    let told = [message(1), Entry::Gap, message(4)];
    assert_eq!(judge(&told, true), Ok(()));
    let lost = [message(1), message(2), message(4)];
    assert!(judge(&lost, true).is_err() && judge(&lost, false).is_ok());
    for all in [false, true] {
        for bad in [
            &[message(1), message(2), message(2), message(3), message(4)][..],
            &[message(1), message(3), message(2), message(4)],
            &[message(1), Entry::Gap, message(1), message(4)],
            &[message(1), message(2), message(3)],
            &[Entry::Message { n: 4, seq: Some(39) }],
            &[],
        ] {
            assert!(judge(bad, all).is_err(), "{bad:?}");
        }
    }
}

#[test]
fn nothing_is_lost_repeated_or_out_of_order() {
    let server = Server::configured(SETTINGS);
    let id = server.publish("/epoch", "x");
    *EPOCH.lock().unwrap() = id.split_once('-').unwrap().0.to_owned();
    let acknowledged = Acknowledged::default();
    // Gaps by topic: none may happen where all is kept.
    let topics = ["/long/a", "/short/a", "/last/a"];
    let gaps: Vec<AtomicU64> = topics.iter().map(|_| AtomicU64::new(0)).collect();
    let (public, control) = (server.public, server.control);
    let ways = Way::all();
    let logs = Mutex::new(Vec::new());
    let lasts: Vec<u64> = thread::scope(|scope| {
        let acknowledged = &acknowledged;
        for (topic, gaps) in topics.iter().zip(&gaps) {
            for &way in &ways {
                for mode in ["", "all", "latest"] {
                    // Polls of one topic tell no modes apart.
                    if way == Way::Polls && !mode.is_empty() {
                        continue;
                    }
                    let logs = &logs;
                    scope.spawn(move || {
                        let log = read(way, public, topic, mode, acknowledged, gaps);
                        logs.lock().unwrap().push((*topic, way, mode, log));
                    });
                }
            }
        }
        let publishers: Vec<_> = topics
            .iter()
            .map(|topic| scope.spawn(move || publish(control, topic, acknowledged)))
            .collect();
        publishers.into_iter().map(|publisher| publisher.join().unwrap()).collect()
    });
    for (topic, way, mode, log) in logs.into_inner().unwrap() {
        let last = lasts[topics.iter().position(|known| *known == topic).unwrap()];
        let conflates = mode == "latest" || mode.is_empty() && topic.starts_with("/last");
        let all = !conflates && way != Way::Polls;
        let known = acknowledged.lock().unwrap();
        let result = check(&log, all, last, |n| known[&(topic.to_owned(), n)]);
        assert_eq!(result, Ok(()), "{topic} {way:?} {mode:?}");
        let count = log.iter().filter(|entry| **entry != Entry::Gap).count() as u64;
        if all && topic == "/long/a" {
            // It began at the latest when the first was published, or with the value it found.
            let Entry::Message { n: first, .. } = log[0] else { panic!("{way:?}: {:?}", log[0]) };
            assert_eq!(count, last + 1 - first, "{way:?} {mode:?}");
        }
    }
    let [long, short, _] = [0, 1, 2].map(|i| gaps[i].load(Ordering::Relaxed));
    assert_eq!(long, 0, "nothing fell out of the long history");
    assert!(short > 0, "four messages are not enough for those who stall");
    for counter in ["readers_sse", "readers_websocket", "readers_long_poll", "readers_bytes"] {
        server.settled(counter, 0);
    }
}
