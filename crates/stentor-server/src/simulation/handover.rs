//! The worker is packed in the middle of everything, and another one goes on.
//!
//! Nobody may notice: what the other scripts check holds as it does without. Beside it the new
//! worker must count what the old one did, and be packed to the same bytes, unless readers have to
//! look for what they miss.

use super::codec::{COMMANDER, TEXT, put_frame};
use super::{FILES, World, kind, patient};
use crate::listeners::{CONTROL, PUBLIC};
use crate::mailbox::Mailbox;
use crate::stats::{Stats, Totals};
use crate::timers::TICK_MS;
use crate::worker::Worker;
use std::sync::Arc;
use stentor_config::{Mount, Settings};
use stentor_hub::ContentType;
use stentor_io::{Backend, Faults, File, Rng, mark};
use stentor_test::trace;

/// When workers are handed over in a run.
#[derive(Debug)]
pub(super) struct HandOvers {
    rng: Rng,
    percent: u8,
    /// Each leaves a subscriber behind that hears nothing.
    left: usize,
}

impl HandOvers {
    pub(super) fn new(seed: u64) -> HandOvers {
        let mut rng = Rng::new(seed ^ 0x0badface);
        HandOvers { percent: [0, 3, 20, 100][rng.below(4)], left: HAND_OVERS_MAX, rng }
    }

    /// Hands over, or not. `meanwhile` is what else happens when it is done.
    pub(super) fn play(&mut self, world: &mut World) {
        if self.left > 0 && self.rng.percent(self.percent) {
            let index = self.rng.below(world.workers());
            self.left -= usize::from(world.at(index, |world| world.hand_over(index)));
        }
    }
}

impl World {
    /// The worker, which has this number among all, is packed and ends; another goes on where it
    /// was. Returns false if it cannot be packed now.
    pub(crate) fn hand_over(&mut self, index: usize) -> bool {
        let published = self.shared.hub.seq();
        let Ok(packed) = packed(&mut self.worker, &self.sim) else { return false };
        if !self.sim.hand_over() {
            return false;
        }
        mark("worker-packed");
        trace::act(self.sim.now_ms(), format_args!("worker {index} is handed over"));
        let followers = self.worker.followers();
        let replays_waiting = self.worker.replays_waiting();
        let (before, routes) = (self.totals(), self.routes());
        let stats = Arc::clone(&self.shared.workers[index]);
        stats.forget();
        let mailbox = Arc::new(Mailbox::new().unwrap());
        std::mem::replace(&mut self.mailbox, Arc::clone(&mailbox)).close();
        let (shared, settings) = (Arc::clone(&self.shared), Arc::clone(&self.settings));
        // Another process has a table of its own.
        self.worker.leave_addresses();
        self.worker = Worker::new(shared, settings, stats, mailbox, packed.bytes.len() as u64);
        unpack(&mut self.worker, &self.sim, &packed).unwrap();

        let after = self.totals();
        assert_eq!(before.readers_sse, after.readers_sse);
        assert_eq!(before.readers_websocket, after.readers_websocket);
        assert_eq!(before.readers_long_poll, after.readers_long_poll);
        assert_eq!(before.connections_public, after.connections_public);
        assert_eq!(before.connections_control, after.connections_control);
        assert_eq!(before.connections_reading, after.connections_reading);
        // What followers were being sent ends behind what is on its way.
        let ended = after.connections_writing - before.connections_writing;
        assert!(ended <= followers as u64, "{ended} have to be sent something");
        assert_eq!(before.requests, after.requests);
        assert_eq!(before.bytes_heads, after.bytes_heads);
        assert_eq!(routes, self.routes());
        assert_eq!(before.fan_outs.buckets, after.fan_outs.buckets);
        let by_kind = |totals: &Totals| totals.requests_by_kind.map(|times| times.buckets);
        assert_eq!(by_kind(&before), by_kind(&after));
        // The transfer of a follower ends, and gives up its place in a queue.
        let nobody_missed_anything =
            self.worker.replays_waiting() == replays_waiting && followers == 0;
        let again = super::handover::packed(&mut self.worker, &self.sim).unwrap();
        if nobody_missed_anything && published == self.shared.hub.seq() {
            assert!(behind_counters(&packed) == behind_counters(&again), "it is not the same");
            let are_same = |(a, b)| Arc::ptr_eq(a, b);
            assert!(packed.files.iter().zip(&again.files).all(are_same));
            assert_eq!(packed.files.len(), again.files.len());
        }
        true
    }
}

