//! Calls on names: what a path leads to, what is in a folder, and what is made there.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::{Caller, files};
use crate::arch::uaccess;
use crate::fs::inode::{Content, Inode, right};
use crate::fs::numbers::AtExec;
use crate::fs::open::{Kind, Open};
use crate::fs::path::{self, Buffer, Found, Last, Leads, Node, Path};
use crate::fs::pipe::Pipe;
use crate::fs::tree::{self, Removed, Replace};
use crate::linux::{EBUSY, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, EOPNOTSUPP, EXDEV};
use crate::pool::Ref;
use crate::user::creds::Creds;

/// `AT_FDCWD`: relative paths begin where the process is.
pub(super) const HERE: i32 = abi::AT_FDCWD;

/// Where a path begins.
fn start(caller: &Caller<'_, '_>, fd: u64) -> Result<Node, Errno> {
    if fd as i32 == HERE {
        return Ok(caller.process.folder());
    }
    let place = caller.process.files().get(fd)?.place();
    place.ok_or(ENOTDIR)
}

/// Where `path` begins: `fd` counts for relative ones only.
pub(super) fn start_of(caller: &Caller<'_, '_>, fd: u64, path: &mut Path) -> Result<Node, Errno> {
    if path.rest().first() == Some(&b'/') {
        Ok(Node::root())
    } else {
        start(caller, fd)
    }
}

/// What a path leads to, and where that is. `fd` counts for relative ones only.
pub(super) fn find(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: &mut Path,
    last: Last,
) -> Result<Found, Errno> {
    let start = start_of(caller, fd, path)?;
    path::walk(start, path, last, caller.process.creds())
}

/// What the path at `path` leads to.
pub(super) fn node(caller: &Caller<'_, '_>, fd: u64, path: u64, last: Last) -> Result<Node, Errno> {
    find(caller, fd, &mut Path::read(path)?, last)?.there()
}

/// The same, or what `fd` stands for if the path is empty and may be.
pub(super) fn node_or_open(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    flags: u64,
) -> Result<(Option<Node>, Option<Ref<Open>>), Errno> {
    let empty = flags & u64::from(abi::AT_EMPTY_PATH) != 0;
    let mut path = if empty && path == 0 {
        Path::of(&[])?
    } else {
        Path::read_any(path)?
    };
    if path.is_empty() {
        if !empty {
            return Err(ENOENT);
        }
        if fd as i32 == HERE {
            return Ok((Some(caller.process.folder()), None));
        }
        let open = caller.process.files().get(fd)?;
        return Ok((open.place(), Some(open)));
    }
    let last = if flags & u64::from(abi::AT_SYMLINK_NOFOLLOW) != 0 {
        Last::Itself
    } else {
        Last::Followed
    };
    Ok((Some(find(caller, fd, &mut path, last)?.there()?), None))
}

/// Opens or makes a file.
pub(super) fn openat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    flags: u64,
    rights: u64,
) -> Result<u64, Errno> {
    let flags = flags as u32;
    let creds = caller.process.creds();
    if flags & abi::O_TMPFILE == abi::O_TMPFILE {
        return Err(EOPNOTSUPP);
    }
    let makes = flags & abi::O_CREAT != 0;
    let last = if flags & abi::O_NOFOLLOW != 0 || makes && flags & abi::O_EXCL != 0 {
        Last::Itself
    } else {
        Last::Followed
    };
    let found = find(caller, fd, &mut Path::read(path)?, last)?;
    let mut made = false;
    let node = match found {
        Found { node: None, .. } if !makes => return Err(ENOENT),
        Found {
            node: None,
            slashes: true,
            ..
        } => return Err(EISDIR),
        Found { node: None, .. } => {
            let sys = crate::system().ok_or(Errno::ENOMEM)?;
            let content = Content::File(sys.new_file(0)?);
            let rights = rights as u32 & !caller.process.umask();
            match make(&found, content, rights, creds) {
                Ok(node) => {
                    made = true;
                    node
                }
                // Another one was faster, which is as good.
                Err(EEXIST) if flags & abi::O_EXCL == 0 => look_again(&found)?,
                Err(error) => return Err(error),
            }
        }
        Found { node: Some(_), .. } if makes && flags & abi::O_EXCL != 0 => return Err(EEXIST),
        found => {
            let slashes = found.slashes && found.name.is_some();
            let node = found.there()?;
            if makes && (slashes || node.is_folder()) {
                return Err(EISDIR);
            }
            node
        }
    };
    let at_exec = at_exec(flags);
    if let Node::Proc(entry) = &node
        && flags & abi::O_PATH == 0
        && last == Last::Followed
        && let Some(open) = entry.open_file(flags)?
    {
        return caller.process.files().add(open, 0, at_exec);
    }
    if flags & abi::O_PATH == 0 && node.kind() == abi::S_IFLNK {
        return Err(ELOOP);
    }
    if flags & abi::O_DIRECTORY != 0 && !node.is_folder() {
        return Err(ENOTDIR);
    }
    if !made && flags & abi::O_PATH == 0 {
        check_open(&node, flags, creds)?;
    }
    let open = Open::node(node, flags)?;
    if flags & abi::O_TRUNC != 0
        && !made
        && flags & abi::O_PATH == 0
        && let Kind::File(file) = open.kind()
    {
        files::truncate(&Content::File(file), open.inode(), 0)?;
    }
    caller.process.files().add(open, 0, at_exec)
}

