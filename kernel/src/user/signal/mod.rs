//! Signals: sending, queues of pending ones, actions and masks.
//!
//! # Problem
//! A signal is sent to a thread, or to a process, one of whose threads takes it; the sender may run
//! on another CPU, or be an interrupt. The thread sleeps, runs the program, or is in a call that
//! must end early; and the mask that holds a signal back is its own.
//!
//! # Idea
//! What is to come is a set, with a list of what is to be told about each, for each thread and each
//! process. The sender adds to it, sets the thread's `attention`, wakes it, and interrupts its CPU.
//! The thread looks at `attention` before it returns to the program and before each sleep that a
//! signal may end; only then does it look at sets and masks.
//!
//! # Why it is correct
//! *Nothing is missed*: the sender adds to the set, then sets `attention`; the thread clears
//! `attention`, then looks at the sets. Both are exchanges, so one of them sees the other. A thread
//! that is about to enter the program has interrupts off and finds that its turn is over
//! ([`sched::disturb`]), or is interrupted in the program. *A mask that is opened* makes the thread
//! itself look again.
//!
//! # Cost
//! A load on the way to the program.
//!
//! Linux: kernel/signal.c.

pub(crate) mod deliver;
pub(crate) mod frame;
mod pending;

use linux_raw_sys::general as abi;
use minflt_mm::Errno;
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

use super::process::{self, Process};
use crate::linux::EAGAIN;
use crate::machine::Kernel;
use crate::pool::Ref;
use crate::sched;
use crate::task::{self, Task};
use pending::{POOL, Pending, Queued, free};

/// The highest number.
pub(crate) const MOST: u32 = 64;
/// The lowest number of those that are queued each time that they are sent.
const FIRST_QUEUED: u32 = abi::SIGRTMIN;
/// The most that are queued in all. Linux: `RLIMIT_SIGPENDING`, by user.
const MOST_QUEUED: u64 = 4096;

/// `SIG_DFL`.
const DEFAULT: u64 = 0;
/// `SIG_IGN`.
const IGNORE: u64 = 1;

/// Some signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(pub(crate) u64);

impl Set {
    /// Those that cannot be held back, nor handled.
    const ALWAYS: Self = Self::of(&[abi::SIGKILL, abi::SIGSTOP]);
    /// Those that stop a process.
    const STOPS: Self = Self::of(&[abi::SIGSTOP, abi::SIGTSTP, abi::SIGTTIN, abi::SIGTTOU]);
    /// Those that are nothing to a process that does not handle them.
    const QUIET: Self = Self::of(&[abi::SIGCONT, abi::SIGCHLD, abi::SIGWINCH, abi::SIGURG]);
    /// Those that a program's own instruction raises; they come first.
    const OWN: Self = Self::of(&[
        abi::SIGSEGV,
        abi::SIGBUS,
        abi::SIGILL,
        abi::SIGTRAP,
        abi::SIGFPE,
        abi::SIGSYS,
    ]);

    const fn of(numbers: &[u32]) -> Self {
        let mut set = 0;
        let mut index = 0;
        while index < numbers.len() {
            set |= 1 << (numbers[index] - 1);
            index += 1;
        }
        Self(set)
    }

    /// Whether it is among them.
    pub(crate) const fn has(self, number: u32) -> bool {
        self.0 >> (number - 1) & 1 == 1
    }

    /// With all of the others.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without the others.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn one(number: u32) -> Self {
        Self(1 << (number - 1))
    }

    /// As a mask: without what cannot be held back.
    pub(crate) const fn as_mask(self) -> Self {
        self.without(Self::ALWAYS)
    }
}

/// What a signal tells: the beginning of `siginfo_t`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Info {
    /// The signal.
    pub(crate) number: u32,
    /// Why it comes.
    pub(crate) code: i32,
    /// What the C library has at byte 16 and behind it, whose meaning depends on `code`.
    pub(crate) words: [u64; 4],
}

/// `SI_USER`: by kill.
pub(crate) const BY_KILL: i32 = 0;
/// `SI_TKILL`: by tkill or tgkill.
pub(crate) const BY_TKILL: i32 = -6;
/// `SI_KERNEL`: by the kernel.
pub(crate) const BY_KERNEL: i32 = 0x80;

