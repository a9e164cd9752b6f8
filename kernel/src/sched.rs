//! The scheduler: which task has a CPU.
//!
//! # Problem
//! More tasks than CPUs, which sleep, wake each other, and must not keep a CPU for ever; and none
//! may run on two CPUs, or on a stack that another one still stands on.
//!
//! # Idea
//! A queue for each CPU. A task that is woken goes to an idle CPU if there is one, else to the one
//! that it had; a CPU with nothing to do takes from the others' queues. Turns are taken: the timer
//! ends a turn after [`TURN_NS`] where others wait.
//!
//! Programs are preempted; the kernel is not: a task gives its CPU away in [`park_until`],
//! [`give_way`] and [`exit`], and at its return to a program. `Machine`'s contract asks for that.
//!
//! # Protocol
//! ```text
//! sleeper S on CPU A                       waker
//! lock queue A                             token[S] = 1
//! token[S] taken? unlock, go on            lock the queue of cpu[S], A
//! state[S] = ASLEEP                        state[S] = ASLEEP?
//! pick N, switch stacks                      state[S] = READY; choose a CPU, B
//!   N: unlock queue A                        unlock; lock queue B; append S; unlock
//!                                          interrupt B if it idles
//! ```
//! The lock of a CPU's queue is held across the switch: the task that is left takes it, the one
//! that is entered gives it back.
//!
//! # Why it is correct
//! *No wake-up is lost*: token and state are looked at under the lock by both sides, so either the
//! sleeper finds the token, or the waker finds it asleep. *One CPU each, one stack each*: a task is
//! in a queue, or runs, or sleeps, and it changes between these under the lock of the queue that
//! `cpu` names; a CPU that finds it asleep or in a queue holds a lock that was released after its
//! stack was left. It goes from one queue to another while it is ready and in neither, and
//! `cpu` changes under the lock of the old one: else a waker that had looked at `cpu` before could
//! find the task asleep in its new queue, whose lock it does not hold, and on its stack still. *An
//! idle CPU sees what is queued for it*: it looks and sets `idle` under the lock, with interrupts
//! off until it halts; a waker that appends later sees `idle` set, and interrupts it.
//!
//! # Cost
//! A wake-up looks at each CPU once for an idle one, a sleep with a deadline at each earlier one of
//! that CPU.
//!
//! Linux: kernel/sched/core.c (`try_to_wake_up`, `__schedule`), with fair shares instead of turns.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr;

use minflt_sync::{Machine, Ordering};
use x86_64::instructions::interrupts;

use crate::acpi::MAX_CPUS;
use crate::arch::{gdt, interrupt, switch};
use crate::machine::{self, Kernel};
use crate::mmu;
use crate::shared::{Flag, StaticWord};
use crate::task::{self, State, Task};
use crate::user::{self, process};

/// How long a task may run while others wait for its CPU. Linux: `base_slice_ns` is about that.
const TURN_NS: u64 = 3_000_000;

/// One CPU: what is queued for it.
struct Cpu {
    lock: Flag,
    /// Guarded by: `lock`.
    queue: UnsafeCell<Queue>,
    /// 1 while it idles, or is about to. Written under `lock`.
    idle: StaticWord,
    /// The number of the task that runs. Written under `lock`.
    running: StaticWord,
    /// 1 when the running task's turn is over. The CPU's own.
    turn_over: StaticWord,
}

/// # Invariants
/// What is in a list is in that state, and its `cpu` names this CPU.
struct Queue {
    /// Those that are ready, in order.
    first: Option<&'static Task>,
    last: Option<&'static Task>,
    len: u32,
    /// Those that sleep until a time, the next one first.
    sleepers: Option<&'static Task>,
    /// The idle task, which runs while no other is ready.
    idler: Option<&'static Task>,
    /// The task before, to be freed or migrated once its stack is left.
    left: Option<&'static Task>,
}

// SAFETY: (1) what is not atomic is under the lock.
unsafe impl Sync for Cpu {}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        lock: Flag::new(),
        queue: UnsafeCell::new(Queue {
            first: None,
            last: None,
            len: 0,
            sleepers: None,
            idler: None,
            left: None,
        }),
        idle: StaticWord::new(0),
        running: StaticWord::new(0),
        turn_over: StaticWord::new(0),
    }
}; MAX_CPUS];

/// The lock of a CPU's queue, held.
///
/// # Invariants
/// Interrupts are off, and the calling CPU holds the lock.
struct Held(u32);

impl Held {
    /// Takes the lock of CPU `cpu`. The caller has interrupts off.
    fn lock(cpu: u32) -> Self {
        CPUS[cpu as usize].lock.take();
        // INVARIANT: just taken.
        Self(cpu)
    }

