//! `POST /-/upgrade`: has whoever runs the server begin an upgrade. What comes of it, `/-/status`
//! says, of this process or of the next one.

use crate::access::Act;
use crate::exchange::{Answer, Exchange};
use crate::upgrades::NotBegun;
use serde::Serialize;
use std::sync::atomic::Ordering;
use stentor_wire::http1::Request;
use stentor_wire::status::{Refusal, Status};

/// What was before: by what differs from it later, one knows what came of the upgrade.
#[derive(Debug, Serialize)]
struct Begun {
    process: u32,
    done: u64,
    failed: u64,
}

/// Answers before anything comes of it.
pub(crate) fn begin(x: &mut Exchange<'_>, request: &Request<'_>) -> Answer {
    if let Err(denied) = x.may(Act::Upgrade(request)) {
        return x.deny(&denied);
    }
    if x.shared.is_stopping.load(Ordering::Relaxed) {
        return x.refuse(&STOPPING);
    }
    let before = match x.shared.upgrades.ask() {
        Ok(before) => before,
        Err(NotBegun::UnderWay) => return x.refuse(&UNDER_WAY),
        Err(NotBegun::Nobody) => return x.refuse(&NOBODY),
    };
    let begun = Begun { process: std::process::id(), done: before.done, failed: before.failed };
    // Numbers always make JSON.
    let mut body = serde_json::to_vec(&begun).unwrap_or_default();
    body.push(b'\n');
    let fields = b"Cache-Control: no-store\r\n";
    x.reply.content(Status::ACCEPTED, "application/json", fields, &body);
    Answer::Now
}

const STOPPING: Refusal = Refusal::new(
    Status::SERVICE_UNAVAILABLE,
    "This server is about to stop, and is not upgraded any more.",
);
const UNDER_WAY: Refusal =
    Refusal::new(Status::CONFLICT, "An upgrade is under way already; /-/status says how it ends.");
const NOBODY: Refusal = Refusal::new(
    Status::SERVICE_UNAVAILABLE,
    "This server is not upgraded: it is not one of stentor serve, or has not begun yet.",
);