impl Info {
    /// From the caller's process.
    pub(crate) fn from_me(number: u32, code: i32) -> Self {
        let me = task::current();
        let uid = process::of(me).creds().real_uid;
        let pid = u64::from(process::process_number(me));
        Self {
            number,
            code,
            words: [pid | u64::from(uid) << 32, 0, 0, 0],
        }
    }

    /// From the kernel, about an address.
    pub(crate) const fn at(number: u32, code: i32, addr: u64) -> Self {
        Self {
            number,
            code,
            words: [addr, 0, 0, 0],
        }
    }

    /// From the kernel, about nothing.
    pub(crate) const fn plain(number: u32) -> Self {
        Self {
            number,
            code: BY_KERNEL,
            words: [0; 4],
        }
    }
}

/// What a process does about a signal, as `struct kernel_sigaction`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Action {
    /// The handler, or [`DEFAULT`] or [`IGNORE`].
    pub(crate) handler: u64,
    /// `SA_...`.
    pub(crate) flags: u64,
    /// Where the handler returns to.
    pub(crate) restorer: u64,
    /// What is held back meanwhile.
    pub(crate) mask: Set,
}

impl Action {
    /// Whether the signal is nothing to the process.
    fn ignores(self, number: u32) -> bool {
        self.handler == IGNORE || self.handler == DEFAULT && Set::QUIET.has(number)
    }
}

/// What a process knows of signals.
#[derive(Debug)]
pub(crate) struct Shared {
    actions: SpinLock<[Action; MOST as usize], WaitLock, Kernel>,
    pending: SpinLock<Pending, WaitLock, Kernel>,
}

impl Shared {
    /// Nothing is to come, and nothing handled.
    pub(crate) fn new() -> Self {
        Self {
            actions: SpinLock::new([Action::default(); MOST as usize]),
            pending: SpinLock::new(Pending::new()),
        }
    }

    /// Whether something is to come to the process.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.lock().set.0 != 0
    }

    /// What is done about a signal.
    pub(crate) fn action(&self, number: u32) -> Action {
        self.actions.lock()[number as usize - 1]
    }

    /// Sets that; what it was. Signals that are to come and are nothing any more are dropped.
    pub(crate) fn set_action(&self, process: &Process, number: u32, action: Action) -> Action {
        let before = {
            let mut actions = self.actions.lock();
            core::mem::replace(&mut actions[number as usize - 1], action)
        };
        if action.ignores(number) {
            let gone = Set::one(number);
            free(self.pending.lock().drop_all(gone));
            process.each_thread(|thread| free(thread.own.signals().pending.lock().drop_all(gone)));
        }
        before
    }

    /// A new process: what its parent does about signals, and none to come.
    pub(crate) fn fork_from(&self, parent: &Self) {
        let actions = *parent.actions.lock();
        *self.actions.lock() = actions;
        free(self.pending.lock().close(false));
    }

    /// The kernel's first process, which was not forked.
    pub(crate) fn begin(&self) {
        *self.actions.lock() = [Action::default(); MOST as usize];
        free(self.pending.lock().close(false));
    }

    /// Nothing is to come any more.
    pub(crate) fn forget(&self) {
        free(self.pending.lock().close(true));
    }

    /// Another program: nothing is handled any more, and what was ignored still is.
    pub(crate) fn exec(&self) {
        for action in &mut *self.actions.lock() {
            if action.handler != IGNORE {
                *action = Action::default();
            }
            (action.flags, action.mask) = (0, Set(0));
        }
    }
}

/// What a thread knows of signals.
#[derive(Debug)]
pub(crate) struct OfThread {
    /// 1 when it is to look.
    attention: Atomic<u32, Kernel>,
    /// What it holds back. Written by the thread.
    mask: Atomic<u64, Kernel>,
    pending: SpinLock<Pending, WaitLock, Kernel>,
    /// What it waits for, though it may hold it back. Written by the thread.
    wanted: Atomic<u64, Kernel>,
    /// The mask to go back to after a call that sets another one meanwhile, plus a bit that says
    /// that there is one.
    saved: Atomic<u64, Kernel>,
    has_saved: Atomic<u32, Kernel>,
    /// The stack that handlers may use: where, how long.
    stack: [Atomic<u64, Kernel>; 2],
    stack_flags: Atomic<u32, Kernel>,
}

