//! The host's machine with one promise broken.
//!
//! What no defect is about is done as the host does it.

#![expect(
    clippy::disallowed_types,
    reason = "which defect is asked for is no machine's state, and waits of tests are the host's"
)]

use core::cell::Cell;
use core::fmt;
use core::time::Duration;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_host::{Host, HostInstance};
use minflt_pgtable::{Facts, Mmu, SpaceId, Tlb, X86_64};
use minflt_sync::prim::AtomicU32;
use minflt_sync::{CpuMask, Cx, Instance, Irq, Job, Machine, Ordering, Rmw, TaskId, Word};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Defect {
    /// Nothing.
    None,
    /// A read-modify-write is a load and a store.
    RmwLoses,
    /// It returns the new value.
    OldIsNew,
    /// An exchange is a load, a comparison and a store.
    CasLoses,
    /// `take` does not wait for a lock that is taken.
    TakeOpen,
    /// `add_local` adds nothing.
    AddLocalLost,
    /// Every context is found to be the caller's.
    ContextOwn,
    /// Nobody is said to run.
    NobodyRuns,
    /// A store of the user reaches the next frame, too.
    StoreBeside,
    /// `Cx::irq_off` is not kept.
    IrqNotCounted,
    /// `irq_save` says that interrupts were on, always.
    IrqAlwaysOn,
    /// `park` returns at once.
    ParkEmpty,
    /// `park_until` sleeps to its time, whatever wakes it.
    ParkUntilDeaf,
    /// Each third wake-up of a CPU is lost.
    UnparkLoses,
    /// Interrupts are not sent.
    IpiLost,
    /// Interrupts are sent to all.
    IpiToAll,
    /// A wait for a word takes no interrupts.
    WaitDeaf,
    /// A frame's last word is not cleared.
    ClearShort,
    /// A frame's last word is not copied.
    CopyShort,
    /// A store of some bytes is a load and a store of the word.
    MergeLoses,
    /// Memory that is said to be there ends 64 KiB before its end.
    TopMissing,
    /// The last byte of a bulk load is not loaded.
    BytesShort,
    /// A bulk store stores whole words.
    BytesWide,
    /// A flush of a range does nothing.
    FlushLost,
    /// A flush forgets all pages of the range but the first.
    FlushShort,
}

type Sound = Host<X86_64, false>;

/// The defect of today: one for the process, as the machine is one type, so that the suite is
/// compiled for it once.
static TODAY: AtomicU32 = AtomicU32::new(Defect::None as u32);
/// Held by whoever examines a faulty machine.
static EXAMINED: Mutex<()> = Mutex::new(());

/// Whether machines have this defect.
fn has(defect: Defect) -> bool {
    TODAY.load(Ordering::Relaxed) == defect as u32
}

/// Calls `work` while machines have this defect.
pub(crate) fn with<R>(defect: Defect, work: impl FnOnce() -> R) -> R {
    let _alone = EXAMINED.lock().unwrap_or_else(PoisonError::into_inner);
    TODAY.store(defect as u32, Ordering::Relaxed);
    work()
}

/// Longer than a context that waits for another one sleeps between two looks: what is not one step
/// here takes so long that the other comes in between, also on a busy machine.
const LONG: Duration = Duration::from_micros(300);

/// Lets others run; for [`LONG`] now and then.
fn linger() {
    thread_local!(static TIMES: Cell<u32> = const { Cell::new(0) });
    TIMES.set(TIMES.get() + 1);
    match TIMES.get().is_multiple_of(64) {
        true => thread::sleep(LONG),
        false => thread::yield_now(),
    }
}

/// The host's machine with [`with`]'s defect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faulty;

// SAFETY: none: each defect breaks a promise, which is what it is for. What a defect leaves can
// touch nothing but the memory of a machine that nothing but a check of the suite runs on, of
// which the suite uses no more than words.
unsafe impl Machine for Faulty {
    type Instance = HostInstance;
    const CHECKED: bool = false;

    fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
        if has(Defect::RmwLoses) {
            let old = W::load(p, Ordering::Acquire);
            linger();
            let apart = W::prim(old);
            W::rmw(&apart, op, value, order);
            W::store(p, W::load(&apart, Ordering::Relaxed), Ordering::Release);
            return old;
        }
        let old = W::rmw(p, op, value, order);
        if has(Defect::OldIsNew) {
            return W::load(p, Ordering::Relaxed);
        }
        old
    }

    fn cas<W: Word>(p: &W::Prim, old: W, new: W, ok: Ordering, fail: Ordering) -> Result<W, W> {
        if has(Defect::CasLoses) {
            let found = W::load(p, Ordering::Acquire);
            linger();
            if found != old {
                return Err(found);
            }
            W::store(p, new, Ordering::Release);
            return Ok(found);
        }
        W::cas(p, old, new, ok, fail)
    }

    fn take<W: Word>(p: &W::Prim, free: W, taken: W, ok: Ordering) {
        if has(Defect::TakeOpen) {
            W::store(p, taken, Ordering::Release);
            return;
        }
        while Self::cas(p, free, taken, ok, Ordering::Relaxed).is_err() {
            Self::wait_until(p, W::narrow(u64::MAX), free);
        }
    }

    fn add_local<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        if !has(Defect::AddLocalLost) {
            Sound::add_local(p, value, order);
        }
    }

    fn cx() -> *const Cx {
        Sound::cx()
    }

    fn context(task: TaskId) -> *const Cx {
        match has(Defect::ContextOwn) {
            true => Sound::cx(),
            false => Sound::context(task),
        }
    }

    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
        if has(Defect::WaitDeaf) {
            while W::load(p, Ordering::Acquire).wide() & mask.wide() != eq.wide() {
                thread::yield_now();
            }
        }
        Sound::wait_until(p, mask, eq);
    }

    fn await_cpus(at: &HostInstance, of: &CpuMask, done: impl Fn() -> bool, wait: impl Fn()) {
        Sound::await_cpus(at, of, done, wait);
    }

    fn pass() {
        Sound::pass();
    }

    fn park() {
        if !has(Defect::ParkEmpty) {
            Sound::park();
        }
    }

    fn park_until(until_ns: u64) {
        Sound::park_until(until_ns);
        let early = || Self::clock_ns().is_some_and(|now| now < until_ns);
        while has(Defect::ParkUntilDeaf) && early() {
            Sound::park_until(until_ns);
        }
    }

    fn unpark(task: TaskId) {
        thread_local!(static SENT: Cell<u32> = const { Cell::new(0) });
        SENT.set(SENT.get() + 1);
        if !has(Defect::UnparkLoses) || !SENT.get().is_multiple_of(3) {
            Sound::unpark(task);
        }
    }

    fn is_running(task: TaskId) -> bool {
        !has(Defect::NobodyRuns) && Sound::is_running(task)
    }

    fn is_idle() -> bool {
        Sound::is_idle()
    }

    fn clock_ns() -> Option<u64> {
        Sound::clock_ns()
    }

    fn irq_save() -> Irq {
        let irq = Sound::irq_save();
        if has(Defect::IrqNotCounted) {
            // SAFETY: the context that runs, whose cells are its own.
            let off = unsafe { &(*Sound::cx()).irq_off };
            off.set(0);
        }
        if has(Defect::IrqAlwaysOn) {
            return Irq { were_on: true };
        }
        irq
    }

    fn irq_restore(irq: Irq) {
        if has(Defect::IrqNotCounted) {
            return;
        }
        Sound::irq_restore(irq);
    }

    fn send_ipi(at: &HostInstance, to: &CpuMask) {
        let mut to = *to;
        if has(Defect::IpiLost) {
            to = CpuMask::empty();
        }
        if has(Defect::IpiToAll) {
            (0..at.cpus()).for_each(|cpu| to.insert(cpu));
        }
        Sound::send_ipi(at, &to);
    }

    unsafe fn on_a_cpu(at: &HostInstance, job: Job) {
        // SAFETY: 1 of this function.
        unsafe { Sound::on_a_cpu(at, job) };
    }

    fn run_jobs(at: &HostInstance) -> u64 {
        Sound::run_jobs(at)
    }

    fn enter_kernel() {
        Sound::enter_kernel();
    }

    fn violation(text: fmt::Arguments<'_>) -> ! {
        Sound::violation(text)
    }
}

