//! What clients cost that say something: `cargo run --release -p stentor-tls --example
//! received_cost`.
//!
//! First the opening of records, with a cache of contexts and without: the time of one thread, of
//! many short rounds the quickest. Then the memory of handshakes that are under way, by what the
//! kernel says of this process: with everything that the library sets aside. Read ratios.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite};
use stentor_tls::{
    Acceptor, Certificates, Contexts, Established, Handshake, Inbound, Owned, Pair, PemPair,
    Record, Settings, Tickets, Version,
};

fn main() -> Result<(), Box<dyn Error>> {
    let world = World::new()?;
    println!("{:<14} {:>12} {:>10} {:>10} {:>10}", "ns to open", "", "100 B", "1000 B", "4000 B");
    for suite in SUITES {
        for (name, places) in [("by itself", 0), ("cached", 1024)] {
            let costs = SIZES.map(|bytes| world.open(suite, bytes, places));
            let [a, b, c] = costs.map(|cost| cost.as_secs_f64() * 1e9);
            println!("{:<14?} {name:>12} {a:>10.0} {b:>10.0} {c:>10.0}", suite.suite());
        }
    }
    println!("\nbytes of a handshake under way, of {HANDSHAKES}");
    let hello = |suite| said(&mut world.client(suite));
    let mut long = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    long.resize(5 + (1 << 14), 0);
    for _ in 0..2 {
        long.extend([22, 3, 1, 0x40, 0]);
        long.resize(long.len() + (1 << 14), 0);
    }
    for (name, sent) in [
        ("nothing has come", Vec::new()),
        ("TLS 1.3, ours is sent", hello(SUITES[0])),
        ("TLS 1.2, ours is sent", hello(cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)),
        ("48 KiB of a first message", long),
    ] {
        println!("{name:<30} {:>8}", world.under_way(&sent)?);
    }
    Ok(())
}

struct World {
    acceptor: Acceptor,
    roots: Arc<RootCertStore>,
}

impl World {
    fn new() -> Result<World, Box<dyn Error>> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let pem = PemPair {
            certificate: (Path::new("certificate"), certificate.as_bytes()),
            key: (Path::new("key"), key.as_bytes()),
        };
        let pair = Pair::read(&pem, now_unix_s()).map_err(|_| "a certificate")?;
        let acceptor = Acceptor::new(&Settings {
            certificates: Arc::new(Certificates::new(vec![pair])),
            tickets: Some(Arc::new(Tickets::random()?)),
            oldest: Version::Tls12,
            alpn: vec![b"http/1.1".to_vec()],
            client_auth: None,
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
        Ok(World { acceptor, roots: Arc::new(roots) })
    }

    fn client(&self, suite: SupportedCipherSuite) -> ClientConnection {
        let mut provider = default_provider();
        provider.cipher_suites = vec![suite];
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[suite.version()])
            .expect("it has that version")
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        let name = NAME.try_into().expect("it is a name");
        ClientConnection::new(Arc::new(config), name).expect("it can begin")
    }

    fn connection(&self, suite: SupportedCipherSuite) -> (ClientConnection, Owned) {
        let (mut client, mut handshake) = (self.client(suite), self.acceptor.begin());
        loop {
            let mut out = Vec::new();
            let progress = handshake.receive(now_unix_s(), &said(&mut client), &mut out);
            client.read_tls(&mut out.as_slice()).expect("there is room");
            client.process_new_packets().expect("the client is content");
            if let Some(Established { session, .. }) = progress.expect("so is ours").established {
                return (client, session);
            }
        }
    }

    /// The time of a record of one of several clients, of the quickest round.
    fn open(&self, suite: SupportedCipherSuite, bytes: usize, places: usize) -> Duration {
        let mut contexts = Contexts::new(places, |_| ());
        let mut connections: Vec<_> = (0..CLIENTS).map(|_| self.connection(suite)).collect();
        let text = vec![7; bytes];
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let mut sent = Vec::new();
            for _ in 0..PER_ROUND {
                for (client, _) in &mut connections {
                    client.writer().write_all(&text).expect("there is room");
                    sent.push(said(client));
                }
            }
            let start = Instant::now();
            for (i, record) in sent.iter_mut().enumerate() {
                let (mut inbound, session) = (Inbound::default(), &mut connections[i % CLIENTS].1);
                let mut records = inbound.records(record);
                let opened = records.next_with(&mut session.session(), &mut contexts);
                assert!(matches!(opened, Ok(Some(Record::Data(data))) if data.len() == bytes));
            }
            best = best.min(start.elapsed());
        }
        best / u32::try_from(CLIENTS * PER_ROUND).expect("they are few")
    }

    /// What each of many handshakes takes that were told this.
    fn under_way(&self, sent: &[u8]) -> Result<usize, Box<dyn Error>> {
        let begin = || -> Handshake {
            let (mut handshake, mut out) = (self.acceptor.begin(), Vec::new());
            for piece in sent.chunks(1400) {
                let progress = handshake.receive(now_unix_s(), piece, &mut out);
                assert!(progress.expect("it is good").established.is_none());
            }
            handshake
        };
        let mut handshakes = Vec::with_capacity(HANDSHAKES);
        handshakes.extend((0..100).map(|_| begin()));
        let before = resident_bytes()?;
        handshakes.extend((100..HANDSHAKES).map(|_| begin()));
        let each = resident_bytes()?.saturating_sub(before) / (HANDSHAKES - 100);
        // What is free again would not be counted for the next ones.
        std::mem::forget(handshakes);
        Ok(each)
    }
}

fn said(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("there is room");
    }
    bytes
}

fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("it is not said")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}

fn now_unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

const NAME: &str = "a.example";
const SUITES: [SupportedCipherSuite; 4] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
];
const SIZES: [usize; 3] = [100, 1000, 4000];
const CLIENTS: usize = 64;
const ROUNDS: usize = 40;
const PER_ROUND: usize = 8;
const HANDSHAKES: usize = 2000;
