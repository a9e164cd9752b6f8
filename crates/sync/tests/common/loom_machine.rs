//! A machine for the model checker: a CPU is a loom thread, and loom tries every interleaving and
//! every value that the memory model allows, up to a bound on preemptions.
//!
//! What it is not: `park` and `unpark` synchronise memory here, as a host's do, so an ordering that
//! only a wake-up gives would not be missed. There are no interrupts.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ptr;
use loom::thread::Thread;
use minflt_sync::prim::fence;
use minflt_sync::{
    CpuMask, Cx, Instance, IpiHandler, Irq, Machine, Ordering, Ram, Rmw, TaskId, Word,
};

/// The machine. `is_running` answers `SPIN` for everybody: both answers are allowed at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loom<const SPIN: bool>;

/// A machine has no instance here.
#[derive(Debug)]
pub(crate) struct Nowhere;

/// The tasks of one execution. Task `t` is number `t - 1`, and so is its CPU.
struct World {
    contexts: Vec<Cx>,
    tokens: Vec<Cell<bool>>,
    threads: RefCell<Vec<Option<Thread>>>,
}

// Loom runs all threads of an execution as coroutines of one thread of the host.
std::thread_local! {
    static WORLD: Cell<*const World> = const { Cell::new(ptr::null()) };
}

loom::thread_local! {
    static ME: Cell<usize> = Cell::new(0);
}

/// Checks `body`, run by task 1 of `tasks`, in all executions with at most `preemptions` of them
/// (or as many as `LOOM_MAX_PREEMPTIONS` says).
pub(crate) fn check(tasks: u32, preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(move || {
        let world = World {
            contexts: (0..tasks).map(|at| Cx::new(TaskId(at + 1), at)).collect(),
            tokens: (0..tasks).map(|_| Cell::new(false)).collect(),
            threads: RefCell::new((0..tasks).map(|_| None).collect()),
        };
        WORLD.set(&raw const world);
        start_task(0);
        body();
    });
}

/// Starts task `at + 1`, which runs `body`.
pub(crate) fn spawn(at: usize, body: impl FnOnce() + 'static) -> loom::thread::JoinHandle<()> {
    loom::thread::spawn(move || {
        start_task(at);
        body();
    })
}

fn start_task(at: usize) {
    ME.with(|me| me.set(at));
    world().threads.borrow_mut()[at] = Some(loom::thread::current());
}

fn world<'a>() -> &'a World {
    // SAFETY: `check` set it, and it lives until the execution's threads are joined.
    unsafe { &*WORLD.get() }
}

fn me() -> usize {
    ME.with(Cell::get)
}

// SAFETY: 1: contexts live as long as the execution. 2: loom's operations. 3: `World` has them all.
unsafe impl<const SPIN: bool> Machine for Loom<SPIN> {
    type Instance = Nowhere;
    const CHECKED: bool = true;

    fn cx() -> *const Cx {
        &raw const world().contexts[me()]
    }

    fn context(task: TaskId) -> *const Cx {
        &raw const world().contexts[task.0 as usize - 1]
    }

    /// Loom takes a sequentially consistent exchange for acquire and release only; machines promise
    /// that it is a full fence, so one is added.
    fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
        let old = W::rmw(p, op, value, order);
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
        old
    }

    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
        if W::load(p, Ordering::Relaxed).wide() & mask.wide() != eq.wide() {
            loom::thread::yield_now();
        }
    }

    /// Without a token it blocks: if nobody wakes it, loom reports a deadlock.
    fn park() {
        while !world().tokens[me()].take() {
            loom::thread::park();
        }
    }

    fn unpark(task: TaskId) {
        let at = task.0 as usize - 1;
        world().tokens[at].set(true);
        if let Some(thread) = &world().threads.borrow()[at] {
            thread.unpark();
        }
    }

    fn is_running(_task: TaskId) -> bool {
        SPIN
    }

    fn irq_save() -> Irq {
        let off = &world().contexts[me()].irq_off;
        off.set(off.get() + 1);
        Irq { were_on: off.get() == 1 }
    }

    fn irq_restore(_irq: Irq) {
        let off = &world().contexts[me()].irq_off;
        off.set(off.get() - 1);
    }

    fn send_ipi(_at: &Nowhere, _to: &CpuMask) {}

    fn violation(text: fmt::Arguments<'_>) -> ! {
        panic!("violation: {text}");
    }
}

impl Instance for Nowhere {
    fn ram(&self) -> Ram {
        Ram { base: ptr::null_mut(), bytes: 0 }
    }

    fn cpus(&self) -> u32 {
        0
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn set_ipi_handler(&self, _handler: Option<IpiHandler>) {}
}
