//! Calls on files.

use minflt_mm::Errno;

use super::Caller;
use crate::arch::paging::PAGE;
use crate::arch::serial::Serial;
use crate::arch::uaccess;
use crate::linux::{EBADF, EFAULT, EINVAL, ENAMETOOLONG, ENOTTY, EOPNOTSUPP, EROFS, ESPIPE};
use crate::user::files::{self, Kind, Numbers};

/// Bytes copied at once to a device, over the kernel's stack.
const AT_ONCE: usize = 1024;
/// As much as Linux moves at once.
const MOST: u64 = i32::MAX as u64 & !(PAGE - 1);
/// `AT_FDCWD`: paths are taken from the working directory, which is the root.
const HERE: u64 = -100_i64 as u64;

/// How far a copy between a file and a program's memory has come.
struct Copying<'c, 'm> {
    caller: &'c Caller<'c, 'm>,
    addr: u64,
    done: u64,
    /// Whether a fault could not be resolved.
    failed: bool,
}

impl<'c, 'm> Copying<'c, 'm> {
    const fn new(caller: &'c Caller<'c, 'm>, addr: u64) -> Self {
        Self {
            caller,
            addr,
            done: 0,
            failed: false,
        }
    }

    /// Copies the next `len` bytes by `copy`, which is given where they are; how many it copied.
    /// None where the process has begun to end, but for the first.
    fn next(&mut self, len: usize, copy: impl FnOnce(u64) -> usize) -> usize {
        if self.done > 0 && !self.caller.may_go_on() {
            return 0;
        }
        let copied = self.addr.checked_add(self.done).map_or(0, copy);
        self.failed |= copied < len;
        self.done += copied as u64;
        copied
    }

    /// What the call returns that moved `moved` bytes: what was moved before a fault counts.
    fn result(&self, moved: usize) -> Result<u64, Errno> {
        if moved == 0 && self.failed {
            Err(EFAULT)
        } else {
            Ok(moved as u64)
        }
    }
}

fn read_from(
    caller: &Caller<'_, '_>,
    kind: &Kind,
    position: u64,
    addr: u64,
    len: u64,
) -> Result<u64, Errno> {
    let len = len.min(MOST) as usize;
    let mut copying = Copying::new(caller, addr);
    let moved = match kind {
        Kind::Console | Kind::Null => 0,
        Kind::Zero => {
            let zeros = [0; AT_ONCE];
            let mut moved = 0;
            while moved < len {
                let piece = &zeros[..(len - moved).min(AT_ONCE)];
                let copied = copying.next(piece.len(), |to| {
                    uaccess::copy_to_user(to, piece).map_or(0, |()| piece.len())
                });
                moved += copied;
                if copied < piece.len() {
                    break;
                }
            }
            moved
        }
        Kind::File(file) => file.read_at_with(position, len, |bytes| {
            copying.next(bytes.len(), |to| uaccess::copy_file_to_user(to, &bytes))
        })?,
    };
    copying.result(moved)
}

fn write_to(
    caller: &Caller<'_, '_>,
    kind: &Kind,
    position: u64,
    addr: u64,
    len: u64,
) -> Result<u64, Errno> {
    let len = len.min(MOST) as usize;
    let mut copying = Copying::new(caller, addr);
    let mut take = |room: &mut [u8]| {
        let len = room.len();
        copying.next(len, |from| uaccess::copy_some_from_user(room, from))
    };
    let moved = match kind {
        Kind::File(file) => file.write_at_with(position, len, take)?,
        Kind::Console | Kind::Null | Kind::Zero => {
            let mut buffer = [0; AT_ONCE];
            let mut moved = 0;
            while moved < len {
                let piece = &mut buffer[..(len - moved).min(AT_ONCE)];
                let copied = take(piece);
                if matches!(kind, Kind::Console) {
                    Serial::send(&piece[..copied]);
                }
                moved += copied;
                if copied < piece.len() {
                    break;
                }
            }
            moved
        }
    };
    copying.result(moved)
}

pub(super) fn read(caller: &Caller<'_, '_>, fd: u64, addr: u64, len: u64) -> Result<u64, Errno> {
    at_position(caller, fd, |kind, position| {
        read_from(caller, kind, position, addr, len)
    })
}

pub(super) fn write(caller: &Caller<'_, '_>, fd: u64, addr: u64, len: u64) -> Result<u64, Errno> {
    at_position(caller, fd, |kind, position| {
        write_to(caller, kind, position, addr, len)
    })
}

/// Moves bytes at the file's position, which goes on by as many.
fn at_position(
    caller: &Caller<'_, '_>,
    fd: u64,
    moves: impl FnOnce(&Kind, u64) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    let files = caller.process.files();
    let (kind, position) = files.get(fd)?;
    let done = moves(&kind, position)?;
    files.set_position(fd, position.saturating_add(done))?;
    Ok(done)
}

/// A file with positions, and one that is no negative number.
fn at(files: &Numbers, fd: u64, offset: u64) -> Result<Kind, Errno> {
    let (kind, _) = files.get(fd)?;
    match kind {
        Kind::Console => Err(ESPIPE),
        _ if offset >> 63 != 0 => Err(EINVAL),
        kind => Ok(kind),
    }
}

pub(super) fn pread(
    caller: &Caller<'_, '_>,
    [fd, addr, len, offset, ..]: [u64; 6],
) -> Result<u64, Errno> {
    read_from(
        caller,
        &at(caller.process.files(), fd, offset)?,
        offset,
        addr,
        len,
    )
}