    /// The same if it is free.
    fn try_lock(cpu: u32) -> Option<Self> {
        // INVARIANT: just taken, if `then` calls it. One made in any case would release another
        // CPU's lock when it is dropped.
        CPUS[cpu as usize].lock.try_take().then(|| Self(cpu))
    }

    /// Takes the lock of the queue that `task` belongs to. The caller has interrupts off.
    fn lock_of(task: &Task) -> Self {
        loop {
            let cpu = task.queue_cpu();
            let held = Self::lock(cpu);
            if task.queue_cpu() == cpu {
                return held;
            }
        }
    }

    /// The lock that the task before this one took.
    ///
    /// # Safety
    /// 1. The calling CPU holds it, and no other `Held` says so.
    unsafe fn taken_over() -> Self {
        // INVARIANT: the caller's promise.
        Self(task::current().cpu())
    }

    fn queue(&mut self) -> &mut Queue {
        // SAFETY: (1) by the type invariant the lock is held, and `self` is borrowed.
        unsafe { &mut *CPUS[self.0 as usize].queue.get() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        CPUS[self.0 as usize].lock.release();
    }
}

impl Queue {
    fn append(&mut self, task: &'static Task) {
        task.next().set(None);
        match self.last.replace(task) {
            Some(last) => last.next().set(Some(task)),
            None => self.first = Some(task),
        }
        self.len += 1;
    }

    /// Takes the first one that may run on CPU `on`.
    fn take(&mut self, on: u32) -> Option<&'static Task> {
        self.take_where(|task| task.may_run_on(on))
    }

    /// Takes the first one that is `wanted`.
    fn take_where(&mut self, wanted: impl Fn(&Task) -> bool) -> Option<&'static Task> {
        let mut before: Option<&'static Task> = None;
        let mut at = self.first;
        while let Some(task) = at {
            let next = task.next().get();
            if wanted(task) {
                match before {
                    Some(before) => before.next().set(next),
                    None => self.first = next,
                }
                if next.is_none() {
                    self.last = before;
                }
                self.len -= 1;
                return Some(task);
            }
            before = at;
            at = next;
        }
        None
    }

    /// Has `task` woken at its deadline.
    fn add_sleeper(&mut self, task: &'static Task, deadline: u64) {
        task.deadline().set(Some(deadline));
        let mut before: Option<&'static Task> = None;
        let mut at = self.sleepers;
        while let Some(sleeper) = at.filter(|it| it.deadline().get() <= Some(deadline)) {
            before = at;
            at = sleeper.next().get();
        }
        task.next().set(at);
        match before {
            Some(before) => before.next().set(Some(task)),
            None => self.sleepers = Some(task),
        }
    }

    /// `task` was woken before its deadline.
    fn remove_sleeper(&mut self, task: &'static Task) {
        if task.deadline().take().is_none() {
            return;
        }
        let mut before: Option<&'static Task> = None;
        let mut at = self.sleepers;
        while let Some(sleeper) = at {
            let next = sleeper.next().get();
            if ptr::eq(sleeper, task) {
                match before {
                    Some(before) => before.next().set(next),
                    None => self.sleepers = next,
                }
                return;
            }
            before = at;
            at = next;
        }
    }

    /// The next one whose time has come at `now`; it does not sleep any more.
    fn take_due(&mut self, now: u64) -> Option<&'static Task> {
        let task = self.sleepers?;
        if task.deadline().get() > Some(now) {
            return None;
        }
        self.sleepers = task.next().get();
        task.deadline().set(None);
        Some(task)
    }

    /// The next one that is to go where there is room for it: its time has come, or it may no
    /// longer run here, on CPU `on`.
    fn take_awake(&mut self, on: u32) -> Option<&'static Task> {
        let due = self.take_due(machine::now_ns());
        due.or_else(|| self.take_where(|task| !task.may_run_on(on)))
    }

    /// When the CPU must be interrupted, if it need be.
    fn next_event(&self, now: u64) -> Option<u64> {
        let deadline = self.sleepers.and_then(|task| task.deadline().get());
        let turn = (self.len > 0).then_some(now + TURN_NS);
        match (deadline, turn) {
            (Some(deadline), Some(turn)) => Some(deadline.min(turn)),
            (one, other) => one.or(other),
        }
    }
}

/// The number of the calling CPU. The caller has interrupts off, or does not mind another one.
fn here() -> u32 {
    task::current().cpu()
}

/// Names the task that CPU `cpu` runs while no other is ready: it is to call [`idle`].
pub(crate) fn set_idler(cpu: u32, idler: &'static Task) {
    let were_on = off();
    Held::lock(cpu).queue().idler = Some(idler);
    restore(were_on);
}

