//! The server with a store, on a simulated disk that does to it whatever a real one may.
//!
//! Publishers change topics of every promise, readers follow them, the disk fails and works again,
//! and the process ends in one way or another: it is stopped, it is killed, or the power is cut, in
//! the middle of a call to the disk or of the next start. The next life reads what is left, and the
//! same readers come back with their cursors. Whatever happens, these must hold:
//!
//! - what was acknowledged is there under its number, as far as its promise goes;
//! - no number is given out twice, in all lives, and EPOCH is one;
//! - a topic has the newest value that was stored, or none if a newer one was not to be stored;
//! - a reader sees everything behind its cursor or is told of a gap; that something was rolled back
//!   it is told exactly if what it saw last is no more;
//! - while a slow disk syncs, everything that needs no answer from it continues;
//! - a failing disk costs publishers an answer, and readers nothing; once it works, all is well.

mod chronicle;
mod publisher;
mod reader;
mod tests;

use super::handover::HandOvers;
use super::{Parts, World, kind, patient};
use chronicle::{Chronicle, End, Found, rules};
use publisher::Publisher;
use reader::Reader;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use stentor_hub::{Draft, Epoch, Hub, Keep, Limits, Op, Precondition};
use stentor_io::{Disk, DiskErrorKind, Rng, mark};
use stentor_log::{DiskFaults, OpenError, Recovery, Settings, SimDisk, Store, during_syncs};
use stentor_order::{Report, ReturnAddress};
use stentor_store::{Ending, Loaded, Pass, StoreState, Watch, Writer, load};
use stentor_wire::target::TopicName;

/// A run: a disk, and the server of one life after the other.
struct Stage {
    rng: Rng,
    disk: SimDisk,
    /// It has a fault, or had one and was not seen to work since.
    disk_is_bad: bool,
    chronicle: Chronicle,
    life: Life,
    publishers: Vec<Publisher>,
    readers: Vec<Reader>,
    /// What the rule that changes says.
    flip: Option<Keep>,
    now_ms: u64,
    /// Numbers the messages.
    number: u64,
    /// How many workers each life has.
    workers: usize,
    hand_overs: HandOvers,
    /// The percentage of the writer's steps in which each sync is slow.
    slow_percent: u8,
    /// The writer waits for a slow sync.
    is_syncing: bool,
    /// How many syncs had failed when all was last known to be stored.
    failed_syncs: u64,
}

/// A server, and those who write for it.
struct Life {
    world: World,
    state: Arc<StoreState>,
    /// `None` while it waits for a slow sync.
    writer: Option<Writer<SimDisk>>,
    pass: Option<Pass<SimDisk>>,
    watch: Watch,
}

/// One seed from the beginning to the end.
pub(super) fn run(seed: u64) {
    let mut stage = Stage::new(seed);
    for _ in 0..1 + stage.rng.below(4) {
        for _ in 0..stage.rng.below(150) {
            stage.turn(false);
            if stage.disk.is_down() {
                break;
            }
        }
        let end = stage.end_life();
        stage.begin_life(end);
    }
    stage.come_to_rest();
    stage.check_hub();
}

impl Stage {
    fn new(seed: u64) -> Stage {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(seed ^ 0x5eed);
        let mut chronicle = Chronicle::default();
        let begun = begin(&disk, rules(None)).unwrap_or_else(|error| panic!("{error:?}"));
        let workers = 1 + rng.below(3);
        let life = Life::new(begun, &mut chronicle, 0, seed, workers);
        let publishers = (0..1 + rng.below(4)).map(|_| Publisher::default()).collect();
        let readers = (0..1 + rng.below(4)).map(|_| Reader::new(&mut rng)).collect();
        #[rustfmt::skip]
        let mut stage = Stage {
            rng, disk, disk_is_bad: false, chronicle, life, publishers, readers, flip: None,
            now_ms: 0, number: 0, workers, hand_overs: HandOvers::new(seed),
            slow_percent: 0, is_syncing: false, failed_syncs: 0,
        };
        stage.slow_percent = [0, 5, 40][stage.rng.below(3)];
        // A reader behind number 0 may be sent the values, whatever came before them.
        let put = Op::Put(TopicName::parse("/memory/a").unwrap(), Draft::new(*b"first"));
        stage.commit(put);
        stage
    }

