//! Processes: threads that share an address space and end together; parents and children.
//!
//! A process lies in the task of its first thread, which is not used again before the process was
//! waited for. Its number is that thread's.
//!
//! Parents and children, counts of threads and how processes ended are under one lock.
//! Linux: `tasklist_lock`.

use core::cell::Cell;

use minflt_mm::{Errno, Mm, MmHandle, System, Unbalanced};
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Machine, Ordering, SpinLock};

use super::ending::Ending;
use super::files::Numbers;
use super::{Birth, Start, make};
use crate::arch::serial::say;
use crate::linux::{EAGAIN, ECHILD};
use crate::loader::LoadError;
use crate::machine::{self, Kernel};
use crate::sched;
use crate::shared::Once;
use crate::stack::Args;
use crate::task::{self, State, Task};

/// What the kernel does to a program while it runs, which the program must not notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// Nothing.
    #[default]
    Nothing,
    /// After each system call it clears every accessed bit, for the CPU to set again.
    Age,
    /// Whenever the program goes on after a call or a fault, it is interrupted at once.
    Interrupt,
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// How the program ended.
    pub(crate) ending: Ending,
    /// What does not add up, in the address space as the program left it or after it was gone.
    pub(crate) unbalanced: Option<Unbalanced>,
    /// What was seen while it ran.
    pub(crate) seen: Seen,
}

/// What the kernel counts while a program runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Accessed bits that were found set by [`Meanwhile::Age`].
    pub(crate) young: u64,
    /// Calls and faults of the program, the one that ended it included.
    pub(crate) traps: u64,
    /// Interrupts that came while it ran, and not the kernel for it.
    pub(crate) interrupts: u64,
}

/// What a process has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// How long its threads had CPUs, in nanoseconds, in the program and in the kernel.
    pub(crate) ns: u64,
    /// Page faults of the program.
    pub(crate) faults: u64,
}

impl Usage {
    /// Both together.
    const fn with(self, other: Self) -> Self {
        Self {
            ns: self.ns + other.ns,
            faults: self.faults + other.faults,
        }
    }
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// 1 from when it has begun to end: no thread returns to the program.
    dying: Atomic<u32, Kernel>,
    /// The first task of its parent, or a task that is no thread of a program; `None` for an
    /// orphan. Guarded by: the family lock, as all below.
    parent: Cell<Option<&'static Task>>,
    /// Its number, readable without the lock.
    parent_number: Atomic<u32, Kernel>,
    /// The youngest of its own children.
    child: Cell<Option<&'static Task>>,
    /// The next older child of its parent.
    sibling: Cell<Option<&'static Task>>,
    /// Threads that have not ended.
    threads: Cell<u32>,
    /// How it ends, once that is known.
    ending: Cell<Option<Ending>>,
    /// What its threads that have ended have used.
    usage: Cell<Usage>,
    /// What its children that it has waited for have used, with theirs.
    children: Cell<Usage>,
    /// Whether it has ended and was not waited for.
    ended: Cell<bool>,
    /// Set before it starts.
    meanwhile: Cell<Meanwhile>,
    /// Its open files.
    files: Numbers,
    young: Atomic<u64, Kernel>,
    traps: Atomic<u64, Kernel>,
    interrupts: Atomic<u64, Kernel>,
}

/// Whom to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Any child.
    Any,
    /// The one with that number.
    Number(u32),
}

/// A process that was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// Its number.
    pub(crate) number: u32,
    /// How it ended.
    pub(crate) ending: Ending,
    /// What it has used, and its children that it waited for.
    pub(crate) usage: Usage,
    /// What was seen while it ran.
    pub(crate) seen: Seen,
}

/// Guards what says so in [`Process`].
static FAMILY: Once<SpinLock<(), WaitLock, Kernel>> = Once::new();

fn family<R>(work: impl FnOnce() -> R) -> R {
    let Some(lock) = FAMILY.get() else {
        panic!("a process before there may be any");
    };
    let held = lock.lock();
    let result = work();
    drop(held);
    result
}

/// Called once, before there are processes.
pub(crate) fn init() {
    FAMILY.set(SpinLock::new(()));
}