/// A world whose clock is that far, with connections in every state in which one can be for long.
pub(crate) fn full_world(ticks: u64) -> World {
    let faults = Faults { window_bytes: 1_000, ..kind() };
    let mut settings = Settings { cors: patient().cors, ..Settings::default() };
    settings.mounts.push(Mount::new("/files/", FILES));
    settings.files.small_bytes_max = 100;
    settings.proxies.trusted.push("10.0.0.0/8".parse().expect("it is a network"));
    let mut world = World::new(1, faults, settings);
    world.sim.sleep(ticks * TICK_MS);
    for n in 0..20 {
        world.publish("/many/a", vec![b'a' + n; 100], ContentType::TEXT);
    }
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes()
    };
    let put = |fields: &str| format!("PUT /put HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
    let lines = b"POST /-/publish HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
        28\r\nnonsense\n{\"topic\":\"/b\",\"data\":1}\n{\"to";
    let mut commands = COMMANDER.as_bytes().to_vec();
    let mut rng = Rng::new(1);
    put_frame(&mut commands, &mut rng, TEXT, true, b"{\"subscribe\":[\"/many/*\",\"/none\"]}");
    put_frame(&mut commands, &mut rng, TEXT, true, b"{\"unsubscribe\":[]}");
    commands.truncate(commands.len() - 5);
    let sse = "Accept: text/event-stream\r\n";
    let requests: [(bool, u8, Vec<u8>); 15] = [
        (false, PUBLIC, b"GET /small".to_vec()),
        (false, PUBLIC, get("/small", "")),
        (true, PUBLIC, get("/text", "").repeat(2)),
        (true, PUBLIC, get("/files/large.txt", "Range: bytes=7-9006\r\n")),
        (true, PUBLIC, get("/-/events?topic=/**&since=0badcafe-3", sse)),
        (false, PUBLIC, get("/small", sse)),
        (false, PUBLIC, get("/-/events?topic=/small&topic=/many/**", sse)),
        (false, PUBLIC, [get("/small?wait=20", "If-None-Match: *\r\n"), get("/text", "")].concat()),
        (false, PUBLIC, get("/-/events?topic=/x&topic=/y&wait=20", "")),
        (false, PUBLIC, commands),
        (false, PUBLIC, get("/small", "Content-Length: 9\r\n")),
        (false, CONTROL, put("Content-Length: 90\r\nContent-Type: text/x\r\nStentor-Event: e\r\n")),
        (false, CONTROL, [&put("Transfer-Encoding: chunked\r\n")[..], b"9\r\nabc"].concat()),
        (false, CONTROL, lines.to_vec()),
        (false, CONTROL, b"nonsense\r\n".to_vec()),
    ];
    for (is_stalled, role, bytes) in requests {
        let client = world.sim.connect(role);
        world.sim.stall(client, is_stalled);
        world.sim.write(client, &bytes);
    }
    for header in [&b"PROXY TCP4 192"[..], b"PROXY TCP4 192.0.2.1 10.0.0.9 1 2\r\nGET /small"] {
        world.sim.connect_through(Some([10, 0, 0, 1].into()), header);
    }
    world.settle_within(1_000_000);
    assert_eq!(world.sim.open_sockets(), 17);
    world
}

/// A worker that is to be told what another one packed.
pub(crate) fn new_worker(world: &World, mailbox: &Arc<Mailbox>) -> Worker {
    let (shared, settings) = (Arc::clone(&world.shared), Arc::clone(&world.settings));
    Worker::new(shared, settings, Arc::new(Stats::default()), Arc::clone(mailbox), 1)
}

/// A worker as bytes, and what goes over beside them.
#[derive(Clone, Debug)]
pub(crate) struct PackedWorker {
    /// Parts, each behind its length.
    pub(crate) bytes: Vec<u8>,
    pub(crate) files: Vec<Arc<File>>,
}

/// Packs a worker.
///
/// # Errors
/// One sentence, if that cannot be now.
pub(crate) fn packed(worker: &mut Worker, io: &impl Backend) -> Result<PackedWorker, &'static str> {
    let heard_seq = worker.can_be_packed()?;
    let mut packed = PackedWorker { bytes: Vec::new(), files: Vec::new() };
    let sent = worker.pack(heard_seq, io.now_ms(), &mut |bytes, files| {
        packed.bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        packed.bytes.extend_from_slice(bytes);
        packed.files.extend(files.iter().map(Arc::clone));
        Ok(())
    });
    sent.expect("nothing fails here");
    Ok(packed)
}

/// Has a worker go on where the one ended that was packed.
///
/// # Errors
/// One sentence, if that is none.
pub(crate) fn unpack(
    worker: &mut Worker,
    io: &impl Backend,
    packed: &PackedWorker,
) -> Result<(), &'static str> {
    let mut unpacking = worker.begin_unpacking(io);
    let (mut rest, mut files) = (&packed.bytes[..], packed.files.clone());
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (part, behind) = behind.split_at_checked(length).ok_or("The part ends too early.")?;
        unpacking.part(worker, part, std::mem::take(&mut files))?;
        rest = behind;
    }
    let is_whole = rest.is_empty().then_some(()).ok_or("The length ends too early.");
    is_whole.and(unpacking.end(worker))
}

/// What was packed behind the counters, of which some have still to be measured.
fn behind_counters(packed: &PackedWorker) -> &[u8] {
    let (_, rest) = packed.bytes.split_at(HEADER_BYTES + 1);
    let (length, rest) = rest.split_first_chunk().unwrap();
    &rest[u32::from_le_bytes(*length) as usize..]
}

/// What a packed worker begins with: the length of a part, and what it is, in which version.
pub(crate) const HEADER_BYTES: usize = 4 + 8 + 2;

const HAND_OVERS_MAX: usize = 100;

#[cfg(test)]
mod tests;
