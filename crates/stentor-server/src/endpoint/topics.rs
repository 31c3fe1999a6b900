//! `/-/topics`: what topics there are, in the order of their names, page by page.

use crate::exchange::Exchange;
use crate::limits::TOPICS_PAGE_MAX;
use serde::Serialize;
use stentor_config::date_of;
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::target;

#[derive(Debug, Serialize)]
struct Page<'a> {
    topics: Vec<Topic<'a>>,
    /// What to pass as `after` to see more; null on the last page.
    next: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Topic<'a> {
    topic: &'a str,
    id: String,
    #[serde(rename = "type")]
    content_type: &'a str,
    value_bytes: usize,
    history_messages: usize,
    published_at: String,
}

/// `GET /-/topics?prefix=/quotes/&after=/quotes/aapl&limit=100`
pub(crate) fn topics(x: &mut Exchange<'_>, query: Option<&[u8]>) {
    let asked = match Asked::parse(query.unwrap_or_default()) {
        Ok(asked) => asked,
        Err(rejection) => return x.reply.reject(&rejection),
    };
    // One more than asked for tells whether there is another page.
    let mut found = x.shared.hub.topics(&asked.prefix, asked.after.as_deref(), asked.limit + 1);
    let more = found.len() > asked.limit;
    found.truncate(asked.limit);
    let topics = found.iter().map(|info| Topic {
        topic: &info.name,
        id: info.id.to_string(),
        content_type: &info.content_type,
        value_bytes: info.bytes,
        history_messages: info.history,
        published_at: date_of(info.published_at),
    });
    let next = if more { found.last().map(|info| info.name.as_str()) } else { None };
    let page = Page { topics: topics.collect(), next };
    // Numbers and strings always make JSON.
    let mut body = serde_json::to_vec(&page).unwrap_or_default();
    body.push(b'\n');
    x.reply.fresh("application/json", &body);
}

struct Asked {
    prefix: String,
    after: Option<String>,
    limit: usize,
}

impl Asked {
    fn parse(query: &[u8]) -> Result<Asked, Rejection> {
        let mut asked = Asked { prefix: String::new(), after: None, limit: 1_000 };
        for pair in target::parameters(query, &["prefix", "after", "limit"]) {
            let (key, value) = pair?;
            match &*key {
                "prefix" => asked.prefix = value.into_owned(),
                "after" => asked.after = Some(value.into_owned()),
                _ => {
                    asked.limit = value
                        .parse()
                        .ok()
                        .filter(|limit| (1..=TOPICS_PAGE_MAX).contains(limit))
                        .ok_or_else(|| {
                            let detail = format!("limit is a number from 1 to {TOPICS_PAGE_MAX}.");
                            Rejection::because(ErrorCode::ParameterInvalid, detail)
                        })?;
                }
            }
        }
        Ok(asked)
    }
}
