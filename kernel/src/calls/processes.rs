//! Calls on processes: execve, waiting, groups and sessions, credentials, and what is told of the
//! system.

use linux_raw_sys::general as abi;
use linux_raw_sys::prctl as ctl;
use minflt_mm::Errno;

use super::threads::store_usage;
use super::{Caller, paths};
use crate::arch::uaccess;
use crate::fs::path::Path;
use crate::linux::{self, EFAULT, EINVAL, ENOSYS, ESRCH};
use crate::machine;
use crate::task;
use crate::user::creds::Creds;
use crate::user::exec::{self, Image};
use crate::user::process::{self, Process, Reaped, What, Whom};
use crate::user::{NAME, signal};

pub(super) fn execve(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    arguments: u64,
    environment: u64,
    flags: u64,
) -> Result<Image, Errno> {
    // C libraries do without, by way of /proc/self/fd.
    if flags != 0 {
        return Err(ENOSYS);
    }
    let mut path = Path::read(path)?;
    let start = paths::start_of(caller, fd, &mut path)?;
    exec::execute(caller.space, start, path, arguments, environment)
}

/// What `options` ask for, and whether to wait at all.
fn what(options: u32, ended: bool) -> (What, bool) {
    let what = What {
        ended,
        stopped: options & abi::WUNTRACED != 0,
        goes_on: options & abi::WCONTINUED != 0,
        stays: options & abi::WNOWAIT != 0,
    };
    (what, options & abi::WNOHANG != 0)
}

/// `__WNOTHREAD`, `__WALL`, `__WCLONE`: all children are alike here, and all threads' own.
const KINDS: u32 = abi::__WNOTHREAD | abi::__WALL | abi::__WCLONE;

/// Of what a child has used, the time is all counted as the program's, and all faults as minor
/// ones.
pub(super) fn wait4(
    caller: &Caller<'_, '_>,
    number: u64,
    status: u64,
    options: u64,
    usage: u64,
) -> Result<u64, Errno> {
    let options = options as u32;
    if options & !(abi::WNOHANG | abi::WUNTRACED | abi::WCONTINUED | KINDS) != 0 {
        return Err(EINVAL);
    }
    let whom = match number as i32 {
        -1 => Whom::Any,
        0 => Whom::Group(caller.process.group()),
        i32::MIN => return Err(ESRCH),
        number if number > 0 => Whom::Number(number as u32),
        number => Whom::Group(number.unsigned_abs()),
    };
    let (what, at_once) = what(options, true);
    let Some(reaped) = process::wait(whom, what, at_once)? else {
        return Ok(0);
    };
    if status != 0 {
        uaccess::store_u32(status, reaped.done.wait_status())?;
    }
    if usage != 0 {
        store_usage(usage, reaped.usage)?;
    }
    Ok(u64::from(reaped.number))
}

pub(super) fn waitid(
    caller: &Caller<'_, '_>,
    [kind, number, info, options, usage, _]: [u64; 6],
) -> Result<u64, Errno> {
    let options = options as u32;
    let known =
        abi::WNOHANG | abi::WNOWAIT | abi::WEXITED | abi::WSTOPPED | abi::WCONTINUED | KINDS;
    let kinds = abi::WEXITED | abi::WSTOPPED | abi::WCONTINUED;
    if options & !known != 0 || options & kinds == 0 {
        return Err(EINVAL);
    }
    let whom = match (kind as u32, number as u32) {
        (abi::P_ALL, _) => Whom::Any,
        (abi::P_PID, 0) => return Err(EINVAL),
        (abi::P_PID, number) => Whom::Number(number),
        (abi::P_PGID, 0) => Whom::Group(caller.process.group()),
        (abi::P_PGID, number) => Whom::Group(number),
        _ => return Err(EINVAL),
    };
    let (what, at_once) = what(options, options & abi::WEXITED != 0);
    let reaped = process::wait(whom, what, at_once)?;
    if let Some(reaped) = &reaped
        && usage != 0
    {
        store_usage(usage, reaped.usage)?;
    }
    if info != 0 {
        signal::frame::store_info(info, reaped.as_ref().map_or_else(Default::default, told_of))?;
    }
    Ok(0)
}

fn told_of(reaped: &Reaped) -> signal::Info {
    let (code, status) = reaped.done.code_and_status();
    signal::Info {
        number: abi::SIGCHLD,
        code,
        words: [
            u64::from(reaped.number) | u64::from(reaped.uid) << 32,
            u64::from(status),
            0,
            0,
        ],
    }
}

