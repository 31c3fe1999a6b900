//! Compression, away from the workers.
//!
//! A message is compressed when the first client asks for it in that encoding; until the form is
//! ready, clients get the message as it is. A topic whose last value was asked for in some
//! encoding has its next value compressed as soon as it is published, so a value that many poll
//! is nearly always ready, and one that nobody asks for any more costs nothing.
//!
//! Whoever waits for a worker waits for an answer, and whoever waits for this thread has had one:
//! so it runs at a lower priority than they do.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use stentor_hub::{Encoder, Message};
use stentor_io::lower_priority;
use stentor_wire::negotiate::{Encoding, Encodings};

/// A handle to the compressing thread, which ends with the last handle.
#[derive(Clone, Debug)]
pub struct Compressor {
    jobs: SyncSender<CompressJob>,
}

/// A message that nobody holds any more need not be compressed.
type CompressJob = (Weak<Message>, Encoding);

/// What is to be compressed. Nobody does until it is started.
pub struct Jobs {
    queue: mpsc::Receiver<CompressJob>,
    encoder: Encoder,
}

impl Jobs {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host refuses another thread.
    pub fn start(mut self) -> io::Result<()> {
        let life = move || {
            if let Err(error) = lower_priority() {
                tracing::warn!("compression runs at the priority of the workers: {error}");
            }
            for job in self.queue {
                work(&mut self.encoder, &job);
            }
        };
        thread::Builder::new().name("compressor".to_owned()).spawn(life).map(drop)
    }

    /// Does the next job, if there is one: a test says when.
    pub fn run_one(&mut self) -> bool {
        let job = self.queue.try_recv();
        job.inspect(|job| work(&mut self.encoder, job)).is_ok()
    }
}

impl Compressor {
    /// The handle, and what is to be started once the process is who it is to be.
    pub fn new() -> (Compressor, Jobs) {
        let (jobs, queue) = mpsc::sync_channel(COMPRESS_QUEUE);
        (Compressor { jobs }, Jobs { queue, encoder: Encoder::default() })
    }

    /// A client would like `message` in `encoding`: makes it so, some time soon.
    pub fn ask(&self, message: &Arc<Message>, encoding: Encoding) {
        if message.ask(encoding) && !self.enqueue(message, encoding) {
            message.forget(encoding);
        }
    }

    /// A topic has a new value: what clients asked of the old one they will ask of it.
    pub fn expect(&self, message: &Arc<Message>, asked_before: Encodings) {
        for encoding in Encoding::ALL {
            if asked_before.contains(encoding) && message.compressible() {
                // Should the queue be full, the clients themselves will ask.
                self.enqueue(message, encoding);
            }
        }
    }

    fn enqueue(&self, message: &Arc<Message>, encoding: Encoding) -> bool {
        self.jobs.try_send((Arc::downgrade(message), encoding)).is_ok()
    }
}

/// Does a job. A panic costs its message this form, and nothing else.
fn work(encoder: &mut Encoder, (message, encoding): &CompressJob) {
    let Some(message) = message.upgrade() else { return };
    let done = encoder.outlive(|encoder| {
        #[cfg(test)]
        assert_ne!(message.content_type(), PANICS);
        message.compress(encoder, *encoding);
    });
    if done.is_none() {
        tracing::error!(
            "compressing message {} in {} panicked; it is left as it is, and the thread goes on",
            message.id(),
            encoding.token()
        );
    }
}

/// Messages that may wait to be compressed; beyond it they are sent as they are.
const COMPRESS_QUEUE: usize = 16 * 1024;

/// The type of a message that cannot be compressed.
#[cfg(test)]
const PANICS: &str = "text/x-panics";

#[cfg(test)]
mod tests {
    use super::*;
    use stentor_hub::{ContentType, Draft, Epoch, Hub, Limits, Precondition};
    use stentor_wire::target::TopicName;

    fn hub() -> Hub {
        Hub::new(Epoch::parse("0badcafe").unwrap(), vec![], Limits::default())
    }

    fn publish(hub: &Hub, topic: &str, kind: &str) -> Arc<Message> {
        let draft = Draft::new([b'a'; 1_000]);
        let draft = draft.with_content_type(ContentType::parse(kind).unwrap());
        let topic = TopicName::parse(topic).unwrap();
        hub.publish(topic, draft, Precondition::None, 0).unwrap().message
    }

    fn has(message: &Message) -> bool {
        message.available().contains(Encoding::Gzip)
    }

    #[test]
    fn a_refused_job_is_asked_for_again() {
        let (hub, (compressor, mut jobs)) = (hub(), Compressor::new());
        let [other, late] = ["/a", "/b"].map(|topic| publish(&hub, topic, "text/plain"));
        let asked = Encodings::from_iter([Encoding::Gzip]);
        (0..COMPRESS_QUEUE).for_each(|_| compressor.expect(&other, asked));
        compressor.ask(&late, Encoding::Gzip);
        while jobs.run_one() {}
        assert!(has(&other) && !has(&late), "the queue was full");
        compressor.ask(&late, Encoding::Gzip);
        assert!(jobs.run_one() && has(&late));
    }

    #[test]
    fn a_panic_costs_one_job() {
        let hub = hub();
        let message = |kind: &str| publish(&hub, "/a", kind);
        let (compressor, mut jobs) = Compressor::new();
        let (before, bad) = (message("text/plain"), message(PANICS));
        compressor.ask(&bad, Encoding::Gzip);
        assert!(jobs.run_one());
        let after = message("text/plain");
        compressor.ask(&before, Encoding::Gzip);
        compressor.ask(&after, Encoding::Gzip);
        assert!(jobs.run_one() && jobs.run_one() && !jobs.run_one());
        assert_eq!([&before, &bad, &after].map(|message| has(message)), [false, false, true]);
    }
}
