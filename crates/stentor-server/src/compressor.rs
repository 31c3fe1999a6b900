//! Compression, away from the workers.
//!
//! A message is compressed when the first client asks for it in that encoding; until the form is
//! ready, clients get the message as it is. A topic whose last value was asked for in some
//! encoding has its next value compressed as soon as it is published, so a value that many poll
//! is nearly always ready, and one that nobody asks for any more costs nothing.

use crate::limits::COMPRESS_QUEUE;
use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use stentor_hub::Message;
use stentor_wire::negotiate::{Encoding, Encodings};

/// A handle to the compressing thread, which ends with the last handle.
#[derive(Debug)]
pub(crate) struct Compressor {
    jobs: SyncSender<Job>,
}

/// A message that nobody holds any more need not be compressed.
type Job = (Weak<Message>, Encoding);

impl Compressor {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host refuses another thread.
    pub(crate) fn start() -> io::Result<Compressor> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(COMPRESS_QUEUE);
        thread::Builder::new().name("compressor".to_owned()).spawn(move || {
            for (message, encoding) in queue {
                if let Some(message) = message.upgrade() {
                    message.compress(encoding);
                }
            }
        })?;
        Ok(Compressor { jobs })
    }

    /// A client would like `message` in `encoding`: makes it so, some time soon.
    pub(crate) fn ask(&self, message: &Arc<Message>, encoding: Encoding) {
        if message.ask(encoding) && !self.enqueue(message, encoding) {
            message.forget(encoding);
        }
    }

    /// A topic has a new value: what clients asked of the old one they will ask of it.
    pub(crate) fn expect(&self, message: &Arc<Message>, asked_before: Encodings) {
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

/// The queue of a compressor without a thread: a test says when a job is done.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) struct Jobs(mpsc::Receiver<Job>);

#[cfg(any(test, feature = "fuzz"))]
impl Jobs {
    /// Does the next job, if there is one.
    pub(crate) fn run_one(&self) -> bool {
        let job = self.0.try_recv();
        if let Ok((message, encoding)) = &job
            && let Some(message) = message.upgrade()
        {
            message.compress(*encoding);
        }
        job.is_ok()
    }
}

#[cfg(any(test, feature = "fuzz"))]
impl Compressor {
    pub(crate) fn by_hand() -> (Compressor, Jobs) {
        let (jobs, queue) = mpsc::sync_channel(COMPRESS_QUEUE);
        (Compressor { jobs }, Jobs(queue))
    }
}
