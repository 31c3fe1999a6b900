//! The commands: what they print, and the codes they end with.

use crate::support::{
    Child, Said, Server, TempDir, curl, eventually, free_address, run, serve, stentor,
};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

fn run_with_input(args: &[&str], input: &str) -> Said {
    let mut child = Child::spawn(stentor(args).stdin(Stdio::piped()));
    child.input().write_all(input.as_bytes()).unwrap();
    child.said()
}

#[test]
fn a_reader_ends_when_its_work_is_done() {
    let server = Server::start();
    server.publish("/a", "1");
    let address = format!("http://{}", server.public.0);
    let said = run(&["sub", "/a", "-n", "1", "--server", &address]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "1\n"), "{}", said.err);
    let said = run(&["sub", "/a", "-n", "2", "--timeout", "300ms", "--server", &address]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), "1\n"), "{}", said.err);
    assert!(said.err.contains("1 of 2 messages have come"), "{}", said.err);
    // The reader of its output ends; no message comes that would tell.
    let head = format!("\"$0\" sub /a --server {address} | head -n 1");
    let path = stentor([""]).get_program().to_owned();
    let said = Child::spawn(Command::new("sh").args(["-c", &head]).arg(path)).said();
    assert_eq!((said.code, said.out.as_str()), (Some(0), "1\n"), "{}", said.err);
}

#[test]
fn a_reader_gives_up_in_time() {
    let address = free_address();
    let said = run(&["sub", "/a", "--timeout", "300ms", "--server", &address.to_string()]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("the time is up, and there was no stream"), "{}", said.err);
}

#[test]
fn a_variable_names_the_server() {
    let server = Server::start();
    let address = format!("http://{}", server.control.0);
    let said = |args: &[&str]| Child::spawn(stentor(args).env("STENTOR_SERVER", &address)).said();
    assert_eq!(said(&["pub", "/a", "1"]).code, Some(0));
    assert_eq!(said(&["sub", "/a", "-n", "1"]).out, "1\n");
    assert_eq!(said(&["status", "--ready"]).out, "ready\n");
    assert_eq!(said(&["config"]).code, Some(0), "it is no setting");
}

/// So the check of a container asks where the server listens.
#[test]
fn a_check_reads_the_settings_of_the_server() {
    let server = Server::start();
    let port = server.control.0.port();
    let ready = |name: &str, value: &str| {
        Child::spawn(stentor(["status", "--ready"]).env(name, value)).said()
    };
    assert_eq!(ready("STENTOR_CONTROL", &format!("0.0.0.0:{port}")).out, "ready\n");
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    fs::write(&file, format!("control = '127.0.0.1:{port}'\n")).unwrap();
    assert_eq!(ready("STENTOR_CONFIG", file.to_str().unwrap()).out, "ready\n");
}

#[test]
fn lines_may_hold_any_bytes() {
    let server = Server::start();
    let address = format!("http://{}", server.control.0);
    let mut child =
        Child::spawn(stentor(["pub", "/a", "--lines", "--server", &address]).stdin(Stdio::piped()));
    child.input().write_all(b"a\r\n\xff\0\r\n").unwrap();
    let said = child.said();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(server.public.get("/a").expect(200).body, b"\xff\0");
}

#[test]
fn help_names_every_command() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    let listed = help.out.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let names = listed.unwrap().lines().filter_map(|line| line.strip_prefix("  "));
    let all: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    let known = ["serve", "pub", "sub", "bench", "tune", "upgrade", "completions"];
    assert!(known.iter().all(|command| all.contains(command)), "{all:?}");
    for command in all.into_iter().filter(|name| !name.is_empty() && *name != "help") {
        let own = run(&[command, "--help"]);
        assert_eq!((own.code, own.err.as_str()), (Some(0), ""), "{command}");
        assert!(own.out.contains("Usage: stentor "), "{command}");
        let is_long = |line: &&str| line.chars().count() > 100;
        assert_eq!(own.out.lines().find(is_long), None, "{command}");
    }
    assert_eq!(run(&["--version"]).out, format!("stentor {}\n", env!("CARGO_PKG_VERSION")));
    let version = run(&["version"]).out;
    for part in ["stentor 0.1.0\n", "\n  commit    ", "\n  features  bench, tune\n", "-linux-"] {
        assert!(version.contains(part), "{version}");
    }
    assert_eq!(run(&["serev"]).code, Some(2));
    assert_eq!(run(&["serve", "--wrokers", "2"]).code, Some(2));
    assert_eq!(run(&[]).code, Some(2));
}

