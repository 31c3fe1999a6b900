//! Lives of a real server that end in the middle of things, and its publishers as the oracle.
//!
//! In each life several connections publish, one by one and in bulk, and delete, until the process
//! is killed; a reader listens. Then the server is started again, and
//!
//! - every message whose publisher was answered is there, under the id it was told,
//! - no id ever stands for two messages, and numbers only grow, in one EPOCH,
//! - a deletion that was answered holds, and what was deleted is what it was before or after,
//! - the reader goes on behind what it heard without a gap; if the last it heard was rolled back,
//!   it is told just that.
//!
//! With LazyFS the power fails as well: what was not synced is gone.
//!
//! `TEST_KILLS` and `TEST_POWER_CUTS` say how many lives; `bench/crash` sets them.

use super::data_flag;
use crate::support::{Client, EventStream, NOTICE, Server, TempDir, Url, eventually, skip};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use std::{env, fmt, thread};

#[test]
fn what_was_answered_outlives_kills() {
    let dir = TempDir::new();
    lives(dir.path(), number("TEST_KILLS", 25), &Crash::Kill);
}

#[test]
fn what_was_answered_outlives_power_cuts() {
    let Some(lazyfs) = env::var_os("LAZYFS") else {
        skip("LAZYFS names no LazyFS; bench/crash --power builds one");
        return;
    };
    let lazyfs = LazyFs::mount(Path::new(&lazyfs));
    lives(&lazyfs.root(), number("TEST_POWER_CUTS", 10), &Crash::Power(&lazyfs));
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// How a life ends.
enum Crash<'l> {
    Kill,
    Power(&'l LazyFs),
}

/// Everything that is published is kept, so a store has only so many lives: it would take ever
/// longer to start.
const LIVES_OF_A_STORE: u64 = 100;

fn lives(dir: &Path, count: u64, crash: &Crash<'_>) {
    let mut found = Found::default();
    for first in (1..=count).step_by(LIVES_OF_A_STORE as usize) {
        let data = dir.join("data");
        let end = count.min(first + LIVES_OF_A_STORE - 1);
        found.add(&lives_of_a_store(&data, first..=end, crash));
        fs::remove_dir_all(data).unwrap();
    }
    println!("{count} crashes: {found}");
}

/// Nothing was lost of it.
fn lives_of_a_store(data: &Path, lives: RangeInclusive<u64>, crash: &Crash<'_>) -> Oracle {
    let mut oracle = Oracle::default();
    let mut server = start(data);
    oracle.mark(&server);
    for life in lives {
        let topics = oracle.deletable.clone();
        let cursor = oracle.heard_last.clone();
        let (public, url) = (server.public, server.control);
        let reader = thread::spawn(move || listen(public, &cursor));
        let publishers: Vec<_> = (0..PUBLISHERS.len())
            .map(|who| thread::spawn(move || PUBLISHERS[who].publish(url, life)))
            .collect();
        let deleter = thread::spawn(move || come_and_go(url, life, topics));
        // Any moment will do; this one differs from life to life.
        thread::sleep(Duration::from_millis(20 + life * 7919 % 230));
        server.child.kill();
        if let Crash::Power(lazyfs) = crash {
            lazyfs.lose_what_is_not_synced();
        }
        for (kind, publisher) in PUBLISHERS.iter().zip(publishers) {
            oracle.answered(publisher.join().unwrap(), kind.outlives(crash));
        }
        oracle.deletable = deleter.join().unwrap();
        oracle.heard(reader.join().unwrap());
        drop(server);
        server = start(data);
        oracle.judge(&server);
    }
    let values = oracle.values.iter();
    values.for_each(|(topic, data)| assert_eq!(server.public.get(topic).text(), data, "{topic}"));
    assert_eq!((oracle.lost.first(), oracle.twice.first()), (None, None));
    oracle
}

fn start(data: &Path) -> Server {
    Server::with("", RULES, &["--workers", "2", "--data", data_flag(data)])
}

/// All that was asked for is kept, so that whoever comes back can be sent it.
const RULES: &str = "
[[topics]]
match = '/kept/written/*'
keep = 'written'
history = 100000
history_bytes = '1GiB'
[[topics]]
match = '/kept/memory/*'
keep = 'memory'
history = 100000
history_bytes = '1GiB'
[[topics]]
match = '/kept/**'
history = 100000
history_bytes = '1GiB'
";

/// A connection that publishes until the server is gone.
struct Publisher {
    name: &'static str,
    /// 1: one by one.
    lines: usize,
}

const PUBLISHERS: [Publisher; 7] = [
    Publisher { name: "one", lines: 1 },
    Publisher { name: "two", lines: 1 },
    Publisher { name: "three", lines: 1 },
    Publisher { name: "bulk", lines: 40 },
    Publisher { name: "more", lines: 7 },
    Publisher { name: "written", lines: 1 },
    Publisher { name: "memory", lines: 1 },
];

/// What somebody was told is published. The id is not known of all that went in bulk.
struct Answered {
    topic: String,
    data: String,
    id: Option<String>,
}

impl Publisher {
    fn publish(&self, url: Url, life: u64) -> Vec<Answered> {
        let mut answered = Vec::new();
        let Some(mut client) = connect(url) else { return answered };
        for turn in 0.. {
            let messages: Vec<_> =
                (0..self.lines).map(|line| self.message(life, turn, line)).collect();
            let response = match &messages[..] {
                [(topic, data)] => client.try_ask("PUT", topic, TEXT, data.as_bytes()),
                lines => {
                    let lines: String =
                        lines.iter().map(|(topic, data)| line(topic, data)).collect();
                    client.try_ask("POST", "/-/publish", "", lines.as_bytes())
                }
            };
            let Some(response) = response else { break };
            let told = response.expect_one_of(&[200, 201]).json();
            let last = told["id"].as_str().or(told["last_id"].as_str()).unwrap();
            assert!(self.lines == 1 || told["published"] == self.lines, "{told}");
            let count = messages.len();
            answered.extend(messages.into_iter().enumerate().map(|(index, (topic, data))| {
                let id = (index + 1 == count).then(|| last.to_owned());
                Answered { topic, data, id }
            }));
        }
        answered
    }

    /// No two are alike, and their lengths differ.
    fn message(&self, life: u64, turn: usize, line: usize) -> (String, String) {
        let data = format!("{}.{life}.{turn}.{line}.", self.name);
        let topic = format!("/kept/{}/{}", self.name, (turn + line) % 11);
        (topic, data + &"x".repeat(turn * 31 % 300))
    }

    /// Whether what it was told is kept is there after such a crash.
    fn outlives(&self, crash: &Crash<'_>) -> bool {
        match self.name {
            "memory" => false,
            "written" => matches!(crash, Crash::Kill),
            _ => true,
        }
    }
}

const TEXT: &str = "Content-Type: text/plain\r\n";

fn line(topic: &str, data: &str) -> String {
    format!("{{\"topic\":\"{topic}\",\"type\":\"text/plain\",\"data\":\"{data}\"}}\n")
}

/// A connection, unless the server is gone.
fn connect(url: Url) -> Option<Client> {
    TcpStream::connect(url.0).ok().map(Client::over)
}

/// What a topic that comes and goes may be: what was answered last, and what was asked for then.
type Deletable = BTreeMap<String, Vec<Option<String>>>;

/// Publishes and deletes until the server is gone.
fn come_and_go(url: Url, life: u64, mut topics: Deletable) -> Deletable {
    let Some(mut client) = connect(url) else { return topics };
    for turn in 0.. {
        let topic = format!("/gone/{}", turn % 5);
        let wanted = (turn % 2 == 0).then(|| format!("{life}.{turn}"));
        let may_be = topics.entry(topic.clone()).or_insert_with(|| vec![None]);
        may_be.push(wanted.clone());
        let response = match &wanted {
            Some(data) => client.try_ask("PUT", &topic, TEXT, data.as_bytes()),
            None => client.try_ask("DELETE", &topic, "", b""),
        };
        let Some(response) = response else { break };
        response.expect_one_of(&[200, 201, 404]);
        *may_be = vec![wanted];
    }
    topics
}

/// An event of a stream: an id with topic and data, or a gap with its reason.
enum Event {
    Message { id: String, topic: String, data: String },
    Gap { reason: String, since: String },
}

fn listen(url: Url, cursor: &str) -> Vec<Event> {
    let Some(client) = connect(url) else { return Vec::new() };
    let Some(mut stream) = resume(client, cursor) else { return Vec::new() };
    std::iter::from_fn(|| stream.try_event().ok().map(understand)).collect()
}

/// A stream from there on, unless the server is gone.
fn resume(client: Client, cursor: &str) -> Option<EventStream> {
    let fields = format!("Last-Event-ID: {cursor}\r\n");
    EventStream::try_over(client, "/-/events?topic=/kept/**", &fields)
}

fn understand(event: crate::support::Event) -> Event {
    let told: Value = serde_json::from_str(&event.data).unwrap();
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let of_gap = |name: &str| told["gap"][name].as_str().unwrap().to_owned();
    match event.name.as_deref() {
        Some(NOTICE) => Event::Gap { reason: of_gap("reason"), since: of_gap("since") },
        None => Event::Message { id: event.id.unwrap(), topic: text("topic"), data: text("data") },
        Some(name) => panic!("{name}: {told}"),
    }
}

/// What must be there.
#[derive(Default)]
struct Oracle {
    epoch: String,
    /// Everything that was ever seen under a number.
    seen: BTreeMap<u64, (String, String)>,
    /// The id of the message that was published behind the last start.
    marker: String,
    starts: u64,
    /// Of this life.
    answered: Vec<Answered>,
    answered_count: usize,
    /// The last message that the reader has heard.
    heard_last: String,
    values: HashMap<String, String>,
    deletable: Deletable,
    lost: Vec<String>,
    twice: Vec<String>,
    rolled_back: u64,
}

impl Oracle {
    fn seq(&mut self, id: &str) -> u64 {
        let (epoch, seq) = id.split_once('-').unwrap();
        if self.epoch.is_empty() {
            epoch.clone_into(&mut self.epoch);
        }
        assert_eq!(self.epoch, epoch, "the sequence has begun anew");
        seq.parse().unwrap()
    }

    /// Somebody was told, or has heard, that this is the message of that id.
    fn see(&mut self, id: &str, topic: &str, data: &str) -> u64 {
        let seq = self.seq(id);
        let found = (topic.to_owned(), data.to_owned());
        let known = self.seen.entry(seq).or_insert_with(|| found.clone());
        if *known != found {
            self.twice.push(format!("{id}: {known:?} and {found:?}"));
        }
        seq
    }

    fn answered(&mut self, answered: Vec<Answered>, outlives: bool) {
        self.answered_count += answered.len();
        for message in answered {
            if let Some(id) = &message.id {
                self.see(id, &message.topic, &message.data);
            }
            if outlives {
                self.answered.push(message);
            }
        }
    }

    fn heard(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Message { id, topic, data } => {
                    self.see(&id, &topic, &data);
                    self.heard_last = id;
                }
                Event::Gap { reason, since } => panic!("a gap: {reason} behind {since}"),
            }
        }
    }

    /// Publishes something whose number must be above all that were ever seen.
    fn mark(&mut self, server: &Server) {
        self.starts += 1;
        let (topic, data) = ("/kept/marker", format!("marker {}", self.starts));
        let id = server.publish(topic, &data);
        let highest = self.seen.last_key_value().map_or(0, |(seq, _)| *seq);
        assert!(self.see(&id, topic, &data) > highest, "{id} is not above {highest}");
        if self.heard_last.is_empty() {
            self.heard_last.clone_from(&id);
        }
        self.marker = id;
    }

    /// Looks at a server that was started again.
    fn judge(&mut self, server: &Server) {
        let before = self.marker.clone();
        self.mark(server);
        // What is there behind the last marker, which was answered.
        let mut found = HashMap::new();
        let mut last = self.seq(&before);
        for event in self.missed(server, &before) {
            let Event::Message { id, topic, data } = event else {
                panic!("what was answered is missing: a gap behind {before}");
            };
            let seq = self.see(&id, &topic, &data);
            assert!(seq > last, "{seq} behind {last}");
            last = seq;
            self.values.insert(topic.clone(), data.clone());
            found.insert(data, (topic, id));
        }
        for Answered { topic, data, id } in std::mem::take(&mut self.answered) {
            match found.get(&data) {
                Some((there, by)) if *there == topic && id.as_ref().is_none_or(|id| id == by) => {}
                other => self.lost.push(format!("{topic} {data} {id:?}: {other:?}")),
            }
        }
        for (topic, may_be) in &mut self.deletable {
            let response = server.public.get(topic).expect_one_of(&[200, 404]);
            let is = (response.status == 200).then(|| response.text().to_owned());
            if !may_be.contains(&is) {
                self.lost.push(format!("{topic} is {is:?}, not one of {may_be:?}"));
            }
            *may_be = vec![is];
        }
        self.come_back(server, &before, found.values().map(|(_, id)| id.as_str()).collect());
    }

    /// The reader comes back behind the last message it has heard.
    fn come_back(&mut self, server: &Server, before: &str, found: Vec<&str>) {
        let cursor = self.heard_last.clone();
        let stays = found.contains(&&*cursor) || self.seq(&cursor) <= self.seq(before);
        let mut count = 0;
        for event in self.missed(server, &cursor) {
            match event {
                Event::Gap { reason, since } => {
                    assert_eq!((&*reason, &since, stays), ("rolled_back", &cursor, false));
                    self.rolled_back += 1;
                }
                Event::Message { id, topic, data } => {
                    self.see(&id, &topic, &data);
                    self.heard_last = id;
                    count += 1;
                }
            }
        }
        if stays {
            let behind = self.seq(&cursor);
            // The marker is not told twice.
            let missed = found.iter().filter(|id| self.seq(id) > behind).count();
            assert_eq!(count, missed, "behind {cursor}");
        }
        assert_eq!(self.heard_last, self.marker);
    }

    /// What a stream says up to the marker.
    fn missed(&self, server: &Server, cursor: &str) -> Vec<Event> {
        let stream = resume(server.reader(), cursor);
        let mut stream = stream.expect("an answer before the connection ends");
        let mut events = Vec::new();
        let is_marker =
            |event: &Event| matches!(event, Event::Message { id, .. } if *id == self.marker);
        while !events.last().is_some_and(is_marker) {
            events.push(understand(stream.event()));
        }
        events
    }
}

