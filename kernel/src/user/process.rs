//! Processes: threads that share an address space and end together; parents and children.
//!
//! A process lies in the task of its first thread, which is not used again before the process was
//! waited for. Its number is that thread's.
//!
//! Parents and children, counts of threads and how processes ended are under one lock.
//! Linux: `tasklist_lock`.

mod first;
mod life;
mod lookup;
mod wait;

use core::cell::Cell;

use linux_raw_sys::general as abi;
use minflt_mm::{MmHandle, Unbalanced};
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

use super::creds::Creds;
use super::ending::Ending;
use super::exec::Running;
use super::signal::{self, For};
use crate::fs::numbers::Numbers;
use crate::fs::path::Node;
use crate::machine::Kernel;
use crate::shared::Once;
use crate::task::{self, Task};
use crate::watch::Watchers;

pub(crate) use first::{end_those_that_wait, look_at_alarms, run};
pub(crate) use life::{add_thread, start};
pub(super) use life::{end, end_others, is_last, thread_ended};
pub(crate) use lookup::{
    all, each_of_group, find, find_thread, is_orphaned, is_thread_of, number, of, parent_number,
    process_number, set_group_of, usage_of, usage_of_children, usage_of_process, usage_of_thread,
};
pub(crate) use wait::{News, Reaped, What, Whom, start_and_await, wait};

use lookup::{FIRST, child_info};
use wait::Done;

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
    /// A stop or continuation that was not waited for yet.
    news: Cell<Option<News>>,
    /// What its parent is sent when it ends; 0 for nothing.
    exit_signal: Cell<u32>,
    /// 1 while it is stopped.
    stopped: Atomic<u32, Kernel>,
    /// How many SIGCONT it got. Written under the family lock.
    continues: Atomic<u32, Kernel>,
    /// 1 while it has the address space of its parent, which waits for that.
    borrows: Atomic<u32, Kernel>,
    /// 1 once it has run another program than its parent.
    has_executed: Atomic<u32, Kernel>,
    /// Threads of it that wait for a child.
    watchers: Watchers,
    /// Its group, and its session. Written under the family lock.
    group: Atomic<u32, Kernel>,
    session: Atomic<u32, Kernel>,
    creds: SpinLock<Creds, WaitLock, Kernel>,
    place: SpinLock<Place, WaitLock, Kernel>,
    program: SpinLock<Program, WaitLock, Kernel>,
    signals: signal::Shared,
    /// When it is sent SIGALRM, and then how often; 0 for never.
    alarm: [Atomic<u64, Kernel>; 2],
    /// When it began.
    began_ns: Atomic<u64, Kernel>,
    /// Set before it starts.
    meanwhile: Cell<Meanwhile>,
    /// Its open files.
    files: Numbers,
    young: Atomic<u64, Kernel>,
    traps: Atomic<u64, Kernel>,
    interrupts: Atomic<u64, Kernel>,
}

/// Where a process is in the tree of names, and what it makes there.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where relative paths begin; none while it has not begun.
    pub(crate) folder: Option<Node>,
    /// Rights that new files are not to have.
    pub(crate) umask: u32,
}

