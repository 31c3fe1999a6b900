//! `stentor demo`: the server with real prices replayed as live quotes, and a page to watch them.
//!
//! The demo is an ordinary publisher that happens to live in the server's process: a thread
//! publishes each day's quotes, and the page is a file of a directory that is served. Visitors
//! publish too, to one topic: the control listener refuses pages, and rightly, so the demo has the
//! public one take texts for a guestbook, from this page alone.

mod certificate;
mod prices;
mod replay;
mod site;

use std::io::{Write, stdout};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use clap::Args;
use stentor_config::{LogFormat, Mount, Settings, parse_moment};
use stentor_hub::{Pattern, Rule};
use stentor_process::{BoundListener, Server};
use stentor_server::PUBLIC;
use stentor_wire::target::TopicName;
use tracing::{Level, error};

use crate::args::{ServerFlags, usage};
use crate::lifecycle::{self, Log, Signals, Told};
use crate::{Failure, has_colours};
use prices::Day;
use site::Site;

/// Run the server with real prices replayed as live quotes, and a page to watch them
///
/// Daily prices of five companies, 2000 to 2013, one trading day after the other, at /quotes/aapl,
/// /quotes/fb, /quotes/goog, /quotes/ibm and /quotes/msft; the page is at /demo/.
///
/// With --data it goes on where it was, and the page's guestbook is still there, however it ended.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Trading days replayed per second
    #[arg(long, value_name = "DAYS", default_value = "2", value_parser = parse_speed)]
    speed: f64,
    /// The day to begin with; from 2012-05-18 on all five trade
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "2012-05-18", value_parser = parse_date)]
    from: String,
    /// Speak TLS, with a certificate that is made for this demo
    #[arg(long, conflicts_with = "tls_cert")]
    tls: bool,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let days = prices::days(&args.from).map_err(Failure::Failed)?;
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        return Err(usage(format!("there are no prices from {} on: they end before", args.from)));
    };
    if !args.server.settings(None)?.follow.leaders.is_empty() {
        return Err(usage("the demo publishes, and a server that follows another one does not"));
    }
    lifecycle::start_log()?;
    Log::to_stderr(Level::WARN, LogFormat::Text);
    let mut signals = Signals::register()?;
    let site = Site::write().map_err(|error| {
        let directory = std::env::temp_dir();
        let directory = directory.display();
        Failure::Failed(format!("the demo's page cannot be written to {directory}: {error}"))
    })?;
    let server = lifecycle::start(settings(args, &site)?)?;
    let trust = args.tls.then(|| site.certificate());
    let scene = Scene { days: days.len(), first, last, speed: args.speed, trust };
    let introduction = introduction(&base_url(&server), site.written_at(), &scene);
    // Standard output may be a full pipe, and this thread waits for signals.
    thread::spawn(move || greet(&introduction));

    let (stop, stopped) = mpsc::channel();
    let pause = Duration::from_secs_f64(1.0 / args.speed);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The receiver moves in: it must not be shared.
            let stopped = stopped;
            if let Err(reason) = replay::run(&server, &days, pause, &stopped) {
                error!("the replay has stopped: {reason}");
            }
        });
        loop {
            match signals.wait() {
                Told::Stop => break,
                Told::Reload | Told::Upgrade => {}
                Told::Reopen => lifecycle::reopen(server.log_files().as_ref()),
            }
        }
        drop(stop);
    });
    lifecycle::stop(server, signals)
}

/// What the flags say, and what the page needs.
fn settings(args: &DemoArgs, site: &Site) -> Result<Settings, Failure> {
    let mut settings = args.server.settings(None)?;
    if args.tls {
        let made = certificate::write(&site.certificate(), &site.key(), stentor_io::unix_s());
        made.map_err(|reason| {
            Failure::Failed(format!("no certificate can be made for the demo: {reason}"))
        })?;
        settings.tls.cert = Some(site.certificate());
        settings.tls.key = Some(site.key());
        settings.validate()?;
    }
    settings.mounts.push(Mount::new("/demo", site.root()));
    let quotes = Pattern::parse("/quotes/*").map_err(|it| Failure::Failed(it.into()))?;
    // As many as a chart has room for.
    settings.topics.push(Rule { history: 90, ..Rule::new(quotes) });
    settings.home = Some("/demo/");
    let guestbook = TopicName::parse("/demo/guestbook");
    settings.guestbook = Some(guestbook.map_err(|reason| Failure::Failed(reason.into()))?);
    Ok(settings)
}

/// What the introduction speaks of.
struct Scene<'a> {
    days: usize,
    first: &'a Day,
    last: &'a Day,
    speed: f64,
    /// The certificate that curl has to be told of.
    trust: Option<PathBuf>,
}

/// What is printed at the start: where to look, and what to try. `*` marks what stands out.
fn introduction(base: &str, written_at: SystemTime, scene: &Scene<'_>) -> String {
    let Scene { days, first, last, speed, trust } = scene;
    let (curl, note) = match trust {
        Some(file) => (
            format!("curl --cacert {}", file.display()),
            "         its certificate was made for this demo: a browser warns of it, and\n         \
             curl is told to trust it by --cacert\n",
        ),
        None => ("curl".to_owned(), ""),
    };
    let (first, last) = (&first.date, &last.date);
    let written_at = httpdate::fmt_http_date(written_at);
    format!(
        "\
*Stentor* replays {days} days of real prices ({first} to {last}), {speed} a second.

  *Watch*  {base}/demo/
         in two windows: what you publish on the page in one, both hear
{note}
Try, in another terminal:

  *A value*: a quote as it is now, with its entity tag.
    {curl} -i {base}/quotes/aapl

  *A stream*: every quote as it comes; Ctrl-C ends it.
    {curl} -N -H 'Accept: text/event-stream' {base}/quotes/aapl

  *A conditional poll*: this page has not changed, so expect 304 and no body.
    {curl} -i -H 'If-Modified-Since: {written_at}' {base}/demo/

  *Many values* in one request: expect one JSON object, name by name.
    {curl} '{base}/-/values?prefix=/quotes/&names=aapl,msft'

Ctrl-C ends it.
"
    )
}

