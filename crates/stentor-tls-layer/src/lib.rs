//! TLS as a layer between the network and the worker, and the certificates that it shows.
//!
//! [`Secured`] is a backend around the backend, and [`Securing`] a handler around the worker, over
//! the [`Sessions`] of one worker. [`Acceptors`] begin the handshakes of all workers; a thread
//! reads the certificates again when their files change.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod certificates;
mod failed;
mod limits;
mod secured;

pub use certificates::{
    Acceptors, CertificatesReport, MissingTickets, Prepared, ShownCertificate, Unusable, inspect,
    start_thread,
};
pub use failed::TlsFailure;
pub use limits::{
    ENDING_MAX, HANDSHAKE_BYTES, HANDSHAKES_GRACE_MS, HANDSHAKES_MAX, LINGER_MS, RECORD_BYTES_MAX,
    STREAM_RECORD_BYTES_MAX,
};
#[cfg(feature = "check")]
pub use secured::Held;
pub use secured::{SESSIONS_FORMAT, Secured, Securing, Sessions, TlsCounts, Unpacking};
