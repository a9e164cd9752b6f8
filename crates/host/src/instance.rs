//! One machine: its memory, CPUs, clock, and the first violation reported.

use crate::Host;
use crate::context::{HostCx, is_a_cpu, with_current};
use crate::interrupts::{AWAY, BORROWED, Handler, RUNNING, SERVED_AWAY};
use crate::jobs::Jobs;
use crate::ram::{Prefault, RamError, Region};
use crate::watchdog::Watchdog;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;
use minflt_pgtable::{Tlb, X86_64};
use minflt_sync::lockdep::might_sleep;
use minflt_sync::prim::fence;
use minflt_sync::{Instance, IpiHandler, MAX_CPUS, Ordering, Ram, TaskId};
use std::sync::OnceLock;
use std::time::Instant;

/// What a machine is to be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostOptions {
    /// CPUs, and so the most threads at a time: 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// Bytes of RAM.
    pub ram_bytes: usize,
    /// When the host finds memory for it.
    pub prefault: Prefault,
}

/// A machine of real threads.
///
/// # Invariants
/// `shared` came out of a `Box` and stays valid as long as this value, and longer if a thread never
/// left.
pub struct HostInstance {
    shared: NonNull<Shared>,
    nodes: u32,
    /// A row for each node, or none where all others are equally far.
    distances: Vec<u32>,
    /// Parts of the RAM that are no memory, in bytes, ascending.
    holes: Vec<Range<u64>>,
    pub(crate) watchdog: Watchdog,
}

/// What lies at one address as long as the instance lives.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ram: Region,
    /// Immutable after set-up; the context of task `t` is number `t - 1`.
    pub(crate) contexts: Box<[HostCx]>,
    /// Guarded by: being the owner of the CPU.
    pub(crate) tlbs: Box<[OwnedTlb]>,
    pub(crate) jobs: Jobs,
    started: Instant,
    failure: OnceLock<String>,
}

/// A CPU's translation buffer, on lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct OwnedTlb(pub(crate) Tlb);

// SAFETY: a buffer is used by the owner of its CPU only: that is the contract of `Mmu::tlb`.
unsafe impl Sync for OwnedTlb {}

// SAFETY: what it points to may be shared and sent: `Shared` is `Send` and `Sync`.
unsafe impl Send for HostInstance {}
// SAFETY: as above.
unsafe impl Sync for HostInstance {}

/// The calling thread is a CPU until this is dropped.
#[must_use = "the thread leaves the CPU when the guard is dropped"]
#[derive(Debug)]
pub struct CpuGuard<'a> {
    cpu: &'a HostCx,
    /// A guard belongs to the thread that entered.
    not_send: PhantomData<*mut ()>,
}

impl HostInstance {
    /// Builds a machine.
    ///
    /// # Errors
    /// When the host has not enough memory.
    ///
    /// # Panics
    /// If `options.cpus` is 0 or above [`MAX_CPUS`].
    pub fn new(options: &HostOptions) -> Result<Self, RamError> {
        let cpus = options.cpus;
        assert!(
            (1..=MAX_CPUS).contains(&cpus),
            "a machine has 1 to {MAX_CPUS} CPUs, not {cpus}"
        );
        let shared = Box::into_raw(Box::new(Shared {
            ram: Region::map(options.ram_bytes, options.prefault)?,
            contexts: (0..cpus)
                .map(|cpu| HostCx::new(TaskId(cpu + 1), cpu))
                .collect(),
            tlbs: (0..cpus).map(|_| OwnedTlb(Tlb::new())).collect(),
            jobs: Jobs::default(),
            started: now(),
            failure: OnceLock::new(),
        }));
        // SAFETY: just built, and nobody else knows it.
        let shared = unsafe { NonNull::new_unchecked(shared) };
        // INVARIANT: out of a `Box`.
        let instance = Self {
            shared,
            nodes: 1,
            distances: Vec::new(),
            holes: Vec::new(),
            watchdog: Watchdog::new(),
        };
        for context in &instance.shared().contexts {
            context.instance.set(shared.as_ptr());
        }
        Ok(instance)
    }

