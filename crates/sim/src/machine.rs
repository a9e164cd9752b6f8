//! The simulated machine, as `sync`, `pgtable` and `mm` see it.

mod words;

use crate::data;
use crate::here;
use crate::instance::{SimInstance, Stamp};
use crate::model::Ps;
use crate::remarks::{flushes, traced};
use crate::report::Outcome;
use crate::sched::Handed;
use crate::trace::Event;
use crate::why::{Stage, Window};
use crate::world::World;
use core::fmt;
use core::marker::PhantomData;
use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::{EntryPoint, Feature, Mmu, Paging, SpaceId, Tlb};
use minflt_sync::lockdep::{leaves_kernel, might_sleep};
use minflt_sync::{
    Cost, CpuMask, Cx, Instance, Irq, Kind, Machine, Ordering, Phase, Rmw, TaskId, Word, prim,
};
use words::{buffered, drain, held, peek, peek_at};

/// The name of simulated machines with page tables of format `P`. Locks and contexts are checked
/// unless `CHECKED` is false.
#[derive(Clone, Copy, Debug)]
pub struct Sim<P, const CHECKED: bool = true>(PhantomData<fn() -> P>);

impl<P: Paging, const CHECKED: bool> Sim<P, CHECKED> {
    /// The caller computes for `ns` nanoseconds in user mode, touching nothing shared. Other tasks
    /// of its CPU get their time slices.
    pub fn compute(ns: u64) {
        leaves_kernel::<Self>();
        if let Some(world) = here::here() {
            world.compute(ns * 1000);
        }
    }

    /// The caller, which has done nothing yet, starts at time `start_ns` after the run did.
    pub(crate) fn starts_at(start_ns: u64) {
        if let Some(world) = here::here() {
            world.starts_at(start_ns * 1000);
        }
    }

    /// The kernel works for the caller for `time` picoseconds, touching nothing shared.
    pub(crate) fn kernel_works(time: Ps) {
        Self::enter_kernel();
        if let Some(world) = here::here() {
            world.core.borrow_mut().pass(world.current.get(), time);
        }
        Self::leave_kernel();
    }

    /// The kernel starts a process for the caller, but for its address space.
    pub(crate) fn starts_process() {
        Self::enter_kernel();
        if let Some(world) = here::here() {
            world.in_order();
            world.core.borrow_mut().start_process(world.current.get());
        }
        Self::leave_kernel();
    }

    /// The calling task opens or closes its measured window, for [`crate::Why`].
    pub fn window(window: Window) {
        if let Some(world) = here::here() {
            let stage = match window {
                Window::Opens => Stage::Within,
                Window::Closes => Stage::After,
            };
            world.core.borrow_mut().window(world.current.get(), stage);
        }
    }

    /// User and system time of the calling task since its start, nanoseconds; zero outside runs.
    #[must_use]
    pub fn times() -> (u64, u64) {
        here::here().map_or((0, 0), |world| {
            let (user, system) = world.core.borrow_mut().times(world.current.get());
            (user / 1000, system / 1000)
        })
    }
}

fn my_cx<'a>() -> &'a Cx {
    // SAFETY: a context is valid for the instance's life; outside runs, for the thread's.
    unsafe { &*here::cx() }
}

// SAFETY:
// 1. `cx` gives a context in the instance's memory, chosen by the task that runs; outside runs, the
//    thread's own.
// 2. Every word operation ends in the core operation on the word given, with the ordering given.
// 3. `context` gives an initialized context of the run, or of an earlier run, or the caller's own.
// 4. A task gives its CPU to another in `park`, and at the end of its time slice in user mode.
unsafe impl<P: Paging, const CHECKED: bool> Machine for Sim<P, CHECKED> {
    type Instance = SimInstance;

    const CHECKED: bool = CHECKED;

    // Also unchecked: the kernel that the posting of 2022 reverted lacks a fix, and is simulated.
    const CONTROLS: bool = true;

    fn defers_little(at: &SimInstance) -> bool {
        CHECKED && !at.timed.get()
    }

    #[inline]
    fn cx() -> *const Cx {
        here::cx()
    }

    fn context(task: TaskId) -> *const Cx {
        match here::here() {
            Some(world) => world.at.cx(task.0),
            None => here::cx(),
        }
    }

    #[inline]
    fn before(at: *const u8, len: usize, kind: Kind) {
        words::before(at, len, kind);
    }

    #[inline]
    fn load<W: Word>(p: &W::Prim, order: Ordering) -> W {
        words::load::<W>(p, order)
    }

