//! The seam, implemented: words are the processor's own, waits spin and then yield.

use crate::context::{HostCx, with_current};
use crate::instance::{HostInstance, violation};
use crate::ram::BEHIND;
use core::fmt;
use core::marker::PhantomData;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::bytes::{read_by_words, whole_words, write_by_words};
use minflt_pgtable::{Mmu, Paging, SpaceId, Tlb};
use minflt_sync::prim::AtomicU64;
use minflt_sync::{CpuMask, Cx, Irq, Job, Machine, Ordering, TaskId, Word};

/// How often a waiter looks before it lets another thread run. With more threads than processors
/// the thread it waits for may need this one.
const LOOKS: u32 = 200;

/// How long who polls lets others run: a thread that was descheduled comes back after some of it.
const PASS: core::time::Duration = core::time::Duration::from_micros(50);

/// The machine of real threads with page tables of format `P`; lock order, contexts and oracles
/// are checked where `CHECKED`.
///
/// A violation is printed, marks the instance failed and panics: threads of a host unwind. Other
/// threads of the instance panic, too, as soon as they would wait.
#[derive(Clone, Copy, Debug)]
pub struct Host<P, const CHECKED: bool> {
    paging: PhantomData<fn() -> P>,
}

// SAFETY: 1: contexts lie in the instance and belong to a CPU; a thread keeps its own until it
// leaves. 2: the default word operations are the core operations. 3: `context` asks the instance of
// the caller. 4: a thread is one CPU until it leaves that; a job there runs on a thread that has
// entered it.
unsafe impl<P: Paging, const CHECKED: bool> Machine for Host<P, CHECKED> {
    type Instance = HostInstance;
    const CHECKED: bool = CHECKED;

    const PREFETCHES: bool = true;

    /// A thread keeps its CPU as long as it is one, and serves interrupts only where it looks for
    /// them.
    #[inline(always)]
    fn add_local<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        Self::before(
            core::ptr::from_ref(p).cast(),
            size_of::<W>(),
            minflt_sync::Kind::Rmw,
        );
        let old = W::load(p, Ordering::Relaxed).wide();
        W::store(p, W::narrow(old.wrapping_add(value.wide())), order);
    }

    #[inline(always)]
    fn prefetch(at: *const u8, len: usize) {
        prefetch(at, len);
    }

    #[inline(always)]
    fn prefetch_write(at: *const u8) {
        prefetch_write(at);
    }

    #[inline(always)]
    fn cx() -> *const Cx {
        with_current(|here| core::ptr::from_ref(&here.cx))
    }

    fn context(task: TaskId) -> *const Cx {
        with_current(
            |here| match here.instance().and_then(|at| at.context(task)) {
                Some(found) => core::ptr::from_ref(&found.cx),
                None => panic!("{task:?} is asked for by a thread that is no CPU beside it"),
            },
        )
    }

    #[cold]
    #[inline(never)]
    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
        with_current(|here| {
            for _ in 0..LOOKS {
                if W::load(p, Ordering::Relaxed).wide() & mask.wide() == eq.wide() {
                    return;
                }
                here.poll();
                spin();
            }
            match here.instance() {
                Some(instance) => instance.stop_if_failed(),
                None if CHECKED => panic!("set-up code waits, and nobody runs beside it"),
                None => {}
            }
            std::thread::yield_now();
        });
    }

    fn await_cpus(at: &HostInstance, of: &CpuMask, done: impl Fn() -> bool, wait: impl Fn()) {
        at.await_cpus(of, done, wait);
    }

    fn pass() {
        with_current(|here| here.poll());
        std::thread::sleep(PASS);
    }

    fn park() {
        minflt_sync::lockdep::might_sleep::<Self>();
        with_current(HostCx::park);
    }

    fn park_until(until_ns: u64) {
        minflt_sync::lockdep::might_sleep::<Self>();
        with_current(|here| here.park_until(until_ns));
    }

    fn unpark(task: TaskId) {
        with_current(
            |here| match here.instance().and_then(|at| at.context(task)) {
                Some(sleeper) => sleeper.unpark(),
                None => panic!("{task:?} is woken by a thread that is no CPU beside it"),
            },
        );
    }

    fn is_running(task: TaskId) -> bool {
        with_current(|here| {
            let context = here.instance().and_then(|at| at.context(task));
            context.is_some_and(|it| it.is_entered() && !it.is_asleep())
        })
    }

    fn is_idle() -> bool {
        with_current(HostCx::is_idle)
    }

    fn clock_ns() -> Option<u64> {
        with_current(|here| here.instance().map(|at| at.now_ns()))
    }

    #[inline(always)]
    fn irq_save() -> Irq {
        with_current(|here| {
            let off = here.cx.irq_off.get();
            here.cx.irq_off.set(off + 1);
            Irq { were_on: off == 0 }
        })
    }

    #[inline(always)]
    fn irq_restore(irq: Irq) {
        with_current(|here| {
            let off = here.cx.irq_off.get().wrapping_sub(1);
            if CHECKED && irq.were_on != (off == 0) {
                violation(format_args!("interrupts were enabled out of nesting order"));
            }
            here.cx.irq_off.set(off);
            if off == 0 {
                here.poll();
            }
        });
    }

    fn send_ipi(at: &HostInstance, to: &CpuMask) {
        for (cpu, context) in (0..).zip(&at.shared().contexts) {
            if to.contains(cpu) {
                context.interrupt();
            }
        }
        // The sender itself may have been among them.
        with_current(|here| here.poll());
    }

    unsafe fn on_a_cpu(at: &HostInstance, job: Job) {
        // SAFETY: 1: 1 of this function.
        unsafe { at.give_job(job) };
    }

    fn run_jobs(at: &HostInstance) -> u64 {
        at.run_jobs()
    }

    #[inline(always)]
    fn enter_kernel() {
        with_current(|here| here.poll());
    }

    fn violation(text: fmt::Arguments<'_>) -> ! {
        violation(text)
    }
}

