//! Tasks: the contexts that CPUs run, as locks, traps and the scheduler see them.
//!
//! Each CPU has one of its own from the start: the boot CPU's runs `kmain`, the others' do what
//! `crew.rs` gives them. Another one per CPU, its idle task, runs while no other is ready
//! (`sched::idle`). The
//! rest are threads of programs (`user/`). The running task is found through GS.
//!
//! A task's memory and its stack stay for ever, and are used again: others may look at the `Cx` of
//! a task that has ended.

use core::cell::{Cell, UnsafeCell};
use core::{ptr, slice};

use minflt_addr::Pfn;
use minflt_mm::{Mm, System};
use minflt_pgtable::{Facts, X86_64};
use minflt_sync::{Atomic, Cx, Machine, Ordering, TaskId};
use x86_64::instructions::interrupts;

use crate::acpi::MAX_CPUS;
use crate::arch::kernel_map::{self, TASK_STACK_PAGES};
use crate::arch::paging::{self, PAGE};
use crate::arch::{gdt, switch};
use crate::frames;
use crate::machine::Kernel;
use crate::sched;
use crate::shared::{Flag, Once, StaticWord};
use crate::space::Space;
use crate::user::Own;

static ALL: Once<&'static [Task]> = Once::new();

static FIRST_THREAD: StaticWord = StaticWord::new(0);

/// Tasks that have ended, those that ended first in front.
static FREE: Free = Free {
    lock: Flag::new(),
    list: UnsafeCell::new((None, None)),
};

/// The most threads of programs at a time.
const MAX_THREADS: u64 = 512;
/// The most tasks of all kinds, and one.
pub(crate) const MOST: usize = 2 * MAX_CPUS + MAX_THREADS as usize + 1;
/// Bytes of RAM for each of them: what is taken at boot is a hundredth of that, and a sixteenth
/// where all have stacks.
const RAM_PER_THREAD: u64 = 1 << 20;
/// Threads of programs that there may always be.
const MIN_THREADS: u64 = 4;

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// There is none.
    Free = 0,
    /// It runs, or waits for a CPU.
    Ready = 1,
    /// It sleeps.
    Asleep = 2,
}

/// One task.
///
/// # Invariants
/// The `Cell`s, also those of `cx`, are touched by the task itself only, by handlers of interrupts
/// that run as it, and by the CPU that switches to it; those that say so, under the lock of the
/// queue that `queue_cpu` names.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Task {
    /// What `sync` remembers.
    pub(crate) cx: Cx,
    /// A [`State`]. Written under its queue's lock.
    state: Atomic<u32, Kernel>,
    /// 1 while a wake token is left.
    token: Atomic<u32, Kernel>,
    /// The CPU in whose queue it is, was or will be.
    queue_cpu: Atomic<u32, Kernel>,
    /// A bit for each CPU that it may run on.
    allowed: Atomic<u64, Kernel>,
    /// The next one in the list that it is in. Guarded by: the lock of its queue.
    next: Cell<Option<&'static Self>>,
    /// Until when it sleeps. Guarded by: the lock of its queue.
    deadline: Cell<Option<u64>>,
    /// Where its stack was left.
    saved: UnsafeCell<u64>,
    /// Pages of its stack that are mapped. Of a free one, touched by the CPU that takes it.
    stack_pages: Cell<u64>,
    /// References: its own until its stack is left, and one of the process that it leads.
    holds: Atomic<u32, Kernel>,
    /// What a new one does.
    entry: Cell<Option<fn()>>,
    /// 1 once its CPU runs.
    up: Atomic<u32, Kernel>,
    /// 1 while there is work for it.
    posted: Atomic<u32, Kernel>,
    /// The address space that traps are served in; null where there is none.
    space: Cell<*const Space<'static>>,
    /// The address space that is loaded while it runs; null for none.
    active: Cell<*const Mm<Kernel>>,
    /// Whether `space::access` keeps that loaded.
    kept: Cell<bool>,
    /// What it has as a thread of a program.
    pub(crate) own: Own,
}

// SAFETY: by the type's invariants.
unsafe impl Sync for Task {}

struct Free {
    lock: Flag,
    /// The first and the last. Guarded by: `lock`.
    list: UnsafeCell<(Option<&'static Task>, Option<&'static Task>)>,
}

// SAFETY: (1) the list is touched under its lock only.
unsafe impl Sync for Free {}

