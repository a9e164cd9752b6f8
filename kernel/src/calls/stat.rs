//! Calls that tell what is known of a file, and those that change that.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::paths::{HERE, node, node_or_open};
use super::{Caller, files};
use crate::arch::paging::PAGE;
use crate::arch::uaccess;
use crate::fs::inode::{Inode, Time, right};
use crate::fs::open::{Kind, Open};
use crate::fs::path::{Last, Node};
use crate::fs::tree;
use crate::linux::{EFAULT, EINVAL, EISDIR, ENOENT};
use crate::machine;
use crate::user::creds::Creds;

/// What `stat` tells.
#[derive(Clone, Copy, Debug, Default)]
struct Stat {
    device: u64,
    inode: u64,
    links: u64,
    mode: u32,
    owner: (u32, u32),
    rdev: u64,
    bytes: u64,
    blocks: u64,
    times: [u64; 3],
}

/// The numbers of the devices that files are on: those in memory, and those that are made up.
const IN_MEMORY: u64 = 2;
const MADE_UP: u64 = 20;

impl Stat {
    fn of(node: Option<&Node>, open: Option<&Open>) -> Result<Self, Errno> {
        match (node, open) {
            (Some(Node::Tree(dentry)), _) => Ok(Self::of_inode(&dentry.inode())),
            (Some(Node::Proc(entry)), _) => Ok(Self {
                device: MADE_UP,
                inode: entry.number(),
                links: if entry.is_folder() { 2 } else { 1 },
                mode: entry.mode(),
                times: [machine::real_ns(); 3],
                ..Self::default()
            }),
            (None, Some(open)) => Ok(Self::of_nameless(&open.kind())),
            (None, None) => Err(ENOENT),
        }
    }

    fn of_inode(inode: &Inode) -> Self {
        Self {
            device: IN_MEMORY,
            inode: inode.number(),
            links: u64::from(inode.links()),
            mode: inode.mode(),
            owner: inode.owner(),
            rdev: u64::from(inode.device()),
            bytes: inode.bytes(),
            blocks: inode.blocks(),
            times: [Time::Accessed, Time::Modified, Time::Changed].map(|time| inode.time(time)),
        }
    }

    /// Of a file that no name leads to: a pipe, or memory.
    fn of_nameless(kind: &Kind) -> Self {
        let now = [machine::real_ns(); 3];
        let (mode, bytes, blocks) = match kind {
            Kind::Pipe(..) => (abi::S_IFIFO | 0o600, 0, 0),
            Kind::File(file) => (abi::S_IFREG | 0o777, file.bytes(), file.cached_pages() * 8),
            _ => (abi::S_IFCHR | 0o600, 0, 0),
        };
        Self {
            device: MADE_UP + 1,
            inode: 1,
            links: 1,
            mode,
            bytes,
            blocks,
            times: now,
            ..Self::default()
        }
    }

    /// Stores it as `struct stat`.
    fn store(&self, to: u64) -> Result<(), Errno> {
        const NS: u64 = 1_000_000_000;
        let (uid, gid) = self.owner;
        let mut words = [0; 18];
        words[0] = self.device;
        words[1] = self.inode;
        words[2] = self.links;
        words[3] = u64::from(self.mode) | u64::from(uid) << 32;
        words[4] = u64::from(gid);
        words[5] = self.rdev;
        words[6] = self.bytes;
        words[7] = PAGE;
        words[8] = self.blocks;
        for (index, time) in self.times.into_iter().enumerate() {
            words[9 + 2 * index] = time / NS;
            words[10 + 2 * index] = time % NS;
        }
        store_words(to, &words)
    }

    /// Stores it as `struct statx`.
    fn store_extended(&self, to: u64) -> Result<(), Errno> {
        const NS: u64 = 1_000_000_000;
        /// `STATX_BASIC_STATS`.
        const BASIC: u64 = 0x7ff;
        let (uid, gid) = self.owner;
        let parts = |device: u64| (device >> 8 & 0xfff) | (device & 0xff) << 32;
        let mut words = [0; 32];
        words[0] = BASIC | PAGE << 32;
        words[2] = self.links | u64::from(uid) << 32;
        words[3] = u64::from(gid) | u64::from(self.mode) << 32;
        words[4] = self.inode;
        words[5] = self.bytes;
        words[6] = self.blocks;
        // Accessed, born (not told), changed, modified.
        for (place, time) in [(8, self.times[0]), (12, self.times[2]), (14, self.times[1])] {
            words[place] = time / NS;
            words[place + 1] = time % NS;
        }
        words[16] = parts(self.rdev);
        words[17] = parts(self.device);
        store_words(to, &words)
    }
}