// SAFETY: 1: the region stays as long as the instance, starts as zeros, and its base is aligned to
// 2 MiB. 2: the buffer of the caller's CPU is searched before the return. 3: `frame` checks the
// bounds, and each verb stays within one frame.
unsafe impl<P: Paging, const CHECKED: bool> Mmu for Host<P, CHECKED> {
    type Paging = P;

    #[inline(always)]
    fn frame_ptr(at: &HostInstance, pfn: Pfn) -> *mut u8 {
        frame::<P>(at, pfn)
    }

    #[inline(always)]
    fn prefetch_user(at: &HostInstance, pfn: Pfn, offset: u64) {
        // Of a frame that there is not, too: it is a hint.
        let start = at.shared().ram.base();
        prefetch_write(start.wrapping_add((pfn.0 << P::shift() | offset) as usize));
    }

    #[inline]
    fn clear(at: &HostInstance, pfn: Pfn) {
        Self::clear_before(at, pfn, None);
    }

    #[inline]
    fn clear_before(at: &HostInstance, pfn: Pfn, next: Option<Pfn>) {
        let next = next.map(|next| frame::<P>(at, next).cast_const());
        // SAFETY: 1: a page of the region, aligned; the caller has the frame to itself.
        unsafe { clear(frame::<P>(at, pfn), next, P::page() as usize) };
    }

    #[inline]
    fn copy(at: &HostInstance, to: Pfn, from: Pfn) {
        Self::copy_before(at, to, from, None);
    }

    #[inline]
    fn copy_before(at: &HostInstance, to: Pfn, from: Pfn, next: Option<Pfn>) {
        assert_ne!(to, from, "a frame is copied onto itself");
        let (to, from) = (frame::<P>(at, to), frame::<P>(at, from));
        let next = next.map(|next| frame::<P>(at, next).cast_const());
        // SAFETY: 1, 2: two different pages of the region; the caller has `to` to itself, and
        // nobody stores to `from`, which it keeps read-only.
        unsafe { copy(to, from, next, P::page() as usize) };
    }

