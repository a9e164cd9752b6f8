//! Open files: what the numbers of a process stand for.
//!
//! There are the console, `/dev/null`, `/dev/zero`, the regular files of the initial RAM disk,
//! which cannot be written, and files in memory without a name (`memfd_create`). The page cache is
//! `minflt-mm`'s.
//!
//! An open file (Linux: `struct file`) has a position, and is shared by what was duplicated or
//! forked. It lies in a table for the whole kernel; a process has a table of numbers of those.

use core::cell::UnsafeCell;

use minflt_addr::Pfn;
use minflt_mm::{Errno, FileHandle, FileOps, IoError, System};
use minflt_pgtable::Mmu;
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Machine, Ordering, SpinLock};

use crate::arch::paging::PAGE;
use crate::initrd::Archive;
use crate::linux::{EBADF, EMFILE, ENFILE, ENOENT};
use crate::machine::{Kernel, Pc};
use crate::shared::Once;

/// The most files that are open at a time.
const MOST_OPEN: usize = 128;
/// The most that a process has.
pub(crate) const MOST_OF_PROCESS: usize = 32;
/// The most files of the RAM disk that are used.
const MOST_OF_DISK: usize = 32;

/// What an open file is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// The console: writes are seen, and there is nothing to read.
    Console,
    /// Nothing: an empty file that takes whatever is written.
    Null,
    /// Zeros, as many as are wanted, which takes whatever is written.
    Zero,
    /// A file with a page cache.
    File(FileHandle<'static, Kernel>),
}

impl Kind {
    /// Another one of the same file.
    fn share(&self) -> Self {
        match self {
            Self::Console => Self::Console,
            Self::Null => Self::Null,
            Self::Zero => Self::Zero,
            Self::File(file) => Self::File(file.share()),
        }
    }
}

/// An open file.
#[derive(Debug)]
struct Open {
    kind: Kind,
    position: u64,
    /// Numbers that stand for it.
    holders: u32,
}

/// A process's numbers: of each, that of the open file plus 1.
#[derive(Debug)]
pub(crate) struct Numbers(SpinLock<[u8; MOST_OF_PROCESS], WaitLock, Kernel>);

impl Numbers {
    /// None.
    pub(super) fn new() -> Self {
        Self(SpinLock::new([0; MOST_OF_PROCESS]))
    }

    /// Input, output and errors are the console.
    pub(super) fn start(&self) -> Result<(), Errno> {
        let console = open(Kind::Console)?;
        // The one that opened it, and two more.
        with(console, |open| open.holders += 2);
        let mut numbers = self.0.lock();
        *numbers = [0; MOST_OF_PROCESS];
        numbers[..3].fill(console as u8 + 1);
        Ok(())
    }

    /// The same as those of another process.
    pub(super) fn copy_from(&self, other: &Self) {
        let theirs = other.0.lock();
        for number in theirs.iter().filter(|number| **number != 0) {
            with(usize::from(*number) - 1, |open| open.holders += 1);
        }
        let copy = *theirs;
        drop(theirs);
        *self.0.lock() = copy;
    }

    /// Closes all.
    pub(super) fn close_all(&self) {
        for number in 0..MOST_OF_PROCESS as u64 {
            // Those that are not open are as they should be.
            let _ = self.close(number);
        }
    }

    /// Looks at what the number stands for, which another thread may close right afterwards.
    fn look<R>(&self, number: u64, look: impl FnOnce(usize, &mut Open) -> R) -> Result<R, Errno> {
        let numbers = self.0.lock();
        let index = usize::try_from(number).ok().and_then(|n| numbers.get(n));
        match index {
            Some(index) if *index != 0 => {
                let index = usize::from(*index) - 1;
                Ok(with(index, |open| look(index, open)))
            }
            _ => Err(EBADF),
        }
    }

    /// What the number stands for, to be used without a lock, and its position.
    pub(crate) fn get(&self, number: u64) -> Result<(Kind, u64), Errno> {
        self.look(number, |_, open| (open.kind.share(), open.position))
    }

    /// Sets the position.
    pub(crate) fn set_position(&self, number: u64, position: u64) -> Result<(), Errno> {
        self.look(number, |_, open| open.position = position)
    }

