//! A set of small numbers, kept beside a list whose members move.

/// A set of places in a list.
#[derive(Debug, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Room for places below `len`.
    pub(super) fn reach(&mut self, len: usize) {
        if self.0.len() * 64 < len {
            self.0.resize(len.div_ceil(64), 0);
        }
    }

    pub(super) fn has(&self, at: usize) -> bool {
        self.0
            .get(at / 64)
            .is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Puts `at` in, or takes it out; there is room for it.
    pub(super) fn set(&mut self, at: usize, is: bool) {
        let (word, bit) = (&mut self.0[at / 64], 1 << (at % 64));
        if is {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The member at `at` was removed from the list, and the last, which was at `last`, took its
    /// place.
    pub(super) fn swap_remove(&mut self, at: usize, last: usize) {
        let moved = self.has(last);
        self.set(at, moved);
        self.set(last, false);
    }

    /// The word `n`, places `64 * n` and up.
    pub(super) fn word(&self, n: usize) -> u64 {
        self.0.get(n).copied().unwrap_or(0)
    }
}

/// The first place from `from` to `to` whose bit is set in the words that `word` gives and that
/// `is` it.
#[inline]
pub(super) fn find(
    from: usize,
    to: usize,
    word: impl Fn(usize) -> u64,
    mut is: impl FnMut(usize) -> bool,
) -> Option<usize> {
    let mut n = from / 64;
    let mut mask = u64::MAX << (from % 64);
    while n * 64 < to {
        let mut bits = word(n) & mask;
        while bits != 0 {
            let at = n * 64 + bits.trailing_zeros() as usize;
            if at >= to {
                return None;
            }
            if is(at) {
                return Some(at);
            }
            bits &= bits - 1;
        }
        mask = u64::MAX;
        n += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Bits, find};

    #[test]
    fn places_are_found_in_any_range() {
        let mut bits = Bits::default();
        bits.reach(200);
        for at in [0, 63, 64, 127, 199] {
            bits.set(at, true);
        }
        let of = |from, to| {
            let mut found = Vec::new();
            let none = find(
                from,
                to,
                |n| bits.word(n),
                |at| {
                    found.push(at);
                    false
                },
            );
            assert_eq!(none, None);
            found
        };
        assert_eq!(find(1, 200, |n| bits.word(n), |at| at > 63), Some(64));
        assert_eq!(of(0, 200), [0, 63, 64, 127, 199]);
        assert_eq!(of(1, 127), [63, 64]);
        assert_eq!(of(64, 128), [64, 127]);
        assert_eq!(of(70, 70), [0; 0]);
        assert_eq!(of(128, 192), []);
    }

    #[test]
    fn the_last_takes_the_place_of_the_one_removed() {
        let mut bits = Bits::default();
        bits.reach(70);
        bits.set(69, true);
        bits.swap_remove(3, 69);
        assert!(bits.has(3) && !bits.has(69));
        bits.swap_remove(3, 3);
        assert!(!bits.has(3));
    }
}
