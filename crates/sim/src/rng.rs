//! Random numbers that are the same on every host.

/// A generator of 64-bit numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Leaves out the next `n` numbers.
    pub const fn skip(&mut self, n: u64) {
        self.0 = self
            .0
            .wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n));
    }

    /// A number below `end`, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        // The bias is below 2^-32 for the few choices there are.
        ((self.draw() as u128 * end as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.draw(), 6_457_827_717_110_365_317);
        assert_eq!(rng.draw(), 3_203_168_211_198_807_973);
        assert!((0..100).all(|_| rng.below(3) < 3));
        let mut other = rng.clone();
        (0..5).for_each(|_| _ = rng.draw());
        other.skip(5);
        assert_eq!(other.draw(), rng.draw());
    }
}
