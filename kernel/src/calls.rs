//! System calls, by their Linux numbers.

use minflt_addr::VirtAddr;
use minflt_mm::{Advice, Errno, Mm, Place};

use crate::arch::serial::Serial;
use crate::arch::uaccess;
use crate::linux::{
    self, EBADF, EFAULT, ENOSYS, EXIT, EXIT_GROUP, GETCPU, MADV_DONTNEED, MADVISE, MAP_ANONYMOUS,
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MMAP, MPROTECT, MUNMAP, WRITE,
};
use crate::machine::Kernel;

/// What a system call does to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It returns a word: a value or a negated error number.
    Return(u64),
    /// It ends the program.
    Exit(i32),
}

/// Serves the call `number` of a thread of `mm`.
pub(crate) fn call(mm: &Mm<Kernel>, number: u64, args: [u64; 6]) -> Reply {
    let [first, second, third, ..] = args;
    let result = match number {
        WRITE => write(first, second, third),
        MMAP => mmap(mm, args),
        MPROTECT => mprotect(mm, first, second, third),
        MUNMAP => munmap(mm, first, second),
        MADVISE => madvise(mm, first, second, third),
        GETCPU => getcpu(first, second),
        // A status is the low 8 bits, as a parent would see it.
        EXIT | EXIT_GROUP => return Reply::Exit((first & 0xff) as i32),
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

/// Private anonymous memory only.
fn mmap(mm: &Mm<Kernel>, [addr, len, prot, flags, _, _]: [u64; 6]) -> Result<u64, Errno> {
    let prot = linux::prot(prot)?;
    let at = VirtAddr(addr);
    let place = match flags ^ (MAP_PRIVATE | MAP_ANONYMOUS) {
        0 if addr == 0 => Place::Any,
        0 => Place::Hint(at),
        MAP_FIXED => Place::Fixed(at),
        MAP_FIXED_NOREPLACE => Place::FixedNoReplace(at),
        _ => return Err(Errno::EINVAL),
    };
    Ok(mm.mmap(place, len, prot)?.0)
}

fn munmap(mm: &Mm<Kernel>, addr: u64, len: u64) -> Result<u64, Errno> {
    mm.munmap(VirtAddr(addr), len)?;
    Ok(0)
}

fn mprotect(mm: &Mm<Kernel>, addr: u64, len: u64, prot: u64) -> Result<u64, Errno> {
    mm.mprotect(VirtAddr(addr), len, linux::prot(prot)?)?;
    Ok(0)
}

fn madvise(mm: &Mm<Kernel>, addr: u64, len: u64, advice: u64) -> Result<u64, Errno> {
    if advice != MADV_DONTNEED {
        return Err(Errno::EINVAL);
    }
    mm.madvise(VirtAddr(addr), len, Advice::DontNeed)?;
    Ok(0)
}

/// Stores the number of the CPU and of its node: both zero, programs run on the boot CPU.
fn getcpu(cpu: u64, node: u64) -> Result<u64, Errno> {
    for addr in [cpu, node] {
        if addr != 0 {
            uaccess::copy_to_user(addr, &0_u32.to_le_bytes())?;
        }
    }
    Ok(0)
}
