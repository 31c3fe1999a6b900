//! The replay: one day after the other, each quote published to its topic, and around again.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use stentor_hub::{ContentType, Draft};
use stentor_process::Server;
use stentor_wire::target::TopicName;

use super::prices::{Day, Quote};

/// Publishes day after day, `pause` apart, from the beginning again after the last, until the
/// sender of `stopped` is dropped. Quotes that are there already, from a store, are gone on behind.
pub(super) fn run(
    server: &Server,
    days: &[Day],
    pause: Duration,
    stopped: &Receiver<()>,
) -> Result<(), String> {
    for step in steps(days).skip(steps_made(server, days)?) {
        for topic in step.unlisted {
            // Not having been there is as good.
            let _ = server.delete(topic_name(&topic)?);
        }
        for quote in &step.day.quotes {
            let draft = Draft::new(quote.json().into_bytes()).with_content_type(ContentType::JSON);
            let topic = topic(quote);
            server
                .publish(topic_name(&topic)?, draft)
                .map_err(|error| format!("{topic}: {error}"))?;
        }
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    Ok(())
}

/// How many steps led to the quotes that are there.
fn steps_made(server: &Server, days: &[Day]) -> Result<usize, String> {
    // Of a day it is published last.
    let Some(quote) = days.last().and_then(|day| day.quotes.last()) else { return Ok(0) };
    let value = server.value(&topic_name(&topic(quote))?);
    Ok(value.map_or(0, |value| steps_to(value.data(), days)))
}

/// How many steps lead to this quote; 0 if it is of none of these days.
fn steps_to(quote: &[u8], days: &[Day]) -> usize {
    let quote: serde_json::Value = serde_json::from_slice(quote).unwrap_or_default();
    let day = days.iter().position(|day| quote["date"] == day.date.as_str());
    day.map_or(0, |index| index + 1)
}

fn topic_name(topic: &str) -> Result<TopicName<'_>, String> {
    TopicName::parse(topic).map_err(|reason| format!("{topic}: {reason}"))
}

/// One day of the replay.
struct ReplayDay<'d> {
    /// Topics that do not exist yet on this day, though they did in the round before.
    unlisted: Vec<String>,
    day: &'d Day,
}

/// The days over and over, without end. When the replay goes back in time, companies that were
/// not listed then go out of existence.
fn steps(days: &[Day]) -> impl Iterator<Item = ReplayDay<'_>> {
    let last = days.last();
    days.iter().enumerate().cycle().map(move |(i, day)| {
        let gone = |quote: &&Quote| !day.quotes.iter().any(|other| other.symbol == quote.symbol);
        let unlisted = match last {
            Some(last) if i == 0 => last.quotes.iter().filter(gone).map(topic).collect(),
            _ => Vec::new(),
        };
        ReplayDay { unlisted, day }
    })
}

fn topic(quote: &Quote) -> String {
    format!("/quotes/{}", quote.symbol.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::prices;
    use super::*;

    #[test]
    fn around_and_around() {
        let days = prices::days("2013-02-27").unwrap();
        let dates: Vec<_> = steps(&days).take(5).map(|step| step.day.date.clone()).collect();
        let expected = ["2013-02-27", "2013-02-28", "2013-03-01", "2013-02-27", "2013-02-28"];
        assert_eq!(dates, expected);
    }

    #[test]
    fn going_on_behind_a_quote() {
        let days = prices::days("2013-02-27").unwrap();
        let steps = |quote: &str| steps_to(quote.as_bytes(), &days);
        assert_eq!(steps(&days[1].quotes[0].json()), 2);
        assert_eq!(steps("{\"date\":\"2000-01-03\"}"), 0);
        assert_eq!((steps("{}"), steps("no quote")), (0, 0));
    }

    #[test]
    fn going_back_in_time_unlists_the_young() {
        let days = prices::days("2004-08-18").unwrap();
        let unlisted: Vec<_> = steps(&days).take(days.len() + 1).map(|s| s.unlisted).collect();
        assert_eq!(unlisted[days.len()], ["/quotes/fb", "/quotes/goog"]);
        assert!(unlisted[1..days.len()].iter().all(Vec::is_empty));
    }
}
