//! Snapshots of peers. Each comes over a link between two nodes: late, in part, damaged, or not at
//! all if the link is broken. A node that waits for one does nothing else, as the product does.

use super::*;
use stentor_log::SnapshotEncoder;
use stentor_replication::SnapshotReader;

/// A snapshot on its way to a node.
pub(super) struct Fetch {
    due_ms: u64,
    epoch: Epoch,
    bytes: Vec<u8>,
    is_good: bool,
}

/// The bytes of a peer's snapshot.
fn encoded(from: &Hub) -> Vec<u8> {
    let (mut payload, mut out) = (Vec::new(), Vec::new());
    let mut snapshot = Snapshot::begin(from, &mut payload);
    let (epoch, lost) = (from.epoch().number(), from.rolled_back());
    let mut encoder = SnapshotEncoder::begin(epoch, snapshot.seq(), lost, &mut out);
    let mut is_more = true;
    while is_more {
        is_more = snapshot.write_slice(from, &mut payload).unwrap();
        encoder.payload(&payload, &mut out);
        payload.clear();
    }
    encoder.end(from.id(from.seq()).seq, &mut out);
    out
}

fn decoded(bytes: &[u8], staged: Hub) -> Result<Hub, String> {
    let mut reader = SnapshotReader::new(staged);
    for piece in bytes.chunks(1_000) {
        reader.take(piece)?;
    }
    reader.end().map_err(str::to_owned)
}

impl World {
    /// Breaks the link of two nodes, or stalls the one of a node to the broker.
    pub(super) fn break_links(&mut self) {
        let [one, other] = [(); 2].map(|()| self.rng.below(self.members.len()));
        if self.rng.percent(1) {
            mark("link-breaks");
            let until_ms = self.now_ms + self.rng.below(8_000) as u64;
            self.links.insert((one.min(other), one.max(other)), until_ms);
        }
        if self.rng.percent(1) {
            mark("broker-stalls");
            self.members[one].stalled_until_ms = self.now_ms + self.rng.below(2_000) as u64;
        }
    }

    fn has_link(&self, one: usize, other: usize) -> bool {
        let broken = self.links.get(&(one.min(other), one.max(other)));
        broken.is_none_or(|until_ms| *until_ms <= self.now_ms)
    }

    /// A node asks its next peer for a snapshot, unless it has asked one just before.
    pub(super) fn fetch(&mut self, index: usize, epoch: Epoch) {
        let (now_ms, count) = (self.now_ms, self.members.len());
        if now_ms < self.members[index].fetch_at_ms || count == 1 {
            return;
        }
        let other = (index + 1 + self.members[index].fetches % (count - 1)) % count;
        let has_link = self.has_link(index, other);
        let peer = &self.members[other];
        let has_it = has_link && peer.node.has_all();
        let mut bytes = if has_it { encoded(&peer.hub) } else { Vec::new() };
        let fails = self.is_breaking && self.rng.percent(30);
        if has_it && fails {
            let at = self.rng.below(bytes.len());
            match self.rng.percent(50) {
                true => {
                    mark("snapshot-cut");
                    bytes.truncate(at);
                }
                false => {
                    mark("snapshot-damaged");
                    bytes[at] ^= 1 << self.rng.below(8);
                }
            }
        }
        let is_slow = self.is_breaking && self.rng.percent(50);
        if is_slow {
            mark("snapshot-slow");
        }
        let takes_ms = if is_slow { self.rng.below(3_000) } else { 0 };
        let due_ms = now_ms + takes_ms as u64;
        let is_good = has_it && !fails && self.members[other].hub.epoch() == epoch;
        let member = &mut self.members[index];
        if fails || !has_link || is_slow {
            member.failed_ms.insert(other, now_ms);
        }
        (member.fetches, member.fetch_at_ms) = (member.fetches + 1, now_ms + FETCH_PAUSE_MS);
        member.fetch = Some(Fetch { due_ms, epoch, bytes, is_good });
        self.waits_for_peer(index);
    }

    /// Whether a node was kept from a snapshot of another one lately.
    pub(super) fn lacks_peer(&self, index: usize, other: usize) -> bool {
        let failed_ms = self.members[index].failed_ms.get(&other);
        let has_failed = failed_ms.is_some_and(|failed_ms| failed_ms + 20_000 > self.now_ms);
        has_failed || !self.has_link(index, other)
    }

    /// How long the slowest snapshot is still on its way.
    pub(super) fn fetch_ms(&self) -> u64 {
        let due_ms = self.members.iter().filter_map(|it| Some(it.fetch.as_ref()?.due_ms));
        due_ms.max().unwrap_or(0).saturating_sub(self.now_ms)
    }

    /// Gives a node the snapshot that has come. Returns whether it still waits for one.
    pub(super) fn waits_for_peer(&mut self, index: usize) -> bool {
        let now_ms = self.now_ms;
        let Member { node, fetch, .. } = &mut self.members[index];
        let Some(fetch) = fetch.take_if(|fetch| fetch.due_ms <= now_ms) else {
            return fetch.is_some();
        };
        let staged = decoded(&fetch.bytes, node.stage(fetch.epoch));
        let is_taken = staged.as_ref().map(|_| ()).map_err(String::as_str);
        assert_eq!(is_taken.is_ok(), fetch.is_good, "a peer's snapshot: {is_taken:?}");
        node.handle_snapshot(staged, now_ms);
        false
    }
}

/// As the product's.
const FETCH_PAUSE_MS: u64 = 2_000;
