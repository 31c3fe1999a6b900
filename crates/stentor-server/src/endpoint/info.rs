//! `GET /-/info`: what a client talks to. Every listener that answers reads has it.

use crate::exchange::Exchange;
use crate::head::Field;
use crate::limits::{COMMAND_BYTES_MAX, HELD_MS_MAX};
use serde::Serialize;
use stentor_order::OrderKind;
use stentor_wire::condition;
use stentor_wire::condition::Comparison;
use stentor_wire::http1::{HEAD_BYTES_MAX, Request};
use stentor_wire::status::Status;
use twox_hash::XxHash3_64;

/// The version of the public contract: MAJOR.MINOR. The minor number grows with each addition.
const CONTRACT: &str = "1.0";

/// The parts of the contract that another build or configuration may lack, in order.
const FEATURES: [&str; 7] =
    ["bulk", "long_poll", "lookups", "patterns", "sse", "tokens", "websocket"];

#[derive(Debug, Serialize)]
struct Info {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    contract: &'static str,
    features: Vec<&'static str>,
    limits: Limits,
}

/// What clients must keep to.
#[derive(Debug, Serialize)]
struct Limits {
    command_bytes: usize,
    message_bytes: usize,
    names: usize,
    request_line_bytes: usize,
    topics_per_stream: usize,
    wait_seconds: u64,
}

/// Answers with what this server is and does.
pub(crate) fn get(x: &mut Exchange<'_>, request: &Request<'_>) {
    let settings = x.settings;
    let has_patterns = x.listener().operates || settings.streams.public_patterns;
    let follows = matches!(x.shared.committer.order(), OrderKind::Leader { .. });
    let is_there = |feature: &&&str| match **feature {
        "patterns" => has_patterns,
        "lookups" => !settings.lookups.is_empty(),
        "tokens" => settings.asks_for_tokens(),
        "bulk" => x.publishes() && !follows,
        _ => true,
    };
    let info = Info {
        name: "stentor",
        version: settings.server_header.then_some(env!("CARGO_PKG_VERSION")),
        contract: CONTRACT,
        features: FEATURES.iter().filter(is_there).copied().collect(),
        limits: Limits {
            command_bytes: COMMAND_BYTES_MAX,
            message_bytes: settings.limits.message_bytes_max,
            names: settings.limits.names_max,
            request_line_bytes: HEAD_BYTES_MAX,
            topics_per_stream: settings.streams.topics_max,
            wait_seconds: HELD_MS_MAX / 1_000,
        },
    };
    // Numbers and strings always make JSON.
    let mut body = serde_json::to_vec(&info).unwrap_or_default();
    body.push(b'\n');
    let tag = format!("{:016x}", XxHash3_64::oneshot(&body));
    let is_named = |tags| condition::named(tags, &[&tag], Comparison::Weak).is_some();
    let is_known = request.if_none_match.is_some_and(is_named);
    let status = if is_known { Status::NOT_MODIFIED } else { Status::OK };
    let head = x.reply.begin(status).field(Field::CACHE_CONTROL, "no-cache");
    let head = head.field(Field::ETAG, format!("\"{tag}\""));
    match is_known {
        true => drop(head.end()),
        false => head.content("application/json", &body),
    }
}