impl Free {
    fn with<R>(
        &self,
        work: impl FnOnce(&mut (Option<&'static Task>, Option<&'static Task>)) -> R,
    ) -> R {
        interrupts::without_interrupts(|| {
            self.lock.take();
            // SAFETY: (1) the lock is held.
            let result = work(unsafe { &mut *self.list.get() });
            self.lock.release();
            result
        })
    }
}

/// Makes two tasks for each of `cpus` CPUs and, as `ram` bytes allow, tasks for threads; the caller
/// is the first of them. Called once, at boot.
pub(crate) fn init(cpus: u32, ram: u64) {
    let threads = (ram / RAM_PER_THREAD).clamp(MIN_THREADS, MAX_THREADS);
    let count = 2 * u64::from(cpus) + threads;
    let bytes = size_of::<Task>() as u64 * count;
    let Some(frames) = frames::take_run(bytes.div_ceil(PAGE)) else {
        panic!("no memory for the kernel's tasks");
    };
    let base = paging::direct(frames).cast::<Task>();
    for index in 0..count as u32 {
        let task = Task {
            cx: Cx::new(TaskId(index + 1), index % cpus),
            state: Atomic::new(State::Free as u32),
            token: Atomic::new(0),
            queue_cpu: Atomic::new(index % cpus),
            allowed: Atomic::new(u64::MAX),
            next: Cell::new(None),
            deadline: Cell::new(None),
            saved: UnsafeCell::new(0),
            stack_pages: Cell::new(0),
            holds: Atomic::new(0),
            entry: Cell::new(None),
            up: Atomic::new(0),
            posted: Atomic::new(0),
            space: Cell::new(ptr::null()),
            active: Cell::new(ptr::null()),
            kept: Cell::new(false),
            own: Own::new(),
        };
        // SAFETY: (1) within the frames.
        let at = unsafe { base.add(index as usize) };
        // SAFETY: (1) the frames were taken for this, and are aligned to more than a task.
        unsafe { at.write(task) };
    }
    // SAFETY: (1) all were written above, and the frames are never given back.
    let tasks: &'static [Task] = unsafe { slice::from_raw_parts(base, count as usize) };
    ALL.set(tasks);
    kernel_map::prepare_task_stacks(count as u32);
    FIRST_THREAD.store(2 * cpus, Ordering::Relaxed);
    adopt(0);
    for cpu in 0..cpus {
        let idler = &tasks[(cpus + cpu) as usize];
        idler.pin(cpu);
        idler.begin(sched::idle);
        sched::set_idler(cpu, idler);
    }
    for task in &tasks[2 * cpus as usize..] {
        give_back(task);
    }
}

/// How many tasks are none of a program's threads: they have the lowest numbers.
pub(crate) fn first_thread() -> u32 {
    FIRST_THREAD.load(Ordering::Relaxed)
}

/// Makes the task of CPU `cpu`, the caller, the one that runs.
pub(crate) fn adopt(cpu: u32) {
    let task = of_cpu(cpu);
    task.pin(cpu);
    task.set_state(State::Ready);
    sched::set_running(cpu, task);
    gdt::set_task(task);
    // ORDERING: Release; pairs with [kernel-up].
    task.up.store(1, Ordering::Release);
}

/// The task that CPU `cpu` has of its own.
pub(crate) fn of_cpu(cpu: u32) -> &'static Task {
    match find(TaskId(cpu + 1)) {
        Some(task) => task,
        None => panic!("there is no CPU {cpu}"),
    }
}

/// The running task.
#[inline(always)]
pub(crate) fn current() -> &'static Task {
    // SAFETY: (1) set by `adopt` before anything asks, to a task that stays.
    unsafe { &*gdt::task() }
}

/// The task called `id`, or `None` where there never was one.
pub(crate) fn find(id: TaskId) -> Option<&'static Task> {
    all().get((id.0 as usize).wrapping_sub(1))
}

/// All of them, those that have ended too.
pub(crate) fn all() -> &'static [Task] {
    ALL.get().copied().unwrap_or(&[])
}

/// Takes a task that is free, for a thread that begins with `entry`; `None` where there is none, or
/// no memory for its stack. [`sched::start`] has it run.
pub(crate) fn take(entry: fn()) -> Option<&'static Task> {
    let task = FREE.with(|(first, last)| {
        let task = (*first)?;
        *first = task.next.take();
        if first.is_none() {
            *last = None;
        }
        Some(task)
    })?;
    if !task.has_stack() {
        give_back(task);
        return None;
    }
    task.allowed.store(u64::MAX, Ordering::Relaxed);
    task.holds.store(1, Ordering::Relaxed);
    task.begin(entry);
    Some(task)
}

