//! A range of anonymous memory that is accessed by volatile words only.

use core::arch::asm;

use crate::{Advice, Errno, File, Pages, Prot, Sys};

/// Bytes in a page, as the kernel says (`AT_PAGESZ`) and as programs here check.
pub const PAGE: u64 = 4096;

/// Pages of private anonymous memory.
///
/// No Rust object ever lives inside: words are moved by single instructions that the compiler
/// cannot see through, so an access that the kernel refuses is a signal, and nothing worse.
///
/// # Invariants
/// The range was returned by `mmap` to this value and belongs to nobody else, even where unmapped.
#[derive(Debug)]
pub struct Mapping {
    base: u64,
    pages: u64,
    of: Pages,
}

impl Mapping {
    /// Maps `pages` pages, readable and writable.
    pub fn new(pages: u64) -> Result<Self, Errno> {
        Self::of(Pages::Base, pages)
    }

    /// The same with pages of a kind. Offsets are in bytes, pages are counted in those.
    pub fn of(of: Pages, pages: u64) -> Result<Self, Errno> {
        let base = Sys::mmap_of(of, pages * of.bytes(), Prot::ReadWrite)?;
        // INVARIANT: fresh from the kernel, and nothing in the program maps at fixed addresses.
        Ok(Self { base, pages, of })
    }

    /// Maps the first pages of a file privately, to be read.
    pub fn of_file(file: &File, pages: u64) -> Result<Self, Errno> {
        let of = Pages::Base;
        // INVARIANT: as above.
        file.map(pages * PAGE).map(|base| Self { base, pages, of })
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes in each.
    #[must_use]
    pub const fn page(&self) -> u64 {
        self.of.bytes()
    }

    /// The address of a byte offset inside the range.
    #[must_use]
    pub fn addr(&self, offset: u64) -> u64 {
        assert!(
            offset < self.pages * self.page(),
            "offset {offset:#x} past the mapping"
        );
        self.base + offset
    }

    /// Loads the word at a byte offset.
    #[must_use]
    pub fn load(&self, offset: u64) -> u64 {
        let at = self.addr(offset);
        let word;
        // SAFETY: (1) by the type invariant no object lives at `at`; the load has no other effect.
        unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) at, options(nostack)) };
        word
    }

    /// Stores a word at a byte offset.
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
        unsafe { Sys::mprotect(self.addr(first * self.page()), count * self.page(), prot) }
    }

    /// Unmaps pages `first..first + count`.
    pub fn unmap(&self, first: u64, count: u64) -> Result<(), Errno> {
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::munmap(self.addr(first * self.page()), count * self.page()) }
    }

    /// Maps fresh memory as pages `first..first + count`, whatever is there.
    pub fn replace(&self, first: u64, count: u64) -> Result<(), Errno> {
        let at = self.addr(first * self.page());
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe { Sys::mmap_fixed(at, count * self.page(), Prot::ReadWrite, self.of) }.map(|_| ())
    }

    /// Moves all pages to `to`, which is as large, in place of what is there.
    pub fn move_to(&self, to: &Self) -> Result<(), Errno> {
        assert_eq!(self.pages, to.pages, "both have as many pages");
        // SAFETY: (1) by the invariants of both no object lives there.
        unsafe { Sys::mremap_to(self.base, self.pages * self.page(), to.base) }.map(|_| ())
    }

    /// Has pages `first..first + count` swapped out, as far as possible.
    pub fn page_out(&self, first: u64, count: u64) -> Result<(), Errno> {
        let at = self.addr(first * self.page());
        // SAFETY: (1) nothing changes that a program can see.
        unsafe { Sys::madvise(at, count * self.page(), Advice::PageOut) }
    }

    /// Discards the contents of pages `first..first + count`.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), Errno> {
        // SAFETY: (1) by the type invariant no object lives there.
        unsafe {
            Sys::madvise(
                self.addr(first * self.page()),
                count * self.page(),
                Advice::DontNeed,
            )
        }
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
