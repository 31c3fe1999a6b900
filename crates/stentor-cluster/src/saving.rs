//! What a node has on its own disk: a snapshot, with which it begins the next time.
//!
//! It is the file that a peer would be sent. The log has what came since, so nobody waits for it
//! to be written, and an old one means no more than that there is more to read. If there is none,
//! or it is damaged, the node begins as one without a disk does.

use crate::state::ClusterState;
use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stentor_hub::{Epoch, Hub, Id, Snapshot};
use stentor_io::{Disk, DiskError, HostDisk, monotonic_us, unix_s};
use stentor_log::{SnapshotDecoder, SnapshotWriter, open_replaced, replace};
use stentor_order::{ChangeQueue, HubChange};
use stentor_replication::SnapshotReader;
use twox_hash::XxHash3_64;

/// The thread that keeps what is in a hub. It does so once more when this is dropped, and ends.
pub(super) struct Saving {
    ends: Option<SyncSender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's own state.
struct Saver<D: Disk> {
    disk: D,
    hub: Arc<Hub>,
    state: Arc<ClusterState>,
    /// What was here when it was kept last.
    saved: Option<Id>,
    /// The name of the cluster that the directory has.
    named: Option<u64>,
}

/// Why nothing was kept: one sentence.
struct Unsaved(String);

impl<E: Display> From<E> for Unsaved {
    fn from(error: E) -> Unsaved {
        Unsaved(error.to_string())
    }
}

impl Saving {
    /// Begins, in a directory that is this node's.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(
        disk: HostDisk,
        hub: Arc<Hub>,
        state: Arc<ClusterState>,
    ) -> io::Result<Saving> {
        let (ends, is_over) = sync_channel(0);
        let saver = Saver { disk, hub, state, saved: None, named: None };
        let thread = thread::Builder::new().name("cluster-save".to_owned());
        let thread = thread.spawn(move || saver.run(&is_over))?;
        Ok(Saving { ends: Some(ends), thread: Some(thread) })
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        drop(self.ends.take());
        // If it has panicked, that was told.
        self.thread.take().map(JoinHandle::join);
    }
}

impl<D: Disk> Saver<D> {
    fn run(mut self, is_over: &Receiver<Infallible>) {
        let queue = ChangeQueue::new(&self.hub, None);
        let every = Duration::from_millis(self.state.settings.save_every_ms);
        let mut pause = every;
        loop {
            let is_last = is_over.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected);
            let begun_us = monotonic_us();
            self.save_what_is_new(&queue);
            if is_last {
                return;
            }
            let took = Duration::from_micros(monotonic_us() - begun_us);
            pause = pause_behind(took, every);
        }
    }

    /// Nothing is kept of a hub to which something is to come yet: what is on the disk is better.
    fn save_what_is_new(&mut self, queue: &ChangeQueue) {
        let here = self.hub.id(self.hub.seq());
        if !self.state.has_all() || self.state.status().freshness.is_old() {
            return;
        }
        // mutation: saved-as-new
        let as_of_unix_s =
            unix_s().saturating_sub(self.state.status().freshness.age_us() / 1_000_000);
        let cluster = self.state.status().cluster;
        if let Some(cluster) = cluster.filter(|_| self.named != cluster) {
            match keep_cluster(&self.disk, cluster) {
                Ok(()) => self.named = Some(cluster),
                Err(error) => return tracing::warn!("the name of this cluster: {error}"),
            }
        }
        let outcome = match self.saved == Some(here) {
            true => Ok(()),
            false => self.save(queue),
        };
        // mutation: unchanged-age
        match outcome.and_then(|()| Ok(set_time(&self.disk, as_of_unix_s)?)) {
            Ok(()) => {
                self.saved = Some(here);
                self.state.note_saved();
            }
            Err(Unsaved(reason)) => tracing::warn!("the snapshot of this node: {reason}"),
        }
    }

    fn save(&self, queue: &ChangeQueue) -> Result<(), Unsaved> {
        queue.open_for_copy(&self.hub);
        let outcome = save(&self.disk, &self.hub, queue, || {});
        queue.close(&self.hub);
        outcome
    }
}

