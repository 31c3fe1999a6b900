//! A directory whose files outlive the process: what a store needs of a disk, and nothing else.
//!
//! A store thinks in a few operations whose meaning after a crash is known: a write is in the
//! kernel, a sync brings what was written to a file to the disk, a sync of the directory does so
//! with the names. [`Disk`] has just these, so a simulated disk can do to a store whatever a real
//! one may, and [`HostDisk`] is the real one.
//!
//! What went wrong matters as much as that it did: a full disk is another answer to a publisher
//! than a broken one. So an error has its kind, and says what was tried with which file.
//!
//! Writes are positioned, so no two of them meet. The file of a segment has its length before it is
//! written: such blocks need no change of the file system's own records, which makes a sync some
//! three times cheaper. The file of a snapshot grows. One process has a directory at a time
//! (`flock`); what is in it is for its user alone (0700, 0600).

use crate::user::User;
use rustix::fd::OwnedFd;
use rustix::fs::{
    self, Access, AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags,
    Timespec, Timestamps, fstatvfs,
};
use rustix::io::{Errno, pread, pwrite};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of files. Copies are of the same one.
pub trait Disk: Clone {
    /// An open file.
    type File;

    /// The names of the files here, and their lengths, in no order.
    ///
    /// # Errors
    /// Here and below: [`DiskError`].
    fn list(&self) -> Result<Vec<(String, u64)>, DiskError>;

    /// Makes a file that is so long and has its blocks, in the place of one of this name. Its
    /// bytes are zero.
    fn create(&self, name: &str, bytes: u64) -> Result<Self::File, DiskError>;

    /// Opens a file that is there.
    fn open(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Reads what is at `offset`: as much as `into` takes, or less if the file ends before.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all of `bytes`, which are in the kernel then. After an error any part may be.
    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Cuts a file off behind so many bytes, whose room is free then. It may be as long as before
    /// after a crash.
    fn shorten(&self, file: &Self::File, bytes: u64) -> Result<(), DiskError>;

    /// Brings what was written to the disk. After an error nobody knows what is there, and no
    /// later sync will tell: the kernel has forgotten what it could not write.
    fn sync(&self, file: &Self::File) -> Result<(), DiskError>;

    /// Brings the names to the disk: what was created, renamed, removed.
    fn sync_dir(&self) -> Result<(), DiskError>;

    /// Gives a file another name, in the place of a file that has it.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a name, and the file with its last one.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// How much may be written yet.
    fn free_bytes(&self) -> Result<u64, DiskError>;

    /// The size of the volume.
    fn volume_bytes(&self) -> Result<u64, DiskError>;

    /// Whether the directory is still the one that its path names.
    fn is_there(&self) -> bool {
        true
    }

    /// Makes the directory again that is not there any more.
    fn make_again(&self) -> Result<Self, DiskError> {
        Ok(self.clone())
    }

    /// As of when a file is, in seconds since 1970: when it was written last, or what
    /// [`Disk::set_time`] has said since. A power cut may undo that.
    fn time(&self, file: &Self::File) -> Result<u64, DiskError>;

    /// Has a file be as of another time, in seconds since 1970.
    fn set_time(&self, file: &Self::File, unix_s: u64) -> Result<(), DiskError>;
}

/// Something was tried, and did not work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskError {
    /// What it means.
    pub kind: DiskErrorKind,
    /// What was tried.
    pub tried: &'static str,
    /// Of which file or directory.
    pub path: String,
    /// What the kernel said.
    pub reason: String,
}

/// What an error of a disk means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskErrorKind {
    /// The disk is full, or the user's share of it.
    Full,
    /// It is read-only.
    ReadOnly,
    /// It is another process's.
    Locked,
    /// Anything else: it is broken, or gone, or not ours.
    Failed,
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.tried, self.path, self.reason)
    }
}

impl std::error::Error for DiskError {}

/// A directory of the host.
#[derive(Clone, Debug)]
pub struct HostDisk(Arc<OpenDirectory>);

#[derive(Debug)]
struct OpenDirectory {
    fd: OwnedFd,
    path: PathBuf,
    /// The lock lasts as long as this is open. `None`: only looked at.
    lock: Option<OwnedFd>,
}

