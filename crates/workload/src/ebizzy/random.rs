//! The random numbers of ebizzy: two generators that its copies have.

/// What the state starts with, in every thread.
const SEED: u32 = 0x0c0f_fee0;

/// 2 to the 32nd divided by the golden ratio: spreads small seeds over the state.
const SPREAD: u32 = 0x9e37_79b9;

/// Where random numbers come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generator {
    /// `state * 1103515245 + 12345`, from a constant that all threads start with.
    Lcg,
    /// `state * (1103515245 + 12345)`, from 0: always 0.
    Ltp,
}

/// The generator of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Random {
    state: u32,
    generator: Generator,
}

impl Generator {
    /// As the command line spells it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lcg => "lcg",
            Self::Ltp => "ltp",
        }
    }
}

impl Random {
    /// A generator as a thread of run number `seed` starts with it; the original's run is 0.
    #[must_use]
    pub const fn new(generator: Generator, seed: u32) -> Self {
        let state = match generator {
            Generator::Lcg => SEED ^ seed.wrapping_mul(SPREAD),
            Generator::Ltp => 0,
        };
        Self { state, generator }
    }

    /// The next number below `limit`, which is not 0. None is above 65,535.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state = match self.generator {
            Generator::Lcg => self.state.wrapping_mul(1_103_515_245).wrapping_add(12_345),
            Generator::Ltp => self.state.wrapping_mul(1_103_515_245 + 12_345),
        };
        u64::from(self.state >> 16) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::{Generator, Random};

    #[test]
    fn the_first_numbers_are_known() {
        // Computed apart from this program, by the formulas.
        let mut random = Random::new(Generator::Lcg, 0);
        let first: Vec<_> = (0..6).map(|_| random.below(65_536)).collect();
        assert_eq!(first, [951, 28_542, 24_799, 52_262, 22_537, 38_348]);
        let mut random = Random::new(Generator::Lcg, 0);
        let first: Vec<_> = (0..6).map(|_| random.below(10)).collect();
        assert_eq!(first, [1, 2, 9, 2, 7, 8]);
        let mut broken = Random::new(Generator::Ltp, 1);
        assert!((0..100).all(|_| broken.below(65_536) == 0));
        let mut other = Random::new(Generator::Lcg, 1);
        assert_ne!(other.below(65_536), 951, "another seed, other numbers");
    }

    #[test]
    fn sizes_are_spread_over_the_chunk() {
        let mut random = Random::new(Generator::Lcg, 0);
        let mut words = 0;
        for _ in 0..10_000 {
            random.below(10);
            words += random.below(65_536) + 1;
        }
        // 64 pages of 512 words each, and a half page for the rounding up.
        let pages = words as f64 / 10_000.0 / 512.0;
        assert!((63.0..65.0).contains(&pages), "{pages}");
    }
}
