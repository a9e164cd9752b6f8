//! The array of all frame descriptors.

use super::{Frame, Use};
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;
use minflt_sync::{Array, Callback};

/// The table of all frames: those from number `first` on.
pub(crate) struct FrameTable<M: Mmu> {
    frames: Array<Frame<M>>,
    first: u64,
}

impl<M: Mmu> FrameTable<M> {
    /// The descriptors of the frames from `first` on.
    pub(crate) const fn new(frames: Array<Frame<M>>, first: Pfn) -> Self {
        let first = first.0;
        Self { frames, first }
    }

    /// The first frame.
    pub(crate) const fn first(&self) -> Pfn {
        Pfn(self.first)
    }

    /// Number of frames.
    pub(crate) const fn len(&self) -> u64 {
        self.frames.len()
    }

    /// At boot: the frames `hole` are no memory; those of `then` behind them are, none at the end.
    pub(crate) fn set_hole(&self, hole: Range<u64>, then: &Range<u64>) {
        if !hole.is_empty() {
            self.get(Pfn(hole.start)).begin_hole(then);
        }
        hole.for_each(|pfn| self.get(Pfn(pfn)).set_use(Use::Absent));
    }

    /// The frames that are memory behind those that end at `end`, none at the end of all.
    pub(crate) fn behind(&self, end: u64) -> Range<u64> {
        match end < self.first + self.len() {
            true => self.get(Pfn(end)).behind_hole(),
            false => end..end,
        }
    }

    /// The descriptor of `pfn`.
    ///
    /// # Panics
    /// If there is no such frame: an entry was corrupt.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> &Frame<M> {
        match self.frames.get(pfn.0.wrapping_sub(self.first)) {
            Some(frame) => frame,
            None => no_frame(pfn),
        }
    }

    /// The callback of the descriptor of `pfn`.
    ///
    /// # Panics
    /// If there is no such frame.
    pub(crate) fn callback_of(&self, pfn: Pfn) -> NonNull<Callback> {
        NonNull::from(&self.get(pfn).callback)
    }

    /// The frame that a descriptor's callback belongs to.
    pub(crate) fn of_callback(&self, callback: NonNull<Callback>) -> Pfn {
        let offset = offset_of!(Frame<M>, callback);
        let frame = callback.as_ptr() as usize - offset;
        let index = (frame - self.base() as usize) / size_of::<Frame<M>>();
        Pfn(self.first + index as u64)
    }

    /// Where the table lies.
    pub(crate) const fn base(&self) -> *const Frame<M> {
        self.frames.base()
    }
}

/// Takes the number, not a reference: that would have to lie in memory on the way that is good.
#[cold]
#[inline(never)]
fn no_frame(pfn: Pfn) -> ! {
    panic!("no frame {pfn}")
}

impl<M: Mmu> fmt::Debug for FrameTable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameTable({})", self.len())
    }
}
