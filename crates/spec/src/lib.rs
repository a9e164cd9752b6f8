//! What the memory calls mean: a sequential model, one call after the other, of one address space.
//!
//! It is written to be read and compared, not to be fast, and it knows nothing of `mm`: no locks,
//! no tables, no frames. [`Space`] is a sorted list of mappings and a map from pages to contents;
//! a call is a function of it. Same result, same error number, same mappings and the same contents
//! as Linux 6.18 on x86-64, for private anonymous memory and for mappings of files, private and
//! shared, and of shared anonymous memory, which is a file without a name.
//!
//! # What it models
//! A *window* of addresses. Everything else of user space counts as mapped without access, so that
//! a call which looks for a hole finds it in the window. Calls that would change what lies outside
//! are not modelled; [`Space::knows`] tells.
//!
//! # Where to read
//! | what | where |
//! |---|---|
//! | Linux's numbers | [`abi`] |
//! | a mapping, and which two are alike | `vma` |
//! | the list of mappings: split, modify, merge | `space` |
//! | loads, stores, what they bring in; stacks | `access` |
//! | mmap, munmap, brk | `map` |
//! | what a file holds | `file` |
//! | ftruncate, fallocate, pread, pwrite, msync | `backed` |
//! | mprotect | `protect` |
//! | mremap | `remap` |
//! | madvise, mincore | `advise` |
//! | mlock and its kin | `lock` |
//! | mbind and its kin | `policy` |
//! | huge pages: the pool, their files, their faults | `huge` |
//! | userfaultfd | `userfault` |
//! | fork | `fork` |
#![forbid(unsafe_code)]

pub mod abi;
mod access;
mod advise;
mod backed;
mod file;
mod fork;
mod huge;
mod lock;
mod map;
mod policy;
mod protect;
mod remap;
mod space;
mod userfault;
mod vma;

#[cfg(test)]
mod tests;

pub use abi::Errno;
pub use access::{ExecAlone, Signal};
pub use file::{File, HALF, Opened, Words};
pub use huge::{HUGE, Pool};
pub use policy::Policy;
pub use space::{Page, Space};
pub use vma::{Flags, Vma};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The end of user space.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;
/// What stays free below a stack (`stack_guard_gap`), in bytes.
pub const STACK_GAP: u64 = 256 * PAGE;
/// More pages than any limit: what is mapped outside the window.
const OUTSIDE: u64 = 1 << 33;

/// What a call returns.
pub type Result<T> = core::result::Result<T, Errno>;

/// `len` rounded up to pages; 0 where that wraps.
const fn page_align(len: u64) -> u64 {
    len.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

const fn is_aligned(addr: u64) -> bool {
    addr.is_multiple_of(PAGE)
}
