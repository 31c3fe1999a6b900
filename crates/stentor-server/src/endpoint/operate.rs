//! `POST /-/upgrade` and `POST /-/reload`: have the program that runs the server begin that. The
//! outcome is in `/-/status`, of this process or of the next one.

use crate::access::Act;
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::operations::NotBegun;
use serde::Serialize;
use std::sync::atomic::Ordering;
use stentor_wire::http1::Request;
use stentor_wire::rejections;
use stentor_wire::status::Status;

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Upgrade,
    Reload,
}

impl Operation {
    /// The one that is begun at this path.
    pub(crate) fn at(path: &[u8]) -> Option<Operation> {
        match path {
            b"/-/upgrade" => Some(Operation::Upgrade),
            b"/-/reload" => Some(Operation::Reload),
            _ => None,
        }
    }
}

/// The answer: the counts of before. A client compares them with later ones.
#[derive(Debug, Serialize)]
struct Begun {
    pid: u32,
    succeeded: u64,
    failed: u64,
}

/// Begins an operation, and answers before its outcome is known.
pub(crate) fn begin(x: &mut Exchange<'_>, request: &Request<'_>, operation: Operation) -> Answer {
    if let Err(denied) = x.may(Act::Operate(request)) {
        return x.deny(&denied);
    }
    if x.shared.process.is_stopping.load(Ordering::Relaxed) {
        return x.reject(&STOPPING);
    }
    let before = match operation {
        Operation::Upgrade => x.shared.process.upgrades.ask(),
        Operation::Reload => x.shared.process.reloads.ask(),
    };
    let (done, failed) = match (before, operation) {
        (Ok(before), _) => before,
        (Err(NotBegun::UnderWay), Operation::Upgrade) => return x.reject(&UPGRADE_UNDER_WAY),
        (Err(NotBegun::UnderWay), Operation::Reload) => return x.reject(&RELOAD_UNDER_WAY),
        (Err(NotBegun::Unable), _) => return x.reject(&UNABLE),
    };
    let begun = Begun { pid: std::process::id(), succeeded: done, failed };
    // Numbers always make JSON.
    let mut body = serde_json::to_vec(&begun).unwrap_or_default();
    body.push(b'\n');
    let head = x.reply.begin(Status::ACCEPTED).field(Field::CACHE_CONTROL, "no-store");
    head.content("application/json", &body);
    Answer::Now
}

rejections! {
    STOPPING: ServerDraining =
        "This server is about to stop, and is not upgraded or reloaded any more.";
    UPGRADE_UNDER_WAY: UpgradeInProgress =
        "An upgrade is under way already; /-/status says how it ends.";
    RELOAD_UNDER_WAY: ReloadInProgress =
        "A reload is under way already; /-/status says how it ends: then begin another.";
    UNABLE: UpgradeUnsupported =
        "This server is not upgraded or reloaded: it is not one of stentor serve, or has not begun \
         yet.";
}
