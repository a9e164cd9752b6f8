//! Processes and threads by their numbers, by their groups, and what they have used.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;
use minflt_sync::TaskId;

use super::super::signal::Info;
use super::wait::Done;
use super::{Process, Usage, family};
use crate::linux::ESRCH;
use crate::machine;
use crate::task::{self, Task};

/// The process that `task`, a thread of one, belongs to.
pub(crate) fn of(task: &Task) -> &'static Process {
    leader(task).own.process()
}

pub(super) fn leader(task: &Task) -> &'static Task {
    match task.own.leader() {
        Some(leader) => leader,
        None => panic!("{:?} is no thread of a program", task.id()),
    }
}

/// The number of the process that all others come from, which here is the kernel itself.
pub(crate) const FIRST: u32 = 1;

/// The number that programs know a thread by, and a process by its first one.
pub(crate) fn number(task: &Task) -> u32 {
    task.id().0 - task::first_thread() + FIRST
}

/// The first task of the process with that number, unless it was waited for.
pub(crate) fn find(wanted: u32) -> Option<&'static Task> {
    let id = wanted
        .checked_sub(FIRST)?
        .checked_add(task::first_thread())?;
    let task = task::find(TaskId(id)).filter(|_| wanted > FIRST)?;
    task.own.leader().filter(|leader| leader.id() == task.id())
}

/// The thread with that number, of a process that is there.
pub(crate) fn find_thread(wanted: u32) -> Option<&'static Task> {
    let id = wanted
        .checked_sub(FIRST)?
        .checked_add(task::first_thread())?;
    let task = task::find(TaskId(id)).filter(|_| wanted > FIRST)?;
    task.own.leader().is_some().then_some(task)
}

/// The first tasks of all processes that were not waited for.
pub(crate) fn all() -> impl Iterator<Item = &'static Task> {
    task::threads().filter(|task| {
        let leader = task.own.leader();
        leader.is_some_and(|leader| leader.id() == task.id())
    })
}

/// Whether `task` is a thread, that has not ended, of the process whose first task is `leader`.
pub(crate) fn is_thread_of(task: &Task, leader: &Task) -> bool {
    is_of(task, leader) && task.own.is_alive()
}

/// Whether the group of `process` is orphaned, so that nothing would continue it: no process of its
/// session that is in another group has a child in it.
pub(crate) fn is_orphaned(process: &Process) -> bool {
    let (group, session) = (process.group(), process.session());
    !all().any(|task| {
        let member = task.own.process();
        let parent = family(|| member.parent.get()).filter(|it| it.own.leader().is_some());
        member.group() == group
            && parent.is_some_and(|parent| {
                let theirs = parent.own.process();
                theirs.group() != group && theirs.session() == session
            })
    })
}

/// What SIGCHLD tells about `child`.
pub(super) fn child_info(child: &Task, done: Done) -> Info {
    let process = child.own.process();
    let (code, status) = done.code_and_status();
    let uid = u64::from(process.creds().real_uid);
    let ticks = family(|| process.usage.get()).ns / 10_000_000;
    Info {
        number: abi::SIGCHLD,
        code,
        words: [
            u64::from(number(child)) | uid << 32,
            u64::from(status),
            ticks,
            0,
        ],
    }
}

/// The number of the process that `task` belongs to.
pub(crate) fn process_number(task: &Task) -> u32 {
    number(leader(task))
}

/// The number of the parent of the process that `task` belongs to; 0 if it is none.
pub(crate) fn parent_number(task: &Task) -> u32 {
    of(task).parent_number()
}

/// Whether `task` is a thread of the process whose first task is `leader`.
pub(super) fn is_of(task: &Task, leader: &Task) -> bool {
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

/// What the process has used whose first task is `leader`: of threads that have not ended, the
/// faults of each until it gave its CPU away last, and no time.
pub(crate) fn usage_of(leader: &Task) -> Usage {
    let running = task::all().iter().filter(|task| is_of(task, leader));
    let running = Usage {
        ns: 0,
        faults: running.map(|task| task.own.faults()).sum(),
    };
    family(|| leader.own.process().usage.get()).with(running)
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

/// Does something with each process of a group; whether there is one.
pub(crate) fn each_of_group(group: u32, mut work: impl FnMut(&'static Task)) -> bool {
    let mut any = false;
    for task in all().filter(|task| task.own.process().group() == group) {
        any = true;
        work(task);
    }
    any
}

/// Has a group of the caller's session, or a new one, take the process with that number.
///
/// # Errors
/// As setpgid has them.
pub(crate) fn set_group_of(wanted: u32, group: u32) -> Result<(), Errno> {
    let me = task::current();
    let mine = of(me);
    let task = if wanted == 0 {
        leader(me)
    } else {
        find(wanted).ok_or(ESRCH)?
    };
    let process = task.own.process();
    let is_child = family(|| process.parent.get()).is_some_and(|it| it.id() == leader(me).id());
    if task.id() != leader(me).id() && !is_child {
        return Err(ESRCH);
    }
    if process.session() != mine.session() || process.session() == number(task) {
        return Err(Errno::EPERM);
    }
    if is_child && process.has_executed() {
        return Err(Errno::EACCES);
    }
    let group = if group == 0 { number(task) } else { group };
    let there = all().any(|it| {
        let other = it.own.process();
        other.group() == group && other.session() == mine.session()
    });
    if group != number(task) && !there {
        return Err(Errno::EPERM);
    }
    process.set_group(group, mine.session());
    Ok(())
}