/// Drops a reference; the last one frees the task.
pub(crate) fn put(task: &'static Task) {
    // ORDERING: AcqRel: what each did with it comes before its next use; pairs with [kernel-hold].
    if task.holds.sub(1, Ordering::AcqRel) == 1 {
        give_back(task);
    }
}

/// Those that are threads of programs, or may be.
pub(crate) fn threads() -> impl Iterator<Item = &'static Task> {
    all().iter().skip(first_thread() as usize)
}

/// Gives back the stacks of all threads, for the last account of memory: all have ended, and none
/// is made any more.
pub(crate) fn give_back_stacks(sys: &System<Kernel>) {
    for task in threads() {
        while task.is_taken() {
            Kernel::pass();
        }
        for page in 0..task.stack_pages.replace(0) {
            // SAFETY: (1) its stack was left, and it is not taken again.
            let frame = unsafe { kernel_map::unmap_task_stack_page(task.id().0, page) };
            // SAFETY: (1) `has_stack` took it from there, for this; (2) it was unmapped.
            unsafe { sys.free_pages(Pfn(frame / PAGE)) };
        }
    }
}

/// `task` has no reference: it may be used again.
fn give_back(task: &'static Task) {
    FREE.with(|(first, last)| {
        task.next.set(None);
        match last.replace(task) {
            Some(last) => last.next.set(Some(task)),
            None => *first = Some(task),
        }
    });
}

/// Where each task but the CPUs' own begins, when it gets a CPU for the first time.
#[unsafe(no_mangle)]
extern "C" fn task_main() -> ! {
    sched::arrive();
    interrupts::enable();
    if let Some(entry) = current().entry.take() {
        entry();
    }
    sched::exit()
}

impl Task {
    /// Its number.
    pub(crate) const fn id(&self) -> TaskId {
        self.cx.task.get()
    }

    /// Whether it is a CPU's idle task: their numbers follow those of the CPUs' own.
    pub(crate) fn is_idler(&self) -> bool {
        let threads = first_thread();
        self.id().0 > threads / 2 && self.id().0 <= threads
    }

    /// The number of the CPU that it runs on. The caller is the task.
    #[inline(always)]
    pub(crate) const fn cpu(&self) -> u32 {
        self.cx.cpu.get()
    }

    /// The CPU in whose queue it is, was or will be.
    pub(crate) fn queue_cpu(&self) -> u32 {
        // ORDERING: Acquire; pairs with [kernel-queue].
        self.queue_cpu.load(Ordering::Acquire)
    }

    /// It goes to another queue. The caller has taken it out of the one before.
    pub(crate) fn set_queue_cpu(&self, cpu: u32) {
        // ORDERING: Release; pairs with [kernel-queue].
        self.queue_cpu.store(cpu, Ordering::Release);
    }

