//! Threads of programs: what a task has as one, and its life.

pub(crate) mod ending;
pub(crate) mod files;
pub(crate) mod futex;
pub(crate) mod process;

use core::cell::{Cell, UnsafeCell};

use minflt_mm::{Mm, MmHandle};
use minflt_sync::{Atomic, Ordering, TaskId};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::FsBase;

use crate::arch::fpu::FpuState;
use crate::arch::serial::say;
use crate::arch::trap::{Trap, UserContext};
use crate::arch::uaccess;
use crate::calls::{self, Caller, Reply};
use crate::loader::{self, LoadError};
use crate::machine::{self, Kernel};
use crate::sched;
use crate::space::Space;
use crate::stack::{self, Args};
use crate::task::{self, Task};
use ending::Ending;
use process::{Meanwhile, Process, Usage};

/// What a task has as a thread of a program.
///
/// # Invariants
/// What is in `Cell`s is the thread's own, but for `birth`, which its creator writes before it is
/// started.
#[derive(Debug)]
pub(crate) struct Own {
    /// Its registers that the kernel does not use, while it has no CPU.
    fpu: FpuState,
    /// Whether it is one.
    is_user: Cell<bool>,
    /// The base of FS.
    fs: Cell<u64>,
    /// Faults that it took, until it gave its CPU away last.
    faults: Atomic<u64, Kernel>,
    /// How long it had a CPU, until it got one last.
    ran_ns: Cell<u64>,
    /// When it got that.
    since_ns: Cell<u64>,
    /// What it begins with.
    birth: UnsafeCell<Option<Birth>>,
    /// The number of the task whose process it belongs to, the first one; 0 if it is no thread.
    leader: Atomic<u32, Kernel>,
    /// Where its number is cleared when it ends; 0 for nowhere.
    clear_tid: Cell<u64>,
    /// The program's list of locks that it holds; 0 for none.
    robust_list: Cell<u64>,
    /// Its place among those that wait for a word.
    waiter: futex::Waiter,
    /// 1 while it sleeps as its program asked for. Written by the thread.
    waits: Atomic<u32, Kernel>,
    /// The process, of the first thread.
    process: Process,
}

/// What a thread begins with.
#[derive(Debug)]
pub(crate) struct Birth {
    /// Its address space.
    pub(crate) mm: MmHandle<'static, Kernel>,
    /// What it does.
    pub(crate) start: Start,
}

/// What a thread does at first.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "each thread has room for one, whichever it is"
)]
pub(crate) enum Start {
    /// It loads a program.
    Program(&'static [u8], Args),
    /// It goes on as another thread was, and stores its number there, if that is not 0.
    Copy(UserContext, u64),
}

impl Own {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            fpu: FpuState::new(),
            is_user: Cell::new(false),
            fs: Cell::new(0),
            faults: Atomic::new(0),
            ran_ns: Cell::new(0),
            since_ns: Cell::new(0),
            birth: UnsafeCell::new(None),
            leader: Atomic::new(0),
            clear_tid: Cell::new(0),
            robust_list: Cell::new(0),
            waiter: futex::Waiter::new(),
            waits: Atomic::new(0),
            process: Process::new(),
        }
    }

    /// Lets others see the faults of `me`, whose own this is.
    pub(crate) fn note_faults(&self, me: &Task) {
        if let Some(space) = me.space() {
            let faults = space.thread().faults();
            self.faults.store(faults, Ordering::Relaxed);
        }
    }

    /// Faults that it took, until it gave its CPU away last.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// How long it had a CPU, at the time `now`. The caller is the thread.
    pub(crate) fn ran(&self, now: u64) -> u64 {
        self.ran_ns.get() + now.saturating_sub(self.since_ns.get())
    }

    /// The base of FS. The caller is the thread.
    pub(crate) fn fs(&self) -> u64 {
        self.fs.get()
    }

    /// Sets the base of FS. The caller is the thread.
    pub(crate) fn set_fs(&self, base: u64) {
        self.fs.set(base);
        FsBase::write(VirtAddr::new_truncate(base));
    }

    /// Where its number is cleared when it ends.
    pub(crate) const fn clear_tid(&self) -> &Cell<u64> {
        &self.clear_tid
    }

    /// Its list of locks.
    pub(crate) const fn robust_list(&self) -> &Cell<u64> {
        &self.robust_list
    }

    /// Its place among those that wait for a word.
    pub(crate) const fn waiter(&self) -> &futex::Waiter {
        &self.waiter
    }

    /// Whether it sleeps as its program asked for, and the process's end wakes it.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed) == 1
    }

    /// The process, if the task is a first thread.
    pub(crate) const fn process(&self) -> &Process {
        &self.process
    }

    /// The task whose process it belongs to.
    pub(crate) fn leader(&self) -> Option<&'static Task> {
        task::find(TaskId(self.leader.load(Ordering::Relaxed)))
    }

    /// It never begins: what it would have begun with is freed. The caller has not started it.
    pub(crate) fn abandon(&self) {
        self.is_user.set(false);
        self.set_leader(None);
        // SAFETY: (1) the task does not run.
        drop(unsafe { (*self.birth.get()).take() });
    }

    /// Names that task.
    pub(crate) fn set_leader(&self, leader: Option<&Task>) {
        let number = leader.map_or(0, |leader| leader.id().0);
        self.leader.store(number, Ordering::Relaxed);
    }
}

