//! The machine interface: one access hook for every access to shared memory.
//!
//! # Problem
//! One implementation of locks and memory management has to run on real threads, in a simulator
//! that charges every cache-line transfer, in a model checker and on bare hardware, in one build.
//!
//! # Idea
//! Code names a zero-sized type `M: Machine`. *Leaf is ambient*: atomics, locks and waits know only
//! the type, and who is running is found by [`Machine::cx`]. *Instance is explicit*: whatever a C
//! kernel keeps in statics belongs to one [`Instance`], so any number of machines live in a
//! process.
//!
//! # Protocol
//! Each access to a shared word goes through [`Machine::load`], [`Machine::store`],
//! [`Machine::rmw`] or [`Machine::cas`]; each access to plain data under a lock is announced by
//! [`Machine::before`]. The access hook gets the value, so a machine may buffer a store.
//!
//! # Why it is correct
//! The default methods perform exactly the core operation. A machine that overrides one must act on
//! the word given, with at least the ordering given.
//!
//! # Cost
//! On real hardware `before` is an empty inline function, and an access compiles to the bare
//! instruction; a check compares instruction counts with and without it.

use crate::cpumask::CpuMask;
use crate::cx::{Cx, TaskId};
use crate::phase::Phase;
use crate::prim::{self, Ordering};
use crate::word::{Rmw, Word};
use core::fmt;
use core::ops::Range;

/// What an access does to a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Atomic load.
    Load,
    /// Atomic store.
    Store,
    /// Atomic read-modify-write, successful or not.
    Rmw,
    /// Plain read of data under a lock.
    PlainRead,
    /// Plain write of data under a lock.
    PlainWrite,
}

impl Kind {
    /// Whether the line has to be owned exclusively.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Rmw | Self::PlainWrite)
    }
}

/// Fixed work that is no access to a shared line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Exception entry and exit.
    Trap,
    /// System call entry and exit.
    Syscall,
    /// Clearing `bytes` bytes of a frame on memory node `node`.
    Clear {
        /// Bytes cleared.
        bytes: u64,
        /// The node whose memory is written.
        node: u32,
    },
    /// Copying `bytes` bytes from one frame to another.
    Copy {
        /// Bytes copied.
        bytes: u64,
        /// The node whose memory is read.
        from: u32,
        /// The node whose memory is written.
        to: u32,
    },
    /// A cold miss on a descriptor that was not touched for long, which what follows waits for.
    Cold,
    /// The same of a frame that was just taken from its CPU's list: the list says which frames come
    /// next, and their descriptors are stored to, so such misses overlap.
    Fresh,
    /// A hardware page walk.
    Walk,
    /// Invalidating `pages` translations of this CPU; `u64::MAX` for all.
    Invalidate {
        /// Pages invalidated.
        pages: u64,
    },
    /// Returning one page to the allocator at teardown.
    Free,
}

/// What an interrupted context has to give back: whether interrupts were on before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "interrupts stay off until this is given back to `irq_restore`"]
pub struct Irq {
    /// Whether they were on.
    pub were_on: bool,
}

