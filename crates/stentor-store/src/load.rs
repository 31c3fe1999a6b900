//! Filling a hub from a store, before anybody may read.
//!
//! To read, verify and decode a log takes a third of the time that it takes to apply it. So one
//! thread does that, and another one what the entries say.

use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, Scope};
use stentor_hub::{Entry, Hub, Place, Restore, decode_entry};
use stentor_io::{Disk, limits_are_small};
use stentor_log::{OpenError, Piece, Progress, Recovered, Recovery};

/// What was read into a hub, and what follows from it.
pub struct Loaded<D: Disk> {
    /// What the log goes on with.
    pub recovered: Recovered<D>,
    /// Topics may follow rules up to this generation: see [`Hub::continue_by`].
    pub upto_generation: u64,
}

/// Reads a store into an empty hub that has its epoch, and no rules: those in force at any place
/// are in the store as well. It is `now_unix_s`; `progress` is told how far it is.
///
/// # Errors
/// What the store says, or a sentence about what is in it. The hub is of no use then.
pub fn load<D: Disk>(
    recovery: Recovery<D>,
    hub: &Hub,
    now_unix_s: u64,
    mut progress: impl FnMut(Progress),
) -> Result<Loaded<D>, OpenError> {
    let mut snapshot = None;
    // What a repair left may lack any part, and its EPOCH says so.
    let may_lack = recovery.is_whole();
    let (mut upto_seq, mut upto_generation) = (0, 0);
    let mut end = |snapshot: &mut Option<SnapshotLoader<'_>>| -> Result<(), String> {
        if let Some(snapshot) = snapshot.take() {
            (upto_seq, upto_generation) = snapshot.end()?;
        }
        Ok(())
    };
    let mut told = None;
    let read = thread::scope(|scope| {
        let mut log = EntryLoader::new(scope, hub);
        let read = recovery.read(&mut |piece, so_far| {
            // There is a clock in there, and a message is read sooner than one.
            if told.is_none_or(|told| so_far.read >= told + progress_bytes()) {
                told = Some(so_far.read);
                progress(so_far);
            }
            match piece {
                Piece::Payload(bytes) | Piece::Rest(bytes) => {
                    snapshot.get_or_insert_with(|| SnapshotLoader::begin(hub)).read(bytes)?;
                    fits(hub)?;
                }
                Piece::Hole => snapshot.get_or_insert_with(|| SnapshotLoader::begin(hub)).skip(),
                Piece::Entry(seq, bytes) => {
                    end(&mut snapshot)?;
                    let (entry, place) = decode_entry(bytes)?;
                    if !matches!(place, Place::Was(_)) {
                        return Err(MISPLACED.to_owned());
                    }
                    if log.is_at_a_batch() {
                        fits(hub)?;
                    }
                    log.apply(LoggedEntry { seq, entry: entry.into_owned(), place }, bytes.len());
                }
            }
            Ok(())
        });
        log.end();
        read
    });
    let mut recovered = read?;
    end(&mut snapshot).map_err(|reason| refused(&reason))?;
    // Some of the numbers were given to what is not stored.
    if recovered.last < upto_seq {
        if !may_lack {
            return Err(refused("the log behind the snapshot is too short"));
        }
        recovered.last = upto_seq;
    }
    hub.forget_unstored(recovered.last);
    hub.continue_after(recovered.last, recovered.lost.clone());
    // The server that a copy is of went on, and what was not written before a crash is no more.
    let goes_on = recovered.was_closed && !recovered.begins_life;
    let until = if goes_on || recovered.epoch.is_none() { 0 } else { now_unix_s };
    // mutation: copied-dates
    hub.doubt_dates(recovered.copied, until);
    Ok(Loaded { recovered, upto_generation })
}

/// Entries on their way into the hub, in their order.
struct EntryLoader<'s, 'h> {
    scope: &'s Scope<'s, 'h>,
    hub: &'h Hub,
    batch: Vec<LoggedEntry>,
    /// What it holds, roughly.
    bytes: usize,
    /// To the thread that applies them. There is none before the first batch is full.
    to: Option<SyncSender<Vec<LoggedEntry>>>,
}

