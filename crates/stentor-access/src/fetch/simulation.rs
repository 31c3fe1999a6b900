//! A thread that fetches keys and a simulated host, with seeds: the HTTP client, from dialling to
//! the document that is kept. The network splits what the host says, delays it, resets and swallows
//! it. The host may lie: with wrong statuses, lengths and documents, and answers without end.
//!
//! The thread's pauses pass in virtual time. ureq bounds a whole answer by its own clock, on which
//! a simulated answer takes no time. The simulator therefore bounds only the silence within an
//! answer.
//!
//! What must hold:
//!
//! - Nothing panics, and a document beyond its bound is no document.
//! - A document that is kept is what the host said in one whole answer.
//! - A fetch that fails changes nothing but the error that is shown.
//! - Each fetch takes a bounded time. The pause behind it is as long as `docs/access.md` says.
//! - A good answer of a calm network is taken.

use super::*;
use crate::Algorithm;
use crate::mint::Signer;
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use stentor_http_client::agent_over;
use stentor_io::{Rng, SimDialer, SimPeer, SimSpeech, VirtualClock, monotonic_us, read_file};
use stentor_test::{seeds, trace};

#[test]
fn a_document_is_what_its_host_said() {
    let sums = Mutex::new([0; 3]);
    let has_run_all = seeds::run("issuers", 300, |seed| {
        let counts = play(seed);
        let mut sums = lock(&sums);
        (0..3).for_each(|index| sums[index] += counts[index]);
    });
    let [fetched, failed, changed] = sums.into_inner().unwrap();
    let is_of_use = fetched > 1_000 && failed > 1_000 && changed > 500;
    assert!(!has_run_all || is_of_use, "{fetched} {failed} {changed}");
}

/// Returns how many fetches succeeded, how many failed, and how many changed the document.
fn play(seed: u64) -> [u64; 3] {
    let _clock = VirtualClock::start(1_000_000_000);
    let mut rng = Rng::new(seed);
    let host = Arc::new(Mutex::new(Host {
        rng: Rng::new(rng.next_u64()),
        lies: rng.percent(70),
        is_calm: false,
        document: 0,
        said: None,
    }));
    let of_network = Arc::clone(&host);
    let network = SimDialer::new(Rng::new(rng.next_u64()), 40, move || {
        let mut host = lock(&of_network);
        let refuses = !host.is_calm && host.rng.percent(5);
        let talk = Talk { host: Arc::clone(&of_network), input: Vec::new() };
        (!refuses).then(|| Box::new(talk) as Box<dyn SimPeer>)
    });
    let url: JwksUrl = "http://127.0.0.1:1/keys".parse().unwrap();
    let jwt = Jwt { jwks_urls: vec![url.clone()], jwks_refresh_s: 3_600, ..Jwt::default() };
    let dialer = Arc::new(network.clone());
    let agent_of = |config| agent_over(config, Arc::clone(&dialer) as Arc<_>);
    let agent = agents(&jwt, WHOLE, read_file, agent_of).unwrap().remove(0);
    let state = State::new(&url, None);
    let all = Arc::new(All { states: Mutex::new(vec![state]), on_change: Box::new(|| {}) });
    let ((_wake, woken), (_keep, ended)) = (sync_channel(1), channel());
    let (times, refresh) = (Times::default(), Duration::from_secs(jwt.jwks_refresh_s));
    let all_of = Arc::clone(&all);
    let fetcher = Fetcher { place: 0, url, agent, all: all_of, woken, ended, times, refresh };
    let (mut failures, mut counts) = (0, [0; 3]);
    let mut calm_failures = 0;
    let rough = 5 + rng.below(20);
    for round in 0..rough + 3 {
        if round == rough {
            network.set_calm_percent(100);
            let mut host = lock(&host);
            (host.is_calm, host.lies) = (true, false);
        }
        lock(&host).said = None;
        let before = lock(&all.states)[0].document.clone();
        let begin_us = monotonic_us();
        let (quiet, then) = fetcher.fetch(&mut failures);
        let took_us = monotonic_us() - begin_us;
        let states = lock(&all.states);
        let State { document, error, .. } = &states[0];
        trace::act(monotonic_us() / 1_000, format_args!("{error:?}, and it took {took_us} us"));
        assert!(took_us <= FETCH_MAX_US, "a fetch took {took_us} us");
        let is_within = |s: RangeInclusive<f64>| s.contains(&quiet.as_secs_f64());
        let is_as_documented = match failures {
            0 => quiet.as_secs() == 10 && quiet + then == refresh,
            1 => is_within(0.5..=1.0),
            _ => is_within(1.0..=60.0),
        };
        assert!(is_as_documented, "{failures} failures, and pauses of {quiet:?} and {then:?}");
        match error {
            None => {
                let said = lock(&host).said.take().expect("the host has said nothing of use");
                assert!(said.len() <= JWKS_BYTES_MAX, "it has {} bytes", said.len());
                let said = Jwks::parse_published(&said).unwrap();
                assert_eq!(document.as_deref(), Some(&said), "the host has said another one");
                counts[0] += 1;
                counts[2] += u64::from(before != *document);
            }
            Some(_) => {
                assert_eq!(*document, before, "a failure changed the document");
                // A connection of before may fail once.
                calm_failures += u32::from(round >= rough);
                assert!(calm_failures <= 1, "{error:?}");
                counts[1] += 1;
            }
        }
        VirtualClock::pass(quiet + then);
    }
    counts
}

