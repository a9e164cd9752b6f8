//! How processes and their threads begin, and how they end.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;
use minflt_sync::Ordering;

use super::super::creds::Creds;
use super::super::ending::Ending;
use super::super::exec::Running;
use super::super::signal::{self, For, Info};
use super::super::{Birth, make, park_until};
use super::lookup::{child_info, is_of, leader, number, of};
use super::wait::Done;
use super::{Meanwhile, Process, Program, Usage, family};
use crate::fs::numbers::AtExec;
use crate::fs::path::Node;
use crate::fs::tty;
use crate::linux::EAGAIN;
use crate::machine;
use crate::task::{self, Task};

/// Starts a process of one thread, whose parent is the caller's process, or the caller.
pub(crate) fn start(
    birth: Birth,
    fs: u64,
    clear_tid: u64,
    like: Option<&Task>,
    (meanwhile, exit_signal): (Meanwhile, u32),
) -> Result<&'static Task, Errno> {
    let mm = birth.mm.share();
    let task = make(None, birth, fs, clear_tid, like).ok_or(EAGAIN)?;
    let me = task::current();
    let parent = me.own.leader().unwrap_or(me);
    let process = task.own.process();
    for count in [&process.young, &process.traps, &process.interrupts] {
        count.store(0, Ordering::Relaxed);
    }
    for flag in [
        &process.dying,
        &process.stopped,
        &process.borrows,
        &process.has_executed,
    ] {
        flag.store(0, Ordering::Relaxed);
    }
    process
        .alarm
        .iter()
        .for_each(|at| at.store(0, Ordering::Relaxed));
    process.began_ns.store(machine::now_ns(), Ordering::Relaxed);
    process.meanwhile.set(meanwhile);
    let inherited = match me.own.leader() {
        Some(leader) => process.inherit(leader.own.process()),
        None => process.begin(number(task)),
    };
    if let Err(error) = inherited {
        // It never ran, and no other task knows it.
        process.leave();
        task.own.abandon();
        task::put(task);
        return Err(error);
    }
    process.with_program(|program| program.mm = Some(mm));
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
        process.news.set(None);
        process.exit_signal.set(exit_signal);
    });
    task.get_ref();
    Ok(task)
}

impl Process {
    /// What a child has of its parent, besides memory.
    fn inherit(&self, parent: &Self) -> Result<(), Errno> {
        self.set_creds(parent.creds());
        let (folder, umask) = (parent.folder(), parent.umask());
        self.set_folder(folder);
        self.set_umask(umask);
        let file = parent.with_program(|it| it.file.as_ref().map(Running::node));
        // It runs, so it is not open to be written.
        let file = file.and_then(|node| Running::new(node).ok());
        let program = parent.with_program(|it| Program {
            mm: None,
            file,
            arguments: it.arguments,
            environment: it.environment,
        });
        let _nothing = self.with_program(|slot| core::mem::replace(slot, program));
        self.set_group(parent.group(), parent.session());
        self.signals.fork_from(&parent.signals);
        self.files.copy_from(&parent.files)
    }

    /// What a process has that the kernel starts: the console as its input, output and errors, and
    /// a group and a session of its own.
    fn begin(&self, number: u32) -> Result<(), Errno> {
        self.set_creds(Creds::ROOT);
        self.set_folder(Node::root());
        self.set_umask(0o22);
        self.set_group(number, number);
        tty::set_front(number);
        self.signals.begin();
        let console = crate::fs::console()?;
        for _ in 0..3 {
            self.files.add(console.share(), 0, AtExec::Kept)?;
        }
        Ok(())
    }

    /// It has no threads any more: gives back what is not memory.
    fn leave(&self) {
        self.files.close_all();
        let folder = self.place.lock().folder.take();
        drop(folder);
        let (mm, file) = self.with_program(|it| (it.mm.take(), it.file.take()));
        drop((mm, file));
        self.give_back_mm();
        self.signals.forget();
        self.alarm
            .iter()
            .for_each(|at| at.store(0, Ordering::Relaxed));
    }
}

/// Makes another thread of the caller's process; not if that has begun to end.
pub(crate) fn add_thread(birth: Birth, fs: u64, clear_tid: u64) -> Result<&'static Task, Errno> {
    let me = task::current();
    let process = of(me);
    if me.own.ends() {
        return Err(EAGAIN);
    }
    let task = make(Some(leader(me)), birth, fs, clear_tid, Some(me)).ok_or(EAGAIN)?;
    family(|| process.threads.set(process.threads.get() + 1));
    Ok(task)
}

