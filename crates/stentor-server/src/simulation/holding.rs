//! What readers hold and what they ask for, each bound by itself.

use super::codec::{COMMANDER, PING, PONG, TEXT, put_frame};
use super::net::{Client, Layers};
use super::{CONTROL, FILES, PUBLIC, Parts, SMALL, World, kind, patient};
use crate::limits::{
    FILE_WAIT_MS, HELD_MS_MAX, INFLATE_COST, KEPT_FILE_WAIT_MS, LINE_COST_PER_TURN, PART_BYTES,
    TURN_COST_MAX,
};
use flate2::write::GzEncoder;
use std::io::Write;
use stentor_config::{Files, Mount, Settings};
use stentor_hub::{ContentType, Draft, Pattern, Rule};
use stentor_io::{Faults, Rng};
use stentor_test::websocket::Frame;

const BYTES_MAX: usize = 1024 * 1024;

/// So many parts of a body fit.
const FITTING: usize = BYTES_MAX / (PART_BYTES + 2_000);

const GET: &str = "GET /small HTTP/1.1\r\nHost: h\r\n\r\n";

/// A world in which the readers of the worker may hold a megabyte, and clients take little at once.
fn world() -> World {
    let mut settings = patient();
    settings.limits.readers_bytes_max = BYTES_MAX;
    settings.streams.stall_timeout_ms = super::PATIENCE_MS;
    settings.topics = vec![Rule { history: 1, ..Rule::new(Pattern::any()) }];
    let world = World::new(1, Faults { window_bytes: 1_000, ..kind() }, settings);
    world.publish("/big", vec![b'x'; 300_000], ContentType::TEXT);
    world
}

