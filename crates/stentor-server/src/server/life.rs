//! A worker's life on its thread: what it does before it may accept, its turns, its end.

use super::StartError;
use super::listeners::Addresses;
use crate::config::Settings;
use crate::limits::{FILES_RESERVED, PANICS_MAX};
use crate::mailbox::Mailbox;
use crate::stats::Stats;
use crate::user::become_user;
use crate::worker::Worker;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::{fmt, io, thread};
use stentor_io::{Epoll, User, release_memory};

/// What a worker is there for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Post {
    /// One of those that have the public listeners, with its number.
    Public(usize),
    /// The one that has the control listeners and the monitor's.
    Control,
}

impl Post {
    /// A worker for each post that the settings ask for.
    pub(super) fn all(settings: &Settings) -> Vec<Post> {
        let public = if settings.listen.is_empty() { 0 } else { settings.workers };
        let operators = settings.control.len() + settings.monitor.len();
        let control = (operators > 0).then_some(Post::Control);
        (0..public).map(Post::Public).chain(control).collect()
    }

    pub(super) fn is_public(self) -> bool {
        matches!(self, Post::Public(_))
    }
}

/// The name of the worker's thread.
impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Post::Public(index) => write!(f, "worker-{index}"),
            Post::Control => f.write_str("control"),
        }
    }
}

/// What a worker does on its own thread before it may accept.
pub(super) fn prepare(
    post: Post,
    settings: &Settings,
    addresses: &Addresses,
    user: Option<&User>,
    mailbox: &Mailbox,
    worker: &mut Worker,
) -> Result<Epoll, StartError> {
    let threads = Post::all(settings).len();
    let mut files = usize::try_from(stentor_io::open_files_limit()).unwrap_or(usize::MAX);
    if let Err(error) = stentor_io::own_file_table() {
        tracing::warn!("{post} shares its file table, and so its limit: {error}");
        files /= threads;
    }
    let mut listeners = addresses.listen(post, false)?;
    if let (Some(name), Some(user)) = (&settings.user, user) {
        become_user(name, user)?;
    }
    // Not before: a socket file is its maker's, to connect to and to remove.
    listeners.extend(addresses.listen(post, true)?);
    let mut io = Epoll::new(listeners, Arc::clone(mailbox.waker()))?;
    if let Post::Public(index) = post {
        if settings.pin
            && let Err(error) = stentor_io::pin_to_core(index)
        {
            tracing::warn!("{post} is not pinned to a core: {error}");
        }
        let connections_max = share(settings, files, threads);
        io.limit_connections(connections_max);
        worker.limit_connections(connections_max.saturating_mul(settings.workers));
    }
    Ok(io)
}

/// How many connections one public worker holds, if it may have so many files. Each thread's
/// mailbox is one of them, in every table.
fn share(settings: &Settings, files: usize, threads: usize) -> usize {
    let by_files = files.saturating_sub(FILES_RESERVED + threads).max(files / 2).max(1);
    match settings.limits.connections_max {
        0 => by_files,
        all => by_files.min(all.div_ceil(settings.workers)),
    }
}

/// A worker's life and its end, whatever ends it: nothing more is kept for it, and nobody is
/// counted whom it served.
pub(super) fn live(
    post: Post,
    worker: Worker,
    io: Epoll,
    mailbox: &Mailbox,
    stats: &Stats,
) -> io::Result<()> {
    let life = panic::catch_unwind(AssertUnwindSafe(|| run(worker, io, mailbox)));
    let result = life.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
    mailbox.close();
    stats.close(result.is_err());
    result.inspect_err(|error| tracing::error!("{post} cannot go on: {error}"))
}

/// A worker's life. A panic costs the connection that caused it, and no other.
fn run(mut worker: Worker, mut io: Epoll, mailbox: &Mailbox) -> io::Result<()> {
    worker.open_roots();
    for panics in 0..PANICS_MAX {
        let life = panic::catch_unwind(AssertUnwindSafe(|| {
            if panics > 0 {
                worker.recover(&mut io);
                // A wake-up may have gone by in the turn that broke off.
                mailbox.waker().take();
                worker.read_mailbox(&mut io);
            }
            loop {
                turn(&mut worker, &mut io)?;
                if worker.has_ended() {
                    return Ok(());
                }
            }
        }));
        match life {
            Ok(result) => return result,
            Err(_) => {
                tracing::error!("a request made its worker panic; its connection is closed");
            }
        }
    }
    Err(io::Error::other("too many panics"))
}

fn turn(worker: &mut Worker, io: &mut Epoll) -> io::Result<()> {
    let deadline_ms = worker.next_deadline_ms();
    let woken = io.turn(worker, deadline_ms)?;
    if woken {
        worker.read_mailbox(io);
    }
    worker.after_turn(io);
    if worker.releases_memory() {
        // Not here: it takes some milliseconds. If there is no thread for it, it stays as it is.
        let _ = thread::Builder::new().name("release".to_owned()).spawn(release_memory);
    }
    Ok(())
}