struct Host {
    rng: Rng,
    lies: bool,
    is_calm: bool,
    document: usize,
    /// The body of the last answer, if it may be of use.
    said: Option<Vec<u8>>,
}

impl Host {
    fn answer(&mut self, says: &mut SimSpeech) {
        if self.rng.percent(30) {
            self.document = self.rng.below(DOCUMENTS.len());
        }
        let document = DOCUMENTS[self.document].clone().into_bytes();
        if self.lies && self.rng.percent(60) {
            return self.lie(document, says);
        }
        self.say(document, says);
    }

    /// A whole answer, in one of the ways in which its length is said.
    fn say(&mut self, body: Vec<u8>, says: &mut SimSpeech) {
        self.said = Some(body.clone());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        // Without a length, a body that is cut short by the network may be as good as whole.
        let ways = if body.len() > JWKS_BYTES_MAX { 2 } else { 3 };
        match self.rng.below(ways) {
            0 => {
                says.say(format!("{head}Content-Length: {}\r\n\r\n", body.len()));
                says.say(body);
            }
            1 => {
                says.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
                for chunk in body.chunks(1 + self.rng.below(100)) {
                    says.say(
                        [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat(),
                    );
                }
                says.say("0\r\n\r\n");
            }
            _ => {
                says.say(format!("{head}Connection: close\r\n\r\n"));
                says.say(body);
                says.end();
            }
        }
    }

    fn lie(&mut self, mut document: Vec<u8>, says: &mut SimSpeech) {
        let length = document.len();
        match self.rng.below(9) {
            0 => {
                let status = ["500 Oh", "404 No", "302 There", "204 None"][self.rng.below(4)];
                says.say(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n"));
                says.say(document);
            }
            1 => {
                let at = self.rng.below(length);
                document[at] ^= 1 << self.rng.below(8);
                self.say(document, says);
            }
            2 => {
                document.truncate(self.rng.below(length));
                self.say(document, says);
            }
            3 => self.say(b"{\"keys\":[]}".to_vec(), says),
            4 => {
                document.resize(JWKS_BYTES_MAX + 1 + self.rng.below(100_000), b' ');
                self.say(document, says);
            }
            // A length that is wrong.
            5 => {
                let more = length + 1 + self.rng.below(100);
                says.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {more}\r\n\r\n"));
                says.say(document);
                says.end();
            }
            6 => says.say(format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(100_000))),
            7 => says.say("SSH-2.0-OpenSSH\r\n\r\n"),
            _ => {
                says.say(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"key\r\nzz\r\n",
                );
                says.say(document);
            }
        }
    }
}

/// One connection to the host.
struct Talk {
    host: Arc<Mutex<Host>>,
    input: Vec<u8>,
}

impl SimPeer for Talk {
    fn receive(&mut self, bytes: &[u8], says: &mut SimSpeech) {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") {
            self.input.drain(..end + 4);
            lock(&self.host).answer(says);
        }
    }
}

static DOCUMENTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let key = |(kid, algorithm)| Signer::new(algorithm).jwk(kid);
    let kinds = [("1", Algorithm::Es256), ("2", Algorithm::EdDsa), ("3", Algorithm::Es256)];
    let keys = kinds.map(key);
    let documents = [&keys[..1], &keys[1..2], &keys[..2], &keys];
    documents.map(|keys| format!(r#"{{"keys":[{}]}}"#, keys.join(","))).to_vec()
});

/// Dialling, the longest silence, and what the network adds to each piece of an answer.
const FETCH_MAX_US: u64 = 40_000_000;
