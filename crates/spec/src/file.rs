//! Files: what they hold, whoever has them mapped.
//!
//! Of each page two words are known, its first and the one in its middle: enough to see that the
//! end of a file may lie within a page, and what was cut off does not come back.

use crate::huge::HUGE;
use crate::{PAGE, Result, abi::Errno};
use std::collections::{BTreeMap, BTreeSet};

/// The words known of a page: those at 0 and at [`HALF`].
pub type Words = [u64; 2];
/// Where the second of the words known of a page lies.
pub const HALF: u64 = PAGE / 2;
/// No file may be longer: Linux's limit for a file in memory.
const LONGEST: u64 = i64::MAX as u64;

/// Which of a page's words lies at `addr`.
pub(crate) const fn half(addr: u64) -> usize {
    (addr % PAGE / HALF) as usize
}

/// A file that is open, as one call of Linux's open gives it: mappings of two such never merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Which file.
    pub file: usize,
    /// Whether it may be written to.
    pub writable: bool,
}

/// A file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct File {
    bytes: u64,
    /// The fewest bytes it had since the last fork.
    pub(crate) shortest: u64,
    /// The pages that hold anything but zeros.
    pages: BTreeMap<u64, Words>,
    /// Bytes of its pages, if these are huge; else 0.
    huge: u64,
    /// The huge pages that are there.
    pub(crate) made: BTreeSet<u64>,
    /// The huge pages that are reserved or were.
    pub(crate) promised: BTreeSet<u64>,
}

impl File {
    /// A file of so many bytes, all of them zero.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            shortest: bytes,
            ..Self::default()
        }
    }

    /// A file of huge pages, of so many bytes.
    pub(crate) fn huge(bytes: u64) -> Self {
        Self {
            huge: HUGE,
            ..Self::new(bytes)
        }
    }

    /// Whether its pages are huge.
    #[must_use]
    pub const fn is_huge(&self) -> bool {
        self.huge != 0
    }

    /// Bytes of a page.
    const fn unit(&self) -> u64 {
        if self.is_huge() { self.huge } else { PAGE }
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its pages, the last of which it may not fill.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.bytes.div_ceil(self.unit())
    }

    /// The words of a page.
    #[must_use]
    pub fn page(&self, index: u64) -> Words {
        self.pages.get(&index).copied().unwrap_or_default()
    }

    /// Whether anything but zeros lies behind its end, where only a mapping gets at.
    #[must_use]
    pub fn has_tail(&self) -> bool {
        let mut cut = self.clone();
        cut.clear(self.bytes, LONGEST);
        cut.pages != self.pages
    }

    /// Sets a word, wherever it lies.
    pub(crate) fn set(&mut self, index: u64, half: usize, word: u64) {
        self.pages.entry(index).or_default()[half] = word;
    }

    /// Sets the length; the end of the last page that stays is zeros. Linux: truncate_pagecache.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        self.clear(bytes, LONGEST);
        self.bytes = bytes;
        self.shortest = self.shortest.min(bytes);
    }

    /// Makes it at least so long.
    pub(crate) fn reach(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Sets the bytes from `from` to `to` to zero.
    pub(crate) fn clear(&mut self, from: u64, to: u64) {
        let unit = self.unit();
        self.pages.retain(|index, words| {
            for (word, at) in words.iter_mut().zip([0, unit / 2]) {
                let at = index * unit + at;
                let bits = |end: u64| (end.clamp(at, at + 8) - at) * 8;
                let mask = (1_u128 << bits(to)) - (1_u128 << bits(from).min(bits(to)));
                *word &= !(mask as u64);
            }
            *words != [0; 2]
        });
    }

    /// Linux: vfs_fallocate's checks of a range.
    pub(crate) fn check_range(offset: u64, len: u64) -> Result<u64> {
        if offset > LONGEST || len > LONGEST || len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset + len;
        if end > LONGEST {
            return Err(Errno::EFBIG);
        }
        Ok(end)
    }
}
