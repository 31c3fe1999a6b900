//! `stentor sub` against a server that does what a test tells it to.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::thread::JoinHandle;

use clap::Parser;

use super::*;
use crate::args::{Cli, Command};

fn parse(line: &str) -> Result<SubArgs, clap::Error> {
    Cli::try_parse_from(format!("stentor sub {line}").split(' ')).map(|cli| match cli.command {
        Command::Sub(args) => args,
        other => panic!("not sub: {other:?}"),
    })
}

#[test]
fn arguments() {
    let args = parse("/a /b/* --json --latest --since e-1 --server http://h:1").unwrap();
    assert_eq!(args.topics, ["/a", "/b/*"]);
    assert_eq!((args.json, args.latest, args.since.as_deref()), (true, true, Some("e-1")));
    assert_eq!(args.server, BaseUrl::parse("h:1").unwrap());
    for bad in ["", "a", "/a --interval 10", "/a --server ftp://h", "/a --since", "/a --nonsense"] {
        assert_eq!(parse(bad).unwrap_err().exit_code(), 2, "{bad}");
    }
}

#[test]
fn pauses_grow_to_a_bound_and_respect_the_server() {
    let table = [
        (500, 0, 500, 1_000),
        (500, 1, 500, 2_000),
        (500, 40, 500, 30_000),
        (2_417, 0, 2_417, 4_834),
        (30_000, 0, 30_000, 30_001),
    ];
    for (min_ms, attempts, from_ms, below_ms) in table {
        for random in [0, 1, 12_345_678_901, u64::MAX] {
            let pause = pause(Duration::from_millis(min_ms), attempts, random);
            let range = from_ms..below_ms;
            assert!(range.contains(&(pause.as_millis() as u64)), "{min_ms} {attempts}: {pause:?}");
        }
    }
}

/// What one connection is answered, part by part; then it is closed.
type Answer = Vec<Vec<u8>>;

/// Answers as many connections as there are answers, one after the other. Gives the first lines of
/// the requests.
fn serve(answers: Vec<Answer>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            asked.push(read_request(&stream));
            // The reader may have had enough before the end.
            let _ = answer.iter().try_for_each(|part| (&stream).write_all(part));
        }
        asked
    });
    (url, serving)
}

fn read_request(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let first = lines.next().unwrap();
    let fields: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(fields.iter().any(|f| f.eq_ignore_ascii_case("accept: text/event-stream")));
    first
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
                    retry: 1\n\n";

fn stream(body: &str) -> Answer {
    vec![format!("{HEAD}{body}").into_bytes()]
}

fn refusal(status: &str, reason: &str) -> Answer {
    let length = reason.len();
    let head =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    vec![(head + reason).into_bytes()]
}

fn gone() -> Answer {
    refusal("410 Gone", "That is all.\n")
}

/// A message of topic /a as the server sends it.
fn message(seq: u32, data: &str) -> String {
    let envelope = envelope(seq, data);
    format!("id: e-{seq}\ndata: {envelope}\n\n")
}

fn envelope(seq: u32, data: &str) -> String {
    format!("{{\"topic\":\"/a\",\"id\":\"e-{seq}\",\"type\":\"text/plain\",\"data\":{data}}}")
}

/// Standard output or error that can be looked at afterwards.
#[derive(Clone, Default)]
struct Page(Rc<RefCell<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows only what was flushed: without that, a line would wait for the next to push it out.
struct Flushed(Page, Vec<u8>);

impl Write for Flushed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.write_all(&std::mem::take(&mut self.1))
    }
}

/// A run from beginning to end.
struct Told {
    result: Result<(), Failure>,
    out: String,
    err: String,
    asked: Vec<String>,
}

/// Follows with `arguments` a server that gives `answers`.
fn follow(arguments: &str, answers: Vec<Answer>) -> Told {
    let (url, serving) = serve(answers);
    let args = parse(&format!("{arguments} --server {url}")).unwrap();
    let (out, err) = (Page::default(), Page::default());
    let patience =
        Patience { silence_max: Duration::from_secs(20), pause_min: Duration::from_millis(1) };
    let flushed = Flushed(out.clone(), Vec::new());
    let output = EventPrinter::new(BufWriter::new(flushed), err.clone(), args.form(false));
    let result = StreamFollower::new(&args, patience, output, Arc::default()).unwrap().run();
    let err = err.text().replace(&url, "SERVER");
    Told { result, out: out.text(), err, asked: serving.join().unwrap() }
}

impl Told {
    fn failure(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }
}

