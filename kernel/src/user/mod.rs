//! Threads of programs: what a task has as one, and its life.

pub(crate) mod creds;
pub(crate) mod ending;
pub(crate) mod exec;
pub(crate) mod futex;
pub(crate) mod process;
pub(crate) mod signal;

use core::cell::{Cell, UnsafeCell};

use minflt_mm::{Mm, MmHandle};
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock, TaskId};
use x86_64::VirtAddr;
use x86_64::registers::model_specific::FsBase;

use crate::arch::fpu::{self, FpuState};
use crate::arch::serial::say;
use crate::arch::trap::{Trap, UserContext};
use crate::arch::uaccess;
use crate::calls::{self, Caller, Reply};
use crate::linux;
use crate::loader::LoadError;
use crate::machine::{self, Kernel};
use crate::sched;
use crate::space::Space;
use crate::stack::Args;
use crate::task::{self, Task};
use ending::Ending;
use exec::Image;
use process::{Meanwhile, Process, Usage};
use signal::OfThread;
use signal::deliver::{self, Cut};

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
    /// 1 from when it is made until it has ended.
    alive: Atomic<u32, Kernel>,
    /// 1 when it is to end before its process does.
    ends: Atomic<u32, Kernel>,
    /// What it is called, without zeros behind.
    name: SpinLock<[u8; NAME], WaitLock, Kernel>,
    /// When the sleep ends that `restart_syscall` goes on with, and where the rest of it is told.
    restart: Cell<(u64, u64)>,
    /// What it knows of signals.
    signals: OfThread,
    /// The process, of the first thread.
    process: Process,
}