/// What a process runs.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its address space; none when it has ended.
    pub(crate) mm: Option<MmHandle<'static, Kernel>>,
    /// The file that it came from.
    pub(crate) file: Option<Running>,
    /// Where its arguments and its environment are.
    pub(crate) arguments: [u64; 2],
    /// The same of its environment.
    pub(crate) environment: [u64; 2],
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
            news: Cell::new(None),
            exit_signal: Cell::new(0),
            stopped: Atomic::new(0),
            continues: Atomic::new(0),
            borrows: Atomic::new(0),
            has_executed: Atomic::new(0),
            watchers: Watchers::new(),
            group: Atomic::new(0),
            session: Atomic::new(0),
            creds: SpinLock::new(Creds::ROOT),
            place: SpinLock::new(Place {
                folder: None,
                umask: 0o22,
            }),
            program: SpinLock::new(Program {
                mm: None,
                file: None,
                arguments: [0; 2],
                environment: [0; 2],
            }),
            signals: signal::Shared::new(),
            alarm: [Atomic::new(0), Atomic::new(0)],
            began_ns: Atomic::new(0),
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

    /// Whether its last thread has ended, and it was not waited for.
    pub(crate) fn has_ended(&self) -> bool {
        family(|| self.ended.get())
    }

    /// Its parent's number.
    pub(crate) fn parent_number(&self) -> u32 {
        self.parent_number.load(Ordering::Relaxed)
    }

    /// Its open files.
    pub(crate) const fn files(&self) -> &Numbers {
        &self.files
    }

    /// What it knows of signals.
    pub(crate) const fn signals(&self) -> &signal::Shared {
        &self.signals
    }

    /// Whom it acts for.
    pub(crate) fn creds(&self) -> Creds {
        *self.creds.lock()
    }

    /// Has it act for others.
    pub(crate) fn set_creds(&self, creds: Creds) {
        *self.creds.lock() = creds;
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> Node {
        let folder = self.place.lock().folder.as_ref().map(Node::share);
        folder.unwrap_or_else(Node::root)
    }

    /// Sets where it is.
    pub(crate) fn set_folder(&self, folder: Node) {
        let before = self.place.lock().folder.replace(folder);
        drop(before);
    }

    /// Rights that its new files are not to have.
    pub(crate) fn umask(&self) -> u32 {
        self.place.lock().umask
    }

    /// Sets those; what they were.
    pub(crate) fn set_umask(&self, umask: u32) -> u32 {
        core::mem::replace(&mut self.place.lock().umask, umask)
    }

    /// What it runs.
    pub(crate) fn with_program<R>(&self, work: impl FnOnce(&mut Program) -> R) -> R {
        work(&mut self.program.lock())
    }

    /// Its address space, unless it has ended.
    pub(crate) fn mm(&self) -> Option<MmHandle<'static, Kernel>> {
        self.with_program(|program| program.mm.as_ref().map(MmHandle::share))
    }

    /// It runs another program; what it ran. Its parent may use its own address space again.
    pub(crate) fn set_program(&self, program: Program) -> Program {
        let before = self.with_program(|slot| core::mem::replace(slot, program));
        self.has_executed.store(1, Ordering::Relaxed);
        self.give_back_mm();
        before
    }

    /// Its parent may use its address space again, if it had that one.
    fn give_back_mm(&self) {
        if self.borrows.swap(0, Ordering::Relaxed) == 1
            && let Some(parent) = family(|| self.parent.get())
        {
            parent.own.process().watchers.wake();
        }
    }

    /// Whether it runs another program than its parent.
    pub(crate) fn has_executed(&self) -> bool {
        self.has_executed.load(Ordering::Relaxed) == 1
    }

    /// Its group.
    pub(crate) fn group(&self) -> u32 {
        self.group.load(Ordering::Relaxed)
    }

    /// Its session.
    pub(crate) fn session(&self) -> u32 {
        self.session.load(Ordering::Relaxed)
    }

    /// Puts it into a group, and into that session. The caller has checked that it may be.
    pub(crate) fn set_group(&self, group: u32, session: u32) {
        family(|| {
            self.group.store(group, Ordering::Relaxed);
            self.session.store(session, Ordering::Relaxed);
        });
    }

    /// When it is sent SIGALRM, and then how often.
    pub(crate) const fn alarm(&self) -> &[Atomic<u64, Kernel>; 2] {
        &self.alarm
    }

    /// When it began.
    pub(crate) fn began_ns(&self) -> u64 {
        self.began_ns.load(Ordering::Relaxed)
    }

    /// Threads that have not ended.
    pub(crate) fn threads(&self) -> u32 {
        family(|| self.threads.get())
    }

    /// Its threads that have not ended.
    fn each(&self) -> impl Iterator<Item = &'static Task> {
        task::threads().filter(|task| {
            let leader = task.own.leader();
            let mine = leader.is_some_and(|it| core::ptr::eq(it.own.process(), self));
            mine && task.own.is_alive()
        })
    }

    /// The first of its threads that is wanted.
    pub(crate) fn find_thread(&self, wanted: impl Fn(&Task) -> bool) -> Option<&'static Task> {
        self.each().find(|task| wanted(task))
    }

    /// Does something with each of its threads.
    pub(crate) fn each_thread(&self, work: impl Fn(&'static Task)) {
        self.each().for_each(work);
    }

    /// Ends it, wherever its threads are.
    pub(crate) fn kill(&self) {
        family(|| {
            if self.ending.get().is_none() {
                self.ending.set(Some(Ending::Killed(abi::SIGKILL)));
            }
        });
        self.dying.store(1, Ordering::Relaxed);
        self.stopped.store(0, Ordering::Relaxed);
        self.each_thread(signal::alert);
    }

    /// Whether it is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) == 1
    }

    /// How many SIGCONT it got.
    pub(crate) fn continues(&self) -> u32 {
        self.continues.load(Ordering::Relaxed)
    }

    /// Stops it, unless it was told to go on since `continues` was read, before the signal was
    /// taken: its threads sleep when they would return to the program.
    pub(crate) fn stop(&self, signal: u32, continues: u32) {
        let stops = family(|| {
            self.continues() == continues && self.stopped.swap(1, Ordering::Relaxed) == 0
        });
        if stops {
            self.tell_parent(News::Stopped(signal));
            self.each_thread(signal::alert);
        }
    }

    /// It goes on, if it was stopped.
    pub(crate) fn go_on(&self) {
        let was = family(|| {
            self.continues.add(1, Ordering::Relaxed);
            self.stopped.swap(0, Ordering::Relaxed) == 1
        });
        if was {
            self.tell_parent(News::GoesOn);
            self.each_thread(signal::alert);
        }
    }

    fn tell_parent(&self, news: News) {
        /// `SA_NOCLDSTOP`.
        const NOT_OF_STOPS: u64 = 1;
        let parent = family(|| {
            self.news.set(Some(news));
            self.parent.get()
        });
        let Some(parent) = parent else { return };
        let theirs = parent.own.process();
        if parent.own.leader().is_some()
            && theirs.signals().action(abi::SIGCHLD).flags & NOT_OF_STOPS == 0
            && let Some(me) = self.leader()
        {
            signal::send_at_once(For::Process(parent), child_info(me, Done::Else(news)));
        }
        theirs.watchers.wake();
    }

    /// Its first task.
    fn leader(&self) -> Option<&'static Task> {
        task::threads().find(|task| core::ptr::eq(task.own.process(), self))
    }

    /// Sleeps while it is stopped; whether it was. The caller is one of its threads.
    pub(crate) fn stays_stopped(&self) -> bool {
        let was = self.is_stopped();
        while self.is_stopped() && !self.is_dying() {
            super::park_until(None);
        }
        was
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
        // Orphans are the kernel's children, as are the processes that it has started.
        let by_program = parent.filter(|parent| parent.own.leader().is_some());
        let number = by_program.map_or(FIRST, number);
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
