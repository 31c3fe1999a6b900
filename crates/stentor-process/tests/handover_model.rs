//! A model of an upgrade: which of two processes continues. The search visits every case.
//!
//! The model has the protocol of `server/leaving.rs` and `server/taking_over.rs` in a few states.
//! Every wait may end by its timeout, and one of the processes may be killed between any two steps.
//! A process may also hang: time passes, and it takes no step. Only the old process measures the
//! pause: it takes its step at the end of the budget. The search visits every world that these
//! choices lead to. In each world it checks that
//!
//! - at most one process serves, and at most one writes to the store;
//! - an acknowledged message is in the store, and known to the process that serves;
//! - readers wait for the budget at most, whatever hangs;
//! - a client hears of the end of its connection, also if another process has that open.
//!
//! In each world where nothing more happens it checks that
//!
//! - a process serves, or both have ended and one of them was killed: then the supervisor starts
//!   the server again;
//! - the old process has ended by itself only if the new one had the token.
//!
//! [`Fault`] breaks the protocol on purpose, so a test sees each check fail.

use stentor_test::model::search;

/// The process that hands over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Old {
    /// It serves, and sends connections and messages to the process that it has started.
    Copies,
    /// Its workers stand still.
    StandsStill,
    /// It has sent everything. It waits until the new process says that it continues.
    Waits,
    /// Something has failed. It tries to take the token.
    TakesBack,
    /// It has the token, and waits for the end of the new process, which is a fault.
    EndsOther,
    /// It serves again beside the new process, and does not write to the store yet.
    Resumes,
    /// It serves as if nothing had happened.
    Continues,
    Ended,
    Killed,
}

/// The process that takes over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum New {
    /// It receives connections and messages.
    Fills,
    /// It has everything.
    IsReady,
    /// It has the token, and serves. It does not write to the store yet.
    Begins,
    /// It serves and writes.
    Continues,
    Ended,
    Killed,
}

/// The process that may continue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Token {
    Free,
    Old,
    New,
}

/// One message that a publisher sends during the upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a fault makes each of them true alone")]
struct Message {
    in_old: bool,
    in_new: bool,
    is_stored: bool,
    is_acknowledged: bool,
}

/// One connection of a client, which was sent to the new process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Connection {
    Open,
    /// The old process has closed it, and the new one has it open.
    Dangling,
    /// The client has heard of the end.
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct World {
    old: Old,
    new: New,
    token: Token,
    message: Message,
    connection: Connection,
    /// For so many units of time no process has served.
    paused: u8,
    /// The old process has sent everything: connections, messages and the numbers of the store.
    is_sent: bool,
    /// The new process has said that it continues.
    is_told: bool,
    /// One of the processes may still be killed.
    may_kill: bool,
}

/// What a test breaks in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// After a timeout the old process continues without the token.
    ContinuesWithoutToken,
    /// The new process serves without the token.
    ServesWithoutToken,
    /// The old process does not send what has changed until its workers stood still.
    OmitsLastChanges,
    /// A publisher is told before the store has synced.
    AcknowledgesUnsynced,
    /// After a timeout the old process writes to the store before it has the token.
    WritesBeforeToken,
    /// After a timeout the old process ends, whoever has the token.
    EndsAtTimeout,
    /// The old process waits for what it has not got, whatever time that takes.
    ExceedsBudget,
    /// The old process serves again when the new one has ended.
    EndsOtherFirst,
    /// The old process closes a connection, and does not shut it down.
    ClosesAlone,
}

/// How many units of time a pause may last.
const BUDGET: u8 = 2;

impl World {
    const FIRST: World = World {
        old: Old::Copies,
        new: New::Fills,
        token: Token::Free,
        message: Message { in_old: false, in_new: false, is_stored: false, is_acknowledged: false },
        connection: Connection::Open,
        paused: 0,
        is_sent: false,
        is_told: false,
        may_kill: true,
    };

    fn old_serves(&self) -> bool {
        matches!(self.old, Old::Copies | Old::Resumes | Old::Continues)
    }

    fn new_serves(&self) -> bool {
        matches!(self.new, New::Begins | New::Continues)
    }

