//! Tokens in particular: that a body does not outlive its token, that what a token covers of a
//! pattern is sent, that nothing promised is cut down in silence, and what all the comparing costs
//! a turn.

use super::codec::{COMMANDER, PONG, TEXT, put_frame};
use super::net::{Client, Layers};
use super::{CONTROL, PUBLIC, Parts, World, kind, patient};
use crate::keys::PreparedKeys;
use crate::limits::EXPELLED_PER_TURN;
use crate::mailbox::Order;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use stentor_access::mint::Signer;
use stentor_access::{Algorithm, Jwks, Keys, Patterns, Permissions, Secret, StaticToken, load};
use stentor_access::{Publishers, Readers, TopicAccess, TopicRules};
use stentor_config::Settings;
use stentor_hub::{ContentType, Message, Pattern};
use stentor_io::{Backend, Faults, Rng, read_file};
use stentor_wire::http1::{FieldSlots, parse};
use tracing::Metadata;
use tracing::field::Field;
use tracing::span::{self, Attributes};

/// Rules that ask for tokens, and the tokens: what each reads and publishes.
fn settings(rules: &[&str], tokens: &[(&Secret, &[&str])]) -> Settings {
    let mut settings = patient();
    let of = |pattern: &&str| TopicAccess {
        pattern: Pattern::parse(pattern).unwrap(),
        read: Readers::Token,
        publish: Publishers::Token,
    };
    settings.access.topics = TopicRules::new(rules.iter().map(of));
    let token = |(secret, patterns): &(&Secret, &[&str])| {
        let patterns = Patterns::parse(patterns.iter().copied()).unwrap();
        StaticToken {
            name: "somebody".to_owned(),
            sha256: secret.sha256(),
            permissions: Permissions { publish: patterns.clone(), read: patterns },
            expires_unix_s: None,
        }
    };
    settings.tokens.tokens = tokens.iter().map(token).collect();
    settings
}

impl World {
    fn reload(&mut self, settings: Settings) {
        self.rekey(&settings);
        self.worker.execute(&mut self.sim, Order::Reload(Arc::new(settings)));
    }

    /// The keys change, and nothing else.
    fn rekey(&mut self, settings: &Settings) {
        self.use_keys(PreparedKeys::read(&settings.tokens, Vec::new()).unwrap().keys());
    }

    fn use_keys(&mut self, keys: Arc<Keys>) {
        self.shared.tokens.set_keys(Arc::clone(&keys));
        self.worker.execute(&mut self.sim, Order::Keys(keys));
    }

    /// What has come to a client since.
    fn heard(&mut self, client: Client) -> String {
        self.settle();
        String::from_utf8_lossy(&self.sim.read(client)).into_owned()
    }

    /// Sends commands.
    fn command(&mut self, client: Client, commands: &[String]) {
        let mut out = Vec::new();
        for command in commands {
            put_frame(&mut out, &mut Rng::new(1), TEXT, true, command.as_bytes());
        }
        self.sim.write(client, &out);
    }
}

fn token(secret: &Secret) -> String {
    format!("{{\"token\":\"{}\"}}", secret.as_str())
}

