//! A follower and a simulated leader, with seeds: the HTTP client, from dialling to what is in the
//! hub. The network splits what the leader says, delays it, resets and swallows it. The leader may
//! lie: with wrong statuses, heads and bodies without end, trickling bytes, a snapshot that ends
//! early, and bytes that are not what they were.
//!
//! ureq bounds a whole answer by its own clock, on which a simulated answer takes no time. The
//! simulator therefore bounds only the silence within an answer.
//!
//! What must hold:
//!
//! - Nothing panics, and the text of a refusal is bounded.
//! - A leader has published all that is in the hub, under the same ids and with the same data.
//! - The leader is asked again in bounded time, whatever came of the last request.
//! - Once the network is calm and the leader does not lie, the follower has what the leader has.

use super::super::protocol::tests::{Leader, seen, sign_of_life};
use super::*;
use std::collections::HashSet;
use std::sync::Mutex;
use stentor_config::Follow;
use stentor_http_client::agent_over;
use stentor_hub::{Draft, Epoch, Limits, Precondition};
use stentor_io::{SimDialer, SimPeer, SimSpeech, VirtualClock, lock};
use stentor_order::Report;
use stentor_test::{seeds, trace};
use stentor_wire::http1::LAST_CHUNK;
use stentor_wire::target::TopicName;

#[test]
fn a_follower_has_only_what_its_leader_said() {
    let sums = Mutex::new([0; 3]);
    let has_run_all = seeds::run("leaders", 300, |seed| {
        let counts = play(seed);
        let mut sums = lock(&sums);
        (0..3).for_each(|index| sums[index] += counts[index]);
    });
    let [requests, lies, snapshots] = sums.into_inner().unwrap();
    let is_of_use = requests > 3_000 && lies > 500 && snapshots > 300;
    assert!(!has_run_all || is_of_use, "{requests} {lies} {snapshots}");
}

/// Returns how many requests there were, how many of them were answered by a lie, and how many
/// snapshots were taken.
fn play(seed: u64) -> [u64; 3] {
    let _clock = VirtualClock::start(1_000_000_000);
    let mut rng = Rng::new(seed);
    let hub = Arc::new(Hub::new(Epoch::from_number(0), Vec::new(), Limits::default()));
    hub.begin_following();
    let urls = ["http://one:1", "http://two:1"].map(|url| url.parse().unwrap());
    let settings = Follow { leaders: urls[..1 + rng.below(2)].to_vec(), ..Follow::default() };
    let state = Arc::new(FollowState::new(&settings));
    let ends = Arc::new(AtomicBool::new(false));
    let world = Arc::new(Mutex::new(World {
        rng: Rng::new(rng.next_u64()),
        lies: rng.percent(70),
        leader: Leader::new(1),
        published: HashSet::new(),
        hub: Arc::clone(&hub),
        state: Arc::clone(&state),
        network: None,
        ends: Arc::clone(&ends),
        rough_until_us: monotonic_us() + 1_000_000 * (5 + rng.below(60) as u64),
        asked_by_us: u64::MAX,
        calm_requests: 0,
        counts: [0; 2],
    }));
    let of_network = Arc::clone(&world);
    let mut refuses = Rng::new(rng.next_u64());
    let network = SimDialer::new(Rng::new(rng.next_u64()), 40, move || {
        let talk = Talk { world: Arc::clone(&of_network), input: Vec::new() };
        (!refuses.percent(5)).then(|| Box::new(talk) as Box<dyn SimPeer>)
    });
    lock(&world).network = Some(network.clone());
    let leaders = Leaders {
        follower: Follower::new(Arc::clone(&hub), Box::new(|_| {})),
        agent: agent_over(config(&[], None, "").unwrap(), Arc::new(network)),
        rng: Rng::new(rng.next_u64()),
        state: Arc::clone(&state),
        ends,
    };
    leaders.run();
    let mut world = lock(&world);
    // The network has the world, and the world has the network.
    world.network = None;
    world.check();
    assert_eq!(seen(&hub), seen(&world.leader.hub), "it has less than the leader");
    [world.counts[0], world.counts[1], state.snapshots.value()]
}

