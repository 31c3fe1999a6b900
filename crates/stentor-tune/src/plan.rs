//! What is asked of a host, and what that comes to.

use serde::Serialize;

use crate::Facts;

/// What is asked of a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Connections held at the same time.
    pub connections: u64,
    /// What they do.
    pub kind: Kind,
    /// Messages published per second, each to every reader.
    pub rate: f64,
    /// The host opens the connections, instead of taking them.
    pub client: bool,
    /// They are secured by TLS, in the process itself.
    pub tls: bool,
    /// The workers of the server, where that is settled; none: as many as it takes.
    pub workers: Option<u32>,
}

/// What connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// They are kept alive between requests.
    Idle,
    /// They read Server-Sent Events.
    Sse,
    /// They read a WebSocket.
    Ws,
    /// They poll, and wait for the answer.
    Poll,
}

/// What a plan comes to on a host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Need {
    /// Kernel memory of the sockets at rest.
    pub kernel_bytes: u64,
    /// Kernel memory of one message on its way to every reader.
    pub message_bytes: u64,
    /// Memory of the process.
    pub process_bytes: u64,
    /// Whether what a socket costs was measured on this host; if not it is assumed.
    pub is_measured: bool,
    /// Workers (threads with a file table each): as many as are settled or there are cores, or more
    /// if the limit of open files asks for them; none: no number of them suffices.
    pub workers: Option<u32>,
    /// Pages that `net.ipv4.tcp_mem` counts while a message is on its way to every reader.
    pub tcp_pages: u64,
    /// Packets that come in each second: acknowledgements, most of them.
    pub packets_per_second: f64,
    /// Processor time, in cores.
    pub cores: f64,
    /// Processor time of all handshakes, once; none without TLS.
    pub handshake_seconds: f64,
}

impl Need {
    /// What `plan` comes to on a host with these facts.
    #[must_use]
    pub fn of(facts: &Facts, plan: &Plan) -> Need {
        let n = plan.connections;
        let streams = if plan.kind == Kind::Idle { 0 } else { n };
        let workers = workers_needed(facts, plan);
        let sends = streams as f64 * (plan.rate.max(0.0) + 1.0 / HEARTBEAT_S);
        // A long-poll takes a request and an answer where a stream takes one message.
        let sends = if plan.kind == Kind::Poll { 2.0 * sends } else { sends };
        let (each, fixed) = match (plan.client, plan.kind) {
            (true, _) => (CLIENT_BYTES, 0),
            (false, Kind::Idle) => (IDLE_BYTES, SERVER_BYTES),
            (false, _) => (READER_BYTES, SERVER_BYTES),
        };
        let (each, send_s, handshake_s) = match plan.tls {
            true => (each + SESSION_BYTES, SEND_S + SEAL_S, HANDSHAKE_S),
            false => (each, SEND_S, 0.0),
        };
        // If no number suffices the limit must be raised, and then one for each core does.
        let threads = workers.unwrap_or_else(|| settled_workers(facts, plan));
        let of_workers = u64::from(threads).saturating_mul(WORKER_BYTES);
        Need {
            kernel_bytes: n.saturating_mul(facts.socket_bytes.unwrap_or(SOCKET_BYTES)),
            message_bytes: streams.saturating_mul(MESSAGE_BYTES),
            process_bytes: n.saturating_mul(each).saturating_add(fixed + of_workers),
            is_measured: facts.socket_bytes.is_some(),
            workers,
            tcp_pages: match plan.kind {
                Kind::Idle => n / IDLE_PER_PAGE,
                _ => n.saturating_mul(PAGES_PER_READER),
            },
            packets_per_second: sends,
            cores: sends * send_s,
            handshake_seconds: n as f64 * handshake_s,
        }
    }

    /// Its workers, or those that are settled if no number of them suffices: then the limit of open
    /// files must be raised, and these do.
    pub(crate) fn threads(&self, facts: &Facts, plan: &Plan) -> u32 {
        self.workers.unwrap_or_else(|| settled_workers(facts, plan))
    }

    /// All memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kernel_bytes.saturating_add(self.message_bytes).saturating_add(self.process_bytes)
    }
}

/// How many connections so many workers may hold under a limit of open files for each, if they
/// are dealt out as unevenly as they come.
pub(crate) fn capacity(workers: u32, limit: u64) -> u64 {
    (limit.saturating_sub(spare_files(workers)) as f64 * f64::from(workers) / uneven(workers))
        as u64
}

/// The limit of open files at which so many workers hold so many connections.
pub(crate) fn limit_needed(workers: u32, connections: u64) -> u64 {
    let workers = workers.max(1);
    // One more for what rounding loses.
    let each = (connections as f64 * uneven(workers) / f64::from(workers)) as u64 + 1;
    each.saturating_add(spare_files(workers))
}

/// The files of a worker's table that are no connections: one for each thread, and those that a
/// worker keeps free for files it serves and for itself.
pub(crate) fn spare_files(workers: u32) -> u64 {
    FILES_SPARE.max(u64::from(workers) + 130)
}

/// How much more than its share the fullest worker has. One alone has all.
fn uneven(workers: u32) -> f64 {
    if workers > 1 { 1.15 } else { 1.0 }
}