/// A body comes in two parts, and something happens between them.
#[test]
fn a_body_does_not_outlive_its_token() {
    let secret = Secret::make().unwrap();
    let mut expiring = settings(&["/in/*"], &[(&secret, &["/in/*"])]);
    let mut gone = settings(&["/in/*"], &[]);
    let mut narrower = settings(&["/in/*"], &[(&secret, &["/in/b"])]);
    for settings in [&mut expiring, &mut gone, &mut narrower] {
        settings.cors.origins = vec!["http://page.example".to_owned()];
    }
    let start_s = World::new(1, kind(), patient()).sim.unix_s();
    expiring.tokens.tokens[0].expires_unix_s = Some(start_s + 60);
    let mut closed = expiring.clone();
    closed.access.topics = settings(&["/other/*"], &[]).access.topics;
    let mut delisted = expiring.clone();
    delisted.cors.origins = vec!["http://other.example".to_owned()];
    for (case, after, expected) in [
        ("nothing", None, "200"),
        ("expired", None, "401"),
        ("revoked", Some(gone), "401"),
        ("changed", Some(narrower), "401"),
        ("rules", Some(closed), "403"),
        ("page", Some(delisted), "403"),
    ] {
        let mut world = World::new(1, kind(), expiring.clone());
        world.publish("/in/a", b"before".to_vec(), ContentType::TEXT);
        let head = format!(
            "PUT /in/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\
             Origin: http://page.example\r\nContent-Length: 4\r\n\r\nab",
            secret.as_str()
        );
        let (client, answer) = world.ask(PUBLIC, head.as_bytes());
        assert_eq!(answer, "", "{case}");
        match after {
            Some(settings) => world.reload(settings),
            None if case == "expired" => world.sim.sleep(61_000),
            None => {}
        }
        world.sim.write(client, b"cd");
        let answer = world.heard(client);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{case}: {answer}");
        let is_new = |value: &Arc<Message>| value.data() == b"abcd";
        let is_published = world.shared.hub.with_value("/in/a", |value| value.is_some_and(is_new));
        assert_eq!(is_published, expected == "200", "{case}");
    }
}

/// A client sends half a frame, and its token ends before the time for the frame does.
#[test]
fn token_expiry_within_a_frame_ends_the_stream() {
    let (mut world, client) = world_with_half_a_frame();
    world.sim.sleep(11_000);
    assert_is_expired(&mut world, client);
}

/// A client has sent half a frame when the clock is set forward, and then sends the rest.
#[test]
fn clock_jump_past_token_expiry_ends_the_stream() {
    let (mut world, client) = world_with_half_a_frame();
    world.sim.jump_wall_clock(9);
    world.sim.write(client, &[0x80, 0, 0, 0, 0]);
    world.settle();
    world.sim.sleep(2_000);
    assert_is_expired(&mut world, client);
}

/// A client whose token lasts ten seconds sends half a frame over its WebSocket.
fn world_with_half_a_frame() -> (World, Client) {
    let secret = Secret::make().unwrap();
    let mut settings = settings(&["/in/*"], &[(&secret, &["/in/*"])]);
    let start_s = World::new(1, kind(), patient()).sim.unix_s();
    settings.tokens.tokens[0].expires_unix_s = Some(start_s + 10);
    let mut world = World::new(1, kind(), settings);
    let request = format!(
        "GET /in/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        secret.as_str()
    );
    let (client, answer) = world.ask(PUBLIC, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    world.sim.write(client, &[0x80 | PONG]);
    world.settle();
    (world, client)
}

fn assert_is_expired(world: &mut World, client: Client) {
    world.settle();
    let told = world.sim.read(client);
    assert_eq!(told.get(2..4), Some(&4401_u16.to_be_bytes()[..]), "{told:?}");
}

/// Also a token that was verified before.
#[test]
fn every_token_costs_something() {
    let secret = Secret::make().unwrap();
    let mut world = World::new(1, kind(), settings(&["/in/*"], &[(&secret, &["/in/*"])]));
    world.publish("/in/a", b"1".to_vec(), ContentType::TEXT);
    let bearer = format!("Authorization: Bearer {}", secret.as_str());
    let get = format!("GET /in/a HTTP/1.1\r\nHost: h\r\n{bearer}\r\n\r\n");
    world.ask(PUBLIC, get.as_bytes());
    assert!(world.totals().cost_requests >= 1_000, "it is verified in its class");
    let mut cx = world.context(settings(&["/in/*"], &[(&secret, &["/in/*"])]));
    let mut slots = FieldSlots::new();
    let request = parse(get.as_bytes(), &mut slots).unwrap().request;
    assert!(!cx.presented(PUBLIC, &request).is_unverified());
    assert!(cx.load.budget.cost >= 400);
}

#[test]
fn a_held_request_ends_with_its_token() {
    let secret = Secret::make().unwrap();
    let mut settings = settings(&["/in/*"], &[(&secret, &["/in/*"])]);
    let start_s = World::new(1, kind(), patient()).sim.unix_s();
    settings.tokens.tokens[0].expires_unix_s = Some(start_s + 10);
    let mut world = World::new(1, kind(), settings);
    let bearer = format!("Authorization: Bearer {}", secret.as_str());
    let request = format!("GET /in/a?wait=60 HTTP/1.1\r\nHost: h\r\n{bearer}\r\n\r\n");
    let (client, answer) = world.ask(PUBLIC, request.as_bytes());
    assert_eq!(answer, "");
    world.sim.sleep(11_000);
    let answer = world.heard(client);
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

/// What is logged, a line each.
#[derive(Default)]
struct Log(Mutex<String>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut lines = self.0.lock().unwrap();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "message" {
                writeln!(lines, "{value:?}").unwrap();
            }
        });
    }
}

