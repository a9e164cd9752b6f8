//! Calls on signals.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::{Caller, time};
use crate::arch::uaccess;
use crate::linux::{EAGAIN, EFAULT, EINTR, EINVAL, ENOMEM, ESRCH, RESTART_IF_QUIET};
use crate::machine;
use crate::task::{self, Task};
use crate::user::process;
use crate::user::signal::{self, Action, BY_KILL, BY_TKILL, For, Info, MOST, Set, frame};
use crate::watch;

/// Bytes of a set of signals.
const SET_BYTES: u64 = 8;

/// The signal with that number; none for 0.
fn number(number: u64) -> Result<Option<u32>, Errno> {
    match number as u32 {
        0 => Ok(None),
        number if number <= MOST => Ok(Some(number)),
        _ => Err(EINVAL),
    }
}

/// Sends the caller's thread a signal that its own call raises.
pub(super) fn raise(number: u32) {
    // What it tells is lost where there is no memory for it.
    let _lost = signal::send(For::Thread(task::current()), Info::from_me(number, BY_KILL));
}

pub(super) fn sigaction(
    caller: &Caller<'_, '_>,
    what: u64,
    new: u64,
    old: u64,
    bytes: u64,
) -> Result<u64, Errno> {
    if bytes != SET_BYTES {
        return Err(EINVAL);
    }
    let number = number(what)?.ok_or(EINVAL)?;
    let signals = caller.process.signals();
    let field = |at: u64, index: u64| at.checked_add(8 * index).ok_or(EFAULT);
    let action = if new == 0 {
        None
    } else {
        Some(Action {
            handler: uaccess::load(new)?,
            flags: uaccess::load(field(new, 1)?)?,
            restorer: uaccess::load(field(new, 2)?)?,
            mask: Set(uaccess::load(field(new, 3)?)?).as_mask(),
        })
    };
    if action.is_some() && matches!(number, abi::SIGKILL | abi::SIGSTOP) {
        return Err(EINVAL);
    }
    let before = match action {
        Some(action) => signals.set_action(caller.process, number, action),
        None => signals.action(number),
    };
    if old != 0 {
        uaccess::store(old, before.handler)?;
        uaccess::store(field(old, 1)?, before.flags)?;
        uaccess::store(field(old, 2)?, before.restorer)?;
        uaccess::store(field(old, 3)?, before.mask.0)?;
    }
    Ok(0)
}

pub(super) fn sigprocmask(how: u64, new: u64, old: u64, bytes: u64) -> Result<u64, Errno> {
    if bytes != SET_BYTES {
        return Err(EINVAL);
    }
    let own = task::current().own.signals();
    let before = own.mask();
    if new != 0 {
        let set = Set(uaccess::load(new)?);
        own.set_mask(match how as u32 {
            abi::SIG_BLOCK => before.with(set),
            abi::SIG_UNBLOCK => before.without(set),
            abi::SIG_SETMASK => set,
            _ => return Err(EINVAL),
        });
    }
    if old != 0 {
        uaccess::store(old, before.0)?;
    }
    Ok(0)
}

pub(super) fn sigpending(to: u64, bytes: u64) -> Result<u64, Errno> {
    if bytes > SET_BYTES {
        return Err(EINVAL);
    }
    let set = signal::pending_of_me().0.to_le_bytes();
    uaccess::copy_to_user(to, &set[..bytes as usize])?;
    Ok(0)
}

/// The set at `at`, for the time of a call.
pub(super) fn set_mask_for_call(at: u64, bytes: u64) -> Result<(), Errno> {
    if at == 0 {
        return Ok(());
    }
    if bytes != SET_BYTES {
        return Err(EINVAL);
    }
    let set = Set(uaccess::load(at)?);
    task::current().own.signals().set_mask_for_call(set);
    Ok(())
}

pub(super) fn sigsuspend(at: u64, bytes: u64) -> Result<u64, Errno> {
    if at == 0 {
        return Err(EFAULT);
    }
    set_mask_for_call(at, bytes)?;
    pause()
}

pub(super) fn pause() -> Result<u64, Errno> {
    let never: Result<(), watch::Ended> = watch::wait(None, || None);
    let _interrupted = never;
    Err(RESTART_IF_QUIET)
}

