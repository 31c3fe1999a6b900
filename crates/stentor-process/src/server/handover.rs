//! What two processes of a server say to each other while one hands over to the other.
//!
//! ```text
//!   the one that serves                         the one that was started
//!   -------------------                         ------------------------
//!   what I am, and a token       ------------>  is that what I can be?
//!                                <------------  where my workers wait for yours
//!   the hub, and what changes    ------------>
//!                                <------------  the hub is there
//!   each worker its sockets      ============>  each worker the same numbers
//!   publishers are held, and the store is flushed
//!   where the store ends         ------------>
//!   all stand still
//!   last changes, what I counted ------------>
//!   each worker its rest         ============>  each worker unpacks what has come
//!                                               the last one takes the token, and all serve
//!                                <------------  gone on
//!   ends
//! ```
//!
//! The process that was started forks: its child is the one that takes over, and it waits for that
//! ([`Intermediate`](stentor_io::Intermediate)). The first message may bring a file:
//! how to tell the first process, which waits for the end of the server
//! ([`WaitingParent`](stentor_io::WaitingParent)), that another one serves. The process that takes
//! over tells it before it takes the token.
//!
//! There is one token, which the kernel gives to whoever takes it first ([`Token`]). Whoever has it
//! goes on: the second once it has everything, the first if anything fails before, or if the budget
//! of the pause is exceeded (`pause.rs`). Until it is taken the first could go on as if nothing had
//! been; once the second has it, the first touches no connection. So nobody who stands still waits
//! for a question to be answered.
//!
//! The first continues as soon as it has the token: the second serves no connection and writes
//! nothing without the token. Only then the first ends the second. Until the second has ended, both
//! have the same sockets open, so the first shuts a connection down before it closes its own
//! descriptor. Otherwise the kernel would end the connection with the end of the second, and by a
//! reset if the client had sent more bytes.
//!
//! No process waits for a disk in the freeze. The store is flushed before, while readers are
//! served and publishers are held. Only numbers go over ([`put_tip`]): the process that takes over
//! has the entries, and begins a segment of its own once it serves.
//!
//! No worker packs before all stand still: one that still published would tell readers of another,
//! which has packed, of something that the next process does not owe them.
//!
//! While all stand still, each thread that has to be woken before another can go on costs more than
//! what it does, on a machine that is busy. So workers wait for each other ([`Gate`]) and not for
//! whoever runs the server; and what is packed is unpacked while more is packed.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stentor_access::{Fetched, Jwks};
use stentor_config::{ControlAddress, PairFiles};
use stentor_hub::{ENTRY_VERSION, Epoch, Life};
use stentor_io::{Channel, Role, Token, listener_of};
use stentor_log::Tip;
use stentor_order::HubChange;
use stentor_server::{History, Upgraded, WORKER_FORMAT};
use stentor_tls_layer::SESSIONS_FORMAT;
use stentor_wire::pack::{Packed, Packer, Unpacker, format};
use stentor_wire::packed;
use zeroize::Zeroizing;

/// The state of a server that goes over, but for its hub, its store, its counters and its workers:
/// they follow by messages of their own. [`Server::state`](super::Server) makes it, and names what
/// begins from scratch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerState {
    /// The life of the numbers of messages.
    pub(super) epoch: u32,
    /// Where it begins in the numbers of the process.
    pub(super) base: u64,
    pub(super) workers_public: usize,
    pub(super) workers: usize,
    /// The topics that are followed, if anybody is: the order is made elsewhere then.
    pub(super) follows: Option<Vec<String>>,
    /// The first and the last SEQs of what was taken back there.
    pub(super) rolled_back: Vec<[u64; 2]>,
    /// The directory of the store.
    pub(super) store: Option<String>,
    /// Roles, and the addresses as they were bound.
    pub(super) addresses: Vec<Address>,
    /// The files of certificates and keys of which no valid certificate is presented.
    pub(super) left_out: Vec<[String; 2]>,
    /// Wall clock at the start of the server, in seconds since 1970.
    pub(super) started_unix_s: u64,
    /// What came of the upgrades before this one.
    pub(super) upgrades: History<Upgraded>,
    /// The documents that were fetched from issuers.
    pub(super) documents: Vec<PackedDocument>,
    /// The secret of TLS tickets, if no file has it.
    pub(super) ticket_secret: Option<Vec<u8>>,
}