/// The token goes with its head, and the log names its holder all the same.
#[test]
fn who_is_refused_at_the_end_of_a_body_is_named() {
    let (secret, signer) = (Secret::make().unwrap(), Signer::new(Algorithm::Hs256));
    let mut open = settings(&["/in/*"], &[(&secret, &["/in/*"])]);
    open.tokens.tokens[0].name = "scorer".to_owned();
    let mut closed = open.clone();
    closed.access.topics = settings(&["/other/*"], &[]).access.topics;
    let jwks = Jwks::parse(format!("{{\"keys\":[{}]}}", signer.jwk("k")).as_bytes()).unwrap();
    let keys = Arc::new(load(&open.tokens, &[Arc::new(jwks)], read_file).unwrap().keys);
    let exp = World::new(1, kind(), patient()).sim.unix_s() + (1 << 20);
    let claims =
        format!("{{\"exp\":{exp},\"sub\":\"user-7\",\"stentor\":{{\"publish\":[\"/in/*\"]}}}}");
    let signed = signer.token(Some("k"), &claims);
    for (token, holder) in [(secret.as_str(), "scorer"), (&signed, "user-7")] {
        let mut world = World::new(1, kind(), open.clone());
        world.use_keys(Arc::clone(&keys));
        let head = format!(
            "PUT /in/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: 4\r\n\r\nab"
        );
        let (client, answer) = world.ask(PUBLIC, head.as_bytes());
        assert_eq!(answer, "");
        world.reload(closed.clone());
        world.use_keys(Arc::clone(&keys));
        let log = Arc::new(Log::default());
        tracing::subscriber::with_default(Arc::clone(&log), || {
            world.sim.write(client, b"cd");
            assert!(world.heard(client).starts_with("HTTP/1.1 403 "));
        });
        let log = log.0.lock().unwrap();
        assert!(log.contains(&format!("the token of {holder} does not allow")), "{log}");
        assert!(!log.contains(token), "{log}");
    }
}

/// Who came in where that took no token has none once it does.
#[test]
fn who_was_trusted_is_asked_for_a_token_once_one_is_needed() {
    let trusting = settings(&["/in/*"], &[]);
    let mut asking = trusting.clone();
    asking.access.control_token = true;
    let mut world = World::new(1, kind(), trusting);
    let head = "POST /-/publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 47\r\n\r\n";
    let line = "{\"topic\":\"/a\",\"data\":1}";
    let (bulk, answer) = world.ask(CONTROL, format!("{head}{line}\n").as_bytes());
    assert_eq!(answer, "");
    let head = "PUT /in/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n\r\nab";
    let (put, answer) = world.ask(CONTROL, head.as_bytes());
    assert_eq!(answer, "");
    world.reload(asking);
    world.sim.write(bulk, line.as_bytes());
    world.sim.write(put, b"cd");
    let answer = world.heard(bulk);
    assert!(answer.contains("\"published\":1,\"failed\":1"), "{answer}");
    assert!(world.heard(put).starts_with("HTTP/1.1 401 "));
}

