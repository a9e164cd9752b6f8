//! Paths: from where one begins, name by name, to what it leads to.
//!
//! Linux: fs/namei.c. Paths are at most [`MOST`] bytes, with the zero; links are followed 40 times.

use linux_raw_sys::general as abi;
use minflt_mm::{Errno, FileHandle, Gfp, KernelPages};

use super::inode::{Content, Inode, right};
use super::proc;
use super::tree::{self, Dentry, Mounted, Name};
use crate::arch::uaccess;
use crate::linux::{ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR};
use crate::machine::Kernel;
use crate::pool::Ref;
use crate::user::creds::Creds;

/// The most bytes of a path, its zero included. Linux: `PATH_MAX`.
pub(crate) const MOST: usize = 4096;
/// The most links on a path. Linux: `MAXSYMLINKS`.
const MOST_LINKS: u32 = 40;

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum Node {
    /// A name in the tree.
    Tree(Ref<Dentry>),
    /// What the kernel knows.
    Proc(proc::Entry),
}

impl Node {
    /// The root of all.
    pub(crate) fn root() -> Self {
        Self::Tree(tree::root())
    }

    /// Another one of the same.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Tree(dentry) => Self::Tree(dentry.share()),
            Self::Proc(entry) => Self::Proc(*entry),
        }
    }

    /// Its kind and rights, as `st_mode`.
    pub(crate) fn mode(&self) -> u32 {
        match self {
            Self::Tree(dentry) => dentry.inode().mode(),
            Self::Proc(entry) => entry.mode(),
        }
    }

    /// Its kind, a part of that.
    pub(crate) fn kind(&self) -> u32 {
        self.mode() & abi::S_IFMT
    }

    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.kind() == abi::S_IFDIR
    }

    /// Whether a user has all of these rights.
    pub(crate) fn check(&self, creds: Creds, rights: u32) -> Result<(), Errno> {
        match self {
            Self::Tree(dentry) => dentry.inode().check(creds, rights),
            Self::Proc(entry) => entry.check(creds, rights),
        }
    }

    /// What is mounted over it, or itself.
    fn uncovered(self) -> Self {
        let mut node = self;
        while let Self::Tree(dentry) = &node {
            match dentry.mounted() {
                Some(Mounted::Tree(root)) => node = Self::Tree(root),
                Some(Mounted::Proc(entry)) => node = Self::Proc(entry),
                None => break,
            }
        }
        node
    }

    /// The folder above.
    fn above(&self) -> Result<Self, Errno> {
        match self {
            Self::Tree(dentry) => {
                let mut at = dentry.share();
                // From the root of what is mounted to the folder above what it is mounted over.
                while let Some(covered) = at.covers() {
                    at = covered;
                }
                match at.name_and_parent() {
                    (_, Some(parent)) => Ok(Self::Tree(parent)),
                    (_, None) if at.is(&tree::root()) => Ok(Self::Tree(at)),
                    // It was removed.
                    (_, None) => Err(ENOENT),
                }
            }
            Self::Proc(entry) => match entry.above() {
                Some(above) => Ok(Self::Proc(above)),
                None => proc::mounted_over(*entry).ok_or(ENOENT)?.above(),
            },
        }
    }

    /// The name in it.
    fn look_up(&self, name: &[u8]) -> Result<Self, Errno> {
        let found = match self {
            Self::Tree(folder) => tree::look_up(folder, name).map(Self::Tree),
            Self::Proc(entry) => entry.look_up(name).map(Self::Proc),
        };
        found.map(Self::uncovered).ok_or(ENOENT)
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tree(one), Self::Tree(other)) => one.is(other),
            (Self::Proc(one), Self::Proc(other)) => one == other,
            _ => false,
        }
    }

    /// The inode, of a name in the tree.
    pub(crate) fn inode(&self) -> Result<Ref<Inode>, Errno> {
        match self {
            Self::Tree(dentry) => Ok(dentry.inode()),
            // Linux has such files, but nothing of them can be changed by its owner.
            Self::Proc(_) => Err(Errno::EPERM),
        }
    }
}

