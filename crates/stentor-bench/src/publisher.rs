//! Publishing, beside the load: one connection, one message after the other, each with the time
//! at which it was sent.
//!
//! This is one request at a time, a few hundred times a second at most: an ordinary client
//! library does it. It connects to the address that the target was checked with, and never resolves
//! the name itself.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use stentor_io::monotonic_us;
use ureq::config::Config;
use ureq::http::header::HOST;
use ureq::http::{Request, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use crate::crew::BenchError;
use crate::delivery::Stamp;
use crate::orders::Orders;
use crate::plan::Publish;
use crate::redact;
use crate::tally::{histogram, record};

/// Somebody who publishes.
pub(crate) struct Publisher {
    agent: Agent,
    publish: Publish,
    run: u32,
    text: Vec<u8>,
}

/// How far publishing has come; shared with whoever looks on.
#[derive(Debug, Default)]
pub(crate) struct PublishProgress {
    /// Messages published and accepted.
    pub(crate) messages: AtomicU32,
    /// No more will come.
    pub(crate) over: AtomicBool,
    /// Publish no more.
    pub(crate) stop: AtomicBool,
}

/// The result of publishing messages at a rate.
pub(crate) struct PublishResult {
    /// How long after its due time each publish was answered.
    pub(crate) took: Histogram<u64>,
    /// When the first message was due.
    pub(crate) began_us: u64,
    /// When the last publish was answered.
    pub(crate) last_us: u64,
    /// The error that ended it early.
    pub(crate) error: Option<BenchError>,
}

impl Publisher {
    pub(crate) fn new(publish: &Publish, run: u32) -> Publisher {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(ANSWER_TIMEOUT))
            .user_agent(concat!("stentor/", env!("CARGO_PKG_VERSION")));
        if let Some(tls) = &publish.tls {
            config = config.tls_config(tls.clone());
        }
        let resolver = FixedAddress(publish.target.address);
        // mutation: unchecked-address
        let agent = Agent::with_parts(config.build(), DefaultConnector::default(), resolver);
        Publisher { agent, publish: publish.clone(), run, text: Vec::new() }
    }

    /// Publishes message `number`.
    ///
    /// # Errors
    /// The server did not take it, and what it said.
    pub(crate) fn publish(&mut self, number: u32) -> Result<(), BenchError> {
        self.publish_since(number, monotonic_us())
    }

    /// The same, as if it had been published then.
    fn publish_since(&mut self, number: u32, since_us: u64) -> Result<(), BenchError> {
        let published_ns = since_us * 1000;
        self.text.clear();
        Stamp { run: self.run, number, published_ns }.render(&mut self.text, self.publish.size);
        let message = String::from_utf8_lossy(&self.text);
        let body = self.publish.body.replace("{message}", &message);
        let url = &self.publish.target.url;
        // The message may become part of a page, which is shared.
        let cannot = |why| BenchError(format!("publishing to {}: {why}", redact::url(url)));
        let mut request = Request::builder().method(&*self.publish.method).uri(url);
        request = request.header(HOST, &self.publish.target.host);
        for (name, value) in &self.publish.headers {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|error| cannot(error.to_string()))?;
        let mut answer = self.agent.run(request).map_err(|error| cannot(why(&error)))?;
        // Read to its end in any case, or the connection could not be used again.
        let mut said = Vec::new();
        let mut reader = answer.body_mut().as_reader().take(ANSWER_BYTES_MAX);
        reader.read_to_end(&mut said).map_err(|error| cannot(error.to_string()))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let first_line = said.lines().next().unwrap_or_default();
        Err(cannot(format!("{} {}", answer.status(), first_line.trim())))
    }

    /// Publishes messages 1 to `messages` at a rate, and keeps `published` up to date.
    pub(crate) fn publish_all(
        mut self,
        messages: u32,
        rate: f64,
        published: &Arc<PublishProgress>,
    ) -> PublishResult {
        let began_us = monotonic_us();
        let mut done =
            PublishResult { took: histogram(), began_us, last_us: began_us, error: None };
        for number in 1..=messages {
            let due_us = began_us + (f64::from(number - 1) * 1e6 / rate) as u64;
            if !wait_until(due_us, published) {
                break;
            }
            // Times count from when the message was due. If the server holds the publisher up, the
            // messages that wait behind are late, too.
            if let Err(error) = self.publish_since(number, due_us) {
                done.error = Some(error);
                break;
            }
            done.last_us = monotonic_us();
            record(&mut done.took, done.last_us - due_us);
            published.messages.store(number, Ordering::Release);
        }
        published.over.store(true, Ordering::Release);
        done
    }
}

