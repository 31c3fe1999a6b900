//! Lives of a store on a simulated disk, one after the other, and what an oracle says to each.

use super::oracle::{Change, Oracle, ensure, put_value, read};
use crate::{DiskFaults, OpenError, Recovery, Settings, SimDisk, SnapshotWriter, Store, backup};
use stentor_io::Rng;

/// How one life of the store ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    PowerCut,
}

/// A store that is used as its seed says.
struct Life<'l> {
    rng: &'l mut Rng,
    disk: &'l SimDisk,
    store: Store<SimDisk>,
    settings: Settings,
    oracle: &'l mut Oracle,
    next_id: &'l mut u64,
    /// The last number that was given out, or may have been.
    last: u64,
    snapshot: Option<(SnapshotWriter<SimDisk>, u8)>,
}

/// Several lives, and the judgement of each. Returns how many there were.
pub(super) fn run(seed: u64) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new(seed ^ 0xd15c);
    let (mut oracle, mut next_id) = (Oracle::default(), 1);
    let lives = 1 + rng.below(6);
    let mut end = End::Killed;
    for life in 0..=lives {
        let is_last = life == lives;
        let starts = if is_last { DiskFaults::default() } else { faults(&mut rng) };
        disk.set_faults(starts);
        if !is_last && rng.percent(50) {
            disk.cut_power_after(1 + rng.below(150) as u64);
        }
        end = one_life(&mut rng, &disk, &mut oracle, &mut next_id, end, is_last)
            .map_err(|told| format!("life {life}: {told}"))?;
        match end {
            End::Killed => disk.kill(),
            End::PowerCut => disk.cut_power(),
        }
    }
    Ok(lives)
}

fn one_life(
    rng: &mut Rng,
    disk: &SimDisk,
    oracle: &mut Oracle,
    next_id: &mut u64,
    before: End,
    is_last: bool,
) -> Result<End, String> {
    let end = if rng.percent(60) { End::PowerCut } else { End::Killed };
    let (recovered, shown) = match read(disk) {
        Ok(read) => read,
        Err(OpenError::Disk(_)) if disk.is_down() => return Ok(worse(before, End::PowerCut)),
        Err(OpenError::Disk(error)) => {
            ensure!(!is_last, "a disk without faults fails: {error}");
            return Ok(worse(before, end));
        }
        Err(error) => return Err(format!("damage that nobody did: {error}")),
    };
    if let Ok((again, shown_again)) = read(disk) {
        let same = shown == shown_again && again.last == recovered.last;
        ensure!(same && again.lost == recovered.lost, "two recoveries differ");
    }
    oracle.judge(&recovered, &shown, before == End::PowerCut)?;
    let settings = Settings {
        segment_bytes: 400 + rng.below(3) as u64 * 400,
        buffer_bytes: 300,
        log_bytes_min: 1_500,
        reserve: 8 + rng.below(20) as u64,
    };
    let last = recovered.last;
    let store = Store::begin(recovered, settings, 0xe90c);
    let mut life = Life { rng, disk, store, settings, oracle, next_id, last, snapshot: None };
    if life.store.has_begun() {
        life.all_is_on_disk();
        // Until the first segment is there, so is nothing that has an epoch.
        life.oracle.epoch = Some(life.store.epoch());
    }
    let steps = life.rng.below(60);
    for _ in 0..steps {
        life.step()?;
        if disk.is_down() {
            return Ok(End::PowerCut);
        }
    }
    if life.store.refusal().is_some() {
        // What a sync could not write may be gone from the kernel as well.
        life.oracle.written = life.oracle.synced;
    }
    if is_last {
        disk.set_faults(DiskFaults::default());
        disk.set_capacity(u64::MAX);
        let healed = life.store.retry();
        ensure!(healed.is_ok() && life.store.refusal().is_none(), "not healed: {healed:?}");
    }
    if life.rng.percent(30) {
        return life.close(end);
    }
    Ok(end)
}

/// A start that did not come to anything leaves what the one before had left.
fn worse(before: End, end: End) -> End {
    if before == End::PowerCut { before } else { end }
}

/// What fails, and how often, in a stretch of a life: mostly nothing, now and then one thing very
/// often.
fn faults(rng: &mut Rng) -> DiskFaults {
    let mut percent = |of: usize| if rng.percent(30) { rng.below(of) as u8 } else { 0 };
    let some = DiskFaults {
        read_percent: percent(3),
        write_percent: percent(20),
        sync_percent: percent(40),
        names_percent: percent(30),
    };
    let often = 20 + rng.below(50) as u8;
    match rng.below(12) {
        0..6 => DiskFaults::default(),
        6..10 => some,
        10 => DiskFaults { sync_percent: often, ..DiskFaults::default() },
        _ => DiskFaults { names_percent: often, ..DiskFaults::default() },
    }
}

