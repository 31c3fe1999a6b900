//! Listeners that were taken over from another process and are not wanted any more: nobody new
//! comes to them, and whoever has come already is accepted.
//!
//! They stand behind all others in the list. Closing one resets who is in its queue, or in the
//! middle of a handshake; so it stays for longer than the kernel takes to repeat its part of one.

use super::listening::{Accepted, Accepting};
use super::{ACCEPT_RETRY_MS, Epoll};
use crate::socket::{SocketName, socket_name};
use crate::{Handler, Role};
use rustix::event::epoll;

/// Which listeners vanish, and when they are closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vanishing {
    /// The place of the first of them.
    from: usize,
    /// On the clock of [`Backend::now_ms`](crate::Backend::now_ms).
    pub(super) at_ms: u64,
}

impl Epoll {
    /// Gives each listener the role that `role_of` says for its address, and has those vanish that
    /// have none any more. To be called once nobody else has them.
    pub fn keep_listeners(&mut self, role_of: impl Fn(&SocketName, Role) -> Option<Role>) {
        self.clock.read();
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (listener, role) in std::mem::take(&mut self.listening.listeners) {
            // What cannot be asked is kept.
            match socket_name(&listener).map_or(Some(role), |name| role_of(&name, role)) {
                Some(role) => kept.push((listener, role)),
                None => gone.push((listener, role)),
            }
        }
        gone.retain_mut(|(listener, _)| listener.vanish());
        self.listening.listeners = kept;
        if !gone.is_empty() {
            let (from, at_ms) = (self.listening.listeners.len(), self.clock.now_ms + VANISH_MS);
            self.listening.vanishing = Some(Vanishing { from, at_ms });
            self.listening.listeners.append(&mut gone);
        }
    }

    /// Closes them when it is time to, and their queues are empty.
    pub(super) fn tend_vanishing<H: Handler<Epoll>>(&mut self, handler: &mut H) {
        let Some(Vanishing { from, at_ms }) = self.listening.vanishing else { return };
        // Those who stop, or stand still, see to all listeners alike.
        if at_ms > self.clock.now_ms || matches!(self.listening.accepting, Accepting::Closing(_)) {
            return;
        }
        let until_us = self.share_ends_us();
        while self.listening.listeners.len() > from {
            let again_ms = match self.accept(handler, self.listening.listeners.len() - 1, until_us)
            {
                Accepted::All => {
                    if let Some((listener, _)) = self.listening.listeners.pop() {
                        let _ = epoll::delete(&self.epoll, &listener);
                    }
                    continue;
                }
                Accepted::Some => self.clock.now_ms,
                Accepted::NoRoom(_) => self.clock.now_ms + ACCEPT_RETRY_MS,
            };
            self.listening.vanishing = Some(Vanishing { from, at_ms: again_ms });
            return;
        }
        self.listening.vanishing = None;
    }
}

/// The kernel repeats its part of a handshake after a second.
const VANISH_MS: u64 = 1_500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{listen_unix, reserve};
    use crate::{Backend, Flow, Peer, Refused, Waker};
    use std::io::{ErrorKind, IoSlice, Read, Write};
    use std::net::{IpAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    /// Answers whatever comes with itself, and counts who comes.
    struct Echo(usize);

    impl Handler<Epoll> for Echo {
        fn accepted(
            &mut self,
            _: &mut Epoll,
            _: Peer,
            _: Role,
            _: Option<IpAddr>,
        ) -> Result<(), Refused> {
            self.0 += 1;
            Ok(())
        }

        fn ready(&mut self, _: &mut Epoll, _: Peer, _: bool) -> bool {
            true
        }

        fn received(&mut self, io: &mut Epoll, peer: Peer, bytes: &mut [u8]) -> Flow {
            let _ = io.send(peer, &[IoSlice::new(bytes)]).unwrap();
            Flow::More
        }

        fn ended(&mut self, io: &mut Epoll, peer: Peer) {
            io.close(peer);
        }
    }

    fn answers(stream: &mut (impl Read + Write)) {
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"x");
    }

    #[test]
    fn whoever_waits_at_an_address_that_vanishes_is_served_and_nobody_else() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (stays, goes) = (reserve(any).unwrap(), reserve(any).unwrap());
        let (at, gone) = (stays.address(), goes.address());
        let file = std::env::temp_dir().join(format!("stentor-vanish-{}", std::process::id()));
        let listeners = vec![
            (goes.listen().unwrap(), 0),
            (stays.listen().unwrap(), 0),
            (listen_unix(&file).unwrap(), 1),
        ];
        let mut io = Epoll::new(listeners, Arc::new(Waker::new().unwrap())).unwrap();
        let ask = |address| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(b"x").unwrap();
            stream
        };
        let mut waiting: Vec<_> = (0..40).map(|_| ask(gone)).collect();
        let mut by_file = UnixStream::connect(&file).unwrap();
        by_file.write_all(b"x").unwrap();
        io.keep_listeners(|name, _| (*name == SocketName::Tcp(at)).then_some(2));
        assert!(!file.exists(), "somebody could still come");
        // The kernel repeats its part of a handshake after a second.
        assert!(io.listening.vanishing.unwrap().at_ms > io.now_ms() + 1_000);
        let refused = TcpStream::connect(gone).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let mut late = ask(at);
        let mut echo = Echo(0);
        while echo.0 < 42 || io.listening.vanishing.is_some() {
            io.turn(&mut echo, Some(io.now_ms() + 10_000)).unwrap();
        }
        assert_eq!(io.listening.listeners.iter().map(|(_, role)| *role).collect::<Vec<_>>(), [2]);
        waiting.iter_mut().for_each(answers);
        answers(&mut late);
        answers(&mut by_file);
    }
}