/// A client that asks and never reads. For a look-up it holds a part of the body.
fn hoarder(world: &mut World, request: &str) -> Client {
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    world.sim.write(client, format!("GET {request} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    client
}

#[test]
fn those_who_hold_the_most_are_cut_and_not_those_who_come_last() {
    let mut world = world();
    let early = world.sim.connect(PUBLIC);
    world.sim.write(early, &GET.as_bytes()[..20]);
    let hoarders: Vec<Client> =
        (0..40).map(|_| hoarder(&mut world, "/-/values?topic=/big")).collect();
    world.settle();
    let late = world.sim.connect(PUBLIC);
    world.sim.write(late, &GET.as_bytes()[..20]);
    world.settle();
    let totals = world.totals();
    assert!(totals.readers_bytes <= BYTES_MAX as u64, "{totals:?}");
    let cut = hoarders.iter().filter(|&&client| world.sim.was_cut(client)).count();
    assert_eq!(cut as u64, totals.readers_cut);
    assert!((24..=28).contains(&cut), "some fourteen fit: {cut} are cut");
    for small in [early, late] {
        world.sim.write(small, &GET.as_bytes()[20..]);
        world.settle();
        assert!(world.sim.read(small).ends_with(SMALL));
    }
    hoarders.iter().for_each(|&client| world.sim.reset_client(client));
    world.settle();
    assert!(world.totals().readers_bytes < 1_000);
}

#[test]
fn detached_values_are_bounded_and_values_of_topics_cost_nothing() {
    let mut world = world();
    let of_one: Vec<Client> = (0..20).map(|_| hoarder(&mut world, "/big")).collect();
    world.settle();
    assert_eq!(world.shared.detached_bytes(), 0);
    assert_eq!(world.totals().readers_cut, 0, "all wait for what the topic keeps anyway");
    // Of each further version somebody reads nothing.
    for version in 0..10 {
        world.publish("/big", vec![b'a' + version; 300_000], ContentType::TEXT);
        hoarder(&mut world, "/big");
        world.sim.sleep(1_000);
        world.settle();
    }
    // Ten versions were detached. Those that are left: as many as fit, and the value itself.
    let totals = world.totals();
    let left = totals.connections_public as usize;
    assert!(totals.readers_cut > 0 && left >= 3, "{totals:?}");
    let versions_max = BYTES_MAX / 300_000 + 1;
    assert!(left <= of_one.len() + versions_max, "{left} are left");
    assert!(world.shared.detached_bytes() <= BYTES_MAX);
    of_one.iter().for_each(|&client| world.sim.reset_client(client));
}

/// A cached file gains compressed forms while clients wait for it. The accounts stay right, and
/// after the clients have gone both are what they were.
#[test]
fn a_cached_file_that_grows_leaves_the_accounts_right() {
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", FILES));
    let mut world = World::new(1, Faults { window_bytes: 1_000, ..kind() }, settings);
    let ask = |world: &mut World, coding: &str| {
        let fields = format!("Host: h\r\nAccept-Encoding: {coding}\r\n");
        world.ask(PUBLIC, format!("GET /files/large.txt HTTP/1.1\r\n{fields}\r\n").as_bytes())
    };
    ask(&mut world, "identity");
    let load = |world: &mut World| while world.loaders[0].step() {};
    let before = world.totals().readers_bytes;
    let slow: Vec<Client> = (0..5).map(|_| hoarder(&mut world, "/files/large.txt")).collect();
    world.settle();
    assert_eq!(world.totals().connections_writing, 5);
    for coding in ["br", "gzip", "zstd"] {
        ask(&mut world, coding);
        load(&mut world);
    }
    let settings = Files { cache_bytes_max: 1, ..Files::default() };
    world.shared.file_cache.reload(&[], &settings);
    load(&mut world);
    let detached = world.shared.detached_bytes();
    assert!(detached > 10_000, "the entry is counted once: {detached}");
    slow.iter().for_each(|&client| world.sim.reset_client(client));
    world.settle();
    assert_eq!(world.totals().readers_bytes, before);
    // The table frees an entry some time after it was removed.
    assert!(world.shared.detached_bytes() <= detached);
}

/// Requests for files and lists wait while the file system does not answer, and nothing else does.
#[test]
fn a_hung_file_system_delays_no_bystander() {
    let mut settings = patient();
    settings.mounts = ["/files/", "/others/"]
        .map(|path| Mount { listing: true, ..Mount::new(path, FILES) })
        .into();
    let mut world = World::new(1, kind(), settings);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    world.hung_mounts = 1;
    let waiting = ["/files/small.txt", "/files/small.txt", "/files/"]
        .map(|path| (world.sim.connect(PUBLIC), get(path)));
    waiting.iter().for_each(|(client, request)| world.sim.write(*client, request.as_bytes()));
    world.settle();
    assert!(waiting.iter().all(|&(client, _)| world.sim.read(client).is_empty()));
    for path in ["/small", "/others/small.txt", "/others/"] {
        let (_, answer) = world.ask(PUBLIC, get(path).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    world.sim.sleep(FILE_WAIT_MS + 1_000);
    world.settle();
    for (client, request) in &waiting {
        assert!(world.sim.read(*client).starts_with(b"HTTP/1.1 503 "), "it waits for ever");
        world.sim.write(*client, request.as_bytes());
    }
    world.hung_mounts = 0;
    world.settle();
    assert!(waiting.iter().all(|&(one, _)| world.sim.read(one).starts_with(b"HTTP/1.1 200 ")));
}

/// The server does not refuse a client a file that is in memory.
#[test]
fn files_in_memory_are_served_unchecked_if_late() {
    let mut settings = patient();
    settings.mounts.push(Mount::new("/files/", FILES));
    let mut world = World::new(1, kind(), settings);
    let file = b"GET /files/small.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    let (_, answer) = world.ask(PUBLIC, file);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    world.hung_mounts = 1;
    world.sim.sleep(2_000);
    let (client, answer) = world.ask(PUBLIC, file);
    assert_eq!(answer, "", "it waits for a check");
    world.sim.sleep(KEPT_FILE_WAIT_MS + 100);
    world.settle();
    let answer = String::from_utf8(world.sim.read(client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // An answer that comes too late does no harm.
    world.hung_mounts = 0;
    world.settle();
    assert_eq!(world.sim.read(client), b"");
}

/// The kernel sends a large file, but not to a client with TLS.
#[test]
fn sealed_files_are_not_sent_by_the_kernel() {
    for (layers, is_counted) in [(Layers::Plain, true), (Layers::Tls, false)] {
        let mut settings = patient();
        settings.mounts.push(Mount::new("/files/", FILES));
        settings.files.small_bytes_max = 1_000;
        let mut world = World::of(Parts::over(layers), 1, kind(), settings);
        let get = b"GET /files/large.txt HTTP/1.1\r\nHost: h\r\n\r\n";
        let (_, answer) = world.ask(PUBLIC, get);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.len() > 10_000, "{layers:?}");
        assert_eq!(world.totals().bytes_sendfile > 10_000, is_counted, "{layers:?}");
    }
}

/// That nobody was to be cut for what topics keep says nothing of what comes after.
#[test]
fn whoever_comes_where_nobody_was_cut_is_not_spared() {
    let mut world = world();
    for _ in 0..20 {
        hoarder(&mut world, "/big");
    }
    world.settle();
    let totals = world.totals();
    assert!(totals.connections_writing == 20 && totals.readers_cut == 0, "{totals:?}");
    for _ in 0..40 {
        hoarder(&mut world, "/-/values?topic=/big");
    }
    world.settle();
    let totals = world.totals();
    assert!(totals.readers_bytes <= BYTES_MAX as u64 && totals.readers_cut > 0, "{totals:?}");
}

#[test]
fn what_filters_take_counts_to_what_is_held() {
    let mut world = world();
    let names = names("made", 400);
    for name in &names {
        world.publish(name, b"1".to_vec(), ContentType::TEXT);
    }
    let mut commander = Commander::new(&mut world);
    commander.say(&mut world, "subscribe", &names);
    assert_eq!(world.totals().readers_cut, 0);
    // What was found for it is soon forgotten.
    world.sim.sleep(10_000);
    world.settle();
    assert_eq!(world.totals().walks_bytes, 0);
    // By themselves they would fit.
    for _ in 0..FITTING {
        hoarder(&mut world, "/-/values?topic=/big");
    }
    world.settle();
    let totals = world.totals();
    assert!((1..4).contains(&totals.readers_cut), "{totals:?}");
    assert!(totals.readers_bytes + totals.filters_bytes <= BYTES_MAX as u64, "{totals:?}");
}

/// A reader of many topics frees what its feeds take.
#[test]
fn the_reader_of_most_topics_is_cut_first() {
    let mut world = world();
    let names = names("made", 400);
    for name in &names {
        world.publish(name, b"1".to_vec(), ContentType::TEXT);
    }
    let mut commander = Commander::new(&mut world);
    commander.say(&mut world, "subscribe", &names);
    world.sim.sleep(10_000);
    world.settle();
    assert_eq!(world.totals().readers_cut, 0);
    let hoarders = [(); FITTING].map(|()| hoarder(&mut world, "/-/values?topic=/big"));
    world.settle();
    assert!(world.sim.was_cut(commander.client));
    assert!(hoarders.iter().any(|&client| !world.sim.was_cut(client)));
}

/// It is soon looked again for connections to cut.
#[test]
fn dropped_bodies_are_soon_found() {
    let mut world = world();
    for _ in 0..2 {
        for _ in 0..4 {
            hoarder(&mut world, "/big");
        }
        world.settle();
        assert_eq!(world.totals().readers_cut, 0);
    }
    for version in 0..5 {
        world.publish("/big", vec![b'a' + version; 300_000], ContentType::TEXT);
        hoarder(&mut world, "/big");
        world.settle();
    }
    world.sim.sleep(150);
    world.settle();
    assert!(world.totals().readers_cut > 0);
}

/// A walk is kept for a second after its readers, unless readers hold too much.
#[test]
fn walks_of_readers_that_have_gone_cut_nobody() {
    let mut world = world();
    let names = names("made", 400);
    for name in &names {
        world.publish(name, b"1".to_vec(), ContentType::TEXT);
    }
    let query = names.iter().map(|name| format!("topic={name}&")).collect::<String>();
    let fields = "Host: h\r\nAccept: text/event-stream\r\n";
    let request = format!("GET /-/events?{query} HTTP/1.1\r\n{fields}\r\n");
    let (reader, answer) = world.ask(PUBLIC, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    world.sim.reset_client(reader);
    world.settle();
    world.sim.sleep(200);
    let held = world.totals().walks_bytes;
    assert_eq!(world.totals().readers_cut, 0);
    // By themselves they fit.
    for _ in 0..FITTING {
        hoarder(&mut world, "/-/values?topic=/big");
    }
    world.settle();
    let totals = world.totals();
    assert_eq!((totals.readers_cut, totals.walks_bytes), (0, 0));
    assert!(totals.readers_bytes + held > BYTES_MAX as u64, "{totals:?}");
}

/// A WebSocket that speaks `stentor.v1`.
struct Commander {
    client: Client,
    input: Vec<u8>,
    rng: Rng,
}

impl Commander {
    fn new(world: &mut World) -> Commander {
        let (client, answer) = world.ask(PUBLIC, COMMANDER.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Commander { client, input: Vec::new(), rng: Rng::new(1) }
    }

    /// Gives a command: returns what is said to it.
    fn say(&mut self, world: &mut World, verb: &str, names: &[String]) -> Option<String> {
        let command = format!("{{\"{verb}\":[\"{}\"]}}", names.join("\",\""));
        let mut frame = Vec::new();
        put_frame(&mut frame, &mut self.rng, TEXT, true, command.as_bytes());
        world.sim.write(self.client, &frame);
        world.settle();
        self.input.extend(world.sim.read(self.client));
        let frame = Frame::take(&mut self.input)?;
        Some(String::from_utf8(frame.payload).unwrap())
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("/{prefix}/{n}")).collect()
}

#[test]
fn made_up_names_keep_nobody_from_what_exists() {
    let mut world = world();
    let mut commanders: Vec<Commander> = (0..3).map(|_| Commander::new(&mut world)).collect();
    let refused = commanders.iter_mut().enumerate().find_map(|(n, commander)| {
        let answer = commander.say(&mut world, "subscribe", &names(&format!("none{n}"), 300))?;
        answer.contains("error").then_some(answer)
    });
    assert!(refused.is_some_and(|answer| answer.contains("limits.readers_bytes_max")));
    let totals = world.totals();
    assert!(totals.filters_unnamed_bytes <= BYTES_MAX as u64 / 4, "{totals:?}");

    let stream = |topic: &str| {
        format!("GET {topic} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")
    };
    let (_, answer) = world.ask(PUBLIC, stream("/small").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let of_another =
        names("another", 400).iter().map(|name| format!("topic={name}&")).collect::<String>();
    let (_, answer) = world.ask(PUBLIC, stream(&format!("/-/events?{of_another}")).as_bytes());
    let is_put_off = answer.contains("\r\n\r\nretry: ") || answer.contains("\nretry: ");
    assert!(is_put_off && answer.contains("Content-Length: "), "{answer}");
    // A name that comes to be one of a topic is one of those that exist.
    world.publish("/none0/7", b"1".to_vec(), ContentType::TEXT);
    world.settle();
    assert!(world.totals().filters_unnamed_bytes < totals.filters_unnamed_bytes);
    for commander in commanders {
        world.sim.reset_client(commander.client);
    }
    world.settle();
    assert_eq!(world.totals().filters_unnamed_bytes, 0, "it comes back when they leave");
}

#[test]
fn a_command_costs_what_it_names_and_not_what_is_read_already() {
    let mut world = world();
    let mut commander = Commander::new(&mut world);
    for part in names("made", 200).chunks(50) {
        commander.say(&mut world, "subscribe", part);
    }
    let before = world.totals();
    assert!(before.cost_commands >= 200 * 1_000, "to join costs something");
    for _ in 0..10 {
        commander.say(&mut world, "subscribe", &["/x".to_owned()]);
        commander.say(&mut world, "unsubscribe", &["/x".to_owned()]);
    }
    let after = world.totals();
    let each = (after.cost_commands - before.cost_commands) / 20;
    assert!(each < 2_000, "{each}");
    assert_eq!(after.filters_bytes, before.filters_bytes);
    let owned_max = 200 * 2 * 24 + 2_000;
    assert!(after.readers_bytes <= owned_max, "names are not copied: {}", after.readers_bytes);
}

#[test]
fn no_more_topics_are_read_at_once_than_may_be() {
    let mut settings = patient();
    settings.streams.topics_max = 3;
    let mut world = World::new(1, kind(), settings);
    let mut commander = Commander::new(&mut world);
    for (verb, of, is_refused) in [
        ("subscribe", "a", false),
        ("subscribe", "b", true),
        ("subscribe", "a", false),
        ("unsubscribe", "a", false),
        ("subscribe", "b", false),
    ] {
        let answer = commander.say(&mut world, verb, &names(of, 2)).unwrap_or_default();
        assert_eq!(answer.contains("At most 3 topics"), is_refused, "{verb} {of}: {answer}");
    }
}

#[test]
fn a_websocket_that_answers_no_pings_is_cut() {
    let settings = patient();
    let ping_ms = settings.streams.ping_ms;
    let mut world = World::new(1, kind(), settings);
    let [deaf, lively] = [(); 2].map(|()| Commander::new(&mut world).client);
    for round in 0..3 {
        world.sim.sleep(ping_ms + 1_000);
        world.settle();
        let mut frames = world.sim.read(lively);
        assert_eq!(Frame::take(&mut frames).map(|frame| frame.first), Some(PING));
        let mut pong = Vec::new();
        put_frame(&mut pong, &mut Rng::new(1), PONG, true, b"");
        world.sim.write(lively, &pong);
        world.settle();
        assert_eq!(world.sim.was_cut(deaf), round > 0, "in round {round}");
    }
    assert!(!world.sim.ended(lively));
}

#[test]
fn a_request_is_not_held_for_longer_than_may_be() {
    let mut world = World::new(1, kind(), patient());
    let (client, answer) = world.ask(PUBLIC, b"GET /n?wait=3600 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(answer, "");
    world.sim.sleep(HELD_MS_MAX + 1_000);
    world.settle();
    assert!(world.sim.read(client).starts_with(b"HTTP/1.1 204 "));
}

#[test]
fn an_array_that_has_no_room_for_all_says_where_it_ends() {
    let mut world = World::new(1, kind(), patient());
    let topics = ["/m/a", "/m/b", "/m/c"];
    for topic in topics {
        // Each byte is six in JSON.
        world.publish(topic, vec![1; 300_000], ContentType::TEXT);
    }
    let mut since = "0badcafe-3".to_owned();
    for topic in topics {
        let get = format!("GET /-/events?topic=/m/*&since={since} HTTP/1.1\r\nHost: h\r\n\r\n");
        let (_, answer) = world.ask(PUBLIC, get.as_bytes());
        let (head, array) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(array.matches("\"topic\":").count(), 1, "{head}");
        assert!(array.contains(&format!("\"topic\":\"{topic}\"")), "not {topic}: {head}");
        let (_, cursor) = array.split_once("\"cursor\":\"").unwrap();
        since = cursor.split('"').next().unwrap().to_owned();
    }
}

#[test]
fn a_turn_that_has_cost_enough_visits_no_further_topics() {
    let mut world = World::new(1, kind(), patient());
    let topics = ["/a", "/b", "/c"];
    for topic in topics.into_iter().cycle().take(12) {
        let get = format!("GET {topic} HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n");
        world.ask(PUBLIC, get.as_bytes());
    }
    for topic in topics {
        world.publish(topic, vec![b'x'; TURN_COST_MAX], ContentType::TEXT);
    }
    let before = world.totals().deliveries;
    let delivered = [4, 8, 12].map(|_| {
        world.turn();
        world.totals().deliveries - before
    });
    assert_eq!(delivered, [4, 8, 12]);
}

#[test]
fn whoever_asks_for_little_goes_past_the_lines() {
    let mut world = World::new(1, kind(), Settings::default());
    world.publish("/half", vec![b'"'; LINE_COST_PER_TURN / 2], ContentType::TEXT);
    let hungry: Vec<Client> = (0..20).map(|_| world.sim.connect(PUBLIC)).collect();
    for &client in &hungry {
        world.sim.write(client, b"GET /-/values?topic=/half HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    // The network brings one of them a turn, and each turn has room for one look-up like that.
    world.settle_some(20 + 20);
    let modest = [PUBLIC, CONTROL].map(|role| world.sim.connect(role));
    for _ in 0..3 {
        for &client in &hungry {
            world.sim.write(client, b"GET /-/values?topic=/half HTTP/1.1\r\nHost: h\r\n\r\n");
        }
        for client in modest {
            world.sim.write(client, GET.as_bytes());
        }
        world.settle();
        for client in modest {
            assert!(world.sim.read(client).ends_with(SMALL));
        }
        for &client in &hungry {
            assert!(world.sim.read(client).ends_with(b"\\\"\"}"), "all are answered in the end");
        }
    }
    assert_eq!(world.totals().waiting_requests, 0);
    assert!(world.totals().cost_requests > 60 * LINE_COST_PER_TURN as u64);
}

/// A small body may become a large message, and inflating it keeps the worker busy.
#[test]
fn what_is_to_be_inflated_waits_for_its_turn() {
    let mut world = World::new(1, kind(), Settings::default());
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&vec![b'x'; 2 * LINE_COST_PER_TURN]).unwrap();
    let body = gzip.finish().unwrap();
    let head = format!(
        "PUT /large HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let publishers: Vec<Client> = (0..9).map(|_| world.sim.connect(CONTROL)).collect();
    for &client in &publishers {
        world.sim.write(client, &[head.as_bytes(), &body].concat());
    }
    let mut waiting_most = 0;
    for _ in 0..40 {
        world.turn();
        waiting_most = world.totals().waiting_requests.max(waiting_most);
    }
    assert!(waiting_most > 0, "nobody waited");
    world.settle();
    assert!(publishers.iter().all(|&one| world.sim.read(one).starts_with(b"HTTP/1.1 200 ")));
    assert!(world.totals().cost_requests >= 18 * LINE_COST_PER_TURN as u64);
}

#[test]
fn a_topic_that_is_named_twice_is_read_once() {
    let mut world = World::new(1, kind(), patient());
    let get = "GET /-/events?topic=/twice&topic=/twice HTTP/1.1\r\nHost: h\r\n\
               Accept: text/event-stream\r\n\r\n";
    let (client, _) = world.ask(PUBLIC, get.as_bytes());
    world.publish("/twice", b"once".to_vec(), ContentType::TEXT);
    world.settle();
    let told = String::from_utf8(world.sim.read(client)).unwrap();
    assert_eq!(told.matches("once").count(), 1, "{told}");
    world.sim.reset_client(client);
    world.settle();
    world.check_nobody_reads("/twice");
}

#[test]
fn a_reader_that_is_sent_nothing_is_told_where_it_is() {
    let mut world = World::new(1, kind(), patient());
    let latest = world.publish_draft("/others", Draft::new(*b"1")).id;
    let get = "GET /quiet HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";
    let (_, told) = world.ask(PUBLIC, get.as_bytes());
    assert!(told.contains(&format!("id: {latest}\n")), "{told}");
}

/// The timeout starts again with each message, so a slow client is not cut.
#[test]
fn every_websocket_message_has_its_own_timeout() {
    let mut settings = patient();
    settings.limits.head_timeout_ms = 10_000;
    let mut world = World::new(1, kind(), settings);
    let client = Commander::new(&mut world).client;
    let mut frame = Vec::new();
    put_frame(&mut frame, &mut Rng::new(1), TEXT, true, b"{\"id\":1}");
    let (begin, end) = frame.split_at(8);
    world.sim.write(client, begin);
    for _ in 0..3 {
        world.settle();
        world.sim.sleep(6_000);
        world.settle();
        world.sim.write(client, &[end, begin].concat());
    }
    world.settle();
    let heard = String::from_utf8_lossy(&world.sim.read(client)).into_owned();
    assert_eq!(heard.matches("{\"ok\":{\"id\":1}}").count(), 3, "{heard}");
    assert!(!world.sim.ended(client));
}

/// A client that keeps a message open is cut, also if it sends something else meanwhile.
#[test]
fn a_ping_within_a_message_buys_no_time() {
    let mut settings = patient();
    settings.limits.head_timeout_ms = 10_000;
    let mut world = World::new(1, kind(), settings);
    let client = Commander::new(&mut world).client;
    let (mut begin, mut ping) = (Vec::new(), Vec::new());
    put_frame(&mut begin, &mut Rng::new(1), TEXT, false, b"{");
    put_frame(&mut ping, &mut Rng::new(1), PING, true, b"");
    world.sim.write(client, &begin);
    for _ in 0..3 {
        world.sim.write(client, &ping);
        world.settle();
        world.sim.sleep(4_000);
        world.settle();
    }
    assert!(world.sim.ended(client));
}

#[test]
fn a_compressed_command_costs_what_inflating_it_does() {
    let mut world = World::new(1, kind(), patient());
    let offer = "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    let (client, answer) = world.ask(PUBLIC, COMMANDER.replace("\r\n\r\n", offer).as_bytes());
    assert!(answer.contains("permessage-deflate"), "{answer}");
    let mut rng = Rng::new(1);
    let name: String = (0..100).map(|_| format!("{:016x}", rng.next_u64())).collect();
    let command = format!("{{\"unsubscribe\":[\"/{name}\"]}}");
    let mut deflater = stentor_wire::deflate::Deflater::default();
    let deflated = stentor_wire::websocket::deflate(&mut deflater, command.as_bytes(), 15);
    let (deflated, mut frame) = (deflated.unwrap(), Vec::new());
    put_frame(&mut frame, &mut rng, TEXT, true, deflated);
    frame[0] |= 0x40;
    let before = world.totals().cost_commands;
    world.sim.write(client, &frame);
    world.settle();
    let cost = (world.totals().cost_commands - before) as usize;
    assert!(cost >= deflated.len() * INFLATE_COST, "{cost} for {} bytes", deflated.len());
}

/// Requests and messages of which a part is missing are held for one client alone.
#[test]
fn incomplete_requests_and_messages_count_as_held() {
    let mut world = world();
    let tag = "a".repeat(5_000);
    let head = format!("GET /small HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"{tag}\"\r\n");
    for _ in 0..300 {
        let client = world.sim.connect(PUBLIC);
        world.sim.write(client, format!("{head}Content-Length: 2\r\n\r\nx").as_bytes());
    }
    world.settle();
    let totals = world.totals();
    assert!(totals.readers_bytes < BYTES_MAX as u64 && totals.readers_cut > 0, "{totals:?}");
    let mut world = self::world();
    let mut message = Vec::new();
    put_frame(&mut message, &mut Rng::new(1), TEXT, true, &[b'x'; 60_000]);
    for _ in 0..20 {
        let client = Commander::new(&mut world).client;
        world.sim.write(client, &message[..60_000]);
    }
    world.settle();
    let totals = world.totals();
    assert!(totals.readers_bytes < BYTES_MAX as u64 && totals.readers_cut > 0, "{totals:?}");
}

/// A snapshot transfer holds its last slice in addition to the bytes that are being sent.
#[test]
fn what_snapshots_keep_counts_as_held() {
    let mut world = world();
    for _ in 0..8 {
        let client = world.sim.connect(CONTROL);
        world.sim.stall(client, true);
        world.sim.write(client, b"GET /-/snapshot HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    world.settle();
    let totals = world.totals();
    assert!(totals.readers_bytes < BYTES_MAX as u64 && totals.readers_cut > 0, "{totals:?}");
}
