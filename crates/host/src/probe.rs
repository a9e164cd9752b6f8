//! Measures this machine's memory costs: the machine-file parameters that a program without
//! privileges can find out.
//!
//! Each figure is a median of rounds, since somebody else's work makes single rounds too slow and
//! never too fast. Rounds are shorter than a scheduler's slice, so that it meets few of them.
//! Frequency changes, prefetching and other programs are in the figures: they are good to a factor
//! of 1.5 or so, and say how lines, memory and wake-ups compare.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures the machine itself: real threads, the real clock, no system on it"
)]

use crate::worker::thread::pin;
use core::hint::black_box;
use core::time::Duration;
use minflt_sync::Ordering;
use minflt_sync::prim::AtomicU64;
use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

/// What was measured; times in nanoseconds, rates in bytes per microsecond.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Probe {
    /// A load that needs the one before it, in the first cache.
    pub hit: f64,
    /// A read-modify-write of a line that is here.
    pub rmw_hit: f64,
    /// A line going from CPU 0 to CPU 1; none where there is no CPU 1.
    pub transfer: Option<f64>,
    /// A load that needs the one before it, from memory.
    pub memory: f64,
    /// One of many loads from memory that need nothing of each other.
    pub independent: f64,
    /// From waking a sleeping thread of another CPU until it runs; none where there is no CPU 1.
    pub wake: Option<f64>,
    /// One CPU filling pages with zeros.
    pub clear: f64,
    /// One CPU copying pages.
    pub copy: f64,
    /// All CPUs together filling pages with zeros.
    pub clear_together: f64,
}

const ROUNDS: usize = 9;
/// More than a cache holds that is not shared with other guests of the same processor.
const BYTES: usize = 128 << 20;
const PAGE: usize = 4096;
/// What is cleared and copied in a round, by pages, as faults do it; all pieces in turn, so that no
/// cache has them.
const PIECE: usize = 512 << 10;
/// Words between two that miss: three lines, since a neighbour may be fetched as well.
const MISS_STEP: usize = 24;
/// Misses a round: some 0.2 ms.
const MISSES: usize = 1024;

impl Probe {
    /// Measures, on `cpus` CPUs; takes some seconds.
    ///
    /// # Panics
    /// When the host has no memory or threads left.
    #[must_use]
    pub fn take(cpus: u32) -> Self {
        // In a thread of its own, since it stays on one processor.
        let probe = thread::spawn(move || Self::on_this_thread(cpus)).join();
        probe.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn on_this_thread(cpus: u32) -> Self {
        pin(0);
        let mut words = vec![0u64; BYTES / 8];
        let two = cpus > 1;
        let [memory, independent] = misses(&mut words);
        Self {
            hit: chain(&mut words[..64]),
            rmw_hit: rmw(1 << 20),
            memory,
            independent,
            transfer: two.then(|| ping_pong(20_000)),
            wake: two.then(|| wake(500)),
            clear: rate(pieces(&mut words).map(|piece| || clear(piece))),
            copy: {
                let (to, from) = words.split_at_mut(BYTES / 16);
                let pairs = pieces(to).zip(from.chunks(PIECE / 8));
                rate(pairs.map(|(to, from)| || copy(to, from)))
            },
            clear_together: together(cpus),
        }
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Nanoseconds of each of `n` things done by `work`.
fn each(n: usize, mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_nanos() as f64 / n as f64
    };
    median((0..ROUNDS).map(round).collect())
}

/// Bytes per microsecond: the median of `works`, each of which tells how many bytes it was.
fn rate<W: FnOnce() -> usize>(works: impl Iterator<Item = W>) -> f64 {
    let round = |work: W| {
        let started = Instant::now();
        let bytes = black_box(work());
        bytes as f64 / (started.elapsed().as_nanos() as f64 / 1000.0)
    };
    median(works.map(round).collect())
}

/// Puts the first word of each `step` words into one ring of random order, each naming the next;
/// the ring from word 0 on.
fn ring(words: &mut [u64], step: usize) -> Vec<usize> {
    let count = words.len() / step;
    let mut order: Vec<usize> = (0..count).map(|at| at * step).collect();
    let mut state = 1u64;
    for at in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % at);
    }
    let zero = order.iter().position(|at| *at == 0).unwrap_or(0);
    order.rotate_left(zero);
    for (at, from) in order.iter().enumerate() {
        words[*from] = order[(at + 1) % count] as u64;
    }
    order
}

/// Loads that each name the next, of words that the caches hold.
fn chain(words: &mut [u64]) -> f64 {
    const LOADS: usize = 1 << 18;
    ring(words, 1);
    let mut at = 0;
    each(LOADS, || {
        for _ in 0..LOADS {
            at = words[at as usize];
        }
        black_box(at);
    })
}