#[test]
fn help_on_a_command_is_what_the_command_says_of_itself() {
    for command in ["serve", "config", "sub"] {
        let said = run(&["help", command]);
        assert_eq!((said.code, said.out), (Some(0), run(&[command, "--help"]).out), "{command}");
    }
    assert_eq!(run(&["help", "nonsense"]).code, Some(2));
}

#[test]
fn config_shows_what_is_set_and_can_be_read_again() {
    let dir = TempDir::new();
    let (file, again) = (dir.path().join("a.toml"), dir.path().join("b.toml"));
    fs::write(&file, "drain = '3s'\nserver_header = false\nworkers = 7\n").unwrap();
    let mut command = stentor(["config", "--workers", "999", "-c", file.to_str().unwrap()]);
    let output = command.env("STENTOR_DRAIN", "4s").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in [
        "drain = \"4s\"  # default: \"10s\"",
        "server_header = false  # default: true",
        "# head_timeout = \"10s\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} in {printed}");
    }
    assert!(printed.contains("\nworkers = 999  # default: "), "{printed}");
    fs::write(&again, &printed).unwrap();
    assert_eq!(run(&["config", "-c", again.to_str().unwrap()]).out, printed);
    fs::write(&again, "workers = 0").unwrap();
    assert_eq!(run(&["config", "-c", again.to_str().unwrap()]).code, Some(2));
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&["completions", shell]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{shell}");
        assert!(said.out.contains("stentor") && said.out.contains("workers"), "{shell}");
    }
    assert_eq!(run(&["completions", "tcsh"]).code, Some(2));
    let script = run(&["completions", "bash"]).out;
    let checked = Command::new("sh").args(["-c", "command -v bash"]).output().unwrap();
    if checked.status.success() {
        let dir = TempDir::new();
        let file = dir.path().join("stentor.bash");
        fs::write(&file, script).unwrap();
        assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
    }
}

/// Configurations that are wrong, and what is said of each besides the file's name.
const MISTAKES: &[(&str, &[&str])] = &[
    ("workers = 2\nliten = '0.0.0.0:80'\n", &["2:1", "'liten'", "'listen'", "^^^^^"]),
    ("workers = 'two'\n", &["1:11"]),
    ("workers = 0\n", &["1:11"]),
    ("listen = '127.0.0.1'\n", &["1:10", "127.0.0.1"]),
    ("listen = ['127.0.0.1:0', 'x']\n", &["1:26", "'x'"]),
    ("[limits]\nhead_timeout = '5 parsecs'\n", &["2:16"]),
    ("[limits]\nhead_timout = '5s'\n", &["2:1", "'head_timeout'"]),
    ("head_timeout = '5s'\n", &["1:1", "[limits]"]),
    ("[cors]\norigins = 'example.com'\n", &["2:11", "example.com"]),
    ("[[topics]]\nmatch = 'a'\n", &["2:9"]),
    ("[[topics]]\nhistory = 1\n", &["1:1", "match"]),
    ("workers = 2\n[topics]\nmatch = '/a'\n", &["2:1", "write [[topics]], in double"]),
    ("[lookup]\npath = '/l='\n", &["1:1", "write [[lookup]], in double"]),
    ("[static]\nroot = '/'\n", &["1:1", "write [[static]], in double"]),
    ("topics = 5\n", &["1:10", "[[topics]]"]),
    ("[[topics]]\nmatch = '/a'\ncontent_type = 'json'\n", &["3:16", "type/subtype"]),
    ("[[static]]\nroot = '/'\nimmutable = 'assets'\n", &["3:13", "'/assets/**'"]),
    ("[[lookup]]\npath = '/l='\ntopics = '/q/{symbol}'\n", &["3:10", "symbol"]),
    ("[[lookup]]\npath = '/-/l='\ntopics = '/q/{name}'\n", &["2:8"]),
    ("[[lookup]]\npath = '/l='\ntopics = '/q/{name}'\nline = '{value'\n", &["4:8"]),
    ("[[static]]\npath = '/docs'\n", &["1:1", "root"]),
    ("[[static]]\nroot = '/'\npath = '/-/docs'\n", &["3:8"]),
    ("[[static]]\nroot = '/'\nfallback = '../index.html'\n", &["3:12", "../index.html"]),
    ("[[static]]\nroot = '/'\n[[static]]\nroot = '/srv'\n", &["static", "mounted at /"]),
    ("[files]\nsmall_bytes_max = '1 GiB'\n", &["2:19", "16 MiB"]),
    ("workers = 2\nworkers = 3\n", &["2:1"]),
    ("workers = \n", &["1:"]),
    ("\u{feff}\u{0}", &["1:"]),
    ("listen = '127.0.0.1:9'\ncontrol = '127.0.0.1:9'\n", &["127.0.0.1:9", "overlap"]),
    ("[cors]\norigins = ['*', 'https://a']\n", &["cors.origins"]),
];

