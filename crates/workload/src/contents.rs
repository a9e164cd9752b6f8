//! The words that workloads store, and the check that loads return them.
//!
//! A stored word is a tag of thread, page and repetition, so that a page that reached the wrong
//! place, the wrong thread or the next repetition is seen. It is never 0, so neither is a page that
//! was lost and came back fresh. Where a workload leaves the end of its pages alone, the check also
//! reads the last word of each sampled page, which must be 0 as fresh memory is.

use crate::target::{Oracle, Prot, Stop, TargetError, Worker};
use minflt_addr::VirtAddr;

/// Bytes of a cacheline. An option `-c` counts lines of this size on every machine.
pub(crate) const LINE: u64 = 64;
/// Every so many pages are sampled; a prime, so that no power of two hides behind it.
pub(crate) const SAMPLE: u64 = 61;
pub(crate) const WORD: u64 = 8;
/// Set in the words of a common file; [`tag`] sets the bit above it.
const FILE: u64 = 1 << 62;
/// Workers that map memory to check it once the window is closed: with more, the others only
/// repeat what these do, and each unmapping interrupts every CPU.
const CHECKERS: u32 = 64;
/// Pages that [`check_fresh`] maps.
pub(crate) const FRESH_PAGES: u64 = 4;

/// How much of each page is stored to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// One word in each of so many cachelines of 64 bytes, from the page's first on.
    Lines(u32),
    /// Every word.
    Whole,
}

impl Touch {
    /// Fails unless a page of `page_size` bytes has that many lines.
    pub(crate) fn fits(self, page_size: u64) -> Result<(), TargetError> {
        let lines = page_size / LINE;
        match self {
            Self::Lines(count) if u64::from(count) > lines => {
                Err(TargetError::Unsupported(format!(
                    "-c {count}: a page of {page_size} bytes has {lines} cachelines of {LINE} bytes"
                )))
            }
            Self::Lines(_) | Self::Whole => Ok(()),
        }
    }

    /// Bytes between two stores in a page, and how many stores a page gets.
    fn steps(self, page_size: u64) -> (u64, u64) {
        match self {
            Self::Lines(count) => (LINE, u64::from(count)),
            Self::Whole => (WORD, page_size / WORD),
        }
    }
}

/// Pages of one thread, and what it stores in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// Where the first page begins.
    pub(crate) at: VirtAddr,
    /// How many there are.
    pub(crate) pages: u64,
    /// How much of each is stored to.
    pub(crate) touch: Touch,
    /// Which time round this is, from 0.
    pub(crate) repetition: u32,
}

impl Region {
    /// Stores to every page, in the order of addresses, and loads nothing.
    pub(crate) fn fill<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        let page_size = w.page_size();
        let (step, count) = self.touch.steps(page_size);
        let worker = w.index();
        for page in 0..self.pages {
            let value = tag(worker, page, self.repetition);
            let base = self.at.0 + page * page_size;
            for i in 0..count {
                w.store(VirtAddr(base + i * step), value)?;
            }
        }
        Ok(())
    }

    /// Re-reads every 61st page and the last, and reports the loads as looks of
    /// [`Oracle::Contents`].
    pub(crate) fn check<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        let Some(last) = self.pages.checked_sub(1) else {
            return Ok(());
        };
        let mut looks = 0;
        for page in (0..last).step_by(SAMPLE as usize).chain([last]) {
            looks += self.check_page(w, page)?;
        }
        w.checked(Oracle::Contents, looks);
        Ok(())
    }

    fn check_page<W: Worker>(&self, w: &mut W, page: u64) -> Result<u64, Stop> {
        let page_size = w.page_size();
        let (step, count) = self.touch.steps(page_size);
        let value = tag(w.index(), page, self.repetition);
        let base = self.at.0 + page * page_size;
        expect(w, VirtAddr(base), value)?;
        expect(w, VirtAddr(base + (count - 1) * step), value)?;
        match self.touch {
            Touch::Whole => Ok(2),
            Touch::Lines(_) => {
                expect(w, VirtAddr(base + page_size - WORD), 0)?;
                Ok(3)
            }
        }
    }
}

/// Maps a few pages, checks that they read 0 before anybody stored, and unmaps them. Only the first
/// 64 workers do.
pub(crate) fn check_fresh<W: Worker>(w: &mut W) -> Result<(), Stop> {
    if w.index() >= CHECKERS {
        return Ok(());
    }
    let page_size = w.page_size();
    let len = FRESH_PAGES * page_size;
    let at = w.map(len, Prot::ReadWrite)?;
    for page in 0..FRESH_PAGES {
        let base = at.0 + page * page_size;
        expect(w, VirtAddr(base), 0)?;
        expect(w, VirtAddr(base + page_size - WORD), 0)?;
    }
    w.checked(Oracle::Contents, 2 * FRESH_PAGES);
    w.unmap(at, len)
}

/// One round of a map-touch-unmap loop over `pages` pages.
pub(crate) fn round<W: Worker>(w: &mut W, pages: u64, repetition: u32) -> Result<(), Stop> {
    let len = pages * w.page_size();
    let at = w.map(len, Prot::ReadWrite)?;
    Region {
        at,
        pages,
        touch: Touch::Lines(1),
        repetition,
    }
    .fill(w)?;
    w.unmap(at, len)
}

/// [`round`] with a look at what was stored before it is unmapped; for outside the window. Only the
/// first 64 workers do it.
pub(crate) fn checked_round<W: Worker>(w: &mut W, pages: u64, repetition: u32) -> Result<(), Stop> {
    if w.index() >= CHECKERS {
        return Ok(());
    }
    let len = pages * w.page_size();
    let at = w.map(len, Prot::ReadWrite)?;
    let region = Region {
        at,
        pages,
        touch: Touch::Lines(1),
        repetition,
    };
    region.fill(w)?;
    region.check(w)?;
    w.unmap(at, len)
}

/// What is stored in page `page` of thread `worker`'s memory: never 0.
pub(crate) fn tag(worker: u32, page: u64, repetition: u32) -> u64 {
    1 << 63
        | u64::from(repetition & 0x7fff) << 48
        | u64::from(worker & 0xffff) << 32
        | page & 0xffff_ffff
}

/// The word at the start of page `page` of a file that workers have in common: never 0, and other
/// than anything that is stored.
#[must_use]
pub const fn file_word(page: u64) -> u64 {
    FILE | page & !(1 << 63 | FILE)
}

/// Loads the word at `at`, which must be `value`.
pub(crate) fn expect<W: Worker>(w: &mut W, at: VirtAddr, value: u64) -> Result<(), Stop> {
    let found = w.load(at)?;
    if found == value {
        Ok(())
    } else {
        Err(Stop::Contents(at, value, found))
    }
}

#[cfg(test)]
mod tests {
    use super::{Touch, tag};
    use std::collections::BTreeSet;

    #[test]
    fn tags_differ_by_thread_page_and_repetition_and_are_never_zero() {
        let mut seen = BTreeSet::from([0]);
        for worker in [0, 1, 255, 65_535] {
            for page in [0, 1, 61, 0xffff_ffff] {
                for repetition in [0, 1, 0x7fff] {
                    assert!(seen.insert(tag(worker, page, repetition)));
                }
            }
        }
    }

    #[test]
    fn more_lines_than_a_page_has_are_refused() {
        assert_eq!(Touch::Lines(64).fits(4096), Ok(()));
        let words = Touch::Lines(65).fits(4096).unwrap_err().to_string();
        assert!(
            words.contains("-c 65") && words.contains("64 cachelines"),
            "{words}"
        );
    }
}
