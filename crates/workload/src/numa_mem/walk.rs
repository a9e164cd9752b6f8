//! How a thread goes over memory, and what it must find there.
//!
//! Three ways, as in the original: all words in order from a place that moves with each loop, the
//! same backwards, and pieces of 1024 words at random places. Either way memory is used in
//! stretches of at most a page ([`Worker::use_data`]).
//!
//! Memory that one thread has for itself is checked: [`Seen`] keeps for each page where the last
//! stretch began that was stored to, and in which loop.

use crate::contents::{WORD, expect, tag};
use crate::target::{Stop, Use, Worker};
use minflt_addr::VirtAddr;

/// Words of a piece of the random walk.
const PIECE: u64 = 1024;

/// In what order memory is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    /// What is done with the words.
    pub(super) how: Use,
    /// Every other loop goes backwards.
    pub(super) backwards: bool,
    /// Pieces at random places.
    pub(super) random: bool,
}

/// Memory that is gone over, and by how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) at: VirtAddr,
    pub(super) words: u64,
    /// Which of so many users this is: each begins elsewhere.
    pub(super) user: (u64, u64),
}

/// What the pages of a thread's own memory hold.
#[derive(Debug)]
pub(super) struct Seen {
    at: VirtAddr,
    page_words: u64,
    /// By page: the word where the last stretch that was stored to began, and its value.
    last: Vec<(u64, u64)>,
}

impl Seen {
    /// Memory at `at` of so many words, in every page of which each word holds what `first` says.
    pub(super) fn new(
        at: VirtAddr,
        words: u64,
        page_words: u64,
        first: impl Fn(u64) -> u64,
    ) -> Self {
        let pages = words.div_ceil(page_words);
        let last = (0..pages).map(|page| (page * page_words, first(page)));
        Self {
            at,
            page_words,
            last: last.collect(),
        }
    }

    fn stored(&mut self, word: u64, value: u64) {
        if let Some(last) = self.last.get_mut((word / self.page_words) as usize) {
            *last = (word, value);
        }
    }

    /// Loads a word of every page that must hold what was last stored; returns how many.
    pub(super) fn check<W: Worker>(&self, w: &mut W) -> Result<u64, Stop> {
        for (word, value) in &self.last {
            expect(w, VirtAddr(self.at.0 + word * WORD), *value)?;
        }
        Ok(self.last.len() as u64)
    }
}

/// Goes once over `data` of which `loops` loops are to be done in all, and notes in `seen`, where
/// the memory is this thread's own, what was stored.
pub(super) fn go<W: Worker>(
    w: &mut W,
    data: &Data,
    pattern: &Pattern,
    (number, loops): (u32, u64),
    mut seen: Option<&mut Seen>,
) -> Result<(), Stop> {
    let page_words = w.page_size() / WORD;
    let worker = w.index();
    let mut stretch = |from: u64, to: u64| {
        let value = tag(worker, from / page_words, number);
        let at = VirtAddr(data.at.0 + from * WORD);
        w.use_data(at, (to - from) * WORD, pattern.how, value)?;
        if let Some(seen) = seen.as_deref_mut().filter(|_| pattern.how != Use::Load) {
            seen.stored(from, value);
        }
        Ok(())
    };
    let (index, users) = data.user;
    if pattern.random {
        let mut lfsr = Lfsr::new(u64::from(worker) << 32 | u64::from(number));
        for _ in 0..data.words.div_ceil(PIECE) {
            let from = lfsr.next() % data.words;
            let to = (from + PIECE).min(data.words);
            forwards(from, to, page_words, &mut stretch)?;
        }
        return Ok(());
    }
    let moved = u64::from(number).wrapping_mul(data.words / loops.max(1));
    let start = (index * (data.words / users)).wrapping_add(moved) % data.words.max(1);
    if pattern.backwards && (index + u64::from(number)).is_multiple_of(2) {
        backwards(0, start, page_words, &mut stretch)?;
        backwards(start, data.words, page_words, &mut stretch)
    } else {
        forwards(start, data.words, page_words, &mut stretch)?;
        forwards(0, start, page_words, &mut stretch)
    }
}

/// The parts of the words `from..to` that lie in one page each, in order.
fn forwards(
    mut from: u64,
    to: u64,
    page_words: u64,
    mut each: impl FnMut(u64, u64) -> Result<(), Stop>,
) -> Result<(), Stop> {
    while from < to {
        let end = (from / page_words + 1).saturating_mul(page_words).min(to);
        each(from, end)?;
        from = end;
    }
    Ok(())
}

/// The same from the last to the first.
fn backwards(
    from: u64,
    mut to: u64,
    page_words: u64,
    mut each: impl FnMut(u64, u64) -> Result<(), Stop>,
) -> Result<(), Stop> {
    while from < to {
        let begin = ((to - 1) / page_words * page_words).max(from);
        each(begin, to)?;
        to = begin;
    }
    Ok(())
}

/// A linear-feedback shift register of 32 bits that comes back after 2^32 - 1 steps; the original
/// walks by one, too.
#[derive(Clone, Copy, Debug)]
struct Lfsr(u32);

impl Lfsr {
    /// The bits that are fed back: 32, 22, 2 and 1.
    const TAPS: u32 = 0x8020_0003;

    /// One whose walk `seed` decides.
    fn new(seed: u64) -> Self {
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(((mixed >> 32) as u32).max(1))
    }

    fn next(&mut self) -> u64 {
        let feedback = if self.0 & 1 == 1 { Self::TAPS } else { 0 };
        self.0 = self.0 >> 1 ^ feedback;
        u64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lfsr, backwards, forwards};

    #[test]
    fn stretches_cover_every_word_once_and_stay_in_their_pages() {
        // pages   |0 1 2 3|4 5 6 7|8 ...      from 2 to 9
        let mut there = Vec::new();
        let mut back = Vec::new();
        forwards(2, 9, 4, |from, to| {
            there.push((from, to));
            Ok(())
        })
        .unwrap();
        backwards(2, 9, 4, |from, to| {
            back.push((from, to));
            Ok(())
        })
        .unwrap();
        assert_eq!(there, [(2, 4), (4, 8), (8, 9)]);
        back.reverse();
        assert_eq!(there, back);
        forwards(3, 3, 4, |_, _| panic!("nothing to do")).unwrap();
    }

    #[test]
    fn a_random_walk_reaches_all_parts_and_differs_by_seed() {
        let walk = |seed| {
            let mut lfsr = Lfsr::new(seed);
            (0..256).map(|_| lfsr.next() % 1000).collect::<Vec<_>>()
        };
        let one = walk(0);
        for part in 0..10 {
            assert!(one.iter().any(|at| at / 100 == part), "part {part}");
        }
        assert_ne!(one, walk(1));
    }
}
