//! The system calls the programs use, by their Linux numbers and registers.

use core::arch::asm;
use core::fmt;

const WRITE: u64 = 1;
const MMAP: u64 = 9;
const MPROTECT: u64 = 10;
const MUNMAP: u64 = 11;
const SCHED_YIELD: u64 = 24;
const MREMAP: u64 = 25;
const MADVISE: u64 = 28;
const GETPPID: u64 = 110;
const FUTEX: u64 = 202;
const CLOCK_GETTIME: u64 = 228;
const EXIT: u64 = 60;
const EXIT_GROUP: u64 = 231;
const GETCPU: u64 = 309;

const STDOUT: u64 = 1;
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const CLOCK_MONOTONIC: u64 = 1;
const MAP_PRIVATE_ANONYMOUS: u64 = 0x02 | 0x20;
const MAP_FIXED: u64 = 0x10;
const MAP_HUGETLB: u64 = 0x4_0000;
const MAP_STACK: u64 = 0x2_0000;
const MREMAP_MAYMOVE_FIXED: u64 = 1 | 2;
/// Values from here up are negated error numbers.
const FIRST_ERROR: u64 = 4095_u64.wrapping_neg();

/// A kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Of 4 KiB.
    Base,
    /// Of 2 MiB, from those that were set aside.
    Huge,
}

impl Pages {
    const fn bits(self) -> u64 {
        match self {
            Self::Base => 0,
            Self::Huge => MAP_HUGETLB,
        }
    }
}

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u64);

impl Errno {
    /// The address is not accessible in the way asked for.
    pub const EFAULT: Self = Self(14);
    /// No memory, or an address range that is not mapped.
    pub const ENOMEM: Self = Self(12);
    /// An argument makes no sense.
    pub const EINVAL: Self = Self(22);
    /// A word had another value, or nothing is there yet.
    pub const EAGAIN: Self = Self(11);
    /// A signal came first.
    pub const EINTR: Self = Self(4);
    /// The kernel has no such call.
    pub const ENOSYS: Self = Self(38);

    /// The error in what a call returned, if it is one.
    pub const fn of(result: u64) -> Option<Self> {
        if result >= FIRST_ERROR {
            return Some(Self(result.wrapping_neg()));
        }
        None
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", self.0)
    }
}

/// What a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prot {
    /// `PROT_NONE`.
    None,
    /// `PROT_READ`.
    Read,
    /// `PROT_READ | PROT_WRITE`.
    ReadWrite,
    /// `PROT_READ | PROT_EXEC`.
    ReadExecute,
}

impl Prot {
    const fn bits(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Read => 1,
            Self::ReadWrite => 3,
            Self::ReadExecute => 5,
        }
    }
}

/// What `madvise` may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_DONTNEED`: the contents may go, and anonymous pages read as zero afterwards.
    DontNeed,
    /// `MADV_PAGEOUT`: the contents are not needed for long, and are swapped out where there is
    /// something to swap to.
    PageOut,
}

/// The system calls.
#[derive(Clone, Copy, Debug)]
pub struct Sys;

impl Sys {
    /// `write(1, bytes)`.
    pub fn write(bytes: &[u8]) -> Result<usize, Errno> {
        Self::write_at(
            bytes.as_ptr().expose_provenance() as u64,
            bytes.len() as u64,
        )
    }

    /// `write(1, addr, len)` for an address that may be bad: the kernel reads it, not we.
    pub fn write_at(addr: u64, len: u64) -> Result<usize, Errno> {
        // SAFETY: (1) `write` changes no memory.
        let done = unsafe { call(WRITE, [STDOUT, addr, len, 0, 0, 0]) };
        done.map(|written| written as usize)
    }

    /// Maps `len` bytes of private anonymous memory somewhere.
    pub fn mmap(len: u64, prot: Prot) -> Result<u64, Errno> {
        Self::mmap_of(Pages::Base, len, prot)
    }

    /// The same for the stack of a thread.
    pub fn mmap_stack(len: u64) -> Result<u64, Errno> {
        let flags = MAP_PRIVATE_ANONYMOUS | MAP_STACK;
        // SAFETY: (1) without MAP_FIXED a mapping replaces nothing.
        unsafe { call(MMAP, [0, len, Prot::ReadWrite.bits(), flags, u64::MAX, 0]) }
    }

    /// The same with pages of a kind.
    pub fn mmap_of(of: Pages, len: u64, prot: Prot) -> Result<u64, Errno> {
        let flags = MAP_PRIVATE_ANONYMOUS | of.bits();
        // SAFETY: (1) without MAP_FIXED a mapping replaces nothing.
        unsafe { call(MMAP, [0, len, prot.bits(), flags, u64::MAX, 0]) }
    }

    /// Changes what a range allows.
    ///
    /// # Safety
    /// 1. No object of the program lives in the range unless it is used as `prot` allows.
    pub unsafe fn mprotect(addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        // SAFETY: (1) the caller's promise.
        unsafe { call(MPROTECT, [addr, len, prot.bits(), 0, 0, 0]) }.map(|_| ())
    }

