//! Files that change: what is served is whole, and soon the new one.
//!
//! "Soon" is a second; here it is not measured, but waited for.

use crate::support::{
    NO_CACHE, Response, Server, Site, becomes, eventually, gunzip, kept, tool, vanishes,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// What is served is looked at with and without a cache.
const SETTINGS: [&str; 2] = ["", NO_CACHE];

/// A server of the site, with the file in memory if it keeps any.
fn serve(site: &Site, settings: &str, target: &str) -> Server {
    let server = site.serve(settings);
    kept_if(&server, settings, target);
    server
}

/// Waits until the file is in memory, if anything is with these settings.
fn kept_if(server: &Server, settings: &str, target: &str) {
    if settings.is_empty() {
        kept(server, target);
    }
}

#[test]
fn a_file_that_is_rewritten_in_place() {
    for settings in SETTINGS {
        let site = Site::of(&[("a.txt", b"old")]);
        let server = serve(&site, settings, "/a.txt");
        let mut before = b"old".to_vec();
        let mut tags = vec![server.public.get("/a.txt").tag()];
        // Of the same length and within the same second, too.
        for i in 0..5 {
            let after = format!("new {i}").into_bytes();
            site.write("a.txt", &after);
            becomes(&server, "/a.txt", &before, &after);
            // And it stays so.
            for _ in 0..20 {
                assert!(server.public.get("/a.txt").expect(200).body == after);
            }
            tags.push(server.public.get("/a.txt").tag());
            before = after;
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 6);
    }
}

#[test]
fn while_a_file_is_written_the_old_one_is_served() {
    let old = b"old and whole\n".repeat(500);
    let new = b"new and whole\n".repeat(700);
    let site = Site::of(&[("a.txt", &old), ("large.txt", &old)]);
    let server = serve(&site, "", "/a.txt");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::create(site.path("a.txt")).unwrap();
            for piece in new.chunks(new.len() / 20 + 1) {
                file.write_all(piece).unwrap();
                file.flush().unwrap();
                thread::sleep(Duration::from_millis(40));
            }
            done.store(true, Ordering::SeqCst);
            drop(file);
        });
        let mut asked = 0;
        while !done.load(Ordering::SeqCst) {
            let response = server.public.get("/a.txt").expect(200);
            if !done.load(Ordering::SeqCst) {
                assert!(response.body == old, "{} bytes", response.body.len());
                asked += 1;
            }
        }
        assert!(asked > 0);
    });
    becomes(&server, "/a.txt", &old, &new);
}

/// A writer that begins, and goes on until it is told to end.
fn write_slowly(path: &Path, content: &[u8], begun: &AtomicBool, end: &AtomicBool) {
    let mut file = File::create(path).unwrap();
    let (first, rest) = content.split_at(content.len() / 2);
    file.write_all(first).unwrap();
    begun.store(true, Ordering::SeqCst);
    for byte in rest {
        // As long as something is written now and then, nobody can take it for done.
        if !end.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        file.write_all(&[*byte]).unwrap();
    }
}

#[test]
fn a_file_of_which_there_is_no_whole_one_is_told_to_come_later() {
    for settings in SETTINGS {
        // Small and large, new and known from the disk only.
        for (existing, bytes) in [(false, 2_000), (false, 200_000), (true, 200_000)] {
            let site = Site::of(&[("other.txt", b"x")]);
            let content = b"x".repeat(bytes);
            if existing {
                site.write("a.bin", b"old");
            }
            let server = site.serve(settings);
            let (begun, end) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| {
                let path = site.path("a.bin");
                scope.spawn(|| {
                    let path = path;
                    write_slowly(&path, &content, &begun, &end);
                });
                eventually("the file is begun", || begun.load(Ordering::SeqCst).then_some(()));
                let answers: Vec<Response> = (0..10).map(|_| server.public.get("/a.bin")).collect();
                let ranged = server.public.ask("GET", "/a.bin", "Range: bytes=0-9\r\n", b"");
                end.store(true, Ordering::SeqCst);
                for response in answers.into_iter().chain([ranged]) {
                    let response = response.refused(503);
                    let seconds = response.field("retry-after").expect("it says when");
                    assert!((1..=10).contains(&seconds.parse::<u32>().unwrap()));
                }
            });
            becomes(&server, "/a.bin", &content, &content);
        }
    }
}

