//! Calls on folders: what is in them, where the process is, what is mounted.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::Caller;
use super::paths::{HERE, find, node};
use crate::arch::uaccess;
use crate::fs::inode::right;
use crate::fs::open::Kind;
use crate::fs::path::{self, Buffer, Last, Node, Path};
use crate::fs::proc;
use crate::fs::tree::{self, Mounted};
use crate::linux::{EBUSY, EFAULT, EINVAL, ENOENT, ENOTDIR, ERANGE};
use crate::user;

pub(super) fn getdents(caller: &Caller<'_, '_>, fd: u64, to: u64, len: u64) -> Result<u64, Errno> {
    /// Bytes of an entry in front of its name.
    const HEADER: usize = 19;
    let open = caller.process.files().get(fd)?;
    if !matches!(open.kind(), Kind::Folder) {
        return Err(if open.flags() & abi::O_PATH != 0 {
            crate::linux::EBADF
        } else {
            ENOTDIR
        });
    }
    let node = open.place().ok_or(ENOTDIR)?;
    let len = u64::from(len as u32);
    let mut done = 0;
    let mut position = open.position();
    while let Some(entry) = crate::fs::list(&node, position) {
        let name = entry.name.bytes();
        let bytes = (HEADER + name.len() + 1).next_multiple_of(8);
        if done + bytes as u64 > len {
            if done == 0 {
                return Err(EINVAL);
            }
            break;
        }
        let mut room = [0; HEADER + tree::MOST + 1 + 8];
        room[..8].copy_from_slice(&entry.number.to_le_bytes());
        room[8..16].copy_from_slice(&entry.next.to_le_bytes());
        room[16..18].copy_from_slice(&(bytes as u16).to_le_bytes());
        room[18] = (entry.mode >> 12) as u8;
        room[HEADER..HEADER + name.len()].copy_from_slice(name);
        uaccess::copy_to_user(to.checked_add(done).ok_or(EFAULT)?, &room[..bytes])?;
        done += bytes as u64;
        position = entry.next;
        if !user::may_go_on() {
            break;
        }
    }
    open.set_position(position);
    Ok(done)
}

pub(super) fn getcwd(caller: &Caller<'_, '_>, to: u64, len: u64) -> Result<u64, Errno> {
    let mut buffer = Buffer::new()?;
    let bytes = buffer.bytes();
    let last = bytes.len() - 1;
    bytes[last] = 0;
    let (path, whole) = path::spell(&caller.process.folder(), &mut bytes[..last])?;
    if !whole {
        return Err(ENOENT);
    }
    let with_zero = path.len() + 1;
    if with_zero as u64 > len {
        return Err(ERANGE);
    }
    uaccess::copy_to_user(to, &bytes[last + 1 - with_zero..=last])?;
    Ok(with_zero as u64)
}

fn go(caller: &Caller<'_, '_>, node: Node) -> Result<u64, Errno> {
    if !node.is_folder() {
        return Err(ENOTDIR);
    }
    node.check(caller.process.creds(), right::EXECUTE)?;
    caller.process.set_folder(node);
    Ok(0)
}

pub(super) fn chdir(caller: &Caller<'_, '_>, path: u64) -> Result<u64, Errno> {
    go(caller, node(caller, HERE as u64, path, Last::Followed)?)
}

pub(super) fn fchdir(caller: &Caller<'_, '_>, fd: u64) -> Result<u64, Errno> {
    let place = caller.process.files().get(fd)?.place();
    go(caller, place.ok_or(ENOTDIR)?)
}

pub(super) fn umask(caller: &Caller<'_, '_>, mask: u64) -> Result<u64, Errno> {
    Ok(u64::from(caller.process.set_umask(mask as u32 & 0o777)))
}

/// Mounts `proc`, `sysfs`, `tmpfs` or `devtmpfs`. Programs of no file run as its owner, and there
/// are no devices or programs in the first two, so that flags which forbid these are kept anyway;
/// on the others they are refused, as are options in text, binding and moving.
pub(super) fn mount(
    caller: &Caller<'_, '_>,
    [_source, path, kind, flags, options, _]: [u64; 6],
) -> Result<u64, Errno> {
    /// `MS_RDONLY`, `MS_REMOUNT`, `MS_BIND`, `MS_MOVE`.
    const OTHER: u64 = 1 | 32 | 4096 | 8192;
    /// `MS_NODEV`, `MS_NOEXEC`.
    const FORBIDS: u64 = 4 | 8;
    let creds = caller.process.creds();
    if !creds.is_root() {
        return Err(Errno::EPERM);
    }
    if flags & OTHER != 0 {
        return Err(EINVAL);
    }
    let mut kind = Path::read(kind)?;
    let over = find(caller, HERE as u64, &mut Path::read(path)?, Last::Followed)?.there()?;
    let over = match over {
        // The same kind again.
        Node::Proc(entry) if entry.above().is_none() => return Err(EBUSY),
        Node::Proc(_) => return Err(EINVAL),
        Node::Tree(dentry) if !dentry.inode().is_folder() => return Err(ENOTDIR),
        Node::Tree(dentry) => dentry,
    };
    let options = options != 0 && !Path::read_any(options)?.is_empty();
    let in_memory = matches!(kind.rest(), b"tmpfs" | b"devtmpfs");
    if in_memory && (options || flags & FORBIDS != 0) {
        return Err(EINVAL);
    }
    let what = match kind.rest() {
        b"proc" => Mounted::Proc(proc::root(proc::Fs::Proc)),
        b"sysfs" => Mounted::Proc(proc::root(proc::Fs::Sys)),
        b"tmpfs" => Mounted::Tree(crate::fs::new_root(0o1777)?),
        b"devtmpfs" if over.covers().is_some() => return Err(EBUSY),
        b"devtmpfs" => Mounted::Tree(crate::fs::new_devices()?),
        _ => return Err(Errno::ENODEV),
    };
    tree::mount(&over, what)?;
    Ok(0)
}

/// What is used still can be used afterwards, as with `MNT_DETACH`, whether that is asked for or
/// not;
/// `MNT_FORCE` adds nothing.
pub(super) fn umount(caller: &Caller<'_, '_>, path: u64, flags: u64) -> Result<u64, Errno> {
    const KNOWN: u64 = 1 | 2;
    if flags & !KNOWN != 0 {
        return Err(EINVAL);
    }
    if !caller.process.creds().is_root() {
        return Err(Errno::EPERM);
    }
    let node = node(caller, HERE as u64, path, Last::Followed)?;
    let covered = match &node {
        Node::Tree(dentry) => dentry.covers(),
        Node::Proc(entry) if entry.above().is_none() => match proc::mounted_over(*entry) {
            Some(Node::Tree(dentry)) => Some(dentry),
            _ => None,
        },
        Node::Proc(_) => None,
    };
    tree::unmount(&covered.ok_or(EINVAL)?)?;
    Ok(0)
}
