//! What names lead to: regular files, folders, links, devices, pipes. Linux: `struct inode`.

use linux_raw_sys::general as abi;
use minflt_mm::{Errno, FileHandle};
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

use super::pipe::Pipe;
use crate::arch::paging::PAGE;
use crate::linux::ETXTBSY;
use crate::machine::{self, Kernel};
use crate::pool::{Pool, Pooled, Ref};
use crate::user::creds::Creds;
use crate::watch::Mutex;

/// What is in it.
#[derive(Debug)]
pub(crate) enum Content {
    /// Bytes, in the page cache.
    File(FileHandle<'static, Kernel>),
    /// Names: see [`super::tree`].
    Folder,
    /// A path.
    Link(FileHandle<'static, Kernel>),
    /// A character device, by its number.
    Device(u32),
    /// A pipe with a name.
    Pipe(Ref<Pipe>),
    /// The inode is free.
    Nothing,
}

impl Content {
    /// Another one of the same.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::File(file) => Self::File(file.share()),
            Self::Folder => Self::Folder,
            Self::Link(file) => Self::Link(file.share()),
            Self::Device(number) => Self::Device(*number),
            Self::Pipe(pipe) => Self::Pipe(pipe.share()),
            Self::Nothing => Self::Nothing,
        }
    }

    /// The part of `st_mode` that says what it is.
    const fn kind(&self) -> u32 {
        match self {
            Self::File(_) | Self::Nothing => abi::S_IFREG,
            Self::Folder => abi::S_IFDIR,
            Self::Link(_) => abi::S_IFLNK,
            Self::Device(_) => abi::S_IFCHR,
            Self::Pipe(_) => abi::S_IFIFO,
        }
    }
}

/// When something was done last, in nanoseconds of the real-time clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// Contents were read.
    Accessed = 0,
    /// Contents changed.
    Modified = 1,
    /// It, or its contents, changed.
    Changed = 2,
}

/// A file of any kind.
#[derive(Debug)]
pub(crate) struct Inode {
    number: Atomic<u64, Kernel>,
    /// As `st_mode`.
    mode: Atomic<u32, Kernel>,
    uid: Atomic<u32, Kernel>,
    gid: Atomic<u32, Kernel>,
    /// Names that lead to it; of a folder, also its own and those of the folders in it.
    links: Atomic<u32, Kernel>,
    /// Names in it, of a folder.
    names: Atomic<u32, Kernel>,
    times: [Atomic<u64, Kernel>; 3],
    content: SpinLock<Content, WaitLock, Kernel>,
    /// Who writes it. Linux: `i_rwsem`.
    writing: Mutex,
    /// Those that have it open to be written, and processes that run it: there are not both. Linux:
    /// `i_writecount`.
    uses: SpinLock<Uses, WaitLock, Kernel>,
}

/// What a file is used for that excludes something else.
#[derive(Debug, Default)]
struct Uses {
    writers: u32,
    programs: u32,
}

/// A use that excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is open to be written.
    Written,
    /// It runs.
    Runs,
}

/// Rights to a file, as its mode has them for one class of users.
pub(crate) mod right {
    /// To read it.
    pub(crate) const READ: u32 = 4;
    /// To write it.
    pub(crate) const WRITE: u32 = 2;
    /// To execute it, or to go through it.
    pub(crate) const EXECUTE: u32 = 1;
}

static POOL: Pool<Inode> = Pool::new();

/// The bits of a mode that are not its kind.
const RIGHTS: u32 = 0o7777;
/// What tmpfs says is the size of a name in a folder. Linux: `BOGO_DIRENT_SIZE`.
const NAME_BYTES: u64 = 20;

impl Pooled for Inode {
    fn new() -> Self {
        Self {
            number: Atomic::new(0),
            mode: Atomic::new(0),
            uid: Atomic::new(0),
            gid: Atomic::new(0),
            links: Atomic::new(0),
            names: Atomic::new(0),
            times: core::array::from_fn(|_| Atomic::new(0)),
            content: SpinLock::new(Content::Nothing),
            writing: Mutex::new(),
            uses: SpinLock::new(Uses::default()),
        }
    }

    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn clean(&self) {
        let content = core::mem::replace(&mut *self.content.lock(), Content::Nothing);
        // Its pages go with it, which is not done under a lock that spins.
        drop(content);
    }
}

impl Inode {
    /// A new one of `creds`' user, without names, with these rights. Sleeps.
    pub(crate) fn make(content: Content, rights: u32, creds: Creds) -> Result<Ref<Self>, Errno> {
        let inode = POOL.take()?;
        let is_folder = matches!(content, Content::Folder);
        let mode = content.kind() | rights & RIGHTS;
        inode.number.store(super::next_number(), Ordering::Relaxed);
        inode.mode.store(mode, Ordering::Relaxed);
        inode.uid.store(creds.uid, Ordering::Relaxed);
        inode.gid.store(creds.gid, Ordering::Relaxed);
        inode.links.store(u32::from(is_folder), Ordering::Relaxed);
        inode.names.store(0, Ordering::Relaxed);
        let now = machine::real_ns();
        for time in &inode.times {
            time.store(now, Ordering::Relaxed);
        }
        *inode.content.lock() = content;
        Ok(inode)
    }