packed!(struct ServerState {
    epoch, base, workers_public, workers, follows, rolled_back, store, addresses, left_out,
    started_unix_s, upgrades, documents, ticket_secret,
});

/// An address that is listened on, as it was bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) role: Role,
    pub(super) at: String,
}

packed!(struct Address { role, at });

/// A document with keys of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedDocument {
    url: String,
    json: Option<Vec<u8>>,
}

packed!(struct PackedDocument { url, json });

impl PackedDocument {
    pub(super) fn of(Fetched { url, document }: Fetched) -> PackedDocument {
        let json = document.map(|document| document.json().to_vec());
        PackedDocument { url: url.as_str().to_owned(), json }
    }
}

impl Address {
    pub(super) fn is_same(&self, role: Role, at: &ControlAddress) -> bool {
        if self.role != role {
            return false;
        }
        match (at, self.at.parse()) {
            // Whichever port it was.
            (ControlAddress::Tcp(tcp), Ok(ControlAddress::Tcp(bound))) if tcp.port() == 0 => {
                bound.ip() == tcp.ip()
            }
            (at, Ok(bound)) => *at == bound,
            (_, Err(_)) => false,
        }
    }

    /// Whether it is the same but for TLS: who has come by it keeps what was spoken there then.
    pub(super) fn is_same_at(&self, role: Role, at: &ControlAddress) -> bool {
        listener_of(self.role) == listener_of(role)
            && self.at.parse().is_ok_and(|bound| *at == bound)
    }

    /// Whether it serves this address of IPv4 as well: see [`is_of_both`].
    pub(super) fn serves(&self, role: Role, at: &ControlAddress) -> bool {
        listener_of(self.role) == listener_of(role)
            && self.at.parse().is_ok_and(|bound| is_of_both(&bound, at))
    }
}

/// Whether a socket that listens on `[::]` serves an address of IPv4 as well. systemd makes such a
/// socket for `ListenStream=8080`.
pub(super) fn is_of_both(given: &ControlAddress, wanted: &ControlAddress) -> bool {
    let (ControlAddress::Tcp(given), ControlAddress::Tcp(wanted)) = (given, wanted) else {
        return false;
    };
    let is_any = given.ip().is_unspecified() && wanted.ip().is_unspecified();
    is_any && given.is_ipv6() && wanted.is_ipv4() && given.port() == wanted.port()
}

impl ServerState {
    pub(super) fn life(&self) -> Life {
        Life { epoch: Epoch::from_number(self.epoch), base: self.base }
    }

    pub(super) fn left_out(&self) -> Vec<PairFiles> {
        let files = |[certificate, key]: &[String; 2]| PairFiles {
            certificate: certificate.into(),
            key: key.into(),
        };
        self.left_out.iter().map(files).collect()
    }

    /// The documents that were fetched. One that this program does not understand is fetched again.
    pub(super) fn fetched(&self) -> Vec<Fetched> {
        let fetched = |PackedDocument { url, json }: &PackedDocument| {
            let document = json.as_deref().and_then(|json| Jwks::parse_published(json).ok());
            Some(Fetched { url: url.parse().ok()?, document: document.map(Arc::new) })
        };
        self.documents.iter().filter_map(fetched).collect()
    }

    /// The first message, which announces the state, and the state itself.
    pub(super) fn to_bytes(&self) -> (Vec<u8>, Zeroizing<Vec<u8>>) {
        let (mut state, mut first) = (Packer::new(0), Packer::new(0));
        self.pack(&mut state);
        MARK.pack(&mut first);
        FINGERPRINT.pack(&mut first);
        (state.len() as u32).pack(&mut first);
        (first.into_bytes(), Zeroizing::new(state.into_bytes()))
    }