/// Prints the introduction; bold on a terminal, plain elsewhere. A closed output is no reason not
/// to serve.
fn greet(text: &str) {
    let mut out = stdout().lock();
    let is_styled = has_colours(&out);
    let mut bold = false;
    for (i, piece) in text.split('*').enumerate() {
        if i > 0 && is_styled {
            bold = !bold;
            let _ = out.write_all(if bold { b"\x1b[1m" } else { b"\x1b[0m" });
        }
        let _ = out.write_all(piece.as_bytes());
    }
    let _ = out.flush();
}

/// The URL under which this host reaches the public listener.
fn base_url(server: &Server) -> String {
    let public = server.listeners().iter().find(|listener| listener.kind() == PUBLIC);
    let address = public.and_then(|listener| listener.address.tcp());
    let address = reachable(address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 80))));
    let is_tls = public.is_some_and(BoundListener::is_tls);
    format!("{}://{address}", if is_tls { "https" } else { "http" })
}

/// "Every address" is none a browser can open: loopback is one of them.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn parse_speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.01..=10_000.0).contains(&speed) => Ok(speed),
        _ => Err("a speed is a number of days per second from 0.01 to 10000".to_owned()),
    }
}

/// A day without trade is as good a beginning as any, if there is such a day.
fn parse_date(text: &str) -> Result<String, String> {
    let form =
        |(i, b): (usize, u8)| if matches!(i, 4 | 7) { b == b'-' } else { b.is_ascii_digit() };
    if text.len() != 10 || !text.bytes().enumerate().all(form) {
        return Err("a date is written YYYY-MM-DD".to_owned());
    }
    parse_moment(text).map(|_| text.to_owned()).map_err(|_| format!("there is no day {text}"))
}

const EXAMPLES: &str = "\
Examples:
  stentor demo
  stentor demo --speed 20 --from 2008-09-01     the autumn of 2008, quickly
  stentor demo --data /tmp/stentor-demo         end it, even by kill -9, and start it again
  stentor demo --tls                            by https, with a certificate made for it
  stentor demo --listen 127.0.0.1:9000          if another program has the port";

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Result<DemoArgs, clap::Error> {
        let line = format!("stentor demo{line}");
        Cli::try_parse_from(line.split(' ')).map(|cli| match cli.command {
            Command::Demo(args) => args,
            other => panic!("not demo: {other:?}"),
        })
    }

    #[test]
    fn arguments() {
        let args = parse("").unwrap();
        assert_eq!((args.speed, args.from.as_str()), (2.0, "2012-05-18"));
        let args = parse(" --speed 0.5 --from 2000-03-01").unwrap();
        assert_eq!((args.speed, args.from.as_str()), (0.5, "2000-03-01"));
        for bad in ["0", "-1", "nan", "inf", "x", "10001"] {
            assert!(parse(&format!(" --speed {bad}")).is_err(), "{bad}");
        }
        for bad in ["2012", "2012/05/18", "18.05.2012", "2012-05-1x"] {
            assert!(parse(&format!(" --from {bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_date_after_the_last_price_is_a_mistake_of_the_caller() {
        let args = parse(" --from 2013-03-02").unwrap();
        assert!(matches!(run(&args), Err(Failure::Usage(_))));
    }

    #[test]
    fn the_introduction_names_what_can_be_tried() {
        let days = prices::days("2012-05-18").unwrap();
        let mut scene =
            Scene { days: days.len(), first: &days[0], last: &days[1], speed: 2.0, trust: None };
        let text = introduction("http://127.0.0.1:8080", UNIX_EPOCH, &scene);
        assert!(text.contains("(2012-05-18 to 2012-05-21), 2 a second."), "{text}");
        assert!(text.contains("1970 00:00:00 GMT' http://127.0.0.1:8080/demo/"), "{text}");
        assert_eq!(text.matches("    curl ").count(), 4);
        assert_eq!(text.matches('*').count() % 2, 0, "every mark has its end");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(!text.contains("cert"), "{text}");
        scene.trust = Some("/tmp/c.pem".into());
        let text = introduction("https://127.0.0.1:8080", UNIX_EPOCH, &scene);
        assert_eq!(text.matches("    curl --cacert /tmp/c.pem ").count(), 4, "{text}");
        assert_eq!(text.matches('*').count() % 2, 0, "every mark has its end");
    }

    #[test]
    fn every_address_is_shown_as_one_that_can_be_opened() {
        for (bound, shown) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("10.0.0.7:80", "10.0.0.7:80"),
        ] {
            assert_eq!(reachable(bound.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn the_page_asks_for_every_symbol() {
        let days = prices::days("2012-05-18").unwrap();
        for quote in &days[0].quotes {
            assert!(site::PAGE.contains(&format!("{}: \"", quote.symbol.to_lowercase())));
        }
    }
}
