//! The memory that the harness and the child share: steps one way, records the other.
//!
//! ```text
//! word   0  steps of the case          1  words of records written
//!        2  steps done so far         3  1 if the window is that of huge pages
//!       16  steps, 8 words each: call, arguments
//!    8192  records, one behind the other:
//!           kind, value, 2 words of data; free and reserved huge pages
//!           mappings n, then n times start, end, rights, of, offset
//!           2 words: which private pages are present
//!           words w, then w times place, word; again for the files' pages
//!           how many files follow: of each its bytes, words w, then w words
//!           bytes s of smaps, then its text in words
//! ```
//! One side writes while the other waits for a byte in a pipe, which orders them.

use core::ptr::{self, NonNull};

/// Words of the area.
const WORDS: usize = 1 << 20;
pub(super) const COUNT: usize = 0;
pub(super) const USED: usize = 1;
pub(super) const DONE: usize = 2;
pub(super) const WINDOW: usize = 3;
pub(super) const STEPS: usize = 16;
pub(super) const STEP_WORDS: usize = 8;
pub(super) const RECORDS: usize = 8192;
/// The most steps of a case.
pub(super) const STEPS_MAX: usize = (RECORDS - STEPS) / STEP_WORDS;

/// The area.
///
/// # Invariants
/// A shared mapping of `WORDS` words that lives as long as the process.
#[derive(Debug)]
pub(super) struct Area {
    words: NonNull<u64>,
}

// SAFETY: 1. The mapping belongs to whoever has the value.
unsafe impl Send for Area {}

impl Area {
    /// Maps an area.
    ///
    /// # Errors
    /// The error number of mmap.
    pub(super) fn new() -> Result<Self, i32> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let bytes = WORDS * size_of::<u64>();
        // SAFETY: 1. Without an address the kernel takes addresses that nobody has.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(libc::ENOMEM);
        }
        // INVARIANT: the mapping is that of the call above; `drop` unmaps it.
        let words = NonNull::new(at.cast()).ok_or(libc::ENOMEM)?;
        Ok(Self { words })
    }

    /// The words.
    pub(super) fn words(&mut self) -> &mut [u64] {
        // SAFETY: by the invariant: 1. mapped, of this length; 2. the other process waits.
        unsafe { core::slice::from_raw_parts_mut(self.words.as_ptr(), WORDS) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let bytes = WORDS * size_of::<u64>();
        // SAFETY: by the invariant: 1. the mapping is ours.
        let _unmapped = unsafe { libc::munmap(self.words.as_ptr().cast(), bytes) };
    }
}
