//! Pages behind nginx and HAProxy while the server is killed, restarted, and away for a while.
//!
//! A browser shows twenty pages: through either proxy some that read by their own `EventSource` and
//! some that read by the browser client's `watch`. A publisher counts up all the time. After each
//! outage every page must be live again, and have received every number that was acknowledged or a
//! gap. The test prints how long it took.
//!
//! `TEST_AWAY_SECONDS` is how long the last outage lasts. If it is set, the test assumes a
//! host at rest, and a page that needs more than five seconds fails it.

use super::{Kind, Proxy};
use crate::support::{Browser, Client, Server, TempDir, Url, eventually};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

/// Pages of each kind behind each proxy.
const PAGES: usize = 5;
const READERS: [&str; 2] = ["source", "watch"];
const ALL_PAGES: usize = 2 * READERS.len() * PAGES;

/// Shows the numbers of `/n` to the page that it is a frame of.
const PAGE: &str = "<!doctype html><title>page</title><script type=module>
import { watch } from '/-/stentor.js'
const query = new URLSearchParams(location.search)
const tell = (what) => parent.postMessage({ page: query.get('page'), what, at: Date.now() }, '*')
if (query.get('reader') === 'watch') {
  watch('/n', (n) => tell(+n), { onGap: () => tell('gap') })
} else if (query.get('reader') === 'source') {
  const source = new EventSource('/n')
  source.onmessage = ({ data }) => tell(+data)
  source.addEventListener('stentor', ({ data }) => JSON.parse(data).gap && tell('gap'))
}
</script>";

#[test]
fn pages_behind_a_proxy_are_live_again_after_every_outage() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TempDir::new();
    let rules = "[[topics]]\nmatch = '/**'\nhistory = 10000\n".to_owned();
    let stored = format!("{rules}[store]\npath = {:?}\n", dir.path().join("data"));
    let server = Server::lasting(&stored);
    let kinds = [Kind::Nginx, Kind::HaProxy];
    let proxies = kinds.map(|kind| Proxy::start(kind, server.public));
    let [Some(nginx), Some(haproxy)] = &proxies else { return };
    server.control.put("/page", "text/html", PAGE.as_bytes()).expect(201);
    let publisher = Publisher::start(server.control);
    browser.open(&nginx.url("/page?reader=none"));
    browser.run("window.heard = []; onmessage = ({ data }) => heard.push(data)");
    show_pages(&mut browser, &[("nginx", nginx), ("haproxy", haproxy)]);
    let mut run = Run { browser, server, publisher, is_timed: false };
    eventually("all pages are live", || (run.live_since(0).len() == ALL_PAGES).then_some(()));

    run.outage("killed", "KILL", Duration::ZERO, &stored);
    run.outage("restarted", "TERM", Duration::ZERO, &stored);
    let away = env::var("TEST_AWAY_SECONDS").ok();
    run.is_timed = away.is_some();
    let away_s = away.map_or(10, |text| text.parse().expect("TEST_AWAY_SECONDS is a number"));
    run.outage("away", "KILL", Duration::from_secs(away_s), &stored);
    let gaps = run.outage("killed without a store", "KILL", Duration::ZERO, &rules);
    assert_eq!(gaps, ALL_PAGES, "each page is told that what it knew is gone");
    drop(run.publisher);
    fs::remove_dir_all(dir.path()).unwrap();
}

/// Adds the pages as frames, each with a name that says what it is.
fn show_pages(browser: &mut Browser, proxies: &[(&str, &Proxy)]) {
    for (proxy_name, proxy) in proxies {
        for reader in READERS {
            for n in 0..PAGES {
                let page = format!("{proxy_name}, {reader} {n}");
                let url = proxy.url(&format!("/page?reader={reader}&page={page}"));
                browser.run(&format!(
                    "document.body.appendChild(document.createElement('iframe')).src = '{url}'"
                ));
            }
        }
    }
}

struct Run {
    browser: Browser,
    server: Server,
    publisher: Publisher,
    is_timed: bool,
}

impl Run {
    /// Ends the server and starts it again. Returns how many pages received a gap.
    fn outage(&mut self, what: &str, signal: &str, away: Duration, settings: &str) -> usize {
        self.browser.run("heard = []");
        // Each page then has a message to resume after.
        self.all_hear(self.publisher.last() + 1);
        self.server.child.signal(signal);
        self.server.child.wait();
        thread::sleep(away);
        self.server = Server::at([self.server.public, self.server.control], settings);
        let back_ms = now_ms();
        self.publisher.go_on_at(self.server.control);
        eventually("all pages are live again", || {
            (self.live_since(back_ms).len() == ALL_PAGES).then_some(())
        });
        self.show_times(what, back_ms);
        self.count_gaps(what)
    }