    /// Reads the first message: the length of the state.
    ///
    /// # Errors
    /// One sentence, if the other program packs something else.
    pub(super) fn announced(first: &[u8]) -> Result<usize, String> {
        let mut input = Unpacker::new(first, 0);
        // mutation: unknown-form
        if u32::unpack(&mut input)? != MARK || u64::unpack(&mut input)? != FINGERPRINT {
            return Err(
                "the program hands over its state in another form than the one it started \
                        reads: restart the server instead"
                    .to_owned(),
            );
        }
        Ok(u32::unpack(&mut input)? as usize)
    }

    /// Reads the state.
    ///
    /// # Errors
    /// One sentence, if it is none.
    pub(super) fn from_bytes(state: &[u8]) -> Result<ServerState, String> {
        let mut input = Unpacker::new(state, 0);
        let hello = ServerState::unpack(&mut input)?;
        input.end()?;
        Ok(hello)
    }
}

/// Where the workers of the process that takes over wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) process: u32,
    /// The names of their channels.
    pub(super) names: Vec<Vec<u8>>,
}

packed!(struct Ready { process, names });

impl Ready {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Packer::new(0);
        self.pack(&mut out);
        out.into_bytes()
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// The bytes are no answer: one sentence.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Ready, String> {
        let mut input = Unpacker::new(bytes, 0);
        let ready = Ready::unpack(&mut input)?;
        input.end()?;
        Ok(ready)
    }
}

/// The form of all that is handed over. A change of a packed struct or enum changes it by itself,
/// and programs with different ones refuse each other before anything has happened.
const FINGERPRINT: u64 = format(
    "handover",
    &[
        ServerState::FORMAT,
        Ready::FORMAT,
        WORKER_FORMAT,
        SESSIONS_FORMAT as u64,
        ENTRY_VERSION as u64,
    ],
);

/// The first bytes. Programs of before 0.1.0 read them as forms that they do not know.
const MARK: u32 = u32::MAX;

/// Kinds of messages between the two processes.
pub(super) mod kind {
    /// That [`STATE`] follows, with the token that decides who goes on.
    pub(crate) const HELLO: u8 = 1;
    /// [`Ready`](super::Ready).
    pub(crate) const READY: u8 = 2;
    /// A sentence: why it is not to be.
    pub(crate) const REFUSED: u8 = 3;
    /// Bytes of a snapshot of the hub.
    pub(crate) const SNAPSHOT: u8 = 4;
    /// An entry that came after it; its length is before it, for it may come in several messages.
    pub(crate) const ENTRIES: u8 = 5;
    /// Whether everything before was taken in; and that it was.
    pub(crate) const COPIED: u8 = 11;
    /// [`Tip`](stentor_log::Tip): where the store ends.
    pub(crate) const STORE: u8 = 6;
    /// What the process has counted.
    pub(crate) const COUNTERS: u8 = 8;
    /// Nothing changes in the hub any more; since when nobody is served, in microseconds.
    pub(crate) const STANDS_STILL: u8 = 7;
    /// The other one serves, and whoever supervises it knows.
    pub(crate) const GONE_ON: u8 = 10;
    /// The state that the first message has announced.
    pub(crate) const STATE: u8 = 12;
}

/// Appends a change as an entry after its length.
pub(super) fn put_entry(change: &HubChange, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    change.encode(out);
    let length = (out.len() - begin - LENGTH_BYTES) as u32;
    out[begin..][..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Takes the next entry from the front of `bytes`, unless its end is missing.
pub(super) fn next_entry<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (entry, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(entry)
}

/// Appends where a store ends.
pub(super) fn put_tip(tip: &Tip, out: &mut Vec<u8>) {
    let Tip { segment, end, last, reserved } = *tip;
    [segment, end, last, reserved].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

/// Reads what [`put_tip`] has written.
pub(super) fn tip_of(bytes: &[u8]) -> Option<Tip> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let [segment, end, last, reserved] = *numbers.as_array::<4>()?;
    let [segment, end, last, reserved] = [segment, end, last, reserved].map(u64::from_le_bytes);
    Some(Tip { segment, end, last, reserved })
}

/// The bytes before an entry.
const LENGTH_BYTES: usize = size_of::<u32>();

/// What came is not what should have come.
pub(super) fn unexpected(kind: u8) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("message {kind} should not come here"))
}