#[test]
fn a_bad_configuration_is_refused_with_its_place() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    let name = file.to_str().unwrap();
    for (toml, told) in MISTAKES {
        fs::write(&file, toml).unwrap();
        let check = run(&["check", name]);
        // Were it to start, it would do so on these ports and not end.
        let socket = dir.path().join("control.sock");
        let control = format!("unix:{}", socket.display());
        let mut command = stentor(["serve", "-c", name]);
        if !toml.contains("listen = '127.0.0.1:9'") {
            command.args(["--listen", "127.0.0.1:0", "--control", &control]);
        }
        let mut serve = Child::spawn(&mut command);
        let code = serve.wait();
        assert!(!socket.exists(), "nothing is half started");
        for (code, err) in [(check.code, &check.err), (code, &serve.err())] {
            assert_eq!(code, Some(2), "{toml}: {err}");
            assert!(err.starts_with("error: "), "{toml}: {err}");
            assert!(!err.contains("ready: "), "{toml}: {err}");
            for part in *told {
                assert!(err.contains(part), "{toml}: {part} is not in: {err}");
            }
        }
        assert_eq!(check.out, "", "{toml}");
    }
}

#[test]
fn the_environment_is_checked_as_the_file_is() {
    for (name, value, told) in [
        ("STENTOR_WORKERS", "many", "STENTOR_WORKERS"),
        ("STENTOR_WORKRES", "2", "STENTOR_WORKERS"),
        ("STENTOR_LIMITS_HEAD_TIMEOUT", "soon", "STENTOR_LIMITS_HEAD_TIMEOUT"),
    ] {
        let said = Child::spawn(serve(&[]).env(name, value)).said();
        assert_eq!(said.code, Some(2), "{name}");
        assert!(said.err.contains(told), "{}", said.err);
    }
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    fs::write(&file, "workers = 3\nlisten = '127.0.0.1:0'\ncontrol = '127.0.0.1:0'\n").unwrap();
    let workers = |environment: &[(&str, &str)], flags: &[&str]| {
        let mut command = stentor(["serve", "-c"]);
        command.arg(&file).args(flags).envs(environment.iter().copied());
        Child::spawn(&mut command).logged("ready: ")
    };
    assert_eq!(workers(&[], &[]), "3 workers");
    assert_eq!(workers(&[("STENTOR_WORKERS", "4")], &[]), "4 workers");
    assert_eq!(workers(&[("STENTOR_WORKERS", "4")], &["--workers", "1"]), "1 worker");
    // What platforms make up is left alone.
    assert_eq!(workers(&[("STENTOR_SERVICE_HOST", "10.0.0.1")], &[]), "3 workers");
}

#[test]
fn a_file_that_is_not_there() {
    for command in [&["check", "/nowhere/stentor.toml"][..], &["serve", "-c", "/nowhere/x.toml"]] {
        let said = run(command);
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert!(said.err.contains("/nowhere/"), "{}", said.err);
    }
}

