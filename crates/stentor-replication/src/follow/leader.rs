//! Connections to leaders, one after the other: which, when, and for how long.
//!
//! All of it is one thread that blocks. A leader says something every second, so one that says
//! nothing for a while, or trickles, is given up. Each that is configured is tried in turn; once
//! none could be followed, it takes longer each time until they are tried again, by chance in part,
//! so that many followers do not come back together.

use super::FollowState;
use super::protocol::{Fault, Follower, Next, SnapshotReader};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stentor_config::{Follow as Settings, ServerUrl, read_small};
use stentor_hub::{Applied, Hub, Id};
use stentor_io::{Rng, monotonic_us, read_file, sleep};
use ureq::config::Config;
use ureq::http::Response;
use ureq::{Agent, Body};

/// The leaders, and the thread's own state.
pub(super) struct Leaders {
    state: Arc<FollowState>,
    follower: Follower,
    agent: Agent,
    rng: Rng,
    ends: Arc<AtomicBool>,
}

impl Leaders {
    /// The hub is filled by now, if another process has handed it over.
    pub(super) fn new(
        hub: Arc<Hub>,
        on_applied: Box<dyn FnMut(&mut Applied) + Send>,
        agent: Agent,
        state: Arc<FollowState>,
        ends: Arc<AtomicBool>,
    ) -> Leaders {
        let rng = Rng::new(monotonic_us() ^ u64::from(std::process::id()) << 40);
        Leaders { follower: Follower::new(hub, on_applied), agent, rng, state, ends }
    }

    /// Follows until it is to end.
    pub(super) fn run(mut self) {
        let (mut at, mut retries) = (0, Retries::default());
        while !self.ends() {
            let urls = &self.state.settings.leaders;
            let url = urls[at % urls.len()].as_str().to_owned();
            let heard_us = self.state.heard_us.load(Ordering::Relaxed);
            let (position, begun_us) = (self.follower.since(), monotonic_us());
            let Err(fault) = self.follow(&url) else { return };
            self.state.is_connected.store(false, Ordering::Relaxed);
            if self.ends() {
                return;
            }
            // Not if it begins well each time, and then makes no sense.
            let was_followed = self.state.heard_us.load(Ordering::Relaxed) != heard_us
                && (self.follower.since() != position
                    || monotonic_us() - begun_us > SILENCE_MAX.as_micros() as u64);
            self.state.reconnects.add(1);
            self.tell(&url, &fault, was_followed);
            if retries.note(&fault, was_followed) {
                continue;
            }
            let leaders = self.state.settings.leaders.len();
            // The one that broke off may be back at once: it has what the others may lack.
            at = if was_followed { at } else { (at + 1) % leaders };
            sleep(self.pause(retries.failures.div_ceil(leaders)));
        }
    }

    /// Follows one leader until the connection is of no use any more, or it is to end.
    fn follow(&mut self, url: &str) -> Result<(), Fault> {
        let since = self.follower.since();
        let mut answer = self.ask(url, "/-/feed", since)?;
        match answer.status().as_u16() {
            200 => {}
            410 => return Err(self.follower.feed_is_gone()),
            _ => return Err(refused(&mut answer)),
        }
        let via = answer.headers().get("stentor-via").map_or(Ok(""), |via| via.to_str());
        let via = via.ok().filter(|via| via.len() <= VIA_BYTES_MAX);
        if self.state.leads_here(via.ok_or("its Stentor-Via makes no sense")?) {
            return Err("it follows this server".into());
        }
        let next =
            self.follower.feed_begins(id_of(&answer).ok_or("it does not say where it is")?)?;
        if next == Next::Snapshot {
            self.take_snapshot(url)?;
        }
        let what = since.map_or_else(|| "from now on".to_owned(), |id| format!("behind {id}"));
        tracing::info!("following {url} {what}");
        self.read_feed(answer.into_body())
    }

