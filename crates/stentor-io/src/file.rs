//! Files beneath a directory: found, opened, listed, and known to be whole.
//!
//! A path comes from a stranger, and a program that may write beneath the root may change what the
//! path means between two system calls. Therefore the check and the opening are one: the kernel
//! itself resolves beneath the directory (`openat2` with `RESOLVE_BENEATH`), in one step that no
//! renaming can split. Where a sandbox forbids that call, the path is walked with the same result
//! (`beneath.rs`). `..`, absolute paths and links that lead out are refused there, whatever the
//! caller did to the path before; and so are links that lead nowhere on any disk, those of `/proc`.
//! Ordinary symbolic links are refused too, unless the caller says otherwise. A first try without
//! them costs nothing where there are none, and tells whether one was on the way.
//!
//! To open a FIFO wakes whoever writes to it, and to open a device may rewind a tape. So a place
//! is first looked at through a descriptor that opens nothing (`O_PATH`). Only a regular file is
//! then opened, and only if it still is the same file it is given to the caller. The descriptor in
//! between could be opened itself by way of `/proc`; but a server must not need `/proc` to answer.
//!
//! Is a file that is read being written? Its size and its time say so only afterwards, and not for
//! sure. A read lease does: the kernel refuses it while the file is open for writing anywhere, and
//! makes whoever opens it later wait until the lease is given back. What is read under one is
//! whole, as far as those who write are: between two openings of a writer nothing can be known.
//!
//! A descriptor belongs to the file table of the thread that opened it (`thread.rs`). A
//! [`Directory`] that was opened before the tables parted is in all of them, and each thread may
//! use its own copy. A [`File`] must stay with its thread, even to be dropped. The compiler does
//! not see to that: a worker, which may hold files, is made before its thread, and moved there.

mod beneath;

use beneath::Resolver;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, fstat, statat,
};
use rustix::io::{Errno, pread};
use std::ffi::CStr;
use std::io;
use std::path::Path;

/// A directory beneath which files are found.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    resolver: Resolver,
}

/// Which directory it is, whatever it is called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DirectoryId {
    device: u64,
    inode: u64,
}

/// Whether symbolic links beneath the directory are followed. Even then none may be absolute or
/// lead out of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symlinks {
    /// Not one, wherever in the path it stands.
    Refused,
    /// Those that stay beneath.
    Followed,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A regular file, opened for reading.
    File(File),
    /// A directory; nothing was opened.
    Directory,
    /// A FIFO, a socket or a device: nothing to serve, and nothing was opened.
    Special,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The last segment of its path.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its size and time: those of what it leads to, if that is known.
    pub status: FileStatus,
}

/// What kind of thing has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that was not followed: links are refused, or it leads nowhere beneath.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// A regular file, opened for reading.
#[derive(Debug)]
pub struct File {
    fd: OwnedFd,
    status: FileStatus,
    through_symlink: bool,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileStatus {
    /// The file system it is on.
    pub device: u64,
    /// Its number there, which another file may have when this one is gone.
    pub inode: u64,
    /// Its size.
    pub bytes: u64,
    /// When its content changed last, in nanoseconds since 1970. A time so far away that it has no
    /// such number (before 1677, after 2262) is taken for the nearest that has.
    pub modified_ns: i64,
}

/// A file's status, and the time of its last change of any kind: also of its rights or its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStamp {
    status: FileStatus,
    changed_ns: i64,
}

/// Whether a file is being written.
#[derive(Debug)]
pub enum Held<'f> {
    /// Nobody has it open for writing, nor will as long as this lives.
    Still(Lease<'f>),
    /// Somebody has it open for writing.
    BeingWritten,
    /// The kernel does not say: the file is another user's (and `CAP_LEASE` is missing), or its
    /// file system has no leases.
    Unknown,
}

