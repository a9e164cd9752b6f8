//! A pseudo-random permutation of the numbers below a limit, without memory.
//!
//! Multiplying by an odd number, adding, and folding the upper half of the bits into the lower one
//! by exclusive or can all be undone, so some rounds of them map the numbers of `bits` bits onto
//! themselves. What comes out beyond the limit, less than half, is passed over.

/// Rounds of mixing.
const ROUNDS: u64 = 3;

/// The numbers `0..count`, shuffled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    count: u64,
    next: u64,
    mask: u64,
    fold: u32,
    keys: [u64; ROUNDS as usize],
}

impl Order {
    /// The order that `seed` stands for, of at most 2^63 numbers.
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = count.next_power_of_two().trailing_zeros();
        Self {
            count,
            next: 0,
            mask: (1 << bits) - 1,
            fold: bits.div_ceil(2).max(1),
            keys: core::array::from_fn(|round| split_mix(seed, round as u64)),
        }
    }

    fn place(&self, number: u64) -> u64 {
        self.keys.iter().fold(number, |number, key| {
            let number = number.wrapping_mul(key | 1).wrapping_add(key >> 32) & self.mask;
            number ^ number >> self.fold
        })
    }
}

impl Iterator for Order {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.next <= self.mask {
            let place = self.place(self.next);
            self.next += 1;
            if place < self.count {
                return Some(place);
            }
        }
        None
    }
}

/// Number `at` of the generator splitmix64 that begins with `seed`.
fn split_mix(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_add((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Order;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_comes_once() {
        for count in [0, 1, 2, 3, 5, 64, 100, 1023, 4096, 10_000] {
            for seed in 0..5 {
                let order: Vec<_> = Order::new(count, seed).collect();
                let all: BTreeSet<_> = order.iter().copied().collect();
                assert_eq!(order.len() as u64, count);
                assert!(all.into_iter().eq(0..count), "{count}");
            }
        }
    }

    /// Of a random order, one neighbour in `n` is the next number, and half go up.
    #[test]
    fn orders_look_random_and_differ_by_seed() {
        let count = 4096;
        for seed in 0..20 {
            let order: Vec<_> = Order::new(count, seed).collect();
            let pairs = || order.iter().zip(&order[1..]);
            let next = pairs().filter(|(a, b)| a.abs_diff(**b) == 1).count();
            let up = pairs().filter(|(a, b)| a < b).count() as u64;
            assert!(next < 20, "seed {seed}: {next} pairs of neighbours");
            assert!((1700..2400).contains(&up), "seed {seed}: {up} steps up");
            // The first numbers are in every part of the range.
            let quarters: BTreeSet<_> = order.iter().take(64).map(|it| it / 1024).collect();
            assert_eq!(quarters.len(), 4, "seed {seed}");
            assert!(!Order::new(count, seed + 1).eq(order));
        }
    }
}
