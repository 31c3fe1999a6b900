//! The clients among the commands over TLS, on an nginx that speaks it: by itself, with nchan in
//! it, and in front of a Stentor.

use super::peers::{NCHAN, NCHAN_MODULE, Nginx, OK};
use super::{bench, server_with_value, url};
use crate::support::{Child, Server, Signer, eventually, python_of_host, run, stentor};
use std::fs;
use std::thread;

/// An nginx with a good certificate.
fn nginx_of(signer: &Signer, module: Option<&str>, locations: &str) -> Option<Nginx> {
    let (certificate, key) = signer.sign("127.0.0.1", 2100);
    Nginx::secured(module, locations, &certificate, &key)
}

#[test]
fn requests_are_answered_over_tls_in_every_way() {
    let signer = Signer::new();
    // Large enough for several records, and to come in parts.
    let large = signer.dir().join("large");
    fs::write(&large, "x".repeat(60_000)).unwrap();
    let file = large.display();
    for versions in ["TLSv1.3", "TLSv1.2"] {
        let locations =
            format!("ssl_protocols {versions};\n{OK}\nlocation = /large {{ alias {file}; }}");
        let Some(nginx) = nginx_of(&signer, None, &locations) else { return };
        let trust = ["--insecure".to_owned(), format!("--ca {}", signer.ca())];
        for (nth, flags) in
            ["--pipeline 8", "--close", "--close --rst", "--rate 2000", "--threads 3"]
                .into_iter()
                .enumerate()
        {
            let trust = &trust[nth % 2];
            let flags = format!("--requests 300 --connections 6 {trust} {flags}");
            let run = nginx.bench(&format!("get URL/a {flags}")).fine();
            assert_eq!((run.count("requests/completed"), run.status(200)), (300, 300), "{flags}");
            assert!(run.report["url"].as_str().unwrap().starts_with("https://"), "{flags}");
        }
        let run =
            nginx.bench("get URL/large --requests 100 --connections 3 --insecure --pipeline 4");
        let run = run.fine();
        assert_eq!(run.status(200), 100, "{versions}");
        assert!(run.count("bytes/received") > 6_000_000, "{run:?}");
        // More than a socket takes at once, so that records are cut.
        let long = "x".repeat(7_000);
        let flags = format!("--connections 2 --pipeline 1000 --insecure --header X:{long}");
        let run = nginx.bench(&format!("get URL/a --requests 4000 {flags}")).fine();
        assert_eq!((run.status(200), versions), (4_000, versions));
        assert!(run.count("bytes/sent") > 28_000_000, "{run:?}");
        let line = "hold URL/a --connections 100 --duration 100ms --pid PID --insecure";
        let run = nginx.bench(line).fine();
        assert_eq!(run.count("connections/open_at_end"), 100, "{versions}");
    }
}

#[test]
fn nchan_pushes_over_tls_in_all_three_ways() {
    thread::scope(|scope| {
        for role in ["sse", "ws", "poll"] {
            scope.spawn(move || {
                let signer = Signer::new();
                let Some(nchan) = nginx_of(&signer, Some(NCHAN_MODULE), NCHAN) else { return };
                let flags =
                    format!("--connections 30 --messages 20 --rate 50 --ca {}", signer.ca());
                let line = format!("push URL/sub --publish URL/pub --as {role} {flags}");
                let run = nchan.bench(&line).fine();
                let count = |name: &str| run.count(&format!("delivery/{name}"));
                assert_eq!((count("published"), count("readers_complete")), (20, 30), "{role}");
                assert_eq!((count("expected"), count("delivered")), (600, 600), "{role}");
                assert_eq!((count("missing"), count("duplicates")), (0, 0), "{role}");
            });
        }
    });
}