impl Process {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            dying: Atomic::new(0),
            parent: Cell::new(None),
            parent_number: Atomic::new(0),
            child: Cell::new(None),
            sibling: Cell::new(None),
            threads: Cell::new(0),
            ending: Cell::new(None),
            usage: Cell::new(Usage::default()),
            children: Cell::new(Usage::default()),
            ended: Cell::new(false),
            meanwhile: Cell::new(Meanwhile::Nothing),
            files: Numbers::new(),
            young: Atomic::new(0),
            traps: Atomic::new(0),
            interrupts: Atomic::new(0),
        }
    }

    /// Whether it has begun to end.
    pub(crate) fn is_dying(&self) -> bool {
        self.dying.load(Ordering::Relaxed) == 1
    }

    /// Its open files.
    pub(crate) const fn files(&self) -> &Numbers {
        &self.files
    }

    /// What is done to it while it runs.
    pub(super) fn meanwhile(&self) -> Meanwhile {
        self.meanwhile.get()
    }

    /// Counts a return of the program to the kernel.
    pub(super) fn count(&self, interrupt: bool) {
        let what = if interrupt {
            &self.interrupts
        } else {
            &self.traps
        };
        what.add(1, Ordering::Relaxed);
    }

    /// Counts accessed bits.
    pub(super) fn count_young(&self, found: u64) {
        self.young.add(found, Ordering::Relaxed);
    }

    /// Counts what a thread, which ends, has used.
    pub(super) fn count_thread(&self, more: Usage) {
        family(|| self.usage.set(self.usage.get().with(more)));
    }

    /// The caller has the family lock.
    fn set_parent(&self, parent: Option<&'static Task>) {
        let number = parent.map_or(0, |parent| {
            parent.id().0.saturating_sub(task::first_thread())
        });
        self.parent_number.store(number, Ordering::Relaxed);
        self.parent.set(parent);
    }

    fn seen(&self) -> Seen {
        Seen {
            young: self.young.load(Ordering::Relaxed),
            traps: self.traps.load(Ordering::Relaxed),
            interrupts: self.interrupts.load(Ordering::Relaxed),
        }
    }
}

/// The process that `task`, a thread of one, belongs to.
pub(crate) fn of(task: &Task) -> &'static Process {
    leader(task).own.process()
}

fn leader(task: &Task) -> &'static Task {
    match task.own.leader() {
        Some(leader) => leader,
        None => panic!("{:?} is no thread of a program", task.id()),
    }
}

/// The number that programs know a thread by, and a process by its first one.
pub(crate) fn number(task: &Task) -> u32 {
    task.id().0 - task::first_thread()
}

/// The number of the process that `task` belongs to.
pub(crate) fn process_number(task: &Task) -> u32 {
    number(leader(task))
}

/// The number of the parent of the process that `task` belongs to; 0 if it is none.
pub(crate) fn parent_number(task: &Task) -> u32 {
    of(task).parent_number.load(Ordering::Relaxed)
}

/// Starts a process of one thread, whose parent is the caller's process, or the caller.
pub(crate) fn start(
    birth: Birth,
    fs: u64,
    clear_tid: u64,
    like: Option<&Task>,
    meanwhile: Meanwhile,
) -> Result<&'static Task, Errno> {
    let task = make(None, birth, fs, clear_tid, like).ok_or(EAGAIN)?;
    let me = task::current();
    let parent = me.own.leader().unwrap_or(me);
    let process = task.own.process();
    for count in [&process.young, &process.traps, &process.interrupts] {
        count.store(0, Ordering::Relaxed);
    }
    process.dying.store(0, Ordering::Relaxed);
    process.meanwhile.set(meanwhile);
    let opened = match me.own.leader() {
        Some(leader) => {
            process.files.copy_from(leader.own.process().files());
            Ok(())
        }
        None => process.files.start(),
    };
    if let Err(error) = opened {
        // It never ran, and no other task knows it.
        task.own.abandon();
        task::put(task);
        return Err(error);
    }
    family(|| {
        process.set_parent(Some(parent));
        process
            .sibling
            .set(parent.own.process().child.replace(Some(task)));
        process.threads.set(1);
        process.ending.set(None);
        process.usage.set(Usage::default());
        process.children.set(Usage::default());
        process.ended.set(false);
    });
    task.get_ref();
    Ok(task)
}