/// How long to wait behind a snapshot that took so long to write.
fn pause_behind(took: Duration, every: Duration) -> Duration {
    every.max(took * PAUSE_FACTOR)
}

/// Has what is kept be as of this time, so that its age is known when a node begins with it.
fn set_time(disk: &impl Disk, unix_s: u64) -> Result<(), DiskError> {
    match open_replaced(disk)? {
        Some((file, _)) => disk.set_time(&file, unix_s),
        None => Ok(()),
    }
}

/// The text of the file with the name of the cluster. The name is followed by its checksum: a
/// damaged name must not pass for the name of another cluster, which the node would refuse to join.
fn cluster_text(cluster: u64) -> String {
    let name = format!("{cluster:016x}");
    let checksum = XxHash3_64::oneshot(name.as_bytes());
    format!("{name} {checksum:016x}\n")
}

/// Writes the name of the cluster beside its values.
fn keep_cluster(disk: &impl Disk, cluster: u64) -> Result<(), DiskError> {
    let text = cluster_text(cluster);
    let file = disk.create(CLUSTER_NEW, text.len() as u64)?;
    disk.write_at(&file, 0, text.as_bytes())?;
    disk.sync(&file)?;
    disk.rename(CLUSTER_NEW, CLUSTER)?;
    disk.sync_dir()
}

/// Reads the name of the cluster of the values in a directory. A new directory has none, and a
/// damaged name counts as none: the node takes the name from the stream, as a new node does.
///
/// # Errors
/// The disk fails.
pub(super) fn read_cluster(disk: &impl Disk) -> Result<Option<u64>, String> {
    let told = |error: DiskError| error.to_string();
    if !disk.list().map_err(told)?.iter().any(|(name, _)| name == CLUSTER) {
        return Ok(None);
    }
    let file = disk.open(CLUSTER).map_err(told)?;
    let mut text = [0; CLUSTER_BYTES];
    let read = disk.read_at(&file, 0, &mut text).map_err(told)?;
    let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
    let name = text.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let name = name.filter(|name| cluster_text(*name) == text);
    if name.is_none() {
        tracing::warn!("the file {CLUSTER} is damaged: the node takes the name from the stream");
    }
    Ok(name)
}

/// Writes a hub to a disk while it changes. `queue` is open, and gets the changes. Calls `between`
/// after each slice.
fn save(
    disk: &impl Disk,
    hub: &Hub,
    queue: &ChangeQueue,
    mut between: impl FnMut(),
) -> Result<(), Unsaved> {
    let mut slice = Vec::new();
    let mut slices = Snapshot::begin(hub, &mut slice);
    // Whatever life takes its place meanwhile: then there is no slice any more.
    let head = (hub.epoch().number(), slices.seq(), hub.rolled_back());
    replace(disk, head, |writer| {
        let mut is_more = true;
        while is_more {
            is_more = slices.write_slice(hub, &mut slice)?;
            writer.payload(&slice)?;
            slice.clear();
            between();
        }
        // Whatever was found in a topic has its number by now.
        let upto = hub.id(hub.notified_seq()).seq;
        put_changes(queue.take()?, slices.seq(), writer)?;
        Ok(upto)
    })
}

/// Writes the changes since `begin` after the snapshot.
fn put_changes<D: Disk>(
    changes: Vec<HubChange>,
    begin: u64,
    writer: &mut SnapshotWriter<D>,
) -> Result<(), Unsaved> {
    let (mut last, mut entry) = (begin, Vec::new());
    for change in changes {
        match &change {
            // The snapshot has it.
            HubChange::Event(event) if event.message.id().seq <= last => continue,
            HubChange::Event(event) => last = event.message.id().seq,
            // Rules have numbers of their own.
            HubChange::Rules(..) => {}
        }
        entry.clear();
        change.encode(&mut entry);
        writer.entry(last, &entry)?;
    }
    Ok(())
}