/// What is sealed and not sent is bounded as what is not is.
#[test]
fn a_server_that_reads_nothing_is_given_up() {
    let Some(mut command) = python_of_host("tls_deaf.py") else { return };
    let signer = Signer::new();
    let (certificate, key) = signer.sign("127.0.0.1", 2100);
    let server = Child::spawn(command.arg(certificate).arg(key));
    let port = eventually("it listens", || server.out().trim().parse::<u16>().ok());
    let url = format!("https://127.0.0.1:{port}/a");
    let run = bench(&format!("hold {url} --as ws --connections 1 --duration 20s --insecure"));
    assert_eq!(run.errors(), [("the server does not read", 1)]);
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let signer = Signer::new();
    let (ca, other_ca) = (signer.ca(), Signer::new());
    fs::write(other_ca.dir().join("ca.pem"), {
        let (stranger, _) = other_ca.sign("stranger", 2100);
        fs::read(stranger).unwrap()
    })
    .unwrap();
    let other_ca = other_ca.ca();
    let cases = [
        ("127.0.0.1", 2100, &other_ca, "its certificate is signed by nobody that is trusted here"),
        ("127.0.0.1", 2024, &ca, "its certificate has expired"),
        ("a.example", 2100, &ca, "its certificate is for a.example and not for 127.0.0.1"),
    ];
    for (name, until, ca, expected) in cases {
        let (certificate, key) = signer.sign(name, until);
        let Some(nginx) = Nginx::secured(None, OK, &certificate, &key) else { return };
        let hint = "(--ca FILE: whom to trust; --insecure: anybody)";
        let tip = "\n\n  tip: --ca FILE says whom to trust, --insecure trusts anybody\n";
        let flags = "--connections 1 --duration 100ms";
        let run = nginx.bench(&format!("hold URL/a {flags} --ca {ca}")).with_status(1);
        let (kind, count) = run.errors()[0];
        assert_eq!(count, 1);
        assert!(kind.starts_with(&format!("TLS: {expected}")) && kind.ends_with(hint), "{kind}");
        let run = nginx.bench(&format!("hold URL/a {flags} --insecure"));
        assert_eq!(run.fine().count("connections/open_at_end"), 1);

        let server = nginx.url.as_str();
        let sub = run_with(&["sub", "/a", "--server", server, "--ca", ca]);
        let publish = run_with(&["pub", "/a", "x", "--control", server, "--ca", ca]);
        let status = run_with(&["status", "--server", server, "--ca", ca]);
        for said in [sub, publish, status] {
            assert!(said.contains(expected) && said.ends_with(tip), "{said}");
        }
    }
    let no_file = run(&["pub", "/a", "x", "--control", "https://127.0.0.1:1", "--ca", "/none"]);
    assert_eq!(no_file.code, Some(2));
    assert!(no_file.err.contains("/none: No such file"), "{}", no_file.err);
}

/// What a command says that fails.
#[track_caller]
fn run_with(args: &[&str]) -> String {
    let said = run(args);
    assert_eq!(said.code, Some(1), "{args:?}: {}", said.err);
    said.err
}

#[test]
fn who_does_not_speak_tls_is_no_server_of_it() {
    let (_server, plain) = server_with_value("");
    let https = plain.replace("http://", "https://");
    let run = bench(&format!("hold {https} --connections 2 --duration 100ms --insecure"));
    let run = run.with_status(1);
    let (kind, count) = run.errors()[0];
    assert_eq!(count, 2);
    assert!(
        kind == "TLS: it does not speak TLS there"
            || kind == "TLS: the server closes during the handshake",
        "{kind}"
    );
}

/// An nginx in front of a server, by TLS: its readers on one path, its publishers on another.
fn in_front_of(signer: &Signer, server: &Server) -> Option<(Nginx, Nginx)> {
    let pass = |to: &str| {
        format!(
            "location / {{ proxy_pass {to}; proxy_buffering off; proxy_request_buffering off;\n\
             proxy_http_version 1.1; proxy_set_header Connection ''; }}"
        )
    };
    let public = nginx_of(signer, None, &pass(&url(server.public, "")))?;
    let control = nginx_of(signer, None, &pass(&url(server.control, "")))?;
    Some((public, control))
}

#[test]
fn sub_and_pub_speak_tls() {
    let signer = Signer::new();
    let server = Server::start();
    let Some((public, control)) = in_front_of(&signer, &server) else { return };
    let (public, control) = (public.url.as_str(), control.url.as_str());
    let ca = signer.ca();
    let publish = |text: &str| {
        let said = run(&["pub", "/a", text, "--control", control, "--ca", &ca]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    };
    publish("101:99");
    let mut follower = Child::spawn(&mut stentor(["sub", "/a", "--server", public, "--insecure"]));
    let lines = |count: usize| {
        eventually("lines are printed", || {
            let out = follower.out();
            (out.lines().count() == count).then_some(out)
        })
    };
    lines(1);
    publish("103:99");
    assert_eq!(lines(2), "101:99\n103:99\n");
    let status = run(&["status", "--server", control, "--ca", &ca]);
    assert!(status.code == Some(0) && status.out.contains("connections"), "{status:?}");
    assert!(follower.is_running());
}
