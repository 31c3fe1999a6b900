//! A node and a broker that is a few lines here: what it says, and when, is up to the test.

use super::*;
use crate::waiting::ClusterIntake;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use stentor_config::Cluster as Settings;
use stentor_hub::{Draft, Epoch, Limits, Op, Precondition};
use stentor_io::{SimDialer, SimPeer, SimSpeech, VirtualClock};
use stentor_order::{CommitError, Outcome, ReturnAddress};
use stentor_wire::target::TopicName;

/// What a broker has, and does.
#[derive(Default)]
struct Script {
    messages: Vec<(String, Vec<u8>)>,
    /// What was to be appended, taken or not.
    asked: Vec<Vec<u8>>,
    /// It takes no larger message, and says nothing of that before.
    takes: usize,
    /// It says so of the account, behind the first PONG,
    says: usize,
    /// and so with the next answer to an append.
    says_next: Option<usize>,
    /// The first consumer says that it delivered another message before this one.
    skips: Option<usize>,
    consumers: AtomicUsize,
}

/// A client that is talked to.
struct Talk {
    socket: TcpStream,
    sids: HashMap<String, String>,
    /// Where the stream goes, and how much of it has gone there.
    delivers: Option<(String, usize)>,
    /// How many messages its consumer has delivered.
    brought: u64,
}

impl Talk {
    fn say(&mut self, text: &str) {
        let _ = self.socket.write_all(text.as_bytes());
    }

    fn info(&mut self, payload_max: usize) {
        self.say(&format!(
            "INFO {{\"server_id\":\"a\",\"headers\":true,\"jetstream\":true,\
             \"max_payload\":{payload_max}}}\r\n"
        ));
    }

    fn answer(&mut self, to: &str, text: &str) {
        self.say(&format!("MSG {to} 1 {}\r\n{text}\r\n", text.len()));
    }

    /// Brings what has not been brought yet, and a sign of life.
    fn deliver(&mut self, script: &Script) {
        let Some((subject, from)) = self.delivers.take() else { return };
        let sid = self.sids[&subject].clone();
        for (index, (of, payload)) in script.messages.iter().enumerate().skip(from) {
            self.brought += 1;
            let is_first = script.consumers.load(Ordering::Relaxed) == 1;
            self.brought += u64::from(is_first && script.skips == Some(index));
            let number = self.brought;
            let reply = format!("$JS.ACK.s.c.1.{}.{number}.1700000000.0", index + 1);
            self.say(&format!("MSG {of} {sid} {reply} {}\r\n", payload.len()));
            let _ = self.socket.write_all(payload);
            self.say("\r\n");
        }
        self.say(&format!("HMSG {subject} {sid} 16 16\r\nNATS/1.0 100\r\n\r\n\r\n"));
        self.delivers = Some((subject, script.messages.len().max(from)));
    }

