//! Memory calls, and user memory by its address.
//!
//! Functions that take an address rely on the contract of
//! [`LinuxWorker`](super::super::LinuxWorker), numbered there.

use super::{last_errno, zero_or_errno};
use crate::target::{Pages, Populate, Prot, Sharing};
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Words shared with the children forked while it lives, zero at first.
///
/// # Invariants
/// `[start, start + words)` is a shared mapping of ours, readable and writable, as long as `self`
/// lives.
#[derive(Debug)]
pub(in crate::linux) struct SharedWords {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: 1. All it gives out is `&[AtomicU64]`, which threads may share.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps so many words.
    ///
    /// # Errors
    /// The error number of `mmap`.
    pub(in crate::linux) fn new(words: usize) -> Result<Self, i32> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let at = anonymous(words * size_of::<AtomicU64>(), Prot::ReadWrite, flags)?;
        let start = NonNull::new(ptr::with_exposed_provenance_mut(at)).ok_or(libc::ENOMEM)?;
        // INVARIANT: the mapping is that of the call above, and only `drop` unmaps it.
        Ok(Self { start, words })
    }

    /// The words.
    pub(in crate::linux) fn all(&self) -> &[AtomicU64] {
        // SAFETY: by the invariant: 1. mapped, of this length, while `self` is borrowed; 2. a page
        // is aligned for words; 3. any bytes are an AtomicU64; 4. nobody has another way to them.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: by the invariant: 1. the mapping is ours; 2. no borrow of it outlives `self`.
        let returned = unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert_eq!(returned, 0, "a mapping of ours can be unmapped");
    }
}