impl OfThread {
    /// Nothing is to come, and nothing held back.
    pub(crate) fn new() -> Self {
        Self {
            attention: Atomic::new(0),
            mask: Atomic::new(0),
            pending: SpinLock::new(Pending::new()),
            wanted: Atomic::new(0),
            saved: Atomic::new(0),
            has_saved: Atomic::new(0),
            stack: [Atomic::new(0), Atomic::new(0)],
            stack_flags: Atomic::new(abi::SS_DISABLE),
        }
    }

    /// A new process has the stack for handlers of the thread that made it.
    pub(crate) fn copy_stack(&self, parent: &Self) {
        let (at, bytes, flags) = parent.stack();
        self.set_stack(at, bytes, flags);
    }

    /// A new thread, which holds the same back as `parent`.
    pub(crate) fn begin(&self, parent: Option<&Self>) {
        free(self.pending.lock().close(false));
        let mask = parent.map_or(Set(0), Self::mask);
        self.mask.store(mask.0, Ordering::Relaxed);
        self.attention.store(0, Ordering::Relaxed);
        self.has_saved.store(0, Ordering::Relaxed);
        self.set_wanted(Set(0));
        self.set_stack(0, 0, abi::SS_DISABLE);
    }

    /// Nothing is to come any more.
    pub(crate) fn forget(&self) {
        free(self.pending.lock().close(true));
    }

    /// What it holds back.
    pub(crate) fn mask(&self) -> Set {
        Set(self.mask.load(Ordering::Relaxed))
    }

    /// Sets that. The caller is the thread.
    pub(crate) fn set_mask(&self, mask: Set) {
        self.mask.store(mask.as_mask().0, Ordering::Relaxed);
        self.attend();
    }

    /// Sets what it waits for. The caller is the thread.
    pub(crate) fn set_wanted(&self, wanted: Set) {
        // ORDERING: Relaxed: the thread then looks at the lists, under their locks, and a sender
        // that did not see it leaves the signal there.
        self.wanted.store(wanted.0, Ordering::Relaxed);
    }

    fn wants(&self, number: u32) -> bool {
        Set(self.wanted.load(Ordering::Relaxed)).has(number)
    }

    /// Sets it until the call has ended, or until the handler has that it ended with. The caller
    /// is the thread.
    pub(crate) fn set_mask_for_call(&self, mask: Set) {
        self.saved.store(self.mask().0, Ordering::Relaxed);
        self.has_saved.store(1, Ordering::Relaxed);
        self.set_mask(mask);
    }

    /// The mask to go back to, which is used now.
    fn take_saved(&self) -> Option<Set> {
        let has = self.has_saved.swap(0, Ordering::Relaxed) == 1;
        has.then(|| Set(self.saved.load(Ordering::Relaxed)))
    }

    /// It is to look.
    pub(crate) fn attend(&self) {
        // ORDERING: SeqCst; pairs with [kernel-signal].
        self.attention.swap(1, Ordering::SeqCst);
    }

    /// Whether it is to look.
    #[inline(always)]
    pub(crate) fn has_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) == 1
    }

    /// The stack for handlers: where, how long, `SS_...`.
    pub(crate) fn stack(&self) -> (u64, u64, u32) {
        (
            self.stack[0].load(Ordering::Relaxed),
            self.stack[1].load(Ordering::Relaxed),
            self.stack_flags.load(Ordering::Relaxed),
        )
    }

    /// Sets that. The caller is the thread.
    pub(crate) fn set_stack(&self, at: u64, bytes: u64, flags: u32) {
        self.stack[0].store(at, Ordering::Relaxed);
        self.stack[1].store(bytes, Ordering::Relaxed);
        self.stack_flags.store(flags, Ordering::Relaxed);
    }

    /// Whether `sp` is on that stack.
    pub(crate) fn is_on_stack(&self, sp: u64) -> bool {
        let (at, bytes, flags) = self.stack();
        flags & abi::SS_DISABLE == 0 && sp > at && sp - at <= bytes
    }
}

/// What is to come to the caller's thread, of what it holds back.
pub(crate) fn pending_of_me() -> Set {
    let me = task::current();
    let own = me.own.signals();
    Set(all_of(me).0 & own.mask().0)
}

