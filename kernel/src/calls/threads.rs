//! Calls on threads and processes.

use minflt_mm::{Errno, MmHandle};

use super::{Caller, time};
use crate::arch::paging::{PAGE, USER_END};
use crate::arch::uaccess;
use crate::linux::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_DETACHED, CLONE_PARENT_SETTID, CLONE_SETTLS,
    CLONE_SHARED, CLONE_THREAD, CLONE_VFORK, CLONE_VM, CSIGNAL, E2BIG, EFAULT, EINVAL, ENOSYS,
    ESRCH, SIGCHLD,
};
use crate::machine::{self, Kernel};
use crate::sched;
use crate::task::{self, Task};
use crate::user::futex::{self, ALL_BITS, Key};
use crate::user::process::{self, Meanwhile, Usage};
use crate::user::signal;
use crate::user::{Birth, Start};

/// A thread of this process (`CLONE_THREAD`), or a process: with a copy of the address space, or
/// with this one until it ends (`CLONE_VM | CLONE_VFORK`).
pub(super) fn clone(
    caller: &Caller<'_, '_>,
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
) -> Result<u64, Errno> {
    const THREAD: u64 = CLONE_VM | CLONE_SHARED | CLONE_THREAD;
    const NUMBERS: u64 = CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID;
    const ANY: u64 = NUMBERS | CLONE_SETTLS | CLONE_DETACHED;
    let shares = flags & !(ANY | CSIGNAL);
    let is_thread = shares == THREAD || shares == THREAD & !CLONE_SYSVSEM_BIT;
    let vfork = shares == CLONE_VM | CLONE_VFORK;
    let known_signal = flags & CSIGNAL <= u64::from(signal::MOST);
    if !(is_thread || vfork || shares == 0) || !known_signal {
        return Err(EINVAL);
    }
    if flags & CLONE_SETTLS != 0 && tls >= USER_END {
        return Err(Errno::EPERM);
    }
    let me = task::current();
    let mut context = caller.context.clone();
    context.set_result(0);
    if stack != 0 {
        context.set_stack(stack);
    }
    let mm = if is_thread || vfork {
        caller.handle().share()
    } else {
        caller.handle().fork()?
    };
    let asked = |flag: u64, value: u64| if flags & flag != 0 { value } else { 0 };
    let birth = Birth {
        mm,
        start: Start::Copy(context, asked(CLONE_CHILD_SETTID, child_tid)),
    };
    let fs = if flags & CLONE_SETTLS != 0 {
        tls
    } else {
        me.own.fs()
    };
    let clear_tid = asked(CLONE_CHILD_CLEARTID, child_tid);
    let child = if is_thread {
        process::add_thread(birth, fs, clear_tid)?
    } else {
        let signal = (flags & CSIGNAL) as u32;
        process::start(birth, fs, clear_tid, Some(me), (Meanwhile::Nothing, signal))?
    };
    let number = process::number(child);
    if flags & CLONE_PARENT_SETTID != 0 {
        // A bad address is the program's affair, as on Linux.
        let _ = uaccess::store_u32(parent_tid, number);
    }
    if vfork {
        process::start_and_await(child, caller.process);
    } else {
        sched::start(child);
    }
    Ok(u64::from(number))
}