/// A file of a [`HostDisk`].
#[derive(Debug)]
pub struct HostFile {
    fd: OwnedFd,
    name: String,
}

impl HostDisk {
    /// Opens a directory, or makes it (in a directory that is there), and locks it. What is made is
    /// made for `owner`, as whom the process will run, if that is another one.
    ///
    /// # Errors
    /// [`DiskErrorKind::Locked`] if a process has it already; else the kernel's reason.
    pub fn open(path: &Path, owner: Option<&User>) -> Result<HostDisk, DiskError> {
        let told = |tried| move |error: Errno| failed(tried, &path.display(), error);
        let is_new = match fs::mkdir(path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(told("make the directory")(error)),
        };
        let fd = open_directory(path)?;
        if is_new {
            // Its name is on the disk before anything in it is.
            let parent = fs::openat(&fd, "..", DIRECTORY, Mode::empty());
            parent.and_then(fs::fsync).map_err(told("sync the directory above"))?;
        }
        let (lock, is_made) = open_lock(&fd).map_err(told("make a lock in"))?;
        if let Some((user, group)) = owner.map(User::ids) {
            // Whoever may not give files away is that user already, or will be told. A lock that
            // was there may be another name of a file that is none of this user's.
            if is_made {
                let _ = fs::fchown(&lock, Some(user), Some(group));
            }
            if is_new {
                let _ = fs::fchown(&fd, Some(user), Some(group));
            }
        }
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                Ok(HostDisk(Arc::new(OpenDirectory { fd, path: path.into(), lock: Some(lock) })))
            }
            Err(Errno::WOULDBLOCK) => Err(DiskError {
                kind: DiskErrorKind::Locked,
                tried: "lock",
                path: path.display().to_string(),
                reason: "another process has it".into(),
            }),
            Err(error) => Err(told("lock")(error)),
        }
    }

    /// Lets another process lock it, which this one waits for, or not any more. Whoever has a copy
    /// of this process's files keeps none of the lock.
    ///
    /// # Errors
    /// [`DiskErrorKind::Locked`] if another process has it.
    pub fn give_away(&self, is_given: bool) -> Result<(), DiskError> {
        let Some(lock) = &self.0.lock else { return Ok(()) };
        let operation = match is_given {
            true => FlockOperation::Unlock,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        fs::flock(lock, operation).map_err(|error| DiskError {
            kind: DiskErrorKind::Locked,
            tried: "lock",
            path: self.0.path.display().to_string(),
            reason: io::Error::from(error).to_string(),
        })
    }

    /// Opens a directory that is there, and makes nothing in it: to read what may be another
    /// process's, which goes on meanwhile.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn look(path: &Path) -> Result<HostDisk, DiskError> {
        let fd = open_directory(path)?;
        Ok(HostDisk(Arc::new(OpenDirectory { fd, path: path.into(), lock: None })))
    }

    fn failed(&self, tried: &'static str, name: &str, error: Errno) -> DiskError {
        failed(tried, &self.0.path.join(name).display(), error)
    }
}

impl Disk for HostDisk {
    type File = HostFile;

    fn list(&self) -> Result<Vec<(String, u64)>, DiskError> {
        let told = |error| self.failed("list", "", error);
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.0.fd).map_err(told)? {
            let entry = entry.map_err(told)?;
            // A name that is no text is none of a store's.
            let Ok(name) = entry.file_name().to_str() else { continue };
            let stat = match fs::statat(&self.0.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(self.failed("look at", name, error)),
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && name != LOCK {
                found.push((name.to_owned(), stat.st_size as u64));
            }
        }
        Ok(found)
    }

    fn create(&self, name: &str, bytes: u64) -> Result<HostFile, DiskError> {
        let told = |error| self.failed("create", name, error);
        match fs::unlinkat(&self.0.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(told(error)),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = fs::openat(&self.0.fd, name, flags, OURS).map_err(told)?;
        if bytes > 0 {
            let allocated = match fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes) {
                // A file system that cannot promise room: a write may find there is none.
                Err(Errno::OPNOTSUPP) => fs::ftruncate(&fd, bytes),
                done => done,
            };
            if let Err(error) = allocated {
                let _ = fs::unlinkat(&self.0.fd, name, AtFlags::empty());
                return Err(self.failed("make room for", name, error));
            }
        }
        Ok(HostFile { fd, name: name.to_owned() })
    }

