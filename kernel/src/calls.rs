//! System calls, by their Linux numbers.

use crate::arch::serial::Serial;
use crate::arch::uaccess;
use crate::bringup;
use crate::linux::{
    EXIT, EXIT_GROUP, Errno, GETCPU, MADV_DONTNEED, MADVISE, MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE,
    MMAP, MPROTECT, MUNMAP, Prot, WRITE,
};

/// What a system call does to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It returns a word: a value or a negated error number.
    Return(u64),
    /// It ends the program.
    Exit(i32),
}

/// Serves the call `number`.
pub(crate) fn call(number: u64, args: [u64; 6]) -> Reply {
    let [first, second, third, ..] = args;
    let result = match number {
        WRITE => write(first, second, third),
        MMAP => mmap(args),
        MPROTECT => mprotect(first, second, third),
        MUNMAP => bringup::unmap(first, second).map(|()| 0),
        MADVISE => madvise(first, second, third),
        GETCPU => getcpu(first, second),
        // A status is the low 8 bits, as a parent would see it.
        EXIT | EXIT_GROUP => return Reply::Exit((first & 0xff) as i32),
        _ => Err(Errno::ENOSYS),
    };
    Reply::Return(result.unwrap_or_else(Errno::to_result))
}

/// Writes to the console, in pieces; what was written before a bad address counts.
fn write(fd: u64, addr: u64, len: u64) -> Result<u64, Errno> {
    if !matches!(fd, 1 | 2) {
        return Err(Errno::EBADF);
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
            _ => return Err(Errno::EFAULT),
        }
        done += piece.len() as u64;
    }
    Ok(done)
}

fn mmap([addr, len, prot, flags, _, _]: [u64; 6]) -> Result<u64, Errno> {
    let prot = Prot::from_bits(prot).ok_or(Errno::EINVAL)?;
    if flags & !MAP_FIXED != MAP_PRIVATE | MAP_ANONYMOUS {
        return Err(Errno::EINVAL);
    }
    bringup::map((flags & MAP_FIXED != 0).then_some(addr), len, prot)
}

fn mprotect(addr: u64, len: u64, prot: u64) -> Result<u64, Errno> {
    let prot = Prot::from_bits(prot).ok_or(Errno::EINVAL)?;
    bringup::protect(addr, len, prot).map(|()| 0)
}

fn madvise(addr: u64, len: u64, advice: u64) -> Result<u64, Errno> {
    if advice != MADV_DONTNEED {
        return Err(Errno::EINVAL);
    }
    bringup::discard(addr, len).map(|()| 0)
}

/// Stores the number of the CPU and of its node: both zero, there is one of each.
fn getcpu(cpu: u64, node: u64) -> Result<u64, Errno> {
    for addr in [cpu, node] {
        if addr != 0 {
            uaccess::copy_to_user(addr, &0_u32.to_le_bytes())?;
        }
    }
    Ok(0)
}
