//! Connections that ask: in a closed loop, where the next request waits for the answer to the
//! last, or in an open loop, where requests are due at fixed times.
//!
//! In an open loop latency counts from when a request was due. If all connections are busy then,
//! because the server is slow, it waits, and its waiting is part of what is measured: a server
//! that stalls for a second is charged with every request of that second, not with one for each
//! connection ("coordinated omission" is the name for leaving them out).

use std::collections::VecDeque;

use stentor_io::{Flow, Peer, monotonic_us};

use super::{
    Connection, ConnectionStage, NO_ANSWER, OPENED_PER_TURN, PATIENCE_US, Wire, Worker,
    connect_error,
};
use crate::exchange::{AnswerParser, Seen};
use crate::orders::{RequestWork, ThreadWork, share};
use crate::plan::Closing;
use crate::request::RequestTemplate;
use crate::tally::record;

/// What a thread's requesters have in common.
pub(super) struct Requesters {
    burst: Burst,
    pipeline: u16,
    closing: Closing,
    /// Connections there are, on their way or open.
    live: u64,
    /// Open, and nothing to do; some may have ended since.
    idle: VecDeque<Peer>,
    /// Requests still to be sent.
    left: u64,
    pace: Option<RequestPace>,
    /// Nothing is opened before this time of the backend, after failures with no answer between.
    retry_at_ms: u64,
    /// Something failed, and no answer has come since.
    failing: bool,
}

/// Requests that are sent at once, as bytes.
enum Burst {
    /// `bytes` has the same request as often as it is pipelined.
    Equal { bytes: Vec<u8>, request_bytes: usize },
    /// Each has the number of its topic. Threads take numbers in turn.
    Numbered { template: RequestTemplate, next: u64, threads: u64, bytes: Vec<u8> },
}

/// When requests are due.
struct RequestPace {
    interval_us: f64,
    /// Where in the interval this thread has its turn, so that threads do not all send at once.
    offset_us: f64,
    /// Requests that have been sent.
    sent: u64,
}

impl Requesters {
    pub(super) fn new(work: &ThreadWork, thread: usize) -> Requesters {
        let Some(own) = &work.requesters else { return Requesters::none() };
        // Requests are shared among the threads that have a connection to send them on.
        let threads = work.threads.min(own.connections as usize);
        if thread >= threads {
            return Requesters::none();
        }
        Requesters {
            burst: Burst::new(&own.request, own.pipeline, thread, threads),
            pipeline: own.pipeline,
            closing: own.closing,
            left: own.limit.map_or(u64::MAX, |limit| share(limit, thread, threads)),
            pace: RequestPace::new(own, thread, threads),
            ..Requesters::none()
        }
    }

    fn none() -> Requesters {
        Requesters {
            burst: Burst::default(),
            pipeline: 1,
            closing: Closing::Keep,
            live: 0,
            idle: VecDeque::new(),
            left: 0,
            pace: None,
            retry_at_ms: 0,
            failing: false,
        }
    }

    /// The time from which the next request counts, if one may be sent now.
    fn next_began_us(&self, going_since_us: u64, now_us: u64) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        match &self.pace {
            None => Some(now_us),
            Some(pace) => Some(pace.due_us(going_since_us)).filter(|&due_us| due_us <= now_us),
        }
    }
}

impl Burst {
    fn new(template: &RequestTemplate, pipeline: u16, thread: usize, threads: usize) -> Burst {
        if template.topics.is_some() {
            let (next, threads) = (thread as u64, threads as u64);
            return Burst::Numbered {
                template: template.clone(),
                next,
                threads,
                bytes: Vec::new(),
            };
        }
        let mut request = Vec::new();
        template.render(0, &mut request);
        Burst::Equal { bytes: request.repeat(pipeline.into()), request_bytes: request.len() }
    }

    /// The next `requests`, which are as many as are pipelined at most.
    fn next(&mut self, requests: u64) -> &[u8] {
        match self {
            Burst::Equal { bytes, request_bytes } => &bytes[..requests as usize * *request_bytes],
            Burst::Numbered { template, next, threads, bytes } => {
                bytes.clear();
                for _ in 0..requests {
                    template.render(*next, bytes);
                    *next += *threads;
                }
                bytes
            }
        }
    }
}

impl Default for Burst {
    fn default() -> Burst {
        Burst::Equal { bytes: Vec::new(), request_bytes: 0 }
    }
}

impl RequestPace {
    fn new(work: &RequestWork, thread: usize, threads: usize) -> Option<RequestPace> {
        let interval_us = 1e6 * threads as f64 / work.rate?;
        let offset_us = interval_us * thread as f64 / threads as f64;
        Some(RequestPace { interval_us, offset_us, sent: 0 })
    }

