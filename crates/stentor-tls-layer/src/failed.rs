//! The reasons why handshakes and sessions fail, by name.

use stentor_wire::labels;

labels! {
    /// Why a handshake came to nothing, or a session to its end before its time.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum TlsFailure {
        /// The first bytes are no handshake.
        NotTls = "not_tls",
        /// Client and server have no version or suite in common.
        NothingInCommon = "nothing_in_common",
        /// The client speaks no protocol of the server.
        NoProtocol = "no_protocol",
        /// The client's certificate is missing or no good.
        ClientCertificate = "client_certificate",
        /// A message could not be read.
        Malformed = "malformed",
        /// The client broke a rule of the protocol.
        Misbehaved = "misbehaved",
        /// A record was forged or changed.
        NotAuthentic = "not_authentic",
        /// A message was too long.
        TooLong = "too_long",
        /// The client gave up.
        Client = "client",
        /// The server failed.
        Internal = "internal",
        /// The client said nothing more, or its time was up.
        Unfinished = "unfinished",
        /// Others waited for its place.
        GivenUp = "given_up",
        /// A record behind the handshake was malformed.
        Record = "record",
        /// It came to a listener in the clear.
        NotSpokenHere = "not_spoken_here",
    }
}