#[test]
fn a_file_that_is_renamed_over_removed_and_made_again() {
    for settings in SETTINGS {
        let site = Site::of(&[("d/a.txt", b"one")]);
        let server = serve(&site, settings, "/d/a.txt");
        site.replace("d/a.txt", b"two");
        becomes(&server, "/d/a.txt", b"one", b"two");
        site.remove("d/a.txt");
        vanishes(&server, "/d/a.txt");
        site.write("d/a.txt", b"three");
        becomes_there(&server, "/d/a.txt", "three");
        // By a link to another file.
        fs::write(site.outside("b"), "four").unwrap();
        site.remove("d/a.txt");
        fs::hard_link(site.outside("b"), site.path("d/a.txt")).unwrap();
        eventually("the linked file is served", || {
            let response = server.public.get("/d/a.txt").expect_one_of(&[200, 404]);
            (response.status == 200 && response.text() == "four").then_some(())
        });
        // A directory in its place.
        site.remove("d/a.txt");
        site.write("d/a.txt/index.html", b"five");
        eventually("the directory is noticed", || {
            (server.public.get("/d/a.txt").expect_one_of(&[200, 301]).status == 301).then_some(())
        });
        becomes_there(&server, "/d/a.txt/", "five");
    }
}

/// Asks until there is this, where there was nothing.
#[track_caller]
fn becomes_there(server: &Server, target: &str, text: &str) {
    eventually(&format!("{target} is there"), || {
        let response = server.public.get(target).expect_one_of(&[200, 404, 503]);
        (response.status == 200).then(|| assert_eq!(response.text(), text))
    });
}

