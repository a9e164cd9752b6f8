//! A range of anonymous memory that is accessed by volatile words only.

use core::arch::asm;

use crate::{Advice, Errno, File, Pages, Prot, Sys};

/// Bytes in a page, as the kernel says (`AT_PAGESZ`) and as programs here check.
pub const PAGE: u64 = 4096;

/// Bytes in a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Bytes that a page table of the second level maps.
pub const GIB: u64 = 1 << 30;

/// Pages of private anonymous memory, of `BYTES` bytes each.
///
/// No Rust object ever lives inside: words are moved by single instructions that the compiler
/// cannot see through, so an access that the kernel refuses is a signal, and nothing worse.
///
/// # Invariants
/// The range was returned by `mmap` to this value and belongs to nobody else, even where unmapped.
#[derive(Debug)]
pub struct Mapping<const BYTES: u64 = PAGE> {
    base: u64,
    pages: u64,
}

impl Mapping {
    /// Maps `pages` pages, readable and writable.
    pub fn new(pages: u64) -> Result<Self, Errno> {
        // INVARIANT: fresh from the kernel, and nothing in the program maps at fixed addresses.
        Sys::mmap(pages * PAGE, Prot::ReadWrite).map(|base| Self { base, pages })
    }

    /// Maps the first pages of a file privately, to be read.
    pub fn of_file(file: &File, pages: u64) -> Result<Self, Errno> {
        // INVARIANT: as above.
        file.map(pages * PAGE).map(|base| Self { base, pages })
    }
}

impl Mapping<HUGE_PAGE> {
    /// The same of `pages` huge pages, from those that were set aside.
    pub fn huge(pages: u64) -> Result<Self, Errno> {
        let base = Sys::mmap_of(Pages::Huge, pages * HUGE_PAGE, Prot::ReadWrite);
        // INVARIANT: as above.
        base.map(|base| Self { base, pages })
    }
}

impl Mapping<GIB> {
    /// Spans with page tables of their own, `pages` of a GiB each.
    pub fn sparse(pages: u64) -> Result<Self, Errno> {
        // INVARIANT: as above.
        Sys::mmap(pages * GIB, Prot::ReadWrite).map(|base| Self { base, pages })
    }
}

impl<const BYTES: u64> Mapping<BYTES> {
    const OF: Pages = if BYTES == HUGE_PAGE {
        Pages::Huge
    } else {
        Pages::Base
    };

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The address of a byte offset inside the range.
    #[must_use]
    pub fn addr(&self, offset: u64) -> u64 {
        assert!(
            offset < self.pages * BYTES,
            "offset {offset:#x} past the mapping"
        );
        self.base + offset
    }

    /// Loads the word at a byte offset. Never inlined, as `store`: a benchmark counts the call.
    #[must_use]
    #[inline(never)]
    pub fn load(&self, offset: u64) -> u64 {
        let at = self.addr(offset);
        let word;
        // SAFETY: (1) by the type invariant no object lives at `at`; the load has no other effect.
        unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) at, options(nostack)) };
        word
    }

    /// Stores a word at a byte offset.
    #[inline(never)]
    pub fn store(&self, offset: u64, word: u64) {
        let at = self.addr(offset);
        // SAFETY: (1) by the type invariant no object lives at `at`.
        unsafe { asm!("mov [{}], {}", in(reg) at, in(reg) word, options(nostack)) };
    }

    /// Jumps to a byte offset as if it held a function.
    ///
    /// # Safety
    /// 1. The page there is not executable, or holds a function without arguments or results.
    pub unsafe fn call(&self, offset: u64) {
        let at = self.addr(offset);
        // SAFETY: (1) the caller's promise.
        unsafe { asm!("call {}", in(reg) at, clobber_abi("C")) };
    }

    /// Changes what pages `first..first + count` allow.
    pub fn protect(&self, first: u64, count: u64, prot: Prot) -> Result<(), Errno> {
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::mprotect(self.addr(first * BYTES), count * BYTES, prot) }
    }

    /// Unmaps pages `first..first + count`.
    pub fn unmap(&self, first: u64, count: u64) -> Result<(), Errno> {
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::munmap(self.addr(first * BYTES), count * BYTES) }
    }

    /// Maps fresh memory as pages `first..first + count`, whatever is there.
    pub fn replace(&self, first: u64, count: u64) -> Result<(), Errno> {
        let at = self.addr(first * BYTES);
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::mmap_fixed(at, count * BYTES, Prot::ReadWrite, Self::OF) }.map(|_| ())
    }

    /// Moves all pages to `to`, which is as large, in place of what is there.
    pub fn move_to(&self, to: &Self) -> Result<(), Errno> {
        assert_eq!(self.pages, to.pages, "both have as many pages");
        // SAFETY: (1) by the invariants of both no object lives there.
        unsafe { Sys::mremap_to(self.base, self.pages * BYTES, to.base) }.map(|_| ())
    }

    /// Has pages `first..first + count` swapped out, as far as possible.
    pub fn page_out(&self, first: u64, count: u64) -> Result<(), Errno> {
        let at = self.addr(first * BYTES);
        // SAFETY: (1) nothing changes that a program can see.
        unsafe { Sys::madvise(at, count * BYTES, Advice::PageOut) }
    }

    /// Discards the contents of pages `first..first + count`.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), Errno> {
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::madvise(self.addr(first * BYTES), count * BYTES, Advice::DontNeed) }
    }

    /// Whether the kernel can store on behalf of the program at a byte offset.
    pub fn kernel_store(&self, offset: u64) -> Result<(), Errno> {
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::getcpu_at(self.addr(offset)) }
    }

    /// Has the kernel write `len` bytes from a byte offset to standard output.
    pub fn kernel_load(&self, offset: u64, len: u64) -> Result<usize, Errno> {
        Sys::write_at(self.addr(offset), len)
    }
}