    #[inline]
    fn store<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        words::store::<W>(p, value, order);
    }

    #[inline]
    fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
        words::rmw::<W>(p, op, value, order)
    }

    #[inline]
    fn cas<W: Word>(p: &W::Prim, old: W, new: W, ok: Ordering, fail: Ordering) -> Result<W, W> {
        words::cas::<W>(p, old, new, ok, fail)
    }

    #[inline]
    fn add_local<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        words::add_local::<W>(p, value, order);
    }

    #[inline]
    fn fence(order: Ordering) {
        if order == Ordering::SeqCst {
            drain();
        }
        prim::fence(order);
    }

    fn peek<W: Word>(p: &W::Prim) -> W {
        held::<W>(p).unwrap_or_else(|| peek::<W>(p))
    }

    fn poke<W: Word>(p: &W::Prim, value: W) {
        let kept = buffered().is_some_and(|world| world.poke(peek_at::<W>(p), value.wide()));
        if !kept {
            W::store(p, value, Ordering::Relaxed);
        }
    }

    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
        let _: Handed = words::wait::<W>(p, mask, eq, None);
    }

    #[inline]
    fn take<W: Word>(p: &W::Prim, free: W, taken: W, ok: Ordering) {
        words::take::<W>(p, free, taken, ok);
    }

    fn park() {
        match here::here() {
            Some(world) if world.is_lost() => {}
            Some(world) => {
                might_sleep::<Self>();
                world.park();
            }
            None => Self::violation(format_args!("sleeps outside a run: no task can wake it")),
        }
    }

    /// Polls: nothing that is simulated waits for time, so the scheduler has no timers.
    fn park_until(until_ns: u64) {
        let Some(world) = here::here().filter(|world| !world.is_lost()) else {
            return;
        };
        might_sleep::<Self>();
        let early = || Self::clock_ns().is_some_and(|now| now < until_ns);
        while !world.takes_token() && early() {
            // As long as a timer's interrupt.
            Self::charge(Cost::Trap);
        }
    }

    fn unpark(task: TaskId) {
        if let Some(world) = here::here() {
            world.unpark(task);
        }
    }

    fn is_running(task: TaskId) -> bool {
        here::here().is_some_and(|world| world.is_running(task))
    }

    /// Outside runs no CPU has a task.
    fn is_idle() -> bool {
        here::here().is_none_or(World::is_idle)
    }

    fn should_yield() -> bool {
        here::here().is_some_and(|world| world.should_yield())
    }

    fn clock_ns() -> Option<u64> {
        here::here()?.clock_ns()
    }

    fn irq_save() -> Irq {
        let off = &my_cx().irq_off;
        off.set(off.get() + 1);
        Irq {
            were_on: off.get() == 1,
        }
    }

    fn irq_restore(irq: Irq) {
        let off = &my_cx().irq_off;
        off.set(off.get() - 1);
        debug_assert_eq!(
            irq.were_on,
            off.get() == 0,
            "interrupts are given back in order"
        );
        if irq.were_on
            && let Some(world) = here::here()
        {
            world.interrupts_are_on_again();
        }
    }

    fn send_ipi(at: &SimInstance, to: &CpuMask) {
        match here::here() {
            Some(world) => world.send_interrupt(to),
            None => interrupt_at_boot(at, to),
        }
    }

    #[inline]
    fn charge(cost: Cost) {
        if let Some(world) = here::here() {
            world.charge(cost);
        }
    }

    #[inline]
    fn enter_kernel() {
        if let Some(world) = here::here() {
            world.core.borrow_mut().enter_kernel(world.current.get());
        }
    }

    #[inline]
    fn leave_kernel() {
        if let Some(world) = here::here() {
            world.core.borrow_mut().leave_kernel(world.current.get());
        }
    }

    #[inline]
    fn phase(phase: Phase) {
        if let Some(world) = here::here() {
            world.phase(phase);
        }
    }

    fn note(text: fmt::Arguments<'_>) {
        if let Some(world) = here::here()
            && world.core.borrow().trace.is_some()
        {
            // Before the core is borrowed: what is printed may look at words.
            let text = text.to_string();
            let task = world.current.get();
            world.core.borrow_mut().record(task, || Event::Note(text));
        }
    }

    #[inline]
    fn freed(at: *const u8, len: usize) {
        words::drain_within(at, len);
        traced::<CHECKED>(|world| {
            let len = len as u32;
            world.remark(at as usize, |place| Event::Frees { place, len });
        });
    }

    #[inline]
    fn copied(at: *const u8, len: usize) {
        words::drain_within(at, len);
    }

    fn violation(text: fmt::Arguments<'_>) -> ! {
        match here::here() {
            Some(world) => world.stop(Outcome::Violation(text.to_string())),
            None => panic!("violation outside a run: {text}"),
        }
    }
}