    /// Maps `len` bytes of private anonymous memory at `addr`, in place of what is there.
    ///
    /// # Safety
    /// 1. No object of the program lives in the range.
    pub unsafe fn mmap_fixed(addr: u64, len: u64, prot: Prot, of: Pages) -> Result<u64, Errno> {
        let flags = MAP_PRIVATE_ANONYMOUS | MAP_FIXED | of.bits();
        // SAFETY: (1) the caller's promise.
        unsafe { call(MMAP, [addr, len, prot.bits(), flags, u64::MAX, 0]) }
    }

    /// Moves a range to `to`, in place of what is there.
    ///
    /// # Safety
    /// 1. No object of the program lives in either range.
    pub unsafe fn mremap_to(addr: u64, len: u64, to: u64) -> Result<u64, Errno> {
        // SAFETY: (1) the caller's promise.
        unsafe { call(MREMAP, [addr, len, len, MREMAP_MAYMOVE_FIXED, to, 0]) }
    }

    /// Lets other threads have this one's CPU first.
    pub fn sched_yield() -> Result<(), Errno> {
        // SAFETY: (1) it changes no memory.
        unsafe { call(SCHED_YIELD, [0; 6]) }.map(|_| ())
    }

    /// Unmaps a range.
    ///
    /// # Safety
    /// 1. No object of the program lives in the range.
    pub unsafe fn munmap(addr: u64, len: u64) -> Result<(), Errno> {
        // SAFETY: (1) the caller's promise.
        unsafe { call(MUNMAP, [addr, len, 0, 0, 0, 0]) }.map(|_| ())
    }

    /// Advises about a range.
    ///
    /// # Safety
    /// 1. No object of the program lives in the range, if the advice discards contents.
    pub unsafe fn madvise(addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let advice = match advice {
            Advice::DontNeed => 4,
            Advice::PageOut => 21,
        };
        // SAFETY: (1) the caller's promise.
        unsafe { call(MADVISE, [addr, len, advice, 0, 0, 0]) }.map(|_| ())
    }

    /// `getcpu`: the kernel stores four bytes at `addr`, which may be bad.
    ///
    /// # Safety
    /// 1. No object of the program lives in those four bytes.
    pub unsafe fn getcpu_at(addr: u64) -> Result<(), Errno> {
        // SAFETY: (1) the caller's promise.
        unsafe { call(GETCPU, [addr, 0, 0, 0, 0, 0]) }.map(|_| ())
    }

    /// `getppid`.
    pub fn getppid() -> Result<u64, Errno> {
        // SAFETY: (1) `getppid` changes no memory.
        unsafe { call(GETPPID, [0; 6]) }
    }

    /// Nanoseconds of the monotonic clock.
    pub fn now_ns() -> Result<u64, Errno> {
        let mut time = [0_u64; 2];
        let at = (&raw mut time).expose_provenance() as u64;
        // SAFETY: (1) the kernel stores seconds and nanoseconds into `time`, which is exposed.
        unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, at, 0, 0, 0, 0]) }?;
        // SAFETY: (1) `time` lives, and is read once the kernel has stored it.
        let [seconds, nanoseconds] = unsafe { (&raw const time).read_volatile() };
        Ok(seconds * 1_000_000_000 + nanoseconds)
    }

    /// Sleeps while the 32-bit word at `addr` is `value`, until [`Sys::futex_wake`].
    pub fn futex_wait(addr: u64, value: u32) -> Result<(), Errno> {
        let args = [addr, FUTEX_WAIT, u64::from(value), 0, 0, 0];
        // SAFETY: (1) the kernel only reads the word.
        unsafe { call(FUTEX, args) }.map(|_| ())
    }

    /// Wakes up to `count` threads that sleep on the word at `addr`; returns how many.
    pub fn futex_wake(addr: u64, count: u32) -> Result<u64, Errno> {
        let args = [addr, FUTEX_WAKE, u64::from(count), 0, 0, 0];
        // SAFETY: (1) the call changes no memory.
        unsafe { call(FUTEX, args) }
    }

    /// Ends the calling thread only.
    pub fn exit_thread() -> ! {
        loop {
            // SAFETY: (1) the thread ends; its stack is freed by the thread that joins it.
            let _ = unsafe { call(EXIT, [0; 6]) };
        }
    }

    /// Ends the program.
    pub fn exit(status: i32) -> ! {
        loop {
            // SAFETY: (1) the program ends; the result of a call that does not return is unused.
            let _ = unsafe { call(EXIT_GROUP, [status as u64, 0, 0, 0, 0, 0]) };
        }
    }
}

/// One system call.
///
/// # Safety
/// 1. What the call does to the program's memory breaks no object the program still uses.
pub(crate) unsafe fn call(number: u64, args: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: (1) the caller's promise.
    let result = unsafe { raw(number, args) };
    match Errno::of(result) {
        Some(error) => Err(error),
        None => Ok(result),
    }
}

/// The same; what the kernel returns.
///
/// # Safety
/// 1. As [`call`].
pub(crate) unsafe fn raw(number: u64, args: [u64; 6]) -> u64 {
    let result: u64;
    // SAFETY: (1) the caller's promise; (2) the kernel keeps all registers but rax, rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