    fn old_writes(&self, fault: Fault) -> bool {
        let writes_early = fault == Fault::WritesBeforeToken && self.old == Old::TakesBack;
        matches!(self.old, Old::Copies | Old::Continues) || writes_early
    }

    /// The worlds that one step, one timeout or one kill makes of this one.
    fn next(self, fault: Fault) -> Vec<World> {
        let mut next = Vec::new();
        self.publish(fault, &mut next);
        self.close(fault, &mut next);
        self.pass_time(fault, &mut next);
        self.step_old(fault, &mut next);
        self.step_new(fault, &mut next);
        if self.may_kill && !matches!(self.old, Old::Ended) {
            next.push(World { old: Old::Killed, may_kill: false, ..self });
        }
        if self.may_kill && !matches!(self.new, New::Ended) {
            next.push(World { new: New::Killed, may_kill: false, ..self });
        }
        // The kernel closes what a process had open when that ends.
        for world in next.iter_mut().filter(|world| !world.new_is_there()) {
            if world.connection == Connection::Dangling {
                world.connection = Connection::Ended;
            }
        }
        next
    }

    fn new_is_there(&self) -> bool {
        !matches!(self.new, New::Ended | New::Killed)
    }

    /// The old process closes the connection.
    fn close(self, fault: Fault, next: &mut Vec<World>) {
        if self.old_serves() && self.connection == Connection::Open {
            let is_left = fault == Fault::ClosesAlone && self.new_is_there();
            let connection = if is_left { Connection::Dangling } else { Connection::Ended };
            next.push(World { connection, ..self });
        }
    }

    /// The old process is there, and no process serves.
    fn is_paused(&self) -> bool {
        !self.old_serves() && !self.new_serves() && !matches!(self.old, Old::Ended | Old::Killed)
    }

    /// Time passes while no process serves, unless the old process is to take a step now.
    fn pass_time(self, fault: Fault, next: &mut Vec<World>) {
        let is_due = match self.old {
            Old::TakesBack => true,
            Old::StandsStill | Old::Waits => fault != Fault::ExceedsBudget && self.paused >= BUDGET,
            _ => false,
        };
        if self.is_paused() && !is_due && self.paused <= BUDGET {
            next.push(World { paused: self.paused + 1, ..self });
        }
    }

    /// The process that serves applies the message, a writer syncs it, and the publisher is told.
    fn publish(self, fault: Fault, next: &mut Vec<World>) {
        let World { message, .. } = self;
        let mut add = |message| next.push(World { message, ..self });
        if self.old_serves() && !message.in_old {
            add(Message { in_old: true, ..message });
        }
        // A change is sent behind the copy.
        if self.old == Old::Copies && self.new == New::Fills && message.in_old && !message.in_new {
            add(Message { in_new: true, ..message });
        }
        let old_writes = self.old_writes(fault) && message.in_old;
        if (old_writes || self.new == New::Continues && message.in_new) && !message.is_stored {
            add(Message { is_stored: true, ..message });
        }
        let is_known = self.old_serves() && message.in_old || self.new_serves() && message.in_new;
        let may_tell = message.is_stored || fault == Fault::AcknowledgesUnsynced;
        if is_known && may_tell && !message.is_acknowledged {
            add(Message { is_acknowledged: true, ..message });
        }
    }

    fn step_old(self, fault: Fault, next: &mut Vec<World>) {
        let to = |old| World { old, ..self };
        let in_new = self.message.in_new || self.message.in_old && fault != Fault::OmitsLastChanges;
        let message = Message { in_new, ..self.message };
        // A timeout, a closed channel, or a failure of its own.
        let fail = to(match fault {
            Fault::ContinuesWithoutToken => Old::Resumes,
            Fault::EndsAtTimeout => Old::Ended,
            _ => Old::TakesBack,
        });
        match self.old {
            Old::Copies => next.extend([to(Old::StandsStill), fail]),
            Old::StandsStill => {
                next.extend([World { old: Old::Waits, is_sent: true, message, ..self }, fail]);
            }
            Old::Waits if self.is_told => next.push(to(Old::Ended)),
            Old::Waits => next.push(fail),
            Old::TakesBack => {
                let then = match fault {
                    Fault::EndsOtherFirst => Old::EndsOther,
                    _ => Old::Resumes,
                };
                next.push(match self.token {
                    Token::Free => World { old: then, token: Token::Old, ..self },
                    Token::Old | Token::New => to(Old::Ended),
                });
            }
            Old::EndsOther if self.new_is_there() => {}
            Old::EndsOther => next.push(to(Old::Resumes)),
            Old::Resumes => next.push(to(Old::Continues)),
            Old::Continues | Old::Ended | Old::Killed => {}
        }
    }

