//! The machine that `minflt-mm` runs on here: the real one.
//!
//! Tasks share the CPUs (`sched.rs`), and keep theirs in the kernel but where they sleep or pass.
//! The hardware takes interrupts wherever they are on, so waits have nothing to do for them. On one
//! CPU, whatever spins for another one would do so for ever, and is reported instead.

#![expect(
    clippy::disallowed_types,
    reason = "a machine is what lies behind the door of `minflt_sync`'s atomics"
)]

use core::fmt;
use core::ops::Range;
use core::slice;

use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::bytes::{read_by_words, whole_words, write_by_words};
use minflt_pgtable::{Facts, Mmu, SpaceId, Tlb, X86_64};
use minflt_sync::lockdep::might_sleep;
use minflt_sync::prim::AtomicU64;
use minflt_sync::{CpuMask, Cx, Instance, IpiHandler, Irq, Machine, Ordering, Ram, TaskId, Word};
use x86_64::instructions::{interrupts, tlb};

use crate::arch::exit::{Verdict, exit};
use crate::arch::paging::{self, PAGE};
use crate::arch::serial::last_words;
use crate::arch::{clock, interrupt};
use crate::frames::Ranges;
use crate::mmu;
use crate::options::Control;
use crate::roots;
use crate::sched;
use crate::shared::{Once, StaticWord};
use crate::task::{self, State};

/// How long [`Machine::pass`] lets others run.
const PASS_NS: u64 = 50_000;

/// The most pages whose translations are invalidated one by one; beyond, all are dropped.
/// Linux: arch/x86/mm/tlb.c `tlb_single_page_flush_ceiling`.
const FLUSH_ONE_BY_ONE: u64 = 33;

/// The real machine, in ring 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel;

/// RAM of the machine.
///
/// # Invariants
/// The ranges are whole frames in the direct map that nobody else uses; they were zeroed. `ram` is
/// their span.
#[derive(Debug)]
pub(crate) struct Pc {
    ram: Range<u64>,
    ranges: Ranges,
}

/// The clock's counts per second.
static COUNTS_PER_SECOND: Once<u64> = Once::new();

/// When the clock was 0, in nanoseconds since 1970.
static BOOTED: Once<u64> = Once::new();

/// CPUs that run; 0 until all were started.
static CPUS: StaticWord = StaticWord::new(0);

/// 1 after [`break_promise`], of each.
static DEAF: StaticWord = StaticWord::new(0);
static HASTY: StaticWord = StaticWord::new(0);

/// Says how fast the clock is. Called once, at boot, before there are other CPUs.
pub(crate) fn set_clock(counts_per_second: u64) {
    COUNTS_PER_SECOND.set(counts_per_second);
}

/// Says how many CPUs run. Called once, at boot.
pub(crate) fn set_cpus(cpus: u32) {
    CPUS.store(cpus, Ordering::Relaxed);
}

/// The clock's counts per second.
fn counts_per_second() -> u64 {
    match COUNTS_PER_SECOND.get() {
        Some(rate) => *rate,
        None => panic!("the clock is used before it is known"),
    }
}

/// Whether there is one CPU only. Not before all were started.
pub(crate) fn is_alone() -> bool {
    CPUS.load(Ordering::Relaxed) == 1
}

/// How many CPUs run; one until all were started.
pub(crate) fn cpus() -> u32 {
    CPUS.load(Ordering::Relaxed).max(1)
}

/// Nanoseconds since the machine's reset.
pub(crate) fn now_ns() -> u64 {
    let rate = u128::from(counts_per_second());
    (u128::from(clock::counts()) * 1_000_000_000 / rate) as u64
}

/// Nanoseconds since 1970, by the machine's clock of dates.
pub(crate) fn real_ns() -> u64 {
    BOOTED.get().copied().unwrap_or(0) + now_ns()
}

/// What the machine's clock shows at that time of the real-time clock; 0 before it began.
pub(crate) fn of_real_ns(ns: u64) -> u64 {
    ns.saturating_sub(BOOTED.get().copied().unwrap_or(0))
}