    /// Who writes it, or changes its size.
    pub(crate) const fn writing(&self) -> &Mutex {
        &self.writing
    }

    /// Begins to use it.
    ///
    /// # Errors
    /// `ETXTBSY` where it runs and is to be written, or the other way round.
    pub(crate) fn begin(&self, used: Use) -> Result<(), Errno> {
        let mut uses = self.uses.lock();
        let (mine, others) = uses.both(used);
        if *others > 0 {
            return Err(ETXTBSY);
        }
        *mine += 1;
        Ok(())
    }

    /// Ends such a use.
    pub(crate) fn end(&self, used: Use) {
        *self.uses.lock().both(used).0 -= 1;
    }

    /// Whether it may be made shorter now.
    ///
    /// # Errors
    /// `ETXTBSY` where it runs.
    pub(crate) fn check_not_run(&self) -> Result<(), Errno> {
        match self.uses.lock().programs {
            0 => Ok(()),
            _ => Err(ETXTBSY),
        }
    }

    /// What is in it.
    pub(crate) fn content(&self) -> Content {
        self.content.lock().share()
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Its kind and rights, as `st_mode`.
    pub(crate) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.mode() & abi::S_IFMT == abi::S_IFDIR
    }

    /// Sets its rights.
    pub(crate) fn set_rights(&self, rights: u32) {
        self.mode
            .store(self.mode() & !RIGHTS | rights & RIGHTS, Ordering::Relaxed);
        self.touch(Time::Changed);
    }

    /// Its owner, and the owner's group.
    pub(crate) fn owner(&self) -> (u32, u32) {
        (
            self.uid.load(Ordering::Relaxed),
            self.gid.load(Ordering::Relaxed),
        )
    }

    /// Sets its owner and its group, where given. Rights to run as those are lost with that.
    pub(crate) fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) {
        if let Some(uid) = uid {
            self.uid.store(uid, Ordering::Relaxed);
        }
        if let Some(gid) = gid {
            self.gid.store(gid, Ordering::Relaxed);
        }
        if !self.is_folder() {
            self.set_rights(self.mode() & 0o1777);
        }
        self.touch(Time::Changed);
    }

    /// Names that lead to it.
    pub(crate) fn links(&self) -> u32 {
        self.links.load(Ordering::Relaxed)
    }

    /// Counts a name more, or one less. The caller has the lock of the tree.
    pub(super) fn count_link(&self, more: bool) {
        count(&self.links, more);
        self.touch(Time::Changed);
    }

    /// Counts a name in it. The caller has the lock of the tree.
    pub(super) fn count_name(&self, more: bool) {
        count(&self.names, more);
        self.touch(Time::Modified);
        self.touch(Time::Changed);
    }

    /// Bytes in it, as `st_size`.
    pub(crate) fn bytes(&self) -> u64 {
        match &*self.content.lock() {
            Content::File(file) | Content::Link(file) => file.bytes(),
            Content::Folder => NAME_BYTES * (2 + u64::from(self.names.load(Ordering::Relaxed))),
            _ => 0,
        }
    }

    /// Units of 512 bytes that it takes, as `st_blocks`.
    pub(crate) fn blocks(&self) -> u64 {
        match &*self.content.lock() {
            Content::File(file) => file.cached_pages() * (PAGE / 512),
            _ => 0,
        }
    }

    /// The number of the device that it is.
    pub(crate) fn device(&self) -> u32 {
        match *self.content.lock() {
            Content::Device(number) => number,
            _ => 0,
        }
    }

    /// When that was done last.
    pub(crate) fn time(&self, time: Time) -> u64 {
        self.times[time as usize].load(Ordering::Relaxed)
    }

    /// Says that it was done.
    pub(crate) fn set_time(&self, time: Time, ns: u64) {
        self.times[time as usize].store(ns, Ordering::Relaxed);
    }

    /// It is done now.
    pub(crate) fn touch(&self, time: Time) {
        self.set_time(time, machine::real_ns());
    }

    /// Whether a user has all of these rights.
    ///
    /// # Errors
    /// `EACCES` if not.
    pub(crate) fn check(&self, creds: Creds, rights: u32) -> Result<(), Errno> {
        let mode = self.mode();
        let (uid, gid) = self.owner();
        if creds.is_root() {
            // Root executes a file only if some class of users may.
            let runs = rights & right::EXECUTE != 0;
            return if runs && !self.is_folder() && mode & 0o111 == 0 {
                Err(Errno::EACCES)
            } else {
                Ok(())
            };
        }
        let shift = match () {
            () if creds.uid == uid => 6,
            () if creds.gid == gid => 3,
            () => 0,
        };
        if mode >> shift & rights == rights {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }
}

impl Uses {
    /// The count of this use, and of what excludes it.
    const fn both(&mut self, used: Use) -> (&mut u32, &mut u32) {
        match used {
            Use::Written => (&mut self.writers, &mut self.programs),
            Use::Runs => (&mut self.programs, &mut self.writers),
        }
    }
}

fn count(word: &Atomic<u32, Kernel>, more: bool) {
    if more {
        word.add(1, Ordering::Relaxed);
    } else {
        word.sub(1, Ordering::Relaxed);
    }
}

/// How many inodes are left, for the last account of memory.
pub(crate) fn forget() -> u64 {
    POOL.forget()
}