    fn take_snapshot(&mut self, url: &str) -> Result<(), Fault> {
        let answer = self.ask(url, "/-/snapshot", None)?;
        let begun_us = monotonic_us();
        let Leaders { state, ends, follower, .. } = self;
        read_snapshot(answer, |bytes| {
            if ends.load(Ordering::Relaxed) {
                return Err("it is to end".into());
            }
            state.bytes.add(bytes.len() as u64);
            follower.snapshot(bytes)
        })?;
        let pace = self.state.pace.step();
        let taken = self.follower.snapshot_ends()?;
        drop(pace);
        self.state.snapshots.add(1);
        self.state.has_all.store(true, Ordering::Release);
        let took_ms = (monotonic_us() - begun_us) / 1_000;
        tracing::info!(
            "a snapshot of {url} was taken in {took_ms} ms: {} topics{}",
            taken.topics,
            if taken.is_new_life { "; its history began anew" } else { "" },
        );
        Ok(())
    }

    fn read_feed(&mut self, body: Body) -> Result<(), Fault> {
        let mut body = body.into_reader();
        let mut buffer = vec![0; READ_BYTES];
        let mut rate = Rate::default();
        loop {
            let bytes = body.read(&mut buffer).map_err(|error| error.to_string())?;
            if bytes == 0 {
                return Err("its feed ended".into());
            }
            let pace = self.state.pace.step();
            if self.ends() {
                return Ok(());
            }
            let frames = self.follower.feed(&buffer[..bytes])?;
            drop(pace);
            self.state.bytes.add(bytes as u64);
            let now_us = monotonic_us();
            if frames > 0 {
                rate = Rate::default();
                // The age of what a leader has counts at its followers too.
                let age_us = self.follower.age_ms().saturating_mul(1_000);
                let as_of_us = now_us.saturating_sub(age_us);
                self.state.heard_us.fetch_max(as_of_us, Ordering::Relaxed);
                if !self.state.is_connected.swap(true, Ordering::Relaxed) {
                    self.state.leader().1 = None;
                }
            } else if !rate.is_enough(bytes) {
                return Err("its feed comes too slowly".into());
            }
        }
    }

    fn ask(&self, url: &str, path: &str, since: Option<Id>) -> Result<Response<Body>, Fault> {
        url.clone_into(&mut self.state.leader().0);
        let mut request = self.agent.get(format!("{url}{path}"));
        for pattern in &self.state.settings.topics {
            request = request.query("topic", pattern.as_str());
        }
        if let Some(id) = since {
            request = request.query("since", id.to_string());
        }
        if let Some(path) = &self.state.settings.token_file {
            request = request.header("authorization", authorization(path)?);
        }
        request.call().map_err(|error| Fault::Broken(error.to_string()))
    }

    /// Says once what is wrong, not each time it is tried again.
    fn tell(&self, url: &str, fault: &Fault, was_followed: bool) {
        let why = fault.to_string();
        let mut leader = self.state.leader();
        if was_followed || leader.1.as_ref() != Some(&why) {
            tracing::warn!("{url} is not followed: {why}");
        }
        leader.1 = Some(why);
    }

    /// How long to wait once all leaders were tried so often.
    fn pause(&mut self, failures: usize) -> Duration {
        let doubled = PAUSE.saturating_mul(1 << failures.min(8)).min(PAUSE_MAX);
        let half = doubled / 2;
        half + Duration::from_micros(self.rng.below(half.as_micros() as usize + 1) as u64)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }
}

/// The connections that ended, and so when the next one begins.
#[derive(Default)]
struct Retries {
    /// The number of useless connections in a row.
    failures: usize,
    /// The number of connections in a row that ended with [`Fault::Anew`].
    anew: usize,
}

impl Retries {
    /// Counts a connection that ended. Returns whether the next one begins without a pause.
    fn note(&mut self, fault: &Fault, was_followed: bool) -> bool {
        (self.failures, self.anew) = match fault {
            // It is the same leader that has it all.
            Fault::Anew(_) if self.anew < ANEW_MAX => (self.failures, self.anew + 1),
            _ if was_followed => (0, 0),
            _ => (self.failures + 1, 0),
        };
        self.anew > 0
    }
}

