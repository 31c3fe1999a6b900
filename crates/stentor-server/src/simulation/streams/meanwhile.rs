//! What others publish while a worker looks at the hub: between any two of its looks.

use super::super::World;
use super::NOW_S;
use super::log::{Log, Recorder, Sent, TOPICS};
use super::publisher::Source;
use crate::shared::Shared;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use stentor_hub::{Hub, Precondition, Snapshot};
use stentor_io::{Rng, mark};
use stentor_wire::target::TopicName;

/// Publishers on other threads, as far as a worker can tell.
pub(super) struct Meanwhile(Rc<RefCell<Publishers>>);

struct Publishers {
    shared: Arc<Shared>,
    sent: Sent,
    rng: Rng,
    source: Source,
    /// At so many of a thousand points something is published.
    per_thousand: usize,
    /// Topics that are published to.
    topics: usize,
    /// The order is made elsewhere now and then, and comes from there at one go.
    follows: Option<Arc<Recorder>>,
}

impl Meanwhile {
    pub(super) fn new(world: &World, log: &Log, rng: &mut Rng, window_bytes: usize) -> Meanwhile {
        Meanwhile(Rc::new(RefCell::new(Publishers {
            shared: Arc::clone(&world.shared),
            sent: log.sent(),
            rng: Rng::new(rng.next_u64()),
            source: Source::new(NUMBERS_FROM, window_bytes),
            per_thousand: [0, 3, 20, 100][rng.below(4)],
            topics: 0,
            follows: (world.late.is_none() && rng.percent(30)).then(|| log.recorder()),
        })))
    }

    /// Runs `act`, and publishes now and then while it looks at the hub.
    pub(super) fn during<R>(&self, topics: usize, act: impl FnOnce() -> R) -> R {
        self.0.borrow_mut().topics = topics;
        let publishers = Rc::clone(&self.0);
        stentor_hub::with_hook(move || publishers.borrow_mut().pass_point(), act)
    }
}

impl Publishers {
    fn pass_point(&mut self) {
        if self.rng.below(1_000) >= self.per_thousand {
            return;
        }
        mark("published-meanwhile");
        let topic = TOPICS[self.rng.below(self.topics)].0;
        match self.rng.below(20) {
            // It may not exist.
            0..3 => {
                let topic = TopicName::parse(topic).unwrap();
                drop(self.shared.hub.delete(topic, Precondition::None, NOW_S));
            }
            4 if self.follows.is_some() => self.replace(),
            // More than is remembered of what was published last.
            3 => (0..self.rng.below(40)).for_each(|_| self.publish(topic, true)),
            _ => self.publish(topic, false),
        }
    }

    /// The same hub elsewhere, with more that happened to it, takes the place of this one's topics.
    fn replace(&mut self) {
        mark("hub-replaced");
        let shared = Arc::clone(&self.shared);
        let staged = shared.hub.stage(shared.hub.epoch(), false);
        let mut bytes = Vec::new();
        let mut snapshot = Snapshot::begin(&shared.hub, &mut bytes);
        while snapshot.write_slice(&shared.hub, &mut bytes).unwrap() {}
        let mut restore = staged.restore();
        assert_eq!(restore.read(&bytes), Ok(bytes.len()));
        restore.finish().unwrap();
        if let Some(recorder) = &self.follows {
            recorder.listen(&staged);
        }
        for _ in 0..self.rng.below(40) {
            let topic = TOPICS[self.rng.below(self.topics)].0;
            match self.rng.percent(10) {
                true => {
                    let topic = TopicName::parse(topic).unwrap();
                    drop(staged.delete(topic, Precondition::None, NOW_S));
                }
                false => self.publish_at(&staged, topic, true),
            }
        }
        shared.hub.adopt(staged).unwrap();
    }

    fn publish(&mut self, topic: &str, is_small: bool) {
        let shared = Arc::clone(&self.shared);
        self.publish_at(&shared.hub, topic, is_small);
    }

    fn publish_at(&mut self, hub: &Hub, topic: &str, is_small: bool) {
        let datum = self.source.next(&mut self.rng, is_small);
        self.sent.expect(topic, &datum.data, datum.content_type.as_str());
        let topic = TopicName::parse(topic).unwrap();
        hub.publish(topic, datum.draft(), Precondition::None, NOW_S).unwrap();
    }
}

/// No other source comes so far.
const NUMBERS_FROM: u64 = 1 << 40;
