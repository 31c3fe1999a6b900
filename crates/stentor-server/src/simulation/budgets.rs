//! Work classes under attack: only admitted work is done and charged, and every connection has one
//! place in a queue.

use super::codec::{COMMANDER, TEXT, put_frame};
use super::net::{Client, Layers};
use super::{CONTROL, FILES, PUBLIC, Parts, World, handover, kind, patient};
use crate::budget::WorkClass;
use crate::limits::{LINE_COST_PER_TURN, MANY_BYTES_MAX, PART_BYTES};
use stentor_config::{Mount, Settings};
use stentor_hub::ContentType;
use stentor_io::{Faults, Peer, Rng};

fn world(settings: Settings) -> World {
    World::of(Parts::over(Layers::Plain), 1, kind(), settings)
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

/// A request for a stream, or a long-poll, of so many topics.
fn events(prefix: &str, topics: usize) -> Vec<u8> {
    let topics: String = (0..topics).map(|n| format!("topic=/{prefix}{n}&")).collect();
    get(&format!("/-/events?{topics}"))
}

impl World {
    fn clients<const N: usize>(&mut self) -> [Client; N] {
        let clients = [(); N].map(|()| self.sim.connect(PUBLIC));
        self.settle();
        clients
    }

    /// An iteration in which the worker hears of all that clients have sent.
    fn long_turn(&mut self) {
        let World { sim, worker, .. } = self;
        while sim.turn(worker) {}
        worker.read_mailbox(sim);
        worker.after_turn(sim);
    }
}

/// Sixteen short names cost the commands of WebSockets nothing.
#[test]
fn requests_for_several_topics_leave_commands_their_budget() {
    let mut world = world(patient());
    let (socket, _) = world.ask(PUBLIC, COMMANDER.as_bytes());
    let attackers: [Client; 16] = world.clients();
    let before = world.totals();
    for _ in 0..20 {
        for &client in &attackers {
            world.sim.write(client, &events("t", 16).repeat(8));
        }
        world.long_turn();
    }
    let after = world.totals();
    assert_eq!(after.cost_commands, before.cost_commands);
    let spent = after.cost_requests - before.cost_requests;
    assert!(spent > LINE_COST_PER_TURN as u64, "to join costs something: {spent}");
    assert!(after.waiting_requests > 0, "none of them waits");
    let mut ping = Vec::new();
    put_frame(&mut ping, &mut Rng::new(1), TEXT, true, b"{\"id\":1}");
    world.sim.write(socket, &ping);
    world.long_turn();
    assert!(world.sim.read(socket).ends_with(b"{\"ok\":{\"id\":1}}"));
}

/// The response of a long-poll is made only if its class has budget left.
#[test]
fn an_iteration_makes_few_large_responses_of_long_polls() {
    let mut world = world(patient());
    for n in 0..8 {
        world.publish(&format!("/p{n}"), vec![b'x'; 60_000], ContentType::TEXT);
    }
    let attackers: [Client; 16] = world.clients();
    let mut before = world.totals().cost_replays;
    for _ in 0..20 {
        for &client in &attackers {
            world.sim.write(client, &events("p", 8));
        }
        world.long_turn();
        let after = world.totals().cost_replays;
        let spent = (after - before) as usize;
        assert!(spent < 3 * LINE_COST_PER_TURN, "an iteration has spent {spent}");
        before = after;
    }
    let totals = world.totals();
    assert!(totals.waiting_replays + totals.waiting_requests > 0, "none of them waits");
    world.settle();
    for client in attackers {
        let answers = String::from_utf8(world.sim.read(client)).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 20);
    }
}

/// The response to a request with a body is made when the body is complete, and admitted then.
#[test]
fn a_body_of_one_byte_does_not_pass_the_queue() {
    let mut world = world(patient());
    world.publish("/half", vec![b'"'; LINE_COST_PER_TURN / 2], ContentType::TEXT);
    let attackers: [Client; 20] = world.clients();
    let request =
        b"GET /-/values?topic=/half HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx".as_slice();
    attackers.iter().for_each(|&client| world.sim.write(client, request));
    world.long_turn();
    let totals = world.totals();
    assert!(totals.waiting_requests > 15, "{} wait", totals.waiting_requests);
    world.settle();
    for client in attackers {
        assert!(world.sim.read(client).ends_with(b"\\\"\"}"));
    }
    assert!(world.totals().cost_requests > 20 * LINE_COST_PER_TURN as u64);
}

