//! Calls that change an address space. Each has one file: the call, its locks and its error
//! unwinding.
//!
//! | call | `mmap_lock` | VMA write sections | tables |
//! |---|---|---|---|
//! | mmap | write | the VMAs it replaces | - |
//! | munmap | write; then read | the VMAs it splits; on those it removes, never ended | zap, free |
//! | mprotect | write | each VMA it changes | protect |
//! | fork | write, of the parent | all VMAs of the parent, until the TLB flush | share |
//! | mremap | write | what it grows, moves and makes; those it unmaps | move, zap, free |
//! | brk | write | the VMA it extends; those it unmaps | zap, free |
//! | madvise of pages | read | none: it changes no VMA | zap, age |
//! | madvise of mappings | write | each VMA it changes | - |
//! | mlock, munlock, mlockall | write; then read | each VMA it changes | faults |
//! | mincore | read | none | traverse |
//! | msync; madvise of files | read, released before the file is called | none | - |
//! | mbind | write | each VMA it checks, and each that it changes | traverse |
//! | (a fault below a stack) | write | the stack | - |
//! | remote access, pins | read | none: they change no VMA | - |
//! | shmat, shmdt | write | as mmap, munmap | zap, free |
//! | userfaultfd: register, unregister, close | write | each VMA it changes | allow |
//! | userfaultfd: fill, writeprotect | read | none: they change no VMA | install; protect |

mod age;
pub(crate) mod brk;
mod file;
pub(crate) mod file_copy;
pub(crate) mod fork;
pub(crate) mod handle;
mod hugetlb;
pub(crate) mod kernel_pages;
pub(crate) mod madvise;
pub(crate) mod mempolicy;
pub(crate) mod mincore;
pub(crate) mod mlock;
pub(crate) mod mmap;
mod move_frame;
pub(crate) mod move_pages;
pub(crate) mod mprotect;
pub(crate) mod mremap;
pub(crate) mod msync;
pub(crate) mod munmap;
mod numa;
pub(crate) mod pin;
pub(crate) mod place;
mod populate;
pub(crate) mod remote;
pub(crate) mod shm;
mod spans;
pub(crate) mod thread;
pub(crate) mod userfaultfd;

use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// The range of a call, or `None` where the address is not a page's or the end wraps. A length that
/// is no multiple of the page size is rounded up.
fn page_range<M: Mmu>(start: VirtAddr, len: u64) -> Option<VirtRange> {
    if !start.is_aligned(M::Paging::shift()) {
        return None;
    }
    let len = VirtAddr(len).align_up(M::Paging::shift())?;
    VirtRange::from_len(start, len.0)
}