fn store_words(to: u64, words: &[u64]) -> Result<(), Errno> {
    for (index, word) in words.iter().enumerate() {
        uaccess::store(to.checked_add(8 * index as u64).ok_or(EFAULT)?, *word)?;
    }
    Ok(())
}

pub(super) fn fstat(caller: &Caller<'_, '_>, fd: u64, to: u64) -> Result<u64, Errno> {
    let open = caller.process.files().get(fd)?;
    let place = open.place();
    Stat::of(place.as_ref(), Some(&open))?.store(to)?;
    Ok(0)
}

/// `AT_NO_AUTOMOUNT` and how fresh the answer is to be change nothing.
const STAT_FLAGS: u64 =
    (abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH | abi::AT_NO_AUTOMOUNT | 0x6000) as u64;

pub(super) fn fstatat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    to: u64,
    flags: u64,
) -> Result<u64, Errno> {
    if flags & !STAT_FLAGS != 0 {
        return Err(EINVAL);
    }
    let (node, open) = node_or_open(caller, fd, path, flags)?;
    Stat::of(node.as_ref(), open.as_deref())?.store(to)?;
    Ok(0)
}

pub(super) fn statx(
    caller: &Caller<'_, '_>,
    [fd, path, flags, _mask, to, _]: [u64; 6],
) -> Result<u64, Errno> {
    if flags & !STAT_FLAGS != 0 {
        return Err(EINVAL);
    }
    let (node, open) = node_or_open(caller, fd, path, flags)?;
    Stat::of(node.as_ref(), open.as_deref())?.store_extended(to)?;
    Ok(0)
}

/// What `statfs` tells of a file system: all is memory.
pub(super) fn statfs(caller: &Caller<'_, '_>, path: u64, to: u64) -> Result<u64, Errno> {
    let node = node(caller, HERE as u64, path, Last::Followed)?;
    store_statfs(Some(&node), to)
}

pub(super) fn fstatfs(caller: &Caller<'_, '_>, fd: u64, to: u64) -> Result<u64, Errno> {
    let open = caller.process.files().get(fd)?;
    store_statfs(open.place().as_ref(), to)
}

fn store_statfs(node: Option<&Node>, to: u64) -> Result<u64, Errno> {
    const TMPFS: u64 = 0x0102_1994;
    const PROC: u64 = 0x9fa0;
    let mut words = [0; 15];
    words[0] = match node {
        Some(Node::Proc(_)) => PROC,
        _ => TMPFS,
    };
    words[1] = PAGE;
    words[8] = tree::MOST as u64;
    words[9] = PAGE;
    store_words(to, &words)?;
    Ok(0)
}

/// The real user's rights, or the effective one's (`AT_EACCESS`).
pub(super) fn faccessat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    rights: u64,
    flags: u64,
) -> Result<u64, Errno> {
    let known = abi::AT_EACCESS | abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH;
    if rights & !7 != 0 || flags & !u64::from(known) != 0 {
        return Err(EINVAL);
    }
    let (node, _open) = node_or_open(caller, fd, path, flags)?;
    let mut creds = caller.process.creds();
    if flags & u64::from(abi::AT_EACCESS) == 0 {
        (creds.uid, creds.gid) = (creds.real_uid, creds.real_gid);
    }
    if let Some(node) = node {
        node.check(creds, rights as u32)?;
    }
    Ok(0)
}

