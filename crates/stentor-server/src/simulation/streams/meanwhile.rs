//! What others publish while a worker looks at the hub: between any two of its looks.

use super::super::World;
use super::NOW_S;
use super::log::{Log, Sent, TOPICS};
use super::publisher::Source;
use crate::context::Shared;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use stentor_hub::Precondition;
use stentor_io::Rng;
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
        let topic = TOPICS[self.rng.below(self.topics)].0;
        match self.rng.below(20) {
            // It may not exist.
            0..3 => {
                let topic = TopicName::parse(topic).unwrap();
                drop(self.shared.hub.delete(topic, Precondition::None, NOW_S));
            }
            // More than is remembered of what was published last.
            3 => (0..self.rng.below(40)).for_each(|_| self.publish(topic, true)),
            _ => self.publish(topic, false),
        }
    }

    fn publish(&mut self, topic: &str, is_small: bool) {
        let datum = self.source.next(&mut self.rng, is_small);
        self.sent.expect(topic, &datum.data, datum.content_type.as_str());
        let topic = TopicName::parse(topic).unwrap();
        self.shared.hub.publish(topic, datum.draft(), Precondition::None, NOW_S).unwrap();
    }
}

/// No other source comes so far.
const NUMBERS_FROM: u64 = 1 << 40;
