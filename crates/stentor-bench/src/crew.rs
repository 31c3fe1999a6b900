//! The threads of a run, as one: started together, ordered about, summed up.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ipnet::IpNet;
use stentor_io::{
    Epoll, Waker, cores_allowed, lower_priority, open_files_limit, raise_open_files_limit,
    raise_priority, spawn_with_file_table,
};

use crate::gauge;
use crate::network::Network;
use crate::orders::{AddressSources, Orders, Rank, ThreadWork};
use crate::plan::{Closing, Plan, Setup, Task};
use crate::tally::{Counts, Outcome, Tally, histogram};
use crate::worker::Worker;

/// Why a run came to nothing.
#[derive(Debug)]
pub struct BenchError(pub(crate) String);

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

/// How the connections of a plan are spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) threads: usize,
    pub(crate) sources: AddressSources,
}

impl Spread {
    /// As many threads as cores, and more where the limit of open files asks for it; as many
    /// source addresses as ports are needed.
    ///
    /// # Errors
    /// There are more connections than files, or than ports to come from.
    pub(crate) fn of(plan: &Plan) -> Result<Spread, BenchError> {
        let (connections, closing) = match &plan.task {
            Task::Requests(requests) => (requests.connections, requests.closing),
            Task::Hold(hold) => (hold.connections, Closing::Keep),
            Task::Push(push) => (push.connections, Closing::Keep),
            // The bystanders' thread has a table of its own, and the host's own address.
            Task::Surge(surge) => (surge.connections, Closing::Keep),
        };
        let (setup, connections) = (&plan.setup, u64::from(connections));
        // If it cannot be raised, it is what it was.
        let _ = raise_open_files_limit();
        let threads = threads(setup, connections, open_files_limit())?;
        let sources = sources(setup, connections, closing)?;
        // Each thread reads at one server, and each server is read by as many.
        let threads = match &plan.task {
            Task::Push(push) => threads.next_multiple_of(1 + push.also.len()),
            _ => threads,
        };
        Ok(Spread { threads, sources })
    }
}

/// How many threads there are to be, if each may open so many files.
fn threads(setup: &Setup, connections: u64, files: u64) -> Result<usize, BenchError> {
    // Each has the wakers of all in its table.
    let room = |threads: u64| {
        files.saturating_sub(FILES_SPARE).saturating_sub(threads).saturating_mul(threads)
    };
    let Some(needed) = (1..=THREADS_MAX).find(|&threads| room(threads) >= connections) else {
        return Err(BenchError(format!(
            "{connections} connections do not fit: a thread may open {files} files (ulimit -Hn)"
        )));
    };
    let usual = u64::try_from(cores_allowed()).unwrap_or(1).min(connections);
    let threads = setup.threads.map_or(usual.max(needed), |threads| threads as u64);
    if room(threads) < connections {
        return Err(BenchError(format!(
            "{connections} connections need {needed} threads: each may open {files} files \
             (ulimit -Hn); leave --threads out"
        )));
    }
    // At most `THREADS_MAX`, or what it was before.
    Ok(threads as usize)
}

fn sources(
    setup: &Setup,
    connections: u64,
    closing: Closing,
) -> Result<AddressSources, BenchError> {
    let to = setup.target.address.ip();
    let ports = gauge::ports();
    if let Some(network) = setup.sources {
        if connections > network.len().saturating_mul(ports) {
            return Err(BenchError(format!(
                "{connections} connections do not fit {network}: {ports} ports on each address \
                 (net.ipv4.ip_local_port_range); name a larger network with --from"
            )));
        }
        return Ok(AddressSources::Network(network));
    }
    let few = closing == Closing::Keep && connections <= CONNECTIONS_FEW;
    if few || !to.is_loopback() || to.is_ipv6() {
        if connections > ports {
            return Err(BenchError(format!(
                "{connections} connections to one address need more than the {ports} ports of one \
                 source address (net.ipv4.ip_local_port_range): give this host more addresses and \
                 name them with --from"
            )));
        }
        return Ok(AddressSources::Any);
    }
    Ok(AddressSources::Network(LOOPBACK_SOURCES))
}

/// The threads of a run.
pub(crate) struct Crew {
    pub(crate) orders: Arc<Orders>,
    messages: usize,
    places: usize,
    members: Vec<CrewThread>,
}

struct CrewThread {
    tally: Arc<Tally>,
    waker: Arc<Waker>,
    thread: JoinHandle<io::Result<Outcome>>,
}

