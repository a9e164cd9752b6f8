//! Numbers of the Linux ABI: errors, flags, and what they stand for. Those of system calls are in
//! `calls/mod.rs`.

use minflt_mm::{Errno, Prot};

/// `MAP_SHARED`.
pub(crate) const MAP_SHARED: u64 = 0x01;
/// `MAP_PRIVATE`.
pub(crate) const MAP_PRIVATE: u64 = 0x02;
/// `MAP_SHARED_VALIDATE`: the same, but flags that are not known are refused.
pub(crate) const MAP_SHARED_VALIDATE: u64 = 0x03;
/// The bits that say how a mapping is shared.
pub(crate) const MAP_TYPE: u64 = 0x0f;
/// `MAP_FIXED`.
pub(crate) const MAP_FIXED: u64 = 0x10;
/// `MAP_ANONYMOUS`.
pub(crate) const MAP_ANONYMOUS: u64 = 0x20;
/// `MAP_GROWSDOWN`.
pub(crate) const MAP_GROWSDOWN: u64 = 0x100;
/// `MAP_DENYWRITE` and `MAP_EXECUTABLE`, which Linux ignores.
pub(crate) const MAP_IGNORED: u64 = 0x800 | 0x1000;
/// `MAP_LOCKED`.
pub(crate) const MAP_LOCKED: u64 = 0x2000;
/// `MAP_HUGETLB`, and where the size of its pages is, as a power of two.
pub(crate) const MAP_HUGETLB: u64 = 0x4_0000;
/// Where that is.
pub(crate) const MAP_HUGE_SHIFT: u32 = 26;
/// `MAP_NORESERVE`.
pub(crate) const MAP_NORESERVE: u64 = 0x4000;
/// `MAP_POPULATE`.
pub(crate) const MAP_POPULATE: u64 = 0x8000;
/// `MAP_NONBLOCK`.
pub(crate) const MAP_NONBLOCK: u64 = 0x1_0000;
/// `MAP_STACK`, which does nothing in Linux, and is a hint here: see `Place::Stack`.
pub(crate) const MAP_STACK: u64 = 0x2_0000;
/// `MAP_FIXED_NOREPLACE`.
pub(crate) const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

/// `MREMAP_MAYMOVE`.
pub(crate) const MREMAP_MAYMOVE: u64 = 1;
/// `MREMAP_FIXED`.
pub(crate) const MREMAP_FIXED: u64 = 2;
/// `MREMAP_DONTUNMAP`.
pub(crate) const MREMAP_DONTUNMAP: u64 = 4;

/// `PROT_READ`.
pub(crate) const PROT_READ: u64 = 1;
/// `PROT_WRITE`.
pub(crate) const PROT_WRITE: u64 = 2;
/// `PROT_EXEC`.
pub(crate) const PROT_EXEC: u64 = 4;

/// `CLONE_VM`: the address space is shared.
pub(crate) const CLONE_VM: u64 = 0x100;
/// `CLONE_FS`, `CLONE_FILES`, `CLONE_SIGHAND`, `CLONE_SYSVSEM`: what threads share.
pub(crate) const CLONE_SHARED: u64 = 0x200 | 0x400 | 0x800 | 0x4_0000;
/// `CLONE_VFORK`.
pub(crate) const CLONE_VFORK: u64 = 0x4000;
/// `CLONE_THREAD`.
pub(crate) const CLONE_THREAD: u64 = 0x1_0000;
/// `CLONE_SETTLS`.
pub(crate) const CLONE_SETTLS: u64 = 0x8_0000;
/// `CLONE_PARENT_SETTID`.
pub(crate) const CLONE_PARENT_SETTID: u64 = 0x10_0000;
/// `CLONE_CHILD_CLEARTID`.
pub(crate) const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
/// `CLONE_DETACHED`, which Linux ignores.
pub(crate) const CLONE_DETACHED: u64 = 0x40_0000;
/// `CLONE_CHILD_SETTID`.
pub(crate) const CLONE_CHILD_SETTID: u64 = 0x100_0000;
/// The signal that a parent gets when a process ends, in the lowest byte.
pub(crate) const CSIGNAL: u64 = 0xff;
/// `SIGCHLD`.
pub(crate) const SIGCHLD: u64 = 17;

