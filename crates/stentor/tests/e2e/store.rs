//! `--data`: values and history outlive the process, and the disk may do what disks do.

mod commands;
mod crashes;

use crate::support::{
    EventStream, Heard, Reader, Server, TempDir, Way, eventually, is_root, refused_start, tool,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

fn data_flag(data: &Path) -> &str {
    data.to_str().unwrap()
}

fn start(data: &Path) -> Server {
    Server::with("", "", &["--workers", "1", "--data", data_flag(data)])
}

fn numbered(id: &str) -> (String, u64) {
    let (epoch, seq) = id.split_once('-').unwrap();
    (epoch.to_owned(), seq.parse().unwrap())
}

#[test]
fn after_a_stop_the_next_number_is_the_next() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = start(&data);
    let first = server.publish("/a", "one");
    server.control.put("/b", "application/json", b"{\"b\":1}").expect(201);
    server.publish("/c", "deleted");
    server.control.ask("DELETE", "/c", "", b"").expect(200);
    let answer = server.public.get("/b");
    server.stop();
    let server = start(&data);
    assert_eq!(server.public.get("/a").text(), "one");
    server.public.get("/c").expect(404);
    let again = server.public.get("/b");
    assert_eq!((again.body.clone(), again.fields()), (answer.body.clone(), answer.fields()));
    let (epoch, seq) = numbered(&first);
    assert_eq!(numbered(&server.publish("/a", "two")), (epoch, seq + 4));
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", &first);
    assert_eq!(reader.data(), "two");
}

/// Lines that arrive together are told of together, once the last is stored.
#[test]
fn a_rejected_line_is_told_alone() {
    let dir = TempDir::new();
    let server = start(&dir.path().join("data"));
    let lines = b"{\"topic\":\"/a\",\"data\":1}\n{\"topic\":\"/none\",\"deleted\":true}\n\
        {\"topic\":\"/b\",\"data\":2}\n{\"topic\":\"/none\",\"deleted\":true}\n";
    let answer = server.control.ask("POST", "/-/publish", "", lines).expect(200);
    let report = answer.text();
    assert!(report.contains("\"published\":2,\"failed\":2,"), "{report}");
    for line in [2, 4] {
        let error = format!("{{\"line\":{line},\"code\":\"topic_not_found\",");
        assert!(report.contains(&error), "{report}");
    }
    assert_eq!(server.public.get("/a").text(), "1");
}

#[test]
fn what_is_kept_nowhere_ends_with_the_process_and_its_number_is_not_used_again() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let toml = "[[topics]]\nmatch = '/live/*'\nkeep = 'none'\n";
    let flags = ["--workers", "1", "--data", data_flag(&data)];
    let server = Server::with("", toml, &flags);
    server.publish("/a", "kept");
    let last = numbered(&server.publish("/live/a", "gone"));
    server.stop();
    let server = Server::with("", toml, &flags);
    server.public.get("/live/a").expect(404);
    assert_eq!(server.public.get("/a").text(), "kept");
    assert_eq!(numbered(&server.publish("/a", "next")), (last.0, last.1 + 1));
}

#[test]
fn what_was_not_stored_has_no_older_value_whatever_the_settings_say_later() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = start(&data);
    server.publish("/a", "stored");
    server.stop();
    let flags = ["--workers", "1", "--data", data_flag(&data)];
    let server = Server::with("", "[store]\nkeep = 'none'\n", &flags);
    assert_eq!(server.public.get("/a").text(), "stored");
    let seen = server.publish("/a", "not stored");
    server.stop();
    let server = start(&data);
    server.public.get("/a").expect(404);
    let next = server.publish("/a", "stored again");
    assert_eq!(numbered(&next), (numbered(&seen).0, numbered(&seen).1 + 1));
}

#[test]
fn a_directory_is_one_processs_and_its_users_alone() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = start(&data);
    server.publish("/a", "one");
    refused_start(&["--data", data_flag(&data)], &[data_flag(&data), "another process has it"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let files: Vec<PathBuf> = fs::read_dir(&data).unwrap().map(|f| f.unwrap().path()).collect();
    assert!(files.len() > 2, "{files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{file:?}"));
    assert_eq!(server.publish("/a", "two").rsplit('-').next(), Some("2"));
}

