//! `/-/snapshot` and `/-/feed`: what followers read, and what is kept as a backup.

use crate::access::Act;
use crate::exchange::Copying;
use crate::exchange::{Answer, Exchange};
use crate::head::Field;
use crate::labels::RequestKind;
use crate::limits::{COPY_TOPICS_MAX, FOLLOWERS_MAX};
use crate::paths::FEED;
use stentor_hub::{Filter, Id};
use stentor_order::OrderKind;
use stentor_replication::{NotHere, put_sign_of_life};
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::rejections;
use stentor_wire::status::Status;
use stentor_wire::target;

/// Begins either, if the request is a good one.
pub(crate) fn begin(x: &mut Exchange<'_>, path: &[u8], query: Option<&[u8]>) -> Answer {
    x.reply.answers.asked.kind = RequestKind::Stream;
    let is_feed = path == FEED;
    let asked = Asked::parse(query.unwrap_or_default(), is_feed, COPY_TOPICS_MAX);
    let Asked { filters, since } = match asked {
        Ok(asked) => asked,
        Err(rejection) => return x.reject(&rejection),
    };
    if let Err(denied) = x.may(Act::Copy(&filters)) {
        return x.deny(&denied);
    }
    if x.reply.shape.persistence.http10 {
        return x.reject(&TOO_OLD_A_CLIENT);
    }
    if x.streams.replication.peers().count() >= FOLLOWERS_MAX {
        return x.reject(&TOO_MANY);
    }
    // Of a cluster a snapshot is good for other nodes, which read on in the log.
    let is_cluster = *x.shared.committer.order() == OrderKind::Cluster;
    if x.shared.stale_s().is_some() && (is_feed || !is_cluster) {
        return x.reject(&STALE);
    }
    let (hub, waker) = (&x.shared.hub, x.inbox.mailbox.waker());
    let begun = match is_feed {
        true => x.streams.replication.feed(hub, waker, since, filters),
        false => Ok(x.streams.replication.snapshot(hub, waker, filters)),
    };
    let (copy, seq) = match begun {
        Ok(begun) => begun,
        Err(not_here) => return x.reject(&rejection(not_here)),
    };
    let what = if is_feed { "feed" } else { "snapshot" };
    let id = Id { epoch: hub.epoch(), seq };
    let via = x.shared.committer.service().and_then(|service| service.via());
    let head_only = x.reply.shape.head_only;
    let head = if head_only { x.reply.begin(Status::OK) } else { x.reply.endless(Status::OK) };
    head.field(Field::CONTENT_TYPE, format!("application/vnd.stentor.{what}"))
        .field(Field::CACHE_CONTROL, "no-store")
        .field(Field::CURSOR, id.to_string())
        .fields(via.map(|via| (Field::VIA, via)))
        .end_with_chunks();
    if head_only {
        return Answer::Now;
    }
    if is_feed {
        put_sign_of_life(seq, x.shared.age_ms(), x.reply.out.bytes());
    }
    let grant = x.visitor().grant().cloned();
    Answer::Copy(Box::new(Copying { copy, grant }))
}

struct Asked {
    filters: Box<[Filter]>,
    since: Option<Id>,
}

impl Asked {
    fn parse(query: &[u8], is_feed: bool, topics_max: usize) -> Result<Asked, Rejection> {
        let (mut filters, mut since) = (Vec::new(), None);
        let names: &[&str] = if is_feed { &["topic", "since"] } else { &["topic"] };
        for pair in target::parameters(query, names) {
            let (key, value) = pair?;
            match &*key {
                "topic" if filters.len() == topics_max => {
                    let detail = format!("At most {topics_max} topics may be asked for at once.");
                    return Err(Rejection::because(ErrorCode::SubscriptionLimit, detail));
                }
                "topic" => filters.push(Filter::parse(&value)?),
                _ => {
                    since = Some(value.parse().map_err(|_| NO_ID)?);
                }
            }
        }
        Ok(Asked { filters: filters.into(), since })
    }
}

fn rejection(not_here: NotHere) -> Rejection {
    match not_here {
        NotHere::Epoch => OTHER_EPOCH,
        NotHere::Ahead => AHEAD,
        NotHere::TooOld => TRIMMED,
    }
}

rejections! {
    NO_ID: CursorInvalid = "since is an id: EPOCH-SEQ.";
    OTHER_EPOCH: EpochChanged =
        "The id is of another life of this server: begin with /-/snapshot.";
    AHEAD: CursorAhead = "The id is of no message yet: begin with /-/snapshot.";
    TRIMMED: HistoryTrimmed =
        "What is behind this id is not kept any more: begin with /-/snapshot.";
    TOO_OLD_A_CLIENT: Http11Required = "This page is sent in chunks, which takes HTTP/1.1.";
    /// Whoever follows this server has to know that nothing comes, and may find another one.
    STALE: NodeBehind =
        "Nothing is heard here of whoever makes the order: follow a server that is not behind.";
    TOO_MANY: FollowerLimit = "As many followers as may read here do so: follow one of them.";
}
