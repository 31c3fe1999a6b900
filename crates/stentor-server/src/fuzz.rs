//! The bodies of the server's fuzz targets: properties that must hold for any bytes.
//!
//! As in `stentor_wire::fuzz`, each takes whatever the fuzzer makes up and panics when a property
//! is broken; ordinary tests run them over a small corpus and over mixtures of it. The largest of
//! them is a whole worker on the simulated network.

mod handover;
mod sessions;
mod worker;

pub use handover::fuzz_handover;
pub use sessions::fuzz_sessions;
pub use worker::fuzz_worker;

use crate::budget::Permit;
use crate::context::Context;
use crate::endpoint::bulk::Bulk;
use crate::limits::{BULK_ERRORS_TOLD, BULK_LINE_OVERHEAD_BYTES};
use crate::listeners::CONTROL;
use crate::response::Persistence;
use crate::simulation::{World, kind, patient};
use stentor_config::{ConfigError, ConfigErrors, ControlAddress, ListenAddress, Settings};
use stentor_hub::{Epoch, Hub};
use stentor_order::Ticket;
use stentor_wire::http1::{Method, Request};

/// A configuration is refused with a place and a reason, or is within its bounds; and a setting
/// means the same in a document and in the environment.
pub fn fuzz_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = Settings::from_toml(&text, "file.toml");
    if let Err(errors) = &read {
        check_errors(errors, Some(&text));
    }
    let variables = text.lines().filter_map(|line| line.split_once('='));
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let set = Settings::load(None, variables);
    for result in [read, set] {
        match result {
            Err(errors) => check_errors(&errors, None),
            Ok(settings) => check_settings(&settings),
        }
    }
}

/// Whatever is in a broker's log is read by a node, or it stops there and says so.
pub fn fuzz_log(data: &[u8]) {
    stentor_cluster::fuzz::check_log(data);
}

/// Whatever a broker says is read the same however it is cut.
pub fn fuzz_broker(data: &[u8]) {
    stentor_cluster::fuzz::check_broker(data);
}

/// A stream of lines comes to the same however it is split, and every line counts once.
pub fn fuzz_bulk(data: &[u8]) {
    let mut settings = patient();
    settings.limits.message_bytes_max = MESSAGE_BYTES_MAX;
    let world = World::new(1, kind(), settings.clone());
    let mut cx = world.context(settings);
    let whole = publish_pieces(&mut cx, data, []);
    for cut in (0..data.len()).step_by(data.len() / 8 + 1) {
        assert_eq!(publish_pieces(&mut cx, data, [cut]), whole, "cut at {cut}");
    }
    assert_eq!(publish_pieces(&mut cx, data, 0..data.len()), whole, "byte by byte");
    let report: serde_json::Value = serde_json::from_str(&whole.answer).expect("it is JSON");
    let number = |name: &str| report[name].as_u64().expect("it is a number");
    let lines = || data.split(|&byte| byte == b'\n');
    let is_told = |line: &&[u8]| !line.trim_ascii().is_empty() || line.len() > LINE_BYTES_MAX;
    let told = lines().filter(is_told).count() as u64;
    assert_eq!(number("published") + number("failed"), told, "{report}");
    assert_eq!((number("published"), number("failed")), (whole.published, whole.refused));
    assert_eq!(report["last_id"].is_null(), whole.published == 0);
    let errors = report["errors"].as_array().expect("it is a list");
    assert_eq!(errors.len() as u64, whole.refused.min(BULK_ERRORS_TOLD as u64));
    let mut before = 0;
    for error in errors {
        let line = error["line"].as_u64().expect("it is a number");
        assert!(before < line && line <= lines().count() as u64, "{report}");
        assert!(error["detail"].as_str().is_some_and(|reason| !reason.is_empty()), "{report}");
        before = line;
    }
}

/// What came of a stream of lines.
#[derive(PartialEq, Debug)]
struct Outcome {
    /// The body of the answer; its id is the last there is.
    answer: String,
    published: u64,
    refused: u64,
}

