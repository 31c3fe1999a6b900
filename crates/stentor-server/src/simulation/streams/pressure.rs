//! Memory that gets short and is there again, at random, and what must hold meanwhile.
//!
//! The hub evicts history at random times. Above the second mark nobody new is let in at the public
//! listeners. Whoever was there stays, which the readers themselves see to; and below it all come
//! in who wait, or nothing would ever be at rest.

use super::log::Log;
use crate::mailbox::Order;
use crate::pressure::Pressure;
use crate::simulation::World;
use stentor_io::Rng;

/// How short memory is in a run, from turn to turn.
#[derive(Debug)]
pub(super) struct Pressures {
    rng: Rng,
    percent: u8,
    now: Pressure,
    /// What each worker has been told. All hear of it, each in its own time.
    told: Vec<Pressure>,
    /// How many public connections a worker had when it was to let in nobody more.
    most: Vec<Option<u64>>,
}

impl Pressures {
    pub(super) fn new(seed: u64, workers: usize) -> Pressures {
        let mut rng = Rng::new(seed ^ 0x0dd_ba11);
        let percent = [0, 0, 2, 10][rng.below(4)];
        let (told, most) = (vec![Pressure::None; workers], vec![None; workers]);
        Pressures { rng, percent, now: Pressure::None, told, most }
    }

    /// Whether memory has been short, or will be.
    pub(super) fn are_any(&self) -> bool {
        self.percent > 0
    }

    /// A mark is crossed, in either direction, or not.
    pub(super) fn play(&mut self, world: &mut World, log: &mut Log) {
        if self.rng.percent(self.percent) {
            self.now = [Pressure::None, Pressure::High, Pressure::Critical][self.rng.below(3)];
            let history = world.shared.hub.stored().history;
            log.trim_history_to(&world.shared.hub, history * self.rng.below(5) / 4);
        }
        for index in 0..self.told.len() {
            if self.told[index] != self.now && self.rng.percent(50) {
                self.tell(world, index);
            }
        }
    }

    /// There is room for everybody from now on, if not for all that they missed.
    pub(super) fn ease(&mut self, world: &mut World) {
        if self.now == Pressure::Critical {
            self.now = Pressure::High;
        }
        (0..self.told.len()).for_each(|index| self.tell(world, index));
    }

    fn tell(&mut self, world: &mut World, index: usize) {
        self.told[index] = self.now;
        let now = self.now;
        world.at(index, |world| world.worker.execute(&mut world.sim, Order::Memory(now)));
    }

    /// Nobody has come in who was not to. Who is in may open further streams in the same socket.
    pub(super) fn check(&mut self, world: &World) {
        assert_eq!(world.totals().readers_cut, 0, "they hold little, and are not to be cut");
        if world.sim.has_layers() {
            return;
        }
        for (index, most) in self.most.iter_mut().enumerate() {
            let open = world.shared.workers[index].connections_public.value();
            let before = most.take();
            if self.told[index] == Pressure::Critical {
                let most_now = before.unwrap_or(open);
                assert!(open <= most_now, "{open} are in, {most_now} were, and memory is short");
                *most = Some(open);
            }
        }
    }
}