    /// The same machine with its RAM and its CPUs counted as those of `nodes` memory nodes, in
    /// order. That is bookkeeping: all memory is equally far.
    ///
    /// # Panics
    /// If there are fewer CPUs than nodes, or no node.
    #[must_use]
    pub fn with_nodes(self, nodes: u32) -> Self {
        let cpus = self.cpus();
        assert!(
            (1..=cpus).contains(&nodes),
            "{cpus} CPUs cannot be of {nodes} nodes"
        );
        let mut machine = self;
        machine.nodes = nodes;
        machine
    }

    /// The same with its nodes so far apart: a row for each of them, where 10 is as near as its
    /// own. Bookkeeping, too: frames are taken from near nodes first.
    ///
    /// # Panics
    /// If there are not as many numbers as pairs of nodes.
    #[must_use]
    pub fn with_distances(self, rows: &[u32]) -> Self {
        let nodes = self.nodes as usize;
        assert_eq!(rows.len(), nodes * nodes, "{nodes} nodes need as many rows");
        let mut machine = self;
        machine.distances = rows.to_vec();
        machine
    }

    /// The same with holes in its RAM: ascending ranges of bytes from its start, apart from each
    /// other. A touch of one ends the process.
    ///
    /// # Panics
    /// If one is not whole pages of the RAM, the first begins with it, or the host refuses.
    #[must_use]
    pub fn with_holes(self, holes: &[Range<u64>]) -> Self {
        let mut machine = self;
        let mut before = 0;
        for hole in holes {
            assert!(before < hole.start, "{holes:?}: no memory before {hole:?}");
            before = hole.end;
            machine.shared().ram.make_hole(hole);
        }
        machine.holes = holes.to_vec();
        machine
    }

    /// The calling thread becomes CPU `cpu` until the guard is dropped.
    ///
    /// The CPU's translation buffer starts empty.
    ///
    /// # Panics
    /// If there is no such CPU, another thread is that CPU, or the calling thread is a CPU already.
    pub fn enter(&self, cpu: u32) -> CpuGuard<'_> {
        assert!(!is_a_cpu(), "the thread is a CPU already");
        let context = self.shared().context(TaskId(cpu + 1));
        let Some(context) = context else {
            panic!("no CPU {cpu}: the machine has {}", self.cpus())
        };
        context.become_cpu();
        let guard = CpuGuard {
            cpu: context,
            not_send: PhantomData,
        };
        self.shared().tlbs[cpu as usize].0.flush_all();
        context.poll();
        guard
    }

    /// What the first oracle that spoke said; `None` while all is well.
    ///
    /// A machine that failed is good for nothing but being looked at: threads that waited on it
    /// were stopped where they stood.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.shared().failure.get().cloned()
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: by the type's invariants.
        unsafe { self.shared.as_ref() }
    }
}

impl Shared {
    /// Nanoseconds since the instance was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(now().duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The context of `task`, or that of no task if there is none.
    #[inline]
    pub(crate) fn context(&self, task: TaskId) -> Option<&HostCx> {
        self.contexts.get((task.0 as usize).wrapping_sub(1))
    }

    /// Whether an oracle has spoken.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// As [`Shared::has_failed`], for a thread that has just said that it sleeps.
    pub(crate) fn has_failed_fenced(&self) -> bool {
        // ORDERING: fence SeqCst; pairs with [host-fail].
        fence(Ordering::SeqCst);
        self.has_failed()
    }

    /// Stops the calling thread, by a panic, if an oracle has spoken: what it waits for may never
    /// come. A thread that is unwinding already goes on.
    #[inline]
    pub(crate) fn stop_if_failed(&self) {
        if self.has_failed() && !std::thread::panicking() {
            panic!("stopped: the machine has failed on another thread");
        }
    }

    /// Records the first failure and wakes all sleepers.
    pub(crate) fn fail(&self, text: &str) {
        if self.failure.set(text.to_owned()).is_ok() {
            // ORDERING: fence SeqCst; pairs with [host-fail]: who does not see the failure is seen
            // asleep.
            fence(Ordering::SeqCst);
            for context in &self.contexts {
                context.wake_to_serve();
            }
        }
    }
}

impl Instance for HostInstance {
    #[inline]
    fn ram(&self) -> Ram {
        Ram {
            base: self.shared().ram.base(),
            bytes: self.shared().ram.bytes(),
        }
    }