pub(super) fn sigtimedwait(set: u64, info: u64, time: u64, bytes: u64) -> Result<u64, Errno> {
    if bytes != SET_BYTES {
        return Err(EINVAL);
    }
    let wanted = Set(uaccess::load(set)?).as_mask();
    let deadline = match time {
        0 => None,
        at => Some(machine::now_ns().saturating_add(time::read(at)?)),
    };
    let own = task::current().own.signals();
    // The sender of one of them wakes this thread.
    own.set_wanted(wanted);
    let found = watch::wait(deadline, || signal::take_one_of(wanted));
    own.set_wanted(Set(0));
    let taken = match found {
        Ok(taken) => taken,
        // It came between the look and the end of the wait.
        Err(ended) => match signal::take_one_of(wanted) {
            Some(taken) => taken,
            None if ended == watch::Ended::Late => return Err(EAGAIN),
            None => return Err(EINTR),
        },
    };
    if info != 0 {
        frame::store_info(info, taken)?;
    }
    Ok(u64::from(taken.number))
}

/// Whether the caller's process may send `to` a signal.
fn may_send(caller: &Caller<'_, '_>, to: &Task, number: Option<u32>) -> bool {
    let creds = caller.process.creds();
    let process = to.own.process();
    let theirs = process.creds();
    let same = [creds.uid, creds.real_uid]
        .into_iter()
        .any(|uid| uid == theirs.real_uid || uid == theirs.saved_uid);
    let goes_on = number == Some(abi::SIGCONT) && process.session() == caller.process.session();
    creds.is_root() || same || goes_on
}

fn send(to: For, number: Option<u32>, code: i32) -> Result<(), Errno> {
    match number {
        Some(number) => signal::send(to, Info::from_me(number, code)),
        None => Ok(()),
    }
}

pub(super) fn kill(caller: &Caller<'_, '_>, to: u64, what: u64) -> Result<u64, Errno> {
    let what = number(what)?;
    let one = |task: &'static Task| {
        if !may_send(caller, task, what) {
            return Err(Errno::EPERM);
        }
        send(For::Process(task), what, BY_KILL)
    };
    let me = process::process_number(task::current());
    match to as i32 {
        to if to > 0 => one(process::find(to as u32).ok_or(ESRCH)?)?,
        to => {
            // The caller's group, all but the caller's process, or that group.
            let group = match to {
                0 => Some(caller.process.group()),
                -1 => None,
                to => Some(to.unsigned_abs()),
            };
            let mut result = Err(ESRCH);
            let wanted = |task: &&'static Task| match group {
                Some(group) => task.own.process().group() == group,
                None => process::number(task) != me,
            };
            for task in process::all().filter(wanted) {
                match one(task) {
                    Ok(()) => result = Ok(()),
                    Err(error) if result == Err(ESRCH) => result = Err(error),
                    Err(_) => {}
                }
            }
            result?;
        }
    }
    Ok(0)
}

fn thread_of(process: Option<u32>, thread: u64) -> Result<&'static Task, Errno> {
    if thread as i32 <= 0 {
        return Err(EINVAL);
    }
    let task = process::find_thread(thread as u32).ok_or(ESRCH)?;
    let leader = task.own.leader().ok_or(ESRCH)?;
    let is_theirs = process.is_none_or(|number| process::number(leader) == number);
    if is_theirs { Ok(task) } else { Err(ESRCH) }
}

pub(super) fn tkill(caller: &Caller<'_, '_>, thread: u64, what: u64) -> Result<u64, Errno> {
    to_thread(caller, thread_of(None, thread)?, what)
}

pub(super) fn tgkill(
    caller: &Caller<'_, '_>,
    process: u64,
    thread: u64,
    what: u64,
) -> Result<u64, Errno> {
    if process as i32 <= 0 {
        return Err(EINVAL);
    }
    to_thread(caller, thread_of(Some(process as u32), thread)?, what)
}

fn to_thread(caller: &Caller<'_, '_>, thread: &'static Task, what: u64) -> Result<u64, Errno> {
    let what = number(what)?;
    let leader = thread.own.leader().ok_or(ESRCH)?;
    if !may_send(caller, leader, what) {
        return Err(Errno::EPERM);
    }
    send(For::Thread(thread), what, BY_TKILL)?;
    Ok(0)
}

/// The signal that the caller says, with what it tells: not what only the kernel, or kill, says of
/// another process.
fn told(caller: &Caller<'_, '_>, to: &Task, what: u64, info: u64) -> Result<Option<Info>, Errno> {
    let what = number(what)?;
    let mut told = frame::load_info(info)?;
    // It may have ended while that was loaded.
    let leader = to.own.leader().ok_or(ESRCH)?;
    let own = process::number(leader) == process::process_number(task::current());
    if (told.code >= 0 || told.code == BY_TKILL) && !own {
        return Err(Errno::EPERM);
    }
    if !may_send(caller, leader, what) {
        return Err(Errno::EPERM);
    }
    Ok(what.map(|number| {
        told.number = number;
        told
    }))
}