#[test]
fn a_directory_that_is_of_no_use_is_told_at_the_start() {
    let dir = TempDir::new();
    let missing = dir.path().join("no/such");
    refused_start(&["--data", data_flag(&missing)], &[data_flag(&missing), "No such file"]);
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    refused_start(&["--data", data_flag(&file)], &[data_flag(&file), "Not a directory"]);
    if is_root("a read-only file system") {
        let mount = Tmpfs::mount("4m");
        mount.remount("ro");
        refused_start(&["--data", data_flag(&mount.data())], &["Read-only file system"]);
    }
}

#[test]
fn a_user_needs_a_directory_of_its_own() {
    if !is_root("becoming another user") {
        return;
    }
    let dir = TempDir::new();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let flags = ["--workers", "1", "--user", "nobody", "--data", data_flag(&data)];
    refused_start(&flags, &[data_flag(&data), "Permission denied", "must belong to user 'nobody'"]);
    chown(&data, Some(NOBODY), None).unwrap();
    for round in 0..2 {
        let server = Server::with("", "", &flags);
        let topic = format!("/{round}");
        server.publish(&topic, "kept");
        (0..=round).for_each(|i| assert_eq!(server.public.get(&format!("/{i}")).text(), "kept"));
        server.stop();
    }
}

/// The log with the highest number that is longer than its head.
fn newest_log(data: &Path) -> PathBuf {
    let files = fs::read_dir(data).unwrap().map(|file| file.unwrap().path());
    let mut logs: Vec<PathBuf> = files
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-"))
        .collect();
    logs.sort();
    logs.pop().unwrap()
}

/// Where these bytes are in a file.
fn find(file: &Path, bytes: &[u8]) -> u64 {
    let content = fs::read(file).unwrap();
    content.windows(bytes.len()).position(|part| part == bytes).unwrap() as u64
}

#[test]
fn a_damaged_file_is_told_with_its_place_and_nothing_is_guessed() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = start(&data);
    for text in ["first-value", "second-value", "third-value"] {
        server.publish("/a", text);
    }
    server.kill();
    let log = newest_log(&data);
    let offset = find(&log, b"second-value");
    let file = OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(b"S", offset).unwrap();
    let name = log.file_name().unwrap().to_str().unwrap();
    let reasons = [data_flag(&data), name, "offset", "stentor store repair"];
    let said = refused_start(&["--data", data_flag(&data)], &reasons);
    assert!(!said.err.contains("ready: "), "{}", said.err);
    // It changed nothing, so the next one says the same.
    assert_eq!(
        refused_start(&["--data", data_flag(&data)], &reasons).err.lines().last(),
        said.err.lines().last()
    );
    file.write_all_at(b"s", offset).unwrap();
    let server = start(&data);
    assert_eq!(server.public.get("/a").text(), "third-value");
}

#[test]
fn what_a_crash_left_unfinished_is_cut_off_and_told() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = start(&data);
    let first = server.publish("/a", "answered");
    // After a moment of quiet it is vouched for.
    thread::sleep(Duration::from_millis(500));
    server.kill();
    // The next frame was begun, and is cut off behind its head.
    let log = newest_log(&data);
    let (content, mark) = (fs::read(&log).unwrap(), fs::read(data.join("mark")).unwrap());
    let end = u64::from_le_bytes(mark[24..32].try_into().unwrap());
    let magic = content.windows(3).position(|bytes| bytes == b"\xf5SF").unwrap();
    let file = OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(&content[magic - 8..magic + 32], end).unwrap();
    let mut server = start(&data);
    let left_out = server.child.logged("with something unfinished");
    assert!(left_out.contains("nobody was promised"), "{left_out}");
    assert_eq!(server.public.get("/a").text(), "answered");
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", &first);
    let next = server.publish("/a", "next");
    assert_eq!(reader.data(), "next");
    assert_eq!(numbered(&next).0, numbered(&first).0);
    server.kill();
    // A log is as long as it was made, whatever is in it.
    let log = newest_log(&data);
    let file = OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(fs::metadata(&log).unwrap().len() - 1).unwrap();
    let name = log.file_name().unwrap().to_str().unwrap();
    refused_start(&["--data", data_flag(&data)], &[name, "it was cut off"]);
}