/// Makes another thread of the caller's process; not if that has begun to end.
pub(crate) fn add_thread(birth: Birth, fs: u64, clear_tid: u64) -> Result<&'static Task, Errno> {
    let me = task::current();
    let process = of(me);
    let task = make(Some(leader(me)), birth, fs, clear_tid, Some(me)).ok_or(EAGAIN)?;
    family(|| process.threads.set(process.threads.get() + 1));
    Ok(task)
}

/// Whether `task` is its process's last thread.
pub(super) fn is_last(task: &Task) -> bool {
    family(|| of(task).threads.get() == 1)
}

/// Ends the process of `me`, the caller: its other threads end when they would return to the
/// program, and whatever they wait for is over. The first one to say how it ends is right.
pub(super) fn end(me: &Task, ending: Ending) {
    let process = of(me);
    family(|| {
        if process.ending.get().is_none() {
            process.ending.set(Some(ending));
        }
    });
    process.dying.store(1, Ordering::Relaxed);
    let leader = leader(me);
    if family(|| process.threads.get()) == 1 {
        return;
    }
    let threads = task::all().iter().filter(|task| is_of(task, leader));
    for other in threads.filter(|task| task.id() != me.id()) {
        sched::unpark(other);
        sched::disturb(other);
    }
}

/// The caller is no thread any more: it has no address space, and ends. With the last one, its
/// process has ended.
pub(super) fn thread_ended(me: &'static Task) {
    let leader = leader(me);
    let process = leader.own.process();
    let last = family(|| {
        process.threads.set(process.threads.get() - 1);
        process.threads.get() == 0
    });
    if last {
        process.files.close_all();
    }
    let parent = family(|| {
        if !last {
            return None;
        }
        // Children that this process has not reaped are freed when they end.
        let mut child = process.child.take();
        while let Some(task) = child {
            let orphan = task.own.process();
            orphan.set_parent(None);
            if orphan.ended.take() {
                task::put(task);
            }
            child = orphan.sibling.take();
        }
        let parent = process.parent.get();
        if parent.is_some() {
            process.ended.set(true);
        } else {
            task::put(leader);
        }
        parent
    });
    if me.id() != leader.id() {
        me.own.set_leader(None);
    }
    if let Some(parent) = parent {
        wake_process(parent);
    }
}

/// Wakes all threads of the process whose first task is `leader`: one of them may wait for a child.
fn wake_process(leader: &'static Task) {
    sched::unpark(leader);
    if family(|| leader.own.process().threads.get()) > 1 {
        for thread in task::all().iter().filter(|task| is_of(task, leader)) {
            sched::unpark(thread);
        }
    }
}

/// Whether `task` is a thread of the process whose first task is `leader`.
fn is_of(task: &Task, leader: &Task) -> bool {
    task.own.leader().is_some_and(|it| it.id() == leader.id())
}

/// What the caller's process has used: of threads that have not ended, the caller's time, and the
/// faults of each until it gave its CPU away last.
pub(crate) fn usage_of_process() -> Usage {
    let me = task::current();
    me.own.note_faults(me);
    let leader = leader(me);
    let running = task::all().iter().filter(|task| is_of(task, leader));
    let running = Usage {
        ns: usage_of_thread().ns,
        faults: running.map(|task| task.own.faults()).sum(),
    };
    family(|| of(me).usage.get()).with(running)
}

/// What the children of the caller's process have used that it has waited for.
pub(crate) fn usage_of_children() -> Usage {
    family(|| of(task::current()).children.get())
}

/// What the caller's thread has used.
pub(crate) fn usage_of_thread() -> Usage {
    let me = task::current();
    let own = &me.own;
    own.note_faults(me);
    Usage {
        ns: own.ran(machine::now_ns()),
        faults: own.faults(),
    }
}

/// Waits for a child of the caller's process, or of the caller, to end; `None` if none has ended
/// and `at_once` is set, or the caller's process ends.
///
/// # Errors
/// `ECHILD` where there is no such child.
pub(crate) fn wait(whom: Whom, at_once: bool) -> Result<Option<Reaped>, Errno> {
    let me = task::current();
    let parent = me.own.leader().unwrap_or(me);
    loop {
        if let Some(task) = family(|| take_ended(parent, whom))? {
            let process = task.own.process();
            let reaped = Reaped {
                number: number(task),
                ending: process.ending.get().unwrap_or(Ending::Exited(0)),
                usage: process.usage.get().with(process.children.get()),
                seen: process.seen(),
            };
            task::put(task);
            return Ok(Some(reaped));
        }
        if at_once || me.own.leader().is_some() && of(me).is_dying() {
            return Ok(None);
        }
        super::park_until(None);
    }
}

