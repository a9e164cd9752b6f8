//! Random arguments of what is done to files.

use super::Draw;
use crate::files::PAGES;
use crate::step::{Call, SYNC, Step};
use crate::window::{PAGE, page_of};
use minflt_spec::{HALF, Vma, abi};

impl Draw<'_> {
    /// A call that is of files only.
    pub(super) fn of_files(&mut self, call: Call, addr: u64, len: u64) -> Step {
        let step = |args: &[u64]| Step::new(call, args);
        match call {
            Call::Msync => step(&[addr, len, self.set(SYNC.names)]),
            Call::Ftruncate => step(&[self.file(), self.file_bytes()]),
            Call::Fallocate => {
                let [mode, from, bytes] = self.fallocate();
                step(&[self.file(), mode, from, bytes])
            }
            Call::Pread => step(&[self.file(), self.word_of_file()]),
            Call::Pwrite => step(&[self.file(), self.word_of_file(), self.value()]),
            _ => {
                let flags = self.file_map_flags();
                let hint = self.hint(flags, addr);
                let (file, offset) = (self.file(), self.file_offset());
                step(&[hint, len, self.prot(), flags, file, offset])
            }
        }
    }

    /// The number of a page that is a file's, or that of a private copy.
    pub(super) fn page_of_file(&mut self, vmas: &[Vma]) -> Option<u64> {
        let of_files: Vec<&Vma> = vmas.iter().filter(|vma| vma.file.is_some()).collect();
        let at = self.random.below(of_files.len() as u64) as usize;
        let vma = of_files.get(at)?;
        Some(page_of(vma.start) + self.random.below(vma.pages()))
    }

    /// Which file, as it is open.
    fn file(&mut self) -> u64 {
        self.random.pick(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 3])
    }

    fn file_map_flags(&mut self) -> u64 {
        let kind = match self.random.below(40) {
            0 => 0,
            1..4 => abi::MAP_SHARED_VALIDATE,
            4..22 => abi::MAP_SHARED,
            _ => abi::MAP_PRIVATE,
        };
        self.place_flags() | kind
    }

    /// Where a mapping begins in a file.
    fn file_offset(&mut self) -> u64 {
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
    fn byte(&mut self) -> u64 {
        let page = self.random.below(10) * PAGE;
        let within = self
            .random
            .pick(&[0, 0, 0, 0, 0, HALF, HALF, HALF + 8, 8, 4, HALF + 3, 4095]);
        page + within
    }

    /// How long a file shall be.
    fn file_bytes(&mut self) -> u64 {
        match self.random.below(50) {
            0 => self.random.pick(&[u64::MAX, 1 << 63]),
            _ => self.byte(),
        }
    }

    /// The mode, the first byte and how many.
    fn fallocate(&mut self) -> [u64; 3] {
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
    fn word_of_file(&mut self) -> u64 {
        self.random.below(18) * HALF
    }
}