/// Both patterns are covered in part, with the token and without; but not the same part.
#[test]
fn what_a_token_covers_of_a_part_is_sent() {
    let secret = Secret::make().unwrap();
    let settings = settings(&["/a/**", "/b/**"], &[(&secret, &["/a/**"])]);
    let mut world = World::new(1, kind(), settings);
    for topic in ["/a/x", "/b/x", "/c/x"] {
        world.publish(topic, format!("first{topic}").into_bytes(), ContentType::TEXT);
    }
    let get = format!(
        "GET /-/events?topic=/**&access_token={} HTTP/1.1\r\nHost: h\r\n\
         Accept: text/event-stream\r\n\r\n",
        secret.as_str()
    );
    let (client, answer) = world.ask(PUBLIC, get.as_bytes());
    assert!(answer.contains("{\"denied\":[],\"partial\":[\"/**\"]}"), "{answer}");
    for topic in ["/a/x", "/b/x", "/c/x"] {
        world.publish(topic, format!("second{topic}").into_bytes(), ContentType::TEXT);
    }
    let answer = answer + &world.heard(client);
    for (text, is_sent) in
        [("first/a", true), ("first/b", false), ("first/c", true), ("second/a", true)]
    {
        assert_eq!(answer.contains(text), is_sent, "{text}: {answer}");
    }
    assert!(!answer.contains("second/b") && answer.contains("second/c"), "{answer}");
}