impl Life<'_> {
    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..45 => self.push()?,
            45..60 => self.write(),
            60..72 => self.sync()?,
            72..76 => {
                if self.store.witness().is_ok() {
                    self.all_is_on_disk();
                }
            }
            76..78 => self.note(),
            78..92 => self.go_on_with_snapshot()?,
            92..94 => {
                let faults = faults(self.rng);
                self.disk.set_faults(faults);
                let used: usize = self.disk.image().iter().map(|(_, bytes)| bytes.len()).sum();
                let full = used as u64 + self.rng.below(1_000) as u64;
                self.disk.set_capacity(if self.rng.percent(80) { u64::MAX } else { full });
            }
            94 => self.back_up()?,
            95 => self.hand_over()?,
            _ => {
                if self.store.refusal().is_some() && self.store.retry().is_ok() {
                    self.sync()?;
                }
            }
        }
        ensure!(self.store.synced() <= self.store.written(), "synced before it is written");
        Ok(())
    }

    /// Another process continues the store, and has no segment of its own yet.
    fn hand_over(&mut self) -> Result<(), String> {
        let Some(tip) = self.store.tip() else { return Ok(()) };
        match Recovery::open(self.disk.clone()).and_then(|found| found.continue_at(tip)) {
            Ok(recovered) => {
                self.snapshot = None;
                self.store = Store::begin(recovered, self.settings, 0);
                ensure!(self.store.last() == self.last, "handed over at {}", self.last);
            }
            Err(OpenError::Disk(_)) => {}
            Err(error) => return Err(format!("a handed over store is refused: {error}")),
        }
        Ok(())
    }

    fn push(&mut self) -> Result<(), String> {
        let takes_number = self.rng.percent(95) || self.oracle.changes.is_empty();
        let hole = if self.rng.percent(5) { self.rng.below(4) as u64 } else { 0 };
        let seq = self.last + if takes_number { 1 + hole } else { 0 };
        let (id, topic) = (*self.next_id, 1 + self.rng.below(TOPICS as usize) as u8);
        let change = Change { seq, takes_number, id, topic, padding: self.rng.below(70) };
        // A number that is not reserved is given to nobody.
        let pushed = self.store.push(seq, |out| change.encode(out));
        ensure!(
            pushed.is_ok() || seq > self.store.reserved() || self.store.is_full(),
            "{pushed:?}"
        );
        if pushed.is_ok() {
            *self.next_id += 1;
            if takes_number {
                (self.last, self.oracle.highest) = (seq, seq);
            }
            self.oracle.changes.push(change);
        }
        Ok(())
    }

    fn note(&mut self) {
        let seq = self.last + 1 + self.rng.below(3) as u64;
        if seq <= self.store.reserved() {
            self.store.note(seq);
            (self.last, self.oracle.highest) = (seq, seq);
            self.oracle.noted.push(seq);
        }
    }

    fn write(&mut self) {
        if self.store.write().is_ok() {
            self.oracle.written = self.oracle.changes.len();
        }
    }

    fn sync(&mut self) -> Result<(), String> {
        if self.store.sync().is_ok() {
            self.all_is_on_disk();
            let (synced, seq) = (self.store.synced(), self.oracle.changes.last());
            let seq = seq.map_or(0, |change| change.seq);
            ensure!(synced >= seq, "all is synced, and {synced} is told, not {seq}");
        }
        Ok(())
    }

    fn all_is_on_disk(&mut self) {
        // What is jumped over is so for good.
        self.oracle.highest = self.last;
        self.oracle.written = self.oracle.changes.len();
        self.oracle.synced = self.oracle.changes.len();
    }

    /// Begins a snapshot, or writes a part of it, or names it.
    fn go_on_with_snapshot(&mut self) -> Result<(), String> {
        let Some((mut writer, topic)) = self.snapshot.take() else {
            if self.rng.percent(30) || self.store.snapshot_is_due() {
                self.snapshot = self.store.begin_snapshot().ok().map(|writer| (writer, 0));
                if self.snapshot.is_some() {
                    self.all_is_on_disk();
                }
            }
            return Ok(());
        };
        if topic < TOPICS {
            let latest = self.oracle.changes.iter().rev();
            let upto = topic + 1 + self.rng.below(3) as u8;
            let mut slice = Vec::new();
            for topic in topic + 1..=upto.min(TOPICS) {
                let value = latest.clone().find(|change| change.topic == topic);
                value.iter().for_each(|value| put_value(topic, value.id, value.seq, &mut slice));
            }
            match writer.payload(&slice) {
                Ok(()) => self.snapshot = Some((writer, upto.min(TOPICS))),
                Err(_) => writer.give_up(),
            }
            return Ok(());
        }
        let adopted = writer.end().and_then(|snapshot| self.store.adopt(snapshot));
        if adopted.is_ok() {
            self.all_is_on_disk();
        }
        Ok(())
    }

    /// Copies what is on the disk, while the store is in use and changes, and judges the copy.
    fn back_up(&mut self) -> Result<(), String> {
        let least = self.oracle.synced;
        let opened = Recovery::open_in_use(self.disk.clone());
        let changes = self.rng.below(3);
        for _ in 0..changes {
            self.push()?;
            self.sync()?;
            self.go_on_with_snapshot()?;
        }
        let most = self.oracle.changes.len();
        let copy = SimDisk::new(1);
        match opened.and_then(|recovery| backup(recovery, &copy, 0xbac)) {
            Err(OpenError::Disk(_)) => return Ok(()),
            // Files went away or were written over: it is to be begun anew.
            Err(OpenError::Damaged(_)) if changes > 0 => return Ok(()),
            Err(error) => return Err(format!("a backup finds damage that nobody did: {error}")),
            Ok(()) => {}
        }
        let (recovered, shown) = read(&copy).map_err(|error| format!("a backup: {error}"))?;
        let count = self.oracle.prefix(&shown).map_err(|told| format!("a backup: {told}"))?;
        ensure!((least..=most).contains(&count), "a backup has {count} of {least}");
        ensure!(recovered.epoch == Some(0xbac) && recovered.was_closed, "a backup is no store");
        Ok(())
    }

    fn close(mut self, end: End) -> Result<End, String> {
        self.oracle.written = self.oracle.synced;
        if self.store.close().is_ok() {
            self.oracle.written = self.oracle.changes.len();
            self.oracle.synced = self.oracle.changes.len();
            self.oracle.highest = self.last;
            self.oracle.is_closed = true;
            return Ok(if self.disk.is_down() { End::PowerCut } else { end });
        }
        let mut life = self;
        let takes_more = life.store.reserved() > life.store.last();
        ensure!(life.store.is_broken() || !takes_more, "it takes more though it may have ended");
        for _ in 0..life.rng.below(30) {
            life.step()?;
            if life.disk.is_down() {
                return Ok(End::PowerCut);
            }
        }
        if life.store.refusal().is_some() {
            life.oracle.written = life.oracle.synced;
        }
        Ok(if life.disk.is_down() { End::PowerCut } else { end })
    }
}

