//! All ways to read, side by side: the same ids in the same order.

use crate::support::{Child, EventStream, Heard, Reader, Server, Way, eventually, tool};
use std::process::Command;
use std::thread;

const COUNT: usize = 300;

/// The ids in the output of `curl -N`, which may not be whole yet.
fn ids(text: &str) -> Vec<String> {
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end + 1]);
    whole.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
}

#[test]
fn every_way_shows_the_same_ids_in_the_same_order() {
    let server = Server::configured("[[topics]]\nmatch = '/**'\nhistory = 1000\n");
    let first = server.publish("/a", "first");
    let mut readers: Vec<Reader> = Way::STREAMS
        .into_iter()
        .map(|way| Reader::open(way, server.public, "/a", "all", &first))
        .collect();
    let curl = tool("curl").map(|program| {
        let mut command = Command::new(program);
        command.args(["-q", "-sS", "-N", "--noproxy", "*", "-H", "Accept: text/event-stream"]);
        command.arg(format!("http://{}/a?since={first}", server.public.0));
        Child::spawn(&mut command)
    });
    let mut resuming = EventStream::open(server.public, &format!("/a?since={first}"), "");
    let published: Vec<String> = thread::scope(|scope| {
        let publishers: Vec<_> = (0..3)
            .map(|p| {
                let server = &server;
                scope.spawn(move || -> Vec<String> {
                    let publish = |i| server.publish("/a", &format!("{p}.{i}"));
                    (0..COUNT / 3).map(publish).collect()
                })
            })
            .collect();
        publishers.into_iter().flat_map(|publisher| publisher.join().unwrap()).collect()
    });
    let mut expected = published;
    expected.sort_by_key(|id| id.split_once('-').unwrap().1.parse::<u64>().unwrap());
    let mut texts: Vec<Vec<String>> = Vec::new();
    for reader in &mut readers {
        let heard: Vec<Heard> = (0..COUNT).map(|_| reader.hear()).collect();
        let found = heard.iter().filter_map(|heard| match heard {
            Heard::Message { id, .. } if !id.is_empty() => Some(id.clone()),
            _ => None,
        });
        let found: Vec<String> = found.collect();
        if reader.way.has_ids() {
            assert_eq!(found, expected, "{:?}", reader.way);
        }
        texts.push(heard.into_iter().map(Heard::data).collect());
    }
    // Those that bring no ids are in the order of those that do.
    for (reader, data) in readers.iter().zip(&texts) {
        assert_eq!(data, &texts[0], "{:?}", reader.way);
    }
    if let Some(curl) = curl {
        let found = eventually("curl has them all", || {
            let found = ids(&curl.out());
            (found.len() >= COUNT).then_some(found)
        });
        assert_eq!(found, expected);
    }
    // One that is cut and comes back again and again, as an EventSource does.
    let mut last = first;
    for expected in expected {
        let id = resuming.event().id.unwrap();
        assert_eq!(id, expected);
        last = id;
        if last.ends_with('7') {
            let field = format!("Last-Event-ID: {last}\r\n");
            resuming = EventStream::open(server.public, "/a", &field);
        }
    }
    assert!(!last.is_empty());
}
