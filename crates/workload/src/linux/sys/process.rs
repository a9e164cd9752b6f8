//! Processes: fork, exit, wait, and what the child sets for itself.

use super::clock::Usage;
use super::{last_errno, zero_or_errno};
use core::mem::MaybeUninit;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

/// The exit code of a child whose code unwound, as of a Rust program that panicked.
const UNWOUND: i32 = 101;

/// How a child ended, and what the kernel accounted to it.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct Ended {
    pub(in crate::linux) exit: Exit,
    pub(in crate::linux) usage: Usage,
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Forks; the child runs `child` and exits with the code it returns. Returns the child's number.
///
/// # Errors
/// The error number of `fork`.
pub(in crate::linux) fn fork(child: impl FnOnce() -> i32) -> Result<libc::pid_t, i32> {
    // SAFETY: 1. The child never leaves this function: no code of the caller runs twice. 2. It has
    // this thread only, and copies of whatever locks others held; `child` takes none of those, and
    // glibc makes its allocator and its thread library usable again in the child.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => exit(catch_unwind(AssertUnwindSafe(child)).unwrap_or(UNWOUND)),
        -1 => Err(last_errno()),
        pid => Ok(pid),
    }
}

/// Ends this process at once: nothing is flushed, nothing runs at exit.
pub(in crate::linux) fn exit(code: i32) -> ! {
    // SAFETY: 1. The call takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits until the child has ended. What it waited for itself is in its usage.
///
/// # Errors
/// The error number of `wait4`.
pub(in crate::linux) fn wait(pid: libc::pid_t) -> Result<Ended, i32> {
    wait4(pid).map(|(_, ended)| ended)
}

/// Waits until some child has ended, and returns its number.
///
/// # Errors
/// The error number of `wait4`: ECHILD where there are no children.
pub(in crate::linux) fn wait_any() -> Result<(libc::pid_t, Ended), i32> {
    wait4(-1)
}

fn wait4(which: libc::pid_t) -> Result<(libc::pid_t, Ended), i32> {
    let mut status = 0;
    let mut raw = MaybeUninit::<libc::rusage>::zeroed();
    let pid = loop {
        // SAFETY: 1. `status` and `raw` are ours, and the call may write them.
        let returned = unsafe { libc::wait4(which, &raw mut status, 0, raw.as_mut_ptr()) };
        if returned > 0 {
            break returned;
        }
        let errno = last_errno();
        if errno != libc::EINTR {
            return Err(errno);
        }
    };
    // SAFETY: 1. An rusage is integers only, for which zeroes are values.
    let raw = unsafe { raw.assume_init() };
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    let usage = Usage::from(&raw);
    Ok((pid, Ended { exit, usage }))
}

/// Kills a child of ours that nobody has waited for.
pub(in crate::linux) fn kill(pid: libc::pid_t) {
    // SAFETY: 1. The call takes numbers only; a child that was not waited for keeps its number.
    let _gone = unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Lets the kernel kill this process when the thread that forked it dies, so that a killed run
/// leaves nothing behind. A kernel that refuses is left to itself.
pub(in crate::linux) fn die_with_parent() {
    // SAFETY: 1. This option of prctl takes a number and no pointer.
    let _refused = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Switches transparent huge pages off for this process.
///
/// # Errors
/// The error number of `prctl`.
pub(in crate::linux) fn no_huge_pages() -> Result<(), i32> {
    let (on, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: 1. This option of prctl takes numbers and no pointer.
    let returned = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, none, none, none) };
    zero_or_errno(returned)
}

/// The CPUs that this thread may run on; none where the kernel does not say.
pub(in crate::linux) fn allowed_cpus() -> Vec<usize> {
    let mut set = empty_set();
    // SAFETY: 1. `set` is ours, of the size given, and the call may write it.
    let returned = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if returned != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| {
            // SAFETY: 1. `cpu` is less than CPU_SETSIZE, so it lies within the set.
            unsafe { libc::CPU_ISSET(cpu, &set) }
        })
        .collect()
}

/// Binds this thread to a CPU.
///
/// # Errors
/// The error number of `sched_setaffinity`.
pub(in crate::linux) fn pin(cpu: usize) -> Result<(), i32> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(libc::EINVAL);
    }
    let mut set = empty_set();
    // SAFETY: 1. `cpu` is less than CPU_SETSIZE, so it lies within the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: 1. `set` is ours, of the size given.
    let returned = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    zero_or_errno(returned)
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: 1. The set is an array of integers, for which zeroes are values.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// What a signal is called.
pub(in crate::linux) fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL, as when memory runs out",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGSYS => "SIGSYS",
        _ => "a signal",
    }
}