    fn due_us(&self, going_since_us: u64) -> u64 {
        going_since_us + (self.offset_us + self.interval_us * self.sent as f64) as u64
    }
}

impl Worker {
    /// Opens what is missing and sends what is due.
    pub(super) fn tend_requesters(&mut self, io: &mut Wire<'_>) -> Option<u64> {
        self.work.requesters.as_ref()?;
        let going_since = self.orders.going_since();
        if self.requesters.closing == Closing::Keep
            && let Some(going_since_us) = going_since
        {
            self.dispatch(io, going_since_us);
        }
        self.open_requesters(io, going_since)
    }

    /// When this thread has to look again because a request comes due, and not because something
    /// happens on a connection.
    pub(super) fn next_due_us(&self) -> Option<u64> {
        let going_since_us = self.orders.going_since()?;
        let pace = self.requesters.pace.as_ref().filter(|_| self.requesters.left > 0)?;
        Some(pace.due_us(going_since_us)).filter(|&due_us| due_us > self.now_us)
    }

    /// Sends on idle connections whatever is due.
    fn dispatch(&mut self, io: &mut Wire<'_>, going_since_us: u64) {
        loop {
            self.now_us = monotonic_us();
            let due = self.requesters.next_began_us(going_since_us, self.now_us);
            let Some(began_us) = due else { return };
            let Some(socket) = self.requesters.idle.pop_front() else { return };
            let connection = self.at(socket);
            // It may have ended, and its number may belong to another by now.
            if connection.stage == ConnectionStage::Open
                && !connection.is_holder()
                && connection.answers_due == 0
            {
                let _ = self.ask(io, socket, began_us);
            }
        }
    }

    /// Connections that are kept are opened in advance; others each for its request.
    fn open_requesters(&mut self, io: &mut Wire<'_>, going_since: Option<u64>) -> Option<u64> {
        let total = self.orders.requesters.load(std::sync::atomic::Ordering::Relaxed);
        let wanted = share(total.into(), self.index, self.work.threads);
        for _ in 0..OPENED_PER_TURN {
            if self.requesters.live >= wanted {
                return None;
            }
            if io.now_ms() < self.requesters.retry_at_ms {
                return Some(self.requesters.retry_at_ms);
            }
            self.now_us = monotonic_us();
            let began_us = match (self.requesters.closing, going_since) {
                (Closing::Keep, _) => self.now_us,
                (_, None) => return None,
                (_, Some(since)) => self.requesters.next_began_us(since, self.now_us)?,
            };
            match self.dial(io, None, Connection { began_us, ..Connection::default() }) {
                Ok(_) => {
                    self.requesters.live += 1;
                    if self.requesters.closing != Closing::Keep {
                        self.requesters.count_sent(1);
                    }
                }
                Err(error) => {
                    self.requesters.retry_at_ms = io.now_ms() + RETRY_MS;
                    self.error(connect_error(&error));
                }
            }
        }
        Some(io.now_ms())
    }

    pub(super) fn requester_connected(&mut self, io: &mut Wire<'_>, socket: Peer) -> Flow {
        self.tally.requesters_opened.add(1);
        self.tally.requester_opened_us.set(self.now_us);
        if self.requesters.closing == Closing::Keep {
            return self.go_on(io, socket);
        }
        self.at(socket).answers_due = 1;
        self.send_requests(io, socket, 1)
    }

    /// Nothing is under way on the connection: sends what is due, or lets it wait.
    fn go_on(&mut self, io: &mut Wire<'_>, socket: Peer) -> Flow {
        let began_us = self
            .orders
            .going_since()
            .and_then(|since| self.requesters.next_began_us(since, self.now_us));
        match began_us {
            Some(began_us) => self.ask(io, socket, began_us),
            None => {
                self.requesters.idle.push_back(socket);
                Flow::More
            }
        }
    }

    /// Sends one request, or as many as are pipelined.
    fn ask(&mut self, io: &mut Wire<'_>, socket: Peer, began_us: u64) -> Flow {
        let requests = self.requesters.left.min(self.requesters.pipeline.into());
        self.requesters.count_sent(requests);
        let connection = self.at(socket);
        connection.began_us = began_us;
        connection.answers_due = requests as u16;
        self.send_requests(io, socket, requests)
    }

    fn send_requests(&mut self, io: &mut Wire<'_>, socket: Peer, requests: u64) -> Flow {
        let mut burst = std::mem::take(&mut self.requesters.burst);
        let flow = self.request(io, socket, burst.next(requests));
        self.requesters.burst = burst;
        flow
    }