/// A store with some of everything in it, and its changes: a snapshot, several segments, one that
/// was written over, one that a failed sync ended, numbers that were rolled back.
pub(super) fn sample() -> (SimDisk, Vec<Change>) {
    let disk = SimDisk::new(7);
    let settings =
        Settings { segment_bytes: 700, buffer_bytes: 300, log_bytes_min: 1_000, reserve: 100 };
    let (recovered, _) = read(&disk).unwrap();
    let mut store = Store::begin(recovered, settings, EPOCH);
    let mut changes: Vec<Change> = Vec::new();
    let mut skipped = 0;
    for id in 1..=60 {
        if id == 30 {
            drop(store);
            let (recovered, _) = read(&disk).unwrap();
            skipped = recovered.last - 2 * id;
            store = Store::begin(recovered, settings, 0);
        }
        let (seq, topic) = (skipped + 2 * id, 1 + (id % 7) as u8);
        let change = Change { seq, takes_number: true, id, topic, padding: (id % 30) as usize };
        store.push(seq, |out| change.encode(out)).unwrap();
        changes.push(change);
        if id == 45 {
            disk.set_faults(DiskFaults { sync_percent: 100, ..DiskFaults::default() });
            store.sync().unwrap_err();
            disk.set_faults(DiskFaults::default());
            store.retry().unwrap();
        } else if id % 3 == 2 {
            store.sync().unwrap();
        }
        if id == 20 || id == 35 {
            let mut writer = store.begin_snapshot().unwrap();
            for topic in 1..=TOPICS {
                let value = changes.iter().rev().find(|change| change.topic == topic);
                let mut piece = Vec::new();
                value.iter().for_each(|value| put_value(topic, value.id, value.seq, &mut piece));
                writer.payload(&piece).unwrap();
            }
            let snapshot = writer.end().unwrap();
            store.adopt(snapshot).unwrap();
        }
    }
    store.sync().unwrap();
    store.witness().unwrap();
    (disk, changes)
}

pub(super) const EPOCH: u32 = 0x5f3a_09c1;

pub(super) const TOPICS: u8 = 10;