/// Keeps writers from opening a file; dropping it lets them. Who opens it meanwhile, or truncates
/// it by name, waits, but not for ever: after `fs.lease-break-time` (45 s) the kernel takes the
/// lease away. So it is to be held for one reading. Renaming and removing the file are not
/// writing.
#[derive(Debug)]
pub struct Lease<'f> {
    file: &'f File,
}

impl Directory {
    /// Opens it, following symbolic links: which directory it is, is the operator's word.
    ///
    /// # Errors
    /// There is no such directory, or it may not be looked at.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let fd = fs::openat(CWD, path, PLACE | IS_DIRECTORY, NO_MODE)?;
        let resolver = Resolver::choose(fd.as_fd())?;
        Ok(Directory { fd, resolver })
    }

    /// Whether the kernel resolves paths here (`openat2`), and not a walk of several calls.
    #[must_use]
    pub fn is_resolved_by_kernel(&self) -> bool {
        self.resolver == Resolver::Kernel
    }

    /// Which directory this is, to be compared with [`Directory::identity_of`] its path.
    ///
    /// # Errors
    /// The file system failed.
    pub fn identity(&self) -> io::Result<DirectoryId> {
        Ok(DirectoryId::of(&fstat(&self.fd)?))
    }

    /// Which directory is at a path now, symbolic links followed as in [`Directory::open`].
    ///
    /// # Errors
    /// There is none, or it may not be looked at.
    pub fn identity_of(path: &Path) -> io::Result<DirectoryId> {
        let fd = fs::openat(CWD, path, PLACE | IS_DIRECTORY, NO_MODE)?;
        Ok(DirectoryId::of(&fstat(fd)?))
    }

    /// What a path beneath the directory leads to; "" is the directory itself. Nothing but a
    /// regular file is ever opened, and this does not wait for anybody who writes.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `InvalidFilename` (a segment is too long) and `InvalidInput`
    /// (a NUL): there is nothing of that name, or the path leads out of the directory or over a
    /// symbolic link that is not to be followed. `PermissionDenied`: the file may not be read.
    /// `WouldBlock`: the place changes so fast that trying again a little later is best, or
    /// somebody holds a lease on the file. Else files or memory ran out, or the file system
    /// failed.
    pub fn find(&self, path: &str, symlinks: Symlinks) -> io::Result<Found> {
        for _ in 0..TRIES {
            let (place, crossed) = self.resolve(path, PLACE, symlinks).map_err(refusal)?;
            let seen = fstat(&place)?;
            match FileKind::of(&seen) {
                FileKind::File => {}
                FileKind::Directory => return Ok(Found::Directory),
                FileKind::Link | FileKind::Special => return Ok(Found::Special),
            }
            match self.open_beneath(path, READ, crossed) {
                Ok(fd) => {
                    let status = fstat(&fd)?;
                    // While `place` is open, no other file can have its number.
                    if DirectoryId::of(&seen) == DirectoryId::of(&status) {
                        let through_symlink = crossed == Symlinks::Followed;
                        let status = FileStatus::of(&status);
                        return Ok(Found::File(File { fd, status, through_symlink }));
                    }
                }
                // It was replaced in between, by nothing or by what cannot be opened: look again.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Calls `take` with the names in a directory beneath, in any order; "" is the directory
    /// itself. It looks at no more than `names_max` names. It leaves out those that are not UTF-8,
    /// since no path can name them.
    ///
    /// # Errors
    /// As [`Directory::find`]; `NotADirectory` also if it is something else.
    pub fn list(
        &self,
        path: &str,
        symlinks: Symlinks,
        names_max: usize,
        mut take: impl FnMut(Listed),
    ) -> io::Result<()> {
        let (directory, _) = self.resolve(path, READ | IS_DIRECTORY, symlinks).map_err(refusal)?;
        let mut looked_at = 0;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if looked_at == names_max {
                break;
            }
            looked_at += 1;
            // A name that has gone meanwhile is left out, too.
            self.look_at(directory.as_fd(), path, name, symlinks).into_iter().for_each(&mut take);
        }
        Ok(())
    }

    /// One entry of `directory`, which is at `path`.
    fn look_at(
        &self,
        directory: BorrowedFd<'_>,
        path: &str,
        name: &CStr,
        symlinks: Symlinks,
    ) -> Option<Listed> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let mut status = statat(directory, name, flags).ok()?;
        let name = name.to_str().ok()?;
        if FileKind::of(&status) == FileKind::Link && symlinks == Symlinks::Followed {
            // From the root, since a link may lead up as long as it stays beneath that.
            let path = format!("{}/{name}", if path.is_empty() { "." } else { path });
            if let Ok((target, _)) = self.resolve(&path, PLACE, symlinks) {
                status = fstat(target).ok()?;
            }
        }
        let (kind, status) = (FileKind::of(&status), FileStatus::of(&status));
        Some(Listed { name: name.to_owned(), kind, status })
    }

    /// The stamp of a regular file beneath the directory, without opening the file.
    ///
    /// # Errors
    /// As [`Directory::find`]. A path that names no regular file is `NotFound`.
    pub fn stamp(&self, path: &str, symlinks: Symlinks) -> io::Result<FileStamp> {
        let (place, _) = self.resolve(path, PLACE, symlinks).map_err(refusal)?;
        let status = fstat(&place)?;
        match FileKind::of(&status) {
            FileKind::File => Ok(FileStamp::of(&status)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Resolves a path, first without symbolic links, and says whether it took following some.
    fn resolve(
        &self,
        path: &str,
        flags: OFlags,
        symlinks: Symlinks,
    ) -> Result<(OwnedFd, Symlinks), Errno> {
        match self.open_beneath(path, flags, Symlinks::Refused) {
            Err(Errno::LOOP) if symlinks == Symlinks::Followed => {
                Ok((self.open_beneath(path, flags, Symlinks::Followed)?, Symlinks::Followed))
            }
            result => Ok((result?, Symlinks::Refused)),
        }
    }

    fn open_beneath(
        &self,
        path: &str,
        flags: OFlags,
        symlinks: Symlinks,
    ) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "." } else { path };
        self.resolver.open(self.fd.as_fd(), path, flags, symlinks)
    }
}

impl DirectoryId {
    fn of(status: &Stat) -> DirectoryId {
        DirectoryId { device: status.st_dev, inode: status.st_ino }
    }
}

impl FileKind {
    pub(crate) fn of(status: &Stat) -> FileKind {
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Special,
        }
    }
}

