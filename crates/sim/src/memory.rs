//! Sparse, zeroed memory of the host, mapped without reservation.
//!
//! A simulated machine may have terabytes; the host pays for what is touched.

use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use std::io;

/// Zeroed bytes at an aligned address; unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    mapped: NonNull<c_void>,
    mapped_bytes: usize,
}

// SAFETY: a mapping is plain memory; who may touch which byte is up to its owner.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes, aligned to `align`, a power of two.
    pub(crate) fn new(bytes: usize, align: usize) -> io::Result<Self> {
        let mapped_bytes = bytes
            .checked_add(align)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping replaces nothing.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), mapped_bytes, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(mapped) = NonNull::new(at) else {
            return Err(io::Error::other("the host mapped page 0"));
        };
        let first = mapped.cast::<u8>();
        let skip = first.align_offset(align);
        // SAFETY: `skip` < `align`, and `align` bytes more than asked for are mapped.
        let base = unsafe { first.add(skip) };
        Ok(Self {
            base,
            bytes,
            mapped,
            mapped_bytes,
        })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of byte `offset`.
    ///
    /// # Panics
    /// If there is no such byte.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(
            offset < self.bytes,
            "offset {offset:#x} of {:#x} bytes",
            self.bytes
        );
        // SAFETY: the byte lies within the mapping.
        unsafe { self.base.add(offset) }.as_ptr()
    }

    /// Zeroes `[from, from + len)` by writing, for short ranges that are used again soon.
    ///
    /// # Safety
    /// 1. Nobody holds a reference into the range.
    pub(crate) unsafe fn zero(&self, from: usize, len: usize) {
        if len == 0 {
            return;
        }
        assert!(len <= self.bytes - from, "a range within the mapping");
        // SAFETY: within the mapping; 1 of this function.
        unsafe { self.at(from).write_bytes(0, len) };
    }

    /// Zeroes everything by giving it back to the host.
    ///
    /// # Safety
    /// 1. Nobody holds a reference into the mapping.
    pub(crate) unsafe fn discard(&self) {
        // SAFETY: the mapping is ours, private and anonymous, so its pages read as zero afterwards;
        // 1 of this function.
        let done =
            unsafe { libc::madvise(self.mapped.as_ptr(), self.mapped_bytes, libc::MADV_DONTNEED) };
        assert_eq!(
            done,
            0,
            "madvise on our own mapping: {}",
            io::Error::last_os_error()
        );
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any longer.
        let done = unsafe { libc::munmap(self.mapped.as_ptr(), self.mapped_bytes) };
        debug_assert_eq!(done, 0);
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.bytes)
    }
}