/// A pattern that was promised whole is not cut down since another one was promised in part.
#[test]
fn each_pattern_is_promised_by_itself() {
    let secrets = [Secret::make().unwrap(), Secret::make().unwrap(), Secret::make().unwrap()];
    let rules = ["/a/**", "/b/**"];
    let tokens: [(&Secret, &[&str]); 3] =
        [(&secrets[0], &["/b/**"]), (&secrets[1], &["/b/x"]), (&secrets[2], &["/b/**", "/z"])];
    let first = settings(&rules, &tokens);
    let second = settings(&["/a/**", "/b/**", "/c/x"], &tokens);
    let mut world = World::new(1, kind(), first.clone());
    let (client, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    let subscribe = |names: &str| format!("{{\"subscribe\":[{names}]}}");
    world.command(client, &[token(&secrets[0]), subscribe("\"/**\",\"/b/*\"")]);
    let heard = world.heard(client);
    assert!(heard.contains("{\"denied\":[],\"partial\":[\"/**\"]}"), "{heard}");
    world.command(client, &[token(&secrets[1])]);
    let heard = world.heard(client);
    assert!(heard.contains("does not cover what is subscribed to"), "{heard}");
    world.command(client, &[token(&secrets[2])]);
    assert!(world.heard(client).contains("{\"ok\":{}}"));
    // What it was told of goes on: only that.
    world.reload(second.clone());
    assert_eq!(world.heard(client), "");
    world.reload(first);
    world.command(client, &[subscribe("\"/c/*\"")]);
    world.heard(client);
    world.reload(second);
    world.heard(client);
    assert!(world.sim.ended(client), "a part of /c/* is kept back in silence");
}

/// What an unsubscribed pattern was told does not count for the one that has its number later.
#[test]
fn what_was_told_goes_with_its_subscription() {
    let world_of = |rules: &[&str]| settings(rules, &[]);
    let mut world = World::new(1, kind(), world_of(&["/a/x"]));
    let (client, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    world.command(client, &["{\"subscribe\":[\"/a/*\",\"/q\"]}".to_owned()]);
    assert!(world.heard(client).contains("\"partial\":[\"/a/*\"]"));
    world.command(client, &["{\"unsubscribe\":[\"/a/*\"]}".to_owned()]);
    world.heard(client);
    world.command(client, &["{\"subscribe\":[\"/c/*\"]}".to_owned()]);
    world.heard(client);
    world.reload(world_of(&["/c/x"]));
    world.heard(client);
    assert!(world.sim.ended(client), "a part of /c/* is kept back in silence");
}

/// Rules and permissions as many as there may well be, and a client that subscribes to as many
/// topics as it can.
fn many() -> (Secret, Settings, String) {
    let secret = Secret::make().unwrap();
    let rules: Vec<String> = (0..RULES).map(|n| format!("/r{n}/**")).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let settings = settings(&rules, &[(&secret, &rules)]);
    let names: Vec<String> = (0..TOPICS).map(|n| format!("\"/r{}/{n}\"", n % RULES)).collect();
    (secret, settings, format!("{{\"subscribe\":[{}]}}", names.join(",")))
}

/// Whoever renews a token for many topics, again and again, waits in line for it.
#[test]
fn renewals_are_charged_to_the_turn() {
    const RENEWALS: usize = 20;
    let (secret, settings, subscribe) = many();
    let mut world = World::new(1, kind(), settings);
    let (client, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    world.command(client, &[token(&secret), subscribe]);
    world.heard(client);
    world.command(client, &vec![token(&secret); RENEWALS]);
    let (mut renewed, mut before) = (0, world.totals().cost_commands);
    let began = before;
    for _ in 0..10_000 {
        world.turn();
        let after = world.totals().cost_commands;
        // One step may go beyond what a turn has room for, and no other follows.
        assert!(after - before < 2 * EACH_COST, "a turn's work is {}", after - before);
        before = after;
        renewed += String::from_utf8_lossy(&world.sim.read(client)).matches("{\"ok\":{}}").count();
        if renewed == RENEWALS {
            break;
        }
    }
    assert_eq!(renewed, RENEWALS);
    assert!(before - began > RENEWALS as u64 * EACH_COST, "renewals cost {}", before - began);
}

/// Looking at readers again takes turns after a reload, and next to nothing when keys change.
#[test]
fn a_reload_looks_at_few_large_readers_in_a_turn() {
    const READERS: usize = 4;
    let (secret, settings, subscribe) = many();
    let mut world = World::new(1, kind(), settings.clone());
    let clients: Vec<Client> = (0..READERS)
        .map(|_| {
            let (client, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
            world.command(client, &[token(&secret), subscribe.clone()]);
            world.heard(client);
            client
        })
        .collect();
    world.rekey(&settings);
    world.turn();
    assert!(!world.worker.is_judging(), "what is read was compared, though only keys changed");
    world.reload(settings.clone());
    for _ in 0..READERS - 1 {
        world.turn();
        assert!(world.worker.is_judging(), "many are looked at in one turn");
        // As long as rules are to be looked at, keys do not make that less.
        world.rekey(&settings);
    }
    world.settle();
    assert!(!world.worker.is_judging());
    assert!(clients.iter().all(|&client| !world.sim.ended(client)));
}

const RULES: usize = 50;
const TOPICS: usize = 1_000;

/// What it costs at least to compare all that is read with all rules and permissions.
const EACH_COST: u64 = (TOPICS * 2 * RULES * 20) as u64;

const STREAM: &[u8] = b"GET /small HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n";

#[test]
fn a_reload_ends_few_streams_a_turn() {
    let secret = Secret::make().unwrap();
    let mut world = World::new(1, kind(), settings(&[], &[]));
    for _ in 0..2 * EXPELLED_PER_TURN {
        world.ask(PUBLIC, STREAM);
    }
    world.reload(settings(&["/**"], &[(&secret, &["/**"])]));
    world.turn();
    assert_eq!(world.totals().readers_expired, EXPELLED_PER_TURN as u64);
    world.settle();
    assert_eq!(world.totals().readers_expired, 2 * EXPELLED_PER_TURN as u64);
}

#[test]
fn streams_that_a_reload_ends_are_told_why() {
    let secret = Secret::make().unwrap();
    let mut world = World::new(1, kind(), settings(&[], &[]));
    let (events, _) = world.ask(PUBLIC, STREAM);
    let (frames, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    world.command(frames, &["{\"subscribe\":[\"/small\"]}".to_owned()]);
    world.heard(frames);
    world.reload(settings(&["/**"], &[(&secret, &["/**"])]));
    assert!(world.heard(events).contains("{\"end\":{\"reason\":\"access_changed\"}}"));
    let close = world.sim.read(frames);
    assert!(close.starts_with(&[0x88]) && close[2..4] == 4401_u16.to_be_bytes(), "{close:?}");
}

/// A world in which a token reads `/in/**` and follows everything, and the token's field.
fn world_of_reader(window_bytes: usize) -> (World, String) {
    let secret = Secret::make().unwrap();
    let mut settings = settings(&["/in/**"], &[(&secret, &["/**"])]);
    settings.access.control_token = true;
    let plain = Parts { layers: Layers::Plain, ..Parts::default() };
    let world = World::of(plain, 1, Faults { window_bytes, ..kind() }, settings);
    // More than is looked at without a place in the queue.
    for _ in 0..20 {
        world.publish("/in/a", b"before".to_vec(), ContentType::TEXT);
    }
    (world, format!("Authorization: Bearer {}\r\n", secret.as_str()))
}

/// The key of the token goes, and then something is published. Returns all that the client gets.
fn received_after_revocation(world: &mut World, client: Client) -> String {
    world.use_keys(
        PreparedKeys::read(&settings(&["/in/**"], &[]).tokens, Vec::new()).unwrap().keys(),
    );
    // The recheck passes each connection before its socket or its queue has room.
    world.turn();
    world.publish("/in/a", b"SECRET".to_vec(), ContentType::TEXT);
    world.sim.stall(client, false);
    let heard = |_: u8| world.heard(client);
    (0..100).map(heard).collect()
}

#[test]
fn blocked_poll_ends_with_its_key() {
    let (mut world, field) = world_of_reader(700);
    let client = world.sim.connect(PUBLIC);
    world.sim.stall(client, true);
    let seq = world.shared.hub.seq();
    let requests = format!(
        "GET /large HTTP/1.1\r\nHost: h\r\n\r\n\
         GET /in/a?wait=60&since=0badcafe-{seq} HTTP/1.1\r\nHost: h\r\n{field}\r\n"
    );
    world.sim.write(client, requests.as_bytes());
    world.settle();
    assert_eq!(world.totals().readers_long_poll, 1);
    let received = received_after_revocation(&mut world, client);
    assert!(!received.contains("SECRET"), "{received}");
    assert!(world.sim.was_reset(client) && world.totals().readers_expired == 1);
}

#[test]
fn queued_readers_end_with_their_key() {
    let events = "/-/events?topic=/in/**&since=0badcafe-1";
    for (role, target, expected) in [
        (PUBLIC, format!("{events}&wait=60"), "HTTP/1.1 401 "),
        (CONTROL, "/-/snapshot".to_owned(), "HTTP/1.1 200 "),
    ] {
        let (mut world, field) = world_of_reader(1 << 20);
        world.worker.exhaust_replays();
        let client = world.sim.connect(role);
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{field}\r\n");
        world.sim.write(client, request.as_bytes());
        world.settle_some(3);
        assert_eq!(world.totals().waiting_replays, 1, "{target}");
        let received = received_after_revocation(&mut world, client);
        assert!(received.starts_with(expected), "{target}: {received}");
        assert!(!received.contains("SECRET"), "{target}: {received}");
        assert_eq!(world.totals().readers_expired, 1, "{target}");
    }
}
