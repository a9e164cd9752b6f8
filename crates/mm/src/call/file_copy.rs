//! read and write between a file and memory whose access may fault.
//!
//! # Problem
//! A program reads a file into a buffer that may be absent, or a mapping of the very page that is
//! read. The fault of such a copy takes `mmap_lock`, folio locks, and reclaims: with the folio
//! locked, or any lock that comes after `mmap_lock`, it would deadlock.
//!
//! # Idea
//! The embedding kernel copies, by a function of its own, a page at a time, while nothing is held
//! but a reference.
//! - Read: the copy is from the page of the cache itself ([`FrameBytes`]), which is not locked.
//! - Write: the copy is to a frame of the call's own, from which the file is then written, with its
//!   locks held and no fault possible.
//!
//! # Why it is correct
//! The reference keeps the frame from reuse, migration and reclaim. The size is looked at with the
//! page locked, before the copy; a truncation that comes later may be seen or not, as in Linux. A
//! write takes bytes that the copy delivered, so a fault in the middle leaves no bytes in the file
//! that the program did not write, and no longer file.
//!
//! # Cost
//! Read: as Linux. Write: one copy of each byte more, and a frame for the length of the call, for
//! which the kernel needs no copy that must not fault.
//!
//! Linux: mm/filemap.c filemap_read, generic_perform_write, which prefaults the buffer
//! (`fault_in_iov_iter_readable`) and then copies with page faults disabled and the folio locked
//! (`copy_folio_from_iter_atomic`), again and again until that succeeds.

use crate::base::bytes;
use crate::base::config::NegativeControl;
use crate::base::error::FileError;
use crate::call::file::in_page;
use crate::call::kernel_pages::Gfp;
use crate::pages::file::{FileHandle, Part};
use core::fmt;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::lockdep;

/// Bytes of a file in one frame, to be read: others may store to them meanwhile.
pub struct FrameBytes<'f, M: Mmu> {
    at: &'f M::Instance,
    pfn: Pfn,
    offset: u64,
    len: usize,
}

impl<M: Mmu> FrameBytes<'_, M> {
    /// How many: 1 and up.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Where the kernel reaches the first; the others follow. For loads that may race with stores.
    /// Valid until the copy function returns. Not on machines whose user frames keep one word
    /// ([`Mmu::ONE_WORD`]).
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        let frame = M::frame_ptr(self.at, self.pfn).cast_const();
        frame.wrapping_add(self.offset as usize)
    }

    /// Copies the first `to.len()` bytes.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "{} of {} bytes", to.len(), self.len);
        M::read_bytes(self.at, self.pfn, self.offset, to);
    }
}

impl<M: Mmu> fmt::Debug for FrameBytes<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of frame {}", self.len, self.pfn)
    }
}

impl<M: Mmu> FileHandle<'_, M> {
    /// Reads up to `len` bytes from `offset` on, by calling `copy` with each page's part. `copy`
    /// returns how many of them it copied; if not all, it is not called again. Returns how many
    /// were copied in all: fewer than `len` where `copy` stopped or the file ends, 0 behind its
    /// end. Holes are zeros, and stay holes.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device. `copy` is called with nothing held, and may
    /// fault, also on a mapping of this file. It may see part of a concurrent write, or of a
    /// truncation.
    ///
    /// # Errors
    /// See [`FileError`], where not even the first byte can be read. `Invalid`: more than one word,
    /// on a machine whose user frames keep one ([`Mmu::ONE_WORD`]).
    ///
    /// Linux: filemap_read, copy_folio_to_iter.
    pub fn read_at_with(
        &self,
        offset: u64,
        len: usize,
        mut copy: impl FnMut(FrameBytes<'_, M>) -> usize,
    ) -> Result<usize, FileError> {
        if !bytes::can_copy::<M>(offset, len) {
            return Err(FileError::Invalid);
        }
        let cache = self.cache();
        let mut done = 0;
        while done < len {
            let Some(at) = offset.checked_add(done as u64) else {
                break;
            };
            let part = in_page::<M>(at, len - done);
            let found = match self.call(|| cache.part(at, part)) {
                Ok(Some(found)) => found,
                Err(error) if done == 0 => return Err(error),
                Ok(None) | Err(_) => break,
            };
            let copied = self.copy_part(found, &mut copy);
            done += copied;
            if copied < part {
                break;
            }
        }
        Ok(done)
    }

    /// Copies one page's part, which is not locked any more, but referred to.
    fn copy_part(
        &self,
        part: Part<'_, M>,
        copy: &mut impl FnMut(FrameBytes<'_, M>) -> usize,
    ) -> usize {
        let bytes = FrameBytes {
            at: &self.sys.at,
            pfn: part.pfn,
            offset: part.offset,
            len: part.len,
        };
        if self.sys.lacks(NegativeControl::CopiesLocked) {
            let _locked = part.page;
            return copy(bytes).min(part.len);
        }
        let _page = part.page.map(crate::pages::page::Locked::unlock);
        lockdep::holds_nothing::<M>();
        copy(bytes).min(part.len)
    }

    /// Writes up to `len` bytes from `offset` on, which `copy` delivers: it is called with a buffer
    /// for each page's part, and returns how many bytes of it it filled, from the first on; if not
    /// all, it is not called again. Returns how many were written. The file becomes long enough for
    /// them, and no longer.
    ///
    /// # Context
    /// Holds nothing. Sleeps, and waits for the device. `copy` is called with nothing held, and may
    /// fault, also on a mapping of this file. Other writes may come between two pages' parts:
    /// a caller that wants a write undivided excludes them, as Linux's `i_rwsem` does.
    ///
    /// # Errors
    /// See [`FileError`], where not even the first byte can be written; no memory for the buffer.
    /// `Invalid`: as for [`FileHandle::write_bytes_at`].
    ///
    /// Linux: generic_perform_write.
    pub fn write_at_with(
        &self,
        offset: u64,
        len: usize,
        mut copy: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<usize, FileError> {
        self.writable()?;
        if self.cache().is_huge() || !bytes::can_copy::<M>(offset, len) {
            return Err(FileError::Invalid);
        }
        if len == 0 {
            return Ok(0);
        }
        let mut buffer = self.sys.alloc_pages(0, Gfp::Kernel)?;
        let mut done = 0;
        while done < len {
            let Some(at) = offset.checked_add(done as u64) else {
                break;
            };
            let part = in_page::<M>(at, len - done);
            let room = &mut buffer.as_bytes_mut()[..part];
            lockdep::holds_nothing::<M>();
            let filled = copy(room).min(part);
            if filled == 0 {
                break;
            }
            let written = match self.write_bytes_at(at, &room[..filled]) {
                Ok(written) => written,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += written;
            if written < part {
                break;
            }
        }
        Ok(done)
    }
}
