//! A machine for the model checker: a CPU is a loom thread, and loom tries every interleaving and
//! every value that the memory model allows, up to a bound on preemptions.
//!
//! A wake token synchronises memory, as a host's futex does: for the task that takes it, and not
//! for one that never went to sleep. So an ordering is missed where a task can go on without the
//! token. What it is not: a task that waits for a word to change is woken by the change, which
//! synchronises, too; and there are no interrupts.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::ptr;
use loom::sync::atomic::AtomicBool;
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

/// One execution. Task `t` is number `t - 1`, and so is its CPU.
struct World {
    tasks: Vec<Task>,
}

struct Task {
    cx: Cx,
    token: AtomicBool,
    /// Whether it sleeps until somebody leaves the token.
    parked: Cell<bool>,
    /// The word whose change it waits for.
    waits_for: Cell<*const ()>,
    thread: RefCell<Option<Thread>>,
}

// Loom runs all threads of an execution as coroutines of one thread of the host.
std::thread_local! {
    static WORLD: Cell<*const World> = const { Cell::new(ptr::null()) };
    static EXECUTIONS: Cell<u64> = const { Cell::new(0) };
}

loom::thread_local! {
    static ME: Cell<usize> = Cell::new(0);
}

/// Checks `body`, run by task 1 of `tasks`, in all executions with at most `preemptions` of them
/// (or as many as `LOOM_MAX_PREEMPTIONS` says).
pub(crate) fn check(tasks: u32, preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 2_000;
    EXECUTIONS.set(0);
    builder.check(move || {
        EXECUTIONS.set(EXECUTIONS.get() + 1);
        let world = World {
            tasks: (0..tasks).map(Task::new).collect(),
        };
        WORLD.set(&raw const world);
        start_task(0);
        body();
    });
    println!("{} executions", EXECUTIONS.get());
}

/// Starts task `at + 1`, which runs `body`.
pub(crate) fn spawn(at: usize, body: impl FnOnce() + 'static) -> loom::thread::JoinHandle<()> {
    loom::thread::spawn(move || {
        start_task(at);
        body();
    })
}

/// Runs `body` as task `at + 1`, whose thread has ended or does not exist: an interrupt that it
/// takes while it idles.
#[allow(dead_code, reason = "not every model has interrupts")]
pub(crate) fn play<R>(at: usize, body: impl FnOnce() -> R) -> R {
    let me = ME.with(|here| here.replace(at));
    let result = body();
    ME.with(|here| here.set(me));
    result
}

fn start_task(at: usize) {
    ME.with(|me| me.set(at));
    *world().tasks[at].thread.borrow_mut() = Some(loom::thread::current());
}

impl Task {
    fn new(at: u32) -> Self {
        Self {
            cx: Cx::new(TaskId(at + 1), at),
            token: AtomicBool::new(false),
            parked: Cell::new(false),
            waits_for: Cell::new(ptr::null()),
            thread: RefCell::new(None),
        }
    }

    fn wake(&self) {
        if let Some(thread) = &*self.thread.borrow() {
            thread.unpark();
        }
    }
}

/// Wakes whoever waits for a change of `p`.
fn changed<T>(p: &T) {
    for task in &world().tasks {
        if ptr::addr_eq(task.waits_for.get(), p) {
            task.waits_for.set(ptr::null());
            task.wake();
        }
    }
}

fn world<'a>() -> &'a World {
    // SAFETY: `check` set it, and it lives until the execution's threads are joined.
    unsafe { &*WORLD.get() }
}

fn me() -> usize {
    ME.with(Cell::get)
}

// SAFETY: 1: contexts live as long as the execution. 2: loom's operations. 3: `World` has them all.
// 4: each task is a CPU of its own.
unsafe impl<const SPIN: bool> Machine for Loom<SPIN> {
    type Instance = Nowhere;
    const CHECKED: bool = true;

    fn cx() -> *const Cx {
        &raw const world().tasks[me()].cx
    }

    fn context(task: TaskId) -> *const Cx {
        &raw const world().tasks[task.0 as usize - 1].cx
    }

    fn store<W: Word>(p: &W::Prim, value: W, order: Ordering) {
        W::store(p, value, order);
        changed(p);
    }

    /// Loom takes a sequentially consistent exchange for acquire and release only; machines promise
    /// that it is a full fence, so one is added.
    fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
        let old = W::rmw(p, op, value, order);
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
        let (was, with) = (old.wide(), value.wide());
        let same = match op {
            Rmw::Add | Rmw::Sub => with == 0,
            Rmw::Or => was | with == was,
            Rmw::And => was & with == was,
            Rmw::Swap => was == with,
        };
        // Two that look by an exchange would wake each other for ever.
        if !same {
            changed(p);
        }
        old
    }

    fn cas<W: Word>(p: &W::Prim, old: W, new: W, ok: Ordering, fail: Ordering) -> Result<W, W> {
        let found = W::cas(p, old, new, ok, fail)?;
        changed(p);
        Ok(found)
    }

    /// Blocks until the word changes: yielding instead makes executions without end, in which two
    /// waiters let each other run.
    fn wait_until<W: Word>(p: &W::Prim, mask: W, eq: W) {
        // Loads may find old values; exchanges do not. This one fails: nobody stores all ones.
        let ones = W::narrow(u64::MAX);
        let looked = W::cas(p, ones, ones, Ordering::Relaxed, Ordering::Relaxed);
        let (Ok(now) | Err(now)) = looked;
        if now.wide() & mask.wide() != eq.wide() {
            let waits_for = &world().tasks[me()].waits_for;
            waits_for.set(ptr::from_ref(p).cast());
            while !waits_for.get().is_null() {
                loom::thread::park();
            }
        }
    }

    /// Without a token it blocks: if nobody wakes it, loom reports a deadlock.
    fn park() {
        let task = &world().tasks[me()];
        while !task.token.swap(false, Ordering::Acquire) {
            task.parked.set(true);
            loom::thread::park();
        }
    }

    /// Its time is up whenever the others had their turn.
    fn park_until(_until_ns: u64) {
        if !world().tasks[me()].token.swap(false, Ordering::Acquire) {
            loom::thread::yield_now();
        }
    }

    fn unpark(task: TaskId) {
        let task = &world().tasks[task.0 as usize - 1];
        // An exchange, so that a token left before stays acquired.
        task.token.swap(true, Ordering::AcqRel);
        if task.parked.replace(false) {
            task.wake();
        }
    }

    fn is_running(_task: TaskId) -> bool {
        SPIN
    }

    fn irq_save() -> Irq {
        let off = &world().tasks[me()].cx.irq_off;
        off.set(off.get() + 1);
        Irq {
            were_on: off.get() == 1,
        }
    }

    fn irq_restore(_irq: Irq) {
        let off = &world().tasks[me()].cx.irq_off;
        off.set(off.get() - 1);
    }

    fn send_ipi(_at: &Nowhere, _to: &CpuMask) {}

    fn violation(text: fmt::Arguments<'_>) -> ! {
        panic!("violation: {text}");
    }
}

impl Instance for Nowhere {
    fn ram(&self) -> Ram {
        Ram {
            base: ptr::null_mut(),
            bytes: 0,
        }
    }

    fn cpus(&self) -> u32 {
        0
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn set_ipi_handler(&self, _handler: Option<IpiHandler>) {}
}