    #[inline(always)]
    fn user_load(at: &HostInstance, pfn: Pfn, offset: u64) -> u64 {
        word::<P>(at, pfn, offset).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn user_store(at: &HostInstance, pfn: Pfn, offset: u64, value: u64) {
        word::<P>(at, pfn, offset).store(value, Ordering::Relaxed);
    }

    fn user_merge(at: &HostInstance, pfn: Pfn, offset: u64, value: u64, mask: u64) {
        let merge = |old| Some(old & !mask | value & mask);
        // It never gives up.
        let _old =
            word::<P>(at, pfn, offset).fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }

    fn read_bytes(at: &HostInstance, pfn: Pfn, offset: u64, to: &mut [u8]) {
        let (head, whole) = whole_words(offset, to.len());
        let (head, rest) = to.split_at_mut(head);
        let (whole, tail) = rest.split_at_mut(whole);
        read_by_words::<Self>(at, pfn, offset, head);
        let offset = offset + head.len() as u64;
        let words = &words::<P>(at, pfn)[offset as usize / 8..];
        assert!(whole.len() <= 8 * words.len(), "bytes of one page");
        for (to, word) in whole.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        read_by_words::<Self>(at, pfn, offset + whole.len() as u64, tail);
    }

    fn write_bytes(at: &HostInstance, pfn: Pfn, offset: u64, from: &[u8]) {
        let (head, whole) = whole_words(offset, from.len());
        let (head, rest) = from.split_at(head);
        let (whole, tail) = rest.split_at(whole);
        write_by_words::<Self>(at, pfn, offset, head);
        let offset = offset + head.len() as u64;
        let words = &words::<P>(at, pfn)[offset as usize / 8..];
        assert!(whole.len() <= 8 * words.len(), "bytes of one page");
        for (from, word) in whole.as_chunks().0.iter().zip(words) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        write_by_words::<Self>(at, pfn, offset + whole.len() as u64, tail);
    }

    fn copy_in_use(at: &HostInstance, to: Pfn, from: Pfn) {
        for offset in (0..P::page()).step_by(8) {
            Self::user_store(at, to, offset, Self::user_load(at, from, offset));
        }
    }

    #[inline(always)]
    fn user_point(_at: &HostInstance) {
        minflt_sync::lockdep::leaves_kernel::<Self>();
        with_current(|here| here.poll_in_user_mode());
    }

    fn flush_local(at: &HostInstance, space: SpaceId, range: VirtRange) {
        let cpu = with_current(|here| here.cx.cpu.get());
        at.shared().tlbs[cpu as usize]
            .0
            .flush(space, range, P::shift());
    }

    fn flush_everything(at: &HostInstance) {
        let cpu = with_current(|here| here.cx.cpu.get());
        at.shared().tlbs[cpu as usize].0.flush_all();
    }

    #[inline(always)]
    fn tlb(at: &HostInstance, cpu: u32) -> Option<&Tlb> {
        at.shared().tlbs.get(cpu as usize).map(|tlb| &tlb.0)
    }
}

/// The first byte of frame `pfn`.
///
/// # Panics
/// If the machine has no such frame.
#[inline(always)]
fn frame<P: Paging>(at: &HostInstance, pfn: Pfn) -> *mut u8 {
    assert!(P::page() as usize <= BEHIND, "what lies behind RAM");
    let ram = &at.shared().ram;
    // The first byte is compared, and not the number: a walk has it by one mask of the entry, and
    // knows then that no bits were lost.
    let start = pfn.0 << P::shift();
    let whole = start >> P::shift() == pfn.0;
    let start = start as usize;
    assert!(whole && start < ram.bytes(), "no such frame");
    // SAFETY: within the region, and what of the frame is not lies in the bytes behind it.
    unsafe { ram.base().add(start) }
}

/// The word at `offset` of frame `pfn`, as user code sees it: racing stores are allowed.
#[inline(always)]
fn word<P: Paging>(at: &HostInstance, pfn: Pfn, offset: u64) -> &AtomicU64 {
    assert!(
        offset < P::page() && offset.is_multiple_of(8),
        "a user word is 8 bytes of one page"
    );
    let page = frame::<P>(at, pfn);
    // SAFETY: within the page.
    let word = unsafe { page.add(offset as usize) };
    // SAFETY: 8 bytes within the page, aligned; they live as long as the instance. User words are
    // touched by atomics while the frame is mapped, and by plain stores while one owner has it.
    unsafe { AtomicU64::from_ptr(word.cast()) }
}

/// The words of frame `pfn`, as user code sees them.
#[inline]
fn words<P: Paging>(at: &HostInstance, pfn: Pfn) -> &[AtomicU64] {
    let page = frame::<P>(at, pfn).cast::<AtomicU64>();
    // SAFETY: as of `word`, for all words of the page.
    unsafe { core::slice::from_raw_parts(page, P::page() as usize / 8) }
}

/// Asks for the lines of `len` bytes from `at` on.
#[inline(always)]
fn prefetch(at: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..len).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has SSE, and a prefetch of whatever address has no effect on memory.
        unsafe { _mm_prefetch(at.wrapping_add(line).cast(), _MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, len);
}

/// Asks for the line at `at`, into the second cache.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_second(at: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: every x86-64 has SSE, and a prefetch of whatever address has no effect on memory.
    unsafe { _mm_prefetch(at.cast(), _MM_HINT_T1) };
}