    /// Waits until all pages have heard this number, or a later one.
    fn all_hear(&mut self, n: u64) {
        eventually(&format!("all pages hear {n}"), || {
            let heard = self.heard();
            let has_heard = |news: &&Vec<News>| news.iter().any(|news| news.number >= Some(n));
            (heard.values().filter(has_heard).count() == ALL_PAGES).then_some(())
        });
    }

    /// When each page that has heard a number since then heard its first.
    fn live_since(&mut self, since_ms: u64) -> BTreeMap<String, u64> {
        let first = |news: Vec<News>| {
            news.into_iter().find(|news| news.number.is_some() && news.at_ms >= since_ms)
        };
        let heard = self.heard().into_iter();
        heard.filter_map(|(page, news)| Some((page, first(news)?.at_ms))).collect()
    }

    fn heard(&mut self) -> BTreeMap<String, Vec<News>> {
        let mut all = BTreeMap::<String, Vec<News>>::new();
        for told in self.browser.run("return heard").as_array().unwrap() {
            let page = told["page"].as_str().expect("a page has a name").to_owned();
            let at_ms = told["at"].as_u64().expect("a time");
            all.entry(page).or_default().push(News { number: told["what"].as_u64(), at_ms });
        }
        all
    }

    /// Prints how long it took until the pages were live again.
    fn show_times(&mut self, what: &str, back_ms: u64) {
        let live = self.live_since(back_ms);
        let mut took_ms: Vec<u64> = live.values().map(|at_ms| at_ms - back_ms).collect();
        took_ms.sort_unstable();
        let in_time = took_ms.iter().filter(|ms| **ms <= 5_000).count();
        let (median_ms, slowest_ms) = (took_ms[took_ms.len() / 2], took_ms[took_ms.len() - 1]);
        println!(
            "{what}: {in_time} of {ALL_PAGES} pages are live again within 5 s \
             (median {median_ms} ms, slowest {slowest_ms} ms)"
        );
        assert!(!self.is_timed || in_time == ALL_PAGES, "{live:?}, back at {back_ms}");
    }

    /// Fails if a page lacks a number and knows of no gap. Returns how many know of one.
    fn count_gaps(&mut self, what: &str) -> usize {
        let acknowledged = self.publisher.acknowledged();
        let last = self.publisher.last();
        self.all_hear(last);
        let mut gaps = 0;
        for (page, news) in self.heard() {
            let numbers: Vec<u64> = news.iter().filter_map(|news| news.number).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "{page}: {numbers:?}");
            if news.iter().any(|news| news.number.is_none()) {
                gaps += 1;
                continue;
            }
            let due = acknowledged.iter().filter(|n| (numbers[0]..=last).contains(n));
            let missing: Vec<&u64> = due.filter(|n| numbers.binary_search(n).is_err()).collect();
            assert!(missing.is_empty(), "{what}: {page} lacks {missing:?} and knows of no gap");
        }
        println!("{what}: no page lacks a number, and {gaps} know of a gap");
        gaps
    }
}

/// An event that a page received: a number, or a gap.
struct News {
    number: Option<u64>,
    /// Since 1970.
    at_ms: u64,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    since.as_millis() as u64
}

/// Publishes consecutive numbers to `/n`, ten a second, also while the server is away.
struct Publisher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    server: Mutex<Url>,
    acknowledged: Mutex<Vec<u64>>,
    has_ended: AtomicBool,
}

impl Publisher {
    fn start(server: Url) -> Publisher {
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            acknowledged: Mutex::default(),
            has_ended: AtomicBool::new(false),
        });
        let ours = Arc::clone(&shared);
        Publisher { shared, thread: Some(thread::spawn(move || ours.publish())) }
    }

    fn go_on_at(&self, server: Url) {
        *self.shared.server.lock().unwrap() = server;
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.shared.acknowledged.lock().unwrap().clone()
    }

    fn last(&self) -> u64 {
        self.acknowledged().last().copied().unwrap_or(0)
    }
}

impl Shared {
    fn publish(&self) {
        for n in 1.. {
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            let server = *self.server.lock().unwrap();
            if publish(server, n) {
                self.acknowledged.lock().unwrap().push(n);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Whether it was acknowledged.
fn publish(server: Url, n: u64) -> bool {
    let Ok(stream) = TcpStream::connect(server.0) else { return false };
    let mut client = Client::over(stream);
    let fields = "Content-Type: text/plain\r\n";
    let response = client.try_ask("PUT", "/n", fields, n.to_string().as_bytes());
    response.is_some_and(|response| matches!(response.status, 200 | 201))
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().expect("it was started").join();
    }
}
