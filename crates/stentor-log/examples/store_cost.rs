//! What keeping a message on a disk costs: `store_cost [DIRECTORY]`, which must not exist yet and
//! should be on the disk in question. Takes some minutes and 2 GB, and tidies up.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use stentor_io::{Disk, DiskError, HostDisk, HostFile, Rng};
use stentor_log::{Piece, Recovery, Settings, Store};

/// A disk that counts.
#[derive(Clone)]
struct Counting(HostDisk, Rc<Counts>);

#[derive(Default)]
struct Counts {
    bytes: Cell<u64>,
    syncs: Cell<u64>,
}

impl Disk for Counting {
    type File = HostFile;

    fn list(&self) -> Result<Vec<(String, u64)>, DiskError> {
        self.0.list()
    }

    fn create(&self, name: &str, bytes: u64) -> Result<HostFile, DiskError> {
        self.0.create(name, bytes)
    }

    fn open(&self, name: &str) -> Result<HostFile, DiskError> {
        self.0.open(name)
    }

    fn read_at(&self, file: &HostFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        self.0.read_at(file, offset, into)
    }

    fn write_at(&self, file: &HostFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.1.bytes.set(self.1.bytes.get() + bytes.len() as u64);
        self.0.write_at(file, offset, bytes)
    }

    fn shorten(&self, file: &HostFile, bytes: u64) -> Result<(), DiskError> {
        self.0.shorten(file, bytes)
    }

    fn sync(&self, file: &HostFile) -> Result<(), DiskError> {
        self.1.syncs.set(self.1.syncs.get() + 1);
        self.0.sync(file)
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        self.0.sync_dir()
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.0.remove(name)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.0.free_bytes()
    }

    fn volume_bytes(&self) -> Result<u64, DiskError> {
        self.0.volume_bytes()
    }

    fn time(&self, file: &HostFile) -> Result<u64, DiskError> {
        self.0.time(file)
    }

