//! Files as they are on the disk: found, and read only if they are whole.
//!
//! Whether a file is whole the kernel knows best: while it lends out a read lease on it
//! (`F_SETLEASE`), nobody has it open for writing, and whoever wants to waits until the lease is
//! given back. What is read under a lease is what one writer left, all of it. The kernel lends
//! leases to the owner of the file and to those with `CAP_LEASE`. To all others it says nothing,
//! and then a file counts as whole that was last changed half a second ago or more, and does not
//! change while it is read.

use super::Library;
use crate::config::Mount;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use stentor_io::{Directory, File, FileStatus, Found, Held, Listing, Symlinks, unix_ns};

/// The roots and the files that one worker has open. They never leave its thread.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    /// By mount, each opened when first needed.
    roots: Vec<Option<Directory>>,
    /// What [`Library::roots`] was when they were.
    as_of: u64,
    /// Large files that are being sent: all who want the same share one descriptor.
    sending: HashMap<FileStatus, Weak<File>>,
}

impl OpenFiles {
    /// The settings have changed: the roots may be others.
    pub(crate) fn forget_roots(&mut self) {
        self.roots.clear();
    }

    /// What there is at `path` beneath the root of a mount.
    ///
    /// # Errors
    /// What the kernel says, above all that there is nothing.
    pub(crate) fn find(
        &mut self,
        library: &Library,
        (index, mount): (usize, &Mount),
        path: &str,
    ) -> io::Result<Found> {
        self.root(library, index, mount)?.find(path, symlinks(mount))
    }

    /// What is in a directory beneath the root of a mount.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn list(
        &mut self,
        library: &Library,
        (index, mount): (usize, &Mount),
        path: &str,
        names_max: usize,
    ) -> io::Result<Listing> {
        self.root(library, index, mount)?.list(path, symlinks(mount), names_max)
    }

    fn root(&mut self, library: &Library, index: usize, mount: &Mount) -> io::Result<&Directory> {
        let now = library.roots();
        if self.as_of != now {
            self.as_of = now;
            self.roots.clear();
        }
        if self.roots.len() <= index {
            self.roots.resize_with(index + 1, || None);
        }
        let root = &mut self.roots[index];
        match root {
            Some(root) => Ok(root),
            None => Ok(root.insert(Directory::open(&mount.root)?)),
        }
    }

    /// A large file to be sent from: the one that others are being sent from, if it is the same.
    pub(crate) fn share(&mut self, file: File) -> Arc<File> {
        if let Some(shared) = self.sending.get(&file.status()).and_then(Weak::upgrade) {
            return shared;
        }
        if self.sending.len() >= self.sending.capacity() {
            self.sending.retain(|_, file| file.strong_count() > 0);
        }
        let shared = Arc::new(file);
        self.sending.insert(shared.status(), Arc::downgrade(&shared));
        shared
    }
}

/// The links a mount allows.
pub(super) fn symlinks(mount: &Mount) -> Symlinks {
    if mount.symlinks { Symlinks::Followed } else { Symlinks::Refused }
}

/// Whether a large file is whole, and still what it was when it was found.
///
/// # Errors
/// It cannot be looked at.
pub(crate) fn is_whole(file: &File) -> io::Result<bool> {
    let held = file.hold();
    let unchanged = file.status_now()? == file.status();
    let settled = match held {
        Held::Still(_) => true,
        Held::BeingWritten => false,
        Held::Unknown => has_settled(&file.status()),
    };
    Ok(settled && unchanged)
}

/// What a file holds, and its status at that moment; `None` if it is being written.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_whole(file: &File) -> io::Result<Option<(FileStatus, Vec<u8>)>> {
    let held = file.hold();
    let status = file.status_now()?;
    let settled = match held {
        Held::Still(_) => true,
        Held::BeingWritten => false,
        Held::Unknown => has_settled(&status),
    };
    // Should it have grown since it was found, somebody may be asking for more than is small.
    if !settled || status.bytes > file.status().bytes {
        return Ok(None);
    }
    let mut content = vec![0; status.bytes as usize];
    let mut length = 0;
    while length < content.len() {
        match file.read_at(&mut content[length..], length as u64)? {
            0 => return Ok(None),
            read => length += read,
        }
    }
    let unchanged = matches!(held, Held::Still(_)) || file.status_now()? == status;
    Ok(unchanged.then_some((status, content)))
}

/// Whether the last change was long enough ago that no more is to be expected. A time to come was
/// set on purpose, by whoever was done with it.
fn has_settled(status: &FileStatus) -> bool {
    unix_ns().abs_diff(status.modified_ns) >= SETTLED_NS
}

/// How long a file must not have changed to count as whole where nothing better is known.
const SETTLED_NS: u64 = 500_000_000;