/// Says when the clock was 0, in nanoseconds since 1970. Called once, at boot.
pub(crate) fn set_date(ns: u64) {
    BOOTED.set(ns);
}

impl Pc {
    /// A machine with the RAM from physical address `ram.start` on.
    ///
    /// # Safety
    /// 1. The range is whole frames of zeroed RAM in the direct map that nobody else uses, ever.
    pub(crate) unsafe fn new(ram: Range<u64>) -> Self {
        // SAFETY: (1) the caller's promise.
        unsafe { Self::of(Ranges::one(ram)) }
    }

    /// A machine with all RAM of these ranges.
    ///
    /// # Safety
    /// 1. They are zeroed RAM in the direct map that nobody else uses, ever.
    pub(crate) unsafe fn of(ranges: Ranges) -> Self {
        // INVARIANT: the caller's promise.
        Self {
            ram: ranges.span(),
            ranges,
        }
    }

    /// The bytes of `pfn`. A frame of a hole is not in the direct map: a touch ends the kernel.
    ///
    /// # Panics
    /// If the frame lies outside of all RAM.
    #[inline(always)]
    fn frame(&self, pfn: Pfn) -> *mut u8 {
        let phys = pfn.phys(X86_64::SHIFT).0;
        assert!(self.ram.contains(&phys), "no frame {pfn}");
        paging::direct(phys)
    }

    /// The word at `offset` of `pfn`, as a program sees it: racing stores are allowed.
    fn word(&self, pfn: Pfn, offset: u64) -> &AtomicU64 {
        assert!(
            offset < PAGE && offset.is_multiple_of(8),
            "a user word is 8 bytes of one page"
        );
        // SAFETY: (1) within the frame.
        let word = unsafe { self.frame(pfn).add(offset as usize) };
        // SAFETY: (1) 8 aligned bytes of the frame, which stays as long as the machine.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// The words of `len` bytes from `offset` on, whole ones of `pfn`, as a program sees them.
    fn words(&self, pfn: Pfn, offset: u64, len: usize) -> &[AtomicU64] {
        if len == 0 {
            return &[];
        }
        let end = offset + len as u64;
        assert!(
            end <= PAGE && offset.is_multiple_of(8) && end.is_multiple_of(8),
            "user words are of one page"
        );
        // SAFETY: (1) within the frame.
        let first = unsafe { self.frame(pfn).add(offset as usize) };
        // SAFETY: (1) aligned words of the frame, which stays as long as the machine.
        unsafe { slice::from_raw_parts(first.cast(), len / 8) }
    }
}

impl Instance for Pc {
    fn ram(&self) -> Ram {
        Ram {
            base: paging::direct(self.ram.start),
            bytes: (self.ram.end - self.ram.start) as usize,
        }
    }

    fn ram_phys(&self) -> u64 {
        self.ram.start
    }

    fn memory_ranges(&self, each: &mut dyn FnMut(Range<u64>)) {
        self.ranges.as_slice().iter().cloned().for_each(each);
    }

    fn cpus(&self) -> u32 {
        cpus()
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn set_ipi_handler(&self, handler: Option<IpiHandler>) {
        interrupt::set_handler(handler);
    }
}

// SAFETY: (1) tasks are made at boot and stay; GS names the running one until it is exchanged for
// another. (2) the default word operations are the core operations. (3) `context` looks among all
// tasks. (4) `sched.rs` switches in `park`, in `pass`, and where no lock is held.
unsafe impl Machine for Kernel {
    type Instance = Pc;
    /// As built: a switch at run time would need every type twice.
    const CHECKED: bool = cfg!(feature = "checks");

    #[inline(always)]
    fn cx() -> *const Cx {
        &raw const task::current().cx
    }