pub(super) fn pwrite(
    caller: &Caller<'_, '_>,
    [fd, addr, len, offset, ..]: [u64; 6],
) -> Result<u64, Errno> {
    write_to(
        caller,
        &at(caller.process.files(), fd, offset)?,
        offset,
        addr,
        len,
    )
}

pub(super) fn lseek(files: &Numbers, fd: u64, offset: u64, whence: u64) -> Result<u64, Errno> {
    let (kind, position) = files.get(fd)?;
    let bytes = match &kind {
        Kind::Console => return Err(ESPIPE),
        Kind::Null | Kind::Zero => 0,
        Kind::File(file) => file.bytes(),
    };
    let from = match whence {
        0 => 0,
        1 => position,
        2 => bytes,
        _ => return Err(EINVAL),
    };
    let to = from.checked_add_signed(offset as i64).ok_or(EINVAL)?;
    if to >> 63 != 0 {
        return Err(EINVAL);
    }
    files.set_position(fd, to)?;
    Ok(to)
}

pub(super) fn close(files: &Numbers, fd: u64) -> Result<u64, Errno> {
    files.close(fd)?;
    Ok(0)
}

pub(super) fn dup(files: &Numbers, fd: u64) -> Result<u64, Errno> {
    files.duplicate(fd)
}

/// The file system is read-only but for devices: to write a file, to make or to truncate one is
/// refused. Of the other flags some do nothing here, since nothing blocks, nothing is written and
/// there is no execve; those that would do something are refused.
pub(super) fn open(files: &Numbers, path: u64, flags: u64) -> Result<u64, Errno> {
    const ACCESS: u64 = 3;
    const CREATE_OR_TRUNCATE: u64 = 0o100 | 0o1000;
    /// `O_EXCL`, `O_NOCTTY`, `O_APPEND`, `O_NONBLOCK`, `O_DSYNC`, `O_LARGEFILE`, `O_NOFOLLOW`,
    /// `O_NOATIME`, `O_CLOEXEC`, `O_SYNC`.
    const NOTHING: u64 = 0o200
        | 0o400
        | 0o2000
        | 0o4000
        | 0o10_000
        | 0o100_000
        | 0o400_000
        | 0o1_000_000
        | 0o2_000_000
        | 0o4_010_000;
    let mut buffer = [0; 256];
    let path = string(path, &mut buffer)?;
    if flags & !(ACCESS | CREATE_OR_TRUNCATE | NOTHING) != 0 {
        return Err(EINVAL);
    }
    let sys = crate::system().ok_or(Errno::ENOENT)?;
    let kind = files::find(sys, path)?;
    let writes = flags & ACCESS != 0 || flags & CREATE_OR_TRUNCATE != 0;
    if matches!(kind, Kind::File(_)) && writes {
        return Err(EROFS);
    }
    files.add(kind)
}

pub(super) fn openat(files: &Numbers, dir: u64, path: u64, flags: u64) -> Result<u64, Errno> {
    // What is given is an int.
    if dir as i32 != HERE as i32 {
        return Err(EINVAL);
    }
    open(files, path, flags)
}

/// The zero-terminated string at `at`.
fn string(at: u64, buffer: &mut [u8; 256]) -> Result<&str, Errno> {
    for index in 0..buffer.len() {
        let byte = at.checked_add(index as u64).ok_or(EFAULT)?;
        uaccess::copy_from_user(&mut buffer[index..=index], byte)?;
        if buffer[index] == 0 {
            return core::str::from_utf8(&buffer[..index]).map_err(|_| Errno::ENOENT);
        }
    }
    Err(ENAMETOOLONG)
}

/// The name is for `maps`, which there is none of.
pub(super) fn memfd_create(files: &Numbers, name: u64, flags: u64) -> Result<u64, Errno> {
    const CLOEXEC: u64 = 1;
    const HUGETLB: u64 = 4;
    let mut buffer = [0; 256];
    string(name, &mut buffer)?;
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    let file = match flags & !CLOEXEC {
        0 => sys.new_file(0)?,
        HUGETLB => sys.new_huge_file(0)?,
        _ => return Err(EINVAL),
    };
    files.add(Kind::File(file))
}

pub(super) fn ftruncate(files: &Numbers, fd: u64, bytes: u64) -> Result<u64, Errno> {
    match files.get(fd)?.0 {
        _ if bytes >> 63 != 0 => Err(EINVAL),
        Kind::File(file) => {
            file.truncate(bytes)?;
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

pub(super) fn fallocate(
    files: &Numbers,
    [fd, mode, offset, len, ..]: [u64; 6],
) -> Result<u64, Errno> {
    const PUNCH_HOLE_KEEP_SIZE: u64 = 3;
    let Kind::File(file) = files.get(fd)?.0 else {
        return Err(EBADF);
    };
    if offset >> 63 != 0 || len >> 63 != 0 || len == 0 {
        return Err(EINVAL);
    }
    match mode {
        0 => file.allocate(offset, len)?,
        PUNCH_HOLE_KEEP_SIZE => file.punch_hole(offset, len)?,
        _ => return Err(EOPNOTSUPP),
    }
    Ok(0)
}

pub(super) fn fsync(files: &Numbers, fd: u64) -> Result<u64, Errno> {
    match files.get(fd)?.0 {
        Kind::File(file) => {
            file.sync().map_err(|_| Errno::EIO)?;
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// Nothing here is a terminal, or another device with controls.
pub(super) fn ioctl(files: &Numbers, fd: u64) -> Result<u64, Errno> {
    files.get(fd)?;
    Err(ENOTTY)
}
