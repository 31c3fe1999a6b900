//! Work classes under attack: only admitted work is done and charged, and every connection has one
//! place in a queue.

use super::codec::{COMMANDER, TEXT, put_frame};
use super::net::{Client, Layers};
use super::{CONTROL, FILES, PUBLIC, Parts, World, handover, kind, patient};
use crate::budget::WorkClass;
use crate::limits::LINE_COST_PER_TURN;
use stentor_config::{Mount, Settings};
use stentor_hub::ContentType;
use stentor_io::{Peer, Rng};

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
    put_frame(&mut ping, &mut Rng::new(1), TEXT, true, b"{\"ping\":1}");
    world.sim.write(socket, &ping);
    world.long_turn();
    assert!(world.sim.read(socket).ends_with(b"{\"pong\":1}"));
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
    assert!(world.totals().waiting_replays > 0, "none of them waits");
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
    let clients: [Client; 6] = world.clients();
    clients.iter().for_each(|&client| world.sim.write(client, &get("/-/values?topic=/half")));
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
    assert!(list.contains("large.txt") && charged > 500, "{charged}: {list}");
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