    /// What JetStream answers.
    fn asked(&mut self, script: &Script, subject: &str, reply: &str, payload: &[u8]) {
        let request = serde_json::from_slice::<serde_json::Value>(payload).unwrap_or_default();
        let last = script.messages.len();
        if subject.starts_with("$JS.API.STREAM.INFO.") {
            let state = format!("{{\"first_seq\":1,\"last_seq\":{last}}}");
            let config = "{\"retention\":\"limits\",\"subjects\":[\"stentor.>\"]}";
            self.answer(reply, &format!("{{\"config\":{config},\"state\":{state}}}"));
        } else if subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            let of_subject = || {
                let wanted = request["last_by_subj"].as_str().unwrap();
                script.messages.iter().rposition(|(subject, _)| subject == wanted)
            };
            let next = |from: usize, wanted: &str| {
                let is_of = |at: &usize| wanted == ">" || script.messages[*at].0 == wanted;
                (from..last).find(is_of)
            };
            let at = match (request["seq"].as_u64(), request["next_by_subj"].as_str()) {
                (Some(seq), Some(wanted)) => next(seq as usize - 1, wanted),
                (Some(seq), None) => Some(seq as usize - 1).filter(|at| *at < last),
                (None, _) => of_subject(),
            };
            let found = at.map(|at| (at + 1, STANDARD.encode(&script.messages[at].1)));
            self.answer(
                reply,
                &match found {
                    Some((seq, data)) => {
                        format!("{{\"message\":{{\"seq\":{seq},\"data\":\"{data}\"}}}}")
                    }
                    None => "{\"error\":{\"code\":404}}".to_owned(),
                },
            );
        } else if subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            let config = &request["config"];
            let from = config["opt_start_seq"].as_u64().unwrap() as usize - 1;
            self.delivers = Some((config["deliver_subject"].as_str().unwrap().to_owned(), from));
            self.brought = 0;
            script.consumers.fetch_add(1, Ordering::Relaxed);
            self.answer(reply, "{}");
            self.deliver(script);
        }
    }

    /// Talks to it until it has gone, or is sent away.
    fn go_on(mut self, script: &Mutex<Script>) -> std::io::Result<()> {
        let mut reader = BufReader::new(self.socket.try_clone()?);
        self.info(1 << 20);
        let mut pings = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let mut script = script.lock().unwrap();
            match words[..] {
                ["PING"] => {
                    self.say("PONG\r\n");
                    if pings == 0 {
                        self.info(script.says);
                    }
                    pings += 1;
                    self.deliver(&script);
                }
                ["SUB", subject, sid] => drop(self.sids.insert(subject.into(), sid.into())),
                ["PUB" | "HPUB", subject, .., length] => {
                    let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
                    reader.read_exact(&mut body)?;
                    let of_head = if words.len() == 5 { words[3].parse().unwrap() } else { 0 };
                    let payload = &body[of_head..body.len() - 2];
                    if !subject.starts_with("stentor.") {
                        self.asked(&script, subject, words[2], payload);
                        continue;
                    }
                    script.asked.push(payload.to_vec());
                    if payload.len() > script.takes {
                        self.say("-ERR 'Maximum Payload Violation'\r\n");
                        return Ok(());
                    }
                    script.messages.push((subject.to_owned(), payload.to_vec()));
                    if let Some(bytes) = script.says_next.take() {
                        self.info(bytes);
                    }
                    self.answer(words[2], &format!("{{\"seq\":{}}}", script.messages.len()));
                    self.deliver(&script);
                }
                _ => {}
            }
        }
    }
}

