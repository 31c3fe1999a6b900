//! `stentor store`: the directory of a store, without its server.

use super::{NOBODY, is_root};
use crate::support::{Child, NOTICE, Said, Server, TempDir, refused_start, stentor};
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn serve(data: &Path) -> Server {
    Server::with("", "", &["--workers", "1", "--data", data.to_str().unwrap()])
}

/// Runs a command of `stentor store`, with input for one that reads.
#[track_caller]
fn store(command: &str, dirs: &[&Path], input: &str) -> Said {
    let dirs = dirs.iter().map(|dir| dir.to_str().unwrap());
    let args = ["store", command].into_iter().chain(dirs);
    let mut child = Child::spawn(stentor(args).stdin(Stdio::piped()));
    // A command that reads nothing may have ended.
    let _ = child.input().write_all(input.as_bytes());
    child.said()
}

#[track_caller]
fn done(command: &str, dirs: &[&Path], input: &str) -> String {
    let said = store(command, dirs, input);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{command}: {}", said.out);
    said.out
}

#[track_caller]
fn refused(command: &str, dirs: &[&Path], input: &str) -> String {
    let said = store(command, dirs, input);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{command}: {}", said.err);
    said.err
}

/// A line of what a command says of a store.
fn figure<'a>(said: &'a str, name: &str) -> &'a str {
    let line = said.lines().find_map(|line| line.trim_start().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {said}")).trim()
}

/// Changes a byte of the file that has this text.
fn damage(dir: &Path, text: &[u8]) -> PathBuf {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|file| !file.ends_with("lock")) {
        let mut bytes = fs::read(&file).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            bytes[at] ^= 1;
            fs::write(&file, bytes).unwrap();
            return file;
        }
    }
    panic!("nothing in {} has {text:?}", dir.display());
}

#[test]
fn values_ids_and_deletions_outlive_a_kill() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = serve(&data);
    let id = server.publish("/a", "1");
    server.publish("/b", "2");
    server.control.ask("DELETE", "/b", "", b"").expect(200);
    server.kill();
    let server = serve(&data);
    let response = server.public.get("/a").expect(200);
    assert_eq!((response.text(), response.tag()), ("1", format!("\"{id}\"")));
    server.public.get("/b").expect(404);
    let next = server.publish("/a", "3");
    assert_eq!(next.split_once('-').unwrap().0, id.split_once('-').unwrap().0, "the epoch");
}

#[test]
fn a_check_says_what_is_there() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let mut server = serve(&data);
    let id = server.publish("/a", "1");
    server.publish("/b", "2");
    let told = refused("check", &[&data], "");
    assert!(told.contains("is in use") && told.contains("stop its server first"), "{told}");
    server.child.stop();
    let said = done("check", &[&data], "");
    assert!(said.starts_with("ok\n"), "{said}");
    let figures = ["topics", "last", "closed", "epoch"].map(|name| figure(&said, name));
    assert_eq!(figures, ["2", "2", "yes", id.split_once('-').unwrap().0]);
    serve(&data).kill();
    assert!(figure(&done("check", &[&data], ""), "closed").starts_with("no"));
    let same = done("repair", &[&data], "");
    assert!(same.starts_with("nothing is damaged"), "{same}");
    assert_eq!(figure(&same, "epoch"), id.split_once('-').unwrap().0);
}