/// Bytes in a frame of their own: a path, or what else a call needs room for.
pub(crate) struct Buffer(KernelPages<'static, Kernel>);

impl Buffer {
    /// Undefined bytes. Sleeps.
    pub(crate) fn new() -> Result<Self, Errno> {
        let sys = crate::system().ok_or(Errno::ENOMEM)?;
        Ok(Self(sys.alloc_pages(0, Gfp::Kernel)?))
    }

    /// All bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.0.as_bytes_mut()
    }
}

/// A path, of which some was walked.
pub(crate) struct Path {
    buffer: Buffer,
    at: usize,
    len: usize,
}

impl Path {
    /// The path at `addr` in the program's memory. Sleeps.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG`; `ENOENT` if it is empty, unless `may_be_empty`.
    pub(crate) fn read(addr: u64) -> Result<Self, Errno> {
        let path = Self::read_any(addr)?;
        if path.len == 0 {
            return Err(ENOENT);
        }
        Ok(path)
    }

    /// The same, which may be empty.
    pub(crate) fn read_any(addr: u64) -> Result<Self, Errno> {
        let mut buffer = Buffer::new()?;
        let len = uaccess::copy_string(buffer.bytes(), addr)?;
        let len = len.ok_or(ENAMETOOLONG)?;
        Ok(Self { buffer, at: 0, len })
    }

    /// The path of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Errno> {
        let mut buffer = Buffer::new()?;
        if bytes.len() >= MOST {
            return Err(ENAMETOOLONG);
        }
        buffer.bytes()[..bytes.len()].copy_from_slice(bytes);
        Ok(Self {
            buffer,
            at: 0,
            len: bytes.len(),
        })
    }

    /// Whether there is nothing in it.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What was not walked yet.
    pub(crate) fn rest(&mut self) -> &[u8] {
        &self.buffer.bytes()[self.at..self.len]
    }

    /// Skips slashes; whether there were any.
    fn skip_slashes(&mut self) -> bool {
        let slashes = self.rest().iter().take_while(|byte| **byte == b'/').count();
        self.at += slashes;
        slashes > 0
    }

    /// Takes the next name.
    fn next(&mut self) -> Result<Name, Errno> {
        let rest = self.rest();
        let len = rest
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(rest.len());
        let name = Name::new(&rest[..len])?;
        self.at += len;
        Ok(name)
    }

    /// Puts the target of a link in front of what is left, with a slash between them if the link
    /// had one behind it.
    fn put_in_front(&mut self, target: &Target, slash: bool) -> Result<(), Errno> {
        let mut buffer = Buffer::new()?;
        let bytes = buffer.bytes();
        let len = target.read(bytes)?;
        let rest = &self.buffer.bytes()[self.at..self.len];
        let behind = len + usize::from(slash);
        if behind + rest.len() >= MOST {
            return Err(ENAMETOOLONG);
        }
        bytes[len..behind].fill(b'/');
        bytes[behind..behind + rest.len()].copy_from_slice(rest);
        self.len = behind + rest.len();
        self.at = 0;
        self.buffer = buffer;
        Ok(())
    }
}

/// What a link says.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
pub(crate) enum Target {
    /// What was written into one.
    Written(FileHandle<'static, Kernel>),
    /// What the kernel says.
    Said(Name),
}

impl Target {
    /// Copies it; how many bytes it has.
    pub(crate) fn read(&self, to: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Written(file) => Ok(file.read_bytes_at(0, to)?),
            Self::Said(text) => {
                let len = text.bytes().len().min(to.len());
                to[..len].copy_from_slice(&text.bytes()[..len]);
                Ok(len)
            }
        }
    }
}

/// Where a link leads to.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
pub(crate) enum Leads {
    /// There, whatever its path.
    To(Node),
    /// Along that path.
    Along(Target),
}

impl Node {
    /// Where it leads to, if it is a link.
    pub(crate) fn follow(&self) -> Result<Leads, Errno> {
        match self {
            Self::Tree(dentry) => match dentry.inode().content() {
                Content::Link(file) => Ok(Leads::Along(Target::Written(file))),
                _ => Err(Errno::EINVAL),
            },
            Self::Proc(entry) => entry.follow(),
        }
    }
}

