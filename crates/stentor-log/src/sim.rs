//! A disk that exists only in memory, and does to a store whatever a real one may.
//!
//! Every file and every name is there twice: as the kernel has it, which is what is read, and as
//! the disk has it. A sync makes them alike. A power cut leaves of what was not synced any part: of
//! a write any of its sectors, of the names any of the changes. A kill leaves what the kernel has.
//! A sync that fails brings some of it to the disk and forgets about the rest, which reads well
//! until the next power cut, or not even that long. Calls fail at random, with or without having
//! done something, the disk is full, and at the call that a test names the power goes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use stentor_io::{Disk, DiskError, DiskErrorKind, Rng, mark};

/// A simulated disk. Copies are of the same one.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

/// Of a hundred calls, how many fail.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskFaults {
    /// Reads, opens and lists.
    pub read_percent: u8,
    /// Writes, after some of the bytes.
    pub write_percent: u8,
    /// Syncs of files, which forget.
    pub sync_percent: u8,
    /// Creations, renamings, removals, and syncs of the directory, which forget.
    pub names_percent: u8,
}

/// A file of a [`SimDisk`].
#[derive(Clone, Debug)]
pub struct SimFile {
    inode: usize,
    name: String,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    faults: DiskFaults,
    inodes: Vec<Inode>,
    kernel: Names,
    disk: Names,
    /// Changes of names that the disk may not have, in their order. Each is done or not.
    pending: Vec<Vec<(String, Option<usize>)>>,
    capacity: u64,
    /// At the call after so many the power goes.
    calls_left: Option<u64>,
    is_down: bool,
    failed_syncs: u64,
    panics: bool,
    /// The directory was removed.
    is_gone: bool,
}

type Names = BTreeMap<String, usize>;

type Hook = Box<dyn FnMut()>;

thread_local! {
    static MEANWHILE: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Runs `act`. Whenever it has a simulated disk sync a file, on this thread, `meanwhile` runs
/// first: all that happens while a slow disk syncs.
pub fn during_syncs<R>(meanwhile: impl FnMut() + 'static, act: impl FnOnce() -> R) -> R {
    MEANWHILE.set(Some(Box::new(meanwhile)));
    let result = act();
    MEANWHILE.set(None);
    result
}

#[derive(Clone, Default, Debug)]
struct Inode {
    kernel: Vec<u8>,
    disk: Vec<u8>,
    /// What sectors became, one write after the other.
    pending: Vec<(usize, Vec<u8>)>,
    unix_s: u64,
}

impl SimDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::of(seed, &[])
    }

    /// A disk with these files on it.
    #[must_use]
    pub fn of(seed: u64, files: &[(String, Vec<u8>)]) -> SimDisk {
        let names: Names =
            files.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        let inode = |bytes: &Vec<u8>| Inode {
            kernel: bytes.clone(),
            disk: bytes.clone(),
            pending: Vec::new(),
            unix_s: 0,
        };
        SimDisk(Arc::new(Mutex::new(State {
            rng: Rng::new(seed),
            faults: DiskFaults::default(),
            inodes: files.iter().map(|(_, bytes)| inode(bytes)).collect(),
            kernel: names.clone(),
            disk: names,
            pending: Vec::new(),
            capacity: u64::MAX,
            calls_left: None,
            is_down: false,
            failed_syncs: 0,
            panics: false,
            is_gone: false,
        })))
    }

    /// The files as the kernel has them.
    #[must_use]
    pub fn image(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let file =
            |(name, inode): (&String, &usize)| (name.clone(), state.inodes[*inode].kernel.clone());
        state.kernel.iter().map(file).collect()
    }

    /// From now on so many calls fail.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state().faults = faults;
    }

    /// All files together may have so many bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// The directory is removed, with all in it.
    pub fn vanish(&self) {
        let mut state = self.state();
        (state.kernel, state.disk) = (Names::new(), Names::new());
        state.pending.clear();
        state.is_gone = true;
    }

    /// The power goes after so many more calls.
    pub fn cut_power_after(&self, calls: u64) {
        self.state().calls_left = Some(calls);
    }

    /// The next call does not come back: whoever makes it has a bug.
    pub fn panic(&self) {
        self.state().panics = true;
    }

    /// Whether the power went.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state().is_down
    }

    /// How many syncs of files have failed. With each the kernel may have forgotten what was
    /// written.
    #[must_use]
    pub fn failed_syncs(&self) -> u64 {
        self.state().failed_syncs
    }

    /// The process is gone, and another may begin: what the kernel has is there.
    pub fn kill(&self) {
        mark("process-killed");
        let mut state = self.state();
        state.is_down = false;
        state.calls_left = None;
    }

    /// The power went and is back: what was synced is there, and any part of the rest.
    pub fn cut_power(&self) {
        mark("power-cut");
        let mut state = self.state();
        let State { rng, inodes, kernel, disk, pending, .. } = &mut *state;
        let kept_percent = [0, 100, 50, 90, 10][rng.below(5)];
        for change in pending.drain(..) {
            if rng.percent(kept_percent) {
                change.into_iter().for_each(|(name, inode)| set(disk, name, inode));
            } else {
                mark("name-lost");
            }
        }
        for inode in inodes.iter_mut() {
            inode.settle(rng, kept_percent);
            inode.kernel.clone_from(&inode.disk);
        }
        kernel.clone_from(disk);
        state.is_down = false;
        state.calls_left = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        stentor_io::lock(&self.0)
    }

    /// The state for one call, and whether that one fails.
    fn call(
        &self,
        percent: impl Fn(&DiskFaults) -> u8,
    ) -> Result<(MutexGuard<'_, State>, bool), DiskError> {
        let mut state = self.state();
        assert!(!std::mem::take(&mut state.panics), "a bug, as asked for");
        if state.is_down {
            return Err(failed("reach", "the disk"));
        }
        if let Some(left) = &mut state.calls_left {
            *left = left.saturating_sub(1);
            state.is_down = *left == 0;
        }
        let percent = percent(&state.faults);
        let fails = state.is_down || state.rng.percent(percent);
        if state.is_down {
            mark("power-fails-in-call");
        }
        Ok((state, fails))
    }
}