/// A time of a file in nanoseconds. The type of `ns` depends on how system calls are made.
pub(crate) fn since_1970_ns(s: i64, ns: impl TryInto<i64>) -> i64 {
    s.saturating_mul(1_000_000_000).saturating_add(ns.try_into().unwrap_or(0))
}

impl FileStamp {
    fn of(status: &Stat) -> FileStamp {
        let changed_ns = since_1970_ns(status.st_ctime, status.st_ctime_nsec);
        FileStamp { status: FileStatus::of(status), changed_ns }
    }

    /// Whether the file was changed less than so long before or after this time.
    #[must_use]
    pub fn is_within(&self, ns: u64, of_ns: i64) -> bool {
        let FileStamp { status: FileStatus { modified_ns, .. }, changed_ns } = *self;
        [modified_ns, changed_ns].iter().any(|time_ns| time_ns.abs_diff(of_ns) < ns)
    }
}

impl FileStatus {
    pub(crate) fn of(status: &Stat) -> FileStatus {
        FileStatus {
            device: status.st_dev,
            inode: status.st_ino,
            bytes: u64::try_from(status.st_size).unwrap_or(0),
            modified_ns: since_1970_ns(status.st_mtime, status.st_mtime_nsec),
        }
    }

    /// When its content changed last, in whole seconds since 1970; 0 for what is older.
    #[must_use]
    pub fn modified_unix_s(&self) -> u64 {
        u64::try_from(self.modified_ns / 1_000_000_000).unwrap_or(0)
    }
}