/// Whether something comes at all, and not a byte now and then.
struct Rate {
    since_us: u64,
    bytes: usize,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { since_us: monotonic_us(), bytes: 0 }
    }
}

impl Rate {
    fn is_enough(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let now_us = monotonic_us();
        if now_us - self.since_us < SILENCE_MAX.as_micros() as u64 {
            return true;
        }
        let is_enough = self.bytes >= BYTES_MIN;
        *self = Rate { since_us: now_us, bytes: 0 };
        is_enough
    }
}

/// Reads a snapshot of a server into a hub that was staged for it.
///
/// # Errors
/// One sentence.
pub fn snapshot_of(
    agent: &Agent,
    url: &str,
    token_file: Option<&Path>,
    staged: Hub,
) -> Result<Hub, String> {
    let mut request = agent.get(format!("{url}/-/snapshot"));
    if let Some(path) = token_file {
        request = request.header("authorization", authorization(path)?);
    }
    let answer = request.call().map_err(|error| error.to_string())?;
    let mut reader = SnapshotReader::new(staged);
    let read = read_snapshot(answer, |bytes| Ok(reader.take(bytes)?));
    read.map_err(|fault| fault.to_string())?;
    reader.end().map_err(str::to_owned)
}

/// Reads a snapshot to its end, piece by piece.
fn read_snapshot(
    mut answer: Response<Body>,
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if answer.status().as_u16() != 200 {
        return Err(refused(&mut answer));
    }
    let mut body = answer.into_body().into_reader();
    let (mut buffer, mut rate) = (vec![0; READ_BYTES], Rate::default());
    loop {
        let bytes = body.read(&mut buffer).map_err(|error| error.to_string())?;
        if bytes == 0 {
            return Ok(());
        }
        take(&buffer[..bytes])?;
        if !rate.is_enough(bytes) {
            return Err("its snapshot comes too slowly".into());
        }
    }
}

/// What shows a token, which is read each time: it may be another one by now.
pub fn authorization(path: &Path) -> Result<String, String> {
    let token = read_small(path)?;
    let token = str::from_utf8(&token).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("Bearer {}", token.trim()))
}

/// Makes the HTTP client that connects to the leaders.
pub(super) fn agent_of(settings: &Settings) -> Result<Agent, String> {
    agent(&settings.leaders, settings.ca_file.as_deref(), "follow.ca_file")
}

fn id_of(answer: &Response<Body>) -> Option<Id> {
    answer.headers().get("stentor-cursor")?.to_str().ok()?.parse().ok()
}

/// What an answer says that is none of use.
fn refused(answer: &mut Response<Body>) -> Fault {
    let status = answer.status();
    let mut reason = Vec::new();
    // Whatever came of it before an error is better than nothing.
    let _ = answer.body_mut().as_reader().take(REASON_BYTES_MAX).read_to_end(&mut reason);
    let reason = String::from_utf8_lossy(&reason);
    Fault::Broken(format!("{status}: {}", reason.trim_end()))
}

/// A client of servers, who are known by the certificates in a file, or by those that this system
/// trusts. `setting` is the name of the setting of the file.
///
/// # Errors
/// There are none.
pub fn agent(
    servers: &[ServerUrl],
    ca_file: Option<&Path>,
    setting: &str,
) -> Result<Agent, String> {
    config(servers, ca_file, setting).map(stentor_http_client::agent)
}

fn config(servers: &[ServerUrl], ca_file: Option<&Path>, setting: &str) -> Result<Config, String> {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_recv_response(Some(SILENCE_MAX))
        .timeout_per_read(Some(SILENCE_MAX))
        .user_agent(concat!("stentor/", env!("CARGO_PKG_VERSION")));
    if servers.iter().any(|url| url.as_str().starts_with("https:")) {
        config = config.tls_config(stentor_access::tls_of(ca_file, setting, read_file)?);
    }
    Ok(config.build())
}

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Of a leader something is heard every second.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Of a snapshot, so many bytes come in that time.
const BYTES_MIN: usize = 64 << 10;

const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How often all is had anew without a pause.
const ANEW_MAX: usize = 2;

const READ_BYTES: usize = 64 << 10;