/// The workers of the server: as many as it is told, or one for each core.
pub(crate) fn settled_workers(facts: &Facts, plan: &Plan) -> u32 {
    plan.workers.unwrap_or_else(|| facts.usable_cores().min(WORKERS_MAX))
}

/// These; more if their file tables would not hold all connections.
fn workers_needed(facts: &Facts, plan: &Plan) -> Option<u32> {
    let (settled, n) = (settled_workers(facts, plan), plan.connections);
    let Some(limit) = facts.files.hard else { return Some(settled) };
    if facts.own_file_table == Some(false) {
        return (limit >= n.saturating_add(spare_files(settled))).then_some(settled);
    }
    (settled..=WORKERS_MAX).find(|&workers| capacity(workers, limit) >= n)
}

const FILES_SPARE: u64 = 500;

/// The most workers the server takes.
const WORKERS_MAX: u32 = 4_096;

/// Kernel memory of an idle TCP socket where it was not measured: socket, file, inode, entry of the
/// directory cache and of epoll, on Linux 6.
pub(crate) const SOCKET_BYTES: u64 = 4_800;

/// A small message that is not acknowledged yet: its buffer and the head of that (1,063 bytes
/// measured on Linux 6.18).
const MESSAGE_BYTES: u64 = 1_100;

/// A socket with anything on its way counts whole pages; the second is for the next message.
const PAGES_PER_READER: u64 = 2;

/// Idle connections of which one has an answer on its way.
const IDLE_PER_PAGE: u64 = 10;

/// Process memory for each connection, from the README: `bench/run idle` and `bench/run fanout`.
const IDLE_BYTES: u64 = 63;
const READER_BYTES: u64 = 76;

/// What a load generator may take for each connection.
const CLIENT_BYTES: u64 = 250;

/// Process memory without connections; and of each worker once it is busy.
const SERVER_BYTES: u64 = 4 << 20;
const WORKER_BYTES: u64 = 300 << 10;

/// Seconds between two heartbeats of a silent stream, by default.
const HEARTBEAT_S: f64 = 15.0;

/// Processor time for one small message to one reader, in seconds: about what `bench/run fanout`
/// measures, where both ends are on one host.
const SEND_S: f64 = 7e-6;

/// What TLS adds: the session of a connection (112 bytes with AES-128, 160 with AES-256) in what
/// the allocator makes of it, and the time to seal a small message.
const SESSION_BYTES: u64 = 130;
const SEAL_S: f64 = 0.5e-6;

/// Processor time of a connection with its handshake: X25519, and a signature of ECDSA.
const HANDSHAKE_S: f64 = 170e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::FileLimits;

    fn plan(connections: u64) -> Plan {
        let (kind, rate, client, tls, workers) = (Kind::Sse, 1.0, false, false, None);
        Plan { connections, kind, rate, client, tls, workers }
    }

    fn facts(hard: u64) -> Facts {
        let files = FileLimits { hard: Some(hard), ..FileLimits::default() };
        Facts { files, ..Facts::default() }
    }

    #[test]
    fn a_million_readers_under_a_limit_of_20_000_files_take_59_workers() {
        let need = Need::of(&facts(20_000), &plan(1_000_000));
        assert_eq!(need.workers, Some(59));
        assert!((76_000_000..110_000_000).contains(&need.process_bytes), "{need:?}");
        assert_eq!(need.kernel_bytes, 4_800_000_000);
        assert_eq!(need.tcp_pages, 2_000_000);
    }

    #[test]
    fn tls_costs_a_session_each_and_a_handshake_once() {
        let of = |tls| Need::of(&Facts::default(), &Plan { tls, ..plan(1_000_000) });
        let (plain, secured) = (of(false), of(true));
        assert_eq!(secured.process_bytes - plain.process_bytes, 130_000_000);
        assert!(secured.cores > plain.cores && secured.cores < 1.15 * plain.cores);
        assert_eq!((plain.handshake_seconds, secured.handshake_seconds), (0.0, 170.0));
        assert_eq!(plain.kernel_bytes, secured.kernel_bytes);
    }

    #[test]
    fn workers_need_tables_of_their_own() {
        let shared = Facts { own_file_table: Some(false), ..facts(20_000) };
        assert_eq!(Need::of(&shared, &plan(19_000)).workers, Some(1));
        assert_eq!(Need::of(&shared, &plan(20_000)).workers, None);
        assert_eq!(Need::of(&facts(500), &plan(1)).workers, None);
        assert_eq!(Need::of(&facts(501), &plan(1)).workers, Some(1));
    }

    #[test]
    fn limits_and_workers_agree() {
        for workers in [1, 2, 64, 600, 4096] {
            for connections in [1, 1_000, 99_999, 10_000_000] {
                let limit = limit_needed(workers, connections);
                assert!(capacity(workers, limit) >= connections, "{workers} {connections}");
            }
        }
    }

    #[test]
    fn connections_that_wait_for_nothing_cost_no_time() {
        let idle = Need::of(&Facts::default(), &Plan { kind: Kind::Idle, ..plan(100_000) });
        assert_eq!((idle.cores, idle.message_bytes, idle.tcp_pages), (0.0, 0, 10_000));
        let poll = Need::of(&Facts::default(), &Plan { kind: Kind::Poll, ..plan(100_000) });
        let sse = Need::of(&Facts::default(), &plan(100_000));
        assert!(poll.cores > sse.cores);
    }
}