/// An entry of the log.
struct LoggedEntry {
    seq: u64,
    entry: Entry<'static>,
    place: Place,
}

impl<'s, 'h> EntryLoader<'s, 'h> {
    fn new(scope: &'s Scope<'s, 'h>, hub: &'h Hub) -> EntryLoader<'s, 'h> {
        EntryLoader { scope, hub, batch: Vec::new(), bytes: 0, to: None }
    }

    /// Has an entry of so many bytes applied, soon.
    fn apply(&mut self, logged: LoggedEntry, bytes: usize) {
        self.batch.push(logged);
        self.bytes += bytes;
        if self.batch.len() >= batch_entries() || self.bytes >= BATCH_BYTES {
            self.hand_over();
        }
    }

    fn is_at_a_batch(&self) -> bool {
        self.batch.is_empty()
    }

    fn hand_over(&mut self) {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if self.to.is_none() {
            let (to, batches) = mpsc::sync_channel::<Vec<LoggedEntry>>(BATCHES);
            let hub = self.hub;
            let life = move || batches.into_iter().for_each(|batch| apply_all(hub, batch));
            let thread = thread::Builder::new().name("store-load".to_owned());
            self.to = thread.spawn_scoped(self.scope, life).is_ok().then_some(to);
        }
        match &self.to {
            // If that thread has panicked, whoever waits for it does so too.
            Some(to) => drop(to.send(batch)),
            None => apply_all(self.hub, batch),
        }
    }

    /// Nothing more comes. What is under way is applied when the scope ends.
    fn end(mut self) {
        match self.to {
            Some(_) => self.hand_over(),
            None => apply_all(self.hub, self.batch),
        }
    }
}

/// Fails once values alone exceed the limit.
fn fits(hub: &Hub) -> Result<(), String> {
    if hub.is_overfull() { Err(TOO_LARGE.to_owned()) } else { Ok(()) }
}

fn apply_all(hub: &Hub, batch: Vec<LoggedEntry>) {
    for LoggedEntry { seq, entry, place } in batch {
        if entry.topic().is_none() {
            // Under the rules before it, messages may have come that are not here.
            hub.forget_unstored(seq);
        }
        // What was applied before is not judged again.
        let _ = hub.apply(entry, place);
    }
    if hub.is_trim_due() {
        hub.trim_history();
    }
}

/// A snapshot that is being read, and what is left of the pieces so far.
struct SnapshotLoader<'h> {
    restore: Restore<&'h Hub>,
    rest: Vec<u8>,
}

impl<'h> SnapshotLoader<'h> {
    fn begin(hub: &'h Hub) -> SnapshotLoader<'h> {
        SnapshotLoader { restore: hub.restore(), rest: Vec::new() }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.rest.extend_from_slice(bytes);
        let used = self.restore.read(&self.rest)?;
        self.rest.drain(..used);
        Ok(())
    }

    /// A piece is missing, which was some slices of the snapshot.
    fn skip(&mut self) {
        self.rest.clear();
        self.restore.skip();
    }

    /// Up to which number the log has to be read, and which generation of rules there is.
    fn end(self) -> Result<(u64, u64), &'static str> {
        if !self.rest.is_empty() {
            return Err("the snapshot ends in the middle");
        }
        let restored = self.restore.finish()?;
        Ok((restored.upto_seq, restored.upto_generation))
    }
}

fn refused(reason: &str) -> OpenError {
    OpenError::Refused { file: "the snapshot".to_owned(), offset: 0, reason: reason.to_owned() }
}

/// How often it is told how far it is.
fn progress_bytes() -> u64 {
    if cfg!(test) || limits_are_small() { 1 } else { 1 << 20 }
}

/// A batch has so many entries, or so many bytes of them and one.
fn batch_entries() -> usize {
    if cfg!(test) || limits_are_small() { 8 } else { 512 }
}
const BATCH_BYTES: usize = 256 << 10;

/// So many batches wait at most.
const BATCHES: usize = 2;