#[test]
fn a_directory_without_a_store_is_left_alone() {
    let dir = TempDir::new();
    for command in ["check", "repair", "export"] {
        let told = refused(command, &[dir.path()], "");
        assert!(told.contains("there is no store in "), "{command}: {told}");
    }
    let target = dir.path().join("copy");
    assert!(refused("backup", &[dir.path(), &target], "").contains("there is no store in "));
    assert!(refused("check", &[&dir.path().join("none")], "").contains("No such file"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn damage_is_told_with_its_place_and_a_repair_keeps_the_rest() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let mut server = serve(&data);
    let id = server.publish("/a", "the first");
    server.publish("/b", "the second");
    server.publish("/c", "the third");
    server.child.stop();
    let file = damage(&data, b"the second");
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let before = fs::read(&file).unwrap();

    let said = store("check", &[&data], "");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.out.starts_with(&format!("{name} is damaged at offset ")), "{}", said.out);
    assert!(said.out.contains("of numbers 2 to 2 all is lost"), "{}", said.out);
    assert!(said.err.contains("stentor store repair "), "{}", said.err);
    let data_flag = data.to_str().unwrap();
    let reasons = [&*name, "offset", "stentor store check", "stentor store repair"];
    refused_start(&["--data", data_flag], &reasons);

    let said = done("repair", &[&data], "");
    assert!(said.contains("of numbers 2 to 2 all is lost"), "{said}");
    assert_ne!(figure(&said, "epoch"), id.split_once('-').unwrap().0);
    assert_eq!(fs::read(data.join(format!("damaged-{name}"))).unwrap(), before);
    let server = serve(&data);
    assert_eq!(server.public.get("/a").expect(200).text(), "the first");
    server.public.get("/b").expect(404);
    assert_eq!(server.public.get("/c").expect(200).text(), "the third");
    assert!(server.publish("/b", "again").ends_with("-4"));
}

#[test]
fn a_repair_keeps_what_is_whole_of_a_snapshot() {
    for (damaged, kept) in [("aaaaaaaa", [404, 200, 200]), ("cccccccc", [200, 200, 404])] {
        let dir = TempDir::new();
        let data = dir.path().join("data");
        let line = |letter: &str| {
            format!("{{\"topic\":\"/{letter}\",\"data\":\"{}\"}}\n", letter.repeat(40_000))
        };
        done("import", &[&data], &["a", "b", "c"].map(line).concat());
        damage(&data, damaged.as_bytes());
        assert_eq!(store("check", &[&data], "").code, Some(1));
        done("repair", &[&data], "");
        let server = serve(&data);
        for (topic, status) in ["/a", "/b", "/c"].into_iter().zip(kept) {
            server.public.get(topic).expect(status);
        }
        assert!(server.publish("/d", "next").ends_with("-4"));
        server.kill();
        assert_eq!(figure(&done("check", &[&data], ""), "closed"), "no: a crash, or a kill");
    }
}

#[test]
fn a_backup_is_made_while_messages_are_published() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = serve(&data);
    server.publish("/n", "0");
    let copies: Vec<PathBuf> = (0..5).map(|n| dir.path().join(format!("copy-{n}"))).collect();
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            for n in 1..400 {
                server.publish("/n", &n.to_string());
            }
        });
        for copy in &copies {
            let said = done("backup", &[&data, copy], "");
            assert_eq!((figure(&said, "topics"), figure(&said, "closed")), ("1", "yes"), "{said}");
        }
        publishing.join().unwrap();
    });
    let told = refused("backup", &[&data, &copies[0]], "");
    assert!(told.contains("there is one already"), "{told}");
    let (last, all) = (dir.path().join("last"), done("export", &[&data], ""));
    done("backup", &[&data, &last], "");
    let values = |lines: &str| -> Vec<String> {
        let lines = lines.lines().map(|line| line.split_once("\"data\":").unwrap().1.to_owned());
        lines.collect()
    };
    assert_eq!(values(&done("export", &[&last], "")), values(&all));
    assert_eq!(all.lines().count(), 32, "as long as history is");
    server.kill();
    assert_eq!(serve(&last).public.get("/n").expect(200).text(), "399");
}