/// A zero-sized name for a kind of machine.
///
/// # Safety
/// An implementer guarantees:
/// 1. [`Machine::cx`] gives a context that stays valid for the machine instance's life, and the
///    same one to the same task until it ends;
/// 2. the word operations act on the word given, atomically, with at least the ordering given; and
///    a `SeqCst` [`Machine::rmw`] is a full fence for plain loads after it;
/// 3. [`Machine::context`] gives the context of a task that exists or existed on the instance of
///    the caller;
/// 4. a context in the kernel keeps its CPU, and no other task runs on that, but in
///    [`Machine::park`] and [`Machine::pass`]: who spins in [`Machine::wait_until`] or
///    [`Machine::take`] keeps it, too. Handlers of interrupts run wherever interrupts are on.
///
/// `minflt-conformance` examines what of this can be seen from outside, and `docs/embedding.md`
/// says what a machine is asked for in which situation.
pub unsafe trait Machine: Copy + Send + Sync + fmt::Debug + 'static {
    /// RAM, CPUs and clock of one machine.
    type Instance: Instance;

    /// Whether lock order, contexts and oracles are checked; compiled out where false.
    const CHECKED: bool;

    /// Whether fixes of races can be switched off, so that tests can show what they prevent;
    /// compiled out where false.
    const CONTROLS: bool = Self::CHECKED;

    /// Whether [`Machine::prefetch`] and its like do anything: what only prepares them is left out
    /// elsewhere.
    const PREFETCHES: bool = false;

    /// Whether frees are deferred in small batches: short checked runs shall see grace periods end.
    /// Runs that are timed defer as much as without checks.
    #[inline(always)]
    fn defers_little(_at: &Self::Instance) -> bool {
        Self::CHECKED
    }

    /// The context that is running now.
    fn cx() -> *const Cx;

    /// The context of task `task` of the instance that the caller runs on.
    fn context(task: TaskId) -> *const Cx;

    /// Called before each access to shared memory. May run other contexts. Never panics.
    #[inline(always)]
    fn before(_at: *const u8, _len: usize, _kind: Kind) {}

    /// Loads a shared word.
    #[inline(always)]
    fn load<W: Word>(p: &W::Prim, order: Ordering) -> W {
        Self::before(core::ptr::from_ref(p).cast(), size_of::<W>(), Kind::Load);
        W::load(p, order)
    }

    /// Stores a shared word.
    #[inline(always)]
    fn store<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        Self::before(core::ptr::from_ref(p).cast(), size_of::<W>(), Kind::Store);
        W::store(p, value, order);
    }

    /// Changes a shared word in one step; returns the old value.
    #[inline(always)]
    fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
        Self::before(core::ptr::from_ref(p).cast(), size_of::<W>(), Kind::Rmw);
        let old = W::rmw(p, op, value, order);
        if !prim::RMW_IS_FENCE && order == Ordering::SeqCst {
            Self::fence(order);
        }
        old
    }

    /// Adds to a word of this CPU's area, which other CPUs only read. Machines whose contexts keep
    /// their CPU, and run there without being interrupted between two instructions, need no
    /// exclusive access for it.
    ///
    /// `order` is that of a store. Linux: `this_cpu_add`.
    #[inline(always)]
    fn add_local<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        Self::rmw(p, Rmw::Add, value, order);
    }

    /// Compares and exchanges a shared word; never fails spuriously.
    ///
    /// # Errors
    /// The value found, when it was not `old`.
    #[inline(always)]
    fn cas<W: Word>(p: &W::Prim, old: W, new: W, ok: Ordering, fail: Ordering) -> Result<W, W> {
        Self::before(core::ptr::from_ref(p).cast(), size_of::<W>(), Kind::Rmw);
        W::cas(p, old, new, ok, fail)
    }

    /// Looks at a shared word for an oracle: no access, and free. The caller's CPU sees what it
    /// stored itself.
    #[inline(always)]
    fn peek<W: Word>(p: &W::Prim) -> W {
        W::load(p, Ordering::Relaxed)
    }

    /// Changes a shared word for an oracle: no access, and free.
    #[inline(always)]
    fn poke<W: Word>(p: &W::Prim, value: W) {
        W::store(p, value, Ordering::Relaxed);
    }

    /// A memory fence.
    #[inline(always)]
    fn fence(order: Ordering) {
        prim::fence(order);
    }

    /// Asks for the lines of `len` bytes, which will be read soon: a hint, and no access. The bytes
    /// need not be memory.
    #[inline(always)]
    fn prefetch(_at: *const u8, _len: usize) {}

    /// Prefetches the line at `at` exclusively, to be read and written soon: a hint, as
    /// [`Machine::prefetch`] is. A load fetches the line shared, and the store after it needs a
    /// second request.
    ///
    /// Linux: `prefetchw`.
    #[inline(always)]
    fn prefetch_write(_at: *const u8) {}

    /// Waits until `word & mask == eq`. May return early, so callers loop. Acknowledges interrupts
    /// while it waits, unless they are off. Returns where [`Machine::should_yield`] becomes true:
    /// the task that is to change the word may wait for the caller's CPU.
    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W);

    /// Waits until `done`, which the CPUs in `of` bring about when they take an interrupt that was
    /// sent to them; `wait` waits for a while, and acknowledges interrupts. A machine may say which
    /// of them keep the caller waiting.
    ///
    /// # Context
    /// Interrupts are on.
    #[inline(always)]
    fn await_cpus(_at: &Self::Instance, _of: &CpuMask, done: impl Fn() -> bool, wait: impl Fn()) {
        while !done() {
            wait();
        }
    }

    /// Exchanges `free` for `taken`, another value, and waits while the word is something else: so
    /// a lock of one word is taken. Acknowledges interrupts while it waits, unless they are off.
    #[inline(always)]
    fn take<W: Word>(p: &W::Prim, free: W, taken: W, ok: Ordering) {
        while Self::cas(p, free, taken, ok, Ordering::Relaxed).is_err() {
            Self::wait_until(p, W::narrow(u64::MAX), free);
        }
    }

    /// Lets other tasks run for some time, and acknowledges interrupts: between two polls of a
    /// condition that no word announces. Does nothing where polling itself takes time.
    #[inline(always)]
    fn pass() {}

    /// Sleeps until [`Machine::unpark`] is called for this task. A token that was left before makes
    /// it return at once; it may also return early. Acknowledges interrupts.
    fn park();

    /// Sleeps as [`Machine::park`], until [`Machine::clock_ns`] is `until_ns` at the latest, and a
    /// moment. It may return early, and does not say why: callers look at the clock and at what
    /// they wait for, and call again. Where time does not pass it returns soon.
    ///
    /// This default lets others run for some time: a loop around it polls, and a token stays for
    /// the next [`Machine::park`].
    ///
    /// Linux: schedule_hrtimeout.
    fn park_until(_until_ns: u64) {
        Self::pass();
    }

    /// The same, for `ns` nanoseconds from now on at the most.
    fn park_for(ns: u64) {
        let now = Self::clock_ns().unwrap_or(0);
        Self::park_until(now.saturating_add(ns));
    }

    /// Leaves a wake token for `task`.
    fn unpark(task: TaskId);

    /// Whether `task` has a CPU now; one that waits for a CPU has not. A hint: it may change before
    /// the caller uses it. A caller that spins for `task` relies on it.
    fn is_running(task: TaskId) -> bool;

    /// Whether the CPU of the caller, which handles an interrupt, has no task to go back to: it
    /// idles, or its task sleeps.
    #[inline(always)]
    fn is_idle() -> bool {
        false
    }

    /// Whether the caller should leave its CPU to another task soon: one waits there, and the
    /// caller's time is up. Never where the machine takes CPUs away by itself, or has no time.
    ///
    /// Linux: `need_resched`.
    fn should_yield() -> bool {
        false
    }

    /// Nanoseconds since some fixed moment, as [`Instance::now_ns`] of the caller's machine; `None`
    /// where time does not pass, so that what takes long is over at once.
    fn clock_ns() -> Option<u64> {
        None
    }

    /// Turns interrupts off for this context, and raises its [`Cx::irq_off`] by one: the
    /// implementer keeps that count, and checks of lock contexts read it.
    fn irq_save() -> Irq;

    /// Gives back what [`Machine::irq_save`] returned, and lowers [`Cx::irq_off`] by one; takes
    /// what is pending if that turns them on.
    fn irq_restore(irq: Irq);

    /// Interrupts the CPUs in `to`; each runs the instance's [`IpiHandler`] as soon as it may.
    fn send_ipi(at: &Self::Instance, to: &CpuMask);

    /// Has `job` run on a CPU of `at`: at once where the caller is one, which is always so where
    /// every context has a CPU. Elsewhere it runs on the first CPU that is free: before this
    /// returns if there is one, else when one is left or [`Machine::run_jobs`] is called.
    ///
    /// # Safety
    /// 1. [`Job::call`] may be called once with its argument, on any CPU of `at` and any thread,
    ///    until the handler of interrupts is taken back ([`Instance::set_ipi_handler`]).
    #[inline(always)]
    unsafe fn on_a_cpu(_at: &Self::Instance, job: Job) {
        // SAFETY: 1 of this function.
        unsafe { (job.call)(job.arg) }
    }

    /// Runs the jobs that wait for a CPU of `at`, which the caller is; returns how many.
    ///
    /// # Context
    /// Holds nothing. Sleeps.
    #[inline(always)]
    fn run_jobs(_at: &Self::Instance) -> u64 {
        0
    }

    /// Charges fixed work to the running context.
    #[inline(always)]
    fn charge(_cost: Cost) {}

    /// The context enters the kernel: by trap, system call or interrupt.
    #[inline(always)]
    fn enter_kernel() {}

    /// The context returns to user mode.
    #[inline(always)]
    fn leave_kernel() {}

    /// A remark for a drawn timeline. Nothing where no timeline is kept.
    #[inline(always)]
    fn note(_text: fmt::Arguments<'_>) {}

    /// A remark for traces and simulated store buffers: the object of `len` bytes at `at` is freed.
    /// No access, and free.
    #[inline(always)]
    fn freed(_at: *const u8, _len: usize) {}

    /// A remark for simulated store buffers: the object of `len` bytes at `at`, which has words
    /// that were stored atomically, is about to be copied byte by byte. No access, and free.
    #[inline(always)]
    fn copied(_at: *const u8, _len: usize) {}

    /// A remark on what the context does from here on. Nothing where no time is accounted.
    #[inline(always)]
    fn phase(_phase: Phase) {}

    /// An oracle spoke. Ends the run as a value; never unwinds through a simulated context's
    /// guards.
    fn violation(text: fmt::Arguments<'_>) -> !;
}

/// The handler of inter-processor interrupts, set once when a system is built on the instance.
#[derive(Clone, Copy, Debug)]
pub struct IpiHandler {
    /// Called on the interrupted CPU with `arg`, interrupts off.
    pub call: unsafe fn(*const ()),
    /// Handed to `call`; valid as long as the instance.
    pub arg: *const (),
}

/// Work that needs a CPU, given to [`Machine::on_a_cpu`] by a context that may have none.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Called with `arg`. Holds nothing; may sleep.
    pub call: unsafe fn(*const ()),
    /// Handed to `call`.
    pub arg: *const (),
}