/// The same by a `struct clone_args`, whose stack is given by its lower end.
pub(super) fn clone3(caller: &Caller<'_, '_>, args: u64, bytes: u64) -> Result<u64, Errno> {
    const LEAST: u64 = 64;
    const KNOWN: u64 = 88;
    if bytes < LEAST {
        return Err(EINVAL);
    }
    if bytes > PAGE {
        return Err(E2BIG);
    }
    let word = |index: u64| -> Result<u64, Errno> {
        if 8 * index >= bytes {
            return Ok(0);
        }
        uaccess::load(args.checked_add(8 * index).ok_or(EFAULT)?)
    };
    for index in KNOWN / 8..bytes.div_ceil(8) {
        if word(index)? != 0 {
            return Err(E2BIG);
        }
    }
    let (flags, child_tid, parent_tid, signal) = (word(0)?, word(2)?, word(3)?, word(4)?);
    let (stack, stack_bytes, tls) = (word(5)?, word(6)?, word(7)?);
    let chosen = word(8)? != 0 || word(9)? != 0 || word(10)? != 0;
    if flags & CSIGNAL != 0
        || signal & !CSIGNAL != 0
        || chosen
        || (stack == 0) != (stack_bytes == 0)
    {
        return Err(EINVAL);
    }
    let top = stack.checked_add(stack_bytes).ok_or(EINVAL)?;
    clone(caller, flags | signal, top, parent_tid, child_tid, tls)
}

/// `CLONE_SYSVSEM`, which a thread may do without: there are no such semaphores.
const CLONE_SYSVSEM_BIT: u64 = 0x4_0000;

pub(super) fn fork(caller: &Caller<'_, '_>) -> Result<u64, Errno> {
    clone(caller, SIGCHLD, 0, 0, 0, 0)
}

pub(super) fn vfork(caller: &Caller<'_, '_>) -> Result<u64, Errno> {
    clone(caller, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0)
}

/// Of a process, or of its children, or of the caller's thread; as wait4 tells it.
pub(super) fn getrusage(who: u64, at: u64) -> Result<u64, Errno> {
    let usage = match who as i32 {
        0 => process::usage_of_process(),
        -1 => process::usage_of_children(),
        1 => process::usage_of_thread(),
        _ => return Err(EINVAL),
    };
    store_usage(at, usage)?;
    Ok(0)
}

/// Stores a `struct rusage`.
pub(super) fn store_usage(at: u64, usage: Usage) -> Result<(), Errno> {
    const WORDS: usize = 18;
    const SECONDS: usize = 0;
    const MICROSECONDS: usize = 1;
    const MINOR_FAULTS: usize = 8;
    let mut words = [0; WORDS];
    words[SECONDS] = usage.ns / 1_000_000_000;
    words[MICROSECONDS] = usage.ns / 1000 % 1_000_000;
    words[MINOR_FAULTS] = usage.faults;
    for (index, word) in words.into_iter().enumerate() {
        let at = at.checked_add(8 * index as u64).ok_or(EFAULT)?;
        uaccess::store(at, word)?;
    }
    Ok(())
}

pub(super) fn getpid() -> Result<u64, Errno> {
    Ok(u64::from(process::process_number(task::current())))
}

pub(super) fn getppid() -> Result<u64, Errno> {
    Ok(u64::from(process::parent_number(task::current())))
}

pub(super) fn gettid() -> Result<u64, Errno> {
    Ok(u64::from(process::number(task::current())))
}

pub(super) fn set_tid_address(at: u64) -> Result<u64, Errno> {
    task::current().own.clear_tid().set(at);
    gettid()
}

pub(super) fn set_robust_list(head: u64, len: u64) -> Result<u64, Errno> {
    const LEN: u64 = 24;
    if len != LEN {
        return Err(EINVAL);
    }
    task::current().own.robust_list().set(head);
    Ok(0)
}

/// The base of FS; that of GS is always 0.
pub(super) fn arch_prctl(what: u64, value: u64) -> Result<u64, Errno> {
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    let own = &task::current().own;
    match what {
        SET_FS if value >= USER_END => return Err(Errno::EPERM),
        SET_FS => own.set_fs(value),
        GET_FS => uaccess::store(value, own.fs())?,
        _ => return Err(EINVAL),
    }
    Ok(0)
}

