//! The load generator on servers that nobody here has written: nginx, and nchan within it.

use super::{Run, bench};
use crate::support::{Child, TempDir, eventually, free_address, missing, tool};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;

/// An nginx in one process, with nchan if that was asked for. It ends with its handle.
pub(super) struct Nginx {
    child: Child,
    /// `http://` or `https://`, and where it listens.
    pub(super) url: String,
    _dir: TempDir,
}

impl Nginx {
    /// One that says "ok"; none if it is not installed.
    pub(super) fn plain() -> Option<Nginx> {
        Nginx::start(None, OK)
    }

    /// One with these locations, that speaks TLS with the certificate and key in these files.
    pub(super) fn secured(
        module: Option<&str>,
        locations: &str,
        certificate: &Path,
        key: &Path,
    ) -> Option<Nginx> {
        let (certificate, key) = (certificate.display(), key.display());
        let settings = format!("ssl_certificate {certificate};\nssl_certificate_key {key};\n");
        Nginx::listening(module, "ssl", &format!("{settings}{locations}"))
    }

    fn start(module: Option<&str>, locations: &str) -> Option<Nginx> {
        Nginx::listening(module, "", locations)
    }

    fn listening(module: Option<&str>, how: &str, locations: &str) -> Option<Nginx> {
        let nginx = tool("nginx")?;
        let module = match module {
            Some(name) if Path::new(MODULES).join(name).is_file() => {
                format!("load_module {MODULES}/{name};\n")
            }
            Some(_) => return missing("libnginx-mod-nchan"),
            None => String::new(),
        };
        let dir = TempDir::new();
        let address = free_address();
        let out = dir.path().display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {out}/{kind};\n"))
            .concat();
        let config = format!(
            "{module}daemon off;\nmaster_process off;\npid {out}/pid;\nerror_log stderr warn;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\naccess_log off;\nkeepalive_requests 1000000;\n{paths}\
             server {{ listen {address} {how} backlog=4096;\n{locations}\n}}\n}}\n"
        );
        let file = dir.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut child = Child::spawn(Command::new(nginx).args(["-e", "stderr", "-c"]).arg(file));
        eventually("nginx listens", || {
            assert!(child.is_running(), "{}", child.err());
            TcpStream::connect(address).ok()
        });
        let scheme = if how.is_empty() { "http" } else { "https" };
        Some(Nginx { child, url: format!("{scheme}://{address}"), _dir: dir })
    }

    /// Runs a line in which `URL` stands for its address, and `PID` for its process.
    #[track_caller]
    pub(super) fn bench(&self, line: &str) -> Run {
        bench(&line.replace("URL", &self.url).replace("PID", &self.child.id().to_string()))
    }
}

const MODULES: &str = "/usr/lib/nginx/modules";

/// It says "ok".
pub(super) const OK: &str = "location / { return 200 'ok'; }";

pub(super) const NCHAN_MODULE: &str = "ngx_nchan_module.so";

pub(super) const NCHAN: &str = "
    location /sub {
        nchan_subscriber;
        nchan_channel_id bench;
        nchan_subscriber_first_message newest;
    }
    location /pub {
        nchan_publisher http;
        nchan_channel_id bench;
        nchan_message_buffer_length 100;
    }";

#[test]
fn nginx_answers_requests() {
    let Some(nginx) = Nginx::plain() else { return };
    for flags in ["--pipeline 8", "--close", "--close --rst", "--rate 2000", "--threads 3"] {
        let run = nginx.bench(&format!("get URL/a --requests 500 --connections 6 {flags}")).fine();
        assert_eq!((run.count("requests/completed"), run.status(200)), (500, 500), "{flags}");
    }
    let run = nginx.bench("hold URL/a --connections 100 --duration 100ms --pid PID").fine();
    assert_eq!(run.count("connections/open_at_end"), 100);
    assert!(run.count("memory/process_resident_bytes") > 1 << 20, "{run:?}");
}

#[test]
fn nchan_pushes_in_all_three_ways() {
    thread::scope(|scope| {
        for role in ["sse", "ws", "poll"] {
            scope.spawn(move || {
                let start = || Nginx::start(Some(NCHAN_MODULE), NCHAN);
                let Some(mut nchan) = start() else { return };
                let flags = "--connections 30 --messages 20 --rate 50 --pid PID";
                let line = format!("push URL/sub --publish URL/pub --as {role} {flags}");
                let mut run = nchan.bench(&line);
                // It may have broken, or another program has had its port.
                if run.err.contains("Connection refused") {
                    nchan = start().unwrap();
                    run = nchan.bench(&line);
                }
                let run = run.fine();
                let count = |name: &str| run.count(&format!("delivery/{name}"));
                assert_eq!((count("published"), count("readers_complete")), (20, 30), "{role}");
                assert_eq!((count("expected"), count("delivered")), (600, 600), "{role}");
                assert_eq!((count("missing"), count("duplicates")), (0, 0), "{role}");
                let flags = "--connections 30 --duration 200ms";
                let run = nchan.bench(&format!("hold URL/sub --as {role} {flags}")).fine();
                assert_eq!(run.count("connections/open_at_end"), 30, "{role}");
            });
        }
    });
}