    fn open(&self, name: &str) -> Result<HostFile, DiskError> {
        let access = if self.0.lock.is_some() { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = fs::openat(&self.0.fd, name, flags, Mode::empty());
        let fd = fd.map_err(|error| self.failed("open", name, error))?;
        Ok(HostFile { fd, name: name.to_owned() })
    }

    fn read_at(&self, file: &HostFile, offset: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let mut filled = 0;
        while filled < into.len() {
            match pread(&file.fd, &mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("read", &file.name, error)),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, file: &HostFile, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut written = 0;
        while written < bytes.len() {
            match pwrite(&file.fd, &bytes[written..], offset + written as u64) {
                Ok(0) => return Err(self.failed("write to", &file.name, Errno::IO)),
                Ok(taken) => written += taken,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("write to", &file.name, error)),
            }
        }
        Ok(())
    }

    fn shorten(&self, file: &HostFile, bytes: u64) -> Result<(), DiskError> {
        fs::ftruncate(&file.fd, bytes).map_err(|error| self.failed("shorten", &file.name, error))
    }

    fn sync(&self, file: &HostFile) -> Result<(), DiskError> {
        fs::fdatasync(&file.fd).map_err(|error| self.failed("sync", &file.name, error))
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        fs::fsync(&self.0.fd).map_err(|error| self.failed("sync", "", error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        fs::renameat(&self.0.fd, from, &self.0.fd, to)
            .map_err(|error| self.failed("rename", from, error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        fs::unlinkat(&self.0.fd, name, AtFlags::empty())
            .map_err(|error| self.failed("remove", name, error))
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let stat = fstatvfs(&self.0.fd).map_err(|error| self.failed("look at", "", error))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn volume_bytes(&self) -> Result<u64, DiskError> {
        let stat = fstatvfs(&self.0.fd).map_err(|error| self.failed("look at", "", error))?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    fn is_there(&self) -> bool {
        let (by_path, here) = (fs::stat(&self.0.path), fs::fstat(&self.0.fd));
        // An error that says nothing of the directory does not count.
        match (by_path, here) {
            (Ok(by_path), Ok(here)) => {
                (by_path.st_dev, by_path.st_ino) == (here.st_dev, here.st_ino)
            }
            (Err(error), _) => error != Errno::NOENT,
            _ => true,
        }
    }

    fn make_again(&self) -> Result<HostDisk, DiskError> {
        HostDisk::open(&self.0.path, None)
    }

    fn time(&self, file: &HostFile) -> Result<u64, DiskError> {
        let stat = fs::fstat(&file.fd);
        let stat = stat.map_err(|error| self.failed("look at", &file.name, error))?;
        Ok(u64::try_from(stat.st_mtime).unwrap_or(0))
    }

    fn set_time(&self, file: &HostFile, unix_s: u64) -> Result<(), DiskError> {
        let time = Timespec { tv_sec: unix_s.try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        fs::futimens(&file.fd, &times)
            .map_err(|error| self.failed("set the time of", &file.name, error))
    }
}

/// Whether [`HostDisk::open`] could use this directory or make it, by the rights of this process.
/// Nothing is made, and a lock of another process does not matter.
///
/// # Errors
/// Why not, and which directory is in the way.
pub fn check_directory(path: &Path) -> Result<(), String> {
    let check = |directory: &Path| {
        let is_there = fs::stat(directory)?;
        if FileType::from_raw_mode(is_there.st_mode) != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        fs::accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
    };
    let told =
        |directory: &Path, error| format!("{}: {}", directory.display(), io::Error::from(error));
    match check(path) {
        Err(Errno::NOENT) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            check(parent).map_err(|error| told(parent, error))
        }
        checked => checked.map_err(|error| told(path, error)),
    }
}

/// Opens the file that is locked, or makes it. Returns whether it was made.
fn open_lock(directory: &OwnedFd) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match fs::openat(directory, LOCK, flags | OFlags::CREATE | OFlags::EXCL, OURS) {
        Ok(lock) => Ok((lock, true)),
        Err(Errno::EXIST) => Ok((fs::openat(directory, LOCK, flags, Mode::empty())?, false)),
        Err(error) => Err(error),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, DiskError> {
    let opened = fs::openat(CWD, path, DIRECTORY, Mode::empty());
    opened.map_err(|error| failed("open", &path.display(), error))
}

fn failed(tried: &'static str, path: &dyn fmt::Display, error: Errno) -> DiskError {
    let kind = match error {
        Errno::NOSPC | Errno::DQUOT => DiskErrorKind::Full,
        Errno::ROFS => DiskErrorKind::ReadOnly,
        _ => DiskErrorKind::Failed,
    };
    DiskError { kind, tried, path: path.to_string(), reason: io::Error::from(error).to_string() }
}

/// The file that is locked.
const LOCK: &str = "lock";

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

const OURS: Mode = Mode::RUSR.union(Mode::WUSR);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    fn disk(scratch: &Scratch) -> HostDisk {
        HostDisk::open(&scratch.join("data"), None).unwrap()
    }

    #[test]
    fn a_directory_is_one_processs_and_one_users() {
        let scratch = Scratch::new();
        let first = disk(&scratch);
        drop(first.create("a", 10).unwrap());
        let second = HostDisk::open(&scratch.join("data"), None).unwrap_err();
        assert_eq!(second.kind, DiskErrorKind::Locked);
        let mode = |name: &str| {
            std::fs::metadata(scratch.join(name)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode("data"), mode("data/a"), mode("data/lock")), (0o700, 0o600, 0o600));
        drop(first);
        disk(&scratch);
    }

    #[test]
    fn what_is_only_looked_at_is_opened_to_read() {
        let scratch = Scratch::new();
        let disk = disk(&scratch);
        drop(disk.create("a", 10).unwrap());
        let looked = HostDisk::look(&scratch.join("data")).unwrap();
        let file = looked.open("a").unwrap();
        assert_eq!(looked.read_at(&file, 0, &mut [1; 4]).unwrap(), 4);
        assert!(looked.write_at(&file, 0, b"b").is_err());
    }

    #[test]
    fn a_directory_is_checked_without_being_made() {
        let scratch = Scratch::new();
        let check = |name: &str| check_directory(&scratch.join(name));
        let path = |name: &str| scratch.join(name).display().to_string();
        assert_eq!(check("data"), Ok(()));
        assert!(!scratch.join("data").exists());
        std::fs::create_dir(scratch.join("data")).unwrap();
        let _held = HostDisk::open(&scratch.join("data"), None).unwrap();
        assert_eq!(check("data"), Ok(()), "a lock does not matter");
        let missing = check("none/data").unwrap_err();
        assert_eq!(missing, format!("{}: No such file or directory (os error 2)", path("none")));
        std::fs::write(scratch.join("file"), "").unwrap();
        for name in ["file", "file/data"] {
            let error = check(name).unwrap_err();
            assert!(error.contains("Not a directory"), "{error}");
        }
    }

    #[test]
    fn a_lock_that_was_there_is_not_given_away() {
        let Ok(Some(nobody)) = User::named("nobody") else { return };
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.join("data")).unwrap();
        std::fs::write(scratch.join("secret"), "").unwrap();
        let owner = |name: &str| {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(scratch.join(name)).unwrap().uid()
        };
        let before = owner("secret");
        std::fs::hard_link(scratch.join("secret"), scratch.join("data/lock")).unwrap();
        drop(HostDisk::open(&scratch.join("data"), Some(&nobody)).unwrap());
        assert_eq!(owner("secret"), before);
        std::fs::remove_file(scratch.join("data/lock")).unwrap();
        drop(HostDisk::open(&scratch.join("data"), Some(&nobody)).unwrap());
        if crate::is_root() {
            assert_eq!(owner("data/lock"), nobody.ids().0.as_raw(), "what is made is given away");
        }
    }

    #[test]
    fn errors_say_what_they_mean() {
        let full = failed("write to", &"a", Errno::NOSPC);
        assert_eq!((full.kind, failed("", &"", Errno::DQUOT).kind), {
            (DiskErrorKind::Full, DiskErrorKind::Full)
        });
        assert_eq!(failed("", &"", Errno::ROFS).kind, DiskErrorKind::ReadOnly);
        assert_eq!(failed("", &"", Errno::IO).kind, DiskErrorKind::Failed);
        assert!(HostDisk::open(&Scratch::new().join("no/such"), None).is_err());
    }
}