/// What came of some stores. Of each that is counted here nothing was lost.
#[derive(Default)]
struct Found {
    stores: usize,
    seen: usize,
    answered: usize,
    rolled_back: u64,
}

impl Found {
    fn add(&mut self, oracle: &Oracle) {
        self.stores += 1;
        self.seen += oracle.seen.len();
        self.answered += oracle.answered_count;
        self.rolled_back += oracle.rolled_back;
        assert!(oracle.answered_count > 10 * oracle.starts as usize, "there was no load");
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { stores, seen, answered, rolled_back } = self;
        write!(
            f,
            "in {stores} stores {seen} messages were seen and {answered} answered; none of these \
             was lost, no id stood for two messages; {rolled_back} readers were told that theirs \
             was rolled back"
        )
    }
}

/// A file system that forgets what was not synced when it is told to.
struct LazyFs {
    process: Child,
    dir: TempDir,
    /// Says when it has forgotten.
    done: File,
}

impl LazyFs {
    fn mount(program: &Path) -> LazyFs {
        let dir = TempDir::new();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "[faults]\nfifo_path='{}'\nfifo_path_completed='{}'\n[cache]\napply_eviction=false\n\
             [cache.simple]\ncustom_size='512mb'\nblocks_per_page=1\n[filesystem]\n\
             log_all_operations=false\nlogfile='{}'\n",
            path("faults"),
            path("done"),
            path("log")
        );
        fs::write(path("config"), config).unwrap();
        for name in ["mount", "root"] {
            fs::create_dir(path(name)).unwrap();
        }
        for name in ["faults", "done"] {
            assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
        }
        // It waits for somebody who reads; both ways, so that this does not wait for it.
        let done = OpenOptions::new().read(true).write(true).open(path("done")).unwrap();
        let process = Command::new(program)
            .args([&path("mount"), "--config-path", &path("config"), "-f"])
            .args(["-o", "modules=subdir", "-o", &format!("subdir={}", path("root"))])
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        let lazyfs = LazyFs { process, dir, done };
        eventually("LazyFS is mounted", || {
            fs::read_to_string("/proc/mounts")
                .unwrap()
                .contains(&path_of(&lazyfs.dir))
                .then_some(())
        });
        lazyfs
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    fn lose_what_is_not_synced(&self) {
        fs::write(self.dir.path().join("faults"), "lazyfs::clear-cache\n").unwrap();
        let mut done = [0; 256];
        let count = (&self.done).read(&mut done).unwrap();
        assert!(String::from_utf8_lossy(&done[..count]).contains("clear-cache"));
        // The kernel tells it of the files that the dead had open when it likes; until then a new
        // file may be taken for one that is gone.
        eventually("LazyFS has closed the files of the dead", || self.is_idle().then_some(()));
        thread::sleep(Duration::from_millis(300));
    }

    /// Whether it has none of our files open.
    fn is_idle(&self) -> bool {
        let data = self.dir.path().join("root/data");
        let open = fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        let mut open = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        !open.any(|file| file.starts_with(&data))
    }
}

fn path_of(dir: &TempDir) -> String {
    dir.path().join("mount").display().to_string()
}

impl Drop for LazyFs {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").arg("-u").arg(self.dir.path().join("mount")).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
