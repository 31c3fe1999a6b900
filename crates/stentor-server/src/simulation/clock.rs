//! The host's wall clock jumps at random, forwards and backwards, as it does when a time server
//! corrects it. No deadline may notice: deadlines go by the monotonic clock.

use super::World;
use stentor_io::{Backend, Rng, mark};
use stentor_test::trace;

/// How often the wall clock jumps in a run.
#[derive(Debug)]
pub(super) struct ClockJumps {
    rng: Rng,
    per_thousand: usize,
}

impl ClockJumps {
    pub(super) fn new(seed: u64) -> ClockJumps {
        let mut rng = Rng::new(seed ^ 0x00c1_0c4b);
        ClockJumps { per_thousand: [0, 0, 5, 50][rng.below(4)], rng }
    }

    /// Whether it never jumps.
    pub(super) fn is_steady(&self) -> bool {
        self.per_thousand == 0
    }

    /// The clock jumps, or not. Returns whether it did.
    pub(super) fn play(&mut self, world: &mut World) -> bool {
        let jumps = self.rng.below(1_000) < self.per_thousand;
        if jumps {
            let by_s = JUMPS_S[self.rng.below(JUMPS_S.len())];
            mark(if by_s < 0 { "clock-back" } else { "clock-ahead" });
            trace::act(world.sim.now_ms(), format_args!("the wall clock jumps by {by_s} s"));
            world.at_all(|world| world.sim.jump_wall_clock(by_s));
        }
        jumps
    }
}

const JUMPS_S: [i64; 6] = [-40 * DAY_S, -3_600, -1, 1, 3_600, 40 * DAY_S];
const DAY_S: i64 = 86_400;
