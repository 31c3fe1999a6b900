//! The binary as a child process that ends with its handle.

use super::{Client, PATIENCE, Url, eventually, free_address};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs};

/// The command under test, without what the environment would tell it.
pub(crate) fn stentor<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stentor"));
    command.args(args);
    without_settings(&mut command);
    command
}

fn without_settings(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"STENTOR_") {
            command.env_remove(name);
        }
    }
    // What the tests' clients call the server.
    command.env("STENTOR_CONTROL_HOSTS", "a,b,h,here,test");
    // The machine is busy with other tests.
    command.env("STENTOR_UPGRADE_PAUSE_MAX", "20s");
    command.stdin(Stdio::null());
}

/// A port that the kernel chooses.
const ANY: &str = "127.0.0.1:0";

/// Listeners that speak TLS. An address is written once, with `tls:` or without.
const TLS: [&str; 6] =
    ["--workers", "2", "--listen", "tls:127.0.0.1:0", "--control", "tls:127.0.0.2:0"];

/// A process that was started here; it is killed when the handle goes. What it prints is kept.
pub(crate) struct Child {
    process: process::Child,
    /// The process that has taken over from it.
    successor: Option<u32>,
    has_store: bool,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    collectors: Vec<JoinHandle<()>>,
}

/// What a command that ended has said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The command that starts a server with these flags, at ports that the kernel chooses.
pub(crate) fn serve(flags: &[&str]) -> Command {
    let mut command = stentor(["serve", "--listen", ANY, "--control", ANY]);
    command.args(flags);
    command
}

/// A start that does not come to anything: its last line names all the reasons.
#[track_caller]
pub(crate) fn refused_start(flags: &[&str], reasons: &[&str]) -> Said {
    let said = Child::spawn(&mut serve(flags)).said();
    assert_eq!(said.code, Some(1), "{}", said.err);
    let last = said.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && !said.err.contains("ready: "), "{}", said.err);
    for reason in reasons {
        assert!(last.contains(reason), "{reason}: {last}");
    }
    said
}

/// Runs the command under test to its end.
#[track_caller]
pub(crate) fn run(args: &[&str]) -> Said {
    Child::spawn(&mut stentor(args)).said()
}

impl Child {
    pub(crate) fn spawn(command: &mut Command) -> Child {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (out, out_collector) = collect(process.stdout.take().expect("it is piped"));
        let (err, err_collector) = collect(process.stderr.take().expect("it is piped"));
        let collectors = vec![out_collector, err_collector];
        Child { process, successor: None, has_store: false, out, err, collectors }
    }

    pub(crate) fn id(&self) -> u32 {
        self.successor.unwrap_or(self.process.id())
    }

    /// Has the server hand over to another process of its program, and goes on with that.
    #[track_caller]
    pub(crate) fn upgrade(&mut self) {
        let before = self.id();
        let failures = self.err().matches("not upgraded").count();
        self.signal("USR2");
        self.await_successor(before, failures);
    }

    /// Waits until another process has taken over from that one, and goes on with that.
    #[track_caller]
    pub(crate) fn taken_over(&mut self, before: u32) {
        let failures = self.err().matches("not upgraded").count();
        self.await_successor(before, failures);
    }

    #[track_caller]
    fn await_successor(&mut self, before: u32, failures: usize) {
        let has_been = format!(", process {before}");
        let has_been = ["ends", "waits for its end"].map(|it| format!("this one {it}{has_been}"));
        let line = eventually("the upgrade", || {
            let log = self.err();
            assert_eq!(log.matches("not upgraded").count(), failures, "{log}");
            let is_it = |line: &&str| has_been.iter().any(|end| line.ends_with(end));
            let line = log.lines().find(is_it)?;
            Some(line.to_owned())
        });
        let id = line.split("process ").nth(1).and_then(|rest| rest.split(' ').next());
        self.successor = id.and_then(|id| id.parse().ok());
        assert!(self.successor.is_some(), "{line}");
        // The first one stays as the parent that waits.
        if before != self.process.id() || line.ends_with(&has_been[0]) {
            eventually("the process before ends", || (!self.has_process(before)).then_some(()));
        }
    }