/// Bytes of a thread's name, with a zero. Linux: `TASK_COMM_LEN`.
pub(crate) const NAME: usize = 16;

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
    /// It loads the program that its first argument names.
    Program(Args),
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
            alive: Atomic::new(0),
            ends: Atomic::new(0),
            name: SpinLock::new([0; NAME]),
            restart: Cell::new((0, 0)),
            signals: OfThread::new(),
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

    /// Whether it is a thread that has not ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed) == 1
    }

    /// It is to end before its process does; the caller alerts it.
    fn end_soon(&self) {
        self.ends.store(1, Ordering::Relaxed);
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed) == 1
    }

    /// What it is called.
    pub(crate) fn name(&self) -> [u8; NAME] {
        *self.name.lock()
    }

    /// Sets that, cut where it is too long.
    pub(crate) fn set_name(&self, name: &[u8]) {
        let mut bytes = [0; NAME];
        let len = name.len().min(NAME - 1);
        bytes[..len].copy_from_slice(&name[..len]);
        *self.name.lock() = bytes;
    }

    /// The sleep that `restart_syscall` goes on with. The caller is the thread.
    pub(crate) const fn restart(&self) -> &Cell<(u64, u64)> {
        &self.restart
    }

    /// What it knows of signals.
    pub(crate) const fn signals(&self) -> &OfThread {
        &self.signals
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
        self.alive.store(0, Ordering::Relaxed);
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
    own.ends.store(0, Ordering::Relaxed);
    own.set_name(&like.map_or([0; NAME], |like| like.own.name()));
    own.signals.begin(like.map(|like| &like.own.signals));
    if let (None, Some(like)) = (leader, like) {
        own.signals.copy_stack(&like.own.signals);
    }
    own.alive.store(1, Ordering::Relaxed);
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

/// Whether the caller's thread is to end, or to look at a signal: a sleep that a signal may end is
/// over. A task that is no thread of a program is never interrupted.
pub(crate) fn is_interrupted() -> bool {
    let me = task::current();
    match me.own.leader() {
        Some(leader) => {
            me.own.ends()
                || leader.own.process().is_dying()
                || leader.own.process().is_stopped()
                || signal::is_ready()
        }
        None => false,
    }
}

/// To be called now and then by what may take long, holding nothing: others get their turn. False
/// if the caller's thread is to end, and so should the call.
pub(crate) fn may_go_on() -> bool {
    if sched::turn_is_over() {
        sched::give_way();
    }
    let me = task::current();
    let process = me.own.leader().map(|leader| leader.own.process());
    !me.own.ends() && process.is_none_or(|process| !process.is_dying())
}

/// What becomes of a thread.
enum After {
    /// It ends, and its process so, if it does by that.
    Ends(Option<Ending>),
    /// It runs another program.
    Runs(Image),
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
    let (mut mm, mut start) = (mm, Some(start));
    let mut entry = None;
    loop {
        let next = {
            let thread = mm.thread();
            let space = Space::of_program(&thread, &mm);
            let after = space.enter(|| {
                let context = match (start.take(), entry.take()) {
                    (Some(start), _) => first_context(&space, start),
                    (None, Some((entry, stack))) => Ok(UserContext::new(entry, stack)),
                    (None, None) => panic!("a thread goes on nowhere"),
                };
                let after = match context {
                    Ok(mut context) => live(&space, process, &mut context),
                    Err(error) => After::Ends(Some(Ending::NotLoaded(error))),
                };
                if let After::Ends(Some(ending)) = &after {
                    process::end(me, *ending);
                }
                futex::thread_ends(me);
                after
            });
            process.count_thread(Usage {
                ns: me.own.ran(machine::now_ns()),
                faults: thread.faults(),
            });
            me.own.begin_again();
            match after {
                After::Ends(_) => None,
                After::Runs(image) => Some(image),
            }
        };
        match next {
            None => break,
            Some(image) => {
                // The old address space goes with its last handle, here.
                mm = image.mm;
                entry = Some((image.entry, image.stack));
            }
        }
    }
    me.own.is_user.set(false);
    me.own.alive.store(0, Ordering::Relaxed);
    drop(mm);
    process::thread_ended(me);
}

impl Own {
    /// What it has used was counted. The caller is the thread.
    fn begin_again(&self) {
        self.faults.store(0, Ordering::Relaxed);
        self.ran_ns.set(0);
        self.since_ns.set(machine::now_ns());
    }
}

fn first_context(space: &Space<'_>, start: Start) -> Result<UserContext, LoadError> {
    match start {
        Start::Program(args) => {
            let (entry, stack) = exec::first(space, &args)?;
            fpu::reset_running();
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

/// Runs the thread until it ends, its process does, or it is to run another program.
fn live(space: &Space<'_>, process: &Process, context: &mut UserContext) -> After {
    let meanwhile = process.meanwhile();
    let own = &task::current().own;
    let mut interrupted = false;
    let mut cut = None;
    loop {
        if process.is_dying() || own.ends() {
            return After::Ends(None);
        }
        if own.signals.has_attention() || cut.is_some() {
            if let Some(ending) = deliver::deliver(process, context, cut.take()) {
                return After::Ends(Some(ending));
            }
            continue;
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
        let raised = match trap {
            Trap::Syscall(number, args) => {
                let caller = Caller {
                    space,
                    process,
                    context,
                };
                let reply = calls::call(&caller, number, args);
                match answer(context, number, reply) {
                    Ok(ended_early) => cut = ended_early,
                    Err(after) => return after,
                }
                if meanwhile == Meanwhile::Age {
                    process.count_young(space.mm().age(Mm::<Kernel>::user_range()));
                }
                None
            }
            Trap::PageFault(addr, access) => match space.fault(addr, access) {
                Ok(()) => None,
                Err(fault) => Some((Ending::Faulted(fault, access), addr)),
            },
            Trap::Exception(vector) => Some((Ending::Exception(vector), context.rip())),
            Trap::Interrupt => None,
        };
        if let Some((ending, addr)) = raised {
            let ended = match ending.info(addr) {
                Some(info) => deliver::force(process, info, ending),
                None => Some(ending),
            };
            if let Some(ending) = ended {
                say_why(ending, context);
                return After::Ends(Some(ending));
            }
        }
    }
}

/// Has the program see what a call came to: how the call is to begin again, if a signal has ended
/// it early; or what becomes of the thread.
fn answer(context: &mut UserContext, number: u64, reply: Reply) -> Result<Option<Cut>, After> {
    match reply {
        Reply::Return(Ok(value)) => context.set_result(value),
        Reply::Return(Err(errno)) if linux::is_cut(errno) => {
            return Ok(Some(Cut { number, how: errno }));
        }
        Reply::Return(Err(errno)) => context.set_result(linux::failed(errno)),
        Reply::FromHandler => {
            if let Err(ending) = deliver::return_from_handler(context) {
                return Err(After::Ends(Some(ending)));
            }
        }
        Reply::Execute(image) => return Err(After::Runs(image)),
        Reply::ExitThread(status) => {
            let last = process::is_last(task::current());
            return Err(After::Ends(last.then_some(Ending::Exited(status))));
        }
        Reply::Exit(status) => return Err(After::Ends(Some(Ending::Exited(status)))),
    }
    Ok(None)
}

/// Says why a program ends, in the kernel's log.
fn say_why(ending: Ending, context: &UserContext) {
    let registers = context.registers();
    say!(
        "{ending}: address {:#x}, ip {:#x}, error code {:#x}",
        registers.address,
        registers.rip,
        registers.error
    );
}
