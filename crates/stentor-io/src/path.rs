//! Files by their paths, which an operator names: read whole, looked at, appended to, made.

use crate::bounded::note_path;
use crate::file::since_1970_ns;
use crate::{FileKind, FileStatus, User};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{CWD, FileType, OFlags, RenameFlags, Stat, fstat, renameat_with, stat};
use std::fs::{File, OpenOptions, hard_link, remove_file};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// The state of a file. Every change of the file changes its state, and so does another file that
/// takes its name. Permissions and owner are a part of it, other than of [`FileStatus`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileState {
    /// A file, a directory or something else.
    pub kind: FileKind,
    /// The state of its content.
    pub status: FileStatus,
    /// Its permissions, as `chmod` takes them.
    pub permissions: u32,
    /// The number of the user that it belongs to.
    pub owner: u32,
    /// When its content, its permissions or its owner changed last.
    changed_ns: i64,
}

impl FileState {
    fn of(status: &Stat) -> FileState {
        FileState {
            kind: FileKind::of(status),
            status: FileStatus::of(status),
            permissions: status.st_mode & 0o7777,
            owner: status.st_uid,
            changed_ns: since_1970_ns(status.st_ctime, status.st_ctime_nsec),
        }
    }
}

/// The state of the file at a path now. Symbolic links are followed.
///
/// # Errors
/// There is no such file, or the kernel does not let this process look at it.
pub fn file_state(path: &Path) -> io::Result<FileState> {
    note_path(path);
    Ok(FileState::of(&stat(path)?))
}

/// The state of an open file now.
///
/// # Errors
/// The file system failed.
pub fn file_state_of(file: impl AsFd) -> io::Result<FileState> {
    Ok(FileState::of(&fstat(file)?))
}

/// Opens a file to read it, and closes it.
///
/// # Errors
/// As of [`File::open`].
pub fn check_readable(path: &Path) -> io::Result<()> {
    File::open(path).map(drop)
}

/// Reads a whole regular file that has at most so many bytes. A FIFO, a socket or a device is
/// rejected: to read one may take for ever, or have no end.
///
/// The content may be a secret. Up to `UNMOVED_BYTES_MAX` bytes are never moved, so no copy stays
/// behind in memory, and what was read is overwritten if there is no result.
///
/// # Errors
/// As of [`File::open`] and [`Read::read`]; [`ErrorKind::FileTooLarge`] for a larger file.
/// [`ErrorKind::InvalidInput`] names the kind of a file that is not regular.
pub fn read_file(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    note_path(path);
    // To open a device may have an effect, so its kind is looked up first.
    check_is_regular(&stat(path)?)?;
    // Another file may have taken its name since: to open a FIFO would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check_is_regular(&fstat(&file)?)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max.min(UNMOVED_BYTES_MAX) + 1));
    file.take((bytes_max as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let reason = format!("it is larger than {} KiB", bytes_max / 1024);
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(mem::take(&mut *bytes))
}

/// Rejects every kind of file but a regular one.
fn check_is_regular(status: &Stat) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no regular file",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {kind}, and a file is needed")))
}

/// Opens a file to append to it. If there is none, it is made with these permissions, if any.
///
/// # Errors
/// As of [`OpenOptions::open`].
pub fn append(path: &Path, made_with: Option<u32>) -> io::Result<impl Write + Send + use<>> {
    let mut options = OpenOptions::new();
    if let Some(permissions) = made_with {
        options.create(true).mode(permissions);
    }
    options.append(true).open(path)
}

/// Writes to an open file, a pipe or a terminal without a buffer, by a descriptor of its own.
///
/// # Errors
/// Out of files.
pub fn unbuffered(file: BorrowedFd<'_>) -> io::Result<impl Write + Send + use<>> {
    Ok(File::from(file.try_clone_to_owned()?))
}

/// Makes a file that only its owner can read, with all of its content or not at all. If there is
/// one already, it stays as it is.
///
/// # Errors
/// The directory cannot be written, or the file cannot be given to that owner.
pub fn make_secret(path: &Path, secret: &[u8], owner: Option<&User>) -> io::Result<()> {
    // Not in its place: half of it would be a secret too. By chance, so that no file that a killed
    // process left is in the way: process numbers come again, above all in containers.
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.new", RandomState::new().hash_one(())));
    let made = path.with_file_name(name);
    let done = write_secret(&made, secret, owner)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", made.display())))
        .and_then(|()| rename_new(&made, path));
    match remove_file(&made) {
        Err(error) if error.kind() != ErrorKind::NotFound => done.and(Err(error)),
        _ => done,
    }?;
    // Without this, a power cut could take it back after it was used.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    step()?;
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_secret(path: &Path, secret: &[u8], owner: Option<&User>) -> io::Result<()> {
    step()?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    owner.map_or(Ok(()), |owner| owner.own(&file))?;
    step()?;
    file.write_all(secret)?;
    step()?;
    file.sync_all()
}

/// Renames a file, unless one of that name exists: another process may have made it.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let renamed =
        step().and_then(|()| Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?));
    match renamed {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        // The file system does not know the flag: some know hard links.
        Err(_) => match step().and_then(|()| hard_link(from, to)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        },
        Ok(()) => Ok(()),
    }
}

/// A step that a test can have fail.
fn step() -> io::Result<()> {
    #[cfg(test)]
    tests::step()?;
    Ok(())
}