impl File {
    /// What it was when it was opened.
    #[must_use]
    pub fn status(&self) -> FileStatus {
        self.status
    }

    /// Whether a symbolic link was on the way. Then the directory that its path names is not the
    /// one it is in.
    #[must_use]
    pub fn through_symlink(&self) -> bool {
        self.through_symlink
    }

    /// What it is now. Not what its path leads to now: the file may have been replaced.
    ///
    /// # Errors
    /// The file system failed.
    pub fn status_now(&self) -> io::Result<FileStatus> {
        Ok(FileStatus::of(&fstat(&self.fd)?))
    }

    /// What is known of it, for [`File::described`].
    pub(crate) fn describe(&self) -> [u8; File::DESCRIBED_BYTES] {
        let FileStatus { device, inode, bytes, modified_ns } = self.status;
        let mut described = [0; File::DESCRIBED_BYTES];
        let numbers = [device, inode, bytes, modified_ns.cast_unsigned()];
        for (place, number) in described.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        described[File::DESCRIBED_BYTES - 1] = u8::from(self.through_symlink);
        described
    }

    /// A file that another process had open.
    pub(crate) fn described(fd: OwnedFd, bytes: &[u8; File::DESCRIBED_BYTES]) -> File {
        let [device, inode, bytes_then, modified_ns] =
            [0, 8, 16, 24].map(|at| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n])));
        let status =
            FileStatus { device, inode, bytes: bytes_then, modified_ns: modified_ns.cast_signed() };
        let through_symlink = bytes[File::DESCRIBED_BYTES - 1] != 0;
        File { fd, status, through_symlink }
    }

    pub(crate) const DESCRIBED_BYTES: usize = 4 * size_of::<u64>() + 1;

    /// Reads from `offset` on, and says how many bytes that was. Less than fit may only mean that
    /// more are to be asked for; 0 means that the file ends there.
    ///
    /// # Errors
    /// The file system failed.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match pread(&self.fd, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    /// Whether anybody has it open for writing. If nobody has, nobody can begin to while the
    /// [`Lease`] lives, one at a time for each file: what [`File::status_now`] and
    /// [`File::read_at`] say meanwhile belongs together.
    #[must_use]
    pub fn hold(&self) -> Held<'_> {
        let fd = self.fd.as_raw_fd();
        // A writer who is made to wait is told of by a signal, SIGIO if nothing else is asked
        // for, and that would end the process. SIGURG is ignored by default.
        // SAFETY: an integer command on a descriptor that is open; no memory is touched.
        if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } != 0 {
            return Held::Unknown;
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
            return Held::Still(Lease { file: self });
        }
        match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock => Held::BeingWritten,
            _ => Held::Unknown,
        }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // SAFETY: an integer command on a descriptor that is open; no memory is touched. That
        // there is no lease any more, since the kernel took it away, is no error here.
        unsafe { libc::fcntl(self.file.fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

/// What the kernel refuses to follow is as if it were not there.
fn refusal(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::XDEV => io::Error::new(
            io::ErrorKind::NotFound,
            "the path leads over a symbolic link that is not followed, or out of the directory",
        ),
        error => error.into(),
    }
}

/// Looks at a place without opening what is there.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const IS_DIRECTORY: OFlags = OFlags::DIRECTORY;
/// Opens without waiting for anybody: should it be a FIFO or a terminal by now, nothing comes of
/// it.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Nothing is created.
const NO_MODE: Mode = Mode::empty();

/// Where paths may lead in any case.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// From the kernel's `fcntl.h`; the libc crate lacks it.
const F_SETSIG: libc::c_int = 10;

/// How often a place that changes while it is looked at is looked at again. Who wins so often
/// against a system call of some microseconds does nothing else.
const TRIES: usize = 32;

/// Directory entries are read by so many bytes: at least a hundred of the longest names.
const LIST_BYTES: usize = 32 * 1024;

#[cfg(test)]
mod tests;