/// Whether `task` is its process's last thread.
pub(in crate::user) fn is_last(task: &Task) -> bool {
    family(|| of(task).threads.get() == 1)
}

/// Ends the process of `me`, the caller: its other threads end when they would return to the
/// program, and whatever they wait for is over. The first one to say how it ends is right.
pub(in crate::user) fn end(me: &Task, ending: Ending) {
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
        signal::alert(other);
    }
}

/// Ends all threads of the caller's process but the caller's, and waits until they have ended.
///
/// # Errors
/// `EAGAIN` where the caller's is not the first one, whose number would have to become its own;
/// `EINTR` where the process ends meanwhile.
pub(in crate::user) fn end_others() -> Result<(), Errno> {
    let me = task::current();
    let process = of(me);
    if process.threads() == 1 && leader(me).id() == me.id() {
        return Ok(());
    }
    if leader(me).id() != me.id() {
        return Err(EAGAIN);
    }
    let mark_others = || {
        process.each_thread(|other| {
            if other.id() != me.id() {
                other.own.end_soon();
                signal::alert(other);
            }
        });
    };
    while process.threads() > 1 {
        if process.is_dying() {
            return Err(crate::linux::EINTR);
        }
        process.watchers.watch();
        // Each time: one of them may just have made another.
        mark_others();
        if process.threads() > 1 {
            park_until(None);
        }
    }
    Ok(())
}

/// The caller is no thread any more: it has no address space, and ends. With the last one, its
/// process has ended.
pub(in crate::user) fn thread_ended(me: &'static Task) {
    let leader = leader(me);
    let process = leader.own.process();
    me.own.signals().forget();
    let left = family(|| {
        process.threads.set(process.threads.get() - 1);
        process.threads.get()
    });
    if left > 0 {
        process.watchers.wake();
        // What was to come to the process may have been left to this thread.
        if process.signals().is_pending() {
            process.each_thread(signal::alert);
        }
        if me.id() != leader.id() {
            me.own.set_leader(None);
        }
        return;
    }
    process.leave();
    leader.own.signals().forget();
    let done = Done::Ended(family(|| process.ending.get()).unwrap_or(Ending::Exited(0)));
    let info = child_info(leader, done);
    let (parent, exit_signal) = family(|| (process.parent.get(), process.exit_signal.get()));
    let keeps = parent.is_some_and(|parent| keeps_ended(parent, exit_signal));
    let parent = family(|| {
        // Children that this process has not reaped are freed when they end.
        let mut child = process.child.take();
        while let Some(task) = child {
            let orphan = task.own.process();
            orphan.set_parent(None);
            let next = orphan.sibling.take();
            if orphan.ended.take() {
                task.own.set_leader(None);
                task::put(task);
            }
            child = next;
        }
        let parent = process.parent.get();
        match parent {
            // The parent ignores SIGCHLD: it need not wait for the child.
            Some(parent) if !keeps => {
                take_out(parent, leader);
                process.set_parent(None);
                leader.own.set_leader(None);
                task::put(leader);
            }
            Some(_) => process.ended.set(true),
            None => {
                leader.own.set_leader(None);
                task::put(leader);
            }
        }
        parent
    });
    if me.id() != leader.id() {
        me.own.set_leader(None);
    }
    if let Some(parent) = parent {
        if exit_signal != 0 && parent.own.leader().is_some() {
            let info = Info {
                number: exit_signal,
                ..info
            };
            // What it tells is lost where there is no memory for it.
            let _lost = signal::send(For::Process(parent), info);
        }
        wake_process(parent);
    }
}

/// Whether a process that has ended is kept for its parent to wait for it. The caller does not have
/// the family lock.
fn keeps_ended(parent: &Task, exit_signal: u32) -> bool {
    /// `SA_NOCLDWAIT`.
    const NOT_WAITED_FOR: u64 = 2;
    /// `SIG_IGN`.
    const IGNORE: u64 = 1;
    if parent.own.leader().is_none() || exit_signal != abi::SIGCHLD {
        return true;
    }
    let action = parent.own.process().signals().action(abi::SIGCHLD);
    action.handler != IGNORE && action.flags & NOT_WAITED_FOR == 0
}

/// Takes a child out of its parent's list. The caller has the family lock.
fn take_out(parent: &Task, child: &Task) {
    let mut link = &parent.own.process().child;
    while let Some(task) = link.get() {
        if task.id() == child.id() {
            link.set(task.own.process().sibling.take());
            return;
        }
        link = &task.own.process().sibling;
    }
}

/// Wakes those threads of the process whose first task is `leader` that wait for a child.
fn wake_process(leader: &'static Task) {
    leader.own.process().watchers.wake();
}