    fn memory_ranges(&self, each: &mut dyn FnMut(Range<u64>)) {
        let mut start = 0;
        for hole in &self.holes {
            each(start..hole.start);
            start = hole.end;
        }
        let end = self.ram().bytes as u64;
        if start < end {
            each(start..end);
        }
    }

    #[inline]
    fn cpus(&self) -> u32 {
        self.shared().contexts.len() as u32
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn node_of(&self, cpu: u32) -> u32 {
        cpu * self.nodes / self.cpus()
    }

    fn distance(&self, a: u32, b: u32) -> u32 {
        let told = self.distances.get((a * self.nodes + b) as usize);
        told.copied().unwrap_or(if a == b { 10 } else { 20 })
    }

    fn now_ns(&self) -> u64 {
        self.shared().now_ns()
    }

    fn set_ipi_handler(&self, handler: Option<IpiHandler>) {
        for context in &self.shared().contexts {
            context.set_handler(handler.map(Handler));
        }
        if handler.is_none() {
            self.shared().jobs.forget();
        }
    }
}

impl Drop for HostInstance {
    fn drop(&mut self) {
        let entered = |cpu: &HostCx| {
            let state = cpu.state.0.load(Ordering::Acquire);
            matches!(state, RUNNING | BORROWED | AWAY | SERVED_AWAY)
        };
        if self.shared().contexts.iter().any(entered) {
            // A guard was leaked: its thread still has its context, so that must stay.
            return;
        }
        // SAFETY: by the type's invariants out of a `Box`; no thread is a CPU of it, and none can
        // become one any more.
        drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
    }
}

impl fmt::Debug for HostInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ram { bytes, .. } = self.ram();
        write!(f, "HostInstance({} CPUs, {} MiB)", self.cpus(), bytes >> 20)
    }
}

impl CpuGuard<'_> {
    /// Calls `call`, which may block in the host as long as it likes: join a thread, wait for a
    /// channel, read a file. Meanwhile other CPUs serve this one's interrupts, so that nobody waits
    /// for the thread; the CPU stays its own.
    ///
    /// A thread that blocks outside of this answers no interrupt until it goes on, and whoever
    /// unmaps memory on another CPU waits for it ([`HostInstance::with_watchdog`] says so).
    ///
    /// # Context
    /// Interrupts on, no spinning lock held, no RCU section open: where that is not so it is a
    /// violation. Within `call` the thread is no CPU.
    ///
    /// # Panics
    /// If the thread is a CPU of another machine when `call` returns.
    ///
    /// # Examples
    /// `examples/away.rs`.
    #[track_caller]
    pub fn away<R>(&self, call: impl FnOnce() -> R) -> R {
        might_sleep::<Host<X86_64, true>>();
        self.cpu.away(|| {
            let result = call();
            assert!(
                !is_a_cpu(),
                "a thread is away from its CPU, and became another one"
            );
            result
        })
    }
}

impl Drop for CpuGuard<'_> {
    fn drop(&mut self) {
        let cpu = self.cpu;
        let open = |cpu: &HostCx| {
            let cx = &cpu.cx;
            let sections = cx.read_sections.get() + cx.rcu_depth.get();
            (cx.irq_off.get(), sections, cx.held.count())
        };
        let left_open = open(cpu);
        cpu.cx.irq_off.set(0);
        cpu.cx.read_sections.set(0);
        cpu.cx.rcu_depth.set(0);
        cpu.give_up();
        if left_open != (0, 0, 0) && !std::thread::panicking() {
            let (irqs, sections, locks) = left_open;
            violation(format_args!(
                "a thread leaves its CPU with interrupts off {irqs} times, {sections} read \
                 sections open and {locks} locks held"
            ));
        }
    }
}

/// An oracle spoke: prints `text`, marks the instance failed, and panics.
pub(crate) fn violation(text: fmt::Arguments<'_>) -> ! {
    let text = text.to_string();
    eprintln!("violation: {text}");
    with_current(|here| {
        if let Some(instance) = here.instance() {
            instance.fail(&text);
        }
    });
    panic!("violation: {text}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that others ask"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
