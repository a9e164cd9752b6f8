//! Random arguments of what is done to files.

use super::Draw;
use crate::files::PAGES;
use crate::window::PAGE;
use minflt_spec::{HALF, abi};

impl Draw<'_> {
    /// Which file, as it is open.
    pub(super) fn file(&mut self) -> u64 {
        self.random.pick(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3])
    }

    pub(super) fn file_map_flags(&mut self) -> u64 {
        let kind = match self.random.below(40) {
            0 => 0,
            1..4 => abi::MAP_SHARED_VALIDATE,
            4..22 => abi::MAP_SHARED,
            _ => abi::MAP_PRIVATE,
        };
        self.place_flags() | kind
    }

    /// Where a mapping begins in a file.
    pub(super) fn file_offset(&mut self) -> u64 {
        let page = match self.random.below(4) {
            0..2 => self.random.below(3),
            _ => self.random.below(8),
        };
        match self.random.below(60) {
            0 => page * PAGE + self.random.pick(&[1, 8, 2048]),
            _ => page * PAGE,
        }
    }

    /// A byte of a file: most often where a page or its second half begins, or the words in them
    /// end.
    pub(super) fn byte(&mut self) -> u64 {
        let page = self.random.below(10) * PAGE;
        let within = self
            .random
            .pick(&[0, 0, 0, 0, 0, HALF, HALF, HALF + 8, 8, 4, HALF + 3, 4095]);
        page + within
    }

    /// How long a file shall be.
    pub(super) fn file_bytes(&mut self) -> u64 {
        match self.random.below(50) {
            0 => self.random.pick(&[u64::MAX, 1 << 63]),
            _ => self.byte(),
        }
    }

    /// The mode, the first byte and how many.
    pub(super) fn fallocate(&mut self) -> [u64; 3] {
        let mode = self.random.pick(&[3, 3, 3, 3, 3, 0, 0, 1, 1, 2]);
        let from = self.byte();
        let pages = self.random.below(4) * PAGE;
        let to = (from + pages).max(self.byte()).min(PAGES * PAGE);
        match self.random.below(40) {
            0 => [mode, from, 0],
            1 => [mode, u64::MAX, to],
            _ => [mode, from, to.saturating_sub(from)],
        }
    }

    /// Where a word of a file begins.
    pub(super) fn word_of_file(&mut self) -> u64 {
        self.random.below(18) * HALF
    }
}
