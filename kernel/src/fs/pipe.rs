//! Pipes: bytes that are read in the order in which they were written.
//!
//! # Problem
//! Writers and readers take turns at will, each sleeps while there is no room or nothing to read,
//! and what is written at once, up to a page, is read in one piece.
//!
//! # Idea
//! A ring of pages, which come when the first byte goes into them and go when the last one was
//! read. Bytes between a program and the ring take the way over a buffer of the caller: a page of
//! the program may have to be faulted in, which is not done under the ring's lock.
//!
//! # Cost
//! Bytes are copied twice. Linux: fs/pipe.c, which copies once, under a lock that sleeps.

use linux_raw_sys::general as abi;
use minflt_mm::{Errno, Gfp, KernelPages};
use minflt_sync::order::WaitLock;
use minflt_sync::{Atomic, Ordering, SpinLock};

use crate::arch::paging::PAGE;
use crate::linux::{EAGAIN, EPIPE};
use crate::machine::Kernel;
use crate::pool::{Pool, Pooled, Ref};
use crate::watch::{self, Watchers};

/// Bytes in a page.
const PAGE_BYTES: usize = PAGE as usize;
/// Pages of a ring. Linux: `PIPE_DEF_BUFFERS`.
const PAGES: usize = 16;
/// As many bytes as a pipe holds.
pub(crate) const MOST: usize = PAGES * PAGE_BYTES;

/// One side of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// It may be read from.
    pub(crate) reads: bool,
    /// It may be written to.
    pub(crate) writes: bool,
}

/// A pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    ring: SpinLock<Ring, WaitLock, Kernel>,
    /// Open files that read, and how many there ever were.
    readers: [Atomic<u32, Kernel>; 2],
    /// The same of those that write.
    writers: [Atomic<u32, Kernel>; 2],
    /// Those that wait for a change.
    pub(crate) watchers: Watchers,
}

#[derive(Debug)]
struct Ring {
    /// Bytes that were read, ever.
    read: u64,
    /// Bytes that were written, ever.
    written: u64,
    pages: [Option<KernelPages<'static, Kernel>>; PAGES],
}

static POOL: Pool<Pipe> = Pool::new();

impl Pooled for Pipe {
    fn new() -> Self {
        Self {
            ring: SpinLock::new(Ring {
                read: 0,
                written: 0,
                pages: [const { None }; PAGES],
            }),
            readers: [Atomic::new(0), Atomic::new(0)],
            writers: [Atomic::new(0), Atomic::new(0)],
            watchers: Watchers::new(),
        }
    }

    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn clean(&self) {
        self.drain();
    }
}

impl Ring {
    const fn len(&self) -> usize {
        (self.written - self.read) as usize
    }

    /// The page that byte `at` is in, and where it is there.
    fn place(&mut self, at: u64) -> (&mut Option<KernelPages<'static, Kernel>>, usize) {
        let page = (at / PAGE) as usize % PAGES;
        (&mut self.pages[page], (at % PAGE) as usize)
    }

