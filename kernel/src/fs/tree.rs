//! Names: a tree of them, each of which leads to an inode. Linux: `struct dentry`, and tmpfs.
//!
//! # Problem
//! Names are looked up, made, removed and moved by many at once, and a path that is walked must not
//! lead through what is half moved.
//!
//! # Idea
//! One lock that spins for the whole tree, held for one step: one name is looked up, made, removed
//! or moved. Whatever needs memory or sleeps is done before or after it. A counted reference keeps
//! a name that was found, also when it is removed from its folder meanwhile.
//!
//! # Why it is correct
//! All links between names change under the lock, and a look under it follows them. A folder that
//! is removed was found empty under the lock, and gets no names afterwards: `parent` says that it
//! is in the tree. A move first checks, under the same hold, that the folder does not go into
//! itself.
//!
//! # Cost
//! A look compares hashes of all names of a folder, until it finds its own: a folder of 10,000
//! files makes each 10,000 loads. Linux has a hash table of all names, and a lock a folder.

use core::cell::{Ref as Borrowed, RefCell, RefMut};

use minflt_mm::Errno;
use minflt_sync::order::WaitLock;
use minflt_sync::{SpinGuard, SpinLock};

use super::inode::Inode;
use super::path::Node;
use super::proc;
use crate::linux::{
    EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EXDEV, RESTART_ALWAYS,
};
use crate::machine::Kernel;
use crate::pool::{Pool, Pooled, Ref};
use crate::shared::Once;

/// The most bytes of a name.
pub(crate) const MOST: usize = 255;

/// A name in a folder.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    len: u8,
    bytes: [u8; MOST],
}

impl Name {
    const EMPTY: Self = Self {
        len: 0,
        bytes: [0; MOST],
    };

    /// The name, if it is not too long.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let mut name = Self::EMPTY;
        let len = u8::try_from(bytes.len()).map_err(|_| crate::linux::ENAMETOOLONG)?;
        name.bytes[..bytes.len()].copy_from_slice(bytes);
        name.len = len;
        Ok(name)
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

fn hash(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

/// What the lock of the tree guards.
struct Guarded<T>(RefCell<T>);

// SAFETY: (1) it is reached with a `Held` only, of which there is one at a time.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// The lock of the tree, held.
struct Held<'l> {
    _guard: SpinGuard<'l, (), WaitLock, Kernel>,
}

impl<T> Guarded<T> {
    fn get<'h>(&'h self, _held: &'h Held<'_>) -> Borrowed<'h, T> {
        self.0.borrow()
    }

    fn get_mut<'h>(&'h self, _held: &'h Held<'_>) -> RefMut<'h, T> {
        self.0.borrow_mut()
    }
}

static LOCK: Once<SpinLock<(), WaitLock, Kernel>> = Once::new();
static ROOT: Once<SpinLock<Option<Ref<Dentry>>, WaitLock, Kernel>> = Once::new();
static POOL: Pool<Dentry> = Pool::new();

fn lock() -> Held<'static> {
    match LOCK.get() {
        Some(lock) => Held {
            _guard: lock.lock(),
        },
        None => panic!("a name is looked up before there may be any"),
    }
}

/// A name that leads to an inode.
pub(crate) struct Dentry(Guarded<Links>);

struct Links {
    name: Name,
    hash: u32,
    inode: Option<Ref<Inode>>,
    /// The folder that it is in; none for a root, or when it was removed.
    parent: Option<Ref<Dentry>>,
    /// The newest name in it, if it is a folder.
    newest: Option<Ref<Dentry>>,
    /// The next older one of its folder.
    older: Option<Ref<Dentry>>,
    /// Its place among those: the older, the lower.
    place: u64,
    /// The place of the next name in it.
    next_place: u64,
    /// What is mounted over it.
    mounted: Option<Mounted>,
    /// The folder that it is mounted over, if it is a root.
    covers: Option<Ref<Dentry>>,
    /// Whether it is the root of all.
    is_root: bool,
}

/// A file system over a folder.
#[derive(Debug)]
pub(crate) enum Mounted {
    /// Names of the same kind, below this root.
    Tree(Ref<Dentry>),
    /// What the kernel knows: see [`proc`].
    Proc(proc::Entry),
}

impl Mounted {
    fn share(&self) -> Self {
        match self {
            Self::Tree(root) => Self::Tree(root.share()),
            Self::Proc(entry) => Self::Proc(*entry),
        }
    }
}

impl Pooled for Dentry {
    fn new() -> Self {
        Self(Guarded(RefCell::new(Links {
            name: Name::EMPTY,
            hash: 0,
            inode: None,
            parent: None,
            newest: None,
            older: None,
            place: 0,
            next_place: 0,
            mounted: None,
            covers: None,
            is_root: false,
        })))
    }

    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn clean(&self) {
        let held = lock();
        let mut links = self.0.get_mut(&held);
        let gone = (links.inode.take(), links.parent.take(), links.covers.take());
        (links.is_root, links.older) = (false, None);
        drop(links);
        drop(held);
        drop(gone);
    }
}

