//! System calls, by their Linux numbers.

mod memory;
mod threads;
mod time;

use minflt_mm::Errno;

use crate::arch::serial::Serial;
use crate::arch::trap::UserContext;
use crate::arch::uaccess;
use crate::linux::{self, EBADF, EFAULT, ENOSYS};
use crate::space::Space;
use crate::user::process::Process;

/// What a system call does to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It returns a word: a value or a negated error number.
    Return(u64),
    /// It ends the thread, with a status that counts if it is the last one.
    ExitThread(i32),
    /// It ends the program.
    Exit(i32),
}

/// Who calls.
#[derive(Debug)]
pub(crate) struct Caller<'c, 'm> {
    /// Its address space, loaded.
    pub(crate) space: &'c Space<'m>,
    /// Its process.
    pub(crate) process: &'c Process,
    /// Its registers.
    pub(crate) context: &'c UserContext,
}

/// Serves the call `number`.
pub(crate) fn call(caller: &Caller<'_, '_>, number: u64, args: [u64; 6]) -> Reply {
    let [a, b, c, d, ..] = args;
    let space = caller.space;
    let result = match number {
        1 => write(a, b, c),
        9 => memory::mmap(space, args),
        10 => memory::mprotect(space, a, b, c),
        11 => memory::munmap(space, a, b),
        12 => memory::brk(space, a),
        24 => threads::sched_yield(),
        25 => memory::mremap(space, args),
        27 => memory::mincore(space, a, b, c),
        28 => memory::madvise(space, a, b, c),
        35 => time::nanosleep(caller, a, b),
        39 => threads::getpid(),
        56 => threads::clone(caller, a, b, c, d, args[4]),
        57 => threads::fork(caller),
        58 => threads::vfork(caller),
        // A status is the low 8 bits, as a parent would see it.
        60 => return Reply::ExitThread((a & 0xff) as i32),
        61 => threads::wait4(a, b, c, d),
        110 => threads::getppid(),
        149 => memory::mlock(space, a, b, 0),
        150 => memory::munlock(space, a, b),
        151 => memory::mlockall(space, a),
        152 => memory::munlockall(space),
        158 => threads::arch_prctl(a, b),
        186 => threads::gettid(),
        202 => threads::futex(caller, args),
        203 => threads::sched_setaffinity(a, b, c),
        204 => threads::sched_getaffinity(a, b, c),
        218 => threads::set_tid_address(a),
        228 => time::clock_gettime(a, b),
        229 => time::clock_getres(a, b),
        230 => time::clock_nanosleep(caller, a, b, c, d),
        231 => return Reply::Exit((a & 0xff) as i32),
        273 => threads::set_robust_list(a, b),
        309 => threads::getcpu(a, b),
        325 => memory::mlock(space, a, b, c),
        _ => Err(ENOSYS),
    };
    Reply::Return(result.unwrap_or_else(linux::failed))
}

/// Writes to the console, in pieces; what was written before a bad address counts.
fn write(fd: u64, addr: u64, len: u64) -> Result<u64, Errno> {
    if !matches!(fd, 1 | 2) {
        return Err(EBADF);
    }
    let mut buffer = [0; 128];
    let mut done = 0;
    while done < len {
        let piece = &mut buffer[..(len - done).min(128) as usize];
        match addr
            .checked_add(done)
            .map(|from| uaccess::copy_from_user(piece, from))
        {
            Some(Ok(())) => Serial::send(piece),
            _ if done > 0 => break,
            _ => return Err(EFAULT),
        }
        done += piece.len() as u64;
    }
    Ok(done)
}
