//! Open files: what a process's numbers stand for. Linux: `struct file`.
//!
//! An open file has a position, and is shared by what was duplicated or forked.

use linux_raw_sys::general as abi;
use minflt_mm::{Errno, FileHandle};
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

use super::device::{self, Device};
use super::inode::{Content, Inode, Time, Use};
use super::path::Node;
use super::pipe::{Pipe, Side};
use super::transfer::Transfer;
use super::tty;
use crate::arch::paging::PAGE;
use crate::linux::{EBADF, EINVAL, EISDIR, ENOSPC, ENXIO, EPIPE, ESPIPE};
use crate::machine::Kernel;
use crate::pool::{Pool, Pooled, Ref};
use crate::watch::Mutex;

/// Bytes that are copied at once to a device or a pipe, over the kernel's stack: what a pipe takes
/// in one piece.
const AT_ONCE: usize = PAGE as usize;

/// What an open file is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A file with a page cache.
    File(FileHandle<'static, Kernel>),
    /// A folder.
    Folder,
    /// A device.
    Device(Device),
    /// One or both sides of a pipe.
    Pipe(Ref<Pipe>, Side),
    /// Nothing but where it is: `O_PATH`.
    Place,
}

impl Kind {
    fn share(&self) -> Self {
        match self {
            Self::File(file) => Self::File(file.share()),
            Self::Folder => Self::Folder,
            Self::Device(device) => Self::Device(*device),
            Self::Pipe(pipe, side) => Self::Pipe(pipe.share(), *side),
            Self::Place => Self::Place,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Open {
    what: SpinLock<What, WaitLock, Kernel>,
    /// `O_ACCMODE`, and what fcntl may change.
    flags: Atomic<u32, Kernel>,
    position: Atomic<u64, Kernel>,
    /// Who moves the position.
    moving: Mutex,
}

#[derive(Debug)]
struct What {
    kind: Kind,
    node: Option<Node>,
}

/// What fcntl may change.
const CHANGEABLE: u32 = abi::O_APPEND | abi::O_NONBLOCK | abi::O_DIRECT | abi::O_NOATIME;

static POOL: Pool<Open> = Pool::new();

impl Pooled for Open {
    fn new() -> Self {
        Self {
            what: SpinLock::new(What {
                kind: Kind::Place,
                node: None,
            }),
            flags: Atomic::new(0),
            position: Atomic::new(0),
            moving: Mutex::new(),
        }
    }

    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn clean(&self) {
        let mut what = self.what.lock();
        let kind = core::mem::replace(&mut what.kind, Kind::Place);
        let node = what.node.take();
        drop(what);
        if let (Kind::File(_), Some(Node::Tree(dentry))) = (&kind, &node)
            && self.check_writable().is_ok()
        {
            dentry.inode().end(Use::Written);
        }
        if let Kind::Pipe(pipe, side) = &kind {
            pipe.close(*side);
        }
        drop((kind, node));
    }
}

/// From where lseek counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whence {
    /// The file's start.
    Start,
    /// Where it is.
    Position,
    /// The file's end.
    End,
}

impl Open {
    /// Opens something of that kind, which `node` leads to. Of a pipe the sides are counted.
    pub(crate) fn make(kind: Kind, node: Option<Node>, flags: u32) -> Result<Ref<Self>, Errno> {
        let open = POOL.take()?;
        if let Kind::Pipe(pipe, side) = &kind {
            pipe.open(*side);
        }
        *open.what.lock() = What { kind, node };
        let kept = abi::O_ACCMODE | CHANGEABLE | abi::O_PATH | abi::O_DIRECTORY | abi::O_NOFOLLOW;
        open.flags.store(flags & kept, Ordering::Relaxed);
        open.position.store(0, Ordering::Relaxed);
        Ok(open)
    }

    /// Opens what `node` leads to.
    pub(crate) fn node(node: Node, flags: u32) -> Result<Ref<Self>, Errno> {
        if flags & abi::O_PATH != 0 {
            return Self::make(Kind::Place, Some(node), flags);
        }
        let access = flags & abi::O_ACCMODE;
        let side = Side {
            reads: access == abi::O_RDONLY || access == abi::O_RDWR,
            writes: access == abi::O_WRONLY || access == abi::O_RDWR,
        };
        let content = match &node {
            Node::Tree(dentry) => dentry.inode().content(),
            Node::Proc(entry) => entry.content()?,
        };
        let kind = match content {
            Content::File(file) if side.writes => Kind::File(file),
            Content::File(file) => Kind::File(file.read_only()),
            Content::Folder if side.writes => return Err(EISDIR),
            Content::Folder => Kind::Folder,
            Content::Device(number) => Kind::Device(Device::numbered(number).ok_or(ENXIO)?),
            Content::Pipe(pipe) => Kind::Pipe(pipe, side),
            Content::Link(_) => return Err(crate::linux::ELOOP),
            Content::Nothing => return Err(ENXIO),
        };
        let pipe = match &kind {
            Kind::Pipe(pipe, _) => Some(pipe.share()),
            _ => None,
        };
        let waits = flags & abi::O_NONBLOCK == 0;
        if let Some(pipe) = &pipe
            && !waits
            && side.writes
            && !side.reads
            && !pipe.has_reader()
        {
            return Err(ENXIO);
        }
        let written = match (&kind, &node) {
            (Kind::File(_), Node::Tree(dentry)) if side.writes => Some(dentry.inode()),
            _ => None,
        };
        if let Some(inode) = &written {
            inode.begin(Use::Written)?;
        }
        let open = Self::make(kind, Some(node), flags).inspect_err(|_| {
            if let Some(inode) = &written {
                inode.end(Use::Written);
            }
        })?;
        if let Some(pipe) = pipe
            && waits
        {
            pipe.await_other(side)?;
        }
        Ok(open)
    }

    /// What it is, to be used without a lock.
    pub(crate) fn kind(&self) -> Kind {
        self.what.lock().kind.share()
    }

    /// What leads to it, if anything does.
    pub(crate) fn place(&self) -> Option<Node> {
        self.what.lock().node.as_ref().map(Node::share)
    }

    /// Its inode, if it has one.
    pub(crate) fn inode(&self) -> Option<Ref<Inode>> {
        match self.place()? {
            Node::Tree(dentry) => Some(dentry.inode()),
            Node::Proc(_) => None,
        }
    }

    /// How it was opened, and what fcntl has set.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets what fcntl may set.
    pub(crate) fn set_flags(&self, flags: u32) {
        let kept = self.flags() & !CHANGEABLE;
        self.flags
            .store(kept | flags & CHANGEABLE, Ordering::Relaxed);
    }

    /// Whether it may be read.
    ///
    /// # Errors
    /// `EBADF` if not.
    pub(crate) fn check_readable(&self) -> Result<(), Errno> {
        let flags = self.flags();
        let reads = matches!(flags & abi::O_ACCMODE, abi::O_RDONLY | abi::O_RDWR);
        if !reads || flags & abi::O_PATH != 0 {
            return Err(EBADF);
        }
        Ok(())
    }

    /// Whether it may be written.
    ///
    /// # Errors
    /// `EBADF` if not.
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        let flags = self.flags();
        let writes = matches!(flags & abi::O_ACCMODE, abi::O_WRONLY | abi::O_RDWR);
        if !writes || flags & abi::O_PATH != 0 {
            return Err(EBADF);
        }
        Ok(())
    }

    fn waits(&self) -> bool {
        self.flags() & abi::O_NONBLOCK == 0
    }

    /// Where it is.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Sets where it is.
    pub(crate) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Reads at most `len` bytes where it is, which goes on by as many; or at `at`, and it stays.
    pub(crate) fn read(
        &self,
        to: &mut Transfer<'_>,
        len: usize,
        at: Option<u64>,
    ) -> Result<u64, Errno> {
        self.check_readable()?;
        let kind = self.kind();
        let _moving = self.moves(&kind, at).then(|| self.moving.lock());
        let position = at.unwrap_or_else(|| self.position());
        let moved = match kind {
            Kind::File(file) => {
                let moved = file.read_at_with(position, len, |bytes| to.give_frame(&bytes))?;
                if let Some(inode) = self.inode() {
                    inode.touch(Time::Accessed);
                }
                moved
            }
            Kind::Folder => return Err(EISDIR),
            Kind::Place => return Err(EBADF),
            Kind::Device(Device::Null) => 0,
            Kind::Device(Device::Terminal) => tty::read(to, len, self.waits())?,
            Kind::Device(device) => {
                let mut bytes = [0; AT_ONCE];
                let mut moved = 0;
                while moved < len {
                    let piece = &mut bytes[..(len - moved).min(AT_ONCE)];
                    if device == Device::Random {
                        device::random(piece);
                    }
                    let given = to.give(piece);
                    moved += given;
                    if given < piece.len() {
                        break;
                    }
                }
                moved
            }
            Kind::Pipe(..) if at.is_some() => return Err(ESPIPE),
            Kind::Pipe(pipe, _) => {
                let mut bytes = [0; AT_ONCE];
                let mut moved = 0;
                while moved < len {
                    let piece = &mut bytes[..(len - moved).min(AT_ONCE)];
                    // What is there is enough.
                    let taken = match pipe.read(piece, self.waits() && moved == 0) {
                        Ok(0) => break,
                        Ok(taken) => taken,
                        Err(error) if moved == 0 => return Err(error),
                        Err(_) => break,
                    };
                    let given = to.give(&piece[..taken]);
                    moved += given;
                    if given < taken || pipe.len() == 0 {
                        break;
                    }
                }
                moved
            }
        };
        let moved = to.result(moved as u64)?;
        if at.is_none() {
            self.set_position(position.saturating_add(moved));
        }
        Ok(moved)
    }

    /// Writes at most `len` bytes where it is, which goes on by as many; or at `at`, and it stays.
    ///
    /// # Errors
    /// `EPIPE` where a pipe has no readers; the caller sends the signal.
    pub(crate) fn write(
        &self,
        from: &mut Transfer<'_>,
        len: usize,
        at: Option<u64>,
    ) -> Result<u64, Errno> {
        self.check_writable()?;
        let kind = self.kind();
        let _moving = self.moves(&kind, at).then(|| self.moving.lock());
        let mut position = at.unwrap_or_else(|| self.position());
        let moved = match kind {
            Kind::File(file) => {
                let inode = self.inode();
                let _written = inode.as_ref().map(|inode| inode.writing().lock());
                if self.flags() & abi::O_APPEND != 0 {
                    position = file.bytes();
                }
                let moved = file.write_at_with(position, len, |room| from.take(room))?;
                if let Some(inode) = &inode {
                    inode.touch(Time::Modified);
                    inode.touch(Time::Changed);
                }
                moved
            }
            Kind::Folder => return Err(EISDIR),
            Kind::Place => return Err(EBADF),
            Kind::Device(Device::Full) => return Err(ENOSPC),
            Kind::Pipe(..) if at.is_some() => return Err(ESPIPE),
            kind => {
                let mut bytes = [0; AT_ONCE];
                let mut moved = 0;
                while moved < len {
                    let room = (len - moved).min(AT_ONCE);
                    let piece = &mut bytes[..room];
                    let taken = from.take(piece);
                    let put = match &kind {
                        Kind::Device(Device::Terminal) => tty::write(&piece[..taken]),
                        Kind::Pipe(pipe, _) => match pipe.write(&piece[..taken], self.waits()) {
                            Ok(put) => put,
                            Err(error) if moved == 0 || error == EPIPE => return Err(error),
                            Err(_) => break,
                        },
                        _ => taken,
                    };
                    moved += put;
                    if put < room {
                        break;
                    }
                }
                moved
            }
        };
        let moved = from.result(moved as u64)?;
        if at.is_none() {
            self.set_position(position.saturating_add(moved));
        }
        Ok(moved)
    }

    /// Whether a call moves the position: others wait for it, so that none writes over another.
    fn moves(&self, kind: &Kind, at: Option<u64>) -> bool {
        at.is_none() && matches!(kind, Kind::File(_))
    }

    /// Goes elsewhere.
    pub(crate) fn seek(&self, offset: i64, whence: Whence) -> Result<u64, Errno> {
        let kind = self.kind();
        let end = match &kind {
            Kind::Pipe(..) | Kind::Device(Device::Terminal) => return Err(ESPIPE),
            Kind::Place => return Err(EBADF),
            Kind::File(file) => file.bytes(),
            Kind::Folder | Kind::Device(_) => 0,
        };
        let _moving = self.moves(&kind, None).then(|| self.moving.lock());
        let from = match whence {
            Whence::Start => 0,
            Whence::Position => self.position(),
            Whence::End => end,
        };
        let to = from.checked_add_signed(offset).ok_or(EINVAL)?;
        if to >> 63 != 0 {
            return Err(EINVAL);
        }
        self.set_position(to);
        Ok(to)
    }

    /// What poll says of it; the caller is woken when that may change.
    pub(crate) fn poll(&self) -> u32 {
        const ALWAYS: u32 = abi::POLLIN | abi::POLLOUT | abi::POLLRDNORM | abi::POLLWRNORM;
        match self.kind() {
            Kind::Pipe(pipe, side) => {
                pipe.watchers.watch();
                pipe.poll(side)
            }
            Kind::Device(Device::Terminal) => tty::poll(),
            Kind::Place => abi::POLLNVAL,
            Kind::File(_) | Kind::Folder | Kind::Device(_) => ALWAYS,
        }
    }
}

/// How many open files are left, for the last account of memory.
pub(crate) fn forget() -> u64 {
    POOL.forget()
}