    fn context(task: TaskId) -> *const Cx {
        match task::find(task) {
            Some(task) => &raw const task.cx,
            None => Self::violation(format_args!("there is no {task:?}")),
        }
    }

    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
        while W::load(p, Ordering::Relaxed).wide() & mask.wide() != eq.wide() {
            if is_alone() {
                Self::violation(format_args!(
                    "the only CPU waits for a word that no other will change"
                ));
            }
            // The task that is to change the word may wait for this CPU. Callers that can yield ask
            // `should_yield` again.
            pause();
            if sched::turn_is_over() && interrupts::are_enabled() {
                return;
            }
        }
    }

    fn pass() {
        if sched::give_way() || is_alone() {
            return;
        }
        let end = clock::counts() + clock::counts_for(PASS_NS, counts_per_second());
        while clock::counts() < end {
            pause();
        }
    }

    fn park() {
        might_sleep::<Self>();
        sched::park_until(None);
    }

    fn park_until(until_ns: u64) {
        might_sleep::<Self>();
        sched::park_until(Some(until_ns));
    }

    fn unpark(task: TaskId) {
        let Some(task) = task::find(task) else {
            Self::violation(format_args!("{task:?} is woken, and there is none"))
        };
        sched::unpark(task);
    }

    fn is_running(task: TaskId) -> bool {
        task::find(task).is_some_and(|task| task.state() == State::Ready && sched::runs(task))
    }

    /// The root of an address space may be loaded still: see [`mmu::runs`].
    fn is_idle() -> bool {
        sched::is_idle()
    }

    fn should_yield() -> bool {
        sched::turn_is_over()
    }

    fn clock_ns() -> Option<u64> {
        Some(now_ns())
    }

    #[inline(always)]
    fn irq_save() -> Irq {
        let were_on = interrupts::are_enabled();
        interrupts::disable();
        let off = &task::current().cx.irq_off;
        off.set(off.get() + 1);
        Irq { were_on }
    }

    #[inline(always)]
    fn irq_restore(irq: Irq) {
        let off = &task::current().cx.irq_off;
        match off.get().checked_sub(1) {
            // A handler runs with interrupts off, so what is outermost there restores "off".
            Some(left) if left == 0 || !irq.were_on => off.set(left),
            _ => Self::violation(format_args!("interrupts were enabled out of nesting order")),
        }
        if irq.were_on {
            interrupts::enable();
        }
    }

    #[inline(always)]
    fn await_cpus(_at: &Pc, _of: &CpuMask, done: impl Fn() -> bool, wait: impl Fn()) {
        while !done() && HASTY.load(Ordering::Relaxed) == 0 {
            wait();
        }
    }

    fn send_ipi(_at: &Pc, to: &CpuMask) {
        to.iter().for_each(interrupt::send_call);
    }

    fn violation(text: fmt::Arguments<'_>) -> ! {
        last_words(format_args!("minflt: VIOLATION: {text}"));
        exit(Verdict::Failure)
    }
}

// SAFETY: (1) by `Pc`'s invariants: RAM in the direct map, which stays, and zeroed. (2) INVLPG and
// a load of CR3 are serialising, and there are no global translations; those under identifiers that
// are not loaded are used after a flush only, by `Asids`. (3) `frame` checks the bounds, and each
// verb stays within one frame.
unsafe impl Mmu for Kernel {
    type Paging = X86_64;
    const OWN_ROOTS: bool = true;

    #[inline(always)]
    fn frame_ptr(at: &Pc, pfn: Pfn) -> *mut u8 {
        at.frame(pfn)
    }

    #[inline]
    fn clear(at: &Pc, pfn: Pfn) {
        mmu::is_no_table(pfn);
        // SAFETY: (1) a whole frame, which the caller has to itself.
        unsafe { at.frame(pfn).write_bytes(0, PAGE as usize) };
    }

    #[inline]
    fn copy(at: &Pc, to: Pfn, from: Pfn) {
        assert_ne!(to, from, "a frame is copied onto itself");
        mmu::is_no_table(to);
        let (to, from) = (at.frame(to), at.frame(from).cast_const());
        // SAFETY: (1) two whole, different frames; the caller has `to` to itself, and nobody stores
        // to `from`, which it keeps read-only.
        unsafe { to.copy_from_nonoverlapping(from, PAGE as usize) };
    }