/// A node, on a thread of its own.
struct Member {
    hub: Arc<Hub>,
    state: Arc<ClusterState>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Member {
    /// A node whose broker does as `script` says.
    fn of(script: Script) -> (Member, Arc<Mutex<Script>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let member = Member::at(&listener);
        let script = Arc::new(Mutex::new(script));
        let of_broker = Arc::clone(&script);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, of_broker) = (socket.unwrap(), Arc::clone(&of_broker));
                let talk = Talk { socket, sids: HashMap::new(), delivers: None, brought: 0 };
                thread::spawn(move || talk.go_on(&of_broker));
            }
        });
        (member, script)
    }

    fn at(broker: &TcpListener) -> Member {
        Member::with_broker(&format!("nats://{}", broker.local_addr().unwrap()), 7)
    }

    /// Another node of the same broker.
    fn beside(other: &Member) -> Member {
        Member::with_broker(&other.state.settings.nats[0].to_string(), 8)
    }

    fn with_broker(url: &str, seed: u64) -> Member {
        let settings = Settings { nats: vec![url.parse().unwrap()], ..Settings::default() };
        let state = Arc::new(ClusterState::new(&settings).unwrap());
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        hub.begin_following();
        let intake: Arc<ClusterIntake> = Arc::clone(&state.intake);
        let node = ClusterNode::new(Arc::clone(&hub), intake, seed, Box::new(|_| {}));
        let fetch = Box::new(|_| Err("there is no peer".to_owned()));
        let broker = Broker::new(Arc::clone(&state), node, fetch);
        let thread = Some(thread::spawn(move || broker.run()));
        Member { hub, state, thread }
    }

    /// Publishes so many bytes, once that can be done.
    fn publish(&self, bytes: usize) -> Outcome {
        loop {
            let op = Op::Put(TopicName::parse("/a").unwrap(), Draft::new(vec![b'x'; bytes]));
            let entry = self.hub.admit(op, Precondition::None, 1).unwrap();
            let (sender, outcome) = mpsc::channel();
            if self.state.status().is_open() {
                match self.state.intake.put(&entry, ReturnAddress::Thread(sender)) {
                    Ok(()) => return outcome.recv().unwrap(),
                    Err(CommitError::NotReady(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

#[test]
fn a_broker_is_sent_no_more_than_it_has_said_last_that_it_takes() {
    let script = Script { takes: 1 << 20, says: 4_000, ..Script::default() };
    let (member, script) = Member::of(script);
    let refused = |bytes, max: usize| {
        let expected = CommitError::BrokerRefuses { max: max - HEAD_BYTES };
        assert_eq!(member.publish(bytes).unwrap_err(), expected);
    };
    // Its account has less than is usual there.
    refused(4_000, 4_000);
    assert!(member.publish(3_000).is_ok());
    // Then it is told to take still less.
    script.lock().unwrap().says_next = Some(2_000);
    assert!(member.publish(3_000).is_ok());
    refused(3_000, 2_000);
    assert!(member.publish(1_000).is_ok());
    assert_eq!(member.state.reconnects.value(), 0);
}

#[test]
fn what_a_broker_does_not_take_is_sent_once() {
    let script = Script { takes: 4_000, says: 1 << 20, ..Script::default() };
    let (member, script) = Member::of(script);
    assert!(member.publish(3_000).is_ok());
    assert!(matches!(member.publish(5_000), Err(CommitError::NotReady(_))));
    // What comes before the connection is given up is told so, too.
    while member.publish(3_000).is_err() {}
    let script = script.lock().unwrap();
    assert_eq!(script.asked.iter().filter(|payload| payload.len() > 5_000).count(), 1);
}

/// A client without permissions of its own can publish under the stream's subjects.
#[test]
fn a_message_that_no_node_wrote_is_skipped() {
    let (member, script) =
        Member::of(Script { takes: 1 << 20, says: 1 << 20, ..Script::default() });
    assert!(member.publish(10).is_ok());
    let large = vec![b'x'; 3 << 20];
    let strange: [(&str, &[u8]); 7] = [
        ("stentor.oops", b"x"),
        ("stentor.lifeboat", b"x"),
        ("stentor.node", b"x"),
        ("stentor.node.0", b"x"),
        ("stentor.life", b"hello"),
        ("stentor.oops", &large),
        ("stentor.life", &large),
    ];
    for (subject, bytes) in strange {
        script.lock().unwrap().messages.push((subject.to_owned(), bytes.to_vec()));
        assert!(member.publish(10).is_ok());
    }
    assert_eq!((member.state.reconnects.value(), member.state.skipped.value()), (0, 7));
    // A node that starts finds the epoch record, and skips the same.
    let other = Member::beside(&member);
    assert!(other.publish(10).is_ok());
    assert_eq!((other.state.reconnects.value(), other.state.skipped.value()), (0, 7));
    assert_eq!(other.hub.epoch(), member.hub.epoch());
}

/// Its own sequences do not tell: the message may be one that was deleted.
#[test]
fn a_consumer_that_skips_a_message_is_replaced() {
    for (skips, consumers) in [(None, 1), (Some(2), 2)] {
        let (member, script) =
            Member::of(Script { takes: 1 << 20, says: 1 << 20, skips, ..Script::default() });
        assert!((0..3).all(|_| member.publish(10).is_ok()));
        assert_eq!(script.lock().unwrap().consumers.load(Ordering::Relaxed), consumers);
        assert_eq!(member.state.reconnects.value(), 0);
    }
}

/// Connects to somebody who does this with the connection.
fn connect(scheme: &str, does: impl FnOnce(TcpStream) + Send + 'static) -> Result<Link, String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
    let serves = thread::spawn(move || does(listener.accept().unwrap().0));
    let link = Link::connect(&HostDialer, &url, &Settings::default(), "n");
    if link.is_err() {
        serves.join().unwrap();
    }
    link
}

/// Says it byte by byte, and for longer than it is waited for.
fn trickle(mut socket: TcpStream, byte: u8) {
    for _ in 0..500 {
        if socket.write_all(&[byte]).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

const GREETING: &str = "INFO {\"headers\":true,\"jetstream\":true,\"max_payload\":1048576,\
                        \"tls_available\":true}\r\n";

#[test]
fn who_only_trickles_holds_up_nobody() {
    let why = |scheme, does: fn(TcpStream)| connect(scheme, does).err().unwrap();
    // Before anything else, in its greeting's place,
    assert_eq!(why("nats", |socket| trickle(socket, b'I')), "it says nothing");
    // instead of letting anybody in, with lines that are whole,
    let lines = |mut socket: TcpStream| {
        socket.write_all(GREETING.as_bytes()).unwrap();
        for _ in 0..500 {
            if socket.write_all(b"+OK\r\n").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(why("nats", lines), "it says nothing");
    // and within a handshake.
    let sealed = |mut socket: TcpStream| {
        socket.write_all(GREETING.as_bytes()).unwrap();
        assert_ne!(socket.read(&mut [0; 4096]).unwrap(), 0, "it begins the handshake");
        // A record of a handshake that is long.
        let _ = socket.write_all(&[22, 3, 3, 64, 0, 2, 0, 63, 0]);
        trickle(socket, 3);
    };
    assert_eq!(why("tls", sealed), "it says nothing");
}

#[test]
fn who_takes_what_is_written_too_slowly_is_given_up() {
    for is_slow in [true, false] {
        let link = connect("nats", move |mut socket| {
            socket.write_all(GREETING.as_bytes()).unwrap();
            socket.write_all(b"PONG\r\n").unwrap();
            let mut bytes = vec![0; 64 << 10];
            for _ in 0..500 {
                if is_slow && socket.read(&mut bytes).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        let mut link = link.unwrap();
        link.out().resize(256 << 20, b'x');
        assert_eq!(link.flush().unwrap_err().to_string(), "it takes nothing", "{is_slow}");
    }
}

#[test]
fn a_server_that_ends_waits_for_no_broker() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let member = Member::at(&listener);
    let (mut socket, _) = listener.accept().unwrap();
    drop(member);
    // Whoever connects still waits for what it says first.
    socket.set_nonblocking(true).unwrap();
    let error = socket.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_broker_that_does_not_let_anybody_in_is_tried_less_and_less_often() {
    let mut rng = Rng::new(1);
    for (failures, brokers, at_most) in [
        (1, 1, 200),
        (2, 1, 400),
        (4, 1, 1_600),
        (5, 1, 2_000),
        (1_000_000, 1, 2_000),
        (1, 3, 66),
        (3, 3, 66),
        (4, 3, 133),
        (99, 3, 666),
    ] {
        for _ in 0..100 {
            let pause = Failures(failures - 1).pause_ms(false, brokers, &mut rng);
            assert!((at_most / 2..=at_most).contains(&pause), "{failures}, {brokers}: {pause}");
        }
    }
    let mut failures = Failures(99);
    let pauses = [true, false, false].map(|was_of_use| failures.pause_ms(was_of_use, 1, &mut rng));
    for (pause, at_most) in pauses.into_iter().zip([200, 400, 800]) {
        assert!((at_most / 2..=at_most).contains(&pause), "after one that was of use: {pauses:?}");
    }
}

/// A broker that lets everyone in, and says this.
struct Speaker(Vec<u8>);

impl SimPeer for Speaker {
    fn receive(&mut self, bytes: &[u8], says: &mut SimSpeech) {
        if bytes.is_empty() {
            says.say(GREETING);
            says.say("PONG\r\n");
            says.say(std::mem::take(&mut self.0));
        }
    }
}

/// A connection to a broker that lets everyone in, and then says this.
fn link_to(says: &[u8]) -> Link {
    let mut peers = Some(Box::new(Speaker(says.to_owned())) as Box<dyn SimPeer>).into_iter();
    let network = SimDialer::new(Rng::new(1), 100, move || peers.next());
    let url = "nats://broker:4222".parse().unwrap();
    Link::connect(&network, &url, &Settings::default(), "n").unwrap()
}

/// One that says nothing.
fn silent_link() -> Link {
    link_to(b"")
}

/// A broker's thread as data, with a node that has heard of no log.
fn broker(fetch: Fetch) -> Broker {
    let state = Arc::new(ClusterState::new(&Settings::default()).unwrap());
    let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
    hub.begin_following();
    let node = ClusterNode::new(hub, Arc::clone(&state.intake), 7, Box::new(|_| {}));
    Broker::new(state, node, fetch)
}

#[test]
fn an_idle_broker_sees_what_time_it_is() {
    let (link, mut broker) = (silent_link(), broker(Box::new(|_| Err(String::new()))));
    let _clock = VirtualClock::start(1_000_000);
    let mut session = broker.begin(link);
    broker.step(&mut session).unwrap();
    let passed_ms = now_ms() - 1_000;
    assert!((10..=100).contains(&passed_ms), "{passed_ms}");
}

#[test]
fn a_broker_is_pinged_once_a_second() {
    let (link, mut broker) = (silent_link(), broker(Box::new(|_| Err(String::new()))));
    let _clock = VirtualClock::start(1_000_000);
    let mut session = broker.begin(link);
    let pings = (0..100).filter(|_| {
        session.link.out().clear();
        session.heard_ms = now_ms();
        session.keep_alive(now_ms()).unwrap();
        VirtualClock::pass(Duration::from_millis(100));
        session.link.out() == wire::PING
    });
    assert_eq!(pings.count(), 10);
}

/// A broker that says much does not fill the memory of the node, nor keep it from its work.
#[test]
fn a_step_reads_in_bounds() {
    let mut broker = broker(Box::new(|_| Err(String::new())));
    let _clock = VirtualClock::start(1_000_000);
    let mut session = broker.begin(link_to(&wire::PING.repeat(1 << 20)));
    // The first one takes what came with the greeting.
    for _ in 0..2 {
        broker.step(&mut session).unwrap();
        let pongs = session.link.out().len() / wire::PONG.len();
        assert!((1..=50_000).contains(&pongs), "{pongs}");
    }
}

#[test]
fn a_change_wakes_a_broker_that_waits() {
    let mut broker = broker(Box::new(|_| Err(String::new())));
    let link = silent_link();
    let _clock = VirtualClock::start(1_000_000);
    let mut session = broker.begin(link);
    broker.step(&mut session).unwrap();
    let begun_us = monotonic_us();
    let hub = Hub::new(Epoch::from_number(1), Vec::new(), Limits::default());
    let op = Op::Put(TopicName::parse("/a").unwrap(), Draft::new(*b"x"));
    let entry = hub.admit(op, Precondition::None, 1).unwrap();
    broker.state.intake.set_open(None);
    broker.state.intake.put(&entry, ReturnAddress::Thread(mpsc::channel().0)).unwrap();
    broker.step(&mut session).unwrap();
    assert_eq!(monotonic_us(), begun_us);
}

#[test]
fn an_append_without_an_answer_expires() {
    let (link, mut broker) = (silent_link(), broker(Box::new(|_| Err(String::new()))));
    let _clock = VirtualClock::start(1_000_000);
    let mut session = broker.begin(link);
    session.append("stentor.life", 0, b"x", 7);
    let expired = |session: &mut Session| {
        let mut tokens = Vec::new();
        session.expire(|token| tokens.push(token));
        tokens
    };
    VirtualClock::pass(Duration::from_micros(APPEND_MAX_US));
    assert!(expired(&mut session).is_empty());
    VirtualClock::pass(Duration::from_micros(1));
    assert_eq!(expired(&mut session), [7]);
    assert!(expired(&mut session).is_empty(), "once");
}

/// A broker that stops in lame duck mode says so, and names the others of its cluster.
#[test]
fn a_node_leaves_a_lame_duck() {
    let mut broker = broker(Box::new(|_| Err(String::new())));
    let mut session = broker.begin(silent_link());
    let info = |more: &str| {
        let info = format!("{{\"connect_urls\":[\"10.0.0.1:1\",\"[::1]:2\"]{more}}}");
        vec![Said::Info(info.into_bytes())]
    };
    assert_eq!(broker.take(&mut session, info("")), Ok(()));
    let leaves = Err(link::IS_ENDING.to_owned());
    assert_eq!(broker.take(&mut session, info(",\"ldm\":true")), leaves);
    let own = broker.state.settings.nats.len();
    let first = "nats://10.0.0.9".parse().unwrap();
    broker.learn(&first, &session.link.connect_urls);
    let named = ["nats://10.0.0.1:1", "nats://[::1]:2"].map(|url| url.parse().unwrap());
    assert_eq!([broker.broker(own), broker.broker(own + 1)], named);
}

#[test]
fn requests_for_snapshots_have_a_pause() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mut broker = broker(Box::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Err("it has none".to_owned())
    }));
    let link = silent_link();
    let _clock = VirtualClock::start(10_000_000);
    let mut session = broker.begin(link);
    for (pause_ms, times) in [(0, 1), (FETCH_PAUSE_MS - 1, 1), (1, 2), (FETCH_PAUSE_MS, 3)] {
        VirtualClock::pass(Duration::from_millis(pause_ms));
        broker.node.ask_for_snapshot(Epoch::from_number(2));
        broker.act(&mut session).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), times);
    }
}

#[test]
fn what_somebody_else_has_said_is_shown_in_part() {
    assert_eq!(shortened("no room"), "no room");
    assert_eq!(shortened("a\r\nb\u{1b}[0m"), "ab[0m");
    let long = "é".repeat(REASON_CHARS_MAX);
    assert_eq!(shortened(&long), long);
    assert_eq!(shortened(&format!("{long}é")), format!("{long}…"));
}

#[test]
fn how_much_a_broker_says_that_it_takes() {
    let read = |info: &str| About::read(info.as_bytes()).and_then(|about| about.payload_max());
    assert_eq!(read("{\"max_payload\":7}"), Some(7));
    // An account without a limit of its own.
    assert_eq!(read("{\"max_payload\":-1}"), Some(usize::MAX));
    assert_eq!(read("{\"server_id\":\"a\"}"), None);
    assert_eq!(read("what"), None);
}