    /// Opens a file, and gives it the lowest number that is free.
    pub(crate) fn add(&self, kind: Kind) -> Result<u64, Errno> {
        let index = open(kind)?;
        self.enter(index)
    }

    /// Another number for the same open file.
    pub(crate) fn duplicate(&self, number: u64) -> Result<u64, Errno> {
        let index = self.look(number, |index, open| {
            open.holders += 1;
            index
        })?;
        self.enter(index)
    }

    /// Gives an open file, one of whose holders the caller is, a number.
    fn enter(&self, index: usize) -> Result<u64, Errno> {
        let mut numbers = self.0.lock();
        let free = numbers.iter().position(|number| *number == 0);
        match free {
            Some(free) => {
                numbers[free] = index as u8 + 1;
                Ok(free as u64)
            }
            None => {
                drop(numbers);
                put(index);
                Err(EMFILE)
            }
        }
    }

    /// Takes a number back.
    pub(crate) fn close(&self, number: u64) -> Result<(), Errno> {
        let mut numbers = self.0.lock();
        let slot = usize::try_from(number).ok();
        let slot = slot.and_then(|n| numbers.get_mut(n)).ok_or(EBADF)?;
        let index = usize::from(core::mem::take(slot))
            .checked_sub(1)
            .ok_or(EBADF)?;
        drop(numbers);
        put(index);
        Ok(())
    }
}

type Slot = SpinLock<Option<Open>, WaitLock, Kernel>;

static OPEN: Once<[Slot; MOST_OPEN]> = Once::new();

/// The RAM disk's files that were opened.
static DISK: Once<Disk> = Once::new();

struct Disk {
    initrd: &'static [u8],
    files: [DiskFile; MOST_OF_DISK],
}

/// A [`DiskFile`] that is used for no file yet.
const FREE: u32 = 0;
/// One that a task is filling.
const FILLED: u32 = 1;
/// One that can be used.
const USABLE: u32 = 2;

/// A file of the RAM disk.
///
/// # Invariants
/// `path`, `bytes` and `handle` are written by the task that changed `state` from `FREE` to
/// `FILLED`, before it changes it again, and do not change once it is `USABLE`.
struct DiskFile {
    /// [`FREE`], [`FILLED`] or [`USABLE`].
    state: Atomic<u32, Kernel>,
    path: UnsafeCell<&'static str>,
    bytes: UnsafeCell<&'static [u8]>,
    handle: UnsafeCell<Option<FileHandle<'static, Kernel>>>,
}

// SAFETY: (1) by the type's invariant.
unsafe impl Sync for DiskFile {}

/// Called once, before there are processes.
pub(crate) fn init(initrd: &'static [u8]) {
    OPEN.set(core::array::from_fn(|_| SpinLock::new(None)));
    DISK.set(Disk {
        initrd,
        files: core::array::from_fn(|_| DiskFile {
            state: Atomic::new(0),
            path: UnsafeCell::new(""),
            bytes: UnsafeCell::new(&[]),
            handle: UnsafeCell::new(None),
        }),
    });
}

/// Closes the RAM disk's files, for the last account of memory: there are no processes any more.
pub(crate) fn forget_disk() {
    let Some(disk) = DISK.get() else { return };
    for file in &disk.files {
        if file.state.load(Ordering::Relaxed) == USABLE {
            // SAFETY: (1) no process is left that could use it.
            drop(unsafe { (*file.handle.get()).take() });
        }
    }
}

fn slots() -> &'static [Slot; MOST_OPEN] {
    match OPEN.get() {
        Some(slots) => slots,
        None => panic!("a file is used before there may be any"),
    }
}

/// Looks at an open file that the caller holds, or a number whose table it has locked.
fn with<R>(index: usize, look: impl FnOnce(&mut Open) -> R) -> R {
    match &mut *slots()[index].lock_second() {
        Some(open) => look(open),
        None => panic!("open file {index} is closed, and used"),
    }
}