    fn step_new(self, fault: Fault, next: &mut Vec<World>) {
        let to = |new| World { new, ..self };
        match self.new {
            New::Fills => {
                if self.is_sent {
                    next.push(to(New::IsReady));
                }
                // A timeout, a refusal, or the end of the other process.
                next.push(to(New::Ended));
            }
            New::IsReady if fault == Fault::ServesWithoutToken => next.push(to(New::Begins)),
            New::IsReady => next.push(match self.token {
                Token::Free => World { new: New::Begins, token: Token::New, ..self },
                Token::Old | Token::New => to(New::Ended),
            }),
            New::Begins => {
                next.push(to(New::Continues));
                if !self.is_told {
                    next.push(World { is_told: true, ..self });
                }
            }
            New::Continues if !self.is_told => next.push(World { is_told: true, ..self }),
            New::Continues | New::Ended | New::Killed => {}
        }
    }

    /// What must hold in every world.
    fn check(&self, fault: Fault) -> Result<(), &'static str> {
        let Message { in_old, in_new, is_stored, is_acknowledged } = self.message;
        let is_unknown = self.old_serves() && !in_old || self.new_serves() && !in_new;
        if self.old_serves() && self.new_serves() {
            Err("two processes serve")
        } else if self.old_writes(fault) && self.new == New::Continues {
            Err("two processes write to the store")
        } else if is_acknowledged && (is_unknown || !is_stored) {
            Err("an acknowledged message is lost")
        } else if self.is_paused() && self.paused > BUDGET {
            Err("readers wait for longer than the budget")
        } else if self.connection == Connection::Dangling {
            Err("a client does not hear of the end of its connection")
        } else {
            Ok(())
        }
    }

    /// What must hold where nothing more happens.
    fn check_end(&self) -> Result<(), &'static str> {
        let have_ended = matches!(self.old, Old::Ended | Old::Killed)
            && matches!(self.new, New::Ended | New::Killed);
        if self.old == Old::Ended && self.token != Token::New {
            Err("the old process has ended, and no other had the token")
        } else if self.old_serves() || self.new_serves() || have_ended && !self.may_kill {
            Ok(())
        } else {
            Err("no process serves")
        }
    }
}

/// Visits every world and returns their number, or a violation and the way to it.
fn visit(fault: Fault) -> Result<usize, (&'static str, Vec<World>)> {
    search(
        World::FIRST,
        |world| world.next(fault),
        |world, next| {
            world.check(fault)?;
            // Nobody has to be killed.
            let is_end = next.iter().all(|next| world.may_kill && !next.may_kill);
            if is_end { world.check_end() } else { Ok(()) }
        },
    )
}

#[test]
fn one_process_continues_whatever_fails_and_when() {
    let worlds = visit(Fault::None).unwrap_or_else(|(reason, way)| panic!("{reason}: {way:#?}"));
    assert!(worlds > 100, "{worlds} worlds");
}

#[test]
fn the_search_finds_each_fault() {
    for (fault, expected) in [
        (Fault::ContinuesWithoutToken, "two processes serve"),
        (Fault::ServesWithoutToken, "two processes serve"),
        (Fault::OmitsLastChanges, "an acknowledged message is lost"),
        (Fault::AcknowledgesUnsynced, "an acknowledged message is lost"),
        (Fault::WritesBeforeToken, "two processes write to the store"),
        (Fault::EndsAtTimeout, "the old process has ended, and no other had the token"),
        (Fault::ExceedsBudget, "readers wait for longer than the budget"),
        (Fault::EndsOtherFirst, "readers wait for longer than the budget"),
        (Fault::ClosesAlone, "a client does not hear of the end of its connection"),
    ] {
        let found = visit(fault).map_err(|(reason, _)| reason);
        assert_eq!(found, Err(expected), "{fault:?}");
    }
}
