//! Files: names, what they lead to, and what is open.
//!
//! | file | what |
//! |---|---|
//! | `tree.rs` | names in folders, in memory |
//! | `inode.rs` | what they lead to |
//! | `proc.rs` | `/proc` and `/sys`, which are made up when they are read |
//! | `path.rs` | from a path to either |
//! | `open.rs`, `numbers.rs` | open files, and their numbers in a process |
//! | `pipe.rs`, `device.rs`, `tty.rs` | what is no regular file |
//! | `transfer.rs` | bytes on their way to a program, and back |
//! | `unpack.rs` | the initial RAM disk, as the first files |
//!
//! The contents of regular files are in the page cache of `minflt-mm`; this is the rest of tmpfs.

pub(crate) mod device;
pub(crate) mod inode;
pub(crate) mod numbers;
pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod pipe;
pub(crate) mod proc;
pub(crate) mod transfer;
pub(crate) mod tree;
pub(crate) mod tty;
pub(crate) mod unpack;

use linux_raw_sys::general as abi;
use minflt_mm::Errno;
use minflt_sync::{Atomic, Ordering};

use crate::machine::Kernel;
use crate::pool::Ref;
use crate::shared::Once;
use crate::user::creds::Creds;
use crate::user::signal;
use device::Device;
use inode::{Content, Inode};
use open::{Kind, Open};
use path::{Last, Node, Path};
use tree::{Dentry, Name};
use unpack::UnpackError;

static NEXT: Once<Atomic<u64, Kernel>> = Once::new();

/// Makes the root, with what is in the archive. Called once, when there is memory.
pub(crate) fn init(archive: &'static [u8]) -> Result<(), UnpackError> {
    NEXT.set(Atomic::new(1));
    proc::init();
    tree::init(Inode::make(Content::Folder, 0o755, Creds::ROOT)?)?;
    unpack::unpack(archive)
}

/// An empty root, to be mounted somewhere.
pub(crate) fn new_root(rights: u32) -> Result<Ref<Dentry>, Errno> {
    let inode = Inode::make(Content::Folder, rights, Creds::ROOT)?;
    tree::new(&Name::new(b"")?, inode)
}

/// One with all devices, to be mounted.
pub(crate) fn new_devices() -> Result<Ref<Dentry>, Errno> {
    let root = new_root(0o755)?;
    unpack::devices(&root)?;
    Ok(root)
}

/// The console, opened for a process that the kernel starts.
pub(crate) fn console() -> Result<Ref<Open>, Errno> {
    let mut path = Path::of(b"/dev/console")?;
    let node = path::walk(Node::root(), &mut path, Last::Followed, Creds::ROOT)?;
    let node = node.there().ok();
    Open::make(Kind::Device(Device::Terminal), node, abi::O_RDWR)
}

/// A directory entry.
pub(crate) struct Listed {
    /// The name.
    pub(crate) name: Name,
    /// The number of what it leads to.
    pub(crate) number: u64,
    /// Its kind and rights.
    pub(crate) mode: u32,
    /// The position behind it.
    pub(crate) next: u64,
}

/// The name in a folder at `position`: first itself and the one above, then the others, which in
/// the tree are the newest first, as on Linux's tmpfs.
pub(crate) fn list(folder: &Node, position: u64) -> Option<Listed> {
    const FIRST: u64 = 2;
    if position < FIRST {
        return Some(Listed {
            name: Name::new(if position == 0 { b"." } else { b".." }).ok()?,
            number: match folder {
                Node::Tree(dentry) if position == 1 => match dentry.above() {
                    Some(above) => above.inode().number(),
                    None => dentry.inode().number(),
                },
                Node::Tree(dentry) => dentry.inode().number(),
                Node::Proc(entry) => entry.number(),
            },
            mode: abi::S_IFDIR,
            next: position + 1,
        });
    }
    match folder {
        Node::Tree(dentry) => {
            let below = (position > FIRST).then(|| position - FIRST);
            let found = tree::list(dentry, below)?;
            Some(Listed {
                name: found.name,
                number: found.inode.number(),
                mode: found.inode.mode(),
                next: found.place + FIRST,
            })
        }
        Node::Proc(entry) => {
            let found = entry.list(position - FIRST)?;
            Some(Listed {
                name: found.entry.name(),
                number: found.entry.number(),
                mode: found.entry.mode(),
                next: found.next + FIRST,
            })
        }
    }
}

/// A number that no other inode has had.
fn next_number() -> u64 {
    NEXT.get().map_or(0, |next| next.add(1, Ordering::Relaxed))
}

/// Takes all files apart, for the last account of memory: no process is left. Objects of pools that
/// should not be there any more are named.
pub(crate) fn forget() {
    for fs in [proc::Fs::Proc, proc::Fs::Sys] {
        proc::root(fs).set_mounted(None);
    }
    let left = [
        ("open files", open::forget()),
        ("parts of tables", numbers::forget()),
        ("names", tree::forget()),
        ("pipes", pipe::forget()),
        ("inodes", inode::forget()),
        ("signals", signal::forget()),
    ];
    for (what, left) in left.into_iter().filter(|(_, left)| *left > 0) {
        crate::arch::serial::say!("ledger: FAILED, {left} {what} are left");
    }
}