pub(super) fn sigqueueinfo(
    caller: &Caller<'_, '_>,
    to: u64,
    what: u64,
    info: u64,
) -> Result<u64, Errno> {
    let task = process::find(to as u32).ok_or(ESRCH)?;
    if let Some(info) = told(caller, task, what, info)? {
        signal::send(For::Process(task), info)?;
    }
    Ok(0)
}

pub(super) fn tgsigqueueinfo(
    caller: &Caller<'_, '_>,
    [process, thread, what, info, ..]: [u64; 6],
) -> Result<u64, Errno> {
    let task = thread_of(Some(process as u32), thread)?;
    if let Some(info) = told(caller, task, what, info)? {
        signal::send(For::Thread(task), info)?;
    }
    Ok(0)
}

pub(super) fn sigaltstack(caller: &Caller<'_, '_>, new: u64, old: u64) -> Result<u64, Errno> {
    /// `SS_AUTODISARM`, which is not supported.
    const AUTODISARM: u32 = 1 << 31;
    let own = task::current().own.signals();
    let on_it = own.is_on_stack(caller.context.registers().rsp);
    let (stack, bytes, flags) = own.stack();
    let now = if on_it { abi::SS_ONSTACK } else { flags };
    let words = |at: u64| -> Result<[u64; 3], Errno> {
        Ok([
            at,
            at.checked_add(8).ok_or(EFAULT)?,
            at.checked_add(16).ok_or(EFAULT)?,
        ])
    };
    if new != 0 {
        let [stack_at, flags_at, bytes_at] = words(new)?;
        let flags = uaccess::load_u32(flags_at)?;
        let (stack, bytes) = (uaccess::load(stack_at)?, uaccess::load(bytes_at)?);
        if on_it {
            return Err(Errno::EPERM);
        }
        match flags {
            abi::SS_DISABLE => own.set_stack(0, 0, abi::SS_DISABLE),
            0 | abi::SS_ONSTACK if bytes < u64::from(abi::MINSIGSTKSZ) => return Err(ENOMEM),
            0 | abi::SS_ONSTACK => own.set_stack(stack, bytes, 0),
            _ if flags & AUTODISARM != 0 => return Err(EINVAL),
            _ => return Err(EINVAL),
        }
    }
    if old != 0 {
        let [stack_at, flags_at, bytes_at] = words(old)?;
        uaccess::store(stack_at, stack)?;
        uaccess::store_u32(flags_at, now)?;
        uaccess::store(bytes_at, bytes)?;
    }
    Ok(0)
}

/// Has the caller's process be sent SIGALRM in so many seconds, or not; how many were left.
pub(super) fn alarm(caller: &Caller<'_, '_>, seconds: u64) -> Result<u64, Errno> {
    const NS: u64 = 1_000_000_000;
    let after = u64::from(seconds as u32) * NS;
    let (left, _) = time::set_alarm(caller.process, after, 0);
    Ok(left.div_ceil(NS))
}

/// The alarm's two times, of real time: those of CPU time are not supported.
pub(super) fn setitimer(
    caller: &Caller<'_, '_>,
    which: u64,
    new: u64,
    old: u64,
) -> Result<u64, Errno> {
    if which != 0 {
        return Err(EINVAL);
    }
    let part = |at: u64, index: u64| at.checked_add(16 * index).ok_or(EFAULT);
    let (left, every) = if new == 0 {
        time::alarm_of(caller.process)
    } else {
        let every = time::read_micro(new)?;
        let after = time::read_micro(part(new, 1)?)?;
        time::set_alarm(caller.process, after, every)
    };
    if old != 0 {
        time::write_micro(old, every)?;
        time::write_micro(part(old, 1)?, left)?;
    }
    Ok(0)
}

pub(super) fn getitimer(caller: &Caller<'_, '_>, which: u64, to: u64) -> Result<u64, Errno> {
    if which != 0 {
        return Err(EINVAL);
    }
    let (left, every) = time::alarm_of(caller.process);
    time::write_micro(to, every)?;
    time::write_micro(to.checked_add(16).ok_or(EFAULT)?, left)?;
    Ok(0)
}