    /// Changes something, with no client that waits for it.
    fn commit(&self, op: Op<'_>) {
        let (sender, _) = mpsc::channel();
        let back = || ReturnAddress::Thread(sender.clone());
        let shared = &self.life.world.shared;
        let outcome = shared.committer.commit(op, Precondition::None, super::NOW_S, &back);
        assert!(outcome.is_some_and(|outcome| outcome.is_ok()));
    }

    /// Everybody does something. At rest nobody asks for anything.
    fn turn(&mut self, rests: bool) {
        if rests {
            self.release_publishers();
        } else {
            self.disturb();
        }
        let Stage { rng, chronicle, life, publishers, number, .. } = self;
        let (world, workers) = (&mut life.world, self.workers);
        for (index, publisher) in publishers.iter_mut().enumerate() {
            if !rests && rng.percent(30) {
                world.at(index % workers, |world| {
                    publisher.ask(&mut world.sim, rng, chronicle, number);
                });
            }
        }
        self.hand_overs.play(world);
        world.turn();
        chronicle.absorb(self.flip);
        if life.state.intake.disk_error().is_none() {
            self.failed_syncs = self.disk.failed_syncs();
        }
        let steps = !self.is_syncing && (rests || rng.percent(40));
        if steps {
            self.now_ms += rng.below(if rests { 200 } else { 60 }) as u64;
            match !rests && rng.percent(self.slow_percent) {
                true => self.step_slowly(),
                false => life.step(self.now_ms),
            }
        }
        let Stage { rng, chronicle, life, publishers, readers, .. } = self;
        if rests || rng.percent(30) {
            life.pass = life.pass.take().and_then(Pass::step).map(|(pass, _)| pass);
        }
        life.watch.look(self.now_ms);
        let is_stalled = life.state.intake.stalled_ms() > 0;
        let (world, disk_is_bad) = (&mut life.world, self.disk_is_bad || is_stalled);
        for (index, publisher) in publishers.iter_mut().enumerate() {
            world.at(index % workers, |world| {
                publisher.hear(&mut world.sim, chronicle, disk_is_bad);
            });
        }
        for (index, reader) in readers.iter_mut().enumerate() {
            world.at(index % workers, |world| {
                reader.play(&mut world.sim, rng, chronicle, rests);
            });
        }
    }