    fn user_load(at: &Pc, pfn: Pfn, offset: u64) -> u64 {
        at.word(pfn, offset).load(Ordering::Relaxed)
    }

    fn user_store(at: &Pc, pfn: Pfn, offset: u64, value: u64) {
        at.word(pfn, offset).store(value, Ordering::Relaxed);
    }

    fn user_merge(at: &Pc, pfn: Pfn, offset: u64, value: u64, mask: u64) {
        let merge = |old| Some(old & !mask | value & mask);
        // It never gives up.
        let _old = at
            .word(pfn, offset)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }

    fn read_bytes(at: &Pc, pfn: Pfn, offset: u64, to: &mut [u8]) {
        let (head, whole) = whole_words(offset, to.len());
        let (head, rest) = to.split_at_mut(head);
        let (whole, tail) = rest.split_at_mut(whole);
        read_by_words::<Self>(at, pfn, offset, head);
        let offset = offset + head.len() as u64;
        let words = at.words(pfn, offset, whole.len());
        for (to, word) in whole.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        read_by_words::<Self>(at, pfn, offset + whole.len() as u64, tail);
    }

    fn write_bytes(at: &Pc, pfn: Pfn, offset: u64, from: &[u8]) {
        let (head, whole) = whole_words(offset, from.len());
        let (head, rest) = from.split_at(head);
        let (whole, tail) = rest.split_at(whole);
        write_by_words::<Self>(at, pfn, offset, head);
        let offset = offset + head.len() as u64;
        let words = at.words(pfn, offset, whole.len());
        for (from, word) in whole.as_chunks().0.iter().zip(words) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        write_by_words::<Self>(at, pfn, offset + whole.len() as u64, tail);
    }

    fn copy_in_use(at: &Pc, to: Pfn, from: Pfn) {
        for offset in (0..PAGE).step_by(8) {
            Self::user_store(at, to, offset, Self::user_load(at, from, offset));
        }
    }

    /// One whose root is not loaded has none here that is used before a flush, without PCIDs; to
    /// flush the same addresses of what is loaded is slower, never wrong.
    fn flush_local(_at: &Pc, space: SpaceId, range: VirtRange) {
        if is_deaf() {
            return;
        }
        let pages = range.pages(X86_64::SHIFT);
        if pages > FLUSH_ONE_BY_ONE {
            mmu::flush(space, range);
            return;
        }
        let first = range.start().align_down(X86_64::SHIFT);
        for page in 0..pages {
            tlb::flush(x86_64::VirtAddr::new(first.0 + page * PAGE));
        }
        if mmu::uses_pcids() {
            mmu::forget_dormant(space);
        }
    }

    fn flush_everything(_at: &Pc) {
        if !is_deaf() {
            mmu::flush_everything();
        }
    }

    #[inline(always)]
    fn runs(_at: &Pc, space: SpaceId) -> bool {
        mmu::runs(space)
    }

    fn leave_space(_at: &Pc, space: SpaceId) {
        mmu::leave(space);
    }

    fn tlb(_at: &Pc, _cpu: u32) -> Option<&Tlb> {
        None
    }
}

/// Whether this CPU drops what another one asks it to flush.
fn is_deaf() -> bool {
    DEAF.load(Ordering::Relaxed) == 1 && mmu::is_in_handler()
}

/// A control: from now on a promise is broken, or kept with difficulty.
pub(crate) fn break_promise(control: Control) {
    match control {
        Control::Deaf => DEAF.store(1, Ordering::Relaxed),
        Control::Hasty => {
            HASTY.store(1, Ordering::Relaxed);
            interrupt::be_late();
        }
        Control::Late => interrupt::be_late(),
        Control::Kept => roots::keep_links(),
    }
}

/// Tells the CPU that it spins.
#[inline(always)]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the wait that others are to use"
)]
pub(crate) fn pause() {
    core::hint::spin_loop();
}
