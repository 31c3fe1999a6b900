//! What must hold of the nodes in the simulator.

use super::*;

impl World {
    /// A node does not begin to read again and again.
    pub(super) fn note_consumer(&mut self, index: usize) {
        let consumers = &mut self.members[index].consumers;
        consumers.push(self.now_ms);
        let lately = consumers.iter().filter(|ms| **ms + 10_000 > self.now_ms).count();
        assert!(lately < 20, "node {index} has begun to read {lately} times in ten seconds");
    }

    /// No life begins while nodes that have read everything give snapshots. Only the peers that a
    /// node has no time to ask may have everything.
    pub(super) fn check_turn(&self, index: usize, payload: &[u8]) {
        let message = decode(payload).unwrap();
        let MessageBody::Epoch(EpochRecord { again: None, .. }) = message.body else { return };
        let peers = (0..self.members.len()).filter(|other| *other != index);
        let (lacking, others): (Vec<_>, Vec<_>) =
            peers.partition(|other| self.lacks_peer(index, *other));
        let is_ready = |other: &usize| {
            let ready_ms = self.members[*other].ready_ms;
            ready_ms.is_some_and(|ready_ms| ready_ms + 3_000 < self.now_ms)
        };
        let ready = others.into_iter().filter(is_ready).count();
        let asked_min = if lacking.len() < 2 { PEERS_ASKED_MIN } else { SLOW_PEERS_ASKED_MIN };
        let unasked_max = (self.members.len() - 1).saturating_sub(asked_min);
        assert!(ready <= unasked_max, "node {index} begins a life, and {ready} have everything");
    }

    /// What somebody heard is the order of all.
    pub(super) fn check_order(&mut self, index: usize) {
        let pieces = self.members[index].heard.0.lock().unwrap().clone();
        for (id, topic, data) in pieces.into_iter().flatten() {
            let known = self.order.entry((id.epoch.number(), id.seq));
            let known = known.or_insert_with(|| (topic.clone(), data.clone()));
            if matches!(self.faults, Faults::Silent | Faults::Fork)
                && *known != (topic.clone(), data.clone())
            {
                self.ambiguous.insert(id);
                continue;
            }
            assert_eq!(*known, (topic, data), "{id}");
        }
    }

    pub(super) fn check_end(&mut self) {
        let states: Vec<Vec<Seen>> = self
            .members
            .iter()
            .map(|member| member.hub.kept().iter().map(seen).collect())
            .collect();
        for index in 0..self.members.len() {
            let member = &self.members[index];
            assert!(member.node.is_open(), "{index}: {:?}", member.node.not_ready());
            assert_eq!(member.intake.bytes(), 0);
            assert_eq!(states[index], states[0], "node {index}");
            assert!(member.waiting.is_empty());
            self.check_order(index);
        }
        let hub = Arc::clone(&self.members[0].hub);
        let life = hub.epoch().number();
        // Those who hold such an id are told.
        let is_lost = |seq: u64| hub.rolled_back().iter().any(|range| range.contains(&seq));
        let is_there = |id: &Id| id.epoch.number() == life && !is_lost(id.seq);
        let ambiguous = self.ambiguous.iter().find(|id| is_there(id));
        assert_eq!(ambiguous, None, "readers are not told that this id is of two messages");
        if !self.faults.loses() && !self.faults.deletes() {
            let epochs: HashSet<_> = self.order.keys().map(|(epoch, _)| epoch).collect();
            assert!(epochs.len() <= 1, "{epochs:?}");
            assert_eq!(hub.rolled_back(), []);
        }
        if self.faults == Faults::Silent {
            // What nobody has any more was forgotten here, too.
            return;
        }
        for (id, topic, data) in &states[0] {
            let data = String::from_utf8(data.clone().unwrap_or_default()).unwrap();
            assert!(!self.refused.contains(&data), "{topic}: {id} was refused");
        }
        let order: BTreeMap<u64, &Of> = self
            .order
            .range((life, 0)..=(life, u64::MAX))
            .filter(|((_, seq), _)| !is_lost(*seq))
            .map(|((_, seq), of)| (*seq, of))
            .collect();
        self.check_pieces(&is_there, &order);
        self.check_late(&order, &is_lost);
        let mut known = HashMap::new();
        for (seq, (_, data)) in &order {
            let before = data.as_ref().and_then(|data| known.insert(data, *seq));
            assert_eq!(before, None, "{data:?} is there again at {seq}");
        }
        let ambiguous: HashSet<_> = self.ambiguous.iter().map(|id| id.epoch.number()).collect();
        for ((epoch, _), (_, data)) in &self.order {
            let data = data.as_ref().map(|data| String::from_utf8(data.clone()).unwrap());
            let is_refused = data.as_ref().is_some_and(|data| self.refused.contains(data));
            assert!(ambiguous.contains(epoch) || !is_refused, "{data:?} was refused");
        }
        for (id, data) in self.answered.iter().filter(|(id, _)| is_there(id)) {
            let Some((_, there)) = order.get(&id.seq) else { panic!("{id} is nowhere") };
            assert!(there.as_ref().is_none_or(|there| *there == data.as_bytes()), "{id}");
        }
        for (value, by) in &self.replaced {
            let winners = by.iter().filter(|by| is_there(by)).count();
            assert!(winners <= 1, "{value:?} was replaced by {by:?}");
        }
    }

    /// What the log has lost and somebody has who did not begin anew is there again, unless its
    /// topic has changed since.
    fn check_late(&self, order: &BTreeMap<u64, &Of>, is_lost: &dyn Fn(u64) -> bool) {
        let hub = &self.members[0].hub;
        let answered: HashSet<Id> = self.answered.iter().map(|(id, _)| *id).collect();
        for member in &self.members {
            let pieces = member.heard.0.lock().unwrap().clone();
            let heard = pieces.into_iter().flatten().map(|(id, topic, data)| (topic, (id, data)));
            let newest: HashMap<_, _> = heard.collect();
            for (topic, (id, data)) in newest {
                let is_of_life = id.epoch == hub.epoch() && answered.contains(&id);
                let mut behind = order.range(id.seq..);
                let is_lost = is_of_life && is_lost(id.seq) && data.is_some();
                assert!(!is_lost || behind.any(|(_, of)| of.0 == topic), "{topic}: {id} is lost");
            }
        }
    }

    /// Of a piece of the order that somebody heard nothing is left out.
    fn check_pieces(&self, is_there: &dyn Fn(&Id) -> bool, order: &BTreeMap<u64, &Of>) {
        for (index, member) in self.members.iter().enumerate() {
            let pieces = member.heard.0.lock().unwrap().clone();
            for piece in pieces {
                let ids = piece.iter().map(|(id, ..)| id);
                let heard: Vec<u64> = ids.filter(|id| is_there(id)).map(|id| id.seq).collect();
                let [Some(first), Some(last)] = [heard.first(), heard.last()] else { continue };
                let all: Vec<u64> = order.range(first..=last).map(|(seq, _)| *seq).collect();
                assert_eq!(heard, all, "node {index}");
            }
        }
    }
}

/// A node waits ten seconds for its peers. It asks one every two seconds, as soon as it has looked
/// at the log again, which it does every second. A slow snapshot takes it up to three seconds.
const PEERS_ASKED_MIN: usize = 3;
const SLOW_PEERS_ASKED_MIN: usize = 2;