/// The process with that number, or the caller's for 0.
fn of(number: u64) -> Result<&'static Process, Errno> {
    match number as u32 {
        0 => Ok(process::of(task::current())),
        number => Ok(process::find(number).ok_or(ESRCH)?.own.process()),
    }
}

pub(super) fn setpgid(number: u64, group: u64) -> Result<u64, Errno> {
    if (group as i32) < 0 {
        return Err(EINVAL);
    }
    process::set_group_of(number as u32, group as u32)?;
    Ok(0)
}

pub(super) fn getpgid(number: u64) -> Result<u64, Errno> {
    Ok(u64::from(of(number)?.group()))
}

pub(super) fn getsid(number: u64) -> Result<u64, Errno> {
    Ok(u64::from(of(number)?.session()))
}

pub(super) fn setsid(caller: &Caller<'_, '_>) -> Result<u64, Errno> {
    let number = process::process_number(task::current());
    if process::all().any(|task| task.own.process().group() == number) {
        return Err(Errno::EPERM);
    }
    caller.process.set_group(number, number);
    Ok(u64::from(number))
}

/// Which of a process's numbers of users, or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// Of users.
    User,
    /// Of groups.
    Group,
}

impl Id {
    /// Real, effective, saved.
    fn of(self, creds: Creds) -> [u32; 3] {
        match self {
            Self::User => [creds.real_uid, creds.uid, creds.saved_uid],
            Self::Group => [creds.real_gid, creds.gid, creds.saved_gid],
        }
    }

    fn set(self, creds: &mut Creds, [real, effective, saved]: [u32; 3]) {
        match self {
            Self::User => {
                (creds.real_uid, creds.uid, creds.saved_uid) = (real, effective, saved);
            }
            Self::Group => {
                (creds.real_gid, creds.gid, creds.saved_gid) = (real, effective, saved);
            }
        }
    }
}

pub(super) fn get_id(caller: &Caller<'_, '_>, id: Id, effective: bool) -> Result<u64, Errno> {
    let numbers = id.of(caller.process.creds());
    Ok(u64::from(numbers[usize::from(effective)]))
}

/// Sets all three for root, and else the effective one to one of the others.
pub(super) fn set_id(caller: &Caller<'_, '_>, id: Id, number: u64) -> Result<u64, Errno> {
    let mut creds = caller.process.creds();
    let number = number as u32;
    let [real, _, saved] = id.of(creds);
    if creds.is_root() {
        id.set(&mut creds, [number; 3]);
    } else if number == real || number == saved {
        id.set(&mut creds, [real, number, saved]);
    } else {
        return Err(Errno::EPERM);
    }
    caller.process.set_creds(creds);
    Ok(0)
}

/// Sets those that are given, which for others than root are ones that it has.
pub(super) fn set_ids(caller: &Caller<'_, '_>, id: Id, given: [u64; 3]) -> Result<u64, Errno> {
    let mut creds = caller.process.creds();
    let now = id.of(creds);
    let mut next = now;
    for (next, given) in next.iter_mut().zip(given.map(|id| id as u32)) {
        if given == u32::MAX {
            continue;
        }
        if !creds.is_root() && !now.contains(&given) {
            return Err(Errno::EPERM);
        }
        *next = given;
    }
    id.set(&mut creds, next);
    caller.process.set_creds(creds);
    Ok(0)
}

/// Sets the real and the effective one, where given. The saved one becomes the effective one, if
/// the real one was given, or the effective one is another than the real one was. Linux: setreuid.
pub(super) fn set_both(
    caller: &Caller<'_, '_>,
    id: Id,
    real: u64,
    effective: u64,
) -> Result<u64, Errno> {
    const KEPT: u32 = u32::MAX;
    let [old, ..] = id.of(caller.process.creds());
    set_ids(caller, id, [real, effective, u64::from(KEPT)])?;
    let mut creds = caller.process.creds();
    let [now, acts, saved] = id.of(creds);
    let follows = real as u32 != KEPT || effective as u32 != KEPT && acts != old;
    id.set(&mut creds, [now, acts, if follows { acts } else { saved }]);
    caller.process.set_creds(creds);
    Ok(0)
}

pub(super) fn get_ids(caller: &Caller<'_, '_>, id: Id, to: [u64; 3]) -> Result<u64, Errno> {
    for (to, number) in to.into_iter().zip(id.of(caller.process.creds())) {
        uaccess::store_u32(to, number)?;
    }
    Ok(0)
}

