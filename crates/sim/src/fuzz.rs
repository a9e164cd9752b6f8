//! Schedules in virtual time with randomized costs.
//!
//! # Problem
//! A random walk gives each CPU a turn at each step, which no machine does: real CPUs run side by
//! side at nearly one speed, stop for a long time when a line is contended or a page is cleared,
//! and meet again. What goes wrong on real machines goes wrong in such schedules first.
//!
//! # Idea
//! Each CPU has a clock of its own, which only chooses who runs. It advances by what the cost model
//! says, times a number between a half and two that is drawn for each charge. The CPU whose clock
//! is lowest runs; ties are drawn. So that short scenes do not always run in step, CPUs start at
//! different moments, and now and then one is stalled, as by an interrupt of the host.
//!
//! # Protocol
//! Accesses are charged through the line directory, fixed work as in virtual time. A CPU that is
//! woken starts where its waker's clock stands, and later by what waking costs. Nobody in the run
//! sees these clocks, and an interrupt is taken at the next step of its CPU, as in every explored
//! run.
//!
//! # Why it is correct
//! It does no more than choose, so a run of it is replayed by its list of choices as any other. All
//! numbers are integers from one seed. A clock advances at every step, so nobody runs for ever
//! beside one who could.
//!
//! # Cost
//! A look into the line directory and one drawn number for each access.

use crate::model::Ps;
use crate::rng::Rng;

/// A charge is multiplied by 500 to 2000 permille.
const LEAST: u64 = 500;
const MOST: u64 = 2000;

/// A stall is a charge this many times as long.
const STALL: u64 = 256;

/// Clocks that choose who runs.
#[derive(Debug)]
pub(crate) struct Fuzz {
    rng: Rng,
    /// By CPU; grows as CPUs appear.
    clocks: Vec<Ps>,
    running: u32,
    /// CPUs start within so many bits of picoseconds.
    start: u64,
    /// One charge in so many is a stall.
    stalls: u64,
}

impl Fuzz {
    pub(crate) const fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        // Up to a microsecond: as long as a scene takes.
        let start = rng.below(21);
        let stalls = 16 << rng.below(6);
        Self {
            rng,
            clocks: Vec::new(),
            running: 0,
            start,
            stalls,
        }
    }

    fn clock(&mut self, cpu: u32) -> &mut Ps {
        let at = cpu as usize;
        while self.clocks.len() <= at {
            self.clocks.push(self.rng.below(1 << self.start));
        }
        &mut self.clocks[at]
    }

    fn stretched(&mut self, time: Ps) -> Ps {
        let stall = if self.rng.below(self.stalls) == 0 {
            STALL
        } else {
            1
        };
        let permille = LEAST + self.rng.below(MOST - LEAST + 1);
        time.saturating_mul(permille * stall) / 1000
    }

    /// The clock of `cpu`.
    pub(crate) fn now(&mut self, cpu: u32) -> Ps {
        *self.clock(cpu)
    }

    /// `cpu` works for `time`.
    pub(crate) fn pass(&mut self, cpu: u32, time: Ps) {
        let time = self.stretched(time);
        *self.clock(cpu) += time;
    }

    /// The CPU that runs lets `cpu` go on, `delay` from now.
    pub(crate) fn wakes(&mut self, cpu: u32, delay: Ps) {
        let from = *self.clock(self.running) + self.stretched(delay);
        let clock = self.clock(cpu);
        *clock = from.max(*clock);
    }

    /// The CPU of the mask `ready`, which is not empty, that runs next; `me` made a step.
    pub(crate) fn choose(&mut self, me: Option<u32>, ready: u64) -> u32 {
        if let Some(me) = me {
            *self.clock(me) += 1;
        }
        let (mut best, mut lowest, mut ties) = (ready.trailing_zeros(), Ps::MAX, 0);
        let mut rest = ready;
        while rest != 0 {
            let cpu = rest.trailing_zeros();
            rest &= rest - 1;
            let clock = *self.clock(cpu);
            if clock < lowest {
                (best, lowest, ties) = (cpu, clock, 1);
            } else if clock == lowest {
                ties += 1;
                if self.rng.below(ties) == 0 {
                    best = cpu;
                }
            }
        }
        self.running = best;
        best
    }

    /// Whether a task that has reached the end of a possible time slice makes way.
    pub(crate) fn slice_ends(&mut self) -> bool {
        self.rng.below(4) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Fuzz;

    #[test]
    fn the_slowest_runs_and_the_woken_start_with_their_waker() {
        // More than a stall and a late start make up.
        const LONG: u64 = 1 << 44;
        let mut fuzz = Fuzz::new(1);
        fuzz.pass(0, LONG);
        assert_eq!(fuzz.choose(None, 0b11), 1);
        fuzz.pass(1, LONG << 12);
        assert_eq!(fuzz.choose(Some(1), 0b11), 0);
        assert_eq!(fuzz.choose(Some(0), 0b10), 1);
        fuzz.wakes(2, LONG);
        assert_eq!(fuzz.choose(None, 0b110), 1, "waking takes time");
        fuzz.pass(1, LONG << 10);
        assert_eq!(fuzz.choose(None, 0b110), 2);
    }

    #[test]
    fn ties_are_drawn_and_every_step_takes_time() {
        let first: Vec<u32> = (0..40).map(|n| Fuzz::new(n).choose(None, 0b11)).collect();
        assert!(first.contains(&0) && first.contains(&1));
        let mut fuzz = Fuzz::new(7);
        let late = (0..1 << 22).find(|_| fuzz.choose(Some(0), 0b11) == 1);
        assert!(late.is_some(), "0 does not run for ever");
    }
}
