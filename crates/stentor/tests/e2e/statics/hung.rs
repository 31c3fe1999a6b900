//! A file system that does not answer: what it delays, and what it does not.

use crate::support::{Child, Server, Site, eventually, is_root, kept, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of FUSE whose server never answers.
struct HungMount {
    path: PathBuf,
    holder: Child,
}

impl HungMount {
    /// Mounts it over a directory. `None`: the host has no FUSE.
    fn over(path: &Path) -> Option<HungMount> {
        const MOUNT: &str = "exec 9<>/dev/fuse && \
            mount -i -t fuse hung \"$0\" -o fd=9,rootmode=40000,user_id=0,group_id=0 && \
            echo mounted && exec sleep 600";
        let holder = Child::spawn(Command::new("sh").args(["-c", MOUNT]).arg(path));
        let mut hung = HungMount { path: path.to_owned(), holder };
        let is_mounted = eventually("it is mounted, or cannot be", || {
            let is_mounted = hung.holder.out() == "mounted\n";
            (is_mounted || !hung.holder.is_running()).then_some(is_mounted)
        });
        is_mounted.then_some(hung)
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // Without a server the kernel answers for it, so nothing hangs any more.
        self.holder.kill();
        Child::spawn(Command::new("umount").arg("-l").arg(&self.path)).said();
    }
}

#[test]
fn a_mount_that_hangs_delays_no_other_client() {
    if !is_root("mounting a file system") {
        return;
    }
    let files: [(&str, &[u8]); 4] = [
        ("first.txt", b"1"),
        ("second.txt", b"2"),
        ("bad/hung/kept.txt", b"kept"),
        ("bad/hung/new.txt", b"3"),
    ];
    let site = Site::of(&files);
    let bad = site.path("bad");
    let mounts =
        format!("{}[[static]]\npath = '/bad/'\nroot = '{}'\n", site.toml(""), bad.display());
    let server = Server::with("", &mounts, &["--workers", "1"]);
    server.publish("/value", "a value");
    kept(&server, "/first.txt");
    kept(&server, "/bad/hung/kept.txt");
    let Some(hung) = HungMount::over(&bad.join("hung")) else { return };

    let mut waiting = server.reader();
    waiting.send("GET /bad/hung/new.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    for (target, text) in [("/value", "a value"), ("/first.txt", "1"), ("/second.txt", "2")] {
        assert_eq!(server.public.get(target).expect(200).text(), text);
    }
    assert_eq!(waiting.response().expect(503).field("retry-after"), Some("1"));
    // By now the server knows that the mount hangs, and checks no file of it.
    assert_eq!(server.public.get("/bad/hung/kept.txt").expect(200).text(), "kept");
    server.public.get("/bad/hung/new.txt").expect(503);

    drop(hung);
    eventually("the files are served again", || {
        (server.public.get("/bad/hung/new.txt").status == 200).then_some(())
    });
    site.replace("bad/hung/kept.txt", b"replaced");
    eventually("the new file is served", || {
        (server.public.get("/bad/hung/kept.txt").text() == "replaced").then_some(())
    });
}

/// To open the directory of a mount asks its file system nothing, so the server asks it for more.
#[test]
fn a_hung_root_is_refused_and_stops_nothing() {
    if !is_root("mounting a file system") {
        return;
    }
    let site = Site::of(&[("first.txt", b"1"), ("bad/second.txt", b"2")]);
    let bad = site.path("bad");
    let mut server = Server::with("", &site.toml(""), &["--workers", "1"]);
    server.publish("/value", "a value");
    let Some(_hung) = HungMount::over(&bad) else { return };
    let file = server.dir.path().join("stentor.toml");
    let root = format!("[[static]]\npath = '/bad/'\nroot = '{}'\n", bad.display());
    fs::write(&file, &root).unwrap();
    server.child.signal("HUP");
    let log = server.child.logged("not reloaded, the settings stay as they are: ");
    let reason = format!("the files of {} cannot be served: the file system", bad.display());
    assert!(log.starts_with(&reason), "{log}");
    assert_eq!(server.public.get("/value").expect(200).text(), "a value");
    assert_eq!(server.public.get("/first.txt").expect(200).text(), "1");
    let said = run(&["check", file.to_str().unwrap()]);
    assert!(said.err.contains(&reason), "{}", said.err);
}
