//! The initial RAM disk as the first files, and what is there besides.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::device::DEVICES;
use super::inode::{Content, Inode};
use super::path::{self, Last, Node, Path};
use super::proc::{self, Fs};
use super::tree::{self, Dentry, Mounted, Name};
use crate::arch::paging::PAGE;
use crate::initrd::{Archive, CpioError, Entry};
use crate::linux::EEXIST;
use crate::pool::Ref;
use crate::user::creds::Creds;

/// Why the archive cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnpackError {
    /// It is damaged.
    Archive(CpioError),
    /// There is no room.
    Memory(Errno),
}

impl From<Errno> for UnpackError {
    fn from(error: Errno) -> Self {
        Self::Memory(error)
    }
}

/// Unpacks an archive, and makes the folders that programs expect, where it has none: with devices
/// in `/dev`, and what the kernel knows in `/proc` and `/sys`.
pub(crate) fn unpack(archive: &'static [u8]) -> Result<(), UnpackError> {
    let entries = if archive.is_empty() {
        None
    } else {
        Some(Archive::new(archive))
    };
    let mut linked = Links::default();
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(UnpackError::Archive)?;
        one(&entry, &mut linked)?;
    }
    for path in ["dev", "dev/shm", "proc", "sys", "tmp"] {
        let rights = if matches!(path, "tmp" | "dev/shm") {
            0o1777
        } else {
            0o755
        };
        put(path, Content::Folder, rights)?;
    }
    let mut dev = Path::of(b"dev")?;
    let found = path::walk(Node::root(), &mut dev, Last::Followed, Creds::ROOT)?;
    if let Node::Tree(dev) = found.there()? {
        devices(&dev)?;
    }
    for (path, fs) in [("proc", Fs::Proc), ("sys", Fs::Sys)] {
        let mut path = Path::of(path.as_bytes())?;
        let found = path::walk(Node::root(), &mut path, Last::Followed, Creds::ROOT)?;
        if let Node::Tree(over) = found.there()? {
            tree::mount(&over, Mounted::Proc(proc::root(fs)))?;
        }
    }
    Ok(())
}

/// Puts devices and links into a folder, as devtmpfs and udev do.
pub(super) fn devices(folder: &Ref<Dentry>) -> Result<(), Errno> {
    for row in &DEVICES {
        let inode = Inode::make(Content::Device(row.number), row.rights, Creds::ROOT)?;
        let dentry = tree::new(&Name::new(row.path.as_bytes())?, inode)?;
        match tree::insert(folder, &dentry) {
            Ok(()) | Err(EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let file = sys.new_file(0)?;
        file.write_bytes_at(0, target.as_bytes())?;
        let inode = Inode::make(Content::Link(file), 0o777, Creds::ROOT)?;
        let dentry = tree::new(&Name::new(name.as_bytes())?, inode)?;
        match tree::insert(folder, &dentry) {
            Ok(()) | Err(EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The last file that had several names: the others come next to it, and the last one has its
/// contents. Linux: init/initramfs.c keeps them all.
#[derive(Default)]
struct Links {
    number: u32,
    inode: Option<Ref<Inode>>,
}

fn one(entry: &Entry<'_>, linked: &mut Links) -> Result<(), Errno> {
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    let rights = entry.mode & 0o7777;
    let content = match entry.mode & abi::S_IFMT {
        abi::S_IFDIR => Content::Folder,
        abi::S_IFREG
            if entry.links > 1 && linked.inode.is_some() && linked.number == entry.number =>
        {
            if let Some(inode) = &linked.inode {
                if let Content::File(file) = inode.content()
                    && !entry.bytes.is_empty()
                {
                    fill(&file, entry.bytes)?;
                }
                return name(entry.path, inode.share());
            }
            Content::Folder
        }
        abi::S_IFREG => {
            let file = sys.new_file(0)?;
            fill(&file, entry.bytes)?;
            Content::File(file)
        }
        abi::S_IFLNK => {
            let file = sys.new_file(0)?;
            fill(&file, entry.bytes)?;
            Content::Link(file)
        }
        abi::S_IFCHR => Content::Device(super::device::number(entry.device.0, entry.device.1)),
        // Sockets, and disks, which there are none of.
        _ => return Ok(()),
    };
    let creds = Creds {
        uid: entry.owner.0,
        gid: entry.owner.1,
        ..Creds::ROOT
    };
    let is_file = matches!(content, Content::File(_));
    if matches!(content, Content::Folder) {
        return put(entry.path, content, rights);
    }
    let inode = Inode::make(content, rights, creds)?;
    if is_file && entry.links > 1 {
        *linked = Links {
            number: entry.number,
            inode: Some(inode.share()),
        };
    }
    name(entry.path, inode)
}

/// Writes a file's first contents.
fn fill(
    file: &minflt_mm::FileHandle<'static, crate::machine::Kernel>,
    bytes: &[u8],
) -> Result<(), Errno> {
    for (index, page) in bytes.chunks(PAGE as usize).enumerate() {
        let written = file.write_bytes_at(index as u64 * PAGE, page)?;
        if written < page.len() {
            return Err(Errno::ENOMEM);
        }
    }
    Ok(())
}

/// Makes a folder, or anything else, at a path whose folders are made if need be.
fn put(path: &str, content: Content, rights: u32) -> Result<(), Errno> {
    let is_folder = matches!(content, Content::Folder);
    let inode = Inode::make(content, rights, Creds::ROOT)?;
    match name(path, inode) {
        Err(EEXIST) if is_folder => Ok(()),
        done => done,
    }
}

/// Gives an inode the name at `path`; what had that name before, and is no folder, loses it, as the
/// last file of a name counts in an archive.
fn name(path: &str, inode: Ref<Inode>) -> Result<(), Errno> {
    let path = path.trim_end_matches('/');
    if path.is_empty() || path == "." {
        return Ok(());
    }
    let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
    let mut at = tree::root();
    for part in above.split('/').filter(|part| !part.is_empty()) {
        let there = tree::look_up(&at, part.as_bytes());
        at = match there {
            Some(dentry) => dentry,
            None => {
                let folder = Inode::make(Content::Folder, 0o755, Creds::ROOT)?;
                let dentry = tree::new(&Name::new(part.as_bytes())?, folder)?;
                tree::insert(&at, &dentry)?;
                dentry
            }
        };
    }
    let dentry = tree::new(&Name::new(last.as_bytes())?, inode)?;
    match tree::insert(&at, &dentry) {
        Err(EEXIST) => {
            let before = tree::look_up(&at, last.as_bytes()).ok_or(EEXIST)?;
            if before.inode().is_folder() {
                return Err(EEXIST);
            }
            tree::remove(&at, &before, tree::Removed::File)?;
            tree::insert(&at, &dentry)
        }
        done => done,
    }
}

/// Puts a program that the kernel carries at a path.
pub(crate) fn carry(path: &str, bytes: &[u8]) -> Result<(), Errno> {
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    let file = sys.new_file(0)?;
    fill(&file, bytes)?;
    let inode = Inode::make(Content::File(file), 0o755, Creds::ROOT)?;
    name(path, inode)
}