/// What a folder's reader is told of a name.
pub(crate) struct Listed {
    /// The name.
    pub(crate) name: Name,
    /// What it leads to.
    pub(crate) inode: Ref<Inode>,
    /// Where to go on behind it.
    pub(crate) place: u64,
}

/// Makes an empty root. Called once, when there is memory.
pub(crate) fn init(root: Ref<Inode>) -> Result<(), Errno> {
    LOCK.set(SpinLock::new(()));
    let root = new(&Name::EMPTY, root)?;
    let held = lock();
    root.0.get_mut(&held).is_root = true;
    drop(held);
    ROOT.set(SpinLock::new(Some(root)));
    Ok(())
}

/// The root.
pub(crate) fn root() -> Ref<Dentry> {
    let root = ROOT
        .get()
        .and_then(|root| root.lock().as_ref().map(Ref::share));
    match root {
        Some(root) => root,
        None => panic!("there is no root"),
    }
}

/// A name that is in no folder yet. Sleeps.
pub(crate) fn new(name: &Name, inode: Ref<Inode>) -> Result<Ref<Dentry>, Errno> {
    let dentry = POOL.take()?;
    let held = lock();
    let mut links = dentry.0.get_mut(&held);
    links.name = *name;
    links.hash = hash(name.bytes());
    links.inode = Some(inode);
    links.next_place = 1;
    drop(links);
    drop(held);
    Ok(dentry)
}

impl Dentry {
    /// What it leads to.
    pub(crate) fn inode(&self) -> Ref<Inode> {
        let held = lock();
        match &self.0.get(&held).inode {
            Some(inode) => inode.share(),
            None => panic!("a name is used that nobody has"),
        }
    }

    /// Its name, and its folder if it is in one.
    pub(crate) fn name_and_parent(&self) -> (Name, Option<Ref<Self>>) {
        let held = lock();
        let links = self.0.get(&held);
        (links.name, links.parent.as_ref().map(Ref::share))
    }

    /// The folder that it is in, or that its root is mounted over.
    pub(crate) fn above(&self) -> Option<Ref<Self>> {
        let held = lock();
        let links = self.0.get(&held);
        let above = links.parent.as_ref().or(links.covers.as_ref());
        above.map(Ref::share)
    }

    /// The folder that it is mounted over.
    pub(crate) fn covers(&self) -> Option<Ref<Self>> {
        let held = lock();
        self.0.get(&held).covers.as_ref().map(Ref::share)
    }

    /// What is mounted over it.
    pub(crate) fn mounted(&self) -> Option<Mounted> {
        let held = lock();
        self.0.get(&held).mounted.as_ref().map(Mounted::share)
    }
}

fn find(held: &Held<'_>, folder: &Dentry, name: &[u8]) -> Option<Ref<Dentry>> {
    let wanted = hash(name);
    let mut at = folder.0.get(held).newest.as_ref().map(Ref::share);
    while let Some(dentry) = at {
        let links = dentry.0.get(held);
        if links.hash == wanted && links.name.bytes() == name {
            drop(links);
            return Some(dentry);
        }
        let older = links.older.as_ref().map(Ref::share);
        drop(links);
        // It is in the folder, so this is not its last reference.
        at = older;
    }
    None
}

/// The name in a folder.
pub(crate) fn look_up(folder: &Ref<Dentry>, name: &[u8]) -> Option<Ref<Dentry>> {
    find(&lock(), folder, name)
}

/// Whether a folder is in the tree still, or a root.
fn is_live(held: &Held<'_>, folder: &Dentry) -> bool {
    let links = folder.0.get(held);
    links.parent.is_some() || links.covers.is_some() || links.is_root
}

/// Puts a new name into a folder.
///
/// # Errors
/// `EEXIST` if it has one like that, `ENOENT` if the folder was removed.
pub(crate) fn insert(folder: &Ref<Dentry>, dentry: &Ref<Dentry>) -> Result<(), Errno> {
    let held = lock();
    if !is_live(&held, folder) {
        return Err(ENOENT);
    }
    let name = dentry.0.get(&held).name;
    if find(&held, folder, name.bytes()).is_some() {
        return Err(EEXIST);
    }
    link(&held, folder, dentry);
    Ok(())
}

fn inode_of(held: &Held<'_>, dentry: &Dentry) -> Ref<Inode> {
    match &dentry.0.get(held).inode {
        Some(inode) => inode.share(),
        None => panic!("a name is used that nobody has"),
    }
}