/// The last word of a page.
const LAST: u64 = X86_64::PAGE - 8;

// SAFETY: as above.
unsafe impl Mmu for Faulty {
    type Paging = X86_64;

    fn frame_ptr(at: &HostInstance, pfn: Pfn) -> *mut u8 {
        Sound::frame_ptr(at, pfn)
    }

    fn clear(at: &HostInstance, pfn: Pfn) {
        let last = Sound::user_load(at, pfn, LAST);
        Sound::clear(at, pfn);
        if has(Defect::ClearShort) {
            Sound::user_store(at, pfn, LAST, last);
        }
    }

    fn copy(at: &HostInstance, to: Pfn, from: Pfn) {
        let last = Sound::user_load(at, to, LAST);
        Sound::copy(at, to, from);
        if has(Defect::CopyShort) {
            Sound::user_store(at, to, LAST, last);
        }
    }

    fn user_load(at: &HostInstance, pfn: Pfn, offset: u64) -> u64 {
        Sound::user_load(at, pfn, offset)
    }

    fn user_store(at: &HostInstance, pfn: Pfn, offset: u64, value: u64) {
        let end = (pfn.0 << X86_64::SHIFT) + (64 << 10);
        if has(Defect::TopMissing) && end >= at.ram().bytes as u64 {
            return;
        }
        Sound::user_store(at, pfn, offset, value);
        if has(Defect::StoreBeside) {
            Sound::user_store(at, Pfn(pfn.0 + 1), offset, value);
        }
    }

    fn user_merge(at: &HostInstance, pfn: Pfn, offset: u64, value: u64, mask: u64) {
        if has(Defect::MergeLoses) {
            let kept = Sound::user_load(at, pfn, offset) & !mask;
            thread::sleep(LONG);
            Sound::user_store(at, pfn, offset, kept | (value & mask));
            return;
        }
        Sound::user_merge(at, pfn, offset, value, mask);
    }

    fn read_bytes(at: &HostInstance, pfn: Pfn, offset: u64, to: &mut [u8]) {
        let short = usize::from(has(Defect::BytesShort)).min(to.len());
        let len = to.len() - short;
        Sound::read_bytes(at, pfn, offset, &mut to[..len]);
    }

    fn write_bytes(at: &HostInstance, pfn: Pfn, offset: u64, from: &[u8]) {
        if !has(Defect::BytesWide) {
            return Sound::write_bytes(at, pfn, offset, from);
        }
        // What was there before is stored again, and what others stored meanwhile is lost.
        let first = offset / 8 * 8;
        let end = (offset + from.len() as u64).next_multiple_of(8);
        for at_word in (first..end).step_by(8) {
            let mut word = Sound::user_load(at, pfn, at_word).to_ne_bytes();
            for (at_byte, byte) in (at_word..).zip(&mut word) {
                let index = at_byte.checked_sub(offset).map(|index| index as usize);
                *byte = index
                    .and_then(|index| from.get(index))
                    .copied()
                    .unwrap_or(*byte);
            }
            thread::sleep(LONG);
            Sound::user_store(at, pfn, at_word, u64::from_ne_bytes(word));
        }
    }

    fn copy_in_use(at: &HostInstance, to: Pfn, from: Pfn) {
        Sound::copy_in_use(at, to, from);
    }

    fn user_point(at: &HostInstance) {
        Sound::user_point(at);
    }

    fn flush_local(at: &HostInstance, space: SpaceId, range: VirtRange) {
        let mut from = range.start();
        if has(Defect::FlushShort) {
            from = VirtAddr(from.0 + X86_64::PAGE).min(range.end());
        }
        if has(Defect::FlushLost) {
            from = range.end();
        }
        Sound::flush_local(at, space, VirtRange::new(from, range.end()));
    }

    fn flush_everything(at: &HostInstance) {
        Sound::flush_everything(at);
    }

    fn tlb(at: &HostInstance, cpu: u32) -> Option<&Tlb> {
        Sound::tlb(at, cpu)
    }
}