impl State {
    /// A change of names. One that fails may have been made.
    fn change(&mut self, fails: bool, change: Vec<(String, Option<usize>)>) {
        if fails {
            mark("name-change-fails");
        }
        if !fails || self.rng.percent(50) {
            for (name, inode) in change.iter().cloned() {
                set(&mut self.kernel, name, inode);
            }
            self.pending.push(change);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.kernel.values().map(|inode| self.inodes[*inode].kernel.len() as u64).sum()
    }
}

impl Inode {
    /// Of what is not on the disk, so much comes there, and the rest is forgotten.
    fn settle(&mut self, rng: &mut Rng, kept_percent: u8) {
        if self.disk.len() != self.kernel.len() && rng.percent(kept_percent) {
            self.disk.resize(self.kernel.len(), 0);
        }
        for (sector, bytes) in self.pending.drain(..) {
            if rng.percent(kept_percent) {
                let begin = sector * SECTOR_BYTES;
                let end = begin + bytes.len();
                if self.disk.len() < end {
                    self.disk.resize(end, 0);
                }
                self.disk[begin..end].copy_from_slice(&bytes);
            } else {
                mark("sector-lost");
            }
        }
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn list(&self) -> Result<Vec<(String, u64)>, DiskError> {
        let (state, fails) = self.call(|faults| faults.read_percent)?;
        if fails {
            return Err(failed("list", ""));
        }
        let file = |(name, inode): (&String, &usize)| {
            (name.clone(), state.inodes[*inode].kernel.len() as u64)
        };
        Ok(state.kernel.iter().map(file).collect())
    }

    fn create(&self, name: &str, bytes: u64) -> Result<SimFile, DiskError> {
        let (mut state, fails) = self.call(|faults| faults.names_percent)?;
        if fails {
            return Err(failed("create", name));
        }
        if state.used_bytes().saturating_add(bytes) > state.capacity.min(DISK_BYTES) {
            mark("disk-full");
            return Err(full("make room for", name));
        }
        let inode = state.inodes.len();
        let kernel = vec![0; bytes as usize];
        state.inodes.push(Inode { kernel, unix_s: NOW_S, ..Inode::default() });
        state.change(false, vec![(name.to_owned(), Some(inode))]);
        Ok(SimFile { inode, name: name.to_owned() })
    }

    fn open(&self, name: &str) -> Result<SimFile, DiskError> {
        let (state, fails) = self.call(|faults| faults.read_percent)?;
        match state.kernel.get(name) {
            Some(inode) if !fails => Ok(SimFile { inode: *inode, name: name.to_owned() }),
            _ => Err(failed("open", name)),
        }
    }

    fn read_at(&self, file: &SimFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let (state, fails) = self.call(|faults| faults.read_percent)?;
        if fails {
            mark("read-fails");
            return Err(failed("read", &file.name));
        }
        let bytes = &state.inodes[file.inode].kernel;
        let offset = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
        let read = into.len().min(bytes.len() - offset);
        into[..read].copy_from_slice(&bytes[offset..][..read]);
        Ok(read)
    }

    fn write_at(&self, file: &SimFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let (mut state, fails) = self.call(|faults| faults.write_percent)?;
        let taken = if fails { state.rng.below(bytes.len() + 1) } else { bytes.len() };
        if 0 < taken && taken < bytes.len() {
            mark("write-torn");
        }
        let outcome = if fails { Err(failed("write to", &file.name)) } else { Ok(()) };
        if taken == 0 {
            return outcome;
        }
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(taken);
        let grows = end.saturating_sub(state.inodes[file.inode].kernel.len()) as u64;
        if grows > 0 && state.used_bytes().saturating_add(grows) > state.capacity {
            mark("disk-full-in-write");
            return Err(full("write to", &file.name));
        }
        let Inode { kernel, pending, unix_s, .. } = &mut state.inodes[file.inode];
        *unix_s = NOW_S;
        if kernel.len() < end {
            kernel.resize(end, 0);
        }
        kernel[begin..end].copy_from_slice(&bytes[..taken]);
        for sector in begin / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let begin = sector * SECTOR_BYTES;
            let sector_end = (begin + SECTOR_BYTES).min(kernel.len());
            pending.push((sector, kernel[begin..sector_end].to_vec()));
        }
        outcome
    }