/// Outside runs one context plays all CPUs in turn.
fn interrupt_at_boot(at: &SimInstance, to: &CpuMask) {
    let cx = my_cx();
    let was = cx.cpu.get();
    cx.irq_off.set(cx.irq_off.get() + 1);
    for cpu in to.iter() {
        cx.cpu.set(cpu);
        if let Some(handler) = at.handler() {
            // SAFETY: whoever set the handler promised that it may be called with `arg`, with
            // interrupts off; the context says that it is on the interrupted CPU.
            unsafe { (handler.call)(handler.arg) };
        }
    }
    cx.irq_off.set(cx.irq_off.get() - 1);
    cx.cpu.set(was);
}

// SAFETY:
// 1. A frame's bytes lie in the instance's mapping, zeroed, at a place that depends on its number
//    only; the memory's start is aligned to 2 MiB.
// 2. `flush_local` removes the translations from the only buffer this CPU has.
// 3. The contents verbs touch the stamp of the frame named.
// 4. `World::broadcast` forgets for a CPU when its context has interrupts on, and it has them
//    off while it walks and uses what it found.
unsafe impl<P: Paging, const CHECKED: bool> Mmu for Sim<P, CHECKED> {
    type Paging = P;

    const STOPS_THE_WORLD: bool = true;
    const ONE_WORD: bool = true;

    fn cpu_has(at: &SimInstance, feature: Feature) -> bool {
        at.has(feature)
    }

    #[inline]
    fn frame_ptr(at: &SimInstance, pfn: Pfn) -> *mut u8 {
        if CHECKED && !at.has_frame(pfn, P::shift()) {
            Self::violation(format_args!("frame {pfn} is beyond the machine's memory"));
        }
        at.frame(pfn, P::shift())
    }

    fn clear(at: &SimInstance, pfn: Pfn) {
        let node = at.node_of_frame(pfn, P::shift());
        Self::charge(Cost::Clear {
            bytes: P::page(),
            node,
        });
        at.stamp_mut(pfn, P::shift()).set(Stamp::default());
    }

    fn copy(at: &SimInstance, to: Pfn, from: Pfn) {
        let [from_node, to_node] = [from, to].map(|pfn| at.node_of_frame(pfn, P::shift()));
        Self::charge(Cost::Copy {
            bytes: P::page(),
            from: from_node,
            to: to_node,
        });
        at.stamp_mut(to, P::shift()).set(at.stamp(from).get());
        traced::<CHECKED>(|world| {
            let of = |pfn| at.frame(pfn, P::shift()) as usize;
            world.remark(of(from), |from| {
                let to = at.offset(of(to), 1).map_or(from, |offset| at.place(offset));
                Event::Copies { from, to }
            });
        });
    }

    fn entry_point(at: *const u8, what: EntryPoint) -> bool {
        CHECKED && here::here().is_some_and(|world| world.entry_point(at, what))
    }

    #[inline]
    fn user_load(at: &SimInstance, pfn: Pfn, offset: u64) -> u64 {
        data::touches(pfn);
        let stamp = at.stamp(pfn).get();
        let value = if stamp.offset == offset {
            stamp.value
        } else {
            0
        };
        traced::<CHECKED>(|world| {
            let stores = false;
            world.remark(at.frame(pfn, P::shift()) as usize, |place| Event::Data {
                stores,
                place,
                value,
            });
        });
        value
    }

    #[inline]
    fn user_store(at: &SimInstance, pfn: Pfn, offset: u64, value: u64) {
        drain();
        data::touches(pfn);
        at.stamp_mut(pfn, P::shift()).set(Stamp { value, offset });
        traced::<CHECKED>(|world| {
            let stores = true;
            world.remark(at.frame(pfn, P::shift()) as usize, |place| Event::Data {
                stores,
                place,
                value,
            });
        });
    }

    #[inline]
    fn user_point(_at: &SimInstance) {
        leaves_kernel::<Self>();
        if let Some(world) = here::here() {
            world.user_access();
        }
    }

    fn flush_local(at: &SimInstance, space: SpaceId, range: VirtRange) {
        if let Some(tlb) = at.tlb(my_cx().cpu.get()) {
            tlb.flush(space, range, P::shift());
        }
        flushes::<CHECKED>(Some(range));
    }

    fn broadcasts(at: &SimInstance) -> bool {
        at.model.broadcast > 0
    }

    fn flush_everywhere(at: &SimInstance, space: SpaceId, range: VirtRange) {
        flushes::<CHECKED>(Some(range));
        let forget = |cpu| {
            if let Some(tlb) = at.tlb(cpu) {
                tlb.flush(space, range, P::shift());
            }
        };
        match here::here() {
            Some(world) => world.broadcast(forget),
            None => (0..at.cpus()).for_each(forget),
        }
    }

    fn flush_everything(at: &SimInstance) {
        if let Some(tlb) = at.tlb(my_cx().cpu.get()) {
            tlb.flush_all();
        }
        flushes::<CHECKED>(None);
    }

    #[inline]
    fn tlb(at: &SimInstance, cpu: u32) -> Option<&Tlb> {
        at.tlb(cpu)
    }
}
