//! Reads file pages in, with readahead.
//!
//! The page that a fault waits for is read first. If the file is being read in order (the page is
//! the one behind the last that was read), some behind it are read, too, twice as many each time;
//! if not, or if the mapping says that accesses come in no order, none. All of it is done by who
//! asked: there is nobody in the background.
//!
//! Linux: mm/readahead.c, which reads ahead without waiting.

use super::PageCache;
use crate::base::attrs::VmaFlags;
use crate::base::error::{FileError, NoMemory};
use crate::base::event::Event;
use crate::pages::page::Locked;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering};

/// Pages read ahead at most: 128 KiB of 4 KiB pages, as Linux's default.
const MOST: u64 = 32;
const FIRST: u64 = 4;

/// Where reading is. Only a hint: who reads at the same time may spoil it.
#[derive(Debug)]
pub(super) struct Ahead<M: Mmu> {
    next: Atomic<u64, M>,
    window: Atomic<u64, M>,
}

/// Why a page could not be read in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotRead {
    /// The device failed.
    Failed,
    /// No memory for the page.
    NoMemory,
}

impl From<NotRead> for FileError {
    fn from(why: NotRead) -> Self {
        match why {
            NotRead::Failed => Self::Io,
            NotRead::NoMemory => Self::NoMemory,
        }
    }
}

impl From<NoMemory> for NotRead {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl<M: Mmu> Ahead<M> {
    pub(super) fn new() -> Self {
        Self {
            next: Atomic::new(0),
            window: Atomic::new(0),
        }
    }

    /// How many pages behind `index` are to be read.
    fn window(&self, index: u64, flags: VmaFlags) -> u64 {
        if flags.has(VmaFlags::RANDOM) {
            return 0;
        }
        let in_order = self.next.load(Ordering::Relaxed) == index;
        let last = self.window.load(Ordering::Relaxed);
        let window = match in_order || flags.has(VmaFlags::SEQUENTIAL) {
            true => (last * 2).clamp(FIRST, MOST),
            false => 0,
        };
        self.window.store(window, Ordering::Relaxed);
        self.next.store(index + 1 + window, Ordering::Relaxed);
        window
    }
}

impl<M: Mmu> PageCache<M> {
    /// Reads page `index` in, if the file has it and it is not there, and some behind it. `flags`
    /// are those of the mapping that it is for.
    ///
    /// # Context
    /// Sleeps, and waits for the device. The caller holds the file, and no lock.
    ///
    /// # Errors
    /// The device failed, or no memory.
    pub(crate) fn read_in(&self, index: u64, flags: VmaFlags) -> Result<(), NotRead> {
        if self.ops.is_none() {
            return Ok(());
        }
        self.read_one(index)?;
        let behind = index + 1..index + 1 + self.read.window(index, flags);
        for index in behind {
            // A page that nobody has asked for.
            let absent = index < self.pages() && self.find(index).is_none();
            if !absent || self.read_one(index).is_err() {
                break;
            }
            self.system().count(Event::ReadAhead);
        }
        Ok(())
    }

    fn read_one(&self, index: u64) -> Result<(), NotRead> {
        loop {
            if index >= self.pages() {
                return Ok(());
            }
            let page = match self.find(index) {
                Some(page) => page.lock(),
                None => match self.make(index)? {
                    Some(page) => page,
                    None => continue,
                },
            };
            if !page.is(self, index) {
                continue;
            }
            if page.frame().is_uptodate() {
                return Ok(());
            }
            return self.fill(index, &page);
        }
    }

    fn fill(&self, index: u64, page: &Locked<'_, M>) -> Result<(), NotRead> {
        let sys = self.system();
        let Some(ops) = self.ops else {
            return Ok(());
        };
        sys.count(Event::PagesRead);
        let read = ops.read_page(&sys.at, index, page.pfn());
        read.map_err(|_| NotRead::Failed)?;
        page.frame().set_uptodate();
        Ok(())
    }
}