/// Publishes lines that arrive in pieces that end at `cuts`.
fn publish_pieces(cx: &mut Context, data: &[u8], cuts: impl IntoIterator<Item = usize>) -> Outcome {
    let (first, refused) = (cx.shared.hub.seq(), cx.stats.publishes_refused.value());
    let request = Request::new(Method::Post, b"/-/publish");
    let persistence = Persistence { keep_alive: true, http10: false };
    let mut x = cx.exchange(CONTROL, &request, persistence, Ticket::of_nobody(), &Permit::SMALL);
    let mut bulk = Box::new(Bulk::default());
    let mut at = 0;
    for cut in cuts.into_iter().chain([data.len()]) {
        bulk.data(&mut x, &data[at..cut]);
        at = cut;
    }
    bulk.finish(&mut x);
    let answer = String::from_utf8(cx.out.bytes().clone()).expect("it is JSON");
    cx.out.clear();
    let (_, body) = answer.split_once("\r\n\r\n").expect("it has a head");
    let last = cx.shared.hub.seq();
    Outcome {
        // Each run goes on where the one before ended.
        answer: body.replace(&format!("\"0badcafe-{last}\""), "\"the last\""),
        published: last - first,
        refused: cx.stats.publishes_refused.value() - refused,
    }
}

/// There are from one to ten mistakes, and each is checked.
fn check_errors(errors: &ConfigErrors, text: Option<&str>) {
    let mistakes: Vec<_> = errors.clone().into_iter().collect();
    assert!((1..=10).contains(&mistakes.len()), "{errors}");
    mistakes.iter().for_each(|mistake| check_error(mistake, text));
}

/// An error says where it is and what is wrong; if it has a line, it shows that line of `text`.
fn check_error(error: &ConfigError, text: Option<&str>) {
    let shown = error.to_string();
    let mut lines = shown.split('\n');
    let headline = lines.next().unwrap_or_default();
    let (place, message) = headline.split_once(": ").expect("a place and a reason");
    assert!(!place.is_empty() && !message.is_empty(), "{shown}");
    let Some(text) = text else { return };
    let place = place.strip_prefix("file.toml").expect("the place names the document");
    let mut numbers = place.split(':').skip(1).map(|number| number.parse::<usize>());
    let (Some(Ok(line)), Some(Ok(column))) = (numbers.next(), numbers.next()) else { return };
    assert!(line >= 1 && line <= text.split('\n').count(), "{shown}");
    let wanted = text.split('\n').nth(line - 1).unwrap_or_default();
    assert!(column >= 1 && column <= wanted.chars().count() + 1, "{shown}");
}

/// What is loaded is within its bounds, and the parts of the server that are made of it take it.
fn check_settings(settings: &Settings) {
    if let Err(errors) = settings.validate() {
        check_errors(&errors, None);
    }
    let limits = &settings.limits;
    assert!((1..=4_096).contains(&settings.workers));
    assert!(limits.head_timeout_ms >= 10 && limits.keep_alive_timeout_ms >= 10);
    assert!(limits.message_bytes_max >= 1 && limits.topics_max >= 1 && limits.names_max >= 1);
    assert!(settings.streams.retry_ms >= 10 && settings.streams.topics_max >= 1);
    for control in &settings.control {
        let written: ListenAddress<ControlAddress> =
            control.to_string().parse().expect("it reads what it writes");
        assert_eq!(&written, control);
    }
    for lookup in &settings.lookups {
        assert!(lookup.path.starts_with('/') && lookup.topics.has_name());
        assert!(!lookup.content_type.bytes().any(|byte| byte.is_ascii_control()));
    }
    for mount in &settings.mounts {
        assert!(mount.path.starts_with('/') && mount.path.ends_with('/'));
        assert!(!mount.root.as_os_str().is_empty());
    }
    for origin in &settings.cors.origins {
        assert!(origin.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    let epoch = Epoch::parse("0badcafe").expect("it is an epoch");
    drop(Hub::new(epoch, settings.topics.clone(), stentor_hub::Limits::default()));
}

/// So few that the fuzzer's longest lines are longer than any may be.
const MESSAGE_BYTES_MAX: usize = 16;
const LINE_BYTES_MAX: usize = MESSAGE_BYTES_MAX * 6 + BULK_LINE_OVERHEAD_BYTES;

#[cfg(test)]
mod tests;
