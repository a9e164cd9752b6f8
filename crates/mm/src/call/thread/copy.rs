//! Copies to and from user memory in the context of its own thread.
//!
//! A copy is the user's accesses to the words that have the bytes: it faults pages in, makes copies
//! of shared ones, and ends before the first byte that the thread itself could not access.
//!
//! Linux: copy_from_user, copy_to_user.

use super::{Thread, WORD_SHIFT};
use crate::base::bytes;
use crate::base::error::Errno;
use crate::fault::Signal;
use core::fmt;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Access, Mmu, Paging};

/// A copy of bytes that ended before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyError {
    /// How many bytes were copied before: all up to the page that `why` is about.
    pub done: usize,
    /// Why no more were.
    pub why: CopyStop,
}

/// Why a copy of bytes ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyStop {
    /// The access to the next byte raises this.
    Signal(Signal),
    /// More than one word on a machine whose user frames keep one ([`Mmu::ONE_WORD`]): nothing is
    /// copied.
    OneWord,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes copied, then ", self.done)?;
        match self.why {
            CopyStop::Signal(signal) => signal.fmt(f),
            CopyStop::OneWord => f.write_str("user frames of this machine keep one word"),
        }
    }
}

impl core::error::Error for CopyError {}

impl From<CopyError> for Errno {
    fn from(error: CopyError) -> Self {
        match error.why {
            CopyStop::Signal(Signal::OutOfMemory) => Self::ENOMEM,
            CopyStop::Signal(_) => Self::EFAULT,
            CopyStop::OneWord => Self::EINVAL,
        }
    }
}

impl<M: Mmu> Thread<'_, M> {
    /// Loads `to.len()` bytes from `addr` on, which need not be aligned. Bytes of one word are
    /// loaded at once, bytes of different words one after the other.
    ///
    /// # Context
    /// As [`Thread::load`].
    ///
    /// # Errors
    /// See [`CopyError`]: what lies before the byte that could not be loaded is in `to`.
    pub fn load_bytes(&self, addr: VirtAddr, to: &mut [u8]) -> Result<(), CopyError> {
        let at = &self.mm.system().at;
        self.each_part(addr, to.len(), |word, from, part| {
            self.access(word, Access::Read, |pfn, offset| {
                M::read_bytes(at, pfn, offset + from, &mut to[part.clone()]);
            })
        })
    }

    /// Stores the bytes of `from` from `addr` on, which need not be aligned. Bytes of one word are
    /// stored at once, bytes of different words one after the other; the other bytes of a word
    /// stay, also where another thread stores to them.
    ///
    /// # Context
    /// As [`Thread::store`].
    ///
    /// # Errors
    /// See [`CopyError`]: what lies before the byte that could not be stored is stored.
    pub fn store_bytes(&self, addr: VirtAddr, from: &[u8]) -> Result<(), CopyError> {
        let at = &self.mm.system().at;
        self.each_part(addr, from.len(), |word, first, part| {
            self.access(word, Access::Write, |pfn, offset| {
                M::write_bytes(at, pfn, offset + first, &from[part.clone()]);
            })
        })
    }

    /// Calls `one` for each page's part of `len` bytes from `addr` on: with the address of its
    /// first word, where in that the part begins, and which of the `len` bytes it is.
    fn each_part(
        &self,
        addr: VirtAddr,
        len: usize,
        mut one: impl FnMut(VirtAddr, u64, core::ops::Range<usize>) -> Result<(), Signal>,
    ) -> Result<(), CopyError> {
        let mut done = 0;
        let stop = |done, why| Err(CopyError { done, why });
        if !bytes::can_copy::<M>(addr.0, len) {
            return stop(done, CopyStop::OneWord);
        }
        while done < len {
            // Nothing is mapped where addresses end.
            let Some(at) = addr.0.checked_add(done as u64).map(VirtAddr) else {
                return stop(done, CopyStop::Signal(Signal::MapErr));
            };
            let in_page = M::Paging::page() - at.page_offset(M::Paging::shift());
            let part = done..done + (len - done).min(in_page as usize);
            let word = at.align_down(WORD_SHIFT);
            let end = part.end;
            if let Err(signal) = one(word, at.0 - word.0, part) {
                return stop(done, CopyStop::Signal(signal));
            }
            done = end;
        }
        Ok(())
    }
}