#[test]
fn what_is_exported_is_imported_as_it_was() {
    let dir = TempDir::new();
    let (data, other) = (dir.path().join("data"), dir.path().join("other"));
    let server = serve(&data);
    let fields = "Content-Type: x/y; z=1\r\nStentor-Event: tick\r\nCache-Control: max-age=5\r\n";
    server.control.ask("PUT", "/a", fields, b"\xff\x00").expect(201);
    server.publish("/b", "\"quoted\"\n");
    server.publish("/b", "second");
    server.publish("/c", "gone");
    server.control.ask("DELETE", "/c", "", b"").expect(200);
    // White space in and around JSON is kept, too.
    let json = b" {\"a\":\r\n 1}\n";
    server.control.put("/d", "application/json", json).expect(201);
    let lines = done("export", &[&data], "");
    assert_eq!(lines.lines().count(), 5, "{lines}");
    for part in ["\"data_base64\":\"/wA=\"", "\"event\":\"tick\"", "max-age=5", "\"deleted\":true"]
    {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    let said = done("import", &[&other], &lines);
    assert_eq!((figure(&said, "topics"), figure(&said, "last")), ("3", "6"), "{said}");
    let epoch = |lines: &str| lines.split_once("\"id\":\"").unwrap().1[..8].to_owned();
    let again = done("export", &[&other], "");
    assert_ne!(epoch(&again), epoch(&lines));
    assert_eq!(again.replace(&epoch(&again), &epoch(&lines)), lines);
    let server = serve(&other);
    assert_eq!(server.public.get("/d").expect(200).body, json);
    let response = server.public.get("/a").expect(200);
    assert_eq!(response.field("content-type"), Some("x/y; z=1"));
    assert_eq!(response.field("cache-control"), Some("max-age=5"));
}

#[test]
fn lines_that_are_none_are_refused_by_their_number() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let good = "{\"topic\":\"/a\",\"id\":\"00000001-7\",\"data\":\"\"}\n";
    for (bad, told) in [
        ("{\"topic\":\"/a\",\"dta\":\"\"}", "unknown field `dta`"),
        ("{\"topic\":\"a\",\"data\":\"\"}", "must begin with"),
        ("{\"topic\":\"/a\"}", "either data or data_base64"),
        ("{\"topic\":\"/a\",\"data\":\"\",\"data_base64\":\"\"}", "either data or data_base64"),
        ("{\"topic\":\"/a\",\"data_base64\":\"?\"}", "is no base64"),
        ("{\"topic\":\"/a\",\"data\":\"\",\"type\":\"x\"}", "type/subtype"),
        ("{\"topic\":\"/a\",\"data\":\"\",\"id\":\"7\"}", "'7' is no id"),
        ("{\"topic\":\"/a\",\"data\":\"\",\"id\":\"00000001-7\"}", "7 is not behind 7"),
        ("{\"topic\":\"/a\",\"data\":\"\",\"id\":\"00000001-9007199254740993\"}", "greatest"),
        ("{\"topic\":\"/a\",\"data\":\"\",\"last_seq\":1}", "deletions only"),
        ("[]", "line 2: "),
        ("{\"topic\":\"/a\",\"deleted\":true,\"last_seq\":18446744073709551615}", "is not below"),
        ("{\"topic\":\"/a\",\"data\":\"x\",\"published_at\":1795339714}", "invalid type"),
        ("{\"topic\":\"/a\",\"data\":\"x\",\"published_at\":\"soon\"}", "published_at: "),
        (
            "{\"topic\":\"/a\",\"data\":\"x\",\"published_at\":\"9000-01-01T00:00:00Z\"}",
            "later than tomorrow",
        ),
        ("{\"topic\":\"/a\",\"data\":1,\"type\":\"text/plain\"}", "Only a string"),
        ("{\"topic\":\"/a\",\"data\":1,\"deleted\":true}", "no members of a message"),
    ] {
        let said = refused("import", &[&data], &format!("{good}{bad}\n"));
        assert!(said.starts_with("error: line 2: ") && said.contains(told), "{bad}: {said}");
        assert!(refused("check", &[&data], "").contains("there is no store in "));
    }
    done("import", &[&data], &format!("{good}\n{{\"topic\":\"/b\",\"data\":\"x\"}}"));
    assert!(refused("import", &[&data], good).contains("already (snapshot-"));
    let lines = done("export", &[&data], "");
    assert!(lines.lines().last().unwrap().contains("-8\""), "{lines}");
}

fn serve_by(data: &Path, rules: &str) -> Server {
    Server::with("", rules, &["--workers", "1", "--data", data.to_str().unwrap()])
}

/// All that a reader who comes with `since=earliest` is sent of a topic.
fn history(server: &Server, topic: &str, count: usize) -> Vec<String> {
    let target = format!("{topic}?since=earliest&mode=all");
    let mut stream = crate::support::EventStream::open(server.public, &target, "");
    (0..count).map(|_| stream.event().data).collect()
}

