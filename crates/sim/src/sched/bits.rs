//! Bit sets over a reordered list: attributes of each die that waits for a line.

/// What is known of 64 dies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    /// There is such a die.
    is: u64,
    /// Its last cache has taken up the first of its requests, and takes no other.
    taken_up: u64,
    /// That one reads, if it is taken up.
    reads: u64,
    /// It has a copy of the line, while nobody owns it.
    shares: u64,
}

impl Word {
    /// Those that take one up when they are free.
    #[inline]
    pub(super) fn idle(self) -> u64 {
        self.is & !self.taken_up
    }

    /// Those whose last cache can serve the one it has taken up by itself.
    #[inline]
    pub(super) fn alone(self) -> u64 {
        self.taken_up & self.reads & self.shares
    }

    /// Those that have taken up one that they can serve; the line may be free.
    #[inline]
    pub(super) fn servable(self, is_free: bool) -> u64 {
        if is_free { self.taken_up } else { self.alone() }
    }

    /// Those that have taken up one that needs the line.
    #[inline]
    pub(super) fn waits_for_line(self) -> u64 {
        self.taken_up & !self.alone()
    }
}

/// What is known of each die of a list, by its place.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<Word>);

impl Marks {
    /// The list has grown by place `at`.
    #[inline]
    pub(super) fn push(&mut self, at: usize, shares: bool) {
        if self.0.len() * 64 <= at {
            self.0.push(Word::default());
        }
        let (word, bit) = self.at(at);
        word.is |= bit;
        if shares {
            word.shares |= bit;
        }
    }

    #[inline]
    fn at(&mut self, at: usize) -> (&mut Word, u64) {
        (&mut self.0[at / 64], 1 << (at % 64))
    }

    /// The one at `at` has taken up one that reads or does not.
    #[inline]
    pub(super) fn takes_up(&mut self, at: usize, reads: bool) {
        let (word, bit) = self.at(at);
        word.taken_up |= bit;
        word.reads = if reads {
            word.reads | bit
        } else {
            word.reads & !bit
        };
    }

    /// The one at `at` has no request taken up.
    #[inline]
    pub(super) fn is_idle(&mut self, at: usize) {
        let (word, bit) = self.at(at);
        word.taken_up &= !bit;
    }

    /// The one at `at` has a copy of the line.
    #[inline]
    pub(super) fn shares(&mut self, at: usize) {
        let (word, bit) = self.at(at);
        word.shares |= bit;
    }

    /// One CPU owns the line.
    pub(super) fn nobody_shares(&mut self) {
        self.0.iter_mut().for_each(|word| word.shares = 0);
    }

    /// Whether what the one at `at` has taken up reads, and whether the die has a copy.
    pub(super) fn reads_and_shares(&self, at: usize) -> (bool, bool) {
        let (word, shift) = (self.word(at / 64), at % 64);
        (word.reads >> shift & 1 == 1, word.shares >> shift & 1 == 1)
    }

    /// The member at `at` was removed from the list, and the last, which was at `last`, took its
    /// place.
    #[inline]
    pub(super) fn swap_remove(&mut self, at: usize, last: usize) {
        let (from, moved) = (last % 64, self.word(last / 64));
        let (word, to) = (&mut self.0[at / 64], at % 64);
        let swap = |into: &mut u64, bits: u64| {
            *into = *into & !(1 << to) | (bits >> from & 1) << to;
        };
        swap(&mut word.taken_up, moved.taken_up);
        swap(&mut word.reads, moved.reads);
        swap(&mut word.shares, moved.shares);
        let (word, gone) = (&mut self.0[last / 64], !(1 << from));
        word.is &= gone;
        word.taken_up &= gone;
        word.reads &= gone;
        word.shares &= gone;
    }

    /// Places `64 * n` and up.
    #[inline]
    pub(super) fn word(&self, n: usize) -> Word {
        self.0.get(n).copied().unwrap_or_default()
    }

    /// All of them.
    pub(super) fn words(&self) -> impl Iterator<Item = &Word> {
        self.0.iter()
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
    use super::{Marks, find};

    #[test]
    fn places_are_found_in_any_range() {
        let mut marks = Marks::default();
        for at in 0..200 {
            marks.push(at, false);
        }
        for at in [0, 63, 64, 127, 199] {
            marks.takes_up(at, true);
        }
        let word = |n| marks.word(n).servable(true);
        let of = |from, to| {
            let mut found = Vec::new();
            let none = find(from, to, word, |at| {
                found.push(at);
                false
            });
            assert_eq!(none, None);
            found
        };
        assert_eq!(find(1, 200, word, |at| at > 63), Some(64));
        assert_eq!(of(0, 200), [0, 63, 64, 127, 199]);
        assert_eq!(of(1, 127), [63, 64]);
        assert_eq!(of(64, 128), [64, 127]);
        assert_eq!(of(70, 70), [0; 0]);
        assert_eq!(of(128, 192), []);
    }

    #[test]
    fn the_last_takes_the_place_of_the_one_removed() {
        let mut marks = Marks::default();
        for at in 0..70 {
            marks.push(at, at == 69);
        }
        marks.takes_up(69, true);
        assert_eq!(marks.word(1).alone(), 1 << 5);
        marks.swap_remove(3, 69);
        assert_eq!(
            (marks.word(0).alone(), marks.word(1).idle()),
            (1 << 3, 0x1f)
        );
        assert_eq!(marks.reads_and_shares(3), (true, true));
        marks.swap_remove(3, 3);
        assert_eq!(marks.word(0).servable(true), 0);
        assert_eq!(marks.word(0).idle(), !(1 << 3));
    }
}