/// A file of this size is read into memory that was taken before.
const UNMOVED_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monotonic_us;
    use crate::scratch::Scratch;
    use rustix::fs::{Mode, mkfifoat};
    use std::cell::Cell;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    thread_local! {
        /// Which of the next steps fail, one bit each.
        static FAILING: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn step() -> io::Result<()> {
        let failing = FAILING.get();
        FAILING.set(failing >> 1);
        match failing & 1 {
            0 => Ok(()),
            _ => Err(ErrorKind::PermissionDenied.into()),
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_bound() {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        fs::write(&path, [7; 2048]).unwrap();
        let read = read_file(&path, usize::MAX).unwrap();
        assert_eq!(read, [7; 2048]);
        assert!(read.capacity() > UNMOVED_BYTES_MAX, "it was never moved");
        assert_eq!(read_file(&path, 2048).unwrap(), [7; 2048]);
        let error = read_file(&path, 2047).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it is larger than 1 KiB");
        let error = read_file(&scratch.join("none"), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn special_files_are_rejected_by_their_kind() {
        let scratch = Scratch::new();
        let fifo = scratch.join("fifo");
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let _socket = UnixListener::bind(scratch.join("socket")).unwrap();
        let kinds = [
            (fifo, "a FIFO"),
            (scratch.join("socket"), "a socket"),
            ("/dev/zero".into(), "a device"),
            (scratch.to_path_buf(), "a directory"),
        ];
        for (path, kind) in kinds {
            let error = read_file(&path, usize::MAX).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {kind}, and a file is needed"));
        }
    }

    #[test]
    fn every_change_of_a_file_changes_its_state() {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        fs::write(&path, "a").unwrap();
        let first = file_state(&path).unwrap();
        assert_eq!((first.kind, first.status.bytes), (FileKind::File, 1));
        assert_eq!(file_state(&path).unwrap(), first);
        assert_eq!(file_state_of(File::open(&path).unwrap()).unwrap(), first);
        symlink(&path, scratch.join("link")).unwrap();
        assert_eq!(file_state(&scratch.join("link")).unwrap(), first);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let second = file_state(&path).unwrap();
        assert_eq!((second.permissions, second.status), (0o640, first.status));
        let until_us = monotonic_us() + 10_000_000;
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // The kernel's clock for files is coarse.
        while file_state(&path).unwrap() == second {
            assert!(monotonic_us() < until_us, "a change is hidden by the time that it was given");
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            (&file).write_all(b"b").unwrap();
            file.set_modified(modified).unwrap();
        }
        assert_eq!(file_state(&path).unwrap().status, first.status);
        fs::write(scratch.join("other"), "a").unwrap();
        fs::rename(scratch.join("other"), &path).unwrap();
        assert_ne!(file_state(&path).unwrap().status, first.status);
        assert_eq!(file_state(&scratch).unwrap().kind, FileKind::Directory);
    }

    #[test]
    fn a_secret_is_made_once_for_its_owner() {
        let scratch = Scratch::new();
        let path = scratch.join("secret");
        for secret in [b"first", b"other"] {
            make_secret(&path, secret, None).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(file_state(&path).unwrap().permissions & 0o077, 0);
        assert_eq!(fs::read_dir(&*scratch).unwrap().count(), 1, "no other file is left");
    }

    /// Opening, writing and syncing the file, the rename and the link, syncing the directory.
    #[test]
    fn a_secret_is_whole_or_missing_whichever_step_fails() {
        let count = |scratch: &Scratch| fs::read_dir(&**scratch).unwrap().count();
        for failing in [0b1, 0b10, 0b100, 0b11000] {
            let scratch = Scratch::new();
            let path = scratch.join("secret");
            FAILING.set(failing);
            let error = make_secret(&path, b"secret", None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert_eq!(error.to_string().contains(".new: "), failing < 0b1000, "{error}");
            assert_eq!((FAILING.get(), count(&scratch)), (0, 0), "{failing:b}");
            make_secret(&path, b"secret", None).unwrap();
        }
        // A file system that does not know the flag, and a directory that cannot be synced.
        for (failing, is_made) in [(0b1000, true), (0b10000, false), (0b101000, false)] {
            let scratch = Scratch::new();
            let path = scratch.join("secret");
            FAILING.set(failing);
            assert_eq!(make_secret(&path, b"secret", None).is_ok(), is_made, "{failing:b}");
            assert_eq!(fs::read(&path).unwrap(), b"secret");
            assert_eq!((FAILING.get(), count(&scratch)), (0, 1));
        }
        // Left by a process that was killed.
        let scratch = Scratch::new();
        let path = scratch.join("secret");
        fs::write(scratch.join(format!("secret.{}.new", std::process::id())), "half").unwrap();
        make_secret(&path, b"secret", None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        // Another process is quicker.
        FAILING.set(0b1000);
        make_secret(&path, b"other", None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret");
    }

    #[test]
    fn append_makes_a_file_only_if_told() {
        let scratch = Scratch::new();
        let path = scratch.join("log");
        assert_eq!(append(&path, None).map(drop).unwrap_err().kind(), ErrorKind::NotFound);
        for made_with in [Some(0o640), None] {
            append(&path, made_with).unwrap().write_all(b"line\n").unwrap();
        }
        unbuffered(OpenOptions::new().append(true).open(&path).unwrap().as_fd())
            .unwrap()
            .write_all(b"end\n")
            .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "line\nline\nend\n");
        assert_eq!(file_state(&path).unwrap().permissions & !0o040, 0o600, "umask may take more");
    }
}
