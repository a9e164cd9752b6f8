//! Running tasks on a simulated machine.

use crate::here;
use crate::instance::SimInstance;
use crate::policy::{Chooser, Memory, Policy};
use crate::report::{Outcome, RunReport, TaskTimes};
use crate::sched::{Core, Order, State};
use crate::trace::Place;
use crate::why::{Ledger, Why, WhyOptions};
use crate::world::{Suspender, World};
use core::any::Any;
use core::fmt;
use core::fmt::Write as _;
use core::panic::AssertUnwindSafe;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use minflt_sync::{Cx, TaskId};
use std::panic::catch_unwind;

/// One task to run.
pub struct TaskSpec<'a> {
    /// The CPU it runs on, from 0.
    pub cpu: u32,
    /// What it does. A body that is cut off by a violation is not dropped: what it owns leaks.
    pub body: Box<dyn FnOnce() + 'a>,
}

impl<'a> TaskSpec<'a> {
    /// A task on `cpu`.
    pub fn new(cpu: u32, body: impl FnOnce() + 'a) -> Self {
        Self {
            cpu,
            body: Box::new(body),
        }
    }
}

impl fmt::Debug for TaskSpec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskSpec(cpu {})", self.cpu)
    }
}

/// How to run.
#[derive(Clone)]
pub struct RunOptions<'a> {
    /// Who runs next.
    pub policy: Policy,
    /// When stores reach memory.
    pub memory: Memory,
    /// Whether to keep every step.
    pub trace: bool,
    /// Accesses after which the run is called endless.
    pub max_events: u64,
    /// Names a place, given as its offset in the machine's memory, for messages.
    pub describe: Option<&'a dyn Fn(u64) -> String>,
    /// In virtual time, decides among those who ask for a line at once, where that is a matter of
    /// chance: the same run with another seed is another measurement.
    pub seed: u64,
    /// How to account where time goes, if that is wanted. Only in virtual time.
    pub why: Option<WhyOptions<'a>>,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        Self {
            policy: Policy::VirtualTime,
            memory: Memory::Sequential,
            trace: false,
            max_events: u64::MAX,
            describe: None,
            seed: 0,
            why: None,
        }
    }
}

impl RunOptions<'_> {
    /// In virtual time, untraced, without a bound.
    #[must_use]
    pub fn virtual_time() -> Self {
        Self::default()
    }

    /// Explored by `policy`, untraced, bounded to a million accesses.
    #[must_use]
    pub fn explored(policy: Policy) -> Self {
        Self {
            policy,
            max_events: 1_000_000,
            ..Self::default()
        }
    }
}

impl fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("policy", &self.policy)
            .field("memory", &self.memory)
            .field("trace", &self.trace)
            .field("max_events", &self.max_events)
            .finish_non_exhaustive()
    }
}

/// Address space of a task's stack; the host pays for what is touched.
const STACK_BYTES: usize = 256 << 10;

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// Runs `tasks` on `at` until all have ended or the run cannot go on.
///
/// What the tasks share of the machine lies in its memory. After any outcome but [`Outcome::Ok`]
/// the memory is as the last step left it, locks held and all.
///
/// # Panics
/// If a run is under way on this thread or this instance, a task's CPU does not exist, there are
/// more tasks than the instance has contexts, the machine has over 64 CPUs and the policy explores,
/// or the host has no memory for a stack.
pub fn run<'a>(at: &SimInstance, options: &RunOptions<'_>, tasks: Vec<TaskSpec<'a>>) -> RunReport {
    let cpus = at.model.places.len();
    let on: Vec<u32> = tasks.iter().map(|task| task.cpu).collect();
    assert!(
        on.iter().all(|cpu| (*cpu as usize) < cpus),
        "tasks on CPUs {on:?} of {cpus}"
    );
    assert!(
        1 + on.len() + cpus <= at.contexts() as usize,
        "{} tasks: the instance was made for {}",
        on.len(),
        at.contexts() as usize - 1 - cpus
    );
    let chooser = Chooser::new(&options.policy, options.memory);
    assert!(
        chooser.is_none() || cpus <= 64,
        "exploring {cpus} CPUs: at most 64 are possible"
    );
    let mut warm = at.lease();
    let lines = core::mem::take(&mut warm.lines);
    let mut core = Core::new(at.model.clone(), lines, chooser, &on, at.clock.get());
    core.seed(options.seed);
    core.max_events = options.max_events;
    core.trace = options.trace.then(Vec::new);
    core.why = options.why.as_ref().map(|why| {
        let tasks = on.len() as u32;
        Box::new(Ledger::new(why, at.model.line_shift, tasks, at.clock.get()))
    });
    for (number, task) in core.tasks.iter().enumerate() {
        let number = number as u32 + 1;
        // SAFETY: the context lies in the instance's memory, and nobody uses it between runs.
        unsafe { at.cx(number).write(Cx::new(TaskId(number), task.cpu)) };
    }
    let names = options.why.map(|why| why.names);
    let world = World::new(at, core, names);
    let mut fibers: Vec<Option<Fiber>> = Vec::new();
    fibers.resize_with(on.len() + cpus, || None);
    for (number, task) in tasks.into_iter().enumerate() {
        fibers[number] = Some(body_fiber(
            &world,
            number as u32,
            task.body,
            &mut warm.stacks,
        ));
    }
    drive(&world, &mut fibers, &mut warm.stacks);
    for fiber in fibers.into_iter().flatten() {
        warm.stacks.push(stack_of(fiber));
    }
    let mut core = world.core.into_inner();
    let report = report(at, &mut core, options);
    at.clock.set(core.end.max(at.clock.get()));
    warm.lines = core.lines;
    at.release(warm);
    report
}

