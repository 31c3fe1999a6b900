//! What a WebSocket's client says (RFC 6455), and what is said to it beside messages.
//!
//! Clients have little to say: they answer pings, they close, and those that speak `stentor.v1`
//! subscribe and unsubscribe. All else that is well formed is passed over; what is not ends the
//! connection with the code the RFC has for it.

use super::{Extra, Joining, Reading, Subscription};
use crate::access::Sight;
use crate::budget::{Permit, WorkClass, admitted};
use crate::connection::state::State;
use crate::connection::{Connection, Progress, REQUEST_COST, StreamWait};
use crate::context::Context;
use crate::limits::{COMMAND_BYTES_MAX, ECHO_BYTES_MAX, IGNORED_BYTES_MAX, INFLATE_COST};
use crate::problem::{command_error, command_ok};
use crate::stream::feeds::FeedId;
use crate::stream::feeds::Room;
use crate::stream::format::Transport;
use crate::stream::{COMMANDS, OWES_PONG, PARTIAL, Start};
use crate::transport::TOO_MANY_TOPICS;
use std::collections::HashSet;
use std::sync::Arc;
use stentor_hub::{Filter, Hub};

use stentor_access::Grant;
use stentor_wire::error::{ErrorCode, Rejection};
use stentor_wire::events::{Command, CommandId, parse_command};
use stentor_wire::rejections;
use stentor_wire::websocket::{self, Opcode, Received, Rules, Violation};

impl Connection {
    /// Input of a connection that reads a stream: frames of a WebSocket. What the clients of other
    /// streams send means nothing.
    pub(in crate::connection) fn read_frames(
        &mut self,
        cx: &mut Context,
        input: &[u8],
    ) -> Progress {
        let State::Stream(reading) = &self.state else { return Progress::Starved(0) };
        let traits = reading.traits;
        let message_bytes_max = match traits.transport {
            Transport::Echo => ECHO_BYTES_MAX,
            Transport::WebSocket if traits.has(COMMANDS) => COMMAND_BYTES_MAX,
            Transport::WebSocket => IGNORED_BYTES_MAX,
            Transport::Sse | Transport::SseUnchunked | Transport::LongPoll => {
                return Progress::Used(input.len());
            }
        };
        let rules = Rules { message_bytes_max, deflate: traits.window_bits != 0 };
        let class = traits.has(COMMANDS).then_some(WorkClass::Commands);
        let read = |cx: &mut Context, permit: &Permit| self.read_frame(cx, input, &rules, permit);
        admitted(cx, class, read).unwrap_or_else(|| {
            self.work.wait_in(WorkClass::Commands);
            Progress::Starved(0)
        })
    }

    fn read_frame(
        &mut self,
        cx: &mut Context,
        input: &[u8],
        rules: &Rules,
        permit: &Permit,
    ) -> Progress {
        let State::Stream(reading) = &mut self.state else { return Progress::Starved(0) };
        reading.traits.set(OWES_PONG, false);
        let decoder = reading.extra().decoder.get_or_insert_default();
        let result = decoder.next(&mut cx.resources.inflater, input, rules);
        // A decoder that stays says that a frame, or a message, is on its way.
        if decoder.is_idle() {
            reading.extra().decoder = None;
            // The next one has a time of its own. A ping within a message buys that one none.
            if reading.wait == StreamWait::Frame {
                cx.rearm();
            }
        }
        match result {
            Ok((used, None)) => Progress::Starved(used),
            Ok((used, Some(received))) => {
                let input_cost = if rules.deflate { used * INFLATE_COST } else { used };
                cx.load.budget.cost +=
                    input_cost + received.data_bytes() * DATA_COST + REQUEST_COST;
                self.received(cx, received, permit);
                Progress::Used(used)
            }
            Err(violation) => {
                self.end_websocket(cx, violation);
                Progress::Used(input.len())
            }
        }
    }

