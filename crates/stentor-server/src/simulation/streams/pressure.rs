//! Memory that gets short and is there again, at random, and what must hold meanwhile.
//!
//! The hub evicts history at random times. Above the second mark of the process's memory the public
//! listeners accept no connection. The open connections stay, which the readers check. Below the
//! mark all waiting connections are accepted, or the run would not settle. TCP memory is short at
//! other times, which restricts nothing as long as nothing is to be freed.

use super::log::Log;
use crate::mailbox::Order;
use crate::pressure::{Pressure, Pressures as Levels};
use crate::simulation::World;
use stentor_io::{Rng, mark};

/// How short memory is in a run, from turn to turn.
#[derive(Debug)]
pub(super) struct RandomPressures {
    rng: Rng,
    percent: u8,
    now: Levels,
    /// What each worker has been told. All hear of it, each in its own time.
    told: Vec<Levels>,
    /// How many public connections a worker had when it was to let in nobody more.
    most: Vec<Option<u64>>,
}

impl RandomPressures {
    pub(super) fn new(seed: u64, workers: usize) -> RandomPressures {
        let mut rng = Rng::new(seed ^ 0x0dd_ba11);
        let percent = [0, 0, 2, 10][rng.below(4)];
        let (told, most) = (vec![Levels::default(); workers], vec![None; workers]);
        RandomPressures { rng, percent, now: Levels::default(), told, most }
    }

    /// Whether memory has been short, or will be.
    pub(super) fn are_any(&self) -> bool {
        self.percent > 0
    }

    /// A mark is crossed, in either direction, or not.
    pub(super) fn play(&mut self, world: &mut World, log: &mut Log) {
        if self.rng.percent(self.percent) {
            let mut level =
                || [Pressure::None, Pressure::High, Pressure::Critical][self.rng.below(3)];
            let (process, tcp) = (level(), level());
            // Nothing is to be freed: a reader takes a reset by the server for a fault.
            self.now = Levels { process, tcp, tcp_excess_bytes: 0 };
            mark(["memory-eased", "memory-high", "memory-critical"][process as usize]);
            if tcp == Pressure::Critical {
                mark("tcp-memory-critical");
            }
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
        self.now = Levels { process: self.now.process.min(Pressure::High), ..Levels::default() };
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
            if self.told[index].process == Pressure::Critical {
                let most_now = before.unwrap_or(open);
                assert!(open <= most_now, "{open} are in, {most_now} were, and memory is short");
                *most = Some(open);
            }
        }
    }
}