/// Says which task CPU `cpu` runs.
pub(crate) fn set_running(cpu: u32, task: &Task) {
    CPUS[cpu as usize]
        .running
        .store(task.id().0, Ordering::Relaxed);
}

/// Whether a CPU runs `task`: a hint. One that waits for a CPU is as ready as one that has it.
pub(crate) fn runs(task: &Task) -> bool {
    let cpu = task.queue_cpu() as usize;
    CPUS[cpu].running.load(Ordering::Relaxed) == task.id().0
}

/// Makes a task that is new ready to run.
pub(crate) fn start(task: &'static Task) {
    let were_on = off();
    place(Held::lock_of(task), task);
    restore(were_on);
}

/// Whether the running task's turn is over. A hint unless interrupts are off.
pub(crate) fn turn_is_over() -> bool {
    CPUS[here() as usize].turn_over.load(Ordering::Relaxed) == 1
}

/// Whether the calling CPU has nothing to run.
pub(crate) fn is_idle() -> bool {
    task::current().is_idler()
}

/// Lets the tasks that wait for the CPU have it first, if there are any.
///
/// # Context
/// Caller: a task, with interrupts on, holding nothing.
pub(crate) fn give_way() -> bool {
    let were_on = off();
    let me = task::current();
    let cpu = me.cpu();
    let mut held = Held::lock(cpu);
    CPUS[cpu as usize].turn_over.store(0, Ordering::Relaxed);
    let stays = me.may_run_on(cpu);
    let others = held.queue().len > 0;
    if !stays {
        held.queue().left = Some(me);
        leave(held, me);
    } else if others {
        held.queue().append(me);
        leave(held, me);
    } else {
        drop(held);
    }
    restore(were_on);
    others
}

/// Sleeps until there is a wake token, and takes it, or until `deadline` has come (by
/// [`machine::now_ns`]); whether there was a token.
///
/// # Context
/// Caller: a task, with interrupts on, holding nothing that spins.
pub(crate) fn park_until(deadline: Option<u64>) -> bool {
    let were_on = off();
    let me = task::current();
    let mut held = Held::lock(me.cpu());
    let mut token = me.take_token();
    if !token && deadline.is_none_or(|at| machine::now_ns() < at) {
        me.set_state(State::Asleep);
        if let Some(deadline) = deadline {
            held.queue().add_sleeper(me, deadline);
        }
        leave(held, me);
        token = me.take_token();
    } else {
        drop(held);
    }
    restore(were_on);
    token
}

/// Leaves a wake token for `task`, and wakes it if it sleeps. May be called by handlers.
pub(crate) fn unpark(task: &'static Task) {
    let were_on = off();
    task.leave_token();
    let mut held = Held::lock_of(task);
    if task.state() == State::Asleep {
        task.set_state(State::Ready);
        held.queue().remove_sleeper(task);
        place(held, task);
    } else {
        drop(held);
    }
    restore(were_on);
}

/// Has the CPU that runs `task` enter the kernel, if one does, and end its turn.
pub(crate) fn disturb(task: &'static Task) {
    let were_on = off();
    let cpu = task.queue_cpu();
    if cpu != here() {
        interrupt::send_wake(cpu);
    }
    restore(were_on);
}

/// Ends the running task, which never runs again.
pub(crate) fn exit() -> ! {
    interrupts::disable();
    let me = task::current();
    let mut held = Held::lock(me.cpu());
    me.set_state(State::Free);
    held.queue().left = Some(me);
    leave(held, me);
    unreachable!("a task that has ended runs")
}

/// The life of the task that runs where no other one is ready.
pub(crate) fn idle() {
    loop {
        interrupts::disable();
        let me = task::current();
        let cpu = me.cpu();
        let mut held = Held::lock(cpu);
        if let Some(task) = held.queue().take_awake(cpu) {
            task.set_state(State::Ready);
            place(held, task);
            continue;
        }
        if held.queue().len > 0 || steal(&mut held) {
            CPUS[cpu as usize].idle.store(0, Ordering::Relaxed);
            leave(held, me);
            continue;
        }
        CPUS[cpu as usize].idle.store(1, Ordering::Relaxed);
        let sleepers = held.queue().sleepers.is_some();
        if machine::is_alone() && !sleepers {
            CPUS[cpu as usize].idle.store(0, Ordering::Relaxed);
            drop(held);
            interrupts::enable();
            if !process::end_those_that_wait() {
                Kernel::violation(format_args!("all tasks sleep, and none can be woken"));
            }
            continue;
        }
        rearm(&mut held);
        drop(held);
        if sleepers && !interrupt::has_timer() {
            interrupts::enable();
            machine::pause();
        } else {
            interrupts::enable_and_hlt();
        }
    }
}