/// Where threads wait until it is decided whether they go on.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    decided: Condvar,
}

#[derive(Debug)]
struct GateState {
    /// Threads that have not come yet.
    missing: usize,
    verdict: Option<bool>,
}

impl Gate {
    /// For so many threads.
    pub(super) fn new(threads: usize) -> Gate {
        let state = GateState { missing: threads, verdict: None };
        Gate { state: Mutex::new(state), decided: Condvar::new() }
    }

    /// One of the threads has come, and waits for the verdict. The last of them may give it.
    pub(super) fn pass(&self, last: impl FnOnce() -> Option<bool>) -> bool {
        let mut state = self.state();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 && state.verdict.is_none() {
            state.verdict = last();
            self.decided.notify_all();
        }
        self.verdict_of(state)
    }

    /// Waits for the verdict.
    pub(super) fn wait(&self) -> bool {
        self.verdict_of(self.state())
    }

    /// Gives the verdict, unless there is one. Returns which it is.
    pub(super) fn decide(&self, verdict: bool) -> bool {
        // mutation: second-verdict
        let verdict = *self.state().verdict.get_or_insert(verdict);
        self.decided.notify_all();
        verdict
    }

    fn verdict_of(&self, mut state: MutexGuard<'_, GateState>) -> bool {
        loop {
            if let Some(verdict) = state.verdict {
                return verdict;
            }
            state = self.decided.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        stentor_io::lock(&self.state)
    }
}

/// What the workers of the process that takes over wait for.
#[derive(Debug)]
pub(super) struct Entrance {
    /// That the hub is there.
    pub(super) hub: Gate,
    /// That all have everything. The last one takes the token.
    pub(super) all: Gate,
    pub(super) token: Token,
}

/// How long the other process, or a worker, may say nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take until the whole hub is there.
pub(super) const PATIENCE_COPYING: Duration = Duration::from_secs(120);

/// Of the other process, when its end of the channel is gone.
pub(super) const ENDED: &str = "it ended";

/// Of the other process, when it hangs.
pub(super) const SILENT: &str = "it said nothing for too long";

/// What an error of a channel says of the other process.
pub(super) fn told(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => ENDED.to_owned(),
        io::ErrorKind::WouldBlock => SILENT.to_owned(),
        _ => error.to_string(),
    }
}