    /// Whether pages are missing for `len` bytes, at most a page's worth, that these are too few
    /// for.
    fn lacks(&mut self, len: usize, spares: &[Option<KernelPages<'static, Kernel>>; 2]) -> bool {
        let first = self.written;
        let last = first + (len as u64).saturating_sub(1);
        let mut missing = usize::from(self.place(first).0.is_none());
        if last / PAGE != first / PAGE {
            missing += usize::from(self.place(last).0.is_none());
        }
        missing > spares.iter().flatten().count()
    }

    /// Appends as much as there is room for, and pages; how many bytes. A page that it lacks it
    /// takes from `spare`.
    fn append(&mut self, from: &[u8], spare: &mut Option<KernelPages<'static, Kernel>>) -> usize {
        let mut done = 0;
        while done < from.len() && self.len() < MOST {
            let room = MOST - self.len();
            let at = self.written;
            let (page, offset) = self.place(at);
            if page.is_none() {
                *page = spare.take();
            }
            let Some(page) = page else { break };
            let part = (from.len() - done).min(PAGE_BYTES - offset).min(room);
            page.as_bytes_mut()[offset..offset + part].copy_from_slice(&from[done..done + part]);
            self.written += part as u64;
            done += part;
        }
        done
    }

    /// Takes bytes out; how many. A page that is empty afterwards goes to `spent`.
    fn take(
        &mut self,
        to: &mut [u8],
        spent: &mut [Option<KernelPages<'static, Kernel>>; 2],
    ) -> usize {
        let mut done = 0;
        while done < to.len() && self.len() > 0 {
            let there = self.len();
            let at = self.read;
            let (page, offset) = self.place(at);
            let part = (to.len() - done).min(PAGE_BYTES - offset).min(there);
            if let Some(page) = page {
                to[done..done + part].copy_from_slice(&page.as_bytes_mut()[offset..offset + part]);
            }
            self.read += part as u64;
            done += part;
            // What was written last may have come round to the page that was read first.
            let start = at / PAGE * PAGE;
            let is_left = self.read == start + PAGE && self.written <= start + MOST as u64;
            if is_left {
                let gone = self.place(at).0.take();
                let free = spent.iter_mut().find(|it| it.is_none());
                match free {
                    Some(free) => *free = gone,
                    // No more than two pages are left by a buffer of one.
                    None => self.pages[(at / PAGE) as usize % PAGES] = gone,
                }
            }
        }
        done
    }
}

/// Allocates the spare pages that there are not. Sleeps.
fn refill(spares: &mut [Option<KernelPages<'static, Kernel>>; 2]) -> Result<(), Errno> {
    let sys = crate::system().ok_or(Errno::ENOMEM)?;
    for spare in spares.iter_mut().filter(|spare| spare.is_none()) {
        *spare = Some(sys.alloc_pages(0, Gfp::Kernel)?);
    }
    Ok(())
}

impl Pipe {
    /// A new one, which is not open.
    pub(crate) fn make() -> Result<Ref<Self>, Errno> {
        let pipe = POOL.take()?;
        for count in pipe.readers.iter().chain(&pipe.writers) {
            count.store(0, Ordering::Relaxed);
        }
        Ok(pipe)
    }

    /// Drops what was not read.
    fn drain(&self) {
        for index in 0..PAGES {
            let mut ring = self.ring.lock();
            let page = ring.pages[index].take();
            ring.read = 0;
            ring.written = 0;
            drop(ring);
            drop(page);
        }
    }

    /// An open file more of this side.
    pub(crate) fn open(&self, side: Side) {
        for (counts, more) in [(&self.readers, side.reads), (&self.writers, side.writes)] {
            if more {
                counts.iter().for_each(|count| {
                    count.add(1, Ordering::Relaxed);
                });
            }
        }
        self.watchers.wake();
    }

    /// One less. The contents of a pipe go with the last one.
    pub(crate) fn close(&self, side: Side) {
        for (counts, less) in [(&self.readers, side.reads), (&self.writers, side.writes)] {
            if less {
                // ORDERING: Release of what was written; pairs with [kernel-pipe].
                counts[0].sub(1, Ordering::Release);
            }
        }
        if !self.is_read() && !self.is_written() {
            self.drain();
        }
        self.watchers.wake();
    }

    fn is_read(&self) -> bool {
        self.readers[0].load(Ordering::Relaxed) > 0
    }

    fn is_written(&self) -> bool {
        // ORDERING: Acquire: a reader that finds none finds in the ring what they wrote; pairs with
        // [kernel-pipe].
        self.writers[0].load(Ordering::Acquire) > 0
    }

    /// Sleeps until the other side was opened, as opening a pipe with a name does. The caller has
    /// opened its own side, whose count keeps the other one's opener from sleeping in turn.
    pub(crate) fn await_other(&self, side: Side) -> Result<(), Errno> {
        let counts = match side {
            Side {
                reads: true,
                writes: true,
            } => return Ok(()),
            Side { reads: true, .. } => &self.writers,
            _ => &self.readers,
        };
        let before = counts[1].load(Ordering::Relaxed);
        let found = watch::wait(None, || {
            self.watchers.watch();
            let there = counts[0].load(Ordering::Relaxed) > 0;
            (there || counts[1].load(Ordering::Relaxed) != before).then_some(())
        });
        Ok(found?)
    }

    /// Whether a process reads it, now.
    pub(crate) fn has_reader(&self) -> bool {
        self.is_read()
    }

    /// Takes bytes out of it; 0 when it is empty and has no writers. Sleeps while it is empty.
    pub(crate) fn read(&self, to: &mut [u8], wait: bool) -> Result<usize, Errno> {
        let taken = watch::wait(None, || {
            self.watchers.watch();
            // Before the ring: what was written before the last one closed is found there.
            let written = self.is_written();
            let mut spent = [None, None];
            let taken = self.ring.lock().take(to, &mut spent);
            drop(spent);
            match taken {
                0 if !written => Some(Ok(0)),
                0 if wait => None,
                0 => Some(Err(EAGAIN)),
                taken => Some(Ok(taken)),
            }
        })??;
        if taken > 0 {
            self.watchers.wake();
        }
        Ok(taken)
    }

    /// Puts bytes into it, at most a page, in one piece; how many, which are all unless it does not
    /// wait. Sleeps while there is no room.
    ///
    /// # Errors
    /// `EPIPE` without readers; `EAGAIN` where it would sleep and `wait` is false.
    pub(crate) fn write(&self, from: &[u8], wait: bool) -> Result<usize, Errno> {
        let mut spares = [None, None];
        let put = watch::wait(None, || {
            loop {
                // Each time: the bit may be gone that was set before a sleep for memory.
                self.watchers.watch();
                if !self.is_read() {
                    return Some(Err(EPIPE));
                }
                let mut ring = self.ring.lock();
                if MOST - ring.len() < from.len() {
                    return if wait { None } else { Some(Err(EAGAIN)) };
                }
                if !ring.lacks(from.len(), &spares) {
                    let mut put = 0;
                    for spare in &mut spares {
                        put += ring.append(&from[put..], spare);
                    }
                    return Some(Ok(put));
                }
                drop(ring);
                if let Err(error) = refill(&mut spares) {
                    return Some(Err(error));
                }
            }
        })??;
        self.watchers.wake();
        Ok(put)
    }

    /// Bytes that can be read.
    pub(crate) fn len(&self) -> usize {
        self.ring.lock().len()
    }

    /// What poll says of this side. The caller has watched it.
    pub(crate) fn poll(&self, side: Side) -> u32 {
        let mut events = 0;
        let len = self.len();
        if side.reads {
            if len > 0 {
                events |= abi::POLLIN | abi::POLLRDNORM;
            }
            if !self.is_written() {
                events |= abi::POLLHUP;
            }
        }
        if side.writes {
            // Room for what is written in one piece.
            if MOST - len >= PAGE_BYTES {
                events |= abi::POLLOUT | abi::POLLWRNORM;
            }
            if !self.is_read() {
                events |= abi::POLLERR;
            }
        }
        events
    }
}

/// How many pipes are left, for the last account of memory.
pub(crate) fn forget() -> u64 {
    POOL.forget()
}
