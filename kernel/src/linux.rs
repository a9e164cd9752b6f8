//! Numbers of the Linux ABI: system calls, errors, flags.

use minflt_mm::{Errno, Prot};

/// `write(fd, buf, count)`.
pub(crate) const WRITE: u64 = 1;
/// `mmap(addr, length, prot, flags, fd, offset)`.
pub(crate) const MMAP: u64 = 9;
/// `mprotect(addr, length, prot)`.
pub(crate) const MPROTECT: u64 = 10;
/// `munmap(addr, length)`.
pub(crate) const MUNMAP: u64 = 11;
/// `madvise(addr, length, advice)`.
pub(crate) const MADVISE: u64 = 28;
/// `exit(status)`.
pub(crate) const EXIT: u64 = 60;
/// `exit_group(status)`.
pub(crate) const EXIT_GROUP: u64 = 231;
/// `getcpu(cpu, node, unused)`.
pub(crate) const GETCPU: u64 = 309;

/// `MADV_DONTNEED`.
pub(crate) const MADV_DONTNEED: u64 = 4;

/// `MAP_PRIVATE`.
pub(crate) const MAP_PRIVATE: u64 = 0x02;
/// `MAP_FIXED`.
pub(crate) const MAP_FIXED: u64 = 0x10;
/// `MAP_ANONYMOUS`.
pub(crate) const MAP_ANONYMOUS: u64 = 0x20;
/// `MAP_FIXED_NOREPLACE`.
pub(crate) const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

/// `PROT_READ`.
pub(crate) const PROT_READ: u64 = 1;
/// `PROT_WRITE`.
pub(crate) const PROT_WRITE: u64 = 2;
/// `PROT_EXEC`.
pub(crate) const PROT_EXEC: u64 = 4;

/// `AT_NULL`: ends the auxiliary vector.
pub(crate) const AT_NULL: u64 = 0;
/// `AT_PAGESZ`: the page size.
pub(crate) const AT_PAGESZ: u64 = 6;
/// `AT_ENTRY`: the program's entry point.
pub(crate) const AT_ENTRY: u64 = 9;

/// Bad file descriptor.
pub(crate) const EBADF: Errno = Errno(9);
/// Bad address.
pub(crate) const EFAULT: Errno = Errno(14);
/// No such system call.
pub(crate) const ENOSYS: Errno = Errno(38);

/// The word a failed system call returns.
pub(crate) const fn failed(errno: Errno) -> u64 {
    (-(errno.0 as i64)) as u64
}

/// What a mapping allows, from a system call's argument. Stores imply loads, as on the hardware.
pub(crate) fn prot(bits: u64) -> Result<Prot, Errno> {
    let rights = [
        (PROT_READ, Prot::READ),
        (PROT_WRITE, Prot::READ_WRITE),
        (PROT_EXEC, Prot::EXEC),
    ];
    if bits & !(PROT_READ | PROT_WRITE | PROT_EXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    let asked = rights.into_iter().filter(|(bit, _)| bits & bit != 0);
    Ok(asked.fold(Prot::NONE, |prot, (_, right)| prot.with(right)))
}
