//! Resolving a path beneath a directory so that nothing leads out of it.
//!
//! The kernel does it in one call: `openat2` with `RESOLVE_BENEATH`. But not every sandbox lets a
//! process call it. systemd's `RestrictSUIDSGID=`, which `DynamicUser=` implies, answers `ENOSYS`,
//! because a system call filter cannot read the flags that `openat2` takes by reference. Old
//! container engines answer `EPERM`. There the path is walked here, one component at a time, with
//! the same result for each path.
//!
//! The walk is safe against a writer who renames meanwhile, because it checks nothing by name:
//!
//! - Each component is opened from the descriptor of the directory before it, with `O_NOFOLLOW`.
//!   The kernel then never follows a link on its own.
//! - The walk opens each component with `O_PATH` and inspects its descriptor. It also reads a link
//!   through that descriptor. The text is that of the link it found, even if another file has the
//!   link's name by then.
//! - `..` returns to the descriptor that the walk came from, and never asks the file system for
//!   the parent. A directory that was moved elsewhere meanwhile has another parent there.
//!
//! If a directory is moved out of the root during a walk, the walk continues in it, as `openat2`
//! does: the directory was beneath the root when it was found. Two rules of the kernel for links do
//! not bind the walk, because the kernel does not follow the link: `fs.protected_symlinks` and the
//! mount option `nosymfollow`. The walk stays beneath the root without them.

use super::{BENEATH, FileKind, NO_MODE, PLACE, Symlinks, TRIES};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, OFlags, ResolveFlags, fstat};
use rustix::io::Errno;

/// Who resolves paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resolver {
    /// The kernel, by `openat2`.
    Kernel,
    /// [`walk`].
    Walk,
}

/// A component of a path.
enum Component {
    /// It was opened.
    Opened(OwnedFd),
    /// A symbolic link with this text.
    Link(Vec<u8>),
}

impl Resolver {
    /// The kernel, if it resolves paths beneath this directory for us.
    pub(super) fn choose(root: BorrowedFd<'_>) -> Result<Resolver, Errno> {
        match Resolver::Kernel.open(root, ".", PLACE, Symlinks::Refused) {
            Ok(_) => Ok(Resolver::Kernel),
            Err(Errno::NOSYS | Errno::PERM) => Ok(Resolver::Walk),
            Err(error) => Err(error),
        }
    }

    /// Opens what a path beneath the root leads to. `LOOP`: it leads over a link that is not to be
    /// followed, or over too many. `XDEV`: it leads out. `AGAIN`: it changes too fast.
    pub(super) fn open(
        self,
        root: BorrowedFd<'_>,
        path: &str,
        flags: OFlags,
        symlinks: Symlinks,
    ) -> Result<OwnedFd, Errno> {
        let resolve = match symlinks {
            Symlinks::Refused => BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Followed => BENEATH,
        };
        for _ in 0..TRIES {
            let result = match self {
                Resolver::Kernel => fs::openat2(root, path, flags, NO_MODE, resolve),
                Resolver::Walk => walk(root, path, flags, symlinks),
            };
            match result {
                // Something was renamed meanwhile: the kernel cannot tell whether a `..` led out,
                // and neither it nor the walk will guess.
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// [`Resolver::open`] without the kernel's help.
fn walk(
    root: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    symlinks: Symlinks,
) -> Result<OwnedFd, Errno> {
    let mut rest = relative(path.as_bytes().to_vec())?;
    // The directories below the root that lead to the current one.
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    loop {
        let slash = rest.iter().position(|&byte| byte == b'/');
        let name = &rest[..slash.unwrap_or(rest.len())];
        if name == b".." {
            way.pop().ok_or(Errno::XDEV)?;
        }
        let is_here = matches!(name, b"" | b"." | b"..");
        let name = if is_here { &b"."[..] } else { name };
        let here = way.last().map_or(root, OwnedFd::as_fd);
        let component = match slash {
            Some(_) if is_here => None,
            Some(_) => Some(open_component(here, name, PLACE | OFlags::DIRECTORY)?),
            None => Some(open_component(here, name, flags)?),
        };
        let after = slash.map_or(rest.len(), |slash| slash + 1);
        match component {
            Some(Component::Opened(fd)) if slash.is_none() => return Ok(fd),
            Some(Component::Opened(_)) if way.len() == DEPTH_MAX => return Err(Errno::NAMETOOLONG),
            Some(Component::Opened(fd)) => way.push(fd),
            Some(Component::Link(text)) => {
                links += 1;
                if symlinks == Symlinks::Refused || links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                let separator: &[u8] = if slash.is_some() { b"/" } else { b"" };
                rest = relative([&text, separator, &rest[after..]].concat())?;
                continue;
            }
            None => {}
        }
        rest.drain(..after);
    }
}

/// A path that begins at the current directory.
fn relative(path: Vec<u8>) -> Result<Vec<u8>, Errno> {
    match path.first() {
        None => Err(Errno::NOENT),
        Some(b'/') => Err(Errno::XDEV),
        Some(_) if path.len() >= PATH_BYTES_MAX => Err(Errno::NAMETOOLONG),
        Some(_) => Ok(path),
    }
}

/// Opens one name in a directory. A link is read instead, whatever the flags are.
fn open_component(
    directory: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
) -> Result<Component, Errno> {
    let place = match fs::openat(directory, name, flags | OFlags::NOFOLLOW, NO_MODE) {
        Ok(fd) if flags != PLACE => return Ok(Component::Opened(fd)),
        Ok(place) => place,
        // A link, or no directory.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            fs::openat(directory, name, PLACE | OFlags::NOFOLLOW, NO_MODE)?
        }
        Err(error) => return Err(error),
    };
    match FileKind::of(&fstat(&place)?) {
        FileKind::Link => Ok(Component::Link(fs::readlinkat(&place, "", Vec::new())?.into_bytes())),
        _ if flags == PLACE => Ok(Component::Opened(place)),
        FileKind::File | FileKind::Special if flags.contains(OFlags::DIRECTORY) => {
            Err(Errno::NOTDIR)
        }
        // The link has become something else between the two calls.
        _ => Err(Errno::AGAIN),
    }
}

/// How many links of one path are followed, as in the kernel.
const LINKS_MAX: usize = 40;

/// A path is shorter than this, with its NUL as long: the kernel's `PATH_MAX`.
const PATH_BYTES_MAX: usize = 4096;

/// How many directories a walk holds open: links make a path longer than `PATH_BYTES_MAX` lets it
/// be, and each level takes a descriptor of those that connections need.
const DEPTH_MAX: usize = 256;
