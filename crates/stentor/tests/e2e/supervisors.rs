//! A server under supervisors that wait for their child and listen to no notification. After an
//! upgrade their child stays as the parent that waits, so no supervisor notices. A stop of the
//! supervisor drains the server. systemd is tried by `cargo xtask dist --check`.

use crate::support::{EventStream, PATIENCE, Said, Server, TempDir, eventually, run, tool};
use std::os::unix::net::UnixDatagram;
use std::process::Command;

const READERS: usize = 50;

/// Has a server upgraded three times under readers, and then its supervisor stopped. `prelude` is
/// shell that becomes the supervisor of the command in `"$0" "$@"`.
fn upgrade_under(prelude: &str, stop: impl Fn(u32)) {
    let mut server = Server::with(prelude, "drain = '5s'", &["--workers", "2"]);
    let (supervisor, address) = (server.child.id(), format!("http://{}", server.control.0));
    server.publish("/a", "0");
    let mut readers: Vec<EventStream> =
        (0..READERS).map(|_| EventStream::open(server.public, "/a", "")).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.event().data, "0"));
    for round in 1..=3 {
        let said: Said = run(&["upgrade", "--server", &address]);
        assert!(said.out.starts_with("upgraded: process "), "{said:?} {}", server.child.err());
        let value = round.to_string();
        server.publish("/a", &value);
        readers.iter_mut().for_each(|reader| assert_eq!(reader.event().data, value));
    }
    assert!(server.child.is_running(), "the supervisor has ended: {}", server.child.err());
    let starts = |server: &Server| server.child.err().matches("INFO ready: ").count();
    eventually("the last one is ready", || (starts(&server) >= 4).then_some(()));
    assert_eq!(starts(&server), 4, "{}", server.child.err());
    stop(supervisor);
    eventually("it drains", || server.child.err().contains("INFO stopped").then_some(()));
    let log = server.child.err();
    assert!(!log.contains("ended at once"), "{log}");
    server.child.wait();
}

fn terminate(process: &str) {
    let status = Command::new("kill").args(["-TERM", "--", process]).status().unwrap();
    assert!(status.success(), "{process}");
}

fn terminate_process(process: u32) {
    terminate(&process.to_string());
}

/// `WatchdogSec=` in a unit of systemd: a process that says nothing is ended.
#[test]
fn a_watchdog_hears_of_each_process() {
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let prelude =
        format!("export NOTIFY_SOCKET='{}' WATCHDOG_USEC=200000 WATCHDOG_PID=1;", path.display());
    let mut server = Server::with(&prelude, "", &[]);
    let hears_three = || {
        let mut bytes = [0; 1_000];
        let told = std::iter::from_fn(|| socket.recv(&mut bytes).ok().map(|n| bytes[..n].to_vec()));
        told.filter(|text| text.starts_with(b"WATCHDOG=1")).take(3).count() == 3
    };
    assert!(hears_three(), "{}", server.child.err());
    let said: Said = run(&["upgrade", "--server", &format!("http://{}", server.control.0)]);
    assert!(said.out.starts_with("upgraded: process "), "{said:?}");
    server.child.went_over_to(server.figure("process") as u32);
    assert!(hears_three(), "{}", server.child.err());
    server.child.stop();
}

#[test]
fn tini_does_not_notice_an_upgrade() {
    let Some(tini) = tool("tini") else { return };
    upgrade_under(&format!("exec {} -- \"$0\" \"$@\";", tini.display()), terminate_process);
}

/// Shell that writes the command to `$dir/run`, in a directory beside the configuration.
const WRITES_RUN: &str = "dir=$(dirname \"$3\")/service; mkdir \"$dir\"; \
    { echo '#!/bin/sh'; printf 'exec'; printf \" '%s'\" \"$0\" \"$@\"; echo; } > \"$dir/run\"; \
    chmod +x \"$dir/run\";";

#[test]
fn runit_does_not_notice_an_upgrade() {
    let Some(runsv) = tool("runsv") else { return };
    let prelude = format!("{WRITES_RUN} exec {} \"$dir\";", runsv.display());
    upgrade_under(&prelude, terminate_process);
}

#[test]
fn supervisord_does_not_notice_an_upgrade() {
    let Some(supervisord) = tool("supervisord") else { return };
    let prelude = format!(
        "{WRITES_RUN} printf '[supervisord]\nnodaemon=true\nlogfile=/dev/null\n\
         logfile_maxbytes=0\npidfile=%s/pid\n[program:stentor]\ncommand=%s/run\n\
         stderr_logfile=/dev/stderr\nstderr_logfile_maxbytes=0\nstopwaitsecs=30\n' \
         \"$dir\" \"$dir\" > \"$dir/conf\"; exec {} -c \"$dir/conf\" > /dev/null;",
        supervisord.display()
    );
    upgrade_under(&prelude, terminate_process);
}

/// The shell itself does not pass a signal on, so it goes to all of its group, as from a terminal.
#[test]
fn a_shell_does_not_notice_an_upgrade() {
    let Some(setsid) = tool("setsid") else { return };
    let waits = "'\"$0\" \"$@\"; exit $?'";
    let prelude = format!("exec {} sh -c {waits} \"$0\" \"$@\";", setsid.display());
    upgrade_under(&prelude, |shell| terminate(&format!("-{shell}")));
}
