//! Another user to run as, and the way to become it: for good, with no privilege left.
//!
//! To Linux a user, its groups and its capabilities belong to a thread, and only the C library
//! makes it look otherwise. So each thread lays down its own, once it has done what takes them; a
//! thread that is started afterwards has what the one that started it still has, which is nothing.

use nix::errno::Errno;
use nix::unistd;
use rustix::fd::AsFd;
use rustix::fs::fchown;
use rustix::process::{
    DumpableBehavior, Gid, Uid, getegid, geteuid, getgid, getuid, set_dumpable_behavior,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::ffi::{CStr, CString};
use std::io;

/// A user of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    id: Uid,
    /// The group that its files have.
    group: Gid,
    /// All of its groups.
    groups: Vec<Gid>,
}

impl User {
    /// The user of that name; `None` if this host has none.
    ///
    /// # Errors
    /// The list of users cannot be read.
    pub fn named(name: &str) -> io::Result<Option<User>> {
        let found = match unistd::User::from_name(name) {
            // Some name services report a missing user by these errors (getpwnam(3)).
            Err(Errno::ENOENT | Errno::ESRCH) => None,
            found => found?,
        };
        let Some(unistd::User { uid, gid, .. }) = found else { return Ok(None) };
        let groups = groups(&CString::new(name)?, gid.as_raw())?;
        Ok(Some(User {
            id: Uid::from_raw(uid.as_raw()),
            group: Gid::from_raw(gid.as_raw()),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
        }))
    }

    /// Whether it may do what no other user may.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.id.is_root()
    }

    /// Gives it a file that this process has made.
    ///
    /// # Errors
    /// This process may not give files away.
    pub fn own(&self, file: &impl AsFd) -> io::Result<()> {
        Ok(fchown(file, Some(self.id), Some(self.group))?)
    }

    /// Its number, and that of the group that its files have.
    pub(crate) fn ids(&self) -> (Uid, Gid) {
        (self.id, self.group)
    }

    /// Makes the calling thread, and every thread it starts from now on, run as this user, without
    /// any capability and without a way to gain one.
    ///
    /// # Errors
    /// The kernel does not let this process become that user. The thread may have lost some of
    /// its privileges by then.
    pub fn become_for_good(&self) -> io::Result<()> {
        empty_bounding_set()?;
        let is_other = (getuid(), geteuid()) != (self.id, self.id)
            || (getgid(), getegid()) != (self.group, self.group);
        if is_other {
            // In this order: whoever is no longer root may not change groups.
            set_thread_groups(&self.groups)?;
            set_thread_res_gid(self.group, self.group, self.group)?;
            set_thread_res_uid(self.id, self.id, self.id)?;
        }
        // Root has lost all of these with its id. Whoever was given them otherwise has not.
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )?;
        set_no_new_privs(true)?;
        Ok(())
    }
}

/// Lets the kernel show this process under `/proc` to the user it has become, and write its core
/// dumps: both end when a thread becomes another user. Only once every thread has: until then
/// whoever is that user could reach those that still are root through the memory they share.
///
/// # Errors
/// The kernel refused.
pub fn show_to_user() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Takes away what a program with privileges of its own could bring. Whoever may not do that has
/// little need to: without new privileges no program brings any.
fn empty_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Behind the last one that this kernel knows.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// All groups of a user, that of its files among them. `getgrouplist` of nix takes as many as the C
/// library says, and musl says 32.
fn groups(name: &CStr, group: libc::gid_t) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `name` ends with a zero; `groups` is valid for writes of `count` numbers, and
        // `count` for reading and writing, during the call.
        let fits = unsafe {
            libc::getgrouplist(name.as_ptr(), group, groups.as_mut_ptr(), &raw mut count)
        };
        let count = usize::try_from(count).unwrap_or(0);
        if fits >= 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("a user has too many groups"));
        }
        groups.resize(count.max(groups.len() * 2).min(GROUPS_MAX), 0);
    }
}

/// As many as the kernel takes (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = User::named("root").unwrap().expect("every host has one");
        assert!(root.is_root() && root.groups.contains(&root.group));
        for name in ["", "no such user", "root\0"] {
            assert_eq!(User::named(name).unwrap(), None, "{name:?}");
        }
    }

    #[test]
    fn a_thread_that_has_become_a_user_starts_others_without_privileges() {
        if !stentor_test::is_root("becoming another user") {
            return;
        }
        let user = User::named("nobody").unwrap().expect("every host has one");
        let (id, group) = (user.id, user.group);
        let first = move || {
            user.become_for_good().unwrap();
            assert!(set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err());
            let second = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
            std::thread::spawn(second).join().unwrap()
        };
        let status = std::thread::spawn(first).join().unwrap();
        let says = |name: &str, value: &str| {
            let line = status.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
            let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
            assert!(!words.is_empty() && words.iter().all(|word| *word == value), "{line}");
        };
        says("Uid", &id.to_string());
        says("Gid", &group.to_string());
        says("Groups", &group.to_string());
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            says(set, "0000000000000000");
        }
        says("NoNewPrivs", "1");
        assert!(geteuid().is_root(), "other threads are who they were");
    }
}
