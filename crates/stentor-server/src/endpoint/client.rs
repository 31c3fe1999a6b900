//! `/-/stentor.js`: the browser client, from every server, so that a page finds the one that fits.
//!
//! It is a message like any other but that no topic has it: conditions, compression and heads are
//! those of values.

use super::value;
use crate::exchange::Exchange;
use crate::labels::RequestKind;
use std::sync::Arc;
use stentor_hub::{ContentType, Draft, Epoch, Message};
use stentor_wire::http1::Request;
use twox_hash::XxHash3_64;

/// The module as a message, tagged by what is in it.
pub fn module(now_unix_s: u64) -> Arc<Message> {
    let draft = Draft::new(MODULE.as_bytes());
    let draft = match ContentType::parse("text/javascript; charset=utf-8") {
        Ok(content_type) => draft.with_content_type(content_type),
        Err(reason) => unreachable!("{reason}"),
    };
    let hash = format!("{:08x}", XxHash3_64::oneshot(MODULE.as_bytes()) as u32);
    let named = Epoch::parse(&hash).unwrap_or_else(|| unreachable!("eight digits: {hash}"));
    Arc::new(Message::fixed(draft, named, now_unix_s))
}

/// Answers with the module.
pub(crate) fn get(x: &mut Exchange<'_>, request: &Request<'_>) {
    x.reply.answers.asked.kind = RequestKind::File;
    let shared = x.shared;
    value::found(x, request, &shared.client);
}

const MODULE: &str = include_str!("../../../../clients/js/stentor.js");