/// Another CPU queued something for this one, or it is to look after its running task. Called by
/// the handler.
pub(crate) fn poked() {
    let mut held = Held::lock(here());
    CPUS[held.0 as usize].turn_over.store(1, Ordering::Relaxed);
    rearm(&mut held);
}

/// The timer's interrupt: those whose time has come, and those that may no longer run here, go
/// where there is room. Called by the handler.
pub(crate) fn tick() {
    let cpu = here();
    loop {
        let mut held = Held::lock(cpu);
        if let Some(task) = held.queue().take_awake(cpu) {
            task.set_state(State::Ready);
            place(held, task);
            continue;
        }
        if held.queue().len > 0 {
            CPUS[cpu as usize].turn_over.store(1, Ordering::Relaxed);
        }
        rearm(&mut held);
        return;
    }
}

/// Puts a task that is ready, and in no queue, into one. `held` is the lock of the queue that it
/// belonged to: with that lock, and the task still in that queue, its state is stable.
fn place(mut held: Held, task: &'static Task) {
    let me = here();
    let last = task.queue_cpu();
    let idles = |cpu: &u32| CPUS[*cpu as usize].idle.load(Ordering::Relaxed) == 1;
    let fit = |cpu: &u32| task.may_run_on(*cpu);
    let idle = || (0..machine::cpus()).find(|cpu| fit(cpu) && idles(cpu));
    let cpu = if fit(&last) && idles(&last) {
        last
    } else if let Some(cpu) = idle() {
        cpu
    } else if fit(&last) {
        last
    } else {
        (0..machine::cpus()).find(fit).unwrap_or(last)
    };
    if cpu != held.0 {
        task.set_queue_cpu(cpu);
        drop(held);
        held = Held::lock(cpu);
    }
    held.queue().append(task);
    let only = held.queue().len == 1;
    if cpu == me {
        if only {
            rearm(&mut held);
        }
        return;
    }
    let idles = idles(&cpu);
    drop(held);
    // One that runs something else sets its timer, for the end of a turn.
    if idles || only {
        interrupt::send_wake(cpu);
    }
}

/// Takes a task from another CPU's queue; whether there was one.
fn steal(held: &mut Held) -> bool {
    let me = held.0;
    let cpus = machine::cpus();
    for cpu in (me + 1..cpus).chain(0..me) {
        let Some(mut other) = Held::try_lock(cpu) else {
            continue;
        };
        let taken = other.queue().take(me);
        if let Some(task) = taken {
            task.set_queue_cpu(me);
            drop(other);
            held.queue().append(task);
            return true;
        }
    }
    false
}

/// Sets the timer for what comes next on the calling CPU; what time it is.
fn rearm(held: &mut Held) -> u64 {
    let now = machine::now_ns();
    interrupt::set_timer(held.queue().next_event(now), now);
    now
}

/// Gives the CPU to another task. Returns when `me` has one again, with interrupts off still.
fn leave(mut held: Held, me: &'static Task) {
    let cpu = held.0;
    CPUS[cpu as usize].turn_over.store(0, Ordering::Relaxed);
    let queue = held.queue();
    let next = match queue.take(cpu).or(queue.idler) {
        Some(next) => next,
        None => panic!("CPU {cpu} has nothing to run"),
    };
    let now = rearm(&mut held);
    if ptr::eq(next, me) {
        // The tasks in this queue may run elsewhere only; `tick` moves them.
        return;
    }
    let _taken_over = ManuallyDrop::new(held);
    next.cx.cpu.set(cpu);
    set_running(cpu, next);
    gdt::set_task(next);
    user::exchange(me, next, now);
    if let Some(mm) = next.active() {
        mmu::load(mm);
    }
    // SAFETY: (1) it is in no queue any more and runs nowhere, so its stack was left, and no
    // other CPU switches to it; (2) the lock's holder has them off.
    unsafe { switch::switch(me.stack_pointer(), next.saved_pointer()) };
    arrive();
}

/// The first thing that a task does when it gets a CPU: it gives the lock back, and looks after the
/// task before it.
pub(crate) fn arrive() {
    // SAFETY: (1) the task before took it, and forgot it.
    let mut held = unsafe { Held::taken_over() };
    match held.queue().left.take() {
        Some(task) if task.state() == State::Free => {
            drop(held);
            task::put(task);
        }
        Some(task) => place(held, task),
        None => {}
    }
}

/// Turns interrupts off; whether they were on.
fn off() -> bool {
    let were_on = interrupts::are_enabled();
    interrupts::disable();
    were_on
}

fn restore(were_on: bool) {
    if were_on {
        interrupts::enable();
    }
}