/// What becomes of the number in execve.
const fn at_exec(flags: u32) -> AtExec {
    if flags & abi::O_CLOEXEC != 0 {
        AtExec::Closed
    } else {
        AtExec::Kept
    }
}

fn look_again(found: &Found) -> Result<Node, Errno> {
    match (&found.folder, &found.name) {
        (Node::Tree(folder), Some(name)) => {
            let there = tree::look_up(folder, name.bytes());
            Ok(Node::Tree(there.ok_or(ENOENT)?))
        }
        _ => Err(ENOENT),
    }
}

fn check_open(node: &Node, flags: u32, creds: Creds) -> Result<(), Errno> {
    let mut rights = match flags & abi::O_ACCMODE {
        abi::O_RDONLY => right::READ,
        abi::O_WRONLY => right::WRITE,
        _ => right::READ | right::WRITE,
    };
    if flags & abi::O_TRUNC != 0 {
        rights |= right::WRITE;
    }
    if node.is_folder() && rights & right::WRITE != 0 {
        return Err(EISDIR);
    }
    node.check(creds, rights)
}

/// Makes an inode, and the name for it that was not found.
fn make(found: &Found, content: Content, rights: u32, creds: Creds) -> Result<Node, Errno> {
    let Some(name) = &found.name else {
        return Err(EEXIST);
    };
    let Node::Tree(folder) = &found.folder else {
        return Err(Errno::EACCES);
    };
    may_change(folder, creds)?;
    let inode = Inode::make(content, rights, creds)?;
    let dentry = tree::new(name, inode)?;
    tree::insert(folder, &dentry)?;
    Ok(Node::Tree(dentry))
}

fn may_change(folder: &Ref<tree::Dentry>, creds: Creds) -> Result<(), Errno> {
    folder.inode().check(creds, right::WRITE | right::EXECUTE)
}

pub(super) fn mkdirat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    rights: u64,
) -> Result<u64, Errno> {
    let found = find(caller, fd, &mut Path::read(path)?, Last::Itself)?;
    if found.node.is_some() {
        return Err(EEXIST);
    }
    let rights = rights as u32 & 0o1777 & !caller.process.umask();
    make(&found, Content::Folder, rights, caller.process.creds())?;
    Ok(0)
}

pub(super) fn mknodat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    mode: u64,
    device: u64,
) -> Result<u64, Errno> {
    let found = find(caller, fd, &mut Path::read(path)?, Last::Itself)?;
    if found.node.is_some() {
        return Err(EEXIST);
    }
    if found.slashes {
        return Err(ENOENT);
    }
    let mode = mode as u32;
    let creds = caller.process.creds();
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    let content = match mode & abi::S_IFMT {
        0 | abi::S_IFREG => Content::File(sys.new_file(0)?),
        abi::S_IFIFO => Content::Pipe(Pipe::make()?),
        abi::S_IFCHR if creds.is_root() => Content::Device(device as u32),
        abi::S_IFCHR | abi::S_IFBLK if !creds.is_root() => return Err(Errno::EPERM),
        abi::S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(EINVAL),
    };
    make(
        &found,
        content,
        mode & 0o7777 & !caller.process.umask(),
        creds,
    )?;
    Ok(0)
}

pub(super) fn symlinkat(
    caller: &Caller<'_, '_>,
    target: u64,
    fd: u64,
    path: u64,
) -> Result<u64, Errno> {
    let mut target = Path::read(target)?;
    let found = find(caller, fd, &mut Path::read(path)?, Last::Itself)?;
    if found.node.is_some() {
        return Err(EEXIST);
    }
    if found.slashes {
        return Err(ENOENT);
    }
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    let file = sys.new_file(0)?;
    file.write_bytes_at(0, target.rest())?;
    make(&found, Content::Link(file), 0o777, caller.process.creds())?;
    Ok(0)
}

pub(super) fn linkat(
    caller: &Caller<'_, '_>,
    [old_fd, old, new_fd, new, flags, _]: [u64; 6],
) -> Result<u64, Errno> {
    if flags & !u64::from(abi::AT_SYMLINK_FOLLOW | abi::AT_EMPTY_PATH) != 0 {
        return Err(EINVAL);
    }
    let last = if flags & u64::from(abi::AT_SYMLINK_FOLLOW) != 0 {
        Last::Followed
    } else {
        Last::Itself
    };
    let creds = caller.process.creds();
    let old = node(caller, old_fd, old, last)?;
    let found = find(caller, new_fd, &mut Path::read(new)?, Last::Itself)?;
    if found.node.is_some() {
        return Err(EEXIST);
    }
    let (Node::Tree(old), Node::Tree(folder)) = (&old, &found.folder) else {
        return Err(EXDEV);
    };
    tree::same_tree(old, folder)?;
    let inode = old.inode();
    if inode.is_folder() {
        return Err(Errno::EPERM);
    }
    may_change(folder, creds)?;
    let name = found.name.as_ref().ok_or(EEXIST)?;
    let dentry = tree::new(name, inode)?;
    tree::insert(folder, &dentry)?;
    Ok(0)
}