/// Whether something is to come that the caller's thread does not hold back.
pub(crate) fn is_ready() -> bool {
    let me = task::current();
    let own = me.own.signals();
    if !own.has_attention() {
        return false;
    }
    all_of(me).without(own.mask()).0 != 0
}

/// What is to come to a thread, or to its process.
fn all_of(thread: &Task) -> Set {
    let own = thread.own.signals().pending.lock().set;
    let shared = process::of(thread).signals().pending.lock().set;
    own.with(shared)
}

/// Takes one of `wanted` that is to come to the caller's thread, though it may hold it back.
pub(crate) fn take_one_of(wanted: Set) -> Option<Info> {
    let me = task::current();
    let mask = Set(!wanted.0);
    let own = me.own.signals().pending.lock().take(mask);
    let taken = match own {
        Some(taken) => Some(taken),
        None => process::of(me).signals().pending.lock().take(mask),
    };
    taken.map(|(info, node)| {
        drop(node);
        info
    })
}

/// Takes the one that the caller's thread is to handle next.
fn take_next() -> Option<Info> {
    take_one_of(Set(!task::current().own.signals().mask().0))
}

/// The target of a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// The process whose first task it is.
    Process(&'static Task),
    /// That thread.
    Thread(&'static Task),
}

/// What is told of a signal, to be put into a list; `None` where there is no memory for it.
fn node(may_sleep: bool) -> Option<Ref<Queued>> {
    if !may_sleep || POOL.used() >= MOST_QUEUED {
        return None;
    }
    POOL.take().ok()
}

/// Sends a signal. Sleeps.
///
/// # Errors
/// `EAGAIN` where one that must be queued cannot be.
pub(crate) fn send(to: For, info: Info) -> Result<(), Errno> {
    let node = node(true);
    if node.is_none() && info.number >= FIRST_QUEUED && info.code < 0 {
        return Err(EAGAIN);
    }
    send_with(to, info, node);
    Ok(())
}

/// The same from where nothing may sleep: what it tells is lost.
pub(crate) fn send_at_once(to: For, info: Info) {
    send_with(to, info, None);
}

fn send_with(to: For, info: Info, node: Option<Ref<Queued>>) {
    let task = match to {
        For::Process(task) | For::Thread(task) => task,
    };
    let Some(leader) = task.own.leader() else {
        // It has ended.
        return;
    };
    if matches!(to, For::Thread(_)) && !task.own.is_alive() {
        return;
    }
    let process = leader.own.process();
    if process.is_dying() || process.has_ended() {
        return;
    }
    let number = info.number;
    if number == abi::SIGKILL {
        process.kill();
        return;
    }
    if number == abi::SIGCONT {
        free(process.signals().pending.lock().drop_all(Set::STOPS));
        process.each_thread(|it| free(it.own.signals().pending.lock().drop_all(Set::STOPS)));
        process.go_on();
    } else if Set::STOPS.has(number) {
        let gone = Set::one(abi::SIGCONT);
        free(process.signals().pending.lock().drop_all(gone));
        process.each_thread(|it| free(it.own.signals().pending.lock().drop_all(gone)));
    }
    let takes = |thread: &Task| {
        let own = thread.own.signals();
        !own.mask().has(number) || own.wants(number)
    };
    let taker = match to {
        For::Thread(thread) => Some(thread),
        For::Process(leader) if takes(leader) && process::is_thread_of(leader, leader) => {
            Some(leader)
        }
        For::Process(_) => process.find_thread(takes),
    };
    let ignored = process.signals().action(number).ignores(number);
    let quietly = |thread: &Task| takes(thread) && !thread.own.signals().wants(number);
    if ignored && taker.is_some_and(quietly) {
        drop(node);
        return;
    }
    let left = match to {
        For::Thread(thread) => thread.own.signals().pending.lock().add(info, node),
        For::Process(_) => process.signals().pending.lock().add(info, node),
    };
    drop(left);
    if let Some(thread) = taker {
        alert(thread);
    } else {
        // All threads block it: one that unblocks it looks itself, or one waits for it.
        process.each_thread(alert);
    }
}

/// Has a thread look.
pub(crate) fn alert(thread: &'static Task) {
    thread.own.signals().attend();
    sched::unpark(thread);
    sched::disturb(thread);
}

/// How many are left of what is told, for the last account of memory.
pub(crate) fn forget() -> u64 {
    POOL.forget()
}
