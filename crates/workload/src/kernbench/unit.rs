//! What it takes to compile a unit: drawn from its number.

/// From which number on units are drawn.
const SEED: u64 = 0x6b65_726e_6265_6e63;
/// Time for each KiB of memory.
const NS_PER_KIB: u64 = 1000;

/// A compile unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its number, from 0.
    pub number: u64,
    /// Pages it touches, at least 4.
    pub pages: u64,
    /// Time it computes.
    pub compute_ns: u64,
}

impl Unit {
    /// Unit `number`, where the largest has `largest` bytes, on pages of `page_size` bytes: a
    /// sixteenth of the largest and up, by the cube of a uniform draw.
    #[must_use]
    pub fn of(number: u64, largest: u64, page_size: u64) -> Self {
        // Of 16 bits, so that its cube fits.
        let u = u128::from(mix(SEED.wrapping_add(number)) >> 48);
        let spread = u128::from(largest) * 15 / 16;
        let above = (spread * u * u * u) >> 48;
        let bytes = largest / 16 + u64::try_from(above).unwrap_or(largest);
        Self {
            number,
            pages: bytes.div_ceil(page_size).max(4),
            compute_ns: (bytes >> 10) * NS_PER_KIB,
        }
    }
}

/// The output function of splitmix64 (Steele, Lea, Flood 2014), on a state of `n` steps.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::{Unit, mix};

    const LARGEST: u64 = 8 << 20;

    #[test]
    fn the_mix_is_splitmix64() {
        // The published first outputs of the generator seeded with 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(mix(2), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn units_are_as_large_as_is_said() {
        let pages: Vec<_> = (0..4000)
            .map(|n| Unit::of(n, LARGEST, 4096).pages)
            .collect();
        let (low, high) = (pages.iter().min().unwrap(), pages.iter().max().unwrap());
        assert!(*low >= 128 && *high <= 2048, "{low} {high}");
        assert!(*low < 130 && *high > 2000, "{low} {high}");
        let mean = pages.iter().sum::<u64>() as f64 / 4000.0 / 2048.0;
        assert!((0.28..0.31).contains(&mean), "{mean}");
    }

    #[test]
    fn a_units_size_in_bytes_depends_on_its_number_only() {
        for number in 0..100 {
            let (small, large) = (
                Unit::of(number, LARGEST, 4096),
                Unit::of(number, LARGEST, 16_384),
            );
            assert_eq!(small.compute_ns, large.compute_ns);
            assert_eq!(small.pages.div_ceil(4), large.pages);
        }
    }
}
