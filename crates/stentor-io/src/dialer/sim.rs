//! A simulated network for threads that block: it splits, delays, resets, ends and swallows what a
//! simulated peer says. All of it runs on the thread that reads and writes, in virtual time.

use super::{ByteStream, Dialer};
use crate::{Rng, VirtualClock, Waker, lock, monotonic_us};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The other end of one simulated connection.
pub trait SimPeer: Send {
    /// Takes bytes that have come, and says something. The first call has no bytes.
    fn receive(&mut self, bytes: &[u8], says: &mut SimSpeech);
}

/// The bytes and pauses of a peer, in their order.
#[derive(Default, Debug)]
pub struct SimSpeech {
    pause_us: u64,
    parts: Vec<(u64, SimPart)>,
}

/// These bytes arrive at once.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SimPart {
    Bytes(Vec<u8>),
    /// The peer has sent its last byte.
    End,
    Reset,
}

impl SimSpeech {
    /// Says this next.
    pub fn say(&mut self, bytes: impl Into<Vec<u8>>) {
        self.parts.push((mem::take(&mut self.pause_us), SimPart::Bytes(bytes.into())));
    }

    /// Says nothing for so long.
    pub fn pause(&mut self, ms: u64) {
        self.pause_us += ms * 1_000;
    }

    /// How long all of it takes, without what the network adds.
    #[must_use]
    pub fn duration_us(&self) -> u64 {
        self.pause_us + self.parts.iter().map(|(us, _)| us).sum::<u64>()
    }

    /// Sends its last byte.
    pub fn end(&mut self) {
        self.parts.push((mem::take(&mut self.pause_us), SimPart::End));
    }
}

/// A simulated network, in which each connection leads to a peer of its own.
#[derive(Clone)]
pub struct SimDialer(Arc<Mutex<SimNetwork>>);

struct SimNetwork {
    rng: Rng,
    /// The percentage of calls and connections without a fault.
    calm_percent: u8,
    begin: Box<dyn FnMut() -> Option<Box<dyn SimPeer>> + Send>,
}

impl SimNetwork {
    fn is_calm(&mut self) -> bool {
        self.rng.percent(self.calm_percent)
    }
}

impl SimDialer {
    /// `begin` makes the peer of the next connection. `None`: the connection is refused.
    pub fn new(
        rng: Rng,
        calm_percent: u8,
        begin: impl FnMut() -> Option<Box<dyn SimPeer>> + Send + 'static,
    ) -> SimDialer {
        SimDialer(Arc::new(Mutex::new(SimNetwork { rng, calm_percent, begin: Box::new(begin) })))
    }
}

impl Dialer for SimDialer {
    fn resolve(&self, _: &str, until_us: Option<u64>) -> io::Result<Vec<SocketAddr>> {
        let mut network = lock(&self.0);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        if network.is_calm() {
            return Ok(vec![address]);
        }
        match network.rng.below(20) {
            0 => Err(io::Error::other("there is no such host")),
            1 if until_us.is_some() => late(until_us),
            chance => Ok(vec![address; 1 + chance % 2]),
        }
    }

    fn connect(&self, _: SocketAddr, until_us: Option<u64>) -> io::Result<Arc<dyn ByteStream>> {
        let mut network = lock(&self.0);
        let Some(peer) = (network.begin)() else {
            return Err(ErrorKind::ConnectionRefused.into());
        };
        let is_calm = network.is_calm();
        if !is_calm && until_us.is_some() && network.rng.percent(5) {
            return late(until_us);
        }
        let mut line = SimLine::new(Rng::new(network.rng.next_u64()), is_calm, peer);
        line.hear(&[]);
        Ok(Arc::new(SimStream(Mutex::new(line))))
    }
}