/// Whatever becomes of a connection, its place in a queue does not outlive it.
#[test]
fn a_connection_that_is_reset_leaves_its_queue() {
    let mut world = world(patient());
    world.publish("/half", vec![b'"'; LINE_COST_PER_TURN / 2], ContentType::TEXT);
    let request = get("/-/values?topic=/half");
    let honest: [Client; 3] = world.clients();
    honest.iter().for_each(|&client| world.sim.write(client, &request));
    for _ in 0..20 {
        let attacker = world.sim.connect(PUBLIC);
        world.sim.write(attacker, &request.repeat(2));
        let World { sim, worker, .. } = &mut world;
        while sim.turn(worker) {}
        sim.reset_client(attacker);
        while sim.turn(worker) {}
    }
    let attacker = world.sim.connect(PUBLIC);
    world.sim.write(attacker, &request);
    let World { sim, worker, .. } = &mut world;
    while sim.turn(worker) {}
    worker.after_turn(sim);
    let waiting = world.totals().waiting_requests;
    assert!(waiting <= 4, "{waiting} of four connections wait");
    world.settle();
    for client in honest.into_iter().chain([attacker]) {
        assert!(world.sim.read(client).ends_with(b"\\\"\"}"));
    }
}

/// Another process may have packed places of connections that have gone, or the same one twice.
#[test]
fn queues_are_rebuilt_from_the_records_by_another_process() {
    let mut world = world(patient());
    world.publish("/half", vec![b'"'; LINE_COST_PER_TURN / 2], ContentType::TEXT);
    let clients: [Client; 20] = world.clients();
    let request = b"HEAD /-/values?topic=/half HTTP/1.1\r\nHost: h\r\n\r\n";
    clients.iter().for_each(|&client| world.sim.write(client, request));
    let World { sim, worker, .. } = &mut world;
    while sim.turn(worker) {}
    let waiting: Vec<Peer> = worker.waiting(WorkClass::Requests);
    assert!(waiting.len() > 2);
    for peer in [waiting[0], Peer::from_index(77)] {
        worker.enter_queue(WorkClass::Requests, peer);
    }
    let packed = handover::packed(worker, sim).unwrap();
    let mut next = handover::new_worker(&world, &world.mailbox);
    handover::unpack(&mut next, &world.sim, &packed).unwrap();
    assert_eq!(next.waiting(WorkClass::Requests), waiting);
}

#[test]
fn the_list_of_a_directory_waits_in_the_queue_of_requests() {
    let mut settings = patient();
    settings.mounts.push(Mount { listing: true, ..Mount::new("/files/", FILES) });
    let mut world = world(settings);
    world.publish("/half", vec![b'"'; LINE_COST_PER_TURN], ContentType::TEXT);
    let [hungry, other, visitor] = world.clients();
    for (client, target) in
        [(hungry, "/-/values?topic=/half"), (other, "/-/values?topic=/half"), (visitor, "/files/")]
    {
        world.sim.write(client, &get(target));
        let World { sim, worker, .. } = &mut world;
        while sim.turn(worker) {}
    }
    world.long_turn();
    assert!(world.sim.read(visitor).is_empty(), "two large requests came before");
    let before = world.totals().cost_requests;
    world.settle();
    let list = String::from_utf8(world.sim.read(visitor)).unwrap();
    assert!(list.contains("large.txt") && world.totals().cost_requests > before, "{list}");
}

/// The loader lists the directory. What is joined and sent after that is charged to the class.
#[test]
fn directory_lists_are_charged_to_requests() {
    let mut settings = patient();
    settings.mounts.push(Mount { listing: true, ..Mount::new("/files/", FILES) });
    let mut world = world(settings);
    world.hung_mounts = 1;
    let (client, answer) = world.ask(PUBLIC, &get("/files/"));
    assert_eq!(answer, "");
    let before = world.totals().cost_requests;
    world.hung_mounts = 0;
    world.settle();
    let list = String::from_utf8(world.sim.read(client)).unwrap();
    let charged = world.totals().cost_requests - before;
    assert!(list.contains("large.txt") && charged > 200, "{charged}: {list}");
}

/// However much a request asks for, no step of its answer costs more than an iteration may.
#[test]
fn no_step_of_a_large_answer_is_large() {
    let mut settings = patient();
    settings.mounts.push(Mount { listing: true, ..Mount::new("/files/", FILES) });
    let mut world = world(settings);
    let value_bytes = MANY_BYTES_MAX / 8 - 100;
    let mut topics = String::new();
    for n in 0..8 {
        world.publish(&format!("/v{n}"), vec![b'x'; value_bytes], ContentType::TEXT);
        topics += &format!("&topic=/v{n}");
    }
    for (target, part) in [
        (format!("/-/values?{topics}"), "\"/v7\":\"x"),
        (format!("/-/events?{topics}&wait=9"), "\"topic\":\"/v7\""),
        ("/files/".to_owned(), "large.txt"),
    ] {
        let (_, answer) = world.ask(PUBLIC, &get(&target));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(part), "{target}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{target}: {head}");
    }
    let largest = world.worker.largest_step();
    assert!((100_000..=4 * LINE_COST_PER_TURN).contains(&largest), "a step has cost {largest}");
}

