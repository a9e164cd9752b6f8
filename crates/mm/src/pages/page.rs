//! One page of user memory, referenced or locked.
//!
//! The folio lock is a bit of the frame's descriptor ([`minflt_sync::WaitTable`]). Who has it keeps
//! a page of a file in its file, and a page from being moved or swapped out by somebody else; what
//! the page belongs to has to be looked at after the lock was had.
//!
//! Linux: folio_lock, folio_get.

use crate::base::error::MovePageError;
use crate::memory::frame::Frame;
use crate::system::System;
use core::mem::ManuallyDrop;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::order::FolioLock;

/// A page, referred to until dropped.
pub(crate) struct Page<'c, M: Mmu> {
    sys: &'c System<M>,
    pfn: Pfn,
}

/// A page, locked until dropped.
pub(crate) struct Locked<'c, M: Mmu> {
    page: ManuallyDrop<Page<'c, M>>,
}

impl<'c, M: Mmu> Page<'c, M> {
    /// Takes a reference over that the caller has.
    pub(crate) const fn held(sys: &'c System<M>, pfn: Pfn) -> Self {
        Self { sys, pfn }
    }

    pub(crate) fn frame(&self) -> &'c Frame<M> {
        self.sys.frames.get(self.pfn)
    }

    pub(crate) const fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Locks it. What it belongs to has to be looked at after that.
    ///
    /// # Context
    /// Sleeps.
    pub(crate) fn lock(self) -> Locked<'c, M> {
        let sys = self.sys;
        sys.files.waits.lock::<FolioLock>(
            self.pfn.0,
            self.frame().state(),
            Frame::<M>::LOCKED,
            Frame::<M>::WAITERS,
        );
        Locked {
            page: ManuallyDrop::new(self),
        }
    }

    /// Locks it, if nobody has it locked.
    pub(crate) fn try_lock(self) -> Result<Locked<'c, M>, Self> {
        let sys = self.sys;
        let mine = sys
            .files
            .waits
            .try_lock::<FolioLock>(self.frame().state(), Frame::<M>::LOCKED);
        if mine {
            let page = ManuallyDrop::new(self);
            return Ok(Locked { page });
        }
        Err(self)
    }

    /// The reference is somebody else's from now on.
    pub(crate) fn give(self) -> Pfn {
        ManuallyDrop::new(self).pfn
    }
}

impl<M: Mmu> Drop for Page<'_, M> {
    fn drop(&mut self) {
        self.sys.frames.put(self.pfn);
    }
}

impl<'c, M: Mmu> Locked<'c, M> {
    pub(crate) fn frame(&self) -> &'c Frame<M> {
        self.page.frame()
    }

    pub(crate) fn pfn(&self) -> Pfn {
        self.page.pfn
    }

    /// Lets the lock go and keeps the reference.
    pub(crate) fn unlock(self) -> Page<'c, M> {
        let locked = ManuallyDrop::new(self);
        let (sys, pfn) = (locked.page.sys, locked.page.pfn);
        unlock(sys, pfn);
        Page { sys, pfn }
    }

    /// Waits until what is being written of it is written.
    ///
    /// # Context
    /// Sleeps.
    pub(crate) fn await_writeback(&self) {
        let sys = self.page.sys;
        sys.files.waits.wait_clear(
            self.pfn().0,
            self.frame().state(),
            Frame::<M>::WRITEBACK,
            Frame::<M>::WAITERS,
        );
    }
}

impl<M: Mmu> Drop for Locked<'_, M> {
    fn drop(&mut self) {
        let (sys, pfn) = (self.page.sys, self.page.pfn);
        unlock(sys, pfn);
        sys.frames.put(pfn);
    }
}

fn unlock<M: Mmu>(sys: &System<M>, pfn: Pfn) {
    sys.files.waits.unlock::<FolioLock>(
        pfn.0,
        sys.frames.get(pfn).state(),
        Frame::<M>::LOCKED,
        Frame::<M>::WAITERS,
    );
}

/// Why a page was not moved. It is where it was, and as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotMoved {
    /// Somebody else refers to it, or it is on its way out.
    Busy,
    /// There is no frame on that node.
    NoMemory,
}

impl From<NotMoved> for MovePageError {
    fn from(why: NotMoved) -> Self {
        match why {
            NotMoved::Busy => Self::Busy,
            NotMoved::NoMemory => Self::NoMemory,
        }
    }
}