fn link(held: &Held<'_>, folder: &Ref<Dentry>, dentry: &Ref<Dentry>) {
    let (folder_inode, inode) = (inode_of(held, folder), inode_of(held, dentry));
    let mut above = folder.0.get_mut(held);
    let mut links = dentry.0.get_mut(held);
    links.place = above.next_place;
    above.next_place += 1;
    links.older = above.newest.replace(dentry.share());
    links.parent = Some(folder.share());
    inode.count_link(true);
    folder_inode.count_name(true);
    if inode.is_folder() {
        folder_inode.count_link(true);
    }
}

/// Takes a name out of its folder; what is to be dropped when the lock is released.
#[must_use]
fn unlink(held: &Held<'_>, dentry: &Ref<Dentry>) -> Option<(Ref<Dentry>, Ref<Dentry>)> {
    let folder = dentry.0.get_mut(held).parent.take()?;
    let (folder_inode, inode) = (inode_of(held, &folder), inode_of(held, dentry));
    let older = dentry.0.get_mut(held).older.take();
    let mut above = folder.0.get_mut(held);
    let mine = if above.newest.as_ref().is_some_and(|it| it.is(dentry)) {
        core::mem::replace(&mut above.newest, older)
    } else {
        let mut at = above.newest.as_ref().map(Ref::share);
        loop {
            let Some(younger) = at else {
                panic!("a name is not in its folder");
            };
            let mut links = younger.0.get_mut(held);
            if links.older.as_ref().is_some_and(|it| it.is(dentry)) {
                break core::mem::replace(&mut links.older, older);
            }
            at = links.older.as_ref().map(Ref::share);
        }
    };
    drop(above);
    inode.count_link(false);
    folder_inode.count_name(false);
    if inode.is_folder() {
        folder_inode.count_link(false);
    }
    mine.map(|mine| (folder, mine))
}

/// Whether what is removed is to be a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It is one: rmdir.
    Folder,
    /// It is none: unlink.
    File,
}

fn check_removable(held: &Held<'_>, dentry: &Dentry, what: Removed) -> Result<(), Errno> {
    let links = dentry.0.get(held);
    let is_folder = links.inode.as_ref().is_some_and(|it| it.is_folder());
    match what {
        Removed::Folder if !is_folder => Err(ENOTDIR),
        Removed::File if is_folder => Err(EISDIR),
        _ if links.mounted.is_some() => Err(EBUSY),
        _ if links.newest.is_some() => Err(ENOTEMPTY),
        _ => Ok(()),
    }
}

/// Removes `dentry`, which was found in `folder`.
///
/// # Errors
/// `ENOTDIR`, `EISDIR`, `EBUSY` where something is mounted over it, `ENOTEMPTY`; `ENOENT` if
/// another one was faster.
pub(crate) fn remove(
    folder: &Ref<Dentry>,
    dentry: &Ref<Dentry>,
    what: Removed,
) -> Result<(), Errno> {
    let held = lock();
    let is_there = dentry
        .0
        .get(&held)
        .parent
        .as_ref()
        .is_some_and(|it| it.is(folder));
    if !is_there {
        return Err(ENOENT);
    }
    check_removable(&held, dentry, what)?;
    if what == Removed::Folder {
        // Its own ".".
        inode_of(&held, dentry).count_link(false);
    }
    let gone = unlink(&held, dentry);
    drop(held);
    drop(gone);
    Ok(())
}

/// Whether a move may replace what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    /// It may.
    May,
    /// It may not: `RENAME_NOREPLACE`.
    MayNot,
}

/// Moves a name to another folder, or gives it another name there. `seen` is what the caller has
/// found of both names, and was allowed.
///
/// # Errors
/// As rename has them; that the call is to be made again, where another has changed one of them.
pub(crate) fn rename(
    (from, old): (&Ref<Dentry>, &[u8]),
    (to, new_name): (&Ref<Dentry>, &Name),
    (seen, seen_target): (&Ref<Dentry>, Option<&Ref<Dentry>>),
    replace: Replace,
) -> Result<(), Errno> {
    let held = lock();
    let moved = find(&held, from, old).ok_or(ENOENT)?;
    if !moved.is(seen) {
        return Err(RESTART_ALWAYS);
    }
    if !is_live(&held, to) {
        return Err(ENOENT);
    }
    let is_folder = inode_of(&held, &moved).is_folder();
    if moved.0.get(&held).mounted.is_some() {
        return Err(EBUSY);
    }
    // A folder does not go into itself.
    let mut above = Some(to.share());
    while let Some(at) = above {
        if at.is(&moved) {
            return Err(EINVAL);
        }
        above = at.0.get(&held).parent.as_ref().map(Ref::share);
    }
    let target = find(&held, to, new_name.bytes());
    let as_seen = match (&target, seen_target) {
        (Some(target), Some(seen)) => target.is(seen),
        (None, None) => true,
        _ => false,
    };
    if !as_seen {
        return Err(RESTART_ALWAYS);
    }
    let mut gone = None;
    if let Some(target) = &target {
        if replace == Replace::MayNot {
            return Err(EEXIST);
        }
        let (one, other) = (inode_of(&held, &moved), inode_of(&held, target));
        if one.is(&other) {
            return Ok(());
        }
        let what = if is_folder {
            Removed::Folder
        } else {
            Removed::File
        };
        check_removable(&held, target, what)?;
        if is_folder {
            other.count_link(false);
        }
        gone = unlink(&held, target);
    }
    let left = unlink(&held, &moved);
    let mut links = moved.0.get_mut(&held);
    links.name = *new_name;
    links.hash = hash(new_name.bytes());
    drop(links);
    link(&held, to, &moved);
    drop(held);
    drop((gone, left, target));
    Ok(())
}

