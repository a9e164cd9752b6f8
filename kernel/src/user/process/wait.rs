//! wait4 and its like: what children have done, and waiting for it.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;
use minflt_sync::Ordering;

use super::super::ending::Ending;
use super::lookup::number;
use super::{Process, Seen, Usage, family};
use crate::linux::ECHILD;
use crate::sched;
use crate::task::{self, Task};
use crate::watch;

/// What a child has done besides ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It has stopped, by this signal.
    Stopped(u32),
    /// It goes on.
    GoesOn,
}

/// Whom to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Any child.
    Any,
    /// The one with that number.
    Number(u32),
    /// Any of that group.
    Group(u32),
}

/// What of them to wait for, and whether to leave it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct What {
    /// It has ended.
    pub(crate) ended: bool,
    /// It has stopped.
    pub(crate) stopped: bool,
    /// It goes on.
    pub(crate) goes_on: bool,
    /// It can be waited for again.
    pub(crate) stays: bool,
}

impl What {
    /// That it has ended.
    pub(crate) const ENDED: Self = Self {
        ended: true,
        stopped: false,
        goes_on: false,
        stays: false,
    };
}

/// What a child has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It has ended.
    Ended(Ending),
    /// It has done something else.
    Else(News),
}

impl Done {
    /// As `wait4` tells it.
    pub(crate) const fn wait_status(self) -> u32 {
        match self {
            Self::Ended(ending) => ending.wait_status(),
            Self::Else(News::Stopped(signal)) => signal << 8 | 0x7f,
            Self::Else(News::GoesOn) => 0xffff,
        }
    }

    /// As SIGCHLD and `waitid` tell it: a code, and a status.
    pub(crate) const fn code_and_status(self) -> (i32, u32) {
        match self {
            Self::Ended(Ending::Exited(status)) => (1, status as u32 & 0xff),
            Self::Ended(ending) => (2, ending.wait_status() & 0x7f),
            Self::Else(News::Stopped(signal)) => (5, signal),
            Self::Else(News::GoesOn) => (6, abi::SIGCONT),
        }
    }
}

/// A process that was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// Its number.
    pub(crate) number: u32,
    /// Whose it was.
    pub(crate) uid: u32,
    /// What it has done.
    pub(crate) done: Done,
    /// What it has used, and its children that it waited for.
    pub(crate) usage: Usage,
    /// What was seen while it ran.
    pub(crate) seen: Seen,
}

/// Waits for a child of the caller's process, or of the caller, to do that; `None` if none has yet
/// and `at_once` is set.
///
/// # Errors
/// `ECHILD` where there is no such child; that a signal has ended the wait.
pub(crate) fn wait(whom: Whom, what: What, at_once: bool) -> Result<Option<Reaped>, Errno> {
    let me = task::current();
    let parent = me.own.leader().unwrap_or(me);
    let watchers = &parent.own.process().watchers;
    let found = watch::wait(None, || {
        watchers.watch();
        match family(|| look_for(parent, whom, what)) {
            Ok(Some((task, done))) => Some(Ok(Some(reap(parent, task, done, what)))),
            Ok(None) if at_once => Some(Ok(None)),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    });
    found?
}

/// What is to be known of a child, which goes for ever if it has ended.
pub(super) fn reap(parent: &Task, task: &'static Task, done: Done, what: What) -> Reaped {
    let process = task.own.process();
    let used = family(|| process.usage.get().with(process.children.get()));
    let reaped = Reaped {
        number: number(task),
        uid: process.creds().real_uid,
        done,
        usage: used,
        seen: process.seen(),
    };
    if matches!(done, Done::Ended(_)) && !what.stays {
        family(|| {
            let children = &parent.own.process().children;
            children.set(children.get().with(used));
        });
        task.own.set_leader(None);
        task::put(task);
    }
    reaped
}

/// Starts `child`, which has the caller's address space, and waits until it has not: it has ended,
/// or runs another program, or this process, `mine`, begins to end.
pub(crate) fn start_and_await(child: &'static Task, mine: &Process) {
    let process = child.own.process();
    process.borrows.store(1, Ordering::Relaxed);
    // Another thread may reap it; the reference keeps its task from being used again.
    child.get_ref();
    sched::start(child);
    let me = task::current();
    while process.borrows.load(Ordering::Relaxed) == 1 && !mine.is_dying() && !me.own.ends() {
        mine.watchers.watch();
        if process.borrows.load(Ordering::Relaxed) == 1 {
            super::super::park_until(None);
        }
    }
    task::put(child);
}

/// A child of `parent` that has done that: taken out of its family if it has ended, and told of
/// once if not, unless all is to stay. The caller has the family lock.
pub(super) fn look_for(
    parent: &Task,
    whom: Whom,
    what: What,
) -> Result<Option<(&'static Task, Done)>, Errno> {
    let mut found = Err(ECHILD);
    let mut link = &parent.own.process().child;
    while let Some(task) = link.get() {
        let process = task.own.process();
        if whom_is(whom, task) {
            found = Ok(None);
            if what.ended && process.ended.get() {
                let ending = process.ending.get().unwrap_or(Ending::Exited(0));
                if !what.stays {
                    process.ended.set(false);
                    process.set_parent(None);
                    link.set(process.sibling.take());
                }
                return Ok(Some((task, Done::Ended(ending))));
            }
            let news = process.news.get().filter(|news| match news {
                News::Stopped(_) => what.stopped,
                News::GoesOn => what.goes_on,
            });
            if let Some(news) = news.filter(|_| !process.ended.get()) {
                if !what.stays {
                    process.news.set(None);
                }
                return Ok(Some((task, Done::Else(news))));
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
        Whom::Group(wanted) => task.own.process().group() == wanted,
    }
}
