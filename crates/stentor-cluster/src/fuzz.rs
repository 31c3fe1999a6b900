//! What comes of a log or a broker, whatever it is: for the fuzz targets `log` and `broker`.

use crate::codec::{
    Checksum, EpochRecord, Growing, LogMessage, MessageBody, Of, Unreadable, decode,
};
use crate::nats;
use crate::protocol::{Action, ClusterNode, Looked};
use crate::waiting::ClusterIntake;
use std::sync::Arc;
use stentor_hub::{Epoch, Hub, Limits};

/// Feeds a node messages: each has a byte that says what it is, and one that says how long. It
/// reads them all, and skips what no node writes.
pub fn check_log(mut data: &[u8]) {
    let epoch = Epoch::from_number(7);
    let turn = EpochRecord {
        before: None,
        has_seed: false,
        broker: 1,
        since_ms: 1,
        cluster: 1,
        again: None,
    };
    let mut messages = vec![turn.encode((epoch, 9, 0))];
    while let Some(([kind, length], rest)) = data.split_first_chunk() {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        let of = Of { read: Checksum::default(), jump: 0, since: (*kind == 1).then_some(1) };
        let mut growing = Growing::new();
        growing.push(|out| out.extend_from_slice(bytes));
        messages.push(match kind {
            0 | 1 => growing.into_batch((epoch, 9, 1), of),
            2 => growing.into_seed((epoch, 9, 1), true),
            3 => [&turn.encode((epoch, 9, 0))[..2], bytes].concat(),
            _ => bytes.to_vec(),
        });
    }
    let hub = Arc::new(Hub::new(Epoch::from_number(1), Vec::new(), Limits::default()));
    hub.begin_following();
    let intake = Arc::new(ClusterIntake::new());
    let mut node = ClusterNode::new(Arc::clone(&hub), intake, 1, Box::new(|_| {}));
    node.handle_connected(1);
    let Some(Action::Look { token, .. }) = node.poll() else { panic!("it looks first") };
    let last = messages.len() as u64;
    // One that says what life it is again may be the last of its kind.
    let says_life = |message: &Vec<u8>| {
        matches!(decode(message), Ok(LogMessage { body: MessageBody::Epoch(_), .. }))
    };
    let at = messages.iter().rposition(says_life).unwrap_or(0);
    let life = Some((at as u64 + 1, messages[at].clone(), false));
    let looked = Looked { broker: 1, unix_ms: 1, first: 1, last, life, ..Looked::default() };
    node.handle_looked(token, &looked, 1);
    if node.poll() != Some(Action::Read { from: 1 }) {
        return hub.check();
    }
    for (seq, message) in (1..).zip(&messages) {
        node.handle_message(seq, message, 1);
        let is_stopped =
            matches!(decode(message), Err(Unreadable::Damaged | Unreadable::OtherVersion));
        assert!(node.read() == seq || is_stopped || node.not_ready().is_some());
        hub.check();
        if is_stopped {
            return;
        }
    }
}

/// Reads what a broker says: the same however it is cut.
pub fn check_broker(data: &[u8]) {
    let whole = nats::read_all(data, data.len().max(1));
    for piece in [1, 7] {
        assert_eq!(nats::read_all(data, piece), whole, "in pieces of {piece}");
    }
}