    /// One whole frame or message.
    fn received(&mut self, cx: &mut Context, received: Received, permit: &Permit) {
        match received {
            Received::Ping(data) => {
                websocket::frame(cx.out.bytes(), Opcode::Pong, false, &data);
            }
            Received::Close(code) => {
                match code {
                    Some(code) => websocket::close_frame(cx.out.bytes(), code, ""),
                    None => websocket::frame(cx.out.bytes(), Opcode::Close, false, b""),
                }
                self.enter(cx, State::Refusing);
            }
            Received::Text(text) if self.commands() => self.command(cx, text.as_bytes(), permit),
            Received::Binary(data) if self.commands() => {
                self.command(cx, &data, permit);
            }
            Received::Text(text) if self.is_echo() => {
                self.echo(cx, Opcode::Text, text.as_bytes());
            }
            Received::Binary(data) if self.is_echo() => {
                self.echo(cx, Opcode::Binary, &data);
            }
            Received::Text(_) | Received::Binary(_) | Received::Pong => {}
        }
    }

    /// Ends the connection of a client that broke the protocol or a limit.
    pub(super) fn end_websocket(&mut self, cx: &mut Context, violation: Violation) {
        tracing::debug!("a WebSocket is closed: {}", violation.reason);
        websocket::close_frame(cx.out.bytes(), violation.code, violation.name());
        self.enter(cx, State::Refusing);
    }

    fn commands(&self) -> bool {
        self.reading().is_some_and(|reading| reading.traits.has(COMMANDS))
    }

    /// Whether it is sent back what it sends.
    pub(in crate::connection) fn is_echo(&self) -> bool {
        self.transport() == Some(Transport::Echo)
    }

    fn echo(&mut self, cx: &mut Context, opcode: Opcode, data: &[u8]) {
        let deflated = match self.reading().map_or(0, |reading| reading.traits.window_bits) {
            0 => None,
            bits => websocket::deflate(&mut cx.streams.deflater, data, bits),
        };
        let payload = deflated.unwrap_or(data);
        websocket::frame(cx.out.bytes(), opcode, deflated.is_some(), payload);
    }

    /// Subscribes and unsubscribes. A command that is not understood changes nothing.
    fn command(&mut self, cx: &mut Context, bytes: &[u8], permit: &Permit) {
        let text = str::from_utf8(bytes).map_err(|_| (None, NOT_UTF8));
        if let Err((id, rejection)) = text.and_then(|text| self.run_command(cx, text, permit)) {
            let error = command_error(id.as_ref(), &rejection);
            websocket::frame(cx.out.bytes(), Opcode::Text, false, &error);
        }
    }

    /// Runs a command. Returns its id with the rejection.
    fn run_command(
        &mut self,
        cx: &mut Context,
        text: &str,
        permit: &Permit,
    ) -> Result<(), (Option<CommandId>, Rejection)> {
        let command = parse_command(text, cx.settings.streams.topics_max)
            .map_err(|rejection| (CommandId::of_invalid(text), rejection))?;
        let id = command.id.clone();
        let checked = self.check_command(cx, command, permit);
        self.execute(cx, checked.map_err(|rejection| (id, rejection))?, permit);
        Ok(())
    }

    /// Checks the whole command. Nothing has changed if it is rejected.
    fn check_command(
        &self,
        cx: &mut Context,
        command: Command,
        permit: &Permit,
    ) -> Result<CheckedCommand, Rejection> {
        let Command { id, subscribe, unsubscribe, since, token } = command;
        let (mut subscribe, unsubscribe) = (filters(&subscribe)?, filters(&unsubscribe)?);
        let start = Start::parse(&cx.shared.hub, since.as_deref().map(str::as_bytes));
        if start.is_invalid() {
            return Err(BAD_CURSOR);
        }
        let leaving: HashSet<FeedId> =
            unsubscribe.iter().filter_map(|filter| cx.streams.feeds.id(filter)).collect();
        let grant =
            token.map(|token| self.check_token(cx, &token, &leaving, permit)).transpose()?;
        let sight = self.may_subscribe(cx, &mut subscribe, grant.as_ref(), permit)?;
        let subscriptions = self.reading().map_or(&[][..], Reading::subscriptions);
        // What it reads already, or names twice, it does not join again.
        let mut named = HashSet::new();
        subscribe.retain(|filter| {
            let reads = |id| {
                !leaving.contains(&id)
                    && subscriptions.binary_search_by_key(&id, |read| read.feed).is_ok()
            };
            !cx.streams.feeds.id(filter).is_some_and(reads) && named.insert(filter.clone())
        });
        let topics_max = cx.settings.streams.topics_max;
        let left = subscriptions.iter().filter(|read| !leaving.contains(&read.feed)).count();
        if left + subscribe.len() > topics_max {
            let detail = format!("At most {topics_max} topics may be subscribed to at once.");
            return Err(Rejection::because(ErrorCode::SubscriptionLimit, detail));
        }
        let (feeds, room) = (&cx.streams.feeds, Room::of(&cx.settings));
        if !feeds.has_room_for(&cx.shared.hub, subscribe.iter(), room) {
            return Err(TOO_MANY_TOPICS);
        }
        Ok(CheckedCommand { id, grant, subscribe, leaving, start, sight })
    }