struct World {
    rng: Rng,
    lies: bool,
    leader: Leader,
    /// All that leaders ever published.
    published: HashSet<(Id, String, Option<Vec<u8>>)>,
    /// The follower's hub.
    hub: Arc<Hub>,
    state: Arc<FollowState>,
    network: Option<SimDialer>,
    ends: Arc<AtomicBool>,
    rough_until_us: u64,
    /// The next request has to be here by then.
    asked_by_us: u64,
    calm_requests: u32,
    /// Requests, and those that were answered by a lie.
    counts: [u64; 2],
}

impl World {
    fn publish(&mut self) {
        let name = format!("/{}", self.rng.below(5));
        let topic = TopicName::parse(&name).unwrap();
        if self.rng.percent(10) {
            let _ = self.leader.hub.delete(topic, Precondition::None, 1);
        } else {
            let data = format!("{} {}", self.counts[0], "x".repeat(self.rng.below(300)));
            self.leader
                .hub
                .publish(topic, Draft::new(data.into_bytes()), Precondition::None, 1)
                .unwrap();
        }
        self.published.extend(self.leader.hub.kept().into_iter().map(of_event));
    }

    /// The hub has nothing that no leader published.
    fn check(&self) {
        for event in self.hub.kept() {
            let of = of_event(event);
            assert!(self.published.contains(&of), "no leader published {of:?}");
        }
        let failure = self.state.leader().1.clone().unwrap_or_default();
        assert!(failure.len() <= 3 * REASON_BYTES_MAX as usize + 100, "{}", failure.len());
        let via = self.state.via().unwrap();
        assert!(via.len() <= 1_100, "it shows followers all that its leader says: {via}");
    }

    fn answer(&mut self, head: &str, says: &mut SimSpeech) {
        let now_us = monotonic_us();
        trace::act(now_us / 1_000, format_args!("{}", head.lines().next().unwrap_or_default()));
        assert!(now_us <= self.asked_by_us, "{} us late", now_us - self.asked_by_us);
        self.check();
        self.counts[0] += 1;
        let is_calm = now_us >= self.rough_until_us;
        if is_calm {
            self.network.as_ref().unwrap().set_calm_percent(100);
            self.calm_requests += 1;
            assert!(self.calm_requests < 30, "it does not follow a good leader");
            if self.calm_requests > 5 && seen(&self.hub) == seen(&self.leader.hub) {
                self.ends.store(true, Ordering::Relaxed);
                return says.end();
            }
        } else if self.rng.percent(3) {
            // The leader restarts with nothing.
            self.leader = Leader::new(self.leader.hub.epoch().number() + 1);
        }
        let target = head.split(' ').nth(1).unwrap();
        let since = target.split_once("since=").map(|(_, id)| id.parse::<Id>().unwrap());
        let is_feed = target.starts_with("/-/feed");
        if !is_calm && self.lies && self.rng.percent(30) {
            self.counts[1] += 1;
            lie(&mut self.rng, is_feed, &self.leader, says);
        } else if is_feed {
            self.feed(since, is_calm, says);
        } else {
            self.publish();
            let snapshot = chunked(&self.leader.snapshot(), &mut self.rng);
            says.say(ok(&self.leader.id().to_string()));
            says.say(snapshot);
            says.say(LAST_CHUNK);
        }
    }

    fn feed(&mut self, since: Option<Id>, is_calm: bool, says: &mut SimSpeech) {
        let now = self.leader.id();
        let begin = since.unwrap_or(now);
        let is_there = begin.epoch == now.epoch && begin.seq <= now.seq;
        if !is_there || since.is_some() && self.rng.percent(10) {
            return says.say("HTTP/1.1 410 Gone\r\nContent-Length: 5\r\n\r\ngone\n");
        }
        says.say(ok(&begin.to_string()));
        says.say(chunk(&sign_of_life(begin.seq)));
        let mut upto = begin.seq;
        let rounds = if is_calm { 3 } else { self.rng.below(20) };
        for _ in 0..rounds {
            let frames = self.leader.feed(upto);
            if !frames.is_empty() {
                says.say(chunked(&frames, &mut self.rng));
            }
            upto = self.leader.id().seq;
            says.pause(self.rng.below(1_500) as u64);
            says.say(chunk(&sign_of_life(upto)));
            if self.rng.percent(60) {
                self.publish();
            }
        }
        says.say(chunked(
            &[self.leader.feed(upto), sign_of_life(self.leader.id().seq)].concat(),
            &mut self.rng,
        ));
        if self.rng.percent(50) {
            says.say(LAST_CHUNK);
        }
    }
}

