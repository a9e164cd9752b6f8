//! Calls on open files.

use linux_raw_sys::general as abi;
use linux_raw_sys::ioctl;
use minflt_mm::Errno;

use super::{Caller, signals};
use crate::arch::paging::PAGE;
use crate::arch::uaccess;
use crate::fs::device::Device;
use crate::fs::inode::{Content, Inode};
use crate::fs::numbers::{AtExec, Numbers};
use crate::fs::open::{Kind, Open, Whence};
use crate::fs::path::{Buffer, Path};
use crate::fs::pipe::{Pipe, Side};
use crate::fs::transfer::Transfer;
use crate::fs::tty;
use crate::linux::{EBADF, EFAULT, EINVAL, ENOTTY, EOPNOTSUPP, EPIPE, ESPIPE};
use crate::pool::Ref;

/// As much as Linux moves at once.
const MOST: u64 = i32::MAX as u64 & !(PAGE - 1);
/// The most parts of a vector.
const MOST_PARTS: u64 = 1024;

/// At which position a call moves bytes.
fn at(open: &Open, offset: u64) -> Result<Option<u64>, Errno> {
    match open.kind() {
        Kind::Pipe(..) | Kind::Device(Device::Terminal) => Err(ESPIPE),
        _ if offset >> 63 != 0 => Err(EINVAL),
        _ => Ok(Some(offset)),
    }
}

fn read_at(open: &Open, addr: u64, len: u64, at: Option<u64>) -> Result<u64, Errno> {
    open.read(
        &mut Transfer::with_program(addr),
        len.min(MOST) as usize,
        at,
    )
}

fn write_at(open: &Open, addr: u64, len: u64, at: Option<u64>) -> Result<u64, Errno> {
    let written = open.write(
        &mut Transfer::with_program(addr),
        len.min(MOST) as usize,
        at,
    );
    if written == Err(EPIPE) {
        signals::raise(abi::SIGPIPE);
    }
    written
}

pub(super) fn read(files: &Numbers, fd: u64, addr: u64, len: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    read_at(&open, addr, len, None)
}

pub(super) fn write(files: &Numbers, fd: u64, addr: u64, len: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    write_at(&open, addr, len, None)
}

pub(super) fn pread(files: &Numbers, [fd, addr, len, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    let at = at(&open, offset)?;
    read_at(&open, addr, len, at)
}

pub(super) fn pwrite(files: &Numbers, [fd, addr, len, offset, ..]: [u64; 6]) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    let at = at(&open, offset)?;
    write_at(&open, addr, len, at)
}