#[test]
fn a_time_that_is_set_is_told() {
    let site = Site::of(&[("a.txt", b"a")]);
    let server = serve(&site, "", "/a.txt");
    let date = |server: &Server| {
        let response = server.public.get("/a.txt").expect(200);
        response.field("last-modified").unwrap().to_owned()
    };
    let before = date(&server);
    let file = File::options().write(true).open(site.path("a.txt")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    drop(file);
    eventually("the time is told", || (date(&server) != before).then_some(()));
    assert_eq!(date(&server), "Sun, 09 Sep 2001 01:46:40 GMT");
}

#[test]
fn directories_that_are_renamed_take_their_files_along() {
    for settings in SETTINGS {
        let site = Site::of(&[("a/deep/x.txt", b"one"), ("b/deep/x.txt", b"two")]);
        let server = serve(&site, settings, "/a/deep/x.txt");
        kept_if(&server, settings, "/b/deep/x.txt");
        fs::rename(site.path("a"), site.path("gone")).unwrap();
        vanishes(&server, "/a/deep/x.txt");
        assert_eq!(server.public.get("/gone/deep/x.txt").expect(200).text(), "one");
        fs::rename(site.path("b"), site.path("a")).unwrap();
        becomes_there(&server, "/a/deep/x.txt", "two");
        vanishes(&server, "/b/deep/x.txt");
        // The directory is watched where it is now.
        kept_if(&server, settings, "/a/deep/x.txt");
        site.write("a/deep/x.txt", b"three");
        becomes(&server, "/a/deep/x.txt", b"two", b"three");
        fs::remove_dir_all(site.path("a")).unwrap();
        vanishes(&server, "/a/deep/x.txt");
        site.write("a/deep/x.txt", b"four");
        becomes_there(&server, "/a/deep/x.txt", "four");
    }
}

/// Asks until all workers answer so: each connection goes to one of them, by chance.
#[track_caller]
fn settles(server: &Server, target: &str, text: &str) {
    let answers = || server.public.get(target).expect_one_of(&[200, 404, 503]);
    eventually(&format!("{target} is '{text}' everywhere"), || {
        let is_so = |response: Response| response.status == 200 && response.text() == text;
        (0..40).all(|_| is_so(answers())).then_some(())
    });
}

/// Asks until the server's clock says another second. What is in memory is new at once, but a
/// worker looks once a second whether the root that it has open is still the one at that path.
#[track_caller]
fn another_second(server: &Server, target: &str) {
    let date = || server.public.get(target).field("date").unwrap().to_owned();
    let first = date();
    eventually("another second", || (date() != first).then_some(()));
}

#[test]
fn a_root_that_is_replaced() {
    for settings in SETTINGS {
        let site = Site::of(&[("a.txt", b"one"), ("d/b.txt", b"b")]);
        fs::create_dir(site.outside("next")).unwrap();
        fs::write(site.outside("next/a.txt"), "two").unwrap();
        let server = serve(&site, settings, "/a.txt");
        settles(&server, "/a.txt", "one");
        // Moved away, and another moved to its place.
        fs::rename(site.root(), site.outside("before")).unwrap();
        fs::rename(site.outside("next"), site.root()).unwrap();
        settles(&server, "/a.txt", "two");
        another_second(&server, "/a.txt");
        server.public.get("/d/b.txt").refused(404);
        kept_if(&server, settings, "/a.txt");
        site.write("a.txt", b"three");
        becomes(&server, "/a.txt", b"two", b"three");
        // Removed and made again.
        fs::remove_dir_all(site.root()).unwrap();
        vanishes(&server, "/a.txt");
        site.write("a.txt", b"four");
        settles(&server, "/a.txt", "four");
    }
}

#[test]
fn a_root_that_is_a_link_to_another_directory() {
    for settings in SETTINGS {
        let (site, current) = linked();
        let server = Server::configured(&mount(&current, settings));
        settles(&server, "/a.txt", "one");
        switch(&site, "v2");
        settles(&server, "/a.txt", "two");
        server.public.get("/d/b.txt").refused(404);
        switch(&site, "root");
        settles(&server, "/a.txt", "one");
        assert_eq!(server.public.get("/d/b.txt").expect(200).text(), "b");
    }
}

/// However short the time was for which it was another one.
#[test]
fn a_root_that_is_switched_and_back_at_once() {
    for settings in SETTINGS {
        let (site, current) = linked();
        let server = Server::configured(&mount(&current, settings));
        // No worker has needed the root so far.
        switch(&site, "v2");
        server.public.get("/a.txt").expect(200);
        switch(&site, "root");
        settles(&server, "/a.txt", "one");
    }
}

/// A site with two versions, and the link that says which is served.
fn linked() -> (Site, PathBuf) {
    let site = Site::of(&[("a.txt", b"one"), ("d/b.txt", b"b")]);
    fs::create_dir(site.outside("v2")).unwrap();
    fs::write(site.outside("v2/a.txt"), "two").unwrap();
    let current = site.outside("current");
    symlink("root", &current).unwrap();
    (site, current)
}

/// Sets the link to another version.
fn switch(site: &Site, to: &str) {
    symlink(to, site.outside("new")).unwrap();
    fs::rename(site.outside("new"), site.outside("current")).unwrap();
}

fn mount(root: &Path, settings: &str) -> String {
    format!("[[static]]\nroot = '{}'\n{settings}", root.display())
}

#[test]
fn a_link_that_is_set_to_another_file() {
    for settings in SETTINGS {
        let site = Site::of(&[("v1.txt", b"one"), ("v2.txt", b"two"), ("d/x.txt", b"three")]);
        symlink("v1.txt", site.path("a.txt")).unwrap();
        symlink("d", site.path("e")).unwrap();
        let server = site.serve(&format!("symlinks = true\n{settings}"));
        for _ in 0..20 {
            assert_eq!(server.public.get("/a.txt").expect(200).text(), "one");
            assert_eq!(server.public.get("/e/x.txt").expect(200).text(), "three");
        }
        symlink("v2.txt", site.outside("new")).unwrap();
        fs::rename(site.outside("new"), site.path("a.txt")).unwrap();
        becomes(&server, "/a.txt", b"one", b"two");
        // What is behind a link changes, too.
        site.write("v2.txt", b"four");
        becomes(&server, "/a.txt", b"two", b"four");
        site.write("d/x.txt", b"five");
        becomes(&server, "/e/x.txt", b"three", b"five");
        // And a file becomes a link.
        kept_if(&server, settings, "/v1.txt");
        symlink("v2.txt", site.outside("new")).unwrap();
        fs::rename(site.outside("new"), site.path("v1.txt")).unwrap();
        becomes(&server, "/v1.txt", b"one", b"four");
    }
}

#[test]
fn what_stands_beside_a_file_comes_and_goes() {
    for settings in SETTINGS {
        let plain = b"body { color: black }\n".repeat(100);
        let site = Site::of(&[("a.css", &plain)]);
        let server = serve(&site, settings, "/a.css");
        let get = || {
            let fields = "Accept-Encoding: gzip\r\n";
            let response = server.public.ask("GET", "/a.css", fields, b"");
            (response.field("content-encoding").map(str::to_owned), response.body)
        };
        let comes = |packed: &[u8]| {
            eventually("what stands beside it is used", || {
                let (coding, body) = get();
                (body == packed).then(|| assert_eq!(coding.as_deref(), Some("gzip")))
            });
        };
        site.write("a.css.gz", b"packed one");
        comes(b"packed one");
        site.replace("a.css.gz", b"packed two");
        comes(b"packed two");
        site.remove("a.css.gz");
        eventually("it is not used any more", || {
            let (coding, body) = get();
            if body == b"packed two" {
                return None;
            }
            let unpacked = if coding.is_some() { gunzip(&body) } else { body };
            assert!(unpacked == plain);
            Some(())
        });
    }
}

/// A file of a version of a site: each line of it says which.
fn page(version: char, name: usize, lines: usize) -> Vec<u8> {
    format!("version {version} of page {name:04}, and so on\n").repeat(lines).into_bytes()
}

/// Pages of all sizes: in memory, compressed from the disk, by sendfile.
const PAGES: [(&str, usize); 8] = [
    ("0.txt", 1),
    ("1.bin", 100),
    ("d/2.txt", 500),
    ("d/3.html", 1_200),
    ("d/e/4.bin", 1_000),
    ("5.bin", 4_000),
    ("6.txt", 5_000),
    ("d/7.bin", 40_000),
];

/// Makes the root like another directory: each file is written beside its place and renamed over
/// what is there.
fn deploy(from: &Path, to: &Path, rsync: Option<&Path>) {
    if let Some(rsync) = rsync {
        let source = format!("{}/", from.display());
        let status = Command::new(rsync).args(["-a", "--delete", &source]).arg(to).status();
        assert!(status.unwrap().success());
        return;
    }
    for (name, _) in PAGES {
        let new = to.join(name).with_extension("new");
        fs::copy(from.join(name), &new).unwrap();
        fs::rename(new, to.join(name)).unwrap();
    }
}

/// Asks for all pages in turn; each answer must be a whole page of one version.
fn read_pages(server: &Server, accept: &str, stop: &AtomicBool, seen: &[AtomicU64; 2]) {
    let mut client = server.reader();
    while !stop.load(Ordering::Relaxed) {
        for (i, (name, lines)) in PAGES.iter().enumerate() {
            let response = client.ask("GET", &format!("/{name}"), accept, b"").expect(200);
            let body = match response.field("content-encoding") {
                None => response.body,
                Some("gzip") => gunzip(&response.body),
                other => panic!("{other:?}"),
            };
            let version = match body.get(8) {
                Some(b'A') => 0,
                Some(b'B') => 1,
                _ => panic!("{name}: {} bytes", body.len()),
            };
            let expected = page(['A', 'B'][version], i, lines + version * 10);
            assert!(body == expected, "{name} of version {version}: {} bytes", body.len());
            seen[version].fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_site_that_is_deployed_under_load_is_whole_at_any_time() {
    // Where it is missing, renaming does the same.
    let rsync = tool("rsync");
    for settings in SETTINGS {
        let site = Site::of(&[]);
        for (version, directory) in ['A', 'B'].into_iter().zip(["a", "b"]) {
            for (i, (name, lines)) in PAGES.iter().enumerate() {
                let more = if version == 'A' { 0 } else { 10 };
                let path = site.outside(directory).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, page(version, i, lines + more)).unwrap();
            }
        }
        fs::create_dir_all(site.path("d/e")).unwrap();
        deploy(&site.outside("a"), &site.root(), rsync.as_deref());
        let server = site.serve(settings);
        let (stop, seen) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        thread::scope(|scope| {
            let readers: Vec<_> = ["", "Accept-Encoding: gzip\r\n", ""]
                .map(|accept| scope.spawn(|| read_pages(&server, accept, &stop, &seen)))
                .into();
            for round in 0..12 {
                let from = site.outside(["b", "a"][round % 2]);
                deploy(&from, &site.root(), rsync.as_deref());
                thread::sleep(Duration::from_millis(60));
            }
            stop.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().expect("only whole pages");
            }
        });
        let [one, other] = seen.map(AtomicU64::into_inner);
        assert!(one > 0 && other > 0, "{one} and {other}");
        // In the end it is the last one.
        for (i, (name, lines)) in PAGES.iter().enumerate() {
            let (before, after) = (page('B', i, lines + 10), page('A', i, *lines));
            becomes(&server, &format!("/{name}"), &before, &after);
        }
    }
}

#[test]
fn files_of_another_user_are_whole_too() {
    let old = b"old and whole\n".repeat(500);
    let site = Site::of(&[("a.txt", &old)]);
    let Some(server) = site.serve_as_nobody("") else { return };
    kept(&server, "/a.txt");
    // The kernel does not say whether it is being written: its time does.
    let (begun, end) = (AtomicBool::new(false), AtomicBool::new(false));
    let new = b"new and whole\n".repeat(20);
    thread::scope(|scope| {
        scope.spawn(|| write_slowly(&site.path("a.txt"), &new, &begun, &end));
        eventually("the file is begun", || begun.load(Ordering::SeqCst).then_some(()));
        for _ in 0..40 {
            assert!(server.public.get("/a.txt").expect(200).body == old);
            thread::sleep(Duration::from_millis(10));
        }
        end.store(true, Ordering::SeqCst);
    });
    becomes(&server, "/a.txt", &old, &new);
    site.replace("a.txt", b"renamed");
    becomes(&server, "/a.txt", &new, b"renamed");
}