fn of_event(event: stentor_hub::Event) -> (Id, String, Option<Vec<u8>>) {
    let message = &event.message;
    let data = (!message.is_deletion()).then(|| message.data().to_vec());
    (message.id(), event.topic().to_owned(), data)
}

/// One connection to a leader.
struct Talk {
    world: Arc<Mutex<World>>,
    input: Vec<u8>,
}

impl SimPeer for Talk {
    fn receive(&mut self, bytes: &[u8], says: &mut SimSpeech) {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = self.input.drain(..end + 4).collect();
            let mut world = lock(&self.world);
            world.answer(std::str::from_utf8(&head).unwrap(), says);
            // How long the answer takes, how long a silence, and the longest pause.
            let longest_us = says.duration_us() + ANSWER_MAX_US;
            world.asked_by_us = monotonic_us() + longest_us;
        }
    }
}

fn ok(id: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nStentor-Cursor: {id}\r\nTransfer-Encoding: chunked\r\n\r\n")
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// In chunks of any length.
fn chunked(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    bytes.chunks(1 + rng.below(2_000)).flat_map(chunk).collect()
}

/// Answers as no leader should.
fn lie(rng: &mut Rng, is_feed: bool, leader: &Leader, says: &mut SimSpeech) {
    let (id, snapshot) = (leader.id().to_string(), leader.snapshot());
    match rng.below(10) {
        0 => {
            let status = ["500 Oh", "404 No", "302 There", "204 None", "999 What"][rng.below(5)];
            let length = [0, 10, 5_000][rng.below(3)];
            says.say(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n"));
            says.say(vec![b'e'; length]);
        }
        // A reason and a head that do not end.
        1 => says.say(
            format!("HTTP/1.1 503 Oh\r\n\r\n{}", "no ".repeat(rng.below(100_000))).into_bytes(),
        ),
        2 => says.say(format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(200_000))),
        3 => says.say("SSH-2.0-OpenSSH\r\n\r\n"),
        // Bytes that come now and then, of an answer that never ends.
        4 => {
            says.say(ok(&id));
            for _ in 0..20 {
                says.pause(3_000);
                says.say(chunk(b"x"));
            }
        }
        // The end of a snapshot or a feed before its time, as if it were in order.
        5 => {
            let bytes = if is_feed { leader.feed(0) } else { snapshot };
            says.say(ok(&id));
            says.say(chunked(&bytes[..rng.below(bytes.len() + 1)], rng));
            says.say(LAST_CHUNK);
        }
        // A byte that is another one.
        6 => {
            let mut bytes = if is_feed { leader.feed(0) } else { snapshot };
            if !bytes.is_empty() {
                let at = rng.below(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
            says.say(ok(&id));
            says.say(chunked(&bytes, rng));
            says.say(LAST_CHUNK);
        }
        7 => {
            let ids = ["", "x-1", "ffffffff-99999", "1-0", "1-18446744073709551616"];
            says.say(ok(ids[rng.below(5)]));
            says.say(chunked(&snapshot, rng));
        }
        8 => {
            says.say(ok(&id));
            says.say("zz\r\nwhat\r\n");
        }
        _ => {
            let via = "a".repeat(rng.below(3_000));
            says.say(format!(
                "HTTP/1.1 200 OK\r\nStentor-Cursor: {id}\r\nStentor-Via: {via}\r\n\r\n"
            ));
            says.end();
        }
    }
}

/// The longest time of a request beside its answer: connections fail until one succeeds, with
/// silence and pauses in between.
const ANSWER_MAX_US: u64 = 600_000_000;