#[test]
fn many_starts_leave_no_more_than_the_disk_is_to_hold() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    for round in 0..40 {
        let server = start(&data);
        server.publish("/a", &round.to_string());
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
        let files = fs::read_dir(&data).unwrap();
        let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        // The store has a few files of 64 MiB, and all that was published. A kill may leave four.
        assert!(bytes <= 5 << 26, "{bytes} bytes after {round} starts");
    }
    assert_eq!(start(&data).public.get("/a").text(), "39");
}

/// A small disk in memory.
struct Tmpfs(TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Tmpfs {
        let tmpfs = Tmpfs(TempDir::new());
        let options = format!("size={size}");
        tmpfs.run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]));
        tmpfs
    }

    fn remount(&self, option: &str) {
        self.run(Command::new("mount").args(["-o", &format!("remount,{option}")]));
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn run(&self, command: &mut Command) {
        assert!(command.arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_takes_nothing_until_there_is_room() {
    if !is_root("mounting a small disk") {
        return;
    }
    // One segment, the next, and something else that leaves no room for a third.
    let disk = Tmpfs::mount("200m");
    let other = disk.0.path().join("other");
    fs::write(&other, vec![1; 20 << 20]).unwrap();
    let mut server = start(&disk.data());
    let kept = server.publish("/kept", "before");
    let mut stream = EventStream::open(server.public, "/kept", "");
    assert_eq!(stream.event().data, "before");
    let large = vec![b'x'; 1_000_000];
    let full = (0..200).find_map(|i| {
        let response = server.control.put(&format!("/large/{i}"), "text/plain", &large);
        (!matches!(response.status, 200 | 201)).then_some(response)
    });
    let full = full.expect("the disk is full");
    assert!(full.status == 507 || full.status == 503, "{full:?}");
    let full = eventually("publishers are told", || {
        let response = server.control.put("/kept", "text/plain", b"refused");
        (response.status == 507).then_some(response)
    });
    assert!(full.refused(507).detail().contains("disk is full"));
    let ready = server.control.get("/-/readyz/publish").refused(503);
    assert!(ready.text().contains("No space left"), "{ready:?}");
    server.control.get("/-/readyz").expect(200);
    server.child.logged("No space left");
    assert_eq!(server.public.get("/kept").text(), "before");
    fs::remove_file(&other).unwrap();
    let next = eventually("it recovers by itself", || {
        let response = server.control.put("/kept", "text/plain", b"after");
        (response.status == 200).then(|| response.json()["id"].as_str().unwrap().to_owned())
    });
    assert!(numbered(&next).1 > numbered(&kept).1);
    assert_eq!(stream.event().data, "after");
    server.control.get("/-/readyz/publish").expect(200);
    server.kill();
    let server = start(&disk.data());
    let mut reader = Reader::open(Way::Events, server.public, "/kept", "", &kept);
    assert_eq!(reader.data(), "after");
    assert_eq!(server.public.get("/large/0").body, large);
}

#[test]
fn a_store_is_read_on_a_full_disk() {
    if !is_root("mounting a small disk") {
        return;
    }
    let disk = Tmpfs::mount("200m");
    let server = start(&disk.data());
    let first = server.publish("/a", "one");
    server.kill();
    let (other, block) = (disk.0.path().join("other"), vec![1; 1 << 16]);
    let mut file = fs::File::create(&other).unwrap();
    while file.write_all(&block).is_ok() {}
    // What was made ahead of its need is given up for it.
    let server = start(&disk.data());
    assert_eq!(server.public.get("/a").text(), "one");
    server.control.put("/a", "text/plain", b"two").refused(507);
    server.control.get("/-/readyz/publish").refused(503);
    drop(file);
    fs::remove_file(&other).unwrap();
    let next = eventually("it recovers by itself", || {
        let response = server.control.put("/a", "text/plain", b"two");
        (response.status == 200).then(|| response.json()["id"].as_str().unwrap().to_owned())
    });
    assert!(numbered(&next) > numbered(&first));
}

/// Its value takes little; the log of its changes would take many times the volume.
#[test]
fn one_topic_never_fills_a_small_volume() {
    if !is_root("mounting a small disk") {
        return;
    }
    for size in ["100m", "400m"] {
        let disk = Tmpfs::mount(size);
        let (mut server, mut last) = (start(&disk.data()), String::new());
        for life in 0..20 {
            for change in 0..60 {
                last = format!("{life} {change} {}", "x".repeat(400_000));
                let put = server.control.put("/a", "text/plain", last.as_bytes());
                put.expect_one_of(&[200, 201]);
            }
            if life % 2 == 0 {
                server.stop()
            } else {
                server.kill()
            };
            server = start(&disk.data());
            assert_eq!(server.public.get("/a").text(), last, "{size}: {life}");
        }
    }
}

#[test]
fn a_start_without_room_serves_readers() {
    if !is_root("mounting a small disk") {
        return;
    }
    let disk = Tmpfs::mount("100m");
    let server = start(&disk.data());
    server.publish("/a", "one");
    server.kill();
    let (other, block) = (disk.0.path().join("other"), vec![1; 1 << 16]);
    for name in fs::read_dir(disk.data()).unwrap().map(|entry| entry.unwrap().path()) {
        let is_spare =
            name.to_str().is_some_and(|it| it.contains("spare") || it.contains("reserve"));
        if is_spare {
            fs::remove_file(name).unwrap();
        }
    }
    let mut file = fs::File::create(&other).unwrap();
    while file.write_all(&block).is_ok() {}
    let server = start(&disk.data());
    assert_eq!(server.public.get("/a").text(), "one");
    server.control.get("/-/readyz").expect(200);
    assert!([503, 507].contains(&server.control.put("/a", "text/plain", b"two").status));
    server.control.get("/-/readyz/publish").refused(503);
    drop(file);
    fs::remove_file(&other).unwrap();
    eventually("it recovers by itself", || {
        (server.control.put("/a", "text/plain", b"two").status == 200).then_some(())
    });
}

#[test]
fn a_removed_directory_is_made_again() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let mut server = start(&data);
    server.publish("/a", "one");
    let first = server.publish("/b", "two");
    fs::remove_dir_all(&data).unwrap();
    server.child.logged("the directory of the store was removed");
    eventually("all that is in memory is there", || {
        let names = fs::read_dir(&data).ok()?;
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .into_iter()
            .any(|name| name.starts_with("snapshot-") && !name.ends_with(".tmp"))
            .then_some(())
    });
    let last = server.publish("/a", "three");
    server.kill();
    let server = start(&data);
    assert_eq!(numbered(&last), (numbered(&first).0, numbered(&first).1 + 1));
    assert_eq!(server.public.get("/a").text(), "three");
    assert_eq!(server.public.get("/b").tag(), format!("\"{first}\""));
}

#[test]
fn an_expected_store_must_be_there() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let toml = format!("[store]\npath = '{}'\nmust_exist = true\n", data.display());
    let file = dir.path().join("stentor.toml");
    fs::write(&file, &toml).unwrap();
    let flags = ["--config", file.to_str().unwrap()];
    refused_start(&flags, &["there is no store in", "store.must_exist"]);
    start(&data).stop();
    Server::with("", "[store]\nmust_exist = true\n", &["--data", data_flag(&data)]).stop();
}

#[test]
fn a_disk_that_fails_keeps_what_was_answered_and_is_gone_on_with() {
    if tool("strace").is_none() {
        return;
    }
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let mut server = start(&data);
    let first = server.publish("/a", "one");
    for when in ["1", "1+", "2+3"] {
        let before = server.public.get("/a").text().to_owned();
        let mut failing = strace(&server, &format!("inject=fdatasync:error=EIO:when={when}"));
        let mut last = before.clone();
        let mut seen = vec![before];
        let failed = (0..10).find_map(|i| {
            let text = format!("{when} {i}");
            seen.push(text.clone());
            let response = server.control.put("/a", "text/plain", text.as_bytes());
            if response.status == 200 {
                last = text;
                return None;
            }
            Some(response)
        });
        failed.expect("the disk fails").refused(503);
        if when == "1+" {
            let ready = server.control.get("/-/readyz/publish").refused(503);
            assert!(ready.text().contains("Input/output error"), "{ready:?}");
            server.control.put("/a", "text/plain", b"not taken").refused(503);
        }
        assert!(seen.contains(&server.public.get("/a").text().to_owned()), "reads go on");
        failing.signal("TERM");
        failing.wait();
        eventually("it recovers by itself", || {
            let response = server.control.put("/a", "text/plain", when.as_bytes());
            (response.status == 200).then_some(())
        });
        server.control.get("/-/readyz/publish").expect(200);
        server.kill();
        server = start(&data);
        assert_eq!(server.public.get("/a").text(), when, "{last}");
    }
    let mut reader = Reader::open(Way::Events, server.public, "/a", "", &first);
    assert!(matches!(reader.hear(), Heard::Message { .. }), "no gap");
}

/// The user `nobody` of every Debian.
const NOBODY: u32 = 65_534;

#[test]
fn a_hung_disk_delays_publishers_alone() {
    if tool("strace").is_none() {
        return;
    }
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let flags = ["--workers", "1", "--data", data_flag(&data)];
    let server = Server::with("", "store.wait_max = '2s'\n", &flags);
    server.publish("/a", "one");
    server.control.get("/-/readyz/publish").expect(200);
    let mut slow = strace(&server, "inject=fdatasync:delay_enter=4000000");
    let mut publisher = server.publisher();
    publisher.send("PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\ntwo");
    let reason = eventually("publishing is not ready", || {
        let ready = server.control.get("/-/readyz/publish");
        (ready.status == 503).then(|| ready.text().to_owned())
    });
    assert!(reason.contains("has not answered for"), "{reason}");
    server.control.get("/-/readyz").expect(200);
    assert_eq!(server.public.get("/a").text(), "two");
    assert!(publisher.response().refused(503).detail().contains("not known"));
    slow.signal("TERM");
    slow.wait();
    eventually("publishing is ready", || {
        (server.control.get("/-/readyz/publish").status == 200).then_some(())
    });
}

#[test]
fn a_stop_waits_for_no_hung_disk() {
    if tool("strace").is_none() {
        return;
    }
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let flags = ["--workers", "1", "--data", data_flag(&data)];
    let mut server = Server::with("", "drain = '2s'\n", &flags);
    server.publish("/a", "one");
    let mut slow = strace(&server, "inject=fdatasync:delay_enter=100000000");
    let mut publisher = server.publisher();
    publisher.send("PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\ntwo");
    eventually("it is told to readers", || (server.public.get("/a").text() == "two").then_some(()));
    server.child.signal("TERM");
    assert!(publisher.response().refused(503).detail().contains("not known"));
    server.child.logged("the store was not closed: the disk does not answer");
    server.child.logged("stopped");
    // The process cannot end while a call of it is held back.
    slow.kill();
    server.child.stopped();
}

/// Has the kernel do this to the calls of a server.
pub(crate) fn strace(server: &Server, inject: &str) -> crate::support::Child {
    let child = crate::support::Child::spawn(
        Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", inject, "-p"])
            .arg(server.child.id().to_string())
            .stdin(Stdio::null()),
    );
    eventually("strace is attached", || {
        let status = format!("/proc/{}/status", server.child.id());
        let status = fs::read_to_string(status).unwrap();
        (!status.contains("TracerPid:\t0")).then_some(())
    });
    child
}
