//! Files as they are on the disk: found, and read only if they are whole.
//!
//! Whether a file is whole the kernel knows best: while it lends out a read lease on it
//! (`F_SETLEASE`), nobody has it open for writing, and whoever wants to waits until the lease is
//! given back. What is read under a lease is what one writer left, all of it. The kernel lends
//! leases to the owner of the file and to those with `CAP_LEASE`. To all others it says nothing,
//! and then a file counts as whole that was last changed half a second ago or more, and does not
//! change while it is read.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use stentor_config::Mount;
use stentor_io::{Directory, DirectoryId, File, FileStatus, Found, Held, Symlinks, unix_ns};

/// A root, and which directory that was when it was opened.
#[derive(Debug)]
pub(super) struct Root {
    directory: Directory,
    id: DirectoryId,
}

impl Root {
    pub(super) fn open(mount: &Mount) -> io::Result<Root> {
        let directory = Directory::open(&mount.root)?;
        #[cfg(test)]
        while mount.root.ends_with(HANGS_IF_ASKED) {
            std::thread::park();
        }
        // The first question to the file system: it did not answer any before.
        let id = directory.identity()?;
        Ok(Root { directory, id })
    }

    /// Looks whether another directory is at its path by now: it may have been replaced as a whole,
    /// or be a link that was set anew. If so, becomes that one, and says so. One that is gone stays
    /// what it was until there is another.
    pub(super) fn look(&mut self, mount: &Mount) -> bool {
        if Directory::identity_of(&mount.root).is_ok_and(|id| id != self.id)
            && let Ok(root) = Root::open(mount)
        {
            *self = root;
            return true;
        }
        false
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// The roots and the files that one worker has open. They never leave its thread.
#[derive(Debug, Default)]
pub struct OpenFiles {
    /// By path; and the second in which each was last looked at.
    roots: HashMap<PathBuf, (Root, u64)>,
    /// Large files that are being sent: all who want the same share one descriptor.
    sending: HashMap<FileStatus, Weak<File>>,
}

impl OpenFiles {
    /// Closes the roots that no mount has any more. It opens none: a root that hangs would stop the
    /// worker. The worker opens a root when the loader has found a file there.
    pub fn retain_roots(&mut self, mounts: &[Mount]) {
        self.roots.retain(|path, _| mounts.iter().any(|mount| mount.root == *path));
    }

    /// What there is at `path` beneath the root of a mount.
    ///
    /// # Errors
    /// What the kernel says, above all that there is nothing.
    pub fn find(&mut self, mount: &Mount, path: &str, unix_s: u64) -> io::Result<Found> {
        self.root(mount, unix_s)?.find(path, symlinks(mount))
    }

    /// The root of a mount, looked at by its path once a second.
    fn root(&mut self, mount: &Mount, unix_s: u64) -> io::Result<&Directory> {
        if !self.roots.contains_key(&mount.root) {
            self.roots.insert(mount.root.clone(), (Root::open(mount)?, unix_s));
        }
        let (root, looked_at_s) = self.roots.get_mut(&mount.root).expect("it was just opened");
        if *looked_at_s != unix_s {
            *looked_at_s = unix_s;
            root.look(mount);
        }
        Ok(&root.directory)
    }

    /// A large file to be sent from: the one that others are being sent from, if it is the same.
    pub fn share(&mut self, file: File) -> Arc<File> {
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
pub fn is_whole(file: &File) -> io::Result<bool> {
    let held = file.hold();
    let status = file.status_now()?;
    Ok(is_settled(&held, &status, unix_ns()) && status == file.status())
}

/// What a file holds, and its status at that moment; `None` if it is being written.
///
/// # Errors
/// It cannot be read.
pub fn read_whole(file: &File) -> io::Result<Option<(FileStatus, Vec<u8>)>> {
    let held = file.hold();
    let status = file.status_now()?;
    // Should it have grown since it was found, somebody may be asking for more than is small.
    if !is_settled(&held, &status, unix_ns()) || status.bytes > file.status().bytes {
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

/// Whether nobody is writing. Where the kernel does not say, that is so if the last change was long
/// enough ago; a time to come was set on purpose, by whoever was done with it.
fn is_settled(held: &Held<'_>, status: &FileStatus, now_ns: i64) -> bool {
    match held {
        Held::Still(_) => true,
        Held::BeingWritten => false,
        Held::Unknown => now_ns.abs_diff(status.modified_ns) >= SETTLED_NS,
    }
}

/// How long a file must not have changed to count as whole where nothing better is known.
const SETTLED_NS: u64 = 500_000_000;

/// The name of a root whose file system does not answer.
#[cfg(test)]
pub(super) const HANGS_IF_ASKED: &str = "hangs-if-asked";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_settles_in_half_a_second() {
        let status = FileStatus { device: 0, inode: 0, bytes: 0, modified_ns: 1_000_000_000 };
        let is_settled_at = |now_ns| is_settled(&Held::Unknown, &status, now_ns);
        let times_ns = [1_000_000_000, 1_499_999_999, 1_500_000_000, 500_000_001, 500_000_000];
        assert_eq!(times_ns.map(is_settled_at), [false, false, true, false, true]);
    }
}
