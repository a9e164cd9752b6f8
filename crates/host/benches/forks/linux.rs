//! The same by real system calls, in a process of their own: this program, started anew.

use crate::common::machine::{PAGE, WallTime};
use crate::ours::{self, PAGES};
use std::io;

/// The rows, of those of [`ours::ROWS`].
pub(crate) const ROWS: [&str; 3] = [ours::ROWS[2], ours::ROWS[3], ours::ROWS[5]];

/// What Linux does that ours on the host target does not.
pub(crate) const IN_ADDITION: &str = "\
Linux does in addition: at a fork, the whole task (descriptor, kernel stack, signals, files,
credentials, namespaces, scheduling, pid), and the program's other mappings (text, libraries,
stack); at an exit, all of that again, and the parent waits for it; in a fault, the way through
the exception (register save, mitigations, return), LRU lists, cgroup charges, perf and tracing
hooks. Its clock is the wall's, ours that of the thread's processor time.";

/// What the child does.
pub(crate) fn child(times: u64) -> io::Result<()> {
    let len = (PAGES * PAGE) as usize;
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new anonymous mapping, wherever the kernel likes, overlaps nothing.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping of the lines above; the advice does not change contents.
    unsafe { libc::madvise(at, len, libc::MADV_NOHUGEPAGE) };
    let base = at.cast::<u8>();
    let touch = |value: u8| {
        for page in 0..PAGES {
            // SAFETY: within the mapping.
            let byte = unsafe { base.add((page * PAGE) as usize) };
            // SAFETY: mapped, and this process's own.
            unsafe { byte.write_volatile(value) };
        }
    };
    touch(1);
    let mut ns = [0.0; 3];
    for time in 0..times {
        let start = WallTime::start();
        end(fork(Child::Exits)?, Ends::Itself)?;
        ns[0] += start.ns();
        let waiting = fork(Child::Waits)?;
        let start = WallTime::start();
        touch(time as u8);
        ns[1] += start.ns();
        end(waiting, Ends::Killed)?;
        end(fork(Child::Exits)?, Ends::Itself)?;
        let start = WallTime::start();
        touch(time as u8);
        ns[2] += start.ns();
    }
    println!("{}", ns[0] / times as f64);
    println!("{}", ns[1] / (times * PAGES) as f64);
    println!("{}", ns[2] / (times * PAGES) as f64);
    Ok(())
}

/// What a forked process does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Child {
    Exits,
    Waits,
}

/// How it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Itself,
    Killed,
}

fn fork(what: Child) -> io::Result<libc::pid_t> {
    // SAFETY: the process has one thread, and the child calls nothing but the two below.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        if what == Child::Waits {
            // SAFETY: takes nothing. Only the signal that kills ends it.
            unsafe { libc::pause() };
        }
        // SAFETY: ends the child without running what is the parent's.
        unsafe { libc::_exit(0) };
    }
    Ok(pid)
}

fn end(pid: libc::pid_t, how: Ends) -> io::Result<()> {
    if how == Ends::Killed {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: writes one number, which lives here.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