pub(super) fn unlinkat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    flags: u64,
) -> Result<u64, Errno> {
    let what = match flags as u32 {
        0 => Removed::File,
        abi::AT_REMOVEDIR => Removed::Folder,
        _ => return Err(EINVAL),
    };
    let mut path = Path::read(path)?;
    let dots = path.rest().ends_with(b".");
    let found = find(caller, fd, &mut path, Last::Itself)?;
    let node = found.node.as_ref().ok_or(ENOENT)?;
    let Some(_name) = &found.name else {
        return Err(match what {
            Removed::File => EISDIR,
            Removed::Folder if dots => EINVAL,
            Removed::Folder => EBUSY,
        });
    };
    if found.slashes && !node.is_folder() {
        return Err(ENOTDIR);
    }
    let (Node::Tree(folder), Node::Tree(dentry)) = (&found.folder, node) else {
        // The root of a mount, or a name in `/proc` or `/sys`.
        return Err(match node {
            Node::Proc(entry) if entry.above().is_none() => EBUSY,
            _ => Errno::EPERM,
        });
    };
    let creds = caller.process.creds();
    may_change(folder, creds)?;
    check_sticky(folder, dentry, creds)?;
    if dentry.covers().is_some() {
        return Err(EBUSY);
    }
    tree::remove(folder, dentry, what)?;
    Ok(0)
}

/// In a folder with that bit a name can be removed by its owner, and the folder's.
fn check_sticky(
    folder: &Ref<tree::Dentry>,
    dentry: &Ref<tree::Dentry>,
    creds: Creds,
) -> Result<(), Errno> {
    const STICKY: u32 = 0o1000;
    let above = folder.inode();
    let mine = dentry.inode().owner().0 == creds.uid || above.owner().0 == creds.uid;
    if above.mode() & STICKY != 0 && !mine && !creds.is_root() {
        return Err(Errno::EPERM);
    }
    Ok(())
}

pub(super) fn renameat(
    caller: &Caller<'_, '_>,
    [old_fd, old, new_fd, new, flags, _]: [u64; 6],
) -> Result<u64, Errno> {
    const NO_REPLACE: u64 = 1;
    let replace = match flags {
        0 => Replace::May,
        NO_REPLACE => Replace::MayNot,
        _ => return Err(EINVAL),
    };
    let old = find(caller, old_fd, &mut Path::read(old)?, Last::Itself)?;
    let new = find(caller, new_fd, &mut Path::read(new)?, Last::Itself)?;
    let (Some(old_name), Some(new_name)) = (&old.name, &new.name) else {
        return Err(EBUSY);
    };
    let moved = old.node.as_ref().ok_or(ENOENT)?;
    if (old.slashes || new.slashes) && !moved.is_folder() {
        return Err(ENOTDIR);
    }
    let (Node::Tree(from), Node::Tree(to), Node::Tree(moved)) = (&old.folder, &new.folder, moved)
    else {
        return Err(EXDEV);
    };
    let creds = caller.process.creds();
    tree::same_tree(from, to)?;
    may_change(from, creds)?;
    may_change(to, creds)?;
    check_sticky(from, moved, creds)?;
    if let Some(Node::Tree(target)) = &new.node {
        check_sticky(to, target, creds)?;
    }
    let target = match &new.node {
        Some(Node::Tree(target)) => Some(target),
        _ => None,
    };
    let moved = (moved, target);
    tree::rename((from, old_name.bytes()), (to, new_name), moved, replace)?;
    Ok(0)
}

pub(super) fn readlinkat(
    caller: &Caller<'_, '_>,
    fd: u64,
    path: u64,
    to: u64,
    len: u64,
) -> Result<u64, Errno> {
    if len == 0 || len >> 31 != 0 {
        return Err(EINVAL);
    }
    let mut path = Path::read_any(path)?;
    let node = if path.is_empty() {
        let open = caller.process.files().get(fd)?;
        open.place().ok_or(ENOENT)?
    } else {
        find(caller, fd, &mut path, Last::Itself)?.there()?
    };
    if node.kind() != abi::S_IFLNK {
        return Err(EINVAL);
    }
    let mut buffer = Buffer::new()?;
    let text = match &node {
        Node::Proc(entry) => entry.link_text(buffer.bytes())?,
        Node::Tree(_) => match node.follow()? {
            Leads::Along(target) => {
                let len = target.read(buffer.bytes())?;
                &buffer.bytes()[..len]
            }
            Leads::To(_) => return Err(EINVAL),
        },
    };
    let len = text.len().min(len as usize);
    uaccess::copy_to_user(to, &text[..len])?;
    Ok(len as u64)
}