    pub(super) fn requester_saw(
        &mut self,
        io: &mut Wire<'_>,
        socket: Peer,
        seen: Seen<'_>,
    ) -> Flow {
        match seen {
            Seen::More | Seen::Data(_) => Flow::More,
            Seen::Head(head) => {
                self.at(socket).closes = !head.keep_alive;
                self.outcome.status(head.status);
                if !(200..400).contains(&head.status) {
                    self.error(format!("status {}", head.status).into());
                }
                Flow::More
            }
            Seen::End => self.answered(io, socket),
            Seen::Frame(_) => {
                self.broken(io, socket, "a WebSocket nobody asked for".into());
                Flow::Closed
            }
        }
    }

    /// An answer is there, whole.
    fn answered(&mut self, io: &mut Wire<'_>, socket: Peer) -> Flow {
        let now_us = self.now_us;
        let connection = self.at(socket);
        if connection.answers_due == 0 {
            self.broken(io, socket, "an answer nobody asked for".into());
            return Flow::Closed;
        }
        connection.answers_due -= 1;
        connection.settled = true;
        let (began_us, closes, due) =
            (connection.began_us, connection.closes, connection.answers_due);
        self.requesters.failing = false;
        self.tally.completed.add(1);
        self.tally.completed_us.set(now_us);
        let latency = &mut self.outcome.latency[self.orders.period(began_us)];
        record(latency, now_us.saturating_sub(began_us));
        match self.requesters.closing {
            Closing::Keep if !closes && due > 0 => Flow::More,
            Closing::Keep if !closes => self.go_on(io, socket),
            Closing::Reset => {
                self.let_go(socket);
                io.abort(socket);
                Flow::Closed
            }
            _ => {
                self.let_go(socket);
                io.close(socket);
                Flow::Closed
            }
        }
    }

    /// The server has closed a connection in order.
    pub(super) fn requester_ended(&mut self, io: &mut Wire<'_>, socket: Peer) {
        let connection = self.at(socket);
        let in_body = matches!(connection.exchange, AnswerParser::UntilClose);
        if in_body {
            connection.closes = true;
            if io.was_cut(socket) {
                return self.broken(io, socket, "TLS: cut before the end of an answer".into());
            }
            let _ = self.answered(io, socket);
        } else if connection.answers_due > 0 {
            self.broken(io, socket, "closed before the answer".into());
        } else if !connection.settled {
            // Nothing was asked on it yet. To come back at once would be a flood.
            self.broken(io, socket, "closed before a request".into());
        } else {
            self.let_go(socket);
            self.tally.dropped.add(1);
            io.close(socket);
        }
    }

    /// The connection has done what it was for. Answers that will not come are asked for again.
    fn let_go(&mut self, socket: Peer) {
        let connection = std::mem::take(self.at(socket));
        self.tally.connections.sub(1);
        self.requesters.live -= 1;
        self.requesters.give_back(connection.answers_due.into());
    }

    pub(super) fn requester_broken(&mut self, io: &mut Wire<'_>, connection: &Connection) {
        self.requesters.live -= 1;
        // One that fails among others that are answered is no reason to hold back the load.
        if std::mem::replace(&mut self.requesters.failing, true) {
            self.requesters.retry_at_ms = io.now_ms() + RETRY_MS;
        }
        let lost = match (connection.stage, self.requesters.closing) {
            (ConnectionStage::Connecting, Closing::Keep) => 0,
            (ConnectionStage::Connecting, _) => 1,
            _ => connection.answers_due,
        };
        self.tally.lost.add(lost.into());
        if connection.stage == ConnectionStage::Open && self.requesters.closing == Closing::Keep {
            self.tally.dropped.add(1);
        }
    }

    /// What is under way when the run ends, and has been for long, will not come any more. What is
    /// younger is neither an answer nor an error.
    pub(super) fn sum_up_requesters(&mut self) {
        let long_ago_us = self.now_us.saturating_sub(PATIENCE_US);
        let mut unanswered = 0;
        for connection in &self.connections {
            if !connection.is_holder() && connection.began_us < long_ago_us {
                unanswered += match (connection.stage, self.requesters.closing) {
                    (ConnectionStage::Connecting, Closing::Fin | Closing::Reset) => 1,
                    _ => u64::from(connection.answers_due),
                };
            }
        }
        // Those that were due and had no connection to go by.
        if let (Some(pace), Some(since_us)) = (&self.requesters.pace, self.orders.began_us()) {
            let late_us = long_ago_us.saturating_sub(pace.due_us(since_us)) as f64;
            unanswered += ((late_us / pace.interval_us) as u64).min(self.requesters.left);
        }
        self.outcome.unanswered = unanswered;
        self.outcome.errors_of(NO_ANSWER.into(), unanswered);
    }
}