/// The memory of one machine: `bytes` bytes from `base` on, zeroed at start.
#[derive(Clone, Copy, Debug)]
pub struct Ram {
    /// The first byte, aligned to the largest page the machine knows (at least 64 KiB).
    pub base: *mut u8,
    /// Length in bytes.
    pub bytes: usize,
}

/// What a system holds of its machine.
pub trait Instance: Send + Sync + fmt::Debug {
    /// The memory that the system may use, all of it. Its first byte, `base`, has the physical
    /// address [`Instance::ram_phys`].
    fn ram(&self) -> Ram;

    /// The physical address of the first byte of [`Instance::ram`], a multiple of the largest page:
    /// frames are numbered as the hardware's tables want them. 0 where there is no such hardware.
    fn ram_phys(&self) -> u64 {
        0
    }

    /// Calls `each` with the parts of [`Instance::ram`] that are memory, by physical address:
    /// whole pages, ascending, none touching the next, the first from [`Instance::ram_phys`] on.
    /// Between them are holes (devices, firmware), which the system never touches: `ram` is
    /// memory, and zeroed, only as far as this says. All of it, unless a machine says otherwise.
    ///
    /// A system lies in the first part, with 64 bytes for each page of `ram`, holes included: 16
    /// MiB for a hole of 1 GiB in pages of 4 KiB.
    ///
    /// Linux: `for_each_mem_range`.
    fn memory_ranges(&self, each: &mut dyn FnMut(Range<u64>)) {
        let start = self.ram_phys();
        each(start..start + self.ram().bytes as u64);
    }

