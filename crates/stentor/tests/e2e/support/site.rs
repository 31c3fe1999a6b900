//! A directory whose files a server serves, and the ways in which it may do so.
//!
//! What a client is answered must not depend on where the bytes come from. So most tests of files
//! ask for the same thing in all ways: from memory, read from the disk, and sent by the kernel.

use super::{Server, TempDir, eventually, sandbox_without_openat2, stentor};
use crate::support::skip;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A root with files, in a directory of its own. Both go with the handle.
pub(crate) struct Site(TempDir);

/// How the server comes to the bytes of a file, and the settings that make it so.
const WAYS: [(&str, &str); 3] = [
    ("from memory", ""),
    ("read from the disk", NO_CACHE),
    ("by sendfile", "[files]\ncache_bytes_max = 0\nsmall_bytes_max = 0\n"),
];

/// Settings under which nothing is kept.
pub(crate) const NO_CACHE: &str = "[files]\ncache_bytes_max = 0\n";

/// When the files of a new site were changed last, as it stands in a head.
pub(crate) const LONG_AGO: &str = "Tue, 02 Jan 2024 03:04:05 GMT";
const LONG_AGO_UNIX_S: u64 = 1_704_164_645;

impl Site {
    /// With these files, which were changed long ago.
    pub(crate) fn of(files: &[(&str, &[u8])]) -> Site {
        let site = Site(TempDir::new());
        fs::create_dir(site.root()).unwrap();
        for (name, content) in files {
            site.write(name, content);
            set_modified(&site.path(name), UNIX_EPOCH + Duration::from_secs(LONG_AGO_UNIX_S));
        }
        site
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.outside("root")
    }

    /// A place beneath the root.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A place beside the root.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file where it is, as an editor may.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes a file elsewhere and renames it over what is there.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) {
        let new = self.outside("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// A file of so many zeros that takes no room.
    pub(crate) fn sparse(&self, name: &str, bytes: u64) {
        File::create(self.path(name)).unwrap().set_len(bytes).unwrap();
        set_modified(&self.path(name), UNIX_EPOCH + Duration::from_secs(LONG_AGO_UNIX_S));
    }

    /// The part of a configuration that mounts the root, with more keys of the mount, and tables
    /// after it.
    pub(crate) fn toml(&self, rest: &str) -> String {
        format!("[[static]]\nroot = '{}'\n{rest}", self.root().display())
    }

    /// A server of it.
    pub(crate) fn serve(&self, rest: &str) -> Server {
        Server::configured(&self.toml(rest))
    }

    /// One where the kernel does not resolve paths: a sandbox forbids `openat2`.
    pub(crate) fn serve_without_openat2(&self, rest: &str) -> Option<Server> {
        let sandbox = sandbox_without_openat2()?;
        let server = Server::with(
            &format!("exec {sandbox} \"$0\" \"$@\";"),
            &self.toml(rest),
            &["--workers", "2"],
        );
        assert!(server.child.err().contains("openat2 is not available"), "{}", server.child.err());
        Some(server)
    }

    /// The servers that resolve paths in each way: all that can be had here.
    pub(crate) fn serve_each_way(&self, rest: &str) -> Vec<Server> {
        [Some(self.serve(rest)), self.serve_without_openat2(rest)].into_iter().flatten().collect()
    }

    /// One that is another user than the owner of the files, if there can be one.
    pub(crate) fn serve_as_nobody(&self, rest: &str) -> Option<Server> {
        let program = stentor([""; 0]).get_program().to_owned();
        let mut attempt = Command::new("setpriv");
        attempt.args(NOBODY).args(["test", "-x"]).arg(program).stderr(Stdio::null());
        if !attempt.status().is_ok_and(|status| status.success()) {
            skip("only root can start a server as another user");
            return None;
        }
        let prelude = format!("exec setpriv {} \"$0\" \"$@\";", NOBODY.join(" "));
        Some(Server::with(&prelude, &self.toml(rest), &["--workers", "2"]))
    }

    /// Runs a test on servers that answer in each way. `rest` is as in [`Site::toml`], and
    /// `targets` are what is to be in memory.
    #[track_caller]
    pub(crate) fn each_way(&self, rest: &str, targets: &[&str], test: impl Fn(&Server, &str)) {
        for (way, settings) in WAYS {
            let server = self.serve(&format!("{rest}{settings}"));
            if settings.is_empty() {
                targets.iter().for_each(|target| kept(&server, target));
            }
            test(&server, way);
        }
    }
}

/// Asks until the answer comes from memory.
#[track_caller]
pub(crate) fn kept(server: &Server, target: &str) {
    eventually(&format!("{target} is kept"), || {
        let before = server.figure("counters/file_hits");
        server.public.get(target).expect_one_of(&[200, 503]);
        (server.figure("counters/file_hits") > before).then_some(())
    });
}

/// Asks until the answer is this content. Until then it may be what was there before, and that is
/// all it may be.
#[track_caller]
pub(crate) fn becomes(server: &Server, target: &str, before: &[u8], after: &[u8]) {
    eventually(&format!("{target} has changed"), || {
        let response = server.public.get(target).expect_one_of(&[200, 503]);
        let body = &response.body[..];
        assert!(response.status == 503 || body == before || body == after, "{response:?}");
        (response.status == 200 && body == after).then_some(())
    });
}

/// Asks until there is no such file.
#[track_caller]
pub(crate) fn vanishes(server: &Server, target: &str) {
    eventually(&format!("{target} has gone"), || {
        (server.public.get(target).expect_one_of(&[200, 404]).status == 404).then_some(())
    });
}

/// Bytes of which no two parts are alike, for a file that is neither text nor easy to compress.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn set_modified(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