#[test]
fn a_store_that_was_written_without_rules_is_read_by_rules_and_the_other_way_round() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = serve(&data);
    for n in 1..=5 {
        server.publish("/a", &n.to_string());
    }
    server.publish("/none/b", "x");
    server.kill();
    let rules =
        "[[topics]]\nmatch = '/a'\nhistory = 3\n[[topics]]\nmatch = '/none/*'\nkeep = 'none'\n";
    let server = serve_by(&data, rules);
    assert_eq!(history(&server, "/a", 3), ["3", "4", "5"]);
    // It was stored when it came; what comes now is not.
    assert_eq!(server.public.get("/none/b").expect(200).text(), "x");
    let last = server.publish("/a", "6");
    server.publish("/none/b", "y");
    server.kill();
    let server = serve(&data);
    assert_eq!(history(&server, "/a", 3), ["4", "5", "6"]);
    server.public.get("/none/b").expect(404);
    let next = server.publish("/a", "7");
    assert_eq!(next.split_once('-').unwrap().0, last.split_once('-').unwrap().0);
}

#[test]
fn readers_of_what_is_stored_resume_without_a_gap_though_a_rule_says_none() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let rules = "[[topics]]\nmatch = '/none/**'\nkeep = 'none'\n";
    let server = serve_by(&data, rules);
    server.publish("/none/a", "1");
    let id = server.publish("/quotes/a", "1");
    server.publish("/none/a", "2");
    server.publish("/quotes/b", "2");
    server.kill();
    let server = serve_by(&data, rules);
    let events = |filter: &str| {
        let target = format!("/-/events?topic={filter}");
        let fields = format!("Last-Event-ID: {id}\r\n");
        let mut stream = crate::support::EventStream::open(server.public, &target, &fields);
        let event = stream.event();
        (event.name, event.data)
    };
    let (name, told) = events("/quotes/*");
    assert!(name.is_none() && told.contains("/quotes/b"), "{name:?} {told}");
    let (name, told) = events("/**");
    assert!(name.as_deref() == Some(NOTICE) && told.contains("history_trimmed"), "{name:?} {told}");
}

#[test]
fn a_topic_may_have_more_history_than_a_piece_of_a_snapshot() {
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let line = |n: u32| {
        let text = format!("{n:03}").repeat(340_000);
        format!("{{\"topic\":\"/long\",\"type\":\"text/plain\",\"data\":\"{text}\"}}\n")
    };
    let lines: String = (1..=68).map(line).collect();
    assert!(lines.len() > 64 << 20);
    done("import", &[&data], &lines);
    assert!(done("check", &[&data], "").starts_with("ok\n"));
    let rules = "[[topics]]\nmatch = '/long'\nhistory = 100\nhistory_bytes = '100MiB'\n";
    let server = serve_by(&data, rules);
    let status = server.control.get("/-/topics?prefix=/long").expect(200).json();
    assert_eq!(status["topics"][0]["history_messages"], 68, "{status}");
    assert!(server.public.get("/long").expect(200).text().starts_with("068068"));
    server.publish("/long", "last");
    server.kill();
    let server = serve_by(&data, rules);
    assert_eq!(server.public.get("/long").expect(200).text(), "last");
    // What the rules take away is away.
    server.kill();
    let server = serve(&data);
    let status = server.control.get("/-/topics?prefix=/long").expect(200).json();
    assert_eq!(status["topics"][0]["history_messages"], 2, "a mebibyte: {status}");
}

/// That user's server could not open what root makes.
#[test]
fn root_is_refused_in_the_directory_of_another_user() {
    if !is_root("the directory of another user") {
        return;
    }
    let dir = TempDir::new();
    let data = dir.path().join("data");
    let server = serve(&data);
    server.publish("/a", "kept");
    drop(server);
    chown(&data, Some(NOBODY), None).unwrap();
    for command in ["check", "repair", "import"] {
        let reason = refused(command, &[&data], "");
        assert!(reason.contains("user"), "{command}: {reason}");
    }
    chown(&data, Some(0), None).unwrap();
    done("check", &[&data], "");
}