/// Starts `child`, which has the caller's address space, and waits until it has not: it has ended,
/// or this process, `mine`, begins to.
pub(crate) fn start_and_await(child: &'static Task, mine: &Process) {
    let process = child.own.process();
    // Another thread may reap it; the reference keeps its task from being used again.
    child.get_ref();
    sched::start(child);
    while family(|| process.threads.get()) != 0 && !mine.is_dying() {
        super::park_until(None);
    }
    task::put(child);
}

/// Takes a child of `parent` out of its family that has ended. The caller has the family lock.
fn take_ended(parent: &Task, whom: Whom) -> Result<Option<&'static Task>, Errno> {
    let mut found = Err(ECHILD);
    let mut link = &parent.own.process().child;
    while let Some(task) = link.get() {
        let process = task.own.process();
        if whom_is(whom, task) {
            found = Ok(None);
            if process.ended.take() {
                process.set_parent(None);
                let used = process.usage.get().with(process.children.get());
                let children = &parent.own.process().children;
                children.set(children.get().with(used));
                link.set(process.sibling.take());
                return Ok(Some(task));
            }
        }
        link = &process.sibling;
    }
    found
}

fn whom_is(whom: Whom, task: &Task) -> bool {
    match whom {
        Whom::Any => true,
        Whom::Number(wanted) => number(task) == wanted,
    }
}

/// Ends all processes, whose threads wait for each other or for nothing; false if a thread sleeps
/// for another reason. Called on the only CPU when it has nothing to do, now or ever.
pub(crate) fn end_those_that_wait() -> bool {
    let asleep = || task::threads().filter(|task| task.state() == State::Asleep);
    if asleep().any(|task| !task.own.waits()) || asleep().next().is_none() {
        return false;
    }
    say!("minflt: all threads wait, and none can be woken: their processes end");
    for task in asleep() {
        let process = of(task);
        family(|| {
            if process.ending.get().is_none() {
                process.ending.set(Some(Ending::Forgotten));
            }
        });
        process.dying.store(1, Ordering::Relaxed);
        sched::unpark(task);
    }
    true
}

/// Ends all processes, and waits until no thread is left. The caller is no thread of one.
fn end_all() {
    loop {
        let mut any = false;
        for task in task::threads() {
            if task.is_taken() {
                any = true;
                // It may end, and have none, right now.
                if let Some(leader) = task.own.leader() {
                    leader.own.process().dying.store(1, Ordering::Relaxed);
                    sched::unpark(task);
                    sched::disturb(task);
                }
            }
        }
        if !any {
            return;
        }
        Kernel::pass();
    }
}

/// Runs the program in `image` with `args` (the name first) to its end.
pub(crate) fn run(
    sys: &'static System<Kernel>,
    image: &'static [u8],
    args: Args,
    meanwhile: Meanwhile,
) -> Outcome {
    let failed = |errno| Outcome {
        ending: Ending::NotLoaded(LoadError::Memory(errno)),
        unbalanced: None,
        seen: Seen::default(),
    };
    let mm = match sys.new_mm() {
        Ok(mm) => mm,
        Err(error) => return failed(Errno::from(error)),
    };
    let reaped = match run_in(&mm, image, args, meanwhile) {
        Ok(reaped) => reaped,
        Err(errno) => return failed(errno),
    };
    end_all();
    let here: [&Mm<Kernel>; 1] = [&mm];
    let left = sys.check_ledger(&here).err();
    drop(mm);
    Outcome {
        ending: reaped.ending,
        unbalanced: left.or_else(|| sys.check_ledger(&[]).err()),
        seen: reaped.seen,
    }
}

fn run_in(
    mm: &MmHandle<'static, Kernel>,
    image: &'static [u8],
    args: Args,
    meanwhile: Meanwhile,
) -> Result<Reaped, Errno> {
    let birth = Birth {
        mm: mm.share(),
        start: Start::Program(image, args),
    };
    let task = start(birth, 0, 0, None, meanwhile)?;
    let whom = Whom::Number(number(task));
    sched::start(task);
    wait(whom, false)?.ok_or(EAGAIN)
}