    /// What it does. A hint without its queue's lock.
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Free,
            1 => State::Ready,
            _ => State::Asleep,
        }
    }

    /// The caller has the lock of its queue, or the task is its own.
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Relaxed);
    }

    /// Its link. The caller has the lock of its queue.
    pub(crate) const fn next(&self) -> &Cell<Option<&'static Self>> {
        &self.next
    }

    /// Until when it sleeps. The caller has the lock of its queue.
    pub(crate) const fn deadline(&self) -> &Cell<Option<u64>> {
        &self.deadline
    }

    /// Where its stack pointer is saved when it is left.
    pub(crate) const fn stack_pointer(&self) -> *mut u64 {
        self.saved.get()
    }

    /// Where its stack was left. The caller has taken it out of a queue, to run it.
    pub(crate) fn saved_pointer(&self) -> u64 {
        // SAFETY: (1) its CPU wrote it before it gave the queue's lock back.
        unsafe { *self.saved.get() }
    }

    /// Whether it may run on CPU `cpu`.
    pub(crate) fn may_run_on(&self, cpu: u32) -> bool {
        self.allowed() >> cpu & 1 == 1
    }

    /// A bit for each CPU that it may run on.
    pub(crate) fn allowed(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    /// It runs on these CPUs from its next turn on, one of which there must be.
    pub(crate) fn allow(&self, cpus: u64) {
        self.allowed.store(cpus, Ordering::Relaxed);
    }

    fn pin(&self, cpu: u32) {
        self.allow(1 << cpu);
        self.set_queue_cpu(cpu);
        self.cx.cpu.set(cpu);
    }

    /// Whether it has a stack; it gets one if there is memory. Sleeps for that.
    fn has_stack(&self) -> bool {
        while self.stack_pages.get() < TASK_STACK_PAGES {
            let Some(frame) = frames::take_one() else {
                return false;
            };
            let page = self.stack_pages.get();
            // SAFETY: (1) just taken; (2) tables were made for all tasks; the pages are counted.
            unsafe { kernel_map::map_task_stack_page(self.id().0, page, frame) };
            self.stack_pages.set(page + 1);
        }
        true
    }

    /// Whether it has references.
    pub(crate) fn is_taken(&self) -> bool {
        // ORDERING: Acquire; pairs with [kernel-hold].
        self.holds.load(Ordering::Acquire) != 0
    }

    /// Takes another reference.
    pub(crate) fn get_ref(&self) {
        self.holds.add(1, Ordering::Relaxed);
    }

    /// Puts it where it begins.
    fn begin(&self, entry: fn()) {
        assert!(self.has_stack(), "no memory for the stack of a task");
        self.entry.set(Some(entry));
        self.token.store(0, Ordering::Relaxed);
        self.set_state(State::Ready);
        // SAFETY: (1), (2) its stack, which no CPU is on: it is new, or was left when it ended.
        let start = unsafe { switch::prepare(kernel_map::task_stack_top(self.id().0)) };
        // SAFETY: (1) no CPU runs it.
        unsafe { *self.saved.get() = start };
    }

    /// Whether its CPU runs.
    pub(crate) fn is_up(&self) -> bool {
        // ORDERING: Acquire; pairs with [kernel-up].
        self.up.load(Ordering::Acquire) == 1
    }

    /// Says that there is work for it; it is to be woken.
    pub(crate) fn post(&self) {
        // ORDERING: Release of the work; pairs with [kernel-post].
        self.posted.store(1, Ordering::Release);
    }

    /// Whether there is work for it still.
    pub(crate) fn is_posted(&self) -> bool {
        // ORDERING: Acquire of the work, or of what it did; pairs with [kernel-post].
        self.posted.load(Ordering::Acquire) == 1
    }

    /// Says that the work is done; whoever posted it is to be woken. The caller is the task.
    pub(crate) fn done(&self) {
        // ORDERING: Release of what the work did; pairs with [kernel-post].
        self.posted.store(0, Ordering::Release);
    }

    /// Takes the wake token; whether there was one.
    pub(crate) fn take_token(&self) -> bool {
        // ORDERING: Acquire of what came before the token; pairs with [kernel-token].
        self.token.swap(0, Ordering::Acquire) == 1
    }

    /// Leaves a wake token.
    pub(crate) fn leave_token(&self) {
        // ORDERING: Release of what came before; pairs with [kernel-token].
        self.token.swap(1, Ordering::Release);
    }

    /// The address space that is loaded while it runs. The caller is the task, or switches to it.
    pub(crate) fn active(&self) -> Option<&Mm<Kernel>> {
        // SAFETY: (1) the task clears it before the address space ends.
        unsafe { self.active.get().as_ref() }
    }

    /// The physical address of that one's root, 0 for none.
    pub(crate) fn root(&self) -> u64 {
        self.active()
            .map_or(0, |mm| mm.root_table().phys(X86_64::SHIFT).0)
    }

    /// Has `mm` loaded while it runs, from its next turn on. The caller is the task, and takes it
    /// back before `mm` ends.
    pub(crate) fn set_active(&self, mm: Option<&Mm<Kernel>>) {
        self.active.set(mm.map_or(ptr::null(), ptr::from_ref));
    }

    /// Whether `space::access` keeps an address space loaded. The caller is the task.
    pub(crate) const fn kept(&self) -> &Cell<bool> {
        &self.kept
    }

    /// Lets `space` be found by traps while `work` runs. The caller is the task.
    pub(crate) fn with_space<R>(&self, space: &Space<'_>, work: impl FnOnce() -> R) -> R {
        let outer = self.space.replace(ptr::from_ref(space).cast());
        assert!(outer.is_null(), "a task has one address space at a time");
        let result = work();
        self.space.set(ptr::null());
        result
    }

    /// The address space that [`Task::with_space`] was given. The caller is the task.
    pub(crate) fn space(&self) -> Option<&Space<'_>> {
        // SAFETY: (1) `with_space` borrows it until it takes the pointer back, and a trap's handler
        // returns before that; the longer lifetime the pointer has is cut to this borrow's.
        unsafe { self.space.get().as_ref() }
    }
}
