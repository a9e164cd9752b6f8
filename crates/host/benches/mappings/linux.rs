//! The same by real system calls, in a process of their own: this program, started anew.

use crate::calls;
use crate::common::machine::{CpuTime, PAGE};
use std::io;

/// The rows, of those of [`calls::ROWS`].
pub(crate) const ROWS: [&str; 2] = [calls::ROWS[0], calls::ROWS[2]];

/// What a call of Linux does that ours on the host target does not.
pub(crate) const IN_ADDITION: &str = "\
Linux does in addition, in each call: the way into the kernel and out (syscall, register save,
mitigations of speculation, checks for signals and rescheduling at the exit); hooks of security
modules, seccomp, tracing and perf (mmap tells perf of each mapping); limits (RLIMIT_AS, memlock,
the number of mappings), memory accounting (overcommit, cgroups); userfaultfd and
uprobes; file, huge page and special-mapping cases that it has to rule out; merging with the
neighbours; anon_vma chains at splits; its maple tree frees nodes by RCU, and VMAs are allocated
from slabs that cgroups account.";

/// What the child does.
pub(crate) fn child(times: u64) -> io::Result<()> {
    // As many mappings as in the address spaces of `calls`, which cannot merge.
    for other in 0..100 {
        let at = map(
            2,
            if other % 2 == 0 {
                libc::PROT_READ
            } else {
                WRITE
            },
        )?;
        assert_ne!(at, 0, "a mapping lies somewhere");
    }
    let pair = |times| -> io::Result<()> {
        for _ in 0..times {
            unmap(map(1, WRITE)?, 1)?;
        }
        Ok(())
    };
    pair(times / 10)?;
    let start = CpuTime::start();
    pair(times)?;
    println!("{}", start.ns() / times as f64);
    let at = map(3, libc::PROT_NONE)?;
    protect(at, 3, WRITE)?;
    let middle = |times| -> io::Result<()> {
        for _ in 0..times {
            protect(at + PAGE, 1, libc::PROT_READ)?;
            protect(at + PAGE, 1, WRITE)?;
        }
        Ok(())
    };
    middle(times / 20)?;
    let start = CpuTime::start();
    middle(times / 2)?;
    println!("{}", start.ns() / times as f64);
    Ok(())
}

const WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn map(pages: u64, prot: i32) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let len = (pages * PAGE) as usize;
    // SAFETY: a new anonymous mapping, wherever the kernel likes, overlaps nothing.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(at.addr() as u64)
}

fn unmap(at: u64, pages: u64) -> io::Result<()> {
    let at = core::ptr::without_provenance_mut(at as usize);
    // SAFETY: mapped by `map`, and nothing in it is used.
    zero(unsafe { libc::munmap(at, (pages * PAGE) as usize) })
}

fn protect(at: u64, pages: u64, prot: i32) -> io::Result<()> {
    let at = core::ptr::without_provenance_mut(at as usize);
    // SAFETY: mapped by `map`, and nothing in it is used.
    zero(unsafe { libc::mprotect(at, (pages * PAGE) as usize, prot) })
}

fn zero(returned: i32) -> io::Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