/// The reason of a refusal by `fits`.
pub const TOO_LARGE: &str = "the values take more than limits.stored_bytes_max";
const MISPLACED: &str = "this does not belong here";

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{
        Draft, Entry, Epoch, Keep, Limits, Mode, Op, Pattern, Precondition, Rule,
        Snapshot as Slices, Span, encode_event, encode_rules,
    };
    use stentor_log::{Settings, SimDisk, Store, import};
    use stentor_wire::target::TopicName;

    fn hub() -> Hub {
        Hub::new(Epoch::from_number(1), Vec::new(), Limits::default())
    }

    fn begin(disk: &SimDisk) -> Store<SimDisk> {
        let recovered = Recovery::open(disk.clone()).unwrap().read(&mut |_, _| Ok(())).unwrap();
        Store::begin(recovered, Settings::default(), 1)
    }

    fn put(hub: &Hub, topic: &str) -> u64 {
        let put = Op::Put(TopicName::parse(topic).unwrap(), Draft::new(b"1".to_vec()));
        hub.apply(Entry::past(put, 1), Place::Next).unwrap();
        hub.seq()
    }

    #[test]
    fn numbers_go_on_behind_what_is_there_although_the_log_is_missing() {
        let before = hub();
        put(&before, "/a");
        let mut slice = Vec::new();
        let mut slices = Slices::begin(&before, &mut slice);
        let greatest = (put(&before, "/b"), put(&before, "/b")).1;
        while slices.write_slice(&before, &mut slice).unwrap() {}
        let disk = SimDisk::new(1);
        // The log had these numbers, and a repair found none of it.
        import(&disk, 7, |writer| writer.payload(&slice).map(|()| 0)).unwrap();
        let after = hub();
        let loaded = load(Recovery::open(disk).unwrap(), &after, 0, |_| {}).unwrap();
        assert_eq!((after.seq(), loaded.recovered.last), (greatest, greatest));
        assert_eq!(put(&after, "/b"), greatest + 1);
    }

    /// Reads a store into a hub, and says whether dates tell of `/a`, which was published before,
    /// and of `/b`, which is now, in the same second, and of `/c`, which is in the next.
    fn dates_tell(disk: &SimDisk) -> (Recovered<SimDisk>, [bool; 3]) {
        let hub = hub();
        let loaded = load(Recovery::open(disk.clone()).unwrap(), &hub, 1, |_| {}).unwrap();
        let publish = |topic, unix_s| {
            let topic = TopicName::parse(topic).unwrap();
            hub.publish(topic, Draft::new(*b"1"), Precondition::None, unix_s).unwrap().message
        };
        let values = [hub.value("/a").unwrap(), publish("/b", 1), publish("/c", 2)];
        (loaded.recovered, values.map(|value| hub.dates_tell(&value)))
    }

    #[test]
    fn dates_tell_after_a_stop_and_not_of_what_is_older_than_a_crash() {
        let disk = SimDisk::new(1);
        let before = hub();
        put(&before, "/a");
        let kept = before.kept();
        let mut store = begin(&disk);
        store.push(1, |out| encode_event(&kept[0], out)).unwrap();
        store.close().unwrap();
        let (recovered, tell) = dates_tell(&disk);
        assert_eq!(tell, [true, true, true]);
        // This life is cut short, the next one is stopped.
        drop(Store::begin(recovered, Settings::default(), 1));
        let (recovered, tell) = dates_tell(&disk);
        assert_eq!(tell, [false, false, true]);
        Store::begin(recovered, Settings::default(), 1).close().unwrap();
        assert_eq!(dates_tell(&disk).1, [false, true, true]);
    }

    #[test]
    fn no_date_tells_what_is_in_a_copy_from_what_its_server_went_on_with() {
        let before = hub();
        put(&before, "/a");
        let mut slice = Vec::new();
        let mut slices = Slices::begin(&before, &mut slice);
        while slices.write_slice(&before, &mut slice).unwrap() {}
        let disk = SimDisk::new(1);
        import(&disk, 7, |writer| writer.payload(&slice).map(|()| 1)).unwrap();
        let (recovered, tell) = dates_tell(&disk);
        assert_eq!(tell, [false, false, true]);
        Store::begin(recovered, Settings::default(), 8).close().unwrap();
        assert_eq!(dates_tell(&disk).1, [false, true, true]);
    }

    /// A store with a log of some batches and the beginning of one.
    fn long_log(disk: &SimDisk, count: usize, last: &[u8]) -> Hub {
        let mut store = begin(disk);
        let before = hub();
        for n in 0..count {
            let topic = format!("/{}", n % 7);
            let put =
                Op::Put(TopicName::parse(&topic).unwrap(), Draft::new(n.to_string().into_bytes()));
            before.apply(Entry::past(put, 1), Place::Next).unwrap();
        }
        for event in before.kept() {
            store.push(event.seq(), |out| encode_event(&event, out)).unwrap();
        }
        if !last.is_empty() {
            store.push(before.seq(), |out| out.extend_from_slice(last)).unwrap();
        }
        store.close().unwrap();
        before
    }

    #[test]
    fn a_log_is_applied_in_its_order_to_its_last_entry() {
        let counts = [0, 1, batch_entries() - 1, batch_entries(), 10 * batch_entries() + 3];
        for (seed, count) in (1..).zip(counts) {
            let disk = SimDisk::new(seed);
            let before = long_log(&disk, count, b"");
            let after = hub();
            let mut told = 0;
            load(Recovery::open(disk).unwrap(), &after, 0, |_| told += 1).unwrap();
            let seen = |hub: &Hub| -> Vec<_> {
                let seen = hub.kept().into_iter();
                seen.map(|it| (it.seq(), it.topic().to_owned(), it.message.data().to_vec()))
                    .collect()
            };
            assert_eq!(seen(&after), seen(&before));
            assert_eq!((after.seq(), after.counts()), (before.seq(), before.counts()));
            assert_eq!(told > 0, count > 0);
        }
    }

    #[test]
    fn what_is_no_entry_ends_it_however_much_is_under_way() {
        for count in [1, 10 * batch_entries() + 3] {
            let disk = SimDisk::new(1);
            long_log(&disk, count, b"nothing");
            let loaded = load(Recovery::open(disk).unwrap(), &hub(), 0, |_| {});
            assert!(matches!(loaded.err(), Some(OpenError::Refused { .. })));
        }
    }

    fn unstored() -> Rule {
        let pattern = Pattern::parse("/none/*").unwrap();
        Rule { pattern, keep: Some(Keep::None), ..Rule::default() }
    }

    /// Messages that are not stored may have taken numbers while the snapshot was written.
    #[test]
    fn a_snapshot_may_show_numbers_without_entries() {
        let disk = SimDisk::new(1);
        let mut store = begin(&disk);
        let before = Hub::new(Epoch::from_number(1), vec![unstored()], Limits::default());
        let mut slice = Vec::new();
        let mut slices = Slices::begin(&before, &mut slice).of_what_is_stored(&before);
        let mut writer = store.begin_snapshot().unwrap();
        store.note(put(&before, "/none/a"));
        while slices.write_slice(&before, &mut slice).unwrap() {}
        writer.payload(&slice).unwrap();
        store.adopt(writer.end().unwrap()).unwrap();
        store.close().unwrap();
        let after = hub();
        load(Recovery::open(disk).unwrap(), &after, 0, |_| {}).unwrap();
        assert_eq!((after.seq(), after.counts().topics), (1, 0));
    }

    /// Messages of `/none/a` may have had numbers up to 5, though later rules have it stored.
    #[test]
    fn what_earlier_rules_did_not_store_is_lost() {
        let disk = SimDisk::new(1);
        let mut store = begin(&disk);
        store.push(0, |out| encode_rules(1, &[unstored()], out)).unwrap();
        store.push(5, |out| encode_rules(2, &[], out)).unwrap();
        store.close().unwrap();
        let hub = hub();
        load(Recovery::open(disk).unwrap(), &hub, 0, |_| {}).unwrap();
        let span = Span { since: 1, upto: 5, mode: Mode::All };
        let lost = |topic| hub.missed(topic, span, usize::MAX, &mut Vec::new()).lost_seq;
        assert_eq!([lost("/none/a"), lost("/a")], [5, 0]);
    }
}
