//! Threads by raw `clone`, joined by the futex that the kernel wakes when one ends.
//!
//! A thread has a stack of its own, at whose end lies its control block:
//!
//! ```text
//! low   stack ... | entry, argument | itself (what FS points to), tid       end
//!                 ^ first stack pointer                ^ cleared and woken by the kernel
//! ```
#![expect(
    clippy::disallowed_types,
    reason = "threads of a program share memory by the CPU's atomics, without a machine of ours"
)]

use core::arch::naked_asm;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Errno, Sys};

/// Bytes of a stack, with the control block.
const STACK: u64 = 64 << 10;
/// Bytes of the control block.
const CONTROL: u64 = 64;
/// Where the thread's number stands in the control block.
const TID: u64 = 8;
/// The most threads of one call of [`together`].
const MOST: usize = 256;

/// `CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
/// CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID`: what pthreads use.
const FLAGS: u64 =
    0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x8_0000 | 0x10_0000 | 0x20_0000;

/// A thread that was started. One that is dropped goes on, and its stack stays mapped.
///
/// # Invariants
/// `stack` is the thread's stack, mapped by [`Thread::spawn`] and used by the thread alone.
#[derive(Debug)]
#[must_use = "a thread ends when it is joined, or with the program"]
pub struct Thread {
    stack: u64,
}

impl Thread {
    /// Starts a thread that calls `entry` with `argument`.
    ///
    /// # Errors
    /// Those of `mmap` and `clone`.
    pub fn spawn(entry: fn(u64), argument: u64) -> Result<Self, Errno> {
        // INVARIANT: fresh from the kernel.
        let thread = Self {
            stack: Sys::mmap_stack(STACK)?,
        };
        let control = thread.control();
        let first = control - 16;
        for (at, word) in [
            (first, entry as usize as u64),
            (first + 8, argument),
            (control, control),
        ] {
            let at = ptr::with_exposed_provenance_mut::<u64>(at as usize);
            // SAFETY: (1) within the fresh mapping, which is writable and aligned.
            unsafe { at.write(word) };
        }
        let tid = control + TID;
        // SAFETY: (1) the stack is fresh and holds what the thread begins with.
        let result = unsafe { clone(FLAGS, first, tid, tid, control) };
        match Errno::of(result) {
            None => Ok(thread),
            Some(error) => {
                thread.free()?;
                Err(error)
            }
        }
    }

    /// Waits until the thread has ended, and unmaps its stack.
    ///
    /// # Errors
    /// Those of `futex`, but that it need not wait, and of `munmap`.
    pub fn join(self) -> Result<(), Errno> {
        let at = self.control() + TID;
        let word = ptr::with_exposed_provenance_mut::<u32>(at as usize);
        // SAFETY: (1) an aligned word of the stack, which is mapped until `free` below; the thread
        // itself never touches it, and the kernel stores it whole.
        let word = unsafe { AtomicU32::from_ptr(word) };
        loop {
            // ORDERING: Acquire; no pair here: the kernel clears the word after the thread's end.
            match word.load(Ordering::Acquire) {
                0 => return self.free(),
                tid => match Sys::futex_wait(at, tid) {
                    Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }

    const fn control(&self) -> u64 {
        self.stack + STACK - CONTROL
    }

    /// Unmaps the stack of a thread that has ended, or was never started.
    fn free(self) -> Result<(), Errno> {
        // SAFETY: (1) by the invariant nobody but the thread used it.
        unsafe { Sys::munmap(self.stack, STACK) }
    }
}

/// Calls `work` with 0, 1, .. `count - 1`, each on a thread of its own, and waits for all.
///
/// # Errors
/// Of a thread that could not be started or joined: those that were started have ended.
///
/// # Panics
/// If there are more than 256 threads, or one cannot be joined: it may still use what `work`
/// borrows.
pub fn together<F: Fn(u64) + Sync>(count: usize, work: &F) -> Result<(), Errno> {
    struct Share<'a, F> {
        work: &'a F,
        next: AtomicU32,
    }
    fn entry<F: Fn(u64)>(share: u64) {
        let share = ptr::with_exposed_provenance::<Share<'_, F>>(share as usize);
        // SAFETY: (1) `together` keeps it until this thread was joined.
        let share = unsafe { &*share };
        // ORDERING: Relaxed: each gets another number, whichever.
        let index = share.next.fetch_add(1, Ordering::Relaxed);
        (share.work)(u64::from(index));
    }
    assert!(count <= MOST, "{count} threads, at most {MOST}");
    let share = Share {
        work,
        next: AtomicU32::new(0),
    };
    let at = (&raw const share).expose_provenance() as u64;
    let mut threads = [const { None }; MOST];
    let mut result = Ok(());
    for slot in &mut threads[..count] {
        match Thread::spawn(entry::<F>, at) {
            Ok(thread) => *slot = Some(thread),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    for thread in threads.into_iter().flatten() {
        if let Err(error) = thread.join() {
            panic!("a thread cannot be joined: {error:?}");
        }
    }
    result
}

/// A word that threads share, and may sleep on.
#[derive(Debug, Default)]
pub struct Word(AtomicU32);

impl Word {
    /// A word of this value.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// Loads it; what others did before they stored it is seen.
    #[must_use]
    pub fn load(&self) -> u32 {
        // ORDERING: Acquire; pairs with [guest-word].
        self.0.load(Ordering::Acquire)
    }

    /// Stores it.
    pub fn store(&self, value: u32) {
        // ORDERING: Release; pairs with [guest-word].
        self.0.store(value, Ordering::Release);
    }

    /// Adds to it; returns what it was.
    pub fn add(&self, value: u32) -> u32 {
        // ORDERING: AcqRel; pairs with [guest-word].
        self.0.fetch_add(value, Ordering::AcqRel)
    }

    /// Sleeps while it is `value`.
    ///
    /// # Errors
    /// Those of `futex`, but for a word that has changed.
    pub fn wait_while(&self, value: u32) -> Result<(), Errno> {
        while self.load() == value {
            match Sys::futex_wait(self.addr(), value) {
                Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Wakes up to `count` threads that sleep on it; returns how many.
    ///
    /// # Errors
    /// Those of `futex`.
    pub fn wake(&self, count: u32) -> Result<u64, Errno> {
        Sys::futex_wake(self.addr(), count)
    }

    fn addr(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}

/// A count that threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to it.
    pub fn add(&self, count: u64) {
        // ORDERING: Relaxed: a counter.
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What was added by threads that were joined, at least.
    #[must_use]
    pub fn sum(&self) -> u64 {
        // ORDERING: Relaxed: a counter; joining a thread orders what it did before.
        self.0.load(Ordering::Relaxed)
    }
}

/// `clone`: returns in the caller only. The new thread takes `entry` and `argument` from its stack.
///
/// # Safety
/// 1. `stack` is the first stack pointer in a fresh stack, a multiple of 16, with both words there;
///    `tid` and `tls` are in its control block.
#[unsafe(naked)]
unsafe extern "C" fn clone(flags: u64, stack: u64, tid: u64, cleared: u64, tls: u64) -> u64 {
    naked_asm!(
        "mov r10, rcx",
        "mov eax, 56",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "pop rdi",
        "pop rsi",
        "call {begin}",
        "ud2",
        begin = sym begin,
    )
}

/// Where a thread begins.
#[expect(
    improper_ctypes_definitions,
    reason = "only `clone` above calls it, and a pointer to a function is one register"
)]
extern "C" fn begin(entry: fn(u64), argument: u64) -> ! {
    entry(argument);
    Sys::exit_thread()
}