#[test]
fn a_good_configuration_is_summed_up() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    let toml = "listen = ['127.0.0.1:80', '[::1]:80']\nworkers = 2\n[cors]\norigins = '*'\n\
                [[lookup]]\npath = '/list='\ntopics = '/{name}'\nline = '{value}'\n\
                [[static]]\nroot = '/nowhere/www'\n";
    fs::write(&file, toml).unwrap();
    let said = run(&["check", file.to_str().unwrap()]);
    let warning = "warning: the files of /nowhere/www cannot be served: ";
    assert!(said.code == Some(0) && said.err.starts_with(warning), "{said:?}");
    let offline = run(&["check", file.to_str().unwrap(), "--offline"]);
    assert_eq!((offline.code, offline.err, &offline.out), (Some(0), String::new(), &said.out));
    for part in [
        "ok\n",
        "127.0.0.1:80, [::1]:80",
        "127.0.0.1:8081",
        "/list= in lines",
        "/ from /nowhere/www",
    ] {
        assert!(said.out.contains(part), "{part} is not in: {}", said.out);
    }
}

#[test]
fn a_store_that_cannot_be_used_here_is_a_warning_unless_the_file_is_for_elsewhere() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    let name = file.to_str().unwrap();
    let of = |path: &std::path::Path| {
        fs::write(&file, format!("[store]\npath = '{}'\n", path.display())).unwrap();
        [run(&["check", name]), run(&["check", name, "--offline"])]
    };
    for said in of(&dir.path().join("data")) {
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    }
    assert!(!dir.path().join("data").exists(), "nothing is made");
    for path in [dir.path().join("none/data"), file.clone()] {
        let [said, offline] = of(&path);
        assert!(said.out.starts_with("ok\n") && said.code == Some(0), "{said:?}");
        assert!(said.err.starts_with("warning: store.path: the store in "), "{said:?}");
        assert_eq!((offline.code, offline.err.as_str()), (Some(0), ""));
    }
}

