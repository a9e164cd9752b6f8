//! The instance's memory: one region of the process, aligned as large pages need it.

use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use std::io;

/// What the base is aligned to: the largest page that machines of today map at once in user memory.
const ALIGN: usize = 2 << 20;

/// Memory behind the region, so that a page that starts in it lies in memory: whoever checks an
/// address need not know how long a page is.
pub(crate) const BEHIND: usize = 64 << 10;

/// When the operating system finds memory for the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefault {
    /// At the first touch of each page: cheap to start with, and noise in measurements.
    OnTouch,
    /// Before the machine starts.
    Now,
}

/// Why a machine's memory cannot be had.
#[derive(Debug)]
pub enum RamError {
    /// No bytes were asked for, or more than the process can address.
    Size(usize),
    /// The host has less memory available than prefaulting needs.
    Short {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes that the host could give now.
        available: usize,
    },
    /// The host refused.
    Refused {
        /// Bytes asked for.
        wanted: usize,
        /// The host's words.
        error: io::Error,
    },
}

impl fmt::Display for RamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes) => write!(f, "invalid RAM size: {bytes} bytes"),
            Self::Short { wanted, available } => write!(
                f,
                "RAM of {} MiB exceeds this host's available memory, {} MiB",
                wanted >> 20,
                available >> 20
            ),
            Self::Refused { wanted, error } => {
                write!(
                    f,
                    "cannot map {} MiB for the machine's RAM: {error}",
                    wanted >> 20
                )
            }
        }
    }
}

impl core::error::Error for RamError {}

/// A mapped region.
///
/// # Invariants
/// `map` and `map_bytes` are one live private mapping that belongs to the region alone; `base` and
/// `bytes` lie within it, `base` aligned to [`ALIGN`], with [`BEHIND`] more bytes after them.
#[derive(Debug)]
pub(crate) struct Region {
    map: NonNull<u8>,
    map_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the region is memory without an owner thread; who may touch which bytes is decided above.
unsafe impl Send for Region {}
// SAFETY: as above; the region's own methods only hand out the address.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` bytes of zeros.
    pub(crate) fn map(bytes: usize, prefault: Prefault) -> Result<Self, RamError> {
        let map_bytes = bytes.checked_add(ALIGN + BEHIND).filter(|_| bytes > 0);
        let map_bytes = map_bytes.ok_or(RamError::Size(bytes))?;
        if prefault == Prefault::Now
            && let Some(available) = available()
            && available < bytes
        {
            return Err(RamError::Short {
                wanted: bytes,
                available,
            });
        }
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: a new anonymous mapping, wherever the host likes, overlaps nothing.
        let map = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                map_bytes,
                prot,
                flags | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let refused = || RamError::Refused {
            wanted: bytes,
            error: io::Error::last_os_error(),
        };
        if map == libc::MAP_FAILED {
            return Err(refused());
        }
        let map = NonNull::new(map.cast::<u8>()).ok_or_else(refused)?;
        let skip = map.align_offset(ALIGN);
        // SAFETY: `skip < ALIGN`, and the mapping is longer than `bytes` by more than that.
        let base = unsafe { map.add(skip) };
        // INVARIANT: just mapped, and aligned by `skip`.
        let region = Self {
            map,
            map_bytes,
            base,
            bytes,
        };
        if prefault == Prefault::Now {
            region.populate()?;
        }
        Ok(region)
    }

    /// The first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn populate(&self) -> Result<(), RamError> {
        // A fork of this process (the target of real system calls makes them) need not copy it.
        // SAFETY: the region is a live mapping of ours, and the advice does not change contents.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_DONTFORK) };
        // Large pages keep the host's own misses out of the figures; it may say no.
        // SAFETY: the region is a live mapping of ours, and the advice does not change contents.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
        // SAFETY: as above.
        let result = unsafe {
            libc::madvise(
                self.base.as_ptr().cast(),
                self.bytes,
                libc::MADV_POPULATE_WRITE,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(RamError::Refused {
                wanted: self.bytes,
                error,
            });
        }
        // Before Linux 5.14: by hand.
        for at in (0..self.bytes).step_by(4096) {
            // SAFETY: `at` is within the region.
            let page = unsafe { self.base.add(at) };
            // SAFETY: within the region, which nobody else uses yet; the byte was zero.
            unsafe { page.write_volatile(0) };
        }
        Ok(())
    }
}

impl Region {
    /// Takes the bytes of a range away: an access to them ends the process from now on.
    ///
    /// # Panics
    /// If they are not whole pages of the region, or the host refuses.
    pub(crate) fn make_hole(&self, range: &Range<u64>) {
        let page = |at: u64| at.is_multiple_of(4096);
        let inside = range.start < range.end && range.end <= self.bytes as u64;
        assert!(
            inside && page(range.start) && page(range.end),
            "{range:?} is no hole"
        );
        // SAFETY: within the region, as checked.
        let at = unsafe { self.base.add(range.start as usize) };
        let len = (range.end - range.start) as usize;
        // SAFETY: whole pages of a live mapping of ours; that nothing may touch them is the point.
        let result = unsafe { libc::mprotect(at.as_ptr().cast(), len, libc::PROT_NONE) };
        assert_eq!(
            result,
            0,
            "the host refuses: {}",
            io::Error::last_os_error()
        );
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the mapping is ours, and whoever drops the region has
        // no use for it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}

/// Bytes that the host could give without swapping; `None` where it does not say.
fn available() -> Option<usize> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = kib.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let host = kib << 10;
    let cgroup = |file: &str| -> Option<usize> {
        std::fs::read_to_string(format!("/sys/fs/cgroup/{file}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let left = cgroup("memory.max").zip(cgroup("memory.current"));
    Some(left.map_or(host, |(max, current)| host.min(max.saturating_sub(current))))
}

#[cfg(test)]
mod tests {
    use super::{Prefault, RamError, Region};

    #[test]
    fn a_region_is_aligned_zero_and_writable() {
        for prefault in [Prefault::OnTouch, Prefault::Now] {
            let region = Region::map(3 << 20, prefault).unwrap();
            assert_eq!(region.base() as usize % (2 << 20), 0);
            // SAFETY: the last byte of a region that nobody else knows.
            let last = unsafe { region.base().add(region.bytes() - 1) };
            // SAFETY: as above.
            assert_eq!(unsafe { last.read() }, 0);
            // SAFETY: as above.
            unsafe { last.write(7) };
        }
    }

    #[test]
    fn too_much_is_an_error_in_words() {
        let error = Region::map(1 << 50, Prefault::Now).unwrap_err();
        assert!(matches!(error, RamError::Short { .. }));
        assert!(error.to_string().contains("1073741824 MiB"), "{error}");
        let error = Region::map(1 << 60, Prefault::OnTouch).unwrap_err();
        assert!(matches!(error, RamError::Refused { .. }), "{error}");
        assert!(matches!(
            Region::map(0, Prefault::OnTouch),
            Err(RamError::Size(0))
        ));
    }
}
