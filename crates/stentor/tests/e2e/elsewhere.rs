//! Publishers on another host: they are not on loopback, and all they have is a token.
//!
//! The other host is a network namespace, with a cable (veth) to that of the server, which is not
//! this host's either: no address here is touched. A namespace is there for as long as a process is
//! in it. Those here belong to processes that end when their input does, so nothing is left behind
//! however a test ends.

use crate::access::writer_below_in;
use crate::support::{Child, Server, eventually, skip, tool};
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Addresses for documentation (RFC 5737): no route of this host leads there.
const SERVER: &str = "192.0.2.1";
const PUBLISHER: &str = "192.0.2.2";

/// A network of its own.
struct Namespace(Child);

impl Namespace {
    /// `None`, and a sentence, where none can be made.
    fn new() -> Option<Namespace> {
        let unshare = tool("unshare")?;
        let may = Command::new(&unshare).args(["--net", "true"]).output().unwrap();
        if !may.status.success() {
            let why = String::from_utf8_lossy(&may.stderr);
            skip(&format!("no network namespace can be made, which takes root: {why}"));
            return None;
        }
        let mut holder = Command::new(unshare);
        let holder = Child::spawn(holder.args(["--net", "cat"]).stdin(Stdio::piped()));
        let network = |process: u32| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        eventually("the namespace is there", || {
            let of_holder = network(holder.id())?;
            (Some(of_holder) != network(std::process::id())).then_some(())
        });
        Some(Namespace(holder))
    }

    /// What a program has to be started with to be in there.
    fn entrance(&self) -> String {
        format!("nsenter --target {} --net", self.0.id())
    }

    /// A program that is in there.
    fn command(&self, program: &str) -> Command {
        let entrance = self.entrance();
        let mut words = entrance.split(' ');
        let mut command = Command::new(words.next().expect("it is a command"));
        command.args(words).arg(program);
        command
    }

    #[track_caller]
    fn ip(&self, line: &str) {
        let output = self.command("ip").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The network of the server and that of a publisher, with a cable between them.
fn networks() -> Option<(Namespace, Namespace)> {
    tool("ip")?;
    let (here, there) = (Namespace::new()?, Namespace::new()?);
    here.ip(&format!("link add cable type veth peer name cable netns {}", there.0.id()));
    for (network, address) in [(&here, SERVER), (&there, PUBLISHER)] {
        network.ip("link set lo up");
        network.ip(&format!("address add {address}/24 dev cable"));
        network.ip("link set cable up");
    }
    Some((here, there))
}

/// Publishes what each is called to a topic of that name, by what that language brings along, and
/// prints the status of the answer. The arguments are the server's URL and a token.
const PYTHON: &str = "
import sys, urllib.request, urllib.error
url, token = sys.argv[1:]
fields = {'Authorization': 'Bearer ' + token} if token else {}
request = urllib.request.Request(url + '/in/python', b'python', fields, method='PUT')
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    print(direct.open(request, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
";
const NODE: &str = "
const [url, token] = process.argv.slice(1)
const headers = token ? { Authorization: `Bearer ${token}` } : {}
const request = require('http').request(url + '/in/node', { method: 'PUT', headers })
request.on('response', (answer) => { console.log(answer.statusCode); answer.resume() })
request.end('node')
";

#[test]
fn a_token_publishes_from_another_host() {
    let Some((here, there)) = networks() else { return };
    let publishers = ["curl", "python3", "node"];
    if publishers.iter().any(|program| tool(program).is_none()) {
        return;
    }
    let toml = format!("log.access = 'stdout'\n{}", writer_below_in());
    let prelude = format!("exec {} \"$0\" \"$@\";", here.entrance());
    let server = Server::listening_at(&format!("{SERVER}:0"), &prelude, &toml, &["--workers", "1"]);
    let url = format!("http://{}", server.public.0);
    let publish = |program: &str, token: &str| -> Output {
        let mut command = there.command(program);
        match program {
            "curl" => {
                command.args(["-q", "--silent", "--noproxy", "*", "--max-time", "30"]);
                command.args(["--output", "/dev/null", "--write-out", "%{http_code}\n"]);
                if !token.is_empty() {
                    command.args(["--header", &format!("Authorization: Bearer {token}")]);
                }
                command.args(["--upload-file", "-", &format!("{url}/in/curl")])
            }
            "python3" => command.args(["-c", PYTHON, &url, token]),
            _ => command.args(["-e", NODE, &url, token]),
        };
        let mut sent = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        if program == "curl" {
            use std::io::Write;
            sent.stdin.take().expect("it is piped").write_all(b"curl").unwrap();
        }
        sent.wait_with_output().unwrap()
    };
    for program in publishers {
        for (token, expected) in
            [("", "401"), ("stentor_unknown", "401"), ("stentor_writer", "201")]
        {
            let said = publish(program, token);
            let status = String::from_utf8_lossy(&said.stdout);
            assert_eq!(status.trim(), expected, "{program} {token} {said:?}");
        }
        let topic = program.trim_end_matches('3');
        let mut read = there.command("curl");
        read.args(["-qs", "--noproxy", "*", "--max-time", "30", &format!("{url}/in/{topic}")]);
        let read = read.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&read.stdout), topic);
    }
    // It was another host's address each time.
    let log = eventually("all is logged", || {
        let log = server.child.out();
        (log.matches("\"PUT /in/").count() == 9).then_some(log)
    });
    let puts = log.lines().filter(|line| line.contains("\"PUT /in/"));
    assert!(puts.clone().all(|line| line.starts_with(PUBLISHER)), "{log}");
}

/// Seconds without a network: by then the kernel would have doubled its pauses so often that the
/// next attempt is 11 s after the network is back.
const AWAY: Duration = Duration::from_secs(14);

#[test]
fn a_stream_goes_on_soon_after_its_network_is_back() {
    let Some((here, there)) = networks() else { return };
    if tool("curl").is_none() {
        return;
    }
    let prelude = format!("exec {} \"$0\" \"$@\";", here.entrance());
    let server = Server::listening_at(&format!("{SERVER}:0"), &prelude, "", &["--workers", "1"]);
    let publish = |value: &str| {
        let mut put = here.command("curl");
        put.args([
            "-qsf",
            "--noproxy",
            "*",
            "--max-time",
            "30",
            "--request",
            "PUT",
            "--data",
            value,
        ]);
        let put = put.arg(format!("http://{}/a", server.control.0)).output().unwrap();
        assert!(put.status.success(), "{put:?}");
    };
    publish("before");
    let mut stream = there.command("curl");
    stream.args(["-qsN", "--noproxy", "*", "--header", "Accept: text/event-stream"]);
    stream.arg(format!("http://{}/a", server.public.0)).stdout(Stdio::piped());
    let stream = Child::spawn(&mut stream);
    let heard = |value: &str| stream.out().contains(&format!("data: {value}\n")).then_some(());
    eventually("the value is there", || heard("before"));

    // The server sends its frames to a station that does not exist: they are lost in silence.
    here.ip(&format!("neigh replace {PUBLISHER} lladdr 02:00:00:00:00:01 dev cable"));
    publish("while it was away");
    std::thread::sleep(AWAY);
    assert!(heard("while it was away").is_none());
    here.ip(&format!("neigh del {PUBLISHER} dev cable"));
    let back = Instant::now();
    eventually("it goes on", || heard("while it was away"));
    let silent = back.elapsed();
    println!("silent for {silent:?} after the network was back");
    assert!(silent < Duration::from_secs(5), "{silent:?}");
}