impl Publisher {
    /// Publishes messages from 1 on at a rate, as long as requests may be sent, and keeps
    /// `published` up to date. Delivery counts from when a message was due. Returns the error that
    /// ended it.
    pub(crate) fn publish_on(
        mut self,
        rate: f64,
        orders: &Orders,
        published: &PublishProgress,
    ) -> Option<BenchError> {
        for number in 1.. {
            let due_us = loop {
                if orders.stopping() || published.stop.load(Ordering::Relaxed) {
                    return None;
                }
                // Whoever pauses moves what comes after.
                let since_us = orders.going_since();
                let due_us = since_us.map(|us| us + (f64::from(number - 1) * 1e6 / rate) as u64);
                let now_us = monotonic_us();
                match due_us {
                    Some(due_us) if due_us <= now_us => break due_us,
                    Some(due_us) => sleep_us((due_us - now_us).min(LOOK_US)),
                    None => sleep_us(LOOK_US),
                }
            };
            if let Err(error) = self.publish_since(number, due_us) {
                return Some(error);
            }
            published.messages.store(number, Ordering::Release);
        }
        None
    }
}

/// Resolves every name to the address of the target, which was checked to be private. A second
/// lookup could lead to another address.
#[derive(Debug)]
struct FixedAddress(SocketAddr);

impl Resolver for FixedAddress {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(self.0);
        Ok(addresses)
    }
}

/// What is wrong, in plain words if it is a matter of TLS.
fn why(error: &Error) -> String {
    let of_tls = match error {
        Error::Io(error) => stentor_tls::explain(error),
        Error::Rustls(error) => stentor_tls::explain(error),
        _ => None,
    };
    of_tls.map_or_else(|| error.to_string(), |what| format!("TLS: {what}"))
}

fn sleep_us(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}

/// How soon an order to pause is heard.
const LOOK_US: u64 = 5_000;

/// Sleeps until then; says whether to go on.
fn wait_until(due_us: u64, published: &PublishProgress) -> bool {
    loop {
        if published.stop.load(Ordering::Relaxed) {
            return false;
        }
        let now_us = monotonic_us();
        if now_us >= due_us {
            return true;
        }
        std::thread::sleep(Duration::from_micros(due_us - now_us).min(NAP_MAX));
    }
}

/// Fan-outs to a million readers may take long to be accepted.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Nobody says more than this about a publish.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// How soon an order to stop is heard.
const NAP_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::delivery::STAMP_BYTES;
    use crate::target::Target;

    /// The head of the request that a publisher sends to a target, without its end.
    fn head_sent_to(change: impl FnOnce(&mut Target)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut target = Target::parse(&format!("http://{}/a", listener.local_addr().unwrap()));
        change(target.as_mut().unwrap());
        let server = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
            stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
            head.to_ascii_lowercase()
        });
        let publish = Publish {
            target: target.unwrap(),
            method: "PUT".to_owned(),
            headers: Vec::new(),
            body: "{message}".to_owned(),
            size: STAMP_BYTES,
            tls: None,
        };
        Publisher::new(&publish, 1).publish(0).unwrap();
        server.join().unwrap()
    }

    #[test]
    fn a_publish_carries_the_host_of_the_target() {
        let head = head_sent_to(|target| target.host = "example.com".to_owned());
        assert_eq!(head.matches("host:").count(), 1, "{head}");
        assert!(head.contains("\nhost: example.com"), "{head}");
    }

    #[test]
    fn a_publisher_resolves_no_name() {
        let head = head_sent_to(|target| target.url = "http://no-such-host.invalid/a".to_owned());
        assert!(head.starts_with("put /a http/1.1"), "{head}");
    }
}