    fn set_time(&self, file: &HostFile, unix_s: u64) -> Result<(), DiskError> {
        self.0.set_time(file, unix_s)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args().nth(1).map_or_else(|| "target/store_cost".into(), PathBuf::from);
    std::fs::create_dir(&root)?;
    floor(&root)?;
    for batch in [1, 64, 512, 4_096] {
        batches(&root, batch)?;
    }
    topics(&root)?;
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

/// Writes and syncs without a store.
fn floor(root: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let disk = HostDisk::open(&root.join("floor"), None)?;
    for bytes in [4 << 10, 64 << 10] {
        let piece = vec![1; bytes];
        let (writes, file) = (1_000, disk.create("a", (1_000 * bytes) as u64)?);
        for what in ["new", "written before"] {
            let mut times = Vec::new();
            for i in 0..writes {
                let begin = Instant::now();
                disk.write_at(&file, (i * bytes) as u64, &piece)?;
                disk.sync(&file)?;
                times.push(begin.elapsed());
            }
            println!("write and sync of {bytes} bytes, blocks {what}: {}", quantiles(&mut times));
        }
    }
    Ok(())
}

/// Messages in batches, each synced.
fn batches(root: &Path, batch: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (mut store, counts) = open(root, "batches", Settings::default())?;
    let mut rng = Rng::new(1);
    let messages = (batch * 2_000).min(2_000_000);
    let (mut seq, mut times) = (0, Vec::new());
    let (begin, cpu) = (Instant::now(), cpu_used());
    for _ in 0..messages / batch {
        for _ in 0..batch {
            seq += 1;
            let topic = rng.below(10_000);
            store.push(seq, |out| encode(topic, seq, out))?;
        }
        let begin = Instant::now();
        store.sync()?;
        times.push(begin.elapsed());
    }
    let (elapsed, cpu) = (begin.elapsed(), cpu_used() - cpu);
    println!(
        "batches of {batch}: {:.0} messages/s, {:.2} us of CPU and {:.0} bytes for each of {} with \
         100 of data; a sync {}",
        messages as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / messages as f64,
        counts.bytes.get() as f64 / messages as f64,
        ENTRY_BYTES,
        quantiles(&mut times)
    );
    store.close()?;
    std::fs::remove_dir_all(root.join("batches"))?;
    Ok(())
}

/// A million topics that are written over, with snapshots; then all is read.
fn topics(root: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings { log_bytes_min: 256 << 20, ..Settings::default() };
    let (mut store, counts) = open(root, "topics", settings)?;
    let mut rng = Rng::new(1);
    let mut values = vec![0; TOPICS];
    let (mut seq, mut snapshots, mut most) = (0, 0, 0);
    let (begin, cpu) = (Instant::now(), cpu_used());
    while seq < MESSAGES {
        for _ in 0..512 {
            seq += 1;
            let topic = if seq as usize <= TOPICS { seq as usize - 1 } else { rng.below(TOPICS) };
            values[topic] = seq;
            store.push(seq, |out| encode(topic, seq, out))?;
        }
        store.sync()?;
        if store.snapshot_is_due() {
            snapshots += 1;
            let mut writer = store.begin_snapshot()?;
            for slice in (0..TOPICS).collect::<Vec<_>>().chunks(6_000) {
                let mut bytes = Vec::new();
                for &topic in slice.iter().filter(|topic| values[**topic] > 0) {
                    encode(topic, values[topic], &mut bytes);
                }
                writer.payload(&bytes)?;
            }
            let snapshot = writer.end()?;
            most = most.max(used(root)?);
            store.adopt(snapshot)?;
        }
    }
    let (elapsed, cpu) = (begin.elapsed(), cpu_used() - cpu);
    println!(
        "{TOPICS} topics, {MESSAGES} messages, {snapshots} snapshots: {:.0} messages/s, {:.2} us \
         of CPU for each, {:.2} bytes written for a byte of entry in {} syncs, {} MB at most",
        MESSAGES as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / MESSAGES as f64,
        counts.bytes.get() as f64 / (MESSAGES * ENTRY_BYTES) as f64,
        counts.syncs.get(),
        most >> 20
    );
    drop(store);
    let disk = HostDisk::open(&root.join("topics"), None)?;
    let (begin, cpu) = (Instant::now(), cpu_used());
    let (mut entries, mut payload, mut total) = (0, 0, 0);
    let recovered = Recovery::open(disk)?.read(&mut |piece, progress| {
        match piece {
            Piece::Entry(..) => entries += 1,
            Piece::Payload(bytes) | Piece::Rest(bytes) => payload += bytes.len(),
            Piece::Hole => {}
        }
        total = progress.total;
        Ok(())
    })?;
    println!(
        "read: {entries} entries and a snapshot of {} MB, {} MB of files, in {:.2} s with {:.2} s \
         of CPU; up to number {}",
        payload >> 20,
        total >> 20,
        begin.elapsed().as_secs_f64(),
        (cpu_used() - cpu).as_secs_f64(),
        recovered.stored
    );
    Ok(())
}

type Opened = (Store<Counting>, Rc<Counts>);

fn open(root: &Path, name: &str, settings: Settings) -> Result<Opened, Box<dyn std::error::Error>> {
    let counts = Rc::new(Counts::default());
    let disk = Counting(HostDisk::open(&root.join(name), None)?, Rc::clone(&counts));
    let recovered = Recovery::open(disk)?.read(&mut |_, _| Ok(()))?;
    Ok((Store::begin(recovered, settings, 1), counts))
}

/// Something as long as a message of 100 bytes with a name of 26 is as an entry.
fn encode(topic: usize, seq: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'x'; ENTRY_BYTES as usize - 16]);
    out.extend_from_slice(&(topic as u64).to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
}

fn cpu_used() -> Duration {
    stentor_io::process_cpu(std::process::id()).expect("this process is there")
}

fn used(root: &Path) -> std::io::Result<u64> {
    let files = std::fs::read_dir(root.join("topics"))?;
    files.map(|file| Ok(file?.metadata()?.len())).sum()
}

fn quantiles(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    format!("p50 {} us, p99 {} us", at(50), at(99))
}

const ENTRY_BYTES: u64 = 138;
const TOPICS: usize = 1_000_000;
const MESSAGES: u64 = 8_000_000;