    /// A step of the writer in which each sync takes up to half a minute. Meanwhile the workers and
    /// the clients continue.
    fn step_slowly(&mut self) {
        mark("sync-slow");
        let mut writer = self.life.writer.take().expect("it does not wait already");
        let now_ms = self.now_ms;
        self.is_syncing = true;
        let writer = thread::scope(|scope| {
            let (begins, has_begun) = mpsc::channel();
            let (ends, has_ended) = mpsc::channel();
            let meanwhile = move || {
                let _ = begins.send(());
                let ended = has_ended.recv_timeout(STUCK);
                assert!(ended != Err(mpsc::RecvTimeoutError::Timeout), "all wait for the disk");
            };
            let step = scope.spawn(move || {
                during_syncs(meanwhile, || writer.step(Duration::ZERO, now_ms));
                writer
            });
            while has_begun.recv_timeout(STUCK).is_ok() {
                for _ in 0..self.rng.below(20) {
                    let ms = self.rng.below(1_500) as u64;
                    self.now_ms += ms;
                    self.life.world.at_all(|world| world.sim.sleep(ms));
                    self.turn(false);
                }
                let _ = ends.send(());
            }
            step.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        self.is_syncing = false;
        self.life.writer = Some(writer);
        self.life.take_pass();
    }

    /// The disk breaks or is mended, or the rules change.
    fn disturb(&mut self) {
        match self.rng.below(100) {
            0..2 => {
                let rng = &mut self.rng;
                let mut percent = || if rng.percent(50) { [5, 30, 100][rng.below(3)] } else { 0 };
                self.disk.set_faults(DiskFaults {
                    read_percent: percent(),
                    write_percent: percent(),
                    sync_percent: percent(),
                    names_percent: percent(),
                });
                self.disk_is_bad = true;
            }
            2 => {
                self.disk.set_capacity(u64::MAX);
                let used = u64::MAX - self.disk.free_bytes().unwrap();
                self.disk.set_capacity(used + self.rng.below(5_000) as u64);
                self.disk_is_bad = true;
            }
            3 => {
                self.disk.cut_power_after(1 + self.rng.below(40) as u64);
                self.disk_is_bad = true;
            }
            4..9 if self.disk_is_bad && !self.is_syncing => self.mend(),
            9..11 => {
                let keeps = [None, Some(Keep::None), Some(Keep::None), Some(Keep::Memory)];
                self.flip = keeps[self.rng.below(keeps.len())];
                self.commit(Op::Rules(rules(self.flip)));
            }
            // Publishers are held for a hand-over that comes to nothing.
            11..13 => self.life.world.at_all(|world| world.worker.hold_publishers()),
            13..20 => self.release_publishers(),
            _ => {}
        }
    }

    fn release_publishers(&mut self) {
        self.life.world.at_all(|world| world.worker.stand_still(false));
    }

    /// The disk works again, and with it publishing.
    fn mend(&mut self) {
        self.disk.set_faults(DiskFaults::default());
        self.disk.set_capacity(u64::MAX);
        if self.disk.is_down() {
            return;
        }
        self.disk.cut_power_after(u64::MAX);
        for _ in 0..2 {
            self.now_ms += 1_001;
            self.life.step(self.now_ms);
        }
        self.life.watch.look(self.now_ms);
        assert_eq!(self.life.state.intake.disk_error(), None);
        assert!(self.life.state.publish_complaints().is_empty());
        self.disk_is_bad = false;
    }

    /// The process ends.
    fn end_life(&mut self) -> End {
        let is_down = self.disk.is_down();
        let mut end = [End::Stop, End::Kill, End::PowerCut][self.rng.below(3)];
        if end == End::Stop && !is_down {
            if self.rng.percent(70) {
                self.mend();
            }
            for _ in 0..100_000 {
                if self.publishers.iter().all(Publisher::is_idle) {
                    break;
                }
                self.turn(true);
            }
            assert!(self.publishers.iter().all(Publisher::is_idle), "an answer is missing");
        }
        let Life { world, state, writer, pass, .. } = self.take_life();
        let mut writer = writer.expect("it waits for no sync");
        self.disk_is_bad |= self.disk.is_down();
        match end {
            End::Stop if !is_down => {
                state.intake.end(Ending::Stop);
                mark("server-stops");
                assert!(writer.step(Duration::ZERO, self.now_ms), "it does not end");
                let _ = writer.end();
                if self.disk_is_bad {
                    end = End::PowerCut;
                }
            }
            _ => {
                // What a disk that failed has forgotten nobody can promise.
                let has_failed =
                    state.intake.disk_error().is_some_and(|kind| kind != DiskErrorKind::Full);
                let has_forgotten = self.disk.failed_syncs() > self.failed_syncs;
                let is_forgotten = has_failed && (!is_down || has_forgotten);
                if end != End::Kill || is_forgotten {
                    end = End::PowerCut;
                }
                drop(writer);
            }
        }
        drop((world, pass));
        self.disk.set_faults(DiskFaults::default());
        self.disk.set_capacity(u64::MAX);
        match end {
            End::PowerCut if self.rng.percent(80) => self.disk.cut_power(),
            _ => self.disk.kill(),
        }
        end
    }

    /// The next process begins, perhaps more than once.
    fn begin_life(&mut self, end: End) {
        if self.rng.percent(20) {
            self.flip = [None, Some(Keep::None)][self.rng.below(2)];
        }
        let mut tries = 0;
        let begun = loop {
            if tries == 0 && self.rng.percent(30) {
                self.disk.cut_power_after(1 + self.rng.below(60) as u64);
            }
            match begin(&self.disk, rules(self.flip)) {
                Ok(begun) if !self.disk.is_down() => break begun,
                result => {
                    assert!(self.disk.is_down(), "it does not start: {:?}", result.err());
                    mark("start-crashes");
                    tries += 1;
                    if end == End::Kill || self.rng.percent(20) {
                        self.disk.kill();
                    } else {
                        self.disk.cut_power();
                    }
                }
            }
        };
        self.disk.cut_power_after(u64::MAX);
        self.disk_is_bad = false;
        self.chronicle.absorb(None);
        let Begun { found, .. } = &begun;
        let found = Found { lost: found.lost.clone(), was_tried: tries > 0, ..*found };
        self.chronicle.begin_life(end, found, &begun.hub);
        // It may be a life of no turn.
        self.chronicle.absorb(self.flip);
        let seed = self.rng.next_u64();
        self.life = Life::new(begun, &mut self.chronicle, self.now_ms, seed, self.workers);
        self.publishers.iter_mut().for_each(Publisher::begin_life);
        self.readers.iter_mut().for_each(Reader::leave);
    }

    /// Turns until everybody has everything.
    fn come_to_rest(&mut self) {
        self.mend();
        if self.disk.is_down() {
            return;
        }
        for _ in 0..RESTING_TURNS_MAX {
            self.turn(true);
            let is_missing = self.readers.iter().any(|it| it.missing(&self.chronicle).is_some());
            if !is_missing && self.publishers.iter().all(Publisher::is_idle) {
                return;
            }
        }
        let missing = self.readers.iter().find_map(|reader| reader.missing(&self.chronicle));
        panic!("it does not come to rest: {missing:?} {:?}", self.publishers);
    }

    /// What the hub has is what was published.
    fn check_hub(&self) {
        let hub = &self.life.world.shared.hub;
        for (topic, _) in chronicle::TOPICS {
            let newest = self.chronicle.newest(topic);
            let expected = newest.filter(|(_, entry)| entry.data.is_some()).map(|(seq, _)| seq);
            assert_eq!(hub.value(topic).map(|value| value.seq()), expected, "{topic}");
        }
    }

    /// The life, for its end; in its place is one that nobody sees.
    fn take_life(&mut self) -> Life {
        let begun = begin(&SimDisk::new(0), rules(None)).unwrap_or_else(|_| unreachable!());
        let other = Life::new(begun, &mut Chronicle::default(), 0, 0, 1);
        std::mem::replace(&mut self.life, other)
    }
}

impl Life {
    fn new(
        begun: Begun,
        chronicle: &mut Chronicle,
        now_ms: u64,
        seed: u64,
        workers: usize,
    ) -> Life {
        let Begun { hub, state, store, .. } = begun;
        chronicle.attach(&hub);
        let mut writer = Writer::new(store, Arc::clone(&state.intake), Arc::clone(&hub));
        writer.step(Duration::ZERO, now_ms);
        state.reading.end();
        let kept = Some((hub, Arc::clone(&state) as _));
        let parts = Parts { kept, workers, ..Parts::default() };
        let world = World::of(parts, seed, kind(), patient());
        let watch = Watch::new(&state.intake);
        Life { world, state, writer: Some(writer), pass: None, watch }
    }

    fn step(&mut self, now_ms: u64) {
        self.writer.as_mut().expect("it waits for no sync").step(Duration::ZERO, now_ms);
        self.take_pass();
    }

    /// Has a snapshot be written that the writer has begun.
    fn take_pass(&mut self) {
        if let Some(pass) = self.writer.as_mut().and_then(Writer::pass) {
            self.pass = Some(pass);
        }
    }
}

/// A store that was read into a hub.
struct Begun {
    hub: Arc<Hub>,
    state: Arc<StoreState>,
    store: Store<SimDisk>,
    found: Found,
}

/// What a start does.
fn begin(disk: &SimDisk, rules: Vec<stentor_hub::Rule>) -> Result<Begun, OpenError> {
    stentor_io::make_limits_small();
    let recovery = Recovery::open(disk.clone())?;
    let epoch = Epoch::parse(EPOCH).unwrap();
    let known = recovery.continued_epoch().map(Epoch::from_number);
    assert_eq!(known.unwrap_or(epoch), epoch, "EPOCH has changed");
    let hub = Arc::new(Hub::new(epoch, Vec::new(), Limits::default()));
    let Loaded { recovered, upto_generation } = load(recovery, &hub, super::NOW_S - 1, |_| {})?;
    let (stored, last, lost) = (recovered.stored, recovered.last, recovered.lost.clone());
    let store = Store::begin(recovered, SETTINGS, epoch.number());
    if let (false, Some(error)) = (store.has_begun(), store.refusal()) {
        return Err(error.clone().into());
    }
    let state = Arc::new(StoreState::new(usize::MAX, WAIT_MAX_MS));
    state.attach(&hub);
    hub.continue_by(&rules, upto_generation);
    Ok(Begun { hub, state, store, found: Found { stored, last, lost, was_tried: false } })
}

const EPOCH: &str = "0badcafe";

/// Small enough for everything to happen.
const SETTINGS: Settings =
    Settings { segment_bytes: 2_000, buffer_bytes: 600, log_bytes_min: 4_000, reserve: 100 };

/// The setting `store.wait_max`: some slow syncs take longer.
const WAIT_MAX_MS: u64 = 10_000;

/// When the server is taken to wait for the disk, in real time.
const STUCK: Duration = Duration::from_secs(60);

const RESTING_TURNS_MAX: usize = 20_000;