/// Puts a file into the table; the caller holds it.
fn open(kind: Kind) -> Result<usize, Errno> {
    let mut new = Some(Open {
        kind,
        position: 0,
        holders: 1,
    });
    for (index, slot) in slots().iter().enumerate() {
        let mut slot = slot.lock();
        if slot.is_none() {
            *slot = new.take();
            return Ok(index);
        }
    }
    Err(ENFILE)
}

/// One of its holders does not need it any more. Sleeps, if it was the last one.
fn put(index: usize) {
    let mut slot = slots()[index].lock();
    let last = slot.as_mut().is_some_and(|open| {
        open.holders -= 1;
        open.holders == 0
    });
    let gone = if last { slot.take() } else { None };
    drop(slot);
    // Its pages may go with it, which is not done under a lock that spins.
    drop(gone);
}

/// The file at `path`, to be opened.
pub(crate) fn find(sys: &'static System<Kernel>, path: &str) -> Result<Kind, Errno> {
    match path {
        "/dev/null" => return Ok(Kind::Null),
        "/dev/zero" => return Ok(Kind::Zero),
        "/dev/console" | "/dev/tty" => return Ok(Kind::Console),
        _ => {}
    }
    let Some(disk) = DISK.get() else {
        return Err(ENOENT);
    };
    let entry = Archive::new(disk.initrd)
        .file(path)
        .map_err(|_| Errno::EIO)?;
    let entry = entry.ok_or(ENOENT)?;
    for file in &disk.files {
        loop {
            // ORDERING: Acquire; pairs with [kernel-disk].
            match file.state.load(Ordering::Acquire) {
                FREE => {
                    let cas = |from, to| {
                        file.state
                            .cas(from, to, Ordering::Relaxed, Ordering::Relaxed)
                    };
                    if cas(FREE, FILLED).is_ok() {
                        return file.fill(sys, entry.path, entry.bytes);
                    }
                }
                // The task that fills it may sleep for memory.
                FILLED => Kernel::pass(),
                _ => break,
            }
        }
        // SAFETY: (1) by the invariant it does not change any more.
        if unsafe { *file.path.get() } == entry.path {
            return file.opened();
        }
    }
    Err(ENFILE)
}

impl DiskFile {
    /// Makes its page cache. The caller has made `state` `FILLED`.
    fn fill(
        &'static self,
        sys: &'static System<Kernel>,
        path: &'static str,
        bytes: &'static [u8],
    ) -> Result<Kind, Errno> {
        // SAFETY: (1) by the invariant the caller's.
        unsafe { *self.path.get() = path };
        // SAFETY: (1) as above.
        unsafe { *self.bytes.get() = bytes };
        match sys.open_file(self, bytes.len() as u64) {
            Ok(handle) => {
                // SAFETY: (1) as above.
                unsafe { *self.handle.get() = Some(handle) };
                // ORDERING: Release; pairs with [kernel-disk].
                self.state.store(USABLE, Ordering::Release);
                self.opened()
            }
            Err(error) => {
                // ORDERING: Release; pairs with [kernel-disk].
                self.state.store(FREE, Ordering::Release);
                Err(error.into())
            }
        }
    }

    fn opened(&self) -> Result<Kind, Errno> {
        // SAFETY: (1) by the invariant it does not change any more.
        match unsafe { &*self.handle.get() } {
            Some(handle) => Ok(Kind::File(handle.read_only())),
            None => Err(ENOENT),
        }
    }
}

impl FileOps<Kernel> for DiskFile {
    fn read_page(&self, at: &Pc, index: u64, pfn: Pfn) -> Result<(), IoError> {
        // SAFETY: (1) by the invariant it does not change any more: the file is open.
        let bytes = unsafe { *self.bytes.get() };
        let start = usize::try_from(index * PAGE).map_or(bytes.len(), |at| at.min(bytes.len()));
        let part = &bytes[start..(start + PAGE as usize).min(bytes.len())];
        Kernel::clear(at, pfn);
        Kernel::write_bytes(at, pfn, 0, part);
        Ok(())
    }

    /// The files of the RAM disk cannot be written.
    fn write_page(&self, _at: &Pc, _index: u64, _pfn: Pfn) -> Result<(), IoError> {
        Err(IoError::Failed)
    }
}