/// Bytes of a page.
pub(in crate::linux) fn page_size() -> u64 {
    // SAFETY: 1. The call takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Maps private anonymous memory where the kernel likes.
pub(in crate::linux) fn map(len: u64, prot: Prot) -> Result<u64, i32> {
    anonymous(size(len)?, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).map(|at| at as u64)
}

/// Maps private anonymous memory where the kernel likes, for loads and stores.
pub(in crate::linux) fn map_private(
    len: u64,
    pages: Pages,
    populate: Populate,
) -> Result<u64, i32> {
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if pages == Pages::Huge {
        flags |= libc::MAP_HUGETLB;
    }
    if populate == Populate::Now {
        flags |= libc::MAP_POPULATE;
    }
    anonymous(size(len)?, Prot::ReadWrite, flags).map(|at| at as u64)
}

/// A file of so many bytes that has no name, in memory.
pub(in crate::linux) fn file(len: u64) -> Result<OwnedFd, i32> {
    memory_file(len, 0)
}

/// The same of huge pages.
pub(in crate::linux) fn huge_file(len: u64) -> Result<OwnedFd, i32> {
    memory_file(len, libc::MFD_HUGETLB)
}

fn memory_file(len: u64, flags: libc::c_uint) -> Result<OwnedFd, i32> {
    let len = libc::off_t::try_from(len).map_err(|_| libc::EFBIG)?;
    // SAFETY: 1. The name is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(c"minflt".as_ptr(), libc::MFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: 1. The call above opened it for us alone.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: 1. The call takes no pointer.
    let returned = unsafe { libc::ftruncate(fd, len) };
    zero_or_errno(returned).map(|()| file)
}

/// Maps `len` bytes of `file` where the kernel likes.
pub(in crate::linux) fn map_file(
    file: &OwnedFd,
    len: u64,
    prot: Prot,
    sharing: Sharing,
) -> Result<u64, i32> {
    let flags = match sharing {
        Sharing::Private => libc::MAP_PRIVATE,
        Sharing::Shared => libc::MAP_SHARED,
    };
    let at = mmap(size(len)?, prot, flags, file.as_raw_fd())?;
    Ok(at as u64)
}

/// Asks the kernel to drop the pages of `file` from its page cache; what is not written out stays.
pub(in crate::linux) fn forget(file: &OwnedFd) -> Result<(), i32> {
    // SAFETY: 1. The call takes no pointer.
    let errno = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if errno == 0 { Ok(()) } else { Err(errno) }
}

/// Moves the break to `at`, where it can be, and returns where it is; 0 asks.
pub(in crate::linux) fn brk(at: u64) -> u64 {
    // SAFETY: 1. By the contract's 4 nothing that Rust code refers to lies between the break that
    // the worker found and any that it asks for.
    let at: libc::c_long = unsafe { libc::syscall(libc::SYS_brk, at) };
    at as u64
}

fn anonymous(len: usize, prot: Prot, flags: libc::c_int) -> Result<usize, i32> {
    mmap(len, prot, flags, -1)
}

fn mmap(len: usize, prot: Prot, flags: libc::c_int, fd: libc::c_int) -> Result<usize, i32> {
    // SAFETY: 1. Without an address and MAP_FIXED the kernel takes addresses that nobody has.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, bits(prot), flags, fd, 0) };
    if at == libc::MAP_FAILED {
        Err(last_errno())
    } else {
        Ok(at.expose_provenance())
    }
}

/// Unmaps `[at, at + len)`.
pub(in crate::linux) fn unmap(at: u64, len: u64) -> Result<(), i32> {
    let len = size(len)?;
    // SAFETY: 1. By the contract's 1 and 3, the range holds nothing that Rust code refers to.
    let returned = unsafe { libc::munmap(address(at).cast(), len) };
    zero_or_errno(returned)
}

/// Changes the protection of `[at, at + len)`.
pub(in crate::linux) fn protect(at: u64, len: u64, prot: Prot) -> Result<(), i32> {
    let len = size(len)?;
    // SAFETY: 1. By the contract's 1 and 3, the range holds nothing that Rust code refers to.
    let returned = unsafe { libc::mprotect(address(at).cast(), len, bits(prot)) };
    zero_or_errno(returned)
}

/// Throws the pages of `[at, at + len)` away.
pub(in crate::linux) fn discard(at: u64, len: u64) -> Result<(), i32> {
    let len = size(len)?;
    // SAFETY: 1. By the contract's 1 and 3, the range holds nothing that Rust code refers to.
    let returned = unsafe { libc::madvise(address(at).cast(), len, libc::MADV_DONTNEED) };
    zero_or_errno(returned)
}

/// Pages that only this process maps. Linux: include/uapi/linux/mempolicy.h; `libc` lacks it.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// Moves a page to a memory node; false if it is busy.
///
/// # Errors
/// The error number of `move_pages`, or what it says of the page.
pub(in crate::linux) fn move_page(at: u64, node: u32) -> Result<bool, i32> {
    let pages = [address(at)];
    let nodes = [node.cast_signed()];
    let mut status = [0];
    // SAFETY: 1. The three arrays have one element each, as is said, and outlive the call; of the
    // page itself only the frame changes.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1_u64,
            pages.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    match (returned, status[0]) {
        (..0, _) => Err(last_errno()),
        (_, 0..) => Ok(true),
        (_, status) if status == -libc::EBUSY => Ok(false),
        (_, status) => Err(-status),
    }
}

/// Stores a word.
#[inline]
pub(in crate::linux) fn store(at: u64, value: u64) {
    // SAFETY: 1. By the contract's 1 the address is of a mapping of the body's own, or the access
    // raises a signal; 2. by its 2 it is aligned. Volatile: it happens, once.
    unsafe { address(at).write_volatile(value) };
}

/// Loads a word.
#[inline]
pub(in crate::linux) fn load(at: u64) -> u64 {
    // SAFETY: as for `store`: 1. the contract's 1; 2. its 2.
    unsafe { address(at).read_volatile() }
}

/// A pointer to an address that came from [`map`], where its provenance was exposed, or from the
/// kernel by way of [`brk`].
#[inline]
fn address(at: u64) -> *mut u64 {
    ptr::with_exposed_provenance_mut(at as usize)
}

fn size(len: u64) -> Result<usize, i32> {
    usize::try_from(len).map_err(|_| libc::ENOMEM)
}

fn bits(prot: Prot) -> libc::c_int {
    match prot {
        Prot::None => libc::PROT_NONE,
        Prot::Read => libc::PROT_READ,
        Prot::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    }
}