/// A load from memory that needs the one before it, and one that needs none: the same ring, in
/// which each load goes to a line that was not touched since all the others were.
fn misses(words: &mut [u64]) -> [f64; 2] {
    let order = ring(words, MISS_STEP);
    let mut at = 0;
    let dependent = || {
        let started = Instant::now();
        for _ in 0..MISSES {
            at = words[at as usize];
        }
        black_box(at);
        started.elapsed()
    };
    let each = |time: Duration| time.as_nanos() as f64 / MISSES as f64;
    let rounds = order.len() / MISSES / 2;
    let mut dependent = core::iter::repeat_with(dependent);
    let dependent = dependent.by_ref().take(rounds).map(each).collect();
    let independent = |at: &[usize]| {
        let started = Instant::now();
        black_box(at.iter().map(|at| words[*at]).sum::<u64>());
        each(started.elapsed())
    };
    let rest = order[rounds * MISSES..].chunks_exact(MISSES);
    [median(dependent), median(rest.map(independent).collect())]
}

fn rmw(n: usize) -> f64 {
    let word = AtomicU64::new(0);
    each(n, || {
        for _ in 0..n {
            word.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// One way of a line between two CPUs: each changes it when the other has.
fn ping_pong(rounds: u64) -> f64 {
    let word = Arc::new(AtomicU64::new(0));
    let theirs = word.clone();
    let total = ROUNDS as u64 * rounds;
    let other = thread::spawn(move || {
        pin(1);
        for round in 0..total {
            while theirs.load(Ordering::Acquire) != 2 * round + 1 {
                core::hint::spin_loop();
            }
            theirs.store(2 * round + 2, Ordering::Release);
        }
    });
    let mut round = 0;
    let way = each(2 * rounds as usize, || {
        for _ in 0..rounds {
            word.store(2 * round + 1, Ordering::Release);
            round += 1;
            while word.load(Ordering::Acquire) != 2 * round {
                core::hint::spin_loop();
            }
        }
    });
    // It has ended: the last round was its.
    drop(other);
    way
}

/// Waking a thread of another CPU until it runs: half of a round of two that wake each other.
fn wake(rounds: u64) -> f64 {
    let word = Arc::new(AtomicU64::new(0));
    let theirs = word.clone();
    let total = ROUNDS as u64 * rounds;
    let first = thread::current();
    let other = thread::spawn(move || {
        pin(1);
        for round in 0..total {
            while theirs.load(Ordering::Acquire) != 2 * round + 1 {
                thread::park();
            }
            theirs.store(2 * round + 2, Ordering::Release);
            first.unpark();
        }
    });
    let mut round = 0;
    each(2 * rounds as usize, || {
        for _ in 0..rounds {
            word.store(2 * round + 1, Ordering::Release);
            other.thread().unpark();
            round += 1;
            while word.load(Ordering::Acquire) != 2 * round {
                thread::park();
            }
        }
    })
}

fn pieces(words: &mut [u64]) -> impl Iterator<Item = &mut [u64]> {
    words.chunks_mut(PIECE / 8)
}

fn clear(words: &mut [u64]) -> usize {
    for page in words.chunks_mut(PAGE / 8) {
        black_box(page).fill(0);
    }
    size_of_val(words)
}

fn copy(to: &mut [u64], from: &[u64]) -> usize {
    for (to, from) in to.chunks_mut(PAGE / 8).zip(from.chunks(PAGE / 8)) {
        black_box(to).copy_from_slice(black_box(from));
    }
    size_of_val(to)
}

/// All CPUs clear memory of their own at once; the sum of their rates.
fn together(cpus: u32) -> f64 {
    let start = Arc::new(Barrier::new(cpus as usize));
    let threads: Vec<_> = (0..cpus)
        .map(|cpu| {
            let start = start.clone();
            thread::spawn(move || {
                pin(cpu);
                let mut words = vec![1u64; BYTES / 16];
                start.wait();
                rate(pieces(&mut words).map(|piece| || clear(piece)))
            })
        })
        .collect();
    threads
        .into_iter()
        .filter_map(|thread| thread.join().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::{median, misses, ring};

    #[test]
    fn the_chain_is_one_ring() {
        let mut words = vec![0u64; 64];
        for step in [1, 4] {
            let order = ring(&mut words, step);
            let mut at = 0;
            for expected in &order {
                assert_eq!(at, *expected);
                at = words[at] as usize;
            }
            assert_eq!((at, order.len()), (0, 64 / step));
        }
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn misses_of_a_small_memory_are_measured() {
        let mut words = vec![0u64; 1 << 20];
        let [dependent, independent] = misses(&mut words);
        assert!(dependent > 0.0 && independent > 0.0);
    }
}
