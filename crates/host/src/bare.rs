//! The host machine with another access hook: none, to measure its cost, or one that counts.

use crate::instance::HostInstance;
use crate::machine::Host;
use core::fmt;
use core::marker::PhantomData;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::{Mmu, Paging, SpaceId, Tlb};
use minflt_sync::prim::RMW_IS_FENCE;
use minflt_sync::{CpuMask, Cx, Irq, Job, Kind, Machine, Ordering, Rmw, TaskId, Word};

/// For benches only: [`Host`] unchecked, whose word operations never call [`Machine::before`].
#[derive(Clone, Copy, Debug)]
pub struct HostBare<P> {
    paging: PhantomData<fn() -> P>,
}

/// For tests only: [`Host`] unchecked, with `D` as its access hook.
#[derive(Clone, Copy, Debug)]
pub struct HostWith<P, D> {
    paging: PhantomData<fn() -> (P, D)>,
}

/// The access hook, called before every access to shared memory.
pub trait Door: Copy + fmt::Debug + Send + Sync + 'static {
    /// Whether the machine has controls ([`Machine::CONTROLS`]).
    const CONTROLS: bool = false;

    /// As [`Machine::before`].
    fn before(at: *const u8, len: usize, kind: Kind);
}

/// The machine that does everything but word operations.
type Base<P> = Host<P, false>;

/// What a machine does as [`Base`] does it.
macro_rules! as_the_base {
    () => {
        const PREFETCHES: bool = true;

        #[inline(always)]
        fn cx() -> *const Cx {
            Base::<P>::cx()
        }

        #[inline(always)]
        fn context(task: TaskId) -> *const Cx {
            Base::<P>::context(task)
        }

        #[inline(always)]
        fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
            Base::<P>::wait_until(p, mask, eq);
        }

        fn await_cpus(at: &HostInstance, of: &CpuMask, done: impl Fn() -> bool, wait: impl Fn()) {
            Base::<P>::await_cpus(at, of, done, wait);
        }

        fn pass() {
            Base::<P>::pass();
        }

        #[inline(always)]
        fn park() {
            Base::<P>::park();
        }

        fn park_until(until_ns: u64) {
            Base::<P>::park_until(until_ns);
        }

        #[inline(always)]
        fn unpark(task: TaskId) {
            Base::<P>::unpark(task);
        }

        #[inline(always)]
        fn prefetch(at: *const u8, len: usize) {
            Base::<P>::prefetch(at, len);
        }

        #[inline(always)]
        fn prefetch_write(at: *const u8) {
            Base::<P>::prefetch_write(at);
        }

        #[inline(always)]
        fn is_running(task: TaskId) -> bool {
            Base::<P>::is_running(task)
        }

        fn clock_ns() -> Option<u64> {
            Base::<P>::clock_ns()
        }

        #[inline(always)]
        fn irq_save() -> Irq {
            Base::<P>::irq_save()
        }

        #[inline(always)]
        fn irq_restore(irq: Irq) {
            Base::<P>::irq_restore(irq);
        }

        #[inline(always)]
        fn send_ipi(at: &HostInstance, to: &CpuMask) {
            Base::<P>::send_ipi(at, to);
        }

        unsafe fn on_a_cpu(at: &HostInstance, job: Job) {
            // SAFETY: 1: 1 of this function.
            unsafe { Base::<P>::on_a_cpu(at, job) };
        }

        fn run_jobs(at: &HostInstance) -> u64 {
            Base::<P>::run_jobs(at)
        }

        #[inline(always)]
        fn enter_kernel() {
            Base::<P>::enter_kernel();
        }

        fn violation(text: fmt::Arguments<'_>) -> ! {
            Base::<P>::violation(text)
        }
    };
}

