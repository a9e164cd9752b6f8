//! A NUMA node's memory bandwidth, and its sharing between CPUs.
//!
//! # Problem
//! A node's memory moves so many bytes a second, whoever asks. On real machines the node's own CPUs
//! get more of it than others when all want it, as they ask by a shorter way: the 2012 posting's
//! fastest thread took 26 s where the slowest took 59 s.
//!
//! # Idea
//! The kernel's clears and copies are served one after the other. The accesses of user mode are two
//! queues, of the node's own CPUs and of the others. While both have requests, each gets a share:
//! the near one what the machine's arbitration says of lines (so often the nearest goes first, else
//! the one that asked first), that is `p + (1 - p) * near / (near + far)` of the requests waiting.
//!
//! # Why it is correct
//! Requests come in the order of time, so a queue's ends only rise. Shares are taken when a request
//! is made and not corrected when the other queue runs dry: then the memory idles for less than one
//! queue's length. Whether both sum up to the memory's rate is a test.
//!
//! # Cost
//! Constant a request: each end is put in once and taken out once.

use crate::model::Ps;
use std::collections::VecDeque;

/// The memory of one node.
#[derive(Clone, Debug)]
pub(super) struct NodeMemory {
    /// Until when it is busy with all that was asked for.
    busy: Ps,
    near: Queue,
    far: Queue,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    busy: Ps,
    /// When each request that waits is done.
    ends: VecDeque<Ps>,
}

impl Queue {
    fn forget_until(&mut self, now: Ps) {
        while self.ends.front().is_some_and(|end| *end <= now) {
            self.ends.pop_front();
        }
    }
}

impl NodeMemory {
    /// Memory that nobody has asked before `now`.
    pub(super) fn idle(now: Ps) -> Self {
        Self {
            busy: now,
            near: Queue::default(),
            far: Queue::default(),
        }
    }

    /// The kernel asks at `now` for what takes `time`; when it is done.
    pub(super) fn kernel(&mut self, now: Ps, time: Ps) -> Ps {
        self.busy = now.max(self.busy) + time;
        for queue in [&mut self.near, &mut self.far] {
            if queue.busy > now {
                queue.busy += time;
            }
        }
        self.busy
    }

    /// A CPU in user mode, one of the node's or not, asks at `now` for what takes `time`; when it
    /// is done.
    pub(super) fn user(&mut self, now: Ps, time: Ps, is_near: bool, near_first: u64) -> Ps {
        self.busy = now.max(self.busy) + time;
        self.near.forget_until(now);
        self.far.forget_until(now);
        let [mut near, mut far] = [&self.near, &self.far].map(|it| it.ends.len() as u64);
        *(if is_near { &mut near } else { &mut far }) += 1;
        let of_near = match (near, far) {
            (_, 0) => 1000,
            _ => near_first + (1000 - near_first) * near / (near + far),
        };
        let (queue, share) = match (is_near, near) {
            (true, _) => (&mut self.near, of_near),
            (false, 0) => (&mut self.far, 1000),
            (false, _) => (&mut self.far, 1000 - of_near),
        };
        queue.busy = now.max(queue.busy) + time * 1000 / share.max(1);
        queue.ends.push_back(queue.busy);
        queue.busy
    }
}

#[cfg(test)]
mod tests {
    use super::NodeMemory;

    /// Bytes that so many near and far CPUs get in some time, each asking again as soon as it is
    /// served, a request taking 1000.
    fn served(near: usize, far: usize, near_first: u64) -> [u64; 2] {
        const END: u64 = 4_000_000;
        let mut memory = NodeMemory::idle(0);
        let mut clocks = vec![0; near + far];
        let mut done = [0, 0];
        loop {
            let (cpu, now) = clocks
                .iter()
                .copied()
                .enumerate()
                .min_by_key(|it| it.1)
                .unwrap();
            if now >= END {
                return done;
            }
            let is_near = cpu < near;
            clocks[cpu] = memory.user(now, 1000, is_near, near_first);
            done[usize::from(!is_near)] += 1;
        }
    }

    #[test]
    fn the_shares_sum_up_to_the_whole() {
        for (near, far, near_first) in [(8, 24, 300), (8, 24, 0), (1, 24, 300), (8, 1, 300)] {
            let [a, b] = served(near, far, near_first);
            assert!((3600..4100).contains(&(a + b)), "{near} {far}: {a} + {b}");
        }
        assert!((3990..4020).contains(&served(8, 0, 300)[0]));
        assert!((3990..4040).contains(&served(0, 24, 300)[1]));
    }

    #[test]
    fn the_near_ones_get_what_arbitration_gives_them() {
        // 8 of 32 requests are near: a quarter, or 300 and a quarter of 700 permille.
        let share = |[near, far]: [u64; 2]| near * 1000 / (near + far);
        assert!((240..260).contains(&share(served(8, 24, 0))));
        assert!((465..485).contains(&share(served(8, 24, 300))));
    }

    #[test]
    fn the_kernel_waits_for_what_was_asked_before_and_delays_what_comes() {
        let mut memory = NodeMemory::idle(0);
        assert_eq!(memory.user(0, 1000, true, 0), 1000);
        assert_eq!(memory.kernel(0, 500), 1500);
        assert_eq!(memory.user(0, 1000, true, 0), 2500);
        let mut idle = NodeMemory::idle(0);
        assert_eq!([idle.kernel(7, 5), idle.kernel(8, 5)], [12, 17]);
    }
}