/// Asks for the line at `at`, to be written.
#[inline(always)]
fn prefetch_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint: it changes no memory and no register, and where the processor does not know
    // it, it does nothing.
    unsafe {
        core::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Fills memory with zeros, 16 bytes a store.
///
/// That is less than `memset` stores at once, which takes `rep stosb` or the widest registers for
/// so many bytes. But a fault ends in locked operations, which wait for all stores before them, and
/// memory that is in no cache is stored to sooner this way: a fault with its clear takes 210 ns
/// instead of 245 (AMD EPYC of family 26, `benches/faults`). Volatile, or the compiler makes a
/// `memset` of it.
///
/// For each line one of `next` is asked for, into the second cache: while the rest of the fault
/// runs, memory has something to do, and the next clear does not begin by waiting for it: a fault
/// with its clear takes 1.2 times a bare clear instead of 1.5 (AMD EPYC of family 25,
/// `benches/faults` of `spf-2017`).
///
/// # Safety
/// 1. `page` is valid for `bytes` bytes and aligned, both to 64, and used by nobody else.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn clear(page: *mut u8, next: Option<*const u8>, bytes: usize) {
    use core::arch::x86_64::{__m128i, _mm_setzero_si128};
    // SAFETY: every x86-64 has SSE2.
    let zero = unsafe { _mm_setzero_si128() };
    for line in (0..bytes).step_by(64) {
        if let Some(next) = next {
            prefetch_second(next.wrapping_add(line));
        }
        for part in (line..line + 64).step_by(16) {
            // SAFETY: 1 of this function: within the page.
            let at = unsafe { page.add(part) }.cast::<__m128i>();
            // SAFETY: 1 of this function: aligned, within the page.
            unsafe { at.write_volatile(zero) };
        }
    }
}

/// Fills memory with zeros.
///
/// # Safety
/// 1. `page` is valid for `bytes` bytes, and used by nobody else.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn clear(page: *mut u8, _next: Option<*const u8>, bytes: usize) {
    // SAFETY: 1 of this function.
    unsafe { page.write_bytes(0, bytes) };
}

/// Copies a page, 16 bytes a load and a store, asking for lines before they are stored to.
///
/// As for [`clear`]: the locked operation that comes next waits for all stores before it, so they
/// should not still be waiting for their lines then. A copying fault takes 100 ns less than with
/// `memcpy` (Intel Xeon of family 6, model 207, `benches/forks`); 40 ns less again where the lines
/// of `next` are asked for (AMD EPYC of family 25, the same bench).
///
/// # Safety
/// 1. `to` and `from` are valid for `bytes` bytes, a multiple of 64, do not overlap, and are
///    aligned to 64. 2. Nobody else uses `to`, and nobody writes `from`.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, next: Option<*const u8>, bytes: usize) {
    use core::arch::x86_64::__m128i;
    const AHEAD: usize = 16 * 64;
    let ask = |line: usize| prefetch_write(to.wrapping_add(line));
    (0..AHEAD.min(bytes)).step_by(64).for_each(ask);
    for line in (0..bytes).step_by(64) {
        if line + AHEAD < bytes {
            ask(line + AHEAD);
        }
        if let Some(next) = next {
            prefetch_second(next.wrapping_add(line));
        }
        for part in (line..line + 64).step_by(16) {
            // SAFETY: 1 of this function: within the page.
            let at = unsafe { from.add(part) }.cast::<__m128i>();
            // SAFETY: 1 of this function: aligned, within the page.
            let value = unsafe { at.read_volatile() };
            // SAFETY: 1 of this function: within the page.
            let at = unsafe { to.add(part) }.cast::<__m128i>();
            // SAFETY: 1 of this function: aligned, within the page.
            unsafe { at.write_volatile(value) };
        }
    }
}

/// Copies a page.
///
/// # Safety
/// 1. `to` and `from` are valid for `bytes` bytes and do not overlap. 2. Nobody else uses `to`, and
///    nobody writes `from`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, _next: Option<*const u8>, bytes: usize) {
    // SAFETY: 1, 2 of this function.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[inline(always)]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the wait that others are to use"
)]
pub(crate) fn spin() {
    core::hint::spin_loop();
}
