//! A large response: its head is written, and its body is made in steps (`large_body.rs`).

use super::Connection;
use super::http::Http;
use super::state::State;
use crate::budget::{WorkClass, admitted};
use crate::context::Context;
use crate::large_body::{LargeBody, Mark};
use crate::phase::{Phase, RequestWait};

/// A response whose body is not complete.
#[derive(Debug)]
pub(super) struct Making {
    body: Box<dyn LargeBody>,
    next: Mark,
    /// The state after the response.
    after: State,
}

impl Making {
    /// Begins a body. `ending` is the state after it, unless another request may follow.
    pub(super) fn begin(body: Box<dyn LargeBody>, ending: Option<State>) -> State {
        let open = || State::Http(Http::new(RequestWait::Idle, 0, None));
        let after = ending.unwrap_or_else(open);
        State::Body(Box::new(Making { body, next: Mark::default(), after }))
    }

    /// As it waits for room or in the queue: with the rest of its response as a backlog, the
    /// connection is in the state after it.
    pub(super) fn phase(&self) -> Phase {
        match self.after {
            State::Http(_) => Phase::Open(RequestWait::Room),
            State::Closing => Phase::Closing,
            _ => Phase::Refusing,
        }
    }

    /// The rest of the body.
    pub(super) fn rest(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.body.append_rest(self.next, &mut rest);
        rest
    }

    pub(super) fn own_bytes(&self) -> usize {
        size_of::<Making>() + self.body.own_bytes()
    }

    pub(super) fn detached_share(&self) -> usize {
        self.body.detached_share()
    }
}

impl Connection {
    /// Makes the next part of a body, if its class has budget left.
    pub(super) fn pump_body(&mut self, cx: &mut Context) {
        let made = admitted(cx, WorkClass::Requests, |cx, _| {
            let State::Body(making) = &mut self.state else { return None };
            let before = cx.out.len();
            let next = making.body.append(making.next, cx.out.bytes());
            cx.load.budget.cost += cx.out.len() - before;
            next.inspect(|&mark| making.next = mark)
        });
        match made {
            Some(Some(_)) => {}
            // That was the last part.
            Some(None) => {
                if let State::Body(making) = self.take_state() {
                    self.enter(cx, making.after);
                }
            }
            None => self.work.wait_in(WorkClass::Requests),
        }
    }
}