    /// Another process has taken over, which this one does not know of.
    pub(crate) fn went_over_to(&mut self, process: u32) {
        self.successor = Some(process);
    }

    /// Whether this process of the server still runs.
    fn has_process(&mut self, id: u32) -> bool {
        if id == self.process.id() {
            return self.process.try_wait().unwrap().is_none();
        }
        // Nobody may be there to wait for it. Its first thread may have ended before others, which
        // have files of their own.
        let threads = fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count);
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        threads > 1 || !matches!(state, None | Some('Z'))
    }

    /// What it has written to standard output so far.
    pub(crate) fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// What it has written to standard error so far.
    pub(crate) fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Sends a signal: `TERM`, `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.id());
        let status = Command::new("sh").args(["-c", &line]).status().unwrap();
        assert!(status.success(), "{line}");
    }

    /// Its standard input, if it was given one.
    pub(crate) fn input(&mut self) -> ChildStdin {
        self.process.stdin.take().expect("it is piped")
    }

    /// Waits for its end, and returns the exit code.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        if let Some(successor) = self.successor {
            while self.has_process(successor) {
                assert!(Instant::now() < deadline, "it does not end: {}", self.err());
                thread::sleep(Duration::from_millis(5));
            }
        }
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.err());
            thread::sleep(Duration::from_millis(5));
        };
        for collector in self.collectors.drain(..) {
            collector.join().unwrap();
        }
        status.code()
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.signal("KILL");
        self.wait();
    }

    /// Has a server stop, and sees that it does so in time.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        self.stopped();
    }

    /// Waits for the exit of a server that was sent a signal to stop, and fails if that takes too
    /// long. The server waits two seconds for a client that is connected, so a test drops its
    /// clients first.
    #[track_caller]
    pub(crate) fn stopped(&mut self) {
        // A store is written to a disk that may be busy.
        let bound = Duration::from_millis(1_800).mul_f64(slowness()).min(PATIENCE);
        self.stopped_within(if self.has_store { PATIENCE } else { bound });
    }

    /// Likewise, if the stop takes longer.
    #[track_caller]
    pub(crate) fn stopped_within(&mut self, bound: Duration) {
        let begin = Instant::now();
        assert_eq!(self.wait(), Some(0), "{}", self.err());
        assert!(begin.elapsed() < bound, "it took {:?}: {}", begin.elapsed(), self.err());
    }

    /// Waits for its end, and returns all it has said.
    #[track_caller]
    pub(crate) fn said(mut self) -> Said {
        Said { code: self.wait(), out: self.out(), err: self.err() }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.has_process(self.id())
    }

    /// Waits until a line of standard error contains `text`, and returns what follows it there.
    #[track_caller]
    pub(crate) fn logged(&mut self, text: &str) -> String {
        eventually(&format!("the log says '{text}'"), || {
            let running = self.is_running();
            let found = after(&self.err(), text);
            assert!(found.is_some() || running, "it ended: {}{}", self.out(), self.err());
            found
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if thread::panicking() {
            let (out, err) = (self.out(), self.err());
            let last = |text: &str| text.lines().rev().take(50).collect::<Vec<_>>().join("\n");
            eprintln!("process {}, newest first:\n{}\n{}", self.id(), last(&out), last(&err));
        }
        // It may have ended already.
        if let Some(successor) = self.successor {
            let line = format!("kill -KILL {successor} 2>/dev/null");
            let _ = Command::new("sh").args(["-c", &line]).status();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How many processes share a core of this machine: the more, the longer all of them take.
fn slowness() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap();
    let number = |text: &str| text.split('/').next().and_then(|text| text.parse::<f64>().ok());
    // The average of a minute, and the processes that run now.
    let loads = text.split(' ').enumerate().filter(|(place, _)| [0, 3].contains(place));
    let load = loads.filter_map(|(_, text)| number(text)).fold(0.0, f64::max);
    (load / thread::available_parallelism().map_or(1, usize::from) as f64).max(1.0)
}

/// What follows `text` in the first whole line that has it.
fn after(log: &str, text: &str) -> Option<String> {
    let whole_lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut found = whole_lines.filter_map(|line| line.trim_end().split_once(text));
    found.next().map(|(_, rest)| rest.to_owned())
}

/// Keeps what a process prints, as it prints it.
fn collect(source: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let kept = Arc::new(Mutex::new(String::new()));
    let ours = Arc::clone(&kept);
    let collector = thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while matches!(source.read_until(b'\n', &mut line), Ok(1..)) {
            ours.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    (kept, collector)
}

/// A running server.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) public: Url,
    pub(crate) control: Url,
    /// Its directory, with the configuration in `stentor.toml`.
    pub(crate) dir: TempDir,
}

impl Server {
    /// With default settings.
    pub(crate) fn start() -> Server {
        Server::configured("")
    }

    /// With a configuration file.
    pub(crate) fn configured(toml: &str) -> Server {
        Server::with("", toml, &["--workers", "2"])
    }

    /// With a configuration file and flags. `prelude` is shell that runs first, such as
    /// `ulimit -n 64;`.
    pub(crate) fn with(prelude: &str, toml: &str, flags: &[&str]) -> Server {
        Server::listening_at(ANY, prelude, toml, flags)
    }

    /// With ports that the kernel gives to no other process, so that a later server can have them.
    pub(crate) fn lasting(toml: &str) -> Server {
        Server::at([(); 2].map(|()| Url(free_address())), toml)
    }

    /// With its public and its control listener at these addresses: see [`Server::stop`].
    pub(crate) fn at(addresses: [Url; 2], toml: &str) -> Server {
        let addresses = addresses.map(|Url(address)| address.to_string());
        let flags = ["--workers", "2"];
        Server::listening(addresses.each_ref().map(|at| &**at), "", toml, &flags, Stdio::null())
    }

    /// Stops it, and returns where it was.
    #[track_caller]
    pub(crate) fn stop(mut self) -> [Url; 2] {
        self.child.stop();
        [self.public, self.control]
    }

    /// Ends it as a crash does, and returns where it was.
    #[track_caller]
    pub(crate) fn kill(mut self) -> [Url; 2] {
        self.child.kill();
        [self.public, self.control]
    }

    /// Waits until it has what its leaders or its stream have.
    #[track_caller]
    pub(crate) fn await_ready(&self) {
        eventually("it is ready", || (self.control.get("/-/readyz").status == 200).then_some(()));
    }

    /// With a public listener at this address.
    pub(crate) fn listening_at(address: &str, prelude: &str, toml: &str, flags: &[&str]) -> Server {
        Server::listening([address, ANY], prelude, toml, flags, Stdio::null())
    }

    /// With a public listener that it is given, as systemd gives it.
    pub(crate) fn inheriting(listener: &TcpListener, toml: &str) -> Server {
        let address = listener.local_addr().unwrap().to_string();
        let prelude = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1;";
        let stdin = OwnedFd::from(listener.try_clone().unwrap()).into();
        Server::listening([&address, ANY], prelude, toml, &["--workers", "2"], stdin)
    }

    /// Of a program that is a copy in the server's directory, which may be replaced.
    pub(crate) fn of_copy(toml: &str) -> Server {
        Server::of_copy_behind("", toml)
    }

    /// Likewise, behind some shell.
    pub(crate) fn of_copy_behind(prelude: &str, toml: &str) -> Server {
        Server::of_copy_at(ANY, prelude, toml)
    }

    /// Likewise, with a public listener at this address.
    pub(crate) fn of_copy_at(address: &str, prelude: &str, toml: &str) -> Server {
        Server::of_copy_with(address, prelude, toml, &["--workers", "2"])
    }

    /// Beside its listeners in the clear it has those of [`TLS`].
    pub(crate) fn beside_tls(toml: &str) -> Server {
        Server::listening_at("127.0.0.2:0", "", toml, &TLS)
    }

    /// Likewise, of a copy.
    pub(crate) fn of_copy_beside_tls(toml: &str) -> Server {
        Server::of_copy_with("127.0.0.2:0", "", toml, &TLS)
    }

    fn of_copy_with(address: &str, prelude: &str, toml: &str, flags: &[&str]) -> Server {
        let copies = "cp \"$0\" \"$(dirname \"$3\")/stentor\"; \
                      copy=\"$(dirname \"$3\")/stentor\"; exec \"$copy\" \"$@\"; ";
        let prelude = format!("{prelude} {copies}");
        Server::listening_at(address, &prelude, toml, flags)
    }

    fn listening(
        [public, control]: [&str; 2],
        prelude: &str,
        toml: &str,
        flags: &[&str],
        stdin: Stdio,
    ) -> Server {
        let dir = TempDir::new();
        let file = dir.path().join("stentor.toml");
        fs::write(&file, toml).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{prelude} exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_stentor")).args(["serve", "-c"]).arg(&file);
        command.args(["--listen", public, "--control", control]).args(flags);
        without_settings(&mut command);
        let mut child = Child::spawn(command.stdin(stdin));
        let address = |text: String| -> Url { Url(text.parse().expect("an address is logged")) };
        child.has_store = flags.contains(&"--data") || toml.contains("[store]");
        child.logged("ready: ");
        let public = address(child.logged("public listener at http://"));
        let port = child.logged("control listener at 127.0.0.1:");
        let control = address(format!("127.0.0.1:{port}"));
        Server { child, public, control, dir }
    }

    /// A connection to the public listener.
    #[track_caller]
    pub(crate) fn reader(&self) -> Client {
        Client::connect(self.public.0)
    }

    /// A connection to the control listener.
    #[track_caller]
    pub(crate) fn publisher(&self) -> Client {
        Client::connect(self.control.0)
    }

    /// Publishes text, and returns its id.
    #[track_caller]
    pub(crate) fn publish(&self, topic: &str, text: &str) -> String {
        let response = self.control.put(topic, "text/plain", text.as_bytes());
        let answer = response.expect_one_of(&[200, 201]).json();
        answer["id"].as_str().expect("a message has an id").to_owned()
    }

    /// Waits until a counter has a value.
    #[track_caller]
    pub(crate) fn settled(&self, counter: &str, value: u64) {
        let path = format!("counters/{counter}");
        eventually(&format!("{counter} is {value}"), || {
            (self.figure(&path) == value).then_some(())
        });
    }

    /// A figure of the status page, such as `connections_open` or `counters/accepted`.
    #[track_caller]
    pub(crate) fn figure(&self, path: &str) -> u64 {
        let status = self.control.get("/-/status").expect(200).json();
        figure(&status, path)
    }
}

/// A figure of a status page.
#[track_caller]
pub(crate) fn figure(status: &serde_json::Value, path: &str) -> u64 {
    status.pointer(&format!("/{path}")).and_then(serde_json::Value::as_u64).unwrap_or_else(|| {
        panic!("there is no {path} in {status:#}");
    })
}

/// The number of a message, without its epoch.
#[track_caller]
pub(crate) fn seq(id: &str) -> u64 {
    id.rsplit_once('-').and_then(|(_, seq)| seq.parse().ok()).unwrap_or_else(|| panic!("{id}"))
}

/// A new directory that goes with its handle.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short, for the path of a socket has 107 bytes at the most.
        let path = env::temp_dir().join(format!("stentor-{}-{count}", process::id()));
        fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
