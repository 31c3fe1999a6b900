//! Compression, away from the workers.
//!
//! A message is compressed when the first client asks for it in that encoding; until the form is
//! ready, clients get the message as it is. A topic whose last value was asked for in some
//! encoding has its next value compressed as soon as it is published, so a value that many poll
//! is nearly always ready, and one that nobody reads costs nothing.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use stentor_hub::Message;
use stentor_wire::negotiate::{Encoding, Encodings};

/// A handle to the compressing thread, which ends with the last handle.
#[derive(Debug)]
pub(crate) struct Compressor {
    jobs: Sender<Job>,
}

/// A message nobody holds any more need not be compressed. The queue is bounded by the messages
/// themselves: each is asked for at most once per encoding.
type Job = (Weak<Message>, Encoding);

impl Compressor {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host refuses another thread.
    pub(crate) fn start() -> io::Result<Compressor> {
        let (jobs, queue) = mpsc::channel::<Job>();
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
        if message.ask(encoding) {
            // Fails only if the thread is gone; the message is then sent as it is.
            let _ = self.jobs.send((Arc::downgrade(message), encoding));
        }
    }

    /// A topic has a new value: what was asked of the old one will be asked of it.
    pub(crate) fn expect(&self, message: &Arc<Message>, asked_before: Encodings) {
        for encoding in Encoding::ALL {
            if asked_before.contains(encoding) && message.compressible() {
                self.ask(message, encoding);
            }
        }
    }
}

/// The queue of a compressor without a thread: a test says when a job is done.
#[cfg(test)]
pub(crate) struct Jobs(mpsc::Receiver<Job>);

#[cfg(test)]
impl Jobs {
    pub(crate) fn run_one(&self) {
        if let Ok((message, encoding)) = self.0.try_recv()
            && let Some(message) = message.upgrade()
        {
            message.compress(encoding);
        }
    }
}

#[cfg(test)]
impl Compressor {
    pub(crate) fn by_hand() -> (Compressor, Jobs) {
        let (jobs, queue) = mpsc::channel();
        (Compressor { jobs }, Jobs(queue))
    }
}