/// Reads what was kept, into a hub that `stage` makes for its life. Returns as of when it is, too,
/// in seconds since 1970; `None` if there is nothing.
///
/// # Errors
/// One sentence, if it cannot be read to its end.
pub(super) fn read_saved(
    disk: &impl Disk,
    stage: impl FnOnce(Epoch) -> Hub,
) -> Result<Option<(Hub, u64)>, String> {
    let told = |error: DiskError| error.to_string();
    let Some((file, _)) = open_replaced(disk).map_err(told)? else { return Ok(None) };
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = disk.read_at(&file, 0, &mut buffer).map_err(told)?;
    let mut decoder = SnapshotDecoder::new(READ_BYTES);
    // Whether the rest of it makes sense is seen below.
    let _ = decoder.read(&buffer[..bytes], &mut |_| Ok(()));
    let begun = decoder.begun().ok_or("it does not say of which life it is")?;
    let mut reader = SnapshotReader::new(stage(Epoch::from_number(begun.epoch)));
    let mut offset = 0;
    while bytes > 0 {
        reader.take(&buffer[..bytes])?;
        offset += bytes as u64;
        bytes = disk.read_at(&file, offset, &mut buffer).map_err(told)?;
    }
    let hub = reader.end().map_err(str::to_owned)?;
    Ok(Some((hub, disk.time(&file).map_err(told)?)))
}

/// So much longer than writing takes is the pause behind it, at least.
const PAUSE_FACTOR: u32 = 20;

const READ_BYTES: usize = 1 << 20;