impl Crew {
    /// Starts the threads; they wait for orders.
    ///
    /// # Errors
    /// Out of files, threads or memory.
    pub(crate) fn start(work: ThreadWork) -> Result<Crew, BenchError> {
        let cannot = |error: io::Error| BenchError(format!("cannot start a thread: {error}"));
        let (places, threads) = (work.places(), work.threads);
        let messages = work.holders.as_ref().map_or(0, |work| work.followed);
        let works: Vec<_> = (0..places).map(|place| Arc::new(work.at(place))).collect();
        let orders = Arc::new(Orders::default());
        // All of them before the first thread: every file table must hold its own.
        let wakers = (0..threads).map(|_| Ok(Arc::new(Waker::new()?)));
        let wakers = wakers.collect::<io::Result<Vec<_>>>().map_err(cannot)?;
        let mut members = Vec::with_capacity(wakers.len());
        for (index, waker) in wakers.into_iter().enumerate() {
            let tally = Arc::new(Tally::default());
            let (work, orders) = (works[index % places].clone(), orders.clone());
            let (own_tally, own_waker) = (tally.clone(), waker.clone());
            let body = move |own_table: io::Result<()>| {
                own_table?;
                match work.rank {
                    Rank::Usual => {}
                    // Where that is not allowed, it is as it was.
                    Rank::First => drop(raise_priority()),
                    Rank::Last | Rank::LastInBatches => lower_priority()?,
                }
                let io = Epoll::new(Vec::new(), own_waker)?;
                Worker::new(work, orders, own_tally, index).run(io)
            };
            let thread = thread::Builder::new().name(format!("load-{index}"));
            let thread = thread.stack_size(STACK_BYTES);
            let thread = spawn_with_file_table(thread, body).map_err(cannot)?;
            members.push(CrewThread { tally, waker, thread });
        }
        Ok(Crew { orders, messages, places, members })
    }

    /// Makes all threads look at their orders.
    pub(crate) fn wake(&self) {
        for member in &self.members {
            member.waker.wake();
        }
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts::sum(self.members.iter().map(|member| &*member.tally))
    }

    /// Whether a thread has ended by itself, which none should.
    pub(crate) fn broken(&self) -> bool {
        self.members.iter().any(|member| member.thread.is_finished())
    }

    /// Stops all threads and sums up what they found out.
    ///
    /// # Errors
    /// What a thread could not do without.
    pub(crate) fn finish(self) -> Result<(Outcome, Counts), BenchError> {
        self.orders.stop();
        self.wake();
        let mut all = Outcome::new(self.messages);
        let tallies: Vec<_> = self.members.iter().map(|member| member.tally.clone()).collect();
        all.places.resize_with(self.places, || (0, histogram()));
        for (index, member) in self.members.into_iter().enumerate() {
            let outcome = member
                .thread
                .join()
                .map_err(|_| BenchError("a thread of the load generator panicked".to_owned()))?
                .map_err(|error| BenchError(format!("a thread failed: {error}")))?;
            let (readers, delivery) = &mut all.places[index % self.places];
            *readers += outcome.steady.readers;
            delivery.add(&outcome.delivery[0]).expect("a histogram that grows takes any other");
            all.merge(&outcome);
        }
        Ok((all, Counts::sum(tallies.iter().map(|tally| &**tally))))
    }
}

/// Files of a thread that are neither connections nor wakers: the standard ones, its epoll
/// instance, and what the process was started with.
const FILES_SPARE: u64 = 64;

/// As many as may be asked for.
const THREADS_MAX: u64 = 4_096;

/// So many connections come from one address without a search for ports that is felt.
const CONNECTIONS_FEW: u64 = 4_096;

/// On loopback every address of 127.0.0.0/8 is the host's own.
const LOOPBACK_SOURCES: Network =
    Network(IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 1, 0, 0)), 16));

/// A thread calls a few functions deep and keeps nothing large on its stack.
const STACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn threads_make_up_for_files() {
        let setup = |threads| Setup {
            target: Target::parse("http://127.0.0.1:80/").unwrap(),
            headers: Vec::new(),
            threads,
            sources: None,
            pid: None,
            trust: None,
            identity: None,
        };
        let cores = cores_allowed();
        let own = |connections, files| threads(&setup(None), connections, files);
        assert_eq!(own(1, 1_024).unwrap(), 1);
        assert_eq!(own(900, 1_000_000).unwrap(), cores);
        assert_eq!(own(1_000, 300).unwrap(), cores.max(5), "5 times 300 - 64 - 5");
        assert_eq!(own(1_000_000, 20_000).unwrap(), cores.max(51));
        for files in [0, 64, 65, 300] {
            let error = own(20_000, files).unwrap_err().to_string();
            assert!(error.contains(&format!("may open {files} files")), "{error}");
        }
        let told = |threads_told| threads(&setup(Some(threads_told)), 1_000, 300);
        assert_eq!((told(5).unwrap(), told(9).unwrap()), (5, 9));
        let error = told(4).unwrap_err().to_string();
        assert!(error.contains("need 5 threads") && error.contains("--threads"), "{error}");
    }
}