/// Receives the next message, which must be of this kind, and returns its bytes.
///
/// # Errors
/// The other process says no, or is gone.
pub(super) fn expect(channel: &mut Channel, expected: u8) -> Result<Vec<u8>, String> {
    let parcel = channel.receive().map_err(told)?;
    match parcel.kind {
        kind if kind == expected => Ok(parcel.bytes.to_vec()),
        kind::REFUSED => Err(String::from_utf8_lossy(parcel.bytes).into_owned()),
        other => Err(unexpected(other).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use stentor_hub::Rule;
    use stentor_server::{CONTROL, PUBLIC};

    /// systemd passes `[::]:80` for `ListenStream=80`.
    #[test]
    fn a_socket_of_both_families_serves_ipv4() {
        let of = |text: &str| text.parse::<ControlAddress>().unwrap();
        for (given, wanted, expected) in [
            ("[::]:80", "0.0.0.0:80", true),
            ("[::]:80", "0.0.0.0:81", false),
            ("[::]:80", "127.0.0.1:80", false),
            ("0.0.0.0:80", "[::]:80", false),
            ("[::1]:80", "0.0.0.0:80", false),
        ] {
            assert_eq!(is_of_both(&of(given), &of(wanted)), expected, "{given} {wanted}");
        }
    }

    #[test]
    fn entries_are_taken_wherever_they_are_cut() {
        let mut bytes = Vec::new();
        let rules = |n: usize| HubChange::Rules(n as u64, vec![Rule::default(); n].into());
        (0..3).for_each(|n| put_entry(&rules(n), &mut bytes));
        for cut in 0..=bytes.len() {
            let (mut first, mut entries) = (&bytes[..cut], Vec::new());
            while let Some(entry) = next_entry(&mut first) {
                entries.push(entry);
            }
            let mut rest = &bytes[cut - first.len()..];
            while let Some(entry) = next_entry(&mut rest) {
                entries.push(entry);
            }
            let expected = [0, 1, 2].map(|n| {
                let mut entry = Vec::new();
                rules(n).encode(&mut entry);
                entry
            });
            assert_eq!(entries, expected, "{cut}");
        }
    }

    #[test]
    fn port_0_is_any_port_of_one_address() {
        let bound = Address { role: PUBLIC, at: "127.0.0.1:4000".to_owned() };
        let is_same = |text: &str| bound.is_same(PUBLIC, &text.parse().unwrap());
        let all = ["127.0.0.1:0", "127.0.0.1:4000", "127.0.0.2:0", "0.0.0.0:0", "127.0.0.1:4001"];
        assert_eq!(all.map(is_same), [true, true, false, false, false]);
    }

    fn state() -> ServerState {
        let of = |role, at: &str| Address { role, at: at.to_owned() };
        ServerState {
            epoch: 0x0bad_cafe,
            base: 0,
            follows: None,
            rolled_back: Vec::new(),
            workers_public: 2,
            workers: 3,
            store: Some("/data".to_owned()),
            addresses: vec![of(PUBLIC, "127.0.0.1:80"), of(CONTROL, "unix:/run")],
            left_out: vec![["c", "k"].map(str::to_owned)],
            started_unix_s: 7,
            upgrades: History { done: 1, ..History::default() },
            documents: vec![PackedDocument { url: "u".to_owned(), json: Some(b"{}".to_vec()) }],
            ticket_secret: Some(vec![7; 32]),
        }
    }

    #[test]
    fn state_comes_back_as_it_was() {
        let (first, bytes) = state().to_bytes();
        assert_eq!(ServerState::announced(&first), Ok(bytes.len()));
        assert_eq!(ServerState::from_bytes(&bytes), Ok(state()));
    }

    #[test]
    fn another_fingerprint_is_refused() {
        let (first, _) = state().to_bytes();
        for place in 0..12 {
            let mut other = first.clone();
            other[place] ^= 1;
            let refused = ServerState::announced(&other).unwrap_err();
            assert!(refused.ends_with("restart the server instead"), "{refused}");
        }
        // As a build of before says it.
        assert!(ServerState::announced(b"\x02\0\x03\0").is_err());
    }

    #[test]
    fn an_answer_names_the_process_and_its_workers() {
        let ready = Ready { process: 7, names: vec![b"a".to_vec(), b"bc".to_vec()] };
        assert_eq!(Ready::from_bytes(&ready.to_bytes()).as_ref(), Ok(&ready));
        assert!(Ready::from_bytes(&[ready.to_bytes(), vec![0]].concat()).is_err());
    }

    #[test]
    fn the_verdict_is_given_once_and_heard_by_all() {
        for (by_last, expected) in [(Some(true), true), (Some(false), false), (None, true)] {
            let gate = Gate::new(3);
            let asked = Mutex::new(0);
            thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        scope.spawn(|| {
                            gate.pass(|| {
                                *asked.lock().unwrap() += 1;
                                by_last
                            })
                        })
                    })
                    .collect();
                if by_last.is_none() {
                    assert!(gate.decide(true));
                }
                assert_eq!(gate.wait(), expected);
                threads.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), expected));
            });
            assert!(*asked.lock().unwrap() <= 1);
            assert!(by_last.is_none() || *asked.lock().unwrap() == 1);
            // It stays what it is, for whoever comes late.
            assert_eq!(gate.decide(!expected), expected);
            assert_eq!(gate.pass(|| Some(!expected)), expected);
        }
    }

    #[test]
    fn nobody_passes_before_all_have_come() {
        let gate = Gate::new(2);
        let has_passed = Mutex::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(gate.pass(|| Some(true)));
                *has_passed.lock().unwrap() = true;
            });
            for _ in 0..1_000 {
                assert!(!*has_passed.lock().unwrap());
                thread::yield_now();
            }
            assert!(gate.pass(|| Some(true)));
        });
    }
}