/// The file that names the cluster of a directory.
const CLUSTER: &str = "cluster-name";
const CLUSTER_NEW: &str = "cluster-name.new";
/// The length of that file.
const CLUSTER_BYTES: usize = 34;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use stentor_config::Cluster as Settings;
    use stentor_hub::{Draft, Life, Limits, Precondition, Rule};
    use stentor_io::Rng;
    use stentor_log::SimDisk;
    use stentor_wire::target::TopicName;

    /// One whose numbers are not those of its ids.
    fn hub() -> Arc<Hub> {
        let rule = Rule { history: 5, ..Rule::default() };
        let life = Life { epoch: Epoch::from_number(7), base: 1_000 };
        Arc::new(Hub::of_life(life, vec![rule], Limits::default()))
    }

    fn publish(hub: &Hub, n: usize) {
        let topic = format!("/{}", n % 300);
        let topic = TopicName::parse(&topic).unwrap();
        if n % 5 == 4 {
            let _ = hub.delete(topic, Precondition::None, 1);
        } else {
            hub.publish(topic, Draft::new(n.to_string().into_bytes()), Precondition::None, 1)
                .unwrap();
        }
    }

    fn messages(hub: &Hub) -> Vec<(Id, String, Vec<u8>)> {
        let all = hub.kept().into_iter();
        all.map(|it| (it.message.id(), it.topic().to_owned(), it.message.data().to_vec())).collect()
    }

    fn read(disk: &SimDisk) -> Result<Option<Hub>, String> {
        let fresh = Hub::new(Epoch::from_number(1), Vec::new(), Limits::default());
        let kept = read_saved(disk, |epoch| fresh.stage(epoch, false))?;
        Ok(kept.map(|(hub, _)| hub))
    }

    #[test]
    fn what_is_kept_while_it_changes_is_what_was_there() {
        for seed in 1..40 {
            let (disk, hub, mut rng) = (SimDisk::new(seed), hub(), Rng::new(seed));
            assert!(read(&disk).unwrap().is_none());
            let before = rng.below(700);
            (0..before).for_each(|n| publish(&hub, n));
            hub.follow_rolled_back(&[3..=4]);
            let queue = ChangeQueue::new(&hub, None);
            queue.open_for_copy(&hub);
            publish(&hub, before);
            let (more, mut n) = (rng.below(300), before + 1);
            let saved = save(&disk, &hub, &queue, || {
                (n..n + more).for_each(|n| publish(&hub, n));
                n += more;
            });
            assert!(saved.is_ok());
            let kept = read(&disk).unwrap().unwrap();
            assert_eq!(messages(&kept), messages(&hub), "{seed}");
            assert_eq!(kept.id(kept.seq()), hub.id(hub.seq()), "{seed}");
            assert_eq!(kept.rolled_back(), [3..=4]);
        }
    }

    #[test]
    fn a_slow_snapshot_has_a_longer_pause() {
        let every = Duration::from_secs(60);
        let behind = |took_s| pause_behind(Duration::from_secs(took_s), every).as_secs();
        assert_eq!([0, 3, 4, 60].map(behind), [60, 60, 80, 1_200]);
    }

    #[test]
    fn what_was_there_before_it_began_is_in_it_once() {
        let (disk, hub) = (SimDisk::new(1), hub());
        let queue = ChangeQueue::new(&hub, None);
        queue.open_for_copy(&hub);
        let data = b"once and no more";
        let topic = TopicName::parse("/a").unwrap();
        hub.publish(topic, Draft::new(data.to_vec()), Precondition::None, 1).unwrap();
        assert!(save(&disk, &hub, &queue, || {}).is_ok());
        let (_, bytes) = disk.image().into_iter().next().unwrap();
        assert_eq!(bytes.windows(data.len()).filter(|window| window == data).count(), 1);
    }

    #[test]
    fn it_is_kept_at_the_end_and_where_something_is_new() {
        let (disk, hub) = (SimDisk::new(1), hub());
        let state = Arc::new(ClusterState::new(&Settings::default()).unwrap());
        let (queue, shared) = (ChangeQueue::new(&hub, None), Arc::clone(&hub));
        let state_of = Arc::clone(&state);
        let mut saver =
            Saver { disk: disk.clone(), hub: shared, state: state_of, saved: None, named: None };
        publish(&hub, 0);
        saver.save_what_is_new(&queue);
        assert!(read(&disk).unwrap().is_none(), "not all is here yet");
        state.has_all.store(true, Ordering::Release);
        state.note_begun(0);
        saver.save_what_is_new(&queue);
        assert!(read(&disk).unwrap().is_none(), "it is from the disk");
        state.status().freshness.old_us = 0;
        saver.save_what_is_new(&queue);
        let image = disk.image();
        assert_eq!(messages(&read(&disk).unwrap().unwrap()), messages(&hub));
        // What is not new is as of now all the same, and what is new may be old.
        let age_s = || {
            let (file, _) = open_replaced(&disk).unwrap().unwrap();
            unix_s().abs_diff(disk.time(&file).unwrap())
        };
        assert!(age_s() < 60);
        let (file, _) = open_replaced(&disk).unwrap().unwrap();
        disk.set_time(&file, 7).unwrap();
        saver.save_what_is_new(&queue);
        assert_eq!(disk.image(), image);
        assert!(age_s() < 60);
        publish(&hub, 1);
        state.status().freshness.here_us = monotonic_us() - 100_000_000;
        saver.save_what_is_new(&queue);
        assert!((100..160).contains(&age_s()));
        publish(&hub, 2);
        let (ends, is_over) = sync_channel(0);
        drop(ends);
        saver.run(&is_over);
        assert_eq!(messages(&read(&disk).unwrap().unwrap()), messages(&hub));
    }

    #[test]
    fn a_directory_has_the_name_of_its_cluster() {
        let disk = SimDisk::new(1);
        assert_eq!(read_cluster(&disk), Ok(None));
        for name in [7, u64::MAX] {
            keep_cluster(&disk, name).unwrap();
            assert_eq!(read_cluster(&disk), Ok(Some(name)));
        }
    }

    /// The node would refuse to join its own cluster, and stand still for good.
    #[test]
    fn a_damaged_name_counts_as_none() {
        let whole = cluster_text(7).into_bytes();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                for bytes in [damaged, whole[..at].to_vec()] {
                    let disk = SimDisk::of(1, &[(CLUSTER.to_owned(), bytes)]);
                    assert_eq!(read_cluster(&disk), Ok(None), "{at} {bit}");
                }
            }
        }
    }

    #[test]
    fn what_is_damaged_is_told() {
        let (disk, hub) = (SimDisk::new(1), hub());
        (0..50).for_each(|n| publish(&hub, n));
        assert!(save(&disk, &hub, &ChangeQueue::new(&hub, None), || {}).is_ok());
        let (name, bytes) = disk.image().into_iter().next().unwrap();
        for at in (0..bytes.len()).step_by(7) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(read(&SimDisk::of(1, &[(name.clone(), flipped)])).is_err(), "{at}");
            let cut = SimDisk::of(1, &[(name.clone(), bytes[..at].to_vec())]);
            assert!(read(&cut).is_err(), "{at}");
        }
    }
}