/// Waits until the deadline has passed.
fn late<T>(until_us: Option<u64>) -> io::Result<T> {
    let until_us = until_us.expect("without a deadline this waits for ever");
    VirtualClock::pass(Duration::from_micros(until_us.saturating_sub(monotonic_us())));
    Err(ErrorKind::TimedOut.into())
}

struct SimStream(Mutex<SimLine>);

/// One connection.
struct SimLine {
    rng: Rng,
    peer: Box<dyn SimPeer>,
    /// The parts that the peer has sent, each with the time of its arrival.
    parts: VecDeque<(u64, SimPart)>,
    /// No piece of what the peer says is longer.
    piece_max: usize,
    /// The fault after so many bytes of the peer: this part arrives, or no further one does.
    fault: Option<(usize, Option<SimPart>)>,
    has_failed: bool,
}

impl SimLine {
    fn new(mut rng: Rng, is_calm: bool, peer: Box<dyn SimPeer>) -> SimLine {
        let (mut piece_max, mut fault) = (usize::MAX, None);
        if !is_calm {
            piece_max = [usize::MAX, 1, 7, 300, 5_000][rng.below(5)];
            let bytes_max = [60, 1_000, 30_000][rng.below(3)];
            let bytes = 1 + rng.below(bytes_max);
            let part = [Some(SimPart::Reset), Some(SimPart::End), None][rng.below(3)].clone();
            fault = rng.percent(70).then_some((bytes, part));
        }
        let parts = VecDeque::new();
        SimLine { rng, peer, parts, piece_max, fault, has_failed: false }
    }

    /// The peer receives bytes, and what it says to them is on its way.
    fn hear(&mut self, bytes: &[u8]) {
        let mut says = SimSpeech::default();
        self.peer.receive(bytes, &mut says);
        // However many pieces there are, all of them arrive about a second later at most.
        let mut delays_left_us = 1_000_000;
        let mut at_us = self.parts.back().map_or(0, |(us, _)| *us).max(monotonic_us());
        for (pause_us, part) in says.parts {
            at_us += pause_us;
            let SimPart::Bytes(bytes) = part else {
                self.put(at_us, part);
                continue;
            };
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(self.piece_of(rest.len()));
                let longest_us = if self.rng.percent(1) { 300_000 } else { 2_000 };
                let delay_us = self.rng.below(longest_us).min(delays_left_us);
                delays_left_us -= delay_us;
                at_us += delay_us as u64;
                self.put(at_us, SimPart::Bytes(piece.to_vec()));
                rest = behind;
            }
        }
    }

    fn piece_of(&mut self, bytes: usize) -> usize {
        if self.piece_max > bytes { bytes } else { 1 + self.rng.below(self.piece_max) }
    }

    fn put(&mut self, at_us: u64, mut part: SimPart) {
        if self.has_failed {
            return;
        }
        let mut then = None;
        if let (Some((left, fault)), SimPart::Bytes(bytes)) = (&mut self.fault, &mut part) {
            bytes.truncate(*left);
            *left -= bytes.len();
            if *left == 0 {
                (self.has_failed, then) = (true, fault.clone());
            }
        }
        self.parts.push_back((at_us, part));
        self.parts.extend(then.map(|part| (at_us, part)));
    }

    /// Whether the peer takes nothing any more, as far as the kernel knows.
    fn is_stuck(&self) -> bool {
        self.has_failed && matches!(self.fault, Some((_, None)))
    }
}