/// A connection in the middle of a large answer holds messages, and at most one part of the body.
#[test]
fn large_answers_to_slow_clients_take_little_memory() {
    let faults = Faults { window_bytes: 1_000, ..kind() };
    let mut world = World::of(Parts::over(Layers::Plain), 1, faults, patient());
    for n in 0..8 {
        world.publish(&format!("/v{n}"), vec![b'x'; 100_000], ContentType::TEXT);
    }
    let topics: String = (0..8).map(|n| format!("&topic=/v{n}")).collect();
    let before = world.totals().readers_bytes;
    let slow: [Client; 10] = world.clients();
    for &client in &slow {
        world.sim.write(client, &get(&format!("/-/values?{topics}")));
    }
    world.long_turn();
    for _ in 0..100 {
        world.turn();
    }
    let held = (world.totals().readers_bytes - before) as usize;
    assert!(held > 0 && held < slow.len() * 2 * PART_BYTES, "{held} bytes");
    // The values change while they are being sent. Each client is sent those that it asked for.
    for n in 0..8 {
        world.publish(&format!("/v{n}"), b"y".to_vec(), ContentType::TEXT);
    }
    for client in slow {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\"}") {
            world.settle();
            let read = world.sim.read(client);
            assert!(!read.is_empty(), "{} bytes, and no more", answer.len());
            answer.extend(read);
        }
        assert!(answer.len() > 800_000 && !answer.ends_with(b":\"y\"}"));
    }
    world.settle();
    assert_eq!(world.totals().readers_bytes, before);
}

/// A worker goes over while it makes large answers. Some of them wait for their clients, and some
/// in the queue.
#[test]
fn large_answers_go_over_to_another_process() {
    let topics: String = (0..8).map(|n| format!("&topic=/v{n}")).collect();
    for turns in 0..6 {
        let mut world = world(patient());
        for n in 0..8 {
            world.publish(&format!("/v{n}"), vec![b'x'; 100_000], ContentType::TEXT);
        }
        let clients: [Client; 12] = world.clients();
        let requests = ["", "Connection: close\r\n"].map(|fields| {
            format!("GET /-/values?{topics} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
        });
        for (client, request) in clients.iter().zip(requests.iter().cycle()) {
            world.sim.write(*client, request);
        }
        for _ in 0..turns {
            world.turn();
        }
        assert!(world.hand_over(0));
        for client in clients {
            let mut answer = Vec::new();
            while !answer.ends_with(b"\"}") {
                world.settle();
                let read = world.sim.read(client);
                assert!(!read.is_empty(), "after {turns}: {} bytes, and no more", answer.len());
                answer.extend(read);
            }
            assert!((800_000..801_000).contains(&answer.len()), "{} bytes", answer.len());
        }
    }
}

/// A socket with many streams has one share, as a socket with one.
#[test]
fn streams_of_a_socket_share_its_place_in_a_queue() {
    let mut world = World::of(Parts::over(Layers::Multiplexed), 1, kind(), patient());
    world.publish("/half", vec![b'x'; LINE_COST_PER_TURN / 2], ContentType::TEXT);
    let first = world.sim.connect(PUBLIC);
    let many: Vec<Client> = (0..8).map(|_| world.sim.connect_beside(first)).collect();
    let single = world.sim.connect_apart(PUBLIC);
    world.settle();
    // Responses that take work and have few bytes: no stream waits for its client.
    let request = b"HEAD /-/values?topic=/half HTTP/1.1\r\nHost: h\r\n\r\n";
    for &client in many.iter().chain([&single]) {
        world.sim.write(client, &request.repeat(60));
    }
    let answered = |world: &mut World, client| {
        let bytes = world.sim.read(client);
        memchr::memmem::find_iter(&bytes, b"HTTP/1.1 200 ").count()
    };
    let (mut of_single, mut of_many) = (0, 0);
    for _ in 0..100_000 {
        world.turn();
        of_single += answered(&mut world, single);
        of_many += many.iter().map(|&client| answered(&mut world, client)).sum::<usize>();
        if of_single >= 40 {
            break;
        }
    }
    assert!(of_single >= 40 && of_many < 2 * of_single, "{of_single} to {of_many}");
}

/// Resuming a few topics costs as much as looking them up, whatever else was published since.
#[test]
fn a_resume_of_topics_looks_at_no_changes_of_others() {
    let mut world = world(patient());
    for topic in ["/a0", "/a1"] {
        world.publish(topic, b"1".to_vec(), ContentType::TEXT);
    }
    let cursor = world.shared.hub.id(world.shared.hub.seq());
    for n in 0..3_000 {
        world.publish("/busy", n.to_string().into_bytes(), ContentType::TEXT);
    }
    world.publish("/a1", b"2".to_vec(), ContentType::TEXT);
    world.settle();
    let before = world.totals().cost_replays;
    let (_, answer) =
        world.ask(CONTROL, &get(&format!("/-/events?topic=/a0&topic=/a1&since={cursor}")));
    assert!(answer.contains("\"topic\":\"/a1\"") && !answer.contains("gap"), "{answer}");
    let spent = world.totals().cost_replays - before;
    assert!((500..20_000).contains(&spent), "{spent}");
}