/// Whether the user may change what is said of a file.
fn owns(inode: &Inode, creds: Creds) -> Result<(), Errno> {
    if creds.is_root() || inode.owner().0 == creds.uid {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

pub(super) fn fchmodat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    rights: u64,
) -> Result<u64, Errno> {
    let inode = node(caller, fd, path, Last::Followed)?.inode()?;
    owns(&inode, caller.process.creds())?;
    inode.set_rights(rights as u32);
    Ok(0)
}

pub(super) fn fchmod(caller: &Caller<'_, '_>, fd: u64, rights: u64) -> Result<u64, Errno> {
    let open = caller.process.files().get(fd)?;
    let inode = open.inode().ok_or(EINVAL)?;
    owns(&inode, caller.process.creds())?;
    inode.set_rights(rights as u32);
    Ok(0)
}

fn set_owner(caller: &Caller<'_, '_>, inode: &Inode, uid: u64, gid: u64) -> Result<u64, Errno> {
    let creds = caller.process.creds();
    let given = |id: u64| Some(id as u32).filter(|id| *id != u32::MAX);
    let (uid, gid) = (given(uid), given(gid));
    let (owner, group) = inode.owner();
    let keeps = uid.is_none_or(|uid| uid == owner)
        && gid.is_none_or(|gid| gid == creds.gid || gid == group);
    if !creds.is_root() {
        owns(inode, creds)?;
        if !keeps {
            return Err(Errno::EPERM);
        }
    }
    inode.set_owner(uid, gid);
    Ok(0)
}

pub(super) fn fchownat(
    caller: &Caller<'_, '_>,
    [fd, path, uid, gid, flags, _]: [u64; 6],
) -> Result<u64, Errno> {
    if flags & !u64::from(abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
        return Err(EINVAL);
    }
    let (node, open) = node_or_open(caller, fd, path, flags)?;
    let inode = match (node, open) {
        (Some(node), _) => node.inode()?,
        (None, Some(open)) => open.inode().ok_or(EINVAL)?,
        (None, None) => return Err(ENOENT),
    };
    set_owner(caller, &inode, uid, gid)
}

pub(super) fn fchown(caller: &Caller<'_, '_>, fd: u64, uid: u64, gid: u64) -> Result<u64, Errno> {
    let inode = caller.process.files().get(fd)?.inode().ok_or(EINVAL)?;
    set_owner(caller, &inode, uid, gid)
}

pub(super) fn truncate(caller: &Caller<'_, '_>, path: u64, bytes: u64) -> Result<u64, Errno> {
    if bytes >> 63 != 0 {
        return Err(EINVAL);
    }
    let inode = node(caller, HERE as u64, path, Last::Followed)?.inode()?;
    if inode.is_folder() {
        return Err(EISDIR);
    }
    inode.check(caller.process.creds(), right::WRITE)?;
    files::truncate(&inode.content(), Some(inode), bytes)?;
    Ok(0)
}

pub(super) fn utimensat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    times: u64,
    flags: u64,
) -> Result<u64, Errno> {
    const NS: u64 = 1_000_000_000;
    /// `UTIME_NOW`, `UTIME_OMIT`.
    const NOW: u64 = (1 << 30) - 1;
    const OMIT: u64 = (1 << 30) - 2;
    if flags & !u64::from(abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
        return Err(EINVAL);
    }
    let (node, open) = if path == 0 {
        let open = caller.process.files().get(fd)?;
        (open.place(), Some(open))
    } else {
        node_or_open(caller, fd, path, flags)?
    };
    let inode = match (node, open) {
        (Some(node), _) => node.inode()?,
        (None, _) => return Err(EINVAL),
    };
    let creds = caller.process.creds();
    let now = machine::real_ns();
    let mut set = [Some(now); 2];
    if times != 0 {
        for (index, set) in set.iter_mut().enumerate() {
            let at = times.checked_add(16 * index as u64).ok_or(EFAULT)?;
            let seconds = uaccess::load(at)?;
            let ns = uaccess::load(at.checked_add(8).ok_or(EFAULT)?)?;
            *set = match ns {
                NOW => Some(now),
                OMIT => None,
                ns if ns < NS => Some(seconds.wrapping_mul(NS).wrapping_add(ns)),
                _ => return Err(EINVAL),
            };
        }
    }
    if times == 0 {
        owns(&inode, creds).or_else(|_| inode.check(creds, right::WRITE))?;
    } else if set != [None; 2] {
        owns(&inode, creds)?;
    }
    for (time, ns) in [Time::Accessed, Time::Modified].into_iter().zip(set) {
        if let Some(ns) = ns {
            inode.set_time(time, ns);
        }
    }
    inode.touch(Time::Changed);
    Ok(0)
}