/// Each of these files ends `serve`, and so it ends `check`.
#[test]
fn a_file_without_which_a_start_fails_is_refused_by_a_check() {
    let dir = TempDir::new();
    let file = dir.path().join("stentor.toml");
    let name = file.to_str().unwrap();
    let addresses = "listen = '127.0.0.1:0'\ncontrol = '127.0.0.1:0'\n";
    for (toml, is_fatal) in [
        ("[jwt]\nsecret_file = '/nowhere/file'", true),
        ("[jwt]\npublic_key_file = '/nowhere/file'", true),
        ("[jwt]\njwks_file = '/nowhere/file'", true),
        ("[jwt]\njwks_url = 'https://a.example/'\njwks_ca_file = '/nowhere/file'", true),
        ("[follow]\nleader = 'https://127.0.0.1:1'\nca_file = '/nowhere/file'", true),
        // A follower reads it each time, and waits until it is there.
        ("[follow]\nleader = 'http://127.0.0.1:1'\ntoken_file = '/nowhere/file'", false),
    ] {
        fs::write(&file, format!("{addresses}{toml}\n")).unwrap();
        let check = run(&["check", name]);
        assert_eq!(check.code, Some(2), "{toml}: {check:?}");
        assert!(check.err.contains("/nowhere/file: "), "{toml}: {check:?}");
        assert_eq!(run(&["check", name, "--offline"]).code, Some(0), "{toml}");
        if is_fatal {
            let serve = run(&["serve", "-c", name]);
            assert!(serve.code == Some(1) && serve.err.contains("/nowhere/file"), "{serve:?}");
        }
    }
    for toml in ["[log]\naccess = '/nowhere/access.log'", "user = 'nobody-of-this-name'"] {
        fs::write(&file, format!("{toml}\n")).unwrap();
        let check = run(&["check", name]);
        assert!(check.code == Some(0) && !check.err.is_empty(), "{toml}: {check:?}");
        assert_eq!(run(&["check", name, "--offline"]).err, "", "{toml}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_told_and_a_log_has_one_line_of_them() {
    let mut server = Server::configured("");
    let file = server.dir.path().join("stentor.toml");
    fs::write(&file, "workers = 0\nliten = 1\n[limits]\nnames_max = 0\n").unwrap();
    let said = run(&["check", file.to_str().unwrap()]);
    assert_eq!(said.code, Some(2));
    for part in ["toml:1:11: 0 is", "toml:2:1: unknown key 'liten'", "toml:4:13: 0 is"] {
        assert!(said.err.contains(part), "{part} is not in: {}", said.err);
    }
    server.child.signal("HUP");
    let line = server.child.logged("ERROR not reloaded, the settings stay as they are: ");
    assert!(line.ends_with("(and 2 more mistakes, which stentor check shows)"), "{line}");
}

#[test]
fn an_address_in_use_is_named() {
    let server = Server::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let foreign = taken.local_addr().unwrap().to_string();
    let ours = server.public.0.to_string();
    for (listen, control, named) in [
        (foreign.as_str(), "127.0.0.1:0", &foreign),
        (ours.as_str(), "127.0.0.1:0", &ours),
        ("127.0.0.1:0", foreign.as_str(), &foreign),
        ("127.0.0.1:0", ours.as_str(), &ours),
    ] {
        let said = run(&["serve", "--listen", listen, "--control", control]);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains(named.as_str()), "{}", said.err);
        assert!(!said.err.contains("ready: "), "{}", said.err);
    }
    let said = run(&["serve", "--listen", "192.0.2.1:1", "--control", "127.0.0.1:0"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("192.0.2.1:1"), "{}", said.err);
    server.public.get("/none").refused(404);
}

/// A line is a value as it stands, whatever its type.
#[test]
fn lines_of_json_are_published_as_they_are() {
    let server = Server::start();
    let control = format!("http://{}", server.control.0);
    for line in ["{\"n\": 1}", "\"text\"", "7", "no json", ""] {
        for content_type in ["application/json", "application/geo+json", "text/plain"] {
            let topic = ["/a", "--lines", "--type", content_type];
            let args = [&["pub", "--control", &control][..], &topic].concat();
            let said = run_with_input(&args, &format!("{line}\n"));
            assert_eq!(said.code, Some(0), "{}", said.err);
            let value = server.public.get("/a").expect(200);
            let kind = value.field("content-type");
            assert_eq!((value.text(), kind), (line, Some(content_type)), "{line}");
        }
    }
}

#[test]
fn publishing_from_the_command_line() {
    let server = Server::start();
    let control = format!("http://{}", server.control.0);
    let publish = |args: &[&str], input: &str| {
        run_with_input(&[&["pub", "--control", &control][..], args].concat(), input)
    };
    let said = publish(&["/scores/lal-bos", "101:99"], "");
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let value = server.public.get("/scores/lal-bos").expect(200);
    assert_eq!(value.text(), "101:99");
    assert_eq!(value.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(value.tag(), format!("\"{}\"", said.out.trim()));

    publish(&["/a b?c/é", "--type", "application/json", "[1]"], "");
    let value = server.public.get("/a%20b%3Fc/%C3%A9").expect(200);
    assert_eq!((value.text(), value.field("content-type")), ("[1]", Some("application/json")));

    publish(&["/stdin"], "from standard input");
    assert_eq!(server.public.get("/stdin").text(), "from standard input");
    publish(&["/stdin", "-"], "again");
    assert_eq!(server.public.get("/stdin").text(), "again");

    let said = publish(&["/lines", "--lines"], "one\ntwo\n\"three\" é");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let value = server.public.get("/lines").expect(200);
    assert_eq!((value.text(), value.tag()), ("\"three\" é", format!("\"{}\"", said.out.trim())));
    assert_eq!(server.figure("messages_kept"), 7);

    let said = publish(&["/a", "--lines", "--event", "stentor"], "x\n");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("line 1: This event name is reserved"), "{}", said.err);

    let said = publish(&["/-/x", "1"], "");
    assert_eq!(said.code, Some(1));
    assert!(said.err.starts_with("error: ") && said.err.contains("/-/x"), "{}", said.err);
    assert_eq!(publish(&["no-path", "1"], "").code, Some(2));
    let public = format!("http://{}", server.public.0);
    let said = run(&["pub", "--control", &public, "/a", "1"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("405"), "{}", said.err);
}

#[test]
fn commands_speak_to_a_socket_file() {
    let dir = TempDir::new();
    let address = format!("unix:{}", dir.path().join("control.sock").display());
    let mut server = Server::with("", "", &["--workers", "1", "--control", &address]);
    let said = run(&["pub", "--control", &address, "/a", "hello"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let lines = ["pub", "--control", &address, "/lines", "--lines"];
    assert_eq!(run_with_input(&lines, &"a line\n".repeat(10_000)).code, Some(0));
    let follower = Child::spawn(&mut stentor(["sub", "--server", &address, "/a", "/lines"]));
    eventually("it prints the values", || {
        (follower.out() == "/a\thello\n/lines\ta line\n").then_some(())
    });
    let status = run(&["status", "--server", &address]);
    assert_eq!((status.code, status.err.as_str()), (Some(0), ""));
    assert!(status.out.contains(" 10,001 published,"), "{}", status.out);
    server.child.signal("TERM");
    let mut follower = follower;
    follower.logged("waiting for the server");
    server.child.stopped();
    let said = run(&["status", "--server", &address]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(&format!("no answer from {address}: ")), "{}", said.err);
}

#[test]
fn the_status_from_the_command_line() {
    let server = Server::start();
    let status = run(&["status", "--server", &server.control.0.to_string()]);
    assert_eq!((status.code, status.err.as_str()), (Some(0), ""));
    let process = format!("process {}, ", server.child.id());
    assert!(status.out.starts_with("stentor 0.1.0 ") && status.out.contains(&process));
    assert!(status.out.contains("\nmemory ") && status.out.contains(" MiB resident"), "{status:?}");
    let json = run(&["status", "--json", "--server", &server.control.0.to_string()]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["workers"], &json["counters"]["readers_sse"]), (&2.into(), &0.into()));
    // The public listener has none to give.
    let refused = run(&["status", "--server", &server.public.0.to_string()]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""));
    assert!(refused.err.contains("404"), "{}", refused.err);
}

#[test]
fn nobody_answers() {
    let address = free_address();
    let said = run(&["pub", "--control", &format!("http://{address}"), "/a", "1"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(&address.to_string()), "{}", said.err);
}

#[test]
fn lines_are_published_as_they_come() {
    let server = Server::start();
    let control = format!("http://{}", server.control.0);
    let mut command = stentor(["pub", "--control", &control, "/log", "--lines"]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    for i in 0..5 {
        writeln!(input, "line {i}").unwrap();
        eventually("the line is published while the input goes on", || {
            (server.public.get("/log").body == format!("line {i}").as_bytes()).then_some(())
        });
    }
    drop(input);
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn following_topics() {
    let server = Server::start();
    let url = format!("http://{}", server.public.0);
    let follow = |args: &[&str]| {
        let base = ["sub", "--server", &url];
        Child::spawn(&mut stentor([&base[..], args].concat()))
    };
    let prints = |child: &Child, expected: &str| {
        eventually(&format!("it prints {expected:?}"), || {
            let out = child.out();
            (out == expected).then_some(()).or_else(|| {
                assert!(expected.starts_with(&out), "{out:?} instead of {expected:?}");
                None
            })
        });
    };
    let mut one = follow(&["/a"]);
    let two = follow(&["/a", "/b"]);
    let json = follow(&["--json", "/b"]);
    server.control.put("/a", "text/plain", b"first").expect(201);
    prints(&one, "first\n");
    prints(&two, "/a\tfirst\n");
    server.control.put("/b", "application/json", b"{\"n\":\n1}").expect(201);
    prints(&two, "/a\tfirst\n/b\t{\"n\":\n/b\t1}\n");
    let id = server.public.get("/b").tag();
    let line = format!(
        "{{\"topic\":\"/b\",\"id\":{id},\"type\":\"application/json\",\"data\":{{\"n\": 1}}}}\n"
    );
    prints(&json, &line);
    server.control.ask("DELETE", "/a", "", b"").expect(200);
    server.control.put("/a", "text/plain", b"second").expect(201);
    prints(&one, "first\nsecond\n");
    assert!(one.is_running());
    // A topic that can never be is an error.
    let mut never = follow(&["/a//b"]);
    assert_eq!(never.wait(), Some(1));
    assert!(never.err().contains("400"), "{}", never.err());
}

#[test]
fn a_follower_waits_for_a_server_that_is_away() {
    let server = Server::start();
    let (public, control) = (server.public.0.to_string(), server.control.0.to_string());
    server.control.put("/a", "text/plain", b"before").expect(201);
    let url = format!("http://{public}");
    let mut follower = Child::spawn(&mut stentor(["sub", "--server", &url, "/a"]));
    eventually("it prints the value", || (follower.out() == "before\n").then_some(()));
    drop(server);
    follower.logged("waiting for the server");
    let mut again =
        Child::spawn(&mut stentor(["serve", "--listen", &public, "--control", &control]));
    again.logged("ready: ");
    let said = run(&["pub", "--control", &format!("http://{control}"), "/a", "after"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    eventually("it prints the value", || (follower.out() == "before\nafter\n").then_some(()));
    assert!(follower.is_running());
}

#[test]
fn curl_reads_and_publishes() {
    let server = Server::start();
    let control = format!("http://{}/a", server.control.0);
    let public = format!("http://{}/a", server.public.0);
    let Some(output) = curl(&["-X", "PUT", "--data-binary", "hello", &control]) else { return };
    assert!(output.status.success(), "{output:?}");
    // More than a megabyte goes with `Expect: 100-continue`, as curl does.
    let dir = TempDir::new();
    let file = dir.path().join("data");
    fs::write(&file, vec![b'x'; 1024 * 1024]).unwrap();
    let output = curl(&["-T", file.to_str().unwrap(), &control]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = curl(&[
        &public,
        &public,
        "-o",
        "/dev/null",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{size_download} %{num_connects}\n",
    ])
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "200 1048576 1\n200 1048576 0\n");
    let chunked = ["-T", "-", "-H", "Transfer-Encoding: chunked", &control];
    let output = curl(&chunked).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.public.get("/a").body, b"");
    let output = curl(&["-I", &public]).unwrap();
    assert!(output.stdout.starts_with(b"HTTP/1.1 200 OK\r\n"), "{output:?}");
    let output = curl(&["--http1.0", &public]).unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn errors_look_like_those_of_clap() {
    let refused = ["pub", "/a", "x", "--server", "127.0.0.1:1"];
    let plain = run(&refused);
    assert_eq!(plain.code, Some(1));
    let expected = "error: no answer from http://127.0.0.1:1: Connection refused \
                    (os error 111)\n\n  tip: 'stentor serve' starts a server; \
                    --server ADDRESS or STENTOR_SERVER names another one\n";
    assert_eq!(plain.err, expected);
    let of = |words: &[&str]| {
        let said = run(&[&["--color=always"], words].concat());
        said.err.split("error:").next().map(str::to_owned)
    };
    let sub = run(&["sub", "/a", "--no-wait", "--server", "127.0.0.1:1"]);
    assert_eq!((sub.code, sub.err.as_str()), (Some(1), expected), "it does not wait");
    let colours = of(&refused);
    assert_eq!(colours, of(&["pub"]), "the same colour");
    assert!(colours.unwrap().starts_with('\u{1b}'));
}

#[test]
fn mistakes_are_usage_errors() {
    let url = "http://127.0.0.1:1/a";
    for (line, part) in [
        (&["pub", "/*", "x"][..], "patterns such as /a/* and /a/** are for readers"),
        (&["sub", "/a*"], "patterns are /a/* or /a/**"),
        (&["pub", "/a", "x", "--type", "a\nb"], "'\\n' cannot stand in it"),
        (&["pub", "/a", "x", "--control", "31801"], "such as 127.0.0.1:31801"),
        (&["pub", "/a", "x", "--ca", "/none"], "/none: No such file"),
        (&["bench", "get", url, "--ca", "/none"], "/none: No such file"),
        (&["bench", "get", url, "--from", "10.255.254.253"], "is no address of this machine"),
        (&["demo", "--from", "2012-13-45"], "there is no day 2012-13-45"),
        (&["demo", "--follow", "http://127.0.0.1:1"], "the demo publishes"),
        (&["token", "new", "--read", "/a", "--expires", "99999999d"], "after the year 9999"),
    ] {
        let said = run(line);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{line:?}: {said:?}");
        assert!(said.err.starts_with("error: ") && said.err.contains(part), "{line:?}: {said:?}");
    }
    let help = run(&["bench", "help", "put"]);
    assert!(help.code == Some(0) && help.out.contains("--bytes"), "{help:?}");
}

#[test]
fn completions_offer_no_hidden_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).out;
        assert!(script.contains("upgrade") && !script.contains("parent"), "{shell}");
    }
}

#[test]
fn no_secret_is_made_to_be_lost() {
    let line = "exec \"$0\" token new --read /a 2>&-";
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_stentor");
    let said = Child::spawn(command.args(["-c", line]).arg(program)).said();
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
}

#[test]
fn refusals_without_reason_name_their_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let refuse = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        let _ = std::io::copy(&mut peer, &mut std::io::sink());
    });
    let said = run(&["pub", "/a", "x", "--server", &address]);
    let reason = format!("404 Not Found from http://{address}, without a reason");
    assert_eq!(said.err, format!("error: /a is not published: {reason}\n"));
    refuse.join().unwrap();
}

/// The JSON that a command prints.
#[track_caller]
fn json_of(line: &[&str], code: i32) -> serde_json::Value {
    let said = run(line);
    assert_eq!(said.code, Some(code), "{line:?}: {said:?}");
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

#[test]
fn commands_print_json_for_programs() {
    let dir = TempDir::new();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (good, bad, store) = (path("good.toml"), path("bad.toml"), path("store"));
    let server = Server::with("", "", &["--workers", "2", "--data", &store]);
    let control = format!("http://{}", server.control.0);
    let one = json_of(&["pub", "/a", "x", "--json", "--server", &control], 0);
    assert!(one["id"].is_string() && one["readers"] == 0, "{one}");
    let lines = ["pub", "/a", "--lines", "--json", "--server", &control];
    let said = run_with_input(&lines, "a\nb\n");
    let lines: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&lines["published"], &lines["failed"]), (&2.into(), &0.into()));
    let mut server = server;
    server.child.signal("TERM");
    server.child.stopped();
    let sound = json_of(&["store", "check", "--json", &store], 0);
    assert_eq!((&sound["ok"], &sound["topics"]), (&true.into(), &1.into()), "{sound}");

    let secret = run(&["token", "new", "--name", "n", "--read", "/a"]);
    fs::write(&good, format!("workers = 3\n[limits]\nhead_timeout = '7s'\n{}", secret.out))
        .unwrap();
    fs::write(&bad, "wrokers = 3\n").unwrap();
    let checked = json_of(&["check", "--json", &good], 0);
    let rows = checked["settings"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "workers" && row["value"] == "3"), "{checked}");
    let wrong = json_of(&["check", "--json", &bad], 2);
    assert_eq!(wrong["errors"][0]["place"], format!("{bad}:1:1"), "{wrong}");
    let all = json_of(&["config", "--json", "-c", &good], 0);
    assert_eq!((&all["workers"], &all["limits"]["head_timeout"]), (&3.into(), &"7s".into()));
    assert!(all["token"][0]["name"] == "n" && all["store"].is_object(), "{all}");
    let token = ["token", "check", secret.err.trim(), "-c", &good, "--json"];
    assert_eq!(json_of(&token, 0)["read"], serde_json::json!(["/a"]));
    let refused = json_of(&["token", "check", "stentor_x", "-c", &good, "--json"], 1);
    assert!(refused["ok"] == false && refused["refused"].is_string(), "{refused}");
}