/// Makes a thread of `leader`'s process, `None` for a process of its own; `None` where there is no
/// task or no memory for it. [`sched::start`] has it run.
///
/// With `like`, the caller's own task, it has the same registers.
pub(crate) fn make(
    leader: Option<&'static Task>,
    birth: Birth,
    fs: u64,
    clear_tid: u64,
    like: Option<&Task>,
) -> Option<&'static Task> {
    let task = task::take(begin)?;
    let own = &task.own;
    match like {
        Some(like) => {
            // SAFETY: (1) the caller's own, and that of a task that does not run yet.
            unsafe { like.own.fpu.save() };
            // SAFETY: (1) as above.
            unsafe { own.fpu.copy_from(&like.own.fpu) };
        }
        // SAFETY: (1) the task does not run yet.
        None => unsafe { own.fpu.copy_from(&FpuState::new()) },
    }
    own.is_user.set(true);
    own.fs.set(fs);
    own.set_leader(Some(leader.unwrap_or(task)));
    own.clear_tid.set(clear_tid);
    own.robust_list.set(0);
    own.faults.store(0, Ordering::Relaxed);
    own.ran_ns.set(0);
    // SAFETY: (1) the task does not run yet.
    unsafe { *own.birth.get() = Some(birth) };
    Some(task)
}

/// Sleeps as the caller's program asks for, like [`sched::park_until`].
pub(crate) fn park_until(deadline: Option<u64>) {
    let waits = &task::current().own.waits;
    waits.store(1, Ordering::Relaxed);
    sched::park_until(deadline);
    waits.store(0, Ordering::Relaxed);
}

/// Changes the registers that the kernel does not use from one task's to another's, if they are
/// threads of programs, at the time `now`. Called by the scheduler, with interrupts off.
pub(crate) fn exchange(from: &Task, to: &Task, now: u64) {
    if from.own.is_user.get() {
        from.own.ran_ns.set(from.own.ran(now));
        from.own.note_faults(from);
        // SAFETY: (1) the task that is left, on its CPU.
        unsafe { from.own.fpu.save() };
    }
    if to.own.is_user.get() {
        to.own.since_ns.set(now);
        // SAFETY: (1), (2) the task that is entered.
        unsafe { to.own.fpu.load() };
        FsBase::write(VirtAddr::new_truncate(to.own.fs.get()));
    }
}

/// The life of a thread.
fn begin() {
    let me = task::current();
    // SAFETY: (1) written before the task was started, and taken once.
    let birth = unsafe { (*me.own.birth.get()).take() };
    let Some(Birth { mm, start }) = birth else {
        panic!("a thread begins with nothing");
    };
    let process = process::of(me);
    {
        let thread = mm.thread();
        let space = Space::of_program(&thread, &mm);
        space.enter(|| {
            let ended = match first_context(&space, start) {
                Ok(mut context) => live(&space, process, &mut context),
                Err(error) => Some(Ending::NotLoaded(error)),
            };
            if let Some(ending) = ended {
                process::end(me, ending);
            }
            futex::thread_ends(me);
        });
        process.count_thread(Usage {
            ns: me.own.ran(machine::now_ns()),
            faults: thread.faults(),
        });
        me.own.faults.store(0, Ordering::Relaxed);
    }
    me.own.is_user.set(false);
    drop(mm);
    process::thread_ended(me);
}

fn first_context(space: &Space<'_>, start: Start) -> Result<UserContext, LoadError> {
    match start {
        Start::Program(image, args) => {
            let entry = loader::load(space, image)?;
            let stack = stack::build(space.mm(), &args, entry)?;
            Ok(UserContext::new(entry, stack))
        }
        Start::Copy(context, set_tid) => {
            if set_tid != 0 {
                // A bad address is the program's affair, as on Linux.
                let _ = uaccess::store_u32(set_tid, process::number(task::current()));
            }
            Ok(context)
        }
    }
}

/// Runs the thread until it ends, or its process does. How the process ends, if it does by this
/// thread.
fn live(space: &Space<'_>, process: &Process, context: &mut UserContext) -> Option<Ending> {
    let meanwhile = process.meanwhile();
    let mut interrupted = false;
    loop {
        if process.is_dying() {
            return None;
        }
        // Else it is looked for on the way to the program.
        if interrupted && sched::turn_is_over() {
            sched::give_way();
        }
        let trap = if meanwhile == Meanwhile::Interrupt && !interrupted {
            context.run_interrupted()
        } else {
            context.run()
        };
        interrupted = matches!(trap, Trap::Interrupt);
        // Only where it is read: all threads share the words.
        if meanwhile != Meanwhile::Nothing {
            process.count(interrupted);
        }
        match trap {
            Trap::Syscall(number, args) => {
                let caller = Caller {
                    space,
                    process,
                    context,
                };
                match calls::call(&caller, number, args) {
                    Reply::Return(value) => context.set_result(value),
                    Reply::ExitThread(status) => {
                        return process::is_last(task::current()).then_some(Ending::Exited(status));
                    }
                    Reply::Exit(status) => return Some(Ending::Exited(status)),
                }
                if meanwhile == Meanwhile::Age {
                    process.count_young(space.mm().age(Mm::<Kernel>::user_range()));
                }
            }
            Trap::PageFault(addr, access) => {
                if let Err(signal) = space.fault(addr, access) {
                    say!("fault at {addr:#x}, ip {:#x}, {access:?}", context.rip());
                    return Some(Ending::Faulted(signal, access));
                }
            }
            Trap::Exception(vector, error) => {
                say!(
                    "exception {vector}, ip {:#x}, error code {error:#x}",
                    context.rip()
                );
                return Some(Ending::Exception(vector));
            }
            Trap::Interrupt => {}
        }
    }
}
