//! The log: what is in it at which level, and in which form.

use crate::support::{Child, Server, TempDir, eventually, serve, tool};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

#[test]
fn publishes_and_refusals_are_visible_at_debug_and_reads_are_not() {
    let mut server = Server::configured("[log]\nlevel = 'debug'\n");
    server.control.put("/a", "text/plain", b"hello").expect(201);
    server.child.logged("DEBUG to be published: /a");
    server.control.ask("PUT", "/b", "If-Match: \"x-1\"\r\n", b"x").expect_one_of(&[400, 412]);
    let refused = server.child.logged("DEBUG refused with 4");
    assert!(refused.contains(" request=\"PUT /b HTTP/1.1\" client=127.0.0.1"), "{refused}");
    server.control.post("/-/publish", b"{\"topic\":\"/c\"}\n").expect(200);
    server.child.logged("DEBUG line 1 of /-/publish is refused: ");
    server.control.ask("DELETE", "/a", "", b"").expect(200);
    server.child.logged("DEBUG to be deleted: /a");
    server.control.put("/a", "text/plain", b"again").expect(201);
    server.public.get("/none?access_token=secret").refused(404);
    let refused = server.child.logged("DEBUG refused with 404: ");
    let of = " request=\"GET /none?access_token=*** HTTP/1.1\" client=127.0.0.1";
    assert!(refused.ends_with(of), "{refused}");
    let before = server.child.err();
    server.public.get("/a").expect(200);
    server.control.get("/a").expect(200);
    // A line of the reads would come before the line of this refusal.
    server.public.get("/last").refused(404);
    server.child.logged("GET /last ");
    assert_eq!(server.child.err().lines().count(), before.lines().count() + 1);
}

#[test]
fn the_level_counts_at_once_and_the_form_from_the_next_start() {
    let mut server = Server::configured("[log]\nlevel = 'info'\n");
    let file = server.dir.path().join("stentor.toml");
    fs::write(&file, "[log]\nlevel = 'debug'\nformat = 'json'\n").unwrap();
    server.child.signal("HUP");
    assert_eq!(server.child.logged("needs a restart to count: "), "log.format");
    server.public.get("/none").refused(404);
    server.child.logged("DEBUG refused with 404: ");
    fs::write(&file, "[log]\nlevel = 'error'\n").unwrap();
    server.child.signal("HUP");
    eventually("it is reloaded", || (server.figure("reloads/done") == 2).then_some(()));
    server.public.get("/quiet").refused(404);
    fs::write(&file, "[log]\nlevel = 'loud'\n").unwrap();
    server.child.signal("HUP");
    server.child.logged("ERROR not reloaded");
    assert!(!server.child.err().contains("/quiet"), "{}", server.child.err());
}

#[test]
fn a_line_of_json_for_each_event() {
    let mut child = Child::spawn(serve(&[]).env("STENTOR_LOG_FORMAT", "json"));
    child.logged("ready: ");
    child.stop();
    let lines: Vec<Value> = child
        .err()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let says = |text: &str| {
        lines.iter().find(|line| line["message"].as_str().is_some_and(|said| said.contains(text)))
    };
    let ready = says("ready: ").expect("it says that it is ready");
    assert_eq!(ready["level"], "INFO");
    assert!(ready["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{ready}");
    assert!(says("public listener at http://127.0.0.1:").is_some(), "{lines:?}");
    assert!(says("stopped").is_some(), "{lines:?}");
}

/// Standard error is the file that `JOURNAL_STREAM` names, or another one: children inherit the
/// variable.
#[test]
fn in_the_journal_lines_have_a_priority_and_no_time() {
    let dir = TempDir::new();
    let [journal, other] = ["journal", "other"].map(|name| dir.path().join(name));
    let log = |format: &str, stream: &Path| {
        fs::write(stream, "").unwrap();
        let file = fs::File::create(&journal).unwrap();
        let named = fs::metadata(stream).unwrap();
        let mut command = serve(&["--expect", "100000000"]);
        command.env("STENTOR_LOG_FORMAT", format).env("STENTOR_LOG_ACCESS", "/nowhere/a.log");
        command.env("JOURNAL_STREAM", format!("{}:{}", named.dev(), named.ino()));
        assert_eq!(command.stderr(file).status().unwrap().code(), Some(1));
        fs::read_to_string(&journal).unwrap()
    };
    let text = log("text", &journal);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.last().unwrap();
    assert!(text.contains("this host cannot hold"), "{text}");
    assert!(last.starts_with("<3>error: the access log /nowhere/a.log "), "{text}");
    for line in &lines[..lines.len() - 1] {
        let plain =
            line.strip_prefix("<4>").and_then(|line| line.trim_start().strip_prefix("WARN "));
        assert!(plain.is_some(), "{line}");
    }
    for line in log("json", &journal).lines().filter(|line| !line.contains("error: ")) {
        let object: Value = serde_json::from_str(line.strip_prefix("<4>").unwrap()).unwrap();
        assert_eq!(object["level"], "WARN");
    }
    let text = log("text", &other);
    assert!(text.lines().all(|line| !line.starts_with('<')), "{text}");
    assert!(text.contains("error: the access log"), "{text}");
}

#[test]
fn colours_are_for_terminals_and_for_those_who_want_them() {
    if tool("script").is_none() {
        return;
    }
    let dir = TempDir::new();
    // It warns, and then does not start.
    let line = format!(
        "{} serve --expect 100000000 --listen 192.0.2.1:1 --control 127.0.0.1:0",
        env!("CARGO_BIN_EXE_stentor")
    );
    let log = |no_color: Option<&str>| {
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(dir.path());
        command.env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value)));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("this host cannot hold"), "{text}");
        text
    };
    assert!(log(None).contains('\u{1b}') && log(Some("")).contains('\u{1b}'));
    assert!(!log(Some("1")).contains('\u{1b}'));
}
