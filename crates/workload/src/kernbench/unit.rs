//! The cost of one compile unit, derived from its number.

/// From which number on units are drawn.
const SEED: u64 = 0x6b65_726e_6265_6e63;
/// Computing time for each KiB of a unit's memory unless `--ns-per-kib` is given: 7 us.
///
/// From published profiles of kernel builds, taking a page fault for 4 KiB:
///
/// | build | page faults | user s | system s | user us a KiB |
/// |---|---:|---:|---:|---:|
/// | Linux 4.13, Intel | 31,486,712 | 1,078.81 | 41.44 | 8.6 |
/// | Linux 4.13, AMD | 31,542,640 | 1,212.23 | 57.45 | 9.6 |
/// | with all modules, AMD | 2,366,940,384 | 57,169.07 | 9,330.94 | 6.0 |
///
/// The first two are from <http://perf.mvermeulen.com/workloads/phoronix/build-linux-kernel/>, the
/// third from <https://mvermeulen.org/perf/?p=615>. The third's CPU time is 66,455.1 s: 28.1 us a
/// fault, 7.0 us a KiB, system time included. So 6 to 10 us are plausible, and no value in this
/// range was searched for. Not every fault of a compiler is 4 KiB of new memory: some map pages of
/// files, some copy.
pub const NS_PER_KIB: u32 = 7000;

/// A compile unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its number, from 0.
    pub number: u64,
    /// Its memory.
    pub bytes: u64,
    /// Pages it touches, at least 4.
    pub pages: u64,
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
            bytes,
            pages: bytes.div_ceil(page_size).max(4),
        }
    }

    /// Time it computes, at `ns_per_kib` for each KiB of its memory.
    #[must_use]
    pub fn compute_ns(&self, ns_per_kib: u32) -> u64 {
        (self.bytes >> 10).saturating_mul(u64::from(ns_per_kib))
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
            assert_eq!(small.compute_ns(7000), large.compute_ns(7000));
            assert_eq!(small.pages.div_ceil(4), large.pages);
        }
    }
}