/// What a machine does to its memory as [`Base`] does it.
macro_rules! memory_as_the_base {
    () => {
        #[inline(always)]
        fn frame_ptr(at: &HostInstance, pfn: Pfn) -> *mut u8 {
            Base::<P>::frame_ptr(at, pfn)
        }

        #[inline(always)]
        fn prefetch_user(at: &HostInstance, pfn: Pfn, offset: u64) {
            Base::<P>::prefetch_user(at, pfn, offset);
        }

        #[inline(always)]
        fn clear(at: &HostInstance, pfn: Pfn) {
            Base::<P>::clear(at, pfn);
        }

        #[inline(always)]
        fn clear_before(at: &HostInstance, pfn: Pfn, next: Option<Pfn>) {
            Base::<P>::clear_before(at, pfn, next);
        }

        #[inline(always)]
        fn copy(at: &HostInstance, to: Pfn, from: Pfn) {
            Base::<P>::copy(at, to, from);
        }

        #[inline(always)]
        fn copy_before(at: &HostInstance, to: Pfn, from: Pfn, next: Option<Pfn>) {
            Base::<P>::copy_before(at, to, from, next);
        }

        #[inline(always)]
        fn user_load(at: &HostInstance, pfn: Pfn, offset: u64) -> u64 {
            Base::<P>::user_load(at, pfn, offset)
        }

        #[inline(always)]
        fn user_store(at: &HostInstance, pfn: Pfn, offset: u64, value: u64) {
            Base::<P>::user_store(at, pfn, offset, value);
        }

        fn user_merge(at: &HostInstance, pfn: Pfn, offset: u64, value: u64, mask: u64) {
            Base::<P>::user_merge(at, pfn, offset, value, mask);
        }

        fn read_bytes(at: &HostInstance, pfn: Pfn, offset: u64, to: &mut [u8]) {
            Base::<P>::read_bytes(at, pfn, offset, to);
        }

        fn write_bytes(at: &HostInstance, pfn: Pfn, offset: u64, from: &[u8]) {
            Base::<P>::write_bytes(at, pfn, offset, from);
        }

        fn copy_in_use(at: &HostInstance, to: Pfn, from: Pfn) {
            Base::<P>::copy_in_use(at, to, from);
        }

        #[inline(always)]
        fn user_point(at: &HostInstance) {
            Base::<P>::user_point(at);
        }

        #[inline(always)]
        fn flush_local(at: &HostInstance, space: SpaceId, range: VirtRange) {
            Base::<P>::flush_local(at, space, range);
        }

        #[inline(always)]
        fn flush_everything(at: &HostInstance) {
            Base::<P>::flush_everything(at);
        }

        #[inline(always)]
        fn tlb(at: &HostInstance, cpu: u32) -> Option<&Tlb> {
            Base::<P>::tlb(at, cpu)
        }
    };
}

// SAFETY: 1, 3 and 4: those of `Host`. 2: the core operations themselves.
unsafe impl<P: Paging> Machine for HostBare<P> {
    type Instance = HostInstance;
    const CHECKED: bool = false;

    #[inline(always)]
    fn load<W: Word>(p: &W::Prim, order: Ordering) -> W {
        W::load(p, order)
    }

    #[inline(always)]
    fn store<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        W::store(p, value, order);
    }

    #[inline(always)]
    fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
        let old = W::rmw(p, op, value, order);
        if !RMW_IS_FENCE && order == Ordering::SeqCst {
            Self::fence(order);
        }
        old
    }

    /// A thread keeps its CPU as long as it is one, and serves interrupts only where it looks for
    /// them.
    #[inline(always)]
    fn add_local<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        let old = W::load(p, Ordering::Relaxed).wide();
        W::store(p, W::narrow(old.wrapping_add(value.wide())), order);
    }

    #[inline(always)]
    fn cas<W: Word>(p: &W::Prim, old: W, new: W, ok: Ordering, fail: Ordering) -> Result<W, W> {
        W::cas(p, old, new, ok, fail)
    }

    as_the_base!();
}

// SAFETY: 1 to 3: those of `Host`.
unsafe impl<P: Paging> Mmu for HostBare<P> {
    type Paging = P;

    memory_as_the_base!();
}

// SAFETY: 1, 3 and 4: those of `Host`. 2: the default word operations are the core operations.
unsafe impl<P: Paging, D: Door> Machine for HostWith<P, D> {
    type Instance = HostInstance;
    const CHECKED: bool = false;
    const CONTROLS: bool = D::CONTROLS;

    #[inline(always)]
    fn before(at: *const u8, len: usize, kind: Kind) {
        D::before(at, len, kind);
    }

    as_the_base!();
}

// SAFETY: 1 to 3: those of `Host`.
unsafe impl<P: Paging, D: Door> Mmu for HostWith<P, D> {
    type Paging = P;

    memory_as_the_base!();
}
