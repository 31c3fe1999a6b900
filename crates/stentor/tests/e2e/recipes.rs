//! The recipes of `docs/operating.md`, run as they stand on the page.
//!
//! A test takes the fenced block out of the page and gives it to the real program. It replaces
//! addresses, ports and paths of files, and nothing else; a text to replace that is not there fails
//! the test. That shows a recipe that no longer works, or that a test no longer covers.

mod outages;
mod proxies;
mod renewal;

use crate::support::{
    Child, PATIENCE, TempDir, Url, curl, eventually, free_address, tool, write_pair,
};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The one fenced block of `docs/operating.md` that contains `mark`.
#[track_caller]
fn recipe(mark: &str) -> String {
    recipe_of(include_str!("../../../../docs/operating.md"), mark)
}

/// The one fenced block of a page that contains `mark`.
#[track_caller]
fn recipe_of(page: &str, mark: &str) -> String {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let found: Vec<&str> = blocks.filter(|block| block.contains(mark)).collect();
    assert_eq!(found.len(), 1, "recipes on the page with '{mark}'");
    let (_, lines) = found[0].split_once('\n').expect("a fence ends its line");
    format!("{lines}\n")
}

/// The recipe with other addresses, ports and paths.
#[track_caller]
fn with(recipe: &str, replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(recipe.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the recipe has no '{from}':\n{text}");
        text.replace(from, to)
    })
}

/// Writes a new certificate for this host, and its key. Returns their texts.
fn write_certificate(certificate: &Path, key: &Path) -> (String, String) {
    write_pair(&["localhost", "127.0.0.1", "127.0.0.2"], certificate, key)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nginx,
    HaProxy,
}

/// A proxy that runs its recipe.
struct Proxy {
    child: Child,
    address: SocketAddr,
    dir: TempDir,
}

impl Proxy {
    /// In front of a server, which need not be there yet. `None` if the host has no such proxy.
    fn start(kind: Kind, server: Url) -> Option<Proxy> {
        let program = match kind {
            Kind::Nginx => tool("nginx")?,
            Kind::HaProxy => tool("haproxy")?,
        };
        let dir = TempDir::new();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        let (signed, private) = write_certificate(&certificate, &key);
        fs::write(dir.path().join("both.pem"), signed + &private).unwrap();
        let address = free_address();
        let mut command = match kind {
            Kind::Nginx => nginx(&program, dir.path(), address, server),
            Kind::HaProxy => haproxy(&program, dir.path(), address, server),
        };
        Some(Proxy::spawn(&mut command, address, dir))
    }

    fn spawn(command: &mut Command, address: SocketAddr, dir: TempDir) -> Proxy {
        let mut child = Child::spawn(command);
        eventually("the proxy listens", || {
            assert!(child.is_running(), "{}", child.err());
            TcpStream::connect(address).ok()
        });
        Proxy { child, address, dir }
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.address.port())
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    /// Runs curl over HTTP/2, and returns the status, the type and the body.
    #[track_caller]
    fn curl(&self, path: &str, args: &[&str]) -> String {
        self.try_curl(path, args).unwrap_or_else(|why| panic!("{why} {}", self.child.err()))
    }

    /// The same, or what curl says of a connection that broke.
    fn try_curl(&self, path: &str, args: &[&str]) -> Result<String, String> {
        let certificate = self.certificate();
        let form = "%{http_version} %{http_code} %{content_type}\\n";
        let fixed = ["--cacert", certificate.to_str().unwrap(), "--write-out", form];
        let output = curl(&[&fixed[..], args, &[&self.url(path)]].concat()).expect("curl is there");
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Runs curl until the response ends or this handle is dropped.
    fn curl_on(&self, path: &str, args: &[&str]) -> Child {
        let mut command = Command::new("curl");
        // Without a limit of time, with which curl 7.88 forgets to read while it waits for input.
        command.args(["-q", "-sS", "-N", "--noproxy", "*", "--cacert"]);
        command.arg(self.certificate()).args(args).arg(self.url(path));
        Child::spawn(command.stdin(Stdio::piped()))
    }

    /// Reads its configuration again, and waits until new workers serve.
    fn reload(&mut self, kind: Kind) {
        let before = self.workers();
        let has_new = |workers: Vec<u32>| workers.iter().any(|worker| !before.contains(worker));
        let deadline = Instant::now() + PATIENCE;
        while !has_new(self.workers()) {
            let is_in_time = self.child.is_running() && Instant::now() < deadline;
            assert!(is_in_time, "{kind:?} starts no new worker: {}", self.child.err());
            // A master that is busy with the reload before may miss the signal.
            self.child.signal(if kind == Kind::Nginx { "HUP" } else { "USR2" });
            let patience = Instant::now() + Duration::from_secs(2);
            while !has_new(self.workers()) && Instant::now() < patience {
                thread::sleep(Duration::from_millis(10));
            }
        }
        eventually("the proxy listens again", || TcpStream::connect(self.address).ok());
    }

    fn workers(&self) -> Vec<u32> {
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.unwrap_or_default();
        children.split_whitespace().map(|id| id.parse().expect("the id of a process")).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // A master that is killed leaves its workers behind.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let deadline = Instant::now() + PATIENCE;
        while self.child.is_running() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// nginx with the recipe among its sites, as Debian's own configuration includes it.
fn nginx(program: &Path, dir: &Path, address: SocketAddr, server: Url) -> Command {
    let path = |name: &str| dir.join(name).display().to_string();
    let site = with(
        &recipe("# /etc/nginx/conf.d/stentor.conf"),
        &[
            ("listen 443 ", &format!("listen {address} ")),
            ("server 127.0.0.1:8080;", &format!("server {};", server.0)),
            ("/etc/nginx/tls/fullchain.pem", &path("cert.pem")),
            ("/etc/nginx/tls/privkey.pem", &path("key.pem")),
        ],
    );
    fs::write(dir.join("stentor.conf"), site).unwrap();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let bodies = kinds.map(|kind| format!("{kind}_temp_path {};\n", path(kind))).concat();
    let main = format!(
        "daemon off;\nworker_processes 1;\nerror_log stderr warn;\npid {};\n\
         events {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\n{bodies}include {};\n}}\n",
        path("nginx.pid"),
        path("stentor.conf")
    );
    fs::write(dir.join("nginx.conf"), main).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(dir.join("nginx.conf"));
    command
}

fn haproxy(program: &Path, dir: &Path, address: SocketAddr, server: Url) -> Command {
    let configuration = with(
        &recipe("# /etc/haproxy/haproxy.cfg"),
        &[
            ("bind :443 ", &format!("bind {address} ")),
            ("server stentor 127.0.0.1:8080", &format!("server stentor {}", server.0)),
            ("/etc/haproxy/tls/example.com.pem", dir.join("both.pem").to_str().unwrap()),
        ],
    );
    haproxy_of(program, dir, &configuration)
}

/// HAProxy as systemd starts it: a master that starts a worker for each configuration.
fn haproxy_of(program: &Path, dir: &Path, configuration: &str) -> Command {
    fs::write(dir.join("haproxy.cfg"), configuration).unwrap();
    let mut command = Command::new(program);
    command.args(["-W", "-db", "-f"]).arg(dir.join("haproxy.cfg"));
    command
}