pub(super) fn futex(
    caller: &Caller<'_, '_>,
    [addr, op, value, time, addr2, value3]: [u64; 6],
) -> Result<u64, Errno> {
    const PRIVATE: u64 = 128;
    const BY_REALTIME: u64 = 256;
    const WAIT: u64 = 0;
    const WAKE: u64 = 1;
    const REQUEUE: u64 = 3;
    const CMP_REQUEUE: u64 = 4;
    const WAIT_BITSET: u64 = 9;
    const WAKE_BITSET: u64 = 10;
    // Only an absolute time-out has a clock to choose.
    if op & BY_REALTIME != 0 && op & !(PRIVATE | BY_REALTIME) != WAIT_BITSET {
        return Err(ENOSYS);
    }
    let space = caller.space.mm().space();
    let key = Key::new(space, addr);
    let (value, value3) = (value as u32, value3 as u32);
    match op & !(PRIVATE | BY_REALTIME) {
        WAIT | WAIT_BITSET => {
            let absolute = op & !(PRIVATE | BY_REALTIME) == WAIT_BITSET;
            let bits = if absolute { value3 } else { ALL_BITS };
            if bits == 0 {
                return Err(EINVAL);
            }
            let deadline = match time {
                0 => None,
                at if absolute && op & BY_REALTIME != 0 => {
                    Some(machine::of_real_ns(time::read(at)?))
                }
                at if absolute => Some(time::read(at)?),
                at => Some(machine::now_ns().saturating_add(time::read(at)?)),
            };
            futex::wait(key?, value, bits, deadline)?;
            Ok(0)
        }
        WAKE => Ok(u64::from(futex::wake(key?, ALL_BITS, value))),
        WAKE_BITSET if value3 == 0 => Err(EINVAL),
        WAKE_BITSET => Ok(u64::from(futex::wake(key?, value3, value))),
        how @ (REQUEUE | CMP_REQUEUE) => {
            // The time is a number here.
            let (wakes, moves) = (value as i32, time as i32);
            if wakes < 0 || moves < 0 {
                return Err(EINVAL);
            }
            let compare = (how == CMP_REQUEUE).then_some(value3);
            let to = Key::new(space, addr2)?;
            let done = futex::requeue(key?, to, compare, wakes as u32, moves as u32)?;
            Ok(u64::from(done))
        }
        _ => Err(ENOSYS),
    }
}

pub(super) fn sched_yield() -> Result<u64, Errno> {
    sched::give_way();
    Ok(0)
}

/// The thread called `number`, or the caller for 0.
fn thread(number: u64) -> Result<&'static Task, Errno> {
    let me = task::current();
    if number == 0 {
        return Ok(me);
    }
    let found = task::all()
        .iter()
        .find(|task| task.own.leader().is_some() && u64::from(process::number(task)) == number);
    found.ok_or(ESRCH)
}

fn all_cpus() -> u64 {
    u64::MAX >> (64 - machine::cpus())
}

pub(super) fn sched_setaffinity(number: u64, len: u64, at: u64) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    let len = len.min(8) as usize;
    uaccess::copy_from_user(&mut bytes[..len], at)?;
    let cpus = u64::from_le_bytes(bytes) & all_cpus();
    if cpus == 0 {
        return Err(EINVAL);
    }
    let thread = thread(number)?;
    thread.allow(cpus);
    sched::give_way();
    sched::disturb(thread);
    Ok(0)
}

pub(super) fn sched_getaffinity(number: u64, len: u64, at: u64) -> Result<u64, Errno> {
    if len < 8 || !len.is_multiple_of(8) {
        return Err(EINVAL);
    }
    let cpus = thread(number)?.allowed() & all_cpus();
    uaccess::store(at, cpus)?;
    Ok(8)
}

/// Stores the number of the CPU and of its node, the only one.
pub(super) fn getcpu(cpu: u64, node: u64) -> Result<u64, Errno> {
    for (addr, number) in [(cpu, task::current().cpu()), (node, 0)] {
        if addr != 0 {
            uaccess::store_u32(addr, number)?;
        }
    }
    Ok(0)
}

impl Caller<'_, '_> {
    /// The handle of its address space.
    fn handle(&self) -> &MmHandle<'static, Kernel> {
        self.space.handle()
    }
}