impl ByteStream for SimStream {
    fn read_or_wake(
        &self,
        buffer: &mut [u8],
        until_us: Option<u64>,
        waker: Option<&Waker>,
    ) -> io::Result<usize> {
        let mut line = lock(&self.0);
        let now_us = monotonic_us();
        if until_us.is_some_and(|us| us <= now_us) {
            return late(until_us);
        }
        let has_arrived = line.parts.front().is_some_and(|(us, _)| *us <= now_us);
        if !has_arrived && waker.is_some_and(Waker::take) {
            return Err(ErrorKind::Interrupted.into());
        }
        let Some((at_us, part)) = line.parts.front_mut() else { return late(until_us) };
        if until_us.is_some_and(|us| us <= *at_us) {
            return late(until_us);
        }
        VirtualClock::pass(Duration::from_micros(at_us.saturating_sub(now_us)));
        match part {
            SimPart::Reset => Err(ErrorKind::ConnectionReset.into()),
            SimPart::End => Ok(0),
            SimPart::Bytes(bytes) => {
                let taken = bytes.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&bytes[..taken]);
                bytes.drain(..taken);
                if bytes.is_empty() {
                    line.parts.pop_front();
                }
                Ok(taken)
            }
        }
    }

    fn write(&self, bytes: &[u8], until_us: Option<u64>) -> io::Result<usize> {
        let mut line = lock(&self.0);
        let now_us = monotonic_us();
        if until_us.is_some_and(|us| us <= now_us) {
            return late(until_us);
        }
        let has_reset = |(us, part): &(u64, SimPart)| *us <= now_us && *part == SimPart::Reset;
        if line.parts.front().is_some_and(has_reset) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if line.is_stuck() && until_us.is_some() && line.rng.percent(20) {
            return late(until_us);
        }
        let taken = line.piece_of(bytes.len());
        line.hear(&bytes[..taken]);
        Ok(taken)
    }

    fn is_quiet(&self) -> bool {
        let line = lock(&self.0);
        let now_us = monotonic_us();
        line.parts.front().is_none_or(|(us, _)| *us > now_us)
    }
}

impl SimDialer {
    /// From now on so many of a hundred calls and connections have no fault.
    pub fn set_calm_percent(&self, percent: u8) {
        lock(&self.0).calm_percent = percent;
    }
}

impl fmt::Debug for SimDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDialer")
    }
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimStream")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialer::connect_to_any;

    struct Echo;

    impl SimPeer for Echo {
        fn receive(&mut self, bytes: &[u8], says: &mut SimSpeech) {
            says.pause(20);
            says.say(bytes);
        }
    }

    /// The answer to these bytes, and its delay.
    fn echo(seed: u64, calm_percent: u8) -> (io::Result<Vec<u8>>, u64) {
        let _clock = VirtualClock::start(0);
        let begin = || Some(Box::new(Echo) as Box<dyn SimPeer>);
        let dialer = SimDialer::new(Rng::new(seed), calm_percent, begin);
        let until_us = Some(3_000_000);
        let talk = || -> io::Result<Vec<u8>> {
            let addresses = dialer.resolve("a:1", until_us)?;
            let stream = connect_to_any(&dialer, &addresses, until_us)?;
            stream.write_all(&[7; 2_000], until_us)?;
            let mut heard = vec![0; 4_000];
            let mut taken = 0;
            while taken < 2_000 {
                match stream.read(&mut heard[taken..], until_us)? {
                    0 => break,
                    bytes => taken += bytes,
                }
            }
            heard.truncate(taken);
            Ok(heard)
        };
        (talk(), monotonic_us())
    }

    #[test]
    fn a_seed_repeats_what_the_network_does() {
        let mut outcomes = [0; 4];
        for seed in 0..200 {
            let (heard, us) = echo(seed, 0);
            assert!(us <= 3_000_000);
            let (again, us_again) = echo(seed, 0);
            assert_eq!((format!("{heard:?}"), us), (format!("{again:?}"), us_again), "{seed}");
            outcomes[match heard {
                Ok(heard) if heard.len() == 2_000 => 0,
                Ok(_) => 1,
                Err(error) if error.kind() == ErrorKind::TimedOut => 2,
                Err(_) => 3,
            }] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
    }

    #[test]
    fn a_calm_network_brings_everything() {
        let (heard, us) = echo(1, 100);
        assert_eq!(heard.unwrap(), [7; 2_000]);
        assert!((20_000..400_000).contains(&us));
    }
}