    /// Executes a command, and replies once all that it brings has been sent.
    fn execute(&mut self, cx: &mut Context, command: CheckedCommand, permit: &Permit) {
        let CheckedCommand { id, grant, subscribe, leaving, start, sight } = command;
        if let Some(grant) = grant {
            self.renew(cx, &grant);
        }
        let State::Stream(reading) = &mut self.state else { return };
        if !sight.part.is_empty() {
            reading.set_trait(PARTIAL, true);
        }
        let Extra { subscriptions, partial, .. } = reading.extra();
        let hub = Arc::clone(&cx.shared.hub);
        subscriptions.retain(|Subscription { feed, .. }| {
            let stays = !leaving.contains(feed);
            if !stays {
                cx.streams.feeds.leave(&hub, *feed);
            }
            stays
        });
        subscriptions.shrink_to(subscriptions.len() * 2);
        // Others may have their numbers later.
        partial.retain(|feed| !leaving.contains(feed));
        if let Some(write) = reading.traits.transport.manner().notice
            && sight.misses()
        {
            write(cx.out.bytes(), None, &sight.notice());
        }
        if subscribe.is_empty() {
            let ok = command_ok(id.as_ref(), None);
            return websocket::frame(cx.out.bytes(), Opcode::Text, false, ok.as_bytes());
        }
        let start = reading.not_ahead_of_others(&hub, start.under(cx.load.pressure, &hub));
        let subscriptions = Reading::join(cx, &mut self.stamp, &subscribe, permit);
        reading.note_partial(cx, &sight.part);
        // Everything up to this number has been told, so after this it is in the log.
        let seq = hub.notified_seq();
        // mutation: command-panic
        reading.extra().joining = Some(Joining { subscriptions, start, seq, id });
        // Behind that: should it panic, the connection knows what it has joined.
        cx.take_mail();
    }
}

/// A command that can be executed whole.
struct CheckedCommand {
    id: Option<CommandId>,
    /// The token that takes the place of the one before.
    grant: Option<Grant>,
    /// What is not read yet.
    subscribe: Vec<Filter>,
    leaving: HashSet<FeedId>,
    start: Start,
    sight: Sight,
}

impl Reading {
    /// All that is read has one cursor. If that is ahead, as of a reader that comes from a server
    /// which is further on, what else it begins to read would miss what comes until then: so it is
    /// set back, and such a reader may be sent again what it has had there.
    fn not_ahead_of_others(&mut self, hub: &Hub, start: Start) -> Start {
        if !hub.is_following() || self.feeds().is_empty() {
            return start;
        }
        let here = hub.notified_seq();
        self.cursor = self.cursor.min(here);
        match start {
            Start::After(number) if number > here => Start::After(here),
            other => other,
        }
    }
}

/// Parses the filters of a command.
fn filters(names: &[String]) -> Result<Vec<Filter>, Rejection> {
    names.iter().map(|name| Filter::parse(name)).collect()
}

/// What a byte of a command costs that is taken apart.
const DATA_COST: usize = 8;

rejections! {
    NOT_UTF8: CommandInvalid = "A command must be UTF-8.";
    BAD_CURSOR: CursorInvalid = "since must be an id of this server, earliest or now.";
}