#[test]
fn values_are_printed_as_they_were_published() {
    let typed = |content_type: &str, data: &str| {
        format!(
            "id: e-1\ndata: {{\"topic\":\"/a\",\"id\":\"e-1\",\"type\":\"{content_type}\",\
             \"data\":{data}}}\n\n"
        )
    };
    let body = [
        typed("text/plain", r#""1:0""#),
        typed("text/plain", r#""say \"hi\" \u00e9\n""#),
        typed("application/json", r#"{"n":1.50}"#),
        typed("text/json", r#"{"base64":"aGk="}"#),
        typed("a/b+JSON; x=y", r#""quoted""#),
        typed("image/png", r#""aGk=""#).replace("\"data\":", "\"data_base64\":"),
        "id: e-2\ndata: {\"topic\":\"/a\",\"id\":\"e-2\",\"type\":\"application/json\",\n\
         data: \"data\":{\"n\":\ndata: 1}}\n\n"
            .to_owned(),
    ];
    let told = follow("/a", vec![stream(&body.concat()), gone()]);
    let expected = "1:0\nsay \"hi\" é\n{\"n\":1.50}\n{\"base64\":\"aGk=\"}\n\"quoted\"\nhi\n\
                    {\"n\":\n1}\n";
    assert_eq!(told.out, expected);
}

const PLAIN: Form = Form::Plain { with_topic: false, is_terminal: false };

#[test]
fn so_many_messages_are_enough() {
    let gap =
        "event: stentor\ndata: {\"gap\":{\"reason\":\"history_trimmed\",\"since\":\"e-1\"}}\n\n";
    let body =
        [gap.to_owned(), message(1, "\"1\""), message(2, "\"2\""), message(3, "\"3\"")].concat();
    let told = follow("/a -n 2", vec![stream(&body)]);
    assert!(told.result.is_ok());
    assert_eq!(told.out, "1\n2\n");
}

#[test]
fn no_line_passes_for_one_of_another_topic() {
    let body = message(1, r#""1\n/b\t2\n""#) + &message(2, r#""""#);
    let told = follow("/a /b", vec![stream(&body), gone()]);
    assert_eq!(told.out, "/a\t1\n/a\t/b\t2\n/a\t\n");
}

#[test]
fn a_terminal_is_shown_no_control_characters() {
    let (out, err) = (Page::default(), Page::default());
    let form = Form::Plain { with_topic: false, is_terminal: true };
    let mut output = EventPrinter::new(out.clone(), err, form);
    let data =
        r#"{"topic":"/a","id":"e-1","type":"x/y","data":"\u001b]0;t\u0007\u009b1m\u00e4\t\n2\r"}"#;
    assert!(output.event(data).is_ok());
    assert_eq!(out.text(), "\\u{1b}]0;t\\u{7}\\u{9b}1m\u{e4}\t\n2\\r\n");
    let (out, err) = (Page::default(), Page::default());
    let mut output = EventPrinter::new(out.clone(), err, Form::Json { is_terminal: true });
    assert!(output.event("{\"data\":\"a\u{9b}\u{7f}\u{e4}\"}").is_ok());
    assert_eq!(out.text(), "{\"data\":\"a\\u009b\\u007f\u{e4}\"}\n");
}

#[test]
fn bytes_are_printed_as_bytes() {
    let (out, err) = (Page::default(), Page::default());
    let mut output = EventPrinter::new(out.clone(), err, PLAIN);
    let data = r#"{"topic":"/a","id":"e-1","type":"x/y","data_base64":"/wA="}"#;
    assert!(output.event(data).is_ok());
    assert_eq!(*out.0.borrow(), b"\xff\0\n");
}

#[test]
fn the_topic_is_told_if_there_may_be_several() {
    for (arguments, line) in
        [("/a", "1\n"), ("/a /b", "/a\t1\n"), ("/*", "/a\t1\n"), ("/x/**", "/a\t1\n")]
    {
        assert_eq!(follow(arguments, vec![stream(&message(1, "\"1\"")), gone()]).out, line);
    }
}

#[test]
fn json_lines_are_what_the_server_sent() {
    let named = message(2, "{\"n\":\ndata: 2}");
    let body = message(1, "\"1\"")
        + &named
        + "event: stentor\ndata: {\"gap\":{\"reason\":\"history_trimmed\",\"since\":\"e-0\"}}\n\n\
           id: e-3\nevent: stentor\ndata: {\"topic\":\"/a\",\"id\":\"e-3\",\"deleted\":true}\n\n";
    let told = follow("/a --json", vec![stream(&body), gone()]);
    let lines = [
        envelope(1, "\"1\""),
        envelope(2, "{\"n\": 2}"),
        "{\"gap\":{\"reason\":\"history_trimmed\",\"since\":\"e-0\"}}".to_owned(),
        "{\"topic\":\"/a\",\"id\":\"e-3\",\"deleted\":true}\n".to_owned(),
    ];
    assert_eq!(told.out, lines.join("\n"));
    assert!(!told.err.contains("lost") && !told.err.contains("deleted"), "{}", told.err);
}

#[test]
fn gaps_and_deletions_are_sentences_on_standard_error() {
    let gap = |data| format!("event: stentor\ndata: {{\"gap\":{data}}}\n\n");
    let body = [
        gap(r#"{"reason":"history_trimmed","since":"e-1"}"#),
        gap(r#"{"reason":"epoch_changed","since":"e-1"}"#),
        gap(r#"{"reason":"cursor_ahead","since":"e-1"}"#),
        gap(r#"{"reason":"rolled_back","since":"e-1"}"#),
        gap(r#"{"reason":"cursor_invalid"}"#),
        gap(r#"{"reason":"too_many_topics","since":"e-1"}"#),
        gap(r#"{"reason":"memory_pressure","since":"e-1"}"#),
        gap(r#"{"reason":"new\nreason"}"#),
        "id: e-3\nevent: stentor\ndata: {\"topic\":\"/a\",\"id\":\"e-3\",\"deleted\":true}\n\n"
            .to_owned(),
    ];
    let told = follow("/a", vec![stream(&body.concat()), gone()]);
    assert_eq!(told.out, "");
    let lines: Vec<&str> = told.err.lines().collect();
    let expected = [
        "messages after e-1 are lost: history is shorter",
        "messages after e-1 are lost: the server has begun anew",
        "messages may be lost: e-1 was not published yet",
        "e-1 is no more: the server ended before it was kept",
        "messages may be lost: what to go on after is no id",
        "messages after e-1 are lost: too many topics to go back for",
        "messages after e-1 are lost: the server is short of memory",
        "messages after the start are lost: new\\nreason",
        "/a was deleted",
    ];
    assert_eq!(lines[..9], expected.map(|text| format!("note: {text}")));
}

#[test]
fn a_stream_goes_on_after_the_last_id() {
    let told = follow(
        "/a /b/* --latest",
        vec![
            stream(&(message(1, "\"1\"") + &message(2, "\"2\""))),
            // Cut off within an event: it was not seen.
            stream("id: e-3\ndata: {\"top"),
            stream(
                &(message(3, "\"3\"")
                    + "event: stentor\ndata: {\"gap\":{\"reason\":\"too_many_topics\"}}\n\n"),
            ),
            gone(),
        ],
    );
    assert_eq!(told.out, "/a\t1\n/a\t2\n/a\t3\n");
    let url = "GET /-/events?topic=/a&topic=/b/*&mode=latest";
    assert_eq!(
        told.asked,
        [
            format!("{url} HTTP/1.1"),
            format!("{url}&since=e-2 HTTP/1.1"),
            format!("{url}&since=e-2 HTTP/1.1"),
            format!("{url}&since=e-3 HTTP/1.1"),
        ]
    );
}

#[test]
fn since_is_where_it_begins() {
    let told = follow("/a --since e-7", vec![stream(":\n\n"), gone()]);
    let line = "GET /-/events?topic=/a&since=e-7 HTTP/1.1".to_owned();
    assert_eq!(told.asked, [line.clone(), line]);
}

#[test]
fn a_stream_may_come_in_any_pieces() {
    let body = format!(
        "{HEAD}:\n\n{}event: stentor\ndata: {{\"gap\":{{\"reason\":\"too_many_topics\"}}}}\n\n",
        message(1, "\"é\"")
    );
    let body = body.as_bytes();
    let expected = follow("/a", vec![vec![body.to_vec()], gone()]);
    assert_eq!(expected.out, "é\n");
    for at in 0..body.len() {
        let (a, b) = body.split_at(at);
        let told = follow("/a", vec![vec![a.to_vec(), b.to_vec()], gone()]);
        assert_eq!((told.out, told.err), (expected.out.clone(), expected.err.clone()), "{at}");
    }
    let bytes = body.chunks(1).map(<[u8]>::to_vec).collect();
    assert_eq!(follow("/a", vec![bytes, gone()]).out, expected.out);
}

#[test]
fn an_outage_is_told_once() {
    let told = follow(
        "/a",
        vec![
            refusal("503 Service Unavailable", "Not now.\n"),
            refusal("500 Internal Server Error", ""),
            vec![],
            stream(&message(1, "\"1\"")),
            gone(),
        ],
    );
    assert_eq!(told.out, "1\n");
    assert_eq!(
        told.err,
        "note: no stream: 503 Service Unavailable: Not now; waiting for the server\n\
         note: the server is back\n\
         note: the stream from SERVER has ended; waiting for the server\n"
    );
}

#[test]
fn a_refusal_is_final_and_gives_the_reason() {
    for status in ["400 Bad Request", "404 Not Found", "302 Found"] {
        let told = follow("/a", vec![refusal(status, "No such thing.\n")]);
        assert_eq!(told.failure(), format!("no stream: {status}: No such thing."));
        assert!(matches!(told.result, Err(Failure::Failed(_))), "exit code 1");
        assert_eq!((told.out.as_str(), told.err.as_str()), ("", ""));
    }
    let endless = [refusal("400 Bad Request", ""), vec![vec![b'x'; 1024 * 1024]]].concat();
    let head = String::from_utf8(endless[0].clone()).unwrap();
    let head = head.replace("Content-Length: 0\r\n", "");
    let told = follow("/a", vec![vec![head.into_bytes(), endless[1].clone()]]);
    assert!(told.failure().len() < 5_000, "{} bytes", told.failure().len());
}

#[test]
fn another_server_is_told_from_ours() {
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<html>";
    let told = follow("/a", vec![vec![page.into()]]);
    assert_eq!(told.failure(), "the answer is no event stream but 'text/html'");
    for nonsense in ["data: hello\n\n", "event: stentor\ndata: []\n\n"] {
        let told = follow("/a", vec![stream(nonsense)]);
        assert!(told.failure().starts_with("an event is unclear: "), "{}", told.failure());
    }
}

#[test]
fn silence_is_a_dead_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let (silent, _) = listener.accept().unwrap();
        read_request(&silent);
        (&silent).write_all((HEAD.to_owned() + &message(1, "\"1\"")).as_bytes()).unwrap();
        // Accepting the next one is proof that the first was given up, though it is still open.
        let (next, _) = listener.accept().unwrap();
        let line = read_request(&next);
        (&next).write_all(&gone()[0]).unwrap();
        drop(silent);
        line
    });
    let args = parse(&format!("/a --server {url}")).unwrap();
    let (out, err) = (Page::default(), Page::default());
    let patience =
        Patience { silence_max: Duration::from_secs(1), pause_min: Duration::from_millis(1) };
    let output = EventPrinter::new(out.clone(), err.clone(), args.form(false));
    let result = StreamFollower::new(&args, patience, output, Arc::default()).unwrap().run();
    assert!(result.is_err());
    assert!(serving.join().unwrap().contains("since=e-1"));
    let said = format!("note: the stream from {url} was silent for 1 s; waiting for the server\n");
    assert_eq!((out.text(), err.text()), ("1\n".to_owned(), said));
}

/// An output that breaks after its first line.
struct Pipe(Page);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.text().contains('\n') {
            true => Err(ErrorKind::BrokenPipe.into()),
            false => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_output_is_the_end_and_a_full_disk_an_error() {
    let (url, serving) = serve(vec![stream(&(message(1, "\"1\"") + &message(2, "\"2\"")))]);
    let args = parse(&format!("/a --json --server {url}")).unwrap();
    let page = Page::default();
    let output = EventPrinter::new(Pipe(page.clone()), io::sink(), args.form(false));
    let result = StreamFollower::new(&args, PATIENCE, output, Arc::default()).unwrap().run();
    assert!(result.is_ok());
    assert_eq!(page.text().lines().next(), Some(envelope(1, "\"1\"").as_str()));
    serving.join().unwrap();
    let Interruption::Final(failure) = Interruption::from(io::Error::from(ErrorKind::StorageFull))
    else {
        panic!("not final")
    };
    assert!(failure.to_string().starts_with("standard output: "), "{failure}");
}

#[test]
fn the_server_says_how_long_to_wait() {
    let args = parse("/a").unwrap();
    let output = EventPrinter::new(io::sink(), io::sink(), args.form(false));
    let mut follower = StreamFollower::new(&args, PATIENCE, output, Arc::default()).unwrap();
    for (ms, pause_ms) in [(2_417, 2_417), (0, 500), (u64::MAX, 30_000)] {
        assert!(follower.take(Item::Retry(ms)).is_ok());
        assert_eq!(follower.pause_min, Duration::from_millis(pause_ms));
    }
    // A stream that ends right after its `retry` brought nothing.
    follower.attempts = 7;
    assert!(follower.take(Item::Retry(1)).is_ok());
    assert_eq!(follower.attempts, 7);
    assert!(follower.take(Item::Comment).is_ok());
    assert_eq!(follower.attempts, 0);
}