impl Requesters {
    fn count_sent(&mut self, requests: u64) {
        if self.left != u64::MAX {
            self.left -= requests;
        }
        if let Some(pace) = &mut self.pace {
            pace.sent += requests;
        }
    }

    /// Requests that were sent and will not be answered are due again, as they were.
    fn give_back(&mut self, requests: u64) {
        self.left = self.left.saturating_add(requests);
        if let Some(pace) = &mut self.pace {
            pace.sent -= requests;
        }
    }
}

/// How long nothing is opened after something went wrong: a server that is down is not flooded.
const RETRY_MS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::{AddressSources, Rank};
    use crate::plan::{RequestLoop, RequestMethod, Until};
    use crate::target::Target;

    fn work(threads: usize, connections: u32, rate: Option<f64>, limit: Option<u64>) -> ThreadWork {
        ThreadWork {
            address: ([127, 0, 0, 1], 80).into(),
            secure: None,
            sources: AddressSources::Any,
            threads,
            rank: Rank::Usual,
            requesters: Some(RequestWork {
                request: template(None),
                connections,
                pipeline: 2,
                closing: Closing::Keep,
                rate,
                limit,
            }),
            holders: None,
            elsewhere: Vec::new(),
        }
    }

    /// Requests of one loop to `topics` topics.
    fn template(topics: Option<u32>) -> RequestTemplate {
        let requests = RequestLoop {
            method: RequestMethod::Put(2),
            topics,
            connections: 1,
            pipeline: 2,
            closing: Closing::Keep,
            until: Until::Requests(1),
            rate: None,
        };
        let target = Target::parse("http://127.0.0.1/a").unwrap();
        RequestTemplate::new(&requests, &target, &[])
    }

    #[test]
    fn threads_take_topics_in_turn() {
        let paths = |thread: usize, threads: usize| -> Vec<String> {
            let mut burst = Burst::new(&template(Some(5)), 2, thread, threads);
            let text: String =
                (0..3).map(|_| String::from_utf8_lossy(burst.next(2)).into_owned()).collect();
            let paths = text.split("PUT ").skip(1).filter_map(|request| request.split(' ').next());
            paths.map(str::to_owned).collect()
        };
        assert_eq!(paths(0, 1), ["/a/0", "/a/1", "/a/2", "/a/3", "/a/4", "/a/0"]);
        assert_eq!(paths(1, 2), ["/a/1", "/a/3", "/a/0", "/a/2", "/a/4", "/a/1"]);
        let mut equal = Burst::new(&template(None), 2, 0, 1);
        let one = equal.next(1).to_vec();
        assert!(one.starts_with(b"PUT /a HTTP/1.1\r\n") && one.ends_with(b"\r\n\r\nxx"));
        assert_eq!(equal.next(2), one.repeat(2));
    }

    #[test]
    fn together_all_threads_ask_at_the_rate() {
        for (threads, connections) in [(1, 1), (3, 9), (4, 3), (7, 1)] {
            let work = work(threads, connections, Some(500.0), None);
            let mut due: Vec<u64> = (0..threads)
                .filter_map(|thread| Requesters::new(&work, thread).pace)
                .flat_map(|pace| {
                    let at = move |sent| RequestPace { sent, ..pace }.due_us(1_000);
                    (0..100).map(at).take_while(|&at_us| at_us < 101_000)
                })
                .collect();
            due.sort_unstable();
            // 50 in a tenth of a second, one every two milliseconds.
            assert_eq!(due.len(), 50, "{threads} threads, {connections} connections");
            let even = due.iter().zip(0..).all(|(&at, nth)| at.abs_diff(1_000 + nth * 2_000) <= 1);
            assert!(even, "{threads} threads, {connections} connections: {due:?}");
        }
    }

    #[test]
    fn what_is_given_back_is_due_again() {
        let work = work(1, 1, Some(500.0), Some(10));
        let mut requesters = Requesters::new(&work, 0);
        requesters.count_sent(8);
        requesters.give_back(7);
        assert_eq!(requesters.left, 9);
        assert_eq!(requesters.next_began_us(0, 10_000), Some(2_000));
        requesters.count_sent(9);
        assert_eq!(requesters.next_began_us(0, u64::MAX), None);
    }

    #[test]
    fn whoever_has_no_connection_has_no_requests() {
        for (threads, connections) in [(1, 1), (3, 9), (4, 3), (7, 1)] {
            let work = work(threads, connections, None, Some(10));
            let left: Vec<u64> =
                (0..threads).map(|thread| Requesters::new(&work, thread).left).collect();
            assert_eq!(left.iter().sum::<u64>(), 10);
            for (thread, &left) in left.iter().enumerate() {
                let own = share(connections.into(), thread, threads);
                assert_eq!(left > 0, own > 0, "{threads} threads, {connections} connections");
            }
        }
    }
}
