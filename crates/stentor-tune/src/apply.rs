//! Making the changes that can be made while the host runs, and making sure that each took.
//!
//! These are settings of the kernel and files below `/proc` and `/sys`. What belongs to whoever
//! starts the process (limits of files, memory and threads, flags) is left alone.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::Serialize;

use crate::cpus::{parse_list, parse_mask};
use crate::facts::chosen;
use crate::{Change, Report, Setting};

/// A change that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The change; `now` is the value that was there before, and `wanted` the one that is there
    /// since, if the kernel made another of it: it rounds some.
    pub change: Change,
    /// Why it was not made; none if it was.
    pub error: Option<String>,
}

/// Makes every change of a report that can be made while the host runs. `root` is `/`.
#[must_use]
pub fn apply(root: &Path, report: &Report) -> Vec<Applied> {
    let changes = report.findings.iter().flat_map(|finding| &finding.changes);
    changes.filter_map(|change| Some(one(root, change, &path(&change.setting)?))).collect()
}

/// The file by which a setting is set.
fn path(setting: &Setting) -> Option<String> {
    match setting {
        Setting::Sysctl(name) => Some(format!("proc/sys/{}", name.replace('.', "/"))),
        Setting::File(path) => Some(path.clone()),
        _ => None,
    }
}

fn one(root: &Path, change: &Change, path: &str) -> Applied {
    let file = root.join(path);
    let read = || fs::read_to_string(&file).map(|text| value(&text));
    let tried = || -> io::Result<(String, String)> {
        let old = read()?;
        fs::write(&file, &change.wanted)?;
        Ok((old, read()?))
    };
    match tried() {
        Err(error) => Applied { change: change.clone(), error: Some(reason(&error)) },
        Ok((old, new)) => outcome(change, old, new),
    }
}

/// What came of a change that the kernel did not refuse.
fn outcome(change: &Change, old: String, new: String) -> Applied {
    let is_taken = is_same(&new, &change.wanted);
    let error = (!is_taken && new == old).then(|| format!("the kernel keeps it at {old}"));
    let wanted = if is_taken || error.is_some() { change.wanted.clone() } else { new };
    Applied { change: Change { now: Some(old), wanted, ..change.clone() }, error }
}

/// A value as it would be written.
fn value(text: &str) -> String {
    chosen(text).unwrap_or_else(|| text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// The kernel writes masks and lists of cores in its own way.
fn is_same(read: &str, wanted: &str) -> bool {
    let same =
        |parse: fn(&str) -> Option<_>| parse(read).is_some_and(|cpus| Some(cpus) == parse(wanted));
    read == wanted || same(parse_list) || same(parse_mask)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            "it is read-only here: set it on the container's host, or \
                                          start the container with --sysctl"
                .to_owned()
        }
        ErrorKind::NotFound => {
            "it is not there: a network namespace does not show what belongs to \
                                the whole host; set it there"
                .to_owned()
        }
        ErrorKind::PermissionDenied => format!("it takes more rights than root has here: {error}"),
        ErrorKind::InvalidInput => format!("the kernel refuses this value: {error}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_again() {
        let root = std::env::temp_dir().join(format!("tune-apply-{}", std::process::id()));
        let file = root.join("proc/sys/net/ipv4/tcp_mem");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "1\t2\t3\n").unwrap();
        let change = Change::sysctl("net.ipv4.tcp_mem", "0 0 0", "4 5 6");
        let done = one(&root, &change, &path(&change.setting).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "4 5 6");
        assert_eq!((done.change.now.as_deref(), done.error), (Some("1 2 3"), None));
        let change = Change::sysctl("net.core.somaxconn", 1, 2);
        let done = one(&root, &change, &path(&change.setting).unwrap());
        assert!(done.error.unwrap().contains("not there"));
        fs::remove_dir_all(root).unwrap();
    }

    /// So that whatever was changed can be undone.
    #[test]
    fn what_the_kernel_rounds_is_changed() {
        let change = Change::sysctl("net.netfilter.nf_conntrack_buckets", 1024, 5000);
        let rounded = outcome(&change, "1024".into(), "5120".into());
        assert_eq!((rounded.change.wanted.as_str(), rounded.error), ("5120", None));
        assert!(rounded.change.undo().unwrap().ends_with("nf_conntrack_buckets=1024"));
        let kept = outcome(&change, "1024".into(), "1024".into());
        assert_eq!(kept.change.wanted, "5000");
        assert_eq!(kept.error.as_deref(), Some("the kernel keeps it at 1024"));
    }

    #[test]
    fn what_is_not_the_kernels_is_left_alone() {
        assert_eq!(path(&Setting::Workers), None);
        assert_eq!(path(&Setting::OpenFiles), None);
    }

    #[test]
    fn the_kernel_writes_in_its_own_way() {
        for (read, wanted) in [("00000000,000000ff", "ff"), ("0-1", "0,1"), ("madvise", "madvise")]
        {
            assert!(is_same(read, wanted), "{read} {wanted}");
        }
        assert!(!is_same("4096", "8192") && !is_same("1 2 3", "1 2 4"));
        assert_eq!(value("always [madvise] never\n"), "madvise");
    }
}