/// The newest name of a folder that is older than `place`, or the newest of all for `None`.
pub(crate) fn list(folder: &Ref<Dentry>, place: Option<u64>) -> Option<Listed> {
    let held = lock();
    let mut at = folder.0.get(&held).newest.as_ref().map(Ref::share);
    while let Some(dentry) = at {
        let links = dentry.0.get(&held);
        if place.is_none_or(|place| links.place < place) {
            return Some(Listed {
                name: links.name,
                inode: inode_of(&held, &dentry),
                place: links.place,
            });
        }
        at = links.older.as_ref().map(Ref::share);
    }
    None
}

/// Mounts a file system over a folder.
///
/// # Errors
/// `EBUSY` where the same one is there, or another.
pub(crate) fn mount(over: &Ref<Dentry>, what: Mounted) -> Result<(), Errno> {
    let held = lock();
    if over.0.get(&held).mounted.is_some() {
        return Err(EBUSY);
    }
    if let Mounted::Tree(root) = &what {
        root.0.get_mut(&held).covers = Some(over.share());
    }
    let made_up = match &what {
        Mounted::Tree(_) => None,
        Mounted::Proc(entry) => Some(*entry),
    };
    over.0.get_mut(&held).mounted = Some(what);
    drop(held);
    if let Some(entry) = made_up {
        entry.set_mounted(Some(over.share()));
    }
    Ok(())
}

/// Takes what is mounted over a folder away. What is used of it still can be used.
pub(crate) fn unmount(over: &Ref<Dentry>) -> Result<(), Errno> {
    let held = lock();
    let gone = over.0.get_mut(&held).mounted.take();
    let mut covered = None;
    if let Some(Mounted::Tree(root)) = &gone {
        covered = root.0.get_mut(&held).covers.take();
    }
    drop(held);
    drop(covered);
    match gone {
        Some(Mounted::Tree(root)) => {
            clear(&root);
            Ok(())
        }
        Some(Mounted::Proc(entry)) => {
            if proc::mounted_over(entry).is_some_and(|it| it.is(&Node::Tree(over.share()))) {
                entry.set_mounted(None);
            }
            Ok(())
        }
        None => Err(EINVAL),
    }
}

/// Removes all that is below a folder: down to a leaf, and back up.
pub(crate) fn clear(root: &Ref<Dentry>) {
    let mut at = root.share();
    loop {
        let held = lock();
        let newest = at.0.get(&held).newest.as_ref().map(Ref::share);
        let mounted = at.0.get_mut(&held).mounted.take();
        drop(held);
        if let Some(Mounted::Tree(below)) = &mounted {
            let held = lock();
            let covered = below.0.get_mut(&held).covers.take();
            drop(held);
            drop(covered);
            clear(below);
        }
        if let Some(newest) = newest {
            at = newest;
            continue;
        }
        if at.is(root) {
            return;
        }
        let held = lock();
        let gone = unlink(&held, &at);
        drop(held);
        // Another one may have removed it.
        let above = gone
            .as_ref()
            .map_or_else(|| root.share(), |(above, _)| above.share());
        drop(gone);
        at = above;
    }
}

/// Takes the root's reference to itself back, for the last account of memory. How many names and
/// inodes are left, which is a leak.
pub(crate) fn forget() -> u64 {
    let root = ROOT.get().and_then(|root| root.lock().take());
    if let Some(root) = root {
        clear(&root);
    }
    POOL.forget()
}

/// Whether both are of one file system.
pub(crate) fn same_tree(one: &Ref<Dentry>, other: &Ref<Dentry>) -> Result<(), Errno> {
    if top(one).is(&top(other)) {
        Ok(())
    } else {
        Err(EXDEV)
    }
}

fn top(dentry: &Ref<Dentry>) -> Ref<Dentry> {
    let held = lock();
    let mut at = dentry.share();
    loop {
        let Some(parent) = at.0.get(&held).parent.as_ref().map(Ref::share) else {
            return at;
        };
        at = parent;
    }
}
