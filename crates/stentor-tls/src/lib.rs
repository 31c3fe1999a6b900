//! TLS 1.2 and 1.3 for a server with a million connections, most of which say nothing.
//!
//! rustls makes the handshake and is then thrown away: what stays of a connection are 112 bytes,
//! 128 with ChaCha20 in TLS 1.3, or 160 where the hash is SHA-384. Each record is sealed out of
//! bytes that all readers share, with an AEAD context that is made for it, into a buffer that the
//! caller has anyway.
//!
//! Nothing here knows of sockets, and nothing reads the clock: bytes go in, bytes come out, and the
//! time is a parameter.
//!
//! ```text
//!   Certificates, Tickets, Settings --> Acceptor --begin--> Handshake
//!   Handshake --receive(now, bytes, out)--> Established { session: Owned, negotiated }
//!
//!   Owned (or Kept in a slab) --session()--> Session --seal(parts, limit, out)--> bytes to send
//!   Inbound --records(arrived)--> Records --next(session)--> Data(plaintext in place), Closed
//! ```
//!
//! The contract of a connection: bytes go to [`Handshake::receive`] until it is done, and whatever
//! it did not use up is the beginning of the session's records. What it wrote is sent, whether it
//! succeeded or failed. Then what arrives goes to [`Inbound`], and what is to be sent to
//! [`Session::seal`]; a record that the socket takes only a part of is kept by the caller, and
//! never sealed again.
//!
//! | module | holds |
//! |---|---|
//! | `handshake` | [`Acceptor`], [`Handshake`], [`Connector`]: the only place that names rustls |
//! | `memory` | [`Owned`], [`Kept`]: what is kept of a connection |
//! | `session` | [`Session`]: sealing and opening records |
//! | `inbound` | [`Inbound`]: records that come in pieces |
//! | `contexts` | [`Contexts`]: what opens records, kept for those who send many |
//! | `keys`, `suite` | keys out of secrets, AEADs, the six suites |
//! | `alert`, `failure` | what is said when something is wrong |
//! | `certificates`, `names` | [`Certificates`]: files, names, who is shown which |
//! | `tickets` | [`Tickets`]: resumption without memory |

#![forbid(unsafe_code)]

mod alert;
#[cfg(test)]
mod authority;
mod certificates;
mod contexts;
mod failure;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod handshake;
mod inbound;
mod keys;
mod memory;
mod names;
mod session;
mod suite;
#[cfg(any(test, feature = "fuzz"))]
mod testing;
mod tickets;
mod x509;

pub use alert::{Alert, PeerAlert};
pub use certificates::{Certificates, Identity, KeyKind, Pair, PemPair};
pub use contexts::{ContextPage, Contexts};
pub use failure::{Failure, SealError};
pub use handshake::{
    Acceptor, ClientAuth, ClientHandshake, Connector, Established, HANDSHAKE_BYTES_MAX,
    HANDSHAKE_RECORDS_MAX, Handshake, HandshakeError, HandshakeFault, NO_CERTIFICATE_SHOWN,
    Negotiated, Progress, Settings, Trust, explain,
};
pub use inbound::{Inbound, Record, Records};
pub use memory::{Kept, LargeSession, MediumSession, NoSession, Owned, SmallSession};
pub use session::{Opened, SEAL_ROOM_MIN, Sealed, Session, What};
pub use suite::{FRAGMENT_BYTES_MAX, Suite, Version};
pub use tickets::{TICKET_PERIOD_S, TICKET_SECRET_BYTES_MIN, TICKET_SECRETS_MAX, Tickets};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Another version of rustls, or another library, is a matter of the handshake.
    #[test]
    fn rustls_is_named_by_the_handshake_alone() {
        let mut named = Vec::new();
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap_or_default();
            if text.lines().any(|line| line.starts_with("use rustls::")) {
                named.push(path.file_name().unwrap().to_owned());
            }
        }
        assert_eq!(named, ["handshake.rs"]);
    }
}