/// Resumes the next task, until there is none.
fn drive<'w>(world: &'w World<'w>, fibers: &mut [Option<Fiber>], stacks: &mut Vec<DefaultStack>) {
    // SAFETY: dropped at the end of this function, which borrows the world.
    let entered = unsafe { here::enter(world) };
    loop {
        let picked = world.core.borrow_mut().pick();
        let Some(task) = picked else {
            if world.core.borrow_mut().drain_at_rest() {
                continue;
            }
            break;
        };
        world.resuming(task);
        let fiber = fibers[task as usize].get_or_insert_with(|| idle_fiber(world, task, stacks));
        match fiber.resume(()) {
            CoroutineResult::Yield(()) | CoroutineResult::Return(()) => {}
        }
    }
    drop(entered);
}

fn body_fiber(
    world: &World<'_>,
    task: u32,
    body: Box<dyn FnOnce() + '_>,
    stacks: &mut Vec<DefaultStack>,
) -> Fiber {
    let main = move |suspender: &Suspender, ()| {
        world.suspenders[task as usize].set(suspender);
        let result = catch_unwind(AssertUnwindSafe(body));
        let mut core = world.core.borrow_mut();
        match result {
            Ok(()) => core.finish(task),
            Err(payload) => {
                core.outcome
                    .get_or_insert(Outcome::Panic(message_of(payload.as_ref())));
            }
        }
    };
    // SAFETY: `run` drives the fiber to its end, or resets it, while the world and what the body
    // borrows are alive.
    unsafe { Fiber::with_stack_unchecked(stack(stacks), main) }
}

fn idle_fiber(world: &World<'_>, task: u32, stacks: &mut Vec<DefaultStack>) -> Fiber {
    let main = move |suspender: &Suspender, ()| {
        world.suspenders[task as usize].set(suspender);
        world.idle()
    };
    // SAFETY: `run` resets the fiber while the world is alive.
    unsafe { Fiber::with_stack_unchecked(stack(stacks), main) }
}

fn stack(stacks: &mut Vec<DefaultStack>) -> DefaultStack {
    stacks
        .pop()
        .unwrap_or_else(|| match DefaultStack::new(STACK_BYTES) {
            Ok(stack) => stack,
            Err(e) => panic!("no memory for a stack: {e}"),
        })
}

fn stack_of(mut fiber: Fiber) -> DefaultStack {
    if !fiber.done() {
        if fiber.started() {
            // SAFETY: it stands where it was cut off, in the middle of things; nothing of it is
            // ever used or dropped again, as `TaskSpec::body` says. The world it borrows outlives
            // it.
            unsafe { fiber.force_reset() };
        } else {
            fiber.force_unwind();
        }
    }
    fiber.into_stack()
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a body panicked with something else than a text".to_owned())
}

fn report(at: &SimInstance, core: &mut Core, options: &RunOptions<'_>) -> RunReport {
    let outcome = match core.outcome.take() {
        Some(outcome) => outcome,
        None if core.unfinished().next().is_none() => Outcome::Ok,
        None => Outcome::Deadlock(who_waits(at, core, options)),
    };
    let bodies = core.bodies as usize;
    let tasks = core.tasks[..bodies].iter().map(|task| TaskTimes {
        user_ns: task.user / 1000,
        system_ns: task.system / 1000,
    });
    let tasks = tasks.collect();
    let latest = (0..core.bodies)
        .map(|task| core.clock_of(task))
        .max()
        .unwrap_or(core.end);
    if outcome != Outcome::Ok {
        core.end = core.end.max(latest);
    }
    let virtual_order = Order::Virtual(std::collections::BinaryHeap::new());
    let (steps, schedule) = match core::mem::replace(&mut core.order, virtual_order) {
        Order::Virtual(_) => Default::default(),
        Order::Explored { chooser, .. } => (chooser.steps(), chooser.into_schedule()),
    };
    RunReport {
        outcome,
        end_ns: (core.end - core.started) / 1000,
        tasks,
        context_switches: core.switches,
        sleeps: core.sleeps,
        interrupts: core.interrupts,
        events: core.events,
        steps,
        hash: core.hash,
        schedule,
        timeline: core.trace.take(),
        why: core.why.take().map(|ledger| Why::of(&ledger)),
    }
}

fn who_waits(at: &SimInstance, core: &Core, options: &RunOptions<'_>) -> String {
    let mut text = format!("deadlock: {} tasks wait", core.unfinished().count());
    for (number, task) in core.unfinished() {
        let who = if number < core.bodies {
            format!("task {} on CPU {}", number + 1, task.cpu)
        } else {
            format!("the interrupt handler on idle CPU {}", task.cpu)
        };
        let done = match task.spin {
            Some(spin) => {
                let place = describe(at.place(spin.offset), options.describe);
                write!(
                    text,
                    "; {who} for {place} & {:#x} to be {:#x}",
                    spin.mask, spin.eq
                )
            }
            None if task.state == State::Parked => write!(text, "; {who} sleeps"),
            None => write!(text, "; {who} is queued behind another"),
        };
        debug_assert!(done.is_ok(), "writing to a string");
    }
    text
}

/// A place in words; places in the system's memory by `names`, where there is one.
pub(crate) fn describe(place: Place, names: Option<&dyn Fn(u64) -> String>) -> String {
    match (place, names) {
        (Place::Ram(offset), Some(names)) => names(offset),
        (Place::Ram(offset), None) => format!("{offset:#x}"),
        (Place::Context { task, offset }, _) => format!("task {task} +{offset:#x}"),
    }
}