/// What the machine is called.
pub(crate) const NODE: &str = "minflt";
/// The Linux whose calls these are.
pub(crate) const RELEASE: &str = "6.12.0-minflt";
/// What more is told of the kernel.
pub(crate) const VERSION: &str = "#1 SMP minflt";

/// No such process.
pub(crate) const ESRCH: Errno = Errno(3);
/// The call was interrupted.
pub(crate) const EINTR: Errno = Errno(4);
/// No such file.
pub(crate) const ENOENT: Errno = Errno(2);
/// Bad file descriptor.
pub(crate) const EBADF: Errno = Errno(9);
/// No child.
pub(crate) const ECHILD: Errno = Errno(10);
/// Try again: the word has another value, or there is no room for another thread.
pub(crate) const EAGAIN: Errno = Errno(11);
/// An error of a device.
pub(crate) const EIO: Errno = Errno(5);
/// Not enough memory.
pub(crate) const ENOMEM: Errno = Errno(12);
/// Bad address.
pub(crate) const EFAULT: Errno = Errno(14);
/// Out of the range of what is supported.
pub(crate) const EINVAL: Errno = Errno(22);
/// Too many open files of the process.
pub(crate) const EMFILE: Errno = Errno(24);
/// Not a terminal.
pub(crate) const ENOTTY: Errno = Errno(25);
/// It has no positions.
pub(crate) const ESPIPE: Errno = Errno(29);
/// The path is too long.
pub(crate) const ENAMETOOLONG: Errno = Errno(36);
/// No such system call.
pub(crate) const ENOSYS: Errno = Errno(38);
/// It is not supported for that.
pub(crate) const EOPNOTSUPP: Errno = Errno(95);
/// The time is over.
pub(crate) const ETIMEDOUT: Errno = Errno(110);

/// Not a folder.
pub(crate) const ENOTDIR: Errno = Errno(20);
/// It is a folder.
pub(crate) const EISDIR: Errno = Errno(21);
/// It is there.
pub(crate) const EEXIST: Errno = Errno(17);
/// It is in use.
pub(crate) const EBUSY: Errno = Errno(16);
/// Two file systems.
pub(crate) const EXDEV: Errno = Errno(18);
/// It runs, or is written.
pub(crate) const ETXTBSY: Errno = Errno(26);
/// No room on the device.
pub(crate) const ENOSPC: Errno = Errno(28);
/// The pipe has no readers.
pub(crate) const EPIPE: Errno = Errno(32);
/// Out of the range of what can be told.
pub(crate) const ERANGE: Errno = Errno(34);
/// The folder is not empty.
pub(crate) const ENOTEMPTY: Errno = Errno(39);
/// Too many links.
pub(crate) const ELOOP: Errno = Errno(40);
/// No such device.
pub(crate) const ENXIO: Errno = Errno(6);
/// No program, or none for this machine.
pub(crate) const ENOEXEC: Errno = Errno(8);
/// Too many arguments.
pub(crate) const E2BIG: Errno = Errno(7);

/// A signal has ended the call early: it is made again, unless a handler without `SA_RESTART` runs.
/// This and those below never reach a program. Linux: `ERESTARTSYS`.
pub(crate) const RESTART_IF_ASKED: Errno = Errno(512);
/// It is made again in any case. Linux: `ERESTARTNOINTR`.
pub(crate) const RESTART_ALWAYS: Errno = Errno(513);
/// It is made again, unless a handler runs. Linux: `ERESTARTNOHAND`.
pub(crate) const RESTART_IF_QUIET: Errno = Errno(514);
/// The same, by `restart_syscall`. Linux: `ERESTART_RESTARTBLOCK`.
pub(crate) const RESTART_KNOWN: Errno = Errno(516);

/// Whether a call ended so.
pub(crate) const fn is_cut(errno: Errno) -> bool {
    errno.0 >= RESTART_IF_ASKED.0 && errno.0 <= RESTART_KNOWN.0
}

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
        return Err(EINVAL);
    }
    let asked = rights.into_iter().filter(|(bit, _)| bits & bit != 0);
    Ok(asked.fold(Prot::NONE, |prot, (_, right)| prot.with(right)))
}