    fn shorten(&self, file: &SimFile, bytes: u64) -> Result<(), DiskError> {
        let (mut state, fails) = self.call(|faults| faults.write_percent)?;
        if fails && state.rng.percent(50) {
            return Err(failed("shorten", &file.name));
        }
        let Inode { kernel, pending, .. } = &mut state.inodes[file.inode];
        let bytes = bytes as usize;
        kernel.resize(bytes, 0);
        pending.retain_mut(|(sector, written)| {
            written.truncate(bytes.saturating_sub(*sector * SECTOR_BYTES));
            !written.is_empty()
        });
        if fails { Err(failed("shorten", &file.name)) } else { Ok(()) }
    }

    fn sync(&self, file: &SimFile) -> Result<(), DiskError> {
        if let Some(mut meanwhile) = MEANWHILE.take() {
            meanwhile();
            MEANWHILE.set(Some(meanwhile));
        }
        let (mut state, fails) = self.call(|faults| faults.sync_percent)?;
        let State { rng, inodes, is_down, failed_syncs, .. } = &mut *state;
        if *is_down {
            return Err(failed("sync", &file.name));
        }
        let inode = &mut inodes[file.inode];
        if fails {
            mark("sync-fails");
            *failed_syncs += 1;
            inode.settle(rng, 50);
            if rng.percent(30) {
                mark("sync-forgets");
                let bytes = inode.kernel.len();
                inode.kernel.clone_from(&inode.disk);
                inode.kernel.resize(bytes, 0);
            }
            return Err(failed("sync", &file.name));
        }
        inode.settle(rng, 100);
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let (mut state, fails) = self.call(|faults| faults.names_percent)?;
        let State { rng, disk, pending, is_down, .. } = &mut *state;
        if *is_down {
            return Err(failed("sync", ""));
        }
        for change in pending.drain(..) {
            if !fails || rng.percent(50) {
                change.into_iter().for_each(|(name, inode)| set(disk, name, inode));
            }
        }
        if fails { Err(failed("sync", "")) } else { Ok(()) }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (mut state, fails) = self.call(|faults| faults.names_percent)?;
        let Some(inode) = state.kernel.get(from).copied() else {
            return Err(failed("rename", from));
        };
        state.change(fails, vec![(from.to_owned(), None), (to.to_owned(), Some(inode))]);
        if fails { Err(failed("rename", from)) } else { Ok(()) }
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let (mut state, fails) = self.call(|faults| faults.names_percent)?;
        if !state.kernel.contains_key(name) {
            return Err(failed("remove", name));
        }
        state.change(fails, vec![(name.to_owned(), None)]);
        if fails { Err(failed("remove", name)) } else { Ok(()) }
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let state = self.state();
        Ok(state.capacity.saturating_sub(state.used_bytes()))
    }

    fn volume_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.state().capacity)
    }

    fn is_there(&self) -> bool {
        !self.state().is_gone
    }

    fn make_again(&self) -> Result<SimDisk, DiskError> {
        let (mut state, fails) = self.call(|faults| faults.names_percent)?;
        state.is_gone &= fails;
        if fails { Err(failed("make the directory", "")) } else { Ok(self.clone()) }
    }

    fn time(&self, file: &SimFile) -> Result<u64, DiskError> {
        let (state, fails) = self.call(|faults| faults.read_percent)?;
        if fails { Err(failed("look at", &file.name)) } else { Ok(state.inodes[file.inode].unix_s) }
    }

    fn set_time(&self, file: &SimFile, unix_s: u64) -> Result<(), DiskError> {
        let (mut state, fails) = self.call(|faults| faults.names_percent)?;
        if fails {
            return Err(failed("set the time of", &file.name));
        }
        state.inodes[file.inode].unix_s = unix_s;
        Ok(())
    }
}

fn set(names: &mut Names, name: String, inode: Option<usize>) {
    match inode {
        Some(inode) => drop(names.insert(name, inode)),
        None => drop(names.remove(&name)),
    }
}

fn failed(tried: &'static str, name: &str) -> DiskError {
    let kind = DiskErrorKind::Failed;
    DiskError { kind, tried, path: name.into(), reason: "a simulated fault".into() }
}

fn full(tried: &'static str, name: &str) -> DiskError {
    let kind = DiskErrorKind::Full;
    DiskError { kind, tried, path: name.into(), reason: "the simulated disk is full".into() }
}

/// What a disk writes whole or not at all. Real ones have at least eight times as much, and stores
/// that are not simulated longer frames.
const SECTOR_BYTES: usize = 64;
/// No disk is larger.
const DISK_BYTES: u64 = 1 << 32;
/// When all writes are: in the middle of 2026.
const NOW_S: u64 = 1_782_000_000;