    /// Number of CPUs; they are numbered from 0.
    fn cpus(&self) -> u32;

    /// Number of memory nodes.
    fn nodes(&self) -> u32 {
        1
    }

    /// The memory node next to CPU `cpu`.
    fn node_of(&self, _cpu: u32) -> u32 {
        0
    }

    /// How far memory node `b` is from CPUs of node `a`, where 10 is as near as their own: what
    /// ACPI's table of distances (SLIT) says.
    fn distance(&self, a: u32, b: u32) -> u32 {
        if a == b { 10 } else { 20 }
    }

    /// The nodes, those nearest to `from` first. Of equally distant ones, the one that follows
    /// `from` in number comes first, so that callers spread over them.
    fn near_first(&self, from: u32) -> NearFirst<'_, Self>
    where
        Self: Sized,
    {
        NearFirst {
            at: self,
            from: from % self.nodes(),
            last: None,
        }
    }

    /// Nanoseconds since some fixed moment; virtual where time is.
    fn now_ns(&self) -> u64;

    /// Sets the handler of inter-processor interrupts.
    fn set_ipi_handler(&self, handler: Option<IpiHandler>);
}

/// The nodes of a machine by their distance from one of them: [`Instance::near_first`].
#[derive(Debug)]
pub struct NearFirst<'a, I> {
    at: &'a I,
    from: u32,
    /// The last one's distance, and how far it follows `from` in number.
    last: Option<(u32, u32)>,
}

impl<I: Instance> Iterator for NearFirst<'_, I> {
    type Item = u32;

    /// Scans all of them for each next one: there are few.
    fn next(&mut self) -> Option<u32> {
        let nodes = self.at.nodes();
        let key = |node: u32| {
            let behind = (node + nodes - self.from) % nodes;
            (self.at.distance(self.from, node), behind)
        };
        let next = match self.last {
            None => self.from,
            Some(last) => (0..nodes)
                .filter(|node| *node != self.from && key(*node) > last)
                .min_by_key(|node| key(*node))?,
        };
        // Whatever the distances say, the first one is the nearest.
        self.last = Some(self.last.map_or((0, 0), |_| key(next)));
        Some(next)
    }
}