/// What the last name of a path is to lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// If it is a link, what that leads to.
    Followed,
    /// Itself, also if it is a link.
    Itself,
}

/// Where a path ends.
pub(crate) struct Found {
    /// The folder that the last name is in.
    pub(crate) folder: Node,
    /// The last name; none where it was `.`, `..` or a root.
    pub(crate) name: Option<Name>,
    /// What it leads to; none where there is nothing of that name.
    pub(crate) node: Option<Node>,
    /// Whether slashes follow it: it is to be a folder.
    pub(crate) slashes: bool,
}

impl Found {
    /// What is there.
    ///
    /// # Errors
    /// `ENOENT`; `ENOTDIR` if it is to be a folder and is none.
    pub(crate) fn there(self) -> Result<Node, Errno> {
        let node = self.node.ok_or(ENOENT)?;
        if self.slashes && !node.is_folder() {
            return Err(ENOTDIR);
        }
        Ok(node)
    }
}

/// Walks `path` from `start` on, as the user of `creds`.
pub(crate) fn walk(start: Node, path: &mut Path, last: Last, creds: Creds) -> Result<Found, Errno> {
    let mut at = start;
    let mut links = 0;
    let mut begins = true;
    loop {
        if begins && path.skip_slashes() {
            at = Node::root().uncovered();
        }
        begins = false;
        if path.rest().is_empty() {
            return Ok(Found {
                folder: at.share(),
                name: None,
                node: Some(at),
                slashes: true,
            });
        }
        if !at.is_folder() {
            return Err(ENOTDIR);
        }
        at.check(creds, right::EXECUTE)?;
        let name = path.next()?;
        let slashes = path.skip_slashes();
        let is_last = path.rest().is_empty();
        let found = match name.bytes() {
            b"." => Ok(at.share()),
            b".." => at.above(),
            bytes => at.look_up(bytes),
        };
        let goes_on = !is_last || slashes || last == Last::Followed;
        let node = match found {
            Ok(node) if node.kind() == abi::S_IFLNK && goes_on => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(ELOOP);
                }
                match node.follow()? {
                    Leads::To(node) => node,
                    Leads::Along(target) => {
                        path.put_in_front(&target, slashes)?;
                        begins = true;
                        continue;
                    }
                }
            }
            Err(ENOENT) if is_last && !matches!(name.bytes(), b"." | b"..") => {
                return Ok(Found {
                    folder: at,
                    name: Some(name),
                    node: None,
                    slashes,
                });
            }
            found => found?,
        };
        if is_last {
            let named = !matches!(name.bytes(), b"." | b"..");
            return Ok(Found {
                folder: at,
                name: named.then_some(name),
                node: Some(node),
                slashes,
            });
        }
        at = node;
    }
}

/// Writes the path of a name from the root on into the end of `buffer`; returns it. What was
/// removed has the path that it had in what is left of its folders, and `false`.
pub(crate) fn spell<'b>(node: &Node, buffer: &'b mut [u8]) -> Result<(&'b [u8], bool), Errno> {
    let mut start = buffer.len();
    let mut put = |bytes: &[u8]| -> Result<(), Errno> {
        let all = bytes.len() + 1;
        start = start.checked_sub(all).ok_or(ENAMETOOLONG)?;
        buffer[start] = b'/';
        buffer[start + 1..start + all].copy_from_slice(bytes);
        Ok(())
    };
    let mut at = node.share();
    if let Node::Proc(entry) = at {
        let mut entry = entry;
        while let Some(above) = entry.above() {
            put(entry.name().bytes())?;
            entry = above;
        }
        at = proc::mounted_over(entry).ok_or(ENOENT)?;
    }
    let Node::Tree(mut dentry) = at else {
        return Err(ENOENT);
    };
    let root = tree::root();
    let whole = loop {
        if dentry.is(&root) {
            break true;
        }
        if let Some(covered) = dentry.covers() {
            dentry = covered;
            continue;
        }
        let (name, parent) = dentry.name_and_parent();
        put(name.bytes())?;
        match parent {
            Some(parent) => dentry = parent,
            None => break false,
        }
    };
    if start == buffer.len() {
        start -= 1;
        buffer[start] = b'/';
    }
    Ok((&buffer[start..], whole))
}