/// Moves the parts of a vector one after the other, until one is not moved whole.
fn each_part(
    vector: u64,
    parts: u64,
    mut one: impl FnMut(u64, u64, u64) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    if parts > MOST_PARTS {
        return Err(EINVAL);
    }
    let mut done = 0;
    for index in 0..parts {
        let part = vector.checked_add(16 * index).ok_or(EFAULT)?;
        let addr = uaccess::load(part)?;
        let len = uaccess::load(part.checked_add(8).ok_or(EFAULT)?)?;
        if len >> 63 != 0 {
            return Err(EINVAL);
        }
        let len = len.min(MOST - done);
        if len == 0 {
            continue;
        }
        match one(addr, len, done) {
            Ok(moved) => {
                done += moved;
                if moved < len {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

pub(super) fn readv(files: &Numbers, fd: u64, vector: u64, parts: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    open.check_readable()?;
    each_part(vector, parts, |addr, len, done| {
        // What is there is enough.
        let waits = match open.kind() {
            Kind::Pipe(pipe, _) => pipe.len() == 0,
            Kind::Device(Device::Terminal) => true,
            _ => false,
        };
        if done > 0 && waits {
            return Ok(0);
        }
        read_at(&open, addr, len, None)
    })
}

pub(super) fn writev(files: &Numbers, fd: u64, vector: u64, parts: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    open.check_writable()?;
    each_part(vector, parts, |addr, len, _| {
        write_at(&open, addr, len, None)
    })
}

pub(super) fn preadv(
    files: &Numbers,
    [fd, vector, parts, offset, ..]: [u64; 6],
) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    let from = at(&open, offset)?;
    each_part(vector, parts, |addr, len, done| {
        read_at(&open, addr, len, from.map(|at| at + done))
    })
}

pub(super) fn pwritev(
    files: &Numbers,
    [fd, vector, parts, offset, ..]: [u64; 6],
) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    let from = at(&open, offset)?;
    each_part(vector, parts, |addr, len, done| {
        write_at(&open, addr, len, from.map(|at| at + done))
    })
}

/// Moves bytes from one file to another, over a page of the kernel's.
pub(super) fn sendfile(
    files: &Numbers,
    [to, from, position, len, ..]: [u64; 6],
) -> Result<u64, Errno> {
    let (to, from) = (files.get(to)?, files.get(from)?);
    to.check_writable()?;
    from.check_readable()?;
    if !matches!(from.kind(), Kind::File(_)) {
        return Err(EINVAL);
    }
    let mut at = match position {
        0 => None,
        addr => Some(uaccess::load(addr)?),
    };
    let mut buffer = Buffer::new()?;
    let mut done = 0;
    while done < len.min(MOST) {
        let room = buffer.bytes();
        let part = room.len().min((len.min(MOST) - done) as usize);
        let start = at.unwrap_or_else(|| from.position());
        let moved = from.read(
            &mut Transfer::with_kernel(&mut room[..part]),
            part,
            Some(start),
        );
        let moved = match moved {
            Ok(0) => break,
            Ok(moved) => moved,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        let bytes = &mut room[..moved as usize];
        let written = to.write(&mut Transfer::with_kernel(bytes), moved as usize, None);
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                if error == EPIPE {
                    signals::raise(abi::SIGPIPE);
                }
                if done == 0 {
                    return Err(error);
                }
                break;
            }
        };
        done += written;
        match &mut at {
            Some(at) => *at += written,
            None => from.set_position(start + written),
        }
        if written < moved || !crate::user::may_go_on() {
            break;
        }
    }
    if let Some(at) = at {
        uaccess::store(position, at)?;
    }
    Ok(done)
}

pub(super) fn lseek(files: &Numbers, fd: u64, offset: u64, whence: u64) -> Result<u64, Errno> {
    let whence = match whence as u32 {
        0 => Whence::Start,
        1 => Whence::Position,
        2 => Whence::End,
        _ => return Err(EINVAL),
    };
    files.get(fd)?.seek(offset as i64, whence)
}

pub(super) fn close(files: &Numbers, fd: u64) -> Result<u64, Errno> {
    files.close(fd)?;
    Ok(0)
}

/// `CLOSE_RANGE_UNSHARE` does nothing: each process has a table of its own.
pub(super) fn close_range(
    files: &Numbers,
    first: u64,
    last: u64,
    flags: u64,
) -> Result<u64, Errno> {
    const UNSHARE: u64 = 2;
    const CLOEXEC: u64 = 4;
    if flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(EINVAL);
    }
    let (first, last) = (u64::from(first as u32), u64::from(last as u32));
    files.close_range(first, last, flags & CLOEXEC != 0)?;
    Ok(0)
}

pub(super) fn dup(files: &Numbers, fd: u64) -> Result<u64, Errno> {
    files.add(files.get(fd)?, 0, AtExec::Kept)
}

pub(super) fn dup2(files: &Numbers, from: u64, to: u64) -> Result<u64, Errno> {
    let open = files.get(from)?;
    if from as u32 != to as u32 {
        files.put(open, to, AtExec::Kept)?;
    }
    Ok(u64::from(to as u32))
}

pub(super) fn dup3(files: &Numbers, from: u64, to: u64, flags: u64) -> Result<u64, Errno> {
    let at_exec = at_exec(flags)?;
    if from as u32 == to as u32 {
        return Err(EINVAL);
    }
    files.put(files.get(from)?, to, at_exec)?;
    Ok(u64::from(to as u32))
}

/// What the only flag there may be says.
fn at_exec(flags: u64) -> Result<AtExec, Errno> {
    match flags as u32 {
        0 => Ok(AtExec::Kept),
        abi::O_CLOEXEC => Ok(AtExec::Closed),
        _ => Err(EINVAL),
    }
}

/// Locks of files are not supported, which is `EINVAL`.
pub(super) fn fcntl(files: &Numbers, fd: u64, what: u64, value: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    let duplicate = |at_exec| {
        let from = u64::from(value as u32) as usize;
        if from >= crate::fs::numbers::MOST {
            return Err(EINVAL);
        }
        files.add(open.share(), from, at_exec)
    };
    match what as u32 {
        abi::F_DUPFD => duplicate(AtExec::Kept),
        abi::F_DUPFD_CLOEXEC => duplicate(AtExec::Closed),
        abi::F_GETFD => Ok(u64::from(files.at_exec(fd)? == AtExec::Closed)),
        abi::F_SETFD => {
            let at_exec = if value as u32 & abi::FD_CLOEXEC != 0 {
                AtExec::Closed
            } else {
                AtExec::Kept
            };
            files.set_at_exec(fd, at_exec)?;
            Ok(0)
        }
        // Files are as large as they can be, which a process of 64 bits is told.
        abi::F_GETFL => Ok(u64::from(open.flags() | abi::O_LARGEFILE)),
        abi::F_SETFL => {
            open.set_flags(value as u32);
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

pub(super) fn pipe(files: &Numbers, at: u64, flags: u64) -> Result<u64, Errno> {
    let kept = abi::O_NONBLOCK | abi::O_DIRECT;
    let at_exec = at_exec(flags & !u64::from(kept))?;
    let pipe = Pipe::make()?;
    let side = |reads| Side {
        reads,
        writes: !reads,
    };
    let flags = flags as u32 & kept;
    let reads = Open::make(Kind::Pipe(pipe.share(), side(true)), None, flags)?;
    let writes = Kind::Pipe(pipe, side(false));
    let writes = Open::make(writes, None, flags | abi::O_WRONLY)?;
    let first = files.add(reads, 0, at_exec)?;
    let second = match files.add(writes, 0, at_exec) {
        Ok(second) => second,
        Err(error) => {
            files.close(first)?;
            return Err(error);
        }
    };
    let told = uaccess::store(at, first | second << 32);
    if let Err(error) = told {
        files.close(first)?;
        files.close(second)?;
        return Err(error);
    }
    Ok(0)
}

/// The name is for `maps`.
pub(super) fn memfd_create(caller: &Caller<'_, '_>, name: u64, flags: u64) -> Result<u64, Errno> {
    const CLOEXEC: u64 = 1;
    const HUGETLB: u64 = 4;
    let _name = Path::read_any(name)?;
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    let file = match flags & !CLOEXEC {
        0 => sys.new_file(0)?,
        HUGETLB => sys.new_huge_file(0)?,
        _ => return Err(EINVAL),
    };
    let at_exec = if flags & CLOEXEC != 0 {
        AtExec::Closed
    } else {
        AtExec::Kept
    };
    let open = Open::make(Kind::File(file), None, abi::O_RDWR)?;
    caller.process.files().add(open, 0, at_exec)
}

pub(super) fn ftruncate(files: &Numbers, fd: u64, bytes: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    if bytes >> 63 != 0 {
        return Err(EINVAL);
    }
    open.check_writable().map_err(|_| EINVAL)?;
    match open.kind() {
        Kind::File(file) => {
            truncate(&Content::File(file), open.inode(), bytes)?;
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

/// Gives a file another size.
pub(super) fn truncate(
    content: &Content,
    inode: Option<Ref<Inode>>,
    bytes: u64,
) -> Result<(), Errno> {
    let Content::File(file) = content else {
        return Err(EINVAL);
    };
    if let Some(inode) = &inode {
        inode.check_not_run()?;
    }
    let _written = inode.as_ref().map(|inode| inode.writing().lock());
    file.truncate(bytes)?;
    if let Some(inode) = &inode {
        inode.touch(crate::fs::inode::Time::Modified);
        inode.touch(crate::fs::inode::Time::Changed);
    }
    Ok(())
}

pub(super) fn fallocate(
    files: &Numbers,
    [fd, mode, offset, len, ..]: [u64; 6],
) -> Result<u64, Errno> {
    const PUNCH_HOLE_KEEP_SIZE: u64 = 3;
    let open = files.get(fd)?;
    let Kind::File(file) = open.kind() else {
        return Err(EBADF);
    };
    open.check_writable()?;
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
    match files.get(fd)?.kind() {
        Kind::File(file) => {
            file.sync().map_err(|_| Errno::EIO)?;
            Ok(0)
        }
        Kind::Folder => Ok(0),
        _ => Err(EINVAL),
    }
}

/// The terminal's, and how many bytes there are to read.
pub(super) fn ioctl(files: &Numbers, fd: u64, what: u64, value: u64) -> Result<u64, Errno> {
    let open = files.get(fd)?;
    match (open.kind(), what as u32) {
        (_, ioctl::FIOCLEX) => files.set_at_exec(fd, AtExec::Closed)?,
        (_, ioctl::FIONCLEX) => files.set_at_exec(fd, AtExec::Kept)?,
        (Kind::Pipe(pipe, _), ioctl::FIONREAD) => uaccess::store_u32(value, pipe.len() as u32)?,
        (Kind::File(file), ioctl::FIONREAD) => {
            let left = file.bytes().saturating_sub(open.position());
            uaccess::store_u32(value, left as u32)?;
        }
        (_, ioctl::FIONBIO) => {
            let on = uaccess::load_u32(value)? != 0;
            let flags = open.flags() & !abi::O_NONBLOCK;
            open.set_flags(if on { flags | abi::O_NONBLOCK } else { flags });
        }
        (Kind::Device(Device::Terminal), what) => return tty::ioctl(what, value),
        _ => return Err(ENOTTY),
    }
    Ok(0)
}

/// The file's contents are in the page cache already, and stay there.
pub(super) fn fadvise(files: &Numbers, fd: u64, advice: u64) -> Result<u64, Errno> {
    const MOST_ADVICE: u64 = 5;
    match files.get(fd)?.kind() {
        Kind::Pipe(..) => Err(ESPIPE),
        _ if advice > MOST_ADVICE => Err(EINVAL),
        _ => Ok(0),
    }
}