/// A tree of so many followers below each other is none.
const VIA_BYTES_MAX: usize = 1_024;

/// A reason is a sentence.
const REASON_BYTES_MAX: u64 = 1_024;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::net::SocketAddr;
    use stentor_config::Follow;
    use stentor_http_client::agent_over;
    use stentor_hub::{Epoch, Limits};
    use stentor_io::{ByteStream, Dialer, VirtualClock};

    #[test]
    fn two_snapshots_in_a_row_cost_a_pause() {
        let mut retries = Retries::default();
        let has_no_pause = [(); 4].map(|()| retries.note(&Fault::Anew("lost"), false));
        assert_eq!((has_no_pause, retries.failures), ([true, true, false, true], 1));
    }

    #[test]
    fn a_followed_leader_ends_the_backoff() {
        let mut retries = Retries::default();
        let failures = [false, false, true, false].map(|was_followed| {
            assert!(!retries.note(&Fault::Behind, was_followed));
            retries.failures
        });
        assert_eq!(failures, [1, 2, 0, 1]);
    }

    #[test]
    fn the_pause_doubles_up_to_its_bound() {
        let mut leaders = leaders();
        for (failures, at_most_ms) in [(1, 200), (2, 400), (6, 6_400), (7, 10_000), (99, 10_000)] {
            let pauses = [(); 100].map(|()| leaders.pause(failures).as_millis());
            assert!(pauses.iter().all(|ms| (at_most_ms / 2..=at_most_ms).contains(ms)));
            assert!(pauses.iter().any(|ms| *ms != pauses[0]), "followers come back together");
        }
    }

    /// A thread that follows no server, and has something of one.
    fn leaders() -> Leaders {
        let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
        hub.begin_following();
        hub.follow_upto(1);
        Leaders {
            state: Arc::new(FollowState::new(&Follow::default())),
            follower: Follower::new(hub, Box::new(|_| {})),
            agent: agent(&[], None, "").unwrap(),
            rng: Rng::new(1),
            ends: Arc::default(),
        }
    }

    /// A body that has a byte now and then.
    struct Trickle(u32);

    impl Read for Trickle {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            VirtualClock::pass(Duration::from_secs(1));
            self.0 -= 1;
            out[0] = 0;
            Ok(usize::from(self.0 > 0))
        }
    }

    fn trickle() -> Body {
        Body::builder().reader(Trickle(100))
    }

    #[test]
    fn a_snapshot_that_trickles_is_given_up() {
        let _clock = VirtualClock::start(0);
        let answer = Response::builder().body(trickle()).unwrap();
        let slow = Fault::from("its snapshot comes too slowly");
        assert_eq!(read_snapshot(answer, |_| Ok(())), Err(slow));
    }

    /// A network in which no connection comes about.
    #[derive(Debug)]
    struct Unreachable;

    impl Dialer for Unreachable {
        fn resolve(&self, _: &str, _: Option<u64>) -> io::Result<Vec<SocketAddr>> {
            Ok(vec![([192, 0, 2, 1], 80).into()])
        }

        fn connect(&self, _: SocketAddr, until: Option<u64>) -> io::Result<Arc<dyn ByteStream>> {
            let left_us = until.unwrap_or(u64::MAX).saturating_sub(monotonic_us());
            VirtualClock::pass(Duration::from_micros(left_us));
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    #[test]
    fn an_unreachable_leader_is_given_up() {
        let _clock = VirtualClock::start(0);
        let mut leaders = leaders();
        leaders.agent = agent_over(config(&[], None, "").unwrap(), Arc::new(Unreachable));
        assert!(matches!(leaders.follow("http://h"), Err(Fault::Broken(_))));
        let took_us = monotonic_us();
        assert!((1_000_000..=5_000_000).contains(&took_us), "{took_us} us");
    }

    #[test]
    fn a_feed_that_trickles_is_given_up() {
        let _clock = VirtualClock::start(0);
        let slow = Fault::from("its feed comes too slowly");
        assert_eq!(leaders().read_feed(trickle()), Err(slow));
    }
}