/// There are none besides the one.
pub(super) fn getgroups(_count: u64, _to: u64) -> Result<u64, Errno> {
    Ok(0)
}

/// None can be had.
pub(super) fn setgroups(caller: &Caller<'_, '_>, count: u64) -> Result<u64, Errno> {
    match count {
        _ if !caller.process.creds().is_root() => Err(Errno::EPERM),
        0 => Ok(0),
        _ => Err(EINVAL),
    }
}

/// The name of the calling thread. A process stays dumpable, though no dump is ever written; other
/// controls are not supported.
pub(super) fn prctl(what: u64, value: u64) -> Result<u64, Errno> {
    let own = &task::current().own;
    match what as u32 {
        ctl::PR_SET_NAME => {
            let mut name = [0; NAME];
            let room = &mut name[..NAME - 1];
            let len = uaccess::copy_string(room, value)?.unwrap_or(NAME - 1);
            own.set_name(&name[..len]);
            Ok(0)
        }
        ctl::PR_GET_NAME => {
            uaccess::copy_to_user(value, &own.name())?;
            Ok(0)
        }
        ctl::PR_GET_DUMPABLE => Ok(1),
        ctl::PR_SET_DUMPABLE if value == 1 => Ok(0),
        _ => Err(EINVAL),
    }
}

/// What system this is, as Linux's programs want to be told.
pub(super) fn uname(to: u64) -> Result<u64, Errno> {
    /// Bytes of each text.
    const FIELD: usize = 65;
    let texts = [
        "Linux",
        linux::NODE,
        linux::RELEASE,
        linux::VERSION,
        "x86_64",
        "(none)",
    ];
    let mut bytes = [0; FIELD * 6];
    for (field, text) in bytes.chunks_exact_mut(FIELD).zip(texts) {
        field[..text.len()].copy_from_slice(text.as_bytes());
    }
    uaccess::copy_to_user(to, &bytes)?;
    Ok(0)
}

/// How long the machine has run, and its memory.
pub(super) fn sysinfo(to: u64) -> Result<u64, Errno> {
    let sys = crate::system().ok_or(Errno::EIO)?;
    let (all, free) = sys.memory_pages();
    let page = crate::arch::paging::PAGE;
    let processes = process::all().count() as u64;
    let words = [
        machine::now_ns() / 1_000_000_000,
        0,
        0,
        0,
        all * page,
        free * page,
        0,
        0,
        0,
        0,
        processes,
        0,
        0,
        1,
    ];
    for (index, word) in words.into_iter().enumerate() {
        uaccess::store(to.checked_add(8 * index as u64).ok_or(EFAULT)?, word)?;
    }
    Ok(0)
}

/// User and system time, of the caller's process and of its children, in hundredths of a second.
pub(super) fn times(to: u64) -> Result<u64, Errno> {
    const TICK: u64 = 10_000_000;
    let own = process::usage_of_process().ns / TICK;
    let children = process::usage_of_children().ns / TICK;
    if to != 0 {
        for (index, word) in [own, 0, children, 0].into_iter().enumerate() {
            uaccess::store(to.checked_add(8 * index as u64).ok_or(EFAULT)?, word)?;
        }
    }
    Ok(machine::now_ns() / TICK)
}

/// At random; `GRND_NONBLOCK` and `GRND_RANDOM` change nothing.
pub(super) fn getrandom(to: u64, len: u64, flags: u64) -> Result<u64, Errno> {
    const KNOWN: u64 = 7;
    const AT_ONCE: u64 = 256;
    if flags & !KNOWN != 0 {
        return Err(EINVAL);
    }
    let len = len.min(i32::MAX as u64);
    let mut done = 0;
    while done < len && (done == 0 || crate::user::may_go_on()) {
        let mut bytes = [0; AT_ONCE as usize];
        let part = (len - done).min(AT_ONCE);
        let bytes = &mut bytes[..part as usize];
        crate::fs::device::random(bytes);
        uaccess::copy_to_user(to.checked_add(done).ok_or(EFAULT)?, bytes)?;
        done += part;
    }
    Ok(done)
}

/// Priorities are all the same.
pub(super) fn getpriority() -> Result<u64, Errno> {
    // 20 less the nice value.
    Ok(20)
}

/// They stay so.
pub(super) fn setpriority(value: u64) -> Result<u64, Errno> {
    match value as i32 {
        0 => Ok(0),
        _ => Err(Errno::EACCES),
    }
}
